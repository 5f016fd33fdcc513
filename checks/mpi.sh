#!/usr/bin/env bash
# mpi: four MPI processes under `engraft values`: what the program itself counts is what the recordings, added
# up, hold. Needs openmpi-bin and libopenmpi-dev, which it installs. Usage: checks/mpi.sh [ENGRAFT]
set -euo pipefail
cd "$(dirname "$0")/.."
engraft=$(realpath "${1:-target/debug/engraft}")
command -v mpicc > /dev/null || scripts/install.sh openmpi-bin libopenmpi-dev
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
cat > "$folder/ranks.c" <<'C'
#include <mpi.h>
#include <stdio.h>
__attribute__((noinline)) long work(long n) {
    long k = 0;
    do { k++; __asm__ volatile("" : "+r"(k)); } while (k < n);
    return 3 * k;
}
int main(int argc, char **argv) {
    int rank, n_ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    long sum = 0, all, calls = 0, n_calls;
    for (long i = 0; i < 1000 * (rank + 1); i++) { sum += work(i % 7 + 1 + rank); calls++; }
    MPI_Reduce(&sum, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&calls, &n_calls, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld calls, %ld in all\n", n_calls, all);
    MPI_Finalize();
    return 0;
}
C
mpicc -O2 -o "$folder/ranks" "$folder/ranks.c"
cd "$folder"
run="mpirun --allow-run-as-root --oversubscribe -n 4"
$run ./ranks > plain
$run "$engraft" values -q --loop work --calls 'long work(long n);' ./ranks > recorded
cmp plain recorded
ls ranks.values.*.engraft
"$engraft" convert ranks.values.[0-3].engraft -o all.engraft > /dev/null
"$engraft" show all.engraft --json > said
python3 - plain said <<'PY'
import json, sys
calls, total = (int(word) for word in open(sys.argv[1]).read().replace(" in all", "").split(" calls, "))
said = json.load(open(sys.argv[2]))
row = said["calls"][0]
assert row["calls"] == row["results"] == calls, (row["calls"], calls)
assert sum(int(one["value"]) * one["count"] for one in row["result"]["top"]) == total
(loop,) = said["loops"]
assert loop["instances"] == calls and loop["iterations"]["total"] * 3 == total
print(f"{calls} calls of 4 processes, results {total}: equal")
PY

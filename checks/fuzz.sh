#!/usr/bin/env bash
# fuzz.sh [N] [PROCESSES] [FILES]: N damaged programs (1,000,000) through load, analysis and verifier in one
# process with overflow checks on, a tenth as many through rewriting, then PROCESSES (3,000) of them through
# the engraft command, each in a process held to 10 s and 2 GB. Then FILES (200,000) damaged files through
# each of the other targets of `fuzz/`, in one process each, with overflow checks. FROM=n starts at mutation
# n. Exit 1 if one panics, breaks a promise, is killed, or is refused with anything but one error.
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-1000000}; processes=${2:-3000}; files=${3:-200000}; from=${FROM:-0}
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
# As fast as a release, with the checks of a development build; in a folder of its own, so that neither is
# built twice.
export CARGO_PROFILE_DEV_OPT_LEVEL=3 CARGO_TARGET_DIR=$target/checks
cargo build -q -p engraft
ENGRAFT_MUTATIONS=$n ENGRAFT_MUTATIONS_FROM=$from cargo test -q -p program --test mutations -- --nocapture
ENGRAFT_MUTATIONS=$((n / 10)) ENGRAFT_MUTATIONS_FROM=$from cargo test -q -p probe --test mutations

folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
ENGRAFT_MUTATIONS=$processes ENGRAFT_MUTATIONS_FROM=$from ENGRAFT_MUTATIONS_INTO=$folder \
    cargo test -q -p program --test mutations >/dev/null
loaded=0; refused=0; bad=0
for file in "$folder"/*; do
    status=0
    said=$(ulimit -v 2000000; timeout 10 "$CARGO_TARGET_DIR/debug/engraft" show --verify "$file" 2>&1 >/dev/null) || status=$?
    case $status in
        0) loaded=$((loaded + 1)) ;;
        2) refused=$((refused + 1))
           [ "$(grep -c '^engraft: ' <<<"$said")" = 1 ] || { bad=$((bad + 1)); echo "fuzz: $(basename "$file"): $said" >&2; } ;;
        *) bad=$((bad + 1)); echo "fuzz: mutation $(basename "$file"): exit $status: $said" >&2 ;;
    esac
done
echo "fuzz: $processes processes: $loaded loaded, $refused refused, $bad bad"
for name in memory graft rewrite profile recording map carry decode trace events names path plain branches compare view; do
    cargo run -q --release --manifest-path fuzz/Cargo.toml --bin mutations -- "$name" "$files" "$from" || bad=$((bad + 1))
done
[ "$bad" = 0 ]

#!/usr/bin/env bash
# test.sh: installs what the tests need, then runs all of them; a tool that is missing is a failure, not a
# skip. Needs a Rust toolchain and Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh gcc g++ libc6-dev gfortran binutils valgrind python3 llvm-19 clang-19 lld-19 bolt-19 lcov musl-tools golang-1.19-go linux-perf gdb ocaml-nox procps chromium chromium-driver
scripts/axe.sh
ENGRAFT_TEST_NEEDS=all cargo test --workspace "$@"

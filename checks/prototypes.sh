#!/usr/bin/env bash
# prototypes.sh [N [SEED]]: N random prototypes (2,000) with random values, compiled by gcc and by clang, in
# the tests of `engraft/tests/it/prototypes.rs`, with more:
# - each argument and result is found, bit for bit, where `program::arch::abi::arguments` says,
# - debug information says of each function what its prototype says,
# - `engraft values`, with a header, records what the callees print.
# Prints the seed and what differs. Exit 1 if anything does.
set -euo pipefail
cd "$(dirname "$(dirname "$(realpath "$0")")")"
ENGRAFT_TEST_NEEDS=all ENGRAFT_PROTOTYPES=${1:-2000} ENGRAFT_SEED=${2:-1} \
  cargo test -p engraft --test it -- --nocapture prototypes::

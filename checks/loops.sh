#!/usr/bin/env bash
# loops.sh [FILE…]: the loops of every function against brute force (components, their entries taken away,
# components again). Without FILEs, those of the twenty largest programs in /usr/bin that are at most 50 MB.
# Exit 1 if a loop differs.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
    mapfile -t files < <(find /usr/bin -type f -size -50M -printf '%s %p\n' | sort -rn | cut -d' ' -f2- |
        while IFS= read -r f; do [ "$(head -c 4 "$f" | tr -d '\0')" = $'\x7fELF' ] && echo "$f"; done | head -n 20 || true)
    set -- "${files[@]}"
fi
cargo build -q --release -p program --example loops
loops=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/loops
exec "$loops" "$@"

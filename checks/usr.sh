#!/usr/bin/env bash
# usr.sh [FOLDER…]: every ELF file below /usr (or FOLDER…) through `engraft show --verify`, each held to 10 s
# of processor time and 2 GB. Prints one line for every file that is neither loaded nor refused with one
# error, and the share of code in functions. Exit 1 if there is such a file, or if less than 99 % of all bytes
# of code (without padding) are in functions.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- /usr
cargo build -q --release -p engraft
engraft=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/engraft
export engraft

# show OPTION… FILE: engraft's output; what it says goes to the file $err
show() { (ulimit -v 2000000 -t 10; exec "$engraft" show "$@" 2>"$err"); }
one() {
    status=0; err=$(mktemp)
    out=$(show --verify "$1") || status=$?
    case $status in
        0) # padding between functions is in none
           bytes=$(show --json "$1" | jq -r '"\(.code_bytes - .code_bytes_padding) \(.code_bytes_in_functions)"') || true
           echo "loaded $bytes $1" ;;
        2) if [ "$(grep -c '^engraft: ' "$err")" = 1 ]; then echo "refused 0 0 $1"; else echo "bad 0 0 $1: $(cat "$err")"; fi ;;
        *) echo "bad 0 0 $1: exit $status: $(head -c 300 "$err") $(head -c 300 <<<"$out")" ;;
    esac | tr '\n' ' '; echo
    rm -f "$err"
}
export -f show
export -f one
find "$@" -xdev -type f -size +63c -print0 |
    while IFS= read -r -d '' file; do
        [ "$(head -c 4 "$file" | tr -d '\0')" = $'\x7fELF' ] && printf '%s\0' "$file" || true
    done | xargs -0 -P "$(nproc)" -I{} bash -c 'one "$1"' _ {} |
    awk '$1 == "bad" { print; bad++ } $1 == "refused" { refused++ }
         $1 == "loaded" { loaded++; code += $2; held += $3; if ($3 < 0.99 * $2) { low++; print "low", $3 / $2, $4 } }
         END { share = code ? 100 * held / code : 0
               printf "usr: %d loaded, %d refused, %d bad; %.2f %% of code in functions; %d files below 99 %%\n",
                      loaded, refused, bad, share, low
               exit bad > 0 || share < 99 }'

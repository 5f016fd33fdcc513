#!/usr/bin/env bash
# chromium.sh: Chromium, headless, shows a local page, plain and counted: what it prints of the page must be
# equal. Prints seconds and processor seconds of the run alone, of the first counted one and of one from the
# cache, of one from the cache with its report, and of `show REC`. Fails if the page differs, or something
# takes longer than it may: 60 s the first time, 6 s from the cache, 3 s for report and `show`. The machine
# should have nothing else to do: what the report takes is a difference of two runs.
#
# ENGRAFT: the command; CHROMIUM: the program itself (the one in /usr/bin is a script).
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
chromium=${CHROMIUM:-/usr/lib/chromium/chromium}
[ -x "$chromium" ] || { echo "$chromium is not here: apt-get install chromium" >&2; exit 2; }
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/cache HOME=$tmp TIMEFORMAT='%R %U %S'
cat >"$tmp/page.html" <<'PAGE'
<!doctype html><title>page</title><ul id="list"></ul>
<script>
for (let i = 1; i <= 20; i++) {
  const item = document.createElement("li");
  item.textContent = `${i}: ${(i * 7919) % 1009}`;
  document.getElementById("list").append(item);
}
</script>
PAGE
browser=("$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/user"
  --dump-dom "file://$tmp/page.html")
failed=0
# run NAME MOST COMMAND...: MOST seconds, or - for any.
run() {
    local name=$1 most=$2 spent; shift 2
    spent=$( { time "$@" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null; } 2>&1) || { echo "$name failed: $*" >&2; tail -n 5 "$tmp/$name.err" >&2; exit 1; }
    awk -v name="$name" -v most="$most" -v spent="$spent" 'BEGIN { split(spent, s, " ")
        late = most != "-" && s[1] > most
        printf "%-10s %7.2f s, %7.2f s of CPU%s%s\n", name, s[1], s[2] + s[3], most == "-" ? "" : " (at most " most ")", late ? "  FAILED" : ""
        exit late }' || failed=1
    echo "$spent" >"$tmp/$name.spent"
}
page() { cmp -s "$tmp/plain.out" "$tmp/$1.out" || { echo "the page differs: $1" >&2; failed=1; }; }
run plain - "${browser[@]}"
grep -q '<li>20: 976</li>' "$tmp/plain.out" || { echo "the page is not shown" >&2; exit 1; }
run first 60 "$engraft" count -q -o "$tmp/first.engraft" "${browser[@]}"; page first
run cached 6 "$engraft" count -q -o "$tmp/run.engraft" "${browser[@]}"; page cached
run reported 9 "$engraft" count -o "$tmp/reported.engraft" "${browser[@]}"; page reported
run show 3 "$engraft" show "$tmp/run.engraft"
awk 'NR == FNR { cached = $1; next } { printf "report     %7.2f s (at most 3): reported less cached\n", $1 - cached; exit $1 - cached > 3 }' \
    "$tmp/cached.spent" "$tmp/reported.spent" || failed=1
ls -l "$tmp/run.engraft" | awk '{ printf "recording  %d bytes\n", $5 }'
exit $failed

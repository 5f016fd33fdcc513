#!/usr/bin/env bash
# same-output.sh OLD NEW [CASE…]: two builds of engraft (paths of the commands) do the same work, and what
# they write must be equal. Exit 1 if something differs, with its name, the command that wrote it and where
# it differs first.
#
# Compared byte by byte: what `show`, `match`, `carry`, `score`, `convert`, `diff` and `query` print and write
# (exit status and messages, too), of the same binaries, recordings and traces; `trace pack` of the same
# trace. Of new runs, which have times in their files: what `convert` makes of a recording and of a trace
# (counts, symbols). Of `instrument`: the whole file; where it differs, same-output.py looks once more and
# leaves the runtime's own part out (its head says how that is recognised).
#
# CASE: show match carry convert diff query instrument count trace (default: all). FOLDER: where recordings
# and traces made by OLD are kept for the next time (default: target/same-output); PROGRAMS: of the corpora
# (lua sqlite rg; lua has to be among them); ENGRAFT_RUNTIME: the symbols around the runtime, if they are
# renamed. WORDS: a sed script that is applied to both sides' text,
# for builds that differ in words on purpose. KEEP: not removed at the end, what was written. CORPORA_SCRIPTS,
# CORPORA: as in carry.sh. Needs Debian 12, a C compiler, objdump and readelf; a quarter of an hour.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: same-output.sh OLD NEW [CASE…]" >&2; exit 2; }
top=$(dirname "$(dirname "$(realpath "$0")")")
scripts=${CORPORA_SCRIPTS:-$top/../shared/corpora}
export CORPORA=${CORPORA:-$top/target/corpora} LC_ALL=C TZ=UTC
old=$(realpath "$1") new=$(realpath "$2"); shift 2
[ $# -gt 0 ] || set -- show match carry convert diff query instrument count trace
"$top/scripts/install.sh" binutils python3 gzip bzip2 xz-utils sqlite3 lua5.4
declare -A versions=([lua]="543.1.0 548.1.2" [sqlite]="0.24.2 0.30.1" [rg]="15.0.0 15.1.0")
pairs=() newest=() programs=(${PROGRAMS:-lua sqlite rg})
for p in "${programs[@]}"; do
  read -r a b <<<"${versions[$p]}"
  for v in "$a" "$b"; do [ -x "$CORPORA/bin/$p-$v" ] || "$scripts/build.sh" "$p" "$v"; done
  pairs+=("$p-$a $p-$b") newest+=("$p-$b")
done
bin=$CORPORA/bin
has() { [[ " ${programs[*]} " == *" $1 "* ]]; }
system=(/usr/bin/{gzip,bzip2,xz,sqlite3,lua5.4,bash,perl,sed} /usr/lib/x86_64-linux-gnu/{libbz2.so.1.0,libz.so.1,libstdc++.so.6,libm.so.6})

# What both are given. All of it by OLD, once; in a folder that also says which OLD.
folder=${FOLDER:-$top/target/same-output}
mkdir -p "$folder"; folder=$(realpath "$folder")
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache HOME=$work
plain() { setarch -R "$@"; } # addresses are the same in each run, and so is what is hashed by them
kept=$folder/$(cksum <"$old" | tr ' ' -)-${programs[*]}; kept=${kept// /-}; in=$kept
if [ ! -e "$kept/made" ]; then
  mkdir -p "$kept"
  (
    cd "$kept"
    awk 'BEGIN { s = 7; for (n = 0; n < 3000; n++) { line = ""
      for (i = 0; i < 12; i++) { s = (s * 16807) % 2147483647; w = s % 997; line = line (w % 7 ? "word" w : "the") " " }
      print line } }' >text
    printf 'local t = {} for i = 1, 40 do t[i] = (i * 7919) %% 1009 end table.sort(t) print(#t, t[1])\nprint(pcall(error, "x"), ("ab"):rep(9):gsub("a", "c"))\n' >small.lua
    for pair in "${pairs[@]}"; do for b in $pair; do strip -s -o "$b.stripped" "$bin/$b"; done; done
    count() { local rec=$1; shift; plain "$old" count -q --no-cache -o "$rec" -- "$@" >/dev/null || true; }
    for pair in "${pairs[@]}"; do
      for b in $pair; do
        case $b in
        lua-*) count "$b.engraft" "$bin/$b" "$scripts/drv/bench.lua"; count "$b.small.engraft" "$bin/$b" small.lua ;;
        sqlite-*) count "$b.engraft" "$bin/$b" 400; count "$b.small.engraft" "$bin/$b" 20 ;;
        rg-*) count "$b.engraft" "$bin/$b" -j1 --no-config 'word1[0-9]' text; count "$b.small.engraft" "$bin/$b" -j1 -c the text ;;
        esac
      done
    done
    plain "$old" count -q --no-cache --callees -o callees.engraft -- "$bin/lua-548.1.2" small.lua >/dev/null
    plain "$old" count -q --no-cache --per-thread -o threads.engraft -- xz -T2 --block-size=20000 -c text >/dev/null
    record() { local t=$1; shift; plain "$old" trace -q --no-cache -o "$t" -- "$@" >/dev/null; }
    record gzip.trace gzip -5 -n -c text; record lua.trace "$bin/lua-548.1.2" small.lua; record other.trace "$bin/lua-548.1.2" /dev/null
    record xz.trace xz -T2 --block-size=20000 -c text
    for t in gzip lua other xz; do "$old" trace pack -q $t.trace -o $t.packed.trace; done
    "$old" convert -q lua.trace -o lua.trc; "$old" convert -q gzip.trace -o gzip.trc
    # Paths to ask for: what ran most often, and less often.
    for t in gzip lua xz; do
      "$old" query $t.packed.trace --hottest 300 --length 3 --json | python3 -c 'import json, sys
paths = json.load(sys.stdin)["paths"]
for p in paths[:: max(1, len(paths) // 12)]: print("#%d: %s" % (p["function_id"], " ".join(map(str, p["blocks"]))))' >$t.paths
    done
    printf 'entry main count\nexit main last rax\nblock main ring time 16\n' >points.plan; printf 'blocks\n' >blocks.plan
    touch made
  )
fi

# go NAME ARGUMENT…: engraft's output, messages and exit status, in files of that name, beside what it writes.
go() {
  local name=$1 status=0; shift
  printf '%s\t%s\n' "$name" "$*" >>commands
  "$work/bin/engraft" "$@" >"$name.out" 2>"$name.err" </dev/null || status=$?
  echo $status >"$name.status"
}
# The same as text, as JSON and as CSV.
forms() { local name=$1; shift; go "$name" "$@"; go "$name.json" "$@" --json; go "$name.csv" "$@" --format csv; }
# Some functions of a binary, by their place in its list; names too long for a file (Rust's) are left out.
some() { nm --defined-only "$1" | awk '$2 ~ /^[tT]$/ && $3 !~ /[.]/ && length($3) < 100 { print $3 }' | sort -u | awk 'NR % 97 == 5' | head -n "${2:-6}"; }

case_show() {
  local b rec what f
  for b in "${newest[@]/#/$bin/}" "$in"/lua-548.1.2.stripped "${system[@]}"; do
    n=show-$(basename "$b")
    forms "$n" show "$b"; go "$n.verify" show "$b" --verify; go "$n.cfg" show "$b" cfg --json --instructions
    for what in functions loops tables gaps data; do forms "$n.$what" show "$b" $what; done
  done
  for b in "${newest[@]}"; do
    [[ $b != rg-* ]] || continue # Rust's names are mangled, and long
    for f in main $(some "$bin/$b"); do
      n=show-$b-$f
      forms "$n" show "$bin/$b" function "$f" --liveness; go "$n.svg" show "$bin/$b" function "$f" --svg; go "$n.dot" show "$bin/$b" function "$f" --dot
      forms "$n.counts" show --counts "$in/$b.engraft" function "$f"; go "$n.drawn" show "$bin/$b" function "$f" --profile "$in/$b.engraft" --svg -o "$n.written"
    done
  done
  for rec in "${newest[@]}" callees threads; do
    forms "show-$rec-recording" show --counts "$in/$rec.engraft"
    for what in loops edges never calls paths; do forms "show-$rec-$what" show --counts "$in/$rec.engraft" $what; done
  done
  forms show-trace show --counts "$in/gzip.trace"
}
case_match() {
  local pair a b f
  for pair in "${pairs[@]}"; do
    read -r a b <<<"$pair"; n=match-$b
    forms "$n" match "$bin/$a" "$bin/$b"; go "$n.all" match "$bin/$a" "$bin/$b" --all -o "$n.map"
    forms "$n.stripped" match "$in/$a.stripped" "$in/$b.stripped"; go "$n.stripped.all" match "$in/$a.stripped" "$in/$b.stripped" -o "$n.stripped.map"
    go "$n.with" match "$bin/$a" "$bin/$b" --with "$n.map" --json
    for f in main $(some "$bin/$b" 4); do go "$n-$f" match "$bin/$a" "$bin/$b" --explain "$f"; done
  done
  for pass in $("$old" help passes | awk '/^[a-z]+-?[a-z-]* / { print $1 }'); do go "match-without-$pass" match "$bin/lua-543.1.0" "$bin/lua-548.1.2" --without "$pass" --json; done
}
case_carry() {
  local pair a b to
  for pair in "${pairs[@]}"; do
    read -r a b <<<"$pair"; n=carry-$b
    for to in engraft fdata json csv; do go "$n.$to" carry "$bin/$a" "$bin/$b" --profile "$in/$a.engraft" -o "$n.to.$to"; done
    go "$n.said" carry "$bin/$a" "$bin/$b" --profile "$in/$a.engraft" -o "$n.said.fdata" --json
    go "$n.stripped" carry "$in/$a.stripped" "$in/$b.stripped" --profile "$in/$a.engraft" -o "$n.stripped.fdata"
    go "$n.merge" carry "$bin/$a" "$bin/$b" --profile "$in/$a.engraft" --merge "$in/$b.small.engraft" -o "$n.merged.fdata"
    go "$n.gate" carry "$bin/$a" "$bin/$b" --profile "$in/$a.small.engraft" --require bp=99.9,cc=99.9 -o "$n.gate.fdata" --json
    forms "$n.score" score "$n.to.engraft" "$in/$b.engraft" --binary "$bin/$b"; forms "$n.score2" score "$n.to.fdata" "$in/$b.engraft" "$in/$b.small.engraft" --binary "$bin/$b"
  done
}
case_convert() {
  local b to t
  for b in "${newest[@]}"; do
    for to in engraft json csv fdata callgrind preagg prof pb.gz folded svg info; do
      n=convert-$b.$to
      go "$n" convert "$in/$b.engraft" --binary "$bin/$b" -o "$n.new.$to"
      case $to in folded | svg | info) ;; *) go "$n.back" convert "$n.new.$to" --binary "$bin/$b" -o "$n.back.json" ;; esac
    done
    go "convert-$b-sum" convert "$in/$b.engraft" "$in/$b.small.engraft" --binary "$bin/$b" -o "convert-$b-sum.engraft" --json
    for to in csv callgrind info json; do go "convert-$b-all-$to" convert "$in/$b.engraft" -o "convert-$b-all.$to"; done
  done
  for t in gzip lua xz; do
    for to in trc csv folded trace.json json; do go "convert-$t.$to" convert "$in/$t.packed.trace" -o "convert-$t.new.$to"; go "convert-$t.recorded.$to" convert "$in/$t.trace" -o "convert-$t.recorded.new.$to"; done
    go "convert-$t-part" convert "$in/$t.packed.trace" -o "convert-$t-part.trace.json" --at 1000..9000 --depth 4 --thread 1
    go "convert-$t-weight" convert "$in/$t.packed.trace" -o "convert-$t-weight.folded" --weight instructions
    for store in packed archive zlib zstd; do go "convert-$t-$store" convert "$in/$t.trace" -o "convert-$t-$store.trace" --store $store; done
    [ ! -e "$in/$t.trc" ] || for store in packed archive zlib zstd; do go "convert-$t-plain-$store" convert "$in/$t.trc" -o "convert-$t-plain-$store.trace" --store $store; done
  done
}
case_diff() {
  local b
  for b in "${newest[@]}"; do
    forms "diff-$b" diff "$in/$b.engraft" "$in/$b.small.engraft"
    forms "diff-$b-same" diff "$in/$b.engraft" "$in/$b.engraft" --binary "$bin/$b"
  done
  for b in gzip lua other xz; do go "diff-$b-pack" trace pack "$in/$b.trace" -o "diff-$b.packed.trace"; go "diff-$b-archive" trace pack --archive "$in/$b.trace" -o "diff-$b.archive.trace"; done
}
case_query() {
  local t path i scheme
  for t in gzip lua xz; do
    for form in packed.trace trace; do forms "query-$t.$form.stats" query "$in/$t.$form" --stats; forms "query-$t.$form.hottest" query "$in/$t.$form" --hottest 20 --length 3; done
    go "query-$t-at" query "$in/$t.packed.trace" --at 5000..5200 --thread 0; go "query-$t-code" query "$in/$t.packed.trace" --at 5000..5200 --thread 0 --code disassembly
    i=0
    while read -r path; do
      i=$((i + 1)); n=query-$t-$i
      forms "$n" query "$in/$t.packed.trace" "$path"; forms "$n.callers" query "$in/$t.packed.trace" "$path" --per-caller
      go "$n.threads" query "$in/$t.packed.trace" "$path" --per-thread
      go "$n.context" query "$in/$t.packed.trace" "$path" --nth 2 --context=8 --code source
      go "$n.next" query "$in/$t.packed.trace" "$path" --next 0:3000; go "$n.previous" query "$in/$t.packed.trace" "$path" --previous 0:90000
      go "$n.all" query "$in/$t.packed.trace" "$path" --all; go "$n.recorded" query "$in/$t.trace" "$path" --json
      for scheme in 1 2 4 5; do go "$n.$scheme" query "$in/$t.packed.trace" "$path" --scheme $scheme --json; done
      go "$n.some" query "$in/$t.packed.trace" "${path%% *} ${path##* }|1 .. ${path##* }+" --count
    done <"$in/$t.paths"
    go "query-$t-several" query "$in/$t.packed.trace" "$(paste -sd';' "$in/$t.paths")"
  done
  go query-diff query --diff "$in/lua.packed.trace" "$in/other.packed.trace" --context=6; go query-diff.json query --diff "$in/lua.packed.trace" "$in/other.packed.trace" --length 3 --json
  go query-same query --diff "$in/lua.packed.trace" "$in/lua.packed.trace"
}
case_instrument() {
  local b
  for b in "${newest[@]/#/$bin/}" "$in"/lua-543.1.0.stripped "${system[@]}"; do
    n=instrument-$(basename "$b")
    go "$n" instrument "$b" -o "$n.elf"; go "$n.null" instrument --null "$b" -o "$n.null.elf" --json
    go "$n.poison" instrument --null --poison "$b" -o "$n.poison.elf"; go "$n.all" instrument --all-blocks "$b" -o "$n.all.elf"
    go "$n.callees" instrument --callees "$b" -o "$n.callees.elf"; go "$n.blocks" instrument --plan "$in/blocks.plan" "$b" -o "$n.blocks.elf"
  done
  for b in "${newest[@]}"; do [[ $b == rg-* ]] || go "instrument-$b-plan" instrument --plan "$in/points.plan" "$bin/$b" -o "instrument-$b.plan.elf"; done
}
# Recordings and traces hold times and numbers of processes: what is read from them is compared. On one
# processor: which of two children is first does not change then. Where the number of processes gets one digit
# more meanwhile, bash, which writes its own and its parent's, counts some instructions more: run it again.
case_count() {
  local options
  run() { # NAME OPTION… -- PROGRAM ARGUMENT…
    local name=$1 rec="$work/rec"; shift; rm -rf "$rec"; mkdir "$rec"
    taskset -c 0 setarch -R "$work/bin/engraft" count --no-cache -o "$rec/run.engraft" "$@" >"$name.stdout" 2>"$rec/err" </dev/null || true
    sed "s,$rec,,g" "$rec/err" >"$name.err"
    go "$name.json" convert -q "$rec/run.engraft" -o "$name.counts.json"; go "$name.csv" convert -q "$rec/run.engraft" -o "$name.counts.csv"
  }
  for options in "" --all-blocks --callees --per-thread --follow; do
    n=count$options
    # shellcheck disable=SC2086
    { run "$n-gzip" $options -- gzip -6 -n -c "$in/text"; run "$n-bzip2" $options -- bzip2 -6 -c "$in/text"; run "$n-lua" $options -- "$bin/lua-548.1.2" "$in/small.lua"
      ! has sqlite || run "$n-sqlite" $options -- "$bin/sqlite-0.30.1" 20; run "$n-bash" $options -- bash -c 'for i in 1 2 3; do echo $i | sed s/1/2/; done'; }
  done
  run count-libc --modules '*' -- gzip -6 -n -c "$in/text"
  for b in gzip sqlite3; do
    rm -f "$work/rec/"*; "$work/bin/engraft" instrument -q "/usr/bin/$b" -o "$work/rec/p" 2>/dev/null
    case $b in gzip) with=(-6 -n -c "$in/text") ;; sqlite3) with=(-batch -init /dev/null :memory: 'select 1+2; create table t(a); insert into t values(3); select * from t') ;; esac
    ENGRAFT_OUT=$work/rec/run.engraft plain "$work/rec/p" "${with[@]}" >"count-file-$b.stdout" 2>&1 || true
    go "count-file-$b.json" convert -q "$work/rec/run.engraft" --binary "/usr/bin/$b" -o "count-file-$b.counts.json"
  done
}
case_trace() {
  trace() { # NAME OPTION… -- PROGRAM ARGUMENT…
    local name=$1 rec="$work/rec"; shift; rm -rf "$rec"; mkdir "$rec"
    plain "$work/bin/engraft" trace -q --no-cache -o "$rec/t.trace" "$@" >"$name.stdout" 2>"$name.stderr" </dev/null || true
    go "$name.symbols" convert -q "$rec/t.trace" -o "$name.trc"; go "$name.counts" convert -q "$rec/t.trace" -o "$name.csv"
  }
  trace trace-gzip -- gzip -6 -n -c "$in/text"; trace trace-lua -- "$bin/lua-548.1.2" "$in/small.lua"; trace trace-bzip2 --modules all -- bzip2 -1 -c "$in/text"
  ! has sqlite || trace trace-sqlite -- "$bin/sqlite-0.30.1" 5; trace trace-exe --modules exe -- bzip2 -1 -c "$in/text"
  trace trace-pack --pack -- gzip -6 -n -c "$in/text"; trace trace-functions --functions 'lua_*' -- "$bin/lua-548.1.2" "$in/small.lua"
  trace trace-from --from luaD_precall --to luaH_get -- "$bin/lua-548.1.2" "$in/small.lua"; trace trace-last --last 64K -- gzip -6 -n -c "$in/text"
}

mkdir -p "$work/bin"
for side in old new; do
  ln -sf "${!side}" "$work/bin/engraft"
  mkdir "$work/run"; rm -rf "$work/cache"
  for c; do echo "$side: $c" >&2; (cd "$work/run" && "case_$c"); done
  mv "$work/run" "$work/$side"
done

differing=0 n_files=0 n_left_out=0
while IFS= read -r -d '' file; do
  f=${file#./}; n_files=$((n_files + 1))
  [ -e "$work/old/$f" ] && [ -e "$work/new/$f" ] || { echo "DIFFERS $f: written by one of them only"; differing=$((differing + 1)); continue; }
  ! cmp -s "$work/old/$f" "$work/new/$f" || continue
  case $f in
  *.elf)
    if python3 "$top/checks/same-output.py" "$old" "$work/old/$f" "$new" "$work/new/$f" >"$work/said"; then n_left_out=$((n_left_out + 1)); continue; fi ;;
  *)
    if [ -n "${WORDS:-}" ] && cmp -s <(sed -E -f "$WORDS" "$work/old/$f" | tr -s ' ') <(sed -E -f "$WORDS" "$work/new/$f" | tr -s ' '); then continue; fi
    { cmp "$work/old/$f" "$work/new/$f" || true; diff -a "$work/old/$f" "$work/new/$f" | cut -c 1-160 | head -n 4 || true; } >"$work/said" 2>&1 ;;
  esac
  differing=$((differing + 1))
  echo "DIFFERS $f: $(awk -F '\t' -v f="$f" 'index(f, $1) == 1 && length($1) > best { best = length($1); line = $2 } END { print line }' "$work/old/commands")"
  sed 's/^/    /' "$work/said"
done < <(cd "$work" && { (cd old && find . -type f -print0); (cd new && find . -type f -print0); } | sort -zu)
echo "same-output: $n_files files of $(wc -l <"$work/old/commands") commands, $differing differ; $n_left_out instrumented files are the same but for the runtime"
[ $differing = 0 ]

#!/usr/bin/env bash
# values-page.sh [FOLDER]: makes FOLDER/values-page.md (docs/, unless said otherwise) and its pictures: what
# sections 2.1 and 2.2 of the VPROF paper show, done again on a program that does what the paper says of its
# own. ENGRAFT: the command [target/release/engraft]. Needs gcc.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
engraft=$(realpath "$engraft")
out=$(realpath "${1:-$top/docs}")
"$top/scripts/install.sh" gcc libc6-dev >&2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$out/values-page" "$work/bin"
ln -s "$engraft" "$work/bin/engraft"
export PATH=$work/bin:$PATH
cp "$top/scripts/values-page.c" "$work/paper.c"
cd "$work"
gcc -O2 -g -o paper paper.c -lm

# said COMMAND…: as one would type it
said() { local word all=; for word; do case $word in *[\ \;\|]*) word="'$word'" ;; esac; all+=" $word"; done; echo "$all"; }
# show COMMAND…: the command and what it prints, as a block of the page
show() { printf '```\n$%s\n' "$(said "$@")"; "$@" | sed "s,$work/,,"; printf '```\n\n'; }
# part FROM COMMAND…: of what it prints, from the line that has FROM up to the next empty one
part() { local from=$1; shift; printf '```\n$%s\n…\n' "$(said "$@")"; "$@" | awk -v from="$from" 'index($0, from) { on = 1 } on && !NF { exit } on'; printf '…\n```\n\n'; }
picture() { mv "$1" "$out/values-page/$1"; printf '![%s](values-page/%s)\n\n' "$2" "$1"; }

{
cat <<'END'
# VPROF's examples, done again

Sections 2.1 and 2.2 of *MAQAO VPROF* (Henry, Bolloré, Oseret, 2015) show what the values of a program's loops and calls
say. Its programs are not public; `scripts/values-page.c` does what the paper says that they did, as often, and
`scripts/values-page.sh` made this page: each block is what the command printed. Times are of the machine it ran on, on
which other things ran, too; ticks are those of the time stamp counter.

## A loop (section 2.1)

`three` is entered 31,592,862 times and goes round three times in each, through a table of which a part is in no cache.
The paper's tables 1 and 2 are one here, for which no instance needs to be stored (there: 482 MB), and figure 1 is
the last one, with numbers of instances to look at.

END
show engraft values -q -o loops.engraft --loop three -- ./paper loops
show engraft show loops.engraft
echo "The recording is $(stat -c %s loops.engraft) bytes long. \`engraft show loops.engraft --plot three -o three.svg\` draws figure 1:"
echo
engraft show loops.engraft --plot three -o three.svg
picture three.svg "Figure 1: instances by ticks an iteration"
cat <<'END'
Three iterations each time: the loop can be unrolled. Figure 2 is of a loop with a branch that is never taken with
these data (its number is 0), of counts of the same program:

END
show engraft count -q -o counts.engraft -- ./paper loops
engraft show paper function kinds --profile counts.engraft --svg >kinds.svg
echo '`engraft show paper function kinds --profile counts.engraft --svg > kinds.svg`:'
echo
picture kinds.svg "Figure 2: how often each edge ran"
cat <<'END'
## Calls (section 2.2)

`exp` is called 22,722 times with 403 different arguments, one of which comes in 18 % of all calls: Table 3.

END
show engraft values -q --full -o calls.engraft --calls 'double exp(double x);' --calls 'double log(double x);' -- ./paper calls
part 'x (double)' engraft show calls.engraft
cat <<'END'
Figures 3 and 4, and what a table that remembers results would have had, by its size and associativity, are one picture:
`engraft show calls.engraft --plot exp -o exp.svg`.

END
engraft show calls.engraft --plot exp -o exp.svg
picture exp.svg "Figure 3: arguments by number of the call; figure 4: distances of the most frequent ones"
echo 'In numbers:'
echo
part 'entries' engraft show calls.engraft reuse exp
part 'count' engraft show calls.engraft reuse exp
cat <<'END'
`log` is called from two places, with one argument in each: its call could be a load of a constant. The log says where calls were made.

END
engraft convert calls.engraft -o log.csv --function log >/dev/null
printf '```\n$ engraft convert calls.engraft -o log.csv --function log\n$ cut -d, -f1,4,5,6 log.csv | sort | uniq -c\n'
cut -d, -f1,4,5,6 log.csv | sort | uniq -c
printf '```\n\n'
# Of several runs the least: of each way in turn, so that all had the same machine.
header=$(engraft show paper loops | awk '$NF == "quick" { print $1 }')
echo "back-edge $header count" >memory.plan
engraft instrument -q paper -o watched --plan memory.plan >/dev/null
ticks() { "$@" | awk '/^quick/ { print $2 }'; }
for _ in 1 2 3 4 5; do
  ticks ./paper counters >>plain
  ticks ./watched counters >>memory
  ticks engraft values -q --no-ticks --loop quick -o quick.engraft -- ./paper counters >>register
done
least() { sort -n "$1" | head -1; }
cat <<END
## What a counter costs (table 4)

A loop of one addition an iteration. In memory, each increment waits for the one before; \`values --loop\` counts in a
register, if the loop leaves one alone. What the program measures of itself, the least of five runs:

| mode | ticks an iteration | VPROF, of its example (cycles) |
| --- | ---: | ---: |
| as it is | $(least plain) | 90 |
| counter in memory (\`engraft instrument --plan\` with \`back-edge $header count\`) | $(least memory) | 131 |
| counter in a register (\`engraft values --no-ticks --loop quick\`) | $(least register) | 90 |

$(engraft show quick.engraft | sed -n 's/^\(quick\), loop at .*: \(.* instances\)$/The loop had \2 of 2,048 iterations each, as the program says./p')
END
} >"$work/page.md"
mv "$work/page.md" "$out/values-page.md"

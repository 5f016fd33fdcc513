#!/usr/bin/env bash
# gate.sh [PAIR…]: what `carry` predicts of its result, held against the truth, over the pairs of
# gate/pairs.txt: builds of one program in two releases, at two levels of optimisation, by two compilers.
# Each build is counted on the same input, OLD's counts are carried, and scored against NEW's. Prints a row
# a pair, then what must hold (gate.py): exit 1 if something does not, or if a unique name is not matched to
# its namesake (names.py). Names of programs or pairs pick some of them; FIT=1 fits the prices anew.
#
# Everything is made under $CORPORA/gate, once: delete there what is to be made again. Sources come from the
# registry, as crates; gcc-11, gcc-12, clang-14 and clang-19 are Debian's. CORPORA_SCRIPTS: where fetch.sh,
# build.sh and workload.sh are (default: ../shared/corpora). About 40 min of CPU from nothing, one job.
set -eEuo pipefail
trap 'echo "gate.sh: line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$(dirname "$0")/.."
top=$PWD
scripts=$(realpath "${CORPORA_SCRIPTS:-../shared/corpora}")
export CORPORA=${CORPORA:-$top/target/corpora} CARGO_BUILD_JOBS=1
renice -n 10 $$ >/dev/null
[ -n "${ENGRAFT:-}" ] || { cargo build -q --release -p engraft; ENGRAFT=$top/target/release/engraft; }
ENGRAFT=$(realpath "$ENGRAFT")
mkdir -p "$CORPORA/gate"/{bin,counts,pairs}
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT

# crate NAME VERSION: its folder, fetched at need
crate() { "$scripts/fetch.sh" "$1" "$2" && echo "$CORPORA/crates/$1-$2"; }
text=$CORPORA/gate/text.c
[ -s "$text" ] || { d=$(crate lua-src 548.1.2); cat "$d"/lua-5.4*/l{api,vm,parser,strlib,gc}.c >"$text"; }

# compile FLAGS FILE…: objects into $scratch/o, by the compiler and at the level of this build
compile() {
  local flags=$1 f; shift
  for f in "$@"; do
    case $f in *.cpp | *.cxx) local by=$cxx ;; *) local by=$cc ;; esac
    $by $level -w $flags -c "$f" -o "$scratch/o/$(tr / _ <<<"$f").o"
  done
}

# build PROGRAM VERSION COMPILER LEVEL: into $out
build() {
  local drv=$top/checks/gate cc=$3 cxx level d s
  cxx=$(sed 's/^gcc/g++/; s/^clang/clang++/' <<<"$3")
  case $4 in *native) level="-${4%native} -march=haswell" ;; *) level=-$4 ;; esac
  rm -rf "$scratch/o"; mkdir "$scratch/o"
  case $1 in
  lua | sqlite | rg) # as the corpora have them
    CC=$3 OPT=$level SPLIT=1 "$scripts/build.sh" "$1" "$2" "gate-$3-$4"
    mv "$CORPORA/bin/$1-$2-gate-$3-$4" "$out"; return ;;
  markdown | regex | miniz) rust "$@"; return ;;
  bzip2)
    d=$(crate bzip2-sys "$2")/bzip2-1.0.8
    compile "-D_FILE_OFFSET_BITS=64" "$d"/{blocksort,huffman,crctable,randtable,compress,decompress,bzlib,bzip2}.c ;;
  zlib)
    d=$(crate libz-sys "$2")/src/zlib
    compile "-I$d -DHAVE_UNISTD_H -D_LARGEFILE64_SOURCE=1" "$d"/*.c "$drv/zlib.c" ;;
  zstd)
    d=$(crate zstd-sys "$2")/zstd/lib
    compile "-I$d -DZSTD_DISABLE_ASM=1 -DZSTD_LEGACY_SUPPORT=0" "$d"/{common,compress,decompress}/*.c "$drv/zstd.c" ;;
  lz4)
    d=$(crate lz4-sys "$2")/liblz4/lib
    compile "-I$d" "$d"/*.c "$drv/lz4.c" ;;
  brotli)
    d=$(crate brotli-sys "$2")/brotli
    compile "-I$d/include -I$d/c/include" $(ls "$d"/{,c/}{common,enc,dec}/*.c 2>/dev/null || true) "$drv/brotli.c" ;;
  onig)
    d=$(crate onig_sys "$2")/oniguruma/src
    mkdir -p "$scratch/config"
    printf '#define %s\n' "STDC_HEADERS 1" "HAVE_STDLIB_H 1" "HAVE_STRING_H 1" "HAVE_STDARG_H 1" "HAVE_LIMITS_H 1" \
      "HAVE_INTTYPES_H 1" "SIZEOF_INT 4" "SIZEOF_SHORT 2" "SIZEOF_LONG 8" "SIZEOF_VOIDP 8" "SIZEOF_LONG_LONG 8" >"$scratch/config/config.h"
    s=$(ls "$d"/*.c | grep -vE '/(mktable|koi8|unicode_(egcb|wb|fold|property).*_data.*|unicode_fold_data|regposix|regposerr)\.c$')
    compile "-I$scratch/config -I$d -DHAVE_UNISTD_H=1 -DHAVE_SYS_TYPES_H=1 -DHAVE_SYS_TIME_H=1 -DONIG_DISABLE_DIRECT_THREADING" $s "$drv/onig.c" ;;
  pcre2)
    d=$(crate pcre2-sys "$2") s=$scratch/pcre2
    rm -rf "$s"; mkdir "$s"
    # Later crates come configured.
    if [ -d "$d/upstream" ]; then cp "$d"/upstream/{include,src}/*.[ch] "$s"; else
      cp "$d"/pcre2/src/*.[ch] "$s"
      for f in config.h pcre2.h; do cp "$d/pcre2/src/$f.generic" "$s/$f"; done
      cp "$d/pcre2/src/pcre2_chartables.c.dist" "$s/pcre2_chartables.c"
    fi
    compile "-I$s -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -DPCRE2_STATIC -DSUPPORT_PCRE2_8 -DSUPPORT_UNICODE -DHAVE_MEMMOVE" \
      $(ls "$s"/pcre2_*.c | grep -vE '_(fuzzsupport|jit_match|jit_misc|jit_test|printint|ucptables|dftables)\.c$') "$drv/pcre2.c" ;;
  tree-sitter)
    d=$(crate tree-sitter "$2") s=$(crate tree-sitter-c 0.20.6)/src
    compile "-std=gnu11 -D_DEFAULT_SOURCE -I$d/include -I$d/src -I$s" "$d/src/lib.c" "$s/parser.c" "$drv/tree-sitter.c" ;;
  quickjs)
    d=$(crate rquickjs-sys "$2")/quickjs
    compile "-I$d -D_GNU_SOURCE -DCONFIG_BIGNUM -DCONFIG_VERSION=\"$2\"" "$d"/{quickjs,libregexp,libunicode,cutils,libbf}.c "$drv/quickjs.c" ;;
  meshopt)
    d=$(crate meshopt "$2")/vendor/src
    compile "-std=c++17 -I$d" "$d"/*.cpp "$drv/meshopt.cpp" ;;
  clipper)
    d=$(crate clipper2c-sys "$2")/clipper2c/vendor/Clipper2/CPP/Clipper2Lib
    compile "-std=c++17 -I$d/include" "$d"/src/*.cpp "$drv/clipper.cpp" ;;
  hunspell)
    d=$(crate hunspell-sys "$2")/vendor/src/hunspell
    compile "-std=c++17 -I$d -DHUNSPELL_STATIC" "$d"/*.cxx "$drv/hunspell.cpp" ;;
  *) echo "gate.sh: no program $1" >&2; exit 2 ;;
  esac
  $cxx $level "$scratch"/o/*.o -o "$out.part" -lm -lpthread -ldl
  mv "$out.part" "$out"
}

# rust PROGRAM VERSION rustc LEVEL: a crate of one file
rust() {
  local crate
  case $1 in markdown) crate=pulldown-cmark ;; miniz) crate=miniz_oxide ;; *) crate=$1 ;; esac
  mkdir -p "$scratch/$1/src"; cp "$top/checks/gate/$1.rs" "$scratch/$1/src/main.rs"
  printf '[package]\nname="%s"\nversion="0.1.0"\nedition="2021"\n[workspace]\n[dependencies]\n%s="=%s"\n[profile.release]\nopt-level=%s\ncodegen-units=1\n' \
    "$1" "$crate" "$2" "$(case $4 in Os) echo '"s"' ;; *) echo "${4#O}" ;; esac)" >"$scratch/$1/Cargo.toml"
  (cd "$scratch/$1" && CARGO_TARGET_DIR=$scratch/rust cargo build -q --release)
  cp "$scratch/rust/release/$1" "$out.part"; mv "$out.part" "$out"
}

# run PROGRAM: its input to BINARY, under $UNDER; each writes what it found, so that builds can be compared
run() {
  local arguments=("$text")
  case $1 in
  lua | sqlite) UNDER="${UNDER:-}" N=1000 "$scripts/workload.sh" "$1" "$2"; return ;;
  rg) arguments=(-j1 --no-config -n 'return|break|lua[A-Z]\w+\(' "$text") ;;
  bzip2) arguments=(-kc9 "$text") ;;
  quickjs) arguments=("$top/checks/gate/quickjs.js") ;;
  meshopt | clipper) arguments=() ;;
  hunspell)
    local words=$scratch/words
    [ -s "$words.dic" ] || {
      tr -cs 'A-Za-z' '\n' <"$text" | sort -u | awk 'length > 2 { print $0 (NR % 3 ? "/A" : NR % 2 ? "/B" : "") }' >"$words"
      { wc -l <"$words"; cat "$words"; } >"$words.dic"
      printf '%s\n' "SET UTF-8" "TRY esianrtolcdugmphbyfvkwz" "PFX B Y 1" "PFX B 0 re ." "SFX A Y 3" "SFX A 0 s [^s]" "SFX A e ing e" \
        "SFX A 0 ed [^e]" "REP 2" "REP f ph" "REP ph f" >"$words.aff"
    }
    arguments=("$words.aff" "$words.dic" "$text") ;;
  esac
  env -i PATH=/usr/bin:/bin LC_ALL=C setarch -R ${UNDER:-} "$2" "${arguments[@]}"
}

# made PROGRAM VERSION COMPILER LEVEL: build and counts, made at need
made() {
  local name=$1-$2-$3-$4
  local out=$CORPORA/gate/bin/$name counts=$CORPORA/gate/counts/$name.engraft
  [ -x "$out" ] || { echo "building $name" >&2; build "$@"; }
  [ -s "$counts" ] || {
    run "$1" "$out" >"$scratch/plain" 2>/dev/null
    UNDER="$ENGRAFT count -o $scratch/counts.engraft --" run "$1" "$out" >"$scratch/counted" 2>"$scratch/said" ||
      { cat "$scratch/said" >&2; exit 2; }
    cmp "$scratch/plain" "$scratch/counted"
    mv "$scratch/counts.engraft" "$counts"
  }
}

rows=() lost=0
while read -r program set versions compilers levels; do
  case ${program:-#} in '#'*) continue ;; esac
  IFS=, read -r v1 v2 <<<"$versions,$versions"; v2=${v2%%,*}
  IFS=, read -r c1 c2 <<<"$compilers,$compilers"; c2=${c2%%,*}
  IFS=, read -r l1 l2 <<<"$levels,$levels"; l2=${l2%%,*}
  old=$program-$v1-$c1-$l1 new=$program-$v2-$c2-$l2 pair=$program-$versions-$compilers-$levels
  [ $# = 0 ] || [[ " $* " == *" $program "* || " $* " == *" $pair "* ]] || continue
  made "$program" "$v1" "$c1" "$l1"; made "$program" "$v2" "$c2" "$l2"
  at=$CORPORA/gate/pairs/$pair old=$CORPORA/gate/bin/$old new=$CORPORA/gate/bin/$new
  counts() { echo "$CORPORA/gate/counts/$(basename "$1").engraft"; }
  if [ ! -s "$at.score.json" ] || [ "$ENGRAFT" -nt "$at.score.json" ]; then
    "$ENGRAFT" carry "$old" "$new" --profile "$(counts "$old")" -o "$scratch/carried.engraft" --json >"$at.carry.json"
    "$ENGRAFT" match "$old" "$new" --json >"$scratch/match.json"
    python3 checks/names.py "$old" "$new" "$scratch/match.json" >"$at.names" || true
    "$ENGRAFT" score "$scratch/carried.engraft" "$(counts "$new")" --binary "$new" --json >"$at.score.json"
  fi
  tail -n 1 "$at.names" | grep -q ', 0 lost$' || { lost=1; echo "$pair: names:" >&2; cat "$at.names" >&2; }
  rows+=("$set" "$program" "$pair" "$at.carry.json" "$at.score.json")
done <checks/gate/pairs.txt
python3 checks/gate.py "${rows[@]}"
exit $lost

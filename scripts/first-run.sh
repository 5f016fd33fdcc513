#!/usr/bin/env bash
# first-run.sh: carries a profile from one release of a real program to a later one, on this machine, in a few
# minutes. Fetches Lua 5.4.3 and 5.4.8 (crate lua-src), builds both with gcc, counts a run of the older one,
# carries those counts to the newer one, and compares them with counts of the newer one itself. All it makes
# is in target/first-run. Needs a Rust toolchain and Debian 12; installs gcc at need.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD old=543.1.0 new=548.1.2 work=$PWD/target/first-run
step() { printf '\n== %s\n' "$*"; }
# show COMMAND…: runs it as a user would, from the working folder, where the files' names are short
show() { printf '\n$ %s\n' "$*"; (cd "$work" && PATH=$top/target/release:$PATH "$@"); }

step "Preparing: packages, engraft itself"
scripts/install.sh gcc libc6-dev
cargo build --release -q -p engraft
mkdir -p "$work"

step "Fetching and building two releases of Lua"
if [ ! -d "$work/sources" ]; then
  probe=$(mktemp -d); trap 'rm -rf "$probe"' EXIT
  mkdir "$probe/src"; echo >"$probe/src/lib.rs"
  cat >"$probe/Cargo.toml" <<END
[package]
name = "sources"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
old = { package = "lua-src", version = "=$old" }
new = { package = "lua-src", version = "=$new" }
END
  cargo vendor -q --versioned-dirs --manifest-path "$probe/Cargo.toml" "$work/sources.part" >/dev/null
  mv "$work/sources.part" "$work/sources"
fi
# build NAME VERSION: -g makes reports readable, a fixed seed makes runs repeatable; engraft needs neither.
# The other options are for llvm-bolt, which refuses programs without relocations, with split functions, or
# with computed goto.
build() {
  [ -x "$work/$1" ] && return
  local from; from=$(echo "$work/sources/lua-src-$2"/lua-5.4*)
  gcc -O2 -g -w -DLUA_USE_LINUX -DLUA_USE_JUMPTABLE=0 '-Dluai_makeseed(L)=42u' -fno-reorder-blocks-and-partition \
    -I"$from" -o "$work/$1.part" scripts/first-run.c "$from"/*.c -Wl,--emit-relocs,-E -lm -ldl
  mv "$work/$1.part" "$work/$1"
}
build lua-old $old; build lua-new $new

cp scripts/first-run.lua "$work/run.lua"

step "The main job: count a run of the old release, carry the counts to the new one"
show engraft count -o lua-old.engraft ./lua-old run.lua
show engraft match lua-old lua-new
show engraft carry lua-old lua-new --profile lua-old.engraft -o lua-new.fdata
step "How good is it? Against counts of the new release itself:"
show engraft count -q -o lua-new.engraft ./lua-new run.lua
show engraft score lua-new.fdata lua-new.engraft --binary lua-new
step "Done: target/first-run/lua-new.fdata is ready for llvm-bolt -data"

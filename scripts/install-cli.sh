#!/usr/bin/env bash
# install-cli.sh [PREFIX]: builds engraft and installs it below PREFIX (default: ~/.local): the command in
# bin, man pages in share/man/man1, completions for bash, zsh and fish where these look for them. Needs a Rust
# toolchain. ENGRAFT: a built command to install in place of building one.
set -euo pipefail
prefix=${1:-$HOME/.local}
top=$(dirname "$(dirname "$(realpath "$0")")")
mkdir -p "$prefix"; prefix=$(realpath "$prefix")
if [ -n "${ENGRAFT:-}" ]; then
  install -D -m 755 "$ENGRAFT" "$prefix/bin/engraft"
else
  cargo install --quiet --locked --force --no-track --path "$top/engraft" --root "$prefix"
fi
engraft=$prefix/bin/engraft man=$prefix/share/man/man1
mkdir -p "$man"; "$engraft" help --man "$man"
for shell in bash:bash-completion/completions/engraft zsh:zsh/site-functions/_engraft fish:fish/vendor_completions.d/engraft.fish; do
  file=$prefix/share/${shell#*:}
  mkdir -p "$(dirname "$file")"; "$engraft" help --completions "${shell%%:*}" >"$file"
done
echo "installed $engraft, $(find "$man" -name 'engraft*.1' | wc -l) man pages, completions for bash, zsh, fish"
case :$PATH: in *":$prefix/bin:"*) ;; *) echo "add $prefix/bin to PATH to find it" ;; esac

#!/usr/bin/env bash
# axe.sh: puts axe-core, which says what of a page some people cannot read or use, to target/axe/axe.min.js.
# For tests alone: nothing that we ship has it. Needs npm, and installs Debian's if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.14.1
sum=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
to=target/axe
[ -f "$to/axe.min.js" ] && [ "$(cat "$to/version" 2>/dev/null)" = "$version" ] && exit 0
command -v npm >/dev/null || scripts/install.sh npm
mkdir -p "$to"
(cd "$to" && npm pack --silent "axe-core@$version" >/dev/null)
echo "$sum  $to/axe-core-$version.tgz" | sha256sum --check --quiet
tar -xzf "$to/axe-core-$version.tgz" -C "$to" --strip-components 1 package/axe.min.js package/LICENSE
echo "$version" > "$to/version"

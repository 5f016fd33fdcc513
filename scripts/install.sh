#!/usr/bin/env bash
# install.sh PACKAGE…: installs the Debian packages that are missing; does nothing if none is. Needs root or
# sudo for that.
set -euo pipefail
missing=()
for package in "$@"; do
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=(); [ "$(id -u)" = 0 ] || as_root=(sudo)
command -v apt-get >/dev/null && { [ ${#as_root[@]} = 0 ] || command -v sudo >/dev/null; } || {
  echo "install.sh: this needs ${missing[*]}: install them (Debian 12's names), then run it again" >&2; exit 2
}
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null

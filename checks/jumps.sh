#!/usr/bin/env bash
# jumps.sh [FILE…]: the indirect jumps that are not understood, a line each: file, function, address, reason.
# Without FILE: perl, ssh, libgmp, libc and sixty further programs and libraries of Debian 12. With OLD
# (another build of engraft): exit 1 if a file has more of them than OLD finds there. ENGRAFT: the build that
# is asked (default: a release build of this tree).
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
if [ $# -eq 0 ]; then
  "$top/scripts/install.sh" perl openssh-client libgmp10 jq
  lib=/usr/lib/x86_64-linux-gnu
  set -- /usr/bin/{perl,ssh} $lib/{libgmp.so.10,libc.so.6,ld-linux-x86-64.so.2,libm.so.6,libstdc++.so.6,libz.so.1} \
    $lib/{libbz2.so.1.0,liblzma.so.5,libcrypto.so.3,libssl.so.3,libpcre2-8.so.0,libselinux.so.1,libtinfo.so.6} \
    /usr/bin/{bash,dash,sed,grep,gawk,mawk,find,xargs,diff,cmp,sort,ls,cp,mv,rm,cat,date,dd,df,du,env,expr,od,ps} \
    /usr/bin/{tar,gzip,bzip2,xz,zstd,git,make,gcc-12,g++-12,as,ld.bfd,ld.gold,ar,nm,objdump,readelf,strip,gdb} \
    /usr/bin/{python3.11,sqlite3,lua5.4,vim.basic,tmux,curl,openssl,gpg,strace,less,file,vmstat,top,ip,scp,ssh-keygen}
fi
if [ -z "${ENGRAFT:-}" ]; then
  (cd "$top" && cargo build -q --release -p engraft)
  ENGRAFT=$(cargo metadata --manifest-path "$top/Cargo.toml" --format-version 1 --no-deps |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/engraft
fi
# unresolved ENGRAFT FILE
unresolved() {
  "$1" show "$2" gaps --json | jq -r --arg file "$2" '.gaps[] | select(.reason == "unresolved-jump")
    | [$file, (.function // "-"), .at, (.detail // "-")] | @tsv'
}
n_files=0 n=0 more=0
for file; do
  [ -e "$file" ] || continue
  n_files=$((n_files + 1))
  found=$(unresolved "$ENGRAFT" "$file")
  count=$(grep -c . <<<"$found" || true)
  [ "$count" = 0 ] || printf '%s\n' "$found"
  n=$((n + count))
  if [ -n "${OLD:-}" ]; then
    before=$(unresolved "$OLD" "$file" | grep -c . || true)
    [ "$count" -le "$before" ] || { echo "more than before ($before): $file: $count"; more=1; }
  fi
done
echo "$n_files files, $n indirect jumps not understood"
exit $more

# programs.sh: real programs for `transparency.sh` and `count.sh`, which source it. Not run by itself.
#
# Of each: what it needs (Debian 12's packages), how its folder is made once, and how it is run there:
# `run_NAME PREFIX…` puts PREFIX before each command whose behaviour is looked at. A run prints all that it
# does, and the same each time; it may change its folder.
#
# shellcheck shell=bash disable=SC2034

# A program's packages; only those that are not with everybody.
declare -A needs=(
  [gzip]=gzip [bzip2]=bzip2 [xz]=xz-utils [zstd]=zstd [lua]=lua5.4 [luajit]=luajit [sqlite3]=sqlite3 [clangfmt]=clang-format-19
  [python3]=python3 [perl]=perl [gawk]=gawk [bash]=bash [gdb]="gdb gcc libc6-dev" [cmake]="cmake make g++" [git]=git [rg]=ripgrep
  [redis]="redis-server redis-tools" [cc1plus]=g++ [ld]=binutils [clang]=clang-19 [throws]=g++ [openmp]="gcc libgomp1"
  [fortran]=gfortran [static]="gcc libc6-dev" [staticpie]="gcc libc6-dev" [cgoto]=gcc [povray]=povray [relr]="clang-19 lld-19"
  [clangsql]=clang-19 [pytests]="python3 libpython3.11-testsuite" [mpi]="mpich libmpich-dev gcc"
)
all_programs=(gzip bzip2 xz lua sqlite3 python3 clangfmt zstd luajit perl gawk bash gdb cmake git rg redis cc1plus ld clang povray
  throws panics openmp fortran static staticpie cgoto relr clangsql pytests mpi)
[ -z "$(command -v node)" ] || all_programs+=(node)

rustc=$(cd "$(dirname "${BASH_SOURCE[0]}")" && rustc --print sysroot)/bin/rustc

# What a program prints that is another each time: addresses, numbers of processes.
filter_luajit() { sed -E 's/0x[0-9a-f]+/ADDRESS/g'; }
filter_fortran() { filter_luajit; }
filter_gdb() { filter_luajit | sed -E 's/process [0-9]+/process N/'; }
filter_panics() { sed -E "s/^(thread '[^']*') \([0-9]+\)/\1/"; }

# text BYTES: text that is everywhere the same, and compresses as text does.
text() {
  awk -v n="$1" 'BEGIN { s = 7; while (len < n) { line = ""
      for (i = 0; i < 12; i++) { s = (s * 16807) % 2147483647; w = s % 997; line = line (w % 7 ? "word" w : "the") " " }
      print line; len += length(line) + 1 } }'
}

setup_gzip() { text 150000 >in; }
run_gzip() { "$@" gzip -9 -n -c in | tee out.gz | cksum; "$@" gzip -d -c out.gz | cksum; "$@" gzip -d -c in; }
setup_bzip2() { text 300000 >in; }
run_bzip2() { "$@" bzip2 -9 -c in | tee out.bz2 | cksum; "$@" bzip2 -d -c out.bz2 | cksum; "$@" bzip2 -t in; }
setup_xz() { text 600000 >in; }
run_xz() { "$@" xz -T"${THREADS:-2}" -3 --block-size=100000 -c in | tee out.xz | cksum; "$@" xz -T"${THREADS:-2}" -d -c out.xz | cksum; "$@" xz -l out.xz; }
setup_zstd() { text 900000 >in; }
run_zstd() { "$@" zstd -q -T2 -7 -c in | tee out.zst | cksum; "$@" zstd -q -d -c out.zst | cksum; "$@" zstd -t in; }

setup_lua() {
  cat >p.lua <<'L'
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(18))
local t = {}
for i = 1, 3000 do t[i] = (i * 7919) % 1009 + 0.5 end
table.sort(t) print(#t, t[1], t[1500], t[3000])
local text = string.rep("alpha beta 123 gamma ", 100)
local n = 0 for w in text:gmatch("%a+") do n = n + #w end print(n, text:gsub("%d+", "<%0>"):sub(1, 40))
local co = coroutine.wrap(function(a) for i = 1, 50 do a = coroutine.yield(a * i) end return "end" end)
local s = 0 for i = 1, 50 do s = s + co(i) end print(s)
local mt = setmetatable({}, { __index = function(_, k) return k .. "!" end, __add = function(a, b) return b end })
print(mt.x, mt + 5, select("#", table.unpack({ 1, 2, 3 })))
print(pcall(error, { code = 1 }), pcall(function() local x = nil; return x.y end))
print(string.format("%5.2f|%q|%x", 3.14159, "a\nb", 255), math.floor(-3.5), 7 // 2, 7 % -3, 1 << 40)
collectgarbage()
error("the end")
L
}
run_lua() { "$@" lua5.4 p.lua; echo "status $?"; }
run_luajit() { "$@" luajit p.lua; echo "status $?"; "$@" luajit -joff p.lua; }
setup_luajit() { setup_lua; sed -i 's,7 // 2,7,; s,1 << 40,1,; s/, 7 % -3//' p.lua; }

setup_sqlite3() {
  cat >in.sql <<'Q'
create table t(id integer primary key, a text, b real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, 'row ' || (i * 7919 % 1009), i / 7.0 from n;
create index ta on t(a);
select count(*), sum(b), min(a), max(a) from t;
select a, count(*) c from t group by a having c > 2 order by c desc, a limit 5;
update t set b = b * 2 where id % 3 = 0; delete from t where id % 7 = 0;
select total(b), avg(id), group_concat(substr(a, 1, 3), '') from t where id < 40;
select json_extract('{"a":[1,2,{"b":3}]}', '$.a[2].b'), printf('%08.3f', 3.14159), hex(zeroblob(4)), upper('x') like 'X%';
explain query plan select * from t where a = 'row 7' order by b;
vacuum; pragma integrity_check;
select * from nowhere;
Q
}
run_sqlite3() { rm -f db; "$@" sqlite3 -batch -init /dev/null db <in.sql; echo "status $?"; cksum <db; }

setup_python3() {
  cat >p.py <<'P'
import json, re, hashlib, zlib, struct, random, collections, itertools, decimal, threading, subprocess, sys, ctypes, sqlite3, bz2, lzma, array, os
random.seed(5)
words = ["w%d" % random.randrange(300) for _ in range(4000)]
print(collections.Counter(words).most_common(3), hashlib.sha256(" ".join(words).encode()).hexdigest()[:16])
print(len(zlib.compress(" ".join(words).encode())), len(bz2.compress(b"x" * 1000)), len(lzma.compress(b"y" * 1000)))
print(json.loads(json.dumps({"a": [1, 2.5, None, True], "b": "\u00e9"})), re.findall(r"(\d+)-(\w)", "12-a 3-b"))
print(decimal.Decimal(2).sqrt(), sum(1 for p in itertools.permutations(range(6)) if p[0] < p[-1]))
class A:
    def __init__(self, n): self.n = n
    def __lt__(self, o): return self.n < o.n
print([a.n for a in sorted(A((i * 37) % 101) for i in range(100))][:5])
total = []
lock = threading.Lock()
def work(k):
    s = sum(i * i for i in range(k * 100))
    with lock: total.append(s)
ts = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(sum(total))
print(subprocess.run(["sh", "-c", "echo from a child; exit 3"], stdout=subprocess.PIPE))
pid = os.fork()
if pid == 0: print("child", flush=True); os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(ctypes.CDLL(None).strlen(b"four"), struct.pack("<if", 7, 1.5))
db = sqlite3.connect(":memory:"); db.execute("create table t(a)"); db.executemany("insert into t values (?)", [(i,) for i in range(50)])
print(db.execute("select sum(a) from t").fetchone())
def deep(n): return deep(n + 1)
try: deep(0)
except RecursionError as e: print(type(e).__name__)
sys.stdout.flush()
raise SystemExit(len(words) % 256)
P
}
# Python's own tests: those that always end the same way, in moderate time.
pytests=(dict list set json re struct array zlib fractions math cmath collections deque heapq bisect functools operator enum dataclasses generators
  coroutines exceptions exception_group sys_settrace descr class super scope grammar syntax compile dis copy marshal ctypes csv xml_etree pyexpat base64
  binascii fork1 mmap string textwrap format float complex traceback thread bytes contextlib itertools opcodes raise setcomps slice sort unpack userdict with)
run_pytests() { PYTHONHASHSEED=0 "$@" /usr/bin/python3 -m test -q "${pytests[@]/#/test_}"; echo "status $?"; }
filter_pytests() { sed -E 's/[0-9.]+ (ms|sec|min)( [0-9]+ sec)?/TIME/g; /load avg/d'; }
run_python3() { PYTHONHASHSEED=0 "$@" /usr/bin/python3 -s -B p.py; echo "status $?"; }

setup_clangfmt() { awk 'BEGIN { for (i = 0; i < 150; i++) printf "int f%d(int a,char*b){if(a>%d){return b[0]+a;}else for(int i=0;i<a;++i){b[i]=(char)(i*%d);}\nswitch(a){case 1:return 2;default:break;}return f%d(a-1,b);}\n#define M%d(x) \\\n do{x;}while(0)\n", i, i, i, i, i }' >in.c; }
run_clangfmt() { "$@" "${CLANG_FORMAT:-clang-format-19}" --style=Google in.c; }

setup_perl() {
  cat >p.pl <<'P'
use strict; my %h; srand(3);
$h{($_ * 7919) % 1009} .= chr(97 + $_ % 26) for 1 .. 5000;
print join(",", map { "$_=$h{$_}" } (sort { $a <=> $b } keys %h)[0 .. 5]), "\n";
my $s = join " ", map { sprintf "%03d", $_ * 37 % 1000 } 1 .. 500; my $n = () = $s =~ /(\d)\1/g; print "$n\n";
$s =~ s/(\d+) (\d+)/$2-$1/g; print substr($s, 0, 30), " ", unpack("%32C*", $s), "\n";
print eval { die { code => 4 } } // "died $@->{code}\n"; local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$;
my @t = sort map { scalar reverse $_ } keys %h; print "$t[0] $t[-1]\n"; open my $f, "-|", "echo piped" or die; print <$f>; close $f;
if (my $pid = fork) { waitpid $pid, 0; print "child ", $? >> 8, "\n" } else { exit 5 } exit 9;
P
}
run_perl() { PERL_HASH_SEED=0 "$@" perl p.pl; echo "status $?"; }
setup_gawk() { text 200000 >in; }
run_gawk() { "$@" gawk '{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) if (n[w] > 60) k++; print k, NR, length(n), sprintf("%.3f", log(NR)), gensub(/(a)(b)/, "\\2\\1", "g", "cabs") ; exit 3 }' in; echo "status $?"; }
setup_bash() {
  cat >p.sh <<'B'
trap 'echo usr1' USR1; trap 'echo bye' EXIT
fact() { local n=$1; ((n < 2)) && echo 1 || echo $((n * $(fact $((n - 1))))); }
fact 8; declare -A a; for i in {1..300}; do a[k$((i * 37 % 101))]+=x; done; echo ${#a[@]} "${a[k5]}"
s=$(printf '%s-' {a..z}); echo "${s//[aeiou]/_}" "${s:3:5}" "${s^^}"; [[ foo123 =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[2]}"
kill -USR1 $$; (exit 4); echo $?; seq 1 200 | while read -r x; do ((x % 50)) || echo "$x"; done; sleep 0.01 & wait; echo done | sed s/o/0/
cat <(echo process) <<<here; printf '%q\n' "a b"; cd /; pwd; exec bash -c 'echo replaced; exit 6'
B
}
run_bash() { "$@" bash p.sh; echo "status $?"; }

setup_gdb() {
  cat >p.c <<'C'
#include <stdio.h>
struct s { int a; const char *b; };
static int inner(struct s *s, int n) { return s->a * n; }
__attribute__((noinline)) int outer(int n) { struct s s = { n, "text" }; return n ? inner(&s, n) + outer(n - 1) : 0; }
int main(void) { printf("%d\n", outer(5)); return 3; }
C
  gcc -g -O0 -o p p.c
}
run_gdb() {
  "$@" gdb -nx -q -batch -ex 'set debuginfod enabled off' -ex 'break inner if n == 3' -ex run -ex backtrace -ex 'print *s' -ex 'info locals' -ex finish \
    -ex 'print outer(2)' -ex delete -ex 'disassemble inner' -ex 'python print(gdb.lookup_type("struct s").sizeof)' -ex 'print nonsense' -ex continue ./p
  echo "status $?"
}
setup_cmake() {
  mkdir src; echo 'int main() { return 0; }' >src/main.cc
  printf 'cmake_minimum_required(VERSION 3.10)\nproject(p CXX)\nfind_package(Threads)\nadd_executable(p main.cc)\ntarget_link_libraries(p Threads::Threads)\nmessage(STATUS "a ${CMAKE_CXX_COMPILER_ID}")\nif(EXISTS nowhere)\n  message(FATAL_ERROR no)\nendif()\n' >src/CMakeLists.txt
}
run_cmake() { "$@" cmake -S src -B build; echo "status $?"; "$@" cmake --build build; echo "status $?"; "$@" cmake -S nowhere -B x; echo "status $?"; }
setup_git() {
  git init -q -b main r; cd r || return
  git config user.name n; git config user.email e@x; git config gc.auto 0; git config core.fsync none; git config pack.threads 1
  for i in {1..25}; do
    text $((i * 700)) >f$((i % 7)); git add .
    GIT_AUTHOR_DATE="2020-01-01T00:00:$i Z" GIT_COMMITTER_DATE="2020-01-01T00:00:$i Z" git commit -q -m "change $i"
  done
}
run_git() {
  cd r || return
  "$@" git --no-pager log --stat --format='%H %an %ad %s'; "$@" git --no-pager diff HEAD~9 HEAD~2; echo x >>f1; "$@" git status
  "$@" git --no-pager blame f3 | cksum; "$@" git gc -q; "$@" git fsck --full; "$@" git grep -c word1 HEAD; "$@" git --no-pager show nothing; echo "status $?"
}
setup_rg() { mkdir d; for i in {1..40}; do text $((i * 500)) >"d/f$i"; done; }
run_rg() { "$@" rg -j1 --sort path -c 'word(1[0-9]|9)\b' d; "$@" rg -j1 --sort path -o '(the )+word7\d' d | cksum; "$@" rg '(' d; echo "status $?"; }

# A server under load, on a socket in its own folder; it is told to stop. What both sides say holds no times.
run_redis() {
  "$@" redis-server --port 0 --unixsocket "$PWD/s" --save '' --appendonly yes --io-threads 2 --io-threads-do-reads yes --daemonize no --logfile /dev/null &
  local server=$! n=0
  until redis-cli -s "$PWD/s" ping >/dev/null 2>&1 || [ $((n++)) -gt 600 ]; do sleep 0.05; done
  "$@" redis-benchmark -s "$PWD/s" -q -n 2000 -c 20 -t set,get,incr,lpush,lpop,zadd,mset >/dev/null; echo "status $?"
  for c in 'incr n' 'incr n' 'set a b' 'get a' 'lpush l 1 2 3' 'lrange l 0 -1' 'eval return(redis.call("get","a").."x") 0' 'bgrewriteaof' 'nonsense'; do
    # shellcheck disable=SC2086
    "$@" redis-cli -s "$PWD/s" $c
  done
  "$@" redis-cli -s "$PWD/s" shutdown nosave; wait $server; echo "server $?"
}

setup_cc1plus() {
  cat >p.cc <<'C'
#include <algorithm>
#include <map>
#include <string>
#include <vector>
template <int N> struct F { static constexpr long v = F<N - 1>::v + F<N - 2>::v; };
template <> struct F<0> { static constexpr long v = 0; }; template <> struct F<1> { static constexpr long v = 1; };
struct B { virtual ~B() = default; virtual int f(int) = 0; }; struct D : B { int f(int n) override { if (n > 9) throw n; return n * 3; } };
int g(std::map<std::string, std::vector<int>> &m) {
  int s = 0; for (auto &[k, v] : m) { std::sort(v.begin(), v.end()); s += static_cast<int>(k.size()) + v.back(); }
  try { D d; B &b = d; s += b.f(s); } catch (int n) { s -= n; } return s + static_cast<int>(F<40>::v % 7);
}
C
  g++ -E -o p.ii p.cc
}
run_cc1plus() { "$@" "$(g++ -print-prog-name=cc1plus)" -quiet -fpreprocessed -O2 p.ii -o p.s; echo "status $?"; cksum <p.s; }
setup_ld() { setup_cc1plus; echo 'int g(void *); int main() { return 0; }' | g++ -x c++ -c -o m.o -; g++ -O1 -c -o p.o p.cc; g++ -shared -fPIC -o l.so p.cc; g++ -### m.o p.o -o p 2>&1 | tail -n 1 | tr ' ' '\n' | grep -n '' >/dev/null; }
run_ld() { "$@" ld -r -o r.o m.o p.o; cksum <r.o; "$@" ld -shared --gc-sections -o s.so p.o; cksum <s.so; "$@" objdump -d -C p.o | cksum; "$@" readelf -aW l.so | cksum; "$@" strip -o st l.so; cksum <st; "$@" ld -o x m.o; echo "status $?"; }
setup_clang() { setup_cc1plus; }
run_clang() { "$@" clang-19 -cc1 -triple x86_64-pc-linux-gnu -emit-obj -O2 -fcxx-exceptions -fexceptions -o p.o -x c++-cpp-output p.ii; echo "status $?"; cksum <p.o; }
# sqlite's one file of 9 MB, as it comes to who builds it into a program.
setup_clangsql() {
  mkdir -p get/src; touch get/src/lib.rs; printf '[package]\nname = "get"\nversion = "0.0.0"\n[dependencies]\nlibsqlite3-sys = "=0.30.1"\n[workspace]\n' >get/Cargo.toml
  (cd get && CARGO_HOME=${CARGO_HOME:-${real_home:-$HOME}/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-${real_home:-$HOME}/.rustup} cargo vendor -q >/dev/null) && cp get/vendor/libsqlite3-sys/sqlite3/sqlite3.[ch] . && rm -r get
}
run_clangsql() { "$@" clang-19 -cc1 -triple x86_64-pc-linux-gnu -emit-obj -O1 -internal-isystem /usr/lib/llvm-19/lib/clang/19/include -internal-isystem /usr/include/x86_64-linux-gnu -internal-isystem /usr/include -o s.o -x c sqlite3.c; echo "status $?"; cksum <s.o; }
setup_povray() { printf 'camera { location <0,2,-5> look_at 0 } light_source { <9,9,-9> 1 }\nsphere { 0, 1 pigment { marble turbulence 1 } finish { reflection 0.3 } }\nplane { y, -1 pigment { checker rgb 1, rgb 0 } }\n' >in.pov; }
run_povray() { "$@" povray +Iin.pov +Oout.bmp +FB +W60 +H40 +WT2 -D -V -GA >/dev/null 2>&1; echo "status $?"; cksum <out.bmp; }
setup_node() { cat >p.js <<'J'
const z = require("zlib"), c = require("crypto"); let s = 0; for (let i = 0; i < 3e5; i++) s = (s * 31 + i) % 1000003;
console.log(s, z.gzipSync("x".repeat(5000)).length, c.createHash("sha256").update("a").digest("hex").slice(0, 12));
console.log([..."hello"].map(x => x.codePointAt(0)).sort().join(), /(\d+)(?<n>[a-z])/.exec("12b").groups.n, JSON.stringify({ a: [1, { b: null }] }));
setTimeout(() => Promise.reject(new RangeError("late")).catch(e => { console.log(e.name); process.exit(5); }), 1);
J
}
run_node() { "$@" node --single-threaded p.js; echo "status $?"; }

setup_throws() {
  cat >l.cc <<'C'
#include <stdexcept>
#include <string>
extern "C" int raise_at(int n, int (*back)(int)) { if (!n) throw std::out_of_range("deep"); struct g { ~g() { asm volatile(""); } } g; return back ? back(n - 1) : raise_at(n - 1, back) + 1; }
C
  cat >p.cc <<'C'
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <execinfo.h>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <unistd.h>
static int (*raise_at)(int, int (*)(int));
static int back(int n) { std::string s(100, 'x'); return raise_at(n, back) + static_cast<int>(s.size()); }
static jmp_buf env; static void handler(int) { longjmp(env, 7); }
static void *forever(void *) { struct g { ~g() { puts("cancelled"); } } g; for (;;) pause(); }
static ucontext_t a, b; static int turns; static void other() { for (;;) { ++turns; try { throw turns; } catch (int) {} swapcontext(&b, &a); } }
int main(int argc, char **) {
  void *l = dlopen("./l.so", RTLD_NOW); raise_at = reinterpret_cast<int (*)(int, int (*)(int))>(dlsym(l, "raise_at"));
  int caught = 0; for (int i = 0; i < 3000; i++) try { raise_at(i % 20, i % 2 ? back : nullptr); } catch (const std::exception &e) { caught += e.what()[0]; }
  printf("%d\n", caught);
  try { throw std::bad_alloc(); } catch (const std::runtime_error &) { puts("no"); } catch (...) { puts("all"); }
  static char stack[65536]; stack_t alt = {}; alt.ss_sp = stack; alt.ss_size = sizeof stack; sigaltstack(&alt, nullptr);
  struct sigaction sa = {}; sa.sa_handler = handler; sa.sa_flags = SA_ONSTACK | SA_NODEFER; sigaction(SIGSEGV, &sa, nullptr);
  volatile int faults = 0; if (setjmp(env)) faults++; if (faults < 50) *reinterpret_cast<volatile int *>(8) = 1; printf("%d faults\n", faults);
  static char other_stack[262144]; getcontext(&b); b.uc_stack.ss_sp = other_stack; b.uc_stack.ss_size = sizeof other_stack; makecontext(&b, other, 0);
  for (int i = 0; i < 100; i++) swapcontext(&a, &b);
  void *frames[50]; printf("%d %d\n", turns, backtrace(frames, 50) >= 3);
  pthread_t t; pthread_create(&t, nullptr, forever, nullptr); usleep(1000); pthread_cancel(t); pthread_join(t, nullptr);
  if (argc > 1) throw std::logic_error("uncaught");
  fflush(stdout); dlclose(l); quick_exit(4);
}
C
  g++ -O2 -shared -fPIC -o l.so l.cc; g++ -O2 -pthread -o p p.cc -ldl
}
run_throws() { "$@" ./p; echo "status $?"; "$@" ./p uncaught; echo "status $?"; }
setup_panics() {
  cat >p.rs <<'R'
use std::{collections::HashMap, panic, thread};
struct Noisy(u32);
impl Drop for Noisy { fn drop(&mut self) { if self.0 % 500 == 0 { println!("dropped {}", self.0); } } }
#[inline(never)] fn deep(n: u32, of: u32) -> u32 { let _g = Noisy(of); if n == 0 { if of % 3 == 0 { panic!("at {of}") } return of; } deep(n - 1, of) + 1 }
fn main() {
    panic::set_hook(Box::new(|_| {}));
    let caught = (0..2000u32).filter(|&i| panic::catch_unwind(|| deep(i % 20, i)).is_err()).count();
    let joined: Vec<bool> = (0..8).map(|i| thread::spawn(move || deep(5, i))).map(|t| t.join().is_ok()).collect();
    let mut words: HashMap<String, usize> = HashMap::new();
    for i in 0..3000u64 { *words.entry(format!("w{}", i * 7919 % 101)).or_default() += 1; }
    let mut top: Vec<_> = words.into_iter().collect(); top.sort();
    println!("{caught} {joined:?} {:?}", &top[..3]);
    let _ = panic::take_hook();
    if std::env::args().len() > 1 { let v: Vec<u32> = top.iter().map(|t| t.1 as u32).collect(); println!("{}", v[v.len()]); }
}
R
  "$rustc" --edition 2021 -O -o p p.rs
}
run_panics() { "$@" ./p; echo "status $?"; "$@" ./p uncaught; echo "status $?"; }
setup_openmp() {
  cat >p.c <<'C'
#include <stdio.h>
int main(void) {
  long sum = 0; int a[1000]; double d = 0;
  for (int r = 0; r < 20; r++) {
#pragma omp parallel for schedule(dynamic, 7) num_threads(4) reduction(+ : sum)
    for (int i = 0; i < 1000; i++) { a[i] = i * r % 17; sum += a[i]; }
#pragma omp parallel num_threads(3)
#pragma omp single
    for (int i = 0; i < 30; i++) {
#pragma omp task shared(d)
      { double x = i * 0.5;
#pragma omp critical
        d += x; }
    }
  }
  printf("%ld %.1f\n", sum, d); return 0;
}
C
  gcc -O2 -fopenmp -o p p.c
}
run_openmp() { OMP_NUM_THREADS=4 OMP_WAIT_POLICY=passive "$@" ./p; echo "status $?"; }
# Three processes that compute together; each is counted.
setup_mpi() {
  cat >p.c <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int me, n; MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &me); MPI_Comm_size(MPI_COMM_WORLD, &n);
  double mine = 0, all; for (int i = me; i < 30000; i += n) mine += 4.0 / (1 + (i + .5) * (i + .5) / 9e8);
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  int token = me; for (int turn = 0; turn < 20; turn++) MPI_Sendrecv_replace(&token, 1, MPI_INT, (me + 1) % n, 0, (me + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  int tokens[3]; MPI_Gather(&token, 1, MPI_INT, tokens, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (!me) printf("%.6f %d %d %d\n", all / 30000, tokens[0], tokens[1], tokens[2]);
  MPI_Finalize(); return 0;
}
C
  mpicc.mpich -O2 -o p p.c
}
run_mpi() { mpiexec.mpich -n 3 bash -c '"$@"' _ "$@" ./p; echo "status $?"; }
setup_fortran() {
  cat >p.f90 <<'F'
program p
  implicit none
  real(8) :: a(60,60), b(60,60), c(60,60); integer :: i, j; character(20) :: s; complex(8) :: z
  do i = 1, 60; do j = 1, 60; a(i,j) = mod(i*j, 7); b(i,j) = sin(real(i+j,8)); end do; end do
  c = matmul(a, transpose(b)); print '(3f12.5)', sum(c), maxval(c), minval(abs(c))
  write(s, '(i8.5,es11.3)') 42, c(3,4); print *, trim(s), scan(s, '5'); z = exp((0d0,1d0)); print *, z
  open(10, file='out.txt'); write(10, *) (c(i,i), i = 1, 20); rewind(10); read(10, *) (a(i,1), i = 1, 20)
  print *, sum(a(1:20,1)); close(10)
  read(s, *, iostat=i) j; print *, i, j
  error stop 7
end program
F
  gfortran -O2 -o p p.f90
}
run_fortran() { "$@" ./p; echo "status $?"; }
# An interpreter of words: threaded by computed goto; it sorts, throws nothing, and prints.
setup_interpreter() {
  cat >p.c <<'C'
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static long interpret(const char *s) {
  static const void *const to[] = { ['+'] = &&add, ['-'] = &&sub, ['*'] = &&mul, ['d'] = &&dup, ['s'] = &&swap, ['j'] = &&loop, [0] = &&end, ['1'] = &&one };
  long st[64], *t = st, n = 200; const char *p = s; t[0] = t[1] = 1; t++;
#define NEXT goto *to[(unsigned char)*p++]
  NEXT;
add: t[-1] += t[0]; t--; NEXT; sub: t[-1] -= t[0]; t--; NEXT; mul: t[-1] = t[-1] * t[0] % 1000003; t--; NEXT;
dup: t++; t[0] = t[-1]; NEXT; swap: { long x = t[0]; t[0] = t[-1]; t[-1] = x; } NEXT; one: *++t = 1; NEXT; loop: if (n-- > 0) p = s; NEXT;
end: return t[0];
}
int main(int argc, char **argv) {
  printf("%ld\n", interpret("d+1+sd*1-s+1+1sj+")); int a[500]; for (int i = 0; i < 500; i++) a[i] = i * 7919 % 1009;
  qsort(a, 500, sizeof *a, by); printf("%d %d %.6f %s\n", a[0], a[499], pow(1.5, argc), strstr("haystack", "st"));
  fflush(stdout); pid_t c = fork(); if (!c) { printf("child\n"); fflush(stdout); _exit(9); } int st; waitpid(c, &st, 0); printf("%d\n", WEXITSTATUS(st));
  switch (argc + atoi(argv[argc - 1] + strlen(argv[argc - 1]))) { case 1: puts("one"); break; case 2: puts("two"); break; case 3: puts("3"); break; case 4: abort(); case 5: return 8; default: puts("more"); }
  return 3;
}
C
}
setup_static() { setup_interpreter; gcc -O2 -static -o p p.c -lm; }
setup_staticpie() { setup_interpreter; gcc -O2 -static-pie -o p p.c -lm; }
setup_cgoto() { setup_interpreter; gcc -O2 -o p p.c -lm; }
setup_relr() { setup_interpreter; clang-19 -O2 -fuse-ld=lld-19 -Wl,-z,pack-relative-relocs -o p p.c -lm; }
run_static() { for a in '' b 'b c' 'b c d' 'b c d e'; do
    # shellcheck disable=SC2086
    "$@" ./p $a; echo "status $?"; done; }
run_staticpie() { run_static "$@"; }
run_cgoto() { run_static "$@"; }
run_relr() { run_static "$@"; }

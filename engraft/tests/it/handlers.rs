//! What signal handlers leave for good, wherever their addresses stand and whatever they interrupt.
//! Programs say themselves how often they did what.

use crate::count::{blocks, counted, plain};
use crate::needs;
use crate::run::{at, built, engraft, entries, folder};
use std::path::Path;
use std::process::Command;

/// `work` is called 80 times, fails in every fourth, and calls `ended` last; `before` and `after` say how
/// often it began and ended.
const HEAD: &str =
    "#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>
    extern sigjmp_buf env; void install(void (*)(int)); void on_fault(int); void log(int);
    volatile int before, after; static char room[64];
    __attribute__((noinline)) void ended(void) { after++; }
    __attribute__((noinline)) void put(void (*h)(int)) {
      struct sigaction a = {.sa_handler = h, .sa_flags = SA_NODEFER}; sigaction(SIGSEGV, &a, 0); }
    ";
const LOOP: &str = "__attribute__((noinline)) void work(int n, volatile char *p) { before++;
    for (int i = 0; i < n; i++) { if (i == 2) *p = 1; room[i]++; } ended(); room[1]++; }
    ";
const MAIN: &str = "for (volatile int i = 0; i < 80; i++) if (!sigsetjmp(env, 1)) work(i & 1 ? 6 : 7, i % 4 == 3 ? 0 : room + 32);
    printf(\"%d %d\\n\", before, after); return 0; }";
/// In the library: a handler, the place it leaves to, and a function that is called like libc's.
const LIBRARY: &str = "#include <setjmp.h>\n#include <signal.h>\nsigjmp_buf env; void on_fault(int s) { siglongjmp(env, s); }
    void log(int n) { if (n == 3) siglongjmp(env, 1); }
    void install(void (*h)(int)) { struct sigaction a = {.sa_handler = h ? h : on_fault, .sa_flags = SA_NODEFER}; sigaction(SIGSEGV, &a, 0); }";

/// What stands before `main`'s loop, and in place of the loop of `work` if that is something else.
const CASES: [(&str, &str, &str); 8] = [
    ("address in code", "static void own(int s) { siglongjmp(env, s); } int main(void) { put(own);", LOOP),
    (
        "address in data",
        "static void own(int s) { siglongjmp(env, s); }
        static const struct { int s; void (*h)(int); } all[] = {{SIGSEGV, own}};
        int main(int n, char **v) { put(all[n - 1].h);",
        LOOP,
    ),
    ("address in the library's table", "int main(void) { install(0);", LOOP),
    ("exported by the library", "int main(void) { put(on_fault);", LOOP),
    (
        "called by what stays",
        "int armed; __attribute__((noinline)) void own(int s) { if (armed) siglongjmp(env, s); }
        __attribute__((noinline)) long stays(void) { long r; asm volatile(\"call 1f\\n1: pop %0\" : \"=r\"(r)); own(0); return r & 1; }
        int main(void) { put(own); stays(); armed = 1;",
        LOOP,
    ),
    (
        "that changes the context",
        "static void away(void) { siglongjmp(env, 1); }
        static void own(int s, void *info, ucontext_t *c) { c->uc_mcontext.gregs[15] = ((c->uc_mcontext.gregs[15] - 256) & -16) - 8;
          c->uc_mcontext.gregs[16] = (long)away; }
        int main(void) { put((void (*)(int))own);",
        "__attribute__((noinline)) void work(int n, volatile char *p) { before++; n += strlen(room + 60);
        for (int i = 0; i < n; i++) { if (i == 2) *p = 1; room[i]++; } ended(); room[1]++; }
        ",
    ),
    (
        "in a function that comes back",
        "int main(void) { install(0);",
        "__attribute__((noinline)) void work(int n, volatile char *p) { before++; if (n & 1) room[0]++;
        memcpy(room, (char *)p, n + (room[1] & 3)); room[2]++; if (n & 1) room[3]++; ended(); room[4]++; }
        ",
    ),
    (
        "in a library's function of a known name",
        "int main(void) { install(0);",
        "__attribute__((noinline)) void work(int n, volatile char *p) { before++; log(p ? 0 : 3); ended(); room[4]++; }
        ",
    ),
];

/// Builds `libown.so`, and `old` that needs it.
#[track_caller]
fn with_library(folder: &Path, library: &str, text: &str, flags: &str) {
    built(folder, "libown.so", library, &format!("{flags} -fno-builtin -shared -fPIC"));
    built(folder, "old", text, &format!("{flags} -fno-builtin -L. -lown -Wl,-rpath,$ORIGIN"));
}

#[test]
fn what_handlers_leave_is_seen_wherever_they_come_from() {
    needs!("gcc");
    for flags in ["-O2", "-O1 -fno-plt", "-O0 -Wl,-z,now"] {
        let place = folder();
        let folder = place.path();
        for (name, main, work) in CASES {
            let case = format!("{name}, {flags}");
            let text = [HEAD, work, main, MAIN].concat();
            with_library(folder, LIBRARY, &text, flags);
            let said = String::from_utf8(plain(folder, &["./old"]).stdout).expect("text");
            assert_eq!(said, "80 60\n", "{case}");
            counted(folder, &["./old"], "all");
            let us = env!("CARGO_BIN_EXE_engraft");
            plain(folder, &[us, "count", "-q", "--all-blocks", "-o", "all.engraft", "--", "./old"]);
            for recording in ["run.engraft", "all.engraft"] {
                let found = ["work", "ended"].map(|function| entries(folder, recording, function));
                assert_eq!(found, [80, 60], "{case}, {recording}");
            }
        }
    }
}

/// A stub that is moved, since it is called with its address elsewhere: a function of a library that is left
/// in it.
#[test]
fn what_a_moved_stub_leads_to_may_be_left() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let work =
        "__attribute__((noinline)) void work(int n, volatile char *p) { before++; if (n & 1) room[0]++;
        room[5] = strlen((char *)p); if (n & 1) room[3]++; ended(); room[4]++; }";
    let text = [
        HEAD,
        work,
        "int main(void) { install(0); size_t (*volatile taken)(const char *) = strlen; taken(room);",
        MAIN,
    ]
    .concat();
    for flags in ["-O2 -no-pie -fno-pie", "-O1 -no-pie -fno-pie -fcf-protection=full"] {
        with_library(folder, LIBRARY, &text, flags);
        counted(folder, &["./old"], "all");
        let us = [env!("CARGO_BIN_EXE_engraft"), "count", "-q", "--all-blocks"];
        plain(folder, &[&us[..], &["-o", "all.engraft", "--", "./old"]].concat());
        assert_eq!(entries(folder, "all.engraft", "strlen@plt"), 81, "{flags}");
        let [follow, all] = ["run", "all"].map(|name| blocks(folder, &format!("{name}.engraft"), "old"));
        assert_eq!(follow, all, "{flags}");
    }
}

/// A fault before the call of a stub in its block: the stub is not called then.
#[test]
fn a_stub_behind_a_fault_is_not_called() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let work = "__attribute__((noinline)) void work(int n, volatile char *p) { n += *p; rand(); ended(); room[4] = n; }";
    let text = [HEAD, work, "int main(void) { install(0);", MAIN].concat();
    with_library(folder, LIBRARY, &text, "-O2");
    for more in [&[][..], &["--all-blocks"]] {
        let us = [env!("CARGO_BIN_EXE_engraft"), "count", "-q", "-o", "run.engraft"];
        plain(folder, &[&us, more, &["--", "./old"]].concat());
        let found = ["rand@plt", "work"].map(|function| entries(folder, "run.engraft", function));
        assert_eq!(found, [60, 80], "{more:?}");
    }
}

/// A fault in a library that is not counted, on a stack where a call of a function that comes back has left
/// its return address: it is not that call that was left.
#[test]
fn what_other_code_does_is_no_matter_of_calls_that_are_over() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let touches = "__attribute__((noinline)) void touch(volatile char *p, int n) { volatile char room[232]; room[n] = 1; *p = 1; }";
    let work = "void touch(volatile char *, int); volatile int odd, even;
        __attribute__((noinline)) void deep(int n) { char other[80]; other[6] = 0; other[5] = n & 1; if (strlen(other + 5)) odd++; else even++; }
        __attribute__((noinline)) void work(int n, volatile char *p) { before++; deep(n); touch(p, n); ended(); }
        static void own(int s) { siglongjmp(env, s); } int main(void) { put(own);";
    with_library(folder, &[LIBRARY, touches].concat(), &[HEAD, work, MAIN].concat(), "-O1");
    counted(folder, &["./old"], "exe");
    assert_eq!(["work", "deep", "ended"].map(|f| entries(folder, "run.engraft", f)), [80, 80, 60]);
    let shown = engraft(folder, "show run.engraft function deep --json").json();
    let blocks = shown["blocks"].as_array().expect("a list");
    let counts: Vec<u64> = blocks.iter().map(|b| b["count"].as_u64().expect("a number")).collect();
    assert!(counts.len() > 3 && counts.iter().all(|n| [40, 80].contains(n)), "{counts:?}");
}

/// A function of the C library is left where a call of another one that is near it has left its return
/// address, at each place in turn: which of them was left may not be known, but what is said is so.
#[test]
fn calls_that_are_over_may_leave_doubt() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let work = "#include <ucontext.h>\n static ucontext_t c; static volatile int ends[25];
        #define WORK(k) __attribute__((noinline)) void work##k(int n, volatile char *p) { before++; \\
          __asm__ volatile(\"sub $8*\" #k \", %%rsp; call getcontext@plt; add $8*\" #k \", %%rsp\" :: \"D\"(&c) : \"rax\", \"rcx\", \"rdx\", \"rsi\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\"); \\
          if (n & 1) room[0]++; room[9] = strtol((char *)p, 0, 10); ends[k]++; if (n & 2) room[1]++; }
        #define FIVE(a, b, c, d, e) WORK(a) WORK(b) WORK(c) WORK(d) WORK(e)
        FIVE(0, 1, 2, 3, 4) FIVE(5, 6, 7, 8, 9) FIVE(10, 11, 12, 13, 14) FIVE(15, 16, 17, 18, 19) FIVE(20, 21, 22, 23, 24)
        #define FIVE_OF(a, b, c, d, e) work##a, work##b, work##c, work##d, work##e
        static void (*const all[])(int, volatile char *) = { FIVE_OF(0, 1, 2, 3, 4), FIVE_OF(5, 6, 7, 8, 9), FIVE_OF(10, 11, 12, 13, 14),
          FIVE_OF(15, 16, 17, 18, 19), FIVE_OF(20, 21, 22, 23, 24) };
        __attribute__((noinline)) void wipe(void) { volatile char room[2048]; for (int i = 0; i < 2048; i++) room[i] = 0; }
        void work(int n, volatile char *p) { for (volatile int k = 0; k < 25; k++) { wipe(); sigjmp_buf last; memcpy(&last, &env, sizeof env);
          if (!sigsetjmp(env, 1)) all[k](n, p); memcpy(&env, &last, sizeof env); } ended(); }
        int main(void) { install(0);";
    with_library(folder, LIBRARY, &[HEAD, work, MAIN].concat(), "-O1");
    counted(folder, &["./old"], "all");
    let mut n_wide = 0;
    for k in 0..25 {
        let shown = engraft(folder, &format!("show run.engraft function work{k} --json")).json();
        let blocks = shown["blocks"].as_array().expect("a list");
        let between = |block: &serde_json::Value| {
            let n = block["count"].as_u64().expect("a count");
            ["at_least", "at_most"].map(|key| block[key].as_u64().unwrap_or(n))
        };
        let want = [80, 80, 40, 80, 60, 60];
        assert_eq!(blocks.len(), want.len(), "{shown}");
        for (block, want) in blocks.iter().zip(want) {
            let [least, most] = between(block);
            assert!(least <= want && want <= most, "{k}: {least}..{most}, not {want}: {shown}");
            n_wide = n_wide.max(most - least);
        }
    }
    assert!((1..=12 * 20).contains(&n_wide), "{n_wide} of {} are in doubt", 25 * 20);
}

/// Steps through `work`, and leaves it for good at instruction `v[1]` behind its beginning; says how many
/// there are, and how often `work` began.
const STEPPED: &str = "#include <math.h>\n#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>
    static sigjmp_buf env; static volatile long steps, last; static int odd, even, began; static struct timespec now;
    static volatile double x = 0.3; char text[64] = \"some text\", room[64];
    static void step(int s) { if (began && ++steps == last) siglongjmp(env, 1); }
    #define TRAP(how) __asm__ volatile(\"pushfq; \" how \",(%%rsp); popfq\" ::: \"memory\", \"cc\")
    __attribute__((noinline)) void work(const char *p) { began++; if (CALL) odd++; else even++; TRAP(\"andl $~0x100\"); }
    int main(int n, char **v) {
      last = atol(v[1]); signal(SIGTRAP, step);
      if (!sigsetjmp(env, 1)) { TRAP(\"orl $0x100\"); work(text); }
      TRAP(\"andl $~0x100\"); work(text); work(text + 1);
      printf(\"%ld %d\\n\", steps, began); return 0; }";

/// Functions that are near and far from where they start, that are bound when they are called first, and that
/// are taken to come back or not.
#[test]
fn a_call_may_be_left_at_any_instruction() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let [mut n_left, mut n_wide] = [0, 0];
    for (call, flags) in [
        ("strlen(p) & 1", "-O1 -Wl,-z,lazy"),
        ("*(char *)memcpy(room, p, 40) & 1", "-O1 -fno-plt"),
        ("exp(x) > .5", "-O1 -Wl,-z,now"),
        ("log10(x) > .5", "-O2 -Wl,-z,lazy"),
        ("clock_gettime(0, &now) == 0", "-O1 -Wl,-z,now"),
        ("strstr(p, \"text\") != 0", "-O1 -Wl,-z,now"),
        // Its address is that of the program's own stub, and the call is through a slot that holds it.
        (
            "({ long at; __asm__(\"mov $strspn, %k0\" : \"=r\"(at)); at > 1 && strspn(p, \"tex\") & 1; })",
            "-O1 -fno-plt -no-pie -fno-pie",
        ),
        ("snprintf(room, 60, \"%d %s\", 3, p) & 1", "-O1 -Wl,-z,now"),
    ] {
        built(folder, "old", &STEPPED.replace("CALL", call), &format!("{flags} -fno-builtin -lm"));
        let ran = |last: u64| {
            let us = [env!("CARGO_BIN_EXE_engraft"), "count", "-q", "-o", "run.engraft", "--modules", "exe"];
            let out = plain(folder, &[&us[..], &["--", "./old", &last.to_string()]].concat());
            assert_eq!(out.status.code(), Some(0), "{call}, {last}: {out:?}");
            let said = String::from_utf8(out.stdout).expect("text");
            let numbers: Vec<u64> = said.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            let shown = engraft(folder, "show run.engraft function work --json").json();
            let first = &shown["blocks"][0];
            let [least, most] =
                ["at_least", "at_most"].map(|key| first[key].as_u64().or(first["count"].as_u64()));
            (numbers[0], numbers[1], least.expect("a count"), most.expect("a count"))
        };
        let (n_steps, ..) = ran(u64::MAX);
        for last in (0..10).map(|n| 1 + n * (n_steps - 2) / 9) {
            let (_, began, least, most) = ran(last);
            assert!(
                least <= began && began <= most,
                "{call}, {last} of {n_steps}: {least}..{most}, not {began}"
            );
            n_left += u64::from(began == 3);
            n_wide += u64::from(least != most);
        }
    }
    assert!(n_left > 60 && n_wide < 5, "{n_left} left, {n_wide} in intervals");
}

/// A stack that is full, and one that ends at the next page: nothing is read there.
#[test]
fn stacks_are_not_read_beyond_their_ends() {
    needs!("gcc");
    let place = folder();
    let full = "#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n
        static char other[65536], path[8192]; static sigjmp_buf env;
        static void leave(int s) { siglongjmp(env, 1); }
        __attribute__((noinline)) int deeper(int n) { volatile char room[48]; room[0] = n; realpath(\"/usr\", path); return deeper(n + 1) + room[0]; }
        int main(int n, char **v) {
          stack_t st = {.ss_sp = other, .ss_size = sizeof other}; sigaltstack(&st, 0);
          struct sigaction a = {.sa_handler = leave, .sa_flags = SA_ONSTACK}; sigaction(SIGSEGV, &a, 0);
          if (!sigsetjmp(env, 1)) { volatile char *room = __builtin_alloca(atoi(v[1])); room[0] = 1; deeper(0); }
          puts(\"left\"); return 0; }";
    let apart = "#include <signal.h>\n#include <stdio.h>\n#include <sys/mman.h>\n#include <ucontext.h>\n#include <unistd.h>\n
        static ucontext_t back, there; static volatile int n; static void came(int s) { n++; }
        int (*volatile sleeps)(void) = pause;
        __attribute__((noinline)) static void body(void) { for (int i = 0; i < 3; i++) { ualarm(1000, 0); sleeps(); } }
        int main(void) {
          struct sigaction a = {.sa_handler = came}; sigaction(SIGALRM, &a, 0);
          char *p = mmap(0, 258 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); mprotect(p + 4096, 256 * 4096, PROT_READ | PROT_WRITE);
          getcontext(&there); there.uc_stack.ss_sp = p + 4096; there.uc_stack.ss_size = 256 * 4096; there.uc_link = &back;
          makecontext(&there, body, 0); swapcontext(&back, &there); printf(\"%d\\n\", n); return 0; }";
    built(place.path(), "full", full, "-O1");
    built(place.path(), "apart", apart, "-O1");
    for command in
        [&["./full", "0"][..], &["./full", "500"], &["./full", "1040"], &["./full", "2064"], &["./apart"]]
    {
        counted(place.path(), command, "all");
    }
}

/// What a library calls by a name of libc's is the executable's, if that has one of this name: here it leaves
/// the library by `longjmp`, half of the time. Beside another executable the same library calls libc.
#[test]
fn names_of_libcs_are_the_executables_if_it_has_them() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let library = "int n_ended; __attribute__((noinline)) void ended(void) { n_ended++; }
        int work(char *p) { int n = strlen(p); if (n & 1) n_ended += 2; ended(); return n; }";
    built(folder, "libown.so", library, "-O1 -fno-builtin -shared -fPIC");
    let own = "long strlen(const char *p) { if (n & 1) longjmp(back, 1); return 4; }";
    let cache = folder.join("cache");
    for (name, own, n_ended) in [("libcs", "", 100), ("own", own, 50), ("libcs", "", 100)] {
        let text = format!(
            "#include <setjmp.h>
            #include <stdio.h>
            int work(char *p); extern int n_ended; volatile int n, sum; jmp_buf back;
            {own}
            int main(void) {{ for (n = 0; n < 100; n++) if (!setjmp(back)) sum += work(\"four\");
                printf(\"%d\\n\", n_ended); return 0; }}"
        );
        built(folder, name, &text, "-O1 -fno-builtin -L. -lown -Wl,-rpath,$ORIGIN");
        let program = format!("./{name}");
        for verb in [&["count"][..], &["count", "--all-blocks"], &["trace"]] {
            let ran = Command::new(env!("CARGO_BIN_EXE_engraft"))
                .args(verb)
                .args(["-q", "-o", "run.engraft", "--", &program])
                .current_dir(folder)
                .env("XDG_CACHE_HOME", &cache)
                .output()
                .expect("it runs");
            assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{n_ended}\n"), "{ran:?}");
            let found = blocks(folder, "run.engraft", "libown.so");
            let at = |function: &str| at(folder, "libown.so", function);
            assert_eq!(
                [found.get(&at("work")), found.get(&at("ended"))],
                [Some(&100), Some(&n_ended)],
                "{name}, {verb:?}"
            );
        }
    }
}

const THREE: &str = "#include <setjmp.h>
    #include <signal.h>
    sigjmp_buf back; volatile int n_signals;
    void on_first(int s) { n_signals++; }
    void on_second(int s) { n_signals++; raise(SIGALRM); }
    void on_third(int s) { n_signals++; siglongjmp(back, 1); }";

/// Two signals come at once, and the second's handler lets a third one come where the first's handler has not
/// begun, whose address is a PLT stub's. All over the stack above stand return addresses of
/// calls that are over.
const OVER: &str = "#include <alloca.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    extern sigjmp_buf back; extern volatile int n_signals; volatile int sum;
    void on_first(int); void on_second(int); void on_third(int);
    __attribute__((noinline)) void fill(int n) {
      for (int i = 0; i < n; i++) { volatile char *p = alloca(16); *p = 1; sum += strspn(\"abc\", \"ab\"); } }
    __attribute__((noinline)) void poke(void) {
      char room[6000]; __asm__ volatile(\"\" :: \"r\"(room) : \"memory\");
      unsigned long both = 1 << (SIGUSR1 - 1) | 1 << (SIGUSR2 - 1), old = 0;
      syscall(SYS_rt_sigprocmask, SIG_BLOCK, &both, &old, 8);
      raise(SIGUSR1); raise(SIGUSR2);
      syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &both, &old, 8); }
    int main(void) {
      struct sigaction a = {.sa_handler = on_first}; sigaction(SIGUSR1, &a, 0);
      a.sa_handler = on_third; sigaction(SIGALRM, &a, 0);
      a.sa_handler = on_second; sigaddset(&a.sa_mask, SIGALRM); sigaction(SIGUSR2, &a, 0);
      for (volatile int i = 0; i < 10; i++) { fill(400); if (!sigsetjmp(back, 1)) poke(); }
      printf(\"%d %d\\n\", n_signals, sum); return 0; }";

#[test]
fn calls_that_are_over_are_not_left_where_handlers_begin() {
    needs!("gcc");
    for flags in ["-O1 -no-pie -fno-pie", "-O1 -no-pie -fno-pie -Wl,-z,now", "-O1"] {
        let place = folder();
        let folder = place.path();
        with_library(folder, THREE, OVER, flags);
        let said = String::from_utf8(plain(folder, &["./old"]).stdout).expect("text");
        assert_eq!(said, "20 8000\n", "{flags}");
        counted(folder, &["./old"], "all");
        let found = ["fill", "poke", "on_second", "on_third"].map(|f| entries(folder, "run.engraft", f));
        assert_eq!(found, [10; 4], "{flags}");
    }
}

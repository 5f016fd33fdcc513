//! What handlers of signals leave for good, wherever their addresses stand and whatever they interrupt. Programs say themselves how often
//! they did what.

use crate::count::{counted, plain};
use crate::needs;
use crate::run::{built, engraft, entries, folder};

/// `work` is called 80 times, fails in every fourth, and calls `ended` last; `before` and `after` say how often it began and ended.
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

#[test]
fn what_handlers_leave_is_seen_wherever_they_come_from() {
    needs!("gcc");
    for flags in ["-O2", "-O1 -fno-plt", "-O0 -Wl,-z,now"] {
        let place = folder();
        let folder = place.path();
        built(folder, "libown.so", LIBRARY, &format!("{flags} -fno-builtin -shared -fPIC"));
        for (name, main, work) in CASES {
            let case = format!("{name}, {flags}");
            let text = [HEAD, work, main, MAIN].concat();
            built(folder, "old", &text, &format!("{flags} -fno-builtin -L. -lown -Wl,-rpath,$ORIGIN"));
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

/// A fault before the call of a stub in its block: the stub is not called then.
#[test]
fn a_stub_behind_a_fault_is_not_called() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    built(folder, "libown.so", LIBRARY, "-fno-builtin -shared -fPIC");
    let work = "__attribute__((noinline)) void work(int n, volatile char *p) { n += *p; rand(); ended(); room[4] = n; }";
    let text = [HEAD, work, "int main(void) { install(0);", MAIN].concat();
    built(folder, "old", &text, "-O2 -fno-builtin -L. -lown -Wl,-rpath,$ORIGIN");
    for more in [&[][..], &["--all-blocks"]] {
        let us = [env!("CARGO_BIN_EXE_engraft"), "count", "-q", "-o", "run.engraft"];
        plain(folder, &[&us, more, &["--", "./old"]].concat());
        let found = ["rand@plt", "work"].map(|function| entries(folder, "run.engraft", function));
        assert_eq!(found, [60, 80], "{more:?}");
    }
}

/// A fault in a library that is not counted, on a stack where a call of a function that comes back has left its return address: it is not that call that
/// was left.
#[test]
fn what_other_code_does_is_no_matter_of_calls_that_are_over() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let touches = "__attribute__((noinline)) void touch(volatile char *p, int n) { volatile char room[232]; room[n] = 1; *p = 1; }";
    built(folder, "libown.so", &[LIBRARY, touches].concat(), "-O1 -fno-builtin -shared -fPIC");
    let work = "void touch(volatile char *, int); volatile int odd, even;
        __attribute__((noinline)) void deep(int n) { char other[80]; other[6] = 0; other[5] = n & 1; if (strlen(other + 5)) odd++; else even++; }
        __attribute__((noinline)) void work(int n, volatile char *p) { before++; deep(n); touch(p, n); ended(); }
        static void own(int s) { siglongjmp(env, s); } int main(void) { put(own);";
    built(folder, "old", &[HEAD, work, MAIN].concat(), "-O1 -fno-builtin -L. -lown -Wl,-rpath,$ORIGIN");
    counted(folder, &["./old"], "exe");
    assert_eq!(["work", "deep", "ended"].map(|f| entries(folder, "run.engraft", f)), [80, 80, 60]);
    let shown = engraft(folder, "show run.engraft function deep --json").json();
    let blocks = shown["blocks"].as_array().expect("a list");
    let counts: Vec<u64> = blocks.iter().map(|b| b["count"].as_u64().expect("a number")).collect();
    assert!(counts.len() > 3 && counts.iter().all(|n| [40, 80].contains(n)), "{counts:?}");
}

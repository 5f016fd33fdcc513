//! What random programs (`checks/random.sh`) showed, and some of them.

use crate::count::{counted, plain};
use crate::needs;
use crate::run::{built, engraft, entries, folder};
use std::path::Path;
use std::process::Command;

/// A function calls through a table in which it is itself, as its last deed. That is no switch: its entry is
/// a call each time, the others may never come back, and the table holds the addresses that the program
/// compares.
#[test]
fn a_table_of_functions_is_no_jump_table() {
    needs!("gcc");
    let text = "#include <setjmp.h>\n#include <stdio.h>
        static jmp_buf b; extern unsigned (*const table[4])(unsigned);
        __attribute__((noinline)) unsigned leave(unsigned n) { longjmp(b, n); }
        __attribute__((noinline)) unsigned step(unsigned n) { if (n > 90) return n; return table[n & 3](n + 1); }
        __attribute__((noinline)) unsigned other(unsigned n) { return n * 5; }
        unsigned (*const table[4])(unsigned) = {step, step, other, leave};
        __attribute__((noinline)) unsigned round(unsigned i) { if (setjmp(b)) return 1; unsigned r = step(i); return r + step(i + 3); }
        int main(void) { unsigned i, n = 0; for (i = 0; i < 8; i++) n += round(i); printf(\"%u %d\\n\", n, table[0] == step); return 0; }";
    for flags in ["-O2", "-Os -no-pie -fno-pie"] {
        let place = folder();
        built(place.path(), "old", text, flags);
        let run = counted(place.path(), &["./old"], "exe");
        assert!(run.len() > 20, "{flags}");
        let all = |how: &str| {
            let us = env!("CARGO_BIN_EXE_engraft");
            plain(
                place.path(),
                &[us, "count", "-q", how, "-o", "all.engraft", "--modules", "exe", "--", "./old"],
            );
            crate::count::blocks(place.path(), "all.engraft", "old")
        };
        assert_eq!(run, all("--all-blocks"), "{flags}");
        // 0 → 1 → 2 → other; 3 → leave; each a second time from three further on, if the first came back.
        let calls = |i: u64| [3, 2, 1, 1][usize::try_from(i % 4).expect("small")];
        let want: u64 = (0..8).map(|i| calls(i) + if i % 4 == 3 { 0 } else { calls(i + 3) }).sum();
        assert_eq!(entries(place.path(), "run.engraft", "step"), want, "{flags}");
        engraft(place.path(), "instrument old -o moved --null --poison -q").ok();
        assert_eq!(
            plain(place.path(), &["./moved"]).stdout,
            plain(place.path(), &["./old"]).stdout,
            "{flags}"
        );
    }
}

/// A handler leaves what it interrupted: by longjmp, out of a function that its caller trusts to come back;
/// by ending its thread; by having the thread go on elsewhere; and by going on behind the instruction that
/// failed, and coming back. The program counts by itself.
#[test]
fn what_handlers_of_signals_leave_is_counted_exactly() {
    needs!("gcc");
    let text = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <ucontext.h>
        static __thread sigjmp_buf b; static int how; unsigned in, fault, behind, out;
        static void away(void) { siglongjmp(b, 1); }
        static void handle(int s, siginfo_t *i, void *c) {
          greg_t *g = ((ucontext_t *)c)->uc_mcontext.gregs;
          switch (how) {
          case 0: siglongjmp(b, s);
          case 1: g[REG_RIP] += 2; return;
          case 2: g[REG_RIP] = (greg_t)away; g[REG_RSP] = ((g[REG_RSP] - 256) & -16) - 8; return;
          default: pthread_exit(0); } }
        __attribute__((noinline)) unsigned work(unsigned n) {
          unsigned r = n, i; in++;
          for (i = 0; i < n; i++) { if (i == 3) { fault++; asm volatile(\"ud2\"); behind++; } r += i * r; }
          out++; return r; }
        __attribute__((noinline)) unsigned call(unsigned n) { return work(n) + work(n + 1) * 3; }
        static void *thread(void *p) { if (!sigsetjmp(b, 1)) call(p ? 6 : 2); return p; }
        int main(void) {
          struct sigaction a = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER}; int i; pthread_t t;
          sigaction(SIGILL, &a, 0);
          for (how = 0; how < 4; how++) for (i = 0; i < 10; i++) {
            pthread_create(&t, 0, thread, (void *)(long)(i & 1)); pthread_join(t, 0); }
          printf(\"%u %u %u %u\\n\", in, fault, behind, out); return 0; }";
    for flags in ["-O1", "-O2 -no-pie -fno-pie", "-O0", "-Os -static"] {
        let place = folder();
        built(place.path(), "old", text, &format!("{flags} -pthread"));
        let of_edges = counted(place.path(), &["./old"], "exe");
        let us = env!("CARGO_BIN_EXE_engraft");
        plain(
            place.path(),
            &[us, "count", "-q", "--all-blocks", "--modules", "exe", "-o", "all.engraft", "--", "./old"],
        );
        let all = crate::count::blocks(place.path(), "all.engraft", "old");
        let differ: Vec<_> = all.iter().filter(|(at, n)| of_edges.get(at) != Some(n)).collect();
        // What the C library of a static program does for its threads is not the same each time.
        let is_own =
            |at: u64| flags != "-Os -static" || own(place.path(), "old").iter().any(|r| r.contains(&at));
        assert!(differ.iter().all(|(at, _)| !is_own(**at)), "{flags}: {differ:x?}");
        let said = plain(place.path(), &["./old"]).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "65 25 10 50\n", "{flags}");
        assert_eq!(entries(place.path(), "run.engraft", "work"), 65, "{flags}");
    }
}

/// Where the functions of the program's own source are.
fn own(folder: &Path, name: &str) -> Vec<std::ops::Range<u64>> {
    let said = plain(folder, &["nm", "-S", name]).stdout;
    let text = String::from_utf8_lossy(&said).into_owned();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, len, _, name] = words[..] else { return None };
        let is_one = ["away", "handle", "work", "call", "thread", "main"].contains(&name);
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        is_one.then(|| Some(number(at)?..number(at)? + number(len)?))?
    };
    text.lines().filter_map(row).collect()
}

/// A part of what `checks/random.sh` does.
#[test]
fn random_programs_count_as_they_say() {
    needs!("gcc", "g++", "python3");
    let place = folder();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../checks/random.py");
    let us = env!("CARGO_BIN_EXE_engraft");
    let folder = place.path().join("random").display().to_string();
    let mut command = Command::new("python3");
    command.args([script, us, &folder, "16", "7"]).env("SHRINK", "0").env("XDG_CACHE_HOME", place.path());
    let ran = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("16 programs of seed 7, 0 differ"), "{said}");
}

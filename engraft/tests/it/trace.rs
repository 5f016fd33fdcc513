//! `engraft trace`: runs recorded whole, held against `count`, against what programs say themselves, and
//! against their source.

mod ends;
mod named;
mod signals;
mod threads;
mod windows;

use crate::count::{blocks, plain};
use crate::run::{built, compile, engraft, folder, must};
use crate::{needs, needs_mounts};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// Runs `command` under `trace -q`; fails unless it prints and ends as it does by itself.
#[track_caller]
fn traced(folder: &Path, command: &[&str], modules: &str) {
    let want = plain(folder, command);
    let mut words = vec![US, "trace", "-q", "--no-cache", "-o", "run.trace", "--modules", modules, "--"];
    words.extend(command);
    let got = plain(folder, &words);
    let said = |out: &std::process::Output| {
        use std::os::unix::process::ExitStatusExt as _;
        let status =
            out.status.code().unwrap_or_else(|| 128 + out.status.signal().expect("one or the other"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&out.stdout), text(&out.stderr), status)
    };
    assert_eq!(said(&got), said(&want), "{command:?}");
}

/// The symbols of the trace, as text: entries with `!` if from outside, exits with their cause if it is not a
/// return.
#[track_caller]
fn symbols(folder: &Path) -> String {
    engraft(folder, "convert run.trace -q -o run.trc").ok();
    let bytes = std::fs::read(folder.join("run.trc")).expect("it was written");
    let symbol = |word: &[u8]| {
        let code = u32::from_le_bytes(word.try_into().expect("four bytes"));
        match (code >> 30, code & 0x3fff_ffff) {
            (0, block) => block.to_string(),
            (1, func) => format!("F{func}"),
            _ => "E".to_owned(),
        }
    };
    bytes.chunks_exact(4).map(symbol).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_trace_comes_to_what_is_counted() {
    needs!("gcc", "g++");
    for (source, flags, args) in [
        ("words-1.c", "-O2", &[][..]),
        ("branches.c", "-O1 -fno-inline", &[]),
        ("callbacks.c", "-O1", &[]),
        ("computed.c", "-O2", &[]),
        ("short.c", "-O2 -no-pie -fno-pie", &[]),
        ("throws.cc", "-O2 -x c++ -lstdc++", &[]),
        ("forks.c", "-O2 -pthread -DN=200", &[]),
        ("threads.c", "-O1 -pthread", &["1"]),
    ] {
        let place = folder();
        compile(&place.path().join("old"), source, &format!("-w {flags}"));
        let mut command = vec!["./old"];
        command.extend(args);
        traced(place.path(), &command, "exe");
        let traced = blocks(place.path(), "run.trace", "old");
        let counted = crate::count::counted(place.path(), &command, "exe");
        // Both ways: no block is missing, none is invented.
        let ran = |all: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
            all.iter().filter(|(_, n)| **n > 0).map(|(at, n)| (*at, *n)).collect()
        };
        assert!(counted.values().sum::<u64>() > 5, "{source}");
        assert_eq!(ran(&traced), ran(&counted), "{source}");
        // However it is kept.
        for store in ["packed", "zstd"] {
            engraft(place.path(), &format!("convert run.trace -q --store {store} -o {store}.trace")).ok();
            assert_eq!(blocks(place.path(), &format!("{store}.trace"), "old"), traced, "{source}");
        }
    }
}

/// The counts of each thread, which make those of the run.
#[test]
fn threads_of_a_trace_are_counted_apart() {
    needs!("gcc");
    let place = folder();
    let text = "#include <pthread.h>
        static volatile long out; static pthread_barrier_t all;
        __attribute__((noinline)) static void step(long n) { out = n; }
        static void *work(void *v) { pthread_barrier_wait(&all); for (long i = 0; i < (long)v; i++) step(i); return 0; }
        int main(void) { pthread_t p[2]; pthread_barrier_init(&all, 0, 3);
          for (long i = 0; i < 2; i++) pthread_create(&p[i], 0, work, (void *)(30 + i));
          pthread_barrier_wait(&all); step(7); for (long i = 0; i < 2; i++) pthread_join(p[i], 0); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-pthread", "-o", "a", "a.c"]).current_dir(place.path()));
    traced(place.path(), &["./a"], "exe");
    engraft(place.path(), "convert run.trace -q --store packed -o packed.trace").ok();
    let at = engraft(place.path(), "query packed.trace 'step: 0' --first --context=0 --json");
    let at = at.json()["context"][0]["at"].as_u64().expect("it is known");
    for file in ["run", "packed"] {
        let of = |thread: &str| blocks(place.path(), &format!("{file}.trace {thread}"), "a");
        let parts = [1, 2, 3].map(|n| of(&format!("--thread {n}")));
        // Whichever of the two comes first.
        let mut counts = parts.each_ref().map(|part| part[&at]);
        counts.sort_unstable();
        assert_eq!(counts, [1, 30, 31], "{file}");
        for (at, n) in of("") {
            assert_eq!(parts.iter().map(|part| part[&at]).sum::<u64>(), n, "{file} {at:x}");
        }
        // Numbered from 0 there, in any order.
        let names =
            |n: u32| engraft(place.path(), &format!("query {file}.trace --at 3..50 --thread {n}")).ok();
        let in_packed =
            |n: u32| engraft(place.path(), &format!("query packed.trace --at 3..50 --thread {n}")).ok();
        assert!([1, 2].into_iter().all(|n| names(n) == in_packed(n) && names(n).lines().count() == 47));
        // Each of them by itself, or in one thread.
        let ask = |args: &str| engraft(place.path(), &format!("query {file}.trace 'step: 0' {args}"));
        let steps = [0, 1, 2].map(|n| ask(&format!("--count --thread {n}")).ok());
        let all: String = (0..3).zip(&steps).map(|(n, count)| format!("{n} {count}")).collect();
        assert_eq!(ask("--count --per-thread").ok(), all, "{file}");
        assert_eq!(ask("--count --per-thread --thread 2 --scheme 1").ok(), format!("2 {}", steps[2]));
        assert_eq!(ask("--all --thread 1").ok().lines().count().to_string(), steps[1].trim());
        let ran = ask("--thread 7");
        let says = format!("{file}.trace has no thread 7\nhint: the threads are 0, 1, 2; the nearest is 2");
        assert!(ran.code == Some(2) && ran.stderr.contains(&says), "{}", ran.stderr);
        // All modules of it, too. Of edges and calls it says nothing.
        for output in ["x.csv", "x.engraft"] {
            let said = engraft(place.path(), &format!("convert {file}.trace -o {output} --json")).json();
            let input = &said["inputs"][0];
            assert!(input["format"] == "trace" && input["n_blocks"].as_u64() > Some(0), "{said}");
            assert!(input["n_edges"].is_null() && input["n_calls"].is_null(), "{said}");
        }
        let rows = engraft(place.path(), &format!("convert {file}.trace -q -o - --to csv --thread 2")).ok();
        let of_step = rows.lines().find(|row| row.contains(",step,")).expect("it is there");
        assert!(of_step.ends_with(&format!(",{}", parts[1][&at])), "{of_step}");
        let ran = engraft(place.path(), &format!("convert {file}.trace -o x.csv --thread 4"));
        let says = format!("{file}.trace has 3 threads, no 4\nhint: they are counted from 1 here");
        assert!(ran.code == Some(2) && ran.stderr.contains(&says), "{}", ran.stderr);
        let ran = engraft(place.path(), &format!("convert {file}.trace -o one.trace --thread 2"));
        assert!(ran.code == Some(2) && ran.stderr.contains("one.trace keeps all threads"), "{}", ran.stderr);
        assert!(!place.path().join("one.trace").exists());
    }
    let said = engraft(place.path(), "show --counts packed.trace loops").ok();
    assert!(said.contains("work"), "{said}");
    let said = engraft(place.path(), "show --counts packed.trace").ok();
    assert!(said.contains("work") && said.contains("recording: packed.trace"), "{said}");
}

/// The whole stream of a small program, as its source says.
#[test]
fn a_trace_is_what_ran_in_order() {
    needs!("gcc", "nm");
    let place = folder();
    let text = "static int half(int n) { return n & 1 ? n * 3 : n / 2; }
        int last(int n) { return n + 1; }
        int twice(int n) { return half(n) + half(n + 1); }
        int go(int n) { int s = 0; for (int i = 0; i < n; i++) s += twice(i); return last(s); }
        volatile int out;
        __asm__(\".globl here\\n.type here, @function\\nhere: call 1f\\n1: pop %rax\\nret\\n.size here, . - here\\n\");
        int here(void);
        int main(int n, char **v) { out = go(n); if (n > 9) here(); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    let flags = ["-O2", "-fno-inline", "-fno-ipa-cp", "-fno-ipa-icf", "-w", "-o", "a", "a.c"];
    must(Command::new("gcc").args(flags).current_dir(place.path()));
    traced(place.path(), &["./a", "x"], "exe");
    let number = |name: &str| {
        let found = engraft(place.path(), &format!("query run.trace '{name}: 0' --json")).json();
        found["function_id"].as_u64().unwrap_or_else(|| panic!("{name}: {found}"))
    };
    let [half, last, twice, go, main] = ["half", "last", "twice", "go", "main"].map(number);
    // `last` is jumped to: `go` is left before it is entered.
    let all = symbols(place.path());
    let entered = |f: u64| all.matches(&format!("F{f} ")).count();
    assert_eq!([half, twice, go, last, main].map(entered), [4, 2, 1, 1, 1], "{all}");
    let from = all.find(&format!("F{main} 0")).expect("main ran");
    assert!(all[from..].contains(&format!("F{go} 0 ")), "{all}");
    assert!(all.contains(&format!(" E F{last} 0 E")), "{all}");
    // Between the two halves of a turn, `twice` executes no other block.
    let turn = format!("F{twice} 0 F{half} ");
    assert_eq!(all.matches(&turn).count(), 2, "{all}");
    for path in [format!("#{twice}: 0"), "twice: 0".to_owned()] {
        let said = engraft(place.path(), &format!("query run.trace '{path}' --count")).ok();
        assert_eq!(said, "2\n");
    }
    // Packed, it answers the same.
    engraft(place.path(), "convert run.trace -q --store packed -o packed.trace").ok();
    for query in [
        "'twice: 0' --all",
        "'go: 0' --first",
        "--stats",
        "'half: 0' --nth 3",
        "'half: 0' --per-caller",
        "'go: 2 {twice: 0} 2' --count",
        "--hottest 2",
        "--at 0..9",
        "--at 3..17",
        "'_fini: 0' --context=4",
        "'half: 0' --nth 3 --context=4",
        "'twice: 0' --context=1000",
        "'last: 0' --first --context",
    ] {
        let [a, b] =
            ["run", "packed"].map(|t| engraft(place.path(), &format!("query {t}.trace {query}")).ok());
        let without_size =
            |text: &str| text.lines().filter(|l| !l.contains("of the file")).collect::<String>();
        assert_eq!(without_size(&a), without_size(&b), "{query}");
    }
    for file in ["run", "packed"] {
        // Nothing leads to where it is entered.
        let said = engraft(place.path(), &format!("query {file}.trace 'twice: 0 0'"));
        assert!(said.code == Some(2), "{}", said.stdout);
        assert!(
            said.stderr.contains("block 0 of twice cannot follow block 0\nhint: block 0 leads "),
            "{}",
            said.stderr
        );
        let said = engraft(place.path(), &format!("query {file}.trace 'main: 0 {{here: 7}} 1'"));
        let says =
            "here was not recorded: reads its own address\nhint: functions that cannot be moved are not";
        assert!(said.code == Some(2) && said.stderr.contains(says), "{}", said.stderr);
    }
    let said = engraft(place.path(), "query run.trace --at 0..100000");
    assert!(said.code == Some(2) && said.stderr.contains(" symbols: say 0.."), "{}", said.stderr);
    let said = engraft(place.path(), "query --diff run.trace packed.trace");
    assert!(said.code == Some(2) && said.stderr.contains("engraft trace pack run.trace"), "{}", said.stderr);
}

/// What is recorded is there when the program is killed, and when its disk is full; and the program when
/// `trace` is killed.
#[test]
fn sudden_ends_lose_nothing() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <signal.h>\n#include <unistd.h>
        __attribute__((noinline)) void step(volatile long *n) { ++*n; }
        int main(int argc, char **v) { volatile long n = 0; long i, m = atol(v[1]);
          for (i = 0; i < m; i++) step(&n);
          if (argc > 2) { puts(\"there\"); fflush(stdout); getchar(); for (i = 0; i < m; i++) step(&n); puts(\"done\"); return 7; }
          raise(SIGKILL); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-w", "-o", "a", "a.c"]).current_dir(place.path()));
    // More than all chunks hold.
    traced(place.path(), &["./a", "3000000"], "exe");
    let said = engraft(place.path(), "query run.trace 'step: 0' --count").ok();
    assert_eq!(said, "3000000\n");

    let full = engraft(place.path(), "trace -o /dev/full -- ./a 1000 stay");
    assert_eq!((full.code, full.stdout.as_str()), (Some(2), ""), "{}", full.stderr);
    assert!(full.stderr.contains("cannot write /dev/full: No space left"), "{}", full.stderr);
    let stdout = engraft(place.path(), "trace -o - -- ./a 1000 stay");
    assert_eq!((stdout.code, stdout.stdout.as_str()), (Some(2), ""), "{}", stdout.stderr);
    assert!(stdout.stderr.contains("standard output is the program's"), "{}", stdout.stderr);
    assert!(!place.path().join("-").exists());

    let mut trace = Command::new(US);
    trace.args(["trace", "-q", "--no-cache", "-o", "cut.trace", "--", "./a", "3000000", "stay"]);
    let trace = trace.current_dir(place.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut trace = trace.spawn().expect("it starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(trace.stdout.take().expect("a pipe")));
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("there"));
    // Until what is full is written; a chunk that is not full may be lost.
    let is_written = || {
        let cut = engraft(place.path(), "query cut.trace 'step: 0' --count");
        cut.stdout.trim().parse().is_ok_and(|n: u64| n >= 2_500_000)
    };
    assert!((0..1000).any(|_| is_written()));
    // Else waiting for it would close it.
    let stdin = trace.stdin.take();
    trace.kill().expect("it is ours");
    trace.wait().expect("it was there");
    // The program goes on to its end.
    drop(stdin);
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("done"));
    let cut = engraft(place.path(), "query cut.trace 'step: 0' --count");
    let n: u64 = cut.stdout.trim().parse().unwrap_or_else(|_| panic!("{}", cut.stderr));
    assert!((2_000_000..6_000_000).contains(&n), "{n}");
    assert!(cut.stderr.contains("cut off"), "{}", cut.stderr);
}

/// Nothing is run, and nothing of what was there is lost.
#[test]
fn a_trace_that_finds_no_room_is_not_begun() {
    needs!("gcc", "unshare", "mount");
    needs_mounts!();
    let place = folder();
    compile(&place.path().join("old"), "words-1.c", "-O1");
    std::fs::create_dir(place.path().join("full")).expect("it is ours");
    let script =
        "mount -t tmpfs -o size=8k none full || exit 99; printf 'ENGRAFT\\0\\1Tbefore\\n' > full/old.trace
        head -c 9000 /dev/zero > full/rest
        for to in old new; do $US trace -q --no-cache -o full/$to.trace -- ./old; echo $?; done
        ls full; cat full/old.trace";
    let mut unshare = Command::new("unshare");
    unshare.args(["-rm", "sh", "-c", script]).env("US", US).current_dir(place.path());
    let ran = unshare.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "2\n2\nold.trace\nrest\nENGRAFT\0\u{1}Tbefore\n",
        "{said}"
    );
    assert_eq!(said.matches("No space left").count(), 3, "{said}");
}

#[test]
fn what_a_traced_program_becomes_is_said() {
    let place = folder();
    let ran = engraft(place.path(), "trace --no-cache -o run.trace -- sh -c 'exec sleep 0.5'");
    assert!(
        ran.code == Some(0)
            && ran.stderr.contains("it became another program, /")
            && ran.stderr.contains("which was not recorded"),
        "{}",
        ran.stderr
    );
    let ran = engraft(place.path(), "trace --no-cache -o run.trace -- sleep 0.1");
    assert!(ran.code == Some(0) && !ran.stderr.contains("became"), "{}", ran.stderr);
}

/// Functions of one way, which no event tells of, run as often as the program counts: between two stacks, and
/// while signals come.
#[test]
fn quiet_functions_run_as_often_as_they_do_on_stacks_and_among_signals() {
    needs!("gcc");
    let place = folder();
    let stacks = "#include <ucontext.h>\n#include <stdio.h>\n
        static ucontext_t m, a; static long na, nb; static char s[65536];
        __attribute__((noinline)) void first(void) { na++; __asm__ volatile(\"\"); }
        __attribute__((noinline)) void second(void) { nb++; __asm__ volatile(\"\"); }
        void go(void) { for (;;) { first(); swapcontext(&a, &m); } }
        int main(void) { getcontext(&a); a.uc_stack.ss_sp = s; a.uc_stack.ss_size = sizeof s; a.uc_link = &m; makecontext(&a, go, 0);
          for (int i = 0; i < 50; i++) { second(); swapcontext(&m, &a); } printf(\"%ld %ld\\n\", na, nb); return 0; }";
    let signals = "#include <signal.h>\n#include <stdio.h>\n#include <sys/time.h>\n
        static volatile long na; static long nb;
        __attribute__((noinline)) void first(int s) { na++; }
        __attribute__((noinline)) void second(void) { nb++; __asm__ volatile(\"\"); }
        int main(void) { struct itimerval it = {{0, 1000}, {0, 1000}}; signal(SIGALRM, first); setitimer(ITIMER_REAL, &it, 0);
          volatile unsigned long x = 1; for (long i = 0; i < 50000000; i++) x = x * 3 + i;
          it.it_value.tv_usec = it.it_interval.tv_usec = 0; setitimer(ITIMER_REAL, &it, 0);
          second(); printf(\"%ld %ld\\n\", na, nb); return 0; }";
    for (name, text) in [("stacks", stacks), ("signals", signals)] {
        std::fs::write(place.path().join("a.c"), text).expect("written");
        must(Command::new("gcc").args(["-O2", "-w", "-o", "a", "a.c"]).current_dir(place.path()));
        let ran = Command::new(US)
            .args(["trace", "-q", "-o", name, "--", "./a"])
            .current_dir(place.path())
            .output();
        let said = String::from_utf8(ran.expect("it runs").stdout).expect("text");
        let count =
            |f: &str| engraft(place.path(), &format!("query {name} '{f}: 0' --count")).ok().trim().to_owned();
        assert_eq!(format!("{} {}\n", count("first"), count("second")), said, "{name}");
    }
}

/// What is kept: between functions, of some functions, while it is switched on, the last of it; the program
/// is the same.
#[test]
fn a_part_of_a_run_is_kept() {
    needs!("gcc");
    let place = folder();
    // Between the signals there is more than all chunks hold, so that what was taken before is known to be
    // taken.
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <signal.h>\n#include <unistd.h>
        static volatile unsigned long x = 1, n;
        #define PHASE(f) __attribute__((noinline)) int f(int n) { static volatile int s; return s += n & 3 ? n : 2; }
        PHASE(early) PHASE(work) PHASE(late)
        #define MARK(f) __attribute__((noinline)) void f(void) { static volatile int s; s++; }
        MARK(begin) MARK(end)
        __attribute__((noinline)) void space(void) { for (int i = 0; i < 1000000; i++) {
          x = x * 6364136223846793005ul + 1442695040888963407ul; if (x >> 40 & 1) n++; if (x >> 50 & 1) n += 2; } }
        __attribute__((noinline)) int phase(int (*f)(int)) { int s = 0; for (int i = 0; i < 1000; i++) s += f(i); return s; }
        int main(int c, char **v) { int s = phase(early); if (c > 1) kill(getppid(), SIGUSR1); else begin(); space();
          s += phase(work); if (c > 1) kill(getppid(), SIGUSR1); else end(); space(); s += phase(late);
          printf(\"%d\\n\", s); fflush(stdout); abort(); }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-w", "-o", "a", "a.c"]).current_dir(place.path()));
    let plain = plain(place.path(), &["./a"]);
    let recorded = |options: &str, args: &[&str]| {
        let mut trace = Command::new(US);
        trace.args(["trace", "-q", "--no-cache", "-o", "part.trace"]).args(options.split_whitespace());
        let ran = trace.args(["--", "./a"]).args(args).current_dir(place.path()).output().expect("it runs");
        assert_eq!((ran.status.code(), &ran.stdout), (Some(134), &plain.stdout), "{options}");
        let count = |f: &str| {
            let all = engraft(place.path(), &format!("query part.trace '{f}: 0' --count"));
            all.stdout.trim().parse().unwrap_or(0u64)
        };
        let stats = engraft(place.path(), "query part.trace --stats --json").json();
        assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{options}: {stats}");
        let len = std::fs::metadata(place.path().join("part.trace")).expect("it is there").len();
        (["early", "begin", "work", "end", "late"].map(count), len)
    };
    let (all, len) = recorded("", &[]);
    assert_eq!(all, [1000, 1, 1000, 1, 1000]);
    for (options, args, want) in [
        ("--from begin --to end", &[][..], [0, 1, 1000, 0, 0]),
        ("--from begin", &[], [0, 1, 1000, 1, 1000]),
        ("--to begin", &[], [1000, 0, 0, 0, 0]),
        ("--functions main --functions w*k --functions late", &[], [0, 0, 1000, 0, 1000]),
        ("--switch USR1 --paused", &["x"], [0, 0, 1000, 0, 0]),
        ("--switch SIGUSR1", &["x"], [1000, 0, 0, 0, 1000]),
        ("--after 3600", &[], [0; 5]),
        ("--for 3600", &[], all),
        ("--pack", &[], all),
        ("--last 100K", &[], [0, 0, 0, 0, 1000]),
    ] {
        let (got, n_bytes) = recorded(options, args);
        assert_eq!(got, want, "{options}");
        assert!(!options.starts_with("--last") || n_bytes < 110_000 && len > 500_000, "{n_bytes} of {len}");
    }
    let nothing = engraft(place.path(), "trace --no-cache --after 3600 -o part.trace -- ./a");
    assert!(nothing.stderr.contains("warning: nothing was kept: "), "{}", nothing.stderr);
    for (options, why) in [
        ("--from nosuch", "called nosuch"),
        ("--functions nosuch", "called nosuch"),
        ("--last 3x", "64M"),
        ("--switch KILL", "USR1"),
        ("--paused", "--switch"),
        ("--for x", "1.5"),
    ] {
        let refused = engraft(place.path(), &format!("trace {options} -o none.trace -- ./a"));
        assert!(refused.code == Some(2) && refused.stderr.contains(why), "{options}: {}", refused.stderr);
        assert!(refused.stdout.is_empty() && !place.path().join("none.trace").exists(), "{options}");
    }
}

/// What is packed says what it said before, whoever packs it; what cannot be read stays as it is.
#[test]
fn a_trace_is_packed_in_its_place() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("words"), "words-1.c", "-O1");
    traced(place.path(), &["./words"], "exe");
    let (recorded, events) = (symbols(place.path()), std::fs::read(place.path().join("run.trace")));
    let events = events.expect("recorded");
    for (how, options) in [("packed", ""), ("archive", "--archive ")] {
        std::fs::write(place.path().join("run.trace"), &events).expect("written");
        engraft(place.path(), &format!("convert run.trace -q --store {how} -o converted.trace")).ok();
        engraft(place.path(), &format!("trace pack {options}-q run.trace -o beside.trace")).ok();
        let said = engraft(place.path(), &format!("trace pack {options}run.trace --json"));
        let said = said.json();
        let read = |name: &str| std::fs::read(place.path().join(name)).expect("written");
        assert!(read("run.trace") == read("beside.trace") && read("run.trace") == read("converted.trace"));
        assert_eq!(said["n_bytes"].as_u64(), Some(read("run.trace").len() as u64), "{said}");
        assert_eq!(symbols(place.path()), recorded, "{how}");
    }
    // What goes on, or was cut off, would lose what comes.
    let cut = &events[..events.len() - 1];
    for (what, why) in [(cut, "-o"), (b"no trace".as_slice(), "run.trace")] {
        std::fs::write(place.path().join("run.trace"), what).expect("written");
        let refused = engraft(place.path(), "trace pack run.trace");
        assert!(refused.code == Some(2) && refused.stderr.contains(why), "{}", refused.stderr);
        assert_eq!(std::fs::read(place.path().join("run.trace")).expect("it is there"), what);
    }
    std::fs::write(place.path().join("run.trace"), cut).expect("written");
    engraft(place.path(), "trace pack -q run.trace -o beside.trace").ok();
}

/// What is asked by line needs the binary that was recorded: if it is gone, or another one by now, that is
/// said.
#[test]
fn a_binary_that_is_gone_is_named_where_lines_are_asked_for() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("words"), "words-1.c", "-O1 -g");
    traced(place.path(), &["./words"], "exe");
    let asked = |says: &str| {
        for paths in ["'main: words-1.c:1..999'", "'main: 0; main: words-1.c:1..999'"] {
            let ran = engraft(place.path(), &format!("query run.trace {paths} --count"));
            let hint = "\nhint: put the file that was recorded where it was";
            let is_said = ran.stderr.contains(&format!("/words{says}{hint}"));
            assert!(ran.code == Some(2) && is_said, "{paths}: {}", ran.stderr);
        }
    };
    std::fs::remove_file(place.path().join("words")).expect("it is there");
    asked(", which was recorded, is gone");
    compile(&place.path().join("words"), "words-1.c", "-O2 -g");
    asked(" is not the file any more that was recorded");
}

/// One thread opens and closes what is kept, another one runs meanwhile: all of that is kept, and nothing
/// that ran long before or behind.
#[test]
fn what_another_thread_runs_inside_is_kept() {
    needs!("gcc");
    let place = folder();
    // `space` is more than all chunks hold: when it is over, the streams were looked at.
    let text = "#include <pthread.h>
        static volatile unsigned long x = 1, n; static pthread_barrier_t all;
        #define PHASE(f) __attribute__((noinline)) int f(int n) { static volatile int s; return s += n & 3 ? n : 2; }
        PHASE(early) PHASE(work) PHASE(late)
        #define MARK(f) __attribute__((noinline)) void f(void) { static volatile int s; s++; }
        MARK(begin) MARK(end)
        __attribute__((noinline)) void space(void) { for (int i = 0; i < 1000000; i++) {
          x = x * 6364136223846793005ul + 1442695040888963407ul; if (x >> 40 & 1) n++; if (x >> 50 & 1) n += 2; } }
        static void turn(void) { pthread_barrier_wait(&all); }
        static void *other(void *v) { for (int i = 0; i < 1000; i++) early(i); turn(); turn();
          for (int i = 0; i < 1000; i++) work(i); turn(); turn(); for (int i = 0; i < 1000; i++) late(i); return 0; }
        int main(void) { pthread_t t; pthread_barrier_init(&all, 0, 2); pthread_create(&t, 0, other, 0);
          turn(); space(); begin(); turn(); turn(); end(); space(); turn(); pthread_join(t, 0); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-w", "-pthread", "-o", "a", "a.c"]).current_dir(place.path()));
    for (options, want) in [
        ("--from begin --to end", [0, 1000, 0]),
        ("--from begin", [0, 1000, 1000]),
        ("--to end", [1000, 1000, 0]),
    ] {
        let said = engraft(place.path(), &format!("trace -q --no-cache {options} -o part.trace -- ./a"));
        assert_eq!(said.ok(), "", "{options}");
        let count = |f: &str| {
            let all = engraft(place.path(), &format!("query part.trace '{f}: 0' --count"));
            all.stdout.trim().parse().unwrap_or(0u64)
        };
        assert_eq!(["early", "work", "late"].map(count), want, "{options}");
        let stats = engraft(place.path(), "query part.trace --stats --json").json();
        assert_eq!(stats["n_lost"], 0, "{options}: {stats}");
    }
}

/// The second time, events stand where the first run seldom came; both tell the same.
#[test]
fn a_recording_learns_from_the_one_before() {
    needs!("gcc");
    let place = folder();
    // The way that looks unlikely is the one that is taken.
    let text = "#include <stdio.h>
        __attribute__((noinline)) int step(int n, int *p) { int s = 0;
          if (!p) s += n * 3; if (n < 0) s -= n / 3; if (p == (int *)16) s ^= n; return s; }
        int main(void) { volatile int s = 0; for (int i = 1; i < 100000; i++) s += step(-i, i & 31 ? 0 : (int *)&s); printf(\"%d\\n\", s); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(
        Command::new("gcc")
            .args(["-O1", "-w", "-fno-if-conversion", "-o", "a", "a.c"])
            .current_dir(place.path()),
    );
    let recorded = |name: &str| {
        let mut trace = Command::new(US);
        trace.args(["trace", "--json", "-o", name, "--", "./a"]).env("XDG_CACHE_HOME", place.path());
        let ran = trace.current_dir(place.path()).output().expect("it runs");
        let report: serde_json::Value = serde_json::from_slice(&ran.stderr).expect("what it says");
        let said = String::from_utf8(ran.stdout).expect("text");
        (said, report["n_bytes_of_events"].as_u64().expect("a number"))
    };
    let [first, second, third] = ["first.trace", "second.trace", "third.trace"].map(recorded);
    assert!(
        first.0 == second.0 && second.1 * 10 < first.1 * 9 && third == second,
        "{first:?} {second:?} {third:?}"
    );
    let [first, second] = ["first.trace", "second.trace"].map(|name| blocks(place.path(), name, "a"));
    assert!(first == second && first.len() > 8, "{first:?} {second:?}");
}

/// A part of what `checks/random.sh` does.
#[test]
fn random_programs_are_recorded_as_they_say() {
    needs!("gcc", "g++", "python3");
    let place = folder();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../checks/random.py");
    let folder = place.path().join("random").display().to_string();
    let mut command = Command::new("python3");
    command.args([script, US, &folder, "16", "9"]).env("SHRINK", "0").env("VERB", "trace");
    let ran = command.env("XDG_CACHE_HOME", place.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("16 programs of seed 9, 0 differ"), "{said}");
}

/// What only a recording knows: its program, its times.
#[test]
fn a_recording_is_asked_by_line_by_time_and_for_its_code() {
    needs!("gcc", "objdump");
    let place = folder();
    let text = "#include <time.h>
static volatile int out;
__attribute__((noinline)) static int pick(int n) {
  if (n & 1)
    out = n;
  else
    out = n + 7;
  return out;
}
__attribute__((noinline)) static void late(int n) { out = n; }
int main(int n, char **v) {
  for (int i = 0; i < 9; i++) pick(i);
  struct timespec t = {0, 300000000};
  nanosleep(&t, 0);
  for (int i = 0; i < 5; i++) late(i);
  return 0;
}
";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(
        Command::new("gcc")
            .args(["-g", "-O1", "-fno-if-conversion", "-w", "-o", "a", "a.c"])
            .current_dir(place.path()),
    );
    traced(place.path(), &["./a"], "exe");
    engraft(place.path(), "convert run.trace -q --store packed -o packed.trace").ok();
    for file in ["run", "packed"] {
        let ask = |args: &str| engraft(place.path(), &format!("query {file}.trace {args}"));
        assert_eq!(ask("'pick: a.c:5' --count").ok(), "4\n", "{file}");
        assert_eq!(ask("'pick: a.c:7' --count").ok(), "5\n", "{file}");
        assert_eq!(ask("'pick: a.c:4 a.c:5..7' --count").ok(), "9\n", "{file}");
        // One way or the other, not both.
        let ran = ask("'pick: a.c:5 a.c:7' --count");
        assert!(ran.code == Some(2) && ran.stderr.contains("cannot follow"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: block "), "{}", ran.stderr);
        // All of it is in the window that is all of it, nothing behind it.
        assert_eq!(ask("'pick: 0' --between 0..1000 --count").ok(), "9\n", "{file}");
        let json = ask("'pick: 0; late: 0' --between 0..1000 --json").json();
        assert_eq!((&json["paths"][0]["count"], &json["paths"][1]["count"]), (&9.into(), &5.into()));
        let (whole, parts): (u64, u64) = (
            14,
            [(0.0, 0.05), (0.05, 0.2), (0.2, 0.25), (0.25, 1000.0)]
                .iter()
                .flat_map(|(from, to)| ["pick", "late"].map(|f| (from, to, f)))
                .map(|(from, to, f)| {
                    let got = ask(&format!("'{f}: 0' --between {from}..{to} --count")).ok();
                    let all = ask(&format!("'{f}: 0' --between {from}..{to} --all")).stdout;
                    assert_eq!(all.lines().count().to_string(), got.trim(), "{f} {from}..{to}");
                    got.trim().parse::<u64>().expect("a number")
                })
                .sum(),
        );
        assert_eq!(parts, whole, "{file}");
        let ran = ask("'pick: 0' --between 2000..2001");
        assert!(ran.code == Some(2) && ran.stderr.contains("ends before that"), "{}", ran.stderr);
    }
    let at = engraft(place.path(), "query packed.trace 'late: 0' --first").ok();
    let at = at.trim();
    // Every instruction of the block, as objdump has them.
    let shown =
        engraft(place.path(), "query packed.trace 'late: 0' --first --context=0 --code disassembly").ok();
    assert!(
        shown.starts_with(&format!("> {at} B late 0 0x"))
            && shown.contains(" a.c:10\n") | shown.contains("/a.c:10\n"),
        "{shown}"
    );
    let listed = must(
        Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", "--disassemble=late", "a"])
            .current_dir(place.path()),
    );
    let addresses = |text: &str, end: char| -> Vec<String> {
        let word = |line: &str| {
            line.split_whitespace()
                .next()
                .map(|w| w.trim_start_matches("0x").trim_end_matches(end).to_owned())
        };
        text.lines().filter(|l| l.starts_with("      0x") || l.contains(":\t")).filter_map(word).collect()
    };
    assert_eq!(addresses(&shown, ' '), addresses(&listed, ':'), "{shown}\n{listed}");
    let shown = engraft(place.path(), "query packed.trace 'late: 0' --first --context=0 --code source").ok();
    assert!(
        shown.contains("a.c:10  __attribute__((noinline)) static void late(int n) { out = n; }"),
        "{shown}"
    );
    // Of another file, there is no code to show.
    must(Command::new("gcc").args(["-g", "-O0", "-w", "-o", "a", "a.c"]).current_dir(place.path()));
    for args in ["--at 0..4", "'late: 0' --context"] {
        for (file, code) in [("run", "source"), ("run", "disassembly"), ("packed", "disassembly")] {
            let ask = |how: &str| engraft(place.path(), &format!("query {file}.trace {args} {how}"));
            let ran = ask(&format!("--code {code}"));
            assert_eq!((ran.code, ran.stdout), (Some(0), ask("").ok()), "{file} {args}");
            let says = "/a is not the file any more that was recorded\nhint: put the file";
            assert!(ran.stderr.starts_with("engraft: warning: code is left out: /"), "{}", ran.stderr);
            assert!(ran.stderr.contains(says) && ran.stderr.lines().count() == 2, "{}", ran.stderr);
        }
    }
}

//! How recordings end: while processes go on, with a full disk, with one of the two killed.

use super::{US, built};
use crate::count::{blocks, plain};
use crate::run::{compile, engraft, folder};
use crate::{needs, needs_mounts};
use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// How often `function` was entered in `trace`; `None` if that cannot be said.
fn entered(folder: &Path, trace: &str, function: &str) -> Option<u64> {
    engraft(folder, &format!("query {trace} '{function}: 0' --count")).stdout.trim().parse().ok()
}

/// A child that goes on, busy, until there is nothing more to read: `trace` does not wait for it, says so,
/// and leaves it alone.
#[test]
fn what_outlives_a_program_is_said_and_goes_on() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>\n#include <unistd.h>\n#include <fcntl.h>\n#include <errno.h>
        __attribute__((noinline)) void step(volatile long *n) { ++*n; }
        __attribute__((noinline)) void late(volatile long *n) { ++*n; }
        int main(void) { volatile long n = 0; int p[2]; char c = 0; pipe(p);
          if (!fork()) { alarm(300); fcntl(0, F_SETFL, O_NONBLOCK);
            for (long i = 0; i < 500000; i++) step(&n);
            write(p[1], \"x\", 1);
            while (read(0, &c, 1)) for (long i = 0; i < 1000; i++) late(&n);
            puts(\"child\"); return 0; }
          read(p[0], &c, 1); puts(\"parent\"); return 5; }";
    built(place.path(), "a", text, "-O1");
    let mut trace = Command::new(US);
    trace.args(["trace", "--no-cache", "-o", "run.trace", "--", "./a"]).current_dir(place.path());
    let trace = trace.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut trace = trace.spawn().expect("it starts");
    // Else waiting would close it.
    let stdin = trace.stdin.take();
    assert_eq!(trace.wait().expect("it ends").code(), Some(5));
    drop(stdin);
    let (mut stdout, mut stderr) = (String::new(), String::new());
    trace.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
    trace.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    assert_eq!(stdout, "parent\nchild\n", "{stderr}");
    let left = "1 process that it started still runs: what it does from now on is not recorded";
    assert!(stderr.contains(left) && stderr.matches("warning").count() == 1, "{stderr}");
    // All that came before the program ended is there; of the last one, the event behind `write` tells, which
    // may have come later.
    let n = entered(place.path(), "run.trace", "step").expect("it can be read");
    assert!((499_999..=500_000).contains(&n), "{n}");
    let stats = engraft(place.path(), "query run.trace --stats --json").json();
    assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{stats}");
}

/// What is in one stream then, means nothing: that is said. A few less have one each.
#[test]
fn too_many_threads_at_once_are_said() {
    needs!("gcc");
    let place = folder();
    let text = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>
        static pthread_barrier_t all; static long sum;
        __attribute__((noinline)) void step(long n) { __atomic_add_fetch(&sum, n, 5); }
        static void *work(void *v) { step(1); pthread_barrier_wait(&all); step(2); return 0; }
        int main(int c, char **v) { long n = atol(v[1]); pthread_t *p = calloc(n, sizeof *p); pthread_attr_t a;
          pthread_attr_init(&a); pthread_attr_setstacksize(&a, 65536); pthread_barrier_init(&all, 0, n);
          for (long i = 0; i < n; i++) if (pthread_create(&p[i], &a, work, 0)) abort();
          for (long i = 0; i < n; i++) pthread_join(p[i], 0); printf(\"%ld\\n\", sum); return 3; }";
    built(place.path(), "a", text, "-O1 -pthread");
    for (n, is_said) in [(1023, false), (1040, true)] {
        let command = ["./a", &n.to_string()];
        let want = plain(place.path(), &command);
        let ours = [US, "trace", "--no-cache", "-o", "run.trace", "--modules", "exe", "--"];
        let got = plain(place.path(), &[&ours[..], &command].concat());
        assert_eq!((got.status, &got.stdout), (want.status, &want.stdout));
        let said = String::from_utf8_lossy(&got.stderr).into_owned();
        assert_eq!(said.contains("some share a stream"), is_said, "{n}: {said}");
        assert!(is_said || !said.contains("warning"), "{said}");
        let steps = entered(place.path(), "run.trace", "step");
        assert!(is_said || steps == Some(2 * n), "{n}: {steps:?}");
    }
}

/// A module that is loaded late has its symbols in what was written when `trace` is killed; the program goes
/// on to its end.
#[test]
fn late_modules_are_known_when_trace_is_killed() {
    needs!("gcc");
    let place = folder();
    let plugin = "__attribute__((noinline)) static void step(volatile long *n) { ++*n; }
        void work(long m) { volatile long n = 0; for (long i = 0; i < m; i++) step(&n); }";
    built(place.path(), "plugin.so", plugin, "-O1 -shared -fPIC");
    let text = "#include <dlfcn.h>\n#include <stdio.h>
        int main(void) { void (*work)(long) = (void (*)(long))dlsym(dlopen(\"./plugin.so\", RTLD_NOW), \"work\");
          work(1000000); puts(\"there\"); fflush(stdout); getchar(); work(1000000); puts(\"done\"); return 7; }";
    built(place.path(), "a", text, "-O1");
    let mut trace = Command::new(US);
    trace.args(["trace", "-q", "--no-cache", "-o", "cut.trace", "--", "./a"]).current_dir(place.path());
    let mut trace = trace.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = std::io::BufReader::new(trace.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("there"));
    // Chunks that were full are being written.
    let is_written = |_| entered(place.path(), "cut.trace", "step").is_some_and(|n| n >= 500_000);
    assert!((0..1000).any(is_written));
    let stdin = trace.stdin.take();
    trace.kill().expect("it is ours");
    trace.wait().expect("it was there");
    drop(stdin);
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("done"));
    assert!(entered(place.path(), "cut.trace", "step").is_some_and(|n| n <= 2_000_000));
    let stats = engraft(place.path(), "query cut.trace --stats --json");
    assert!(stats.stdout.contains("\"n_astray\":0,\"n_lost\":0}"), "{}", stats.stdout);
    assert!(stats.stderr.contains("cut off"), "{}", stats.stderr);
}

/// A process that ends itself comes to where it does so, and so does one that becomes another program,
/// although nothing comes after it.
#[test]
fn the_last_call_of_a_process_is_come_to() {
    needs!("gcc");
    let place = folder();
    let text = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>
        static volatile int sink, x, left = 4;
        __attribute__((noinline)) void step(int n) { sink += n; if (sink & 1) sink += 3; else sink += 5; }
        #define LAST(name, what) __attribute__((noinline)) void name(int n) { if (n & 1) x += 4; else x += 5; if (n & 2) x += 3; \\
          if (left > 0) { if (--left == 0) { step(n); step(n + 1); what; sink = 100; } } step(n); }
        LAST(killer, kill(getpid(), SIGKILL)) LAST(raiser, raise(SIGTERM)) LAST(caller, execl(\"/bin/true\", \"true\", (char *)0))
        int main(int c, char **v) { void (*all[])(int) = {killer, raiser, caller};
          for (int i = 0; i < 10; i++) all[atoi(v[1])](i); return 0; }";
    built(place.path(), "a", text, "-O1");
    let jumps = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>
        static volatile int x;
        __attribute__((noinline)) void step(int n) { x += n; if (x & 1) x += 3; else x += 5; }
        __attribute__((noinline)) int last(int s) { x += 2; if (s & 1) x += 7; return kill(getppid() ? getpid() : 0, s); }
        int main(int c, char **v) { step(c); return last(atoi(v[1])); }";
    built(place.path(), "b", jumps, "-O2");
    // A counter a block knows without any event.
    let counts = |verb: &str, program: &str, n: usize, function: &str| {
        let recorded = format!("{verb} -q --no-cache --modules exe -o run -- ./{program} {n}");
        engraft(place.path(), &recorded);
        engraft(place.path(), &format!("convert run -q -o run.csv --binary {program}")).ok();
        let text = std::fs::read_to_string(place.path().join("run.csv")).expect("it was written");
        let of = |line: &&str| [function, "step"].iter().any(|name| line.contains(&format!(",{name},")));
        text.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
    };
    for (n, function) in ["killer", "raiser", "caller"].iter().enumerate() {
        let want = counts("count --all-blocks", "a", n, function);
        assert!(want.len() > 8 && want.iter().any(|line| line.ends_with(",1")), "{want:?}");
        assert_eq!(counts("trace", "a", n, function), want);
    }
    // Who ends it is said.
    let ran = engraft(place.path(), "trace --json --no-cache --modules exe -o run -- ./b 15");
    assert!(ran.code == Some(128 + 15) && ran.stderr.contains("\"ended_by_signal\":15,"), "{}", ran.stderr);
    // It may jump there.
    for n in [9, 15] {
        let want = counts("count --all-blocks", "b", n, "last");
        assert!(
            want.len() > 4 && want.iter().any(|line| line.contains(",last,") && line.ends_with(",1")),
            "{want:?}"
        );
        assert_eq!(counts("trace", "b", n, "last"), want, "{n}");
    }
}

/// A recording that is cut off before its first event tells of nothing: not that nothing ran.
#[test]
fn what_is_cut_off_before_its_first_event_is_an_error() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "a", "int main(void) { return 0; }", "-O1");
    engraft(place.path(), "trace -q --no-cache --modules exe -o whole.trace -- ./a").ok();
    let whole = std::fs::read(place.path().join("whole.trace")).expect("it was written");
    let mut codes = Vec::new();
    for n in (20..whole.len()).step_by(whole.len() / 60) {
        std::fs::write(place.path().join("cut.trace"), &whole[..n]).expect("written");
        let ran = engraft(place.path(), "query cut.trace 'main: 0' --count");
        assert!(ran.stderr.contains("cut off"), "{n}: {}", ran.stderr);
        assert_eq!(ran.stdout, if ran.code == Some(0) { "1\n" } else { "" }, "{n}: {}", ran.stderr);
        codes.push(ran.code);
    }
    assert!(codes.contains(&Some(2)) && codes.contains(&Some(0)), "{codes:?}");
}

/// The program does not notice; what was written can be read, and is a part of what ran. It is said once.
#[test]
fn a_disk_that_fills_in_the_middle_costs_the_rest_alone() {
    needs!("gcc", "unshare", "mount");
    needs_mounts!();
    let place = folder();
    // What is taken at random cannot be compressed much.
    let text = "#include <stdio.h>
        static volatile unsigned long x = 1, n;
        __attribute__((noinline)) void odd(void) { n++; }
        __attribute__((noinline)) void even(void) { n += 2; }
        int main(void) { for (int i = 0; i < 3000000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul; if (x >> 40 & 1) odd(); else even(); }
          printf(\"%lu\\n\", n); return 6; }";
    built(place.path(), "a", text, "-O1");
    let want = plain(place.path(), &["./a"]);
    let script = "mount -t tmpfs -o size=512k none full || exit 99
        $US trace --no-cache -o full/run.trace --modules exe -- ./a; echo $?; cp full/run.trace .";
    std::fs::create_dir(place.path().join("full")).expect("it is ours");
    let mut unshare = Command::new("unshare");
    unshare.args(["-rm", "sh", "-c", script]).env("US", US).current_dir(place.path());
    let ran = unshare.output().expect("it runs");
    let [stdout, stderr] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(stdout, format!("{}6\n", String::from_utf8_lossy(&want.stdout)), "{stderr}");
    assert_eq!(stderr.matches("cannot write full/run.trace: No space left").count(), 1, "{stderr}");
    assert!(stderr.contains("what was recorded before can be read"), "{stderr}");
    assert_eq!(["warning", "No space"].map(|word| stderr.matches(word).count()), [1, 1], "{stderr}");
    let traced = blocks(place.path(), "run.trace", "a");
    let counted = crate::count::counted(place.path(), &["./a"], "exe");
    let is_part = traced.iter().all(|(at, n)| n <= counted.get(at).unwrap_or(&0));
    let sum = |counts: &std::collections::BTreeMap<u64, u64>| counts.values().sum::<u64>();
    assert!(is_part && sum(&traced) > 100_000 && sum(&traced) < sum(&counted), "{traced:x?} {counted:x?}");
    let stats = engraft(place.path(), "query run.trace --stats --json");
    assert!(stats.stderr.contains("cut off"), "{}", stats.stderr);
}

/// What idle threads did long ago does not take the room of what the one did that fails, however little room
/// there is.
#[test]
fn the_last_of_a_run_is_what_led_to_its_end() {
    needs!("gcc");
    let place = folder();
    // An idle thread has less than a chunk; what `space` does is more than all chunks hold.
    let text = "#include <pthread.h>\n#include <stdlib.h>\n#include <stdio.h>
        static pthread_barrier_t all; static volatile unsigned long n;
        __attribute__((noinline)) void space(int m) { volatile unsigned long x = m; for (int i = 0; i < m; i++) {
          x = x * 6364136223846793005ul + 1442695040888963407ul; if (x >> 40 & 1) n++; if (x >> 50 & 1) n += 2; } }
        __attribute__((noinline)) void late(void) { n++; }
        static void *idle(void *v) { space(80000); pthread_barrier_wait(&all); pthread_barrier_wait(&all); return 0; }
        int main(void) { pthread_t t; pthread_barrier_init(&all, 0, 9);
          for (int i = 0; i < 8; i++) pthread_create(&t, 0, idle, 0);
          pthread_barrier_wait(&all); space(1000000); for (int i = 0; i < 9000; i++) late(); puts(\"fails\"); fflush(stdout); abort(); }";
    built(place.path(), "a", text, "-O1 -pthread");
    for (size, is_enough) in [("100K", true), ("1K", false)] {
        let ran = engraft(place.path(), &format!("trace --no-cache --last {size} -o run.trace -- ./a"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(134), "fails\n"), "{}", ran.stderr);
        assert_eq!(!ran.stderr.contains("more than --last allows"), is_enough, "{}", ran.stderr);
        let n = entered(place.path(), "run.trace", "late").expect("it can be read");
        // Who called the first, the next tells.
        assert!(if is_enough { n >= 8999 } else { n > 1000 }, "{size}: {n}");
        let len = std::fs::metadata(place.path().join("run.trace")).expect("it is there").len();
        assert!(!is_enough || len < 120_000, "{len}");
    }
}

/// Why functions were left that did not return, in each process and thread.
#[test]
fn streams_end_as_their_processes_did() {
    needs!("gcc", "sleep");
    let place = folder();
    // The pipe is closed when the child has become another program, which runs for longer than a machine
    // under load takes to say so.
    let text = "#include <pthread.h>\n#include <unistd.h>\n#include <stdlib.h>\n#include <fcntl.h>\n#include <sys/wait.h>
        __attribute__((noinline)) void in_thread(void) { pthread_exit(0); }
        __attribute__((noinline)) void in_child(void) { _exit(3); }
        __attribute__((noinline)) void in_other(void) { exit(4); }
        __attribute__((noinline)) void in_exec(char *n) { execlp(\"sleep\", \"sleep\", n, (char *)0); }
        static void *work(void *v) { in_thread(); return 0; }
        int main(int n, char **v) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0);
          if (!fork()) in_child(); wait(0); if (n == 2) in_exec(\"1\");
          int p[2]; char c; pipe(p); fcntl(p[1], F_SETFD, FD_CLOEXEC);
          if (n == 3) { if (!fork()) { close(1); close(2); in_exec(\"10\"); } close(p[1]); read(p[0], &c, 1); }
          in_other(); }";
    built(place.path(), "a", text, "-O1 -pthread");
    for (args, code, last, cause) in
        [("", 4, "in_other", "process end"), ("1", 0, "in_exec", "exec"), ("1 2", 4, "in_exec", "exec")]
    {
        let ran =
            engraft(place.path(), &format!("trace -q --no-cache --modules exe -o run.trace -- ./a {args}"));
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        // That a thread has ended is seen by who ends the process by `exit`.
        let in_thread = (code == 4).then_some(("in_thread", "thread end"));
        for (function, cause) in in_thread.into_iter().chain([("in_child", "process end"), (last, cause)]) {
            let query = format!("query run.trace '{function}: 0' --first --context=60");
            let said = engraft(place.path(), &query).ok();
            assert!(said.contains(&format!(" E({cause}) {function}\n")), "{function}: {said}");
        }
    }
}

/// What a thread did up to the very instruction that ended it: nothing tells of it but the kernel, wherever
/// in the program that was.
#[test]
fn what_led_to_a_fault_is_there() {
    needs!("gcc");
    let place = folder();
    let text = "#include <pthread.h>\n#include <signal.h>\n#include <string.h>\n#include <sys/wait.h>\n#include <unistd.h>
        int far(int *p, int n);
        __attribute__((noinline)) int last(int *p) { return *p; }
        __attribute__((noinline)) int down(int n) { if (n == 0) return last((int *)(long)n) + 1; return down(n - 1) + 2; }
        volatile int b; __attribute__((noinline)) int after(int n) { b = n; return n + 1; }
        __attribute__((noinline)) int len(const char *s) { int n = strlen(s); return after(n) + 3; }
        static void *work(void *v) { return (void *)(long)(down((long)v) + 1); }
        int main(int c, char **v) { pthread_t t; int status;
          switch (v[1][0]) {
            case 'h': return down(5);
            case 'c': return len(v[2]);
            case 'k': b = getpid(); if (b) kill(b, SIGKILL); return after(1);
            case 'l': return far((int *)v[2], 2);
            case 't': pthread_create(&t, 0, work, (void *)3); pthread_join(t, 0); return 1;
            case 'f': if (!fork()) return down(4);
              wait(&status); return WTERMSIG(status); }
          return 0; }";
    let far = "__attribute__((noinline)) static int deep(int *p) { return *p; }
        int far(int *p, int n) { return n ? far(p, n - 1) + 1 : deep(p) + 1; }";
    built(place.path(), "libfar.so", far, "-O1 -fno-optimize-sibling-calls -shared -fPIC");
    built(place.path(), "a", text, "-O1 -fno-optimize-sibling-calls -pthread ./libfar.so");
    for (how, status, entered_so_often) in [
        ("h", 128 + 11, &[("down", 6), ("last", 1)][..]),
        ("c", 128 + 11, &[("len", 1), ("strlen@plt", 1), ("after", 0)]),
        ("k", 128 + 9, &[("getpid@plt", 1), ("kill@plt", 1), ("after", 0)]),
        ("l", 128 + 11, &[("far", 3), ("deep", 1)]),
        ("t", 128 + 11, &[("work", 1), ("down", 4), ("last", 1)]),
        ("f", 11, &[("down", 5), ("last", 1)]),
    ] {
        // Also where a trace has taught where events are best, and of the last alone.
        for more in ["", "--no-cache", "--last 64K"] {
            let got = engraft(place.path(), &format!("trace {more} -o run.trace -- ./a {how}"));
            assert_eq!(got.code, Some(status), "{how} {more}: {}", got.stderr);
            for (function, n) in entered_so_often {
                assert_eq!(
                    entered(place.path(), "run.trace", function),
                    Some(*n),
                    "{how} {more}: {function}"
                );
            }
        }
        let stats = engraft(place.path(), "query run.trace --stats --json").json();
        assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{how}: {stats}");
    }
}

/// Where nobody tells at which instruction a process was ended, nothing is made up that it did not do:
/// neither in a loop that it never left, nor in a child that may be told of by nobody.
#[test]
fn nothing_is_made_up_behind_a_signal() {
    needs!("gcc");
    let place = folder();
    let text = "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>
        volatile int a = 1, b;
        __attribute__((noinline)) void after(void) { b++; if (b == 9) a = 1; b++; }
        __attribute__((noinline)) void wild(int *p) { *p = 1; after(); }
        int main(int c, char **v) { int n = atoi(v[2]), status, p[2]; char x; pid_t child; pipe(p);
          if (v[1][0] == 'm') { puts(\"on\"); fflush(stdout); for (;;) if (a == 12345) break; after(); return 0; }
          if (!(child = fork())) {
            if (n == 0) wild(0);
            write(p[1], \"x\", 1); for (;;) if (a == 12345) break; after(); _exit(0); }
          if (n) { read(p[0], &x, 1); usleep(20000); kill(child, n); }
          wait(&status); return WTERMSIG(status); }";
    built(place.path(), "a", text, "-O1");
    let held = |what: &str| assert_eq!(entered(place.path(), "run.trace", "after"), Some(0), "{what}");
    for signal in [15, 9, 10, 0] {
        for more in ["", "--no-cache"] {
            let got = engraft(place.path(), &format!("trace {more} -o run.trace -- ./a child {signal}"));
            assert_eq!(got.code, Some(if signal == 0 { 11 } else { signal }), "{}", got.stderr);
            held(&format!("child {signal} {more}"));
        }
    }
    for signal in ["TERM", "KILL", "USR1"] {
        let mut trace = Command::new(US);
        trace.args(["trace", "-q", "--no-cache", "-o", "run.trace", "--", "./a", "main", "0"]);
        let mut trace = trace.current_dir(place.path()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut on = [0; 3];
        trace.stdout.take().expect("a pipe").read_exact(&mut on).expect("it runs");
        let children = format!("/proc/{0}/task/{0}/children", trace.id());
        let child = std::fs::read_to_string(children).expect("it has one");
        let killed = Command::new("kill").args([&format!("-{signal}"), child.trim()]).status();
        assert!(killed.expect("kill runs").success());
        trace.wait().expect("it ends");
        held(signal);
    }
}

/// As `count` says it: the signal, and where, of the source; as text and as JSON. What led there is in the
/// trace.
#[test]
fn where_a_traced_program_died_is_said() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    let source = include_str!("../fixtures/dies.c");
    let line = source.lines().position(|text| text.contains("*nowhere = 1")).expect("it is there") + 1;
    compile(&to.join("dies"), "dies.c", "-O1 -g -w");
    let ran = engraft(to, "trace --no-cache --json -o run.trace ./dies");
    assert_eq!(ran.code, Some(128 + 11), "{}", ran.stderr);
    let last = ran.stderr.lines().next_back().unwrap_or_default();
    let said: serde_json::Value = serde_json::from_str(last).expect("it is JSON");
    let died = &said["died"];
    assert_eq!((&died["signal"], &died["name"]), (&11.into(), &"SIGSEGV".into()), "{said}");
    let text = engraft(to, "trace --no-cache -o run.trace ./dies").stderr;
    if died["at"].is_null() {
        // The kernel does not tell.
        assert!(text.contains("it died of SIGSEGV\n"), "{text}");
        return;
    }
    assert_eq!((&died["function"], &died["line"]), (&"inner".into(), &line.into()), "{said}");
    let offset = died["offset"].as_u64().expect("it is known");
    let want = format!("it died of SIGSEGV at inner+{offset:#x} (dies.c:{line}) in dies\n");
    assert!(text.contains(&want), "{want}: {text}");
}

/// Of a program that does little, nothing is in the file when `trace` is killed: it is said why, and how all
/// is kept; and so it is.
#[test]
fn what_to_do_is_said_where_a_killed_recorder_has_written_nothing() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    let text = "#include <stdio.h>\n#include <unistd.h>
        __attribute__((noinline)) int leaf(int n) { return n * 3; }
        int main(void) { volatile int s = leaf(1); alarm(60); puts(\"ready\"); fflush(stdout); for (;;) pause(); }";
    built(to, "a", text, "-O1");
    for (signal, is_kept) in [("KILL", false), ("TERM", true)] {
        let mut trace = Command::new(US);
        trace.args(["trace", "-q", "--no-cache", "-o", "run.trace", "./a"]).current_dir(to);
        let mut trace = trace.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut said = std::io::BufReader::new(trace.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says so");
        assert_eq!(line, "ready\n");
        let children = format!("/proc/{0}/task/{0}/children", trace.id());
        let child = std::fs::read_to_string(children).expect("it runs");
        let kill = |signal: &str, to: &str| Command::new("kill").args([signal, to.trim()]).status();
        kill(&format!("-{signal}"), &trace.id().to_string()).expect("kill runs");
        trace.wait().expect("it ends");
        if is_kept {
            assert_eq!(entered(to, "run.trace", "leaf"), Some(1));
            continue;
        }
        kill("-KILL", &child).expect("kill runs");
        for verb in ["show run.trace", "query run.trace 'leaf: 0'"] {
            let ran = engraft(to, verb);
            assert_eq!(ran.code, Some(2), "{verb}: {}", ran.stderr);
            for words in ["cut off", "`engraft trace` was killed before", "SIGTERM"] {
                assert!(ran.stderr.contains(words), "{verb}: {}", ran.stderr);
            }
        }
    }
}

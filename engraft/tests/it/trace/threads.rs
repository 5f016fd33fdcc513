//! Each thread has a stream of its own; what nobody records any more costs nothing.

use super::{US, built};
use crate::needs;
use crate::run::{engraft, folder};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Forty threads, one after the other, each with as many rounds as its number says: all have the memory of
/// the same one, or of the first.
#[test]
fn threads_that_follow_each_other_are_told_apart() {
    needs!("gcc");
    let place = folder();
    let text = "#include <pthread.h>\n#include <stdint.h>
        __attribute__((noinline)) long once(long n) { static volatile long sum; return sum += n; }
        static void *work(void *v) { long n = 0; for (long i = 0; i < (intptr_t)v; i++) n += once(i);
          if (n % 3 == 0) pthread_exit(0); return (void *)n; }
        int main(void) { for (intptr_t i = 1; i <= 40; i++) { pthread_t t; pthread_create(&t, 0, work, (void *)i);
          pthread_join(t, 0); } return 0; }";
    built(place.path(), "a", text, "-O1 -pthread");
    for option in ["", "--from=once", "--last=1M"] {
        let line = format!("trace -q --no-cache --modules exe {option} -o run.trace -- ./a");
        assert_eq!(engraft(place.path(), &line).code, Some(0));
        let said = engraft(place.path(), "query run.trace 'once: 0' --per-thread --json").json();
        let mut counts: Vec<u64> =
            said["threads"].as_array().expect("a list").iter().filter_map(|c| c["count"].as_u64()).collect();
        counts.retain(|n| *n > 0);
        assert_eq!(counts, (1..=40).collect::<Vec<u64>>(), "{option}");
        let stats = engraft(place.path(), "query run.trace --stats --json").json();
        assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{stats}");
    }
}

/// A program whose recorder is killed does not ask the kernel at each of 30 million events: its own time in
/// the kernel stays what it was (with two calls an event, such a program took 39 seconds).
#[test]
fn a_program_goes_on_at_speed_when_its_recorder_is_killed() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>\n#include <sys/resource.h>
        __attribute__((noinline)) void step(volatile long *n) { if (*n & 1) ++*n; else *n += 3; }
        int main(void) { volatile long n = 0; struct rusage r; char c;
          step(&n); puts(\"runs\"); fflush(stdout); read(0, &c, 1);
          for (long i = 0; i < 30000000; i++) step(&n);
          getrusage(RUSAGE_SELF, &r);
          printf(\"%ld\\n\", r.ru_stime.tv_sec * 1000 + r.ru_stime.tv_usec / 1000); return 0; }";
    built(place.path(), "a", text, "-O1 -pthread");
    let mut trace = Command::new(US);
    trace.args(["trace", "-q", "--no-cache", "--modules", "exe", "-o", "run.trace", "--", "./a"]);
    let trace = trace.current_dir(place.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut trace = trace.spawn().expect("it starts");
    let mut stdout = trace.stdout.take().expect("a pipe");
    let mut runs = [0; 5];
    stdout.read_exact(&mut runs).expect("it runs");
    assert_eq!(&runs, b"runs\n");
    trace.kill().expect("it is there");
    trace.wait().expect("it ends");
    // At the end of its input the program goes on.
    drop(trace.stdin.take());
    let mut said = String::new();
    stdout.read_to_string(&mut said).expect("text");
    let in_kernel = Duration::from_millis(said.trim().parse().expect("it ended well"));
    assert!(in_kernel < Duration::from_secs(2), "{in_kernel:?}");
}

//! Child processes: each counts in memory of its own, however it was made.

use crate::count::{counted, counts_what_it_says};
use crate::needs;
use crate::run::{built, folder};

#[test]
fn child_processes_are_counted() {
    needs!("gcc");
    for flags in ["-O1 -pthread", "-O1 -pthread -no-pie", "-O1 -pthread -static", "-O2 -pthread -DN=1000000"]
    {
        counts_what_it_says("forks", flags, "exe");
    }
}

/// Parent and child run at once, and call nothing before they count: increments of counters that both had
/// would be lost.
#[test]
fn children_of_other_calls_than_fork_count_apart() {
    needs!("gcc");
    let text = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n#include <sys/wait.h>
        static pid_t (*volatile make)(void) = fork;
        int main(void) {
          for (int i = 0; i < 6; i++) {
            pid_t pid = i & 1 ? make() : (pid_t)syscall(SYS_fork);
            for (volatile unsigned k = 0; k < 2000000; k++) if (k * 2654435761u & 1 << 20) __asm__ volatile(\"nop\");
            if (pid == 0) _exit(0);
            int status;
            if (waitpid(pid, &status, 0) != pid || status) return 1;
          }
          return 0; }";
    for flags in ["-O1", "-O1 -no-pie", "-O0 -fno-pic -no-pie -fno-plt", "-O2 -static", "-O2 -fno-plt"] {
        let place = folder();
        built(place.path(), "old", text, flags);
        let got = counted(place.path(), &["./old"], "exe");
        assert!(got.values().any(|n| *n == 12 * 2_000_000), "{flags}: {got:?}");
    }
}

/// Where it may not make a namespace, it forks in its own.
#[test]
fn children_in_a_namespace_of_their_own_are_counted() {
    needs!("gcc");
    counts_what_it_says("namespace", "-O1", "exe");
}

//! Where signal handlers stand in a trace.

use super::{symbols, traced};
use crate::count::blocks;
use crate::needs;
use crate::run::{built, engraft, folder};

/// A fault in a function that no event tells of, whose handler has two more signals wait for its return: both
/// handlers' frames are there before either begins.
const AT_ONCE: &str = "#include <signal.h>\n#include <stdio.h>\n#include <ucontext.h>\n#include <unistd.h>
    volatile int n; static volatile int room[4];
    void one(int s) { n++; }
    void two(int s) { n++; }
    void quiet(void) { n++; __asm__ volatile(\"\"); }
    void inner(void) { long nowhere = 0; __asm__ volatile(\"movq (%0),%0\" : \"+a\"(nowhere)); quiet(); room[1]++; }
    void outer(void) { inner(); quiet(); room[2]++; }
    void fault(int s, siginfo_t *i, ucontext_t *c) { c->uc_mcontext.gregs[16] += 3; kill(getpid(), SIGUSR1); kill(getpid(), SIGUSR2); }
    int main(void) {
      struct sigaction a = {.sa_sigaction = (void *)fault, .sa_flags = SA_SIGINFO}; sigfillset(&a.sa_mask); sigaction(SIGSEGV, &a, 0);
      signal(SIGUSR1, one); signal(SIGUSR2, two);
      for (volatile int i = 0; i < 3; i++) { CALLS }
      printf(\"%d\\n\", n); return 0; }";

#[test]
fn handlers_of_signals_that_come_at_once_stand_where_these_came() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    // Of several calls that nothing tells of, each may be the one.
    for (calls, n_each) in [("outer();", 1), ("outer(); outer();", 2)] {
        let text = AT_ONCE.replace("CALLS", calls);
        built(folder, "a", &text, "-O1 -fno-plt -fno-inline -fno-ipa-icf -fno-unroll-loops");
        traced(folder, &["./a"], "exe");
        let number = |name: &str| {
            let found = engraft(folder, &format!("query run.trace '{name}: 0' --json")).json();
            found["function_id"].as_u64().unwrap_or_else(|| panic!("{name}: {found}"))
        };
        let [one, two, quiet, inner, outer, fault] =
            ["one", "two", "quiet", "inner", "outer", "fault"].map(number);
        let all = symbols(folder);
        let signals = format!("F{fault} 0 E F{two} 0 E F{one} 0 E ");
        let first = format!("F{outer} 0 F{inner} 0 {}F{quiet} 0 E E F{quiet} 0 E E ", signals.repeat(n_each));
        let others = format!("F{outer} 0 F{inner} 0 F{quiet} 0 E E F{quiet} 0 E E ").repeat(n_each - 1);
        assert_eq!(all.matches(&(first + &others)).count(), 3, "{calls}: {all}");
    }
}

/// Faults in a function of libc that no event tells of, whose handler leaves it: nothing behind the call ran.
#[test]
fn what_is_left_in_a_function_of_libc_goes_no_further() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let text = "#include <setjmp.h>\n#include <signal.h>\n#include <string.h>
        static sigjmp_buf env; static volatile int n1, n2, n3, n4; char text[] = \"some text\";
        void leave(int s) { siglongjmp(env, 1); }
        __attribute__((noinline)) void work(const char *p, int n) { n1++; if (n & 1) n2++; n += strlen(p); if (n & 1) n3++; n4++; }
        int main(void) { struct sigaction a = {.sa_handler = leave, .sa_flags = SA_NODEFER}; sigaction(SIGSEGV, &a, 0);
          for (volatile int i = 0; i < 80; i++) if (!sigsetjmp(env, 1)) work(i % 4 == 3 ? 0 : text, i);
          return 0; }";
    for flags in ["-O0", "-O1", "-O2"] {
        built(folder, "a", text, &format!("{flags} -fno-plt -fno-builtin"));
        traced(folder, &["./a"], "exe");
        engraft(folder, "count -q --no-cache --all-blocks --modules exe -o all.engraft -- ./a").ok();
        assert_eq!(blocks(folder, "run.trace", "a"), blocks(folder, "all.engraft", "a"), "{flags}");
    }
}

/// A handler has its function go on elsewhere: that is not what the function calls next.
#[test]
fn where_a_handler_leads_to_is_called_by_nobody() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let text = "#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <ucontext.h>
        static sigjmp_buf env; volatile int n1, n2, n3; static int place;
        void away(void) { n1++; siglongjmp(env, 1); }
        void quiet(void) { n2++; __asm__ volatile(\"\"); }
        void other(void) { n3++; }
        void (*volatile pointer)(void) = other;
        void fault(int s, siginfo_t *i, ucontext_t *c) { if (n2) n1++; c->uc_mcontext.gregs[16] = (long)away;
          c->uc_mcontext.gregs[15] = ((c->uc_mcontext.gregs[15] - 256) & -16) - 8; if (n2) n1--; }
        void work(volatile int *p) { n1++; *p = 1; quiet(); n2++; if (n1) quiet(); pointer(); n3++; }
        int main(void) { struct sigaction a = {.sa_sigaction = (void *)fault, .sa_flags = SA_SIGINFO | SA_NODEFER}; sigaction(SIGSEGV, &a, 0);
          for (volatile int i = 0; i < 80; i++) if (!sigsetjmp(env, 1)) work(i % 4 == 3 ? 0 : &place);
          printf(\"%d %d %d\\n\", n1, n2, n3); return 0; }";
    for flags in ["-O0", "-O1", "-O2"] {
        built(folder, "a", text, &format!("{flags} -fno-plt -fno-inline -fno-ipa-icf"));
        traced(folder, &["./a"], "exe");
        engraft(folder, "count -q --no-cache --all-blocks --modules exe -o all.engraft -- ./a").ok();
        assert_eq!(blocks(folder, "run.trace", "a"), blocks(folder, "all.engraft", "a"), "{flags}");
    }
}

/// A program that has a signal sent to itself at each instruction: so also between any two of an event.
/// `tick` runs as often as its handler did.
const AT_EACH: &str = "#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>
    #define TRAP(HOW) __asm__ volatile(\"lea -128(%%rsp),%%rsp; pushfq; \" HOW \",(%%rsp); popfq; lea 128(%%rsp),%%rsp\" ::: \"memory\", \"cc\")
    volatile int n, sum;
    void step(int s) { n++; }
    void tick(void) { sum++; }
    void leaf(int k) { sum += k; }
    void framed(int k) { jmp_buf here; if (!setjmp(here)) leaf(k); else sum++; }
    int fib(int k) { if (k < 2) { framed(k); return k; } int a = fib(k - 1); return a + fib(k - 2); }
    int main(void) { signal(SIGTRAP, step);
      TRAP(\"orl $256\"); int r = fib(10); TRAP(\"andl $~256\");
      for (int i = 0, k = n; i < k; i++) tick();
      printf(\"%d\\n\", r); return 0; }";

#[test]
fn a_signal_between_any_two_instructions_of_an_event_loses_nothing() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    for flags in ["-O0", "-O1", "-O2"] {
        built(folder, "a", AT_EACH, &format!("{flags} -fno-inline -fno-optimize-sibling-calls"));
        traced(folder, &["./a"], "exe");
        let count = |name: &str| {
            let out = engraft(folder, &format!("query run.trace '{name}: 0' --count")).ok();
            out.trim().parse::<u64>().unwrap_or_else(|err| panic!("{name}: {out}: {err}"))
        };
        // The calls of fib(10), and those of its leaves.
        assert_eq!(["fib", "framed", "leaf"].map(count), [177, 89, 89], "{flags}");
        let n_signals = count("tick");
        assert!(n_signals > 177 * 10, "{flags}: {n_signals}");
        assert_eq!(count("step"), n_signals, "{flags}");
        let stats = engraft(folder, "query run.trace --stats --json").json();
        assert_eq!((&stats["n_astray"], &stats["n_lost"]), (&0.into(), &0.into()), "{flags}: {stats}");
    }
}

//! What is kept of a part of a run: between functions, exactly; of the last of it, what it can tell.

use super::built;
use crate::count::plain;
use crate::needs;
use crate::run::{engraft, folder};
use std::path::Path;

/// How often `path` occurs.
fn count(folder: &Path, trace: &str, path: &str) -> u64 {
    let said = engraft(folder, &format!("query {trace} '{path}' --count")).ok();
    said.trim().parse().unwrap_or_else(|_| panic!("{path}: {said}"))
}

/// What a trace says, a line a symbol, without numbers.
fn symbols(folder: &Path, trace: &str) -> Vec<String> {
    let all = engraft(folder, &format!("query {trace} --stats --json")).json()["n_symbols"]
        .as_u64()
        .expect("a number");
    let text = engraft(folder, &format!("query {trace} --at 0..{all}")).ok();
    text.lines().map(|line| line.split_once(' ').expect("a number, and what it is").1.to_owned()).collect()
}

/// Each window begins with the entry of the one function, and ends before that of the other; what is open
/// stands around it.
#[test]
fn windows_begin_and_end_at_entries() {
    needs!("gcc");
    let place = folder();
    let text = "#define NI __attribute__((noinline, noipa))
        NI int leaf(int x) { return x + 1; }
        NI int start(int x) { return x > 2 ? leaf(x) + x : leaf(x); }
        NI int mid(int x) { int s = 0; for (int i = 0; i < x; i++) s += leaf(i); return s; }
        NI int stop(int x) { return mid(x) * 2; }
        NI int around(int x) { int r = 0; if (x & 1) r = leaf(r); return r + mid(2); }
        NI int outer(int n) { int s = 0; for (int i = 0; i < n; i++) {
          s += around(i); s += start(i); s += mid(i); if (i == 3) s += 7; s += stop(i); s += around(i); } return s; }
        int main(void) { return outer(5) == 0; }";
    built(place.path(), "a", text, "-O1");
    engraft(place.path(), "trace -q --no-cache --modules exe -o all.trace -- ./a").ok();
    engraft(place.path(), "trace -q --no-cache --modules exe --from start --to stop -o part.trace -- ./a")
        .ok();
    let (all, part) = (symbols(place.path(), "all.trace"), symbols(place.path(), "part.trace"));
    let is = |line: &String, symbol: &str| *line == symbol;
    let mut rest = all.as_slice();
    let mut want: Vec<String> = Vec::new();
    while let Some(from) = rest.iter().position(|line| is(line, "F start")) {
        let to = rest.iter().position(|line| is(line, "F stop")).expect("it follows");
        want.extend(["_start", "main", "outer"].map(|name| format!("F(outside) {name}")));
        want.extend_from_slice(&rest[from..to]);
        want.extend(["outer", "main", "_start"].map(|name| format!("E(recording end) {name}")));
        rest = &rest[to + 1..];
    }
    assert_eq!(want.iter().filter(|line| is(line, "F start")).count(), 5);
    assert_eq!(part, want);
    let stats = engraft(place.path(), "query part.trace --stats --json").json();
    assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{stats}");
}

/// `main` has no event of its own in what is kept: who called is known from the code.
#[test]
fn the_last_of_a_run_is_told_although_its_callers_say_nothing() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>\n#include <stdlib.h>
        #define NI __attribute__((noinline, noipa))
        NI int leaf(int x) { return x + 1; }
        NI int step(int i) { int s = 0; for (int k = 0; k < i % 7; k++) s += leaf(k); return s; }
        NI int twice(int i) { return step(i) + 2; }
        NI long run(long n) { long s = 0; for (long i = 0; i < n; i++) s += twice(i); return s; }
        int main(int c, char **v) { printf(\"%ld\\n\", run(atol(v[1]))); return 0; }";
    built(place.path(), "a", text, "-O1");
    let n = 300_000;
    let want = plain(place.path(), &["./a", &n.to_string()]);
    let line = format!("trace -q --no-cache --modules exe --last 4K -o last.trace -- ./a {n}");
    let got = engraft(place.path(), &line);
    assert_eq!(got.ok().as_bytes(), want.stdout);
    let stats = engraft(place.path(), "query last.trace --stats --json").json();
    assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{stats}");
    let [steps, leaves] = ["step: 0", "leaf: 0"].map(|path| count(place.path(), "last.trace", path));
    assert!(steps > 1000 && steps < n, "{steps}");
    // Three rounds for each step, but for those at the edges.
    assert!(leaves.abs_diff(3 * steps) < 20, "{steps} {leaves}");
    for path in ["step: 0", "twice: 0"] {
        let callers = engraft(place.path(), &format!("query last.trace '{path}' --per-caller --json")).json();
        let named = callers["callers"].as_array().expect("a list").len();
        assert!(named <= 2, "{callers}");
    }
    let twice = count(place.path(), "last.trace", "twice: 0");
    // Its loop, wherever that stands.
    let run = (1..4).map(|n| count(place.path(), "last.trace", &format!("run: {n}"))).max();
    let run = run.expect("it has blocks");
    assert!(twice.abs_diff(steps) <= 1 && run.abs_diff(steps) <= 1, "{steps} {twice} {run}");
}

/// What is called by a jump returns to who called the one that jumped: who only calls it, and never ran, is
/// not made up. Packed at once.
#[test]
fn nothing_runs_in_the_last_of_a_run_that_did_not() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdlib.h>
        #define NI __attribute__((noinline, noipa))
        static volatile int g;
        NI int leaf(int x) { return x + 1; }
        NI int work(int x) { int s = 0; for (int i = 0; i < x % 5 + 1; i++) s += leaf(i); return s; }
        NI int jumps(int x) { if (x & 1) return work(x); g++; return work(x + 1); }
        NI int twice(int x) { work(x); return jumps(x); }
        NI int deep(int x) { return twice(x) + 1; }
        NI int never(int x) { int s = work(x); s += jumps(s); return s; }
        NI int other(int x) { return work(x) + never(x); }
        NI long run(long n) { long s = 0; for (long i = 0; i < n; i++) { s += deep((int)i); if (i % 5 == 0) s += leaf(1); } return s; }
        int main(int c, char **v) { long n = atol(v[1]); if (n == 77) other(3); return run(n) == 0; }";
    built(place.path(), "a", text, "-O2");
    // Wherever what is kept begins.
    for n in 60_000..60_012 {
        let line = format!("trace -q --no-cache --modules exe --last 4K --pack -o last.trace -- ./a {n}");
        engraft(place.path(), &line).ok();
        let ran = |path: &str| {
            let said = engraft(place.path(), &format!("query last.trace '{path}' --count --scheme 2")).ok();
            said.trim().parse::<u64>().expect("a number")
        };
        let [deep, twice, jumps] = ["deep: 0", "twice: 0", "jumps: 0"].map(ran);
        assert!(
            deep > 100 && deep < n && deep.abs_diff(twice) < 20 && twice.abs_diff(jumps) < 20,
            "{n}: {deep} {twice} {jumps}"
        );
        assert_eq!([ran("never: 0"), ran("other: 0")], [0, 0], "{n}");
    }
}

/// Two stacks that go on in turn, below functions that both have: what each runs is its own.
#[test]
fn coroutines_that_call_each_other_keep_apart() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>\n#include <ucontext.h>
        #define NI __attribute__((noinline, noipa))
        static ucontext_t m, a, b; static char sa[65536], sb[65536]; static volatile int n;
        NI int leaf(int x) { return x + 1; }
        NI void swap(ucontext_t *x, ucontext_t *y) { leaf(9); swapcontext(x, y); leaf(8); }
        NI void deep_a(int d) { if (d) { deep_a(d - 1); leaf(d); return; } for (int i = 0; i < 5; i++) { n++; swap(&a, &b); } }
        NI void first(void) { deep_a(3); n += 100; }
        NI void deep_b(int d) { if (d) { deep_b(d - 1); leaf(d); return; } for (int i = 0; i < 5; i++) { n++; swap(&b, i == 4 ? &m : &a); } }
        NI void second(void) { deep_b(2); }
        int main(void) {
          getcontext(&a); a.uc_stack.ss_sp = sa; a.uc_stack.ss_size = sizeof sa; a.uc_link = &m; makecontext(&a, first, 0);
          getcontext(&b); b.uc_stack.ss_sp = sb; b.uc_stack.ss_size = sizeof sb; b.uc_link = &m; makecontext(&b, second, 0);
          swap(&m, &a); printf(\"%d\\n\", n); return 0; }";
    built(place.path(), "a", text, "-O1");
    engraft(place.path(), "trace -q --no-cache --modules exe -o run.trace -- ./a").ok();
    engraft(place.path(), "count -q --no-cache --all-blocks --modules exe -o run.engraft -- ./a").ok();
    let blocks = |name: &str| {
        let mut all = crate::count::blocks(place.path(), name, "a");
        all.retain(|_, n| *n > 0);
        all
    };
    assert_eq!(blocks("run.trace"), blocks("run.engraft"));
    let stats = engraft(place.path(), "query run.trace --stats --json").json();
    assert!(stats["n_astray"] == 0 && stats["n_lost"] == 0, "{stats}");
}

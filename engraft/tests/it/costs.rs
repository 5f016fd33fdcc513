//! What functions cost with all that they called, and the tree of calls: `show REC functions`, `tree`,
//! `callers`.

use crate::needs;
use crate::run::{built, compile, engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What callgrind counts while `function` is open.
fn counted_while_open(place: &Path, function: &str) -> u64 {
    let toggle = format!("--toggle-collect={function}");
    let words = ["-q", "--tool=callgrind", &toggle, "--callgrind-out-file=open.out", "./old"];
    let ran = Command::new("valgrind").args(words).current_dir(place).output().expect("valgrind runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let out = std::fs::read_to_string(place.join("open.out")).expect("written");
    let total = out.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{out}"))
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

#[track_caller]
fn rows(place: &Path, args: &str, key: &str) -> Vec<Value> {
    let ran = engraft(place, &format!("show {args} --json"));
    assert_eq!(ran.code, Some(0), "{args}: {}", ran.stderr);
    ran.json()[key].as_array().expect("a list").clone()
}

#[test]
fn functions_of_a_trace_cost_what_callgrind_counts_while_they_are_open() {
    needs!("gcc", "valgrind");
    let place = folder();
    let place = place.path();
    compile(&place.join("old"), "calls.c", "-O2 -g -fno-inline -fno-optimize-sibling-calls");
    engraft(place, "trace -q --no-cache --modules exe -o raw.trace ./old");
    engraft(place, "trace pack raw.trace -q -o packed.trace");
    for trace in ["raw.trace", "packed.trace"] {
        let functions = rows(place, &format!("{trace} functions"), "functions");
        let of = |name: &str| functions.iter().find(|row| row["name"] == name).expect("it ran");
        for name in ["leaf", "fib", "even", "odd", "cheap", "dear", "padded"] {
            assert_eq!(number(of(name), "inclusive"), counted_while_open(place, name), "{name} of {trace}");
        }
        let report = engraft(place, &format!("show {trace} --json")).json();
        let all = number(&report, "instructions");
        let own: u64 = functions.iter().map(|row| number(row, "instructions")).sum();
        assert_eq!(own, all, "{report}");
        for row in report["functions"].as_array().expect("a list") {
            let same = functions.iter().find(|f| f["at"] == row["at"] && f["module"] == row["module"]);
            let same = same.unwrap_or_else(|| panic!("{row} is in both"));
            for key in ["name", "instructions", "inclusive", "entries"] {
                assert_eq!(same[key], row[key], "{key}");
            }
        }
        let tree = rows(place, &format!("{trace} tree"), "tree");
        assert_eq!(tree.iter().map(|row| number(row, "own")).sum::<u64>(), all);
        for (n, row) in tree.iter().enumerate() {
            assert_eq!(number(row, "id"), n as u64);
            let under = tree.iter().filter(|other| other["under"] == n);
            let called: u64 = under.map(|other| number(other, "inclusive")).sum();
            assert_eq!(number(row, "own") + called, number(row, "inclusive"), "{row}");
        }
        for name in ["fib", "even", "leaf"] {
            let whole = number(of(name), "inclusive");
            for what in ["tree", "callers"] {
                let tree = rows(place, &format!("{trace} {what} {name}"), "tree");
                assert_eq!((&tree[0]["function"], number(&tree[0], "inclusive")), (&name.into(), whole));
                assert!(tree[1..].iter().all(|row| !row["under"].is_null()), "{what} {name}");
            }
        }
        // Counts of a run of the same program do not know it: dear makes leaf work most.
        let callers = rows(place, &format!("{trace} callers leaf"), "tree");
        let of_leaf = callers.iter().filter(|row| row["depth"] == 1);
        let most = of_leaf.max_by_key(|row| number(row, "inclusive")).expect("it has callers");
        assert_eq!(most["function"], "dear");
    }
}

#[test]
fn of_counts_it_is_an_estimate_and_says_so() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    compile(&place.join("old"), "calls.c", "-O1 -g -fno-inline -fno-optimize-sibling-calls");
    engraft(place, "count -q --no-cache -o old.engraft ./old");
    let view = engraft(place, "show old.engraft functions --json").json();
    assert_eq!(view["estimated"], true);
    let functions = view["functions"].as_array().expect("a list");
    let of = |name: &str| functions.iter().find(|row| row["name"] == name).expect("it ran");
    let all = number(&engraft(place, "show old.engraft --json").json(), "instructions");
    assert_eq!(functions.iter().map(|row| number(row, "instructions")).sum::<u64>(), all);
    // fib and leaf by gprof's rule, by hand.
    let (leaf, fib) = (of("leaf"), of("fib"));
    let calls = engraft(place, "show old.engraft calls --json").json();
    let calls = calls["calls"].as_array().expect("a list");
    let made = calls.iter().find(|c| c["caller"] == "fib" && c["callee"] == "leaf").expect("it calls it");
    let share = number(leaf, "inclusive") * number(made, "count") / number(leaf, "entries");
    assert_eq!(number(fib, "inclusive"), number(fib, "instructions") + share);
    assert_eq!(leaf["inclusive"], leaf["instructions"], "it calls nothing");
    // Two that call each other are one.
    assert_eq!(of("even")["inclusive"], of("odd")["inclusive"]);
    assert_eq!((&of("even")["cycle"], &of("odd")["cycle"]), (&1.into(), &1.into()));
    for args in ["functions", "tree"] {
        let text = engraft(place, &format!("show old.engraft {args}")).ok();
        assert!(text.contains(&format!("~{}", number(of("main"), "inclusive"))), "{args}: {text}");
        assert!(text.contains("<cycle 1>") && text.contains("~: estimated as gprof does it"), "{text}");
        let csv = engraft(place, &format!("show old.engraft {args} --format csv")).ok();
        assert!(!csv.contains('~'), "{csv}");
    }
    let tree = engraft(place, "show old.engraft tree --json").json();
    assert_eq!(tree["estimated"], true);
    assert!(tree["tree"].as_array().expect("a list").iter().all(|row| number(row, "inclusive") > 0));
    // Nothing of the kind is said of a trace.
    engraft(place, "trace -q --no-cache --modules exe -o old.trace ./old");
    for args in ["old.trace", "old.trace functions", "old.trace tree"] {
        assert!(!engraft(place, &format!("show {args}")).ok().contains('~'), "{args}");
    }
}

/// What a library does is its caller's, too, where the counts say who called it.
#[test]
fn an_estimate_goes_through_libraries() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    let library = "int work(int n) { int s = n; for (int i = 0; i < 1000; i++) s ^= i * s; return s; }";
    built(place, "libwork.so", library, "-O1 -shared -fPIC");
    let text = "int work(int); __attribute__((noinline)) int ask(int n) { return work(n) + 1; }
        int main(int c, char **v) { int s = 0; for (int i = 0; i < 50; i++) s += ask(i); return s == 7; }";
    built(place, "old", text, "-O1 -fno-optimize-sibling-calls -L. -lwork -Wl,-rpath,$ORIGIN");
    let ran = engraft(place, "count -q --no-cache -o old.engraft ./old");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let functions = rows(place, "old.engraft functions", "functions");
    let of = |name: &str| functions.iter().find(|row| row["name"] == name).expect("it ran");
    assert!(number(of("ask"), "inclusive") > number(of("work"), "instructions"), "{functions:?}");
    assert!(number(of("work"), "instructions") > 50 * 1000);
}

#[test]
fn what_has_no_calls_to_show_is_refused() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    built(place, "old", "int main(void) { return 0; }", "-O1");
    engraft(place, "count -q --no-cache -o old.engraft ./old");
    engraft(place, "trace -q --no-cache --modules exe -o old.trace ./old");
    for (args, says) in [
        ("old tree", "tree, callers and time are what recordings tell\nhint: "),
        ("old callers main", "tree, callers and time are what recordings tell\nhint: "),
        ("old.trace callers", "`show TRACE callers NAME`"),
        ("old.trace callers mian", "the nearest name is 'main'"),
        ("old.trace functions main", "a recording shows what it holds, or one function\nhint: "),
        ("old.engraft tree main", "counts do not say along which way main was called\nhint: "),
        ("old functions --counts old.engraft", "hint: say `show BINARY function NAME` with it"),
    ] {
        let ran = engraft(place, &format!("show {args}"));
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.stdout);
        assert!(ran.stderr.contains(says), "{args}: {}", ran.stderr);
    }
}

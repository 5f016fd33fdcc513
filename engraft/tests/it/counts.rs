//! What is shown of counts: edges, loops, calls, paths; one run held against another, and several runs.

use crate::needs;
use crate::run::{engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn build(to: &Path, source: &str, flags: &str, program: &str) {
    must(Command::new("gcc").args(flags.split_whitespace()).args([source, "-o", program]).current_dir(to));
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// What gcov says of the fixture (see `formats`) stands here as numbers: its lines are named.
#[test]
fn loops_calls_paths_and_edges_of_a_recording_are_those_of_the_source() {
    needs!("gcc");
    let to = folder();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/lines-gcov.c");
    std::fs::copy(source, to.path().join("lines.c")).expect("it is ours");
    build(to.path(), "lines.c", "-O0 -g", "one");
    engraft(to.path(), "count -q --no-cache --modules exe -o one.engraft -- ./one").ok();
    let shown = |what: &str| engraft(to.path(), &format!("show one.engraft {what} --json")).json();

    // Lines 53, 55, 56 (left twice over: by either half of its condition), 63 and 66.
    let view = shown("loops");
    let of_loops =
        view["loops"].as_array().expect("a list").iter().filter(|l| text(l, "function") == "loops");
    let mut runs: Vec<_> =
        of_loops.map(|l| ["iterations", "entries", "exits"].map(|key| number(l, key))).collect();
    runs.sort_unstable();
    assert_eq!(runs, [[31, 8, 8], [36, 8, 8], [36, 8, 8], [53, 8, 8], [54, 8, 8]]);
    // The same of a binary and a profile.
    let again = engraft(to.path(), "show one loops --profile one.engraft --json").json();
    assert_eq!(again["loops"].as_array().map(Vec::len), view["loops"].as_array().map(Vec::len));

    let view = shown("calls");
    let made = |caller: &str, callee: &str| -> Vec<u64> {
        let rows = view["calls"].as_array().expect("a list").iter();
        rows.filter(|c| text(c, "caller") == caller && c["callee"] == callee)
            .map(|c| number(c, "count"))
            .collect()
    };
    for (caller, callee, n) in [
        ("main", "loops", 8),
        ("main", "fib", 8),
        ("fib", "fib", 92),
        ("loops", "twice", 106),
        ("kind", "odd", 2),
    ] {
        assert_eq!(made(caller, callee), [n], "{caller} {callee}");
    }
    assert_eq!(made("kind", "fib"), [] as [u64; 0]);

    // The `switch` compares more than it has ways; of `sum > 5 ?` only one way is taken; `exit` ends the loop
    // of line 92.
    let view = shown("never");
    let never: BTreeSet<String> = view["edges"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|e| e["line"].is_string())
        .map(|e| {
            format!("{} {}", text(e, "function"), text(e, "line").rsplit(':').next().unwrap_or_default())
        })
        .filter(|place| ["kind", "loops", "main"].iter().any(|name| place.starts_with(name)))
        .collect();
    assert_eq!(never, ["kind 36", "loops 75", "main 92"].map(String::from).into());

    let view = shown("edges");
    let edges = view["edges"].as_array().expect("a list");
    let counts: Vec<u64> = edges.iter().map(|e| number(e, "count")).collect();
    assert!(counts.windows(2).all(|two| two[0] >= two[1]) && counts.len() > 50, "{counts:?}");
    let of_line = |line: &str| -> Vec<u64> {
        let here = edges.iter().filter(|e| e["line"].as_str().is_some_and(|at| at.ends_with(line)));
        here.map(|e| number(e, "count")).collect()
    };
    assert_eq!((of_line("lines.c:65"), of_line("lines.c:71")), (vec![46, 8], vec![45, 8]));

    // Of 53 rounds of the endless loop, 45 go round; the function's own path is left on the way by who
    // returns otherwise.
    let view = shown("paths");
    let paths = view["paths"].as_array().expect("a list");
    let of_loop = paths.iter().find(|p| text(p, "function") == "loops" && p["of"] == 53).expect("it is hot");
    assert_eq!(["at_least", "at_most"].map(|key| number(of_loop, key)), [45, 45]);

    let shown = engraft(to.path(), "show one.engraft function loops").ok();
    assert!(shown.contains(", 46 ×, 85.19 %)") && shown.contains(", never)"), "{shown}");
    let svg = engraft(to.path(), "show one.engraft function loops --svg").ok();
    assert!(svg.contains("<polygon ") && svg.contains(">46</text>"), "{svg}");
    let said = engraft(to.path(), "show one edges");
    assert!(said.code == Some(2) && said.stderr.contains("what counts tell"), "{}", said.stderr);
}

const HALVES: &str = "#include <stdlib.h>
__attribute__((noinline)) int half(int n) {
    if (n & 1)
        return n * 3;
    return n / 2;
}
int main(int n, char **a) {
    int sum = 0;
    for (int i = 0, last = atoi(a[1]); i < last; i++)
        sum += half(i);
    return sum & 0;
}
";

#[test]
fn two_runs_differ_where_their_input_does() {
    needs!("gcc");
    let to = folder();
    std::fs::write(to.path().join("a.c"), HALVES).expect("it is ours");
    build(to.path(), "a.c", "-O0 -g", "a");
    for n in ["10", "25"] {
        engraft(to.path(), &format!("count -q --no-cache -o {n}.engraft -- ./a {n}")).ok();
    }
    let same = engraft(to.path(), "diff 10.engraft 10.engraft").ok();
    assert!(same.starts_with("both ran the same: "), "{same}");

    let ran = engraft(to.path(), "diff 10.engraft 25.engraft --json");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    let view: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let half = view["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|f| f["name"] == "half")
        .expect("it differs");
    assert_eq!(half["entries"], serde_json::json!([10, 25]));
    let n = |i: usize| half["instructions"][i].as_u64().expect("a number") as f64;
    let by = half["change_share"].as_f64().expect("it ran in both");
    assert!((by - (n(1) / n(0) - 1.0)).abs() < 1e-12 && by > 1.0, "{half}");
    assert!(view["change_share"].as_f64().is_some_and(|share| share > 0.0), "{view}");
    let loops: Vec<_> = view["loops"].as_array().expect("a list").iter().collect();
    assert_eq!(loops.len(), 1, "{loops:?}");
    assert_eq!(
        (&loops[0]["iterations"], &loops[0]["entries"]),
        (&serde_json::json!([11, 26]), &serde_json::json!([1, 1]))
    );
    // Of ten numbers five are odd, of 25 twelve.
    let edges = view["edges"].as_array().expect("a list").iter().filter(|e| e["function"] == "half");
    let counts: BTreeSet<String> = edges.map(|e| e["count"].to_string()).collect();
    assert!(counts.contains("[5,12]") && counts.contains("[5,13]"), "{counts:?}");
    assert_eq!(view["n_blocks_first_alone"], 0);
    let csv = engraft(to.path(), "diff 10.engraft 25.engraft --format csv").stdout;
    assert!(
        csv.starts_with("change,by,first,second,entries,then,function,module\n")
            && csv.contains(",10,25,half,a\n"),
        "{csv}"
    );
    let shown = engraft(to.path(), "diff 25.engraft 10.engraft").stdout;
    assert!(shown.contains("edges, by executions:") && shown.contains(" -15  -60.00 %  "), "{shown}");

    // Another build is told, and what to do.
    build(to.path(), "a.c", "-O1 -g", "a");
    engraft(to.path(), "count -q --no-cache -o other.engraft -- ./a 10").ok();
    let ran = engraft(to.path(), "diff 10.engraft other.engraft");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(
        ran.stderr.contains("of two builds of a")
            && ran.stderr.contains("hint: carry the first one's counts"),
        "{}",
        ran.stderr
    );
    // Also if it is called otherwise.
    build(to.path(), "a.c", "-O1 -g", "b");
    engraft(to.path(), "count -q --no-cache -o b.engraft -- ./b 10").ok();
    let ran = engraft(to.path(), "diff 10.engraft b.engraft");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("of two builds, "), "{}", ran.stderr);
}

#[test]
fn runs_that_are_not_the_same_are_named() {
    needs!("gcc");
    let to = folder();
    // Each run calls it once more than the one before, and ends with how often.
    let source = "#include <stdio.h>
__attribute__((noinline)) void again(int n) { if (n) again(n - 1); }
int main(void) {
    int n = 0;
    FILE *f = fopen(\"n\", \"r\");
    if (f) { if (fscanf(f, \"%d\", &n) != 1) return 9; fclose(f); }
    f = fopen(\"n\", \"w\"); fprintf(f, \"%d\", n + 1); fclose(f);
    again(n);
    return n;
}
";
    std::fs::write(to.path().join("a.c"), source).expect("it is ours");
    build(to.path(), "a.c", "-O0", "a");
    let ran = engraft(to.path(), "count --json --no-cache --repeat 3 -o a.engraft -- ./a");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let view: Value = serde_json::from_str(&ran.stderr).expect("it is JSON");
    let repeated = &view["repeated"];
    assert_eq!(repeated["runs"], 3);
    let list = |key: &str| repeated[key].as_array().expect("a list");
    let again = list("functions").iter().find(|f| f["name"] == "again").expect("it is named");
    assert_eq!(again["entries"], serde_json::json!([1, 3]));
    assert!(
        list("blocks").iter().any(|b| b["function"] == "again" && b["count"] == serde_json::json!([1, 3]))
    );
    assert!(
        list("edges").iter().any(|e| e["function"] == "again" && e["count"] == serde_json::json!([0, 2]))
    );
    assert!(!list("functions").iter().any(|f| f["name"] == "_start"), "{repeated}");
    // The last run is kept.
    let kept = engraft(to.path(), "show a.engraft --json").json();
    let again =
        kept["functions"].as_array().expect("a list").iter().find(|f| f["name"] == "again").expect("it ran");
    assert_eq!(again["entries"], 3);
    let shown = engraft(to.path(), "count --no-cache --repeat 2 -o b.engraft -- ./a");
    assert_eq!(shown.code, Some(3), "{}", shown.stderr);
    assert!(shown.stderr.contains("not the same in each of 2 runs: "), "{}", shown.stderr);
    let same = engraft(to.path(), "count --no-cache --modules exe --repeat 2 -o c.engraft -- true");
    assert!(same.stderr.contains("all 2 runs were the same"), "{}", same.stderr);
}

/// A branch to the next instruction leads there either way: the two ways have one count.
#[test]
fn both_ways_to_one_block_are_one_way() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    let text = "__attribute__((noinline)) int step(int n) {
            __asm__ volatile(\"test $1, %0\\n\\tjnz 1f\\n1:\\taddl $1, %0\" : \"+r\"(n)); return n; }
        int main(void) { volatile int n = 0; for (int i = 0; i < 80; i++) n = step(n); return n != 80; }\n";
    std::fs::write(to.join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-w", "-o", "a", "a.c"]).current_dir(to));
    engraft(to, "count -q --no-cache --modules exe -o run.engraft -- ./a").ok();
    let view = engraft(to, "show run.engraft function step --json").json();
    let blocks = view["blocks"].as_array().expect("a list");
    let edges = |b: &Value| b["edges"].as_array().expect("a list").clone();
    let parts = blocks.iter().find(|b| b["end"] == "branch").expect("there is one");
    let ways = edges(parts);
    assert_eq!(parts["count"], 80, "{view}");
    assert_eq!(
        (ways.len(), &ways[0]["count"], &ways[0]["kind"]),
        (1, &80.into(), &"both-ways".into()),
        "{view}"
    );
    assert_eq!(ways[0]["also"].as_array().map(Vec::len), Some(1), "{view}");
    // Without counts they are two.
    let view = engraft(to, "show a function step --json").json();
    let parts = view["blocks"].as_array().expect("a list").iter().find(|b| b["end"] == "branch").cloned();
    assert_eq!(edges(&parts.expect("there is one")).len(), 2);
    let text = engraft(to, "show run.engraft function step").ok();
    assert_eq!(text.matches(", 80 ×").count(), 1, "{text}");
    let rows = engraft(to, "show run.engraft edges --json").json();
    let rows = rows["edges"].as_array().expect("a list").iter();
    let own: Vec<Value> = rows.filter(|e| e["function"] == "step").map(|e| e["kind"].clone()).collect();
    assert_eq!(own, ["both-ways"]);
    let svg = engraft(to, "show run.engraft function step --svg").ok();
    assert_eq!(svg.matches(">80</text>").count(), 1, "{svg}");
    engraft(to, "convert -q run.engraft -o x.callgrind").ok();
    let written = std::fs::read_to_string(to.join("x.callgrind")).expect("it was written");
    assert!(!written.contains("jcnd=80/80"), "{written}");
}

/// Code behind labels whose addresses are known elsewhere may be come to from there: edges of their function
/// are known all the same.
#[test]
fn edges_of_functions_whose_labels_are_taken_are_counted() {
    needs!("gcc");
    let source = |first: &str| {
        format!(
            "#include <stdio.h>
            static int n_rounds;
            __attribute__((noinline)) int walk(int n) {{
                static const void *const to[] = {{&&a, &&b, &&c}};
                {first}
                int i = 0, sum = 0;
            a:  sum += 3;
                if (i++ < n) goto *to[i % 3 * (i % 2) % 2];
            b:  for (volatile int j = 0; j < i % 5; j++) n_rounds++, sum ^= j;
                if (i++ < n) goto *to[i % 3 * (i % 2) % 2];
            c:  return sum; }}
            int main(void) {{ volatile int n = 40; n = walk(n); printf(\"%d\\n\", n_rounds); return 0; }}\n"
        )
    };
    for (first, flags) in [
        ("", "-O1"),
        ("const void *volatile named = &&b; n += named == &&a;", "-O1"),
        ("const void *volatile named = &&b; n += named == &&a;", "-O2 -no-pie"),
    ] {
        let place = folder();
        let to = place.path();
        std::fs::write(to.join("a.c"), source(first)).expect("written");
        build(to, "a.c", &format!("-w {flags}"), "a");
        let said = must(Command::new("./a").current_dir(to));
        let n_rounds: u64 = said.trim().parse().expect("a number");
        assert!(n_rounds > 10, "{said}");
        engraft(to, "count -q --no-cache --modules exe -o run.engraft -- ./a").ok();
        let view = engraft(to, "show run.engraft loops --json").json();
        let loops = view["loops"].as_array().expect("a list").iter();
        let rounds: Vec<u64> =
            loops.filter(|l| text(l, "function") == "walk").map(|l| number(l, "iterations")).collect();
        assert!(rounds.contains(&n_rounds), "{first} {flags}: {n_rounds} rounds: {view}");
        engraft(to, "convert -q run.engraft -o run.json").ok();
        let written = std::fs::read_to_string(to.join("run.json")).expect("it was written");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        let shown = engraft(to, "show run.engraft function walk --json").json();
        let blocks: Vec<Value> = shown["blocks"].as_array().expect("a list").clone();
        let own: Vec<Value> = blocks.iter().map(|b| format!("{:#x}", number(b, "at")).into()).collect();
        let edges = written["edges"].as_array().expect("a list");
        assert!(edges.iter().filter(|e| own.contains(&e["from"])).count() > 3, "{first} {flags}: {written}");
        // Each round leaves its block.
        let of_rounds = blocks.iter().zip(&own).filter(|(b, _)| b["count"] == n_rounds).map(|(_, at)| at);
        let left = |from: &Value| {
            edges.iter().filter(|e| e["from"] == *from).map(|e| number(e, "count")).sum::<u64>()
        };
        let left: Vec<u64> = of_rounds.map(left).collect();
        assert!(
            !left.is_empty() && left.iter().all(|n| *n == n_rounds),
            "{first} {flags}: {left:?}: {written}"
        );
    }
}

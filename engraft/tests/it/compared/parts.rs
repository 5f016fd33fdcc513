//! Parts of a comparison: intervals, the code of one, points that are the same, how that was found out; and
//! comparisons of more than two builds.

use super::{compared, counted, disassembled, number, recorded, row, share};
use crate::needs;
use crate::run::{built, engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[track_caller]
fn said(place: &Path, words: &str) -> Value {
    engraft(place, words).json()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {of}"))
}

#[test]
fn intervals_add_up_and_an_outlier_shows_the_code_that_ran() {
    needs!("gcc", "objdump");
    let place = folder();
    let place = place.path();
    recorded(place, "good", "-O2 -g");
    recorded(place, "bad", "-O2 -g -DWORSE=40");
    let whole = compared(place, "good", "bad");
    let all = said(place, "compare good.trace bad.trace --intervals --json");
    for side in ["old", "new"] {
        let sum: f64 = list(&all, "intervals").iter().map(|row| number(&row["instructions"][side])).sum();
        let want = number(&whole["totals"][side]["dyn.agg.total"]);
        assert!((sum - want).abs() <= want / 1000.0, "{side}: {sum} of {want}");
    }
    let one = said(place, "compare good.trace bad.trace --outlier 1 --json");
    assert_eq!((&one["function"], &one["n"]), (&whole["outliers"][0]["function"], &1.into()));
    for (side, name) in [("old", "good"), ("new", "bad")] {
        let insns = disassembled(place, name);
        let mut sum = 0.0;
        for block in list(&one["blocks"], side) {
            let at = block["at"].as_u64().expect("an address");
            let texts = list(block, "instructions");
            let mnemonic = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
            let theirs: Vec<String> =
                insns.range(at..).take(texts.len()).map(|(_, text)| mnemonic(text)).collect();
            let ours: Vec<String> = texts.iter().map(|text| mnemonic(text.as_str().expect("text"))).collect();
            assert_eq!(ours.len(), theirs.len(), "{block}");
            let same = ours
                .iter()
                .zip(&theirs)
                .filter(|(a, b)| a.starts_with(b.as_str()) || b.starts_with(a.as_str()));
            assert!(same.count() * 10 >= ours.len() * 8, "{ours:?} {theirs:?}");
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let n = texts.len() as f64;
            sum += number(&block["runs"]) * n;
        }
        let want = number(&one[side]);
        assert!((sum - want).abs() <= want / 100.0 + 1.0, "{side}: {sum} of {want}: {one}");
    }
    let ran = engraft(place, "compare good.trace bad.trace --outlier 99999");
    assert!(ran.code == Some(2) && ran.stderr.contains("there is no outlier 99999"), "{}", ran.stderr);
    // By another metric: stores, which what was made worse has alone.
    let stores = said(place, "compare good.trace bad.trace --metric dyn.agg.mem_writes --json");
    let first = &stores["outliers"][0];
    assert_eq!((&first["function"], &first["metric"]), (&"table".into(), &"dyn.agg.mem_writes".into()));
    let calls = number(&row(&stores, "table")["old"]["calls"]);
    assert!((number(&first["new"]) - number(&first["old"]) - 40.0 * calls).abs() < 1.0, "{first}");
    let gate = |expression: &str| {
        engraft(place, &format!("compare good.trace bad.trace -q --fail-if '{expression}'")).code
    };
    assert_eq!(gate("any(function, dyn.agg.total > 1.1 and new.share > 0.1)"), Some(1));
    assert_eq!(gate("any(function, dyn.agg.total > 1.1 and new.share > 0.9)"), Some(0));
    let functions = said(place, "compare good.trace bad.trace --functions --json");
    assert_eq!(list(&functions, "functions"), list(&whole, "functions"));
}

/// By index: the function of each symbol of thread 0 that enters one, as `query` says.
fn entered(place: &Path, name: &str) -> BTreeMap<u64, String> {
    let all = said(place, &format!("query {name}.trace --at 0.. --json"));
    let symbols = list(&all, "symbols").iter().filter(|symbol| symbol["step"] == "F");
    let entry = |symbol: &Value| {
        (symbol["index"].as_u64().expect("a number"), symbol["function"].as_str().expect("a name").to_owned())
    };
    symbols.map(entry).collect()
}

#[test]
fn anchors_are_the_symbols_at_which_the_same_functions_are_entered() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "kept", "-O2 -g -fno-inline -fno-optimize-sibling-calls");
    recorded(place, "plain", "-O0 -g");
    let itself = said(place, "compare kept.trace kept.trace --anchors --json");
    let anchors = list(&itself, "anchors");
    let without = said(place, "compare kept.trace kept.trace --json");
    assert_eq!((&itself["totals"], &itself["schema"]), (&without["totals"], &without["schema"]));
    assert_eq!(without.get("anchors"), None, "they are there where they are asked for");
    assert!(anchors.iter().all(|anchor| anchor["old"] == anchor["new"] && anchor["confidence"] == 1.0));
    let index = |anchor: &Value, side: &str| anchor[side]["index"].as_u64().expect("a number");
    assert!(anchors.windows(2).all(|two| index(&two[0], "old") < index(&two[1], "old")));
    let of_kept = entered(place, "kept");
    let n_entered = anchors.iter().filter(|anchor| of_kept.contains_key(&index(anchor, "old"))).count();
    assert_eq!(n_entered, of_kept.len(), "each call is one");
    // Of two builds: what is entered has the same name.
    let both = said(place, "compare plain.trace kept.trace --anchors --json");
    let of_plain = entered(place, "plain");
    let calls: Vec<(&String, Option<&String>)> = list(&both, "anchors")
        .iter()
        .filter_map(|anchor| Some((of_plain.get(&index(anchor, "old"))?, of_kept.get(&index(anchor, "new")))))
        .collect();
    let bare = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    assert!(calls.iter().all(|(old, new)| new.is_some_and(|new| bare(new) == bare(old))), "{calls:?}");
    assert!(
        calls.len() * 100 >= of_plain.len().min(of_kept.len()) * 95,
        "{} of {}",
        calls.len(),
        of_kept.len()
    );
}

#[test]
fn explain_says_how_calls_and_loops_were_told_to_be_the_same() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g");
    recorded(place, "kept", "-O2 -g -fno-inline -fno-optimize-sibling-calls");
    let explained = said(place, "compare plain.trace kept.trace --explain main --json");
    let by_line: Vec<&Value> =
        list(&explained, "events").iter().filter(|event| event["how"] == "line").collect();
    assert!(by_line.len() >= 3 && by_line.iter().all(|event| number(&event["paired"]) > 0.0), "{explained}");
    let place_of = |side: &str| by_line[0]["at"][side].as_str().expect("a place").to_owned();
    assert_eq!(place_of("old"), place_of("new"), "the same line: {explained}");
    // What ran in one build alone is said to have.
    recorded(place, "inlined", "-O2 -g");
    let names = said(place, "compare kept.trace inlined.trace --json");
    let alone = list(&names["unmatched"], "old").first().expect("it inlines").clone();
    let name = alone["name"].as_str().expect("a name");
    let ran = engraft(place, &format!("compare kept.trace inlined.trace --explain {name}"));
    let want = format!("{name} ran in the old build alone");
    assert!(ran.code == Some(2) && ran.stderr.contains(&want), "{}", ran.stderr);
    let ran = engraft(place, "compare plain.trace kept.trace --explain mian");
    assert!(ran.code == Some(2) && ran.stderr.contains("perhaps main"), "{}", ran.stderr);
}

/// One function has got the name of another, which has got a new one: no name says so, but a person does.
#[test]
fn pins_and_forbids_of_a_map_are_obeyed() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O1 -g -fno-inline");
    let text = include_str!("../fixtures/compared.c");
    let renamed = text.replace("table(", "rows(").replace("hash(", "table(");
    std::fs::write(place.join("renamed.c"), renamed).expect("written");
    let flags = ["-O1", "-g", "-fno-inline", "-o", "renamed", "renamed.c"];
    must(Command::new("gcc").args(flags).current_dir(place));
    let ran = engraft(place, "trace -q --no-cache --modules exe -o renamed.trace ./renamed");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let by_names = compared(place, "plain", "renamed");
    let alone = |said: &Value, side: &str| list(&said["unmatched"], side).len();
    assert_eq!((alone(&by_names, "old"), alone(&by_names, "new")), (1, 1), "{}", by_names["unmatched"]);
    assert!(share(&by_names, "light") < 0.99, "{}", by_names["matched"]);
    let lines = ["pin table rows", "pin hash table"].map(|line| format!("{line}\n"));
    assert_eq!(engraft(place, "match plain renamed -o plain.map").code, Some(0));
    let map = std::fs::read_to_string(place.join("plain.map")).expect("written");
    std::fs::write(place.join("pinned.map"), map.clone() + &lines.concat()).expect("written");
    let pinned = said(place, "compare plain.trace renamed.trace --with pinned.map --json");
    assert_eq!((alone(&pinned, "old"), alone(&pinned, "new")), (0, 0), "{}", pinned["unmatched"]);
    assert_eq!((share(&pinned, "light"), share(&pinned, "heavy")), (1.0, 1.0), "{}", pinned["matched"]);
    let calls =
        |said: &Value| list(said, "functions").iter().all(|of| of["old"]["calls"] == of["new"]["calls"]);
    assert!(calls(&pinned) && !calls(&by_names), "{pinned}");
    // What is forbidden is nobody's.
    std::fs::write(place.join("forbidden.map"), map + "forbid sort sort\n").expect("written");
    let forbidden = said(place, "compare plain.trace renamed.trace --with forbidden.map --json");
    let is_sort = |row: &&Value| row["name"] == "sort";
    let n_sort = |side: &str| list(&forbidden["unmatched"], side).iter().filter(is_sort).count();
    assert_eq!((n_sort("old"), n_sort("new")), (1, 1), "{}", forbidden["unmatched"]);
    let ran = engraft(place, "compare plain.trace renamed.trace --with nothing.map");
    assert!(ran.code == Some(2) && ran.stderr.contains("nothing.map"), "{}", ran.stderr);
}

#[test]
fn builds_are_compared_by_way_of_a_third() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g");
    recorded(place, "good", "-O2 -g -fno-optimize-sibling-calls");
    recorded(place, "bad", "-O3 -g -fno-optimize-sibling-calls -DWORSE=40");
    let by = said(place, "compare good.trace bad.trace --base plain.trace --json");
    let direct = compared(place, "good", "bad");
    for log in ["light", "heavy"] {
        let (by, direct) = (share(&by, log), share(&direct, log));
        assert!(by > 0.4 && by >= 0.9 * direct, "{log}: {by} of {direct}");
    }
    assert_eq!(by["outliers"][0]["function"], "table", "{}", by["outliers"]);
    for side in ["old", "new"] {
        let (all, found) =
            (&by["totals"][side]["dyn.agg.total"], number(&by["matched"]["instructions"][side]));
        assert!((number(all) - found).abs() < 0.5, "{side}: {all} {found}");
    }
    assert!(number(&row(&by, "table")["old"]["calls"]) > 0.0);
}

#[test]
fn a_matrix_is_its_pairs_one_by_one() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    for (name, flags) in [("plain", "-O0 -g"), ("good", "-O2 -g"), ("bad", "-O2 -g -DWORSE=40")] {
        crate::run::compile(&place.join(name), "compared.c", flags);
    }
    let builds = "[[builds]]\nname = 'O0'\npath = './plain'\n[[builds]]\nname = 'O2'\npath = './good'\n\
                  [[builds]]\nname = 'worse'\npath = './bad'\n";
    let inputs =
        "[[inputs]]\nname = 'none'\n[[inputs]]\nname = 'some'\nargs = ['x']\nstdin = 'matrix.toml'\n";
    let write = |start: &str| {
        std::fs::write(place.join("matrix.toml"), format!("{start}{builds}{inputs}")).expect("written");
    };
    write("against = 'O2'\n");
    let all = said(place, "compare --matrix matrix.toml --json");
    let rows = list(&all, "rows");
    assert_eq!(rows.len(), 4, "{all}");
    for (n, (program, input)) in
        [("./plain", ""), ("./bad", ""), ("./plain", "x"), ("./bad", "x")].into_iter().enumerate()
    {
        let pair = said(place, &format!("compare ./good {program} --json -- {input}"));
        assert_eq!(rows[n]["amount"]["new"], number(&pair["totals"]["new"]["dyn.agg.total"]), "{}", rows[n]);
        assert_eq!(rows[n]["matched"], pair["matched"], "{}", rows[n]);
        assert_eq!(rows[n]["largest"], pair["outliers"][0], "{}", rows[n]);
        assert_eq!((&rows[n]["old"], &rows[n]["runs"]["stdout"]["differs_at"]), (&"O2".into(), &Value::Null));
    }
    // Against the best, which is the same here; and as a gate.
    write("");
    let best = said(place, "compare --matrix matrix.toml --json");
    assert_eq!(list(&best, "rows"), rows);
    let gate = |expression: &str| {
        engraft(place, &format!("compare --matrix matrix.toml -q --fail-if '{expression}'")).code
    };
    assert_eq!((gate("dyn.agg.total > 100"), gate("dyn.agg.total > 1.001")), (Some(0), Some(1)));
    for (text, want) in
        [("against = 'O9'\n", "no build is called O9"), ("colour = 1\n", "colour"), ("[", "matrix")]
    {
        write(text);
        let ran = engraft(place, "compare --matrix matrix.toml");
        assert!(ran.code == Some(2) && ran.stderr.contains(want), "{}", ran.stderr);
    }
}

#[test]
fn what_compilers_said_stands_at_the_lines_that_differ() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "good", "-O1 -g");
    let remarks = place.join("said.txt");
    recorded(place, "high", &format!("-O3 -g -fopt-info-all={}", remarks.display()));
    let with = said(place, "compare good.trace high.trace --new-remarks said.txt --json");
    let text = std::fs::read_to_string(&remarks).expect("gcc wrote it");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all: Vec<&str> = list(&with, "outliers")
        .iter()
        .flat_map(|row| list(row, "remarks"))
        .map(|remark| remark.as_str().expect("text"))
        .collect();
    assert!(all.len() > 3, "{with}");
    for remark in &all {
        let (place, said) = remark.split_once(": ").expect("a place, and what was said");
        assert!(place.starts_with("new build, compared.c:"), "{remark}");
        assert!(text.contains(said), "{remark}");
    }
    assert!(all.iter().any(|remark| remark.contains("optimized")), "{all:?}");
    std::fs::write(place.join("none.txt"), "nothing\n").expect("written");
    let ran = engraft(place, "compare good.trace high.trace --new-remarks none.txt");
    assert!(ran.code == Some(2) && ran.stderr.contains("no remarks of compilers"), "{}", ran.stderr);
}

#[test]
fn memory_that_is_not_aligned_is_found_by_recordings_of_values() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    for (name, offset) in [("aligned", 0), ("shifted", 4)] {
        let flags = format!("-O2 -g -fno-tree-vectorize -DOFFSET={offset}");
        crate::run::compile(&place.join(name), "misaligned.c", &flags);
        engraft(place, &format!("trace -q --no-cache --modules exe -o {name}.trace ./{name}"));
        engraft(place, &format!("values -q --no-cache --auto=* -o {name}.engraft ./{name}"));
    }
    let words =
        "compare aligned.trace shifted.trace --old-values aligned.engraft --new-values shifted.engraft";
    let metric = "dyn.pmu.MISALIGN_MEM_REF";
    let both = said(place, &format!("{words} --metric {metric} --json"));
    // Each store of 8 bytes to the array, and the load behind them.
    assert_eq!(number(&row(&both, "smooth")["new"][metric]), 20.0 * 129.0, "{both}");
    for (name, side) in [("smooth", "old"), ("other", "old"), ("other", "new")] {
        assert_eq!(number(&row(&both, name)[side][metric]), 0.0, "{name} {side}");
    }
    assert_eq!(both["totals"]["old"]["dyn.agg.total"], both["totals"]["new"]["dyn.agg.total"]);
    let first = &both["outliers"][0];
    assert_eq!((&first["function"], &first["metric"]), (&"smooth".into(), &metric.into()), "{first}");
    assert_eq!((number(&first["old"]), number(&first["new"])), (0.0, 20.0 * 128.0), "{first}");
    assert_eq!(first["because"][0]["metric"], metric);
    // A recording of another kind says nothing of it.
    engraft(place, "count -q --no-cache -o counted.engraft -- ./aligned");
    let words =
        "compare aligned.trace shifted.trace --old-values counted.engraft --new-values shifted.engraft";
    let ran = engraft(place, words);
    assert!(ran.code == Some(2) && ran.stderr.contains("nothing is in it of accesses"), "{}", ran.stderr);
}

/// A loop in a loop, and a function that one build alone has.
const LOOPED: &str = r"static volatile int x;
    __attribute__((noinline)) static int work(int n) {
      int sum = 0; for (int i = 0; i < n; i++) { for (int k = 0; k < i; k++) sum += x + k; } return sum; }
    #ifdef MORE
    __attribute__((noinline)) static void with_a_name_that_is_longer_than_any_column_for_names_would_be_in_a_table(void)
    { for (int i = 0; i < 50; i++) x++; }
    #endif
    int main(void) {
    #ifdef MORE
      with_a_name_that_is_longer_than_any_column_for_names_would_be_in_a_table();
    #endif
      x = work(30) & 1; return 0; }";

/// What `count` counts of the function with this symbol, by block: how often it ran, its instructions as
/// objdump has them.
fn blocks_of(place: &Path, name: &str, symbol: &str) -> BTreeMap<u64, (u64, u64)> {
    let (counted, insns) = (counted(place, name), disassembled(place, name));
    let text = must(Command::new("nm").args(["-S"]).arg(place.join(name)));
    let line = text.lines().find(|line| line.ends_with(&format!(" {symbol}"))).expect("it has a symbol");
    let words: Vec<u64> =
        line.split(' ').take(2).map(|word| u64::from_str_radix(word, 16).expect("hexadecimal")).collect();
    let of = counted.range(words[0]..words[0] + words[1]);
    of.map(|(at, (end, n))| (*at, (*n, insns.range(at..end).count() as u64))).collect()
}

/// The oracles are `count` and objdump.
#[test]
fn loops_and_modules_have_what_ran_in_them() {
    needs!("gcc", "nm", "objdump");
    let place = folder();
    let place = place.path();
    for name in ["looped", "more"] {
        let flags = if name == "more" { "-O1 -DMORE" } else { "-O1" };
        built(place, name, LOOPED, flags);
        engraft(place, &format!("trace -q --no-cache --modules exe -o {name}.trace ./{name}")).ok();
    }
    let looped = said(place, "compare looped.trace more.trace --loops --json");
    let of_work: Vec<&Value> = list(&looped, "loops").iter().filter(|of| of["function"] == "work").collect();
    assert_eq!(of_work.len(), 2, "{looped}");
    for (side, name) in [("old", "looped"), ("new", "more")] {
        let blocks = blocks_of(place, name, "work");
        // What runs more than twice is in the loops.
        let (all, inner): (u64, u64) = blocks.values().fold((0, 0), |(all, inner), (n, insns)| {
            (all + if *n > 2 { n * insns } else { 0 }, inner + if *n > 100 { n * insns } else { 0 })
        });
        let mut found: Vec<f64> = of_work.iter().map(|of| number(&of[side]["dyn.agg.total"])).collect();
        found.sort_by(f64::total_cmp);
        assert_eq!(found, [inner as f64, all as f64], "{side}: {blocks:x?}");
        for of in &of_work {
            let at =
                of["at"][side].as_str().and_then(|at| at.strip_prefix("the loop at 0x")).expect("an address");
            let header = u64::from_str_radix(at, 16).expect("hexadecimal");
            assert_eq!(number(&of["rounds"][side]), blocks[&header].0 as f64, "{side}: {of}");
        }
    }
    let alone = list(&looped, "loops").iter().filter(|of| of["at"]["old"].is_null());
    assert_eq!(alone.count(), 1, "{looped}");
    // All functions of the one module.
    let whole = said(place, "compare looped.trace more.trace --json");
    let modules = said(place, "compare looped.trace more.trace --modules --json");
    let [row] = list(&modules, "modules") else { panic!("{modules}") };
    assert_eq!((&row["module"]["old"], &row["module"]["new"]), (&"looped".into(), &"more".into()));
    for side in ["old", "new"] {
        assert_eq!(row[side], whole["totals"][side], "{side}");
    }
    // A function of one build alone is among all, by all of its name.
    let name = "with_a_name_that_is_longer_than_any_column_for_names_would_be_in_a_table";
    let n: u64 = blocks_of(place, "more", name).values().map(|(n, insns)| n * insns).sum();
    let table = engraft(place, "compare looped.trace more.trace --functions --format csv").stdout;
    let want = format!("+{n},,,{n},,1,{name}");
    assert!(table.lines().any(|line| line == want), "{want}: {table}");
    let one = said(place, &format!("compare looped.trace more.trace --function {name} --json"));
    let total = list(&one, "metrics").iter().find(|of| of["metric"] == "dyn.agg.total").expect("it ran");
    assert_eq!((number(&total["old"]), number(&total["new"])), (0.0, n as f64));
}

/// The oracle is what is said without a file.
#[test]
fn a_comparison_in_a_file_says_what_was_said_when_it_was_made() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g");
    recorded(place, "fast", "-O2 -g");
    let said = engraft(place, "compare plain.trace fast.trace --json -o both.engraft").json();
    assert_eq!(engraft(place, "show both.engraft --json").json(), said);
    let text = engraft(place, "compare plain.trace fast.trace").stdout;
    assert_eq!(engraft(place, "show both.engraft").stdout, text);
    let outliers = said["outliers"].as_array().expect("a list").len();
    assert!(outliers > 1, "{said}");
    let last = format!("outlier {outliers}");
    for what in ["functions", "loops", "modules", "function main", "intervals", "outlier 1", &last] {
        let asked = format!("compare plain.trace fast.trace --{what} --json");
        let made = engraft(place, &asked).json();
        assert_eq!(engraft(place, &format!("show both.engraft {what} --json")).json(), made, "{what}");
    }
    for (to, form) in [("both.json", "json"), ("both.csv", "csv")] {
        assert_eq!(engraft(place, &format!("convert both.engraft -o {to}")).code, Some(0));
        let written = std::fs::read_to_string(place.join(to)).expect("written");
        assert_eq!(
            written,
            engraft(place, &format!("compare plain.trace fast.trace --format {form}")).stdout
        );
    }
}

#[test]
fn a_comparison_in_a_file_that_is_damaged_or_does_not_have_it_is_said_so() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g");
    let made = engraft(place, "compare plain.trace plain.trace -o both.engraft");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for (asked, why) in [
        ("show both.engraft outlier 1", "there is no outlier 1"),
        ("show both.engraft outlier one", "\"one\" is no number"),
        ("show both.engraft function mian", "no function mian ran in either build"),
        ("show both.engraft gaps", "a comparison has no \"gaps\" to show"),
        ("show both.engraft --verify", "none of these options is for"),
        ("convert both.engraft -o both.fdata", "becomes JSON or CSV"),
        ("convert both.engraft both.engraft -o both.json", "is not added to others"),
        ("compare plain.trace plain.trace -o plain.trace", "plain.trace"),
        ("compare plain.trace plain.trace -o plain", "is a program, and is not replaced"),
        ("compare plain.trace plain.trace -o none/both.engraft", "none/both.engraft"),
    ] {
        let said = engraft(place, asked);
        assert!(said.code == Some(2) && said.stderr.contains(why), "{asked}: {}", said.stderr);
    }
    let whole = std::fs::read(place.join("both.engraft")).expect("written");
    for at in [12, whole.len() / 2, whole.len() - 1] {
        std::fs::write(place.join("cut.engraft"), &whole[..at]).expect("written");
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(place.join("changed.engraft"), changed).expect("written");
        for name in ["cut", "changed"] {
            let said = engraft(place, &format!("show {name}.engraft"));
            let names_it =
                said.stderr.contains(&format!("{name}.engraft")) && said.stderr.contains("damaged");
            assert!(said.code == Some(2) && names_it, "{}", said.stderr);
        }
    }
}

/// The oracles are the symbols of the file, and how often its loop goes round.
#[test]
fn instructions_in_hot_code_that_need_not_be_there_are_told() {
    needs!("gcc", "nm");
    let place = folder();
    let place = place.path();
    for (name, flags) in [("good", "-O1 -g"), ("bad", "-O1 -g -DWASTED")] {
        crate::run::compile(&place.join(name), "wasted.c", flags);
        let ran = engraft(place, &format!("trace -q --no-cache --modules exe -o {name}.trace ./{name}"));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let symbols = must(Command::new("nm").arg(place.join("bad")));
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("a symbol");
        u64::from_str_radix(&line[..16], 16).expect("an address")
    };
    let said = compared(place, "good", "bad");
    assert_eq!(list(&said["wasted"], "old").len(), 0, "{said}");
    let found = list(&said["wasted"], "new").iter().map(|row| {
        let number = |name: &str| row[name].as_u64().expect("a number");
        (row["what"].as_str().expect("text").to_owned(), number("at"), number("runs"), number("instructions"))
    });
    let want = [
        ("spilled-and-refilled".to_owned(), address("spilled"), 10_000, 40_000),
        ("jump-to-next".to_owned(), address("to_next"), 10_000, 10_000),
        ("jump-to-return".to_owned(), address("to_return"), 5_000, 5_000),
    ];
    assert_eq!(found.collect::<Vec<_>>(), want, "{said}");
    let text = engraft(place, "compare good.trace bad.trace").stdout;
    assert!(text.contains("need not be there") && text.contains("spilled and refilled"), "{text}");
}

/// The oracle is the program, which says how many pages it touches.
#[test]
fn events_that_were_sampled_of_both_builds_are_metrics() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    for (name, pages) in [("good", 200), ("bad", 2000)] {
        crate::run::compile(&place.join(name), "pages.c", &format!("-O1 -g -DPAGES={pages}"));
        for words in [
            format!("trace -q --no-cache --modules exe -o {name}.trace ./{name}"),
            format!("sample -q --event page-faults --period 1 --no-chains -o {name}.samples -- ./{name}"),
        ] {
            let ran = engraft(place, &words);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        }
    }
    let words = "compare -q good.trace bad.trace --old-samples good.samples --new-samples bad.samples";
    let said = said(place, &format!("{words} --metric dyn.pmu.page-faults --json"));
    let touch = row(&said, "touch");
    for (side, pages) in [("old", 200.0), ("new", 2000.0)] {
        let n = number(&touch[side]["dyn.pmu.page-faults"]);
        assert!((pages..pages + 8.0).contains(&n), "{side}: {n} of {pages}");
    }
    let first = &said["outliers"][0];
    assert_eq!((&first["function"], &first["metric"]), (&"touch".into(), &"dyn.pmu.page-faults".into()));
    let none = engraft(place, &format!("{words} --metric dyn.pmu.cache-misses"));
    assert!(none.code == Some(2) && none.stderr.contains("they have dyn.pmu.page-faults"), "{}", none.stderr);
    let words = "compare -q good.trace bad.trace --old-samples bad.samples --new-samples good.samples";
    let swapped = engraft(place, words);
    assert!(swapped.code == Some(2) && swapped.stderr.contains("is of another build"), "{}", swapped.stderr);
    let none = engraft(place, "compare good.trace bad.trace --metric dyn.pmu.page-faults");
    assert!(none.code == Some(2) && none.stderr.contains("--old-samples"), "{}", none.stderr);
}

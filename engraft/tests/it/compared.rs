//! `engraft compare`: two builds of a program on one input. What ran is what `count` counts and objdump
//! decodes; what is the same is paired; what was made worse comes first.

mod parts;

use crate::needs;
use crate::run::{Ran, compile, engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Builds a program in one way, and records a run of it.
#[track_caller]
fn recorded(place: &Path, name: &str, flags: &str) {
    compile(&place.join(name), "compared.c", flags);
    let ran = engraft(place, &format!("trace -q --no-cache --modules exe -o {name}.trace ./{name}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[track_caller]
fn compared(place: &Path, old: &str, new: &str) -> Value {
    engraft(place, &format!("compare {old}.trace {new}.trace --json")).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn row<'a>(said: &'a Value, name: &str) -> &'a Value {
    let rows = said["functions"].as_array().expect("a list");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} ran in both: {said}"))
}

/// What share of the smaller log is paired.
fn share(said: &Value, log: &str) -> f64 {
    number(&said["matched"][log]["matched"]) / number(&said["matched"][log]["smaller"])
}

/// By its first instruction: how often each block ran, as a run of `count` says, and where it ends.
fn counted(place: &Path, name: &str) -> BTreeMap<u64, (u64, u64)> {
    engraft(place, &format!("count -q --no-cache --modules exe -o {name}.engraft -- ./{name}"));
    engraft(place, &format!("convert {name}.engraft -q -o {name}.csv"));
    let text = std::fs::read_to_string(place.join(format!("{name}.csv"))).expect("written");
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
    let rows = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [_, _, start, end, n] = cells[..] else { panic!("{line}") };
        (address(start), (address(end), n.parse().expect("a number")))
    });
    rows.filter(|(_, (_, n))| *n > 0).collect()
}

/// By address: the instructions of a file as objdump has them.
fn disassembled(place: &Path, name: &str) -> BTreeMap<u64, String> {
    let text = must(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(place.join(name)));
    let line = |line: &str| {
        let (at, insn) = line.trim_start().split_once(":\t")?;
        Some((u64::from_str_radix(at, 16).ok()?, insn.trim().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// What a metric counts, of an instruction that objdump prints.
fn is_counted(metric: &str, insn: &str) -> bool {
    let words: Vec<&str> = insn.split_whitespace().collect();
    let prefixes = ["bnd", "notrack", "rep", "repz", "lock", "data16", "cs"];
    let op = words.iter().find(|word| !prefixes.contains(word)).copied().unwrap_or_default();
    let insn = insn.split(['#', '<']).next().unwrap_or(insn);
    let operands = insn.split_once(' ').map_or("", |(_, rest)| rest.trim());
    let is_jump = op.starts_with('j');
    match metric {
        "dyn.agg.total" => true,
        "dyn.agg.cond_br" | "dyn.cat.COND_BR" => is_jump && op != "jmp",
        "dyn.agg.jmps" | "dyn.cat.UNCOND_BR" => op == "jmp",
        "dyn.agg.indir_jmps" => op == "jmp" && operands.contains('*'),
        "dyn.agg.calls" | "dyn.cat.CALL" => op == "call",
        "dyn.cat.RET" => op == "ret",
        "dyn.cat.PUSH" => op == "push",
        "dyn.cat.POP" => op == "pop",
        "dyn.cat.DIV" => op.starts_with("div") || op.starts_with("idiv"),
        "dyn.cat.CMOV" => op.starts_with("cmov"),
        "dyn.cat.SETCC" => op.starts_with("set"),
        "dyn.cat.SHIFT" => ["shl", "shr", "sar", "sal"].iter().any(|shift| op.starts_with(shift)),
        "dyn.cat.NOP" => op.starts_with("nop") || op.starts_with("endbr"),
        // Of what stands in memory, the last operand is written, and read where it is changed.
        "dyn.agg.mem_writes" => {
            let written = operands.rsplit_once(',').map_or(operands, |(_, last)| last);
            let in_memory = operands.ends_with(')') && written.contains(')');
            let reads_alone = ["cmp", "test", "lea", "nop", "jmp", "call", "push", "ucomi"];
            op == "call"
                || op == "push"
                || in_memory && !reads_alone.iter().any(|reads| op.starts_with(reads))
        }
        _ => panic!("{metric}"),
    }
}

const METRICS: [&str; 15] = [
    "dyn.agg.total",
    "dyn.agg.cond_br",
    "dyn.agg.jmps",
    "dyn.agg.indir_jmps",
    "dyn.agg.calls",
    "dyn.agg.mem_writes",
    "dyn.cat.COND_BR",
    "dyn.cat.UNCOND_BR",
    "dyn.cat.RET",
    "dyn.cat.PUSH",
    "dyn.cat.POP",
    "dyn.cat.DIV",
    "dyn.cat.CMOV",
    "dyn.cat.SETCC",
    "dyn.cat.SHIFT",
];

#[test]
fn metrics_are_what_objdump_decodes_of_what_count_counts() {
    needs!("gcc", "objdump");
    let place = folder();
    let place = place.path();
    for (name, flags) in [("plain", "-O0 -g"), ("fast", "-O3 -g -fno-align-loops -fno-align-jumps")] {
        recorded(place, name, flags);
        let said = compared(place, name, name);
        let (blocks, insns) = (counted(place, name), disassembled(place, name));
        for metric in METRICS {
            let of_block = |(start, (end, n)): (&u64, &(u64, u64))| {
                n * insns.range(start..end).filter(|(_, insn)| is_counted(metric, insn)).count() as u64
            };
            let mut want: u64 = blocks.iter().map(of_block).sum();
            if metric == "dyn.agg.total" {
                // What runs of padding is in no block.
                want = engraft(place, &format!("show {name}.engraft --json")).json()["instructions"]
                    .as_u64()
                    .expect("a number");
            }
            let got = said["totals"]["new"].get(metric).map_or(0.0, number);
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let want = want as f64;
            assert!((got - want).abs() < 0.5, "{metric} of {name}: {got}, {want}");
        }
    }
}

#[test]
fn a_build_against_itself_has_no_difference() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "fast", "-O2 -g");
    let said = compared(place, "fast", "fast");
    assert!((share(&said, "light") - 1.0).abs() < 1e-9, "{said}");
    assert!((share(&said, "heavy") - 1.0).abs() < 1e-9, "{said}");
    assert_eq!(said["outliers"].as_array().map(Vec::len), Some(0), "{said}");
    assert_eq!(said["unmatched"]["old"].as_array().map(Vec::len), Some(0));
    assert_eq!(said["totals"]["old"], said["totals"]["new"]);
    // All that ran is in intervals.
    assert_eq!(
        number(&said["matched"]["instructions"]["old"]),
        number(&said["totals"]["old"]["dyn.agg.total"])
    );
    let functions = said["functions"].as_array().expect("a list");
    assert!(functions.iter().all(|row| row["old"] == row["new"]), "{said}");
}

/// A library of both builds that has neither lines nor names of what is in it: its loops are what they were,
/// round by round, though the programs have lines.
#[test]
fn loops_of_a_library_without_lines_are_paired() {
    needs!("gcc");
    let place = folder();
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("written");
    let library = "long m[64][64]; long turn(long x) { for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++) \
                   m[i][j] += x * i ^ j; return m[3][x & 63]; }";
    write("turns.c", library);
    let program = "#include <stdio.h>\nlong turn(long); int main(void) { long sum = 0; \
                   for (int i = 0; i < 40; i++) sum += turn(sum + i); printf(\"%ld\\n\", sum); return 0; }";
    write("uses.c", program);
    let gcc = |args: &str| must(Command::new("gcc").args(args.split(' ')).current_dir(place.path()));
    gcc("-O1 -s -shared -fPIC -o libturns.so turns.c");
    for flags in ["-O1", "-O2"] {
        let name = format!("uses{flags}");
        gcc(&format!("{flags} -g -o {name} uses.c -L. -lturns -Wl,-rpath,$ORIGIN"));
        let ran = engraft(
            place.path(),
            &format!("trace -q --no-cache --modules exe,libturns.so -o {name}.trace ./{name}"),
        );
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let said = compared(place.path(), "uses-O1", "uses-O2");
    // Each round of the inner loop is some six instructions.
    let n_short = number(&said["matched"]["at_most_64"]["old"]);
    assert!(share(&said, "heavy") == 1.0 && n_short > 0.99, "{}", said["matched"]);
    let n_rounds = number(&said["matched"]["heavy_as_a_whole"]);
    assert!(n_rounds < 100.0, "{n_rounds} of 166,400 rounds");
}

#[test]
fn calls_and_rounds_of_other_levels_are_paired() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g");
    // Recursion that became a loop is another matter.
    recorded(place, "fast", "-O2 -g -fno-optimize-sibling-calls");
    recorded(place, "kept", "-O2 -g -fno-optimize-sibling-calls -fno-inline");
    for (old, new, least) in [("plain", "kept", 0.98), ("kept", "fast", 0.95), ("plain", "fast", 0.9)] {
        let said = compared(place, old, new);
        for log in ["light", "heavy"] {
            assert!(
                share(&said, log) > least,
                "{old} {new} {log}: {} {}",
                share(&said, log),
                said["matched"]
            );
        }
        for side in ["old", "new"] {
            let (all, in_intervals) = (
                number(&said["totals"][side]["dyn.agg.total"]),
                number(&said["matched"]["instructions"][side]),
            );
            assert!((all - in_intervals).abs() < 0.5, "{side}: {all} {in_intervals}");
        }
        for name in ["hash", "table", "depth", "compare", "dispatch"] {
            let row = row(&said, name);
            assert_eq!(row["old"]["calls"], row["new"]["calls"], "{name} of {old} and {new}");
        }
    }
    // What one build inlined everywhere is in the other alone.
    let said = compared(place, "kept", "fast");
    let alone = said["unmatched"]["old"].as_array().expect("a list");
    assert!(alone.iter().any(|row| row["name"] == "small"), "{said}");
}

/// The paper's own scheme pairs less, of the same events, and leaves nothing that ran out.
#[test]
fn signatures_pair_events_of_the_same_runs() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "plain", "-O0 -g -fno-inline");
    recorded(place, "fast", "-O2 -g -fno-inline");
    let by = |scheme: &str, new: &str| {
        engraft(place, &format!("compare plain.trace {new}.trace --scheme {scheme} --json")).json()
    };
    let itself = by("signatures", "plain");
    assert_eq!((share(&itself, "light"), share(&itself, "heavy")), (1.0, 1.0), "{}", itself["matched"]);
    assert_eq!(itself["outliers"].as_array().map(Vec::len), Some(0), "{}", itself["outliers"]);
    let [signatures, alignment] = ["signatures", "alignment"].map(|scheme| by(scheme, "fast"));
    for log in ["light", "heavy"] {
        let (paired, of) = (&signatures["matched"][log]["matched"], &signatures["matched"][log]["smaller"]);
        assert!(number(paired) > 0.0 && number(paired) <= number(of), "{log}: {paired} of {of}");
        assert_eq!(of, &alignment["matched"][log]["smaller"], "{log}");
    }
    assert_eq!(signatures["matched"]["instructions"], alignment["matched"]["instructions"]);
    for same in ["totals", "functions", "unmatched"] {
        assert_eq!(signatures[same], alignment[same], "{same}");
    }
    // All that ran is in intervals, which say where they are.
    let intervals =
        engraft(place, "compare plain.trace fast.trace --scheme signatures --intervals --json").json();
    let intervals = intervals["intervals"].as_array().expect("a list");
    for side in ["old", "new"] {
        let sum: f64 = intervals.iter().map(|row| number(&row["instructions"][side])).sum();
        let want = number(&signatures["totals"][side]["dyn.agg.total"]);
        assert!((sum - want).abs() <= want / 1000.0, "{side}: {sum} of {want}");
    }
    assert!(intervals.iter().any(|row| row["function"] == "dispatch"), "{intervals:?}");
    let ran = engraft(place, "compare plain.trace fast.trace --scheme signatures --explain main");
    assert!(ran.code == Some(2) && ran.stderr.contains("--scheme"), "{}", ran.stderr);
}

#[test]
fn lines_that_one_build_alone_has_are_not_asked() {
    needs!("gcc", "strip");
    let place = folder();
    let place = place.path();
    recorded(place, "fast", "-O2 -g");
    must(Command::new("strip").args(["-g", "-o"]).arg(place.join("bare")).arg(place.join("fast")));
    let ran = engraft(place, "trace -q --no-cache --modules exe -o bare.trace ./bare");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for (old, new) in [("fast", "bare"), ("bare", "fast")] {
        let said = compared(place, old, new);
        assert_eq!((share(&said, "light"), share(&said, "heavy")), (1.0, 1.0), "{}", said["matched"]);
    }
}

#[test]
fn what_was_made_worse_comes_first_and_fails_a_gate() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "good", "-O2 -g");
    recorded(place, "bad", "-O2 -g -DWORSE=40");
    recorded(place, "higher", "-O3 -g -DWORSE=40");
    for new in ["bad", "higher"] {
        let said = compared(place, "good", new);
        assert_eq!(said["functions"][0]["name"], "table", "{new}: {said}");
        let first = &said["outliers"][0];
        assert_eq!(first["function"], "table", "{new}: {}", said["outliers"]);
        let times = number(&row(&said, "table")["old"]["calls"]);
        assert!(number(&first["new"]) - number(&first["old"]) > 40.0 * 3.0 * times, "{first}");
    }
    let gate = |new: &str, expression: &str| {
        engraft(place, &format!("compare good.trace {new}.trace -q --fail-if '{expression}'")).code
    };
    assert_eq!(gate("good", "dyn.agg.total > 1.001"), Some(0));
    assert_eq!(gate("bad", "dyn.agg.total > 1.001"), Some(1));
    assert_eq!(gate("bad", "any(function, dyn.agg.total > 2 and old.calls == new.calls)"), Some(1));
    assert_eq!(gate("good", "any(function, dyn.agg.total > 2)"), Some(0));
    assert_eq!(gate("bad", "any(interval, new.dyn.agg.total - old.dyn.agg.total > 10000)"), Some(1));
    assert_eq!(gate("bad", "dyn.cat.X87_ALU > 1"), Some(1), "what is not known does not pass");
    assert_eq!(gate("bad", "dyn.cat.NONE > 1"), Some(2));
    assert_eq!(
        gate("bad", "any(interval, new.dyn.agg.mem_writes - old.dyn.agg.mem_writes > 10000)"),
        Some(1)
    );
    assert_eq!(gate("bad", "any(interval, new.dyn.agg.mem_writes < old.dyn.agg.mem_writes)"), Some(0));
    assert_eq!(gate("bad", "new.stat.agg.total > old.stat.agg.total and old.calls == new.calls"), Some(1));
    assert_eq!(gate("bad", "any(function, new.share > 0.999)"), Some(0));
    assert_eq!(gate("bad", "any(interval, new.calls > 1)"), Some(1), "intervals have no calls");
    assert_eq!(gate("bad", "dyn.agg.total"), Some(2), "a number is no condition");
    assert_eq!(gate("bad", "dyn.pmu.cache-misses > 1"), Some(1), "what was not recorded is not known");
    // What fails it is said: the whole, or which part.
    for (expression, because) in [
        ("dyn.agg.total > 1.001", "dyn.agg.total of the whole program: "),
        ("any(function, dyn.agg.total > 2)", "dyn.agg.total of table: "),
        ("any(interval, new.dyn.agg.total - old.dyn.agg.total > 10000)", "dyn.agg.total of table, from "),
    ] {
        let ran = engraft(place, &format!("compare good.trace bad.trace --fail-if '{expression}'"));
        assert!(ran.stderr.contains(because), "{expression}: {}", ran.stderr);
    }
    // What one build alone has is a function, too: the old one has inlined it.
    recorded(place, "plain", "-O0 -g -DWORSE=40");
    assert_eq!(gate("plain", "any(function, old.calls == 0 and new.calls > 10)"), Some(1));
    let ran = engraft(place, "compare good.trace bad.trace --explain main --fail-if 'dyn.agg.total > 1'");
    assert!(ran.code == Some(2) && ran.stderr.contains("--fail-if"), "{}", ran.stderr);
}

#[test]
fn what_is_no_trace_of_a_program_is_refused_by_name() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    recorded(place, "fast", "-O2 -g");
    std::fs::write(place.join("plain.trc"), [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x80]).expect("written");
    engraft(place, "convert plain.trc -q -o plain.trace");
    let refused = |old: &str, new: &str, what: &str| {
        let ran = engraft(place, &format!("compare {old} {new}"));
        assert!(
            ran.code == Some(2) && ran.stderr.contains(what),
            "{old} {new}: {} {}",
            ran.stdout,
            ran.stderr
        );
    };
    refused("fast.trace", "plain.trace", "plain.trace does not say which program");
    refused("nowhere.trace", "fast.trace", "nowhere.trace");
    refused("fast", "fast.trace", "fast is a program, and fast.trace is none");
    refused("./fast", "./nowhere --", "./nowhere");
    refused("./fast", "./fast --setup false --", "--setup false failed");
    refused("fast.trace", "fast.trace --runs 2", "these are recordings");
    // One whose program is another by now.
    std::fs::rename(place.join("fast.trace"), place.join("gone.trace")).expect("it is there");
    recorded(place, "fast", "-O1 -g");
    refused("gone.trace", "fast.trace", "not the file any more");
    // One that was cut off is used up to there, and says so.
    let whole = std::fs::read(place.join("fast.trace")).expect("it is there");
    std::fs::write(place.join("cut.trace"), &whole[..whole.len() / 2]).expect("written");
    let ran = engraft(place, "compare cut.trace fast.trace");
    assert!(ran.stderr.contains("cut.trace"), "{} {}", ran.stdout, ran.stderr);
    // Programs that have nothing to do with each other.
    compile(&place.join("other"), "wasted.c", "-O1 -g");
    engraft(place, "trace -q --no-cache --modules exe -o other.trace ./other");
    let ran = engraft(place, "compare fast.trace other.trace");
    let warned = "hardly anything that fast.trace and other.trace did is the same";
    assert!(ran.code == Some(0) && ran.stderr.contains(warned), "{}", ran.stderr);
}

/// Runs `compare` with `input` on standard input.
#[track_caller]
fn with_input(place: &Path, args: &str, input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
    command.args(args.split_whitespace()).current_dir(place).env("COMPARED", "1");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cargo built it");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn both_programs_run_alike_and_are_recorded() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    std::fs::create_dir(place.join("longer")).expect("a folder");
    compile(&place.join("old"), "runs_alike.c", "-O1 -g");
    compile(&place.join("longer/other_name"), "runs_alike.c", "-O1 -g -DADD=20");
    compile(&place.join("louder"), "runs_alike.c", "-O1 -g -DLOUD=1");
    // Each counts its lines, and what the setup has written, which it adds to.
    let setup = ">kept";
    let words = format!("compare ./old ./longer/other_name --setup {setup} --json -- one two");
    let ran = with_input(place, &words, "a\nb\nc\n");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let said: Value = serde_json::from_str(&ran.stdout).expect("JSON alone");
    assert_eq!(said["runs"]["status"], serde_json::json!({"old": 5, "new": 5}), "two words and three lines");
    assert_eq!(said["runs"]["stdout"]["differs_at"], Value::Null, "{said}");
    // Of each word, how far a variable is from where stacks end: what is there is the same.
    let calls = |name: &str| number(&row(&said, name)["old"]["calls"]);
    assert_eq!((calls("steady"), calls("chance")), (100.0, 100.0));
    let first = &said["outliers"].as_array().expect("a list").iter().find(|row| row["function"] == "steady");
    let first = first.unwrap_or_else(|| panic!("{said}"));
    assert!(number(&first["new"]) - number(&first["old"]) >= 2000.0, "{first}");
    // What is by chance is none of the builds': not without another run.
    let by_chance = |said: &Value| {
        let rows = said["outliers"].as_array().expect("a list");
        rows.iter().filter(|row| row["function"] == "chance").count()
    };
    assert!(by_chance(&said) > 0, "{said}");
    let words = format!("compare ./old ./longer/other_name --setup {setup} --runs 2 --json -- one two");
    let said: Value = serde_json::from_str(&with_input(place, &words, "a\nb\nc\n").stdout).expect("JSON");
    assert_eq!(by_chance(&said), 0, "{said}");
    assert!(number(&said["unsteady"]) > 0.0 && said["runs"]["times"] == 2, "{said}");
    assert_eq!(said["outliers"][0]["function"], "steady", "{said}");
    assert_eq!(row(&said, "chance")["repeats"], false, "{said}");
    assert_eq!(row(&said, "steady")["repeats"], true, "{said}");
    for build in ["old", "new"] {
        let again = &said["runs"]["again"][build];
        assert_eq!((&again["ended_alike"], &again["same_stdout"]), (&true.into(), &true.into()), "{said}");
        assert_ne!(again["totals"]["dyn.agg.total"], said["totals"][build]["dyn.agg.total"], "{said}");
    }
    let left_out = said["runs"]["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|name| name == "libc.so.6"), "{said}");
    // Nor does a gate ask for functions that do not do the same twice.
    let gate = format!("compare ./old ./old --setup {setup} --fail-if any(function,dyn.agg.total!=1)");
    for (runs, code) in [(1, 1), (2, 0)] {
        let ran = with_input(place, &format!("{gate} --runs {runs} -- one two"), "a\n");
        assert_eq!(ran.code, Some(code), "{runs}: {} {}", ran.stdout, ran.stderr);
    }
    // Without the setup, the second finds what the first has written.
    std::fs::remove_file(place.join("kept")).expect("it was written");
    let ran = with_input(place, "compare ./old ./old -- one", "");
    assert!(ran.code == Some(1) && ran.stdout.contains("exit status 1, then 2"), "{}", ran.stdout);
    // What is printed differs, and is not shown.
    std::fs::remove_file(place.join("kept")).expect("it was written");
    let ran = with_input(place, "compare ./old ./louder --setup >kept -- one", "x\n");
    let want = "what they wrote to standard output differs from byte 8 on: 8 bytes, then 14";
    assert!(ran.code == Some(1) && ran.stdout.contains(want), "{} {}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("LOUD"), "{}", ran.stdout);
    // Whatever runs, nothing is left.
    let left: Vec<_> =
        std::fs::read_dir(place).expect("it is there").map(|at| at.expect("one").file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

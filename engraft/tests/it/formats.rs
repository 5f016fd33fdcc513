//! Every format that `convert` writes, read by the tool that it is for; and what other tools write, read by
//! `convert`.

use crate::needs;
use crate::run::{at, built, callgrind, compile, engraft, folder, must};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const LLVM: &str = "/usr/lib/llvm-19/bin";

/// The small program as llvm-bolt wants it, `old`, with exact counts: `old.callgrind`, and the same as fdata
/// and csv.
fn counted() -> &'static Path {
    static COUNTED: OnceLock<PathBuf> = OnceLock::new();
    COUNTED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("counted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("cargo made the folder for us");
        compile(
            &folder.join("old"),
            "words-1.c",
            "-O2 -g -fno-reorder-blocks-and-partition -Wl,--emit-relocs",
        );
        callgrind(&folder, "old");
        for to in ["old.fdata", "old.csv", "old.json"] {
            engraft(&folder, &format!("convert old.callgrind -o {to} --binary old")).ok();
        }
        folder
    })
}

/// A folder with what `counted` made.
fn copied() -> tempfile::TempDir {
    let to = folder();
    for entry in std::fs::read_dir(counted()).expect("it was made") {
        let entry = entry.expect("it can be listed");
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("it can be copied");
    }
    to
}

fn read(to: &Path, name: &str) -> String {
    std::fs::read_to_string(to.join(name)).expect("it was written")
}

/// Counts of blocks, by address and function, as `convert` writes them.
fn blocks(to: &Path, name: &str) -> BTreeMap<String, u64> {
    let text = read(to, name);
    let rows = text.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    rows.map(|row| (format!("{} {}", row[2], row[1]), row[4].parse().expect("a count"))).collect()
}

/// Counts of edges that ran, as `convert` writes them.
fn edges(to: &Path, name: &str) -> BTreeMap<(String, String), u64> {
    let view: serde_json::Value = serde_json::from_str(&read(to, name)).expect("it is JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("an address").to_owned();
    let rows = view["edges"].as_array().expect("a list").iter();
    rows.map(|e| ((text(&e["from"]), text(&e["to"])), e["count"].as_u64().expect("a count")))
        .filter(|(_, n)| *n > 0)
        .collect()
}

fn llvm(to: &Path, tool: &str, args: &str) -> String {
    must(Command::new(format!("{LLVM}/{tool}")).args(args.split_whitespace()).current_dir(to))
}

#[test]
fn bolt_yaml_says_what_the_fdata_says_that_it_was_made_of() {
    needs!("valgrind", "/usr/lib/llvm-19/bin/llvm-bolt");
    let to = copied();
    llvm(to.path(), "llvm-bolt", "old -data old.fdata -w old.yaml -o same");
    for (from, name) in [("old.yaml", "yaml"), ("old.fdata", "fdata")] {
        for extension in ["csv", "json"] {
            engraft(to.path(), &format!("convert {from} -o {name}.{extension} --binary old")).ok();
        }
    }
    let (yaml, fdata) = (blocks(to.path(), "yaml.csv"), blocks(to.path(), "fdata.csv"));
    assert!(fdata.len() > 30, "{fdata:?}");
    assert_eq!(yaml, fdata);
    let (yaml, fdata) = (edges(to.path(), "yaml.json"), edges(to.path(), "fdata.json"));
    assert!(fdata.len() > 30, "{fdata:?}");
    for (edge, n) in &fdata {
        assert_eq!(yaml.get(edge), Some(n), "{edge:?}");
    }
}

#[test]
fn profiles_of_what_llvm_bolt_made_are_translated_back() {
    needs!("valgrind", "/usr/lib/llvm-19/bin/llvm-bolt", "/usr/lib/llvm-19/bin/perf2bolt");
    let to = copied();
    let flags =
        "-reorder-blocks=ext-tsp -reorder-functions=hfsort -split-functions -split-all-cold --enable-bat";
    llvm(to.path(), "llvm-bolt", &format!("old -data old.fdata -o fast {flags}"));
    callgrind(to.path(), "fast");
    engraft(to.path(), "convert fast.callgrind -o back.csv --binary old --bolted fast").ok();
    let (want, mut got) = (blocks(to.path(), "old.csv"), blocks(to.path(), "back.csv"));
    // callgrind counts no stubs in the files that linkers make, but in those that llvm-bolt makes.
    got.retain(|at, _| !at.ends_with("@plt"));
    let sum = |all: &BTreeMap<String, u64>| all.values().sum::<u64>();
    let wrong: Vec<_> = got.iter().filter(|(at, n)| want.get(*at) != Some(*n)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(sum(&got) * 1000 >= sum(&want) * 999, "{} of {}", sum(&got), sum(&want));
    // perf2bolt translates with the same table.
    engraft(to.path(), "convert fast.callgrind -o fast.preagg --binary fast").ok();
    llvm(to.path(), "perf2bolt", "fast -p fast.preagg -pa -o theirs.fdata");
    assert!(read(to.path(), "theirs.fdata").starts_with("boltedcollection\n"));
    engraft(to.path(), "convert theirs.fdata -o theirs.json --binary old").ok();
    engraft(to.path(), "convert fast.callgrind -o ours.json --binary old --bolted fast").ok();
    let (ours, theirs) = (edges(to.path(), "ours.json"), edges(to.path(), "theirs.json"));
    let wrong: Vec<_> = ours.iter().filter(|(e, n)| theirs.get(*e) != Some(*n)).collect();
    assert!(theirs.len() > 30 && wrong.is_empty(), "{wrong:?}");
    // What is not of these two programs is refused.
    compile(&to.path().join("new"), "words-2.c", "-O2");
    llvm(to.path(), "llvm-bolt", "old -o plain");
    for (args, want) in [
        ("fast.callgrind -o x.csv --binary new --bolted fast", "fast was not made of new"),
        ("old.callgrind -o x.csv --binary old --bolted plain", "plain has no table of what llvm-bolt moved"),
        ("theirs.fdata -o x.csv --binary fast", "perf2bolt has translated it back"),
    ] {
        let ran = engraft(to.path(), &format!("convert {args}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(ran.stderr.contains(want), "{args}: {}", ran.stderr);
    }
}

#[test]
fn perf2bolt_makes_of_preagg_what_we_write_as_fdata() {
    needs!("valgrind", "/usr/lib/llvm-19/bin/perf2bolt");
    let to = copied();
    engraft(to.path(), "convert old.callgrind -o old.preagg --binary old").ok();
    llvm(to.path(), "perf2bolt", "old -p old.preagg -pa -o theirs.fdata");
    engraft(to.path(), "convert theirs.fdata -o theirs.json --binary old").ok();
    engraft(to.path(), "convert old.fdata -o ours.json --binary old").ok();
    let (ours, theirs) = (edges(to.path(), "ours.json"), edges(to.path(), "theirs.json"));
    assert!(ours.len() > 30);
    assert_eq!(ours, theirs);
}

#[test]
fn llvm_profdata_finds_every_line_count_in_the_sample_profile() {
    needs!("valgrind", "/usr/lib/llvm-19/bin/llvm-profdata");
    let to = copied();
    engraft(to.path(), "convert old.callgrind -o old.prof --binary old").ok();
    llvm(to.path(), "llvm-profdata", "merge --sample old.prof -o old.profdata");
    llvm(to.path(), "llvm-profdata", "merge --sample --text old.profdata -o again.prof");
    // Sorted otherwise, but the same records: function totals and counts of lines.
    let records = |name: &str| {
        let mut lines: Vec<String> = read(to.path(), name).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert!(records("old.prof").len() > 20);
    assert_eq!(records("old.prof"), records("again.prof"));
}

#[test]
fn pprof_finds_every_execution() {
    needs!("valgrind", "/usr/lib/go-1.19/bin/go");
    let to = copied();
    engraft(to.path(), "convert old.callgrind -o old.pb.gz --binary old").ok();
    let raw = must(
        Command::new("/usr/lib/go-1.19/bin/go")
            .args(["tool", "pprof", "-raw", "old.pb.gz"])
            .current_dir(to.path())
            .env("HOME", to.path())
            .env("PPROF_TMPDIR", to.path()),
    );
    // `executions instructions: location` a sample.
    let samples = raw.lines().skip_while(|l| !l.starts_with("executions/count")).skip(1);
    let samples = samples.take_while(|l| !l.starts_with("Locations"));
    let total: u64 =
        samples.filter_map(|l| l.split_whitespace().next()?.trim_end_matches(':').parse::<u64>().ok()).sum();
    assert_eq!(total, blocks(to.path(), "old.csv").values().sum::<u64>());
    for name in ["hash", "kind", "main"] {
        assert!(raw.contains(&format!(" {name} ")), "{name} in {raw}");
    }
}

#[test]
fn callgrind_annotate_finds_every_instruction() {
    needs!("valgrind", "callgrind_annotate");
    let to = copied();
    engraft(to.path(), "convert old.callgrind -o again.callgrind --binary old").ok();
    let said = must(Command::new("callgrind_annotate").arg("again.callgrind").current_dir(to.path()));
    let total = said.lines().find(|l| l.contains("PROGRAM TOTALS")).expect("a total");
    let total: String =
        total.split('(').next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    let written = read(to.path(), "again.callgrind");
    let totals = written.lines().find_map(|l| l.strip_prefix("totals: ")).expect("we write it");
    assert_eq!(total, totals);
    // Of what valgrind itself counted, by function.
    let theirs = must(
        Command::new("callgrind_annotate").args(["--threshold=100", "old.callgrind"]).current_dir(to.path()),
    );
    let of = |said: &str, name: &str| -> u64 {
        let line =
            said.lines().find(|l| l.contains(&format!(":{name} ")) || l.ends_with(&format!(":{name}")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
        let number: String =
            line.split('(').next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
        number.parse().expect("a number")
    };
    // We have no padding in blocks, so a little of what ran through it less.
    for name in ["hash", "kind"] {
        let (ours, theirs) = (of(&said, name), of(&theirs, name));
        assert!(ours <= theirs && ours * 20 >= theirs * 19, "{name}: {ours} {theirs}");
    }
}

#[test]
fn genhtml_shows_the_lines_that_ran() {
    needs!("valgrind", "genhtml");
    let to = copied();
    engraft(to.path(), "convert old.callgrind -o old.info --binary old").ok();
    let said = must(Command::new("genhtml").args(["-o", "html", "old.info"]).current_dir(to.path()));
    let info = read(to.path(), "old.info");
    let lines: Vec<u64> =
        info.lines().filter_map(|l| l.strip_prefix("DA:")?.split(',').nth(1)?.parse().ok()).collect();
    let ran = lines.iter().filter(|n| **n > 0).count();
    assert!(ran > 20 && said.contains(&format!("({ran} of {} lines)", lines.len())), "{said}");
}

/// A program of many sorts of lines, `one`, counted by us and written as `one.info` and `one.callgrind`.
fn lines() -> tempfile::TempDir {
    let to = folder();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/lines-gcov.c");
    std::fs::copy(source, to.path().join("lines.c")).expect("it is ours");
    must(Command::new("gcc").args(["-O0", "-g", "lines.c", "-o", "one"]).current_dir(to.path()));
    engraft(to.path(), "count -q --no-cache --modules exe -o one.engraft -- ./one").ok();
    for extension in ["info", "callgrind"] {
        engraft(to.path(), &format!("convert -q one.engraft -o one.{extension} --binary one")).ok();
    }
    to
}

/// Records of a tracefile by what stands before the number of executions: of branches, the line alone, and
/// all their counts.
fn traced(text: &str, kind: &str) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for rest in text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(':')) {
        let fields: Vec<&str> = rest.split(',').collect();
        let (key, n) =
            if kind == "FNDA" { (fields[1], fields[0]) } else { (fields[0], fields[fields.len() - 1]) };
        found.entry(key.to_owned()).or_default().push(if n == "-" { 0 } else { n.parse().expect("a count") });
    }
    found.values_mut().for_each(|counts| counts.sort_unstable());
    found
}

#[test]
fn lines_branches_and_functions_ran_as_often_as_gcov_says() {
    needs!("gcc", "gcov", "geninfo", "genhtml");
    let to = lines();
    must(
        Command::new("gcc").args(["-O0", "-g", "--coverage", "lines.c", "-o", "two"]).current_dir(to.path()),
    );
    must(Command::new("./two").current_dir(to.path()));
    must(
        Command::new("geninfo")
            .args(["--rc", "lcov_branch_coverage=1", "-q", "-o", "two.info", "."])
            .current_dir(to.path()),
    );
    let (ours, theirs) = (read(to.path(), "one.info"), read(to.path(), "two.info"));
    for kind in ["DA", "FNDA"] {
        assert!(traced(&theirs, kind).len() > 8);
        assert_eq!(traced(&ours, kind), traced(&theirs, kind), "{kind}");
    }
    // A `switch` is one branch with three ways to gcov, and several comparisons to the processor.
    let branches = |text: &str| {
        let mut found = traced(text, "BRDA");
        found.remove("36").expect("the line of the switch");
        found
    };
    assert!(branches(&theirs).len() > 10);
    assert_eq!(branches(&ours), branches(&theirs));
    let said = must(
        Command::new("genhtml").args(["--branch-coverage", "-o", "html", "one.info"]).current_dir(to.path()),
    );
    let n = |key: &str| ours.lines().find_map(|l| l.strip_prefix(key)).expect("it is summed up").to_owned();
    assert!(said.contains(&format!("({} of {} branches)", n("BRH:"), n("BRF:"))), "{said}");
}

/// What a call that does not come back leaves, runs as often as gcov says; so do destructors at the end of a
/// function, and where exceptions land.
#[test]
fn lines_that_exceptions_leave_ran_as_often_as_gcov_says() {
    needs!("g++", "gcov", "geninfo");
    let to = folder();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/throws-gcov.cc");
    std::fs::copy(source, to.path().join("throws.cc")).expect("it is ours");
    for (name, more) in [("one", &[][..]), ("two", &["--coverage"])] {
        let args = ["-O0", "-g", "throws.cc", "-o", name];
        must(Command::new("g++").args(args).args(more).current_dir(to.path()));
    }
    engraft(to.path(), "count -q --no-cache --modules exe -o one.engraft -- ./one").ok();
    engraft(to.path(), "convert -q one.engraft -o one.info --binary one").ok();
    must(Command::new("./two").current_dir(to.path()));
    must(Command::new("geninfo").args(["-q", "-o", "two.info", "."]).current_dir(to.path()));
    // The library's headers are in both, too.
    let of_ours = |name: &str| {
        let text = read(to.path(), name);
        let mine =
            text.split("SF:").find(|rest| rest.lines().next().is_some_and(|at| at.ends_with("throws.cc")));
        // gcov lists the lines of each copy of a template.
        let lines = traced(mine.expect("it has code"), "DA");
        lines.into_iter().map(|(line, counts)| (line, counts.iter().sum())).collect::<BTreeMap<String, u64>>()
    };
    let (ours, theirs) = (of_ours("one.info"), of_ours("two.info"));
    assert!(theirs.len() > 90, "{}", theirs.len());
    assert_eq!(ours, theirs);
}

/// Inlined copies of a line, and the one that is not, add up.
#[test]
fn copies_of_a_line_add_up() {
    needs!("gcc");
    let to = folder();
    let text = "static int volatile sink;
        int square(int i) {
          return i * i + sink;
        }
        int (*volatile other)(int) = square;
        int main(void) { int sum = 0;
          for (int i = 0; i < 100; i++) {
            sum += square(i);
          }
          sum += other(3); sink = sum; return 0; }";
    built(to.path(), "old", text, "-O1 -finline-functions -g");
    engraft(to.path(), "count -q --no-cache --modules exe -o old.engraft -- ./old").ok();
    engraft(to.path(), "convert -q old.engraft -o old.info --binary old").ok();
    let lines = traced(&read(to.path(), "old.info"), "DA");
    assert_eq!(lines["3"], [101], "{lines:?}");
}

/// Of a line whose constants are loaded before the loop that it stands in, that is no execution.
#[test]
fn what_an_optimiser_moved_is_no_execution_of_its_line() {
    needs!("gcc");
    let to = folder();
    let text = "#include <stdio.h>\n#include <string.h>\nstruct { char name[48]; long n; } s[4];
        __attribute__((noinline)) int thrice(int i) { return i * 3; }
        int main(void) { int sum = 0;
          for (int i = 0; i < 1000; i++) {
            if (i % 10 == 0)
              strcpy(s[1].name, \"abcdefghijklmnopqrstuvw\"), s[1].n++;
            sum += thrice(i);
          }
          printf(\"%d %ld\\n\", sum, s[1].n); return 0; }";
    built(to.path(), "old", text, "-O2 -g");
    engraft(to.path(), "count -q --no-cache --modules exe -o old.engraft -- ./old").ok();
    engraft(to.path(), "convert -q old.engraft -o old.info --binary old").ok();
    let lines = traced(&read(to.path(), "old.info"), "DA");
    assert_eq!((&lines["8"], &lines["9"]), (&vec![100], &vec![1000]), "{lines:?}");
}

/// What a file of callgrind without compression says of functions of `lines.c`: calls with their number and
/// cost, jumps with theirs.
#[derive(Default)]
struct Graph {
    calls: BTreeMap<(String, String), (u64, u64)>,
    /// Taken, and of conditional ones, how often they were come to.
    jumps: BTreeMap<(String, String), (u64, u64)>,
}

fn graph(text: &str) -> Graph {
    const OURS: [&str; 9] = ["odd", "twice", "nothing", "falls", "kind", "loops", "fib", "ends", "main"];
    let mut graph = Graph::default();
    let (mut function, mut callee) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let words: Vec<&str> = value.split_whitespace().collect();
        let mut next =
            || -> Vec<&str> { lines.next().expect("a line of costs").split_whitespace().collect() };
        match key {
            // callgrind keeps what calls itself apart by depth: `fib'2`.
            "fn" => function = value.split('\'').next().unwrap_or_default().to_owned(),
            "cfn" => callee = value.split('\'').next().unwrap_or_default().to_owned(),
            "calls" => {
                let costs = next();
                if OURS.contains(&function.as_str()) && OURS.contains(&callee.as_str()) {
                    let sum = graph.calls.entry((function.clone(), callee.clone())).or_default();
                    sum.0 += words[0].parse::<u64>().expect("a number");
                    sum.1 += costs[2].parse::<u64>().expect("a cost");
                }
            }
            "jump" | "jcnd" => {
                let at = next();
                if OURS.contains(&function.as_str()) {
                    let number = |text: &str| text.parse::<u64>().expect("a number");
                    let (taken, of) = words[0].split_once('/').unwrap_or((words[0], "0"));
                    let sum = graph.jumps.entry((at[0].to_owned(), words[1].to_owned())).or_default();
                    *sum = (sum.0 + number(taken), sum.1 + number(of));
                }
            }
            _ => {}
        }
    }
    graph.jumps.retain(|_, (taken, _)| *taken > 0);
    graph
}

#[test]
fn calls_and_jumps_are_those_of_callgrind() {
    needs!("gcc", "valgrind", "callgrind_annotate");
    let to = lines();
    must(
        Command::new("valgrind")
            .args(["-q", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes"])
            .args([
                "--compress-strings=no",
                "--compress-pos=no",
                "--callgrind-out-file=two.callgrind",
                "./one",
            ])
            .current_dir(to.path()),
    );
    let (ours, theirs) = (graph(&read(to.path(), "one.callgrind")), graph(&read(to.path(), "two.callgrind")));
    assert!(theirs.jumps.len() > 20, "{:?}", theirs.jumps);
    assert_eq!(ours.jumps, theirs.jumps);
    let n =
        |graph: &Graph| graph.calls.iter().map(|(who, (n, _))| (who.clone(), *n)).collect::<BTreeMap<_, _>>();
    assert!(theirs.calls.len() > 8, "{:?}", n(&theirs));
    assert_eq!(n(&ours), n(&theirs));
    for (who, (_, cost)) in &ours.calls {
        let want = theirs.calls[who].1;
        match (who.0.as_str(), who.1.as_str()) {
            // Of what calls itself, callgrind has a cost a depth; of `exit`, all that libc does then.
            ("fib", _) | (_, "ends") => {}
            // Padding that is run through is not in blocks.
            _ => assert!(*cost <= want && cost * 20 >= want * 19, "{who:?}: {cost}, callgrind {want}"),
        }
    }
    let said = must(
        Command::new("callgrind_annotate").args(["--inclusive=yes", "one.callgrind"]).current_dir(to.path()),
    );
    let all =
        read(to.path(), "one.callgrind").lines().find_map(|l| Some(l.strip_prefix("totals: ")?.to_owned()));
    let of_total = |name: &str| {
        let line = said
            .lines()
            .find(|l| l.contains(&format!(":{name} ")))
            .unwrap_or_else(|| panic!("{name} in {said}"));
        line.split('(').next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect::<String>()
    };
    // `main` has all but what starts the program.
    let (all, main): (u64, u64) =
        (all.expect("a total").parse().expect("a number"), of_total("main").parse().expect("a number"));
    assert!(main <= all && main * 100 >= all * 97, "{main} of {all}");
}

#[test]
fn clang_applies_the_counts_of_several_files_to_their_lines() {
    needs!("valgrind", "/usr/lib/llvm-19/bin/clang");
    let to = folder();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    let sources = ["lines-first.c", "lines-second.c"];
    let mut gcc = Command::new("gcc");
    must(
        gcc.args(["-O1", "-g", "-o", "lines"]).args(sources.map(|s| fixtures.join(s))).current_dir(to.path()),
    );
    callgrind(to.path(), "lines");
    engraft(to.path(), "convert lines.callgrind -o lines.prof --binary lines").ok();
    let mut n_expected = 0;
    for source in sources {
        let clang = Command::new(format!("{LLVM}/clang"))
            .args(["-O2", "-g", "-c", "-o", "out.o", "-fprofile-sample-use=lines.prof"])
            .arg("-Rpass-analysis=sample-profile")
            .arg(fixtures.join(source))
            .current_dir(to.path())
            .output()
            .expect("it is installed");
        let said = String::from_utf8_lossy(&clang.stderr).into_owned();
        // What a line says of itself, behind `//`, is what clang must say when it takes over its count.
        let text = std::fs::read_to_string(fixtures.join(source)).expect("it is ours");
        for (i, line) in text.lines().enumerate() {
            let Some((_, want)) = line.split_once(" // ") else { continue };
            let place = format!("{source}:{}:", i + 1);
            let applied: Vec<&str> = said
                .lines()
                .filter(|l| l.contains(&place))
                .filter_map(|l| l.split_once("Applied ")?.1.split_once(" samples").map(|l| l.0))
                .collect();
            assert!(
                !applied.is_empty() && applied.iter().all(|n| *n == want),
                "{place} {applied:?} in\n{said}"
            );
            n_expected += 1;
        }
    }
    assert_eq!(n_expected, 5);
    // Functions of one name keep their own counts where lines have files; read back, no line has more.
    engraft(to.path(), "convert lines.callgrind -o lines.info --binary lines").ok();
    engraft(to.path(), "convert lines.info -q -o again.info --binary lines").ok();
    let (once, again) = (read(to.path(), "lines.info"), read(to.path(), "again.info"));
    assert_eq!(traced(&again, "FNDA"), traced(&once, "FNDA"));
    assert_eq!(once.matches(",init\n").count(), 4);
    let lines = |text: &str| -> BTreeMap<(String, String), u64> {
        let mut file = "";
        let mut found = BTreeMap::new();
        for line in text.lines() {
            file = line.strip_prefix("SF:").unwrap_or(file);
            if let Some((number, n)) = line.strip_prefix("DA:").and_then(|rest| rest.split_once(',')) {
                found.insert((file.to_owned(), number.to_owned()), n.parse().expect("a count"));
            }
        }
        found
    };
    let (once, again) = (lines(&once), lines(&again));
    assert!(
        again.len() > 8 && again.iter().all(|(at, n)| once.get(at).is_some_and(|most| n <= most)),
        "{again:?} {once:?}"
    );
}

/// Executions by instruction of a file in callgrind's format, of addresses in `range`; but of calls, to which
/// callgrind adds those of stubs.
fn executions(text: &str, range: &std::ops::Range<u64>) -> BTreeMap<u64, u64> {
    let (mut all, mut at, mut is_cost, mut calls) = (BTreeMap::new(), 0u64, false, Vec::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let place = words.next().unwrap_or_default();
        let hex = |text: &str| text.strip_prefix("0x").and_then(|n| u64::from_str_radix(n, 16).ok());
        let next = match place.split_at_checked(1) {
            Some(("+", n)) => hex(n).or_else(|| n.parse().ok()).map(|n| at + n),
            Some(("-", n)) => hex(n).or_else(|| n.parse().ok()).map(|n| at - n),
            Some(("*", "")) => Some(at),
            _ => hex(place),
        };
        // What was called stands behind `calls=`.
        let was_cost = std::mem::replace(&mut is_cost, line.starts_with("calls="));
        let Some(next) = next.filter(|_| !line.contains('=')) else { continue };
        at = next;
        calls.extend(was_cost.then_some(at));
        if let Some(n) = words.nth(1).and_then(|n| n.parse::<u64>().ok()).filter(|_| !was_cost)
            && range.contains(&at)
        {
            *all.entry(at).or_default() += n;
        }
    }
    all.retain(|at, n| *n > 0 && !calls.contains(at));
    all
}

/// Behind calls that do not come back, too.
#[test]
fn instructions_are_written_as_often_as_callgrind_counts_them() {
    needs!("gcc", "valgrind");
    let place = folder();
    let folder = place.path();
    let text = "#include <setjmp.h>
        static jmp_buf back; static volatile int n, sum;
        __attribute__((noinline)) void risky(int i) { if (i % 7 == 3) longjmp(back, 1); sum += i; }
        __attribute__((noinline)) void twice(int i) { risky(i); sum += 2; risky(i + 3); sum += 3; if (i & 1) sum ^= 5; }
        int main(void) { for (n = 0; n < 500; n++) if (!setjmp(back)) { twice(n); sum++; } return 0; }";
    built(folder, "old", text, "-O1 -no-pie -fno-pie");
    callgrind(folder, "old");
    engraft(folder, "count -q --no-cache --modules exe -o run.engraft -- ./old").ok();
    engraft(folder, "convert -q run.engraft -o ours.callgrind --binary old").ok();
    // What gcc compiled stands between them.
    let range = at(folder, "old", "risky")..at(folder, "old", "_fini");
    let [ours, theirs] = ["ours.callgrind", "old.callgrind"].map(|name| {
        let text = std::fs::read_to_string(folder.join(name)).expect("it was written");
        executions(&text, &range)
    });
    assert!(theirs.len() > 40, "{}", theirs.len());
    let differ: Vec<_> = theirs.iter().filter(|(at, n)| ours.get(at) != Some(n)).collect();
    assert!(differ.is_empty(), "{} of {}: {differ:x?}", differ.len(), theirs.len());
}

//! Counts where threads may have been stopped in the middle of a block: intervals, where they are needed and
//! nowhere else.

use crate::count::{instrumented, plain};
use crate::needs;
use crate::run::{Ran, built, compile, engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// `engraft` as users without rights run it, whom the kernel does not tell where signals end threads.
fn untold(folder: &Path, args: &str) -> Ran {
    let without = ["--bounding-set=-all", "--inh-caps=-all"];
    let mut tried = Command::new("setpriv");
    let may_drop = tried.args(without).arg("true").stderr(Stdio::null()).status();
    if !may_drop.is_ok_and(|status| status.success()) {
        return engraft(folder, args);
    }
    let mut ran = Command::new("setpriv");
    let ran = ran.args(without).arg(env!("CARGO_BIN_EXE_engraft")).args(args.split_whitespace());
    ran.current_dir(folder).stdin(Stdio::null()).output().expect("it runs").into()
}

/// Whether the kernel tells us where signals end threads, as `doctor` says.
fn kernel_tells() -> bool {
    let said = engraft(Path::new("."), "doctor --json").stdout;
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    let mut checks = said["checks"].as_array().expect("a list").iter();
    let of_signals = checks.find(|c| c["what"] == "being told where signals end threads");
    of_signals.expect("it is looked at")["works"] == true
}

/// The report of a run that ended with the exit status `want`.
#[track_caller]
fn report(ran: &Ran, want: i32) -> Value {
    assert_eq!(ran.code, Some(want), "{}", ran.stderr);
    serde_json::from_str(ran.stderr.lines().next_back().unwrap_or_default()).expect("it is JSON")
}

/// How many threads the report says may have been stopped, after the exit status `want`; where the kernel
/// tells nothing, and where it does, if it does.
#[track_caller]
fn stopped(folder: &Path, words: &str, want: i32) -> (Option<u64>, Option<u64>) {
    let count = format!("count --json --modules exe -o run.engraft -- {words}");
    let n = |ran| report(&ran, want)["stopped"].as_u64();
    (n(untold(folder, &count)), n(engraft(folder, &count)))
}

/// Who ends it is at a call; who has been joined has ended. Who was killed may have been anywhere.
#[test]
fn only_threads_that_may_be_in_a_block_are_said_to_be() {
    needs!("gcc", "sh");
    let kernel_tells = kernel_tells();
    for flags in ["-O1", "-O2 -no-pie -fno-pie", "-O1 -static"] {
        let place = folder();
        compile(&place.path().join("ends"), "ends.c", &format!("{flags} -w -pthread"));
        for (words, status, want) in [
            ("0 r", 3, 0..=0),
            ("4 r", 3, 0..=0),
            ("4 e", 3, 0..=0),
            ("4 _", 3, 0..=0),
            ("4 q", 3, 0..=0),
            ("4 x", 3, 0..=0),
            ("4 a", 128 + 6, 0..=0),
            ("0 k", 128 + 9, 1..=1),
            // The exec came back; the child of vfork ended, not this one.
            ("0 n", 128 + 9, 1..=1),
            ("0 v", 128 + 9, 1..=1),
            ("0 p", 128 + 9, 1..=1),
            ("0 Q", 128 + 9, 1..=1),
            // They have ended, but nobody looked.
            ("4 k", 128 + 9, 1..=5),
            ("0 s", 3, 1..=1),
            ("0 r children", 3, 0..=0),
            ("4 _ children", 3, 0..=0),
            ("0 e children", 3, 0..=0),
            ("0 x children", 3, 0..=0),
            ("0 k children", 3, 5..=5),
            ("0 n children", 3, 5..=5),
            ("0 v children", 3, 5..=5),
            ("0 p children", 3, 5..=5),
            ("0 Q children", 3, 5..=5),
            ("0 s children", 3, 5..=5),
            // Of these it is not known how they ended, as `help count` says; static ones are seen to.
            ("0 a children", 3, 5..=5),
            ("0 S children", 3, 5..=5),
            ("0 q children", 3, if flags.contains("static") { 0..=5 } else { 5..=5 }),
        ] {
            // In a static program, the call that ends it is the C library's own, where the system is called
            // at once.
            let (got, told) = stopped(place.path(), &format!("./ends {words}"), status);
            assert!(got.is_some_and(|n| want.contains(&n)), "{flags}: {words}: {got:?}, not {want:?}");
            // All of these are in a system call when a signal ends them, or end by themselves.
            let most = if kernel_tells { Some(0) } else { got };
            assert!(told <= most, "{flags}: {words}: {told:?}, not {most:?}");
        }
    }
}

/// A signal handler that is `_exit` says nothing; its argument, the signal's number, is how the process
/// ends.
#[test]
fn a_handler_may_be_what_ends_the_process() {
    needs!("gcc");
    let text = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>
        static volatile int never;
        int main(int n, char **v) {
          if (n == 2) return atoi(v[1]);
          signal(SIGALRM, (void (*)(int))END); ualarm(20000, 0);
          while (!never) ;
          _exit(3); }";
    // At fixed addresses, that of `_exit` is a stub of the program's own. Of `exit`, the end is seen: of a
    // static program, all of it.
    let built_so = [
        ("-O1", [1, 1]),
        ("-O1 -no-pie -fno-pie", [0, 1]),
        ("-O2 -fno-plt", [1, 1]),
        ("-O1 -static", [1, 0]),
    ];
    for (flags, want) in built_so {
        for (end, want) in ["_exit", "exit"].into_iter().zip(want) {
            let place = folder();
            built(place.path(), "old", &text.replace("END", end), flags);
            for (words, status, want) in [("./old", 14, want), ("./old 0", 0, 0), ("./old 65", 65, 0)] {
                let got = stopped(place.path(), words, status);
                assert_eq!(got, (Some(want), Some(want)), "{end}, {flags}: {words}");
            }
        }
    }
    let place = folder();
    built(place.path(), "old", "int main(void) { return 14; }", "-O1");
    assert_eq!(stopped(place.path(), "./old", 14), (Some(0), Some(0)));
}

/// A part of what `checks/killed.sh` does.
#[test]
fn counts_of_killed_programs_are_within_what_is_said() {
    needs!("gcc", "python3");
    let place = folder();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../checks/killed.py");
    let us = env!("CARGO_BIN_EXE_engraft");
    let folder = place.path().display().to_string();
    let ran = Command::new("python3").args([script, us, &folder, "24"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("killed: 24 runs"), "{said}");
}

/// `show` gives intervals, in all its forms; `never` has nothing that is not sure; an instrumented file's
/// recording says the same.
#[test]
fn intervals_are_shown() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("ends"), "ends.c", "-O0 -w -pthread");
    instrumented(place.path(), "ends", "new");
    let report = untold(place.path(), "count --no-cache --modules exe -o count.engraft -- ./ends 0 k");
    let line = "1 thread may have been stopped in the middle of a block: ";
    assert!(report.stderr.contains(line), "{}", report.stderr);
    let mut new = Command::new("./new");
    let status = new.args(["0", "k"]).env("ENGRAFT_OUT", "file.engraft").current_dir(place.path()).status();
    assert_eq!(status.ok().and_then(|s| std::os::unix::process::ExitStatusExt::signal(&s)), Some(9));
    for rec in ["count.engraft", "file.engraft"] {
        let text = engraft(place.path(), &format!("show ends function end --counts {rec}")).ok();
        // It ran once; whether what follows is off upwards or downwards depends on which blocks have
        // counters.
        let is_wide = text.contains("  0..1 ×") || text.contains("  1..2 ×");
        assert!(is_wide && text.contains("  1 ×"), "{rec}: {text}");
        let json = engraft(place.path(), &format!("show ends function end --counts {rec} --json")).json();
        let blocks = json["blocks"].as_array().expect("a list");
        let is_wide = |b: &&Value| b["at_least"].as_u64() < b["at_most"].as_u64();
        let wide = blocks.iter().filter(is_wide).count();
        assert!(wide > 0 && wide < blocks.len(), "{rec}: {json}");
        let edges = engraft(place.path(), &format!("show ends edges --counts {rec}")).ok();
        assert!(edges.contains(".."), "{edges}");
        let never = engraft(place.path(), &format!("show ends never --counts {rec}")).ok();
        assert!(!never.contains(".."), "{never}");
        let whole = engraft(place.path(), &format!("show --counts {rec}")).ok();
        assert!(whole.contains(line), "{rec}: {whole}");
    }
}

/// Where signal handlers left code in more places than there is room for, an instrumented file's
/// recording says so.
#[test]
fn what_was_not_written_down_is_said() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("ends"), "ends.c", "-O1 -w -pthread");
    instrumented(place.path(), "ends", "new");
    plain(place.path(), &["./new", "0", "r"]);
    let rec = place.path().join("ends.engraft");
    let mut bytes = std::fs::read(&rec).expect("a recording");
    let show = "show ends.engraft --json";
    assert_eq!(engraft(place.path(), show).stderr, "");
    bytes[96] = 3;
    std::fs::write(&rec, bytes).expect("written");
    for command in [show, "convert ends.engraft --binary ends -o x.csv"] {
        let said = engraft(place.path(), command);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(said.stderr.contains("signal handlers did not return to more places"), "{}", said.stderr);
    }
}

/// How often loops and paths ran in a program that dies in one: the source says it.
#[test]
fn loops_and_paths_of_a_program_that_died_are_within_what_is_said() {
    needs!("gcc");
    // Where the condition is tested first, it is once more than there are rounds.
    for (flags, iterations) in
        [("-O0", 20 * 51 + 31), ("-O1", 20 * 50 + 31), ("-O2 -fno-ipa-cp", 20 * 50 + 31)]
    {
        let place = folder();
        let to = place.path();
        compile(&to.join("dies"), "dies.c", &format!("{flags} -g -w"));
        let ran = untold(to, "count --no-cache --json --modules exe -o run.engraft -- ./dies");
        let report = report(&ran, 128 + 11);
        let shown = engraft(to, "show run.engraft loops --json").json();
        let mut n_wide = 0;
        for view in [&report, &shown] {
            let rows = view["loops"].as_array().expect("a list");
            let inner = rows.iter().find(|l| l["function"] == "inner").expect("it ran");
            let outer = rows.iter().find(|l| l["function"] == "main").expect("it ran");
            let mut wanted =
                vec![(inner, "iterations", iterations), (inner, "entries", 21), (inner, "exits", 20)];
            // Compilers take the last round out.
            if flags == "-O0" {
                wanted.extend([(outer, "iterations", 21), (outer, "entries", 1), (outer, "exits", 0)]);
            }
            for (row, key, want) in wanted {
                let n = row[key].as_u64().expect("it is known");
                let between = &row[format!("{key}_between")];
                let end = |i: usize| between[i].as_u64().unwrap_or(n);
                assert!(
                    (end(0)..=end(1)).contains(&want) && end(1) - end(0) <= 1,
                    "{flags}: {key}: {n} {between}, not {want}"
                );
                n_wide += usize::from(between.is_array());
            }
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            let trips = iterations as f64 / 21.0;
            let between = [0, 1].map(|i| inner["trips_between"][i].as_f64().or(inner["trips"].as_f64()));
            assert!(between[0] <= Some(trips) && between[1] >= Some(trips), "{flags}: {inner}");
        }
        assert!(n_wide >= 4, "{flags}: {shown}");
        for command in ["show run.engraft loops", "show run.engraft"] {
            let text = engraft(to, command).ok();
            let row = text.lines().find(|l| l.contains(" inner ") && l.contains(" 0x")).expect("a row");
            assert!(row.contains(".."), "{flags}: {row}");
        }
        let svg = engraft(to, "show run.engraft function inner --svg").ok();
        let dot = engraft(to, "show run.engraft function inner --dot").ok();
        let has_labels = |text: &str, label: &str| text.contains(label) && text.contains("..");
        assert!(has_labels(&svg, "..21 times") && has_labels(&dot, "..21"), "{flags}: {svg}");
        // The rounds that came back to where they began without the store: all but the last, and those that
        // left.
        let paths = engraft(to, "show run.engraft paths --json").json();
        let rows = paths["paths"].as_array().expect("a list").iter();
        let own = rows.filter(|p| p["function"] == "inner" && p["is_loop"] == true);
        let all: Vec<&Value> = own.collect();
        let rounds = if flags == "-O0" { 20 * 50 + 30 } else { 20 * 49 + 30 };
        assert_eq!(all.len(), 1, "{paths}");
        let (least, most) = (all[0]["at_least"].as_u64(), all[0]["at_most"].as_u64());
        assert!(least <= Some(rounds) && most >= Some(rounds), "{flags}: {rounds}: {paths}");
        // What other formats have is one number each: how many were two is said.
        for (to_file, args) in
            [("x.info", ""), ("x.callgrind", ""), ("x.csv", ""), ("x.fdata", "--binary dies")]
        {
            let report = engraft(to, &format!("convert run.engraft -o {to_file} {args}")).ok();
            assert!(report.contains(" of counts "), "{flags}: {to_file}: {report}");
        }
        let report = engraft(to, "convert run.engraft -o x.json --binary dies").ok();
        assert!(!report.contains("intervals"), "{flags}: {report}");
    }
}

/// Counts of two runs differ if no number can be both: those of the JSON here were written by hand.
#[test]
fn runs_do_not_differ_within_intervals() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    compile(&to.join("dies"), "dies.c", "-O1 -g -w");
    untold(to, "count -q --no-cache --modules exe -o run.engraft -- ./dies");
    engraft(to, "convert -q run.engraft -o first.json --binary dies").ok();
    let text = std::fs::read_to_string(to.join("first.json")).expect("it was written");
    let first: Value = serde_json::from_str(&text).expect("it is JSON");
    // Block 3 of those that may be off, the largest count and its edges.
    let off: Vec<usize> = {
        let all = first["blocks"].as_array().expect("a list");
        (0..all.len()).filter(|i| all[*i]["at_least"].is_u64()).collect()
    };
    let wide = off[0];
    let with = |n: i64, least: i64, most: i64| {
        let mut other = first.clone();
        let block = &mut other["blocks"][wide];
        let at = |key: &str, by: i64| block[key].as_i64().expect("a number") + by;
        let (n, least, most) = (at("count", n), at("at_least", least), at("at_most", most));
        (block["count"], block["at_least"], block["at_most"]) = (n.into(), least.into(), most.into());
        std::fs::write(to.join("second.json"), other.to_string()).expect("written");
        engraft(to, "diff first.json second.json --binary dies")
    };
    let same = with(0, 0, 0);
    assert!(same.code == Some(0) && same.stdout.starts_with("both ran the same: "), "{}", same.stdout);
    // The most of one is the least of the other.
    let within = with(1, 1, 1);
    let words = "1 block and 0 edges may have run as often, or not";
    assert!(within.code == Some(0) && within.stdout.contains(words), "{}", within.stdout);
    assert!(within.stdout.contains("both ran the same, as far as is known"), "{}", within.stdout);
    let apart = with(2, 2, 2);
    assert!(apart.code == Some(1) && apart.stdout.contains("1 block ran another number"), "{}", apart.stdout);
    assert!(apart.stdout.contains(".."), "{}", apart.stdout);
}

/// The report says where: the function and the line are those of the source, the instruction one that writes
/// to memory, as objdump has it; the counts are exact.
#[test]
fn where_a_program_died_is_said_and_its_counts_are_exact() {
    needs!("gcc", "objdump");
    if !kernel_tells() {
        return;
    }
    let source = include_str!("fixtures/dies.c");
    let line = (1..).zip(source.lines()).find(|(_, text)| text.contains("*nowhere = 1")).map(|(n, _)| n);
    for flags in ["-O0", "-O1", "-O2", "-O2 -static", "-O1 -no-pie -fno-pie", "-O1 -shared -fPIC -Dmain=run"]
    {
        let place = folder();
        let to = place.path();
        let is_library = flags.contains("-shared");
        let file = if is_library { "libdies.so" } else { "dies" };
        compile(&to.join(file), "dies.c", &format!("{flags} -g -w"));
        if is_library {
            built(to, "main", "int run(void); int main(void) { return run(); }", "-L. -ldies -Wl,-rpath,.");
        }
        let words = if is_library { "./main" } else { "./dies" };
        let count = "count --no-cache -o run.engraft";
        let ran = engraft(to, &format!("{count} --json -- {words}"));
        let said = report(&ran, 128 + 11);
        let died = &said["died"];
        let has = |key: &str, want: Value| assert_eq!(died[key], want, "{flags}: {key}: {died}");
        has("signal", 11.into());
        has("name", "SIGSEGV".into());
        has("module", file.into());
        has("function", "inner".into());
        has("line", line.into());
        let at = died["at"].as_u64().expect("an address");
        let listing = Command::new("objdump").args(["-d", file]).current_dir(to).output().expect("it runs");
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let insn = listing.lines().find(|l| l.trim_start().starts_with(&format!("{at:x}:")));
        assert!(insn.is_some_and(|i| i.contains("movl   $0x1,(%r")), "{flags}: {at:#x}: {insn:?}");
        assert_eq!(said["stopped"], 0, "{flags}");
        let rows = said["loops"].as_array().expect("a list");
        let inner = rows.iter().find(|l| l["function"] == "inner").expect("it ran");
        let iterations = if flags == "-O0" { 20 * 51 + 31 } else { 20 * 50 + 31 };
        assert_eq!(
            (inner["iterations"].as_u64(), &inner["entries"]),
            (Some(iterations), &21.into()),
            "{flags}"
        );
        assert!(!said.to_string().contains("between"), "{flags}: {said}");
        let text = engraft(to, &format!("{count} -- {words}")).stderr;
        let offset = died["offset"].as_u64().expect("known");
        let want = format!("died of SIGSEGV at inner+{offset:#x} (dies.c:{}) in {file}", line.unwrap_or(0));
        assert!(text.contains(&want), "{flags}: {want}: {text}");
    }
}

//! What perf prints of branches as a trace: the text is made of runs that were stepped through, instruction
//! by instruction, and the trace held against the addresses that were stepped to, and against `engraft
//! trace`.

use crate::needs;
use crate::run::{compile, engraft, folder, must};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// A run of `./old`: where its code lay, and all addresses in order.
struct Stepped {
    /// As the kernel lists it.
    path: String,
    /// In the process.
    code: Range<u64>,
    offset: u64,
    bias: u64,
    at: Vec<u64>,
    /// Steps whose instruction a signal kept from being executed.
    interrupted: BTreeSet<usize>,
    /// Length and text of each instruction of the file.
    insns: BTreeMap<u64, (u64, String)>,
}

fn stepped(folder: &Path, args: &[&str]) -> Stepped {
    compile(&folder.join("steps"), "steps.c", "-O1 -w");
    let ran = Command::new("./steps").args(["old.steps", "./old"]).args(args).current_dir(folder).output();
    let ran = ran.expect("it was built");
    assert!(ran.status.success(), "{ran:?}");
    let bytes = std::fs::read(folder.join("old.steps")).expect("it was written");
    let end = bytes.iter().position(|b| *b == 0).expect("behind the mappings");
    let maps = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{text}"));
    let ours = |line: &&str| line.ends_with("/old");
    let fields = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').expect("a range");
        (number(start)..number(end), number(words[2]), words[5].to_owned())
    };
    let (code, offset, path) =
        fields(maps.lines().filter(ours).find(|l| l.contains("r-xp")).expect("it has code"));
    let (first, ..) = fields(maps.lines().find(ours).expect("it is mapped"));
    let (mut at, mut interrupted) = (Vec::new(), BTreeSet::new());
    for word in bytes[end + 1..].as_chunks::<8>().0 {
        match u64::from_le_bytes(*word) {
            1 => _ = interrupted.insert(at.len() - 1),
            place => at.push(place),
        }
    }
    let is_moved = must(Command::new("readelf").args(["-h", "old"]).current_dir(folder)).contains("DYN");
    let text = must(Command::new("objdump").args(["-d", "-w", "--insn-width=16", "old"]).current_dir(folder));
    let insn = |line: &str| {
        let (at, rest) = line.trim_start().split_once(":\t")?;
        let (bytes, text) = rest.split_once('\t').unwrap_or((rest, ""));
        Some((
            u64::from_str_radix(at, 16).ok()?,
            (bytes.split_whitespace().count() as u64, text.trim().to_owned()),
        ))
    };
    let insns = text.lines().filter_map(insn).collect();
    Stepped { path, code, offset, bias: if is_moved { first.start } else { 0 }, at, interrupted, insns }
}

impl Stepped {
    /// Whether control went from the instruction of a step to another of the program by a branch.
    fn is_taken(&self, n: usize, from: u64, to: u64) -> bool {
        if self.interrupted.contains(&n) {
            return true;
        }
        let (len, text) = &self.insns[&(from - self.bias)];
        let words = text.split_whitespace().filter(|w| !matches!(*w, "bnd" | "notrack" | "lock"));
        let first = words.into_iter().next().unwrap_or_default();
        let always = ["jmp", "call", "ret"].iter().any(|op| first.starts_with(op));
        // One that repeats itself is where it was.
        to != from + len && !(first.starts_with("rep") && !first.starts_with("ret") && to == from) || always
    }

    /// Branches: behind which step, from, to; `None` where it is not in the program.
    fn branches(&self) -> Vec<(usize, Option<u64>, Option<u64>)> {
        let ours = |at: u64| Some(at).filter(|at| self.code.contains(at));
        let pairs = self.at.iter().zip(self.at.iter().skip(1)).enumerate();
        pairs
            .filter_map(|(n, (&from, &to))| match (ours(from), ours(to)) {
                (None, None) => None,
                (Some(from), Some(to)) if !self.is_taken(n, from, to) => None,
                (from, to) => Some((n, from, to)),
            })
            .collect()
    }

    /// Addresses of the file at which `blocks` start, in the order of the steps.
    fn blocks(&self, steps: Range<usize>, blocks: &BTreeSet<u64>) -> Vec<u64> {
        let before = steps.start.checked_sub(1).map(|n| self.at[n]);
        let mut last = before;
        let mut found = Vec::new();
        // Where it was interrupted, and has not been again.
        let before = steps.start.checked_sub(1).filter(|n| self.interrupted.contains(n));
        let mut open: Vec<u64> = before.map(|n| self.at[n]).into_iter().collect();
        for (n, &at) in steps.clone().zip(&self.at[steps]) {
            let place = at.wrapping_sub(self.bias);
            let mut is_again =
                last == Some(at) && self.insns.get(&place).is_some_and(|i| i.1.starts_with("rep"));
            if last.is_some_and(|last| !self.code.contains(&last)) && open.last() == Some(&at) {
                open.pop();
                is_again = true;
            }
            if self.interrupted.contains(&n) && self.code.contains(&at) {
                open.push(at);
            }
            if self.code.contains(&at) && blocks.contains(&place) && !is_again {
                found.push(place);
            }
            last = Some(at);
        }
        found
    }

    fn mapped(&self) -> String {
        let Range { start, end } = self.code;
        format!(
            "PERF_RECORD_MMAP2 7/7: [{start:#x}({:#x}) @ {:#x} fe:00 53 28]: r-xp {}\n",
            end - start,
            self.offset,
            self.path
        )
    }

    /// As `perf script --itrace=b` prints a run of which the program alone is traced.
    fn processor_trace(&self) -> String {
        let mut text = self.mapped();
        let place = |at: Option<u64>| match at {
            Some(at) => format!("{at:16x} fun+0x1 ({})", self.path),
            None => format!("{:>16} [unknown] ([unknown])", 0),
        };
        for (n, from, to) in std::iter::once((0, None, self.at.first().copied())).chain(self.branches()) {
            let flags = if from.is_none() {
                "tr strt"
            } else if to.is_some() && self.interrupted.contains(&n) {
                "hw int"
            } else if to.is_none() {
                "tr end  call"
            } else {
                "jmp"
            };
            writeln!(
                text,
                "  old 7/7 [001]  5.{n:09}:  1  branches:uH:  {flags:<12} {} => {}",
                place(from),
                place(to)
            )
            .expect("a string takes all");
        }
        text
    }
}

/// The addresses of all blocks of `old`.
fn all_blocks(folder: &Path) -> BTreeSet<u64> {
    let cfg = engraft(folder, "show old functions --json").json();
    let functions = cfg["functions"].as_array().expect("a list");
    let mut blocks = BTreeSet::new();
    for function in functions {
        let id = function["id"].as_str().expect("an id");
        let view = engraft(folder, &format!("show old function {id} --json")).json();
        let of = view["blocks"].as_array().expect("a list").iter();
        blocks.extend(of.map(|b| b["at"].as_u64().expect("an address")));
    }
    blocks
}

/// The symbols of a trace: as they are printed, without what is behind their block; and the addresses of
/// blocks.
fn symbols(folder: &Path, trace: &str) -> (Vec<String>, Vec<u64>) {
    engraft(folder, &format!("convert {trace} -q --store packed -o any.trace")).ok();
    let n = engraft(folder, "query any.trace --stats --json").json()["n_symbols"].as_u64().expect("a number");
    let view = engraft(folder, &format!("query any.trace --at 0..{n} --json")).json();
    let (mut all, mut at) = (Vec::new(), Vec::new());
    for symbol in view["symbols"].as_array().expect("a list") {
        let block = symbol["block"].as_u64().map_or_else(String::new, |n| n.to_string());
        let text = |name: &str| symbol[name].as_str().unwrap_or_default().to_owned();
        all.push(format!("{} {} {block}", text("step"), text("function")));
        at.extend(symbol["at"].as_u64());
    }
    (all, at)
}

/// Programs whose first thread does everything, and how they are built and started.
const PROGRAMS: [(&str, &str, &[&str]); 6] = [
    ("branches.c", "-O1 -fno-inline -g", &["40", "3"]),
    ("ways.c", "-O1", &[]),
    ("computed.c", "-O2", &[]),
    ("short.c", "-O2 -no-pie -fno-pie", &[]),
    ("throw-once.cc", "-O1 -x c++ -lstdc++", &[]),
    ("alarms.c", "-O1", &[]),
];

#[test]
fn a_processor_trace_becomes_what_was_stepped_through() {
    needs!("gcc", "g++", "objdump", "readelf");
    for (source, flags, args) in PROGRAMS {
        let place = folder();
        compile(&place.path().join("old"), source, &format!("-w {flags}"));
        let run = stepped(place.path(), args);
        std::fs::write(place.path().join("pt.txt"), run.processor_trace()).expect("written");
        let ran = engraft(place.path(), "convert pt.txt -o pt.trace --json");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{source}: {}", ran.stderr);
        let said: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
        assert_eq!(
            (said["n_astray"].as_u64(), said["n_gaps"].as_u64()),
            (Some(0), Some(0)),
            "{source}: {said}"
        );
        let (_, got) = symbols(place.path(), "pt.trace");
        let want = run.blocks(0..run.at.len(), &all_blocks(place.path()));
        let differ = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(got == want && got.len() > 20, "{source}: {} for {}, from {differ:?}", got.len(), want.len());
    }
}

/// What a recording leaves out: what resolves names when they are first called, which it does not see.
#[test]
fn a_processor_trace_is_what_is_recorded() {
    needs!("gcc", "g++", "objdump", "readelf");
    // Where the timer of the last one rings is another matter each time.
    for (source, flags, args) in PROGRAMS.into_iter().take(5) {
        let place = folder();
        compile(&place.path().join("old"), source, &format!("-w -Wl,-z,now {flags}"));
        let run = stepped(place.path(), args);
        std::fs::write(place.path().join("pt.txt"), run.processor_trace()).expect("written");
        engraft(place.path(), "convert pt.txt -q -o pt.trace").ok();
        let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
        command.args(["trace", "-q", "--no-cache", "-o", "run.trace", "--modules", "exe", "--", "./old"]);
        command.args(args).current_dir(place.path()).output().expect("it runs");
        let (got, _) = symbols(place.path(), "pt.trace");
        let (want, _) = symbols(place.path(), "run.trace");
        // Functions that cannot be moved are not recorded.
        let function = |symbol: &String| symbol.split(' ').nth(1).map(str::to_owned);
        let recorded: BTreeSet<_> = want.iter().map(function).collect();
        let n_all = got.len();
        let got: Vec<String> =
            got.into_iter().filter(|symbol| recorded.contains(&function(symbol))).collect();
        assert!(got.len() * 3 > n_all * 2, "{source}: {} of {n_all}", got.len());
        let differ = got.iter().zip(&want).position(|(a, b)| a != b);
        let around = |all: &[String]| {
            let at = differ.unwrap_or(all.len().min(got.len()).min(want.len()));
            all.iter().take(at + 6).skip(at.saturating_sub(6)).cloned().collect::<Vec<_>>()
        };
        assert!(got == want, "{source}: {:#?}\nis not\n{:#?}", around(&got), around(&want));
    }
}

#[test]
fn branch_stacks_become_stretches_of_what_was_stepped_through() {
    needs!("gcc", "objdump", "readelf");
    for (source, flags, args) in [PROGRAMS[0], PROGRAMS[1], PROGRAMS[2], PROGRAMS[3], PROGRAMS[5]] {
        let place = folder();
        compile(&place.path().join("old"), source, &format!("-w {flags}"));
        let run = stepped(place.path(), args);
        let blocks = all_blocks(place.path());
        let branches = run.branches();
        let (mut text, mut want, mut n_samples) = (run.mapped(), Vec::new(), 0);
        let foreign = |at: Option<u64>| at.unwrap_or(0x7f00_dead_0000);
        // A sample every 23 branches, with the last 32 and some steps behind them.
        for last in (32..branches.len()).step_by(23) {
            let stack = &branches[last - 31..=last];
            let end = branches.get(last + 1).map_or(run.at.len() - 1, |next| next.0);
            let taken = (branches[last].0 + 3).min(end);
            if !run.code.contains(&run.at[taken]) {
                continue;
            }
            write!(text, "  old 7/7 5.{taken:09}: 1 cycles:u: {:16x} fun+0x1 ({}) ", run.at[taken], run.path)
                .expect("a string takes all");
            for (_, from, to) in stack.iter().rev() {
                write!(text, " {:#x}/{:#x}/P/-/-/1", foreign(*from), foreign(*to))
                    .expect("a string takes all");
            }
            text.push('\n');
            n_samples += 1;
            want.extend(run.blocks(stack[0].0 + 1..taken + 1, &blocks));
        }
        assert!(n_samples > 1, "{source}: {} branches", branches.len());
        std::fs::write(place.path().join("lbr.txt"), text).expect("written");
        let ran = engraft(place.path(), "convert lbr.txt -o lbr.trace --json");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{source}");
        let said: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
        assert_eq!(said["n_astray"], 0, "{source}: {said}");
        assert_eq!(said["n_branches"], 32 * n_samples, "{source}: {said}");
        let (symbols, got) = symbols(place.path(), "lbr.trace");
        let differ = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(got == want, "{source}: {} for {}, from {differ:?}", got.len(), want.len());
        let n = |step: &str| symbols.iter().filter(|s| s.starts_with(step)).count();
        assert_eq!(n("F "), n("E "), "{source}");
    }
}

#[test]
fn what_was_lost_is_a_gap_and_bad_texts_are_named() {
    needs!("gcc", "objdump", "readelf");
    let place = folder();
    compile(&place.path().join("old"), "branches.c", "-O1 -fno-inline -no-pie -w");
    let run = stepped(place.path(), &["200", "3"]);
    let text = run.processor_trace();
    let (n, mut cut) = (text.lines().count(), String::new());
    for (i, line) in text.lines().enumerate() {
        match i {
            _ if i == n / 2 => cut.push_str(
                " instruction trace error type 1 time 5.1 cpu 1 pid 7 tid 7 ip 0x1 code 7: Overflow packet\n",
            ),
            _ if (n / 2..n / 2 + 20).contains(&i) => {}
            _ => writeln!(cut, "{line}").expect("a string takes all"),
        }
    }
    let to = |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("written");
    to("cut.txt", &cut);
    let said = engraft(place.path(), "convert cut.txt -o cut.trace --json").json();
    assert_eq!((said["n_gaps"].as_u64(), said["n_astray"].as_u64()), (Some(1), Some(0)), "{said}");
    let stats = engraft(place.path(), "query cut.trace --stats --json").json();
    // Three were open where something is missing.
    assert_eq!((&stats["n_entries"], &stats["n_open"]), (&stats["n_exits"], &3.into()), "{stats}");
    let view =
        engraft(place.path(), &format!("query cut.trace --at 0..{} --json", stats["n_symbols"])).json();
    let symbols = view["symbols"].as_array().expect("a list");
    let gap = symbols.iter().position(|s| s["mark"] == "recording end").expect("the gap is marked");
    let behind = symbols[gap..].iter().find(|s| s["step"] == "F").expect("something is entered behind it");
    assert_eq!((&behind["function"], &behind["mark"]), (&"rounds".into(), &"outside".into()));
    // Its times are those of the text.
    assert_eq!(engraft(place.path(), "convert cut.trace -q -o x.trace.json").stderr, "");

    // What perf does not print is not understood, and a gap.
    let n = text.lines().count() / 2;
    let line = text.lines().nth(n).expect("it has as many");
    let nowhere = line.rsplit_once(" => ").expect("it is a branch").0;
    let nowhere = format!("{nowhere} => ffffffffffffffff [unknown] ([unknown])");
    to("odd.txt", &text.replacen(line, &nowhere, 1));
    let ran = engraft(place.path(), "convert odd.txt -o odd.trace --json");
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!((&said["n_gaps"], &said["n_senseless"]), (&1.into(), &1.into()), "{said}");
    assert!(
        ran.stderr.contains("odd.txt has 1 line of branches with addresses where no code"),
        "{}",
        ran.stderr
    );
    let mapped = text.lines().next().expect("where it lay");
    to("none.txt", &format!("{mapped}\n{nowhere}\n{nowhere}\n"));
    let ran = engraft(place.path(), "convert none.txt -o x.trace");
    assert!(
        ran.code == Some(2) && ran.stderr.contains("none.txt has 2 lines of branches with addresses"),
        "{}",
        ran.stderr
    );

    let other = "/somewhere/else/prog";
    to("elsewhere.txt", &text.replace(&run.path, other));
    let ran = engraft(place.path(), "convert elsewhere.txt -o x.trace");
    assert!(
        ran.code == Some(2) && ran.stderr.contains(other) && ran.stderr.contains("--binary"),
        "{}",
        ran.stderr
    );
    to("prog", "");
    std::fs::copy(place.path().join("old"), place.path().join("prog")).expect("copied");
    engraft(place.path(), "convert elsewhere.txt -q -o x.trace --binary prog").ok();
    engraft(place.path(), "convert pt.txt -q -o y.trace").code.map(|_| ()).expect("it ends");
    to("whole.txt", &text);
    engraft(place.path(), "convert whole.txt -q -o y.trace").ok();
    let count = |file: &str| engraft(place.path(), &format!("query {file} 'rounds: 1' --count")).ok();
    assert_eq!(count("x.trace"), count("y.trace"));
    // Without mappings, symbols tell where it lay; of one at fixed addresses, nothing need.
    let bare: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    to("bare.txt", &bare);
    engraft(place.path(), "convert bare.txt -q -o z.trace").ok();
    assert_eq!(count("z.trace"), count("y.trace"));
    let ran = engraft(place.path(), "convert whole.txt -o x.trace --binary steps");
    assert!(ran.code == Some(2) && ran.stderr.contains("has no steps: it is of"), "{}", ran.stderr);
    let ran = engraft(place.path(), "convert whole.txt -o x.trace --meta old");
    assert!(ran.code == Some(2) && ran.stderr.contains("names come from the binaries"), "{}", ran.stderr);
}

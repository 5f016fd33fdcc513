//! Where indirect calls led, with `--callees`, against what the program counted itself.

use crate::needs;
use crate::run::{engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How many functions the program has that are called.
const N: usize = 10_000;

fn build(to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/callees.c");
    let targets: String = (0..N).map(|n| format!("F({n}) ")).collect();
    std::fs::write(to.join("targets.h"), format!("#define N {N}\n#define TARGETS {targets}\n"))
        .expect("ours");
    let gcc = |args: &[&str]| must(Command::new("gcc").args(args).current_dir(to));
    gcc(&[
        "-O1",
        "-include",
        "targets.h",
        "-rdynamic",
        &source.display().to_string(),
        "-o",
        "a",
        "-ldl",
        "-lpthread",
    ]);
    // The same code at the same place, under two names.
    let library = "void plug(void) {}\nvoid calls(void (*f)(int), int n) { f(n); __asm__ volatile(\"\"); }\n";
    std::fs::write(to.join("lib.c"), library).expect("ours");
    for name in ["a", "b"] {
        let soname = format!("-Wl,-soname,lib{name}.so");
        gcc(&["-O1", "-shared", "-fPIC", &soname, "lib.c", "-o", &format!("lib{name}.so")]);
    }
}

/// By caller, callee, and the callee's module where it is another one.
type Calls = BTreeMap<(String, String, String), u64>;

/// What `recording` says of calls between functions of these names.
fn shown(to: &Path, recording: &str) -> Calls {
    let view = engraft(to, &format!("show {recording} calls --json")).json();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = view["calls"].as_array().expect("a list");
    let of = |row: &Value| {
        let key = (text(row, "caller"), text(row, "callee"), text(row, "callee_module"));
        (key, row["count"].as_u64().expect("a number"))
    };
    let mut sums = Calls::new();
    for (key, n) in rows.iter().map(of) {
        *sums.entry(key).or_default() += n;
    }
    sums
}

/// What the program prints of itself.
fn said(stdout: &str) -> Calls {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let callee = match (words[0], words[1]) {
            ("site_jumps", "0") => "stays".to_owned(),
            ("site_jumps", _) => "leaves".to_owned(),
            (_, n) => format!("target_{n}"),
        };
        ((words[0].to_owned(), callee, String::new()), words[2].parse().expect("a number"))
    };
    stdout.lines().map(line).collect()
}

/// Of every calling instruction, what it led to adds up to how often its block ran.
fn adds_up(to: &Path, recording: &str) {
    engraft(to, &format!("convert -q {recording} --binary a -o all.json")).ok();
    let text = std::fs::read_to_string(to.join("all.json")).expect("it was written");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let at = |row: &Value| {
        let text = row["at"].as_str().expect("an address").trim_start_matches("0x").to_owned();
        u64::from_str_radix(&text, 16).expect("hexadecimal")
    };
    let list = |key: &str| all[key].as_array().cloned().unwrap_or_default();
    let n = |row: &Value| row["count"].as_u64().expect("a number");
    let blocks: BTreeMap<u64, u64> = list("blocks").iter().map(|b| (at(b), n(b))).collect();
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for call in list("calls").iter().chain(&list("calls_out")) {
        *sums.entry(at(call)).or_default() += n(call);
    }
    assert!(sums.len() > 1, "{text}");
    for (at, sum) in sums {
        let (block, n) = blocks.range(..=at).next_back().expect("a block");
        assert_eq!(sum, *n, "{at:#x} in {block:#x}");
    }
}

#[test]
fn every_call_through_a_pointer_is_counted_by_what_it_leads_to() {
    needs!("gcc");
    let to = folder();
    build(to.path());
    engraft(to.path(), "instrument a -o counted --callees --json").json();
    for part in ["plain", "threads", "fork", "jumps", "signals"] {
        for how in ["count", "count --all-blocks", "instrument"] {
            if how == "count --all-blocks" && part != "signals" {
                continue;
            }
            let rec = format!("{part}-{}.engraft", how.len());
            let out = match how {
                "instrument" => {
                    let mut command = Command::new("./counted");
                    command.arg(part).env("ENGRAFT_OUT", &rec).current_dir(to.path());
                    String::from_utf8(command.output().expect("it runs").stdout).expect("text")
                }
                _ => engraft(to.path(), &format!("{how} -q --callees -o {rec} -- ./a {part}")).ok(),
            };
            let want = said(&out);
            assert!(want.len() > 1, "{part}: {out}");
            let all = shown(to.path(), &rec);
            let is_site = |call: &(&(String, String, String), &u64)| call.0.0.starts_with("site_");
            let got: Calls = all.iter().filter(is_site).map(|(k, n)| (k.clone(), *n)).collect();
            let differ = |a: &Calls, b: &Calls| -> Vec<_> {
                a.iter()
                    .filter(|(k, n)| b.get(*k) != Some(*n))
                    .take(5)
                    .map(|(k, n)| (k.clone(), *n))
                    .collect()
            };
            assert_eq!((differ(&got, &want), differ(&want, &got)), (vec![], vec![]), "{how} {part}");
            // Where libc is, is seen in a program that runs for a while.
            if how == "count" && part == "signals" {
                let n =
                    all.iter().find(|(k, _)| k.0 == "main" && k.2 == "libc.so.6").map(|(k, n)| (&*k.1, *n));
                assert_eq!(n, Some(("atoi", 9)), "{all:?}");
            }
            adds_up(to.path(), &rec);
        }
    }
}

#[test]
fn targets_in_other_modules_are_told_apart() {
    needs!("gcc");
    let to = folder();
    build(to.path());
    // One after the other at the same place.
    engraft(to.path(), "count -q --callees -o plugs.engraft -- ./a plugs").ok();
    let calls = shown(to.path(), "plugs.engraft");
    let plug = |module: &str| {
        calls.get(&("plugged".to_owned(), "plug".to_owned(), module.to_owned())).copied().unwrap_or(0)
    };
    assert_eq!((plug("liba.so"), plug("libb.so")), (40, 4), "{calls:?}");
    // A small library has no room for so many: what is not told apart is said, and none is lost.
    let out = engraft(to.path(), "count -q --callees -o library.engraft -- ./a library").ok();
    assert_eq!(said(&out).len(), N);
    let calls = shown(to.path(), "library.engraft");
    let of_library = || calls.iter().filter(|(k, _)| k.0 == "calls");
    assert_eq!(of_library().map(|(_, n)| *n).sum::<u64>(), 3 * N as u64);
    let told: Vec<_> = of_library().filter(|(k, _)| k.2 == "a").collect();
    assert!(told.len() > 3000 && told.len() < N, "{}", told.len());
    assert!(told.iter().all(|(k, n)| k.1.starts_with("target_") && **n == 3), "{told:?}");
    let other = of_library().find(|(k, _)| k.1 == "(indirect call, to one of many)").map(|(_, n)| *n);
    assert_eq!(other, Some(3 * (N - told.len()) as u64));
}

//! Instructions behind calls that did not come back: they did not run. Who counts each of them says so.

use crate::needs;
use crate::run::{engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each instruction of `program` ran, by address, as valgrind counts it.
#[track_caller]
fn counted_by_valgrind(folder: &Path, program: &str) -> BTreeMap<u64, u64> {
    must(Command::new("valgrind").current_dir(folder).args([
        "-q",
        "--tool=callgrind",
        "--dump-instr=yes",
        "--skip-plt=no",
        "--compress-pos=no",
        "--compress-strings=no",
        "--callgrind-out-file=out",
        &format!("./{program}"),
    ]));
    let text = std::fs::read_to_string(folder.join("out")).expect("it was written");
    let (mut all, mut is_own, mut is_call) = (BTreeMap::new(), false, false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_own = object.ends_with(&format!("/{program}"));
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((at, rest)) = line.strip_prefix("0x").and_then(|line| line.split_once(' ')) {
            // The line behind a call has what that cost.
            if !std::mem::take(&mut is_call) && is_own {
                let at = u64::from_str_radix(at, 16).expect("an address");
                let n: u64 = rest.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a count");
                *all.entry(at).or_insert(0) += n;
            }
        }
    }
    all
}

/// The instructions of each function of the program, C++ and C, are those that valgrind counts one by one; so
/// are those of each instruction in what is written for KCachegrind.
#[test]
fn instructions_behind_calls_that_did_not_come_back_are_not_counted() {
    needs!("gcc", "g++", "valgrind");
    for (source, compiler) in [("cuts.cc", "g++"), ("cuts.c", "gcc")] {
        for flags in ["-O0", "-O1", "-O2"] {
            let place = folder();
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(source);
            must(Command::new(compiler).args([flags, "-g", "-o"]).arg(place.path().join("old")).arg(&source));
            let want = counted_by_valgrind(place.path(), "old");
            let ran = engraft(place.path(), "count --no-cache --json --modules exe -o run.engraft -- ./old");
            let report: Value = serde_json::from_str(ran.stderr.trim()).expect("it is JSON");
            let rows = report["functions"].as_array().expect("a list");
            let functions = engraft(place.path(), "show old functions --json").json();
            let mut n_looked_at = 0;
            for function in functions["functions"].as_array().expect("a list") {
                let name = function["name"].as_str().unwrap_or_default();
                // What runs before `main` and behind it, valgrind has start otherwise.
                if name.ends_with("@plt") || name.starts_with('_') && !name.starts_with("_Z") {
                    continue;
                }
                let ranges = function["ranges"].as_array().expect("a list").iter();
                let ranges: Vec<_> = ranges.filter_map(|r| Some(r[0].as_u64()?..r[1].as_u64()?)).collect();
                let of_valgrind = want.iter().filter(|(at, _)| ranges.iter().any(|r| r.contains(at)));
                let want: u64 = of_valgrind.map(|(_, n)| n).sum();
                let row = rows.iter().find(|row| row["at"] == function["at"]);
                let got = row.and_then(|row| row["instructions"].as_u64()).unwrap_or(0);
                assert_eq!(got, want, "{} {flags}: {name}", source.display());
                n_looked_at += usize::from(want > 0);
            }
            assert!(n_looked_at >= 5, "{flags}: {functions}");
            // The same number everywhere.
            let total = report["instructions"].as_u64().expect("a number");
            let shown = engraft(place.path(), "show run.engraft --json").json();
            assert_eq!(shown["instructions"], total, "{flags}");
        }
    }
}

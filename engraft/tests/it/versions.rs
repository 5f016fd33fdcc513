//! A name means all that bears it: each version of a symbol, and what the resolver of an indirect function
//! may return. The programs count their calls themselves.

use crate::needs;
use crate::run::{Ran, built, engraft, folder, must};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = "
    #include <stdlib.h>
    int n_first, n_second, n_low, n_high;
    __attribute__((noinline)) int first(int n) { n_first++; return n + 1; }
    __attribute__((noinline)) int second(int n) { n_second++; return n * 3; }
    __asm__(\".symver first,f@ONE\"); __asm__(\".symver second,f@@TWO\");
    static __attribute__((noinline)) int low(int n) { n_low++; return n - 1; }
    static __attribute__((noinline)) int high(int n) { n_high++; return n - 2; }
    static __attribute__((noinline)) int highest(int n) { return n - 3; }
    extern int chosen; int chosen = 1;
    static void *pick(void) { if (chosen == 1) return high; return chosen ? (void *)highest : (void *)low; }
    int g(int) __attribute__((ifunc(\"pick\")));
    int unused(int n) { return n; }";
const MAIN: &str = "
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdio.h>
    int f(int), g(int); extern int n_first, n_second, n_low, n_high;
    int main(void) { int (*volatile old)(int) = dlvsym(RTLD_DEFAULT, \"f\", \"ONE\"); volatile int n = 0;
      for (int i = 0; i < 300; i++) n += f(i); for (int i = 0; i < 70; i++) n += old(i);
      for (int i = 0; i < 5000; i++) n += g(i);
      printf(\"%d %d %d %d\\n\", n_first, n_second, n_low, n_high); return 0; }";
const VERSIONS: &str = "ONE { global: f; g; unused; n_*; local: *; }; TWO { global: f; } ONE;";

/// Where the symbols of `file` are that are in no dynamic table.
fn places(folder: &Path, file: &str) -> BTreeMap<String, u64> {
    let text = must(Command::new("nm").arg(folder.join(file)));
    let place = |line: &str| {
        let mut words = line.split_whitespace();
        let at = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), at))
    };
    text.lines().filter_map(place).collect()
}

/// What was seen at the points of the recording: line, address if it says one, and how often.
fn seen(folder: &Path, recording: &str) -> (Vec<(String, Option<u64>, u64)>, String) {
    let Ran { stdout, stderr, .. } = engraft(folder, &format!("show {recording} --json"));
    let shown: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let row = |point: &serde_json::Value| {
        let text = point["point"].as_str().expect("text");
        let (line, at) = text.split_once(" at 0x").map_or((text, None), |(line, at)| (line, Some(at)));
        let hex = at.map(|at| at.split(' ').next().unwrap_or_default());
        let at = hex.map(|hex| u64::from_str_radix(hex, 16).expect("an address"));
        (line.to_owned(), at, point["executions"].as_u64().expect("a number"))
    };
    (shown["points"].as_array().expect("a list").iter().map(row).collect(), stderr)
}

#[test]
fn a_name_means_all_versions_and_all_that_resolvers_return() {
    needs!("gcc", "nm", "strip");
    for flags in ["-O2", "-O0", "-O1 -fcf-protection=full"] {
        let place = folder();
        let folder = place.path();
        std::fs::write(folder.join("versions"), VERSIONS).expect("written");
        built(folder, "libown.so", LIBRARY, &format!("{flags} -shared -fPIC -Wl,--version-script=versions"));
        built(folder, "old", MAIN, &format!("{flags} -L. -lown -Wl,-rpath,$ORIGIN -ldl"));
        let said = must(Command::new(folder.join("old")).current_dir(folder));
        assert_eq!(said, "70 300 0 5000\n", "{flags}");
        let at = places(folder, "libown.so");
        let plan = "entry f count\nexit f count\nentry g count\nentry unused count\n";
        std::fs::write(folder.join("own.plan"), plan).expect("written");

        // In the program's own process, a function that is recorded is recorded wherever its name leads.
        for (name, want) in [("f", [("first", 70), ("second", 300)]), ("g", [("high", 5000), ("low", 0)])] {
            let ran = engraft(folder, &format!("trace -q --functions {name} -o run.trace -- ./old"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), said.as_str()), "{}", ran.stderr);
            let shown = engraft(folder, "show --counts run.trace --json").json();
            let all = shown["functions"].as_array().expect("a list");
            for (function, n) in want {
                let row = all.iter().find(|f| f["at"].as_u64() == at.get(function).copied());
                // Who is not recorded may call it in ways that are not seen; its blocks are.
                let instructions = row.and_then(|r| r["instructions"].as_u64()).unwrap_or(0);
                let fits =
                    if n == 0 { instructions == 0 } else { instructions >= n && instructions % n == 0 };
                assert!(fits, "{function}, {flags}: {instructions} instructions of {n} calls");
            }
        }

        must(Command::new("strip").arg(folder.join("libown.so")));
        std::fs::create_dir(folder.join("new")).expect("made");
        engraft(folder, "instrument libown.so -q -o new/libown.so --plan own.plan").ok();
        let mut run = Command::new(folder.join("old"));
        let run = run.current_dir(folder).env("ENGRAFT_OUT", "run.engraft").env("LD_LIBRARY_PATH", "new");
        assert_eq!(must(run), said, "{flags}");
        let (rows, warnings) = seen(folder, "run.engraft");
        let mut want = Vec::new();
        for (line, function, n) in [
            ("entry f count", "first", 70),
            ("entry f count", "second", 300),
            ("exit f count", "first", 70),
            ("exit f count", "second", 300),
            ("entry g count", "low", 0),
            ("entry g count", "high", 5000),
            ("entry g count", "highest", 0),
        ] {
            want.push((line.to_owned(), at.get(function).copied(), n));
        }
        want.push(("entry unused count".to_owned(), None, 0));
        let sorted = |mut rows: Vec<_>| {
            rows.sort();
            rows
        };
        assert_eq!(sorted(rows), sorted(want), "{flags}");
        // What one of its places saw is not missed at the others.
        assert!(warnings.contains("`entry unused count`: nothing came by"), "{warnings}");
        assert!(!warnings.contains("`entry g count`") && !warnings.contains("`entry f count`"), "{warnings}");

        // A place within is one of several functions.
        std::fs::write(folder.join("own.plan"), "before f+1 count\n").expect("written");
        let ran = engraft(folder, "instrument libown.so -o new/libown.so --plan own.plan");
        assert!(ran.stderr.contains("f is 2 functions, at 0x"), "{}", ran.stderr);

        let shown = engraft(folder, "show libown.so function g").ok();
        let listed: Vec<String> =
            ["low", "high", "highest"].iter().map(|f| format!("{:#x}", at[*f])).collect();
        let line = shown.lines().find(|l| l.contains("a resolver: ")).unwrap_or_default();
        assert!(listed.iter().all(|at| line.contains(at.as_str())), "{shown}");
    }
}

/// Versions and resolvers of a library as it is.
#[test]
fn calls_of_the_mathematical_library_are_seen() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let text = "double exp(double), sin(double); int printf(const char *, ...);
        int main(void) { volatile double x = 0.5, sum = 0; for (int i = 0; i < 1000000; i++) sum += exp(x) + sin(x);
        printf(\"%.3f\\n\", sum); return 0; }";
    built(folder, "old", text, "-O1 -fno-builtin -lm");
    let said = must(&mut Command::new(folder.join("old")));
    let library = must(Command::new("gcc").arg("-print-file-name=libm.so.6"));
    std::fs::write(folder.join("m.plan"), "entry exp count\nentry sin count\nentry cos count\n")
        .expect("written");
    engraft(folder, &format!("instrument {} -q -o libm.so.6 --plan m.plan", library.trim())).ok();
    let mut run = Command::new(folder.join("old"));
    let run = run.current_dir(folder).env("ENGRAFT_OUT", "run.engraft").env("LD_LIBRARY_PATH", folder);
    assert_eq!(must(run), said);
    let (rows, warnings) = seen(folder, "run.engraft");
    for (line, want) in
        [("entry exp count", 1_000_000), ("entry sin count", 1_000_000), ("entry cos count", 0)]
    {
        let all: Vec<u64> = rows.iter().filter(|r| r.0 == line).map(|r| r.2).collect();
        assert_eq!(all.iter().max(), Some(&want), "{line}: {all:?}");
        assert_eq!(warnings.contains(&format!("`{line}`")), want == 0, "{warnings}");
    }
}

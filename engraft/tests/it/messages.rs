//! What the command says, and what it keeps quiet about: refusals that save a file, warnings with their
//! remedy, talk as JSON.

use crate::needs;
use crate::run::{Ran, compile, engraft, folder, looks_like, must, pair};
use std::path::Path;
use std::process::Command;

/// `old` and `new` of the small program in a folder of their own, with a small profile of `old`.
fn own_pair() -> tempfile::TempDir {
    let to = folder();
    for name in ["old", "new"] {
        std::fs::copy(pair().join(name), to.path().join(name)).expect("gcc made it");
    }
    std::fs::write(to.path().join("p.fdata"), "0 [unknown] 0 1 hash 0 0 7\n").expect("it is ours");
    to
}

/// Refused with `want`, and the file is what it was.
#[track_caller]
fn spared(args: &str, file: &str, want: &str) {
    let to = own_pair();
    let before = std::fs::read(to.path().join(file)).expect("it is there");
    let ran = engraft(to.path(), args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(looks_like(&ran.stderr, want), "{}", ran.stderr);
    assert!(before == std::fs::read(to.path().join(file)).expect("it is there"), "{file} changed");
}

#[test]
fn what_is_read_is_not_written_over() {
    let over = |what: &str| {
        format!("engraft: {what} is read, and would be overwritten\nhint: name another file after -o")
    };
    spared("carry old new --profile p.fdata -o p.fdata", "p.fdata", &over("p.fdata"));
    spared("carry old new --profile p.fdata -o ./new --to fdata", "new", &over("./new"));
    spared("convert p.fdata --binary old -o p.fdata", "p.fdata", &over("p.fdata"));
    spared("match old new -o old", "old", &over("old"));
    spared("show old -o old", "old", &over("old"));
    // Nor is a program that has nothing to do with it.
    let program = "engraft: new is a program, and is not replaced\nhint: name another file…";
    spared("show old -o new", "new", program);
    spared("convert p.fdata --binary old -o new --to csv", "new", program);
}

#[test]
fn a_picture_is_no_json() {
    for picture in ["--svg", "--dot"] {
        let ran = engraft(pair(), &format!("show old function main {picture} --format csv"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
        assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    }
}

#[test]
fn quiet_says_nothing_beside_the_file() {
    let to = own_pair();
    for args in ["carry old new --profile p.fdata -o q.fdata -q", "convert p.fdata --binary old -o q.csv -q"]
    {
        assert_eq!(engraft(to.path(), args).ok(), "", "{args}");
    }
    // A matching that is written leaves nothing to say; one that is asked for is the answer.
    assert_eq!(engraft(to.path(), "match old new -o pair.map -q").ok(), "");
    assert!(engraft(to.path(), "match old new -q").ok().contains("after matching"));
    assert!(engraft(to.path(), "show old -q").ok().contains("functions"));
    let view = engraft(to.path(), "carry old new --profile p.fdata -o q.fdata -q --json").json();
    assert_eq!(view["schema"], "engraft.carry/1");
}

#[test]
fn data_on_standard_output_are_alone_there() {
    let to = own_pair();
    for (args, file) in [
        ("carry old new --profile p.fdata --to fdata", "q.fdata"),
        ("convert p.fdata --binary old --to csv", "q.csv"),
        ("match old new", "q.map"),
    ] {
        engraft(to.path(), &format!("{args} -o {file}")).ok();
        let want = std::fs::read_to_string(to.path().join(file)).expect("it was written");
        for form in ["", "--json"] {
            let ran = engraft(to.path(), &format!("{args} -o - {form}"));
            assert_eq!((ran.code, &ran.stdout), (Some(0), &want), "{args}");
            assert!(!ran.stderr.is_empty(), "{args}: the report is somewhere");
        }
    }
}

#[test]
fn a_gate_for_what_is_merged_afterwards_is_refused() {
    let to = own_pair();
    let args = "carry old new --profile p.fdata -o q.fdata --require bp=1 --merge p.fdata";
    let ran = engraft(to.path(), args);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("--merge") && ran.stderr.contains("hint: "), "{}", ran.stderr);
    assert!(!to.path().join("q.fdata").exists());
}

#[test]
fn one_function_is_no_functions() {
    let to = own_pair();
    let said = engraft(to.path(), "convert p.fdata --binary old -o q.fdata").ok();
    assert!(said.contains("wrote q.fdata: 1 function\n"), "{said}");
}

#[test]
fn failures_are_json_where_data_would_be() {
    let failed = |args: &str| -> serde_json::Value {
        let ran = engraft(pair(), args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        serde_json::from_str(&ran.stderr).unwrap_or_else(|err| panic!("{err}: {}", ran.stderr))
    };
    let error = failed("show nowhere --json");
    assert_eq!(error["schema"], "engraft.error/1");
    assert_eq!(error["error"], "cannot read nowhere: No such file or directory");
    let error = failed("show old function mian --format json");
    assert_eq!(error["hint"], "did you mean main?");
    // Mistakes on the command line too.
    let error = failed("show old --jsn --format=json");
    assert!(error["error"].as_str().is_some_and(|e| e.contains("--jsn")), "{error}");
}

#[test]
fn each_hint_has_its_line() {
    let ran = engraft(pair(), "match old new --explain mian");
    let want = "engraft: neither build has a function mian\n\
                hint: did you mean main?";
    assert_eq!(ran.stderr.trim_end(), want);
    let ran = engraft(pair(), "show old function --svg");
    assert!(ran.stderr.starts_with("engraft: no function is named"), "{}", ran.stderr);
    let ran = engraft(pair(), "show old function quite_another_name");
    assert_eq!(ran.stderr.lines().filter(|l| l.starts_with("hint: ")).count(), 2, "{}", ran.stderr);
}

#[test]
fn files_that_are_no_program_are_named_for_what_they_are() {
    let to = folder();
    for (bytes, want) in [
        (&b""[..], "it is empty"),
        (b"#!/bin/sh\n", "it is a script"),
        (b"PK\x03\x04", "it is a zip archive"),
        (b"\x00\x01\xfe\xff", "its first bytes are 00 01 fe ff in hexadecimal, an ELF file's 7f 45 4c 46"),
    ] {
        std::fs::write(to.path().join("it"), bytes).expect("it is ours");
        let ran = engraft(to.path(), "show it");
        assert_eq!(ran.code, Some(2));
        assert!(
            looks_like(&ran.stderr, &format!("engraft: it is no ELF file: {want}\nhint: …")),
            "{}",
            ran.stderr
        );
    }
}

const PARTS: &str = r#"
extern "C" int puts(const char *);
namespace shop {
    struct Till { int sum; __attribute__((noinline)) int add(int); int add(int, int); };
    int Till::add(int n) {
        if (__builtin_expect(n < 0, 0)) throw n;
        return sum += n;
    }
    __attribute__((noinline)) int Till::add(int a, int b) { return add(a * b) + 1; }
    __attribute__((noinline)) int sum(int n) { return n > 2 ? puts("sum") : n; }
}
int main(int n, char **) { shop::Till t{n}; return t.add(n) + t.add(n, 3) + shop::sum(n); }
"#;

#[test]
fn functions_are_found_by_what_the_source_and_their_parts_are_called() {
    needs!("g++");
    let to = folder();
    std::fs::write(to.path().join("till.cc"), PARTS).expect("it is ours");
    must(Command::new("g++").args(["-O2", "-o", "till", "till.cc"]).current_dir(to.path()));
    let show = |what: &str| -> Ran {
        let args = ["show", "till", "function", what];
        Command::new(env!("CARGO_BIN_EXE_engraft"))
            .args(args)
            .current_dir(to.path())
            .output()
            .expect("ours")
            .into()
    };
    let by_symbol = show("_ZN4shop4Till3addEi").ok();
    assert!(by_symbol.contains("\n  in the source: shop::Till::add(int)\n"), "{by_symbol}");
    for name in ["shop::Till::add(int)", "_ZN4shop4Till3addEi.cold"] {
        assert_eq!(show(name).ok(), by_symbol, "{name}");
    }
    let several = show("shop::Till::add");
    assert_eq!(several.code, Some(2));
    let want = "engraft: 2 functions of till are called shop::Till::add\nhint: shop::Till::add(int) is at 0x…\nhint: shop::Till::add(int, int) is at 0x…";
    assert!(looks_like(&several.stderr, want), "{}", several.stderr);
    let several = show("add").stderr;
    assert!(looks_like(&several, &want.replace("shop::Till::add\n", "add\n")), "{several}");
    // What only one path ends in needs no path; what is nearly right is suggested as the source has it.
    assert_eq!(show("sum").ok(), show("shop::sum").ok());
    let near = show("summ").stderr;
    assert!(near.contains("did you mean shop::sum(int)?"), "{near}");
    let listed = engraft(to.path(), "show till functions").ok();
    assert!(listed.contains("  shop::Till::add(int, int)\n"), "{listed}");
    let explained = engraft(to.path(), "match till till --explain _ZN4shop4Till3addEi").ok();
    assert!(explained.starts_with("old  shop::Till::add(int) at 0x"), "{explained}");
}

#[test]
fn fdata_of_a_stripped_program_is_said_to_be_of_no_use() {
    let to = own_pair();
    must(Command::new("strip").args(["-o", "bare", "new"]).current_dir(to.path()));
    let ran = engraft(to.path(), "carry old bare --profile p.fdata -o q.fdata");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let want = "engraft: warning: bare has no symbols, and llvm-bolt refuses …q.fdata\nhint: …\nhint: …--binary UNSTRIPPED…";
    assert!(looks_like(&ran.stderr, want), "{}", ran.stderr);
    engraft(to.path(), "carry old bare --profile p.fdata -o q.engraft").ok();
    // The remedy works.
    engraft(to.path(), "convert q.engraft --binary new -o q.fdata").ok();
    let text = std::fs::read_to_string(to.path().join("q.fdata")).expect("it was written");
    assert!(text.contains("0 [unknown] 0 1 hash/1 0 0 7"), "{text}");
}

/// Runs `program` under callgrind without the options that we ask for.
fn bare_callgrind(folder: &Path, program: &str) {
    let out = format!("--callgrind-out-file={program}.callgrind");
    let args = ["-q", "--tool=callgrind", "--dump-instr=yes", &out, &format!("./{program}")];
    must(Command::new("valgrind").args(args).current_dir(folder));
}

#[test]
fn callgrind_without_jumps_is_warned_of_with_the_remedy() {
    needs!("valgrind");
    let to = own_pair();
    bare_callgrind(to.path(), "old");
    let ran = engraft(to.path(), "carry old new --profile old.callgrind -o q.fdata");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let want = "engraft: warning: old.callgrind counts no jumps: …\nhint: …--collect-jumps=yes`";
    assert!(looks_like(&ran.stderr, want), "{}", ran.stderr);
    // Another program's file: only what resembles the one asked for is named, not the C library.
    compile(&to.path().join("words"), "words-2.c", "-O0");
    let ran = engraft(to.path(), "carry words new --profile old.callgrind -o q.fdata");
    assert_eq!(ran.code, Some(2));
    assert!(!ran.stderr.contains("libc") && ran.stderr.contains("/old\nhint: "), "{}", ran.stderr);
}

#[test]
fn samples_without_mappings_name_the_option_that_prints_them() {
    let to = own_pair();
    let text = " old  4242 1000.000001:  1 cpu-clock:  555555555150 hash+0x10 (/tmp/old)\n";
    std::fs::write(to.path().join("old.perf"), text.repeat(3)).expect("it is ours");
    let ran = engraft(to.path(), "carry old new --profile old.perf -o q.fdata");
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("--show-mmap-events"), "{}", ran.stderr);
}

#[test]
fn a_share_of_nothing_is_no_share() {
    let to = own_pair();
    // Entered, and nothing known of its inside: there is no branch to be right about.
    let said = engraft(to.path(), "score p.fdata p.fdata --binary old").ok();
    let row = said.lines().nth(1).unwrap_or_default();
    assert!(row.starts_with("carried") && row.split_whitespace().nth(2) == Some("-"), "{said}");
    let view = engraft(to.path(), "score p.fdata p.fdata --binary old --json").json();
    assert!(view["scores"][0]["bp_share"].is_null(), "{view}");
}

#[test]
fn mistakes_on_the_command_line_are_said_as_others_are() {
    for (args, want) in [
        (
            "shwo old",
            "engraft: unrecognized subcommand 'shwo'\nhint: a similar subcommand exists: 'show'\nhint: Usage: engraft …",
        ),
        (
            "carry old",
            "engraft: the following required arguments were not provided: --profile <FILE> -o <FILE> <NEW>...\nhint: Usage: …",
        ),
        (
            "show old --format yaml",
            "engraft: invalid value 'yaml' for '--format <FORM>' [possible values: table, json, csv]\nhint: --help says more",
        ),
    ] {
        let ran = engraft(pair(), args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(looks_like(&ran.stderr, want), "{}", ran.stderr);
    }
}

#[test]
fn too_many_threads_are_too_many() {
    let ran = engraft(pair(), "show old --threads 999999999");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("functions"), "{}", ran.stdout);
    let want = "engraft: warning: 999999999 threads are asked for, … are used: 8 for each core\nhint: …";
    assert!(looks_like(&ran.stderr, want), "{}", ran.stderr);
}

#[test]
fn a_dash_is_standard_input_for_profiles_alone() {
    let to = own_pair();
    let piped = |args: &str| -> Ran {
        let text = std::fs::File::open(to.path().join("p.fdata")).expect("it is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
        command.args(args.split(' ')).current_dir(to.path()).stdin(text).output().expect("ours").into()
    };
    for (args, same, out) in [
        (
            "convert - --binary old -o a.csv -q",
            "convert p.fdata --binary old -o b.csv -q",
            ["a.csv", "b.csv"],
        ),
        (
            "carry old new --profile - -o a.fdata -q",
            "carry old new --profile p.fdata -o b.fdata -q",
            ["a.fdata", "b.fdata"],
        ),
    ] {
        assert_eq!(piped(args).code, engraft(to.path(), same).code, "{args}");
        let [a, b] = out.map(|name| std::fs::read(to.path().join(name)).expect("it was written"));
        assert!(!a.is_empty() && a == b, "{args}");
    }
    let ran = piped("show -");
    let want = "engraft: a program is not read from standard input\nhint: write it to a file first: `cat > FILE`\nhint: …";
    assert!(ran.code == Some(2) && looks_like(&ran.stderr, want), "{}", ran.stderr);
    let ran = piped("convert p.fdata --binary old -o -");
    assert!(ran.code == Some(2) && ran.stderr.contains("\nhint: "), "{}", ran.stderr);
}

#[test]
fn what_is_no_recording_has_a_remedy() {
    let to = folder();
    for (text, want) in [("ENG", "make one: `engraft count"), ("TN:\nSF:/a.c\n", "say `show BINARY")] {
        std::fs::write(to.path().join("it"), text).expect("it is ours");
        let ran = engraft(to.path(), "show --counts it");
        assert!(ran.code == Some(2) && ran.stderr.contains(&format!("\nhint: {want}")), "{}", ran.stderr);
    }
}

#[test]
fn a_program_is_no_profile() {
    let to = own_pair();
    let ran = engraft(to.path(), "carry old new --profile old -o q.fdata");
    let want = "engraft: old is a program, not a profile\nhint: …";
    assert!(ran.code == Some(2) && looks_like(&ran.stderr, want), "{}", ran.stderr);
}

#[test]
fn a_profile_of_another_program_is_refused_and_one_that_fits_in_part_is_not_believed() {
    let to = own_pair();
    let write = |text: &str| std::fs::write(to.path().join("p.fdata"), text).expect("it is ours");
    let carry = "carry old new --profile p.fdata -o q.fdata --json --require cc=1";
    // Of all its names only `main` is one of ours.
    write(
        "0 [unknown] 0 1 main 0 0 9\n0 [unknown] 0 1 sqlite3_open 0 0 900\n1 sqlite3_step 4 1 sqlite3_step 9 0 91\n",
    );
    let ran = engraft(to.path(), &carry.replace("--json ", ""));
    let want = "engraft: 99.10 % of p.fdata does not fit old (sqlite3_open: the program has no symbol of that name)\nhint: …";
    assert!(ran.code == Some(2) && looks_like(&ran.stderr, want), "{}", ran.stderr);
    assert!(!to.path().join("q.fdata").exists());
    write("0 [unknown] 0 1 main 0 0 70\n0 [unknown] 0 1 sqlite3_open 0 0 30\n");
    let ran = engraft(to.path(), carry);
    let view: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &view["required"]["verdict"]), (Some(1), &"unknown".into()), "{view}");
    assert_eq!(view["input"]["lost_share"], 0.3, "{view}");
    assert_eq!(view["input"]["lost"][0]["what"], "sqlite3_open", "{view}");
    let said = engraft(to.path(), &carry.replace("--json ", "")).stdout;
    assert!(said.contains("p.fdata: 30.00 % (30) does not fit the build it is of\n"), "{said}");
}

#[test]
fn what_nothing_bounds_has_no_number() {
    needs!("valgrind");
    let to = own_pair();
    crate::run::callgrind(to.path(), "old");
    let text = engraft(to.path(), "carry old new --profile old.callgrind -o q.fdata --json").ok();
    assert!(!text.contains(&u64::MAX.to_string()), "{text}");
    let view: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let ranges = view["ranges"].as_array().expect("a list");
    assert!(ranges.iter().any(|r| r["high"].is_null()), "{ranges:?}");
}

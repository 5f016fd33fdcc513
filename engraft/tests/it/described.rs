//! `engraft values --calls NAME` without a prototype: what debug information and the C library's declarations
//! say is what programs print of themselves.

use crate::needs;
use crate::run::{engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Of each function and argument: how often each value came.
type Values = BTreeMap<(String, String), BTreeMap<String, u64>>;

/// Compiles a fixture.
#[track_caller]
fn build(folder: &Path, compiler: &str, source: &str, flags: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(source);
    let mut command = Command::new(compiler);
    // Libraries stand behind who needs them.
    command.current_dir(folder).arg(source).args(flags.split_whitespace()).args(["-o", "asked"]);
    must(&mut command);
}

/// What `./asked` prints of itself.
fn printed(folder: &Path) -> (Values, String, Option<i32>) {
    let ran = Command::new(folder.join("asked")).output().expect("it runs");
    let text = String::from_utf8(ran.stdout).expect("text");
    let mut all = Values::new();
    for line in text.lines() {
        let [function, argument, value] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        *all.entry((function.to_owned(), argument.to_owned()))
            .or_default()
            .entry(value.to_owned())
            .or_default() += 1;
    }
    (all, text, ran.status.code())
}

/// What `values` says of it with these options; the run is as without.
#[track_caller]
fn recorded(folder: &Path, options: &str) -> (Values, Value) {
    let (_, want, code) = printed(folder);
    let ran =
        engraft(folder, &format!("values --no-cache --json=said.json -o all.engraft {options} ./asked"));
    assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), code), "{}", ran.stderr);
    let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut all = Values::new();
    for row in said["calls"].as_array().expect("calls") {
        let function = text(&row["function"]);
        let columns = row["arguments"].as_array().expect("arguments").iter();
        for column in columns.chain(Some(&row["result"]).filter(|result| !result.is_null())) {
            let top = column["top"].as_array().expect("values").iter();
            let counts =
                top.map(|one| (text(&one["value"]), one["count"].as_u64().expect("a number"))).collect();
            all.insert((function.clone(), text(&column["name"])), counts);
        }
    }
    (all, said)
}

/// The function's name without parameters, but where there are several of the name.
fn short(function: &str) -> String {
    match function.split_once('(') {
        Some((name, _)) if !name.ends_with("asked_overload") => name.to_owned(),
        _ => function.to_owned(),
    }
}

/// All that the program prints is recorded, and is that. `changed` are functions that compilers may change:
/// of these, what is recorded is that.
#[track_caller]
fn check(folder: &Path, changed: &[&str], what: &str) -> Values {
    let (truth, ..) = printed(folder);
    let (got, said) = recorded(folder, "--calls *asked*");
    let got: Values =
        got.into_iter().map(|((function, name), counts)| ((short(&function), name), counts)).collect();
    for (place, counts) in &truth {
        match got.get(place) {
            Some(recorded) => assert_eq!(recorded, counts, "{what}: {place:?}"),
            None => assert!(changed.contains(&place.0.as_str()), "{what}: no {place:?} in {said:#}"),
        }
    }
    got
}

#[test]
fn classes_of_cpp_are_passed_as_their_constructors_have_it() {
    needs!("g++", "clang++-19");
    let place = folder();
    for compiler in ["g++", "clang++-19"] {
        for flags in ["-g -O0", "-gdwarf-4 -O2", "-g -O2 -fdebug-types-section"] {
            build(place.path(), compiler, "described.cpp", flags);
            check(place.path(), &[], &format!("{compiler} {flags}"));
        }
    }
}

/// Those that compilers make of static functions, too; from a file of debug information, too.
#[test]
fn functions_of_c_need_no_prototype() {
    needs!("gcc", "clang-19", "objcopy");
    let place = folder();
    let changed = ["asked_constant", "asked_unused", "asked_parts"];
    for compiler in ["gcc", "clang-19"] {
        for flags in ["-g -O0 -w", "-gdwarf-4 -O2 -w", "-g -O2 -w -gz"] {
            build(place.path(), compiler, "described.c", &format!("{flags} -std=gnu99 -lm"));
            let what = format!("{compiler} {flags}");
            let got = check(place.path(), &changed, &what);
            if !flags.contains("-O0") {
                let first =
                    got.keys().filter(|(function, name)| function.starts_with("asked_unused") && name == "a");
                assert_eq!(first.count(), 1, "{what}: debug information says where it is");
            }
        }
    }
    let run = |program: &str, args: &str| {
        must(Command::new(program).current_dir(place.path()).args(args.split(' ')))
    };
    run("objcopy", "--only-keep-debug asked asked.debug");
    run("objcopy", "--strip-all --add-gnu-debuglink=asked.debug asked");
    check(place.path(), &changed, "stripped");
}

#[test]
fn functions_of_rust_are_known_where_debug_information_says_it() {
    needs!("rustc");
    let place = folder();
    for level in ["0", "3"] {
        build(place.path(), "rustc", "described.rs", &format!("-g -C opt-level={level}"));
        let (truth, ..) = printed(place.path());
        let (got, said) = recorded(place.path(), "--calls *asked*");
        let mut found = Vec::new();
        for ((function, name), counts) in &got {
            let function = function.rsplit("::").next().unwrap_or_default();
            if let Some(want) = truth.get(&(function.to_owned(), name.clone())) {
                assert_eq!(counts, want, "{level}: {function} {name}");
                found.push(format!("{function} {name}"));
            }
        }
        let numbers = ["asked_numbers a", "asked_numbers b", "asked_numbers c"];
        let want = if level == "0" { &[][..] } else { &numbers };
        let has = |one: &&str| found.iter().any(|found| found == *one);
        assert_eq!(numbers.iter().copied().filter(has).collect::<Vec<_>>(), want, "{said:#}");
        assert!(["asked_c a", "asked_c b", "asked_c result"].iter().all(has), "{found:?}");
    }
}

#[test]
fn functions_of_fortran_are_called_by_reference() {
    needs!("gfortran");
    let place = folder();
    for level in ["-O0", "-O2"] {
        build(place.path(), "gfortran", "described.f90", &format!("-g -fno-inline {level}"));
        let (truth, ..) = printed(place.path());
        let (got, said) = recorded(place.path(), "--calls *asked*");
        for ((function, name), counts) in truth {
            let there = got.get(&(format!("__asked_MOD_{function}"), name.clone()));
            assert_eq!(there, Some(&counts), "{level}: {function} {name} {said:#}");
        }
        let references = got.get(&("__asked_MOD_asked_reference".to_owned(), "n".to_owned()));
        assert_eq!(references.map(BTreeMap::len), Some(1), "the address of one variable");
    }
}

/// The C library, which has no debug information here, and a static program.
#[test]
fn functions_of_the_c_library_need_no_prototype() {
    needs!("gcc");
    let place = folder();
    for flags in ["-Wl,-z,now", "-static -DSTATIC"] {
        build(place.path(), "gcc", "ways_to_call.c", &format!("-O1 -fno-builtin -w {flags} -lm -ldl"));
        let want = must(Command::new(place.path().join("asked")).current_dir(place.path()));
        let ran = engraft(
            place.path(),
            "values --no-cache --json=said.json -o all.engraft --calls sin --calls pow ./asked",
        );
        assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), Some(0)), "{}", ran.stderr);
        let said = std::fs::read_to_string(place.path().join("said.json")).expect("it is written");
        let said: Value = serde_json::from_str(&said).expect("it is JSON");
        for (name, arguments) in [("sin", &["x"][..]), ("pow", &["x", "y"])] {
            let n: u64 = want
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or_else(|| panic!("{want}"));
            let rows = said["calls"].as_array().expect("calls");
            let row = rows.iter().find(|row| row["function"] == name).expect("it is there");
            assert_eq!((&row["calls"], &row["results"]), (&n.into(), &n.into()), "{flags} {name}");
            let columns = row["arguments"].as_array().expect("arguments");
            let names: Vec<_> = columns.iter().map(|column| column["name"].as_str().expect("text")).collect();
            assert_eq!(names, arguments, "{flags}");
            for column in columns.iter().chain([&row["result"]]) {
                assert_eq!((column["type"].as_str(), column["total"].as_u64()), (Some("double"), Some(n)));
            }
        }
    }
}

/// Arguments in memory that a prototype does not have are found by whom the function jumps to, all the same.
#[test]
fn a_prototype_with_fewer_arguments_spoils_no_jump() {
    needs!("gcc");
    let place = folder();
    build(place.path(), "gcc", "fewer.c", "-O2");
    let want = must(Command::new(place.path().join("asked")).current_dir(place.path()));
    let mut ran = Command::new(env!("CARGO_BIN_EXE_engraft"));
    ran.args([
        "values",
        "--no-cache",
        "--json=said.json",
        "-o",
        "all.engraft",
        "--calls",
        "long first(long a);",
    ]);
    let ran = ran.arg("./asked").current_dir(place.path()).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), want);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("takes arguments in memory that its prototype does not have"), "{stderr}");
    let said = std::fs::read_to_string(place.path().join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    let row = &said["calls"][0];
    assert_eq!((&row["calls"], &row["left"]), (&3.into(), &3.into()));
}

/// Entries alone: how often, with what, and nothing of how calls ended.
#[test]
fn without_results_only_arguments_are_recorded() {
    needs!("gcc");
    let place = folder();
    build(place.path(), "gcc", "fewer.c", "-O2 -g");
    let want = must(Command::new(place.path().join("asked")).current_dir(place.path()));
    let ran = engraft(
        place.path(),
        "values --no-cache --no-results --json=said.json -o all.engraft --calls first --calls last ./asked",
    );
    assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), Some(0)), "{}", ran.stderr);
    let said = std::fs::read_to_string(place.path().join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    for (n, name) in ["a", "b"].iter().enumerate() {
        let row = &said["calls"][n];
        assert_eq!(row["calls"], 3);
        assert!(["results", "left", "open", "result"].iter().all(|what| row[what].is_null()), "{row}");
        let columns = row["arguments"].as_array().expect("arguments");
        assert_eq!(columns.len(), 7);
        let column = columns.iter().find(|column| column["name"] == *name).expect("it is there");
        assert_eq!(column["distinct"], 3, "{row}");
    }
}

//! Recordings that are cut off, of other versions, of other builds: one error, and what is whole is read.

use crate::count::{instrumented, plain};
use crate::needs;
use crate::run::{built, compile, engraft, folder};
use std::collections::BTreeSet;
use std::path::Path;

/// Rows of the CSV that `convert` makes of `recording`, and what it says; `None` if it fails.
fn rows(place: &Path, recording: &str) -> (Option<BTreeSet<String>>, String) {
    let ran = engraft(place, &format!("convert {recording} -o rows.csv"));
    let text =
        (ran.code == Some(0)).then(|| std::fs::read_to_string(place.join("rows.csv")).expect("written"));
    (text.map(|text| text.lines().map(str::to_owned).collect()), ran.stderr)
}

/// Cuts `recording` at every `step`th byte: fails unless each is refused with one error, or gives whole
/// modules of it.
#[track_caller]
fn cut(place: &Path, recording: &str, step: usize) -> BTreeSet<usize> {
    let bytes = std::fs::read(place.join(recording)).expect("it is there");
    let (all, _) = rows(place, recording);
    let all = all.expect("it is whole");
    let of = |module: &str, rows: &BTreeSet<String>| {
        rows.iter().filter(|row| row.split(',').next().is_some_and(|m| m.ends_with(module))).count()
    };
    let mut seen = BTreeSet::new();
    for len in (1..bytes.len()).step_by(step) {
        std::fs::write(place.join("cut.engraft"), &bytes[..len]).expect("written");
        let (some, said) = rows(place, "cut.engraft");
        let Some(some) = some else {
            let lines: Vec<_> = said.lines().filter(|line| !line.starts_with("hint: ")).collect();
            assert!(
                lines.len() == 1 && lines[0].starts_with("engraft: cannot use cut.engraft: "),
                "{len}: {said}"
            );
            seen.insert(0);
            continue;
        };
        let warnings =
            said.lines().filter(|line| line.contains("cut.engraft was cut off or changed")).count();
        assert_eq!(warnings, 1, "{len}: {said}");
        assert!(some.is_subset(&all), "{len}");
        let whole = ["host", "plugin.so"].map(|module| of(module, &some));
        for (n, module) in whole.into_iter().zip(["host", "plugin.so"]) {
            assert!(n == 0 || n == of(module, &all), "{len} {module}: {n}");
        }
        seen.insert(whole.iter().filter(|n| **n > 0).count());
    }
    seen
}

#[test]
fn what_is_whole_of_a_recording_is_read() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    let ran = engraft(place.path(), "count -q --no-cache -o run.engraft -- ./host");
    assert_eq!(ran.code, Some(0));
    let mut seen = cut(place.path(), "run.engraft", 37);
    // The last bytes are a checksum: both modules may be whole without them.
    seen.remove(&2);
    assert_eq!(seen, [0, 1].into());
    let bytes = std::fs::read(place.path().join("run.engraft")).expect("it is there");
    std::fs::write(place.path().join("last.engraft"), &bytes[..bytes.len() - 1]).expect("written");
    let (whole, said) = rows(place.path(), "last.engraft");
    assert_eq!(whole, rows(place.path(), "run.engraft").0, "{said}");
    assert!(said.contains("2 of its 2 modules are whole"), "{said}");
}

/// Another reader of ours, that of valgrind's files, finds in one file of all modules what each has.
#[test]
fn all_modules_of_a_recording_are_in_one_file() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -g -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    assert_eq!(engraft(place.path(), "count -q --no-cache -o run.engraft -- ./host").code, Some(0));
    engraft(place.path(), "convert run.engraft -o run.callgrind").ok();
    for module in ["host", "plugin.so"] {
        let csv = |from: &str| {
            engraft(place.path(), &format!("convert {from} -o one.csv --binary {module}")).ok();
            let text = std::fs::read_to_string(place.path().join("one.csv")).expect("written");
            let rows = text.lines().filter(|row| !row.ends_with(",0"));
            rows.map(|row| row.split_once(',').expect("columns").1.to_owned()).collect::<Vec<_>>()
        };
        let (whole, one) = (csv("run.callgrind"), csv("run.engraft"));
        assert!(one.len() > 3 && whole == one, "{module}: {whole:#?} {one:#?}");
    }
    // Only one of them has lines.
    let ran = engraft(place.path(), "convert run.engraft -o run.info --json");
    assert!(
        ran.stdout.contains("plugin.so") && ran.stdout.contains("no debug information"),
        "{}",
        ran.stdout
    );
    let text = std::fs::read_to_string(place.path().join("run.info")).expect("written");
    assert_eq!(text.matches("TN:").count(), 1);
    assert!(text.contains("plugin.c"), "{text}");
}

#[test]
fn what_a_program_recorded_by_itself_is_read_as_far_as_it_goes() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    instrumented(place.path(), "host", "new");
    assert_eq!(plain(place.path(), &["./new"]).status.code(), Some(0));
    // Its tables alone have 70 kB.
    assert_eq!(cut(place.path(), "host.engraft", 4099), [0].into());
}

#[test]
fn recordings_of_other_versions_and_builds_are_refused() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("killed"), "killed.c", "-O1");
    compile(&place.path().join("other"), "killed.c", "-O2");
    instrumented(place.path(), "killed", "new");
    plain(place.path(), &["./new"]);
    engraft(place.path(), "count -q --no-cache -o run.engraft -- ./killed");
    let newer = |from: &str, at: usize, version: u8, want: &str| {
        let mut bytes = std::fs::read(place.path().join(from)).expect("it is there");
        bytes[at] = version;
        std::fs::write(place.path().join("newer.engraft"), bytes).expect("written");
        for verb in ["convert newer.engraft -o x.csv", "show --counts newer.engraft"] {
            let ran = engraft(place.path(), verb);
            let first = ran.stderr.lines().next().unwrap_or_default();
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{verb}");
            assert!(
                first.starts_with("engraft: cannot use newer.engraft: ") && first.contains(want),
                "{first}"
            );
            assert!(ran.stderr.lines().skip(1).all(|line| line.starts_with("hint: ")), "{}", ran.stderr);
        }
    };
    newer("run.engraft", 8, 9, "it is of version 9, we read version 1");
    newer("killed.engraft", 7, 9, "another version of engraft wrote it, in format 9");
    for recording in ["run.engraft", "killed.engraft"] {
        let ran = engraft(place.path(), &format!("convert {recording} -o x.csv --binary other"));
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.starts_with(&format!("engraft: cannot use {recording}: ")), "{}", ran.stderr);
    }
    assert!(!place.path().join("x.csv").exists());
}

/// Recordings are found to be of their binaries, whatever these are called; one that is gone is asked for.
#[test]
fn binaries_are_found_again_whatever_they_are_called() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    needs!("gcc");
    // The last looks as the first is written.
    for name in [&b"f\xff\xc3"[..], b"\xe9t\xe9", b"f \xc3\xa9", b"f\\xff\\xc3"] {
        let place = folder();
        let path = place.path().join(OsStr::from_bytes(name));
        built(place.path(), "old", "int main(void) { return 0; }", "-O1");
        std::fs::rename(place.path().join("old"), &path).expect("renamed");
        let run = |before: &[&str], after: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_engraft"));
            command.current_dir(place.path()).args(before).arg(&path).args(after);
            let ran = command.output().expect("it runs");
            assert!(ran.status.success(), "{ran:?}");
        };
        run(&["count", "-q", "--no-cache", "-o", "run.engraft", "--"], &[]);
        run(&["trace", "-q", "--no-cache", "--modules", "exe", "-o", "run.trace", "--"], &[]);
        run(&["instrument", "-q", "-o", "new"], &[]);
        let ran = std::process::Command::new(place.path().join("new"))
            .env("ENGRAFT_OUT", place.path().join("new.engraft"))
            .status();
        assert!(ran.expect("it runs").success());
        for args in [
            "show --counts run.engraft",
            "show --counts new.engraft",
            "convert run.engraft -o run.csv",
            "show --counts run.engraft function main",
            "convert run.trace -o trace.csv",
            "query run.trace 'main: 0' --context",
        ] {
            let ran = engraft(place.path(), args);
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args}");
        }
        std::fs::rename(&path, place.path().join("elsewhere")).expect("renamed");
        // What an instrumented program leaves has no code in it; what `count` writes has.
        for args in ["show --counts new.engraft", "convert new.engraft -o run.csv"] {
            let ran = engraft(place.path(), args);
            assert!(ran.code == Some(2) && ran.stderr.contains("show BINARY --counts REC"), "{}", ran.stderr);
        }
        engraft(place.path(), "show --counts run.engraft function main").ok();
        engraft(place.path(), "show elsewhere --counts run.engraft function main").ok();
        engraft(place.path(), "convert run.engraft -q -o run.csv --binary elsewhere").ok();
    }
}

//! Programs that a counted process becomes or starts are counted, too, and behave as they did.

use crate::count::{blocks, plain};
use crate::needs;
use crate::run::{compile, engraft, folder, must, put_program};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `command` under `count --follow`; fails unless it prints and ends as it does by itself. Returns what
/// was said, as JSON by line.
#[track_caller]
fn followed(place: &Path, command: &[&str]) -> String {
    let want = plain(place, command);
    let us = env!("CARGO_BIN_EXE_engraft");
    let mut words = vec![us, "count", "--follow", "--json", "--no-cache", "-o", "run.engraft", "--"];
    words.extend(command);
    let got = plain(place, &words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (text(&got.stdout), got.status.code()),
        (text(&want.stdout), want.status.code()),
        "{command:?}"
    );
    text(&got.stderr)
}

/// How often the loop of `work` ran, and how often it printed.
#[track_caller]
fn works(place: &Path, command: &[&str], binary: &str) -> (Option<u64>, u64) {
    let printed = plain(place, command).stdout.split(|b| *b == b'\n').filter(|l| *l == b"work").count();
    followed(place, command);
    (hottest(place, binary), 1000 * printed as u64)
}

/// The most of `work`'s blocks.
#[track_caller]
fn hottest(place: &Path, binary: &str) -> Option<u64> {
    must(Command::new(env!("CARGO_BIN_EXE_engraft")).current_dir(place).args([
        "convert",
        "run.engraft",
        "-q",
        "-o",
        "work.csv",
        "--binary",
        binary,
    ]));
    let text = std::fs::read_to_string(place.join("work.csv")).expect("written");
    let of_work = text.lines().filter(|line| line.split(',').nth(1) == Some("work"));
    of_work.filter_map(|line| line.rsplit(',').next()?.parse().ok()).max()
}

#[test]
fn what_a_program_becomes_or_starts_is_counted() {
    needs!("gcc", "sh");
    for flags in ["-O1 -pthread", "-O1 -pthread -static", "-O2 -pthread -no-pie"] {
        let place = folder();
        compile(&place.path().join("starts"), "starts.c", flags);
        for how in [
            "exec",
            "search",
            "descriptor",
            "folder",
            "thread",
            "signals",
            "fork",
            "vfork",
            "spawn",
            "system",
            "popen",
        ] {
            let (got, want) = works(place.path(), &["./starts", how, "3"], "starts");
            assert!(want >= 4000, "{how}");
            assert_eq!(got, Some(want), "{flags} {how}");
        }
    }
}

#[test]
fn libc_may_be_musl_or_be_counted() {
    needs!("gcc", "musl-gcc");
    let place = folder();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/starts.c");
    for flags in ["-O1", "-O1 -static"] {
        let mut musl = Command::new("musl-gcc");
        must(
            musl.args(flags.split(' ')).arg("-DNO_EXECVEAT").arg("-o").arg(place.path().join("m")).arg(&from),
        );
        for how in ["exec", "vfork", "spawn", "thread", "system"] {
            let (got, want) = works(place.path(), &["./m", how, "3"], "m");
            assert_eq!(got, Some(want), "{flags} {how}");
        }
    }
    compile(&place.path().join("starts"), "starts.c", "-O1 -pthread");
    let ran = engraft(
        place.path(),
        "count --follow -q --no-cache -o l.engraft --modules all,libc.so* ./starts spawn 3",
    );
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 4));
    assert_eq!(blocks(place.path(), "l.engraft", "starts").values().max(), Some(&4000));
}

/// Scripts, another program, many at once.
#[test]
fn all_programs_of_a_script_are_counted() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("starts"), "starts.c", "-O1 -pthread");
    compile(&place.path().join("killed"), "killed.c", "-O2");
    let script = "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do (./starts spawn 2; exec ./starts vfork 1) & done\nwait\n./killed x y\ntrue\n";
    put_program(&place.path().join("script"), script);
    let said = followed(place.path(), &["sh", "-c", "./script; exec ./starts"]);
    assert_eq!(
        blocks(place.path(), "run.engraft", "starts").values().max(),
        Some(&(8 * 5000 + 1000)),
        "{said}"
    );
    assert_eq!(blocks(place.path(), "run.engraft", "killed").values().max(), Some(&(3 * 12345)), "{said}");
}

/// Who traces a program takes the rights away that its file gives it: such a program is left alone.
#[test]
fn programs_that_get_other_rights_are_left_alone() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("starts"), "starts.c", "-O1 -pthread");
    must(Command::new("cp").current_dir(place.path()).args(["starts", "other"]));
    must(Command::new("chmod").current_dir(place.path()).args(["u+s", "other"]));
    let said = followed(place.path(), &["sh", "-c", "./other spawn 1; ./starts"]);
    let warnings: Vec<_> = said.lines().filter(|line| line.contains("warning")).collect();
    assert_eq!(warnings.len(), 1, "{said}");
    assert!(warnings[0].contains("/other was not counted: it gets other rights"), "{said}");
    assert_eq!(blocks(place.path(), "run.engraft", "starts").values().max(), Some(&1000));
}

/// Nobody answers any more: what is started then runs uncounted.
#[test]
fn programs_start_when_we_are_gone() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("starts"), "starts.c", "-O1 -pthread");
    let mut us = Command::new(env!("CARGO_BIN_EXE_engraft"))
        .current_dir(place.path())
        .args(["count", "--follow", "-q", "--no-cache", "-o", "h.engraft", "--"])
        .args(["sh", "-c", "echo ready; read line; ./starts spawn 3; ./starts exec 3; echo over"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut printed = BufReader::new(us.stdout.take().expect("a pipe"));
    let mut text = String::new();
    printed.read_line(&mut text).expect("a line");
    us.kill().expect("it runs");
    drop(us.stdin.take());
    // Nobody has asked how we ended, so we are there and dead.
    printed.read_to_string(&mut text).expect("the rest");
    assert_eq!(text, format!("ready\n{}over\n", "work\n".repeat(8)));
    us.wait().expect("it ended");
}

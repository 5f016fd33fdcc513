//! Counts where threads may have been stopped in the middle of a block: intervals, where they are needed and nowhere else.

use crate::count::{instrumented, plain};
use crate::needs;
use crate::run::{compile, engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// How many threads the report says may have been stopped, after the exit status `want`.
#[track_caller]
fn stopped(folder: &Path, words: &str, want: i32) -> Option<u64> {
    let ran = engraft(folder, &format!("count --no-cache --json --modules exe -o run.engraft -- {words}"));
    assert_eq!(ran.code, Some(want), "{words}: {}", ran.stderr);
    let report: Value = serde_json::from_str(ran.stderr.lines().next_back().unwrap_or_default()).ok()?;
    report["stopped"].as_u64()
}

/// Who ends it is at a call; who has been joined has ended. Who was killed may have been anywhere.
#[test]
fn only_threads_that_may_be_in_a_block_are_said_to_be() {
    needs!("gcc", "sh");
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
            // In a static program, the call that ends it is the C library's own, where the system is called at once.
            let got = stopped(place.path(), &format!("./ends {words}"), status);
            assert!(got.is_some_and(|n| want.contains(&n)), "{flags}: {words}: {got:?}, not {want:?}");
        }
    }
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

/// `show` gives intervals, in all its forms; `never` has nothing that is not sure; an instrumented file's recording says the same.
#[test]
fn intervals_are_shown() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("ends"), "ends.c", "-O0 -w -pthread");
    instrumented(place.path(), "ends", "new");
    let report = engraft(place.path(), "count --no-cache --modules exe -o count.engraft -- ./ends 0 k");
    let line = "1 thread may have been stopped in the middle of a block: ";
    assert!(report.stderr.contains(line), "{}", report.stderr);
    let mut new = Command::new("./new");
    let status = new.args(["0", "k"]).env("ENGRAFT_OUT", "file.engraft").current_dir(place.path()).status();
    assert_eq!(status.ok().and_then(|s| std::os::unix::process::ExitStatusExt::signal(&s)), Some(9));
    for rec in ["count.engraft", "file.engraft"] {
        let text = engraft(place.path(), &format!("show ends function end --counts {rec}")).ok();
        assert!(text.contains("  1..2 ×") && text.contains("  1 ×"), "{rec}: {text}");
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

/// Where handlers of signals left code in more places than there is room for, an instrumented file's recording says so.
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
        assert!(said.stderr.contains("handlers of signals did not return to more places"), "{}", said.stderr);
    }
}

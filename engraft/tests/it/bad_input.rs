//! What cannot be used is refused: exit code 2, one line with the place, one with the remedy, nothing on
//! standard output.

use crate::needs;
use crate::run::{built, compile, engraft, folder, looks_like, must, pair};
use std::path::Path;

/// Runs `engraft` with `args` and compares what it says; `…` in `want` stands for anything.
#[track_caller]
fn check(folder: &Path, args: &str, want: &str) {
    let ran = engraft(folder, args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(looks_like(&ran.stderr, want), "want {want}\ngot {}", ran.stderr);
}

#[test]
fn a_missing_file() {
    check(pair(), "show nowhere", "engraft: cannot read nowhere: No such file or directory…");
}

#[test]
fn a_folder() {
    check(pair(), "show .", "engraft: cannot read .: it is no regular file…");
}

#[test]
fn a_text_file() {
    let to = folder();
    std::fs::write(to.path().join("notes"), "nothing to run\n").expect("it is ours");
    check(
        to.path(),
        "show notes",
        "engraft: notes is no ELF file: it is text that starts with \"noth\"\nhint: …",
    );
}

#[test]
fn a_truncated_file() {
    let to = folder();
    let whole = std::fs::read(pair().join("old")).expect("gcc made it");
    std::fs::write(to.path().join("short"), &whole[..whole.len() / 4]).expect("it is ours");
    check(to.path(), "show short", "engraft: short is damaged: …offset 0x…\nhint: …");
}

#[test]
fn an_object_file() {
    let to = folder();
    compile(&to.path().join("words.o"), "words-1.c", "-c");
    check(to.path(), "show words.o", "engraft: words.o is an object file; only …\nhint: …");
}

#[test]
fn files_of_other_machines() {
    let to = folder();
    let whole = std::fs::read(pair().join("old")).expect("gcc made it");
    let with = |name: &str, at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        std::fs::write(to.path().join(name), bytes).expect("it is ours");
    };
    // e_machine 183 is AArch64, e_type 4 a core file; EI_CLASS and EI_DATA stand at 4 and 5.
    with("arm", 18, 183);
    with("core", 16, 4);
    with("bits32", 4, 1);
    with("big", 5, 2);
    check(to.path(), "show arm", "engraft: arm is for another machine…; only …\nhint: …");
    check(to.path(), "show core", "engraft: core is a core file; only …\nhint: …");
    check(to.path(), "show bits32", "engraft: bits32 is a 32-bit file; only …\nhint: …");
    check(to.path(), "show big", "engraft: big is a big-endian file; only …\nhint: …");
}

#[test]
fn a_function_that_is_not_there() {
    check(
        pair(),
        "show old function mian",
        "engraft: no function of old is called mian\nhint: did you mean main?",
    );
    check(pair(), "show old function 0x1", "engraft: no function of old holds 0x1\nhint: …");
}

#[test]
fn an_output_that_cannot_be_written() {
    check(
        pair(),
        "show old -o nowhere/out.txt",
        "engraft: cannot write nowhere/out.txt: No such file or directory\nhint: make the folder nowhere first",
    );
    check(pair(), "show old -o .", "engraft: cannot write .: is a directory\nhint: name a file in it");
}

#[test]
fn a_full_disk() {
    check(
        pair(),
        "show old -o /dev/full",
        "engraft: cannot write /dev/full: No space left on device\nhint: …it is what it was before",
    );
}

#[test]
fn a_closed_output() {
    let script = format!("exec {} show old >&-", env!("CARGO_BIN_EXE_engraft"));
    let ran = std::process::Command::new("bash").args(["-c", &script]).current_dir(pair()).output();
    let ran = ran.expect("bash");
    let want = "engraft: cannot write to standard output: it is closed\nhint: …";
    assert!(looks_like(&String::from_utf8_lossy(&ran.stderr), want), "{ran:?}");
    assert_eq!(ran.status.code(), Some(2));
}

/// The file that takes its place once it is whole has a name that is nobody's business.
#[test]
fn a_file_that_may_not_grow() {
    let to = folder();
    let engraft = env!("CARGO_BIN_EXE_engraft");
    let old = pair().join("old");
    let script = format!("trap '' XFSZ; ulimit -f 1; {engraft} show {} cfg -o out.txt", old.display());
    let ran = std::process::Command::new("bash").args(["-c", &script]).current_dir(to.path()).output();
    let stderr = String::from_utf8_lossy(&ran.expect("bash").stderr).into_owned();
    let want = "engraft: cannot write out.txt: File too large\nhint: …";
    assert!(looks_like(&stderr, want), "{stderr}");
    assert_eq!(std::fs::read_dir(to.path()).expect("it is ours").count(), 0);
}

#[test]
fn a_profile_that_cannot_be_used() {
    let to = folder();
    let path = |name: &str| to.path().join(name).display().to_string();
    std::fs::write(path("empty.fdata"), "").expect("it is ours");
    std::fs::write(path("notes"), "nothing was counted\n").expect("it is ours");
    std::fs::write(path("bad.fdata"), "1 main 0 1 main 5 0 1\n1 main zero 1 main 5 0 1\n")
        .expect("it is ours");
    let carry = |name: &str| format!("carry old new --profile {} -o {}", path(name), path("out.fdata"));
    let at = to.path().display();
    check(pair(), &carry("none"), &format!("engraft: cannot read {at}/none: No such file or directory"));
    check(pair(), &carry("empty.fdata"), &format!("engraft: {at}/empty.fdata is empty\nhint: …"));
    check(
        pair(),
        &carry("notes"),
        &format!(
            "engraft: cannot use {at}/notes: the profile is of no known format: it starts with \"nothing …"
        ),
    );
    check(
        pair(),
        &carry("bad.fdata"),
        &format!("engraft: cannot use {at}/bad.fdata: line 2 is no fdata record: …"),
    );
    assert!(!to.path().join("out.fdata").exists());
}

#[test]
fn a_profile_of_another_build() {
    let to = folder();
    let path = |name: &str| to.path().join(name).display().to_string();
    let fdata = "0 [unknown] 0 1 hash 0 0 7\n";
    std::fs::write(path("p.fdata"), fdata).expect("it is ours");
    let convert = format!("convert {} -o {} --binary new", path("p.fdata"), path("p.engraft"));
    engraft(pair(), &convert).ok();
    let id = |name: &str| {
        let view = engraft(pair(), &format!("show {name} --json")).json();
        view["image_id"].as_str().unwrap_or_default().to_owned()
    };
    check(
        pair(),
        &format!("carry old new --profile {} -o {}", path("p.engraft"), path("q.fdata")),
        &format!(
            "engraft: cannot use {}: the profile is of …new ({}), the program is old ({})\nhint: …",
            path("p.engraft"),
            id("new"),
            id("old")
        ),
    );
    // Names that only the other build has: nothing to carry.
    std::fs::write(path("n.fdata"), "0 [unknown] 0 1 fold 0 0 7\n").expect("it is ours");
    check(
        pair(),
        &format!("carry old new --profile {} -o {}", path("n.fdata"), path("q.fdata")),
        &format!(
            "engraft: {} has no counts of old …\nhint: give it the binary that was profiled…",
            path("n.fdata")
        ),
    );
}

#[test]
fn an_output_format_that_is_not_known() {
    let to = folder();
    let path = |name: &str| to.path().join(name).display().to_string();
    std::fs::write(path("p.fdata"), "0 [unknown] 0 1 hash 0 0 7\n").expect("it is ours");
    check(
        pair(),
        &format!("convert {} -o {} --binary old", path("p.fdata"), path("p.doc")),
        &format!(
            "engraft: {} does not say in which format to write\nhint: end its name in one of these, …",
            path("p.doc")
        ),
    );
    check(
        pair(),
        &format!("convert {} -o {}", path("p.fdata"), path("p.json")),
        "engraft: cannot use …: a profile in the format fdata can only be read with its program at hand\nhint: name the program with --binary",
    );
}

#[test]
fn a_verb_that_is_not_there() {
    let ran = engraft(pair(), "shwo old");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("show"), "{}", ran.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let script = format!("{} show old cfg; echo $?", env!("CARGO_BIN_EXE_engraft"));
    let piped = format!(
        "( {script} >&2 ) | true; ( {} show old cfg; echo $? >&2 ) | head -n 1",
        env!("CARGO_BIN_EXE_engraft")
    );
    let ran =
        std::process::Command::new("bash").args(["-c", &piped]).current_dir(pair()).output().expect("bash");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.trim_end().ends_with('0'), "{stderr}");
}

/// The kernel does not look at section headers: what is left of the file runs, and is read as it is.
#[test]
fn an_executable_whose_section_headers_are_cut_off_is_read_by_its_program_headers() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    built(folder, "old", "int main(int n, char **v) { return n + 6; }", "-O1");
    let whole = std::fs::metadata(folder.join("old")).expect("it was made").len();
    std::fs::File::options()
        .write(true)
        .open(folder.join("old"))
        .and_then(|f| f.set_len(whole - 100))
        .expect("cut");
    // An instrumented program makes its recording where it runs.
    let run = |name: &str| {
        std::process::Command::new(folder.join(name)).current_dir(folder).status().expect("it runs").code()
    };
    assert_eq!(run("old"), Some(7));
    for (verb, status) in
        [("show old", 0), ("instrument old -o new", 0), ("count -o run.engraft -- ./old", 7)]
    {
        let ran = engraft(folder, verb);
        assert_eq!(ran.code, Some(status), "{verb}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("is cut off: it ends before its section headers do"),
            "{verb}: {}",
            ran.stderr
        );
    }
    assert_eq!(run("new"), Some(7));
    must(std::process::Command::new("readelf").arg("-lS").arg(folder.join("new")));
}

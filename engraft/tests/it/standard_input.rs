//! Standard input in place of files, and what is neither: pipes and devices, which are named, not waited for.

use crate::needs;
use crate::run::{Ran, built, compile, engraft, folder, looks_like};
use std::path::Path;
use std::process::Command;

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// A line of bash in which `engraft` is ours; it is ended after 20 seconds.
fn shell(place: &Path, line: &str) -> Ran {
    let script = format!("engraft() {{ '{US}' \"$@\"; }}; set -o pipefail; {line}");
    let mut bash = Command::new("timeout");
    bash.args(["20", "bash", "-c", &script]).current_dir(place).output().expect("bash runs").into()
}

fn place() -> tempfile::TempDir {
    let place = folder();
    compile(&place.path().join("old"), "words-1.c", "-O2 -g");
    compile(&place.path().join("new"), "words-2.c", "-O2 -g");
    engraft(place.path(), "count --no-cache -q -o run.engraft ./old");
    engraft(place.path(), "trace --no-cache -q --modules exe -o run.trace ./old");
    engraft(place.path(), "convert run.engraft --binary old -q -o run.fdata").ok();
    engraft(place.path(), "match old new -q -o pair.map").ok();
    std::fs::write(place.path().join("points.plan"), "entry main count\n").expect("written");
    place
}

#[test]
fn a_dash_is_standard_input_wherever_a_file_of_ours_is_read() {
    needs!("gcc", "bash", "timeout");
    let place = place();
    for (line, file) in [
        ("engraft show FILE", "run.engraft"),
        ("engraft show FILE edges", "run.engraft"),
        ("engraft show --counts FILE", "run.engraft"),
        ("engraft show --counts FILE", "run.trace"),
        ("engraft show old --profile FILE function main", "run.fdata"),
        ("engraft diff FILE run.engraft", "run.engraft"),
        ("engraft carry old new --profile FILE -o - --to fdata", "run.engraft"),
        ("engraft carry old new --profile FILE -o - --to fdata", "run.trace"),
        ("engraft match old new --with FILE --format csv", "pair.map"),
        ("engraft score FILE run.engraft --binary old", "run.fdata"),
        ("engraft convert FILE -o - --to csv", "run.engraft"),
        ("engraft query FILE 'main: 0' --count", "run.trace"),
        ("engraft query FILE --stats", "run.trace"),
        ("engraft trace pack FILE -q -o -", "run.trace"),
        ("engraft instrument old --plan FILE -o - -q", "points.plan"),
    ] {
        let named = |ran: &Ran| (ran.code, ran.stdout.replace(file, "-"));
        let want = shell(place.path(), &line.replace("FILE", file));
        assert_eq!(want.code, Some(0), "{line}: {}", want.stderr);
        for read in [
            format!("{} < {file}", line.replace("FILE", "-")),
            format!("cat {file} | {}", line.replace("FILE", "-")),
        ] {
            let ran = shell(place.path(), &read);
            assert_eq!(named(&ran), named(&want), "{read}: {}", ran.stderr);
        }
    }
    for (line, want) in [
        (
            "engraft show old -o x.txt; engraft match - new < old",
            "a program is not read from standard input…",
        ),
        ("engraft trace pack - < run.trace", "standard input has no place…-o…"),
    ] {
        let ran = shell(place.path(), line);
        assert_eq!(ran.code, Some(2), "{line}");
        assert!(looks_like(&ran.stderr, &format!("engraft: {want}")), "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_pipe_or_a_device_is_named_and_not_waited_for() {
    needs!("gcc", "bash", "timeout", "mkfifo");
    let place = place();
    let pipe = "engraft: pipe is a pipe…";
    let device = "engraft: /dev/zero is a device…";
    let no_file = "engraft: cannot read pipe: it is no regular file…";
    for (line, want) in [
        ("engraft count ./pipe", "engraft: ./pipe is a pipe, not a program\nhint: …"),
        ("engraft trace ./pipe", "engraft: ./pipe is a pipe, not a program\nhint: …"),
        ("engraft count /dev/zero", "engraft: /dev/zero is a device, not a program\nhint: …"),
        ("engraft count /dev", "engraft: /dev is a folder, not a program\nhint: …"),
        ("engraft count ./script", "engraft: ./pipe is a pipe, not a program\nhint: …"),
        ("engraft show pipe", no_file),
        ("engraft match pipe new", no_file),
        ("engraft instrument pipe -o x", no_file),
        ("engraft query pipe --stats", pipe),
        ("engraft show --counts /dev/zero", device),
        ("engraft diff /dev/zero run.engraft", device),
        ("engraft convert /dev/zero --to csv --binary old -o x", device),
        ("engraft query /dev/zero --stats", device),
        ("engraft instrument old --plan /dev/zero -o x", device),
        ("engraft match old new --with /dev/zero", device),
    ] {
        let make = "rm -f pipe; mkfifo pipe; printf '#!./pipe\\n' > script; chmod +x script pipe; ";
        let ran = shell(place.path(), &format!("{make}{line}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {}", ran.stderr);
        assert!(looks_like(&ran.stderr, want), "{line}: {}", ran.stderr);
    }
}

#[test]
fn who_reads_no_further_hears_nothing_of_it() {
    needs!("gcc", "bash", "timeout");
    let place = place();
    // More than a pipe takes.
    let many: String =
        (0..3000).map(|n| format!("int function_of_some_length_{n}(void) {{ return {n}; }}\n")).collect();
    built(place.path(), "large", &format!("{many}int main(void) {{ return 0; }}"), "-O1");
    for args in [
        "show large functions",
        "show large functions --format csv",
        "show large functions --json",
        "show old functions",
        "show old functions --format csv",
        "show old functions --json",
        "show old function main --svg",
        "show run.engraft edges --format csv",
        "convert run.engraft -o - --to csv -q",
        "convert run.trace -o - --to trace --thread 1 -q",
        "diff run.engraft run.engraft",
        "query run.trace 'main: 0' --all",
        "match old new --format csv",
        "help",
        "help show",
        "help --completions bash",
        "show -h",
        "--version",
        "cache --format csv",
        "doctor --format csv",
    ] {
        let ran = shell(place.path(), &format!("engraft {args} | head -c 1 > read; exit ${{PIPESTATUS[0]}}"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args}");
    }
}

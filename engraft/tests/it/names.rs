//! Moved code keeps its names: for the dynamic linker, for gdb, nm and addr2line, and for Rust's backtraces.

use crate::needs;
use crate::run::{compile, engraft, folder, must};
use std::path::Path;
use std::process::{Command, Output};

fn ran(folder: &Path, program: &str) -> Output {
    let mut command = Command::new(folder.join(program));
    command.current_dir(folder).env("RUST_BACKTRACE", "0").env("ENGRAFT_OUT", "names.engraft");
    command.output().expect("it runs")
}

fn printed(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[track_caller]
fn instrumented(folder: &Path, flags: &str) {
    let done = engraft(folder, &format!("instrument old -o new -q {flags}"));
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{}", done.stderr);
}

#[test]
fn the_dynamic_linker_names_moved_code() {
    needs!("gcc");
    for flags in [
        "-O2 -rdynamic",
        "-O1 -rdynamic -no-pie",
        "-O2 -rdynamic -s -fno-optimize-sibling-calls",
        "-O2 -rdynamic -Wl,--hash-style=both",
    ] {
        let place = folder();
        compile(&place.path().join("old"), "names.c", flags);
        let want = printed(&ran(place.path(), "old"));
        assert!(want.starts_with("inner\nmiddle\n\n"), "{want}");
        assert!(want.contains("outer: found 1, address 1, name outer\n"), "{want}");
        for how in ["--null", "--null --poison", ""] {
            instrumented(place.path(), how);
            assert_eq!(printed(&ran(place.path(), "new")), want, "{flags} {how}");
        }
        let us = Command::new(env!("CARGO_BIN_EXE_engraft"))
            .args(["count", "-q", "--no-cache", "-o", "names.engraft", "--", "./old"])
            .current_dir(place.path())
            .output()
            .expect("it runs");
        assert_eq!(printed(&us), want, "{flags}, launched");
    }
}

#[test]
fn debuggers_name_moved_code() {
    needs!("gcc", "gdb", "nm", "addr2line");
    for (flags, strips) in [("-O2", false), ("-O2 -no-pie -rdynamic", false), ("-O2 -rdynamic", true)] {
        let place = folder();
        compile(&place.path().join("old"), "names.c", if strips { "-O2 -rdynamic -s" } else { flags });
        instrumented(place.path(), "--null --poison");
        let new = place.path().join("new");
        let symbols = must(Command::new("nm").arg(&new));
        let moved = symbols.lines().find_map(|line| line.strip_suffix(" t middle")).expect("it is listed");
        assert!(strips || symbols.contains(" T middle"), "{symbols}");
        let named = must(Command::new("addr2line").args(["-f", "-e"]).arg(&new).arg(moved));
        assert_eq!(named.lines().next(), Some("middle"));
        let stack = must(
            Command::new("gdb")
                .args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "break inner"])
                .args(["-ex", "run", "-ex", "backtrace"])
                .arg(&new)
                .env("LC_ALL", "C"),
        );
        let frames: Vec<&str> = stack
            .lines()
            .filter(|line| line.starts_with('#'))
            .filter_map(|line| line.split(" in ").nth(1)?.split_whitespace().next())
            .collect();
        let want: &[&str] =
            if strips { &["inner", "middle"] } else { &["inner", "middle", "hidden", "outer", "main"] };
        assert!(frames.starts_with(want), "{flags}: {frames:?}\n{stack}");
    }
}

#[test]
fn rust_names_moved_code() {
    needs!("rustc");
    let place = folder();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/names.rs");
    must(Command::new("rustc").args(["-O", "-o"]).arg(place.path().join("old")).arg(source));
    instrumented(place.path(), "");
    let own = |out: &Output| -> Vec<String> {
        let text = printed(out);
        let names = text
            .lines()
            .filter_map(|line| Some(line.split_once("old::").or(line.split_once("names::"))?.1.to_owned()));
        names
            .chain(
                text.lines().filter(|line| !line.contains(": ") && !line.contains(" at ")).map(str::to_owned),
            )
            .collect()
    };
    // The number of the process is in what a panic says.
    let said = |out: &Output| {
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        text.lines().filter(|line| !line.starts_with("thread 'main'")).collect::<Vec<_>>().join("\n")
    };
    let (want, got) = (ran(place.path(), "old"), ran(place.path(), "new"));
    assert!(own(&want).iter().any(|name| name == "deep"), "{}", printed(&want));
    assert!(said(&want).contains("index out of bounds"), "{}", said(&want));
    assert_eq!((own(&got), said(&got), got.status.code()), (own(&want), said(&want), Some(101)));
}

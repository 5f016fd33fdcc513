//! What `-o` names that is no file: pipes, descriptors, where the program itself writes.

use crate::count::plain;
use crate::needs;
use crate::run::{Ran, built, counts, engraft, folder};
use std::path::Path;

/// Runs a line of shell in which `engraft` is ours, with an end if it waits for ever.
fn shell(place: &Path, line: &str) -> Ran {
    let us = env!("CARGO_BIN_EXE_engraft");
    plain(place, &["timeout", "60", "bash", "-c", &format!("engraft() {{ {us} \"$@\"; }}; {line}")]).into()
}

/// A program that prints a line, and its recording and trace in files.
fn place() -> tempfile::TempDir {
    let place = folder();
    built(place.path(), "old", "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 3; }", "-O1");
    for line in ["count -o run.engraft", "trace --modules exe -o run.trace"] {
        let ran = engraft(place.path(), &format!("{line} -q --no-cache -- ./old"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "ran\n"), "{}", ran.stderr);
    }
    engraft(place.path(), "convert run.engraft -o run.csv -q").ok();
    engraft(place.path(), "convert run.trace -o run.trc --thread 1 -q").ok();
    place
}

#[test]
fn a_pipe_is_written_and_never_read() {
    needs!("gcc", "bash", "mkfifo", "timeout", "cat");
    let place = place();
    let read = |name: &str| std::fs::read(place.path().join(name)).expect("written");
    let to = |name: &str| format!("cat f > {name} & ");
    for (line, want, name) in [
        ("engraft count -q --no-cache -o f -- ./old", 3, "run.engraft"),
        ("engraft trace -q --no-cache --modules exe -o f -- ./old", 3, ""),
        ("engraft convert run.engraft --to csv -q -o f", 0, "run.csv"),
        ("engraft convert run.trace --to trace --thread 1 -q -o f", 0, "run.trc"),
        ("engraft instrument old -q -o f", 0, "new"),
        ("engraft show old -o f", 0, "shown"),
    ] {
        let line = format!("rm -f f; mkfifo f; {}{line}; a=$?; wait; echo $a", to("got"));
        let ran = shell(place.path(), &line);
        let out = if want == 3 { "ran\n3\n".to_owned() } else { format!("{want}\n") };
        assert_eq!((ran.stdout, ran.stderr.as_str()), (out, ""), "{line}");
        let is_wanted = match name {
            // When it ran is in it, too.
            "run.engraft" => counts(&place.path().join("got")) == counts(&place.path().join(name)),
            "" => {
                engraft(place.path(), "convert got --to trace --thread 1 -q -o got.trc").ok();
                read("got.trc") == read("run.trc")
            }
            "new" => {
                engraft(place.path(), "instrument old -q -o new").ok();
                read("got") == read("new")
            }
            "shown" => read("got") == engraft(place.path(), "show old").ok().into_bytes(),
            name => read("got") == read(name),
        };
        assert!(is_wanted, "{line}");
    }
    // Nobody has to read all of it.
    let ran = shell(place.path(), "engraft convert run.engraft --to csv -q -o >(exec true); echo $?");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("0\n", ""));
    // What would have to be read again is refused.
    let ran = shell(place.path(), "engraft trace --pack -o f -- touch no; echo $?");
    assert!(ran.stdout == "2\n" && ran.stderr.contains("f cannot be read again"), "{}", ran.stderr);
    assert!(!place.path().join("no").exists());
}

#[test]
fn what_others_write_where_we_do_stays() {
    needs!("gcc", "bash", "timeout");
    let place = place();
    let read = |name: &str| std::fs::read(place.path().join(name)).expect("written");
    let recording = counts(&place.path().join("run.engraft"));
    for (o, to) in [
        ("/dev/stdout", "> zz"),
        ("/dev/fd/1", "> zz"),
        ("/proc/self/fd/1", "> zz"),
        ("/dev/stderr", "2> zz >&2"),
        ("/dev/fd/2", "> zz 2>&1"),
        // The file itself.
        ("zz", "> zz"),
        ("-", "> zz"),
        ("/dev/stdout", "| cat > zz"),
    ] {
        let line = format!("(echo before; engraft count -q --no-cache -o {o} -- ./old; echo after $?) {to}");
        let ran = shell(place.path(), &line);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""), "{line}");
        let all = read("zz");
        let inner = all.strip_prefix(b"before\nran\n").and_then(|rest| rest.strip_suffix(b"after 3\n"));
        std::fs::write(place.path().join("inner"), inner.expect("what others write stays")).expect("written");
        assert!(counts(&place.path().join("inner")) == recording, "{line}");
    }
    // Of an open file of another number, it is not known where others write.
    let line = "exec 5> zz; echo before >&5; engraft convert run.engraft --to csv -o /dev/fd/5; echo $?; echo after >&5";
    let ran = shell(place.path(), line);
    assert!(ran.stdout == "2\n" && ran.stderr.contains("is the open file"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(read("zz"), b"before\nafter\n");
    // The program gets its rights neither from us nor at the cost of what is there.
    let ran =
        shell(place.path(), "chmod 640 zz; engraft instrument old -o /dev/stdout -q > zz; stat -c %a zz");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("640\n", ""));
    // A trace would be torn by what the program writes.
    for (o, of) in [("-", "output"), ("/dev/stdout", "output"), ("/dev/stderr", "error"), ("yy", "error")] {
        let line = format!("engraft trace -o {o} -- ./old > zz 2> yy; echo $?; cat yy >&2");
        let ran = shell(place.path(), &line);
        let want = format!("standard {of} is the program's");
        assert!(ran.stdout == "2\n" && ran.stderr.contains(&want), "{o} {}", ran.stderr);
        assert_eq!(read("zz"), b"");
    }
}

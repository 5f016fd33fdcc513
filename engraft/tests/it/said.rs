//! What `count` and `instrument` refuse, warn of, and where what they write goes when it cannot go where it
//! was to.

use crate::count::plain;
use crate::needs;
use crate::run::{built, copy_program, engraft, folder, must, put_program};
use std::path::Path;
use std::process::Command;

/// A program that sets the environment of others knows these names, too.
#[test]
fn names_of_other_languages_variables_are_no_reason_to_refuse() {
    needs!("gcc");
    let place = folder();
    let text = "const char *volatile s[] = {\"GHCRTS\", \"OCAMLRUNPARAM\"}; int main(void) { return !s[1]; }";
    built(place.path(), "old", text, "-O1 -s");
    let ran = engraft(place.path(), "count -q --no-cache -o new -- ./old");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

/// Real ones are refused, without any symbol.
#[test]
fn programs_of_ocaml_are_known_by_what_they_hold() {
    needs!("ocamlopt", "strip");
    let place = folder();
    std::fs::write(place.path().join("text.ml"), "let () = print_endline \"hello\"").expect("written");
    must(Command::new("ocamlopt").args(["-o", "old", "text.ml"]).current_dir(place.path()));
    must(Command::new("strip").arg("old").current_dir(place.path()));
    let ran = engraft(place.path(), "count -q --no-cache -o new -- ./old");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("a native OCaml program"), "{}", ran.stderr);
}

#[test]
fn where_no_module_is_wanted_nothing_is_run() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "old", "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 3; }", "-O1");
    built(place.path(), "loads", "#include <dlfcn.h>\nint main(void) { return !dlopen(0, 1); }", "-O1");
    for (which, program, want) in [
        ("nosuch*", "./old", 2),
        ("[", "./old", 2),
        ("./old", "./old", 3),
        ("ol?", "./old", 2),
        ("ol*", "./old", 3),
        ("libc.so*", "./old", 3),
        // It may load it yet.
        ("nosuch*", "./loads", 0),
    ] {
        let ran =
            engraft(place.path(), &format!("count -q --no-cache -o new --modules {which} -- {program}"));
        assert_eq!((ran.code, ran.stdout.is_empty()), (Some(want), want != 3), "{which} {}", ran.stderr);
        let is_named = ran.stderr.contains("there is nothing to look at")
            && ran.stderr.contains("there are old, libc.so");
        assert_eq!(is_named, want == 2, "{which} {}", ran.stderr);
        let _was_there = std::fs::remove_file(place.path().join("new"));
    }
}

#[test]
fn what_cannot_be_done_is_said_in_words_of_what_was_asked_for() {
    needs!("gcc");
    let place = folder();
    // Who looks for Go programs holds what they hold.
    let source = "#include <stdio.h>\nint main(void) { puts(\"\\xff\" \" Go buildinf:\"); return 3; }";
    built(place.path(), "old", source, "-O1");
    std::fs::write(place.path().join("plan"), "entry mian count\n").expect("written");
    assert_eq!(engraft(place.path(), "count -q --no-cache -o run.engraft ./old").code, Some(3));
    for (command, wanted, unwanted) in [
        ("trace --no-cache -o t.trace --modules nosuch ./old", "no module is called nosuch", "count"),
        (
            "instrument ./old -o new --plan plan",
            "no function of ./old is called mian\nhint: did you mean main?",
            "?,",
        ),
        ("show ./old --counts run.engraft", "hint: say what of it is shown", "BINARY"),
        ("show ./old --counts run.engraft", "`engraft show run.engraft` says what it holds", "BINARY"),
        ("show ./old function xxxxxxxxxxxx", "hint: `engraft show ./old functions` lists them", "BINARY"),
    ] {
        let ran = engraft(place.path(), command);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command}");
        let is_said = ran.stderr.contains(wanted) && !ran.stderr.contains(unwanted);
        assert!(is_said, "{command}\n{}", ran.stderr);
    }
    let shown = engraft(place.path(), "show ./old").ok();
    assert!(shown.contains("compiler    GCC") && !shown.contains("Go"), "{shown}");
}

#[test]
fn a_recording_that_finds_no_room_is_kept_elsewhere() {
    needs!("sh", "true");
    let place = folder();
    std::fs::create_dir(place.path().join("spare")).expect("made");
    let us = env!("CARGO_BIN_EXE_engraft");
    let line =
        format!("mkdir gone; TMPDIR=$PWD/spare {us} count -q --no-cache -o gone/new -- sh -c 'rm -r gone'");
    let ran = plain(place.path(), &["sh", "-c", &line]);
    let said = String::from_utf8_lossy(&ran.stderr);
    let (_, path) = said.split_once("; the recording is ").unwrap_or_else(|| panic!("{said}"));
    let path = path.lines().next().unwrap_or_default();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(Path::new(path).starts_with(place.path().canonicalize().expect("there").join("spare")), "{path}");
    assert!(engraft(place.path(), &format!("show {path}")).ok().contains("instructions"), "{path}");
}

#[test]
fn what_is_in_the_way_of_an_instrumented_programs_recording_is_said() {
    needs!("true");
    let place = folder();
    copy_program("/bin/true", place.path().join("old"));
    engraft(place.path(), "count -q --no-cache -o old.engraft ./old").ok();
    engraft(place.path(), "instrument -q old -o new").ok();
    let ran = plain(place.path(), &["./new"]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let want = "engraft: nothing is recorded, for the file there is something else, or a recording of `count` \
                (set ENGRAFT_OUT to another file): /";
    let lines: Vec<&str> = said.lines().collect();
    assert!(matches!(lines[..], [one] if one.starts_with(want) && one.ends_with("/old.engraft")), "{said}");
}

#[test]
fn what_is_written_to_standard_output_is_the_program() {
    needs!("sh", "true");
    let place = folder();
    let us = env!("CARGO_BIN_EXE_engraft");
    let ran = plain(place.path(), &["sh", "-c", &format!("{us} instrument /bin/true -o - > new")]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("springboards"), "{ran:?}");
    assert!(!place.path().join("-").exists());
    engraft(place.path(), "instrument -q /bin/true -o two").ok();
    let read = |name| std::fs::read(place.path().join(name)).expect("written");
    assert_eq!(read("new"), read("two"));
    // Beyond the limit of the length of files: an error, no death.
    let ran = plain(place.path(), &["sh", "-c", &format!("ulimit -f 1; {us} instrument /bin/true -o three")]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr).matches("engraft: cannot write three").count(),
        1,
        "{ran:?}"
    );
}

#[test]
fn what_runs_a_script_is_named_if_it_is_missing() {
    let place = folder();
    for (line, want) in [
        ("#!/no/such\n", "./s is to be run by /no/such, as its first line says, which cannot be read"),
        ("#!\n", "./s is to be run by '', as its first line says, which cannot be read"),
    ] {
        put_program(&place.path().join("s"), line);
        let ran = engraft(place.path(), "count -o new -- ./s");
        assert!(ran.code == Some(2) && ran.stderr.contains(want), "{}", ran.stderr);
    }
}

#[test]
fn code_that_may_be_written_is_spoken_of() {
    needs!("gcc");
    let place = folder();
    let text = r#"__asm__(".section .both,\"awx\",@progbits; .quad 1; .text"); int main(void) { return 0; }"#;
    built(place.path(), "old", text, "-O1");
    for line in ["count --no-cache -o run -- ./old", "instrument -o new ./old"] {
        let ran = engraft(place.path(), line);
        assert!(ran.stderr.contains("may change its own code while it runs"), "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_library_that_counts_by_itself_is_not_counted_again() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "libone.so", "int one(void) { return 1; }", "-O1 -shared -fPIC");
    engraft(place.path(), "instrument -q libone.so -o libtwo.so").ok();
    std::fs::rename(place.path().join("libtwo.so"), place.path().join("libone.so")).expect("renamed");
    built(
        place.path(),
        "old",
        "int one(void); int main(void) { return one(); }",
        "-O1 -Wl,-rpath,$ORIGIN -Wl,--no-as-needed libone.so",
    );
    let ran = engraft(place.path(), "count --no-cache -o run -- ./old");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("was not counted: it is instrumented already"), "{}", ran.stderr);
}

#[test]
fn programs_with_other_data_where_counters_are_do_not_start() {
    needs!("gcc");
    let place = folder();
    // What every program built so calls first; and one, where gcc has its library.
    built(place.path(), "libtsan.so", "void __tsan_init(void) {}", "-O1 -shared -fPIC");
    let text = "#include <stdio.h>\nvoid __tsan_init(void); int main(void) { __tsan_init(); puts(\"ran\"); return 3; }";
    built(place.path(), "imports", text, "-O1 -Wl,-rpath,$ORIGIN -Wl,--no-as-needed libtsan.so");
    built(place.path(), "holds", &format!("{text}\nvoid __tsan_init(void) {{}}"), "-O1");
    std::fs::write(place.path().join("real.c"), "int main(void) { return 3; }").expect("written");
    let real = plain(place.path(), &["gcc", "-fsanitize=thread", "-o", "real", "real.c"]).status.success();
    for name in ["imports", "holds", "real"].iter().take(if real { 3 } else { 2 }) {
        for verb in ["count --no-cache -o run -- ./", "trace --no-cache -o run -- ./", "instrument -o run "] {
            let ran = engraft(place.path(), &format!("{verb}{name}"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{verb}{name} {}", ran.stderr);
            assert!(
                ran.stderr.contains("ThreadSanitizer") && ran.stderr.contains("hint: "),
                "{}",
                ran.stderr
            );
            assert!(!place.path().join("run").exists());
        }
        // Without counters it is as it was.
        engraft(place.path(), &format!("instrument -q --null {name} -o run")).ok();
        assert_eq!(plain(place.path(), &["./run"]).status.code(), Some(3), "{name}");
        std::fs::remove_file(place.path().join("run")).expect("removed");
    }
}

/// In the order of what users meet: what they said before told of something else, or of nothing.
#[test]
fn what_hinders_is_named_with_a_remedy() {
    needs!("gcc", "bash", "touch");
    let place = folder();
    built(place.path(), "old", "int main(void) { return 3; }", "-O1 -nostartfiles -static -e main");
    engraft(place.path(), "instrument -q /bin/true -o counts").ok();
    std::fs::write(place.path().join("empty"), "").expect("written");
    let us = env!("CARGO_BIN_EXE_engraft");
    for (line, wants) in [
        (
            "ulimit -n 5; engraft count -o run -- ./old",
            &["Too many open files", "hint: raise the limit of open files (`ulimit -n`)"][..],
        ),
        ("ulimit -d 1700; engraft count -o run -- ./old", &["cannot start", "`ulimit -d`"]),
        ("engraft count -o run -- ./", &["./ is a folder, not a program"]),
        ("engraft show --counts empty", &["empty is empty", "ended early"]),
        (
            "engraft instrument counts -o run",
            &["counts was written by `engraft instrument`", "name the program"],
        ),
        ("engraft count -o run -- ./counts", &["was written by `engraft instrument`"]),
        ("engraft trace -o run -- ./counts", &["was written by `engraft instrument`"]),
        (
            "engraft count -q --per-thread -o one -- /bin/true; engraft convert one --thread 2 -o one.csv --binary /bin/true",
            &["one has the counts of 1 thread apart, no 2"],
        ),
    ] {
        let line = format!("engraft() {{ {us} \"$@\"; }}; {line}");
        let ran = plain(place.path(), &["bash", "-c", &line]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{line}: {said}");
        assert!(wants.iter().all(|want| said.contains(want)), "{line}: {said}");
        assert!(!place.path().join("run").exists(), "{line}");
    }
}

/// What is said to be needed is enough, and less is not.
#[test]
fn how_long_a_file_must_be_is_said() {
    needs!("bash", "true");
    let place = folder();
    let us = env!("CARGO_BIN_EXE_engraft");
    let run = |kb: u64| {
        let line = format!("ulimit -f {kb}; {us} count -q --no-cache -o run -- true");
        let ran = plain(place.path(), &["bash", "-c", &line]);
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let (code, said) = run(20);
    let needed = said.split_once(" kB are needed, and no file may have more than 20 kB");
    let needed: u64 = needed
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(run(needed), (Some(0), String::new()));
    assert!(run(needed - 1).0 == Some(2) && needed < 200, "{needed}");
}

#[test]
fn where_proc_is_not_mounted_it_is_asked_for() {
    crate::needs_mounts!();
    needs!("unshare", "sh", "mount");
    let place = folder();
    let us = env!("CARGO_BIN_EXE_engraft");
    for (verb, code) in [("count -o run -- true", 2), ("trace -o run -- true", 2), ("doctor", 1)] {
        let line = format!("mount -t tmpfs none /proc; {us} {verb}");
        let ran = plain(place.path(), &["unshare", "-rm", "sh", "-c", &line]);
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(ran.status.code() == Some(code) && said.contains("/proc is not mounted"), "{said}");
        assert!(!said.contains("FSGSBASE"), "{said}");
    }
}

#[test]
fn a_user_namespace_is_named_where_programs_in_it_are_not_counted() {
    crate::needs_mounts!();
    needs!("unshare", "id");
    let place = folder();
    let ran = engraft(place.path(), "count --no-cache --follow -o run -- unshare -U -r id -u");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "0\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("was not counted: it is in a user namespace of its own"), "{}", ran.stderr);
    let place = place.path().to_string_lossy().into_owned();
    let us = env!("CARGO_BIN_EXE_engraft");
    let ran = plain(
        Path::new(&place),
        &["unshare", "-U", "-r", us, "count", "-q", "--no-cache", "-o", "inside", "--", "id", "-u"],
    );
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b"0\n"[..]), "{ran:?}");
}

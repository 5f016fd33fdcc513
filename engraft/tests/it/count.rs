//! Programs with their code moved and counted behave as they did; counts are what others count.

use crate::needs;
use crate::run::{built, callgrind, compile, copy_program, engraft, folder, must, put_program};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `command` in `folder` and gives what it printed on both streams, and how it ended.
pub fn plain(folder: &Path, command: &[&str]) -> Output {
    let (program, args) = command.split_first().expect("a program");
    Command::new(program).args(args).current_dir(folder).output().expect("it runs")
}

/// Runs `command` under `count -q`; fails unless it prints and ends as it does by itself. Returns the counts
/// of its blocks.
#[track_caller]
pub fn counted(folder: &Path, command: &[&str], modules: &str) -> BTreeMap<u64, u64> {
    let want = plain(folder, command);
    let us = env!("CARGO_BIN_EXE_engraft");
    let mut words = vec![us, "count", "-q", "--no-cache", "-o", "run.engraft", "--modules", modules, "--"];
    words.extend(command);
    let got = plain(folder, &words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (text(&got.stdout), text(&got.stderr)),
        (text(&want.stdout), text(&want.stderr)),
        "{command:?}"
    );
    use std::os::unix::process::ExitStatusExt as _;
    let status = want.status.code().unwrap_or_else(|| 128 + want.status.signal().expect("one or the other"));
    assert_eq!(got.status.code(), Some(status), "{command:?}");
    blocks(folder, "run.engraft", command[0].trim_start_matches("./"))
}

/// Counts of blocks by address, from a profile in any format.
#[track_caller]
pub fn blocks(folder: &Path, profile: &str, binary: &str) -> BTreeMap<u64, u64> {
    let ran = engraft(folder, &format!("convert {profile} -q -o blocks.csv --binary {binary}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = std::fs::read_to_string(folder.join("blocks.csv")).expect("it was written");
    let row = |line: &str| {
        let mut fields = line.rsplit(',');
        let count = fields.next()?.parse().ok()?;
        let start = fields.nth(1)?.strip_prefix("0x")?;
        Some((u64::from_str_radix(start, 16).ok()?, count))
    };
    let rows = text.lines().skip(1);
    rows.map(|line| row(line).expect("a row of the csv")).collect()
}

#[test]
fn counts_are_those_of_callgrind() {
    needs!("gcc", "valgrind");
    for flags in ["-O2", "-O1 -no-pie", "-O3 -fcf-protection=full", "-Os"] {
        let place = folder();
        compile(&place.path().join("words"), "words-1.c", flags);
        callgrind(place.path(), "words");
        let want = blocks(place.path(), "words.callgrind", "words");
        let got = counted(place.path(), &["./words"], "all");
        let ran: BTreeMap<_, _> = want.iter().filter(|(_, n)| **n > 0).collect();
        assert!(ran.len() > 30, "{flags}: callgrind saw {} blocks", ran.len());
        for (at, n) in ran {
            assert_eq!(got.get(at), Some(n), "{flags}: block at {at:#x}");
        }
    }
}

#[test]
fn every_thread_is_counted() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("threads"), "threads.c", "-O2 -pthread");
    let ran: u64 = String::from_utf8_lossy(&plain(place.path(), &["./threads"]).stdout)
        .trim()
        .parse()
        .expect("it prints a number");
    let got = counted(place.path(), &["./threads"], "exe");
    assert_eq!(got.values().max(), Some(&ran));
}

/// There is room for fewer: what is kept of a thread goes with it.
#[test]
fn more_threads_than_there_are_areas_are_counted() {
    needs!("gcc");
    for flags in ["-O1 -pthread", "-O1 -pthread -static"] {
        let place = folder();
        compile(&place.path().join("stacks"), "stacks.c", flags);
        let ran = engraft(place.path(), "count --json --no-cache --modules exe -o s.engraft -- ./stacks");
        let counts = blocks(place.path(), "s.engraft", "stacks");
        let n_runs = counts.values().find(|n| **n == 3_000_000);
        assert_eq!((ran.stdout.as_str(), n_runs), ("3000000\n", Some(&3_000_000)), "{flags}");
        let view: serde_json::Value = serde_json::from_str(&ran.stderr).expect("one object, no warning");
        assert!(view["threads"].as_u64() < Some(30), "{flags}: {}", view["threads"]);
    }
}

#[test]
fn threads_of_programs_at_fixed_addresses_are_counted() {
    needs!("gcc");
    for flags in ["-O2 -pthread -no-pie", "-O2 -pthread -static", "-O2 -pthread -static-pie"] {
        counts_what_it_says("threads", flags, "all");
    }
}

/// `name.c` of the fixtures prints how often the block runs that runs most.
#[track_caller]
pub fn counts_what_it_says(name: &str, flags: &str, modules: &str) {
    let place = folder();
    compile(&place.path().join(name), &format!("{name}.c"), flags);
    let command = [&*format!("./{name}")];
    let said = String::from_utf8_lossy(&plain(place.path(), &command).stdout).trim().to_owned();
    let got = counted(place.path(), &command, modules);
    assert_eq!(got.values().max().map(u64::to_string), Some(said), "{name}.c, {flags}");
}

#[test]
fn libraries_that_are_loaded_later_are_counted() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    counted(place.path(), &["./host"], "all");
    let got = blocks(place.path(), "run.engraft", "plugin.so");
    // Loaded six times; each time its loop runs a thousand times, and that of its resolver, which runs before
    // anything else of it, three.
    assert!([6000, 18].iter().all(|n| got.values().any(|got| got == n)), "{got:?}");
    assert!(got.values().all(|n| [0, 6, 18, 6000].contains(n)), "{got:?}");
}

/// A constructor of one library calls into another one that is loaded with it and has not started, in a
/// thread that is not the first.
#[test]
fn code_that_runs_before_its_library_starts_is_counted() {
    needs!("gcc");
    let place = folder();
    let at = place.path().display().to_string();
    compile(&place.path().join("host"), "early.c", "-O1 -pthread -DHOST");
    compile(&place.path().join("first.so"), "early.c", "-O1 -shared -fPIC -DFIRST");
    let needs_first = format!("-O1 -shared -fPIC -DSECOND -L{at} -l:first.so -Wl,--no-as-needed,-rpath,{at}");
    compile(&place.path().join("second.so"), "early.c", &needs_first);
    counted(place.path(), &["./host"], "all");
    for library in ["first.so", "second.so"] {
        let got = blocks(place.path(), "run.engraft", library);
        assert_eq!(got.values().max(), Some(&3000), "{library}: {got:?}");
    }
}

/// The program asks us for the library that it loads, and we are dead.
#[test]
fn a_program_outlives_us() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    let want = String::from_utf8_lossy(&plain(place.path(), &["./host", "ready"]).stdout).into_owned();
    assert_eq!(want.lines().count(), 7);
    let mut us = Command::new(env!("CARGO_BIN_EXE_engraft"))
        .current_dir(place.path())
        .args(["count", "-q", "--no-cache", "-o", "h.engraft", "--", "./host", "ready"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut printed = BufReader::new(us.stdout.take().expect("a pipe"));
    let mut text = String::new();
    printed.read_line(&mut text).expect("a line");
    assert_eq!(text, "ready\n");
    us.kill().expect("it runs");
    // Until the program ends, too: an alarm ends it if it waits for us. Nobody has asked how we ended, so we
    // are there and dead.
    printed.read_to_string(&mut text).expect("the rest");
    assert_eq!(text, want);
    us.wait().expect("it ended");
}

/// Writes a program that counts by itself.
#[track_caller]
pub fn instrumented(folder: &Path, binary: &str, out: &str) {
    let ran = engraft(folder, &format!("instrument {binary} -o {out} -q"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
}

#[test]
fn instrumented_files_count_by_themselves() {
    needs!("gcc");
    for (source, flags) in [
        ("forks.c", "-O1 -pthread"),
        ("threads.c", "-O2 -pthread -no-pie"),
        ("threads.c", "-O2 -pthread -static"),
        ("forks.c", "-O1 -pthread -static-pie"),
    ] {
        let place = folder();
        compile(&place.path().join("old"), source, flags);
        let want = plain(place.path(), &["./old"]);
        instrumented(place.path(), "old", "new");
        let got = plain(place.path(), &["./new"]);
        assert_eq!((&got.stdout, &got.stderr, got.status), (&want.stdout, &want.stderr, want.status));
        let said = String::from_utf8_lossy(&want.stdout).trim().to_owned();
        let counts = blocks(place.path(), "old.engraft", "old");
        assert_eq!(counts.values().max().map(u64::to_string), Some(said), "{source} {flags}");
    }
}

#[test]
fn processes_at_once_add_up_in_one_recording() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("killed"), "killed.c", "-O2");
    instrumented(place.path(), "killed", "new");
    let start = || {
        let mut command = Command::new("./new");
        command
            .current_dir(place.path())
            .env("ENGRAFT_OUT", "all.engraft")
            .stdout(std::process::Stdio::null());
        command.spawn().expect("it starts")
    };
    for mut child in (0..8).map(|_| start()).collect::<Vec<_>>() {
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().expect("it ends")), Some(9));
    }
    assert_eq!(blocks(place.path(), "all.engraft", "killed").values().max(), Some(&(8 * 12345)));
}

#[test]
fn without_room_for_a_recording_the_program_runs_all_the_same() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("threads"), "threads.c", "-O2 -pthread");
    instrumented(place.path(), "threads", "new");
    std::fs::write(place.path().join("other"), "not a recording").expect("written");
    let want = plain(place.path(), &["./threads"]);
    for (script, why) in [
        ("ENGRAFT_OUT=no/such/folder ./new", "/no/such/folder: error 2"),
        ("ENGRAFT_OUT=other ./new", "there is something else"),
        ("ulimit -f 4; ENGRAFT_OUT=small ./new", "/small: error 27"),
        ("ENGRAFT_OUT=/dev/full ./new", "/dev/full: error 19"),
    ] {
        let got = plain(place.path(), &["sh", "-c", script]);
        assert_eq!((&got.stdout, got.status), (&want.stdout, want.status), "{script}");
        let said = String::from_utf8_lossy(&got.stderr);
        assert!(said.starts_with("engraft: nothing is recorded") && said.contains(why), "{script}: {said}");
    }
    assert_eq!(std::fs::read(place.path().join("other")).expect("still there"), b"not a recording");
    assert!(!place.path().join("small").exists(), "an empty file is left");
}

/// Each call from outside is as quick as it is with a recording; with a system call for each of them this
/// would take ten seconds.
#[test]
fn without_a_recording_the_program_is_as_quick() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("callbacks"), "callbacks.c", "-O2");
    instrumented(place.path(), "callbacks", "new");
    let want = plain(place.path(), &["./callbacks"]);
    let got = plain(place.path(), &["sh", "-c", "ulimit -t 2; ENGRAFT_OUT=no/such/folder ./new"]);
    assert_eq!((&got.stdout, got.status), (&want.stdout, want.status));
}

#[test]
fn a_killed_program_keeps_its_counts() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("killed"), "killed.c", "-O2");
    let got = counted(place.path(), &["./killed", "more", "arguments"], "all");
    assert_eq!(got.values().max(), Some(&(3 * 12345)));
}

#[test]
fn exceptions_pass_through_moved_code() {
    needs!("gcc", "g++");
    for flags in ["-O2 -lstdc++", "-O0 -no-pie -lstdc++", "-O2 -static -lstdc++", "-O2 -static-pie -lstdc++"]
    {
        let place = folder();
        compile(&place.path().join("throws"), "throws.cc", flags);
        let got = counted(place.path(), &["./throws"], "all");
        assert!(got.values().any(|n| *n == 2000), "{flags}");
    }
}

#[test]
fn old_code_is_not_reached() {
    needs!("gcc", "g++");
    for (source, flags) in [
        ("words-1.c", "-O2"),
        ("words-2.c", "-Os -no-pie"),
        ("words-1.c", "-O3 -static"),
        ("threads.c", "-O2 -pthread"),
        ("throws.cc", "-O2 -lstdc++"),
        ("throws.cc", "-O2 -static -lstdc++"),
        ("computed.c", "-O2"),
        ("computed.c", "-O2 -no-pie"),
        ("computed.c", "-O2 -static-pie"),
    ] {
        let place = folder();
        compile(&place.path().join("old"), source, flags);
        let ran = engraft(place.path(), "instrument old -o moved --null --poison -q");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
        let (want, got) = (plain(place.path(), &["./old"]), plain(place.path(), &["./moved"]));
        assert_eq!(
            (got.stdout, got.stderr, got.status),
            (want.stdout, want.stderr, want.status),
            "{source} {flags}"
        );
    }
}

#[test]
fn status_and_arguments_are_the_programs() {
    needs!("sh");
    let place = folder();
    let us = env!("CARGO_BIN_EXE_engraft");
    let run = |script: &str| {
        plain(
            place.path(),
            &[us, "count", "-q", "--no-cache", "-o", "sh.engraft", "--", "sh", "-c", script, "zero", "a b"],
        )
    };
    assert_eq!(run("exit 7").status.code(), Some(7));
    assert_eq!(run("kill -TERM $$").status.code(), Some(128 + 15));
    let ran = run("printf '%s,%s' \"$0\" \"$1\"; readlink /proc/$$/exe");
    let shell = std::fs::canonicalize("/bin/sh").expect("there is one");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("zero,a b{}\n", shell.display()));
}

#[test]
fn a_recording_is_converted_with_all_its_images() {
    needs!("gcc", "g++");
    let place = folder();
    compile(&place.path().join("throws"), "throws.cc", "-O2 -lstdc++");
    counted(place.path(), &["./throws"], "all");
    let ran = engraft(place.path(), "convert run.engraft -o all.csv");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = std::fs::read_to_string(place.path().join("all.csv")).expect("it was written");
    assert_eq!(text.matches("image,function").count(), 1);
    for image in ["/throws,", "libstdc++.so.6,", "libgcc_s.so.1,"] {
        let ran = text.lines().filter(|line| line.contains(image) && !line.ends_with(",0")).count();
        assert!(ran > 5, "{ran} blocks of {image}");
    }
}

#[test]
fn the_report_is_json_on_request() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("killed"), "killed.c", "-O2");
    let ran = engraft(place.path(), "count --json --no-cache -o k.engraft -- ./killed");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(128 + 9), "12345\n"));
    let view: serde_json::Value = serde_json::from_str(&ran.stderr).expect("one object");
    assert_eq!(
        (view["schema"].as_str(), view["functions"][0]["name"].as_str()),
        (Some("engraft.count/1"), Some("body"))
    );
}

#[test]
fn where_nothing_can_be_written_nothing_is_run() {
    needs!("touch");
    let place = folder();
    std::fs::create_dir(place.path().join("there")).expect("made");
    std::fs::copy("/proc/self/exe", place.path().join("program")).expect("copied");
    #[track_caller]
    fn check(place: &Path, to: &str, want: &str) {
        let ran = engraft(place, &format!("count --no-cache -o {to} -- touch ran"));
        assert_eq!((ran.code, ran.stderr.lines().next()), (Some(2), Some(want)));
        assert!(!place.join("ran").exists(), "{to}");
    }
    check(
        place.path(),
        "missing/rec.engraft",
        "engraft: cannot write missing/rec.engraft: No such file or directory",
    );
    check(place.path(), "there", "engraft: cannot write there: is a directory");
    check(place.path(), "program", "engraft: program is a program, and is not replaced");
    // Nothing is left behind, and what can be written is.
    must(Command::new(env!("CARGO_BIN_EXE_engraft")).current_dir(place.path()).args([
        "count",
        "-q",
        "--no-cache",
        "-o",
        "rec.engraft",
        "--",
        "touch",
        "ran",
    ]));
    let mut names: Vec<_> =
        std::fs::read_dir(place.path()).expect("listed").map(|e| e.expect("listed").file_name()).collect();
    names.sort();
    assert_eq!(names, ["program", "ran", "rec.engraft", "there"]);
}

#[test]
fn threads_can_be_kept_apart() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    let ran = engraft(place.path(), "count --json --per-thread --no-cache -o h.engraft -- ./host");
    let view: serde_json::Value = serde_json::from_str(&ran.stderr).expect("one object");
    let threads = view["per_thread"].as_array().expect("a list");
    let sum: u64 = threads.iter().filter_map(|t| t["instructions"].as_u64()).sum();
    assert_eq!((threads.len(), Some(sum)), (2, view["instructions"].as_u64()));
    for thread in ["1", "2"] {
        let args = format!("convert h.engraft -q --thread {thread} -o t.csv --binary plugin.so");
        assert_eq!(engraft(place.path(), &args).code, Some(0));
        let text = std::fs::read_to_string(place.path().join("t.csv")).expect("written");
        // Each of the two called it three times.
        assert!(text.lines().any(|line| line.ends_with(",3000")), "thread {thread}: {text}");
    }
    let ran = engraft(place.path(), "convert h.engraft --thread 3 -o t.csv --binary plugin.so");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("has the counts of 2 threads apart, no 3"), "{}", ran.stderr);
}

/// What a counter may not touch, wherever it stands: each flag, all registers, the red zone.
#[test]
fn nothing_of_the_processor_is_touched() {
    needs!("gcc");
    for flags in ["-O1", "-O1 -no-pie", "-O1 -static"] {
        let place = folder();
        compile(&place.path().join("canary"), "canary.c", flags);
        let got = counted(place.path(), &["./canary"], "all");
        assert_eq!(String::from_utf8_lossy(&plain(place.path(), &["./canary"]).stdout), "same 2560\n");
        // Its blocks, but for the return that nothing reaches.
        assert!(got.values().filter(|n| **n == 2560).count() >= 13, "{flags}: {got:?}");
        instrumented(place.path(), "canary", "new");
        let alone = plain(place.path(), &["./new"]);
        assert_eq!(String::from_utf8_lossy(&alone.stdout), "same 2560\n", "{flags}");
    }
}

#[test]
fn loops_are_reported_with_their_trips() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("threads"), "threads.c", "-O1 -pthread");
    let ran = engraft(place.path(), "count --json --no-cache -o t.engraft -- ./threads");
    let view: serde_json::Value = serde_json::from_str(&ran.stderr).expect("one object");
    let hot = &view["loops"][0];
    let iterations: u64 = ran.stdout.trim().parse().expect("it prints a number");
    // Two calls for each of 640 threads.
    assert_eq!(
        (hot["function"].as_str(), hot["iterations"].as_u64(), hot["entries"].as_u64()),
        (Some("body"), Some(iterations), Some(1280))
    );
    assert!(view["counted_share"].as_f64() > Some(0.999), "{view}");
    // The same from the recording, later.
    let shown = engraft(place.path(), "show --counts t.engraft --json").ok();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("one object");
    assert_eq!(shown["loops"], view["loops"]);
    let body = engraft(place.path(), "show --counts t.engraft function body").ok();
    assert!(body.contains(&format!("{iterations} ×")), "{body}");
}

#[test]
fn doctor_tries_what_it_says() {
    needs!("true");
    let place = folder();
    let ran = engraft(place.path(), "doctor --json");
    let view: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one object");
    let tried = view["checks"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|c| c["what"] == "counting a program (`true`)");
    assert_eq!(tried.map(|c| &c["works"]), Some(&serde_json::Value::Bool(true)), "{view}");
}

#[test]
fn files_and_signals_are_inherited_as_they_are() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("inherits"), "inherits.c", "-O2");
    let count = format!("{} count -q --no-cache -o run.engraft -- ", env!("CARGO_BIN_EXE_engraft"));
    for (how, before, want) in [
        ("", "", 0),
        ("<&- >&-", "", 1 + 2),
        ("2>&-", "--ignore-signal=PIPE", 4 + 8),
        ("", "--ignore-signal=XFSZ", 16),
        ("", "--block-signal=TERM", 32),
    ] {
        for count in ["", &count] {
            let line = format!("exec env --default-signal {before} {count}./inherits {how}");
            assert_eq!(plain(place.path(), &["sh", "-c", &line]).status.code(), Some(want), "{line}");
        }
    }
    let line = format!("ulimit -f 1; {count}./inherits");
    let ran = plain(place.path(), &["sh", "-c", &line]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
}

#[test]
fn signals_to_us_are_the_programs() {
    needs!("gcc", "kill", "timeout", "sleep");
    let place = folder();
    compile(&place.path().join("signals"), "signals.c", "-O1");
    for number in [1, 2, 3, 10, 12, 13, 14, 15, 18, 24, 26, 27, 28, 34, 64] {
        let mut us = Command::new(env!("CARGO_BIN_EXE_engraft"))
            .current_dir(place.path())
            .args(["count", "-q", "--no-cache", "-o", "run.engraft", "--", "./signals"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut text = String::new();
        BufReader::new(us.stdout.take().expect("a pipe")).read_line(&mut text).expect("a line");
        must(Command::new("kill").args([&format!("-{number}"), &us.id().to_string()]));
        assert_eq!(us.wait().expect("it ends").code(), Some(number));
        let counts = blocks(place.path(), "run.engraft", "signals");
        assert!(counts.values().any(|n| *n == 12345), "{number}");
        std::fs::remove_file(place.path().join("run.engraft")).expect("it was written");
    }
    // A program that does not handle it.
    let us = env!("CARGO_BIN_EXE_engraft");
    let ran =
        plain(place.path(), &["timeout", "1", us, "count", "-q", "-o", "sleep.engraft", "--", "sleep", "9"]);
    assert_eq!(ran.status.code(), Some(124));
    assert!(place.path().join("sleep.engraft").exists());
    // What is ignored when we start is ignored in the program, and no more.
    for (ignored, want) in [("", 0), ("--ignore-signal=INT,HUP,USR2", 1 + 8 + 32)] {
        let line = format!(
            "exec env --default-signal {ignored} {us} count -q --no-cache -o run.engraft -- ./signals tell"
        );
        assert_eq!(plain(place.path(), &["sh", "-c", &line]).status.code(), Some(want), "{line}");
    }
}

#[test]
fn names_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    needs!("sh");
    let place = folder();
    let (folder_of, arg) = (OsStr::from_bytes(b"f\xff"), OsStr::from_bytes(b"a\xfe"));
    let path = place.path().join(folder_of);
    std::fs::create_dir(&path).expect("made");
    copy_program("/bin/sh", path.join(folder_of));
    let run = |with: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
        command.current_dir(place.path()).env("PATH", &path).args(["count", "-q", "--no-cache"]);
        command.args(with).args([folder_of, "-c".as_ref(), "printf %s \"$1\"".as_ref(), "sh".as_ref(), arg]);
        command.output().expect("it runs")
    };
    let ran = run(&["--".as_ref()]);
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), arg.as_bytes()), "{ran:?}");
    assert!(place.path().join(OsStr::from_bytes(b"f\xff.count.engraft")).exists());
}

#[test]
fn scripts_that_ask_env_count_what_runs_them() {
    needs!("sh", "env");
    let place = folder();
    let shell = std::fs::canonicalize("/bin/sh").expect("there is one");
    for (line, how) in [("/usr/bin/env sh", "no"), ("/usr/bin/env -S sh -e", "yes")] {
        let script = format!(
            "#!{line}\ncase $- in *e*) e=yes;; *) e=no;; esac\nreadlink /proc/$$/exe\necho \"$0 $1 $e\"\n"
        );
        put_program(&place.path().join("s"), script);
        let want = plain(place.path(), &["./s", "a b"]);
        assert_eq!(String::from_utf8_lossy(&want.stdout), format!("{}\n./s a b {how}\n", shell.display()));
        let us = env!("CARGO_BIN_EXE_engraft");
        let got = plain(
            place.path(),
            &[us, "count", "--json", "--no-cache", "-o", "s.engraft", "--", "./s", "a b"],
        );
        assert_eq!((got.stdout, got.status), (want.stdout, want.status), "{line}");
        let view: serde_json::Value = serde_json::from_slice(&got.stderr).expect("one object");
        assert_eq!(view["modules"][0]["path"].as_str(), shell.to_str(), "{line}");
    }
}

#[test]
fn what_is_not_counted_any_more_is_said() {
    needs!("gcc", "sh", "sleep");
    let place = folder();
    let us = env!("CARGO_BIN_EXE_engraft");
    let said = |command: &[&str]| {
        let ran =
            plain(place.path(), &[&[us, "count", "--no-cache", "-o", "run.engraft", "--"], command].concat());
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let (left, became) = ("1 process that it started still runs", "it became another program, /");
    compile(&place.path().join("leaves"), "leaves.c", "-O1");
    for (command, has_left, has_become) in [
        (&["./leaves"][..], true, false),
        (&["sh", "-c", "exec sleep 0.5"], false, true),
        (&["sleep", "0.5"], false, false),
    ] {
        let said = said(command);
        assert_eq!(
            (said.contains(left), said.contains(became)),
            (has_left, has_become),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn few_addresses_are_enough() {
    needs!("gcc", "sh");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    let line = format!(
        "ulimit -v 8000000; exec {} count -q --no-cache -o run.engraft -- ./host",
        env!("CARGO_BIN_EXE_engraft")
    );
    let ran = plain(place.path(), &["sh", "-c", &line]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let got = blocks(place.path(), "run.engraft", "plugin.so");
    assert!(got.values().any(|n| *n == 6000), "{got:?}");
}

/// More often than there are rows.
#[test]
fn a_library_can_be_loaded_again_and_again() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -DTIMES=600 -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    counted(place.path(), &["./host"], "all");
    let got = blocks(place.path(), "run.engraft", "plugin.so");
    assert!(got.values().any(|n| *n == 1_200_000), "{got:?}");
}

#[test]
fn programs_that_use_gs_are_refused() {
    needs!("gcc");
    for (flags, uses) in [("-DSET", true), ("-DREAD -no-pie", true), ("", false), ("-static", false)] {
        let place = folder();
        compile(&place.path().join("gs"), "gs.c", &format!("-O2 {flags}"));
        let ran = engraft(place.path(), "count -q --no-cache -o gs.engraft -- ./gs");
        let file = engraft(place.path(), "instrument -q gs -o counting");
        let said = "uses gs itself, at 0x";
        assert_eq!((ran.stderr.contains(said), file.stderr.contains(said)), (uses, uses), "{}", ran.stderr);
        let want = if uses { (Some(2), "") } else { (Some(3), "ran\n") };
        assert_eq!((ran.code, ran.stdout.as_str()), want, "{flags}");
        // Moving alone does not need it.
        let null = engraft(place.path(), "instrument -q --null gs -o moved");
        assert_eq!(null.code, Some(0), "{}", null.stderr);
        assert_eq!(plain(place.path(), &["./moved"]).status.code(), Some(3), "{flags}");
    }
}

#[test]
fn what_cannot_be_started_is_said() {
    let place = folder();
    let ran = engraft(place.path(), "count -- no-such-program");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(
        ran.stderr.starts_with("engraft: no program no-such-program was found\nhint: "),
        "{}",
        ran.stderr
    );
    std::fs::write(place.path().join("text"), "no program").expect("written");
    let ran = engraft(place.path(), "count -- ./text");
    assert!(ran.stderr.contains("is no ELF file"), "{}", ran.stderr);
}

#[test]
fn short_functions_are_counted_where_only_moved_code_calls_them() {
    needs!("gcc");
    for flags in ["-Os", "-Os -no-pie -fno-PIE", "-Os -static"] {
        let place = folder();
        compile(&place.path().join("short"), "short.c", flags);
        counted(place.path(), &["./short"], "exe");
        let shown = engraft(place.path(), "show --counts run.engraft --json").json();
        let entries = |name: &str| {
            let all = shown["functions"].as_array().expect("a list");
            all.iter().find(|f| f["name"] == name).map(|f| f["entries"].clone())
        };
        assert_eq!(entries("called"), Some(1000.into()), "{flags}: {shown}");
        assert_eq!(entries("known"), Some(1001.into()), "{flags}: {shown}");
        // And nothing reaches the old code.
        engraft(place.path(), "instrument short -o moved --null --poison -q").ok();
        let moved = plain(place.path(), &["./moved"]);
        assert_eq!(
            (String::from_utf8_lossy(&moved.stdout).as_ref(), moved.status.code()),
            ("done\n", Some(0))
        );
    }
}

#[test]
fn programs_that_are_known_by_their_addresses_are_refused() {
    needs!("gcc");
    for (text, flags, want) in [
        ("long caml_frametable[1]; int main(void) { return 0; }", "-O1", "a native OCaml program"),
        (
            "long camlList__frametable[1]; int main(void) { return 0; }",
            "-O1 -rdynamic -s",
            "a native OCaml program",
        ),
        (
            "const char *volatile s = \"OCAMLRUNPARAM\"; char e[] = \"Undefined_recursive_module\"; int main(void) { return !s; }",
            "-O1 -s",
            "a native OCaml program",
        ),
        ("void stg_upd_frame_info(void) {} int main(void) { return 0; }", "-O1", "a Haskell program"),
        (
            "const char *volatile s[] = {\"GHCRTS\", \"Usage: <prog> <args> [+RTS <rtsopts> | -RTS <args>] ... --RTS <args>\"};\
             int main(void) { return !s[1]; }",
            "-O1 -s",
            "a Haskell program",
        ),
    ] {
        let place = folder();
        built(place.path(), "old", text, flags);
        for verb in ["count -o new --", "instrument --null -o new"] {
            let ran = engraft(place.path(), &format!("{verb} ./old"));
            assert_eq!(ran.code, Some(2), "{verb} {text} {flags}");
            assert!(ran.stderr.contains(want), "{}", ran.stderr);
        }
    }
}

#[test]
fn what_cannot_be_moved_runs_uncounted() {
    needs!("gcc");
    let place = folder();
    let text = "__asm__(\".globl _start\\n_start: mov $60,%eax\\n mov $3,%edi\\n syscall\");";
    for flags in ["-nostdlib -static", "-nostdlib -static-pie", "-nostdlib -pie"] {
        built(place.path(), "old", text, flags);
        let ran = engraft(place.path(), "count --no-cache -o run.engraft -- ./old");
        assert_eq!(ran.code, Some(3), "{flags}: {}", ran.stderr);
        assert!(ran.stderr.contains("control flow not understood: _start"), "{flags}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("old was counted: no function of it can be moved"),
            "{flags}: {}",
            ran.stderr
        );
        let ran = engraft(place.path(), "instrument -o new ./old");
        assert!(ran.stderr.contains("new will record nothing"), "{flags}: {}", ran.stderr);
        assert_eq!(plain(place.path(), &["./new"]).status.code(), Some(3), "{flags}");
    }
}

#[test]
fn a_recording_says_what_was_not_counted() {
    needs!("gcc");
    let place = folder();
    let text = "__attribute__((naked, noinline, used)) void odd(void) { __asm__(\"lea 1f(%rip), %rax; jmp *%rax; 1: call 2f; 2: pop %rax; ret\"); }\n\
        int main(void) { odd(); return 0; }";
    built(place.path(), "old", text, "-O1");
    let ran = engraft(place.path(), "count --no-cache -o run.engraft --modules exe,nosuch ./old");
    assert!(ran.stderr.contains("no module is called nosuch"), "{}", ran.stderr);
    assert!(ran.stderr.contains("not counted: 1 function, "), "{}", ran.stderr);
    let ran = engraft(place.path(), "show run.engraft function odd");
    assert!(ran.stderr.contains("odd was not counted: "), "{}", ran.stderr);
    assert_eq!(
        engraft(place.path(), "show run.engraft").ok(),
        engraft(place.path(), "show --counts run.engraft").ok()
    );
    let ran = engraft(place.path(), "convert run.engraft --thread 2 --binary old -o two.csv");
    assert!(ran.stderr.contains("does not keep the counts of threads apart"), "{}", ran.stderr);
}

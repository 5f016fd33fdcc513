//! Traces as folded stacks and as slices, held against the plain trace, against callgrind, and against a
//! program's own clock.

use crate::needs;
use crate::query::{ENTER, EXIT, FUNCTIONS, random_run, written};
use crate::run::{compile, engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each stack of the run's symbols from `start` on, before `end`, executed a block; so deep at
/// most.
fn stacks(run: &[u32], start: usize, end: usize, depth: usize) -> BTreeMap<String, u64> {
    let (mut open, mut counts) = (Vec::new(), BTreeMap::new());
    for (index, &code) in run.iter().enumerate().take(end) {
        match code {
            EXIT => drop(open.pop()),
            ENTER.. => open.push(FUNCTIONS[(code - ENTER) as usize]),
            _ if index >= start => {
                *counts.entry(open[..open.len().min(depth)].join(";")).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    counts
}

/// Lines `STACK NUMBER`, which must differ.
#[track_caller]
fn folded(folder: &Path, file: &str) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(folder.join(file)).expect("it was written");
    let line = |line: &str| {
        let (stack, n) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (stack.to_owned(), n.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    let counts: BTreeMap<String, u64> = text.lines().map(line).collect();
    assert_eq!(counts.len(), text.lines().count(), "a stack stands twice in {text}");
    counts
}

#[test]
fn folded_stacks_are_those_of_the_plain_trace() {
    let place = folder();
    let run = random_run(5, 4000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zstd");
    let n_blocks = run.iter().filter(|code| **code < ENTER).count();
    for file in ["packed", "chunks"] {
        for (args, start, end, depth) in [
            ("", 0, run.len(), 99),
            ("--depth 3", 0, run.len(), 3),
            ("--at 700..2900", 700, 2900, 99),
            ("--at 1..2 --thread 1 --depth 1", 1, 2, 1),
        ] {
            let said = engraft(place.path(), &format!("convert {file}.trace -o x.folded {args}")).ok();
            let (got, want) = (folded(place.path(), "x.folded"), stacks(&run, start, end, depth));
            assert_eq!(got, want, "{file} {args}");
            let total: u64 = want.values().sum();
            assert!(said.contains(&format!(", {total} blocks executed")), "{said}");
            assert!(!args.is_empty() || total == n_blocks as u64);
        }
    }
}

/// The events of a file of slices, without those that name tracks.
#[track_caller]
fn events(folder: &Path, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(file)).expect("it was written");
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err} in {text}"));
    let events = json["traceEvents"].as_array().expect("a list, by the format");
    events.iter().filter(|event| event["ph"] != "M").cloned().collect()
}

/// A call: depth, name, start and end.
type Call = (usize, String, f64, f64);

/// Each track's calls; fails unless each that begins ends, in order.
#[track_caller]
fn calls(events: &[Value]) -> BTreeMap<u64, Vec<Call>> {
    let mut tracks: BTreeMap<u64, (Vec<usize>, f64, Vec<Call>)> = BTreeMap::new();
    for event in events {
        let (open, last, all) = tracks.entry(event["tid"].as_u64().expect("a number")).or_default();
        let at = event["ts"].as_f64().expect("a number");
        assert!(at >= *last, "{event} goes back");
        *last = at;
        if event["ph"] == "B" {
            open.push(all.len());
            all.push((open.len(), event["name"].as_str().expect("a name").to_owned(), at, f64::NAN));
        } else {
            assert_eq!(event["ph"], "E");
            all[open.pop().expect("what ends has begun")].3 = at;
        }
    }
    assert!(tracks.values().all(|(open, ..)| open.is_empty()), "what has begun ends");
    tracks.into_iter().map(|(track, (.., all))| (track, all)).collect()
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "indices of a small run")]
fn slices_are_the_calls_of_the_plain_trace() {
    let place = folder();
    let run = random_run(6, 3000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zlib");
    let want = |start: usize, end: usize, depth: usize| {
        let (mut open, mut all) = (Vec::<usize>::new(), Vec::new());
        for (index, &code) in run.iter().enumerate() {
            match code {
                EXIT => {
                    let call: &mut Call = &mut all[open.pop().expect("the run is balanced")];
                    call.3 = index.clamp(start, end) as f64;
                }
                ENTER.. => {
                    open.push(all.len());
                    let name = FUNCTIONS[(code - ENTER) as usize].to_owned();
                    let begins = if index < end { index.max(start) as f64 } else { f64::NAN };
                    all.push((open.len(), name, begins, 0.0));
                }
                _ => {}
            }
        }
        // Left before the part, or entered behind it; what ends with the symbol before the part is not in it.
        let mut index_of_end = all.iter().map(|call| call.3).collect::<Vec<_>>().into_iter();
        all.retain(|call| {
            let ends = index_of_end.next().expect("as many");
            call.0 <= depth && !call.2.is_nan() && (start == 0 || ends > start as f64)
        });
        all
    };
    for file in ["packed", "chunks"] {
        for (args, start, end, depth) in [
            ("", 0, run.len(), 99),
            ("--depth 2", 0, run.len(), 2),
            ("--at 801..2200 --depth 4", 801, 2200, 4),
        ] {
            let ran = engraft(place.path(), &format!("convert {file}.trace -o x.trace.json {args}"));
            assert!(ran.code == Some(0) && ran.stderr.contains("has no times"), "{}", ran.stderr);
            let got = calls(&events(place.path(), "x.trace.json"));
            assert_eq!(got.into_values().collect::<Vec<_>>(), [want(start, end, depth)], "{file} {args}");
        }
    }
    engraft(place.path(), "convert packed.trace -q -o y.json --to chrome --depth 2").ok();
    let all = |file: &str| events(place.path(), file);
    engraft(place.path(), "convert packed.trace -q -o x.trace.json --depth 2").ok();
    assert_eq!(all("y.json"), all("x.trace.json"));
}

#[test]
fn slices_of_a_recording_have_its_times() {
    needs!("gcc");
    let place = folder();
    let text = "#include <pthread.h>\n#include <time.h>\n#include <stdio.h>
        __attribute__((noinline)) void step(volatile long *n) { ++*n; }
        static void *work(void *v) { volatile long n = 0; for (int i = 0; i < 1000; i++) step(&n); return 0; }
        int main(void) { struct timespec t = {0, 400000000}; nanosleep(&t, 0); pthread_t p;
          pthread_create(&p, 0, work, 0); pthread_join(p, 0); return 0; }";
    std::fs::write(place.path().join("a.c"), text).expect("written");
    must(Command::new("gcc").args(["-O1", "-pthread", "-o", "a", "a.c"]).current_dir(place.path()));
    let before = std::time::Instant::now();
    engraft(place.path(), "trace -q --no-cache -o run.trace -- ./a").ok();
    let took = before.elapsed().as_secs_f64() * 1e6;
    engraft(place.path(), "convert run.trace -q -o run.trace.json").ok();
    let tracks = calls(&events(place.path(), "run.trace.json"));
    let of = |name: &str| {
        let all = tracks.iter().flat_map(|(track, all)| all.iter().map(move |call| (*track, call)));
        all.filter(|(_, call)| call.1 == name).collect::<Vec<_>>()
    };
    let (main, work) = (of("main")[0], of("work")[0]);
    assert_eq!((main.0, work.0, of("step").len()), (0, 1, 1000));
    assert!(work.1.2 >= 400_000.0 && work.1.3 <= took, "{work:?} of {took}");
    // Of one chunk, symbols are spread evenly: to its end.
    let last = tracks[&0].iter().map(|call| call.3).fold(0.0, f64::max);
    assert!(main.1.2 < 400_000.0 && last >= 400_000.0 && last <= took, "{main:?}, {last}");
    // Packed, it has the same times.
    engraft(place.path(), "convert run.trace -q --store packed -o packed.trace").ok();
    engraft(place.path(), "convert packed.trace -q -o packed.trace.json").ok();
    assert_eq!(events(place.path(), "packed.trace.json"), events(place.path(), "run.trace.json"));
    engraft(place.path(), "convert packed.trace -q -o again.trace --store zstd").ok();
    engraft(place.path(), "convert again.trace -q -o again.trace.json").ok();
    assert_eq!(events(place.path(), "again.trace.json"), events(place.path(), "run.trace.json"));
}

/// callgrind counts what is executed while a function is open.
#[test]
fn instructions_of_stacks_are_those_that_callgrind_counts() {
    needs!("gcc", "valgrind");
    let place = folder();
    compile(&place.path().join("old"), "branches.c", "-O1 -fno-inline -g");
    // main calls it, and it calls nothing.
    let of = "rounds";
    let toggle = format!("--toggle-collect={of}");
    let callgrind = ["-q", "--tool=callgrind", &toggle, "--callgrind-out-file=old.out", "./old", "5000", "3"];
    let ran = Command::new("valgrind").current_dir(place.path()).args(callgrind).status();
    // It ends with what it has found out.
    assert!(ran.is_ok_and(|status| status.code().is_some_and(|code| code > 2)));
    let out = std::fs::read_to_string(place.path().join("old.out")).expect("written");
    let want: u64 = out
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")))
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or_else(|| panic!("{out}"));
    engraft(place.path(), "trace -q --no-cache -o run.trace -- ./old 5000 3");
    for store in ["run", "packed"] {
        engraft(place.path(), &format!("convert {store}.trace -q -o x.folded --weight instructions")).ok();
        let stacks = folded(place.path(), "x.folded");
        let under = stacks.iter().filter(|(stack, _)| stack.split(';').any(|frame| frame == of));
        assert_eq!(under.map(|(_, n)| n).sum::<u64>(), want, "{of} in {stacks:?}");
        engraft(place.path(), "convert run.trace -q --store packed -o packed.trace").ok();
    }
    std::fs::write(place.path().join("old"), "another").expect("written");
    let ran = engraft(place.path(), "convert run.trace -q -o x.folded --weight instructions");
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
}

#[test]
fn bad_questions_of_exports_are_named() {
    let place = folder();
    written(place.path(), "run", &random_run(1, 100), "packed");
    for (args, says) in [
        ("run.trace -o x.trc --depth 3", "name the output X.folded, X.svg or X.trace.json"),
        ("run.trace -o x.folded --depth 0", "--depth"),
        ("run.trace -o x.folded --at 5..5", "a range is I..J"),
        ("run.trace -o x.folded --at 50..5000", "symbols: say 50.."),
        ("run.trace -o x.folded --thread 2", "they are counted from 1"),
        ("run.trace -o x.folded --weight instructions", "say --binary BIN, or count blocks"),
        ("run.trace -o x.trace.json --weight blocks", "leave --weight out, or write folded stacks"),
        ("names.meta -o x.json --to chrome", "names.meta is no trace\nhint: traces are what `engraft trace`"),
        ("names.meta -o z.trace", "names.meta is no trace\nhint: "),
        ("nothing -o z.trace", "cannot read nothing: No such file"),
        ("run.trace run.trace -o z.trace", "run.trace, run.trace are 2 files"),
        ("run.trace -o x.json --to crome", "lcov, trace, chrome"),
        (
            "run.trace -o x.foo",
            "x.foo does not say in which format to write\nhint: end its name in one of these, ",
        ),
        ("run.trc -o -", "or say --to: engraft, "),
        ("run.trace -o -", "- does not say in which format"),
        ("run.trc -o x.folded", "make a trace of ours of it first: `engraft convert run.trc -o X.trace`"),
        ("run.trc -o x.trace.json", "run.trc does not become x.trace.json at once"),
        ("run.trc -o x.csv", "run.trc does not become x.csv at once"),
        ("run.trc -o y.trc", "run.trc does not become y.trc at once"),
        ("names.meta -o x.foo", ", trace, chrome; plain traces end in .trc"),
    ] {
        let ran = engraft(place.path(), &format!("convert {args}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args}: {}", ran.stderr);
    }
    let left = |name: &str| ["x", "y", "z"].iter().any(|stem| name.split('.').next() == Some(*stem));
    let files = std::fs::read_dir(place.path()).expect("it is ours");
    let files = files.map(|file| file.expect("it is there").file_name().to_string_lossy().into_owned());
    assert_eq!(files.filter(|name| left(name)).collect::<Vec<_>>(), Vec::<String>::new());
}

/// By its name, or as it is asked for; `-` is standard output.
#[test]
fn a_trace_becomes_what_its_new_name_says() {
    let place = folder();
    let run = random_run(2, 300);
    written(place.path(), "run", &run, "zstd");
    let read = |name: &str| std::fs::read(place.path().join(name)).expect("it was written");
    let convert = |args: &str| engraft(place.path(), &format!("convert -q {args}")).ok();
    for to in ["-o again.trc", "-o again.trc --to trace", "-o again.TRC"] {
        convert(&format!("run.trace {to}"));
        assert!(read(to.split_whitespace().nth(1).expect("a name")) == read("run.trc"), "{to}");
    }
    for to in ["-o small.trace", "-o small --store packed", "-o small.csv.trace"] {
        convert(&format!("run.trace {to}"));
        let name = to.split_whitespace().nth(1).expect("a name");
        assert!(
            read(name).starts_with(b"ENGRAFT\0") && !read(name).windows(4).any(|tag| tag == b"CHNK"),
            "{to}"
        );
        convert(&format!("{name} -o again.trc"));
        assert!(read("again.trc") == read("run.trc"), "{to}");
    }
    convert("run.trc -o plain.trace");
    // There is one thing that a plain trace becomes, whatever it is called.
    for name in ["any", "any.name", "any.engraft"] {
        convert(&format!("run.trc -o {name}"));
        assert!(read(name) == read("plain.trace"), "{name}");
    }
    let to_pipe = |how: &str| {
        let mut convert = Command::new(env!("CARGO_BIN_EXE_engraft"));
        convert
            .args(["convert", "-q", "run.trace", "-o", "-"])
            .args(how.split(' '))
            .current_dir(place.path());
        convert.output().expect("it runs").stdout
    };
    assert!(to_pipe("--to trace") == read("run.trc"));
    assert!(to_pipe("--store packed") == read("small"));
    assert!(!place.path().join("-").exists());
}

//! `engraft values`: what programs say of themselves is what is recorded, and they do not notice.

use crate::needs;
use crate::run::{compile, engraft, folder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// How often each value of a column came.
fn counts(column: &Value) -> BTreeMap<String, u64> {
    let top = column["top"].as_array().expect("values");
    let one = |value: &Value| {
        let text = value["value"].as_str().expect("text").to_owned();
        (text, value["count"].as_u64().expect("a number"))
    };
    top.iter().map(one).collect()
}

/// The lines of what the program in `folder` prints.
fn printed(folder: &Path, program: &str) -> (String, Option<i32>) {
    let ran = Command::new(folder.join(program)).output().expect("it runs");
    (String::from_utf8(ran.stdout).expect("text"), ran.status.code())
}

/// Registers of all widths, in three threads; the recording shows what was said after the run.
#[test]
fn registers_have_what_the_program_says() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("values"), "values.c", "-O1 -pthread");
    let (want, code) = printed(folder, "values");
    let at = "--at scaled xmm0,edi:i32,sil,xmm1:f32 --at rotated+0 rdi,si:i16";
    let ran = engraft(folder, &format!("values --no-cache --json -o all.engraft {at} ./values"));
    assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), code));
    let said: Value =
        serde_json::from_str(ran.stderr.lines().last().unwrap_or_default()).expect("it is JSON");
    let shown = engraft(folder, "show all.engraft --json").json();
    assert_eq!(shown, said);
    let places = said["places"].as_array().expect("places");
    assert_eq!(places.iter().map(|p| p["executions"].as_u64()).collect::<Vec<_>>(), [Some(150_000); 2]);
    let mut truth: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for line in want.lines() {
        let [register, value, n] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        truth.entry(register.to_owned()).or_default().insert(value.to_owned(), n.parse().expect("a number"));
    }
    let columns = places.iter().flat_map(|place| place["values"].as_array().expect("values"));
    let got: BTreeMap<String, BTreeMap<String, u64>> =
        columns.map(|column| (column["name"].as_str().expect("text").to_owned(), counts(column))).collect();
    assert_eq!(got, truth);
}

/// What is not there is said, and so is what nothing came by at; what cannot be understood ends before the
/// program runs.
#[test]
fn what_is_not_there_is_said() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("values"), "values.c", "-O1 -pthread");
    let ran = engraft(folder, "values --no-cache -o a.engraft --at nothing rdi --at main rdi ./values");
    assert_eq!(ran.code, Some(7));
    assert!(ran.stderr.contains("there is no nothing in what was loaded"), "{}", ran.stderr);
    for (args, words) in [
        ("--at main rdx2", "\"rdx2\" is no register"),
        ("--at main rdi:f65", "\"f65\" is no kind of value"),
        ("--at main edi:u64", "edi has no u64: it is 4 bytes wide"),
        ("", "no value is asked for"),
        ("--calls double(x)", "--calls double(x): "),
        ("--header nowhere.h --calls f", "cannot read nowhere.h"),
    ] {
        let ran = engraft(folder, &format!("values --no-cache -o b.engraft {args} ./values"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(ran.stderr.contains(words), "{args}: {}", ran.stderr);
        assert!(!folder.join("b.engraft").exists());
    }
}

/// Of each function: calls, results, left, open.
fn ends(said: &Value) -> BTreeMap<String, [u64; 4]> {
    let number = |row: &Value, what: &str| row[what].as_u64().expect("a number");
    let one = |row: &Value| {
        let counts = ["calls", "results", "left", "open"].map(|what| number(row, what));
        (row["function"].as_str().expect("text").to_owned(), counts)
    };
    said["calls"].as_array().expect("calls").iter().map(one).collect()
}

/// By exceptions, `longjmp`, jumps to others, the end of a thread, of the process: each call ends in the way
/// that the program says, and ends as without us.
#[test]
fn each_call_comes_back_or_is_left_or_is_open() {
    needs!("g++");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("ends"), "calls_end.cpp", "-O2 -pthread -lstdc++");
    let calls = "'long deep(long n, long throws); long catches(long); int handled(int); void leaves(long n);
        long seventh(long, long, long, long, long, long, long g);
        long jumps(long, long, long, long, long, long, long g); void last(long n);'";
    for how in ["return", "exit", "_exit", "abort", "kill", "fault", "thread"] {
        let plain = Command::new(folder.join("ends")).arg(how).output().expect("it runs");
        let want = String::from_utf8(plain.stdout).expect("text");
        let mut ran = Command::new(US);
        ran.args(["values", "--no-cache", "--json=said.json", "-o", "all.engraft", "--calls"]);
        let ran = ran.arg(calls.trim_matches('\'')).args(["./ends", how]).current_dir(folder).output();
        let ran = ran.expect("it runs");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), want, "{how}");
        let code = std::os::unix::process::ExitStatusExt::signal(&plain.status).map(|n| 128 + n);
        assert_eq!(ran.status.code(), code.or(plain.status.code()), "{how}");
        let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
        let said: Value = serde_json::from_str(&said).expect("it is JSON");
        let truth = want.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let counts: [u64; 4] = std::array::from_fn(|n| words[n + 1].parse().expect("a number"));
            (words[0].to_owned(), counts)
        });
        let mut truth: BTreeMap<_, _> = truth.collect();
        if how == "return" {
            assert_eq!(truth["last"], [0; 4]);
        }
        let got = ends(&said);
        truth.retain(|name, _| got.contains_key(name));
        assert_eq!(truth.len(), 7);
        assert_eq!(got, truth, "{how}");
        let deep = said["calls"].as_array().expect("calls").iter().find(|row| row["function"] == "deep");
        let results = counts(&deep.expect("it is there")["result"]);
        assert_eq!(results, (1..=5).map(|n| (n.to_string(), 100)).collect(), "{how}");
    }
}

/// What wants counts says so of a recording of values; what a glob means is listed if it was called.
#[test]
fn values_are_not_counts() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("values"), "values.c", "-O1 -pthread");
    let said = engraft(
        folder,
        "values --no-cache --json=said.json -o a.engraft --calls sca*d --calls ma?n* ./values",
    );
    assert_eq!(said.code, Some(7), "{}", said.stderr);
    let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(ends(&said), BTreeMap::from([("scaled".to_owned(), [150_000, 150_000, 0, 0])]));
    for args in [
        "show a.engraft functions",
        "show a.engraft function main",
        "convert a.engraft -o a.csv",
        "carry values values --profile a.engraft -o b.fdata",
        "diff a.engraft a.engraft",
    ] {
        let ran = engraft(folder, args);
        assert_eq!(ran.code, Some(2), "{args}");
        assert!(
            ran.stderr.contains("has values of calls and places, and no counts"),
            "{args}: {}",
            ran.stderr
        );
    }
}

/// Through the PLT, bound at once or late, or not; by pointer, by `dlsym`, in two versions, in one that a
/// resolver chooses, in a static program, in one without symbols: every call is seen, once, and has its
/// result.
#[test]
fn calls_are_seen_however_they_are_made() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let calls = ["sin(double)", "cos(double)", "exp(double)", "tan(double)", "pow(double, double)"];
    let calls = calls.map(|declared| format!("double {declared};")).concat();
    for flags in ["-Wl,-z,now", "-Wl,-z,lazy", "-fno-plt", "-s", "-static -DSTATIC", "-no-pie"] {
        compile(&folder.join("calls"), "ways_to_call.c", &format!("-O1 -fno-builtin -w {flags} -lm -ldl"));
        let plain = Command::new(folder.join("calls")).output().expect("it runs");
        let want = String::from_utf8(plain.stdout).expect("text");
        let mut ran = Command::new(US);
        ran.args([
            "values",
            "--no-cache",
            "--json=said.json",
            "-o",
            "all.engraft",
            "--calls",
            &calls,
            "./calls",
        ]);
        let ran = ran.current_dir(folder).output().expect("it runs");
        assert_eq!((ran.stdout, ran.status.code()), (want.clone().into_bytes(), Some(0)), "{flags}");
        let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
        let got = ends(&serde_json::from_str(&said).expect("it is JSON"));
        let truth: BTreeMap<String, [u64; 4]> = want
            .lines()
            .map(|line| {
                let (name, n) = line.split_once(' ').expect("two words");
                let n = n.parse().expect("a number");
                (name.to_owned(), [n, n, 0, 0])
            })
            .collect();
        assert_eq!(got, truth, "{flags}");
    }
}

/// Of each function of the fixture `loops.cpp`: how many instances of its loop were left otherwise, were
/// open, and had so many iterations.
type Instances = BTreeMap<String, (u64, u64, BTreeMap<u64, u64>)>;

fn instances_printed(text: &str) -> Instances {
    let one = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let counts = words[3..].iter().map(|word| {
            let (iterations, n) = word.split_once(':').expect("two numbers");
            (number(iterations), number(n))
        });
        (words[0].to_owned(), (number(words[1]), number(words[2]), counts.collect()))
    };
    text.lines().map(one).collect()
}

/// The same of a report; an inner loop goes by the name `inner`.
fn instances_said(said: &Value) -> Instances {
    let one = |row: &Value| {
        let number = |of: &Value, what: &str| of[what].as_u64().expect("a number");
        let trips = row["trip_counts"].as_array().expect("numbers of iterations").iter();
        let counts: BTreeMap<u64, u64> =
            trips.map(|one| (number(one, "iterations"), number(one, "instances"))).collect();
        let total: u64 = counts.iter().map(|(iterations, n)| iterations * n).sum();
        assert_eq!(row["iterations"]["total"].as_f64(), Some(total as f64));
        assert_eq!(counts.values().sum::<u64>(), number(row, "instances"));
        assert_eq!(number(row, "uncertain"), 0);
        let name = if number(row, "depth") == 2 { "inner" } else { row["function"].as_str().expect("text") };
        (name.to_owned(), (number(row, "left"), number(row, "open"), counts))
    };
    said["loops"].as_array().expect("loops").iter().map(one).collect()
}

/// Nested loops, with several entries and exits, by recursion, left by exceptions and `longjmp`, open at the
/// end, in threads, with a stack that grows: each instance has the iterations that the program counts.
#[test]
fn each_instance_of_a_loop_has_its_iterations() {
    needs!("g++");
    let place = folder();
    let folder = place.path();
    for (level, options) in [("-O1", ""), ("-O2", ""), ("-Os", "--no-ticks "), ("-O1", "--serialise ")] {
        compile(&folder.join("loops"), "loops.cpp", &format!("{level} -pthread -lstdc++"));
        let (want, code) = printed(folder, "loops");
        let truth = instances_printed(&want);
        let asked: Vec<String> =
            truth.keys().filter(|name| *name != "inner").map(|name| format!("--loop {name}")).collect();
        let asked = asked.join(" ");
        let ran =
            engraft(folder, &format!("values --no-cache --json -o all.engraft {options}{asked} ./loops"));
        assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), code), "{level}");
        let said: Value =
            serde_json::from_str(ran.stderr.lines().last().unwrap_or_default()).expect("it is JSON");
        assert_eq!(instances_said(&said), truth, "{level} {options}");
        let is_timed = said["loops"].as_array().expect("loops").iter().all(|one| one["ticks"].is_object());
        let has_none = said["loops"].as_array().expect("loops").iter().all(|one| one["ticks"].is_null());
        assert!(if options == "--no-ticks " { has_none } else { is_timed || truth["ends"].2.is_empty() });
        assert_eq!(engraft(folder, "show all.engraft --json").json(), said);
    }
}

/// Loops are found by their function and line, their file and line, an address, and by what a recording says
/// of how often they ran.
#[test]
fn loops_are_found_as_people_name_them() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    let source = "#include <stdlib.h>\n\
        __attribute__((noinline)) long work(long n, long m) {\n\
        \x20 long sum = 0;\n\
        \x20 for (long i = 0; i < n; i++)\n\
        \x20   for (long k = 0; k < m; k++)\n\
        \x20     __asm__ volatile(\"nop\" : \"+r\"(sum));\n\
        \x20 return sum;\n\
        }\n\
        int main(void) { for (long i = 0; i < 3; i++) work(100, 7); return 0; }\n";
    std::fs::write(folder.join("lines.c"), source).expect("it is written");
    let built =
        Command::new("gcc").args(["-O1", "-g", "-o", "lines", "lines.c"]).current_dir(folder).status();
    assert!(built.expect("it runs").success());
    let instances = |asked: &str| {
        let ran = engraft(folder, &format!("values --no-cache --json -o all.engraft {asked} ./lines"));
        let said: Value = serde_json::from_str(ran.stderr.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{asked}: {}", ran.stderr));
        let loops = said["loops"].as_array().expect("loops").clone();
        let one = |one: &Value| (one["line"].as_u64(), one["instances"].as_u64().expect("a number"));
        let mut all: Vec<_> = loops.iter().map(one).collect();
        all.sort_unstable();
        (all, loops)
    };
    let (all, loops) = instances("--loop work");
    assert_eq!(all.iter().map(|one| one.1).collect::<Vec<_>>(), [3, 300], "{all:?}");
    assert_eq!(instances("--loop work:6").0.iter().map(|one| one.1).collect::<Vec<_>>(), [300]);
    assert_eq!(instances("--loop lines.c:4").0.iter().map(|one| one.1).collect::<Vec<_>>(), [3]);
    assert!(all.iter().all(|one| one.0.is_some_and(|line| (4..=6).contains(&line))), "{all:?}");
    let header = loops.iter().find(|one| one["instances"] == 300).expect("it ran")["header"].as_u64();
    assert_eq!(instances(&format!("--loop {:#x}", header.expect("a number"))).0.len(), 1);
    // What is hot says a recording of this build, and nothing else does.
    let ran = engraft(folder, "values --no-cache --loop hot ./lines");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("run `engraft count PROGRAM` first"), "{}", ran.stderr);
    assert_eq!(engraft(folder, "count -q --no-cache -o counted.engraft ./lines").code, Some(0));
    assert_eq!(instances("--loop hot:1").0.iter().map(|one| one.1).collect::<Vec<_>>(), [300]);
    assert_eq!(instances("--loop hot --from counted.engraft").0.len(), 2);
    compile(&folder.join("another"), "values.c", "-O1 -pthread");
    let ran = engraft(folder, "values --no-cache --loop hot --from counted.engraft ./another");
    assert!(ran.stderr.contains("counted.engraft is of another program than"), "{}", ran.stderr);
    let ran = engraft(folder, "values --no-cache -o all.engraft --loop nowhere ./lines");
    assert!(ran.stderr.contains("there is no loop nowhere in what was loaded"), "{}", ran.stderr);
}

/// Threads of OpenMP: arguments, results and iterations are those of all; two recordings become one.
#[test]
fn threads_of_openmp_and_several_runs_are_added_up() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("omp"), "omp.c", "-O2 -fopenmp");
    let (want, code) = printed(folder, "omp");
    let run = |rec: &str| {
        let mut ran = Command::new(US);
        ran.args([
            "values",
            "--no-cache",
            "-q",
            "-o",
            rec,
            "--loop",
            "work",
            "--calls",
            "long work(long n);",
        ]);
        let ran = ran.arg("./omp").current_dir(folder).output().expect("it runs");
        assert_eq!((String::from_utf8_lossy(&ran.stdout).as_ref(), ran.status.code()), (want.as_str(), code));
        engraft(folder, &format!("show {rec} --json")).json()
    };
    let rows = want.lines().filter(|line| !line.starts_with("sum"));
    let truth: BTreeMap<u64, u64> = rows
        .map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            assert_eq!(numbers[1], numbers[2]);
            (numbers[0], numbers[1])
        })
        .collect();
    let is_true = |said: &Value, times: u64| {
        let calls = &said["calls"][0];
        let arguments = truth.iter().map(|(n, count)| (n.to_string(), times * count)).collect();
        let results = truth.iter().map(|(n, count)| ((3 * n).to_string(), times * count)).collect();
        assert_eq!(counts(&calls["arguments"][0]), arguments);
        assert_eq!(counts(&calls["result"]), results);
        let trips = truth.iter().map(|(n, count)| (*n, times * count)).collect();
        assert_eq!(instances_said(said), BTreeMap::from([("work".to_owned(), (0, 0, trips))]));
    };
    is_true(&run("first.engraft"), 1);
    is_true(&run("second.engraft"), 1);
    let ran = engraft(folder, "convert first.engraft second.engraft -o both.engraft");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    is_true(&engraft(folder, "show both.engraft --json").json(), 2);
}

/// Who jumps into another function's middle does not call it: it finds its frame, registers and flags as they
/// were.
#[test]
fn jumps_into_the_middle_of_a_function_find_all_as_it_was() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("middle"), "middle.c", "-O1");
    let (want, _) = printed(folder, "middle");
    let calls = "--calls=long shares(long n); long owns(long n); long pops(long n);";
    let args = [calls, "--json=said.json", "./middle"];
    let mut ran = Command::new(US);
    let ran = ran.args(["values", "--no-cache", "-o", "a.engraft"]).args(args).current_dir(folder).output();
    let ran = ran.expect("it runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), want);
    let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&said).expect("it is JSON");
    let truth = [("shares", [5, 5, 0, 0]), ("owns", [5, 5, 0, 0]), ("pops", [5, 0, 5, 0])];
    assert_eq!(ends(&said), truth.map(|(name, counts)| (name.to_owned(), counts)).into());
}

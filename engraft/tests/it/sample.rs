//! `engraft sample`: shares of time against those that a program measures of itself, callers, processes that
//! run already, what comes of recordings.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{Ran, compile, engraft, folder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Runs `words`, which start a program that ends with 3; what the program printed, and the report.
#[track_caller]
fn sampled(folder: &Path, words: &str) -> (String, Value) {
    let ran: Ran = engraft(folder, &format!("sample --json=report.json {words}"));
    assert_eq!((ran.code, ran.stderr.lines().count() > 0), (Some(3), true), "{}", ran.stderr);
    let report = std::fs::read_to_string(folder.join("report.json")).expect("it was written");
    (ran.stdout, serde_json::from_str(&report).expect("it is JSON"))
}

/// The shares of the time that a program printed of its functions.
fn measured(printed: &str) -> BTreeMap<String, f64> {
    let lines = printed.lines().filter_map(|line| line.split_once(' '));
    let times: BTreeMap<String, f64> =
        lines.map(|(name, ns)| (name.to_owned(), ns.parse().expect("a number"))).collect();
    let all: f64 = times.values().sum();
    times.into_iter().map(|(name, ns)| (name, ns / all)).collect()
}

/// The row of a function.
#[track_caller]
fn row<'v>(report: &'v Value, name: &str) -> &'v Value {
    let rows = report["events"][0]["functions"].as_array().expect("a list");
    rows.iter().find(|row| row["function"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Each function's share is the one that the program measured, within five standard deviations of what so
/// many samples are, and what its clock takes. Interrupts are on top of what they interrupt.
#[track_caller]
fn agree(printed: &str, report: &Value) {
    let n = number(&report["events"][0]["samples"]);
    let within: f64 = report["events"][0]["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|row| row["function"].as_str().is_some_and(|name| name.starts_with("spin_")))
        .map(|row| number(&row["total_share"]))
        .sum();
    assert!(within > 0.85, "{within} of the samples are in what spins");
    for (name, share) in measured(printed) {
        let own = number(&row(report, &name)["total_share"]) / within;
        let sigma = (share * (1.0 - share) / n).sqrt();
        assert!(
            (own - share).abs() < 5.0 * sigma + 0.004,
            "{name}: {own} of the samples, {share} of the time"
        );
    }
}

#[test]
fn shares_are_those_that_the_program_measures() {
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -pthread");
    for threads in [1, 8] {
        let words = format!("-F 1500 -o rec.engraft ./shares {threads} {}", 2400 / threads);
        let (printed, report) = sampled(place.path(), &words);
        agree(&printed, &report);
        assert_eq!(report["threads"].as_array().expect("a list").len(), threads);
        assert!(number(&row(&report, "round_of_all")["total_share"]) > 0.95);
        let chains = &report["chains"];
        let (whole, cut) = (number(&chains["whole"]), number(&chains["cut"]));
        assert!(whole > 0.99 * (whole + cut), "{chains}");
    }
    // Flat.
    let (printed, report) = sampled(place.path(), "-F 1500 --no-chains -o flat.engraft ./shares 1 2000");
    agree(&printed, &report);
    assert_eq!(report["chains"], Value::Null);
}

#[test]
fn a_stripped_program_has_the_same_functions() {
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -pthread");
    compile(&place.path().join("stripped"), "shares.c", "-O2 -pthread -s");
    let symbols = engraft(place.path(), "show shares functions --json").json();
    let (printed, mut report) = sampled(place.path(), "-F 1500 -o rec.engraft ./stripped 1 1500");
    let at_of: BTreeMap<u64, String> = symbols["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| Some((row["at"].as_u64()?, row["name"].as_str()?.to_owned())))
        .collect();
    for row in report["events"][0]["functions"].as_array_mut().expect("a list") {
        if row["module"] == "stripped" {
            assert!(row["function"].as_str().is_some_and(|name| name.starts_with("fn_0x")), "{row}");
            let name = row["at"].as_u64().and_then(|at| at_of.get(&at));
            row["function"] = name.unwrap_or_else(|| panic!("{row} begins nowhere")).as_str().into();
        }
    }
    agree(&printed, &report);
}

#[test]
fn a_process_that_runs_already_is_sampled_and_goes_on() {
    let place = folder();
    let mut server = Server::start(place.path(), "sampled.c", "gcc", "-O2 -ldl");
    crate::run::built(
        place.path(),
        "later.so",
        "long later(long n) { for (volatile long i = 0; i < n; i++) ; return n; }",
        "-O2 -shared -fPIC",
    );
    let pid = server.pid();
    let path = place.path().to_owned();
    let observed = std::thread::spawn(move || {
        engraft(&path, &format!("sample -p {pid} --for 1500ms -F 1000 -o rec.engraft --json"))
    });
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    // A thread and a library that come meanwhile.
    assert_eq!(server.ask("thread"), "thread");
    assert_eq!(server.ask(&format!("open {}", place.path().join("later.so").display())), "opened");
    let ran = observed.join().expect("it ends");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(ran.stderr.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(report["processes"], serde_json::json!([pid]));
    let names: Vec<&str> =
        report["threads"].as_array().expect("a list").iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(names.contains(&"later") && names.contains(&"server"), "{names:?}");
    assert_eq!(row(&report, "later")["module"], "later.so");
    assert!(number(&row(&report, "later")["self"]) > 50.0);
    assert!(number(&row(&report, "of_thread")["self"]) > 50.0, "{}", row(&report, "of_thread"));
    // It is as it was, and goes on.
    assert_eq!(server.ask("thread"), "thread");
    server.end(true);
}

#[test]
fn recordings_are_shown_and_become_what_others_read() {
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -g -pthread");
    let (_, report) = sampled(place.path(), "-F 1000 -o rec.engraft ./shares 2 400");
    let n = number(&report["samples"]);
    let here = |words: &str| engraft(place.path(), words);
    let again = here("show rec.engraft --json").json();
    assert_eq!(again["events"], report["events"]);
    let functions = here("show rec.engraft functions").ok();
    assert!(functions.contains("spin_19"), "{functions}");
    assert!(here("show rec.engraft loops").ok().contains("spin_19"));
    assert!(here("show rec.engraft --by line").ok().contains("shares.c:"));
    let tree = here("show rec.engraft tree --json").json();
    assert_eq!((tree["unit"].as_str(), tree["total"].as_f64()), (Some("samples"), Some(n)));
    let callers = here("show rec.engraft callers spin_19 --json").json();
    let rows: Vec<&str> = callers["tree"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["function"].as_str())
        .collect();
    assert_eq!(rows.get(..3), Some(&["spin_19", "round_of_all", "work"][..]));
    let none = here("show rec.engraft callers nobody");
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert_eq!(here("show rec.engraft edges").code, Some(2));
    // Of one function: its code, with samples.
    assert!(here("show rec.engraft function spin_19").ok().contains("shares.c"));
    let folded = here("convert rec.engraft -o x.folded");
    assert_eq!(folded.code, Some(0), "{}", folded.stderr);
    let text = std::fs::read_to_string(place.path().join("x.folded")).expect("written");
    let sum: f64 = text.lines().filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
    assert_eq!(sum, n);
    assert!(text.lines().any(|line| line.contains("main;work;round_of_all;spin_19 ")), "{text}");
    for to in ["x.svg", "x.pb.gz", "x.firefox.json", "x.fdata", "x.csv"] {
        let written = here(&format!("convert rec.engraft -o {to}"));
        assert_eq!(written.code, Some(0), "{to}: {}", written.stderr);
    }
    let firefox = std::fs::read(place.path().join("x.firefox.json")).expect("written");
    let firefox: Value = serde_json::from_slice(&firefox).expect("JSON");
    let threads = firefox["threads"].as_array().expect("a list").iter();
    assert_eq!(threads.map(|thread| number(&thread["samples"]["length"])).sum::<f64>(), n);
    // It is a profile like others.
    compile(&place.path().join("new"), "shares.c", "-O1 -pthread");
    let carried = here("carry shares new --profile rec.engraft -o new.engraft");
    assert_eq!(carried.code, Some(0), "{}", carried.stderr);
    assert_eq!(here("diff rec.engraft rec.engraft").code, Some(0));
    // Counts have no callers and no times.
    assert_eq!(here("count -q -o counts.engraft ./shares 1 1").code, Some(3));
    let refused = here("convert counts.engraft -o y.firefox.json");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("engraft sample"), "{}", refused.stderr);
}

#[test]
fn llvm_bolt_takes_samples() {
    const BOLT: &str = "/usr/lib/llvm-19/bin/llvm-bolt";
    needs!("/usr/lib/llvm-19/bin/llvm-bolt");
    let place = folder();
    let flags = "-O2 -pthread -fno-reorder-blocks-and-partition -Wl,--emit-relocs";
    compile(&place.path().join("shares"), "shares.c", flags);
    let (_, report) = sampled(place.path(), "-F 1500 -o rec.engraft ./shares 1 800");
    let written = engraft(place.path(), "convert rec.engraft -o x.fdata --binary shares");
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let text = std::fs::read_to_string(place.path().join("x.fdata")).expect("written");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("no_lbr cycles"));
    let mut samples: BTreeMap<&str, f64> = BTreeMap::new();
    for line in lines {
        let [kind, name, _, n] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(kind, "1");
        *samples.entry(name).or_default() += n.parse::<f64>().expect("a number");
    }
    for n in 0..20 {
        let name = format!("spin_{n}");
        assert_eq!(samples.get(&*format!("{name}/1")), Some(&number(&row(&report, &name)["self"])), "{name}");
    }
    // llvm-bolt has them, each block's divided by its instructions, in thousandths.
    let mut bolt = std::process::Command::new(BOLT);
    bolt.current_dir(place.path()).args(["shares", "-data=x.fdata", "-lite=0", "-o", "fast", "-w", "x.yaml"]);
    let _said = crate::run::must(&mut bolt);
    let yaml = std::fs::read_to_string(place.path().join("x.yaml")).expect("written");
    let value = |line: &str, of: &str| Some(line.trim().strip_prefix(of)?.trim().to_owned());
    let (mut name, mut insns, mut taken) = (String::new(), 0.0, BTreeMap::<String, f64>::new());
    for line in yaml.lines() {
        if let Some(found) = value(line, "- name:") {
            name = found.trim_matches('\'').to_owned();
        } else if let Some(n) = value(line, "insns:") {
            insns = n.parse().expect("a number");
        } else if let Some(n) = value(line, "events:") {
            *taken.entry(name.clone()).or_default() += n.parse::<f64>().expect("a number") * insns / 1000.0;
        }
    }
    for (name, n) in samples.iter().filter(|(name, _)| name.starts_with("spin_")) {
        let got = taken.get(*name).copied().unwrap_or_default();
        assert!((got - n).abs() < 0.5, "{name}: {got} of {n}\n{yaml}");
    }
    let ran =
        std::process::Command::new(place.path().join("fast")).args(["1", "1"]).output().expect("it runs");
    assert_eq!(ran.status.code(), Some(3));
}

#[test]
fn what_cannot_be_sampled_is_refused_by_name() {
    let place = folder();
    let refused = |words: &str, what: &str, hint: &str| {
        let ran = engraft(place.path(), &format!("sample {words}"));
        assert_eq!(ran.code, Some(2), "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(what) && ran.stderr.contains(hint), "{words}: {}", ran.stderr);
    };
    refused("-e rain true", "no event rain", "page-faults");
    refused("-e no:such true", "no tracepoint no:such", "available_events");
    refused("-p 999999999", "no process 999999999", "ps -e");
    refused("-F 100000000 true", "samples no more than", "perf_event_max_sample_rate");
    refused("no-such-program", "no program no-such-program", "PATH");
    refused("-F never true", "never", "auto");
    refused("-o /no/such/folder/rec true", "/no/such/folder", "");
}

#[test]
fn other_events_are_sampled() {
    let place = folder();
    crate::run::built(
        place.path(),
        "touches",
        "#include <stdlib.h>\n#include <string.h>\n__attribute__((noinline)) void touch(char *p, long n) { for (long i = 0; i < n; i += 4096) p[i] = 1; }
         int main(void) { long n = 64l << 20; char *p = malloc(n); touch(p, n); return p[4096]; }",
        "-O1",
    );
    let ran =
        engraft(place.path(), "sample -e page-faults --period 1 -o rec.engraft --json=report.json ./touches");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["events"][0]["event"], &report["hertz"]), (&"page-faults".into(), &Value::Null));
    // Each page once, but where the kernel gives a large one at once.
    let n = number(&row(&report, "touch")["self"]);
    assert!((32.0..16_384.0 + 64.0).contains(&n), "{n}");
    assert_eq!(report["cost_share"], Value::Null);
}

#[test]
fn callers_deeper_than_what_is_copied_are_found() {
    let place = folder();
    let text = "#include <string.h>
        __attribute__((noinline)) long spin(long n) { for (volatile long i = 0; i < n; i++) ; return n; }
        __attribute__((noinline)) long deep(int n) {
            volatile char pad[4000]; pad[n] = 1;
            return n ? deep(n - 1) + pad[n] : spin(4000000000) + pad[0]; }
        __attribute__((noinline)) long realigned(int n) {
            volatile double v __attribute__((aligned(64))) = n; volatile char pad[n + 100]; pad[n] = 1;
            return deep(n) + (long)v + pad[n]; }
        int main(int n, char **v) { return realigned(n + 20) != 0; }";
    crate::run::built(place.path(), "deep", text, "-O2");
    let ran = engraft(place.path(), "sample -F 1000 -o rec.engraft --json=report.json ./deep");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let chains = &report["chains"];
    let (whole, later, cut) = (number(&chains["whole"]), number(&chains["later"]), number(&chains["cut"]));
    // What was found once is found again: the last ones' outer callers, too, gone before they could be read.
    assert!(cut <= 0.01 * (whole + cut) && (1.0..0.02 * whole).contains(&later), "{chains}");
    for name in ["main", "realigned", "deep"] {
        assert!(number(&row(&report, name)["total_share"]) > 0.98, "{}", row(&report, name));
    }
    let tree = engraft(place.path(), "show rec.engraft callers spin --json").json();
    let depths =
        tree["tree"].as_array().expect("a list").iter().filter(|row| row["function"] == "deep").count();
    assert_eq!(depths, 22, "{tree}");
}

#[test]
fn callers_that_are_gone_before_they_are_read_are_found_where_they_were_before() {
    let place = folder();
    let text = "#include <string.h>
        __attribute__((noinline)) long spin(long n) { for (volatile long i = 0; i < n; i++) ; return n; }
        #define DOWN(name, size) __attribute__((noinline)) long name(int n) { char pad[size]; \\
            memset(pad, n, sizeof pad); __asm__ volatile(\"\" : : \"r\"(pad) : \"memory\"); \\
            return n ? name(n - 1) + pad[n] : spin(4000) + pad[0]; }
        DOWN(one, 4096) DOWN(other, 4640)
        int main(int n, char **v) { long sum = 0;
            for (int i = 0; i < 400000; i++) sum += i % 2 ? one(17) : other(17); return sum != 0; }";
    crate::run::built(place.path(), "alternates", text, "-O2");
    let ran = engraft(place.path(), "sample -F 1000 -o rec.engraft --json=report.json ./alternates");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(chains(&report).0 >= 0.99, "{}", report["chains"]);
    assert!(number(&row(&report, "main")["total_share"]) > 0.98, "{}", row(&report, "main"));
    let tree = engraft(place.path(), "show rec.engraft callers spin --json").json();
    let tree = tree["tree"].as_array().expect("a list");
    // Neither was called by the other, and each by main alone, from as deep as it was.
    for name in ["one", "other"] {
        assert_eq!(tree.iter().filter(|row| row["function"] == name).count(), 18, "{tree:?}");
    }
}

/// Of how many samples all callers were found, as a share; and how much of stacks was copied.
#[track_caller]
fn chains(report: &Value) -> (f64, Vec<u64>) {
    let chains = &report["chains"];
    let (whole, cut) = (number(&chains["whole"]), number(&chains["cut"]));
    assert!(whole + cut > 100.0, "{chains}");
    let copied = chains["copied"].as_array().expect("a list").iter();
    (whole / (whole + cut), copied.filter_map(|one| one["bytes"].as_u64()).collect())
}

#[test]
fn as_much_of_stacks_is_copied_as_callers_are_found_in() {
    let place = folder();
    compile(&place.path().join("deepens"), "deepens.c", "-O2 -fomit-frame-pointer");
    // What is read a moment later is another call's.
    let (_, report) = sampled(place.path(), "--stack 8192 -F 500 -o rec.engraft ./deepens 0 800");
    let (whole, copied) = chains(&report);
    assert!(whole < 0.9 && copied == [8192], "{}", report["chains"]);
    let (_, report) = sampled(place.path(), "-o rec.engraft ./deepens 0 2000");
    let (whole, copied) = chains(&report);
    assert!(whole >= 0.99 && copied == [65_528], "{}", report["chains"]);
    assert!(number(&row(&report, "main")["total_share"]) >= 0.99, "{}", row(&report, "main"));
    assert!(number(&report["cost_share"]) < 0.01, "{report}");
    // Flat stacks before: few are cut until more is copied.
    let (_, report) = sampled(place.path(), "-F 500 -o rec.engraft ./deepens 600 3000");
    let (whole, copied) = chains(&report);
    assert!(whole >= 0.98 && copied == [8192, 65_528], "{}", report["chains"]);
    assert!(number(&row(&report, "main")["total_share"]) >= 0.98, "{}", row(&report, "main"));
    assert_eq!(report["lost"], 0);
    let text = engraft(place.path(), "show rec.engraft").ok();
    assert!(text.contains("8,192 bytes (") && text.contains("65,528 bytes ("), "{text}");
}

#[test]
fn samples_in_moved_code_are_of_the_functions_that_it_was_moved_from() {
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -pthread");
    // Observed before it is sampled; and only meanwhile.
    for (observed_ms, sampled_ms) in [(0, 1500), (1500, 0)] {
        let mut program = std::process::Command::new(place.path().join("shares"))
            .args(["2", "4000"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let (path, pid) = (place.path().to_owned(), program.id());
        let wait = |ms| std::thread::park_timeout(std::time::Duration::from_millis(ms));
        let observed = std::thread::spawn(move || {
            wait(observed_ms);
            engraft(&path, &format!("count -p {pid} --for 4s -q -o count.engraft"))
        });
        wait(sampled_ms);
        let sample = format!("sample -p {pid} --for 5s -F 1000 -o rec.engraft --json=report.json");
        let ran = engraft(place.path(), &sample);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let counted = observed.join().expect("it ends");
        assert_eq!(counted.code, Some(0), "{}", counted.stderr);
        let mut printed = String::new();
        std::io::Read::read_to_string(&mut program.stdout.take().expect("a pipe"), &mut printed)
            .expect("text");
        assert_eq!(program.wait().expect("it ends").code(), Some(3));
        let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        agree(&printed, &report);
        let (whole, _) = chains(&report);
        assert!(whole >= 0.99, "{}", report["chains"]);
        // It was observed, indeed.
        let entered = engraft(place.path(), "show count.engraft --json").json();
        assert!(entered["instructions"].as_u64().is_some_and(|n| n > 100_000_000), "{entered}");
    }
}

#[test]
fn what_stands_in_for_a_function_has_its_own_name_and_callers() {
    let place = folder();
    let mut server = Server::start(place.path(), "sampled.c", "gcc", "-O2 -ldl");
    let text =
        "__attribute__((noinline)) static void spin(void) { for (volatile long i = 0; i < 90000; i++) ; }
        void of_thread(void) { volatile char pad[200]; pad[7] = 1; spin(); pad[8] = pad[7]; }";
    crate::run::built(place.path(), "new.so", text, "-O2 -shared -fPIC");
    assert_eq!(server.ask("thread"), "thread");
    let pid = server.pid();
    engraft(place.path(), &format!("replace of_thread --with ./new.so:of_thread -p {pid}")).ok();
    let sample = format!("sample -p {pid} --for 1s -F 500 -o rec.engraft --json=report.json");
    let ran = engraft(place.path(), &sample);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let first = &report["events"][0]["functions"][0];
    let name = first["function"].as_str().unwrap_or_default();
    assert!(
        name.ends_with("new.so:of_thread (for of_thread)") && number(&first["self_share"]) > 0.9,
        "{first}"
    );
    assert!(number(&row(&report, "spin")["total_share"]) > 0.95, "{report}");
    let (whole, _) = chains(&report);
    assert!(whole >= 0.99, "{}", report["chains"]);
    server.end(true);
}

#[test]
fn events_are_counted_by_thread() {
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -pthread");
    let ran =
        engraft(place.path(), "sample --total -e task-clock,page-faults --json=report.json ./shares 4 100");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let report = std::fs::read_to_string(place.path().join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["schema"], "engraft.sample-total/1");
    let [clock, faults] = &report["totals"].as_array().expect("a list")[..] else { panic!("{report}") };
    assert_eq!((&clock["event"], &clock["unit"]), (&"task-clock".into(), &"ns".into()));
    // What the threads say of themselves, three of which are made meanwhile.
    let spent: f64 = ran.stdout.lines().filter_map(|l| l.split_once(' ')?.1.parse::<f64>().ok()).sum();
    let (total, meanwhile) = (number(&clock["total"]), number(&clock["meanwhile"]));
    assert!((0.9..1.3).contains(&(total / spent)), "{total} ns, {spent} in what spins");
    assert!((0.6..0.85).contains(&(meanwhile / total)), "{report}");
    assert!(number(&faults["total"]) > 20.0, "{report}");
    // Nothing is recorded.
    assert!(std::fs::read_dir(place.path()).expect("a folder").flatten().count() == 2);
    let refused = engraft(place.path(), "sample --total ./shares");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

//! Recordings stand alone: all that is shown of them is the same when the binaries are gone, and they say
//! which run they are of.

use crate::needs;
use crate::run::{built, compile, engraft, folder};
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    static int sum;
    __attribute__((noinline)) void seldom(int x) { sum += x; }
    __attribute__((noinline)) int often(int x) { return x % 3 == 0 ? x : x + 1; }
    int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    int main(int argc, char **argv) {
        int all[50];
        for (int i = 0; i < 50; i++) all[i] = often(i * 37 % 53);
        qsort(all, 50, sizeof *all, compare);
        if (argc > 1) for (int i = 0; i < 7; i++) seldom(all[i]);
        printf(\"%d %d\\n\", sum, all[3]);
        return argc;
    }";

/// What is asked of a recording, or of two.
const QUESTIONS: [&str; 11] = [
    "show a.engraft",
    "show a.engraft --json",
    "show a.engraft --format csv",
    "show a.engraft edges --json",
    "show a.engraft never --json",
    "show a.engraft calls --json",
    "show a.engraft paths --json",
    "show a.engraft loops --json",
    "show a.engraft function main --json",
    "diff a.engraft b.engraft --json",
    "diff b.engraft a.engraft --json",
];

fn answers(place: &Path) -> Vec<String> {
    QUESTIONS.iter().map(|question| engraft(place, question).stdout).collect()
}

#[test]
fn all_that_is_shown_of_recordings_is_the_same_without_their_binaries() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "prog", PROGRAM, "-O2 -g");
    assert_eq!(engraft(place.path(), "count -q --callees -o a.engraft ./prog").code, Some(1));
    assert_eq!(engraft(place.path(), "count -q -o b.engraft ./prog x").code, Some(2));
    std::fs::remove_file(place.path().join("text.c")).expect("it was compiled");
    let before = answers(place.path());
    for (question, answer) in QUESTIONS.iter().zip(&before) {
        assert!(answer.contains("main"), "{question}: {answer}");
    }
    // Its lines, too.
    assert!(before[3].contains("text.c:"), "{}", before[3]);
    std::fs::rename(place.path().join("prog"), place.path().join("gone")).expect("moved");
    let without = answers(place.path());
    // Another build in its place is not taken for it, nor is its source.
    built(place.path(), "prog", &PROGRAM.replace("37", "39"), "-O1 -g");
    let with_another = answers(place.path());
    for (((question, before), without), with_another) in
        QUESTIONS.iter().zip(&before).zip(&without).zip(&with_another)
    {
        assert_eq!(before, without, "{question}");
        assert_eq!(before, with_another, "{question}");
    }
}

#[test]
fn exports_without_the_binary_are_those_with_it() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "prog", PROGRAM, "-O2 -g");
    assert_eq!(engraft(place.path(), "count -q -o a.engraft ./prog x").code, Some(2));
    let export = |name: &str| {
        engraft(place.path(), &format!("convert a.engraft -o {name}")).ok();
        std::fs::read_to_string(place.path().join(name)).expect("written")
    };
    let before = export("a.callgrind");
    std::fs::remove_file(place.path().join("prog")).expect("removed");
    assert_eq!(before, export("a.callgrind"));
    // Rows of functions that never ran are of the file.
    assert!(export("a.csv").lines().any(|row| row.contains(",often,") && row.ends_with(",50")));
}

#[test]
fn a_recording_says_which_run_it_is_of() {
    needs!("gcc");
    let place = folder();
    let text = "
        #include <stdlib.h>
        #include <unistd.h>
        int main(int argc, char **argv) { usleep(20000); if (argc > 2) abort(); return 7; }";
    built(place.path(), "prog", text, "-O1 -g");
    let count = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
        command.current_dir(place.path()).args(["count", "-q", "-o", "a.engraft", "./prog"]).args(args);
        command.env("LD_BIND_NOW", "1").env("OMP_NUM_THREADS", "3").env("SECRET", "hunter2");
        command.output().expect("it runs");
        let bytes = std::fs::read(place.path().join("a.engraft")).expect("written");
        assert!(!bytes.windows(7).any(|w| w == b"hunter2"));
        engraft(place.path(), "show a.engraft --json").json()["run"].clone()
    };
    let exited = count(&["it's"]);
    assert_eq!(exited["command"], serde_json::json!(["./prog", "it's"]));
    assert_eq!((&exited["exit_status"], &exited["signal"]), (&7.into(), &serde_json::Value::Null));
    assert_eq!(exited["environment"]["LD_BIND_NOW"], "1");
    assert_eq!(exited["environment"]["OMP_NUM_THREADS"], "3");
    let seconds = exited["seconds"].as_f64().expect("a number");
    assert!((0.02..60.0).contains(&seconds), "{seconds}");
    let uname = Command::new("uname").args(["-n", "-s", "-r"]).output().expect("uname runs");
    let uname = String::from_utf8_lossy(&uname.stdout).trim().replacen(' ', "\n", 2);
    let machine = &exited["machine"];
    let text = |name: &str| machine[name].as_str().expect("text").to_owned();
    // `uname` has the kernel's name first, whatever order is asked for.
    let told = format!("{}\n{}\n{}", "Linux", text("host"), text("kernel").replacen("Linux ", "", 1));
    assert_eq!(told, uname);
    let started = exited["start"].as_str().expect("text").to_owned();
    let now = Command::new("date").args(["-u", "+%Y-%m-%dT%H"]).output().expect("date runs");
    let now = String::from_utf8_lossy(&now.stdout).trim().to_owned();
    // An hour may have gone by in between.
    assert_eq!(started[..10], now[..10], "{started} {now}");
    let aborted = count(&["x", "y"]);
    assert_eq!((&aborted["exit_status"], &aborted["signal"]), (&serde_json::Value::Null, &6.into()));
    let text = engraft(place.path(), "show a.engraft").ok();
    assert!(text.starts_with("command: ./prog x y\n"), "{text}");
}

/// `convert A B -o SUM.engraft` dropped all modules but one, and `show` refused the file.
#[test]
fn recordings_of_several_modules_are_added_up_whole() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -g -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    for name in ["a", "b"] {
        assert_eq!(engraft(place.path(), &format!("count -q -o {name}.engraft ./host")).code, Some(0));
    }
    engraft(place.path(), "convert a.engraft b.engraft -o sum.engraft").ok();
    let modules = |name: &str| {
        let view = engraft(place.path(), &format!("show {name}.engraft --json")).json();
        let modules = view["modules"].as_array().expect("modules").clone();
        let of = |m: &serde_json::Value| {
            let path = m["path"].as_str().expect("a path").to_owned();
            (path, m["instructions"].as_u64().expect("a number"))
        };
        modules.iter().map(of).collect::<Vec<_>>()
    };
    let (a, b, sum) = (modules("a"), modules("b"), modules("sum"));
    assert_eq!(a.len(), 2, "{a:?}");
    for ((a, b), sum) in a.iter().zip(&b).zip(&sum) {
        assert_eq!((&a.0, a.1 + b.1), (&sum.0, sum.1));
    }
    // Every verb that reads counts knows it.
    std::fs::remove_file(place.path().join("host")).expect("removed");
    assert_eq!(modules("sum"), sum);
    assert!(engraft(place.path(), "show sum.engraft loops").ok().contains("host"));
    assert_eq!(engraft(place.path(), "diff sum.engraft sum.engraft").code, Some(0));
    engraft(place.path(), "convert sum.engraft -o sum.callgrind").ok();
    assert_eq!(engraft(place.path(), "convert sum.engraft -o again.engraft").code, Some(0));
    assert_eq!(modules("again"), sum);
}

/// What an instrumented program leaves is completed once, and needs nothing any more.
#[test]
fn a_raw_recording_is_completed_once() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "prog", PROGRAM, "-O2 -g");
    engraft(place.path(), "instrument prog -o prog.counted").ok();
    let mut counted = Command::new(place.path().join("prog.counted"));
    assert_eq!(counted.current_dir(place.path()).status().expect("it runs").code(), Some(1));
    let raw = std::fs::read_dir(place.path()).expect("read").flatten().map(|entry| entry.file_name());
    let raw = raw.filter_map(|name| name.into_string().ok()).find(|name| name.ends_with(".engraft"));
    let raw = raw.expect("it left a recording");
    engraft(place.path(), &format!("convert {raw} -o whole.engraft")).ok();
    let rows = || engraft(place.path(), "show whole.engraft --format csv").ok();
    let (before, from_raw) = (rows(), engraft(place.path(), &format!("show {raw} --format csv")).ok());
    assert_eq!(before, from_raw);
    std::fs::remove_file(place.path().join("prog")).expect("removed");
    std::fs::remove_file(place.path().join("prog.counted")).expect("removed");
    assert_eq!(before, rows());
    let refused = engraft(place.path(), &format!("show {raw}"));
    assert_ne!(refused.code, Some(0));
}

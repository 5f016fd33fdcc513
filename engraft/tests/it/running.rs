//! `show -p`: what a process runs is shown from its memory as its file would show it, and it is not stopped.

use crate::needs;
use crate::run::{Ran, compile, copy_program, engraft, folder, must};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that waits, and what it says of itself.
struct Running {
    child: Child,
    folder: PathBuf,
    /// Addresses: of `sum`, of `changing`, of what it made.
    sum: u64,
    data: u64,
    made: u64,
}

impl Running {
    /// Starts `program` of `folder` with these words.
    #[track_caller]
    fn start(folder: &Path, program: &str, words: &str) -> Running {
        let mut command = Command::new(folder.join(program));
        command.args(words.split_whitespace()).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it speaks");
        let said: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(said.first(), Some(&"ready"), "{line}");
        let number = |n: usize| {
            said.get(n).and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()).unwrap_or(0)
        };
        let (sum, data, made) = (number(1), number(2), number(3));
        Running { child, folder: folder.to_owned(), sum, data, made }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `engraft show -p` of it.
    fn show(&self, words: &str) -> Ran {
        engraft(&self.folder, &format!("show -p {} {words}", self.pid()))
    }

    /// The module whose name ends so.
    #[track_caller]
    fn module(&self, options: &str, ends: &str) -> Value {
        let said = self.show(&format!("{options} --json")).json();
        let modules = said["modules"].as_array().expect("modules");
        let is_it = |m: &&Value| m["module"].as_str().is_some_and(|name| name.ends_with(ends));
        modules.iter().find(is_it).unwrap_or_else(|| panic!("no {ends} in {said:#}")).clone()
    }

    /// Refused with status 2, and these words.
    #[track_caller]
    fn refused(&self, words: &str, error: &str, hint: &str) {
        let ran = self.show(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words}");
        assert!(ran.stderr.contains(error) && ran.stderr.contains(hint), "{words}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches("engraft: ").count(), 1, "{words}: {}", ran.stderr);
    }

    /// Whether it waits, and for its input.
    fn waits(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it is there");
        state.contains("State:\tS") && state.contains("TracerPid:\t0\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        let _none = std::fs::remove_file(format!("/tmp/perf-{}.map", self.pid()));
    }
}

/// `what` of a file, without what its name and numbers are.
#[track_caller]
fn of_file(folder: &Path, what: &str) -> Value {
    plain(engraft(folder, &format!("show {what} --json")).json())
}

fn plain(mut object: Value) -> Value {
    object.as_object_mut().expect("an object").remove("binary");
    object
}

/// Blocks with their edges and loops, of a function as JSON.
fn blocks(function: &Value) -> Vec<String> {
    let rows = function["blocks"].as_array().expect("blocks");
    let row = |b: &Value| {
        let edges: Vec<String> = b["edges"]
            .as_array()
            .expect("edges")
            .iter()
            .map(|e| format!("{} {}", e["to"], e["kind"]))
            .collect();
        format!("{} {} {} {} {edges:?}", b["at"], b["len_bytes"], b["end"], b["loop_depth"])
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_program_whose_file_is_gone_is_shown_from_memory_as_its_file_was() {
    needs!("gcc");
    let place = folder();
    for flags in
        ["-O2 -s -pie -fPIE -rdynamic", "-O2 -s -no-pie -rdynamic", "-O1 -s -pie -fPIE -rdynamic -Wl,-z,now"]
    {
        compile(&place.path().join("prog"), "running.c", flags);
        let was = ["cfg", "loops", "tables"].map(|what| of_file(place.path(), &format!("prog {what}")));
        let of_sum = of_file(place.path(), "prog function sum");
        let running = Running::start(place.path(), "prog", "");
        let there = running.module("", "/prog");
        assert_eq!((&there["file"], &there["from"]), (&"there".into(), &"file".into()));
        std::fs::remove_file(place.path().join("prog")).expect("it is there");
        let module = running.module("", "/prog");
        assert_eq!((&module["file"], &module["from"]), (&"deleted".into(), &"memory".into()), "{flags}");
        for key in ["image_id", "bias", "n_functions", "n_blocks", "n_edges", "n_loops"] {
            assert_eq!(module[key], there[key], "{flags}: {key}");
        }
        for (what, was) in ["cfg", "loops", "tables"].iter().zip(&was) {
            assert_eq!(plain(running.show(&format!("{what} --json")).json()), *was, "{flags}: {what}");
        }
        // By name, and by an address in it.
        let bias = module["bias"].as_u64().expect("a number");
        for asked in ["sum".to_owned(), format!("{:#x}", running.sum + 3), format!("live:{:#x}", running.sum)]
        {
            let shown = running.show(&format!("function {asked} --json")).json();
            assert_eq!(blocks(&shown), blocks(&of_sum), "{flags}: {asked}");
            assert_eq!(shown["live"]["at"].as_u64(), Some(running.sum));
            assert_eq!(shown["at"].as_u64(), Some(running.sum - bias));
            assert_eq!(shown["live"]["from"], "memory");
        }
        let text = running.show("function sum").ok();
        assert!(text.contains(&format!("at live:{:#x}, from memory", running.sum)), "{text}");
        assert!(running.waits());
    }
}

#[test]
fn memory_is_shown_in_place_of_files_where_it_is_asked_for() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    let running = Running::start(place.path(), "prog", "");
    let numbers = |options: &str| {
        let said = running.show(&format!("{options} --json")).json();
        let of = |m: &Value| {
            let keys = ["module", "image_id", "bias", "at"].map(|key| m[key].to_string());
            (m["from"].as_str().map(str::to_owned), keys)
        };
        said["modules"].as_array().expect("modules").iter().map(of).collect::<Vec<_>>()
    };
    let (files, memory) = (numbers(""), numbers("--memory"));
    assert!(files.len() >= 4, "program, C library, dynamic linker, [vdso]: {files:?}");
    assert!(files[0].1[0].ends_with("/prog\""), "{files:?}");
    for (file, memory) in files.iter().zip(&memory) {
        assert_eq!(file.1, memory.1);
        let from = if file.1[0] == "\"[vdso]\"" { "memory" } else { "file" };
        assert_eq!((file.0.as_deref(), memory.0.as_deref()), (Some(from), Some("memory")));
    }
    assert_eq!(plain(running.show("cfg --memory --json").json()), of_file(place.path(), "prog cfg"));
    assert_eq!(plain(running.show("cfg prog --json").json()), of_file(place.path(), "prog cfg"));
    let gettime = running.show("function __vdso_clock_gettime --json").json();
    assert_eq!((&gettime["binary"], &gettime["live"]["from"]), (&"[vdso]".into(), &"memory".into()));
    assert!(running.waits());
}

#[test]
fn a_file_that_was_replaced_is_not_taken_for_the_one_that_runs() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    compile(&place.path().join("other"), "running.c", "-O0 -s");
    let was = of_file(place.path(), "prog cfg");
    let running = Running::start(place.path(), "prog", "");
    std::fs::rename(place.path().join("other"), place.path().join("prog")).expect("it is there");
    let module = running.module("", "/prog");
    assert_eq!((&module["file"], &module["from"]), (&"replaced".into(), &"memory".into()));
    assert_eq!(plain(running.show("cfg --json").json()), was);
}

#[test]
fn what_was_unpacked_into_memory_is_shown_as_its_file_was() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    compile(&place.path().join("packed"), "running.c", "-O1 -s -pie -fPIE -rdynamic");
    let running = Running::start(place.path(), "prog", "unpack packed");
    let module = running.module("", &format!("[unpacked at {:#x}]", running.made));
    assert_eq!((&module["at"], &module["bias"]), (&running.made.into(), &running.made.into()));
    assert_eq!((&module["file"], &module["from"]), (&"none".into(), &"memory".into()));
    let name = module["module"].as_str().expect("a name");
    assert_eq!(
        plain(running.show(&format!("cfg '{name}' --json")).json()),
        of_file(place.path(), "packed cfg")
    );
    let of_choose = of_file(place.path(), "packed function choose");
    let at = running.made + of_choose["at"].as_u64().expect("a number");
    for asked in [format!("{at:#x}"), "choose".to_owned()] {
        let shown = running.show(&format!("function {asked} --json")).json();
        assert_eq!(blocks(&shown), blocks(&of_choose));
        assert_eq!(shown["live"]["at"].as_u64(), Some(at));
    }
    assert!(running.waits());
}

#[test]
fn functions_that_a_perf_map_names_have_blocks_and_loops() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    let running = Running::start(place.path(), "prog", "jit 1");
    let module = running.module("", &format!("[jit at {:#x}]", running.made));
    assert_eq!(
        (&module["file"], &module["from"], &module["bias"]),
        (&"none".into(), &"perf-map".into(), &0.into())
    );
    let count = |key: &str| module[key].as_u64();
    assert_eq!((count("n_functions"), count("n_blocks"), count("n_loops")), (Some(2), Some(4), Some(1)));
    let shown = running.show("function 'count down' --json").json();
    assert_eq!((&shown["name"], &shown["at"]), (&"count down".into(), &running.made.into()));
    let texts: Vec<&Value> = shown["blocks"]
        .as_array()
        .expect("blocks")
        .iter()
        .flat_map(|b| b["instructions"].as_array().expect("instructions"))
        .map(|i| &i["text"])
        .collect();
    assert!(texts.len() == 4 && texts[1] == "dec %eax" && texts[3] == "ret", "{texts:?}");
    let to_it = running.show(&format!("function {:#x}", running.made + 0x20)).ok();
    assert!(to_it.contains("to it at 0x") && to_it.contains("from perf map"), "{to_it}");
    running.refused(&format!("function {:#x}", running.made + 0x40), "no perf map names it", "perf");
    assert!(running.waits());
}

#[test]
fn code_that_nothing_describes_is_said_to_be_there() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    let running = Running::start(place.path(), "prog", "jit 0");
    let module = running.module("", &format!("[code at {:#x}]", running.made));
    assert!(module["why"].as_str().is_some_and(|why| why.contains("perf map")), "{module}");
    assert_eq!((&module["from"], &module["n_functions"]), (&Value::Null, &Value::Null));
    running.refused(&format!("function {:#x}", running.made + 1), "no perf map names it", "perf");
}

#[test]
fn what_cannot_be_shown_is_refused_by_name_with_a_remedy() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    let running = Running::start(place.path(), "prog", "");
    let pid = running.pid();
    running.refused(
        "function 0x10",
        &format!("live:0x10 is in nothing that process {pid} has mapped"),
        "show -p",
    );
    running.refused(&format!("function {:#x}", running.data), "is data: it is in", "/prog");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).and_then(|line| line.split('-').next());
    running.refused(
        &format!("function 0x{}", stack.expect("a stack")),
        "is data: it is in [stack]",
        "show -p",
    );
    running.refused("function nothing_is_called_so", "no function of process", "functions MODULE");
    running.refused("function nowhere.so!main", "no function of process", "functions MODULE");
    running.refused("cfg nowhere.so", "no module that is called nowhere.so", "lists its modules");
    running.refused("function", "no function is named", "function ADDRESS");
    running.refused("paths", "of recordings, not of a process", "functions");
    running.refused("nonsense", "there is no \"nonsense\" of a process", "say `show -p");
    running.refused("function main more", "one word too many", "say `show -p");
    let nobody = |pid: &str, error: &str| {
        let ran = engraft(place.path(), &format!("show -p {pid}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
        assert!(ran.stderr.contains(error) && ran.stderr.contains("hint: "), "{pid}: {}", ran.stderr);
    };
    nobody("0", "there is no process 0");
    nobody("-3", "there is no process -3");
    nobody("2147483647", "there is no process 2147483647");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        nobody("2", "process 2 is one of the kernel's");
    }
    drop(running);
    nobody(&pid.to_string(), "there is no process");
}

#[test]
fn a_process_of_somebody_else_is_refused_with_the_remedy() {
    needs!("gcc", "setpriv");
    let place = folder();
    // Only root can be somebody else.
    if must(Command::new("id").arg("-u")).trim() != "0" {
        return;
    }
    compile(&place.path().join("prog"), "running.c", "-O2 -s");
    let running = Running::start(place.path(), "prog", "");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    // Where others can read it.
    let shared = tempfile::tempdir().expect("a folder");
    let copied = shared.path().join("engraft");
    copy_program(env!("CARGO_BIN_EXE_engraft"), &copied);
    must(Command::new("chmod").arg("755").arg(shared.path()).arg(&copied));
    let out = command.arg(&copied).args(["show", "-p", &running.pid().to_string()]).current_dir("/").output();
    let ran = Ran::from(out.expect("it runs"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("its memory cannot be read") && ran.stderr.contains("hint: only root"),
        "{}",
        ran.stderr
    );
}

//! What is ended in the middle of its work leaves nothing behind, and ends as its shell expects.

use crate::needs;
use crate::run::{built, engraft, folder, must};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// A run whose trace takes seconds to pack.
const LONG: &str = "static volatile unsigned long x = 1, n;
    int main(void) { for (int i = 0; i < 12000000; i++) {
      x = x * 6364136223846793005ul + 1442695040888963407ul; if (x >> 40 & 1) n++; if (x >> 50 & 1) n += 2; }
      return 0; }";

/// A folder with `run.trace`, and what is in it.
fn place() -> (tempfile::TempDir, Vec<u8>) {
    let place = folder();
    built(place.path(), "long", LONG, "-O1");
    engraft(place.path(), "trace --no-cache -q --modules exe -o run.trace ./long").ok();
    let trace = std::fs::read(place.path().join("run.trace")).expect("it was written");
    (place, trace)
}

/// Files in the making.
fn hidden(place: &Path) -> Vec<String> {
    let names = std::fs::read_dir(place).expect("there").map(|entry| entry.expect("read").file_name());
    names.map(|name| name.into_string().expect("ours")).filter(|name| name.starts_with('.')).collect()
}

/// Starts `args`, and waits until it has something in the making that is not in `before`.
fn begun(place: &Path, args: &str, before: &[String]) -> Child {
    // With signals as a login has them: what a script starts in the background has some ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal", US]).args(args.split_whitespace());
    command.current_dir(place).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cargo built it");
    let start = Instant::now();
    while hidden(place).iter().all(|name| before.contains(name)) {
        assert!(start.elapsed() < Duration::from_secs(60), "{args} writes nothing");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    child
}

fn send(signal: &str, to: &mut Child) -> ExitStatus {
    must(Command::new("kill").args([&format!("-{signal}"), &to.id().to_string()]));
    to.wait().expect("it ends")
}

#[test]
fn a_signal_takes_away_what_is_in_the_making() {
    needs!("gcc", "kill");
    let (place, trace) = place();
    for (args, signal, number) in [
        ("trace pack run.trace", "INT", 2),
        ("trace pack run.trace -o other.trace", "TERM", 15),
        ("convert run.trace -o other.trace", "HUP", 1),
        ("trace pack --archive run.trace", "QUIT", 3),
    ] {
        let ended = send(signal, &mut begun(place.path(), args, &[]));
        assert_eq!(ended.signal(), Some(number), "{args}: {ended}");
        assert_eq!(hidden(place.path()), [""; 0], "{args}");
        assert!(std::fs::read(place.path().join("run.trace")).expect("still there") == trace, "{args}");
        assert!(!place.path().join("other.trace").exists(), "{args}");
    }
    // Also while a trace is packed that was just recorded: that is there.
    let args = "trace --no-cache -q --modules exe --pack -o new.trace ./long";
    // The first one in the making is the trace itself, for a moment.
    let mut child = begun(place.path(), "trace pack run.trace -o other.trace", &[]);
    let before = hidden(place.path());
    let mut packing = begun(place.path(), args, &before);
    let start = Instant::now();
    while !(place.path().join("new.trace").exists() && hidden(place.path()).len() > before.len()) {
        assert!(start.elapsed() < Duration::from_secs(60), "it packs nothing");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    assert_eq!(send("INT", &mut packing).signal(), Some(2));
    assert_eq!(hidden(place.path()), before, "the other one's is its own");
    assert_eq!(send("TERM", &mut child).signal(), Some(15));
    assert_eq!(hidden(place.path()), [""; 0]);
    assert!(engraft(place.path(), "query new.trace 'main: 0' --count").ok().starts_with('1'));
    // Who has it ignored goes on.
    let line = format!("trap '' HUP; exec {US} trace pack -q run.trace -o other.trace");
    let mut ignores = Command::new("sh");
    ignores.args(["-c", &line]).current_dir(place.path());
    let mut ignores = ignores.spawn().expect("sh runs");
    while hidden(place.path()).is_empty() {
        std::thread::park_timeout(Duration::from_millis(2));
    }
    assert!(send("HUP", &mut ignores).success());
    assert!(place.path().join("other.trace").exists());
}

#[test]
fn what_was_killed_is_taken_away_by_the_next_one() {
    needs!("gcc", "kill");
    let (place, _) = place();
    std::fs::write(place.path().join(".engraft-notes"), "mine").expect("written");
    let killed = send("KILL", &mut begun(place.path(), "trace pack run.trace", &[".engraft-notes".into()]));
    assert_eq!(killed.signal(), Some(9));
    assert_eq!(hidden(place.path()).len(), 2, "nobody was there to take it away");
    let mut alive = begun(place.path(), "trace pack run.trace -o other.trace", &hidden(place.path()));
    let there = hidden(place.path());
    assert_eq!(there.len(), 2, "what was killed is gone, what is alive is there: {there:?}");
    engraft(place.path(), "convert run.trace -q -o run.csv").ok();
    assert_eq!(hidden(place.path()), there, "one that is alive keeps its own");
    send("TERM", &mut alive);
    assert_eq!(hidden(place.path()), [".engraft-notes"]);
}

#[test]
fn the_shell_sees_a_stopped_program_as_without_us() {
    needs!("python3", "setsid", "timeout", "sh");
    let place = folder();
    // What a shell does: a process group for each job, and `waitpid`, which says what stopped it.
    let shell = "
import os, signal, subprocess, sys, time
job = subprocess.Popen(sys.argv[1:], preexec_fn=os.setpgrp)
while not os.path.exists('up'): time.sleep(0.01)
os.killpg(job.pid, signal.SIGTSTP)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print('stopped by', os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 'nothing')
os.killpg(job.pid, signal.SIGKILL)";
    let stopped = |command: &str| {
        std::fs::remove_file(place.path().join("up")).ok();
        // Away from our terminal, with signals as a login has them: whoever runs the tests may ignore some.
        let mut python = Command::new("setsid");
        python.args(["--wait", "timeout", "60", "env", "--default-signal", "python3", "-c", shell]);
        // In the background: a shell that waits in vfork for a child that was stopped does not stop itself.
        python.args(command.split_whitespace()).args(["sh", "-c", "sleep 20 & echo > up; wait; exit 0"]);
        let ran = python.current_dir(place.path()).stdin(Stdio::null()).output().expect("python3 runs");
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    };
    assert_eq!(stopped(""), "stopped by 20");
    assert_eq!(stopped(&format!("{US} count --no-cache -q")), "stopped by 20");
}

/// A program that others started on our account, which waits until it is asked to end, and then ends well.
const PATIENT: &str = r#"#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t asked;
static void ask(int which) { asked = which; }
int main(void) {
  signal(SIGTERM, ask); signal(SIGINT, ask);
  FILE *up = fopen("up", "w"); fprintf(up, "%d", getpid()); fclose(up);
  while (!asked) usleep(1000);
  return 0; }"#;

#[test]
fn a_comparison_that_is_ended_while_its_programs_run_does_not_compare() {
    needs!("gcc", "kill");
    let place = folder();
    built(place.path(), "patient", PATIENT, "-O1");
    let own = place.path().join("tmp");
    std::fs::create_dir(&own).expect("ours");
    for (signal, number) in [("TERM", 15), ("INT", 2)] {
        std::fs::remove_file(place.path().join("up")).ok();
        let mut command = Command::new("env");
        command.args(["--default-signal", US, "compare", "./patient", "./patient", "--"]);
        command.current_dir(place.path()).env("TMPDIR", &own).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cargo built it");
        let start = Instant::now();
        while std::fs::read(place.path().join("up")).map_or(true, |up| up.is_empty()) {
            assert!(start.elapsed() < Duration::from_secs(60), "no program was started");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        must(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]));
        let (start, mut ended) = (Instant::now(), None);
        while ended.is_none() && start.elapsed() < Duration::from_secs(60) {
            std::thread::park_timeout(Duration::from_millis(5));
            ended = child.try_wait().expect("it is ours");
        }
        if ended.is_none() {
            child.kill().expect("it runs on");
        }
        let ended = ended.unwrap_or_else(|| panic!("{signal}: it runs the next program"));
        let said = child.wait_with_output().expect("it has ended");
        assert_eq!(
            ended.signal(),
            Some(number),
            "{signal}: {ended} {}",
            String::from_utf8_lossy(&said.stderr)
        );
        assert_eq!(said.stdout, b"", "{signal}: nothing is compared");
        let program = std::fs::read_to_string(place.path().join("up")).expect("it was up");
        assert!(!Path::new(&format!("/proc/{program}")).exists(), "{signal}: it was asked to end, too");
        assert_eq!(std::fs::read_dir(&own).expect("there").count(), 0, "{signal}: its folder is gone");
    }
}

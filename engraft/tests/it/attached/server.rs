//! A server that is observed while it runs, and whoever observes it.

use crate::run::{engraft, must};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that answers a line for a line.
pub struct Server {
    /// The process, or what started it.
    pub child: Child,
    /// Its number.
    pid: u32,
    /// What it listens to.
    pub input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// How its lines in what is mapped end.
    file: String,
}

impl Server {
    /// The one of `source`, as `compiler` makes it with `flags`.
    #[track_caller]
    pub fn start(folder: &Path, source: &str, compiler: &str, flags: &str) -> Server {
        Server::build(folder, "server", [source, compiler, flags]);
        Server::run(folder, "server")
    }

    /// Makes `name` of a source, by a compiler, with flags.
    #[track_caller]
    pub fn build(folder: &Path, name: &str, [source, compiler, flags]: [&str; 3]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(source);
        let mut command = Command::new(compiler);
        command.current_dir(folder).arg(source).args(["-pthread", "-w", "-o", name]);
        must(command.args(flags.split_whitespace()));
    }

    /// Runs what was made.
    #[track_caller]
    pub fn run(folder: &Path, name: &str) -> Server {
        let program = folder.join(name);
        Server::within(folder, name, &[&program.to_string_lossy()])
    }

    /// Runs `words`, of which comes the program `name`.
    #[track_caller]
    pub fn within(folder: &Path, name: &str, words: &[&str]) -> Server {
        let (first, rest) = words.split_first().expect("a program");
        let mut command = Command::new(first);
        command.current_dir(folder).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let file = format!("/{name}");
        let (pid, input) = (child.id(), child.stdin.take());
        let mut server = Server { input, child, pid, output, file };
        assert_eq!(server.line(), "ready");
        server.find(name);
        server
    }

    /// Finds the process, if there is another one by now.
    #[track_caller]
    pub fn find(&mut self, name: &str) {
        let is_it = |pid: &u32| {
            let called = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with(called.trim_end())
        };
        self.pid = self.child.id();
        while !is_it(&self.pid) {
            let children = format!("/proc/{0}/task/{0}/children", self.pid);
            let children = std::fs::read_to_string(children).expect("it runs");
            let first = children.split(' ').next().and_then(|word| word.parse().ok());
            self.pid = first.expect("what started it has a child");
        }
    }

    /// What `ipc` says of it, and whether also that the machine was not steady, as it is where others run.
    #[track_caller]
    pub fn ipc(&self, folder: &Path, words: &str) -> (Value, bool) {
        let ran = engraft(folder, &format!("ipc {words} --json -p {}", self.pid()));
        let is_unsteady = ran.stderr.contains("the machine was not steady");
        assert!(
            ran.code == Some(0) && ran.stderr.lines().count() == usize::from(is_unsteady),
            "{}",
            ran.stderr
        );
        let said: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(said["schema"], "engraft.ipc/1");
        (said, is_unsteady)
    }

    /// How much of what it may not write is its own, and not as in files, in kB.
    pub fn own_constants(&self) -> u64 {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid())).expect("it runs");
        let (mut is_constant, mut sum) = (false, 0);
        for line in smaps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [_, rights, _, _, ..] if rights.len() == 4 => is_constant = rights.starts_with("r-"),
                ["Anonymous:", n, "kB"] if is_constant => sum += n.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
        sum
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it says something");
        line.trim_end().to_owned()
    }

    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        let input = self.input.as_mut().expect("it listens");
        writeln!(input, "{line}").expect("it listens");
        self.line()
    }

    /// Has it end by itself, or be killed; it does so as ever.
    #[track_caller]
    pub fn end(&mut self, by_itself: bool) {
        if by_itself {
            writeln!(self.input.as_mut().expect("it listens"), "exit").expect("it listens");
        } else {
            self.child.kill().expect("it runs");
        }
        let status = self.child.wait().expect("a child");
        assert_eq!(status.code(), by_itself.then_some(7));
    }

    /// What the kernel says that it has mapped, but for what grows by itself; and the bytes of its code.
    pub fn memory(&self) -> (String, Vec<u8>) {
        use std::os::unix::fs::FileExt as _;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("it runs");
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).expect("it runs");
        let mut code = Vec::new();
        for line in maps.lines().filter(|line| line.contains("r-xp") && !line.contains("[v")) {
            let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
            let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).expect("a number"));
            let mut bytes = vec![0; usize::try_from(to - from).expect("small")];
            memory.read_exact_at(&mut bytes, from).expect("it is mapped");
            code.extend(bytes);
        }
        let kept = maps.lines().filter(|line| !line.contains("[heap]") && !line.contains("[stack]"));
        (kept.collect::<Vec<_>>().join("\n"), code)
    }

    /// Whether its code was exchanged.
    pub fn is_attached(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap_or_default();
        maps.contains("memfd:engraft") && !maps.lines().any(|l| l.contains("r-xp") && l.ends_with(&self.file))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// `engraft VERB -p`, which goes on until it is told to end.
pub struct Observing {
    child: Option<Child>,
    folder: PathBuf,
}

impl Observing {
    #[track_caller]
    pub fn start(folder: &Path, server: &Server, verb: &str) -> Observing {
        Observing::with(folder, server, verb, &[])
    }

    /// The same with more options.
    #[track_caller]
    pub fn with(folder: &Path, server: &Server, verb: &str, options: &[&str]) -> Observing {
        Observing::by(Command::new(env!("CARGO_BIN_EXE_engraft")), folder, server, verb, options)
    }

    /// Started as a script's shell does what stands before an `&`: with SIGINT ignored.
    #[track_caller]
    pub fn in_background(folder: &Path, server: &Server, verb: &str) -> Observing {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_engraft")]);
        Observing::by(shell, folder, server, verb, &[])
    }

    #[track_caller]
    fn by(mut command: Command, folder: &Path, server: &Server, verb: &str, options: &[&str]) -> Observing {
        command.current_dir(folder).args([verb, "-p", &server.pid().to_string(), "--json=said.json"]);
        command.args(["-o", "rec.engraft"]).args(options);
        command.env("XDG_CACHE_HOME", folder.join("cache")).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let mut observing = Observing { child: Some(child), folder: folder.to_owned() };
        let until = Instant::now() + Duration::from_secs(60);
        while !server.is_attached() {
            let ended = observing.child.as_mut().expect("it runs").try_wait().expect("a child");
            if ended.is_some() {
                observing.end(None);
                panic!("it has ended before it was attached");
            }
            assert!(Instant::now() < until, "it is not attached");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        observing
    }

    /// Waits until it ends, by `signal` if there is one; what it says.
    #[track_caller]
    pub fn end(&mut self, signal: Option<&str>) -> Value {
        let (said, warnings) = self.end_with(signal, 0);
        assert_eq!(warnings, "");
        said
    }

    /// The same with another exit status; what else it says.
    #[track_caller]
    pub fn end_with(&mut self, signal: Option<&str>, status: i32) -> (Value, String) {
        let child = self.child.take().expect("it runs");
        if let Some(signal) = signal {
            must(Command::new("kill").arg(signal).arg(child.id().to_string()));
        }
        let out = child.wait_with_output().expect("a child");
        if signal == Some("-KILL") {
            return (Value::Null, String::new());
        }
        let talk = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{talk}");
        let text = std::fs::read_to_string(self.folder.join("said.json")).expect("it is written");
        let warnings = talk.lines().filter(|line| line.contains("warning: "));
        (serde_json::from_str(&text).expect("it is JSON"), warnings.collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

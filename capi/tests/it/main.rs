//! The library as C programs use it, on programs that run; and its header.
//!
//! A test that needs a tool says so with `needs!`, as those of `engraft` do, whose `skips` counts it.

mod clients;
mod header;
mod mistakes;
mod steps;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Returns from the test, counted as skipped, unless the tools named are installed.
#[macro_export]
macro_rules! needs {
    ($($tool:literal),+ $(,)?) => {
        for tool in [$($tool),+] {
            if !$crate::has(tool, module_path!(), line!()) {
                return;
            }
        }
    };
}

/// Whether `tool` can be run. If not, the test at this place is written down as skipped, or fails, as the
/// environment asks.
pub fn has(tool: &str, module: &str, line: u32) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()) {
        return true;
    }
    let all = std::env::var_os("ENGRAFT_TEST_NEEDS").is_some_and(|needs| needs == "all");
    assert!(!all, "{tool} is not installed, and ENGRAFT_TEST_NEEDS=all: scripts/test.sh installs it");
    let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skipped");
    let mut list =
        std::fs::File::options().create(true).append(true).open(list).expect("cargo made the folder");
    writeln!(list, "{module}:{line} needs {tool}").expect("the folder can be written");
    false
}

/// The crate's folder.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An empty folder of its own for a test.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo made the folder for us")
}

/// What a tool that must not fail prints.
#[track_caller]
fn must(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The folder with the library that cargo has built for this test: beside it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("we run");
    let folder = test.parent().expect("it is in a folder").to_owned();
    let library = folder.join("libengraft.so");
    assert!(library.exists(), "{} is not there: cargo builds it before the test", library.display());
    folder
}

/// Builds the client `source`, a path in the crate, to `folder`; what runs it.
#[track_caller]
fn client(folder: &Path, source: &str) -> Command {
    let (source, library) = (here().join(source), library());
    let client = folder.join(source.file_stem().expect("a file"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(here().join("include"));
    gcc.arg(source).arg("-L").arg(&library).arg("-lengraft").arg("-o").arg(&client);
    must(&mut gcc);
    let mut command = Command::new(client);
    command.env("LD_LIBRARY_PATH", library).current_dir(folder);
    command
}

/// A program that answers a line for a line: `hot.c`, whose hot function returns its argument, 1000.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    #[track_caller]
    fn start(folder: &Path) -> Server {
        let source = here().join("../engraft/tests/it/fixtures/hot.c");
        let program = folder.join("server");
        must(Command::new("gcc").args(["-O1", "-pthread", "-no-pie", "-o"]).arg(&program).arg(source));
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut server = Server { child, input, output: BufReader::new(output) };
        assert_eq!(server.line(), "ready");
        server
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it says something");
        line.trim_end().to_owned()
    }

    /// What its hot function returned last.
    #[track_caller]
    fn result(&mut self) -> String {
        writeln!(self.input, "result").expect("it listens");
        self.line()
    }

    /// Has it end by itself: it must have stayed well.
    #[track_caller]
    fn end(mut self) {
        writeln!(self.input, "exit").expect("it listens");
        assert_eq!(self.child.wait().expect("a child").code(), Some(7));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

//! Runs the command and the compilers: folders to work in, programs to look at, what came out.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A finished command: what it said, and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(out: Output) -> Ran {
        Ran {
            code: out.status.code(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// What it printed; fails the test unless it ended with 0 and in silence.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// What it printed, parsed.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err} in {text}"))
    }
}

/// `engraft` in `folder` with arguments separated by spaces; what stands in single quotes is one.
pub fn engraft(folder: &Path, args: &str) -> Ran {
    let parts = args.split('\'').enumerate();
    let args =
        parts.flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
    let command = Command::new(env!("CARGO_BIN_EXE_engraft"))
        .args(args)
        .current_dir(folder)
        .env_remove("RAYON_NUM_THREADS")
        .stdin(Stdio::null())
        .output();
    command.expect("cargo built it").into()
}

/// Whether these mappings of a process have files of ours, wherever the project has been checked out.
pub fn has_ours(maps: &str) -> bool {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's folder");
    maps.replace(&checkout.display().to_string(), "").contains("engraft")
}

/// Whether `tool` can be run. If not, the test at this place is written down as skipped, or fails, as the
/// environment asks.
pub fn has(tool: &str, module: &str, line: u32) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
        || Path::new(tool).is_file();
    found || is_missing(&format!("{tool} is not installed"), tool, module, line)
}

/// Whether a file system can be mounted, in a namespace of our own. If not, as for a tool that is missing.
pub fn can_mount(module: &str, line: u32) -> bool {
    let mut mount = Command::new("unshare");
    let tried = mount.args(["-rm", "mount", "-t", "tmpfs", "none", "/tmp"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
        || is_missing("nothing can be mounted here", "rights to mount", module, line)
}

/// Writes down that the test at this place is skipped, or fails, as the environment asks. Never true.
fn is_missing(why: &str, what: &str, module: &str, line: u32) -> bool {
    let all = std::env::var_os("ENGRAFT_TEST_NEEDS").is_some_and(|needs| needs == "all");
    assert!(!all, "{why}, and ENGRAFT_TEST_NEEDS=all: scripts/test.sh installs what can be installed");
    let mut list = std::fs::File::options()
        .create(true)
        .append(true)
        .open(Path::new(env!("CARGO_TARGET_TMPDIR")).join("skipped"))
        .expect("cargo made the folder for us");
    writeln!(list, "{module}:{line} needs {what}").expect("the folder can be written");
    false
}

/// An empty folder of its own for a test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo made the folder for us")
}

/// Builds `to` from one of our C sources; `flags` are separated by spaces.
#[track_caller]
pub fn compile(to: &Path, source: &str, flags: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(source);
    must(Command::new("gcc").arg("-o").arg(to).arg(source).args(flags.split_whitespace()));
}

/// Puts a program there that may be run: these bytes, or this script.
///
/// Another process writes it. What we ourselves had open for writing cannot be run as long as a child that
/// another test starts has it open too, from before its `exec` ("Text file busy").
#[track_caller]
pub fn put_program(to: &Path, bytes: impl AsRef<[u8]>) {
    let mut written = tempfile::NamedTempFile::new().expect("a file");
    written.write_all(bytes.as_ref()).expect("written");
    must(Command::new("install").args(["-m", "755"]).arg(written.path()).arg(to));
}

/// Copies a program that is then run, as `put_program` does.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    must(Command::new("cp").arg("-L").arg(from.as_ref()).arg(to.as_ref()));
}

/// Runs a tool that must not fail.
#[track_caller]
pub fn must(command: &mut Command) -> String {
    let ran = Ran::from(command.output().unwrap_or_else(|err| panic!("{command:?}: {err}")));
    assert_eq!(ran.code, Some(0), "{command:?}\n{}", ran.stderr);
    ran.stdout
}

/// Counts a run of `program` exactly: leaves `program.callgrind` beside it.
#[track_caller]
pub fn callgrind(folder: &Path, program: &str) {
    must(Command::new("valgrind").current_dir(folder).args([
        "-q",
        "--tool=callgrind",
        "--dump-instr=yes",
        "--collect-jumps=yes",
        &format!("--callgrind-out-file={program}.callgrind"),
        &format!("./{program}"),
    ]));
}

/// Whether `got` is `want`, where `…` stands for anything. Space at the ends of the texts does not count.
pub fn looks_like(got: &str, want: &str) -> bool {
    let parts: Vec<&str> = want.trim_end().split('…').collect();
    let Some((last, before)) = parts.split_last() else { return true };
    let mut rest = got.trim_end();
    for (i, part) in before.iter().enumerate() {
        let found = match i {
            0 => rest.strip_prefix(part),
            _ => rest.find(part).and_then(|at| rest.get(at + part.len()..)),
        };
        let Some(after) = found else { return false };
        rest = after;
    }
    if before.is_empty() { rest == *last } else { rest.ends_with(last) }
}

#[test]
fn looks_like_takes_anything_for_an_ellipsis_and_nothing_else() {
    for (got, want, expect) in [
        ("a b c", "a b c\n", true),
        ("a b c", "a … c", true),
        ("a b c", "…", true),
        ("a b c", "a …", true),
        ("a b c", "a … d", false),
        ("a b c", "b …", false),
        ("a b c d", "a b c", false),
    ] {
        assert_eq!(looks_like(got, want), expect, "{got:?} {want:?}");
    }
}

/// Two builds of the small program that most tests look at: `old` and `new`, in a folder that all tests
/// share.
pub fn pair() -> &'static Path {
    static PAIR: OnceLock<PathBuf> = OnceLock::new();
    PAIR.get_or_init(|| {
        // A folder of this process: another run may be compiling at the same time.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pair-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("cargo made the folder for us");
        compile(&folder.join("old"), "words-1.c", "-O2 -g");
        compile(&folder.join("new"), "words-2.c", "-O2 -g");
        folder
    })
}

/// Builds `name` in `folder` from the C `text`.
#[track_caller]
pub fn built(folder: &Path, name: &str, text: &str, flags: &str) {
    std::fs::write(folder.join("text.c"), text).expect("written");
    let mut gcc = Command::new("gcc");
    // Libraries stand behind what needs them.
    gcc.args(["-w", "-o", name, "text.c"]).args(flags.split_whitespace()).current_dir(folder);
    let done = gcc.output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// All that the recording at `path` says but when and where that was: two runs never agree on it.
pub fn counts(path: &Path) -> profile::recording::Recording {
    let bytes = std::fs::read(path).expect("it was written");
    let recording = profile::recording::Recording::parse(&bytes).expect("readable");
    profile::recording::Recording { run: None, ..recording }
}

/// Entries of `function` in `recording`.
#[track_caller]
pub fn entries(folder: &Path, recording: &str, function: &str) -> u64 {
    let shown = engraft(folder, &format!("show --counts {recording} --json")).json();
    let all = shown["functions"].as_array().expect("a list");
    let found = all.iter().find(|f| f["name"] == function).and_then(|f| f["entries"].as_u64());
    found.unwrap_or_else(|| panic!("{function}: {shown}"))
}

/// Where the function `name` of `binary` is.
#[track_caller]
pub fn at(folder: &Path, binary: &str, name: &str) -> u64 {
    let all = engraft(folder, &format!("show {binary} functions --json")).json();
    let found = all["functions"].as_array().expect("a list").iter().find(|f| f["name"] == name);
    found.and_then(|f| f["at"].as_u64()).expect(name)
}

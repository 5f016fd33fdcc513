//! Both builds run and recorded alike: with the same arguments, environment, folder and standard input, at
//! the same addresses. What they print is compared, not shown.

use crate::input::file_name;
use crate::output::{self, Hinted};
use crate::verbs::count::{find_named, open_store};
use anyhow::Context as _;
use live::Target;
use session::{
    Instrumentation, Instrumented, ModuleFilter, Modules, Placement, Prepared, Recordable, RecordedRun,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use trace::recording::recorder::Recorder;
use trace::recording::window::{When, Window};
use views::compare::{AgainView, Both, Printed, RunsView};

/// What programs are given on standard input.
#[derive(Debug)]
pub enum Input {
    /// What we are given, which is read once.
    Ours,
    /// A file.
    File(PathBuf),
    /// Nothing.
    Nothing,
}

/// Runs programs alike, and records them; what it recorded is gone with it.
pub struct Alike<'a> {
    folder: tempfile::TempDir,
    targets: Vec<Target>,
    args: &'a [OsString],
    input: PathBuf,
    /// What the shell runs before each run.
    setup: Option<&'a OsStr>,
}

/// A run.
pub struct Run {
    /// Its recording.
    pub trace: PathBuf,
    status: ExitStatus,
    /// What it wrote to its standard output, and error.
    printed: [PathBuf; 2],
    /// Files with code of it that was not recorded.
    left_out: Vec<PathBuf>,
}

impl<'a> Alike<'a> {
    /// Of these programs.
    ///
    /// # Errors
    /// If one is not there, or the input cannot be kept.
    pub fn new(
        programs: Vec<&Path>,
        args: &'a [OsString],
        input: Input,
        setup: Option<&'a OsStr>,
    ) -> anyhow::Result<Alike<'a>> {
        let folder = tempfile::tempdir().map_err(|err| no_room(&std::env::temp_dir(), &err))?;
        output::goes_with_us(folder.path());
        let input = match input {
            Input::File(path) => path,
            Input::Nothing => PathBuf::from("/dev/null"),
            Input::Ours => {
                let path = folder.path().join("input");
                keep_input(&path).map_err(|err| no_room(&path, &err))?;
                path
            }
        };
        let targets = programs.into_iter().map(|path| find_named(path.as_os_str()));
        let targets = alike(targets.collect::<anyhow::Result<_>>()?);
        Ok(Alike { folder, targets, args, input, setup })
    }

    /// Runs program `n` once more.
    ///
    /// # Errors
    /// If it cannot be run or recorded.
    pub fn record(&self, n: usize, again: usize) -> anyhow::Result<Run> {
        let Some(target) = self.targets.get(n) else { anyhow::bail!("there is no program {n}") };
        if let Some(setup) = self.setup {
            set_up(setup)?;
        }
        let run = record(target, self.args, &self.input, &self.folder.path().join(format!("{n}-{again}")));
        // The program may have gone on, or ended as it likes: there is nothing to compare.
        output::end_if_asked();
        run
    }

    /// Runs each program so often, by turns: by program, its runs.
    ///
    /// # Errors
    /// As of [`Alike::record`].
    pub fn all(&self, n_runs: usize) -> anyhow::Result<Vec<Vec<Run>>> {
        let mut runs: Vec<Vec<Run>> = self.targets.iter().map(|_| Vec::new()).collect();
        for again in 0..n_runs.max(1) {
            for (n, of) in runs.iter_mut().enumerate() {
                of.push(self.record(n, again)?);
            }
        }
        Ok(runs)
    }
}

/// Says that recordings cannot be written there.
fn no_room(path: &Path, err: &io::Error) -> anyhow::Error {
    let what = format!("cannot write {}: {err}", path.display());
    Hinted::new(what, "make room there, or name another folder by TMPDIR").into()
}

/// Writes what we are given on standard input to a file, for each run to read; nothing, if somebody types it.
fn keep_input(to: &Path) -> io::Result<()> {
    let mut file = File::create(to)?;
    let mut input = io::stdin().lock();
    if !input.is_terminal() {
        io::copy(&mut input, &mut file)?;
    }
    Ok(())
}

/// The same programs, with paths that are as long as each other: on a stack they come first.
fn alike(targets: Vec<Target>) -> Vec<Target> {
    let longest = targets.iter().map(|target| target.start.as_os_str().len()).max().unwrap_or_default();
    let alike = |mut target: Target| {
        // A script is run by its interpreter, which its path is given to.
        if target.start == target.command && target.before.is_empty() {
            target.start = padded(&target.start, longest);
        }
        target
    };
    targets.into_iter().map(alike).collect()
}

/// The same path, `len` bytes long, by more of its last slash.
fn padded(path: &Path, len: usize) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') {
        let missing = len.saturating_sub(bytes.len());
        bytes.splice(slash..slash, std::iter::repeat_n(b'/', missing));
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Has the shell run `command`.
fn set_up(command: &OsStr) -> anyhow::Result<()> {
    let mut shell = Command::new("/bin/sh");
    // Standard output is for what we say.
    let shell = shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(io::stderr());
    let status = shell.status();
    let status = status.context("cannot run /bin/sh for --setup")?;
    if !status.success() {
        let what = format!("--setup {} failed: {status}", Path::new(command).display());
        return Err(Hinted::new(what, "what it says is above; it runs before each build does").into());
    }
    Ok(())
}

/// Runs and records one of them, into files whose names begin with `to`.
fn record(target: &Target, args: &[OsString], input: &Path, to: &Path) -> anyhow::Result<Run> {
    let file = |end: &str| to.with_extension(end);
    let (trace, printed) = (file("trace"), [file("stdout"), file("stderr")]);
    let create = |path: &Path| File::create(path).map_err(|err| no_room(path, &err));
    let store = open_store(false)?;
    let modules = Modules::of(&store, target)?;
    modules.warnings.iter().for_each(output::warned);
    let asked = Instrumentation::new(Placement::Events);
    let wanted = ModuleFilter::new(&["all"]);
    let recordable = Recordable::new(Prepared::new(&store, &wanted, modules, asked)?)?;
    let first: Vec<_> = recordable.modules().iter().filter_map(Instrumented::meaning).collect();
    let window = Window::new(When::default(), Default::default(), Default::default());
    let recorder =
        Recorder::new(create(&trace)?, &first, window, None).map_err(|err| no_room(&trace, &err))?;
    let name = target.start.as_os_str();
    let mut command = session::command(target, name, args);
    command
        .stdin(File::open(input).with_context(|| format!("cannot read {}", input.display()))?)
        .stdout(create(&printed[0])?)
        .stderr(create(&printed[1])?);
    live::at_same_addresses(&mut command);
    let run = RecordedRun::new(recordable, (command, name), recorder, |_| ())?;
    run.warnings().iter().for_each(output::warned);
    let (status, left_out) = (run.status(), run.left_out().to_vec());
    let recorded = run.finish(name);
    recorded.warnings.iter().for_each(output::warned);
    recorded.written.map_err(|err| no_room(&trace, &err))?;
    Ok(Run { trace, status, printed, left_out })
}

/// How two runs ended, and where what they printed differs first; each program was run so often.
///
/// # Errors
/// If what they printed cannot be read.
pub fn differences([old, new]: &[&Run; 2], times: usize) -> anyhow::Result<RunsView> {
    let printed = |n: usize| {
        let [a, b] = [&old.printed[n], &new.printed[n]];
        let read = || {
            let len = |path: &Path| std::fs::metadata(path).map(|about| about.len());
            io::Result::Ok(Printed {
                bytes: Both { old: len(a)?, new: len(b)? },
                differs_at: difference(a, b)?,
            })
        };
        read().context("cannot read what the programs printed")
    };
    let left_out: BTreeSet<&PathBuf> = old.left_out.iter().chain(&new.left_out).collect();
    Ok(RunsView {
        times: times as u64,
        status: Both { old: status(old.status), new: status(new.status) },
        stdout: printed(0)?,
        stderr: printed(1)?,
        again: None,
        left_out: left_out.iter().map(|path| file_name(&path.to_string_lossy())).collect(),
    })
}

/// What two runs of one build have in common, but for what ran in them.
pub fn again(of: &RunsView) -> AgainView {
    AgainView {
        totals: BTreeMap::new(),
        ended_alike: of.status.old == of.status.new,
        same_stdout: of.stdout.differs_at.is_none(),
        same_stderr: of.stderr.differs_at.is_none(),
    }
}

/// As the shell says it.
fn status(status: ExitStatus) -> u8 {
    crate::verbs::count::passed_on(status)
}

/// The first byte in which two files differ.
fn difference(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    let open = |path| File::open(path).map(BufReader::new);
    let (mut a, mut b) = (open(a)?.bytes(), open(b)?.bytes());
    for at in 0.. {
        match (a.next().transpose()?, b.next().transpose()?) {
            (None, None) => return Ok(None),
            (x, y) if x == y => {}
            _ => return Ok(Some(at)),
        }
    }
    Ok(None)
}

/// Whether `name` is of a program, and not of a recording.
pub fn is_program(name: &Path) -> bool {
    let mut start = [0; 4];
    match File::open(name).and_then(|mut file| file.read_exact(&mut start)) {
        Ok(()) => start == *b"\x7fELF" || start.starts_with(b"#!"),
        Err(_) => name.components().count() == 1 && find_named(name.as_os_str()).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_long_as_each_other_and_lead_to_the_same() {
        for (path, len, want) in [
            ("/a/b", 7, "/a////b"),
            ("./b", 5, ".///b"),
            ("/b", 2, "/b"),
            ("/long/one", 3, "/long/one"),
            ("none", 9, "none"),
        ] {
            assert_eq!(padded(Path::new(path), len), Path::new(want).to_owned());
            assert_eq!(padded(Path::new(path), len).as_os_str(), OsStr::new(want));
        }
    }

    #[test]
    fn files_differ_from_the_first_byte_that_does() {
        let place = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = place.path().join(name);
            std::fs::write(&path, bytes).expect("it can be written");
            path
        };
        let a = file("a", b"12345");
        for (bytes, want) in
            [(&b"12345"[..], None), (b"12a45", Some(2)), (b"123", Some(3)), (b"123456", Some(5))]
        {
            assert_eq!(difference(&a, &file("b", bytes)).expect("both are there"), want);
        }
    }
}

//! Programs that a counted process starts by `exec`: which file each is, whether it can be counted, and
//! taking it over.
//!
//! Invariant: a process whose new program is not counted is not touched; why, is said.
//!
//! Source: execve(2), execveat(2), proc(5).

use crate::loader::Loader;
use crate::messages::with_causes;
use crate::prepare::ReadyProgram;
use live::launch::Ready;
use live::{Arena, Asking, Caught};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use std::time::Duration;

/// How long we sleep at most before we look whether the program is over.
const NAP: Duration = Duration::from_millis(200);
/// The number of `execve`; the other one that asks is `execveat`.
const EXECVE: u64 = 59;
/// The longest path, and the most of a script's first line, that the kernel takes.
const PATH_MAX: usize = 4096;
const LINE_MAX: usize = 256;

/// What a program is called that we cannot look at.
const LATER: &str = "a program that was started later";

/// A program, and why it is not counted.
type Left = (PathBuf, String);

/// A program that is about to start.
struct Found {
    /// What can be opened from here.
    file: PathBuf,
    /// Its path.
    path: PathBuf,
    about: Metadata,
}

/// Answers threads that are about to `exec`, until `is_over`.
pub(super) fn serve<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    loader: &'scope Loader<'a>,
    arena: &'scope Arena,
    is_over: &'scope AtomicBool,
) {
    let at_work: Arc<Mutex<HashSet<u32>>> = Arc::default();
    while !is_over.load(Ordering::Relaxed) {
        let is_known = |thread: u32| at_work.lock().is_ok_and(|known| known.contains(&thread));
        let Ok(all) = arena.asking(is_known, NAP) else { return };
        for asking in all.into_iter().map(Arc::new) {
            let (known, ours) = (Arc::clone(&at_work), Arc::clone(&asking));
            if let Ok(mut known) = known.lock() {
                known.insert(asking.thread);
            }
            // Each traces in a thread of its own, and traces no more when that ends.
            let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                if let Err((path, why)) = answer(loader, arena, &ours, is_over) {
                    loader.refuse(path, why);
                }
                arena.let_go(&ours);
                if let Ok(mut known) = known.lock() {
                    known.remove(&ours.thread);
                }
                // It may have asked again.
                arena.wake_for_exec();
            });
            if let Err(err) = started {
                arena.let_go(&asking);
                let why = format!("there is no room for a thread that follows it: {err}");
                loader.refuse(PathBuf::from(LATER), why);
                if let Ok(mut known) = at_work.lock() {
                    known.remove(&asking.thread);
                }
            }
        }
    }
}

/// Follows a thread into its new program, if that can be counted.
fn answer(loader: &Loader<'_>, arena: &Arena, asking: &Asking, is_over: &AtomicBool) -> Result<(), Left> {
    if !arena.is_here(asking) {
        if !arena.is_asking(asking) {
            return Ok(());
        }
        let why = "it is in a namespace of processes of its own, or may not be looked at";
        return Err((PathBuf::from(LATER), why.to_owned()));
    }
    // What cannot be started will not be.
    let Some(found) = found(asking)? else { return Ok(()) };
    let left = |why: String| (found.path.clone(), why);
    let made = loader.program(&found.file, &found.path).map_err(left)?;
    if is_over.load(Ordering::Relaxed) || !arena.is_asking(asking) {
        return Ok(());
    }
    let failed = |err: live::ProcessError| left(with_causes(&err));
    let Some(caught) = Caught::at_exec(arena, asking).map_err(failed)? else { return Ok(()) };
    let file = caught.executable();
    let became = fs::metadata(&file).map_err(|e| left(e.to_string()))?;
    let is_another = (became.dev(), became.ino()) != (found.about.dev(), found.about.ino());
    let made = match is_another {
        true => loader.program(&file, &file.canonicalize().unwrap_or_else(|_| file.clone())).map_err(left)?,
        false => made,
    };
    let ReadyProgram { segments, file, linker } = &*made;
    let swaps = loader.swaps();
    let ready = Ready {
        segments,
        file: file.as_ref(),
        swaps: &swaps,
        opens: &linker.opens,
        execs: Some(&linker.execs),
        watches: false,
    };
    caught.start(arena, &ready).map_err(failed)
}

/// The ELF file that will run; `None` if none will.
fn found(asking: &Asking) -> Result<Option<Found>, Left> {
    let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", asking.thread));
    let (path, folder) = match asking.number {
        EXECVE => (asking.args[0], None),
        _ => (asking.args[1], i32::try_from(asking.args[0].cast_signed()).ok().filter(|fd| *fd >= 0)),
    };
    let Some(named) = text_at(&of("mem"), path) else { return Ok(None) };
    let named = PathBuf::from(OsStr::from_bytes(&named));
    // What the kernel calls so is another process here.
    let own = ["/proc/self", "/proc/thread-self"].iter().find_map(|own| named.strip_prefix(own).ok());
    let own = own.map(|below| of("").join(below));
    let own = own.or_else(|| named.strip_prefix("/dev/fd").ok().map(|n| of("fd").join(n)));
    let mut file = match (named.strip_prefix("/"), folder) {
        (Ok(below), _) => of("root").join(below),
        (_, Some(fd)) => of(&format!("fd/{fd}")).join(&named),
        (_, None) => of("cwd").join(&named),
    };
    if named.as_os_str().is_empty() {
        let Some(fd) = folder else { return Ok(None) };
        file = of(&format!("fd/{fd}"));
    }
    file = own.unwrap_or(file);
    let path = file.canonicalize().unwrap_or_else(|_| named.clone());
    let same = |a: &Path, b: &Path| {
        let identity = |path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        identity(a) == identity(b)
    };
    let left = |why: &str| Err((path.clone(), why.to_owned()));
    if !same(&of("root"), Path::new("/")) {
        return left("it starts in a root folder of its own");
    }
    if !same(&of("ns/user"), Path::new("/proc/self/ns/user")) {
        return left(
            "it is in a user namespace of its own, where it may not open what counters are in: count it from there, `unshare -U … engraft count …`",
        );
    }
    if filters(&of("status")) != filters(Path::new("/proc/self/status")) {
        return left("a filter of system calls (seccomp) is set where it starts");
    }
    // The kernel follows four.
    for _ in 0..5 {
        let Ok(about) = fs::metadata(&file) else { return Ok(None) };
        if !about.is_file() || about.permissions().mode() & 0o111 == 0 {
            return Ok(None);
        }
        let mut head = Vec::new();
        let read = File::open(&file).and_then(|f| f.take(LINE_MAX as u64).read_to_end(&mut head));
        if let Err(err) = read {
            return left(&format!("it cannot be read: {err}"));
        }
        let Some(line) = head.strip_prefix(b"#!") else {
            if about.permissions().mode() & 0o6000 != 0 || live::has_capabilities(&file) {
                return left("it gets other rights when it starts, which a process that is traced does not");
            }
            let path = file.canonicalize().unwrap_or(path);
            return Ok(head.starts_with(b"\x7fELF").then_some(Found { file, path, about }));
        };
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next().unwrap_or_default()));
        file = match interpreter.strip_prefix("/") {
            Ok(below) => of("root").join(below),
            Err(_) => of("cwd").join(interpreter),
        };
    }
    Ok(None)
}

/// How many filters of system calls a process has, as its status says.
fn filters(status: &Path) -> Option<String> {
    let text = fs::read_to_string(status).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Seccomp"));
    Some(lines.collect::<Vec<_>>().join(" "))
}

/// The text at `at` of the memory `memory`, up to its zero.
fn text_at(memory: &Path, at: u64) -> Option<Vec<u8>> {
    let memory = File::open(memory).ok()?;
    let mut text = Vec::new();
    while text.len() < PATH_MAX {
        let from = at + text.len() as u64;
        // Not over the end of a page: the next one may not be there.
        let mut bytes = vec![0; usize::try_from(0x1000 - from % 0x1000).ok()?];
        let n = memory.read_at(&mut bytes, from).ok().filter(|n| *n > 0)?;
        match bytes[..n].iter().position(|b| *b == 0) {
            Some(end) => {
                text.extend(&bytes[..end]);
                return Some(text);
            }
            None => text.extend(&bytes[..n]),
        }
    }
    None
}

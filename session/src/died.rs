//! Where signals ended the threads of a program, in the code that its files have: code that was moved is
//! translated back.
//!
//! Not here: how the kernel tells it (`live`, `kernel/deaths.rs`); what streams of events make of it
//! (`record/deaths.rs`).

use crate::loader::Loaded;
use crate::module::{self, Instrumented};
use crate::prepare::Prepared;
use crate::run::Process;
use live::{Death, KernelReport, Mapped};
use measure::Placement;
use measure::edges::{SYSTEM_CALL, positions};
use probe::Room;
use probe::arch::shared::BEHIND_CALL;
use program::{Image, Lines, LiveVa, Va};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

/// A program that a signal has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Died {
    /// The signal.
    pub signal: i32,
    /// What that is called.
    pub name: String,
    /// Where the thread was that it came to, if the kernel told, and that is code of a file.
    pub place: Option<Place>,
}

/// A place in the code of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The instruction.
    pub at: Va,
    /// The function's symbol, if it has one, and how many bytes behind its start.
    pub function: Option<(String, u64)>,
    /// The source file and the line, from 1, where the file says so.
    pub source: Option<(String, u32)>,
}

/// Code of a module that was moved, in a process.
#[derive(Clone, Debug)]
pub(crate) struct MovedText<'a> {
    /// The file.
    pub(crate) path: &'a Path,
    /// Whether it is the executable.
    is_executable: bool,
    /// Its identity.
    pub(crate) key: u128,
    /// Where the code is.
    pub(crate) text: Range<LiveVa>,
}

/// The moved code in `process`: what was mapped there, or before it was made.
pub(crate) fn moved_texts<'a>(
    prepared: &'a Prepared<'_>,
    loaded: &'a Loaded,
    run: &Process,
    process: u32,
    mapped: &[Mapped],
) -> Vec<MovedText<'a>> {
    let modules = || prepared.modules.iter().chain(&loaded.modules);
    let (path, key) = (prepared.path.as_path(), prepared.key);
    let mut texts = vec![MovedText { path, is_executable: true, key, text: run.text.clone() }];
    for (given, key) in &loaded.given {
        let Some(path) = modules().find(|m| m.key == *key).map(|m: &Instrumented| m.path.as_path()) else {
            continue;
        };
        let Ok(len) = std::fs::metadata(path).map(|meta| meta.len()) else { continue };
        // The kernel tells the path that links lead to.
        let Ok(given) = given.canonicalize() else { continue };
        let mut of_it = mapped.iter().filter(|m| m.path == given && m.offset >= len);
        let own = of_it.clone().rfind(|m| m.process == process);
        let text = own.or(of_it.next_back()).map(|m| m.range.clone());
        texts.extend(text.map(|text| MovedText { path, is_executable: false, key: *key, text }));
    }
    texts
}

/// How the program died, if a signal has ended it, and where, as far as the kernel `told`.
pub(crate) fn died(
    prepared: &Prepared<'_>,
    loaded: &Loaded,
    run: &Process,
    told: &KernelReport,
) -> Option<Died> {
    let signal = run.status.signal()?;
    let mut of_it = told.deaths.iter().filter(|d| d.process == run.pid && d.signal == signal);
    // Where all threads are ended by what another process sent, none is the one.
    let death = of_it.next().filter(|_| of_it.next().is_none());
    let place = death.and_then(|death| {
        let texts = moved_texts(prepared, loaded, run, run.pid, &told.mapped);
        let moved = texts.iter().find(|moved| moved.text.contains(&death.at));
        match moved {
            Some(moved) => place_of_moved(prepared, moved, death.at),
            None => {
                place_in_executable(prepared, run, death.at).or_else(|| place_in_mapped(&told.mapped, death))
            }
        }
    });
    Some(Died { signal, name: live::signal_name(signal), place })
}

/// The place in the file of an instruction in moved code, which is moved once more to find it.
fn place_of_moved(prepared: &Prepared<'_>, moved: &MovedText<'_>, at: LiveVa) -> Option<Place> {
    let _span = tracing::info_span!("where it died").entered();
    let recipe = prepared.recipe();
    let is_left_out = moved.is_executable && !prepared.wanted.has_executable(moved.path);
    let placement = if is_left_out { Placement::Nowhere } else { recipe.placement };
    let recipe = module::Recipe { placement, ..recipe };
    let room = if moved.is_executable { Room::Apart } else { Room::Behind };
    let offset = at.0 - moved.text.start.0;
    let (program, old) = module::old_of(prepared.store, (moved.path, moved.key), recipe, room, offset)?;
    let function = program.block_at(old).map(|b| program.block(b).func);
    let function = function.or_else(|| program.function_at(old)).map(|f| program.function(f));
    let function = function.map(|f| (f.name(), old.0.wrapping_sub(f.entry.0)));
    Some(Place { path: moved.path.to_owned(), at: old, function, source: source(&program.image, old) })
}

/// The place of an instruction in the old code of the executable.
fn place_in_executable(prepared: &Prepared<'_>, run: &Process, at: LiveVa) -> Option<Place> {
    let bias = run.text.start.0.wrapping_sub(prepared.executable.segments.text_at);
    let image = Image::load(&prepared.path).ok()?;
    named(&image, &prepared.path, Va(at.0.wrapping_sub(bias)))
}

/// The place of an instruction in a file that is as it was.
fn place_in_mapped(mapped: &[Mapped], death: &Death) -> Option<Place> {
    let (mapped, offset) = file_at(mapped, death)?;
    let image = Image::load(&mapped.path).ok()?;
    let holds = |s: &&program::image::Segment| (s.offset.0..s.offset.0 + s.file_len).contains(&offset);
    let segment = image.segments.iter().filter(|s| s.executable).find(holds)?;
    let at = segment.range.start.plus(offset - segment.offset.0);
    named(&image, &mapped.path, at)
}

/// The file that a thread was in the code of, and where in it: of what was mapped in its process, or before
/// that was made.
fn file_at<'m>(mapped: &'m [Mapped], death: &Death) -> Option<(&'m Mapped, u64)> {
    let holds = |m: &&Mapped| m.range.contains(&death.at);
    let own = mapped.iter().rfind(|m| m.process == death.process && holds(m));
    let found = own.or_else(|| mapped.iter().rfind(holds))?;
    Some((found, death.at.0 - found.range.start.0 + found.offset))
}

/// A place in an image, whose functions go by their symbols.
fn named(image: &Image, path: &Path, at: Va) -> Option<Place> {
    if !image.is_code(at) {
        return None;
    }
    let symbols = image.symbols.iter().filter(|s| s.kind == program::image::SymbolKind::Function);
    let nearest =
        symbols.filter(|s| s.at <= at && (s.len == 0 || at < s.at.plus(s.len))).max_by_key(|s| s.at);
    let function = nearest.map(|s| (s.name.to_string(), at.0 - s.at.0));
    Some(Place { path: path.to_owned(), at, function, source: source(image, at) })
}

fn source(image: &Image, at: Va) -> Option<(String, u32)> {
    let lines = Lines::load(image)?;
    lines.at(at).map(|(file, line)| (file.to_owned(), line))
}

/// Where a thread was in code that is counted when a signal ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// In the moved code of the module with this key: as many bytes from its start; if it had called
    /// something that comes back, behind the call, and said so ([`BEHIND_CALL`]).
    At(u128, u64),
    /// In a call of which the flow knows that it may not come back.
    InCall,
    /// Who knows.
    Anywhere,
}

/// Where the thread of a `death` was in the moved code of `modules`, which is at `texts`.
///
/// What is known to come back makes no system calls (`program::libc::COMES_BACK`, but `__tls_get_addr` for
/// memory): whoever was in one, had called something that may not.
pub(crate) fn end(
    texts: &[MovedText<'_>],
    modules: &[&Instrumented],
    mapped: &[Mapped],
    death: &Death,
) -> End {
    let in_flow = |at: LiveVa| {
        let moved = texts.iter().find(|moved| moved.text.contains(&at))?;
        let module = modules.iter().find(|module| module.key == moved.key)?;
        let offset = at.0 - moved.text.start.0;
        let found = positions::find(&module.notes.positions, &[offset]).ok()?;
        found.first().copied().flatten().map(|_| (moved.key, offset))
    };
    if texts.iter().any(|moved| moved.text.contains(&death.at)) {
        return in_flow(death.at).map_or(End::Anywhere, |(key, offset)| End::At(key, offset));
    }
    // Farther down the stack, it may be an address of a call that is over.
    let called = death.top.and_then(|behind| in_flow(LiveVa(behind.wrapping_sub(1))));
    match called {
        Some((key, offset)) => End::At(key, (offset + 1) | 1 << BEHIND_CALL),
        None if is_in_system_call(mapped, death) => End::InCall,
        None => End::Anywhere,
    }
}

/// Whether a thread was in a system call that code of a file made.
fn is_in_system_call(mapped: &[Mapped], death: &Death) -> bool {
    let behind = || {
        let (mapped, offset) = file_at(mapped, death)?;
        let mut before = [0; 2];
        let file = std::fs::File::open(&mapped.path).ok()?;
        file.read_exact_at(&mut before, offset.checked_sub(2)?).ok()?;
        Some(before)
    };
    behind().is_some_and(|before| before == SYSTEM_CALL)
}

//! Counts, from whatever holds them: a profile, a recording, a trace.

use super::binaries::recorded_image;
use super::fit::fits;
use super::traces::{nth, open, unreadable};
use crate::output::{self, Hinted};
use anyhow::Context as _;
use profile::recording::Whole;
use profile::{Format, Imported, Profile, ReadError};
use program::{Program, Va};
use std::borrow::Cow;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::OnceLock;
use tracing::info_span;

/// All of the file at `path`, of a trace what it comes to as a recording; `-` is standard input, which can be
/// asked for again.
fn bytes(path: &Path) -> anyhow::Result<Cow<'static, [u8]>> {
    static STDIN: OnceLock<Vec<u8>> = OnceLock::new();
    if is_trace(path) {
        return Ok(Cow::Owned(profile::recording::write(&trace_counts(path, None)?)));
    }
    if path != Path::new("-") {
        let read = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(Cow::Owned(read));
    }
    if STDIN.get().is_none() {
        let mut read = Vec::new();
        std::io::stdin().lock().read_to_end(&mut read).context("cannot read standard input")?;
        let _set_before = STDIN.set(read);
    }
    Ok(Cow::Borrowed(STDIN.get().map_or(&[], Vec::as_slice)))
}

/// Reads the profile at `path`, in whatever format it is.
///
/// # Errors
/// If it cannot be read, is of another build than `program`, or says nothing of it.
pub fn profile(path: &Path, program: Option<&Program>) -> anyhow::Result<Imported> {
    let _span = info_span!("read").entered();
    let bytes = bytes(path)?;
    refuse_empty(path, &bytes)?;
    if bytes.starts_with(b"\x7fELF") {
        let hint = "give what was recorded when it ran: `perf record`, valgrind, or `engraft count`";
        let message = format!("{} is a program, not a profile", path.display());
        return Err(Hinted::new(message, hint).into());
    }
    say_faults(&bytes);
    let context = profile::Context { program };
    let read = match measure::recording::is_one(&bytes) {
        true => raw(&bytes, &context),
        false => profile::read(&bytes, &context),
    };
    let read = match read {
        Err(err @ ReadError::Damaged { .. }) => match whole(path, &bytes) {
            Some(whole) => profile::read(&profile::recording::write(&whole), &context),
            None => Err(err),
        },
        read => read,
    };
    let read = read.with_context(|| format!("cannot use {}", path.display()))?;
    if let Some(program) = program {
        fits(path, &read, program)?;
    }
    if read.format == Format::Callgrind && !profile::callgrind::has_jumps(&bytes) {
        let hint = "take it with `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes`";
        let what = "counts no jumps: where branches went is guessed from the counts of blocks";
        output::warn(&format!("{} {what}", path.display()), Some(hint));
    }
    Ok(read)
}

/// The profile in a recording as a counted program left it.
fn raw(bytes: &[u8], context: &profile::Context) -> Result<Imported, ReadError> {
    let profiles = measure::recording::parse(bytes)?;
    let profile = profile::recording::choose(profiles, context, bytes.len())?;
    Ok(Imported { profile, format: Format::Engraft, lost: Vec::new() })
}

fn refuse_empty(path: &Path, bytes: &[u8]) -> Result<(), Hinted> {
    let hint = "the run that should have written it ended early, or recorded nothing";
    if bytes.is_empty() { Err(Hinted::new(format!("{} is empty", path.display()), hint)) } else { Ok(()) }
}

/// Reads the profile at `path` of `bolted`, which llvm-bolt made of `original`, as one of `original`.
///
/// # Errors
/// As [`profile`], or if `bolted` does not say what became of what.
pub fn bolted_profile(path: &Path, bolted: &Program, original: &Program) -> anyhow::Result<Imported> {
    let mut read = profile(path, Some(bolted))?;
    let (translated, lost) = profile::bat::translate(&read.profile, bolted, original)
        .map_err(|err| Hinted::new(err.to_string(), err.hint()))?;
    read.profile = translated;
    read.lost.extend(lost);
    fits(path, &read, original)?;
    Ok(read)
}

/// Whether the file at `path` is a recording; not if it cannot be read.
pub fn is_recording(path: &Path) -> bool {
    starts(path, 64).is_some_and(|start| profile::recording::is_one(&start))
}

/// All profiles of the recording at `path`; `None` if it is something else.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn recording(path: &Path) -> anyhow::Result<Option<Vec<Profile>>> {
    let bytes = bytes(path)?;
    if !profile::recording::is_one(&bytes) {
        return Ok(None);
    }
    say_faults(&bytes);
    let profiles = match measure::recording::is_one(&bytes) {
        true => measure::recording::parse(&bytes),
        false => profile::recording::parse(&bytes),
    };
    let profiles = profiles.or_else(|err| whole(path, &bytes).ok_or(err));
    profiles.map(Some).with_context(|| format!("cannot use {}", path.display()))
}

/// Whether the file at `path` is a trace; not if it cannot be read.
pub fn is_trace(path: &Path) -> bool {
    starts(path, 16).is_some_and(|start| trace::file::is_one(&start))
}

/// The first `n_bytes` of the file at `path`. Not of a pipe: what is read there is gone.
fn starts(path: &Path, n_bytes: u64) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    let file = path.is_file().then(|| std::fs::File::open(path).ok())??;
    file.take(n_bytes).read_to_end(&mut start).ok()?;
    Some(start)
}

/// How often each block of each module ran, by the trace at `path`: in all threads, or in the n-th, from 1.
///
/// # Errors
/// If it cannot be read, knows no program, or there are fewer threads; if a module is not the file any more
/// that was recorded.
pub fn trace_counts(path: &Path, thread: Option<NonZeroUsize>) -> anyhow::Result<Vec<Profile>> {
    let trace = open(path)?;
    let failed = |err| unreadable(path, err);
    let (names, modules) = (trace.names().map_err(failed)?, trace.flow().map_err(failed)?.modules);
    if modules.is_empty() {
        let hint = "traces of plain files say nothing of a program; those of `engraft trace` do";
        return Err(Hinted::new(format!("{} knows no program", path.display()), hint).into());
    }
    let thread = thread.map(|n| nth(path, &trace, n)).transpose()?;
    let counts = trace.block_counts(thread.map(|of| of.thread)).map_err(failed)?;
    let mut profiles = Vec::new();
    for (n, module) in modules.iter().enumerate() {
        let image = recorded_image(&module.path, module.key)?;
        let mut profile = Profile { image: profile::ImageRef::of(&image), ..Profile::default() };
        profile.image.name.clone_from(&module.path);
        let end = modules.get(n + 1).map_or(u32::MAX, |next| next.first);
        for (&func, function) in names.functions.range(module.first..end) {
            for (&block, at) in &function.blocks {
                profile.blocks.insert(Va(at.at), counts.get(&(func, block)).copied().unwrap_or(0));
            }
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// What is said where threads had to count together.
pub const SHARED: &str = "more threads than there is room for counted together: some counts may be lost";
/// What is said where not all was written down of what handlers of signals left.
pub const UNKNOWN: &str =
    "handlers of signals did not return to more places than there is room for: counts around them may be off";

/// Says what a counted program that made its recording by itself could not count.
fn say_faults(bytes: &[u8]) {
    let faults = measure::recording::faults(bytes);
    if faults.n_shared > 0 {
        output::warn(SHARED, None);
    }
    if faults.n_unknown > 0 {
        output::warn(UNKNOWN, None);
    }
}

fn is_partly_whole(bytes: &[u8]) -> bool {
    whole_of(bytes).is_some()
}

/// What is whole of a recording that is damaged, if anything is.
fn whole_of(bytes: &[u8]) -> Option<Whole> {
    let whole = match measure::recording::is_one(bytes) {
        true => measure::recording::whole_of(bytes),
        false => profile::recording::whole_of(bytes),
    };
    whole.filter(|whole| !whole.profiles.is_empty())
}

/// The profiles that are whole in the recording at `path`, which is not, if there are any; says so.
fn whole(path: &Path, bytes: &[u8]) -> Option<Vec<Profile>> {
    let whole = whole_of(bytes)?;
    let (n, all) = (whole.profiles.len(), whole.n_images);
    let what =
        format!("{} was cut off or changed: {n} of its {all} modules are whole, and used", path.display());
    output::warn(&what, None);
    Some(whole.profiles)
}

/// All profiles of the recording at `path`, which must be one.
///
/// # Errors
/// If it is something else, cannot be read, or is damaged.
pub fn needed_recording(path: &Path) -> anyhow::Result<Vec<Profile>> {
    let there = bytes(path)?;
    refuse_empty(path, &there)?;
    recording(path)?.ok_or_else(|| {
        let hint = match Format::recognise(&there) {
            Some(_) => "say `show BINARY function NAME --profile FILE`",
            None => "make one: `engraft count -o FILE -- PROGRAM`",
        };
        Hinted::new(format!("{} is no recording of `engraft count`", path.display()), hint).into()
    })
}

/// What was seen at the points of a plan, in the recording at `path`.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn seen(path: &Path) -> anyhow::Result<Vec<measure::recording::Seen>> {
    let bytes = bytes(path)?;
    let seen = measure::recording::seen(&bytes)
        .or_else(|err| if is_partly_whole(&bytes) { Ok(Vec::new()) } else { Err(err) });
    seen.with_context(|| format!("cannot use {}", path.display()))
}

/// The profiles of each thread in the recording at `path`, if they were kept apart.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn threads(path: &Path) -> anyhow::Result<Vec<Vec<Profile>>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let threads = match measure::recording::is_one(&bytes) {
        true => measure::recording::threads(&bytes),
        false => profile::recording::threads(&bytes),
    };
    let threads = threads.or_else(|err| if is_partly_whole(&bytes) { Ok(Vec::new()) } else { Err(err) });
    threads.with_context(|| format!("cannot use {}", path.display()))
}

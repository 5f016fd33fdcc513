//! Counts, from whatever holds them: a profile, a recording, a trace; read once.

use super::binaries::{kept_program, recorded_image};
use super::fit::fits;
use super::read::{Bytes, bytes, file, start};
use super::traces::{nth, open, unreadable};
use crate::output::{self, Hinted};
use anyhow::Context as _;
use measure::kept::Seen;
use profile::recording::{self, Module, Recording, Whole};
use profile::values::Values;
use profile::values::log::Log;
use profile::{Format, Imported, Profile, ReadError};
use program::{Program, Va};
use session::Warning;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trace::Trace;
use tracing::info_span;
use views::many;

/// A file that holds counts, or standard input.
pub struct Source {
    path: PathBuf,
    content: Content,
}

/// What a source is, by how it starts.
enum Content {
    /// A trace: counts of blocks are made of it when they are asked for.
    Trace(Box<Trace>),
    /// A recording as a counted program left it: counters, and what they mean.
    Raw(Bytes),
    /// A finished recording.
    Recording(Bytes),
    /// A recording of values with a log, which may be longer than memory.
    Log(Box<Log>),
    /// A profile in some format, or nothing that we know.
    Other(Bytes),
}

/// Reads the profile at `path`, as [`Source::profile`] does.
///
/// # Errors
/// If it cannot be read, is of another build than `program`, or says nothing of it.
pub fn profile(path: &Path, program: Option<&Program>) -> anyhow::Result<Imported> {
    let _span = info_span!("read").entered();
    Source::read(path)?.profile(program)
}

/// Whether the file at `path` is a recording; not if it cannot be read.
pub fn is_recording(path: &Path) -> bool {
    start(path, 64).is_some_and(|start| recording::is_one(&start))
}

/// Whether the file at `path` is a trace of ours; not if it cannot be read.
pub fn is_trace(path: &Path) -> bool {
    start(path, 16).is_some_and(|start| trace::file::is_one(&start))
}

impl Source {
    /// Reads the file at `path`; `-` is standard input, which can be asked for again.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Source> {
        let content = match is_trace(path) {
            true => Content::Trace(Box::new(open(path)?)),
            false => {
                if let Some(log) = open_log(path)? {
                    return Ok(Source { path: path.to_owned(), content: Content::Log(Box::new(log)) });
                }
                let bytes = bytes(path)?;
                if measure::raw_recording::is_one(&bytes) {
                    Content::Raw(bytes)
                } else if recording::is_one(&bytes) {
                    Content::Recording(bytes)
                } else {
                    Content::Other(bytes)
                }
            }
        };
        Ok(Source { path: path.to_owned(), content })
    }

    /// Whether it is a trace: its counts are those of blocks alone.
    pub fn is_trace(&self) -> bool {
        matches!(self.content, Content::Trace(_))
    }

    /// The profile in it, in whatever format it is; of several images, that of `program`, or the
    /// executable's.
    ///
    /// # Errors
    /// If it is damaged, of another build than `program`, or says nothing of it.
    pub fn profile(&self, program: Option<&Program>) -> anyhow::Result<Imported> {
        self.refuse_empty()?;
        self.refuse_values()?;
        let context = profile::Context { program };
        let one_of = |profiles: Vec<Profile>| {
            let profile = recording::choose(profiles, &context, self.n_bytes())?;
            Ok(Imported { profile, format: Format::Engraft, lost: Vec::new() })
        };
        let read = match &self.content {
            Content::Trace(trace) => one_of(self.trace_counts(trace, None)?),
            Content::Raw(bytes) => {
                say_faults(bytes);
                measure::raw_recording::parse(bytes).and_then(one_of)
            }
            Content::Recording(bytes) => {
                Recording::parse(bytes).map(Recording::into_profiles).and_then(one_of)
            }
            Content::Other(bytes) if bytes.starts_with(b"\x7fELF") => {
                let hint = "give what was recorded when it ran: `perf record`, valgrind, or `engraft count`";
                let message = format!("{} is a program, not a profile", self.path.display());
                return Err(Hinted::new(message, hint).into());
            }
            Content::Other(bytes) => profile::read(bytes, &context),
            Content::Log(_) => unreachable!("it has values, and was refused"),
        };
        let read = match read {
            Err(err @ ReadError::Damaged { .. }) => match self.whole() {
                Some(whole) => one_of(whole.into_profiles()),
                None => Err(err),
            },
            read => read,
        };
        let read = read.with_context(|| format!("cannot use {}", self.path.display()))?;
        if let Some(program) = program {
            fits(&self.path, &read, program)?;
        }
        if let (Format::Callgrind, Content::Other(bytes)) = (read.format, &self.content)
            && !profile::callgrind::has_jumps(bytes)
        {
            let hint = "take it with `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes`";
            let what = "counts no jumps: where branches went is guessed from the counts of blocks";
            output::warn(&format!("{} {what}", self.path.display()), Some(hint));
        }
        Ok(read)
    }

    /// The profile in it of `bolted`, which llvm-bolt made of `original`, as one of `original`.
    ///
    /// # Errors
    /// As [`Source::profile`], or if `bolted` does not say what became of what.
    pub fn bolted_profile(&self, bolted: &Program, original: &Program) -> anyhow::Result<Imported> {
        let mut read = self.profile(Some(bolted))?;
        let (translated, lost) = profile::bat::translate(&read.profile, bolted, original)
            .map_err(|err| Hinted::new(err.to_string(), err.hint()))?;
        read.profile = translated;
        read.lost.extend(lost);
        fits(&self.path, &read, original)?;
        Ok(read)
    }

    /// The values in it; `None` if it is no recording of `engraft values`.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn values(&self) -> anyhow::Result<Option<Values>> {
        if let Content::Log(log) = &self.content {
            return log.values().map(Some).with_context(|| format!("cannot use {}", self.path.display()));
        }
        let Content::Recording(bytes) = &self.content else { return Ok(None) };
        // What is cut off is said by whoever reads it as something else.
        let Ok(recording) = Recording::parse(bytes) else { return Ok(None) };
        let section = recording.sections.iter().find(|(tag, _)| *tag == profile::values::SECTION);
        let read = section.map(|(_, body)| Values::parse(body)).transpose();
        read.with_context(|| format!("cannot use {}", self.path.display()))
    }

    /// The log of values in it, a row a call; `None` if it has none.
    pub fn log(&self) -> Option<&Log> {
        match &self.content {
            Content::Log(log) => Some(log),
            _ => None,
        }
    }

    /// How long the run of a recording of values took; nothing, if it does not say.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn ran_for(&self) -> anyhow::Result<Duration> {
        let run = match &self.content {
            Content::Log(log) => log.run().with_context(|| format!("cannot use {}", self.path.display()))?,
            Content::Recording(bytes) => Recording::parse(bytes).ok().and_then(|recording| recording.run),
            _ => None,
        };
        Ok(run.map(|run| run.duration()).unwrap_or_default())
    }

    /// Refuses what has values and no counts.
    fn refuse_values(&self) -> anyhow::Result<()> {
        if self.values()?.is_none() {
            return Ok(());
        }
        let what = format!("{} has values of calls and places, and no counts", self.path.display());
        let hint = "`engraft show REC` shows them, all of them with --json; of `values --full` each call is a row of CSV; `engraft count` counts";
        Err(Hinted::new(what, hint).into())
    }

    /// All that it says of a run, if it is a recording or a trace; `None` if it is something else.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn recording(&self) -> anyhow::Result<Option<Recording>> {
        let read = match &self.content {
            Content::Trace(trace) => {
                return self.trace_counts(trace, None).map(|profiles| Some(Recording::of(profiles)));
            }
            Content::Raw(bytes) => {
                say_faults(bytes);
                measure::raw_recording::parse(bytes).map(Recording::of)
            }
            Content::Recording(bytes) => {
                self.refuse_values()?;
                Recording::parse(bytes)
            }
            Content::Log(_) => return self.refuse_values().map(|()| None),
            Content::Other(_) => return Ok(None),
        };
        let read = read.or_else(|err| self.whole().ok_or(err));
        read.map(Some).with_context(|| format!("cannot use {}", self.path.display()))
    }

    /// The same of what must be one.
    ///
    /// # Errors
    /// If it is something else, or is damaged.
    pub fn needed_recording(&self) -> anyhow::Result<Recording> {
        self.refuse_empty()?;
        self.recording()?.ok_or_else(|| {
            let is_profile =
                matches!(&self.content, Content::Other(bytes) if Format::recognise(bytes).is_some());
            let hint = match is_profile {
                true => "say `show BINARY function NAME --profile FILE`",
                false => "make one: `engraft count -o FILE PROGRAM`",
            };
            Hinted::new(format!("{} is no recording of `engraft count`", self.path.display()), hint).into()
        })
    }

    /// The recording in it, if it has samples.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn sampled(&self) -> anyhow::Result<Option<Recording>> {
        let tag = profile::samples::SECTION;
        match &self.content {
            Content::Recording(bytes) if recording::has_section(bytes, tag) => self.recording(),
            _ => Ok(None),
        }
    }

    /// All that was counted, of what must be a recording: each module's counts, with what was kept of its
    /// code; else with its file.
    ///
    /// # Errors
    /// As [`Source::needed_recording`], or if nothing was kept of a module whose file is gone.
    pub fn images(&self) -> anyhow::Result<Vec<(Program, Profile)>> {
        let with_program = |module: Module| Ok((kept_program(&[&module])?, module.profile));
        self.needed_recording()?.modules.into_iter().map(with_program).collect()
    }

    /// What was seen at the points of a plan; nothing if it is no recording as a counted program left it.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn seen(&self) -> anyhow::Result<Vec<Seen>> {
        let Content::Raw(bytes) = &self.content else { return Ok(Vec::new()) };
        self.unless_partly_whole(measure::raw_recording::seen(bytes))
    }

    /// The profiles of each thread, if they were kept apart.
    ///
    /// # Errors
    /// If it is damaged, or no recording.
    pub fn threads(&self) -> anyhow::Result<Vec<Vec<Profile>>> {
        match &self.content {
            // It keeps them apart, and has counts of one when that is asked for.
            Content::Trace(_) | Content::Log(_) => Ok(Vec::new()),
            Content::Raw(bytes) => self.unless_partly_whole(measure::raw_recording::threads(bytes)),
            Content::Recording(bytes) | Content::Other(bytes) => {
                self.unless_partly_whole(Recording::parse(bytes).map(|recording| recording.threads))
            }
        }
    }

    /// Adds to `recording`, which was read here, the profiles of each thread, if they were kept apart.
    ///
    /// # Errors
    /// As [`Source::threads`].
    pub fn add_threads(&self, recording: &mut Recording) -> anyhow::Result<()> {
        if let Content::Raw(_) = &self.content {
            recording.threads = self.threads()?;
        }
        Ok(())
    }

    /// The profiles of the n-th thread, from 1.
    ///
    /// # Errors
    /// If they were not kept apart, or there are fewer.
    pub fn thread(&self, n: NonZeroUsize) -> anyhow::Result<Vec<Profile>> {
        if let Content::Trace(trace) = &self.content {
            return self.trace_counts(trace, Some(n));
        }
        let mut threads = self.threads()?;
        if threads.is_empty() {
            let what = format!("{} does not keep the counts of threads apart", self.path.display());
            return Err(Hinted::new(what, "`engraft count --per-thread` does").into());
        }
        if n.get() > threads.len() {
            let has = many(threads.len(), "thread");
            let what = format!("{} has the counts of {has} apart, no {n}", self.path.display());
            return Err(Hinted::new(what, "they are counted from 1").into());
        }
        Ok(threads.swap_remove(n.get() - 1))
    }

    fn n_bytes(&self) -> usize {
        match &self.content {
            Content::Trace(_) | Content::Log(_) => 0,
            Content::Raw(bytes) | Content::Recording(bytes) | Content::Other(bytes) => bytes.len(),
        }
    }

    fn refuse_empty(&self) -> Result<(), Hinted> {
        let hint = "the run that should have written it ended early, or recorded nothing";
        match &self.content {
            Content::Other(bytes) if bytes.is_empty() => {
                Err(Hinted::new(format!("{} is empty", self.path.display()), hint))
            }
            _ => Ok(()),
        }
    }

    /// How often each block of each module ran, by a trace: in all threads, or in the n-th, from 1.
    fn trace_counts(&self, trace: &Trace, thread: Option<NonZeroUsize>) -> anyhow::Result<Vec<Profile>> {
        let failed = |err| unreadable(&self.path, err);
        let (names, modules) = (trace.names().map_err(failed)?, trace.flow().map_err(failed)?.modules);
        if modules.is_empty() {
            let hint = "traces of plain files say nothing of a program; those of `engraft trace` do";
            return Err(Hinted::new(format!("{} knows no program", self.path.display()), hint).into());
        }
        let thread = thread.map(|n| nth(&self.path, trace, n)).transpose()?;
        let counts = trace.block_counts(thread.map(|of| of.thread)).map_err(failed)?;
        let mut profiles = Vec::new();
        for (n, module) in modules.iter().enumerate() {
            let image = recorded_image(&module.path, module.key)?;
            let mut profile = Profile { image: profile::ImageRef::of(&image), ..Profile::default() };
            profile.image.name.clone_from(&module.path);
            let end = modules.get(n + 1).map_or(trace::FuncId(u32::MAX), |next| next.first);
            for (&func, function) in names.functions.range(module.first..end) {
                for (&block, at) in &function.blocks {
                    profile.blocks.insert(Va(at.at), counts.get(&(func, block)).copied().unwrap_or(0));
                }
            }
            profiles.push(profile);
        }
        Ok(profiles)
    }

    /// What is whole of a recording that is damaged, if anything is.
    fn whole_of(&self) -> Option<Whole> {
        let whole = match &self.content {
            Content::Raw(bytes) => measure::raw_recording::whole_of(bytes),
            Content::Recording(bytes) => recording::whole_of(bytes),
            Content::Trace(_) | Content::Log(_) | Content::Other(_) => None,
        };
        whole.filter(|whole| !whole.recording.modules.is_empty())
    }

    /// The profiles that are whole in a recording that is not, if there are any; says so. Of its threads,
    /// nothing: some may be missing.
    fn whole(&self) -> Option<Recording> {
        let mut whole = self.whole_of()?;
        whole.recording.threads.clear();
        let (n, all) = (whole.recording.modules.len(), whole.n_images);
        let path = self.path.display();
        output::warn(
            &format!("{path} was cut off or changed: {n} of its {all} modules are whole, and used"),
            None,
        );
        Some(whole.recording)
    }

    /// What was read, or nothing of a recording that is whole in part.
    fn unless_partly_whole<T>(&self, read: Result<Vec<T>, ReadError>) -> anyhow::Result<Vec<T>> {
        read.or_else(|err| if self.whole_of().is_some() { Ok(Vec::new()) } else { Err(err) })
            .with_context(|| format!("cannot use {}", self.path.display()))
    }
}

/// The log of values in the file at `path`, if that is a recording with one; says if it was cut off.
fn open_log(path: &Path) -> anyhow::Result<Option<Log>> {
    if !is_recording(path) {
        return Ok(None);
    }
    let log = Log::open(file(path)?).with_context(|| format!("cannot use {}", path.display()))?;
    if let Some(n) = log.as_ref().and_then(|log| log.n_bytes_cut) {
        let more = if n > 0 { format!(", and {} at its end", views::size(n)) } else { String::new() };
        let what = "was cut off: what its run did last is missing, and where calls were made";
        output::warn(&format!("{} {what}{more}", path.display()), None);
    }
    Ok(log)
}

/// Says what a counted program that made its recording by itself could not count.
fn say_faults(bytes: &[u8]) {
    let faults = measure::raw_recording::faults(bytes);
    if faults.n_shared > 0 {
        output::warned(&Warning::Shared);
    }
    if faults.n_unknown > 0 {
        output::warned(&Warning::Unknown);
    }
}

//! From words of events, as threads appended them, to the file of a trace.
//!
//! The recorder is given words with their stream, their time, and in the end why each stream ends. Where they
//! come from, it does not know: whoever empties the memory shared with a program calls it.
//!
//! Invariant: the file can be read at any time, up to where it was written: the code of a module is written
//! before its events.

use super::event::Event;
use super::module_code::ModuleCode;
use super::sample::Sample;
use super::sections::{Packer, code_section, ends_section};
use super::tail::Tail;
use super::threads::Threads;
use super::window::Window;
use crate::file::Sections;
use crate::ids::ThreadId;
use crate::symbol::Cause;
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

/// When words were taken and appended, since the recording began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    /// When they were taken: what they tell came before.
    pub taken: Duration,
    /// Until when they were appended, as far as is known; not later than `taken`.
    pub appended: Duration,
}

impl Timestamps {
    /// Of words that were taken at `taken`, and may have been appended until then.
    pub fn now(taken: Duration) -> Timestamps {
        Timestamps { taken, appended: taken }
    }
}

/// Writes the trace of a run that goes on.
pub struct Recorder<W> {
    sections: Sections<W>,
    packer: Packer,
    sample: Sample,
    window: Window,
    threads: Threads,
    /// What is kept until the end, if only the last is.
    tail: Option<Tail>,
    /// Whether streams may begin in the middle of functions.
    begins_inside: bool,
    /// Why nothing can be written any more.
    failed: Option<io::Error>,
    /// How much of a file there is.
    n_written: u64,
    n_bytes: usize,
    has_kept: bool,
}

impl<W: Write> Recorder<W> {
    /// Starts a file. What the events of `codes` mean is written first, so that a trace that is cut can be
    /// read. With a tail, only the last of what the window keeps is written, when all has been taken.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(to: W, codes: &[ModuleCode], window: Window, tail: Option<Tail>) -> io::Result<Self> {
        let mut sections = Sections::create(to)?;
        for code in codes {
            sections.write(&code_section(code)?)?;
        }
        Ok(Self {
            sections,
            packer: Packer::new()?,
            sample: Sample::default(),
            window,
            threads: Threads::default(),
            tail,
            begins_inside: false,
            failed: None,
            n_written: 0,
            n_bytes: 0,
            has_kept: false,
        })
    }

    /// The same of a process that runs already: each stream begins in the middle of functions that nothing
    /// tells of.
    #[must_use]
    pub fn of_running(self) -> Self {
        Self { begins_inside: true, ..self }
    }

    /// What of the run is kept: to be told of time, and of what streams hold that was not taken.
    pub fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Whether only the last is kept.
    pub fn keeps_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Writes what the events of a module mean that was loaded meanwhile; before its events are appended. If
    /// that fails, [`Recorder::finish`] says so.
    pub fn add_module(&mut self, code: &ModuleCode) {
        if self.failed.is_some() {
            return;
        }
        let written = code_section(code).and_then(|section| {
            self.n_written += section.len() as u64;
            self.sections.write(&section)
        });
        self.failed = written.err();
    }

    /// Takes `words` (u32, little-endian, whole events), the next of a stream; none say that it has begun. If
    /// they cannot be written, nothing is written any more, and [`Recorder::finish`] says so.
    pub fn append(&mut self, stream: u32, words: &[u8], at: Timestamps) {
        self.n_bytes += words.len();
        if !words.is_empty() {
            self.sample.offer(words);
        }
        let is_all = self.window.is_all();
        let kept = match is_all {
            true => Cow::Borrowed(words),
            false => Cow::Owned(self.window.keep(stream, words)),
        };
        let kept = match self.begins_inside && words.is_empty() {
            true => {
                let mut begins = Vec::new();
                [Event::Gap, Event::Start].iter().for_each(|mark| mark.append_to(&mut begins));
                begins.extend_from_slice(&kept);
                Cow::Owned(begins)
            }
            false => kept,
        };
        self.has_kept |= !words.is_empty() && (is_all || self.window.has_begun(stream));
        if self.failed.is_some() || kept.is_empty() && !words.is_empty() {
            return;
        }
        let mut threads = std::mem::take(&mut self.threads);
        let n_ended = threads.ended().len();
        let done = threads.cut(stream, &kept, |thread, words| self.write(thread, words, at));
        for &thread in threads.ended().get(n_ended..).unwrap_or_default() {
            self.tail.iter_mut().for_each(|tail| tail.end(thread));
        }
        self.threads = threads;
        self.failed = done.err();
    }

    /// Adds events to a stream of which all was taken: they tell how its thread ended.
    pub fn append_last(&mut self, stream: u32, events: &[Event], taken: Duration) {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.append_to(&mut bytes));
        if self.tail.is_none() || !self.window.is_all() {
            self.append(stream, &bytes, Timestamps::now(taken));
            return;
        }
        let thread = self.threads.number(stream);
        match self.packer.section(thread, 0, &bytes) {
            Ok(section) => self.tail.iter_mut().for_each(|tail| tail.append(thread, section.clone())),
            Err(err) => self.failed = Some(err),
        }
    }

    /// Writes the section of `words`, or keeps it until the end.
    fn write(&mut self, thread: ThreadId, words: &[u8], at: Timestamps) -> io::Result<()> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let taken_ns = ns(at.taken);
        let Some(tail) = &mut self.tail else {
            let section = self.packer.section(thread, taken_ns, words)?;
            self.n_written += section.len() as u64;
            return self.sections.write(&section);
        };
        tail.push(thread, ns(at.appended), words, |piece| self.packer.section(thread, taken_ns, piece))
    }

    /// How many bytes of events were taken, kept or not.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// How many bytes of the file were written, but its head and the code of the first modules.
    pub fn n_written(&self) -> u64 {
        self.n_written
    }

    /// Whether any events were kept.
    pub fn has_kept(&self) -> bool {
        self.has_kept
    }

    /// How many threads there were.
    pub fn n_threads(&self) -> usize {
        self.threads.count()
    }

    /// Some of what was taken; none is left.
    pub fn take_sample(&mut self) -> Sample {
        std::mem::take(&mut self.sample)
    }

    /// How many bytes the last of a recording has, if these are more than the tail was to have: what each
    /// thread did last needs them.
    pub fn excess(&self) -> Option<usize> {
        self.tail.as_ref().and_then(Tail::excess).filter(|_| self.failed.is_none())
    }

    /// Writes what is left, and how each stream ends; says how many bytes the file has.
    ///
    /// # Errors
    /// If it cannot be written, or something before could not.
    pub fn finish(mut self, ends: &[(u32, Cause)]) -> io::Result<u64> {
        if let Some(err) = self.failed {
            return Err(err);
        }
        for (thread, mark, section) in self.tail.iter_mut().flat_map(Tail::take) {
            if let Some(mark) = mark {
                let mut cut = Vec::new();
                mark.iter().for_each(|event| event.append_to(&mut cut));
                self.sections.write(&self.packer.section(thread, 0, &cut)?)?;
            }
            self.sections.write(&section)?;
        }
        let mut all: Vec<(ThreadId, Cause)> = ends
            .iter()
            .map(|&(stream, cause)| (self.threads.number(stream), self.end(stream, cause)))
            .collect();
        all.extend(self.threads.ended().iter().map(|&thread| (thread, Cause::ThreadEnd)));
        all.sort_unstable_by_key(|end| end.0);
        self.sections.write(&ends_section(&all))?;
        self.sections.finish()
    }

    /// Why the last thread of a stream is left: what went on when nothing was kept any more did not end
    /// there.
    fn end(&self, stream: u32, cause: Cause) -> Cause {
        if self.window.is_all() || self.window.is_open(stream) { cause } else { Cause::RecordingEnd }
    }
}

#[cfg(test)]
mod tests;

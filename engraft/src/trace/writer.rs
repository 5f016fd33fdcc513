//! Takes the events of a run while it goes on, and writes them.

use live::Arena;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trace::Cause;
use trace::events;
use trace::file::Sections;
use trace::sample::Sample;

/// How long the streams are left alone where there was nothing to take.
const NAP: Duration = Duration::from_micros(300);

/// What came of a run.
#[derive(Default)]
pub struct Taken {
    pub n_bytes: usize,
    pub n_streams: usize,
    pub n_stalls: usize,
    pub n_lost: u64,
}

/// Writes the trace while the program runs.
pub struct Writer {
    sections: Sections<File>,
    packer: events::Packer,
    /// Some of what was taken.
    pub sample: Sample,
    /// Why nothing can be written any more.
    failed: Option<io::Error>,
    since: Instant,
}

impl Writer {
    /// What the events of `codes` mean is written first, so that a trace that is cut can be read.
    pub fn new(file: File, codes: &[events::Code]) -> io::Result<Writer> {
        let mut sections = Sections::create(file)?;
        for code in codes {
            sections.write(&events::code_section(code)?)?;
        }
        let packer = events::Packer::new()?;
        Ok(Writer { sections, packer, sample: Sample::default(), failed: None, since: Instant::now() })
    }

    /// Takes all events until `is_done`. What cannot be written any more is still taken: the program must not wait.
    pub fn take(&mut self, arena: &Arena, is_done: &AtomicBool) -> io::Result<Taken> {
        let (mut streams, mut events) = (Vec::new(), Vec::new());
        let mut taken = Taken::default();
        loop {
            let was_done = is_done.load(Ordering::SeqCst);
            for (n, k) in (0..).zip(0..arena.n_areas()?).skip(streams.len()) {
                streams.push(arena.stream(k)?);
                // When it began.
                self.keep(n, &[], &mut taken);
            }
            let mut found = false;
            for (k, stream) in (0..).zip(&mut streams) {
                while stream.take(&mut events) {
                    found = true;
                    self.keep(k, &events, &mut taken);
                }
            }
            if was_done && !found {
                break;
            }
            if !found {
                std::thread::park_timeout(NAP);
            }
        }
        for (k, stream) in (0..).zip(&streams) {
            let rest = stream.rest()?;
            if !rest.is_empty() {
                self.keep(k, &rest, &mut taken);
            }
            taken.n_stalls += usize::try_from(stream.n_stalls()?).unwrap_or(usize::MAX);
            taken.n_lost += u64::from(stream.has_lost()?);
            taken.n_streams += 1;
        }
        Ok(taken)
    }

    fn keep(&mut self, thread: u32, bytes: &[u8], taken: &mut Taken) {
        taken.n_bytes += bytes.len();
        if !bytes.is_empty() {
            self.sample.offer(bytes);
        }
        let since = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.failed.is_none() {
            let section = self.packer.section(thread, since, bytes);
            self.failed = section.and_then(|section| self.sections.write(&section)).err();
        }
    }

    /// Writes what the events mean, and the end.
    pub fn finish(mut self, codes: &[events::Code], ends: &[(u32, Cause)]) -> io::Result<u64> {
        if let Some(err) = self.failed {
            return Err(err);
        }
        for code in codes {
            self.sections.write(&events::code_section(code)?)?;
        }
        self.sections.write(&events::ends_section(ends))?;
        self.sections.finish()
    }
}

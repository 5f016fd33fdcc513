//! Where threads were when signals ended them, as the last words of their streams.

use live::{Death, KernelReport, Mapped, Owner};
use program::LiveVa;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use trace::recording::event::{Event, SignalPlace};
use trace::recording::module_code::ModuleCode;

/// What is known of where moved code is.
pub(super) struct Texts<'a> {
    /// That of the executable.
    pub(super) executable: Range<LiveVa>,
    /// The key of the executable's, if it is recorded.
    pub(super) key: Option<u32>,
    /// The libraries.
    pub(super) libraries: Vec<Library<'a>>,
    /// What the modules' code is.
    pub(super) codes: &'a [ModuleCode],
}

/// A library that is recorded.
pub(super) struct Library<'a> {
    /// Its file.
    pub(super) plain: &'a Path,
    /// The file that the program got in its place: the same, with moved code behind it.
    pub(super) given: PathBuf,
    /// What the moved code is known by.
    pub(super) key: u32,
}

/// Where something is in moved code.
enum Location {
    /// So many bytes from the start of that of the module with this key.
    Code(u32, u32),
    /// In code of ours, which goes with it.
    Ours,
    Elsewhere,
}

impl Texts<'_> {
    fn place(&self, texts: &[(Range<LiveVa>, u32)], at: LiveVa) -> Location {
        let Some((text, key)) = texts.iter().find(|(text, _)| text.contains(&at)) else {
            return Location::Elsewhere;
        };
        let code = self.codes.iter().find(|code| code.key == *key);
        let from_start = u32::try_from(at.0 - text.start.0).ok();
        let is_block = |(code, at): &(&ModuleCode, u32)| {
            let n = code.places.partition_point(|place| place.0 <= *at);
            n.checked_sub(1).and_then(|n| code.places.get(n)).is_some_and(|place| place.1.is_some())
        };
        match code.zip(from_start).filter(is_block) {
            Some((_, at)) => Location::Code(*key, at),
            None => Location::Ours,
        }
    }

    /// The moved code of all modules in a process: what was mapped there, or before it was made.
    fn of(&self, process: u32, mapped: &[Mapped]) -> Vec<(Range<LiveVa>, u32)> {
        let mut texts: Vec<_> = self.key.map(|key| (self.executable.clone(), key)).into_iter().collect();
        for Library { plain, given, key } in &self.libraries {
            let Ok(len) = std::fs::metadata(plain).map(|meta| meta.len()) else { continue };
            // The kernel tells the path that links lead to.
            let Ok(given) = given.canonicalize() else { continue };
            let mut of_it = mapped.iter().filter(|m| m.path == given && m.offset >= len);
            let own = of_it.clone().rfind(|m| m.process == process);
            texts.extend(own.or(of_it.next_back()).map(|m| (m.range.clone(), *key)));
        }
        texts
    }

    /// By area, the events that say where its thread was when a signal ended it, in the block and the
    /// instruction that it was in, or in a function that it had just called there. Of others, nothing is
    /// said.
    pub(super) fn last_events(&self, owners: &[Owner], report: &KernelReport) -> BTreeMap<u32, [Event; 2]> {
        let mut said = BTreeMap::new();
        for death in &report.deaths {
            let Some(area) = area(owners, death) else { continue };
            let texts = self.of(death.process, &report.mapped);
            let place = match self.place(&texts, death.at) {
                Location::Code(key, at) => Some((key, SignalPlace::At(at))),
                Location::Ours => None,
                // Farther down the stack, it may be an address of a call that is over.
                Location::Elsewhere => {
                    death.top.and_then(|behind| match self.place(&texts, LiveVa(behind.wrapping_sub(1))) {
                        Location::Code(key, at) => Some((key, SignalPlace::InCall(at))),
                        Location::Ours | Location::Elsewhere => None,
                    })
                }
            };
            let ended = Event::Ended { is_placed: true };
            said.extend(place.map(|(key, place)| (area, [Event::Signal { key, place }, ended])));
        }
        said
    }
}

/// The area of a thread that a signal has ended: the last that has its number, which others may have had
/// before. What has ended by itself, or became another program, is another's.
fn area(owners: &[Owner], death: &Death) -> Option<u32> {
    let is_one = |owner: &Owner| {
        (owner.process, owner.thread) == (death.process, Some(death.thread))
            && !(owner.runs || owner.has_ended || owner.has_left || owner.is_another)
    };
    let n = owners.iter().rposition(is_one)?;
    u32::try_from(n).ok()
}

/// The signal that ended a thread, if the kernel told.
pub(super) fn signal_of(owner: &Owner, report: &KernelReport) -> Option<i32> {
    let is_its = |death: &&Death| (death.process, Some(death.thread)) == (owner.process, owner.thread);
    report.deaths.iter().find(is_its).map(|death| death.signal)
}

/// Whether a thread ended by itself, and nobody saw it: a signal ended its process, and the kernel told of
/// all whom that ended.
pub(super) fn ended_before(owner: &Owner, report: &KernelReport) -> bool {
    let of_process = || report.deaths.iter().filter(|death| death.process == owner.process);
    let is_known = |thread| of_process().next().is_some() && of_process().all(|death| death.thread != thread);
    report.is_whole && owner.thread.is_some_and(is_known)
}

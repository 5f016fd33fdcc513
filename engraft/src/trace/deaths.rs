//! Where threads were when signals ended them, as the last words of their streams.

use live::{Death, Mapped, Owner};
use program::LiveVa;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use trace::events::{Code, HANDLER, IN_CALL};

/// What is known of where moved code is.
pub struct Texts<'a> {
    /// That of the executable.
    pub executable: Range<LiveVa>,
    /// The key of the executable's, if it is recorded.
    pub key: Option<u32>,
    /// The libraries.
    pub libraries: Vec<Library<'a>>,
    /// What the modules' code is.
    pub codes: &'a [Code],
}

/// A library that is recorded.
pub struct Library<'a> {
    /// Its file.
    pub plain: &'a Path,
    /// The file that the program got in its place: the same, with moved code behind it.
    pub given: PathBuf,
    /// What the moved code is known by.
    pub key: u32,
}

/// Where something is in moved code.
enum Place {
    /// So many bytes from the start of that of the module with this key.
    Code(u32, u32),
    /// In code of ours, which goes with it.
    Ours,
    Elsewhere,
}

impl Texts<'_> {
    fn place(&self, texts: &[(Range<LiveVa>, u32)], at: LiveVa) -> Place {
        let Some((text, key)) = texts.iter().find(|(text, _)| text.contains(&at)) else {
            return Place::Elsewhere;
        };
        let code = self.codes.iter().find(|code| code.key == *key);
        let from_start = u32::try_from(at.0 - text.start.0).ok();
        let is_block = |(code, at): &(&Code, u32)| {
            let n = code.places.partition_point(|place| place.0 <= *at);
            n.checked_sub(1).and_then(|n| code.places.get(n)).is_some_and(|place| place.1.is_some())
        };
        match code.zip(from_start).filter(is_block) {
            Some((_, at)) => Place::Code(*key, at),
            None => Place::Ours,
        }
    }

    /// The moved code of all modules in a process: what was mapped there, or before it was made.
    fn of(&self, process: u32, mapped: &[Mapped]) -> Vec<(Range<LiveVa>, u32)> {
        let mut texts: Vec<_> = self.key.map(|key| (self.executable.clone(), key)).into_iter().collect();
        for Library { plain, given, key } in &self.libraries {
            let Ok(len) = std::fs::metadata(plain).map(|meta| meta.len()) else { continue };
            let mut of_it = mapped.iter().filter(|m| m.path == *given && m.offset >= len);
            let own = of_it.clone().rfind(|m| m.process == process);
            texts.extend(own.or(of_it.next_back()).map(|m| (m.range.clone(), *key)));
        }
        texts
    }

    /// By area, the words that say where its thread was when a signal ended it, in the block and the instruction that it was in, or in a
    /// function that it had just called there. Of others, nothing is said.
    pub fn last_words(
        &self,
        owners: &[Owner],
        deaths: &[Death],
        mapped: &[Mapped],
    ) -> HashMap<u32, [u32; 3]> {
        let mut said = HashMap::new();
        for death in deaths {
            // One that has ended may have had the same number before.
            let is_one = |owner: &Owner| {
                (owner.process, owner.thread) == (death.process, Some(death.thread))
                    && !owner.runs
                    && !owner.has_ended
            };
            let Some((area, _)) = (0..).zip(owners).find(|(_, owner)| is_one(owner)) else { continue };
            let texts = self.of(death.process, mapped);
            let place = match self.place(&texts, death.at) {
                Place::Code(key, at) => Some([HANDLER, key, at]),
                Place::Ours => None,
                // Farther down, it may be an address of a call that is over.
                Place::Elsewhere => death.stack.iter().take(NEAR).find_map(|behind| {
                    match self.place(&texts, LiveVa(behind.wrapping_sub(1))) {
                        Place::Code(key, at) => Some([HANDLER, key, at | IN_CALL]),
                        Place::Ours | Place::Elsewhere => None,
                    }
                }),
            };
            said.extend(place.map(|words| (area, words)));
        }
        said
    }
}

/// How many words of the stack may lie above the address that a function returns to.
const NEAR: usize = 3;

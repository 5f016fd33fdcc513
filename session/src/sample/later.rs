//! What lies deeper on the stacks of processes than is copied with samples: read a moment later, from their
//! memory.
//!
//! Who called from that deep has not come back by then, as a rule: a thread that has, has something else
//! there, which hardly ever looks as if it went on from there.

use live::RunningMemory;
use program::LiveVa;
use std::collections::HashMap;

const PAGE: u64 = 0x1000;
/// So many pages are kept between two looks at the kernel's records.
const MOST: usize = 1 << 12;

/// The memory of processes.
#[derive(Default)]
pub(super) struct Later {
    /// By process; nothing, where we may not read it.
    memories: HashMap<u32, Option<RunningMemory>>,
    pages: HashMap<(u32, u64), Option<Box<[u8]>>>,
}

impl Later {
    /// The word at `at` of process `pid`.
    pub(super) fn word(&mut self, pid: u32, at: u64) -> Option<u64> {
        let memories = &mut self.memories;
        let page = self.pages.entry((pid, at / PAGE)).or_insert_with(|| {
            let memory = memories.entry(pid).or_insert_with(|| RunningMemory::of(pid.cast_signed()).ok());
            let mut bytes = vec![0; usize::try_from(PAGE).ok()?].into_boxed_slice();
            memory.as_ref()?.read(LiveVa(at / PAGE * PAGE), &mut bytes).then_some(bytes)
        });
        let from = usize::try_from(at % PAGE).ok()?;
        page.as_ref()?.get(from..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// What was read is no more what is there.
    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
    }

    /// Whether there is much that should be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.pages.len() > MOST
    }

    /// Process `pid` is another program now.
    pub(super) fn forget(&mut self, pid: u32) {
        self.memories.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_read_anew() {
        let own = std::process::id();
        let mut later = Later::default();
        let mut word = Box::new(0x1234_5678_9abc_def0_u64);
        let at = std::ptr::from_ref(&*word).addr() as u64;
        assert_eq!(later.word(own, at), Some(0x1234_5678_9abc_def0));
        *word = 7;
        std::hint::black_box(&mut word);
        assert_eq!(later.word(own, at), Some(0x1234_5678_9abc_def0));
        later.forget_pages();
        assert_eq!(later.word(own, at), Some(7));
        assert_eq!(later.word(own, 8), None);
        assert_eq!(later.word(u32::MAX >> 1, at), None);
    }
}

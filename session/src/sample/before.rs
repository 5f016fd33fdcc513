//! Callers that earlier samples of a thread have found: where the copy of a stack ends, a frame at the same
//! place that goes on at the same instruction was called as it was called then.
//!
//! Outer callers stay for long, and what calls down again does so from the same places: what is deeper than
//! a copy is known from samples of when the stack was flatter, or could be read. It is wrong where a thread
//! came back from there meanwhile, and called all the way down to the very same place by others.

use super::moved::Place;
use std::collections::HashMap;

/// So many frames of a thread are kept.
const MOST: usize = 1 << 13;

/// A frame: whence a thread was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// The stack pointer when control is back there.
    pub(super) sp: u64,
    /// Where control goes on.
    pub(super) at: u64,
    /// What that is; nothing, where it is not to be told.
    pub(super) place: Option<Place>,
}

/// Where a thread was and whence it was called, the innermost first.
#[derive(Clone, Default, Debug)]
pub(super) struct Chain {
    /// All that is told of it.
    pub(super) places: Vec<Place>,
    /// Of callers alone.
    pub(super) frames: Vec<Frame>,
}

impl Chain {
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.frames.clear();
    }

    /// It was called from there.
    pub(super) fn push(&mut self, frame: Frame) {
        self.places.extend(frame.place);
        self.frames.push(frame);
    }

    /// Goes on with the frame with `sp` that goes on `at`, and its callers, as these were `before`: whether
    /// they are known.
    pub(super) fn join(&mut self, before: &Callers, sp: u64, at: u64) -> bool {
        let Some((mut frame, mut caller)) = before.of.get(&(sp, at)).copied() else { return false };
        // There may be a circle where a stack is left for another one.
        for _ in 0..MOST {
            self.push(frame);
            let next = caller.and_then(|caller| before.of.get(&caller));
            let Some(next) = next else { break };
            (frame, caller) = *next;
        }
        true
    }
}

/// Where a frame is: its stack pointer, and where it goes on.
type Key = (u64, u64);

/// The frames of a thread from which callers were found to the first.
#[derive(Default)]
pub(super) struct Callers {
    /// Each with its caller, when it was seen last.
    of: HashMap<Key, (Frame, Option<Key>)>,
}

impl Callers {
    /// A chain to the first caller.
    pub(super) fn learn(&mut self, chain: &Chain) {
        if self.of.len() + chain.frames.len() > MOST {
            self.of.clear();
        }
        let keys = chain.frames.iter().map(|frame| (frame.sp, frame.at));
        let callers = keys.clone().skip(1).map(Some).chain([None]);
        for ((key, frame), caller) in keys.zip(&chain.frames).zip(callers) {
            self.of.insert(key, (*frame, caller));
        }
    }
}

/// The callers of each thread, by process and thread.
#[derive(Default)]
pub(super) struct Before {
    of: HashMap<(u32, u32), Callers>,
}

impl Before {
    /// Those of a thread.
    pub(super) fn of(&mut self, thread: (u32, u32)) -> &mut Callers {
        self.of.entry(thread).or_default()
    }

    /// The thread is over.
    pub(super) fn forget(&mut self, thread: (u32, u32)) {
        self.of.remove(&thread);
    }

    /// The process is another program now.
    pub(super) fn forget_all(&mut self, process: u32) {
        self.of.retain(|of, _| of.0 != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::LiveVa;

    /// A chain from the place that is called 1.
    fn chain(frames: &[(u64, u64)]) -> Chain {
        let place = |at: u64| Place::Elsewhere(LiveVa(at));
        let mut chain = Chain { places: vec![place(1)], frames: Vec::new() };
        for &(sp, at) in frames {
            chain.push(Frame { sp, at, place: Some(place(at)) });
        }
        chain
    }

    #[track_caller]
    fn joins(own: &[(u64, u64)], before: &Callers, to: (u64, u64), want: Option<&[(u64, u64)]>) {
        let mut own = chain(own);
        let was = own.clone();
        assert_eq!(own.join(before, to.0, to.1), want.is_some());
        let want = want.map_or(was, chain);
        assert_eq!((own.places, own.frames), (want.places, want.frames));
    }

    #[test]
    fn a_chain_goes_on_as_those_did_that_came_by_the_same_place() {
        let mut before = Callers::default();
        before.learn(&chain(&[(100, 7), (200, 8), (300, 9)]));
        let own = [(50, 3), (70, 5)];
        joins(&own, &before, (200, 8), Some(&[(50, 3), (70, 5), (200, 8), (300, 9)]));
        // Another one, since: the first is still known, its callers as they were seen last.
        before.learn(&chain(&[(60, 4), (200, 8), (310, 2)]));
        joins(&own, &before, (100, 7), Some(&[(50, 3), (70, 5), (100, 7), (200, 8), (310, 2)]));
        joins(&own, &before, (300, 9), Some(&[(50, 3), (70, 5), (300, 9)]));
    }

    #[test]
    fn another_place_or_another_instruction_is_another_frame() {
        let mut before = Callers::default();
        joins(&[(50, 3)], &before, (100, 7), None);
        before.learn(&chain(&[(100, 7), (200, 8)]));
        for other in [(100, 8), (150, 7), (300, 8), (0, 0)] {
            joins(&[(50, 3)], &before, other, None);
        }
    }

    #[test]
    fn what_goes_in_circles_or_is_too_much_ends() {
        let mut before = Callers::default();
        before.learn(&chain(&[(100, 7), (90, 8), (100, 7)]));
        before.learn(&chain(&[(90, 8), (100, 7), (90, 8)]));
        let mut own = chain(&[]);
        assert!(own.join(&before, 90, 8) && own.frames.len() <= MOST);
        for n in 0..3 * MOST as u64 {
            before.learn(&chain(&[(n, 1), (n + 1, 2)]));
        }
        assert!(before.of.len() <= MOST);
    }

    #[test]
    fn each_thread_has_its_own() {
        let mut before = Before::default();
        for thread in [(1, 1), (1, 2), (2, 3)] {
            before.of(thread).learn(&chain(&[(100, u64::from(thread.1))]));
        }
        joins(&[], before.of((1, 2)), (100, 2), Some(&[(100, 2)]));
        joins(&[], before.of((1, 2)), (100, 1), None);
        before.forget((1, 1));
        joins(&[], before.of((1, 1)), (100, 1), None);
        before.forget_all(1);
        joins(&[], before.of((1, 2)), (100, 2), None);
        joins(&[], before.of((2, 3)), (100, 3), Some(&[(100, 3)]));
    }
}

//! Which calls are open in a thread, and which have come back.
//!
//! A call is known by where its return address lies. Whoever returns there gives the result of the call that
//! was entered there, and of those before it that went on by a jump. What lies deeper was left.
//!
//! A call that lies deeper than one that is entered later is gone, as far as both are on one stack: places
//! that are near each other are taken for that. If it comes back nevertheless, it was not left.
//!
//! Not told apart: a call that went on by a jump and was left by an exception then, and one at the same place
//! whose turn it is next, from who was jumped to. Jumps that stay are few (`probe`, `snippet/tail_call.rs`).

use std::collections::HashMap;

/// The row of a call that has none.
pub const NO_ROW: u32 = u32::MAX;

/// So far apart places of one stack may be.
pub(super) const SAME_STACK: u32 = 8 << 20;

/// A call that has not come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    /// The low half of where its return address lies.
    slot: u32,
    /// What was called.
    call: u32,
    /// Its row in the log.
    row: u32,
    /// Whether it has gone on by a jump: who returns there is another.
    is_passed: bool,
}

/// A call that has come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Back {
    /// What was called.
    pub call: u32,
    /// Its row, and that of the call which it was made in.
    pub row: u32,
    /// See there.
    pub within: u32,
}

/// The open calls of a thread.
#[derive(Default, Debug)]
pub struct OpenCalls {
    /// Those on each stack that has some, the one that is used last.
    stacks: Vec<Vec<Frame>>,
    /// By slot, what seems to have been left: calls that went on by jumps, and who was jumped to.
    left: HashMap<u32, Vec<Frame>>,
    /// What was left for sure, by what was called.
    gone: HashMap<u32, u64>,
    /// The rows of what was left for sure, as far as nobody took them.
    gone_rows: Vec<u32>,
}

/// What has not come back.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Rest {
    /// By what was called: what is open, and what was left.
    pub open: HashMap<u32, u64>,
    /// See there.
    pub left: HashMap<u32, u64>,
    /// The rows of what is open, and of what was left and [`OpenCalls::gone_rows`] has not given.
    pub open_rows: Vec<u32>,
    /// See there.
    pub left_rows: Vec<u32>,
}

impl OpenCalls {
    /// Has the stack of `slot` be the last one, if any call on it is open.
    fn find(&mut self, slot: u32) -> bool {
        let is_it = |stack: &Vec<Frame>| {
            let near = |top: &Frame| slot.wrapping_sub(top.slot).wrapping_add(SAME_STACK) < 2 * SAME_STACK;
            stack.last().is_some_and(near)
        };
        let Some(n) = self.stacks.iter().rposition(is_it) else { return false };
        if n + 1 < self.stacks.len() {
            let stack = self.stacks.remove(n);
            self.stacks.push(stack);
        }
        true
    }

    /// `call` was entered, which has this row.
    pub fn enter(&mut self, slot: u32, call: u32, row: u32) {
        if !self.find(slot) {
            self.stacks.push(Vec::new());
        }
        let mut over = Vec::new();
        let Some(stack) = self.stacks.last_mut() else { return };
        while let Some(top) = stack.last() {
            let distance = slot.wrapping_sub(top.slot);
            if distance >= SAME_STACK || distance == 0 && top.is_passed {
                break;
            }
            over.extend(stack.pop());
        }
        stack.push(Frame { slot, call, row, is_passed: false });
        // Whoever was there, is there no more.
        let before = self.left.remove(&slot).unwrap_or_default();
        let here = over.iter().filter(|frame| frame.slot == slot);
        for frame in before.iter().chain(here) {
            *self.gone.entry(frame.call).or_default() += 1;
            self.gone_rows.extend(Some(frame.row).filter(|row| *row != NO_ROW));
        }
        over.into_iter().filter(|frame| frame.slot != slot).for_each(|frame| self.leave(frame));
    }

    /// Something else was called there: what lies there or deeper was left.
    pub fn settle(&mut self, slot: u32) {
        if !self.find(slot) {
            return;
        }
        let mut over = Vec::new();
        if let Some(stack) = self.stacks.last_mut() {
            let is_over = |frame: &Frame| slot.wrapping_sub(frame.slot) < SAME_STACK;
            let from = stack.partition_point(|frame| !is_over(frame));
            over = stack.split_off(from);
            if stack.is_empty() {
                self.stacks.pop();
            }
        }
        over.into_iter().for_each(|frame| self.leave(frame));
    }

    /// All that is open is left.
    pub fn leave_all(&mut self) {
        let frames: Vec<Frame> = self.stacks.drain(..).flatten().collect();
        frames.into_iter().for_each(|frame| self.leave(frame));
    }

    fn leave(&mut self, frame: Frame) {
        self.left.entry(frame.slot).or_default().push(frame);
    }

    /// The rows of calls that were left for sure since this was asked.
    pub fn gone_rows(&mut self) -> std::vec::Drain<'_, u32> {
        self.gone_rows.drain(..)
    }

    /// What is open on top.
    pub fn top(&self) -> Option<u32> {
        self.stacks.last()?.last().map(|frame| frame.call)
    }

    /// The call whose return address lies there goes on by a jump.
    pub fn pass(&mut self, slot: u32) {
        if self.find(slot)
            && let Some(stack) = self.stacks.last_mut()
            && let Some(frame) = stack.iter_mut().rev().find(|frame| frame.slot == slot)
        {
            frame.is_passed = true;
        }
    }

    /// Who was called as `call` returns there; `back` is told of each call that has come back by that, the
    /// last first.
    pub fn come_back(&mut self, slot: u32, call: u32, mut back: impl FnMut(Back)) {
        let is_known = self.find(slot);
        let Some(stack) = self.stacks.last_mut().filter(|_| is_known) else {
            return self.come_back_from_afar(slot, call, back);
        };
        // What lies deeper.
        let n =
            stack.iter().rev().take_while(|frame| slot.wrapping_sub(frame.slot).wrapping_sub(1) < SAME_STACK);
        let from = stack.len() - n.count();
        if from.checked_sub(1).and_then(|n| stack.get(n)).is_none_or(|frame| frame.slot != slot) {
            return self.come_back_from_afar(slot, call, back);
        }
        let over = stack.split_off(from);
        while let Some(top) = stack.last().copied().filter(|top| top.slot == slot) {
            stack.pop();
            let within = stack.last().map_or(NO_ROW, |frame| frame.row);
            back(Back { call: top.call, row: top.row, within });
        }
        if stack.is_empty() {
            self.stacks.pop();
        }
        over.into_iter().for_each(|frame| self.leave(frame));
    }

    /// The same on a stack that was taken for gone, or to a call that was not seen.
    fn come_back_from_afar(&mut self, slot: u32, call: u32, back: impl FnMut(Back)) {
        if self.left.get(&slot).is_some_and(|frames| frames.iter().any(|frame| frame.call == call)) {
            let frames = self.left.remove(&slot).into_iter().flatten();
            frames.map(|frame| Back { call: frame.call, row: frame.row, within: NO_ROW }).for_each(back);
        }
    }

    /// Ends the thread; whether it was in the middle of what is open.
    pub fn finish(self, is_open: bool) -> Rest {
        let mut rest = Rest { left: self.gone, left_rows: self.gone_rows, ..Rest::default() };
        let frames = self.stacks.iter().flatten().map(|frame| (frame, is_open));
        for (frame, is_open) in frames.chain(self.left.values().flatten().map(|frame| (frame, false))) {
            let (of, rows) = match is_open {
                true => (&mut rest.open, &mut rest.open_rows),
                false => (&mut rest.left, &mut rest.left_rows),
            };
            *of.entry(frame.call).or_default() += 1;
            rows.extend(Some(frame.row).filter(|row| *row != NO_ROW));
        }
        rest
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a thread does, on one of some stacks.
    #[derive(Clone, Debug)]
    enum Step {
        Call(u32),
        Return,
        /// Out of so many calls at once, by an exception.
        Throw(usize),
        /// The call goes on by a jump into another.
        Jump(u32),
        Switch(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (0..4u32).prop_map(Step::Call),
            4 => Just(Step::Return),
            1 => (1..4usize).prop_map(Step::Throw),
            2 => (0..4u32).prop_map(Step::Jump),
            1 => (0..3usize).prop_map(Step::Switch),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against a machine that knows what is open on each stack.
        #[test]
        fn what_comes_back_is_known(steps in steps()) {
            // Of each stack, by call: where its return address lies, and all that has that for its own.
            let mut stacks: [Vec<(u32, Vec<u32>)>; 3] = Default::default();
            let mut on = 0;
            let (mut open, mut n_back, mut want_back) = (OpenCalls::default(), [0u64; 4], [0u64; 4]);
            let (mut n_called, mut n_thrown) = ([0u64; 4], [0u64; 4]);
            // Each call has a row of its own.
            let (mut called, mut rows) = (Vec::new(), Vec::new());
            let mut row = |call: u32| {
                called.push(call);
                called.len() as u32 - 1
            };
            for step in steps {
                let stack = &mut stacks[on];
                let slot = (3 - on as u32) * (16 << 20) - 16 * stack.len() as u32;
                match step {
                    Step::Call(call) => {
                        open.enter(slot, call, row(call));
                        n_called[call as usize] += 1;
                        stack.push((slot, vec![call]));
                    }
                    Step::Jump(call) => {
                        let Some((slot, calls)) = stack.last_mut() else { continue };
                        open.pass(*slot);
                        open.enter(*slot, call, row(call));
                        n_called[call as usize] += 1;
                        calls.push(call);
                    }
                    Step::Return => {
                        let Some((slot, calls)) = stack.pop() else { continue };
                        let last = *calls.last().expect("there is one");
                        open.come_back(slot, last, |back| {
                            n_back[back.call as usize] += 1;
                            rows.push(back.row);
                        });
                        calls.iter().for_each(|call| want_back[*call as usize] += 1);
                    }
                    Step::Throw(n) => {
                        let from = stack.len().saturating_sub(n);
                        // Whoever is called there next could be who was jumped to.
                        if stack[from..].iter().any(|(_, calls)| calls.len() > 1) {
                            continue;
                        }
                        let gone = stack.split_off(from);
                        gone.iter().flat_map(|(_, calls)| calls).for_each(|call| n_thrown[*call as usize] += 1);
                    }
                    Step::Switch(to) => on = to,
                }
            }
            prop_assert_eq!(n_back, want_back);
            rows.extend(open.gone_rows());
            let rest = open.finish(true);
            rows.extend(rest.open_rows.iter().chain(&rest.left_rows));
            rows.sort_unstable();
            prop_assert_eq!(rows, (0..called.len() as u32).collect::<Vec<_>>());
            for call in 0..4u32 {
                let of = |map: &HashMap<u32, u64>| map.get(&call).copied().unwrap_or(0);
                let n = call as usize;
                prop_assert_eq!(n_called[n], n_back[n] + of(&rest.left) + of(&rest.open));
                // What was thrown out of last may seem to be open.
                prop_assert!(of(&rest.left) <= n_thrown[n]);
            }
        }
    }

    #[test]
    fn what_was_left_is_told_from_what_is_open() {
        let mut open = OpenCalls::default();
        open.enter(1000, 1, NO_ROW);
        open.enter(900, 2, NO_ROW);
        // Out of 2 and 3, back to 1, which calls 2 again.
        open.enter(800, 3, NO_ROW);
        open.enter(900, 2, NO_ROW);
        let mut back = Vec::new();
        open.come_back(900, 2, |came| back.push(came.call));
        assert_eq!((back, open.top()), (vec![2], Some(1)));
        // From 1, something is called that ends the process.
        open.enter(900, 2, NO_ROW);
        open.settle(950);
        let rest = open.finish(true);
        assert_eq!((rest.left, rest.open), (HashMap::from([(2, 2), (3, 1)]), HashMap::from([(1, 1)])));
    }
}

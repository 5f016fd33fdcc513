//! Instances of loops, from the records of a thread: where one is entered, and where it is left.
//!
//! Back edges increment a register of the loop's own, or a word of the thread, whose value both records have:
//! what it grew by, less what instances inside of this one (by recursion) have added, is how often the loop
//! went round.
//!
//! The two records of an instance have the stack pointer in common, or that of the end is lower: what a loop
//! allocates on the stack stays until its function ends. What lies deeper when a loop is entered or left, on
//! the same stack, was left otherwise; so was what lies there when one is entered that it does not contain.
//!
//! *Source*: VPROF, section 3.3 (a counter a loop, read where it is entered and left).

use super::open::SAME_STACK;
use profile::values::{Distribution, Loop, PARTS_OF_TICK, Stamps, Ticks};
use std::collections::VecDeque;

/// An instance counts by itself.
pub const OWN_COUNT: u64 = u64::MAX;

/// The record of a place where a loop is entered, or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passing {
    /// Which loop.
    pub of: u32,
    /// The low half of the stack pointer.
    pub frame: u32,
    /// The word that the loop's back edges increment; where it is entered, [`OWN_COUNT`] if it counts by
    /// itself: then the other is its count.
    pub count: u64,
    /// The time stamp counter, if it was read.
    pub stamp: Option<u64>,
    /// How many instructions its thread had run, if these are counted.
    pub executed: Option<u64>,
    /// The area of its thread.
    pub area: u32,
}

/// An instance of a loop that was left by an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneInstance {
    /// Which of the loops of [`profile::values::Values`].
    pub of: u32,
    /// The area of its thread: its stream's number.
    pub area: u32,
    /// How often it went through its header.
    pub iterations: u64,
    /// Ticks of the time stamp counter between its two records, without those that were spent on records of
    /// instances inside of it; 0, if the time was not read.
    pub ticks: u64,
    /// Instructions that it ran, with all that it called; 0, if they were not counted.
    pub instructions: u64,
}

/// So many instances are kept one by one: the last ones.
const MOST_KEPT: usize = 1 << 18;

/// A loop that is being run.
#[derive(Clone, Copy, Debug)]
struct Instance {
    entered: Passing,
    /// What instances inside of it have added to its word.
    inner: u64,
    /// Ticks that were spent on records inside of it.
    cost: u64,
    /// Whether an instance inside of it was left so that it is not known what that added to its word.
    is_uncertain: bool,
}

impl Instance {
    /// By how much its word has grown since it was entered, or its own count.
    fn grown(&self, left: Passing) -> u64 {
        match self.entered.count {
            OWN_COUNT => left.count,
            count => left.count.wrapping_sub(count),
        }
    }
}

/// The loops that a thread is in.
#[derive(Default, Debug)]
pub struct OpenLoops {
    /// Those on each stack that has some, the one that is used last.
    stacks: Vec<Vec<Instance>>,
}

/// The loops of a run: their instances are added up, and words told apart.
#[derive(Default)]
pub struct Instances {
    /// What is said of each.
    pub loops: Vec<Loop>,
    /// The word of each, and the innermost of them that contains it.
    pub places: Vec<(u32, Option<u32>)>,
    /// What stamps cost.
    pub stamps: Stamps,
    /// The last ones, one by one, in the order of their ends, if somebody wants them.
    pub kept: Option<VecDeque<OneInstance>>,
}

impl Instances {
    /// There is one more, in the loop `within`; its number.
    pub fn add(&mut self, found: Loop, word: u32, within: Option<u32>, is_timed: bool) -> u32 {
        let ticks = is_timed.then(Ticks::default);
        self.loops.push(Loop { ticks, trip_counts: Distribution::default(), ..found });
        self.places.push((word, within));
        u32::try_from(self.loops.len() - 1).unwrap_or(u32::MAX)
    }

    fn word(&self, of: u32) -> Option<u32> {
        self.places.get(of as usize).map(|place| place.0)
    }

    /// Whether the loop `outer` contains `inner`, and is another.
    fn contains(&self, outer: u32, inner: u32) -> bool {
        let around = |of: &u32| self.places.get(*of as usize).and_then(|place| place.1);
        std::iter::successors(around(&inner), around).any(|of| of == outer)
    }

    fn ended(&mut self, instance: &Instance, left: Passing) {
        let Some(of) = self.loops.get_mut(instance.entered.of as usize) else { return };
        let iterations = instance.grown(left).saturating_sub(instance.inner).saturating_add(1);
        of.n_instances += 1;
        of.n_uncertain += u64::from(instance.is_uncertain);
        of.iterations.add(iterations);
        of.trip_counts.add_word(iterations, 8);
        if let Some(kept) = &mut self.kept {
            let passed = |begin: Option<u64>, end: Option<u64>| {
                begin.zip(end).map_or(0, |(begin, end)| end.wrapping_sub(begin))
            };
            if kept.len() == MOST_KEPT {
                let _first = kept.pop_front();
            }
            kept.push_back(OneInstance {
                of: instance.entered.of,
                area: left.area,
                iterations,
                ticks: passed(instance.entered.stamp, left.stamp).saturating_sub(instance.cost),
                instructions: passed(instance.entered.executed, left.executed),
            });
        }
        if let (Some(ticks), Some(begin), Some(end)) = (&mut of.ticks, instance.entered.stamp, left.stamp) {
            let taken = end.wrapping_sub(begin).saturating_sub(self.stamps.offset + instance.cost);
            ticks.instances.add(taken);
            ticks.iterations.add(taken.saturating_mul(PARTS_OF_TICK) / iterations);
        }
    }
}

impl OpenLoops {
    /// The stack of `frame`, which is the last one then.
    fn stack(&mut self, frame: u32) -> &mut Vec<Instance> {
        let is_near = |stack: &Vec<Instance>| {
            stack.last().is_some_and(|top| {
                frame.wrapping_sub(top.entered.frame).wrapping_add(SAME_STACK) < 2 * SAME_STACK
            })
        };
        match self.stacks.iter().rposition(is_near) {
            Some(n) if n + 1 == self.stacks.len() => {}
            Some(n) => {
                let stack = self.stacks.remove(n);
                self.stacks.push(stack);
            }
            None => {
                self.stacks.retain(|stack| !stack.is_empty());
                self.stacks.push(Vec::new());
            }
        }
        let last = self.stacks.len() - 1;
        self.stacks.get_mut(last).expect("there is one")
    }

    /// A loop is entered.
    pub fn enter(&mut self, at: Passing, all: &mut Instances) {
        let stack = self.stack(at.frame);
        while let Some(top) = stack.last().map(|top| top.entered) {
            let distance = at.frame.wrapping_sub(top.frame);
            if distance >= SAME_STACK || distance == 0 && all.contains(top.of, at.of) {
                break;
            }
            leave(stack, all);
        }
        stack.push(Instance { entered: at, inner: 0, cost: 0, is_uncertain: false });
    }

    /// A loop is left.
    pub fn leave(&mut self, at: Passing, all: &mut Instances) {
        let stack = self.stack(at.frame);
        let is_it = |open: &Instance| open.entered.of == at.of;
        let is_above = |open: &Instance| open.entered.frame.wrapping_sub(at.frame) < SAME_STACK;
        let found = stack.iter().rposition(|open| is_it(open) && is_above(open));
        let Some(found) = found.or_else(|| stack.iter().rposition(is_it)) else { return };
        while stack.len() > found + 1 {
            leave(stack, all);
        }
        let Some(instance) = stack.pop() else { return };
        all.ended(&instance, at);
        let cost = instance.cost + if at.stamp.is_some() { all.stamps.cost } else { 0 };
        if let Some(around) = stack.last_mut() {
            around.cost += cost;
        }
        // Who counts by itself has added nothing to a word.
        if instance.entered.count == OWN_COUNT {
            return;
        }
        let grown = instance.grown(at);
        if let Some(around) = with_word(stack, all, at.of) {
            around.inner += grown;
        }
    }

    /// The thread has come to its end; whether it was in what is open then.
    pub fn finish(self, is_open: bool, all: &mut Instances) {
        for instance in self.stacks.iter().flatten() {
            let Some(of) = all.loops.get_mut(instance.entered.of as usize) else { continue };
            *(if is_open { &mut of.n_open } else { &mut of.n_left }) += 1;
        }
    }
}

/// The last instance of a stack was left otherwise.
fn leave(stack: &mut Vec<Instance>, all: &mut Instances) {
    let Some(gone) = stack.pop() else { return };
    if let Some(of) = all.loops.get_mut(gone.entered.of as usize) {
        of.n_left += 1;
    }
    if let Some(around) = stack.last_mut() {
        around.cost += gone.cost;
    }
    if gone.entered.count != OWN_COUNT
        && let Some(around) = with_word(stack, all, gone.entered.of)
    {
        around.is_uncertain = true;
    }
}

/// The innermost of `stack` whose word is that of the loop `of`.
fn with_word<'s>(stack: &'s mut [Instance], all: &Instances, of: u32) -> Option<&'s mut Instance> {
    let word = all.word(of);
    let is_it = |open: &&mut Instance| open.entered.count != OWN_COUNT && all.word(open.entered.of) == word;
    stack.iter_mut().rev().find(is_it)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Loops with these words, in these others.
    fn all(places: &[(u32, Option<u32>)]) -> Instances {
        let mut all = Instances {
            stamps: Stamps { offset: 10, cost: 15, ..Stamps::default() },
            ..Instances::default()
        };
        for (word, within) in places {
            let _n = all.add(Loop::default(), *word, *within, true);
        }
        all
    }

    fn counts(of: &Loop) -> Vec<(u64, u64)> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let mut all: Vec<(u64, u64)> =
            of.trip_counts.counted().iter().map(|one| (number(&one.bytes), one.count)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn what_reading_time_costs_is_taken_off() {
        let (mut open, mut all) = (OpenLoops::default(), all(&[(0, None), (1, Some(0))]));
        all.kept = Some(VecDeque::new());
        let at = |of, count, stamp| Passing {
            of,
            frame: 0x7000_0000,
            count,
            stamp: Some(stamp),
            executed: Some(3 * stamp),
            area: 5,
        };
        open.enter(at(0, 5, 1000), &mut all);
        for n in 0..3 {
            open.enter(at(1, 100 + n, 1100 + 100 * n), &mut all);
            open.leave(at(1, 101 + n, 1150 + 100 * n), &mut all);
        }
        open.leave(at(0, 7, 1500), &mut all);
        let ticks = |n: usize| {
            let ticks = all.loops.get(n).and_then(|of| of.ticks.clone()).expect("it has some");
            (ticks.instances.total(), ticks.iterations.total())
        };
        assert_eq!(ticks(0), (500 - 10 - 45, u128::from((500 - 10 - 45) * PARTS_OF_TICK / 3)));
        assert_eq!(ticks(1), (120, u128::from(3 * 40 * PARTS_OF_TICK / 2)));
        assert_eq!(all.loops.first().map(counts), Some(vec![(3, 1)]));
        assert_eq!(all.loops.get(1).map(counts), Some(vec![(2, 3)]));
        // One by one, what reading the time costs themselves is in it.
        let kept: Vec<_> = all.kept.unwrap_or_default().into_iter().collect();
        let of = |of, iterations, ticks, instructions| OneInstance {
            of,
            area: 5,
            iterations,
            ticks,
            instructions,
        };
        assert_eq!(kept, [vec![of(1, 2, 50, 150); 3], vec![of(0, 3, 500 - 45, 1500)]].concat());
    }

    /// A record that has nothing but its count.
    fn passing(of: u32, frame: u32, count: u64) -> Passing {
        Passing { of, frame, count, stamp: None, executed: None, area: 0 }
    }

    /// What a thread does in its innermost loop.
    #[derive(Clone, Debug)]
    enum Step {
        /// Enters this one; in a function that is called for it, or in the same.
        Enter(u32, bool),
        Round,
        Leave,
        /// Out of so many, by an exception.
        Throw(usize),
        /// Something is put on the stack, in the loop.
        Push,
        /// To another stack.
        Switch(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..4u32, any::<bool>()).prop_map(|(of, calls)| Step::Enter(of, calls)),
            5 => Just(Step::Round),
            3 => Just(Step::Leave),
            1 => (1..3usize).prop_map(Step::Throw),
            1 => Just(Step::Push),
            1 => (0..2usize).prop_map(Step::Switch),
        ];
        proptest::collection::vec(step, 0..150)
    }

    /// A loop that runs: which, the frame of its function, the stack pointer, iterations, whether they are
    /// known.
    struct Running {
        of: u32,
        frame: u32,
        pointer: u32,
        iterations: u64,
        is_known: bool,
    }

    proptest! {
        /// Against a machine that knows what each instance does. Loops 0 and 1 have a word in common, and run
        /// on one stack; the others run on another one, and the last counts by itself: it calls nothing.
        #[test]
        fn instances_are_what_ran(steps in steps()) {
            let mut all = all(&[(0, None), (0, Some(0)), (1, None), (2, Some(2))]);
            let word = |of: u32| of.saturating_sub(1) as usize;
            let (mut open, mut words, mut on) = (OpenLoops::default(), [0u64; 3], 0);
            let mut stacks: [Vec<Running>; 2] = Default::default();
            let mut want: [Vec<u64>; 4] = Default::default();
            let (mut n_entered, mut n_uncertain, mut n_thrown) = ([0u64; 4], [0u64; 4], 0u64);
            for step in steps {
                let stack = &mut stacks[on];
                let bottom = (2 - on as u32) * (64 << 20);
                let (frame, pointer) = stack.last().map_or((bottom, bottom), |top| (top.frame, top.pointer));
                match step {
                    Step::Enter(..) | Step::Throw(_) if stack.last().is_some_and(|top| top.of == 3) => {}
                    Step::Enter(of, calls) => {
                        let of = if on == 0 { of % 2 } else { 2 + of % 2 };
                        // In one call of a function, a loop is in those that contain it.
                        let calls = calls || of % 2 == 0 || stack.last().is_none_or(|top| top.of + 1 != of);
                        let frame = if calls { pointer - 64 } else { frame };
                        let pointer = if calls { frame } else { pointer };
                        stack.push(Running { of, frame, pointer, iterations: 1, is_known: true });
                        n_entered[of as usize] += 1;
                        let count = if of == 3 { OWN_COUNT } else { words[word(of)] };
                        open.enter(passing(of, pointer, count), &mut all);
                    }
                    Step::Round => {
                        let Some(top) = stack.last_mut() else { continue };
                        top.iterations += 1;
                        words[word(top.of)] += u64::from(top.of != 3);
                    }
                    Step::Push => stack.last_mut().into_iter().for_each(|top| top.pointer -= 16),
                    Step::Leave => {
                        let Some(top) = stack.pop() else { continue };
                        let count = if top.of == 3 { top.iterations - 1 } else { words[word(top.of)] };
                        open.leave(passing(top.of, top.pointer, count), &mut all);
                        // What it has put on the stack stays.
                        if let Some(around) = stack.last_mut().filter(|around| around.frame == top.frame) {
                            around.pointer = top.pointer;
                        }
                        let of = top.of as usize;
                        if top.is_known { want[of].push(top.iterations) } else { n_uncertain[of] += 1 }
                    }
                    Step::Throw(n) => {
                        // To a function that was called before, which goes on in its loop.
                        let from = stack.len().saturating_sub(n);
                        let from = (0..=from).rev().find(|&k| {
                            k == 0 || k < stack.len() && stack[k].frame != stack[k - 1].frame
                        });
                        for gone in stack.split_off(from.unwrap_or(0)) {
                            n_thrown += 1;
                            let around = stack.iter_mut().rev().find(|open| word(open.of) == word(gone.of));
                            around.into_iter().for_each(|around| around.is_known = false);
                        }
                    }
                    Step::Switch(to) => on = to,
                }
            }
            open.finish(true, &mut all);
            let sum = |of: fn(&Loop) -> u64| all.loops.iter().map(of).sum::<u64>();
            let running = stacks.iter().flatten().count() as u64;
            prop_assert!(sum(|of| of.n_left) <= n_thrown);
            prop_assert_eq!(sum(|of| of.n_left) + sum(|of| of.n_open), n_thrown + running);
            for of in 0..4 {
                let said = &all.loops[of];
                prop_assert_eq!(n_entered[of], said.n_instances + said.n_left + said.n_open);
                prop_assert_eq!(said.n_uncertain, n_uncertain[of]);
                let mut known: Vec<(u64, u64)> = Vec::new();
                want[of].sort_unstable();
                for n in &want[of] {
                    match known.last_mut() {
                        Some(last) if last.0 == *n => last.1 += 1,
                        _ => known.push((*n, 1)),
                    }
                }
                if n_uncertain[of] == 0 {
                    prop_assert_eq!(counts(said), known);
                }
            }
        }
    }
}

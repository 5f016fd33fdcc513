//! What is recorded of a run: events where control could have gone another way, and the code that tells the rest from them.
//!
//! ```text
//! entry              each that is reached from outside: of its module, with the stack pointer where frames must be told apart
//! start of a block   one of several that its predecessors lead to, or that nothing leads to, a landing pad, behind a call that returns twice, and one on each
//!                    circle of blocks that would have none
//! behind a call      of something that need not be recorded when it is entered, or left
//! a branch taken     out of the function
//! ```
//!
//! Source: J. R. Larus, "Abstract Execution", Software: Practice and Experience 20, 1990 (what need not be recorded).
#![warn(clippy::indexing_slicing)]

use probe::{Event, EventAt, Module, Plan};
use program::arch::Flow;
use program::{BlockEnd, BlockId, Call, CallKind, Callee, EdgeKind, FuncId, Program, Va, returns_twice};
use std::collections::HashMap;
use trace::events::{Block, Code, ENTRY, End, FROM_ANYWHERE, Function, HAS_FRAME, LIMIT, Point, Site};

/// Why a module cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("it has more blocks than events can tell apart")]
pub struct TooLarge;

/// What is to be put into the code of `program`, whose events say `key`, and what they mean.
///
/// # Errors
/// If it is too large.
pub fn plan(program: &Program, key: u32) -> Result<(Plan, Code), TooLarge> {
    let stays = Module::stays(program);
    // A stub is no function of the program's.
    let is_moved =
        |f: FuncId| stays.get(f.index()).is_some_and(Option::is_none) && program.function(f).import.is_none();
    let mut forks = probe::forks(program);
    forks.sort_unstable();
    let around = Around { program, forks, is_moved: &is_moved };
    if program.blocks.len() >= LIMIT as usize / 4 {
        return Err(TooLarge);
    }
    let entries = around.entries();
    let leaves_somewhere = around.leave_somewhere(&entries);
    let mut code = Code { key, path: program.image.name.clone(), ..Code::default() };
    code.imports = program.imports.iter().map(ToString::to_string).collect();
    let mut events = Vec::new();
    let mut imports: HashMap<String, u32> = HashMap::new();
    for (name, n) in code.imports.iter().zip(1..) {
        imports.entry(name.clone()).or_insert(n);
    }
    for func in program.func_ids() {
        let function = program.function(func);
        let mut made = Function { name: function.name(), blocks: Vec::new() };
        if is_moved(func) {
            let of = Of { around: &around, func, entries: &entries, leaves: &leaves_somewhere };
            made.blocks = of.blocks(&mut code, &imports, &mut events, key);
        } else if around.stub(func) > 0 {
            let block = |b: BlockId| Block { at: program.block(b).start.0, ..Block::default() };
            made.blocks = function.block_ids().map(block).collect();
        }
        code.functions.push(made);
    }
    let mut sorted: Vec<(BlockId, u32)> = entries.iter().map(|(block, n)| (*block, *n)).collect();
    sorted.sort_by_key(|(_, n)| *n);
    for (block, n) in sorted {
        let func = program.block(block).func;
        let at = block.0 - program.function(func).blocks.start;
        code.entries.push((func.0, at));
        let has_frame = around.has_frames(func);
        let word = ENTRY | n | if has_frame { HAS_FRAME } else { 0 };
        events.push(Event { block, at: EventAt::Entry, words: vec![word, key], has_frame });
    }
    Ok((Plan { events, ..Plan::NULL }, code))
}

struct Around<'p> {
    program: &'p Program,
    /// The calls that may return in another process, too.
    forks: Vec<Va>,
    is_moved: &'p dyn Fn(FuncId) -> bool,
}

impl Around<'_> {
    /// The blocks of moved functions that are entered from outside, numbered.
    fn entries(&self) -> HashMap<BlockId, u32> {
        let program = self.program;
        let mut entries = HashMap::new();
        for func in program.func_ids().filter(|f| (self.is_moved)(*f)) {
            let first = program.entry_block(func);
            for block in first.into_iter().chain(program.function(func).entries.iter().copied()) {
                let n = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                entries.entry(block).or_insert(n);
            }
        }
        entries
    }

    /// The entry that a call or jump surely comes to.
    fn entry_of(&self, entries: &HashMap<BlockId, u32>, call: &Call) -> Option<u32> {
        let Callee::Function(callee) = call.callee else { return None };
        let program = self.program;
        if program.function(callee).import.is_some() || !(self.is_moved)(callee) {
            return None;
        }
        // It may come to another entry of it than the first.
        let insn = program.insns(call.block).find(|insn| insn.at() == call.at);
        let to = insn.and_then(|insn| match insn.flow() {
            Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to) => Some(to),
            _ => None,
        });
        let block = match to {
            Some(to) => program.block_from(to).filter(|b| program.block(*b).func == callee)?,
            None if call.kind == CallKind::FallThrough => program.entry_block(callee)?,
            None => return None,
        };
        entries.get(&block).copied()
    }

    /// Functions that may be left by a jump to something that need not be recorded.
    fn leave_somewhere(&self, entries: &HashMap<BlockId, u32>) -> Vec<bool> {
        let program = self.program;
        let mut found = vec![false; program.functions.len()];
        loop {
            let mut changed = false;
            for call in program.calls.iter().filter(|c| c.kind != CallKind::Call) {
                let from = program.block(call.block).func;
                let leads = match (call.callee, self.entry_of(entries, call)) {
                    (Callee::Function(to), Some(_)) => found.get(to.index()).copied().unwrap_or(true),
                    _ => true,
                };
                if leads && let Some(place @ false) = found.get_mut(from.index()) {
                    *place = true;
                    changed = true;
                }
            }
            if !changed {
                return found;
            }
        }
    }

    /// The number of a function, from 1, if it is a stub; else 0.
    fn stub(&self, func: FuncId) -> u32 {
        if self.program.function(func).import.is_some() { func.0 + 1 } else { 0 }
    }

    fn is_twice(&self, call: &Call) -> bool {
        self.is_named(call, returns_twice)
    }

    /// Whether it is of a function of such a name.
    fn is_named(&self, call: &Call, is_one: impl Fn(&str) -> bool) -> bool {
        let program = self.program;
        match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| is_one(name)),
            Callee::Function(f) => {
                let f = program.function(f);
                f.import.as_deref().is_some_and(&is_one) || f.names.iter().any(|n| is_one(n))
            }
            _ => false,
        }
    }

    /// Whether it may return in another process, too, or when another stack has run.
    fn is_far(&self, call: &Call) -> bool {
        self.forks.binary_search(&call.at).is_ok() || self.is_named(call, |name| name == "swapcontext")
    }

    /// Whether control may come into the middle of the function's activations from other ones.
    fn has_frames(&self, func: FuncId) -> bool {
        let program = self.program;
        program.edges_of(func).iter().any(|e| e.kind == EdgeKind::LandingPad)
            || program
                .function(func)
                .block_ids()
                .flat_map(|b| program.calls_in(b))
                .any(|call| self.is_twice(call) || self.is_far(call))
    }
}

/// A function that is moved.
struct Of<'a> {
    around: &'a Around<'a>,
    func: FuncId,
    entries: &'a HashMap<BlockId, u32>,
    leaves: &'a [bool],
}

impl Of<'_> {
    fn number(&self, block: BlockId) -> u32 {
        block.0 - self.around.program.function(self.func).blocks.start
    }

    /// Where each block may go, landing pads left out; and whether it may leave the function by its branch.
    fn ways(&self, block: BlockId) -> (Vec<u32>, bool) {
        let program = self.around.program;
        let edges = program.successors(block).iter().filter(|e| e.kind != EdgeKind::LandingPad);
        let mut to: Vec<u32> = edges.map(|e| self.number(e.to)).collect();
        to.sort_unstable();
        to.dedup();
        let leaves = program.calls_in(block).iter().any(|c| c.kind == CallKind::BranchTailCall);
        (to, leaves)
    }

    /// Its blocks as events need them, with their events.
    fn blocks(
        &self,
        code: &mut Code,
        imports: &HashMap<String, u32>,
        events: &mut Vec<Event>,
        key: u32,
    ) -> Vec<Block> {
        let program = self.around.program;
        let ids: Vec<BlockId> = program.function(self.func).block_ids().collect();
        let ways: Vec<(Vec<u32>, bool)> = ids.iter().map(|b| self.ways(*b)).collect();
        let mut needs = vec![false; ids.len()];
        let mut is_far = vec![false; ids.len()];
        let mut lands = vec![false; ids.len()];
        let set = |all: &mut [bool], n: u32| {
            if let Some(place) = all.get_mut(n as usize) {
                *place = true;
            }
        };
        for (&id, (to, leaves)) in ids.iter().zip(&ways) {
            // Of where a jump through a table or a pointer leads, not all may be known.
            let is_open = matches!(program.block(id).end, BlockEnd::Switch | BlockEnd::Unresolved);
            if to.len() + usize::from(*leaves) > 1 || is_open {
                to.iter().for_each(|n| set(&mut needs, *n));
            }
            for edge in program.successors(id).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
                set(&mut is_far, self.number(edge.to));
                set(&mut lands, self.number(edge.to));
            }
            let last = program.block(id).last_insn();
            let is_twice =
                program.calls_in(id).iter().any(|call| call.at == last && self.around.is_twice(call));
            if is_twice {
                to.iter().for_each(|n| set(&mut is_far, *n));
            }
        }
        needs.iter_mut().zip(&is_far).for_each(|(needs, far)| *needs |= far);
        // What nothing leads to is come to by handlers of signals, which change where control goes on.
        let mut is_led_to = vec![false; ids.len()];
        ways.iter().flat_map(|way| &way.0).for_each(|n| set(&mut is_led_to, *n));
        for (&id, (needs, is_led_to)) in ids.iter().zip(needs.iter_mut().zip(is_led_to)) {
            *needs |= !is_led_to && !self.entries.contains_key(&id);
        }
        break_circles(&ways, &mut needs);
        let mut made = Vec::with_capacity(ids.len());
        for ((n, &id), (to, _)) in (0..).zip(&ids).zip(ways) {
            let mut point = |of: Point, at: EventAt, is_far: bool| {
                code.points.push(of);
                let n = u32::try_from(code.points.len()).unwrap_or(u32::MAX);
                let words = if is_far { vec![FROM_ANYWHERE | n, key] } else { vec![n] };
                events.push(Event { block: id, at, words, has_frame: is_far });
                n
            };
            let at = |all: &[bool]| all.get(n as usize).copied().unwrap_or_default();
            let (far, func) = (at(&is_far), self.func.0);
            let mut block = Block { at: program.block(id).start.0, lands: at(&lands), ..Block::default() };
            if at(&needs) {
                block.point = point(Point::Start(func, n), EventAt::Start, far);
            }
            let mut tail = None;
            for call in program.calls_in(id) {
                let entry = self.around.entry_of(self.entries, call);
                match call.kind {
                    CallKind::Call => {
                        let place = u32::try_from(block.calls.len()).unwrap_or(u32::MAX);
                        let is_sure = match (call.callee, entry) {
                            (Callee::Function(f), Some(_)) => !self.leaves.get(f.index()).is_some_and(|l| *l),
                            _ => false,
                        };
                        let twice = self.around.is_twice(call) && call.at == program.block(id).last_insn();
                        let site = Site {
                            entry,
                            import: self.import(call, imports),
                            stub: self.stub(call),
                            point: match is_sure && !self.around.is_far(call) || !call.returns || twice {
                                true => 0,
                                false => {
                                    let is_far = self.around.is_far(call);
                                    point(Point::Behind(func, n, place), EventAt::Behind(call.at), is_far)
                                }
                            },
                        };
                        // One that returns twice comes to nothing that is recorded, and what is behind it says so.
                        match twice {
                            true => block.stub = self.stub(call),
                            false => block.calls.push(site),
                        }
                    }
                    CallKind::BranchTailCall => {
                        block.stub = self.stub(call);
                        block.leaves = Some((point(Point::Leaves(func, n), EventAt::Taken, false), entry));
                    }
                    CallKind::TailCall | CallKind::FallThrough => {
                        block.stub = self.stub(call);
                        tail = Some(entry);
                    }
                }
            }
            block.end = match program.block(id).end {
                BlockEnd::Return => End::Return,
                BlockEnd::NoReturn | BlockEnd::Stop | BlockEnd::Broken => End::Stop,
                _ if !to.is_empty() => End::To(to),
                _ => tail.map_or(End::Stop, End::Tail),
            };
            // A branch that leaves, or else runs into the next function.
            made.push(block);
        }
        made
    }

    /// The stub that a call goes through, as of [`Around::stub`].
    fn stub(&self, call: &Call) -> u32 {
        match call.callee {
            Callee::Function(f) => self.around.stub(f),
            _ => 0,
        }
    }

    /// The import that a call names, from 1.
    fn import(&self, call: &Call, imports: &HashMap<String, u32>) -> u32 {
        let program = self.around.program;
        let name = match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).map(AsRef::as_ref),
            Callee::Function(f) => program.function(f).import.as_deref(),
            _ => None,
        };
        name.and_then(|name| imports.get(name)).copied().unwrap_or_default()
    }
}

/// Has every circle of blocks have one that needs an event.
fn break_circles(ways: &[(Vec<u32>, bool)], needs: &mut [bool]) {
    // 0: not seen, 1: on the way here, 2: done.
    let mut state = vec![0u8; ways.len()];
    for root in 0..ways.len() {
        let mut way: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((at, next)) = way.last_mut() {
            let (n, k) = (*at, *next);
            if k == 0 {
                match state.get_mut(n) {
                    Some(state @ 0) => *state = 1,
                    _ => {
                        way.pop();
                        continue;
                    }
                }
            }
            *next += 1;
            match ways.get(n).and_then(|w| w.0.get(k)) {
                Some(&to) => {
                    let to = to as usize;
                    match (state.get(to), needs.get_mut(to)) {
                        (Some(1), Some(needs)) => *needs = true,
                        (Some(0), _) => way.push((to, 0)),
                        _ => {}
                    }
                }
                None => {
                    if let Some(state) = state.get_mut(n) {
                        *state = 2;
                    }
                    way.pop();
                }
            }
        }
    }
}

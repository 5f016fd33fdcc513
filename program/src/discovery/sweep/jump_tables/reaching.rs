//! Constants that reach the instructions of one region: the registers, and the places in the frame that hold
//! spilled ones, which have the same value whichever way control came.
//!
//! Invariant: what differs between two ways, or is not followed, is not known. Nothing is known at the
//! start of the region, where other regions lead into it, at landing pads, and after calls of what these
//! may change. A place in the frame whose address is taken is not followed; nor is one that an access of
//! another width or an overlapping one writes. What pointers write is taken to be no spilled register:
//! compilers give those places of their own.
//!
//! Source: G. Kildall, "A unified approach to global program optimization", 1973, for the data flow.

use crate::arch::{Insn, Operand, Reg, RegSet, StackMove, Step};
use crate::discovery::sweep::jump_tables::location::{Location, sizeless, touches};
use crate::discovery::sweep::listing::{FlowKind, ListedInsn, Listing};
use crate::discovery::sweep::raw::{Context, RawTable, Rel, decode_at};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// More instructions than any function has whose table hides.
const MAX_INSNS: usize = 1 << 16;
/// How often each block is looked at, on average, before it is given up.
const VISITS: usize = 16;

/// What is known at one instruction.
type State = HashMap<Location, u64>;

/// What is known at the starts of blocks.
pub(super) struct Reaching {
    insns: Vec<Option<Insn>>,
    kinds: Vec<FlowKind>,
    /// Indices of the first instructions of blocks.
    starts: Vec<u32>,
    /// Per block; `None` if nothing is known to lead there.
    states: Vec<Option<State>>,
    /// Places in the frame whose address is taken.
    taken: HashSet<Operand>,
    /// Whether the frame pointer is one, not a register like others.
    keeps_frame: bool,
}

impl Reaching {
    /// What reaches the instructions of `listing`, which are those of `range`, with the jumps that read
    /// `tables`. The jumps at the indices `anywhere` may lead to any block. `None` if that is too much work.
    pub fn compute(
        cx: &Context<'_>,
        listing: &Listing,
        range: &Range<Rel>,
        tables: &[&RawTable],
        anywhere: &[u32],
    ) -> Option<Reaching> {
        if listing.insns.len() > MAX_INSNS {
            return None;
        }
        let entered = |at: Rel| [cx.entered, cx.pads].iter().any(|all| all.binary_search(&at).is_ok());
        let mut starts = Vec::new();
        let kinds: Vec<FlowKind> = listing.insns.iter().map(|insn| flow_of(cx, insn)).collect();
        for (i, insn) in (0..).zip(&listing.insns) {
            let before = (i as usize).checked_sub(1).map(|b| kinds[b].ends_block());
            if before.unwrap_or(true) || listing.leaders.get(insn.at) || entered(insn.at) {
                starts.push(i);
            }
        }
        let insns: Vec<Option<Insn>> = listing.insns.iter().map(|i| decode_at(cx, i.at)).collect();
        let taken = insns.iter().flatten().filter_map(address_taken).collect();
        let keeps_frame = insns.iter().flatten().any(|i| i.stack_move() == Some(StackMove::ToFrame));
        let states = vec![None; starts.len()];
        let mut this = Reaching { insns, kinds, starts, states, taken, keeps_frame };
        this.flow(cx, listing, range, tables, anywhere).then_some(this)
    }

    /// The value that `loc` has before the instruction at `index`, if it is always the same.
    pub fn value(&self, index: u32, loc: Location) -> Option<u64> {
        let block = self.block(index);
        let mut state = self.states.get(block)?.clone()?;
        for i in self.starts[block]..index {
            self.step(i, &mut state);
        }
        state.get(&loc).copied()
    }

    fn block(&self, index: u32) -> usize {
        self.starts.partition_point(|&s| s <= index).saturating_sub(1)
    }

    /// Fills in the states. Says whether it came to an end.
    fn flow(
        &mut self,
        cx: &Context<'_>,
        listing: &Listing,
        range: &Range<Rel>,
        tables: &[&RawTable],
        anywhere: &[u32],
    ) -> bool {
        let index_of = |at: Rel| listing.insns.binary_search_by_key(&at, |i| i.at).ok();
        let inside = |all: &[Rel]| {
            let (from, to) =
                (all.partition_point(|&a| a < range.start), all.partition_point(|&a| a < range.end));
            all[from..to].iter().filter_map(|&at| index_of(at)).collect::<Vec<_>>()
        };
        let mut entries = vec![0];
        entries.extend(inside(cx.entered));
        entries.extend(inside(cx.pads));
        let mut todo = Vec::new();
        for entry in entries.into_iter().filter_map(|i| u32::try_from(i).ok()) {
            let block = self.block(entry);
            if block < self.states.len() {
                self.states[block] = Some(State::new());
                todo.push(block);
            }
        }
        let mut left = VISITS * self.starts.len() + VISITS;
        let mut to = Vec::new();
        while let Some(block) = todo.pop() {
            let Some(rest) = left.checked_sub(1) else { return false };
            left = rest;
            let Some(mut state) = self.states[block].clone() else { continue };
            let from = self.starts[block];
            let end = self.starts.get(block + 1).map_or(self.kinds.len(), |&e| e as usize);
            for i in (from..).take(end - from as usize) {
                self.step(i, &mut state);
            }
            to.clear();
            self.successors(listing, end - 1, tables, anywhere, &mut to, index_of);
            for &next in &to {
                if self.join(next, &state) {
                    todo.push(next);
                }
            }
        }
        true
    }

    /// The blocks that control may go to from the instruction at `last`, which ends one.
    fn successors(
        &self,
        listing: &Listing,
        last: usize,
        tables: &[&RawTable],
        anywhere: &[u32],
        to: &mut Vec<usize>,
        index_of: impl Fn(Rel) -> Option<usize>,
    ) {
        let (insn, kind) = (listing.insns[last], self.kinds[last]);
        let mut add = |i: usize| {
            if let Ok(i) = u32::try_from(i) {
                to.push(self.block(i));
            }
        };
        if kind.falls_through() && last + 1 < listing.insns.len() {
            add(last + 1);
        }
        match kind {
            FlowKind::Jump | FlowKind::Branch => index_of(insn.target).into_iter().for_each(add),
            FlowKind::JumpIndirect if anywhere.iter().any(|&j| j as usize == last) => {
                to.extend(0..self.starts.len());
            }
            FlowKind::JumpIndirect => {
                let own = tables.iter().filter(|t| t.jump == insn.at);
                own.flat_map(|t| t.targets.iter()).filter_map(|&t| index_of(t)).for_each(add);
            }
            _ => {}
        }
    }

    /// Takes into account that control comes to `block` with `state`. Says whether less is known than before.
    fn join(&mut self, block: usize, state: &State) -> bool {
        match &mut self.states[block] {
            Some(known) => {
                let before = known.len();
                known.retain(|loc, value| state.get(loc) == Some(value));
                known.len() < before
            }
            none => {
                *none = Some(state.clone());
                true
            }
        }
    }

    /// What the instruction at `index` does to what is known.
    fn step(&self, index: u32, state: &mut State) {
        match self.kinds[index as usize] {
            FlowKind::Nop | FlowKind::Branch | FlowKind::Jump => return,
            FlowKind::Call | FlowKind::CallIndirect => {
                state.retain(|loc, _| match loc {
                    Location::Reg(reg) => !RegSet::lost_at_calls().contains(*reg),
                    Location::Mem(place) => frame_place(place).is_some_and(|(base, from)| {
                        // Below the stack pointer stands what is called.
                        !base.is_stack_pointer() || from >= 0
                    }),
                });
                return;
            }
            _ => {}
        }
        let Some(insn) = &self.insns[index as usize] else {
            state.clear();
            return;
        };
        let made = self.made(insn, state);
        let writes = insn.effects().writes;
        let written = written_place(insn);
        state.retain(|loc, _| match loc {
            Location::Reg(reg) => !writes.contains(*reg),
            Location::Mem(place) => {
                !touches(insn, place) && written.is_none_or(|written| !overlap(place, &written))
            }
        });
        if let Some((loc, value)) = made {
            state.insert(loc, value);
        }
    }

    /// The constant that `insn` makes of what is known, and where it puts it.
    fn made(&self, insn: &Insn, state: &State) -> Option<(Location, u64)> {
        let width = match insn.operands().next() {
            Some(Operand::Reg(_, width)) => width,
            _ => 8,
        };
        let held = |reg: Reg| state.get(&Location::Reg(reg)).copied();
        let (to, value) = match insn.step() {
            Step::Address { to, from: Operand::Place { at, index: None, base: None, .. } } => (to, at.0),
            Step::Address {
                to,
                from: Operand::Mem { base: Some(base), index: None, disp, segment: None, .. },
            } => (to, held(base)?.wrapping_add_signed(disp)),
            Step::Copy { to, from: Operand::Imm(n), .. } => (to, n.cast_unsigned()),
            Step::Copy { to, from: Operand::Reg(from, 8), .. } => (to, held(from)?),
            Step::Copy { to, from: Operand::Reg(from, 4), signed: false } => {
                (to, held(from)? & u64::from(u32::MAX))
            }
            Step::Copy { to, from: from @ Operand::Mem { size: 8, .. }, .. } => {
                (to, state.get(&Location::Mem(sizeless(from))).copied()?)
            }
            Step::Add { to, from: Operand::Imm(n) } => (to, held(to)?.wrapping_add_signed(n)),
            Step::Store { to: place @ Operand::Mem { size: 8, .. }, from } => {
                let slot = sizeless(place);
                let (base, _) = frame_place(&slot).filter(|_| !self.taken.contains(&slot))?;
                if !base.is_stack_pointer() && !self.keeps_frame {
                    return None;
                }
                return Some((Location::Mem(slot), held(from)?));
            }
            _ => return None,
        };
        let value = if width == 8 { value } else { value & u64::from(u32::MAX) };
        (width >= 4).then_some((Location::Reg(to), value))
    }
}

/// What `insn` does to the flow of control: a call that is known not to return stops.
fn flow_of(cx: &Context<'_>, insn: &ListedInsn) -> FlowKind {
    match insn.kind {
        FlowKind::Call | FlowKind::CallIndirect if cx.never.binary_search(&insn.at).is_ok() => FlowKind::Stop,
        kind => kind,
    }
}

/// The register of the frame that a place is counted from, and the distance.
fn frame_place(place: &Operand) -> Option<(Reg, i64)> {
    match *place {
        Operand::Mem { base: Some(base), index: None, disp, segment: None, .. } if base.is_frame() => {
            Some((base, disp))
        }
        _ => None,
    }
}

/// The place in the frame whose address `insn` takes.
fn address_taken(insn: &Insn) -> Option<Operand> {
    match insn.step() {
        Step::Address { from, .. } => frame_place(&from).map(|_| sizeless(from)),
        _ => None,
    }
}

/// The memory that `insn` may write, as its operand.
fn written_place(insn: &Insn) -> Option<Operand> {
    match insn.operands().next()? {
        place @ Operand::Mem { .. } if !matches!(insn.step(), Step::Compare { .. }) => Some(place),
        _ => None,
    }
}

/// Whether a write to `written` may change the 8 bytes at `place` of the frame.
fn overlap(place: &Operand, written: &Operand) -> bool {
    let Some((base, at)) = frame_place(place) else { return true };
    match (*written, frame_place(written)) {
        (Operand::Mem { size, .. }, Some((other, from))) if other == base => {
            let len = if size == 0 { i64::from(u8::MAX) } else { i64::from(size) };
            from < at.saturating_add(8) && at < from.saturating_add(len)
        }
        // From the other one of the two registers of the frame, or with an index: an array, or anything.
        (Operand::Mem { base: Some(other), .. }, _) => other.is_frame(),
        _ => false,
    }
}

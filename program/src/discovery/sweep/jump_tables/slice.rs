//! The backward walk from an indirect jump: what gives its target, and where the table it reads may stand.

use crate::addr::Va;
use crate::arch::{Insn, Operand, Reg, RegSet, Step};
use crate::discovery::sweep::jump_tables::location::{Location, address_of, sizeless, touches};
use crate::discovery::sweep::jump_tables::reaching::Reaching;
use crate::discovery::sweep::jump_tables::{Shape, entry};
use crate::discovery::sweep::listing::{FlowKind, Listing};
use crate::discovery::sweep::raw::{Context, NOWHERE, Rel, decode_at};
use crate::image::RelocationTo;
use crate::model::Unread;
use std::collections::HashSet;
use std::ops::Range;

/// More than lead to any one jump: gcc gives all computed gotos of a function one jump.
const MAX_DEFS: usize = 1 << 10;

/// A backward walk over the instructions of one region.
pub(super) struct Slice<'a, 'c> {
    pub(super) cx: &'a Context<'c>,
    pub(super) listing: &'a Listing,
    pub(super) range: &'a Range<Rel>,
    pub(super) budget: u32,
    pub(super) how: How<'a>,
    /// Places in the frame that values were read from which came there in a way that is not known.
    pub(super) spilled: Vec<Operand>,
    /// Why a table that was found is not taken.
    pub(super) why: Option<Unread>,
}

/// How registers' constants are looked for.
#[derive(Clone, Copy)]
pub(super) enum How<'a> {
    /// Backwards from where they are used, on some of the ways; whether the region may hold many functions.
    AtFirst { many: bool },
    /// Those that are certain.
    Certain(&'a Reaching),
}

impl<'a> How<'a> {
    /// What is certain, where that is known.
    pub(super) fn certain(self) -> Option<&'a Reaching> {
        match self {
            How::AtFirst { .. } => None,
            How::Certain(reaching) => Some(reaching),
        }
    }
    fn many(self) -> bool {
        matches!(self, How::AtFirst { many: true })
    }
}

/// An instruction that control comes from, and whether by its branch.
#[derive(Clone, Copy)]
pub(super) struct Predecessor {
    pub(super) index: u32,
    pub(super) taken: bool,
}

impl Slice<'_, '_> {
    pub(super) fn insn(&self, index: u32) -> Option<Insn> {
        decode_at(self.cx, self.listing.insns.get(index as usize)?.at)
    }

    pub(super) fn preds(&self, index: u32, into: &mut Vec<Predecessor>) {
        into.clear();
        let insns = &self.listing.insns;
        if let Some(before) = index.checked_sub(1)
            && insns[before as usize].kind.falls_through()
        {
            into.push(Predecessor { index: before, taken: false });
        }
        let at = insns[index as usize].at;
        if self.listing.leaders.get(at) {
            let sources = self.listing.sources_of(at);
            into.extend(sources.iter().map(|&(_, index)| Predecessor { index, taken: true }));
        }
    }

    /// The instructions that give `loc` the value it has before `index`. Copies and spills are followed.
    fn defs(&mut self, index: u32, loc: Location) -> Vec<u32> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut todo = vec![(index, loc)];
        let mut preds = Vec::new();
        while let Some((index, loc)) = todo.pop() {
            self.preds(index, &mut preds);
            if let (true, Location::Mem(slot)) = (preds.is_empty(), loc)
                && !self.spilled.contains(&slot)
            {
                self.spilled.push(slot);
            }
            if preds.len() > 1 && !seen.insert((index, loc)) {
                continue;
            }
            for pred in &preds {
                if self.budget == 0 {
                    return found;
                }
                self.budget -= 1;
                let kind = self.listing.insns[pred.index as usize].kind;
                if pred.taken || kind == FlowKind::Branch || kind == FlowKind::Nop {
                    todo.push((pred.index, loc));
                    continue;
                }
                let Some(insn) = self.insn(pred.index) else { continue };
                match trace(&insn, kind, loc) {
                    Trace::Untouched => todo.push((pred.index, loc)),
                    Trace::From(loc) => todo.push((pred.index, loc)),
                    Trace::Set => found.push(pred.index),
                    Trace::Forgotten | Trace::Moved => {}
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The constants that `reg` may hold before `index`.
    pub(super) fn constants(&mut self, index: u32, reg: Reg) -> Vec<Va> {
        if let Some(reaching) = self.how.certain() {
            return reaching.value(index, Location::Reg(reg)).map(Va).into_iter().collect();
        }
        let mut all = Vec::new();
        self.spilled.clear();
        let defs = self.defs(index, Location::Reg(reg));
        for &def in &defs {
            if let Some(va) = self.insn(def).and_then(|insn| constant(&insn)) {
                all.push(va);
            }
        }
        // Where all that is put there on the ways that were followed is no constant, it is a pointer that the
        // program keeps, as threaded code has one to its operations.
        if defs.is_empty() {
            // Set before an indirect jump that was not followed, as in interpreters: take what is ever put
            // there. Where a region holds many functions, only what was put there last.
            let before = self.listing.bases.partition_point(|&b| b < index);
            let (near, far) = self.listing.bases.split_at(before);
            for &base in near.iter().rev().chain(far).take(if self.how.many() { 64 } else { usize::MAX }) {
                if let Some(insn) = self.insn(base)
                    && insn.writes(reg)
                    && let Some(va) = constant(&insn)
                {
                    all.push(va);
                    if self.how.many() {
                        break;
                    }
                }
            }
            // An interpreter may keep it in its frame.
            if !self.how.many() {
                all.extend(self.spilled.iter().flat_map(|slot| self.spills(*slot)));
            }
        }
        all.sort_unstable();
        all.dedup();
        all.truncate(16);
        all
    }

    /// The constants that are put into `slot` of the frame soon after they are put into a register.
    fn spills(&self, slot: Operand) -> impl Iterator<Item = Va> {
        self.listing.bases.iter().filter_map(move |&base| {
            let set = self.insn(base)?;
            let va = constant(&set)?;
            let (Step::Address { to: reg, .. } | Step::Copy { to: reg, .. }) = set.step() else {
                return None;
            };
            for index in base + 1..base + 32 {
                if !self.listing.insns.get(index as usize - 1)?.kind.falls_through() {
                    return None;
                }
                let insn = self.insn(index)?;
                match insn.step() {
                    Step::Store { to, from } if from == reg && sizeless(to) == slot => return Some(va),
                    _ if insn.writes(reg) || touches(&insn, &slot) => return None,
                    _ => {}
                }
            }
            None
        })
    }

    /// How the jump may read its target. Says whether it looks like reading a table.
    pub(super) fn shapes(&mut self, jump: u32, into: &mut Vec<Shape>) -> bool {
        let Some(insn) = self.insn(jump) else { return false };
        match insn.operands().next() {
            Some(Operand::Reg(reg, _)) => {
                let mut suspicious = false;
                let defs = self.defs(jump, Location::Reg(reg));
                if defs.len() > MAX_DEFS {
                    self.why = Some(Unread::Ways);
                    return true;
                }
                for def in defs {
                    suspicious |= self.shapes_of_def(def, into);
                }
                suspicious
            }
            Some(memory @ (Operand::Place { .. } | Operand::Mem { .. })) => self.absolute(jump, memory, into),
            _ => false,
        }
    }

    fn shapes_of_def(&mut self, def: u32, into: &mut Vec<Shape>) -> bool {
        let Some(insn) = self.insn(def) else { return false };
        match insn.step() {
            Step::Copy {
                from: memory @ (Operand::Place { size: 8, .. } | Operand::Mem { size: 8, .. }),
                ..
            } => self.absolute(def, memory, into),
            // Non-PIE code may keep addresses in 4 bytes.
            Step::Copy {
                from: memory @ (Operand::Place { size: 4, .. } | Operand::Mem { size: 4, .. }),
                ..
            } => match self.load(def, memory) {
                Some((bases, index, factor)) => {
                    into.push(Shape {
                        bases,
                        entry_len: 4,
                        signed: false,
                        relative: false,
                        anchor: None,
                        index,
                        factor,
                    });
                    true
                }
                None => false,
            },
            Step::Add { to, from: Operand::Reg(other, _) } => self.sum(def, to, other, into),
            Step::Address {
                from: Operand::Mem { base: Some(a), index: Some((b, 1)), disp: 0, .. }, ..
            } => self.sum(def, a, b, into),
            _ => false,
        }
    }

    /// A target that is a loaded address.
    fn absolute(&mut self, at: u32, memory: Operand, into: &mut Vec<Shape>) -> bool {
        if let Operand::Place { at: place, index: None, base: None, size: 8, .. } = memory {
            return self.one_entry(place, into);
        }
        let Some((bases, index, factor)) = self.load(at, memory) else { return false };
        let (entry_len, signed, relative, anchor) = (8, false, false, None);
        into.push(Shape { bases, entry_len, signed, relative, anchor, index, factor });
        false
    }

    /// A target that stands at a known place, as compilers write it where they know the index. Where it leads
    /// out of the function, it is a pointer to another one; where it may be written, nobody knows what it
    /// will be.
    fn one_entry(&mut self, place: Va, into: &mut Vec<Shape>) -> bool {
        let (bases, entry_len) = (vec![place], 8);
        let (signed, relative, anchor, index, factor) = (false, false, None, None, 0);
        let shape = Shape { bases, entry_len, signed, relative, anchor, index, factor };
        let to = entry(self.cx, &shape, place, place).map_or(NOWHERE, |to| self.cx.space.rel(to));
        let is_inside = self.range.contains(&to) && to != self.range.start && self.listing.starts.get(to);
        let is_symbol =
            || self.cx.image.relocation_at(place).is_some_and(|r| !matches!(r.to, RelocationTo::Address(_)));
        if self.how.many() || !is_inside || is_symbol() {
            return false;
        }
        if !self.cx.image.is_constant(place) {
            self.why = Some(Unread::Writable);
            return true;
        }
        into.push(shape);
        false
    }

    /// A target that is the sum of a loaded entry and an address.
    fn sum(&mut self, at: u32, a: Reg, b: Reg, into: &mut Vec<Shape>) -> bool {
        let mut any = false;
        for (entry, anchor) in [(a, b), (b, a)] {
            for def in self.defs(at, Location::Reg(entry)).into_iter().take(16) {
                let Some(Step::Copy { to, from, signed }) = self.insn(def).map(|i| i.step()) else {
                    continue;
                };
                let signed = signed || self.is_extended(def, at, to);
                let (Operand::Mem { size, .. } | Operand::Place { size, .. }) = from else { continue };
                if !matches!(size, 1 | 2 | 4) {
                    continue;
                }
                any = true;
                let Some((mut bases, index, factor)) = self.load(def, from) else { continue };
                let mut from = None;
                if self.how.certain().is_some() {
                    bases.retain(|&base| self.cx.image.is_constant(base));
                    from = self.constants(at, anchor).first().copied();
                    if from.is_none() {
                        continue;
                    }
                } else if bases.len() > 1 {
                    let anchors = self.constants(at, anchor);
                    bases.retain(|b| anchors.contains(b));
                }
                let (entry_len, relative, anchor) = (size, true, from);
                into.push(Shape { bases, entry_len, signed, relative, anchor, index, factor });
            }
            if any {
                return true;
            }
        }
        any
    }

    /// The constant part of a memory operand, its index, and the index's factor.
    #[expect(clippy::type_complexity, reason = "three parts of one answer that goes into a Shape")]
    pub(super) fn load(&mut self, at: u32, memory: Operand) -> Option<(Vec<Va>, Option<(Reg, u32)>, u8)> {
        match memory {
            // The only entry that a compiler left to be read.
            Operand::Place { at: place, index: None, base: None, .. } if self.how.certain().is_some() => {
                Some((vec![place], None, 0))
            }
            Operand::Place { at: place, index: Some((reg, factor)), base: None, .. } => {
                Some((vec![place], Some((reg, at)), factor))
            }
            Operand::Place { at: place, index: None, base: Some(reg), .. } => {
                Some((vec![place], Some((reg, at)), 1))
            }
            Operand::Mem { base: Some(base), index: Some((index, factor)), disp, segment: None, .. } => {
                let shift = |bases: Vec<Va>| -> Vec<Va> {
                    bases.into_iter().map(|b| b.plus(disp.cast_unsigned())).collect()
                };
                if factor == 1
                    && let Some((anchor, index, factor, plus)) = self.scaled(at, base, index)
                {
                    let disp = disp.wrapping_add(plus).cast_unsigned();
                    let bases: Vec<Va> =
                        self.constants(at, anchor).into_iter().map(|b| b.plus(disp)).collect();
                    return (!bases.is_empty()).then_some((bases, Some(index), factor));
                }
                let bases = self.constants(at, base);
                if bases.is_empty() && factor == 1 {
                    let bases = self.constants(at, index);
                    return (!bases.is_empty()).then(|| (shift(bases), Some((base, at)), 1));
                }
                (!bases.is_empty()).then(|| (shift(bases), Some((index, at)), factor))
            }
            // The address of the entry was computed before.
            Operand::Mem { base: Some(base), index: None, disp: 0, segment: None, .. } => {
                let defs = self.defs(at, Location::Reg(base));
                let [def] = defs.as_slice() else { return None };
                match self.insn(*def)?.step() {
                    Step::Address { from: from @ Operand::Mem { index: Some(_), .. }, .. }
                    | Step::Address { from: from @ Operand::Place { index: Some(_), .. }, .. } => {
                        self.load(*def, from)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Of two registers that are added at `at`, where one is an index multiplied before (`lea
    /// 0(,%rax,4),%rdx`, as gcc writes it without optimisation): the other register, the index with the
    /// instruction that multiplies it, the factor, and what that instruction adds.
    fn scaled(&mut self, at: u32, a: Reg, b: Reg) -> Option<(Reg, (Reg, u32), u8, i64)> {
        for (product, anchor) in [(a, b), (b, a)] {
            let defs = self.defs(at, Location::Reg(product));
            let [def] = defs.as_slice() else { continue };
            if let Some(Step::Address {
                from: Operand::Mem { base: None, index: Some((index, factor)), disp, segment: None, .. },
                ..
            }) = self.insn(*def).map(|insn| insn.step())
            {
                return Some((anchor, (index, *def), factor, disp));
            }
        }
        None
    }

    /// Whether the sign of the value that `from` loads into `reg` is spread before `to`, which follows it
    /// without a jump between.
    fn is_extended(&self, from: u32, to: u32, reg: Reg) -> bool {
        let extends = |step: Step| match step {
            Step::Copy { from: Operand::Reg(from, 4), signed: true, .. } => from == reg,
            _ => false,
        };
        (from + 1..to).take(8).any(|i| self.insn(i).is_some_and(|insn| extends(insn.step())))
    }
}

/// What an instruction does to a value that is followed backwards.
pub(super) enum Trace {
    Untouched,
    /// It was here before.
    From(Location),
    Set,
    /// A call forgets it: whatever reads it afterwards cannot come from here.
    Forgotten,
    /// The address it is kept at is another one from here on: what it holds is not known.
    Moved,
}

pub(super) fn trace(insn: &Insn, kind: FlowKind, loc: Location) -> Trace {
    match loc {
        Location::Reg(reg) => {
            if matches!(kind, FlowKind::Call | FlowKind::CallIndirect) {
                return if RegSet::lost_at_calls().contains(reg) {
                    Trace::Forgotten
                } else {
                    Trace::Untouched
                };
            }
            if !insn.writes(reg) {
                return Trace::Untouched;
            }
            match insn.step() {
                Step::Copy { to, from: Operand::Reg(from, _), .. } if to == reg => {
                    Trace::From(Location::Reg(from))
                }
                Step::Copy {
                    to, from: from @ Operand::Mem { base: Some(base), index: None, .. }, ..
                } if to == reg && base.is_frame() => Trace::From(Location::Mem(sizeless(from))),
                _ => Trace::Set,
            }
        }
        Location::Mem(memory) if matches!(kind, FlowKind::Call | FlowKind::CallIndirect) => {
            let lost = address_of(&memory).any(|reg| RegSet::lost_at_calls().contains(reg));
            if lost { Trace::Forgotten } else { Trace::Untouched }
        }
        Location::Mem(memory) => match insn.step() {
            Step::Store { to, from } if sizeless(to) == memory => Trace::From(Location::Reg(from)),
            _ if touches(insn, &memory) => Trace::Moved,
            _ => Trace::Untouched,
        },
    }
}

/// The constant an instruction puts into a register.
fn constant(insn: &Insn) -> Option<Va> {
    match insn.step() {
        Step::Address { from: Operand::Place { at, index: None, base: None, .. }, .. } => Some(at),
        Step::Copy { from: Operand::Imm(n), .. } => Some(Va(n.cast_unsigned())),
        _ => None,
    }
}

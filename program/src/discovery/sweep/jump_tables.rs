//! Jump tables and tables of labels: from an indirect jump back to the table it reads.
//!
//! A jump is sliced backwards to the load of an entry, from there to the table's address (a constant put into
//! a register, perhaps in the prologue, perhaps spilled), and to the comparison, mask or width that bounds
//! the index. Where nothing bounds it (clang leaves the check out when the default cannot happen), the table
//! ends before the next address that anything refers to, and at the first entry that leads to no instruction
//! of this function.
//!
//! Invariant: every entry of an unbounded table leads to an instruction of its function; an indirect jump
//! that reads no table leaves the function (a tail call through a vtable or a slot).
//!
//! Source: C. Cifuentes, M. Van Emmerik, "Recovery of jump table case statements from binary code", 1999, for
//! the slice.

use crate::addr::Va;
use crate::arch::{Insn, Operand, Reg, RegSet, Step, Test};
use crate::discovery::sweep::listing::{FlowKind, Listing};
use crate::discovery::sweep::raw::{Context, NOWHERE, RawTable, Rel, Swept, decode_at};
use crate::image::RelocationTo;
use crate::model::Sure;
use std::collections::HashSet;
use std::ops::Range;

/// How an indirect jump was understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// It reads a table, now in the list.
    Table,
    /// It reads a table that was not understood.
    Unresolved,
    /// It leaves the function.
    Out,
}

/// Instructions looked at for one question.
const BUDGET: u32 = 3000;
/// More than lead to any one jump: gcc gives all computed gotos of a function one jump.
const MAX_DEFS: usize = 1 << 10;
/// More entries than any compiler writes.
const MAX_ENTRIES: u64 = 1 << 16;

/// Something that holds a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Location {
    Reg(Reg),
    Mem(Operand),
}

/// A way of reading an entry.
#[derive(Clone, Debug)]
struct Shape {
    /// Where tables may start: several, where code for several switches shares the jump.
    bases: Vec<Va>,
    entry_len: u8,
    signed: bool,
    /// Whether entries count from the table's address, or are addresses.
    relative: bool,
    /// What holds the index, and the instruction that uses it; `None` if one entry is always read.
    index: Option<(Reg, u32)>,
    /// Bytes the index is multiplied by.
    factor: u8,
}

/// Finds the tables of the jump at index `jump`, and appends them to `out`; their targets become leaders.
///
/// `named` are the positions in `out.data_refs` of what this region refers to.
pub fn resolve(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    jump: u32,
    out: &mut Swept,
    named: Range<usize>,
    many: bool,
) -> Resolved {
    listing.make_sources();
    let at = listing.insns[jump as usize].at;
    let mut slice = Slice { cx, listing, range, budget: BUDGET, many, spilled: Vec::new() };
    let mut shapes = Vec::new();
    let suspicious = slice.shapes(jump, &mut shapes);
    let mut found = Vec::new();
    let mut bounds = Vec::new();
    for shape in &shapes {
        slice.budget = BUDGET;
        bounds.push(shape.index.map_or(Some(0), |(reg, at)| slice.bound(at, reg)));
    }
    for (shape, bound) in shapes.iter().zip(bounds) {
        for &base in &shape.bases {
            if let Some(mut table) =
                read(cx, listing, range, shape, base, bound, &out.data_refs[named.clone()])
            {
                table.jump = at;
                found.push(table);
            }
        }
    }
    found.sort_by_key(|t| t.at);
    found.dedup_by_key(|t| t.at);
    for table in &found {
        for &to in &table.targets {
            if range.contains(&to) && listing.starts.get(to) {
                listing.leaders.set(to);
            }
        }
    }
    if !found.is_empty() {
        out.tables.append(&mut found);
        Resolved::Table
    } else if suspicious {
        Resolved::Unresolved
    } else {
        Resolved::Out
    }
}

/// Reads a table's entries; `None` if they are none.
fn read(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    shape: &Shape,
    base: Va,
    bound: Option<u64>,
    named: &[Rel],
) -> Option<RawTable> {
    let step = u64::from(shape.entry_len);
    if shape.factor != 0 && shape.factor != shape.entry_len {
        return None;
    }
    let from = cx.space.rel(base);
    if from == NOWHERE || cx.image.segment_at(base).is_none() {
        return None;
    }
    let room = (u64::from(listing.next_ref(cx, from, named)) - u64::from(from)).div_ceil(step);
    let count = |limit: u64| {
        let mut targets: Vec<Rel> = Vec::new();
        let mut own = 0;
        for n in 0..limit.min(MAX_ENTRIES) {
            let at = base.plus(n * step);
            let Some(target) = entry(cx, shape, base, at) else { break };
            let to = cx.space.rel(target);
            let inside = range.contains(&to) && listing.starts.get(to);
            let part = !inside && cx.in_part(to);
            let out = bound.is_some() && n < room && cx.is_code(to) && !range.contains(&to);
            // One past the end: what clang writes where the default cannot happen.
            if !(inside || part || to == range.end || out) {
                break;
            }
            // Who leads to the function's start, and else only to others, calls: a table of functions, this
            // one among them.
            own += u32::from(inside && to != range.start);
            targets.push(to);
        }
        (targets, own)
    };
    let whole = |targets: &[Rel]| bound.is_some_and(|n| n.saturating_add(1) == targets.len() as u64);
    // A reference into the middle of a checked table is another one's base with an offset; but a check may be
    // of something else.
    let (mut targets, mut own) = count(bound.map_or(room, |n| n.saturating_add(1)));
    if bound.is_some() && targets.len() as u64 > room && !whole(&targets) {
        (targets, own) = count(room);
    }
    if bound.is_none() {
        while targets.last().is_some_and(|&t| t == range.end) {
            targets.pop();
        }
    }
    let whole = whole(&targets);
    // A switch in a cold part may lead to nothing but the hot one; not to the starts of functions, as a table
    // of those does.
    let leads_in = || targets.iter().any(|&to| !is_start(cx, to));
    if own == 0 && !(whole && cx.in_part(range.start) && leads_in()) {
        return None;
    }
    Some(RawTable {
        at: base,
        entry_len: shape.entry_len,
        jump: 0,
        targets: targets.into(),
        sure: if whole { Sure::Proved } else { Sure::Likely },
    })
}

/// Whether a function that unwinders know starts at `to`.
fn is_start(cx: &Context<'_>, to: Rel) -> bool {
    let (at, unwind) = (cx.space.va(to), &cx.image.unwind);
    unwind.binary_search_by_key(&at, |u| u.range.start).is_ok_and(|i| unwind[i].at_entry)
}

/// Where the entry at `at` leads.
fn entry(cx: &Context<'_>, shape: &Shape, base: Va, at: Va) -> Option<Va> {
    let bytes = cx.image.bytes_in(&(at..at.plus(u64::from(shape.entry_len))))?;
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(word);
    let above = 64 - 8 * u32::from(shape.entry_len.min(8));
    let value = match shape.signed {
        true => ((value << above).cast_signed() >> above).cast_unsigned(),
        false => value,
    };
    if shape.relative {
        return Some(base.plus(value));
    }
    if cx.image.kind.is_relocated() && shape.entry_len == 8 {
        return match cx.image.relocation_at(at)?.to {
            RelocationTo::Address(to) => Some(to),
            _ => None,
        };
    }
    Some(Va(value))
}

/// A backward walk over the instructions of one region.
struct Slice<'a, 'c> {
    cx: &'a Context<'c>,
    listing: &'a Listing,
    range: &'a Range<Rel>,
    budget: u32,
    /// Whether the region may hold many functions.
    many: bool,
    /// Places in the frame that values were read from which came there in a way that is not known.
    spilled: Vec<Operand>,
}

/// An instruction that control comes from, and whether by its branch.
#[derive(Clone, Copy)]
struct Predecessor {
    index: u32,
    taken: bool,
}

impl Slice<'_, '_> {
    fn insn(&self, index: u32) -> Option<Insn> {
        decode_at(self.cx, self.listing.insns.get(index as usize)?.at)
    }

    fn preds(&self, index: u32, into: &mut Vec<Predecessor>) {
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
    fn constants(&mut self, index: u32, reg: Reg) -> Vec<Va> {
        let mut all = Vec::new();
        self.spilled.clear();
        for def in self.defs(index, Location::Reg(reg)) {
            if let Some(va) = self.insn(def).and_then(|insn| constant(&insn)) {
                all.push(va);
            }
        }
        if all.is_empty() {
            // Set before an indirect jump that was not followed, as in interpreters: take what is ever put
            // there. Where a region holds many functions, only what was put there last.
            let before = self.listing.bases.partition_point(|&b| b < index);
            let (near, far) = self.listing.bases.split_at(before);
            for &base in near.iter().rev().chain(far).take(if self.many { 64 } else { usize::MAX }) {
                if let Some(insn) = self.insn(base)
                    && insn.writes(reg)
                    && let Some(va) = constant(&insn)
                {
                    all.push(va);
                    if self.many {
                        break;
                    }
                }
            }
            // An interpreter may keep it in its frame.
            if !self.many {
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
    fn shapes(&mut self, jump: u32, into: &mut Vec<Shape>) -> bool {
        let Some(insn) = self.insn(jump) else { return false };
        match insn.operands().next() {
            Some(Operand::Reg(reg, _)) => {
                let mut suspicious = false;
                let defs = self.defs(jump, Location::Reg(reg));
                if defs.len() > MAX_DEFS {
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
                    into.push(Shape { bases, entry_len: 4, signed: false, relative: false, index, factor });
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
        into.push(Shape { bases, entry_len: 8, signed: false, relative: false, index, factor });
        false
    }

    /// A target that stands at a known place, as compilers write it where they know the index. Where it leads
    /// out of the function, it is a pointer to another one; where it may be written, nobody knows what it
    /// will be.
    fn one_entry(&mut self, place: Va, into: &mut Vec<Shape>) -> bool {
        let (bases, entry_len) = (vec![place], 8);
        let shape = Shape { bases, entry_len, signed: false, relative: false, index: None, factor: 0 };
        let to = entry(self.cx, &shape, place, place).map_or(NOWHERE, |to| self.cx.space.rel(to));
        let is_inside = self.range.contains(&to) && to != self.range.start && self.listing.starts.get(to);
        let is_symbol =
            || self.cx.image.relocation_at(place).is_some_and(|r| !matches!(r.to, RelocationTo::Address(_)));
        if self.many || !is_inside || is_symbol() {
            return false;
        }
        if !self.cx.image.is_constant(place) {
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
                if bases.len() > 1 {
                    let anchors = self.constants(at, anchor);
                    bases.retain(|b| anchors.contains(b));
                }
                into.push(Shape { bases, entry_len: size, signed, relative: true, index, factor });
            }
            if any {
                return true;
            }
        }
        any
    }

    /// The constant part of a memory operand, its index, and the index's factor.
    #[expect(clippy::type_complexity, reason = "three parts of one answer that goes into a Shape")]
    fn load(&mut self, at: u32, memory: Operand) -> Option<(Vec<Va>, Option<(Reg, u32)>, u8)> {
        match memory {
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

    /// The largest value that `reg` can have before `index`, if all ways there are checked.
    fn bound(&mut self, index: u32, reg: Reg) -> Option<u64> {
        let mut largest = None;
        let mut seen = HashSet::new();
        let mut todo = vec![Walk { index, loc: Location::Reg(reg), plus: 0, known: Vec::new() }];
        let mut preds = Vec::new();
        while let Some(walk) = todo.pop() {
            self.preds(walk.index, &mut preds);
            if preds.is_empty() {
                return None;
            }
            if preds.len() > 1 && !seen.insert((walk.index, walk.loc, walk.plus)) {
                continue;
            }
            for &pred in &preds {
                self.budget = self.budget.checked_sub(1)?;
                let mut next = Walk { index: pred.index, known: walk.known.clone(), ..walk };
                match self.step_back(pred, &mut next) {
                    Back::On => todo.push(next),
                    Back::Bounded(n) => largest = largest.max(Some(n)),
                    Back::Dead => {}
                    Back::Lost => return None,
                }
            }
        }
        largest.filter(|&n| n < MAX_ENTRIES)
    }

    fn step_back(&self, pred: Predecessor, walk: &mut Walk) -> Back {
        let kind = self.listing.insns[pred.index as usize].kind;
        match kind {
            FlowKind::Nop | FlowKind::Jump => return Back::On,
            FlowKind::Branch => {
                if let Some((loc, n)) = self.condition(pred) {
                    if loc == walk.loc {
                        return Back::bounded(n, walk.plus);
                    }
                    walk.known.push((loc, n));
                }
                return Back::On;
            }
            _ => {}
        }
        let Some(insn) = self.insn(pred.index) else { return Back::Lost };
        let step = insn.step();
        if let (Step::And { to, mask }, Location::Reg(reg)) = (step, walk.loc)
            && to == reg
        {
            return if mask < MAX_ENTRIES { Back::bounded(mask, walk.plus) } else { Back::Lost };
        }
        if let (Step::ShiftRight { to, by, bits }, Location::Reg(reg)) = (step, walk.loc)
            && to == reg
        {
            let left = bits.saturating_sub(by);
            return if left <= 8 { Back::bounded((1 << left) - 1, walk.plus) } else { Back::Lost };
        }
        let plain = match (step, walk.loc) {
            (Step::Add { to, from: Operand::Imm(n) }, Location::Reg(reg)) if to == reg => Some((reg, n)),
            (
                Step::Address {
                    to,
                    from: Operand::Mem { base: Some(base), index: None, disp, segment: None, .. },
                },
                Location::Reg(reg),
            ) if to == reg => Some((base, disp)),
            _ => None,
        };
        let moved = match plain {
            Some((from, n)) => {
                walk.plus = walk.plus.wrapping_add(n);
                Trace::From(Location::Reg(from))
            }
            None => match trace(&insn, kind, walk.loc) {
                Trace::Set => match step {
                    // The place it was loaded from may have been compared.
                    Step::Copy { from: from @ (Operand::Mem { .. } | Operand::Place { .. }), .. } => {
                        Trace::From(Location::Mem(sizeless(from)))
                    }
                    _ => Trace::Set,
                },
                other => other,
            },
        };
        let stores = matches!(step, Step::Store { .. });
        walk.known.retain(|(loc, _)| match loc {
            Location::Reg(reg) => !insn.writes(*reg),
            Location::Mem(memory) => !stores && !touches(&insn, memory),
        });
        match moved {
            Trace::Untouched => Back::On,
            Trace::From(loc) => {
                walk.loc = loc;
                match walk.known.iter().find(|(l, _)| *l == loc) {
                    Some(&(_, n)) => Back::bounded(n, walk.plus),
                    None => Back::On,
                }
            }
            Trace::Set | Trace::Moved => Back::Lost,
            // Nothing comes back from here with the value: the call does not return.
            Trace::Forgotten => Back::Dead,
        }
    }

    /// What holds when control goes along `pred` out of a branch: the place compared, and the most it can be.
    fn condition(&self, pred: Predecessor) -> Option<(Location, u64)> {
        let test = self.insn(pred.index)?.test();
        let mut at = pred.index;
        let compare = loop {
            at = at.checked_sub(1)?;
            let kind = self.listing.insns[at as usize].kind;
            if !matches!(kind, FlowKind::Next | FlowKind::Nop) && kind != FlowKind::Branch {
                return None;
            }
            let insn = self.insn(at)?;
            if insn.sets_flags() {
                break insn;
            }
            // Moves between the comparison and the branch must leave the compared place alone.
        };
        let Step::Compare { left, right: Operand::Imm(n) } = compare.step() else { return None };
        let n = u64::try_from(n).ok()?;
        let loc = match left {
            Operand::Reg(reg, _) => Location::Reg(reg),
            Operand::Mem { .. } | Operand::Place { .. } => Location::Mem(sizeless(left)),
            _ => return None,
        };
        for between in at + 1..pred.index {
            if let Location::Reg(reg) = loc
                && self.insn(between)?.writes(reg)
            {
                return None;
            }
        }
        match (test, pred.taken) {
            (Test::Above, false) | (Test::BelowOrEqual, true) => Some((loc, n)),
            (Test::AboveOrEqual, false) | (Test::Below, true) => Some((loc, n.checked_sub(1)?)),
            _ => None,
        }
    }
}

/// A value followed backwards.
#[derive(Clone)]
struct Walk {
    index: u32,
    loc: Location,
    /// The value is what `loc` holds plus this.
    plus: i64,
    /// Bounds met on the way that hold for places as they are here.
    known: Vec<(Location, u64)>,
}

/// Where a step back leads.
enum Back {
    On,
    Bounded(u64),
    /// Control cannot have come this way.
    Dead,
    Lost,
}

impl Back {
    fn bounded(n: u64, plus: i64) -> Back {
        match n.checked_add_signed(plus) {
            Some(n) => Back::Bounded(n),
            None => Back::Lost,
        }
    }
}

/// What an instruction does to a value that is followed backwards.
enum Trace {
    Untouched,
    /// It was here before.
    From(Location),
    Set,
    /// A call forgets it: whatever reads it afterwards cannot come from here.
    Forgotten,
    /// The address it is kept at is another one from here on: what it holds is not known.
    Moved,
}

fn trace(insn: &Insn, kind: FlowKind, loc: Location) -> Trace {
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

/// The registers that the address of `memory` is made of.
fn address_of(memory: &Operand) -> impl Iterator<Item = Reg> + use<> {
    let (base, index) = match *memory {
        Operand::Mem { base, index, .. } | Operand::Place { base, index, .. } => (base, index.map(|i| i.0)),
        _ => (None, None),
    };
    [base, index].into_iter().flatten()
}

/// Whether `insn` changes a register that the address of `memory` is made of.
fn touches(insn: &Insn, memory: &Operand) -> bool {
    address_of(memory).any(|reg| insn.writes(reg))
}

/// The operand with its width left out: a byte of a place that was compared is loaded as a word.
fn sizeless(operand: Operand) -> Operand {
    match operand {
        Operand::Mem { base, index, disp, segment, .. } => {
            Operand::Mem { base, index, disp, segment, size: 0 }
        }
        Operand::Place { at, index, base, .. } => Operand::Place { at, index, base, size: 0 },
        other => other,
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

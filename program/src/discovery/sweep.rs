//! Linear decoding of one region of code to raw blocks, calls, and references: the only full decoding of the
//! file.
//!
//! Invariant: a raw block knows nothing of functions. Blocks start at the region's start, after what ends a
//! block, and where a jump, a table or a landing pad of the region leads; padding that nothing leads to is in
//! none.
//!
//! Not here: who owns the blocks (`partition`, `gaps`), what crosses regions (`discovery`).

mod jump_tables;
pub mod listing;
pub mod raw;

use crate::addr::Va;
use crate::arch::PositionDependence;
use crate::arch::{ControlFlow, Decoder, Insn, LOCK, Operand, Quick};
use crate::discovery::sweep::jump_tables::Resolved;
use crate::discovery::sweep::listing::{FlowKind, ListedInsn, Listing};
use crate::discovery::sweep::raw::{
    Context, DataRef, NOWHERE, RawBlock, RawCall, RawEnd, Reference, Region, RegionKind, Rel, Swept,
    Transfer, decode_at,
};
use crate::model::Unread;
use std::ops::Range;

/// Room for the work on one region, used again for the next.
#[derive(Default)]
pub struct Sweeper {
    listing: Listing,
    /// Indirect jumps, by their instruction's index.
    jumps: Vec<u32>,
    /// Those that are not understood, and why.
    left: Vec<(u32, Unread)>,
    /// Where instructions start for certain, where the sweep fell out of step.
    sync: Vec<Rel>,
}

impl Sweeper {
    /// Sweeps `region` and appends what it finds to `out`.
    pub fn sweep(&mut self, cx: &Context<'_>, region: &Region, out: &mut Swept) {
        let range = region.range.clone();
        let va = cx.space.va(range.start)..cx.space.va(range.end);
        let Some(bytes) = cx.image.bytes_in(&va) else { return };
        let (code_refs, data_refs) = (out.code_refs.len(), out.data_refs.len());
        let (calls, broken, overlaps) = (out.calls.len(), out.broken.len(), out.overlaps.len());
        let (marks, rooted, tables) = (out.marks.len(), out.fixed.len(), out.tables.len());
        self.sync.clear();
        loop {
            self.decode(cx, region, bytes, out);
            let retry = out.broken.len() > broken && self.sync.is_empty();
            self.mark_leaders(cx, &range, out);
            if !retry || out.overlaps.len() == overlaps {
                break;
            }
            // Bytes that are no code threw the sweep out of step: jumps tell where instructions start.
            self.sync = out.overlaps.split_off(overlaps);
            self.sync.sort_unstable();
            self.sync.dedup();
            out.code_refs.truncate(code_refs);
            out.data_refs.truncate(data_refs);
            out.marks.truncate(marks);
            out.fixed.truncate(rooted);
            out.calls.truncate(calls);
            out.broken.truncate(broken);
        }
        self.listing.forget_derived();
        let many = region.kind == RegionKind::Gap;
        let refs = data_refs..out.data_refs.len();
        self.left.clear();
        for k in 0..self.jumps.len() {
            let i = self.jumps[k];
            let jump = self.listing.insns[i as usize];
            let resolved = jump_tables::resolve(cx, &mut self.listing, &range, i, out, refs.clone(), many);
            match resolved {
                Resolved::Table => self.listing.insns[i as usize].target = 0,
                Resolved::Unresolved(why) => self.left.push((i, why)),
                Resolved::Out => {
                    let slot = decode_at(cx, jump.at).and_then(|insn| slot(cx, &insn));
                    let transfer = if slot.is_some() { Transfer::JumpSlot } else { Transfer::JumpIndirect };
                    out.calls.push(RawCall {
                        at: jump.at,
                        target: slot.unwrap_or(NOWHERE),
                        len: jump.len,
                        transfer,
                    });
                }
            }
        }
        if cx.is_again && !many && !self.left.is_empty() {
            let jumps: Vec<u32> = self.left.iter().map(|l| l.0).collect();
            jumps.iter().for_each(|&i| self.listing.insns[i as usize].target = 0);
            self.left = jump_tables::resolve_rest(cx, &mut self.listing, &range, jumps, out, refs, tables);
        }
        out.left += if many { 0 } else { self.left.len() };
        for &(i, why) in &self.left {
            self.listing.insns[i as usize].target = 1 + why as u32;
        }
        if !self.jumps.is_empty() {
            out.calls[calls..].sort_unstable_by_key(|c| c.at);
        }
        self.blocks(region, out);
    }

    fn decode(&mut self, cx: &Context<'_>, region: &Region, bytes: &[u8], out: &mut Swept) {
        let range = &region.range;
        let fixed = !cx.image.kind.is_relocated();
        self.listing.clear(range);
        self.jumps.clear();
        let mut sync = 0;
        let mut decoder = Decoder::new(bytes, cx.space.va(range.start));
        let mut at = range.start;
        loop {
            if let Some(to) = self.zeros(region, bytes, at) {
                self.listing.insns.push(ListedInsn { at, target: NOWHERE, len: 1, kind: FlowKind::Invalid });
                at = to;
                decoder = Decoder::new(&bytes[(at - range.start) as usize..], cx.space.va(at));
            }
            if self.sync.is_empty()
                && let Some(quick) = decoder.quick()
                && !(fixed && quick.is_wide)
            {
                decoder.pass(&quick);
                self.push_quick(cx, &quick, at, out);
                at += Rel::from(quick.len);
                continue;
            }
            if self.sync.is_empty()
                && let Some(len) = decoder.pass_nop()
            {
                self.listing.push(ListedInsn { at, target: NOWHERE, len, kind: FlowKind::Nop });
                at += Rel::from(len);
                continue;
            }
            let Some(insn) = decoder.next() else { break };
            let mut len = u8::try_from(insn.len_bytes()).unwrap_or(15);
            let (mut kind, target) = FlowKind::of(&insn);
            if self.sync.get(sync).is_some_and(|&s| s <= at) {
                sync += 1;
            }
            if let Some(&s) = self.sync.get(sync)
                && s < at + Rel::from(len)
                && s > at
            {
                len = u8::try_from(s - at).unwrap_or(1);
                kind = FlowKind::Invalid;
                let skip = (s - range.start) as usize;
                decoder = Decoder::new(&bytes[skip..], cx.space.va(s));
            }
            let target = target.map_or(NOWHERE, |t| cx.space.rel(t));
            let listed = ListedInsn { at, target, len, kind };
            self.note_flow(cx, &insn, listed, fixed, out);
            if !matches!(kind, FlowKind::Nop | FlowKind::Invalid) {
                let from = (at - range.start) as usize;
                let own = bytes.get(from..from + usize::from(len)).unwrap_or_default();
                if decoder.position_of(&insn, own) == PositionDependence::Fixed {
                    out.fixed.push(at);
                }
                for (to, size) in insn.refers_to(fixed).into_iter().flatten() {
                    self.mark(cx, to, at, size, out);
                }
            }
            self.listing.push(listed);
            at += Rel::from(len);
        }
    }

    /// Adds the instruction at `at`, which is of a common form.
    #[inline]
    fn push_quick(&mut self, cx: &Context<'_>, quick: &Quick, at: Rel, out: &mut Swept) {
        if let Some(place) = quick.place(cx.space.va(at)) {
            self.refer(cx, place, at, quick.size == 0, out);
            self.mark(cx, place, at, quick.size, out);
        }
        let (kind, target) = match quick.flow {
            ControlFlow::Jump(to) => (FlowKind::Jump, cx.space.rel(to)),
            ControlFlow::Branch(to) => (FlowKind::Branch, cx.space.rel(to)),
            ControlFlow::Call(to) => (FlowKind::Call, cx.space.rel(to)),
            ControlFlow::Return => (FlowKind::Return, NOWHERE),
            _ => (FlowKind::Next, NOWHERE),
        };
        if kind == FlowKind::Call {
            out.calls.push(RawCall { at, target, len: quick.len, transfer: Transfer::Direct });
        }
        self.listing.push(ListedInsn { at, target, len: quick.len, kind });
    }

    /// Notes what `insn`, the next of the listing, calls, jumps to through memory, or names. `fixed` is
    /// whether constants may be addresses.
    #[inline]
    fn note_flow(&mut self, cx: &Context<'_>, insn: &Insn, listed: ListedInsn, fixed: bool, out: &mut Swept) {
        let ListedInsn { at, target, len, kind } = listed;
        let place = || if fixed { insn.place() } else { insn.relative_place() };
        match kind {
            FlowKind::Next => {
                if let Some(place) = place() {
                    self.refer(cx, place, at, insn.makes_address(), out);
                }
                if fixed && let Some(place) = insn.wide_immediate() {
                    self.refer(cx, place, at, insn.makes_address(), out);
                }
            }
            FlowKind::Call => out.calls.push(RawCall { at, target, len, transfer: Transfer::Direct }),
            FlowKind::CallIndirect => {
                let slot = slot(cx, insn);
                let transfer = if slot.is_some() { Transfer::Slot } else { Transfer::Indirect };
                out.calls.push(RawCall { at, target: slot.unwrap_or(NOWHERE), len, transfer });
            }
            FlowKind::JumpIndirect => {
                self.jumps.push(self.next_index());
                if let Some(place) = place() {
                    self.refer(cx, place, at, insn.makes_address(), out);
                }
            }
            FlowKind::Invalid => match out.broken.last_mut() {
                Some(last) if last.end == at => last.end = at + Rel::from(len),
                _ => out.broken.push(at..at + Rel::from(len)),
            },
            _ => {}
        }
    }

    /// The index that the next instruction of the listing gets.
    fn next_index(&self) -> u32 {
        u32::try_from(self.listing.insns.len()).unwrap_or(u32::MAX)
    }

    /// The end of a run of zeros at `at`, where nothing runs into it: some compilers and linkers fill space
    /// so. Only in gaps: what unwind tables or symbols claim is code, whatever it looks like.
    fn zeros(&self, region: &Region, bytes: &[u8], at: Rel) -> Option<Rel> {
        let last = self.listing.insns.last()?;
        if region.kind != RegionKind::Gap || last.kind.falls_through() || last.kind == FlowKind::Invalid {
            return None;
        }
        let rest = bytes.get((at - region.range.start) as usize..)?;
        let named =
            self.sync.get(self.sync.partition_point(|&s| s < at)).map_or(usize::MAX, |&s| (s - at) as usize);
        let n = rest.iter().take(named).take_while(|&&b| b == 0).count();
        let to = at + Rel::try_from(n).ok()?;
        (n > 1 || n == 1 && to.is_multiple_of(16)).then_some(to)
    }

    /// Notes that the next instruction, at `from`, names `place`; whether it puts that address into a
    /// register.
    fn refer(&mut self, cx: &Context<'_>, place: Va, from: Rel, is_made: bool, out: &mut Swept) {
        let to = cx.space.rel(place);
        if to == NOWHERE {
            return;
        }
        if cx.is_code(to) {
            out.code_refs.push(Reference { to, from });
        } else if cx.image.segment_at(place).is_some() {
            out.data_refs.push(to);
            if is_made {
                self.listing.bases.push(self.next_index());
            }
        }
    }

    /// Notes that the instruction at `from` accesses `size` bytes at `place`.
    fn mark(&self, cx: &Context<'_>, place: Va, from: Rel, size: u8, out: &mut Swept) {
        let to = cx.space.rel(place);
        if to != NOWHERE && cx.image.segment_at(place).is_some() {
            out.marks.push(DataRef { to, from, size });
        }
    }

    fn mark_leaders(&mut self, cx: &Context<'_>, range: &Range<Rel>, out: &mut Swept) {
        self.listing.leaders.reset(range);
        for insn in &mut self.listing.insns {
            if matches!(insn.kind, FlowKind::Jump | FlowKind::Branch) && range.contains(&insn.target) {
                let lock = insn.target.wrapping_sub(1);
                if self.listing.starts.get(insn.target) {
                    self.listing.leaders.set(insn.target);
                } else if self.listing.starts.get(lock) && is_locked(cx, lock) {
                    // To the same instruction, not atomic: one block.
                    insn.target = lock;
                    self.listing.leaders.set(lock);
                } else {
                    out.overlaps.push(insn.target);
                }
            }
        }
        let pads = cx.pads.partition_point(|&p| p < range.start);
        for &pad in cx.pads[pads..].iter().take_while(|&&p| p < range.end) {
            if self.listing.starts.get(pad) {
                self.listing.leaders.set(pad);
            }
        }
    }

    /// Cuts the instructions into blocks.
    fn blocks(&self, region: &Region, out: &mut Swept) {
        let insns = self.listing.insns.as_slice();
        let starts_here = region.kind != RegionKind::Gap;
        // gcc starts a cold part with a no-operation when a landing pad comes first: at offset 0 it would
        // count as none. It is a block of its own, until it is known whether anything leads there.
        let part = region.kind == RegionKind::Unwind { at_entry: false };
        let mut fallen_into = false;
        let mut i = 0;
        while let Some(first) = insns.get(i) {
            let entered = self.listing.leaders.get(first.at) || starts_here && i == 0;
            let skip = match first.kind {
                FlowKind::Invalid => true,
                FlowKind::Nop => !entered,
                FlowKind::Trap => !entered && !fallen_into,
                _ => false,
            };
            if skip {
                fallen_into &= first.kind == FlowKind::Nop;
                i += 1;
                continue;
            }
            let from = i;
            let mut broken = false;
            let alone = part && i == 0 && first.kind == FlowKind::Nop;
            while !insns[i].kind.ends_block() {
                match insns.get(i + 1) {
                    Some(next) if next.kind == FlowKind::Invalid => broken = true,
                    Some(next) if alone && next.kind != FlowKind::Nop => {}
                    Some(next) if !self.listing.leaders.get(next.at) => {
                        i += 1;
                        continue;
                    }
                    _ => {}
                }
                break;
            }
            i += 1;
            fallen_into = insns[i - 1].kind.falls_through();
            // Padding before the next block is in neither.
            let mut to = i;
            while to > from + 1 && insns[to - 1].kind == FlowKind::Nop {
                to -= 1;
            }
            let to = if insns[from..to].iter().all(|i| i.kind == FlowKind::Nop) { i } else { to };
            self.push_block(&insns[from..to], broken, entered, out);
        }
    }

    fn push_block(&self, insns: &[ListedInsn], broken: bool, targeted: bool, out: &mut Swept) {
        let (Some(first), Some(last)) = (insns.first(), insns.last()) else { return };
        let end = match last.kind {
            _ if broken => RawEnd::Broken,
            FlowKind::Next | FlowKind::Nop | FlowKind::Call | FlowKind::CallIndirect => RawEnd::FallThrough,
            FlowKind::Jump => RawEnd::Jump,
            FlowKind::Branch => RawEnd::Branch,
            FlowKind::JumpIndirect => match last.target {
                0 => RawEnd::Switch,
                n => Unread::ALL
                    .get(n as usize - 1)
                    .map_or(RawEnd::IndirectTailCall, |&why| RawEnd::Unresolved(why)),
            },
            FlowKind::Return => RawEnd::Return,
            FlowKind::Stop | FlowKind::Trap => RawEnd::Stop,
            FlowKind::Invalid => RawEnd::Broken,
        };
        let direct = matches!(last.kind, FlowKind::Jump | FlowKind::Branch);
        out.blocks.push(RawBlock {
            start: first.at,
            len: last.end() - first.at,
            target: if direct { last.target } else { NOWHERE },
            n_insns: u32::try_from(insns.len()).unwrap_or(u32::MAX),
            last_len: last.len,
            end,
            targeted,
        });
    }
}

/// The slot through which an indirect call or jump goes, if it is one place in the image.
fn slot(cx: &Context<'_>, insn: &Insn) -> Option<Rel> {
    match insn.operands().next() {
        Some(Operand::Place { at, index: None, base: None, size: 8 }) => {
            Some(cx.space.rel(at)).filter(|&r| r != NOWHERE)
        }
        _ => None,
    }
}

/// Whether the instruction at `at` starts with the prefix that makes it atomic.
fn is_locked(cx: &Context<'_>, at: Rel) -> bool {
    let bytes = cx.image.bytes_from(cx.space.va(at));
    bytes.is_some_and(|b| b.first() == Some(&LOCK)) && decode_at(cx, at).is_some()
}

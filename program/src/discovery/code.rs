//! All code while it is being understood: raw blocks by address, who owns them, and look-ups over them.
//!
//! Invariant: `blocks` are sorted and do not overlap; `owner`, if filled, is as long as `blocks`; the index
//! fits `blocks`.
//!
//! Not here: decisions (`gaps`, `noreturn`), and the tables that are kept (`assemble`).

use crate::arch::Decoder;
use crate::discovery::sweep::raw::{
    Context, NOWHERE, RawBlock, RawCall, RawEnd, RawTable, Reference, Region, Rel, Swept,
};
use crate::image::RelocationTo;
use crate::model::Origin;
use std::ops::Range;
use std::sync::OnceLock;

/// The owner of a block that belongs to no function.
pub const NO_FUNC: u32 = u32::MAX;

/// A function while it is being put together.
#[derive(Clone, Debug)]
pub struct RawFunction {
    pub entry: Rel,
    pub origin: Origin,
    /// Whether it returns, where its name says so: imports behind PLT stubs, and what C and C++ reserve.
    pub named_returns: Option<bool>,
    /// Stub of the PLT: index into the image's list.
    pub stub: Option<u32>,
    pub returns: bool,
}

/// Code while it is being understood.
pub struct RawCode<'a> {
    pub cx: Context<'a>,
    pub regions: Vec<Region>,
    pub blocks: Vec<RawBlock>,
    pub calls: Vec<RawCall>,
    /// By the jump that uses them.
    pub tables: Vec<RawTable>,
    pub code_refs: Vec<Reference>,
    pub broken: Vec<Range<Rel>>,
    pub overlaps: Vec<Rel>,
    /// Function of each block.
    pub owner: Vec<u32>,
    pub funcs: Vec<RawFunction>,
    /// Further entries: (address), sorted.
    pub entries: Vec<Rel>,
    /// Calls that do not return, sorted.
    pub never: Vec<Rel>,
    /// Calls in the gaps with the aligned place, behind padding, where other code seems to start. By call.
    pub seams: Vec<(Rel, Rel)>,
    /// Call-site tables: instructions covered and where exceptions land, by address.
    pub sites: &'a [(Range<Rel>, Rel)],
    /// Slots that PLT stubs jump through, sorted.
    stub_slots: Vec<Rel>,
    index: Vec<u32>,
    index_from: Rel,
    /// The block that each block's jump or branch leads to, made when it is first asked for; [`NO_RANK`] for
    /// none.
    targets: OnceLock<Vec<u32>>,
    /// The first call at or after the start of each block, by rank.
    first_call: Vec<u32>,
}

/// No block.
const NO_RANK: u32 = u32::MAX;

/// Addresses per entry of the index.
const LINE: u32 = 64;

impl<'a> RawCode<'a> {
    /// Joins what the sweeps found, in order.
    pub fn new(
        cx: Context<'a>,
        regions: Vec<Region>,
        swept: Vec<Swept>,
        sites: &'a [(Range<Rel>, Rel)],
    ) -> RawCode<'a> {
        let sum = |f: fn(&Swept) -> usize| swept.iter().map(f).sum();
        let mut stub_slots: Vec<Rel> =
            cx.image.plt.iter().filter_map(|s| s.slot).map(|at| cx.space.rel(at)).collect();
        stub_slots.sort_unstable();
        let mut code = RawCode {
            cx,
            regions,
            blocks: Vec::with_capacity(sum(|s| s.blocks.len())),
            calls: Vec::with_capacity(sum(|s| s.calls.len())),
            tables: Vec::new(),
            code_refs: Vec::with_capacity(sum(|s| s.code_refs.len())),
            broken: Vec::new(),
            overlaps: Vec::new(),
            owner: Vec::new(),
            funcs: Vec::new(),
            entries: Vec::new(),
            never: Vec::new(),
            seams: Vec::new(),
            sites,
            stub_slots,
            index: Vec::new(),
            index_from: 0,
            targets: OnceLock::new(),
            first_call: Vec::new(),
        };
        for mut s in swept {
            code.blocks.append(&mut s.blocks);
            code.calls.append(&mut s.calls);
            code.tables.append(&mut s.tables);
            code.code_refs.append(&mut s.code_refs);
            code.broken.append(&mut s.broken);
            code.overlaps.append(&mut s.overlaps);
        }
        code.tables.sort_by_key(|t| (t.jump, t.at));
        code.code_refs.sort_unstable();
        code.overlaps.sort_unstable();
        code.overlaps.dedup();
        code.make_index();
        code
    }

    fn make_index(&mut self) {
        self.targets = OnceLock::new();
        self.first_call.clear();
        self.first_call.reserve_exact(self.blocks.len());
        let mut next = 0;
        for block in &self.blocks {
            while self.calls.get(next).is_some_and(|c| c.at < block.start) {
                next += 1;
            }
            self.first_call.push(u32::try_from(next).unwrap_or(u32::MAX));
        }
        self.index.clear();
        let (Some(first), Some(last)) = (self.blocks.first(), self.blocks.last()) else { return };
        self.index_from = first.start / LINE;
        let lines = last.start / LINE - self.index_from + 2;
        let code: u64 = self.cx.code.iter().map(|r| u64::from(r.end - r.start)).sum();
        if u64::from(lines) > code / u64::from(LINE) * 4 + 1024 {
            return;
        }
        self.index.reserve_exact(lines as usize);
        let mut rank = 0u32;
        for line in 0..lines {
            let from = u64::from(self.index_from + line) * u64::from(LINE);
            while self.blocks.get(rank as usize).is_some_and(|b| u64::from(b.start) < from) {
                rank += 1;
            }
            self.index.push(rank);
        }
    }

    /// The first block that starts at `at` or above.
    pub fn first_from(&self, at: Rel) -> usize {
        let line = (at / LINE).wrapping_sub(self.index_from) as usize;
        if at / LINE >= self.index_from
            && let (Some(&from), Some(&to)) = (self.index.get(line), self.index.get(line + 1))
        {
            let (from, to) = (from as usize, to as usize);
            return from + self.blocks[from..to].iter().take_while(|b| b.start < at).count();
        }
        self.blocks.partition_point(|b| b.start < at)
    }

    /// The block that starts at `at`.
    pub fn block_from(&self, at: Rel) -> Option<u32> {
        let i = self.first_from(at);
        self.blocks.get(i).filter(|b| b.start == at)?;
        u32::try_from(i).ok()
    }

    /// The block that the direct jump or branch at the end of a block leads to.
    pub fn target_of(&self, rank: u32) -> Option<u32> {
        let target = self.blocks.get(rank as usize)?.target;
        if target == NOWHERE {
            return None;
        }
        let all = self.targets.get_or_init(|| {
            let to = |b: &RawBlock| match b.target {
                NOWHERE => NO_RANK,
                target => self.block_from(target).unwrap_or(NO_RANK),
            };
            self.blocks.iter().map(to).collect()
        });
        all.get(rank as usize).copied().filter(|&to| to != NO_RANK)
    }

    /// The block that holds `at`.
    pub fn block_at(&self, at: Rel) -> Option<u32> {
        let i = self.first_from(at.checked_add(1)?).checked_sub(1)?;
        self.blocks.get(i).filter(|b| b.contains(at))?;
        u32::try_from(i).ok()
    }

    /// The block that control falls into after `rank`: the next one, if only padding lies between.
    pub fn next(&self, rank: u32) -> Option<u32> {
        let block = self.blocks.get(rank as usize)?;
        let next = self.blocks.get(rank as usize + 1)?;
        (next.start == block.end_rel() || self.only_nops(block.end_rel()..next.start)).then_some(rank + 1)
    }

    /// Whether `range` holds nothing but no-operations.
    pub fn only_nops(&self, range: Range<Rel>) -> bool {
        let va = self.cx.space.va(range.start)..self.cx.space.va(range.end);
        let Some(bytes) = self.cx.image.bytes_in(&va) else { return false };
        Decoder::new(bytes, va.start).are_nops_or(|insn| insn.is_nop())
    }

    /// The position of the first call at or after the start of a block.
    pub fn first_call(&self, rank: u32) -> usize {
        self.first_call[rank as usize] as usize
    }

    /// The calls in a block.
    pub fn calls_in(&self, rank: u32) -> &[RawCall] {
        let block = &self.blocks[rank as usize];
        let from = self.first_call[rank as usize] as usize;
        let len = self.calls[from..].iter().take_while(|c| c.at < block.end_rel()).count();
        &self.calls[from..from + len]
    }

    /// Whether the last instruction of a block is a call.
    pub fn ends_in_call(&self, rank: u32) -> bool {
        self.calls_in(rank)
            .last()
            .is_some_and(|c| c.transfer.is_call() && c.end() == self.blocks[rank as usize].end_rel())
    }

    /// The tables of the jump at the end of a block.
    pub fn tables_of(&self, rank: u32) -> &[RawTable] {
        let jump = self.blocks[rank as usize].last();
        let from = self.tables.partition_point(|t| t.jump < jump);
        let len = self.tables[from..].iter().take_while(|t| t.jump == jump).count();
        &self.tables[from..from + len]
    }

    /// Blocks of the same function that the table jump at the end of a block leads to.
    pub fn table_targets(&self, rank: u32, mut f: impl FnMut(u32)) {
        let own = self.owner.get(rank as usize);
        for table in self.tables_of(rank) {
            for &to in &table.targets {
                if let Some(t) = self.block_from(to)
                    && self.owner.get(t as usize) == own
                {
                    f(t);
                }
            }
        }
    }

    /// Blocks where exceptions of the calls in a block land.
    pub fn pads_of(&self, rank: u32, mut f: impl FnMut(u32)) {
        if self.sites.is_empty() {
            return;
        }
        for call in self.calls_in(rank).iter().filter(|c| c.transfer.is_call()) {
            // Ranges of one function do not overlap; those that start before the call are looked at from the
            // last on.
            let to = self.sites.partition_point(|s| s.0.start <= call.at);
            if let Some((range, pad)) = self.sites[..to].last()
                && range.contains(&call.at)
                && let Some(t) = self.block_from(*pad)
            {
                f(t);
            }
        }
    }

    /// The name of the import that a slot holds.
    pub fn slot_import(&self, slot: Rel) -> Option<&str> {
        match &self.cx.image.relocation_at(self.cx.space.va(slot))?.to {
            RelocationTo::Symbol(name, None) => Some(name),
            _ => None,
        }
    }

    /// The function whose address a slot holds, if it cannot be changed.
    pub fn slot_function(&self, slot: Rel) -> Option<u32> {
        let block = self.block_from(self.slot_target(slot)?)?;
        self.owner.get(block as usize).copied().filter(|&f| f != NO_FUNC)
    }

    /// The code of this image whose address a slot holds, if it cannot be changed.
    pub fn slot_target(&self, slot: Rel) -> Option<Rel> {
        let at = self.cx.space.va(slot);
        let to = match self.cx.image.relocation_at(at)?.to {
            RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) => self.cx.space.rel(to),
            _ => return None,
        };
        // A slot of the global offset table, not a variable that holds a function at start.
        let is_constant = match self.cx.image.section_at(at) {
            Some(section) => section.name.starts_with(".got"),
            None => self.stub_slots.binary_search(&slot).is_ok(),
        };
        (is_constant && self.cx.is_code(to)).then_some(to)
    }

    /// Blocks at the entries of each function.
    pub fn entry_ranks(&self) -> Vec<Vec<u32>> {
        let mut ranks: Vec<Vec<u32>> =
            self.funcs.iter().map(|f| self.block_from(f.entry).into_iter().collect()).collect();
        for &at in &self.entries {
            if let Some(b) = self.block_from(at)
                && let Some(of) = ranks.get_mut(self.owner[b as usize] as usize)
                && !of.contains(&b)
            {
                of.push(b);
            }
        }
        ranks
    }

    /// The region that holds `at`.
    pub fn region_at(&self, at: Rel) -> Option<usize> {
        let i = self.regions.partition_point(|r| r.range.end <= at);
        self.regions.get(i).filter(|r| r.range.contains(&at)).map(|_| i)
    }

    /// Makes blocks start at the addresses `at` (sorted), where instructions start there; returns those where
    /// none does.
    pub fn split(&mut self, at: &[Rel]) -> Vec<Rel> {
        let mut missing = Vec::new();
        let mut new: Vec<(usize, RawBlock)> = Vec::new();
        let mut i = 0;
        while let Some(&first) = at.get(i) {
            let Some(rank) = self.block_at(first) else {
                missing.push(first);
                i += 1;
                continue;
            };
            let block = self.blocks[rank as usize];
            let mut cuts = Vec::new();
            while let Some(&cut) = at.get(i).filter(|&&c| block.contains(c)) {
                cuts.push(cut);
                i += 1;
            }
            let pieces = self.cut(&block, &cuts, &mut missing);
            let Some((head, rest)) = pieces.split_first() else { continue };
            self.blocks[rank as usize] = *head;
            new.extend(rest.iter().map(|b| (rank as usize, *b)));
        }
        if !new.is_empty() {
            // From the back, so that each block moves once.
            let mut from = self.blocks.len();
            self.blocks.reserve_exact(new.len());
            let filler = self.blocks[0];
            self.blocks.resize(from + new.len(), filler);
            let owned = !self.owner.is_empty();
            if owned {
                self.owner.resize(self.blocks.len(), NO_FUNC);
            }
            let mut to = self.blocks.len();
            while let Some((after, block)) = new.pop() {
                let n = from - (after + 1);
                self.blocks.copy_within(after + 1..from, to - n);
                if owned {
                    self.owner.copy_within(after + 1..from, to - n);
                }
                from = after + 1;
                to -= n + 1;
                self.blocks[to] = block;
                if owned {
                    self.owner[to] = self.owner[after];
                }
            }
            self.make_index();
        }
        missing
    }

    /// The pieces of `block` that start at `cuts`, without padding at their ends.
    fn cut(&self, block: &RawBlock, cuts: &[Rel], missing: &mut Vec<Rel>) -> Vec<RawBlock> {
        let va = self.cx.space.va(block.start)..self.cx.space.va(block.end_rel());
        let bytes = self.cx.image.bytes_in(&va).unwrap_or_default();
        let mut pieces: Vec<RawBlock> = Vec::new();
        let mut at = block.start;
        let mut cuts = cuts.iter().copied().peekable();
        let mut padding = 0u32;
        let mut padding_insns = 0;
        for insn in Decoder::new(bytes, va.start) {
            while let Some(cut) = cuts.next_if(|&c| c < at) {
                missing.push(cut);
            }
            let starts = cuts.next_if_eq(&at).is_some() || pieces.is_empty();
            let len = u32::try_from(insn.len_bytes()).unwrap_or(15);
            if starts {
                if let Some(last) = pieces.last_mut() {
                    last.end = RawEnd::FallThrough;
                    last.target = NOWHERE;
                    if last.n_insns > padding_insns {
                        last.len -= padding;
                        last.n_insns -= padding_insns;
                    }
                }
                pieces.push(RawBlock { start: at, len: 0, n_insns: 0, targeted: true, ..*block });
                (padding, padding_insns) = (0, 0);
            }
            if let Some(last) = pieces.last_mut() {
                last.n_insns += 1;
                last.len += len;
                if insn.is_nop() {
                    padding += len;
                    padding_insns += 1;
                } else {
                    (padding, padding_insns) = (0, 0);
                    last.last_len = u8::try_from(len).unwrap_or(15);
                }
                if last.n_insns == padding_insns {
                    last.last_len = u8::try_from(len).unwrap_or(15);
                }
            }
            at += len;
        }
        missing.extend(cuts);
        if let Some(first) = pieces.first_mut() {
            first.targeted = block.targeted;
        }
        pieces
    }
}

impl RawCode<'_> {
    /// Ends blocks at the calls that do not return; what follows such a call becomes a block of its own,
    /// padding none.
    pub fn end_at_calls(&mut self) {
        let never = std::mem::take(&mut self.never);
        let mut cuts = Vec::new();
        // The last call looked at: its block, and the instructions before it. The next is often in the same
        // block, and decoding goes on from there, so that each block is decoded about once however many calls
        // it holds.
        let mut done: Option<(u32, Rel, u32)> = None;
        let mut i = 0;
        while let Some(&at) = never.get(i) {
            i += 1;
            let Some(rank) = self.block_at(at) else { continue };
            let block = self.blocks[rank as usize];
            let (mut offset, mut n) = match done {
                Some((in_block, from, n)) if in_block == rank => (from, n),
                _ => (block.start, 0),
            };
            let va = self.cx.space.va(offset)..self.cx.space.va(block.end_rel());
            let bytes = self.cx.image.bytes_in(&va).unwrap_or_default();
            let mut after_call = false;
            let mut len = block.len;
            for insn in Decoder::new(bytes, va.start) {
                let insn_len = u32::try_from(insn.len_bytes()).unwrap_or(15);
                n += 1;
                if after_call && !insn.is_padding() {
                    cuts.push(offset);
                    break;
                }
                if offset == at {
                    after_call = true;
                    done = Some((rank, at, n - 1));
                    len = offset + insn_len - block.start;
                    let short = &mut self.blocks[rank as usize];
                    short.last_len = u8::try_from(insn_len).unwrap_or(15);
                    short.n_insns = n;
                }
                offset += insn_len;
            }
            let whole = cuts.last().is_none_or(|&c| !block.contains(c) || c <= at);
            let short = &mut self.blocks[rank as usize];
            if whole {
                short.len = len;
                short.end = RawEnd::NoReturn;
                short.target = NOWHERE;
            } else {
                // Cut below; until then it is as long as it was.
                short.last_len = block.last_len;
                short.n_insns = block.n_insns;
            }
            // Further calls of this block are looked at after the cut.
        }
        let again = !cuts.is_empty();
        if again {
            cuts.sort_unstable();
            cuts.dedup();
            self.split(&cuts);
            for &cut in &cuts {
                if let Some(rank) = self.block_from(cut) {
                    self.blocks[rank as usize].targeted = false;
                }
            }
        }
        self.never = never;
        if again {
            self.end_at_calls();
        }
    }

    /// Forgets the blocks of no-operations that nothing of their function leads to, nor anything else: only a
    /// guess, such as a table of another function or a pointer into padding, made them blocks.
    pub fn drop_padding(&mut self) {
        let dropped = self.padding();
        if dropped.is_empty() {
            return;
        }
        // From the back, since one may run into the next. What runs into it runs into what follows it.
        for &rank in dropped.iter().rev() {
            let Some(before) = rank.checked_sub(1) else { continue };
            let same = self.owner[before as usize] == self.owner[rank as usize];
            let end = self.blocks[rank as usize].end;
            if same && end == RawEnd::Broken && self.next(before) == Some(rank) {
                let before = &mut self.blocks[before as usize];
                if before.end == RawEnd::FallThrough {
                    before.end = end;
                }
            }
        }
        let is_kept = |rank: usize| u32::try_from(rank).is_ok_and(|r| dropped.binary_search(&r).is_err());
        let mut ranks = 0..self.blocks.len();
        self.blocks.retain(|_| ranks.next().is_some_and(is_kept));
        let mut ranks = 0..self.owner.len();
        self.owner.retain(|_| ranks.next().is_some_and(is_kept));
        self.make_index();
    }

    /// Ranks of the blocks of no-operations that nothing enters but by falling into them.
    fn padding(&self) -> Vec<u32> {
        let entry = |at: &Rel| {
            self.entries.binary_search(at).is_ok() || self.funcs.binary_search_by_key(at, |f| f.entry).is_ok()
        };
        let mut found: Vec<u32> = (0..)
            .zip(&self.blocks)
            .filter(|(rank, b)| {
                matches!(b.end, RawEnd::FallThrough | RawEnd::Broken)
                    && self.owner[*rank as usize] != NO_FUNC
                    && self.cx.pads.binary_search(&b.start).is_err()
                    && self.only_nops(b.start..b.end_rel())
                    && !entry(&b.start)
            })
            .map(|(rank, _)| rank)
            .collect();
        if found.is_empty() {
            return found;
        }
        let mut entered: Vec<u32> = Vec::new();
        for (rank, block) in (0..).zip(&self.blocks) {
            match block.end {
                RawEnd::Jump | RawEnd::Branch => entered.extend(
                    self.target_of(rank).filter(|&t| self.owner[t as usize] == self.owner[rank as usize]),
                ),
                RawEnd::Switch => self.table_targets(rank, |t| entered.push(t)),
                _ => {}
            }
        }
        entered.sort_unstable();
        found.retain(|rank| entered.binary_search(rank).is_err());
        found
    }
}

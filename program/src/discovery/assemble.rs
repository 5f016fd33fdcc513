//! The tables of a [`Program`] from code that was understood.
//!
//! Invariant: what `verify` checks. Ids follow function entries, then addresses.

use crate::addr::Va;
use crate::arch::Decoder;
use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::sweep::raw::{NOWHERE, RawBlock, RawCall, RawEnd, Rel, Transfer};
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::image::{Image, SymbolKind};
use crate::model::{
    Block, BlockEnd, Call, CallKind, Callee, Edge, EdgeKind, Function, Gap, GapReason, JumpTable, Origin,
    Program, Sure, Unread,
};
use std::collections::HashMap;
use std::ops::Range;

/// Everything of a program but its image.
pub struct Tables {
    functions: Vec<Function>,
    blocks: Vec<Block>,
    edges: Vec<Edge>,
    calls: Vec<Call>,
    imports: Vec<Box<str>>,
    tables: Vec<JumpTable>,
    gaps: Vec<Gap>,
    by_address: Vec<BlockId>,
}

impl Tables {
    /// With the image they were made from.
    pub fn into_program(self, image: Image) -> Program {
        Program {
            image,
            functions: self.functions,
            blocks: self.blocks,
            edges: self.edges,
            calls: self.calls,
            imports: self.imports,
            tables: self.tables,
            gaps: self.gaps,
            data: Vec::new(),
            named: Vec::new(),
            fixed: Vec::new(),
            by_address: self.by_address,
            stretches: std::sync::OnceLock::new(),
            remarks: None,
        }
    }
}

/// Code on its way into tables.
pub struct Assembly<'c, 'a> {
    code: &'c RawCode<'a>,
    /// Ids by rank; [`NO_FUNC`] for blocks that no function owns.
    ids: Vec<u32>,
    /// Ranks by id.
    ranks: Vec<u32>,
    /// First id of each function, and the end.
    firsts: Vec<u32>,
    /// Jumps with the index of their table, sorted.
    jumps: Vec<(Rel, u32)>,
    tables: Vec<JumpTable>,
    imports: Vec<Box<str>>,
}

impl<'c, 'a> Assembly<'c, 'a> {
    /// Numbers the blocks and settles the tables.
    pub fn new(code: &'c RawCode<'a>) -> Assembly<'c, 'a> {
        let n = code.funcs.len();
        let mut firsts = vec![0u32; n + 1];
        for &owner in code.owner.iter().filter(|&&o| o != NO_FUNC) {
            firsts[owner as usize + 1] += 1;
        }
        for i in 0..n {
            firsts[i + 1] += firsts[i];
        }
        let mut next = firsts.clone();
        let mut ids = vec![NO_FUNC; code.blocks.len()];
        let mut ranks = vec![0; firsts[n] as usize];
        for (rank, &owner) in code.owner.iter().enumerate() {
            if owner != NO_FUNC {
                let id = next[owner as usize];
                next[owner as usize] += 1;
                ids[rank] = id;
                ranks[id as usize] = u32::try_from(rank).unwrap_or(NO_FUNC);
            }
        }
        let mut this =
            Assembly { code, ids, ranks, firsts, jumps: Vec::new(), tables: Vec::new(), imports: Vec::new() };
        this.settle_tables();
        this.collect_imports();
        this
    }

    fn va(&self, rel: Rel) -> Va {
        self.code.cx.space.va(rel)
    }

    /// One table for all jumps of a function that use it; targets that are no blocks of the function are left
    /// out.
    fn settle_tables(&mut self) {
        let code = self.code;
        let mut rows: Vec<(Va, u32, Option<Va>, usize)> = Vec::new();
        for (i, table) in code.tables.iter().enumerate() {
            if let Some(rank) = code.block_at(table.jump) {
                let owner = code.owner[rank as usize];
                if owner != NO_FUNC && code.blocks[rank as usize].last() == table.jump {
                    rows.push((table.at, owner, table.anchor, i));
                }
            }
        }
        rows.sort_unstable();
        for same in rows.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
            let (at, owner, ..) = same[0];
            let all = || same.iter().map(|r| &code.tables[r.3]);
            let Some(longest) = all().max_by_key(|t| t.targets.len()) else { continue };
            let own = |to: &Rel| code.block_from(*to).is_some_and(|b| code.owner[b as usize] == owner);
            if !longest.targets.iter().any(own) {
                continue;
            }
            // In the middle of a block of this function nothing can be led to; elsewhere, what cannot happen
            // may.
            let inside =
                |to: &&Rel| own(to) || code.block_at(**to).is_none_or(|b| code.owner[b as usize] != owner);
            let targets: Box<[Va]> = longest.targets.iter().filter(inside).map(|&t| self.va(t)).collect();
            let index = u32::try_from(self.tables.len()).unwrap_or(NO_FUNC);
            self.jumps.extend(all().map(|t| (t.jump, index)));
            let mut jumps: Vec<Va> = all().map(|t| self.va(t.jump)).collect();
            jumps.sort_unstable();
            jumps.dedup();
            self.tables.push(JumpTable {
                at,
                entry_len: longest.entry_len,
                anchor: longest.anchor,
                func: FuncId(owner),
                jumps: jumps.into(),
                targets,
                sure: all().map(|t| t.sure).max().unwrap_or(Sure::Likely),
            });
        }
        self.jumps.sort_unstable();
        self.jumps.dedup();
    }

    fn collect_imports(&mut self) {
        let slots =
            self.code.calls.iter().filter(|c| matches!(c.transfer, Transfer::Slot | Transfer::JumpSlot));
        let mut names: Vec<&str> = slots.filter_map(|c| self.code.slot_import(c.target)).collect();
        names.sort_unstable();
        names.dedup();
        self.imports = names.into_iter().map(Box::from).collect();
    }

    /// The tables.
    pub fn tables(mut self) -> Tables {
        let functions = self.functions();
        let (blocks, edges) = self.blocks();
        let calls = self.calls(&functions);
        let by_address: Vec<BlockId> =
            self.ids.iter().filter(|&&id| id != NO_FUNC).map(|&id| BlockId(id)).collect();
        let mut tables = Tables {
            functions,
            blocks,
            edges,
            calls,
            imports: std::mem::take(&mut self.imports),
            tables: std::mem::take(&mut self.tables),
            gaps: Vec::new(),
            by_address,
        };
        tables.gaps = self.gaps(&tables);
        for gap in tables.gaps.iter().filter(|g| g.reason == GapReason::UnresolvedJump) {
            let i = tables.by_address.partition_point(|&b| tables.blocks[b.index()].start <= gap.range.start);
            if let Some(&b) = tables.by_address.get(i.wrapping_sub(1)) {
                tables.functions[tables.blocks[b.index()].func.index()].complete = false;
            }
        }
        cut_from(&mut tables);
        tables
    }

    fn functions(&self) -> Vec<Function> {
        let code = self.code;
        let names = names(code);
        let mut entries: Vec<Vec<BlockId>> = vec![Vec::new(); code.funcs.len()];
        for &at in &code.entries {
            if let Some(rank) = code.block_from(at)
                && let Some(of) = entries.get_mut(code.owner[rank as usize] as usize)
            {
                of.push(BlockId(self.ids[rank as usize]));
            }
        }
        let mut all = Vec::with_capacity(code.funcs.len());
        let mut names = names.into_iter().peekable();
        for ((i, f), entries) in code.funcs.iter().enumerate().zip(entries) {
            let blocks = self.firsts[i]..self.firsts[i + 1];
            let stub = f.stub.and_then(|s| code.cx.image.plt.get(s as usize));
            let import = stub.and_then(|s| s.import.clone());
            let mut own: Vec<Box<str>> = import.iter().map(|name| format!("{name}@plt").into()).collect();
            while names.next_if(|n| n.0 < f.entry).is_some() {}
            while let Some((_, _, name)) = names.next_if(|n| n.0 == f.entry) {
                if !own.contains(&name) {
                    own.push(name);
                }
            }
            let ends_well = |id: u32| {
                let rank = self.ranks[id as usize];
                !self.is_open(rank) && !self.misses(rank)
            };
            all.push(Function {
                entry: self.va(f.entry),
                names: own.into(),
                ranges: self.ranges(f.entry, &blocks),
                complete: !blocks.is_empty() && blocks.clone().all(ends_well),
                blocks,
                entries: entries.into(),
                origin: f.origin,
                sure: match f.origin {
                    Origin::TailCalled | Origin::AddressTaken => Sure::Likely,
                    Origin::Scored => Sure::Guessed,
                    _ => Sure::Proved,
                },
                returns: f.returns,
                import,
                cut_from: None,
            });
        }
        all
    }

    /// Runs of blocks that lie next to each other; the one with the entry first.
    fn ranges(&self, entry: Rel, ids: &Range<u32>) -> Box<[Range<Va>]> {
        let mut runs: Vec<Range<Rel>> = Vec::new();
        let mut before = None;
        for id in ids.clone() {
            let rank = self.ranks[id as usize];
            let block = &self.code.blocks[rank as usize];
            match runs.last_mut() {
                Some(last) if before == rank.checked_sub(1) && self.joins(last.end, block.start) => {
                    last.end = block.end_rel();
                }
                _ => runs.push(block.start..block.end_rel()),
            }
            before = Some(rank);
        }
        if !runs.iter().any(|r| r.contains(&entry)) {
            // Nothing decodes at the entry.
            runs.retain(|r| r.start > entry || r.end <= entry);
            runs.push(entry..entry + 1);
        }
        runs.sort_unstable_by_key(|r| (!r.contains(&entry), r.start));
        runs.into_iter().map(|r| self.va(r.start)..self.va(r.end)).collect()
    }

    /// Whether only padding lies between two blocks.
    fn joins(&self, end: Rel, start: Rel) -> bool {
        end == start || self.is_padding(self.va(end)..self.va(start))
    }

    /// The block of the same function that control falls into.
    fn falls_to(&self, rank: u32) -> Option<u32> {
        self.code.next(rank).filter(|&t| self.code.owner[t as usize] == self.code.owner[rank as usize])
    }

    /// The function that control runs on into at the end of the block, if it does.
    fn runs_into(&self, rank: u32) -> Option<u32> {
        let block = &self.code.blocks[rank as usize];
        let next = self.code.next(rank).filter(|_| block.end.falls_through())?;
        let to = self.code.owner[next as usize];
        (to != NO_FUNC && to != self.code.owner[rank as usize] && !self.code.ends_in_call(rank)).then_some(to)
    }

    /// Whether control can run off the end of the block into what is not known.
    fn is_open(&self, rank: u32) -> bool {
        match self.code.blocks[rank as usize].end {
            RawEnd::Broken => true,
            RawEnd::FallThrough | RawEnd::Branch => {
                self.falls_to(rank).is_none() && self.runs_into(rank).is_none()
            }
            _ => false,
        }
    }

    /// Whether the jump or branch at the end of the block leads out of its function.
    fn leaves(&self, rank: u32) -> bool {
        self.own_target(rank).is_none() && !self.misses(rank)
    }

    /// Whether the jump or branch at the end of the block leads into the middle of an instruction of its
    /// function.
    fn misses(&self, rank: u32) -> bool {
        let block = &self.code.blocks[rank as usize];
        matches!(block.end, RawEnd::Jump | RawEnd::Branch)
            && self.code.block_at(block.target).is_some_and(|t| {
                self.code.owner[t as usize] == self.code.owner[rank as usize]
                    && self.code.blocks[t as usize].start != block.target
            })
    }

    /// A block of the same function that starts at `to`.
    fn own(&self, rank: u32, to: Rel) -> Option<BlockId> {
        self.if_own(rank, self.code.block_from(to)?)
    }

    /// The block of the same function that the jump or branch at the end of the block leads to.
    fn own_target(&self, rank: u32) -> Option<BlockId> {
        self.if_own(rank, self.code.target_of(rank)?)
    }

    fn if_own(&self, rank: u32, t: u32) -> Option<BlockId> {
        (self.code.owner[t as usize] == self.code.owner[rank as usize]).then(|| BlockId(self.ids[t as usize]))
    }

    fn blocks(&self) -> (Vec<Block>, Vec<Edge>) {
        let code = self.code;
        let mut blocks = Vec::with_capacity(self.ranks.len());
        let n_edges = |b: &RawBlock| usize::from(b.end.falls_through()) + usize::from(b.target != NOWHERE);
        let mut edges: Vec<Edge> = Vec::with_capacity(code.blocks.iter().map(n_edges).sum());
        let mut out: Vec<(BlockId, EdgeKind, Sure)> = Vec::new();
        for (id, &rank) in self.ranks.iter().enumerate() {
            let raw = &code.blocks[rank as usize];
            let from = BlockId::at(id);
            out.clear();
            let falls = raw.end.falls_through().then(|| self.falls_to(rank)).flatten();
            if let Some(t) = falls {
                out.push((BlockId(self.ids[t as usize]), EdgeKind::FallThrough, Sure::Proved));
            }
            let end = match raw.end {
                RawEnd::FallThrough if self.is_open(rank) => BlockEnd::Broken,
                RawEnd::FallThrough => BlockEnd::FallThrough,
                RawEnd::Jump => {
                    out.extend(self.own_target(rank).map(|t| (t, EdgeKind::Jump, Sure::Proved)));
                    BlockEnd::Jump
                }
                RawEnd::Branch => {
                    out.extend(self.own_target(rank).map(|t| (t, EdgeKind::Taken, Sure::Proved)));
                    BlockEnd::Branch
                }
                RawEnd::Switch => {
                    let jump = raw.last();
                    let from = self.jumps.partition_point(|j| j.0 < jump);
                    for &(_, table) in self.jumps[from..].iter().take_while(|j| j.0 == jump) {
                        let table = &self.tables[table as usize];
                        for &to in &table.targets {
                            let to = self.own(rank, code.cx.space.rel(to));
                            out.extend(to.map(|t| (t, EdgeKind::Table, table.sure)));
                        }
                    }
                    if out.is_empty() { BlockEnd::Unresolved } else { BlockEnd::Switch }
                }
                RawEnd::IndirectTailCall => BlockEnd::IndirectTailCall,
                RawEnd::Unresolved(_) => BlockEnd::Unresolved,
                RawEnd::Return => BlockEnd::Return,
                RawEnd::NoReturn => BlockEnd::NoReturn,
                RawEnd::Stop => BlockEnd::Stop,
                RawEnd::Broken => BlockEnd::Broken,
            };
            code.pads_of(rank, |t| {
                if code.owner[t as usize] == code.owner[rank as usize] {
                    out.push((BlockId(self.ids[t as usize]), EdgeKind::LandingPad, Sure::Proved));
                }
            });
            out.sort_unstable();
            out.dedup_by_key(|e| (e.0, e.1));
            blocks.push(Block {
                start: self.va(raw.start),
                len_bytes: raw.len,
                last: raw.len - u32::from(raw.last_len),
                n_insns: raw.n_insns,
                func: FuncId(code.owner[rank as usize]),
                first_edge: EdgeId::at(edges.len()),
                end,
                landing_pad: raw.targeted && code.cx.pads.binary_search(&raw.start).is_ok(),
            });
            edges.extend(out.iter().map(|&(to, kind, sure)| Edge { from, to, kind, sure }));
        }
        edges.shrink_to_fit();
        (blocks, edges)
    }

    fn calls(&self, functions: &[Function]) -> Vec<Call> {
        let code = self.code;
        let mut calls = Vec::with_capacity(code.calls.len() * 5 / 4);
        let mut next = 0;
        for (rank, raw) in code.blocks.iter().enumerate() {
            let id = self.ids[rank];
            let rank = u32::try_from(rank).unwrap_or(NO_FUNC);
            while code.calls.get(next).is_some_and(|c| c.at < raw.start) {
                next += 1;
            }
            while let Some(call) = code.calls.get(next).filter(|c| c.at < raw.end_rel()) {
                next += 1;
                if id == NO_FUNC {
                    continue;
                }
                let jump = matches!(call.transfer, Transfer::JumpSlot | Transfer::JumpIndirect);
                let callee = self.callee(call);
                let never = !jump && code.never.binary_search(&call.at).is_ok();
                calls.push(Call {
                    at: self.va(call.at),
                    block: BlockId(id),
                    kind: if jump { CallKind::TailCall } else { CallKind::Call },
                    callee,
                    returns: !never && self.returns(callee, functions),
                });
            }
            if id == NO_FUNC {
                continue;
            }
            // Into the middle of an instruction: a gap.
            if matches!(raw.end, RawEnd::Jump | RawEnd::Branch) && self.leaves(rank) {
                let callee = self.direct(raw.target, raw.last(), raw.last_len);
                let kind =
                    if raw.end == RawEnd::Jump { CallKind::TailCall } else { CallKind::BranchTailCall };
                calls.push(Call {
                    at: self.va(raw.last()),
                    block: BlockId(id),
                    kind,
                    callee,
                    returns: self.returns(callee, functions),
                });
            }
            let runs_on = raw.end.falls_through() && self.falls_to(rank).is_none();
            if let Some(to) = runs_on.then(|| self.runs_into(rank)).flatten() {
                let callee = Callee::Function(FuncId(to));
                calls.push(Call {
                    at: self.va(raw.last()),
                    block: BlockId(id),
                    kind: CallKind::FallThrough,
                    callee,
                    returns: self.returns(callee, functions),
                });
            }
        }
        calls.shrink_to_fit();
        calls
    }

    fn returns(&self, callee: Callee, functions: &[Function]) -> bool {
        match callee {
            Callee::Function(f) => functions[f.index()].returns,
            Callee::Import(i) => {
                let is_libc = |name: &str| self.code.cx.image.is_libc_import(name);
                !crate::libc::import_never_returns(&self.imports[i as usize], is_libc)
            }
            Callee::Unknown(_) | Callee::Indirect => true,
        }
    }

    fn callee(&self, call: &RawCall) -> Callee {
        match call.transfer {
            Transfer::Direct => self.direct(call.target, call.at, call.len),
            Transfer::Indirect | Transfer::JumpIndirect => Callee::Indirect,
            Transfer::Slot | Transfer::JumpSlot => {
                if let Some(name) = self.code.slot_import(call.target)
                    && let Ok(i) = self.imports.binary_search_by(|n| (**n).cmp(name))
                {
                    return Callee::Import(u32::try_from(i).unwrap_or(0));
                }
                self.code.slot_function(call.target).map_or(Callee::Indirect, |f| Callee::Function(FuncId(f)))
            }
        }
    }

    /// What a direct call or jump at `at` to `to` reaches.
    fn direct(&self, to: Rel, at: Rel, len: u8) -> Callee {
        let owner = self.code.block_from(to).map(|b| self.code.owner[b as usize]).filter(|&o| o != NO_FUNC);
        match owner {
            Some(f) => Callee::Function(FuncId(f)),
            // Decoded anew where the target is too far away for the short form.
            None if to == Rel::MAX => {
                let va = self.va(at);
                let bytes = self.code.cx.image.bytes_in(&(va..va.plus(u64::from(len)))).unwrap_or_default();
                let target = Decoder::new(bytes, va).next().and_then(|insn| insn.flow().target());
                target.map_or(Callee::Indirect, Callee::Unknown)
            }
            None => Callee::Unknown(self.va(to)),
        }
    }

    fn gaps(&self, tables: &Tables) -> Vec<Gap> {
        let code = self.code;
        let mut gaps = Vec::new();
        for (b, &rank) in tables.blocks.iter().zip(&self.ranks) {
            let mut add =
                |reason, unread| gaps.push(Gap { range: b.last_insn()..b.end_va(), reason, unread });
            if b.end == BlockEnd::Unresolved {
                let why = match code.blocks[rank as usize].end {
                    RawEnd::Unresolved(why) => why,
                    _ => Unread::Entries,
                };
                add(GapReason::UnresolvedJump, Some(why));
            } else if self.is_open(rank) {
                add(GapReason::OpenEnd, None);
            }
        }
        for r in &code.broken {
            let range = self.va(r.start)..self.va(r.end);
            gaps.push(Gap { range, reason: GapReason::NotCode, unread: None });
        }
        for &at in &code.overlaps {
            let range = self.va(at)..self.va(at + 1);
            gaps.push(Gap { range, reason: GapReason::Overlap, unread: None });
        }
        let mut owned: Vec<Range<Va>> =
            tables.functions.iter().flat_map(|f| f.ranges.iter().cloned()).collect();
        owned.extend(code.broken.iter().map(|r| self.va(r.start)..self.va(r.end)));
        let stubs = code.cx.image.plt.iter().filter(|s| s.is_linkers());
        owned.extend(stubs.map(|s| s.range.clone()));
        owned.sort_unstable_by_key(|r| r.start);
        let mut owned = owned.into_iter().peekable();
        let mut at = Va(0);
        for run in code.cx.image.code_ranges() {
            // A function may go on from one run into the next.
            at = at.max(run.start);
            loop {
                let next = owned.next_if(|r| r.start < run.end);
                let end = next.as_ref().map_or(run.end, |r| r.start);
                if at < end && !self.is_padding(at..end) {
                    gaps.push(Gap { range: at..end, reason: GapReason::NoFunction, unread: None });
                }
                match next {
                    Some(r) => at = at.max(r.end),
                    None => break,
                }
            }
        }
        gaps.sort_unstable_by_key(|g| (g.range.start, g.reason, g.range.end));
        // Bytes that do not decode may have been met from both sides of a region's end.
        let mut end = Va(0);
        for g in gaps.iter_mut().filter(|g| g.reason == GapReason::NotCode) {
            g.range.start = g.range.start.max(end);
            end = end.max(g.range.end);
        }
        gaps.retain(|g| g.range.start < g.range.end);
        gaps.sort_unstable_by_key(|g| (g.range.start, g.reason, g.range.end));
        gaps
    }

    fn is_padding(&self, range: Range<Va>) -> bool {
        let Some(bytes) = self.code.cx.image.bytes_in(&range) else { return false };
        bytes.iter().all(|&b| b == 0)
            || Decoder::new(bytes, range.start).are_nops_or(|insn| insn.is_padding())
    }
}

/// Names of functions: (address, order, name), sorted.
fn names(code: &RawCode<'_>) -> Vec<(Rel, usize, Box<str>)> {
    let mut all = Vec::new();
    for (i, s) in code.cx.image.symbols.iter().enumerate() {
        let order = match s.kind {
            // What gcc calls the function by inside its file.
            SymbolKind::Function if s.name.ends_with(".localalias") => usize::MAX - 1,
            SymbolKind::Function | SymbolKind::IndirectFunction => i,
            SymbolKind::Untyped => usize::MAX,
            _ => continue,
        };
        let at = code.cx.space.rel(s.at);
        if !s.name.is_empty() && code.cx.is_code(at) {
            all.push((at, order, s.name.clone()));
        }
    }
    for (at, name) in &code.cx.image.go_functions {
        all.push((code.cx.space.rel(*at), usize::MAX, name.clone()));
    }
    all.sort_unstable();
    all
}

/// Finds the functions that `.part.N` functions were cut from: by name, those that call them first.
fn cut_from(tables: &mut Tables) {
    let parts: Vec<(usize, String)> = tables
        .functions
        .iter()
        .enumerate()
        .filter_map(|(i, f)| {
            let name = f.names.iter().find(|n| n.contains(".part."))?;
            Some((i, name.split_once(".part.")?.0.to_owned()))
        })
        .collect();
    if parts.is_empty() {
        return;
    }
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, f) in tables.functions.iter().enumerate() {
        for name in &f.names {
            by_name.entry(name).or_default().push(i);
        }
    }
    // Callers of parts, by part: one look at the calls, however many parts and namesakes there are.
    let is_part = |f: FuncId| parts.binary_search_by_key(&f.index(), |p| p.0).is_ok();
    let mut callers: Vec<(usize, usize)> = tables
        .calls
        .iter()
        .filter_map(|c| match c.callee {
            Callee::Function(f) if is_part(f) => {
                Some((f.index(), tables.blocks[c.block.index()].func.index()))
            }
            _ => None,
        })
        .collect();
    callers.sort_unstable();
    callers.dedup();
    let mut found = Vec::new();
    for (part, name) in &parts {
        let Some(named) = by_name.get(name.as_str()) else { continue };
        let from = match named.as_slice() {
            [only] => Some(*only),
            several => {
                let first = callers.partition_point(|c| c.0 < *part);
                let mut callers = callers[first..].iter().take_while(|c| c.0 == *part).map(|c| c.1);
                callers.find(|f| several.binary_search(f).is_ok())
            }
        };
        found.extend(from.filter(|f| f != part).map(|f| (*part, FuncId::at(f))));
    }
    for (part, from) in found {
        tables.functions[part].cut_from = Some(from);
    }
}

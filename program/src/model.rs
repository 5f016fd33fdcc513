//! The [`Program`]: dense tables of functions, blocks, edges, calls, tables, data, and what was not
//! understood.
//!
//! Invariant: made once by [`Program::analyze`], never changed. Functions are sorted by entry address.
//! The blocks of a function are contiguous, by address within it; the edges of a block are contiguous, by
//! target. A block belongs to one function; blocks do not overlap; a call does not end a block, unless it
//! cannot return. Padding belongs to no block. `verify` checks all of this.
//!
//! Enums are written into excerpts by the places of their variants: new ones come last.

use crate::addr::Va;
use crate::arch::{ControlFlow, Decoder, Insn, LOCK, Quick};
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::image::Image;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

/// How sure something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Sure {
    /// It follows from the bytes and the tables of the file.
    Proved,
    /// By a heuristic that is right for compilers' output: bounded by the next table, reached in the gaps,
    /// and so on.
    Likely,
    /// By scoring alone.
    Guessed,
}

/// What made us take an address for a function's entry: the first that applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// A function symbol.
    Symbol,
    /// A PLT stub.
    Plt,
    /// An unwind range.
    Unwind,
    /// The entry point, DT_INIT, DT_FINI, or an init or fini array.
    Start,
    /// Go's function table.
    GoTable,
    /// The target of a direct call.
    Called,
    /// The target of a jump from another function.
    TailCalled,
    /// A word of data, or an operand, that holds its address.
    AddressTaken,
    /// Found in a gap by its looks.
    Scored,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its main entry; the first block of `blocks` that has this start.
    pub entry: Va,
    /// All its symbols' names, the preferred one first; for a PLT stub `import@plt`. Empty in stripped code.
    pub names: Box<[Box<str>]>,
    /// Its code: the range of the entry first, then cold parts by address. Padding at the end is not part of
    /// it.
    pub ranges: Box<[Range<Va>]>,
    /// Its blocks, by address.
    pub blocks: Range<u32>,
    /// Further blocks that are entered from outside (called, or address-taken), by address.
    pub entries: Box<[BlockId]>,
    /// What made us take its entry for a function's.
    pub origin: Origin,
    /// How sure its start is.
    pub sure: Sure,
    /// Whether a call to it can return.
    pub returns: bool,
    /// The import, if it is a PLT stub.
    pub import: Option<Box<str>>,
    /// The function this one was cut from, if it is a `.part.N`.
    pub cut_from: Option<FuncId>,
    /// Whether all its control flow is understood: no unresolved jumps, no jumps into the middle of
    /// instructions, and no bytes that do not decode. Where it is not, a gap says where and why.
    pub complete: bool,
}

impl Function {
    /// The preferred name, or `fn_0x401136`.
    pub fn name(&self) -> String {
        match self.names.first() {
            Some(name) => name.to_string(),
            None => format!("fn_{}", self.entry),
        }
    }
    /// Ids of its blocks, by address.
    pub fn block_ids(&self) -> impl ExactSizeIterator<Item = BlockId> + DoubleEndedIterator + use<> {
        self.blocks.clone().map(BlockId)
    }
    /// How many blocks it has.
    pub fn n_blocks(&self) -> usize {
        self.blocks.len()
    }
    /// Bytes of code in all its ranges.
    pub fn len_bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.end.since(r.start)).sum()
    }
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BlockEnd {
    /// In the next block, which is a target, or in the next function: no branch.
    FallThrough,
    /// A direct jump, within the function or out of it (tail call).
    Jump,
    /// A conditional branch.
    Branch,
    /// An indirect jump that was resolved to a table or to labels.
    Switch,
    /// An indirect jump out of the function (tail call).
    IndirectTailCall,
    /// An indirect jump that was not resolved.
    Unresolved,
    /// A return.
    Return,
    /// A call that does not return.
    NoReturn,
    /// `ud2`, `hlt`, `int3`.
    Stop,
    /// Bytes that do not decode, or the end of the code.
    Broken,
}

/// A basic block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Its first byte.
    pub start: Va,
    /// Its length in bytes; padding after it is not part of it.
    pub len_bytes: u32,
    /// Offset of its last instruction from `start`.
    pub last: u32,
    /// How many instructions it has.
    pub n_insns: u32,
    /// The function it belongs to.
    pub func: FuncId,
    /// Its first outgoing edge; the next block's `first_edge` ends the list.
    pub first_edge: EdgeId,
    /// How it ends.
    pub end: BlockEnd,
    /// Whether exceptions land here.
    pub landing_pad: bool,
}

impl Block {
    /// The address after its last byte.
    pub fn end_va(&self) -> Va {
        self.start.plus(u64::from(self.len_bytes))
    }
    /// The address of its last instruction.
    pub fn last_insn(&self) -> Va {
        self.start.plus(u64::from(self.last))
    }
    /// From its first byte to behind its last.
    pub fn range(&self) -> Range<Va> {
        self.start..self.end_va()
    }
}

/// Why control can go from one block to another of the same function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum EdgeKind {
    /// To the next instruction: after a conditional branch that is not taken, or without any branch.
    FallThrough,
    /// A direct jump.
    Jump,
    /// A conditional branch that is taken.
    Taken,
    /// Through a jump table or a table of labels.
    Table,
    /// An exception raised by a call in the block.
    LandingPad,
}

/// An edge between two blocks of one function.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Where it leaves.
    pub from: BlockId,
    /// Where it goes.
    pub to: BlockId,
    /// Why control can go this way.
    pub kind: EdgeKind,
    /// How sure it is.
    pub sure: Sure,
}

/// How a call passes control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallKind {
    /// `call`.
    Call,
    /// A jump out of the function, at the end of its block.
    TailCall,
    /// A conditional jump out of the function.
    BranchTailCall,
    /// No jump at all: control runs on from the end of the block into the next function, as hand-written
    /// assembly lets it.
    FallThrough,
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// An entry of this function of the image (a PLT stub is a function too).
    Function(FuncId),
    /// An import, called through its slot (`call *printf@GOTPCREL(%rip)`): index into [`Program::imports`].
    Import(u32),
    /// A direct target that belongs to no function.
    Unknown(Va),
    /// Through a register or memory.
    Indirect,
}

/// A call, or a way out of a function that may come back to its caller. Sorted by address; a branch out of a
/// function that runs on into the next one if it is not taken comes twice, the running on last.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The calling instruction.
    pub at: Va,
    /// The block it is in.
    pub block: BlockId,
    /// How control is passed.
    pub kind: CallKind,
    /// What is called.
    pub callee: Callee,
    /// Whether it can return.
    pub returns: bool,
}

/// A jump table.
#[derive(Clone, Debug)]
pub struct JumpTable {
    /// Address of its first entry.
    pub at: Va,
    /// Bytes an entry: 1, 2, 4 or 8.
    pub entry_len: u8,
    /// The function whose jumps use it.
    pub func: FuncId,
    /// The jumps that use it.
    pub jumps: Box<[Va]>,
    /// Where its entries lead, in order, repeated ones too. Those that cannot happen may lead out of the
    /// function.
    pub targets: Box<[Va]>,
    /// What its entries count from, where they are distances from something else than its first entry (a
    /// label of the function, as glibc's `vfprintf` has it).
    pub anchor: Option<Va>,
    /// Whether its length follows from a bound check, or from what stands after it.
    pub sure: Sure,
}

/// Why some code was not understood.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum GapReason {
    /// Bytes of code that no function holds, but for the part of the PLT that is the dynamic linker's own.
    NoFunction,
    /// Control runs off the end of a block into what is not known to be code; the range is the block's last
    /// instruction.
    OpenEnd,
    /// An indirect jump whose targets are not known; the range is the instruction.
    UnresolvedJump,
    /// Bytes that do not decode.
    NotCode,
    /// A jump into the middle of an instruction.
    Overlap,
}

/// Why the table that an indirect jump seems to read was not understood.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Unread {
    /// Its address is not the same whichever way control comes, or is computed in a way that is not followed.
    Base,
    /// An entry that can be read leads to no instruction of the function.
    Entries,
    /// It may be written while the program runs.
    Writable,
    /// The target is computed at too many places.
    Ways,
}

impl Unread {
    /// All of them, in order.
    pub const ALL: [Unread; 4] = [Unread::Base, Unread::Entries, Unread::Writable, Unread::Ways];
}

/// Code that was not understood. Sorted by address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// Where.
    pub range: Range<Va>,
    /// Why.
    pub reason: GapReason,
    /// Of an unresolved jump: why its table was not understood.
    pub unread: Option<Unread>,
}

/// What the analysis of the whole file found out of a function, and its own code does not say.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Remark {
    /// Whether anything but direct calls that are known may lead there.
    pub is_referred: bool,
    /// Why it was not counted, as `probe` says it, if it was not.
    pub not_moved: Option<String>,
}

/// What a data object holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DataKind {
    /// Anything.
    Bytes,
    /// A string that ends in a zero byte.
    String,
    /// Addresses.
    Pointers,
    /// A jump table.
    JumpTable,
    /// Zero at start (`.bss`).
    Zero,
}

/// A piece of data that code or data refers to as one. Sorted by address; they do not overlap.
#[derive(Clone, Debug)]
pub struct DataObject {
    /// Its addresses.
    pub range: Range<Va>,
    /// Its symbol, if it has one.
    pub name: Option<Box<str>>,
    /// What it holds.
    pub kind: DataKind,
    /// Proved by a symbol, else inferred from references.
    pub sure: Sure,
}

/// A binary, understood as far as possible.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub image: Image,
    /// Functions, by entry.
    pub functions: Vec<Function>,
    /// Blocks, grouped by function.
    pub blocks: Vec<Block>,
    /// Edges, grouped by the block they leave.
    pub edges: Vec<Edge>,
    /// Calls, by address.
    pub calls: Vec<Call>,
    /// Names of imports that are called through their slots.
    pub imports: Vec<Box<str>>,
    /// Jump tables, by address.
    pub tables: Vec<JumpTable>,
    /// What was not understood, by address.
    pub gaps: Vec<Gap>,
    /// Data, by address.
    pub data: Vec<DataObject>,
    /// Starts of blocks whose addresses the code of functions takes, by address.
    pub named: Vec<Va>,
    /// Instructions of functions that cannot be moved, by address.
    pub fixed: Vec<Va>,
    /// Blocks by address: ids sorted by start, for look-ups.
    pub(crate) by_address: Vec<BlockId>,
    /// Where in that list each stretch of addresses starts, made when it is first asked for.
    pub(crate) stretches: OnceLock<Stretches>,
    /// Of an excerpt: what the analysis of the whole file said of functions, by entry.
    pub(crate) remarks: Option<BTreeMap<Va, Remark>>,
}

/// Stretches of equal length, from the first block on: how many blocks start before each. About two blocks
/// start in each.
#[derive(Debug)]
pub(crate) struct Stretches {
    first: Va,
    shift: u32,
    before: Box<[u32]>,
}

impl Stretches {
    fn of(program: &Program) -> Stretches {
        let list = &program.by_address;
        let start = |b: &BlockId| program.block(*b).start;
        let first = list.first().map_or(Va(0), start);
        let span = list.last().map_or(0, |b| start(b).since(first));
        let shift = (span / (list.len() as u64 / 2 + 1)).max(1).ilog2() + 1;
        let mut before = vec![0; usize::try_from(span >> shift).expect("no more than blocks") + 2];
        for b in list {
            let k = usize::try_from(start(b).since(first) >> shift).expect("below the last");
            before[k + 1] += 1;
        }
        let mut sum = 0;
        for n in &mut before {
            sum += *n;
            *n = sum;
        }
        Stretches { first, shift, before: before.into() }
    }

    /// Positions between which the blocks of the stretch of `at` stand; `at` is not below the first block.
    fn around(&self, at: Va) -> Range<usize> {
        let k = usize::try_from(at.since(self.first) >> self.shift).unwrap_or(usize::MAX);
        let n = |k: usize| self.before.get(k).or(self.before.last()).map_or(0, |n| *n as usize);
        n(k)..n(k.saturating_add(1))
    }
}

/// Functions, blocks, edges, calls, imports.
type Tables = (Vec<Function>, Vec<Block>, Vec<Edge>, Vec<Call>, Vec<Box<str>>);

impl Program {
    /// What was kept of one.
    pub(crate) fn of_excerpt(
        image: Image,
        (functions, blocks, edges, calls, imports): Tables,
        gaps: Vec<Gap>,
        by_address: Vec<BlockId>,
        remarks: BTreeMap<Va, Remark>,
    ) -> Program {
        Program {
            image,
            functions,
            blocks,
            edges,
            calls,
            imports,
            tables: Vec::new(),
            gaps,
            data: Vec::new(),
            named: Vec::new(),
            fixed: Vec::new(),
            by_address,
            stretches: OnceLock::new(),
            remarks: Some(remarks),
        }
    }
    /// Whether it holds only those functions that a recording kept ([`crate::Excerpt`]).
    pub fn is_excerpt(&self) -> bool {
        self.remarks.is_some()
    }
    /// What the analysis of the whole file said of `func`; `None` if this is the whole file.
    pub fn remark(&self, func: FuncId) -> Option<Remark> {
        let remarks = self.remarks.as_ref()?;
        Some(remarks.get(&self.function(func).entry).cloned().unwrap_or_default())
    }
    /// The function of this number.
    ///
    /// # Panics
    /// If `id` is of another analysis and this program has fewer functions; so do `block`, `edge`, and all
    /// that take an id.
    pub fn function(&self, id: FuncId) -> &Function {
        &self.functions[id.index()]
    }
    /// The block of this number.
    #[inline]
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }
    /// The edge of this number.
    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.index()]
    }
    /// Ids of all functions.
    pub fn func_ids(&self) -> impl ExactSizeIterator<Item = FuncId> + use<> {
        (0..self.functions.len()).map(FuncId::at)
    }
    /// Ids of the edges that leave `block`.
    pub fn edge_ids(&self, block: BlockId) -> impl ExactSizeIterator<Item = EdgeId> + use<> {
        let from = self.block(block).first_edge.0;
        let to = match self.blocks.get(block.index() + 1) {
            Some(next) => next.first_edge.0,
            None => EdgeId::at(self.edges.len()).0,
        };
        (from..to).map(EdgeId)
    }
    /// The edges that leave `block`.
    #[inline]
    pub fn successors(&self, block: BlockId) -> &[Edge] {
        let from = self.blocks[block.index()].first_edge.index();
        let to = self.blocks.get(block.index() + 1).map_or(self.edges.len(), |next| next.first_edge.index());
        &self.edges[from..to]
    }
    /// All edges from blocks of `func`, block by block.
    pub fn edges_of(&self, func: FuncId) -> &[Edge] {
        &self.edges[self.edge_range(func)]
    }
    /// Where the edges from blocks of `func` stand in `edges`.
    pub fn edge_range(&self, func: FuncId) -> Range<usize> {
        let range = &self.function(func).blocks;
        let first =
            |block: u32| self.blocks.get(block as usize).map_or(self.edges.len(), |b| b.first_edge.index());
        first(range.start)..first(range.end)
    }
    /// The calls made in `block`, by address.
    pub fn calls_in(&self, block: BlockId) -> &[Call] {
        let range = self.block(block).range();
        let from = self.calls.partition_point(|c| c.at < range.start);
        // Few calls are in one block.
        let n = self.calls[from..].iter().take_while(|c| c.at < range.end).count();
        &self.calls[from..from + n]
    }
    /// Whether the instruction at `at` is a direct call, its target written in it: not one through a slot,
    /// whatever is in there.
    pub fn is_direct_call(&self, at: Va) -> bool {
        let bytes = self.image.bytes_from(at).unwrap_or_default();
        Decoder::new(bytes, at).next().is_some_and(|insn| matches!(insn.flow(), ControlFlow::Call(_)))
    }
    /// The block that holds `at`.
    pub fn block_at(&self, at: Va) -> Option<BlockId> {
        // Most of what is asked for and is no code lies outside all of it.
        let last = self.block(*self.by_address.last()?);
        if at >= last.end_va() || at < self.block(self.by_address[0]).start {
            return None;
        }
        let candidates = self.stretches.get_or_init(|| Stretches::of(self)).around(at);
        let from = candidates.start;
        let blocks = self.by_address.get(candidates)?;
        let i = from + blocks.partition_point(|&b| self.block(b).start <= at);
        let id = *self.by_address.get(i.checked_sub(1)?)?;
        self.block(id).range().contains(&at).then_some(id)
    }
    /// The block that starts at `at`.
    pub fn block_from(&self, at: Va) -> Option<BlockId> {
        self.block_at(at).filter(|&b| self.block(b).start == at)
    }
    /// Where a jump to `to` leads: past the prefix that makes a block's first instruction atomic, it is that
    /// block's start.
    pub fn led_to(&self, to: Va) -> Va {
        let lock = Va(to.0.wrapping_sub(1));
        let is_past = self.image.bytes_from(lock).is_some_and(|bytes| bytes.first() == Some(&LOCK))
            && self.block_from(to).is_none()
            && self.block_from(lock).is_some();
        if is_past { lock } else { to }
    }
    /// Ids of the blocks that start in `range`, by address.
    pub fn blocks_in(&self, range: &Range<Va>) -> &[BlockId] {
        let from = self.by_address.partition_point(|&b| self.block(b).start < range.start);
        let to = self.by_address.partition_point(|&b| self.block(b).start < range.end);
        self.by_address.get(from..to).unwrap_or_default()
    }
    /// The function whose main entry is `at`.
    pub fn function_from(&self, at: Va) -> Option<FuncId> {
        self.functions.binary_search_by_key(&at, |f| f.entry).ok().map(FuncId::at)
    }
    /// The function whose code holds `at`.
    pub fn function_at(&self, at: Va) -> Option<FuncId> {
        self.block_at(at).map(|b| self.block(b).func)
    }
    /// The blocks of `func`, by address.
    pub fn blocks_of(&self, func: FuncId) -> &[Block] {
        let range = &self.function(func).blocks;
        &self.blocks[range.start as usize..range.end as usize]
    }
    /// The number that a block has in its function, for people and in traces: 0 is the block at the main
    /// entry, the others follow by address.
    pub fn block_number(&self, id: BlockId) -> u32 {
        let func = self.block(id).func;
        let nth = id.0 - self.function(func).blocks.start;
        match self.entry_block(func) {
            Some(entry) if id == entry => 0,
            Some(entry) if id < entry => nth + 1,
            _ => nth,
        }
    }
    /// The blocks of `func` by their numbers ([`Program::block_number`]).
    pub fn numbered_blocks(&self, func: FuncId) -> impl Iterator<Item = BlockId> + use<> {
        let entry = self.entry_block(func);
        entry.into_iter().chain(self.function(func).block_ids().filter(move |id| Some(*id) != entry))
    }
    /// The block at the main entry of `func`; `None` if not even one instruction there decodes.
    pub fn entry_block(&self, func: FuncId) -> Option<BlockId> {
        let function = self.function(func);
        let first = BlockId(function.blocks.start);
        if self.blocks.get(first.index()).is_some_and(|b| b.start == function.entry) {
            return Some(first);
        }
        self.block_from(function.entry)
    }
    /// Index into `data` of the object that holds `at`.
    pub fn data_at(&self, at: Va) -> Option<usize> {
        let i = self.data.partition_point(|d| d.range.end <= at);
        self.data.get(i).filter(|d| d.range.contains(&at)).map(|_| i)
    }
    /// The padding that control runs through from the end of `block`, without a branch or past one that is
    /// not taken, to the next block. Empty where there is none.
    pub fn padding_behind(&self, block: BlockId) -> Range<Va> {
        let end = self.block(block).end_va();
        let falls = || {
            let on = self.successors(block).iter().any(|e| e.kind == EdgeKind::FallThrough);
            on || self.calls_in(block).last().is_some_and(|c| c.kind == CallKind::FallThrough)
        };
        let i = self.by_address.partition_point(|&b| self.block(b).start < end);
        match self.by_address.get(i).map(|&b| self.block(b).start) {
            Some(next) if next > end && falls() => end..next,
            _ => end..end,
        }
    }
    /// How many instructions run with each execution of `block`: its own, and the padding that it always runs
    /// through at its end.
    pub fn n_insns_run(&self, block: BlockId) -> u64 {
        let own = self.block(block);
        let behind = match own.end {
            BlockEnd::FallThrough => self.n_insns_in(&self.padding_behind(block)),
            _ => 0,
        };
        u64::from(own.n_insns) + behind
    }
    /// How many instructions the code in `range` has, from its first byte on.
    pub fn n_insns_in(&self, range: &Range<Va>) -> u64 {
        self.insns_in(range).count() as u64
    }
    /// The instructions in `range`, from its first byte on.
    pub fn insns_in(&self, range: &Range<Va>) -> impl Iterator<Item = Insn> + use<'_> {
        let bytes = if range.is_empty() { None } else { self.image.bytes_in(range) };
        Decoder::new(bytes.unwrap_or_default(), range.start)
    }
    /// The instructions of `block`, decoded anew.
    pub fn insns(&self, block: BlockId) -> impl Iterator<Item = Insn> + use<'_> {
        let block = self.block(block);
        let bytes = self.image.bytes_in(&block.range()).unwrap_or_default();
        Decoder::new(bytes, block.start)
    }
    /// A decoder for the instructions of many blocks: see [`Instructions`].
    pub fn instructions(&self) -> Instructions<'_> {
        Instructions { program: self, decoder: Decoder::new(&[], Va(0)), end: Va(0), is_cut: false }
    }
}

/// The instructions of one block after the other, as [`Program::insns`] has them; for blocks that stand near
/// each other the decoder is made once.
pub struct Instructions<'a> {
    program: &'a Program,
    decoder: Decoder<'a>,
    end: Va,
    /// Whether the decoder has the bytes of this block alone.
    is_cut: bool,
}

impl Instructions<'_> {
    /// Goes to the start of `block`.
    pub fn seek(&mut self, block: BlockId) {
        let block = self.program.block(block);
        self.end = block.end_va();
        if self.is_cut || self.decoder.seek(block.start).is_none() {
            self.is_cut = false;
            let bytes = self.program.image.bytes_from(block.start).unwrap_or_default();
            self.decoder = Decoder::new(bytes, block.start);
        }
    }

    /// The next instruction and its address, as [`Decoder::quick`] tells; `None` at the end of the block, or
    /// where the instruction needs the full decoder (then `next` gives it).
    pub fn quick(&mut self) -> Option<(Va, Quick)> {
        let at = self.decoder.at();
        let quick = self.decoder.quick()?;
        if at.plus(u64::from(quick.len)) > self.end {
            return None;
        }
        self.decoder.pass(&quick);
        Some((at, quick))
    }
}

impl Iterator for Instructions<'_> {
    type Item = Insn;
    fn next(&mut self) -> Option<Insn> {
        let at = self.decoder.at();
        if at >= self.end {
            return None;
        }
        let insn = self.decoder.next()?;
        if insn.end() <= self.end || self.is_cut {
            return Some(insn);
        }
        // Code that runs on across the end of its block: there is no more than the block.
        self.is_cut = true;
        self.decoder = Decoder::new(self.program.image.bytes_in(&(at..self.end)).unwrap_or_default(), at);
        self.decoder.next()
    }
}

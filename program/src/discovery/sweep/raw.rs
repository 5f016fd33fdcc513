//! What a sweep of code finds before functions are known: raw blocks, calls, tables, references.
//!
//! Addresses are [`Rel`]: 32 bits above the image's lowest one, since there are many of them.

use crate::addr::Va;
use crate::arch::Insn;
use crate::image::Image;
use crate::model::{Sure, Unread};
use std::ops::Range;

/// An address, in bytes above [`Space::base`].
pub type Rel = u32;

/// No address.
pub const NOWHERE: Rel = Rel::MAX;

/// The addresses of one image as 32-bit numbers.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Its lowest address.
    pub base: u64,
}

impl Space {
    /// From the lowest segment on.
    pub fn of(image: &Image) -> Space {
        Space { base: image.segments.iter().map(|s| s.range.start.0).min().unwrap_or(0) }
    }
    /// The short form of `va`; [`NOWHERE`] if it is too far away.
    pub fn rel(self, va: Va) -> Rel {
        Rel::try_from(va.0.wrapping_sub(self.base)).unwrap_or(NOWHERE)
    }
    /// The full form of `rel`.
    pub fn va(self, rel: Rel) -> Va {
        Va(self.base.wrapping_add(u64::from(rel)))
    }
}

/// A block before its function is known.
#[derive(Clone, Copy, Debug)]
pub struct RawBlock {
    pub start: Rel,
    pub len: u32,
    /// The target of its last instruction, if that is a direct jump or branch.
    pub target: Rel,
    pub n_insns: u32,
    pub last_len: u8,
    pub end: RawEnd,
    /// Whether a jump, a table or a landing pad leads to it, as far as its own region knows.
    pub targeted: bool,
}

impl RawBlock {
    pub fn end_rel(&self) -> Rel {
        self.start + self.len
    }
    pub fn last(&self) -> Rel {
        self.end_rel() - Rel::from(self.last_len)
    }
    pub fn contains(&self, at: Rel) -> bool {
        self.start <= at && at < self.end_rel()
    }
}

/// How a raw block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawEnd {
    FallThrough,
    Jump,
    Branch,
    /// Through a table.
    Switch,
    /// Out of the function, through a register or memory.
    IndirectTailCall,
    Unresolved(Unread),
    Return,
    NoReturn,
    Stop,
    Broken,
}

impl RawEnd {
    pub fn falls_through(self) -> bool {
        matches!(self, RawEnd::FallThrough | RawEnd::Branch)
    }
}

/// A call, or an indirect jump out of a function.
#[derive(Clone, Copy, Debug)]
pub struct RawCall {
    pub at: Rel,
    /// The callee, or the slot that holds it, or nothing.
    pub target: Rel,
    pub len: u8,
    pub transfer: Transfer,
}

impl RawCall {
    pub fn end(&self) -> Rel {
        self.at + Rel::from(self.len)
    }
}

/// What the target of a [`RawCall`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    Direct,
    /// An indirect call through the slot at `target`.
    Slot,
    /// An indirect call.
    Indirect,
    /// An indirect jump through the slot at `target`.
    JumpSlot,
    /// An indirect jump.
    JumpIndirect,
}

impl Transfer {
    /// Whether it is a call, not a jump.
    pub fn is_call(self) -> bool {
        matches!(self, Transfer::Direct | Transfer::Slot | Transfer::Indirect)
    }
}

/// A jump table, or a table of labels.
#[derive(Clone, Debug)]
pub struct RawTable {
    pub at: Va,
    pub entry_len: u8,
    /// The jump that uses it.
    pub jump: Rel,
    /// What its entries count from, if that is not its own address.
    pub anchor: Option<Va>,
    pub targets: Box<[Rel]>,
    pub sure: Sure,
}

/// A place that was taken for an address of something, and what it names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    pub to: Rel,
    pub from: Rel,
}

/// A place that the instruction at `from` refers to as data.
#[derive(Clone, Copy, Debug)]
pub struct DataRef {
    pub to: Rel,
    pub from: Rel,
    /// Width of the access in bytes; 0 if only the address is taken.
    pub size: u8,
}

/// What kind of region it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// A PLT stub: index into the image's list.
    Plt(u32),
    /// Code before the stubs of a PLT.
    PltHeader,
    /// An unwind range. Whether it starts with the stack as it is at a function's entry.
    Unwind { at_entry: bool },
    /// A symbol with a size.
    Symbol,
    /// Code that no table or symbol claims.
    Gap,
}

/// A run of code to sweep.
#[derive(Clone, Debug)]
pub struct Region {
    pub range: Range<Rel>,
    pub kind: RegionKind,
}

/// What the sweep of some regions found; all lists by address.
#[derive(Clone, Default, Debug)]
pub struct Swept {
    pub blocks: Vec<RawBlock>,
    pub calls: Vec<RawCall>,
    pub tables: Vec<RawTable>,
    /// Code whose address an instruction takes.
    pub code_refs: Vec<Reference>,
    /// Data that instructions name. Sorted, without repeats.
    pub data_refs: Vec<Rel>,
    /// The same with the instructions, including code that is accessed as data; by instruction.
    pub marks: Vec<DataRef>,
    /// Bytes that do not decode.
    pub broken: Vec<Range<Rel>>,
    /// Targets of jumps in the middle of instructions.
    pub overlaps: Vec<Rel>,
    /// Instructions that cannot be moved.
    pub fixed: Vec<Rel>,
    /// How many jumps of functions whose ranges are known were not understood.
    pub left: usize,
}

/// What sweeps know of the whole image.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub image: &'a Image,
    pub space: Space,
    /// Runs of code, by address.
    pub code: &'a [Range<Rel>],
    /// Landing pads, sorted.
    pub pads: &'a [Rel],
    /// Starts of ranges that begin in the middle of a function (cold parts), sorted.
    pub parts: &'a [Range<Rel>],
    /// Data that instructions anywhere name, where that is known already.
    pub data_refs: &'a [Rel],
    /// Where code of one region leads into another one, sorted, where that is known already.
    pub entered: &'a [Rel],
    /// Calls that do not return, sorted, where that is known already.
    pub never: &'a [Rel],
    /// Whether this is not the first sweep, which knows nothing of these three.
    pub is_again: bool,
}

impl Context<'_> {
    /// From the first byte of code to the last.
    pub fn span(&self) -> Range<Rel> {
        self.code.first().map_or(0, |r| r.start)..self.code.last().map_or(0, |r| r.end)
    }
    pub fn is_code(&self, at: Rel) -> bool {
        let i = self.code.partition_point(|r| r.end <= at);
        self.code.get(i).is_some_and(|r| r.contains(&at))
    }
    /// Whether `at` lies in a part that belongs to some other range's function.
    pub fn in_part(&self, at: Rel) -> bool {
        let i = self.parts.partition_point(|r| r.end <= at);
        self.parts.get(i).is_some_and(|r| r.contains(&at))
    }
}

/// The instruction at `at`.
pub fn decode_at(cx: &Context<'_>, at: Rel) -> Option<Insn> {
    let va = cx.space.va(at);
    let bytes = cx.image.bytes_from(va)?;
    crate::arch::decode(&bytes[..bytes.len().min(15)], va)
}

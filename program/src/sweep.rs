//! Linear decoding of one region of code to raw blocks, calls, and references: the only full decoding of the
//! file.
//!
//! Invariant: a raw block knows nothing of functions. Blocks start at the region's start, after what ends a
//! block, and where a jump, a table or a landing pad of the region leads; padding that nothing leads to is in
//! none. Addresses are [`Rel`]: 32 bits above the image's lowest one, since there are many of them.
//!
//! Not here: who owns the blocks (`discover`, `gaps`), what crosses regions (`cfg`).

use crate::addr::Va;
use crate::arch::emit::Position;
use crate::arch::{Decoder, Flow, Insn, LOCK, Operand};
use crate::image::Image;
use crate::model::Sure;
use crate::tables;
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

/// What an instruction does to the flow of control, in a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Next,
    Nop,
    Jump,
    Branch,
    JumpIndirect,
    Call,
    CallIndirect,
    Return,
    /// `ud2`, `hlt`.
    Stop,
    /// `int3`: stops, and fills space.
    Trap,
    Invalid,
}

impl Kind {
    pub fn falls_through(self) -> bool {
        matches!(self, Kind::Next | Kind::Nop | Kind::Branch | Kind::Call | Kind::CallIndirect)
    }
    pub fn ends_block(self) -> bool {
        !matches!(self, Kind::Next | Kind::Nop | Kind::Call | Kind::CallIndirect)
    }
    fn of(insn: &Insn) -> (Kind, Option<Va>) {
        match insn.flow() {
            Flow::Next if insn.is_nop() => (Kind::Nop, None),
            Flow::Next => (Kind::Next, None),
            Flow::Jump(to) => (Kind::Jump, Some(to)),
            Flow::Branch(to) => (Kind::Branch, Some(to)),
            Flow::JumpIndirect => (Kind::JumpIndirect, None),
            Flow::Call(to) => (Kind::Call, Some(to)),
            Flow::CallIndirect => (Kind::CallIndirect, None),
            Flow::Return => (Kind::Return, None),
            Flow::Stop if insn.is_padding() => (Kind::Trap, None),
            Flow::Stop => (Kind::Stop, None),
            Flow::Invalid => (Kind::Invalid, None),
        }
    }
}

/// An instruction, as little of it as blocks need.
#[derive(Clone, Copy, Debug)]
pub struct Lite {
    pub at: Rel,
    /// Of a direct jump, branch or call.
    pub target: Rel,
    pub len: u8,
    pub kind: Kind,
}

impl Lite {
    pub fn end(&self) -> Rel {
        self.at + Rel::from(self.len)
    }
}

/// A block before its function is known.
#[derive(Clone, Copy, Debug)]
pub struct RawBlock {
    pub start: Rel,
    pub len: u32,
    /// Of its last instruction, if that is a direct jump or branch.
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
    Unresolved,
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
    pub how: How,
}

impl RawCall {
    pub fn end(&self) -> Rel {
        self.at + Rel::from(self.len)
    }
}

/// What the target of a [`RawCall`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
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

impl How {
    /// Whether it is a call, not a jump.
    pub fn is_call(self) -> bool {
        matches!(self, How::Direct | How::Slot | How::Indirect)
    }
}

/// A jump table, or a table of labels.
#[derive(Clone, Debug)]
pub struct RawTable {
    pub at: Va,
    pub entry_len: u8,
    /// The jump that uses it.
    pub jump: Rel,
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
    /// Code that nothing speaks of.
    Gap,
}

/// A run of code to sweep.
#[derive(Clone, Debug)]
pub struct Region {
    pub range: Range<Rel>,
    pub kind: RegionKind,
}

/// What the sweep of some regions found; all lists by address.
#[derive(Default, Debug)]
pub struct Swept {
    pub blocks: Vec<RawBlock>,
    pub calls: Vec<RawCall>,
    pub tables: Vec<RawTable>,
    /// Code whose address an instruction takes.
    pub code_refs: Vec<Reference>,
    /// Data that instructions name. Sorted, without repeats.
    pub data_refs: Vec<Rel>,
    /// The same with the instructions, and code that is accessed as data too: by instruction.
    pub marks: Vec<DataRef>,
    /// Bytes that do not decode.
    pub broken: Vec<Range<Rel>>,
    /// Targets of jumps in the middle of instructions.
    pub overlaps: Vec<Rel>,
    /// Instructions that cannot be moved.
    pub fixed: Vec<Rel>,
}

/// Bits for the bytes of a region.
#[derive(Default)]
pub struct Bits {
    from: Rel,
    words: Vec<u64>,
}

impl Bits {
    fn reset(&mut self, range: &Range<Rel>) {
        self.from = range.start;
        self.words.clear();
        self.words.resize((range.end - range.start) as usize / 64 + 1, 0);
    }
    pub fn set(&mut self, at: Rel) {
        let i = (at - self.from) as usize;
        self.words[i / 64] |= 1 << (i % 64);
    }
    pub fn get(&self, at: Rel) -> bool {
        let i = at.wrapping_sub(self.from) as usize;
        self.words.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }
}

/// The addresses `all`, sorted and without repeats. Those in `span`, where most lie, are not compared with
/// each other.
pub fn sorted(all: &[Rel], span: &Range<Rel>) -> Vec<Rel> {
    let mut found = Vec::new();
    let is_worth_it = all.len() >= (span.end.saturating_sub(span.start) / 256) as usize;
    if !is_worth_it {
        found.extend_from_slice(all);
        found.sort_unstable();
        found.dedup();
        return found;
    }
    let mut bits = Bits::default();
    bits.reset(span);
    let mut above: Vec<Rel> = Vec::new();
    for &at in all {
        match at {
            _ if span.contains(&at) => bits.set(at),
            _ if at < span.start => found.push(at),
            _ => above.push(at),
        }
    }
    for rest in [&mut found, &mut above] {
        rest.sort_unstable();
        rest.dedup();
    }
    for (i, &word) in (0..).zip(&bits.words) {
        let mut word = word;
        while word != 0 {
            found.push(span.start + 64 * i + word.trailing_zeros());
            word &= word - 1;
        }
    }
    found.append(&mut above);
    found
}

/// What sweeps know of the whole image.
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

/// Room for the work on one region, used again for the next.
#[derive(Default)]
pub struct Sweeper {
    pub insns: Vec<Lite>,
    pub starts: Bits,
    pub leaders: Bits,
    jumps: Vec<u32>,
    sync: Vec<Rel>,
    /// Constant addresses that are put into registers: instruction's index.
    pub bases: Vec<u32>,
    /// Jumps and branches of the region by target: (target, index), made when a slice needs it.
    pub sources: Vec<(Rel, u32)>,
    sources_made: bool,
    /// Data that the region names, sorted, made when a table needs it.
    refs: Vec<Rel>,
    refs_made: bool,
}

impl Sweeper {
    /// Sweeps `region` and appends what it finds to `out`.
    pub fn sweep(&mut self, cx: &Context<'_>, region: &Region, out: &mut Swept) {
        let range = region.range.clone();
        let va = cx.space.va(range.start)..cx.space.va(range.end);
        let Some(bytes) = cx.image.bytes_in(&va) else { return };
        let (code_refs, data_refs) = (out.code_refs.len(), out.data_refs.len());
        let (calls, broken, overlaps) = (out.calls.len(), out.broken.len(), out.overlaps.len());
        let (marks, rooted) = (out.marks.len(), out.fixed.len());
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
        self.sources_made = false;
        self.refs_made = false;
        for k in 0..self.jumps.len() {
            let i = self.jumps[k];
            let jump = self.insns[i as usize];
            let refs = data_refs..out.data_refs.len();
            match tables::resolve(cx, self, &range, i, out, refs, region.kind == RegionKind::Gap) {
                tables::Resolved::Table => self.insns[i as usize].target = 0,
                tables::Resolved::Unresolved => self.insns[i as usize].target = 1,
                tables::Resolved::Out => {
                    let slot = decode_at(cx, jump.at).and_then(|insn| slot(cx, &insn));
                    let how = if slot.is_some() { How::JumpSlot } else { How::JumpIndirect };
                    out.calls.push(RawCall {
                        at: jump.at,
                        target: slot.unwrap_or(NOWHERE),
                        len: jump.len,
                        how,
                    });
                }
            }
        }
        if !self.jumps.is_empty() {
            out.calls[calls..].sort_unstable_by_key(|c| c.at);
        }
        self.blocks(region, out);
    }

    fn decode(&mut self, cx: &Context<'_>, region: &Region, bytes: &[u8], out: &mut Swept) {
        let range = &region.range;
        let fixed = !cx.image.kind.is_relocated();
        self.insns.clear();
        self.jumps.clear();
        self.bases.clear();
        self.starts.reset(range);
        let mut sync = 0;
        let mut decoder = Decoder::new(bytes, cx.space.va(range.start));
        let mut at = range.start;
        loop {
            if let Some(to) = self.zeros(region, bytes, at) {
                self.insns.push(Lite { at, target: NOWHERE, len: 1, kind: Kind::Invalid });
                at = to;
                decoder = Decoder::new(&bytes[(at - range.start) as usize..], cx.space.va(at));
            }
            if self.sync.is_empty()
                && let Some(quick) = decoder.quick()
                && !(fixed && quick.is_wide)
            {
                decoder.pass(&quick);
                if let Some(place) = quick.place(cx.space.va(at)) {
                    let index = u32::try_from(self.insns.len()).unwrap_or(u32::MAX);
                    self.refer(cx, place, at, index, quick.size == 0, out);
                    self.mark(cx, place, at, quick.size, out);
                }
                let (kind, target) = match quick.flow {
                    Flow::Jump(to) => (Kind::Jump, cx.space.rel(to)),
                    Flow::Branch(to) => (Kind::Branch, cx.space.rel(to)),
                    Flow::Call(to) => (Kind::Call, cx.space.rel(to)),
                    Flow::Return => (Kind::Return, NOWHERE),
                    _ => (Kind::Next, NOWHERE),
                };
                if kind == Kind::Call {
                    out.calls.push(RawCall { at, target, len: quick.len, how: How::Direct });
                }
                self.starts.set(at);
                self.insns.push(Lite { at, target, len: quick.len, kind });
                at += Rel::from(quick.len);
                continue;
            }
            if self.sync.is_empty()
                && let Some(len) = decoder.pass_nop()
            {
                self.starts.set(at);
                self.insns.push(Lite { at, target: NOWHERE, len, kind: Kind::Nop });
                at += Rel::from(len);
                continue;
            }
            let Some(insn) = decoder.next() else { break };
            let mut len = u8::try_from(insn.len_bytes()).unwrap_or(15);
            let (mut kind, target) = Kind::of(&insn);
            if self.sync.get(sync).is_some_and(|&s| s <= at) {
                sync += 1;
            }
            if let Some(&s) = self.sync.get(sync)
                && s < at + Rel::from(len)
                && s > at
            {
                len = u8::try_from(s - at).unwrap_or(1);
                kind = Kind::Invalid;
                let skip = (s - range.start) as usize;
                decoder = Decoder::new(&bytes[skip..], cx.space.va(s));
            }
            let index = u32::try_from(self.insns.len()).unwrap_or(u32::MAX);
            let target = target.map_or(NOWHERE, |t| cx.space.rel(t));
            match kind {
                Kind::Next => {
                    let place = if fixed { insn.place() } else { insn.relative_place() };
                    if let Some(place) = place {
                        self.refer(cx, place, at, index, insn.makes_address(), out);
                    }
                    if fixed && let Some(place) = insn.wide_immediate() {
                        self.refer(cx, place, at, index, insn.makes_address(), out);
                    }
                }
                Kind::Call => out.calls.push(RawCall { at, target, len, how: How::Direct }),
                Kind::CallIndirect => {
                    let slot = slot(cx, &insn);
                    let how = if slot.is_some() { How::Slot } else { How::Indirect };
                    out.calls.push(RawCall { at, target: slot.unwrap_or(NOWHERE), len, how });
                }
                Kind::JumpIndirect => {
                    self.jumps.push(index);
                    let place = if fixed { insn.place() } else { insn.relative_place() };
                    if let Some(place) = place {
                        self.refer(cx, place, at, index, insn.makes_address(), out);
                    }
                }
                Kind::Invalid => match out.broken.last_mut() {
                    Some(last) if last.end == at => last.end = at + Rel::from(len),
                    _ => out.broken.push(at..at + Rel::from(len)),
                },
                _ => {}
            }
            if !matches!(kind, Kind::Nop | Kind::Invalid) {
                let from = (at - range.start) as usize;
                let own = bytes.get(from..from + usize::from(len)).unwrap_or_default();
                if decoder.position_of(&insn, own) == Position::Fixed {
                    out.fixed.push(at);
                }
                for (to, size) in insn.refers_to(fixed).into_iter().flatten() {
                    self.mark(cx, to, at, size, out);
                }
            }
            self.starts.set(at);
            self.insns.push(Lite { at, target, len, kind });
            at += Rel::from(len);
        }
    }

    /// Notes that the instruction at `from` names `place`; whether it puts that address into a register.
    /// The end of a run of zeros at `at`, where nothing runs into it: some compilers and linkers fill space
    /// so. Only in gaps: what unwind tables or symbols claim is code, whatever it looks like.
    fn zeros(&self, region: &Region, bytes: &[u8], at: Rel) -> Option<Rel> {
        let last = self.insns.last()?;
        if region.kind != RegionKind::Gap || last.kind.falls_through() || last.kind == Kind::Invalid {
            return None;
        }
        let rest = bytes.get((at - region.range.start) as usize..)?;
        let named =
            self.sync.get(self.sync.partition_point(|&s| s < at)).map_or(usize::MAX, |&s| (s - at) as usize);
        let n = rest.iter().take(named).take_while(|&&b| b == 0).count();
        let to = at + Rel::try_from(n).ok()?;
        (n > 1 || n == 1 && to.is_multiple_of(16)).then_some(to)
    }

    fn refer(&mut self, cx: &Context<'_>, place: Va, from: Rel, index: u32, is_made: bool, out: &mut Swept) {
        let to = cx.space.rel(place);
        if to == NOWHERE {
            return;
        }
        if cx.is_code(to) {
            out.code_refs.push(Reference { to, from });
        } else if cx.image.segment_at(place).is_some() {
            out.data_refs.push(to);
            if is_made {
                self.bases.push(index);
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
        self.leaders.reset(range);
        for insn in &mut self.insns {
            if matches!(insn.kind, Kind::Jump | Kind::Branch) && range.contains(&insn.target) {
                let lock = insn.target.wrapping_sub(1);
                if self.starts.get(insn.target) {
                    self.leaders.set(insn.target);
                } else if self.starts.get(lock) && is_locked(cx, lock) {
                    // To the same instruction, not atomic: one block.
                    insn.target = lock;
                    self.leaders.set(lock);
                } else {
                    out.overlaps.push(insn.target);
                }
            }
        }
        let pads = cx.pads.partition_point(|&p| p < range.start);
        for &pad in cx.pads[pads..].iter().take_while(|&&p| p < range.end) {
            if self.starts.get(pad) {
                self.leaders.set(pad);
            }
        }
    }

    /// The first address above `at` that is in `named` or that the whole image is known to name.
    pub fn next_ref(&mut self, cx: &Context<'_>, at: Rel, named: &[Rel]) -> Rel {
        if !self.refs_made {
            self.refs.clear();
            self.refs.extend_from_slice(named);
            self.refs.sort_unstable();
            self.refs_made = true;
        }
        let next = |all: &[Rel]| all.get(all.partition_point(|&r| r <= at)).copied().unwrap_or(NOWHERE);
        next(&self.refs).min(next(cx.data_refs))
    }

    /// Makes [`Self::sources`].
    pub fn make_sources(&mut self) {
        if !self.sources_made {
            self.sources.clear();
            for (i, insn) in self.insns.iter().enumerate() {
                if matches!(insn.kind, Kind::Jump | Kind::Branch) && self.leaders.get(insn.target) {
                    self.sources.push((insn.target, u32::try_from(i).unwrap_or(u32::MAX)));
                }
            }
            self.sources.sort_unstable();
            self.sources_made = true;
        }
    }

    /// Indices of the direct jumps and branches to `at`.
    pub fn sources_of(&self, at: Rel) -> &[(Rel, u32)] {
        let from = self.sources.partition_point(|s| s.0 < at);
        let len = self.sources[from..].iter().take_while(|s| s.0 == at).count();
        &self.sources[from..from + len]
    }

    /// Cuts the instructions into blocks.
    fn blocks(&self, region: &Region, out: &mut Swept) {
        let insns = self.insns.as_slice();
        let starts_here = region.kind != RegionKind::Gap;
        // gcc starts a cold part with a no-operation when a landing pad comes first: at offset 0 it would
        // count as none. It is a block of its own, until it is known whether anything leads there.
        let part = region.kind == RegionKind::Unwind { at_entry: false };
        let mut fallen_into = false;
        let mut i = 0;
        while let Some(first) = insns.get(i) {
            let entered = self.leaders.get(first.at) || starts_here && i == 0;
            let skip = match first.kind {
                Kind::Invalid => true,
                Kind::Nop => !entered,
                Kind::Trap => !entered && !fallen_into,
                _ => false,
            };
            if skip {
                fallen_into &= first.kind == Kind::Nop;
                i += 1;
                continue;
            }
            let from = i;
            let mut broken = false;
            let alone = part && i == 0 && first.kind == Kind::Nop;
            while !insns[i].kind.ends_block() {
                match insns.get(i + 1) {
                    Some(next) if next.kind == Kind::Invalid => broken = true,
                    Some(next) if alone && next.kind != Kind::Nop => {}
                    Some(next) if !self.leaders.get(next.at) => {
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
            while to > from + 1 && insns[to - 1].kind == Kind::Nop {
                to -= 1;
            }
            let to = if insns[from..to].iter().all(|i| i.kind == Kind::Nop) { i } else { to };
            self.push_block(&insns[from..to], broken, entered, out);
        }
    }

    fn push_block(&self, insns: &[Lite], broken: bool, targeted: bool, out: &mut Swept) {
        let (Some(first), Some(last)) = (insns.first(), insns.last()) else { return };
        let end = match last.kind {
            _ if broken => RawEnd::Broken,
            Kind::Next | Kind::Nop | Kind::Call | Kind::CallIndirect => RawEnd::FallThrough,
            Kind::Jump => RawEnd::Jump,
            Kind::Branch => RawEnd::Branch,
            Kind::JumpIndirect => match last.target {
                0 => RawEnd::Switch,
                1 => RawEnd::Unresolved,
                _ => RawEnd::IndirectTailCall,
            },
            Kind::Return => RawEnd::Return,
            Kind::Stop | Kind::Trap => RawEnd::Stop,
            Kind::Invalid => RawEnd::Broken,
        };
        let direct = matches!(last.kind, Kind::Jump | Kind::Branch);
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

/// The instruction at `at`.
pub fn decode_at(cx: &Context<'_>, at: Rel) -> Option<Insn> {
    let va = cx.space.va(at);
    let bytes = cx.image.bytes_from(va)?;
    crate::arch::decode(&bytes[..bytes.len().min(15)], va)
}

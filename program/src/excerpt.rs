//! An [`Excerpt`]: what is kept of a program beside the counts of a run, so that the run can be looked at
//! when the file is gone or was built anew: the functions that ran, with their code and source lines.
//!
//! Invariant: [`Excerpt::into_program`] gives a [`Program`] that holds those functions alone, and says of
//! each what the program said that it was taken from: the same blocks, edges, calls, bytes and lines, under
//! other ids. Functions that are called from there, and are none of them, have names and no blocks.
//!
//! Not here: which functions are taken, and where excerpts are written (`measure`, `profile`).
#![warn(clippy::indexing_slicing)]

mod catalogue;
mod lines;
mod program;

pub use catalogue::Catalogue;
pub use lines::KnownLines;

use crate::addr::Va;
use crate::ids::FuncId;
use crate::image::{Image, Kind, PltStub, Section, Segment, Symbol};
use crate::model::{BlockEnd, CallKind, Callee, EdgeKind, Gap, Origin, Program, Remark, Sure};
use crate::recorded_lines::RecordedLines;
use lines::lines_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Why an excerpt is no program.
#[derive(Debug, thiserror::Error)]
#[error("the excerpt of {name} contradicts itself: {what} at {at}")]
pub struct ExcerptError {
    /// The image.
    pub name: String,
    /// What is wrong.
    pub what: &'static str,
    /// Near which address.
    pub at: Va,
}

/// A part of a program: see the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Excerpt {
    image: ImageHead,
    /// By entry.
    functions: BTreeMap<u64, Part>,
    /// Code, by address, without overlaps.
    code: BTreeMap<u64, Vec<u8>>,
    lines: RecordedLines,
}

/// What is known of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ImageHead {
    name: String,
    id: u128,
    build_id: Option<Vec<u8>>,
    kind: Kind,
    entry: Option<Va>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    code: Vec<Range<Va>>,
    libc_imports: Vec<Box<str>>,
    compilers: Vec<String>,
}

/// A function; without blocks, it is only called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Part {
    names: Box<[Box<str>]>,
    ranges: Box<[Range<Va>]>,
    origin: Origin,
    sure: Sure,
    returns: bool,
    import: Option<Box<str>>,
    stub: Option<PltStub>,
    symbols: Vec<Symbol>,
    complete: bool,
    gaps: Vec<Gap>,
    blocks: Vec<PartBlock>,
    /// Indices of blocks that are entered from outside.
    entries: Vec<u32>,
    remark: Remark,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct PartBlock {
    /// From the entry.
    start: u64,
    len_bytes: u32,
    last: u32,
    n_insns: u32,
    end: BlockEnd,
    landing_pad: bool,
    /// Index of the block that it leads to, by index.
    edges: Vec<(u32, EdgeKind, Sure)>,
    calls: Vec<PartCall>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct PartCall {
    /// From the block's start.
    at: u32,
    kind: CallKind,
    callee: PartCallee,
    returns: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum PartCallee {
    Function(Va),
    Import(Box<str>),
    Unknown(Va),
    Indirect,
}

impl Excerpt {
    /// The functions `ran` of `program`, those that they run on into, and the names of those that they call
    /// and of `others`; with what is to be remarked of each. `lines` are the image's.
    pub fn of(
        program: &Program,
        ran: &BTreeSet<FuncId>,
        others: impl IntoIterator<Item = FuncId>,
        remark: impl Fn(FuncId) -> Remark,
        lines: Option<&crate::lines::Lines>,
    ) -> Excerpt {
        let ran = with_what_they_run_into(program, ran);
        let mut named: BTreeSet<FuncId> = others.into_iter().collect();
        for &id in &ran {
            for b in program.function(id).block_ids() {
                let callees = program.calls_in(b).iter().filter_map(|call| match call.callee {
                    Callee::Function(callee) => Some(callee),
                    Callee::Import(_) | Callee::Unknown(_) | Callee::Indirect => None,
                });
                named.extend(callees);
            }
        }
        named.retain(|id| !ran.contains(id));
        let parts = Parts::of(program, ran.iter().chain(&named));
        let part = |id: FuncId, has_blocks: bool| {
            let mut part = parts.head(id, remark(id));
            if has_blocks {
                parts.fill(id, &mut part);
            }
            (program.function(id).entry.0, part)
        };
        let with_blocks = ran.iter().map(|&id| part(id, true));
        let functions = with_blocks.chain(named.iter().map(|&id| part(id, false))).collect();
        Excerpt {
            image: ImageHead::of(&program.image),
            functions,
            code: pieces(&program.image, ran.iter().flat_map(|&id| code(program, id)).collect()),
            lines: lines.map(|lines| lines_of(program, &ran, lines)).unwrap_or_default(),
        }
    }

    /// The image's name.
    pub fn name(&self) -> &str {
        &self.image.name
    }

    /// Whether any of its code has source lines.
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Adds what `other`, of the same image, has more: of a run in which other functions ran.
    pub fn add(&mut self, other: Excerpt) {
        if self.image.id != other.image.id {
            return;
        }
        for (entry, part) in other.functions {
            match self.functions.get(&entry) {
                Some(own) if !own.blocks.is_empty() || part.blocks.is_empty() => {}
                _ => drop(self.functions.insert(entry, part)),
            }
        }
        let mut pieces = std::mem::take(&mut self.code).into_iter().chain(other.code).collect::<Vec<_>>();
        pieces.sort_by_key(|(at, _)| *at);
        for (at, bytes) in pieces {
            put_code(&mut self.code, at, &bytes);
        }
        self.lines = self.lines.with(&other.lines);
    }
}

/// Those of `ran`, and the functions that these run on into without a jump.
fn with_what_they_run_into(program: &Program, ran: &BTreeSet<FuncId>) -> BTreeSet<FuncId> {
    let mut all = ran.clone();
    let mut left: Vec<FuncId> = ran.iter().copied().collect();
    while let Some(id) = left.pop() {
        for b in program.function(id).block_ids() {
            for call in program.calls_in(b) {
                if let (CallKind::FallThrough, Callee::Function(next)) = (call.kind, call.callee)
                    && all.insert(next)
                {
                    left.push(next);
                }
            }
        }
    }
    all
}

/// Function symbols in each of `functions`.
fn symbols_of<'a>(
    program: &Program,
    functions: impl Iterator<Item = &'a FuncId>,
) -> BTreeMap<FuncId, Vec<Symbol>> {
    let mut ranges: BTreeMap<Va, (Va, FuncId)> = BTreeMap::new();
    for &id in functions {
        ranges.extend(program.function(id).ranges.iter().map(|r| (r.start, (r.end, id))));
    }
    let mut found: BTreeMap<FuncId, Vec<Symbol>> = BTreeMap::new();
    for symbol in &program.image.symbols {
        let below = ranges.range(..=symbol.at).next_back();
        if let Some((_, (_, id))) = below.filter(|(_, (end, _))| symbol.at < *end) {
            found.entry(*id).or_default().push(symbol.clone());
        }
    }
    found
}

/// Parts of a program's functions, made one by one.
struct Parts<'a> {
    program: &'a Program,
    symbols: BTreeMap<FuncId, Vec<Symbol>>,
}

impl<'a> Parts<'a> {
    /// Of `functions`.
    fn of<'f>(program: &'a Program, functions: impl Iterator<Item = &'f FuncId>) -> Parts<'a> {
        Parts { program, symbols: symbols_of(program, functions) }
    }

    /// What is kept of a function that is only called.
    fn head(&self, id: FuncId, remark: Remark) -> Part {
        let function = self.program.function(id);
        let plt = &self.program.image.plt;
        let stub = plt.binary_search_by_key(&function.entry, |stub| stub.range.start).ok();
        Part {
            names: function.names.clone(),
            ranges: function.ranges.clone(),
            origin: function.origin,
            sure: function.sure,
            returns: function.returns,
            import: function.import.clone(),
            stub: stub.and_then(|i| plt.get(i)).cloned(),
            symbols: self.symbols.get(&id).cloned().unwrap_or_default(),
            complete: function.complete,
            gaps: Vec::new(),
            blocks: Vec::new(),
            entries: Vec::new(),
            remark,
        }
    }

    /// Adds its blocks, and what was not understood of them.
    fn fill(&self, id: FuncId, part: &mut Part) {
        let function = self.program.function(id);
        part.blocks = blocks(self.program, id);
        let first = function.blocks.start;
        part.entries = function.entries.iter().map(|b| b.0.wrapping_sub(first)).collect();
        let mut ranges: Vec<&Range<Va>> = function.ranges.iter().collect();
        ranges.sort_by_key(|range| range.start);
        part.gaps = ranges.into_iter().flat_map(|range| gaps_in(self.program, range)).cloned().collect();
    }
}

/// Those that start in `range`.
fn gaps_in<'a>(program: &'a Program, range: &Range<Va>) -> &'a [Gap] {
    let before = |at: Va| program.gaps.partition_point(|gap| gap.range.start < at);
    program.gaps.get(before(range.start)..before(range.end)).unwrap_or_default()
}

fn blocks(program: &Program, id: FuncId) -> Vec<PartBlock> {
    let function = program.function(id);
    let index = |b: crate::ids::BlockId| b.0.wrapping_sub(function.blocks.start);
    let call = |start: Va, call: &crate::model::Call| PartCall {
        at: u32::try_from(call.at.since(start)).expect("a call lies in its block"),
        kind: call.kind,
        callee: match call.callee {
            Callee::Function(callee) => PartCallee::Function(program.function(callee).entry),
            Callee::Import(i) => {
                PartCallee::Import(program.imports.get(i as usize).cloned().unwrap_or_default())
            }
            Callee::Unknown(at) => PartCallee::Unknown(at),
            Callee::Indirect => PartCallee::Indirect,
        },
        returns: call.returns,
    };
    let block = |b| {
        let block = program.block(b);
        PartBlock {
            start: block.start.since(function.entry),
            len_bytes: block.len_bytes,
            last: block.last,
            n_insns: block.n_insns,
            end: block.end,
            landing_pad: block.landing_pad,
            edges: program.successors(b).iter().map(|e| (index(e.to), e.kind, e.sure)).collect(),
            calls: program.calls_in(b).iter().map(|c| call(block.start, c)).collect(),
        }
    };
    function.block_ids().map(block).collect()
}

/// Where the code of a function is, and the padding that it runs through.
fn code(program: &Program, id: FuncId) -> Vec<Range<Va>> {
    let function = program.function(id);
    let padding = function.block_ids().map(|b| program.padding_behind(b)).filter(|range| !range.is_empty());
    function.ranges.iter().cloned().chain(padding).collect()
}

/// The bytes in `ranges`.
fn pieces(image: &Image, mut ranges: Vec<Range<Va>>) -> BTreeMap<u64, Vec<u8>> {
    let mut pieces = BTreeMap::new();
    ranges.sort_by_key(|range| range.start);
    for range in ranges {
        if let Some(bytes) = image.bytes_in(&range) {
            put_code(&mut pieces, range.start.0, bytes);
        }
    }
    pieces
}

/// Adds a piece, which starts behind the start of all others; what touches becomes one.
fn put_code(pieces: &mut BTreeMap<u64, Vec<u8>>, at: u64, bytes: &[u8]) {
    if let Some((start, last)) = pieces.iter_mut().next_back()
        && let Some(into) = at.checked_sub(*start)
        && into <= last.len() as u64
    {
        let known = (last.len() as u64).saturating_sub(into);
        last.extend(bytes.iter().skip(usize::try_from(known).unwrap_or(usize::MAX)));
        return;
    }
    pieces.insert(at, bytes.to_vec());
}

impl ImageHead {
    fn of(image: &Image) -> ImageHead {
        ImageHead {
            name: image.name.clone(),
            id: image.id.0,
            build_id: image.build_id.clone(),
            kind: image.kind,
            entry: image.entry,
            segments: image.segments.clone(),
            sections: image.sections.clone(),
            code: image.code_ranges(),
            libc_imports: image.libc_imports.clone(),
            compilers: image.compilers.clone(),
        }
    }
}

#[cfg(test)]
mod tests;

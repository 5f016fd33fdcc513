//! From an excerpt back to a program: ids are given anew, and everything that others rely on is checked, for
//! files may be hostile.
#![warn(clippy::indexing_slicing)]

use super::{Excerpt, ExcerptError, ImageHead, Part, PartBlock, PartCallee};
use crate::addr::Va;
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::image::{Image, ImageId, Kept};
use crate::model::{Block, Call, Callee, Edge, Function, Program, Remark};
use crate::recorded_lines::RecordedLines;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Tables of a program, growing.
#[derive(Default)]
struct Tables {
    functions: Vec<Function>,
    blocks: Vec<Block>,
    edges: Vec<Edge>,
    calls: Vec<Call>,
    imports: Vec<Box<str>>,
    /// Where each name stands among the imports.
    places: HashMap<Box<str>, u32>,
}

impl Excerpt {
    /// The program that it is of, as far as it was kept.
    ///
    /// # Errors
    /// If it contradicts itself: blocks that overlap, edges and calls that lead to nothing.
    pub fn into_program(self) -> Result<Program, ExcerptError> {
        let Excerpt { image, functions, code, lines } = self;
        let name = image.name.clone();
        let refuse = |what, at| ExcerptError { name: name.clone(), what, at };
        let ids: BTreeMap<u64, FuncId> =
            functions.keys().enumerate().map(|(n, &entry)| (entry, FuncId::at(n))).collect();
        let mut tables = Tables::default();
        let (mut gaps, mut symbols, mut plt) = (Vec::new(), Vec::new(), Vec::new());
        let mut remarks = BTreeMap::new();
        for (n, (&entry, part)) in functions.iter().enumerate() {
            let of = |what| refuse(what, Va(entry));
            tables.add(Va(entry), FuncId::at(n), part, &ids).map_err(of)?;
            gaps.extend(part.gaps.iter().cloned());
            symbols.extend(part.symbols.iter().cloned());
            plt.extend(part.stub.clone());
            if part.remark != Remark::default() {
                remarks.insert(Va(entry), part.remark.clone());
            }
        }
        let mut by_address: Vec<BlockId> = (0..tables.blocks.len()).map(BlockId::at).collect();
        let start = |b: &BlockId| tables.blocks.get(b.index()).map_or(Va(0), |block| block.start);
        by_address.sort_by_key(start);
        let ordered = by_address.iter().filter_map(|b| tables.blocks.get(b.index())).collect::<Vec<_>>();
        if let Some([_, next]) = ordered.array_windows().find(|[a, b]| a.end_va() > b.start) {
            return Err(refuse("blocks overlap", next.start));
        }
        tables.calls.sort_by_key(|call| call.at);
        gaps.sort_by_key(|gap| gap.range.start);
        plt.sort_by_key(|stub| stub.range.start);
        let image = image.into_image(code, lines, symbols, plt)?;
        Ok(Program::of_excerpt(
            image,
            (tables.functions, tables.blocks, tables.edges, tables.calls, tables.imports),
            gaps,
            by_address,
            remarks,
        ))
    }
}

impl Tables {
    fn add(
        &mut self,
        entry: Va,
        id: FuncId,
        part: &Part,
        ids: &BTreeMap<u64, FuncId>,
    ) -> Result<(), &'static str> {
        let first = self.blocks.len();
        let fits = |n: usize| u32::try_from(n).is_ok();
        if !fits(first + part.blocks.len()) {
            return Err("there are too many blocks");
        }
        if part.ranges.iter().any(|r| r.start > r.end) {
            return Err("a function's range is none");
        }
        let block_id = |n: u32| {
            let is_there = (n as usize) < part.blocks.len();
            is_there.then(|| BlockId::at(first + n as usize)).ok_or("a block is not there")
        };
        for (n, block) in part.blocks.iter().enumerate() {
            let start = entry.plus(block.start);
            if block.last >= block.len_bytes || start.0.checked_add(u64::from(block.len_bytes)).is_none() {
                return Err("a block has no last instruction");
            }
            if self.blocks.get(first..).and_then(<[Block]>::last).is_some_and(|b| b.start >= start) {
                return Err("blocks are not by address");
            }
            let first_edge = EdgeId::at(self.edges.len());
            if !fits(self.edges.len() + block.edges.len()) {
                return Err("there are too many edges");
            }
            for &(to, kind, sure) in &block.edges {
                self.edges.push(Edge { from: BlockId::at(first + n), to: block_id(to)?, kind, sure });
            }
            self.add_calls(block, start, BlockId::at(first + n), ids)?;
            self.blocks.push(Block {
                start,
                len_bytes: block.len_bytes,
                last: block.last,
                n_insns: block.n_insns,
                func: id,
                first_edge,
                end: block.end,
                landing_pad: block.landing_pad,
            });
        }
        let index = |n: usize| u32::try_from(n).expect("it was looked at above");
        self.functions.push(Function {
            entry,
            names: part.names.clone(),
            ranges: part.ranges.clone(),
            blocks: index(first)..index(self.blocks.len()),
            entries: part.entries.iter().map(|&n| block_id(n)).collect::<Result<_, _>>()?,
            origin: part.origin,
            sure: part.sure,
            returns: part.returns,
            import: part.import.clone(),
            cut_from: None,
            complete: part.complete,
        });
        Ok(())
    }

    fn add_calls(
        &mut self,
        block: &PartBlock,
        start: Va,
        id: BlockId,
        ids: &BTreeMap<u64, FuncId>,
    ) -> Result<(), &'static str> {
        for call in &block.calls {
            if call.at >= block.len_bytes {
                return Err("a call is not in its block");
            }
            let callee = match &call.callee {
                PartCallee::Function(entry) => {
                    Callee::Function(*ids.get(&entry.0).ok_or("a function that is called is not there")?)
                }
                PartCallee::Import(name) => Callee::Import(self.import(name)),
                PartCallee::Unknown(at) => Callee::Unknown(*at),
                PartCallee::Indirect => Callee::Indirect,
            };
            let (kind, returns) = (call.kind, call.returns);
            self.calls.push(Call { at: start.plus(u64::from(call.at)), block: id, kind, callee, returns });
        }
        Ok(())
    }

    fn import(&mut self, name: &str) -> u32 {
        if let Some(&n) = self.places.get(name) {
            return n;
        }
        let n = u32::try_from(self.imports.len()).expect("there are fewer than bytes of a file");
        self.imports.push(name.into());
        self.places.insert(name.into(), n);
        n
    }
}

impl ImageHead {
    fn into_image(
        self,
        code: BTreeMap<u64, Vec<u8>>,
        lines: RecordedLines,
        symbols: Vec<crate::image::Symbol>,
        plt: Vec<crate::image::PltStub>,
    ) -> Result<Image, ExcerptError> {
        let mut bytes = Vec::new();
        let mut pieces: Vec<(Range<Va>, usize)> = Vec::new();
        for (at, piece) in code {
            let refuse = |what| ExcerptError { name: self.name.clone(), what, at: Va(at) };
            let end = at.checked_add(piece.len() as u64).ok_or_else(|| refuse("code has no end"))?;
            if pieces.last().is_some_and(|(last, _)| last.end > Va(at)) {
                return Err(refuse("code overlaps"));
            }
            pieces.push((Va(at)..Va(end), bytes.len()));
            bytes.extend(piece);
        }
        let kept = Kept { pieces, lines: (!lines.is_empty()).then(|| Arc::new(lines)) };
        let mut image = Image::of_excerpt(self.name, ImageId(self.id), self.kind, bytes, kept, self.code);
        image.build_id = self.build_id;
        image.entry = self.entry;
        image.segments = self.segments;
        image.sections = self.sections;
        image.libc_imports = self.libc_imports;
        image.compilers = self.compilers;
        image.symbols = symbols;
        image.plt = plt;
        Ok(image)
    }
}

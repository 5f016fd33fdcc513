//! A [`Catalogue`]: what excerpts have of each function of a program, to be taken without analysing the
//! program again, and without reading the functions that are not taken.
//!
//! ```text
//! catalogue = length: u64, little-endian; index, of that length; function*
//! function  = its part, without blocks; its blocks; its entries; its gaps; where its code is
//! ```
//! All as postcard writes it. The file that it is of, with the bytes of the code, is not in it.
#![warn(clippy::indexing_slicing)]

use super::{Excerpt, ExcerptError, ImageHead, Part, PartBlock, PartCallee, Parts, code, pieces};
use crate::addr::Va;
use crate::ids::FuncId;
use crate::image::Image;
use crate::model::{CallKind, Gap, Program, Remark};
use crate::recorded_lines::RecordedLines;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// All functions of a program, one by one: see the module.
pub struct Catalogue {
    bytes: Vec<u8>,
    /// Where the functions start in them.
    first: usize,
    index: Index,
}

#[derive(Serialize, Deserialize)]
struct Index {
    /// By entry.
    functions: Vec<Row>,
    /// Where their code is, and whose it is, by address.
    ranges: Vec<(Range<Va>, u32)>,
}

/// A function.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Row {
    entry: Va,
    /// Where it starts among the functions.
    at: u64,
    is_moved: bool,
}

/// What is known of a function that is called and ran.
#[derive(Serialize, Deserialize)]
struct Body {
    blocks: Vec<PartBlock>,
    entries: Vec<u32>,
    gaps: Vec<Gap>,
    code: Vec<Range<Va>>,
}

impl Catalogue {
    /// Of all functions of `program`, with what is to be remarked of each.
    pub fn of(program: &Program, remark: impl Fn(FuncId) -> Remark + Sync) -> Catalogue {
        let ids: Vec<FuncId> = program.func_ids().collect();
        let parts = Parts::of(program, ids.iter());
        let written = |&id: &FuncId| {
            let mut part = parts.head(id, remark(id));
            let is_moved = part.remark.not_moved.is_none();
            let head = postcard::to_stdvec(&part);
            parts.fill(id, &mut part);
            let Part { blocks, entries, gaps, .. } = part;
            let body = postcard::to_stdvec(&Body { blocks, entries, gaps, code: code(program, id) });
            let [head, body] = [head, body].map(|bytes| bytes.expect("all of it has a form"));
            (is_moved, [head, body].concat())
        };
        let all: Vec<(bool, Vec<u8>)> = ids.par_iter().map(written).collect();
        let (mut functions, mut at) = (Vec::with_capacity(all.len()), 0);
        for (id, (is_moved, bytes)) in ids.iter().zip(&all) {
            functions.push(Row { entry: program.function(*id).entry, at, is_moved: *is_moved });
            at += bytes.len() as u64;
        }
        let of = |id: FuncId| program.function(id).ranges.iter().map(move |range| (range.clone(), id.0));
        let mut ranges: Vec<_> = ids.iter().flat_map(|id| of(*id)).collect();
        ranges.sort_unstable_by_key(|(range, _)| range.start);
        let index = Index { functions, ranges };
        let head = postcard::to_stdvec(&index).expect("all of it has a form");
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head);
        let first = bytes.len();
        all.iter().for_each(|(_, function)| bytes.extend(function));
        Catalogue { bytes, first, index }
    }

    /// As it is written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The one that was written so; `None` if it is none.
    pub fn parse(bytes: Vec<u8>) -> Option<Catalogue> {
        let len = usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()?;
        let first = len.checked_add(8)?;
        let index = postcard::from_bytes(bytes.get(8..first)?).ok()?;
        Some(Catalogue { bytes, first, index })
    }

    /// Where the code of its functions is, by address, and their positions.
    pub fn ranges(&self) -> &[(Range<Va>, u32)] {
        &self.index.ranges
    }

    /// How many functions it has: their positions are below.
    pub fn n_functions(&self) -> u32 {
        u32::try_from(self.index.functions.len()).expect("ids are 32 bits")
    }

    /// Whether the function at this position is counted, as it was remarked.
    pub fn is_moved(&self, function: u32) -> bool {
        self.index.functions.get(function as usize).is_some_and(|row| row.is_moved)
    }

    /// A program of the functions at the positions `wanted`, those that they run on into, and the names of
    /// those that they call: what [`Excerpt::into_program`] gives, without source lines. The bytes are those
    /// of `image`, which the catalogue was made of.
    ///
    /// # Errors
    /// If it is no whole catalogue, or one of another image.
    pub fn take(&self, image: &Image, wanted: &BTreeSet<u32>) -> Result<Program, ExcerptError> {
        let damaged = |n: u32| ExcerptError {
            name: image.name.clone(),
            what: "a function cannot be read",
            at: self.index.functions.get(n as usize).map_or(Va(0), |row| row.entry),
        };
        let mut taken: BTreeMap<u32, (Part, Vec<Range<Va>>)> = BTreeMap::new();
        let mut called: BTreeSet<u32> = BTreeSet::new();
        let mut left: Vec<u32> = wanted.iter().copied().collect();
        while !left.is_empty() {
            let read = left.par_iter().map(|&n| Ok((n, self.whole(n).ok_or_else(|| damaged(n))?)));
            let read = read.collect::<Result<Vec<_>, _>>()?;
            left.clear();
            for call in read.iter().flat_map(|(_, (part, _))| &part.blocks).flat_map(|block| &block.calls) {
                let PartCallee::Function(entry) = call.callee else { continue };
                let Some(n) = self.position(entry) else { continue };
                called.insert(n);
                if call.kind == CallKind::FallThrough {
                    left.push(n);
                }
            }
            taken.extend(read);
            left.retain(|n| !taken.contains_key(n));
            left.sort_unstable();
            left.dedup();
        }
        let named: Vec<u32> = called.into_iter().filter(|n| !taken.contains_key(n)).collect();
        let named = named.par_iter().map(|&n| Ok((self.entry(n), self.head(n).ok_or_else(|| damaged(n))?.0)));
        let mut functions = named.collect::<Result<BTreeMap<u64, Part>, _>>()?;
        let mut code = Vec::new();
        for (n, (part, own)) in taken {
            functions.insert(self.entry(n), part);
            code.extend(own);
        }
        let (head, lines) = (ImageHead::of(image), RecordedLines::default());
        Excerpt { image: head, functions, code: pieces(image, code), lines }.into_program()
    }

    fn entry(&self, n: u32) -> u64 {
        self.index.functions.get(n as usize).map_or(0, |row| row.entry.0)
    }

    fn position(&self, entry: Va) -> Option<u32> {
        let n = self.index.functions.binary_search_by_key(&entry, |row| row.entry).ok()?;
        u32::try_from(n).ok()
    }

    /// The function without its blocks, and what stands behind that.
    fn head(&self, n: u32) -> Option<(Part, &[u8])> {
        let at = usize::try_from(self.index.functions.get(n as usize)?.at).ok()?;
        postcard::take_from_bytes(self.bytes.get(self.first.checked_add(at)?..)?).ok()
    }

    /// The function, and where its code is.
    fn whole(&self, n: u32) -> Option<(Part, Vec<Range<Va>>)> {
        let (part, rest) = self.head(n)?;
        let (Body { blocks, entries, gaps, code }, _) = postcard::take_from_bytes(rest).ok()?;
        Some((Part { blocks, entries, gaps, ..part }, code))
    }
}

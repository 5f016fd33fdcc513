//! A [`Catalogue`]: what excerpts have of each function of a program, to be taken without analysing the
//! program again, and without reading the functions that are not taken.
//!
//! ```text
//! catalogue = length: u64; sum: u64, XXH3 of the index; index, of that length; function*
//! function  = its part, without blocks; its blocks; its entries; its gaps; where its code is
//! ```
//! Numbers are little-endian; index and functions as postcard writes them. The index has the XXH3 of each
//! function, its lower half. The file that it is of, with the bytes of the code, is not in it.
//!
//! Invariant: of a catalogue that is opened, nothing is read but the index and the functions that are taken.
#![warn(clippy::indexing_slicing)]

use super::{Excerpt, ExcerptError, ImageHead, Part, PartBlock, PartCallee, Parts, code, pieces};
use crate::addr::Va;
use crate::ids::FuncId;
use crate::image::Image;
use crate::model::{CallKind, Gap, Program, Remark};
use crate::recorded_lines::RecordedLines;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use xxhash_rust::xxh3::xxh3_64;

/// All functions of a program, one by one: see the module.
pub struct Catalogue {
    bytes: Bytes,
    /// Where the functions start in them.
    first: u64,
    index: Index,
}

/// Where it is.
enum Bytes {
    Memory(Vec<u8>),
    /// With its length.
    File(File, u64),
}

impl Bytes {
    /// So many bytes from `at` on.
    fn get(&self, at: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        let len = usize::try_from(len).ok()?;
        match self {
            Bytes::Memory(bytes) => {
                let at = usize::try_from(at).ok()?;
                bytes.get(at..at.checked_add(len)?).map(Cow::Borrowed)
            }
            // No more is believed than there is.
            Bytes::File(_, n_bytes) if at.saturating_add(len as u64) > *n_bytes => None,
            Bytes::File(file, _) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, at).ok()?;
                Some(Cow::Owned(bytes))
            }
        }
    }
}

/// How many bytes stand before the index.
const HEAD_LEN: u64 = 16;

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
    /// Where it starts among the functions, and how long it is.
    at: u64,
    len_bytes: u32,
    /// Of its bytes.
    sum: u32,
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
            let len_bytes = u32::try_from(bytes.len()).expect("what is said of a function is short");
            let (entry, is_moved) = (program.function(*id).entry, *is_moved);
            functions.push(Row { entry, at, len_bytes, sum: sum(bytes), is_moved });
            at += bytes.len() as u64;
        }
        let of = |id: FuncId| program.function(id).ranges.iter().map(move |range| (range.clone(), id.0));
        let mut ranges: Vec<_> = ids.iter().flat_map(|id| of(*id)).collect();
        ranges.sort_unstable_by_key(|(range, _)| range.start);
        let index = Index { functions, ranges };
        let head = postcard::to_stdvec(&index).expect("all of it has a form");
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(xxh3_64(&head).to_le_bytes());
        bytes.extend(head);
        let first = bytes.len() as u64;
        all.iter().for_each(|(_, function)| bytes.extend(function));
        Catalogue { bytes: Bytes::Memory(bytes), first, index }
    }

    /// As it is written; nothing of one that was opened.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Memory(bytes) => bytes,
            Bytes::File(..) => Vec::new(),
        }
    }

    /// The one that was written so; `None` if it is none.
    pub fn parse(bytes: Vec<u8>) -> Option<Catalogue> {
        Catalogue::behind(Bytes::Memory(bytes))
    }

    /// The one that was written so to `file`, which is read where it is asked for; `None` if it is none.
    pub fn open(file: File) -> Option<Catalogue> {
        let n_bytes = file.metadata().ok()?.len();
        Catalogue::behind(Bytes::File(file, n_bytes))
    }

    fn behind(bytes: Bytes) -> Option<Catalogue> {
        let head = bytes.get(0, HEAD_LEN)?;
        let (len, sum) = (u64::from_le_bytes(*head.first_chunk()?), u64::from_le_bytes(*head.last_chunk()?));
        let index = bytes.get(HEAD_LEN, len).filter(|index| xxh3_64(index) == sum)?;
        let (index, first) = (postcard::from_bytes(&index).ok()?, HEAD_LEN.checked_add(len)?);
        drop(head);
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
        let named = named.par_iter().map(|&n| Ok((self.entry(n), self.head(n).ok_or_else(|| damaged(n))?)));
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

    /// What is written of the function.
    fn written(&self, n: u32) -> Option<Cow<'_, [u8]>> {
        let row = self.index.functions.get(n as usize)?;
        let bytes = self.bytes.get(self.first.checked_add(row.at)?, u64::from(row.len_bytes));
        bytes.filter(|bytes| sum(bytes) == row.sum)
    }

    /// The function without its blocks.
    fn head(&self, n: u32) -> Option<Part> {
        Some(postcard::take_from_bytes(&self.written(n)?).ok()?.0)
    }

    /// The function, and where its code is.
    fn whole(&self, n: u32) -> Option<(Part, Vec<Range<Va>>)> {
        let written = self.written(n)?;
        let (part, rest) = postcard::take_from_bytes::<Part>(&written).ok()?;
        let Body { blocks, entries, gaps, code } = postcard::from_bytes(rest).ok()?;
        Some((Part { blocks, entries, gaps, ..part }, code))
    }
}

/// The lower half of the XXH3 of `bytes`.
fn sum(bytes: &[u8]) -> u32 {
    u32::try_from(xxh3_64(bytes) & u64::from(u32::MAX)).expect("half of it")
}

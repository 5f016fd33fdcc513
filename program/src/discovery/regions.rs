//! Which regions of code to sweep, and where symbols and tables of the file say that functions start.
//!
//! Invariant: regions are sorted, do not overlap, and together with runs of padding cover all code.
//!
//! Not here: functions that only the code itself shows (`gaps`).

use crate::addr::Va;
use crate::arch::Decoder;
use crate::discovery::sweep::raw::{NOWHERE, Region, RegionKind, Rel, Space};
use crate::image::{Image, Segment, SymbolKind};
use crate::model::Origin;
use std::ops::Range;

/// A place where something outside the code says that a function starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seed {
    pub at: Rel,
    pub origin: Origin,
}

/// Runs of code, by address, without overlaps.
pub fn code(image: &Image, space: Space) -> Vec<Range<Rel>> {
    let mut runs: Vec<Range<Rel>> = Vec::new();
    for r in image.code_ranges() {
        let (from, to) = (space.rel(r.start), space.rel(r.end));
        let from = from.max(runs.last().map_or(0, |r| r.end));
        // Code 4 GiB from the rest is left out, and so is in a gap.
        if from < to && to != NOWHERE && image.bytes_in(&(space.va(from)..space.va(to))).is_some() {
            runs.push(from..to);
        }
    }
    runs
}

/// What may be swept as one piece, sorted: the stronger claim first where two start at one place.
struct Claims(Vec<Region>);

/// The regions of the code in `runs`.
pub fn regions(image: &Image, space: Space, runs: &[Range<Rel>]) -> Vec<Region> {
    let mut claims = Claims(Vec::new());
    let within = |range: &Range<Va>| {
        let (from, to) = (space.rel(range.start), space.rel(range.end));
        let i = runs.partition_point(|r| r.end <= from);
        let run = runs.get(i).filter(|r| from != NOWHERE && r.contains(&from))?;
        (from < to).then(|| from..to.min(run.end))
    };
    for (i, stub) in image.plt.iter().enumerate() {
        if let (Some(range), Ok(i)) = (within(&stub.range), u32::try_from(i)) {
            let kind = if stub.slot.is_some() { RegionKind::Plt(i) } else { RegionKind::PltHeader };
            claims.0.push(Region { range, kind });
        }
    }
    let functions = image.symbols.iter().filter(|s| s.kind == SymbolKind::Function);
    let mut named: Vec<Va> = functions.map(|s| s.at).collect();
    named.sort_unstable();
    for unwind in &image.unwind {
        if let Some(mut range) = within(&unwind.range) {
            range.start = after_alignment(image, space, &range, unwind.signal, &named);
            claims.0.push(Region { range, kind: RegionKind::Unwind { at_entry: unwind.at_entry } });
        }
    }
    for s in &image.symbols {
        let function = matches!(s.kind, SymbolKind::Function | SymbolKind::IndirectFunction);
        if function
            && s.len > 0
            && let Some(range) = within(&(s.at..s.at.plus(s.len)))
        {
            claims.0.push(Region { range, kind: RegionKind::Symbol });
        }
    }
    let mut found = claims.settle();
    let gaps = gaps(image, space, runs, &found);
    found.extend(gaps);
    found.sort_unstable_by_key(|r| r.range.start);
    found
}

impl Claims {
    /// Regions without overlaps: PLT stubs as they are, unwind ranges between them, symbols for what is left.
    fn settle(mut self) -> Vec<Region> {
        let rank = |kind: &RegionKind| match kind {
            RegionKind::Plt(_) | RegionKind::PltHeader => 0,
            RegionKind::Unwind { .. } => 1,
            _ => 2,
        };
        self.0.sort_by_key(|r| (r.range.start, rank(&r.kind), std::cmp::Reverse(r.range.end)));
        let mut found: Vec<Region> = Vec::with_capacity(self.0.len());
        for claim in self.0 {
            let Some(last) = found.last_mut() else {
                found.push(claim);
                continue;
            };
            if claim.range.start >= last.range.end {
                found.push(claim);
                continue;
            }
            let stub = rank(&claim.kind) == 0;
            if rank(&last.kind) == 0 && last.range.start == claim.range.start || rank(&last.kind) == 0 {
                continue;
            }
            if stub {
                // Unwind ranges may hold a whole PLT.
                let start = last.range.start;
                last.range.end = claim.range.start;
                last.kind = RegionKind::PltHeader;
                if start == claim.range.start {
                    found.pop();
                }
                found.push(claim);
            } else if claim.range.start == last.range.start {
                // The unwind range may end in the middle of a fall-through, or a symbol may have the wrong
                // size.
                last.range.end = last.range.end.max(claim.range.end);
            } else if rank(&claim.kind) < rank(&last.kind) {
                // An unwind range that starts within a symbol: another function.
                last.range.end = claim.range.start;
                found.push(claim);
            } else if rank(&claim.kind) == 1 {
                last.range.end = claim.range.start;
                found.push(claim);
            }
            // A symbol within another range is looked at when its code is known.
        }
        found
    }
}

/// The start of an unwind range, without the alignment that assembly code may have before its label.
///
/// `named` are the places of function symbols, sorted.
fn after_alignment(image: &Image, space: Space, range: &Range<Rel>, signal: bool, named: &[Va]) -> Rel {
    let aligned = range.start.next_multiple_of(16);
    if signal && aligned == range.start + 1 && aligned < range.end {
        // Unwinders look for the call before a return address; a signal's return address has none, so the
        // range of its trampoline starts a byte early.
        return aligned;
    }
    if aligned >= range.end || aligned == range.start {
        return range.start;
    }
    let va = space.va(range.start)..space.va(aligned);
    let bytes = image.bytes_in(&va).unwrap_or_default();
    let padding = !bytes.is_empty() && Decoder::new(bytes, va.start).are_nops_or(|insn| insn.is_nop());
    if padding && named.binary_search(&va.start).is_err() { aligned } else { range.start }
}

/// What lies between the claimed regions, without runs of padding.
fn gaps(image: &Image, space: Space, runs: &[Range<Rel>], claimed: &[Region]) -> Vec<Region> {
    let mut found = Vec::new();
    let mut next = 0;
    for run in runs {
        let mut at = run.start;
        loop {
            let claim = claimed.get(next).filter(|c| c.range.start < run.end);
            let end = claim.map_or(run.end, |c| c.range.start);
            if image.sections.is_empty() {
                at = after_zeros(image, space, at..end);
            }
            if at < end && !is_padding(image, space, at..end) {
                found.push(Region { range: at..end, kind: RegionKind::Gap });
            }
            match claim {
                Some(claim) => at = at.max(claim.range.end),
                None => break,
            }
            next += 1;
        }
    }
    found
}

/// Behind the zeros with which linkers align what is a section of its own in other files (`.fini`).
fn after_zeros(image: &Image, space: Space, range: Range<Rel>) -> Rel {
    let aligned = range.start.next_multiple_of(4);
    if aligned == range.start || aligned >= range.end {
        return range.start;
    }
    let bytes = image.bytes_in(&(space.va(range.start)..space.va(aligned))).unwrap_or(&[1]);
    if bytes.iter().all(|&b| b == 0) { aligned } else { range.start }
}

fn is_padding(image: &Image, space: Space, range: Range<Rel>) -> bool {
    let va = space.va(range.start)..space.va(range.end);
    let Some(bytes) = image.bytes_in(&va) else { return true };
    bytes.iter().all(|&b| b == 0) || Decoder::new(bytes, va.start).are_nops_or(|insn| insn.is_padding())
}

/// Seeds from symbols without a size, the entry point, start-up functions, and words of data; sorted by
/// address, one a place.
pub fn seeds(image: &Image, space: Space, is_code: impl Fn(Rel) -> bool) -> Vec<Seed> {
    let mut found = Vec::new();
    let mut add = |va: Va, origin| {
        let at = space.rel(va);
        if at != NOWHERE && is_code(at) {
            found.push(Seed { at, origin });
        }
    };
    for s in &image.symbols {
        let function = matches!(s.kind, SymbolKind::Function | SymbolKind::IndirectFunction);
        if function || s.kind == SymbolKind::Untyped && !s.local && s.len > 0 {
            add(s.at, Origin::Symbol);
        }
    }
    for &at in image.entry.iter().chain(&image.init_fini) {
        add(at, Origin::Start);
    }
    for (at, _) in &image.go_functions {
        add(*at, Origin::GoTable);
    }
    found.sort_unstable();
    found.dedup_by_key(|s| s.at);
    found
}

/// Code that words of data point to, sorted: by relocations, and where there are none, by what the words look
/// like.
pub fn pointed_to(image: &Image, space: Space, is_code: impl Fn(Rel) -> bool) -> Vec<Pointer> {
    let mut found = Vec::new();
    let mut add = |from: Va, to: Va| {
        let (from, to) = (space.rel(from), space.rel(to));
        if to != NOWHERE && is_code(to) {
            found.push(Pointer { to, from });
        }
    };
    for r in &image.relocations {
        match r.to {
            crate::image::RelocationTo::Address(to)
            | crate::image::RelocationTo::Resolver(to)
            | crate::image::RelocationTo::Symbol(_, Some(to)) => add(r.at, to),
            _ => {}
        }
    }
    if !image.kind.is_relocated() {
        let holds_none =
            |name: &str| [".eh_frame", ".gcc_except", ".note"].iter().any(|start| name.starts_with(start));
        let data = image.sections.iter().filter(|s| !s.executable && !s.zero && !s.strings);
        let mut parts: Vec<Range<Va>> =
            data.filter(|s| !holds_none(&s.name)).map(|s| s.range.clone()).collect();
        if image.sections.is_empty() {
            // Segments may hold data and code together, where constants have none of their own.
            let is_constants = |s: &&Segment| !s.executable && !s.writable && s.file_len > 0;
            let code = image.segments.iter().find(|s| s.executable).map(|s| s.range.start);
            let are_apart =
                image.segments.iter().filter(is_constants).any(|s| code.is_some_and(|c| s.range.start > c));
            let in_file = image.segments.iter().filter(|s| s.file_len > 0 && !(are_apart && s.executable));
            let part = |s: &Segment| s.range.start..s.range.start.plus(s.file_len).min(s.range.end);
            parts.extend(in_file.flat_map(|s| image.without_linkers_tables(part(s))));
        }
        for part in parts {
            let start = Va(part.start.0.next_multiple_of(8));
            let Some(bytes) = image.bytes_in(&(start..part.end)) else { continue };
            for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                add(start.plus(8 * i as u64), Va(u64::from_le_bytes(*word)));
            }
        }
    }
    found.sort_unstable();
    found
}

/// A word of data that holds an address of code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pointer {
    pub to: Rel,
    pub from: Rel,
}

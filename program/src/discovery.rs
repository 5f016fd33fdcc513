//! From an image to a [`Program`]: sweep, partition, no-return, and the tables that are kept.
//!
//! Not here: the steps themselves (`sweep`, `partition`, `gaps`, `noreturn`, `assemble`).

mod assemble;
pub mod code;
mod data;
mod gaps;
mod noreturn;
mod partition;
mod prologue;
pub mod regions;
mod starts;
pub mod sweep;
#[cfg(test)]
mod tests;

use crate::addr::Va;
use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::starts::{Evidence, KnownTargets};
use crate::discovery::sweep::Sweeper;
use crate::discovery::sweep::raw::{
    Context, DataRef, RawEnd, RawTable, Region, RegionKind, Rel, Space, Swept, Transfer, decode_at,
};
use crate::image::{Image, SymbolKind};
use crate::libc;
use crate::model::Program;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of code that one unit of work sweeps, about.
const CHUNK: u32 = 32 << 10;

impl Program {
    /// Finds functions, blocks, edges and data. Never fails: what is not understood becomes a gap.
    pub fn analyze(image: Image) -> Program {
        let (mut program, refs) = Program::code_of(image);
        program.data = data::find(&program, refs);
        program
    }

    /// The same without data objects, for who asks for none.
    pub fn analyze_code(image: Image) -> Program {
        Program::code_of(image).0
    }

    /// The code, and what it refers to.
    fn code_of(image: Image) -> (Program, Vec<Vec<DataRef>>) {
        let space = Space::of(&image);
        let runs = regions::code(&image, space);
        let regions = regions::regions(&image, space, &runs);
        let sites = call_sites(&image, space);
        let mut pads: Vec<Rel> = sites.iter().map(|s| s.1).collect();
        pads.sort_unstable();
        pads.dedup();
        let parts: Vec<Range<Rel>> = regions
            .iter()
            .filter(|r| r.kind == RegionKind::Unwind { at_entry: false })
            .map(|r| r.range.clone())
            .collect();
        let none = &[];
        let cx = Context {
            image: &image,
            space,
            code: &runs,
            pads: &pads,
            parts: &parts,
            data_refs: none,
            entered: none,
            never: none,
            is_again: false,
        };
        let mut swept = sweep_all(&cx, &regions);
        let refs: Vec<Vec<DataRef>> = swept.iter_mut().map(|s| std::mem::take(&mut s.marks)).collect();
        let fixed: Vec<Va> = swept.iter().flat_map(|s| &s.fixed).map(|&at| space.va(at)).collect();
        let again = swept.iter().any(|s| s.left > 0).then(|| swept.clone());
        let mut code = divide(cx, regions, swept, &sites);
        // What is known of calls now may tell what registers hold.
        if let Some(mut swept) = again.filter(|_| !code.never.is_empty()) {
            let regions = code.regions.clone();
            code.never.sort_unstable();
            if sweep_left(&cx, &regions, &mut swept, &code.never) {
                code = divide(cx, regions, swept, &sites);
            }
        }
        code.drop_padding();
        final_calls(&mut code);
        code.end_at_calls();
        let tables = assemble::Assembly::new(&code).tables();
        drop(code);
        let mut program = tables.into_program(image);
        program.fixed = fixed.into_iter().filter(|&at| program.block_at(at).is_some()).collect();
        let made = refs.iter().flatten().filter(|r| r.size == 0).map(|r| (space.va(r.from), space.va(r.to)));
        let is_named =
            |(from, to): &(Va, Va)| program.block_from(*to).is_some() && program.block_at(*from).is_some();
        program.named = made.filter(is_named).map(|m| m.1).collect();
        program.named.sort_unstable();
        program.named.dedup();
        (program, refs)
    }
}

/// Which function has which of the blocks that were `swept`, and which calls do not return.
fn divide<'a>(
    cx: Context<'a>,
    regions: Vec<Region>,
    swept: Vec<Swept>,
    sites: &'a [(Range<Rel>, Rel)],
) -> RawCode<'a> {
    let mut code = RawCode::new(cx, regions, swept, sites);
    let is_code = |at: Rel| code.cx.is_code(at);
    let mut evidence = Evidence {
        seeds: regions::seeds(cx.image, cx.space, is_code),
        pointers: regions::pointed_to(cx.image, cx.space, is_code),
        cold: cold_starts(cx.image, cx.space),
        never: never_starts(cx.image, cx.space),
    };
    evidence.seeds.retain(|s| evidence.cold.binary_search(&s.at).is_err());
    code.seams = gaps::seams(&code);
    let missing = code.split(&cross_leaders(&code, &evidence));
    let jumped_to = jumped_to(&code, missing);
    code.overlaps.extend(jumped_to);
    code.overlaps.sort_unstable();
    code.overlaps.dedup();
    let known = KnownTargets::of(&code, &evidence);
    let has_gaps = code.regions.iter().any(|r| r.kind == RegionKind::Gap);
    partition::partition(&mut code, &evidence, &known);
    noreturn::infer(&mut code);
    for _ in 0..3 {
        let before = (code.never.len(), code.funcs.len());
        if !has_gaps || code.never.is_empty() {
            break;
        }
        // What follows a call that does not return may be a function.
        code.end_at_calls();
        partition::partition(&mut code, &evidence, &known);
        noreturn::infer(&mut code);
        if (code.never.len(), code.funcs.len()) == before {
            break;
        }
    }
    code
}

/// Call sites with landing pads, by address.
fn call_sites(image: &Image, space: Space) -> Vec<(Range<Rel>, Rel)> {
    let all = image.unwind.iter().flat_map(|u| u.landing.iter());
    let mut sites: Vec<(Range<Rel>, Rel)> =
        all.map(|s| (space.rel(s.range.start)..space.rel(s.range.end), space.rel(s.pad))).collect();
    sites.sort_unstable_by_key(|s| (s.0.start, s.0.end, s.1));
    sites
}

/// Starts of symbols that name a cold part.
fn cold_starts(image: &Image, space: Space) -> Vec<Rel> {
    let function = |k| matches!(k, SymbolKind::Function | SymbolKind::Untyped);
    let cold = |name: &str| name.ends_with(".cold") || name.contains(".cold.");
    let mut starts: Vec<Rel> =
        image.symbols.iter().filter(|s| function(s.kind) && cold(&s.name)).map(|s| space.rel(s.at)).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Starts of symbols whose names are reserved for functions that never return.
fn never_starts(image: &Image, space: Space) -> Vec<Rel> {
    let function = |k| matches!(k, SymbolKind::Function | SymbolKind::IndirectFunction | SymbolKind::Untyped);
    let named = image.symbols.iter().filter(|s| function(s.kind) && libc::is_reserved_noreturn(&s.name));
    let mut starts: Vec<Rel> = named.map(|s| space.rel(s.at)).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Starts of the functions and stubs whose names say that a call to them may come back more than once.
fn twice_starts(code: &RawCode<'_>) -> Vec<Rel> {
    let (image, space) = (code.cx.image, code.cx.space);
    let function = |k| matches!(k, SymbolKind::Function | SymbolKind::IndirectFunction | SymbolKind::Untyped);
    let named = image.symbols.iter().filter(|s| function(s.kind) && libc::returns_twice(&s.name));
    let stubs = image.plt.iter().filter(|s| s.import.as_deref().is_some_and(libc::returns_twice));
    let mut starts: Vec<Rel> =
        named.map(|s| space.rel(s.at)).chain(stubs.map(|s| space.rel(s.range.start))).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Neighbours that are swept together.
fn chunks(regions: &[Region]) -> Vec<&[Region]> {
    let mut chunks: Vec<&[Region]> = Vec::new();
    let (mut from, mut len) = (0, 0);
    for (i, region) in regions.iter().enumerate() {
        len += region.range.end - region.range.start;
        if len >= CHUNK {
            chunks.push(&regions[from..=i]);
            (from, len) = (i + 1, 0);
        }
    }
    chunks.push(&regions[from..]);
    chunks
}

fn sweep(cx: &Context<'_>, chunk: &[Region], sweeper: &mut Sweeper) -> Swept {
    let mut swept = Swept::default();
    for region in chunk {
        sweeper.sweep(cx, region, &mut swept);
    }
    swept.data_refs.sort_unstable();
    swept.data_refs.dedup();
    swept
}

/// Sweeps all regions, in parallel, in chunks of neighbours.
fn sweep_all(cx: &Context<'_>, regions: &[Region]) -> Vec<Swept> {
    let chunks = chunks(regions);
    let mut swept: Vec<Swept> =
        chunks.par_iter().map_init(Sweeper::default, |sweeper, chunk| sweep(cx, chunk, sweeper)).collect();
    // A table ends where anything else is referred to, and what a register holds depends on who leads into a
    // region: known only now.
    if swept.iter().any(|s| !s.tables.is_empty() || s.left > 0) {
        let refs = data_refs(&swept);
        let crossed = |t: &RawTable| {
            let from = cx.space.rel(t.at);
            let next = refs.get(refs.partition_point(|&r| r <= from)).copied().unwrap_or(Rel::MAX);
            u64::from(from) + (t.targets.len() * usize::from(t.entry_len)) as u64 > u64::from(next)
        };
        let entered = entered(&swept, regions);
        let known = Context { data_refs: &refs, entered: &entered, is_again: true, ..*cx };
        swept.par_iter_mut().zip(chunks).for_each(|(swept, chunk)| {
            if swept.tables.iter().any(crossed) || swept.left > 0 {
                *swept = sweep(&known, chunk, &mut Sweeper::default());
            }
        });
    }
    swept
}

/// Sweeps once more where jumps are left that were not understood, with the calls that do not return. Says
/// whether fewer are left.
fn sweep_left(cx: &Context<'_>, regions: &[Region], swept: &mut [Swept], never: &[Rel]) -> bool {
    let left = |swept: &[Swept]| swept.iter().map(|s| s.left).sum::<usize>();
    let before = left(swept);
    let (refs, entered) = (data_refs(swept), entered(swept, regions));
    let known = Context { data_refs: &refs, entered: &entered, never, is_again: true, ..*cx };
    swept.par_iter_mut().zip(chunks(regions)).filter(|(swept, _)| swept.left > 0).for_each(
        |(swept, chunk)| {
            *swept = sweep(&known, chunk, &mut Sweeper::default());
        },
    );
    left(swept) < before
}

/// The data that instructions anywhere name; sorted.
fn data_refs(swept: &[Swept]) -> Vec<Rel> {
    let mut refs: Vec<Rel> = swept.iter().flat_map(|s| s.data_refs.iter().copied()).collect();
    refs.sort_unstable();
    refs.dedup();
    refs
}

/// Where jumps, calls and tables of one region lead into another one; sorted. Nothing, if nobody will ask: no
/// jump is left.
fn entered(swept: &[Swept], regions: &[Region]) -> Vec<Rel> {
    if swept.iter().all(|s| s.left == 0) {
        return Vec::new();
    }
    let region = |at: Rel| regions.partition_point(|r| r.range.start <= at);
    let mut all = Vec::new();
    for s in swept {
        let jumps = s.blocks.iter().filter(|b| matches!(b.end, RawEnd::Jump | RawEnd::Branch));
        let calls = s.calls.iter().filter(|c| c.transfer == Transfer::Direct);
        let tables = s.tables.iter().flat_map(|t| t.targets.iter().map(|&to| (t.jump, to)));
        all.extend(
            jumps
                .map(|b| (b.start, b.target))
                .chain(calls.map(|c| (c.at, c.target)))
                .chain(tables)
                .filter(|&(from, to)| region(from) != region(to))
                .map(|(_, to)| to),
        );
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Addresses in the middle of blocks that something outside the block's region leads to; sorted.
fn cross_leaders(code: &RawCode<'_>, evidence: &Evidence) -> Vec<Rel> {
    let mut found = Vec::new();
    let mut add = |at: Rel| {
        if code.cx.is_code(at) && code.block_from(at).is_none() && code.block_at(at).is_some() {
            found.push(at);
        }
    };
    let mut r = 0;
    for block in &code.blocks {
        while code.regions.get(r).is_some_and(|x| x.range.end <= block.start) {
            r += 1;
        }
        let outside = code.regions.get(r).is_none_or(|x| !x.range.contains(&block.target));
        if matches!(block.end, RawEnd::Jump | RawEnd::Branch) && outside {
            add(block.target);
        }
    }
    let twice = twice_starts(code);
    for call in &code.calls {
        if call.transfer == Transfer::Direct {
            add(call.target);
        }
        let comes_back_twice = match call.transfer {
            Transfer::Direct => twice.binary_search(&call.target).is_ok(),
            Transfer::Slot => code.slot_import(call.target).is_some_and(libc::returns_twice),
            Transfer::Indirect | Transfer::JumpSlot | Transfer::JumpIndirect => false,
        };
        if comes_back_twice {
            add(call.end());
        }
    }
    for table in &code.tables {
        table.targets.iter().for_each(|&t| add(t));
    }
    let relocated = code.cx.image.kind.is_relocated();
    // Nobody takes the address of padding: such a word is a number.
    let starts_code = |at: Rel| decode_at(&code.cx, at).is_some_and(|insn| !insn.is_padding());
    for pointer in &evidence.pointers {
        // A word that only looks like an address must not cut a block anywhere.
        let plausible = relocated || pointer.to.is_multiple_of(16);
        let in_gap = || code.region_at(pointer.to).is_some_and(|r| code.regions[r].kind == RegionKind::Gap);
        // A relocation is no number: a label that computed jumps lead to, wherever it stands.
        if plausible && (relocated || in_gap()) && starts_code(pointer.to) {
            add(pointer.to);
        }
    }
    for reference in &code.code_refs {
        let in_gap = || code.region_at(reference.to).is_some_and(|r| code.regions[r].kind == RegionKind::Gap);
        if in_gap() && starts_code(reference.to) {
            add(reference.to);
        }
    }
    code.seams.iter().for_each(|s| add(s.1));
    evidence.seeds.iter().for_each(|s| add(s.at));
    evidence.cold.iter().for_each(|&at| add(at));
    found.sort_unstable();
    found.dedup();
    found
}

/// Those of the addresses that a direct jump leads to.
fn jumped_to(code: &RawCode<'_>, mut all: Vec<Rel>) -> Vec<Rel> {
    all.sort_unstable();
    let jumps = code.blocks.iter().filter(|b| matches!(b.end, RawEnd::Jump | RawEnd::Branch));
    jumps.map(|b| b.target).filter(|to| all.binary_search(to).is_ok()).collect()
}

/// Adds the calls that nothing of their function follows to those that do not return.
fn final_calls(code: &mut RawCode<'_>) {
    let mut found = Vec::new();
    for (rank, block) in code.blocks.iter().enumerate() {
        if block.end != RawEnd::FallThrough || code.owner[rank] == NO_FUNC {
            continue;
        }
        let rank = u32::try_from(rank).unwrap_or(NO_FUNC);
        if code.next(rank).is_some_and(|t| code.owner[t as usize] == code.owner[rank as usize]) {
            continue;
        }
        if let Some(call) = code.calls_in(rank).last().filter(|c| c.end() == block.end_rel()) {
            found.push(call.at);
        }
    }
    code.never.append(&mut found);
    code.never.sort_unstable();
    code.never.dedup();
}

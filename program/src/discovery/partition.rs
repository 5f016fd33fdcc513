//! Which blocks make up which function, by where functions and their parts start.
//!
//! Invariant: every start is a block's start; a block belongs to the last start at or below it within its
//! region.

use crate::discovery::code::{NO_FUNC, RawCode, RawFunction};
use crate::discovery::starts::{Evidence, Finder, KnownTargets, Owner, Start, has};
use crate::discovery::sweep::listing::sorted;
use crate::discovery::sweep::raw::{RawEnd, RegionKind, Rel, Transfer};

/// Gives every block its function, and makes the list of functions, by entry.
pub fn partition(code: &mut RawCode<'_>, evidence: &Evidence, known: &KnownTargets) {
    let mut finder = Finder::new(code, evidence, known);
    finder.claimed();
    finder.parts();
    finder.gaps();
    let Finder { mut starts, entries, .. } = finder;
    starts.sort_unstable();
    starts.dedup_by_key(|s| s.at);
    assign(code, &starts, &evidence.never);
    let mut entries: Vec<Rel> = entries;
    // Whatever one function jumps to in the middle of another is an entry of that one.
    for (rank, block) in (0u32..).zip(&code.blocks) {
        if matches!(block.end, RawEnd::Jump | RawEnd::Branch)
            && let Some(to) = code.target_of(rank)
            && code.owner[to as usize] != code.owner[rank as usize]
        {
            entries.push(block.target);
        }
        // So is where one function runs on into the middle of another.
        if block.end.falls_through()
            && let Some(to) = code.next(rank)
            && code.owner[to as usize] != code.owner[rank as usize]
            && !code.ends_in_call(rank)
        {
            entries.push(code.blocks[to as usize].start);
        }
    }
    // Calls of what follows them (`call 1f; 1: pop %rax`) are no evidence of functions, but enter blocks.
    let onward =
        code.calls.iter().filter(|c| c.transfer == Transfer::Direct && c.target == c.end()).map(|c| c.target);
    entries.extend(known.called.iter().copied().chain(onward).filter(|&t| code.block_from(t).is_some()));
    let mut entries = sorted(&entries, &code.cx.span());
    let mut by_entry = code.funcs.iter().map(|f| f.entry).peekable();
    entries.retain(|&e| {
        while by_entry.next_if(|&f| f < e).is_some() {}
        by_entry.peek() != Some(&e)
    });
    code.entries = entries;
}

/// Fills `funcs` and `owner` from the starts.
fn assign(code: &mut RawCode<'_>, starts: &[Start], never: &[Rel]) {
    code.funcs.clear();
    let image = code.cx.image;
    let never_returns =
        |name: &str| crate::libc::import_never_returns(name, |name| image.is_libc_import(name));
    let mut func_of: Vec<u32> = vec![NO_FUNC; starts.len()];
    for (i, start) in starts.iter().enumerate() {
        if let Owner::Function(origin) = start.owner {
            func_of[i] = u32::try_from(code.funcs.len()).unwrap_or(NO_FUNC);
            let stub = code.region_at(start.at).and_then(|r| match code.regions[r].kind {
                RegionKind::Plt(i) => Some(i),
                _ => None,
            });
            let named_returns = match stub.and_then(|i| code.cx.image.plt.get(i as usize)) {
                // A stub of a function of this image returns if that one does.
                Some(stub)
                    if stub.slot.is_some_and(|at| code.slot_target(code.cx.space.rel(at)).is_some()) =>
                {
                    None
                }
                Some(stub) => Some(!stub.import.as_deref().is_some_and(never_returns)),
                None => has(never, start.at).then_some(false),
            };
            code.funcs.push(RawFunction { entry: start.at, origin, named_returns, stub, returns: true });
        }
    }
    // The start of each block; regions without one own nothing.
    let mut start_of: Vec<u32> = Vec::with_capacity(code.blocks.len());
    let (mut s, mut r) = (0, 0);
    for block in &code.blocks {
        while starts.get(s).is_some_and(|x| x.at <= block.start) {
            s += 1;
        }
        while code.regions.get(r).is_some_and(|x| x.range.end <= block.start) {
            r += 1;
        }
        let inside =
            s.checked_sub(1).filter(|&s| code.regions.get(r).is_some_and(|x| x.range.start <= starts[s].at));
        start_of.push(inside.map_or(NO_FUNC, |s| u32::try_from(s).unwrap_or(NO_FUNC)));
    }
    // A part belongs where the block belongs that leads to it, perhaps through other parts.
    for i in 0..starts.len() {
        let mut at = i;
        for _ in 0..16 {
            match starts[at].owner {
                Owner::PartOf(rank) => match start_of.get(rank as usize) {
                    Some(&s) if s != NO_FUNC => at = s as usize,
                    _ => break,
                },
                _ => break,
            }
        }
        func_of[i] = func_of[at];
    }
    code.owner.clear();
    code.owner.extend(start_of.iter().map(|&s| func_of.get(s as usize).copied().unwrap_or(NO_FUNC)));
}

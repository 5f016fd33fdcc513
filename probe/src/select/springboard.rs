//! Jumps written over old code, so that whoever still comes there gets to the moved code.
//!
//! Control comes to old code at entries, and wherever an address of a block has been put into data or a
//! register. All else is reached from moved code only.
//!
//! Tactics, in this order:
//! 1. `jmp rel32`, 5 bytes, where no other block starts inside it.
//! 2. `jmp rel8`, 2 bytes, to padding nearby that holds the long one.
//! 3. `jmp rel32` over further blocks of the same function, which nothing outside of it can reach.
//! 4. None, where there is no room and all that reaches the entry is calls of moved code.
//! 5. `jmp rel8` to old code of another moved function that holds the long one.
//!
//! In a process that runs, control also comes back to old code behind calls that are in progress, and where
//! exceptions land that these throw. All the rest of a moved function's old code is dead there, so that long
//! jumps that others hop to find room in it.
//!
//! Invariant: never a trap (a program may block its signal); nothing is written over code that stays, or over
//! another springboard.
//!
//! Source: W. Wang, X. Meng, "Incremental CFG patching for binary rewriting" (ASPLOS 2021), 4.3 for
//! springboards and holes.

mod in_progress;

pub use in_progress::InProgress;

use crate::arch::emit;
use crate::not_moved::NotMoved;
use crate::patch::Patch;
use crate::select::movable::Movable;
use crate::select::plt;
use program::arch::Decoder;
use program::image::RelocationTo;
use program::{BlockEnd, BlockId, Call, Callee, FuncId, Program, Sure, Va};
use rayon::prelude::*;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// How control leaves old code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tactic {
    /// A long jump in place.
    Long,
    /// A short jump to a long one at this address.
    Hop(Va),
    /// A long jump over blocks that only the function itself reached.
    Over,
}

/// How control comes to a springboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comes {
    /// From outside of the function, to the start of a block.
    In,
    /// Back from a call that old code made before it had springboards: of a process that runs already.
    Back,
    /// The same from a system call. What the code has below the stack pointer (the red zone) and its flags
    /// are kept through that.
    BackFromKernel,
}

/// A jump from old code to new.
#[derive(Clone, Copy, Debug)]
pub struct Springboard {
    /// Where it stands: in a block of a moved function.
    pub at: Va,
    /// How it is written.
    pub tactic: Tactic,
    /// How control comes there.
    pub comes: Comes,
}

impl Springboard {
    /// What it is written over.
    pub fn written(&self) -> Vec<Range<Va>> {
        match self.tactic {
            Tactic::Long | Tactic::Over => vec![self.at..self.at.plus(LONG)],
            Tactic::Hop(hole) => vec![self.at..self.at.plus(SHORT), hole..hole.plus(LONG)],
        }
    }

    /// The same, with room for a long jump in place of a short one.
    fn taken(&self) -> Vec<Range<Va>> {
        let hole = match self.tactic {
            Tactic::Hop(hole) => Some(hole..hole.plus(LONG)),
            _ => None,
        };
        std::iter::once(self.at..self.at.plus(LONG)).chain(hole).collect()
    }

    /// The patches of `program` that it is, when the moved code is at `to`.
    ///
    /// # Panics
    /// If the hole that it hops to is out of reach.
    pub fn write(&self, program: &Program, to: Va, patches: &mut Vec<Patch>) {
        match self.tactic {
            Tactic::Long | Tactic::Over => patches.push(Patch::jump(program, self.at, to)),
            Tactic::Hop(hole) => {
                let distance = hole.since(self.at.plus(SHORT)).cast_signed();
                let distance = i8::try_from(distance)
                    .unwrap_or_else(|_| panic!("the springboard at {} cannot hop to {hole}", self.at));
                let [jump, _] = emit::SHORT_JUMP;
                patches.push(Patch::of(program, self.at, vec![jump, distance.cast_unsigned()]));
                patches.push(Patch::jump(program, hole, to));
            }
        }
    }
}

const LONG: u64 = 5;
const SHORT: u64 = 2;

/// Plans a springboard for every block of a moved function that can be reached from outside; functions
/// without room stay.
///
/// `addresses`, sorted, are those of code that data hold or code computes; `running` is what old code may be
/// in the middle of, in a process that runs.
pub fn plan(
    program: &Program,
    addresses: &[Va],
    running: Option<&InProgress>,
    movable: &mut Movable,
) -> Vec<Springboard> {
    let exposed = exposed(program, addresses, movable);
    let mut holes = holes(program, running.is_some());
    let mut boards: Vec<Springboard> = Vec::new();
    let outside = outside(program, &exposed);
    let mut without: Vec<FuncId> = Vec::new();
    // Few functions ask who calls them.
    let callers = LazyCell::new(|| callers(program));
    for id in program.func_ids().filter(|id| movable.not_moved[id.index()].is_none()).collect::<Vec<_>>() {
        // Nobody but callers that are moved with it: they call the new code.
        let is_called_only = |at: Va| {
            at == program.function(id).entry
                && outside.binary_search(&at).is_err()
                && called_by_moved(&callers, id, movable)
        };
        let mut needs_none = false;
        let may_lack = |at: Va| {
            let lacks = is_called_only(at);
            needs_none |= lacks;
            lacks
        };
        match all_of(program, id, (&exposed, running), &mut holes, may_lack) {
            Some(found) => {
                boards.extend(found);
                without.extend(needs_none.then_some(id));
            }
            None => movable.not_moved[id.index()] = Some(NotMoved::NoRoom),
        }
    }
    // Some callers may have turned out to stay.
    loop {
        let before = without.len();
        without.retain(|&id| {
            let has_no_way =
                movable.not_moved[id.index()].is_none() && !called_by_moved(&callers, id, movable);
            if has_no_way {
                movable.not_moved[id.index()] = Some(NotMoved::NoRoom);
            }
            !has_no_way
        });
        if without.len() == before {
            break;
        }
    }
    boards.retain(|b| {
        program.block_at(b.at).is_some_and(|at| movable.not_moved[program.block(at).func.index()].is_none())
    });
    over_dead_code(program, (&exposed, running), movable, &mut boards);
    boards
}

/// Who calls or jumps to whom: callee and caller, sorted.
fn callers(program: &Program) -> Vec<(FuncId, FuncId)> {
    let pair = |c: &Call| match c.callee {
        Callee::Function(callee) => Some((callee, program.block(c.block).func)),
        _ => None,
    };
    let mut all: Vec<(FuncId, FuncId)> = program.calls.iter().filter_map(pair).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What a place of a function's old code is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Control may come there from outside.
    In,
    /// Control may come back there.
    Back,
    /// Control may come back there from the kernel.
    BackFromKernel,
    /// It may be run once more: a system call.
    Kept,
}

/// What may be reached of old code: the addresses that data hold or code computes, sorted; and what is in
/// progress in a process that runs.
type Reachable<'a> = (&'a [Va], Option<&'a InProgress>);

/// All places of `id` that can be reached, ascending.
fn places(program: &Program, id: FuncId, (exposed, running): Reachable<'_>) -> Vec<(Va, Place)> {
    // What of a stub is not moved may be entered, too, and runs where it is.
    let ranges = plt::ranges(program, id);
    let is_moved = |at: &Va| ranges.iter().any(|r| r.contains(at));
    let function = program.function(id);
    let mut all: Vec<(Va, Place)> =
        function.entries.iter().map(|&b| (program.block(b).start, Place::In)).collect();
    all.push((function.entry, Place::In));
    all.retain(|(at, _)| is_moved(at));
    for range in &ranges {
        let with = |place| move |at: &Va| (*at, place);
        all.extend(InProgress::within(exposed, range).iter().map(with(Place::In)));
        let Some(running) = running else { continue };
        let back = |at: &Va| match running.is_behind_system_call(*at) {
            true => (*at, Place::BackFromKernel),
            false => (*at, Place::Back),
        };
        all.extend(InProgress::within(&running.backs, range).iter().map(back));
        all.extend(InProgress::within(&running.landing_pads, range).iter().map(with(Place::In)));
        all.extend(InProgress::within(&running.system_calls, range).iter().map(with(Place::Kept)));
    }
    all.sort_unstable();
    all.dedup_by_key(|place| place.0);
    all
}

/// Springboards of all places of `id` that can be reached, but for those that may lack one; `None` if there
/// is no room for one of them.
fn all_of(
    program: &Program,
    id: FuncId,
    reachable: Reachable<'_>,
    holes: &mut BTreeMap<Va, u64>,
    mut may_lack: impl FnMut(Va) -> bool,
) -> Option<Vec<Springboard>> {
    let places = places(program, id, reachable);
    let mut boards = Vec::new();
    let mut cramped = Vec::new();
    for (n, &(at, place)) in places.iter().enumerate() {
        let comes = match place {
            Place::In => Comes::In,
            Place::Back => Comes::Back,
            Place::BackFromKernel => Comes::BackFromKernel,
            Place::Kept => continue,
        };
        match board(program, id, at, places.get(n + 1).map(|next| next.0), holes) {
            Some(tactic) => boards.push(Springboard { at, tactic, comes }),
            None if comes == Comes::In && may_lack(at) => {}
            None => cramped.push((at, comes)),
        }
    }
    let hole = |board: &Springboard| match board.tactic {
        Tactic::Hop(hole) => Some((hole, LONG)),
        _ => None,
    };
    let taken: Vec<(Va, u64)> = boards.iter().filter_map(hole).collect();
    let found = match reachable.1 {
        _ if cramped.is_empty() => true,
        Some(_) => over_own_code(program, id, &places, &cramped, &mut boards),
        None => false,
    };
    if found {
        return Some(boards);
    }
    holes.extend(taken);
    None
}

/// Where there was no room for springboards of `id`: short jumps to long ones over old code of its own, of
/// which only its `places` can be reached. Whether there is room for all that are `cramped`.
fn over_own_code(
    program: &Program,
    id: FuncId,
    places: &[(Va, Place)],
    cramped: &[(Va, Comes)],
    boards: &mut Vec<Springboard>,
) -> bool {
    let mut used: Vec<Range<Va>> = places.iter().map(|(at, _)| *at..at.plus(SHORT)).collect();
    used.extend(boards.iter().flat_map(Springboard::written));
    for &(at, comes) in cramped {
        used.sort_unstable_by_key(|r| r.start);
        let overlaps = |range: &Range<Va>| {
            used.iter().any(|u| u.start < range.end && range.start < u.end && u.start != at)
        };
        let own = at..at.plus(SHORT);
        let is_whole = plt::ranges(program, id).iter().any(|r| r.contains(&at) && own.end <= r.end);
        if !is_whole || overlaps(&own) {
            return false;
        }
        let Some(hole) = hole_within(program, id, at, &used) else { return false };
        used.push(hole..hole.plus(LONG));
        boards.push(Springboard { at, tactic: Tactic::Hop(hole), comes });
    }
    boards.sort_unstable_by_key(|b| b.at);
    true
}

/// Room for a long jump in the code of `id`, so near that a short one at `at` leads there, beside what is
/// `used`, by address.
fn hole_within(program: &Program, id: FuncId, at: Va, used: &[Range<Va>]) -> Option<Va> {
    let from = at.plus(SHORT);
    // What is between blocks may be another's already.
    plt::blocks(program, id).find_map(|block| {
        let range = program.block(block).range();
        let mut free = range.start.max(Va(from.0.saturating_sub(128)));
        let to = range.end.min(from.plus(127 + LONG));
        if free >= to {
            return None;
        }
        let first = used.partition_point(|u| u.start.plus(LONG) <= range.start);
        for u in used.iter().skip(first).take_while(|u| u.start < to) {
            if free < u.start && u.start.since(free) >= LONG {
                return Some(free);
            }
            free = free.max(u.end);
        }
        (free < to && to.since(free) >= LONG).then_some(free)
    })
}

/// Where there was no room: a short jump to a long one that is written over old code of functions that are
/// moved.
///
/// Nothing runs that code any more. Only that of functions which every jump is known of is taken, so that
/// this is certain.
fn over_dead_code(
    program: &Program,
    reachable: Reachable<'_>,
    movable: &mut Movable,
    boards: &mut Vec<Springboard>,
) {
    let cramped: Vec<FuncId> =
        program.func_ids().filter(|id| movable.not_moved[id.index()] == Some(NotMoved::NoRoom)).collect();
    let mut taken: Vec<Range<Va>> = boards.iter().flat_map(Springboard::taken).collect();
    let system_calls = reachable.1.map_or(&[][..], |running| &running.system_calls);
    taken.extend(system_calls.iter().map(|at| *at..at.plus(in_progress::SYSTEM_CALL)));
    for id in cramped {
        taken.sort_unstable_by_key(|r| r.start);
        let entry = program.function(id).entry;
        let near = Va(entry.0.saturating_sub(0x100))..entry.plus(0x100);
        let mut holes = BTreeMap::new();
        for &b in program.blocks_in(&near) {
            let block = program.block(b);
            if movable.not_moved[block.func.index()].is_some() || !is_plain(program, block.func) {
                continue;
            }
            let mut free = block.start;
            let from = taken.partition_point(|r| r.end <= block.start);
            for used in taken[from..].iter().take_while(|r| r.start < block.end_va()) {
                if free < used.start && used.start.since(free) >= LONG {
                    holes.insert(free, used.start.since(free));
                }
                free = free.max(used.end);
            }
            if free < block.end_va() && block.end_va().since(free) >= LONG {
                holes.insert(free, block.end_va().since(free));
            }
        }
        if let Some(found) = all_of(program, id, reachable, &mut holes, |_| false) {
            taken.extend(found.iter().flat_map(Springboard::taken));
            boards.extend(found);
            movable.not_moved[id.index()] = None;
        }
    }
}

/// Whether all ways into and through the function are known: it was not found by its looks, and no jump of it
/// is computed.
fn is_plain(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    let is_direct = |b: BlockId| {
        use program::BlockEnd::{Branch, FallThrough, Jump, NoReturn, Return, Stop};
        matches!(program.block(b).end, Branch | FallThrough | Jump | NoReturn | Return | Stop)
    };
    function.sure == Sure::Proved && function.block_ids().all(is_direct)
}

/// Whether calls of code that is moved lead to `id`, and none of code that stays; `callers` are pairs of
/// callee and caller, sorted.
fn called_by_moved(callers: &[(FuncId, FuncId)], id: FuncId, movable: &Movable) -> bool {
    let from = callers.partition_point(|c| c.0 < id);
    let mut mine = callers[from..].iter().take_while(|c| c.0 == id).peekable();
    mine.peek().is_some() && mine.all(|c| movable.not_moved[c.1.index()].is_none())
}

/// Entries that may be reached other than by a call of the image's own code: their address is in data, is
/// computed, or known to others. Sorted.
fn outside(program: &Program, exposed: &[Va]) -> Vec<Va> {
    let image = &program.image;
    let exported = image.symbols.iter().filter(|s| s.dynamic).map(|s| s.at);
    let mut all: Vec<Va> = exposed.to_vec();
    all.extend(exported.chain(image.entry).chain(image.init_fini.iter().copied()));
    all.sort_unstable();
    all.dedup();
    all
}

fn board(
    program: &Program,
    func: FuncId,
    at: Va,
    next: Option<Va>,
    holes: &mut BTreeMap<Va, u64>,
) -> Option<Tactic> {
    let block = program.block(program.block_at(at)?);
    let range = program.function(func).ranges.iter().find(|r| r.contains(&at))?;
    // To the end of the block and its padding; to the end of the function and its padding.
    let strict = block.end_va().since(at) + padding(program, block.end_va());
    let until = next
        .filter(|n| range.contains(n))
        .map_or(range.end.since(at) + padding(program, range.end), |n| n.since(at));
    if strict.min(until) >= LONG {
        return Some(Tactic::Long);
    }
    if strict.min(until) >= SHORT {
        let from = at.plus(SHORT);
        let reach = Va(from.0.saturating_sub(128))..Va(from.0.saturating_add(127));
        let own = at..at.plus(SHORT);
        let hole = holes
            .range(reach)
            .find(|(hole, len)| **len >= LONG && (hole.plus(LONG) <= own.start || **hole >= own.end))
            .map(|(hole, len)| (*hole, *len));
        if let Some((hole, len)) = hole {
            holes.remove(&hole);
            if len > LONG {
                holes.insert(hole.plus(LONG), len - LONG);
            }
            return Some(Tactic::Hop(hole));
        }
    }
    (until >= LONG).then_some(Tactic::Over)
}

/// How many bytes from `at` on only fill space.
fn padding(program: &Program, at: Va) -> u64 {
    if program.block_at(at).is_some() {
        return 0;
    }
    let Some(bytes) = program.image.bytes_from(at) else { return 0 };
    let mut len = 0;
    let mut decoder = Decoder::new(bytes.get(..64).unwrap_or(bytes), at);
    loop {
        let here = decoder.at();
        let n = match decoder.pass_nop() {
            Some(n) => u64::from(n),
            // No instruction of a common form is padding.
            None if decoder.quick().is_some() => break,
            None => match decoder.next() {
                Some(insn) if insn.is_padding() => insn.len_bytes() as u64,
                _ => break,
            },
        };
        let is_kept = program.block_at(here).is_some() || program.image.restartable.hold(here);
        if !program.image.is_code(here) || is_kept {
            break;
        }
        len += n;
    }
    len
}

/// Padding after blocks that a springboard does not need for itself: start and length.
///
/// The first bytes of it are left to the block before, which may be too short for its own jump, or, in a
/// process that runs, for one at its last instruction.
fn holes(program: &Program, is_running: bool) -> BTreeMap<Va, u64> {
    let blocks = &program.blocks;
    blocks
        .par_iter()
        .enumerate()
        .filter(|(n, block)| {
            // What control might run through, or return to, is no hole.
            use program::BlockEnd::{IndirectTailCall, Jump, Return, Stop, Switch};
            matches!(block.end, IndirectTailCall | Jump | Return | Stop | Switch)
                && blocks.get(n + 1).is_none_or(|next| next.start != block.end_va())
        })
        .filter_map(|(_, block)| {
            let len = padding(program, block.end_va());
            let first = if is_running { 1 } else { u64::from(block.len_bytes) };
            let own = LONG.saturating_sub(first);
            (len >= LONG + own).then(|| (block.end_va().plus(own), len - own))
        })
        .collect()
}

/// Those of `addresses` that are in functions that are moved, at the starts of blocks. Sorted.
fn exposed(program: &Program, addresses: &[Va], movable: &Movable) -> Vec<Va> {
    let is_inner = |at: Va| {
        program.block_from(at).is_some_and(|b| movable.not_moved[program.block(b).func.index()].is_none())
    };
    addresses.iter().copied().filter(|&at| is_inner(at)).collect()
}

/// What data hold, tables that are changed apart, and code computes, where that is the start of a block.
/// Sorted.
///
/// A function that they lead into the middle of a block of stays: no jump could be written there.
pub fn addresses(program: &Program, movable: &mut Movable) -> Vec<Va> {
    let image = &program.image;
    let fixed = !image.kind.is_relocated();
    let is_in_moved_table = |at: Va| {
        let i = movable.jump_tables.partition_point(|s| s.end() <= at);
        movable.jump_tables.get(i).is_some_and(|s| s.at <= at)
    };
    let mut found: Vec<Va> = image
        .relocations
        .iter()
        .filter(|r| !is_in_moved_table(r.at))
        .filter_map(|r| match r.to {
            RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) | RelocationTo::Resolver(to) => {
                Some(to)
            }
            _ => None,
        })
        .collect();
    found.extend(&program.named);
    if fixed {
        for segment in image.segments.iter().filter(|s| !s.executable || image.sections.is_empty()) {
            let mut at = Va(segment.range.start.0.next_multiple_of(8));
            while at < segment.range.end {
                let Some(word) = image.word_at(at) else { break };
                if !is_in_moved_table(at) {
                    found.push(Va(word));
                }
                at = at.plus(8);
            }
        }
    }
    found.retain(|&at| program.block_at(at).is_some());
    found.sort_unstable();
    found.dedup();
    let (starts, inner): (Vec<Va>, Vec<Va>) =
        found.into_iter().partition(|&at| program.block_from(at).is_some());
    for at in inner.into_iter().filter(|_| fixed) {
        if let Some(func) = led_inside(program, &starts, at) {
            movable.not_moved[func.index()].get_or_insert(NotMoved::Incomplete);
        }
    }
    starts
}

/// The function that a word of data leads into the middle of a block of. Where nothing is relocated, it may
/// be a number; but not if the function jumps where data say, other words lead to blocks of it, and this one
/// to an instruction.
fn led_inside(program: &Program, starts: &[Va], at: Va) -> Option<FuncId> {
    let block = program.block_at(at)?;
    let func = program.block(block).func;
    let function = program.function(func);
    let is_led_to = |b: BlockId| {
        let start = program.block(b).start;
        start != function.entry && starts.binary_search(&start).is_ok()
    };
    let jumps = || function.block_ids().any(|b| program.block(b).end == BlockEnd::IndirectTailCall);
    let is_one = function.block_ids().any(is_led_to) && jumps() && program.insns(block).any(|i| i.at() == at);
    is_one.then_some(func)
}

#[cfg(test)]
mod tests;

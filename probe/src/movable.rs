//! Which functions can be moved, and why the others stay where they are.
//!
//! A function is moved only if all its control flow is understood, and its tables can be made to lead to the moved blocks.
//! What stays is never wrong: it runs where it always ran.
//!
//! Not here: how a function is moved (`piece`), how control gets there (`springboard`).

use crate::runtimes;
use crate::switches::{self, Switch};
use program::arch::emit::Position;
use program::arch::{Decoder, Flow};
use program::image::Symbol;
use program::{BlockEnd, BlockId, FuncId, Function, Program, Sure, Va};
use rayon::prelude::*;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;

/// Why a function stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stay {
    /// A stub of the procedure linkage table: its unwind rule computes with its own address.
    PltStub,
    /// Found by its looks alone: it may be data.
    Uncertain,
    /// Some of its control flow is not understood.
    Incomplete,
    /// It calls into its own middle, to learn where it stands.
    ReadsItsAddress,
    /// A signal frame, which the kernel and debuggers know by its address or bytes.
    SignalFrame,
    /// It has a table of a form that cannot be changed in place, or shares one with a function that stays.
    Table,
    /// It holds an instruction that cannot be moved.
    FixedInstruction,
    /// There is no room at an entry for a jump to the moved code.
    NoRoom,
    /// Code whose runtime looks it up by its addresses: Go's, OCaml's, Haskell's, V8's.
    ChecksAddresses,
    /// Too much of the program is found by its looks alone to trust the rest.
    Strange,
    /// Its unwind table holds what we do not know, so moved code would have none.
    Unwind,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stay::PltStub => "stub of the linkage table",
            Stay::Uncertain => "found by its looks alone",
            Stay::Incomplete => "control flow not understood",
            Stay::ReadsItsAddress => "reads its own address",
            Stay::SignalFrame => "signal frame",
            Stay::Table => "jump table that cannot be changed",
            Stay::FixedInstruction => "an instruction that cannot be moved",
            Stay::NoRoom => "no room for a jump at an entry",
            Stay::ChecksAddresses => "checks its own addresses",
            Stay::Strange => "most of the program is found by its looks alone",
            Stay::Unwind => "unwind table not understood",
        })
    }
}

/// What can be moved, and the tables that must lead to it.
pub struct Movable {
    /// Per function: `None` if it can be moved.
    pub stays: Vec<Option<Stay>>,
    /// Tables of functions that are moved.
    pub switches: Vec<Switch>,
    /// Starts of blocks whose addresses code takes, in any order.
    pub named: Vec<Va>,
}

/// Looks at each function by itself, then at what they share; those in `staying` have unwind tables that could not be taken over.
pub fn find(program: &Program, staying: &BTreeSet<FuncId>) -> Movable {
    let signal: Vec<Range<Va>> =
        program.image.unwind.iter().filter(|u| u.signal).map(|u| u.range.clone()).collect();
    let by_address = runtimes::by_address(&program.image).is_some();
    let is_strange = is_strange(program);
    let v8 = v8_builtins(program);
    let mut stubs: Vec<Range<Va>> = program.image.plt.iter().map(|p| p.range.clone()).collect();
    stubs.sort_unstable_by_key(|r| r.start);
    let is_stub = |at: Va| {
        let i = stubs.partition_point(|r| r.start <= at);
        i.checked_sub(1).and_then(|i| stubs.get(i)).is_some_and(|r| r.contains(&at))
    };
    let (mut stays, named): (Vec<Option<Stay>>, Vec<Vec<Va>>) = (0..program.functions.len())
        .into_par_iter()
        .map(|i| {
            let id = FuncId::at(i);
            let mut named = Vec::new();
            let by_code = code(program, id, &mut named);
            let entry = program.function(id).entry;
            let is_checked = by_address || v8.iter().any(|range| range.contains(&entry));
            let strange = is_strange.then_some(Stay::Strange);
            let stay = match is_checked {
                true => Some(Stay::ChecksAddresses),
                false => alone(program, id, &signal, &is_stub).or(by_code).or(strange),
            };
            let hidden = || has_hidden_ways(program, id).then_some(Stay::Incomplete);
            let unwind = || staying.contains(&id).then_some(Stay::Unwind);
            (stay.or_else(hidden).or_else(unwind), named)
        })
        .unzip();
    let switches = switches::find(program, &mut stays);
    Movable { stays, switches, named: named.into_iter().flatten().collect() }
}

/// Whether more code than not is found by its looks alone: then no compiler that we know made it, and what the rest leads to, and who
/// looks at it, is not known either.
fn is_strange(program: &Program) -> bool {
    let len = |f: &Function| f.ranges.iter().map(|r| r.end.since(r.start)).sum::<u64>();
    let guessed: u64 = program.functions.iter().filter(|f| f.sure == Sure::Guessed).map(len).sum();
    let all: u64 = program.functions.iter().map(len).sum();
    guessed > all / 2
}

/// The first instruction that uses `gs`. Threads find their counters by it, so no other can be meant by it in the same process.
pub fn uses_gs(program: &Program) -> Option<Va> {
    let in_block = |b: BlockId| {
        let block = program.block(b);
        let bytes = program.image.bytes_in(&block.range())?;
        // The prefix of such an operand, or the start of an opcode of such an instruction.
        let is_worth_it = bytes.contains(&0x65) || bytes.windows(2).any(|w| w == [0x0f, 0xae]);
        is_worth_it.then(|| program.insns(b).find(|insn| insn.uses_gs()).map(|insn| insn.at())).flatten()
    };
    let is_sure = |f: &&Function| f.sure != Sure::Guessed && f.complete;
    let functions = program.functions.par_iter().filter(is_sure);
    functions.filter_map(|f| f.block_ids().find_map(in_block)).min()
}

/// Where V8 keeps the code that it was built with. It tells its own frames by whether their addresses lie there.
///
/// Source: V8, src/snapshot/embedded/embedded-file-writer.h, for the names.
fn v8_builtins(program: &Program) -> Vec<Range<Va>> {
    let image = &program.image;
    let is_start = |name: &str| name.starts_with("v8_") && name.ends_with("_embedded_blob_code_");
    let starts = image.symbols.iter().filter(|s| is_start(&s.name));
    let range = |start: &Symbol| {
        let size = image.symbols.iter().find(|s| s.name.strip_suffix("size_") == Some(&start.name))?;
        let len = u32::from_le_bytes(*image.bytes_from(size.at)?.first_chunk()?);
        Some(start.at..start.at.plus(u64::from(len)))
    };
    starts.filter_map(range).collect()
}

/// Whether anything but the instructions of a function keeps it where it is.
fn alone(program: &Program, id: FuncId, signal: &[Range<Va>], is_stub: &impl Fn(Va) -> bool) -> Option<Stay> {
    let function = program.function(id);
    if function.import.is_some() || is_stub(function.entry) {
        return Some(Stay::PltStub);
    }
    if function.sure == Sure::Guessed {
        return Some(Stay::Uncertain);
    }
    let has_bytes = |r: &Range<Va>| program.image.bytes_in(r).is_some();
    if !function.complete || program.entry_block(id).is_none() || !function.ranges.iter().all(has_bytes) {
        return Some(Stay::Incomplete);
    }
    if function.ranges.iter().any(|r| signal.iter().any(|s| s.start < r.end && r.start < s.end)) {
        return Some(Stay::SignalFrame);
    }
    None
}

/// Whether an instruction of a function keeps it where it is. Adds the starts of blocks whose addresses its code takes to `named`.
fn code(program: &Program, id: FuncId, named: &mut Vec<Va>) -> Option<Stay> {
    let function = program.function(id);
    let fixed = !program.image.kind.is_relocated();
    let mut stay = None;
    for block in program.blocks_of(id) {
        if matches!(block.end, BlockEnd::Unresolved | BlockEnd::Broken) {
            stay = stay.or(Some(Stay::Incomplete));
        }
        let bytes = program.image.bytes_from(block.start).unwrap_or_default();
        if (bytes.len() as u64) < u64::from(block.len_bytes) {
            stay = stay.or(Some(Stay::Incomplete));
            continue;
        }
        let mut name = |at: Va| named.extend(program.block_from(at).map(|_| at));
        let mut decoder = Decoder::new(bytes, block.start);
        while decoder.at() < block.end_va() {
            let at = decoder.at();
            let flow = match decoder.quick().filter(|quick| !fixed || !quick.is_wide) {
                Some(quick) => {
                    decoder.pass(&quick);
                    if quick.size == 0 {
                        quick.place(at).into_iter().for_each(&mut name);
                    }
                    quick.flow
                }
                None => {
                    let Some(insn) = decoder.next() else { break };
                    let from = usize::try_from(at.since(block.start)).unwrap_or(usize::MAX);
                    let own = bytes.get(from..from + insn.len_bytes()).unwrap_or_default();
                    if decoder.position_of(&insn, own) == Position::Fixed {
                        stay = stay.or(Some(Stay::FixedInstruction));
                    }
                    let places = insn.refers_to(fixed).into_iter().flatten();
                    places.filter(|(_, size)| *size == 0).for_each(|(at, _)| name(at));
                    insn.flow()
                }
            };
            let Flow::Call(to) = flow else { continue };
            let is_within = function.ranges.iter().any(|r| r.contains(&to)) && to != function.entry;
            if to == decoder.at()
                || is_within
                    && program.function_at(to) == Some(id)
                    && !program.block_from(to).is_some_and(|t| function.entries.contains(&t))
            {
                stay = stay.or(Some(Stay::ReadsItsAddress));
            }
        }
    }
    stay
}

/// Whether a jump that seems to leave the function may lead into it: code of its own is reached by nothing that is known.
///
/// Interpreters in assembly compute where an instruction's code stands from offsets of their own making; so does libffi. Compilers
/// leave no code behind that nothing reaches, or only traps, and jumps and calls of what does not return.
fn has_hidden_ways(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    if !function.block_ids().any(|b| program.block(b).end == BlockEnd::IndirectTailCall) {
        return false;
    }
    let mut todo: Vec<BlockId> = function.entries.to_vec();
    todo.extend(program.entry_block(id));
    todo.extend(function.block_ids().filter(|&b| program.block(b).landing_pad));
    let mut seen: HashSet<BlockId> = todo.iter().copied().collect();
    while let Some(b) = todo.pop() {
        let next = program.successors(b).iter().map(|e| e.to);
        todo.extend(next.filter(|to| seen.insert(*to)));
    }
    let is_left_over = |b| {
        let block = program.block(b);
        let is_one = block.n_insns == 1 && matches!(block.end, BlockEnd::Jump | BlockEnd::NoReturn);
        block.end == BlockEnd::Stop || is_one
    };
    function.block_ids().any(|b| !seen.contains(&b) && !is_left_over(b))
}

//! Which functions can be moved, and why the others stay where they are.
//!
//! A function is moved only if all its control flow is understood, and its tables can be made to lead to the moved blocks.
//! What stays is never wrong: it runs where it always ran.
//!
//! Not here: how a function is moved (`piece`), how control gets there (`springboard`).

use crate::springboard;
use crate::switches::{self, Switch};
use program::arch::Decoder;
use program::arch::emit::Position;
use program::image::Symbol;
use program::{BlockEnd, BlockId, FuncId, Program, Sure, Va};
use rayon::prelude::*;
use std::collections::HashSet;
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
    /// Code that checks its own addresses: Go's runtime, V8's.
    ChecksAddresses,
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
        })
    }
}

/// Per function: why it stays where it is; `None` if it is moved.
pub fn stays(program: &Program) -> Vec<Option<Stay>> {
    let mut movable = find(program);
    springboard::plan(program, &mut movable);
    movable.stays
}

/// What can be moved, and the tables that must lead to it.
pub struct Movable {
    /// Per function: `None` if it can be moved.
    pub stays: Vec<Option<Stay>>,
    /// Tables of functions that are moved.
    pub switches: Vec<Switch>,
}

/// Looks at each function by itself, then at what they share.
pub fn find(program: &Program) -> Movable {
    let signal: Vec<Range<Va>> =
        program.image.unwind.iter().filter(|u| u.signal).map(|u| u.range.clone()).collect();
    let is_go = !program.image.go_functions.is_empty();
    let v8 = v8_builtins(program);
    let mut stays: Vec<Option<Stay>> = (0..program.functions.len())
        .into_par_iter()
        .map(|i| {
            let entry = program.function(FuncId::at(i)).entry;
            let is_checked = is_go || v8.iter().any(|range| range.contains(&entry));
            if is_checked { Some(Stay::ChecksAddresses) } else { alone(program, FuncId::at(i), &signal) }
        })
        .collect();
    let switches = switches::find(program, &mut stays);
    Movable { stays, switches }
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

fn alone(program: &Program, id: FuncId, signal: &[Range<Va>]) -> Option<Stay> {
    let function = program.function(id);
    if function.import.is_some() || program.image.plt.iter().any(|p| p.range.contains(&function.entry)) {
        return Some(Stay::PltStub);
    }
    if function.sure == Sure::Guessed {
        return Some(Stay::Uncertain);
    }
    if !function.complete || program.entry_block(id).is_none() {
        return Some(Stay::Incomplete);
    }
    if function.ranges.iter().any(|r| signal.iter().any(|s| s.start < r.end && r.start < s.end)) {
        return Some(Stay::SignalFrame);
    }
    for b in function.block_ids() {
        let block = program.block(b);
        if matches!(block.end, BlockEnd::Unresolved | BlockEnd::Broken) {
            return Some(Stay::Incomplete);
        }
        let Some(bytes) = program.image.bytes_in(&block.range()) else { return Some(Stay::Incomplete) };
        let mut decoder = Decoder::new(bytes, block.start);
        let mut from = 0;
        while let Some(insn) = decoder.next() {
            let own = bytes.get(from..from + insn.len_bytes()).unwrap_or_default();
            from += insn.len_bytes();
            if decoder.position_of(&insn, own) == Position::Fixed {
                return Some(Stay::FixedInstruction);
            }
            if let program::arch::Flow::Call(to) = insn.flow()
                && to != function.entry
                && program.function_at(to) == Some(id)
                && !program.block_from(to).is_some_and(|t| function.entries.contains(&t))
            {
                return Some(Stay::ReadsItsAddress);
            }
            if matches!(insn.flow(), program::arch::Flow::Call(to) if to == insn.end()) {
                return Some(Stay::ReadsItsAddress);
            }
        }
    }
    has_hidden_ways(program, id).then_some(Stay::Incomplete)
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

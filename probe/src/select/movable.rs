//! Which functions can be moved, and why the others stay where they are.
//!
//! A function is moved only if all its control flow is understood, and its tables can be made to lead to the
//! moved blocks. What stays is never wrong: it runs where it always ran.
//!
//! Not here: how a function is moved (`piece`), how control gets there (`springboard`).

use crate::not_moved::NotMoved;
use crate::select::jump_tables::{self, MovedTable};
use crate::select::{restartable, runtimes};
use memchr::{memchr_iter, memmem::Finder};
use program::arch::{ControlFlow, Decoder};
use program::image::Symbol;
use program::{BlockEnd, BlockId, Call, CallKind, Callee, FuncId, Function, Program, Sure, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

/// What can be moved, and the tables that must lead to it.
pub struct Movable {
    /// Per function: `None` if it can be moved.
    pub not_moved: Vec<Option<NotMoved>>,
    /// Tables of functions that are moved.
    pub jump_tables: Vec<MovedTable>,
}

impl Movable {
    /// Has no functions moved but these.
    pub fn keep_all_but(&mut self, moved: impl Iterator<Item = FuncId>) {
        let moved: HashSet<FuncId> = moved.collect();
        for (n, why) in self.not_moved.iter_mut().enumerate() {
            if !moved.contains(&FuncId::at(n)) {
                why.get_or_insert(NotMoved::NotAsked);
            }
        }
    }
}

/// Looks at each function by itself, then at what they share; those in `unwind_refused` have unwind tables
/// that could not be taken over.
pub fn find(program: &Program, unwind_refused: &BTreeSet<FuncId>) -> Movable {
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
    let by_code = by_code(program);
    let restartable = restartable::functions(program);
    let mut not_moved: Vec<Option<NotMoved>> = (0..program.functions.len())
        .into_par_iter()
        .map(|i| {
            let id = FuncId::at(i);
            let entry = program.function(id).entry;
            let is_checked = by_address || v8.iter().any(|range| range.contains(&entry));
            let strange = is_strange.then_some(NotMoved::Strange);
            let why = match is_checked {
                true => Some(NotMoved::ChecksAddresses),
                false => {
                    let code = by_code.get(&id).map(|found| found.1);
                    alone(program, id, &signal, &is_stub).or(code).or(strange)
                }
            };
            let hidden = || has_hidden_ways(program, id).then_some(NotMoved::Incomplete);
            let restarts = restartable.contains(&id).then_some(NotMoved::Restartable);
            let unwind = || unwind_refused.contains(&id).then_some(NotMoved::Unwind);
            restarts.or(why).or_else(hidden).or_else(unwind)
        })
        .collect();
    let jump_tables = jump_tables::find(program, &mut not_moved);
    Movable { not_moved, jump_tables }
}

/// Functions of the C library that act by which module calls them.
const BY_CALLER: [&str; 4] = ["dlsym", "dlvsym", "dlopen", "dlmopen"];

/// Keeps the functions where they are that call what acts by who calls it: ld.so knows what it has loaded,
/// and nothing of code that came into a process later.
pub fn keep_known_callers(program: &Program, movable: &mut Movable) {
    let import = |id: FuncId| program.function(id).import.as_deref();
    let is_one = |name: &str| BY_CALLER.contains(&name.split('@').next().unwrap_or(name));
    for call in &program.calls {
        let called = match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| is_one(name)),
            Callee::Function(callee) => import(callee).is_some_and(is_one),
            Callee::Indirect | Callee::Unknown(_) => false,
        };
        if called && let Some(why) = movable.not_moved.get_mut(program.block(call.block).func.index()) {
            why.get_or_insert(NotMoved::KnowsCaller);
        }
    }
}

/// Whether more code than not is found by its looks alone: then no compiler that we know made it, and what
/// the rest leads to, and who looks at it, is not known either.
fn is_strange(program: &Program) -> bool {
    let len = |f: &Function| f.ranges.iter().map(|r| r.end.since(r.start)).sum::<u64>();
    let guessed: u64 = program.functions.iter().filter(|f| f.sure == Sure::Guessed).map(len).sum();
    let all: u64 = program.functions.iter().map(len).sum();
    guessed > all / 2
}

/// The first instruction that uses `gs`. Threads find their counters by it, so no other can be meant by it in
/// the same process.
pub fn uses_gs(program: &Program) -> Option<Va> {
    let store = Finder::new(&[0x0f, 0xae]);
    let in_block = |b| program.insns(b).find(|insn| insn.uses_gs()).map(|insn| insn.at());
    // The prefix of such an operand, or the start of an opcode of such an instruction: few blocks hold one.
    let in_range = |range: &Range<Va>| {
        let bytes = program.image.bytes_in(range).unwrap_or_default();
        let all = memchr_iter(0x65, bytes).chain(store.find_iter(bytes));
        let blocks = all.filter_map(|n| program.block_at(range.start.plus(n as u64)));
        blocks.filter_map(in_block).min()
    };
    let in_function = |f: &Function| f.ranges.iter().filter_map(in_range).min();
    let is_sure = |f: &&Function| f.sure != Sure::Guessed && f.complete;
    let functions = program.functions.par_iter().filter(is_sure);
    functions.filter_map(in_function).min()
}

/// Where V8 keeps the code that it was built with. It tells its own frames by whether their addresses lie
/// there.
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
fn alone(
    program: &Program,
    id: FuncId,
    signal: &[Range<Va>],
    is_stub: &impl Fn(Va) -> bool,
) -> Option<NotMoved> {
    let function = program.function(id);
    if function.import.is_some() || is_stub(function.entry) {
        return Some(NotMoved::PltStub);
    }
    if function.sure == Sure::Guessed {
        return Some(NotMoved::Uncertain);
    }
    let has_bytes = |r: &Range<Va>| program.image.bytes_in(r).is_some();
    if !function.complete || program.entry_block(id).is_none() || !function.ranges.iter().all(has_bytes) {
        return Some(NotMoved::Incomplete);
    }
    if function.ranges.iter().any(|r| signal.iter().any(|s| s.start < r.end && r.start < s.end)) {
        return Some(NotMoved::SignalFrame);
    }
    None
}

/// The functions that an instruction of theirs keeps where they are: the first such, and why.
fn by_code(program: &Program) -> BTreeMap<FuncId, (Va, NotMoved)> {
    let fixed = program
        .fixed
        .iter()
        .filter_map(|&at| Some((program.function_at(at)?, at, NotMoved::FixedInstruction)));
    let reads = program.calls.iter().filter_map(|call| {
        let own = program.block(call.block).func;
        let reads = reads_its_address(program, call, own);
        reads.then_some((own, call.at, NotMoved::ReadsItsAddress))
    });
    let mut all = BTreeMap::new();
    for (id, at, why) in fixed.chain(reads) {
        let first = all.entry(id).or_insert((at, why));
        *first = if at < first.0 { (at, why) } else { *first };
    }
    all
}

/// Whether `call` of the function `id` leads to what follows it, or into the middle of the function.
fn reads_its_address(program: &Program, call: &Call, id: FuncId) -> bool {
    // Behind such a call a block starts, if anything is known of what is there.
    let may = match call.callee {
        Callee::Unknown(_) => true,
        Callee::Function(callee) => callee == id || call.at == program.block(call.block).last_insn(),
        Callee::Import(_) | Callee::Indirect => false,
    };
    if call.kind != CallKind::Call || !may {
        return false;
    }
    let bytes = program.image.bytes_from(call.at).unwrap_or_default();
    let mut decoder = Decoder::new(bytes.get(..16).unwrap_or(bytes), call.at);
    let flow = match decoder.quick() {
        Some(quick) => {
            decoder.pass(&quick);
            Some(quick.flow)
        }
        None => decoder.next().map(|insn| insn.flow()),
    };
    let Some(ControlFlow::Call(to)) = flow else { return false };
    let function = program.function(id);
    let is_within = to != function.entry && function.ranges.iter().any(|r| r.contains(&to));
    to == decoder.at()
        || is_within
            && program.function_at(to) == Some(id)
            && !program.block_from(to).is_some_and(|t| function.entries.contains(&t))
}

/// Whether a jump that seems to leave the function may lead into it: code of its own is reached by nothing
/// that is known.
///
/// Interpreters in assembly compute where an instruction's code stands from offsets of their own making; so
/// does libffi. Compilers leave no code behind that nothing reaches, or only traps, and jumps and calls of
/// what does not return.
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

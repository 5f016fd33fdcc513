//! What is recorded of a run: events where control could have gone another way and the next event would not
//! tell, and the code that tells the rest from them.
//!
//! ```text
//! entry              each that is reached from outside, with the stack pointer where frames must be told
//!                    apart
//! start of a block   that nothing leads to, a landing pad, behind a call that returns twice, where the
//!                    process may end itself (`kill`), and one on each circle of blocks that would have none
//! one of several     at its start, or on the way there: as few as the rest follows from, where they run
//!                    seldom (`trace::region`)
//! a sure call        none, where what is told next tells of it; the other calls of it come to its entry
//! behind a call      of something that need not be recorded when it is entered, or left, or that may call
//!                    its caller
//! a branch taken     out of the function
//! ```
//!
//! Source: J. R. Larus, "Abstract Execution", Software: Practice and Experience 20, 1990 (what need not be
//! recorded).
#![warn(clippy::indexing_slicing)]

mod calls;
mod function;

use crate::edges::plan::{Often, Shape};
use crate::edges::returns::Returns;
use calls::Around;
use function::FunctionPoints;
use probe::{Event, EventAt, Module, NotMoved, Plan, Reached};
use profile::Profile;
use program::{BlockId, FuncId, Program};
use std::collections::HashMap;
use trace::recording::event::{Head, LIMIT};
use trace::recording::module_code::{Block, Function, ModuleCode};
use trace::region::Passages;

// The runtime appends what `trace` reads.
const _: () = assert!(
    probe::arch::shared::EVENTS_HANDLER == trace::recording::event::HANDLER
        && probe::arch::shared::EVENTS_ANOTHER == trace::recording::event::ANOTHER
        && 1 << probe::arch::shared::EVENTS_IN_CALL == trace::recording::event::IN_CALL
        && probe::arch::shared::EVENTS_REDIRECTED == trace::recording::event::REDIRECTED
);

/// Why a module cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("it has more blocks than events can tell apart")]
pub struct TooLarge;

/// The most points of a module.
const MOST_POINTS: u32 = 1 << 24;
/// Where the numbers of a module's points start is a multiple of this.
const BASES: u32 = 1 << 12;

/// What of a module is recorded.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Why each function is not moved, by its number; `None` if it is.
    pub not_moved: &'a [Option<NotMoved>],
    /// Whether the C library is recorded, too.
    pub libc: bool,
    /// Whether a function is, if it can be.
    pub is_recorded: &'a (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function has an event each time that it is entered.
    pub tells: &'a (dyn Fn(FuncId) -> bool + Sync),
}

/// What the events of a file go by, and it is known by in traces; of its [`probe::file_key`].
pub fn key(file_key: u128) -> u32 {
    let [a, b, c, d, ..] = file_key.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What is to be put into the code of `program`, and what its events mean. Their numbers go by `key` and
/// `turn`; those of two modules may overlap ([`ModuleCode::numbers`]), then one needs another turn. `earlier`
/// is how it ran before.
///
/// # Errors
/// If it is too large.
pub fn plan(
    program: &Program,
    key: u32,
    turn: u32,
    scope: Scope<'_>,
    earlier: Option<&Profile>,
) -> Result<(Plan, ModuleCode), TooLarge> {
    let not_moved = scope.not_moved;
    // A stub is no function of the program's.
    let is_moved = |f: FuncId| {
        not_moved.get(f.index()).is_some_and(Option::is_none)
            && program.function(f).import.is_none()
            && (scope.is_recorded)(f)
    };
    let forks = probe::calls_of_forks(program);
    // Of a static program, it is in the same file.
    let is_libc_recorded = scope.libc || program.image.kind.is_static();
    let (is_moved, is_recorded, tells) = (&is_moved, scope.is_recorded, scope.tells);
    let mut around =
        Around { program, forks, is_moved, is_recorded, tells, is_libc_recorded, targets: HashMap::new() };
    let entries = around.entries();
    around.find_targets(&entries);
    let around = around;
    let leaves_somewhere = around.leave_somewhere();
    let base = key.wrapping_add(turn.wrapping_mul(0x9e37_79b9)) % ((LIMIT - 2 * MOST_POINTS) / BASES) * BASES;
    let mut code = unnumbered(program, key, base);
    let returns = Returns::of(program);
    let recurses = around.recurse(&leaves_somewhere);
    let mut passages = Passages::default();
    let mut often = Often::default();
    let mut events = Vec::new();
    let mut imports: HashMap<String, u32> = HashMap::new();
    for (name, n) in code.imports.iter().zip(1..) {
        imports.entry(name.clone()).or_insert(n);
    }
    let called = around.called(&leaves_somewhere, &recurses);
    let of = |func: FuncId| FunctionPoints {
        around: &around,
        func,
        entries: &entries,
        leaves: &leaves_somewhere,
        recurses: &recurses,
        is_called: called.get(func.index()).is_some_and(|c| *c),
    };
    // What is called comes before what calls it.
    let mut order: Vec<FuncId> = program.func_ids().collect();
    order.sort_by_key(|f| recurses.get(f.index()));
    for func in order {
        let blocks = if is_moved(func) {
            often.estimate(program, &returns, func, &Shape::with(program, &returns, func, true));
            if let Some(earlier) = earlier {
                often.take(program, func, earlier);
            }
            of(func).blocks(&imports, &returns, &often, &mut passages)
        } else if around.stub(func) > 0 {
            let block = |b: BlockId| Block { at: program.block(b).start.0, ..Block::default() };
            program.numbered_blocks(func).map(block).collect()
        } else {
            Vec::new()
        };
        code.functions.get_mut(func.index()).into_iter().for_each(|f| f.blocks.clone_from(&blocks));
    }
    let mut from_inside = Vec::new();
    let mut functions = std::mem::take(&mut code.functions);
    for (func, made) in program.func_ids().zip(&mut functions).filter(|(func, _)| is_moved(*func)) {
        of(func).number(&mut made.blocks, &mut code, &mut events);
        from_inside.extend(of(func).quiet_calls(&made.blocks));
    }
    code.functions = functions;
    number_entries(&around, &entries, &mut code, &mut events);
    if code.points.len() > MOST_POINTS as usize || code.entries.len() > MOST_POINTS as usize {
        return Err(TooLarge);
    }
    Ok((Plan { events, from_inside, ..Plan::NULL }, code))
}

/// Says which blocks the entries are, in the order of their numbers, and what is appended there.
fn number_entries(
    around: &Around<'_>,
    entries: &HashMap<BlockId, u32>,
    code: &mut ModuleCode,
    events: &mut Vec<Event>,
) {
    let program = around.program;
    let mut sorted: Vec<(BlockId, u32)> = entries.iter().map(|(block, n)| (*block, *n)).collect();
    sorted.sort_by_key(|(_, n)| *n);
    for (block, n) in sorted {
        let func = program.block(block).func;
        code.entries.push((func.0, trace::BlockId(program.block_number(block))));
        let has_frame = around.has_frames(func);
        let word = Head::Entry { number: code.base + n, has_frame }.word();
        events.push(Event { block, at: EventAt::Entry, word, has_frame });
    }
}

/// The code of `program` with its functions and imports by name, without blocks.
fn unnumbered(program: &Program, key: u32, base: u32) -> ModuleCode {
    let mut code = ModuleCode { key, base, path: program.image.name.clone(), ..ModuleCode::default() };
    let stubs = program.func_ids().filter_map(|f| program.function(f).import.as_deref());
    code.imports = program.imports.iter().map(AsRef::as_ref).chain(stubs).map(str::to_owned).collect();
    code.imports.sort_unstable();
    code.imports.dedup();
    let name = |f: FuncId| Function { name: program.function(f).name(), blocks: Vec::new() };
    code.functions = program.func_ids().map(name).collect();
    code
}

/// Which block of which function the moved code of `module` is of.
pub fn places(module: &Module<'_>) -> Vec<(u32, Option<(u32, trace::BlockId)>)> {
    let program = module.program;
    let block = |id: BlockId| (program.block(id).func.0, trace::BlockId(program.block_number(id)));
    let of = |place: Reached| match place {
        Reached::Block(id) | Reached::Behind(id) | Reached::Called(id) => Some(block(id)),
        Reached::Counted(_) | Reached::Nothing => None,
    };
    module.code_map.reached.iter().map(|(at, place)| (*at, of(*place))).collect()
}

#[cfg(test)]
mod tests;

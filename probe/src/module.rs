//! One module with its functions moved: the old bytes with springboards, and new segments behind them.
//!
//! A module is made in phases, each a value that borrows those before it: what is moved (`select`), what is
//! put into it (`lower`), what that looks like and where it stands (`layout`), the tables that speak of it
//! (`image`).
//!
//! Invariant: what stays where it was is bit by bit what it was, but for springboards and the tables named in
//! `patches`.
//!
//! Source: W. Wang, X. Meng, ASPLOS 2021, for moving whole functions.
#![warn(clippy::indexing_slicing)]

use crate::arch::shared::{Capacity, HomePage, PAGE};
use crate::arch::{ExecSite, Runtime, emit};
use crate::code::Side;
use crate::error::RewriteError;
use crate::image::file::{self, Old};
use crate::image::program_headers::Tables;
use crate::image::running::{self, MovedWord, Running, Stayed};
use crate::image::segments::{self, Segments, file_key, old_segments};
use crate::image::symbols::{Moves, Span};
use crate::image::unwind::{self, Unwind};
use crate::image::{NewSegments, dynamic};
use crate::layout::code_map::{self, CodeMap};
use crate::layout::entry_stubs::EntryStubs;
use crate::layout::link::Text;
use crate::layout::piece;
use crate::layout::place::{Placed, Placement, Room, line_up, page_up};
use crate::lower::indirect_calls::IndirectCalls;
use crate::lower::{Lowered, Words};
use crate::not_moved::NotMoved;
use crate::patch::{Patch, joined};
use crate::plan::Plan;
use crate::select::springboard::{Comes, Springboard};
use crate::select::{Selection, jump_tables, movable, plt};
use object::elf;
use program::image::{Kind, RelocationTo};
use program::{FuncId, Program, Va};
use std::collections::BTreeSet;
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

/// A module with its functions moved.
pub struct Module<'a> {
    /// What it is made from.
    pub program: &'a Program,
    /// Per function: why it is not moved; `None` if it is.
    pub not_moved: Vec<Option<NotMoved>>,
    /// The jumps from old code to new.
    pub springboards: Vec<Springboard>,
    /// What changes in old segments, by address.
    pub patches: Vec<Patch>,
    /// What the words of a thread's own memory hold.
    pub words: Words,
    /// Where which code is.
    pub code_map: CodeMap,
    /// What gives threads their counters, if anything is counted.
    pub runtime: Option<Runtime>,
    /// The byte that says whether a library has started, if anything is counted.
    started: Option<Va>,
    new: NewSegments,
    key: u128,
    /// Words of data that lead to moved code, in a process that runs.
    moved_words: Vec<MovedWord>,
    /// What calls code that stands in for functions, and is returned to.
    keepers: Vec<Range<Va>>,
    /// Where code of ours starts in whose place there is a block, and where that was.
    instead: Vec<(Va, Va)>,
}

impl<'a> Module<'a> {
    /// Moves all functions of `program` that can be moved, with what `plan` puts into them.
    ///
    /// # Errors
    /// If there is no room for new segments, probes cannot be put where they are wanted, or they would
    /// disturb it; if the plan both counts and appends events.
    ///
    /// # Panics
    /// If our own code leads to what is nowhere.
    pub fn build(program: &'a Program, plan: &Plan, room: Room) -> Result<Module<'a>, RewriteError> {
        if !plan.is_null()
            && let Some(at) = movable::uses_gs(program)
        {
            return Err(RewriteError::UsesGs { name: program.image.name.clone(), at });
        }
        let key = file_key(&program.image);
        // A throw through these would find no row of moved code.
        let mut unwind_refused = BTreeSet::new();
        loop {
            let module = Module::build_without(program, key, plan, room, &unwind_refused)?;
            let n_before = unwind_refused.len();
            unwind_refused.extend(module.without_unwind());
            if unwind_refused.len() == n_before {
                return Ok(module);
            }
        }
    }

    /// Why each function of `program` is not moved; `None` for those that are moved when blocks are counted.
    /// Of an excerpt, what was found out of the whole file.
    pub fn not_moved(program: &Program) -> Vec<Option<NotMoved>> {
        if program.is_excerpt() {
            let kept = |id| NotMoved::from_text(program.remark(id)?.not_moved.as_deref()?);
            return program.func_ids().map(kept).collect();
        }
        Module::not_moved_in(program, Room::Apart)
    }

    /// The same of a whole file, where what is new of it goes into `room`: in a process that runs already,
    /// more stay.
    pub fn not_moved_in(program: &Program, room: Room) -> Vec<Option<NotMoved>> {
        match Module::build(program, &Plan::NULL, room) {
            Ok(module) => module.not_moved,
            Err(_) => movable::find(program, &BTreeSet::new()).not_moved,
        }
    }

    /// Functions with moved code whose unwind rows could not be taken over.
    fn without_unwind(&self) -> Vec<FuncId> {
        let starts: BTreeSet<Va> = self.new.unwind.left_out.iter().map(|r| r.start).collect();
        if starts.is_empty() {
            return Vec::new();
        }
        let is_one = |id: &FuncId| {
            self.not_moved.get(id.index()).is_some_and(Option::is_none)
                && self.program.function(*id).ranges.iter().any(|r| starts.contains(&r.start))
        };
        self.program.func_ids().filter(is_one).collect()
    }

    /// The same, but for the functions in `unwind_refused`.
    fn build_without(
        program: &'a Program,
        key: u128,
        plan: &Plan,
        room: Room,
        unwind_refused: &BTreeSet<FuncId>,
    ) -> Result<Module<'a>, RewriteError> {
        let selection = Selection::compute(program, plan, room.is_running(), unwind_refused);
        let lowered = Lowered::compute(program, plan, &selection)?;
        let pieces = piece::pieces(program, &selection, &lowered);
        let placement =
            Placement::compute(program, plan, room, &lowered, selection.springboards.len(), &pieces)?;
        let reached = code_map::reached(program, &placement);
        let runtime = (lowered.words.n > 0).then(|| runtime_for(program, key, &lowered, &placement));
        let mut text = Text::link(program, plan, &placement, runtime.as_ref());
        let mut patches = Vec::new();
        if let Some(runtime) = &runtime {
            text.fill_to(runtime.at);
            text.bytes.extend(&runtime.bytes);
            if !room.is_running() {
                start_with(program, runtime, &mut patches);
            }
        }
        let stubs = EntryStubs {
            program,
            placement: &placement,
            runtime: runtime.as_ref(),
            entries: &lowered.entries,
        };
        for board in &selection.springboards {
            let to = match board.comes {
                Comes::In => stubs.lead(board.at, &mut text),
                Comes::Back => stubs.lead_back(board.at, &emit::RETURN, &mut text),
                Comes::BackFromKernel => stubs.lead_back(board.at, &emit::RETURN_FROM_KERNEL, &mut text),
            };
            board.write(program, to, &mut patches);
        }
        for led in &plan.led {
            let not_led = || RewriteError::NotLed { name: program.image.name.clone(), at: led.at };
            patches.push(Patch::call(program, led.at, led.to).ok_or_else(not_led)?);
        }
        let moved_words = patch_jump_tables(program, &selection, &placement, room, &mut patches)?;
        let unwind = unwind_tables(program, plan, &lowered.words, &placement, runtime.as_ref());
        let unwind = match room.is_running() {
            true => unwind,
            false => name_moved(program, &placement, unwind, &mut patches),
        };
        patches.sort_by_key(|p| p.at);
        patches.dedup_by(|a, b| a.at == b.at && a.new == b.new); // entries that two tables share

        let starts: Vec<Va> = placement.pieces.iter().map(|p| p.at).collect();
        let keeper = |(at, made): &(Va, emit::Keeping)| *at..at.plus(made.code.len() as u64);
        let keepers = placement.keepers.iter().map(keeper).collect();
        let instead = placement.sides.iter().filter(|side| matches!(side.0.1, Side::From(_)));
        let instead = instead.map(|((old, _), new)| (*new, *old)).collect();
        let Placement { counters, tables, moved, started, .. } = placement;
        let Selection { not_moved, springboards, .. } = selection;
        let Lowered { words, stub_calls, .. } = lowered;
        Ok(Module {
            program,
            not_moved,
            springboards,
            patches,
            words,
            code_map: CodeMap::new(moved, reached, stub_calls, pieces, &starts),
            runtime,
            started,
            new: NewSegments { counters, text, tables, unwind, notes: None },
            key,
            moved_words,
            keepers,
            instead,
        })
    }

    /// Where moved code starts: offsets in it are from here.
    pub fn text_at(&self) -> Va {
        self.new.text.at
    }

    /// Where the function is that another stands in for, if it is moved.
    pub fn original(&self, func: FuncId) -> Option<Va> {
        let entry = self.program.function(func).entry;
        let blocks = &self.code_map.blocks;
        blocks
            .binary_search_by_key(&entry, |block| block.0)
            .ok()
            .and_then(|n| blocks.get(n))
            .map(|block| block.1)
    }

    /// Where the first thread's counters are, with the page in front of them.
    pub fn counters(&self) -> Range<Va> {
        self.new.counters.clone()
    }

    /// From the first of its old segments to the end of the last.
    pub fn old_segments(&self) -> Range<Va> {
        old_segments(self.program)
    }

    /// Whether its counters can be mapped when it starts: a library needs room for DT_INIT.
    pub fn can_start(&self) -> bool {
        self.program.image.kind != Kind::SharedObject || dynamic::init_slot(self.program).is_some()
    }

    /// Has the file make a recording by itself when it is run or loaded, called `name` unless its user says
    /// otherwise. `notes` go into the recording as they are: they must say what its counters mean. A file
    /// with other notes counts in another row of it.
    pub fn set_notes(&mut self, name: &str, notes: &[u8]) {
        let Some(runtime) = &mut self.runtime else { return };
        let mut row = Xxh3::new();
        row.update(&self.key.to_le_bytes());
        row.update(&self.words.n.to_le_bytes());
        row.update(notes);
        runtime.set_key(row.digest128());
        let mut bytes = Capacity::FILE.header().to_vec();
        bytes.extend(name.bytes().filter(|b| *b != 0));
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let header_at = self.new.notes_at();
        runtime.set_notes(header_at, header_at.plus(bytes.len() as u64), notes.len() as u64);
        bytes.extend(notes);
        self.new.notes = Some(bytes);
        self.new.text.put(runtime.at, &runtime.bytes);
    }

    /// Has it ask at `sites` before it becomes another program.
    pub fn ask_at(&mut self, sites: &[ExecSite]) {
        let text = &mut self.new.text;
        segments::ask_at(sites, &self.code_map.blocks, &mut self.patches, text.at, &mut text.bytes);
    }

    /// The module as a file.
    ///
    /// # Errors
    /// If its program headers cannot be extended.
    pub fn to_file(&self, old: Old) -> Result<Vec<u8>, RewriteError> {
        let is_moved = |id: &FuncId| self.not_moved.get(id.index()).is_some_and(Option::is_none);
        let poisoned: Vec<Range<Va>> = match old {
            Old::Kept => Vec::new(),
            Old::Poisoned => {
                let moved = self.program.func_ids().filter(is_moved);
                let blocks = moved.flat_map(|id| plt::blocks(self.program, id));
                blocks.map(|b| self.program.block(b).range()).collect()
            }
        };
        let spans: Vec<Span> = self.spans().collect();
        let moves = Moves { spans: &spans, blocks: &self.code_map.blocks };
        let runtime = self.runtime.as_ref().filter(|_| self.new.notes.is_some());
        let entry = runtime.filter(|_| self.program.image.kind != Kind::SharedObject).map(|r| r.entry);
        file::write(&self.program.image, &self.new, &self.patches, &poisoned, moves, entry)
    }

    /// What a process that runs already is given of it beside its segments; of a module that was made for
    /// one.
    pub fn to_running(&self) -> Running {
        let is_moved = |id: FuncId| self.not_moved.get(id.index()).is_some_and(Option::is_none);
        let (old_at, text) = (self.old_segments().start, &self.new.text);
        let why = |id: FuncId| {
            // Nobody asks for stubs.
            let why = self.not_moved.get(id.index()).copied().flatten()?;
            if why == NotMoved::PltStub {
                return None;
            }
            let function = self.program.function(id);
            Some(Stayed { at: function.entry.0, name: function.name(), why: why.to_string() })
        };
        let mut running = Running {
            old_at: old_at.0,
            words: self.moved_words.clone(),
            insns: running::insns(self.program, &is_moved, &self.code_map, (old_at, text.at)),
            routines: running::routines(self.runtime.as_ref(), &self.keepers, text.at),
            taken_over: self.runtime.as_ref().map(|r| r.taken_over.0),
            boards: running::boards(&self.springboards, old_at),
            n_moved: self.program.func_ids().filter(|id| is_moved(*id)).count() as u64,
            stayed: self.program.func_ids().filter_map(why).collect(),
            ..Running::default()
        };
        let distance = |at: Va, from: Va| u32::try_from(at.since(from)).ok();
        let instead = self.instead.iter();
        let instead = instead.filter_map(|(new, old)| distance(*new, text.at).zip(distance(*old, old_at)));
        let instead: Vec<(u32, u32)> = instead.collect();
        [running.ways_back, running.returns] =
            running::ways_back(self.program, &running, &self.springboards, &instead, (old_at, &text.bytes));
        running
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        self.code_map.ranges().map(|(old, new)| Span { old: old.clone(), new: new.clone() })
    }

    /// The module for a process, whose segments come from no file.
    ///
    /// # Errors
    /// If the program headers cannot be extended.
    pub fn to_segments(&self) -> Result<Segments, RewriteError> {
        let tables = Tables::new(&self.program.image, &self.new, 0, 0)?;
        let old = self.old_segments();
        Ok(Segments {
            key: self.key,
            entry: self.program.image.entry.map(|e| e.0),
            n_counters: self.words.n as usize,
            counters_at: self.new.counters.start.0,
            old: old.start.0..old.end.0,
            runtime_at: self.runtime.as_ref().map(|r| r.at.0),
            started_at: self.started.map(|at| at.0),
            text_at: self.new.text.at.0,
            text_len: self.new.text.bytes.len() as u64,
            text: self.new.text.bytes.clone(),
            tables_at: self.new.tables.0,
            tables_len: tables.bytes.len() as u64,
            tables: tables.bytes,
            n_headers: tables.n_headers,
            patches: joined(&self.patches),
        })
    }
}

/// The runtime of a module whose threads have words, to stand behind all other code.
fn runtime_for(program: &Program, key: u128, lowered: &Lowered, placement: &Placement<'_>) -> Runtime {
    let image = &program.image;
    let counters = &placement.counters;
    let init = match image.kind {
        Kind::SharedObject => dynamic::init_slot(program).and_then(|slot| slot.1),
        _ => image.entry,
    };
    let len = page_up(counters.end).since(counters.start) - HomePage::LEN;
    let (text, at) = (placement.text.start, line_up(placement.text.end));
    let mut runtime = Runtime::at(at, text, counters.start, len, init, key, placement.started);
    let calls = lowered.words.indirect_calls.as_ref().filter(|c| !c.sites.is_empty());
    let calls = calls.map(|c: &IndirectCalls| (c.first, c.sites.len(), c.table(), c.n_slots));
    runtime.set_indirect_calls(&old_segments(program), counters.start, calls);
    if lowered.has_events { runtime.with_events() } else { runtime }
}

/// Has a library's DT_INIT lead to the runtime.
fn start_with(program: &Program, runtime: &Runtime, patches: &mut Vec<Patch>) {
    if program.image.kind == Kind::SharedObject
        && let Some((row, _)) = dynamic::init_slot(program)
    {
        let tag = elf::DT_INIT.0.to_le_bytes();
        patches.push(Patch::of(program, row, [tag, runtime.start.0.to_le_bytes()].concat()));
    }
}

/// Has the jump tables of moved functions lead to moved blocks. In a process that runs, words that its linker
/// has relocated already change themselves: those are given back.
fn patch_jump_tables(
    program: &Program,
    selection: &Selection,
    placement: &Placement<'_>,
    room: Room,
    patches: &mut Vec<Patch>,
) -> Result<Vec<MovedWord>, RewriteError> {
    let mut relocations = Vec::new();
    for table in &selection.jump_tables {
        let inside = |old| placement.inside(old);
        let is_moved = |old| placement.is_moved_block(program, old);
        let sides = &placement.sides;
        jump_tables::change(program, table, sides, &inside, &is_moved, patches, &mut relocations);
    }
    relocations.sort_unstable();
    relocations.dedup();
    if room.is_running() {
        patches.retain(|patch| relocations.binary_search_by_key(&patch.at, |r| r.0).is_err());
        let word = |&(at, new): &(Va, Va)| match program.image.relocation_at(at)?.to {
            RelocationTo::Address(old) => Some(MovedWord { at: at.0, old: old.0, new: new.0 }),
            _ => None,
        };
        return Ok(relocations.iter().filter_map(word).collect());
    }
    dynamic::patch_relocations(program, &relocations, patches).ok_or_else(|| {
        RewriteError::headers(&program.image, "the relocations of a jump table were not found")
    })?;
    Ok(Vec::new())
}

/// The unwind tables of moved code.
fn unwind_tables(
    program: &Program,
    plan: &Plan,
    words: &Words,
    placement: &Placement<'_>,
    runtime: Option<&Runtime>,
) -> Unwind {
    let at = placement.tables.plus(PAGE);
    let counts_indirect = words.indirect_calls.as_ref().is_some_and(|c| !c.sites.is_empty());
    let direct = placement.plt_direct.range();
    let keepers = placement.keepers.iter().zip(&plan.replaced).filter(|one| !one.1.keeps.is_empty());
    let keepers = keepers.map(|((at, made), _)| (*at..at.plus(made.code.len() as u64), &made.row[..]));
    let called = direct.map(|code| (code, &[][..])).into_iter().chain(keepers).collect();
    unwind::build(&program.image, &placement.pieces, runtime, counts_indirect, called, at)
}

/// Puts names for moved code behind its unwind tables, which the dynamic section is to lead to.
fn name_moved(
    program: &Program,
    placement: &Placement<'_>,
    mut unwind: Unwind,
    patches: &mut Vec<Patch>,
) -> Unwind {
    let span = |p: &Placed<'_>| Span { old: p.piece.range.clone(), new: p.range() };
    let spans: Vec<Span> = placement.pieces.iter().map(span).collect();
    let moves = Moves { spans: &spans, blocks: &placement.moved };
    dynamic::name_moved(program, moves, placement.tables.plus(PAGE), &mut unwind.bytes, patches);
    unwind
}

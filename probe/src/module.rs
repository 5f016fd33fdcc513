//! One module with its functions moved: the old bytes with springboards, and new segments behind them.
//!
//! ```text
//!  old segments              springboards over entries, tables changed in place
//!  counters   (RW, zero)     one word a block
//!  text       (RX)           the pieces, in the order of their old addresses
//!  tables     (R)            program headers, search table, unwind rows, language-specific data
//! ```
//!
//! Invariant: what stays where it was is bit by bit what it was, but for springboards and the tables named in
//! `patches`.
//!
//! Source: System V ABI, chapter 5 (program headers); W. Wang, X. Meng, ASPLOS 2021, for moving whole
//! functions.
#![warn(clippy::indexing_slicing)]

use crate::arch::shared::{Capacity, HomePage};
use crate::arch::{ExecSite, Runtime};
use crate::bytes::set_distance;
use crate::code::{Side, Target};
use crate::image::dynamic;
use crate::image::segments::{self, Segments, file_key};
use crate::image::symbols::{self, Moves, Part, Parts, Span};
use crate::image::unwind::{self, Unwind};
use crate::layout::code_map::{Place, places};
use crate::layout::piece;
use crate::layout::place::Placed;
use crate::layout::plt_direct::OwnStubs;
use crate::lower::counters::{self, Counted};
use crate::lower::entry_checks::{
    self, append_begin, append_check, append_restore, append_saved_signal_check, append_signal_check,
};
use crate::lower::events;
use crate::lower::indirect_calls::{self, Callees};
use crate::lower::points;
use crate::not_moved::NotMoved;
use crate::patch::{Patch, joined, long_jump, patch};
use crate::plan::{Action, Counting, Plan, PlanError};
use crate::select::jump_tables;
use crate::select::movable::{self, Movable};
use crate::select::plt;
use crate::select::springboard::{self, Springboard, Tactic};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{U16, U32, U64};
use program::arch::emit;
use program::image::Kind;
use program::{FlagLiveness, FuncId, Program, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

const PAGE: u64 = 0x1000;

/// Why a module cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// Its addresses leave no room for new segments.
    #[error("{name} leaves no room for new segments: with them it would end at {end}")]
    NoSpace {
        /// The file.
        name: String,
        /// Where it would end.
        end: Va,
    },
    /// It needs `gs`, by which its counters would be found.
    #[error("{name} uses gs itself, at {at}, so it cannot be counted")]
    UsesGs {
        /// The file.
        name: String,
        /// The first instruction that does.
        at: Va,
    },
    /// Its program headers cannot be read again, or there are too many of them.
    #[error("the program headers of {name} cannot be extended: {why}")]
    Headers {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Probes cannot be put where they are wanted.
    #[error("{} of the probes cannot be put into {name}", why.len())]
    Probes {
        /// The file.
        name: String,
        /// Which of the plan's, from 0, and why.
        why: Vec<(usize, PlanError)>,
    },
}

/// What becomes of the old code of moved functions in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Old {
    /// It stays.
    Kept,
    /// Traps, but for springboards: the proof that nothing reaches it.
    Poisoned,
}

/// Where the new segments go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Behind the old ones: for files, whose heap the kernel puts behind the last segment.
    Behind,
    /// Apart from the heap, which has its place already: below a module that can be moved, else high in the 2
    /// GiB that code can reach.
    Apart,
}

/// A module with its functions moved.
pub struct Module<'a> {
    /// What it is made from.
    pub program: &'a Program,
    /// Per function: why it stays, if it does.
    pub not_moved: Vec<Option<NotMoved>>,
    /// The jumps from old code to new.
    pub springboards: Vec<Springboard>,
    /// What changes in old segments, by address.
    pub patches: Vec<Patch>,
    /// What each counter counts: they are the first words of a thread's memory.
    pub counted: Vec<Counted>,
    /// The direct calls that are counted by themselves, ascending; their counters are the next.
    pub calls: Vec<Va>,
    /// The direct calls, ascending, of stubs that stay: places behind them are known.
    pub stub_calls: Vec<Va>,
    /// The functions that are counted as sparsely as the plan asks for; of others every block is. Ascending.
    pub sparse: Vec<FuncId>,
    /// The first word of each of the plan's probes.
    pub words: Vec<u32>,
    /// The calls through pointers whose targets are counted.
    pub callees: Option<Callees>,
    /// How many words a thread has.
    pub n_words: u32,
    /// Old starts of moved blocks, and where they are now. By old address.
    pub moved: Vec<(Va, Va)>,
    /// What moved code is, by offset in it.
    pub places: Vec<(u32, Place)>,
    /// Where the counters are.
    pub counters: Range<Va>,
    /// What gives threads their counters, if anything is counted.
    pub runtime: Option<Runtime>,
    text: (Va, Vec<u8>),
    unwind: (Va, Unwind),
    spans: Vec<Span>,
    notes: Option<Vec<u8>>,
    key: u128,
}

impl<'a> Module<'a> {
    /// Moves all functions of `program` that can be moved, with what `plan` puts into them.
    ///
    /// # Errors
    /// If there is no room for new segments, probes cannot be put where they are wanted, or they would
    /// disturb it.
    pub fn build(program: &'a Program, plan: &Plan, room: Room) -> Result<Module<'a>, RewriteError> {
        if !plan.is_null()
            && let Some(at) = movable::uses_gs(program)
        {
            return Err(RewriteError::UsesGs { name: program.image.name.clone(), at });
        }
        let key = file_key(&program.image);
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

    /// Why each function of `program` stays where it is; `None` for those that are moved when blocks are
    /// counted.
    pub fn not_moved(program: &Program) -> Vec<Option<NotMoved>> {
        match Module::build(program, &Plan::NULL, Room::Apart) {
            Ok(module) => module.not_moved,
            Err(_) => movable::find(program, &BTreeSet::new()).not_moved,
        }
    }

    /// Functions with moved code whose unwind rows could not be taken over.
    fn without_unwind(&self) -> Vec<FuncId> {
        let starts: BTreeSet<Va> = self.unwind.1.left_out.iter().map(|r| r.start).collect();
        if starts.is_empty() {
            return Vec::new();
        }
        let is_one = |id: &FuncId| {
            self.not_moved.get(id.index()).is_some_and(Option::is_none)
                && self.program.function(*id).ranges.iter().any(|r| starts.contains(&r.start))
        };
        self.program.func_ids().filter(is_one).collect()
    }

    /// The same, but for the functions in `unwind_refused`: a throw through them finds no row of moved code.
    fn build_without(
        program: &'a Program,
        key: u128,
        plan: &Plan,
        room: Room,
        unwind_refused: &BTreeSet<FuncId>,
    ) -> Result<Module<'a>, RewriteError> {
        let mut movable = movable::find(program, unwind_refused);
        let addresses = springboard::addresses(program, &mut movable);
        // Probes of a plan would push a stub's jump to where its unwind rule says something else.
        let release = |movable: &mut Movable| {
            plan.probes.is_empty() && plt::release(program, &addresses, unwind_refused, movable)
        };
        release(&mut movable);
        let mut springboards = springboard::plan(program, &addresses, &mut movable);
        if release(&mut movable) {
            // There was no room for one of their callers.
            springboards = springboard::plan(program, &addresses, &mut movable);
        }
        let Movable { not_moved, mut switches } = movable;
        switches.retain(|s| not_moved.get(s.func.index()).is_some_and(Option::is_none));

        let (counted, sparse) = counters::choose(program, &plan.counting, &not_moved, &springboards);
        let calls = match counted[..] {
            [] => Vec::new(),
            _ => counters::choose_calls(program, &plan.calls, &not_moved, &sparse),
        };
        let first_call = u32::try_from(counted.len()).expect("ids are 32 bits");
        let n_counters = first_call + u32::try_from(calls.len()).expect("no more than instructions");
        let lowered = points::lower(program, plan, n_counters, &not_moved, &switches)
            .map_err(|why| RewriteError::Probes { name: program.image.name.clone(), why })?;
        let mut inserts = lowered.inserts;
        let flags = (!counted.is_empty() || plan.callees).then(|| FlagLiveness::compute(program));
        if let Some(flags) = &flags {
            counters::count_calls(program, flags, &calls, first_call, &mut inserts);
        }
        let callees = flags
            .as_ref()
            .filter(|_| plan.callees)
            .map(|flags| indirect_calls::choose(program, &not_moved, flags, lowered.n_words, &mut inserts));
        let stub_calls = match plan.counting {
            Counting::Nothing => Vec::new(),
            _ => counters::mark_stub_calls(program, &not_moved, &mut inserts),
        };
        events::write(program, &plan.events, &plan.from_inside, &not_moved, &mut inserts)
            .map_err(|why| RewriteError::Probes { name: program.image.name.clone(), why: vec![(0, why)] })?;
        let has_events = !plan.events.is_empty();
        let n_words = match has_events {
            true => events::WORDS as usize,
            false => callees.as_ref().map_or(lowered.n_words, Callees::end) as usize,
        };
        let unchecked = entry_checks::without_thread_pointer(program);
        let keeping = entry_checks::called_by_what_stays(program, &not_moved);
        let handlers = if n_words > 0 { entry_checks::handlers(program, &addresses) } else { Vec::new() };
        if n_words > 0 {
            inserts.extend(entry_checks::in_front(
                program,
                &springboards,
                &[&unchecked, &keeping],
                &handlers,
            ));
        }
        let pieces = piece::pieces(program, &not_moved, &counted, flags.as_ref(), inserts);
        let first = program.image.segments.first().map_or(Va(0), |s| s.range.start);
        let end = program.image.segments.last().map_or(Va(0), |s| s.range.end);
        // Of a program at fixed addresses: high, so that the counters of further threads find room below.
        let is_high = !program.image.kind.is_relocated()
            && (room == Room::Apart || n_words > 0 && !program.image.kind.is_static());
        let counters_at = if room == Room::Apart || is_high {
            let code: u64 = pieces.iter().map(|p| p.bytes.len() as u64 + u64::from(p.align)).sum();
            let old: u64 = program.image.file_bytes().len() as u64;
            let need = (8 * n_words as u64 + code + 2 * old + (1 << 20)).next_multiple_of(1 << 21);
            match is_high {
                true => Va((0x7000_0000 - need.min(0x6000_0000)).max(page_up(end).0)),
                false => Va((first.0 & !(PAGE - 1)).wrapping_sub(need)),
            }
        } else {
            page_up(end)
        };
        let counters = counters_at..counters_at.plus(match n_words {
            0 => 0,
            n => HomePage::LEN + 8 * n as u64,
        });
        // Of a library: a page behind its counters that says whether it has started.
        let has_started_page = n_words > 0 && program.image.kind == Kind::SharedObject;
        let text_at = page_up(counters.end).plus(if has_started_page { PAGE } else { 0 });
        let mut at = text_at;
        let placed: Vec<Placed<'_>> = pieces
            .iter()
            .map(|piece| {
                let start = Va(at.0.next_multiple_of(u64::from(piece.align)));
                at = start.plus(piece.bytes.len() as u64);
                Placed { piece, at: start }
            })
            .collect();
        let mut routines = Vec::new();
        for probe in &plan.probes {
            at = line_up(at);
            routines.push(at);
            if let Action::Call(_, routine) = &probe.action {
                at = at.plus(routine.code.len() as u64);
            }
        }
        let own_at = line_up(at);
        let mut moved: Vec<(Va, Va)> = placed
            .iter()
            .flat_map(|p| p.piece.blocks.iter().map(|&(old, offset)| (old, p.at.plus(u64::from(offset)))))
            .collect();
        moved.sort_unstable();
        let lookup =
            |old: Va| moved.binary_search_by_key(&old, |m| m.0).ok().and_then(|i| moved.get(i)).map(|m| m.1);
        let sides = sides(&placed);
        let outside = |old: Va| sides.get(&(old, Side::Outside)).copied().or_else(|| lookup(old));
        let own_stubs = OwnStubs::find(program, own_at, outside);
        at = own_stubs.end();
        // Behind the code: what gives a thread its area, and a check for every entry from outside.
        let checks_len = (springboards.len() as u64 + 1) * 112;
        let tables_at =
            page_up(at.plus(if n_words == 0 { 0 } else { 16 + Runtime::len_bytes() + checks_len }));
        let span = if room == Room::Apart && program.image.kind.is_relocated() {
            end.since(counters_at)
        } else {
            tables_at.since(first)
        };
        if span > 0x7800_0000 {
            return Err(RewriteError::NoSpace { name: program.image.name.clone(), end: tables_at });
        }
        let places = places(program, &placed, text_at);
        let runtime = (n_words > 0)
            .then(|| runtime_at(program, key, &counters, text_at, line_up(at), callees.as_ref()))
            .map(|runtime| if has_events { runtime.with_events() } else { runtime });
        let mut text = vec![emit::TRAP; usize::try_from(at.since(text_at)).expect("checked above")];
        for p in &placed {
            let from = usize::try_from(p.at.since(text_at)).expect("within the text");
            let room = text.get_mut(from..from + p.piece.bytes.len()).expect("the text was made that long");
            room.copy_from_slice(&p.piece.bytes);
            for fixup in &p.piece.fixups {
                let end = p.at.plus(u64::from(fixup.end));
                let to = match fixup.to {
                    Target::Code(old) => outside(old).or_else(|| own_stubs.of(old)).unwrap_or(old),
                    Target::Inside(old) => lookup(old).or_else(|| own_stubs.of(old)).unwrap_or(old),
                    Target::Routine(n) => routines.get(n as usize).copied().unwrap_or(end),
                    Target::Place(to) => to,
                    Target::Owner => counters.start.plus(crate::offset!(HomePage, owner)),
                    Target::Slow => runtime.as_ref().map_or(end, |r| r.slow),
                    Target::Leave => runtime.as_ref().map_or(end, |r| r.leave),
                    Target::Vforked => runtime.as_ref().map_or(end, |r| r.vforked),
                    Target::Abort => runtime.as_ref().map_or(end, |r| r.abort),
                    Target::Cancel => runtime.as_ref().map_or(end, |r| r.cancel),
                    Target::Back => runtime.as_ref().map_or(end, |r| r.back),
                    Target::Chunk => runtime.as_ref().map_or(end, |r| r.chunk),
                    Target::Signal => runtime.as_ref().map_or(end, |r| r.signal),
                    Target::Started => page_up(counters.end),
                    Target::Callee => runtime.as_ref().map_or(end, |r| r.callee),
                    Target::Counter(n) | Target::Word(n) => {
                        counters.start.plus(HomePage::LEN + 8 * u64::from(n))
                    }
                };
                set_distance(room, fixup.at as usize, to.since(end));
            }
        }
        let own_code = own_stubs.code();
        let from = usize::try_from(own_at.since(text_at)).expect("within the text");
        text.get_mut(from..from + own_code.len())
            .expect("the text was made that long")
            .copy_from_slice(&own_code);
        for (&at, probe) in routines.iter().zip(&plan.probes) {
            if let Action::Call(_, routine) = &probe.action {
                let from = usize::try_from(at.since(text_at)).expect("within the text");
                let room =
                    text.get_mut(from..from + routine.code.len()).expect("the text was made that long");
                room.copy_from_slice(&routine.code);
            }
        }

        let mut patches = Vec::new();
        if let Some(runtime) = &runtime {
            append_runtime(program, runtime, text_at, &mut text, &mut patches);
        }
        for board in &springboards {
            let checked = sides.get(&(board.at, Side::Checked)).copied();
            let mut to = checked.or_else(|| outside(board.at)).expect("a springboard is at a moved block");
            let is_entry = program.function_from(board.at).is_some()
                || program
                    .block_from(board.at)
                    .is_some_and(|b| program.function(program.block(b).func).entries.contains(&b));
            let is_unchecked = unchecked.binary_search(&board.at).is_ok();
            if runtime.is_some() && is_unchecked && program.image.kind == Kind::SharedObject {
                // A resolver of a library that another thread than the first one loads.
                let (mut bytes, place) = emit::WITH_FIRST_COUNTERS;
                let at = text_at.plus(text.len() as u64);
                set_distance(&mut bytes, place, to.since(at.plus(place as u64 + 4)));
                text.extend(bytes);
                to = at;
            }
            if let Some(runtime) = &runtime
                && Some(board.at) == program.image.entry
                && program.image.kind != Kind::SharedObject
            {
                to = append_begin(text_at, &mut text, to, runtime.begin);
            }
            if let Some(runtime) = &runtime
                && is_entry
                && !is_unchecked
                && checked.is_none()
            {
                let owner = counters.start.plus(crate::offset!(HomePage, owner));
                let started = has_started_page.then(|| page_up(counters.end));
                let keeps = keeping.binary_search(&board.at).is_ok();
                let may_be_handler = handlers.binary_search(&board.at).is_ok();
                if keeps {
                    let restore = append_restore(text_at, &mut text, to);
                    to = match may_be_handler {
                        true => append_saved_signal_check(text_at, &mut text, restore, to, runtime.signal),
                        false => restore,
                    };
                } else if may_be_handler {
                    to = append_signal_check(text_at, &mut text, to, runtime.signal);
                }
                let at = text_at.plus(text.len() as u64);
                text.extend_from_slice(if keeps { &emit::SAVE } else { &[] });
                append_check(program, text_at, &mut text, owner, to, runtime.slow, started);
                to = at;
            }
            match board.tactic {
                Tactic::Long | Tactic::Over => patches.push(long_jump(program, board.at, to)),
                Tactic::Hop(hole) => {
                    let mut hop = emit::SHORT_JUMP.to_vec();
                    let distance = hole.since(board.at.plus(2)).cast_signed();
                    if let (Some(last), Ok(distance)) = (hop.last_mut(), i8::try_from(distance)) {
                        *last = distance.cast_unsigned();
                    }
                    patches.push(patch(program, board.at, hop));
                    patches.push(long_jump(program, hole, to));
                }
            }
        }
        let mut relocations = Vec::new();
        for switch in &switches {
            jump_tables::change(program, switch, &sides, &lookup, &mut patches, &mut relocations);
        }
        relocations.sort_unstable();
        relocations.dedup();
        dynamic::patch_relocations(program, &relocations, &mut patches).ok_or_else(|| {
            RewriteError::Headers {
                name: program.image.name.clone(),
                why: "the relocations of a jump table were not found".to_owned(),
            }
        })?;
        let unwind_at = tables_at.plus(PAGE);
        let counts_callees = callees.as_ref().is_some_and(|c| !c.sites.is_empty());
        let mut unwind = unwind::build(
            &program.image,
            &placed,
            runtime.as_ref(),
            counts_callees,
            own_stubs.range(),
            unwind_at,
        );
        let span = |p: &Placed<'_>| Span {
            old: p.piece.range.clone(),
            new: p.at..p.at.plus(p.piece.bytes.len() as u64),
        };
        let spans: Vec<Span> = placed.iter().map(span).collect();
        dynamic::name_moved(
            program,
            Moves { spans: &spans, blocks: &moved },
            unwind_at,
            &mut unwind.bytes,
            &mut patches,
        );
        patches.sort_by_key(|p| p.at);
        patches.dedup_by(|a, b| a.at == b.at && a.new == b.new); // entries that two tables share
        Ok(Module {
            program,
            not_moved,
            springboards,
            patches,
            counted,
            calls,
            stub_calls,
            sparse,
            words: lowered.words,
            n_words: u32::try_from(n_words).expect("it was one"),
            callees,
            moved,
            places,
            counters,
            runtime,
            text: (text_at, text),
            unwind: (unwind_at, unwind),
            spans,
            notes: None,
            key,
        })
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
        row.update(&self.n_words.to_le_bytes());
        row.update(notes);
        runtime.set_key(row.digest128());
        let mut bytes = Capacity::FILE.header();
        bytes.extend(name.bytes().filter(|b| *b != 0));
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let header_at = self.unwind.0.plus(self.unwind.1.bytes.len().next_multiple_of(8) as u64);
        runtime.set_notes(header_at, header_at.plus(bytes.len() as u64), notes.len() as u64);
        bytes.extend(notes);
        self.notes = Some(bytes);
        let from = usize::try_from(runtime.at.since(self.text.0)).expect("within the text");
        if let Some(place) = self.text.1.get_mut(from..from + runtime.bytes.len()) {
            place.copy_from_slice(&runtime.bytes);
        }
    }

    /// Has it ask at `sites` before it becomes another program.
    pub fn ask_at(&mut self, sites: &[ExecSite]) {
        segments::ask_at(sites, &self.moved, &mut self.patches, self.text.0, &mut self.text.1);
    }

    /// The module as a file.
    ///
    /// # Errors
    /// If its program headers cannot be extended.
    pub fn to_file(&self, old: Old) -> Result<Vec<u8>, RewriteError> {
        let image = &self.program.image;
        let bad = |why: &str| RewriteError::Headers { name: image.name.clone(), why: why.to_owned() };
        let mut out = image.file_bytes().to_vec();
        let file_at = |at: Va| {
            let s = image.segment_at(at)?;
            let into = at.since(s.range.start);
            (into < s.file_len).then(|| usize::try_from(s.offset.0 + into).ok()).flatten()
        };
        if old == Old::Poisoned {
            for (id, _) in self.not_moved.iter().enumerate().filter(|(_, s)| s.is_none()) {
                for block in plt::blocks(self.program, FuncId::at(id)).map(|b| self.program.block(b)) {
                    let bytes = file_at(block.start)
                        .and_then(|from| out.get_mut(from..from + block.len_bytes as usize));
                    bytes.ok_or_else(|| bad("code without bytes"))?.fill(emit::TRAP);
                }
            }
        }
        for p in &self.patches {
            let bytes = file_at(p.at).and_then(|from| out.get_mut(from..from + p.new.len()));
            bytes.ok_or_else(|| bad("a patch outside the file"))?.copy_from_slice(&p.new);
        }
        let (text_at, text) = &self.text;
        let mut place = |va: Va, bytes: &[u8]| -> u64 {
            let offset = (out.len() as u64).next_multiple_of(PAGE) + va.0 % PAGE;
            out.resize(usize::try_from(offset).expect("files fit into memory"), 0);
            out.extend(bytes);
            offset
        };
        let text_off = place(*text_at, text);
        let tables_off = (text_off + text.len() as u64).next_multiple_of(PAGE);
        let tables = self.tables_for(text_off, tables_off)?;
        place(tables.at, &tables.bytes);
        let (unwind_at, unwind) = (self.unwind.0, &self.unwind.1);
        let part = |into: usize, len: usize| Part {
            at: unwind_at.plus(into as u64),
            offset: tables_off + PAGE + into as u64,
            len: len as u64,
        };
        let parts = Parts {
            text: Part { at: *text_at, offset: text_off, len: text.len() as u64 },
            search: part(0, unwind.header_len),
            rows: part(unwind.header_len, unwind.rows_len),
        };
        let moves = Moves { spans: &self.spans, blocks: &self.moved };
        let sections = symbols::sections(image.file_bytes(), &mut out, &parts, moves);
        let header = FileHeader64::<LE>::parse(image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
        let mut header = *header;
        header.e_phoff.set(LE, tables_off);
        header.e_phnum = U16::new(LE, tables.n_headers);
        if let Some((at, n)) = sections {
            header.e_shoff.set(LE, at);
            header.e_shnum.set(LE, n);
        }
        if let (Some(_), Some(runtime), true) = (&self.notes, &self.runtime, image.kind != Kind::SharedObject)
        {
            header.e_entry.set(LE, runtime.entry.0);
        }
        let raw = object::pod::bytes_of(&header);
        out.get_mut(..raw.len()).ok_or_else(|| bad("no header"))?.copy_from_slice(raw);
        Ok(out)
    }

    /// The module for a process, whose segments come from no file.
    ///
    /// # Errors
    /// If the program headers cannot be extended.
    pub fn to_segments(&self) -> Result<Segments, RewriteError> {
        let tables = self.tables_for(0, 0)?;
        Ok(Segments {
            key: self.key,
            entry: self.program.image.entry.map(|e| e.0),
            n_counters: self.n_words as usize,
            counters_at: self.counters.start.0,
            old: old_segments(self.program).start.0..old_segments(self.program).end.0,
            runtime_at: self.runtime.as_ref().map(|r| r.at.0),
            text_at: self.text.0.0,
            text: self.text.1.clone(),
            tables_at: tables.at.0,
            tables: tables.bytes,
            n_headers: tables.n_headers,
            patches: joined(&self.patches),
        })
    }

    fn tables_for(&self, text_off: u64, tables_off: u64) -> Result<Tables, RewriteError> {
        let image = &self.program.image;
        let bad = |why: &str| RewriteError::Headers { name: image.name.clone(), why: why.to_owned() };
        let header = FileHeader64::<LE>::parse(image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
        let headers = header.program_headers(LE, image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
        let (unwind_at, unwind) = (self.unwind.0, &self.unwind.1);
        let (text_at, text) = (self.text.0, &self.text.1);
        let at = Va(unwind_at.0 - PAGE);
        let mut behind = unwind.bytes.clone();
        if let Some(notes) = &self.notes {
            behind.resize(behind.len().next_multiple_of(8), 0);
            behind.extend(notes);
        }
        let len = PAGE + behind.len() as u64;
        // All up to the code: of a library, the page that says whether it has started, too.
        let counters_len = match self.counters.is_empty() {
            true => 0,
            false => text_at.since(self.counters.start),
        };
        let load =
            |flags: elf::ProgramFlags, at: Va, offset: u64, in_file: u64, len: u64| ProgramHeader64::<LE> {
                p_type: U32::new(LE, elf::PT_LOAD),
                p_flags: U32::new(LE, flags),
                p_offset: U64::new(LE, offset),
                p_vaddr: U64::new(LE, at.0),
                p_paddr: U64::new(LE, at.0),
                p_filesz: U64::new(LE, in_file),
                p_memsz: U64::new(LE, len),
                p_align: U64::new(LE, PAGE),
            };
        let mut loads = vec![
            load(elf::PF_R | elf::PF_X, text_at, text_off, text.len() as u64, text.len() as u64),
            load(elf::PF_R, at, tables_off, len, len),
        ];
        if counters_len > 0 {
            loads.insert(0, load(elf::PF_R | elf::PF_W, self.counters.start, 0, 0, counters_len));
        }
        let mut new: Vec<ProgramHeader64<LE>> = Vec::with_capacity(headers.len() + loads.len());
        let is_load = |h: &ProgramHeader64<LE>| h.p_type(LE) == elf::PT_LOAD;
        let is_below = image.segments.first().is_some_and(|s| text_at.since(s.range.start).cast_signed() < 0);
        // Loaded segments are listed by address.
        let goes_before = if is_below {
            headers.iter().position(is_load).unwrap_or(0)
        } else {
            headers.iter().rposition(is_load).map_or(headers.len(), |i| i + 1)
        };
        for (i, h) in headers.iter().enumerate() {
            if i == goes_before {
                new.append(&mut loads);
            }
            let mut h = *h;
            match h.p_type(LE) {
                elf::PT_PHDR => {
                    h.p_offset.set(LE, tables_off);
                    h.p_vaddr.set(LE, at.0);
                    h.p_paddr.set(LE, at.0);
                }
                elf::PT_GNU_EH_FRAME => {
                    h.p_offset.set(LE, tables_off + PAGE);
                    h.p_vaddr.set(LE, unwind_at.0);
                    h.p_paddr.set(LE, unwind_at.0);
                    h.p_filesz.set(LE, unwind.header_len as u64);
                    h.p_memsz.set(LE, unwind.header_len as u64);
                }
                _ => {}
            }
            new.push(h);
        }
        new.append(&mut loads);
        // Static programs may have unwind tables without a search table: now they have one.
        if !image.unwind_tables().is_empty() && !headers.iter().any(|h| h.p_type(LE) == elf::PT_GNU_EH_FRAME)
        {
            let mut h = load(
                elf::PF_R,
                unwind_at,
                tables_off + PAGE,
                unwind.header_len as u64,
                unwind.header_len as u64,
            );
            h.p_type.set(LE, elf::PT_GNU_EH_FRAME);
            h.p_align.set(LE, 4);
            new.push(h);
        }
        let headers_len = (new.len() * size_of::<ProgramHeader64<LE>>()) as u64;
        for h in new.iter_mut().filter(|h| h.p_type(LE) == elf::PT_PHDR) {
            h.p_filesz.set(LE, headers_len);
            h.p_memsz.set(LE, headers_len);
        }
        let mut bytes = object::pod::bytes_of_slice(&new).to_vec();
        if bytes.len() as u64 > PAGE {
            return Err(bad("there are too many of them"));
        }
        bytes.resize(usize::try_from(PAGE).expect("small"), 0);
        bytes.extend(behind);
        let n_headers = u16::try_from(new.len()).expect("a page holds no more");
        Ok(Tables { at, bytes, n_headers })
    }
}

/// The read-only segment: program headers first, the search table a page further on.
struct Tables {
    at: Va,
    bytes: Vec<u8>,
    n_headers: u16,
}

/// The runtime, to stand at `at`.
fn runtime_at(
    program: &Program,
    key: u128,
    counters: &Range<Va>,
    text: Va,
    at: Va,
    callees: Option<&Callees>,
) -> Runtime {
    let image = &program.image;
    let init = match image.kind {
        Kind::SharedObject => dynamic::init_slot(program).and_then(|slot| slot.1),
        _ => image.entry,
    };
    let len = page_up(counters.end).since(counters.start) - HomePage::LEN;
    let started = (image.kind == Kind::SharedObject).then(|| page_up(counters.end));
    let mut runtime = Runtime::at(at, text, counters.start, len, init, key, started);
    let callees = callees.filter(|c| !c.sites.is_empty());
    let callees = callees.map(|c| (c.first, c.sites.len(), c.table(), c.n_slots));
    runtime.set_callees(&old_segments(program), counters.start, callees);
    runtime
}

/// From the first of the old segments to the end of the last.
pub(crate) fn old_segments(program: &Program) -> Range<Va> {
    let segments = &program.image.segments;
    let end = segments.iter().map(|s| s.range.end).max();
    segments.first().map_or(Va(0), |s| s.range.start)..end.unwrap_or(Va(0))
}

/// Puts the runtime behind the code, and has a library's DT_INIT lead there.
fn append_runtime(
    program: &Program,
    runtime: &Runtime,
    text_at: Va,
    text: &mut Vec<u8>,
    patches: &mut Vec<Patch>,
) {
    text.resize(usize::try_from(runtime.at.since(text_at)).expect("within the text"), emit::TRAP);
    text.extend(&runtime.bytes);
    if program.image.kind == Kind::SharedObject
        && let Some((row, _)) = dynamic::init_slot(program)
    {
        let tag = elf::DT_INIT.0.to_le_bytes();
        patches.push(patch(program, row, [tag, runtime.start.0.to_le_bytes()].concat()));
    }
}

/// The next address that code is well aligned at.
fn line_up(at: Va) -> Va {
    Va(at.0.next_multiple_of(16))
}

fn page_up(at: Va) -> Va {
    Va(at.0.next_multiple_of(PAGE))
}

/// Code in front of blocks, by old address and whom it is for.
fn sides(placed: &[Placed<'_>]) -> BTreeMap<(Va, Side), Va> {
    let of = |p: &Placed<'_>| {
        let at = p.at;
        p.piece.sides.iter().map(move |s| ((s.0, s.1), at.plus(u64::from(s.2)))).collect::<Vec<_>>()
    };
    placed.iter().flat_map(of).collect()
}

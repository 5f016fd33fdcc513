//! Where everything new of a module stands: counters, moved code, tables.
//!
//! Not here: the code's bytes (`link`), the tables' (`image`).

use crate::arch::Runtime;
use crate::arch::emit::{Keeping, keeping};
use crate::arch::shared::{HomePage, PAGE};
use crate::code::Side;
use crate::error::RewriteError;
use crate::layout::piece::Piece;
use crate::layout::plt_direct::PltDirect;
use crate::lower::Lowered;
use crate::plan::{Action, Plan, Replaced};
use program::image::Kind;
use program::{Program, Va};
use std::collections::BTreeMap;
use std::ops::Range;

/// How far code may be from code, with room for what is not counted here.
const REACH: u64 = 0x7800_0000;
/// Room for what is put behind the runtime for an entry from outside.
const ENTRY_STUB_LEN: u64 = 112;

/// Where the new segments go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Behind the old ones: for files, whose heap the kernel puts behind the last segment.
    Behind,
    /// Apart from the heap, which has its place already: below a module that can be moved, else high in the 2
    /// GiB that code can reach.
    Apart,
    /// Into a process that runs already, from here on: where nothing is in it. Calls of old code are in
    /// progress there, which come back to old code.
    Running(Va),
}

impl Room {
    /// Whether control may be anywhere in old code.
    pub fn is_running(self) -> bool {
        matches!(self, Room::Running(_))
    }
}

/// A piece at its place.
pub struct Placed<'a> {
    /// The piece.
    pub piece: &'a Piece,
    /// Its address.
    pub at: Va,
}

impl Placed<'_> {
    /// Where what was at `old` now is.
    pub fn map(&self, old: Va) -> Va {
        self.at.plus(u64::from(self.piece.offset_of(old)))
    }

    /// Where its code is.
    pub fn range(&self) -> Range<Va> {
        self.at..self.at.plus(self.piece.bytes.len() as u64)
    }
}

/// Where everything new stands.
pub struct Placement<'a> {
    /// The pieces, by old address.
    pub pieces: Vec<Placed<'a>>,
    /// The first thread's counters, with the page in front of them.
    pub counters: Range<Va>,
    /// The byte that says whether a library has started, if it has counters.
    pub started: Option<Va>,
    /// All code but the runtime and what stands behind it.
    pub text: Range<Va>,
    /// The routine of each of the plan's probes.
    pub routines: Vec<Va>,
    /// What calls the code that stands in for each of the plan's functions, and keeps registers for its
    /// callers.
    pub keepers: Vec<(Va, Keeping)>,
    /// Stubs of ours for functions of the module's own.
    pub plt_direct: PltDirect,
    /// The tables, behind all code.
    pub tables: Va,
    /// Old starts of moved blocks, and where they are now. By old address.
    pub moved: Vec<(Va, Va)>,
    /// Code in front of blocks, by old address and whom it is for.
    pub sides: BTreeMap<(Va, Side), Va>,
}

impl<'a> Placement<'a> {
    /// A place for each of the `pieces` of `program`, and for all else.
    ///
    /// # Errors
    /// If there is no room.
    pub fn compute(
        program: &Program,
        plan: &Plan,
        room: Room,
        lowered: &Lowered,
        n_springboards: usize,
        pieces: &'a [Piece],
    ) -> Result<Placement<'a>, RewriteError> {
        let n_words = u64::from(lowered.words.n);
        let first = program.image.segments.first().map_or(Va(0), |s| s.range.start);
        let end = program.image.segments.last().map_or(Va(0), |s| s.range.end);
        let counters_at = counters_at(program, room, n_words, pieces);
        let counters = counters_at..counters_at.plus(match n_words {
            0 => 0,
            n => HomePage::LEN + 8 * n,
        });
        // Of a library: a page behind its counters that says whether it has started.
        let has_started_page = n_words > 0 && program.image.kind == Kind::SharedObject;
        let started = has_started_page.then(|| page_up(counters.end));
        let text_at = started.map_or(page_up(counters.end), |page| page.plus(PAGE));

        let mut at = text_at;
        let placed: Vec<Placed<'_>> = pieces
            .iter()
            .map(|piece| {
                let start = Va(at.0.next_multiple_of(u64::from(piece.align)));
                at = start.plus(piece.bytes.len() as u64);
                Placed { piece, at: start }
            })
            .collect();
        if pieces.is_empty() {
            // Who maps it maps a page.
            at = at.plus(1);
        }
        let routines = routines(plan, &mut at);
        let mut moved: Vec<(Va, Va)> = placed
            .iter()
            .flat_map(|p| p.piece.blocks.iter().map(|&(old, offset)| (old, p.at.plus(u64::from(offset)))))
            .collect();
        moved.sort_unstable();
        let mut sides = sides(&placed);
        let keepers = keepers(plan, &mut at);
        for (replaced, (keeper, _)) in plan.replaced.iter().zip(&keepers) {
            let to = if replaced.keeps.is_empty() { replaced.to } else { *keeper };
            sides.insert((program.function(replaced.func).entry, Side::Outside), to);
        }
        let plt_direct = PltDirect::find(program, line_up(at), |old| outside(&sides, &moved, old));
        let text = text_at..plt_direct.end();
        // Behind the code: what gives a thread its area, and a check for every entry from outside.
        let checks_len = (n_springboards as u64 + 1) * ENTRY_STUB_LEN;
        let runtime_len = if n_words == 0 { 0 } else { 16 + Runtime::len_bytes() + checks_len };
        let tables = page_up(text.end.plus(runtime_len));
        let span = match room {
            // On either side; addresses below zero are those of what stands below a library that starts
            // there.
            Room::Running(at) if at.0.cast_signed() < first.0.cast_signed() => end.since(counters_at),
            Room::Apart if program.image.kind.is_relocated() => end.since(counters_at),
            _ => tables.since(first),
        };
        if span > REACH {
            return Err(RewriteError::NoSpace { name: program.image.name.clone(), end: tables });
        }
        Ok(Placement {
            pieces: placed,
            counters,
            started,
            text,
            routines,
            keepers,
            plt_direct,
            tables,
            moved,
            sides,
        })
    }

    /// Where the block that was at `old` is, for who is in its function already.
    pub fn inside(&self, old: Va) -> Option<Va> {
        block(&self.moved, old)
    }

    /// Where the instruction that was at `old` is, with the code of ours that stands in front of it.
    pub fn new_of(&self, old: Va) -> Option<Va> {
        let i = self.pieces.partition_point(|p| p.piece.range.end <= old);
        self.pieces.get(i).filter(|p| p.piece.range.contains(&old)).map(|p| p.map(old))
    }

    /// The same for who comes from outside of the function.
    pub fn outside(&self, old: Va) -> Option<Va> {
        outside(&self.sides, &self.moved, old)
    }

    /// Whether a block of `program` starts at `old` that is moved.
    pub fn is_moved_block(&self, program: &Program, old: Va) -> bool {
        let i = self.pieces.partition_point(|p| p.piece.range.end <= old);
        let is_in_piece = self.pieces.get(i).is_some_and(|p| p.piece.range.contains(&old));
        is_in_piece && program.block_from(old).is_some()
    }

    /// Word `n` of the first thread's memory; the one behind the last stands for no words at all.
    pub fn word(&self, n: u32) -> Option<Va> {
        let offset = HomePage::LEN + 8 * u64::from(n);
        let len = self.counters.end.since(self.counters.start);
        (offset <= len.max(HomePage::LEN)).then(|| self.counters.start.plus(offset))
    }
}

fn block(moved: &[(Va, Va)], old: Va) -> Option<Va> {
    moved.binary_search_by_key(&old, |m| m.0).ok().and_then(|i| moved.get(i)).map(|m| m.1)
}

fn outside(sides: &BTreeMap<(Va, Side), Va>, moved: &[(Va, Va)], old: Va) -> Option<Va> {
    sides.get(&(old, Side::Outside)).copied().or_else(|| block(moved, old))
}

/// Where the new segments start.
fn counters_at(program: &Program, room: Room, n_words: u64, pieces: &[Piece]) -> Va {
    let first = program.image.segments.first().map_or(Va(0), |s| s.range.start);
    let end = program.image.segments.last().map_or(Va(0), |s| s.range.end);
    if let Room::Running(at) = room {
        return at;
    }
    // Of a program at fixed addresses: high, so that the counters of further threads find room below.
    let is_high = !program.image.kind.is_relocated()
        && (room == Room::Apart || n_words > 0 && !program.image.kind.is_static());
    if room == Room::Behind && !is_high {
        return page_up(end);
    }
    let code: u64 = pieces.iter().map(|p| p.bytes.len() as u64 + u64::from(p.align)).sum();
    let old: u64 = program.image.file_bytes().len() as u64;
    let need = (8 * n_words + code + 2 * old + (1 << 20)).next_multiple_of(1 << 21);
    match is_high {
        true => Va((0x7000_0000 - need.min(0x6000_0000)).max(page_up(end).0)),
        false => Va((first.0 & !(PAGE - 1)).wrapping_sub(need)),
    }
}

/// What calls the code that stands in for each replaced function, from `at` on, which is moved behind them;
/// nothing, where no register is kept.
fn keepers(plan: &Plan, at: &mut Va) -> Vec<(Va, Keeping)> {
    let place = |replaced: &Replaced| {
        let (start, made) = (line_up(*at), keeping(replaced.keeps));
        if !replaced.keeps.is_empty() {
            *at = start.plus(made.code.len() as u64);
        }
        (start, made)
    };
    plan.replaced.iter().map(place).collect()
}

/// Where the routine of each probe stands, from `at` on, which is moved behind them.
fn routines(plan: &Plan, at: &mut Va) -> Vec<Va> {
    let place = |action: &Action| {
        let start = line_up(*at);
        *at = match action {
            Action::Call(_, routine) => start.plus(routine.code.len() as u64),
            Action::Count | Action::Keep(..) | Action::Append(_) => start,
            Action::CountInStream(_) | Action::AddInStream(..) | Action::Vectorise => start,
        };
        start
    };
    plan.probes.iter().map(|probe| &probe.action).map(place).collect()
}

/// Code in front of blocks, by old address and whom it is for.
fn sides(placed: &[Placed<'_>]) -> BTreeMap<(Va, Side), Va> {
    let of = |p: &Placed<'_>| {
        let at = p.at;
        p.piece.sides.iter().map(move |s| ((s.0, s.1), at.plus(u64::from(s.2)))).collect::<Vec<_>>()
    };
    placed.iter().flat_map(of).collect()
}

/// The next address that code is well aligned at.
pub fn line_up(at: Va) -> Va {
    Va(at.0.next_multiple_of(16))
}

/// The next start of a page.
pub fn page_up(at: Va) -> Va {
    Va(at.0.next_multiple_of(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Point, Probe, Routine};
    use crate::select::Selection;
    use crate::testing::{assembled, compiled};
    use program::arch::Reg;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::LazyLock;

    /// A static program, one that can be moved, a library.
    static PROGRAMS: LazyLock<[Program; 3]> = LazyLock::new(|| {
        let text =
            ".text\n.globl main\n.type main,@function\nmain: call main\nret\n.section .note.GNU-stack\n";
        let of = |flags| compiled(text, "s", flags);
        [assembled(&[("_start", "call _start\nhlt")]), of("-pie"), of("-shared")]
    });

    /// A piece of nothing but its length and alignment.
    fn piece(len: usize, align: u32) -> Piece {
        Piece {
            range: Va(0x401000)..Va(0x401000),
            bytes: vec![0x90; len],
            fixups: Vec::new(),
            runs: Vec::new(),
            behind_ours: Vec::new(),
            blocks: Vec::new(),
            behind_taken: Vec::new(),
            behind_calls: Vec::new(),
            sides: Vec::new(),
            stack: Vec::new(),
            align,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_new_overlaps(
            kind in 0..3usize,
            kind_of_room in 0..4usize,
            has_counters in any::<bool>(),
            routines in proptest::collection::vec(0..300usize, 0..4),
            pieces in proptest::collection::vec((1..5000usize, 4..7u32), 1..20),
            n_springboards in 0..50usize,
        ) {
            let program = &PROGRAMS[kind];
            // Above and below what is there.
            let running = [Va(0x1000_0000), Va(0x1000_0000u64.wrapping_neg())];
            let running = if program.image.kind.is_relocated() { running[kind_of_room % 2] } else { running[0] };
            let room = [Room::Apart, Room::Behind, Room::Running(running), Room::Running(running)][kind_of_room];
            let mut plan = if has_counters { Plan::BLOCKS } else { Plan::NULL };
            let selection = Selection::compute(program, &plan, false, &BTreeSet::new());
            let lowered = Lowered::compute(program, &plan, &selection).expect("blocks can be counted");
            let value = crate::arch::snippet::Value::Register(Reg::general(0));
            plan.probes = routines.iter().map(|&len| Probe {
                point: Point::Before(Va(0)),
                action: Action::Call(value, Routine { code: vec![0xc3; len], words: 0 }),
            }).collect();
            let pieces: Vec<Piece> = pieces.into_iter().map(|(len, align)| piece(len, 1 << align)).collect();
            let placement = Placement::compute(program, &plan, room, &lowered, n_springboards, &pieces);
            let placement = placement.expect("there is room");

            let mut all: Vec<Range<Va>> = vec![placement.counters.clone()];
            all.extend(placement.started.map(|page| page..page.plus(PAGE)));
            for (placed, piece) in placement.pieces.iter().zip(&pieces) {
                prop_assert_eq!(placed.at.0 % u64::from(piece.align), 0);
                all.push(placed.range());
            }
            let routine = |(at, len): (&Va, &usize)| *at..at.plus(*len as u64);
            all.extend(placement.routines.iter().zip(&routines).map(routine));
            all.push(placement.plt_direct.start()..placement.plt_direct.end());
            // Addresses below zero are those of what stands below a library that starts there.
            let first = placement.counters.start;
            let offset = |at: Va| at.since(first);
            for pair in all.windows(2) {
                prop_assert!(offset(pair[0].end) <= offset(pair[1].start), "{:?}", pair);
            }
            let end = placement.plt_direct.end();
            prop_assert_eq!(placement.text.end, end);
            let runtime = if has_counters { Runtime::len_bytes() } else { 0 };
            prop_assert!(offset(placement.tables) >= offset(end) + runtime);
            prop_assert_eq!(placement.tables.0 % PAGE, 0);
            prop_assert_eq!(placement.text.start.0 % PAGE, 0);
            // Nor does it lie on what was there, from which it can be reached.
            let old = &program.image.segments;
            let (start, end) = (old.first().expect("some").range.start, old.last().expect("some").range.end);
            let behind = first.since(end).cast_signed() >= 0;
            let below = start.since(placement.tables).cast_signed() > 0;
            prop_assert!(behind || below, "{first} to {}", placement.tables);
            let far = if behind { placement.tables.since(start) } else { end.since(first) };
            prop_assert!(far <= REACH);
        }
    }
}

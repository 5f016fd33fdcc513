//! What stands before entries from outside: whose counters these are, and whether it was a signal that came.
//!
//! Not here: what happens then (`arch`).

use crate::bytes::set_distance;
use crate::code::{Code, Target};
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::select::plt;
use crate::select::springboard::Springboard;
use program::arch::emit::{self, EntryCheck};
use program::image::{Kind, RelocationTo, SymbolKind};
use program::{CallKind, Callee, Program, Va};

/// Checks that stand right in front of entries: of the functions with `boards` whose code starts with their
/// entry, but for those entries, sorted, that are `special`. `handlers` are those that may be called for a
/// signal.
pub fn in_front(
    program: &Program,
    boards: &[Springboard],
    special: &[&[Va]],
    handlers: &[Va],
) -> Vec<Written> {
    let image = &program.image;
    let asks_started = image.kind == Kind::SharedObject;
    let [plain, handler] = [false, true].map(|asks_signal| {
        let check = EntryCheck::new(image.kind.is_static(), asks_started, asks_signal);
        let place = |at: usize, to| (at, at + 4, to);
        let found = check.signal.map(|at| place(at, Target::Signal)).into_iter();
        let found = found.chain([place(check.slow, Target::Slow)]).collect();
        let started = check.started.map(|at| (at, at + 5, Target::Started)).into_iter();
        let asked = started.chain([place(check.owner, Target::Owner)]).collect();
        (Code::text(check.found, found), Code::text(check.check, asked))
    });
    let mut all = Vec::with_capacity(2 * boards.len());
    for board in boards.iter().filter(|b| special.iter().all(|s| s.binary_search(&b.at).is_err())) {
        let Some(block) = program.block_from(board.at) else { continue };
        let func = program.block(block).func;
        let is_first = || plt::ranges(program, func).iter().any(|range| range.start == board.at);
        if program.function(func).entry != board.at || !is_first() {
            continue;
        }
        let may_be_handler = handlers.binary_search(&board.at).is_ok();
        let (found, check) = if may_be_handler { &handler } else { &plain };
        all.push(((block, Spot::Found), found.clone()));
        all.push(((block, Spot::Checked), check.clone()));
    }
    all
}

/// Appends a check of the owner before `entry`, and whether the library has `started`; returns its address.
pub fn append_check(
    program: &Program,
    text_at: Va,
    text: &mut Vec<u8>,
    owner: Va,
    entry: Va,
    slow: Va,
    started: Option<Va>,
) -> Va {
    let at = text_at.plus(text.len() as u64);
    let distance = |to: Va, place: usize| to.since(at.plus(place as u64 + 4));
    let owner_places = |bytes: &mut [u8], places: [usize; 4]| {
        for (place, to) in places.into_iter().zip([owner, entry, entry, slow]) {
            set_distance(bytes, place, distance(to, place));
        }
    };
    match started {
        Some(started) => {
            let (mut bytes, [a, b, c, d, place]) = emit::check_started_owner();
            owner_places(&mut bytes, [a, b, c, d]);
            set_distance(&mut bytes, place, distance(started, place + 1));
            text.extend(bytes);
        }
        None => {
            let (mut bytes, places) = emit::check_owner(program.image.kind.is_static());
            owner_places(&mut bytes, places);
            text.extend(bytes);
        }
    }
    at
}

/// Those of the `addresses` that data or code of the program say, and those of functions that it exports,
/// which may be handlers of signals. Sorted. Not those that only calls of the module's own go to, through
/// slots of its linkage table.
pub fn handlers(program: &Program, addresses: &[Va]) -> Vec<Va> {
    let image = &program.image;
    let mut slots: Vec<Va> = image.plt.iter().filter_map(|stub| stub.slot).collect();
    slots.sort_unstable();
    let own = image.relocations.iter().filter_map(|r| match r.to {
        RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) => Some((r.at, to)),
        _ => None,
    });
    let (of_slots, others): (Vec<_>, Vec<_>) = own.partition(|(at, _)| slots.binary_search(at).is_ok());
    let mut called: Vec<Va> = of_slots.into_iter().map(|r| r.1).collect();
    called.sort_unstable();
    let mut all: Vec<Va> = others.into_iter().map(|r| r.1).chain(program.named.iter().copied()).collect();
    let is_called = |at: &Va| called.binary_search(at).is_ok();
    all.extend(addresses.iter().filter(|at| !is_called(at)));
    let is_function = |kind| matches!(kind, SymbolKind::Function);
    let exported = image.symbols.iter().filter(|s| s.dynamic && !s.local && is_function(s.kind));
    all.extend(exported.map(|s| s.at).filter(|at| !is_called(at)));
    all.sort_unstable();
    all.dedup();
    all
}

/// Appends a check before `entry` of whether it is called for a signal; returns its address. `restore` gives
/// r11 back, if it was put away.
pub fn append_saved_signal_check(text_at: Va, text: &mut Vec<u8>, restore: Va, entry: Va, signal: Va) -> Va {
    let at = text_at.plus(text.len() as u64);
    let (mut bytes, places) = emit::CHECK_SAVED_SIGNAL;
    for (place, to) in places.into_iter().zip([restore, entry, signal]) {
        set_distance(&mut bytes, place, to.since(at.plus(place as u64 + 4)));
    }
    text.extend(bytes);
    at
}

/// Appends a check before `entry` of whether it is called for a signal; returns its address.
pub fn append_signal_check(text_at: Va, text: &mut Vec<u8>, entry: Va, signal: Va) -> Va {
    let at = text_at.plus(text.len() as u64);
    let (mut bytes, places) = emit::CHECK_SIGNAL;
    for (place, to) in places.into_iter().zip([entry, entry, signal]) {
        set_distance(&mut bytes, place, to.since(at.plus(place as u64 + 4)));
    }
    text.extend(bytes);
    at
}

/// Appends what goes to `begin` before the entry point `entry`; returns its address.
pub fn append_begin(text_at: Va, text: &mut Vec<u8>, entry: Va, begin: Va) -> Va {
    let at = text_at.plus(text.len() as u64);
    let (mut bytes, places) = emit::BY_WAY_OF;
    for (place, to) in places.into_iter().zip([entry, begin]) {
        set_distance(&mut bytes, place, to.since(at.plus(place as u64 + 4)));
    }
    text.extend(bytes);
    at
}

/// Appends what gives r11 back that [`emit::SAVE`] has put away, and goes on at `entry`; returns its address.
pub fn append_restore(text_at: Va, text: &mut Vec<u8>, entry: Va) -> Va {
    let at = text_at.plus(text.len() as u64);
    let (mut bytes, place) = emit::RESTORE;
    set_distance(&mut bytes, place, entry.since(at.plus(place as u64 + 4)));
    text.extend(bytes);
    at
}

/// The entries, sorted, that code which stays calls directly. It may know that the function leaves r11 alone,
/// and keep a value there (`-fipa-ra` of gcc); moved code does not come through checks.
pub fn called_by_what_stays(program: &Program, not_moved: &[Option<NotMoved>]) -> Vec<Va> {
    let mut found: Vec<Va> = Vec::new();
    for call in program.calls.iter().filter(|c| c.kind != CallKind::FallThrough) {
        let not_moved = not_moved.get(program.block(call.block).func.index()).is_some_and(Option::is_some);
        if let (true, Callee::Function(callee)) = (not_moved, call.callee) {
            found.extend(program.function(callee).entries.iter().map(|b| program.block(*b).start));
            found.extend(program.entry_block(callee).map(|b| program.block(b).start));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Entries that may run before there is a thread pointer: the entry point, and resolvers of indirect
/// functions. Sorted.
pub fn without_thread_pointer(program: &Program) -> Vec<Va> {
    let resolvers = program.image.relocations.iter().filter_map(|r| match r.to {
        RelocationTo::Resolver(at) => Some(at),
        _ => None,
    });
    let symbols =
        program.image.symbols.iter().filter(|s| s.kind == SymbolKind::IndirectFunction).map(|s| s.at);
    let mut all: Vec<Va> = program.image.entry.into_iter().chain(resolvers).chain(symbols).collect();
    all.sort_unstable();
    all
}

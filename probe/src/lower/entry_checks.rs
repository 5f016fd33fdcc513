//! What stands before entries from outside: whose counters these are, and whether it was a signal that came.
//!
//! Not here: what happens then (`arch`).

use crate::arch::emit::EntryCheck;
use crate::code::{Insert, Target};
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::plan::Plan;
use crate::select::springboard::{Comes, Springboard};
use crate::select::{Selection, plt};
use program::image::{Kind, RelocationTo, SymbolKind};
use program::{BlockId, CallKind, Callee, Liveness, Program, Va};

/// The entries from outside that are treated in a way of their own. All ascending.
pub struct Entries {
    /// Those that may run before there is a thread pointer: nothing is checked.
    pub without_thread_pointer: Vec<Va>,
    /// Those that code which is not moved calls directly, and whose callers may keep a value in a register
    /// that a check would change.
    pub called_by_not_moved: Vec<Va>,
    /// Those inside of functions which rely on what a check would change: labels whose addresses are kept, as
    /// threaded code keeps them. Nothing is checked: who jumps there has come to the function before.
    pub relied_on: Vec<Va>,
    /// Those of functions that may be called for a signal, if a thread has any words.
    pub signal_handlers: Vec<Va>,
    /// Whether threads are told apart by the base of `fs`, and not by the word there.
    pub by_base: bool,
}

impl Entries {
    /// Those of `program` with `plan`; `has_words`: whether a thread has any.
    pub fn find(program: &Program, plan: &Plan, selection: &Selection, has_words: bool) -> Entries {
        let signal_handlers = match has_words {
            true => signal_handlers(program, &selection.address_taken),
            false => Vec::new(),
        };
        Entries {
            without_thread_pointer: without_thread_pointer(program),
            called_by_not_moved: called_by_not_moved(program, &selection.not_moved),
            relied_on: relied_on(program, &selection.not_moved),
            signal_handlers,
            by_base: program.image.kind.is_static() || !plan.old_kernels,
        }
    }
}

/// Checks that stand right in front of entries: of the functions with `boards` whose code starts with their
/// entry, but for those entries that need one of their own, or none.
pub fn in_front(program: &Program, boards: &[Springboard], entries: &Entries) -> Vec<Written> {
    let special = [&entries.without_thread_pointer[..], &entries.called_by_not_moved[..]];
    let handlers = &entries.signal_handlers;
    let image = &program.image;
    let asks_started = image.kind == Kind::SharedObject;
    let [plain, handler] = [false, true].map(|asks_signal| {
        let check = EntryCheck::new(entries.by_base, asks_started, asks_signal);
        let place = |at: usize, to| (at, at + 4, to);
        let found = check.signal.map(|at| place(at, Target::Signal)).into_iter();
        let found = found.chain([place(check.slow, Target::Slow)]).collect();
        let started = check.started.map(|at| (at, at + 5, Target::Started)).into_iter();
        let asked = started.chain([place(check.owner, Target::Owner)]).collect();
        (Insert::text(check.found, found), Insert::text(check.check, asked))
    });
    let mut all = Vec::with_capacity(2 * boards.len());
    let from_outside = boards.iter().filter(|b| b.comes == Comes::In);
    for board in from_outside.filter(|b| special.iter().all(|s| s.binary_search(&b.at).is_err())) {
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

/// Those of the `addresses` that data or code of the program say, and those of functions that it exports,
/// which may be signal handlers. Sorted. Not those that only calls of the module's own go to, through
/// slots of its PLT.
fn signal_handlers(program: &Program, addresses: &[Va]) -> Vec<Va> {
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

/// The entries, sorted, that code which stays calls directly. It may know that the function leaves r11 alone,
/// and keep a value there (`-fipa-ra` of gcc); moved code does not come through checks.
fn called_by_not_moved(program: &Program, not_moved: &[Option<NotMoved>]) -> Vec<Va> {
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

/// The inner entries of moved functions where the register or a flag that a check changes is alive. Sorted.
fn relied_on(program: &Program, not_moved: &[Option<NotMoved>]) -> Vec<Va> {
    let mut found = Vec::new();
    for func in program.func_ids() {
        let is_moved = not_moved.get(func.index()).is_some_and(Option::is_none);
        let inner = &program.function(func).entries;
        if !is_moved || inner.iter().all(|&b| program.block(b).landing_pad) {
            continue;
        }
        let live = Liveness::compute(program, func);
        let relies = |b: &&BlockId| EntryCheck::changes(live.live_in(**b));
        found.extend(inner.iter().filter(relies).map(|&b| program.block(b).start));
    }
    found.sort_unstable();
    found
}

/// Entries that may run before there is a thread pointer: the entry point, and resolvers of indirect
/// functions. Sorted.
fn without_thread_pointer(program: &Program) -> Vec<Va> {
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

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::testing::{compiled, function, inserts};
    use expect_test::{Expect, expect};

    /// What stands in front of `f`, counted, of what `flags` make of it.
    fn check(flags: &str, want: &Expect) {
        let text = ".text\n.globl main\n.type main,@function\nmain: call f\nret\n.globl f\n.type f,@function\nf: mov $1,%eax\nmov $2,%eax\nret\n\
            .section .note.GNU-stack\n";
        let program = compiled(text, "s", flags);
        want.assert_eq(&inserts(&program, &Plan::BLOCKS, function(&program, "f")));
    }

    #[test]
    fn an_entry_of_a_program_asks_whose_counters_these_are() {
        check(
            "-no-pie",
            &expect![[r#"
                +0 Found
                00: lea 0x1f,%r11
                07: jmp 0xc # Slow
                +0 Checked
                00: rdfsbase %r11
                05: nopl (%rax)
                09: cmp %gs:0x11,%r11 # Owner
                11: jne 0xfffffffffffffff4
            "#]],
        );
    }

    #[test]
    fn an_entry_that_a_library_exports_asks_for_signals_and_whether_it_has_started() {
        check(
            "-shared -Wl,-Bsymbolic",
            &expect![[r#"
                +0 Found
                00: lea 0x3e,%r11
                07: jmp 0xc # Signal
                0c: lea 0x34,%r11
                13: jmp 0x18 # Slow
                +0 Checked
                00: rdfsbase %r11
                05: nopl (%rax)
                09: cmpb $0x0,0x10 # Started
                10: je 0xfffffffffffffff4
                12: cmp %gs:0x1a,%r11 # Owner
                1a: jne 0xfffffffffffffff4
                1c: lea 0x8(%rsp),%r11
                21: cmp %r11,%rdx
                24: je 0xffffffffffffffe8
            "#]],
        );
    }
}

//! Calls that may end the process, and those around `vfork`; the end of the program.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Registers that all have a value of their own.
fn full() -> Registers {
    Registers {
        rax: 1,
        rcx: 2,
        rdx: 3,
        rbx: 4,
        rbp: 5,
        rsi: 6,
        rdi: 7,
        r8: 8,
        r9: 9,
        r10: 10,
        r11: 0,
        r12: 12,
        r13: 13,
        r14: 14,
        r15: 15,
        flags: 0,
        gs: 0,
        scratch: [16, 17],
    }
}

/// What state `enter` leaves this thread in; all registers are kept.
macro_rules! states {
    ($world:expr, $($name:literal),*) => {
        [$({
            let before = Registers { r11: $world.at + TEXT, ..full() };
            let after = $world.enter($name, before);
            check(after.kept(), before);
            $world.state(0)
        }),*]
    };
}

#[test]
fn a_thread_says_that_it_ends_its_process() {
    let world = World::new();
    check(states!(world, "leave", "back", "abort", "back"), [HAS_ENDED, MAY_RUN, ABORTS, MAY_RUN]);
}

#[test]
fn the_end_of_exit_is_known_unless_a_call_said_more() {
    let world = World::new();
    check(states!(world, "in_exit"), [IN_EXIT]);
    check(states!(world, "leave", "in_exit"), [HAS_ENDED, HAS_ENDED]);
}

#[test]
fn where_nothing_is_recorded_nothing_is_said() {
    let world = World::new();
    write(world.at + HOME + offset!(HomePage, is_alone), 1u64);
    check(states!(world, "leave"), [MAY_RUN]);
}

#[test]
fn a_child_of_vfork_says_nothing_of_its_parent() {
    let world = World::new();
    let vfork = |result: i64| {
        let before = Registers { rax: result.cast_unsigned(), r11: world.at + TEXT, ..full() };
        check(world.enter("vforked", before).kept(), before);
        process::<u32>(offset!(Process, n_in_vfork))
    };
    check(vfork(-11), 0);
    check(vfork(0), 1);
    check(states!(world, "leave"), [MAY_RUN]);
    check(vfork(4711), 0);
    check(states!(world, "leave"), [HAS_ENDED]);
}

#[test]
fn a_thread_that_may_be_cancelled_anywhere_counts_as_stopped() {
    let world = World::new();
    let n_stopped = |how| {
        let before = Registers { rdi: how, r11: world.at + TEXT, ..full() };
        check(world.enter("async", before).kept(), before);
        header::<u64>(offset!(Header, n_stopped))
    };
    check([n_stopped(0), n_stopped(1)], [0, 1]);
}

static WAS_CALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn at_end() {
    WAS_CALLED.store(true, Ordering::SeqCst);
}

#[test]
fn what_is_called_at_the_end_is_called_by_us() {
    let world = World::new();
    let theirs = at_end as extern "C" fn() as usize as u64;
    let got = world.enter("begin", Registers { rdx: theirs, ..Registers::default() });
    check(got.rdx, world.label("last"));
    check(process::<u64>(offset!(Process, at_end)), theirs);
    world.call("last", Registers::default());
    check((WAS_CALLED.load(Ordering::SeqCst), world.state(0)), (true, IN_EXIT));
}

#[test]
fn at_the_end_threads_that_are_no_more_have_ended() {
    let world = World::new();
    set_process(offset!(Process, n_threads), 3u64);
    let word = world.put(DATA, &4711u32.to_le_bytes());
    for (n, number) in [(1, 4711), (2, 4712)] {
        set_thread(n, word - 8, 0, n);
        write(thread_at(n) + offset!(Thread, number), number);
        write(thread_at(n) + offset!(Thread, number_at), 8u32);
        write(ARENA + world.head.states_at() + n, MAY_RUN);
    }
    world.call("take_stock", Registers { rcx: u64::from(HAS_ENDED), ..Registers::default() });
    check([0, 1, 2].map(|area| world.state(area)), [HAS_ENDED, MAY_RUN, 0]);
}

//! What is known of each thread.

use super::*;

#[test]
fn a_thread_that_begins_is_written_down() {
    let world = World::new();
    write(ARENA + world.head.states_at(), 0u8);
    world.call("begins", Registers { rax: thread_at(0), rbp: thread_pointer(), ..Registers::default() });
    check(world.state(0), MAY_RUN);
    check(thread::<u32>(0, offset!(Thread, number)), thread_number());
    // Where the C library keeps it: the same number stands there.
    let at = thread::<u32>(0, offset!(Thread, number_at));
    check(read::<u32>(thread_pointer() + u64::from(at)), thread_number());
}

#[test]
fn a_thread_of_an_unknown_library_has_no_number() {
    let world = World::new();
    world.call("begins", Registers { rax: thread_at(0), rbp: world.at + DATA + 64, ..Registers::default() });
    check(thread::<u32>(0, offset!(Thread, number_at)), 0);
}

#[test]
fn streams_say_whose_events_they_have() {
    let world = World::new();
    let number = Registers { rax: 4711, ..Registers::default() };
    world.call("number", number);
    check(world.events(offset!(EventsPage, number)), 0);
    let world = {
        drop(world);
        World::new().with_events()
    };
    world.call("number", number);
    check(world.events(offset!(EventsPage, number)), 4711);
}

#[test]
fn the_kernel_says_what_a_word_holds() {
    let world = World::new();
    let word = world.put(DATA, &7u32.to_le_bytes());
    let holds = |at, value| {
        let got = world.call("holds", Registers { rdi: at, r9: value, ..Registers::default() });
        i32::try_from(got.rax.cast_signed()).expect("small")
    };
    check([holds(word, 7), holds(word, 8), holds(0x10, 7)], [0, -libc::EAGAIN, -libc::EFAULT]);
}

#[test]
fn each_area_has_a_state() {
    let world = World::new();
    let got = world.call("state", Registers { r14: 3, ..Registers::default() });
    check((got.rax, got.is_zero()), (ARENA + world.head.states_at() + 3, false));
    let got = world.call("state", Registers { r14: world.head.n_areas, ..Registers::default() });
    check((got.rax, got.is_zero()), (0, true));
    set_header(offset!(Header, states_at), 0u64);
    check(world.call("state", Registers::default()).is_zero(), true);
}

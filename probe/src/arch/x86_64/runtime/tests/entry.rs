//! Entries of moved code: a thread that is not the owner of its area gets one.

use super::*;

#[test]
fn the_first_thread_gets_the_first_area() {
    let world = World::new();
    set_thread(0, 0, 0, 0);
    write(ARENA + world.head.states_at(), 0u8);
    write(world.at + HOME + offset!(HomePage, owner), 0u64);
    let before = Registers { rax: 1, rcx: 2, rdx: 3, rbx: 4, r10: 5, r15: 6, ..Registers::default() };
    let after = world.enter("slow", before);
    check(after.kept(), Registers { r11: world.at + TEXT, ..before });
    check((world.state(0), thread::<u64>(0, offset!(Thread, pointer))), (MAY_RUN, thread_pointer()));
    check(read::<u64>(world.at + HOME + offset!(HomePage, owner)), thread_pointer());
    check(blocks_signals(), false);
}

#[test]
fn a_further_thread_gets_counters_at_its_own_distance() {
    let world = World::new();
    // Another one that is there has the first area.
    let other = world.at + DATA + 64;
    write(other, other);
    set_thread(0, other, 0, 0);
    let after = world.enter("slow", Registers::default());
    assert_ne!(after.gs, 0);
    check(process::<u64>(offset!(Process, n_threads)), 2);
    let home = (world.at + HOME).wrapping_add(after.gs);
    check(read::<u64>(home + offset!(HomePage, owner)), thread_pointer());
    write(home + HomePage::LEN + 16, 3u64);
    check(world.counter(1, 2), 3);
    // The same thread comes again: it has one.
    let again = world.enter("slow", Registers::default());
    check((again.gs, process::<u64>(offset!(Process, n_threads))), (after.gs, 2));
    unmap(home, 2 * PAGE);
}

#[test]
fn a_thread_that_is_no_more_leaves_its_area_to_the_next() {
    let world = World::new();
    set_thread(0, 0x10, 0, 0);
    world.enter("slow", Registers::default());
    check((process::<u64>(offset!(Process, n_threads)), world.state(0)), (1, MAY_RUN));
    check(thread::<u64>(0, offset!(Thread, pointer)), thread_pointer());
}

#[test]
fn where_there_is_no_room_threads_count_together() {
    let world = World::new();
    let other = world.at + DATA + 64;
    write(other, other);
    set_thread(0, other, 0, 0);
    set_process(offset!(Process, is_full), 1u64);
    let after = world.enter("slow", Registers::default());
    check((after.gs, header::<u64>(offset!(Header, n_shared))), (0, 1));
}

#[test]
fn where_nothing_is_recorded_entries_go_on() {
    let world = World::bare();
    write(world.at + HOME + offset!(HomePage, is_alone), 1u64);
    let before = Registers { rax: 1, r11: world.at + TEXT, ..Registers::default() };
    check(world.enter("slow", before).kept(), before);
}

#[test]
fn events_say_that_another_thread_goes_on() {
    let world = World::new().with_events();
    world.call("is_another", Registers::default());
    check(world.appended(), vec![EVENTS_ANOTHER]);
}

//! Chunks of events.

use super::*;

/// A world whose first chunk is full.
fn with_full_chunk() -> World {
    let world = World::new().with_events();
    let base = world.events(offset!(EventsPage, base));
    world.set_events(offset!(EventsPage, next), base + CHUNK_LEN);
    world.set_events(offset!(EventsPage, limit), base + CHUNK_LEN - CHUNK_ROOM);
    world.set_events(offset!(EventsPage, control), world.at + COUNTERS);
    world.set_events(offset!(EventsPage, taker), world.at + DATA);
    world
}

fn full(world: &World, chunk: u64) -> u32 {
    read(world.at + COUNTERS + offset!(EventsPage, full) + 4 * chunk)
}

#[test]
fn a_full_chunk_waits_and_the_next_one_is_filled() {
    let world = with_full_chunk();
    let before = Registers { rax: 1, rcx: 2, rdi: 3, r9: 4, r11: 5, ..Registers::default() };
    let before = Registers { rbx: ARENA, r12: PROCESS, ..before };
    let after = world.call("chunk", before);
    check((after.kept(), after.is_zero()), (before, false));
    check([full(&world, 0), full(&world, 1)], [1, 0]);
    let next = world.events(offset!(EventsPage, base)) + CHUNK_LEN;
    check(world.events(offset!(EventsPage, chunk)), 1);
    check(world.events(offset!(EventsPage, next)), next);
    check(world.events(offset!(EventsPage, limit)), next + CHUNK_LEN - CHUNK_ROOM);
    check(blocks_signals(), false);
}

#[test]
fn the_last_chunk_is_followed_by_the_first() {
    let world = with_full_chunk();
    world.set_events(offset!(EventsPage, chunk), N_CHUNKS - 1);
    world.call("chunk", Registers::default());
    check(world.events(offset!(EventsPage, chunk)), 0);
    check(world.events(offset!(EventsPage, next)), world.events(offset!(EventsPage, base)));
}

#[test]
fn whoever_has_room_by_now_takes_no_chunk() {
    let world = with_full_chunk();
    let base = world.events(offset!(EventsPage, base));
    world.set_events(offset!(EventsPage, next), base);
    world.call("chunk", Registers::default());
    check((full(&world, 0), world.events(offset!(EventsPage, chunk))), (0, 0));
}

#[test]
fn where_nothing_is_recorded_there_is_no_chunk() {
    let world = with_full_chunk();
    world.set_events(offset!(EventsPage, limit), 0);
    check(world.call("chunk", Registers::default()).is_zero(), true);
    world.set_events(offset!(EventsPage, base), 0);
    check(world.call("chunk", Registers::default()).is_zero(), true);
}

#[test]
fn events_are_lost_where_nobody_takes_them() {
    let world = with_full_chunk();
    write(world.at + COUNTERS + offset!(EventsPage, full) + 4, 1u32);
    // As the kernel leaves the lock of a thread that died.
    write(world.at + DATA, 0x4000_0000u32);
    check(world.call("chunk", Registers::default()).is_zero(), false);
    check((world.events(offset!(EventsPage, lost)), world.events(offset!(EventsPage, stalls))), (1, 1));
    let nothing = world.at + COUNTERS + offset!(EventsPage, nothing);
    check(world.events(offset!(EventsPage, next)), nothing);
}

#[test]
fn what_is_lost_goes_round_in_the_rest_of_the_page() {
    let world = with_full_chunk();
    let home = Registers { rbx: world.at + COUNTERS, ..Registers::default() };
    world.call_at(world.label("into_nothing"), home);
    let nothing = world.at + COUNTERS + offset!(EventsPage, nothing);
    check(world.events(offset!(EventsPage, next)), nothing);
    check(world.events(offset!(EventsPage, limit)), world.at + COUNTERS + PAGE - CHUNK_ROOM);
}

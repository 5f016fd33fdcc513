//! Which code a signal interrupted: moved code, or what it called.

use super::signals::{frame, interrupted, key, register};
use super::*;

/// Adds `by` to what is kept of where the signal came; whether that could be.
fn add(world: &World, info: u64, by: i64) -> bool {
    world
        .call("interrupted", Registers { rsi: info, r8: by.cast_unsigned(), ..Registers::default() })
        .is_zero()
}

#[test]
fn moved_code_is_written_down_where_it_is() {
    let world = World::new();
    let info = frame(&world, world.at + TEXT + 0x40, world.at + DATA);
    check((add(&world, info, 1), add(&world, info, 1), interrupted()), (true, true, vec![(key(0x40), 2)]));
    check((add(&world, info, -1), interrupted()), (true, vec![(key(0x40), 1)]));
}

#[test]
fn code_of_nobody_is_not_written_down() {
    let world = World::new();
    let info = frame(&world, world.at + DATA + 0x800, world.at + DATA + 0xc00);
    check((add(&world, info, 1), interrupted()), (false, vec![]));
}

/// A library's function, and a stack with a call's return address: moved code called it through a stub.
fn in_a_call(world: &World) -> u64 {
    let function = world.at + DATA + 0x800;
    let stub = OLD + 0x80;
    // jmp *slot(%rip), 8 bytes on
    world.put(stub, &[0xff, 0x25, 2, 0, 0, 0, 0, 0]);
    world.put(stub + 8, &function.to_le_bytes());
    // call stub
    let mut call = vec![0xe8];
    let distance = i32::try_from(stub.cast_signed() - (TEXT + 0x25).cast_signed()).expect("near");
    call.extend(distance.to_le_bytes());
    world.put(TEXT + 0x20, &call);
    let stack = world.put(DATA + 0xc00, &0u64.to_le_bytes());
    world.put(DATA + 0xc08, &(world.at + TEXT + 0x25).to_le_bytes());
    frame(world, function + 16, stack)
}

#[test]
fn a_call_of_another_library_is_written_down_by_its_return_address() {
    let world = World::new();
    let info = in_a_call(&world);
    let want = key(0x25) + (1 << BEHIND_CALL);
    check((add(&world, info, 1), interrupted()), (true, vec![(want, 1)]));
    check((add(&world, info, -1), interrupted()), (true, vec![(want, 0)]));
}

#[test]
fn a_context_that_was_changed_is_not_taken_back() {
    let world = World::new();
    let info = in_a_call(&world);
    add(&world, info, 1);
    write(register(info, libc::REG_RSP), world.at + DATA);
    check(add(&world, info, -1), false);
    check(interrupted().iter().map(|row| row.1).collect::<Vec<_>>(), vec![1]);
}

#[test]
fn the_table_says_when_it_is_full() {
    let world = World::new();
    // As many places as all slots that are looked at for one; then one more.
    let n = (0..PAGE).filter(|offset| !add(&world, frame(&world, world.at + TEXT + offset, 0), 1)).count();
    check(header::<u64>(offset!(Header, n_unknown)), n as u64);
    check(interrupted().len() as u64, (PAGE - n as u64).min(N_INTERRUPTED));
    assert!(n > 0);
}

#[test]
fn the_kernel_says_whether_memory_can_be_read() {
    let world = World::new();
    let reads = |at| {
        let before = Registers { rdx: at, rcx: 1, rsi: 2, rdi: 3, r10: 4, r11: 5, ..Registers::default() };
        let before = Registers { rbx: ARENA, r12: PROCESS, ..before };
        let after = world.call("reads", before);
        check(Registers { rax: 0, ..after.kept() }, before);
        after.is_zero()
    };
    check([reads(world.at), reads(0x10)], [true, false]);
}

#[test]
fn these_routines_are_known_by_their_addresses() {
    let world = World::new();
    let inside = |at| {
        let info = frame(&world, at, 0);
        let got = world.call_at(
            world.label("inside"),
            Registers { rbx: ARENA, r12: info - 304, ..Registers::default() },
        );
        got.is_zero().then_some(got.r9)
    };
    check(inside(world.label("mark")), Some(world.label("mark")));
    check([inside(world.at + TEXT), inside(world.label("chunk"))], [None, None]);
}

#[test]
fn what_is_written_down_is_told_from_what_is_about_to_be() {
    let world = World::new();
    let is_done = |at, flags: u64| {
        let info = frame(&world, at, 0);
        write(register(info, libc::REG_EFL), flags);
        let registers = Registers { rbx: ARENA, r9: at, r12: info - 304, ..Registers::default() };
        world.call_at(world.label("is_done"), registers).is_zero()
    };
    let zero = 0x40;
    // The instruction that writes it down has been, and has done it; or has not done it.
    check([is_done(world.label("commit"), zero), is_done(world.label("commit"), 0)], [true, false]);
    check([is_done(world.label("committed"), 0), is_done(world.label("swap"), 0)], [true, true]);
    check(is_done(world.label("interrupted"), zero), false);
}

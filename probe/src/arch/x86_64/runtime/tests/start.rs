//! How a module starts.

use super::*;

fn started(world: &World) -> u8 {
    read(world.at + DATA)
}

#[test]
fn a_library_joins_before_its_own_start() {
    let world = World::not_joined();
    // Its DT_INIT says which arguments it got: lea (%rdi,%rsi),%rax; ret
    world.put(TEXT, &[0x48, 0x8d, 0x04, 0x37, RET]);
    let got = world.call("start", Registers { rdi: 40, rsi: 2, rdx: 3, ..Registers::default() });
    check((got.rax, got.rdx, started(&world)), (42, 3, 1));
    check(process::<u64>(offset!(Process, homes)), world.at + HOME);
}

#[test]
fn a_library_without_a_start_joins() {
    let world = World::not_joined();
    write(world.at + RUNTIME + offset!(Module, init), 0u64);
    world.call("start", Registers::default());
    check((started(&world), process::<u64>(offset!(Process, homes))), (1, world.at + HOME));
}

#[test]
fn an_executable_joins_before_its_entry_point() {
    let world = World::not_joined();
    let before = Registers { rax: 1, rdx: 2, r9: 3, r15: 4, ..Registers::default() };
    let before = Registers { rbx: ARENA, r12: PROCESS, ..before };
    let after = world.call("entry", before);
    check(Registers { r11: 0, ..after.kept() }, before);
    check(process::<u64>(offset!(Process, homes)), world.at + HOME);
}

#[test]
fn a_library_says_that_it_has_started() {
    let world = World::not_joined();
    let got = world.call("is_started", Registers::default());
    check((got.rax, got.is_zero()), (world.at + DATA, true));
    world.call("set_started", Registers::default());
    check((started(&world), world.call("is_started", Registers::default()).is_zero()), (1, false));
    // What is no library always has.
    write(world.at + DATA, 0u8);
    write(world.at + RUNTIME + offset!(Module, started), 0u64);
    world.call("set_started", Registers::default());
    check((started(&world), world.call("is_started", Registers::default()).is_zero()), (0, false));
}

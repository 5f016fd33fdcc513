//! Indirect calls that do not lead where their site led first.

use super::*;

/// Words of the counters: two call sites behind three that add up, then four slots.
const FIRST: u32 = 3;
const N_SITES: usize = 2;
const TABLE: u32 = 16;
const N_SLOTS: u32 = 4;

fn with_sites() -> World {
    let mut world = World::new();
    let (old, home) = (Va(world.at + OLD)..Va(world.at + TEXT), Va(world.at + HOME));
    world.runtime.set_indirect_calls(&old, home, Some((FIRST, N_SITES, TABLE, N_SLOTS)));
    world.load();
    world
}

/// The distance from a target to the owner's word.
fn distance(world: &World, target: u64) -> u64 {
    (world.at + HOME + offset!(HomePage, owner)).wrapping_sub(target)
}

/// A call of the site whose first word is `site` that leads to `target`: all registers are kept.
fn call(world: &World, site: u32, target: u64) {
    let before = Registers { rax: 1, rcx: 2, rdx: 3, rsi: 4, rdi: 5, r8: 6, r9: 7, ..Registers::default() };
    let before = Registers {
        rbx: ARENA,
        r10: 8,
        r11: distance(world, target),
        r12: PROCESS,
        scratch: [u64::from(site), 0],
        ..before
    };
    check(world.call("callee", before).kept(), before);
}

fn words(world: &World, from: u32, n: u64) -> Vec<u64> {
    (0..n).map(|k| read(world.at + COUNTERS + 8 * (u64::from(from) + k))).collect()
}

/// The slots of the table that are taken.
fn slots(world: &World) -> Vec<Vec<u64>> {
    let all = (0..N_SLOTS).map(|n| words(world, TABLE + SLOT_WORDS * n, u64::from(SLOT_WORDS)));
    all.filter(|slot| slot[0] != 0).collect()
}

#[test]
fn where_a_site_leads_first_is_kept_at_the_site() {
    let world = with_sites();
    let target = world.at + OLD + 64;
    call(&world, FIRST, target);
    call(&world, FIRST, target);
    check(words(&world, FIRST, 3), vec![distance(&world, target), 2, 0]);
    check(slots(&world), Vec::<Vec<u64>>::new());
}

#[test]
fn where_else_it_leads_has_a_slot() {
    let world = with_sites();
    let (first, other) = (world.at + OLD + 64, world.at + OLD + 128);
    call(&world, FIRST, first);
    (0..3).for_each(|_| call(&world, FIRST, other));
    check(words(&world, FIRST, 3), vec![distance(&world, first), 1, 0]);
    check(slots(&world), vec![vec![u64::from(FIRST), distance(&world, other), 3, 1]]);
}

#[test]
fn a_target_in_another_module_is_kept_by_its_row() {
    let world = with_sites();
    set_header(offset!(Header, n_rows), 2u32);
    let row = PROCESS + offset!(Process, homes) + Home::LEN;
    for (field, place) in
        [(offset!(Home, at), 1), (offset!(Home, old), 0x9000), (offset!(Home, old_end), 0xa000)]
    {
        write(row + field, place);
    }
    call(&world, FIRST, 0x9010);
    call(&world, FIRST, 0x9010);
    check(slots(&world), vec![vec![u64::from(FIRST), distance(&world, 0x9010), 2, (2 << 48) + 0x10]]);
}

#[test]
fn a_target_in_no_module_is_kept_itself() {
    let world = with_sites();
    call(&world, FIRST + SITE_WORDS, 0xb000);
    check(slots(&world), vec![vec![u64::from(FIRST + SITE_WORDS), distance(&world, 0xb000), 1, 0xb000]]);
}

#[test]
fn what_the_table_has_no_room_for_is_counted_at_the_site() {
    let world = with_sites();
    (0..=N_SLOTS).for_each(|n| call(&world, FIRST, 0xb000 + u64::from(n)));
    check((slots(&world).len(), words(&world, FIRST, 3)), (4, vec![0, 0, 1]));
}

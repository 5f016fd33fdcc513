//! How a module gets its counters in the recording.

use super::*;

#[test]
fn what_was_counted_before_goes_to_the_first_area() {
    let world = World::not_joined();
    write(world.at + COUNTERS + 8, 5u64);
    world.call("join", Registers::default());
    check(world.counter(0, 1), 5);
    write(world.at + COUNTERS + 8, 6u64);
    check(world.counter(0, 1), 6);
    let home = PROCESS + offset!(Process, homes);
    let fields = [
        (offset!(Home, at), HOME),
        (offset!(Home, runtime), RUNTIME),
        (offset!(Home, text), TEXT),
        (offset!(Home, text_end), RUNTIME),
        (offset!(Home, old), OLD),
        (offset!(Home, old_end), TEXT),
    ];
    for (field, place) in fields {
        check(read::<u64>(home + field), world.at + place);
    }
    check(read::<u64>(world.at + HOME + offset!(HomePage, owner)), thread_pointer());
}

#[test]
fn without_a_recording_a_module_is_alone() {
    let world = World::bare();
    world.call("join", Registers::default());
    check(read::<u64>(world.at + HOME + offset!(HomePage, is_alone)), 1);
    check(read::<u8>(world.at + DATA), 1);
}

#[test]
fn a_module_that_has_no_row_counts_for_itself() {
    let world = World::not_joined();
    write(ARENA + Header::LEN + offset!(Row, key), 0u64);
    write(world.at + COUNTERS + 8, 5u64);
    world.call("join", Registers::default());
    check((process::<u64>(offset!(Process, is_full)), header::<u64>(offset!(Header, n_shared))), (1, 1));
    check((world.counter(0, 1), read::<u64>(world.at + COUNTERS + 8)), (0, 5));
    check(read::<u64>(world.at + HOME + offset!(HomePage, owner)), thread_pointer());
}

#[test]
fn a_row_is_added_with_the_notes() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("recording");
    let mut world = World::new();
    let notes = world.put(DATA + 64, b"what counters mean");
    world.runtime.set_notes(Va(world.at + DATA), Va(notes), 18);
    world.load();
    let len: u64 = header(offset!(Header, len_bytes));
    std::fs::write(&path, vec![0; usize::try_from(len).expect("small")]).expect("written");
    for (at, byte) in (0..).zip(path.as_os_str().as_bytes()) {
        set_process(offset!(Process, path) + at, *byte);
    }
    set_process(offset!(Process, path_len), path.as_os_str().len() as u64 + 1);
    let got = world.call("add_row", Registers::default());
    check((got.is_zero(), got.r14, header::<u32>(offset!(Header, n_rows))), (true, 1, 2));
    let row = ARENA + Header::LEN + Row::LEN;
    check(read::<u128>(row + offset!(Row, key)), KEY);
    check(read::<u64>(row + offset!(Row, counters_len)), PAGE);
    check([read::<u64>(row + offset!(Row, notes_at)), read(row + offset!(Row, notes_len))], [len, 18]);
    let file = std::fs::read(&path).expect("a file");
    check(
        file.get(usize::try_from(len).expect("small")..).and_then(|rest| rest.get(..18)),
        Some(&b"what counters mean"[..]),
    );
}

#[test]
fn a_recording_without_a_file_gets_no_rows() {
    let world = World::new();
    check(world.call("add_row", Registers::default()).is_zero(), false);
    check(header::<u32>(offset!(Header, n_rows)), 1);
}

#[test]
fn call_sites_join_where_they_led_first() {
    let mut world = World::new();
    let (old, home) = (Va(world.at + OLD)..Va(world.at + TEXT), Va(world.at + HOME));
    world.runtime.set_indirect_calls(&old, home, Some((2, 2, 16, 2)));
    world.load();
    let ours = world.at + COUNTERS;
    let put = |at: u64, words: &[u64]| (0..).zip(words).for_each(|(n, word)| write(at + 8 * n, *word));
    // Sites: one that led nowhere there, one that led elsewhere; and a slot of the first.
    put(ours + 16, &[0xaa, 3, 1, 0xbb, 5, 0]);
    put(ours + 8 * 16, &[2, 0xcc, 7, 1]);
    let area = ARENA + extent(world.head, 1);
    put(area + 16, &[0, 0, 0, 0xdd, 1, 0]);
    let before = Registers {
        rax: 11,
        rcx: 12,
        rdx: 13,
        rbx: ARENA,
        rbp: world.at + HOME,
        rsi: 14,
        rdi: area,
        r8: 15,
        r9: 16,
        r10: 17,
        r11: 18,
        r12: PROCESS,
        r13: 19,
        r14: 20,
        r15: 21,
        scratch: [22, 23],
        ..Registers::default()
    };
    let after = world.call("join_callees", before);
    // The caller goes on with all but these.
    let lost =
        Registers { rcx: after.rcx, rdx: after.rdx, rsi: after.rsi, r8: after.r8, r9: after.r9, ..before };
    check(after.kept(), Registers { r10: after.r10, r11: after.r11, ..lost });
    let got: Vec<u64> = (0..6).map(|n| read(area + 16 + 8 * n)).collect();
    check(got, vec![0xaa, 3, 1 + 7, 0xdd, 1, 5]);
}

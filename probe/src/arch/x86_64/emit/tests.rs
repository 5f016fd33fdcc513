//! Each sequence of instructions, as the decoder reads it.

use super::*;
use crate::testing::listing;
use expect_test::{Expect, expect};
use program::Va;
use program::arch::{Decoder, PositionDependence};

fn check(code: &[u8], want: &Expect) {
    want.assert_eq(&listing(code, Va(0x1000), |_, _| String::new()));
}

#[test]
fn a_branch_that_is_written_is_decoded_as_what_it_was() {
    let conditional = (0..16).map(Branch::Conditional);
    let short_only =
        [([0xe0, 0], 1), ([0xe3, 0], 1), ([0x67, 0xe3], 2)].map(|(b, n)| Branch::ShortOnly(b, n));
    for branch in [Branch::Jump, Branch::Call].into_iter().chain(conditional).chain(short_only) {
        let mut decoded = Vec::new();
        if let Some((bytes, n)) = short(branch) {
            decoded.push(bytes[..n].to_vec());
        }
        let mut bytes = Vec::new();
        long(branch, &mut bytes);
        assert_eq!(bytes.len(), long_len(branch), "{branch:?}");
        if !matches!(branch, Branch::ShortOnly(..)) {
            decoded.push(bytes);
        }
        for bytes in decoded {
            let mut decoder = Decoder::new(&bytes, Va(0x1000));
            let insn = decoder.next().expect("an instruction");
            let to = Va(0x1000 + bytes.len() as u64);
            assert_eq!(decoder.position_of(&insn, &bytes), PositionDependence::Branch(branch, to));
        }
    }
}

#[test]
fn what_has_no_long_form_leads_to_a_jump() {
    let mut bytes = Vec::new();
    long(Branch::ShortOnly([0x67, 0xe3], 2), &mut bytes);
    check(
        &bytes,
        &expect![[r#"
            00: jecxz 0x1005
            03: jmp 0x100a
            05: jmp 0x100a
        "#]],
    );
}

#[test]
fn padding_is_as_long_as_asked_for_and_does_nothing() {
    for n in 0..40 {
        let mut bytes = Vec::new();
        pad(&mut bytes, n);
        assert_eq!(bytes.len(), n);
        let decoder = Decoder::new(&bytes, Va(0x1000));
        for insn in decoder {
            assert!(insn.is_nop(), "{insn}");
        }
    }
}

#[test]
fn an_increment_keeps_what_is_live() {
    let emitted = |how: Increment| {
        let mut bytes = Vec::new();
        let places: Vec<(usize, usize)> = how.emit(&mut bytes).collect();
        assert!(places.iter().all(|(at, end)| at + 4 == *end && bytes[*at..*end] == [0; 4]), "{places:?}");
        bytes
    };
    check(
        &emitted(Increment::Flags),
        &expect![[r#"
            00: incq %gs:0x1008
        "#]],
    );
    check(
        &emitted(Increment::Through(Reg::general(2))),
        &expect![[r#"
            00: mov %gs:0x1008,%rdx
            08: lea 0x1(%rdx),%rdx
            0c: mov %rdx,%gs:0x1014
        "#]],
    );
    check(
        &emitted(Increment::Through(Reg::general(12))),
        &expect![[r#"
            00: mov %gs:0x1008,%r12
            08: lea 0x1(%r12),%r12
            0d: mov %r12,%gs:0x1015
        "#]],
    );
    check(
        &emitted(Increment::Spilled),
        &expect![[r#"
            00: lea -0x80(%rsp),%rsp
            05: push %rax
            06: mov %gs:0x100e,%rax
            0e: lea 0x1(%rax),%rax
            12: mov %rax,%gs:0x101a
            1a: pop %rax
            1b: lea 0x80(%rsp),%rsp
        "#]],
    );
}

#[test]
fn what_adds_more_than_one_leaves_flags_alone_that_are_live() {
    let emitted = |how: Increment, n: u8| {
        let mut bytes = Vec::new();
        let places: Vec<(usize, usize)> = how.emit_adding(n, &mut bytes).collect();
        assert!(places.iter().all(|(at, _)| bytes[*at..*at + 4] == [0; 4]), "{places:?}");
        // Distances count from the end of the instruction, be there more behind them.
        let starts: Vec<u64> = Decoder::new(&bytes, Va(0)).map(|insn| insn.end().0).collect();
        assert!(places.iter().all(|(_, end)| starts.contains(&(*end as u64))), "{places:?}");
        bytes
    };
    check(
        &emitted(Increment::Flags, 127),
        &expect![[r#"
            00: addq $0x7f,%gs:0x1009
        "#]],
    );
    check(
        &emitted(Increment::Through(Reg::general(12)), 7),
        &expect![[r#"
            00: mov %gs:0x1008,%r12
            08: lea 0x7(%r12),%r12
            0d: mov %r12,%gs:0x1015
        "#]],
    );
    assert_eq!(emitted(Increment::Spilled, 7).len(), emitted(Increment::Spilled, 1).len());
    // `inc` leaves the carry, `add` does not.
    assert_eq!(Increment::by_many_at(RegSet::EMPTY), Increment::Flags);
    assert_eq!(Increment::at(abi::CARRY), Increment::Flags);
    assert_ne!(Increment::by_many_at(abi::CARRY), Increment::Flags);
}

#[test]
fn the_stack_of_an_increment_is_where_it_says() {
    let mut bytes = Vec::new();
    let _places = Increment::Spilled.emit(&mut bytes).count();
    let decoder = Decoder::new(&bytes, Va(0));
    let mut ends = Vec::new();
    for insn in decoder {
        ends.push(usize::try_from(insn.end().0).expect("small"));
    }
    let moves = Increment::Spilled.stack();
    assert!(moves.iter().all(|(at, _)| ends.contains(at)), "{moves:?} {ends:?}");
    assert_eq!(moves.last(), Some(&(bytes.len(), Stack::Lower(0))));
}

#[test]
fn checks_of_the_owner() {
    check(
        &check_owner(false).0,
        &expect![[r#"
            00: mov %fs:0x0,%r11
            09: cmp %gs:0x1011,%r11
            11: je 0x1017
            17: lea 0x101e,%r11
            1e: jmp 0x1023
        "#]],
    );
    check(
        &check_owner(true).0,
        &expect![[r#"
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x1011,%r11
            11: je 0x1017
            17: lea 0x101e,%r11
            1e: jmp 0x1023
        "#]],
    );
    check(
        &check_started_owner(true).0,
        &expect![[r#"
        00: rdfsbase %r11
        05: nopl (%rax)
        09: cmpb $0x0,0x1010
        10: je 0x1020
        12: cmp %gs:0x101a,%r11
        1a: je 0x1020
        20: lea 0x1027,%r11
        27: jmp 0x102c
    "#]],
    );
    check(
        &check_started_owner(false).0,
        &expect![[r#"
            00: mov %fs:0x0,%r11
            09: cmpb $0x0,0x1010
            10: je 0x1020
            12: cmp %gs:0x101a,%r11
            1a: je 0x1020
            20: lea 0x1027,%r11
            27: jmp 0x102c
        "#]],
    );
    check(
        &check_owner_here(false).0,
        &expect![[r#"
            00: mov %fs:0x0,%r11
            09: cmp %gs:0x1011,%r11
            11: je 0x1023
            17: lea 0x1023,%r11
            1e: jmp 0x1023
        "#]],
    );
}

#[test]
fn checks_in_front_of_an_entry_go_on_into_it() {
    for (is_early, asks_started, asks_signal) in
        [(false, false, false), (true, false, true), (false, true, true)]
    {
        let check = EntryCheck::new(is_early, asks_started, asks_signal);
        let code = [check.found.clone(), check.check.clone()].concat();
        let want = match (asks_started, asks_signal) {
            (false, false) => expect![[r#"
                00: lea 0x101f,%r11
                07: jmp 0x100c
                0c: mov %fs:0x0,%r11
                15: cmp %gs:0x101d,%r11
                1d: jne 0x1000
            "#]],
            (false, true) => expect![[r#"
                00: lea 0x1035,%r11
                07: jmp 0x100c
                0c: lea 0x102b,%r11
                13: jmp 0x1018
                18: rdfsbase %r11
                1d: nopl (%rax)
                21: cmp %gs:0x1029,%r11
                29: jne 0x100c
                2b: lea 0x8(%rsp),%r11
                30: cmp %r11,%rdx
                33: je 0x1000
            "#]],
            (true, _) => expect![[r#"
                00: lea 0x103e,%r11
                07: jmp 0x100c
                0c: lea 0x1034,%r11
                13: jmp 0x1018
                18: mov %fs:0x0,%r11
                21: cmpb $0x0,0x1028
                28: je 0x100c
                2a: cmp %gs:0x1032,%r11
                32: jne 0x100c
                34: lea 0x8(%rsp),%r11
                39: cmp %r11,%rdx
                3c: je 0x1000
            "#]],
        };
        want.assert_eq(&listing(&code, Va(0x1000), |_, _| String::new()));
    }
}

#[test]
fn checks_of_signals() {
    check(
        &CHECK_SIGNAL.0,
        &expect![[r#"
            00: lea 0x8(%rsp),%r11
            05: cmp %r11,%rdx
            08: jne 0x100e
            0e: lea 0x1015,%r11
            15: jmp 0x101a
        "#]],
    );
    check(
        &[&SAVE[..], &CHECK_SAVED_SIGNAL.0, &RESTORE.0].concat(),
        &expect![[r#"
            00: push %r11
            02: lea 0x10(%rsp),%r11
            07: cmp %r11,%rdx
            0a: jne 0x1010
            10: pop %r11
            12: lea 0x1019,%r11
            19: jmp 0x101e
            1e: pop %r11
            20: jmp 0x1025
        "#]],
    );
}

#[test]
fn ways_to_moved_code() {
    check(
        &BY_WAY_OF.0,
        &expect![[r#"
            00: lea 0x1007,%r11
            07: jmp 0x100c
        "#]],
    );
    check(
        &OWN_STUB.0,
        &expect![[r#"
            00: lea 0x1007,%r11
            07: cmp %r11,0x100e
            0e: je 0x1014
            14: jmpq *0x101a
            1a: int3
            1b: int3
            1c: int3
            1d: int3
            1e: int3
            1f: int3
        "#]],
    );
    check(
        &WITH_FIRST_COUNTERS.0,
        &expect![[r#"
            00: push %rbx
            01: rdgsbase %rbx
            06: xor %r11d,%r11d
            09: wrgsbase %r11
            0e: call 0x1013
            13: wrgsbase %rbx
            18: pop %rbx
            19: ret
        "#]],
    );
}

#[test]
fn distances_stand_where_it_is_said() {
    // Each is four bytes of zero, but those that lead on behind the code itself.
    let all: [(&[u8], &[usize]); 6] = [
        (&check_owner(false).0, &check_owner(false).1),
        (&CHECK_SIGNAL.0, &CHECK_SIGNAL.1),
        (&CHECK_SAVED_SIGNAL.0, &CHECK_SAVED_SIGNAL.1),
        (&OWN_STUB.0, &OWN_STUB.1),
        (&RESTORE.0, &[RESTORE.1]),
        (&WITH_FIRST_COUNTERS.0, &[WITH_FIRST_COUNTERS.1]),
    ];
    for (code, places) in all {
        let mut decoder = Decoder::new(code, Va(0));
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(insn) = decoder.next() {
            let own = &code[at..at + insn.len_bytes()];
            match decoder.position_of(&insn, own) {
                PositionDependence::Branch(..) => found.push(at + own.len() - 4),
                PositionDependence::Displacement(offset, _) => found.push(at + usize::from(offset)),
                PositionDependence::Independent | PositionDependence::Fixed => {}
            }
            at += own.len();
        }
        assert_eq!(found, places);
    }
}

#[test]
fn registers_count_and_are_cleared() {
    for number in (0..16).filter(|n| *n != 4) {
        let reg = Reg::general(number);
        let text = |bytes: &[u8]| {
            let insn = iced_x86::Decoder::new(64, bytes, 0).decode();
            assert_eq!(insn.len(), bytes.len());
            insn.to_string()
        };
        let name = reg.to_string();
        assert_eq!(text(&count_in(reg)), format!("lea 1(%{name}),%{name}"));
        let low = match number {
            0..8 => name.replacen('r', "e", 1),
            _ => format!("{name}d"),
        };
        assert_eq!(text(&clear(reg)), format!("mov $0,%{low}"));
    }
}

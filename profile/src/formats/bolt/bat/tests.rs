//! The table against one written by hand, and cut off or changed at every byte; whole programs stand in
//! `engraft/tests/it/formats.rs`.

use super::{Entry, Fragment, parse};

/// A hot function at 0x1000: a block, a branch and a block at equal offsets, a block that came from further
/// down; a cold part of it.
fn table() -> Vec<u8> {
    let mut bytes = vec![5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    bytes.extend(b"BOLT\0\0\0\0");
    let hash = [0xaa; 8];
    // One hot function: address, hash, 4 blocks, 1 inner entry, 4 entries, 3 equal, of which the second is a
    // branch.
    bytes.extend([1, 0x80, 0x20]);
    bytes.extend(hash);
    bytes.extend([4, 1, 4, 3, 0b010]);
    bytes.push(0);
    bytes.extend(hash);
    bytes.push(0);
    bytes.push(5);
    bytes.push(2);
    bytes.extend(hash);
    bytes.push(1);
    // 9 on, from input offset 7 to 0x40: (0x40 - 7) * 2 = 0x72, which needs two bytes as a signed number.
    bytes.extend([9, 0xf2, 0x00]);
    bytes.extend(hash);
    bytes.push(2);
    // The inner entry.
    bytes.push(7);
    // One cold part, 0x100 after the last entry: of function 0, skew 0x20, 2 entries, 1 equal; then back to
    // offset 0x10.
    bytes.extend([1, 0x80, 0x02, 0, 0x20, 2, 1, 0]);
    bytes.push(0);
    bytes.extend(hash);
    bytes.push(3);
    bytes.extend([6, 0x61]);
    bytes
}

#[test]
fn a_table_is_read_as_it_was_written() {
    let entry = |at, input, branch| Entry { at, input, branch };
    let hot = vec![
        entry(0x1000, 0, false),
        entry(0x1005, 5, true),
        entry(0x1007, 7, false),
        entry(0x1010, 0x40, false),
    ];
    let cold = vec![entry(0x1110, 0x20, false), entry(0x1116, 0x10, true)];
    let want = [
        Fragment { start: 0x1000, hot: None, entries: hot },
        Fragment { start: 0x1110, hot: Some(0), entries: cold },
    ];
    assert_eq!(parse(&table()).unwrap(), want);
}

#[test]
fn cut_off_anywhere_it_is_refused_with_the_place() {
    let whole = table();
    for len in 0..whole.len() {
        let (at, what) = parse(&whole[..len]).unwrap_err();
        assert!(at <= len && what == "it is cut off", "{len}: {at} {what}");
    }
    let longer = [&whole[..], &[1, 2, 3, 4]].concat();
    assert_eq!(parse(&longer).unwrap_err(), (whole.len(), "there is more than the table says"));
}

#[test]
fn no_change_of_a_byte_makes_it_panic() {
    let whole = table();
    for i in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[i] = value;
            let _ = parse(&changed);
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    #[track_caller]
    fn check(at: usize, value: u8, want: &str) {
        let mut changed = table();
        changed[at] = value;
        assert_eq!(parse(&changed).unwrap_err().1, want);
    }
    check(8, 2, "it is a note of another type");
    check(12, b'G', "it is a note of somebody else");
    let len = table().len();
    // The index of the cold part's function, and how many of its entries are equal.
    check(len - 17, 3, "a cold part of no function");
    check(len - 14, 3, "more entries are equal than there are");
}

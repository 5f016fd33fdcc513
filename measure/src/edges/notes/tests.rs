//! Notes of all shapes, read as they were written; and bytes that are none.
#![expect(clippy::indexing_slicing, reason = "a test may fail")]

use super::*;
use crate::kept::Keeps;
use program::ImageId;
use proptest::collection::vec;
use proptest::prelude::*;

fn way() -> impl Strategy<Value = Way> {
    (0u32..9, any::<bool>()).prop_map(|(to, is_counted)| Way { to, is_counted })
}

fn node() -> impl Strategy<Value = Node> {
    let marks = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u64>(), marks, vec(way(), 0..4)).prop_map(|(start, (is_counted, enters, leaves), ways)| Node {
        start: Va(start),
        is_counted,
        enters,
        leaves,
        ways: ways.into(),
    })
}

fn flow() -> impl Strategy<Value = FunctionFlow> {
    let whole = (any::<u64>(), any::<bool>(), vec(node(), 0..5));
    whole.prop_map(|(entry, is_whole, blocks)| FunctionFlow { entry: Va(entry), is_whole, blocks })
}

fn sum() -> impl Strategy<Value = Sum> {
    let numbers = || vec(any::<u32>(), 0..3);
    let whole = (any::<u64>(), vec(any::<(u32, u32)>(), 0..3), numbers(), numbers());
    whole.prop_map(|(at, blocks, left, counters)| Sum { at: Va(at), blocks, left, counters })
}

fn watch() -> impl Strategy<Value = Watch> {
    let ring = (0u32..17).prop_map(|n| Keeps::Ring(1 << n));
    let keeps = prop_oneof![Just(Keeps::Count), Just(Keeps::Last), Just(Keeps::Histogram), ring];
    (".{0,9}", any::<u32>(), keeps).prop_map(|(what, word, keeps)| Watch { what, word, keeps })
}

fn callees() -> impl Strategy<Value = Callees> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>());
    (numbers, vec(any::<u64>(), 0..4)).prop_map(|((base, start, end, first, n_slots), mut sites)| {
        sites.sort_unstable();
        let sites = sites.into_iter().map(Va).collect();
        Callees { base: Va(base), old: Va(start)..Va(end), first, n_slots, sites }
    })
}

fn notes() -> impl Strategy<Value = Notes> {
    let id = (proptest::option::of(any::<u128>()), proptest::option::of(vec(any::<u8>(), 1..21)));
    let image = ("[a-z/]{1,9}", id).prop_map(|(name, (id, build_id))| ImageRef {
        name,
        id: id.map(ImageId),
        build_id,
    });
    let lists = (vec(flow(), 0..4), vec(sum(), 0..3), vec(watch(), 0..4), vec(any::<u8>(), 0..9));
    (image, any::<bool>(), lists, proptest::option::of(callees())).prop_map(
        |(image, ends_are_taken, (functions, sums, watches, positions), callees)| Notes {
            image,
            ends_are_taken,
            functions: functions.into_iter().collect(),
            sums,
            watches,
            positions,
            callees,
        },
    )
}

/// With the checksum that goes with `content`.
fn sealed(content: &[u8]) -> Vec<u8> {
    [content, &xxh3_64(content).to_le_bytes()].concat()
}

fn content(notes: &Notes) -> Vec<u8> {
    let mut bytes = notes.write();
    bytes.truncate(bytes.len() - 8);
    bytes
}

proptest! {
    #[test]
    fn notes_are_read_as_they_were_written(notes in notes()) {
        prop_assert_eq!(Notes::parse(&notes.write()).expect("they were written"), notes);
    }

    #[test]
    fn notes_that_are_cut_off_are_refused(notes in notes(), at in any::<prop::sample::Index>()) {
        let (file, content) = (notes.write(), content(&notes));
        prop_assert!(Notes::parse(&file[..at.index(file.len())]).is_err());
        // Also if the checksum is that of what is left.
        prop_assert!(Notes::parse(&sealed(&content[..at.index(content.len())])).is_err());
    }

    /// Whatever they say then: no panic, and not more memory than a few times what was read.
    #[test]
    fn notes_with_a_changed_byte_do_no_harm(notes in notes(), at in any::<prop::sample::Index>(), to: u8) {
        let mut content = content(&notes);
        let at = at.index(content.len());
        content[at] = to;
        if let Ok(read) = Notes::parse(&sealed(&content)) {
            prop_assert!(read.functions.len() + read.sums.len() + read.watches.len() <= content.len());
            let counts = vec![1; read.n_counters()];
            read.profile(&counts, &[(0, 1), (u64::MAX, -1)], 1);
        }
    }
}

/// The content of notes for no image in particular, up to the number of functions.
fn up_to_functions() -> Vec<u8> {
    let none = Notes {
        image: ImageRef::default(),
        ends_are_taken: false,
        functions: Flows::default(),
        sums: Vec::new(),
        watches: Vec::new(),
        positions: Vec::new(),
        callees: None,
    };
    // Functions, sums, watches, positions: none of each.
    let content = content(&none);
    content.strip_suffix(&[0; 4]).expect("four numbers").to_vec()
}

/// Where a number of things stands, one says that there are too many.
#[test]
fn lengths_that_cannot_be_are_refused() {
    let before = up_to_functions();
    assert!(Notes::parse(&sealed(&[&before[..], &[0; 4]].concat())).is_ok());
    let flow = [1, 0x20, 1];
    let places: [(&str, Vec<u8>); 10] = [
        ("functions", vec![]),
        ("counters", flow.to_vec()),
        ("blocks", [&flow[..], &[0]].concat()),
        ("what is said of blocks", [&flow[..], &[0, 0]].concat()),
        ("sums", vec![0]),
        ("blocks of a sum", vec![0, 1, 0]),
        ("ways of a sum", vec![0, 1, 0, 0]),
        ("counters of a sum", vec![0, 1, 0, 0, 0]),
        ("watches", vec![0, 0]),
        ("positions", vec![0, 0, 0]),
    ];
    for (what, bytes) in places {
        for n in [1 << 20, 1 << 32, u64::MAX / 2, u64::MAX] {
            let mut content = [&before[..], &bytes].concat();
            varint(&mut content, n);
            // More than are left, whatever is behind them.
            content.extend([0; 64]);
            assert!(Notes::parse(&sealed(&content)).is_err(), "{n:#x} {what}");
        }
    }
}

/// As notes of kind 'M' and 'O' had it: each block in one place.
fn in_old_form(notes: &Notes) -> Vec<u8> {
    let new = notes.write();
    let empty = Notes { functions: Flows::default(), sums: Vec::new(), ..notes.clone() };
    let start =
        content(&Notes { watches: Vec::new(), positions: Vec::new(), callees: None, ..empty.clone() });
    let mut out = start.strip_suffix(&[0; 4]).expect("four numbers").to_vec();
    out[MAGIC.len() + 1] = if new[MAGIC.len() + 1] == KIND { OLD_KIND } else { OLD_KIND_WITH_CALLEES };
    let mut before = Va(0);
    let mut address = |out: &mut Vec<u8>, at: Va| {
        varint(out, zigzag(at.since(before).cast_signed()));
        before = at;
    };
    varint(&mut out, notes.functions.len() as u64);
    for flow in notes.functions.iter().map(|flow| flow.decode()) {
        address(&mut out, flow.entry);
        out.push(u8::from(flow.is_whole));
        varint(&mut out, flow.blocks.len() as u64);
        for (i, block) in (0i64..).zip(&flow.blocks) {
            address(&mut out, block.start);
            let marks = [block.is_counted, block.enters, block.leaves];
            let marks = (0..).zip(marks).fold(0, |all, (n, mark)| all | u64::from(mark) << n);
            varint(&mut out, marks | (block.ways.len() as u64) << 3);
            for way in &block.ways {
                varint(&mut out, zigzag(i64::from(way.to) - i) << 1 | u64::from(way.is_counted));
            }
        }
    }
    varint(&mut out, notes.sums.len() as u64);
    for sum in &notes.sums {
        address(&mut out, sum.at);
        varint(&mut out, sum.blocks.len() as u64);
        sum.blocks.iter().for_each(|(n, k)| [n, k].into_iter().for_each(|n| varint(&mut out, u64::from(*n))));
        for all in [&sum.left, &sum.counters] {
            varint(&mut out, all.len() as u64);
            all.iter().for_each(|n| varint(&mut out, u64::from(*n)));
        }
    }
    // Watches, positions and indirect calls are as they were.
    let behind = content(&empty);
    out.extend(&behind[start.len() - 2..]);
    sealed(&out)
}

proptest! {
    #[test]
    fn notes_of_the_form_before_are_read(notes in notes()) {
        prop_assert_eq!(Notes::parse(&in_old_form(&notes)).expect("they were written so"), notes);
    }

    #[test]
    fn what_is_written_of_a_function_is_what_it_was(functions in vec(flow(), 0..4)) {
        let flows: Flows = functions.iter().cloned().collect();
        let mut n_counters = 0;
        for (flow, want) in flows.iter().zip(&functions) {
            prop_assert_eq!(&flow.decode(), want);
            prop_assert_eq!(flow.starts().collect::<Vec<_>>(), want.blocks.iter().map(|b| b.start).collect::<Vec<_>>());
            prop_assert_eq!((flow.entry(), flow.is_whole()), (want.entry, want.is_whole));
            prop_assert_eq!(flow.has_entry_block(), want.blocks.iter().any(|b| b.start == want.entry));
            prop_assert_eq!(flow.n_counters(), want.n_counters());
            n_counters += want.n_counters();
        }
        prop_assert_eq!((flows.len(), flows.n_counters()), (functions.len(), n_counters));
    }
}

//! A log is what was written to it.

use super::*;
use crate::recording::Recording;
use program::signature::Float;
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

fn field(name: &str, kind: Type) -> Field {
    Field { name: name.to_owned(), type_name: "t".to_owned(), kind }
}

fn calls(arguments: Vec<Field>, result: Option<Field>, has_times: bool) -> Table {
    let name = "f".to_owned();
    let addresses = Vec::new();
    Table {
        name,
        asked: 0,
        is_of_glob: false,
        is_place: false,
        addresses,
        arguments,
        result,
        has_times,
        every: 1,
    }
}

/// A row, as it is kept in a test.
type Kept = (u32, u64, u64, u8, u64, Vec<u64>);

fn rows(n_words: usize) -> impl Strategy<Value = Vec<Kept>> {
    let words = proptest::collection::vec(prop_oneof![0..3u64, any::<u64>()], n_words);
    proptest::collection::vec((0..3u32, 0..1000u64, any::<u64>(), 0..3u8, any::<u64>(), words), 0..200)
}

fn write(tables: Vec<Table>, rows: &[(usize, Kept)], flushes: &[usize]) -> File {
    let file = tempfile::tempfile().expect("a file");
    let file_of_log = file.try_clone().expect("it is open");
    let mut log = LogWriter::new(file_of_log, Chosen::All).expect("it is written");
    let numbers: Vec<usize> = tables.into_iter().map(|table| log.add(table)).collect();
    for (n, (table, (thread, index, caller, ended, ticks, words))) in rows.iter().enumerate() {
        if flushes.contains(&n) {
            log.flush();
        }
        let ended = [Ended::Result, Ended::Left, Ended::Open][usize::from(*ended)];
        let (arguments, result) = words.split_at(words.len() - 2);
        let row = Row {
            thread: *thread,
            index: *index,
            caller: *caller,
            ended,
            ticks: *ticks,
            own_ticks: ticks / 2,
            arguments,
            result,
        };
        log.row(numbers[*table], &row);
    }
    let caller = Address { module: "m".to_owned(), at: 7, name: None };
    let (to, failed) = log.finish(&[(3, caller)]).expect("it is written");
    assert!(failed.is_none());
    Recording::default().write_behind(to).expect("it is written");
    file
}

/// All rows of a table, of which the last two words are the result's.
fn read(log: &Log, n: usize) -> Vec<Kept> {
    let table = &log.tables[n];
    let parts: Vec<Part> = table.layout().into_iter().map(|(part, _)| part).collect();
    let mut all = Vec::new();
    for block in log.blocks(n, &parts) {
        let block = block.expect("it is whole");
        for row in 0..block.n_rows() {
            let mut words = Vec::new();
            for (part, field) in table.fields() {
                let mut bytes = Vec::new();
                block.bytes(part, row, len_bytes(&field.kind), &mut bytes);
                super::words(&bytes, &mut words);
            }
            let word = |part| block.word(part, row);
            let thread = u32::try_from(word(Part::Thread)).expect("small");
            assert_eq!(word(Part::OwnTicks), word(Part::Ticks) / 2);
            all.push((
                thread,
                word(Part::Index),
                word(Part::Caller),
                block.ended(row) as u8,
                word(Part::Ticks),
                words,
            ));
        }
    }
    all
}

proptest! {
    /// Blocks may end anywhere; within one, rows are in order.
    #[test]
    fn what_is_written_is_read(
        first in rows(5),
        flushes in proptest::collection::vec(0..200usize, 0..4),
    ) {
        let wide = field("wide", Type::Integer { bytes: 16, is_signed: false });
        let table = calls(vec![field("x", Type::Float(Float::Double)), wide.clone()], Some(wide), true);
        let all: Vec<(usize, Kept)> = first.iter().map(|row| (0, row.clone())).collect();
        let file = write(vec![table.clone()], &all, &flushes);
        let log = Log::open(file).expect("it is one").expect("it has a log");
        if first.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(&log.tables, &[table]);
        let mut want = Vec::new();
        let mut block = Vec::new();
        for (n, row) in first.into_iter().enumerate() {
            if flushes.contains(&n) {
                block.sort_by_key(|row: &Kept| row.1);
                want.append(&mut block);
            }
            block.push(row);
        }
        block.sort_by_key(|row| row.1);
        want.append(&mut block);
        prop_assert_eq!(log.n_rows(0), want.len() as u64);
        prop_assert_eq!(read(&log, 0), want);
        prop_assert_eq!((log.callers[&3].at, log.n_bytes_cut), (7, None));
    }
}

/// Tables come as functions are called; without the section of values, these are made of the rows.
#[test]
fn functions_are_in_the_order_of_their_names() {
    let wide = || Some(field("result", Type::Integer { bytes: 16, is_signed: false }));
    let table = |name: &str| Table { name: name.to_owned(), ..calls(Vec::new(), wide(), false) };
    let row = |n: u64| (1, n, 0, 0, 0, vec![n, 0]);
    let rows = [(0, row(1)), (1, row(1)), (0, row(2))];
    let log = Log::open(write(vec![table("z"), table("a")], &rows, &[])).expect("it is one");
    let values = log.expect("it has a log").values().expect("it is whole");
    let got: Vec<(&str, u64)> = values.calls.iter().map(|of| (of.function.as_str(), of.n_results)).collect();
    assert_eq!(got, [("a", 1), ("z", 2)]);
}

/// Whoever writes it may be killed: what was written is read, and it is said that something is missing.
#[test]
fn a_log_that_is_cut_off_is_read_up_to_there() {
    let table = calls(
        vec![field("x", Type::Integer { bytes: 4, is_signed: true })],
        Some(field("result", Type::Integer { bytes: 16, is_signed: false })),
        true,
    );
    let row = |n: u64| (0, (1, n, n % 3, u8::from(n.is_multiple_of(5)), n, vec![n % 7, n, 0]));
    let all: Vec<(usize, Kept)> = (1..=100).map(row).collect();
    let file = write(vec![table], &all, &[40, 80]);
    let len = file.metadata().expect("it is there").len();
    let mut whole = vec![0; usize::try_from(len).expect("small")];
    file.read_exact_at(&mut whole, 0).expect("it is there");
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..whole.len() {
        let cut = tempfile::tempfile().expect("a file");
        cut.write_all_at(&whole[..n], 0).expect("there is room");
        let Some(log) = Log::open(cut).expect("cut off is not damaged") else { continue };
        assert!(log.n_bytes_cut.is_some());
        let rows: Vec<Kept> = if log.tables.is_empty() { Vec::new() } else { read(&log, 0) };
        let want: Vec<Kept> = all.iter().map(|(_, row)| row.clone()).take(rows.len()).collect();
        assert_eq!(rows, want);
        let values = log.values().expect("rows are values");
        let n_left = want.iter().filter(|row| row.3 == 1).count() as u64;
        let counts = values.calls.first().map_or([0; 3], |of| [of.n_calls, of.n_results, of.n_left]);
        assert_eq!(counts, [want.len() as u64, want.len() as u64 - n_left, n_left]);
        seen.insert(rows.len());
    }
    assert_eq!(Vec::from_iter(seen), [0, 40, 80, 100]);
}

/// What was changed is an error, and no reason to panic.
#[test]
fn a_log_that_was_changed_is_refused() {
    let table = calls(
        vec![field("x", Type::Integer { bytes: 4, is_signed: true })],
        Some(field("result", Type::Integer { bytes: 16, is_signed: false })),
        false,
    );
    let row = |n: u64| (0, (1, n, n % 3, 0, 0, vec![n % 7, n, 0]));
    let file = write(vec![table], &(1..=100).map(row).collect::<Vec<_>>(), &[]);
    let len = file.metadata().expect("it is there").len();
    for at in 9..len {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it is there");
        file.write_all_at(&[byte[0] ^ 0x55], at).expect("it is written");
        if let Ok(Some(log)) = Log::open(file.try_clone().expect("it is open")) {
            (0..log.tables.len()).for_each(|n| log.blocks(n, &[Part::Index]).for_each(drop));
            let _values = log.values();
        }
        file.write_all_at(&byte, at).expect("it is written");
    }
}

/// Functions with other arguments have cells of their own; what is not known is empty.
#[test]
fn rows_are_rows_of_csv() {
    let first = calls(
        vec![field("x", Type::Float(Float::Double))],
        Some(field("result", Type::Float(Float::Single))),
        true,
    );
    let name = "g".to_owned();
    let second = vec![
        field("index", Type::Integer { bytes: 4, is_signed: true }),
        field("a,b", Type::Vector { of: Box::new(Type::Float(Float::Single)), n: 2 }),
    ];
    let second = Table {
        name,
        ..calls(second, Some(field("result", Type::Integer { bytes: 4, is_signed: true })), false)
    };
    let x = 0.1f64.to_bits();
    let pair = u64::from(1.5f32.to_bits()) | u64::from((-2.0f32).to_bits()) << 32;
    let minus = u64::from((-7i32).cast_unsigned());
    // Each with two words for the result, of which the first is taken.
    let all = vec![
        (0, (1, 1, 3, 0, 99, vec![x, u64::from(0.5f32.to_bits()), 0])),
        (1, (2, 1, 9, 0, 0, vec![minus, pair, minus, 0])),
        (0, (2, 2, 3, 1, 0, vec![f64::NAN.to_bits(), 0, 0])),
    ];
    let log = Log::open(write(vec![first, second], &all, &[])).expect("it is one").expect("it has a log");
    let text = |has_bits: bool, thread: Option<u32>| {
        let mut out = Vec::new();
        let n = csv::write(&log, &[0, 1], csv::Choice { has_bits, thread }, &mut out).expect("it is written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count() as u64, n + 1);
        text
    };
    let head = "function,thread,index,caller,x,argument.index,\"a,b\",result,ticks\n";
    let want = "f,1,1,m!0x7,0.1,,,0.5,99\nf,2,2,m!0x7,nan,,,,\ng,2,1,live:0x9,,-7,\"[1.5, -2]\",-7,\n";
    assert_eq!(text(false, None), format!("{head}{want}"));
    let want = "f,1,1,m!0x7,0x3fb999999999999a,,,0x3f000000,99\n";
    assert_eq!(text(true, Some(1)), format!("{head}{want}"));
}

/// The last rows are kept, of each table, in more than one block if need be.
#[test]
fn the_last_rows_are_kept() {
    for (n, last) in [(10u64, 100usize), (300_000, 70_000), (200_000, 0)] {
        let file = tempfile::tempfile().expect("a file");
        let of_log = file.try_clone().expect("it is open");
        let mut log = LogWriter::new(of_log, Chosen::Last(last)).expect("it is written");
        let table =
            log.add(calls(vec![field("x", Type::Integer { bytes: 8, is_signed: false })], None, false));
        for index in 1..=n {
            let (arguments, result) = ([index * index], []);
            let row = Row {
                thread: 1,
                index,
                caller: 0,
                ended: Ended::Result,
                ticks: 0,
                own_ticks: 0,
                arguments: &arguments,
                result: &result,
            };
            log.row(table, &row);
            log.flush_at_times();
        }
        let (to, _) = log.finish(&[]).expect("it is written");
        Recording::default().write_behind(to).expect("it is written");
        let log = Log::open(file).expect("it is one").expect("it has a log");
        let rows: Vec<u64> = log
            .blocks(0, &[Part::Index, Part::Argument(0)])
            .flat_map(|block| {
                let block = block.expect("it is whole");
                assert!(
                    block
                        .words(Part::Index)
                        .iter()
                        .zip(block.words(Part::Argument(0)))
                        .all(|(n, x)| n * n == *x)
                );
                block.words(Part::Index).to_vec()
            })
            .collect();
        let kept = n.min(last as u64);
        assert_eq!(rows, (n - kept + 1..=n).collect::<Vec<_>>());
    }
    let every = NonZeroU64::new(3).expect("not zero");
    let of = |chosen: Chosen| (1..10).filter(|n| chosen.has(*n)).collect::<Vec<u64>>();
    assert_eq!((of(Chosen::Every(every)), of(Chosen::First(2))), (vec![1, 4, 7], vec![1, 2]));
}

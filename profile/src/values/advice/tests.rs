//! Each advice is given where it is true, and not where something of it is not.

use super::*;
use crate::recording::Recording;
use crate::values::log::{Chosen, Field, LogWriter, Row};
use crate::values::{Distribution, Watched};

const TICKS_PER_S: f64 = 1e9;
const DOUBLE: Type = Type::Float(Float::Double);
const INT: Type = Type::Integer { bytes: 4, is_signed: true };

fn column(name: &str, kind: Type, values: impl IntoIterator<Item = u64>) -> Column {
    let mut all = Distribution::default();
    let len = len_bytes(&kind);
    values.into_iter().for_each(|value| all.add(&value.to_le_bytes()[..len]));
    Column { name: name.to_owned(), type_name: "t".to_owned(), kind, values: all }
}

/// Calls of a function: caller, argument, result, ticks.
type Call = (u64, u64, u64, u64);

/// A function of one argument, and its log.
fn logged(kind: &Type, is_pure: bool, all: &[Call]) -> (Values, Log) {
    let field = |name: &str| Field { name: name.to_owned(), type_name: "t".to_owned(), kind: kind.clone() };
    let file = tempfile::tempfile().expect("a file");
    let mut log = LogWriter::new(file.try_clone().expect("it is open"), Chosen::All).expect("it is written");
    let n = log.add(Table {
        name: "f".to_owned(),
        asked: 0,
        is_of_glob: false,
        is_place: false,
        addresses: Vec::new(),
        arguments: vec![field("x")],
        result: Some(field("result")),
        has_times: true,
        every: 1,
    });
    for (index, (caller, argument, result, ticks)) in (0..).zip(all) {
        let (arguments, result) = (&[*argument][..], &[*result][..]);
        let (ticks, own_ticks, ended) = (*ticks, *ticks, Ended::Result);
        log.row(n, &Row { thread: 0, index, caller: *caller, ended, ticks, own_ticks, arguments, result });
    }
    let at = |n: u64| (n, Address { module: "m".to_owned(), at: n * 16, name: None });
    let (to, failed) = log.finish(&[at(1), at(2)]).expect("it is written");
    assert!(failed.is_none());
    Recording::default().write_behind(to).expect("it is written");
    let log = Log::open(file).expect("it is one").expect("it has a log");
    let calls = Calls {
        function: "f".to_owned(),
        n_calls: all.len() as u64,
        n_results: all.len() as u64,
        is_pure,
        arguments: vec![column("x", kind.clone(), all.iter().map(|call| call.1))],
        result: Some(column("result", kind.clone(), all.iter().map(|call| call.2))),
        ..Calls::default()
    };
    let stamps = Stamps { offset: 20, per_second: TICKS_PER_S, ..Stamps::default() };
    (Values { calls: vec![calls], stamps: Some(stamps), ..Values::default() }, log)
}

fn of_calls(kind: &Type, is_pure: bool, all: &[Call]) -> Vec<Advice> {
    let (values, log) = logged(kind, is_pure, all);
    advice(&values, Some(&log), 0.1).expect("the log is whole")
}

fn kinds(all: &[Advice]) -> Vec<AdviceKind> {
    all.iter().map(|one| one.kind).collect()
}

/// Ten values by turns, each call taking a microsecond and what it takes to read the clock.
fn by_turns(n: u64) -> Vec<Call> {
    (0..n).map(|k| (1 + k % 2, k % 10, (k % 10) * 3, 1020)).collect()
}

#[test]
fn results_that_come_again_are_remembered() {
    let all = of_calls(&INT, true, &by_turns(100_000));
    let [one] = &all[..] else { panic!("{all:?}") };
    assert_eq!((one.kind, one.executions), (AdviceKind::Memoise, 100_000));
    // 100,000 of a microsecond, less 100,000 looks.
    let gain_s = one.gain_s.expect("it is known");
    assert!((gain_s - (0.1 - 1.5e-4)).abs() < 1e-4, "{gain_s}");
    assert!(
        one.because.contains("a table of 16 entries would have had 100.0 % of 100000 results"),
        "{one:?}"
    );
}

#[test]
fn what_changes_something_is_called_again() {
    assert!(of_calls(&INT, false, &by_turns(100_000)).is_empty());
}

#[test]
fn results_that_differ_are_not_remembered() {
    let mut all = by_turns(100_000);
    all[99_999].2 += 1;
    assert!(of_calls(&INT, true, &all).is_empty());
}

#[test]
fn what_comes_once_or_is_quick_is_not_remembered() {
    let all: Vec<Call> = (0..100_000).map(|k| (1, k, k, 1020)).collect();
    assert!(of_calls(&INT, true, &all).is_empty());
    let all: Vec<Call> = (0..100_000).map(|k| (1, k % 10, k % 10, 22)).collect();
    assert!(of_calls(&INT, true, &all).is_empty());
}

/// More values than the smallest table has room for.
#[test]
fn tables_are_as_large_as_they_need() {
    let all: Vec<Call> = (0..100_000).map(|k| (1, k % 200, k % 200, 1020)).collect();
    let all = of_calls(&INT, true, &all);
    assert!(
        all[0].because.contains("a table of 1024 entries") || all[0].because.contains("of 4096"),
        "{all:?}"
    );
}

/// A call that lost the processor does not get faster.
#[test]
fn outliers_do_not_count() {
    let mut all: Vec<Call> = (0..100_000).map(|k| (1, k % 10, k % 10, 22)).collect();
    all.iter_mut().step_by(10_000).for_each(|call| call.3 = 1_000_000_000);
    assert!(of_calls(&INT, true, &all).is_empty());
}

#[test]
fn places_that_always_say_the_same_are_named() {
    // From place 1 always 7, from place 2 all numbers.
    let all: Vec<Call> =
        (0..20_000).map(|k| if k % 2 == 0 { (1, 7, 21, 520) } else { (2, k, 3 * k, 520) }).collect();
    let impure = of_calls(&INT, false, &all);
    assert_eq!(kinds(&impure), [AdviceKind::Specialise]);
    assert_eq!(impure[0].at.as_ref().map(|at| at.at), Some(16));
    assert_eq!((impure[0].executions, impure[0].gain_s), (10_000, None));
    assert_eq!(impure[0].because, "in all 10000 calls from here, x is always 7");
    let pure = of_calls(&INT, true, &all);
    assert_eq!(kinds(&pure), [AdviceKind::Specialise]);
    let gain_s = pure[0].gain_s.expect("it is known");
    assert!((gain_s - 0.005).abs() < 1e-6, "10,000 of half a microsecond: {gain_s}");
}

#[test]
fn addresses_are_no_constants() {
    let pointer = Type::Pointer(Box::new(INT));
    let all: Vec<Call> = (0..20_000).map(|k| (1, 0x1000, k, 520)).collect();
    assert!(of_calls(&pointer, false, &all).is_empty());
}

#[test]
fn without_a_log_constants_of_all_calls_are_named() {
    let all: Vec<Call> = (0..20_000).map(|k| (1, 7, k, 0)).collect();
    let (values, _) = logged(&INT, false, &all);
    let all = advice(&values, None, 0.1).expect("there is no log");
    assert_eq!(kinds(&all), [AdviceKind::Specialise]);
    assert_eq!(all[0].because, "in all 20000 calls, x is always 7");
}

#[test]
fn doubles_that_are_floats_are_named() {
    let half: Vec<Call> = (0..20_000u32).map(|k| (1, (f64::from(k) / 2.0).to_bits(), 0, 0)).collect();
    let all = of_calls(&DOUBLE, false, &half);
    assert_eq!(kinds(&all), [AdviceKind::Float]);
    assert_eq!(all[0].because, "all 20000 values of x are floats, too");
    let mut tenth = half;
    tenth[19_999].1 = 0.1f64.to_bits();
    assert!(of_calls(&DOUBLE, false, &tenth).is_empty());
}

#[test]
fn small_copies_are_named() {
    let calls = |sizes: &dyn Fn(u64) -> u64, name: &str| {
        let size = column("n", Type::Integer { bytes: 8, is_signed: false }, (0..20_000).map(sizes));
        let calls =
            Calls { function: name.to_owned(), n_calls: 20_000, arguments: vec![size], ..Calls::default() };
        let values = Values { calls: vec![calls], ..Values::default() };
        kinds(&advice(&values, None, 0.1).expect("there is no log"))
    };
    assert_eq!(calls(&|k| k % 15 + 1, "memcpy"), [AdviceKind::Copy]);
    assert!(calls(&|k| k % 15 + 1, "mine").is_empty());
    assert!(calls(&|k| k % 32, "memcpy").is_empty());
}

#[test]
fn divisors_that_are_known_are_named() {
    let places = |divisors: &dyn Fn(u64) -> u64| {
        let place = Place {
            place: "f+0x3".to_owned(),
            watched: Some(Watched::Divisor),
            addresses: Vec::new(),
            n: 20_000,
            columns: vec![column(
                "divisor",
                Type::Integer { bytes: 8, is_signed: false },
                (0..20_000).map(divisors),
            )],
        };
        let values = Values { places: vec![place], ..Values::default() };
        advice(&values, None, 0.1).expect("there is no log").pop().map(|one| (one.kind, one.because))
    };
    let said = |text: &str| Some((AdviceKind::Divisor, text.to_owned()));
    assert_eq!(places(&|_| 10), said("in all 20000 divisions it is 10"));
    let powers = said("in all 20000 divisions it is a power of two, of 3 different ones");
    assert_eq!(places(&|k| 1 << (k % 3)), powers);
    assert_eq!(places(&|k| k % 3 + 1), None);
}

#[test]
fn loops_that_go_round_as_often_are_unrolled() {
    let loops = |trips: &dyn Fn(u64) -> u64| {
        let mut of = Loop { function: "f".to_owned(), n_instances: 20_000, ..Loop::default() };
        (0..20_000).for_each(|k| of.trip_counts.add_word(trips(k), 8));
        let values = Values { loops: vec![of], ..Values::default() };
        advice(&values, None, 0.1).expect("there is no log").pop().map(|one| (one.kind, one.because))
    };
    let said = |text: &str| Some((AdviceKind::Unroll, text.to_owned()));
    assert_eq!(loops(&|_| 3), said("20000 of 20000 instances have 3 iterations"));
    assert_eq!(loops(&|k| if k < 20 { 9 } else { 4 }), said("19980 of 20000 instances have 4 iterations"));
    assert_eq!(loops(&|k| k % 2 + 3), None);
    assert_eq!(loops(&|_| 1), None);
    assert_eq!(loops(&|_| 100), None);
}

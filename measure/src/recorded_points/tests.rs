//! The words that threads of compiled programs append, against what their module says they mean.

use super::*;
use crate::testing::compiled;
use std::collections::BTreeSet;

const TEXT: &str = "
    #include <setjmp.h>
    #include <stdlib.h>
    volatile int sink; jmp_buf there;
    int deep(int n) { return n ? deep(n - 1) + sink : 1; }
    int turns(int n) { for (int i = 0; i < n; i++) { if (i & 1) sink += deep(i); else if (i == 7) break; } return n; }
    int chosen(int n) { switch (n & 7) { case 0: return 3; case 1: n++; case 2: sink += n; break; case 5: sink--;
        case 6: exit(n); default: if (n < 0) longjmp(there, 1); } return n + sink; }
    int main(int n, char **v) { int (*one)(int) = n > 3 ? deep : turns;
        if (setjmp(there)) return 1; return one(n) + chosen(n); }";

fn everything(not_moved: &[Option<NotMoved>]) -> Scope<'_> {
    Scope { not_moved, libc: false, is_recorded: &|_| true, tells: &|_| false }
}

/// Of each entry and each point there is one event, under its number, of the kind that its word says.
#[test]
fn words_say_which_entry_or_point_it_is() {
    for flags in ["-O0 -w", "-O2 -w"] {
        let program = compiled(TEXT, "c", flags);
        let not_moved = Module::not_moved(&program);
        let (plan, code) = plan(&program, 0x1234_5678, 0, everything(&not_moved), None).expect("it is small");
        let (mut entries, mut points) = (BTreeSet::new(), BTreeSet::new());
        for event in &plan.events {
            let head = Head::of(event.word);
            assert_eq!(head.word(), event.word, "{flags}");
            let (numbers, number, is_entry, has_frame) = match head {
                Head::Entry { number, has_frame } => (&mut entries, number, true, has_frame),
                Head::FarPoint(number) => (&mut points, number, false, true),
                Head::Point(number) => (&mut points, number, false, false),
                other => panic!("{flags}: {other:?}"),
            };
            assert!(numbers.insert(number - code.base), "{flags}: {head:?} twice");
            assert_eq!(
                (event.at == EventAt::Entry, event.has_frame),
                (is_entry, has_frame),
                "{flags} {head:?}"
            );
            assert!(code.numbers().contains(&number), "{flags}: {head:?} is not of {:?}", code.numbers());
        }
        // Entries are numbered from 0, points from 1.
        assert!(entries.into_iter().eq(0..u32::try_from(code.entries.len()).expect("few")), "{flags}");
        assert!(points.into_iter().eq(1..=u32::try_from(code.points.len()).expect("few")), "{flags}");
        assert!(code.points.len() > 10 && code.entries.len() > 3, "{flags}: {} points", code.points.len());
    }
}

#[test]
fn another_turn_has_other_numbers() {
    let program = compiled(TEXT, "c", "-O1 -w");
    let not_moved = Module::not_moved(&program);
    let numbers =
        |key, turn| plan(&program, key, turn, everything(&not_moved), None).expect("small").1.numbers();
    for key in [0, 1, 0x9e37_79b9, u32::MAX] {
        let (first, second) = (numbers(key, 0), numbers(key, 1));
        assert!(first.end <= second.start || second.end <= first.start, "{key:#x}: {first:?} {second:?}");
        assert!(first.end < LIMIT && second.end < LIMIT, "{first:?} {second:?}");
    }
}

/// What is not wanted has no event, and what comes to it has no block.
#[test]
fn functions_that_are_left_out_have_no_events() {
    let program = compiled(TEXT, "c", "-O0 -w");
    let not_moved = Module::not_moved(&program);
    let deep = program.func_ids().find(|f| program.function(*f).name() == "deep").expect("it is there");
    let without = Scope { is_recorded: &|f| f != deep, ..everything(&not_moved) };
    let of_deep = |scope| {
        let (plan, _) = plan(&program, 1, 0, scope, None).expect("small");
        plan.events.iter().filter(|event| program.block(event.block).func == deep).count()
    };
    assert_eq!(of_deep(without), 0);
    assert!(of_deep(everything(&not_moved)) > 0);
}

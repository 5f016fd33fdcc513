//! Functions laid out anew: assembly text in, a listing out.

use super::*;
use crate::plan::{Action, Plan, Point, Probe};
use crate::testing::{assembled, function, listing};
use expect_test::{Expect, expect};
use std::collections::BTreeSet;

/// The new code of the function `f` that is `code`, when `plan` is put into it; its callee `g` comes behind
/// it.
fn check(code: &str, plan: impl Fn(&Program, FuncId) -> Plan, want: &Expect) {
    let program = assembled(&[("_start", "call f\nhlt"), ("f", code), ("g", "ret")]);
    let f = function(&program, "f");
    let plan = plan(&program, f);
    let selection = Selection::compute(&program, &plan, false, &BTreeSet::new());
    assert_eq!(selection.not_moved[f.index()], None);
    let lowered = Lowered::compute(&program, &plan, &selection).expect("it can be put there");
    let pieces = pieces(&program, &selection, &lowered);
    let entry = program.function(f).entry;
    let piece = pieces.iter().find(|p| p.range.start == entry).expect("it is moved");
    let note = |from: usize, to: usize| {
        let is_here = |f: &&Fixup| from < f.at as usize && (f.at as usize) < to;
        piece.fixups.iter().find(is_here).map_or(String::new(), |f| format!(" # {:?}", f.to))
    };
    want.assert_eq(&listing(&piece.bytes, Va(0), note));
}

const LOOP: &str = "xor %eax,%eax\n1: add %edi,%eax\ndec %edi\njne 1b\nret";

fn null(_: &Program, _: FuncId) -> Plan {
    Plan::NULL
}

fn blocks(_: &Program, _: FuncId) -> Plan {
    Plan::BLOCKS
}

fn counts(points: Vec<Point>) -> Plan {
    let probe = |point| Probe { point, action: Action::Count };
    Plan { probes: points.into_iter().map(probe).collect(), ..Plan::NULL }
}

#[test]
fn code_without_probes_is_what_it_was() {
    check(
        LOOP,
        null,
        &expect![[r#"
            00: xor %eax,%eax
            02: add %edi,%eax
            04: dec %edi
            06: jne 0x2
            08: ret
        "#]],
    );
}

#[test]
fn calls_lead_where_the_callee_is_moved_to() {
    check(
        "call g\njmp g",
        null,
        &expect![[r#"
            00: call 0x5 # Code(0x401020)
            05: jmp 0xa # Code(0x401020)
        "#]],
    );
}

#[test]
fn what_is_addressed_by_its_distance_stays_where_it_is() {
    check(
        "lea g(%rip),%rax\nmovl $1,g+4(%rip)\nret",
        null,
        &expect![[r#"
            00: lea 0x20,%rax # Address(0x401030)
            07: movl $0x1,0x24 # Address(0x401034)
            11: ret
        "#]],
    );
}

#[test]
fn a_branch_grows_when_what_is_put_in_pushes_its_target_away() {
    let far = format!("test %edi,%edi\nje 1f\n{}1: ret", "mov %eax,0x11223344(%rdi)\n".repeat(20));
    check(
        &far,
        blocks,
        &expect![[r#"
            00: nop
            01: lea 0x20,%r11
            08: jmp 0xd # Slow
            0d: rdfsbase %r11
            12: nopl (%rax)
            16: cmp %gs:0x1e,%r11 # Owner
            1e: jne 0x1
            20: incq %gs:0x28 # Counter(1)
            28: test %edi,%edi
            2a: je 0xb0
            30: incq %gs:0x38 # Counter(2)
            38: mov %eax,0x11223344(%rdi)
            3e: mov %eax,0x11223344(%rdi)
            44: mov %eax,0x11223344(%rdi)
            4a: mov %eax,0x11223344(%rdi)
            50: mov %eax,0x11223344(%rdi)
            56: mov %eax,0x11223344(%rdi)
            5c: mov %eax,0x11223344(%rdi)
            62: mov %eax,0x11223344(%rdi)
            68: mov %eax,0x11223344(%rdi)
            6e: mov %eax,0x11223344(%rdi)
            74: mov %eax,0x11223344(%rdi)
            7a: mov %eax,0x11223344(%rdi)
            80: mov %eax,0x11223344(%rdi)
            86: mov %eax,0x11223344(%rdi)
            8c: mov %eax,0x11223344(%rdi)
            92: mov %eax,0x11223344(%rdi)
            98: mov %eax,0x11223344(%rdi)
            9e: mov %eax,0x11223344(%rdi)
            a4: mov %eax,0x11223344(%rdi)
            aa: mov %eax,0x11223344(%rdi)
            b0: incq %gs:0xb8 # Counter(3)
            b8: ret
        "#]],
    );
}

#[test]
fn counters_stand_where_flags_are_dead() {
    check(
        LOOP,
        blocks,
        &expect![[r#"
            00: nop
            01: lea 0x20,%r11
            08: jmp 0xd # Slow
            0d: rdfsbase %r11
            12: nopl (%rax)
            16: cmp %gs:0x1e,%r11 # Owner
            1e: jne 0x1
            20: incq %gs:0x28 # Counter(1)
            28: xor %eax,%eax
            2a: incq %gs:0x32 # Counter(2)
            32: add %edi,%eax
            34: dec %edi
            36: jne 0x2a
            38: incq %gs:0x40 # Counter(3)
            40: ret
        "#]],
    );
}

#[test]
fn a_branch_that_is_taken_leads_around_the_code_of_its_edge() {
    let taken = |program: &Program, f: FuncId| {
        let mut edges = program.function(f).block_ids().flat_map(|b| program.edge_ids(b));
        let taken = edges.find(|e| program.edge(*e).kind == EdgeKind::Taken);
        counts(vec![Point::Edge(taken.expect("it branches"))])
    };
    check(
        LOOP,
        taken,
        &expect![[r#"
            00: nop
            01: lea 0x20,%r11
            08: jmp 0xd # Slow
            0d: rdfsbase %r11
            12: nopl (%rax)
            16: cmp %gs:0x1e,%r11 # Owner
            1e: jne 0x1
            20: xor %eax,%eax
            22: add %edi,%eax
            24: dec %edi
            26: je 0x32
            28: incq %gs:0x30 # Counter(0)
            30: jmp 0x22
            32: ret
        "#]],
    );
    // `loop` has no opposite: it leads to a jump.
    check(
        "mov %edi,%ecx\n1: dec %eax\nloop 1b\nret",
        taken,
        &expect![[r#"
            00: nop
            01: lea 0x20,%r11
            08: jmp 0xd # Slow
            0d: rdfsbase %r11
            12: nopl (%rax)
            16: cmp %gs:0x1e,%r11 # Owner
            1e: jne 0x1
            20: mov %edi,%ecx
            22: dec %eax
            24: loop 0x28
            26: jmp 0x32
            28: incq %gs:0x30 # Counter(0)
            30: jmp 0x22
            32: ret
        "#]],
    );
}

#[test]
fn what_stands_behind_a_call_runs_when_it_returns() {
    let behind =
        |program: &Program, f: FuncId| counts(vec![Point::After(program.function(f).entry), Point::Exit(f)]);
    check(
        "call g\nmov %eax,%ecx\nret",
        behind,
        &expect![[r#"
            00: nop
            01: lea 0x20,%r11
            08: jmp 0xd # Slow
            0d: rdfsbase %r11
            12: nopl (%rax)
            16: cmp %gs:0x1e,%r11 # Owner
            1e: jne 0x1
            20: call 0x25 # Code(0x401020)
            25: incq %gs:0x2d # Counter(0)
            2d: mov %eax,%ecx
            2f: incq %gs:0x37 # Counter(1)
            37: ret
        "#]],
    );
}

#[test]
fn who_comes_from_outside_passes_the_code_in_front() {
    let entry = |_: &Program, f: FuncId| counts(vec![Point::Entry(f)]);
    check(
        "1: dec %edi\njne 1b\nret",
        entry,
        &expect![[r#"
            00: nopw (%rax,%rax)
            09: lea 0x28,%r11
            10: jmp 0x15 # Slow
            15: rdfsbase %r11
            1a: nopl (%rax)
            1e: cmp %gs:0x26,%r11 # Owner
            26: jne 0x9
            28: incq %gs:0x30 # Counter(0)
            30: dec %edi
            32: jne 0x30
            34: ret
        "#]],
    );
}

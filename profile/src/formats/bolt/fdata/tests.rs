//! fdata against a function whose offsets are known: small enough to be written by hand.

use super::{parse, split, write};
use crate::counts::Edge;
use crate::testing::{assemble, function};
use program::{Program, Va};

/// f: 0 test, 2 je →9, 4 call g, 9 ret. g, local: 0 ret. Then a `g` in another place.
const SOURCE: &str = r#"
    .globl f
    .type f, @function
f:  test %edi, %edi
    je 1f
    call g
1:  ret
    .size f, . - f
    .type g, @function
g:  ret
    .size g, . - g
    .type "od d", @function
"od d":
    jmp f
    .size "od d", . - "od d"
"#;

fn at(program: &Program, name: &str, offset: u64) -> Va {
    program.function(function(program, name)).entry.plus(offset)
}

/// What comes out when `text` is read and written again, sorted; and what was lost on the way.
#[track_caller]
fn check(text: &str, want: &str, lost: &[(&str, &str, u64)]) {
    let program = assemble(SOURCE);
    let (profile, mut losses) = parse(text.as_bytes(), &program).expect("these are records");
    let written = write(&profile, &program);
    losses.extend(written.lost);
    let got: Vec<_> = losses.iter().map(|l| (l.what.as_str(), l.why.as_str(), l.count)).collect();
    assert_eq!(got, lost);
    let sorted = |text: &str| {
        let mut lines: Vec<String> =
            text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&String::from_utf8(written.bytes).unwrap()), sorted(want));
}

#[test]
fn what_fits_comes_out_as_it_went_in() {
    let text = "
        0 [unknown] 0 1 f 0 0 10
        1 f 2 1 f 9 3 7
        1 f 2 1 f 4 0 4
        1 f 4 1 g/1 0 0 4
        0 [unknown] 0 1 od\\ d/1 0 0 1
        1 od\\ d/1 0 1 f 0 0 1";
    check(text, text, &[]);
}

#[test]
fn records_that_say_the_same_add_up() {
    let twice = "1 f 2 1 f 9 1 7\n0 [unknown] 0 1 f 0 0 9\n1 f 2 1 f 9 2 7\n0 [unknown] 0 1 f 0 0 5";
    check(twice, "0 [unknown] 0 1 f 0 0 14\n1 f 2 1 f 9 3 14", &[]);
}

#[test]
fn a_function_that_ran_was_entered() {
    // Sampled branches: nobody saw the entry, but llvm-bolt takes a function without one for cold.
    check("1 f 2 1 f 9 0 7", "0 [unknown] 0 1 f 0 0 7\n1 f 2 1 f 9 0 7", &[]);
}

#[test]
fn locals_are_found_by_every_name_that_profiles_have_for_them() {
    for name in ["g/1", "g"] {
        check(
            &format!("0 [unknown] 0 1 f 0 0 5\n1 f 4 1 {name} 0 0 5"),
            "0 [unknown] 0 1 f 0 0 5\n1 f 4 1 g/1 0 0 5",
            &[],
        );
    }
}

#[test]
fn one_bad_record_is_lost_and_the_others_are_written() {
    check(
        "0 [unknown] 0 1 f 0 0 8\n1 f 2 1 f 9 0 7\n1 f 2 1 f 0 0 5\n1 f 2 1 f 5 0 2\n1 nobody 2 1 nobody 0 0 3\n",
        "0 [unknown] 0 1 f 0 0 8\n1 f 2 1 f 9 0 7",
        &[
            ("f+0x2", "the program has no such edge", 7),
            ("nobody", "the program has no symbol of that name", 3),
        ],
    );
}

#[test]
fn blocks_are_derived_from_what_leads_in_and_out() {
    let program = assemble(SOURCE);
    let text = "0 [unknown] 0 1 f 0 0 9\n1 f 2 1 f 9 0 7\n1 f 4 1 g/1 0 0 3\n";
    let (profile, _) = parse(text.as_bytes(), &program).unwrap();
    let blocks: Vec<_> = [0, 4, 9].map(|o| profile.blocks.get(&at(&program, "f", o)).copied()).into();
    assert_eq!(blocks, [Some(9), Some(3), Some(7)]);
    assert_eq!(profile.edges[&Edge { from: at(&program, "f", 0), to: at(&program, "f", 9) }], 7);
}

#[test]
fn falling_into_a_block_over_padding_counts_once_wherever_the_record_starts() {
    // f: 0 test, 2 mov, 5 nop (3 bytes), 8 test, a jne →8, c ret.
    let program = assemble(
        ".globl f\n.type f,@function\nf: test %edi,%edi\nmov $1,%al\nnop\n.byte 0x0f,0x1f,0x00\n\
         1: test %esi,%esi\njne 1b\nret\n.size f,.-f\n",
    );
    for from in ["2", "5"] {
        let text = format!("0 [unknown] 0 1 f 0 0 9\n1 f {from} 1 f 8 0 9\n1 f a 1 f 8 0 4\n");
        let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
        let edge = Edge { from: at(&program, "f", 0), to: at(&program, "f", 8) };
        assert_eq!((profile.edges.get(&edge), lost), (Some(&9), vec![]), "{from}");
    }
}

#[test]
fn samples_are_read_and_written_in_their_own_form() {
    check("no_lbr cycles\n1 f 0 5\n1 f 5 2\n1 f 7 1\n", "no_lbr cycles\n1 f 0 5\n1 f 4 3\n", &[]);
}

#[test]
fn lines_that_are_no_records_are_refused_with_their_number() {
    let program = assemble(SOURCE);
    for (text, want) in [
        ("0 [unknown] 0 1 f 0 0 9\n1 f 2\n", "line 2 is no fdata record: a branch has eight fields"),
        ("1 f xx 1 f 0 0 9", "line 1 is no fdata record: \"xx\" is no hexadecimal offset"),
        ("9 f 2 1 f 0 0 9", "line 1 is no fdata record: \"9\" is no kind of place"),
        ("no_lbr\n1 f 2 1 f 0 0 9", "line 2 is no fdata record: a sample has four fields"),
        ("1 f 2 1 f 0 0 -1", "line 1 is no fdata record: \"-1\" is no count"),
    ] {
        assert_eq!(parse(text.as_bytes(), &program).unwrap_err().to_string(), want);
    }
}

#[test]
fn escapes_keep_blanks_in_names() {
    assert_eq!(split(r"1 a\ b\\c 0"), ["1", r"a b\c", "0"]);
    assert_eq!(split(r"1  x\"), ["1", "x"]);
}

#[test]
fn names_with_control_characters_are_left_out_and_told() {
    let source = SOURCE.replace("od d", "o\td d");
    let program = assemble(&source);
    let odd =
        program.functions.iter().find(|f| f.names.iter().any(|n| n.contains('\t'))).expect("as assembled");
    let profile = crate::counts::Profile {
        entries: [(odd.entry, 3), (at(&program, "f", 0), 5)].into(),
        calls: [((odd.entry, at(&program, "f", 0)), 3)].into(),
        ..Default::default()
    };
    let written = write(&profile, &program);
    assert_eq!(String::from_utf8(written.bytes).unwrap(), "0 [unknown] 0 1 f 0 0 5\n");
    let lost: Vec<_> = written.lost.iter().map(|l| (l.what.as_str(), l.count)).collect();
    assert_eq!(lost, [("o?d d/1", 6)]);
}

/// llvm-bolt's instrumentation writes offset 0 for all jumps from one part of a function into another.
#[test]
fn a_jump_into_a_cold_part_goes_where_it_leads() {
    let program = assemble(
        r#"
        .globl f
        .type f, @function
    f:  test %edi, %edi
        je 1f
        js f.cold
        ret
        .size f, . - f
        .section .text.unlikely, "ax"
        .type f.cold, @function
    f.cold:
        xor %eax, %eax
        ret
    1:  mov $1, %eax
        ret
        .size f.cold, . - f.cold
    "#,
    );
    let f = at(&program, "f", 0);
    let cold = program.image.symbols.iter().find(|s| &*s.name == "f.cold").expect("it is there").at;
    let js = program.insns(program.block_from(f).expect("a block")).last().expect("je").end();
    let record = |from: Va| format!("1 f {:x} 1 f.cold/1 0 0 7\n", from.since(f));
    let je = program.block(program.block_from(f).expect("a block")).last_insn();
    for (from, block, to) in [(je, f, cold.plus(3)), (js, js, cold)] {
        let (profile, lost) = parse(record(from).as_bytes(), &program).expect("a record");
        assert_eq!(lost, []);
        assert_eq!(profile.edges.into_iter().collect::<Vec<_>>(), [(Edge { from: block, to }, 7)]);
    }
    let (_, lost) = parse(b"1 f 3 1 f.cold/1 0 0 7\n", &program).expect("a record");
    assert_eq!(lost[0].what, "f+0x3");
}

/// What llvm-bolt's fdata has of names that the program has not is not "unknown".
#[test]
fn entries_of_names_that_are_not_there_are_told_by_name() {
    let (_, lost) = parse(b"0 [unknown] 0 1 nobody 0 0 7\n", &assemble(SOURCE)).expect("a record");
    let got: Vec<_> = lost.iter().map(|l| (l.what.as_str(), l.why.as_str(), l.count)).collect();
    assert_eq!(got, [("nobody", "the program has no symbol of that name", 7)]);
}

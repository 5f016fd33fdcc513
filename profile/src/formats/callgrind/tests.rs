//! callgrind files: compression, objects, moved addresses; and what follows for edges.

use super::{parse, write};
use crate::counts::Edge;
use crate::testing::{assemble, function};
use program::{Program, Va};

/// f: 0 test, 2 je →10, 4 call g, 9 nop, 10 ret. g: 0 rep stosb, 2 ret.
const SOURCE: &str = "
    .globl f
    .type f, @function
f:  test %edi, %edi
    je 1f
    call g
    nop
1:  ret
    .size f, . - f
    .type g, @function
g:  rep stosb
    ret
    .size g, . - g
";

fn at(program: &Program, name: &str, offset: u64) -> Va {
    program.function(function(program, name)).entry.plus(offset)
}

/// A file as callgrind writes it, with the program's addresses moved by `bias`.
fn file(program: &Program, bias: u64) -> String {
    let f = at(program, "f", 0).0.wrapping_add(bias);
    let g = at(program, "g", 0).0.wrapping_add(bias);
    format!(
        "# callgrind format\nversion: 1\npositions: instr line\nevents: Dr Ir\n\nob=(1) /x/output\nfl=(1) a.c\nfn=(1) f\n\
         {f:#x} 3 0 10\n+2 * 1 10\njcnd=7/10 +8 5\n* *\n+2 +1 0 3\ncfn=(2) g\ncalls=3 {g:#x} 9\n* * 0 33\n+5 * 0 3\n+1 * 0 10\n\
         fn=(2)\n{g:#x} 9 60 60\njump=57 * 9\n* 9\n+2 9 0 3\n\
         ob=(2) /lib/libc.so.6\nfn=(3) main\n0x5000 1 0 9\ncob=(1)\ncfn=(1)\ncalls=8 {f:#x} 3\n0x5000 1 0 99\n",
    )
}

#[track_caller]
fn check(text: &str, program: &Program) {
    let (profile, lost) = parse(text.as_bytes(), program).expect("a file of this program");
    assert_eq!(lost, []);
    let f = |o| at(program, "f", o);
    let g = at(program, "g", 0);
    let blocks: Vec<(Va, u64)> = profile.blocks.iter().map(|(a, n)| (*a, *n)).collect();
    assert_eq!(blocks, [(f(0), 10), (f(4), 3), (f(10), 10), (g, 3)]);
    let edges: Vec<(Edge, u64)> = profile.edges.iter().map(|(e, n)| (*e, *n)).collect();
    let edge = |from, to| Edge { from, to };
    assert_eq!(edges, [(edge(f(0), f(4)), 3), (edge(f(0), f(10)), 7), (edge(f(4), f(10)), 3)]);
    assert_eq!(profile.calls, [((f(4), g), 3)].into());
    assert_eq!(profile.entries, [(f(0), 10), (g, 3)].into());
}

#[test]
fn counts_of_instructions_become_counts_of_blocks_and_edges() {
    let program = assemble(SOURCE);
    check(&file(&program, 0), &program);
}

#[test]
fn addresses_of_a_process_are_moved_back() {
    let program = assemble(SOURCE);
    check(&file(&program, 0x10_8000), &program);
}

#[test]
fn what_was_written_is_read_back() {
    let program = assemble(SOURCE);
    let (profile, _) = parse(file(&program, 0).as_bytes(), &program).unwrap();
    let written = write(&profile, &program);
    assert_eq!((written.count, written.n_functions), (26, 2));
    let (back, lost) = parse(&written.bytes, &program).unwrap();
    assert_eq!((back, lost), (profile, vec![]));
}

#[test]
fn what_a_stub_costs_is_taken_from_its_call_only_where_callgrind_added_it() {
    let text =
        ".globl f\n.type f,@function\nf: test %edi,%edi\njne 1f\nret\n1: call puts@PLT\nret\n.size f,.-f\n";
    let program = assemble(text);
    let call = at(&program, "f", 5);
    let file = |creator: &str| {
        let f = at(&program, "f", 0);
        format!(
            "# callgrind format\ncreator: {creator}\npositions: instr line\nevents: Ir\n\nob=/x/output\nfn=f\n{f} 0 9\n\
             {} 0 9\n{call} 0 12\ncob=libc\ncfn=puts\ncalls=6 0x1 0\n{call} 0 0\n{} 0 6\n",
            f.plus(2),
            f.plus(10),
        )
    };
    for (creator, want) in [("callgrind-3.19.0", 6), ("engraft", 12)] {
        let (profile, _) = parse(file(creator).as_bytes(), &program).unwrap();
        assert_eq!(profile.blocks[&call], want, "{creator}");
    }
}

#[test]
fn other_programs_and_files_without_addresses_are_refused() {
    let program = assemble(SOURCE);
    let other = file(&program, 0x10_8123);
    for (text, want) in [
        (other.as_str(), "the callgrind file holds nothing of output: it is of /x/output"),
        (
            "positions: line\nevents: Ir\n",
            "line 1 is no callgrind record: it has no addresses: run callgrind with --dump-instr=yes",
        ),
        (
            "positions: instr\nevents: Dr\n",
            "line 2 is no callgrind record: the event Ir is not among those counted",
        ),
        (
            "positions: instr\nevents: Ir\nob=(7)\n",
            "line 3 is no callgrind record: the object \"(7)\" was not named before",
        ),
        ("positions: instr\nevents: Ir\n0xzz 1\n", "line 3 is no callgrind record: \"0xzz\" is no position"),
        (
            "positions: instr\nevents: Ir\nwhat\n",
            "line 3 is no callgrind record: \"what\" is neither numbers nor a key",
        ),
    ] {
        let got = parse(text.as_bytes(), &program).unwrap_err().to_string();
        assert_eq!(got.replace(&program.image.name, "output"), want);
    }
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let program = assemble(SOURCE);
    let whole = file(&program, 0).replace("\n\nob=(1)", "\nsummary: 201\n\nob=(1)") + "\ntotals: 201\n";
    check(&whole, &program);
    let cut = whole.rsplit_once("\nob=(2)").expect("it names two objects").0;
    let why = parse(cut.as_bytes(), &program).expect_err("half of it is missing").to_string();
    assert!(why.contains("it was cut off"), "{why}");
}

/// Under lazy binding the first call of an import goes through the dynamic linker, of which callgrind tells
/// beside the import's.
#[test]
fn binding_an_import_is_no_call_of_it() {
    let program = assemble(
        ".globl f\n.type f,@function\nf: call puts@PLT\nret\n.size f,.-f\n.section .note.GNU-stack\n",
    );
    let f = at(&program, "f", 0).0;
    let head = format!(
        "# callgrind format\npositions: instr line\nevents: Ir\n\nob=(1) /x/output\nfn=(1) f\n{f:#x} 0 10\n"
    );
    let puts = "cob=(2) /lib/libc.so.6\ncfn=(2) puts\ncalls=10 0x5000 0\n* 0 900\n";
    let binds = "cob=(3) /lib64/ld-linux-x86-64.so.2\ncfn=(3) _dl_runtime_resolve_xsavec\ncalls=1 0x9000 0\n* 0 700\n";
    let again = "cob=(3)\ncfn=(3)\ncalls=1 0x9000 0\n* 0 700\n";
    let tail = "+5 0 10\n";
    let read = |text: String| parse(text.as_bytes(), &program).expect("a file of this program");
    let now = read(format!("{head}{puts}{tail}"));
    assert_eq!(now.0.calls.values().collect::<Vec<_>>(), [&10]);
    assert_eq!(read(format!("{head}{binds}{puts}{tail}")), now);
    assert_eq!(read(format!("{head}{puts}{binds}{again}{tail}")), now);
}

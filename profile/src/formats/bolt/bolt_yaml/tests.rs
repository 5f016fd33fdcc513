//! BOLT YAML against a function whose offsets are known: small enough to be written by hand.

use super::{is_one, parse};
use crate::counts::{Edge, Exactness};
use crate::testing::{assemble, function};
use program::{Program, Va};

/// f: 0 test, 2 je →e, 4 lock inc, 7 call g, c call *rax, e ret. g, local: 0 test, 2 jne →0, 4 ret.
const SOURCE: &str = "
    .globl f
    .type f, @function
f:  test %edi, %edi
    je 1f
    lock incl (%rdi)
    .byte 0xe8
    .long g - . - 4
    call *%rax
1:  ret
    .size f, . - f
    .type g, @function
g:  test %edi, %edi
    jne g
    ret
    .size g, . - g
";

/// The head of a file, and a function record of `f`.
const HEAD: &str = "---\nheader:\n  profile-version: 1\n  binary-name: 'output'\n  profile-flags: [ lbr ]\n  \
    dfs-order: false\nfunctions:\n";

/// `f` with `succ` behind its first block and `calls` behind its second.
fn file(succ: &str, calls: &str) -> String {
    format!(
        "{HEAD}  - name: 'f(*2)'\n    fid: 1\n    hash: 0x1\n    exec: 9\n    nblocks: 3\n    blocks:\n\
      \x20     - {{ bid: 0, insns: 2, hash: 0xABC0000, exec: 9, succ: [ {succ} ] }}\n\
      \x20     - {{ bid: 1, insns: 4, hash: 0xABC0004, calls: [ {calls} ] }}\n\
      \x20     - {{ bid: 2, insns: 1, hash: 0xABC000E }}\n\
      \x20 - name: 'g/1'\n    fid: 2\n    exec: 10\n    nblocks: 2\n    blocks:\n\
      \x20     - {{ bid: 0, insns: 2, hash: 0xABC0000, succ: [ {{ bid: 0, cnt: 6 }}, {{ bid: 1, cnt: 4 }} ] }}\n\
      \x20     - {{ bid: 1, insns: 1, hash: 0xABC0004 }}\n...\n"
    )
}

fn at(program: &Program, name: &str, offset: u64) -> Va {
    program.function(function(program, name)).entry.plus(offset)
}

#[test]
fn edges_calls_and_entries_are_those_of_the_file() {
    let program = assemble(SOURCE);
    let (f, g) = (|o| at(&program, "f", o), |o| at(&program, "g", o));
    let text = file(
        "{ bid: 2, cnt: 5 }, { bid: 1, cnt: 4 }",
        "{ off: 0x3, fid: 2, cnt: 4 }, { off: 0x8, fid: 2, cnt: 3 }, { off: 0x8, fid: 0, cnt: 1 }",
    );
    assert!(is_one(&text));
    let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
    assert_eq!(lost, []);
    let edge = |from: Va, to: Va| Edge { from, to };
    let want = [(edge(f(0), f(4)), 4), (edge(f(0), f(14)), 5), (edge(g(0), g(0)), 6), (edge(g(0), g(4)), 4)];
    // The call's fall-through is derived where we see another block behind it, which here we do not.
    assert_eq!(profile.edges.into_iter().filter(|(e, _)| e.from != f(4)).collect::<Vec<_>>(), want);
    // What llvm-bolt counts as 10 entries of g is 4 and 6 times round the loop.
    assert_eq!(profile.calls, [((f(7), g(0)), 4), ((f(12), g(0)), 3)].into());
    assert_eq!(profile.calls_out, [(f(12), 1)].into());
    assert_eq!(profile.entries, [(f(0), 9), (g(0), 7)].into());
    assert_eq!((profile.blocks[&f(0)], profile.blocks[&g(0)]), (9, 13));
    assert_eq!(profile.exactness, Exactness::Exact);
}

#[test]
fn what_does_not_fit_is_lost_and_the_rest_is_kept() {
    let program = assemble(SOURCE);
    #[track_caller]
    fn check(program: &Program, text: &str, want: &[(&str, &str, u64)]) {
        let (_, lost) = parse(text.as_bytes(), program).unwrap();
        let got: Vec<_> = lost.iter().map(|l| (l.what.as_str(), l.why.as_str(), l.count)).collect();
        assert_eq!(got, want);
    }
    let good = "{ bid: 1, cnt: 4 }";
    check(&program, &file(good, "{ off: 0x4, fid: 2, cnt: 4 }"), &[("f", "no call at that offset", 4)]);
    check(
        &program,
        &file(good, "{ off: 0x3, fid: 1, cnt: 4 }"),
        &[("f", "the call is to another function", 4)],
    );
    check(&program, &file("{ bid: 0, cnt: 3 }", ""), &[("f", "the program has no such edge", 3)]);
    check(&program, &file("{ bid: 7, cnt: 3 }", ""), &[("f", "the program has no such block", 3)]);
    let longer = file(good, "").replace("bid: 2, insns: 1", "bid: 2, insns: 3");
    check(&program, &longer, &[("f", "the program has no such block", 0)]);
    let elsewhere = file(good, "").replace("ABC0004, calls", "ABC0005, calls");
    check(&program, &elsewhere, &[("f", "the program has no such block", 4)]);
    let other = file(good, "").replace("'g/1'", "'h/1'");
    check(&program, &other, &[("h/1", "the program has no symbol of that name", 10)]);
}

#[test]
fn samples_count_blocks() {
    let program = assemble(SOURCE);
    let text = file("{ bid: 1, cnt: 0 }", "").replace("[ lbr ]", "[ sample ]");
    let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
    assert_eq!(lost, []);
    assert_eq!(profile.blocks[&at(&program, "f", 0)], 9);
    assert_eq!(profile.exactness, Exactness::Sampled);
}

#[test]
fn what_is_no_such_file_is_refused_with_its_line() {
    let program = assemble(SOURCE);
    for (text, want) in [
        (format!("{HEAD}  - name: f\n    fid: x\n"), "line 9 is no bolt-yaml record: "),
        (format!("{HEAD}  - [ 1, \n"), "line "),
        (file("", "").replace("version: 1", "version: 2"), "line 1 is no bolt-yaml record: version 2"),
        (format!("{HEAD}  - &a [ *a, *a ]\n"), "line 8 is no bolt-yaml record: "),
    ] {
        let got = parse(text.as_bytes(), &program).unwrap_err().to_string();
        assert!(got.starts_with(want) && !got.contains('\n'), "{got}");
    }
}

#[test]
fn another_build_is_refused() {
    let program = crate::testing::compile(SOURCE, "s", &["-nostdlib", "-shared", "-Wl,--build-id=0xabcd"]);
    let with = |id: &str| {
        file("{ bid: 1, cnt: 4 }", "")
            .replace("\n  profile-flags", &format!("\n  binary-build-id: {id}\n  profile-flags"))
    };
    assert!(parse(with("abcd").as_bytes(), &program).is_ok());
    let got = parse(with("abce").as_bytes(), &program).unwrap_err().to_string();
    assert!(got.starts_with("the profile is of output (build-id abce), the program is "), "{got}");
}

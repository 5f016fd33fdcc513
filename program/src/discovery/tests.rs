//! What the analysis finds in code whose truth the assembler and the symbol table know. The files are
//! stripped before we see them.

use crate::addr::Va;
use crate::image::{Image, SymbolKind};
use crate::model::{BlockEnd, CallKind, Callee, Program};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Builds `source` with gcc, in the language of `name`'s ending; the program, stripped, and the symbols it
/// had.
fn build(name: &str, source: &str, flags: &[&str]) -> (Program, Image) {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let (path, whole, stripped) =
        (dir.path().join(name), dir.path().join("whole"), dir.path().join("stripped"));
    std::fs::write(&path, source).expect("the folder can be written");
    let run =
        |command: &mut Command| assert!(command.status().expect("the tool runs").success(), "{command:?}");
    run(Command::new("gcc").arg(&path).arg("-o").arg(&whole).args(flags));
    run(Command::new("strip").arg("-s").arg("-o").arg(&stripped).arg(&whole));
    let load = |path: &Path| Image::load(path).expect("gcc makes what we read");
    let program = Program::analyze(load(&stripped));
    let violations: Vec<String> = program.verify().iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    (program, load(&whole))
}

/// Whether what `expect` says holds at `at`.
fn holds(p: &Program, labels: &BTreeMap<String, Va>, at: Va, expect: &str) -> bool {
    let function = |name: &str| p.function_at(labels[name]);
    let block = p.block_from(at).map(|b| p.block(b));
    if let Some(name) = expect.strip_prefix("no target of ") {
        return !holds(p, labels, at, &format!("target of {name}"));
    }
    if let Some(name) = expect.strip_prefix("target of ") {
        return p.tables.iter().any(|t| Some(t.func) == function(name) && t.targets.contains(&at));
    }
    if let Some(name) = expect.strip_prefix("of ") {
        return block.is_some_and(|b| Some(b.func) == function(name));
    }
    if let Some(end) = expect.strip_prefix("ends ") {
        return block.is_some_and(|b| format!("{:?}", b.end) == end);
    }
    if let Some(name) = expect.strip_prefix("falls into ") {
        let last = block.map(|b| b.last_insn());
        let call = p.calls.iter().find(|c| Some(c.at) == last && c.kind == CallKind::FallThrough);
        let complete = block.is_some_and(|b| p.function(b.func).complete);
        return complete && call.is_some_and(|c| function(name).map(Callee::Function) == Some(c.callee));
    }
    if let Some(name) = expect.strip_prefix("goes to ") {
        let last = block.map(|b| b.last_insn());
        let call = p.calls.iter().find(|c| Some(c.at) == last && c.kind == CallKind::TailCall);
        return call.is_some_and(|c| function(name).map(Callee::Function) == Some(c.callee));
    }
    match expect {
        "function" => p.function_from(at).is_some(),
        "not a function" => p.function_from(at).is_none(),
        other => panic!("no such expectation: {other}"),
    }
}

#[track_caller]
fn check_fixture(source: &str, flags: &[&str]) {
    let (program, whole) = build("a.s", source, flags);
    let labels: BTreeMap<String, Va> = whole.symbols.iter().map(|s| (s.name.to_string(), s.at)).collect();
    let mut n = 0;
    for line in source.lines() {
        let (Some((code, expect)), false) = (line.split_once("# expect: "), line.starts_with('#')) else {
            continue;
        };
        let label = code.split(':').next().unwrap_or_default().trim();
        let at = labels[label];
        assert!(holds(&program, &labels, at, expect.trim()), "{flags:?}: {at} {label}: expect {expect}");
        n += 1;
    }
    assert!(n > 20, "only {n} expectations were read");
}

#[test]
fn compilers_jumps_are_understood_without_symbols() {
    check_fixture(include_str!("../../fixtures/src/jumps.s"), &["-pie"]);
}

/// A library with a function that has the name of an import that never returns, and one whose code does not
/// show that it is final.
const STUBS: &str = r#"
    .text
    .macro function name
    .p2align 4
    .globl \name
    .type \name, @function
\name: .cfi_startproc
    .endm
    .macro end name
    .cfi_endproc
    .size \name, .-\name
    .endm
    function err
    movl $1, %eax
    ret
    end err
    function longjmp
    movq (%rdi), %rdx
    jmp *%rdx
    end longjmp
    function reports
    subq $8, %rsp
    call err@PLT
    addq $8, %rsp
    ret
    end reports
    function leaves
    subq $8, %rsp
    call longjmp@PLT
    ret
    end leaves
    .section .note.GNU-stack, "", @progbits
"#;

/// Through its slot, as through its stub: a library's own `err` may come back, and libc's does not.
#[test]
fn a_call_through_a_slot_goes_by_whose_function_it_is() {
    let source = "int err(int, const char *, ...); int after;
        int calls(int n) { err(n, \"\"); after = n; return 7; } int main(void) { return calls(1); }";
    let own = "int err(int n, const char *s, ...) { return n; }";
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let library = dir.path().join("libown.so");
    let text = dir.path().join("own.c");
    std::fs::write(&text, own).expect("the folder can be written");
    let made = Command::new("gcc").args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&text).status();
    assert!(made.expect("gcc runs").success());
    for (library, want) in [(Some(library.to_str().expect("a name")), true), (None, false)] {
        let flags = ["-O1", "-w", "-fno-plt", "-fno-builtin"];
        let flags: Vec<&str> = flags.into_iter().chain(library).collect();
        let (program, whole) = build("calls.c", source, &flags);
        let at = whole.symbols.iter().find(|s| &*s.name == "calls").expect("gcc named it").at;
        let id = program.function_at(at).expect("it is found");
        assert_eq!(program.function(id).returns, want, "{library:?}");
    }
}

#[test]
fn a_stub_of_a_function_of_the_same_image_does_what_that_one_does() {
    let (program, _) = build("a.s", STUBS, &["-shared", "-nostdlib"]);
    let named = |name: &str| {
        let at = program.functions.iter().position(|f| f.names.iter().any(|n| &**n == name));
        (0..program.functions.len()).map(crate::ids::FuncId::at).nth(at.expect(name)).expect(name)
    };
    let returns = |name: &str| program.function(named(name)).returns;
    assert_eq!(["err", "err@plt", "reports"].map(returns), [true; 3]);
    assert_eq!(["longjmp", "longjmp@plt", "leaves"].map(returns), [false; 3]);
    for name in ["err", "longjmp"] {
        let stub = program.function(named(&format!("{name}@plt")));
        let call = program.calls_in(stub.block_ids().next().expect("a stub has a block")).last();
        assert_eq!(call.map(|c| c.callee), Some(Callee::Function(named(name))));
    }
}

const ZEROS: &str = r#"
    .text
    .globl _start
_start: call second
    ret
    .zero 9
second: pushq %rbx
    pushq %r12
    popq %r12
    popq %rbx
    ret
    .zero 5
    .balign 16, 0
third: pushq %rbx
    popq %rbx
    ret
    .zero 3
    .balign 16, 0
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn zeros_that_nothing_runs_into_are_padding() {
    let (program, whole) = build("a.s", ZEROS, &["-static", "-nostdlib", "-no-pie"]);
    for name in ["_start", "second", "third"] {
        let at = whole.symbols.iter().find(|s| &*s.name == name).expect(name).at;
        assert!(program.functions.iter().any(|f| f.entry == at), "{name} at {at} is no function");
    }
    assert!(program.gaps.is_empty(), "{:?}", program.gaps);
}

const TWICE: &str = r#"
    .text
    .globl f
    .type f, @function
f:  subq $8, %rsp
    call _setjmp@PLT
    .globl after_stub, after_slot, after_own, after_once
after_stub: nop
    call *vfork@GOTPCREL(%rip)
after_slot: nop
    call __sigsetjmp
after_own: nop
    call puts@PLT
after_once: nop
    addq $8, %rsp
    ret
    .size f, .-f
    .type __sigsetjmp, @function
__sigsetjmp: xorl %eax, %eax
    ret
    .size __sigsetjmp, .-__sigsetjmp
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn a_block_ends_at_a_call_that_may_come_back_twice() {
    let (_, whole) = build("a.s", TWICE, &["-shared", "-nostdlib"]);
    let program = Program::analyze(whole);
    let starts = |name: &str| {
        let label = program.image.symbols.iter().find(|s| &*s.name == name).expect(name);
        program.blocks.iter().any(|b| b.start == label.at)
    };
    assert_eq!(
        ["after_stub", "after_slot", "after_own", "after_once"].map(starts),
        [true, true, true, false]
    );
}

/// A jump past the prefix `lock`, as the C library has it while there is one thread; and a cold part whose
/// switch leads to nothing but the hot one.
const PAST: &str = r#"
    .text
    .globl adds, picks
    .type adds, @function
    .type picks, @function
adds: .cfi_startproc
    cmpl $0, %fs:0x18
    je 1f
    lock
1:  addq %rsi, (%rdi)
    ret
    .cfi_endproc
    .size adds, .-adds
picks: .cfi_startproc
    subq $24, %rsp
    .cfi_def_cfa_offset 32
    testl %edi, %edi
    js picks.cold
2:  movl $1, %eax
    addq $24, %rsp
    ret
3:  movl $2, %eax
    addq $24, %rsp
    ret
    .cfi_endproc
    .size picks, .-picks
    .section .text.unlikely, "ax", @progbits
    .type picks.cold, @function
picks.cold: .cfi_startproc
    .cfi_def_cfa_offset 32
    andl $0x7fffffff, %edi
    cmpl $3, %edi
    ja 2b
    leaq table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    addq %rdx, %rax
    jmp *%rax
    .cfi_endproc
    .size picks.cold, .-picks.cold
    .section .rodata
    .p2align 2
table: .long 2b-table, 3b-table, 2b-table, 3b-table
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn jumps_past_a_prefix_and_switches_out_of_cold_parts_are_understood() {
    let (stripped, whole) = build("a.s", PAST, &["-shared", "-nostdlib"]);
    let program = Program::analyze(whole);
    for (program, name) in
        [(&program, "adds"), (&program, "picks"), (&stripped, "adds"), (&stripped, "picks")]
    {
        let at = program.image.symbols.iter().find(|s| &*s.name == name).expect(name).at;
        let id = program.function_from(at).expect(name);
        assert!(program.function(id).complete, "{name}: {:?}", program.gaps);
        let n_edges: usize = program.function(id).block_ids().map(|b| program.successors(b).len()).sum();
        assert_eq!(
            (program.function(id).n_blocks(), n_edges),
            if name == "adds" { (2, 2) } else { (5, 6) },
            "{name}"
        );
    }
    assert!(program.gaps.is_empty(), "{:?}", program.gaps);
    assert!(program.verify().is_empty(), "{:?}", program.verify());
}

/// A cold part that ends in a call by a table of functions, in which stands the one that it is a part of.
const TABLE: &str = r#"
    .text
    .globl calls
    .type calls, @function
calls: .cfi_startproc
2:  subq $24, %rsp
    .cfi_def_cfa_offset 32
    testl %edi, %edi
    js calls.cold
    addq $24, %rsp
    ret
    .cfi_endproc
    .size calls, .-calls
    .section .text.unlikely, "ax", @progbits
    .type calls.cold, @function
calls.cold: .cfi_startproc
    .cfi_def_cfa_offset 32
    addq $24, %rsp
    .cfi_def_cfa_offset 8
    andl $1, %edi
    leaq functions(%rip), %rdx
    jmp *(%rdx,%rdi,8)
    .cfi_endproc
    .size calls.cold, .-calls.cold
    .section .data.rel.ro, "aw"
    .p2align 3
functions: .quad 2b, 2b
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn a_table_of_functions_is_no_switch_of_a_cold_part() {
    let (stripped, whole) = build("a.s", TABLE, &["-shared", "-nostdlib"]);
    for program in [&Program::analyze(whole), &stripped] {
        let at = program.image.symbols.iter().find(|s| &*s.name == "calls").expect("it has a symbol").at;
        let id = program.function_from(at).expect("it is a function");
        let tables = program.edges_of(id).iter().filter(|e| e.kind == crate::EdgeKind::Table);
        assert_eq!((program.function(id).n_blocks(), tables.count()), (3, 0));
        assert!(program.gaps.is_empty() && program.verify().is_empty(), "{:?}", program.gaps);
    }
}

/// A label behind a call that only data know of, as interpreters have them whose code holds addresses of
/// labels.
const LABEL: &str = r#"
    .text
    .globl f, label
    .type f, @function
f:  .cfi_startproc
    subq $8, %rsp
    call g@PLT
label: addq $8, %rsp
    ret
    .cfi_endproc
    .size f, .-f
    .section .data.rel.ro, "aw"
    .hidden label
    .quad label
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn a_block_starts_where_a_relocation_leads() {
    let (program, whole) = build("a.s", LABEL, &["-shared", "-nostdlib"]);
    let label = whole.symbols.iter().find(|s| &*s.name == "label").expect("it has a symbol").at;
    assert!(program.block_from(label).is_some(), "{label} is in the middle of a block");
}

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int depth;
__attribute__((noinline)) static int leaf(int x) { return x * 3 + depth; }
__attribute__((noinline, noreturn)) static void fatal(const char *why) { fprintf(stderr, "%s\n", why); exit(3); }
__attribute__((noinline)) static int checked(int x) { if (x > 1000) fatal("large"); return leaf(x + 1); }
__attribute__((noinline)) static int only_by_pointer(int x) { depth++; return checked(x) ^ depth; }
__attribute__((noinline)) static int also_by_pointer(const char *s) { return puts(s) + (int)strlen(s); }
static int (*const table[])(int) = { only_by_pointer, leaf, checked };
__attribute__((noinline)) static int choose(int k, int x) {
  switch (k) {
    case 0: return leaf(x); case 1: return x / 7; case 2: puts("two"); return 2; case 3: return checked(x) - 1;
    case 4: depth = x; return 0; case 5: return x << 3; case 6: return choose(x & 7, x - 1); default: return -1; }
}
__attribute__((noinline)) static int last_call(int k, int x) { if (k & 1) puts("odd"); return choose(k >> 1, x); }
int unused_but_there(int a, int b) { while (a > b) { a -= b; depth += a; } return a; }
int main(int c, char **v) {
  int (*volatile p)(const char *) = also_by_pointer;
  int sum = p(v[0]);
  for (int i = 1; i < c; i++) sum += table[i % 3](i) + last_call(i, sum);
  return sum + unused_but_there(sum, c + 1);
}
"#;

/// Functions of the program's own that the symbol table names and the analysis does not find, and those it
/// makes up.
fn differences(flags: &[&str]) -> (Vec<Va>, Vec<Va>) {
    let (program, whole) = build("a.c", SOURCE, flags);
    let functions = || whole.symbols.iter().filter(|s| s.kind == SymbolKind::Function && whole.is_code(s.at));
    let part = |name: &str| name.contains(".cold") || name.contains(".part.");
    let missed: Vec<Va> = functions()
        .filter(|s| !part(&s.name) && program.function_from(s.at).is_none())
        .map(|s| s.at)
        .collect();
    let known = |at: Va| functions().any(|s| s.at == at);
    let made_up = program.functions.iter().filter(|f| f.import.is_none() && !known(f.entry)).map(|f| f.entry);
    (missed, made_up.collect())
}

#[test]
fn functions_are_found_without_symbols_and_unwind_tables() {
    for opt in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for kind in ["-pie", "-no-pie"] {
            let flags = [
                opt,
                kind,
                if kind == "-pie" { "-fPIE" } else { "-fno-pie" },
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ];
            assert_eq!(differences(&flags), (vec![], vec![]), "{flags:?}");
        }
    }
}

/// Four switches of 8, 10 (one label left out), 6 and 9 entries.
const SWITCHES: &str = r#"
#include <stdlib.h>
int constants(int x) { switch (x) { case 0: return 5; case 1: return 17; case 2: return 23; case 3: return 4; case 4: return 99;
  case 5: return 12; case 6: return 77; case 7: return 3; default: return -1; } }
int nested(int x, int y) { int r = 0;
  switch (x) { case 10: r = y; break; case 11: r = y * 3; break; case 12: r = y - 7; case 13: r += y / 3; break;
    case 14: r = y ^ 55; break; case 15: switch (y) { case 0: return 1; case 1: return 3; case 2: return 8; case 3: return 2;
    case 4: return 6; case 5: return 9; } return 3; case 16: r = y << 2; break; case 18: r = ~y; break; case 19: r = y % 11; break; }
  return r; }
unsigned bytes(unsigned char x) { switch (x) { case 'a': return 1; case 'b': return 2; case 'c': return 3; case 'd': return 4;
  case 'e': return 5; case 'f': return 6; case 'g': return 77; case 'h': return 8; case 'i': return 9; } return 0; }
int main(int n, char **v) { int x = atoi(v[1]); return constants(x) + nested(x, n) + bytes(x); }
"#;

#[test]
fn switches_are_read_without_optimisation() {
    for kind in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
        for protection in ["-fcf-protection=none", "-fcf-protection=branch"] {
            let (program, _) = build("a.c", SWITCHES, &["-O0", protection, kind[0], kind[1]]);
            // Entries from the first label to the last, and places; what is left out leads behind the switch.
            let mut found: Vec<(usize, usize)> = program
                .tables
                .iter()
                .map(|t| (t.targets.len(), t.targets.iter().collect::<std::collections::BTreeSet<_>>().len()))
                .collect();
            found.sort_unstable();
            assert_eq!(found, [(6, 6), (8, 8), (9, 9), (10, 10)], "{kind:?} {protection}");
            assert!(program.gaps.iter().all(|g| g.reason != crate::model::GapReason::UnresolvedJump));
        }
    }
}

#[test]
fn functions_are_found_by_unwind_tables() {
    for opt in ["-O0", "-O2", "-O3"] {
        assert_eq!(differences(&[opt, "-pie", "-fPIE", "-fcf-protection=full"]), (vec![], vec![]), "{opt}");
    }
}

#[test]
fn forty_thousand_final_calls_in_a_row_are_no_matter() {
    // Each ends a block of one call; decoding each from the function's start would take 800 million
    // instructions.
    let n = 40_000;
    let source = format!(
        ".globl main\n.type main,@function\nmain: .cfi_startproc\n.rept {n}\ncall abort@PLT\n.endr\nret\n\
         .cfi_endproc\n.size main,.-main\n.section .note.GNU-stack\n"
    );
    let (program, whole) = build("calls.s", &source, &[]);
    let main = whole.symbols.iter().find(|s| &*s.name == "main").expect("it is in the text");
    let func = program.function_from(main.at).expect("it has an unwind range");
    let blocks = program.blocks_of(func);
    assert_eq!(blocks.len(), n + 1);
    assert!(blocks[..n].iter().all(|b| b.end == BlockEnd::NoReturn && b.n_insns == 1));
}

#[test]
fn no_operations_that_nothing_of_their_function_enters_are_in_no_block() {
    // The table of one function leads into another's padding, before code and before bytes that are none.
    let source = r#"
.globl _start
_start: call choose; call padded; call torn; call part; hlt
choose: cmp $3, %edi; ja 1f; mov %edi, %edi; jmp *table(,%rdi,8)
1: ret
2: mov $1, %eax; ret
padded: test %edi, %edi; je 3f; ret
inner: nopl (%rax)
3: ret
torn: mov $2, %eax
end: nop
.byte 6, 6, 6, 6
part: .cfi_startproc
.cfi_def_cfa_offset 32
nop
4: mov $3, %eax; dec %edi; jne 4b; ret
.cfi_endproc
.section .rodata
.balign 8
table: .quad 1b, 2b, inner, end
.section .note.GNU-stack
"#;
    let (program, whole) = build("padding.s", source, &["-nostdlib", "-static", "-no-pie"]);
    let at = |name: &str| whole.symbols.iter().find(|s| &*s.name == name).expect("it is in the text").at;
    assert_eq!(program.block_from(at("inner")), None);
    assert_eq!(program.block_from(at("end")), None);
    let torn = program.block_from(at("torn")).expect("it is called");
    assert_eq!(program.block(torn).end, BlockEnd::Broken);
    // A range that does not start as functions do, but that is called: it starts with its no-operation.
    assert!(program.function_from(at("part")).is_some());
    assert!(program.block_from(at("part")).is_some());
}

#[test]
fn a_functions_own_cold_part_does_not_make_a_further_entry() {
    // The rare calls of the loop stand in `loops.cold`, which jumps back into the middle of it.
    let source = r#"
extern int rare(int) __attribute__((cold));
extern int step(int);
int loops(int n, const int *a) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(a[i] < 0, 0)) { sum += rare(a[i]); if (rare(sum)) sum ^= rare(i); }
        else sum += step(a[i]);
        sum ^= i;
    }
    return sum;
}
int rare(int x) { return x + 1; }
int step(int x) { return x - 1; }
int main(int argc, char **argv) { return loops(argc, (const int *)argv); }
"#;
    for split in ["-freorder-blocks-and-partition", "-fno-reorder-blocks-and-partition"] {
        let (program, whole) = build("a.c", source, &["-O2", "-fno-inline", "-fno-ipa-icf", split]);
        let of = |name: &str| whole.symbols.iter().find(|s| &*s.name == name);
        let at = of("loops").expect("it is a function").at;
        assert_eq!(of("loops.cold").is_some(), split.starts_with("-fre"), "{split}");
        let func = program.function_from(at).expect("it is a function");
        let loops = crate::analyses::loops::Loops::compute(&program, func);
        let headers: Vec<usize> = loops.ids().map(|l| loops.entries(l).count()).collect();
        assert_eq!(headers, [1], "{split}");
        assert!(program.function(func).entries.is_empty(), "{split}");
    }
}

/// An interpreter that keeps the address of its table in its frame, and reads it from there into whatever
/// register is free.
const SPILLED_TABLE: &str = r#"
    .text
    .globl interpret
    .type interpret, @function
interpret: .cfi_startproc
    pushq %rbx
    subq $32, %rsp
    leaq table(%rip), %r10
    movq %rdi, %rbx
    movq %r10, 16(%rsp)
    movzbl (%rbx), %edx
    jmp *(%r10,%rdx,8)
zero: addq $1, %rbx
    movq 16(%rsp), %rsi
    movzbl (%rbx), %edx
    movq (%rsi,%rdx,8), %rdx
    jmp *%rdx
one: addq $2, %rbx
    movq 16(%rsp), %rdi
    movzbl (%rbx), %edx
    jmp *(%rdi,%rdx,8)
two: addq $32, %rsp
    popq %rbx
    ret
    .cfi_endproc
    .size interpret, .-interpret
    .section .data.rel.ro, "aw"
    .balign 8
table: .quad zero, one, two
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn a_table_whose_address_is_kept_in_the_frame_is_found() {
    let (program, whole) = build("a.s", SPILLED_TABLE, &["-shared", "-nostdlib"]);
    let at = |name: &str| whole.symbols.iter().find(|s| &*s.name == name).expect(name).at;
    assert_eq!(program.calls.iter().filter(|call| call.kind == CallKind::TailCall).count(), 0);
    assert!(program.gaps.is_empty(), "{:?}", program.gaps);
    let labels = ["zero", "one", "two"].map(at);
    for from in ["interpret", "zero", "one"] {
        let block = program.block_from(at(from)).expect(from);
        let mut to: Vec<Va> =
            program.successors(block).iter().map(|edge| program.block(edge.to).start).collect();
        to.sort_unstable();
        assert_eq!(to, labels, "{from}");
    }
}

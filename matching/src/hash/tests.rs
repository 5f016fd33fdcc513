//! Blocks that must have equal hashes at a level, and blocks that must not.

use super::*;
use crate::testing::{assemble, function};

fn global(name: &str, body: &str) -> String {
    format!(".globl {name}\n.type {name}, @function\n{name}:\n{body}\n.size {name}, .-{name}\n")
}

/// Hashes of the only block of each piece of code, each in a function of its own.
fn hashes(pieces: &[&str]) -> Vec<BlockHash> {
    let text: String =
        pieces.iter().enumerate().map(|(i, p)| global(&format!("f{i}"), &format!("{p}\nret"))).collect();
    let program = assemble(&text);
    let keys = Keys::compute(&program);
    (0..pieces.len())
        .map(|i| {
            let mut found = Vec::new();
            read_function(&program, &keys, function(&program, &format!("f{i}")), |_, h, _| found.push(h));
            assert_eq!(found.len(), 1, "{}", pieces[i]);
            found[0]
        })
        .collect()
}

/// The finest level at which two pieces of code are equal.
#[track_caller]
fn check(a: &str, b: &str, want: &str) {
    let found = hashes(&[a, b]);
    let (x, y) = (found[0], found[1]);
    let levels = [
        ("0", x.zero == y.zero),
        ("fine", x.fine == y.fine),
        ("1", x.one == y.one),
        ("3", x.three == y.three),
        ("4", x.four == y.four),
        ("5", x.five == y.five),
    ];
    let got = levels.iter().find(|l| l.1).map_or("none", |l| l.0);
    assert_eq!(got, want, "{a:?} and {b:?}");
}

#[test]
fn figure_4_merges_registers_but_keeps_dependencies() {
    let one = "mov (%rbp), %eax; mov %edx, %ecx; add %eax, %ecx";
    let two = "mov (%rbp), %ecx; mov %edx, %eax; add %ecx, %eax";
    let three = "mov (%rbp), %eax; mov %edx, %ecx; add %ecx, %eax";
    check(one, two, "fine");
    check(one, three, "3");
}

#[test]
fn figure_1_filters_address_offsets_and_registers() {
    let a2 = "mov 0x28(%rbp), %rax; addl $4, 0x18(%rax)";
    let a3 = "mov 0x30(%rbp), %rcx; addl $4, 0x18(%rcx)";
    check(a2, a2, "0");
    check(a2, a3, "1");
}

#[test]
fn each_level_leaves_out_what_it_says() {
    check("mov 8(%rsp), %eax", "mov 16(%rsp), %eax", "fine");
    check("mov 8(%rdi), %eax", "mov 16(%rdi), %eax", "1");
    check("add $1, %ebx", "add $2, %ebx", "3");
    check("add %ebx, %eax", "add %r12d, %eax", "3");
    check("lea 8(%rsp), %rax", "lea 8(%rbx), %rax", "4");
    check("add %ebx, %eax", "add %ecx, %eax", "4");
    check("movaps %xmm1, %xmm2", "movaps %xmm3, %xmm1", "fine");
    check("sete %al", "setne %al", "5");
    check("push %rax", "push $1", "5");
    check("push %rax", "pop %rax", "none");
    check("add $1, %eax", "add $0x12345, %eax", "3");
}

#[test]
fn forms_of_one_encoding_and_padding_are_indirect_changes() {
    check("add $1, %ecx", "add $1, %ecx; nopw 8(%rax)", "0");
    check("mov %rbx, %rax", ".byte 0x48, 0x8b, 0xc3", "0");
}

#[test]
fn callees_strings_and_constants_are_known_by_name_and_content() {
    let text = [
        ".section .rodata\n.quad 7\ns: .asciz \"hello\"\nt: .asciz \"hullo\"\n.p2align 3\nd: .double 2.5\ne: .double 3.5\n.text\n",
        &global("f", "lea s(%rip), %rdi; call puts@PLT; mulsd d(%rip), %xmm0; ret"),
        &global("g", "lea t(%rip), %rdi; call puts@PLT; mulsd d(%rip), %xmm0; ret"),
        &global("h", "lea s(%rip), %rdi; call gets@PLT; mulsd d(%rip), %xmm0; ret"),
        &global("i", "lea s(%rip), %rdi; call puts@PLT; mulsd e(%rip), %xmm0; ret"),
        &global("same", "lea s(%rip), %rdi; call puts@PLT; mulsd d(%rip), %xmm0; ret"),
    ];
    let program = assemble(&text.concat());
    let keys = Keys::compute(&program);
    let hashes = Hashes::compute(&program, &keys);
    let at = |name: &str| hashes.functions[function(&program, name).index()].at(Level::L1);
    assert_eq!(at("f"), at("same"));
    for other in ["g", "i"] {
        assert_ne!(at("f"), at(other), "{other}");
    }
}

#[test]
fn joined_keys_make_calls_to_matched_functions_equal() {
    let old = assemble(&[global("a", "nop; ret"), global("f", "call .La\nret\n.La = a")].concat());
    let new = assemble(&[global("f", "call .Lb\nret\n.Lb = b"), global("b", "nop; ret")].concat());
    let (mut old_keys, mut new_keys) = (Keys::compute(&old), Keys::compute(&new));
    let hash =
        |p: &Program, k: &Keys| Hashes::compute(p, k).functions[function(p, "f").index()].at(Level::L1);
    assert_ne!(hash(&old, &old_keys), hash(&new, &new_keys));
    let pair = FunctionMatch {
        old: function(&old, "a"),
        new: function(&new, "b"),
        method: crate::FunctionMethod::Order,
        confidence: 1.0,
    };
    Keys::join(&mut old_keys, &mut new_keys, &[pair], &[]);
    assert_eq!(hash(&old, &old_keys), hash(&new, &new_keys));
}

//! The paper's figures as x86-64, and each pass alone. Blocks are named by labels in the code.

use super::*;
use crate::testing::{assemble, function};
use program::{Image, Va};

const MATCHING: [Pass; 8] = [
    Pass::SplitBlocks,
    Pass::MergedBlocks,
    Pass::DispatchTables,
    Pass::BlockRefinement,
    Pass::BlockAlignment,
    Pass::BlockHashes,
    Pass::BlockPropagation,
    Pass::ControlFlow,
];

/// The paper's own passes.
fn bmat() -> Options {
    Options::all().without(Pass::BlockRefinement).without(Pass::BlockAlignment)
}

fn only(passes: &[Pass]) -> Options {
    MATCHING.iter().filter(|p| !passes.contains(p)).fold(Options::all(), |o, &p| o.without(p))
}

fn program(code: &str) -> Program {
    assemble(&format!(
        ".data\nsym1: .quad 0\nsym2: .zero 64\n.text\n.globl f\n.type f, @function\nf:\n{code}\n.size f, .-f\n\
         .globl other\n.type other, @function\nother: xor %eax, %eax; ret\n.size other, .-other\n"
    ))
}

/// The label at an address; the entry is called by its own label, too.
fn label(image: &Image, at: Va) -> String {
    let found =
        image.symbols.iter().find(|s| s.at == at && !["f", "other"].contains(&&*s.name) && !s.dynamic);
    found.map_or_else(|| at.to_string(), |s| s.name.to_string())
}

fn matched(old: &str, new: &str, options: &Options) -> Vec<(String, String, BlockMatch)> {
    let (old, new) = (program(old), program(new));
    let (mut ok, mut nk) = (Keys::compute(&old), Keys::compute(&new));
    let data: Vec<_> = (0..old.data.len().min(new.data.len()))
        .map(|i| crate::DataMatch { old: i, new: i, method: crate::DataMethod::Name })
        .collect();
    Keys::join(&mut ok, &mut nk, &[], &data);
    let ctx = Context { old: &ok, new: &nk, options };
    let found = compute(&old, function(&old, "f"), &new, function(&new, "f"), &ctx);
    found
        .into_iter()
        .map(|m| (label(&old.image, old.block(m.old).start), label(&new.image, new.block(m.new).start), m))
        .collect()
}

/// Expectations: `new<-old`, then `partial` or a method.
#[track_caller]
fn check(old: &str, new: &str, options: &Options, want: &[&str]) {
    let got: Vec<String> = matched(old, new, options)
        .into_iter()
        .map(|(a, b, m)| format!("{b}<-{a}{}", if m.partial { " partial" } else { "" }))
        .collect();
    assert_eq!(got, want);
}

const FIGURE_1: [&str; 2] = [
    "a1: mov 0x10(%rbp), %rcx; mov 0x20(%rbp), %rdx; cmpl $0, (%rcx); jne a4
     a2: mov 0x28(%rbp), %rax; addl $4, 0x18(%rax); test %ebx, %ebx; je a4
     a3: mov 0x30(%rbp), %rcx; addl $4, 0x18(%rcx); test %ebx, %ebx; je a4
     a4: ret",
    "b1: mov 8(%rbp), %rcx; cmpl $0, (%rcx); jne b4
     b2: mov 0x20(%rbp), %rdx; addl $4, 0x18(%rdx); test %ebx, %ebx; je b4
     b3: mov 0x28(%rbp), %rax; addl $4, 0x18(%rax); test %ebx, %ebx; je b4
     b4: ret",
];

#[test]
fn figure_1_is_not_misled_by_a_block_that_looks_the_same() {
    let want = ["b1<-a1", "b2<-a2", "b3<-a3", "b4<-a4"];
    check(FIGURE_1[0], FIGURE_1[1], &bmat(), &want);
    check(FIGURE_1[0], FIGURE_1[1], &Options::all(), &want);
}

const FIGURE_3: [&str; 2] = [
    "a1: mov 8(%rdi), %eax; test %eax, %eax; je a3
     a2: add $4, %ecx; jmp a4
     a3: sub $9, %edx
     a4: ret",
    "b1: mov 8(%rdi), %eax; test %eax, %eax; je b3
     b2_1: test %ecx, %ecx; je b2
     b2_2: push $0; call other; pop %rdx
     b2: add $4, %ecx; jmp b4
     b3: sub $9, %edx
     b4: ret",
];

#[test]
fn figure_3_gives_new_blocks_the_old_ones_place_and_marks_what_may_be_gone_past() {
    let want = ["b1<-a1", "b2_1<-a2", "b2_2<-a2 partial", "b2<-a2", "b3<-a3", "b4<-a4"];
    check(FIGURE_3[0], FIGURE_3[1], &bmat(), &want);
    check(FIGURE_3[0], FIGURE_3[1], &Options::all(), &want);
    let found = matched(FIGURE_3[0], FIGURE_3[1], &bmat());
    let by = |m: &BlockMatch| m.method == BlockMethod::ControlFlow;
    let control: Vec<&str> = found.iter().filter(|f| by(&f.2)).map(|f| &*f.1).collect();
    assert_eq!(control, ["b2_1", "b2_2"]);
}

const FIGURE_6: [&str; 2] = [
    "a1: mov sym1(%rip), %rax; test %rax, %rax; je a4
     a2: testb $0x10, sym2+0x3e(%rip); je a4
     a3: andl $0, sym2(%rip); andl $0, sym2+8(%rip); jmp other
     a4: ret",
    "b1: mov sym1(%rip), %rax; test %rax, %rax; je b4
     b2: testb $0x10, sym2+0x3e(%rip); je b4
     b3: andl $0, sym2(%rip); andl $0, sym2+8(%rip)
     b4: ret",
];

#[test]
fn figure_6_finds_the_block_that_lost_its_jump_by_control_flow() {
    let want = ["b1<-a1", "b2<-a2", "b3<-a3", "b4<-a4"];
    check(FIGURE_6[0], FIGURE_6[1], &bmat(), &want);
    check(FIGURE_6[0], FIGURE_6[1], &Options::all(), &want);
    let found = matched(FIGURE_6[0], FIGURE_6[1], &bmat());
    let methods: Vec<_> = found.iter().map(|f| f.2.method).collect();
    let one = BlockMethod::Unique(Level::L1);
    assert_eq!(methods, [one, one, BlockMethod::ControlFlow, one]);
}

#[test]
fn a_branch_turned_round_keeps_both_its_sides() {
    check(
        "a1: cmp $5, %edi; je a3
         a2: mov %esi, %eax; ret
         a3: mov %esi, %eax; inc %eax; ret",
        "b1: cmp $5, %edi; jne b2
         b3: mov %esi, %eax; inc %eax; ret
         b2: mov %esi, %eax; ret",
        &Options::all(),
        &["b1<-a1", "b3<-a3", "b2<-a2"],
    );
}

#[test]
fn a_function_is_itself_even_where_blocks_repeat() {
    let same = "a1: test %edi, %edi; je a3
                a2: inc %eax; jmp a1
                a3: test %edi, %edi; je a5
                a4: inc %eax; jmp a3
                a5: ret";
    check(same, same, &Options::all(), &["a1<-a1", "a2<-a2", "a3<-a3", "a4<-a4", "a5<-a5"]);
}

#[test]
fn each_pass_alone_finds_something_and_none_finds_nothing() {
    for [old, new] in [FIGURE_1, FIGURE_3, FIGURE_6] {
        assert!(matched(old, new, &only(&[])).is_empty());
        for pass in [Pass::BlockAlignment, Pass::BlockHashes, Pass::ControlFlow] {
            assert!(!matched(old, new, &only(&[pass])).is_empty(), "{pass}");
        }
    }
    // A block of an instruction or two is not known by its nearest neighbours alone; a longer one is, and
    // what it leads to.
    let [old, new] = FIGURE_3;
    assert!(matched(old, new, &only(&[Pass::BlockRefinement])).is_empty());
    let longer = |code: &str| code.replace("sub $9, %edx", "sub $9, %edx; xor %edx, %ecx; mov %ecx, (%rdi)");
    check(
        &longer(old),
        &longer(new),
        &only(&[Pass::BlockRefinement]),
        &["b1<-a1", "b2<-a2", "b3<-a3", "b4<-a4"],
    );
}

#[test]
fn propagation_tells_equal_blocks_apart_by_the_edges_to_them() {
    let old = "a1: mov 8(%rdi), %eax; test %eax, %eax; je a3
               a2: ret
               a3: ret";
    let new = "b1: mov 8(%rdi), %eax; test %eax, %eax; je b4
               b2: cmp $7, %eax; je b4
               b3: mov %edi, %edi; ret
               b4: ret";
    check(old, new, &only(&[Pass::BlockHashes]), &["b1<-a1"]);
    check(old, new, &only(&[Pass::BlockHashes, Pass::BlockPropagation]), &["b1<-a1", "b3<-a2", "b4<-a3"]);
}

#[test]
fn crossing_is_what_the_paper_draws() {
    let body = |n: usize| program(&"nop; test %eax, %eax; je f\n".repeat(n));
    let p = body(6);
    let keys = Keys::compute(&p);
    let b = Body::read(&p, &keys, function(&p, "f"));
    let mut pair = Pair::new(&b, &b);
    pair.set(2, 3, BlockMethod::Aligned, 1.0);
    let crossing = pair::Crossing::new(&pair);
    // Brute force: every pair against the one there is.
    for old in 0..6 {
        for new in 0..6 {
            let want = (old < 2 && new > 3) || (old > 2 && new < 3);
            assert_eq!(crossing.would_cross(old, new), want, "{old} {new}");
        }
    }
}

#[test]
fn similarity_is_the_share_of_instructions_in_equal_blocks() {
    let (old, new) = (program(FIGURE_3[0]), program(FIGURE_3[1]));
    let (ok, nk) = (Keys::compute(&old), Keys::compute(&new));
    let (oh, nh) = (Hashes::compute(&old, &ok), Hashes::compute(&new, &nk));
    let (f, g) = (function(&old, "f"), function(&new, "f"));
    assert_eq!(similarity(&old, f, &oh, &old, f, &oh), 1.0);
    let changed = similarity(&old, f, &oh, &new, g, &nh);
    // All seven old instructions are in the new one's twelve.
    assert!((changed - 14.0 / 19.0).abs() < 0.01, "{changed}");
}

#[test]
fn code_put_on_one_of_several_ways_to_a_block_carries_a_part_only() {
    // `b4` is reached past the new `n`, too: `n` is on one of its two ways.
    let old = "a1: mov 8(%rdi), %eax; test %eax, %eax; je a3
               a2: add $4, %ecx; cmp $7, %ecx; jne a4
               a3: sub $9, %edx
               a4: mov %edx, 16(%rdi); ret";
    let new = "b1: mov 8(%rdi), %eax; test %eax, %eax; je b3
               b2: add $4, %ecx; cmp $7, %ecx; jne b4
               n: push $0; call other; pop %rsi
               b3: sub $9, %edx
               b4: mov %edx, 16(%rdi); ret";
    let want = ["b1<-a1", "b2<-a2", "n<-a3 partial", "b3<-a3", "b4<-a4"];
    check(old, new, &bmat(), &want);
    check(old, new, &Options::all(), &want);
}

#[test]
fn an_old_test_behind_a_new_one_carries_a_part_only() {
    // A loop turned round: its head, a load and a test, is in front of the loop and at its end now; between
    // them and the old test there is a new one, and what that one takes out does not come by the old test any
    // more.
    let old = "a1: push %rbx; mov %rsi, %rbx; lea sym2(%rip), %r9; mov %r9, (%rdx)
               a2: mov 36(%rdi), %eax; cmp $127, %eax; jbe a4
               a3: push $5; call other; pop %rsi; add %rax, %rbx; jmp a5
               a4: mov %al, (%rbx); add $1, %rbx; mov %rbx, 24(%r8)
               a5: add $56, %rdi; cmp %rdi, %r10; jae a2
               a6: mov sym1(%rip), %rax; pop %rbx; ret";
    let new = "b1: push %rbx; mov %rsi, %rbx; lea sym2(%rip), %r9; mov %r9, (%rdx); mov 36(%rdi), %eax; cmp $7, %eax; ja b2
               n1: lea 1(%rbx), %rsi; mov %al, 3(%rbx); mov %rsi, %rbx; test %eax, %eax; je b5
               n2: mov (%rdi), %rdx; shr $16, %rdx; rol $8, %dx; mov %dx, 4(%r11)
               b5: cmp %rdi, %r10; je b6
               b7: mov 92(%rdi), %eax; add $56, %rdi; cmp $7, %eax; jbe n1
               b2: cmp $127, %eax; ja b3
               b4: mov %al, (%rbx); add $1, %rbx; mov %rbx, 24(%r8); jmp b5
               b3: push $5; call other; pop %rsi; add %rax, %rbx; jmp b5
               b6: mov sym1(%rip), %rax; pop %rbx; ret";
    let part = |new: &str| {
        let found = matched(old, new, &Options::all());
        found
            .iter()
            .find(|m| m.0 == "a2" && m.1 == "b2" && m.2.method != BlockMethod::ControlFlow)
            .map(|m| m.2.partial)
    };
    assert_eq!(part(new), Some(true));
    // Without a way past it, it has all of the flow.
    assert_eq!(
        part(
            &new.replace("jbe n1", "jbe b2").replace("je b5", "je b2").replace("4(%r11)", "4(%r11); jmp b2")
        ),
        Some(false)
    );
}

/// An interpreter of ten handlers, each named by a letter; `order` is how they stand in the code, `ops` in
/// the table.
fn interpreter(order: &str, ops: &str) -> String {
    let mut code = String::from(
        "go: lea t(%rip), %rdx; movzbl (%rsi), %eax; cmp $9, %al; ja end; movslq (%rdx,%rax,4), %rax; add %rdx, %rax; jmp *%rax\n",
    );
    for (i, h) in order.chars().enumerate() {
        // Pairs of them are alike to the last byte.
        let work = (u32::from(h) - u32::from('A')) / 2;
        let store = 8 * (i + 1);
        code += &format!(
            "{h}: movzbl 1(%rsi), %eax; add ${}, %ecx; mov %ecx, (%rdi,%rax,8); add $2, %rsi; cmp $77, %ecx; jne {h}2\n\
             {h}1: movq ${work}, 0x{store:x}(%rdi)\n{h}2: xor ${}, %r{}d; jmp go\n",
            work + 3,
            work + 40,
            8 + i % 2,
        );
    }
    code += "end: ret\n.section .rodata\nt:";
    for h in ops.chars() {
        code += &format!(" .long {h}-t\n");
    }
    code + ".text"
}

#[test]
fn handlers_go_by_their_place_in_the_table() {
    // Moved about, and two alike ones side by side: their numbers tell them apart.
    let (old, new) = (interpreter("ABCDEFGHIJ", "ABCDEFGHIJ"), interpreter("JHFDBACEGI", "ABCDEFGHIJ"));
    let found = matched(&old, &new, &Options::all());
    let right: Vec<_> = found.iter().filter(|m| m.0.len() == 1 && m.0 == m.1).collect();
    assert_eq!(right.len(), 10, "{found:?}");
    // Dealt anew they say nothing: nothing is taken for its number.
    let dealt = interpreter("ABCDEFGHIJ", "JIGCAFHBDE");
    let found = matched(&old, &dealt, &only(&[Pass::DispatchTables]));
    assert!(found.iter().all(|m| m.0 == m.1), "{found:?}");
}

#[test]
fn what_was_merged_goes_to_the_block_that_does_it_now() {
    let old = "a1: test %edi, %edi; je a3
               a2: add $4, %ecx; cmp $7, %ecx; jne a5
               a4: push $3; call other; pop %rdx; jmp a6
               a3: sub $9, %edx; cmp $8, %edx; jne a5
               a7: push $3; call other; pop %rdx; jmp a6
               a5: ret
               a6: mov %edx, 16(%rsi); ret";
    let new = "b1: test %edi, %edi; je b3
               b2: add $4, %ecx; cmp $7, %ecx; jne b5
               b4: push $3; call other; pop %rdx; jmp b6
               b3: sub $9, %edx; cmp $8, %edx; je b4
               b5: ret
               b6: mov %edx, 16(%rsi); ret";
    let found = matched(old, new, &Options::all());
    let into: Vec<&str> = found.iter().filter(|m| m.1 == "b4").map(|m| &*m.0).collect();
    assert_eq!(into.len(), 2, "{found:?}");
    assert!(into.contains(&"a4") && into.contains(&"a7"));
    let found = matched(old, new, &Options::all().without(Pass::MergedBlocks));
    assert_eq!(found.iter().filter(|m| m.1 == "b4").count(), 1);
}

#[test]
fn a_test_in_front_of_the_old_one_leaves_its_branch_to_the_second_block() {
    let old = "a1: mov 8(%rdi), %eax; test %eax, %eax; je a4
               a2: mov (%rsi,%rcx,4), %edx; add $3, %rcx; cmp %r8d, %edx; jae a2
               a3: mov %edx, 16(%rdi)
               a4: ret";
    let new = "b1: mov 8(%rdi), %eax; test %eax, %eax; je b4
               b2: mov (%rsi,%rcx,4), %edx; add $3, %rcx; test %edx, %edx; je b2
               t: cmp %r9d, %edx; jae b2
               b3: mov %edx, 16(%rdi)
               b4: ret";
    let want = ["b1<-a1", "b2<-a2", "t<-a2", "b3<-a3", "b4<-a4"];
    check(old, new, &Options::all(), &want);
    let found = matched(old, new, &Options::all().without(Pass::SplitBlocks));
    assert!(!found.iter().any(|m| m.0 == "a2" && m.1 == "t" && !m.2.partial), "{found:?}");
    // More than a test may be what the new test saves, and other conditions are other branches.
    for changed in ["t: add $1, %r10; cmp %r9d, %edx; jae b2", "t: cmp %r9d, %edx; jg b2"] {
        let found = matched(old, &new.replace("t: cmp %r9d, %edx; jae b2", changed), &Options::all());
        assert!(!found.iter().any(|m| m.0 == "a2" && m.1 == "t" && !m.2.partial), "{found:?}");
    }
}

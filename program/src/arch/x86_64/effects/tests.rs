//! Effects against a list from the manuals, and the short way against the long one on real code.

use super::*;
use crate::addr::Va;
use crate::arch::Decoder;

fn names(set: RegSet) -> String {
    set.iter().map(|r| r.to_string()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(bytes: &[u8], text: &str, reads: &str, kills: &str) {
    let insn = Decoder::new(bytes, Va(0)).next().expect("bytes are given");
    let effects = insn.effects();
    assert_eq!(
        (insn.to_string().as_str(), names(effects.reads).as_str(), names(effects.kills).as_str()),
        (text, reads, kills)
    );
    assert!(effects.writes.holds(effects.kills), "{text} kills what it does not write");
}

const FLAGS: &str = "cf pf af zf sf of";

#[test]
fn narrow_results_keep_the_rest_and_32_bits_clear_it() {
    check(&[0xb0, 1], "mov $0x1,%al", "", "");
    check(&[0x66, 0xb8, 1, 0], "mov $0x1,%ax", "", "");
    check(&[0xb8, 1, 0, 0, 0], "mov $0x1,%eax", "", "rax");
    check(&[0x0f, 0x95, 0xc4], "setne %ah", "zf", "");
    check(&[0x0f, 0xb6, 0xc4], "movzbl %ah,%eax", "rax", "");
    check(&[0x0f, 0x44, 0xc3], "cmove %ebx,%eax", "rax rbx zf", "");
    check(&[0x48, 0x0f, 0x44, 0xc3], "cmove %rbx,%rax", "rbx zf", "");
}

#[test]
fn a_register_cleared_by_itself_is_not_read() {
    check(&[0x31, 0xc0], "xor %eax,%eax", "", &format!("rax {FLAGS}"));
    check(&[0x66, 0x0f, 0xef, 0xc0], "pxor %xmm0,%xmm0", "", "xmm0");
    check(&[0x66, 0x0f, 0x76, 0xc0], "pcmpeqd %xmm0,%xmm0", "", "xmm0");
}

#[test]
fn legacy_vector_code_keeps_the_upper_part_and_vex_clears_it() {
    check(&[0x0f, 0x28, 0xc1], "movaps %xmm1,%xmm0", "xmm1", "xmm0");
    check(&[0xc5, 0xf8, 0x28, 0xc1], "vmovaps %xmm1,%xmm0", "xmm1", "xmm0 ymm0_upper");
    check(&[0xc5, 0xfc, 0x28, 0xc1], "vmovaps %ymm1,%ymm0", "xmm1 ymm1_upper", "xmm0 ymm0_upper");
    check(&[0xf2, 0x0f, 0x2a, 0xc0], "cvtsi2sd %eax,%xmm0", "rax xmm0", "");
    check(&[0xf2, 0x0f, 0x10, 0xc1], "movsd %xmm1,%xmm0", "xmm0 xmm1", "");
    let upper: Vec<String> = (0..16).map(|n| format!("ymm{n}_upper")).collect();
    check(&[0xc5, 0xf8, 0x77], "vzeroupper", "", &upper.join(" "));
}

#[test]
fn a_count_of_zero_leaves_flags_alone() {
    check(&[0xd3, 0xe0], "shl %cl,%eax", "rax rcx", "");
    check(&[0xc1, 0xe0, 0x20], "shl $0x20,%eax", "rax", "");
    check(&[0xc1, 0xe0, 0x03], "shl $0x3,%eax", "rax", "cf pf zf sf");
    check(&[0xf3, 0xa6], "repe cmpsb (%rdi),(%rsi)", "rcx rsi rdi df", "");
}

#[test]
fn what_the_manual_leaves_undefined_is_not_killed() {
    check(&[0x0f, 0xaf, 0xc3], "imul %ebx,%eax", "rax rbx", "cf of");
    check(&[0x0f, 0xbc, 0xc3], "bsf %ebx,%eax", "rbx", "zf");
    check(&[0x85, 0xc0], "test %eax,%eax", "rax", FLAGS);
    check(&[0xff, 0xc0], "inc %eax", "rax", "pf af zf sf of");
}

#[test]
fn registers_without_operands_are_known() {
    check(&[0x0f, 0xa2], "cpuid", "rax rcx", "rdx rbx");
    check(&[0x0f, 0x05], "syscall", &names(RegSet(0xffff)), "rcx r11");
    check(&[0x48, 0x99], "cqto", "rax", "rdx");
    check(&[0xc9], "leave", "rbp", "rsp");
    check(&[0xd9, 0xe8], "fld1", "st0 st1 st2 st3 st4 st5 st6 st7", "");
    check(&[0x0f, 0x1f, 0x44, 0x00, 0x00], "nopl (%rax,%rax)", "", "");
}

#[test]
fn merging_masks_keep_what_they_skip() {
    check(
        &[0x62, 0xf1, 0x7c, 0x49, 0x28, 0xc1],
        "vmovaps %zmm1,%zmm0{%k1}",
        "xmm0 xmm1 k1 ymm0_upper ymm1_upper",
        "",
    );
    check(
        &[0x62, 0xf1, 0x7c, 0xc9, 0x28, 0xc1],
        "vmovaps %zmm1,%zmm0{%k1}{z}",
        "xmm1 k1 ymm1_upper",
        "xmm0 ymm0_upper",
    );
}

#[test]
fn the_short_way_says_what_the_long_way_says() {
    let libc =
        std::process::Command::new("gcc").arg("-print-file-name=libc.so.6").output().expect("gcc runs");
    let libc = String::from_utf8(libc.stdout).expect("a path in plain letters");
    let image = crate::Image::load(libc.trim().as_ref()).expect("libc loads");
    let (mut n_short, mut n) = (0u32, 0u32);
    let mut of = EffectsOf::new();
    for range in image.code_ranges() {
        for insn in Decoder::new(image.bytes_in(&range).unwrap_or_default(), range.start) {
            n += 1;
            if let Some(short) = short_way(&insn.0) {
                assert_eq!(short, of.long_way(&insn), "{insn:?}");
                n_short += 1;
            }
        }
    }
    assert!(n_short > n / 2, "{n_short} of {n}");
}

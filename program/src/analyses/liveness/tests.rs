//! Liveness by hand for small functions, and against its definition: somewhere on a way from here it is read
//! before it is killed.

use super::*;
use crate::image::Image;
use crate::model::BlockEnd;
use std::process::Command;

fn build(name: &str, text: &str, options: &[&str]) -> Program {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let (source, binary) = (dir.path().join(name), dir.path().join("a"));
    std::fs::write(&source, text).expect("the source can be written");
    let done =
        Command::new("gcc").args(options).arg("-o").arg(&binary).arg(&source).status().expect("gcc runs");
    assert!(done.success());
    Program::analyze(Image::load(&binary).expect("gcc makes what we read"))
}

/// Assembly of one function `f`, that `main` calls if told to; registers and flags live before `f`'s first
/// block, of those asked for.
#[track_caller]
fn check(body: &str, ask: &str, want: &str) {
    let text = format!(
        ".globl main, f\n.type main,@function\n.type f,@function\n.type g,@function\n\
         main: call f\n ret\n.size main,.-main\nf: {}\n.size f,.-f\ng: ret\n.size g,.-g\n.section .note.GNU-stack\n",
        body.replace(';', "\n")
    );
    let program = build("a.s", &text, &["-nostartfiles", "-Wl,-emain"]);
    let (conventions, all) = Conventions::compute(&program);
    let func = program.func_ids().find(|&f| program.function(f).name() == "f").expect("it is in the text");
    let entry = program.entry_block(func).expect("it decodes");
    let live = all[func.index()].live_in(entry);
    let got: Vec<String> =
        live.iter().map(|r| r.to_string()).filter(|r| ask.split(' ').any(|a| a == r)).collect();
    assert_eq!(got.join(" "), want, "{body}");
    let flags = FlagLiveness::compute(&program);
    assert_eq!(flags.live_in(entry), live.both(abi::FLAGS), "flags alone: {body}");
    for (block, before) in program.function(func).block_ids().map(|b| (b, flags.before(&program, b))) {
        let all = all[func.index()].before(&program, &conventions, block);
        for ((at, mine), (_, full)) in before.into_iter().zip(all) {
            assert!(mine.holds(full), "{at} of {body}: {:?}", full.minus(mine));
        }
    }
    let first = all[func.index()].before(&program, &conventions, entry);
    assert_eq!(first[0].1, live, "the block and its first instruction agree");
    assert!(Liveness::compute(&program, func).live_in(entry).holds(live), "knowing less finds less dead");
}

#[test]
fn returns_keep_results_and_what_the_caller_keeps() {
    check("xor %eax,%eax; ret", "rax rbx zf df", "rbx df");
    check("ret", "rax rdx r11 xmm0 zf", "rax rdx xmm0");
}

#[test]
fn a_caller_may_pass_on_an_argument_that_was_not_written() {
    check("mov %rdi,%rax; ret", "rax rdi rsi", "rsi rdi");
    check("mov %rdi,%rax; xor %esi,%esi; ret", "rax rdi rsi", "rdi");
    // r10 is the static chain.
    check("ret", "r10 r11 xmm5 xmm9", "r10 xmm5");
}

#[test]
fn every_way_counts() {
    check(
        "test %edi,%edi; je 1f; mov %esi,%eax; ret; 1: mov %r9d,%eax; ret",
        "rdi rsi r9 r11 cf",
        "rsi rdi r9",
    );
    check("1: dec %edi; jne 1b; xor %eax,%eax; ret", "rdi cf zf", "rdi");
    check("adc $0,%edi; xor %eax,%eax; ret", "rdi cf zf", "rdi cf");
}

#[test]
fn narrow_writes_keep_a_register_alive() {
    check("mov $1,%al; ret", "rax", "rax");
    check("mov $1,%eax; ret", "rax", "");
    check("cvtsi2sd %edi,%xmm0; ret", "xmm0 rdi", "rdi xmm0");
    check("pxor %xmm0,%xmm0; ret", "xmm0 ymm0_upper", "ymm0_upper");
}

#[test]
fn a_caller_that_keeps_a_value_across_a_local_call_is_seen() {
    // As gcc does with -fipa-ra: g does not touch r11.
    check("call g; mov %r11,%rax; ret", "r11 zf", "r11");
    check("call g; jc 1f; 1: ret", "cf zf", "cf");
}

#[test]
fn unknown_jumps_need_everything() {
    check("jmp *%rax", "rax r11 r15 xmm15", "rax r11 r15 xmm15");
    check("push %rdi; ret", "rsi rdi r11 k1", "rsi rdi r11 k1");
    check("mov (%rdi),%rsp; ret", "rsi rdi r11", "rsi rdi r11");
    check("ud2", "rax rdi rbx r11 cf", "rbx");
}

/// Each register, from each block's start: is it read before it is killed on some way? Searched forward, one
/// register at a time.
#[test]
fn what_is_live_is_what_some_way_reads() {
    let source = r"
        static int state[64];
        int f(int n, int k, double *d) {
            int sum = 0;
            for (int i = 0; i < n; i++) {
                if (i & k) sum += state[i & 63] * k; else if (d[i] > 2.0) d[i] *= 3.0 - sum;
                for (int j = i; j > 0; j >>= 1) sum ^= j << (k & 7);
            }
            return sum;
        }
        int main(int argc, char **argv) { double d[100]; for (int i = 0; i < 100; i++) d[i] = argc; return f(argc, 3, d); }";
    let program = build("a.c", source, &["-O2", "-fno-inline"]);
    let (conventions, all) = Conventions::compute(&program);
    let mut of = EffectsOf::new();
    let mut n = 0;
    for func in program.func_ids() {
        let blocks: Vec<BlockId> = program.function(func).block_ids().collect();
        if blocks.iter().any(|&b| !program.calls_in(b).is_empty()) || blocks.len() < 5 {
            continue;
        }
        n += 1;
        let returned = conventions.of(func).at_return;
        for &start in &blocks {
            let mut want = abi::ALWAYS_LIVE;
            for reg in abi::ALL.iter() {
                let (mut work, mut seen) = (vec![start], std::collections::BTreeSet::new());
                while let Some(b) = work.pop() {
                    let mut killed = false;
                    for insn in program.insns(b) {
                        let effects = of.effects(&insn);
                        if effects.reads.contains(reg) {
                            want.insert(reg);
                        }
                        killed |= effects.reads.contains(reg) || effects.kills.contains(reg);
                        if killed {
                            break;
                        }
                    }
                    if killed {
                        continue;
                    }
                    if program.block(b).end == BlockEnd::Return && returned.contains(reg) {
                        want.insert(reg);
                    }
                    work.extend(program.successors(b).iter().map(|e| e.to).filter(|&s| seen.insert(s)));
                }
            }
            assert_eq!(
                all[func.index()].live_in(start),
                want,
                "{start} of {}",
                program.function(func).name()
            );
        }
    }
    assert!(n > 0, "no function without calls");
}

//! Loops run in this process: alone, and behind what stands at their entries.

use super::*;
use crate::arch::x86_64::testing::{Registers, alone, call, map, read, unmap, write};
use crate::testing::{assembled, function};
use iced_x86::Encoder;
use nix::libc;
use program::arch::{Decoder, Reg, RegSet, abi};
use program::{Conventions, Program};

/// Where code is, in memory of a test's; then three arrays, a page of registers in front of them.
const CODE: u64 = 0x1000;
const KEPT: u64 = 0x2000;
const ARRAYS: u64 = 0x3000;
const EACH: u64 = 0x1000;
const LEN: u64 = 0x8000;

/// Memory with code and data.
struct Memory(u64);

impl Memory {
    fn new() -> Memory {
        Memory(map(0, LEN, libc::MAP_PRIVATE))
    }

    fn put(&self, code: &[u8]) {
        code.iter().zip(self.0 + CODE..).for_each(|(byte, at)| write(at, *byte));
    }

    /// Numbers that are none of floats that have no value.
    fn fill(&self) {
        for n in 0..(LEN - KEPT) / 4 {
            let value = u32::try_from(n * 2_654_435_761 % 1_000_003).expect("small");
            write(self.0 + KEPT + 4 * n, 0x3f00_0000 + value * 7);
        }
    }

    fn data(&self) -> Vec<u64> {
        (0..(LEN - KEPT) / 8).map(|n| read(self.0 + KEPT + 8 * n)).collect()
    }

    fn array(&self, n: u64) -> u64 {
        self.0 + ARRAYS + n * EACH + 0x400
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.0, LEN);
    }
}

/// A function: what is before its loop, the loop, what is behind it, all as they run alone.
struct Function {
    before: Vec<u8>,
    rest: Vec<u8>,
    behind: Vec<u8>,
    insns: Vec<Insn>,
    header: Va,
    live: RegSet,
}

/// That of `before`, a loop of `body`, whose last instruction jumps to `1b`, and `behind`.
fn compiled([before, body, behind]: [&str; 3]) -> Function {
    let text = format!("nop\n{before}\n1: {body}\n2: {behind}\nret");
    let program = assembled(&[("_start", "call f\nhlt"), ("f", &text)]);
    let f = function(&program, "f");
    let blocks: Vec<_> = program.function(f).block_ids().collect();
    let [_, header, last] = blocks[..] else { panic!("{} blocks", blocks.len()) };
    let range = program.function(f).ranges[0].clone();
    let bytes = program.image.bytes_in(&range).expect("in the file");
    let offset = |at: Va| usize::try_from(at.since(range.start)).expect("small");
    let (start, end) = (program.block(header).start, program.block(last).start);
    let live = live_in(&program, f, header);
    Function {
        before: bytes[..offset(start)].to_vec(),
        rest: bytes[offset(start)..].to_vec(),
        behind: bytes[offset(end)..].to_vec(),
        insns: program.insns(header).collect(),
        header: start,
        live,
    }
}

fn live_in(program: &Program, func: program::FuncId, block: program::BlockId) -> RegSet {
    let (_, live) = Conventions::compute(program);
    live[func.index()].live_in(block)
}

impl Function {
    fn understood(&self) -> Result<PackedLoop, NotVectorised> {
        PackedLoop::recognise(&self.insns, self.header)
    }

    /// What comes of it in memory filled anew, with what `code` is.
    fn run(memory: &Memory, code: &[&[u8]], registers: Registers) -> (Registers, Vec<u64>) {
        memory.put(&code.concat());
        memory.fill();
        let after = call(memory.0 + CODE, registers);
        (after, memory.data())
    }

    /// Runs it alone and behind its entry, and asks that nothing differs. Returns what the registers are when
    /// the entry ran without the loop.
    #[track_caller]
    fn check(&self, memory: &Memory, registers: Registers) -> Registers {
        let (entry, _) = self.understood().expect("it is one").entry(self.live).expect("it can be written");
        let alone = Function::run(memory, &[&self.before[..], &self.rest[..]], registers);
        let both = Function::run(memory, &[&self.before[..], &entry[..], &self.rest[..]], registers);
        let is_dead = |n: u8| !self.live.contains(Reg::general(n));
        assert_eq!(without(both.0, is_dead), without(alone.0, is_dead), "{registers:x?}");
        assert_eq!(both.0.flags, alone.0.flags, "flags, {registers:x?}");
        assert!(both.1 == alone.1, "memory, {registers:x?}");
        Function::run(memory, &[&self.before[..], &entry[..], &self.behind[..]], registers).0
    }
}

/// Registers but those that are dead.
fn without(registers: Registers, is_dead: impl Fn(u8) -> bool) -> Vec<u64> {
    let all = [
        (0, registers.rax),
        (1, registers.rcx),
        (2, registers.rdx),
        (3, registers.rbx),
        (5, registers.rbp),
        (6, registers.rsi),
        (7, registers.rdi),
        (8, registers.r8),
        (9, registers.r9),
        (10, registers.r10),
        (11, registers.r11),
        (12, registers.r12),
        (13, registers.r13),
        (14, registers.r14),
        (15, registers.r15),
    ];
    all.into_iter().map(|(n, value)| if is_dead(n) { 0 } else { value }).collect()
}

/// Registers as loops of tests have them: arrays in rdi, rsi, r8; what is kept in r9.
fn registers(memory: &Memory) -> Registers {
    Registers {
        rdi: memory.array(0),
        rsi: memory.array(1),
        r8: memory.array(2),
        r9: memory.0 + KEPT,
        ..Registers::default()
    }
}

/// Loads and stores of what vectors are before and after; upper halves start with something, too.
const LOAD: &str = "vpcmpeqd %ymm0,%ymm0,%ymm0\nvmovdqa %ymm0,%ymm1\nvmovdqa %ymm0,%ymm2\nvmovdqa %ymm0,%ymm3\n\
    vmovdqa %ymm0,%ymm4\nvmovdqa %ymm0,%ymm5\nvmovdqa %ymm0,%ymm6\nmovups 80(%r9),%xmm0\nmovups (%r9),%xmm1\n\
    movups 16(%r9),%xmm2\nmovups 32(%r9),%xmm3\nmovups 48(%r9),%xmm4\nmovups 64(%r9),%xmm5";
const STORE: &str = "movups %xmm0,(%r9)\nmovups %xmm1,16(%r9)\nmovups %xmm2,32(%r9)\nmovups %xmm3,48(%r9)\n\
    movups %xmm4,64(%r9)\nmovups %xmm5,80(%r9)";

/// Whether tests of code for it can be run here.
fn can_run() -> bool {
    has_avx2()
}

/// Checks that a loop of `n` iterations went so far by pairs.
#[track_caller]
fn check_pairs(n: u64, n_done: u64) {
    let want = match n {
        0..9 => 0,
        n => (n - 1) / 2 * 2,
    };
    assert_eq!(n_done, want, "of {n} iterations");
}

#[test]
fn loops_give_the_same_at_all_trip_counts() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let memory = Memory::new();
    let base = registers(&memory);
    let ends = |end: u64| Registers { rdx: end, ..base };
    // The loop, the registers for so many iterations, and how far it came.
    type Case<'a> = (&'a str, &'a dyn Fn(u64) -> Registers, &'a dyn Fn(Registers) -> u64);
    let index = |after: Registers| after.rax / 16;
    let down = |n: u64| Registers { rcx: n, ..base };
    let cases: &[Case<'_>] = &[
        (
            "movups (%rsi,%rax),%xmm0\nmulps %xmm1,%xmm0\nmovups %xmm0,(%rdi,%rax)\nadd $16,%rax\ncmp %rax,%rdx\njne 1b",
            &|n| ends(16 * n),
            &index,
        ),
        // Sums of all kinds, a register that is emptied anew, what a comparison makes.
        (
            "movdqu (%rsi,%rax),%xmm0\nadd $16,%rax\npaddd %xmm0,%xmm1\npxor %xmm6,%xmm6\npxor %xmm0,%xmm2\n\
             pcmpgtd %xmm5,%xmm0\npsubd %xmm0,%xmm3\npor %xmm6,%xmm0\npmaxub -16(%rsi,%rax),%xmm4\ncmp %rdx,%rax\njne 1b",
            &|n| ends(16 * n),
            &index,
        ),
        // By pointers that are moved in between, counted down.
        (
            "movups (%rsi),%xmm0\nlea 16(%rsi),%rsi\nlea 16(%rdi),%rdi\naddps %xmm2,%xmm0\nmovups %xmm0,-16(%rdi)\n\
             sub $1,%ecx\njne 1b",
            &down,
            &|after| (after.rdi - base.rdi) / 16,
        ),
        (
            "movups (%rsi),%xmm0\nadd $16,%rsi\nmovups %xmm0,(%rdi)\nadd $16,%rdi\ndec %rcx\njne 1b",
            &down,
            &|after| (after.rdi - base.rdi) / 16,
        ),
        // From below to nothing, over the end of what an array is.
        (
            "movups 256(%rsi,%rax),%xmm0\nandps %xmm3,%xmm0\nmovups %xmm0,256(%rdi,%rax)\nadd $16,%rax\njne 1b",
            &|n| Registers {
                rax: (16 * n).wrapping_neg(),
                rsi: base.rsi + 640,
                rdi: base.rdi + 640,
                rdx: 16 * n,
                ..base
            },
            &|after| (after.rax.wrapping_add(after.rdx)) / 16,
        ),
        // Indexes by factors, in two registers.
        (
            "movups (%rsi,%rax,8),%xmm0\nmovups %xmm0,(%rdi,%rcx,4)\nadd $2,%rax\nadd $4,%rcx\ncmp %rdx,%rcx\njne 1b",
            &|n| ends(4 * n),
            &|after| after.rcx / 4,
        ),
        // Aligned, with operands in memory, and a number of which each half has some bits.
        (
            "movaps (%rsi,%rax),%xmm0\naddps (%r8,%rax),%xmm0\nshufpd $1,%xmm5,%xmm0\ncmpps $1,%xmm1,%xmm0\n\
             movaps %xmm0,(%rdi,%rax)\nadd $16,%rax\ncmp %rdx,%rax\njne 1b",
            &|n| ends(16 * n),
            &index,
        ),
    ];
    for (text, of, done) in cases {
        let function = compiled([LOAD, text, STORE]);
        for n in 1..=40 {
            let after = function.check(&memory, of(n));
            check_pairs(n, done(after));
        }
    }
}

#[test]
fn orders_are_kept_at_all_distances() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let memory = Memory::new();
    let base = registers(&memory);
    let body = "movups (%rsi,%rax),%xmm0\nmovups %xmm0,(%rdi,%rax)\nadd $16,%rax\n";
    // The comparison, with what it starts, its step, and when it goes on.
    type GoesOn = fn(u64, u64) -> bool;
    let cases: &[(&str, u64, i64, bool, GoesOn)] = &[
        ("add $1,%ecx\ncmp %ecx,%edx\nja 1b", 0, 1, false, |at, to| to > at),
        ("add $1,%ecx\ncmp %edx,%ecx\njb 1b", 0xffff_fff0, 1, false, |at, to| at < to),
        ("add $1,%ecx\ncmp %edx,%ecx\njl 1b", 0xffff_fff5, 1, false, |at, to| signed(at) < signed(to)),
        ("add $1,%ecx\ncmp $30,%ecx\njle 1b", 0xffff_fff5, 1, false, |at, _| signed(at) <= 30),
        ("add $3,%rcx\ncmp %rdx,%rcx\njb 1b", 7, 3, true, |at, to| at < to),
        ("add $1,%rcx\ncmp %rdx,%rcx\njl 1b", 0u64.wrapping_sub(5), 1, true, |at, to| {
            at.cast_signed() < to.cast_signed()
        }),
        ("add $1,%rcx\ncmp %rcx,%rdx\njge 1b", 0u64.wrapping_sub(5), 1, true, |at, to| {
            to.cast_signed() >= at.cast_signed()
        }),
        ("sub $2,%rcx\ncmp %rdx,%rcx\njg 1b", 11, -2, true, |at, to| at.cast_signed() > to.cast_signed()),
        ("sub $1,%ecx\ncmp %edx,%ecx\njae 1b", 30, -1, false, |at, to| at >= to),
        ("add $2,%ecx\ncmp %edx,%ecx\njne 1b", 0xffff_fff6, 2, false, |at, to| at != to),
    ];
    for (compare, start, step, is_wide, goes_on) in cases {
        let function = compiled([LOAD, &format!("{body}{compare}"), STORE]);
        let mask = if *is_wide { u64::MAX } else { 0xffff_ffff };
        for n in -3i64..=40 {
            let bound = start.wrapping_add_signed(n * step) & mask;
            let counts = (1u64..64).find(|n| {
                let at = start.wrapping_add_signed(step * n.cast_signed()) & mask;
                !goes_on(at, bound)
            });
            // Others go round for as long as there are numbers.
            let Some(n) = counts else { continue };
            let after = function.check(&memory, Registers { rcx: *start, rdx: bound, ..base });
            let n_done = after.rax / 16;
            assert!(n_done.is_multiple_of(2) && n_done < n, "{compare}: {n_done} of {n}");
            let least = if *step == 3 { n / 2 } else { n - n.min(3) };
            assert!(n < 12 || n_done >= least, "{compare}: {n_done} of {n}");
        }
    }
}

fn signed(half: u64) -> i32 {
    u32::try_from(half).expect("32 bits").cast_signed()
}

#[test]
fn places_that_overlap_give_the_same() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let memory = Memory::new();
    let base = registers(&memory);
    let (end, add) = ("add $16,%rax\ncmp %rdx,%rax\njne 1b", "paddd %xmm1,%xmm0");
    for body in [
        format!("movdqu (%rsi,%rax),%xmm0\n{add}\nmovdqu %xmm0,(%rdi,%rax)\n{end}"),
        format!("movdqu %xmm2,(%rdi,%rax)\nmovdqu (%rsi,%rax),%xmm0\n{add}\npaddd %xmm0,%xmm3\n{end}"),
        format!("movdqu %xmm2,(%rdi,%rax)\nmovdqu %xmm1,(%rsi,%rax)\n{end}"),
        format!(
            "movdqu (%rsi,%rax),%xmm0\nmovdqu %xmm0,(%rdi,%rax)\nmovdqu 4(%rsi,%rax),%xmm0\n{add}\nmovdqu %xmm0,(%r8,%rax)\n{end}"
        ),
    ] {
        let function = compiled([LOAD, &body, STORE]);
        for distance in -48i64..=48 {
            for n in [1, 8, 9, 10, 25] {
                let rsi = base.rdi.wrapping_add_signed(distance);
                let after = function.check(&memory, Registers { rsi, rdx: 16 * n, ..base });
                if n == 25 && (distance.abs() >= 48 || distance == 0) && !body.contains("4(") {
                    assert_eq!(after.rax / 16, 24, "at {distance}: {body}");
                }
            }
        }
    }
}

#[test]
fn general_registers_that_are_read_are_kept() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let memory = Memory::new();
    let base = registers(&memory);
    let body = "movdqu (%rsi,%rax),%xmm0\npaddd %xmm0,%xmm1\nmovdqu %xmm0,(%rdi,%rax)\nadd $16,%rax\ncmp %rdx,%rax\njne 1b";
    let all = ["rcx", "r8", "r10", "r11", "rbx", "rbp", "r12", "r13", "r14", "r15"];
    let behind: String =
        all.iter().enumerate().map(|(n, name)| format!("mov %{name},{}(%r9)\n", 256 + 8 * n)).collect();
    let function = compiled([LOAD, body, &format!("{STORE}\n{behind}")]);
    let asked =
        Registers { rcx: 1, r8: 2, r10: 3, r11: 4, rbx: 5, rbp: 6, r12: 7, r13: 8, r14: 9, r15: 10, ..base };
    for n in 1..=40 {
        let after = function.check(&memory, Registers { rdx: 16 * n, ..asked });
        check_pairs(n, after.rax / 16);
    }
    // Nor is there a vector register left then.
    let vectors: String = (0..16).map(|n| format!("movups %xmm{n},{}(%r9)\n", 512 + 16 * n)).collect();
    let full = compiled([LOAD, body, &format!("{vectors}{behind}")]);
    assert_eq!(full.understood().expect("it is one").entry(full.live), Err(NotVectorised::NoRegister));
}

/// What unwinders find their way by is left alone: the stack, and the stack pointer.
#[test]
fn rows_of_unwind_tables_stay_true() {
    let body = "movdqu (%rsi,%rax),%xmm0\npaddd %xmm0,%xmm1\nmovdqu %xmm0,(%rdi,%rax)\nadd $16,%rax\ncmp %rdx,%rax\njne 1b";
    for behind in ["mov %rcx,(%r9)\nmov %r8,(%r9)\nmov %r10,(%r9)\nmov %r11,(%r9)", ""] {
        let function = compiled([LOAD, body, &format!("{STORE}\n{behind}")]);
        let (entry, _) =
            function.understood().expect("it is one").entry(function.live).expect("it can be written");
        let mut n_writes = 0;
        for insn in Decoder::new(&entry, Va(0x1000)) {
            let effects = insn.effects();
            assert!(effects.writes.both(abi::CALLEE_SAVED).is_empty(), "{insn}");
            let written = insn.memory_uses().into_iter().filter(|used| used.is_written);
            for used in written {
                assert_eq!(used.base, Some(Reg::general(7)), "{insn}");
                n_writes += 1;
            }
        }
        assert_eq!(n_writes, 1);
    }
}

/// Each wide form does in both halves what the narrow one does in one.
#[test]
fn wide_forms_do_the_same_in_each_half() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let memory = Memory::new();
    let mut n_forms = 0;
    for narrow in Code::values() {
        let Some((shape, code)) = forms::wide(narrow) else { continue };
        n_forms += 1;
        let mut plain = Instruction::new();
        plain.set_code(narrow);
        let has_number = plain.op_count() > 2 || shape == Shape::Shift;
        let numbers: &[u8] = if has_number { &[0, 1, 2, 5, 9, 0x1b, 0xe4, 0xff] } else { &[0] };
        for number in numbers {
            check_form((narrow, shape, code), has_number.then_some(*number), &memory);
        }
    }
    assert!(n_forms > 130, "{n_forms}");
}

/// Of one form.
#[track_caller]
fn check_form((narrow, shape, code): (Code, Shape, Code), number: Option<u8>, memory: &Memory) {
    let name = format!("{narrow:?}");
    let vector = |n: u32, is_wide: bool| if is_wide { Register::YMM0 + n } else { Register::XMM0 + n };
    let at =
        |base: Register, offset: u64| iced_x86::MemoryOperand::with_base_displ(base, offset.cast_signed());
    let mut encoder = Encoder::new(64);
    let mut code_of = |insn: Result<Instruction, iced_x86::IcedError>| {
        encoder.encode(&insn.expect("an instruction"), 0x1000).unwrap_or_else(|err| panic!("{name}: {err}"));
        encoder.take_buffer()
    };
    let mut bytes = Vec::new();
    for half in 0..2 {
        for n in 0..3 {
            // A shift has one count for all.
            let offset = 64 * u64::from(n) + if shape == Shape::Count && n == 2 { 0 } else { 16 * half };
            bytes.extend(code_of(Instruction::with2(
                Code::Movups_xmm_xmmm128,
                vector(n, false),
                at(Register::RSI, offset),
            )));
        }
        let (to, from) = (vector(1, false), vector(2, false));
        let number32 = number.map(u32::from);
        bytes.extend(code_of(match (shape, number32) {
            (Shape::Shift, Some(number)) => Instruction::with2(narrow, to, number),
            (_, Some(number)) => Instruction::with3(narrow, to, from, number),
            _ if narrow == Code::Lddqu_xmm_m128 => {
                Instruction::with2(narrow, to, at(Register::RSI, 16 * half))
            }
            _ => Instruction::with2(narrow, to, from),
        }));
        bytes.extend(code_of(Instruction::with2(Code::Movups_xmmm128_xmm, at(Register::RDI, 16 * half), to)));
    }
    for n in 0..3 {
        let load = Code::VEX_Vmovups_ymm_ymmm256;
        bytes.extend(code_of(Instruction::with2(
            load,
            vector(n, true),
            at(Register::RSI, 64 * u64::from(n)),
        )));
    }
    let place = Place::of(
        &Decoder::new(
            &code_of(Instruction::with2(Code::Lddqu_xmm_m128, Register::XMM1, at(Register::RSI, 0))),
            Va(0),
        )
        .next()
        .expect("an instruction"),
        &[0; 16],
    );
    let from = match shape {
        Shape::Shift => Operand::None,
        _ if narrow == Code::Lddqu_xmm_m128 => Operand::Memory(place.expect("a place")),
        _ => Operand::Vector(2),
    };
    let number = number.map(|number| forms::number(narrow, number));
    let wide = Wide { shape, narrow, code, to: Operand::Vector(1), from, number };
    bytes.extend(write::written(&wide).unwrap_or_else(|err| panic!("{name}: {err}")));
    bytes.extend(code_of(Instruction::with2(
        Code::VEX_Vmovups_ymmm256_ymm,
        at(Register::RDI, 32),
        vector(1, true),
    )));
    bytes.extend(code_of(Ok(Instruction::with(Code::VEX_Vzeroupper))));
    bytes.extend(code_of(Ok(Instruction::with(Code::Retnq))));
    memory.put(&bytes);
    for round in 0..8u64 {
        memory.fill();
        for n in 0..32 {
            let mixed = (n + 1 + 32 * round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Small numbers, floats of some size, and all bits.
            let value = match round % 4 {
                0 => mixed,
                1 => mixed >> 40 & 0x7fff,
                2 => mixed & 0x8fff_ffff_8fff_ffff | 0x3000_0000_3000_0000,
                _ => mixed >> 60,
            };
            write(memory.array(1) + 8 * n, if shape == Shape::Count && n == 16 { round } else { value });
        }
        call(memory.0 + CODE, registers(memory));
        let got: [[u64; 4]; 2] = read(memory.array(0));
        assert_eq!(got[1], got[0], "{name} {number:?} {round}");
    }
}

/// Loops that are refused, each with the reason.
#[test]
fn other_loops_are_refused_with_the_reason() {
    let end = "add $16,%rax\ncmp %rdx,%rax\njne 1b";
    let load = "movups (%rsi,%rax),%xmm0";
    let store = "movups %xmm0,(%rdi,%rax)";
    let cases = [
        (
            format!("{load}\naddps %xmm0,%xmm1\n{end}"),
            "a sum of floats would be added in another order, in xmm1",
        ),
        (
            format!("{load}\nminps %xmm0,%xmm1\n{end}"),
            "each iteration needs what the one before left in xmm1",
        ),
        (format!("{load}\npaddd %xmm1,%xmm0\nmovaps %xmm0,%xmm1\n{end}"), "left in xmm1"),
        (format!("{load}\npaddd %xmm0,%xmm1\nmovups %xmm1,(%rdi,%rax)\n{end}"), "left in xmm1"),
        (format!("{load}\npaddsw %xmm0,%xmm1\n{end}"), "left in xmm1"),
        (format!("{load}\npaddd %xmm0,%xmm1\npaddw %xmm0,%xmm1\n{end}"), "left in xmm1"),
        (format!("movss (%rsi,%rax),%xmm0\n{store}\n{end}"), "`movss` works on one value"),
        (format!("cvtsi2ss %eax,%xmm0\n{store}\n{end}"), "`cvtsi2ss` works on one value"),
        (format!("cvtps2pd (%rsi,%rax),%xmm0\n{store}\n{end}"), "`cvtps2pd` moves or converts half"),
        (format!("movq (%rsi,%rax),%xmm0\n{store}\n{end}"), "`movq` moves or converts half"),
        (format!("{load}\nmovntps %xmm0,(%rdi,%rax)\n{end}"), "`movntps` goes past the caches"),
        (format!("movslq (%rsi,%rax),%rcx\nmovups (%rdi,%rcx),%xmm0\n{end}"), "`movsxd` loads an index"),
        (format!("movslq (%rsi,%rax),%rcx\n{load}\n{end}"), "`movsxd` works on one value"),
        (format!("{load}\n{store}\nlock addl $1,(%r8)\n{end}"), "`add` is atomic"),
        (format!("{load}\n{store}\nmovsb\n{end}"), "`movsb` is atomic, or of strings"),
        (format!("{load}\n{store}\nimul $3,%rcx\n{end}"), "`imul` does more with general registers"),
        (format!("{load}\nrcpps %xmm0,%xmm0\n{store}\n{end}"), "`rcpps` has no AVX2 form"),
        (format!("vaddps %ymm0,%ymm0,%ymm0\n{end}"), "its function has AVX instructions"),
        (
            format!("{load}\n{store}\nadd $32,%rax\ncmp %rdx,%rax\njne 1b"),
            "advances by 32 bytes an iteration, not by 16",
        ),
        (format!("{load}\n{store}\nsub $16,%rax\ncmp %rdx,%rax\njne 1b"), "advances by -16 bytes"),
        (format!("{load}\naddps (%r8),%xmm0\n{store}\n{end}"), "is to the same memory in each iteration"),
        (
            format!("{load}\naddps _start(%rip),%xmm0\n{store}\n{end}"),
            "is to the same memory in each iteration",
        ),
        (format!("movups %fs:(%rsi,%rax),%xmm0\n{store}\n{end}"), "counted in 32 bits, or of a segment"),
        (
            format!("{load}\n{store}\nadd $16,%eax\ncmp %edx,%eax\njne 1b"),
            "counted in 32 bits, or of a segment",
        ),
        (
            format!("movups (%rdi,%rax),%xmm0\nmovups %xmm0,4(%rdi,%rax)\n{end}"),
            "is 4 bytes from one that the next",
        ),
        (
            format!("movups %xmm5,(%rdi,%rax)\nmovups 16(%rdi,%rax),%xmm0\n{end}"),
            "is 16 bytes from one that the next",
        ),
        (format!("{load}\n{store}\nadd $16,%rax\ncmp (%r8),%rax\njne 1b"), "its bound is in memory"),
        (
            format!("{load}\n{store}\nadd $16,%rax\ncmp %rdx,%rax\nje 1b"),
            "asks for something else than an order",
        ),
        (format!("{load}\n{store}\nadd $16,%rax\ncmp %rdx,%rax\njg 1b"), "it counts away from its bound"),
        (
            format!("{load}\n{store}\nadd $16,%rax\nadd $1,%rdx\ncmp %rdx,%rax\njne 1b"),
            "its bound changes, too",
        ),
        (format!("{load}\n{store}\nadd $16,%rax\ncmp %rdx,%rcx\njne 1b"), "what it compares does not count"),
        (
            format!("{load}\n{store}\nadd $16,%rax\nadd $1,%ecx\ncmp %rdx,%rcx\njne 1b"),
            "counts in 32 bits, and compares 64",
        ),
        (
            format!("{load}\npslld %xmm2,%xmm0\nmovaps %xmm0,%xmm2\n{store}\n{end}"),
            "shifts by what is computed",
        ),
        ("add $1,%rax\ncmp %rdx,%rax\njne 1b".to_owned(), "nothing in it works on vectors"),
    ];
    for (text, want) in cases {
        let got = compiled(["", &text, ""]).understood().expect_err(&text).to_string();
        assert!(got.contains(want), "{text}: {got}");
    }
    // What may be read behind it.
    let plain = compiled(["", &format!("{load}\n{store}\n{end}"), ""]);
    let understood = plain.understood().expect("it is one");
    assert_eq!(understood.entry(abi::ALL), Err(NotVectorised::Flags));
}

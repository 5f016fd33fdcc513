//! Snippets, run in this process: what they keep is what was there, and what is live does not change.
//!
//! The oracle is the processor: registers, flags, the stack pointer and the red zone are looked at before and
//! behind the snippet by moves, which change none of them.

use super::*;
use crate::arch::x86_64::bytes_between;
use crate::arch::x86_64::emit::Increment;
use crate::arch::x86_64::testing::{Registers, alone, call, map, read, unmap, write};
use nix::libc;
use program::arch::{Decoder, decode};
use proptest::prelude::*;
use std::arch::global_asm;

global_asm!(include_str!("tests/routines.s"));

unsafe extern "C" {
    static engraft_test_routine: u8;
    static engraft_test_routine_end: u8;
    static engraft_test_callee: u8;
    static engraft_test_callee_end: u8;
    static engraft_test_chunk: u8;
    static engraft_test_chunk_end: u8;
}

const PAGE: u64 = 0x1000;
/// Where things are in the memory of a [`Ground`].
const CODE: u64 = 0;
const NOTED: u64 = PAGE;
const DATA: u64 = 2 * PAGE;
const ROUTINE: u64 = 3 * PAGE;
const WORDS: u64 = 4 * PAGE;
/// How far from there this thread's words are.
const GS: u64 = 2 * PAGE;
const LEN: u64 = 8 * PAGE;
/// The flags that instructions compute: CF PF AF ZF SF OF.
const FLAGS: u64 = 0x8d5;
/// Bytes below the stack pointer that are not ours, as words.
const RED_ZONE: u64 = 16;

/// Memory that a snippet runs in.
struct Ground {
    at: u64,
    /// How many bytes the routine has; what it noted is at their end.
    routine_len: u64,
}

impl Ground {
    fn new() -> Ground {
        let at = map(0, LEN, libc::MAP_PRIVATE);
        (0..PAGE).for_each(|n| write(at + DATA + n, (n * 37 + 11).to_le_bytes()[0]));
        Ground { at, routine_len: 0 }
    }

    /// With a routine, the bytes from `from` to `to`.
    fn with_routine(from: *const u8, to: *const u8) -> Ground {
        let routine = bytes_between(from, to);
        let mut ground = Ground::new();
        ground.routine_len = routine.len() as u64;
        ground.put(ROUTINE, &routine);
        ground
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        (self.at + offset..).zip(bytes).for_each(|(at, byte)| write(at, *byte));
    }

    /// The words that the routine noted, of which it has so many.
    fn noted(&self, n_words: u64) -> Vec<u64> {
        let from = self.at + ROUTINE + self.routine_len - 8 * n_words;
        (0..n_words).map(|n| read(from + 8 * n)).collect()
    }

    fn note(&self, words: &[u64]) {
        let from = self.at + ROUTINE + self.routine_len - 8 * words.len() as u64;
        (0..).zip(words).for_each(|(n, word)| write(from + 8 * n, *word));
    }

    /// This thread's word `n`.
    fn word(&self, n: u64) -> u64 {
        read(self.at + WORDS + GS + 8 * n)
    }

    fn set_word(&self, n: u64, value: u64) {
        write(self.at + WORDS + GS + 8 * n, value);
    }

    /// Runs `snippet`; what `live` says is as it was, and so is the stack.
    fn run(&self, snippet: &Snippet, live: RegSet, before: Registers) -> Ran {
        let code = self.code(snippet);
        self.put(CODE, &code);
        let before = Registers { gs: GS, ..before };
        let after = call(self.at + CODE, before);
        let (was, is): (Vec<u64>, Vec<u64>) = (general(&before), general(&after));
        for reg in live.iter().filter(|reg| reg.number() < 16 && *reg != RSP) {
            let n = usize::from(reg.number());
            assert_eq!(is[n], was[n], "{reg} in\n{}", text(snippet));
        }
        if !live.both(abi::FLAGS).is_empty() {
            assert_eq!(after.flags & FLAGS, before.flags & FLAGS, "flags in\n{}", text(snippet));
        }
        let noted = |n: u64| read::<u64>(self.at + NOTED + 8 * n);
        assert_eq!((after.gs, noted(1)), (GS, noted(0)), "{}", text(snippet));
        for k in 1..=RED_ZONE {
            assert_eq!(
                noted(1 + k),
                0x5a5a_0000 + k,
                "{k} words below the stack pointer in\n{}",
                text(snippet)
            );
        }
        Ran { rsp: noted(0), after }
    }

    /// The snippet with its places filled in, and around it what looks at the stack.
    fn code(&self, snippet: &Snippet) -> Vec<u8> {
        let mut code = Vec::new();
        let note = |code: &mut Vec<u8>, insn: &[u8], n: u64| {
            code.extend(insn);
            let end = self.at + CODE + code.len() as u64 + 4;
            crate::bytes::put_distance(code, (self.at + NOTED + 8 * n).wrapping_sub(end));
        };
        let below = |k: u64| (8 * k).wrapping_neg().to_le_bytes()[0];
        note(&mut code, &[0x48, 0x89, 0x25], 0); // mov %rsp,…(%rip)
        for k in 1..=RED_ZONE {
            code.extend([0x48, 0xc7, 0x44, 0x24, below(k)]); // movq $…,-8k(%rsp)
            code.extend((0x5a5a_0000 + u32::try_from(k).expect("small")).to_le_bytes());
        }
        let from = code.len();
        code.extend(&snippet.bytes);
        for &(at, end, place) in &snippet.places {
            let to = match place {
                SnippetTarget::Word(n) => self.at + WORDS + 8 * u64::from(n),
                SnippetTarget::At(to) => to.0,
                SnippetTarget::Routine => self.at + ROUTINE,
                SnippetTarget::Owner => self.owner(),
                SnippetTarget::Text | SnippetTarget::Callee => self.at + CODE,
                SnippetTarget::TextEnd => self.at + CODE + PAGE,
            };
            let end = self.at + CODE + (from + end) as u64;
            crate::bytes::set_distance(&mut code, from + at, to.wrapping_sub(end));
        }
        note(&mut code, &[0x48, 0x89, 0x25], 1);
        for k in 1..=RED_ZONE {
            code.extend([0xf3, 0x0f, 0x7e, 0x44, 0x24, below(k)]); // movq -8k(%rsp),%xmm0
            note(&mut code, &[0x66, 0x0f, 0xd6, 0x05], 1 + k); // movq %xmm0,…(%rip)
        }
        code.push(0xc3);
        code
    }

    /// The word from which it is counted where an indirect call leads.
    fn owner(&self) -> u64 {
        self.at + WORDS - 8
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        unmap(self.at, LEN);
    }
}

/// What a snippet left.
struct Ran {
    /// The stack pointer where it stood.
    rsp: u64,
    after: Registers,
}

/// The general registers, by number.
fn general(r: &Registers) -> Vec<u64> {
    vec![
        r.rax, r.rcx, r.rdx, r.rbx, 0, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
        r.r15,
    ]
}

fn text(snippet: &Snippet) -> String {
    crate::testing::listing(&snippet.bytes, Va(0), |_, _| String::new())
}

/// What holds of all snippets: no vector register is named, places are four bytes of zero that a distance
/// counts from behind, and the stack is where it says, by the decoder's account; `taken` bytes are taken off
/// by what it calls.
fn holds(snippet: &Snippet, taken: i64) {
    let mut factory = InstructionInfoFactory::new();
    for insn in Decoder::new(&snippet.bytes, Va(0)) {
        let is_plain = |r: Register| !r.is_vector_register() && !r.is_st() && !r.is_mm();
        let used = factory.info(insn.iced()).used_registers();
        assert!(used.iter().all(|used| is_plain(used.register())), "{insn}");
    }
    stands(snippet, taken);
}

/// The same, but that it may read vector registers.
fn stands(snippet: &Snippet, taken: i64) {
    for &(at, end, _) in &snippet.places {
        assert!(at + 4 <= end && snippet.bytes[at..at + 4] == [0; 4], "{}", text(snippet));
    }
    let decoder = Decoder::new(&snippet.bytes, Va(0));
    let mut depth = 0;
    for insn in decoder {
        let i = insn.iced();
        let is_of_stack =
            i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP;
        match i.mnemonic() {
            Mnemonic::Lea if is_of_stack => depth -= i.memory_displacement64().cast_signed(),
            Mnemonic::Call => depth -= taken,
            _ => depth -= i64::from(i.stack_pointer_increment()),
        }
        let end = usize::try_from(insn.end().0).expect("small");
        let said = snippet.stack.iter().rev().find(|(at, _)| *at <= end).map(|(_, stack)| *stack);
        match said {
            Some(Stack::Lower(n) | Stack::Call(n)) => {
                assert_eq!(i64::from(n), depth, "behind {insn} in\n{}", text(snippet))
            }
            Some(Stack::HeldInR12(n)) => {
                assert_eq!(i64::from(n), depth, "behind {insn} in\n{}", text(snippet))
            }
            None => assert_eq!(depth, 0, "behind {insn} in\n{}", text(snippet)),
        }
    }
    assert_eq!(depth, 0, "{}", text(snippet));
}

/// An instruction with a memory operand, how long that is, and where.
struct Operation {
    bytes: &'static [u8],
    size: u64,
    at: fn(&Registers, u64) -> u64,
    /// Where the instruction would stand, from the start of the data.
    stands: u64,
}

const OPERATIONS: &[Operation] = &[
    // mov 0x10(%rsi,%rdi,8),%rax
    Operation {
        bytes: &[0x48, 0x8b, 0x44, 0xfe, 0x10],
        size: 8,
        at: |r, _| r.rsi + 8 * r.rdi + 0x10,
        stands: 0,
    },
    // movzbl (%rbx),%ecx
    Operation { bytes: &[0x0f, 0xb6, 0x0b], size: 1, at: |r, _| r.rbx, stands: 0 },
    // add %dx,0x20(%r12)
    Operation { bytes: &[0x66, 0x41, 0x01, 0x54, 0x24, 0x20], size: 2, at: |r, _| r.r12 + 0x20, stands: 0 },
    // cmpl $1,8(%rsp)
    Operation { bytes: &[0x83, 0x7c, 0x24, 0x08, 0x01], size: 4, at: |_, rsp| rsp + 8, stands: 0 },
    // movdqu (%r11),%xmm1
    Operation { bytes: &[0xf3, 0x41, 0x0f, 0x6f, 0x0b], size: 8, at: |r, _| r.r11, stands: 0 },
    // fldt (%rbp)
    Operation { bytes: &[0xdb, 0x6d, 0x00], size: 8, at: |r, _| r.rbp, stands: 0 },
    // mov 0x40(%rip),%eax, of data 0x100 bytes on
    Operation {
        bytes: &[0x8b, 0x05, 0x40, 0, 0, 0],
        size: 4,
        at: |r, _| r.rsi - 0x80 + 0x100 + 6 + 0x40,
        stands: 0x100,
    },
];

/// Registers that the operands of [`OPERATIONS`] reach data by, all others of any value.
fn pointing(ground: &Ground, any: [u64; 16], flags: u64) -> Registers {
    let data = ground.at + DATA;
    Registers {
        rax: any[0],
        rcx: any[1],
        rdx: any[2],
        rbx: data + 0x300,
        rbp: data + 0x380,
        rsi: data + 0x80,
        rdi: any[7] % 16,
        r8: any[8],
        r9: any[9],
        r10: any[10],
        r11: data + 0x480,
        r12: data + 0x500,
        r13: any[13],
        r14: any[14],
        r15: any[15],
        flags: flags & FLAGS,
        gs: GS,
        scratch: [any[4], any[5]],
    }
}

/// Registers of any value.
fn any_registers(any: [u64; 16], flags: u64) -> Registers {
    Registers {
        rax: any[0],
        rcx: any[1],
        rdx: any[2],
        rbx: any[3],
        rbp: any[5],
        rsi: any[6],
        rdi: any[7],
        r8: any[8],
        r9: any[9],
        r10: any[10],
        r11: any[11],
        r12: any[12],
        r13: any[13],
        r14: any[14],
        r15: any[15],
        flags: flags & FLAGS,
        gs: GS,
        scratch: [any[4], 0],
    }
}

/// The registers of `mask` and the stack pointer, with the flags if `has_flags`.
fn live(mask: u16, has_flags: bool) -> RegSet {
    let mut live = RegSet::EMPTY;
    live.insert(RSP);
    (0..16).filter(|n| mask >> n & 1 == 1).for_each(|n| live.insert(Reg::general(n)));
    if has_flags { live.union(abi::CARRY) } else { live }
}

/// Any values, with some that have few bits.
fn values() -> impl Strategy<Value = [u64; 16]> {
    proptest::array::uniform16(
        (any::<u64>(), 0..65u32).prop_map(|(n, shift)| n.checked_shr(shift).unwrap_or(0)),
    )
}

fn time() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// What is at a place of the program: registers, flags, operands, the time.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Register(u8),
    Memory(usize),
    Address(usize),
    Flags,
    Time,
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        (0..16u8).prop_map(Seen::Register),
        (0..OPERATIONS.len()).prop_map(Seen::Memory),
        (0..OPERATIONS.len()).prop_map(Seen::Address),
        Just(Seen::Flags),
        Just(Seen::Time),
    ]
}

fn sinks() -> impl Strategy<Value = Sink> {
    let ring = (0..5u32).prop_map(|n| Sink::Ring(1 << n));
    prop_oneof![Just(Sink::Last), ring, Just(Sink::Histogram), Just(Sink::Call)]
}

/// What can be behind a record's word: the memory that rbp and r13 lead to in the test, and the caller's.
fn fields() -> impl Strategy<Value = Field> {
    let len = || prop_oneof![Just(4), Just(8)];
    // rbx, r12, r14 and r15 are left to work with.
    let reg = (0..16u8).prop_filter("some are left", |n| ![3, 12, 14, 15].contains(n));
    let base = prop_oneof![Just(Reg::general(5)), Just(Reg::general(13))];
    let is_vex = std::arch::is_x86_feature_detected!("avx");
    let lens = if is_vex { vec![4, 8, 16, 32] } else { vec![4, 8, 16] };
    prop_oneof![
        (reg, len()).prop_map(|(n, len)| Field::General { reg: Reg::general(n), len }),
        (0..16u8, proptest::sample::select(lens), any::<bool>()).prop_map(move |(number, len, vex)| {
            Field::Vector { number, len, is_vex: is_vex && (vex || len == 32) }
        }),
        (0..2u8).prop_map(Field::X87),
        (base, -32..32i32, len()).prop_map(|(base, at, len)| Field::Memory { base, at: 8 * at, len }),
        len().prop_map(|len| Field::Memory { base: RSP, at: 8, len }),
        indexed(),
        (2..512u32).prop_map(Field::Word),
        Just(Field::Begin),
        Just(Field::BeginFenced),
        Just(Field::Ones),
        Just(Field::End),
    ]
}

/// Memory that rbp, r13 or rdx, and rcx or r9 lead to in the test; or r13 alone, as an index.
fn indexed() -> impl Strategy<Value = Field> {
    let base = prop_oneof![Just(5), Just(13), Just(2)].prop_map(|n| Some(Reg::general(n)));
    let index = prop_oneof![Just(1), Just(9)].prop_map(Reg::general);
    let both = (base, index, prop_oneof![Just(1u8), Just(2), Just(4), Just(8)]);
    let both = prop_oneof![both, Just((None, Reg::general(13), 1)), Just((Some(RSP), Reg::general(9), 1))];
    (both, -16..16i32, prop_oneof![Just(4), Just(8)]).prop_map(|((base, index, factor), at, len)| {
        // The caller's memory: r9 is 0.
        let at = if base == Some(RSP) { 8 } else { 8 * at };
        Field::Indexed { base, index, factor, at, len }
    })
}

/// Code that loads vector register n with the 32 bytes at `from` + 32 · (n mod 4), and the x87 stack's n with
/// the 10 bytes at `from` + 16 · n; all registers are kept.
fn loading(from: u64) -> Vec<u8> {
    let mut w = Writer::new();
    let has_avx = std::arch::is_x86_feature_detected!("avx");
    let at = |n: u64| MemoryOperand::with_base_displ(Register::RAX, n.cast_signed());
    w.lea(RSP, RSP, -128).and_then(|()| w.push(RAX)).expect("it is written");
    w.put(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, from).expect("it is one"), None)
        .expect("it is");
    for n in 0..16u32 {
        let at = at(32 * u64::from(n % 4));
        let load = match has_avx {
            true => Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, Register::YMM0 + n, at),
            false => Instruction::with2(Code::Movups_xmm_xmmm128, Register::XMM0 + n, at),
        };
        w.put(load.expect("it is one"), None).expect("it is written");
    }
    w.put(Instruction::with(Code::Fninit), None).expect("it is written");
    for n in [1, 0] {
        w.put(Instruction::with1(Code::Fld_m80fp, at(16 * n)).expect("it is one"), None)
            .expect("it is written");
    }
    w.pop(RAX).and_then(|()| w.lea(RSP, RSP, 128)).expect("it is written");
    w.out
}

/// Has `code` run before `snippet`.
fn put_in_front(snippet: &mut Snippet, code: &[u8]) {
    let n = code.len();
    snippet.bytes.splice(0..0, code.iter().copied());
    snippet.places.iter_mut().for_each(|place| (place.0, place.1) = (place.0 + n, place.1 + n));
    snippet.stack.iter_mut().for_each(|stack| stack.0 += n);
}

/// Checks what is kept, after `n` runs, of the last, whose value was one of `values`.
fn is_kept(ground: &Ground, sink: Sink, n: u64, values: std::ops::RangeInclusive<u64>) {
    match sink {
        Sink::Last => assert!(values.contains(&ground.word(0)), "{:#x} {values:x?}", ground.word(0)),
        Sink::Ring(len) => {
            assert_eq!(ground.word(0), n);
            let got = ground.word(1 + (n - 1) % u64::from(len));
            assert!(values.contains(&got), "{got:#x} {values:x?}");
            assert_eq!(ground.word(1 + u64::from(len)), 0);
        }
        Sink::Histogram => {
            let bits = |value: u64| u64::from(64 - value.leading_zeros());
            let sum: u64 = (0..u64::from(HISTOGRAM_WORDS)).map(|k| ground.word(k)).sum();
            let of_it: u64 = (bits(*values.start())..=bits(*values.end())).map(|k| ground.word(k)).sum();
            assert!(sum == n && of_it > 0, "{sum} {n} {of_it}");
        }
        Sink::Call => {
            let noted = ground.noted(3);
            assert!(values.contains(&noted[0]), "{noted:x?} {values:x?}");
            assert_eq!((noted[1], noted[2] % 16), (ground.at + WORDS, 8));
        }
    }
}

proptest! {
    /// Whatever is looked at, whatever is done with it, whatever is live.
    #[test]
    fn a_value_is_kept_and_the_program_cannot_tell(
        seen in seen(),
        sink in sinks(),
        mask in any::<u16>(),
        has_flags in any::<bool>(),
        runs in proptest::collection::vec((values(), any::<u64>()), 1..4),
    ) {
        let _alone = alone();
        let ground = Ground::with_routine(&raw const engraft_test_routine, &raw const engraft_test_routine_end);
        let data = ground.at + DATA;
        let operation = match seen {
            Seen::Memory(n) | Seen::Address(n) => OPERATIONS.get(n),
            _ => None,
        };
        let insn = operation.map(|op| decode(op.bytes, Va(data + op.stands)).expect("an instruction"));
        let value = match seen {
            Seen::Register(n) => Value::Register(Reg::general(n)),
            Seen::Memory(_) => Value::Memory,
            Seen::Address(_) => Value::Address,
            Seen::Flags => Value::Flags,
            Seen::Time => Value::Time,
        };
        let live = live(mask, has_flags);
        let made = snippet(value, sink, live, insn.as_ref()).expect("it can be had");
        holds(&made, 0);
        for (n, (any, flags)) in (1..).zip(runs) {
            let before = match operation {
                Some(_) => pointing(&ground, any, flags),
                None => any_registers(any, flags),
            };
            let start = time();
            let ran = ground.run(&made, live, before);
            let at = |op: &Operation| (op.at)(&before, ran.rsp);
            let read = |op: &Operation| (0..op.size).rev().fold(0, |sum, k| sum << 8 | u64::from(read::<u8>(at(op) + k)));
            let value = match (seen, operation) {
                (Seen::Register(4), _) => ran.rsp,
                (Seen::Register(n), _) => general(&before)[usize::from(n)],
                (Seen::Memory(3), _) => before.scratch[0] & 0xffff_ffff,
                (Seen::Memory(_), Some(op)) => read(op),
                (Seen::Address(_), Some(op)) => at(op),
                (Seen::Flags, _) => before.flags,
                _ => start,
            };
            let end = if matches!(seen, Seen::Time) { time() } else { value };
            is_kept(&ground, sink, n, value..=end);
        }
    }

    /// Of the three ways in which a counter is incremented, the one for what is live.
    #[test]
    fn a_counter_is_incremented_and_the_program_cannot_tell(
        mask in prop_oneof![any::<u16>(), Just(u16::MAX)],
        has_flags in any::<bool>(),
        any in values(),
        flags in any::<u64>(),
    ) {
        let _alone = alone();
        let ground = Ground::new();
        let (live, mut made) = (live(mask, has_flags), Snippet::default());
        // Of the flags, `inc` keeps the carry.
        let live = if has_flags { live.union(abi::FLAGS) } else { live };
        let how = Increment::at(live);
        made.places = how.emit(&mut made.bytes).map(|(at, end)| (at, end, SnippetTarget::Word(3))).collect();
        made.stack = how.stack().to_vec();
        holds(&made, 0);
        ground.set_word(3, any[0]);
        let ran = ground.run(&made, live, any_registers(any, flags));
        prop_assert_eq!(ground.word(3), any[0].wrapping_add(1));
        prop_assert_eq!(ran.after.flags & 1, flags & 1);
    }

    /// An event is appended where there is room, or where the routine has made some.
    #[test]
    fn an_event_is_appended_and_the_program_cannot_tell(
        word in any::<u32>(),
        has_frame in any::<bool>(),
        mask in prop_oneof![any::<u16>(), Just(u16::MAX)],
        has_flags in any::<bool>(),
        any in values(),
        flags in any::<u64>(),
        n_before in 0..40u64,
        has_more in any::<bool>(),
    ) {
        let _alone = alone();
        let ground = Ground::with_routine(&raw const engraft_test_chunk, &raw const engraft_test_chunk_end);
        let live = live(mask, has_flags);
        let made = event(word, has_frame, live).expect("it can be written");
        holds(&made, 0);
        // Room for 32 words in the first chunk; another one behind it.
        let (first, second) = (ground.at + DATA, ground.at + DATA + 0x800);
        (0..PAGE).for_each(|n| write(first + n, 0u8));
        ground.set_word(0, first + 4 * n_before);
        ground.set_word(1, first + 4 * 32);
        let limit = if has_more { second + 128 } else { 0 };
        ground.note(&[ground.at + WORDS + GS, second, limit, u64::from(has_more), 0]);
        let ran = ground.run(&made, live, any_registers(any, flags));
        let len = if has_frame { 8 } else { 4 };
        // Its end is held against the limit.
        let fits = 4 * n_before + len < 4 * 32;
        prop_assert_eq!(ground.noted(5)[4], u64::from(!fits));
        let at = if fits { first + 4 * n_before } else { second };
        let frame = u32::try_from(ran.rsp & 0xffff_ffff).expect("the low half");
        let want = match (fits || has_more, has_frame) {
            (true, true) => [word, frame],
            (true, false) => [word, 0],
            (false, _) => [0, 0],
        };
        prop_assert_eq!([read::<u32>(at), read(at + 4)], want);
        if fits || has_more {
            prop_assert_eq!(ground.word(0), at + len);
        }
    }

    /// A record holds what its fields say, in order, behind its word; where there is no room, and none can be
    /// made, nothing is stored.
    #[test]
    fn a_record_is_appended_and_the_program_cannot_tell(
        word in 1..u32::MAX,
        fields in proptest::collection::vec(fields(), 0..12),
        mask in prop_oneof![any::<u16>(), Just(u16::MAX), Just(0)],
        has_flags in any::<bool>(),
        any in values(),
        flags in any::<u64>(),
        n_before in 0..60u64,
        has_more in any::<bool>(),
    ) {
        let _alone = alone();
        let ground = Ground::with_routine(&raw const engraft_test_chunk, &raw const engraft_test_chunk_end);
        let live = live(mask, has_flags);
        let mut made = record(word, &fields, live).expect("it can be written");
        stands(&made, 0);
        let (first, second) = (ground.at + DATA, ground.at + DATA + 0xc00);
        (0..PAGE).for_each(|n| write(first + n, 0u8));
        // What vector and x87 registers, words and memory hold, in the page of what is noted.
        let held = ground.at + NOTED + 0x400;
        let byte = |n: u64| (n * 37).wrapping_add(any[0]).to_le_bytes()[0];
        (0..0x400).for_each(|n| write(held + n, byte(n)));
        (0..8).for_each(|n| write(held + 16 * n + 9, 0x3f_u8));
        (2..512).for_each(|n| ground.set_word(n, n * n));
        ground.set_word(0, first + 4 * n_before);
        ground.set_word(1, first + 0x100);
        let limit = if has_more { second + 0x300 } else { 0 };
        ground.note(&[ground.at + WORDS + GS, second, limit, u64::from(has_more), 0]);
        let before = Registers {
            rbp: held + 0x200,
            r13: held + 0x100,
            rdx: held + 0x180,
            rcx: any[1] % 8,
            r9: 0,
            ..any_registers(any, flags)
        };
        put_in_front(&mut made, &loading(held));
        let start = time();
        let ran = ground.run(&made, live, before);
        let end = time();

        let len = u64::from(record_len(&fields));
        let fits = 4 * n_before + len < 0x100;
        prop_assert_eq!(ground.noted(5)[4], u64::from(!fits));
        let at = if fits { first + 4 * n_before } else { second };
        if !fits && !has_more {
            prop_assert!((first + 4 * n_before..first + PAGE).all(|at| read::<u8>(at) == 0));
            return Ok(());
        }
        prop_assert_eq!((ground.word(0), read::<u32>(at)), (at + len, word));
        let mut at = at + 4;
        for field in fields {
            let got: Vec<u8> = (at..at + u64::from(field.len_bytes())).map(read::<u8>).collect();
            at += u64::from(field.len_bytes());
            let of = |from: u64, len: u8| (from..from + u64::from(len)).map(read::<u8>).collect::<Vec<u8>>();
            let low = |value: u64, len: u8| value.to_le_bytes()[..usize::from(len)].to_vec();
            let want = match field {
                Field::General { reg, len } if reg == RSP => low(ran.rsp, len),
                Field::General { reg, len } => low(general(&before)[usize::from(reg.number())], len),
                Field::Vector { number, len, .. } => of(held + 32 * u64::from(number % 4), len),
                Field::X87(n) => [of(held + 16 * u64::from(n), 10), vec![0, 0]].concat(),
                Field::Memory { base, at: 8, len } if base == RSP => low(before.scratch[0], len),
                Field::Memory { base, at, len } => {
                    let base = general(&before)[usize::from(base.number())];
                    of(base.wrapping_add_signed(at.into()), len)
                }
                Field::Indexed { base: Some(RSP), len, .. } => low(before.scratch[0], len),
                Field::Indexed { base, index, factor, at, len } => {
                    let register = |reg: Reg| general(&before)[usize::from(reg.number())];
                    let index = register(index) * u64::from(factor);
                    of((base.map_or(0, register) + index).wrapping_add_signed(at.into()), len)
                }
                Field::Word(n) => low(u64::from(n) * u64::from(n), 8),
                Field::Ones => vec![0xff; 8],
                Field::Begin | Field::BeginFenced | Field::End => {
                    let stamp = u64::from_le_bytes(got.clone().try_into().expect("eight"));
                    prop_assert!((start..=end).contains(&stamp), "{start} {stamp} {end}");
                    got.clone()
                }
            };
            prop_assert_eq!(got, want, "{:?} in\n{}", field, text(&made));
        }
        // The stamp that ends a time was read first, the one that begins one last: none is between them.
        prop_assert_eq!(read::<u64>(at), 0);
    }

    /// Where a call leads is counted at its site if it is where it led first, else told to the routine.
    #[test]
    fn where_a_call_leads_is_seen_and_the_program_cannot_tell(
        n in 0..CALLS.len(),
        keeps_r11 in any::<bool>(),
        site in 1..1000u32,
        any in values(),
        flags in any::<u64>(),
        is_known in any::<bool>(),
    ) {
        let _alone = alone();
        let ground = Ground::with_routine(&raw const engraft_test_callee, &raw const engraft_test_callee_end);
        let (bytes, leads) = CALLS[n];
        let insn = decode(bytes, Va(ground.at + DATA)).expect("an instruction");
        let made = indirect_call(&insn, keeps_r11, site).expect("it can be seen");
        holds(&made, 8);
        // Through a register it leads anywhere.
        let before = pointing(&ground, any, flags);
        // Flags and r11 are free there.
        let mut live = live(!(1 << 11), false);
        if keeps_r11 {
            live.insert(Reg::general(11));
        }
        let mut distance = 0;
        for again in 0..3 {
            // The stack pointer is known when it has run.
            let ran = ground.run(&made, live, before);
            if again == 0 {
                distance = ground.owner().wrapping_sub(leads(&before, ran.rsp));
                prop_assert_eq!(ground.noted(3), [distance, u64::from(site), 1]);
                ground.set_word(0, if is_known { distance } else { !distance });
            }
        }
        prop_assert_eq!(ground.word(1), if is_known { 2 } else { 0 });
        prop_assert_eq!(ground.noted(3), [distance, u64::from(site), if is_known { 1 } else { 3 }]);
    }
}

/// Indirect calls and jumps, and where they lead.
type Leads = fn(&Registers, u64) -> u64;
const CALLS: &[(&[u8], Leads)] = &[
    (&[0xff, 0xd0], |r, _| r.rax),                               // call *%rax
    (&[0x41, 0xff, 0xe7], |r, _| r.r15),                         // jmp *%r15
    (&[0x41, 0xff, 0xd3], |r, _| r.r11),                         // call *%r11
    (&[0xff, 0x53, 0x08], |r, _| read(r.rbx + 8)),               // call *8(%rbx)
    (&[0xff, 0x24, 0xfe], |r, _| read(r.rsi + 8 * r.rdi)),       // jmp *(%rsi,%rdi,8)
    (&[0xff, 0x54, 0x24, 0x08], |r, _| r.scratch[0]),            // call *8(%rsp)
    (&[0x41, 0xff, 0x53, 0x10], |r, _| read(r.r11 + 0x10)),      // call *0x10(%r11)
    (&[0x41, 0xff, 0x24, 0xfb], |r, _| read(r.r11 + 8 * r.rdi)), // jmp *(%r11,%rdi,8)
    (&[0xff, 0x15, 0x02, 0x02, 0, 0], |r, _| read(r.rsi - 0x80 + 6 + 0x202)), // call *0x202(%rip)
];

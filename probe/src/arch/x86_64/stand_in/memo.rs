//! A table of results: who calls with words that it has gets what came back then.
//!
//! Besides results, an entry has what the call did to the flags of MXCSR and to `errno`: a call that finds it
//! does the same. It counts for calls with the same rounding and masks alone. All of it is true of functions
//! that depend on their arguments and these alone, and change nothing else.
//!
//! ```text
//! entry: word 0: low half: bit 0: it is whole; bit 1: somebody writes it; above, a number that grows with
//!                each writing; high half: errno, 0 if the call has not set it
//!        word 1: low half: bits of MXCSR to look at; high half: what they are, and bit 31 if errno was set
//!        then the arguments, then the results
//! ```
//! A reader looks at word 0 before and after; who writes takes it by an atomic exchange, and who finds it
//! taken does not write: so nobody waits, be it a signal handler in the middle of a writing.
//!
//! Source: VPROF, section 2.2 (memoisation); H. Boehm, "Can seqlocks get along with programming language
//! memory models?", MSPC 2012, for why reading so is right where loads keep their order.

use super::{
    Assembler, CONTROL, FLAGS, MASKS, ORIGINAL, StandIn, To, Word, Words, Written, at, errno_at, narrow,
    nowhere,
};
use crate::arch::x86_64::snippet::NoValue;
use iced_x86::{Code, Instruction, Register};

/// No table has more entries.
pub const MOST_ENTRIES: u32 = 1 << 20;

/// An odd number whose multiples have well-mixed upper bits: 2⁶⁴ divided by the golden ratio.
///
/// Source: Knuth, The Art of Computer Programming, vol. 3, 6.4.
const FACTOR: i64 = 0x9e37_79b9_7f4a_7c15_u64.cast_signed();
/// The bit that says that errno was set.
const SETS_ERRNO: i32 = i32::MIN;

/// Where the parts of an entry are.
const SEEN: i32 = 8;
const STATE: i32 = 12;
const ARGUMENTS: i32 = 16;

use Register::{EAX, R10, R10D, R11, RAX, RSP};

/// What calls of a function may change beside its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// Nothing.
    Nothing,
    /// Flags of MXCSR, and errno, which is so far from where the thread pointer leads, if there is one.
    State(Option<i32>),
}

/// Such a table of `n_entries`, a power of two, for a function of these `words`.
///
/// # Errors
/// If the code cannot be written: no function takes as many words as that.
pub fn memo(words: &Words, n_entries: u32, changes: Changes) -> Result<StandIn, NoValue> {
    let n_entries = n_entries.next_power_of_two().clamp(1, MOST_ENTRIES);
    let mut memo = Memo::new(words, changes);
    let (miss, slow, hit) = (memo.a.label(), memo.a.label(), memo.a.label());
    memo.find(n_entries, miss)?;
    memo.compare(miss, slow)?;
    memo.a.here(hit);
    memo.give(miss)?;
    memo.a.here(slow);
    if memo.has_flags {
        memo.set_state(miss, hit)?;
    }
    memo.a.here(miss);
    memo.call_and_keep()?;
    let mut made = memo.a.finish()?;
    made.data_len = u64::from(n_entries) << memo.shift;
    made.changes.add(words.of_results());
    Ok(made)
}

struct Memo<'a> {
    a: Assembler,
    words: &'a Words,
    has_flags: bool,
    errno: Option<i32>,
    /// The length of an entry, as a power of two.
    shift: u32,
}

impl Memo<'_> {
    fn new(words: &Words, changes: Changes) -> Memo<'_> {
        let n_words = 2 + words.arguments.len() + words.results.len();
        let shift = 3 + n_words.next_power_of_two().trailing_zeros();
        let (has_flags, errno) = match changes {
            Changes::Nothing => (false, None),
            Changes::State(errno) => (true, errno),
        };
        Memo { a: Assembler::new(&[ORIGINAL]), words, has_flags, errno, shift }
    }

    /// Where argument `n` is in an entry; behind the last one are the results.
    fn place(&self, n: usize) -> i32 {
        ARGUMENTS + 8 * i32::try_from(n).unwrap_or(i32::MAX / 16)
    }

    fn result(&self, n: usize) -> i32 {
        self.place(self.words.arguments.len() + n)
    }

    /// r11 is where the entry of these arguments is, rax its first word; it goes to `miss` if nothing is
    /// there.
    fn find(&mut self, n_entries: u32, miss: super::Label) -> Written {
        let a = &mut self.a;
        a.put(Instruction::with2(Code::Mov_r64_imm64, R10, FACTOR)?)?;
        for (n, word) in self.words.arguments.iter().enumerate() {
            a.read(if n == 0 { R11 } else { RAX }, *word)?;
            if n > 0 {
                a.put(Instruction::with2(Code::Xor_r64_rm64, R11, RAX)?)?;
            }
            a.put(Instruction::with2(Code::Imul_r64_rm64, R11, R10)?)?;
        }
        match n_entries.trailing_zeros() {
            0 => a.put(Instruction::with2(Code::Xor_r32_rm32, Register::R11D, Register::R11D)?)?,
            bits => {
                a.put(Instruction::with2(Code::Shr_rm64_imm8, R11, 64 - bits)?)?;
                a.put(Instruction::with2(Code::Shl_rm64_imm8, R11, self.shift)?)?;
            }
        }
        a.put_to(Instruction::with2(Code::Lea_r64_m, R10, nowhere())?, To::Data(0))?;
        a.put(Instruction::with2(Code::Add_r64_rm64, R11, R10)?)?;
        a.load(RAX, at(R11, 0))?;
        a.with_number(Code::Test_AL_imm8, Register::AL, 1)?;
        a.jump(Code::Je_rel32_64, miss)
    }

    /// Goes to `miss` if the entry is of other arguments, and to `slow` if more must be done than to give
    /// results.
    fn compare(&mut self, miss: super::Label, slow: super::Label) -> Written {
        for (n, word) in self.words.arguments.iter().enumerate() {
            let place = at(R11, self.place(n));
            self.a.read(R10, *word)?;
            self.a.put(Instruction::with2(Code::Cmp_r64_rm64, R10, place)?)?;
            self.a.jump(Code::Jne_rel32_64, miss)?;
        }
        if !self.has_flags {
            return Ok(());
        }
        let a = &mut self.a;
        // The red zone is nobody's here.
        a.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, -8))?)?;
        a.load(R10D, at(RSP, -8))?;
        a.put(Instruction::with2(Code::And_r32_rm32, R10D, at(R11, SEEN))?)?;
        a.put(Instruction::with2(Code::Cmp_r32_rm32, R10D, at(R11, STATE))?)?;
        a.jump(Code::Jne_rel32_64, slow)
    }

    /// Returns with the results, if the entry is still the one that was looked at.
    fn give(&mut self, miss: super::Label) -> Written {
        let results = self.words.results.clone();
        let last = results.len().saturating_sub(1);
        for n in 0..results.len() {
            self.a.load(R10, at(R11, self.result(n)))?;
            if n < last {
                self.a.store(at(RSP, -16), R10)?;
            }
        }
        self.a.put(Instruction::with2(Code::Cmp_r64_rm64, RAX, at(R11, 0))?)?;
        self.a.jump(Code::Jne_rel32_64, miss)?;
        if let [.., word] = results[..] {
            self.a.give(word, R10)?;
        }
        if let [first, _] = results[..] {
            self.a.load(R10, at(RSP, -16))?;
            self.a.give(first, R10)?;
        }
        self.a.put(Instruction::with(Code::Retnq))
    }

    /// Raises the flags that the call has raised, and sets errno as it did, if the entry counts for such
    /// calls.
    fn set_state(&mut self, miss: super::Label, hit: super::Label) -> Written {
        let a = &mut self.a;
        a.load(R10D, at(RSP, -8))?;
        a.put(Instruction::with2(Code::Xor_r32_rm32, R10D, at(R11, STATE))?)?;
        a.with_number(Code::Test_rm32_imm32, R10D, CONTROL)?;
        a.jump(Code::Jne_rel32_64, miss)?;
        a.load(R10D, at(R11, STATE))?;
        a.with_number(Code::And_rm32_imm8, R10D, FLAGS)?;
        a.put(Instruction::with2(Code::Or_rm32_r32, at(RSP, -8), R10D)?)?;
        a.put(Instruction::with2(Code::Cmp_r64_rm64, RAX, at(R11, 0))?)?;
        a.jump(Code::Jne_rel32_64, miss)?;
        a.put(Instruction::with1(Code::Ldmxcsr_m32, at(RSP, -8))?)?;
        if let Some(errno) = self.errno {
            a.mov(R10, RAX)?;
            a.put(Instruction::with2(Code::Shr_rm64_imm8, R10, 32)?)?;
            a.jump(Code::Je_rel32_64, hit)?;
            a.store(errno_at(errno), R10D)?;
        }
        a.jump(Code::Jmp_rel32_64, hit)
    }

    /// Calls the function, and keeps what it did.
    fn call_and_keep(&mut self) -> Written {
        let frame = Frame::of(self.words);
        let out = self.a.label();
        if self.has_flags {
            self.pass_where_exceptions_are_raised()?;
        }
        self.a.lower(frame.len)?;
        self.save(&frame)?;
        self.a.put_to(Instruction::with1(Code::Call_rm64, nowhere())?, To::Slot(0))?;
        self.take(&frame)?;
        self.write_entry(&frame, out)?;
        self.a.here(out);
        // What else it left in rax means nothing to callers.
        let rax = (0..).zip(&self.words.results).find(|(_, word)| **word == Word::general(0, word.len));
        if let Some((n, _)) = rax {
            self.a.load(RAX, at(RSP, frame.results + 8 * n))?;
        }
        self.a.lower(-frame.len)?;
        self.a.put(Instruction::with(Code::Retnq))
    }

    /// Where an exception would be raised, nothing is remembered.
    fn pass_where_exceptions_are_raised(&mut self) -> Written {
        let a = &mut self.a;
        a.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, -8))?)?;
        a.load(R10D, at(RSP, -8))?;
        a.put(Instruction::with1(Code::Not_rm32, R10D)?)?;
        a.with_number(Code::Test_rm32_imm32, R10D, MASKS)?;
        let none = a.label();
        a.jump(Code::Je_rel32_64, none)?;
        a.put_to(Instruction::with1(Code::Jmp_rm64, nowhere())?, To::Slot(0))?;
        a.here(none);
        Ok(())
    }

    /// Keeps what it is called with; its flags are lowered, and errno is 0.
    fn save(&mut self, frame: &Frame) -> Written {
        let a = &mut self.a;
        a.store(at(RSP, 0), R11)?;
        for (n, word) in (0..).zip(&self.words.arguments) {
            a.read(R10, *word)?;
            a.store(at(RSP, Frame::ARGUMENTS + 8 * n), R10)?;
        }
        if !self.has_flags {
            return Ok(());
        }
        a.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, Frame::BEFORE))?)?;
        a.load(R10D, at(RSP, Frame::BEFORE))?;
        a.with_number(Code::And_rm32_imm32, R10D, !FLAGS)?;
        a.store(at(RSP, Frame::AFTER), R10D)?;
        a.put(Instruction::with1(Code::Ldmxcsr_m32, at(RSP, Frame::AFTER))?)?;
        if let Some(errno) = self.errno {
            a.load(R10D, errno_at(errno))?;
            a.store(at(RSP, frame.errno_before()), R10D)?;
            a.put(Instruction::with2(Code::Mov_rm32_imm32, errno_at(errno), 0)?)?;
        }
        Ok(())
    }

    /// Keeps what it gave and did; flags and errno are then what they are without us.
    fn take(&mut self, frame: &Frame) -> Written {
        let a = &mut self.a;
        for (n, word) in (0..).zip(&self.words.results) {
            a.read(R10, Word { len: 8, ..*word })?;
            a.store(at(RSP, frame.results + 8 * n), R10)?;
        }
        if !self.has_flags {
            return a.put(Instruction::with2(Code::Mov_rm32_imm32, at(RSP, Frame::ERRNO), 0)?);
        }
        a.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, Frame::AFTER))?)?;
        a.load(R10D, at(RSP, Frame::BEFORE))?;
        a.with_number(Code::And_rm32_imm8, R10D, FLAGS)?;
        a.put(Instruction::with2(Code::Or_r32_rm32, R10D, at(RSP, Frame::AFTER))?)?;
        a.store(at(RSP, Frame::ERRNO), R10D)?;
        a.put(Instruction::with1(Code::Ldmxcsr_m32, at(RSP, Frame::ERRNO))?)?;
        let Some(errno) = self.errno else {
            return a.put(Instruction::with2(Code::Mov_rm32_imm32, at(RSP, Frame::ERRNO), 0)?);
        };
        let sets = a.label();
        a.load(R10D, errno_at(errno))?;
        a.store(at(RSP, Frame::ERRNO), R10D)?;
        a.put(Instruction::with2(Code::Test_rm32_r32, R10D, R10D)?)?;
        a.jump(Code::Jne_rel32_64, sets)?;
        a.load(R10D, at(RSP, frame.errno_before()))?;
        a.store(errno_at(errno), R10D)?;
        a.here(sets);
        Ok(())
    }

    /// Writes the entry, and goes to `out` if it is not to be written.
    fn write_entry(&mut self, frame: &Frame, out: super::Label) -> Written {
        let a = &mut self.a;
        if self.has_flags {
            // One that has changed how it is rounded is none of those for which this is.
            a.load(R10D, at(RSP, Frame::BEFORE))?;
            a.put(Instruction::with2(Code::Xor_r32_rm32, R10D, at(RSP, Frame::AFTER))?)?;
            a.with_number(Code::Test_rm32_imm32, R10D, CONTROL)?;
            a.jump(Code::Jne_rel32_64, out)?;
        }
        a.load(R11, at(RSP, 0))?;
        a.load(RAX, at(R11, 0))?;
        a.with_number(Code::Test_AL_imm8, Register::AL, 2)?;
        a.jump(Code::Jne_rel32_64, out)?;
        a.mov(R10D, EAX)?;
        a.with_number(Code::And_rm32_imm8, R10D, !3)?;
        a.with_number(Code::Add_rm32_imm8, R10D, 4 + 2)?;
        let mut exchange = Instruction::with2(Code::Cmpxchg_rm64_r64, at(R11, 0), R10)?;
        exchange.set_has_lock_prefix(true);
        a.put(exchange)?;
        a.jump(Code::Jne_rel32_64, out)?;
        // Arguments and results stand one behind the other, here and there.
        for distance in (0..frame.end - Frame::ARGUMENTS).step_by(8) {
            a.load(RAX, at(RSP, Frame::ARGUMENTS + distance))?;
            a.store(at(R11, ARGUMENTS + distance), RAX)?;
        }
        if self.has_flags {
            a.load(EAX, at(RSP, Frame::AFTER))?;
            a.with_number(Code::And_EAX_imm32, EAX, CONTROL | FLAGS)?;
            a.store(at(R11, STATE), EAX)?;
            a.with_number(Code::Or_EAX_imm32, EAX, CONTROL)?;
            a.store(at(R11, SEEN), EAX)?;
        }
        let whole = a.label();
        a.load(EAX, at(RSP, Frame::ERRNO))?;
        a.put(Instruction::with2(Code::Test_rm32_r32, EAX, EAX)?)?;
        a.jump(Code::Je_rel32_64, whole)?;
        a.put(Instruction::with2(Code::Or_rm32_imm32, at(R11, STATE), SETS_ERRNO)?)?;
        a.here(whole);
        a.put(Instruction::with2(Code::Shl_rm64_imm8, RAX, 32)?)?;
        a.with_number(Code::Sub_rm32_imm8, narrow(R10), 1)?;
        a.put(Instruction::with2(Code::Or_r64_rm64, RAX, R10)?)?;
        a.store(at(R11, 0), RAX)
    }
}

/// What is kept on the stack while the function runs: r11 first.
struct Frame {
    /// Where results are, and where they end.
    results: i32,
    end: i32,
    /// How long it is: with the return address, a multiple of 16.
    len: i32,
}

impl Frame {
    /// MXCSR before and after; then errno, if it was set.
    const BEFORE: i32 = 8;
    const AFTER: i32 = 12;
    const ERRNO: i32 = 16;
    const ARGUMENTS: i32 = 24;

    fn of(words: &Words) -> Frame {
        let words_of = |n: usize| 8 * i32::try_from(n).unwrap_or(0);
        let results = Frame::ARGUMENTS + words_of(words.arguments.len());
        let end = results + words_of(words.results.len());
        Frame { results, end, len: (end + 15) / 16 * 16 + 8 }
    }

    /// Errno before.
    fn errno_before(&self) -> i32 {
        Frame::ERRNO + 4
    }
}

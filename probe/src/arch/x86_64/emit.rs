//! Writing instructions: the few that moving code and counting need, byte by byte.
//!
//! An instruction that is moved keeps its bytes; only what depends on where it stands is written anew: the
//! offset of a direct branch, and that of a `rip`-relative operand.
//!
//! Invariant: what is emitted changes no flag and no register but what its comment says. It leaves the stack
//! as it found it, and writes there only behind the red zone ([`Increment::Spilled`]), but for [`SAVE`] and
//! [`WITH_FIRST_COUNTERS`] at entries, where nothing is below the stack pointer.
//!
//! Source: Intel SDM vol. 2A, 2.2 (prefixes, REX), 2.2.1.6 (`rip`-relative), and the pages of the
//! instructions.

mod keeping;

pub use keeping::{Keeping, can_be_kept, keeping};
use program::arch::{Branch, Reg, RegSet, abi};

/// `jmp` over 32 bits, its offset zero.
pub const JUMP: [u8; 5] = [0xe9, 0, 0, 0, 0];
/// `jmp` over 8 bits, its offset zero.
pub const SHORT_JUMP: [u8; 2] = [0xeb, 0];
/// `call` over 32 bits, without its offset.
pub const CALL: u8 = 0xe8;
/// A prefix (of the size of addresses) that a direct call does not heed: linkers fill with it, too.
pub const NO_PREFIX: u8 = 0x67;
/// `int3`.
pub const TRAP: u8 = 0xcc;

/// The short form of `branch` with the offset zero, which is the last byte; `None` if it has none.
pub fn short(branch: Branch) -> Option<([u8; 3], usize)> {
    match branch {
        Branch::Jump => Some(([0xeb, 0, 0], 2)),
        Branch::Conditional(cc) => Some(([0x70 | cc, 0, 0], 2)),
        Branch::ShortOnly([op, _], 1) => Some(([op, 0, 0], 2)),
        Branch::ShortOnly([prefix, op], _) => Some(([prefix, op, 0], 3)),
        Branch::Call => None,
    }
}

/// What is taken when `branch` is not; `None` if there is no one branch that is.
pub fn inverted(branch: Branch) -> Option<Branch> {
    match branch {
        Branch::Conditional(cc) => Some(Branch::Conditional(cc ^ 1)),
        _ => None,
    }
}

/// The length of the long form of `branch`.
#[inline]
pub fn long_len(branch: Branch) -> usize {
    match branch {
        Branch::Jump | Branch::Call => 5,
        Branch::Conditional(_) => 6,
        Branch::ShortOnly(_, n) => usize::from(n) + 8,
    }
}

/// Appends the long form of `branch` with the offset zero, which is the last four bytes.
pub fn long(branch: Branch, out: &mut Vec<u8>) {
    match branch {
        Branch::Jump => out.extend_from_slice(&JUMP),
        Branch::Call => out.extend_from_slice(&[0xe8, 0, 0, 0, 0]),
        Branch::Conditional(cc) => out.extend_from_slice(&[0x0f, 0x80 | cc, 0, 0, 0, 0]),
        // Over a jump if it is not taken: `loop 1f; jmp 2f; 1: jmp TARGET; 2:`
        Branch::ShortOnly([op, second], n) => {
            out.push(op);
            if n == 2 {
                out.push(second);
            }
            out.extend_from_slice(&[2, 0xeb, 5, 0xe9, 0, 0, 0, 0]);
        }
    }
}

/// Before an entry from outside: whether this thread owns the area that `gs` says. The flags and r11 are dead
/// there.
///
/// ```text
/// rdfsbase %r11; cmp %gs:OWNER(%rip),%r11; je ENTRY; lea ENTRY(%rip),%r11; jmp SLOW
/// ```
/// Not `by_base`: `mov %fs:0,%r11` in place of the first, the word that the thread pointer leads to, which is
/// the same. It is there on all kernels, but not before there is a thread pointer, as in static programs, nor
/// of a thread that was made with one that leads nowhere.
///
/// Returns the bytes and, in this order, the offsets of the distances to OWNER, ENTRY, ENTRY, SLOW; each
/// counts from four bytes further.
pub fn check_owner(by_base: bool) -> ([u8; 35], [usize; 4]) {
    let mut bytes = [
        0x64, 0x4c, 0x8b, 0x1c, 0x25, 0, 0, 0, 0, // mov %fs:0,%r11
        0x65, 0x4c, 0x3b, 0x1d, 0, 0, 0, 0, // cmp %gs:0(%rip),%r11
        0x0f, 0x84, 0, 0, 0, 0, // je
        0x4c, 0x8d, 0x1d, 0, 0, 0, 0, // lea 0(%rip),%r11
        0xe9, 0, 0, 0, 0, // jmp
    ];
    if by_base {
        bytes[..9].copy_from_slice(&READ_BASE);
    }
    (bytes, [13, 19, 26, 31])
}

/// `rdfsbase %r11; nop`: as long as `mov %fs:0,%r11`.
const READ_BASE: [u8; 9] = [0xf3, 0x49, 0x0f, 0xae, 0xc3, 0x0f, 0x1f, 0x40, 0x00];

/// Like [`check_owner`], of a library, whose code may run before it has started: its counters may not be
/// there yet, so first the byte STARTED is looked at, which is the same for all threads.
///
/// ```text
///    rdfsbase %r11; cmpb $0,STARTED(%rip); je 1f; cmp %gs:OWNER(%rip),%r11; je ENTRY
/// 1: lea ENTRY(%rip),%r11; jmp SLOW
/// ```
/// Returns the bytes and, in this order, the offsets of the distances to OWNER, ENTRY, ENTRY, SLOW, which
/// count from four bytes further, and to STARTED, which counts from five bytes further.
pub fn check_started_owner(by_base: bool) -> ([u8; 44], [usize; 5]) {
    let mut bytes = [
        0x64, 0x4c, 0x8b, 0x1c, 0x25, 0, 0, 0, 0, // mov %fs:0,%r11
        0x80, 0x3d, 0, 0, 0, 0, 0, // cmpb $0,0(%rip)
        0x74, 14, // je 1f
        0x65, 0x4c, 0x3b, 0x1d, 0, 0, 0, 0, // cmp %gs:0(%rip),%r11
        0x0f, 0x84, 0, 0, 0, 0, // je
        0x4c, 0x8d, 0x1d, 0, 0, 0, 0, // 1: lea 0(%rip),%r11
        0xe9, 0, 0, 0, 0, // jmp
    ];
    if by_base {
        bytes[..9].copy_from_slice(&READ_BASE);
    }
    (bytes, [22, 28, 35, 40, 11])
}

/// A check in front of an entry, which control runs through if all is well, and in front of that where it
/// goes otherwise.
///
/// ```text
///    4: lea 2f(%rip),%r11; jmp SIGNAL
///    3: lea 1f(%rip),%r11; jmp SLOW
///       rdfsbase %r11; cmpb $0,STARTED(%rip); je 3b; cmp %gs:OWNER(%rip),%r11; jne 3b
///    1: lea 8(%rsp),%r11; cmp %r11,%rdx; je 4b
///    2:
/// ```
/// The flags and r11 are dead there.
#[derive(Clone, Debug, Default)]
pub struct EntryCheck {
    /// Where it goes otherwise.
    pub found: Vec<u8>,
    /// The check itself.
    pub check: Vec<u8>,
    /// Offsets in `found` of the distances to SIGNAL, if that is asked, and SLOW, which count from four bytes
    /// further.
    pub signal: Option<usize>,
    /// See `signal`.
    pub slow: usize,
    /// Offset in `check` of the distance to STARTED, if that is asked; it counts from five bytes further.
    pub started: Option<usize>,
    /// Offset in `check` of the distance to OWNER, which counts from four bytes further.
    pub owner: usize,
}

impl EntryCheck {
    /// Whether one changes any of the registers and flags that are `live`.
    pub fn changes(live: RegSet) -> bool {
        live.contains(Reg::general(11)) || !live.both(abi::FLAGS).is_empty()
    }

    /// By the base of `fs` or by the word there (`by_base`, see [`check_owner`]); of a library that may not
    /// have started (`asks_started`); before what may be a signal handler (`asks_signal`).
    pub fn new(by_base: bool, asks_started: bool, asks_signal: bool) -> EntryCheck {
        const BY_WAY: usize = BY_WAY_OF.0.len();
        let (owner_check, _) = check_owner(by_base);
        let mut all = EntryCheck::default();
        let n_found = if asks_signal { 2 * BY_WAY } else { BY_WAY };
        let slow_at = n_found - BY_WAY;
        // A short conditional jump back to `to` in `found`.
        let back = |check: &mut Vec<u8>, op: u8, to: usize| {
            let distance = i8::try_from(to.cast_signed() - (n_found + check.len() + 2).cast_signed());
            check.extend([op, distance.expect("a few bytes").cast_unsigned()]);
        };
        all.check.extend_from_slice(&owner_check[..9]);
        if asks_started {
            all.started = Some(all.check.len() + 2);
            all.check.extend([0x80, 0x3d, 0, 0, 0, 0, 0]);
            back(&mut all.check, 0x74, slow_at);
        }
        all.owner = all.check.len() + 4;
        all.check.extend_from_slice(&owner_check[9..17]);
        back(&mut all.check, 0x75, slow_at);
        let after_owner = all.check.len();
        if asks_signal {
            all.check.extend_from_slice(&CHECK_SIGNAL.0[..8]);
            back(&mut all.check, 0x74, 0);
        }
        let (by_way, [next, other]) = BY_WAY_OF;
        let ways = [asks_signal.then_some(all.check.len()), Some(after_owner)];
        for on in ways.into_iter().flatten() {
            let at = all.found.len();
            let mut bytes = by_way;
            let distance = u8::try_from(n_found + on - (at + next + 4)).expect("a few bytes");
            bytes[next] = distance;
            all.found.extend(bytes);
            all.slow = at + other;
        }
        all.signal = asks_signal.then_some(other);
        all
    }
}

/// Behind a call that may return in a new process: whether the counters are still this one's. The flags and
/// r11 are dead there. Like [`check_owner`], going on behind itself; the offsets are those of the distances
/// to OWNER and SLOW.
pub fn check_owner_here(by_base: bool) -> ([u8; 35], [usize; 2]) {
    let (mut bytes, [owner, je, lea, slow]) = check_owner(by_base);
    let end = bytes.len();
    for place in [je, lea] {
        let distance = u8::try_from(end - (place + 4)).expect("a few bytes");
        bytes[place] = distance;
    }
    (bytes, [owner, slow])
}

/// Before an entry that may be a signal handler's: whether the kernel came, which passes the address
/// right above the return address as the third argument. The flags and r11 are dead there.
///
/// ```text
/// lea 8(%rsp),%r11; cmp %r11,%rdx; jne ENTRY; lea ENTRY(%rip),%r11; jmp SIGNAL
/// ```
/// Returns the bytes and, in this order, the offsets of the distances to ENTRY, ENTRY, SIGNAL; each counts
/// from four bytes further.
pub const CHECK_SIGNAL: ([u8; 26], [usize; 3]) = (
    [
        0x4c, 0x8d, 0x5c, 0x24, 0x08, // lea 8(%rsp),%r11
        0x4c, 0x39, 0xda, // cmp %r11,%rdx
        0x0f, 0x85, 0, 0, 0, 0, // jne
        0x4c, 0x8d, 0x1d, 0, 0, 0, 0, // lea 0(%rip),%r11
        0xe9, 0, 0, 0, 0, // jmp
    ],
    [10, 17, 22],
);

/// The same where [`SAVE`] stands before: goes on at RESTORE if it is none, and at ENTRY without what was put
/// away if it is one.
///
/// ```text
/// lea 16(%rsp),%r11; cmp %r11,%rdx; jne RESTORE; pop %r11; lea ENTRY(%rip),%r11; jmp SIGNAL
/// ```
/// Returns the bytes and the offsets of the distances to RESTORE, ENTRY and SIGNAL.
pub const CHECK_SAVED_SIGNAL: ([u8; 28], [usize; 3]) = (
    [
        0x4c, 0x8d, 0x5c, 0x24, 0x10, // lea 16(%rsp),%r11
        0x4c, 0x39, 0xda, // cmp %r11,%rdx
        0x0f, 0x85, 0, 0, 0, 0, // jne
        0x41, 0x5b, // pop %r11
        0x4c, 0x8d, 0x1d, 0, 0, 0, 0, // lea 0(%rip),%r11
        0xe9, 0, 0, 0, 0, // jmp
    ],
    [10, 19, 24],
);

/// `lea NEXT(%rip),%r11; jmp OTHER`: goes on at NEXT by way of OTHER. Returns the bytes and the offsets of
/// the distances to NEXT and OTHER.
pub const BY_WAY_OF: ([u8; 12], [usize; 2]) = ([0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0], [3, 8]);

/// `push %r11`: before a check of an entry whose callers may keep a value there.
pub const SAVE: [u8; 2] = [0x41, 0x53];

/// `pop %r11; jmp ENTRY`: behind such a check. Returns the bytes and the offset of the distance to ENTRY.
pub const RESTORE: ([u8; 7], usize) = ([0x41, 0x5b, 0xe9, 0, 0, 0, 0], 3);

/// What control meets that comes back to old code from a call which that made: bytes, and the offsets of the
/// distances to where it goes on and to the routine of the runtime.
pub enum Return {
    /// Below the stack pointer, nothing is kept; r11 and the flags are free.
    FromCall([u8; 14], [usize; 2]),
    /// The red zone and the flags are kept; r11 is free, for the kernel has overwritten it.
    FromKernel([u8; 19], [usize; 2]),
}

/// `push %r11; lea NEXT(%rip),%r11; jmp RETURNED`: behind a call.
pub const RETURN: Return =
    Return::FromCall([0x41, 0x53, 0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0], [5, 10]);

/// `lea -128(%rsp),%rsp; lea NEXT(%rip),%r11; push %r11; jmp TAKEN_OVER`: behind a system call.
pub const RETURN_FROM_KERNEL: Return = Return::FromKernel(
    [0x48, 0x8d, 0x64, 0x24, 0x80, 0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x41, 0x53, 0xe9, 0, 0, 0, 0],
    [8, 15],
);

/// In place of a PLT stub for a function that the module has itself: straight to where that
/// is moved, if its slot leads to it.
///
/// ```text
/// lea OLD(%rip),%r11; cmp %r11,SLOT(%rip); je NEW; jmp *SLOT(%rip)
/// ```
/// Returns the bytes, padded, and the offsets of the distances to OLD, SLOT, NEW and SLOT.
pub const OWN_STUB: ([u8; 32], [usize; 4]) = (
    [
        0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x4c, 0x39, 0x1d, 0, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0xff, 0x25, 0, 0,
        0, 0, TRAP, TRAP, TRAP, TRAP, TRAP, TRAP,
    ],
    [3, 10, 16, 22],
);

/// In place of an entry that may be called while the counters of the calling thread are not there yet: calls
/// it with the first thread's.
///
/// ```text
/// push %rbx; rdgsbase %rbx; xor %r11d,%r11d; wrgsbase %r11; call ENTRY; wrgsbase %rbx; pop %rbx; ret
/// ```
/// Returns the bytes and the offset of the distance to ENTRY.
pub const WITH_FIRST_COUNTERS: ([u8; 26], usize) = (
    [
        0x53, 0xf3, 0x48, 0x0f, 0xae, 0xcb, 0x45, 0x31, 0xdb, 0xf3, 0x49, 0x0f, 0xae, 0xdb, 0xe8, 0, 0, 0, 0,
        0xf3, 0x48, 0x0f, 0xae, 0xdb, 0x5b, 0xc3,
    ],
    15,
);

/// The recommended no-operation of each length, 1 to 9 bytes. Source: Intel SDM vol. 2B, NOP, table 4-12.
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

/// Appends `n` bytes that do nothing.
pub fn pad(out: &mut Vec<u8>, n: usize) {
    let mut left = n;
    while left > 0 {
        let len = left.min(NOPS.len());
        out.extend(NOPS[len - 1]);
        left -= len;
    }
}

/// Where the stack is while code of ours runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// The stack pointer is so many bytes lower than around it.
    Lower(u32),
    /// The same, while a call of the program's own is made: what it throws passes.
    Call(u32),
    /// r12 holds what the stack pointer was, so many bytes lower; where it is now is not known.
    HeldInR12(u32),
}

/// `lea 1(%reg),%reg`: increments it, flags stay.
pub fn count_in(reg: Reg) -> Vec<u8> {
    add_in(reg, 1)
}

/// `lea n(%reg),%reg`: adds to it, flags stay.
fn add_in(reg: Reg, n: u8) -> Vec<u8> {
    let (high, low) = (reg.number() >> 3 & 1, reg.number() & 7);
    let mut out = vec![0x48 | high << 2 | high, 0x8d, 0x40 | low << 3 | low];
    if low == 4 {
        out.push(0x24);
    }
    out.push(n);
    out
}

/// `mov $0,%reg`, of its low half, which clears the other; flags stay.
pub fn clear(reg: Reg) -> Vec<u8> {
    let (high, low) = (reg.number() >> 3 & 1, reg.number() & 7);
    let mut out = if high == 1 { vec![0x41] } else { Vec::new() };
    out.push(0xb8 | low);
    out.extend([0; 4]);
    out
}

/// How an increment can be written at a place, by what is live there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Increment {
    /// The flags are dead: `inc`.
    Flags,
    /// This general register is dead: `mov`, `lea`, `mov`.
    Through(Reg),
    /// Nothing is dead: a register is kept below the red zone, the stack pointer stepped over it.
    Spilled,
}

impl Increment {
    /// The most that can be added at once.
    pub const MOST: u8 = 127;

    /// The cheapest way, `live` being what must not change.
    pub fn at(live: RegSet) -> Increment {
        if live.both(abi::FLAGS).minus(abi::CARRY).is_empty() {
            return Increment::Flags;
        }
        let free = (0..16).map(Reg::general).find(|&r| !live.contains(r) && !abi::ALWAYS_LIVE.contains(r));
        free.map_or(Increment::Spilled, Increment::Through)
    }

    /// The same, where more than 1 is added at once, which leaves no flag as it was.
    pub fn by_many_at(live: RegSet) -> Increment {
        match Increment::at(live) {
            Increment::Flags if !live.both(abi::CARRY).is_empty() => Increment::at(live.union(abi::FLAGS)),
            how => how,
        }
    }

    /// Where the stack pointer moves in what [`Increment::emit`] writes: offset of the next instruction, and
    /// where it is from there on.
    pub fn stack(self) -> &'static [(usize, Stack)] {
        match self {
            Increment::Spilled => &[
                (5, Stack::Lower(128)),
                (6, Stack::Lower(136)),
                (27, Stack::Lower(128)),
                (35, Stack::Lower(0)),
            ],
            Increment::Flags | Increment::Through(_) => &[],
        }
    }

    /// Appends the increment of the 8-byte counter at `gs:[rip+…]`. Returns where its offsets stand: each is
    /// the four bytes before the returned position's second number, the end of that instruction.
    pub fn emit(self, out: &mut Vec<u8>) -> impl Iterator<Item = (usize, usize)> + use<> {
        self.emit_adding(1, out)
    }

    /// The same, but that `n` is added, from 1 to [`Increment::MOST`]: more than 1 where the flags are dead
    /// that [`Increment::by_many_at`] asks for.
    pub fn emit_adding(self, n: u8, out: &mut Vec<u8>) -> impl Iterator<Item = (usize, usize)> + use<> {
        assert!((1..=Increment::MOST).contains(&n));
        let mut places = [None; 2];
        let mut place = |out: &mut Vec<u8>, head: &[u8], behind: &[u8]| {
            out.extend_from_slice(head);
            let free = places.iter_mut().find(|p| p.is_none()).expect("there are two at most");
            *free = Some((out.len(), out.len() + 4 + behind.len()));
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(behind);
        };
        match self {
            Increment::Flags if n == 1 => place(out, &[0x65, 0x48, 0xff, 0x05], &[]),
            Increment::Flags => place(out, &[0x65, 0x48, 0x83, 0x05], &[n]),
            Increment::Through(reg) => {
                let (high, low) = (reg.number() >> 3 & 1, reg.number() & 7);
                place(out, &[0x65, 0x48 | high << 2, 0x8b, 0x05 | low << 3], &[]);
                out.extend(add_in(reg, n));
                place(out, &[0x65, 0x48 | high << 2, 0x89, 0x05 | low << 3], &[]);
            }
            Increment::Spilled => {
                out.extend([0x48, 0x8d, 0x64, 0x24, 0x80]); // lea -128(%rsp),%rsp
                out.push(0x50); // push %rax
                place(out, &[0x65, 0x48, 0x8b, 0x05], &[]);
                out.extend([0x48, 0x8d, 0x40, n]); // lea n(%rax),%rax
                place(out, &[0x65, 0x48, 0x89, 0x05], &[]);
                out.push(0x58); // pop %rax
                out.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea 128(%rsp),%rsp
            }
        }
        places.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;

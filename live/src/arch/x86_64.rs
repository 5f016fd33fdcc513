//! x86-64: where a system call's number, arguments and result stand.
//!
//! Source: syscall(2).

use std::mem::offset_of;

use nix::libc::{EINTR, SYS_execve, SYS_execveat, c_long, user_regs_struct};

/// The instruction that enters the kernel.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// `regs` with a system call's number and arguments.
pub fn with_call(regs: user_regs_struct, number: c_long, args: [u64; 6]) -> user_regs_struct {
    let mut regs = regs;
    regs.rax = number.cast_unsigned();
    // Not in a system call: the kernel would otherwise restart the `execve`.
    regs.orig_rax = u64::MAX;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
    regs
}

/// What a system call gave back.
pub fn result(regs: &user_regs_struct) -> u64 {
    regs.rax
}

/// Address of the next instruction.
pub fn instruction_pointer(regs: &user_regs_struct) -> u64 {
    regs.rip
}

/// Address of the top of the stack.
pub fn stack_pointer(regs: &user_regs_struct) -> u64 {
    regs.rsp
}

/// Whether the system call that is about to be made is an `execve` or `execveat`.
pub fn is_exec(regs: &user_regs_struct) -> bool {
    [SYS_execve, SYS_execveat].iter().any(|number| regs.orig_rax == number.cast_unsigned())
}

/// The registers that the kernel tells with an event: `PERF_REG_X86_SP`, then `PERF_REG_X86_IP`, a bit each,
/// told in this order.
pub const SAMPLED: u64 = 1 << 7 | 1 << 8;
/// The same, with `PERF_REG_X86_BP` in front.
pub const SAMPLED_FOR_CHAINS: u64 = 1 << 6 | SAMPLED;

/// Whether it is in a system call, which it may make again.
pub fn is_in_call(regs: &user_regs_struct) -> bool {
    regs.orig_rax.cast_signed() >= 0
}

/// `regs` so that a system call is made again which ended for a signal, or for our stop; `None` if none did.
pub fn made_again(regs: &user_regs_struct) -> Option<user_regs_struct> {
    let is_ended = is_in_call(regs) && regs.rax.cast_signed() == -i64::from(EINTR);
    // Not in a call any more: the kernel makes none again by itself.
    let again = user_regs_struct {
        rax: regs.orig_rax,
        orig_rax: u64::MAX,
        rip: regs.rip.wrapping_sub(SYSCALL.len() as u64),
        ..*regs
    };
    is_ended.then_some(again)
}

/// What it is known by to its C library.
pub fn thread_pointer(regs: &user_regs_struct) -> u64 {
    regs.fs_base
}

/// What its registers hold that may be addresses: not r11, which our checks at entries change and leave
/// behind.
pub fn words(regs: &user_regs_struct) -> [u64; 14] {
    let user_regs_struct { rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, .. } = *regs;
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, regs.r12, regs.r13, regs.r14, regs.r15]
}

/// The base of `gs`, by which threads find their counters.
pub fn counters_base(regs: &user_regs_struct) -> u64 {
    regs.gs_base
}

/// `regs` of a thread that has no counters.
pub fn without_counters(regs: user_regs_struct) -> user_regs_struct {
    user_regs_struct { gs_base: 0, ..regs }
}

/// Where the base of `gs` is among a thread's registers, as the kernel takes them one by one.
pub const COUNTERS_BASE: usize = offset_of!(user_regs_struct, gs_base);

/// Those of `regs` that stand first, up to the bases of segments.
pub fn without_bases(regs: &user_regs_struct) -> [u64; 21] {
    let &user_regs_struct { r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, .. } =
        regs;
    let &user_regs_struct { orig_rax, rip, cs, eflags, rsp, ss, .. } = regs;
    [
        r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs, eflags,
        rsp, ss,
    ]
}

// They are all that stands before the bases.
const _: () = assert!(offset_of!(user_regs_struct, fs_base) == 21 * size_of::<u64>());

/// `regs` of a thread that goes on at `at`.
pub fn going_on_at(regs: user_regs_struct, at: u64) -> user_regs_struct {
    user_regs_struct { rip: at, ..regs }
}

/// How much is kept below the stack pointer (System V ABI, 3.2.2).
pub const RED_ZONE: u64 = 128;

/// `regs` of a thread that goes by way of `routine`, `Runtime::taken_over`, and where on its stack that finds
/// where to go on.
pub fn by_way_of(regs: user_regs_struct, routine: u64) -> (user_regs_struct, u64) {
    let rsp = regs.rsp.wrapping_sub(RED_ZONE + 8);
    (user_regs_struct { rip: routine, rsp, ..regs }, rsp)
}

/// The same of a thread that was to go by way of it to `to`, and goes there at once.
pub fn not_by_way(regs: user_regs_struct, to: u64) -> user_regs_struct {
    user_regs_struct { rip: to, rsp: regs.rsp.wrapping_add(RED_ZONE + 8), ..regs }
}

/// What threads of ours in another process run: a system call; then, should we be no more, its own end. A
/// word behind that leads to the end, for whoever returns. Behind that, all calls of a table
/// ([`at_calls`]): before each, it is looked whether we live, and a word that says what the call uses up is
/// made 0; in the end, or as we are no more, its end with status 0, and as a call fails, with its error.
pub const HELPER_CODE: [u8; 104] = {
    let [enter, kernel] = SYSCALL;
    let [a, b, c, d, e, f, g, h] = HELPER_END;
    [
        // The system call; xor %edi,%edi; mov $60,%eax (exit, of the thread alone); syscall; up to the word.
        enter, kernel, 0x31, 0xff, 0xb8, 60, 0, 0, 0, enter, kernel, 0x90, 0x90, 0x90, 0x90, 0x90, //
        a, b, c, d, e, f, g, h, //
        // next: cmp %rbp,%rbx; jae end; testl $0x40000000,(%r14); jne end
        0x48, 0x39, 0xeb, 0x73, 0xe5, 0x41, 0xf7, 0x06, 0, 0, 0, 0x40, 0x75, 0xdc, //
        // mov 56(%rbx),%rax; movq $0,(%rax); mov (%rbx),%rax; mov 8(%rbx),%rdi; mov 16(%rbx),%rsi
        0x48, 0x8b, 0x43, 56, 0x48, 0xc7, 0, 0, 0, 0, 0, 0x48, 0x8b, 0x03, 0x48, 0x8b, 0x7b, 8, 0x48, 0x8b,
        0x73, 16, //
        // mov 24(%rbx),%rdx; mov 32(%rbx),%r10; mov 40(%rbx),%r8; mov 48(%rbx),%r9; syscall
        0x48, 0x8b, 0x53, 24, 0x4c, 0x8b, 0x53, 32, 0x4c, 0x8b, 0x43, 40, 0x4c, 0x8b, 0x4b, 48, enter,
        kernel, //
        // cmp $-4095,%rax; jae failed; add $64,%rbx; jmp next
        0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 6, 0x48, 0x83, 0xc3, 64, 0xeb, 0xbc, //
        // failed: mov %eax,%edi; neg %edi; mov $60,%eax; syscall
        0x89, 0xc7, 0xf7, 0xdf, 0xb8, 60, 0, 0, 0, enter, kernel, 0x90,
    ]
};
/// Where the code of a table's calls is, from the start.
const HELPER_CALLS: u64 = 24;
/// Where that word is, from the start.
pub const HELPER_STACK: u64 = 16;
const HELPER_END: [u8; 8] = (probe::arch::shared::HELPER + SYSCALL.len() as u64).to_le_bytes();

/// A row of a table of calls, as [`HELPER_CODE`] reads it: what is called, and a word that is made 0 before.
pub fn call_row(number: c_long, args: [u64; 6], before: u64) -> [u64; CALL_ROW_LEN] {
    let [a, b, c, d, e, f] = args;
    [number.cast_unsigned(), a, b, c, d, e, f, before]
}
/// How many words that is.
pub const CALL_ROW_LEN: usize = 8;

/// `regs` of a thread of ours that makes all calls of the `table`, as long as the lock (of pthreads, robust)
/// at `alive` is held.
pub fn at_calls(regs: user_regs_struct, table: std::ops::Range<u64>, alive: u64) -> user_regs_struct {
    user_regs_struct {
        rip: probe::arch::shared::HELPER + HELPER_CALLS,
        rbx: table.start,
        rbp: table.end,
        r14: alive,
        orig_rax: u64::MAX,
        ..regs
    }
}

/// A function that is called, and the stack that it finds, with where it returns to on it.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// Where it is.
    pub at: u64,
    /// The stack pointer.
    pub stack: u64,
}

/// `regs` of a thread that is about to call a function with these general registers, by number. Flags are as
/// the ABI has them there.
pub fn about_to_call(regs: user_regs_struct, general: &[u64; 16], called: Called) -> user_regs_struct {
    let &[rax, rcx, rdx, rbx, _, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15] = general;
    user_regs_struct {
        rax,
        rcx,
        rdx,
        rbx,
        rbp,
        rsi,
        rdi,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rsp: called.stack,
        rip: called.at,
        eflags: 0x202,
        // In no call: the kernel makes none again.
        orig_rax: u64::MAX,
        ..regs
    }
}

/// The general registers of `regs`, by number.
pub fn general_by_number(regs: &user_regs_struct) -> [u64; 16] {
    let &user_regs_struct { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, .. } = regs;
    [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, regs.r12, regs.r13, regs.r14, regs.r15]
}

/// The number of the system call that it is about to make.
pub fn call_number(regs: &user_regs_struct) -> u64 {
    regs.orig_rax
}

/// Where MXCSR and the vector registers are in what `fxsave` writes (Intel SDM vol. 1, table 10-2).
const MXCSR_AT: usize = 24;
const VECTORS_AT: usize = 160;

/// Has `state`, as `fxsave` writes it, hold these low halves of vector registers, and this control word; the
/// upper halves are zeros.
pub fn set_called_vectors(state: &mut [u8; 512], vectors: &[u64; 16], mxcsr: u32) {
    state[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&mxcsr.to_le_bytes());
    for (place, value) in state[VECTORS_AT..VECTORS_AT + 256].chunks_exact_mut(16).zip(vectors) {
        place[..8].copy_from_slice(&value.to_le_bytes());
        place[8..].fill(0);
    }
}

/// The low halves of vector registers in `state`, as `fxsave` writes it, and the control word.
pub fn called_vectors(state: &[u8; 512]) -> ([u64; 16], u32) {
    let word = |at: usize| (0..8).rev().fold(0, |all, n| all << 8 | u64::from(state[at + n]));
    let mxcsr = (0..4).rev().fold(0, |all, n| all << 8 | u32::from(state[MXCSR_AT + n]));
    (std::array::from_fn(|n| word(VECTORS_AT + 16 * n)), mxcsr)
}

/// `syscall; ret`: by which a thread of a program makes a system call for us, and goes home.
pub const CALL_AND_RETURN: [u8; 3] = [SYSCALL[0], SYSCALL[1], 0xc3];

/// What is put on the stack of a thread that works for us: the state that it had, as the kernel puts it there
/// for a signal handler, so that it finds it again by itself.
pub struct WayHome {
    /// Where it goes.
    pub at: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The stack pointer for who makes a call and returns: there stands the address of what goes home.
    pub stack_pointer: u64,
}

/// That of a thread with these registers, this `vector_state` and these `blocked` signals, `home` being the
/// code that goes back from signal handlers.
///
/// Source: Linux, arch/x86/include/uapi/asm/sigcontext.h, ucontext.h; kernel/signal_64.c, fpu/signal.c.
pub fn way_home(regs: &user_regs_struct, vector_state: &[u8], blocked: u64, home: u64) -> WayHome {
    const MAGIC_1: u32 = 0x4650_5853;
    const MAGIC_2: u32 = 0x4650_5845;
    /// Features that a program has to ask for, and whose state is last: tiles.
    const TILES: u64 = 3 << 17;
    const WITHOUT_TILES: usize = 2696;
    /// Where what is kept of the state is in it.
    const SOFTWARE: usize = 464;
    const UCONTEXT_LEN: u64 = 304;
    // Saved by xsave, segments as they were.
    const FLAGS: u64 = 1 | 2 | 4;
    // None that there is: the stack for signal handlers stays what it is.
    const NO_STACK: u64 = 0xff;

    let mut state = vector_state.to_vec();
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied();
        word.map_or(0, u64::from_le_bytes)
    };
    let mut features = word(&state, SOFTWARE);
    if features & TILES != 0 {
        features &= !TILES;
        state.truncate(WITHOUT_TILES);
    }
    let len = u32::try_from(state.len()).expect("a few thousand bytes");
    if let Some(kept) = state.get_mut(SOFTWARE..SOFTWARE + 48) {
        kept.fill(0);
        kept[..4].copy_from_slice(&MAGIC_1.to_le_bytes());
        kept[4..8].copy_from_slice(&(len + 4).to_le_bytes());
        kept[8..16].copy_from_slice(&features.to_le_bytes());
        kept[16..20].copy_from_slice(&len.to_le_bytes());
    }
    state.extend(MAGIC_2.to_le_bytes());
    let state_at = (regs.rsp - RED_ZONE - state.len() as u64) & !63;
    let context_at = (state_at - UCONTEXT_LEN) & !15;
    let r = going_home(regs);
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let words = [
        home, FLAGS, 0, 0, NO_STACK, 0, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi,
        r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags, segments, 0, 0, 0, 0, state_at, 0, 0, 0,
        0, 0, 0, 0, 0, blocked,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let at = context_at - 8;
    bytes.resize(usize::try_from(state_at - at).expect("it is above"), 0);
    bytes.extend(state);
    WayHome { at, bytes, stack_pointer: at }
}

/// `regs` of a thread that goes on by itself: a system call that the kernel would make again is made again.
///
/// Source: Linux, arch/x86/kernel/signal.c, `arch_do_signal_or_restart`.
fn going_home(regs: &user_regs_struct) -> user_regs_struct {
    const RESTART: [i64; 3] = [-512, -513, -514];
    const RESTART_BLOCK: i64 = -516;
    const SYS_RESTART_SYSCALL: u64 = 219;
    if let Some(again) = made_again(regs) {
        return again;
    }
    let result = regs.rax.cast_signed();
    let rax = match result {
        _ if !is_in_call(regs) => return *regs,
        RESTART_BLOCK => SYS_RESTART_SYSCALL,
        _ if RESTART.contains(&result) => regs.orig_rax,
        _ => return *regs,
    };
    user_regs_struct { rax, orig_rax: u64::MAX, rip: regs.rip.wrapping_sub(SYSCALL.len() as u64), ..*regs }
}

/// `regs` of a thread that works for us, and goes home by itself unless it is told otherwise.
pub fn at_work(regs: user_regs_struct, way: &WayHome, home: u64) -> user_regs_struct {
    user_regs_struct { rip: home, rsp: way.stack_pointer + 8, orig_rax: u64::MAX, ..regs }
}

/// `regs` of such a thread, with a call that it makes at `at`, `syscall; ret`.
pub fn with_call_from_home(regs: user_regs_struct, at: u64) -> user_regs_struct {
    user_regs_struct { rip: at, rsp: regs.rsp.wrapping_sub(8), ..regs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs() -> user_regs_struct {
        user_regs_struct {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            orig_rax: u64::MAX,
            rip: 0x1000,
            cs: 0,
            eflags: 0,
            rsp: 0x7000,
            ss: 0,
            fs_base: 0,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    #[test]
    fn only_a_call_that_ended_for_a_signal_is_made_again() {
        let ended = (-i64::from(EINTR)).cast_unsigned();
        let in_call = user_regs_struct { orig_rax: 232, rax: ended, ..regs() };
        let again = made_again(&in_call).expect("it ended");
        assert_eq!((again.rax, again.rip), (232, 0xffe));
        assert!(!is_in_call(&again));
        // One that the kernel makes again by itself, one that has succeeded, and no call at all.
        let restarted = (-512i64).cast_unsigned();
        assert!(made_again(&user_regs_struct { rax: restarted, ..in_call }).is_none());
        assert!(made_again(&user_regs_struct { rax: 1, ..in_call }).is_none());
        assert!(made_again(&user_regs_struct { orig_rax: u64::MAX, ..in_call }).is_none());
    }

    #[test]
    fn a_helper_makes_the_calls_of_a_table_as_long_as_we_live() {
        use program::arch::Decoder;
        let at = probe::arch::shared::HELPER;
        let code = |from: usize| Decoder::new(&HELPER_CODE[from..], program::Va(at + from as u64));
        let targets = |from: usize, n| -> Vec<u64> {
            let jumps = code(from).take(n).filter_map(|insn| insn.flow().target());
            jumps.map(|to| to.0 - at).collect()
        };
        let calls: Vec<usize> = memchr::memmem::find_iter(&HELPER_CODE, &SYSCALL).collect();
        assert_eq!(calls, [0, 9, 76, 101]);
        let lens: Vec<usize> = code(24).map(|insn| insn.len_bytes()).collect();
        assert_eq!(lens, [3, 2, 7, 2, 4, 7, 3, 4, 4, 4, 4, 4, 4, 2, 6, 2, 4, 2, 2, 2, 5, 2, 1]);
        // Out at once when all is done, or we are no more; back to the start; to what says how it failed.
        assert_eq!(targets(24, 25), [2, 2, 92, 24]);
        let regs = at_calls(regs(), 0x5000..0x5040, 0x6000);
        assert_eq!((regs.rip, regs.rbx, regs.rbp, regs.r14), (at + 24, 0x5000, 0x5040, 0x6000));
        assert_eq!(call_row(25, [1, 2, 3, 4, 5, 6], 7), [25, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_red_zone_is_stepped_over() {
        let (moved, at) = by_way_of(regs(), 0x5000);
        assert_eq!((moved.rip, moved.rsp, at), (0x5000, 0x7000 - 136, 0x7000 - 136));
        assert_eq!(not_by_way(moved, 0x1000), regs());
    }
}

//! x86-64: where a system call's number, arguments and result stand.
//!
//! Source: syscall(2).

use nix::libc::{SYS_execve, SYS_execveat, c_long, user_regs_struct};

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

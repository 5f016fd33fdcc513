//! Signal handlers that are at work: where they go back to.
//!
//! The kernel has put on the stack what they interrupted, with the address of code of the C library right in
//! front of it, which makes the system call that goes back.
//!
//! Source: sigreturn(2); arch/x86/include/uapi/asm/sigcontext.h for where the registers are.

use crate::process::{Mapping, Stopped};

/// What makes the system call that goes back: `mov $15,%rax; syscall`, as glibc and musl have it.
const GOES_BACK: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
/// Where the stack pointer, the instruction pointer and the segments are behind that address.
const STACK_POINTER: usize = 8 + 160;
const INSTRUCTION_POINTER: usize = 8 + 168;
const SEGMENTS: usize = 8 + 184;
/// Those of 64-bit programs, as the kernel writes them.
const USER_SEGMENTS: u64 = 0x002b_0000_0000_0033;

/// Where the code stands that goes back from signal handlers, in `code` that starts at `at`.
pub(super) fn ways_back_of_handlers(code: &[u8], at: u64) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(code, &GOES_BACK).map(move |n| at + n as u64)
}

/// A signal handler's way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// Where it stands that it goes on.
    pub(super) at: u64,
    /// Where it goes on.
    pub(super) to: u64,
    /// With which stack pointer.
    pub(super) stack_pointer: u64,
}

/// The ways back of signal handlers on a `stack` whose lowest byte is at `at`, if they go by one of `codes`.
pub(super) fn frames<'a>(stack: &'a [u8], at: u64, codes: &'a [u64]) -> impl Iterator<Item = Frame> + 'a {
    let word = |n: usize| Some(u64::from_le_bytes(*stack.get(n..)?.first_chunk()?));
    (0..stack.len()).step_by(8).filter_map(move |n| {
        let is_one = codes.contains(&word(n)?) && word(n + SEGMENTS)? == USER_SEGMENTS;
        if !is_one {
            return None;
        }
        Some(Frame {
            at: at + (n + INSTRUCTION_POINTER) as u64,
            to: word(n + INSTRUCTION_POINTER)?,
            stack_pointer: word(n + STACK_POINTER)?,
        })
    })
}

/// Where code stands that goes back from signal handlers.
pub(super) fn handlers_codes(stopped: &Stopped, mappings: &[Mapping]) -> Vec<u64> {
    let of = |m: &Mapping| {
        let len = usize::try_from(m.range.end.0 - m.range.start.0).unwrap_or(0);
        let mut code = vec![0; len];
        // What cannot be read is not run either.
        let _unread = stopped.read(m.range.start, &mut code);
        ways_back_of_handlers(&code, m.range.start.0).collect::<Vec<_>>()
    };
    mappings.iter().filter(|m| m.executable && m.name.is_none()).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handlers_way_back_is_known_by_what_the_kernel_writes() {
        let code = [&[0x90; 3][..], &GOES_BACK, &[0xc3]].concat();
        let codes: Vec<u64> = ways_back_of_handlers(&code, 0x4000).collect();
        assert_eq!(codes, [0x4003]);
        let mut stack = vec![0u8; 1024];
        let mut put = |at: usize, word: u64| stack[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(64, 0x4003);
        put(64 + INSTRUCTION_POINTER, 0x1234);
        put(64 + STACK_POINTER, 0x7000);
        // Elsewhere it is an address of code alone.
        put(512, 0x4003);
        assert_eq!(frames(&stack, 0x1000, &codes).count(), 0);
        stack[64 + SEGMENTS..64 + SEGMENTS + 8].copy_from_slice(&USER_SEGMENTS.to_le_bytes());
        let found: Vec<Frame> = frames(&stack, 0x1000, &codes).collect();
        let at = 0x1000 + (64 + INSTRUCTION_POINTER) as u64;
        assert_eq!(found, [Frame { at, to: 0x1234, stack_pointer: 0x7000 }]);
    }
}

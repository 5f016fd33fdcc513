//! The code of ours that runs inside the program: position-independent, no stack frame but its own, system
//! calls only.
//!
//! Each piece is a run of bytes between two labels; the words at its start are filled in by who copies it.
//!
//! - [`Runtime`] (`runtime/*.s`), behind the moved code of a counted module: gives a thread its area; maps
//!   the counters over.
//! - [`open_library`] (`open_library.s`), beside ld.so, in place of an `openat`: passes on the path of a
//!   counted library in place of the plain one.
//! - [`exec_page`] (`exec.s`), low, in place of an `execve`: tells the launcher, which then takes the new
//!   program over before it starts.
//! - [`find_object`] (`find_object.s`), in place of ld.so's: tells unwinders of code that it has not loaded.
//!
//! What they share with us is declared in [`shared`].
//!
//! **Areas.** Every module has a *home* for its counters within reach of its code. Thread k counts at home +
//! dₖ, with dₖ in the base of `gs`, the same for all modules; the first thread has d = 0. A home starts with
//! a page whose last word is the thread pointer of the area's owner. A thread inherits `gs` from the one that
//! made it: so an entry from outside compares the owner with its own thread pointer, and where they differ it
//! comes here. `fork` wipes that page in the child, which so gets an area of its own. Code of a library may
//! run before its DT_INIT, by a thread whose counters of that library are not mapped yet: so its entries
//! first look at a byte that tells whether it has started, and if not, it starts then. The area of a thread
//! that is no more goes to the next one. All areas are ranges of the recording, which several processes may
//! share: an area whose process is gone is given out again, but for those of processes in namespaces of their
//! own, where numbers of processes mean others.
//!
//! **Recordings** are made by a launcher, which maps them before the program starts, or, by a module that
//! carries notes, as a file when it starts by itself. The disk's room for an area is taken before it is
//! mapped. Where none can be had, counts stay in the process, and are lost with it.
//!
//! Invariant: all registers are as they were but those dead at a function's entry (r11, flags), or destroyed
//! by a system call (rax, rcx, r11) where one was about to be made; the red zone is stepped over; no signal
//! is handled while the recording is locked.
#![allow(unsafe_code, reason = "the bytes between two labels of assembly are read as statics")]

pub mod calibration;
pub mod emit;
mod find_object;
pub mod registers;
mod replaced_calls;
mod runtime;
pub mod shared;
pub mod snippet;
pub mod stand_in;
#[cfg(test)]
mod testing;
pub mod vectorise;

pub use find_object::{find_object, find_object_entry, find_object_slot};
pub use replaced_calls::{
    EXEC, ExecSite, OPEN_LIBRARY_ENTRY, OpenSite, exec_page, exec_sites, may_exec, open_library, open_sites,
};
pub use runtime::{DEEP, LAST_FRAME, NEAR, Runtime, SAYS, SIGNAL_FRAME, SignalFrame};

/// Whether what starts at `at` is what gcc's start-up files have every library run first (`frame_dummy`): a
/// jump to what registers clones for transactional memory, by their table's start and end. `code` are the
/// bytes from an address on.
///
/// Source: GCC 12, libgcc/crtstuff.c.
pub fn registers_clones<'d>(at: u64, code: impl Fn(u64) -> &'d [u8]) -> bool {
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let (at, jump) = match code(at).strip_prefix(&ENDBR) {
        Some(rest) => (at.wrapping_add(4), rest),
        None => (at, code(at)),
    };
    let to = match jump {
        [0xeb, distance, ..] => at.wrapping_add(2).wrapping_add_signed(distance.cast_signed().into()),
        [0xe9, a, b, c, d, ..] => {
            at.wrapping_add(5).wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into())
        }
        _ => return false,
    };
    // lea TABLE(%rip),%rdi; lea TABLE_END(%rip),%rsi; sub %rdi,%rsi
    matches!(code(to), [0x48, 0x8d, 0x3d, _, _, _, _, 0x48, 0x8d, 0x35, _, _, _, _, 0x48, 0x29, 0xfe, ..])
}

/// The bytes from `from` to `to`.
fn bytes_between(from: *const u8, to: *const u8) -> Vec<u8> {
    let len = to as usize - from as usize;
    // SAFETY: both are labels of one section of the assembly above, in this order: what lies between are its
    // bytes.
    unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
}

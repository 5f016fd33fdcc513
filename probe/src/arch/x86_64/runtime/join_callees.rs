//! A routine of the runtime in Rust: compiled by `build.rs` to assembly, which is joined to the runtime's
//! own.
//!
//! It runs inside programs: raw pointers alone, since a slice's bounds bring in a panic, and loops that the
//! compiler leaves as they are.
#![no_std]
#![allow(unsafe_code, reason = "raw pointers into the memory of a program")]

#[path = "../shared.rs"]
mod shared;

use shared::{CallSite, CallSlot, Module};

/// Adds what indirect calls of the module led to so far, in its `counters`, to the same words of an `area`.
/// What another process has led elsewhere before is not looked for: that goes to where the table had no room
/// for.
///
/// # Safety
/// The module's counters are at both, whole.
#[unsafe(no_mangle)]
pub unsafe extern "sysv64" fn join_callees(module: *const Module, counters: *const u64, area: *mut u64) {
    // SAFETY: all that is read and written is in the module's head, in its counters and in the area's.
    unsafe {
        let sums = (*module).sums_len as usize;
        let mut from = counters.wrapping_byte_add(sums).cast::<CallSite>();
        let mut to = area.wrapping_byte_add(sums).cast::<CallSite>();
        let mut n_left = (*module).n_sites as u32;
        if n_left == 0 {
            return;
        }
        while n_left != 0 {
            let mut n = (*from).n;
            if (*to).target == 0 {
                (*to).target = (*from).target;
            }
            if (*to).target == (*from).target {
                (*to).n = (*to).n.wrapping_add(n);
                n = 0;
            }
            (*to).n_lost = (*to).n_lost.wrapping_add(n).wrapping_add((*from).n_lost);
            (from, to, n_left) = (from.wrapping_add(1), to.wrapping_add(1), n_left - 1);
        }
        let mut slot = module.wrapping_byte_add((*module).slots as usize).cast::<CallSlot>();
        let mut n_left = (*module).slot_mask.wrapping_add(1);
        while n_left != 0 {
            if (*slot).site != 0 {
                let site = area.wrapping_add((*slot).site as usize).cast::<CallSite>();
                (*site).n_lost = (*site).n_lost.wrapping_add((*slot).n);
            }
            (slot, n_left) = (slot.wrapping_add(1), n_left - 1);
        }
    }
}

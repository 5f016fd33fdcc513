//! The functions of the library, as C sees them: here alone pointers of a client are followed.
//!
//! Each goes through [`guarded`] or [`guarded_or`]: pointers are looked at before they are followed, errors
//! become statuses, and no panic gets out. What a pointer must be that is not NULL is said in the header's
//! head ([`crate`]), and nobody can check it.

mod measured;
mod passings;
mod process;
mod replaced;

use crate::failure::{self, Failure, Status, guarded, guarded_or};
use std::ffi::{CStr, c_char};
use std::ptr;

/// What was said of the last call in this thread that failed: what was tried and on what, and on a line of
/// its own, behind `hint: `, what can be done. Empty if none has failed. It stays until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn engraft_last_error() -> *const c_char {
    guarded_or(c"".as_ptr(), || Ok(failure::last(CStr::as_ptr)))
}

/// What a handle points to.
///
/// # Safety
/// It is NULL, or one that this library made and that was not freed, and is not freed as long as that is
/// used.
unsafe fn borrowed<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: NULL is seen here; what is not is a handle, as said above.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null(what))
}

/// A text.
///
/// # Safety
/// It is NULL, or ends with a zero, and does not change as long as it is used.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: it is not NULL, and ends with a zero, as said above.
    let text = unsafe { CStr::from_ptr(text) };
    let said = || Failure::new(Status::Text, format!("{what} is no UTF-8: {}", text.to_string_lossy()));
    text.to_str().map_err(|_| said())
}

/// Makes something, and puts it where `to` points: NULL, if it cannot be made.
///
/// # Safety
/// `to` is NULL, or points to a pointer of the client's.
unsafe fn made<T>(to: *mut *mut T, what: &str, make: impl FnOnce() -> Result<T, Failure>) -> Status {
    guarded(|| {
        // SAFETY: as said above.
        unsafe { put(to, ptr::null_mut(), what) }?;
        let made = Box::into_raw(Box::new(make()?));
        // SAFETY: as said above.
        unsafe { put(to, made, what) }
    })
}

/// Writes `value` where `to` points.
///
/// # Safety
/// `to` is NULL, or points to a value of the client's, initialised or not.
unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null(&format!("where {what} is to go")));
    }
    // SAFETY: it is not NULL, and the client's, as said above.
    unsafe { to.write(value) };
    Ok(())
}

/// Frees what was made.
///
/// # Safety
/// It is NULL, or one that this library made, and that nobody uses any more.
unsafe fn freed<T>(handle: *mut T) {
    guarded_or((), || {
        if !handle.is_null() {
            // SAFETY: `made` has made it by `Box::into_raw`, and it is freed once, as said above.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

/// The one of number `n`.
fn one_of<'a, T>(all: &'a [T], n: usize, what: &str) -> Result<&'a T, Failure> {
    all.get(n).ok_or_else(|| {
        Failure::new(Status::Argument, format!("there is no {what} {n}: there are {}", all.len()))
            .with_hint("numbers start at 0")
    })
}

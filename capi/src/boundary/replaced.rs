//! Functions replaced, and taken back.

use super::{borrowed, freed, made, one_of, put, text};
use crate::code::{Replacements, Replacing, take_back};
use crate::failure::{Failure, Status, guarded, guarded_or};
use crate::process::{Function, OpenProcess};
use std::ffi::c_char;
use std::path::Path;

/// What stands in for a function. Texts stay until the list is freed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Replacement {
    /// The function's name.
    pub function: *const c_char,
    /// What stands in for it: a file and a function of it, or machine code.
    pub with: *const c_char,
    /// Where that is entered, an address in the process.
    pub entered_at: u64,
    /// Where the function itself is now, an address in the process.
    pub original: u64,
}

/// Code that may stand in for a function: `len` bytes of position-independent machine code, which is entered
/// at its first byte and returns as a function does. They are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_code_of_bytes(
    bytes: *const u8,
    len: usize,
    code: *mut *mut Replacing,
) -> Status {
    let bytes = match bytes.is_null() {
        true => Err(Failure::null("bytes")),
        false if len > isize::MAX.unsigned_abs() => {
            Err(Failure::new(Status::Argument, format!("{len} bytes are more than there can be")))
        }
        // SAFETY: it is not NULL, and the client has so many bytes there.
        false => Ok(unsafe { std::slice::from_raw_parts(bytes, len) }),
    };
    // SAFETY: `code` is where the client wants it.
    unsafe { made(code, "code", || Replacing::of_bytes(bytes?)) }
}

/// The same of the function `symbol` of the shared object at `path`.
///
/// ENGRAFT_STATUS_FILE: it cannot be read or used, or defines no such function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_code_of_library(
    path: *const c_char,
    symbol: *const c_char,
    code: *mut *mut Replacing,
) -> Status {
    // SAFETY: it is NULL, or a text.
    let path = unsafe { text(path, "path") };
    // SAFETY: it is NULL, or a text.
    let symbol = unsafe { text(symbol, "symbol") };
    // SAFETY: `code` is where the client wants it.
    unsafe { made(code, "code", || Replacing::of_library(Path::new(path?), symbol?)) }
}

/// Frees it, if it is not NULL. Where it stands in for a function, it stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_code_free(code: *mut Replacing) {
    // SAFETY: it is NULL, or code that is freed once.
    unsafe { freed(code) };
}

/// Has `code` stand in for a function from now on, also when this program has ended; calls that are in
/// progress end in the old code. Where it is entered goes to `entered_at`, if that is not NULL. One function
/// of a process may be replaced at a time: `engraft_undo` makes room for another one.
///
/// ENGRAFT_STATUS_REFUSED: the function, or the process, does not allow it, and is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_replace(
    function: *const Function,
    code: *const Replacing,
    entered_at: *mut u64,
) -> Status {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    // SAFETY: it is NULL, or code.
    let code = unsafe { borrowed(code, "code") };
    guarded(|| {
        let at = code?.put_in(function?)?;
        match entered_at.is_null() {
            true => Ok(()),
            // SAFETY: it is not NULL, and where the client wants it.
            false => unsafe { put(entered_at, at, "the address") },
        }
    })
}

/// Takes back what stands in for a function of the process: it runs its own code again.
///
/// ENGRAFT_STATUS_NOTHING: nothing stands in for one. ENGRAFT_STATUS_LEFT: it is taken back, and the new code
/// is still in the process, because somebody may need it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_undo(process: *const OpenProcess) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    guarded(|| take_back(&process?.0))
}

/// Lists what stands in for functions of the process, whoever has put it there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_replacements_list(
    process: *const OpenProcess,
    replacements: *mut *mut Replacements,
) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    // SAFETY: `replacements` is where the client wants it.
    unsafe { made(replacements, "replacements", || Replacements::of(&process?.0)) }
}

/// How many there are; 0 if `replacements` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_replacements_n(replacements: *const Replacements) -> usize {
    // SAFETY: it is NULL, or a list.
    let replacements = unsafe { borrowed(replacements, "replacements") };
    guarded_or(0, || Ok(replacements?.all.len()))
}

/// Number `n` of them, from 0.
///
/// ENGRAFT_STATUS_ARGUMENT: there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_replacements_get(
    replacements: *const Replacements,
    n: usize,
    replacement: *mut Replacement,
) -> Status {
    // SAFETY: it is NULL, or a list.
    let replacements = unsafe { borrowed(replacements, "replacements") };
    guarded(|| {
        let one = one_of(&replacements?.all, n, "replacement")?;
        let (function, with) = (one.function.as_ptr(), one.with.as_ptr());
        let found = Replacement { function, with, entered_at: one.to, original: one.original };
        // SAFETY: `replacement` is where the client wants it.
        unsafe { put(replacement, found, "the replacement") }
    })
}

/// Frees the list, if it is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_replacements_free(replacements: *mut Replacements) {
    // SAFETY: it is NULL, or a list that is freed once.
    unsafe { freed(replacements) };
}

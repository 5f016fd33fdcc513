//! Processes, and functions in them.

use super::{borrowed, freed, made, text};
use crate::failure::{Failure, Status, guarded_or};
use crate::process::{Function, OpenProcess, Process};
use program::LiveVa;
use std::ffi::c_char;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Opens process `pid`, which goes on: nothing is done to it yet. What measurements need for a while goes to
/// folders in `temporary`, or in /tmp if that is NULL, and is removed when they are over.
///
/// ENGRAFT_STATUS_GONE: there is no such process. ENGRAFT_STATUS_REFUSED: it may not be looked at. Whether it
/// can be attached to is seen when that is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_open(
    pid: i32,
    temporary: *const c_char,
    process: *mut *mut OpenProcess,
) -> Status {
    let temporary = match temporary.is_null() {
        true => Ok("/tmp"),
        // SAFETY: it is a text of the client's.
        false => unsafe { text(temporary, "temporary") },
    };
    let open = || Ok(OpenProcess(Arc::new(Process::open(pid, Path::new(temporary?))?)));
    // SAFETY: `process` is where the client wants it.
    unsafe { made(process, "process", open) }
}

/// Closes it; functions of it may still be used. What stands in for functions of the process stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_close(process: *mut OpenProcess) {
    // SAFETY: it is NULL, or was opened and is closed once.
    unsafe { freed(process) };
}

/// The function that has the instruction at `address`, an address in the process such as
/// `engraft_profile_most_frequent` gives.
///
/// ENGRAFT_STATUS_NOT_FOUND: there is no code of a file, or none that was understood. While a function of a
/// file is replaced, the process has a copy in place of all code of that file: nothing is found there then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_at(
    process: *const OpenProcess,
    address: u64,
    function: *mut *mut Function,
) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    // SAFETY: `function` is where the client wants it.
    unsafe { made(function, "function", || Function::at(&process?.0, LiveVa(address))) }
}

/// The function whose symbol is `name`: one of the executable, else the one that the process uses under that
/// name, else one of a library. `MODULE!NAME` means one of that file, such as `libm.so.6!exp`.
///
/// ENGRAFT_STATUS_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_named(
    process: *const OpenProcess,
    name: *const c_char,
    function: *mut *mut Function,
) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    // SAFETY: it is NULL, or a text.
    let name = unsafe { text(name, "name") };
    // SAFETY: `function` is where the client wants it.
    unsafe { made(function, "function", || Function::named(&process?.0, name?)) }
}

/// Its symbol, or `fn_` and its address in its file if it has none. It stays until the function is freed.
/// NULL if `function` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_name(function: *const Function) -> *const c_char {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    guarded_or(ptr::null(), || Ok(function?.name.as_ptr()))
}

/// The address of its entry in the process; 0 if `function` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_address(function: *const Function) -> u64 {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    guarded_or(0, || Ok(function?.live().0))
}

/// The address of its entry in its file, as `objdump` shows it; 0 if `function` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_address_in_file(function: *const Function) -> u64 {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    guarded_or(0, || {
        let function: &Function = function?;
        Ok::<u64, Failure>(function.module.program.function(function.func).entry.0)
    })
}

/// Frees it, if it is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_function_free(function: *mut Function) {
    // SAFETY: it is NULL, or a function that is freed once.
    unsafe { freed(function) };
}

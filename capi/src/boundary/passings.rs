//! Points, by whose passings a client is told while the process goes on.

use super::{borrowed, put, text};
use crate::failure::{Failure, Status, guarded};
use crate::process::OpenProcess;
use measure::values::AskedPlace;
use session::tell_passings;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::time::Duration;

/// Control came by at a point.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Passing {
    /// The number of the place, from 0, as they were given.
    pub place: usize,
    /// The thread: from 1, in the order in which threads were first seen.
    pub thread: u32,
    /// What the registers held, each in a word; those of over 8 bytes in several. They stay as long as the
    /// callback runs.
    pub values: *const u64,
    /// How many words these are.
    pub n_values: usize,
}

/// What is called for each passing, in the thread that has called `engraft_watch`, with the `data` that was
/// given there. It returns whether it wants more. It returns, and is left neither by an exception nor by
/// `longjmp`.
pub type Callback = Option<unsafe extern "C" fn(passing: *const Passing, data: *mut c_void) -> bool>;

/// Tells `callback` each time that the process comes by at one of `n_places` places, until it has enough,
/// `at_most_ms` is over, or the process has ended; then gives the process back as it was. A place is as in
/// `engraft values --at`: a function (its entry), `FUNCTION+OFFSET` (an instruction), an address in the
/// executable, or `MODULE!ADDRESS`. `registers` are those whose values are told, such as "rdi, rsi:u32,
/// xmm0:f64"; NULL for none. How often `callback` was called goes to `n_told`, if that is not NULL.
///
/// There is no trap at the point, and nothing stops there: the process goes on while `callback` is told, of
/// each thread's passings in their order. Threads wait only where they are too far ahead of it. There is no
/// way yet to have a thread wait at the point for what `callback` says.
///
/// ENGRAFT_STATUS_NOT_FOUND: a place is not there. ENGRAFT_STATUS_REFUSED: the process cannot be attached to.
/// ENGRAFT_STATUS_FILE: no temporary folder can be made. ENGRAFT_STATUS_LEFT: it was not given back (`engraft
/// rescue PID` tries again), or passings were lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_watch(
    process: *const OpenProcess,
    places: *const *const c_char,
    n_places: usize,
    registers: *const c_char,
    at_most_ms: u32,
    callback: Callback,
    data: *mut c_void,
    n_told: *mut u64,
) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    guarded(|| {
        let process = &process?.0;
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        let registers = match registers.is_null() {
            true => "",
            // SAFETY: it is a text of the client's.
            false => unsafe { text(registers, "registers") }?,
        };
        if places.is_null() || n_places == 0 {
            return Err(Failure::null("places").with_hint("name a place at least"));
        }
        let mut all = Vec::new();
        for n in 0..n_places {
            // SAFETY: the client has `n_places` pointers there, and `n` is below that.
            let place = unsafe { places.add(n) };
            // SAFETY: it points to one of them.
            let place = unsafe { place.read() };
            // SAFETY: it is NULL, or a text.
            let place = unsafe { text(place, "a place") }?;
            let wanted = AskedPlace::parse(place, registers).map_err(|err| {
                let what = format!("{registers:?} at {place} cannot be told: {err}");
                Failure::new(Status::Argument, what)
                    .with_hint("`engraft help values` says how registers are named")
            })?;
            all.push(wanted);
        }
        let mut tell = |passing: &session::Passing| {
            let values = (passing.values.as_ptr(), passing.values.len());
            let passing = Passing {
                place: passing.place,
                thread: passing.thread,
                values: values.0,
                n_values: values.1,
            };
            // SAFETY: it is a function of the client's, and `passing` is there as long as it runs.
            match unsafe { callback(&raw const passing, data) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let how_long = Duration::from_millis(at_most_ms.into());
        let spellings = |_: &str| Vec::new();
        let told = tell_passings(&process.store()?, (process.pid, &all), spellings, how_long, &mut tell)?;
        if !n_told.is_null() {
            // SAFETY: it is where the client wants it.
            unsafe { put(n_told, told.n, "their number") }?;
        }
        match told.has_lost {
            false => Ok(()),
            true => Err(Failure::new(Status::Left, format!("passings in process {} were lost", process.pid))),
        }
    })
}

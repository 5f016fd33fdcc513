//! Profiles, control flow graphs, and measured calls.

use super::{borrowed, freed, made, one_of, put};
use crate::calls::{Call, Calls};
use crate::cfg::{Block, Cfg, Edge, Loop};
use crate::failure::{Status, guarded, guarded_or};
use crate::process::{Function, OpenProcess};
use crate::profile::Profile;
use std::time::Duration;

fn millis(n: u32) -> Duration {
    Duration::from_millis(n.into())
}

/// Samples all threads of the process for `duration_ms`, `hertz` times a second of the time that each is on a
/// processor. Nothing is stopped or changed. The call takes that long.
///
/// ENGRAFT_STATUS_REFUSED: the kernel does not let us. ENGRAFT_STATUS_ARGUMENT: a number is 0, or the kernel
/// samples less often.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_profile_take(
    process: *const OpenProcess,
    duration_ms: u32,
    hertz: u32,
    profile: *mut *mut Profile,
) -> Status {
    // SAFETY: it is NULL, or an open process.
    let process = unsafe { borrowed(process, "process") };
    let take = || Profile::take(&process?.0, millis(duration_ms), hertz.into());
    // SAFETY: `profile` is where the client wants it.
    unsafe { made(profile, "profile", take) }
}

/// How many samples there are; 0 if `profile` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_profile_n_samples(profile: *const Profile) -> u64 {
    // SAFETY: it is NULL, or a profile.
    let profile = unsafe { borrowed(profile, "profile") };
    guarded_or(0, || Ok(profile?.n_samples))
}

/// The instruction at which threads were most often, an address in the process; 0 if there is no sample in
/// code of a file, or `profile` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_profile_most_frequent(profile: *const Profile) -> u64 {
    // SAFETY: it is NULL, or a profile.
    let profile = unsafe { borrowed(profile, "profile") };
    guarded_or(0, || Ok(profile?.most_frequent.map_or(0, |at| at.0)))
}

/// Frees it, if it is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_profile_free(profile: *mut Profile) {
    // SAFETY: it is NULL, or a profile that is freed once.
    unsafe { freed(profile) };
}

/// The control flow graph of a function, and its loops. Blocks are numbered by address, loops each behind the
/// one that it lies in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_build(function: *const Function, cfg: *mut *mut Cfg) -> Status {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    // SAFETY: `cfg` is where the client wants it.
    unsafe { made(cfg, "cfg", || Ok(Cfg::build(function?))) }
}

/// How many blocks it has; 0 if `cfg` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_n_blocks(cfg: *const Cfg) -> usize {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded_or(0, || Ok(cfg?.blocks.len()))
}

/// How many edges it has; 0 if `cfg` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_n_edges(cfg: *const Cfg) -> usize {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded_or(0, || Ok(cfg?.edges.len()))
}

/// How many loops it has; 0 if `cfg` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_n_loops(cfg: *const Cfg) -> usize {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded_or(0, || Ok(cfg?.loops.len()))
}

/// Block `n`, from 0.
///
/// ENGRAFT_STATUS_ARGUMENT: it has not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_block(cfg: *const Cfg, n: usize, block: *mut Block) -> Status {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded(|| {
        let found = one_of(&cfg?.blocks, n, "block")?;
        // SAFETY: `block` is where the client wants it.
        unsafe { put(block, *found, "the block") }
    })
}

/// Edge `n`, from 0; edges are sorted by the block that they leave.
///
/// ENGRAFT_STATUS_ARGUMENT: it has not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_edge(cfg: *const Cfg, n: usize, edge: *mut Edge) -> Status {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded(|| {
        let found = one_of(&cfg?.edges, n, "edge")?;
        // SAFETY: `edge` is where the client wants it.
        unsafe { put(edge, *found, "the edge") }
    })
}

/// Loop `n`, from 0.
///
/// ENGRAFT_STATUS_ARGUMENT: it has not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_loop(cfg: *const Cfg, n: usize, found: *mut Loop) -> Status {
    // SAFETY: it is NULL, or a graph.
    let cfg = unsafe { borrowed(cfg, "cfg") };
    guarded(|| {
        let one = one_of(&cfg?.loops, n, "loop")?;
        // SAFETY: `found` is where the client wants it.
        unsafe { put(found, *one, "the loop") }
    })
}

/// Frees it, if it is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_cfg_free(cfg: *mut Cfg) {
    // SAFETY: it is NULL, or a graph that is freed once.
    unsafe { freed(cfg) };
}

/// Measures `n` calls of a function, as many as come back within `at_most_ms`, which is given twice: first
/// calls are timed, then instructions are counted. Meanwhile the process runs code that was moved; it is
/// given back as it was. Of functions that share a symbol, calls of all are measured.
///
/// ENGRAFT_STATUS_NOTHING: none came back. ENGRAFT_STATUS_REFUSED: they cannot be seen, or the process cannot
/// be attached to. ENGRAFT_STATUS_FILE: no temporary folder can be made. ENGRAFT_STATUS_LEFT: it was not
/// given back (`engraft rescue PID` tries again).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_calls_measure(
    function: *const Function,
    n: usize,
    at_most_ms: u32,
    calls: *mut *mut Calls,
) -> Status {
    // SAFETY: it is NULL, or a function.
    let function = unsafe { borrowed(function, "function") };
    // SAFETY: `calls` is where the client wants it.
    unsafe { made(calls, "calls", || Calls::measure(function?, n, millis(at_most_ms))) }
}

/// How many calls were measured; 0 if `calls` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_calls_n(calls: *const Calls) -> usize {
    // SAFETY: it is NULL, or measured calls.
    let calls = unsafe { borrowed(calls, "calls") };
    guarded_or(0, || Ok(calls?.calls.len()))
}

/// Call `n`, from 0, in the order in which they came back.
///
/// ENGRAFT_STATUS_ARGUMENT: there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_calls_get(calls: *const Calls, n: usize, call: *mut Call) -> Status {
    // SAFETY: it is NULL, or measured calls.
    let calls = unsafe { borrowed(calls, "calls") };
    guarded(|| {
        let found = one_of(&calls?.calls, n, "call")?;
        // SAFETY: `call` is where the client wants it.
        unsafe { put(call, *found, "the call") }
    })
}

/// Instructions a cycle of call `n`; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_calls_ipc(calls: *const Calls, n: usize) -> f64 {
    // SAFETY: it is NULL, or measured calls.
    let calls = unsafe { borrowed(calls, "calls") };
    guarded_or(0.0, || Ok(one_of(&calls?.calls, n, "call")?.ipc))
}

/// Frees them, if they are not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engraft_calls_free(calls: *mut Calls) {
    // SAFETY: it is NULL, or measured calls that are freed once.
    unsafe { freed(calls) };
}

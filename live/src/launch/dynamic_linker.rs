//! The dynamic linker of a process, which hands it rewritten libraries in place of plain ones.

use super::{Ready, Swap};
use crate::give::{PAGE, fill};
use crate::process::{ProcessError, Stopped};
use nix::libc;
use probe::arch::{OPEN_LIBRARY_ENTRY, open_library};
use program::{Bias, LiveVa, Va};
use std::os::unix::ffi::OsStrExt as _;

/// Changes of code: where, and what is there then.
pub(super) type Changes = Vec<(LiveVa, Vec<u8>)>;

/// What has ld.so's `openat` calls go through a look-up of paths, and ask before another program takes its
/// place.
pub(super) fn redirect(
    stopped: &Stopped,
    bias: Bias,
    ready: &Ready<'_>,
    mailbox: u64,
) -> Result<Changes, ProcessError> {
    let mut jumps = Vec::new();
    let expect = |from: LiveVa, bytes: &[u8]| {
        let mut there = vec![0; bytes.len()];
        stopped.read(from, &mut there)?;
        match there == bytes {
            true => Ok(()),
            false => {
                Err(stopped.space(format!("{from} of ld.so is not the system call that its file has there")))
            }
        }
    };
    for site in ready.execs.unwrap_or_default() {
        let from = bias.to_live(Va(site.at));
        expect(from, &site.old)?;
        jumps.push((from, site.new.clone()));
    }
    let sites = ready.opens;
    let Some(first) = sites.first() else { return Ok(jumps) };
    let stub_len = open_library(first, 0, 0, 0).len().next_multiple_of(64) as u64;
    let code_len = (stub_len * sites.len() as u64).next_multiple_of(PAGE);
    let paths = table_of_paths(ready.swaps);
    let len = code_len + (paths.len() as u64).next_multiple_of(PAGE);
    let at = room_near(stopped, bias.to_live(first.at), len)?;
    let paths_at = at.0 + code_len;
    let mut code = Vec::new();
    for (n, site) in sites.iter().enumerate() {
        let from = bias.to_live(site.at);
        let stub = at.0 + n as u64 * stub_len;
        code.resize(usize::try_from(stub - at.0).expect("small"), 0xcc);
        code.extend(open_library(site, from.0, paths_at, mailbox));
        expect(from, &site.bytes)?;
        let mut jump = vec![0xe9];
        let distance = (stub + OPEN_LIBRARY_ENTRY).wrapping_sub(from.0 + 5);
        jump.extend(&distance.to_le_bytes()[..4]);
        jumps.push((from, jump));
    }
    code.resize(usize::try_from(code_len).expect("small"), 0xcc);
    code.extend(paths);
    fill(stopped, at, &code, libc::PROT_READ | libc::PROT_EXEC)?;
    Ok(jumps)
}

/// The paths of libraries and of what is handed over in place of each, as [`open_library`] reads them.
fn table_of_paths(swaps: &[Swap]) -> Vec<u8> {
    let mut paths = Vec::new();
    for swap in swaps {
        let (asked, given) = (swap.asked.as_os_str().as_bytes(), swap.given.as_os_str().as_bytes());
        let second = 8 + asked.len() + 1;
        let len = (second + given.len() + 1).next_multiple_of(8);
        let from = paths.len();
        let word = |n: usize| u32::try_from(n).expect("paths are short").to_le_bytes();
        paths.extend(word(len));
        paths.extend(word(second));
        paths.extend(asked);
        paths.push(0);
        paths.extend(given);
        paths.resize(from + len, 0);
    }
    paths.extend([0; 8]);
    paths
}

/// Unused addresses within 1 GiB below `near`.
fn room_near(stopped: &Stopped, near: LiveVa, len: u64) -> Result<LiveVa, ProcessError> {
    let maps = stopped.mappings()?;
    // Apart from what is there, so that the next mapping of the kernel still joins its neighbours.
    let apart = 16 * PAGE;
    let mut end = near.0;
    for m in maps.iter().rev().filter(|m| m.range.start.0 <= near.0) {
        let free_from = m.range.end.0 + apart;
        if m.range.end.0 <= end && end.saturating_sub(len + apart) >= free_from {
            break;
        }
        end = end.min(m.range.start.0);
    }
    let at = end.saturating_sub(len + apart) & !(PAGE - 1);
    if near.0 - at > 1 << 30 {
        return Err(stopped.space("there is no room near its dynamic linker"));
    }
    Ok(LiveVa(at))
}

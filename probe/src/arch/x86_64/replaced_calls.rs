//! What programs run in place of system calls that concern us: ld.so's `openat`, and `execve`.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use super::bytes_between;
use super::shared::*;
use program::arch::PositionDependence;
use program::arch::{Decoder, Operand, abi};
use program::{Block, Program, Va};
use std::arch::global_asm;
use std::mem::{offset_of, size_of};

global_asm!(
    include_str!("open_library.s"),
    process = const PROCESS,
    paths = const offset_of!(OpenLibrary, paths),
    mailbox = const offset_of!(OpenLibrary, mailbox),
    entry = const OPEN_LIBRARY_ENTRY,
    lock = const offset_of!(Mailbox, lock),
    n_requests = const offset_of!(Mailbox, n_requests),
    path = const offset_of!(Mailbox, path),
    owner = const offset_of!(Mailbox, owner),
);
global_asm!(
    include_str!("exec.s"),
    requests = const offset_of!(ExecPage, requests),
    owner = const offset_of!(ExecPage, owner),
    mask = const offset_of!(ExecPage, signal_mask),
    slots = const offset_of!(ExecRequests, slots),
    slot_len = const ExecRequest::LEN,
    len = const ExecRequests::LEN,
    state = const offset_of!(ExecRequest, state),
    number = const offset_of!(ExecRequest, number),
    args = const offset_of!(ExecRequest, args),
);

unsafe extern "C" {
    static engraft_open_library: u8;
    static engraft_open_library_end: u8;
    static engraft_exec: u8;
    static engraft_execve: u8;
    static engraft_execveat: u8;
    static engraft_exec_end: u8;
}

/// A place where ld.so opens a file: `mov $257,%eax`, perhaps more, `syscall`.
#[derive(Clone, Debug)]
pub struct OpenSite {
    /// The `mov`.
    pub at: Va,
    /// All its bytes, the system call included.
    pub bytes: Vec<u8>,
}

/// `mov $257,%eax`, the number of `openat`.
const SET_NUMBER: [u8; 5] = [0xb8, 0x01, 0x01, 0, 0];
/// `mov $59,%eax` and `mov $322,%eax`: those of `execve` and `execveat`.
const SET_EXEC: [[u8; 5]; 2] = [[0xb8, 59, 0, 0, 0], [0xb8, 0x42, 0x01, 0, 0]];
/// `syscall`
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Room for what stands between the two.
const ROOM_BETWEEN: usize = 32;

/// The places where `linker`, which is ld.so, opens files.
pub fn open_sites(linker: &Program) -> Vec<OpenSite> {
    let mut found = Vec::new();
    for block in &linker.blocks {
        calls_in(linker, block, &SET_NUMBER, |at, bytes| found.push(OpenSite { at, bytes }));
    }
    found
}

/// Calls `found` for each system call in `block` whose number `set_number` sets: with its address and all its
/// bytes.
fn calls_in(program: &Program, block: &Block, set_number: &[u8; 5], mut found: impl FnMut(Va, Vec<u8>)) {
    let Some(bytes) = program.image.bytes_in(&block.range()) else { return };
    if !bytes.windows(set_number.len()).any(|w| w == set_number) {
        return;
    }
    let mut decoder = Decoder::new(bytes, block.start);
    let (mut at, mut set) = (0, None);
    while let Some(insn) = decoder.next() {
        let own = bytes.get(at..at + insn.len_bytes()).unwrap_or_default();
        let is_fixed = decoder.position_of(&insn, own) != PositionDependence::Independent;
        match set {
            _ if own == set_number => set = Some(at),
            Some(from) if own == SYSCALL => {
                let all = &bytes[from..at + SYSCALL.len()];
                if all.len() <= set_number.len() + ROOM_BETWEEN + SYSCALL.len() {
                    found(block.start.plus(from as u64), all.to_vec());
                }
                set = None;
            }
            _ if is_fixed => set = None,
            _ => {}
        }
        at += insn.len_bytes();
    }
}

/// A place where a program becomes another one: `mov $59,%eax` (or 322), perhaps more, `syscall`; and what is
/// put there to ask first.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ExecSite {
    /// The `mov`.
    pub at: u64,
    /// All its bytes, the system call included.
    pub old: Vec<u8>,
    /// As many bytes, which call what stands at [`EXEC`].
    pub new: Vec<u8>,
}

/// Whether there may be such places in these bytes.
pub fn may_exec(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|w| SET_EXEC.iter().any(|set| set == w))
}

/// The places where `program` becomes another one.
///
/// Left out are those in functions that keep something below the stack pointer, where the call would write.
pub fn exec_sites(program: &Program) -> Vec<ExecSite> {
    let mut found = Vec::new();
    for block in &program.blocks {
        for (n, set_number) in SET_EXEC.iter().enumerate() {
            calls_in(program, block, set_number, |at, bytes| {
                if uses_red_zone(program, block) {
                    return;
                }
                // call *EXEC+8n
                let mut new = bytes[set_number.len()..bytes.len() - SYSCALL.len()].to_vec();
                new.extend([0xff, 0x14, 0x25]);
                new.extend((EXEC + 8 * n as u64).to_le_bytes().iter().take(4));
                found.push(ExecSite { at: at.0, old: bytes, new });
            });
        }
    }
    found
}

/// Whether the function of `block` keeps something below the stack pointer.
fn uses_red_zone(program: &Program, block: &Block) -> bool {
    let is_below = |operand| match operand {
        Operand::Mem { base: Some(base), disp, .. } => abi::STACK_POINTER.contains(base) && disp < 0,
        _ => false,
    };
    program.blocks.iter().filter(|b| b.func == block.func).any(|b| {
        let mut decoder = Decoder::new(program.image.bytes_in(&b.range()).unwrap_or_default(), b.start);
        std::iter::from_fn(|| decoder.next()).any(|insn| insn.operands().any(is_below))
    })
}

/// Where what a program asks before it becomes another one is mapped, in the low 2 GiB so that a call of
/// seven bytes leads there: first the addresses of what is called for `execve` and for `execveat`.
pub const EXEC: u64 = 0x7f00_0000;

/// What stands at [`EXEC`]; `requests` and `owner` are where, in the process, it asks ([`ExecRequests`]) and
/// sees that nobody answers ([`Mailbox::owner`]).
pub fn exec_page(requests: u64, owner: u64) -> Vec<u8> {
    let from = &raw const engraft_exec;
    let mut code = bytes_between(from, &raw const engraft_exec_end);
    let place = |label: *const u8| EXEC + (label as u64 - from as u64);
    set(&mut code, offset_of!(ExecPage, execve), place(&raw const engraft_execve));
    set(&mut code, offset_of!(ExecPage, execveat), place(&raw const engraft_execveat));
    set(&mut code, offset_of!(ExecPage, requests), requests);
    set(&mut code, offset_of!(ExecPage, owner), owner);
    code
}

/// Offset of the first instruction of [`open_library`].
pub const OPEN_LIBRARY_ENTRY: u64 = size_of::<OpenLibrary>() as u64;

/// What ld.so runs in place of `site`, which stands at `live` in the process; `paths` and `mailbox` are
/// addresses in the process too. Without a mailbox (0), libraries that are not in the table of paths are
/// opened as they are.
///
/// The table of paths is a row after another: length of the row (4 bytes), where in it the second path starts
/// (4 bytes), the path that is asked for and the path that is passed on, each ended by a zero; the last row
/// has length 0.
pub fn open_library(site: &OpenSite, live: u64, paths: u64, mailbox: u64) -> Vec<u8> {
    let mut code = bytes_between(&raw const engraft_open_library, &raw const engraft_open_library_end);
    set(&mut code, offset_of!(OpenLibrary, back), live + site.bytes.len() as u64);
    set(&mut code, offset_of!(OpenLibrary, paths), paths);
    set(&mut code, offset_of!(OpenLibrary, mailbox), mailbox);
    let more = &site.bytes[SET_NUMBER.len()..site.bytes.len() - SYSCALL.len()];
    let entry = size_of::<OpenLibrary>();
    code[entry..entry + more.len()].copy_from_slice(more);
    code
}

#[cfg(test)]
mod tests;

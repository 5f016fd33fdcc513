//! Code of ours in a process that somebody has attached to: what it was moved from, and how it is unwound.
//! For who looks from outside, and changes nothing.
//!
//! Not here: how unwinders within the process find that (`linker`).

use super::AttachError;
use super::journal::{Journal, PutGraft, PutIn};
use super::linker::search_table;
use crate::process::Stopped;
use nix::unistd::Pid;
use probe::Running;
use program::{Bias, LiveVa, Va};
use std::ops::Range;
use std::path::PathBuf;

/// Code that was put into a process.
#[derive(Clone, Debug)]
pub struct OurCode {
    /// Where it is.
    pub range: Range<LiveVa>,
    /// Rows of unwind tables for it (`.eh_frame`), and where in the process they are.
    pub unwind: Option<(LiveVa, Vec<u8>)>,
    /// What it is of.
    pub of: CodeOf,
}

/// What code of ours is of.
#[derive(Clone, Debug)]
pub enum CodeOf {
    /// Functions of a module, moved.
    Module {
        /// The module's file, as the process names it.
        path: PathBuf,
        /// How far the module itself was moved when it was loaded.
        bias: Bias,
        /// Which instruction is where.
        functions: Box<MovedFunctions>,
    },
    /// What stands in for functions.
    Graft,
}

/// Where the instructions of moved functions of a module are.
#[derive(Clone, Debug)]
pub struct MovedFunctions {
    text_at: u64,
    /// Routines of ours begin here, at the latest.
    end: u64,
    running: Running,
}

impl MovedFunctions {
    /// Where code of the module's file begins of which some was moved.
    pub fn first(&self) -> Va {
        Va(self.running.old_at)
    }

    /// Where in the module's file the instruction was that is at `at` in the process; of code of ours, the
    /// one that it stands in front of. `None` for our routines.
    pub fn old_of(&self, at: LiveVa) -> Option<Va> {
        if at.0 >= self.end {
            return None;
        }
        let new = u32::try_from(at.0.checked_sub(self.text_at)?).ok()?;
        self.running.old_within(new).map(|old| Va(self.running.old_at.wrapping_add(u64::from(old))))
    }
}

/// The code of ours in process `pid`: nothing, if nobody is attached, or who is has only begun.
///
/// # Errors
/// If it cannot be looked at, or what is written down in it is damaged.
pub fn our_code(pid: i32) -> Result<Vec<OurCode>, AttachError> {
    let pid = Pid::from_raw(pid);
    let journal = match Journal::read(pid) {
        Ok(Some(journal)) => journal,
        Ok(None) | Err(AttachError::NothingToUndo { .. }) => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    let stopped = Stopped::looked_at(pid)?;
    let Journal { modules, grafts, .. } = journal;
    let modules = modules.into_iter().map(|module| of_module(&stopped, module));
    Ok(modules.chain(grafts.iter().map(|graft| of_graft(&stopped, graft))).collect())
}

fn of_module(stopped: &Stopped, module: PutIn) -> OurCode {
    let (range, tables, bias) = (module.text(), module.tables(), module.bias());
    let search = search_table(stopped, &module).ok().flatten();
    let unwind = search.and_then(|search| behind(stopped, search, tables.end));
    let end = module.segments.runtime_at.map(|at| module.live(at)).filter(|at| range.contains(at));
    let functions =
        MovedFunctions { text_at: range.start, end: end.unwrap_or(range.end), running: module.running };
    let of = CodeOf::Module { bias, path: module.path, functions: Box::new(functions) };
    OurCode { range: LiveVa(range.start)..LiveVa(range.end), unwind, of }
}

fn of_graft(stopped: &Stopped, graft: &PutGraft) -> OurCode {
    let unwind = graft.unwind.and_then(|search| led_to(stopped, graft, search));
    OurCode { range: LiveVa(graft.code.start)..LiveVa(graft.code.end), unwind, of: CodeOf::Graft }
}

/// How a search table begins of which we know the form: version; its pointer, number and rows, as encoded
/// (LSB 5.0, 10.6.2).
const SEARCH: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const SEARCH_LEN: u64 = 12;

/// The rows behind the search table at `search`, up to `end`: what there is room for between is zero.
fn behind(stopped: &Stopped, search: u64, end: u64) -> Option<(LiveVa, Vec<u8>)> {
    let head = read(stopped, search, search.checked_add(SEARCH_LEN)?)?;
    let n = head.strip_prefix(&SEARCH)?.get(4..)?.first_chunk().map(|n| u32::from_le_bytes(*n))?;
    let mut at = search.checked_add(SEARCH_LEN + 8 * u64::from(n))?;
    let bytes = read(stopped, at, end)?;
    let skipped = bytes.chunks(8).position(|chunk| chunk.iter().take(4).any(|byte| *byte != 0))? * 8;
    at += skipped as u64;
    Some((LiveVa(at), bytes.get(skipped..)?.to_vec()))
}

/// The rows that the search table at `search` leads to.
fn led_to(stopped: &Stopped, graft: &PutGraft, search: u64) -> Option<(LiveVa, Vec<u8>)> {
    let head = read(stopped, search, search.checked_add(SEARCH_LEN)?)?;
    let distance =
        head.strip_prefix(&SEARCH[..2])?.get(2..)?.first_chunk().map(|n| i32::from_le_bytes(*n))?;
    let at = (search + 4).checked_add_signed(i64::from(distance))?;
    let part = graft.mapped.iter().find(|(from, len)| (*from..from.saturating_add(*len)).contains(&at))?;
    Some((LiveVa(at), read(stopped, at, part.0 + part.1)?))
}

/// No table is longer.
const MOST: u64 = 1 << 30;

fn read(stopped: &Stopped, from: u64, end: u64) -> Option<Vec<u8>> {
    let len = end.checked_sub(from).filter(|len| *len <= MOST)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    stopped.read(LiveVa(from), &mut bytes).ok()?;
    Some(bytes)
}

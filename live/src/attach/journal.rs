//! What is written down in a process before anything of it changes: all that is needed to give it back as it
//! was, by whoever comes.
//!
//! ```text
//! magic; length of the Journal, 0 while it is not complete, with a bit once nobody needs what was put in;
//! number of rows; (address, length) a row; …
//! Journal (postcard), on the pages behind
//! ```
//! All are words of 8 bytes. A row is something that was mapped and is needed no more if we die. While there
//! is no journal, nothing of the program's own has changed.

use super::{AttachError, ModulePath};
use crate::arch;
use crate::give::{PRIVATE, READ_WRITE, is_of};
use crate::process::{Mapping, Status, Stopped, row_len};
use nix::unistd::Pid;
use probe::arch::shared::{ARENA, FINDER, FINDER_LEN, HELPER, HomePage, JOURNAL, PAGE, PROCESS, Process};
use probe::graft::Grafted;
use probe::{Patch, Running, Segments};
use program::{Bias, LiveVa, Va};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

const MAGIC: u64 = u64::from_le_bytes(*b"ENGRUNDO");
/// Where the length stands, and behind it the rows.
const LENGTH: u64 = JOURNAL + 8;
const ROWS: u64 = JOURNAL + 16;
/// Where the journal itself starts.
const BODY: u64 = JOURNAL + 4 * PAGE;
const N_ROWS: usize = 1000;
/// No journal is longer.
const MOST: u64 = 1 << 32;
/// The bit that says that old text is back, though somebody may need what was put in.
const TEXT_BACK: u64 = 1 << 61;
/// The bit of the length that says that all is as it was, but for what is mapped.
const IS_BACK: u64 = 1 << 63;
/// The bit that says that code of other files is unmapped, or stays for good.
const GRAFTS_GONE: u64 = 1 << 62;

/// What was, or is to be, put into a process.
#[derive(Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) modules: Vec<PutIn>,
    /// What changes in ld.so's data, in order.
    pub(super) linker: Vec<Word>,
    /// Code of other files that modules lead to.
    pub(super) grafts: Vec<PutGraft>,
    /// What that is for, in the words of whoever put it in; nothing, of what is observed for a while.
    pub(super) what: Vec<u8>,
}

/// Code of another file that was put into it ([`probe::graft`]).
#[derive(Serialize, Deserialize)]
pub(super) struct PutGraft {
    /// Where it is mapped: addresses and lengths.
    pub(super) mapped: Vec<(u64, u64)>,
    pub(super) code: Range<u64>,
    /// Where the search table of its unwind rows is.
    pub(super) unwind: Option<u64>,
}

impl PutGraft {
    pub(super) fn of(graft: &Grafted) -> PutGraft {
        let mapped = graft.parts.iter().map(|part| (part.at, part.bytes.len() as u64)).collect();
        PutGraft { mapped, code: graft.code.clone(), unwind: graft.unwind }
    }

    /// Whether `at` is in it.
    pub(super) fn contains(&self, at: u64) -> bool {
        self.mapped.iter().any(|(from, len)| (*from..from + len).contains(&at))
    }
}

/// A module that was put into it.
#[derive(Serialize, Deserialize)]
pub(super) struct PutIn {
    pub(super) path: ModulePath,
    /// Where address 0 of it is in the process.
    pub(super) at: u64,
    /// Its segments; without text and tables.
    pub(super) segments: Segments,
    pub(super) running: Running,
    /// Parts of its text that are exchanged.
    pub(super) texts: Vec<Text>,
}

/// Bytes of data that change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Word {
    pub(super) at: u64,
    pub(super) old: Vec<u8>,
    pub(super) new: Vec<u8>,
}

impl Word {
    /// Whether `stopped` holds what it was changed to: what is gone does not.
    fn is_made(&self, stopped: &Stopped) -> bool {
        let mut there = vec![0; self.new.len()];
        stopped.read(LiveVa(self.at), &mut there).is_ok() && there == self.new
    }

    /// Changes it.
    pub(super) fn make(&self, stopped: &Stopped) -> Result<(), AttachError> {
        Ok(stopped.write(LiveVa(self.at), &self.new)?)
    }

    /// Changes it back, if it was changed.
    pub(super) fn unmake(&self, stopped: &Stopped) -> Result<(), AttachError> {
        if self.is_made(stopped) {
            stopped.write(LiveVa(self.at), &self.old)?;
        }
        Ok(())
    }
}

/// A part of a module's text: whole pages of one mapping.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Text {
    /// Where it is.
    pub(super) at: u64,
    /// How many bytes.
    pub(super) len: u64,
    /// Where in its file it is, if it is of one.
    pub(super) file: Option<(ModulePath, u64)>,
}

impl PutIn {
    pub(super) fn bias(&self) -> Bias {
        Bias::between(Va(0), LiveVa(self.at))
    }

    /// Where an address of its file is in the process.
    pub(super) fn live(&self, at: u64) -> u64 {
        self.bias().to_live(Va(at)).0
    }

    /// Where its moved code is, with the runtime.
    pub(super) fn text(&self) -> Range<u64> {
        let at = self.live(self.segments.text_at);
        at..at + self.segments.text_len
    }

    /// Where its tables are.
    pub(super) fn tables(&self) -> Range<u64> {
        let at = self.live(self.segments.tables_at);
        at..at + self.segments.tables_len
    }

    /// Where its old segments are.
    pub(super) fn old(&self) -> Range<u64> {
        self.live(self.segments.old.start)..self.live(self.segments.old.end)
    }

    /// Whether it is loaded still: where its text would change, there is what was there, or what was put
    /// there.
    pub(super) fn is_loaded(&self, stopped: &Stopped) -> bool {
        let is_text = |at: u64| self.texts.iter().any(|text| (text.at..text.at + text.len).contains(&at));
        let patches = || self.segments.patches.iter().filter(|patch| is_text(self.live(patch.at.0)));
        let holds = |patch: &Patch| {
            let mut there = vec![0; patch.new.len()];
            let read = stopped.read(LiveVa(self.live(patch.at.0)), &mut there);
            read.is_ok() && is_of(patch, &there)
        };
        patches().next().is_none_or(holds) && patches().next_back().is_none_or(holds)
    }

    /// Its relocated words that change: where, what they held, and what they hold.
    pub(super) fn words(&self) -> impl Iterator<Item = (LiveVa, u64, u64)> {
        self.running.words.iter().map(|w| (LiveVa(self.live(w.at)), self.live(w.old), self.live(w.new)))
    }
}

/// Has all that `helper` maps from now on be written down.
///
/// # Errors
/// If there is no room for it.
pub(super) fn open(helper: &Stopped) -> Result<(), AttachError> {
    helper.map(LiveVa(JOURNAL), BODY - JOURNAL, READ_WRITE, PRIVATE, u64::MAX, 0)?;
    helper.write(LiveVa(JOURNAL), &MAGIC.to_le_bytes())?;
    helper.keep_ledger(LiveVa(ROWS), N_ROWS);
    Ok(())
}

/// Takes away what somebody who is no more has mapped in vain, and has all that is mapped from now on be
/// written down.
///
/// # Errors
/// If what is written down cannot be read.
pub(super) fn open_again(helper: &Stopped) -> Result<(), AttachError> {
    if helper.word(LiveVa(JOURNAL)).is_err() {
        return Ok(());
    }
    let n = helper.word(LiveVa(ROWS))?.min(N_ROWS as u64);
    for row in 0..n {
        let at = ROWS + 8 + 16 * row;
        let (at, word) = (LiveVa(helper.word(LiveVa(at))?), helper.word(LiveVa(at + 8))?);
        let (len, expected) = row_len(word);
        // What was about to be mapped may be there, or something of the program's that came before it.
        let is_ours = match expected {
            None => true,
            Some([writable, executable]) => helper.mappings()?.iter().any(|m| {
                let has_name = m.path.is_some() || m.name.is_some();
                let has_rights = m.writable == writable && m.executable == executable;
                m.range.contains(&at) && has_rights && !has_name
            }),
        };
        // Its own pages stay, until all is done; what has no length was put somewhere.
        if at.0 != JOURNAL && len > 0 && is_ours {
            helper.unmap(at, len)?;
        }
    }
    helper.write(LiveVa(ROWS), &0u64.to_le_bytes())?;
    helper.keep_ledger(LiveVa(ROWS), N_ROWS);
    Ok(())
}

/// What the kernel calls memory that is shared with us (`shared::NAME`), and that code is mapped from
/// (`Helper::map_code`), and what `Hand` uses.
pub(super) const CODE_NAME: &str = "engraft-code";
const SHARED: &str = "/memfd:engraft (deleted)";
const CODE: &str = "/memfd:engraft-code (deleted)";

/// Unmaps all that is known by its name to be ours: the recording; counters, each with the page in front of
/// them; code; what whoever was killed has left of it.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn take_away_named(helper: &Stopped) -> Result<(), AttachError> {
    for m in helper.mappings()? {
        let name = m.path.as_deref().unwrap_or(Path::new(""));
        let range = m.range.start.0..m.range.end.0;
        let from = match () {
            () if name == Path::new(CODE) => range.start,
            // The recording itself.
            () if name == Path::new(SHARED) && range.start == ARENA => range.start,
            () if name == Path::new(SHARED) => range.start - HomePage::LEN,
            () => continue,
        };
        helper.unmap(LiveVa(from), range.end - from)?;
    }
    Ok(())
}

/// Takes away what is where nothing of a program's own is: of whoever was killed before there was a journal.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn take_away_all(helper: &Stopped) -> Result<(), AttachError> {
    take_away_named(helper)?;
    helper.unmap(LiveVa(FINDER), FINDER_LEN)?;
    helper.unmap(LiveVa(PROCESS), Process::LEN)?;
    take_away(helper)
}

/// Takes the journal itself away.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn take_away(helper: &Stopped) -> Result<(), AttachError> {
    // By what is mapped there: whoever was killed may have had room for one that was never written.
    let ours = |m: &&Mapping| (JOURNAL..BODY + MOST).contains(&m.range.start.0);
    for m in helper.mappings()?.iter().rev().filter(ours) {
        helper.unmap(m.range.start, m.range.end.0 - m.range.start.0)?;
    }
    Ok(())
}

impl Journal {
    /// Writes it into the process of `helper`, where `kept` alone is to be put somewhere yet of all that was
    /// mapped: from then on it holds.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn write(&self, helper: &Stopped, kept: &[LiveVa]) -> Result<(), AttachError> {
        let bytes = postcard::to_stdvec(self).map_err(|err| helper.space(err.to_string()))?;
        let len = bytes.len() as u64;
        helper.map(LiveVa(BODY), len.next_multiple_of(PAGE), READ_WRITE, PRIVATE, u64::MAX, 0)?;
        helper.write(LiveVa(BODY), &bytes)?;
        helper.keep_mapped_but(kept);
        let words = [&len.to_le_bytes()[..], &helper.ledger()].concat();
        Ok(helper.write(LiveVa(LENGTH), &words)?)
    }

    /// The one in process `pid`; `None` if there is none yet, but somebody began.
    ///
    /// # Errors
    /// If nobody did, or it is damaged.
    pub(super) fn read(pid: Pid) -> Result<Option<Journal>, AttachError> {
        let number = pid.as_raw();
        Status::of_what_runs(number)?;
        let stopped = Stopped::looked_at(pid)?;
        let damaged = || AttachError::Journal { pid: number };
        match stopped.word(LiveVa(JOURNAL)) {
            // Killed when all but the last page was taken away.
            Err(_) if is_left(&stopped) => return Ok(None),
            Err(_) => return Err(AttachError::NothingToUndo { pid: number }),
            // Killed between two calls.
            Ok(0) => return Ok(None),
            Ok(MAGIC) => {}
            Ok(_) => return Err(damaged()),
        }
        let len = stopped.word(LiveVa(LENGTH))? & !(IS_BACK | GRAFTS_GONE | TEXT_BACK);
        if len == 0 {
            return Ok(None);
        }
        if len > MOST {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| damaged())?];
        stopped.read(LiveVa(BODY), &mut bytes)?;
        postcard::from_bytes(&bytes).map(Some).map_err(|_| damaged())
    }
}

/// Says that all is as it was, but for what is mapped.
///
/// # Errors
/// If it cannot be written.
pub(super) fn set_back(helper: &Stopped) -> Result<(), AttachError> {
    set(helper, IS_BACK)
}

/// Says that code of other files is about to be unmapped: should we die now, some of it stays, for what comes
/// to be there later is the program's.
///
/// # Errors
/// If it cannot be written.
pub(super) fn set_grafts_gone(helper: &Stopped) -> Result<(), AttachError> {
    set(helper, GRAFTS_GONE)
}

/// Says that old text is back.
///
/// # Errors
/// If it cannot be written.
pub(super) fn set_text_back(helper: &Stopped) -> Result<(), AttachError> {
    set(helper, TEXT_BACK)
}

/// Whether somebody has said so of process `pid`.
pub(super) fn is_text_back(pid: Pid) -> bool {
    let word = Stopped::looked_at(pid).and_then(|stopped| stopped.word(LiveVa(LENGTH)));
    word.is_ok_and(|len| len & TEXT_BACK != 0)
}

fn set(helper: &Stopped, bit: u64) -> Result<(), AttachError> {
    let len = helper.word(LiveVa(LENGTH))?;
    Ok(helper.write(LiveVa(LENGTH), &(len | bit).to_le_bytes())?)
}

/// Whether somebody has said so.
pub(super) fn are_grafts_gone(stopped: &Stopped) -> bool {
    stopped.word(LiveVa(LENGTH)).is_ok_and(|len| len & GRAFTS_GONE != 0)
}

/// Whether the moved code of `module` is mapped still: it goes in one call with its counters.
pub(super) fn is_text_mapped(mappings: &[Mapping], module: &PutIn) -> bool {
    let start = LiveVa(module.text().start);
    mappings.iter().any(|m| m.range.contains(&start) && m.path.as_deref() == Some(Path::new(CODE)))
}

/// Whether somebody has said so.
pub(super) fn is_back(stopped: &Stopped) -> bool {
    stopped.word(LiveVa(LENGTH)).is_ok_and(|len| len & IS_BACK != 0)
}

/// Whether there is something in process `pid` that is ours. By what is mapped, too: programs may have memory
/// of their own there that holds nothing.
pub(super) fn is_there(pid: Pid) -> bool {
    let Ok(stopped) = Stopped::looked_at(pid) else { return false };
    let has_one = || stopped.word(LiveVa(JOURNAL)).is_ok_and(|word| word == MAGIC || word == 0);
    if !has_one() && !is_left(&stopped) {
        return false;
    }
    let is_ours = |m: &Mapping| {
        let (start, end) = (m.range.start.0, m.range.end.0);
        let is_plain = m.path.is_none() && m.name.is_none();
        is_plain && start == JOURNAL && m.writable && !m.executable
            || is_plain && (start, end) == (HELPER, HELPER + PAGE) && m.executable && !m.writable
    };
    stopped.mappings().is_ok_and(|all| all.iter().any(is_ours))
}

/// Whether there is a journal in the process of `stopped` that holds.
pub(super) fn is_complete(stopped: &Stopped) -> bool {
    stopped.word(LiveVa(LENGTH)).is_ok_and(|len| len > 0)
}

/// Whether a helper's page of code is there.
pub(super) fn is_left(stopped: &Stopped) -> bool {
    let mut there = [0; arch::HELPER_CODE.len()];
    let read = stopped.read(LiveVa(HELPER), &mut there);
    // Perhaps nothing is written there yet.
    read.is_ok() && (there == arch::HELPER_CODE || there == [0; arch::HELPER_CODE.len()])
}

//! The auxiliary vector on the stack of a program that has not run yet.
//!
//! Source: getauxval(3).

use crate::process::{ProcessError, Stopped};
use program::LiveVa;

pub(super) const AT_PHDR: u64 = 3;
pub(super) const AT_PHNUM: u64 = 5;
pub(super) const AT_BASE: u64 = 7;
pub(super) const AT_ENTRY: u64 = 9;

/// The auxiliary vector on the stack of a program that has not run yet.
pub(super) struct Auxiliary {
    rows: Vec<(u64, LiveVa, u64)>,
}

impl Auxiliary {
    pub(super) fn read(stopped: &Stopped) -> Result<Auxiliary, ProcessError> {
        let mut at = stopped.stack_pointer()?.0;
        let n_args = stopped.word(LiveVa(at))?;
        at += 8 * (n_args + 2);
        while stopped.word(LiveVa(at))? != 0 {
            at += 8;
        }
        at += 8;
        let mut rows = Vec::new();
        loop {
            let (tag, value) = (stopped.word(LiveVa(at))?, stopped.word(LiveVa(at + 8))?);
            if tag == 0 {
                return Ok(Auxiliary { rows });
            }
            rows.push((tag, LiveVa(at + 8), value));
            at += 16;
        }
    }
    pub(super) fn value(&self, tag: u64, stopped: &Stopped) -> Result<LiveVa, ProcessError> {
        let row = self.rows.iter().find(|r| r.0 == tag);
        row.map(|r| LiveVa(r.2))
            .ok_or_else(|| stopped.space(format!("its auxiliary vector has no entry {tag}")))
    }
    pub(super) fn set(&self, tag: u64, value: u64, stopped: &Stopped) -> Result<(), ProcessError> {
        match self.rows.iter().find(|r| r.0 == tag) {
            Some(row) => stopped.write(row.1, &value.to_le_bytes()),
            None => Err(stopped.space(format!("its auxiliary vector has no entry {tag}"))),
        }
    }
}

/// Where ld.so is, if there is one.
pub(super) fn linker_base(stopped: &Stopped) -> Result<Option<LiveVa>, ProcessError> {
    let vector = Auxiliary::read(stopped)?;
    Ok(vector.value(AT_BASE, stopped).ok().filter(|base| base.0 != 0))
}

//! Whether a process can be attached to: looked at from outside, before anything of it is touched.
//!
//! Source: proc(5).

use super::AttachError;
use super::lock::Lock;
use crate::process::{LookError, Mapping, Status, Stopped};
use nix::unistd::Pid;
use probe::arch::shared::{ARENA, HELPER, JOURNAL, PAGE, PROCESS, Process};
use program::LiveVa;

/// What the process has mapped, if it can be attached to.
///
/// # Errors
/// Why it cannot be.
pub(super) fn look(pid: Pid) -> Result<Vec<Mapping>, AttachError> {
    match look_locked(pid) {
        Err(AttachError::Abandoned { pid: number }) if Lock::take(pid)?.is_none() => {
            Err(AttachError::Attached { pid: number })
        }
        looked => looked,
    }
}

/// The same, for who has its lock.
///
/// # Errors
/// As above.
pub(super) fn look_locked(pid: Pid) -> Result<Vec<Mapping>, AttachError> {
    let number = pid.as_raw();
    let status = Status::of_program(number)?;
    if pid == Pid::this() {
        return Err(AttachError::Ourselves);
    }
    if let Some(tracer) = status.number("TracerPid:").filter(|tracer| *tracer != 0) {
        return Err(AttachError::Traced { pid: number, tracer });
    }
    if status.field("x86_Thread_features:").is_some_and(|features| features.contains("shstk")) {
        return Err(AttachError::ShadowStack { pid: number });
    }
    if Status::is_filtered(number) {
        return Err(AttachError::Filtered { pid: number });
    }
    let stopped = Stopped::traced(pid)?;
    let mappings = stopped.mappings()?;
    if mappings.is_empty() {
        return Err(LookError::Over { pid: number }.into());
    }
    refuse_occupied(number, &mappings)?;
    Ok(mappings)
}

/// Refuses a process that has something where what is ours would be.
fn refuse_occupied(pid: i32, mappings: &[Mapping]) -> Result<(), AttachError> {
    let is_at = |m: &&Mapping, from: u64, len: u64| m.range.start.0 < from + len && from < m.range.end.0;
    // A helper's page may be left of one who was killed.
    let ours = [(JOURNAL, PAGE), (PROCESS, Process::LEN), (ARENA, PAGE)];
    if let Some(taken) = mappings.iter().find(|m| ours.iter().any(|(at, len)| is_at(m, *at, *len))) {
        return Err(match mappings.iter().any(|m| m.range.start == LiveVa(JOURNAL)) {
            true => match super::replaced(pid) {
                Ok(Some(_)) => AttachError::Replaced { pid },
                _ => AttachError::Abandoned { pid },
            },
            false => AttachError::Observed { pid, at: taken.range.start },
        });
    }
    match mappings.iter().find(|m| is_at(m, HELPER, PAGE) && m.range.start.0 != HELPER) {
        Some(taken) => Err(AttachError::Observed { pid, at: taken.range.start }),
        None => Ok(()),
    }
}

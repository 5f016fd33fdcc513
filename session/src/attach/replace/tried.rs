//! Functions called in a copy of their process, and what came of it.

use super::{ReplaceError, RunningProgram};
use live::attach::{AttachError, CallRegisters, CameTo, Copied};
use probe::stand_in::{Counts, Word, Words, mxcsr};
use program::LiveVa;
use std::time::Duration;

/// No call in a copy may take longer.
pub(super) const LONG: Duration = Duration::from_secs(2);

/// A copy of a process.
pub(super) struct Copy {
    copied: Copied,
    /// Where errno is, if the process has one.
    errno: Option<LiveVa>,
}

/// What a call came to: bit for bit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Came {
    /// Its results; of those that are shorter than a register, the lower bytes alone say something.
    pub(super) results: Vec<u64>,
    /// The flags of MXCSR that it has raised.
    pub(super) raised: u32,
    /// What it has set errno to, if it did.
    pub(super) errno: Option<u32>,
}

impl Came {
    /// The same, without what says nothing.
    pub(super) fn of(self, words: &Words) -> Came {
        let lower = |(value, word): (u64, &Word)| {
            let unused = 64 - 8 * u32::from(word.used.clamp(1, 8));
            value & u64::MAX >> unused
        };
        let results = self.results.into_iter().zip(&words.results).map(lower).collect();
        Came { results, ..self }
    }
}

impl Copy {
    /// One of `process`, as it is now.
    pub(super) fn of(process: &RunningProgram) -> Result<Copy, ReplaceError> {
        let mut copy = Copy { copied: Copied::of(process.pid())?, errno: None };
        if let Ok(at) = process.bound("__errno_location") {
            let words = Words { arguments: Vec::new(), results: vec![Word::general(0, 8)] };
            if let Ok(came) = copy.call(at, &words, &registers(&words, &[]), LONG)? {
                copy.errno = came.results.first().map(|at| LiveVa(*at));
            }
        }
        Ok(copy)
    }

    /// How far errno is from where the thread pointer leads.
    pub(super) fn errno_distance(&self) -> Option<i32> {
        let distance = self.errno?.0.wrapping_sub(self.copied.thread_pointer().0).cast_signed();
        i32::try_from(distance).ok()
    }

    /// What the function at `at` comes to with these registers; or why it does not come back.
    pub(super) fn call(
        &self,
        at: LiveVa,
        words: &Words,
        registers: &CallRegisters,
        at_most: Duration,
    ) -> Result<Result<Came, String>, AttachError> {
        if let Some(errno) = self.errno {
            self.copied.set_half(errno, 0)?;
        }
        let before = CallRegisters { mxcsr: registers.mxcsr & !mxcsr::FLAGS, ..registers.clone() };
        let after = match self.copied.call(at, &before, at_most)? {
            CameTo::Back(after) => after,
            CameTo::Signal { signal, at } => {
                let name = live::signal_name(signal);
                return Ok(Err(format!("ended by {name} at live:{:#x}", at.0)));
            }
            CameTo::SystemCall { number, .. } => {
                return Ok(Err(format!("asked the kernel for something (system call {number})")));
            }
            CameTo::TooLong => return Ok(Err(format!("was not back after {} s", at_most.as_secs()))),
        };
        let result = |word: &Word| {
            let all = if word.is_vector { &after.vector } else { &after.general };
            all.get(usize::from(word.number)).copied().unwrap_or_default()
        };
        let errno = match self.errno {
            Some(errno) => Some(self.copied.half(errno)?).filter(|value| *value != 0),
            None => None,
        };
        let results = words.results.iter().map(result).collect();
        Ok(Ok(Came { results, raised: after.mxcsr & mxcsr::FLAGS, errno }))
    }

    /// The same in each mode of calculation: what it comes to in the one in which programs start, and in
    /// which others it is the same.
    pub(super) fn call_in_all_modes(
        &self,
        at: LiveVa,
        words: &Words,
        arguments: &[u64],
    ) -> Result<Result<(Came, Counts), String>, AttachError> {
        let in_mode = |mxcsr: u32| -> Result<Result<Came, String>, AttachError> {
            let registers = CallRegisters { mxcsr, ..registers(words, arguments) };
            Ok(self.call(at, words, &registers, LONG)?.map(|came| came.of(words)))
        };
        let came = match in_mode(mxcsr::DEFAULT)? {
            Ok(came) => came,
            Err(why) => return Ok(Err(why)),
        };
        let mut counts = Counts::Always;
        for mode in mxcsr::modes() {
            if in_mode(mode)?.as_ref() != Ok(&came) {
                counts = Counts::Nearest;
                if mxcsr::is_nearest(mode) {
                    return Ok(Ok((came, Counts::Default)));
                }
            }
        }
        Ok(Ok((came, counts)))
    }
}

/// Registers that pass these arguments to a function of `words`, rounding to nearest.
pub(super) fn registers(words: &Words, arguments: &[u64]) -> CallRegisters {
    let mut registers = CallRegisters { general: [0; 16], vector: [0; 16], mxcsr: mxcsr::DEFAULT };
    for (word, value) in words.arguments.iter().zip(arguments) {
        let all = if word.is_vector { &mut registers.vector } else { &mut registers.general };
        if let Some(place) = all.get_mut(usize::from(word.number)) {
            *place = *value;
        }
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_a_result_in_its_register_says_nothing() {
        let came = Came { results: vec![0x1234_5678_9abc_def0; 4], raised: 0, errno: None };
        let word = |used| Word { used, ..Word::general(0, if used > 4 { 8 } else { 4 }) };
        let words = Words { arguments: Vec::new(), results: [1, 2, 6, 8].map(word).to_vec() };
        let want = [0xf0, 0xdef0, 0x5678_9abc_def0, 0x1234_5678_9abc_def0];
        assert_eq!(came.of(&words).results, want);
    }
}

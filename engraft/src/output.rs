//! What the user sees: data on standard output or in a file, talk on standard error.
//!
//! Invariant: nothing else in the workspace prints. Where data are asked for as JSON, each line of talk is a
//! JSON object too. A reader that closes its end of the pipe is no failure.
//!
//! Not here: what the data look like (the crate `views`).

mod files;
mod format;
mod hints;
mod look;
mod profiles;
mod talk;
mod temporary;
mod terminal;

pub use files::{
    can_be_written, create, data, discard, file, is_own_file, is_standard_output, refuse_overwriting,
    refuse_replacing, standard_stream,
};
pub use format::{Format, Output, Report};
pub use hints::{Hinted, WHY_NOT_MOVED, hint, of_instrument};
use look::StandardStream;
pub use look::{Color, Looks, Rows, are_names_mangled, set_looks};
pub use profiles::{format_named, output_format, unnamed, write_profile, written_formats};
pub use talk::{
    TalkMode, erase_progress, failed, pause_progress, resume_progress, say, set_talk_mode, show_progress,
    talk_mode, warn, warned,
};
pub use temporary::goes_with_us;
pub use terminal::{WholeTerminal, is_any_terminal, is_output_terminal};

use std::process::ExitCode;

/// What a verb found out, once it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done.
    Yes,
    /// Done, and the answer is no: a gate did not hold, nothing matched, a promise is broken.
    No,
    /// A program was run, and this is its exit status; 128 + n for signal n.
    Status(u8),
}

/// Has signals that end us take away what is in the making, first. Said again, it holds again, where signals
/// were for a program meanwhile.
pub fn tidy_before_signals_end_us() {
    let _at_once = live::tidy_before_signals_end_us(|| {
        pause_progress();
        temporary::take_away();
    });
}

/// Once a program of ours has run that signals were for: they are for us again; and if one came that asks to
/// end, we do, by it, with nothing left behind.
pub fn end_if_asked() {
    tidy_before_signals_end_us();
    if let Some(signal) = live::asked_to_end_by() {
        pause_progress();
        temporary::take_away();
        live::end_by(signal);
    }
}

/// Columns of the terminal that data go to, if it is one.
pub fn width() -> Option<usize> {
    look::width(StandardStream::Output)
}

/// Whether data have colours where they go.
pub fn has_colors() -> bool {
    look::has_colors(Some(StandardStream::Output))
}

/// Runs the command and turns what comes of it into an exit code: 0 done, 1 the answer is no, 2 failed.
pub fn finish(result: anyhow::Result<Answer>) -> ExitCode {
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Status(status)) => ExitCode::from(status),
        Err(err) if err.downcast_ref::<files::Closed>().is_some() => ExitCode::SUCCESS,
        Err(err) => {
            failed(&format!("{err:#}"), hint(&err).as_deref());
            ExitCode::from(2)
        }
    }
}

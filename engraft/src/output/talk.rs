//! Talk on standard error: errors, warnings, reports beside the output of a program.

use super::look::{self, StandardStream};
use crate::output::hints::of_warning;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How to talk: as JSON, and nothing but errors.
#[derive(Clone, Copy, Default, Debug)]
pub struct TalkMode {
    /// Each line of talk is a JSON object.
    pub json: bool,
    /// Nothing but errors is said, and no report beside a file that was asked for.
    pub quiet: bool,
}

static TALK_MODE: OnceLock<TalkMode> = OnceLock::new();

/// Sets how to talk; the first call counts.
pub fn set_talk_mode(mode: TalkMode) {
    let _set_before = TALK_MODE.set(mode);
}

/// How to talk.
pub fn talk_mode() -> TalkMode {
    TALK_MODE.get().copied().unwrap_or_default()
}

/// A message without the kernel's numbers of errors, which its words say: ` (os error 2)`.
fn in_words(message: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = message.split(NUMBER);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((_, rest)) => text.push_str(rest),
            None => text.extend([NUMBER, part]),
        }
    }
    text
}

/// Says what failed, and each remedy on a line of its own.
pub fn failed(error: &str, hint: Option<&str>) {
    let (error, hint) = (&in_words(error), hint.filter(|hint| !hint.is_empty()));
    if talk_mode().json {
        let object = serde_json::json!({ "schema": "engraft.error/1", "error": error, "hint": hint });
        return say(object);
    }
    say(format_args!("{} {error}", marked("engraft:", RED)));
    say_hints(hint);
}

/// Says what should be looked at, though the work goes on; and each remedy on a line of its own.
pub fn warn(warning: &str, hint: Option<&str>) {
    let TalkMode { json, quiet } = talk_mode();
    if quiet {
        return;
    }
    let warning = &in_words(warning);
    if json {
        let object = serde_json::json!({ "schema": "engraft.warning/1", "warning": warning, "hint": hint });
        return say(object);
    }
    say(format_args!("{} {warning}", marked("engraft: warning:", YELLOW)));
    say_hints(hint);
}

const RED: u8 = 31;
const YELLOW: u8 = 33;
const CYAN: u8 = 36;

/// What a line starts with, in bold and of this colour where there are any.
fn marked(text: &str, color: u8) -> String {
    match look::has_colors(Some(StandardStream::Error)) {
        true => format!("\x1b[1;{color}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

fn say_hints(hint: Option<&str>) {
    for hint in hint.into_iter().flat_map(str::lines) {
        say(format_args!("{} {hint}", marked("hint:", CYAN)));
    }
}

/// Says what a session warns of.
pub fn warned(warning: &session::Warning) {
    warn(&warning.to_string(), of_warning(warning));
}

/// The line of a terminal that says what is being done; what is said next takes its place.
static PROGRESS: Mutex<Progress> = Mutex::new(Progress { is_shown: false, is_paused: false });

struct Progress {
    is_shown: bool,
    is_paused: bool,
}

impl Progress {
    fn erase(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _gone = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn progress() -> MutexGuard<'static, Progress> {
    PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows what is being done, until something else is said.
pub fn show_progress(what: fmt::Arguments<'_>) {
    let mut progress = progress();
    if !progress.is_paused {
        let _gone = write!(io::stderr(), "\r\x1b[K{what}");
        progress.is_shown = true;
    }
}

/// Takes what is being done off the terminal.
pub fn erase_progress() {
    progress().erase();
}

/// The same, and shows nothing more: the terminal is for data, or for a program.
pub fn pause_progress() {
    let mut progress = progress();
    progress.erase();
    progress.is_paused = true;
}

/// Shows it again.
pub fn resume_progress() {
    progress().is_paused = false;
}

/// Writes a report beside the output of a program, whose standard output is its own. That it cannot be said
/// is no reason to stop.
pub fn report(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut text = Vec::new();
    let _memory = write(&mut text);
    pause_progress();
    let _gone = io::stderr().lock().write_all(&text);
}

/// One line of talk. That it cannot be said is no reason to stop.
pub fn say(line: impl fmt::Display) {
    erase_progress();
    let width = look::width(StandardStream::Error).filter(|_| !talk_mode().json);
    let line = width.map_or_else(|| line.to_string(), |width| views::wrap(&line.to_string(), width));
    let _gone = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_have_no_numbers_of_errors() {
        for (message, want) in [
            (
                "cannot read a: No such file or directory (os error 2)",
                "cannot read a: No such file or directory",
            ),
            ("a (os error 13): b (os error 2), c", "a: b, c"),
            ("a (os error x) b", "a (os error x) b"),
        ] {
            assert_eq!(super::in_words(message), want);
        }
    }
}

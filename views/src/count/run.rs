//! Which run a recording is of: what was run, when, where, and how it ended.

use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A run, as its recording describes it.
#[derive(Debug, Serialize)]
pub struct RunView {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Those variables of its environment that were kept.
    pub environment: BTreeMap<String, String>,
    /// When it started (UTC), as RFC 3339 has it.
    pub start: String,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// Its exit status, if it exited.
    pub exit_status: Option<i32>,
    /// The number of the signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Where it ran.
    pub machine: MachineView,
    /// The version of ours that recorded it.
    pub version: String,
}

/// A machine.
#[derive(Debug, Serialize)]
pub struct MachineView {
    /// Its name.
    pub host: String,
    /// The kernel and its release.
    pub kernel: String,
    /// The processor, as it calls itself.
    pub cpu: String,
    /// How many processors are online.
    pub n_cpus: u32,
}

impl RunView {
    /// What was run, as a shell reads it.
    pub fn command_line(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        words.join(" ")
    }

    /// How it ended.
    pub fn end(&self) -> String {
        match (self.exit_status, self.signal) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "end not known".to_owned(),
        }
    }

    /// The lines in front of a report.
    pub(crate) fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "command: {}", self.command_line())?;
        for (name, value) in &self.environment {
            writeln!(w, "with {name}={}", quoted(value))?;
        }
        writeln!(w, "started {}, ran {:.3} s, {}", self.start, self.seconds, self.end())?;
        let MachineView { host, kernel, cpu, n_cpus } = &self.machine;
        writeln!(w, "on {host}: {n_cpus} x {cpu}, {kernel}; by engraft {}", self.version)
    }
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_by_a_shell() {
        for word in ["a", "", "a b", "it's", "$(x)", "\u{e4}\n*"] {
            let script = format!("printf %s {}", quoted(word));
            let out = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
            assert_eq!(String::from_utf8_lossy(&out.stdout), word);
        }
    }
}

//! How a program died, as the verbs that run one say it.

use serde::Serialize;
use std::fmt;

/// A program that a signal has ended. Of where, nothing is there that is not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeathView {
    /// The signal's number.
    pub signal: i32,
    /// What it is called: `SIGSEGV`.
    pub name: String,
    /// The file of the instruction that the thread was at.
    pub module: Option<String>,
    /// The instruction: a virtual address as in that file.
    pub at: Option<u64>,
    /// The function.
    pub function: Option<String>,
    /// How many bytes behind its start.
    pub offset: Option<u64>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
}

impl fmt::Display for DeathView {
    /// `SIGSEGV at f+0x12 (a.c:10) in a`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (&self.function, self.offset, self.at) {
            (Some(function), Some(offset), _) => write!(f, " at {function}+{offset:#x}")?,
            (_, _, Some(at)) => write!(f, " at {at:#x}")?,
            _ => {}
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, " ({}:{line})", file.rsplit('/').next().unwrap_or(file))?;
        }
        match &self.module {
            Some(module) => write!(f, " in {module}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let (signal, name) = (11, "SIGSEGV".to_owned());
        let none = DeathView {
            signal,
            name,
            module: None,
            at: None,
            function: None,
            offset: None,
            file: None,
            line: None,
        };
        assert_eq!(none.to_string(), "SIGSEGV");
        let at = DeathView { module: Some("a".to_owned()), at: Some(0x1012), ..none };
        assert_eq!(at.to_string(), "SIGSEGV at 0x1012 in a");
        let whole = DeathView {
            function: Some("f".to_owned()),
            offset: Some(0x12),
            file: Some("/src/a.c".to_owned()),
            line: Some(10),
            ..at
        };
        assert_eq!(whole.to_string(), "SIGSEGV at f+0x12 (a.c:10) in a");
    }
}

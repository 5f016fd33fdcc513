//! The program that a verb runs: every word from its name on is its own.
//!
//! Not here: where it is found (`session::find`), and what is done to it.

use std::ffi::{OsStr, OsString};

/// What is run, as it stands last on the command line. Options of ours end at the first word that is none.
#[derive(clap::Args, Debug)]
pub struct CommandLine {
    /// The program to run, and its arguments: options behind it are its own; `--` may stand before it
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    words: Vec<OsString>,
}

impl CommandLine {
    /// The program's name as it was given, and its arguments.
    pub fn split(&self) -> (&OsStr, &[OsString]) {
        let (name, args) = self.words.split_first().expect("clap asks for one at least");
        (name, args)
    }

    /// What may have been meant, where the program's name is nothing that can be run: a list behind an option
    /// ends at its first word.
    pub fn hint_on_lists(&self) -> Option<String> {
        let (name, args) = self.split();
        let meant = args.iter().skip_while(|word| *word != "--").nth(1)?;
        let (name, meant) = (name.to_string_lossy(), meant.to_string_lossy());
        Some(format!(
            "{name} is the first word that is no option, so it was taken for the program, not {meant}: of several \
             values, give each with its option, as in `--modules A --modules B`"
        ))
    }
}

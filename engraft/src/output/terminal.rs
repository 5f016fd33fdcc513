//! The terminal, taken for a view that fills it, and given back as it was: whatever happens meanwhile.
//!
//! It is the one that controls us (`/dev/tty`), so that what goes to standard output is nobody's concern.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::panic;

/// Whether standard output is a terminal.
pub fn is_output_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output or standard error is one.
pub fn is_any_terminal() -> bool {
    is_output_terminal() || io::stderr().is_terminal()
}

/// The terminal, while it is ours.
pub struct WholeTerminal {
    /// What is drawn on.
    pub drawn: Terminal<CrosstermBackend<File>>,
}

fn tty() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

impl WholeTerminal {
    /// Takes it: keys come one by one, and all of it is blank.
    ///
    /// # Errors
    /// If there is none. Then nothing of it has changed.
    pub fn take() -> io::Result<WholeTerminal> {
        let drawn = Terminal::new(CrosstermBackend::new(tty()?))?;
        let before = panic::take_hook();
        // What a panic says is to be read.
        panic::set_hook(Box::new(move |about| {
            give_back();
            before(about);
        }));
        let mut taken = WholeTerminal { drawn };
        enable_raw_mode()?;
        execute!(taken.drawn.backend_mut(), EnterAlternateScreen, Hide)?;
        Ok(taken)
    }
}

impl Drop for WholeTerminal {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ours = panic::take_hook();
        }
        give_back();
    }
}

/// As it was. Said again, it does nothing.
fn give_back() {
    let _gone = disable_raw_mode();
    let _gone = tty().and_then(|mut tty| execute!(tty, Show, LeaveAlternateScreen));
}

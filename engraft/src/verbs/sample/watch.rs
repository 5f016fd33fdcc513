//! `engraft sample --live`: where threads are, shown while they are sampled.
//!
//! ```text
//!  Sampler (a thread) ─ a Glimpse a second ─► Screen ─► draw ─► the terminal
//!  analysis (a thread) ─ programs, one by one ─►┘ ◄─ keys
//! ```
//! Invariant: what is shown changes nothing of what is sampled; records are taken whatever the view does.

mod draw;
mod screen;

use crate::output::{self, Hinted, WholeTerminal};
use program::{Image, Program};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Asked, Screen};
use session::{Glimpse, SeenImage};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How often what is shown is new; and how many times that is of late.
pub const PARTS: (Duration, usize) = (Duration::from_secs(1), 10);
/// It is looked at keys, and whether all is over, so often.
const LOOK: Duration = Duration::from_millis(50);

/// Refuses what cannot be shown: a program of ours would write over the view, and be drawn over.
///
/// # Errors
/// If there is no terminal, or a program that is started writes to it.
pub fn refuse_unfit(is_started: bool) -> anyhow::Result<()> {
    if is_started && output::is_any_terminal() {
        let what = "--live fills the terminal to which the program would write";
        let hint =
            "redirect what it writes, `> FILE 2> FILE`, or start it elsewhere and look at it with -p PID";
        return Err(Hinted::new(what, hint).into());
    }
    if !is_started && !output::is_output_terminal() {
        return Err(Hinted::new("--live needs a terminal, and standard output is none", WITHOUT).into());
    }
    Ok(())
}

const WITHOUT: &str = "without --live, what was sampled is reported in the end";

/// Takes the terminal.
///
/// # Errors
/// If there is none.
pub fn terminal() -> anyhow::Result<WholeTerminal> {
    WholeTerminal::take()
        .map_err(|err| Hinted::new(format!("--live needs a terminal: {err}"), WITHOUT).into())
}

/// Shows what comes of `glimpses` of `what`, until it `is_over`, or whoever looks has seen enough: then the
/// terminal is as it was.
pub fn show(
    mut terminal: WholeTerminal,
    what: String,
    glimpses: &Receiver<Glimpse>,
    is_over: &mut dyn FnMut() -> bool,
) {
    let (asks, asked) = channel();
    let (gives, given) = channel();
    // It may be at work when nobody looks any more.
    let analyses = std::thread::Builder::new().spawn(move || analyze(&asked, &gives));
    let mut screen = Screen::new(what);
    let mut n_asked = 0;
    let mut is_new = true;
    while !is_over() {
        for glimpse in glimpses.try_iter() {
            for image in glimpse.images.iter().enumerate().skip(n_asked) {
                let _nobody = asks.send((image.0, image.1.clone()));
                n_asked += 1;
            }
            screen.hear(glimpse);
            is_new = true;
        }
        for (n, program) in given.try_iter() {
            screen.know(n, program);
            is_new = true;
        }
        // A terminal that is gone has nobody before it.
        if is_new && terminal.drawn.draw(|frame| draw::draw(&mut screen, frame)).is_err() {
            break;
        }
        is_new = false;
        match key() {
            Ok(None) => {}
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                is_new = true;
                if screen.key(key) == Asked::End {
                    break;
                }
            }
            Ok(Some(_)) => is_new = true,
            Err(_) => break,
        }
    }
    drop(analyses);
}

/// What comes next of the terminal, if something comes soon.
fn key() -> io::Result<Option<Event>> {
    let read = || if event::poll(LOOK)? { event::read().map(Some) } else { Ok(None) };
    match read() {
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Ok(None),
        read => read,
    }
}

/// Analyses the images that are `asked` for, as far as they are in files, one after the other.
fn analyze(asked: &Receiver<(usize, SeenImage)>, gives: &Sender<(usize, Program)>) {
    for (n, image) in asked {
        let Some(mut loaded) = image.file.and_then(|file| Image::load(&file).ok()) else { continue };
        loaded.name = image.path.display().to_string();
        if gives.send((n, Program::analyze_code(loaded))).is_err() {
            return;
        }
    }
}

//! Which page an address stands for, and in which form.

mod compared;
mod counted;
mod frame;
mod function;
mod grid;
mod reports;
mod sampled;
mod searched;
mod trees;
mod valued;

use crate::address::{Asked, Form, Query};
use crate::assets;
use crate::recordings::{Failed, Recordings};
use askama::Template;
use frame::Frame;
pub use grid::LONGEST_IN_FILE;
use grid::{Grid, Orders};
use hyper::body::Bytes;
use std::sync::Arc;
use views::recordings::{RecordingsView, What};
use views::{Look, View};

/// All pages of some recordings.
pub struct Site {
    recordings: Arc<dyn Recordings>,
    orders: Orders,
}

/// What is answered.
#[derive(Debug)]
pub struct Answer {
    /// As HTTP numbers it.
    pub status: u16,
    /// What the bytes are.
    pub kind: &'static str,
    /// The content.
    pub bytes: Bytes,
    /// Where it is to be found instead.
    pub location: Option<String>,
    /// As what it is kept, if it is to be.
    pub file: Option<&'static str>,
}

const HTML: &str = "text/html; charset=utf-8";

impl Answer {
    fn new(status: u16, kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
        Answer { status, kind, bytes: bytes.into(), location: None, file: None }
    }

    /// A refusal without details, since the client may be anyone.
    pub fn refused(status: u16) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", format!("{status}\n"))
    }

    /// A page.
    fn page(template: &impl Template) -> Answer {
        match template.render() {
            Ok(text) => Answer::new(200, HTML, text),
            Err(_) => Answer::refused(500),
        }
    }

    /// That it is at another address.
    fn elsewhere(to: &str) -> Answer {
        Answer { location: Some(to.to_owned()), ..Answer::new(303, HTML, "") }
    }

    /// The JSON or CSV twin of a page; in the order, and of the rows, that `query` asks for.
    fn twin(view: &impl View, form: Form, query: &Query) -> Answer {
        let mut bytes = Vec::new();
        let (kind, file, written) = match form {
            Form::Csv => {
                let look = Look {
                    sort: query.get("sort").map(str::to_owned),
                    is_reversed: query.get("order").is_some(),
                    filter: query.get("q").map(grid::pattern),
                    ..Look::default()
                };
                let written = look.write(&mut bytes, |w| view.csv(w)).map(drop);
                ("text/csv; charset=utf-8", "attachment; filename=\"engraft.csv\"", written)
            }
            _ => ("application/json", "inline; filename=\"engraft.json\"", view.json(&mut bytes)),
        };
        match written {
            Ok(()) => Answer { file: Some(file), ..Answer::new(200, kind, bytes) },
            Err(_) => Answer::refused(500),
        }
    }
}

/// Why there is no page.
enum NoPage {
    /// There is nothing of that name.
    Unknown,
    /// It cannot be shown.
    Failed(Failed),
}

impl From<Failed> for NoPage {
    fn from(failed: Failed) -> NoPage {
        NoPage::Failed(failed)
    }
}

impl Site {
    /// The pages of `recordings`.
    pub fn new(recordings: Arc<dyn Recordings>) -> Site {
        Site { recordings, orders: Orders::default() }
    }

    /// What is at `path`, which is what stands behind the token, with this query.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Answer {
        let Some(asked) = Asked::parse(path, query) else { return Answer::refused(404) };
        let Some(n) = asked.recording else { return self.top(&asked) };
        let Some(row) = self.recordings.all().recordings.get(n) else { return Answer::refused(404) };
        let place = Place {
            recordings: &*self.recordings,
            orders: &self.orders,
            n,
            recording: &row.recording,
            what: row.what,
        };
        if asked.page == "export" {
            return place.export(&asked.query);
        }
        let page = match row.what {
            What::Counts | What::Trace => counted::answer(&place, &asked),
            What::Values => valued::answer(&place, &asked),
            What::Samples => sampled::answer(&place, &asked),
            What::Comparison => compared::answer(&place, &asked),
            What::Match => reports::matched::answer(&place, &asked),
            What::Carry => reports::carried::answer(&place, &asked),
            What::Matrix => reports::matrix::answer(&place, &asked),
        };
        page.unwrap_or_else(|why| match why {
            NoPage::Unknown => Answer::refused(404),
            NoPage::Failed(failed) => place.not_shown(&failed),
        })
    }

    /// What is not of a recording: which there are, and files of ours.
    fn top(&self, asked: &Asked<'_>) -> Answer {
        let all = self.recordings.all();
        match asked.page {
            "" if all.recordings.len() == 1 => Answer::elsewhere("0/"),
            "" => Answer::page(&Index { frame: Frame::top(&asked.query), all }),
            "recordings.json" => Answer::twin(all, Form::Json, &asked.query),
            "recordings.csv" => Answer::twin(all, Form::Csv, &asked.query),
            name => match assets::find(name) {
                Some((kind, text)) => Answer::new(200, kind, text),
                None => Answer::refused(404),
            },
        }
    }
}

/// The recording whose pages are asked for.
struct Place<'a> {
    recordings: &'a dyn Recordings,
    orders: &'a Orders,
    n: usize,
    recording: &'a str,
    what: What,
}

impl Place<'_> {
    /// Why something of it is not shown.
    fn not_shown(&self, failed: &Failed) -> Answer {
        let frame = Frame::new(self, "not shown", "");
        let page = NotShown { frame, what: &failed.what, hint: failed.hint.as_deref().unwrap_or_default() };
        Answer { status: 404, ..Answer::page(&page) }
    }

    /// A file of it for another tool.
    fn export(&self, query: &Query) -> Answer {
        let wanted = query.get("to").unwrap_or_default();
        let Some(export) = frame::exports(self.what).iter().find(|export| export.to == wanted) else {
            return Answer::refused(404);
        };
        match self.recordings.exported(self.n, export.to) {
            Ok(bytes) => Answer {
                file: Some(export.disposition),
                ..Answer::new(200, "application/octet-stream", bytes)
            },
            Err(failed) => self.not_shown(&failed),
        }
    }
}

/// Which recordings there are.
#[derive(Template)]
#[template(path = "index.html")]
struct Index<'a> {
    frame: Frame,
    all: &'a RecordingsView,
}

/// Why something is not shown.
#[derive(Template)]
#[template(path = "not_shown.html")]
struct NotShown<'a> {
    frame: Frame,
    what: &'a str,
    hint: &'a str,
}

/// A page of rows, or these alone.
fn list(asked: &Asked<'_>, frame: Frame, title: &'static str, grid: Grid) -> Answer {
    match asked.form {
        Form::Rows => Answer::page(&grid),
        _ => Answer::page(&List { frame, title, grid }),
    }
}

#[derive(Template)]
#[template(path = "list.html")]
struct List {
    frame: Frame,
    title: &'static str,
    grid: Grid,
}

//! What is around each page: where one is, where one can go, what prints the same.

use super::Place;
use crate::address::Query;
use views::recordings::What;

/// What is around a page.
pub struct Frame {
    /// Of the window.
    pub title: String,
    /// What leads from the page to the first one: "" or "../".
    pub base: &'static str,
    /// The recording.
    pub recording: String,
    /// Pages of the same recording.
    pub tabs: Vec<Tab>,
    /// The command that prints the same.
    pub command: String,
    /// Addresses of the page's twins.
    pub twins: Vec<Tab>,
    /// Addresses of files of the recording for other tools.
    pub exports: Vec<Tab>,
}

/// A name that leads somewhere.
pub struct Tab {
    /// What it is called.
    pub name: &'static str,
    /// Where it leads.
    pub href: String,
    /// Whether one is there.
    pub is_here: bool,
}

impl Frame {
    /// Around the list of recordings.
    pub fn top(query: &Query) -> Frame {
        let frame = Frame {
            title: "recordings".to_owned(),
            base: "",
            recording: String::new(),
            tabs: Vec::new(),
            command: "engraft view".to_owned(),
            twins: Vec::new(),
            exports: Vec::new(),
        };
        frame.with_twins("recordings", query)
    }

    /// Around the page `title` of a recording; `words` stand behind `engraft show REC` to print the same.
    pub fn new(place: &Place<'_>, title: &str, words: &str) -> Frame {
        let command = format!("engraft show {} {words}", word(place.recording));
        Frame {
            title: format!("{title} · {}", place.recording),
            base: "../",
            recording: place.recording.to_owned(),
            tabs: Vec::new(),
            command: command.trim_end().to_owned(),
            twins: Vec::new(),
            exports: exports(place.what)
                .iter()
                .map(|export| Tab {
                    name: export.name,
                    href: Query::default().with("to", Some(export.to)).link("export"),
                    is_here: false,
                })
                .collect(),
        }
    }

    /// With the command that prints the same, where that is not `engraft show REC`.
    pub fn with_command(self, command: String) -> Frame {
        Frame { command, ..self }
    }

    /// With these pages of the same recording; `here` is the one that it is around.
    pub fn with_tabs(mut self, here: &str, all: &[(&'static str, &str)]) -> Frame {
        let tab =
            |&(name, page): &(&'static str, &str)| Tab { name, href: page.to_owned(), is_here: page == here };
        self.tabs = all.iter().map(tab).collect();
        self
    }

    /// With the twins of the page `page`, in the state that `query` says.
    pub fn with_twins(mut self, page: &str, query: &Query) -> Frame {
        // A file has no others beside it.
        if query.get("file").is_some() {
            self.exports.clear();
            return self;
        }
        let query = query.only(&[
            "q", "sort", "order", "name", "metric", "n", "inverted", "between", "thread", "path", "nth", "of",
        ]);
        let twin = |name, end| Tab { name, href: query.link(&format!("{page}.{end}")), is_here: false };
        self.twins = vec![twin("JSON", "json"), twin("CSV", "csv")];
        self
    }
}

/// A file of a recording for another tool.
pub struct Export {
    /// The tool.
    pub name: &'static str,
    /// The format, as `engraft convert --to` names it.
    pub to: &'static str,
    /// As what it is kept, as HTTP says it.
    pub disposition: &'static str,
}

/// Which there are of a recording.
pub fn exports(what: What) -> &'static [Export] {
    match what {
        What::Samples => &[
            Export {
                name: "Firefox Profiler",
                to: "firefox",
                disposition: "attachment; filename=\"engraft.firefox.json\"",
            },
            Export {
                name: "speedscope",
                to: "folded",
                disposition: "attachment; filename=\"engraft.folded\"",
            },
            Export { name: "pprof", to: "pprof", disposition: "attachment; filename=\"engraft.pb.gz\"" },
        ],
        What::Trace => &[
            Export {
                name: "Perfetto",
                to: "chrome",
                disposition: "attachment; filename=\"engraft.trace.json\"",
            },
            Export {
                name: "speedscope",
                to: "folded",
                disposition: "attachment; filename=\"engraft.folded\"",
            },
        ],
        What::Counts => &[
            Export {
                name: "KCachegrind",
                to: "callgrind",
                disposition: "attachment; filename=\"callgrind.out.engraft\"",
            },
            Export { name: "pprof", to: "pprof", disposition: "attachment; filename=\"engraft.pb.gz\"" },
        ],
        _ => &[],
    }
}

/// A word as a shell reads it back.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

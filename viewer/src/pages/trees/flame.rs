//! The flame graph of a tree of calls, as a picture whose frames are links.

use super::layout::{Frame as Box_, Stands};
use super::{Calls, STATE, Way, around, asked_by, directions, notes, number};
use crate::address::{Asked, Query};
use crate::pages::frame::Frame;
use crate::pages::{Answer, NoPage, Place};
use askama::Template;
use std::collections::BTreeMap;
use views::show::costs::Ways;
use views::{grouped, share};

/// What is narrower than this part of the picture is not seen: some two points of a window of 1280.
pub const LEAST: f64 = 0.002;
/// How high a frame is.
const HIGH: usize = 20;
/// A frame that is narrower has no room for a name.
const NAMED: f64 = 0.012;
/// How many modules have a colour of their own.
const COLOURS: usize = 8;

/// A frame as it is drawn.
pub struct Drawn {
    href: String,
    title: String,
    label: String,
    class: String,
    x: String,
    width: String,
    y: usize,
}

/// A picture.
#[derive(Template)]
#[template(path = "flame_graph.html")]
pub struct Picture {
    /// The frames, the outermost first.
    pub frames: Vec<Drawn>,
    /// How many points it is high.
    pub height: usize,
}

/// A colour, and what it means.
pub struct Colour {
    /// The class that has it.
    pub class: String,
    /// What it means.
    pub means: String,
}

impl Drawn {
    /// A frame `of` so many levels below the top of the picture.
    pub fn new(of: &Box_, n_above: usize, href: String, title: String, label: &str, class: String) -> Drawn {
        Drawn {
            href,
            title,
            label: if of.width >= NAMED { crate::escape::cut(label).into_owned() } else { String::new() },
            class,
            x: format!("{:.4}", 100.0 * of.x),
            width: format!("{:.4}", 100.0 * of.width),
            y: HIGH * (n_above + of.level),
        }
    }
}

impl Picture {
    /// Of these frames.
    pub fn of(frames: Vec<Drawn>) -> Picture {
        let height = frames.iter().map(|frame| frame.y + HIGH).max().unwrap_or_default();
        Picture { frames, height }
    }
}

/// The page.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>, calls: &Calls<'_>) -> Result<Answer, NoPage> {
    let state = asked.query.only(&STATE);
    let at = calls.at(&asked.query);
    let q = asked.query.get("q");
    let colours = Colours::of(calls);
    let hits = calls.hits(q);
    let places = calls.nodes.frames(at, calls.total(), LEAST);
    let drawing = Drawing { calls, state: &state, at, colours: &colours, hits: &hits };
    let above: Vec<usize> = at.map_or_else(Vec::new, |at| calls.nodes.above(at));
    let mut frames: Vec<Drawn> = Vec::with_capacity(places.len() + above.len() + 1);
    if at.is_some() {
        let whole = |level, stands| Box_ { stands, level, x: 0.0, width: 1.0 };
        let all = [whole(0, Stands::All)];
        let ancestors = above.iter().zip(1..).map(|(n, level)| whole(level, Stands::One(*n)));
        frames.extend(all.into_iter().chain(ancestors).map(|of| drawing.frame(&of, 0, true)));
    }
    let n_above = frames.len();
    frames.extend(places.iter().map(|of| drawing.frame(of, n_above, false)));
    let page = Page {
        frame: around(place, asked, calls, "flame graph"),
        kept: ["inverted", "name", "at"]
            .into_iter()
            .filter_map(|name| Some((name, state.get(name)?.to_owned())))
            .collect(),
        q: q.unwrap_or_default().to_owned(),
        directions: directions(asked, calls.ways),
        said: said(calls, at),
        ways: links(calls, at, &state),
        found: q.map(|_| found(calls, at, &hits)).unwrap_or_default(),
        elided: elided(&places),
        notes: notes(calls),
        legend: colours.legend,
        picture: Picture::of(frames),
    };
    Ok(Answer::page(&page))
}

/// What the picture shows.
fn said(calls: &Calls<'_>, at: Option<usize>) -> String {
    let tree = calls.tree();
    match at.and_then(|at| calls.row(at)) {
        Some(row) => calls.said(row),
        None => {
            let total = grouped(&format!("{:.0}", calls.total()));
            let of = match calls.ways {
                Ways::All | Ways::Inverted => "in all".to_owned(),
                Ways::Below(name) => format!("in {name}"),
                Ways::Callers(name) => format!("in calls of {name}"),
            };
            let n = grouped(&tree.tree.len().to_string());
            format!("{}{total} {} {of}, along {n} ways", calls.mark(), tree.unit)
        }
    }
}

/// Where one goes from what the picture shows.
fn links(calls: &Calls<'_>, at: Option<usize>, state: &Query) -> Vec<Way> {
    let way = |text: &str, href| Way { text: text.to_owned(), href, is_here: false };
    let Some((at, row)) = at.and_then(|at| Some((at, calls.row(at)?))) else { return Vec::new() };
    let table = state.only(&["inverted", "name"]).with("at", Some(&at.to_string())).link("tree");
    let mut ways = vec![way("as a table", table)];
    if let Some(name) = asked_by(row, calls.tree().estimated) {
        let of = |page: &str| Query::default().with("name", Some(&name)).link(page);
        ways.push(way("its code", of("function")));
        ways.push(way("all its callers", of("callers")));
        ways.push(way("all that it calls", of("flame")));
    }
    ways
}

/// How much of what is shown is within frames that were looked for.
fn found(calls: &Calls<'_>, at: Option<usize>, hits: &[bool]) -> String {
    let rows = &calls.tree().tree;
    let is_hit = |n: usize| hits.get(n).copied().unwrap_or(false);
    // Rows stand behind those that they are below.
    let (mut is_shown, mut is_within) = (vec![false; rows.len()], vec![false; rows.len()]);
    let (mut sum, mut n) = (0_u64, 0_usize);
    for (id, row) in rows.iter().enumerate() {
        let of = |all: &[bool]| row.under.and_then(|under| all.get(under).copied());
        let shown = at.is_none_or(|at| at == id || of(&is_shown) == Some(true));
        let within = of(&is_within) == Some(true);
        if shown && is_hit(id) {
            n += 1;
            sum = sum.saturating_add(if within { 0 } else { row.inclusive });
        }
        is_shown[id] = shown;
        is_within[id] = shown && (within || is_hit(id));
    }
    let whole = at.map_or_else(|| calls.total(), |at| calls.nodes.weight(at));
    let part = if whole > 0.0 { number(sum) / whole } else { 0.0 };
    let n = grouped(&n.to_string());
    format!(
        "{} of what is shown, {} {} in {n} frames",
        share(part),
        grouped(&sum.to_string()),
        calls.tree().unit
    )
}

/// How many frames are not drawn by themselves.
pub fn elided(frames: &[Box_]) -> String {
    let each = frames.iter().filter_map(|frame| match frame.stands {
        Stands::Elided { n_all, .. } => Some(n_all),
        _ => None,
    });
    let (n, n_all) = each.fold((0, 0), |(n, sum): (usize, usize), of| (n + 1, sum + of));
    match n {
        0 => String::new(),
        n => format!(
            "{} narrow frames stand together in {} hatched ones",
            grouped(&n_all.to_string()),
            grouped(&n.to_string())
        ),
    }
}

/// Colours of modules, those that did most first.
struct Colours {
    of: BTreeMap<String, usize>,
    legend: Vec<Colour>,
}

impl Colours {
    fn of(calls: &Calls<'_>) -> Colours {
        let tree = calls.tree();
        let is_turned = matches!(calls.ways, Ways::Inverted | Ways::Callers(_));
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &tree.tree {
            let own = match (is_turned, row.under) {
                (false, _) => row.own,
                (true, None) => row.inclusive,
                (true, Some(_)) => 0,
            };
            *sums.entry(&row.module).or_default() += own;
        }
        let mut sorted: Vec<(&str, u64)> = sums.into_iter().collect();
        sorted.sort_by_key(|(module, sum)| (std::cmp::Reverse(*sum), *module));
        let total = sorted.iter().map(|(_, sum)| number(*sum)).sum::<f64>().max(1.0);
        let called =
            |module: &str| if module.is_empty() { "module unknown".to_owned() } else { module.to_owned() };
        let mut legend: Vec<Colour> = sorted
            .iter()
            .take(COLOURS)
            .enumerate()
            .map(|(n, (module, sum))| Colour {
                class: format!("m{n}"),
                means: format!("{} {}", called(module), share(number(*sum) / total)),
            })
            .collect();
        if let Some(rest) = sorted.get(COLOURS..).filter(|rest| !rest.is_empty()) {
            let sum: f64 = rest.iter().map(|(_, sum)| number(*sum)).sum();
            let means = format!("{} other modules {}", rest.len(), share(sum / total));
            legend.push(Colour { class: format!("m{COLOURS}"), means });
        }
        let of = sorted.iter().enumerate().map(|(n, (module, _))| ((*module).to_owned(), n.min(COLOURS)));
        Colours { of: of.collect(), legend }
    }

    fn class(&self, module: &str) -> String {
        format!("m{}", self.of.get(module).copied().unwrap_or(COLOURS))
    }
}

/// What frames are drawn of.
struct Drawing<'a> {
    calls: &'a Calls<'a>,
    state: &'a Query,
    at: Option<usize>,
    colours: &'a Colours,
    hits: &'a [bool],
}

impl Drawing<'_> {
    fn frame(&self, of: &Box_, n_above: usize, is_above: bool) -> Drawn {
        let link =
            |at: Option<usize>| self.state.with("at", at.map(|n| n.to_string()).as_deref()).link("flame");
        let above = if is_above { " above" } else { "" };
        match of.stands {
            Stands::All => {
                let title = said(self.calls, None);
                Drawn::new(of, n_above, link(None), title, "all", format!("whole{above}"))
            }
            Stands::One(n) => {
                let Some(row) = self.calls.row(n) else {
                    return Drawn::new(of, n_above, link(None), String::new(), "", String::new());
                };
                let hit = if self.hits.get(n) == Some(&true) { " hit" } else { "" };
                let class = format!("{}{above}{hit}", self.colours.class(&row.module));
                Drawn::new(of, n_above, link(Some(n)), self.calls.said(row), &row.function, class)
            }
            Stands::Elided { under, n_all } => {
                // Where it is zoomed already, the table has them all.
                let href = match under != self.at {
                    true => link(under),
                    false => {
                        let query = self.state.only(&["inverted", "name"]);
                        let at = under.map(|n| n.to_string());
                        query.with("at", at.as_deref()).with("rows", Some("1000")).link("tree")
                    }
                };
                let whole = self.at.map_or_else(|| self.calls.total(), |at| self.calls.nodes.weight(at));
                let n = grouped(&n_all.to_string());
                let sum = grouped(&format!("{:.0}", whole * of.width));
                let title = format!("{n} narrow frames, {sum} {} together", self.calls.tree().unit);
                Drawn::new(of, n_above, href, title, &format!("{n} more"), "elided".to_owned())
            }
        }
    }
}

#[derive(Template)]
#[template(path = "flame.html")]
struct Page {
    frame: Frame,
    kept: Vec<(&'static str, String)>,
    q: String,
    directions: [Way; 2],
    said: String,
    ways: Vec<Way>,
    found: String,
    elided: String,
    notes: Vec<String>,
    legend: Vec<Colour>,
    picture: Picture,
}

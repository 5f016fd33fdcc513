//! The calls of two builds: a flame graph of what differs, and the ways as a list.
//!
//! Frames are as wide as the old build has it, or the new one, or as they differ (`by` in the address):
//! then a frame has the differences of all that is below it, each by itself, so that more here does not
//! make up for less there.

use super::flame::{Colour, Drawn, LEAST, Picture, elided};
use super::layout::{Frame as Box_, Nodes, Stands};
use super::{Way, number};
use crate::address::{Asked, Form, Query};
use crate::escape;
use crate::pages::frame::Frame;
use crate::pages::grid::{Bar, Cell, Column, Rows, Value, pattern};
use crate::pages::{Answer, NoPage, Place, list};
use crate::recordings::Failed;
use askama::Template;
use views::Like;
use views::compare::trees::{CallTrees, CallTreesView, CallsRow};
use views::{grouped, share};

/// What links keep.
const STATE: [&str; 3] = ["by", "at", "q"];

/// By what frames are wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Old,
    New,
    Difference,
}

impl By {
    fn of(query: &Query) -> By {
        match query.get("by") {
            Some("old") => By::Old,
            Some("delta") => By::Difference,
            _ => By::New,
        }
    }

    fn word(self) -> &'static str {
        match self {
            By::Old => "old",
            By::New => "new",
            By::Difference => "delta",
        }
    }

    /// What each row weighs.
    fn weights(self, tree: &[CallsRow]) -> Vec<f64> {
        match self {
            By::Old => tree.iter().map(|row| number(row.old.inclusive)).collect(),
            By::New => tree.iter().map(|row| number(row.new.inclusive)).collect(),
            By::Difference => {
                let mut sums: Vec<f64> =
                    tree.iter().map(|row| number(row.new.own.abs_diff(row.old.own))).collect();
                // Rows stand behind those that they are below.
                for row in tree.iter().rev() {
                    let own = sums.get(row.id).copied().unwrap_or_default();
                    let under = row.under.and_then(|under| sums.get_mut(under));
                    under.into_iter().for_each(|sum| *sum += own);
                }
                sums
            }
        }
    }
}

/// What is asked for of the calls of a comparison: the page `flame` or `tree`.
pub fn answer(
    place: &Place<'_>,
    asked: &Asked<'_>,
    trees: Option<&CallTrees>,
    tabs: &[(&'static str, &str)],
) -> Result<Answer, NoPage> {
    let trees = trees.ok_or_else(|| not_kept(place))?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&CallTreesView::of(trees), asked.form, &asked.query));
    }
    let page = if asked.page == "flame" { "flame" } else { "tree" };
    let title = if page == "flame" { "flame graph of both builds" } else { "calls of both builds" };
    let frame = Frame::new(place, title, "tree").with_tabs(page, tabs).with_twins("tree", &asked.query);
    match page {
        "flame" => Ok(Answer::page(&flame(asked, trees, frame))),
        _ => {
            let named: Vec<Named<'_>> = trees.tree.iter().map(|row| (row, row.name())).collect();
            let grid = rows(&named).grid(&asked.query, place.orders, place.n);
            Ok(list(asked, frame, "Calls of both builds", grid))
        }
    }
}

/// Older files do not have it.
pub fn not_kept(place: &Place<'_>) -> Failed {
    Failed {
        what: format!("{} was kept without the calls of both builds", place.recording),
        hint: Some("compare the builds again, with `engraft compare -o`".to_owned()),
    }
}

/// A row with what it is called.
type Named<'a> = (&'a CallsRow, String);

/// By how much, in words of a frame: `+12.3 %`; of one build alone, which.
fn by(row: &CallsRow) -> String {
    match (row.old.inclusive, row.new.inclusive) {
        (0, 0) => "=".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        (old, new) if old == new => "=".to_owned(),
        (old, new) => {
            let percent = 100.0 * (number(new) / number(old) - 1.0);
            if percent.abs() >= 1000.0 {
                format!("×{:.0}", number(new) / number(old))
            } else {
                format!("{percent:+.1} %")
            }
        }
    }
}

/// The colour of a row: which build has less, and how much that is of the larger one.
fn class(row: &CallsRow) -> &'static str {
    let (old, new) = (number(row.old.inclusive), number(row.new.inclusive));
    let part = (new - old).abs() / old.max(new).max(1.0);
    match (part, new < old) {
        (part, _) if part < 0.001 => "same",
        (part, true) if part < 0.1 => "less1",
        (part, true) if part < 0.5 => "less2",
        (_, true) => "less3",
        (part, false) if part < 0.1 => "more1",
        (part, false) if part < 0.5 => "more2",
        (_, false) => "more3",
    }
}

fn said(row: &CallsRow) -> String {
    let n = |n: u64| grouped(&n.to_string());
    let module = if row.module.is_empty() { String::new() } else { format!(" in {}", row.module) };
    format!(
        "{}{module}: {} instructions, then {} ({}); itself {}, then {}; {} calls, then {}",
        escape::cut(&row.name()),
        n(row.old.inclusive),
        n(row.new.inclusive),
        grouped(&format!("{:+.0}", row.by())),
        n(row.old.own),
        n(row.new.own),
        n(row.old.calls),
        n(row.new.calls),
    )
}

fn whole(trees: &CallTrees) -> String {
    let (old, new) = (trees.total.old, trees.total.new);
    let n = |n: u64| grouped(&n.to_string());
    let by = grouped(&format!("{:+.0}", number(new) - number(old)));
    format!("{} instructions in all, then {} ({by})", n(old), n(new))
}

/// The flame graph.
fn flame(asked: &Asked<'_>, trees: &CallTrees, frame: Frame) -> Page {
    let state = asked.query.only(&STATE);
    let wide = By::of(&asked.query);
    let tree = &trees.tree;
    let nodes = Nodes::new(tree.iter().map(|row| row.under).collect(), wide.weights(tree));
    let at = asked.query.number("at").filter(|at| tree.get(*at).is_some());
    let q = asked.query.get("q").map(pattern);
    let q = q.as_deref().map(Like::new);
    let total: f64 = nodes.below(None).iter().map(|n| nodes.weight(*n)).sum();
    let places = nodes.frames(at, total, LEAST);
    let is_hit =
        |row: &CallsRow| q.as_ref().is_some_and(|q| row.function.as_ref().is_some_and(|name| q.fits(name)));
    let link = |at: Option<usize>| state.with("at", at.map(|n| n.to_string()).as_deref()).link("flame");
    let one = |of: &Box_, n_above: usize, above: &str| match of.stands {
        Stands::All => Drawn::new(of, n_above, link(None), whole(trees), "all", format!("whole{above}")),
        Stands::One(n) => match tree.get(n) {
            Some(row) => {
                let hit = if is_hit(row) { " hit" } else { "" };
                let class = if row.function.is_none() { "elided" } else { class(row) };
                let label = format!("{} {}", escape::cut(&row.name()), by(row));
                Drawn::new(of, n_above, link(Some(n)), said(row), &label, format!("{class}{above}{hit}"))
            }
            None => Drawn::new(of, n_above, link(None), String::new(), "", String::new()),
        },
        Stands::Elided { under, n_all } => {
            let href = if under == at { "tree".to_owned() } else { link(under) };
            let n = grouped(&n_all.to_string());
            let title = format!("{n} narrow frames together");
            Drawn::new(of, n_above, href, title, &format!("{n} more"), "elided".to_owned())
        }
    };
    let mut frames = Vec::new();
    if let Some(at) = at {
        let box_of = |level, stands| Box_ { stands, level, x: 0.0, width: 1.0 };
        frames.push(one(&box_of(0, Stands::All), 0, " above"));
        let above = nodes.above(at);
        frames.extend(
            above.iter().zip(1..).map(|(n, level)| one(&box_of(level, Stands::One(*n)), 0, " above")),
        );
    }
    let n_above = frames.len();
    frames.extend(places.iter().map(|of| one(of, n_above, "")));
    let found = q.as_ref().map(|_| found(trees, &nodes, at, total, &is_hit)).unwrap_or_default();
    let row = at.and_then(|at| tree.get(at));
    Page {
        frame,
        kept: ["by", "at"].into_iter().filter_map(|name| Some((name, state.get(name)?.to_owned()))).collect(),
        q: asked.query.get("q").unwrap_or_default().to_owned(),
        widths: [By::New, By::Old, By::Difference].map(|by| Way {
            text: match by {
                By::New => "as wide as in the new build",
                By::Old => "as in the old build",
                By::Difference => "as the difference",
            }
            .to_owned(),
            href: state.with("by", Some(by.word())).link("flame"),
            is_here: by == wide,
        }),
        said: row.map_or_else(|| whole(trees), said),
        function: row
            .and_then(|row| row.function.as_ref())
            .map(|name| Query::default().with("name", Some(name)).link("function"))
            .unwrap_or_default(),
        found,
        elided: elided(&places),
        unseen: unseen(trees, wide),
        legend: legend(),
        picture: Picture::of(frames),
    }
}

/// How much of what is shown is within frames that were looked for.
fn found(
    trees: &CallTrees,
    nodes: &Nodes,
    at: Option<usize>,
    total: f64,
    is_hit: &dyn Fn(&CallsRow) -> bool,
) -> String {
    let (mut is_shown, mut is_within) = (vec![false; trees.tree.len()], vec![false; trees.tree.len()]);
    let (mut sum, mut n) = (0.0, 0_usize);
    for (id, row) in trees.tree.iter().enumerate() {
        let of = |all: &[bool]| row.under.and_then(|under| all.get(under).copied()) == Some(true);
        let shown = at.is_none_or(|at| at == id) || of(&is_shown);
        let (within, hit) = (of(&is_within), shown && is_hit(row));
        n += usize::from(hit);
        sum += if hit && !within { nodes.weight(id) } else { 0.0 };
        is_shown[id] = shown;
        is_within[id] = shown && (within || hit);
    }
    let all = at.map_or(total, |at| nodes.weight(at));
    format!(
        "{} of what is shown, in {} frames",
        share(if all > 0.0 { sum / all } else { 0.0 }),
        grouped(&n.to_string())
    )
}

/// What has no width.
fn unseen(trees: &CallTrees, wide: By) -> String {
    let is_unseen = |row: &&CallsRow| match wide {
        By::Old => row.old.inclusive == 0,
        By::New => row.new.inclusive == 0,
        By::Difference => false,
    };
    let (which, n) =
        (if wide == By::Old { "new" } else { "old" }, trees.tree.iter().filter(is_unseen).count());
    match n {
        0 => String::new(),
        n => format!("{} ways of the {which} build alone have no width here", grouped(&n.to_string())),
    }
}

fn legend() -> Vec<Colour> {
    let colour = |class: &str, means: &str| Colour { class: class.to_owned(), means: means.to_owned() };
    vec![
        colour("less3", "− new build has less: by more than half"),
        colour("less2", "by more than a tenth"),
        colour("less1", "by less"),
        colour("same", "= the same"),
        colour("more1", "+ new build has more: by less than a tenth of it"),
        colour("more2", "by more"),
        colour("more3", "by more than half"),
    ]
}

/// All ways.
fn rows<'a>(named: &'a [Named<'a>]) -> Rows<'a, Named<'a>> {
    let largest = named.iter().map(|(row, _)| row.by().abs()).fold(0.0, f64::max);
    let bar = move |row: &CallsRow| {
        let by = row.by();
        let length = if largest > 0.0 { 50.0 * by.abs() / largest } else { 0.0 };
        let bar = match by < 0.0 {
            true => Bar { x: 50.0 - length, width: length, kind: "less" },
            false => Bar { x: 50.0, width: length, kind: "more" },
        };
        Cell { title: format!("{by:+}"), bar: Some(bar), ..Cell::of(&grouped(&format!("{by:+.0}"))) }
    };
    let ratio = |row: &CallsRow| match row.old.inclusive {
        0 => Value::Unknown,
        old => Value::Number(number(row.new.inclusive) / number(old)),
    };
    let link = |row: &CallsRow| {
        let at = row.id.to_string();
        Query::default().with("at", Some(&at)).with("by", Some("delta")).link("flame")
    };
    let columns = vec![
        Column::new("difference", "new less old, with all that it called", |(row, _): &Named<'_>| {
            Value::Difference(row.by())
        })
        .shown(move |(row, _)| bar(row)),
        Column::new("times", "new over old", move |(row, _): &Named<'_>| ratio(row)),
        Column::new("old", "of the old build, with all that it called", |(row, _): &Named<'_>| {
            Value::Count(row.old.inclusive)
        }),
        Column::new("new", "of the new build", |(row, _): &Named<'_>| Value::Count(row.new.inclusive)),
        Column::new("own", "without what it called, in the old build", |(row, _): &Named<'_>| {
            Value::Count(row.old.own)
        }),
        Column::new("then", "in the new build", |(row, _): &Named<'_>| Value::Count(row.new.own)),
        Column::new("calls", "in the old build", |(row, _): &Named<'_>| Value::Count(row.old.calls)),
        Column::new("again", "calls in the new build", |(row, _): &Named<'_>| Value::Count(row.new.calls)),
        Column::new("depth", "how many rows are above it", |(row, _): &Named<'_>| {
            Value::Count(row.depth as u64)
        }),
        Column::new("function", "what people call it", |(_, name): &Named<'_>| Value::Text(name))
            .shown(move |(row, name)| Cell::of(name).to(link(row))),
    ];
    fn name<'r>(row: &'r Named<'_>) -> &'r str {
        &row.1
    }
    Rows { page: "tree", noun: "ways", rows: named, by: "", name, columns }
}

#[derive(Template)]
#[template(path = "both_flame.html")]
struct Page {
    frame: Frame,
    kept: Vec<(&'static str, String)>,
    q: String,
    widths: [Way; 3],
    said: String,
    function: String,
    found: String,
    elided: String,
    unseen: String,
    legend: Vec<Colour>,
    picture: Picture,
}

#[cfg(test)]
mod tests {
    use super::*;
    use views::compare::Both;
    use views::compare::trees::CallsCost;

    fn row(id: usize, under: Option<usize>, old: [u64; 2], new: [u64; 2]) -> CallsRow {
        let cost = |[inclusive, own]: [u64; 2]| CallsCost { inclusive, own, calls: 1 };
        CallsRow {
            id,
            under,
            depth: 0,
            function: Some(format!("f{id}")),
            module: String::new(),
            old: cost(old),
            new: cost(new),
            elided: 0,
        }
    }

    fn trees() -> CallTrees {
        let tree = vec![
            row(0, None, [100, 10], [100, 10]),
            row(1, Some(0), [60, 60], [20, 20]),
            row(2, Some(0), [30, 30], [70, 30]),
            row(3, Some(2), [0, 0], [40, 40]),
        ];
        CallTrees { total: Both { old: 100, new: 100 }, tree }
    }

    #[test]
    fn more_here_does_not_make_up_for_less_there() {
        assert_eq!(By::Difference.weights(&trees().tree), [80.0, 40.0, 40.0, 40.0]);
        assert_eq!(By::Old.weights(&trees().tree), [100.0, 60.0, 30.0, 0.0]);
        assert_eq!(By::New.weights(&trees().tree), [100.0, 20.0, 70.0, 40.0]);
        assert_eq!(unseen(&trees(), By::Old), "1 ways of the new build alone have no width here");
    }

    #[test]
    fn a_frame_says_by_a_sign_and_by_a_colour_which_build_has_more() {
        let said: Vec<(String, &str)> = trees().tree.iter().map(|row| (by(row), class(row))).collect();
        let want = [("=", "same"), ("-66.7 %", "less3"), ("+133.3 %", "more3"), ("new", "more3")];
        assert_eq!(said, want.map(|(by, class)| (by.to_owned(), class)));
        assert_eq!(class(&row(0, None, [100, 0], [95, 0])), "less1");
        assert_eq!(by(&row(0, None, [100, 0], [0, 0])), "gone");
    }
}

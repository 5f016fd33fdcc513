//! Pages of who called whom: a flame graph, the tree as a table, the callers of one function.
//!
//! The state is in the address: `inverted` has callers below, `name` is the function that it is of, `at` the
//! row that is zoomed, `q` what names hold.

pub mod both;
mod flame;
mod layout;
mod outline;
pub mod time;

use super::frame::{Frame, word};
use super::{Answer, NoPage, Place};
use crate::address::{Asked, Form, Query};
use crate::escape;
use layout::Nodes;
use std::collections::BTreeMap;
use std::sync::Arc;
use views::Like;
use views::recordings::What;
use views::show::costs::{CallTree, TreeRow, Ways};
use views::show::counts::CountsView;
use views::{grouped, share};

/// What links of these pages keep.
const STATE: [&str; 4] = ["inverted", "name", "at", "q"];

/// Pages of a recording that lead to each other.
pub fn tabs(what: What) -> &'static [(&'static str, &'static str)] {
    /// All that there are, of a trace.
    const ALL: [(&str, &str); 6] = [
        ("functions", "functions"),
        ("loops", "loops"),
        ("flame graph", "flame"),
        ("call tree", "tree"),
        ("time", "time"),
        ("search", "search"),
    ];
    match what {
        What::Samples => &[ALL[0], ALL[2], ALL[3]],
        What::Trace => &ALL,
        _ => &[ALL[0], ALL[1], ALL[2], ALL[3]],
    }
}

/// What is asked for of a tree of calls: the page `flame`, `tree` or `callers`.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let ways = ways(asked)?;
    let view = place.recordings.tree(place.n, ways)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*view, asked.form, &asked.query));
    }
    let calls = Calls::new(view, ways);
    match asked.page {
        "flame" => flame::answer(place, asked, &calls),
        _ => outline::answer(place, asked, &calls),
    }
}

/// Which calls are asked for.
fn ways<'a>(asked: &'a Asked<'_>) -> Result<Ways<'a>, NoPage> {
    let is_inverted = asked.page == "callers" || asked.query.get("inverted").is_some();
    match (asked.query.get("name"), is_inverted) {
        (None, _) if asked.page == "callers" => Err(NoPage::Unknown),
        (None, false) => Ok(Ways::All),
        (None, true) => Ok(Ways::Inverted),
        (Some(name), false) => Ok(Ways::Below(name)),
        (Some(name), true) => Ok(Ways::Callers(name)),
    }
}

/// What stands behind `engraft show REC` to print the same.
fn words(ways: Ways<'_>) -> String {
    match ways {
        Ways::All => "tree".to_owned(),
        Ways::Inverted => "tree --inverted".to_owned(),
        Ways::Below(name) => format!("tree {}", word(name)),
        Ways::Callers(name) => format!("callers {}", word(name)),
    }
}

/// What is around such a page.
fn around(place: &Place<'_>, asked: &Asked<'_>, calls: &Calls<'_>, title: &str) -> Frame {
    let here = if calls.ways == Ways::All || asked.page == "flame" { asked.page } else { "tree" };
    Frame::new(place, title, &words(calls.ways))
        .with_tabs(here, tabs(place.what))
        .with_twins(asked.page, &asked.query)
}

/// A tree of calls, as it is walked.
struct Calls<'a> {
    view: Arc<CountsView<CallTree>>,
    nodes: Nodes,
    ways: Ways<'a>,
}

impl<'a> Calls<'a> {
    fn new(view: Arc<CountsView<CallTree>>, ways: Ways<'a>) -> Calls<'a> {
        let rows = &view.rows.tree;
        let nodes = Nodes::new(
            rows.iter().map(|row| row.under).collect(),
            rows.iter().map(|row| number(row.inclusive)).collect(),
        );
        Calls { view, nodes, ways }
    }

    fn tree(&self) -> &CallTree {
        &self.view.rows
    }

    fn row(&self, n: usize) -> Option<&TreeRow> {
        self.tree().tree.get(n)
    }

    /// The row that `query` has zoomed, if there is one.
    fn at(&self, query: &Query) -> Option<usize> {
        query.number("at").filter(|n| self.row(*n).is_some())
    }

    /// What all weighs that is directly below a row, or below none: of callers, that is what the function
    /// weighs.
    fn total(&self) -> f64 {
        let first: f64 = self.nodes.below(None).iter().map(|n| self.nodes.weight(*n)).sum();
        match self.ways {
            Ways::All | Ways::Inverted => first.max(number(self.tree().total)),
            Ways::Below(_) | Ways::Callers(_) => first,
        }
    }

    /// What a number is marked by that is an estimate.
    fn mark(&self) -> &'static str {
        if self.tree().estimated { "~" } else { "" }
    }

    /// A row in words.
    fn said(&self, row: &TreeRow) -> String {
        let mark = self.mark();
        let n = |n: u64| format!("{mark}{}", grouped(&n.to_string()));
        let calls = row.entries.map_or_else(String::new, |calls| format!(", {} calls", n(calls)));
        format!(
            "{}{}: {} {} ({mark}{} of all), itself {}{calls}",
            escape::cut(&row.function),
            if row.module.is_empty() { String::new() } else { format!(" in {}", escape::cut(&row.module)) },
            n(row.inclusive),
            self.tree().unit,
            share(row.inclusive_share),
            n(row.own),
        )
    }

    /// By row, whether its name is like `q`.
    fn hits(&self, q: Option<&str>) -> Vec<bool> {
        let Some(q) = q else { return Vec::new() };
        let wanted = super::grid::pattern(q);
        let wanted = Like::new(&wanted);
        // Names come again and again.
        let mut known: BTreeMap<&str, bool> = BTreeMap::new();
        let rows = self.tree().tree.iter();
        rows.map(|row| *known.entry(&row.function).or_insert_with(|| wanted.fits(&row.function))).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "widths of what is drawn")]
fn number(n: u64) -> f64 {
    n as f64
}

/// What a row's function is asked for by; nothing, where it has no page.
fn asked_by(row: &TreeRow, is_estimate: bool) -> Option<String> {
    asked_as(&row.module, &row.function).filter(|_| !is_estimate)
}

/// What a function is asked for by; nothing, where it has no page.
fn asked_as(module: &str, function: &str) -> Option<String> {
    let is_one = !module.is_empty() && !module.starts_with('[') && !function.starts_with('[');
    is_one.then(|| format!("{module}!{function}"))
}

/// A word that leads somewhere.
struct Way {
    text: String,
    href: String,
    is_here: bool,
}

/// Both directions of a tree.
fn directions(asked: &Asked<'_>, ways: Ways<'_>) -> [Way; 2] {
    let query = asked.query.only(&["name", "q"]);
    let is_inverted = matches!(ways, Ways::Inverted | Ways::Callers(_));
    let page = if asked.page == "callers" { "tree" } else { asked.page };
    let way = |text: &str, inverted: bool| Way {
        text: text.to_owned(),
        href: query.with("inverted", inverted.then_some("1")).link(page),
        is_here: inverted == is_inverted,
    };
    [way("what is called below", false), way("callers below", true)]
}

/// What is to be known of the numbers.
fn notes(calls: &Calls<'_>) -> Vec<String> {
    let tree = calls.tree();
    let mut notes = Vec::new();
    if tree.estimated {
        notes.push(
            "~: estimated as gprof does it, since counts do not say which call cost how much: each call of a \
             function costs the same, and functions that call each other in a circle are one. A recording of \
             `engraft trace` knows."
                .to_owned(),
        );
    }
    if tree.unit == "samples" && tree.tree.iter().all(|row| row.under.is_none()) {
        notes.push("No callers are known: functions stand side by side.".to_owned());
    }
    if tree.n_left_out > 0 {
        let what =
            if tree.estimated { "functions below a thousandth" } else { "ways below a ten thousandth" };
        notes.push(format!("{} {what} of all are left out.", grouped(&tree.n_left_out.to_string())));
    }
    notes
}

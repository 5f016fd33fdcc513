//! Pages of `engraft match`: which function and block became which, how that was found, what is left over.

use crate::address::{Asked, Form, Query};
use crate::pages::frame::{Frame, word};
use crate::pages::grid::{Cell, Column, Grid, Rows, Value};
use crate::pages::{Answer, NoPage, Place, list};
use askama::Template;
use views::matches::explain::{BlockView, ExplainView, RowView, SideView};
use views::matches::{BuildView, DataRow, FunctionRow, LeftRow, MatchView, RateView, Unmatched};
use views::{address, grouped, many, percent};

/// Pages that lead to each other.
const TABS: [(&str, &str); 3] = [("functions", "functions"), ("unmatched", "unmatched"), ("data", "data")];
/// Surer than that is sure; less sure than the other is a guess.
const SURE: f32 = 0.9;
const LIKELY: f32 = 0.5;

/// What is asked for of a matching.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.matched(place.n)?;
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => Ok(functions(place, asked, &view)),
        "unmatched" => Ok(unmatched(place, asked, &view)),
        "data" => Ok(data(place, asked, &view)),
        "function" => function(place, asked, &view),
        _ => Err(NoPage::Unknown),
    }
}

/// Around a page, with the command that prints the same.
fn frame(place: &Place<'_>, view: &MatchView, title: &str, words: &str) -> Frame {
    let command = format!("engraft match {} {}{words}", word(&view.old.binary), word(&view.new.binary));
    Frame::new(place, title, "").with_command(command)
}

fn confidence(n: f32) -> Cell {
    let bar = Cell::of(&format!("{n:.2}")).with_share(f64::from(n));
    Cell { title: n.to_string(), ..bar }
}

/// The page of the function at an address of a build: names need not be unique.
fn function_page(at: u64, build: &str) -> String {
    let query = Query::default().with("name", Some(&address(at)));
    if build == "old" { query.with("of", Some("old")) } else { query }.link("function")
}

/// The first page: how much was matched, and the functions.
fn functions(place: &Place<'_>, asked: &Asked<'_>, view: &MatchView) -> Answer {
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(view, asked.form, &asked.query);
    }
    fn name(row: &FunctionRow) -> &str {
        &row.new_name
    }
    let columns = vec![
        Column::new("sure", "that it is the same function, 0 to 1", |row: &FunctionRow| {
            Value::Number(row.confidence.into())
        })
        .shown(|row| confidence(row.confidence)),
        Column::new("by", "the pass that found it: `engraft help passes`", |row: &FunctionRow| {
            Value::Text(&row.method)
        }),
        Column::new("old", "where it starts in the old build", |row: &FunctionRow| Value::Address(row.old)),
        Column::new("new", "where it starts in the new build", |row: &FunctionRow| Value::Address(row.new)),
        Column::new("was", "its name in the old build", |row: &FunctionRow| Value::Text(&row.old_name)),
        Column::new("function", "its name in the new build", |row: &FunctionRow| Value::Text(&row.new_name))
            .shown(|row| Cell::of(&row.new_name).to(function_page(row.new, "new"))),
    ];
    let rows = &view.functions;
    let rows = Rows { page: "functions", noun: "functions of both builds", rows, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Answer::page(&grid);
    }
    let rates = &view.rates;
    let all = [("functions", &rates.functions), ("blocks", &rates.blocks), ("data", &rates.data)];
    let frame = frame(place, view, "functions", " --all").with_tabs("functions", &TABS);
    Answer::page(&Overview {
        frame: frame.with_twins("functions", &asked.query),
        facts: vec![("old", build(&view.old)), ("new", build(&view.new))],
        rates: all.iter().map(|(what, rate)| Rate::of(what, rate)).collect(),
        stages: all.iter().flat_map(|(what, rate)| stages(what, rate)).collect(),
        grid,
    })
}

fn build(view: &BuildView) -> String {
    let id = view.build_id.as_ref().map_or_else(String::new, |id| format!(", build-id {id}"));
    format!("{}{id}", view.binary)
}

/// How much of one sort was matched.
struct Rate {
    what: &'static str,
    old: String,
    new: String,
    matched: String,
    rate: String,
}

impl Rate {
    fn of(what: &'static str, rate: &RateView) -> Rate {
        let number = |n: usize| grouped(&n.to_string());
        Rate {
            what,
            old: number(rate.n_old),
            new: number(rate.n_new),
            matched: number(rate.matched_new),
            rate: percent(rate.matched_new, rate.n_new),
        }
    }
}

/// What each stage found: of what, which, how many more, and the rate by then. One that found nothing is left
/// out.
fn stages(what: &'static str, rate: &RateView) -> Vec<(&'static str, String, String, String)> {
    let mut before = 0;
    let rows = rate.stages.iter().filter_map(|stage| {
        let more = stage.matched_new.checked_sub(before).filter(|n| *n > 0)?;
        before = stage.matched_new;
        let by_then = percent(stage.matched_new, rate.n_new);
        Some((what, stage.stage.to_string(), grouped(&more.to_string()), by_then))
    });
    rows.collect()
}

/// Functions without a counterpart.
fn unmatched(place: &Place<'_>, asked: &Asked<'_>, view: &MatchView) -> Answer {
    type Row<'a> = (&'static str, &'a LeftRow);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        &row.1.name
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(&Unmatched::of(view), asked.form, &asked.query);
    }
    let old = view.unmatched_old.iter().map(|row| ("old", row));
    let rows: Vec<Row<'_>> = old.chain(view.unmatched_new.iter().map(|row| ("new", row))).collect();
    let columns = vec![
        Column::new("build", "which has it", |row: &Row<'_>| Value::Text(row.0)),
        Column::new("at", "its address", |row: &Row<'_>| Value::Address(row.1.at)),
        Column::new("blocks", "how many it has", |row: &Row<'_>| Value::Count(row.1.n_blocks as u64)),
        Column::new("function", "its name", |row: &Row<'_>| Value::Text(&row.1.name))
            .shown(|row| Cell::of(&row.1.name).to(function_page(row.1.at, row.0))),
        Column::new("why", "why it has no counterpart", |row: &Row<'_>| Value::Text(&row.1.why)),
    ];
    let noun = "functions without a counterpart";
    let rows = Rows { page: "unmatched", noun, rows: &rows, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    let frame = frame(place, view, "unmatched", " --all").with_tabs("unmatched", &TABS);
    list(asked, frame.with_twins("unmatched", &asked.query), "Without a counterpart", grid)
}

/// Data objects of both builds.
fn data(place: &Place<'_>, asked: &Asked<'_>, view: &MatchView) -> Answer {
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(view, asked.form, &asked.query);
    }
    fn name(row: &DataRow) -> &str {
        &row.method
    }
    let columns = vec![
        Column::new("old", "where it starts in the old build", |row: &DataRow| Value::Address(row.old)),
        Column::new("new", "where it starts in the new build", |row: &DataRow| Value::Address(row.new)),
        Column::new("by", "the pass that found it", |row: &DataRow| Value::Text(&row.method)),
    ];
    let rows = Rows { page: "data", noun: "data objects", rows: &view.data, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    let frame = frame(place, view, "data", " --all").with_tabs("data", &TABS);
    list(asked, frame.with_twins("data", &asked.query), "Data objects of both builds", grid)
}

/// One function of both builds, block by block.
fn function(place: &Place<'_>, asked: &Asked<'_>, view: &MatchView) -> Result<Answer, NoPage> {
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    // An address may be one of both builds: what only the old one has goes by its symbol.
    let is_old = asked.query.get("of") == Some("old");
    let left = view.unmatched_old.iter().find(|row| is_old && address(row.at) == name);
    let wanted = left.map_or(name, |row| row.name.as_str());
    let found = place.recordings.explained(place.n, wanted)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&found, asked.form, &asked.query));
    }
    let title = found.new.as_ref().or(found.old.as_ref()).map_or(wanted, |side| side.name.as_str());
    let mut facts = vec![("old", where_it_is(&found.old)), ("new", where_it_is(&found.new))];
    if let (Some(method), Some(confidence)) = (&found.method, found.confidence) {
        facts.push(("matched by", format!("{method}, sure to {confidence:.2}")));
    }
    let index = view.functions.iter().position(|row| found.new.as_ref().is_some_and(|new| new.at == row.new));
    let neighbour = |at: Option<usize>| Some(function_page(view.functions.get(at?)?.new, "new"));
    let words = format!(" --explain {}", word(wanted));
    let frame = frame(place, view, title, &words).with_tabs("", &TABS);
    Ok(Answer::page(&Explained {
        frame: frame.with_twins("function", &asked.query),
        name: title,
        facts,
        before: neighbour(index.and_then(|at| at.checked_sub(1))),
        behind: neighbour(index.map(|at| at + 1)),
        counts: counts(&found),
        rows: found.rows.iter().map(Pair::of).collect(),
    }))
}

fn where_it_is(side: &Option<SideView>) -> String {
    match side {
        Some(side) => format!("{} at {}, {}", side.name, address(side.at), many(side.n_blocks, "block")),
        None => "has no counterpart".to_owned(),
    }
}

/// How many rows there are of each kind, and what that is called.
fn counts(view: &ExplainView) -> Vec<(&'static str, &'static str, usize)> {
    let all = [
        ("sure", "sure"),
        ("likely", "likely"),
        ("guessed", "guessed"),
        ("only-old", "only in old"),
        ("only-new", "only in new"),
    ];
    let n = |kind| view.rows.iter().filter(|row| kind_of(row) == kind).count();
    all.into_iter().map(|(kind, words)| (kind, words, n(kind))).filter(|kind| kind.2 > 0).collect()
}

/// What the colour of a row says.
fn kind_of(row: &RowView) -> &'static str {
    match (&row.old, &row.new, row.confidence.unwrap_or_default()) {
        (None, ..) => "only-new",
        (_, None, _) => "only-old",
        (_, _, SURE..) => "sure",
        (_, _, LIKELY..) => "likely",
        _ => "guessed",
    }
}

/// Blocks side by side.
struct Pair {
    kind: &'static str,
    how: String,
    sides: [Option<Side>; 2],
}

struct Side {
    at: String,
    of: String,
    insns: Vec<(String, String)>,
    next: String,
}

impl Pair {
    fn of(row: &RowView) -> Pair {
        let sides = [&row.old, &row.new].map(|block| block.as_ref().map(Side::of));
        Pair { kind: kind_of(row), how: row.how(), sides }
    }
}

impl Side {
    fn of(block: &BlockView) -> Side {
        let next: Vec<String> = block.successors.iter().map(|at| address(*at)).collect();
        let split = |insn: &String| {
            let (mnemonic, rest) = insn.split_once(' ').unwrap_or((insn, ""));
            (mnemonic.to_owned(), rest.to_owned())
        };
        Side {
            at: address(block.at),
            of: block.of.as_ref().map_or_else(String::new, |of| format!(" of {of}")),
            insns: block.instructions.iter().map(split).collect(),
            next: if next.is_empty() {
                "no successors".to_owned()
            } else {
                format!("→ {}", next.join(" "))
            },
        }
    }
}

#[derive(Template)]
#[template(path = "matched.html")]
struct Overview {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    rates: Vec<Rate>,
    stages: Vec<(&'static str, String, String, String)>,
    grid: Grid,
}

#[derive(Template)]
#[template(path = "explained.html")]
struct Explained<'a> {
    frame: Frame,
    name: &'a str,
    facts: Vec<(&'static str, String)>,
    before: Option<String>,
    behind: Option<String>,
    /// Kinds of rows, what they are called, and how many there are.
    counts: Vec<(&'static str, &'static str, usize)>,
    rows: Vec<Pair>,
}

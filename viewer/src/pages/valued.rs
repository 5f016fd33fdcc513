//! Pages of values: what functions were called with and returned, how loops went round, what instructions
//! did, and what a programmer could do about it.
//!
//! Source: VPROF, tables 1 to 3 and figures 1 and 4.

use super::frame::{Frame, word};
use super::function::without_style;
use super::grid::{Cell, Column, Grid, Rows, Value};
use super::{Answer, NoPage, Place, list};
use crate::address::{Asked, Form, Query};
use askama::Template;
use std::sync::Arc;
use views::values::{
    AdviceView, CallsView, ColumnView, InstructionView, LoopView, NumberView, PlaceView, StatisticsView,
    SummaryView, TripsView, ValueView, ValuesView,
};
use views::{grouped, ratio};

/// Pages that lead to each other.
const TABS: [(&str, &str); 5] = [
    ("calls", "functions"),
    ("loops", "loops"),
    ("places", "places"),
    ("instructions", "instructions"),
    ("advice", "advice"),
];

/// How many values of each argument are shown, and how many numbers of iterations.
const MOST_VALUES: &str = "100";

/// What is asked for of a recording.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    if asked.page.is_empty() {
        let view = place.recordings.valued(place.n)?;
        return Ok(Answer::elsewhere(tabs(&view).first().map_or("functions", |tab| tab.1)));
    }
    let view = place.recordings.valued(place.n)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*view, asked.form, &asked.query));
    }
    let page = Page { place, asked, view: &view };
    match asked.page {
        "functions" => Ok(page.list("Calls", "", calls(&view.calls))),
        "loops" => Ok(page.list("Loops", "", loops(&view.loops))),
        "places" => Ok(page.list("Places", "", places(&view.places))),
        "instructions" => Ok(page.list("Instructions", "", instructions(&view.instructions))),
        "advice" => Ok(page.list("Advice", "", advice(&view.advice))),
        "function" => page.function(),
        "place" => page.one_place(),
        "loop" => page.one_loop(),
        _ => Err(NoPage::Unknown),
    }
}

/// The pages that have something on them.
fn tabs(view: &ValuesView) -> Vec<(&'static str, &'static str)> {
    let has = |page: &str| match page {
        "functions" => !view.calls.is_empty(),
        "loops" => !view.loops.is_empty(),
        "places" => !view.places.is_empty(),
        "instructions" => !view.instructions.is_empty(),
        _ => !view.advice.is_empty(),
    };
    TABS.into_iter().filter(|tab| has(tab.1)).collect()
}

/// A page that is asked for.
struct Page<'a> {
    place: &'a Place<'a>,
    asked: &'a Asked<'a>,
    view: &'a Arc<ValuesView>,
}

impl Page<'_> {
    fn frame(&self, title: &str, words: &str, here: &'static str) -> Frame {
        Frame::new(self.place, title, words)
            .with_tabs(here, &tabs(self.view))
            .with_twins(here, &self.asked.query)
    }

    fn grid<R>(&self, rows: &Rows<'_, R>) -> Grid {
        rows.grid(&self.asked.query, self.place.orders, self.place.n)
    }

    fn list<R>(&self, title: &'static str, words: &str, rows: Rows<'_, R>) -> Answer {
        list(self.asked, self.frame(title, words, rows.page), title, self.grid(&rows))
    }

    /// Rows below a heading, as they are: their state is not the address's, since a page has several.
    fn fixed<R>(&self, of: &str, rows: &Rows<'_, R>) -> Grid {
        let state = self.asked.query.only(&["file"]).with("name", Some(of)).with("rows", Some(MOST_VALUES));
        rows.grid(&state, self.place.orders, self.place.n).fixed()
    }

    /// How often each number of iterations came.
    fn trips(&self, n: usize, of: &LoopView) -> ShownColumn {
        fn name(_: &TripsView) -> &str {
            ""
        }
        let most = of.trip_counts.iter().map(|one| one.instances).max().unwrap_or(1);
        let columns = vec![
            Column::new("instances", "that had it", |one: &TripsView| Value::Count(one.instances)),
            Column::new("share", "of all of them", |one: &TripsView| {
                Value::Share(ratio(one.instances, of.instances))
            })
            .shown(move |one| {
                let part = Value::Share(ratio(one.instances, of.instances)).cell();
                part.with_share(ratio(one.instances, most))
            }),
            Column::new("iterations", "an instance", |one: &TripsView| Value::Count(one.iterations)),
        ];
        let rows = Rows { page: "trips", noun: "trip counts", rows: &of.trip_counts, by: "", name, columns };
        let grid = self.fixed(&n.to_string(), &rows);
        let without_row = of.trip_counts.len().saturating_sub(grid.rows.len()) as u64;
        ShownColumn {
            name: "Trip counts".to_owned(),
            type_name: String::new(),
            said: format!("{} different", count(of.trip_counts.len() as u64)),
            statistics: Vec::new(),
            grid,
            without_row: if without_row > 0 { count(without_row) } else { String::new() },
        }
    }

    /// The values of a column.
    fn column(&self, function: &str, key: &'static str, of: &ColumnView) -> ShownColumn {
        let most = of.top.iter().map(|one| one.count).max().unwrap_or(1);
        let columns = vec![
            Column::new("count", "how often it came", |one: &ValueView| Value::Count(one.count)),
            Column::new("share", "of all of them", |one: &ValueView| {
                Value::Share(ratio(one.count, of.total))
            })
            .shown(move |one| {
                Value::Share(ratio(one.count, of.total)).cell().with_share(ratio(one.count, most))
            }),
            Column::new("value", "as text that reads back", |one: &ValueView| Value::Text(&one.value)),
            Column::new("bits", "of the value, hexadecimal", |one: &ValueView| Value::Text(&one.bits)),
        ];
        let rows = Rows { page: key, noun: "values", rows: &of.top, by: "", name: of_value, columns };
        let grid = self.fixed(function, &rows);
        let without_row = of.distinct.saturating_sub(grid.rows.len() as u64);
        ShownColumn {
            name: of.name.clone(),
            type_name: of.type_name.clone(),
            said: match of.exact {
                true => format!("{} different, {} in all", count(of.distinct), count(of.total)),
                false => format!(
                    "{} different or more, {} in all; counts to within {}",
                    count(of.distinct),
                    count(of.total),
                    count(of.error)
                ),
            },
            statistics: of.statistics.as_ref().map(statistics).unwrap_or_default(),
            grid,
            without_row: if without_row > 0 { count(without_row) } else { String::new() },
        }
    }

    fn function(&self) -> Result<Answer, NoPage> {
        let name = self.asked.query.get("name").ok_or(NoPage::Unknown)?;
        let found = self.view.calls.iter().find(|calls| calls.function == name).ok_or(NoPage::Unknown)?;
        let columns = found.arguments.iter().chain(&found.result);
        let mut facts = vec![("calls", count(found.calls))];
        for (what, n) in [("came back", found.results), ("left", found.left), ("open at the end", found.open)]
        {
            facts.extend(n.map(|n| (what, count(n))));
        }
        let places = found.addresses.iter().map(|at| {
            let name = at.name.as_ref().map_or_else(String::new, |name| format!(": {name}"));
            ("at", format!("{:#x} in {}{name}", at.address, at.module))
        });
        facts.extend(places);
        let ticks = found.ticks.iter().map(|of| ("Ticks of a call", statistics(of)));
        let own = found.own_ticks.iter().map(|of| ("Ticks without recorded calls within", statistics(of)));
        self.one(name, "functions", facts, self.columns(name, columns), ticks.chain(own).collect(), name)
    }

    fn one_place(&self) -> Result<Answer, NoPage> {
        let name = self.asked.query.get("name").ok_or(NoPage::Unknown)?;
        let found = self.view.places.iter().find(|place| place.place == name).ok_or(NoPage::Unknown)?;
        let facts = vec![("executions", count(found.executions))];
        self.one(name, "places", facts, self.columns(name, found.values.iter()), Vec::new(), "")
    }

    fn one_loop(&self) -> Result<Answer, NoPage> {
        let n = self.asked.query.number("n").and_then(|n| n.checked_sub(1)).ok_or(NoPage::Unknown)?;
        let found = self.view.loops.get(n).ok_or(NoPage::Unknown)?;
        let mut facts = vec![
            ("where", line(found).unwrap_or_else(|| views::address(found.header))),
            ("instances", count(found.instances)),
        ];
        for (what, n) in
            [("left", found.left), ("open at the end", found.open), ("uncertain", found.uncertain)]
        {
            if n > 0 {
                facts.push((what, count(n)));
            }
        }
        let summaries = [
            ("Iterations of an instance", Some(&found.iterations)),
            ("Ticks of an instance", found.ticks.as_ref()),
            ("Ticks of an iteration", found.ticks_per_iteration.as_ref()),
        ];
        let summaries = summaries.into_iter().filter_map(|(name, of)| Some((name, summary(of?)))).collect();
        self.one(&found.function, "loops", facts, vec![self.trips(n, found)], summaries, &found.function)
    }

    /// Those of a function or place; more than ten, nothing has.
    fn columns<'b>(&self, of: &str, all: impl Iterator<Item = &'b ColumnView>) -> Vec<ShownColumn> {
        let keys = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13"];
        all.zip(keys).map(|(column, key)| self.column(of, key, column)).collect()
    }

    fn one(
        &self,
        name: &str,
        here: &'static str,
        facts: Vec<(&'static str, String)>,
        columns: Vec<ShownColumn>,
        statistics: Vec<(&'static str, Statistics)>,
        plotted: &str,
    ) -> Result<Answer, NoPage> {
        // Without a log and without loops, there is nothing to be drawn.
        let picture = match plotted {
            "" => None,
            plotted => self.place.recordings.plot(self.place.n, plotted).ok(),
        };
        let words = match &picture {
            Some(_) => format!("--plot {}", word(plotted)),
            None => String::new(),
        };
        let frame = Frame::new(self.place, name, &words)
            .with_tabs("", &tabs(self.view))
            .with_twins(here, &self.asked.query);
        Ok(Answer::page(&One {
            frame,
            name,
            facts,
            columns,
            statistics,
            picture: picture.as_deref().map(without_style).unwrap_or_default(),
        }))
    }
}

fn of_value(one: &ValueView) -> &str {
    &one.value
}

fn count(n: u64) -> String {
    grouped(&n.to_string())
}

fn known(n: Option<u64>) -> Value<'static> {
    n.map_or(Value::Unknown, Value::Count)
}

/// What numbers are like: a name, and the number as it is shown.
type Statistics = Vec<(&'static str, Cell)>;

fn statistics(of: &StatisticsView) -> Statistics {
    let number = |n: Option<NumberView>| match n {
        Some(NumberView::Unsigned(n)) => Value::Count(n).cell(),
        Some(NumberView::Signed(n)) => Cell::of(&grouped(&n.to_string())),
        Some(NumberView::Float(n)) => Value::Number(n).cell(),
        None => Value::Unknown.cell(),
    };
    let float = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number).cell();
    let mut all = vec![
        ("min", number(of.min)),
        ("D1", float(of.d1)),
        ("Q1", float(of.q1)),
        ("median", float(of.median)),
        ("Q3", float(of.q3)),
        ("D9", float(of.d9)),
        ("max", number(of.max)),
        ("mean", float(of.mean)),
        ("deviation", float(of.deviation)),
    ];
    let odd = [("not a number", of.nan), ("infinite", of.infinite), ("denormal", of.denormal)];
    all.extend(odd.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, Value::Count(n).cell())));
    all
}

fn summary(of: &SummaryView) -> Statistics {
    let number = |n| Value::Number(n).cell();
    vec![
        ("min", number(of.min)),
        ("D1", number(of.d1)),
        ("Q1", number(of.q1)),
        ("median", number(of.median)),
        ("Q3", number(of.q3)),
        ("D9", number(of.d9)),
        ("max", number(of.max)),
        ("mean", number(of.mean)),
        ("deviation", number(of.deviation)),
        ("total", number(of.total)),
    ]
}

/// Where a loop is in the source.
fn line(of: &LoopView) -> Option<String> {
    Some(format!("{}:{}", of.file.as_deref()?, of.line?))
}

fn page_of(page: &str, name: &str) -> String {
    Query::default().with("name", Some(name)).link(page)
}

fn calls(rows: &[CallsView]) -> Rows<'_, CallsView> {
    fn name(of: &CallsView) -> &str {
        &of.function
    }
    let said = |of: &CallsView| {
        let one = |column: &ColumnView| match (column.distinct, column.top.first()) {
            (1, Some(only)) => format!("{} = {}", column.name, only.value),
            (n, _) => format!("{}: {} different", column.name, count(n)),
        };
        let all: Vec<String> = of.arguments.iter().chain(&of.result).map(one).collect();
        Cell::of(&all.join(", "))
    };
    let median = |of: &CallsView| of.ticks.as_ref().and_then(|ticks| ticks.median);
    let total = |of: &CallsView| of.ticks.as_ref().and_then(|ticks| Some(ticks.mean? * ticks.n as f64));
    let number = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number);
    let columns = vec![
        Column::new("calls", "how often it was called", |of: &CallsView| Value::Count(of.calls)),
        Column::new("came back", "how often it came back", |of: &CallsView| known(of.results)),
        Column::new("ticks", "of all its calls, with all that was called in them", move |of| {
            number(total(of))
        }),
        Column::new("a call", "median ticks of a call", move |of| number(median(of))),
        Column::new("function", "what people call it", |of: &CallsView| Value::Text(&of.function))
            .shown(|of| Cell::of(&of.function).to(page_of("function", &of.function))),
        Column::new("values", "of its arguments and its result", |_: &CallsView| Value::Text("")).shown(said),
    ];
    Rows { page: "functions", noun: "functions", rows, by: "", name, columns }
}

fn loops(rows: &[LoopView]) -> Rows<'_, LoopView> {
    fn name(of: &LoopView) -> &str {
        &of.function
    }
    let number = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number);
    let place = |of: &LoopView| Cell::of(&line(of).unwrap_or_else(|| views::address(of.header)));
    let link = move |of: &LoopView| {
        let n = rows.iter().position(|row| std::ptr::eq(row, of)).map_or(1, |at| at + 1);
        Cell::of(&of.function).to(Query::default().with("n", Some(&n.to_string())).link("loop"))
    };
    let columns = vec![
        Column::new("instances", "how often it was entered and left", |of: &LoopView| {
            Value::Count(of.instances)
        }),
        Column::new("iterations", "of all instances", |of: &LoopView| Value::Number(of.iterations.total)),
        Column::new("an instance", "median iterations of an instance", |of: &LoopView| {
            Value::Number(of.iterations.median)
        }),
        Column::new("trip counts", "how many different numbers of iterations", |of: &LoopView| {
            Value::Count(of.trip_counts.len() as u64)
        }),
        Column::new("ticks", "of all instances", move |of: &LoopView| {
            number(of.ticks.as_ref().map(|ticks| ticks.total))
        }),
        Column::new("an iteration", "median ticks of an iteration", move |of: &LoopView| {
            number(of.ticks_per_iteration.as_ref().map(|ticks| ticks.median))
        }),
        Column::new("depth", "how many loops hold it, itself too", |of: &LoopView| {
            Value::Count(of.depth.into())
        }),
        Column::new("function", "what it is in", |of: &LoopView| Value::Text(&of.function)).shown(link),
        Column::new("place", "where it begins", |of: &LoopView| Value::Address(of.header)).shown(place),
    ];
    Rows { page: "loops", noun: "loops", rows, by: "", name, columns }
}

fn places(rows: &[PlaceView]) -> Rows<'_, PlaceView> {
    fn name(of: &PlaceView) -> &str {
        &of.place
    }
    let columns = vec![
        Column::new("executions", "how often control came by", |of: &PlaceView| Value::Count(of.executions)),
        Column::new("place", "as it was asked for", |of: &PlaceView| Value::Text(&of.place))
            .shown(|of| Cell::of(&of.place).to(page_of("place", &of.place))),
    ];
    Rows { page: "places", noun: "places", rows, by: "", name, columns }
}

fn instructions(rows: &[InstructionView]) -> Rows<'_, InstructionView> {
    fn name(of: &InstructionView) -> &str {
        &of.place
    }
    let share = |of: &InstructionView| of.top.first().map(|top| ratio(top.count, of.executions));
    let part = |of: &InstructionView, n: Option<u64>| {
        n.map_or(Value::Unknown, |n| Value::Share(ratio(n, of.executions)))
    };
    let columns = vec![
        Column::new("executions", "how often it ran", |of: &InstructionView| Value::Count(of.executions)),
        Column::new("kind", "what was recorded of it", |of: &InstructionView| Value::Text(of.kind)),
        Column::new("different", "values that it had", |of: &InstructionView| Value::Count(of.distinct)),
        Column::new("share", "of the value that came most", move |of: &InstructionView| {
            share(of).map_or(Value::Unknown, Value::Share)
        }),
        Column::new("value", "that came most", |of: &InstructionView| {
            of.top.first().map_or(Value::Text(""), |top| Value::Text(&top.value))
        }),
        Column::new("not aligned", "of its accesses", move |of: &InstructionView| part(of, of.misaligned)),
        Column::new("over a line", "of its accesses", move |of: &InstructionView| part(of, of.split)),
        Column::new("place", "where it is", |of: &InstructionView| Value::Text(&of.place)),
    ];
    Rows { page: "instructions", noun: "instructions", rows, by: "", name, columns }
}

fn advice(rows: &[AdviceView]) -> Rows<'_, AdviceView> {
    fn name(of: &AdviceView) -> &str {
        &of.function
    }
    let columns = vec![
        Column::new("gain", "seconds that the run would have been shorter", |of: &AdviceView| {
            of.gain_s.map_or(Value::Unknown, Value::Number)
        }),
        Column::new("times", "how often it was done", |of: &AdviceView| Value::Count(of.executions)),
        Column::new("what", "could be done", |of: &AdviceView| Value::Text(of.kind)),
        Column::new("function", "with which function, or what in it", |of: &AdviceView| {
            Value::Text(&of.function)
        }),
        Column::new("because", "the numbers that it rests on", |of: &AdviceView| Value::Text(&of.because)),
    ];
    Rows { page: "advice", noun: "pieces of advice", rows, by: "", name, columns }
}

/// A column, as its function's page has it.
struct ShownColumn {
    name: String,
    type_name: String,
    said: String,
    statistics: Statistics,
    grid: Grid,
    /// How many values have no row.
    without_row: String,
}

#[derive(Template)]
#[template(path = "valued.html")]
struct One<'a> {
    frame: Frame,
    name: &'a str,
    facts: Vec<(&'static str, String)>,
    columns: Vec<ShownColumn>,
    statistics: Vec<(&'static str, Statistics)>,
    picture: String,
}

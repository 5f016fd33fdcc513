//! Pages of `engraft carry`: what of a profile was carried to later builds, what was lost, and why.

use crate::address::{Asked, Form};
use crate::pages::frame::{Frame, word};
use crate::pages::grid::{Cell, Column, Grid, Rows, Value};
use crate::pages::{Answer, NoPage, Place, list};
use askama::Template;
use views::carry::{CarryView, Elsewhere, LeftOutView, LossView, RangeView, Ranges, StepView};
use views::{grouped, ratio, share};

/// Pages that lead to each other.
const TABS: [(&str, &str); 3] =
    [("lost", "functions"), ("bounds of blocks", "ranges"), ("without a place", "elsewhere")];

/// What is asked for of a carried profile.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.carried(place.n)?;
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => Ok(functions(place, asked, &view)),
        "ranges" => Ok(ranges(place, asked, &view)),
        "elsewhere" => Ok(elsewhere(place, asked, &view)),
        _ => Err(NoPage::Unknown),
    }
}

/// Around a page, with the command that prints the same.
fn frame(place: &Place<'_>, view: &CarryView, title: &'static str, here: &str, asked: &Asked<'_>) -> Frame {
    let first = view.steps.first().map(|step| word(&step.old));
    let builds: Vec<String> =
        first.into_iter().chain(view.steps.iter().map(|step| word(&step.new))).collect();
    let (builds, profile, file) = (builds.join(" "), word(&view.profile), word(&view.written.file));
    let merged =
        view.merged_with.as_ref().map_or_else(String::new, |file| format!(" --merge {}", word(file)));
    let command = format!("engraft carry {builds} --profile {profile}{merged} -o {file}");
    let frame = Frame::new(place, title, "").with_command(command);
    frame.with_tabs(here, &TABS).with_twins(here, &asked.query)
}

/// The first page: what was carried, and what was lost of which function.
fn functions(place: &Place<'_>, asked: &Asked<'_>, view: &CarryView) -> Answer {
    type Row<'a> = (&'a StepView, &'a LossView);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        row.1.function.as_deref().unwrap_or_default()
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(view, asked.form, &asked.query);
    }
    let rows: Vec<Row<'_>> =
        view.steps.iter().flat_map(|step| step.lost.iter().map(move |lost| (step, lost))).collect();
    let of_all = |row: &Row<'_>| ratio(row.1.count, row.0.old_count);
    let mut columns = vec![
        Column::new("share", "of all executions of blocks of the earlier build", move |row: &Row<'_>| {
            Value::Share(of_all(row))
        })
        .shown(move |row| Value::Share(of_all(row)).cell().with_share(of_all(row))),
        Column::new("count", "executions that were lost", |row: &Row<'_>| Value::Count(row.1.count)),
        Column::new("blocks", "of how many blocks", |row: &Row<'_>| Value::Count(row.1.n_blocks as u64)),
        Column::new("function", "whose they were", |row: &Row<'_>| {
            row.1.function.as_deref().map_or(Value::Text("unknown"), Value::Text)
        }),
        Column::new("why", "they were lost", |row: &Row<'_>| Value::Text(&row.1.why)),
    ];
    if view.steps.len() > 1 {
        columns.push(Column::new("to", "the build that has no place for them", |row: &Row<'_>| {
            Value::Text(&row.0.new)
        }));
    }
    let rows = Rows { page: "functions", noun: "losses", rows: &rows, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Answer::page(&grid);
    }
    Answer::page(&Overview {
        frame: frame(place, view, "carried", "functions", asked),
        facts: facts(view),
        steps: view.steps.iter().map(Step::of).collect(),
        doubts: &view.predicted.doubts,
        grid,
    })
}

/// What it is of, and what it is expected to be worth.
fn facts(view: &CarryView) -> Vec<(&'static str, String)> {
    let predicted = &view.predicted;
    let worth = |of: Option<f64>, least: Option<f64>, most: f64| match (of, least) {
        (Some(of), Some(least)) if least < of => format!("{}, at least {}", share(of), share(least)),
        (Some(of), _) => share(of),
        (None, _) if most < 1.0 => format!("unknown, at most {}", share(most)),
        (None, _) => "unknown".to_owned(),
    };
    let mut facts = vec![("profile", format!("{}, {}", view.profile, view.input.format))];
    facts.extend(view.merged_with.clone().map(|file| ("merged with", file)));
    if view.input.lost_count > 0 {
        let (lost, of) = (grouped(&view.input.lost_count.to_string()), share(view.input.lost_share));
        facts.push(("does not fit", format!("{lost} counts, {of}, do not fit the build it is of")));
    }
    let bp = worth(predicted.bp_share, predicted.bp_at_least, predicted.bp_at_most);
    let cc = worth(predicted.cc_share, predicted.cc_at_least, predicted.cc_at_most);
    facts.push(("branch prediction", format!("{bp} of a fresh profile, as predicted")));
    facts.push(("code coverage", format!("{cc} of a fresh profile, as predicted")));
    if let Some(gate) = &view.required {
        let why = gate.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let asked = format!("B.P. {}, C.C. {}", share(gate.bp_share), share(gate.cc_share));
        facts.push(("required", format!("{asked}: {}{why}", gate.verdict)));
    }
    let n = grouped(&view.written.count.to_string());
    facts.push((
        "written",
        format!("{}: {} functions, {n} counts", view.written.file, view.written.n_functions),
    ));
    facts
}

/// From one build to the next, in words.
struct Step {
    builds: String,
    carried: String,
    share: f64,
    functions: String,
    new: usize,
    changed: String,
}

impl Step {
    fn of(step: &StepView) -> Step {
        let same = if step.same { ", the same code" } else { "" };
        Step {
            builds: format!("{} → {}{same}", step.old, step.new),
            carried: share(step.carried_share),
            share: 100.0 * step.carried_share,
            functions: format!("{} of {}", step.n_functions_carried, step.n_functions_ran),
            new: step.n_new_functions,
            changed: grouped(&step.changed_count.to_string()),
        }
    }
}

/// Between what counts of blocks must lie.
fn ranges(place: &Place<'_>, asked: &Asked<'_>, view: &CarryView) -> Answer {
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(&Ranges::of(view), asked.form, &asked.query);
    }
    fn name(_: &RangeView) -> &str {
        ""
    }
    let columns = vec![
        Column::new("block", "its address", |row: &RangeView| Value::Address(row.at)),
        Column::new("least", "that it has run", |row: &RangeView| Value::Count(row.low)),
        Column::new("most", "unknown: nothing bounds it", |row: &RangeView| {
            row.high.map_or(Value::Unknown, Value::Count)
        }),
    ];
    let noun = "blocks that have only a part of an old block's flow, or no match";
    let rows = Rows { page: "ranges", noun, rows: &view.ranges, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    list(asked, frame(place, view, "bounds of blocks", "ranges", asked), "Bounds of blocks", grid)
}

/// What has no place in the first build, or in the file.
fn elsewhere(place: &Place<'_>, asked: &Asked<'_>, view: &CarryView) -> Answer {
    type Row<'a> = (&'static str, &'a LeftOutView);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        &row.1.what
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(&Elsewhere::of(view), asked.form, &asked.query);
    }
    let input = view.input.lost.iter().map(|row| ("the build it is of", row));
    let rows: Vec<Row<'_>> = input.chain(view.written.left_out.iter().map(|row| ("the file", row))).collect();
    let columns = vec![
        Column::new("count", "how many", |row: &Row<'_>| Value::Count(row.1.count)),
        Column::new("not in", "what has no place for it", |row: &Row<'_>| Value::Text(row.0)),
        Column::new("what", "what it is", |row: &Row<'_>| Value::Text(&row.1.what))
            .shown(|row| Cell::of(&row.1.what)),
        Column::new("why", "it has no place there", |row: &Row<'_>| Value::Text(&row.1.why)),
    ];
    let rows = Rows { page: "elsewhere", noun: "counts without a place", rows: &rows, by: "", name, columns };
    let grid = rows.grid(&asked.query, place.orders, place.n);
    list(asked, frame(place, view, "without a place", "elsewhere", asked), "Counts without a place", grid)
}

#[derive(Template)]
#[template(path = "carried.html")]
struct Overview<'a> {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    steps: Vec<Step>,
    doubts: &'a [String],
    grid: Grid,
}

//! The page of one function: its code with counts and source lines, and its flow graph.

use super::frame::{Frame, word};
use super::{Answer, NoPage, Place};
use crate::address::{Asked, Form, Query};
use askama::Template;
use views::address;
use views::recordings::What;
use views::show::function::{BlockView, FunctionView};

/// Blocks of the largest graph that is drawn in the page.
const DRAWN: usize = 150;

/// The function that is asked for by its name.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>, tabs: &[(&'static str, &str)]) -> Result<Answer, NoPage> {
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    let view = place.recordings.function(place.n, name)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&view, asked.form, &asked.query));
    }
    let graph = match view.blocks.len() {
        1..=DRAWN => without_style(&place.recordings.graph(place.n, name)?),
        _ => String::new(),
    };
    let frame = Frame::new(place, &view.name, &format!("function {}", word(name)));
    let frame = frame.with_tabs("", tabs).with_twins("function", &asked.query);
    let hottest = view.blocks.iter().filter_map(|block| block.share).max_by(f64::total_cmp);
    let blocks = view.blocks.iter().map(|of| block(of, hottest)).collect();
    let picture = asked.query.only(&["name"]).link("graph");
    let ways = ways(place, &view);
    Ok(Answer::page(&Page { frame, facts: facts(&view), name: &view.name, blocks, graph, picture, ways }))
}

/// Where its callers are, and what it calls, if the recording knows along which ways.
fn ways(place: &Place<'_>, view: &FunctionView) -> Vec<(&'static str, String)> {
    if place.what == What::Counts {
        return Vec::new();
    }
    let file = view.binary.rsplit('/').next().unwrap_or(&view.binary);
    let query = Query::default().with("name", Some(&format!("{file}!{}", view.name)));
    vec![
        ("who calls it", query.link("callers")),
        ("what it calls", query.link("tree")),
        ("as a flame graph", query.link("flame")),
    ]
}

/// Its flow graph alone.
pub fn graph(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    Ok(Answer::new(200, "image/svg+xml", place.recordings.graph(place.n, name)?))
}

/// A picture that takes its style from the page: one within it, no page of ours allows.
fn without_style(svg: &str) -> String {
    let parts =
        svg.split_once("<style>").and_then(|(before, rest)| Some((before, rest.split_once("</style>")?.1)));
    parts.map_or_else(String::new, |(before, behind)| [before, behind].concat())
}

fn facts(view: &FunctionView) -> Vec<(&'static str, String)> {
    let mut facts = vec![("binary", view.binary.clone()), ("at", address(view.at))];
    facts.extend(view.source_name.clone().map(|name| ("in the source", name)));
    facts.push(("found by", format!("{}, {}", view.origin, view.sure)));
    if !view.complete {
        facts.push(("control flow", "not all of it is understood".to_owned()));
    }
    if !view.returns {
        facts.push(("returns", "never".to_owned()));
    }
    facts
}

fn block(view: &BlockView, hottest: Option<f64>) -> Block {
    let mut lines = Vec::new();
    let mut last = None;
    for insn in &view.instructions {
        if insn.line.is_some() && last.replace(&insn.line) != Some(&insn.line) {
            let line = insn.line.as_deref().unwrap_or_default();
            lines.push(Line {
                at: line.rsplit('/').next().unwrap_or(line).to_owned(),
                title: line.to_owned(),
                mnemonic: String::new(),
                text: insn.source.clone().unwrap_or_default(),
                calls: String::new(),
            });
        }
        let (mnemonic, text) = insn.text.split_once(' ').unwrap_or((&insn.text, ""));
        lines.push(Line {
            at: address(insn.at),
            title: String::new(),
            mnemonic: mnemonic.to_owned(),
            text: text.to_owned(),
            calls: insn.calls.clone().unwrap_or_default(),
        });
    }
    Block {
        number: view.block,
        at: address(view.at),
        marks: view.marks(hottest),
        is_never: view.count == Some(0) && view.between.at_most.is_none(),
        percent: 100.0 * view.share.unwrap_or_default(),
        lines,
        edges: view.edges.iter().map(|edge| (edge.to_block, edge.said(view))).collect(),
        end: if view.edges.is_empty() { view.end } else { "" },
    }
}

/// A block.
struct Block {
    number: u32,
    at: String,
    marks: String,
    /// Whether it is sure that it did not run.
    is_never: bool,
    /// Of the function's instructions that ran.
    percent: f64,
    lines: Vec<Line>,
    /// To which block, and how.
    edges: Vec<(u32, String)>,
    /// How it ends, where control goes to no block.
    end: &'static str,
}

/// An instruction; without a mnemonic, a line of the source.
struct Line {
    at: String,
    title: String,
    mnemonic: String,
    text: String,
    calls: String,
}

#[derive(Template)]
#[template(path = "function.html")]
struct Page<'a> {
    frame: Frame,
    name: &'a str,
    facts: Vec<(&'static str, String)>,
    blocks: Vec<Block>,
    graph: String,
    picture: String,
    ways: Vec<(&'static str, String)>,
}

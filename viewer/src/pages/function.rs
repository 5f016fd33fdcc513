//! The page of one function: its code with counts and source lines, and its flow graph.

use super::frame::{Frame, word};
use super::{Answer, NoPage, Place};
use crate::address::{Asked, Form, Query};
use crate::recordings::{Drawing, FlowGraph};
use askama::Template;
use views::address;
use views::recordings::What;
use views::show::function::{BlockView, FunctionView};

/// Blocks of the largest graph that is drawn block by block, if nothing else is asked for.
const DRAWN: usize = 150;

/// The function that is asked for by its name.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>, tabs: &[(&'static str, &str)]) -> Result<Answer, NoPage> {
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    let view = place.recordings.function(place.n, name)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&view, asked.form, &asked.query));
    }
    let mut graph = place.recordings.graph(place.n, name, &drawing(&asked.query, ""))?;
    let frame = Frame::new(place, &view.name, &format!("function {}", word(name)));
    let frame = frame.with_tabs("", tabs).with_twins("function", &asked.query);
    let hottest = view.blocks.iter().filter_map(|block| block.share).max_by(f64::total_cmp);
    let nodes = graph.node_of.iter().copied().chain(std::iter::repeat(None));
    let blocks = view.blocks.iter().zip(nodes).map(|(of, node)| block(of, node, hottest)).collect();
    graph.svg = without_style(&graph.svg);
    let one = asked.query.only(&["name"]);
    let is_large = view.blocks.len() > DRAWN;
    let whole = one.with("whole", Some("1").filter(|_| graph.is_folded));
    Ok(Answer::page(&Page {
        drawn: format!("{} --svg{}", frame.command, if graph.is_folded { " --folded" } else { "" }),
        frame,
        ways: ways(place, &view),
        facts: facts(&view),
        name: &view.name,
        blocks,
        n_nodes: graph.node_of.iter().flatten().max().map_or(0, |n| n + 1),
        graph,
        picture: asked.query.only(&["name", "whole"]).link("graph"),
        otherwise: is_large.then(|| whole.link("function")),
    }))
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

/// How the graph is drawn that `query` asks for, whose boxes lead to blocks of the page `links`.
fn drawing<'a>(query: &Query, links: &'a str) -> Drawing<'a> {
    Drawing { most: query.get("whole").is_none().then_some(DRAWN), links: Some(links) }
}

/// Its flow graph alone.
pub fn graph(place: &Place<'_>, asked: &Asked<'_>, tabs: &[(&'static str, &str)]) -> Result<Answer, NoPage> {
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    let links = asked.query.only(&["name", "whole"]).link("function");
    let graph = place.recordings.graph(place.n, name, &drawing(&asked.query, &links))?;
    // As a page, which has a style: one within the picture, no page of ours allows.
    let query = asked.query.only(&["name"]);
    let frame = Frame::new(place, name, &format!("function {} --svg", word(name)))
        .with_tabs("", tabs)
        .with_twins("function", &query);
    Ok(Answer::page(&Alone { frame, name, page: query.link("function"), graph: without_style(&graph.svg) }))
}

/// A picture that takes its style from the page: one within it, no page of ours allows.
pub fn without_style(svg: &str) -> String {
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

fn block(view: &BlockView, node: Option<u32>, hottest: Option<f64>) -> Block {
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
        node,
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
    /// Of the graph.
    node: Option<u32>,
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

/// The flow graph alone.
#[derive(Template)]
#[template(path = "graph.html")]
struct Alone<'a> {
    frame: Frame,
    name: &'a str,
    /// The page of the function.
    page: String,
    graph: String,
}

#[derive(Template)]
#[template(path = "function.html")]
struct Page<'a> {
    frame: Frame,
    name: &'a str,
    facts: Vec<(&'static str, String)>,
    blocks: Vec<Block>,
    graph: FlowGraph,
    n_nodes: u32,
    /// The command that draws it.
    drawn: String,
    /// The address of the graph alone.
    picture: String,
    /// The address that has it drawn the other way: block by block, or folded.
    otherwise: Option<String>,
    ways: Vec<(&'static str, String)>,
}

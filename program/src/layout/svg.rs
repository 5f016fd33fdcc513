//! A function as a picture: boxes of blocks, edges by kind, loops shaded by depth, what never ran pale.
//!
//! Invariant: well-formed XML, whatever the names hold; the same bytes for the same program and counts; needs
//! no script and no font but the viewer's monospace one.
//!
//! Legend: a branch's taken edge is green and dashed, its fall-through red, jumps grey, table edges violet,
//! landing pads orange; back edges are blue, thick, with the loop's number. A darker box is deeper in loops;
//! a header has a thick blue border. Boxes by how many edges they have: where flow parts they are wider
//! below, where it comes together above, where both in the middle; round where it starts or ends. With
//! counts, a line is thicker the more often it ran; never executed is dotted and pale.
//!
//! Source: S. Henry and others, "MAQAO VPROF", figure 2: shapes by predecessors and successors, dashes for
//! conditional jumps, counts at edges.

use super::counts::{Counts, RunCount, beside, is_idle};
use super::fold::Folding;
use super::{Coordinates, Layout, Size, compute};
use crate::addr::Va;
use crate::analyses::loops::Loops;
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::model::{Call, CallKind, Callee, EdgeKind, Program};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What stands in the boxes.
#[derive(Clone, Copy, Default)]
pub struct Style<'a> {
    /// Instructions; else only addresses, sizes and what is called.
    pub instructions: bool,
    /// What functions are called; else their names in the symbol table.
    pub name: Option<&'a dyn Fn(FuncId) -> String>,
    /// The source line of an address, if that is known.
    pub line: Option<&'a dyn Fn(Va) -> Option<String>>,
    /// Which blocks are drawn as one; each alone without it. Boxes of folded drawings have no instructions.
    pub folding: Option<&'a Folding>,
    /// Where boxes lead: this, `#b` and the number of their first block. Then each has a name of its own: `g`
    /// and the number of the node.
    pub links: Option<&'a str>,
}

impl Style<'_> {
    fn name(&self, program: &Program, id: FuncId) -> String {
        self.name.map_or_else(|| program.function(id).name(), |name| name(id))
    }
}

const FONT: f64 = 11.0;
const LINE: f64 = 14.0;
const LETTER: f64 = 6.65;
const MARGIN: f64 = 20.0;
const TITLE: f64 = 30.0;
/// How far outlines lie outside of boxes.
const SLANT: f64 = 7.0;
/// As much of a name as stands above a picture.
const LONGEST_NAME: usize = 300;
/// Longest text in a box, in letters.
const WIDEST: usize = 60;

/// A picture of the flow graph of `func`, as SVG; with `counts`, what never ran is pale.
pub fn svg(program: &Program, func: FuncId, style: Style<'_>, counts: Option<&Counts<'_>>) -> String {
    let f = program.function(func);
    let first = f.blocks.start;
    let loops = Loops::compute(program, func);
    let edge_ids: Vec<EdgeId> = f.block_ids().flat_map(|b| program.edge_ids(b)).collect();
    let whole = || Folding::none(f.n_blocks(), edge_ids.len());
    let folding = style.folding.map_or_else(|| Cow::Owned(whole()), Cow::Borrowed);
    let drawn = Drawn { program, loops: &loops, style, counts };
    let nodes: Vec<Vec<BlockId>> =
        folding.nodes.iter().map(|of| of.iter().map(|b| BlockId(first + b)).collect()).collect();
    let texts: Vec<Vec<String>> = nodes.iter().map(|blocks| drawn.text(blocks)).collect();
    let sizes: Vec<Size> = texts
        .iter()
        .map(|lines| {
            let letters = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
            Size { width: letters as f64 * LETTER + 14.0, height: lines.len() as f64 * LINE + 8.0 }
        })
        .collect();
    // The entry first, wherever it lies: layers start there.
    let entry = program.entry_block(func).filter(|b| f.blocks.contains(&b.0)).map_or(0, |b| b.0 - first);
    let entry = folding.node_of.get(entry as usize).copied().unwrap_or(0);
    let place = |node: u32| {
        if node == entry {
            0
        } else if node < entry {
            node + 1
        } else {
            node
        }
    };
    let mut ordered = sizes.clone();
    for (i, &size) in sizes.iter().enumerate() {
        ordered[place(crate::analyses::flow_graph::count(i)) as usize] = size;
    }
    let (ends, lines) = lines(program, first, &folding, &edge_ids, style.folding.is_some());
    let placed: Vec<(u32, u32)> = ends.iter().map(|&(from, to)| (place(from), place(to))).collect();
    let layout = compute(&ordered, &placed);
    let mut out = String::new();
    let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (n_blocks, n_loops) = (many(f.n_blocks(), "block"), many(loops.len(), "loop"));
    let as_nodes = style.folding.map_or_else(String::new, |_| format!(" as {}", many(nodes.len(), "node")));
    let name: String = style.name(program, func).chars().take(LONGEST_NAME).collect();
    head(&mut out, &layout, &format!("{name} at {}: {n_blocks}{as_nodes}, {n_loops}", f.entry));
    let mut labels = Labels::new(&layout.nodes, &ordered);
    for (ids, line) in lines.iter().zip(&layout.edges) {
        drawn.edge(&mut out, ids, line, &mut labels);
    }
    let shapes = shapes(nodes.len(), &ends);
    for (i, blocks) in nodes.iter().enumerate() {
        let at = layout.nodes[place(crate::analyses::flow_graph::count(i)) as usize];
        drawn.node(&mut out, i, blocks, (at, sizes[i]), &texts[i], shapes[i]);
    }
    // Over all else: a number that is half covered is another number.
    out.push_str(&labels.text);
    out.push_str("</g>\n</svg>\n");
    out
}

/// The lines between nodes: from which to which, and the edges of each; all between the same two as one, if
/// they are `merged`.
fn lines(
    program: &Program,
    first: u32,
    folding: &Folding,
    edges: &[EdgeId],
    merged: bool,
) -> (Vec<(u32, u32)>, Vec<Vec<EdgeId>>) {
    let node = |b: BlockId| folding.node_of[(b.0 - first) as usize];
    let (mut ends, mut lines) = (Vec::new(), Vec::<Vec<EdgeId>>::new());
    let mut known: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for (&id, _) in edges.iter().zip(&folding.is_within).filter(|(_, within)| !**within) {
        let pair = (node(program.edge(id).from), node(program.edge(id).to));
        match known.get(&pair).filter(|_| merged) {
            Some(&line) => lines[line].push(id),
            None => {
                known.insert(pair, lines.len());
                ends.push(pair);
                lines.push(vec![id]);
            }
        }
    }
    (ends, lines)
}

fn head(out: &mut String, layout: &Layout, title: &str) {
    let width = (layout.size.width + 2.0 * MARGIN).max(title.chars().count() as f64 * 8.5 + 2.0 * MARGIN);
    let height = layout.size.height + 2.0 * MARGIN + TITLE;
    let title = escaped(title);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="monospace" font-size="{FONT}">
<title>{title}</title>
<style>
text {{ fill: #111111 }}
.n {{ font-size: 8px; paint-order: stroke; stroke: #ffffff; stroke-width: 2.5px; stroke-linejoin: round }}
{DARK}</style>
<defs>
"##
    );
    for (name, colour) in COLOURS {
        let _ = writeln!(
            out,
            r#"<marker id="to-{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>"#
        );
    }
    let _ = write!(
        out,
        r##"</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{MARGIN}" y="{:.0}" font-size="14" font-weight="bold">{title}</text>
<g transform="translate({MARGIN} {:.0})">
"##,
        MARGIN,
        MARGIN + TITLE
    );
}

/// What is light and dark by the viewer's choice: each colour of the light picture, as the dark one has it.
const DARK: &str = r##"@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6 } .n { stroke: #16191d }
[fill="#ffffff"] { fill: #16191d } [fill="#f7f7f7"] { fill: #1c1f23 } [fill="#eaf2fb"] { fill: #1b2733 }
[fill="#d3e4f7"] { fill: #20344a } [fill="#b9d4f2"] { fill: #274362 } [fill="#9cc2ec"] { fill: #2f537b }
[fill="#7fb0e6"] { fill: #386496 } [fill="#111111"] { fill: #e6e6e6 } [fill="#999999"] { fill: #8a8f96 }
[fill="#c0392b"] { fill: #ff8a7a } [fill="#1e8449"] { fill: #5fd08c } [fill="#555555"] { fill: #a9b0b8 }
[fill="#7d3c98"] { fill: #d19bea } [fill="#d68910"] { fill: #ffb84d } [fill="#1f5fbf"] { fill: #7fb2ff }
[stroke="#c0392b"] { stroke: #ff8a7a } [stroke="#1e8449"] { stroke: #5fd08c } [stroke="#555555"] { stroke: #a9b0b8 }
[stroke="#7d3c98"] { stroke: #d19bea } [stroke="#d68910"] { stroke: #ffb84d } [stroke="#1f5fbf"] { stroke: #7fb2ff }
[fill="#b8b8b8"] { fill: #5a6068 } [stroke="#b8b8b8"] { stroke: #5a6068 }
}
"##;

const COLOURS: [(&str, &str); 7] = [
    ("fall", "#c0392b"),
    ("taken", "#1e8449"),
    ("jump", "#555555"),
    ("table", "#7d3c98"),
    ("pad", "#d68910"),
    ("back", "#1f5fbf"),
    ("never", "#b8b8b8"),
];

/// A function that is drawn, and how.
struct Drawn<'a> {
    program: &'a Program,
    loops: &'a Loops,
    style: Style<'a>,
    counts: Option<&'a Counts<'a>>,
}

impl Drawn<'_> {
    /// What an edge is drawn as.
    fn kind(&self, id: EdgeId) -> &'static str {
        let e = self.program.edge(id);
        let alone = self.program.successors(e.from).len() == 1;
        match (self.loops.back_edge_of(self.program, id), e.kind) {
            _ if is_idle(self.program, self.counts, id) => "never",
            (Some(_), _) => "back",
            (_, EdgeKind::FallThrough) if alone => "jump",
            (_, EdgeKind::FallThrough) => "fall",
            (_, EdgeKind::Taken) => "taken",
            (_, EdgeKind::Jump) => "jump",
            (_, EdgeKind::Table) => "table",
            (_, EdgeKind::LandingPad) => "pad",
        }
    }

    /// How often the edges `ids` were taken, together; and whether that is all that is known of them.
    fn taken(&self, ids: &[EdgeId]) -> Option<(RunCount, bool)> {
        let mut known: Option<RunCount> = None;
        let mut is_all = true;
        let mut seen = BTreeSet::new();
        for &id in ids {
            let e = self.program.edge(id);
            // One count is of all edges between two blocks.
            if !seen.insert((e.from, e.to)) {
                continue;
            }
            match self.counts.and_then(|c| (c.edge)(id)) {
                Some(n) => known = Some(known.map_or(n, |all| all.plus(n))),
                None => is_all &= is_idle(self.program, self.counts, id),
            }
        }
        known.map(|n| (n, is_all))
    }

    /// One line for the edges `ids` between two nodes.
    fn edge(&self, out: &mut String, ids: &[EdgeId], line: &[Coordinates], labels: &mut Labels) {
        let (program, loops) = (self.program, self.loops);
        let Some(&id) = ids.first() else { return };
        let kinds: BTreeSet<&str> =
            ids.iter().map(|&id| self.kind(id)).filter(|kind| *kind != "never").collect();
        let name = match (kinds.first(), kinds.len()) {
            (None, _) => "never",
            (Some(kind), 1) => kind,
            _ if kinds.contains("back") => "back",
            _ => "jump",
        };
        let colour = COLOURS.iter().find(|c| c.0 == name).map_or("#000000", |c| c.1);
        let taken = self.taken(ids);
        let back = ids.iter().find_map(|&id| loops.back_edge_of(program, id));
        let width = if back.is_some() { 2.2 } else { 1.2 } + thickness(taken.map_or(0, |(n, _)| n.n));
        let dashes = match name {
            "never" => r#" stroke-dasharray="2 3""#,
            _ if ids.iter().all(|&id| program.edge(id).kind == EdgeKind::Taken) => {
                r#" stroke-dasharray="8 3""#
            }
            _ => "",
        };
        let mut path = String::new();
        for (i, p) in line.iter().enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, p.x, p.y);
        }
        let e = program.edge(id);
        let mut title = match ids.len() {
            1 => {
                format!("{id}: {} → {}, {:?}", program.block(e.from).start, program.block(e.to).start, e.kind)
            }
            n => format!(
                "{n} edges, the first {id}: {} → {}",
                program.block(e.from).start,
                program.block(e.to).start
            ),
        };
        if let Some(l) = back {
            let _ = write!(title, ", back edge of {l}");
        }
        if let Some((n, is_all)) = taken {
            let several = ids.len() > 1 || beside(program, id).next().is_some();
            let together = if several { ", all ways between them together" } else { "" };
            let others = if is_all { "" } else { ", and others that are not counted" };
            let _ = write!(title, ", {n} times{together}{others}");
        }
        let title = escaped(&title);
        let _ = writeln!(
            out,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:.2}" stroke-linejoin="round"{dashes} marker-end="url(#to-{name})"><title>{title}</title></path>"#
        );
        // Of several lines between the same blocks, the first says it for all.
        let is_first = ids.len() > 1 || beside(program, id).all(|other| id < other);
        if let Some((n, is_all)) = taken.filter(|(n, _)| !n.is_never() && is_first) {
            let label = if is_all { n.to_string() } else { format!("≥ {n}") };
            labels.add(&label, line, colour);
        }
    }
}

/// The numbers at edges, each where nothing else stands: near the start of its line, else further along it.
pub(super) struct Labels {
    pub(super) text: String,
    /// What is taken, by row of the picture.
    taken: BTreeMap<i64, Vec<Rect>>,
}

/// From left to right, from top to bottom.
#[derive(Clone, Copy)]
struct Rect {
    x: (f64, f64),
    y: (f64, f64),
}

impl Rect {
    fn rows(self) -> std::ops::RangeInclusive<i64> {
        #[expect(clippy::cast_possible_truncation, reason = "rows of a picture")]
        let row = |y: f64| y.div_euclid(LINE) as i64;
        row(self.y.0)..=row(self.y.1)
    }

    fn meets(self, other: Rect) -> bool {
        let meet = |a: (f64, f64), b: (f64, f64)| a.0 < b.1 && b.0 < a.1;
        meet(self.x, other.x) && meet(self.y, other.y)
    }
}

impl Labels {
    pub(super) fn new(boxes: &[Coordinates], sizes: &[Size]) -> Labels {
        let mut labels = Labels { text: String::new(), taken: BTreeMap::new() };
        for (at, size) in boxes.iter().zip(sizes) {
            let x = (at.x - SLANT, at.x + size.width + SLANT);
            labels.take(Rect { x, y: (at.y, at.y + size.height) });
        }
        labels
    }

    fn take(&mut self, rect: Rect) {
        rect.rows().for_each(|row| self.taken.entry(row).or_default().push(rect));
    }

    fn is_free(&self, rect: Rect) -> bool {
        rect.rows().all(|row| self.taken.get(&row).is_none_or(|all| all.iter().all(|t| !t.meets(rect))))
    }

    /// Writes `label` at `line`.
    pub(super) fn add(&mut self, label: &str, line: &[Coordinates], colour: &str) {
        const HEIGHT: f64 = 8.0;
        const NARROW: f64 = 4.9;
        const STEP: f64 = 6.0;
        const TRIES: usize = 60;
        let width = label.chars().count() as f64 * NARROW;
        let rect = |p: Coordinates| {
            let (x, y) = (p.x + 3.0, p.y + 1.0);
            Rect { x: (x, x + width), y: (y, y + HEIGHT) }
        };
        let pieces = line.iter().zip(line.iter().skip(1));
        let mut along = pieces.flat_map(|(a, b)| {
            #[expect(clippy::cast_possible_truncation, reason = "steps within a picture")]
            let n = ((b.x - a.x).hypot(b.y - a.y) / STEP).floor().max(0.0) as u32;
            (0..=n).map(move |i| {
                let share = f64::from(i) / f64::from(n.max(1));
                Coordinates { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share }
            })
        });
        let Some(first) = line.first().map(|p| rect(*p)) else { return };
        let rect = along.by_ref().take(TRIES).map(rect).find(|r| self.is_free(*r)).unwrap_or(first);
        self.take(rect);
        let (x, y) = (rect.x.0, rect.y.1);
        let _ =
            writeln!(self.text, r#"<text class="n" x="{x:.1}" y="{y:.1}" fill="{colour}">{label}</text>"#);
    }
}

/// What a line that ran `n` times is thicker than one that did not: as its logarithm grows.
pub(super) fn thickness(n: u64) -> f64 {
    f64::from((n.max(1)).ilog2()) * 0.12 + if n > 0 { 0.3 } else { 0.0 }
}

/// The outline of a block, by how many edges come to it and leave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// It has no edge on one side: control comes from outside, or goes there.
    Terminal,
    /// One edge in, one out.
    Plain,
    /// One edge in, several out.
    Fork,
    /// Several edges in, one out.
    Join,
    /// Several edges in, several out.
    Both,
}

impl Shape {
    pub(super) fn of(n_in: usize, n_out: usize) -> Shape {
        match (n_in, n_out) {
            (0, _) | (_, 0) => Shape::Terminal,
            (1, 1) => Shape::Plain,
            (1, _) => Shape::Fork,
            (_, 1) => Shape::Join,
            _ => Shape::Both,
        }
    }

    /// As an element of SVG, up to its attributes of style. Slants lie outside of the box, in the space
    /// between boxes.
    fn outline(self, at: Coordinates, size: Size) -> String {
        let (left, right, top, bottom) = (at.x, at.x + size.width, at.y, at.y + size.height);
        let (above, below, between) = match self {
            Shape::Plain | Shape::Terminal => {
                let round = if self == Shape::Plain { 0.0 } else { (size.height / 2.0).min(10.0) };
                return format!(
                    r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" rx="{round:.0}""#,
                    size.width, size.height
                );
            }
            Shape::Fork => (0.0, SLANT, None),
            Shape::Join => (SLANT, 0.0, None),
            Shape::Both => (0.0, 0.0, Some(SLANT)),
        };
        let mut corners = vec![(left - above, top), (right + above, top)];
        corners.extend(between.map(|out| (right + out, (top + bottom) / 2.0)));
        corners.extend([(right + below, bottom), (left - below, bottom)]);
        corners.extend(between.map(|out| (left - out, (top + bottom) / 2.0)));
        let corners: Vec<String> = corners.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!(r#"<polygon points="{}""#, corners.join(" "))
    }
}

/// The shape of each of `n` nodes, by how many lines come to it and leave it.
pub(super) fn shapes(n: usize, ends: &[(u32, u32)]) -> Vec<Shape> {
    let (mut into, mut out) = (vec![0; n], vec![0; n]);
    for &(from, to) in ends {
        out[from as usize] += 1;
        into[to as usize] += 1;
    }
    into.into_iter().zip(out).map(|(into, out)| Shape::of(into, out)).collect()
}

impl Drawn<'_> {
    /// Node `number`, of `blocks`.
    fn node(
        &self,
        out: &mut String,
        number: usize,
        blocks: &[BlockId],
        (at, size): (Coordinates, Size),
        lines: &[String],
        shape: Shape,
    ) {
        // White, then darker blues by depth.
        const SHADES: [&str; 6] = ["#ffffff", "#eaf2fb", "#d3e4f7", "#b9d4f2", "#9cc2ec", "#7fb0e6"];
        let loops = self.loops;
        let Some(&id) = blocks.first() else { return };
        let depth = blocks.iter().map(|&b| loops.block_depth(b)).max().unwrap_or(0) as usize;
        let never = self.never_ran(id);
        let fill = if never { "#f7f7f7" } else { SHADES[depth.min(SHADES.len() - 1)] };
        let header = blocks.iter().any(|&b| loops.is_header(b));
        let (stroke, width) = match (never, header) {
            (true, _) => ("#b8b8b8", 1.0),
            (_, true) => ("#1f5fbf", 2.6),
            _ => ("#555555", 1.0),
        };
        let ink = if never { "#999999" } else { "#111111" };
        let dashes = if never { r#" stroke-dasharray="4 3""# } else { "" };
        let title = escaped(&self.title(blocks));
        let (start, end) = match self.style.links {
            Some(links) => {
                let numbers: Vec<String> =
                    blocks.iter().map(|&b| self.program.block_number(b).to_string()).collect();
                let (to, all) = (numbers.first().map_or("", String::as_str), numbers.join(" "));
                let links = escaped(links);
                (format!(r##"<a id="g{number}" href="{links}#b{to}" data-blocks="{all}">"##), "</a>\n")
            }
            None => ("<g>".to_owned(), "</g>\n"),
        };
        let _ = write!(
            out,
            r#"{start}<title>{title}</title>{} fill="{fill}" stroke="{stroke}" stroke-width="{width}"{dashes}/>"#,
            shape.outline(at, size)
        );
        for (i, line) in lines.iter().enumerate() {
            let weight = if i == 0 { r#" font-weight="bold""# } else { "" };
            let _ = write!(
                out,
                r#"<text x="{:.1}" y="{:.1}" fill="{ink}"{weight} xml:space="preserve">{}</text>"#,
                at.x + 7.0,
                at.y + (i as f64 + 1.0) * LINE,
                escaped(line)
            );
        }
        out.push_str(end);
    }

    fn never_ran(&self, id: BlockId) -> bool {
        self.counts.is_some_and(|c| (c.block)(id).is_some_and(RunCount::is_never))
    }

    /// What a node is, where one asks.
    fn title(&self, blocks: &[BlockId]) -> String {
        const NAMED: usize = 12;
        let (program, loops) = (self.program, self.loops);
        if let &[id] = blocks {
            let block = program.block(id);
            let mut title = format!(
                "{id}: {}–{}, {} instructions, ends {:?}",
                block.start,
                block.end_va(),
                block.n_insns,
                block.end
            );
            if let Some(l) = loops.innermost(id) {
                let kind = if loops.is_irreducible(l) { "irreducible " } else { "" };
                let _ = write!(title, "; {kind}{l}, depth {}", loops.block_depth(id));
            }
            return title;
        }
        let named: Vec<String> =
            blocks.iter().take(NAMED).map(|&b| program.block_number(b).to_string()).collect();
        let more = if blocks.len() > NAMED { ", …" } else { "" };
        let ran = match blocks.first() {
            Some(&id) if self.never_ran(id) => "that never ran",
            _ => "that ran one after the other, equally often",
        };
        format!("{} blocks {ran}: {}{more}", blocks.len(), named.join(", "))
    }

    /// The lines of a box.
    fn text(&self, blocks: &[BlockId]) -> Vec<String> {
        let (program, loops) = (self.program, self.loops);
        let Some(&id) = blocks.first() else { return Vec::new() };
        let block = program.block(id);
        let mut first = block.start.to_string();
        if let Some(l) = loops.innermost(id).filter(|_| loops.is_header(id)) {
            let _ = write!(first, " {l}");
        }
        if let Some(n) = self.counts.and_then(|c| (c.block)(id)) {
            let _ = write!(first, " ×{n}");
        }
        if let Some(line) = self.style.line.and_then(|line| line(block.start)) {
            let _ = write!(first, " {line}");
        }
        let mut lines = vec![shortened(first)];
        if self.style.instructions && self.style.folding.is_none() {
            lines.extend(self.instructions(id));
            return lines;
        }
        let n_insns: usize = blocks.iter().map(|&b| program.block(b).n_insns as usize).sum();
        let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        lines.push(match blocks.len() {
            1 => many(n_insns, "insn"),
            n if self.never_ran(id) => format!("{n} blocks that never ran"),
            n => format!("{n} blocks, {}", many(n_insns, "insn")),
        });
        // What was never called says nothing of the run.
        if self.never_ran(id) && blocks.len() > 1 {
            return lines;
        }
        const SHOWN: usize = 3;
        let calls: Vec<&Call> = blocks.iter().flat_map(|&b| program.calls_in(b)).collect();
        for call in calls.iter().take(SHOWN) {
            let callee = self.callee(call);
            let verb = if call.kind == CallKind::Call { "call" } else { "→" };
            lines.push(shortened(format!("{verb} {callee}")));
        }
        if calls.len() > SHOWN {
            lines.push(format!("… {} more", calls.len() - SHOWN));
        }
        lines
    }

    /// The instructions of a block; where an address is called, what stands there says more.
    fn instructions(&self, id: BlockId) -> impl Iterator<Item = String> {
        let calls = self.program.calls_in(id);
        let text = move |insn: crate::Insn| {
            let text = insn.to_string();
            let call = calls.iter().find(|c| c.at == insn.at() && c.callee != Callee::Indirect);
            match (call, text.split_once(' ')) {
                (Some(call), Some((verb, _))) if insn.flow().target().is_some() => {
                    format!("{verb} {}", self.callee(call))
                }
                _ => text,
            }
        };
        self.program.insns(id).map(move |insn| shortened(text(insn)))
    }

    fn callee(&self, call: &Call) -> String {
        let program = self.program;
        match call.callee {
            Callee::Function(f) => self.style.name(program, f),
            Callee::Import(i) => program.imports.get(i as usize).map_or_else(String::new, |n| n.to_string()),
            Callee::Unknown(va) => va.to_string(),
            Callee::Indirect => "*".to_string(),
        }
    }
}

fn shortened(text: String) -> String {
    if text.chars().count() <= WIDEST {
        return text;
    }
    text.chars().take(WIDEST - 1).chain(['…']).collect()
}

/// Text for XML: what has a meaning there is escaped, what may not stand there is replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' => out.push(' '),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            // What turns the direction of all that follows.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
    }
    out
}

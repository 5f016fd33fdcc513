//! A function as text for Graphviz, with the same words and colours as the picture.

use super::counts::{Counts, RunCount, beside};
use super::svg::{Shape, shapes, thickness};
use crate::analyses::loops::Loops;
use crate::ids::{BlockId, FuncId};
use crate::model::{EdgeKind, Program};
use std::fmt::Write;

/// `func` in the DOT language.
pub fn dot(program: &Program, func: FuncId, counts: Option<&Counts<'_>>) -> String {
    let f = program.function(func);
    let loops = Loops::compute(program, func);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ =
        writeln!(out, "digraph {} {{\n  node [shape=box fontname=monospace fontsize=10];", quoted(&f.name()));
    let nth = |b: BlockId| b.0 - f.blocks.start;
    let edges = f.block_ids().flat_map(|b| program.successors(b));
    let ends: Vec<(u32, u32)> = edges.map(|e| (nth(e.from), nth(e.to))).collect();
    for (b, shape) in f.block_ids().zip(shapes(f.n_blocks(), &ends)) {
        let block = program.block(b);
        let mut label = format!("{b} {}\n{} insns", block.start, block.n_insns);
        if let Some(l) = loops.innermost(b).filter(|_| loops.is_header(b)) {
            let _ = write!(label, "\n{l}");
        }
        let count = counts.and_then(|c| (c.block)(b));
        if let Some(n) = count {
            let _ = write!(label, "\n{n} times");
        }
        let style = if count.is_some_and(RunCount::is_never) { " style=dashed color=gray" } else { "" };
        let width = if loops.is_header(b) { " penwidth=2 color=blue" } else { "" };
        let shape = match shape {
            Shape::Plain => "",
            Shape::Terminal => " shape=ellipse",
            Shape::Fork => " shape=trapezium",
            Shape::Join => " shape=invtrapezium",
            Shape::Both => " shape=hexagon",
        };
        let _ = writeln!(out, "  {b} [label={}{shape}{width}{style}];", quoted(&label));
    }
    for e in f.block_ids().flat_map(|b| program.edge_ids(b)) {
        let edge = program.edge(e);
        let colour = match edge.kind {
            EdgeKind::FallThrough => "red",
            EdgeKind::Taken => "darkgreen",
            EdgeKind::Jump => "black",
            EdgeKind::Table => "purple",
            EdgeKind::LandingPad => "orange",
        };
        let count = counts.and_then(|c| (c.edge)(e));
        // Of several between the same blocks, the first says it for all.
        let said = count.filter(|_| beside(program, e).all(|other| e < other));
        let label = said.map_or_else(String::new, |n| format!(" label={}", quoted(&n.to_string())));
        let style = match edge.kind {
            _ if count.is_some_and(RunCount::is_never) => " style=dotted",
            EdgeKind::Taken => " style=dashed",
            _ => "",
        };
        let back = if loops.back_edge_of(program, e).is_some() { 2.0 } else { 1.0 };
        let width = match count {
            None if back > 1.0 => " penwidth=2".to_owned(),
            None => String::new(),
            Some(n) => format!(" penwidth={:.1}", back + thickness(n.n)),
        };
        let _ = writeln!(out, "  {} -> {} [color={colour}{width}{style}{label}];", edge.from, edge.to);
    }
    out.push_str("}\n");
    out
}

/// A quoted string of the DOT language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

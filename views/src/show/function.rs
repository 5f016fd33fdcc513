//! `show BINARY function NAME`: the blocks of one function with instructions and edges.

use crate::{Between, Table, View, address, look, many, ratio, share};
use serde::Serialize;
use std::io::{self, Write};

/// One function.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// Its number in this analysis.
    pub id: String,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// What the source calls it, if its symbol is decorated.
    pub source_name: Option<String>,
    /// Its address.
    pub at: u64,
    /// Where its code is: first address, and the one behind the last.
    pub ranges: Vec<(u64, u64)>,
    /// How it was found.
    pub origin: &'static str,
    /// How sure that is: `proved`, `likely`, `guessed`.
    pub sure: &'static str,
    /// Whether all of its control flow is understood.
    pub complete: bool,
    /// Whether it comes back.
    pub returns: bool,
    /// Other functions with one of its symbols: another version of it, or of another file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namesakes: Vec<u64>,
    /// If it is the resolver of an indirect function: what it may return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolves: Option<ResolverView>,
    /// Where it is in the process that it was looked up in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveView>,
    /// Its blocks, by their numbers.
    pub blocks: Vec<BlockView>,
}

/// A function in a process.
#[derive(Debug, Serialize)]
pub struct LiveView {
    /// The process.
    pub pid: i32,
    /// Where its entry is in that.
    pub at: u64,
    /// From what its code is known: `file`, `memory`, `perf-map`.
    pub from: &'static str,
}

/// What a resolver may return.
#[derive(Debug, Serialize)]
pub struct ResolverView {
    /// Functions, by address.
    pub to: Vec<u64>,
    /// Whether there may be others.
    pub or_others: bool,
}

impl FunctionView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.show/1";
}

/// Addresses in a row, some of many.
fn addresses(all: &[u64]) -> String {
    const TOP: usize = 12;
    let shown: Vec<String> = all.iter().take(TOP).map(|at| address(*at)).collect();
    match all.len().checked_sub(TOP) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A block.
#[derive(Debug, Serialize)]
pub struct BlockView {
    /// Its number in the function, as `query` has it, too: 0 is the entry, the others follow by address.
    pub block: u32,
    /// Its address.
    pub at: u64,
    /// Its length.
    pub len_bytes: u32,
    /// How it ends.
    pub end: &'static str,
    /// Whether the unwinder enters here.
    pub landing_pad: bool,
    /// Whether callers enter here.
    pub entry: bool,
    /// How many loops hold it.
    pub loop_depth: u32,
    /// Whether a loop is entered here.
    pub loop_header: bool,
    /// Its share of the function's instructions that ran, `0.0..=1.0`, with a profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Executions, with a profile that knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The least and the most, where it may be off.
    #[serde(flatten)]
    pub between: Between,
    /// Registers and flags alive before its first instruction, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Vec<String>>,
    /// Its instructions.
    pub instructions: Vec<InsnView>,
    /// Where control goes from here.
    pub edges: Vec<EdgeView>,
}

/// An instruction.
#[derive(Debug, Serialize)]
pub struct InsnView {
    /// Its address.
    pub at: u64,
    /// Its disassembly.
    pub text: String,
    /// `file:line`, where the file's debug information has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The text of that line, where the source is at hand and the instruction before is of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it calls, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
}

/// An edge, or all of them that lead to the same block.
#[derive(Debug, Serialize)]
pub struct EdgeView {
    /// Its number in this analysis.
    pub id: String,
    /// Others between the same blocks, with counts: a profile has one of all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Where the block starts that it enters.
    pub to: u64,
    /// The number of that block.
    pub to_block: u32,
    /// Of which kind it is.
    pub kind: &'static str,
    /// How sure that is: `proved`, `likely`, `guessed`.
    pub sure: &'static str,
    /// How often it was taken, with a profile that knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The least and the most, where it may be off.
    #[serde(flatten)]
    pub between: Between,
}

/// Shares of a function that are worth a number, and those that are hot.
const SHOWN_SHARE: f64 = 0.01;
const HOT_SHARE: f64 = 0.1;

/// `FILE:LINE` without the folders.
fn short(line: &str) -> &str {
    line.rsplit('/').next().unwrap_or(line)
}

impl EdgeView {
    /// Of which kind it is, how sure that is, and how often it was taken of the times that `block` ran, which
    /// it leaves.
    pub fn said(&self, block: &BlockView) -> String {
        let sure = if self.sure == "proved" { String::new() } else { format!(", {}", self.sure) };
        let of = block.count.filter(|of| *of > 0 && block.edges.len() > 1);
        let count = match (self.count, of) {
            (Some(0), Some(_)) if self.between.at_most.is_none() => ", never".to_owned(),
            (Some(n), Some(of)) => format!(", {} ×, {}", self.between.count(n), share(ratio(n, of))),
            (Some(n), None) => format!(", {} ×", self.between.count(n)),
            (None, _) => String::new(),
        };
        format!("{}{sure}{count}", self.kind)
    }
}

impl BlockView {
    /// What is to be known of it, behind its address; `hottest` is the largest share of a block.
    pub fn marks(&self, hottest: Option<f64>) -> String {
        let mut marks = String::new();
        if self.entry {
            marks.push_str("  entry");
        }
        if self.landing_pad {
            marks.push_str("  landing pad");
        }
        if self.loop_header {
            marks.push_str("  loop header");
            let line = self.instructions.first().and_then(|i| i.line.as_deref());
            marks.extend(line.iter().flat_map(|line| [" at ", short(line)]));
        }
        if self.loop_depth > 0 {
            marks.push_str(&format!("  depth {}", self.loop_depth));
        }
        if let Some(count) = self.count {
            marks.push_str(&format!("  {} ×", self.between.count(count)));
        }
        if let Some(part) = self.share.filter(|part| *part >= SHOWN_SHARE) {
            marks.push_str(&format!("  {}", share(part)));
            marks.push_str(if self.share == hottest { "  hottest" } else { "" });
        }
        marks
    }
}

impl View for FunctionView {
    /// A row an instruction.
    fn table(&self) -> Table {
        if self.blocks.iter().all(|b| b.count.is_none()) {
            let mut t = Table::new(&["block>", "at>", "instruction", "calls"]);
            for (b, i) in self.blocks.iter().flat_map(|b| b.instructions.iter().map(move |i| (b, i))) {
                let calls = i.calls.clone().unwrap_or_default();
                t.row([b.block.to_string(), address(i.at), i.text.clone(), calls]);
            }
            return t;
        }
        let mut t = Table::new(&["block>", "at>", "count>", "instruction", "calls", "next"]);
        for b in &self.blocks {
            for (k, i) in (1..).zip(&b.instructions) {
                let calls = i.calls.clone().unwrap_or_default();
                let next = |e: &EdgeView| {
                    format!(
                        "{} {}",
                        address(e.to),
                        e.count.map_or_else(|| "?".to_owned(), |n| e.between.count(n))
                    )
                };
                let next = b.edges.iter().filter(|_| k == b.instructions.len()).map(next).collect::<Vec<_>>();
                let count = b.count.map_or_else(String::new, |n| b.between.count(n));
                t.row([b.block.to_string(), address(i.at), count, i.text.clone(), calls, next.join("; ")]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(
            w,
            "{} {} at {}: {}",
            self.id,
            self.name,
            address(self.at),
            many(self.blocks.len(), "block")
        )?;
        if let Some(name) = &self.source_name {
            writeln!(w, "  in the source: {name}")?;
        }
        for (start, end) in &self.ranges {
            writeln!(w, "  code {}..{}", address(*start), address(*end))?;
        }
        if let Some(live) = &self.live {
            let from = live.from.replace('-', " ");
            writeln!(w, "  in process {} at live:{}, from {from}", live.pid, address(live.at))?;
        }
        writeln!(w, "  found by {}, {}", self.origin, self.sure)?;
        if !self.complete {
            writeln!(w, "  not all of its control flow is understood")?;
        }
        if !self.returns {
            writeln!(w, "  does not return")?;
        }
        if !self.namesakes.is_empty() {
            writeln!(w, "  called alike: {}", addresses(&self.namesakes))?;
        }
        if let Some(resolver) = &self.resolves {
            let others = if resolver.or_others { ", or another" } else { "" };
            writeln!(w, "  a resolver: what is called is at {}{others}", addresses(&resolver.to))?;
        }
        let look = look::look();
        let hottest = self.blocks.iter().filter_map(|b| b.share).max_by(f64::total_cmp);
        for b in &self.blocks {
            let marks = b.marks(hottest);
            let head = format!("{} {}{marks}", b.block, address(b.at));
            match look.is_coloured && b.share.is_some_and(|part| part >= HOT_SHARE) {
                true => writeln!(w, "\n\x1b[1m{head}\x1b[0m")?,
                false => writeln!(w, "\n{head}")?,
            }
            if let Some(live) = &b.live {
                writeln!(w, "  alive: {}", live.join(" "))?;
            }
            let mut line = None;
            for i in &b.instructions {
                if i.line.is_some() && std::mem::replace(&mut line, i.line.as_ref()) != i.line.as_ref() {
                    let line = short(i.line.as_deref().unwrap_or_default());
                    match &i.source {
                        Some(text) => writeln!(w, "  ; {line}: {text}")?,
                        None => writeln!(w, "  ; {line}")?,
                    }
                }
                match &i.calls {
                    Some(calls) => writeln!(w, "  {}  {:<40}  # {calls}", address(i.at), i.text)?,
                    None => writeln!(w, "  {}  {}", address(i.at), i.text)?,
                }
            }
            if b.edges.is_empty() {
                writeln!(w, "  → {}", b.end)?;
            }
            for e in &b.edges {
                writeln!(w, "  → {} {} ({})", e.to_block, address(e.to), e.said(b))?;
            }
        }
        Ok(())
    }
}

//! `engraft match --explain FUNCTION`: a function of both builds side by side, block by block.

use crate::{Table, View, address, many};
use serde::Serialize;
use std::io::{self, Write};

/// A function of both builds.
#[derive(Debug, Serialize)]
pub struct ExplainView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// In the old build, if it has one.
    pub old: Option<SideView>,
    /// In the new build, if it has one.
    pub new: Option<SideView>,
    /// The pass that found the pair.
    pub method: Option<String>,
    /// How sure that pass is, `0.0..=1.0`.
    pub confidence: Option<f32>,
    /// New blocks by address, each with the old ones it has; old blocks that went nowhere stand after the one
    /// before them.
    pub rows: Vec<RowView>,
}

impl ExplainView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.explain/1";
}

/// The function in one of the builds.
#[derive(Debug, Serialize)]
pub struct SideView {
    /// The file, as it was named.
    pub binary: String,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// What the source calls it, if its symbol is decorated.
    pub source_name: Option<String>,
    /// Its address.
    pub at: u64,
    /// How many blocks it has.
    pub n_blocks: usize,
}

/// A pair of blocks, or one that has no counterpart here.
#[derive(Debug, Serialize)]
pub struct RowView {
    /// The old one.
    pub old: Option<BlockView>,
    /// The new one.
    pub new: Option<BlockView>,
    /// The pass that found it.
    pub method: Option<String>,
    /// How sure that pass is, `0.0..=1.0`.
    pub confidence: Option<f32>,
    /// How much of the old one's flow the new one has, `0.0..=1.0`.
    pub share: Option<f32>,
    /// Whether the new block has only a part of the old one's flow.
    pub partial: bool,
}

/// A block of one of the builds.
#[derive(Debug, Serialize, Clone)]
pub struct BlockView {
    /// Its number in this analysis.
    pub id: String,
    /// Its address.
    pub at: u64,
    /// Set if the block belongs to another function than the one explained.
    pub of: Option<String>,
    /// Its disassembly, a line each.
    pub instructions: Vec<String>,
    /// Where the blocks start that may come next.
    pub successors: Vec<u64>,
}

impl RowView {
    /// How the pair was found, and how sure it is; or which build alone has it.
    pub fn how(&self) -> String {
        match (&self.old, &self.new, &self.method) {
            (Some(_), Some(_), Some(method)) => {
                let confidence = self.confidence.unwrap_or_default();
                let mut how = format!("{method}, confidence {confidence:.2}");
                if self.share.is_some_and(|s| s < 1.0) {
                    how.push_str(&format!(", share {:.2}", self.share.unwrap_or_default()));
                }
                if self.partial {
                    how.push_str(", partial");
                }
                how
            }
            (None, _, _) => "only in new".into(),
            _ => "only in old".into(),
        }
    }
}

/// Column that an instruction takes on each side.
const WIDTH: usize = 46;

impl View for ExplainView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["old>", "new>", "method", "confidence>", "share>", "partial"]);
        let at = |b: &Option<BlockView>| b.as_ref().map(|b| address(b.at)).unwrap_or_default();
        let number = |n: Option<f32>| n.map(|n| format!("{n:.3}")).unwrap_or_default();
        for r in &self.rows {
            t.row([
                at(&r.old),
                at(&r.new),
                r.method.clone().unwrap_or_default(),
                number(r.confidence),
                number(r.share),
                if r.partial { "yes" } else { "no" }.into(),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let name = |side: &Option<SideView>| match side {
            Some(s) => {
                let name = s.source_name.as_ref().unwrap_or(&s.name);
                format!("{name} at {} of {}, {}", address(s.at), s.binary, many(s.n_blocks, "block"))
            }
            None => "has no counterpart".into(),
        };
        writeln!(w, "old  {}", name(&self.old))?;
        writeln!(w, "new  {}", name(&self.new))?;
        if let (Some(method), Some(confidence)) = (&self.method, self.confidence) {
            writeln!(w, "matched by {method}, confidence {confidence:.2}")?;
        }
        for r in &self.rows {
            writeln!(w, "\n{}", r.how())?;
            let lines = |b: &Option<BlockView>| -> Vec<String> {
                let Some(b) = b else { return Vec::new() };
                let of = b.of.as_ref().map(|f| format!(" of {f}")).unwrap_or_default();
                let to: Vec<_> = b.successors.iter().map(|&va| address(va)).collect();
                let to = if to.is_empty() { "no successors".into() } else { format!("→ {}", to.join(" ")) };
                let head = format!("{} {}{of}", b.id, address(b.at));
                std::iter::once(head)
                    .chain(b.instructions.iter().map(|i| format!("  {i}")))
                    .chain([to])
                    .collect()
            };
            let (left, right) = (lines(&r.old), lines(&r.new));
            for i in 0..left.len().max(right.len()) {
                let text = |side: &[String]| side.get(i).cloned().unwrap_or_default();
                let cut: String = text(&left).chars().take(WIDTH).collect();
                writeln!(w, "{}", format!("  {cut:<WIDTH$}  │ {}", text(&right)).trim_end())?;
            }
        }
        Ok(())
    }
}

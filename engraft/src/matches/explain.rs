//! `engraft match --explain FUNCTION`: a function of both builds side by side, block by block, with how each
//! pair was found.

use crate::input;
use crate::output::Hinted;
use matching::Matching;
use program::{BlockId, FuncId, Program, Va};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use views::{Table, View, many};

/// A function of both builds.
#[derive(Serialize)]
pub struct ExplainView {
    schema: &'static str,
    old: Option<SideView>,
    new: Option<SideView>,
    method: Option<String>,
    confidence: Option<f32>,
    /// New blocks by address, each with the old ones it has; old blocks that went nowhere stand after the one
    /// before them.
    rows: Vec<RowView>,
}

#[derive(Serialize)]
struct SideView {
    binary: String,
    name: String,
    /// What the source calls it, if its symbol is decorated.
    source_name: Option<String>,
    at: u64,
    n_blocks: usize,
}

#[derive(Serialize)]
struct RowView {
    old: Option<BlockView>,
    new: Option<BlockView>,
    method: Option<String>,
    confidence: Option<f32>,
    share: Option<f32>,
    partial: bool,
}

#[derive(Serialize, Clone)]
struct BlockView {
    id: String,
    at: u64,
    /// Set if the block belongs to another function than the one explained.
    of: Option<String>,
    instructions: Vec<String>,
    successors: Vec<u64>,
}

/// The function that `what` names in the new build, else in the old one, with its counterpart.
pub fn view(old: &Program, new: &Program, matching: &Matching, what: &str) -> anyhow::Result<ExplainView> {
    let pair = match (input::function(new, what), input::function(old, what)) {
        (Ok(n), _) => (matching.functions.iter().find(|m| m.new == n).map(|m| m.old), Some(n)),
        (Err(_), Ok(o)) => (Some(o), matching.functions.iter().find(|m| m.old == o).map(|m| m.new)),
        (Err(err), Err(older)) => {
            let hints = [&err, &older].map(|err| crate::output::hint(err).unwrap_or_default());
            let hint = match &hints {
                [new, old] if new == old => new.clone(),
                [of_new, of_old] => {
                    format!("{}: {of_new}\n{}: {of_old}", new.image.name, old.image.name)
                }
            };
            return Err(Hinted::new(format!("neither build has a function {what}"), hint).into());
        }
    };
    let found = matching.functions.iter().find(|m| Some(m.old) == pair.0 && Some(m.new) == pair.1);
    Ok(ExplainView {
        schema: "engraft.explain/1",
        old: pair.0.map(|f| side(old, f)),
        new: pair.1.map(|f| side(new, f)),
        method: found.map(|m| m.method.to_string()),
        confidence: found.map(|m| m.confidence),
        rows: rows(old, new, matching, pair),
    })
}

fn side(program: &Program, id: FuncId) -> SideView {
    let f = program.function(id);
    SideView {
        binary: program.image.name.clone(),
        name: f.name(),
        source_name: input::source_names(program, id).next(),
        at: f.entry.0,
        n_blocks: f.n_blocks(),
    }
}

fn block(program: &Program, id: BlockId, of: Option<FuncId>) -> BlockView {
    let func = program.block(id).func;
    BlockView {
        id: id.to_string(),
        at: program.block(id).start.0,
        of: (Some(func) != of).then(|| program.function(func).name()),
        instructions: program.insns(id).map(|i| i.to_string()).collect(),
        successors: program.successors(id).iter().map(|e| program.block(e.to).start.0).collect(),
    }
}

fn rows(
    old: &Program,
    new: &Program,
    matching: &Matching,
    (fo, fn_): (Option<FuncId>, Option<FuncId>),
) -> Vec<RowView> {
    let mut olds_of: BTreeMap<BlockId, Vec<_>> = BTreeMap::new();
    let mut used: BTreeSet<BlockId> = BTreeSet::new();
    for m in &matching.blocks {
        if Some(new.block(m.new).func) == fn_ {
            olds_of.entry(m.new).or_default().push(m);
            used.insert(m.old);
        }
    }
    let blocks_of = |program: &Program, f: Option<FuncId>| -> Vec<BlockId> {
        f.map(|f| program.function(f).block_ids().collect()).unwrap_or_default()
    };
    // Old blocks that nothing here has, to be shown where they stood: after the old block before them.
    let mut left: BTreeMap<Option<BlockId>, Vec<BlockId>> = BTreeMap::new();
    let mut before = None;
    for b in blocks_of(old, fo) {
        if used.contains(&b) {
            before = Some(b);
        } else {
            left.entry(before).or_default().push(b);
        }
    }
    let mut rows = Vec::new();
    let gone = |rows: &mut Vec<RowView>, blocks: Option<Vec<BlockId>>| {
        for b in blocks.into_iter().flatten() {
            let old = Some(block(old, b, fo));
            rows.push(RowView {
                old,
                new: None,
                method: None,
                confidence: None,
                share: None,
                partial: false,
            });
        }
    };
    gone(&mut rows, left.remove(&None));
    for n in blocks_of(new, fn_) {
        let this = block(new, n, fn_);
        let Some(olds) = olds_of.get(&n) else {
            let new = Some(this);
            rows.push(RowView {
                old: None,
                new,
                method: None,
                confidence: None,
                share: None,
                partial: false,
            });
            continue;
        };
        for m in olds {
            rows.push(RowView {
                old: Some(block(old, m.old, fo)),
                new: Some(this.clone()),
                method: Some(m.method.to_string()),
                confidence: Some(m.confidence),
                share: Some(m.share),
                partial: m.partial,
            });
        }
        for m in olds {
            gone(&mut rows, left.remove(&Some(m.old)));
        }
    }
    let rest: Vec<_> = std::mem::take(&mut left).into_values().flatten().collect();
    gone(&mut rows, Some(rest));
    rows
}

impl RowView {
    fn how(&self) -> String {
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
        let at = |b: &Option<BlockView>| b.as_ref().map(|b| Va(b.at).to_string()).unwrap_or_default();
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
                format!("{name} at {} of {}, {}", Va(s.at), s.binary, many(s.n_blocks, "block"))
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
                let to: Vec<_> = b.successors.iter().map(|&va| Va(va).to_string()).collect();
                let to = if to.is_empty() { "no successors".into() } else { format!("→ {}", to.join(" ")) };
                let head = format!("{} {}{of}", b.id, Va(b.at));
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

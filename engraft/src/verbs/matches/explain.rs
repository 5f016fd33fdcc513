//! `engraft match --explain FUNCTION`: a function of both builds side by side, block by block, with how each
//! pair was found.

use crate::input;
use crate::output::Hinted;
use matching::Matching;
use program::{BlockId, FuncId, Program};
use std::collections::{BTreeMap, BTreeSet};
use views::matches::explain::{BlockView, ExplainView, RowView, SideView};

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
        schema: ExplainView::SCHEMA,
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

//! How many instructions the blocks of a trace have: counted in the binaries that were recorded.

use super::binaries::{program, recorded_image};
use super::traces::unreadable;
use crate::output::Hinted;
use program::{BlockEnd, EdgeKind, Program, Va};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trace::names::Function;
use trace::{BlockId, FuncId, Names, Trace};

/// How many instructions blocks have.
pub struct Instructions {
    counts: Vec<Vec<Option<Block>>>,
    /// Where functions are entered.
    entries: BTreeMap<FuncId, Va>,
    /// A block that ran, and is in none of the binaries.
    unknown: std::cell::Cell<Option<(FuncId, BlockId)>>,
}

#[derive(Clone, Copy)]
struct Block {
    /// Its own, with the padding that always runs behind it.
    n_insns: u64,
    /// The block that control comes to past a branch that is not taken, through so many instructions of
    /// padding.
    behind: Option<(BlockId, u64)>,
}

impl Instructions {
    /// Those of `trace`, which is the file `from`; of a plain one, in `binary`.
    ///
    /// # Errors
    /// If a binary is gone, or another one by now, or none is known.
    pub fn of(
        binary: Option<&Path>,
        from: &Path,
        trace: &Trace,
        names: &Names,
    ) -> anyhow::Result<Instructions> {
        let flow = trace.flow().map_err(|err| unreadable(from, err))?;
        // By the number of the first function: the binary.
        let mut binaries: BTreeMap<FuncId, PathBuf> = BTreeMap::new();
        match (binary, flow.modules.is_empty()) {
            (Some(binary), true) => drop(binaries.insert(FuncId(0), binary.to_owned())),
            (None, true) => {
                let what = format!("{} does not say which program it is of", from.display());
                return Err(Hinted::new(what, "say --binary BIN, or count blocks: `--weight blocks`").into());
            }
            (_, false) => {
                binaries.extend(flow.modules.iter().map(|m| (m.first, session::recorded_path(&m.path))));
            }
        }
        let mut counts: Vec<Vec<Option<Block>>> = Vec::new();
        let mut entries = BTreeMap::new();
        let firsts: Vec<FuncId> = binaries.keys().copied().collect();
        for (n, (&first, path)) in binaries.iter().enumerate() {
            let end = firsts.get(n + 1).copied().unwrap_or(FuncId(u32::MAX));
            let program = match flow.modules.iter().find(|m| m.first == first) {
                Some(module) => Program::analyze(recorded_image(&module.path, module.key)?),
                None => program(path)?,
            };
            for (&func, function) in names.functions.range(first..end) {
                counts.resize(counts.len().max(func.index() + 1), Vec::new());
                let first = function.blocks.values().find_map(|block| program.block_from(Va(block.at)));
                let entry = first.map(|b| program.function(program.block(b).func).entry);
                entries.extend(entry.map(|entry| (func, entry)));
                let place = counts.get_mut(func.index());
                place.into_iter().for_each(|place| *place = blocks(&program, function));
            }
        }
        Ok(Instructions { counts, entries, unknown: std::cell::Cell::new(None) })
    }

    /// Where a function is entered, if it is in a binary.
    pub fn entry(&self, func: FuncId) -> Option<Va> {
        self.entries.get(&func).copied()
    }

    /// How many run with `block`, if `before` ran before it in the same call: those of the padding between
    /// them are counted with it.
    pub fn of_block(&self, func: FuncId, before: Option<BlockId>, block: BlockId) -> u64 {
        let of = |block: BlockId| {
            self.counts.get(func.index()).and_then(|of| of.get(block.index())).copied().flatten()
        };
        let Some(Block { n_insns, .. }) = of(block) else {
            self.unknown.set(Some((func, block)));
            return 0;
        };
        match before.and_then(of).and_then(|before| before.behind) {
            Some((to, padding)) if to == block => n_insns + padding,
            _ => n_insns,
        }
    }

    /// Refuses a trace of other binaries, functions by what they are `called`.
    ///
    /// # Errors
    /// If a block that was asked for is in no binary.
    pub fn finish(&self, called: &dyn Fn(FuncId) -> String) -> anyhow::Result<()> {
        let Some((func, block)) = self.unknown.get() else { return Ok(()) };
        let what = format!("block {} of {} is in no binary that was given", block.0, called(func));
        Err(Hinted::new(
            what,
            "say --binary with the build that was traced, or count blocks: `--weight blocks`",
        )
        .into())
    }
}

/// The blocks of a function, by number.
fn blocks(program: &Program, function: &Function) -> Vec<Option<Block>> {
    let last = function.blocks.keys().next_back().map_or(0, |n| n.index() + 1);
    let mut of: Vec<Option<Block>> = vec![None; last];
    let numbered: BTreeMap<u64, BlockId> = function.blocks.iter().map(|(&n, what)| (what.at, n)).collect();
    for (&block, what) in &function.blocks {
        let Some(id) = program.block_from(Va(what.at)) else { continue };
        let behind = || {
            let padding = program.padding_behind(id);
            let ways = program.successors(id);
            let falls = ways.iter().find(|e| e.kind == EdgeKind::FallThrough)?;
            // Where both ways lead to one block, nothing tells which was taken.
            let is_only = ways.iter().filter(|e| e.to == falls.to).count() == 1;
            let is_some = program.block(id).end == BlockEnd::Branch && !padding.is_empty() && is_only;
            let to = is_some.then(|| numbered.get(&program.block(falls.to).start.0))?;
            Some((*to?, program.n_insns_in(&padding)))
        };
        let found = Block { n_insns: program.n_insns_run(id), behind: behind() };
        of.get_mut(block.index()).into_iter().for_each(|place| *place = Some(found));
    }
    of
}

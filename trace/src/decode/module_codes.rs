//! The modules of a recording, as the decoder asks for them.
#![warn(clippy::indexing_slicing)]

use crate::decode::region::{BlockPosition, Region};
use crate::ids::{BlockId, FuncId};
use crate::recording::event::{HANDLER, LIMIT};
use crate::recording::module_code::{Block, End, ModuleCode, PointPlace, Site};
use std::collections::HashMap;
use std::sync::OnceLock;

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ModuleFunction {
    pub(super) module: usize,
    pub(super) func: u32,
}

/// The modules of a recording.
#[derive(Debug, Default)]
pub struct ModuleCodes {
    pub(super) all: Vec<ModuleCode>,
    /// The number of the first function of each.
    first: Vec<FuncId>,
    /// The base of each, in order, with its module.
    bases: Vec<(u32, usize)>,
    /// Per module and function: the number of the first block.
    blocks: Vec<Vec<usize>>,
    /// Per module and block: the number of the first position: its start, then behind each of its calls.
    positions: Vec<Vec<u32>>,
    /// Per module: the number of its first position among those of all.
    first_positions: Vec<u32>,
    /// Per module and position: where control may go from there; made when it is asked for.
    regions: Vec<Vec<OnceLock<Box<Region>>>>,
    /// Made when it is asked for.
    callers: OnceLock<Callers>,
}

impl ModuleCodes {
    /// Of `all`, whose functions are numbered in this order.
    pub fn new(all: Vec<ModuleCode>) -> ModuleCodes {
        let mut first = Vec::with_capacity(all.len());
        let mut n = 0u32;
        for code in &all {
            first.push(FuncId(n));
            n = n.saturating_add(u32::try_from(code.functions.len()).unwrap_or(u32::MAX));
        }
        let mut bases: Vec<(u32, usize)> = all.iter().map(|code| code.base).zip(0..).collect();
        bases.sort_unstable();
        let (mut blocks, mut positions, mut regions) = (Vec::new(), Vec::new(), Vec::new());
        for code in &all {
            let (mut n_blocks, mut n_positions) = (0, 0u32);
            let (mut of_functions, mut of_blocks) = (Vec::new(), Vec::new());
            for function in &code.functions {
                of_functions.push(n_blocks);
                n_blocks += function.blocks.len();
                for block in &function.blocks {
                    of_blocks.push(n_positions);
                    let n_calls = u32::try_from(block.calls.len()).unwrap_or(u32::MAX);
                    n_positions = n_positions.saturating_add(n_calls).saturating_add(1);
                }
            }
            blocks.push(of_functions);
            positions.push(of_blocks);
            regions.push((0..n_positions).map(|_| OnceLock::new()).collect());
        }
        let mut n = 0u32;
        let of_module = |regions: &Vec<OnceLock<Box<Region>>>| {
            let first = n;
            n = n.saturating_add(u32::try_from(regions.len()).unwrap_or(u32::MAX));
            first
        };
        let first_positions = regions.iter().map(of_module).collect();
        ModuleCodes {
            all,
            first,
            bases,
            blocks,
            positions,
            first_positions,
            regions,
            callers: OnceLock::new(),
        }
    }

    /// All modules, each with the number of its first function.
    pub fn modules(&self) -> impl Iterator<Item = (FuncId, &ModuleCode)> {
        self.first.iter().copied().zip(&self.all)
    }

    /// The number that a function of a module has in the trace.
    #[inline]
    pub(super) fn func_id(&self, of: ModuleFunction) -> FuncId {
        FuncId(self.first.get(of.module).map_or(0, |first| first.0).saturating_add(of.func))
    }

    pub(super) fn block(&self, of: ModuleFunction, block: BlockId) -> Option<&Block> {
        self.all.get(of.module)?.functions.get(of.func as usize)?.blocks.get(block.index())
    }

    /// The number of a position among those of its module.
    fn position(&self, of: ModuleFunction, at: BlockPosition) -> Option<usize> {
        let block = self.blocks.get(of.module)?.get(of.func as usize)? + at.block.index();
        Some(self.positions.get(of.module)?.get(block)?.checked_add(at.call)? as usize)
    }

    /// The number of a position among those of all modules.
    pub(super) fn number(&self, of: ModuleFunction, at: BlockPosition) -> Option<u32> {
        u32::try_from(self.position(of, at)?).ok()?.checked_add(*self.first_positions.get(of.module)?)
    }

    /// Where control may go without an event from a position of a function.
    pub(super) fn region(&self, of: ModuleFunction, from: BlockPosition) -> Option<&Region> {
        let room = self.regions.get(of.module)?.get(self.position(of, from)?)?;
        let blocks = &self.all.get(of.module)?.functions.get(of.func as usize)?.blocks;
        Some(room.get_or_init(|| Box::new(Region::of(blocks, from))))
    }

    /// What an event with `word` tells, if it is of this module.
    pub(super) fn point(&self, module: usize, word: u32) -> Option<PointPlace> {
        let code = self.all.get(module)?;
        code.points.get((word.checked_sub(code.base)? as usize).checked_sub(1)?).copied()
    }

    /// The block of a function that control comes to by point `n` of its module.
    pub(super) fn leads_to(&self, of: ModuleFunction, n: u32) -> Option<BlockId> {
        match self.all.get(of.module)?.points.get((n as usize).checked_sub(1)?)? {
            PointPlace::Start(_, block) | PointPlace::Way(_, _, block) => Some(*block),
            PointPlace::Behind(..) | PointPlace::Leaves(..) => None,
        }
    }

    /// Whether an event with `word` tells that control came to point `n` of a module.
    pub(super) fn is_point(&self, module: usize, n: u32, word: u32) -> bool {
        n != 0 && self.all.get(module).is_some_and(|code| code.base.checked_add(n) == Some(word))
    }

    /// Whether a call in a module comes to entry `n` of module `of`, as far as is known: another module may
    /// define what it calls by name.
    pub(super) fn comes_to(&self, module: usize, site: &Site, of: usize, n: u32) -> bool {
        if of == module && site.entry.is_some() {
            return site.entry == Some(n);
        }
        let import = || self.all.get(module)?.imports.get((site.import as usize).checked_sub(1)?);
        let name = || Some(&self.all.get(of)?.functions.get(self.entry(of, n)?.0 as usize)?.name);
        import().is_some_and(|import| name() == Some(import))
    }

    /// Whether control may be in a function while a call goes on that nothing tells of.
    pub(super) fn may_be_in(&self, module: usize, site: &Site, of: ModuleFunction, most: usize) -> bool {
        let Some((func, _)) = site.entry.and_then(|entry| self.entry(module, entry)) else { return false };
        let to = ModuleFunction { module, func };
        let blocks = || self.all.get(module)?.functions.get(func as usize).map(|f| f.blocks.as_slice());
        let calls = || blocks().into_iter().flatten().flat_map(|block| &block.calls);
        of.module == module
            && most > 0
            && (of == to || calls().take(most).any(|site| self.may_be_in(module, site, of, most / 4)))
    }

    /// Where a signal came: at a place of the moved code of a module.
    pub(super) fn placed(&self, key: u32, at: u32) -> Option<(ModuleFunction, BlockId)> {
        let module = self.all.iter().position(|code| code.key == key)?;
        let places = &self.all.get(module)?.places;
        let n = places.partition_point(|place| place.0 <= at).checked_sub(1)?;
        let (func, block) = places.get(n)?.1?;
        Some((ModuleFunction { module, func }, block))
    }

    /// The module of a number, and the number there.
    pub(super) fn module(&self, word: u32) -> Option<(usize, u32)> {
        let n = self.bases.partition_point(|(base, _)| *base <= word).checked_sub(1)?;
        let (base, module) = *self.bases.get(n)?;
        Some((module, word - base))
    }

    /// The module that an event with `word` is of, if any.
    pub(crate) fn module_of(&self, word: u32) -> Option<usize> {
        let (module, n) = self.module(word & (LIMIT - 1))?;
        let code = self.all.get(module).filter(|_| word != 0 && word != HANDLER)?;
        ((n as usize) < code.numbers().len()).then_some(module)
    }

    pub(super) fn entry(&self, module: usize, n: u32) -> Option<(u32, BlockId)> {
        self.all.get(module)?.entries.get(n as usize).copied()
    }
}

type Call = (ModuleFunction, BlockId, u32);

/// The calls that come to functions, at once or by jumps in place of returns, and that nothing tells the end
/// of. Indirect calls are not known.
#[derive(Debug, Default)]
struct Callers {
    /// By module and function: the function, the block, and which call of it.
    of: HashMap<(usize, u32), Vec<Call>>,
    /// Whether more functions jump to each other than are followed.
    is_partial: bool,
}

/// So many functions that jump to each other are followed.
const MOST_JUMPS: usize = 16;

impl ModuleCodes {
    pub(super) fn callers(&self, of: ModuleFunction) -> &[Call] {
        let find = || {
            let mut found = Callers::default();
            for (module, code) in self.all.iter().enumerate() {
                for (func, function) in (0u32..).zip(&code.functions) {
                    for (n, block) in (0..).map(BlockId).zip(&function.blocks) {
                        for (call, site) in (0u32..).zip(&block.calls).filter(|(_, site)| site.point == 0) {
                            let Some((to, _)) = site.entry.and_then(|entry| self.entry(module, entry)) else {
                                continue;
                            };
                            let (all, has_stopped) = self.jumps_to(module, to);
                            found.is_partial |= has_stopped;
                            for to in all {
                                found.of.entry((module, to)).or_default().push((
                                    ModuleFunction { module, func },
                                    n,
                                    call,
                                ));
                            }
                        }
                    }
                }
            }
            found
        };
        self.callers.get_or_init(find).of.get(&(of.module, of.func)).map_or(&[], Vec::as_slice)
    }

    /// Whether some callers may be missing.
    pub(super) fn misses_callers(&self) -> bool {
        self.callers.get().is_some_and(|callers| callers.is_partial)
    }

    /// A function, and those that it may jump to in place of a return, one after the other: each returns to
    /// its caller. And whether there are more.
    fn jumps_to(&self, module: usize, func: u32) -> (Vec<u32>, bool) {
        let mut all = vec![func];
        let mut n_seen = 0;
        while let Some(&func) = all.get(n_seen).filter(|_| n_seen < MOST_JUMPS) {
            n_seen += 1;
            let blocks = self.all.get(module).and_then(|code| code.functions.get(func as usize));
            for block in blocks.into_iter().flat_map(|function| &function.blocks) {
                let end = if let End::Tail(to) = block.end { to } else { None };
                for entry in [end, block.leaves.and_then(|(_, to)| to)].into_iter().flatten() {
                    all.extend(self.entry(module, entry).map(|(to, _)| to).filter(|to| !all.contains(to)));
                }
            }
        }
        let has_stopped = n_seen < all.len();
        (all, has_stopped)
    }
}

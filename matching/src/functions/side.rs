//! One program as function matching sees it: who calls whom, which file a function came from, how much code
//! it is.

use crate::blocks;
use crate::hash::Hashes;
use crate::relation::OneToOne;
use program::image::SymbolKind;
use program::{Callee, FuncId, Program};
use rayon::prelude::*;

/// Lists of ids, one per function, in one table.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// From pairs (owner, item), in any order; an owner's items keep theirs.
    fn new(n: usize, pairs: &[(u32, u32)]) -> Lists {
        let mut starts = vec![0_u32; n + 1];
        for &(owner, _) in pairs {
            starts[owner as usize + 1] += 1;
        }
        for i in 0..n {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![0; pairs.len()];
        for &(owner, item) in pairs {
            let slot = &mut next[owner as usize];
            items[*slot as usize] = item;
            *slot += 1;
        }
        Lists { starts, items }
    }
    /// The items of one function.
    pub fn of(&self, owner: usize) -> &[u32] {
        &self.items[self.starts[owner] as usize..self.starts[owner + 1] as usize]
    }
}

/// One of the two programs.
#[derive(Debug)]
pub struct Side<'a> {
    /// It.
    pub program: &'a Program,
    /// Its hashes, made with keys that are joined where data were matched.
    pub hashes: &'a Hashes,
    /// Functions that a function calls, in the order of its code, repeated ones too.
    pub callees: Lists,
    /// Functions that call a function, by address, repeated ones too.
    pub callers: Lists,
    /// Instructions of each function.
    pub n_insns: Vec<u32>,
    /// Hash of the name of the file symbol that a local symbol of the function stands below, or 0.
    pub file: Vec<u64>,
}

impl<'a> Side<'a> {
    /// Looks at all calls and symbols once.
    pub fn compute(program: &'a Program, hashes: &'a Hashes) -> Side<'a> {
        let n = program.functions.len();
        let mut out: Vec<(u32, u32)> = Vec::new();
        for call in &program.calls {
            if let Callee::Function(to) = call.callee {
                out.push((program.block(call.block).func.0, to.0));
            }
        }
        let back: Vec<(u32, u32)> = out.iter().map(|&(from, to)| (to, from)).collect();
        let n_insns = program
            .functions
            .par_iter()
            .map(|f| {
                let blocks = f.blocks.start as usize..f.blocks.end as usize;
                hashes.n_insns[blocks].iter().map(|&n| u32::from(n)).sum()
            })
            .collect();
        let mut file = vec![0; n];
        let mut current = 0;
        for s in program.image.symbols.iter().filter(|s| !s.dynamic) {
            match s.kind {
                SymbolKind::File => current = xxhash_rust::xxh3::xxh3_64(s.name.as_bytes()),
                SymbolKind::Function | SymbolKind::IndirectFunction if s.local => {
                    if let Some(f) = program.function_from(s.at) {
                        file[f.index()] = current;
                    }
                }
                _ => {}
            }
        }
        Side { program, hashes, callees: Lists::new(n, &out), callers: Lists::new(n, &back), n_insns, file }
    }

    /// How many functions.
    pub fn len(&self) -> usize {
        self.program.functions.len()
    }

    /// Whether the function has a name that a person or compiler gave it.
    pub fn is_named(&self, func: usize) -> bool {
        !self.program.functions[func].names.is_empty()
    }
}

/// How much of the code of two functions is the same, 0.0..=1.0.
pub fn alike(old: &Side<'_>, o: usize, new: &Side<'_>, n: usize) -> f32 {
    blocks::similarity(old.program, FuncId::at(o), old.hashes, new.program, FuncId::at(n), new.hashes)
}

/// How well the matched callees and callers of two functions agree: (agreeing, disagreeing), each neighbour
/// once.
pub fn context(old: &Side<'_>, o: usize, new: &Side<'_>, n: usize, pairs: &OneToOne) -> (u32, u32) {
    /// A function that thousands call says little, and would cost much.
    const MOST: usize = 64;
    let mut agree = 0;
    let mut disagree = 0;
    for (a, b) in [(old.callees.of(o), new.callees.of(n)), (old.callers.of(o), new.callers.of(n))] {
        if a.len() > MOST || b.len() > MOST {
            continue;
        }
        let mut went: Vec<usize> = a.iter().filter_map(|&f| pairs.new_of(f as usize)).collect();
        let mut are: Vec<usize> =
            b.iter().filter(|&&f| pairs.old_of(f as usize).is_some()).map(|&f| f as usize).collect();
        for list in [&mut went, &mut are] {
            list.sort_unstable();
            list.dedup();
        }
        let both = went.iter().filter(|f| are.binary_search(f).is_ok()).count();
        agree += u32::try_from(both).unwrap_or(u32::MAX);
        disagree += u32::try_from(went.len() + are.len() - 2 * both).unwrap_or(u32::MAX);
    }
    (agree, disagree)
}

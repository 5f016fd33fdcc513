//! What is known of the code of a trace, by the numbers that the trace has: blocks with what they weigh, the
//! calls in them, the loops that they are in.

use crate::names;
use program::{BlockEnd, BlockId, CallKind, Callee, EdgeKind, FuncId, Lines, Loops, Mix, Program, Va};
use std::collections::HashMap;
use std::ops::Range;
use trace::Names;

/// No such number.
pub const NONE: u32 = u32::MAX;

/// A module of a trace: the numbers of its functions there, and the program.
pub struct TracedModule<'a> {
    /// The number of its first function.
    pub first: trace::FuncId,
    /// What the file is called.
    pub name: String,
    /// The program.
    pub program: &'a Program,
    /// Its lines, if it has any.
    pub lines: Option<Lines>,
}

/// The code of a trace.
#[derive(Default)]
pub struct Code {
    /// By the number of the trace.
    pub functions: Vec<Function>,
    /// Of all functions, each one's together.
    pub blocks: Vec<Block>,
    /// Calls, each block's together and in order.
    pub sites: Vec<Site>,
    /// Loops, each function's together, outer ones first.
    pub loops: Vec<Loop>,
    /// By number, as sites have them.
    pub imports: Vec<Box<str>>,
    /// Names of modules.
    pub modules: Vec<String>,
    /// What each block counts for, itself, and the padding behind it.
    pub mixes: Vec<[Mix; 2]>,
}

/// A function of a trace.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its name, as the symbol table has it.
    pub name: Box<str>,
    /// The name without what compilers add to it.
    pub bare: Box<str>,
    /// Whether the file says its name.
    pub is_named: bool,
    /// Its module.
    pub module: u32,
    /// Where it is entered.
    pub entry: Va,
    /// Its blocks, by the numbers of the trace.
    pub blocks: Range<u32>,
    /// Its loops.
    pub loops: Range<u32>,
}

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it starts.
    pub at: Va,
    /// How many instructions run with it; those of padding that always runs behind it, too.
    pub weight: u32,
    /// Whether that padding always runs.
    pub has_padding: bool,
    /// What control comes to if the branch at its end is not taken, and through how many instructions of
    /// padding; [`NONE`] if it ends in no branch.
    pub not_taken: (u32, u32),
    /// The innermost loop that it is in, or [`NONE`].
    pub innermost: u32,
    /// Whether it is an entry of that.
    pub is_header: bool,
    /// Its calls.
    pub sites: Range<u32>,
    /// Which block of which program it is.
    pub id: (u32, BlockId),
}

/// What a call leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    /// The function of this number.
    To(u32),
    /// An import.
    Import(u32),
    /// Nobody knows.
    Anywhere,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The instruction.
    pub at: Va,
    /// The function that it is in.
    pub function: u32,
    /// What it leads to.
    pub leads: Leads,
    /// Whether it is a jump out of the function.
    pub is_tail: bool,
}

/// A loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The function that it is in.
    pub function: u32,
    /// The loop directly around it, or [`NONE`].
    pub parent: u32,
    /// How many loops are around it.
    pub depth: u32,
    /// Whether there is no loop in it.
    pub is_innermost: bool,
    /// Its first header.
    pub header: Va,
    /// Its blocks.
    pub blocks: Vec<u32>,
}

impl Code {
    /// Of a trace with these names.
    pub fn of(names: &Names, modules: &[TracedModule<'_>]) -> Code {
        let mut code = Code::default();
        // Beyond what the programs have, no number is one of theirs.
        let n_known = modules.iter().map(|of| of.first.index() + of.program.functions.len()).max();
        let n = names.functions.keys().next_back().map_or(0, |func| func.index() + 1);
        code.functions.resize(n.min(n_known.unwrap_or_default()), Function::default());
        let mut imports = HashMap::new();
        for (n, module) in (0..).zip(modules) {
            code.modules.push(module.name.clone());
            let end = modules.get(n as usize + 1).map_or(trace::FuncId(NONE), |next| next.first);
            code.add(names, n, module, end, &mut imports);
        }
        code
    }

    /// Adds the functions of module `n`, whose numbers are below `end`.
    fn add(
        &mut self,
        names: &Names,
        n: u32,
        module: &TracedModule<'_>,
        end: trace::FuncId,
        imports: &mut HashMap<Box<str>, u32>,
    ) {
        let program = module.program;
        let mut found = Vec::new();
        for (&number, function) in names.functions.range(module.first..end) {
            let first = function.blocks.values().find_map(|block| program.block_from(Va(block.at)));
            found.push((number.0, function, first.map(|block| program.block(block).func)));
        }
        // By the program's number: the trace's.
        let numbers = found.iter().filter_map(|(number, _, func)| Some(((*func)?, *number))).collect();
        for (number, function, func) in found {
            let first = count(self.blocks.len());
            let first_loop = count(self.loops.len());
            // No function has more than its program says; one that this does not know, more than are named.
            let n_known = func.map_or(0, |func| program.function(func).block_ids().count());
            let n_most = count(n_known.max(function.blocks.len()));
            let last = function.blocks.keys().next_back().map_or(0, |block| block.0.saturating_add(1));
            let last = last.min(n_most);
            let mut made = Function {
                name: (*function.name).into(),
                bare: names::bare(&function.name).name.into(),
                is_named: true,
                module: n,
                entry: Va(0),
                blocks: first..first + last,
                loops: first_loop..first_loop,
            };
            let at = |block| function.blocks.get(&trace::BlockId(block)).map_or(Va(0), |block| Va(block.at));
            let ids = (0..last).map(|block| {
                program.block_from(at(block)).filter(|id| Some(program.block(*id).func) == func)
            });
            let ids: Vec<Option<BlockId>> = ids.collect();
            self.blocks.extend((0..last).zip(&ids).map(|(block, id)| Block::new(at(block), (n, *id))));
            self.mixes.resize(self.blocks.len(), Default::default());
            if let Some(func) = func {
                let own = (first..).zip(&ids).filter_map(|(block, id)| Some(((*id)?, block))).collect();
                let of = Of { program, func, number, own: &own, numbers: &numbers };
                self.add_loops(&of, first_loop);
                self.fill(&of, imports);
                if let Some(name) = program.function(func).names.first() {
                    (made.name, made.bare) = (name.clone(), names::bare(name).name.into());
                }
                made.is_named = !program.function(func).names.is_empty();
                made.entry = program.function(func).entry;
                made.loops.end = count(self.loops.len());
            }
            self.functions.get_mut(number as usize).into_iter().for_each(|place| *place = made.clone());
        }
    }

    /// Adds the loops of a function, and says of its blocks in which they are.
    fn add_loops(&mut self, of: &Of<'_>, first: u32) {
        let loops = Loops::compute(of.program, of.func);
        for id in loops.ids() {
            self.loops.push(Loop {
                function: of.number,
                parent: loops.parent(id).map_or(NONE, |parent| first + parent.0),
                depth: loops.depth(id),
                is_innermost: true,
                header: of.program.block(loops.header(id)).start,
                blocks: loops.blocks(id).filter_map(|block| of.own.get(&block).copied()).collect(),
            });
            let parent = loops.parent(id).and_then(|parent| self.loops.get_mut((first + parent.0) as usize));
            parent.into_iter().for_each(|parent| parent.is_innermost = false);
        }
        for (&id, &block) in of.own {
            let Some(place) = self.blocks.get_mut(block as usize) else { continue };
            place.innermost = loops.innermost(id).map_or(NONE, |id| first + id.0);
            place.is_header = loops.is_header(id);
        }
    }

    /// Says of a function's blocks what they weigh, and what they call.
    fn fill(&mut self, of: &Of<'_>, imports: &mut HashMap<Box<str>, u32>) {
        let Of { program, func, .. } = *of;
        let mixes = program.mixes(func);
        for (id, mix) in program.function(func).block_ids().zip(mixes) {
            let Some(&block) = of.own.get(&id) else { continue };
            let first = count(self.sites.len());
            for call in program.calls_in(id) {
                let leads = self.leads(of, call.callee, imports);
                let is_tail = call.kind != CallKind::Call;
                self.sites.push(Site { at: call.at, function: of.number, leads, is_tail });
            }
            let padding = program.mix_of_padding(id);
            let end = program.block(id).end;
            let n_padding = u32::try_from(padding.get(program::Metric::Total)).unwrap_or(u32::MAX);
            let Some(place) = self.blocks.get_mut(block as usize) else { continue };
            place.sites = first..count(self.sites.len());
            place.has_padding = end == BlockEnd::FallThrough && n_padding > 0;
            place.weight = program.block(id).n_insns + if place.has_padding { n_padding } else { 0 };
            place.not_taken = not_taken(program, id, of.own).map_or((NONE, 0), |to| (to, n_padding));
            self.mixes
                .get_mut(block as usize)
                .into_iter()
                .for_each(|place| *place = [mix.clone(), padding.clone()]);
        }
    }

    fn leads(&mut self, of: &Of<'_>, callee: Callee, imports: &mut HashMap<Box<str>, u32>) -> Leads {
        let name = match callee {
            Callee::Function(func) => match &of.program.function(func).import {
                None => return of.numbers.get(&func).map_or(Leads::Anywhere, |to| Leads::To(*to)),
                Some(name) => name,
            },
            Callee::Import(n) => match of.program.imports.get(n as usize) {
                Some(name) => name,
                None => return Leads::Anywhere,
            },
            Callee::Unknown(_) | Callee::Indirect => return Leads::Anywhere,
        };
        Leads::Import(*imports.entry(name.clone()).or_insert_with(|| {
            self.imports.push(name.clone());
            count(self.imports.len() - 1)
        }))
    }

    /// The block of this number of a function.
    pub fn block(&self, function: u32, block: u32) -> Option<u32> {
        let blocks = &self.functions.get(function as usize)?.blocks;
        blocks.start.checked_add(block).filter(|block| *block < blocks.end)
    }

    /// Whether the loop `id` is, or is around, the innermost loop of a block.
    pub fn is_in(&self, mut innermost: u32, id: u32) -> bool {
        let Some(depth) = self.loops.get(id as usize).map(|of| of.depth) else { return false };
        while let Some(of) = self.loops.get(innermost as usize) {
            if innermost == id {
                return true;
            }
            if of.depth <= depth {
                return false;
            }
            innermost = of.parent;
        }
        false
    }

    /// Whether a call may come to the function `to`.
    pub fn may_lead(&self, site: &Site, to: u32) -> bool {
        match site.leads {
            Leads::To(function) => function == to,
            Leads::Anywhere => true,
            Leads::Import(n) => {
                let name = self.functions.get(to as usize).map(|of| &of.name);
                let import = self.imports.get(n as usize);
                name.zip(import).is_some_and(|(name, import)| unversioned(name) == unversioned(import))
            }
        }
    }
}

/// A function, while its blocks are gone through.
struct Of<'a> {
    program: &'a Program,
    func: FuncId,
    number: u32,
    /// By the program's number: ours.
    own: &'a HashMap<BlockId, u32>,
    /// The same of functions.
    numbers: &'a HashMap<FuncId, u32>,
}

impl Block {
    fn new(at: Va, (module, id): (u32, Option<BlockId>)) -> Block {
        Block {
            at,
            weight: 0,
            has_padding: false,
            not_taken: (NONE, 0),
            innermost: NONE,
            is_header: false,
            sites: 0..0,
            id: (module, id.unwrap_or(BlockId(NONE))),
        }
    }
}

/// What control comes to behind a branch that is not taken, by our number, if that is told from what it comes
/// to if it is.
fn not_taken(program: &Program, id: BlockId, own: &HashMap<BlockId, u32>) -> Option<u32> {
    if program.block(id).end != BlockEnd::Branch {
        return None;
    }
    let ways = program.successors(id);
    let falls = ways.iter().find(|edge| edge.kind == EdgeKind::FallThrough)?;
    let is_only = ways.iter().filter(|edge| edge.to == falls.to).count() == 1;
    own.get(&falls.to).copied().filter(|_| is_only)
}

/// A symbol without its version.
fn unversioned(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// A number that fits: there are fewer blocks than bytes of code.
pub fn count(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than bytes of a file")
}

//! What is put where: points of a program, and what happens there.
//!
//! A point is one place or several, each before an instruction, behind it, or on an edge. An edge gets code
//! of its own: a branch that is taken leads around it, entries of a jump table and call sites of an exception
//! table lead to it.
//!
//! Invariant: a probe sees every passing of its point, and nothing else; what cannot be had so is an error,
//! not a guess.
//!
//! Source: points as in MAQAO's MIL (VPROF, section 2.1); edges by code of their own: Meng and Miller,
//! "Binary Code Is Not Easy", ISSTA 2016, section 5.
#![warn(clippy::indexing_slicing)]

use crate::events::Event;
use crate::movable::Stay;
use crate::piece::Target;
use crate::switches::Switch;
use program::arch::emit::{Increment, Stack};
use program::arch::snippet::{self, HISTOGRAM_WORDS, NoValue, Place, Sink, Snippet, Value};
use program::arch::{Flow, RegSet, abi};
use program::{
    BlockEnd, BlockId, CallKind, Conventions, EdgeId, EdgeKind, FuncId, Liveness, LoopId, Loops, Program, Va,
};
use rayon::prelude::*;

/// A place in a program, or several that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// A function is entered at its entry, by whoever calls it or jumps to it from outside.
    Entry(FuncId),
    /// A function is left: by a return, or by a jump out of it. Not by an exception, or by a call that never
    /// returns.
    Exit(FuncId),
    /// A block is entered.
    Block(BlockId),
    /// Control goes along an edge.
    Edge(EdgeId),
    /// Before an instruction; a call, too.
    Before(Va),
    /// Behind an instruction that does not branch; a call, too: when it has returned.
    After(Va),
    /// The loop with this header is entered from outside.
    LoopEntry(BlockId),
    /// Control goes back to the header of the loop.
    BackEdge(BlockId),
    /// The loop is left along an edge.
    LoopExit(BlockId),
}

/// What happens at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A counter is incremented.
    Count,
    /// A value goes into the thread's own memory.
    Keep(Value, Sink),
    /// A routine is called with a value: position-independent code that keeps to the ABI, touches no vector
    /// register, and has so many words of the thread's own memory.
    Call(Value, Routine),
}

/// Code that is called at a point. Unwinders do not see through it: nothing may be
/// thrown out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routine {
    /// The code, which starts with its first instruction.
    pub code: Vec<u8>,
    /// Words that it needs. The address of the first is in rsi, to be used with `gs`; the value is in rdi.
    pub words: u32,
}

/// A point and what happens there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Where.
    pub point: Point,
    /// What.
    pub action: Action,
}

/// Which executions are counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// None.
    #[default]
    Nothing,
    /// A counter a block.
    Blocks,
    /// By function: these blocks and edges, from whose counts the others follow; every block of a function
    /// that has none.
    Sparse(Vec<Option<Sparse>>),
}

/// What is counted of a function, if what it leads to is all that its program says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sparse {
    /// Blocks, ascending.
    pub blocks: Vec<BlockId>,
    /// Edges, ascending: but those of jump tables and to landing pads.
    pub edges: Vec<EdgeId>,
    /// Blocks that control may come to from outside, besides the function's entries.
    pub open: Vec<BlockId>,
}

/// What is to be put into the moved code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// What is counted.
    pub counting: Counting,
    /// Direct calls that are counted by themselves, ascending, if what they call stays and control comes to
    /// them less often than to their blocks.
    pub calls: Vec<CountedCall>,
    /// What else.
    pub probes: Vec<Probe>,
    /// Whether it is counted where calls through pointers lead.
    pub callees: bool,
    /// What is appended to the thread's stream of events; nothing else keeps anything then.
    pub events: Vec<Event>,
    /// Direct calls, by address, that come as from inside of the function that they call: past what is put
    /// there for who comes from outside.
    pub from_inside: Vec<Va>,
}

/// A direct call that is counted by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedCall {
    /// The call.
    pub at: Va,
    /// Whether its count follows where all ways out of its block are counted.
    pub follows: bool,
}

impl Plan {
    /// Nothing: code is moved, no more.
    pub const NULL: Plan = Plan {
        counting: Counting::Nothing,
        calls: Vec::new(),
        probes: Vec::new(),
        callees: false,
        events: Vec::new(),
        from_inside: Vec::new(),
    };
    /// A counter a block.
    pub const BLOCKS: Plan = Plan {
        counting: Counting::Blocks,
        calls: Vec::new(),
        probes: Vec::new(),
        callees: false,
        events: Vec::new(),
        from_inside: Vec::new(),
    };

    /// Whether code is moved, no more.
    pub fn is_null(&self) -> bool {
        self.counting == Counting::Nothing
            && self.probes.is_empty()
            && !self.callees
            && self.events.is_empty()
            && self.from_inside.is_empty()
    }
}

impl Action {
    /// Words of the thread's own memory.
    pub fn words(&self) -> u32 {
        match self {
            Action::Count | Action::Keep(_, Sink::Last) => 1,
            Action::Keep(_, Sink::Ring(len)) => 1 + len,
            Action::Keep(_, Sink::Histogram) => HISTOGRAM_WORDS,
            Action::Keep(_, Sink::Call) => 0,
            Action::Call(_, routine) => routine.words,
        }
    }
}

/// Why a probe cannot be put where it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Its function is not moved.
    #[error("{function} stays where it is: {why}")]
    Stays {
        /// The function.
        function: String,
        /// Why.
        why: Stay,
    },
    /// There is no instruction there.
    #[error("no instruction of a function starts at {0}")]
    NoInstruction(Va),
    /// Behind a branch there is no one place.
    #[error("the instruction at {0} does not run on to the next: ask for its edges")]
    Branches(Va),
    /// No loop has this header.
    #[error("no loop has its header at {0}")]
    NoLoop(Va),
    /// Several jumps read one table.
    #[error(
        "the edges of the jump at {jump} cannot be told apart: its table at {table} is read by other jumps, too"
    )]
    SharedTable {
        /// The jump.
        jump: Va,
        /// The table.
        table: Va,
    },
    /// The value cannot be had.
    #[error("at {at}: {why}")]
    Value {
        /// Where.
        at: Va,
        /// Why.
        why: NoValue,
    },
    /// A ring has a length that is no power of two, or is too long.
    #[error("a ring has 1 to 65536 words, a power of two; not {0}")]
    Ring(u32),
}

/// Code to be put in.
#[derive(Clone, Default, Debug)]
pub struct Code {
    /// What comes first; nearly all code is an increment alone.
    pub text: Option<Box<Text>>,
    /// The increment of this counter behind all that.
    pub increment: Option<(Increment, u32)>,
}

/// Code with what its places lead to.
#[derive(Clone, Default, Debug)]
pub struct Text {
    /// The code.
    pub bytes: Vec<u8>,
    /// Offset of a distance, end of its instruction, and where it leads.
    pub places: Vec<(usize, usize, Target)>,
    /// Where the stack pointer moves: offset of the next instruction, and where the stack is from there on.
    pub stack: Vec<(usize, Stack)>,
}

impl Code {
    /// Code of ours.
    pub(crate) fn text(bytes: Vec<u8>, places: Vec<(usize, usize, Target)>) -> Code {
        Code { increment: None, text: Some(Box::new(Text { bytes, places, stack: Vec::new() })) }
    }

    /// How many bytes its text has.
    pub(crate) fn len(&self) -> usize {
        let increment = self.increment.map_or(0, |(how, _)| {
            let mut bytes = Vec::new();
            let _places = how.emit(&mut bytes).count();
            bytes.len()
        });
        self.text.as_ref().map_or(0, |text| text.bytes.len()) + increment
    }

    /// The increment of a counter.
    pub(crate) fn increment(how: Increment, counter: u32) -> Code {
        Code { increment: Some((how, counter)), text: None }
    }

    pub(crate) fn append(&mut self, other: Code) {
        let text = self.text.get_or_insert_default();
        if let Some((how, counter)) = self.increment.take() {
            text.increment(how, counter);
        }
        self.increment = other.increment;
        let Some(other) = other.text else { return };
        let base = text.bytes.len();
        text.stack.extend(other.stack.into_iter().map(|(at, stack)| (base + at, stack)));
        text.bytes.extend(other.bytes);
        text.places.extend(other.places.into_iter().map(|(at, end, to)| (base + at, base + end, to)));
    }
}

impl Text {
    /// Writes an increment.
    fn increment(&mut self, how: Increment, counter: u32) {
        let base = self.bytes.len();
        self.stack.extend(how.stack().iter().map(|&(at, stack)| (base + at, stack)));
        self.places.extend(how.emit(&mut self.bytes).map(|(at, end)| (at, end, Target::Counter(counter))));
    }
}

/// Where in a block code goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Spot {
    /// In front of the block, for exceptions that are raised in the block that starts here.
    Pad(Va),
    /// In front of the block: where checks in front of it lead that find something.
    Found,
    /// Behind that, for who comes from old code.
    Checked,
    /// In front of the block, for who comes from outside of the function.
    Outside,
    /// Before this instruction of it.
    Before(Va),
    /// Behind this instruction of it.
    After(Va),
    /// Where the block's last instruction branches to, if it does.
    Taken,
    /// Where the block's jump goes to the block that starts here.
    Table(Va),
    /// At its end, if control runs on.
    Through,
    /// Nothing: its call at this address comes as from inside of what it calls.
    FromInside(Va),
}

impl Spot {
    /// Whether it is in front of the block.
    pub fn is_in_front(self) -> bool {
        matches!(self, Spot::Pad(_) | Spot::Found | Spot::Checked | Spot::Outside)
    }
}

/// Code, and where it goes.
pub type Written = ((BlockId, Spot), Code);

/// The code of each block, by spot.
#[derive(Default, Debug)]
pub struct Inserts {
    all: Vec<(Spot, Code)>,
    /// Where those of each block start, and where the last ones end; nothing if there are none.
    first: Vec<u32>,
}

impl Inserts {
    /// For a program of `n_blocks`. What goes to the same spot stands there in this order.
    pub fn of(n_blocks: usize, mut written: Vec<Written>) -> Inserts {
        if written.is_empty() {
            return Inserts::default();
        }
        if written.is_sorted_by_key(|w| w.0.0) {
            written.chunk_by_mut(|a, b| a.0.0 == b.0.0).for_each(|block| block.sort_by_key(|w| w.0));
        } else {
            written.sort_by_key(|w| w.0);
        }
        let mut all: Vec<(Spot, Code)> = Vec::with_capacity(written.len());
        let mut first = Vec::with_capacity(n_blocks + 1);
        let mut before = None;
        for (key, code) in written {
            match all.last_mut() {
                Some(last) if before == Some(key) => last.1.append(code),
                _ => {
                    let n = u32::try_from(all.len()).expect("no more than edges and blocks");
                    first.resize((key.0.index() + 1).max(first.len()), n);
                    all.push((key.1, code));
                }
            }
            before = Some(key);
        }
        first.resize(n_blocks + 1, u32::try_from(all.len()).expect("no more than edges and blocks"));
        Inserts { all, first }
    }

    /// Those of `block`.
    pub fn in_block(&self, block: BlockId) -> &[(Spot, Code)] {
        let at = |n: usize| self.first.get(n).map_or(0, |n| *n as usize);
        self.all.get(at(block.index())..at(block.index() + 1)).unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// What a plan comes to.
pub struct Lowered {
    /// What is put where.
    pub inserts: Vec<Written>,
    /// Per probe: its first word.
    pub words: Vec<u32>,
    /// How many words there are, those of the blocks included.
    pub n_words: u32,
}

/// A place of a point: the spot, and what is live there.
struct Site {
    block: BlockId,
    spot: Spot,
    live: RegSet,
    /// The instruction it is in front of.
    insn: Option<program::arch::Insn>,
}

/// Finds the spots of all probes and writes their code. `first` words are in use already.
///
/// # Errors
/// Which probes cannot be put where they are wanted, and why.
pub fn lower(
    program: &Program,
    plan: &Plan,
    first: u32,
    stays: &[Option<Stay>],
    switches: &[Switch],
) -> Result<Lowered, Vec<(usize, PlanError)>> {
    let conventions = (!plan.probes.is_empty()).then(|| Conventions::compute(program));
    let mut n_words = first;
    let mut words = Vec::with_capacity(plan.probes.len());
    for probe in &plan.probes {
        words.push(n_words);
        n_words = n_words.saturating_add(probe.action.words());
    }
    let sites: Vec<Result<Vec<Written>, PlanError>> = plan
        .probes
        .par_iter()
        .enumerate()
        .map(|(n, probe)| {
            let (conventions, live) = conventions.as_ref().expect("there are probes");
            let at = At { program, stays, switches, conventions, live };
            let word = words.get(n).copied().unwrap_or_default();
            let routine = u32::try_from(n).unwrap_or(u32::MAX);
            let code =
                |site: Site| Ok(((site.block, site.spot), at.code(&probe.action, &site, word, routine)?));
            at.sites(probe.point)?.into_iter().map(code).collect()
        })
        .collect();
    let mut refused = Vec::new();
    let mut inserts = Vec::new();
    for (n, sites) in sites.into_iter().enumerate() {
        match sites {
            Ok(sites) => inserts.extend(sites),
            Err(why) => refused.push((n, why)),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(Lowered { inserts, words, n_words })
}

struct At<'a> {
    program: &'a Program,
    stays: &'a [Option<Stay>],
    switches: &'a [Switch],
    conventions: &'a Conventions,
    live: &'a [Liveness],
}

impl At<'_> {
    fn moved(&self, func: FuncId) -> Result<(), PlanError> {
        match self.stays.get(func.index()) {
            Some(None) => Ok(()),
            why => Err(PlanError::Stays {
                function: self.program.function(func).name(),
                why: why.copied().flatten().unwrap_or(Stay::Incomplete),
            }),
        }
    }

    fn liveness(&self, block: BlockId) -> Option<&Liveness> {
        self.live.get(self.program.block(block).func.index())
    }

    fn live_in(&self, block: BlockId) -> RegSet {
        self.liveness(block).map_or(abi::ALL, |l| l.live_in(block))
    }

    /// The block of the instruction at `at`, its place in it, and all instructions with what is live before
    /// them.
    fn insn(&self, at: Va) -> Result<(BlockId, program::arch::Insn, RegSet, RegSet), PlanError> {
        let program = self.program;
        let missing = PlanError::NoInstruction(at);
        let block = program.block_at(at).ok_or(missing.clone())?;
        self.moved(program.block(block).func)?;
        let live =
            self.liveness(block).map(|l| l.before(program, self.conventions, block)).unwrap_or_default();
        let n = program.insns(block).position(|i| i.at() == at).ok_or(missing.clone())?;
        let insn = program.insns(block).nth(n).ok_or(missing)?;
        let before = live.get(n).map_or(abi::ALL, |l| l.1);
        let after = match live.get(n + 1) {
            Some(next) => next.1,
            None => self.liveness(block).map_or(abi::ALL, |l| l.live_out(program, block)),
        };
        Ok((block, insn, before, after))
    }

    fn before(&self, at: Va) -> Result<Site, PlanError> {
        let (block, insn, live, _) = self.insn(at)?;
        Ok(Site { block, spot: Spot::Before(at), live, insn: Some(insn) })
    }

    fn sites(&self, point: Point) -> Result<Vec<Site>, PlanError> {
        let program = self.program;
        match point {
            Point::Entry(func) => {
                self.moved(func)?;
                let block = program.entry_block(func);
                let block = block.ok_or(PlanError::NoInstruction(program.function(func).entry))?;
                Ok(vec![Site { block, spot: Spot::Outside, live: self.live_in(block), insn: None }])
            }
            Point::Block(block) => {
                self.moved(program.block(block).func)?;
                Ok(vec![self.before(program.block(block).start)?])
            }
            Point::Before(at) => Ok(vec![self.before(at)?]),
            Point::After(at) => {
                let (block, insn, _, live) = self.insn(at)?;
                let runs_on = insn.flow().falls_through()
                    && !matches!(insn.flow(), Flow::Branch(_))
                    && !(program.block(block).end == BlockEnd::NoReturn
                        && program.block(block).last_insn() == at);
                if !runs_on {
                    return Err(PlanError::Branches(at));
                }
                Ok(vec![Site { block, spot: Spot::After(at), live, insn: None }])
            }
            Point::Exit(func) => self.exits(func),
            Point::Edge(edge) => Ok(vec![self.edge(edge)?]),
            Point::LoopEntry(header) => {
                let (loops, id) = self.loop_of(header)?;
                let func = program.block(header).func;
                let into = |e: &EdgeId| {
                    let edge = program.edge(*e);
                    loops.entries(id).any(|h| h == edge.to) && !loops.contains(id, edge.from)
                };
                let blocks = program.function(func).block_ids();
                let edges = blocks.flat_map(|b| program.edge_ids(b)).filter(into);
                let mut sites: Vec<Site> = edges.map(|e| self.edge(e)).collect::<Result<_, _>>()?;
                for block in program.function(func).entries.iter().copied() {
                    if loops.entries(id).any(|h| h == block) {
                        sites.push(Site {
                            block,
                            spot: Spot::Outside,
                            live: self.live_in(block),
                            insn: None,
                        });
                    }
                }
                Ok(sites)
            }
            Point::BackEdge(header) => {
                let (loops, id) = self.loop_of(header)?;
                loops.back_edges(id).iter().map(|&e| self.edge(e)).collect()
            }
            Point::LoopExit(header) => {
                let (loops, id) = self.loop_of(header)?;
                loops.exits(program, id).into_iter().map(|e| self.edge(e)).collect()
            }
        }
    }

    fn loop_of(&self, header: BlockId) -> Result<(Loops, LoopId), PlanError> {
        let block = self.program.block(header);
        self.moved(block.func)?;
        let loops = Loops::compute(self.program, block.func);
        let id = loops.ids().find(|&id| loops.header(id) == header);
        let id = id.ok_or(PlanError::NoLoop(block.start))?;
        Ok((loops, id))
    }

    fn exits(&self, func: FuncId) -> Result<Vec<Site>, PlanError> {
        let program = self.program;
        self.moved(func)?;
        let mut sites = Vec::new();
        for id in program.function(func).block_ids() {
            let block = program.block(id);
            if block.end == BlockEnd::Return {
                sites.push(self.before(block.last_insn())?);
            }
            for call in program.calls_in(id) {
                match call.kind {
                    CallKind::Call => {}
                    CallKind::TailCall => sites.push(self.before(call.at)?),
                    // Who it leads to may want anything.
                    CallKind::BranchTailCall => {
                        sites.push(Site { block: id, spot: Spot::Taken, live: abi::ALL, insn: None })
                    }
                    CallKind::FallThrough => {
                        sites.push(Site { block: id, spot: Spot::Through, live: abi::ALL, insn: None })
                    }
                }
            }
        }
        Ok(sites)
    }

    fn edge(&self, edge: EdgeId) -> Result<Site, PlanError> {
        let program = self.program;
        let edge = program.edge(edge);
        let (from, to) = (program.block(edge.from), program.block(edge.to));
        self.moved(from.func)?;
        let live = self.live_in(edge.to);
        Ok(match edge.kind {
            EdgeKind::FallThrough => Site { block: edge.from, spot: Spot::Through, live, insn: None },
            EdgeKind::Taken => Site { block: edge.from, spot: Spot::Taken, live, insn: None },
            EdgeKind::Jump => self.before(from.last_insn())?,
            EdgeKind::Table => {
                let jump = from.last_insn();
                let tables = program.tables.iter().filter(|t| t.jumps.contains(&jump));
                let mut n = 0;
                for table in tables {
                    n += 1;
                    let is_changed = self.switches.iter().any(|s| s.at == table.at);
                    if table.jumps.len() > 1 || !is_changed {
                        return Err(PlanError::SharedTable { jump, table: table.at });
                    }
                }
                if n == 0 {
                    return Err(PlanError::Branches(jump));
                }
                Site { block: edge.from, spot: Spot::Table(to.start), live, insn: None }
            }
            EdgeKind::LandingPad => Site { block: edge.to, spot: Spot::Pad(from.start), live, insn: None },
        })
    }

    fn code(&self, action: &Action, site: &Site, word: u32, routine: u32) -> Result<Code, PlanError> {
        let at = match site.spot {
            Spot::Before(at) | Spot::After(at) => at,
            _ => self.program.block(site.block).start,
        };
        let (value, sink) = match action {
            Action::Count => return Ok(Code::increment(Increment::at(site.live), word)),
            Action::Keep(_, Sink::Ring(len)) if !len.is_power_of_two() || *len > 65536 => {
                return Err(PlanError::Ring(*len));
            }
            Action::Keep(value, sink) => (*value, *sink),
            Action::Call(value, _) => (*value, Sink::Call),
        };
        let Snippet { bytes, places, stack } = snippet::snippet(value, sink, site.live, site.insn.as_ref())
            .map_err(|why| PlanError::Value { at, why })?;
        let target = |place| match place {
            Place::Word(n) => Target::Counter(word + n),
            Place::At(to) => Target::Place(to),
            Place::Routine => Target::Routine(routine),
            Place::Owner => Target::Owner,
        };
        let places = places.into_iter().map(|(at, end, to)| (at, end, target(to))).collect();
        Ok(Code { text: Some(Box::new(Text { bytes, places, stack })), increment: None })
    }
}

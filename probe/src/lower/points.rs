//! What the probes of a plan come to: code, and the spots where it goes.
//!
//! A point is one place or several, each before an instruction, behind it, or on an edge. An edge gets code
//! of its own: a branch that is taken leads around it, entries of a jump table and call sites of an exception
//! table lead to it.
//!
//! Source: edges by code of their own: Meng and Miller, "Binary Code Is Not Easy", ISSTA 2016, section 5.
#![warn(clippy::indexing_slicing)]

use super::loop_registers::LoopRegisters;
use super::vectorised;
use crate::arch::emit::{self, Increment};
use crate::arch::shared::event_word;
use crate::arch::snippet::{self, Field, Leads, NoValue, Sink, Snippet, SnippetTarget};
use crate::code::{Insert, Target, Text};
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::plan::{Action, Plan, PlanError, Point, Probe, Record};
use crate::select::jump_tables::MovedTable;
use program::arch::{ControlFlow, Reg, RegSet, abi};
use program::{
    BlockEnd, BlockId, Call, CallKind, Callee, Conventions, EdgeId, EdgeKind, FuncId, Liveness, LoopId,
    Loops, Program, Va,
};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// `ret`.
const RETURN: u8 = 0xc3;
const STACK_POINTER: Reg = Reg::general(4);

/// What a plan comes to.
pub struct Lowered {
    /// What is put where.
    pub inserts: Vec<Written>,
    /// What comes behind all else that is put there: calls in place of jumps, with what stands behind them.
    pub calls: Vec<Written>,
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
    /// The jump that is made a call, behind which it is.
    behind: Option<Tail>,
}

impl Site {
    /// One that is in front of no instruction.
    fn at(block: BlockId, spot: Spot, live: RegSet) -> Site {
        Site { block, spot, live, insn: None, behind: None }
    }
}

/// A jump out of a function.
#[derive(Clone, Copy)]
enum Tail {
    /// To there.
    To(Va),
    /// Through a register or memory.
    By(program::arch::Insn),
    /// It stays a jump.
    Stays,
}

/// Finds the spots of all probes and writes their code. `first` words are in use already.
///
/// # Errors
/// Which probes cannot be put where they are wanted, and why.
pub fn lower(
    program: &Program,
    plan: &Plan,
    first: u32,
    not_moved: &[Option<NotMoved>],
    jump_tables: &[MovedTable],
) -> Result<Lowered, Vec<(usize, PlanError)>> {
    let conventions = (!plan.probes.is_empty()).then(|| Conventions::compute(program));
    let registers = match &conventions {
        Some((_, live)) => LoopRegisters::choose(program, plan, live, not_moved),
        None => LoopRegisters::default(),
    };
    let mut n_words = first;
    let mut words = Vec::with_capacity(plan.probes.len());
    for probe in &plan.probes {
        words.push(n_words);
        n_words = n_words.saturating_add(probe.action.words());
    }
    let sites: Vec<Result<Vec<(Site, Insert)>, PlanError>> = plan
        .probes
        .par_iter()
        .enumerate()
        .map(|(n, probe)| {
            let (conventions, live) = conventions.as_ref().expect("there are probes");
            let at =
                PointLowering { program, not_moved, jump_tables, conventions, live, registers: &registers };
            let word = *words.get(n).expect("each probe has its first word");
            let routine = u32::try_from(n).expect("probes are numbered in four bytes");
            let code = |site: Site| {
                let code = at.code(probe, &site, word, routine)?;
                Ok((site, code))
            };
            at.sites(probe.point)?.into_iter().map(code).collect()
        })
        .collect();
    let mut refused = Vec::new();
    let mut inserts = Vec::new();
    let mut behind: BTreeMap<(BlockId, Spot), Behind> = BTreeMap::new();
    for (n, sites) in sites.into_iter().enumerate() {
        let sites = sites.map_err(|why| refused.push((n, why))).unwrap_or_default();
        for (site, code) in sites {
            let at = (site.block, site.spot);
            if site.behind.is_none() {
                inserts.push((at, code));
                continue;
            }
            let passing = match &plan.probes.get(n).map(|probe| &probe.action) {
                Some(Action::Append(Record { passes: Some(word), .. })) => Some(*word),
                _ => None,
            };
            match behind.entry(at) {
                Entry::Vacant(vacant) => {
                    let passing = passing.into_iter().collect();
                    let _first = vacant.insert(Behind { site, code, passing, probe: n });
                }
                Entry::Occupied(before) => {
                    let before = before.into_mut();
                    before.code.append(code);
                    before.passing.extend(passing);
                }
            }
        }
    }
    let mut calls = Vec::new();
    for (at, behind) in behind {
        let n = behind.probe;
        match behind.called(program) {
            Ok(code) => calls.push((at, code)),
            Err(why) => refused.push((n, why)),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(Lowered { inserts, calls, words, n_words })
}

/// What stands at a jump out of a function.
struct Behind {
    site: Site,
    /// What stands behind the call that is made of it.
    code: Insert,
    /// What is appended where it stays a jump.
    passing: Vec<u32>,
    /// The first of the probes.
    probe: usize,
}

impl Behind {
    /// The call in place of the jump.
    fn called(self, program: &Program) -> Result<Insert, PlanError> {
        let Behind { site, mut code, passing, .. } = self;
        code.append(Insert::text(vec![RETURN], Vec::new()));
        let made = match &site.behind {
            Some(Tail::By(insn)) => snippet::tail_call(Leads::By(insn), site.live, code.len()),
            Some(Tail::To(_)) => snippet::tail_call(Leads::Here, site.live, code.len()),
            Some(Tail::Stays) | None => Err(NoValue::StaysJump),
        };
        let to = if let Some(Tail::To(to)) = site.behind { Some(to) } else { None };
        let at = program.block(site.block).last_insn();
        let error = |why| PlanError::Value { at, why };
        let mut all = match made.map(|made| made.map(|made| insert(made, Target::Word, Target::Chunk, to))) {
            Ok([mut call, jumping]) => {
                call.append(code);
                call.append(jumping);
                call
            }
            // Then it says so.
            Err(_) if !passing.is_empty() => Insert::default(),
            Err(why) => return Err(error(why)),
        };
        for word in passing {
            let frame = Field::General { reg: STACK_POINTER, len: 4 };
            all.append(appending(snippet::record(word, &[frame], site.live).map_err(error)?));
        }
        Ok(all)
    }
}

struct PointLowering<'a> {
    program: &'a Program,
    not_moved: &'a [Option<NotMoved>],
    jump_tables: &'a [MovedTable],
    conventions: &'a Conventions,
    live: &'a [Liveness],
    registers: &'a LoopRegisters,
}

impl PointLowering<'_> {
    fn moved(&self, func: FuncId) -> Result<(), PlanError> {
        match self.not_moved.get(func.index()) {
            Some(None) => Ok(()),
            why => Err(PlanError::NotMoved {
                function: self.program.function(func).name(),
                why: why.copied().flatten().unwrap_or(NotMoved::Incomplete),
            }),
        }
    }

    fn liveness(&self, block: BlockId) -> Option<&Liveness> {
        self.live.get(self.program.block(block).func.index())
    }

    fn live_in(&self, block: BlockId) -> RegSet {
        let live = self.liveness(block).map_or(abi::ALL, |l| l.live_in(block));
        live.union(self.registers.reserved(block))
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
        let live = live.union(self.registers.reserved(block));
        Ok(Site { block, spot: Spot::Before(at), live, insn: Some(insn), behind: None })
    }

    fn sites(&self, point: Point) -> Result<Vec<Site>, PlanError> {
        let program = self.program;
        match point {
            Point::Entry(func) => {
                self.moved(func)?;
                let block = program.entry_block(func);
                let block = block.ok_or(PlanError::NoInstruction(program.function(func).entry))?;
                Ok(vec![Site::at(block, Spot::Outside, self.live_in(block))])
            }
            Point::Block(block) => {
                self.moved(program.block(block).func)?;
                Ok(vec![self.before(program.block(block).start)?])
            }
            Point::Before(at) => Ok(vec![self.before(at)?]),
            Point::After(at) => {
                let (block, insn, _, live) = self.insn(at)?;
                let runs_on = insn.flow().falls_through()
                    && !matches!(insn.flow(), ControlFlow::Branch(_))
                    && !(program.block(block).end == BlockEnd::NoReturn
                        && program.block(block).last_insn() == at);
                if !runs_on {
                    return Err(PlanError::Branches(at));
                }
                let live = live.union(self.registers.reserved(block));
                Ok(vec![Site::at(block, Spot::After(at), live)])
            }
            Point::Exit(func) => self.exits(func),
            Point::Return { func, has_arguments_in_memory } => self.returns(func, has_arguments_in_memory),
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
                        sites.push(Site::at(block, Spot::Outside, self.live_in(block)));
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
                    CallKind::BranchTailCall => sites.push(Site::at(id, Spot::Taken, abi::ALL)),
                    CallKind::FallThrough => sites.push(Site::at(id, Spot::Through, abi::ALL)),
                }
            }
        }
        Ok(sites)
    }

    /// Where control goes back to the function's caller. Jumps stay that go to what comes back more than
    /// once.
    fn returns(&self, func: FuncId, has_arguments_in_memory: bool) -> Result<Vec<Site>, PlanError> {
        let program = self.program;
        self.moved(func)?;
        let mut sites = Vec::new();
        let mut heights = None;
        for id in program.function(func).block_ids() {
            let block = program.block(id);
            if block.end == BlockEnd::Return {
                sites.push(self.before(block.last_insn())?);
            }
            for call in program.calls_in(id).iter().filter(|call| call.returns) {
                let last = || program.insns(id).last();
                let to = match call.kind {
                    CallKind::FallThrough => Some(block.end_va()),
                    _ => last().and_then(|insn| insn.flow().target()),
                };
                let site = match call.kind {
                    CallKind::Call => continue,
                    CallKind::TailCall => self.before(call.at)?,
                    CallKind::BranchTailCall => Site::at(id, Spot::Taken, self.wanted(to)),
                    CallKind::FallThrough => Site::at(id, Spot::Through, self.wanted(to)),
                };
                // Code that finds this function's frame, as its parts elsewhere do, is not called.
                let mut has_no_frame = || {
                    let heights = heights.get_or_insert_with(|| program.stack_heights_at_ends(func));
                    heights.get(&id) == Some(&0)
                };
                let tail = match to.map(Tail::To).or_else(|| site.insn.map(Tail::By)) {
                    Some(tail)
                        if !has_arguments_in_memory && self.may_be_called(call, to) && has_no_frame() =>
                    {
                        tail
                    }
                    _ => Tail::Stays,
                };
                sites.push(Site { behind: Some(tail), ..site });
            }
        }
        Ok(sites)
    }

    /// Whether a call may stand in place of this jump, which leads to `to` if it leads to one place.
    fn may_be_called(&self, call: &Call, to: Option<Va>) -> bool {
        use program::libc;
        if let (Callee::Function(f), Some(to)) = (call.callee, to)
            && self.program.function(f).entry != to
        {
            return false;
        }
        let name = match call.callee {
            Callee::Function(f) => {
                let function = self.program.function(f);
                function.import.as_ref().or_else(|| function.names.first())
            }
            Callee::Import(n) => self.program.imports.get(n as usize),
            _ => None,
        };
        let again = libc::RETURNS_TWICE.with(libc::RETURNS_AGAIN).with(libc::LENDS_MEMORY);
        name.is_none_or(|name| !libc::does(name, again))
    }

    /// What may be read from `to` on, another function's entry or a place in its middle.
    fn wanted(&self, to: Option<Va>) -> RegSet {
        to.and_then(|to| self.program.block_from(to)).map_or(abi::ALL, |block| self.live_in(block))
    }

    fn edge(&self, edge: EdgeId) -> Result<Site, PlanError> {
        let program = self.program;
        let edge = program.edge(edge);
        let (from, to) = (program.block(edge.from), program.block(edge.to));
        self.moved(from.func)?;
        let live = self.live_in(edge.to).union(self.registers.reserved(edge.from));
        Ok(match edge.kind {
            EdgeKind::FallThrough => Site::at(edge.from, Spot::Through, live),
            EdgeKind::Taken => Site::at(edge.from, Spot::Taken, live),
            EdgeKind::Jump => {
                let site = self.before(from.last_insn())?;
                Site { live: site.live.union(live), ..site }
            }
            EdgeKind::Table => {
                let jump = from.last_insn();
                let tables = program.tables.iter().filter(|t| t.jumps.contains(&jump));
                let mut n = 0;
                for table in tables {
                    n += 1;
                    let changed = self.jump_tables.iter().find(|s| s.at == table.at);
                    let is_own = |s: &MovedTable| !self.shares_entry(s, to.start);
                    if table.jumps.len() > 1 || !changed.is_some_and(is_own) {
                        return Err(PlanError::SharedTable { jump, table: table.at });
                    }
                }
                if n == 0 {
                    return Err(PlanError::Branches(jump));
                }
                Site::at(edge.from, Spot::Table(to.start), live)
            }
            EdgeKind::LandingPad => Site::at(edge.to, Spot::Pad(from.start), live),
        })
    }

    /// Whether another table has an entry of `table` that leads to `to`, too: then it is known where control
    /// goes, but not which of the jumps it comes from.
    fn shares_entry(&self, table: &MovedTable, to: Va) -> bool {
        let entries = table.targets.iter().enumerate().filter(|(_, target)| **target == to);
        let others = || self.jump_tables.iter().filter(|other| other.at != table.at);
        entries
            .map(|(n, _)| table.entry(n))
            .any(|at| others().any(|other| (other.at..other.end()).contains(&at)))
    }

    fn code(&self, probe: &Probe, site: &Site, word: u32, routine: u32) -> Result<Insert, PlanError> {
        // Behind a call that was a jump, the function is about to return.
        let returned = || self.conventions.at_return(self.program.block(site.block).func);
        let live = if site.behind.is_some() { returned() } else { site.live };
        let insn = site.insn.as_ref().filter(|_| site.behind.is_none());
        let at = match site.spot {
            Spot::Before(at) | Spot::After(at) => at,
            _ => self.program.block(site.block).start,
        };
        let own = self.registers.register(probe.point);
        let (value, sink) = match &probe.action {
            Action::Count => return Ok(Insert::increment(Increment::at(live), word)),
            Action::CountInStream(_) if let Some(reg) = own => {
                return Ok(Insert::text(emit::count_in(reg), Vec::new()));
            }
            Action::CountInStream(n) => {
                return Ok(Insert::increment_of_word(Increment::at(live), event_word(*n)));
            }
            Action::AddInStream(n, by) => {
                let how = Increment::by_many_at(live);
                return Ok(Insert::addition_to_word(how, *by, event_word(*n)));
            }
            Action::Keep(_, Sink::Ring(len)) if !len.is_power_of_two() || *len > 65536 => {
                return Err(PlanError::Ring(*len));
            }
            Action::Keep(value, sink) => (*value, *sink),
            Action::Call(value, _) => (*value, Sink::Call),
            Action::Append(record) => {
                let fields = self.registers.fields(probe.point, record);
                let made = snippet::record(record.word, &fields, live);
                let mut all = appending(made.map_err(|why| PlanError::Value { at, why })?);
                if let (Point::LoopEntry(_), Some(reg)) = (probe.point, own) {
                    all.append(Insert::text(emit::clear(reg), Vec::new()));
                }
                return Ok(all);
            }
            Action::Vectorise => {
                let Point::LoopEntry(header) = probe.point else { return Err(PlanError::NoLoop(at)) };
                let at = self.program.block(header).start;
                let made = vectorised::entry(self.program, header, live);
                return made.map_err(|why| PlanError::NotVectorised { at, why });
            }
        };
        let made = snippet::snippet(value, sink, live, insn).map_err(|why| PlanError::Value { at, why })?;
        Ok(insert(made, |n| Target::Counter(word + n), Target::Routine(routine), None))
    }
}

/// Code that appends to the thread's stream.
pub fn appending(made: Snippet) -> Insert {
    insert(made, Target::Word, Target::Chunk, None)
}

/// The code of `made`, where words, the routine, and what is called in place of a jump are these.
pub fn insert(made: Snippet, word: impl Fn(u32) -> Target, routine: Target, callee: Option<Va>) -> Insert {
    let Snippet { bytes, places, stack } = made;
    let target = |place| match place {
        SnippetTarget::Word(n) => word(n),
        SnippetTarget::At(to) => Target::Address(to),
        SnippetTarget::Routine => routine,
        SnippetTarget::Owner => Target::Owner,
        SnippetTarget::Text => Target::Text,
        SnippetTarget::TextEnd => Target::TextEnd,
        SnippetTarget::Callee => Target::Code(callee.expect("only where a jump is made a call")),
    };
    let places = places.into_iter().map(|(at, end, to)| (at, end, target(to))).collect();
    Insert { text: Some(Box::new(Text { bytes, places, stack, ..Text::default() })), increment: None }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::arch::snippet::Value;
    use crate::testing::{assembled, function, inserts};
    use expect_test::{Expect, expect};

    const LOOP: &str = "test %edi,%edi\nje 2f\n1: dec %edi\njne 1b\n2: mov %eax,%ecx\nret";

    /// What a probe at the point that `point` says comes to, in the function `f`, which is [`LOOP`].
    fn check(point: impl Fn(&Program, FuncId) -> Point, action: Action, want: &Expect) {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", LOOP)]);
        let f = function(&program, "f");
        let plan = Plan { probes: vec![Probe { point: point(&program, f), action }], ..Plan::NULL };
        let checks = ["Found", "Checked"];
        let all = inserts(&program, &plan, f);
        let is_check =
            |part: &&str| !checks.iter().any(|check| part.lines().next().is_some_and(|l| l.ends_with(check)));
        want.assert_eq(&all.split_inclusive("\n+").filter(is_check).collect::<String>());
    }

    fn header(program: &Program, f: FuncId) -> BlockId {
        program.function(f).block_ids().nth(1).expect("the loop")
    }

    #[test]
    fn points_are_where_control_passes() {
        check(
            |_, f| Point::Entry(f),
            Action::Count,
            &expect![[r#"
            0 Outside
                Flags 0
        "#]],
        );
        check(
            |_, f| Point::Exit(f),
            Action::Count,
            &expect![[r#"
            8 Before(+0xa)
                Flags 0
        "#]],
        );
        check(
            |program, f| Point::LoopEntry(header(program, f)),
            Action::Count,
            &expect![[r#"
            0 Through
                Flags 0
        "#]],
        );
        check(
            |program, f| Point::BackEdge(header(program, f)),
            Action::Count,
            &expect![[r#"
            4 Taken
                Flags 0
        "#]],
        );
        check(
            |program, f| Point::LoopExit(header(program, f)),
            Action::Count,
            &expect![[r#"
            4 Through
                Flags 0
        "#]],
        );
    }

    #[test]
    fn a_jump_out_of_a_function_is_made_a_call() {
        let code = "test %edi,%edi\nje 1f\njmp *%rax\n1: jmp g";
        let program = assembled(&[("_start", "call f\nhlt"), ("f", code), ("g", "mov %r9d,%eax\nret")]);
        let f = function(&program, "f");
        let value = Value::Register(snippet::general_register("rax").expect("there is one"));
        let point = Point::Return { func: f, has_arguments_in_memory: false };
        // What else is there comes first, whatever the order.
        let keep = Probe { point, action: Action::Keep(value, Sink::Last) };
        let jump = Va(program.function(f).entry.0 + 4);
        let before = Probe { point: Point::Before(jump), action: Action::Count };
        let probes = vec![Probe { point, action: Action::Count }, keep, before];
        let all = inserts(&program, &Plan { probes, ..Plan::NULL }, f);
        let at = all.find("+4 Before").expect("it is there");
        expect![[r#"
            +4 Before(+0x4)
            00: incq %gs:0x8 # Counter(2)
            08: lea -0x80(%rsp),%rsp
            0d: push %rcx
            0e: lea 0x15,%rcx # Text
            15: cmp %rcx,0x88(%rsp)
            1d: jb 0x45
            1f: lea 0x26,%rcx # TextEnd
            26: cmp %rcx,0x88(%rsp)
            2e: jae 0x45
            30: mov 0x88(%rsp),%rcx
            38: cmpl $0x5e1fca11,0x3(%rcx)
            3f: je 0x72
            45: pop %rcx
            46: lea 0x80(%rsp),%rsp
            4e: lea -0x8(%rsp),%rsp
            53: call *%rax
            55: nopl 0x5e1fca11(%rax)
            5c: lea 0x8(%rsp),%rsp
            61: incq %gs:0x69 # Counter(0)
            69: mov %rax,%gs:0x71 # Counter(1)
            71: ret
            72: pop %rcx
            73: lea 0x80(%rsp),%rsp
            +6 Before(+0x6)
            00: lea 0x7,%r11 # Text
            07: cmp %r11,(%rsp)
            0c: jb 0x2f
            0e: lea 0x15,%r11 # TextEnd
            15: cmp %r11,(%rsp)
            1a: jae 0x2f
            1c: mov (%rsp),%r11
            21: cmpl $0x5e1fca11,0x3(%r11)
            29: je 0x56
            2f: lea -0x8(%rsp),%rsp
            34: call 0x39 # Code(+0x10)
            39: nopl 0x5e1fca11(%rax)
            40: lea 0x8(%rsp),%rsp
            45: incq %gs:0x4d # Counter(0)
            4d: mov %rax,%gs:0x55 # Counter(1)
            55: ret
        "#]]
        .assert_eq(&all[at..]);
    }

    #[test]
    fn values_are_kept_without_a_trace() {
        let before = |program: &Program, f: FuncId| Point::Before(program.block(header(program, f)).start);
        let value = Value::Register(snippet::general_register("rdi").expect("there is one"));
        check(
            before,
            Action::Keep(value, Sink::Last),
            &expect![[r#"
                4 Before(+0x4)
                00: mov %rdi,%gs:0x8 # Counter(0)
            "#]],
        );
        check(
            before,
            Action::Keep(value, Sink::Ring(4)),
            &expect![[r#"
                4 Before(+0x4)
                00: lea -0x80(%rsp),%rsp
                05: push %rax
                06: mov %rdi,%rcx
                09: mov $0x1,%r11d
                0f: xadd %r11,%gs:0x18 # Counter(0)
                18: and $0x3,%r11d
                1f: lea 0x26,%rax # Counter(1)
                26: mov %rcx,%gs:(%rax,%r11,8)
                2b: pop %rax
                2c: lea 0x80(%rsp),%rsp
            "#]],
        );
        check(
            before,
            Action::Keep(Value::Flags, Sink::Histogram),
            &expect![[r#"
                4 Before(+0x4)
                00: lea -0x80(%rsp),%rsp
                05: push %rax
                06: lahf
                07: seto %al
                0a: movzwl %ax,%ecx
                0d: shr $0x8,%ecx
                10: and $0xd5,%ecx
                16: movzbl %al,%eax
                19: shl $0xb,%eax
                1c: or %ecx,%eax
                1e: mov $0xffffffffffffffff,%r11
                25: bsr %rax,%rcx
                29: cmove %r11,%rcx
                2d: lea 0x34,%r11 # Counter(1)
                34: incq %gs:(%r11,%rcx,8)
                39: pop %rax
                3a: lea 0x80(%rsp),%rsp
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", LOOP)]);
        let f = function(&program, "f");
        let not_moved = vec![None; program.functions.len()];
        let refused = |point, action| {
            let plan = Plan { probes: vec![Probe { point, action }], ..Plan::NULL };
            lower(&program, &plan, 0, &not_moved, &[]).err().map(|all| all[0].1.to_string())
        };
        let entry = program.function(f).entry;
        expect!["no instruction of a function starts at 0x401011"]
            .assert_eq(&refused(Point::Before(entry.plus(1)), Action::Count).expect("refused"));
        expect!["the instruction at 0x401012 does not run on to the next: ask for its edges"]
            .assert_eq(&refused(Point::After(entry.plus(2)), Action::Count).expect("refused"));
        let ring = Action::Keep(Value::Flags, Sink::Ring(3));
        expect!["a ring has 1 to 65536 words, a power of two; not 3"]
            .assert_eq(&refused(Point::Entry(f), ring).expect("refused"));
        let memory = Action::Keep(Value::Memory, Sink::Last);
        expect!["at 0x401010: the instruction has no memory operand that can be read"]
            .assert_eq(&refused(Point::Entry(f), memory).expect("refused"));
    }

    /// Two jumps, the second of which reads the last entries of what the first one reads.
    const TABLES: &str = "cmp $3,%edi\nja 9f\nmov %edi,%edi\njmp *7f(,%rdi,8)
        1: cmp $1,%esi\nja 9f\nmov %esi,%esi\njmp *8f(,%rsi,8)
        2: mov $2,%eax\nret\n3: mov $3,%eax\nret\n4: mov $4,%eax\nret\n9: ret
        .section .rodata\n.p2align 3\n7: .quad 1b,2b\n8: .quad 3b,4b\n.text";

    #[test]
    fn of_an_entry_that_two_jumps_read_no_edge_is_known() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", TABLES)]);
        assert_eq!(program.tables.iter().map(|table| table.targets.len()).collect::<Vec<_>>(), [4, 2]);
        let f = function(&program, "f");
        let edges = program.function(f).block_ids().flat_map(|block| program.edge_ids(block));
        let tables: Vec<EdgeId> = edges.filter(|edge| program.edge(*edge).kind == EdgeKind::Table).collect();
        let probe = |edge: &EdgeId| Probe { point: Point::Edge(*edge), action: Action::Count };
        let plan = Plan { probes: tables.iter().map(probe).collect(), ..Plan::NULL };
        let built = crate::Module::build(&program, &plan, crate::Room::Behind);
        let Err(crate::RewriteError::Probes { why, .. }) = built else { panic!("some are refused") };
        assert!(why.iter().all(|(_, why)| matches!(why, PlanError::SharedTable { .. })));
        let own: Vec<Va> = (0..tables.len())
            .filter(|n| !why.iter().any(|(which, _)| which == n))
            .map(|n| program.block(program.edge(tables[n]).to).start)
            .collect();
        assert_eq!((tables.len(), own), (6, program.tables[0].targets[..2].to_vec()));
    }
}

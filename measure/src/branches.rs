//! From branches that were taken to what ran: a trace of what perf records of a processor's branches.
//!
//! Between two branches control runs straight on, from where the one went to where the next leaves: through
//! the blocks that lie there. What an instruction that leaves is (a call, a return, a jump) and what it comes
//! to say whether a function is entered or left. A block is executed when control comes to its start: what a
//! stretch begins in the middle of is not.
//!
//! Where nothing is known of what came before (the first branch of a stack of branches, or behind lost data),
//! all that is open is left, by the end of a recording, and a function is entered from outside. Control that
//! goes to what is not known (a library that was not given, the kernel) and comes back to where it must goes
//! on there.
//!
//! Invariant: whatever the branches, what comes out is balanced.
#![warn(clippy::indexing_slicing)]

use program::arch::{ControlFlow, Insn};
use program::{BlockId, CallKind, EdgeKind, FuncId, Program, Va};
use std::collections::BTreeMap;
use trace::flow::Successors;
use trace::names::{Block, Function};
use trace::{Cause, Names, Symbol};

/// A file whose code may run.
pub struct Module<'p> {
    /// What it holds.
    pub program: &'p Program,
    /// The number of its first function in the trace.
    pub first: trace::FuncId,
}

/// The modules of `programs`, their functions numbered one after the other.
pub fn modules(programs: &[Program]) -> Vec<Module<'_>> {
    let mut first = 0_u32;
    let module = |program| {
        let module = Module { program, first: trace::FuncId(first) };
        first = first.saturating_add(u32::try_from(program.functions.len()).unwrap_or(u32::MAX));
        module
    };
    programs.iter().map(module).collect()
}

/// The names of all functions and blocks; `line` says which source line an address is of.
pub fn names(modules: &[Module<'_>], line: impl Fn(usize, Va) -> Option<(String, u32)>) -> Names {
    let mut names = Names::default();
    for (m, module) in modules.iter().enumerate() {
        for (n, func) in (module.first.0..).map(trace::FuncId).zip(module.program.func_ids()) {
            let function = module.program.function(func);
            let block = |id: BlockId| {
                let at = module.program.block(id).start;
                let (file, line) = line(m, at).unwrap_or_default();
                Block { at: at.0, file, line }
            };
            let blocks =
                (0..).map(trace::BlockId).zip(module.program.numbered_blocks(func).map(block)).collect();
            names.functions.insert(n, Function { name: function.name(), blocks });
        }
    }
    names
}

/// What may follow each block of each function.
pub fn follows(modules: &[Module<'_>]) -> BTreeMap<trace::FuncId, Vec<Successors>> {
    let mut all = BTreeMap::new();
    for module in modules {
        let program = module.program;
        for (n, func) in (module.first.0..).map(trace::FuncId).zip(program.func_ids()) {
            let edges = program.edges_of(func);
            let follow = |id: BlockId| Successors {
                by_any: program.block(id).end == program::BlockEnd::Unresolved,
                after_any: program.block(id).landing_pad || edges.iter().all(|e| e.to != id),
                leaves: match program.block(id).end {
                    program::BlockEnd::Unresolved => false,
                    _ => program.successors(id).iter().all(|e| e.kind == EdgeKind::LandingPad),
                } || program.calls_in(id).iter().any(|c| c.kind == CallKind::BranchTailCall),
                to: program
                    .successors(id)
                    .iter()
                    .map(|e| trace::BlockId(program.block_number(e.to)))
                    .collect(),
            };
            all.insert(n, program.numbered_blocks(func).map(follow).collect());
        }
    }
    all
}

/// An address in a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleVa {
    /// Which module.
    pub module: usize,
    /// In its file.
    pub at: Va,
}

/// Where control is.
#[derive(Clone, Copy, Debug)]
enum Control {
    /// At an instruction that is executed next.
    At(ModuleVa),
    /// In what is not known: called, or come to in some other way.
    Outside,
    /// Nothing is known.
    Lost,
}

/// A function that is open.
#[derive(Clone, Copy, Debug)]
struct Activation {
    module: usize,
    func: FuncId,
    /// Where it goes on when what it called returns.
    behind: Option<Va>,
    /// Where it was interrupted: it goes on there, or behind that.
    at: Option<Va>,
}

impl Activation {
    fn goes_on(&self, to: ModuleVa) -> bool {
        self.module == to.module && (self.behind == Some(to.at) || self.at == Some(to.at))
    }
}

/// What was wrong with a stream of branches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// How often a branch did not leave from where control was.
    pub n_astray: u64,
    /// How often it is not known what ran.
    pub n_gaps: u64,
}

/// Follows the branches of a thread.
pub struct Walker<'a> {
    modules: &'a [Module<'a>],
    control: Control,
    open: Vec<Activation>,
    /// What ran so far.
    pub symbols: Vec<u32>,
    /// What was wrong.
    pub faults: Faults,
}

/// The block that control comes to through the padding at `at`.
fn behind_padding(program: &Program, mut at: Va) -> Option<BlockId> {
    // Nobody pads to more than a page.
    for _ in 0..4096 {
        if let Some(id) = program.block_at(at) {
            return Some(id);
        }
        let insn = program::arch::decode(program.image.bytes_from(at)?, at)?;
        at = insn.end();
        if !insn.is_nop() {
            break;
        }
    }
    None
}

impl<'a> Walker<'a> {
    /// Of a thread of which nothing is known.
    pub fn new(modules: &'a [Module<'a>]) -> Walker<'a> {
        Walker {
            modules,
            control: Control::Lost,
            open: Vec::new(),
            symbols: Vec::new(),
            faults: Faults::default(),
        }
    }

    /// A branch was taken; `None` stands for what is not known. One that `interrupts` is of the kernel's
    /// making, whatever instruction is there.
    pub fn branch(&mut self, from: Option<ModuleVa>, to: Option<ModuleVa>, interrupts: bool) {
        // Code of no function, as the head of the PLT, is not known, either.
        let Some(from) = from.filter(|from| self.block_at(*from).is_some()) else {
            match (to, self.control) {
                (Some(to), _) => self.come(to),
                (None, Control::At(_)) => self.lose(),
                (None, _) => self.control = Control::Outside,
            }
            return;
        };
        self.run_to(from);
        let insn = self.insn(from);
        let end = insn.as_ref().map(Insn::end);
        match insn.map(|insn| insn.flow()).filter(|_| !interrupts) {
            Some(ControlFlow::Call(_) | ControlFlow::CallIndirect) => {
                if let Some(top) = self.open.last_mut() {
                    (top.behind, top.at) = (end, None);
                }
                match to {
                    Some(to) => self.enter(to, false),
                    None => self.control = Control::Outside,
                }
            }
            Some(ControlFlow::Return) => {
                self.leave(Cause::Return);
                match to {
                    Some(to) => self.come_back(to),
                    None => self.control = Control::Outside,
                }
            }
            Some(ControlFlow::Jump(_) | ControlFlow::Branch(_) | ControlFlow::JumpIndirect) => {
                self.jump(from, to)
            }
            // A signal, a system call, a fault.
            _ => {
                if let Some(top) = self.open.last_mut() {
                    (top.behind, top.at) = (end, Some(from.at));
                }
                self.control = Control::Outside;
                to.into_iter().for_each(|to| self.come(to));
            }
        }
    }

    /// Control was at an instruction; nothing is known of what it did then.
    pub fn seen_at(&mut self, at: Option<ModuleVa>) {
        if let (Some(at), Control::At(here)) = (at, self.control)
            && at.module == here.module
            && self.straight(here, at, false)
        {
            self.control = Control::At(at);
        }
    }

    /// What runs until the next branch is not known.
    pub fn lose(&mut self) {
        self.faults.n_gaps += u64::from(!matches!(self.control, Control::Lost));
        self.leave_above(0, Cause::RecordingEnd);
        self.control = Control::Lost;
    }

    /// The stream ends.
    pub fn finish(&mut self) {
        self.leave_above(0, Cause::RecordingEnd);
        self.control = Control::Lost;
    }

    fn program(&self, module: usize) -> Option<&'a Program> {
        self.modules.get(module).map(|m| m.program)
    }

    fn insn(&self, place: ModuleVa) -> Option<Insn> {
        let bytes = self.program(place.module)?.image.bytes_from(place.at)?;
        program::arch::decode(bytes, place.at)
    }

    fn block_at(&self, place: ModuleVa) -> Option<(FuncId, BlockId)> {
        let program = self.program(place.module)?;
        let id = program.block_at(place.at)?;
        Some((program.block(id).func, id))
    }

    /// The block that starts where control comes to.
    fn block_from(&self, place: ModuleVa) -> Option<(FuncId, BlockId)> {
        let program = self.program(place.module)?;
        let id = program.block_from(program.led_to(place.at))?;
        Some((program.block(id).func, id))
    }

    fn is_entry(&self, place: ModuleVa) -> bool {
        let Some((func, id)) = self.block_from(place) else { return false };
        self.program(place.module).is_some_and(|program| {
            let function = program.function(func);
            function.entry == place.at || function.entries.contains(&id) && !program.block(id).landing_pad
        })
    }

    fn is_top(&self, module: usize, func: FuncId) -> bool {
        self.open.last().is_some_and(|top| (top.module, top.func) == (module, func))
    }

    /// Control comes to the instruction at `from` without a branch.
    fn run_to(&mut self, from: ModuleVa) {
        if let Control::At(here) = self.control
            && here.module == from.module
            && self.straight(here, from, true)
        {
            return;
        }
        match self.control {
            Control::Lost => {}
            _ => {
                self.faults.n_astray += 1;
                self.lose();
            }
        }
        // In the middle of something.
        if let Some((func, _)) = self.block_at(from) {
            self.open_up(from.module, func, true);
        }
        self.control = Control::At(from);
    }

    /// Executes what lies between two places, if there is a way without a branch; else nothing.
    fn straight(&mut self, here: ModuleVa, end: ModuleVa, is_whole: bool) -> bool {
        let Some(program) = self.program(here.module) else { return false };
        if end.at < here.at {
            return false;
        }
        let mut passed = Vec::new();
        let mut id = match program.block_at(here.at) {
            Some(id) => id,
            // A call returned to padding.
            None => {
                let Some(next) = behind_padding(program, here.at) else { return false };
                if program.block(next).start > end.at {
                    return !is_whole;
                }
                passed.push((next, true));
                next
            }
        };
        while !program.block(id).range().contains(&end.at) {
            let falls = program.successors(id).iter().find(|e| e.kind == EdgeKind::FallThrough).map(|e| e.to);
            let runs_on = || {
                let call = program.calls_in(id).last().filter(|c| c.kind == CallKind::FallThrough)?;
                match call.callee {
                    program::Callee::Function(f) => program.entry_block(f),
                    _ => None,
                }
            };
            let Some(next) = falls.or_else(runs_on) else { return false };
            if program.block(next).start > end.at {
                // It is in the padding between the two, or there is no way.
                if is_whole {
                    return false;
                }
                break;
            }
            if program.block(next).start <= program.block(id).start {
                return false;
            }
            passed.push((next, falls.is_some()));
            id = next;
        }
        for (id, is_edge) in passed {
            if !is_edge {
                self.leave(Cause::Tail);
                self.open_up(here.module, program.block(id).func, false);
            }
            self.execute(here.module, id);
        }
        true
    }

    /// A jump: within a function, or out of it.
    fn jump(&mut self, from: ModuleVa, to: Option<ModuleVa>) {
        let leaves = self.block_at(from).is_some_and(|(func, id)| {
            let is_call = self.program(from.module).is_some_and(|program| {
                let calls = program.calls_in(id).iter();
                calls
                    .filter(|c| c.at == from.at)
                    .any(|c| !matches!(c.kind, CallKind::Call | CallKind::FallThrough))
            });
            let stays = to.and_then(|to| self.block_from(to).filter(|_| to.module == from.module));
            let stays = stays.is_some_and(|(f, _)| f == func);
            // A function that jumps to its own entry calls itself only if the program says so.
            !stays || is_call && to.is_some_and(|to| self.is_entry(to))
        });
        if leaves {
            self.leave(Cause::Tail);
            match to {
                Some(to) => self.enter(to, false),
                None => self.control = Control::Outside,
            }
            return;
        }
        match to.and_then(|to| Some((to, self.block_from(to)?))) {
            Some((to, (_, id))) => {
                self.execute(to.module, id);
                self.control = Control::At(to);
            }
            None => {
                self.faults.n_astray += 1;
                self.control = to.map_or(Control::Outside, Control::At);
            }
        }
    }

    /// A function is entered, by its entry or elsewhere.
    fn enter(&mut self, to: ModuleVa, is_from_outside: bool) {
        self.control = Control::At(to);
        match (self.block_from(to), self.block_at(to)) {
            (Some((func, id)), _) => {
                self.open_up(to.module, func, is_from_outside);
                self.execute(to.module, id);
            }
            (None, Some((func, _))) => {
                self.faults.n_astray += 1;
                self.open_up(to.module, func, is_from_outside);
            }
            // No code that is known.
            (None, None) => self.control = Control::Outside,
        }
    }

    /// Control comes from what is not known.
    fn come(&mut self, to: ModuleVa) {
        if matches!(self.control, Control::At(_)) {
            // Without having gone there.
            self.lose();
        }
        if self.open.last().is_some_and(|a| a.goes_on(to)) {
            self.go_on(to);
        } else if self.is_entry(to) {
            self.enter(to, true);
        } else if let Some(n) = self.open.iter().rposition(|a| a.goes_on(to)) {
            self.leave_above(n + 1, Cause::Longjmp);
            self.go_on(to);
        } else if let Some(n) = self.lands(to) {
            self.leave_above(n + 1, Cause::Exception);
            self.go_on(to);
        } else if let Some(n) = self.jumps_back(to) {
            self.leave_above(n + 1, Cause::Longjmp);
            self.go_on(to);
        } else {
            self.lose();
            match self.block_at(to) {
                Some((func, _)) => {
                    self.open_up(to.module, func, true);
                    self.go_on(to);
                }
                None => self.control = Control::Outside,
            }
        }
    }

    /// A function has returned to there.
    fn come_back(&mut self, to: ModuleVa) {
        if let Some(n) = self.open.iter().rposition(|a| a.module == to.module && a.behind == Some(to.at)) {
            // Those above were left without a return.
            self.leave_above(n + 1, Cause::Longjmp);
            self.go_on(to);
        } else if self.is_entry(to) {
            // A return that is a jump.
            self.enter(to, true);
        } else if let Some((func, _)) = self.block_at(to) {
            // Who called what had been open before anything was known.
            if !self.open.is_empty() {
                self.faults.n_astray += 1;
                self.lose();
            }
            self.open_up(to.module, func, true);
            self.go_on(to);
        } else {
            self.control = Control::Outside;
        }
    }

    /// The function on top goes on: with a block, if one starts there and it was not in it before.
    fn go_on(&mut self, to: ModuleVa) {
        let was_there = self.open.last_mut().is_some_and(|top| {
            top.behind = None;
            top.at.take() == Some(to.at)
        });
        if !was_there {
            self.block_from(to).into_iter().for_each(|(_, id)| self.execute(to.module, id));
        }
        self.control = Control::At(to);
    }

    /// The activation that has a landing pad there.
    fn lands(&self, to: ModuleVa) -> Option<usize> {
        let (func, id) = self.block_from(to)?;
        let lands = self.program(to.module)?.block(id).landing_pad;
        self.open.iter().rposition(|a| (a.module, a.func) == (to.module, func)).filter(|_| lands)
    }

    /// The activation that made a call that returns there, which may return once more.
    fn jumps_back(&self, to: ModuleVa) -> Option<usize> {
        let (func, _) = self.block_at(to)?;
        let program = self.program(to.module)?;
        let before = program.calls.partition_point(|c| c.at < to.at).checked_sub(1)?;
        let at = program.calls.get(before)?.at;
        let is_behind = self.insn(ModuleVa { at, ..to }).is_some_and(|insn| insn.end() == to.at);
        self.open.iter().rposition(|a| (a.module, a.func) == (to.module, func)).filter(|_| is_behind)
    }

    fn open_up(&mut self, module: usize, func: FuncId, is_from_outside: bool) {
        let first = self.modules.get(module).map_or(0, |m| m.first.0);
        let symbol = Symbol::enter(trace::FuncId(first.saturating_add(func.0)));
        self.symbols.push(if is_from_outside { symbol.from_outside().0 } else { symbol.0 });
        self.open.push(Activation { module, func, behind: None, at: None });
    }

    fn execute(&mut self, module: usize, id: BlockId) {
        let Some(program) = self.program(module) else { return };
        let func = program.block(id).func;
        if !self.is_top(module, func) {
            self.faults.n_astray += 1;
            self.open_up(module, func, true);
        }
        self.symbols.push(Symbol::block(trace::BlockId(program.block_number(id))).0);
    }

    fn leave(&mut self, cause: Cause) {
        if self.open.pop().is_some() {
            self.symbols.push(Symbol::exit(cause).0);
        }
    }

    fn leave_above(&mut self, n: usize, cause: Cause) {
        while self.open.len() > n {
            self.leave(cause);
        }
    }
}

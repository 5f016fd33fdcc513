//! What a name stands for: all functions that bear it, and in place of a resolver of an indirect function
//! those that it may return.
//!
//! A forward walk over the resolver's blocks: which constant addresses registers and slots of its frame may
//! hold. A conditional move takes both; a load through a slot of the image takes what its relocation says; a
//! load from a table of functions takes all of them.
//!
//! Source: System V ABI, AMD64 supplement, 3.2.3 (results are in rax), 3.2.1 (what a call keeps); GNU gABI
//! extensions, STT_GNU_IFUNC.

use crate::addr::Va;
use crate::arch::{ControlFlow, Insn, Operand, Reg, RegSet, Step};
use crate::ids::{BlockId, FuncId};
use crate::image::{RelocationTo, SymbolKind};
use crate::model::{BlockEnd, CallKind, Callee, Program};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Resolvers with more blocks are nobody's.
const MAX_BLOCKS: usize = 4096;
/// How deep helpers of a resolver may call each other.
const MAX_DEPTH: usize = 8;
/// No table of implementations is longer.
const MAX_TABLE: u64 = 256;
/// Where functions return what they return.
const RESULT: Reg = Reg::general(0);

/// A function that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bearer {
    /// The function.
    pub func: FuncId,
    /// The resolver that may return it, where that bears the name.
    pub resolver: Option<FuncId>,
}

/// What a resolver may return.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Returned {
    /// Functions, by entry.
    pub functions: Vec<FuncId>,
    /// Whether these are all: else it may return what was not understood, too.
    pub is_whole: bool,
}

impl Program {
    /// The functions that bear the symbol `name`, in whatever version, those that resolvers may return in
    /// place of these; by entry. A resolver of which nothing is known stands for itself.
    pub fn bearers(&self, name: &str) -> Vec<Bearer> {
        let named = self.func_ids().filter(|&f| self.function(f).names.iter().any(|n| **n == *name));
        let mut all: Vec<Bearer> = named.flat_map(|f| self.meant_by(f)).collect();
        all.sort_unstable();
        all.dedup_by_key(|b| b.func);
        all
    }

    /// What is meant where `func` is named: itself, or what it may return if it is a resolver.
    pub fn meant_by(&self, func: FuncId) -> Vec<Bearer> {
        let returned =
            if self.resolvers().contains(&func) { self.returned_by(func).functions } else { Vec::new() };
        match returned.as_slice() {
            [] => vec![Bearer { func, resolver: None }],
            all => all.iter().map(|&f| Bearer { func: f, resolver: Some(func) }).collect(),
        }
    }

    /// Functions that the dynamic linker calls to learn which functions others are.
    pub fn resolvers(&self) -> BTreeSet<FuncId> {
        let of_symbols = self.image.symbols.iter().filter(|s| s.kind == SymbolKind::IndirectFunction);
        let of_relocations = self.image.relocations.iter().filter_map(|r| match r.to {
            RelocationTo::Resolver(at) => Some(at),
            _ => None,
        });
        of_symbols.map(|s| s.at).chain(of_relocations).filter_map(|at| self.function_from(at)).collect()
    }

    /// The functions that the resolver `func` may return the address of.
    pub fn returned_by(&self, func: FuncId) -> Returned {
        let values = returned(self, func, &mut Vec::new());
        let mut is_whole = !values.other;
        let mut found = BTreeSet::new();
        for at in values.known.into_iter().filter(|at| at.0 != 0) {
            match entry(self, at) {
                Some(f) => drop(found.insert(f)),
                None => is_whole = false,
            }
        }
        if !is_whole {
            // It returns one that it names, by ways that were not followed.
            let absolute = !self.image.kind.is_relocated();
            let insns = self.function(func).block_ids().flat_map(|b| self.insns(b));
            let named = insns.flat_map(|insn| insn.refers_to(absolute).into_iter().flatten());
            let places = named.flat_map(|(at, _)| table(self, at).known.into_iter().chain([at]));
            found.extend(places.filter_map(|at| entry(self, at)).filter(|f| *f != func));
        }
        Returned { functions: found.into_iter().collect(), is_whole }
    }
}

/// The function with an entry at `at`.
fn entry(program: &Program, at: Va) -> Option<FuncId> {
    program.function_from(at).or_else(|| {
        let func = program.block(program.block_from(at)?).func;
        let is_entry = |b: &BlockId| program.block(*b).start == at;
        program.function(func).entries.iter().any(is_entry).then_some(func)
    })
}

/// Constants that a place may hold, and whether it may hold something else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Values {
    known: BTreeSet<Va>,
    other: bool,
}

impl Values {
    const fn other() -> Values {
        Values { known: BTreeSet::new(), other: true }
    }

    fn one(at: Va) -> Values {
        Values { known: BTreeSet::from([at]), other: false }
    }

    fn join(&mut self, with: &Values) {
        self.known.extend(&with.known);
        self.other |= with.other;
    }
}

/// A register, or a slot of the frame: its base register and what is added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Register(Reg),
    Slot(Reg, i64),
}

/// What places hold; those that are not there hold something else.
type State = BTreeMap<Place, Values>;

fn joined(state: &mut State, with: &State) {
    for (place, values) in state.iter_mut() {
        values.join(with.get(place).unwrap_or(&Values::other()));
    }
    for (place, values) in with.iter().filter(|(_, values)| !values.known.is_empty()) {
        state.entry(*place).or_insert_with(|| Values { other: true, ..values.clone() });
    }
}

/// What `func` returns; `callers` are those that wait for it.
fn returned(program: &Program, func: FuncId, callers: &mut Vec<FuncId>) -> Values {
    let function = program.function(func);
    let Some(first) = program.entry_block(func) else { return Values::other() };
    if callers.contains(&func) || callers.len() >= MAX_DEPTH || function.n_blocks() > MAX_BLOCKS {
        return Values::other();
    }
    callers.push(func);
    let mut result = Values::default();
    let mut states: HashMap<BlockId, State> = HashMap::from([(first, State::new())]);
    let mut todo = vec![first];
    // Each pass adds a value to a place; there are few of either.
    let mut left = 64 * function.n_blocks();
    while let Some(block) = todo.pop() {
        let Some(enough) = left.checked_sub(1) else {
            result.other = true;
            break;
        };
        left = enough;
        let mut state = states.get(&block).cloned().unwrap_or_default();
        for insn in program.insns(block) {
            step(program, block, &insn, &mut state, callers);
        }
        leave(program, block, &state, callers, &mut result);
        for edge in program.successors(block) {
            let before = states.get(&edge.to);
            let after = match before {
                None => state.clone(),
                Some(before) => {
                    let mut after = before.clone();
                    joined(&mut after, &state);
                    after
                }
            };
            if before != Some(&after) {
                states.insert(edge.to, after);
                todo.push(edge.to);
            }
        }
    }
    callers.pop();
    result
}

/// Adds to `result` what is returned at the end of `block`.
fn leave(program: &Program, block: BlockId, state: &State, callers: &mut Vec<FuncId>, result: &mut Values) {
    let last = program.block(block).last_insn();
    match program.block(block).end {
        BlockEnd::Return => result.join(&held(state, Place::Register(RESULT))),
        BlockEnd::IndirectTailCall | BlockEnd::Unresolved | BlockEnd::Broken => result.other = true,
        _ => {
            let out = program.calls_in(block).iter().filter(|c| c.at == last && c.kind != CallKind::Call);
            for call in out {
                match call.callee {
                    Callee::Function(callee) => result.join(&returned(program, callee, callers)),
                    _ => result.other = true,
                }
            }
        }
    }
}

fn held(state: &State, place: Place) -> Values {
    state.get(&place).cloned().unwrap_or_else(Values::other)
}

fn put(state: &mut State, place: Place, values: Values) {
    if values.known.is_empty() {
        state.remove(&place);
    } else {
        state.insert(place, values);
    }
}

/// What `insn` does to `state`.
fn step(program: &Program, block: BlockId, insn: &Insn, state: &mut State, callers: &mut Vec<FuncId>) {
    if matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect) {
        let callee = program.calls_in(block).iter().find(|c| c.at == insn.at()).map(|c| c.callee);
        let result = match callee {
            Some(Callee::Function(callee)) => returned(program, callee, callers),
            _ => Values::other(),
        };
        let lost = RegSet::lost_at_calls();
        state.retain(|place, _| !matches!(place, Place::Register(reg) if lost.contains(*reg)));
        put(state, Place::Register(RESULT), result);
        return;
    }
    let operands: Vec<Operand> = insn.operands().take(2).collect();
    let (to, values) = match (insn.step(), operands.as_slice()) {
        (Step::Copy { to, from, .. }, _) => (Some(Place::Register(to)), value(program, state, from)),
        (Step::Address { to, from: Operand::Place { at, index: None, base: None, .. } }, _) => {
            (Some(Place::Register(to)), Values::one(at))
        }
        (Step::Store { to, from }, _) => (slot(to), held(state, Place::Register(from))),
        (Step::Compare { .. }, _) => (None, Values::other()),
        // A conditional move.
        (_, &[Operand::Reg(to, 8), from]) if insn.condition() != 0 => {
            let mut values = held(state, Place::Register(to));
            values.join(&value(program, state, from));
            (Some(Place::Register(to)), values)
        }
        (_, &[Operand::Reg(to, _), _]) if insn.is_zeroing() => {
            (Some(Place::Register(to)), Values::one(Va(0)))
        }
        (_, &[to, Operand::Imm(n)]) if slot(to).is_some() && !insn.sets_flags() => {
            (slot(to), Values::one(Va(n.cast_unsigned())))
        }
        (_, &[to, ..]) => (slot(to).filter(|_| insn.stack_move().is_none()), Values::other()),
        _ => (None, Values::other()),
    };
    let written = insn.effects().writes;
    // Slots are known by what their base holds.
    state.retain(
        |place, _| !matches!(place, Place::Register(reg) | Place::Slot(reg, _) if written.contains(*reg)),
    );
    if let Some(to) = to {
        put(state, to, values);
    }
}

/// What `from` holds.
fn value(program: &Program, state: &State, from: Operand) -> Values {
    let image = &program.image;
    match from {
        Operand::Reg(reg, _) => held(state, Place::Register(reg)),
        Operand::Imm(n) => Values::one(Va(n.cast_unsigned())),
        Operand::Place { at, index: None, base: None, size: 8 } if image.is_constant(at) => {
            image.address_at(at).map_or_else(Values::other, Values::one)
        }
        Operand::Place { at, size: 8, .. } if image.is_constant(at) => table(program, at),
        Operand::Mem { base: Some(base), index: Some((index, scale)), disp: 0, size: 8, segment: None } => {
            // Without optimisation, the table's address is what is added.
            let parts = [Some(base), Some(index).filter(|_| scale == 1)].into_iter().flatten();
            let held = parts.map(|reg| held(state, Place::Register(reg)));
            match held.filter(|values| !values.known.is_empty()).collect::<Vec<Values>>().as_slice() {
                [start] => {
                    let mut all = Values { other: start.other, ..Values::default() };
                    start.known.iter().for_each(|at| all.join(&table(program, *at)));
                    all
                }
                _ => Values::other(),
            }
        }
        from => slot(from).map_or_else(Values::other, |place| held(state, place)),
    }
}

/// The slot of the frame that `operand` is.
fn slot(operand: Operand) -> Option<Place> {
    match operand {
        Operand::Mem { base: Some(base), index: None, disp, segment: None, .. } if base.is_frame() => {
            Some(Place::Slot(base, disp))
        }
        _ => None,
    }
}

/// The functions whose addresses stand from `at` on.
fn table(program: &Program, at: Va) -> Values {
    let image = &program.image;
    let word = |n: u64| image.address_at(at.plus(8 * n)).filter(|to| entry(program, *to).is_some());
    let known: BTreeSet<Va> =
        (0..MAX_TABLE).map_while(|n| word(n).filter(|_| image.is_constant(at.plus(8 * n)))).collect();
    Values { other: known.is_empty(), known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use std::process::Command;

    /// Implementations, and resolvers of each way that compilers go.
    const SOURCE: &str = "
        #define HERE static __attribute__((noinline, noclone))
        extern int level(void), flags[4];
        int level(void) { return flags[3]; } int flags[4];
        HERE int a(int n) { return n + 1; } HERE int b(int n) { return n * 3; } HERE int c(int n) { return n - 7; }
        HERE int never(int n) { return n ^ 9; }
        typedef int (*one)(int); one volatile kept = never;
        static one const all[] = { a, b, c };
        HERE one helper(int n) { return n > 1 ? a : c; }
        HERE one pick_branches(void) { if (flags[0]) return a; return flags[1] ? b : c; }
        HERE one pick_by_helper(void) { one got = helper(level()); if (!got) return b; return got; }
        HERE one pick_in_table(void) { return all[flags[0] & 3]; }
        HERE one pick_slowly(void) { one best = c; for (int i = 0; i < flags[2]; i++) if (flags[i & 3] == 5) best = b; return best; }
        #define OF(name, pick) int name(int) __attribute__((ifunc(#pick)));
        OF(branches, pick_branches) OF(by_helper, pick_by_helper) OF(in_table, pick_in_table) OF(slowly, pick_slowly)
        int main(int n, char **v) { return branches(n) + by_helper(n) + in_table(n) + slowly(n) + kept(n); }";

    /// What the resolver of `name` may return, by name.
    fn found(program: &Program, name: &str) -> String {
        let bearers = program.bearers(name);
        assert!(bearers.iter().all(|b| b.resolver.is_some()), "{name}");
        let names: BTreeSet<String> = bearers.iter().map(|b| program.function(b.func).name()).collect();
        names.into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_resolver_may_return_what_it_takes_the_address_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (text, file) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&text, SOURCE).expect("written");
        for flags in [
            "-O2",
            "-O0",
            "-O1 -no-pie",
            "-O0 -no-pie",
            "-Os -fcf-protection=full",
            "-O3 -static",
            "-O2 -shared -fPIC",
        ] {
            let mut gcc = Command::new("gcc");
            let made = gcc.args(flags.split_whitespace()).arg("-o").arg(&file).arg(&text).status();
            assert!(made.expect("gcc runs").success());
            let program = Program::analyze(Image::load(&file).expect("an image"));
            for (name, want) in
                [("branches", "a b c"), ("by_helper", "a b c"), ("in_table", "a b c"), ("slowly", "b c")]
            {
                assert_eq!(found(&program, name), want, "{name}, {flags}");
            }
        }
    }
}

//! Whether a function looks at what its caller put on the stack: arguments that had no room in registers.
//!
//! A forward walk: which registers hold the stack pointer of the entry, and how far from it. What stands at 8
//! bytes above it or more is the caller's.
//!
//! Source: System V ABI, AMD64 supplement, 3.2.2 (the stack frame).

use crate::arch::{ControlFlow, Insn, Operand, Reg, RegSet, StackMove, Step};
use crate::ids::{BlockId, FuncId};
use crate::model::{CallKind, Callee, Program};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Functions with more blocks are not looked through: they may do anything.
const MAX_BLOCKS: usize = 1 << 16;
const STACK_POINTER: Reg = Reg::general(4);
const FRAME_POINTER: Reg = Reg::general(5);

/// How far from the stack pointer of the entry what a register holds is.
pub(super) type State = BTreeMap<Reg, i64>;

impl Program {
    /// Whether `func`, or a function that it jumps to in the end, looks at memory above its return address.
    pub fn takes_arguments_in_memory(&self, func: FuncId) -> bool {
        let (mut seen, mut todo) = (BTreeSet::from([func]), vec![func]);
        while let Some(func) = todo.pop() {
            if looks_above(self, func) {
                return true;
            }
            let calls = self.function(func).block_ids().flat_map(|block| self.calls_in(block));
            for call in calls.filter(|call| call.kind != CallKind::Call) {
                if let Callee::Function(callee) = call.callee
                    && seen.insert(callee)
                {
                    todo.push(callee);
                }
            }
        }
        false
    }

    /// Of the blocks of `func` that its entry leads to: how far above its entry's the stack pointer is at
    /// their end, in bytes (0 or less). Blocks where that is not known are missing.
    pub fn stack_heights_at_ends(&self, func: FuncId) -> BTreeMap<BlockId, i64> {
        let states = states(self, func, &mut |_, _| true).unwrap_or_default();
        let at_end = |(block, mut state): (BlockId, State)| {
            self.insns(block).for_each(|insn| step(&insn, &mut state));
            Some((block, state.get(&STACK_POINTER).copied()?))
        };
        states.into_iter().filter_map(at_end).collect()
    }
}

fn looks_above(program: &Program, func: FuncId) -> bool {
    program.entry_block(func).is_some()
        && states(program, func, &mut |insn, state| !is_above(insn, state)).is_none()
}

/// What registers hold at the start of each block that the entry leads to. None if the function is too large,
/// or `goes_on` says of an instruction, and of what registers hold before it, that that is enough.
pub(super) fn states(
    program: &Program,
    func: FuncId,
    goes_on: &mut dyn FnMut(&Insn, &State) -> bool,
) -> Option<HashMap<BlockId, State>> {
    let first = program.entry_block(func)?;
    if program.function(func).n_blocks() > MAX_BLOCKS {
        return None;
    }
    let mut states: HashMap<BlockId, State> = HashMap::from([(first, State::from([(STACK_POINTER, 0)]))]);
    let mut todo = vec![first];
    while let Some(block) = todo.pop() {
        let mut state = states.get(&block).cloned().unwrap_or_default();
        for insn in program.insns(block) {
            if !goes_on(&insn, &state) {
                return None;
            }
            step(&insn, &mut state);
        }
        for edge in program.successors(block) {
            let mut after = state.clone();
            // What is not the same on all ways is not known: so each register is lost once at most.
            if let Some(before) = states.get(&edge.to) {
                after.retain(|reg, at| before.get(reg) == Some(at));
                if after.len() == before.len() {
                    continue;
                }
            }
            states.insert(edge.to, after);
            todo.push(edge.to);
        }
    }
    Some(states)
}

/// Whether an operand is the caller's memory, or its address.
fn is_above(insn: &Insn, state: &State) -> bool {
    insn.operands().any(|operand| match operand {
        Operand::Mem { base: Some(base), disp, segment: None, .. } => {
            state.get(&base).is_some_and(|at| at.saturating_add(disp) >= 8)
        }
        _ => false,
    })
}

fn step(insn: &Insn, state: &mut State) {
    if matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect) {
        let lost = RegSet::lost_at_calls();
        state.retain(|reg, _| !lost.contains(*reg));
        return;
    }
    let held = |state: &State, reg: Reg| state.get(&reg).copied();
    if let Some(moved) = insn.stack_move() {
        let (to, at) = match moved {
            StackMove::By(n) => (STACK_POINTER, held(state, STACK_POINTER).map(|at| at.wrapping_add(n))),
            StackMove::FromFrame(n) => {
                (STACK_POINTER, held(state, FRAME_POINTER).map(|at| at.wrapping_add(n)))
            }
            StackMove::ToFrame => (FRAME_POINTER, held(state, STACK_POINTER)),
            StackMove::Unknown => (STACK_POINTER, None),
        };
        let written = insn.effects().writes;
        state.retain(|reg, _| !written.contains(*reg) || *reg == STACK_POINTER);
        put(state, to, at);
        return;
    }
    let to = match insn.step() {
        Step::Copy { to, from: Operand::Reg(from, 8), .. } => Some((to, held(state, from))),
        Step::Address { to, from: Operand::Mem { base: Some(base), index: None, disp, .. } } => {
            Some((to, held(state, base).map(|at| at.wrapping_add(disp))))
        }
        Step::Add { to, from: Operand::Imm(n) } => Some((to, held(state, to).map(|at| at.wrapping_add(n)))),
        _ => None,
    };
    let written = insn.effects().writes;
    state.retain(|reg, _| !written.contains(*reg));
    if let Some((to, at)) = to {
        put(state, to, at);
    }
}

fn put(state: &mut State, reg: Reg, at: Option<i64>) {
    match at {
        Some(at) => drop(state.insert(reg, at)),
        None => drop(state.remove(&reg)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use std::process::Command;

    const SOURCE: &str = "
        #define HERE __attribute__((noinline, noclone))
        #include <stdarg.h>
        HERE long six(long a, long b, long c, long d, long e, long f) { return a + b + c + d + e + f; }
        HERE long takes(long a, long b, long c, long d, long e, long f, long g) { return a + g + six(a, b, c, d, e, f); }
        HERE long jumps(long a, long b, long c, long d, long e, long f, long g) { return takes(b, a, c, d, e, f, g); }
        HERE long jumps_to_six(long a, long b, long c, long d, long e, long f) { return six(b, a, c, d, e, f); }
        HERE long fills(volatile long *p) { volatile long room[99]; room[*p] = 1; return room[3] + six(1, 2, 3, 4, 5, 6); }
        HERE long sums(int n, ...) { va_list l; long s = 0; va_start(l, n); while (n--) s += va_arg(l, long); va_end(l); return s; }
        struct large { long a[4]; };
        HERE long large(struct large l) { return l.a[2]; }
        int main(int n, char **v) { struct large l = {{n}}; volatile long p = n;
            return jumps(n, 2, 3, 4, 5, 6, 7) + jumps_to_six(n, 2, 3, 4, 5, 6) + fills(&p) + sums(1, 2L) + large(l); }
    ";

    #[test]
    fn who_reads_above_the_return_address_takes_arguments_in_memory() {
        for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"], &["-O1", "-mavx"]] {
            let dir = tempfile::tempdir().expect("a folder for the test's files");
            let (source, binary) = (dir.path().join("a.c"), dir.path().join("a"));
            std::fs::write(&source, SOURCE).expect("the folder can be written");
            let out = Command::new("gcc").args(flags).arg(&source).arg("-o").arg(&binary).output();
            assert!(out.expect("gcc is there").status.success());
            let program = Program::analyze(Image::load(&binary).expect("gcc makes good files"));
            let takes = |name: &str| {
                let [one] = program.bearers(name)[..] else { panic!("one {name}") };
                program.takes_arguments_in_memory(one.func)
            };
            for name in ["takes", "jumps", "sums", "large"] {
                assert!(takes(name), "{name} {flags:?}");
            }
            for name in ["six", "jumps_to_six", "fills", "main"] {
                assert!(!takes(name), "{name} {flags:?}");
            }
        }
    }
}

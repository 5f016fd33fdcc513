//! Whether what a function returns depends on its arguments in registers alone, and it changes nothing.
//!
//! A function is *pure* here if on every way through it, and through what it calls, it writes to its own
//! frame only, reads that and what never changes, and asks nothing of the processor or the kernel. What a
//! program cannot be shown not to do, it does: the answer is no where it is not known.
//!
//! An address that is made of the stack pointer and a register that was computed is taken for one in the
//! frame: what writes elsewhere by it is wrong without us, too.
//!
//! Source: VPROF, section 2.2: calls that may be remembered.

use super::stack_arguments::{State, states};
use crate::arch::{ControlFlow, EffectsOf, Insn, MemoryUse, abi};
use crate::ids::FuncId;
use crate::model::{BlockEnd, Callee, Program};
use std::collections::BTreeSet;

/// What ends the program where a frame was overrun: who calls that is not impure by it.
const ENDS: [&str; 2] = ["__stack_chk_fail", "abort"];
/// Where the value is that frames are checked by, from `fs`.
const CANARY: i64 = 0x28;
/// Of longer chains of calls nothing is shown.
const MOST_FUNCTIONS: usize = 64;

impl Program {
    /// Whether `func` is pure; `is_known` says so of functions of other modules, by their names.
    pub fn is_pure(&self, func: FuncId, is_known: &dyn Fn(&str) -> bool) -> bool {
        let (mut seen, mut todo) = (BTreeSet::from([func]), vec![func]);
        let mut call = |callee: FuncId, todo: &mut Vec<FuncId>| {
            if seen.insert(callee) {
                todo.push(callee);
            }
            seen.len() <= MOST_FUNCTIONS
        };
        while let Some(func) = todo.pop() {
            let function = self.function(func);
            if let Some(import) = &function.import {
                if is_known(bare(import)) || ENDS.contains(&bare(import)) {
                    continue;
                }
                return false;
            }
            if !is_body_pure(self, func) {
                return false;
            }
            for block in function.block_ids() {
                for called in self.calls_in(block) {
                    let is_pure = match called.callee {
                        Callee::Function(callee) => call(callee, &mut todo),
                        Callee::Import(n) => self
                            .imports
                            .get(n as usize)
                            .is_some_and(|name| is_known(bare(name)) || ENDS.contains(&bare(name))),
                        Callee::Unknown(_) | Callee::Indirect => false,
                    };
                    if !is_pure {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Whether `func`, or what it calls, may calculate with floating-point numbers, which changes flags: it
    /// is not shown that nobody of them names a register for these.
    pub fn may_use_floats(&self, func: FuncId) -> bool {
        let (mut seen, mut todo) = (BTreeSet::from([func]), vec![func]);
        let mut effects = EffectsOf::new();
        let is_call = |flow| matches!(flow, ControlFlow::Call(_) | ControlFlow::CallIndirect);
        while let Some(func) = todo.pop() {
            let function = self.function(func);
            if function.import.is_some() || seen.len() > MOST_FUNCTIONS {
                return true;
            }
            for block in function.block_ids() {
                let mut names_one = |insn: &Insn| {
                    let effects = effects.effects(insn);
                    !effects.reads.union(effects.writes).both(abi::OF_FLOATS).is_empty()
                };
                // A call may change them all.
                if self.insns(block).any(|insn| !is_call(insn.flow()) && names_one(&insn)) {
                    return true;
                }
                // Who does not come back leaves nothing behind.
                for called in self.calls_in(block).iter().filter(|call| call.returns) {
                    match called.callee {
                        Callee::Function(callee) if seen.insert(callee) => todo.push(callee),
                        Callee::Function(_) => {}
                        _ => return true,
                    }
                }
            }
        }
        false
    }

    /// Whether `func` is known to call itself, if through others.
    pub fn is_recursive(&self, func: FuncId) -> bool {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![func]);
        while let Some(next) = todo.pop() {
            for called in self.function(next).block_ids().flat_map(|block| self.calls_in(block)) {
                match called.callee {
                    Callee::Function(callee) if callee == func => return true,
                    Callee::Function(callee) if seen.len() < MOST_FUNCTIONS && seen.insert(callee) => {
                        todo.push(callee);
                    }
                    _ => {}
                }
            }
        }
        false
    }
}

/// A symbol without its version.
fn bare(symbol: &str) -> &str {
    symbol.split('@').next().unwrap_or_default()
}

/// Whether the code of `func` alone is pure.
fn is_body_pure(program: &Program, func: FuncId) -> bool {
    let is_fine = |insn: &Insn, state: &State| {
        !insn.reaches_outside() && insn.memory_uses().iter().all(|used| is_own(program, used, state))
    };
    let Some(states) = states(program, func, &mut |insn, state| is_fine(insn, state)) else { return false };
    program.function(func).block_ids().all(|block| {
        let ends_well =
            !matches!(program.block(block).end, BlockEnd::Unresolved | BlockEnd::Broken | BlockEnd::Switch);
        // Blocks that the entry does not lead to are reached by no edge: exceptions, or another entry.
        states.contains_key(&block) && ends_well
    })
}

/// Whether memory is the function's frame, or what never changes and is only read.
fn is_own(program: &Program, used: &MemoryUse, state: &State) -> bool {
    if used.segment.is_some() {
        return !used.is_written && used.base.is_none() && used.disp == CANARY;
    }
    if let Some(place) = used.place {
        return !used.is_written && program.image.is_constant(place);
    }
    let Some(height) = used.base.and_then(|base| state.get(&base)) else { return false };
    let at = height.saturating_add(used.disp);
    // At 0 is the return address, which `ret` reads.
    at < 0 || (at == 0 && !used.is_written)
}

#[cfg(test)]
mod tests {
    use crate::image::Image;
    use crate::model::Program;
    use std::process::Command;

    const SOURCE: &str = "
        #define HERE __attribute__((noinline, noclone))
        #include <math.h>
        long n_calls, table[8]; const double factors[4] = {1, 2, 3, 4}; int volatile seed;
        HERE double root(double x) { double y = x; for (int i = 0; i < 99; i++) y = (y + x / y) / 2; return y; }
        HERE double calls_pure(double x) { return root(x) + root(x + 1) * 0.125; }
        HERE double calls_libm(double x) { return exp(x) * 2; }
        HERE long recurses(long n) { return n < 2 ? n : recurses(n - 1) + recurses(n - 2); }
        HERE double framed(double x) { volatile double a[4] = {x, 2, 3, 4}; return a[0] + a[3]; }
        HERE double counts(double x) { n_calls++; return x * x; }
        HERE double reads(double x) { return x * n_calls; }
        HERE double points(double x, double *p) { return x + *p; }
        HERE void writes(long *p) { *p = 3; }
        HERE double calls_impure(double x) { return counts(x) + 1; }
        HERE double through(double x, double (*f)(double)) { return f(x) + 1; }
        HERE unsigned long clock_of(void) { return __builtin_ia32_rdtsc(); }
        HERE long seventh(long a, long b, long c, long d, long e, long f, long g) { return a + g; }
        int main(int n, char **v) {
            double x = root(n) + calls_pure(n) + calls_libm(n) + recurses(n) + framed(n) + counts(n) + reads(n)
                + points(n, &x) + calls_impure(n) + through(n, root) + clock_of() + seventh(1, 2, 3, 4, 5, 6, n);
            writes(table); return x > 3; }
    ";

    #[test]
    fn who_depends_on_arguments_alone_and_changes_nothing_is_pure() {
        for flags in [&["-O1"][..], &["-O2", "-fno-omit-frame-pointer"], &["-O2", "-fstack-protector-all"]] {
            let dir = tempfile::tempdir().expect("a folder for the test's files");
            let (source, binary) = (dir.path().join("a.c"), dir.path().join("a"));
            std::fs::write(&source, SOURCE).expect("the folder can be written");
            let out = Command::new("gcc").args(flags).arg(&source).arg("-o").arg(&binary).arg("-lm").output();
            assert!(out.expect("gcc is there").status.success());
            let program = Program::analyze(Image::load(&binary).expect("gcc makes good files"));
            let is_pure = |name: &str, is_known: &dyn Fn(&str) -> bool| {
                let [one] = program.bearers(name)[..] else { panic!("one {name}") };
                program.is_pure(one.func, is_known)
            };
            let knows_exp = |name: &str| name == "exp";
            for name in ["root", "calls_pure", "calls_libm", "recurses", "framed"] {
                assert!(is_pure(name, &knows_exp), "{name} {flags:?}");
            }
            assert!(!is_pure("calls_libm", &|_| false), "{flags:?}");
            let may_use_floats = |name: &str| {
                let [one] = program.bearers(name)[..] else { panic!("one {name}") };
                program.may_use_floats(one.func)
            };
            assert!(!may_use_floats("recurses") && !may_use_floats("seventh"), "{flags:?}");
            for name in ["root", "calls_pure", "calls_libm", "framed", "main"] {
                assert!(may_use_floats(name), "{name} {flags:?}");
            }
            for name in [
                "counts",
                "reads",
                "points",
                "writes",
                "calls_impure",
                "through",
                "clock_of",
                "seventh",
                "main",
            ] {
                assert!(!is_pure(name, &knows_exp), "{name} {flags:?}");
            }
        }
    }
}

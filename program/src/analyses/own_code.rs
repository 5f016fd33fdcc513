//! Whether a function runs code of its own module alone.
//!
//! What it calls is followed; where it is not known what that is, the answer is no. Signal handlers are not
//! in it: nobody calls them.

use crate::ids::FuncId;
use crate::model::{BlockEnd, Callee, Program};
use std::collections::BTreeSet;

impl Program {
    /// Whether all code that `func` may come to before it comes back is of this module, and known.
    pub fn stays_in_module(&self, func: FuncId) -> bool {
        let (mut seen, mut todo) = (BTreeSet::from([func]), vec![func]);
        while let Some(func) = todo.pop() {
            let function = self.function(func);
            if function.import.is_some() {
                return false;
            }
            for block in function.block_ids() {
                let end = self.block(block).end;
                if matches!(end, BlockEnd::Unresolved | BlockEnd::Broken | BlockEnd::IndirectTailCall) {
                    return false;
                }
                for called in self.calls_in(block) {
                    let Callee::Function(callee) = called.callee else { return false };
                    if seen.insert(callee) {
                        todo.push(callee);
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::image::Image;
    use crate::model::Program;
    use std::process::Command;

    const SOURCE: &str = "
        #define HERE __attribute__((noipa))
        #include <stdlib.h>
        HERE long leaf(long n) { return n * 3; }
        HERE long stays(long n) { long s = 0; while (n--) s += leaf(n); return leaf(s); }
        HERE long recurses(long n) { return n < 2 ? n : recurses(n - 1) + recurses(n - 2); }
        HERE long leaves(long n) { return labs(atol(\"1\")) + n; }
        HERE long later(long n) { return stays(n) + leaves(n); }
        HERE long through(long n, long (*f)(long)) { return f(n) + 1; }
        HERE long jumps(long n, long (*f)(long)) { return f(n); }
        int main(int n, char **v) {
            return stays(n) + recurses(n) + leaves(n) + later(n) + through(n, leaf) + jumps(n, leaf); }
    ";

    #[test]
    fn what_calls_by_pointers_or_imports_may_run_anywhere() {
        let dir = tempfile::tempdir().expect("a folder for the test's files");
        let (source, binary) = (dir.path().join("a.c"), dir.path().join("a"));
        std::fs::write(&source, SOURCE).expect("the folder can be written");
        let out = Command::new("gcc").arg("-O2").arg(&source).arg("-o").arg(&binary).output();
        assert!(out.expect("gcc is there").status.success());
        let program = Program::analyze(Image::load(&binary).expect("gcc makes good files"));
        for (name, want) in [
            ("leaf", true),
            ("stays", true),
            ("recurses", true),
            ("leaves", false),
            ("later", false),
            ("through", false),
            ("jumps", false),
        ] {
            let [one] = program.bearers(name)[..] else { panic!("one {name}") };
            assert_eq!(program.stays_in_module(one.func), want, "{name}");
        }
    }
}

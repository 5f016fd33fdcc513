//! Functions that one build inlined and the other did not: whose blocks go where.

use super::*;
use crate::options::{Options, Pass};
use crate::relation::Matching;
use crate::testing::{compile, function};

/// A program in which `helper` is called by `user`, or inlined into it; each of its ways ends in a call of
/// its own.
fn program(inlined: bool) -> Program {
    let how = if inlined { "always_inline" } else { "noinline" };
    let text = format!(
        "extern int one(long), two(long, long), three(void), four(int), five(int);
         static inline __attribute__(({how})) int helper(long a, long *b) {{
             int n = 0;
             if (a > 77) {{ n = one(a); }} else if (*b == 5005) {{ n += two(a, *b); }}
             while (b[n] != 31337) {{ n += three(); if (n > 4242) return four(n); }}
             return n * 17;
         }}
         int user(long a, long *b) {{
             if (a == 1) return five(1);
             int n = helper(a, b);
             return five(n) + 3;
         }}
         int another(long a, long *b) {{ return five(helper(a + 1, b) * 2); }}"
    );
    compile(&text, "c", &["-O2", "-shared", "-fPIC", "-nostartfiles"])
}

/// Old blocks of `from` that blocks of `to` were matched to as inlined, by what they call.
#[track_caller]
fn check(old: &Program, new: &Program, from: &str, to: &str, share: f32) {
    let found = Matching::compute(old, new, &Options::all());
    let (from, to) = (function(old, from), function(new, to));
    let callees = |p: &Program, b: BlockId| -> Vec<String> {
        let name = |c: &program::Call| match c.callee {
            Callee::Function(f) => p.function(f).name(),
            _ => String::new(),
        };
        p.calls_in(b).iter().map(name).filter(|n| !n.is_empty()).collect()
    };
    let pairs: Vec<&BlockMatch> = found
        .blocks
        .iter()
        .filter(|m| {
            m.method == BlockMethod::Inlined && old.block(m.old).func == from && new.block(m.new).func == to
        })
        .collect();
    assert!(pairs.len() >= 5, "{pairs:?}");
    let mut calls = 0;
    for m in &pairs {
        // What follows the call may stand in the same block as the copy's end.
        let (mut copy, mut own) = (callees(old, m.old), callees(new, m.new));
        if own.len() > copy.len() {
            std::mem::swap(&mut copy, &mut own);
        }
        assert_eq!(own[..], copy[..own.len()], "{m:?}");
        assert_eq!(m.share, share);
        calls += own.len();
    }
    assert!(calls >= 2, "{calls}");
    let off = Matching::compute(old, new, &Options::all().without(Pass::Inlined));
    assert!(off.blocks.iter().all(|m| m.method != BlockMethod::Inlined));
}

#[test]
fn a_callee_is_found_where_it_was_inlined() {
    check(&program(false), &program(true), "helper", "user", 0.5);
}

#[test]
fn an_inlined_copy_is_found_in_the_callee() {
    check(&program(true), &program(false), "user", "helper", 1.0);
}

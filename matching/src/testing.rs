//! For tests: programs assembled by the system's gcc.

use program::{FuncId, Image, Program};
use std::process::Command;

/// Assembles AT&T text into a shared object and analyses it.
#[track_caller]
pub fn assemble(text: &str) -> Program {
    compile(text, "s", &["-nostdlib", "-shared"])
}

/// Compiles C.
#[track_caller]
pub fn compile(text: &str, extension: &str, flags: &[&str]) -> Program {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join(format!("input.{extension}"));
    let binary = folder.path().join("output");
    std::fs::write(&source, text).expect("the temporary folder can be written");
    let done = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output()
        .expect("gcc is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Program::analyze(Image::load(&binary).expect("gcc's output can be loaded"))
}

/// A small library with loops, branches, calls and a callee that is not there.
#[track_caller]
pub fn loops_and_calls() -> Program {
    let text = r#"
        extern int puts(const char *);
        __attribute__((noinline)) int sum(const int *p, int n) {
            int s = 0;
            for (int i = 0; i < n; i++) { if (p[i] > 7) s += 3 * p[i]; else if (p[i] == 3) puts("three"); }
            return s;
        }
        __attribute__((noinline)) int pick(int x) {
            while (x > 100) { if (x % 7 == 3) puts("seven"); else if (x & 1) x -= 3; x /= 2; }
            return x == 5 ? puts("five") : x ^ 1;
        }
        int entry(int n) { int a[] = {n, n + 1, 3, 9}; return sum(a, 4) + pick(n); }"#;
    compile(text, "c", &["-O2", "-shared", "-fPIC", "-nostartfiles", "-fvisibility=hidden"])
}

/// The function of this name.
#[track_caller]
pub fn function(program: &Program, name: &str) -> FuncId {
    let found = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| &**n == name));
    found.unwrap_or_else(|| panic!("no function {name}"))
}

/// Counts from walks over the graphs: consistent, and known to the last one. Walks each function of `program`
/// a number of times, taking edges in a fixed irregular order.
pub fn walked(program: &Program, seed: u32) -> profile::Profile {
    let mut profile = profile::Profile::default();
    let mut state = seed;
    for f in program
        .func_ids()
        .filter(|&f| !program.function(f).name().contains("plt") && !program.function(f).names.is_empty())
    {
        let Some(entry) = program.entry_block(f) else { continue };
        for _ in 0..400 {
            let mut at = entry;
            *profile.entries.count_mut(program.block(at).start) += 1;
            loop {
                *profile.blocks.count_mut(program.block(at).start) += 1;
                let out = program.successors(at);
                if out.is_empty() {
                    break;
                }
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Branches have a side that they prefer.
                let draw = (state >> 16) as usize;
                let side = if draw % 4 < 3 { at.index() } else { draw / 4 };
                let to = out[side % out.len()].to;
                let edge = profile::Edge { from: program.block(at).start, to: program.block(to).start };
                *profile.edges.entry(edge).or_default() += 1;
                at = to;
            }
        }
    }
    profile
}

/// One of `nth` executions of each edge and entry, drawn, as sampling would leave it.
pub fn thinned(program: &Program, profile: &profile::Profile, nth: u32) -> profile::Profile {
    let mut state = 7_u32;
    let mut thin = |c: u64| {
        let mut left = 0;
        for _ in 0..c {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            left += u64::from((state >> 16).is_multiple_of(nth));
        }
        left
    };
    let mut fresh =
        profile::Profile { exactness: profile::Exactness::Sampled, ..profile::Profile::default() };
    for (&e, &c) in &profile.edges {
        fresh.edges.insert(e, thin(c));
    }
    for (&at, &c) in &profile.entries {
        fresh.entries.insert(at, thin(c));
    }
    fresh.edges.retain(|_, c| *c > 0);
    let times = crate::counts::Measured::of(program, &fresh).times(program);
    for (b, count) in program.blocks.iter().zip(times).filter(|(_, c)| *c > 0) {
        fresh.blocks.insert(b.start, count);
    }
    fresh
}

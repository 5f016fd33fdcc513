//! Excerpts of a program that gcc compiled, held against it; whole, added up, changed.

#![expect(clippy::indexing_slicing, reason = "a test may fail")]

use super::*;
use crate::Lines;
use std::process::Command;

const SOURCE: &str = "\
int table[] = { 1, 2, 3 };
static inline __attribute__((always_inline)) int inner(int x) { return x * table[x & 1]; }
__attribute__((noinline)) int f(int x) {
    switch (x) {
    case 0: return 5; case 1: return inner(x); case 2: return 9; case 3: return 70; case 4: return 1;
    }
    return x;
}
__attribute__((noinline)) int g(int x) { int s = 0; for (int i = 0; i < x; i++) s += f(i); return s; }
__attribute__((noinline)) int never(int x) { return g(x) + 1; }
int main(int argc, char **argv) { return argc > 5 ? never(argc) : g(argc); }
";

fn compiled() -> (tempfile::TempDir, Program) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, file) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, SOURCE).expect("written");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-fno-inline-functions", "-o"]).arg(&file).arg(&source);
    assert!(gcc.status().expect("gcc is installed").success());
    let program = Program::analyze(Image::load(&file).expect("it loads"));
    (folder, program)
}

fn function(program: &Program, name: &str) -> FuncId {
    program.func_ids().find(|&f| program.function(f).name() == name).expect("it is there")
}

fn excerpt(program: &Program, names: &[&str]) -> Excerpt {
    let ran = names.iter().map(|name| function(program, name)).collect();
    let remark = |id| Remark {
        is_referred: program.function(id).name() == "main",
        not_moved: (program.function(id).name() == "never").then(|| "a reason".to_owned()),
    };
    Excerpt::of(program, &ran, None, remark, Lines::load(&program.image).as_ref())
}

/// As it is read from a file.
fn again(excerpt: &Excerpt) -> Excerpt {
    postcard::from_bytes(&postcard::to_stdvec(excerpt).expect("encoded")).expect("decoded")
}

#[test]
fn what_is_kept_of_a_function_is_what_analysis_said() {
    let (_folder, program) = compiled();
    let kept = again(&excerpt(&program, &["f", "g", "main"])).into_program().expect("it is sound");
    assert!(kept.is_excerpt() && !program.is_excerpt());
    let (lines, kept_lines) = (Lines::load(&program.image), Lines::load(&kept.image));
    let (lines, kept_lines) = (lines.expect("compiled with -g"), kept_lines.expect("kept"));
    for name in ["f", "g", "main"] {
        let (old, new) = (function(&program, name), function(&kept, name));
        let (of_old, of_new) = (program.function(old), kept.function(new));
        assert_eq!(of_old.ranges, of_new.ranges);
        assert_eq!(of_old.n_blocks(), of_new.n_blocks());
        for (a, b) in of_old.block_ids().zip(of_new.block_ids()) {
            assert_eq!(program.block(a).range(), kept.block(b).range());
            assert_eq!(program.n_insns_run(a), kept.n_insns_run(b));
            let text = |p: &Program, b| p.insns(b).map(|i| (i.at(), i.to_string())).collect::<Vec<_>>();
            assert_eq!(text(&program, a), text(&kept, b));
            for insn in program.insns(a) {
                let frames = |l: &Lines| {
                    let all = l.frames(insn.at()).into_iter();
                    all.map(|f| (f.function, f.file, f.line)).collect::<Vec<_>>()
                };
                assert_eq!(frames(&lines), frames(&kept_lines), "{name} {}", insn.at());
                assert_eq!(lines.at(insn.at()), kept_lines.at(insn.at()), "{name} {}", insn.at());
            }
            let edges = |p: &Program, b| {
                let all = p.successors(b).iter();
                all.map(|e| (p.block(e.to).start, e.kind, e.sure)).collect::<Vec<_>>()
            };
            assert_eq!(edges(&program, a), edges(&kept, b));
            let calls = |p: &Program, b| {
                let name = |c: &crate::Call| match c.callee {
                    Callee::Function(f) => p.function(f).name(),
                    other => format!("{other:?}"),
                };
                p.calls_in(b).iter().map(|c| (c.at, name(c), c.kind, c.returns)).collect::<Vec<_>>()
            };
            assert_eq!(calls(&program, a), calls(&kept, b));
        }
        assert_eq!(kept.function_at(of_old.entry), Some(new));
    }
    let never = function(&kept, "never");
    assert_eq!((kept.function(never).n_blocks(), kept.entry_block(never)), (0, None));
    assert_eq!(kept.remark(never).and_then(|r| r.not_moved).as_deref(), Some("a reason"));
    assert!(kept.remark(function(&kept, "main")).is_some_and(|r| r.is_referred));
    assert!(!kept.func_ids().any(|f| kept.function(f).name() == "_start"));
}

#[test]
fn excerpts_of_two_runs_are_added_up() {
    let (_folder, program) = compiled();
    for names in [["f", "g", "main"], ["main", "g", "f"], ["g", "main", "f"]] {
        let mut sum = excerpt(&program, &names[..1]);
        sum.add(excerpt(&program, &names[1..]));
        let (sum, whole) = (sum.into_program(), excerpt(&program, &names).into_program());
        let (sum, whole) = (sum.expect("sound"), whole.expect("sound"));
        let text = |p: &Program| {
            let block = |b| p.insns(b).map(|i| i.to_string()).collect::<Vec<_>>();
            let all = p.func_ids().map(|f| {
                let blocks = p.function(f).block_ids().map(block).collect::<Vec<_>>();
                (p.function(f).name(), blocks)
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(text(&sum), text(&whole), "{names:?}");
        let lines = |p: &Program| {
            let lines = Lines::load(&p.image).expect("kept");
            let insns = p.func_ids().flat_map(|f| p.function(f).block_ids()).flat_map(|b| p.insns(b));
            insns.map(|i| lines.at(i.at()).map(|(file, n)| (file.to_owned(), n))).collect::<Vec<_>>()
        };
        assert_eq!(lines(&sum), lines(&whole), "{names:?}");
    }
}

/// Whatever bytes are changed: an error or a program that can be walked, never a panic.
#[test]
fn changed_excerpts_are_refused_or_can_be_walked() {
    let (_folder, program) = compiled();
    let bytes = postcard::to_stdvec(&excerpt(&program, &["f", "g", "main"])).expect("encoded");
    let (mut walked, mut refused) = (0, 0);
    for at in 0..bytes.len() {
        for with in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= with;
            let Ok(excerpt) = postcard::from_bytes::<Excerpt>(&changed) else { continue };
            let Ok(program) = excerpt.into_program() else {
                refused += 1;
                continue;
            };
            walked += 1;
            for f in program.func_ids() {
                for b in program.function(f).block_ids() {
                    assert_eq!(program.block(b).func, f);
                    let _ = (program.n_insns_run(b), program.insns(b).count(), program.calls_in(b).len());
                    assert!(program.successors(b).iter().all(|e| program.block(e.to).func == f));
                }
                let _ = program.entry_block(f);
            }
        }
    }
    assert!(walked > 100 && refused > 20, "{walked} {refused}");
}

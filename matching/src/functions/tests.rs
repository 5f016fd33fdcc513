//! Functions of real compilers' output, judged by the symbols that the matching did not see.

use crate::options::Options;
use crate::relation::{FunctionMethod, Matching};
use crate::testing::{assemble, compile, function};
use program::Program;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A program of `n` functions that differ a little, with a table of pointers, strings and calls; `changed` of
/// them changed.
fn source(n: usize, changed: &[usize], added: &[usize]) -> String {
    let mut out = String::from("#include <stdio.h>\n#include <string.h>\nint state;\n");
    for i in 0..n {
        if added.contains(&i) {
            out += &format!(
                "__attribute__((noinline)) int added{i}(int x) {{ for (int k = x; k > {i}; k /= 3) state ^= k << 5; \
                 puts(\"added {i}\"); return state % 97; }}\n"
            );
        }
        let more = if changed.contains(&i) {
            format!("if (x == {}) puts(\"late\");", i + 900)
        } else {
            String::new()
        };
        let call = if i > 0 { format!("f{}(x - 1)", i - 1) } else { "x".to_owned() };
        let body = match i % 4 {
            0 => format!("if (x > {i}) printf(\"over %d in {i}\\n\", x); return {call} + {i};"),
            1 => format!("while (x > {}) x -= state + {i}; return {call} * x;", i * 3),
            2 => format!(
                "char b[64]; snprintf(b, sizeof b, \"part {i} %d\", x); return (int)strlen(b) + {call};"
            ),
            _ => format!(
                "switch (x & 3) {{ case 0: state += {i}; break; case 1: return {call}; }} return state - x;"
            ),
        };
        out += &format!("__attribute__((noinline)) int f{i}(int x) {{ {more} {body} }}\n");
    }
    for i in added {
        out += &format!("int (*hook{i})(int) = added{i};\n");
    }
    out += &format!("int main(int n, char **v) {{ return f{}(n); }}\n", n - 1);
    out
}

/// (new function's name, its old function's name) of a pair of which both were stripped.
fn stripped_pairs(old: &str, new: &str) -> Vec<(String, String)> {
    let twins = [compile(old, "c", &["-O2"]), compile(new, "c", &["-O2"])];
    let bare = [compile(old, "c", &["-O2", "-s"]), compile(new, "c", &["-O2", "-s"])];
    let m = Matching::compute(&bare[0], &bare[1], &Options::all());
    let name = |twin: &Program, p: &Program, f: program::FuncId| {
        twin.function_from(p.function(f).entry).map(|t| twin.function(t).name()).unwrap_or_default()
    };
    m.functions.iter().map(|f| (name(&twins[1], &bare[1], f.new), name(&twins[0], &bare[0], f.old))).collect()
}

#[test]
fn stripped_functions_are_found_and_new_ones_are_not() {
    let (old, new) = (source(24, &[], &[]), source(24, &[5, 10, 19], &[7, 16]));
    let pairs = stripped_pairs(&old, &new);
    let wrong: Vec<_> = pairs.iter().filter(|(n, o)| n != o).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let found = pairs.iter().filter(|(n, _)| n.starts_with('f') && n[1..].parse::<u32>().is_ok()).count();
    assert!(found >= 23, "{found} of 24: {pairs:?}");
}

#[test]
fn a_changed_function_keeps_its_name_whatever_looks_like_it() {
    // `g` of the old build looks like `other` of the new one, which is new; `g` itself changed.
    let body = "{ int s = 0; for (int i = 0; i < x; i++) s += i * 7 ^ x; return s + 11; }";
    let old =
        format!("__attribute__((noinline)) int g(int x) {body} int main(int n, char **v) {{ return g(n); }}");
    let new = format!(
        "__attribute__((noinline)) int other(int x) {body} __attribute__((noinline)) int g(int x) {{ return other(x) * 3; }} \
         int main(int n, char **v) {{ return g(n); }}"
    );
    let (old, new) = (compile(&old, "c", &["-O1"]), compile(&new, "c", &["-O1"]));
    let m = Matching::compute(&old, &new, &Options::all());
    let g = m.functions.iter().find(|f| f.new == function(&new, "g")).expect("g is matched");
    assert_eq!((g.old, g.method), (function(&old, "g"), FunctionMethod::Name));
    assert!(!m.functions.iter().any(|f| f.new == function(&new, "other")));
}

#[test]
fn every_function_is_itself_with_and_without_names() {
    let text = source(16, &[], &[]);
    for flags in [["-O2", "-g"], ["-O2", "-s"]] {
        let (old, new) = (compile(&text, "c", &["-O2"]), compile(&text, "c", &flags));
        let m = Matching::compute(&old, &new, &Options::all());
        assert_eq!(m.functions.len(), new.functions.len());
        for f in &m.functions {
            assert_eq!(old.function(f.old).entry, new.function(f.new).entry);
        }
    }
}

#[test]
fn a_table_tells_what_its_changed_entries_were() {
    // Three of the entries have nothing left of what they were.
    let text = |changed: &dyn Fn(usize) -> Option<String>| {
        let mut out = String::from("#include <stdio.h>\ntypedef int (*op)(int);\n");
        for i in 0..12 {
            let (step, every, times) = (i + 2, i + 5, i * 9 + 4);
            let kept = format!(
                "for (int k = 0; k < x + {i}; k += {step}) if (k % {every} == 2) printf(\"{i} of %d\\n\", x ^ {i}); return x * {times};"
            );
            out += &format!("static int op{i}(int x) {{ {} }}\n", changed(i).unwrap_or(kept));
        }
        let table = [0, 3, 1, 2, 7, 6, 8, 4, 9, 5, 10, 11].map(|i| format!("op{i},")).concat();
        out + &format!("op table[] = {{ {table} }};\n")
            + "int main(int n, char **v) { for (int i = 0; i < 12; i++) if (v[1][0] == i) return table[i](n); return 1; }\n"
    };
    let long = |i: usize| {
        let m = match i {
            3 => 3,
            4 => 5,
            5 => 11,
            _ => return None,
        };
        let part = |k: usize| {
            let (by, text, times, shift) = (k * m + 31, k * m, k + m * 3, k % 7 + 1);
            format!(
                "if (x % {by} == {k}) {{ printf(\"{text} has %d\\n\", x * {times}); s ^= x << {shift}; }} "
            )
        };
        Some(format!("int s = 0; {} return s;", (0..12).map(part).collect::<String>()))
    };
    let short = |i: usize| match i {
        3 => Some("return x - 1;".to_owned()),
        4 => Some("return x - 2;".to_owned()),
        5 => Some("return x + 4;".to_owned()),
        _ => None,
    };
    let pairs = stripped_pairs(&text(&long), &text(&short));
    for name in ["op3", "op4", "op5"] {
        let old = pairs.iter().find(|(n, _)| n == name).map(|(_, o)| o.as_str());
        assert_eq!(old, Some(name), "{pairs:?}");
    }
}

#[test]
fn a_stub_is_matched_to_the_stub_of_its_import_alone() {
    // The only import of the one build is not that of the other, and all around them is the same.
    let source = |callee: &str| {
        let mut out = format!("extern long {callee}(const char *); extern int puts(const char *);");
        for i in 0..24 {
            out += &format!(
                "__attribute__((noinline)) long ask{i}(const char *x) {{
                     puts(\"asked {i}\"); return {} * (long){callee}(x) + {i}; }}",
                2 * i + 3
            );
        }
        out += "long entry(const char *x) { return 0";
        (0..24).for_each(|i| out += &format!("+ ask{i}(x)"));
        out + "; }"
    };
    let flags = ["-O2", "-shared", "-fPIC", "-nostartfiles", "-fvisibility=hidden", "-fno-builtin", "-s"];
    let build = |callee: &str| compile(&source(callee), "c", &flags);
    let import = |p: &Program, f: program::FuncId| p.function(f).import.clone();
    for (from, to) in [("getenv", "strlen"), ("getenv", "getenv")] {
        let (old, new) = (build(from), build(to));
        let m = Matching::compute(&old, &new, &Options::all());
        let pairs: Vec<_> = m.functions.iter().map(|f| (import(&old, f.old), import(&new, f.new))).collect();
        assert!(pairs.iter().all(|(a, b)| a == b), "{pairs:?}");
        let stubs = pairs.iter().filter(|(a, _)| a.is_some()).count();
        assert_eq!(stubs, if from == to { 2 } else { 1 }, "{pairs:?}");
    }
}

/// One function of a build made up: what compilers put behind its name, what of its code changed, whether a
/// wrapper under a new name stands before it, whether a part was cut off.
#[derive(Clone, Debug)]
struct MadeUp {
    decoration: &'static str,
    changed: bool,
    wrapped: bool,
    cut: bool,
}

fn made_up() -> impl Strategy<Value = MadeUp> {
    let decorations = ["", ".isra.0", ".constprop.0", ".constprop.0.isra.1", ".llvm.77", ".lto_priv.3"];
    (prop::sample::select(decorations.to_vec()), any::<[bool; 3]>())
        .prop_map(|(decoration, [changed, wrapped, cut])| MadeUp { decoration, changed, wrapped, cut })
}

/// Functions `f0`, `f1`, … each called by three others, directly or through a wrapper that jumps to it.
fn text_of(functions: &[MadeUp], tag: &str) -> String {
    let mut out = String::from(".text\n");
    let mut put = |name: &str, code: &str| {
        out += &format!(
            ".type {name}, @function\n{name}: .cfi_startproc\n{code}\nret\n.cfi_endproc\n.size {name}, . - {name}\n"
        );
    };
    for (i, f) in functions.iter().enumerate() {
        let more = if f.changed { "rol $3, %eax\nadd $5, %edx\n" } else { "" };
        let name = format!("f{i}{}", f.decoration);
        let step = 2 * i + 3;
        let cut = if f.cut { format!("cmp $77, %edx\nje f{i}.part.0\n") } else { String::new() };
        put(
            &name,
            &format!(
                "mov ${i}, %eax\n{more}1: imul ${step}, %edi, %edx\nadd %edx, %eax\nxor $0x{step:x}1, %eax\n{cut}dec %edi\ncmp ${i}, %edi\njg 1b"
            ),
        );
        if f.cut {
            put(&format!("f{i}.part.0"), &format!("lea {step}(%rdx,%rax,2), %eax\nneg %eax"));
        }
        let through = format!("{tag}{i}");
        if f.wrapped {
            put(&through, &format!("test %edi, %edi\njle 1f\njmp {name}\n1: xor %eax, %eax"));
        }
        let callee = if f.wrapped { &through } else { &name };
        for user in 0..3 {
            put(
                &format!("user{i}_{user}"),
                &format!("push %rbx\nlea {user}(%rdi), %edi\ncall {callee}\npop %rbx"),
            );
        }
    }
    out
}

/// Names with nothing behind them, of whole functions: which function has it, if only one does.
fn unique_bare_names(p: &Program) -> BTreeMap<String, program::FuncId> {
    let mut by_name: BTreeMap<String, Vec<program::FuncId>> = BTreeMap::new();
    for f in p.func_ids() {
        let name = p.function(f).name();
        if !name.contains(".part") {
            by_name.entry(name.split('.').next().unwrap_or_default().to_owned()).or_default().push(f);
        }
    }
    by_name.into_iter().filter(|(_, f)| f.len() == 1).map(|(name, f)| (name, f[0])).collect()
}

/// Whoever bears a unique bare name in both builds is matched to its namesake; answers how many there are.
fn keeps_unique_names(old: &[MadeUp], new: &[MadeUp]) -> usize {
    let (old, new) = (assemble(&text_of(old, "before")), assemble(&text_of(new, "after")));
    let (a, b) = (unique_bare_names(&old), unique_bare_names(&new));
    let found = Matching::compute(&old, &new, &Options::all()).functions;
    let both: Vec<_> = a.iter().filter_map(|(name, &o)| Some((name, o, *b.get(name)?))).collect();
    for &(name, o, n) in &both {
        let pair = found.iter().find(|m| m.new == n);
        assert_eq!(
            pair.map(|m| m.old),
            Some(o),
            "{name}: {:?}",
            pair.map(|m| (old.function(m.old).name(), m.method))
        );
    }
    both.len()
}

/// GCC cloned it, and what the old build's callers called is a wrapper of another name now.
#[test]
fn a_unique_bare_name_is_not_given_to_a_wrapper() {
    let plain = MadeUp { decoration: "", changed: false, wrapped: false, cut: false };
    let cloned = MadeUp { decoration: ".isra.0", wrapped: true, ..plain.clone() };
    for (old, new) in [(&plain, &cloned), (&cloned, &plain)] {
        assert_eq!(keeps_unique_names(&[old.clone(), plain.clone()], &[new.clone(), plain.clone()]), 8);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn unique_bare_names_are_each_other_whatever_stands_around_them(
        old in prop::collection::vec(made_up(), 5), new in prop::collection::vec(made_up(), 5)
    ) {
        prop_assert_eq!(keeps_unique_names(&old, &new), 20);
    }
}

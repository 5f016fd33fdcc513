//! Objects of stripped programs, judged by the symbols of their unstripped twins.

use crate::options::{Options, Pass};
use crate::relation::Matching;
use crate::testing::compile;
use program::Program;
use program::image::SymbolKind;
use std::collections::BTreeMap;

const OLD: &str = r#"
static int counter; static long total;
static const int primes[] = {2, 3, 5, 7, 11, 13};
static double weights[] = {1.5, 2.5, 3.5};
static const char *names[] = {"alpha", "beta", "gamma"};
__attribute__((noinline)) int step(int i) { counter += primes[i]; return counter; }
__attribute__((noinline)) double weigh(int i) { total += i; weights[i] += total; return weights[i]; }
__attribute__((noinline)) const char *name(int i) { return names[i]; }
int main(int n, char **v) { return step(n) + (int)weigh(n) + name(n)[0]; }
"#;

/// Where objects are, by name.
fn objects(program: &Program) -> BTreeMap<String, u64> {
    let objects = program.image.symbols.iter().filter(|s| s.kind == SymbolKind::Object && s.len > 0);
    objects.map(|s| (s.name.to_string(), s.at.0)).collect()
}

/// Old and new names of the objects that were matched, with all symbols gone.
fn matched(old: &str, new: &str, options: &Options) -> Vec<(String, String)> {
    let flags = ["-O1", "-fno-toplevel-reorder"];
    let stripped = ["-O1", "-fno-toplevel-reorder", "-s"];
    let names = |source| -> BTreeMap<u64, String> {
        objects(&compile(source, "c", &flags)).into_iter().map(|(n, at)| (at, n)).collect()
    };
    let (old_names, new_names) = (names(old), names(new));
    let (old, new) = (compile(old, "c", &stripped), compile(new, "c", &stripped));
    let m = Matching::compute(&old, &new, options);
    let mut out = Vec::new();
    for d in m.data {
        let (a, b) = (old.data[d.old].range.start.0, new.data[d.new].range.start.0);
        if let (Some(a), Some(b)) = (old_names.get(&a), new_names.get(&b)) {
            out.push((a.clone(), b.clone()));
        }
    }
    out
}

const WANTED: [&str; 5] = ["counter", "total", "primes", "weights", "names"];

#[test]
fn objects_are_found_again_when_others_come_between() {
    let new = OLD
        .replace("static long total;", "static long fresh; static long total;")
        .replace("static double", "static const int odd[] = {1, 9, 15};\nstatic double")
        .replace(
            "int main(",
            "__attribute__((noinline)) long more(int i) { return fresh += odd[i]; }\nint main(",
        )
        .replace("return step", "return more(n) + step");
    let found = matched(OLD, &new, &Options::all());
    for name in WANTED {
        let new: Vec<&str> = found.iter().filter(|(o, _)| o == name).map(|(_, n)| n.as_str()).collect();
        assert_eq!(new, [name], "{found:?}");
    }
    assert!(!found.iter().any(|(_, n)| n == "fresh" || n == "odd"), "new objects were nothing: {found:?}");
}

#[test]
fn zeroed_objects_need_references_or_position() {
    let mut options = Options::all();
    for pass in [Pass::DataReferences, Pass::DataPosition] {
        options = options.without(pass);
    }
    let found = matched(OLD, OLD, &options);
    assert!(found.iter().any(|(o, _)| o == "primes"), "{found:?}");
    assert!(!found.iter().any(|(o, _)| o == "counter"), "{found:?}");
}

#[test]
fn objects_are_found_where_matched_blocks_of_changed_code_refer_to_them() {
    let source = |objects: &str, last: &str| {
        format!(
            "#include <stdio.h>\n{objects}
             __attribute__((noinline)) void tally(int i) {{
                 puts(\"one tally\"); hits[i & 1] += i * 11; misses[i & 3] ^= 7 * i; late[i & 5] -= 3 * i;
                 puts(\"tallied\"); {last} }}
             int main(int n, char **v) {{ tally(n); puts(\"done\"); return n * 5; }}"
        )
    };
    let old = source("static int hits[8]; static int misses[8]; static int late[8];", "");
    let new = source(
        "static int late[8]; static int fresh[8]; static int hits[8]; static int misses[8];",
        "fresh[i & 3] |= 5 * i; puts(\"more\");",
    );
    let options = Options::all().without(Pass::DataPosition);
    let found = matched(&old, &new, &options);
    for name in ["hits", "misses", "late"] {
        let new: Vec<&str> = found.iter().filter(|(o, _)| o == name).map(|(_, n)| n.as_str()).collect();
        assert_eq!(new, [name], "{found:?}");
    }
    assert!(!found.iter().any(|(_, n)| n == "fresh"), "{found:?}");
}

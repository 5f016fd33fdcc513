//! Objects of stripped programs against the symbols they had.

use crate::image::{Image, SymbolKind};
use crate::model::{DataKind, Program, Sure};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
#define KEEP __attribute__((noinline))
const int squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
const char *const fruits[] = {"apple", "banana", "cherry", "damson"};
static const struct { const char *name; long n; } pairs[] = {{"one", 1}, {"two", 2}, {"three", 3}};
const char letters[8] = {'a', 1, 'c', 2, 'e', 3, 'g', 4};
const short wide[5] = {'w', 'i', 'd', 'e', 0};
int counter = 7, other_counter = 8;
static char buffer[100];
static long zeros[4];
int (*handlers[3])(const char *) = {puts, 0, puts};
KEEP int f(int i) { counter += squares[i & 15]; return counter + letters[i & 7] + wide[i % 5]; }
KEEP const char *g(int i) { other_counter++; zeros[i & 3]++; return fruits[i & 3]; }
KEEP long h(const char *s) {
    for (int i = 0; i < other_counter; i++) if (!strcmp(pairs[i].name, s)) return pairs[i].n;
    return handlers[0](s);
}
int main(int c, char **v) { strcpy(buffer, g(c)); puts(buffer); return f(c) + h(v[0]); }
"#;

fn compile(dir: &Path, flags: &str) -> (Image, Program) {
    let run = |command: &mut Command| {
        let out = command.output().expect("the tool is installed");
        assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let (source, whole, bare) = (dir.join("a.c"), dir.join("whole"), dir.join("bare"));
    std::fs::write(&source, SOURCE).expect("the folder can be written");
    run(Command::new("gcc").arg("-O2").args(flags.split_whitespace()).arg(&source).arg("-o").arg(&whole));
    run(Command::new("strip").arg("-o").arg(&bare).arg(&whole));
    let load = |path: &Path| Image::load(path).expect("gcc makes good files");
    (load(&whole), Program::analyze(load(&bare)))
}

#[track_caller]
fn check(flags: &str) {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let (whole, program) = compile(dir.path(), flags);
    let bytes = Some(DataKind::Bytes);
    let pointers = Some(DataKind::Pointers);
    let zero = Some(DataKind::Zero);
    for (name, kind) in [
        ("squares", bytes),
        ("fruits", pointers),
        // Its first word is an object of its own where code refers to the second one.
        ("pairs", None),
        ("letters", bytes),
        ("wide", bytes),
        ("counter", bytes),
        ("other_counter", bytes),
        ("buffer", zero),
        ("zeros", zero),
        ("handlers", pointers),
    ] {
        let symbol = whole.symbols.iter().find(|s| s.kind == SymbolKind::Object && *s.name == *name);
        let at = symbol.expect("it is an object").at;
        let found = program.data_at(at).and_then(|i| program.data.get(i)).expect("the code refers to it");
        assert_eq!(found.range.start, at, "{name} with {flags}");
        assert!(kind.is_none_or(|k| k == found.kind), "{name} is {:?} with {flags}", found.kind);
    }
    for text in ["apple", "banana", "cherry", "damson", "one", "two", "three"] {
        let is_text = |d: &&crate::DataObject| {
            d.kind == DataKind::String
                && program
                    .image
                    .bytes_in(&d.range)
                    .is_some_and(|b| b.strip_suffix(b"\0") == Some(text.as_bytes()))
        };
        assert_eq!(program.data.iter().filter(is_text).count(), 1, "{text} with {flags}");
    }
    let ends = program.data.iter().zip(program.data.iter().skip(1));
    let overlap = ends.clone().find(|(a, b)| a.range.end > b.range.start);
    assert!(overlap.is_none(), "{overlap:?} with {flags}");
}

#[test]
fn objects_of_stripped_programs_start_where_their_symbols_were() {
    check("");
    check("-no-pie");
    check("-no-pie -fno-pie");
    check("-O0");
}

#[test]
fn symbols_are_believed() {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let (whole, _) = compile(dir.path(), "");
    let program = Program::analyze(whole);
    for s in program.image.symbols.iter().filter(|s| s.kind == SymbolKind::Object && s.len > 0) {
        let found = program.data_at(s.at).and_then(|i| program.data.get(i));
        let want = (s.at..s.at.plus(s.len), Sure::Proved);
        assert_eq!(found.map(|d| (d.range.clone(), d.sure)), Some(want), "{}", s.name);
    }
}

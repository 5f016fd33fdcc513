//! What `engraft values` records of calls, held against what their callees print: random prototypes, random
//! values.

use super::generator::{Case, Leaf, Options, Random, Unit};
use super::{
    CLANG, PER_UNIT, differences, has_avx, has_unnamed_bits, leaves_a_register, number, write_values,
};
use crate::needs;
use crate::run::{engraft, folder, must};
use measure::prototypes::Prototypes;
use profile::recording::Recording;
use profile::values::{Column, SECTION, Values};
use program::arch::abi::arguments::{Piece, Place, passing};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Of longer values, only the beginning is recorded.
const LONGEST: u64 = 240;

/// One program for each unit of prototypes, and one run of it with all of its functions asked for by the
/// names that a header declares.
#[test]
fn arguments_and_results_are_recorded_as_callees_print_them() {
    needs!("gcc", "/usr/lib/llvm-19/bin/clang");
    let (n, seed) = (number("ENGRAFT_PROTOTYPES").unwrap_or(50), number("ENGRAFT_SEED").unwrap_or(1));
    let options = Options { has_avx: has_avx() };
    let (mut n_values, mut wrong) = (0, Vec::new());
    for unit in 0..n.div_ceil(PER_UNIT) {
        let mut random = Random::new(seed.wrapping_mul(1 << 20).wrapping_add(unit) ^ 0x5eed);
        let made = Unit::random(&mut random, PER_UNIT, options);
        for compiler in ["gcc", CLANG] {
            let level = ["-O0", "-O1", "-O2", "-Os"][usize::try_from(random.below(4)).expect("small")];
            let (values, differ) = check(&made, compiler, level, options);
            n_values += values;
            wrong.extend(
                differ.into_iter().map(|d| format!("seed {seed} unit {unit} {compiler} {level}: {d}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{} differ, first:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    // Else little was looked at.
    assert!(n_values > n * 10, "{n_values}");
    let n = n.next_multiple_of(PER_UNIT);
    eprintln!("{n} prototypes with 2 compilers, {n_values} recorded values: all bits equal");
}

/// How many values were compared, and those that are not what the callee printed.
fn check(unit: &Unit, compiler: &str, level: &str, options: Options) -> (u64, Vec<String>) {
    let text = unit.text();
    let prototypes = Prototypes::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let place = folder();
    let printed = built(unit, &text, place.path(), compiler, level, options);
    let names: String = unit.cases.iter().map(|case| format!("--calls {} ", case.name)).collect();
    let args = format!("values -q --no-cache --modules exe -o all.engraft --header all.h {names} ./calls");
    let ran = engraft(place.path(), &args);
    assert_eq!((ran.code, &ran.stdout), (Some(0), &printed), "{}", ran.stderr);
    let recording = std::fs::read(place.path().join("all.engraft")).expect("it was written");
    let recording = Recording::parse(&recording).expect("it is one");
    let section = recording.sections.iter().find(|(tag, _)| *tag == SECTION).expect("it has values");
    let values = Values::parse(&section.1).expect("they are whole");
    let mut lines = printed.lines();
    let (mut n_values, mut wrong) = (0, Vec::new());
    for case in &unit.cases {
        let signature = prototypes.function(&case.name).expect("it was declared");
        let kinds = || signature.parameters.iter().map(|p| &p.kind).chain([&signature.result]);
        let is_of_gcc_alone = compiler == CLANG
            && (leaves_a_register(&passing(signature), signature) || kinds().any(has_unnamed_bits));
        let rows: Vec<_> = values.calls.iter().filter(|row| row.function == case.name).collect();
        let [row] = rows[..] else { panic!("{} rows of {}", rows.len(), case.name) };
        assert_eq!((row.n_calls, row.n_results), (1, 1), "{}", case.name);
        let parameters = case.parameters.iter().zip(&signature.parameters);
        let all = parameters.map(|((_, leaves), p)| (p.name.as_str(), &p.kind, leaves));
        let result = case.result.iter().map(|(_, leaves)| ("result", &signature.result, leaves));
        for (name, kind, leaves) in all.chain(result) {
            let printed: Vec<Leaf> = leaves.iter().map(|leaf| read(leaf, lines.next())).collect();
            if is_of_gcc_alone || kind.size() > LONGEST || printed.is_empty() {
                continue;
            }
            // Fewer than 4 bytes in memory are not read, since what is behind them may not be there.
            let passed = passing(signature).result;
            let is_short = name == "result" && kind.size() < 4;
            if is_short && matches!(passed[..], [Piece { place: Place::Memory(_), .. }]) {
                assert!(row.result.is_none());
                continue;
            }
            let column = row.arguments.iter().chain(&row.result).find(|column| column.name == name);
            let bytes = only(column);
            n_values += printed.len() as u64;
            wrong.extend(differences(kind, &bytes, &printed).map(|d| format!("{signature} {name}: {d}")));
        }
    }
    (n_values, wrong)
}

/// The one value that a column has.
fn only(column: Option<&Column>) -> Vec<u8> {
    match &column.map(|column| column.values.counted()).unwrap_or_default()[..] {
        [one] if one.count == 1 => one.bytes.to_vec(),
        _ => Vec::new(),
    }
}

/// The part of a value as the callee printed it: which is what it was made to be.
#[track_caller]
fn read(leaf: &Leaf, line: Option<&str>) -> Leaf {
    let line = line.expect("each part is printed");
    let digits = (0..line.len() / 2).map(|i| u8::from_str_radix(&line[2 * i..2 * i + 2], 16));
    let mut bytes: Vec<u8> = digits.collect::<Result<_, _>>().expect("hexadecimal");
    bytes.resize(leaf.bytes.len(), 0);
    assert_eq!(bytes, leaf.bytes, "the compiler passed {}", leaf.path);
    Leaf { bytes, ..leaf.clone() }
}

/// Compiles the program and its header; what the program prints.
fn built(unit: &Unit, text: &str, place: &Path, compiler: &str, level: &str, options: Options) -> String {
    let head = format!(
        "#include <immintrin.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>
struct unknown;
{text}
#define PUT(place, ...) memcpy(&place, (unsigned char[]){{__VA_ARGS__}}, sizeof (unsigned char[]){{__VA_ARGS__}})
static inline void show(const void *at, int n) {{ for (int i = 0; i < n; i++) printf(\"%02x\", ((const unsigned char *)at)[i]); puts(\"\"); }}
"
    );
    let (mut functions, mut calls) = (head.clone(), head);
    unit.cases.iter().for_each(|case| define(&mut functions, case).expect("text grows"));
    unit.cases.iter().for_each(|case| call(&mut calls, case).expect("text grows"));
    calls.push_str("int main(void) {\n");
    unit.cases.iter().for_each(|case| writeln!(calls, "call_{}();", case.name).expect("text grows"));
    calls.push_str("return 0; }\n");
    for (name, text) in [("functions.c", &*functions), ("calls.c", &calls), ("all.h", text)] {
        std::fs::write(place.join(name), text).expect("the folder can be written");
    }
    let mut command = Command::new(compiler);
    // Where a function that has arguments in memory ends by a jump, its result is not seen.
    command.current_dir(place).args(["-w", level, "-fno-optimize-sibling-calls"]);
    command.args(["-o", "calls", "calls.c", "functions.c"]);
    must(command.args(options.has_avx.then_some("-mavx2")));
    let ran = Command::new(place.join("calls")).output().expect("it was built");
    assert!(ran.status.success(), "{compiler} {level}: {:?}", ran.status);
    String::from_utf8(ran.stdout).expect("text")
}

/// The function, which prints each part of its arguments, and of what it returns.
fn define(to: &mut String, case: &Case) -> std::fmt::Result {
    let result = case.result.as_ref().map_or("void", |(of, _)| &of.name);
    let mut parameters: Vec<String> =
        case.parameters.iter().enumerate().map(|(i, p)| format!("{} q{i}", p.0.name)).collect();
    parameters.extend(case.parameters.is_empty().then(|| "void".to_owned()));
    parameters.extend(case.is_variadic.then(|| "...".to_owned()));
    writeln!(to, "{result} {}({}) {{", case.name, parameters.join(", "))?;
    for (i, (_, leaves)) in case.parameters.iter().enumerate() {
        show(to, &format!("q{i}"), leaves)?;
    }
    if let Some((of, leaves)) = &case.result {
        writeln!(to, "static {} r;", of.name)?;
        write_values(to, "r", leaves)?;
        show(to, "r", leaves)?;
        writeln!(to, "return r;")?;
    }
    writeln!(to, "}}")
}

fn show(to: &mut String, value: &str, leaves: &[Leaf]) -> std::fmt::Result {
    for leaf in leaves {
        let path = leaf.path.replace('$', value);
        match leaf.bits {
            Some(bits) => {
                let mask = u64::MAX >> (64 - bits);
                writeln!(to, "{{ unsigned long long v = {path}; v &= {mask:#x}ULL; show(&v, 8); }}")?;
            }
            None => writeln!(to, "show(&{path}, {});", leaf.bytes.len())?,
        }
    }
    Ok(())
}

/// What calls it with its values.
fn call(to: &mut String, case: &Case) -> std::fmt::Result {
    let name = &case.name;
    for (i, (of, _)) in case.parameters.iter().enumerate() {
        writeln!(to, "static {} {name}_{i};", of.name)?;
    }
    writeln!(to, "static __attribute__((noinline)) void call_{name}(void) {{")?;
    for (i, (_, leaves)) in case.parameters.iter().enumerate() {
        write_values(to, &format!("{name}_{i}"), leaves)?;
    }
    let mut given: Vec<String> = (0..case.parameters.len()).map(|i| format!("{name}_{i}")).collect();
    if case.is_variadic {
        given.extend(["7".to_owned(), "2.5".to_owned()]);
    }
    writeln!(to, "{name}({}); }}", given.join(", "))
}

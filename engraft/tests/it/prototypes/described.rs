//! What debug information says of functions, held against their prototypes.

use super::generator::{Case, Options, Random, Unit};
use super::{CLANG, PER_UNIT, has_avx, has_unnamed_bits, leaves_a_register, number};
use crate::needs;
use crate::run::{folder, must};
use measure::prototypes::Prototypes;
use program::Image;
use program::arch::abi::arguments::passing;
use program::signature::dwarf::Signatures;
use program::signature::{Enum, Field, Float, Record, Signature, Type};
use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;

/// Of random prototypes, with definitions compiled by gcc and clang: names, types and places are what the
/// parser of prototypes makes of the same text.
#[test]
fn debug_information_says_what_prototypes_say() {
    needs!("gcc", "/usr/lib/llvm-19/bin/clang");
    let (n, seed) = (number("ENGRAFT_PROTOTYPES").unwrap_or(50), number("ENGRAFT_SEED").unwrap_or(1));
    let options = Options { has_avx: has_avx() };
    let (mut n_equal, mut wrong) = (0, Vec::new());
    for unit in 0..n.div_ceil(PER_UNIT) {
        let mut random = Random::new(seed.wrapping_mul(1 << 20).wrapping_add(unit));
        let made = Unit::random(&mut random, PER_UNIT, options);
        for compiler in ["gcc", CLANG] {
            let level = ["-O0", "-O2"][usize::try_from(random.below(2)).expect("small")];
            let version = ["-gdwarf-4", "-gdwarf-5"][usize::try_from(random.below(2)).expect("small")];
            let (equal, differ) = check(&made, compiler, &[level, version], options);
            n_equal += equal;
            wrong.extend(
                differ
                    .into_iter()
                    .map(|d| format!("seed {seed} unit {unit} {compiler} {level} {version}: {d}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{} differ, first:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    // Else little was looked at.
    assert!(n_equal > n, "{n_equal}");
    eprintln!(
        "{} prototypes with 2 compilers, {n_equal} signatures: all equal",
        n.next_multiple_of(PER_UNIT)
    );
}

fn check(unit: &Unit, compiler: &str, flags: &[&str], options: Options) -> (u64, Vec<String>) {
    let text = unit.text();
    let prototypes = Prototypes::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let place = folder();
    let mut source =
        format!("#include <immintrin.h>\n#include <stddef.h>\n#include <stdint.h>\n{}", unit.declarations);
    unit.cases.iter().for_each(|case| define(&mut source, case).expect("text grows"));
    std::fs::write(place.path().join("defined.c"), source).expect("the folder can be written");
    let mut command = Command::new(compiler);
    command.current_dir(place.path()).args(["-w", "-shared", "-fPIC", "-o", "defined.so", "defined.c"]);
    // Functions that are alike are not made one.
    command.args((compiler == "gcc").then_some("-fno-ipa-icf"));
    must(command.args(flags).args(options.has_avx.then_some("-mavx2")));
    let image = Image::load(&place.path().join("defined.so")).expect("it was built");
    let signatures = Signatures::load(&image).expect("it has debug information");
    let (mut n_equal, mut wrong) = (0, Vec::new());
    for case in &unit.cases {
        let want = prototypes.function(&case.name).expect("it was declared");
        let symbol = image.symbols.iter().find(|s| *s.name == *case.name).expect("it was built");
        let got = signatures.at(symbol.at, &[case.name.as_str().into()]);
        let got = got.unwrap_or_else(|| panic!("nothing is said of {}", case.name));
        let (by_abi, named) = (passing(want), renamed(want, case));
        let kinds = || want.parameters.iter().map(|p| &p.kind).chain([&want.result]);
        let is_of_gcc_alone =
            compiler == CLANG && (leaves_a_register(&by_abi, want) || kinds().any(has_unnamed_bits));
        // clang calls all complex numbers of 32 bytes the same.
        if compiler == CLANG && kinds().any(is_complex_quad) {
            continue;
        }
        if plain(&got.signature) != plain(&named) {
            let types = |s: &Signature| s.parameters.iter().map(|p| p.kind.clone()).collect::<Vec<_>>();
            let (got, want) = (plain(&got.signature), plain(&named));
            let other = types(&got).into_iter().zip(types(&want)).find(|(got, want)| got != want);
            wrong.push(format!("{got} is not {want}: {other:?}"));
        } else if !is_of_gcc_alone && !got.is_c_abi {
            wrong.push(format!("{named} is not where the ABI has it: {:?}", got.at_entry));
        } else if passing(&got.signature) != by_abi && !kinds().any(is_packed) {
            wrong.push(format!("{named} is elsewhere"));
        } else {
            n_equal += 1;
        }
    }
    (n_equal, wrong)
}

/// A definition of the function, which returns something.
fn define(to: &mut String, case: &Case) -> std::fmt::Result {
    let (result, returned) = match &case.result {
        Some((of, _)) => (of.name.as_str(), format!("static {} r; return r;", of.name)),
        None => ("void", String::new()),
    };
    let parameters = case.parameters.iter().enumerate().map(|(i, p)| format!("{} p{i}", p.0.name));
    let mut parameters: Vec<String> = parameters.collect();
    parameters.extend(case.parameters.is_empty().then(|| "void".to_owned()));
    parameters.extend(case.is_variadic.then(|| "...".to_owned()));
    writeln!(to, "{result} {}({}) {{ {returned} }}", case.name, parameters.join(", "))
}

/// With the names that the definition has.
fn renamed(signature: &Signature, case: &Case) -> Signature {
    let mut signature = signature.clone();
    assert_eq!(signature.parameters.len(), case.parameters.len());
    signature.parameters.iter_mut().enumerate().for_each(|(i, p)| p.name = format!("p{i}"));
    signature
}

fn is_complex_quad(kind: &Type) -> bool {
    match kind {
        Type::Complex(of) => **of == Type::Float(Float::Quad),
        Type::Array { of, .. } => is_complex_quad(of),
        Type::Record(record) => record.fields.iter().any(|f| is_complex_quad(&f.kind)),
        _ => false,
    }
}

/// Whether a record is aligned less than its fields, which debug information does not say. On the stack,
/// where more than 8 bytes matter, it may then stand elsewhere.
fn is_packed(kind: &Type) -> bool {
    match kind {
        Type::Array { of, .. } => is_packed(of),
        Type::Record(record) => {
            record.fields.iter().any(|f| f.kind.align() > record.align.max(8) || is_packed(&f.kind))
        }
        _ => false,
    }
}

/// Without what is behind pointers, with one name for all that has none, and one alignment.
fn plain(signature: &Signature) -> Signature {
    let mut signature = signature.clone();
    signature.parameters.iter_mut().for_each(|p| p.kind = plain_type(&p.kind));
    signature.result = plain_type(&signature.result);
    signature
}

fn plain_type(kind: &Type) -> Type {
    let name = |name: &str| if name.starts_with('<') { String::new() } else { name.to_owned() };
    match kind {
        Type::Pointer(_) => Type::Pointer(Box::new(Type::Void)),
        Type::Array { of, n } => Type::Array { of: Box::new(plain_type(of)), n: *n },
        // `__m64` has one element with clang, two with gcc.
        Type::Vector { of, n } if of.size() * n == 8 => Type::Vector { of: Box::new(Type::Bool), n: 8 },
        Type::Record(record) => {
            // Bit-fields without a name are nowhere in debug information.
            let is_said = |field: &&Field| !(field.bits.is_some() && field.name.is_empty());
            let plain_field = |field: &Field| Field { kind: plain_type(&field.kind), ..field.clone() };
            let fields = record.fields.iter().filter(is_said).map(plain_field).collect();
            Type::Record(Arc::new(Record {
                name: name(&record.name),
                fields,
                align: 1,
                ..(**record).clone()
            }))
        }
        Type::Enum(of) => Type::Enum(Arc::new(Enum { name: name(&of.name), ..(**of).clone() })),
        other => other.clone(),
    }
}

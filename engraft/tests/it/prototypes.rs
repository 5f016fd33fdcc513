//! Where calls pass values: random prototypes, held against what gcc and clang do.
//!
//! A program that a compiler made calls functions with values that we chose; in place of them stands code
//! that keeps all registers and the stack. What is read there by `program::arch::abi::arguments`, by what
//! `measure::prototypes` made of the same text, must be those values, bit for bit, field for field. Results
//! the other way round: what the compiler's functions leave in registers and memory.

mod described;
mod generator;
mod recorded;

use crate::needs;
use crate::run::{folder, must};
use generator::{Case, Leaf, Options, Random, Step, Unit};
use measure::prototypes::Prototypes;
use program::arch::abi::arguments::{Passing, Piece, Place, passing};
use program::signature::{Bits, Signature, Type};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const CLANG: &str = "/usr/lib/llvm-19/bin/clang";
/// Functions of a unit.
const PER_UNIT: u64 = 25;

/// Bytes that are kept at a function's entry: rax rdi rsi rdx rcx r8 r9, ymm0–7, the stack.
const SEEN: usize = 64 + 8 * 32 + 2048;
/// And of a result: rax rdx, ymm0–1, st0 st1; the memory for it, and where that is.
const LEFT: usize = 16 + 64 + 32 + 1024 + 8;

/// What every function is: it keeps what it was given.
const CAPTURE: &str = "
        movq %rax, seen(%rip); movq %rdi, seen+8(%rip); movq %rsi, seen+16(%rip); movq %rdx, seen+24(%rip)
        movq %rcx, seen+32(%rip); movq %r8, seen+40(%rip); movq %r9, seen+48(%rip)
        MOVE %V0, seen+64(%rip); MOVE %V1, seen+96(%rip); MOVE %V2, seen+128(%rip); MOVE %V3, seen+160(%rip)
        MOVE %V4, seen+192(%rip); MOVE %V5, seen+224(%rip); MOVE %V6, seen+256(%rip); MOVE %V7, seen+288(%rip)
        movq %rdi, %rax; movq %rsp, %rsi; leaq seen+320(%rip), %rdi; movl $256, %ecx; rep movsq
        ret
        .globl returned
returned:
        subq $8, %rsp; movq %rdi, %rax; leaq memory(%rip), %rdi; fninit; call *%rax
        movq %rax, left(%rip); movq %rdx, left+8(%rip); MOVE %V0, left+16(%rip); MOVE %V1, left+48(%rip)
        fstpt left+80(%rip); fstpt left+96(%rip); fninit
        addq $8, %rsp
        ret
        .section .note.GNU-stack,\"\",@progbits
";

#[test]
fn arguments_and_results_are_where_compilers_put_them() {
    needs!("gcc", "/usr/lib/llvm-19/bin/clang");
    let (n, seed) = (number("ENGRAFT_PROTOTYPES").unwrap_or(50), number("ENGRAFT_SEED").unwrap_or(1));
    let options = Options { has_avx: has_avx() };
    let (mut n_values, mut wrong) = (0, Vec::new());
    for unit in 0..n.div_ceil(PER_UNIT) {
        let mut random = Random::new(seed.wrapping_mul(1 << 20).wrapping_add(unit));
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
    eprintln!(
        "{} prototypes with 2 compilers, {n_values} values: all bits equal",
        n.next_multiple_of(PER_UNIT)
    );
}

/// `checks/prototypes.sh` asks for more of them.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

fn has_avx() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" avx "))
}

/// How many values were compared, and those that are not what the compiler passed.
fn check(unit: &Unit, compiler: &str, level: &str, options: Options) -> (u64, Vec<String>) {
    let text = unit.text();
    let prototypes = Prototypes::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let place = folder();
    let output = ran(unit, &text, place.path(), compiler, level, options);
    let (mut n_values, mut wrong) = (0, Vec::new());
    assert_eq!(output.len(), unit.cases.len() * (SEEN + LEFT));
    for (case, kept) in unit.cases.iter().zip(output.chunks_exact(SEEN + LEFT)) {
        let signature = prototypes.function(&case.name).expect("it was declared");
        let passing = passing(signature);
        let line = text.lines().find(|l| l.contains(&format!(" {}(", case.name))).expect("it is declared");
        let (seen, left) = kept.split_at(SEEN);
        let kinds = || signature.parameters.iter().map(|p| &p.kind).chain([&signature.result]);
        if compiler == CLANG && (leaves_a_register(&passing, signature) || kinds().any(has_unnamed_bits)) {
            continue;
        }
        assert_eq!(signature.parameters.len(), case.parameters.len(), "{line}");
        for (i, (_, leaves)) in case.parameters.iter().enumerate() {
            let (kind, pieces) = (&signature.parameters[i].kind, &passing.parameters[i]);
            let value = value(kind, pieces, |place| entered(seen, place));
            n_values += leaves.len() as u64;
            wrong.extend(
                differences(kind, &value, leaves).map(|d| format!("{line} parameter {i}: {d} {pieces:?}")),
            );
        }
        let Some((_, leaves)) = &case.result else {
            assert_eq!(passing.result, []);
            continue;
        };
        let value = value(&signature.result, &passing.result, |place| came_back(left, &passing, place));
        n_values += leaves.len() as u64;
        wrong.extend(
            differences(&signature.result, &value, leaves)
                .map(|d| format!("{line} result: {d} {:?}", passing.result)),
        );
    }
    if !wrong.is_empty() {
        eprintln!("{text}");
    }
    (n_values, wrong)
}

/// Whether a general register is used after an `__int128` that found only one left. LLVM leaves that register
/// unused; the psABI has it reverted to the arguments that follow.
fn leaves_a_register(passing: &Passing, signature: &Signature) -> bool {
    let is_general = |p: &Piece| matches!(p.place, Place::General(_));
    let parameters = || signature.parameters.iter().zip(&passing.parameters);
    let first = parameters().position(|(parameter, pieces)| {
        matches!(parameter.kind, Type::Integer { bytes: 16, .. }) && !pieces.iter().any(is_general)
    });
    first.is_some_and(|first| parameters().skip(first).any(|(_, pieces)| pieces.iter().any(is_general)))
}

/// Whether there are bit-fields without a name, which clang does not count when it looks for registers.
fn has_unnamed_bits(kind: &Type) -> bool {
    match kind {
        Type::Array { of, .. } => has_unnamed_bits(of),
        Type::Record(record) => {
            record.fields.iter().any(|f| f.bits.is_some() && f.name.is_empty() || has_unnamed_bits(&f.kind))
        }
        _ => false,
    }
}

/// The program's output: what each call and each return left.
fn ran(unit: &Unit, text: &str, place: &Path, compiler: &str, level: &str, options: Options) -> Vec<u8> {
    let labels: String = unit.cases.iter().map(|c| format!(".globl {0}\n{0}:\n", c.name)).collect();
    let code = if options.has_avx {
        CAPTURE.replace("MOVE", "vmovdqu").replace("%V", "%ymm")
    } else {
        CAPTURE.replace("MOVE", "movups").replace("%V", "%xmm")
    };
    std::fs::write(place.join("capture.s"), format!(".text\n{labels}{code}"))
        .expect("the folder can be written");
    std::fs::write(place.join("calls.c"), program(unit, text)).expect("the folder can be written");
    let mut command = Command::new(compiler);
    command.current_dir(place).args(["-w", level, "-o", "calls", "calls.c", "capture.s"]);
    must(command.args(options.has_avx.then_some("-mavx2")));
    let ran = Command::new(place.join("calls")).output().expect("it was built");
    assert!(ran.status.success(), "{compiler} {level}: {:?}", ran.status);
    ran.stdout
}

/// A program that calls each function with its values, and has each result returned.
fn program(unit: &Unit, text: &str) -> String {
    let mut program = format!(
        "#include <immintrin.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>
{text}
unsigned char seen[{SEEN}], left[112]; unsigned char memory[1024] __attribute__((aligned(64)));
void returned(void *);
#define PUT(place, ...) memcpy(&place, (unsigned char[]){{__VA_ARGS__}}, sizeof (unsigned char[]){{__VA_ARGS__}})
static void out(void) {{ void *at = memory; fwrite(left, 1, 112, stdout); fwrite(memory, 1, 1024, stdout); fwrite(&at, 1, 8, stdout); }}
"
    );
    for case in &unit.cases {
        write_case(&mut program, case).expect("text grows");
    }
    program.push_str("int main(void) { volatile char room[8192]; room[0] = 0;\n");
    for case in &unit.cases {
        writeln!(program, "call_{}();", case.name).expect("text grows");
    }
    program + "return room[0]; }\n"
}

fn write_case(to: &mut String, case: &Case) -> std::fmt::Result {
    let name = &case.name;
    if let Some((of, leaves)) = &case.result {
        writeln!(to, "static {} {name}_r;", of.name)?;
        writeln!(to, "static __attribute__((noinline, noclone)) {} {name}_g(void) {{", of.name)?;
        write_values(to, &format!("{name}_r"), leaves)?;
        writeln!(to, "return {name}_r; }}")?;
    }
    for (i, (of, _)) in case.parameters.iter().enumerate() {
        writeln!(to, "static {} {name}_{i};", of.name)?;
    }
    writeln!(to, "static __attribute__((noinline)) void call_{name}(void) {{ memset(memory, 0x55, 1024);")?;
    for (i, (_, leaves)) in case.parameters.iter().enumerate() {
        write_values(to, &format!("{name}_{i}"), leaves)?;
    }
    let mut given: Vec<String> = (0..case.parameters.len()).map(|i| format!("{name}_{i}")).collect();
    if case.is_variadic {
        given.extend(["7".to_owned(), "2.5".to_owned()]);
    }
    writeln!(to, "{name}({}); fwrite(seen, 1, {SEEN}, stdout);", given.join(", "))?;
    if case.result.is_some() {
        writeln!(to, "returned({name}_g);")?;
    }
    writeln!(to, "out(); }}")
}

fn write_values(to: &mut String, value: &str, leaves: &[Leaf]) -> std::fmt::Result {
    for leaf in leaves {
        let path = leaf.path.replace('$', value);
        match leaf.bits {
            Some(_) => {
                let bits: [u8; 8] = leaf.bytes[..8].try_into().expect("16 bytes");
                writeln!(to, "{path} = 0x{:x}ULL;", u64::from_le_bytes(bits))?;
            }
            None => {
                let bytes: Vec<String> = leaf.bytes.iter().map(u8::to_string).collect();
                writeln!(to, "PUT({path}, {});", bytes.join(", "))?;
            }
        }
    }
    Ok(())
}

/// The value's bytes, put together of its pieces.
fn value<'a>(kind: &Type, pieces: &[Piece], find: impl Fn(Place) -> &'a [u8]) -> Vec<u8> {
    let mut value = vec![0; usize::try_from(kind.size()).expect("small")];
    for piece in pieces {
        let (at, len) =
            (usize::try_from(piece.at).expect("small"), usize::try_from(piece.len).expect("small"));
        value[at..at + len].copy_from_slice(&find(piece.place)[..len]);
    }
    value
}

fn entered(seen: &[u8], place: Place) -> &[u8] {
    match place {
        Place::General(reg) => {
            let names = ["rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9"];
            let at = names.iter().position(|name| *name == reg.to_string()).expect("an argument's register");
            &seen[at * 8..at * 8 + 8]
        }
        Place::Vector(n) => &seen[64 + 32 * usize::from(n)..][..32],
        Place::Stack(at) => &seen[320 + usize::try_from(at).expect("small")..],
        other => panic!("no argument of C is passed in {other:?}"),
    }
}

fn came_back<'a>(left: &'a [u8], passing: &Passing, place: Place) -> &'a [u8] {
    match place {
        Place::General(reg) => match reg.to_string().as_str() {
            "rax" => &left[..8],
            "rdx" => &left[8..16],
            other => panic!("nothing is returned in {other}"),
        },
        Place::Vector(n) => &left[16 + 32 * usize::from(n)..][..32],
        Place::X87(n) => &left[80 + 16 * usize::from(n)..][..10],
        Place::Memory(reg) => {
            assert_eq!(reg.to_string(), "rax");
            assert_eq!(passing.result_address.map(|r| r.to_string()).as_deref(), Some("rdi"));
            assert_eq!(left[..8], left[LEFT - 8..], "rax is the address of the result");
            &left[112..]
        }
        other => panic!("nothing is returned in {other:?}"),
    }
}

/// What of a value is not what it was made to be.
fn differences<'a>(kind: &'a Type, value: &'a [u8], leaves: &'a [Leaf]) -> impl Iterator<Item = String> + 'a {
    leaves.iter().filter_map(move |leaf| {
        let (mut kind, mut at, mut bits) = (kind.clone(), 0, None::<Bits>);
        for step in &leaf.steps {
            let (next, offset) = match (step, &kind) {
                (Step::Field(name), record) => {
                    let field = record.field(name).unwrap_or_else(|| panic!("{record:?} has no {name}"));
                    bits = field.bits;
                    (field.kind, field.at)
                }
                (Step::Index(i), Type::Array { of, .. }) => ((**of).clone(), of.size() * i),
                (Step::Part(i), Type::Complex(of)) => ((**of).clone(), of.size() * i),
                (step, kind) => panic!("{step:?} of {kind:?}"),
            };
            (kind, at) = (next, at + offset);
        }
        let from = value.get(usize::try_from(at).expect("small")..).unwrap_or_default();
        let got = match bits {
            Some(bits) => {
                let mut all = [0; 32];
                let n = from.len().min(17);
                all[..n].copy_from_slice(&from[..n]);
                let low = u128::from_le_bytes(all[..16].try_into().expect("16 bytes")) >> bits.at;
                assert_eq!(Some(u64::from(bits.len)), leaf.bits);
                (low & ((1 << bits.len) - 1)).to_le_bytes().to_vec()
            }
            None => from.get(..leaf.bytes.len()).unwrap_or_default().to_vec(),
        };
        (got != leaf.bytes).then(|| format!("{} is {got:x?}, not {:x?}", leaf.path, leaf.bytes))
    })
}

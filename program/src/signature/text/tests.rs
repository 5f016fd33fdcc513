//! Texts of values, held against what the C library reads and writes.

use super::*;
use crate::signature::{Enum, Record};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Reads a format's letter and a number, as text, on each line; writes its bits, and how few digits suffice.
const READER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CHECK(T, READ, WRITE, n) { \
    T v = READ(text, 0); unsigned char b[16] = {0}; memcpy(b, &v, n); int p = 1; \
    for (; p < 40; p++) { char t[99], f[9]; snprintf(f, 9, "%%.%de", p - 1); WRITE; T w = READ(t, 0); if (!memcmp(&v, &w, n)) break; } \
    for (int i = 15; i >= 0; i--) printf("%02x", b[i]); printf(" %d\n", p); }
static _Float16 half(const char *t, char **e) { return (_Float16)strtof128(t, e); }
int main(void) {
  char kind, text[200];
  while (scanf(" %c %199s", &kind, text) == 2) switch (kind) {
    case 'h': CHECK(_Float16, half, strfromf128(t, 99, f, (_Float128)v), 2) break;
    case 's': CHECK(float, strtof, strfromf(t, 99, f, v), 4) break;
    case 'd': CHECK(double, strtod, strfromd(t, 99, f, v), 8) break;
    case 'x': CHECK(long double, strtold, strfroml(t, 99, f, v), 10) break;
    case 'q': CHECK(_Float128, strtof128, strfromf128(t, 99, f, v), 16) break;
  }
  return 0;
}
"#;

/// With their bits, and those of the fraction.
const FORMATS: [(char, Float, u32, u32); 5] = [
    ('h', Float::Half, 16, 10),
    ('s', Float::Single, 32, 23),
    ('d', Float::Double, 64, 52),
    ('x', Float::Extended, 80, 63),
    ('q', Float::Quad, 128, 112),
];

/// Numbers of all magnitudes, and those beside which the distance changes.
fn numbers() -> Vec<(char, Float, u128)> {
    let mut state = 1u128;
    let mut random = || {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        state ^ state >> 64
    };
    let mut found = Vec::new();
    for (letter, float, width, fraction) in FORMATS {
        let most = u128::MAX >> (128 - width);
        for i in 0..600 {
            let bits = match i % 6 {
                0 => random() & most,
                1 => (random() & most) >> fraction << fraction,
                2 => ((random() & most) >> fraction << fraction).wrapping_sub(1) & most,
                3 => random() & most & ((1 << fraction) - 1),
                4 => i,
                // About 1.
                _ => random() & most & ((4 << fraction) - 1) | (most >> 2) >> fraction << fraction,
            };
            // The first bit of the x87's mantissa is 1, but for denormal numbers.
            let explicit = if letter == 'x' && bits >> 64 & 0x7fff != 0 { 1 << 63 } else { 0 };
            let bits = if letter == 'x' && explicit == 0 { bits & !(1 << 63) } else { bits | explicit };
            found.push((letter, float, bits));
        }
    }
    found
}

#[test]
fn floating_point_numbers_read_back_and_are_as_short_as_can_be() {
    let place = tempfile::tempdir().expect("a folder for the test's files");
    let (source, reader) = (place.path().join("reader.c"), place.path().join("reader"));
    std::fs::write(&source, READER).expect("the folder can be written");
    let built =
        Command::new("gcc").arg("-w").arg(&source).arg("-o").arg(&reader).status().expect("gcc is there");
    assert!(built.success());
    let numbers = numbers();
    let texts: Vec<String> = numbers.iter().map(|n| text(&Type::Float(n.1), &n.2.to_le_bytes())).collect();
    let lines: String = numbers.iter().zip(&texts).map(|(n, text)| format!("{} {text}\n", n.0)).collect();
    let (input, output) = (place.path().join("in"), place.path().join("out"));
    std::fs::write(&input, lines).expect("the folder can be written");
    let ran = Command::new(&reader)
        .stdin(Stdio::from(std::fs::File::open(&input).expect("it was written")))
        .stdout(Stdio::from(std::fs::File::create(&output).expect("the folder can be written")))
        .status();
    assert!(ran.expect("it was built").success());
    let answers = std::fs::read_to_string(&output).expect("it was written");
    assert_eq!(answers.lines().count(), numbers.len());
    let (mut n_finite, mut n_shorter) = (0, 0);
    for ((number, text), answer) in numbers.iter().zip(&texts).zip(answers.lines()) {
        let (bits, n_digits) = answer.split_once(' ').expect("two words");
        if text == "nan" {
            continue;
        }
        assert_eq!(u128::from_str_radix(bits, 16).ok(), Some(number.2), "{text} of {number:x?}");
        if text.ends_with("inf") {
            continue;
        }
        n_finite += 1;
        let digits: String =
            text.split('e').next().into_iter().flat_map(str::chars).filter(char::is_ascii_digit).collect();
        let digits = digits.trim_start_matches('0').trim_end_matches('0').len().max(1);
        let n_digits: usize = n_digits.parse().expect("a number");
        // Halfway between two decimal numbers C takes the even one, which need not read back where ours does.
        assert!(digits <= n_digits && digits + 1 >= n_digits, "{text} of {number:x?}, {n_digits} suffice");
        n_shorter += usize::from(digits < n_digits);
    }
    assert!(n_finite > 2500 && n_shorter < 20, "{n_finite}, {n_shorter}");
}

fn integer(bytes: u8, is_signed: bool) -> Type {
    Type::Integer { bytes, is_signed }
}

#[track_caller]
fn check(kind: &Type, bytes: &[u8], want: &str, want_bits: &str) {
    assert_eq!((text(kind, bytes).as_str(), bits(kind, bytes).as_str()), (want, want_bits), "{kind}");
}

#[test]
fn values_are_written_as_c_has_them() {
    check(&integer(4, true), &(-5i32).to_le_bytes(), "-5", "0xfffffffb");
    check(&integer(16, false), &[0xff; 16], &u128::MAX.to_string(), &format!("{:#x}", u128::MAX));
    check(
        &integer(16, true),
        &i128::MIN.to_le_bytes(),
        &i128::MIN.to_string(),
        &format!("0x8{}", "0".repeat(31)),
    );
    check(&integer(8, true), &[1, 2], "?", "?");
    check(&Type::Bool, &[1], "true", "0x01");
    check(&Type::Bool, &[7], "7", "0x07");
    let char = Type::Char { bytes: 1, is_signed: true };
    for (byte, want) in [(b'a', "'a'"), (b'\n', "'\\n'"), (b'\'', "'\\''"), (0, "'\\0'"), (0xe9, "'\\xe9'")] {
        check(&char, &[byte], want, &format!("{byte:#04x}"));
    }
    let double = Type::Float(Float::Double);
    for (value, want) in [
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (f64::NAN, "nan"),
        (f64::NEG_INFINITY, "-inf"),
        (1e300, "1e300"),
        (1.5e-7, "1.5e-7"),
        (123_456.5, "123456.5"),
        (0.00015, "0.00015"),
    ] {
        assert_eq!(text(&double, &value.to_le_bytes()), want);
    }
    let complex = Type::Complex(Box::new(double.clone()));
    let parts = [1.5f64.to_le_bytes(), (-2f64).to_le_bytes()].concat();
    check(&complex, &parts, "1.5-2i", "0x3ff8000000000000+0xc000000000000000i");
    check(&Type::Pointer(Box::new(Type::Void)), &[0; 8], "0x0", "0x0000000000000000");
    let colours = vec![("red".to_owned(), -1), ("green".to_owned(), 3)];
    let colour = Type::Enum(Arc::new(Enum {
        name: "enum colour".to_owned(),
        bytes: 4,
        is_signed: true,
        values: colours,
    }));
    check(&colour, &[0xff; 4], "red", "0xffffffff");
    check(&colour, &[4, 0, 0, 0], "4", "0x00000004");
    check(
        &Type::Vector { of: Box::new(integer(2, false)), n: 2 },
        &[1, 0, 2, 1],
        "[1, 258]",
        "[0x0001, 0x0102]",
    );
    check(&Type::Array { of: Box::new(char.clone()), n: 4 }, b"hi\0\0", "\"hi\"", "[0x68, 0x69, 0x00, 0x00]");
    let field =
        |name: &str, kind: &Type, at, bits| Field { name: name.to_owned(), kind: kind.clone(), at, bits };
    let fields = vec![
        field("a", &integer(4, true), 0, None),
        field("", &integer(4, true), 4, Some(Bits { at: 0, len: 3 })),
        field("b", &integer(4, true), 4, Some(Bits { at: 3, len: 7 })),
        field("c", &integer(16, false), 5, Some(Bits { at: 7, len: 128 })),
    ];
    let name = "struct s".to_owned();
    let record = Record { name, is_union: false, fields, size: 32, align: 4, by_reference: false };
    let mut bytes = [0; 32];
    bytes[..6].copy_from_slice(&[9, 0, 0, 0, 0b1111_1000, 0b1000_0011]);
    bytes[6..22].fill(0xff);
    let record = Type::Record(Arc::new(record));
    check(
        &record,
        &bytes,
        &format!("{{a=9, b=-1, c={}}}", u128::MAX),
        &format!("{{a=0x00000009, b=0x7f, c={:#x}}}", u128::MAX),
    );
    assert_eq!(text(&record, &[0; 8]), "{a=0, b=0, c=?}");
    assert_eq!(quoted("tab\t\"\u{e9}\u{0}".as_bytes()), "\"tab\\t\\\"\u{e9}\\0\"");
    assert_eq!(quoted(b"\xff1"), "\"\\xff1\"");
}

/// Operands that no instruction of the x87 takes are no numbers.
#[test]
fn invalid_numbers_of_the_x87_are_none() {
    let extended = Type::Float(Float::Extended);
    let number =
        |exponent: u16, mantissa: u64| [&mantissa.to_le_bytes()[..], &exponent.to_le_bytes()].concat();
    assert_eq!(text(&extended, &number(0x3fff, 1 << 63)), "1");
    assert_eq!(text(&extended, &number(0x3fff, 1)), "nan");
    assert_eq!(text(&extended, &number(0xffff, 1 << 63)), "-inf");
    assert_eq!(text(&extended, &number(0x7fff, 0)), "nan");
    assert_eq!(text(&extended, &number(0x8000, 0)), "-0");
    assert_eq!(bits(&extended, &number(0x3fff, 1 << 63)), "0x3fff8000000000000000");
}

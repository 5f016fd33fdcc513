//! Arithmetic types, by the words that name them.
//!
//! Source: ISO C17, 6.7.2; GCC manual, "128-bit Integers", "Additional Floating Types", "Complex Numbers".
#![warn(clippy::indexing_slicing)]

use program::signature::{Float, Type};

/// Whether it is part of the name of an arithmetic type, or `void`.
pub fn is_arithmetic(word: &str) -> bool {
    matches!(
        word,
        "void"
            | "char"
            | "short"
            | "int"
            | "long"
            | "float"
            | "double"
            | "signed"
            | "unsigned"
            | "_Bool"
            | "bool"
            | "_Complex"
            | "__complex__"
            | "__complex"
            | "__int128"
            | "__int128__"
            | "_Float16"
            | "_Float32"
            | "_Float64"
            | "_Float128"
            | "_Float32x"
            | "_Float64x"
            | "__float128"
            | "__float80"
            | "__signed__"
            | "__signed"
            | "_Fp16"
    )
}

/// The type that these words are together, in any order (ISO C17, 6.7.2).
pub fn arithmetic(words: &[String]) -> Option<Type> {
    let count = |names: &[&str]| words.iter().filter(|w| names.contains(&w.as_str())).count();
    let (longs, shorts, ints) = (count(&["long"]), count(&["short"]), count(&["int"]));
    let unsigned = count(&["unsigned"]);
    let signs = unsigned + count(&["signed", "__signed__", "__signed"]);
    let complex = count(&["_Complex", "__complex__", "__complex", "complex"]);
    let rest: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|w| {
            let modifiers = [
                "long",
                "short",
                "int",
                "unsigned",
                "signed",
                "__signed__",
                "__signed",
                "_Complex",
                "__complex__",
                "__complex",
                "complex",
            ];
            !modifiers.contains(w)
        })
        .collect();
    if rest.len() > 1 || signs > 1 || complex > 1 || longs > 2 || shorts > 1 || ints > 1 {
        return None;
    }
    let integer = |bytes| Type::Integer { bytes, is_signed: unsigned == 0 };
    let is_plain = longs + shorts + ints + signs == 0;
    let kind = match rest.first().copied() {
        None if longs > 0 && shorts == 0 => integer(8),
        None if shorts > 0 && longs == 0 => integer(2),
        None if ints + signs > 0 => integer(4),
        // `_Complex` alone.
        None if complex == 1 && longs + shorts == 0 => Type::Float(Float::Double),
        Some("char") if longs + shorts + ints == 0 && signs > 0 => integer(1),
        Some("char") if is_plain => Type::Char { bytes: 1, is_signed: true },
        Some("__int128" | "__int128__") if longs + shorts + ints == 0 => integer(16),
        Some("double") if longs == 1 && shorts + ints + signs == 0 => Type::Float(Float::Extended),
        Some(name) if is_plain => match name {
            "void" => Type::Void,
            "_Bool" | "bool" => Type::Bool,
            "_Float16" | "_Fp16" => Type::Float(Float::Half),
            "float" | "_Float32" => Type::Float(Float::Single),
            "double" | "_Float64" | "_Float32x" => Type::Float(Float::Double),
            "__float80" | "_Float64x" => Type::Float(Float::Extended),
            "_Float128" | "__float128" => Type::Float(Float::Quad),
            _ => return None,
        },
        _ => return None,
    };
    match (complex, &kind) {
        (0, _) => Some(kind),
        (_, Type::Void | Type::Bool) => None,
        (_, _) => Some(Type::Complex(Box::new(kind))),
    }
}

//! Constant expressions: sizes of arrays, lengths of bit-fields, values of enumerations.
//!
//! Source: ISO C17, 6.6 and 6.5. Computed with 128 bits; casts cut.
#![warn(clippy::indexing_slicing)]

use super::super::tokens::Token;
use super::{Parser, Result};
use program::signature::Type;

/// Operators by how tightly they bind.
const LEVELS: &[(&str, u8)] = &[
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<", 7),
    (">", 7),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

/// The value of an expression whose operators bind more tightly than `above`.
pub fn expression(parser: &mut Parser, above: u8) -> Result<i128> {
    let mut left = unary(parser)?;
    loop {
        let Token::Mark(mark) = parser.peek().clone() else { return Ok(left) };
        if mark == "?" && above == 0 {
            parser.take();
            let yes = parser.constant()?;
            parser.expect(":")?;
            let no = parser.constant()?;
            return Ok(if left == 0 { no } else { yes });
        }
        let Some((_, level)) = LEVELS.iter().find(|l| l.0 == mark && l.1 > above) else { return Ok(left) };
        parser.take();
        let right = parser.nested(|parser| expression(parser, *level))?;
        left = match operation(mark, left, right) {
            Some(value) => value,
            None => return Err(parser.unexpected("a divisor other than 0")),
        };
    }
}

fn operation(mark: &str, a: i128, b: i128) -> Option<i128> {
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Some(match mark {
        "||" => i128::from(a != 0 || b != 0),
        "&&" => i128::from(a != 0 && b != 0),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i128::from(a == b),
        "!=" => i128::from(a != b),
        "<" => i128::from(a < b),
        ">" => i128::from(a > b),
        "<=" => i128::from(a <= b),
        ">=" => i128::from(a >= b),
        "<<" => a.checked_shl(shift).unwrap_or(0),
        ">>" => a.checked_shr(shift).unwrap_or(0),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}

fn unary(parser: &mut Parser) -> Result<i128> {
    parser.nested(|parser| {
        for (mark, apply) in [
            ("-", (|n: i128| n.wrapping_neg()) as fn(i128) -> i128),
            ("+", |n| n),
            ("~", |n| !n),
            ("!", |n| i128::from(n == 0)),
        ] {
            if parser.take_mark(mark) {
                return unary(parser).map(apply);
            }
        }
        match parser.peek().clone() {
            Token::Integer(n) => {
                parser.take();
                Ok(n)
            }
            Token::Mark("(") => {
                parser.take();
                if parser.is_type() {
                    let kind = parser.type_name()?.kind;
                    parser.expect(")")?;
                    return Ok(cast(unary(parser)?, &kind));
                }
                let value = parser.constant()?;
                parser.expect(")")?;
                Ok(value)
            }
            Token::Word(word) => match word.as_str() {
                "sizeof" | "_Alignof" | "alignof" | "__alignof__" | "__alignof" => {
                    parser.take();
                    parser.expect("(")?;
                    let kind = parser.type_name()?.kind;
                    let kind = parser.scope.resolve(&kind);
                    parser.expect(")")?;
                    if matches!(kind, Type::Named(_)) {
                        return Err(parser.unexpected(&format!("a type whose size is known, not `{kind}`")));
                    }
                    Ok(i128::from(if word == "sizeof" { kind.size() } else { kind.align() }))
                }
                "__extension__" => {
                    parser.take();
                    unary(parser)
                }
                name => {
                    let Some(value) = parser.scope.constants.get(name).copied() else {
                        return Err(parser.unexpected("a constant"));
                    };
                    parser.take();
                    Ok(value)
                }
            },
            _ => Err(parser.unexpected("a constant")),
        }
    })
}

fn cast(value: i128, kind: &Type) -> i128 {
    let (bytes, is_signed) = match kind {
        Type::Bool => return i128::from(value != 0),
        Type::Char { bytes, is_signed } | Type::Integer { bytes, is_signed } => (*bytes, *is_signed),
        Type::Enum(e) => (e.bytes, e.is_signed),
        _ => return value,
    };
    let unused = 128 - u32::from(bytes.min(16)) * 8;
    let cut = value.wrapping_shl(unused);
    match (unused, is_signed) {
        (0 | 128.., _) => value,
        (_, true) => cut >> unused,
        (_, false) => i128::try_from(cut.cast_unsigned() >> unused).unwrap_or(value),
    }
}

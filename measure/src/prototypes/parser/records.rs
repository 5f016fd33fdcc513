//! Structs, unions and enumerations.
//!
//! Source: ISO C17, 6.7.2.1 and 6.7.2.2; GCC manual, "Structures, Unions, Enumerations, and Bit-Fields
//! Implementation" (which type an enumeration has).
#![warn(clippy::indexing_slicing)]

use super::super::PrototypeError;
use super::super::tokens::Token;
use super::attributes::Attributes;
use super::{Declared, MOST_BYTES, Parser, Result};
use program::signature::layout::{self, Member};
use program::signature::{Enum, Type};
use std::sync::Arc;

/// A field, as it is declared.
pub struct Declaration {
    /// Empty, if it has none.
    pub name: String,
    pub declared: Declared,
    /// The length that was given to a bit-field.
    pub bits: Option<i128>,
    pub attributes: Attributes,
}

/// What follows `struct` or `union`.
pub fn record(parser: &mut Parser, kind: &str) -> Result<Declared> {
    let before = parser.attributes()?;
    let name = tag(parser, kind);
    if !parser.is_mark("{") {
        let name = name.ok_or_else(|| parser.unexpected("a name or `{`"))?;
        let known = parser.scope.tags.get(&name).cloned();
        return Ok(known.unwrap_or_else(|| Declared::plain(Type::Named(name))));
    }
    let at = parser.position();
    parser.expect("{")?;
    let mut members = Vec::new();
    while !parser.take_mark("}") {
        if parser.take_mark(";") {
            continue;
        }
        if let Token::Pack(how) = parser.peek().clone() {
            parser.take();
            super::attributes::pack(&mut parser.scope.pack, &how);
            continue;
        }
        if parser.take_word(&["_Static_assert", "static_assert"]) {
            parser.skip_balanced();
            continue;
        }
        parser.members(&mut |declaration| members.push(declaration))?;
    }
    let attributes = before.and(&parser.attributes()?);
    let members = members
        .into_iter()
        .map(|d| {
            let bits = d.bits.map(|n| u32::try_from(n).ok().filter(|n| *n <= 128)).map(|n| {
                let most = d.declared.kind.size().saturating_mul(8);
                n.filter(|n| u64::from(*n) <= most && is_integer(&d.declared.kind))
            });
            if bits == Some(None) {
                return Err(PrototypeError::NoBits { at: at.clone(), name: d.name });
            }
            Ok(Member {
                name: d.name,
                kind: d.declared.kind,
                type_align: d.declared.align,
                align: d.attributes.align,
                bits: bits.flatten(),
                is_packed: d.attributes.is_packed,
            })
        })
        .collect::<Result<Vec<Member>>>()?;
    let rules = layout::Attributes {
        is_packed: attributes.is_packed,
        align: attributes.align,
        most_align: parser.scope.pack.last().copied().flatten(),
    };
    let name = name.unwrap_or_else(|| unnamed(parser, kind));
    let record = layout::record(name.clone(), kind == "union", members, rules);
    if record.size > MOST_BYTES {
        return Err(PrototypeError::TooLarge { at });
    }
    let kind = Type::Record(Arc::new(record));
    let declared = Declared { kind, align: None, is_transparent: attributes.is_transparent };
    parser.scope.tags.insert(name, declared.clone());
    Ok(declared)
}

/// What follows `enum`.
pub fn enumeration(parser: &mut Parser) -> Result<Declared> {
    let before = parser.attributes()?;
    let name = tag(parser, "enum");
    let underlying = if parser.take_mark(":") { Some(parser.type_name()?.kind) } else { None };
    if !parser.is_mark("{") {
        let name = name.ok_or_else(|| parser.unexpected("a name or `{`"))?;
        // gcc lets enumerations be named before they are declared; most of them are unsigned.
        let known = parser.scope.tags.get(&name).cloned();
        return Ok(known.unwrap_or_else(|| Declared::plain(Type::Named(name))));
    }
    parser.expect("{")?;
    let (mut values, mut next) = (Vec::new(), 0i128);
    while !parser.take_mark("}") {
        let Token::Word(name) = parser.peek().clone() else { return Err(parser.unexpected("a name or `}`")) };
        parser.take();
        parser.attributes()?;
        if parser.take_mark("=") {
            next = parser.constant()?;
        }
        parser.scope.constants.insert(name.clone(), next);
        values.push((name, next));
        next = next.wrapping_add(1);
        if !parser.take_mark(",") {
            parser.expect("}")?;
            break;
        }
    }
    let attributes = before.and(&parser.attributes()?);
    let name = name.unwrap_or_else(|| unnamed(parser, "enum"));
    let (bytes, is_signed) = match underlying {
        Some(Type::Integer { bytes, is_signed } | Type::Char { bytes, is_signed }) => (bytes, is_signed),
        Some(Type::Bool) => (1, false),
        _ => size(&values, attributes.is_packed),
    };
    let kind = Type::Enum(Arc::new(Enum { name: name.clone(), bytes, is_signed, values }));
    parser.scope.tags.insert(name, Declared::plain(kind.clone()));
    Ok(Declared::plain(kind))
}

/// The size of an enumeration, and whether it is signed.
fn size(values: &[(String, i128)], is_packed: bool) -> (u8, bool) {
    let least = values.iter().map(|v| v.1).min().unwrap_or(0).min(0);
    let most = values.iter().map(|v| v.1).max().unwrap_or(0);
    let is_signed = least < 0;
    let fits = |bytes: u8| {
        let bits = u32::from(bytes) * 8 - u32::from(is_signed);
        most < 1 << bits && least >= -(1 << bits)
    };
    let sizes: &[u8] = if is_packed { &[1, 2, 4] } else { &[4] };
    (sizes.iter().copied().find(|bytes| fits(*bytes)).unwrap_or(8), is_signed)
}

fn is_integer(kind: &Type) -> bool {
    matches!(kind, Type::Bool | Type::Char { .. } | Type::Integer { .. } | Type::Enum(_))
}

fn tag(parser: &mut Parser, kind: &str) -> Option<String> {
    let Token::Word(name) = parser.peek().clone() else { return None };
    parser.take();
    Some(format!("{kind} {name}"))
}

fn unnamed(parser: &mut Parser, kind: &str) -> String {
    parser.scope.n_unnamed += 1;
    format!("<{kind} {}>", parser.scope.n_unnamed)
}

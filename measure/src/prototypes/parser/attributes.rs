//! `__attribute__((…))`, `_Alignas`, names for the assembler, `#pragma pack`: what of them changes how values
//! are laid out or passed.
//!
//! Source: GCC manual, "Attribute Syntax", "Common Type Attributes", "x86 Function Attributes",
//! "Structure-Layout Pragmas"; clang's language extensions, "Vectors and Extended Vectors".
#![warn(clippy::indexing_slicing)]

use super::super::PrototypeError;
use super::super::tokens::{Position, Token};
use super::{Parser, Result};
use program::signature::{Float, Type};

/// What attributes say of a type, a field or a function.
#[derive(Clone, Default, Debug)]
pub struct Attributes {
    pub is_packed: bool,
    /// In bytes.
    pub align: Option<u64>,
    pub is_transparent: bool,
    /// Another calling convention than the System V ABI's.
    pub is_foreign: bool,
    vector: Option<Vector>,
    mode: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Vector {
    Bytes(u64),
    Elements(u64),
}

/// The largest alignment that gcc and clang take, in bytes.
const MOST_ALIGN: i128 = 1 << 28;
/// What `aligned` without a number stands for.
const BIGGEST_ALIGN: u64 = 16;
/// The largest vector register's, in bytes; compilers take more, as no register.
const MOST_VECTOR_BYTES: u64 = 64;

impl Attributes {
    /// Both.
    pub fn and(&self, other: &Attributes) -> Attributes {
        Attributes {
            is_packed: self.is_packed || other.is_packed,
            align: self.align.max(other.align),
            is_transparent: self.is_transparent || other.is_transparent,
            is_foreign: self.is_foreign || other.is_foreign,
            vector: other.vector.or(self.vector),
            mode: other.mode.clone().or_else(|| self.mode.clone()),
        }
    }

    /// The type that `vector_size` and `mode` make of it.
    pub fn applied_to(&self, kind: Type, at: &Position) -> Result<Type> {
        let kind = self.mode.as_deref().and_then(|mode| with_mode(&kind, mode)).unwrap_or(kind);
        let n = match self.vector {
            None => return Ok(kind),
            Some(Vector::Bytes(bytes)) => bytes / kind.size().max(1),
            Some(Vector::Elements(n)) => n,
        };
        let is_scalar = matches!(
            kind,
            Type::Bool
                | Type::Char { .. }
                | Type::Integer { .. }
                | Type::Float(_)
                | Type::Pointer(_)
                | Type::Enum(_)
        );
        let vector = Type::Vector { of: Box::new(kind), n };
        if !is_scalar || !vector.size().is_power_of_two() || vector.size() > MOST_VECTOR_BYTES {
            return Err(PrototypeError::NoType { at: at.clone(), words: vector.to_string() });
        }
        Ok(vector)
    }
}

/// The type of that size, of the same sort.
fn with_mode(kind: &Type, mode: &str) -> Option<Type> {
    let is_signed = !matches!(kind, Type::Integer { is_signed: false, .. } | Type::Bool);
    let integer = |bytes| Some(Type::Integer { bytes, is_signed });
    let complex = |float| Some(Type::Complex(Box::new(Type::Float(float))));
    match mode {
        "QI" | "byte" => integer(1),
        "HI" => integer(2),
        "SI" => integer(4),
        "DI" | "word" | "pointer" => integer(8),
        "TI" => integer(16),
        "HF" => Some(Type::Float(Float::Half)),
        "SF" => Some(Type::Float(Float::Single)),
        "DF" => Some(Type::Float(Float::Double)),
        "XF" => Some(Type::Float(Float::Extended)),
        "TF" => Some(Type::Float(Float::Quad)),
        "SC" => complex(Float::Single),
        "DC" => complex(Float::Double),
        "XC" => complex(Float::Extended),
        "TC" => complex(Float::Quad),
        _ => None,
    }
}

/// All attributes that stand here.
pub fn attributes(parser: &mut Parser) -> Result<Attributes> {
    let mut found = Attributes::default();
    loop {
        if parser.take_word(&["__attribute__", "__attribute"]) {
            parser.expect("(")?;
            parser.expect("(")?;
            while !parser.take_mark(")") {
                attribute(parser, &mut found)?;
            }
            parser.expect(")")?;
        } else if parser.take_word(&["_Alignas", "alignas"]) {
            parser.expect("(")?;
            let align = if parser.is_type() {
                i128::from(parser.nested(Parser::type_name)?.kind.align())
            } else {
                parser.constant()?
            };
            parser.expect(")")?;
            found.align = found.align.max(aligned(align));
        } else if parser.take_word(&["asm", "__asm__", "__asm"]) {
            if parser.is_mark("(") {
                parser.skip_balanced();
            }
        } else {
            return Ok(found);
        }
    }
}

fn attribute(parser: &mut Parser, found: &mut Attributes) -> Result<()> {
    if parser.take_mark(",") {
        return Ok(());
    }
    let Token::Word(name) = parser.take() else { return Err(parser.unexpected("an attribute")) };
    let has_arguments = parser.is_mark("(");
    match bare(&name) {
        "packed" => found.is_packed = true,
        "transparent_union" => found.is_transparent = true,
        "ms_abi" | "vectorcall" | "regcall" | "preserve_none" | "preserve_most" | "preserve_all" => {
            found.is_foreign = true;
        }
        "aligned" if !has_arguments => found.align = found.align.max(Some(BIGGEST_ALIGN)),
        word @ ("aligned" | "vector_size" | "ext_vector_type") if has_arguments => {
            parser.expect("(")?;
            let n = parser.constant()?;
            parser.expect(")")?;
            let size = u64::try_from(n).unwrap_or(0);
            match word {
                "aligned" => found.align = found.align.max(aligned(n)),
                "vector_size" => found.vector = Some(Vector::Bytes(size)),
                _ => found.vector = Some(Vector::Elements(size)),
            }
            return Ok(());
        }
        "mode" if has_arguments => {
            parser.expect("(")?;
            if let Token::Word(mode) = parser.take() {
                found.mode = Some(bare(&mode).to_owned());
            }
            return parser.expect(")");
        }
        _ => {}
    }
    if has_arguments {
        parser.skip_balanced();
    }
    if *parser.peek() == Token::End {
        return Err(parser.unexpected("`)`"));
    }
    Ok(())
}

fn aligned(n: i128) -> Option<u64> {
    let n = u64::try_from(n.min(MOST_ALIGN)).ok()?;
    n.is_power_of_two().then_some(n)
}

/// `packed` and `__packed__` are the same.
fn bare(name: &str) -> &str {
    name.strip_prefix("__").and_then(|n| n.strip_suffix("__")).unwrap_or(name)
}

/// What `#pragma pack(how)` does: the last of `stack` holds, the others were pushed.
pub fn pack(stack: &mut Vec<Option<u64>>, how: &str) {
    let now = stack.last().copied().flatten();
    let words: Vec<&str> = how.split(',').map(str::trim).collect();
    let number = words.iter().find_map(|w| w.parse::<u64>().ok()).filter(|n| n.is_power_of_two());
    match words.first().copied() {
        Some("push") => {
            if stack.is_empty() {
                stack.push(None);
            }
            stack.push(number.or(now));
        }
        Some("pop") => {
            stack.pop();
        }
        _ => {
            stack.pop();
            stack.push(number);
        }
    }
}

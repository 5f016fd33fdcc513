//! Types, as debug information describes them.
//!
//! What is behind pointers is known by its name alone.
//!
//! Source: DWARF 5, 5 (type entries); Itanium C++ ABI, 3.1.1 (which classes are passed by reference).

use super::units::{Die, Entry, Units};
use crate::signature::{Bits, Enum, Field, Float, Record, Type};
use gimli::AttributeValue;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// No type is nested deeper.
const DEEPEST: u32 = 40;

/// The types of all units.
pub struct Kinds {
    known: RefCell<HashMap<Die, Option<Type>>>,
}

/// How types of a language are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    C,
    Cpp,
    Fortran,
    Rust,
    /// Of which it is not known how it calls functions.
    Other,
}

impl Language {
    /// Of the unit that `die` is in.
    pub fn of(units: &Units, die: Die) -> Language {
        let value = units.root(die).and_then(|root| root.attr_value(gimli::DW_AT_language));
        let Some(AttributeValue::Language(language)) = value else { return Language::Other };
        match language {
            gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_ObjC => Language::C,
            // DW_LANG_C23, which is newer than DWARF 5.
            gimli::DwLang(0x3e) => Language::C,
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
            | gimli::DW_LANG_ObjC_plus_plus => Language::Cpp,
            gimli::DwLang(0x3a | 0x41) => Language::Cpp,
            gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18 => Language::Fortran,
            gimli::DW_LANG_Rust => Language::Rust,
            _ => Language::Other,
        }
    }
}

/// One of these types, while it is read.
struct Reading<'a> {
    kinds: &'a Kinds,
    units: &'a Units,
    language: Language,
}

impl Kinds {
    pub fn new() -> Kinds {
        Kinds { known: RefCell::default() }
    }

    /// The type at `die`; none, if values of it cannot be laid out.
    pub fn of(&self, units: &Units, die: Die, language: Language) -> Option<Type> {
        Reading { kinds: self, units, language }.whole(die, None, 0)
    }

    /// What stands for it behind a pointer, or where its layout is not known.
    pub fn name(&self, units: &Units, die: Die, language: Language) -> Type {
        Reading { kinds: self, units, language }.pointee(Some(die), 0, false)
    }
}

impl Reading<'_> {
    fn to(&self, die: Die) -> Option<Die> {
        self.units.reference(die, gimli::DW_AT_type)
    }

    fn number(&self, entry: &Entry, name: gimli::DwAt) -> Option<u64> {
        entry.attr_value(name)?.udata_value()
    }

    fn size(&self, die: Die) -> Option<u64> {
        self.units.attribute(die, gimli::DW_AT_byte_size)?.1.udata_value()
    }

    /// With all that it consists of; `alias` is what a `typedef` calls it.
    fn whole(&self, die: Die, alias: Option<&str>, depth: u32) -> Option<Type> {
        if depth > DEEPEST {
            return None;
        }
        if let Some(known) = self.kinds.known.borrow().get(&die) {
            return known.clone();
        }
        // What contains itself has no size.
        self.kinds.known.borrow_mut().insert(die, None);
        let kind = self.read(die, alias, depth);
        self.kinds.known.borrow_mut().insert(die, kind.clone());
        kind
    }

    fn read(&self, die: Die, alias: Option<&str>, depth: u32) -> Option<Type> {
        let entry = self.units.entry(die)?;
        match entry.tag() {
            gimli::DW_TAG_base_type => self.base(die, &entry),
            gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias => {
                let name = self.units.text(die, gimli::DW_AT_name);
                let name = name.map(|name| self.units.scope(die) + &name);
                self.whole(self.to(die)?, name.as_deref(), depth + 1)
            }
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_immutable_type
            | gimli::DW_TAG_packed_type
            | gimli::DW_TAG_subrange_type => self.whole(self.to(die)?, alias, depth + 1),
            gimli::DW_TAG_enumeration_type => self.enumeration(die, &entry, alias, depth),
            gimli::DW_TAG_array_type => self.array(die, &entry, depth),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.record(die, &entry, alias, depth)
            }
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                Some(Type::Pointer(Box::new(self.pointee(self.to(die), depth + 1, false))))
            }
            gimli::DW_TAG_ptr_to_member_type => Some(self.pointer_to_member(die)),
            // `decltype(nullptr)`.
            gimli::DW_TAG_unspecified_type => Some(Type::Pointer(Box::new(Type::Void))),
            _ => None,
        }
    }

    /// Itanium C++ ABI, 2.3.
    fn pointer_to_member(&self, die: Die) -> Type {
        let to = self.to(die).and_then(|to| self.units.entry(to));
        let long = Type::Integer { bytes: 8, is_signed: true };
        if to.is_none_or(|to| to.tag() != gimli::DW_TAG_subroutine_type) {
            return long;
        }
        let field = |name: &str, at, kind| Field { name: name.to_owned(), kind, at, bits: None };
        let pointer = Type::Pointer(Box::new(Type::Void));
        let fields = vec![field("ptr", 0, pointer), field("adj", 8, long)];
        let name = "pointer to member function".to_owned();
        let record = Record { name, is_union: false, fields, size: 16, align: 8, by_reference: false };
        Type::Record(Arc::new(record))
    }

    fn base(&self, die: Die, entry: &Entry) -> Option<Type> {
        let name = self.units.text(die, gimli::DW_AT_name).unwrap_or_default();
        let bytes = u8::try_from(self.size(die)?).ok()?;
        let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else {
            return None;
        };
        let is_char = matches!(name.as_str(), "char" | "wchar_t" | "char8_t" | "char16_t" | "char32_t");
        let integer = |is_signed| {
            let kind = match is_char {
                true => Type::Char { bytes, is_signed },
                false => Type::Integer { bytes, is_signed },
            };
            matches!(bytes, 1 | 2 | 4 | 8 | 16).then_some(kind)
        };
        match encoding {
            gimli::DW_ATE_boolean if bytes == 1 => Some(Type::Bool),
            gimli::DW_ATE_boolean | gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char => integer(false),
            gimli::DW_ATE_address => integer(false),
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => integer(true),
            gimli::DW_ATE_UTF => matches!(bytes, 1 | 2 | 4).then_some(Type::Char { bytes, is_signed: false }),
            gimli::DW_ATE_float => float(bytes, &name).map(Type::Float),
            gimli::DW_ATE_complex_float => {
                float(bytes / 2, &name).map(|of| Type::Complex(Box::new(Type::Float(of))))
            }
            _ => None,
        }
    }

    fn enumeration(&self, die: Die, entry: &Entry, alias: Option<&str>, depth: u32) -> Option<Type> {
        let is_declared = entry.has_attr(gimli::DW_AT_declaration) && !entry.has_attr(gimli::DW_AT_byte_size);
        if is_declared || entry.has_attr(gimli::DW_AT_signature) {
            return self.elsewhere(die, entry, alias, depth);
        }
        let bytes = u8::try_from(self.size(die)?).ok().filter(|bytes| matches!(bytes, 1 | 2 | 4 | 8))?;
        let listed = self.units.children(die);
        let values = || listed.iter().filter(|(_, child)| child.tag() == gimli::DW_TAG_enumerator);
        let const_value = |child: &Entry| child.attr_value(gimli::DW_AT_const_value);
        let is_signed = match self.to(die).and_then(|of| self.whole(of, None, depth + 1)) {
            Some(Type::Integer { is_signed, .. } | Type::Char { is_signed, .. }) => is_signed,
            Some(Type::Bool) => false,
            _ => values().any(|(_, child)| {
                const_value(child).is_some_and(|v| v.udata_value().is_none() && v.sdata_value() < Some(0))
            }),
        };
        let values = values()
            .filter_map(|(at, child)| {
                let value = const_value(child)?;
                let value = match is_signed {
                    true => i128::from(value.sdata_value()?),
                    false => i128::from(value.udata_value().or(value.sdata_value().map(i64::cast_unsigned))?),
                };
                Some((self.units.text(*at, gimli::DW_AT_name)?, value))
            })
            .collect();
        let name = self.called(die, "enum", alias);
        Some(Type::Enum(Arc::new(Enum { name, bytes, is_signed, values })))
    }

    /// The type that is declared at `die`, where it is defined.
    fn elsewhere(&self, die: Die, entry: &Entry, alias: Option<&str>, depth: u32) -> Option<Type> {
        let to = match entry.attr_value(gimli::DW_AT_signature) {
            Some(signature) => self.units.referred(die, &signature),
            None => self.units.definition(die),
        };
        self.whole(to.filter(|to| *to != die)?, alias, depth + 1)
    }

    fn array(&self, die: Die, entry: &Entry, depth: u32) -> Option<Type> {
        let mut of = self.whole(self.to(die)?, None, depth + 1)?;
        let lengths: Vec<u64> = self.lengths(die);
        if entry.has_attr(gimli::DW_AT_GNU_vector) {
            return lengths.first().map(|n| Type::Vector { of: Box::new(of), n: *n });
        }
        for n in lengths.into_iter().rev() {
            of = Type::Array { of: Box::new(of), n };
        }
        Some(of)
    }

    /// How many elements each dimension has; none, if that is known at run time alone.
    fn lengths(&self, die: Die) -> Vec<u64> {
        let children = self.units.children(die);
        let ranges = children.iter().filter(|(_, child)| child.tag() == gimli::DW_TAG_subrange_type);
        ranges
            .map(|(_, range)| {
                let first = if self.language == Language::Fortran { 1 } else { 0 };
                let first =
                    range.attr_value(gimli::DW_AT_lower_bound).and_then(|v| v.sdata_value()).unwrap_or(first);
                let count = self.number(range, gimli::DW_AT_count);
                let last = range.attr_value(gimli::DW_AT_upper_bound).and_then(|v| v.sdata_value());
                let n = || u64::try_from(last?.checked_sub(first)?.checked_add(1)?).ok();
                count.or_else(n).unwrap_or(0)
            })
            .collect()
    }

    fn record(&self, die: Die, entry: &Entry, alias: Option<&str>, depth: u32) -> Option<Type> {
        if entry.has_attr(gimli::DW_AT_declaration) || entry.has_attr(gimli::DW_AT_signature) {
            return self.elsewhere(die, entry, alias, depth);
        }
        let size = self.size(die)?;
        let is_union = entry.tag() == gimli::DW_TAG_union_type;
        let children = self.units.children(die);
        let has_variants = children.iter().any(|(_, child)| child.tag() == gimli::DW_TAG_variant_part);
        let fields = match has_variants {
            // Which of them it is, is not looked at: all bytes are shown.
            true => {
                let of = Box::new(Type::Integer { bytes: 1, is_signed: false });
                vec![Field { name: String::new(), kind: Type::Array { of, n: size }, at: 0, bits: None }]
            }
            false => self.fields(&children, depth)?,
        };
        let align = self.number(entry, gimli::DW_AT_alignment).filter(|align| align.is_power_of_two());
        let align = align.unwrap_or_else(|| natural_align(&fields, size));
        let by_reference = match entry.attr_value(gimli::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) => true,
            Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_value)) => false,
            _ => self.language == Language::Cpp && self.is_passed_by_reference(die, &children, &fields),
        };
        let name = self.called(die, if is_union { "union" } else { "struct" }, alias);
        Some(Type::Record(Arc::new(Record { name, is_union, fields, size, align, by_reference })))
    }

    fn fields(&self, children: &[(Die, Entry)], depth: u32) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        for (die, entry) in children {
            let is_base = entry.tag() == gimli::DW_TAG_inheritance;
            let is_static = entry.has_attr(gimli::DW_AT_external) || entry.has_attr(gimli::DW_AT_declaration);
            if !is_base && entry.tag() != gimli::DW_TAG_member || is_static {
                continue;
            }
            let kind = self.whole(self.to(*die)?, None, depth + 1)?;
            let name = if is_base { None } else { self.units.text(*die, gimli::DW_AT_name) };
            let name = name.unwrap_or_default();
            let at = match entry.attr_value(gimli::DW_AT_data_member_location) {
                None => 0,
                Some(value) => match value.udata_value() {
                    Some(at) => at,
                    // Where a virtual base is, is known at run time alone.
                    None => continue,
                },
            };
            let Some(len) = self.number(entry, gimli::DW_AT_bit_size) else {
                fields.push(Field { name, kind, at, bits: None });
                continue;
            };
            let first = match self.number(entry, gimli::DW_AT_data_bit_offset) {
                Some(first) => first,
                // DWARF 3: counted from the highest bit of a unit of so many bytes.
                None => {
                    let unit = self.number(entry, gimli::DW_AT_byte_size).unwrap_or_else(|| kind.size());
                    let above = entry.attr_value(gimli::DW_AT_bit_offset)?.sdata_value()?;
                    let end = i64::try_from(at.checked_add(unit)?.checked_mul(8)?).ok()?;
                    u64::try_from(end.checked_sub(above)?.checked_sub(i64::try_from(len).ok()?)?).ok()?
                }
            };
            let bits = Bits { at: u32::try_from(first % 8).ok()?, len: u32::try_from(len).ok()? };
            fields.push(Field { name, kind, at: first / 8, bits: Some(bits) });
        }
        Some(fields)
    }

    /// Whether it has a destructor, a copy or a move constructor that does something, or none that may be
    /// called, or a part of it has.
    fn is_passed_by_reference(&self, die: Die, children: &[(Die, Entry)], fields: &[Field]) -> bool {
        let name = self.units.text(die, gimli::DW_AT_name).unwrap_or_default();
        let bare = name.split('<').next().unwrap_or_default();
        let (mut n_deleted, mut n_usable) = (0, 0);
        for (at, child) in children {
            if child.tag() == gimli::DW_TAG_inheritance && child.has_attr(gimli::DW_AT_virtuality) {
                return true;
            }
            if child.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            if child
                .attr_value(gimli::DW_AT_virtuality)
                .is_some_and(|v| !matches!(v, AttributeValue::Virtuality(gimli::DW_VIRTUALITY_none)))
            {
                return true;
            }
            let Some(called) = self.units.text(*at, gimli::DW_AT_name) else { continue };
            let is_destructor = called.starts_with('~');
            if !(is_destructor || called == bare && self.copies_or_moves(*at, die)) {
                continue;
            }
            let defaulted = self.number(child, gimli::DW_AT_defaulted);
            let is_plain = defaulted == Some(u64::from(gimli::DW_DEFAULTED_in_class.0))
                || self.units.flag(*at, gimli::DW_AT_artificial);
            match self.units.flag(*at, gimli::DW_AT_deleted) {
                true => n_deleted += usize::from(!is_destructor),
                false if !is_plain => return true,
                false => n_usable += usize::from(!is_destructor),
            }
        }
        n_deleted > 0 && n_usable == 0 || fields.iter().any(|field| is_by_reference(&field.kind))
    }

    /// Whether the constructor takes another one of its class, `of`, and nothing else.
    fn copies_or_moves(&self, constructor: Die, of: Die) -> bool {
        let children = self.units.children(constructor);
        let parameters = children.iter().filter(|(die, child)| {
            child.tag() == gimli::DW_TAG_formal_parameter && !self.units.flag(*die, gimli::DW_AT_artificial)
        });
        let Some(first) = parameters.map(|(die, _)| *die).next() else { return false };
        let Some(reference) = self.to(first) else { return false };
        let is_reference = self.units.entry(reference).is_some_and(|entry| {
            matches!(entry.tag(), gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type)
        });
        let is_qualified = |die: &Die| {
            let entry = self.units.entry(*die);
            let tag = entry.map(|entry| entry.tag());
            matches!(tag, Some(gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type))
        };
        let plain = std::iter::successors(self.to(reference), |die| self.to(*die)).take(4);
        let to = plain.into_iter().find(|die| !is_qualified(die));
        // Where a type unit has it, the reference may go by a declaration.
        let is_same = |to: Die| to == of || self.units.chain(to).any(|(die, _)| die == of);
        is_reference && to.is_some_and(is_same)
    }

    /// What a pointer points to: names where there are any. `within` a function's type, of another one no
    /// more is said.
    fn pointee(&self, die: Option<Die>, depth: u32, within: bool) -> Type {
        let Some(die) = die.filter(|_| depth <= DEEPEST) else { return Type::Void };
        let Some(entry) = self.units.entry(die) else { return Type::Void };
        let named = |what| Type::Named(self.called(die, what, None));
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => named("struct"),
            gimli::DW_TAG_union_type => named("union"),
            gimli::DW_TAG_enumeration_type => named("enum"),
            gimli::DW_TAG_unspecified_type => Type::Void,
            // Text of Fortran.
            gimli::DW_TAG_string_type => Type::Char { bytes: 1, is_signed: true },
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                Type::Pointer(Box::new(self.pointee(self.to(die), depth + 1, within)))
            }
            gimli::DW_TAG_subroutine_type if within => Type::Void,
            gimli::DW_TAG_subroutine_type => self.function(die, depth),
            // Whose bounds, and where it is, stand in a descriptor.
            gimli::DW_TAG_array_type if entry.has_attr(gimli::DW_AT_data_location) => {
                Type::Named("array descriptor".to_owned())
            }
            gimli::DW_TAG_array_type => {
                let mut of = self.pointee(self.to(die), depth + 1, within);
                if self.language == Language::Fortran {
                    return of;
                }
                for n in self.lengths(die).into_iter().rev() {
                    of = match entry.has_attr(gimli::DW_AT_GNU_vector) {
                        true => Type::Vector { of: Box::new(of), n },
                        false => Type::Array { of: Box::new(of), n },
                    };
                }
                of
            }
            gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias => {
                let to = self.pointee(self.to(die), depth + 1, within);
                let name = self.units.text(die, gimli::DW_AT_name);
                match (&to, name) {
                    (Type::Named(of), Some(name)) if of.contains('<') && of.ends_with("unnamed>") => {
                        Type::Named(self.units.scope(die) + &name)
                    }
                    _ => to,
                }
            }
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => self.pointee(self.to(die), depth + 1, within),
            _ => self.whole(die, None, depth).unwrap_or_else(|| {
                Type::Named(self.units.text(die, gimli::DW_AT_name).unwrap_or_else(|| "?".to_owned()))
            }),
        }
    }

    fn function(&self, die: Die, depth: u32) -> Type {
        let children = self.units.children(die);
        let parameters = children.iter().filter(|(_, child)| child.tag() == gimli::DW_TAG_formal_parameter);
        Type::Function {
            result: Box::new(self.pointee(self.to(die), depth + 1, true)),
            parameters: parameters.map(|(die, _)| self.pointee(self.to(*die), depth + 1, true)).collect(),
            is_variadic: children
                .iter()
                .any(|(_, child)| child.tag() == gimli::DW_TAG_unspecified_parameters),
        }
    }

    /// The name of a record or an enumeration, as its language has it.
    fn called(&self, die: Die, what: &str, alias: Option<&str>) -> String {
        let name = self.units.text(die, gimli::DW_AT_name);
        match (name, alias, self.language) {
            (Some(name), _, Language::C) => format!("{what} {name}"),
            (Some(name), ..) => self.units.scope(die) + &name,
            (None, Some(alias), _) => alias.to_owned(),
            (None, None, _) => format!("<{what} unnamed>"),
        }
    }
}

fn is_by_reference(kind: &Type) -> bool {
    match kind {
        Type::Record(record) => record.by_reference,
        Type::Array { of, .. } => is_by_reference(of),
        _ => false,
    }
}

/// Which format a number of so many bytes has: names tell those of 16 bytes apart.
fn float(bytes: u8, name: &str) -> Option<Float> {
    Some(match bytes {
        2 if !name.contains("bf") => Float::Half,
        4 => Float::Single,
        8 => Float::Double,
        16 if name.contains("128") || name.contains("kind=16") => Float::Quad,
        16 => Float::Extended,
        _ => return None,
    })
}

/// The alignment of a record of which none is said: that of its fields, if they stand on it.
fn natural_align(fields: &[Field], size: u64) -> u64 {
    let of =
        |field: &Field| if field.bits.is_some() && field.name.is_empty() { 1 } else { field.kind.align() };
    let mut align = fields.iter().map(of).max().unwrap_or(1);
    let stands =
        |field: &Field, align: u64| field.bits.is_some() || field.at.is_multiple_of(of(field).min(align));
    while align > 1 && !(size.is_multiple_of(align) && fields.iter().all(|field| stands(field, align))) {
        align /= 2;
    }
    align
}

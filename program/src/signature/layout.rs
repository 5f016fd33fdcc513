//! Where the fields of a record stand in memory, as C compilers lay them out.
//!
//! Source: System V ABI, AMD64 supplement, 3.1.2 (aggregates and unions, bit-fields); GCC manual, "Common
//! Type Attributes" and "Common Variable Attributes" (packed, aligned), "Structure-Layout Pragmas".

use super::{Bits, Field, Record, Type};

/// A field as it was declared.
#[derive(Clone, Debug)]
pub struct Member {
    /// Empty, if it has none.
    pub name: String,
    /// Its type; of a bit-field, the declared one.
    pub kind: Type,
    /// The alignment of the type, in bytes, where a `typedef` gave it another one than its own.
    pub type_align: Option<u64>,
    /// What an attribute of the field asks for, in bytes.
    pub align: Option<u64>,
    /// How many bits, if it is a bit-field.
    pub bits: Option<u32>,
    /// Whether an attribute of the field allows any byte.
    pub is_packed: bool,
}

/// What is said of the record as a whole.
#[derive(Clone, Copy, Default, Debug)]
pub struct Attributes {
    /// `__attribute__((packed))`.
    pub is_packed: bool,
    /// `__attribute__((aligned(N)))`, in bytes.
    pub align: Option<u64>,
    /// `#pragma pack(N)`, in bytes: no field has a larger alignment.
    pub most_align: Option<u64>,
}

/// Lays the members out in order.
///
/// All sizes saturate: whoever declares an array of 2⁶³ bytes gets a record of that size.
pub fn record(name: String, is_union: bool, members: Vec<Member>, attributes: Attributes) -> Record {
    let mut fields = Vec::with_capacity(members.len());
    // In bits: where the next field may begin, and where the last one ends.
    let (mut next, mut end, mut align) = (0u64, 0u64, 1u64);
    for member in members {
        if is_union {
            next = 0;
        }
        let is_packed = attributes.is_packed || member.is_packed;
        let limit = |align: u64| align.min(attributes.most_align.unwrap_or(u64::MAX)).max(1);
        let natural = member.type_align.unwrap_or_else(|| member.kind.align());
        let size = member.kind.size().saturating_mul(8);
        if let Some(bits) = member.bits {
            if bits == 0 {
                // Neither `packed` nor `#pragma pack` changes where it leads to.
                next = up(next, natural.saturating_mul(8));
                continue;
            }
            let unit = limit(natural).saturating_mul(8);
            let asked = limit(member.align.unwrap_or(1)).saturating_mul(8);
            if asked > 8 {
                next = up(next, asked);
            }
            // A bit-field must not reach over more units than its type has, but under `#pragma pack`.
            let units = (next % unit).saturating_add(u64::from(bits)).div_ceil(unit);
            if !is_packed && attributes.most_align.is_none() && units > size / unit {
                next = up(next, unit);
            }
            if !member.name.is_empty() {
                // Where both are said, gcc and clang heed `#pragma pack` alone here.
                let is_free = is_packed && attributes.most_align.is_none();
                align = align.max(if is_free { 1 } else { unit / 8 }).max(asked / 8);
            }
            let place = Bits { at: u32::try_from(next % 8).unwrap_or(0), len: bits };
            fields.push(Field { name: member.name, kind: member.kind, at: next / 8, bits: Some(place) });
            next = next.saturating_add(u64::from(bits));
        } else {
            let own = if is_packed { 1 } else { natural };
            let own = limit(own.max(member.align.unwrap_or(1)));
            align = align.max(own);
            next = up(next, own.saturating_mul(8));
            fields.push(Field { name: member.name, kind: member.kind, at: next / 8, bits: None });
            next = next.saturating_add(size);
        }
        end = end.max(next);
    }
    // A bit-field of no bits at the end counts in the size.
    let end = if is_union { end } else { end.max(next) };
    let align = align.max(attributes.align.unwrap_or(1));
    Record { name, is_union, fields, size: up(end.div_ceil(8), align), align, by_reference: false }
}

/// The next multiple of `align`, which is a power of two.
fn up(at: u64, align: u64) -> u64 {
    at.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}

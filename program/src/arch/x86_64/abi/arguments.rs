//! Which bytes stand where when a function is entered, and when it returns.
//!
//! Vectors of 32 and 64 bytes are taken to be in one register, as code is that was compiled for processors
//! which have such registers; without `-mavx`, gcc and clang pass them in memory. Where compilers differ, it
//! is gcc that is followed: bit-fields without a name count as integers (clang: as nothing); a record that
//! stands off its alignment, and all of whose fields are on theirs, is passed as any other (clang: in
//! memory); what follows an `__int128` that found one register left takes that register (clang: leaves it, or
//! before 18 put half of the number there); vectors of 32 bytes that are named arguments of variadic
//! functions are in registers (clang: on the stack).
//!
//! Source: System V ABI, AMD64 supplement, 3.2.3 (parameter passing); Itanium C++ ABI, 3.1 (classes that are
//! passed by reference).

use crate::arch::Reg;
use crate::signature::{Field, Float, Record, Signature, Type};

/// Some bytes of a value, and where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where they are.
    pub place: Place,
    /// Which byte of the value is the first.
    pub at: u64,
    /// How many.
    pub len: u64,
}

/// A place that a value is passed in. Of a register, its lowest bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A general register.
    General(Reg),
    /// The vector register of this number: xmm, ymm or zmm, by the length of the piece.
    Vector(u8),
    /// That many below the top of the x87 stack; 10 bytes.
    X87(u8),
    /// `[rsp + n]` at the function's entry, where `[rsp]` is the return address.
    Stack(u64),
    /// The memory that this register points to: what is returned in memory, and classes passed by reference.
    Memory(Reg),
    /// The memory that the pointer at `[rsp + n]` points to, at the function's entry.
    MemoryFromStack(u64),
}

/// Where a call passes everything.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Passing {
    /// For each parameter its pieces, at the function's entry. None for types without bytes.
    pub parameters: Vec<Vec<Piece>>,
    /// The result's pieces, when the function has returned.
    pub result: Vec<Piece>,
    /// Where the caller says into which memory the result goes, if it is returned there: in rdi, at entry.
    pub result_address: Option<Reg>,
    /// How many bytes of arguments there are on the stack, above the return address.
    pub stack_bytes: u64,
}

/// What a value's eight bytes are passed in (psABI, 3.2.3, "Classification").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Nothing,
    Integer,
    Sse,
    SseUp,
    X87,
    X87Up,
    Memory,
}

/// rdi, rsi, rdx, rcx, r8, r9.
const INTEGER_ARGUMENTS: [Reg; 6] =
    [Reg::general(7), Reg::general(6), Reg::general(2), Reg::general(1), Reg::general(8), Reg::general(9)];
const VECTOR_ARGUMENTS: usize = 8;
const RAX: Reg = Reg::general(0);
const RDX: Reg = Reg::general(2);
/// The largest value that may be in registers: a vector of 64 bytes.
const MOST_BYTES: u64 = 64;
/// What an x87 register holds.
const X87_BYTES: u64 = 10;

/// The register that debug information calls by this number (psABI, figure 3.36).
pub fn of_dwarf(number: u16) -> Option<Place> {
    // rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp; from r8 on as everywhere.
    const GENERAL: [u8; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
    match number {
        0..=7 => GENERAL.get(usize::from(number)).map(|n| Place::General(Reg::general(*n))),
        8..=15 => Some(Place::General(Reg::general(u8::try_from(number).ok()?))),
        17..=32 => Some(Place::Vector(u8::try_from(number - 17).ok()?)),
        _ => None,
    }
}

/// Whether an argument may be in that place when a function is entered.
pub fn is_of_arguments(place: Place) -> bool {
    match place {
        Place::General(reg) => INTEGER_ARGUMENTS.contains(&reg),
        Place::Vector(n) => usize::from(n) < VECTOR_ARGUMENTS,
        Place::Stack(_) => true,
        Place::X87(_) | Place::Memory(_) | Place::MemoryFromStack(_) => false,
    }
}

/// Where arguments and result of a function with this signature are.
pub fn passing(signature: &Signature) -> Passing {
    let mut passing = Passing::default();
    let (result, in_memory) = returned(&signature.result);
    let mut left = Left { general: 0, vector: 0, stack: 8 };
    if in_memory {
        passing.result_address = INTEGER_ARGUMENTS.first().copied();
        left.general = 1;
    }
    passing.result = result;
    passing.parameters = signature.parameters.iter().map(|p| left.argument(&p.kind)).collect();
    passing.stack_bytes = left.stack - 8;
    passing
}

/// The result's pieces, and whether the caller provides the memory.
fn returned(kind: &Type) -> (Vec<Piece>, bool) {
    let size = kind.size();
    if let Type::Record(record) = kind
        && record.by_reference
    {
        return (vec![Piece { place: Place::Memory(RAX), at: 0, len: size }], true);
    }
    if let Type::Complex(of) = kind
        && **of == Type::Float(Float::Extended)
    {
        let part = |n: u8| Piece { place: Place::X87(n), at: u64::from(n) * 16, len: X87_BYTES };
        return (vec![part(0), part(1)], false);
    }
    let Some(classes) = classes(kind) else {
        return (vec![Piece { place: Place::Memory(RAX), at: 0, len: size }], true);
    };
    let mut general = [RAX, RDX].into_iter().map(Place::General);
    let mut vector = (0..).map(Place::Vector);
    (pieces(&classes, size, &mut general, &mut vector), false)
}

/// What is left for the arguments to come.
struct Left {
    /// How many general registers are taken.
    general: usize,
    /// How many vector registers are taken.
    vector: usize,
    /// Where the next argument on the stack may stand.
    stack: u64,
}

impl Left {
    fn argument(&mut self, kind: &Type) -> Vec<Piece> {
        if let Type::Record(record) = kind
            && record.by_reference
        {
            let pointer = self.argument(&Type::Pointer(Box::new(Type::Void)));
            let place = match pointer.first().map(|p| p.place) {
                Some(Place::General(reg)) => Place::Memory(reg),
                Some(Place::Stack(at)) => Place::MemoryFromStack(at),
                _ => return Vec::new(),
            };
            return vec![Piece { place, at: 0, len: record.size }];
        }
        let size = kind.size();
        if size == 0 {
            return Vec::new();
        }
        if let Some(classes) = classes(kind)
            && !classes.contains(&Class::X87)
        {
            let count = |class| classes.iter().filter(|c| **c == class).count();
            let (general, vector) = (count(Class::Integer), count(Class::Sse));
            let free = INTEGER_ARGUMENTS.get(self.general..).unwrap_or_default();
            if general <= free.len() && vector <= VECTOR_ARGUMENTS - self.vector {
                let first = u8::try_from(self.vector).unwrap_or(u8::MAX);
                self.general += general;
                self.vector += vector;
                let mut free = free.iter().copied().map(Place::General);
                return pieces(&classes, size, &mut free, &mut (first..).map(Place::Vector));
            }
        }
        let align = kind.align().max(8);
        let at = (self.stack - 8).checked_next_multiple_of(align).map_or(u64::MAX, |at| at.saturating_add(8));
        self.stack = at.saturating_add(size.saturating_add(7) & !7);
        vec![Piece { place: Place::Stack(at), at: 0, len: meaningful(kind, size) }]
    }
}

/// Without the padding that `long double` ends with.
fn meaningful(kind: &Type, size: u64) -> u64 {
    if *kind == Type::Float(Float::Extended) { X87_BYTES } else { size }
}

/// The registers for each eight bytes, or the more that a vector takes in one.
fn pieces(
    classes: &[Class],
    size: u64,
    general: &mut dyn Iterator<Item = Place>,
    vector: &mut dyn Iterator<Item = Place>,
) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    for (at, class) in (0..).step_by(8).zip(classes) {
        let len = (size - at).min(8);
        let place = match class {
            Class::Integer => general.next(),
            Class::Sse => vector.next(),
            Class::X87 => {
                found.push(Piece { place: Place::X87(0), at, len: X87_BYTES });
                None
            }
            Class::SseUp => {
                if let Some(last) = found.last_mut() {
                    last.len += len;
                }
                None
            }
            Class::Nothing | Class::X87Up | Class::Memory => None,
        };
        found.extend(place.map(|place| Piece { place, at, len }));
    }
    found
}

/// The classes of a value's eight bytes each; none, if it is passed in memory.
fn classes(kind: &Type) -> Option<Vec<Class>> {
    let size = kind.size();
    if size > MOST_BYTES {
        return None;
    }
    let mut classes = vec![Class::Nothing; usize::try_from(size.div_ceil(8)).ok()?];
    add(kind, 0, &mut classes)?;
    // The clean-up after the merger, (a) to (d).
    let large = classes.len() > 2;
    for i in 0..classes.len() {
        let before = i.checked_sub(1).map(|i| classes[i]);
        match classes[i] {
            Class::Memory => return None,
            Class::X87Up if before != Some(Class::X87) => return None,
            class if large && class != if i == 0 { Class::Sse } else { Class::SseUp } => return None,
            Class::SseUp if !matches!(before, Some(Class::Sse | Class::SseUp)) => classes[i] = Class::Sse,
            _ => {}
        }
    }
    Some(classes)
}

/// Merges the classes of a value at byte `at` into those of the whole. None, if one of its parts does not
/// stand where its type belongs: then the whole is in memory.
fn add(kind: &Type, at: u64, classes: &mut [Class]) -> Option<()> {
    match kind {
        Type::Void | Type::Named(_) | Type::Function { .. } => Some(()),
        Type::Bool | Type::Char { .. } | Type::Integer { .. } | Type::Pointer(_) | Type::Enum(_) => {
            scalar(at, kind.size(), &[Class::Integer, Class::Integer], classes)
        }
        Type::Float(Float::Extended) => scalar(at, 16, &[Class::X87, Class::X87Up], classes),
        Type::Float(float) => scalar(at, float.size(), &[Class::Sse, Class::SseUp], classes),
        Type::Complex(of) => {
            add(of, at, classes)?;
            add(of, at.checked_add(of.size())?, classes)
        }
        Type::Vector { .. } => {
            let mut all = [Class::SseUp; 8];
            all[0] = Class::Sse;
            scalar(at, kind.size(), &all, classes)
        }
        Type::Array { of, n } => {
            let step = of.size();
            // Elements without bytes would be as many as one likes.
            let n = if step == 0 { 0 } else { *n };
            (0..n).try_for_each(|i| add(of, at.checked_add(step.checked_mul(i)?)?, classes))
        }
        Type::Record(record) => fields(record, at, classes),
    }
}

fn fields(record: &Record, at: u64, classes: &mut [Class]) -> Option<()> {
    record.fields.iter().try_for_each(|field: &Field| {
        let at = at.checked_add(field.at)?;
        let Some(bits) = field.bits else { return add(&field.kind, at, classes) };
        let first = at.checked_mul(8)?.checked_add(u64::from(bits.at))?;
        let last = first.checked_add(u64::from(bits.len.max(1)) - 1)?;
        (first / 64..=last / 64).try_for_each(|i| merge(i, Class::Integer, classes))
    })
}

/// A value that is not put together of others.
fn scalar(at: u64, size: u64, of: &[Class], classes: &mut [Class]) -> Option<()> {
    if size == 0 || !at.is_multiple_of(size) {
        return (size == 0).then_some(());
    }
    let n = usize::try_from(size.div_ceil(8)).ok()?;
    (at / 8..).zip(of.get(..n)?).try_for_each(|(i, class)| merge(i, *class, classes))
}

/// Source: psABI, 3.2.3, "Classification", 4: (a) to (f).
fn merge(i: u64, with: Class, classes: &mut [Class]) -> Option<()> {
    let is = classes.get_mut(usize::try_from(i).ok()?)?;
    *is = match (*is, with) {
        (a, b) if a == b => a,
        (Class::Nothing, b) => b,
        (a, Class::Nothing) => a,
        (Class::Memory, _) | (_, Class::Memory) => Class::Memory,
        (Class::Integer, _) | (_, Class::Integer) => Class::Integer,
        (Class::X87 | Class::X87Up, _) | (_, Class::X87 | Class::X87Up) => Class::Memory,
        _ => Class::Sse,
    };
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Parameter;
    use crate::signature::layout::{self, Attributes, Member};
    use std::sync::Arc;

    const INT: Type = Type::Integer { bytes: 4, is_signed: true };
    const DOUBLE: Type = Type::Float(Float::Double);

    fn record(kinds: &[Type]) -> Record {
        let member = |kind: &Type| Member {
            name: "m".to_owned(),
            kind: kind.clone(),
            type_align: None,
            align: None,
            bits: None,
            is_packed: false,
        };
        layout::record(
            "struct s".to_owned(),
            false,
            kinds.iter().map(member).collect(),
            Attributes::default(),
        )
    }

    fn places(result: Type, parameters: &[Type]) -> String {
        let parameter =
            |kind: &Type| Parameter { name: String::new(), kind: kind.clone(), reads: Vec::new() };
        let signature = Signature {
            name: "f".to_owned(),
            parameters: parameters.iter().map(parameter).collect(),
            result,
            result_reads: Vec::new(),
            is_variadic: false,
        };
        let passing = passing(&signature);
        let all = |pieces: &Vec<Piece>| {
            let each = pieces.iter().map(|p| format!("{:?}+{}:{}", p.place, p.at, p.len));
            each.collect::<Vec<_>>().join(" ")
        };
        let mut lines: Vec<String> = passing.parameters.iter().map(all).collect();
        lines.push(format!("→ {}", all(&passing.result)));
        lines.join(", ")
    }

    /// psABI, figures 3.5 and 3.6.
    #[test]
    fn arguments_are_where_the_abi_s_own_example_has_them() {
        let s = Type::Record(Arc::new(record(&[INT, INT, DOUBLE])));
        let y = Type::Vector { of: Box::new(Type::Float(Float::Single)), n: 8 };
        let ld = Type::Float(Float::Extended);
        let got = places(Type::Void, &[INT, INT, s, INT, INT, ld, DOUBLE, y, DOUBLE, INT, INT, INT]);
        let want = "General(rdi)+0:4, General(rsi)+0:4, General(rdx)+0:8 Vector(0)+8:8, General(rcx)+0:4, \
            General(r8)+0:4, Stack(8)+0:10, Vector(1)+0:8, Vector(2)+0:32, Vector(3)+0:8, General(r9)+0:4, \
            Stack(24)+0:4, Stack(32)+0:4, → ";
        assert_eq!(got, want);
    }

    /// Itanium C++ ABI, 3.1.2.3 and 3.1.3.
    #[test]
    fn classes_that_are_passed_by_reference_are_behind_pointers() {
        let class = Record { by_reference: true, ..record(&[INT]) };
        let class = Type::Record(Arc::new(class));
        let mut parameters = vec![INT; 5];
        parameters.extend([class.clone(), class.clone()]);
        parameters.insert(1, class.clone());
        let got = places(class, &parameters);
        let want = "General(rsi)+0:4, Memory(rdx)+0:4, General(rcx)+0:4, General(r8)+0:4, General(r9)+0:4, \
            Stack(8)+0:4, MemoryFromStack(16)+0:4, MemoryFromStack(24)+0:4, → Memory(rax)+0:4";
        assert_eq!(got, want);
    }

    /// What debug information says may be anything.
    #[test]
    fn records_that_no_compiler_makes_do_no_harm() {
        let field = |at, bits| Field { name: "m".to_owned(), kind: INT, at, bits };
        let bits = Some(crate::signature::Bits { at: u32::MAX, len: u32::MAX });
        let fields = vec![field(u64::MAX, None), field(u64::MAX, bits), field(4, bits)];
        let wild = |size, align| Record {
            name: String::new(),
            is_union: false,
            fields: fields.clone(),
            size,
            align,
            by_reference: false,
        };
        for (size, align) in [(16, 1), (u64::MAX, 3), (7, u64::MAX), (64, 0)] {
            let record = Type::Record(Arc::new(wild(size, align)));
            let n = Type::Array { of: Box::new(record.clone()), n: u64::MAX };
            assert!(places(record.clone(), &[n, record, DOUBLE]).contains("Vector(0)"));
        }
        let nothing = Type::Record(Arc::new(record(&[])));
        let many = Type::Array { of: Box::new(nothing), n: u64::MAX };
        assert_eq!(
            places(Type::Void, &[Type::Record(Arc::new(record(&[many, INT])))]),
            "General(rdi)+0:4, → "
        );
    }
}

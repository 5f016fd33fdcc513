//! What a function takes and returns: its parameters' names and types, with the layout that they have in
//! memory.
//!
//! Not here: which bytes of which registers hold a value (`arch::abi::arguments`); prototypes as text
//! (`measure::prototypes`).
//!
//! Source: System V ABI, AMD64 supplement, 3.1.2 (data representation).

pub mod dwarf;
pub mod layout;
pub mod text;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A function's name, parameters and result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The name as it was declared; of C++, the linkage name.
    pub name: String,
    /// In order; of a variadic function, the named ones.
    pub parameters: Vec<Parameter>,
    /// [`Type::Void`] if nothing is returned.
    pub result: Type,
    /// What is read of the memory that the result points to.
    pub result_reads: Vec<Read>,
    /// Whether more arguments may follow those named.
    pub is_variadic: bool,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// As declared, else `a0` for the first, and so on.
    pub name: String,
    /// Arrays and functions are pointers here, as the language has it.
    pub kind: Type,
    /// What is read of the memory that it points to, too.
    pub reads: Vec<Read>,
}

/// Something in memory that a value leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// As the user wrote it: `*p`, `p->field`, `p[3]`, `name:str`.
    pub name: String,
    /// At which byte of the value the first pointer stands: not 0 for pointers in structs alone.
    pub within: u64,
    /// What is added to that pointer; and, for each further step, to the pointer that is loaded from there.
    pub steps: Vec<i64>,
    /// What stands at the last address.
    pub what: Pointee,
}

/// What is read at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointee {
    /// A value of this type.
    Value(Type),
    /// Bytes up to the first that is zero.
    Text,
}

/// A type of C, as far as it says how a value is passed, laid out and written.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Type {
    /// No value.
    Void,
    /// `_Bool`: a byte, 0 or 1.
    Bool,
    /// A character of 1, 2 or 4 bytes.
    Char {
        /// Its size.
        bytes: u8,
        /// Whether values above the middle are negative.
        is_signed: bool,
    },
    /// An integer of 1, 2, 4, 8 or 16 bytes.
    Integer {
        /// Its size.
        bytes: u8,
        /// Two's complement, if so.
        is_signed: bool,
    },
    /// A floating-point number.
    Float(Float),
    /// Two numbers of that type: real, imaginary.
    Complex(Box<Type>),
    /// The address of such a value; references of other languages, too.
    Pointer(Box<Type>),
    /// One of an enumeration.
    Enum(Arc<Enum>),
    /// `n` elements in one vector register (`__m64`, `__m128`, `__m256`, `__m512` and their like).
    Vector {
        /// The type of an element.
        of: Box<Type>,
        /// How many.
        n: u64,
    },
    /// `n` elements one after the other, in a struct or behind a pointer.
    Array {
        /// The type of an element.
        of: Box<Type>,
        /// How many.
        n: u64,
    },
    /// A struct, union or class.
    Record(Arc<Record>),
    /// Something of which no more is known here than its name: it is only pointed to.
    Named(String),
    /// A function: it is only pointed to.
    Function {
        /// What it returns.
        result: Box<Type>,
        /// What it takes.
        parameters: Vec<Type>,
        /// Whether it takes more.
        is_variadic: bool,
    },
}

/// A format of floating-point numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Float {
    /// `_Float16`, IEEE 754 binary16.
    Half,
    /// `float`, IEEE 754 binary32.
    Single,
    /// `double`, IEEE 754 binary64.
    Double,
    /// `long double`: the 80 bits of the x87, in 16 bytes.
    Extended,
    /// `__float128`, IEEE 754 binary128.
    Quad,
}

/// An enumeration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Enum {
    /// `enum colour`, or the name that a `typedef` gave it.
    pub name: String,
    /// The size of a value: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether values may be negative.
    pub is_signed: bool,
    /// Names and their values, as declared.
    pub values: Vec<(String, i128)>,
}

/// A struct, union or class.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Record {
    /// `struct point`, or the name that a `typedef` gave it.
    pub name: String,
    /// Whether all fields begin at the same place.
    pub is_union: bool,
    /// In order; base classes are fields without a name.
    pub fields: Vec<Field>,
    /// In bytes, with the padding at the end.
    pub size: u64,
    /// In bytes, a power of two.
    pub align: u64,
    /// Whether it is passed and returned by a pointer to it, being a class whose copies are not made byte by
    /// byte (Itanium C++ ABI, 3.1.2.3 and 3.1.3).
    pub by_reference: bool,
}

/// A field of a record.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Field {
    /// Empty for anonymous structs and unions, bit-fields without a name, and base classes.
    pub name: String,
    /// Its type; of a bit-field, the declared one.
    pub kind: Type,
    /// At which byte of the record it begins.
    pub at: u64,
    /// If it is a bit-field, which bits.
    pub bits: Option<Bits>,
}

/// Which bits a bit-field has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Bits {
    /// The lowest, counted from the lowest of the byte that the field begins at: 0 to 7.
    pub at: u32,
    /// How many.
    pub len: u32,
}

impl Float {
    /// In bytes, with the padding that `long double` has.
    pub fn size(self) -> u64 {
        match self {
            Float::Half => 2,
            Float::Single => 4,
            Float::Double => 8,
            Float::Extended | Float::Quad => 16,
        }
    }
}

impl Type {
    /// In bytes. 0 for what has no values, or of which only the name is known.
    pub fn size(&self) -> u64 {
        match self {
            Type::Void | Type::Named(_) | Type::Function { .. } => 0,
            Type::Bool => 1,
            Type::Char { bytes, .. } | Type::Integer { bytes, .. } => u64::from(*bytes),
            Type::Float(float) => float.size(),
            Type::Complex(of) => of.size().saturating_mul(2),
            Type::Pointer(_) => 8,
            Type::Enum(e) => u64::from(e.bytes),
            Type::Vector { of, n } | Type::Array { of, n } => of.size().saturating_mul(*n),
            Type::Record(record) => record.size,
        }
    }

    /// In bytes, a power of two.
    pub fn align(&self) -> u64 {
        match self {
            Type::Complex(of) | Type::Array { of, .. } => of.align(),
            Type::Record(record) => record.align.max(1),
            _ => self.size().max(1),
        }
    }

    /// The same without what pointers lead to: all that the bytes of a value mean.
    pub fn without_pointees(&self) -> Type {
        match self {
            Type::Pointer(_) => Type::Pointer(Box::new(Type::Void)),
            Type::Complex(of) => Type::Complex(Box::new(of.without_pointees())),
            Type::Vector { of, n } => Type::Vector { of: Box::new(of.without_pointees()), n: *n },
            Type::Array { of, n } => Type::Array { of: Box::new(of.without_pointees()), n: *n },
            Type::Record(record) => {
                let field = |field: &Field| Field { kind: field.kind.without_pointees(), ..field.clone() };
                let fields = record.fields.iter().map(field).collect();
                Type::Record(Arc::new(Record { fields, ..(**record).clone() }))
            }
            other => other.clone(),
        }
    }

    /// The field of that name, in anonymous structs and unions too: its type, the byte where it begins, and
    /// its bits.
    pub fn field(&self, name: &str) -> Option<Field> {
        let Type::Record(record) = self else { return None };
        let named = record.fields.iter().find(|f| f.name == name && !name.is_empty());
        named.cloned().or_else(|| {
            record.fields.iter().filter(|f| f.name.is_empty() && f.bits.is_none()).find_map(|outer| {
                let inner = outer.kind.field(name)?;
                Some(Field { at: outer.at.saturating_add(inner.at), ..inner })
            })
        })
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Float::Half => "_Float16",
            Float::Single => "float",
            Float::Double => "double",
            Float::Extended => "long double",
            Float::Quad => "__float128",
        })
    }
}

/// As C has it; records and enumerations by their names.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Void => f.write_str("void"),
            Type::Bool => f.write_str("_Bool"),
            Type::Char { bytes: 1, .. } => f.write_str("char"),
            Type::Char { bytes, .. } => write!(f, "char{}_t", u32::from(*bytes) * 8),
            Type::Integer { bytes, is_signed } => f.write_str(match (bytes, is_signed) {
                (1, true) => "signed char",
                (1, false) => "unsigned char",
                (2, true) => "short",
                (2, false) => "unsigned short",
                (4, true) => "int",
                (4, false) => "unsigned int",
                (8, true) => "long",
                (8, false) => "unsigned long",
                (_, true) => "__int128",
                (_, false) => "unsigned __int128",
            }),
            Type::Float(float) => float.fmt(f),
            Type::Complex(of) => write!(f, "_Complex {of}"),
            Type::Pointer(of) => match &**of {
                Type::Function { .. } => of.write_function(f, "(*)"),
                Type::Array { of, n } => write!(f, "{of} (*)[{n}]"),
                to @ Type::Pointer(_) => write!(f, "{to}*"),
                to => write!(f, "{to} *"),
            },
            Type::Enum(e) => f.write_str(&e.name),
            Type::Vector { of, n } => write!(f, "{of} __attribute__((vector_size({})))", of.size() * n),
            Type::Array { of, n } => write!(f, "{of} [{n}]"),
            Type::Record(record) => f.write_str(&record.name),
            Type::Named(name) => f.write_str(name),
            Type::Function { .. } => self.write_function(f, ""),
        }
    }
}

impl Type {
    fn write_function(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Type::Function { result, parameters, is_variadic } = self else { return Ok(()) };
        write!(f, "{result} {name}({}", List(parameters, *is_variadic))
    }
}

/// As C has it, without a semicolon.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: Vec<String> = self.parameters.iter().map(|p| named(&p.kind, &p.name)).collect();
        let declared = format!("{}({}", self.name, List(&parameters, self.is_variadic));
        f.write_str(&named(&self.result, &declared))
    }
}

/// A declaration of something of that type.
fn named(kind: &Type, name: &str) -> String {
    match kind {
        Type::Pointer(to) if matches!(**to, Type::Function { .. } | Type::Array { .. }) => {
            kind.to_string().replacen("(*)", &format!("(*{name})"), 1)
        }
        Type::Pointer(_) => format!("{kind}{name}"),
        kind => format!("{kind} {name}"),
    }
}

/// What stands between parentheses, and the closing one.
struct List<'a, T>(&'a [T], bool);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(match (self.0.is_empty(), self.1) {
            (true, true) => "...)",
            (true, false) => "void)",
            (false, true) => ", ...)",
            (false, false) => ")",
        })
    }
}

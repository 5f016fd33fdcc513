//! Random prototypes with random values: as C text, and what each part of each value is.

use std::fmt::Write as _;

/// Random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).expect("small")].clone()
    }
}

/// How a scalar's value is chosen and compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scalar {
    Bool,
    /// Any bits.
    Bytes(u64),
    /// As many bytes of any bits, and then padding: `long double`.
    Extended,
    /// One of the values of an enumeration, of so many bytes.
    Enum(u64),
}

/// A type as the generator knows it.
#[derive(Clone, Debug)]
pub enum Shape {
    Scalar(Scalar),
    Complex(Scalar),
    /// So many bytes.
    Vector(u64),
    Array(Box<Type>, u64),
    /// Name (empty if it has none), type, bits.
    Record {
        is_union: bool,
        fields: Vec<(String, Type, Option<u64>)>,
        /// Neither bit-fields nor attributes, here or in fields.
        is_plain: bool,
    },
}

/// A type with its name.
#[derive(Clone, Debug)]
pub struct Type {
    pub name: String,
    pub shape: Shape,
}

/// A step from a value to a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Field(String),
    Index(u64),
    /// 0: real, 1: imaginary.
    Part(u64),
}

/// A part of a value that is no further divided, and its value.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// As C names it, `$` being the value.
    pub path: String,
    pub steps: Vec<Step>,
    /// Least significant first; of a bit-field, 16.
    pub bytes: Vec<u8>,
    pub bits: Option<u64>,
}

/// A function: its text, and the parts of what is passed and returned.
pub struct Case {
    pub name: String,
    pub result: Option<(Type, Vec<Leaf>)>,
    pub parameters: Vec<(Type, Vec<Leaf>)>,
    pub is_variadic: bool,
}

/// Functions and the types that they need.
#[derive(Default)]
pub struct Unit {
    pub declarations: String,
    pub cases: Vec<Case>,
    n_types: u64,
}

/// What is made where.
#[derive(Clone, Copy)]
pub struct Options {
    /// Vectors of 32 bytes.
    pub has_avx: bool,
}

const SCALARS: &[(&str, Scalar)] = &[
    ("_Bool", Scalar::Bool),
    ("char", Scalar::Bytes(1)),
    ("signed char", Scalar::Bytes(1)),
    ("uint8_t", Scalar::Bytes(1)),
    ("short int", Scalar::Bytes(2)),
    ("unsigned short", Scalar::Bytes(2)),
    ("int", Scalar::Bytes(4)),
    ("int", Scalar::Bytes(4)),
    ("unsigned", Scalar::Bytes(4)),
    ("long unsigned int", Scalar::Bytes(8)),
    ("long", Scalar::Bytes(8)),
    ("long long", Scalar::Bytes(8)),
    ("size_t", Scalar::Bytes(8)),
    ("__int128", Scalar::Bytes(16)),
    ("unsigned __int128", Scalar::Bytes(16)),
    ("float", Scalar::Bytes(4)),
    ("float", Scalar::Bytes(4)),
    ("double", Scalar::Bytes(8)),
    ("double", Scalar::Bytes(8)),
    ("long double", Scalar::Extended),
    ("_Float16", Scalar::Bytes(2)),
    ("__float128", Scalar::Bytes(16)),
    ("const void *", Scalar::Bytes(8)),
    ("struct unknown *", Scalar::Bytes(8)),
    ("char **", Scalar::Bytes(8)),
];

const COMPLEX: &[(&str, Scalar)] = &[
    ("_Complex float", Scalar::Bytes(4)),
    ("double _Complex", Scalar::Bytes(8)),
    ("_Complex long double", Scalar::Extended),
    ("complex128", Scalar::Bytes(16)),
    ("_Float16 _Complex", Scalar::Bytes(2)),
];

const VECTORS: &[(&str, u64)] = &[
    ("__m64", 8),
    ("shorts", 8),
    ("__m128", 16),
    ("__m128d", 16),
    ("__m128i", 16),
    ("bytes", 16),
    ("__m256", 32),
    ("__m256d", 32),
    ("__m256i", 32),
];

/// What bit-fields may be of, with their bits.
const OF_BITS: &[(&str, u64)] = &[
    ("int", 32),
    ("unsigned", 32),
    ("unsigned", 32),
    ("signed char", 8),
    ("unsigned short", 16),
    ("long", 64),
    ("unsigned long long", 64),
    ("_Bool", 1),
];

/// Types that units declare in front.
pub const PRELUDE: &str = "typedef _Complex float complex128 __attribute__((mode(TC)));
typedef short shorts __attribute__((vector_size(8)));
typedef signed char bytes __attribute__((__vector_size__(4 * sizeof(int))));
";

impl Unit {
    /// A unit of `n` random functions, named from `f0` on.
    pub fn random(random: &mut Random, n: u64, options: Options) -> Unit {
        let mut unit = Unit { declarations: PRELUDE.to_owned(), ..Unit::default() };
        for i in 0..n {
            let most = random.of(&[2, 4, 8, 12, 20]);
            let n_parameters = random.below(most);
            let value = |unit: &mut Unit, random: &mut Random| {
                let of = unit.any(random, 0, options);
                let mut leaves = Vec::new();
                leaves_of(random, &of, "$", &[], &mut leaves);
                (of, leaves)
            };
            let result = if random.one_in(8) { None } else { Some(value(&mut unit, random)) };
            let parameters: Vec<_> = (0..n_parameters).map(|_| value(&mut unit, random)).collect();
            // Vectors of 32 bytes: LLVM passes them on the stack then, against the psABI (as a remark in its
            // X86CallingConv.td).
            let has_wide = parameters.iter().any(|p| has_wide(&p.0));
            let is_variadic = !parameters.is_empty() && random.one_in(8) && !has_wide;
            unit.cases.push(Case { name: format!("f{i}"), result, parameters, is_variadic });
        }
        unit
    }

    /// The prototypes, with all that they need: what users would give.
    pub fn text(&self) -> String {
        let mut text = self.declarations.clone();
        for case in &self.cases {
            let result = case.result.as_ref().map_or("void", |r| &r.0.name);
            let mut parameters: Vec<String> = (0..)
                .zip(&case.parameters)
                .map(|(i, p)| if i % 3 == 2 { p.0.name.clone() } else { format!("{} p{i}", p.0.name) })
                .collect();
            if parameters.is_empty() {
                parameters.push("void".to_owned());
            }
            if case.is_variadic {
                parameters.push("...".to_owned());
            }
            writeln!(text, "{result} {}({});", case.name, parameters.join(", ")).expect("text grows");
        }
        text
    }

    fn any(&mut self, random: &mut Random, depth: u64, options: Options) -> Type {
        match random.below(20) {
            0..=7 => scalar(random),
            8 | 9 => complex(random, depth),
            10 | 11 => vector(random, options),
            12 if depth == 0 => self.enumeration(random),
            _ if depth < 3 => self.record(random, depth, options),
            _ => scalar(random),
        }
    }

    fn new_name(&mut self, what: &str) -> String {
        self.n_types += 1;
        format!("{what} t{}", self.n_types)
    }

    fn enumeration(&mut self, random: &mut Random) -> Type {
        let name = self.new_name("enum");
        let tag = name.replace(' ', "_");
        let (first, attribute, size) = random.of(&[
            ("0", "", 4),
            ("-3", "", 4),
            ("1 << 30", "", 4),
            ("0x100000000L", "", 8),
            ("5", "__attribute__((packed))", 1),
            ("-300", "__attribute__((__packed__))", 2),
        ]);
        writeln!(self.declarations, "{name} {{ {tag}_a = {first}, {tag}_b, {tag}_c }} {attribute};")
            .expect("text grows");
        Type { name, shape: Shape::Scalar(Scalar::Enum(size)) }
    }

    /// Declares a struct or union.
    fn record(&mut self, random: &mut Random, depth: u64, options: Options) -> Type {
        let is_union = random.one_in(6);
        let attribute = match random.below(12) {
            0 => "__attribute__((packed))".to_owned(),
            1 => format!("__attribute__((aligned({})))", 1 << random.below(7)),
            2 => "__attribute__((packed, aligned(4)))".to_owned(),
            _ => String::new(),
        };
        let pack = if random.one_in(20) { 1 << random.below(4) } else { 0 };
        let is_packed = pack > 0 || attribute.contains("packed");
        let mut is_plain = !is_packed && attribute.is_empty();
        // Where a record stands off its alignment and all fields of it that are no bit-fields on theirs, it
        // is passed in memory by clang, in registers by gcc. The psABI speaks of unaligned fields alone.
        let field = |random: &mut Random, of: Type, attribute: &str| {
            if (is_packed || attribute.contains("packed")) && !is_plain_type(&of) {
                scalar(random)
            } else {
                of
            }
        };
        let most = random.of(&[2, 3, 4, 7]);
        let n_fields = random.below(most) + u64::from(!random.one_in(10));
        let mut fields: Vec<(String, Type, Option<u64>)> = Vec::new();
        let mut body = String::new();
        let mut n = 0;
        for _ in 0..n_fields {
            n += 1;
            let name = format!("m{n}");
            let field_attribute = match random.below(24) {
                0 => format!("__attribute__((aligned({})))", 1 << random.below(6)),
                1 => "__attribute__((packed))".to_owned(),
                _ => String::new(),
            };
            is_plain &= field_attribute.is_empty();
            // gcc passes packed unions with bit-fields in memory where these stand off their types'
            // alignment.
            let may_have_bits = !(is_union && is_packed);
            match random.below(12) {
                0..=2 if may_have_bits => {
                    is_plain = false;
                    let (of, most) = random.of(OF_BITS);
                    let bits = 1 + random.below(most);
                    write!(body, " {of} {name} : {bits};").expect("text grows");
                    let shape = Shape::Scalar(Scalar::Bytes(16));
                    fields.push((name, Type { name: of.to_owned(), shape }, Some(bits)));
                    if random.one_in(6) && !is_union {
                        let (of, most) = random.of(OF_BITS);
                        write!(body, " {of} : {};", random.below(most)).expect("text grows");
                    }
                }
                3 => {
                    let of = self.any(random, depth + 1, options);
                    let of = field(random, of, &field_attribute);
                    is_plain &= is_plain_type(&of);
                    let len = 1 + random.below(4);
                    write!(body, " {} {name}[{len}] {field_attribute};", of.name).expect("text grows");
                    let shape = Shape::Array(Box::new(of), len);
                    fields.push((name, Type { name: String::new(), shape }, None));
                }
                4 if depth < 2 => {
                    let (a, b) = (scalar(random), scalar(random));
                    let inner_is_union = random.one_in(2);
                    let kind = if inner_is_union { "union" } else { "struct" };
                    write!(body, " {kind} {{ {} {name}a; {} {name}b; }};", a.name, b.name)
                        .expect("text grows");
                    let shape = Shape::Record {
                        is_union: inner_is_union,
                        fields: vec![(format!("{name}a"), a, None), (format!("{name}b"), b, None)],
                        is_plain: true,
                    };
                    fields.push((String::new(), Type { name: String::new(), shape }, None));
                }
                5..=8 => {
                    // Small fields, so that many records fit in registers.
                    let of = random.of(&[("char", 1), ("short", 2), ("int", 4), ("float", 4), ("double", 8)]);
                    write!(body, " {} {name} {field_attribute};", of.0).expect("text grows");
                    let shape = Shape::Scalar(Scalar::Bytes(of.1));
                    fields.push((name, Type { name: of.0.to_owned(), shape }, None));
                }
                _ => {
                    let of = self.any(random, depth + 1, options);
                    let of = field(random, of, &field_attribute);
                    is_plain &= is_plain_type(&of);
                    write!(body, " {} {name} {field_attribute};", of.name).expect("text grows");
                    fields.push((name, of, None));
                }
            }
        }
        let name = self.new_name(if is_union { "union" } else { "struct" });
        if pack > 0 {
            writeln!(self.declarations, "#pragma pack(push, {pack})").expect("text grows");
        }
        if random.one_in(3) {
            let alias = name.replace(' ', "_");
            writeln!(self.declarations, "typedef {name} {alias};").expect("text grows");
            writeln!(self.declarations, "{name} {{{body} }} {attribute};").expect("text grows");
            if pack > 0 {
                writeln!(self.declarations, "#pragma pack(pop)").expect("text grows");
            }
            return Type { name: alias, shape: Shape::Record { is_union, fields, is_plain } };
        }
        writeln!(self.declarations, "{name} {{{body} }} {attribute};").expect("text grows");
        if pack > 0 {
            writeln!(self.declarations, "#pragma pack(pop)").expect("text grows");
        }
        Type { name, shape: Shape::Record { is_union, fields, is_plain } }
    }
}

fn has_wide(of: &Type) -> bool {
    match &of.shape {
        Shape::Vector(bytes) => *bytes > 16,
        Shape::Array(of, _) => has_wide(of),
        Shape::Record { fields, .. } => fields.iter().any(|f| has_wide(&f.1)),
        Shape::Scalar(_) | Shape::Complex(_) => false,
    }
}

fn is_plain_type(of: &Type) -> bool {
    match &of.shape {
        Shape::Array(of, _) => is_plain_type(of),
        Shape::Record { is_plain, .. } => *is_plain,
        Shape::Scalar(_) | Shape::Complex(_) | Shape::Vector(_) => true,
    }
}

fn scalar(random: &mut Random) -> Type {
    let (name, scalar) = random.of(SCALARS);
    Type { name: name.to_owned(), shape: Shape::Scalar(scalar) }
}

fn complex(random: &mut Random, depth: u64) -> Type {
    // gcc 12 loses the second half of a `_Float16 _Complex` that stands in two eight bytes of a struct.
    let all = if depth > 0 { &COMPLEX[..COMPLEX.len() - 1] } else { COMPLEX };
    let (name, part) = random.of(all);
    Type { name: name.to_owned(), shape: Shape::Complex(part) }
}

fn vector(random: &mut Random, options: Options) -> Type {
    let all: Vec<_> = VECTORS.iter().copied().filter(|v| v.1 <= 16 || options.has_avx).collect();
    let (name, bytes) = random.of(&all);
    Type { name: name.to_owned(), shape: Shape::Vector(bytes) }
}

/// The parts of a value of that type, with random values; of a union, those of one member.
fn leaves_of(random: &mut Random, of: &Type, path: &str, steps: &[Step], found: &mut Vec<Leaf>) {
    let with = |step| [steps, &[step]].concat();
    let mut leaf =
        |path: String, steps: Vec<Step>, bytes, bits| found.push(Leaf { path, steps, bytes, bits });
    match &of.shape {
        Shape::Scalar(scalar) => leaf(path.to_owned(), steps.to_vec(), value(random, *scalar), None),
        Shape::Complex(part) => {
            for (n, word) in (0..).zip(["__real__", "__imag__"]) {
                leaf(format!("({word} {path})"), with(Step::Part(n)), value(random, *part), None);
            }
        }
        Shape::Vector(bytes) => {
            leaf(path.to_owned(), steps.to_vec(), value(random, Scalar::Bytes(*bytes)), None)
        }
        Shape::Array(of, n) => {
            for i in 0..*n {
                leaves_of(random, of, &format!("{path}[{i}]"), &with(Step::Index(i)), found);
            }
        }
        Shape::Record { is_union, fields, .. } => {
            let only =
                if *is_union && !fields.is_empty() { Some(random.below(fields.len() as u64)) } else { None };
            for (_, (name, of, bits)) in (0..).zip(fields).filter(|(i, _)| only.is_none_or(|only| only == *i))
            {
                let path = if name.is_empty() { path.to_owned() } else { format!("{path}.{name}") };
                let steps = if name.is_empty() { steps.to_vec() } else { with(Step::Field(name.clone())) };
                match bits {
                    Some(bits) => {
                        let all = u128::from(random.next()) & ((1 << bits) - 1);
                        found.push(Leaf {
                            path,
                            steps,
                            bytes: all.to_le_bytes().to_vec(),
                            bits: Some(*bits),
                        });
                    }
                    None => leaves_of(random, of, &path, &steps, found),
                }
            }
        }
    }
}

/// Numbers that are no signalling NaNs, which the x87 would change.
fn value(random: &mut Random, scalar: Scalar) -> Vec<u8> {
    let n = match scalar {
        Scalar::Bool => return vec![u8::from(random.one_in(2))],
        Scalar::Enum(n) => {
            let mut bytes = vec![0; usize::try_from(n).expect("small")];
            bytes[0] = 6;
            return bytes;
        }
        Scalar::Extended => 10,
        Scalar::Bytes(n) => n,
    };
    let mut bytes: Vec<u8> = (0..n).map(|_| random.next().to_le_bytes()[3]).collect();
    // Exponents in the middle, whatever the format; the x87's first bit is not left out.
    if let Some(last) = bytes.last_mut() {
        *last = *last & 0x83 | 0x40;
    }
    if scalar == Scalar::Extended {
        bytes[7] |= 0x80;
    }
    bytes
}

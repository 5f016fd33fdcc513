//! Registers by the names that debuggers and disassemblers give them.

use super::snippet::{Field, general_register};
use program::arch::Reg;

/// A register that a user has named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedRegister {
    /// A general one, and how many of its bytes.
    General(Reg, usize),
    /// A vector register, and how many.
    Vector(u8, usize),
    /// One of the x87 stack.
    X87(u8),
}

/// There is no register of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no register: rdi, edi, xmm0, ymm0, st0 and their like are")]
pub struct NoRegister(pub String);

impl NamedRegister {
    /// The register called `name`: a general one at any width but for `ah` and its like, `xmm0` to `ymm15`,
    /// `st0` to `st7`.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str) -> Result<NamedRegister, NoRegister> {
        let number = |rest: &str, below: u8| rest.parse::<u8>().ok().filter(|n| *n < below);
        let found = if let Some(rest) = name.strip_prefix("xmm") {
            number(rest, 16).map(|n| NamedRegister::Vector(n, 16))
        } else if let Some(rest) = name.strip_prefix("ymm") {
            number(rest, 16).map(|n| NamedRegister::Vector(n, 32))
        } else if let Some(rest) = name.strip_prefix("st") {
            number(rest, 8).map(NamedRegister::X87)
        } else {
            general(name)
        };
        found.ok_or_else(|| NoRegister(name.to_owned()))
    }

    /// How many bytes it has.
    pub fn len_bytes(self) -> usize {
        match self {
            NamedRegister::General(_, len) | NamedRegister::Vector(_, len) => len,
            NamedRegister::X87(_) => 10,
        }
    }

    /// What is recorded for its `len` low bytes; nothing, if it has fewer.
    pub fn field(self, len: usize) -> Option<Field> {
        if len > self.len_bytes() {
            return None;
        }
        Some(match self {
            NamedRegister::General(reg, _) => Field::General { reg, len: if len <= 4 { 4 } else { 8 } },
            NamedRegister::Vector(number, _) => Field::vector(number, len),
            NamedRegister::X87(n) if len == 10 => Field::X87(n),
            NamedRegister::X87(_) => return None,
        })
    }
}

impl Field {
    /// What holds the `len` low bytes of a vector register, on this machine.
    pub fn vector(number: u8, len: usize) -> Field {
        let len = match len {
            0..=4 => 4,
            5..=8 => 8,
            9..=16 => 16,
            _ => 32,
        };
        Field::Vector { number, len, is_vex: std::arch::is_x86_feature_detected!("avx") }
    }
}

/// A general register by any of its names, but for `ah` and its like.
fn general(name: &str) -> Option<NamedRegister> {
    if let Some(reg) = general_register(name) {
        return Some(NamedRegister::General(reg, 8));
    }
    let of = |whole: &str, len| general_register(whole).map(|reg| NamedRegister::General(reg, len));
    if name.strip_prefix('r').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        let len = match name.chars().last()? {
            'd' => 4,
            'w' => 2,
            'b' => 1,
            _ => return None,
        };
        return of(name.get(..name.len() - 1)?, len);
    }
    if let Some(rest) = name.strip_prefix('e') {
        return of(&format!("r{rest}"), 4);
    }
    match name {
        "ax" | "bx" | "cx" | "dx" | "si" | "di" | "bp" | "sp" => of(&format!("r{name}"), 2),
        "al" | "bl" | "cl" | "dl" => of(&format!("r{}x", name.get(..1)?), 1),
        "sil" | "dil" | "bpl" | "spl" => of(&format!("r{}", name.get(..2)?), 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_named_as_debuggers_name_them() {
        let one = |name: &str| match NamedRegister::parse(name) {
            Ok(NamedRegister::General(reg, len)) => (reg.to_string(), len),
            other => panic!("{name}: {other:?}"),
        };
        let names = ["rdi", "edi", "di", "dil", "r10", "r10d", "r9w", "r9b", "al", "cx", "esp", "r15"];
        let want = [
            ("rdi", 8),
            ("rdi", 4),
            ("rdi", 2),
            ("rdi", 1),
            ("r10", 8),
            ("r10", 4),
            ("r9", 2),
            ("r9", 1),
            ("rax", 1),
            ("rcx", 2),
            ("rsp", 4),
            ("r15", 8),
        ];
        assert_eq!(names.map(one), want.map(|(name, len)| (name.to_owned(), len)));
        assert_eq!(NamedRegister::parse("xmm15"), Ok(NamedRegister::Vector(15, 16)));
        assert_eq!(NamedRegister::parse("ymm0"), Ok(NamedRegister::Vector(0, 32)));
        assert_eq!(NamedRegister::parse("st7"), Ok(NamedRegister::X87(7)));
        for bad in ["rdx2", "xmm16", "ymm", "st8", "[rdi]", "ah", "eip", "r16", "r", "e", ""] {
            assert!(NamedRegister::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn as_much_is_recorded_as_is_wanted() {
        let field = |name: &str, len| NamedRegister::parse(name).expect("it is one").field(len);
        let rdi = Reg::general(7);
        assert_eq!(field("rdi", 8), Some(Field::General { reg: rdi, len: 8 }));
        assert_eq!(field("edi", 2), Some(Field::General { reg: rdi, len: 4 }));
        assert_eq!(field("st1", 10), Some(Field::X87(1)));
        assert!(matches!(field("xmm3", 16), Some(Field::Vector { number: 3, len: 16, .. })));
        assert!(matches!(field("ymm3", 32), Some(Field::Vector { number: 3, len: 32, .. })));
        assert_eq!([field("edi", 8), field("xmm0", 32), field("st0", 8)], [None; 3]);
    }
}

//! Functions whose calls are told apart by what is passed to them, and whose results depend on nothing else.

use super::{LoadedModule, ReplaceError};
use measure::values::Known;
use probe::stand_in::{NoWords, Words};
use program::FuncId;
use program::arch::abi::arguments::{Passing, passing};
use program::signature::{Float, Signature, Type};

/// What is known of such a function.
#[derive(Clone, PartialEq, Debug)]
pub struct PureFunction {
    /// What it is called.
    pub name: String,
    /// What it takes and returns.
    pub signature: Signature,
    /// In which registers.
    pub words: Words,
    /// Whether it may raise floating-point flags, or set `errno`: its code does not show that it does not.
    pub may_change_state: bool,
}

/// What a user says of a function.
#[derive(Clone, Debug, Default)]
pub struct Word<'a> {
    /// What it takes and returns; if nothing is said, what is known.
    pub signature: Option<&'a Signature>,
    /// That it depends on its arguments alone, and changes nothing.
    pub is_pure: bool,
}

impl LoadedModule {
    /// What is known of `func`, whose results depend on its arguments alone; some of it by a user's `word`.
    ///
    /// # Errors
    /// If it is not known what it takes and returns, or that is not in registers, or it is not known to
    /// depend on that alone.
    pub fn pure_function(&self, func: FuncId, word: &Word<'_>) -> Result<PureFunction, ReplaceError> {
        let function = self.program.function(func).name();
        let known = Known::new(&self.program);
        let declared = match word.signature {
            Some(signature) => Some((signature.clone(), passing(signature))),
            None => known.declared(func),
        };
        let (signature, passing) =
            declared.ok_or_else(|| ReplaceError::Undeclared { function: function.clone() })?;
        let refused = |why| ReplaceError::Words { function: function.clone(), why };
        if signature.is_variadic || signature.parameters.is_empty() {
            return Err(refused(NoWords::Nothing));
        }
        if !is_whole(&signature, &passing) {
            return Err(refused(NoWords::InMemory));
        }
        let words = Words::of(&passing).map_err(refused)?;
        let is_pure = known.is_pure(func);
        if !word.is_pure && !is_pure {
            return Err(ReplaceError::Impure { function });
        }
        let may_change_state = self.program.may_use_floats(func) || !is_pure;
        Ok(PureFunction { name: function, signature, words, may_change_state })
    }

    /// Whether the code of `func` shows that its results depend on its arguments alone.
    pub fn is_pure(&self, func: FuncId) -> bool {
        Known::new(&self.program).is_pure(func)
    }
}

/// Whether it is known of all that is passed where it is.
fn is_whole(signature: &Signature, passing: &Passing) -> bool {
    let has = |kind: &Type, pieces: &[_]| kind.size() == 0 || !pieces.is_empty();
    let all = signature.parameters.iter().zip(&passing.parameters);
    passing.parameters.len() == signature.parameters.len()
        && all.into_iter().all(|(one, pieces)| has(&one.kind, pieces))
        && (signature.result == Type::Void || !passing.result.is_empty())
}

impl PureFunction {
    /// The words of arguments that are written in `text`, with commas between them.
    ///
    /// # Errors
    /// If there are not as many as it takes, or one is no value of its type.
    pub fn arguments(&self, text: &str) -> Result<Vec<u64>, ReplaceError> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let parameters = &self.signature.parameters;
        if parts.len() != parameters.len() {
            return Err(ReplaceError::Arguments {
                function: self.name.clone(),
                n: parameters.len(),
                text: text.to_owned(),
            });
        }
        let all = parts.iter().zip(parameters).map(|(text, parameter)| {
            value(&parameter.kind, text).ok_or_else(|| ReplaceError::Argument {
                text: (*text).to_owned(),
                name: parameter.name.clone(),
                kind: parameter.kind.to_string(),
            })
        });
        all.collect()
    }
}

/// The value of that type that `text` says, as a word.
fn value(kind: &Type, text: &str) -> Option<u64> {
    match kind {
        Type::Bool => match text {
            "true" | "1" => Some(1),
            "false" | "0" => Some(0),
            _ => None,
        },
        Type::Float(Float::Double) => text.parse::<f64>().ok().map(f64::to_bits),
        Type::Float(Float::Single) => text.parse::<f32>().ok().map(|value| u64::from(value.to_bits())),
        Type::Char { bytes, .. } | Type::Integer { bytes, .. } if *bytes <= 8 => integer(*bytes, text),
        Type::Enum(of) => {
            let named = of.values.iter().find(|one| one.0 == text).map(|one| one.1);
            let len = u8::try_from(kind.size()).ok()?;
            match named {
                Some(value) => integer(len, &value.to_string()),
                None => integer(len, text),
            }
        }
        _ => None,
    }
}

/// An integer of so many bytes, as it is passed: extended to four.
fn integer(bytes: u8, text: &str) -> Option<u64> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let n = match digits.strip_prefix("0x") {
        Some(digits) => i128::from(u64::from_str_radix(digits, 16).ok()?),
        None => i128::from(digits.parse::<u64>().ok()?),
    };
    let n = if is_negative { -n } else { n };
    let bits = u32::from(bytes) * 8;
    let fits = -(1i128 << (bits - 1)) <= n && n < 1i128 << bits;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as registers hold it")]
    let word = n as u64;
    fits.then_some(if bytes <= 4 { word & 0xffff_ffff } else { word })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_words_as_registers_hold_them() {
        let int = Type::Integer { bytes: 4, is_signed: true };
        let long = Type::Integer { bytes: 8, is_signed: true };
        let byte = Type::Integer { bytes: 1, is_signed: true };
        let double = Type::Float(Float::Double);
        for (kind, text, want) in [
            (&int, "-1", Some(0xffff_ffff)),
            (&int, "0x10", Some(16)),
            (&int, "4294967296", None),
            (&long, "-2", Some(u64::MAX - 1)),
            (&byte, "-128", Some(0xffff_ff80)),
            (&byte, "-129", None),
            (&double, "2", Some(0x4000_0000_0000_0000)),
            (&double, "-0.0", Some(1 << 63)),
            (&Type::Float(Float::Single), "1", Some(0x3f80_0000)),
            (&Type::Bool, "true", Some(1)),
            (&double, "two", None),
            (&Type::Pointer(Box::new(Type::Void)), "0", None),
        ] {
            assert_eq!(value(kind, text), want, "{text}");
        }
    }
}

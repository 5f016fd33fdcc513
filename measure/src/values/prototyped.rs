//! From what a function takes and returns to which bytes of registers and memory are recorded.

use super::asked::{AskedCall, Passed, Piece, Wanted};
use probe::Field;
use program::arch::Reg;
use program::arch::abi::arguments::{self, Passing, Place, passing};
use program::signature::dwarf::Described;
use program::signature::{Parameter, Signature, Type};

/// The longest value that is recorded; of what is longer, so much.
const LONGEST: u64 = profile::values::MOST_BYTES as u64;
const STACK_POINTER: Reg = Reg::general(4);

impl AskedCall {
    /// The calls of the function that `signature` declares.
    pub fn of(signature: &Signature) -> AskedCall {
        let passed = Some(Passed::of(signature));
        AskedCall { name: signature.name.clone(), passed, is_implied: false }
    }

    /// The calls of the functions called `name`, with what is known of each.
    pub fn named(name: &str) -> AskedCall {
        AskedCall { name: name.to_owned(), passed: None, is_implied: false }
    }

    /// The same, if they are there.
    pub fn implied(name: &str) -> AskedCall {
        AskedCall { is_implied: true, ..AskedCall::named(name) }
    }
}

impl Passed {
    /// What the ABI says of such a function.
    pub fn of(signature: &Signature) -> Passed {
        let passing = passing(signature);
        let has_arguments_in_memory = passing.stack_bytes > 0 || signature.is_variadic;
        Passed { has_arguments_in_memory, ..Passed::at(signature, &passing) }
    }

    /// What debug information says of a function.
    pub fn described(described: &Described) -> Passed {
        if described.is_c_abi {
            return Passed::of(&described.signature);
        }
        Passed { result: None, ..Passed::at(&described.signature, &described.passing()) }
    }

    /// Of a function of which nothing is known.
    pub fn unknown() -> Passed {
        Passed { arguments: Vec::new(), result: None, has_arguments_in_memory: true }
    }

    fn at(signature: &Signature, passing: &Passing) -> Passed {
        let argument = |(parameter, pieces): (&Parameter, &Vec<arguments::Piece>)| {
            wanted(&parameter.name, &parameter.kind, pieces)
        };
        Passed {
            arguments: signature.parameters.iter().zip(&passing.parameters).filter_map(argument).collect(),
            result: wanted("result", &signature.result, &passing.result),
            has_arguments_in_memory: true,
        }
    }
}

/// A value of that type; none, if it has no bytes, or it is not known where they are.
fn wanted(name: &str, of: &Type, pieces: &[arguments::Piece]) -> Option<Wanted> {
    let pieces: Vec<Piece> = pieces.iter().flat_map(|piece| recorded(*piece)).collect();
    let (name, type_name) = (name.to_owned(), of.to_string());
    (!pieces.is_empty()).then(|| Wanted { name, type_name, kind: of.without_pointees(), pieces })
}

/// What is recorded for a piece of a value.
fn recorded(piece: arguments::Piece) -> Vec<Piece> {
    let len = piece.len.min(LONGEST.saturating_sub(piece.at));
    let (at, len8) = (u16::try_from(piece.at).unwrap_or(u16::MAX), u8::try_from(len).unwrap_or(u8::MAX));
    let one = |field: Field| vec![Piece { field, at, len: len8 }];
    match piece.place {
        _ if len == 0 => Vec::new(),
        Place::General(reg) => one(Field::General { reg, len: if len <= 4 { 4 } else { 8 } }),
        Place::Vector(number) => one(Field::vector(number, usize::from(len8))),
        Place::X87(n) => one(Field::X87(n)),
        // A slot there is 8 bytes long, whatever is in it.
        Place::Stack(from) => words(STACK_POINTER, from, at, len.next_multiple_of(8), len),
        Place::Memory(base) => words(base, 0, at, len, len),
        // Behind a pointer that is in memory itself.
        Place::MemoryFromStack(_) => Vec::new(),
    }
}

/// The `len` bytes from `from` on behind `base`, of which `readable` may be read, as those of a value from
/// `at` on.
fn words(base: Reg, from: u64, at: u16, readable: u64, len: u64) -> Vec<Piece> {
    let mut all = Vec::new();
    let mut done = 0;
    while done < len {
        let left = readable - done;
        // At the end, what was read before is read again in part.
        let (start, size) = match left {
            8.. => (done, 8),
            4.. => (done, 4),
            _ if readable >= 4 => (readable - 4, 4),
            _ => break,
        };
        let base_at = i32::try_from(from + start).unwrap_or(i32::MAX);
        let size8: u8 = if size == 8 { 8 } else { 4 };
        let used = u8::try_from(size.min(len - start)).unwrap_or(size8);
        let place = at.saturating_add(u16::try_from(start).unwrap_or(u16::MAX));
        all.push(Piece { field: Field::Memory { base, at: base_at, len: size8 }, at: place, len: used });
        done = start + size;
    }
    all
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Bytes behind a pointer: none that is not the value's is read, each is read, and where it is, is known.
    #[test]
    fn memory_is_read_in_words_and_not_beyond() {
        let base = Reg::general(0);
        for len in 4..64u64 {
            let mut seen = vec![0; usize::try_from(len).expect("small")];
            for piece in words(base, 100, 8, len, len) {
                let Field::Memory { at, len: size, .. } = piece.field else { panic!("{piece:?}") };
                let from = u64::try_from(at).expect("ahead") - 100;
                assert!(from + u64::from(size) <= len && piece.len <= size);
                assert_eq!(u64::from(piece.at), 8 + from);
                let used = usize::try_from(from).expect("small");
                seen[used..used + usize::from(piece.len)].iter_mut().for_each(|n| *n += 1);
            }
            assert!(seen.iter().all(|n| *n >= 1), "{len}: {seen:?}");
        }
        // Of a slot of the stack, all is there.
        let slot = words(base, 8, 0, 8, 3);
        assert_eq!(slot, [Piece { field: Field::Memory { base, at: 8, len: 8 }, at: 0, len: 3 }]);
    }
}

//! What is asked for: calls with their arguments and results, places with what is there.
//!
//! ```text
//! place    = ADDRESS | FUNCTION | FUNCTION '+' OFFSET
//! values   = value (',' value)*
//! value    = register (':' kind)?
//! register = as [`probe::NamedRegister`] reads it
//! kind     = element ('x' number)?
//! element  = u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 f32 f64 f80 ptr
//! ```
//! A general register is taken as unsigned and as wide as its name, a vector register as `f64`, one of the
//! x87 stack as `f80`, unless said otherwise.

use probe::{Field, NamedRegister, NoRegister};
use profile::values::Kind;
use std::hash::Hash;

/// Functions that end the process: what they are called from is open still.
pub(super) const ENDS: [&str; 4] = ["exit", "_exit", "_Exit", "quick_exit"];

/// Functions that end the thread: what they are called from is left.
pub(super) const ENDS_THREAD: [&str; 2] = ["pthread_exit", "thrd_exit"];

/// What is asked of a run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Asked {
    /// Calls of functions.
    pub calls: Vec<AskedCall>,
    /// Places.
    pub places: Vec<AskedPlace>,
    /// Whether there is a log with a row for each, and what is in it.
    pub log: Option<Logged>,
    /// Loops: each as the text that names it.
    pub loops: Vec<String>,
    /// How these are timed.
    pub stamping: Stamping,
}

/// What a log has of calls besides their values: who made them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Logged {
    /// And how long they took.
    pub has_times: bool,
}

/// How it is measured how long loops take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stamping {
    /// It is not.
    None,
    /// By the time stamp counter, read behind what came before.
    #[default]
    Plain,
    /// By the same, while nothing else runs.
    Serialised,
}

/// Calls of the functions that bear a name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskedCall {
    /// The name, `*` standing for anything.
    pub name: String,
    /// The arguments, in order.
    pub arguments: Vec<Wanted>,
    /// The result, if it has one.
    pub result: Option<Wanted>,
    /// Whether it may have arguments in memory: then jumps out of it stay jumps.
    pub has_arguments_in_memory: bool,
}

/// What is at a place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskedPlace {
    /// The place, as it was asked for.
    pub place: String,
    /// What is there.
    pub values: Vec<Wanted>,
}

/// A value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wanted {
    /// What it is called.
    pub name: String,
    /// Its type, as it is written.
    pub type_name: String,
    /// What its bytes mean.
    pub kind: Kind,
    /// Where they are.
    pub pieces: Vec<Piece>,
}

/// Some bytes of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Where they are.
    pub field: Field,
    /// Which they are: the first of them, from the start of the value.
    pub at: u16,
    /// How many.
    pub len: u8,
}

/// A value that cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum BadPlace {
    /// There is no such register.
    #[error(transparent)]
    Register(#[from] NoRegister),
    /// There is no such kind.
    #[error(
        "{0:?} is no kind of value: u8 to u128, i8 to i128, f32, f64, f80, ptr are, and f32x4 and its like"
    )]
    Kind(String),
    /// The register is not that wide.
    #[error("{register} has no {kind}: it is {len} bytes wide")]
    Wide {
        /// Which.
        register: String,
        /// What was asked for.
        kind: String,
        /// How wide it is.
        len: usize,
    },
}

impl Asked {
    /// The functions that are named in it.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let places = self.places.iter().map(|place| {
            let start = place.place.rsplit_once('+').map_or(place.place.as_str(), |parts| parts.0);
            start.split_once('!').map_or(start, |parts| parts.1)
        });
        let loops = self.loops.iter().map(|text| {
            let place = text.split_once('!').map_or(text.as_str(), |parts| parts.1);
            place.split_once(':').map_or(place, |parts| parts.0)
        });
        let ends = ENDS.iter().chain(&ENDS_THREAD).copied().filter(|_| !self.calls.is_empty());
        self.calls.iter().map(|call| call.name.as_str()).chain(places).chain(loops).chain(ends)
    }

    /// The modules whose names stand in front of places and loops.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        let places = self.places.iter().map(|place| &place.place);
        places.chain(&self.loops).filter_map(|text| text.split_once('!')).map(|parts| parts.0)
    }

    /// Whether something is asked for by its line, which only files of debug information know.
    pub fn has_lines(&self) -> bool {
        self.loops.iter().any(|text| text.contains(':'))
    }
}

impl AskedPlace {
    /// The values that `text` names at `place`.
    ///
    /// # Errors
    /// The first that cannot be understood.
    pub fn parse(place: &str, text: &str) -> Result<AskedPlace, BadPlace> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let values = words.map(value).collect::<Result<_, _>>()?;
        Ok(AskedPlace { place: place.to_owned(), values })
    }
}

fn value(word: &str) -> Result<Wanted, BadPlace> {
    let (name, said) = word.split_once(':').map_or((word, None), |(name, kind)| (name, Some(kind.trim())));
    let name = name.trim();
    let register = NamedRegister::parse(name)?;
    let kind = match said {
        Some(kind) => kind_of(kind).ok_or_else(|| BadPlace::Kind(kind.to_owned()))?,
        None => usual(register),
    };
    let type_name = said.map_or_else(|| spelt(&kind), str::to_owned);
    let len = kind.len_bytes();
    let field = register.field(len).ok_or_else(|| BadPlace::Wide {
        register: name.to_owned(),
        kind: type_name.clone(),
        len: register.len_bytes(),
    })?;
    let piece = Piece { field, at: 0, len: u8::try_from(len).unwrap_or(u8::MAX) };
    Ok(Wanted { name: word.to_owned(), type_name, kind, pieces: vec![piece] })
}

/// What a register is taken for.
fn usual(register: NamedRegister) -> Kind {
    match register {
        NamedRegister::General(_, len) => Kind::Unsigned(u8::try_from(len).unwrap_or(8)),
        NamedRegister::Vector(..) => Kind::Float(8),
        NamedRegister::X87(_) => Kind::Float(10),
    }
}

fn kind_of(text: &str) -> Option<Kind> {
    if let Some((element, n)) = text.split_once('x') {
        let n = n.parse().ok().filter(|n| (1..=32).contains(n))?;
        return Some(Kind::Many(Box::new(kind_of(element)?), n));
    }
    Some(match text {
        "u8" => Kind::Unsigned(1),
        "u16" => Kind::Unsigned(2),
        "u32" => Kind::Unsigned(4),
        "u64" => Kind::Unsigned(8),
        "u128" => Kind::Unsigned(16),
        "i8" => Kind::Signed(1),
        "i16" => Kind::Signed(2),
        "i32" => Kind::Signed(4),
        "i64" => Kind::Signed(8),
        "i128" => Kind::Signed(16),
        "f32" => Kind::Float(4),
        "f64" => Kind::Float(8),
        "f80" => Kind::Float(10),
        "ptr" => Kind::Pointer,
        _ => return None,
    })
}

fn spelt(kind: &Kind) -> String {
    match kind {
        Kind::Unsigned(len) => format!("u{}", 8 * u32::from(*len)),
        Kind::Signed(len) => format!("i{}", 8 * u32::from(*len)),
        Kind::Float(len) => format!("f{}", 8 * u32::from(*len)),
        Kind::Pointer => "ptr".to_owned(),
        Kind::Many(of, n) => format!("{}x{n}", spelt(of)),
        Kind::Record(_, len) | Kind::Bytes(len) => format!("{len} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_say_what_bytes_mean() {
        let all = [
            ("u8", Kind::Unsigned(1)),
            ("i128", Kind::Signed(16)),
            ("f80", Kind::Float(10)),
            ("ptr", Kind::Pointer),
            ("f32x4", Kind::Many(Box::new(Kind::Float(4)), 4)),
        ];
        for (text, kind) in all {
            assert_eq!(spelt(&kind), text);
            assert_eq!(kind_of(text), Some(kind));
        }
        for bad in ["u7", "f16", "f32x0", "f32x33", "x4", ""] {
            assert_eq!(kind_of(bad), None, "{bad}");
        }
    }
}

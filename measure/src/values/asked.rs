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
use program::signature::{Float, Type};
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
    /// Functions whose instructions are recorded for what they are, `*` standing for anything.
    pub watched: Vec<String>,
    /// Whether there is a log with a row for each, and what is in it.
    pub log: Option<Logged>,
    /// Loops: each as the text that names it; `FUNCTION#N` is the one whose header is the Nth, from 1.
    pub loops: Vec<String>,
    /// How these are timed.
    pub stamping: Stamping,
    /// Whether of calls only their beginnings are recorded: neither results, nor how they ended.
    pub is_without_results: bool,
    /// Whether it does not matter which calls are open where the process or a thread ends.
    pub is_without_ends: bool,
    /// Whether a word of each thread counts the instructions that it runs: see [`super::executed`].
    pub counts_instructions: bool,
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
    /// What they take and return; if nothing is said, what is known of each function.
    pub passed: Option<Passed>,
    /// Whether something else implies it: then it need not be there.
    pub is_implied: bool,
}

/// Where a function's arguments and result are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Passed {
    /// The arguments, in order, those of which it is known where they are.
    pub arguments: Vec<Wanted>,
    /// The result, if it has one, and it is known where.
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
    pub kind: Type,
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
    /// Whether it matters how calls end.
    pub(super) fn looks_for_ends(&self) -> bool {
        !self.calls.is_empty() && !self.is_without_results && !self.is_without_ends
    }

    /// Whether it matters what is known of functions.
    pub fn asks_what_is_known(&self) -> bool {
        self.calls.iter().any(|call| call.passed.is_none())
    }

    /// The functions that are named in it.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let places = self.places.iter().map(|place| {
            let start = place.place.rsplit_once('+').map_or(place.place.as_str(), |parts| parts.0);
            start.split_once('!').map_or(start, |parts| parts.1)
        });
        let loops = self.loops.iter().map(|text| {
            let place = text.split_once('!').map_or(text.as_str(), |parts| parts.1);
            place.rsplit_once('#').or_else(|| place.split_once(':')).map_or(place, |parts| parts.0)
        });
        let ends = ENDS.iter().chain(&ENDS_THREAD).copied().filter(|_| self.looks_for_ends());
        // `*` alone means the executable.
        let watched = self.watched.iter().map(String::as_str).filter(|name| *name != "*");
        let calls = self.calls.iter().map(|call| call.name.as_str());
        let calls = calls.map(|name| name.split_once('!').map_or(name, |parts| parts.1));
        calls.chain(places).chain(watched).chain(loops).chain(ends)
    }

    /// The same of a module of which it is known which functions `is_here`: those calls and loops that are
    /// not of it are of nothing then, but have their numbers. What is made of such a module is the same
    /// whatever is asked for of others.
    #[must_use]
    pub fn of_module(&self, is_here: impl Fn(&str) -> bool) -> Asked {
        let mut own = self.clone();
        // Where a module is named, that is what is asked for of others, too.
        let is_of_other = |call: &&mut AskedCall| !call.name.contains('!') && !is_here(&call.name);
        for call in own.calls.iter_mut().filter(is_of_other) {
            let passed = Passed { arguments: Vec::new(), result: None, has_arguments_in_memory: false };
            *call = AskedCall { name: String::new(), passed: Some(passed), is_implied: true };
        }
        let is_of_it = |text: &str| match text.rsplit_once('#') {
            Some((name, _)) if !name.contains('!') => is_here(name),
            _ => true,
        };
        own.loops.iter_mut().filter(|text| !is_of_it(text)).for_each(String::clear);
        own
    }

    /// The modules whose names stand in front of calls, places and loops.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        let places = self.places.iter().map(|place| &place.place);
        let calls = self.calls.iter().map(|call| &call.name);
        calls.chain(places).chain(&self.loops).filter_map(|text| text.split_once('!')).map(|parts| parts.0)
    }

    /// Whether something is asked for by its line, which only files of debug information know.
    pub fn has_lines(&self) -> bool {
        self.loops.iter().any(|text| text.contains(':') && !text.contains('#'))
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
    let len = usize::try_from(kind.size()).unwrap_or(usize::MAX);
    let field = register.field(len).ok_or_else(|| BadPlace::Wide {
        register: name.to_owned(),
        kind: type_name.clone(),
        len: register.len_bytes(),
    })?;
    let piece = Piece { field, at: 0, len: u8::try_from(len).unwrap_or(u8::MAX) };
    Ok(Wanted { name: word.to_owned(), type_name, kind, pieces: vec![piece] })
}

/// What a register is taken for.
fn usual(register: NamedRegister) -> Type {
    match register {
        NamedRegister::General(_, len) => {
            Type::Integer { bytes: u8::try_from(len).unwrap_or(8), is_signed: false }
        }
        NamedRegister::Vector(..) => Type::Float(Float::Double),
        NamedRegister::X87(_) => Type::Float(Float::Extended),
    }
}

fn kind_of(text: &str) -> Option<Type> {
    if let Some((element, n)) = text.split_once('x') {
        let n = n.parse().ok().filter(|n| (1..=32).contains(n))?;
        return Some(Type::Vector { of: Box::new(kind_of(element)?), n });
    }
    let integer = |bytes, is_signed| Type::Integer { bytes, is_signed };
    Some(match text {
        "u8" => integer(1, false),
        "u16" => integer(2, false),
        "u32" => integer(4, false),
        "u64" => integer(8, false),
        "u128" => integer(16, false),
        "i8" => integer(1, true),
        "i16" => integer(2, true),
        "i32" => integer(4, true),
        "i64" => integer(8, true),
        "i128" => integer(16, true),
        "f32" => Type::Float(Float::Single),
        "f64" => Type::Float(Float::Double),
        "f80" => Type::Float(Float::Extended),
        "ptr" => Type::Pointer(Box::new(Type::Void)),
        _ => return None,
    })
}

/// How a kind of values is written, of those that places have.
fn spelt(kind: &Type) -> String {
    match kind {
        Type::Integer { bytes, is_signed: false } => format!("u{}", 8 * u32::from(*bytes)),
        Type::Integer { bytes, is_signed: true } => format!("i{}", 8 * u32::from(*bytes)),
        Type::Float(Float::Extended) => "f80".to_owned(),
        Type::Float(float) => format!("f{}", 8 * float.size()),
        Type::Pointer(_) => "ptr".to_owned(),
        Type::Vector { of, n } => format!("{}x{n}", spelt(of)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_other_modules_is_of_nothing_and_has_its_number() {
        let call = |name: &str| AskedCall { name: name.to_owned(), passed: None, is_implied: false };
        let loops = ["f#2", "g#1", "0x10", "g.c:3"].map(str::to_owned).to_vec();
        let asked = Asked { calls: vec![call("f"), call("g")], loops, ..Asked::default() };
        let own = asked.of_module(|name| name == "g");
        assert_eq!(own.calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["", "g"]);
        assert_eq!(own.loops, ["", "g#1", "0x10", "g.c:3"]);
        // Whatever else is asked for.
        let other = Asked { calls: vec![call("h"), call("g")], ..asked.clone() };
        assert_eq!(other.of_module(|name| name == "g").calls, own.calls);
        assert_eq!(asked.functions().take(4).collect::<Vec<_>>(), ["f", "g", "f", "g"]);
    }

    #[test]
    fn kinds_say_what_bytes_mean() {
        let integer = |bytes, is_signed| Type::Integer { bytes, is_signed };
        let all = [
            ("u8", integer(1, false)),
            ("i128", integer(16, true)),
            ("f80", Type::Float(Float::Extended)),
            ("ptr", Type::Pointer(Box::new(Type::Void))),
            ("f32x4", Type::Vector { of: Box::new(Type::Float(Float::Single)), n: 4 }),
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

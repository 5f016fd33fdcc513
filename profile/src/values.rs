//! Values that a run had at places of its code: arguments and results of calls, and what registers and memory
//! held elsewhere.
//!
//! Invariant: of each function whose ends were recorded, calls = results + left + open; a column has as many
//! values as its row says, or says how many were not kept.
//!
//! *Not here*: how they are recorded (`probe`, `measure`), how they are printed (`views`).

pub mod advice;
mod buckets;
mod distribution;
pub mod log;
mod loops;
mod merge;
mod reuse;
mod statistics;

pub use buckets::{Bucket, Buckets, Summary};
pub use distribution::{Counted, Distribution, MOST_DISTINCT};
pub use loops::{Loop, PARTS_OF_TICK, Stamps, Ticks};
pub use merge::Unlike;
pub use reuse::{Frequent, Hits, Reuse};
pub use statistics::{Number, OfFinite, Statistics, finite};

use crate::vocabulary::{Format, ReadError};
use program::signature::Type;
use serde::{Deserialize, Serialize};

/// The section of recordings that has them.
pub const SECTION: u8 = b'V';
/// The version of that section.
const VERSION: u8 = 3;

/// What a run had, in the order in which it was asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Values {
    /// Calls, by function.
    pub calls: Vec<Calls>,
    /// Other places.
    pub places: Vec<Place>,
    /// Loops.
    pub loops: Vec<Loop>,
    /// What the times of loops rest on, if they were taken.
    pub stamps: Option<Stamps>,
    /// Which functions addresses are in that indirect calls and jumps led to.
    pub targets: Vec<(u64, Address)>,
    /// How many bytes of records could not be read, since their thread was stopped in the middle of one.
    pub n_unread_bytes: u64,
    /// How many threads lost records, since nobody took them any more.
    pub n_lost: u64,
}

/// The calls of a function: of all that bears its name, versions and what a resolver may return included.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    /// Which of what was asked for it is.
    pub asked: u32,
    /// Its name, as it was asked for.
    pub function: String,
    /// Whether it was asked for by a glob that means others, too.
    pub is_of_glob: bool,
    /// Whether only its beginnings were recorded: then it is not known how calls ended.
    pub is_without_ends: bool,
    /// Whether what it returns is known to depend on its arguments alone, and it to change nothing.
    pub is_pure: bool,
    /// Whether it is known to call itself, if through others.
    pub is_recursive: bool,
    /// Where it is.
    pub addresses: Vec<Address>,
    /// How often it was called, and a condition was asked for that did not hold: not among the others.
    pub n_left_out: u64,
    /// How often it was called.
    pub n_calls: u64,
    /// How often it came back, its result being known.
    pub n_results: u64,
    /// How often it was left otherwise: by an exception, `longjmp`, the end of its thread, or a jump to a
    /// function whose result could not be seen.
    pub n_left: u64,
    /// How often it had not come back at the end of its process.
    pub n_open: u64,
    /// Its arguments, in order.
    pub arguments: Vec<Column>,
    /// What it returned, if that was asked for and is something.
    pub result: Option<Column>,
}

/// A place where something is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The path of the module.
    pub module: String,
    /// The address in it.
    pub at: u64,
    /// What is there, if that has a name of its own.
    pub name: Option<String>,
}

/// Values at a place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The place, as it was asked for.
    pub place: String,
    /// Why it was recorded, if it was for what the instruction there is.
    pub watched: Option<Watched>,
    /// Where it is.
    pub addresses: Vec<Address>,
    /// How often control came by.
    pub n: u64,
    /// What was there.
    pub columns: Vec<Column>,
}

/// What is recorded of an instruction because of what it is: its only value says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Watched {
    /// What it divides by.
    Divisor,
    /// Where it leads.
    Target,
    /// How many elements it takes.
    Size {
        /// The length of each in bytes.
        element: u8,
    },
    /// How far the memory that it reads or writes is from the start of its line of 64 bytes.
    Access {
        /// How many bytes it reads or writes.
        width: u8,
    },
}

/// All values of one kind at a place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// What it is called.
    pub name: String,
    /// Its type, as it was asked for.
    pub type_name: String,
    /// What its bytes mean.
    pub kind: Type,
    /// Which values there were.
    pub values: Distribution,
}

/// Of longer values only so many bytes are kept.
pub const MOST_BYTES: usize = 240;

/// How many bytes of a value of that type are kept.
pub fn len_bytes(kind: &Type) -> usize {
    usize::try_from(kind.size()).unwrap_or(MOST_BYTES).min(MOST_BYTES)
}

impl Watched {
    /// What is recorded, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Watched::Divisor => "divisor",
            Watched::Target => "target",
            Watched::Size { .. } => "size",
            Watched::Access { .. } => "access",
        }
    }
}

impl Place {
    /// What makes it another one: of instructions that are watched there may be several of a name.
    pub fn key(&self) -> (String, Option<(Watched, Address)>) {
        let own = self.watched.and_then(|watched| Some((watched, self.addresses.first()?.clone())));
        (self.place.clone(), own)
    }
}

impl Values {
    /// As the body of a section: version: u8; postcard, compressed by zstd.
    pub fn write(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("all of it has a form");
        let mut out = vec![VERSION];
        out.extend(zstd::encode_all(bytes.as_slice(), 3).expect("memory is written to"));
        out
    }

    /// Reads that.
    ///
    /// # Errors
    /// [`ReadError::Damaged`], if it is something else, or of another version.
    pub fn parse(body: &[u8]) -> Result<Values, ReadError> {
        let damaged =
            |what: &str| ReadError::Damaged { format: Format::Engraft, at: 0, what: what.to_owned() };
        let (version, packed) = body.split_first().ok_or_else(|| damaged("it has no values"))?;
        if *version != VERSION {
            return Err(damaged("another version of engraft kept values in it"));
        }
        let plain = zstd::decode_all(packed).map_err(|_| damaged("values in it cannot be unpacked"))?;
        postcard::from_bytes(&plain).map_err(|_| damaged("values in it cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::signature::Float;

    #[test]
    fn what_is_written_is_read() {
        let mut values = Distribution::default();
        (0..1000u64).for_each(|n| values.add(&(n % 7).to_le_bytes()));
        let kind = Type::Float(Float::Double);
        let column = Column { name: "x".to_owned(), type_name: "double".to_owned(), kind, values };
        let address =
            Address { module: "/m".to_owned(), at: 0x1000, name: Some("exp@@GLIBC_2.29".to_owned()) };
        let calls = Calls {
            asked: 0,
            function: "exp".to_owned(),
            is_of_glob: false,
            is_without_ends: false,
            is_pure: true,
            is_recursive: false,
            addresses: vec![address],
            n_left_out: 3,
            n_calls: 1000,
            n_results: 990,
            n_left: 7,
            n_open: 3,
            arguments: vec![column.clone()],
            result: Some(column),
        };
        let all = Values { calls: vec![calls], n_lost: 1, ..Values::default() };
        let written = all.write();
        assert_eq!(Values::parse(&written).expect("it is one"), all);
        for n in 0..written.len() {
            assert!(Values::parse(&written[..n]).is_err(), "{n}");
        }
    }
}

//! Numbers of what a trace is about: its functions, their blocks, its threads.
//!
//! They are those of the file, and hold within it: two traces of the same program may number its functions
//! differently ([`crate::diff::Pairing`]).

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in a table of them.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A function of any module; prints as `fn3`. Where a path is written, it is `#3`.
    FuncId,
    "fn"
);
id!(
    /// A block of a function, counted from 0 in each; prints as `bb12`.
    BlockId,
    "bb"
);
id!(
    /// A thread, which has a stream of its own; prints as `t0`.
    ThreadId,
    "t"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_what_they_number() {
        let all = (FuncId(3), BlockId(12), ThreadId(0));
        assert_eq!(format!("{} {} {}", all.0, all.1, all.2), "fn3 bb12 t0");
        assert_eq!(format!("{all:?}"), "(fn3, bb12, t0)");
    }

    #[test]
    fn a_block_is_stored_as_its_number() {
        let bytes = postcard::to_stdvec(&vec![(BlockId(300), 1u32)]).expect("it is memory");
        assert_eq!(bytes, postcard::to_stdvec(&vec![(300u32, 1u32)]).expect("it is memory"));
    }
}

//! Dense numbers for what a program consists of: functions, blocks, edges.
//!
//! An id is an index into the table of that name in [`crate::Program`]. It holds within one
//! analysis of one file: nothing on disk speaks of ids, since they change with our version.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of the entry at `index`.
            ///
            /// # Panics
            /// If there are more than 2³² of them, which no file we accept can make.
            pub fn at(index: usize) -> $name {
                $name(u32::try_from(index).expect("files are limited so that ids fit"))
            }
            /// Position in its table.
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
    /// A function; prints as `fn3`.
    FuncId,
    "fn"
);
id!(
    /// A basic block; prints as `bb12`.
    BlockId,
    "bb"
);
id!(
    /// An edge between two blocks of one function; prints as `e40`.
    EdgeId,
    "e"
);

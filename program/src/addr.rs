//! Addresses. Three spaces that must never mix: the file, the image, the process.
//!
//! - [`FileOff`]: byte offset in the ELF file on disk.
//! - [`Va`]: virtual address as written in the ELF file (what `objdump` prints).
//! - [`LiveVa`]: address in a running process: `Va` plus the load [`Bias`].
//!
//! Invariant: only [`Bias`] turns a `Va` into a `LiveVa` or back. On a non-PIE
//! binary the bias is 0, so mixing them up works by luck; hence the types.
//!
//! Not here: what lies at an address (`image`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Virtual address as written in the ELF file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Va(pub u64);

/// Address in a running process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveVa(pub u64);

/// Byte offset in a file on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileOff(pub u64);

/// How far an image was moved when it was loaded, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bias(u64);

impl Va {
    /// The address `bytes` further on. Wraps: hostile files hold any number.
    pub fn plus(self, bytes: u64) -> Va {
        Va(self.0.wrapping_add(bytes))
    }
    /// Bytes from `start` to here; wraps if `start` is the higher one.
    pub fn since(self, start: Va) -> u64 {
        self.0.wrapping_sub(start.0)
    }
}

impl Bias {
    /// The bias that puts `image` at `live`. Wraps, as the kernel's own arithmetic does.
    pub fn between(image: Va, live: LiveVa) -> Bias {
        Bias(live.0.wrapping_sub(image.0))
    }
    /// From the image to the process.
    pub fn to_live(self, va: Va) -> LiveVa {
        LiveVa(va.0.wrapping_add(self.0))
    }
    /// From the process to the image.
    pub fn to_image(self, live: LiveVa) -> Va {
        Va(live.0.wrapping_sub(self.0))
    }
}

impl fmt::Display for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for LiveVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "live:{:#x}", self.0)
    }
}

impl fmt::Debug for LiveVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FileOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {:#x}", self.0)
    }
}

impl fmt::Debug for FileOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_undoes_itself() {
        let bias = Bias::between(Va(0x1000), LiveVa(0x5555_5555_5000));
        assert_eq!(bias.to_live(Va(0x1136)), LiveVa(0x5555_5555_5136));
        assert_eq!(bias.to_image(bias.to_live(Va(0x1136))), Va(0x1136));
    }

    #[test]
    fn addresses_print_with_their_space() {
        assert_eq!(
            format!("{} {} {}", Va(0x401136), LiveVa(0x10), FileOff(0x40)),
            "0x401136 live:0x10 offset 0x40"
        );
    }
}

//! Frames of samples with names: what other tools are told, who have no programs to ask.

use super::Samples;

/// What a frame of a sample is called: a function, or one that was inlined there.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NamedFrame {
    /// What people call it.
    pub function: String,
    /// The file, and the line from 1, where that is known.
    pub line: Option<(String, u32)>,
}

/// In what a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// In a module of the recording, by its number, at this address of its image.
    Module(u32, program::Va),
    /// In the kernel.
    Kernel,
    /// In code that is of no module.
    Elsewhere,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// In what it is.
    pub origin: Origin,
    /// The function, and those that were inlined there, one into the other: the last one has the instruction.
    pub functions: Vec<NamedFrame>,
}

/// A module of the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedModule {
    /// Where its file is.
    pub path: String,
    /// Its build-id, where it has one.
    pub build_id: Option<Vec<u8>>,
    /// Its code: from where to where in the image, and from where on in the file.
    pub code: Vec<(std::ops::Range<program::Va>, program::FileOff)>,
}

/// Samples with the names of their frames.
#[derive(Clone, Debug)]
pub struct NamedSamples<'a> {
    /// The samples.
    pub samples: &'a Samples,
    /// Their frames, by number.
    pub frames: Vec<Named>,
    /// The modules, by number.
    pub modules: Vec<NamedModule>,
    /// What it is of: a program's name.
    pub title: String,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
}

impl NamedSamples<'_> {
    /// The frame of this number.
    pub(crate) fn frame(&self, n: u32) -> Option<&Named> {
        self.frames.get(n as usize)
    }
}

//! The words of reading and writing: the formats by name, what each needs, gives, and how it may fail.
//!
//! Not here: the formats themselves, and reading and writing by format (`formats`).

use crate::counts::{Lost, Profile};
use program::Program;
use std::fmt;
use std::path::Path;

/// A file format of profiles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// Engraft's own: all that a [`Profile`] holds.
    Engraft,
    /// The same as text.
    Json,
    /// Executions of blocks, a row each.
    Csv,
    /// llvm-bolt's text profile.
    Fdata,
    /// What `llvm-bolt -w` writes.
    BoltYaml,
    /// valgrind's call graph profile, with instructions and jumps.
    Callgrind,
    /// Branch samples, summed up, for perf2bolt.
    Preagg,
    /// What `perf record` writes.
    PerfData,
    /// What `perf script` prints.
    PerfScript,
    /// LLVM's sample profile, as text.
    LlvmSample,
    /// pprof's profile.proto, gzipped.
    Pprof,
    /// Folded stacks, for flame graphs.
    Folded,
    /// A flame graph, as a picture.
    Svg,
    /// Samples for the Firefox Profiler.
    Firefox,
    /// lcov's tracefile.
    Lcov,
}

/// Name, extensions (the first is the usual one), whether it can be written.
const FORMATS: &[(Format, &str, &[&str], bool)] = &[
    (Format::Engraft, "engraft", &["engraft"], true),
    (Format::Firefox, "firefox", &["firefox.json"], true),
    (Format::Json, "json", &["json"], true),
    (Format::Csv, "csv", &["csv"], true),
    (Format::Fdata, "fdata", &["fdata"], true),
    (Format::BoltYaml, "bolt-yaml", &["yaml"], false),
    (Format::Callgrind, "callgrind", &["callgrind"], true),
    (Format::Preagg, "preagg", &["preagg"], true),
    (Format::PerfData, "perf.data", &["perf.data"], false),
    (Format::PerfScript, "perf-script", &["perf"], false),
    (Format::LlvmSample, "prof", &["prof"], true),
    (Format::Pprof, "pprof", &["pb.gz"], true),
    (Format::Folded, "folded", &["folded"], true),
    (Format::Svg, "svg", &["svg"], true),
    (Format::Lcov, "lcov", &["info"], true),
];

impl Format {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Format> {
        FORMATS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Format, &'static str, &'static [&'static str], bool) {
        FORMATS.iter().find(|row| row.0 == self).expect("every format has a row")
    }

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether [`crate::write`] knows it.
    pub fn is_written(self) -> bool {
        self.row().3
    }

    /// Whether [`crate::read`] knows it: flame graphs do not say which build they are of.
    pub fn is_read(self) -> bool {
        !matches!(self, Format::Folded | Format::Svg | Format::Firefox)
    }

    /// The usual extension of its files, without the dot.
    pub fn extension(self) -> &'static str {
        self.row().2.first().copied().unwrap_or_default()
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<Format> {
        FORMATS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The format that a file of this name has by its extension.
    pub fn from_extension(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let has_extension =
            |extension: &&str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
        FORMATS.iter().find(|row| row.2.iter().any(has_extension)).map(|row| row.0)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a count is left out of a text of lines.
pub(crate) const NO_LINE: &str = "its name has control characters, which the format has no way to write";

/// What reading needs to know besides the file.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// The program that was profiled. Formats that speak of addresses alone can be read without it.
    pub program: Option<&'a Program>,
}

impl<'a> Context<'a> {
    /// To read a profile of `program`.
    pub fn of(program: &'a Program) -> Context<'a> {
        Context { program: Some(program) }
    }

    pub(crate) fn need(&self, format: Format) -> Result<&'a Program, ReadError> {
        self.program.ok_or(ReadError::NeedsProgram { format })
    }
}

/// A profile that was read.
#[derive(Debug)]
pub struct Imported {
    /// What the file holds of the program.
    pub profile: Profile,
    /// What it was recognised as.
    pub format: Format,
    /// What it holds besides.
    pub lost: Vec<Lost>,
}

/// Why a profile cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No format that we know.
    #[error("the profile is of no known format: it starts with {start:?}")]
    Unrecognised {
        /// How it starts.
        start: String,
    },
    /// A line of a text format that cannot be understood.
    #[error("line {line} is no {format} record: {what}")]
    BadLine {
        /// The format.
        format: Format,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A binary format that is cut off or contradicts itself.
    #[error("the {format} file is damaged at byte {at}: {what}")]
    Damaged {
        /// The format.
        format: Format,
        /// Where.
        at: usize,
        /// What is wrong.
        what: String,
    },
    /// It is what a counted program left ([`crate::formats::ours::recording::RAW_MAGIC`]): counters, and
    /// notes that say what they mean.
    #[error("it is a raw recording, as a counted program leaves it, and no finished profile")]
    Raw,
    /// It names functions and offsets, so it means nothing without the program.
    #[error("a profile in the format {format} can only be read with its program at hand")]
    NeedsProgram {
        /// The format.
        format: Format,
    },
    /// It names source lines, and the program does not say what came from which.
    #[error("a profile in the format {format} cannot be read without the program's debug information")]
    NoLines {
        /// The format.
        format: Format,
    },
    /// A format that is only written.
    #[error("profiles in the format {format} are not read: its names lead back to no block")]
    WriteOnly {
        /// The format.
        format: Format,
    },
    /// It is of other images than the program.
    #[error("the {format} file holds nothing of {program}: it is of {}", one_line(&holds.join(", ")))]
    NotInIt {
        /// The format.
        format: Format,
        /// The program asked for.
        program: String,
        /// Images that it has something of.
        holds: Vec<String>,
    },
    /// Samples without the places at which images were mapped.
    #[error("the {format} text has samples, but does not say where in memory programs were")]
    NoMappings {
        /// The format.
        format: Format,
    },
    /// It is of another build.
    #[error("the profile is of {}, the program is {}", one_line(profile), one_line(program))]
    OtherImage {
        /// What the profile says.
        profile: String,
        /// What the program is.
        program: String,
    },
}

/// Whether a name can stand in a text of lines: one that holds control characters would break it, and is
/// another name without them.
pub(crate) fn is_one_line(name: &str) -> bool {
    !name.contains(char::is_control)
}

/// A name from a file as a message has it: without what would end the line or move the cursor.
pub(crate) fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl ReadError {
    /// What the reader of the message can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NeedsProgram { .. } => Some("name the program with --binary"),
            Self::OtherImage { .. } => {
                Some("use the binary that was profiled, or carry the profile to this one")
            }
            Self::NotInIt { holds, .. } if !holds.is_empty() => Some(
                "if that is the same program, the profile was taken on another build of it: name that one",
            ),
            Self::NoMappings { .. } => {
                Some("print it again with `perf script --show-mmap-events`, or give the perf.data itself")
            }
            Self::Damaged { .. } => Some("copy or record the profile again"),
            _ => None,
        }
    }
}

/// Why a profile cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// It names functions and lines, which only the program has.
    #[error("a profile can only be written as {format} with its program at hand")]
    NeedsProgram {
        /// The format.
        format: Format,
    },
    /// It names source lines, and the program does not say what came from which.
    #[error("a profile cannot be written as {format} without the program's debug information")]
    NoLines {
        /// The format.
        format: Format,
    },
    /// Nothing ran.
    #[error("there is nothing to draw: nothing in the profile ran")]
    Nothing,
    /// A format of samples, with callers and times: a profile has neither.
    #[error("{format} is of samples, with callers and times, which a profile of counts does not have")]
    NoSamples {
        /// The format.
        format: Format,
    },
    /// A format that is only read.
    #[error("profiles are not written as {format}")]
    ReadOnly {
        /// The format.
        format: Format,
    },
}

impl WriteError {
    /// What the reader of the message can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NeedsProgram { .. } => Some("name the program with --binary"),
            Self::NoLines { .. } => {
                Some("use the binary as it was before it was stripped, or build it with -g")
            }
            Self::ReadOnly { .. } => Some("--to fdata is what llvm-bolt reads"),
            Self::NoSamples { .. } => {
                Some("`engraft sample` takes them; convert its recording, without --binary")
            }
            Self::Nothing => None,
        }
    }
}

/// A profile in some format, and what of it the format or its reader cannot hold.
#[derive(Debug, Default)]
pub struct Written {
    /// The file.
    pub bytes: Vec<u8>,
    /// Functions of which something was written.
    pub n_functions: usize,
    /// Sum of the counts written.
    pub count: u64,
    /// What was left out.
    pub lost: Vec<Lost>,
}

//! Which formats there are, how a file's format is told from its content, and reading and writing by format.
//!
//! To add one: a file with `parse` and `write`, a line in each table here, and its consumer in
//! `checks/formats.sh`.

use crate::counts::{Lost, Profile};
use crate::derive::n_functions;
use crate::{
    bolt_yaml, callgrind, csv, engraft, fdata, folded, json, lcov, llvm_sample, perf_data, perf_script,
    pprof, preagg, recording,
};
use program::image::Image;
use program::{ImageId, Program};
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
    /// lcov's tracefile.
    Lcov,
}

/// Name, extensions (the first is the usual one), whether it can be written.
const FORMATS: &[(Format, &str, &[&str], bool)] = &[
    (Format::Engraft, "engraft", &["engraft"], true),
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
    (Format::Lcov, "lcov", &["info"], true),
];

/// How the text formats are told apart by their first lines.
const TEXTS: &[(Format, IsOne)] = &[
    (Format::Json, json::is_one),
    (Format::Csv, csv::is_one),
    (Format::BoltYaml, bolt_yaml::is_one),
    (Format::Callgrind, callgrind::is_one),
    (Format::Preagg, preagg::is_one),
    (Format::Fdata, fdata::is_one),
    (Format::Lcov, lcov::is_one),
    (Format::LlvmSample, llvm_sample::is_one),
    (Format::PerfScript, perf_script::is_one),
    (Format::Folded, folded::is_one),
];

/// Says of the start of a text whether it is of a format.
type IsOne = fn(&str) -> bool;

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

    /// Whether [`write`] knows it.
    pub fn is_written(self) -> bool {
        self.row().3
    }

    /// Whether [`read`] knows it: flame graphs do not say which build they are of.
    pub fn is_read(self) -> bool {
        self != Format::Folded
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
        let ends = |extension: &&str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
        FORMATS.iter().find(|row| row.2.iter().any(ends)).map(|row| row.0)
    }

    /// The format of a file by its content.
    pub fn recognise(bytes: &[u8]) -> Option<Format> {
        // Of other versions, too: reading says so.
        if bytes.starts_with(b"ENGRAFT") && bytes.get(7).is_some_and(|version| *version < 0x20) {
            return Some(Format::Engraft);
        }
        if perf_data::is_one(bytes) {
            return Some(Format::PerfData);
        }
        if pprof::is_one(bytes) {
            return Some(Format::Pprof);
        }
        // At least the whole first line: names that C++ makes can be very long.
        const ENOUGH: usize = 4096;
        const LONGEST_LINE: usize = 1 << 20;
        let first = bytes.iter().take(LONGEST_LINE).position(|&b| b == b'\n').unwrap_or(ENOUGH);
        let head = bytes.get(..bytes.len().min(first.max(ENOUGH))).unwrap_or_default();
        let text = String::from_utf8_lossy(head);
        let text: &str = &text;
        TEXTS.iter().find(|(_, is_one)| is_one(text)).map(|(format, _)| *format)
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
    /// It is what a counted program left ([`recording::RAW_MAGIC`]): counters, and notes that say what they mean.
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

/// Reads a profile in whatever format its content shows.
///
/// # Errors
/// If the format is not known, or the file is damaged, or it needs a program that `context` has not.
pub fn read(bytes: &[u8], context: &Context) -> Result<Imported, ReadError> {
    let format = Format::recognise(bytes).ok_or_else(|| {
        let head = bytes.get(..bytes.len().min(24)).unwrap_or_default();
        ReadError::Unrecognised { start: String::from_utf8_lossy(head).into_owned() }
    })?;
    let (profile, lost) = match format {
        Format::Engraft => (engraft_of(bytes, context)?, Vec::new()),
        Format::Json => (json::parse(bytes)?, Vec::new()),
        Format::Csv => csv::parse(bytes)?,
        Format::Fdata => fdata::parse(bytes, context.need(format)?)?,
        Format::BoltYaml => bolt_yaml::parse(bytes, context.need(format)?)?,
        Format::Callgrind => callgrind::parse(bytes, context.need(format)?)?,
        Format::Preagg => preagg::parse(bytes, context.need(format)?)?,
        Format::PerfData => perf_data::parse(bytes, context.need(format)?)?,
        Format::PerfScript => perf_script::parse(bytes, context.need(format)?)?,
        Format::LlvmSample => llvm_sample::parse(bytes, context.need(format)?)?,
        Format::Pprof => pprof::parse(bytes, context.need(format)?)?,
        Format::Lcov => lcov::parse(bytes, context.need(format)?)?,
        Format::Folded => return Err(ReadError::WriteOnly { format }),
    };
    if let (Some(program), Some(id)) = (context.program, profile.image.id) {
        same_image(&profile, id, &program.image)?;
    }
    Ok(Imported { profile, format, lost })
}

/// The profile in a file of ours; of a recording, that of the program, or of the executable.
fn engraft_of(bytes: &[u8], context: &Context) -> Result<Profile, ReadError> {
    if !recording::is_one(bytes) {
        return engraft::parse(bytes);
    }
    recording::choose(recording::parse(bytes)?, context, bytes.len())
}

fn same_image(profile: &Profile, id: ImageId, image: &Image) -> Result<(), ReadError> {
    if id == image.id {
        return Ok(());
    }
    Err(ReadError::OtherImage {
        profile: format!("{} ({id})", profile.image.name),
        program: format!("{} ({})", image.name, image.id),
    })
}

/// Writes a profile.
///
/// # Errors
/// If the format is only read, or needs the program and there is none.
pub fn write(profile: &Profile, program: Option<&Program>, format: Format) -> Result<Written, WriteError> {
    let need = || program.ok_or(WriteError::NeedsProgram { format });
    let mut written = match format {
        Format::Engraft => engraft::write(profile),
        Format::Json => json::write(profile),
        Format::Csv => csv::write(profile, need()?),
        Format::Fdata => fdata::write(profile, need()?),
        Format::Callgrind => callgrind::write(profile, need()?),
        Format::Preagg => preagg::write(profile, need()?),
        Format::BoltYaml | Format::PerfData | Format::PerfScript => {
            return Err(WriteError::ReadOnly { format });
        }
        Format::LlvmSample => llvm_sample::write(profile, need()?).ok_or(WriteError::NoLines { format })?,
        Format::Pprof => pprof::write(profile, need()?),
        Format::Folded => folded::write(profile, need()?),
        Format::Lcov => lcov::write(profile, need()?).ok_or(WriteError::NoLines { format })?,
    };
    if let (Format::Engraft | Format::Json, Some(n)) = (format, n_functions(profile, program)) {
        written.n_functions = n;
    }
    written.lost.extend(not_held(profile, format));
    Ok(written)
}

/// How wide intervals are in all, and how many there are.
type InDoubt = (usize, u64);

fn widths<'a>(intervals: impl Iterator<Item = &'a (u64, u64)>) -> InDoubt {
    intervals.fold((0, 0), |(n, sum), (least, most)| (n + 1, sum.saturating_add(most.saturating_sub(*least))))
}

/// That so many counts of calls, with these intervals, became one number each.
pub(crate) fn calls_in_doubt(intervals: impl Iterator<Item = (u64, u64)>) -> Option<Lost> {
    let all: Vec<(u64, u64)> = intervals.collect();
    let (n, count) = widths(all.iter());
    let why = "one before it may not have come back: it is written as often as its block ran, as near as the bounds allow";
    let s = if n == 1 { "" } else { "s" };
    (n > 0).then(|| Lost { what: format!("{n} interval{s} of calls"), why: why.to_owned(), count })
}

/// That so many counts of blocks, edges and entries became one number each.
pub(crate) fn in_doubt(profile: &Profile, format: Format) -> Option<Lost> {
    if matches!(format, Format::Engraft | Format::Json) {
        return None;
    }
    let intervals = &profile.intervals;
    let places = intervals.blocks.values();
    // Others have nothing of these.
    let (edges, entries) = match format {
        Format::Csv | Format::Pprof | Format::Folded => (None, None),
        _ => (Some(intervals.edges.values()), Some(intervals.entries.values())),
    };
    let (n, count) = widths(places.chain(edges.into_iter().flatten()).chain(entries.into_iter().flatten()));
    let why = "threads may have been stopped in the middle of a block: what follows if none was is written";
    let s = if n == 1 { "" } else { "s" };
    (n > 0).then(|| Lost { what: format!("{n} interval{s} of counts"), why: why.to_owned(), count })
}

/// The tables of a profile that a format has no place for.
fn not_held(profile: &Profile, format: Format) -> Vec<Lost> {
    let blocks_alone = "the format holds counts of blocks alone";
    let lines_alone = "the format holds counts of lines and calls alone";
    let no_misses = "the format has no place for them";
    let (edges, calls, entries, misses) = match format {
        Format::Csv | Format::Pprof | Format::Folded => {
            (Some(blocks_alone), Some(blocks_alone), Some(blocks_alone), Some(no_misses))
        }
        Format::Lcov => {
            let why = Some("the format holds counts of lines, functions and the branches of lines alone");
            (why, why, None, Some(no_misses))
        }
        Format::LlvmSample => (Some(lines_alone), None, None, Some(no_misses)),
        Format::Callgrind => (None, None, None, Some(no_misses)),
        _ => (None, None, None, None),
    };
    // callgrind's writer says so itself; ours would have them, and CSV has no calls.
    let holds_calls = matches!(format, Format::Fdata | Format::Preagg | Format::LlvmSample);
    let of_calls = calls_in_doubt(profile.intervals.calls.values().copied().filter(|_| holds_calls));
    let row = |n: usize, name: &str, count: u64, why: Option<&str>| {
        let why = why.filter(|_| count > 0)?;
        Some(Lost { what: format!("{n} {name}"), why: why.to_owned(), count })
    };
    let sum = |counts: &mut dyn Iterator<Item = &u64>| counts.fold(0u64, |sum, n| sum.saturating_add(*n));
    let unnamed = (format == Format::LlvmSample).then_some("the format names what is called");
    let out_count = sum(&mut profile.calls_out.values());
    let n_calls = profile.calls.len() + profile.calls_out.len();
    let calls_count = sum(&mut profile.calls.values().chain(profile.calls_out.values()));
    [
        row(profile.edges.len(), "edges", sum(&mut profile.edges.values()), edges),
        row(n_calls, "calls", calls_count, calls),
        row(profile.entries.len(), "entries of functions", sum(&mut profile.entries.values()), entries),
        row(profile.calls_out.len(), "calls out of the program", out_count, unnamed),
        row(profile.mispredicts.len(), "mispredicted edges", sum(&mut profile.mispredicts.values()), misses),
    ]
    .into_iter()
    .chain([in_doubt(profile, format), of_calls])
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;

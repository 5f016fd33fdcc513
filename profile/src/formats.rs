//! Which formats there are: how a file's format is told from its content, and reading and writing by format.
//!
//! To add one: a file with `parse` and `write`, a line in each table here, in `vocabulary` and in `losses`,
//! and its consumer in `checks/formats.sh`.

pub mod bolt;
pub mod callgrind;
pub(crate) mod images;
pub mod lines;
pub mod ours;
pub mod perf;

use crate::complete::derive::n_functions;
use crate::counts::Profile;
use crate::losses::not_held;
use crate::vocabulary::{Context, Format, Imported, ReadError, WriteError, Written};
use bolt::{bolt_yaml, fdata, preagg};
use lines::{flame, folded, lcov, llvm_sample, pprof};
use ours::recording::Recording;
use ours::{csv, engraft, json, recording};
use perf::{perf_data, perf_script};
use program::image::Image;
use program::{ImageId, Program};

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
    (Format::Svg, flame::is_one),
];

/// Says of the start of a text whether it is of a format.
type IsOne = fn(&str) -> bool;

impl Format {
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

/// Reads a profile in whatever format its content shows.
///
/// # Errors
/// If the format is not known, the file is damaged, or `context` lacks the program that it needs.
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
        Format::Folded | Format::Svg | Format::Firefox => return Err(ReadError::WriteOnly { format }),
    };
    if let (Some(program), Some(id)) = (context.program, profile.image.id) {
        same_image(&profile, id, &program.image)?;
    }
    Ok(Imported { profile, format, lost })
}

/// The profile in a file of ours; of a recording, that of the program, or of the executable.
fn engraft_of(bytes: &[u8], context: &Context) -> Result<Profile, ReadError> {
    recording::choose(Recording::parse(bytes)?.into_profiles(), context, bytes.len())
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
        Format::Engraft => {
            Written { bytes: Recording::of([profile.clone()]).write(), ..engraft::write(profile) }
        }
        Format::Json => json::write(profile),
        Format::Csv => csv::write(profile, need()?),
        Format::Fdata => fdata::write(profile, need()?),
        Format::Callgrind => callgrind::write(profile, need()?),
        Format::Preagg => preagg::write(profile, need()?),
        Format::BoltYaml | Format::PerfData | Format::PerfScript => {
            return Err(WriteError::ReadOnly { format });
        }
        Format::Firefox => return Err(WriteError::NoSamples { format }),
        Format::LlvmSample => llvm_sample::write(profile, need()?).ok_or(WriteError::NoLines { format })?,
        Format::Pprof => pprof::write(profile, need()?),
        Format::Folded => folded::write(profile, need()?),
        Format::Svg => flame::of_one(folded::write(profile, need()?), profile)?,
        Format::Lcov => lcov::write(profile, need()?).ok_or(WriteError::NoLines { format })?,
    };
    if let (Format::Engraft | Format::Json, Some(n)) = (format, n_functions(profile, program)) {
        written.n_functions = n;
    }
    written.lost.extend(not_held(profile, format));
    Ok(written)
}

#[cfg(test)]
mod tests;

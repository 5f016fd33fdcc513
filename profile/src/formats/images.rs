//! What a recording says of several images, in one file: in those formats that have room for them.
//!
//! Not here: one image of a recording, in any format ([`crate::write`]).

use crate::counts::{Lost, Profile};
use crate::formats::callgrind::export;
use crate::formats::lines::{flame, folded, lcov, pprof};
use crate::formats::ours::csv;
use crate::losses::in_doubt;
use crate::vocabulary::{Format, WriteError, Written};
use program::Program;

/// A file that is written image by image.
#[derive(Debug)]
pub struct Images {
    format: Format,
    whole: Written,
    /// Executions of instructions.
    total: u64,
    /// Of the first one.
    caption: Option<flame::Caption>,
    pprof: pprof::Images,
}

impl Images {
    /// Nothing so far; `None` for a format that holds one image only.
    pub fn new(format: Format) -> Option<Images> {
        let is_for_many = matches!(
            format,
            Format::Csv | Format::Callgrind | Format::Lcov | Format::Pprof | Format::Folded | Format::Svg
        );
        let pprof = pprof::Images::default();
        is_for_many.then(|| Images { format, whole: Written::default(), total: 0, caption: None, pprof })
    }

    /// Adds one.
    pub fn add(&mut self, profile: &Profile, program: &Program) {
        let written = match self.format {
            Format::Csv => csv::write_all(profile, program),
            Format::Folded => folded::write(profile, program),
            Format::Svg => {
                let of_first = || flame::Caption::flat(&profile.image.name, profile);
                self.caption.get_or_insert_with(of_first);
                folded::write(profile, program)
            }
            Format::Pprof => self.pprof.add(profile, program),
            Format::Callgrind => {
                let (body, total) = export::image(profile, program);
                self.total = self.total.saturating_add(total);
                body
            }
            _ => lcov::write(profile, program).unwrap_or_else(|| {
                let count = profile.blocks.values().fold(0u64, |sum, n| sum.saturating_add(*n));
                let why = "it has no debug information".to_owned();
                let lost = vec![Lost { what: profile.image.name.clone(), why, count }];
                Written { lost, ..Written::default() }
            }),
        };
        // A table has one heading, lcov one test.
        let is_headless = matches!(self.format, Format::Callgrind | Format::Folded | Format::Svg);
        let skipped = match self.whole.bytes.is_empty() || is_headless {
            true => 0,
            false => written.bytes.iter().position(|&b| b == b'\n').map_or(0, |n| n + 1),
        };
        self.whole.bytes.extend(written.bytes.get(skipped..).unwrap_or_default());
        self.whole.n_functions += written.n_functions;
        self.whole.count = self.whole.count.saturating_add(written.count);
        self.whole.lost.extend(written.lost);
        let of_image = |lost: Lost| Lost { what: format!("{} of {}", lost.what, profile.image.name), ..lost };
        self.whole.lost.extend(in_doubt(profile, self.format).map(of_image));
    }

    /// The file.
    ///
    /// # Errors
    /// [`WriteError::NoLines`] if the format speaks of lines, and no image says what came from which.
    pub fn finish(mut self) -> Result<Written, WriteError> {
        self.whole.lost.sort_by_key(|lost| std::cmp::Reverse(lost.count));
        match self.format {
            Format::Callgrind => self.whole.bytes = export::file(&self.whole.bytes, self.total),
            Format::Pprof => self.whole.bytes = self.pprof.finish(),
            Format::Svg => {
                let drawn = self.caption.and_then(|caption| flame::drawn(&self.whole.bytes, &caption));
                self.whole.bytes = drawn.ok_or(WriteError::Nothing)?;
            }
            Format::Lcov if self.whole.bytes.is_empty() => {
                return Err(WriteError::NoLines { format: Format::Lcov });
            }
            _ => {}
        }
        Ok(self.whole)
    }
}

//! `engraft convert` for samples with callers: what other tools draw.

use super::{Args, input_view};
use crate::input::Source;
use crate::output::{self, Answer, Hinted};
use crate::verbs::carry::written_view;
use crate::verbs::sample::recorded::Recorded;
use anyhow::Context as _;
use profile::samples::{firefox, folded, pprof};
use profile::{Format, Profile, Written};
use views::convert::ConvertView;

/// Writes the samples of the only one of `sources` in `format`; `None` if it has none, or the format is of
/// counts.
///
/// # Errors
/// If it is damaged, or the format needs samples and there are none.
pub fn convert(args: &Args, sources: &[Source], format: Format) -> anyhow::Result<Option<Answer>> {
    let takes_stacks = matches!(format, Format::Folded | Format::Svg | Format::Pprof | Format::Firefox);
    // It is of instructions that ran.
    let takes_counts = format == Format::Callgrind;
    if !takes_stacks && !takes_counts {
        return Ok(None);
    }
    let recorded = match (args.inputs.as_slice(), sources) {
        ([path], [source]) if !source.is_trace() => Recorded::of(path, source)?,
        _ => None,
    };
    if takes_counts {
        let what = "a callgrind file is of instructions that ran, and this recording is of samples";
        let hint = ".pb.gz, .folded, .svg and .firefox.json have samples";
        return if recorded.is_some() { Err(Hinted::new(what, hint).into()) } else { Ok(None) };
    }
    let Some(recorded) = recorded else {
        if format == Format::Firefox {
            let what = "the Firefox Profiler shows samples, and this has none, or there are several";
            return Err(Hinted::new(what, "give one recording of `engraft sample`").into());
        }
        return Ok(None);
    };
    let named = recorded.named();
    let bytes = match format {
        Format::Firefox => firefox::write(&named)?,
        Format::Pprof => pprof::write(&named),
        Format::Svg => folded::draw(&named, 0).context("there is nothing to draw: there are no samples")?,
        _ => folded::write(&named, 0).into_bytes(),
    };
    output::data(Some(&args.o), |w| w.write_all(&bytes))?;
    let functions: std::collections::BTreeSet<&str> =
        named.frames.iter().flat_map(|frame| &frame.functions).map(|function| &*function.function).collect();
    let written = Written {
        bytes,
        n_functions: functions.len(),
        count: recorded.samples.len() as u64,
        lost: Vec::new(),
    };
    let input = args.inputs.first().map_or_else(String::new, |path| path.display().to_string());
    let inputs = vec![input_view(&input, Format::Engraft, Some(functions.len()), &Profile::default())];
    let view = ConvertView { schema: ConvertView::SCHEMA, inputs, written: written_view(&args.o, &written) };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(Some(Answer::Yes))
}

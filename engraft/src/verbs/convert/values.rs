//! `engraft convert` for recordings of `values`: several become one, as those of the processes of an MPI
//! program.

use super::Args;
use super::traces::{Target, target};
use crate::input::{self, Source};
use crate::output::{self, Answer, Hinted};
use crate::verbs::values;
use profile::Format;
use profile::recording::Recording;
use profile::values::{SECTION, Values};
use std::collections::BTreeSet;
use std::path::Path;

/// Adds up what the inputs have; `None` if there is one, or one of them has no values.
///
/// # Errors
/// If they cannot be read or written, or do not fit each other.
pub fn convert(args: &Args) -> anyhow::Result<Option<Answer>> {
    let is_asked = args.inputs.len() > 1 && args.inputs.iter().all(|path| input::is_recording(path));
    if !is_asked {
        return Ok(None);
    }
    let (mut sum, mut has_log): (Option<Values>, bool) = (None, false);
    for path in &args.inputs {
        let source = Source::read(path)?;
        let Some(values) = source.values()? else { return Ok(None) };
        has_log |= source.log().is_some();
        match &mut sum {
            None => sum = Some(values),
            Some(sum) => sum.merge(values).map_err(|err| {
                let what = format!("{} does not fit those before it: {err}", path.display());
                Hinted::new(what, "add up recordings of the same command line")
            })?,
        }
    }
    let Some(sum) = sum else { return Ok(None) };
    if target(args) != Some(Target::Profile(Format::Engraft)) {
        let what = "several recordings of values become one of values, and nothing else";
        return Err(Hinted::new(what, "name the output X.engraft").into());
    }
    output::refuse_replacing(&args.o, &args.inputs.iter().map(AsRef::as_ref).collect::<Vec<&Path>>())?;
    if has_log {
        output::warn("the logs of calls are left out: their rows stay in the recordings of each", None);
    }
    let of_calls = sum.calls.iter().flat_map(|calls| &calls.addresses);
    let of_places = sum.places.iter().flat_map(|place| &place.addresses);
    let addresses = of_calls.chain(of_places).map(|address| address.module.as_str());
    let paths: BTreeSet<&str> = addresses.chain(sum.loops.iter().map(|one| one.module.as_str())).collect();
    let modules = paths.into_iter().map(|path| values::unread(Path::new(path))).collect();
    let recording = Recording { modules, sections: vec![(SECTION, sum.write())], ..Recording::default() };
    output::data(Some(&args.o), |w| w.write_all(&recording.write()))?;
    if let Some(view) = values::recorded(&args.o)? {
        args.output.print_beside_file(&args.o, &view)?;
    }
    Ok(Some(Answer::Yes))
}

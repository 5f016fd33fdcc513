//! `engraft convert` for recordings, with all their modules: several are added up, module by module.

use super::{Args, input_view, read_from, same_build};
use crate::input::{self, Source};
use crate::output::{self, Answer, Hinted};
use crate::verbs::carry::written_view;
use profile::recording::{Module, Recording};
use profile::{Format, Images, Profile, Written};
use program::Program;
use rayon::prelude::*;
use std::path::Path;
use views::convert::{ConvertView, InputView};

/// Writes all that is in `sources` in `format`; `None` if they are not all recordings, or the format has room
/// for one image only and there is one.
///
/// # Errors
/// If they are of other builds, or a binary that the format needs is gone.
pub fn convert(args: &Args, sources: &[Source], format: Format) -> anyhow::Result<Option<Answer>> {
    let is_for_many = format == Format::Engraft || Images::new(format).is_some();
    if !is_for_many {
        return Ok(None);
    }
    let mut sum: Option<Recording> = None;
    let mut inputs = Vec::new();
    for (path, source) in args.inputs.iter().zip(sources) {
        let Some(mut recording) = source.recording()? else { return Ok(None) };
        if let Some(n) = args.thread {
            recording = of_thread(recording, source.thread(n)?);
        }
        inputs.extend(views(&recording, source, path, sources.len() > 1));
        match &mut sum {
            None => sum = Some(recording),
            Some(sum) => add(args, sum, recording)?,
        }
    }
    let Some(sum) = sum else { return Ok(None) };
    let written = match Images::new(format) {
        Some(images) => exported(&sum, images)?,
        None => completed(sum)?,
    };
    output::data(Some(&args.o), |w| w.write_all(&written.bytes))?;
    let view = ConvertView { schema: ConvertView::SCHEMA, inputs, written: written_view(&args.o, &written) };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(Some(Answer::Yes))
}

/// The program that `format`, which has room for one image only, is about, if `sources` are recordings: their
/// executable. Says which modules are left out.
///
/// # Errors
/// If a recording is damaged, or the program's file is gone and nothing was kept of it.
pub fn only_program(sources: &[Source], format: Format) -> anyhow::Result<Option<Program>> {
    let Some(recording) = sources.first().map(Source::recording).transpose()?.flatten() else {
        return Ok(None);
    };
    let Some((first, others)) = recording.modules.split_first() else { return Ok(None) };
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|m| input::file_name(&m.profile.image.name)).collect();
        let what = format!(
            "a {} file is of one image, and this of {}: left out are {}",
            format.name(),
            input::file_name(&first.profile.image.name),
            names.join(", ")
        );
        output::warn(
            &what,
            Some(
                "say --binary with the one that you want; .engraft, .csv, .callgrind, .folded and .svg have all",
            ),
        );
    }
    // It has names and addresses of its own.
    if format == Format::Json {
        return Ok(None);
    }
    input::counted_program(&first.profile).map(Some)
}

/// What one thread ran, of the same modules.
fn of_thread(recording: Recording, profiles: Vec<Profile>) -> Recording {
    let of_it = |profile: Profile| {
        let all = recording.modules.iter().find(|module| module.profile.image.id == profile.image.id);
        all.map_or_else(|| Module::new(profile.clone(), None), |all| all.with_counts(profile.clone()))
    };
    let modules = profiles.into_iter().map(of_it).collect();
    Recording { modules, threads: Vec::new(), ..recording }
}

/// What was read: a line a module.
fn views(recording: &Recording, source: &Source, path: &Path, is_one_of_several: bool) -> Vec<InputView> {
    let view = |module: &Module| {
        let name = match is_one_of_several {
            true => format!("{} in {}", module.profile.image.name, path.display()),
            false => module.profile.image.name.clone(),
        };
        let n_functions = profile::n_functions(&module.profile, None);
        read_from(input_view(&name, Format::Engraft, n_functions, &module.profile), source)
    };
    recording.modules.iter().map(view).collect()
}

/// Adds the modules of `next`. A sum is of no single run, and its threads are those of nobody.
fn add(args: &Args, sum: &mut Recording, next: Recording) -> anyhow::Result<()> {
    if let (Some(a), Some(b)) = (sum.modules.first(), next.modules.first()) {
        let is_in = |module: &Module, all: &Recording| {
            all.modules.iter().any(|other| other.profile.image.id == module.profile.image.id)
        };
        if !is_in(a, &next) && !is_in(b, sum) {
            same_build(&a.profile, &b.profile, &args.inputs)?;
        }
    }
    let file = |module: &Module| input::file_name(&module.profile.image.name);
    for module in next.modules {
        let same = sum.modules.iter_mut().find(|own| own.profile.image.id == module.profile.image.id);
        if let Some(own) = same {
            own.add(module)?;
            continue;
        }
        if let Some(other) = sum.modules.iter().find(|own| file(own) == file(&module)) {
            same_build(&other.profile, &module.profile, &args.inputs)?;
        }
        sum.modules.push(module);
    }
    (sum.run, sum.threads) = (None, Vec::new());
    Ok(())
}

/// In a format for several images.
fn exported(sum: &Recording, mut images: Images) -> anyhow::Result<Written> {
    for module in &sum.modules {
        images.add(&module.profile, &input::whole_program(module)?);
    }
    Ok(images.finish()?)
}

/// As a recording, with the code of what has none in it yet.
fn completed(mut sum: Recording) -> anyhow::Result<Written> {
    let with_code = |module: &mut Module| -> anyhow::Result<()> {
        if !module.has_code() {
            let program: Program = input::counted_program(&module.profile).map_err(|err| {
                let hint = "a recording keeps the code that ran, and this one has none yet: put the file back where it was";
                anyhow::Error::from(Hinted::new(format!("{err:#}"), hint))
            })?;
            *module = Module::new(module.profile.clone(), Some(&measure::excerpt(&program, &module.profile)));
        }
        Ok(())
    };
    sum.modules.par_iter_mut().try_for_each(with_code)?;
    let mut written = Written { bytes: sum.write(), ..Written::default() };
    for Module { profile, .. } in &sum.modules {
        written.n_functions += profile.entries.len();
        written.count = written.count.saturating_add(profile.total());
    }
    Ok(written)
}

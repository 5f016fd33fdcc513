//! The loops that ran most, by what a recording of `engraft count` says.

use crate::input::{self, Source};
use crate::output::{self, Hinted};
use measure::reports::loops::{self, LoopRun};
use profile::Profile;
use profile::calls::Cuts;
use program::{Image, ImageId, Loops, Program};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// How many loops `hot` means.
const MOST: usize = 10;

/// How many hot loops `text` asks for; `None` if it asks for something else.
///
/// # Errors
/// If it says no number.
pub fn number(text: &str) -> anyhow::Result<Option<usize>> {
    match text.strip_prefix("hot") {
        Some("") => Ok(Some(MOST)),
        Some(rest) if rest.starts_with(':') => match rest.trim_start_matches(':').parse() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => {
                Err(Hinted::new(format!("--loop {text} names no number of loops"), "such as `hot:5`").into())
            }
        },
        _ => Ok(None),
    }
}

/// The `n` loops with most instructions, without those of loops in them, of the program `executable`, in the
/// recording `from`, else in the newest one here of this build: each as a place.
///
/// # Errors
/// If there is no such recording, or no loop in it ran.
pub fn loops_of(n: usize, executable: &Path, from: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let id = Image::load(executable)?.id;
    let images = match from {
        Some(rec) => recorded(rec, id)?.ok_or_else(|| {
            let what = format!("{} is of another program than {}", rec.display(), executable.display());
            Hinted::new(what, "`engraft count PROGRAM` makes one of this build")
        })?,
        None => newest(id).ok_or_else(|| {
            let what = format!("no recording of {} here says which loops are hot", executable.display());
            let hint = "run `engraft count PROGRAM` first, or name a recording with --from";
            Hinted::new(what, hint)
        })?,
    };
    let mut found: Vec<(u64, String)> = Vec::new();
    for (program, profile) in &images {
        let name = profile.image.name.as_str();
        if Image::load(Path::new(name)).ok().map(|image| Some(image.id)) != Some(profile.image.id) {
            output::warn(&format!("{name} is not what was counted any more: its loops are left out"), None);
            continue;
        }
        let file = name.rsplit('/').next().unwrap_or_default();
        let runs = loops::runs(program, profile, &Cuts::of(profile, program));
        found
            .extend(runs.iter().map(|run| {
                (own(program, &runs, run), format!("{file}!{}", program.block(run.header).start))
            }));
    }
    found.retain(|one| one.0 > 0);
    found.sort_by_key(|one| Reverse(one.0));
    found.truncate(n);
    if found.is_empty() {
        return Err(Hinted::new("no loop ran in what was counted", "name one: `--loop FUNCTION`").into());
    }
    Ok(found.into_iter().map(|one| one.1).collect())
}

/// Instructions of a loop without those of loops in it.
fn own(program: &Program, runs: &[LoopRun], of: &LoopRun) -> u64 {
    let loops = Loops::compute(program, of.func);
    let number = |header| loops.ids().find(|id| loops.header(*id) == header);
    let id = number(of.header);
    let is_in = |run: &&LoopRun| {
        run.func == of.func
            && number(run.header).is_some_and(|inner| id.is_some() && loops.parent(inner) == id)
    };
    let inner = runs.iter().filter(is_in).map(|run| run.instructions).sum::<u64>();
    of.instructions.saturating_sub(inner)
}

/// What was counted, if the recording is one of the program with this identity.
fn recorded(rec: &Path, id: ImageId) -> anyhow::Result<Option<Vec<(Program, Profile)>>> {
    let images = Source::read(rec)?.images()?;
    Ok(images.iter().any(|(_, profile)| profile.image.id == Some(id)).then_some(images))
}

fn newest(id: ImageId) -> Option<Vec<(Program, Profile)>> {
    let is_of_it = |rec: &PathBuf| recorded(rec, id).ok().flatten();
    input::newest().iter().find_map(is_of_it)
}

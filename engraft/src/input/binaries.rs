//! Binaries, and what else is of them: maps, plans, the files that were recorded.

use super::functions::functions;
use crate::output::Hinted;
use anyhow::Context as _;
use matching::Map;
use measure::plan_text::Points;
use profile::Profile;
use program::{Image, Program};
use session::recorded_path;
use std::path::Path;
use tracing::info_span;

/// Reads and analyses the binary at `path`.
pub fn program(path: &Path) -> anyhow::Result<Program> {
    if path == Path::new("-") {
        let hint = "write it to a file first: `cat > FILE`\na file of that name is `./-`";
        return Err(Hinted::new("a program is not read from standard input", hint).into());
    }
    let image = info_span!("load").in_scope(|| Image::load(path))?;
    Ok(info_span!("analyze").in_scope(|| Program::analyze(image)))
}

/// Reads and analyses two builds.
pub fn pair(old: &Path, new: &Path) -> anyhow::Result<(Program, Program)> {
    let (old, new) = (program(old)?, program(new)?);
    Ok((old, new))
}

/// Reads the map at `path` of what became what between `old` and `new`.
///
/// # Errors
/// If it cannot be read, or is of other builds.
pub fn map(path: &Path, old: &Program, new: &Program) -> anyhow::Result<Map> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Map::parse(&text, old, new).with_context(|| format!("cannot use {}", path.display()))
}

/// A file that a trace is of, which has the key that the trace has, loaded.
///
/// # Errors
/// If it is gone, another one by now, or cannot be read.
pub fn recorded_image(path: &str, key: u32) -> anyhow::Result<Image> {
    let refused = |what| Hinted::new(what, "put the file that was recorded where it was");
    let there = recorded_path(path);
    if matches!(there.try_exists(), Ok(false)) {
        return Err(refused(format!("{path}, which was recorded, is gone")).into());
    }
    let image = Image::load(&there)?;
    if measure::recorded_points::key(probe::file_key(&image)) != key {
        return Err(refused(format!("{path} is not the file any more that was recorded")).into());
    }
    Ok(image)
}

/// Reads the plan at `path` of what to put into `program`.
///
/// # Errors
/// If it cannot be read, or a line of it cannot be understood.
pub fn points(path: &Path, program: &Program) -> anyhow::Result<Points> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let points = measure::plan_text::parse(&text, program, |name| functions(program, name))
        .with_context(|| format!("cannot use {}", path.display()))?;
    if points.plan.is_null() {
        let hint = "a line is `entry main count`, say; `engraft help instrument` has more";
        return Err(Hinted::new(format!("{} asks for nothing", path.display()), hint).into());
    }
    Ok(points)
}

/// The program that `profile`, of a recording, is of: the file that was counted, if it is still that.
///
/// # Errors
/// If it is gone, or another one by now.
pub fn counted_program(profile: &Profile) -> anyhow::Result<Program> {
    let path = recorded_path(&profile.image.name);
    let program = program(&path).map_err(|err| {
        let hint = "it was counted there; name the binary where it is now: `show BINARY --counts REC`, `convert REC --binary BINARY`";
        if path.exists() { err } else { Hinted::new(format!("{err:#}"), hint).into() }
    })?;
    if profile.image.id != Some(program.image.id) {
        let what = format!("{} is not the file any more that was counted", path.display());
        return Err(Hinted::new(what, "name the binary that was counted").into());
    }
    Ok(program)
}

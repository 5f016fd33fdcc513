//! Binaries, and what else is of them: maps, plans, the files that were recorded.

use super::functions::functions;
use super::read::{start, text};
use crate::output::{self, Hinted};
use anyhow::Context as _;
use matching::Map;
use measure::plan_text::Points;
use profile::recording::Module;
use profile::{ImageRef, Profile};
use program::{Excerpt, Image, Program};
use session::recorded_path;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use tracing::info_span;

/// Reads and analyses the binary at `path`.
pub fn program(path: &Path) -> anyhow::Result<Program> {
    if path == Path::new("-") {
        let hint = "write it to a file first: `cat > FILE`\na file of that name is `./-`";
        return Err(Hinted::new("a program is not read from standard input", hint).into());
    }
    let image = info_span!("load").in_scope(|| Image::load(path)).map_err(|err| of_profile(path, err))?;
    session::is_cut_off(&image).iter().for_each(output::warned);
    Ok(info_span!("analyze").in_scope(|| Program::analyze(image)))
}

/// The same, where what was named as a program is counts of one: that, and what takes them.
fn of_profile(path: &Path, err: program::LoadError) -> anyhow::Error {
    let start = start(path, 1 << 16).unwrap_or_default();
    let name = path.display();
    if profile::recording::is_one(&start) || trace::file::is_one(&start) {
        let hint = format!("name the binary; `engraft show {name}` shows what was recorded");
        return Hinted::new(format!("{name} is a recording, not a program"), hint).into();
    }
    match profile::Format::recognise(&start) {
        Some(format) => {
            let hint = format!(
                "`engraft show BINARY function NAME --profile {name}` shows it with the code\n\
                 `engraft convert {name} --binary BINARY -o X.engraft` makes a recording's format of it"
            );
            Hinted::new(format!("{name} is a profile ({}), not a program", format.name()), hint).into()
        }
        None => err.into(),
    }
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
    let text = text(path)?;
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
    let text = text(path)?;
    // An error of a library has no hint of ours.
    let hint = RefCell::new(None);
    let named =
        |name: &str| functions(program, name).inspect_err(|err| *hint.borrow_mut() = output::hint(err));
    let points = measure::plan_text::parse(&text, program, named);
    let points = points.map_err(|err| {
        let err = anyhow::Error::from(err).context(format!("cannot use {}", path.display()));
        match hint.take() {
            Some(hint) => Hinted::new(format!("{err:#}"), hint).into(),
            None => err,
        }
    })?;
    if points.plan.is_null() {
        let hint = "a line is `entry main count`, say; `engraft help instrument` has more";
        return Err(Hinted::new(format!("{} asks for nothing", path.display()), hint).into());
    }
    Ok(points)
}

/// The program that these modules of recordings are of, all of one image: what was kept of it in all of them;
/// else the file that was counted.
///
/// # Errors
/// If nothing was kept, and the file is gone, or another one by now.
pub fn kept_program(modules: &[&Module]) -> anyhow::Result<Program> {
    let Some(first) = modules.first() else { anyhow::bail!("no module is named") };
    let mut sum: Option<Excerpt> = None;
    for module in modules {
        match (module.excerpt(), &mut sum) {
            (Ok(Some(excerpt)), None) => sum = Some(excerpt),
            (Ok(Some(excerpt)), Some(sum)) => sum.add(excerpt),
            // What ran in it is in none of the others, perhaps.
            (Ok(None), _) if module.profile.blocks.is_empty() => {}
            (Ok(None) | Err(_), _) => return counted_program(&first.profile),
        }
    }
    match sum.map(Excerpt::into_program) {
        Some(Ok(program)) => Ok(program),
        Some(Err(_)) | None => counted_program(&first.profile),
    }
}

/// The program that `module` is of: the file that was counted, else what was kept of it.
///
/// # Errors
/// If nothing was kept, and the file is gone, or another one by now.
pub fn whole_program(module: &Module) -> anyhow::Result<Program> {
    counted_program(&module.profile).or_else(|err| match module.excerpt() {
        Ok(Some(excerpt)) => Ok(excerpt.into_program()?),
        Ok(None) | Err(_) => Err(err),
    })
}

/// The program that `profile`, of a recording, is of: the file that was counted, if it is still that; or one
/// with the same code, by its build-id, where `$ENGRAFT_BINARIES` or the system keeps such.
///
/// # Errors
/// If it is gone, or another one by now.
pub fn counted_program(profile: &Profile) -> anyhow::Result<Program> {
    let path = recorded_path(&profile.image.name);
    let read = program(&path);
    if let Ok(program) = &read
        && profile.image.id == Some(program.image.id)
    {
        return read;
    }
    let named = |path: PathBuf| program(&path).ok().filter(|p| profile.image.id == Some(p.image.id));
    if let Some(found) = kept_files(&profile.image, &path).filter(|path| path.is_file()).find_map(named) {
        return Ok(found);
    }
    let hint = "name the binary where it is now: `show BINARY --counts REC`, `convert REC --binary BINARY`, or the folder of such binaries in $ENGRAFT_BINARIES";
    match read {
        Ok(_) => {
            let what = format!("{} is not the file any more that was counted", path.display());
            Err(Hinted::new(what, hint).into())
        }
        Err(err) if path.exists() => Err(err),
        Err(err) => Err(Hinted::new(format!("{err:#}"), hint).into()),
    }
}

/// Where a file may be that was at `path`: by name or build-id in a folder of `$ENGRAFT_BINARIES`, by
/// build-id where debuggers look.
fn kept_files(image: &ImageRef, path: &Path) -> impl Iterator<Item = PathBuf> {
    let folders = std::env::var_os("ENGRAFT_BINARIES").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&folders).filter(|f| !f.as_os_str().is_empty()).collect();
    let hex: Option<String> =
        image.build_id.as_ref().map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
    // As gdb and perf lay them out.
    let by_id = hex.as_deref().and_then(|hex| Some((hex.get(..2)?, hex.get(2..)?)));
    let laid_out = by_id.map(|(start, rest)| format!(".build-id/{start}/{rest}"));
    let name = path.file_name().map(PathBuf::from);
    let below = move |folder: PathBuf| {
        let names = [name.clone(), hex.clone().map(PathBuf::from), laid_out.clone().map(PathBuf::from)];
        names.into_iter().flatten().map(move |name| folder.join(name))
    };
    folders.into_iter().chain([PathBuf::from("/usr/lib/debug")]).flat_map(below)
}

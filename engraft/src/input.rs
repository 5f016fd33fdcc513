//! What verbs are given: binaries, profiles, and the names of things in them.

use crate::out::{self, Hinted};
use anyhow::Context as _;
use matching::Map;
use profile::{Format, Imported, Profile, Written};
use program::{FuncId, Image, Program, Va};
use std::path::Path;
use tracing::info_span;

/// Reads and analyses the binary at `path`.
pub fn program(path: &Path) -> anyhow::Result<Program> {
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

/// Reads the profile at `path`, in whatever format it is.
///
/// # Errors
/// If it cannot be read, is of another build than `program`, or says nothing of it.
pub fn profile(path: &Path, program: Option<&Program>) -> anyhow::Result<Imported> {
    let _span = info_span!("read").entered();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.is_empty() {
        let hint = "the run that should have written it ended early, or recorded nothing";
        return Err(Hinted::new(format!("{} is empty", path.display()), hint).into());
    }
    let context = profile::Context { program };
    let read = profile::read(&bytes, &context).with_context(|| format!("cannot use {}", path.display()))?;
    if let Some(program) = program {
        fits(path, &read, program)?;
    }
    if read.format == Format::Callgrind && !profile::callgrind::has_jumps(&bytes) {
        let hint = "take it with `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes`";
        let what = "counts no jumps: where branches went is guessed from the counts of blocks";
        out::warn(&format!("{} {what}", path.display()), Some(hint));
    }
    Ok(read)
}

/// Reads the profile at `path` of `bolted`, which llvm-bolt made of `original`, as one of `original`.
///
/// # Errors
/// As [`profile`], or if `bolted` does not say what became of what.
pub fn bolted_profile(path: &Path, bolted: &Program, original: &Program) -> anyhow::Result<Imported> {
    let mut read = profile(path, Some(bolted))?;
    let (translated, lost) = profile::bat::translate(&read.profile, bolted, original)
        .map_err(|err| Hinted::new(err.to_string(), err.hint()))?;
    read.profile = translated;
    read.lost.extend(lost);
    fits(path, &read, original)?;
    Ok(read)
}

/// All profiles of the recording at `path`; `None` if it is something else.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn recording(path: &Path) -> anyhow::Result<Option<Vec<Profile>>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !profile::recording::is_one(&bytes) {
        return Ok(None);
    }
    let profiles =
        profile::recording::parse(&bytes).with_context(|| format!("cannot use {}", path.display()))?;
    Ok(Some(profiles))
}

/// The program that `profile`, of a recording, is of: the file that was counted, if it is still that.
///
/// # Errors
/// If it is gone, or another one by now.
pub fn counted_program(profile: &Profile) -> anyhow::Result<Program> {
    let path = Path::new(&profile.image.name);
    let program = program(path)?;
    if profile.image.id != Some(program.image.id) {
        let what = format!("{} is not the file any more that was counted", path.display());
        return Err(Hinted::new(what, "name the binary that was counted").into());
    }
    Ok(program)
}

/// Refuses a profile that says nothing of `program`, and warns of one that says little.
fn fits(path: &Path, read: &Imported, program: &Program) -> anyhow::Result<()> {
    let p = &read.profile;
    let lost: u64 = read.lost.iter().fold(0, |sum, l| sum.saturating_add(l.count));
    let tables = [&mut p.entries.values() as &mut dyn Iterator<Item = &u64>, &mut p.blocks.values()];
    let known: u64 = tables.into_iter().flatten().fold(0, |sum, n| sum.saturating_add(*n));
    let first = read.lost.iter().max_by_key(|l| l.count);
    let why = first.map_or_else(String::new, |l| format!(" ({}: {})", l.what, l.why));
    if known == 0 && p.edges.values().all(|n| *n == 0) {
        return Err(Hinted::new(
            format!("{} has no counts of {}{why}", path.display(), program.image.name),
            "give it the binary that was profiled\n`engraft convert` shows what a profile holds",
        )
        .into());
    }
    if lost > known / 10 {
        let warning = format!("much of {} does not fit {}{why}", path.display(), program.image.name);
        out::warn(&warning, Some("was it taken on another build?"));
    }
    Ok(())
}

/// Writes `profile` to `path`, in the format that `to` names or the extension says.
///
/// # Errors
/// If neither names one, it cannot hold the profile, or the file cannot be written.
pub fn write_profile(
    path: &Path,
    to: Option<Format>,
    profile: &Profile,
    program: Option<&Program>,
) -> anyhow::Result<Written> {
    let format = output_format(path, to)?;
    let _span = info_span!("write").entered();
    let written = profile::write(profile, program, format)?;
    out::data(Some(path), |w| w.write_all(&written.bytes))?;
    if let Some(program) = program.filter(|p| format == Format::Fdata && !has_symbols(p)) {
        let warning = format!(
            "{} has no symbols, and llvm-bolt refuses records of functions without: it will use nothing of {}",
            program.image.name,
            path.display()
        );
        let hint = "write a .engraft file in place of it, and then\n\
                    `engraft convert IT.engraft --binary UNSTRIPPED -o OUT.fdata` with the same build before it was stripped";
        out::warn(&warning, Some(hint));
    }
    Ok(written)
}

/// Whether llvm-bolt finds functions in it by name: it reads `.symtab`, not what the dynamic linker needs.
fn has_symbols(program: &Program) -> bool {
    program.image.symbols.iter().any(|s| !s.dynamic && s.kind == program::image::SymbolKind::Function)
}

/// The format to write `path` in.
///
/// # Errors
/// If `to` is none and the extension says nothing; so ask before the work is done.
pub fn output_format(path: &Path, to: Option<Format>) -> anyhow::Result<Format> {
    to.or_else(|| Format::from_extension(path)).ok_or_else(|| {
        let known: Vec<_> = Format::all().filter(|f| f.is_written()).map(Format::name).collect();
        Hinted::new(
            format!("{} does not say in which format to write", path.display()),
            format!("end its name in one of these, or say --to: {}", known.join(", ")),
        )
        .into()
    })
}

/// Reads a format's name from the command line.
pub fn format_named(name: &str) -> Result<Format, String> {
    Format::named(name).filter(|f| f.is_written()).ok_or_else(|| {
        let known: Vec<_> = Format::all().filter(|f| f.is_written()).map(Format::name).collect();
        format!("there are {}", known.join(", "))
    })
}

/// The function that `what` names: by symbol (of a part such as `main.cold` too), by the name in the source if only one
/// function has it, `fn3`, or any address in it.
///
/// # Errors
/// If there is none; the hint has the names that look most like it.
pub fn function(program: &Program, what: &str) -> anyhow::Result<FuncId> {
    let named = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| **n == *what));
    if let Some(id) = named.or_else(|| program.func_ids().find(|f| f.to_string() == what)) {
        return Ok(id);
    }
    if let Some(id) =
        program.image.symbols.iter().filter(|s| *s.name == *what).find_map(|s| program.function_at(s.at))
    {
        return Ok(id);
    }
    let in_source: Vec<FuncId> =
        program.func_ids().filter(|&f| source_names(program, f).any(|name| is_called(&name, what))).collect();
    match in_source.as_slice() {
        [] => {}
        [only] => return Ok(*only),
        several => {
            let listed = several.iter().take(8).map(|&f| {
                let f = program.function(f);
                format!("{} is at {}", f.name(), f.entry)
            });
            return Err(Hinted::new(
                format!("{} functions of {} are called {what}", several.len(), program.image.name),
                listed.collect::<Vec<_>>().join("\n"),
            )
            .into());
        }
    }
    if let Some(at) = address(what) {
        let holds = |f: &FuncId| program.function(*f).ranges.iter().any(|r| r.contains(&at));
        return program.function_at(at).or_else(|| program.func_ids().find(holds)).ok_or_else(|| {
            let before = program.functions.iter().rev().find(|f| f.entry <= at);
            let hint = match before {
                Some(f) => format!("the last one before it is {} at {}", f.name(), f.entry),
                None => "`engraft show BINARY functions` lists them".to_owned(),
            };
            Hinted::new(format!("no function of {} holds {at}", program.image.name), hint).into()
        });
    }
    let near = near_names(program, what);
    let hint = match near.as_slice() {
        [] => "`engraft show BINARY functions` lists them\nan address such as 0x401136 does too".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Err(Hinted::new(format!("no function of {} is called {what}", program.image.name), hint).into())
}

/// What the source calls it, where its symbols are decorated.
pub fn source_names(program: &Program, id: FuncId) -> impl Iterator<Item = String> {
    program.function(id).names.iter().filter_map(|name| matching::names::in_source(name))
}

/// Whether `what` is this name of the source: all of it, or all but the parameters.
fn is_called(name: &str, what: &str) -> bool {
    let squeeze = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let bare = name.rsplit_once('(').map_or(name, |(before, _)| before);
    let what = squeeze(what);
    [name, bare].into_iter().any(|n| squeeze(n) == what)
}

/// `0x401136`, or `fn_0x401136` as functions without a name are called.
fn address(text: &str) -> Option<Va> {
    let hex = text.strip_prefix("fn_").unwrap_or(text).strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok().map(Va)
}

/// At most three names that look like `wanted`, the most alike first.
fn near_names<'a>(program: &'a Program, wanted: &str) -> Vec<&'a str> {
    // A name that holds the wanted one is near whatever its length.
    let far = |name: &str| match name.contains(wanted) {
        true => Some(1),
        false => matching::names::distance(wanted, name, 1 + wanted.len() / 3),
    };
    let names = program.functions.iter().flat_map(|f| f.names.iter());
    let mut near: Vec<(usize, &str)> = names.filter_map(|name| Some((far(name)?, &**name))).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(address("0x401136"), Some(Va(0x40_1136)));
        assert_eq!(address("fn_0x10"), Some(Va(0x10)));
        assert_eq!(address("401136"), None);
        assert_eq!(address("0xmain"), None);
    }
}

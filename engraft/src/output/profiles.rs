//! Profiles that are written: in which format, and what it cannot hold.

use super::files::data;
use super::hints::Hinted;
use super::talk::warn;
use profile::recording::{Module, Recording};
use profile::{Format, Profile, Written};
use program::Program;
use std::path::Path;
use tracing::info_span;

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
    let completed = match program {
        // In our own formats, what was not counted stays unknown.
        Some(program) if !matches!(format, Format::Engraft | Format::Json | Format::Csv) => {
            let mut completed = profile.clone();
            profile::flow::complete(program, &mut completed);
            Some(completed)
        }
        _ => None,
    };
    let mut written = profile::write(completed.as_ref().unwrap_or(profile), program, format)?;
    if let (Some(program), Format::Engraft) = (program, format) {
        let module = Module::new(profile.clone(), Some(&measure::excerpt(program, profile)));
        written.bytes = Recording { modules: vec![module], ..Recording::default() }.write();
    }
    data(Some(path), |w| w.write_all(&written.bytes))?;
    if let Some(program) = program.filter(|p| format == Format::Fdata && !has_symbols(p)) {
        let warning = format!(
            "{} has no symbols, and llvm-bolt refuses records of functions without: it will use nothing of {}",
            program.image.name,
            path.display()
        );
        let hint = "write a .engraft file in place of it, and then\n\
                    `engraft convert IT.engraft --binary UNSTRIPPED -o OUT.fdata` with the same build before it was stripped";
        warn(&warning, Some(hint));
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
    to.or_else(|| Format::from_extension(path)).ok_or_else(|| unnamed(path, "").into())
}

/// The error for an output whose name says no format; `others` there are beside those of profiles.
pub fn unnamed(path: &Path, others: &str) -> Hinted {
    let known = written_formats().join(", ");
    let hint = format!("end its name in one of these, or say --to: {known}{others}");
    Hinted::new(format!("{} does not say in which format to write", path.display()), hint)
}

/// Reads a format's name from the command line.
pub fn format_named(name: &str) -> Result<Format, String> {
    Format::named(name)
        .filter(|f| f.is_written())
        .ok_or_else(|| format!("there are {}", written_formats().join(", ")))
}

/// The names of the formats that are written.
pub fn written_formats() -> Vec<&'static str> {
    Format::all().filter(|f| f.is_written()).map(Format::name).collect()
}

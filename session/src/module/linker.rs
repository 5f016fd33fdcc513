//! The dynamic linker, and libraries that are not rewritten but for asking before their program becomes
//! another one.

use super::ModuleError;
use crate::store::{Kind, Store};
use probe::arch::{self, ExecSite, OpenSite};
use probe::file_key;
use program::{Image, Program, Va};
use std::path::{Path, PathBuf};

/// What is changed in ld.so.
#[derive(Default)]
pub(crate) struct LinkerSites {
    /// Where it opens files.
    pub(crate) opens: Vec<OpenSite>,
    /// Where it becomes another program (musl's is libc, too).
    pub(crate) execs: Vec<ExecSite>,
}

impl LinkerSites {
    /// Those of `linker`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn of(store: &Store, linker: &Path) -> Result<LinkerSites, ModuleError> {
        let image = Image::load(linker)?;
        let name = store.name(Kind::LinkerSites, file_key(&image), &());
        let site = |(at, bytes): (u64, Vec<u8>)| OpenSite { at: Va(at), bytes };
        if let Some((opens, execs)) = store.read::<(Vec<(u64, Vec<u8>)>, Vec<ExecSite>)>(&name) {
            return Ok(LinkerSites { opens: opens.into_iter().map(site).collect(), execs });
        }
        let program = Program::analyze_code(image);
        let (opens, execs) = (arch::open_sites(&program), arch::exec_sites(&program));
        store.write(&name, &(opens.iter().map(|s| (s.at.0, &s.bytes)).collect::<Vec<_>>(), &execs))?;
        Ok(LinkerSites { opens, execs })
    }
}

/// A library that is not counted, but asks before it becomes another program; `None` if it does not do that.
///
/// # Errors
/// If it cannot be read or written.
pub(crate) fn asking(store: &Store, file: &Path) -> Result<Option<PathBuf>, ModuleError> {
    let image = Image::load(file)?;
    if !arch::may_exec(image.file_bytes()) {
        return Ok(None);
    }
    let name = store.name(Kind::Asking, file_key(&image), &());
    if let Some(path) = store.find(&name) {
        return Ok(Some(path));
    }
    let program = Program::analyze_code(image);
    let sites = arch::exec_sites(&program);
    Ok(Some(store.file(&name, &probe::asking(&program.image, &sites))?))
}

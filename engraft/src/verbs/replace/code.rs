//! New code, from files that somebody names.

use super::{Args, refused};
use crate::output::Hinted;
use anyhow::Context as _;
use probe::graft::Graft;
use std::path::Path;
use std::process::Command;

/// No larger file is read.
const MOST: u64 = 256 << 20;

/// What a file that somebody named holds.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let about = std::fs::metadata(path).with_context(cannot)?;
    anyhow::ensure!(about.is_file(), "{} is no regular file", path.display());
    anyhow::ensure!(about.len() > 0, "{} is empty", path.display());
    anyhow::ensure!(about.len() <= MOST, "{} is larger than {} MB", path.display(), MOST >> 20);
    std::fs::read(path).with_context(cannot)
}

/// The path as it means the same elsewhere and later.
fn whole(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// What is to stand in for `function`, and which function of that.
pub fn graft(args: &Args, function: &str) -> anyhow::Result<(Graft, Option<String>)> {
    let own = || function.rsplit_once('!').map_or(function, |(_, name)| name).to_owned();
    if let Some(path) = &args.bytes {
        return Ok((Graft::of_code(&whole(path), &read(path)?), None));
    }
    let library =
        |name: &Path, bytes: &[u8]| Graft::of_library(&whole(name), bytes).map_err(|err| refused(err.into()));
    if let Some((path, symbol)) = &args.object {
        // Linking is not ours.
        read(path)?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let linked = folder.path().join("linked.so");
        let mut ld = Command::new("ld");
        ld.args(["-shared", "--eh-frame-hdr", "-z", "noexecstack", "-z", "separate-code", "-o"]);
        let done = ld.arg(&linked).arg(path).output();
        let done = done.map_err(|err| {
            let hint = "install binutils, or link it yourself, and give it by --with";
            Hinted::new(format!("cannot run ld, which links {}: {err}", path.display()), hint)
        })?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(Hinted::new(
                format!("ld cannot link {}: {said}", path.display()),
                "compile it with -fPIC",
            )
            .into());
        }
        return Ok((library(path, &read(&linked)?)?, Some(symbol.clone().unwrap_or_else(own))));
    }
    match &args.with {
        Some((path, symbol)) => Ok((library(path, &read(path)?)?, Some(symbol.clone().unwrap_or_else(own)))),
        None => {
            let hint = "--with LIB.so:SYMBOL, --object FILE.o, --bytes FILE; --undo takes it back";
            Err(Hinted::new(format!("what is to stand in for {function}?"), hint).into())
        }
    }
}

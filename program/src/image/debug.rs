//! Files of debug information that belong to a stripped file: found by build-id or `.gnu_debuglink`, checked,
//! their symbols taken.
//!
//! Source: GDB manual, "Debugging Information in Separate Files".
//!
//! Not here: `.gnu_debugdata` (symbols compressed with xz inside the file), which is only noted; source lines
//! (`lines`).
#![warn(clippy::indexing_slicing)]

use super::headers::{self, Headers};
use super::{Image, SymbolKind};
use std::path::{Path, PathBuf};

/// Looks for the debug file of `image`, which was read from `path`, and takes what it has.
pub fn attach(image: &mut Image, headers: &Headers, path: &Path) {
    let own_dwarf = headers.section(".debug_info").is_some();
    let own_symbols = image.symbols.iter().any(|s| !s.dynamic && s.kind != SymbolKind::File);
    if own_dwarf && own_symbols {
        return;
    }
    let link = link(headers, &image.bytes);
    for candidate in candidates(path, image.build_id.as_deref(), link.as_ref().map(|l| l.0.as_str())) {
        if !candidate.is_file() || same_file(&candidate, path) {
            continue;
        }
        let Ok(bytes) = std::fs::read(&candidate) else { continue };
        let shown = candidate.display().to_string();
        let Ok(of_debug) = headers::headers(&bytes, &shown, true) else {
            image.notes.push(format!("{shown} is no debug file: not used"));
            continue;
        };
        let same = match (&image.build_id, headers::build_id(&of_debug, &bytes)) {
            (Some(ours), Some(theirs)) => *ours == theirs,
            _ => link.as_ref().is_some_and(|l| l.1 == crc32fast::hash(&bytes)),
        };
        if !same {
            image.notes.push(format!("{shown} belongs to another build: not used"));
            continue;
        }
        if !own_symbols {
            let mut names_left = bytes.len().saturating_mul(8).saturating_add(1 << 20);
            let symbols = headers::symtab(&of_debug, &bytes, &mut names_left);
            image.symbols.splice(0..0, symbols);
        }
        image.debug_file = Some(candidate);
        return;
    }
    if headers.section(".gnu_debugdata").is_some() && !own_symbols {
        image.notes.push("symbols in .gnu_debugdata are compressed with xz: not read".to_owned());
    }
}

/// Name and checksum of the debug file, as `.gnu_debuglink` gives them.
fn link(headers: &Headers, bytes: &[u8]) -> Option<(String, u32)> {
    let data = headers::section_bytes(bytes, headers.section(".gnu_debuglink")?)?;
    let name = headers::string_at(data, 0)?;
    let crc = data.get(data.len().checked_sub(4)?..)?.first_chunk().map(|b| u32::from_le_bytes(*b))?;
    // A path in there would lead out of the folders that debug files are in.
    (!name.is_empty() && !name.contains('/') && name.len() <= 255).then(|| (name.into_owned(), crc))
}

fn candidates(path: &Path, build_id: Option<&[u8]>, link: Option<&str>) -> Vec<PathBuf> {
    let store = Path::new("/usr/lib/debug");
    let mut found = Vec::new();
    if let Some((first, rest)) = build_id.and_then(<[u8]>::split_first).filter(|(_, rest)| rest.len() <= 64) {
        let hex: String = rest.iter().map(|b| format!("{b:02x}")).collect();
        found.push(store.join(format!(".build-id/{first:02x}/{hex}.debug")));
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let (Some(link), Some(folder)) = (link, path.parent()) {
        found.push(folder.join(link));
        found.push(folder.join(".debug").join(link));
        found.push(store.join(folder.strip_prefix("/").unwrap_or(folder)).join(link));
    }
    found
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

//! `.gopclntab`: Go's own table of functions, which stripping leaves in place.
//!
//! Source: Go, src/debug/gosym/pclntab.go and src/runtime/symtab.go (versions 1.16, 1.18, 1.20).
#![warn(clippy::indexing_slicing)]

use super::Image;
use crate::addr::Va;

/// How the table is laid out: by its magic number, that of Go 1.16 first.
const MAGICS: [u32; 3] = [0xffff_fffa, 0xffff_fff0, 0xffff_fff1];

/// Starts and names of functions, by address; empty if the file has no such table.
pub fn functions(image: &Image) -> Vec<(Va, Box<str>)> {
    let section = |name: &str| image.sections.iter().find(|s| s.name == name).map(|s| s.range.start);
    let named = section(".gopclntab").or_else(|| section(".data.rel.ro.gopclntab"));
    match named {
        Some(at) => read(image, at).unwrap_or_default(),
        None => image.segments.iter().find_map(|s| by_magic(image, s.range.start)).unwrap_or_default(),
    }
}

/// A table without a section: its header is aligned, and what follows the magic number is always the same.
fn by_magic(image: &Image, start: Va) -> Option<Vec<(Va, Box<str>)>> {
    let bytes = image.bytes_from(start)?;
    for magic in MAGICS {
        let [a, b, c, d] = magic.to_le_bytes();
        let header = [a, b, c, d, 0, 0, 1, 8];
        let mut tried = 0;
        for i in memchr::memmem::find_iter(bytes, &header).filter(|i| i % 8 == 0) {
            let found = read(image, start.plus(i as u64)).filter(|f| !f.is_empty());
            tried += 1;
            // A hostile file may hold any number of headers.
            if found.is_some() || tried == 16 {
                return found;
            }
        }
    }
    None
}

fn read(image: &Image, at: Va) -> Option<Vec<(Va, Box<str>)>> {
    let table = image.bytes_from(at)?;
    let u32_at = |i: usize| Some(u32::from_le_bytes(*table.get(i..)?.first_chunk()?));
    let word = |i: usize| Some(u64::from_le_bytes(*table.get(i..)?.first_chunk()?));
    let offset = |i: usize| usize::try_from(word(i)?).ok();
    let relative = MAGICS.iter().position(|&m| u32_at(0) == Some(m))? > 0;
    let n = offset(8)?;
    // Words 3 and on: the start of the text if entries count from there, then names, units, files, pc tables,
    // functions.
    let (text, first) = if relative { (image.address_at(at.plus(24))?, 32) } else { (Va(0), 24) };
    let text = match text {
        Va(0) if relative => image.sections.iter().find(|s| s.name == ".text")?.range.start,
        text => text,
    };
    let names = table.get(offset(first)?..)?;
    let functions = table.get(offset(first + 32)?..)?;
    let width = if relative { 4 } else { 8 };
    let n = n.min(functions.len() / (2 * width));
    let number = |i: usize| -> Option<u64> {
        let bytes = functions.get(i..)?;
        Some(if relative {
            u64::from(u32::from_le_bytes(*bytes.first_chunk()?))
        } else {
            u64::from_le_bytes(*bytes.first_chunk()?)
        })
    };
    let mut found: Vec<(Va, Box<str>)> = Vec::new();
    let mut names_left = image.file_bytes().len().saturating_mul(8);
    for i in 0..n {
        let row = i * 2 * width;
        let (Some(entry), Some(func)) = (number(row), number(row + width)) else { break };
        let start = text.plus(entry);
        // After the entry, in the width it has in the row, comes the offset of the name.
        let name = usize::try_from(func).ok().and_then(|f| {
            let bytes = functions.get(f.checked_add(width)?..)?.first_chunk()?;
            let rest = names.get(usize::try_from(u32::from_le_bytes(*bytes)).ok()?..)?;
            rest.get(..memchr::memchr(0, rest)?)
        });
        let Some(name) = name.filter(|n| !n.is_empty() && n.len() <= names_left) else { continue };
        if image.is_code(start) {
            names_left -= name.len();
            found.push((start, String::from_utf8_lossy(name).into()));
        }
    }
    found.sort();
    found.dedup_by_key(|f| f.0);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Words of a table as the Go linker lays it out, in gcc's assembler. Two functions, with names.
    fn source(magic: u32) -> String {
        let relative = magic != 0xffff_fffa;
        let (text, entry) = match relative {
            true => (".quad main\n", ".long"),
            false => ("", ".quad"),
        };
        let from = if relative { "- main" } else { "" };
        format!(
            ".globl main\n.text\nmain: ret\nhelper: ret\n.section SECTION,\"a\"\n.balign 8\n\
             t: .long {magic}\n.byte 0, 0, 1, 8\n.quad 2\n.quad 0\n{text}\
             .quad names - t\n.quad 0\n.quad 0\n.quad 0\n.quad rows - t\n\
             names: .byte 0\n n1: .asciz \"main.main\"\n n2: .asciz \"main.helper\"\n.balign 8\n\
             rows: {entry} main {from}\n{entry} f1 - rows\n{entry} helper {from}\n{entry} f2 - rows\n{entry} 99\n\
             f1: {entry} main {from}\n.long n1 - names\n f2: {entry} helper {from}\n.long n2 - names\n"
        )
    }

    #[track_caller]
    fn check(magic: u32, section: &str) {
        let dir = tempfile::tempdir().expect("a folder for the test's files");
        let (s, out) = (dir.path().join("a.s"), dir.path().join("a"));
        std::fs::write(&s, source(magic).replace("SECTION", section)).expect("the folder can be written");
        let run = Command::new("gcc").arg("-no-pie").arg(&s).arg("-o").arg(&out).output();
        let run = run.expect("gcc is installed");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let image = Image::load(&out).expect("gcc makes good files");
        let at = |name: &str| image.symbols.iter().find(|s| *s.name == *name).expect("it is a symbol").at;
        let want: Vec<(Va, Box<str>)> =
            vec![(at("main"), "main.main".into()), (at("helper"), "main.helper".into())];
        assert_eq!(image.go_functions, want, "{magic:#x} in {section}");
    }

    #[test]
    fn functions_are_named_by_tables_of_all_layouts_with_and_without_their_section() {
        for magic in MAGICS {
            check(magic, ".gopclntab");
            check(magic, ".rodata");
        }
    }

    #[test]
    fn a_program_that_is_not_gos_has_none() {
        let image = Image::load("/usr/bin/true".as_ref()).expect("it is a program");
        assert!(image.go_functions.is_empty());
    }
}

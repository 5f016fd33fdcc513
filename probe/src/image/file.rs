//! A rewritten module as a file: the old one with its patches, the new segments behind it.
#![warn(clippy::indexing_slicing)]

use crate::arch::emit;
use crate::arch::shared::PAGE;
use crate::error::{NotInFile, RewriteError};
use crate::image::NewSegments;
use crate::image::program_headers::Tables;
use crate::image::symbols::{self, Moves, Part, Parts};
use crate::patch::{Memory, Patch, PatchError};
use object::LittleEndian as LE;
use object::U16;
use object::elf::FileHeader64;
use object::read::elf::FileHeader as _;
use program::{Image, Va};
use std::ops::Range;

/// What becomes of the old code of moved functions in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Old {
    /// It stays.
    Kept,
    /// Traps, but for springboards: the proof that nothing reaches it.
    Poisoned,
}

/// The file of `image` with `new` segments and `patches`; traps stand in the ranges that are `poisoned`, and
/// the program starts at `entry`, if it is to start elsewhere.
///
/// # Errors
/// If its program headers cannot be extended, or what is to change is not in the file, or not as it should
/// be.
pub fn write(
    image: &Image,
    new: &NewSegments,
    patches: &[Patch],
    poisoned: &[Range<Va>],
    moves: Moves<'_>,
    entry: Option<Va>,
) -> Result<Vec<u8>, RewriteError> {
    let bad = |why: &str| RewriteError::headers(image, why);
    let mut copy = Copy { image, bytes: image.file_bytes().to_vec() };
    let not_written = |why| RewriteError::Patch { name: image.name.clone(), why };
    patches.iter().try_for_each(|p| p.check(&copy)).map_err(not_written)?;
    for range in poisoned {
        let len = usize::try_from(range.end.since(range.start)).unwrap_or(usize::MAX);
        let code = copy.place(range.start, len).map_err(PatchError::Memory).map_err(not_written)?;
        code.fill(emit::TRAP);
    }
    // Over traps, too, where they were as they should be.
    let written = patches.iter().try_for_each(|p| copy.write(p.at, &p.new));
    written.map_err(PatchError::Memory).map_err(not_written)?;
    let mut out = copy.bytes;
    let text_off = append(&mut out, new.text.at, &new.text.bytes);
    let tables_off = (text_off + new.text.bytes.len() as u64).next_multiple_of(PAGE);
    let tables = Tables::new(image, new, text_off, tables_off)?;
    append(&mut out, new.tables, &tables.bytes);
    let sections = symbols::sections(image.file_bytes(), &mut out, &parts(new, text_off, tables_off), moves);

    let header = FileHeader64::<LE>::parse(image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
    let mut header = *header;
    header.e_phoff.set(LE, tables_off);
    header.e_phnum = U16::new(LE, tables.n_headers);
    if let Some((at, n)) = sections {
        header.e_shoff.set(LE, at);
        header.e_shnum.set(LE, n);
    } else if image.sections_cut {
        // What stands where it would have been is ours.
        header.e_shoff.set(LE, 0);
        header.e_shnum.set(LE, 0);
        header.e_shstrndx.set(LE, object::elf::SymbolSection(0));
    }
    if let Some(entry) = entry {
        header.e_entry.set(LE, entry.0);
    }
    let raw = object::pod::bytes_of(&header);
    out.get_mut(..raw.len()).ok_or_else(|| bad("no header"))?.copy_from_slice(raw);
    Ok(out)
}

/// A copy of the file of `image`.
struct Copy<'a> {
    image: &'a Image,
    bytes: Vec<u8>,
}

impl Copy<'_> {
    /// Where the `len` bytes at `at` are.
    fn range(&self, at: Va, len: usize) -> Option<Range<usize>> {
        let segment = self.image.segment_at(at)?;
        let into = at.since(segment.range.start);
        let from = usize::try_from(segment.offset.0 + into).ok().filter(|_| into < segment.file_len)?;
        Some(from..from.checked_add(len)?)
    }

    fn place(&mut self, at: Va, len: usize) -> Result<&mut [u8], NotInFile> {
        let range = self.range(at, len).ok_or(NotInFile { at })?;
        self.bytes.get_mut(range).ok_or(NotInFile { at })
    }
}

impl Memory for Copy<'_> {
    type Error = NotInFile;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), NotInFile> {
        let range = self.range(at, bytes.len()).ok_or(NotInFile { at })?;
        bytes.copy_from_slice(self.bytes.get(range).ok_or(NotInFile { at })?);
        Ok(())
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), NotInFile> {
        self.place(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Appends the segment at `at`; returns its offset, which is as far into a page as `at` is.
fn append(out: &mut Vec<u8>, at: Va, bytes: &[u8]) -> u64 {
    let offset = (out.len() as u64).next_multiple_of(PAGE) + at.0 % PAGE;
    out.resize(usize::try_from(offset).expect("files fit into memory"), 0);
    out.extend(bytes);
    offset
}

/// What gets sections.
fn parts(new: &NewSegments, text_off: u64, tables_off: u64) -> Parts {
    let part = |into: usize, len: usize| Part {
        at: new.unwind_at().plus(into as u64),
        offset: tables_off + PAGE + into as u64,
        len: len as u64,
    };
    Parts {
        text: Part { at: new.text.at, offset: text_off, len: new.text.bytes.len() as u64 },
        search: part(0, new.unwind.header_len),
        rows: part(new.unwind.header_len, new.unwind.rows_len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::shared::ARENA_MAGIC;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{binutils, compiled, disassembly, function, output};
    use program::Program;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output};

    const TEXT: &str = "
        #include <stdio.h>
        #include <stdlib.h>
        static int by(const void *a, const void *b) { return *(int *)a - *(int *)b; }
        int weigh(int n, int way) { switch (way) { case 0: return n * 3; case 1: return n ^ 77; case 2: return n / 7;
            case 3: return n << 5; case 4: return n % 11; case 5: return -n; } return n; }
        int main(int n, char **v) { int a[100];
            for (int i = 0; i < 100; i++) a[i] = weigh(i * 7919 % 1000, i % 7);
            qsort(a, 100, sizeof *a, by);
            for (int i = 0; i < 100; i++) printf(\"%d \", a[i]);
            return weigh(n, 3) + (v[1] ? atoi(v[1]) : 0); }";

    /// What the program in `file` does, in a folder of its own.
    fn run(file: &[u8], folder: &Path) -> Output {
        let path = folder.join("program");
        std::fs::write(&path, file).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        output(Command::new(&path).arg("5").env("ENGRAFT_OUT", folder.join("run")))
    }

    fn each_kind(mut check: impl FnMut(&Program)) {
        for flags in ["-O2", "-O1 -no-pie", "-O2 -static", "-O1 -static-pie"] {
            check(&compiled(TEXT, "c", &format!("{flags} -fno-inline")));
        }
    }

    #[test]
    fn a_program_whose_old_code_is_gone_does_the_same() {
        each_kind(|program| {
            let folder = tempfile::tempdir().expect("a folder");
            let before = run(program.image.file_bytes(), folder.path());
            assert_eq!(before.status.code(), Some(69));
            for plan in [Plan::NULL, Plan::BLOCKS] {
                let module = Module::build(program, &plan, Room::Behind).expect("it can be moved");
                let after = run(&module.to_file(Old::Poisoned).expect("it can be written"), folder.path());
                assert_eq!((after.status.code(), after.stdout), (Some(69), before.stdout.clone()));
            }
        });
    }

    #[test]
    fn a_program_with_notes_makes_a_recording_that_holds_them() {
        each_kind(|program| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut module = Module::build(program, &Plan::BLOCKS, Room::Behind).expect("it can be moved");
            module.set_notes("unnamed", b"what the counters mean");
            let file = module.to_file(Old::Kept).expect("it can be written");
            assert_eq!(run(&file, folder.path()).status.code(), Some(69));
            let recording = std::fs::read(folder.path().join("run")).expect("it was made");
            assert!(recording.starts_with(&ARENA_MAGIC.to_le_bytes()));
            assert!(recording.windows(22).any(|bytes| bytes == b"what the counters mean"));
            // The loop of `main` ran a hundred times.
            let words =
                recording.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().expect("eight")));
            assert!(words.filter(|n| *n == 100).count() >= 2);
        });
    }

    #[test]
    fn old_code_is_traps_but_for_springboards() {
        each_kind(|program| {
            let module = Module::build(program, &Plan::NULL, Room::Behind).expect("it can be moved");
            let file = module.to_file(Old::Poisoned).expect("it can be written");
            let code = disassembly(&file);
            let of = |name: &str| {
                let func = function(program, name);
                let blocks = program.function(func).block_ids().map(|id| program.block(id).range());
                blocks.collect::<Vec<Range<Va>>>()
            };
            let new = module.to_segments().expect("it can be mapped").text_at;
            for range in ["weigh", "main"].into_iter().flat_map(of) {
                let inside = code.iter().filter(|(at, _)| range.contains(at));
                for (at, insn) in inside {
                    // What stands behind a springboard may be cut.
                    let leads =
                        insn.split_whitespace().nth(1).and_then(|to| u64::from_str_radix(to, 16).ok());
                    let is_board = insn.starts_with("jmp ") && leads.is_some_and(|to| to >= new);
                    assert!(insn == "int3" || is_board, "{at}: {insn}");
                }
            }
            let entry = program.function(function(program, "weigh")).entry;
            let there = code.iter().find(|(at, _)| *at == entry).expect("it is in the file");
            assert!(there.1.starts_with("jmp "), "{there:?}");
        });
    }

    #[test]
    fn others_read_its_headers_sections_and_symbols() {
        each_kind(|program| {
            let module = Module::build(program, &Plan::BLOCKS, Room::Behind).expect("it can be moved");
            let file = module.to_file(Old::Kept).expect("it can be written");
            let headers = binutils("readelf", &["-hlSW"], &file);
            let entry = format!(
                "Entry point address:               {:#x}",
                program.image.entry.expect("it has one").0
            );
            assert!(headers.contains(&entry), "{headers}");
            let text = headers.lines().find(|line| line.contains(" .text.moved ")).expect("it has a section");
            let text_at = module.to_segments().expect("it can be mapped").text_at;
            assert!(text.contains(&format!(" {text_at:016x} ")), "{text}");
            // The moved copy has the name, too.
            let at =
                module.code_map.new_of(program.function(function(program, "weigh")).entry).expect("moved");
            let symbols = binutils("readelf", &["-sW"], &file);
            let of_it = symbols.lines().filter(|line| line.ends_with(" weigh"));
            let places: Vec<u64> = of_it
                .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
                .collect();
            let is_near = |place: &u64| *place <= at.0 && at.0 - place < 64;
            assert!(places.iter().any(is_near) && places.len() == 2, "{places:x?} {at}");
        });
    }

    #[test]
    fn what_cannot_be_changed_is_said() {
        let program = compiled(TEXT, "c", "-O1");
        let start = program.image.entry.expect("it has one");
        let why = |patch: Patch| {
            let mut module = Module::build(&program, &Plan::NULL, Room::Behind).expect("it can be moved");
            module.patches.push(patch);
            let err = module.to_file(Old::Kept).expect_err("it is refused");
            assert_eq!(err.to_string(), format!("the file {} cannot be written anew", program.image.name));
            let causes = std::iter::successors(std::error::Error::source(&err), |err| err.source());
            causes.map(ToString::to_string).collect::<Vec<_>>()
        };
        let other = Patch { at: start, old: [0xcc; 4][..].into(), new: [0x90; 4][..].into() };
        assert_eq!(why(other.clone()), [format!("{start} does not hold what it should")]);
        let nowhere = Patch { at: Va(0x7000_0000), ..other };
        assert_eq!(why(nowhere), ["it cannot be read or written", "nothing of the file is at 0x70000000"]);
    }

    #[test]
    fn a_segment_starts_as_far_into_a_page_of_the_file_as_of_memory() {
        let mut out = vec![1; 5000];
        assert_eq!(append(&mut out, Va(0x40_1230), &[7; 10]), 0x2230);
        assert_eq!((out.len(), out.get(0x222f), out.get(0x2230)), (0x223a, Some(&0), Some(&7)));
        assert_eq!(append(&mut vec![1; 8192], Va(0x40_0000), &[7]), 8192);
    }
}

//! The read-only segment of tables: program headers that name the new segments, everything else behind them.
//!
//! Source: System V ABI, chapter 5 (program headers).
#![warn(clippy::indexing_slicing)]

use crate::arch::shared::PAGE;
use crate::error::RewriteError;
use crate::image::NewSegments;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{U32, U64};
use program::{Image, Va};

type Header = ProgramHeader64<LE>;

/// The segment: program headers first, the search table a page further on.
pub struct Tables {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many program headers there are.
    pub n_headers: u16,
}

impl Tables {
    /// Those of `image` with `new`, whose text is at offset `text_off` of the file, and these tables at
    /// `tables_off`.
    ///
    /// # Errors
    /// If there are too many program headers, or they cannot be read again.
    pub fn new(
        image: &Image,
        new: &NewSegments,
        text_off: u64,
        tables_off: u64,
    ) -> Result<Tables, RewriteError> {
        let bad = |why: &str| RewriteError::headers(image, why);
        let header = FileHeader64::<LE>::parse(image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
        let old = header.program_headers(LE, image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
        let behind = new.tables_behind_headers();
        let loads = loads(new, text_off, tables_off, PAGE + behind.len() as u64);
        let is_below = new.text.at.since(image.segments.first().map_or(new.text.at, |s| s.range.start));
        let mut all = listed(old, loads, is_below.cast_signed() < 0);
        let table = new.unwind.header_len as u64;
        for h in &mut all {
            match h.p_type(LE) {
                elf::PT_PHDR => put(h, new.tables, tables_off),
                elf::PT_GNU_EH_FRAME => {
                    put(h, new.unwind_at(), tables_off + PAGE);
                    set_len(h, table);
                }
                _ => {}
            }
        }
        // Static programs may have unwind tables without a search table: now they have one.
        let has_table = old.iter().any(|h| h.p_type(LE) == elf::PT_GNU_EH_FRAME);
        if !image.unwind_tables().is_empty() && !has_table {
            let mut h = load(elf::PF_R, new.unwind_at(), tables_off + PAGE, table, table);
            h.p_type.set(LE, elf::PT_GNU_EH_FRAME);
            h.p_align.set(LE, 4);
            all.push(h);
        }
        let len = (all.len() * size_of::<Header>()) as u64;
        all.iter_mut().filter(|h| h.p_type(LE) == elf::PT_PHDR).for_each(|h| set_len(h, len));
        let mut bytes = object::pod::bytes_of_slice(&all).to_vec();
        if bytes.len() as u64 > PAGE {
            return Err(bad("there are too many of them"));
        }
        bytes.resize(usize::try_from(PAGE).expect("small"), 0);
        bytes.extend(behind);
        let n_headers = u16::try_from(all.len()).expect("a page holds no more");
        Ok(Tables { bytes, n_headers })
    }
}

/// The headers of the new segments, by address; the one of tables is `tables_len` bytes long.
fn loads(new: &NewSegments, text_off: u64, tables_off: u64, tables_len: u64) -> Vec<Header> {
    let text_len = new.text.bytes.len() as u64;
    let mut loads = vec![
        load(elf::PF_R | elf::PF_X, new.text.at, text_off, text_len, text_len),
        load(elf::PF_R, new.tables, tables_off, tables_len, tables_len),
    ];
    if !new.counters.is_empty() {
        // All up to the code: of a library, the page that says whether it has started, too.
        let len = new.text.at.since(new.counters.start);
        loads.insert(0, load(elf::PF_R | elf::PF_W, new.counters.start, 0, 0, len));
    }
    loads
}

/// The `old` headers with the new `loads` among them: loaded segments are listed by address.
fn listed(old: &[Header], loads: Vec<Header>, is_below: bool) -> Vec<Header> {
    let is_load = |h: &Header| h.p_type(LE) == elf::PT_LOAD;
    let at = match is_below {
        true => old.iter().position(is_load).unwrap_or(0),
        false => old.iter().rposition(is_load).map_or(old.len(), |i| i + 1),
    };
    let (before, behind) = old.split_at(at);
    [before, &loads, behind].concat()
}

fn load(flags: elf::ProgramFlags, at: Va, offset: u64, in_file: u64, len: u64) -> Header {
    ProgramHeader64::<LE> {
        p_type: U32::new(LE, elf::PT_LOAD),
        p_flags: U32::new(LE, flags),
        p_offset: U64::new(LE, offset),
        p_vaddr: U64::new(LE, at.0),
        p_paddr: U64::new(LE, at.0),
        p_filesz: U64::new(LE, in_file),
        p_memsz: U64::new(LE, len),
        p_align: U64::new(LE, PAGE),
    }
}

fn put(h: &mut Header, at: Va, offset: u64) {
    h.p_offset.set(LE, offset);
    h.p_vaddr.set(LE, at.0);
    h.p_paddr.set(LE, at.0);
}

fn set_len(h: &mut Header, len: u64) {
    h.p_filesz.set(LE, len);
    h.p_memsz.set(LE, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::file::Old;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{assembled, compiled};
    use expect_test::expect;

    /// The program headers of a file, one a line: type, flags, address, offset, lengths in file and memory.
    fn headers(file: &[u8]) -> Vec<(u32, u32, u64, u64, u64, u64)> {
        let header = FileHeader64::<LE>::parse(file).expect("an ELF file");
        let all = header.program_headers(LE, file).expect("it has some");
        let row = |h: &Header| {
            let (kind, flags) = (h.p_type.get(LE), h.p_flags.get(LE));
            (kind.0, flags.0, h.p_vaddr.get(LE), h.p_offset.get(LE), h.p_filesz.get(LE), h.p_memsz.get(LE))
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn new_segments_are_listed_behind_the_old_ones() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", "ret")]);
        let module = Module::build(&program, &Plan::NULL, Room::Behind).expect("it can be moved");
        let file = module.to_file(Old::Kept).expect("it can be written");
        let old = headers(program.image.file_bytes());
        let new: Vec<_> = headers(&file).into_iter().filter(|h| !old.contains(h)).collect();
        let line = |h: &(u32, u32, u64, u64, u64, u64)| {
            format!("type {:x} flags {} at {:x} offset {:x} {:x} {:x}\n", h.0, h.1, h.2, h.3, h.4, h.5)
        };
        expect![[r#"
            type 1 flags 5 at 403000 offset 3000 20 20
            type 1 flags 4 at 404000 offset 4000 1070 1070
            type 6474e550 flags 4 at 405000 offset 5000 2c 2c
        "#]]
        .assert_eq(&new.iter().map(line).collect::<String>());
    }

    #[test]
    fn whoever_loads_it_finds_segments_that_can_be_mapped() {
        let text = "int twice(int n) { return 2 * n; } int main(int n, char **v) { return twice(n); }";
        for (flags, plan) in ["-O1", "-O1 -no-pie", "-O1 -shared -fPIC", "-O1 -static"]
            .iter()
            .flat_map(|f| [(f, Plan::NULL), (f, Plan::BLOCKS)])
        {
            let program = compiled(text, "c", flags);
            let module = Module::build(&program, &plan, Room::Behind).expect("it can be moved");
            let file = module.to_file(Old::Kept).expect("it can be written");
            let loads: Vec<_> = headers(&file).into_iter().filter(|h| h.0 == elf::PT_LOAD.0).collect();
            let n_new = loads.len()
                - headers(program.image.file_bytes()).iter().filter(|h| h.0 == elf::PT_LOAD.0).count();
            assert_eq!(n_new, if plan.is_null() { 2 } else { 3 });
            for (_, flags, at, offset, in_file, in_memory) in &loads {
                assert_eq!(at % PAGE, offset % PAGE);
                assert!(in_file <= in_memory && offset + in_file <= file.len() as u64);
                assert_ne!(flags & 3, 3, "written and run");
            }
            for (a, b) in loads.iter().zip(loads.iter().skip(1)) {
                assert!(a.2 + a.5 <= b.2, "{a:x?} {b:x?}");
            }
            // What is read back is the same program with more code.
            let again = Image::parse(file, "again").expect("an image");
            assert_eq!(again.entry, program.image.entry);
        }
    }
}

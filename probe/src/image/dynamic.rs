//! What a module's dynamic section says that moved code needs: where it starts, what it is called, which
//! words are relocated.
#![warn(clippy::indexing_slicing)]

use crate::image::symbols::{self, Dynamic, Moves};
use crate::patch::Patch;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use program::{Program, Va};

/// The addends of the relocations that fill absolute tables: in their rows, and in the words where they are
/// kept in place.
pub fn patch_relocations(program: &Program, wanted: &[(Va, Va)], patches: &mut Vec<Patch>) -> Option<()> {
    if wanted.is_empty() {
        return Some(());
    }
    let image = &program.image;
    let dynamic = rows(program)?;
    let tag = |tag: elf::DynamicTag| dynamic.iter().find(|r| r.1 == tag).map(|r| r.2);
    let mut is_done = vec![false; wanted.len()];
    if let (Some(at), Some(len)) = (tag(elf::DT_RELA), tag(elf::DT_RELASZ)) {
        let rows = image.bytes_in(&(Va(at)..Va(at).plus(len)))?;
        for (n, row) in rows.chunks_exact(24).enumerate() {
            let place = Va(u64::from_le_bytes(*row.first_chunk()?));
            if let Ok(i) = wanted.binary_search_by_key(&place, |r| r.0) {
                let to = wanted.get(i)?.1;
                patches.push(Patch::of(
                    program,
                    Va(at).plus(n as u64 * 24 + 16),
                    to.0.to_le_bytes().to_vec(),
                ));
                *is_done.get_mut(i)? = true;
            }
        }
    }
    // Packed relocations (DT_RELR) add to the word in place, which `change` has set.
    (tag(elf::DT_RELR).is_some() || is_done.iter().all(|&d| d)).then_some(())
}

/// Has the dynamic section lead to tables with names for moved code. They are put behind `tables`, which
/// stand at `at`.
pub fn name_moved(
    program: &Program,
    moves: Moves<'_>,
    at: Va,
    tables: &mut Vec<u8>,
    patches: &mut Vec<Patch>,
) -> Option<()> {
    let image = &program.image;
    let rows = rows(program)?;
    let row = |tag: elf::DynamicTag| rows.iter().find(|r| r.1 == tag);
    let (symbols, hash) = (row(elf::DT_SYMTAB)?, row(elf::DT_GNU_HASH)?);
    let old = Dynamic {
        symbols: image.bytes_from(Va(symbols.2))?,
        strings: image.bytes_from(Va(row(elf::DT_STRTAB)?.2))?,
        hash: image.bytes_from(Va(hash.2))?,
    };
    let new = symbols::dynamic(old, moves)?;
    tables.resize(tables.len().next_multiple_of(8), 0);
    let new_at = at.plus(tables.len() as u64);
    for (row, to) in [(symbols, new_at), (hash, new_at.plus(new.hash_at as u64))] {
        patches.push(Patch::of(program, row.0.plus(8), to.0.to_le_bytes().to_vec()));
    }
    tables.extend(new.bytes);
    Some(())
}

/// All rows of the dynamic section, those behind its end too: where each stands, its tag, and what it says.
fn all_rows(program: &Program) -> Option<Vec<(Va, elf::DynamicTag, u64)>> {
    let image = &program.image;
    let header = FileHeader64::<LE>::parse(image.file_bytes()).ok()?;
    let headers = header.program_headers(LE, image.file_bytes()).ok()?;
    let segment = headers.iter().find(|h| h.p_type(LE) == elf::PT_DYNAMIC)?;
    let rows = segment.dynamic(LE, image.file_bytes()).ok()??;
    let at = |n: usize| Va(segment.p_vaddr(LE)).plus(n as u64 * 16);
    // A header may lie about where they are loaded, and then none can be changed.
    image.bytes_in(&(at(0)..at(rows.len())))?;
    Some(rows.iter().enumerate().map(|(n, d)| (at(n), d.d_tag.get(LE), d.d_val.get(LE))).collect())
}

/// Its rows.
fn rows(program: &Program) -> Option<Vec<(Va, elf::DynamicTag, u64)>> {
    Some(all_rows(program)?.into_iter().take_while(|r| r.1 != elf::DT_NULL).collect())
}

/// Where the dynamic section has DT_INIT, or room for it, and what it says.
pub fn init_slot(program: &Program) -> Option<(Va, Option<Va>)> {
    let rows = all_rows(program)?;
    if let Some(init) = rows.iter().find(|r| r.1 == elf::DT_INIT) {
        return Some((init.0, Some(Va(init.2))));
    }
    // The first row that ends the list becomes DT_INIT, if another one follows it.
    let end = rows.iter().position(|r| r.1 == elf::DT_NULL)?;
    let spare = rows.get(end + 1)?;
    (spare.1 == elf::DT_NULL).then_some((rows.get(end)?.0, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::file::Old;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{compiled, function};
    use program::Image;

    const TEXT: &str = "int hidden; int twice(int n) { return 2 * n + hidden; } int (*way)(int) = twice;";

    #[test]
    fn a_name_leads_to_old_code_and_moved_code_to_its_name() {
        let program = compiled(TEXT, "c", "-O1 -shared -fPIC");
        let module = Module::build(&program, &Plan::BLOCKS, Room::Behind).expect("it can be moved");
        let file = module.to_file(Old::Kept).expect("it can be written");
        let image = Image::parse(file, "moved").expect("an image");
        let entry = program.function(function(&program, "twice")).entry;
        let (old, new) = module.code_map.ranges().find(|(old, _)| old.start == entry).expect("it is moved");
        let mut at: Vec<(Va, bool)> = image
            .symbols
            .iter()
            .filter(|s| s.dynamic && &*s.name == "twice")
            .map(|s| (s.at, s.local))
            .collect();
        at.sort_unstable();
        assert_eq!(at.first(), Some(&(old.start, false)));
        assert!(at.iter().skip(1).all(|(at, local)| *local && new.contains(at)), "{at:?} {new:?}");
        assert!(at.len() > 1);
    }

    #[test]
    fn a_counted_library_starts_with_the_runtime() {
        let program = compiled(TEXT, "c", "-O1 -shared -fPIC");
        let module = Module::build(&program, &Plan::BLOCKS, Room::Behind).expect("it can be moved");
        let start = module.runtime.as_ref().expect("it is counted").start;
        let file = module.to_file(Old::Kept).expect("it can be written");
        let again = Program::analyze(Image::parse(file, "moved").expect("an image"));
        assert_eq!(init_slot(&again).and_then(|slot| slot.1), Some(start));
        assert_ne!(init_slot(&program).and_then(|slot| slot.1), Some(start));
    }
}

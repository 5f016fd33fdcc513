//! `.eh_frame`: which code belongs together, and where exceptions land.
//!
//! Source: DWARF 5, 6.4; Itanium C++ ABI, exception handling, level II.

use super::UnwindRange;
use crate::addr::Va;
use gimli::UnwindSection as _;
use object::{Object as _, ObjectSection as _};

/// The unwind ranges of a file, by address.
pub fn parse(file: &object::read::elf::ElfFile64<'_, object::LittleEndian>) -> Vec<UnwindRange> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let mut frames = gimli::EhFrame::new(data, gimli::LittleEndian);
    frames.set_address_size(8);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, bases, offset| frames.cie_from_offset(bases, offset)) else {
            continue;
        };
        let start = Va(fde.initial_address());
        found.push(UnwindRange {
            range: start..start.plus(fde.len()),
            landing: Box::default(),
            signal: fde.cie().is_signal_trampoline(),
        });
    }
    found.sort_by_key(|r| (r.range.start, r.range.end));
    found
}

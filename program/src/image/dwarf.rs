//! Debug information of an image, from its file or its debug file ([`Image::debug_file`]).
//!
//! Source: DWARF 5, 7.5 (sections); gABI, "Section Compression".

use super::Image;
use gimli::LittleEndian;
use object::{Object as _, ObjectSection as _};
use std::sync::Arc;

/// What reads its sections.
pub type Reader = gimli::EndianArcSlice<LittleEndian>;

/// Debug information cannot make a section longer than this many times its compressed form (zlib's own
/// bound).
const MOST_EXPANSION: u64 = 1032;

/// The debug information of `image`, if it or its debug file has all of these sections.
pub fn load(image: &Image, needed: &[&str]) -> Option<gimli::Dwarf<Reader>> {
    let own = if image.is_of_memory() { &[] } else { image.file_bytes() };
    parse(own, needed).or_else(|| {
        let bytes = std::fs::read(image.debug_file.as_ref()?).ok()?;
        parse(&bytes, needed)
    })
}

fn parse(bytes: &[u8], needed: &[&str]) -> Option<gimli::Dwarf<Reader>> {
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes).ok()?;
    needed.iter().try_for_each(|name| file.section_by_name(name).map(drop))?;
    let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let data = file.section_by_name(id.name()).and_then(|section| {
            let compressed = section.compressed_data().ok()?;
            let most = (compressed.data.len() as u64).saturating_mul(MOST_EXPANSION);
            (compressed.uncompressed_size <= most).then(|| compressed.decompress().ok()).flatten()
        });
        Ok(Reader::new(Arc::from(&*data.unwrap_or_default()), LittleEndian))
    };
    gimli::Dwarf::load(load).ok()
}

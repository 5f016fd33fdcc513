//! What the dynamic linker reads: PT_DYNAMIC, its symbols and relocations, the functions it runs first and
//! last.
//!
//! Found through program headers alone, so that a file without section headers gives the same.
//!
//! Source: System V ABI, chapter 5; AMD64 supplement 4.4; "RELR relative relocation format" (generic-abi,
//! 2017).
#![warn(clippy::indexing_slicing)]

use super::headers::{Headers, LE, records, section_bytes, string_at, symbol};
use super::{Image, Relocation, RelocationTo, Symbol};
use crate::addr::{Bias, LiveVa, Va};
use object::LittleEndian;
use object::elf::{self, Dyn64, Rela64, Sym64};
use object::read::elf::{ProgramHeader as _, SectionHeader as _, Sym as _};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How the names of the C library's files start: glibc's and musl's.
const LIBC: [&str; 8] =
    ["libc.", "libm.", "libmvec.", "libpthread.", "libdl.", "librt.", "ld-linux-", "ld-musl-"];

/// Whether a file of this name is the C library's, or goes with it.
pub fn is_libc_file(name: &str) -> bool {
    LIBC.iter().any(|start| name.starts_with(start))
}

/// The dynamic section and the tables it points to.
pub(super) struct Dynamic {
    tags: Vec<(i64, u64)>,
    symbols: Vec<Sym64<LittleEndian>>,
    strings: Vec<u8>,
}

impl Dynamic {
    /// From PT_DYNAMIC; empty if there is none.
    pub fn read(image: &Image, headers: &Headers) -> Dynamic {
        let segment = headers.segments.iter().find(|p| p.p_type(LE) == elf::PT_DYNAMIC);
        let bytes = segment
            .and_then(|p| bytes_at(image, Va(p.p_vaddr(LE)), p.p_memsz(LE).min(p.p_filesz(LE))))
            .unwrap_or_default();
        let mut tags = Vec::new();
        for d in records::<Dyn64<LittleEndian>>(bytes) {
            let tag = d.d_tag.get(LE).0;
            if tag == elf::DT_NULL.0 {
                break;
            }
            tags.push((tag, d.d_val.get(LE)));
        }
        let mut dynamic = Dynamic { tags, symbols: Vec::new(), strings: Vec::new() };
        dynamic.strings =
            dynamic.table(image, elf::DT_STRTAB.0, elf::DT_STRSZ.0).unwrap_or_default().to_vec();
        let n = dynamic.n_symbols(image, headers);
        let table =
            dynamic.value(elf::DT_SYMTAB.0).and_then(|at| image.bytes_from(Va(at))).unwrap_or_default();
        dynamic.symbols = records::<Sym64<LittleEndian>>(table).iter().take(n).copied().collect();
        dynamic
    }

    /// The value of the first entry with this tag.
    pub fn value(&self, tag: i64) -> Option<u64> {
        self.tags.iter().find(|t| t.0 == tag).map(|t| t.1)
    }

    /// Whether it defines global symbols for others.
    pub fn exports(&self) -> bool {
        let exported = |s: &Sym64<LittleEndian>| {
            s.st_shndx(LE) != elf::SHN_UNDEF && s.st_bind() != elf::STB_LOCAL && s.st_value(LE) != 0
        };
        self.symbols.iter().any(exported)
    }

    /// The defined dynamic symbols.
    pub fn symbols(&self, names_left: &mut usize) -> Vec<Symbol> {
        self.symbols.iter().filter_map(|s| symbol(s, &self.strings, true, names_left)).collect()
    }

    /// The imports that the C library defines: as their versions say; where there are none, if nothing else
    /// is needed. Sorted.
    pub fn libc_imports(&self, image: &Image, names_left: &mut usize) -> Vec<Box<str>> {
        let is_libc = |at: u64| {
            let name = u32::try_from(at).ok().and_then(|at| string_at(&self.strings, at));
            name.is_some_and(|name| is_libc_file(&name))
        };
        let needs = |tag: &&(i64, u64)| tag.0 == elf::DT_NEEDED.0;
        let alone = self.tags.iter().filter(needs).all(|tag| is_libc(tag.1));
        let versions = self.versions_of(image, is_libc);
        let of_symbols = self.value(elf::DT_VERSYM.0).and_then(|at| image.bytes_from(Va(at)));
        let is_one = |i: usize| match (&versions, of_symbols) {
            (Some(versions), Some(all)) => {
                let bytes = i.checked_mul(2).and_then(|at| all.get(at..)).and_then(|b| b.first_chunk());
                bytes.is_some_and(|b| versions.contains(&(u16::from_le_bytes(*b) & 0x7fff)))
            }
            _ => alone,
        };
        let mut names: Vec<Box<str>> = Vec::new();
        for (i, symbol) in self.symbols.iter().enumerate() {
            if symbol.st_shndx(LE) != elf::SHN_UNDEF || !is_one(i) {
                continue;
            }
            let name = string_at(&self.strings, symbol.st_name(LE)).unwrap_or_default();
            let Some(left) = names_left.checked_sub(name.len()) else { break };
            *names_left = left;
            names.push(name.into());
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The numbers of the versions (DT_VERNEED) that are asked of files whose names are at offsets that
    /// `is_libc`; nothing if there are none.
    fn versions_of(&self, image: &Image, is_libc: impl Fn(u64) -> bool) -> Option<Vec<u16>> {
        let table = image.bytes_from(Va(self.value(elf::DT_VERNEED.0)?))?;
        let word16 = |at: usize| table.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b));
        let word = |at: usize| table.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let next = |at: usize, by: u32| at.checked_add(usize::try_from(by).ok()?).filter(|_| by > 0);
        let (mut found, mut at) = (Vec::new(), Some(0usize));
        // No more than fit, in damaged tables.
        let mut left = table.len() / 16;
        while let Some(file) = at {
            if is_libc(u64::from(word(file + 4)?)) {
                let mut aux = next(file, word(file + 8)?);
                while let Some(one) = aux {
                    left = left.checked_sub(1)?;
                    found.push(word16(one + 6)?);
                    aux = next(one, word(one + 12)?);
                }
            }
            left = left.checked_sub(1)?;
            at = next(file, word(file + 12)?);
        }
        Some(found)
    }

    fn table<'a>(&self, image: &'a Image, at: i64, len: i64) -> Option<&'a [u8]> {
        bytes_at(image, Va(self.value(at)?), self.value(len)?)
    }

    /// How many symbols there are: the section says so; else DT_HASH does; else the chains of DT_GNU_HASH,
    /// which leave out imports if nothing is exported, and the relocations, which name those.
    fn n_symbols(&self, image: &Image, headers: &Headers) -> usize {
        let at = self.value(elf::DT_SYMTAB.0).unwrap_or(0);
        let section =
            headers.sections.iter().find(|(_, h)| h.sh_type(LE) == elf::SHT_DYNSYM && h.sh_addr(LE) == at);
        if let Some((_, h)) = section {
            return usize::try_from(h.sh_size(LE) / 24).unwrap_or(0);
        }
        if let Some(n) = self.value(elf::DT_HASH.0).and_then(|at| word32(image.bytes_from(Va(at))?, 1)) {
            return usize::try_from(n).unwrap_or(0);
        }
        let named = self.raw_relocations(image, headers).map(|r| r.r_info.get(LE) >> 32).max().unwrap_or(0);
        let hashed =
            self.value(elf::DT_GNU_HASH.0).and_then(|at| gnu_hash_symbols(image.bytes_from(Va(at))?));
        usize::try_from((named + 1).max(hashed.unwrap_or(0))).unwrap_or(0)
    }

    /// DT_RELA and DT_JMPREL; where neither is, loaded relocation sections (static programs), or what looks
    /// like the IRELATIVE relocations of one.
    fn raw_relocations<'a>(
        &self,
        image: &'a Image,
        headers: &Headers,
    ) -> impl Iterator<Item = &'a Rela64<LittleEndian>> + use<'a> {
        let mut tables = Vec::new();
        for (at, len) in [(elf::DT_RELA.0, elf::DT_RELASZ.0), (elf::DT_JMPREL.0, elf::DT_PLTRELSZ.0)] {
            tables.extend(self.table(image, at, len));
        }
        if self.tags.is_empty() {
            let loaded = |h: &&(String, super::headers::Shdr)| {
                h.1.sh_type(LE) == elf::SHT_RELA && h.1.sh_flags(LE).contains(elf::SHF_ALLOC)
            };
            for (_, h) in headers.sections.iter().filter(loaded) {
                tables.extend(section_bytes(image.file_bytes(), h));
            }
            if headers.sections.is_empty() {
                tables.extend(irelative_run(image));
            }
        }
        tables.into_iter().flat_map(records::<Rela64<LittleEndian>>)
    }

    /// What a dynamic linker that has moved the image has written over, as the file has it: words that are
    /// addresses of the image, and zeros for those of other modules.
    pub fn words_of_file(&self, image: &Image, headers: &Headers, bias: Bias) -> Vec<(Va, u64)> {
        let mut words = Vec::new();
        for r in self.raw_relocations(image, headers) {
            let word = match elf::RelocationType(u32::try_from(r.r_info.get(LE) & 0xffff_ffff).unwrap_or(0)) {
                elf::R_X86_64_RELATIVE | elf::R_X86_64_RELATIVE64 => r.r_addend.get(LE).cast_unsigned(),
                elf::R_X86_64_64
                | elf::R_X86_64_GLOB_DAT
                | elf::R_X86_64_JUMP_SLOT
                | elf::R_X86_64_IRELATIVE => 0,
                _ => continue,
            };
            words.push((Va(r.r_offset.get(LE)), word));
        }
        let relr = self.table(image, elf::DT_RELR.0, elf::DT_RELRSZ.0).unwrap_or_default();
        for at in relr_places(relr).take(image.file_bytes().len() / 8) {
            let moved = image.word_at(at).map(|word| bias.to_image(LiveVa(word)));
            // The program may have put something else there.
            let ours = moved.filter(|to| image.segments.iter().any(|s| s.range.contains(to)));
            words.extend(ours.map(|to| (at, to.0)));
        }
        words
    }

    /// Where the tables are that it names.
    pub fn tables(&self, image: &Image) -> Vec<Range<Va>> {
        let mut all = Vec::new();
        let mut add = |at: Option<u64>, len: u64| all.extend(at.map(|at| Va(at)..Va(at.saturating_add(len))));
        for (at, len) in [
            (elf::DT_STRTAB.0, elf::DT_STRSZ.0),
            (elf::DT_RELA.0, elf::DT_RELASZ.0),
            (elf::DT_JMPREL.0, elf::DT_PLTRELSZ.0),
            (elf::DT_RELR.0, elf::DT_RELRSZ.0),
        ] {
            add(self.value(at), self.value(len).unwrap_or(0));
        }
        let n = self.symbols.len() as u64;
        add(self.value(elf::DT_SYMTAB.0), n.saturating_mul(24));
        add(self.value(elf::DT_VERSYM.0), n.saturating_mul(2));
        // A bucket or two words a symbol, at most: header, filter, buckets, chains.
        let table = |at: u64| image.bytes_from(Va(at));
        let hash = self.value(elf::DT_HASH.0);
        let words =
            hash.and_then(table).and_then(|t| Some(u64::from(word32(t, 0)?) + u64::from(word32(t, 1)?)));
        add(hash, words.map_or(0, |n| 4 * (n + 2)));
        let hash = self.value(elf::DT_GNU_HASH.0);
        let len = hash.and_then(table).and_then(|t| {
            let [buckets, first, filter] = [0, 1, 2].map(|i| word32(t, i).map(u64::from));
            Some(16 + 8 * filter? + 4 * (buckets? + n.saturating_sub(first?)))
        });
        add(hash, len.unwrap_or(0));
        all
    }

    /// All relocations, by place.
    pub fn relocations(&self, image: &Image, headers: &Headers) -> Vec<Relocation> {
        let mut names: HashMap<u64, Arc<str>> = HashMap::new();
        // Names are shared, and each symbol's is held once; hostile tables cannot make it more than this.
        let mut names_left = image.file_bytes().len().saturating_mul(4).saturating_add(1 << 20);
        let mut found = Vec::new();
        for r in self.raw_relocations(image, headers) {
            let info = r.r_info.get(LE);
            let addend = r.r_addend.get(LE).cast_unsigned();
            let to = match elf::RelocationType(u32::try_from(info & 0xffff_ffff).unwrap_or(0)) {
                elf::R_X86_64_RELATIVE | elf::R_X86_64_RELATIVE64 => RelocationTo::Address(Va(addend)),
                elf::R_X86_64_IRELATIVE => RelocationTo::Resolver(Va(addend)),
                elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                    self.by_symbol(info >> 32, addend, &mut names, &mut names_left)
                }
                _ => RelocationTo::Other,
            };
            found.push(Relocation { at: Va(r.r_offset.get(LE)), to });
        }
        let relr = self.table(image, elf::DT_RELR.0, elf::DT_RELRSZ.0).unwrap_or_default();
        // A word is patched once, so a table that names more of them than the file has is damaged.
        let words = relr_places(relr).filter_map(|at| Some((at, image.word_at(at)?)));
        for (at, word) in words.take(image.file_bytes().len() / 8) {
            found.push(Relocation { at, to: RelocationTo::Address(Va(word)) });
        }
        found.sort_by_key(|r| r.at);
        found.dedup_by_key(|r| r.at);
        found
    }

    fn by_symbol(
        &self,
        index: u64,
        addend: u64,
        names: &mut HashMap<u64, Arc<str>>,
        names_left: &mut usize,
    ) -> RelocationTo {
        let Some(sym) = usize::try_from(index).ok().and_then(|i| self.symbols.get(i)) else {
            return RelocationTo::Other;
        };
        let own = (sym.st_shndx(LE) != elf::SHN_UNDEF).then(|| Va(sym.st_value(LE)).plus(addend));
        let name = names.entry(index).or_insert_with(|| {
            let name = string_at(&self.strings, sym.st_name(LE)).unwrap_or_default();
            let fits = names_left.checked_sub(name.len());
            *names_left = fits.unwrap_or(0);
            if fits.is_some() { name.into() } else { "".into() }
        });
        match (name.is_empty(), own) {
            (true, Some(own)) => RelocationTo::Address(own),
            (true, None) => RelocationTo::Other,
            (false, own) => RelocationTo::Symbol(Arc::clone(name), own),
        }
    }

    /// Functions that the dynamic linker (or, in static programs, the start-up code) runs first and last.
    pub fn init_fini(&self, image: &Image, headers: &Headers) -> Vec<Va> {
        let mut found: Vec<Va> = Vec::new();
        let mut arrays: Vec<(Va, u64)> = Vec::new();
        for tag in [elf::DT_INIT.0, elf::DT_FINI.0] {
            found.extend(self.value(tag).map(Va));
        }
        for (at, len) in [
            (elf::DT_PREINIT_ARRAY.0, elf::DT_PREINIT_ARRAYSZ.0),
            (elf::DT_INIT_ARRAY.0, elf::DT_INIT_ARRAYSZ.0),
            (elf::DT_FINI_ARRAY.0, elf::DT_FINI_ARRAYSZ.0),
        ] {
            arrays.extend(self.value(at).map(Va).zip(self.value(len)));
        }
        for (name, h) in &headers.sections {
            match h.sh_type(LE) {
                elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY => {
                    arrays.push((Va(h.sh_addr(LE)), h.sh_size(LE)));
                }
                _ if name == ".init" || name == ".fini" => found.push(Va(h.sh_addr(LE))),
                _ => {}
            }
        }
        arrays.sort_unstable();
        arrays.dedup_by_key(|a| a.0);
        let mut next = Va(0);
        for (at, len) in arrays {
            let words = bytes_at(image, at, len).map_or(0, |b| b.len() as u64 / 8);
            // Overlapping arrays are read once, so that the work stays below the file's length.
            for place in (0..words).map(|i| at.plus(8 * i)).filter(|&p| p >= next) {
                found.extend(image.address_at(place));
            }
            next = next.max(at.plus(8 * words));
        }
        found.retain(|&f| image.is_code(f));
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn bytes_at(image: &Image, at: Va, len: u64) -> Option<&[u8]> {
    image.bytes_from(at)?.get(..usize::try_from(len).ok()?)
}

fn word32(bytes: &[u8], i: usize) -> Option<u32> {
    bytes.get(i.checked_mul(4)?..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// One more than the last symbol in the chains of a DT_GNU_HASH table.
fn gnu_hash_symbols(table: &[u8]) -> Option<u64> {
    let n_buckets = usize::try_from(word32(table, 0)?).ok()?;
    let first = word32(table, 1)?;
    let buckets = usize::try_from(word32(table, 2)?).ok()?.checked_mul(2)?.checked_add(4)?;
    let chains = buckets.checked_add(n_buckets)?;
    let words = table.get(buckets.checked_mul(4)?..chains.checked_mul(4)?)?;
    let last = words.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).max()?;
    let mut last = match last {
        last if last < first => return Some(u64::from(first)),
        last => last,
    };
    // The lowest bit of a hash ends its chain.
    while word32(table, chains.checked_add(usize::try_from(last - first).ok()?)?)? & 1 == 0 {
        last = last.checked_add(1)?;
    }
    Some(u64::from(last) + 1)
}

/// Places named by DT_RELR: an even word is an address, an odd one a bitmap of the 63 words after the last
/// place.
fn relr_places(table: &[u8]) -> impl Iterator<Item = Va> {
    let mut next = 0u64;
    table.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).flat_map(move |word| {
        // An address is a bitmap of one place, that itself.
        let (first, bits, len) = if word & 1 == 0 { (word, 1, 1) } else { (next, word >> 1, 63) };
        next = first.wrapping_add(8 * len);
        (0..len).filter(move |i| bits >> i & 1 == 1).map(move |i| Va(first.wrapping_add(8 * i)))
    })
}

/// IRELATIVE relocations of a static program without section headers: records in a row whose type says so,
/// whose place can be written, and whose resolver is code.
fn irelative_run(image: &Image) -> Option<&[u8]> {
    const KIND: [u8; 8] = (elf::R_X86_64_IRELATIVE.0 as u64).to_le_bytes();
    let fits = |record: &Rela64<LittleEndian>| {
        record.r_info.get(LE) == u64::from(elf::R_X86_64_IRELATIVE.0)
            && image.segment_at(Va(record.r_offset.get(LE))).is_some_and(|s| s.writable)
            && image.is_code(Va(record.r_addend.get(LE).cast_unsigned()))
    };
    let first = image.segments.iter().find(|s| s.file_len > 0)?;
    let bytes = image.bytes_from(first.range.start)?;
    for at in memchr::memmem::find_iter(bytes, &KIND).filter_map(|at| at.checked_sub(8)) {
        let rest = bytes.get(at..)?;
        let n = records::<Rela64<LittleEndian>>(rest).iter().take_while(|r| fits(r)).count();
        if at % 8 == 0 && n > 0 {
            return rest.get(..n * 24);
        }
    }
    None
}

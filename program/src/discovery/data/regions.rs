//! Where data can lie: loaded sections that are neither code nor the linker's tables; without sections,
//! segments.

use crate::addr::Va;
use crate::model::{GapReason, Program};
use std::ops::Range;

/// A run of addresses that holds data.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its addresses.
    pub range: Range<Va>,
    /// Has no bytes in the file.
    pub zero: bool,
    /// Words that each stand alone: the global offset table.
    pub words: bool,
    /// Between functions: data only where an instruction says so.
    pub in_code: bool,
}

/// All regions, by address, without overlaps.
pub fn regions(program: &Program) -> Vec<Region> {
    let image = &program.image;
    let mut found = Vec::new();
    for s in image.sections.iter().filter(|s| !s.executable && !is_linkers(&s.name)) {
        let words = s.name.starts_with(".got");
        found.push(Region { range: s.range.clone(), zero: s.zero, words, in_code: false });
    }
    if image.sections.is_empty() {
        for s in image.segments.iter().filter(|s| !s.executable) {
            let file_end = s.range.start.plus(s.file_len);
            for (range, zero) in [(s.range.start..file_end, false), (file_end..s.range.end, true)] {
                if range.start < range.end {
                    found.push(Region { range, zero, words: false, in_code: false });
                }
            }
        }
    }
    for g in &program.gaps {
        if matches!(g.reason, GapReason::NoFunction | GapReason::NotCode) {
            found.push(Region { range: g.range.clone(), zero: false, words: false, in_code: true });
        }
    }
    found.sort_by_key(|r| (r.range.start, r.range.end));
    let mut end = Va(0);
    found.retain(|r| {
        let apart = r.range.start >= end && r.range.start < r.range.end;
        if apart {
            end = r.range.end;
        }
        apart
    });
    found
}

/// Sections that the linker made for the dynamic linker, the unwinder and other tools; thread-local data has
/// no address.
fn is_linkers(name: &str) -> bool {
    const TABLES: [&str; 14] = [
        ".interp",
        ".hash",
        ".dynsym",
        ".dynstr",
        ".relr.dyn",
        ".dynamic",
        ".eh_frame",
        ".eh_frame_hdr",
        ".gcc_except_table",
        ".tdata",
        ".gnu.hash",
        ".gnu.liblist",
        ".gnu.conflict",
        ".stapsdt.base",
    ];
    TABLES.contains(&name) || [".gnu.version", ".rela.", ".rel."].iter().any(|p| name.starts_with(p))
}

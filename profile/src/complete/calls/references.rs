//! Whether anything but direct calls may lead to a function: what its address, or a distance to it, may stand
//! in.
//!
//! Every byte is looked at, as an operand of code and as a word: what is one by chance counts, too. A
//! function that other images may find by name is one, too.

use program::image::Kind;
use program::{CallKind, Callee, Program, Va};
use std::collections::{BTreeSet, HashSet};

/// Those of the functions at `wanted` that something may refer to otherwise than by a direct call or jump
/// that is known; of an excerpt, what was found out of the whole file.
pub fn referred(program: &Program, wanted: &BTreeSet<Va>) -> BTreeSet<Va> {
    if program.is_excerpt() {
        let is_referred = |at: &Va| {
            let remark = program.function_from(*at).and_then(|id| program.remark(id));
            remark.is_none_or(|remark| remark.is_referred)
        };
        return wanted.iter().copied().filter(is_referred).collect();
    }
    let mut found = BTreeSet::new();
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return found };
    let is_wanted = |at: u64| (first.0..=last.0).contains(&at) && wanted.contains(&Va(at));
    let image = &program.image;
    found.extend(image.symbols.iter().filter(|s| s.dynamic && wanted.contains(&s.at)).map(|s| s.at));
    found.extend(image.init_fini.iter().chain(&image.entry).filter(|at| wanted.contains(at)));
    // Where the distances of known calls stand.
    let mut known = HashSet::new();
    for call in &program.calls {
        let Callee::Function(callee) = call.callee else { continue };
        if call.kind != CallKind::FallThrough && wanted.contains(&program.function(callee).entry) {
            let insn = program.insns(call.block).find(|insn| insn.at() == call.at);
            known.extend(insn.and_then(|insn| insn.end().0.checked_sub(4)));
        }
    }
    let is_fixed = matches!(image.kind, Kind::Executable | Kind::Static);
    for segment in &image.segments {
        let bytes = image.bytes_from(segment.range.start).unwrap_or_default();
        for (at, word) in (segment.range.start.0..).zip(bytes.windows(4)) {
            let Some(word) = word.first_chunk().map(|w| u32::from_le_bytes(*w)) else { continue };
            let to = (at + 4).wrapping_add_signed(i64::from(word.cast_signed()));
            // Padding ends in zeros.
            if segment.executable && word != 0 && is_wanted(to) && !known.contains(&at) {
                found.insert(Va(to));
            }
            if is_fixed && is_wanted(u64::from(word)) {
                found.insert(Va(u64::from(word)));
            }
        }
        for word in bytes.windows(8).filter_map(|w| w.first_chunk()) {
            let to = u64::from_le_bytes(*word);
            if is_wanted(to) {
                found.insert(Va(to));
            }
        }
    }
    found
}

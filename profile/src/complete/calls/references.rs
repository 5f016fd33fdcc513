//! Whether anything but direct calls may lead to a function: what its address, or a distance to it, may stand
//! in.
//!
//! Every byte is looked at, as an operand of code and as a word: what is one by chance counts, too. A
//! function that other images may find by name is one, too.

use program::arch::Decoder;
use program::image::Kind;
use program::{Call, CallKind, Callee, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

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
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return BTreeSet::new() };
    let places = Places::of(wanted, first.0..=last.0);
    let is_wanted = |at: u64| places.has(at);
    let image = &program.image;
    let mut found: BTreeSet<Va> = named(program).filter(|at| wanted.contains(at)).collect();
    // Where the distances of known calls stand.
    let distance = |call: &Call| match call.callee {
        Callee::Function(callee)
            if call.kind != CallKind::FallThrough && is_wanted(program.function(callee).entry.0) =>
        {
            let bytes = image.bytes_from(call.at).unwrap_or_default();
            let insn = Decoder::new(bytes.get(..LONGEST_INSN).unwrap_or(bytes), call.at).next();
            insn.and_then(|insn| insn.end().0.checked_sub(4))
        }
        _ => None,
    };
    let mut known: Vec<u64> = program.calls.par_iter().filter_map(distance).collect();
    known.par_sort_unstable();
    let is_fixed = matches!(image.kind, Kind::Executable | Kind::Static);
    for segment in &image.segments {
        let bytes = image.bytes_from(segment.range.start).unwrap_or_default();
        let in_piece = |n: usize| {
            let from = n * PIECE;
            // The last words of a piece end in the next.
            let piece = bytes.get(from..bytes.len().min(from + PIECE + 7)).unwrap_or_default();
            let mut found = Vec::new();
            let start = segment.range.start.0 + from as u64;
            for (at, word) in (start..).zip(piece.windows(4)) {
                let Some(word) = word.first_chunk().map(|w| u32::from_le_bytes(*w)) else { continue };
                let to = (at + 4).wrapping_add_signed(i64::from(word.cast_signed()));
                // Padding ends in zeros.
                if segment.executable && word != 0 && is_wanted(to) && known.binary_search(&at).is_err() {
                    found.push(Va(to));
                }
                if is_fixed && is_wanted(u64::from(word)) {
                    found.push(Va(u64::from(word)));
                }
            }
            for word in piece.windows(8).filter_map(|w| w.first_chunk()) {
                let to = u64::from_le_bytes(*word);
                if is_wanted(to) {
                    found.push(Va(to));
                }
            }
            found
        };
        found.par_extend((0..bytes.len().div_ceil(PIECE)).into_par_iter().flat_map_iter(in_piece));
    }
    found
}

/// More bytes than this no instruction has. Source: Intel SDM vol. 2A, 2.3.11.
const LONGEST_INSN: usize = 15;

/// Bytes that one thread looks at.
const PIECE: usize = 1 << 20;

/// What others find by name, or the loader runs.
fn named(program: &Program) -> impl Iterator<Item = Va> {
    let image = &program.image;
    let symbols = image.symbols.iter().filter(|s| s.dynamic).map(|s| s.at);
    symbols.chain(image.init_fini.iter().copied()).chain(image.entry)
}

/// Addresses, to be asked for at every byte of a file.
struct Places {
    range: RangeInclusive<u64>,
    sorted: Vec<u64>,
    /// A bit for each address, by its last digits: most that are asked for have none.
    bits: Vec<u64>,
}

impl Places {
    /// All of `wanted`, which lie in `range`.
    fn of(wanted: &BTreeSet<Va>, range: RangeInclusive<u64>) -> Places {
        let most = (range.end() - range.start()).checked_next_power_of_two().unwrap_or(MOST_PLACES);
        let n_words = usize::try_from(most.clamp(64, MOST_PLACES) / 64).expect("that many fit");
        let mut bits = vec![0u64; n_words];
        for at in wanted {
            let (word, bit) = Places::place(n_words, at.0);
            if let Some(word) = bits.get_mut(word) {
                *word |= bit;
            }
        }
        Places { range, sorted: wanted.iter().map(|at| at.0).collect(), bits }
    }

    /// `n_words` is a power of two.
    fn place(n_words: usize, at: u64) -> (usize, u64) {
        let word = usize::try_from(at / 64).unwrap_or(usize::MAX) & (n_words - 1);
        (word, 1 << (at % 64))
    }

    fn has(&self, at: u64) -> bool {
        if !self.range.contains(&at) {
            return false;
        }
        let (word, bit) = Places::place(self.bits.len(), at);
        self.bits.get(word).is_some_and(|word| word & bit != 0) && self.sorted.binary_search(&at).is_ok()
    }
}

/// So many bits take 8 MB, and tell all addresses of most files apart.
const MOST_PLACES: u64 = 1 << 26;

//! Code of engraft's own in processes that are sampled: functions that were moved to be observed, and what
//! stands in for others. Samples in it are of the functions, and of the addresses, that it was moved from.
//!
//! What it is of is written down in the process, before any of it runs: it is read when the first sample is
//! in some.
//!
//! Not here: programs that engraft has started with moved code: nothing is written down in these.

use crate::attach::{Standing, standing};
use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use live::attach::{CodeOf, MovedFunctions, OurCode, our_code};
use program::{LiveVa, Va};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(super) type Bytes = Arc<[u8]>;

/// Where a thread was, or whence it was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In an image, by its number.
    Code { image: usize, at: Va },
    /// In no image.
    Elsewhere(LiveVa),
    /// In what stands in for a function, by its number.
    StandIn(u32),
    /// In routines of engraft's own, which moved code calls.
    Ours,
}

/// Whether what is mapped from there is code of ours.
pub(super) fn is_ours(path: &Path) -> bool {
    path.to_string_lossy().starts_with("/memfd:engraft")
}

/// So often it is looked for in vain.
const MOST_LOOKS: u32 = 100;

/// What code of ours in a process is of.
#[derive(Clone, Default)]
pub(super) struct Moved {
    /// How often it may still be looked at, since some was mapped after it was last: what it is of is written
    /// down a little later.
    n_looks: u32,
    /// Whether there may be something else by now where these are.
    is_stale: bool,
    pieces: Arc<Vec<Piece>>,
}

struct Piece {
    range: Range<LiveVa>,
    of: Of,
}

enum Of {
    /// The image, by its number, if that is known.
    Moved(Option<usize>, Box<MovedFunctions>),
    /// What stands in for a function, by its number.
    StandIn(u32),
}

impl Moved {
    /// Code of ours was mapped.
    pub(super) fn came(&mut self) {
        self.n_looks = MOST_LOOKS;
        self.is_stale = true;
    }

    /// Whether there may be code of ours of which nobody knows what it is of.
    pub(super) fn is_any_unknown(&self) -> bool {
        self.n_looks > 0
    }

    /// Reads what all of it in process `pid` is of, and says whether there is any; `image_of` says which
    /// image has a path, and something at an address of the process. `stand_ins` are names of what stands in
    /// for functions, by number.
    pub(super) fn learn(
        &mut self,
        pid: u32,
        image_of: &dyn Fn(&Path, LiveVa) -> Option<usize>,
        stand_ins: &mut Vec<Box<str>>,
        unwinder: &mut UnwinderX86_64<Bytes>,
    ) -> bool {
        self.n_looks = self.n_looks.saturating_sub(1);
        // Who cannot be looked at has code of which nothing is known.
        let all = our_code(pid.cast_signed()).unwrap_or_default();
        if all.is_empty() {
            return false;
        }
        (self.n_looks, self.is_stale) = (0, false);
        let standing = standing(pid.cast_signed()).map_or_else(|_| Vec::new(), |(all, _)| all);
        let mut number = |range: &Range<LiveVa>| {
            let name = standing.iter().find(|one| range.contains(&LiveVa(one.to))).map(name);
            let name = name.unwrap_or_else(|| "[stands in for another]".into());
            let known = stand_ins.iter().position(|one| *one == name);
            u32::try_from(known.unwrap_or_else(|| {
                stand_ins.push(name);
                stand_ins.len() - 1
            }))
            .unwrap_or(u32::MAX)
        };
        for piece in self.pieces.iter() {
            unwinder.remove_module(piece.range.start.0);
        }
        let mut pieces = Vec::new();
        for OurCode { range, unwind, of } in all {
            let of = match of {
                CodeOf::Module { path, bias, functions } => {
                    let old = bias.to_live(functions.first());
                    Of::Moved(image_of(&path, old), functions)
                }
                CodeOf::Graft => Of::StandIn(number(&range)),
            };
            if let Some((at, rows)) = unwind {
                unwinder.add_module(module(&range, at, rows));
            }
            pieces.push(Piece { range, of });
        }
        pieces.sort_by_key(|piece| piece.range.start);
        self.pieces = Arc::new(pieces);
        true
    }

    /// Which code `at` is of, if it is in some of ours.
    pub(super) fn place(&self, at: LiveVa) -> Option<Place> {
        if self.is_stale {
            return None;
        }
        let n = self.pieces.partition_point(|piece| piece.range.start <= at);
        let piece = self.pieces.get(n.checked_sub(1)?).filter(|piece| piece.range.contains(&at))?;
        Some(match &piece.of {
            Of::Moved(image, functions) => match (functions.old_of(at), image) {
                (None, _) => Place::Ours,
                (Some(_), None) => Place::Elsewhere(at),
                (Some(old), Some(image)) => Place::Code { image: *image, at: old },
            },
            Of::StandIn(n) => Place::StandIn(*n),
        })
    }
}

/// What stands in, and for what.
fn name(standing: &Standing) -> Box<str> {
    let Standing { with, symbol, function, .. } = standing;
    let with = symbol.as_ref().map_or_else(|| with.clone(), |symbol| format!("{with}:{symbol}"));
    format!("{with} (for {function})").into()
}

/// Code in `range` that is unwound by `rows`, which are at `at`. Their distances are the same everywhere, so
/// addresses are those of the process.
fn module(range: &Range<LiveVa>, at: LiveVa, rows: Vec<u8>) -> Module<Bytes> {
    let (start, end) = (range.start.0, range.end.0);
    let base = start.min(at.0);
    let sections = ExplicitModuleSectionInfo {
        base_svma: base,
        text_svma: Some(start..end),
        eh_frame_svma: Some(at.0..at.0 + rows.len() as u64),
        eh_frame: Some(Bytes::from(rows)),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new("[engraft]".to_owned(), start..end, base, sections)
}

//! How much of a profile has a place in the program that it is said to be of.

use crate::output::{self, Hinted};
use profile::{Imported, Lost};
use program::{Program, Va};
use std::path::Path;
use views::share;

/// What of a profile's counts has a place in its program.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    /// Counts that have one.
    pub kept_count: u64,
    /// Counts that have none.
    pub lost_count: u64,
    /// What and why, the largest first.
    pub lost: Vec<Lost>,
}

impl Fit {
    /// Of `read` in `program`.
    pub fn of(read: &Imported, program: &Program) -> Fit {
        let p = &read.profile;
        let is_block = |at: Va| program.block_from(at).is_some();
        let blocks = || p.blocks.iter().map(|(&at, &n)| (is_block(at), n));
        let edges = || p.edges.iter().map(|(e, &n)| (is_block(e.from) && is_block(e.to), n));
        let entries = || p.entries.iter().map(|(&at, &n)| (is_block(at), n));
        let sum = |counts: &mut dyn Iterator<Item = (bool, u64)>, placed: bool| {
            counts.filter(|(there, _)| *there == placed).fold(0_u64, |sum, (_, n)| sum.saturating_add(n))
        };
        // Counts of blocks follow from those of edges, where there are any.
        let counts = |placed: bool| match p.edges.is_empty() {
            true => sum(&mut blocks(), placed).max(sum(&mut entries(), placed)),
            false => sum(&mut edges(), placed).saturating_add(sum(&mut entries(), placed)),
        };
        let mut lost = read.lost.clone();
        lost.retain(|l| l.why != profile::pprof::NOT_OURS);
        if counts(false) > 0 {
            let (what, why) = ("addresses".to_owned(), "no block of the program starts there".to_owned());
            lost.push(Lost { what, why, count: counts(false) });
        }
        lost.sort_by_key(|l| std::cmp::Reverse(l.count));
        let outside = p.calls_out.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        Fit {
            kept_count: counts(true).saturating_add(if p.edges.is_empty() { 0 } else { outside }),
            lost_count: lost.iter().fold(0, |sum, l| sum.saturating_add(l.count)),
            lost,
        }
    }

    /// Of all counts, the share without a place.
    #[expect(clippy::cast_precision_loss, reason = "a share is for comparing")]
    pub fn lost_share(&self) -> f64 {
        self.lost_count as f64 / self.kept_count.saturating_add(self.lost_count).max(1) as f64
    }

    /// Whether so much has none that it may well be of another build.
    pub fn is_poor(&self) -> bool {
        self.lost_share() > POOR
    }
}

/// Of a profile's counts, so much may have no place in its program without a word.
const POOR: f64 = 0.1;
/// If more has none, it is of another program, whatever names both have: `main`, `_start`.
const FOREIGN: f64 = 0.9;

/// Refuses a profile that says nothing of `program`, or hardly anything, and warns of one that says little.
pub fn fits(path: &Path, read: &Imported, program: &Program) -> anyhow::Result<()> {
    let fit = Fit::of(read, program);
    let p = &read.profile;
    let counts = p.entries.values().chain(p.blocks.values()).chain(p.edges.values());
    let why = fit.lost.first().map_or_else(String::new, |l| format!(" ({}: {})", l.what, l.why));
    let of_another = "give it the binary that was profiled\n`engraft convert` shows what a profile holds";
    if counts.into_iter().all(|n| *n == 0) {
        let message = format!("{} has no counts of {}{why}", path.display(), program.image.name);
        return Err(Hinted::new(message, of_another).into());
    }
    let unfit = || {
        format!("{} of {} does not fit {}{why}", share(fit.lost_share()), path.display(), program.image.name)
    };
    if fit.lost_share() > FOREIGN {
        return Err(Hinted::new(unfit(), of_another).into());
    }
    if fit.is_poor() {
        output::warn(&unfit(), Some("was it taken on another build?"));
    }
    Ok(())
}

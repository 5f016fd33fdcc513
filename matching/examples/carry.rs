//! Carries an fdata profile from one build to the next and scores it: `carry OLD NEW PROFILE OUT [FRESH]`.

use matching::{CarryOptions, Matching, Options, carry, score};
use program::{Image, Program};
use std::io::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [old, new, profile, out, fresh @ ..] = args.as_slice() else {
        return Err("usage: carry OLD NEW PROFILE OUT [FRESH]".into());
    };
    let old = Program::analyze(Image::load(old.as_ref())?);
    let new = Program::analyze(Image::load(new.as_ref())?);
    let (profile, _) = profile::fdata::parse(&std::fs::read(profile)?, &old)?;
    let matching = Matching::compute(&old, &new, &Options::default());
    let carried = carry(&old, &new, &matching, &profile, &CarryOptions::default());
    let written = profile::fdata::write(&carried.profile, &new);
    std::fs::write(out, &written.bytes)?;
    let mut say = std::io::stdout();
    let lost: u64 = written.lost.iter().map(|l| l.count).sum();
    for l in matching::Measured::of(&old, &profile).lost.iter().take(20) {
        writeln!(say, "  {} {} {}", l.what, l.why, l.count)?;
    }
    let r = &carried.report;
    writeln!(
        say,
        "carried {} of {}, inference changed {}, {} new functions, {} inexact; not written: {} records, {lost}",
        r.carried_count, r.old_count, r.changed_count, r.n_new_functions, r.n_inexact, written.lost.len()
    )?;
    for l in r.losses.iter().take(12) {
        let name = l.old.map_or(String::new(), |f| old.function(f).name());
        writeln!(say, "  lost {:?} {name} {} in {} blocks", l.reason, l.count, l.n_blocks)?;
    }
    if let [fresh] = fresh {
        let (fresh, _) = profile::fdata::parse(&std::fs::read(fresh)?, &new)?;
        let s = score(&new, &carried.profile, &fresh);
        writeln!(
            say,
            "B.P. {:.3} C.C. {:.3} (bolt {:.3}) overlap {:.3}",
            100.0 * s.bp_share, 100.0 * s.cc_share, 100.0 * s.cc_bolt_share, 100.0 * s.overlap_share
        )?;
        for l in s.losses.iter().take(25) {
            writeln!(
                say,
                "  {} mispredicted {} blocks {} of {} overlap {:.4}",
                new.function(l.func).name(), l.mispredicted, l.n_blocks_differ,
                new.function(l.func).n_blocks(), 100.0 * l.overlap_share
            )?;
        }
    }
    Ok(())
}

//! What each part is worth: `ablate OLD NEW PROFILE FRESH` carries an fdata profile with all parts on, then
//! each one off.

use matching::{CarryOptions, Matching, Options, Pass, carry, score};
use program::{Image, Program};
use std::io::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [old, new, profile, fresh] = args.as_slice() else {
        return Err("usage: ablate OLD NEW PROFILE FRESH".into());
    };
    let old = Program::analyze(Image::load(old.as_ref())?);
    let new = Program::analyze(Image::load(new.as_ref())?);
    let (profile, _) = profile::fdata::parse(&std::fs::read(profile)?, &old)?;
    let (fresh, _) = profile::fdata::parse(&std::fs::read(fresh)?, &new)?;
    let mut out = std::io::stdout();
    let mut row = |name: &str, matching: &Matching, options: &CarryOptions| {
        let carried = carry(&old, &new, matching, &profile, options);
        let s = score(&new, &carried.profile, &fresh);
        let p = carried.report.predicted;
        writeln!(
            out,
            "{name:<24} B.P. {:.3} C.C. {:.3} overlap {:.3} (predicted at most {:.3} {:.3})",
            100.0 * s.bp_share,
            100.0 * s.cc_share,
            100.0 * s.overlap_share,
            100.0 * p.bp.at_most,
            100.0 * p.cc.at_most
        )
    };
    let on = CarryOptions::default();
    let all = Matching::compute(&old, &new, &Options::all());
    row("all", &all, &on)?;
    for &pass in Pass::ALL {
        row(pass.name(), &Matching::compute(&old, &new, &Options::all().without(pass)), &on)?;
    }
    row("carry: infer", &all, &CarryOptions { infer: false, ..on })?;
    row("carry: look-through", &all, &CarryOptions { look_through: false, ..on })?;
    row("carry: predict-static", &all, &CarryOptions { predict_static: false, ..on })?;
    row("carry: new-functions", &all, &CarryOptions { new_functions: false, ..on })?;
    Ok(())
}

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
        r.carried_count,
        r.old_count,
        r.changed_count,
        r.n_new_functions,
        r.n_inexact,
        written.lost.len()
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
            100.0 * s.bp_share,
            100.0 * s.cc_share,
            100.0 * s.cc_bolt_share,
            100.0 * s.overlap_share
        )?;
        if let Ok(name) = std::env::var("SHOW") {
            for f in new.func_ids().filter(|&f| new.function(f).name().contains(&name)) {
                writeln!(say, "{}", new.function(f).name())?;
                for b in new.function(f).block_ids() {
                    let at = new.block(b).start;
                    let of = |p: &profile::Profile| p.blocks.get(&at).copied();
                    write!(
                        say,
                        "{b} {at} fresh {:?} carried {:?} {:?} ",
                        of(&fresh),
                        of(&carried.profile),
                        new.block(b).end
                    )?;
                    for m in matching.blocks.iter().filter(|m| m.new == b) {
                        let o = old.block(m.old);
                        write!(
                            say,
                            "<- {} {} ({:?}) {:?} {:.2} share {} {} ",
                            m.old,
                            o.start,
                            profile.blocks.get(&o.start),
                            m.method,
                            m.confidence,
                            m.share,
                            if m.partial { "partial" } else { "" }
                        )?;
                        for e in old.successors(m.old) {
                            let at = profile::Edge { from: o.start, to: old.block(e.to).start };
                            write!(say, "[{} {:?}] ", old.block(e.to).start, profile.edges.get(&at))?;
                        }
                    }
                    for e in new.successors(b) {
                        let at = profile::Edge { from: at, to: new.block(e.to).start };
                        write!(
                            say,
                            "\n      {:?} {} fresh {:?} carried {:?}",
                            e.kind,
                            at.to,
                            fresh.edges.get(&at),
                            carried.profile.edges.get(&at)
                        )?;
                    }
                    writeln!(say)?;
                }
            }
        }
        writeln!(
            say,
            "predicted B.P. {:.3} C.C. {:.3}",
            100.0 * r.predicted.bp_share,
            100.0 * r.predicted.cc_share
        )?;
        let (mut inside, mut all, mut narrow) = (0, 0, 0);
        let known: std::collections::BTreeSet<_> =
            fresh.edges.keys().filter_map(|e| new.function_at(e.from)).collect();
        for (at, range) in &carried.ranges {
            if new.function_at(*at).is_none_or(|f| !known.contains(&f)) {
                continue;
            }
            let partial = new.block_from(*at).is_some_and(|b| {
                let i = matching.blocks.partition_point(|m| m.new < b);
                matching.blocks.get(i).is_some_and(|m| m.new == b && m.partial)
            });
            if !partial {
                continue;
            }
            let count = fresh.blocks.get(at).copied().unwrap_or(0);
            all += 1;
            inside += usize::from(range.low <= count && count <= range.high);
            narrow += usize::from(range.high < u64::MAX);
        }
        writeln!(say, "ranges: {inside} of {all} hold, {narrow} bounded")?;
        let mut classes = std::collections::BTreeMap::<i32, [f64; 6]>::new();
        for b in (0..new.blocks.len()).map(program::BlockId::at) {
            let at = new.block(b).start;
            let Some(c) = carried.confidence.get(&at) else { continue };
            if new.function_at(at).is_none_or(|f| !known.contains(&f)) {
                continue;
            }
            let get = |p: &profile::Profile, to: program::BlockId| {
                p.edges.get(&profile::Edge { from: at, to: new.block(to).start }).copied().unwrap_or(0)
            };
            let k = (c * 20.0).round() as i32;
            let e = classes.entry(k).or_default();
            e[0] += 1.0;
            let (x, y) = (
                fresh.blocks.get(&at).copied().unwrap_or(0) > 0,
                carried.profile.blocks.get(&at).copied().unwrap_or(0) > 0,
            );
            e[1] += f64::from(x != y);
            let succ = new.successors(b);
            if new.block(b).end == program::BlockEnd::Branch && succ.len() == 2 {
                let (i, j) = if succ[0].kind == program::EdgeKind::Taken { (0, 1) } else { (1, 0) };
                let (t, n) = (get(&fresh, succ[i].to), get(&fresh, succ[j].to));
                let (ct, cn) = (get(&carried.profile, succ[i].to), get(&carried.profile, succ[j].to));
                let least = succ
                    .iter()
                    .map(|e| carried.confidence.get(&new.block(e.to).start).copied().unwrap_or(0.0))
                    .fold(*c, f32::min);
                let e = classes.entry((least * 20.0).round() as i32).or_default();
                e[2] += (ct.max(cn)) as f64;
                e[3] += (t.max(n) - if ct >= cn { t } else { n }) as f64;
            }
        }
        let total: f64 = classes.values().map(|e| e[2]).sum();
        for (k, e) in classes {
            writeln!(
                say,
                "  class {:.2}: blocks {} differ {:.4}; branch mass {:.4}% wrong {:.4} (costs {:.3})",
                f64::from(k) / 20.0,
                e[0],
                e[1] / e[0],
                100.0 * e[2] / total,
                e[3] / e[2],
                100.0 * e[3] / total
            )?;
        }
        let mut by_blocks = s.losses.clone();
        by_blocks.sort_by_key(|l| std::cmp::Reverse(l.n_blocks_differ));
        for l in by_blocks.iter().take(60) {
            let f = new.function(l.func);
            let (mut extra, mut unmatched, mut partial) = (0, 0, 0);
            for b in f.block_ids() {
                let at = new.block(b).start;
                let (x, y) = (
                    fresh.blocks.get(&at).copied().unwrap_or(0) > 0,
                    carried.profile.blocks.get(&at).copied().unwrap_or(0) > 0,
                );
                let mut m = matching.blocks.iter().filter(|m| m.new == b).peekable();
                if x != y {
                    extra += usize::from(y);
                    unmatched += usize::from(m.peek().is_none());
                    partial += usize::from(m.any(|m| m.partial));
                }
            }
            writeln!(
                say,
                "  CC {} differ {} of {}: extra {extra}, without match {unmatched}, partial {partial} {}",
                f.name(),
                l.n_blocks_differ,
                f.n_blocks(),
                if matching.functions.iter().any(|m| m.new == l.func) { "" } else { "NEW" }
            )?;
        }
        for l in s.losses.iter().take(40) {
            writeln!(
                say,
                "  {} mispredicted {} blocks {} of {} overlap {:.4}",
                new.function(l.func).name(),
                l.mispredicted,
                l.n_blocks_differ,
                new.function(l.func).n_blocks(),
                100.0 * l.overlap_share
            )?;
        }
    }
    Ok(())
}

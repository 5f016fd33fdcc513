//! How often a count of each confidence turns out wrong, beside an exact profile of the new build: what
//! `carry/predict.rs` is made of.
//!
//! `calibrate OLD NEW OLD.profile NEW.profile`: a row a class of confidence; or `calibrate BINARY PROFILE`:
//! what its counts say of it.

use matching::{CarryOptions, Consistency, Matching, Measured, Options, carry};
use profile::{Context, Profile};
use program::{BlockEnd, EdgeKind, Image, Origin, Program};
use std::path::Path;

fn program(path: &str) -> Program {
    Program::analyze(Image::load(Path::new(path)).expect("a binary"))
}

fn read(path: &str, program: &Program) -> Profile {
    let bytes = std::fs::read(path).expect("a file");
    profile::read(&bytes, &Context::of(program)).expect("a profile of it").profile
}

#[expect(clippy::print_stdout, reason = "an example has no other way to say what it found")]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [binary, counts] = args.as_slice() {
        let p = program(binary);
        let c = Consistency::of(&p, &Measured::of(&p, &read(counts, &p)));
        let n = c.inconsistencies.len();
        println!(
            "checked {} broken {n} per sample {:.3} exact {}",
            c.n_checked,
            c.executions_per_sample,
            c.is_exact()
        );
        return;
    }
    let [old, new, old_counts, new_counts] = args.as_slice() else {
        println!("calibrate OLD NEW OLD.profile NEW.profile | calibrate BINARY PROFILE");
        return;
    };
    let (old, new) = (program(old), program(new));
    let (counts, fresh) = (read(old_counts, &old), read(new_counts, &new));
    let matching = Matching::compute(&old, &new, &Options::all());
    let carried = carry(&old, &new, &matching, &counts, &CarryOptions::default());
    let (want, got) = (Measured::of(&new, &fresh), Measured::of(&new, &carried.profile));
    let (ran, ran_carried) = (want.times(&new), got.times(&new));
    // By twentieths, as a number from 0 to 20; -1 where there is none.
    let class = |c: Option<f32>| {
        c.map_or(-1, |c| (0_u8..20).filter(|&i| c * 20.0 > f32::from(i)).fold(0_i32, |n, _| n + 1))
    };
    let mut rows: std::collections::BTreeMap<i32, [f64; 4]> = std::collections::BTreeMap::new();
    for f in new.func_ids().filter(|&f| new.function(f).origin != Origin::Plt) {
        let blocks = || new.function(f).block_ids();
        let entered = blocks().any(|b| want.entries[b.index()].is_some_and(|c| c > 0));
        let inside =
            blocks().flat_map(|b| new.edge_ids(b)).any(|e| want.edges[e.index()].is_some_and(|c| c > 0));
        if entered && !inside && blocks().any(|b| !new.successors(b).is_empty()) {
            continue;
        }
        for b in blocks() {
            let sure = |b: program::BlockId| carried.confidence.get(&new.block(b).start).copied();
            let row = rows.entry(class(sure(b))).or_default();
            row[2] += 1.0;
            row[3] += f64::from(u8::from((ran[b.index()] > 0) != (ran_carried[b.index()] > 0)));
            if new.block(b).end != BlockEnd::Branch {
                continue;
            }
            let side = |kind| new.edge_ids(b).find(|&e| new.edge(e).kind == kind);
            let (Some(t), Some(n)) = (side(EdgeKind::Taken), side(EdgeKind::FallThrough)) else { continue };
            let least = [sure(b), sure(new.edge(t).to), sure(new.edge(n).to)]
                .into_iter()
                .reduce(|a, b| Some(a?.min(b?)))
                .flatten();
            let c = |m: &Measured, e: program::EdgeId| m.edges[e.index()].unwrap_or(0) as f64;
            let (ft, fn_) = (c(&want, t), c(&want, n));
            let right = if c(&got, t) >= c(&got, n) { ft } else { fn_ };
            let row = rows.entry(class(least)).or_default();
            row[0] += ft.max(fn_);
            row[1] += ft.max(fn_) - right;
        }
    }
    let total: f64 = rows.values().map(|r| r[0]).sum();
    for (class, [mass, wrong, n, differ]) in rows {
        println!("{class} {:.9} {:.9} {n} {differ}", mass / total, wrong / total);
    }
}

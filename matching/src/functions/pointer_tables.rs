//! Functions that tables of pointers hold at the same place: tables of methods, of an interface, of commands.
//!
//! Two free functions are each other if the pointers around them, at the same distances, are to functions
//! that are each other, and no string beside them says otherwise. It finds what changed too much to be known
//! by content, such as what became a call of something new.
//!
//! Invariant: takes only what is free on both sides, and never two different names.
//!
//! Source: ours, past BMAT.

use super::State;
use super::features;
use crate::relation::FunctionMethod;
use program::image::RelocationTo;
use program::{Program, Va};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// How far around a pointer others are looked for, in bytes.
const AROUND: u64 = 256;
/// Pointers to matched functions looked at on each side.
const EACH_SIDE: usize = 2;

/// Matches what stands at the same place of tables.
pub fn run(state: &mut State<'_>) {
    let (old, new) =
        rayon::join(|| features::pointers(state.old.program), || features::pointers(state.new.program));
    let old_slots = by_place(&old);
    let new_slots: BTreeMap<Va, usize> = by_place(&new).into_iter().collect();
    let pairs = &state.pairs;
    let counterpart = |f: usize| pairs.new_of(f);
    let programs = (state.old.program, state.new.program);
    let found: Vec<Vec<(usize, usize)>> = (0..old_slots.len())
        .into_par_iter()
        .filter(|&i| pairs.new_of(old_slots[i].1).is_none())
        .map(|i| {
            let (at, free) = old_slots[i];
            let near = |slot: &&(Va, usize)| slot.0.0.abs_diff(at.0) <= AROUND;
            let matched = |slot: &(Va, usize)| Some((slot.0, counterpart(slot.1)?));
            let before = old_slots[..i].iter().rev().take_while(near).filter_map(matched).take(EACH_SIDE);
            let after = old_slots[i + 1..].iter().take_while(near).filter_map(matched).take(EACH_SIDE);
            let anchors: Vec<(Va, usize)> = before.chain(after).collect();
            let mut agree: BTreeMap<Va, usize> = BTreeMap::new();
            for &(anchor, other) in &anchors {
                for &place in &new[other] {
                    *agree.entry(Va(place.0.wrapping_add(at.0.wrapping_sub(anchor.0)))).or_default() += 1;
                }
            }
            let enough = |&(_, n): &(&Va, &usize)| *n >= 2 && 2 * *n > anchors.len();
            let slots =
                agree.iter().filter(enough).filter_map(|(slot, _)| Some((*slot, *new_slots.get(slot)?)));
            let free_there =
                slots.filter(|&(to, n)| pairs.old_of(n).is_none() && !contradicted(programs, at, to));
            free_there.map(|(_, n)| (free, n)).collect()
        })
        .collect();
    let mut votes: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for pair in found.into_iter().flatten() {
        *votes.entry(pair).or_default() += 1;
    }
    // Whoever stands where two others stood was not told apart.
    let (mut of_old, mut of_new) = (BTreeMap::new(), BTreeMap::new());
    for &(o, n) in votes.keys() {
        *of_old.entry(o).or_insert(0) += 1;
        *of_new.entry(n).or_insert(0) += 1;
    }
    for (o, n) in votes.into_keys().filter(|(o, n)| of_old[o] == 1 && of_new[n] == 1) {
        if !(state.old.is_named(o) && state.new.is_named(n)) {
            state.take(o, n, FunctionMethod::Neighbours, 0.8);
        }
    }
}

/// Whether the strings nearest to two slots say that they are of different things.
fn contradicted((old, new): (&Program, &Program), from: Va, to: Va) -> bool {
    let text = |p: &Program, at: Va| match p.image.relocation_at(at).map(|r| &r.to) {
        Some(RelocationTo::Address(to)) => features::text_at(p, *to),
        Some(_) => None,
        None if p.image.kind.is_relocated() => None,
        None => {
            let word = p.image.bytes_from(at)?.first_chunk::<8>()?;
            features::text_at(p, Va(u64::from_le_bytes(*word)))
        }
    };
    let at = |step: u64| (text(old, from.plus(step)), text(new, to.plus(step)));
    let steps = (1..=AROUND / 16).map(|k| [at(k * 8), at((k * 8).wrapping_neg())]);
    let mut strings = steps.filter(|both| both.iter().any(|(a, b)| a.is_some() || b.is_some()));
    strings.next().is_some_and(|both| both.iter().any(|(a, b)| a != b))
}

/// Where data point to which function, by place.
fn by_place(pointers: &[Vec<Va>]) -> Vec<(Va, usize)> {
    let mut out: Vec<(Va, usize)> =
        pointers.iter().enumerate().flat_map(|(f, list)| list.iter().map(move |&at| (at, f))).collect();
    out.sort_unstable();
    out
}

//! Which ranges of code are functions.

use crate::addr::Va;
use crate::image::{Image, SymbolKind};
use crate::model::Origin;
use std::collections::BTreeMap;
use std::ops::Range;

/// A function before its code is looked at.
pub struct Candidate {
    pub entry: Va,
    pub ranges: Vec<Range<Va>>,
    pub names: Vec<Box<str>>,
    pub origin: Origin,
}

/// Candidates by entry: from symbols and unwind ranges.
pub fn candidates(image: &Image) -> Vec<Candidate> {
    let mut found: BTreeMap<Va, Candidate> = BTreeMap::new();
    for s in &image.symbols {
        let function = matches!(s.kind, SymbolKind::Function | SymbolKind::IndirectFunction);
        if !function || !image.is_code(s.at) {
            continue;
        }
        let c = found.entry(s.at).or_insert_with(|| Candidate {
            entry: s.at,
            ranges: vec![s.at..s.at.plus(s.len)],
            names: Vec::new(),
            origin: Origin::Symbol,
        });
        if !c.names.contains(&s.name) {
            c.names.push(s.name.clone());
        }
        for r in &mut c.ranges {
            r.end = r.end.max(s.at.plus(s.len));
        }
    }
    for u in &image.unwind {
        if !image.is_code(u.range.start) {
            continue;
        }
        let c = found.entry(u.range.start).or_insert_with(|| Candidate {
            entry: u.range.start,
            ranges: vec![u.range.clone()],
            names: Vec::new(),
            origin: Origin::Unwind,
        });
        for r in &mut c.ranges {
            r.end = r.end.max(u.range.end);
        }
    }
    let mut all: Vec<Candidate> = found.into_values().collect();
    for i in 0..all.len() {
        let limit = all.get(i + 1).map_or(Va(u64::MAX), |next| next.entry);
        for r in &mut all[i].ranges {
            r.end = r.end.min(limit);
        }
    }
    all.retain(|c| c.ranges.iter().any(|r| r.end > r.start));
    all
}

//! Pre-aggregated samples: what `perf2bolt -pa` reads, so branch samples that somebody has summed up.
//!
//! ```text
//! B [ID:]FROM [ID:]TO COUNT MISPREDICTS     a branch, from the instruction to where it went
//! F [ID:]START [ID:]END COUNT               straight execution from START to the instruction END, reached by
//!                                           a branch from here
//! f [ID:]START [ID:]END COUNT               the same, reached from another image or by a return
//! ```
//! Addresses are hexadecimal, from the image's load address: as in the ELF file. ID is the build-id of
//! another image, `X` if nothing is known of it; without one it is the program.
//!
//! Source: LLVM 19, `bolt/include/bolt/Profile/DataAggregator.h`, "parsePreAggregatedLBRSamples".

use crate::complete::derive::{add, blocks_alone, derive_blocks};
use crate::complete::transfers::Layer;
use crate::counts::{Exactness, Lost, Profile};
use crate::losses::Losses;
use crate::vocabulary::{Format, ReadError, Written};
use program::{EdgeKind, Program, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let Some(line) = text.lines().find(|l| !l.is_empty()) else { return false };
    let fields: Vec<&str> = line.split_whitespace().collect();
    let has_places = fields.len() >= 4 && place(fields[1]).is_ok() && place(fields[2]).is_ok();
    matches!(fields.first(), Some(&("B" | "F" | "f"))) && has_places
}

/// The image's build-id, `None` for the program itself; and the address.
fn place(text: &str) -> Result<(Option<&str>, u64), String> {
    let (id, digits) = match text.split_once(':') {
        Some((id, digits)) => (Some(id), digits),
        None => (None, text),
    };
    let at = u64::from_str_radix(digits, 16).map_err(|_| format!("{text:?} is no address"))?;
    Ok((id, at))
}

/// Reads branch samples of `program`; the program's own build-id may be written out.
///
/// # Errors
/// [`ReadError::BadLine`] for a line that is not as described above.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let text = String::from_utf8_lossy(bytes);
    let own: Option<String> =
        program.image.build_id.as_ref().map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
    let mut layer = Layer::onto(program);
    for (i, line) in text.lines().enumerate() {
        let bad = |what: String| ReadError::BadLine { format: Format::Preagg, line: i + 1, what };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some((&kind, fields)) = fields.split_first() else { continue };
        let (Some(from), Some(to), Some(count)) = (fields.first(), fields.get(1), fields.get(2)) else {
            return Err(bad("a record has two addresses and a count".to_owned()));
        };
        let va = |text: &str| {
            let (id, at) = place(text)?;
            let ours = id.is_none() || id == own.as_deref();
            Ok::<_, String>(ours.then_some(Va(at)))
        };
        let (from, to) = (va(from).map_err(bad)?, va(to).map_err(bad)?);
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no count"));
        let count = number(count).map_err(bad)?;
        match (kind, from, to) {
            ("B", None, None) => {}
            ("B", from, to) => {
                let misses = fields.get(3).map_or(Ok(0), |m| number(m)).map_err(bad)?;
                layer.branch(from, to, misses, count);
            }
            ("F" | "f", Some(start), Some(end)) => layer.straight(start, end, count),
            ("F" | "f", ..) => {}
            _ => return Err(bad(format!("{kind:?} is no kind of record"))),
        }
    }
    let Layer { mut profile, lost, .. } = layer;
    profile.exactness = Exactness::Sampled;
    derive_blocks(&mut profile, program, &|_| false);
    Ok((profile, lost.into_list()))
}

/// Writes edges, calls and entries.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let mut text = String::new();
    let mut lost = Losses::default();
    let mut count = 0u64;
    let mut functions = BTreeSet::new();
    let mut entered: BTreeMap<Va, u64> = BTreeMap::new();
    for (edge, &n) in profile.edges.iter().filter(|(_, n)| **n > 0) {
        let (Some(from), Some(to)) = (program.block_from(edge.from), program.block_from(edge.to)) else {
            lost.add(&edge.from.to_string(), "the program has no such edge", n);
            continue;
        };
        let (source, target) = (program.block(from), program.block(to));
        let kind = program.successors(from).iter().find(|e| e.to == to).map(|e| e.kind);
        let misses = profile.mispredicts.get(edge).copied().unwrap_or(0);
        if misses > 0 && matches!(kind, Some(EdgeKind::FallThrough | EdgeKind::LandingPad)) {
            lost.add(
                &program.function(source.func).name(),
                "the format has mispredictions of taken branches alone",
                misses,
            );
        }
        let _ = match kind {
            Some(EdgeKind::FallThrough) => {
                writeln!(text, "F {:x} {:x} {n}", edge.from.0, target.last_insn().0)
            }
            Some(EdgeKind::LandingPad) => writeln!(text, "B X:0 {:x} {n} 0", edge.to.0),
            _ => {
                writeln!(text, "B {:x} {:x} {n} {misses}", source.last_insn().0, edge.to.0)
            }
        };
        functions.insert(source.func);
        count = count.saturating_add(n);
    }
    for (&(at, callee), &n) in profile.calls.iter().filter(|(_, n)| **n > 0) {
        let _ = writeln!(text, "B {:x} {:x} {n} 0", at.0, callee.0);
        add(&mut entered, callee, n);
        functions.extend(program.function_at(at));
        count = count.saturating_add(n);
    }
    for (&at, &n) in profile.calls_out.iter().filter(|(_, n)| **n > 0) {
        let _ = writeln!(text, "B {:x} X:0 {n} 0", at.0);
        functions.extend(program.function_at(at));
        count = count.saturating_add(n);
    }
    for (&at, &n) in &profile.entries {
        let rest = n.saturating_sub(entered.get(&at).copied().unwrap_or(0));
        functions.extend(program.function_at(at));
        count = count.saturating_add(rest);
        if rest > 0 {
            let _ = writeln!(text, "B X:0 {:x} {rest} 0", at.0);
        }
    }
    for (at, n) in blocks_alone(profile, program) {
        lost.add(&at.to_string(), "a block's count without a way in or out has no record", n);
    }
    Written { bytes: text.into_bytes(), n_functions: functions.len(), count, lost: lost.into_list() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Edge;
    use crate::testing::{PERF2BOLT, RUNS, as_fdata, branching, function};

    #[test]
    fn sums_mean_to_us_what_they_mean_to_perf2bolt() {
        let program = branching();
        let (profile, lost) = parse(RUNS.as_bytes(), &program).unwrap();
        assert_eq!((as_fdata(&profile, &program), lost), (PERF2BOLT.map(str::to_owned).to_vec(), vec![]));
        let back = parse(&write(&profile, &program).bytes, &program).unwrap();
        assert_eq!(back, (profile, vec![]));
    }

    #[test]
    fn branches_and_straight_runs_become_edges_and_come_back() {
        let program = branching();
        let f = program.function(function(&program, "f")).entry.0;
        let g = program.function(function(&program, "g")).entry.0;
        let text = format!(
            "B X:0 {f:x} 9 0\nF {f:x} {:x} 3\nB {:x} {:x} 7 2\nB {:x} {g:x} 3 0\nF {g:x} {g:x} 3\n\
             B {:x} {f:x} 1 0\nf {:x} {:x} 3\nB {:x} abcd:40 5 0\nB abcd:44 {:x} 5 0\nB abcd:1 abcd:2 50 0\n",
            f + 4,
            f + 2,
            f + 9,
            f + 4,
            g,
            f + 9,
            f + 9,
            f + 4,
            f + 9,
        );
        let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
        assert_eq!(lost, []);
        let edge = |a, b| Edge { from: Va(f + a), to: Va(f + b) };
        assert_eq!(profile.edges, [(edge(0, 4), 3), (edge(0, 9), 7)].into());
        assert_eq!(profile.mispredicts, [(edge(0, 9), 2)].into());
        assert_eq!(profile.calls, [((Va(f + 4), Va(g)), 3), ((Va(g), Va(f)), 1)].into());
        assert_eq!(profile.calls_out, [(Va(f + 4), 5)].into());
        assert_eq!(profile.entries, [(Va(f), 10), (Va(g), 3)].into());
        assert_eq!(profile.blocks[&Va(f)], 10);
        let (back, lost) = parse(&write(&profile, &program).bytes, &program).unwrap();
        assert_eq!((back, lost), (profile, vec![]));
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_line() {
        let program = branching();
        for (text, want) in [
            ("B 1 2 3\nX 1 2 3", "line 2 is no preagg record: \"X\" is no kind of record"),
            ("B 1 2", "line 1 is no preagg record: a record has two addresses and a count"),
            ("F 1 zz 3", "line 1 is no preagg record: \"zz\" is no address"),
            ("F 1 2 -3", "line 1 is no preagg record: \"-3\" is no count"),
        ] {
            assert_eq!(parse(text.as_bytes(), &program).unwrap_err().to_string(), want);
        }
    }
}

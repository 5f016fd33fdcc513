//! LLVM's sample profile as text: what clang reads with `-fprofile-sample-use`.
//!
//! ```text
//! main:184019:1                 function, samples in its body and what is inlined in it, entries
//!  4: 534                       line, counted from the function's declaration, samples
//!  7: 2064 f:1000 g:2           with calls made there
//!  9: inlined:1000              a function inlined at that line: its body follows, one blank further in
//!   1: 1000
//! ```
//! A line of several blocks has the count of the one that ran most, as llvm-profgen has it. Discriminators
//! are not written. Without DWARF there are no lines and so no profile.
//!
//! Source: clang's user manual, "Sample Profile Text Format".

use crate::counts::{Exactness, ImageRef, Lost, Profile};
use crate::formats::lines::source::{BlockSource, counted_blocks};
use crate::losses::Losses;
use crate::vocabulary::{Format, NO_LINE, ReadError, Written, is_one_line, one_line};
use program::{Declarations, Frame, FuncId, Lines, Program};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let header = lines.next().and_then(header);
    header.is_some() && lines.next().is_none_or(|l| l.starts_with(' ') || self::header(l).is_some())
}

/// `NAME:TOTAL:HEAD`; names hold colons too.
fn header(line: &str) -> Option<(&str, u64, u64)> {
    let mut fields = line.trim_end().rsplitn(3, ':');
    let (head, total, name) = (fields.next()?, fields.next()?, fields.next()?);
    let plain = !name.is_empty() && !name.starts_with(' ');
    plain.then_some((name, total.parse().ok()?, head.parse().ok()?))
}

/// A line within its function, as LLVM has it: sixteen bits.
type Offset = u32;

/// Counts of a function, or of an inlined copy of one.
#[derive(Default)]
struct Body {
    head: u64,
    lines: BTreeMap<Offset, u64>,
    calls: BTreeMap<Offset, BTreeMap<String, u64>>,
    inlined: BTreeMap<(Offset, String), Body>,
}

impl Body {
    fn total(&self) -> u64 {
        let inlined = self.inlined.values().map(Body::total);
        self.lines.values().copied().chain(inlined).fold(0, u64::saturating_add)
    }

    /// In LLVM's order: lines before inlined bodies, callees by how often they are called.
    fn print(&self, text: &mut String, depth: usize) {
        let indent = " ".repeat(depth);
        for (offset, n) in &self.lines {
            let _ = write!(text, "{indent}{offset}: {n}");
            let mut calls: Vec<(&String, &u64)> = self.calls.get(offset).into_iter().flatten().collect();
            calls.sort_by_key(|(callee, n)| (std::cmp::Reverse(**n), *callee));
            for (callee, n) in calls {
                let _ = write!(text, " {callee}:{n}");
            }
            text.push('\n');
        }
        for ((offset, callee), body) in &self.inlined {
            let _ = writeln!(text, "{indent}{offset}: {callee}:{}", body.total());
            body.print(text, depth + 1);
        }
    }
}

/// The lines of a program, and how a place in it is named in a sample profile.
struct SourceLines {
    lines: Lines,
    declared: Declarations,
}

impl SourceLines {
    fn of(program: &Program) -> Option<SourceLines> {
        let lines = Lines::load(&program.image)?;
        let declared = lines.declarations();
        Some(SourceLines { lines, declared })
    }

    /// The lines from each frame's declaration, outermost first, with the name of what is inlined there.
    fn path(&self, frames: &[Frame]) -> Option<Vec<(Offset, Option<String>)>> {
        let mut path = Vec::new();
        for (i, frame) in frames.iter().enumerate().rev() {
            let from = self.declared.line(frame)?;
            let offset = frame.line?.wrapping_sub(from) & 0xffff;
            let inlined = match i.checked_sub(1) {
                Some(inner) => Some(frames.get(inner)?.function.clone()?),
                None => None,
            };
            path.push((offset, inlined));
        }
        (!path.is_empty()).then_some(path)
    }
}

/// Writes counts of lines, calls and entries. `None` without line information.
pub fn write(profile: &Profile, program: &Program) -> Option<Written> {
    let source_lines = SourceLines::of(program)?;
    let mut lost = Losses::default();
    let mut functions: BTreeMap<FuncId, Body> = BTreeMap::new();
    let mut count = 0u64;
    for (id, n) in counted_blocks(profile, program, &mut lost) {
        let block = program.block(id);
        let function = program.function(block.func);
        let outer = functions.entry(block.func).or_default();
        if block.start == function.entry {
            outer.head = profile.entries.get(&function.entry).copied().unwrap_or(n);
        }
        let source = BlockSource::of(program, Some(&source_lines.lines), id);
        let mut placed = false;
        for (insn, frames) in program.insns(id).zip(&source.insns) {
            let Some(path) = source_lines.path(frames) else { continue };
            placed = true;
            let mut body = &mut *outer;
            for (offset, inlined) in path {
                match inlined {
                    Some(name) => body = body.inlined.entry((offset, name)).or_default(),
                    None => {
                        let most = body.lines.entry(offset).or_insert(0);
                        *most = (*most).max(n);
                        let at = insn.at();
                        for ((_, callee), n) in
                            profile.calls.range((at, program::Va(0))..=(at, program::Va(u64::MAX)))
                        {
                            let Some(callee) = program.function_at(*callee) else { continue };
                            let callee = program.function(callee);
                            if !is_one_line(&callee.name()) {
                                continue;
                            }
                            let name = callee.import.as_deref().map_or_else(|| callee.name(), str::to_owned);
                            let sum = body.calls.entry(offset).or_default().entry(name).or_insert(0);
                            *sum = sum.saturating_add(*n);
                        }
                    }
                }
            }
        }
        if placed {
            count = count.saturating_add(n);
        } else {
            lost.add(&function.name(), "no source line is known of its code", n);
        }
    }
    // LLVM has the hottest function first; among equals, by name.
    let mut sorted: Vec<(String, &Body)> = functions
        .iter()
        .filter(|(_, body)| body.total() > 0)
        .map(|(&func, body)| (program.function(func).name(), body))
        .collect();
    sorted.sort_by(|a, b| (b.1.total(), &a.0).cmp(&(a.1.total(), &b.0)));
    // It knows functions by name alone: lines of one are no lines of the other.
    let mut named = BTreeSet::new();
    sorted.retain(|(name, body)| {
        if !is_one_line(name) {
            lost.add(&one_line(name), NO_LINE, body.total());
            return false;
        }
        let first = named.insert(name.clone());
        if !first {
            lost.add(name, "another function of that name ran more", body.total());
        }
        first
    });
    let mut text = String::new();
    for (name, body) in &sorted {
        let _ = writeln!(text, "{name}:{}:{}", body.total(), body.head);
        body.print(&mut text, 1);
    }
    Some(Written { bytes: text.into_bytes(), n_functions: sorted.len(), count, lost: lost.into_list() })
}

/// What a text holds, by function.
fn bodies(text: &str) -> Result<HashMap<&str, Body>, ReadError> {
    let mut functions: HashMap<&str, Body> = HashMap::new();
    let mut path: Vec<(Offset, String)> = Vec::new();
    let mut current = "";
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#')) {
        let bad =
            || ReadError::BadLine { format: Format::LlvmSample, line: i + 1, what: format!("{line:?}") };
        let depth = line.len() - line.trim_start_matches(' ').len();
        if depth == 0 {
            let (name, _, head) = header(line).ok_or_else(bad)?;
            current = name;
            functions.entry(name).or_default().head = head;
            path.clear();
            continue;
        }
        let (place, rest) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        if place.starts_with('!') {
            // Checksums and attributes.
            continue;
        }
        // A discriminator tells copies of a line apart; our lines have none.
        let offset: Offset = place.split('.').next().and_then(|o| o.parse().ok()).ok_or_else(bad)?;
        path.truncate(depth - 1);
        let mut body = functions.get_mut(current).ok_or_else(bad)?;
        for (offset, name) in &path {
            body = body.inlined.entry((*offset, name.clone())).or_default();
        }
        let first = rest.split_whitespace().next().ok_or_else(bad)?;
        match first.parse::<u64>() {
            Ok(n) => {
                let most = body.lines.entry(offset).or_insert(0);
                *most = (*most).max(n);
            }
            Err(_) => {
                let (name, _) = first.rsplit_once(':').ok_or_else(bad)?;
                path.push((offset, name.to_owned()));
            }
        }
    }
    Ok(functions)
}

/// Reads counts of lines back onto blocks: a block ran as often as the line of it that ran least.
///
/// # Errors
/// [`ReadError::BadLine`] for a line that is not as described above, [`ReadError::NoLines`] if the program
/// has no lines.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let source_lines = SourceLines::of(program).ok_or(ReadError::NoLines { format: Format::LlvmSample })?;
    let text = String::from_utf8_lossy(bytes);
    let functions = bodies(&text)?;
    let mut profile =
        Profile { image: ImageRef::of(&program.image), exactness: Exactness::Inferred, ..Profile::default() };
    let mut found = BTreeSet::new();
    let of = |func| program.function(func).names.iter().find_map(|n| functions.get_key_value(&**n));
    let mut n_named: HashMap<&str, usize> = HashMap::new();
    for (name, _) in program.func_ids().filter_map(of) {
        *n_named.entry(name).or_insert(0) += 1;
    }
    for func in program.func_ids() {
        let function = program.function(func);
        let Some((name, outer)) = of(func).filter(|(name, _)| n_named.get(**name) == Some(&1)) else {
            continue;
        };
        found.insert(*name);
        profile.entries.insert(function.entry, outer.head);
        for id in function.block_ids() {
            let source = BlockSource::of(program, Some(&source_lines.lines), id);
            // A line that the file does not have did not run as code with counts: nor did the block.
            let of_line = |path: Vec<(Offset, Option<String>)>| {
                let mut body = outer;
                for (offset, inlined) in path {
                    match inlined {
                        Some(name) => body = body.inlined.get(&(offset, name))?,
                        None => return body.lines.get(&offset).copied(),
                    }
                }
                None
            };
            let paths = source.insns.iter().filter_map(|frames| source_lines.path(frames));
            let known: Option<Vec<u64>> = paths.map(of_line).collect();
            if let Some(n) = known.and_then(|counts| counts.into_iter().min()) {
                profile.blocks.insert(program.block(id).start, n);
            }
        }
    }
    let mut lost = Losses::default();
    for (name, body) in functions.iter().filter(|(name, _)| !found.contains(**name)) {
        let why = match n_named.get(*name) {
            Some(_) => "several functions of the program have that name",
            None => "the program has no function of that name",
        };
        lost.add(name, why, body.total());
    }
    Ok((profile, lost.into_list()))
}

#[cfg(test)]
mod tests;

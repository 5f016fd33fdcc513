//! fdata: the text profile that llvm-bolt and perf2bolt write and llvm-bolt reads.
//!
//! One record a line, fields separated by blanks; a blank or backslash in a name has a backslash before it.
//!
//! ```text
//! KIND NAME OFFSET KIND NAME OFFSET MISPREDICTS COUNT      a branch, fall-through, call or return
//! no_lbr [EVENT…]                                          then a record is a sample:
//! KIND NAME OFFSET COUNT
//! boltedcollection                                         first line: taken on a program that llvm-bolt
//!                                                          made, and translated back: a record starts at its
//!                                                          block, not its branch
//! ```
//! KIND: 0 nothing known (`0 [unknown] 0`), 1 a global symbol, 2 a local one (llvm-bolt writes 1 for both); 3
//! to 5 the same in records of memory accesses. OFFSET is hexadecimal, from the symbol. Records that say the
//! same add up.
//!
//! What llvm-bolt does with a record, so what may be written (19.1.7):
//! - Inside a function, `to` starts a block, and `from` is a branch, or the last instruction before `to` that
//!   is no padding. A record that fits no edge makes it reject *all* records of that function.
//! - A record that leaves the function starts at a call, branch or return.
//! - A record from elsewhere to offset 0 counts an entry, one to a landing pad or inner entry likewise.
//!
//! Invariant: what is doubtful is dropped and reported, never written.
//!
//! Source: LLVM 19, `bolt/include/bolt/Profile/DataReader.h` (format), `bolt/lib/Profile/DataReader.cpp`
//! (recordBranch, evaluateProfileData).

use crate::complete::derive::{add, blocks_alone, derive_blocks};
use crate::complete::transfers::Layer;
use crate::counts::{Exactness, Lost, Profile};
use crate::formats::bolt::bat;
use crate::formats::bolt::view::{BoltFunction, BoltView};
use crate::losses::Losses;
use crate::vocabulary::{Format, NO_LINE, ReadError, Written, is_one_line, one_line};
use program::arch::ControlFlow;
use program::{EdgeKind, Program, Va};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Where a record starts or ends.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Location {
    Unknown,
    Symbol { name: String, offset: u64 },
}

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let Some(line) = text.lines().find(|l| !l.is_empty()) else { return false };
    let fields = split(line);
    let hexadecimal = |i: usize| fields.get(i).is_some_and(|f| u64::from_str_radix(f, 16).is_ok());
    let kind =
        |i: usize| fields.get(i).is_some_and(|f| matches!(f.as_ref(), "0" | "1" | "2" | "3" | "4" | "5"));
    line == "boltedcollection"
        || line == "no_lbr"
        || line.starts_with("no_lbr ")
        || matches!(fields.len(), 7 | 8) && kind(0) && hexadecimal(2) && kind(3) && hexadecimal(5)
}

/// Reads fdata of `program`.
///
/// Block counts are derived: the larger of what comes in and what goes out, for blocks of which a record
/// speaks.
///
/// # Errors
/// [`ReadError::BadLine`] for a line that is no record. Records that do not fit the program are in the second
/// part.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let text = String::from_utf8_lossy(bytes);
    let view = BoltView::of(program);
    let mut reader = Reader { view: &view, layer: Layer::onto(program), is_translated: false };
    let mut samples = false;
    for (i, line) in text.lines().enumerate() {
        let bad =
            |what: &str| ReadError::BadLine { format: Format::Fdata, line: i + 1, what: what.to_owned() };
        if line.is_empty() {
            continue;
        }
        if line == "boltedcollection" {
            if bat::is_bolted(&program.image) {
                return Err(bad(
                    "perf2bolt has translated it back to the program before llvm-bolt; this one is the program after it",
                ));
            }
            reader.is_translated = true;
            continue;
        }
        if line == "no_lbr" || line.starts_with("no_lbr ") {
            samples = true;
            continue;
        }
        let fields = split(line);
        let kind = fields.first().map(Cow::as_ref);
        if matches!(kind, Some("3" | "4" | "5")) {
            reader.layer.lost.add("records of memory accesses", "a profile has no counts of them", 0);
        } else if samples {
            let [kind, name, offset, count] = fields.as_slice() else {
                return Err(bad("a sample has four fields"));
            };
            let location = location(kind, name, offset).map_err(|what| bad(&what))?;
            reader.sample(&location, number(count).map_err(|what| bad(&what))?);
        } else {
            let [fk, fname, foff, tk, tname, toff, misses, count] = fields.as_slice() else {
                return Err(bad("a branch has eight fields"));
            };
            let from = location(fk, fname, foff).map_err(|what| bad(&what))?;
            let to = location(tk, tname, toff).map_err(|what| bad(&what))?;
            let misses = number(misses).map_err(|what| bad(&what))?;
            reader.branch(&from, &to, misses, number(count).map_err(|what| bad(&what))?);
        }
    }
    let Layer { mut profile, lost, .. } = reader.layer;
    if samples || !profile.mispredicts.is_empty() {
        profile.exactness = Exactness::Sampled;
    }
    let joined = |at: Va| view.function_at(at).is_some_and(|f| !view.blocks(f).is_leader(at));
    derive_blocks(&mut profile, program, &joined);
    Ok((profile, lost.into_list()))
}

/// The fields of a line, escapes resolved.
fn split(line: &str) -> Vec<Cow<'_, str>> {
    let blank = |c: char| c == ' ' || c == '\t';
    if !line.contains('\\') {
        return line.split(blank).filter(|f| !f.is_empty()).map(Cow::Borrowed).collect();
    }
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' if fields.last().is_some_and(|f| !f.is_empty()) => fields.push(String::new()),
            ' ' | '\t' => {}
            '\\' => fields.last_mut().into_iter().for_each(|f| f.extend(chars.next())),
            c => fields.last_mut().into_iter().for_each(|f| f.push(c)),
        }
    }
    fields.into_iter().filter(|f| !f.is_empty()).map(Cow::Owned).collect()
}

fn location(kind: &str, name: &str, offset: &str) -> Result<Location, String> {
    let offset =
        u64::from_str_radix(offset, 16).map_err(|_| format!("{offset:?} is no hexadecimal offset"))?;
    match kind {
        "0" => Ok(Location::Unknown),
        "1" | "2" => Ok(Location::Symbol { name: name.to_owned(), offset }),
        _ => Err(format!("{kind:?} is no kind of place")),
    }
}

fn number(field: &str) -> Result<u64, String> {
    field.parse().map_err(|_| format!("{field:?} is no count"))
}

/// Whether an instruction can leave a block for another place than the one behind it.
fn transfers(flow: ControlFlow) -> bool {
    !matches!(flow, ControlFlow::Next | ControlFlow::Stop | ControlFlow::Invalid)
}

/// Why records of a name are left out.
const NO_SYMBOL: &str = "the program has no symbol of that name";

struct Reader<'a> {
    view: &'a BoltView<'a>,
    layer: Layer<'a>,
    /// Translated back from a program that llvm-bolt made: records start at blocks, not at branches.
    is_translated: bool,
}

impl Reader<'_> {
    /// The branch that a record means which was translated back: the one of its block that leads where the
    /// record goes.
    fn leaving(&self, from: Va, to: Option<Va>) -> Option<Va> {
        let function = self.view.function_at(from)?;
        let blocks = self.view.blocks(function);
        let leader = blocks.leader_of(from)?;
        if let Some(to) = to.filter(|&to| blocks.is_leader(to)) {
            let padded = || blocks.leaves_at(leader).filter(|_| blocks.over_padding(leader, to).is_some());
            if let Some(exit) = blocks.exit_to(leader, to).or_else(padded) {
                return Some(exit);
            }
        }
        if blocks.insn(from).is_some_and(|i| transfers(i.flow)) {
            return Some(from);
        }
        let insns = || blocks.insns_of(leader).iter().filter(|i| i.at >= from);
        let direct = insns().find(|i| i.flow.target().is_some() && i.flow.target() == to);
        let indirect = || insns().find(|i| transfers(i.flow) && i.flow.target().is_none());
        direct.or_else(indirect).map(|i| i.at)
    }

    /// The address, `None` for a location that is not known; nothing at all if it is lost.
    fn address(&mut self, location: &Location, count: u64) -> Option<Option<Va>> {
        let Location::Symbol { name, offset } = location else { return Some(None) };
        let Some(start) = self.view.address_of(name) else {
            self.layer.lost.add(name, NO_SYMBOL, count);
            return None;
        };
        Some(Some(start.plus(*offset)))
    }

    fn sample(&mut self, at: &Location, count: u64) {
        if let Some(Some(at)) = self.address(at, count) {
            self.layer.sample(at, count);
        }
    }

    fn branch(&mut self, from: &Location, to: &Location, misses: u64, count: u64) {
        let known = |p: &Location, view: &BoltView| matches!(p, Location::Symbol { name, .. } if view.address_of(name).is_some());
        // A call to something that the program has no symbol for (an import, another image) is still a call.
        let unknown_target = !known(to, self.view);
        if let (Location::Unknown, Location::Symbol { name, .. }, true) = (from, to, unknown_target) {
            return self.layer.lost.add(name, NO_SYMBOL, count);
        }
        let Some(mut from) = self.address(from, count) else { return };
        let to = if unknown_target { None } else { self.address(to, count).flatten() };
        if self.is_translated
            && let Some(at) = from
        {
            from = self.leaving(at, to).or(from);
        }
        let to = match (from, to) {
            (Some(from), Some(to)) => Some(self.across(from, to).unwrap_or(to)),
            _ => to,
        };
        self.layer.branch(from, to, misses, count);
    }

    /// Where the jump at `from` goes if it leads into the part of its function that starts at `to`, but not
    /// to its start: instrumentation has no other offset for a jump from one part into another.
    fn across(&self, from: Va, to: Va) -> Option<Va> {
        let program = self.layer.program();
        let (here, there) = (self.view.function_at(from)?, self.view.function_at(to)?);
        let parts = there.start == to && here.start != to;
        if !parts || program.function_at(from)? != program.function_at(to)? {
            return None;
        }
        let target = self.view.blocks(here).insn(from)?.flow.target()?;
        (there.start < target && target < there.end).then_some(target)
    }
}

/// Writes `profile` for llvm-bolt; samples without any edge become the `no_lbr` form.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let view = BoltView::of(program);
    let mut writer = Writer {
        program,
        view: &view,
        profile,
        out: Written::default(),
        lost: Losses::default(),
        entered: BTreeMap::new(),
        written_functions: BTreeSet::new(),
    };
    if profile.edges.is_empty() && profile.entries.is_empty() && profile.exactness == Exactness::Sampled {
        writer.samples();
    } else {
        writer.edges();
        writer.calls();
        writer.entries();
        writer.blocks();
    }
    writer.out.n_functions = writer.written_functions.len();
    writer.out.lost = writer.lost.into_list();
    writer.out
}

struct Writer<'a> {
    program: &'a Program,
    view: &'a BoltView<'a>,
    profile: &'a Profile,
    out: Written,
    lost: Losses,
    /// Entries that the calls written make.
    entered: BTreeMap<Va, u64>,
    written_functions: BTreeSet<Va>,
}

/// Why edges between the parts of a function are left out, if they lead to no start.
const INTO_PART: &str = "an edge into the middle of what is another function for llvm-bolt; \
                         gcc's -fno-reorder-blocks-and-partition keeps functions whole";

/// Why counts of stubs are left out.
pub const NO_STUBS: &str = "llvm-bolt has no counts of stubs";

fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains(['\\', ' ']) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace('\\', "\\\\").replace(' ', "\\ "))
}

impl Writer<'_> {
    /// Writes a record; whether it could be.
    fn line(&mut self, function: &BoltFunction, count: u64, line: &str) -> bool {
        if !is_one_line(line.trim_end_matches('\n')) {
            self.lost.add(&one_line(&function.name), NO_LINE, count);
            return false;
        }
        self.out.bytes.extend_from_slice(line.as_bytes());
        self.out.count = self.out.count.saturating_add(count);
        self.written_functions.insert(function.start);
        true
    }

    fn location_fields(function: &BoltFunction, at: Va) -> String {
        format!("1 {} {:x}", escape(&function.name), at.since(function.start))
    }

    fn record(
        &mut self,
        from: (&BoltFunction, Va),
        to: (&BoltFunction, Va),
        misses: u64,
        count: u64,
    ) -> bool {
        let (a, b) = (escape(&from.0.name), escape(&to.0.name));
        let (x, y) = (from.1.since(from.0.start), to.1.since(to.0.start));
        let line = format!("1 {a} {x:x} 1 {b} {y:x} {misses} {count}\n");
        self.line(from.0, count, &line)
    }

    fn lose(&mut self, at: Va, why: &'static str, count: u64) {
        let name = self.view.function_at(at).map_or_else(|| at.to_string(), |f| f.name.clone());
        self.lost.add(&name, why, count);
    }

    fn lose_misses(&mut self, at: Va, misses: u64) {
        if misses > 0 {
            self.lose(at, "llvm-bolt has no branch that could be mispredicted", misses);
        }
    }

    /// Counts of blocks that no record leads to; those of entries have one.
    fn blocks(&mut self) {
        for (at, n) in blocks_alone(self.profile, self.program) {
            let entered = self.program.function_from(at).is_some();
            if !entered {
                self.lose(at, "a block's count without a way in or out has no record", n);
            }
        }
    }

    fn samples(&mut self) {
        self.out.bytes.extend_from_slice(b"no_lbr cycles\n");
        for (&at, &count) in &self.profile.blocks {
            match self.view.function_at(at).filter(|f| !f.stub) {
                Some(f) => {
                    let line = format!("{} {count}\n", Self::location_fields(f, at));
                    self.line(f, count, &line);
                }
                None => self.lose(at, "llvm-bolt has no function there", count),
            }
        }
        let calls = self.profile.calls.iter().map(|((at, _), n)| (*at, *n));
        for (at, n) in calls.chain(self.profile.calls_out.iter().map(|(at, n)| (*at, *n))) {
            self.lose(at, "samples have no counts of calls", n);
        }
    }

    fn edges(&mut self) {
        let view = self.view;
        for (edge, &count) in self.profile.edges.iter().filter(|(_, n)| **n > 0) {
            let misses = self.profile.mispredicts.get(edge).copied().unwrap_or(0);
            let ids = (self.program.block_from(edge.from), self.program.block_from(edge.to));
            let (Some(from_id), Some(to_id)) = ids else {
                self.lose(edge.from, "no such block", count);
                continue;
            };
            let (Some(from), Some(to)) = (view.function_at(edge.from), view.function_at(edge.to)) else {
                self.lose(edge.from, "llvm-bolt has no function there", count);
                continue;
            };
            let source = self.program.block(from_id);
            let last = source.last_insn();
            let kind = self.program.successors(from_id).iter().find(|e| e.to == to_id).map(|e| e.kind);
            if kind == Some(EdgeKind::LandingPad) {
                // Not an edge for llvm-bolt: a landing pad is entered.
                let mut line = String::from("0 [unknown] 0 ");
                let _ = writeln!(line, "{} 0 {count}", Self::location_fields(to, edge.to));
                self.line(to, count, &line);
                self.lose_misses(edge.from, misses);
                continue;
            }
            let Some(insn) = view.blocks(from).insn(last).copied() else {
                self.lose(edge.from, "llvm-bolt decodes other instructions there", count);
                continue;
            };
            if from.start != to.start {
                if matches!(
                    insn.flow,
                    ControlFlow::Jump(_) | ControlFlow::Branch(_) | ControlFlow::JumpIndirect
                ) && edge.to == to.start
                {
                    self.record((from, last), (to, edge.to), misses, count);
                } else {
                    let what = format!("{} {last} -> {}", from.name, edge.to);
                    self.lost.add(&what, INTO_PART, count);
                }
                continue;
            }
            let blocks = view.blocks(from);
            let ends_block = insn.flow.ends_block();
            if !blocks.is_leader(edge.to) {
                if !ends_block || kind == Some(EdgeKind::FallThrough) {
                    // One block for llvm-bolt: it knows that edge from the ways in and out.
                    self.out.count = self.out.count.saturating_add(count);
                    self.lose_misses(edge.from, misses);
                } else {
                    self.lose(edge.from, "llvm-bolt has no block where the edge leads", count);
                }
                continue;
            }
            let leaves = if ends_block {
                Some(last)
            } else {
                blocks.leader_of(last).and_then(|l| blocks.leaves_at(l))
            };
            match leaves {
                Some(at) if blocks.has_edge(at, edge.to) => {
                    self.record((from, at), (to, edge.to), misses, count);
                }
                Some(at) if !ends_block || kind == Some(EdgeKind::FallThrough) => {
                    match blocks.over_padding(at, edge.to) {
                        Some(path) => self.over_padding((from, at), to, &path, misses, count),
                        None => self.lose(edge.from, "llvm-bolt has no such edge", count),
                    }
                }
                _ => self.lose(edge.from, "llvm-bolt has no such edge", count),
            }
        }
    }

    /// Writes an edge of ours along `path`: several edges to llvm-bolt, which holds padding for blocks.
    fn over_padding(
        &mut self,
        (from, at): (&BoltFunction, Va),
        to: &BoltFunction,
        path: &[Va],
        misses: u64,
        count: u64,
    ) {
        for (a, b) in path.iter().zip(path.iter().skip(1)) {
            let leaves = self.view.blocks(from).leaves_at(*a).unwrap_or(at);
            self.record((from, leaves), (to, *b), if leaves == at { misses } else { 0 }, count);
        }
        self.out.count = self.out.count.saturating_sub(count.saturating_mul(path.len() as u64 - 2));
    }

    fn calls(&mut self) {
        let view = self.view;
        for (&(at, callee), &count) in self.profile.calls.iter().filter(|(_, n)| **n > 0) {
            let (Some(from), Some(to)) = (view.function_at(at), view.function_at(callee)) else {
                self.lose(at, "llvm-bolt has no function there", count);
                continue;
            };
            // What stubs jump to follows from the calls of them.
            if from.stub {
                continue;
            }
            if !self.transfers(from, at) {
                self.lose(at, "no call at that address", count);
                continue;
            }
            let blocks = view.blocks(from);
            if from.start == to.start && (callee != to.start || blocks.has_edge(at, callee)) {
                self.lose(at, "llvm-bolt would take the call for a branch", count);
                continue;
            }
            if self.record((from, at), (to, callee), 0, count) {
                add(&mut self.entered, callee, count);
            }
        }
        for (&at, &count) in self.profile.calls_out.iter().filter(|(_, n)| **n > 0) {
            match view.function_at(at) {
                Some(from) if from.stub => {}
                Some(from) if self.transfers(from, at) => {
                    let line = format!("{} 0 [unknown] 0 0 {count}\n", Self::location_fields(from, at));
                    self.line(from, count, &line);
                }
                _ => self.lose(at, "no call at that address", count),
            }
        }
    }

    /// Whether the instruction at `at` is one that can leave a function.
    fn transfers(&self, function: &BoltFunction, at: Va) -> bool {
        self.view.blocks(function).insn(at).is_some_and(|i| transfers(i.flow))
    }

    fn entries(&mut self) {
        let mut entries = self.profile.entries.clone();
        let mut into: BTreeMap<Va, u64> = BTreeMap::new();
        for (edge, &n) in &self.profile.edges {
            add(&mut into, edge.to, n);
        }
        // Where a source has no entry count, the entry block tells it.
        for f in &self.program.functions {
            if let Some(&n) = self.profile.blocks.get(&f.entry) {
                let inside = into.get(&f.entry).copied().unwrap_or(0);
                if !entries.contains_key(&f.entry) {
                    entries.insert(f.entry, n.saturating_sub(inside));
                }
            }
        }
        for (at, count) in entries {
            let rest = count.saturating_sub(self.entered.get(&at).copied().unwrap_or(0));
            match self.view.function_at(at) {
                _ if rest == 0 => {}
                Some(f) if f.stub => self.lose(at, NO_STUBS, rest),
                Some(f) => {
                    let line = format!("0 [unknown] 0 {} 0 {rest}\n", Self::location_fields(f, at));
                    self.line(f, rest, &line);
                }
                None => self.lose(at, "llvm-bolt has no function there", rest),
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! BOLT YAML: the profile that `llvm-bolt -w` writes, with blocks in place of addresses.
//!
//! ```text
//! header:
//!   binary-build-id: a05177…       profile-flags: [ lbr ]       dfs-order: false
//! functions:
//!   - name: 'luaV_concat.part.0/1'        as llvm-bolt calls it, `(*2)` behind it if it has two names
//!     fid: 7        exec: 4               its number in this file; how often it was entered
//!     blocks:
//!       - bid: 2        insns: 9          its number, in the order of addresses unless `dfs-order`;
//!                                         instructions in it
//!         hash: 0x1AA3055B4621002B        the last 16 bits are the block's offset in the function
//!         exec: 5                         in files of samples (`profile-flags: [ sample ]`) its samples
//!         calls: [ { off: 0x9, fid: 150, disc: 1, cnt: 1, mis: 1 } ]   disc: an entry other than the first
//!         succ: [ { bid: 4, cnt: 3, mis: 1 } ]
//! ```
//! Only the build that it was taken on has these blocks, so a block is bound by its function's name and its
//! offset, and must be as long as it says; what does not fit is lost. A call is to where its instruction
//! leads; `fid` says it for indirect ones.
//!
//! Source: LLVM 19, `bolt/include/bolt/Profile/ProfileYAMLMapping.h` (keys),
//! `bolt/lib/Profile/YAMLProfileWriter.cpp`, `bolt/include/bolt/Core/HashUtilities.h` (BlendedBlockHash: the
//! offset in the hash).

use crate::complete::derive::{add, derive_blocks};
use crate::complete::transfers::Layer;
use crate::counts::{Exactness, Lost, Profile};
use crate::formats::bolt::view::{BoltBlocks, BoltView};
use crate::vocabulary::{Format, ReadError};
use program::arch::ControlFlow;
use program::{Program, Va};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct File {
    header: Header,
    #[serde(default)]
    functions: Vec<Function>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Header {
    profile_version: u32,
    #[serde(default)]
    binary_name: String,
    #[serde(default)]
    binary_build_id: String,
    #[serde(default)]
    profile_flags: Vec<String>,
    #[serde(default)]
    dfs_order: bool,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    fid: u32,
    #[serde(default)]
    exec: u64,
    #[serde(default)]
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    bid: u32,
    #[serde(default)]
    insns: u64,
    #[serde(default)]
    hash: u64,
    #[serde(default)]
    exec: u64,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    succ: Vec<Successor>,
}

#[derive(Deserialize)]
struct Call {
    off: u64,
    fid: u32,
    #[serde(default)]
    disc: u32,
    #[serde(default)]
    cnt: u64,
    #[serde(default)]
    mis: u64,
}

#[derive(Deserialize)]
struct Successor {
    bid: u32,
    #[serde(default)]
    cnt: u64,
    #[serde(default)]
    mis: u64,
}

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty() && *l != "---" && !l.starts_with('#'));
    lines.next().is_some_and(|l| l.trim_end() == "header:")
        && lines.take(10).any(|l| l.trim_start().starts_with("profile-version:"))
}

/// Reads a YAML profile of `program`.
///
/// # Errors
/// [`ReadError::BadLine`] for what is no such profile, [`ReadError::OtherImage`] if it is of another build.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let file = read_yaml(bytes)?;
    same_build(&file.header, program)?;
    let view = BoltView::of(program);
    let samples = file.header.profile_flags.iter().any(|f| f == "sample");
    // Where functions start, by their number in the file.
    let starts: BTreeMap<u32, Va> =
        file.functions.iter().filter_map(|f| Some((f.fid, view.address_of(plain_name(&f.name))?))).collect();
    let mut reader = Reader {
        program,
        view: &view,
        layer: Layer::onto(program),
        starts,
        entered: BTreeMap::new(),
        dfs_order: file.header.dfs_order,
        samples,
    };
    for function in &file.functions {
        reader.function(function);
    }
    reader.entries(&file.functions);
    let Layer { mut profile, lost, .. } = reader.layer;
    if samples || !profile.mispredicts.is_empty() {
        profile.exactness = Exactness::Sampled;
    }
    let joined = |at: Va| view.function_at(at).is_some_and(|f| !view.blocks(f).is_leader(at));
    derive_blocks(&mut profile, program, &joined);
    Ok((profile, lost.into_list()))
}

fn read_yaml(bytes: &[u8]) -> Result<File, ReadError> {
    let bad = |line: usize, what: String| ReadError::BadLine { format: Format::BoltYaml, line, what };
    let text = std::str::from_utf8(bytes).map_err(|err| {
        let before = bytes.get(..err.valid_up_to()).unwrap_or_default();
        bad(1 + before.iter().filter(|b| **b == b'\n').count(), "it is no text (UTF-8)".to_owned())
    })?;
    // As many events as the file has bytes to make them of, so that a profile of any size is read; it has no
    // anchors.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: text.len(),
            max_nodes: text.len(),
            max_total_scalar_bytes: text.len(),
            max_anchors: 0,
            max_aliases: 0,
            max_depth: 16,
        },
        with_snippet: false,
    };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|err| {
        let line = err.location().map_or(1, |l| usize::try_from(l.line()).unwrap_or(usize::MAX));
        bad(line, err.without_snippet().to_string().lines().next().unwrap_or_default().to_owned())
    })?;
    if file.header.profile_version != 1 {
        let what = format!("version {} of the format, we know version 1", file.header.profile_version);
        return Err(bad(1, what));
    }
    Ok(file)
}

fn same_build(header: &Header, program: &Program) -> Result<(), ReadError> {
    let hex = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let ours = program.image.build_id.as_deref().map(hex);
    match ours {
        Some(ours)
            if !header.binary_build_id.is_empty() && !header.binary_build_id.eq_ignore_ascii_case(&ours) =>
        {
            Err(ReadError::OtherImage {
                profile: format!("{} (build-id {})", header.binary_name, header.binary_build_id),
                program: format!("{} (build-id {ours})", program.image.name),
            })
        }
        _ => Ok(()),
    }
}

/// Without the `(*2)` of a function with two names.
fn plain_name(name: &str) -> &str {
    let Some((plain, n)) = name.strip_suffix(')').and_then(|n| n.rsplit_once("(*")) else { return name };
    if n.parse::<u32>().is_ok() { plain } else { name }
}

struct Reader<'a> {
    program: &'a Program,
    view: &'a BoltView<'a>,
    layer: Layer<'a>,
    starts: BTreeMap<u32, Va>,
    /// Calls and jumps into functions, by what they enter.
    entered: BTreeMap<Va, u64>,
    dfs_order: bool,
    samples: bool,
}

impl Reader<'_> {
    fn function(&mut self, function: &Function) {
        let name = plain_name(&function.name);
        let calls = |b: &Block| b.calls.iter().map(|c| c.cnt).collect::<Vec<_>>();
        let all = |b: &Block| {
            b.succ.iter().map(|s| s.cnt).chain(calls(b)).fold(0u64, |sum, n| sum.saturating_add(n))
        };
        let Some(found) = self.view.address_of(name).and_then(|at| self.view.function_at(at)) else {
            let count = function.blocks.iter().fold(0u64, |sum, b| sum.saturating_add(all(b)));
            self.layer.lost.add(name, "the program has no symbol of that name", count);
            return;
        };
        let blocks = self.view.blocks(found);
        let leaders: Vec<Va> = blocks.leaders().collect();
        let place = |b: &Block| bind(b, &leaders, found.start, self.dfs_order);
        let by_number: BTreeMap<u32, Option<Va>> =
            function.blocks.iter().map(|b| (b.bid, place(b).filter(|&at| fits(b, blocks, at)))).collect();
        for block in &function.blocks {
            let Some(&Some(at)) = by_number.get(&block.bid) else {
                self.layer.lost.add(name, "the program has no such block", all(block));
                continue;
            };
            if self.samples && block.exec > 0 {
                self.layer.sample(at, block.exec);
            }
            for to in block.succ.iter().filter(|to| to.cnt > 0) {
                let target = by_number.get(&to.bid).copied().flatten();
                let Some(target) = target else {
                    self.layer.lost.add(name, "the program has no such block", to.cnt);
                    continue;
                };
                let Some(from) = blocks.exit_to(at, target) else {
                    self.layer.lost.add(name, "the program has no such edge", to.cnt);
                    continue;
                };
                let mut count = to.cnt;
                if target == found.start {
                    // A jump to the start of the function: llvm-bolt takes calls of itself in the block for
                    // the same edge, and both for entries.
                    let itself = block.calls.iter().filter(|c| c.fid == function.fid && c.disc == 0);
                    count = itself.fold(count, |n, c| n.saturating_sub(c.cnt));
                    add(&mut self.entered, target, count);
                }
                if count > 0 {
                    self.layer.branch(Some(from), Some(target), to.mis.min(count), count);
                }
            }
            for call in block.calls.iter().filter(|call| call.cnt > 0) {
                self.call(name, blocks, at.plus(call.off), call);
            }
        }
    }

    fn call(&mut self, name: &str, blocks: &BoltBlocks, at: Va, call: &Call) {
        let direct = match blocks.insn(at).map(|i| i.flow) {
            Some(ControlFlow::Call(to) | ControlFlow::Jump(to) | ControlFlow::Branch(to)) => Some(to),
            Some(ControlFlow::CallIndirect | ControlFlow::JumpIndirect) => None,
            _ => {
                self.layer.lost.add(name, "no call at that offset", call.cnt);
                return;
            }
        };
        let named = self.starts.get(&call.fid).copied();
        // Other entries of a function are not said where they are.
        let to = direct.or(named.filter(|_| call.disc == 0));
        if let (Some(direct), Some(named)) = (direct, named)
            && call.disc == 0
            && direct != named
        {
            self.layer.lost.add(name, "the call is to another function", call.cnt);
            return;
        }
        self.layer.branch(Some(at), to, call.mis, call.cnt);
        if let Some(to) = to {
            add(&mut self.entered, to, call.cnt);
        }
    }

    /// Entries that no call of the file says.
    fn entries(&mut self, functions: &[Function]) {
        for function in functions {
            let Some(&start) = self.starts.get(&function.fid) else { continue };
            let rest = function.exec.saturating_sub(self.entered.get(&start).copied().unwrap_or(0));
            let known = self.program.block_from(start).is_some();
            if rest > 0 && known && !self.samples {
                self.layer.branch(None, Some(start), 0, rest);
            }
        }
    }
}

/// The start of a block: what its offset says, else its number.
fn bind(block: &Block, leaders: &[Va], start: Va, dfs_order: bool) -> Option<Va> {
    let numbered = leaders.get(usize::try_from(block.bid).ok()?).copied().filter(|_| !dfs_order);
    let offset = block.hash & 0xffff;
    if block.hash == 0 && block.bid != 0 {
        return numbered;
    }
    let at_offset = |at: &Va| at.since(start) & 0xffff == offset;
    numbered.filter(at_offset).or_else(|| {
        // Past 64 KB offsets come again: only one that is the only one says which.
        let mut all = leaders.iter().copied().filter(at_offset);
        let first = all.next();
        first.filter(|_| all.next().is_none())
    })
}

/// Whether the block at `at` has as many instructions as it should.
fn fits(block: &Block, blocks: &BoltBlocks, at: Va) -> bool {
    block.insns == 0 || blocks.n_insns(at).contains(&block.insns)
}

#[cfg(test)]
mod tests;

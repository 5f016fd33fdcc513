//! Which blocks may follow each other, and in which file each function is: what a trace knows of its program
//! beside names.
//!
//! ```text
//! FLOW   = modules: varint, for each: first function, key, length of path: varint, path; then
//!          functions: varint, for each: number − last number, blocks: varint, for each:
//!          bits (1: anything may follow it, 2: it may follow anything, 4: control may leave in it),
//!          n ways,
//!          for each: number − own number (zigzag)
//! ```
//! the whole under zstd. Functions that are not in it are not known.
#![warn(clippy::indexing_slicing)]

use crate::decode::ModuleCodes;
use crate::file::varint::{self, Cursor};
use crate::ids::{BlockId, FuncId};
use crate::recording::module_code::{Block, End};
use crate::search::path::{NotAPath, Path, PathStep};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the section is called.
pub(crate) const FLOW: [u8; 4] = *b"FLOW";

/// What of a program's control flow is known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowGraphs {
    /// Its files, by the number of their first function.
    pub modules: Vec<Module>,
    /// By the number of the function: its blocks, by theirs.
    pub functions: BTreeMap<FuncId, Vec<Successors>>,
}

/// A file of the program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Module {
    /// The number of its first function.
    pub first: FuncId,
    /// What the file is known by.
    pub key: u32,
    /// Where it was.
    pub path: String,
}

/// What may follow a block in its activation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Successors {
    /// Any block may: it ends in a jump that is not understood.
    pub by_any: bool,
    /// It may follow any: exceptions lead to it, or `longjmp`, or signal handlers.
    pub after_any: bool,
    /// Control may leave the function in it: by a return, a jump to another function, or for good.
    pub leaves: bool,
    /// These may.
    pub to: Vec<BlockId>,
}

impl FlowGraphs {
    /// Of the modules of a recording.
    pub fn of(codes: &ModuleCodes) -> Self {
        let mut flow = Self::default();
        for (first, code) in codes.modules() {
            flow.modules.push(Module { first, key: code.key, path: code.path.clone() });
            let entries: BTreeSet<(u32, BlockId)> = code.entries.iter().copied().collect();
            for (n, function) in (0..).zip(&code.functions).filter(|(_, f)| !f.blocks.is_empty()) {
                let is_entry = |block| entries.contains(&(n, block));
                flow.functions.insert(FuncId(first.0 + n), follows(&function.blocks, is_entry));
            }
        }
        flow
    }

    /// The file that a function is in, and its number there.
    pub fn module(&self, func: FuncId) -> Option<(&Module, u32)> {
        let n = self.modules.partition_point(|m| m.first <= func).checked_sub(1)?;
        self.modules.get(n).map(|m| (m, func.0 - m.first.0))
    }

    /// The blocks of a function that control may leave it in.
    pub fn exits(&self, func: FuncId) -> Vec<BlockId> {
        let blocks = self.functions.get(&func).map_or(&[][..], Vec::as_slice);
        (0..).map(BlockId).zip(blocks).filter(|(_, block)| block.leaves).map(|(n, _)| n).collect()
    }

    /// Checks that each block of a path may follow the one before it; `called` says what functions are
    /// called.
    ///
    /// # Errors
    /// [`NotAPath`] names the two that cannot, and the nearest way from the one to the other.
    pub fn check(&self, path: &Path, called: &dyn Fn(FuncId) -> String) -> Result<(), NotAPath> {
        for call in path.steps.iter().flat_map(|step| &step.calls) {
            self.check(call, called)?;
        }
        let Some(blocks) = self.functions.get(&path.func) else { return Ok(()) };
        let pairs = path.steps.iter().zip(path.steps.iter().skip(1));
        pairs.into_iter().try_for_each(|(a, b)| check(blocks, a, b, &called(path.func)))
    }

    /// The section's bytes; of functions for which `is_wanted` alone.
    pub(crate) fn encode(&self, is_wanted: impl Fn(FuncId) -> bool) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.modules.len() as u64);
        for module in &self.modules {
            varint::put(&mut out, u64::from(module.first.0));
            varint::put(&mut out, u64::from(module.key));
            varint::put(&mut out, module.path.len() as u64);
            out.extend_from_slice(module.path.as_bytes());
        }
        let wanted = || self.functions.iter().filter(|(func, _)| is_wanted(**func));
        varint::put(&mut out, wanted().count() as u64);
        let mut last = 0;
        for (&func, blocks) in wanted() {
            varint::put(&mut out, u64::from(func.0 - last));
            last = func.0;
            varint::put(&mut out, blocks.len() as u64);
            for (own, block) in (0_i64..).zip(blocks) {
                let bits = [block.by_any, block.after_any, block.leaves];
                let bits = (0..).zip(bits).fold(0, |all, (n, bit)| all | u64::from(bit) << n);
                varint::put(&mut out, bits);
                varint::put(&mut out, block.to.len() as u64);
                block.to.iter().for_each(|to| varint::put(&mut out, varint::zigzag(i64::from(to.0) - own)));
            }
        }
        out
    }

    /// Reads a section's bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut flow = Self::default();
        for _ in 0..cursor.get_len()? {
            let (first, key) = (FuncId(cursor.get_u32()?), cursor.get_u32()?);
            let n = cursor.get_len()?;
            let path = String::from_utf8_lossy(cursor.take(n)?).into_owned();
            flow.modules.push(Module { first, key, path });
        }
        let mut func = 0_u32;
        for _ in 0..cursor.get_len()? {
            func = func.checked_add(cursor.get_u32()?)?;
            let mut blocks = Vec::new();
            for own in 0..i64::try_from(cursor.get_len()?).ok()? {
                let bits = cursor.get()?;
                let has = |bit: u64| bits & bit != 0;
                let n = cursor.get_len()?;
                let mut way =
                    || u32::try_from(varint::unzigzag(cursor.get()?).checked_add(own)?).ok().map(BlockId);
                let to = (0..n).map(|_| way()).collect::<Option<_>>()?;
                blocks.push(Successors { by_any: has(1), after_any: has(2), leaves: has(4), to });
            }
            flow.functions.insert(FuncId(func), blocks);
        }
        Some(flow)
    }
}

/// What may follow the blocks of a recorded function; what nothing leads to may follow any, unless a call
/// comes there.
fn follows(blocks: &[Block], is_entry: impl Fn(BlockId) -> bool) -> Vec<Successors> {
    let mut is_led_to = vec![false; blocks.len()];
    for (to, _) in blocks.iter().flat_map(Block::ways) {
        is_led_to.get_mut(to.index()).into_iter().for_each(|is| *is = true);
    }
    let follow = |((n, block), is_led_to): ((u32, &Block), bool)| Successors {
        by_any: block.is_open,
        after_any: block.lands || block.is_far || !is_led_to && !is_entry(BlockId(n)),
        leaves: block.leaves.is_some() || !matches!(block.end, End::To(_)) && !block.is_open,
        to: match &block.end {
            End::To(ways) => ways.iter().map(|way| way.0).collect(),
            _ => Vec::new(),
        },
    };
    (0..).zip(blocks).zip(is_led_to).map(follow).collect()
}

fn check(blocks: &[Successors], a: &PathStep, b: &PathStep, function: &str) -> Result<(), NotAPath> {
    let known = |n: BlockId| blocks.get(n.index());
    // What the trace has and the program does not is not ours to judge.
    let Some(first) = a.blocks.first().copied().filter(|n| known(*n).is_some()) else { return Ok(()) };
    let ways = a.blocks.iter().filter_map(|from| route(blocks, *from, &b.blocks));
    let shortest = ways.min_by_key(Vec::len);
    let most = if b.after_gap { usize::MAX } else { 2 };
    if shortest.as_ref().is_some_and(|way| way.len() <= most) || b.blocks.iter().any(|n| known(*n).is_none())
    {
        return Ok(());
    }
    let list = |numbers: &[BlockId], or: &str| {
        let words: Vec<String> = numbers.iter().map(|n| n.0.to_string()).collect();
        match words.split_last() {
            Some((last, before)) if !before.is_empty() => format!("{} {or} {last}", before.join(", ")),
            _ => words.concat(),
        }
    };
    let verb = if b.after_gap { "come behind" } else { "follow" };
    let what = format!(
        "block {} of {function} cannot {verb} block {}",
        list(&b.blocks, "or"),
        list(&a.blocks, "or")
    );
    let to = known(first).map_or(&[][..], |f| &f.to);
    let leads = match to.is_empty() {
        true => format!("block {} leads to no block of {function}: control leaves it there", first.0),
        false => format!("block {} leads to {}", first.0, list(to, "and")),
    };
    let hint = match shortest {
        Some(way) => {
            let words: Vec<String> = way.iter().map(|n| n.0.to_string()).collect();
            let (first, last) =
                (words.first().cloned().unwrap_or_default(), words.last().cloned().unwrap_or_default());
            format!("{leads}; the shortest way is '{}', any way '{first} .. {last}'", words.join(" "))
        }
        None => format!("{leads}, and no way goes on to {}", list(&b.blocks, "or")),
    };
    Err(NotAPath { what, hint })
}

/// The shortest way from a block to one of others, both included; at least one step.
fn route(blocks: &[Successors], from: BlockId, to: &[BlockId]) -> Option<Vec<BlockId>> {
    let mut before: BTreeMap<BlockId, BlockId> = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(at) = open.pop_front() {
        let Some(block) = blocks.get(at.index()) else { continue };
        let is_any = |n: &BlockId| block.by_any || blocks.get(n.index()).is_some_and(|b| b.after_any);
        let found = to.iter().copied().find(|n| block.to.contains(n) || is_any(n));
        if let Some(found) = found {
            let mut way = vec![found, at];
            let mut at = at;
            while at != from {
                at = *before.get(&at)?;
                way.push(at);
            }
            way.reverse();
            return Some(way);
        }
        for &next in &block.to {
            if next != from && !before.contains_key(&next) {
                before.insert(next, at);
                open.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests may panic")]
mod tests {
    use super::*;
    use crate::file::names::Names;

    /// Of function 0: `0>1 1>2`; a block alone has no way on, `?` stands for any.
    fn flow(edges: &str) -> FlowGraphs {
        let mut blocks: Vec<Successors> = Vec::new();
        for edge in edges.split(' ') {
            let (from, to) = edge.split_once('>').expect("it has both");
            for n in [from, to].iter().filter_map(|n| n.parse::<usize>().ok()) {
                blocks.resize(blocks.len().max(n + 1), Successors::default());
            }
            match (from.parse::<usize>(), to.parse::<u32>()) {
                (Ok(from), Ok(to)) => blocks[from].to.push(BlockId(to)),
                (Ok(from), Err(_)) => blocks[from].by_any = true,
                (_, Ok(to)) => blocks[to as usize].after_any = true,
                _ => {}
            }
        }
        let module = Module { first: FuncId(0), key: 7, path: "/bin/a".into() };
        FlowGraphs { modules: vec![module], functions: [(FuncId(0), blocks)].into() }
    }

    #[track_caller]
    fn check(edges: &str, path: &str, expect: &str) {
        let path = Path::parse(path, &Names::default()).expect("it is a path");
        let got = flow(edges).check(&path, &|func| format!("#{}", func.0));
        assert_eq!(
            got.map_or_else(|err| format!("{}; {}", err.what, err.hint), |()| "it may".to_owned()),
            expect
        );
    }

    #[test]
    fn what_cannot_follow_is_named_with_what_can() {
        let loop_ = "0>1 1>2 1>4 2>3 3>1";
        check(loop_, "#0: 0 1 2 3 1 4", "it may");
        check(
            loop_,
            "#0: 1 3",
            "block 3 of #0 cannot follow block 1; block 1 leads to 2 and 4; the shortest way is '1 2 3', any way '1 .. 3'",
        );
        check(
            loop_,
            "#0: 2 2",
            "block 2 of #0 cannot follow block 2; block 2 leads to 3; the shortest way is '2 3 1 2', any way '2 .. 2'",
        );
        check(
            loop_,
            "#0: 4 .. 1|2",
            "block 1 or 2 of #0 cannot come behind block 4; block 4 leads to no block of #0: control leaves it there, and no way goes on to 1 or 2",
        );
        check(loop_, "#0: 4|3 1", "it may");
        check(loop_, "#0: 2 .. 2", "it may");
        check(loop_, "#1: 2 2", "it may");
        check(
            loop_,
            "#1: 0 {#0: 1 3} 0",
            "block 3 of #0 cannot follow block 1; block 1 leads to 2 and 4; the shortest way is '1 2 3', any way '1 .. 3'",
        );
    }

    #[test]
    fn where_anything_may_follow_nothing_is_refused() {
        check("0>1 1>? 2>3", "#0: 1 3", "it may");
        check("0>1 ?>3 2>3", "#0: 0 3", "it may");
        check("0>1 1>2", "#0: 0 9", "it may");
    }

    #[test]
    fn a_flow_survives_its_section() {
        let flow = flow("0>1 1>2 ?>4 2>1 3>?");
        let bytes = flow.encode(|_| true);
        assert_eq!(FlowGraphs::decode(&bytes).as_ref(), Some(&flow));
        for n in 0..bytes.len() {
            assert_eq!(FlowGraphs::decode(&bytes[..n]), None, "cut at {n}");
        }
        assert!(FlowGraphs::decode(&flow.encode(|_| false)).is_some_and(|f| f.functions.is_empty()));
        assert_eq!(flow.module(FuncId(5)).map(|(m, n)| (m.path.as_str(), n)), Some(("/bin/a", 5)));
    }
}

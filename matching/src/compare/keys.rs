//! What calls and loops are called in both builds, so that those of one and of the other can be told to be
//! the same.
//!
//! A call is known by the function and line that it was written in, whatever was inlined into what since, and
//! by the function that is called; a loop by the lines of its body in the function that all of it is of.
//! Where nothing is known of lines, a call is known by the functions alone, and a loop by what a matching
//! of the builds says of its header.

use super::code::{Code, Function, NONE, count};
use super::log::{Called, Kind, Side};
use super::unnamed;
use super::{InModule, Was};
use crate::names::bare;
use program::{Lines, Va};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A line of a function: where something was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The function, as [`Keys`] numbers it.
    pub function: u32,
    /// The line; 0 if it is not known.
    pub line: u32,
}

/// How it was found out that a function, a call, or a loop of both builds is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By the line that it was written in, or the lines of the loop's body.
    Line,
    /// By a line near by, for the builds do not say the same one.
    NearLine,
    /// By the names of both functions alone.
    Names,
    /// By what a matching of the builds says of the block, or of the function.
    Block,
    /// A function by who calls it how often, and whom it calls.
    Calls,
    /// A person says so.
    Pinned,
    /// It was not: one build alone has it.
    Alone,
}

/// Names of both builds, and what is what.
#[derive(Default)]
pub struct Keys {
    names: HashMap<Box<str>, u32>,
    /// By side, and function: its number; equal ones have one.
    pub functions: [Vec<u32>; 2],
    /// By function of the new build: how that was found out, and how sure it is, from 0 to 1.
    how_functions: Vec<(How, f64)>,
    /// By side, and site: where it was written.
    pub sites: [Vec<Option<Origin>>; 2],
    /// Lines of calls that are others in the new build: by that line and what is called.
    lines: HashMap<(Origin, u32), u32>,
    /// By side, and loop: equal ones have one number.
    pub loops: [Vec<u32>; 2],
    /// By loop of the new build: how that was found out.
    how_loops: Vec<How>,
    /// By side, and loop: whether its lines are known.
    has_lines: [Vec<bool>; 2],
}

/// A call, as both builds know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallKey {
    /// Where it was written; without a line, the function that it is in.
    pub from: Origin,
    /// The name of what is called.
    pub callee: u32,
}

impl Keys {
    /// Of two sides; `was` says what is what where neither lines nor names say it.
    pub fn of(sides: &[Side<'_>; 2], was: &Was) -> Keys {
        let mut keys = Keys::default();
        (keys.functions, keys.how_functions) = functions(&mut keys.names, sides, was);
        for (new, sure) in unnamed::pair(sides, &mut keys.functions) {
            if let Some(how) = keys.how_functions.get_mut(new as usize) {
                *how = (How::Calls, sure);
            }
        }
        // Lines that one build alone has say nothing of the other one.
        let have_lines = [0, 1].map(|n: usize| have_lines(sides, n));
        let is_told = |n: usize, function: u32| {
            let module = sides[n].code.functions.get(function as usize).map_or(NONE, |of| of.module);
            have_lines[n].get(module as usize).copied().unwrap_or(false)
        };
        for (n, side) in sides.iter().enumerate() {
            keys.sites[n] = sites(side, &mut keys.names);
            for (site, origin) in side.code.sites.iter().zip(&mut keys.sites[n]) {
                *origin = origin.filter(|_| is_told(n, site.function));
            }
        }
        // What has another name is written in that, too.
        let renamed = renamed(&mut keys.names, &sides[1], &keys.functions[1]);
        let of = |function: u32| renamed.get(&function).copied().unwrap_or(function);
        for origin in keys.sites[1].iter_mut().flatten() {
            origin.function = of(origin.function);
        }
        keys.lines = other_lines(&keys, sides);
        let mut lines = sides.each_ref().map(|side| {
            let all = 0..side.code.loops.len();
            all.map(|n| loop_lines(side, n, &mut keys.names)).collect::<Vec<_>>()
        });
        for (n, side) in sides.iter().enumerate() {
            for (of, lines) in side.code.loops.iter().zip(&mut lines[n]) {
                lines.take_if(|_| !is_told(n, of.function));
            }
        }
        lines[1].iter_mut().flatten().for_each(|lines| lines.function = of(lines.function));
        keys.has_lines = lines.each_ref().map(|of| of.iter().map(Option::is_some).collect());
        (keys.loops, keys.how_loops) = loops(lines, sides, was);
        keys
    }

    /// How it is known what a function of the new build is, and how sure that is, from 0 to 1.
    pub fn how_function(&self, function: u32) -> (How, f64) {
        // What is of no function is a thread's.
        self.how_functions.get(function as usize).copied().unwrap_or((How::Names, 1.0))
    }

    /// How it is known what a call of side `n` is.
    pub fn how_site(&self, n: usize, site: u32) -> How {
        match self.sites[n].get(site as usize).copied().flatten() {
            None => How::Names,
            Some(from) if n == 1 && self.lines.keys().any(|(other, _)| *other == from) => How::NearLine,
            Some(_) => How::Line,
        }
    }

    /// How it is known what a loop of side `n` is.
    pub fn how_loop(&self, n: usize, of: u32) -> How {
        let found = || self.how_loops.get(of as usize).copied();
        (n == 1).then(found).flatten().unwrap_or(How::Alone)
    }

    /// Whether two loops, or nests of such, may be what compilers made of the same one: a loop in the one is
    /// one in the other, or nothing is known of their lines.
    pub fn may_be_one(&self, codes: [&Code; 2], loops: [u32; 2]) -> bool {
        let has_lines = |n: usize| self.has_lines[n].get(loops[n] as usize).copied().unwrap_or(false);
        if !has_lines(0) || !has_lines(1) {
            return true;
        }
        let keys = |n: usize| {
            let function = codes[n].loops.get(loops[n] as usize).map_or(NONE, |of| of.function);
            let all = codes[n].functions.get(function as usize).map(|of| of.loops.clone());
            let inner = all.unwrap_or_default().filter(|of| codes[n].is_in(*of, loops[n]));
            inner.filter_map(|of| self.loops[n].get(of as usize).copied()).collect::<BTreeSet<u32>>()
        };
        !keys(0).is_disjoint(&keys(1))
    }

    /// The call of `callee`, a function of side `n`, at `site`, in `function`.
    pub fn call(&self, n: usize, function: u32, site: u32, callee: u32) -> CallKey {
        let name = |of: u32| self.functions[n].get(of as usize).copied().unwrap_or(NONE);
        let callee = name(callee);
        let from = match self.sites[n].get(site as usize).copied().flatten() {
            Some(from) if n == 1 => {
                let line = self.lines.get(&(from, callee)).copied().unwrap_or(from.line);
                Origin { line, ..from }
            }
            Some(from) => from,
            None => Origin { function: name(function), line: 0 },
        };
        CallKey { from, callee }
    }
}

fn number(names: &mut HashMap<Box<str>, u32>, name: &str) -> u32 {
    if let Some(known) = names.get(name) {
        return *known;
    }
    let next = count(names.len());
    names.insert(name.into(), next);
    next
}

/// By side and function: the number of its name; where none says it, what it was. By function of the new
/// build, how that was found out.
fn functions(
    names: &mut HashMap<Box<str>, u32>,
    [old, new]: &[Side<'_>; 2],
    was: &Was,
) -> ([Vec<u32>; 2], Vec<(How, f64)>) {
    // What no name can be: one file is the same whoever loads it.
    let unnamed = |side: &Side<'_>, of: &Function| {
        let id = side.modules.get(of.module as usize).map(|module| module.program.image.id.0);
        format!("\0{:x} {}", id.unwrap_or_default(), of.entry)
    };
    let name = |side, of: &Function| if of.is_named { of.bare.to_string() } else { unnamed(side, of) };
    let known: BTreeSet<&str> =
        new.code.functions.iter().filter(|of| of.is_named).map(|of| &*of.bare).collect();
    let of_old = old.code.functions.iter().map(|of| number(names, &name(old, of))).collect::<Vec<u32>>();
    let all = old.code.functions.iter().zip(&of_old);
    let numbers: HashMap<InModule, u32> = all.map(|(of, n)| ((of.module, of.entry), *n)).collect();
    let olds: BTreeSet<u32> = of_old.iter().copied().collect();
    let taken: BTreeSet<u32> = was.pins.values().filter_map(|entry| numbers.get(entry)).copied().collect();
    let forbidden = |found: u32, here: InModule| {
        let is_it = |(old, new): &&(InModule, InModule)| *new == here && numbers.get(old) == Some(&found);
        was.forbids.iter().any(|pair| is_it(&pair))
    };
    let mut entries = HashMap::new();
    for (of, number) in old.code.functions.iter().zip(&of_old) {
        if !(of.is_named && known.contains(&*of.bare)) {
            entries.insert((of.module, of.entry), *number);
        }
    }
    let of_new = new.code.functions.iter().map(|of| {
        let is_known = of.is_named && names.contains_key(&of.bare);
        let here = (of.module, of.entry);
        if let Some(pinned) = was.pins.get(&here).and_then(|entry| numbers.get(entry)) {
            return (*pinned, (How::Pinned, 1.0));
        }
        let entry = was.functions.get(&here).filter(|_| !is_known);
        let known = entry.and_then(|(entry, sure)| Some((*entries.get(entry)?, (How::Block, *sure))));
        let (found, how) = known.unwrap_or_else(|| {
            let found = number(names, &name(new, of));
            (found, (if olds.contains(&found) { How::Names } else { How::Alone }, 1.0))
        });
        // It is none of those that are said to be another's, or not to be its.
        match taken.contains(&found) || forbidden(found, here) {
            true => (number(names, &format!("\0{} {}", of.module, of.entry)), (How::Alone, 1.0)),
            false => (found, how),
        }
    });
    let (of_new, how) = of_new.unzip();
    ([of_old, of_new], how)
}

/// By number of a name of the new build: the number of the function of that name, where it has another one.
fn renamed(names: &mut HashMap<Box<str>, u32>, new: &Side<'_>, numbers: &[u32]) -> HashMap<u32, u32> {
    let mut all: HashMap<u32, BTreeSet<u32>> = HashMap::new();
    for (of, n) in new.code.functions.iter().zip(numbers).filter(|(of, _)| of.is_named) {
        all.entry(number(names, &of.bare)).or_default().insert(*n);
    }
    // Of several of one name, it is not known whose lines they are.
    let one = |(name, numbers): (u32, BTreeSet<u32>)| match numbers.len() {
        1 => numbers.first().map(|n| (name, *n)).filter(|(name, n)| name != n),
        _ => None,
    };
    all.into_iter().filter_map(one).collect()
}

/// By module of side `n`: whether it has lines, and the other build's has, if there is one.
fn have_lines(sides: &[Side<'_>; 2], n: usize) -> Vec<bool> {
    let other = |at: usize, name: &str| match at {
        0 => sides[1 - n].modules.first(),
        _ => sides[1 - n].modules.iter().skip(1).find(|module| module.name == name),
    };
    let all = sides[n].modules.iter().enumerate();
    all.map(|(at, module)| {
        module.lines.is_some() && other(at, &module.name).is_none_or(|other| other.lines.is_some())
    })
    .collect()
}

/// Where each call was written that is in a file with lines.
fn sites(side: &Side<'_>, names: &mut HashMap<Box<str>, u32>) -> Vec<Option<Origin>> {
    let all = side.code.sites.iter().map(|site| {
        let module = side.code.functions.get(site.function as usize)?.module;
        let lines = side.modules.get(module as usize)?.lines.as_ref()?;
        let frames = lines.frames(site.at);
        let frame = frames.first()?;
        let line = frame.line.filter(|line| *line > 0)?;
        Some(Origin { function: number(names, &bare(frame.function.as_deref()?).name), line })
    });
    all.collect()
}

/// How far apart the lines may be that compilers say of one call.
const NEAR: u32 = 3;

/// Of calls whose line one build alone has: the line that the old build has. One call may take up several
/// lines, and compilers do not agree on which one to tell.
fn other_lines(keys: &Keys, sides: &[Side<'_>; 2]) -> HashMap<(Origin, u32), u32> {
    let lines = |n: usize, side: &Side<'_>| {
        let mut found: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
        for called in &side.log.calls {
            let Some(origin) = keys.sites[n].get(called.site as usize).copied().flatten() else { continue };
            let callee = side.log.activities.get(called.activity as usize).map_or(NONE, |of| of.function);
            let callee = keys.functions[n].get(callee as usize).copied().unwrap_or(NONE);
            found.entry((origin.function, callee)).or_default().insert(origin.line);
        }
        found
    };
    let [old, new] = [lines(0, &sides[0]), lines(1, &sides[1])];
    let mut others = HashMap::new();
    for (&(function, callee), lines) in &new {
        let Some(known) = old.get(&(function, callee)) else { continue };
        let mut free: BTreeSet<u32> = known.difference(lines).copied().collect();
        let mut left = Vec::new();
        for &line in lines.difference(known) {
            let near = free.iter().copied().filter(|other| other.abs_diff(line) <= NEAR);
            match near.min_by_key(|other| other.abs_diff(line)) {
                Some(other) => {
                    free.remove(&other);
                    others.insert((Origin { function, line }, callee), other);
                }
                None => left.push(line),
            }
        }
        if left.len() == free.len() {
            let pairs = left.into_iter().zip(free);
            others.extend(pairs.map(|(line, other)| ((Origin { function, line }, callee), other)));
        }
    }
    others
}

/// What is known of a loop by its lines.
struct LoopLines {
    /// The function that all of it is of.
    function: u32,
    /// Its lines there.
    lines: BTreeSet<u32>,
    /// The first line of its header there; 0 if there is none.
    header: u32,
}

/// A frame of an instruction: its function's bare name, its file, its line.
type Frame = (u32, Box<str>, u32);

fn frames(lines: &Lines, at: Va, names: &mut HashMap<Box<str>, u32>) -> Vec<Frame> {
    let all = lines.frames(at).into_iter().rev().map(|frame| {
        let function = frame.function.as_deref().map_or(NONE, |name| number(names, &bare(name).name));
        (function, frame.file.unwrap_or_default().into(), frame.line.unwrap_or(0))
    });
    all.collect()
}

/// The lines of loop `n` of a side, if any are known.
fn loop_lines(side: &Side<'_>, n: usize, names: &mut HashMap<Box<str>, u32>) -> Option<LoopLines> {
    let of = side.code.loops.get(n)?;
    let module = side.modules.get(side.code.functions.get(of.function as usize)?.module as usize)?;
    let lines = module.lines.as_ref()?;
    let (mut all, mut of_header) = (Vec::new(), Vec::new());
    for block in &of.blocks {
        let block = side.code.blocks.get(*block as usize)?;
        for insn in module.program.insns(block.id.1) {
            let found = frames(lines, insn.at(), names);
            if block.at == of.header {
                of_header.push(found.clone());
            }
            all.push(found);
        }
    }
    all.retain(|frames| !frames.is_empty());
    // The innermost function that all of it is of.
    let mut common: Vec<(u32, Box<str>)> =
        all.first()?.iter().map(|(function, file, _)| (*function, file.clone())).collect();
    for frames in &all {
        let same = |(a, b): &(&(u32, Box<str>), &Frame)| a.0 == b.0 && a.1 == b.1;
        let n = common.iter().zip(frames).take_while(same).count();
        common.truncate(n.max(1));
    }
    let (function, file) = common.last()?.clone();
    let line = |frames: &Vec<Frame>| {
        let own = frames.iter().rev().find(|frame| frame.0 == function && frame.1 == file);
        own.map(|frame| frame.2).filter(|line| *line > 0)
    };
    let header = of_header.iter().filter_map(line).min().unwrap_or(0);
    let lines: BTreeSet<u32> = all.iter().filter_map(line).collect();
    (!lines.is_empty()).then_some(LoopLines { function, lines, header })
}

/// Which share of lines two loops have in common.
fn common_share(a: &BTreeSet<u32>, b: &BTreeSet<u32>) -> f64 {
    let both = a.intersection(b).count();
    let either = a.len() + b.len() - both;
    #[expect(clippy::cast_precision_loss, reason = "a share of few lines")]
    let share = both as f64 / either.max(1) as f64;
    share
}

/// Loops of one build are the same from this share of common lines on: unrolled, split, unswitched.
const SAME: f64 = 0.8;
/// Those of two builds.
const ALIKE: f64 = 0.3;
/// What it is worth that the headers' lines are one or next to each other.
const OF_HEADER: f64 = 0.2;

/// Loops that are one.
struct Cluster {
    lines: BTreeSet<u32>,
    header: u32,
    key: u32,
}

/// Numbers for loops.
#[derive(Default)]
struct LoopKeys {
    n: u32,
    /// By function.
    clusters: HashMap<u32, Vec<Cluster>>,
    /// By where the header is, of the old build.
    headers: HashMap<InModule, u32>,
}

impl LoopKeys {
    fn next(&mut self) -> u32 {
        self.n += 1;
        self.n - 1
    }

    /// Of a loop of the old build.
    fn of_old(&mut self, lines: Option<LoopLines>) -> u32 {
        let Some(LoopLines { function, lines, header }) = lines else { return self.next() };
        let known = self.clusters.get(&function).map_or(&[][..], Vec::as_slice);
        let is_same = |one: &&Cluster| one.header == header && common_share(&one.lines, &lines) > SAME;
        if let Some(one) = known.iter().rev().find(is_same) {
            return one.key;
        }
        let key = self.next();
        self.clusters.entry(function).or_default().push(Cluster { lines, header, key });
        key
    }

    /// Of a loop of the new build, whose header became of the one there.
    fn of_new(&mut self, lines: Option<LoopLines>, at: InModule, was: &Was) -> (u32, How) {
        if let Some(key) = was.pins.get(&at).and_then(|pinned| self.headers.get(pinned)) {
            return (*key, How::Pinned);
        }
        let forbidden = was.forbids.iter().filter(|(_, new)| *new == at);
        let forbidden: Vec<u32> = forbidden.filter_map(|(old, _)| self.headers.get(old)).copied().collect();
        let alike = lines.and_then(|LoopLines { function, lines, header }| {
            let score = |one: &Cluster| {
                let near = one.header.abs_diff(header) <= 1;
                common_share(&one.lines, &lines) + if near { OF_HEADER } else { 0.0 }
            };
            let far = |one: &Cluster| one.header.abs_diff(header);
            let known = self.clusters.get(&function)?.iter().map(|one| (score(one), one));
            let best = known.max_by(|a, b| a.0.total_cmp(&b.0).then(far(b.1).cmp(&far(a.1))))?;
            (best.0 >= ALIKE).then_some(best.1.key)
        });
        let by_match = || was.blocks.get(&at).and_then(|was| self.headers.get(was).copied());
        let is_allowed = |key: &u32| !forbidden.contains(key);
        match (alike.filter(is_allowed), by_match().filter(is_allowed)) {
            (Some(key), _) => (key, How::Line),
            (None, Some(key)) => (key, How::Block),
            (None, None) => (self.next(), How::Alone),
        }
    }
}

/// By side and loop: its number; `was` of blocks.
fn loops(
    [lines_old, lines_new]: [Vec<Option<LoopLines>>; 2],
    [old, new]: &[Side<'_>; 2],
    was: &Was,
) -> ([Vec<u32>; 2], Vec<How>) {
    let mut keys = LoopKeys::default();
    let mut of_old = Vec::new();
    for (of, lines) in old.code.loops.iter().zip(lines_old) {
        let key = keys.of_old(lines);
        keys.headers.insert((module(old.code, of.function), of.header), key);
        of_old.push(key);
    }
    let of_new = new
        .code
        .loops
        .iter()
        .zip(lines_new)
        .map(|(of, lines)| keys.of_new(lines, (module(new.code, of.function), of.header), was));
    let (of_new, how) = of_new.unzip();
    ([of_old, of_new], how)
}

fn module(code: &Code, function: u32) -> u32 {
    code.functions.get(function as usize).map_or(NONE, |of| of.module)
}

/// The calls of a side that have run: the function that they are in, the site, and what is called.
pub fn calls(side: &Side<'_>) -> BTreeSet<(u32, u32, u32)> {
    let mut found = BTreeSet::new();
    let callee = |of: &Called| side.log.activities.get(of.activity as usize).map_or(NONE, |of| of.function);
    let mut is_without_site = false;
    for called in &side.log.calls {
        match side.code.sites.get(called.site as usize) {
            Some(site) => _ = found.insert((site.function, called.site, callee(called))),
            None => is_without_site = true,
        }
    }
    if !is_without_site {
        return found;
    }
    for activity in &side.log.activities {
        for token in &activity.tokens {
            let Kind::Call(call) = token.kind() else { continue };
            let Some(called) = side.log.calls.get(call as usize).filter(|of| of.site == NONE) else {
                continue;
            };
            found.insert((activity.function, NONE, callee(called)));
        }
    }
    found
}

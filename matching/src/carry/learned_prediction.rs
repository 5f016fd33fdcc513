//! Which sides of branches run, learnt from the old build's profile: for code of the new build that nothing
//! was matched to.
//!
//! Every branch of the old build that ran is an example: each of its sides ran or did not, and took a share
//! of the flow. What is seen of a side is what static prediction looks at (loops, calls, returns, ways that
//! end, conditions), and what a profile adds: whether the callee ran elsewhere, and how often the branch did.
//! Two logistic regressions, their weights held to zero, say how likely a side is to run at all, and which
//! share it takes. Nothing comes from other programs.
//!
//! Source: Ball and Larus, PLDI 1993 (what to look at); Calder et al., "Evidence-based static branch
//! prediction using machine learning", TOPLAS 1997 (learning it). We differ in that the program's own old
//! profile is what is learnt from. Not here: what becomes of the estimates (`likely`, `infer`).

use crate::carry::complete::{Complete, Knowledge};
use crate::carry::static_prediction::Loops;
use program::{BlockEnd, BlockId, CallKind, Callee, EdgeKind, FuncId, Program};
use std::collections::BTreeMap;

/// How many features a side can have.
const N: usize = 96;
/// How strongly the weights are held to where they start from: as many examples.
const HOLD: f64 = 4.0;
/// Examples learnt from, at most.
const MOST_EXAMPLES: usize = 60_000;

/// Which callees ran, and from how many places.
pub(crate) struct Callees {
    /// By function: places that call it, and places of those that ran.
    functions: Vec<(u32, u32)>,
    imports: BTreeMap<Box<str>, (u32, u32)>,
}

impl Callees {
    /// The callees that ran in the old build.
    pub fn of(program: &Program, counts: &Complete) -> Callees {
        let mut all = Callees { functions: vec![(0, 0); program.functions.len()], imports: BTreeMap::new() };
        for call in &program.calls {
            let func = program.block(call.block).func;
            if counts.known[func.index()] == Knowledge::Entered {
                continue;
            }
            let ran = u32::from(counts.blocks[call.block.index()] > 0);
            let slot = match call.callee {
                Callee::Function(f) => &mut all.functions[f.index()],
                Callee::Import(i) => match program.imports.get(i as usize) {
                    Some(name) => all.imports.entry(name.clone()).or_default(),
                    None => continue,
                },
                Callee::Indirect | Callee::Unknown(_) => continue,
            };
            *slot = (slot.0 + 1, slot.1 + ran);
        }
        all
    }
}

/// What of a program's code can be asked for: the old build's, or the new one's by what its functions were.
pub(crate) struct Observed<'a> {
    pub program: &'a Program,
    pub callees: &'a Callees,
    /// Of the new build: by function, its old one.
    pub from: Option<&'a [Option<FuncId>]>,
}

/// Classes of what a block calls, from the least to the most telling of being rare.
const CALLS_NOTHING: u8 = 0;
const CALLS_OFTEN: u8 = 1;
const CALLS_INDIRECT: u8 = 2;
const CALLS_SOMETIMES: u8 = 3;
const CALLS_NEW: u8 = 4;
const CALLS_NEVER: u8 = 5;

impl Observed<'_> {
    /// What `block` calls. `own`: whether its own run is left out of what ran, and whether it ran.
    fn calls(&self, block: BlockId, own: Option<bool>) -> u8 {
        let class = |call: &program::Call| {
            let times = match call.callee {
                Callee::Indirect => return CALLS_INDIRECT,
                Callee::Unknown(_) => return CALLS_NEW,
                Callee::Function(f) => {
                    let old = match self.from {
                        Some(from) => from[f.index()],
                        None => Some(f),
                    };
                    old.map(|f| self.callees.functions[f.index()])
                }
                Callee::Import(i) => {
                    let name = self.program.imports.get(i as usize);
                    name.and_then(|name| self.callees.imports.get(name)).copied()
                }
            };
            let own = own.map_or((0, 0), |ran| (1, u32::from(ran)));
            match times.map(|t| (t.0.saturating_sub(own.0), t.1.saturating_sub(own.1))) {
                None | Some((0, _)) => CALLS_NEW,
                Some((_, 0)) => CALLS_NEVER,
                Some((sites, ran)) if 2 * ran < sites => CALLS_SOMETIMES,
                Some(_) => CALLS_OFTEN,
            }
        };
        self.program.calls_in(block).iter().map(class).max().unwrap_or(CALLS_NOTHING)
    }
}

/// The features of the blocks of one function.
pub(crate) struct Shape<'a> {
    seen: &'a Observed<'a>,
    first: u32,
    loops: &'a Loops,
    never_returns: Vec<bool>,
    n_before: Vec<u32>,
}

/// The features of one side of a branch, as indexes of weights.
struct SideFeatures {
    has: [u8; 24],
    n: usize,
}

impl SideFeatures {
    fn add(&mut self, what: usize) {
        if let (Some(slot), Ok(what)) = (self.has.get_mut(self.n), u8::try_from(what)) {
            *slot = what;
            self.n += 1;
        }
    }
    fn all(&self) -> &[u8] {
        &self.has[..self.n]
    }
}

impl<'a> Shape<'a> {
    pub fn of(seen: &'a Observed<'a>, func: FuncId, loops: &'a Loops) -> Shape<'a> {
        let program = seen.program;
        let function = program.function(func);
        let edges = program.edge_range(func);
        let mut n_before = vec![0_u32; function.n_blocks()];
        for e in &program.edges[edges] {
            n_before[(e.to.0 - function.blocks.start) as usize] += 1;
        }
        let never_returns = super::static_prediction::doomed(program, func);
        Shape { seen, first: function.blocks.start, loops, never_returns, n_before }
    }

    fn at(&self, b: BlockId) -> usize {
        (b.0 - self.first) as usize
    }

    /// Whether `to` is laid out of the way of `from`: only reached from there by a jump, and jumping back.
    fn is_aside(&self, from: BlockId, e: &program::Edge) -> bool {
        let p = self.seen.program;
        let back = |b: BlockId| match p.successors(b) {
            [e] => e.kind == EdgeKind::Jump && e.to < e.from,
            _ => false,
        };
        e.kind == EdgeKind::Taken
            && e.to > from
            && self.n_before[self.at(e.to)] == 1
            && (back(e.to)
                || matches!(p.successors(e.to), [only] if only.kind == EdgeKind::FallThrough && back(only.to)))
    }

    /// Properties of where an edge leads, as numbers from 0 below 16.
    fn look(&self, from: BlockId, e: &program::Edge, own: Option<bool>, mut say: impl FnMut(usize)) {
        let p = self.seen.program;
        let (a, b) = (self.at(from), self.at(e.to));
        let mut calls = self.seen.calls(e.to, own);
        let mut last = e.to;
        // What only leads on belongs to it.
        for _ in 0..3 {
            match p.successors(last) {
                [next] if self.n_before[self.at(next.to)] == 1 && next.to != last => last = next.to,
                _ => break,
            }
            calls = calls.max(self.seen.calls(last, own));
        }
        if calls != CALLS_NOTHING {
            say(usize::from(calls) - 1);
        }
        if self.never_returns[b] {
            say(5);
        }
        if p.block(last).end == BlockEnd::Return {
            say(6);
        }
        if self.loops.back.binary_search(&(a, b)).is_ok() {
            say(7);
        } else {
            match self.loops.depth[b].cmp(&self.loops.depth[a]) {
                std::cmp::Ordering::Less => say(8),
                std::cmp::Ordering::Greater => say(9),
                std::cmp::Ordering::Equal => {}
            }
        }
        if self.is_aside(from, e) {
            say(10);
        }
        if self.n_before[b] > 1 {
            say(11);
        }
        match p.block(e.to).n_insns {
            0..=2 => say(12),
            3..=8 => {}
            _ => say(13),
        }
        if e.to < from {
            say(14);
        }
    }

    /// What is seen of edge `k` of `from`; `count`: how often `from` runs. `ran`: while learning, whether
    /// each edge did.
    fn side(&self, from: BlockId, k: usize, count: u64, condition: u8, ran: Option<&[bool]>) -> SideFeatures {
        let p = self.seen.program;
        let out = p.successors(from);
        let mut side = SideFeatures { has: [0; 24], n: 0 };
        side.add(0);
        self.look(from, &out[k], ran.map(|r| r[k]), |what| side.add(1 + what));
        match out.len() {
            2 => {
                let other = 1 - k;
                self.look(from, &out[other], ran.map(|r| r[other]), |what| side.add(17 + what));
            }
            n => side.add(if n > 32 {
                35
            } else if n > 8 {
                34
            } else {
                33
            }),
        }
        side.add(match count {
            0..=1 => 36,
            2..=15 => 37,
            16..=255 => 38,
            256..=4095 => 39,
            4096..=65535 => 40,
            _ => 41,
        });
        side.add(match self.loops.depth[self.at(from)] {
            0 => 42,
            1 => 43,
            _ => 44,
        });
        match out[k].kind {
            EdgeKind::Taken => side.add(45 + usize::from(condition.min(16))),
            EdgeKind::FallThrough => side.add(62 + usize::from(condition.min(16))),
            _ => {}
        }
        side
    }
}

/// What a block's sides are expected to do.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    /// Whether a side runs at all.
    runs: Vec<f64>,
    /// Which share of the flow it takes.
    share: Vec<f64>,
}

struct Example {
    has: [u8; 24],
    n: u8,
    runs: f64,
    /// Negative: unknown.
    share: f64,
}

impl Learned {
    /// Learns the weights from the old build's counts.
    pub fn of(old: &Program, counts: &Complete, callees: &Callees) -> Learned {
        let seen = Observed { program: old, callees, from: None };
        let n: usize = old
            .func_ids()
            .filter(|f| counts.known[f.index()] == Knowledge::Inside)
            .flat_map(|f| old.function(f).block_ids())
            .filter(|&b| counts.blocks[b.index()] > 0 && old.edge_ids(b).len() > 1)
            .map(|b| old.edge_ids(b).len().min(4))
            .sum();
        let step = n.div_ceil(MOST_EXAMPLES).max(1);
        let mut examples = Vec::new();
        let mut nth = 0;
        for f in old.func_ids().filter(|f| counts.known[f.index()] == Knowledge::Inside) {
            let function = old.function(f);
            if function.block_ids().all(|b| counts.blocks[b.index()] == 0) {
                continue;
            }
            let loops = Loops::of(old, f);
            let shape = Shape::of(&seen, f, &loops);
            for b in function.block_ids() {
                let count = counts.blocks[b.index()];
                let out = old.successors(b);
                if count == 0 || out.len() < 2 || out.iter().any(|e| e.kind == EdgeKind::LandingPad) {
                    continue;
                }
                nth += 1;
                if nth % step != 0 {
                    continue;
                }
                let taken: Vec<u64> = old.edge_ids(b).map(|e| counts.edges[e.index()]).collect();
                let total: u64 = taken.iter().fold(0, |a, &b| a.saturating_add(b));
                if total == 0 {
                    continue;
                }
                let ran: Vec<bool> = out.iter().map(|e| counts.blocks[e.to.index()] > 0).collect();
                let condition = condition(old, b);
                // Of large tables, some entries stand for all.
                let each = out.len().div_ceil(16);
                for k in (0..out.len()).step_by(each) {
                    let side = shape.side(b, k, count, condition, Some(&ran));
                    let share = if out.len() == 2 { taken[k] as f64 / total as f64 } else { -1.0 };
                    examples.push(Example {
                        has: side.has,
                        n: u8::try_from(side.n).unwrap_or(0),
                        runs: f64::from(u8::from(taken[k] > 0)),
                        share,
                    });
                }
            }
        }
        let runs: Vec<(&Example, f64)> = examples.iter().map(|e| (e, e.runs)).collect();
        let share: Vec<(&Example, f64)> =
            examples.iter().filter(|e| e.share >= 0.0).map(|e| (e, e.share)).collect();
        let (runs, share) = rayon::join(|| fit(&runs), || fit(&share));
        Learned { runs, share }
    }

    fn say(weights: &[f64], side: &SideFeatures) -> f64 {
        1.0 / (1.0 + (-sum(weights, side.all())).exp())
    }

    /// Of each edge of `block`, in order: how likely it is to run at all given that `block` runs, and its
    /// share of the flow.
    pub fn sides(&self, shape: &Shape<'_>, block: BlockId, count: u64) -> Vec<(f64, f64)> {
        let p = shape.seen.program;
        let out = p.successors(block);
        let pads = |e: &program::Edge| e.kind == EdgeKind::LandingPad;
        let ordinary = out.iter().filter(|e| !pads(e)).count();
        if ordinary < 2 {
            let tail = p.calls_in(block).iter().any(|c| c.kind == CallKind::BranchTailCall);
            return out
                .iter()
                .map(|e| match (pads(e), tail) {
                    (true, _) => (0.01, 0.0),
                    (false, true) => (0.7, 0.5),
                    (false, false) => (1.0, 1.0),
                })
                .collect();
        }
        let condition = condition(p, block);
        let mut sides: Vec<(f64, f64)> = (0..out.len())
            .map(|k| {
                if pads(&out[k]) {
                    return (0.01, 0.0);
                }
                let side = shape.side(block, k, count, condition, None);
                let runs = Learned::say(&self.runs, &side);
                (runs, if ordinary == 2 { Learned::say(&self.share, &side) } else { runs })
            })
            .collect();
        // Some side runs; all of the flow goes somewhere.
        let (runs, share) = sides.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
        for s in &mut sides {
            if runs < 1.0 {
                s.0 /= runs.max(1e-9);
            }
            s.1 /= f64::max(share, 1e-9);
        }
        sides
    }
}

fn condition(program: &Program, block: BlockId) -> u8 {
    program.insns(block).last().map_or(0, |i| i.condition())
}

fn sum(weights: &[f64], has: &[u8]) -> f64 {
    has.iter().map(|&i| weights[usize::from(i)]).sum()
}

/// Logistic regression by Newton's method, held to zero.
fn fit(examples: &[(&Example, f64)]) -> Vec<f64> {
    const ROUNDS: usize = 6;
    let mut w = vec![0.0; N];
    if examples.is_empty() {
        return w;
    }
    for _ in 0..ROUNDS {
        let mut h = vec![0.0; N * N];
        let mut g: Vec<f64> = w.iter().map(|w| -HOLD * w).collect();
        for i in 0..N {
            h[i * N + i] = HOLD;
        }
        for &(e, y) in examples {
            let has = &e.has[..usize::from(e.n)];
            let p = 1.0 / (1.0 + (-sum(&w, has)).exp());
            let v = p * (1.0 - p);
            for &i in has {
                let i = usize::from(i);
                g[i] += y - p;
                for &j in has {
                    h[i * N + usize::from(j)] += v;
                }
            }
        }
        let step = solve(h, g);
        let largest = step.iter().fold(0.0_f64, |m, s| m.max(s.abs()));
        for (w, s) in w.iter_mut().zip(&step) {
            *w += s;
        }
        if largest < 1e-3 {
            break;
        }
    }
    w
}

/// Solves `a x = b`, `a` being symmetric and positive definite, by Cholesky's decomposition.
fn solve(mut a: Vec<f64>, mut b: Vec<f64>) -> Vec<f64> {
    for i in 0..N {
        for j in 0..=i {
            let mut s = a[i * N + j];
            for k in 0..j {
                s -= a[i * N + k] * a[j * N + k];
            }
            a[i * N + j] = if i == j { s.max(1e-12).sqrt() } else { s / a[j * N + j] };
        }
    }
    for i in 0..N {
        for k in 0..i {
            b[i] -= a[i * N + k] * b[k];
        }
        b[i] /= a[i * N + i];
    }
    for i in (0..N).rev() {
        for k in i + 1..N {
            b[i] -= a[k * N + i] * b[k];
        }
        b[i] /= a[i * N + i];
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples(seen: &[(&[u8], f64)]) -> Vec<Example> {
        let example = |&(what, y): &(&[u8], f64)| {
            let mut has = [0; 24];
            has[..what.len()].copy_from_slice(what);
            Example { has, n: u8::try_from(what.len()).unwrap(), runs: y, share: y }
        };
        seen.iter().map(example).collect()
    }

    #[test]
    fn what_is_learnt_is_the_rate_of_what_was_seen() {
        // 300 of 400 with property 7, 40 of 400 without it; held to a half by four examples a weight. The
        // rates are those of the same two equations, solved outside this program.
        let mut seen: Vec<(&[u8], f64)> = Vec::new();
        for i in 0..400 {
            seen.push((&[0, 7], f64::from(u8::from(i < 300))));
            seen.push((&[0], f64::from(u8::from(i < 40))));
        }
        let all = examples(&seen);
        let w = fit(&all.iter().map(|e| (e, e.runs)).collect::<Vec<_>>());
        let rate = |has: &[u8]| 1.0 / (1.0 + (-sum(&w, has)).exp());
        assert!((rate(&[0, 7]) - 0.722_683).abs() < 1e-4, "{}", rate(&[0, 7]));
        assert!((rate(&[0]) - 0.145_056).abs() < 1e-4, "{}", rate(&[0]));
        assert!((rate(&[]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_seen_is_nothing_learnt() {
        assert!(fit(&[]).iter().all(|&w| w == 0.0));
    }
}

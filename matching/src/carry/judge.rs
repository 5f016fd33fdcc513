//! Whether blocks ran that nothing firm was matched to, and estimates of their counts from that.
//!
//! How likely each is to have run follows from what is known around it and from what was learnt of sides of
//! branches; what is more likely not to have run gets none of the flow. A block that only its place speaks
//! for is believed as far as such matches turned out right.
//!
//! Source: ours. Not here: what was learnt (`learned_prediction`), how contradictions are settled (`infer`).

use crate::carry::infer::{Estimate, Problem};
use crate::carry::learned_prediction::{Learned, Observed, Shape};
use crate::carry::static_prediction::{Loops, weak};
use crate::carry::transfer::Carried;
use program::{BlockId, Dominators, FuncId};

/// How likely a block ran whose firm match did not, and an edge that the old build did not take.
const RAN_ALL_THE_SAME: f64 = 0.03;
/// What it adds to the log-odds of having run that all the flow of an old block goes through, which ran.
const ALL_OF_WHAT_RAN: f64 = 1.9;
/// What it adds to the log-odds of a side of an old branch, or of an old block, to lead to new code: measured
/// over seven pairs, what is new in an old function runs less often than its like.
const NEW_IN_OLD: f64 = -1.2;

/// What is left of that for the blocks behind it, when it is decided whether they ran.
const WITHIN_OLD: f64 = -0.8;

/// Gives estimates to what nothing firm is known of in `p`.
pub(crate) fn fill(
    seen: &Observed<'_>,
    learned: &Learned,
    func: FuncId,
    p: &mut Problem,
    matched: &[Option<Carried>],
) {
    let is_said = |e: &Estimate| e.count > 0 || e.raise > 2 || e.lower > 2;
    let firm: Vec<bool> = matched.iter().map(|m| m.is_some_and(|m| !m.partial && !m.placed)).collect();
    let said: Vec<bool> = p.edge.iter().map(is_said).collect();
    if firm.iter().all(|&k| k) && said.iter().all(|&k| k) {
        return;
    }
    let loops = Loops::of(seen.program, func);
    let graph = Graph::of(p, &loops, &firm, &said);
    let Belief { likely, share } = believe(seen, learned, func, p, &graph, matched);
    let in_old = |b: usize| matched.get(b).copied().flatten().is_some_and(|m| m.partial);
    let ran: Vec<bool> = (0..p.blocks.len())
        .map(|b| if in_old(b) { shifted(likely[b], WITHIN_OLD) >= 0.5 } else { likely[b] >= 0.5 })
        .collect();

    // Counts: along the sides that run, by their shares.
    let (counts, edges) = flow(p, &graph, &ran, &share);
    for b in (0..p.blocks.len()).filter(|&b| !firm[b]) {
        let placed = matched.get(b).copied().flatten().filter(|m| !m.partial);
        p.blocks[b] = match placed {
            _ if !ran[b] => Estimate::unknown(reluctance(likely[b])),
            Some(m) if m.count > 0 => Estimate { count: m.count, raise: 12, lower: 12, keep: false },
            _ => {
                let mut e = p.blocks[b];
                weak(counts[b].max(1.0), &mut e);
                e
            }
        };
    }
    for k in 0..p.edges.len() {
        let (a, b) = (p.edges[k].0 as usize, p.edges[k].1 as usize);
        if !ran[a] && !firm[a] || !said[k] && !ran[b] {
            p.edge[k] = Estimate::unknown(3);
        } else if !said[k] {
            weak(edges[k], &mut p.edge[k]);
        }
    }
}

/// A function's graph, and what is known of it.
struct Graph<'a> {
    loops: &'a Loops,
    /// By block: the edges that leave it, and that lead to it.
    out: Vec<Vec<usize>>,
    into: Vec<Vec<usize>>,
    /// Blocks whose count is known by a firm match.
    firm: &'a [bool],
    /// Edges that have a count.
    said: &'a [bool],
}

impl<'a> Graph<'a> {
    fn of(p: &Problem, loops: &'a Loops, firm: &'a [bool], said: &'a [bool]) -> Graph<'a> {
        let n = p.blocks.len();
        let mut graph = Graph { loops, out: vec![Vec::new(); n], into: vec![Vec::new(); n], firm, said };
        for (k, &(a, b)) in p.edges.iter().enumerate() {
            graph.out[a as usize].push(k);
            graph.into[b as usize].push(k);
        }
        graph
    }
}

/// How likely a function's blocks ran, and where control went.
struct Belief {
    /// How likely each block is to have run.
    likely: Vec<f64>,
    /// By edge: the share of its block's executions that goes along it.
    share: Vec<f64>,
}

/// How likely each block of `func` is to have run: forwards from what is known, backwards, and forwards
/// again.
fn believe(
    seen: &Observed<'_>,
    learned: &Learned,
    func: FuncId,
    p: &Problem,
    graph: &Graph<'_>,
    matched: &[Option<Carried>],
) -> Belief {
    let Graph { loops, out, into, firm, said } = graph;
    let program = seen.program;
    let first = program.function(func).blocks.start;
    let block = |b: usize| BlockId(first + u32::try_from(b).expect("an index of a block"));
    let shape = Shape::of(seen, func, loops);
    let dominators = Dominators::compute(program, func);
    let entered = |b: usize| p.enter[b].map_or(0, |e| e.count);
    let n = p.blocks.len();
    let mut likely = vec![0.0_f64; n];
    let mut at_most = vec![1.0_f64; n];
    // Roughly how often each block ran.
    let mut rough = vec![0.0_f64; n];
    let mut runs = vec![0.0_f64; p.edges.len()];
    let mut share = vec![0.0_f64; p.edges.len()];
    for round in 0..2 {
        for &b in &loops.order {
            if firm[b] {
                let count = p.blocks[b].count;
                likely[b] = if count > 0 { 1.0 } else { RAN_ALL_THE_SAME };
                rough[b] = count as f64;
            } else {
                let mut sum: f64 = 0.0;
                for &k in &into[b] {
                    let a = p.edges[k].0 as usize;
                    let comes = likely[a] * runs[k];
                    let is_first = firm[a] && !said[k];
                    sum += if is_first { shifted(comes, NEW_IN_OLD) } else { comes };
                }
                if let Some(above) = dominators.immediate(block(b)) {
                    sum = sum.min(likely[(above.0 - first) as usize]);
                }
                if entered(b) > 0 {
                    sum = 1.0;
                }
                if matched.get(b).copied().flatten().is_some_and(|m| !m.partial && m.most > 0) {
                    sum = shifted(sum, ALL_OF_WHAT_RAN);
                }
                likely[b] = sum.min(at_most[b]).min(1.0);
                rough[b] = into[b].iter().map(|&k| rough[p.edges[k].0 as usize] * share[k]).sum::<f64>()
                    + entered(b) as f64;
            }
            if round > 0 || out[b].is_empty() {
                continue;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let count = rough[b].clamp(0.0, 1e15) as u64;
            for (&k, (r, s)) in out[b].iter().zip(learned.sides(&shape, block(b), count)) {
                let e = &p.edge[k];
                runs[k] = match (said[k], e.count) {
                    (true, 0) => RAN_ALL_THE_SAME,
                    (true, _) => 1.0,
                    (false, _) => r,
                };
                share[k] = if said[k] { e.count as f64 / rough[b].max(1.0) } else { s };
            }
        }
        // Backwards: what leads only to what did not run did not run.
        for &b in loops.order.iter().rev() {
            if !firm[b] && p.leave[b].is_none_or(|e| e.raise > 0) && !out[b].is_empty() {
                let on: f64 = out[b].iter().map(|&k| at_most_of(firm, &likely, &at_most, p.edges[k].1)).sum();
                at_most[b] = on.min(1.0);
            }
        }
    }
    Belief { likely, share }
}

/// The probability whose log-odds are moved by so much.
fn shifted(p: f64, by: f64) -> f64 {
    let p = p.clamp(0.001, 0.999);
    1.0 / (1.0 + (1.0 - p) / p * (-by).exp())
}

fn at_most_of(firm: &[bool], likely: &[f64], at_most: &[f64], b: u32) -> f64 {
    let b = b as usize;
    if firm[b] { likely[b] } else { at_most[b] }
}

/// The cost of an execution of what is not believed to run.
fn reluctance(likely: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 4 and 20")]
    let cost = (20.0 - 32.0 * likely.clamp(0.0, 0.5)) as u32;
    cost
}

/// Counts of blocks and edges: what is known stays, the rest of the flow goes where it is believed to run.
fn flow(p: &Problem, graph: &Graph<'_>, ran: &[bool], share: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let Graph { loops, out, into, firm, said } = graph;
    const ROUNDS: usize = 24;
    let mut block: Vec<f64> = p.blocks.iter().map(|e| e.count as f64).collect();
    let mut edge: Vec<f64> = p.edge.iter().map(|e| e.count as f64).collect();
    for _ in 0..ROUNDS {
        let mut moved = 0.0_f64;
        for &b in &loops.order {
            if !firm[b] {
                let entered = p.enter[b].map_or(0.0, |e| e.count as f64);
                let sum: f64 = into[b].iter().map(|&k| edge[k]).sum::<f64>() + entered;
                let sum = if ran[b] { sum.min(1e15) } else { 0.0 };
                moved = moved.max((sum - block[b]).abs());
                block[b] = sum;
            }
            let fixed: f64 = out[b].iter().filter(|&&k| said[k]).map(|&k| edge[k]).sum();
            let believed = |k: usize| !said[k] && ran[p.edges[k].1 as usize];
            let open: f64 = out[b].iter().filter(|&&k| believed(k)).map(|&k| share[k]).sum();
            let rest = (block[b] - fixed).max(0.0);
            // A way out of the function takes its part.
            let stays = if p.leave[b].is_some_and(|e| e.raise == 0) && out[b].len() == 1 { 0.5 } else { 1.0 };
            for &k in out[b].iter().filter(|&&k| !said[k]) {
                edge[k] = if believed(k) { stays * rest * share[k] / open.max(1e-9) } else { 0.0 };
            }
        }
        if moved < 0.5 {
            break;
        }
    }
    (block, edge)
}

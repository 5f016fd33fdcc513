//! Which way branches go when no profile says so, and weak estimates of counts from that.
//!
//! Source: Ball and Larus, "Branch prediction for free", PLDI 1993; Wu and Larus, "Static branch frequency
//! and program profile analysis", MICRO 1994, table 1 (the probabilities) and section 2.2 (how they are
//! combined). We differ in that what cannot return is all but never reached, and that operands are looked at,
//! not types.

use crate::carry::infer::{Estimate, Problem};
use program::{BlockEnd, BlockId, CallKind, EdgeKind, FuncId, Program};

/// Probability of a loop's back edge (Wu and Larus, table 1: LBH), and of staying in the loop (LEH).
const BACK: f64 = 0.88;
const STAY: f64 = 0.80;
/// Of not going where a call is made (CH), and not going where the function returns (RH).
const NO_CALL: f64 = 0.78;
const NO_RETURN_STMT: f64 = 0.72;
/// Of not going where control ends: `abort`, `ud2`, a call that does not return. Ours.
const NO_END: f64 = 0.999;
/// What is expected less often than this, a call of its function, is taken not to run at all. Ours.
const RARE: f64 = 0.1;

/// Probability of each edge of `func`, in edge order, given that its block runs.
pub(crate) fn probabilities(program: &Program, func: FuncId) -> Vec<f64> {
    let function = program.function(func);
    let first = function.blocks.start;
    let edges = &program.edges[program.edge_range(func)];
    let loops = Loops::of(program, func);
    let never_returns = doomed(program, func);
    let mut all = vec![0.0; edges.len()];
    let mut i = 0;
    for b in function.block_ids() {
        let out = program.successors(b);
        let mine = i..i + out.len();
        i = mine.end;
        let ordinary: Vec<usize> = mine.clone().filter(|&k| edges[k].kind != EdgeKind::LandingPad).collect();
        match *ordinary.as_slice() {
            [] => {}
            [only] => all[only] = if tail_branch(program, b) { 0.5 } else { 1.0 },
            [x, y] => {
                let to = |k: usize| (edges[k].to.0 - first) as usize;
                let (bx, by) = (to(x), to(y));
                let mut p = 0.5;
                let mut combine = |says_x: bool, says_y: bool, strength: f64| {
                    if says_x != says_y {
                        let q = if says_x { strength } else { 1.0 - strength };
                        p = p * q / (p * q + (1.0 - p) * (1.0 - q));
                    }
                };
                let from = (b.0 - first) as usize;
                combine(!never_returns[bx], !never_returns[by], NO_END);
                combine(loops.back.contains(&(from, bx)), loops.back.contains(&(from, by)), BACK);
                let stays = |t: usize| loops.depth[t] >= loops.depth[from];
                combine(stays(bx), stays(by), STAY);
                let block = |t: usize| BlockId(first + u32::try_from(t).expect("an index of a block"));
                let calls = |t: usize| program.calls_in(block(t)).iter().any(|c| c.kind == CallKind::Call);
                combine(!calls(bx), !calls(by), NO_CALL);
                let returns = |t: usize| program.block(block(t)).end == BlockEnd::Return;
                combine(!returns(bx), !returns(by), NO_RETURN_STMT);
                all[x] = p;
                all[y] = 1.0 - p;
            }
            _ => {
                for &k in &ordinary {
                    all[k] = 1.0 / ordinary.len() as f64;
                }
            }
        }
    }
    all
}

fn tail_branch(program: &Program, b: BlockId) -> bool {
    program.calls_in(b).iter().any(|c| c.kind == CallKind::BranchTailCall)
}

/// Blocks from which every way ends in what does not return.
pub(crate) fn doomed(program: &Program, func: FuncId) -> Vec<bool> {
    let function = program.function(func);
    let first = function.blocks.start;
    let mut never_returns: Vec<bool> = function
        .block_ids()
        .map(|b| matches!(program.block(b).end, BlockEnd::NoReturn | BlockEnd::Stop))
        .collect();
    loop {
        let mut changed = false;
        for (i, b) in function.block_ids().enumerate().rev() {
            let out = program.successors(b);
            let all = || {
                out.iter()
                    .filter(|e| e.kind != EdgeKind::LandingPad)
                    .all(|e| never_returns[(e.to.0 - first) as usize])
            };
            if !never_returns[i]
                && !out.is_empty()
                && program.calls_in(b).iter().all(|c| c.kind == CallKind::Call)
                && all()
            {
                never_returns[i] = true;
                changed = true;
            }
        }
        if !changed {
            return never_returns;
        }
    }
}

/// Back edges of a depth-first search, and how many natural loops hold each block.
pub(crate) struct Loops {
    pub back: Vec<(usize, usize)>,
    pub depth: Vec<u32>,
    /// Blocks in reverse postorder; those that are not reached come last.
    pub order: Vec<usize>,
}

impl Loops {
    pub fn of(program: &Program, func: FuncId) -> Loops {
        let function = program.function(func);
        let first = function.blocks.start;
        let n = function.n_blocks();
        let next = |b: usize| {
            let id = BlockId(first + u32::try_from(b).expect("an index of a block"));
            program.successors(id).iter().map(move |e| (e.to.0 - first) as usize)
        };
        let entry = program.entry_block(func).map_or(0, |b| (b.0 - first) as usize);
        let (mut state, mut order, mut back) = (vec![0_u8; n], Vec::new(), Vec::new());
        for root in std::iter::once(entry).chain(0..n) {
            if state.get(root).is_none_or(|&s| s != 0) {
                continue;
            }
            let mut stack = vec![(root, next(root).collect::<Vec<_>>())];
            state[root] = 1;
            while let Some((v, rest)) = stack.last_mut() {
                match rest.pop() {
                    Some(t) if state[t] == 0 => {
                        state[t] = 1;
                        stack.push((t, next(t).collect()));
                    }
                    Some(t) if state[t] == 1 => back.push((*v, t)),
                    Some(_) => {}
                    None => {
                        state[*v] = 2;
                        order.push(*v);
                        stack.pop();
                    }
                }
            }
        }
        order.reverse();
        back.sort_unstable();
        back.dedup();
        let mut before = vec![Vec::new(); n];
        for v in 0..n {
            for t in next(v) {
                before[t].push(v);
            }
        }
        let mut depth = vec![0_u32; n];
        let mut headers: Vec<usize> = back.iter().map(|&(_, h)| h).collect();
        headers.sort_unstable();
        headers.dedup();
        let mut seen = vec![usize::MAX; n];
        for h in headers {
            seen[h] = h;
            depth[h] += 1;
            let mut stack: Vec<usize> = back.iter().filter(|&&(_, t)| t == h).map(|&(v, _)| v).collect();
            while let Some(v) = stack.pop() {
                if seen[v] != h {
                    seen[v] = h;
                    depth[v] += 1;
                    stack.extend(&before[v]);
                }
            }
        }
        Loops { back, depth, order }
    }
}

/// A weak estimate: gives way to everything that is known.
pub(crate) fn weak(count: f64, e: &mut Estimate) {
    // Counts are below 2^53 here: what is known was cut, and loops multiply by ten at most a level.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of counts"
    )]
    let count = count.clamp(0.0, 1e15).round() as u64;
    *e = Estimate { count, raise: 2, lower: 1, keep: false };
}

/// Gives blocks and edges of unknown count weak estimates, from what is known around them and from
/// probabilities.
pub(crate) fn fill(program: &Program, func: FuncId, p: &mut Problem) {
    const ROUNDS: usize = 24;
    let n = p.blocks.len();
    let is_known = |e: &Estimate| e.count > 0 || e.raise > 2 || e.lower > 2;
    let known_block: Vec<bool> = p.blocks.iter().map(is_known).collect();
    let known_edge: Vec<bool> = p.edge.iter().map(is_known).collect();
    if known_block.iter().all(|&k| k) && known_edge.iter().all(|&k| k) {
        return;
    }
    let probability = probabilities(program, func);
    let order = Loops::of(program, func).order;
    let mut out = vec![Vec::new(); n];
    let mut into = vec![Vec::new(); n];
    for (k, &(a, b)) in p.edges.iter().enumerate() {
        out[a as usize].push(k);
        into[b as usize].push(k);
    }
    let mut block: Vec<f64> = p.blocks.iter().map(|e| e.count as f64).collect();
    let mut edge: Vec<f64> = p.edge.iter().map(|e| e.count as f64).collect();
    for _ in 0..ROUNDS {
        let mut moved = 0.0_f64;
        for &b in &order {
            if !known_block[b] {
                let entered = p.enter[b].map_or(0.0, |e| e.count as f64);
                let sum: f64 = into[b].iter().map(|&k| edge[k]).sum::<f64>() + entered;
                moved = moved.max((sum - block[b]).abs());
                block[b] = sum.min(1e15);
            }
            let fixed: f64 = out[b].iter().filter(|&&k| known_edge[k]).map(|&k| edge[k]).sum();
            let open: f64 = out[b].iter().filter(|&&k| !known_edge[k]).map(|&k| probability[k]).sum();
            let known_out = out[b].iter().any(|&k| known_edge[k]);
            let rest = (block[b] - fixed).max(0.0);
            for &k in out[b].iter().filter(|&&k| !known_edge[k]) {
                let share = if known_out { probability[k] / open.max(1e-9) } else { probability[k] };
                edge[k] = rest * share;
            }
        }
        if moved < 0.5 {
            break;
        }
    }
    let top: f64 = p.enter.iter().flatten().map(|e| e.count as f64).sum();
    let settle = |count: f64, e: &mut Estimate| {
        if count < RARE * top {
            *e = Estimate::unknown(5);
        } else {
            weak(count, e);
        }
    };
    for b in (0..n).filter(|&b| !known_block[b]) {
        settle(block[b], &mut p.blocks[b]);
    }
    for k in (0..p.edges.len()).filter(|&k| !known_edge[k]) {
        settle(edge[k], &mut p.edge[k]);
    }
}

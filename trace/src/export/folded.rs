//! Folded stacks: what flamegraph.pl, inferno and speedscope read; of a trace they are exact.
//!
//! ```text
//! main;parse;next_token 15000       outermost first, `;` between frames, then blocks or instructions run
//! ```
//! A line a stack that executed something by itself, so the numbers add up to all that was executed.
//! Functions that a part of a trace begins in are on its stacks. What is called deeper than a bound counts
//! for the function at the bound.
//!
//! Source: Gregg, "The Flame Graph", CACM 59(6), 2016; the tree of calling contexts: Ammons, Ball and Larus,
//! PLDI 1997.

use crate::file::ReadError;
use crate::ids::{BlockId, FuncId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// The most stacks: more would need gigabytes, and nothing can draw them.
const MOST_STACKS: usize = 1 << 26;
/// The most bytes of text.
const MOST_BYTES: u64 = 16 << 30;

/// Why a trace is not folded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It has too many stacks.
    #[error("it has more than {MOST_STACKS} stacks")]
    Many,
    /// They are too deep.
    #[error("its stacks would be {n_bytes} bytes of text")]
    Long {
        /// How long they would be.
        n_bytes: u64,
    },
}

/// A stack: a path of the tree.
struct Stack {
    under: u32,
    func: FuncId,
    weight: u64,
}

/// The stacks of a part of a trace.
pub struct Folded {
    /// The first is the empty one.
    stacks: Vec<Stack>,
}

impl Folded {
    /// Reads the part; each block counts as `weight(function, block)`. Functions deeper than `depth` are not
    /// told apart.
    ///
    /// # Errors
    /// If the trace cannot be read, or has more stacks than can be kept.
    pub fn of(
        trace: &Trace,
        part: &Part,
        depth: usize,
        mut weight: impl FnMut(FuncId, BlockId) -> u64,
    ) -> Result<Folded, FoldError> {
        let mut stacks = vec![Stack { under: 0, func: FuncId(0), weight: 0 }];
        let mut known: HashMap<(u32, FuncId), u32> = HashMap::new();
        // The stacks of the open functions, and the functions.
        let mut open: Vec<(u32, FuncId)> = Vec::new();
        let mut of = None;
        let enough = trace.read_part(part, |piece| {
            if of.replace(piece.thread) != Some(piece.thread) {
                open.clear();
            }
            let mut enter = |open: &mut Vec<(u32, FuncId)>, stacks: &mut Vec<Stack>, func: FuncId| {
                let under = open.last().map_or(0, |top| top.0);
                let stack = match open.len() < depth {
                    false => under,
                    true => *known.entry((under, func)).or_insert_with(|| {
                        stacks.push(Stack { under, func, weight: 0 });
                        u32::try_from(stacks.len() - 1).unwrap_or(u32::MAX)
                    }),
                };
                open.push((stack, func));
            };
            piece.open.iter().for_each(|&func| enter(&mut open, &mut stacks, func));
            for &code in piece.symbols {
                match Symbol(code).step() {
                    Step::Enter(func) => enter(&mut open, &mut stacks, func),
                    Step::Exit => drop(open.pop()),
                    Step::Block(block) => {
                        let (stack, n) =
                            open.last().map_or((0, 1), |&(stack, func)| (stack, weight(func, block)));
                        let of_stack = stacks.get_mut(stack as usize).map(|s| &mut s.weight);
                        of_stack.into_iter().for_each(|sum| *sum = sum.saturating_add(n));
                    }
                }
            }
            if stacks.len() > MOST_STACKS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match enough {
            Some(()) => Err(FoldError::Many),
            None => Ok(Folded { stacks }),
        }
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, s| sum.saturating_add(s.weight))
    }

    /// How many stacks executed something by themselves.
    pub fn n_stacks(&self) -> usize {
        self.stacks.iter().filter(|s| s.weight > 0).count()
    }

    /// Checks that they can be written, functions by what they are `called`.
    ///
    /// # Errors
    /// [`FoldError::Long`]
    pub fn fits(&self, called: &dyn Fn(FuncId) -> String) -> Result<(), FoldError> {
        let frames = self.frames(called);
        let mut lengths: Vec<u64> = Vec::with_capacity(self.stacks.len());
        let mut n_bytes = 0_u64;
        for (i, stack) in self.stacks.iter().enumerate() {
            let under = lengths.get(stack.under as usize).copied().unwrap_or(0);
            let own = if i == 0 { 0 } else { frames.get(&stack.func).map_or(0, |f| f.len() as u64 + 1) };
            lengths.push(under.saturating_add(own));
            if stack.weight > 0 {
                n_bytes = n_bytes.saturating_add(under).saturating_add(own).saturating_add(2);
            }
        }
        if n_bytes > MOST_BYTES { Err(FoldError::Long { n_bytes }) } else { Ok(()) }
    }

    /// Writes them, functions by what they are `called`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&self, w: &mut dyn Write, called: &dyn Fn(FuncId) -> String) -> io::Result<()> {
        let frames = self.frames(called);
        let frame = |stack: u32| {
            let stack = self.stacks.get(stack as usize);
            stack.and_then(|s| frames.get(&s.func)).map_or("", String::as_str)
        };
        let mut above: Vec<Vec<u32>> = vec![Vec::new(); self.stacks.len()];
        for (n, stack) in (0..).zip(&self.stacks).skip(1) {
            above.get_mut(stack.under as usize).into_iter().for_each(|all| all.push(n));
        }
        let of = |n: u32| self.stacks.get(n as usize).map_or(0, |s| s.weight);
        if of(0) > 0 {
            writeln!(w, "[unknown] {}", of(0))?;
        }
        // Stacks that are to be written, each with the length of the text under it; the next one last.
        let (mut rest, mut text) = (vec![(0, 0)], String::new());
        while let Some((n, len)) = rest.pop() {
            text.truncate(len);
            if n > 0 {
                text.push_str(if len > 0 { ";" } else { "" });
                text.push_str(frame(n));
                if of(n) > 0 {
                    writeln!(w, "{text} {}", of(n))?;
                }
            }
            let mut next = above.get_mut(n as usize).map(std::mem::take).unwrap_or_default();
            next.sort_by(|a, b| frame(*b).cmp(frame(*a)).then(b.cmp(a)));
            rest.extend(next.into_iter().map(|n| (n, text.len())));
        }
        Ok(())
    }

    /// What functions are called, without what separates frames.
    fn frames(&self, called: &dyn Fn(FuncId) -> String) -> HashMap<FuncId, String> {
        let mut frames: HashMap<FuncId, String> = HashMap::new();
        for stack in self.stacks.iter().skip(1) {
            frames.entry(stack.func).or_insert_with(|| called(stack.func).replace([';', '\n', '\r'], ":"));
        }
        frames
    }
}

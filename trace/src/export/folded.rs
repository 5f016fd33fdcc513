//! Folded stacks: what flamegraph.pl, inferno and speedscope read; of a trace they are exact.
//!
//! ```text
//! main;parse;next_token 15000       outermost first, `;` between frames, then blocks or instructions run
//! ```
//! A line a stack that executed something by itself, so the numbers add up to all that was executed.
//!
//! Source: Gregg, "The Flame Graph", CACM 59(6), 2016.

use crate::call_tree::{CallTree, Node};
use crate::ids::FuncId;
use std::collections::HashMap;
use std::io::{self, Write};

/// The most bytes of text.
const MOST_BYTES: u64 = 16 << 30;

/// The stacks would be more text than anything reads.
#[derive(Debug, thiserror::Error)]
#[error("its stacks would be {n_bytes} bytes of text")]
pub struct TooLong {
    /// How long they would be.
    pub n_bytes: u64,
}

/// The stacks of a part of a trace.
pub struct Folded<'a> {
    /// The first is the empty one.
    stacks: &'a [Node],
}

impl Folded<'_> {
    /// Those of a tree of calls.
    pub fn of(tree: &CallTree) -> Folded<'_> {
        Folded { stacks: &tree.nodes }
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, s| sum.saturating_add(s.own))
    }

    /// How many stacks executed something by themselves.
    pub fn n_stacks(&self) -> usize {
        self.stacks.iter().filter(|s| s.own > 0).count()
    }

    /// Checks that they can be written, functions by what they are `called`.
    ///
    /// # Errors
    /// [`TooLong`]
    pub fn fits(&self, called: &dyn Fn(FuncId) -> String) -> Result<(), TooLong> {
        let frames = self.frames(called);
        let mut lengths: Vec<u64> = Vec::with_capacity(self.stacks.len());
        let mut n_bytes = 0_u64;
        for (i, stack) in self.stacks.iter().enumerate() {
            let under = lengths.get(stack.under as usize).copied().unwrap_or(0);
            let own = if i == 0 { 0 } else { frames.get(&stack.func).map_or(0, |f| f.len() as u64 + 1) };
            lengths.push(under.saturating_add(own));
            if stack.own > 0 {
                n_bytes = n_bytes.saturating_add(under).saturating_add(own).saturating_add(2);
            }
        }
        if n_bytes > MOST_BYTES { Err(TooLong { n_bytes }) } else { Ok(()) }
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
        for (n, stack) in (0..).zip(self.stacks).skip(1) {
            above.get_mut(stack.under as usize).into_iter().for_each(|all| all.push(n));
        }
        let of = |n: u32| self.stacks.get(n as usize).map_or(0, |s| s.own);
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

//! Which functions and calls never return: a fixpoint over the call graph.
//!
//! A function returns if control can get from an entry of it to a return, to a jump out of it that may
//! return, or to anything that is not understood, passing only calls that return. We start with none and add
//! until nothing changes, so functions that only call each other do not return. Functions of the image that
//! bear a reserved name never return.
//!
//! Not here: what is known of the C library's functions by name (`libc`).

use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::sweep::raw::{RawCall, RawEnd, Transfer};
use crate::libc;

/// Works out which functions and calls return, and notes it in `code`.
///
/// Each block is looked at once, and once more for each callee that it waits for: what is found to return
/// sets the blocks going that stopped at calls to it, not their functions.
pub fn infer(code: &mut RawCode<'_>) {
    let n = code.funcs.len();
    let entries = code.entry_ranks();
    let mut walk = Walk {
        code,
        callees: code.calls.iter().map(|call| callee(code, call)).collect(),
        returns: vec![false; n],
        waiting: vec![Vec::new(); n],
        seen: vec![false; code.blocks.len()],
        stack: Vec::new(),
        found: Vec::new(),
    };
    for (f, (proto, entries)) in (0u32..).zip(code.funcs.iter().zip(&entries)) {
        match proto.named_returns {
            Some(true) => walk.found.push(f),
            Some(false) => {}
            None if entries.is_empty() => walk.found.push(f),
            None => {
                walk.stack.extend_from_slice(entries);
                walk.run();
            }
        }
        walk.settle();
    }
    let Walk { callees, returns, .. } = walk;
    code.never = (code.calls.iter().zip(callees))
        .filter(|(call, callee)| {
            let back = match callee {
                Target::Returns => true,
                Target::Never => false,
                Target::Function(g) => returns[*g as usize],
            };
            call.transfer.is_call() && !back
        })
        .map(|(call, _)| call.at)
        .collect();
    for (f, returns) in code.funcs.iter_mut().zip(returns) {
        f.returns = returns;
    }
}

/// What a call leads to, as far as it matters for returning.
#[derive(Clone, Copy)]
enum Target {
    Returns,
    Never,
    /// As this function does.
    Function(u32),
}

/// What `call` leads to.
fn callee(code: &RawCode<'_>, call: &RawCall) -> Target {
    if code.seams.binary_search_by_key(&call.at, |s| s.0).is_ok() {
        return Target::Never;
    }
    let callee = match call.transfer {
        Transfer::Direct => code.block_from(call.target).map(|b| code.owner[b as usize]),
        Transfer::Slot | Transfer::JumpSlot => match code.slot_import(call.target) {
            Some(name) => {
                let is_libc = |name: &str| code.cx.image.is_libc_import(name);
                return if libc::import_never_returns(name, is_libc) {
                    Target::Never
                } else {
                    Target::Returns
                };
            }
            None => code.slot_function(call.target),
        },
        Transfer::Indirect | Transfer::JumpIndirect => None,
    };
    callee.filter(|&g| g != NO_FUNC).map_or(Target::Returns, Target::Function)
}

/// A walk along control flow, from block to block.
struct Walk<'w, 'a> {
    code: &'w RawCode<'a>,
    /// What each call leads to.
    callees: Vec<Target>,
    /// For each function, whether it returns.
    returns: Vec<bool>,
    /// Blocks that stop at a call to, or leave for, this function.
    waiting: Vec<Vec<u32>>,
    seen: Vec<bool>,
    stack: Vec<u32>,
    /// Functions that turned out to return, whose waiting blocks are yet to go on.
    found: Vec<u32>,
}

impl Walk<'_, '_> {
    /// Resumes the blocks that wait for functions which return, until none is left.
    fn settle(&mut self) {
        while let Some(g) = self.found.pop() {
            if std::mem::replace(&mut self.returns[g as usize], true) {
                continue;
            }
            for b in std::mem::take(&mut self.waiting[g as usize]) {
                if !self.returns[self.code.owner[b as usize] as usize] {
                    self.pass(b);
                    self.run();
                }
            }
        }
    }

    /// Follows what is on the stack.
    fn run(&mut self) {
        while let Some(b) = self.stack.pop() {
            let f = self.code.owner[b as usize];
            let goes_on = self.returns.get(f as usize).is_some_and(|&returns| !returns);
            if !goes_on || std::mem::replace(&mut self.seen[b as usize], true) {
                continue;
            }
            let code = self.code;
            code.pads_of(b, |t| {
                if code.owner[t as usize] == f {
                    self.stack.push(t);
                }
            });
            self.pass(b);
        }
    }

    /// Whether `target` comes back, as far as is known; if not yet, the block waits for it.
    fn comes_back(&mut self, target: Target, b: u32) -> bool {
        match target {
            Target::Returns => true,
            Target::Never => false,
            Target::Function(g) if self.returns[g as usize] => true,
            Target::Function(g) => {
                self.waiting[g as usize].push(b);
                false
            }
        }
    }

    /// Goes on behind a block, if its calls come back.
    fn pass(&mut self, b: u32) {
        let code = self.code;
        let f = code.owner[b as usize];
        let block = &code.blocks[b as usize];
        let mut last = None;
        for i in code.first_call(b)..code.calls.len() {
            let Some(call) = code.calls.get(i).filter(|c| c.at < block.end_rel()) else { break };
            last = Some(i);
            if call.transfer.is_call() && !self.comes_back(self.callees[i], b) {
                return;
            }
        }
        let mut back = false;
        match block.end {
            RawEnd::Return | RawEnd::Unresolved(_) | RawEnd::Broken => back = true,
            RawEnd::IndirectTailCall => back = last.is_none_or(|i| self.comes_back(self.callees[i], b)),
            RawEnd::Switch => code.table_targets(b, |t| self.stack.push(t)),
            RawEnd::Jump | RawEnd::Branch => back = self.follow(code.target_of(b), b, true),
            RawEnd::FallThrough | RawEnd::Stop | RawEnd::NoReturn => {}
        }
        if !back && block.end.falls_through() {
            // A call that nothing follows does not return.
            let next = code.next(b);
            back = self.follow(next, b, next.is_none() && !code.ends_in_call(b));
        }
        if back {
            self.found.push(f);
        }
    }

    /// Goes on at a block; whether that is out of the function and comes back. `beyond` is whether it does
    /// where there is no block.
    fn follow(&mut self, to: Option<u32>, b: u32, beyond: bool) -> bool {
        let Some(t) = to else { return beyond };
        let (f, g) = (self.code.owner[b as usize], self.code.owner[t as usize]);
        if g == f {
            self.stack.push(t);
            return false;
        }
        g == NO_FUNC || self.comes_back(Target::Function(g), b)
    }
}

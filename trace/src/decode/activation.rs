//! A function that is open, and what it does without an event.
#![warn(clippy::indexing_slicing)]

use super::module_codes::{ModuleCodes, ModuleFunction};
use crate::decode::region::{BlockPosition, Border, MOST_PLAIN, Region};
use crate::ids::BlockId;
use crate::recording::module_code::{End, Site, SiteTold};
use crate::symbol::{Cause, Symbol};

/// A function that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Activation {
    pub(super) function: ModuleFunction,
    pub(super) block: BlockId,
    /// The call of it that is next, or that control is in.
    pub(super) call: u32,
    /// What the call has come to by a jump out of what it had come to: whether that was the call's own.
    pub(super) follows: Option<bool>,
    /// Whether the call that is under way has come to something.
    pub(super) has_come: bool,
    /// Whether it has gone through its stub, if it has one.
    pub(super) has_gone: bool,
    /// Whether the event at the start of its block is still to come.
    pub(super) is_before: bool,
    /// Whether the call below it ends when this returns.
    pub(super) is_awaited: bool,
    /// Whether it was entered as a signal handler.
    pub(super) is_handler: bool,
    pub(super) frame: Option<u32>,
}

impl Activation {
    pub(super) fn at(function: ModuleFunction, block: BlockId, frame: Option<u32>) -> Activation {
        Activation {
            function,
            block,
            call: 0,
            follows: None,
            has_come: false,
            has_gone: false,
            is_before: false,
            is_awaited: false,
            is_handler: false,
            frame,
        }
    }

    /// Where control may be without an event, if the one of the function's start is not awaited.
    pub(super) fn region<'c>(&self, codes: &'c ModuleCodes) -> Option<&'c Region> {
        let position = BlockPosition { block: self.block, call: self.call };
        (!self.is_before).then(|| codes.region(self.function, position)).flatten()
    }

    /// It goes to `block`.
    pub(super) fn go(&mut self, codes: &ModuleCodes, block: BlockId, out: &mut Vec<u32>) {
        out.push(Symbol::block(block).0);
        (self.block, self.call) = (block, 0);
        (self.follows, self.has_come, self.has_gone, self.is_before) = (None, false, false, false);
        self.pass_stub(codes, out);
    }

    /// A call of it has returned.
    pub(super) fn returned(&mut self, block: BlockId, call: u32) {
        (self.block, self.call, self.is_before) = (block, call.saturating_add(1), false);
        (self.follows, self.has_come, self.has_gone) = (None, false, false);
    }

    /// Goes up to a step of where control may be, and on to what is there.
    pub(super) fn walk(
        &mut self,
        codes: &ModuleCodes,
        step: u32,
        border: Option<Border>,
        out: &mut Vec<u32>,
    ) {
        let Some(region) = self.region(codes) else { return };
        for block in region.path(step) {
            self.pass_calls(codes, u32::MAX, out);
            self.go(codes, block, out);
        }
        match border {
            Some(Border::Call { call, .. }) => self.pass_calls(codes, call, out),
            Some(_) => self.pass_calls(codes, u32::MAX, out),
            None => {}
        }
    }

    /// Control comes to call `to` of its block, or to its end, by calls that nothing tells of.
    fn pass_calls(&mut self, codes: &ModuleCodes, to: u32, out: &mut Vec<u32>) {
        let Some(block) = codes.block(self.function, self.block).filter(|_| !self.is_before) else { return };
        let calls = block.calls.iter().skip(self.call as usize).take(to.saturating_sub(self.call) as usize);
        let mut n_passed = 0;
        for site in calls.take_while(|site| site.told == SiteTold::Nothing) {
            codes.pass(self.function.module, site, MOST_PLAIN, out);
            n_passed += 1;
        }
        if n_passed > 0 {
            self.call += n_passed;
            (self.follows, self.has_come, self.has_gone) = (None, false, false);
            self.pass_stub(codes, out);
        }
    }

    /// Control is where it goes through a stub: at a call, or at the end of a block that leaves by one.
    pub(super) fn pass_stub(&mut self, codes: &ModuleCodes, out: &mut Vec<u32>) {
        if self.has_gone || self.is_before {
            return;
        }
        let Some(block) = codes.block(self.function, self.block) else { return };
        let stub = match block.calls.get(self.call as usize) {
            Some(site) if site.told == SiteTold::Nothing => return,
            Some(site) => site.stub,
            None if matches!(block.end, End::To(_)) && block.leaves.is_none() => block.stub,
            None => 0,
        };
        codes.through(self.function.module, stub, out);
        self.has_gone = true;
    }
}

impl ModuleCodes {
    /// What a call does that nothing tells of; at most so many symbols, of a module that is not damaged.
    fn pass(&self, module: usize, site: &Site, most: usize, out: &mut Vec<u32>) {
        self.through(module, site.stub, out);
        let to = site.entry.and_then(|entry| self.entry(module, entry)).filter(|_| most > 0);
        let Some((func, block)) = to else { return };
        let of = ModuleFunction { module, func };
        let Some(region) = self.region(of, BlockPosition { block, call: 0 }) else { return };
        out.push(Symbol::enter(self.func_id(of)).0);
        let mut left = most.saturating_sub(2);
        for n in [block].into_iter().chain(region.path(region.silent().map_or(0, |(_, step)| step))) {
            out.push(Symbol::block(n).0);
            for site in self.block(of, n).into_iter().flat_map(|block| &block.calls) {
                let before = out.len();
                self.pass(module, site, left, out);
                left = left.saturating_sub((out.len() - before).max(1));
            }
        }
        out.push(Symbol::EXIT.0);
    }

    /// Control goes through a stub.
    pub(super) fn through(&self, module: usize, stub: u32, out: &mut Vec<u32>) {
        if let Some(func) = stub.checked_sub(1).filter(|_| module < self.all.len()) {
            let (enter, tail) =
                (Symbol::enter(self.func_id(ModuleFunction { module, func })), Symbol::exit(Cause::Tail));
            out.extend([enter.0, Symbol::block(BlockId(0)).0, tail.0]);
        }
    }
}

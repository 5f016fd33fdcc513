//! Whether something enters a function at each of its further entries.
//!
//! Invariant: nothing of what the analysis noted on the way is looked at: instructions are decoded anew.
//! Costs nothing where a program has no such entry that its tables do not explain.

use super::{Report, Rule};
use crate::addr::Va;
use crate::arch::ControlFlow;
use crate::discovery::regions;
use crate::discovery::sweep::raw::Space;
use crate::ids::{BlockId, FuncId};
use crate::model::{CallKind, GapReason, Program};
use rayon::prelude::*;

impl Program {
    /// Checks that each further entry is reached from another function, by a call, by its address, or named
    /// by the file.
    pub(super) fn check_entries(&self, report: &mut Report) {
        let space = Space::of(&self.image);
        let is_code = |at| self.image.is_code(space.va(at));
        let mut named_by_file: Vec<Va> = regions::seeds(&self.image, space, is_code)
            .iter()
            .map(|s| space.va(s.at))
            .chain(regions::pointed_to(&self.image, space, is_code).iter().map(|p| space.va(p.to)))
            .collect();
        named_by_file.sort_unstable();
        let mut open: Vec<(Va, FuncId)> = Vec::new();
        for id in self.func_ids() {
            let starts = self.function(id).entries.iter().map(|&b| (self.block(b).start, id));
            open.extend(starts.filter(|(at, _)| named_by_file.binary_search(at).is_err()));
        }
        open.sort_unstable();
        if open.is_empty() {
            return;
        }
        let find = |at: Va| open.binary_search_by_key(&at, |o| o.0).ok();
        let mut reached: Vec<usize> = (0..self.blocks.len())
            .into_par_iter()
            .flat_map_iter(|i| self.enters(BlockId::at(i)).into_iter().filter_map(find))
            .collect();
        // What code that is no function's does, nobody knows: it was decoded from where something leads to,
        // not from its start.
        let gaps = self.gaps.iter().filter(|g| g.reason == GapReason::NoFunction).map(|g| &g.range);
        // Nor what the PLT holds beside its stubs, where it is damaged.
        let stubs = self.image.plt.iter().map(|p| &p.range).filter(|r| self.function_from(r.start).is_none());
        for range in gaps.chain(stubs) {
            let bytes = self.image.bytes_in(range).unwrap_or_default();
            for (i, window) in bytes.windows(4).enumerate() {
                let end = range.start.plus(i as u64 + 4);
                let word = window.try_into().map_or(0, i32::from_le_bytes);
                reached.extend(find(Va(end.0.wrapping_add_signed(i64::from(word)))));
            }
            for (i, &byte) in bytes.iter().enumerate() {
                let end = range.start.plus(i as u64 + 1);
                reached.extend(find(Va(end.0.wrapping_add_signed(i64::from(byte.cast_signed())))));
            }
        }
        reached.sort_unstable();
        for (i, (at, func)) in open.iter().enumerate() {
            report.check(reached.binary_search(&i).is_ok(), *at, Rule::Entries, || {
                format!("{func} has an entry here that nothing outside of it leads to")
            });
        }
    }

    /// The addresses that the block calls, names, or leaves its function for.
    fn enters(&self, id: BlockId) -> Vec<Va> {
        let mut found = Vec::new();
        let block = self.block(id);
        let own = |at: Va| self.block_at(at).is_some_and(|b| self.block(b).func == block.func);
        for insn in self.insns(id) {
            match insn.flow() {
                ControlFlow::Call(to) => found.push(to),
                ControlFlow::Jump(to) | ControlFlow::Branch(to) if !own(self.led_to(to)) => {
                    found.push(self.led_to(to))
                }
                ControlFlow::Next | ControlFlow::JumpIndirect if self.image.kind.is_relocated() => {
                    found.extend(insn.relative_place());
                }
                ControlFlow::Next | ControlFlow::JumpIndirect => {
                    found.extend(insn.place().into_iter().chain(insn.wide_immediate()));
                }
                _ => {}
            }
        }
        if self.calls_in(id).last().is_some_and(|c| c.kind == CallKind::FallThrough) {
            let next = self.by_address.partition_point(|&b| self.block(b).start < block.end_va());
            found.extend(self.by_address.get(next).map(|&b| self.block(b).start));
        }
        found
    }
}

//! How large the index of a jump table can be: the comparison, mask or width that every way to it has.

use crate::arch::{Operand, Reg, Step, Test};
use crate::discovery::sweep::jump_tables::MAX_ENTRIES;
use crate::discovery::sweep::jump_tables::slice::{
    Location, Predecessor, Slice, Trace, sizeless, touches, trace,
};
use crate::discovery::sweep::listing::FlowKind;
use std::collections::HashSet;

impl Slice<'_, '_> {
    /// The largest value that `reg` can have before `index`, if all ways there are checked.
    pub(super) fn bound(&mut self, index: u32, reg: Reg) -> Option<u64> {
        let mut largest = None;
        let mut seen = HashSet::new();
        let mut todo = vec![Walk { index, loc: Location::Reg(reg), plus: 0, known: Vec::new() }];
        let mut preds = Vec::new();
        while let Some(walk) = todo.pop() {
            self.preds(walk.index, &mut preds);
            if preds.is_empty() {
                return None;
            }
            if preds.len() > 1 && !seen.insert((walk.index, walk.loc, walk.plus)) {
                continue;
            }
            for &pred in &preds {
                self.budget = self.budget.checked_sub(1)?;
                let mut next = Walk { index: pred.index, known: walk.known.clone(), ..walk };
                match self.step_back(pred, &mut next) {
                    Back::On => todo.push(next),
                    Back::Bounded(n) => largest = largest.max(Some(n)),
                    Back::Dead => {}
                    Back::Lost => return None,
                }
            }
        }
        largest.filter(|&n| n < MAX_ENTRIES)
    }

    fn step_back(&self, pred: Predecessor, walk: &mut Walk) -> Back {
        let kind = self.listing.insns[pred.index as usize].kind;
        match kind {
            FlowKind::Nop | FlowKind::Jump => return Back::On,
            FlowKind::Branch => {
                if let Some((loc, n)) = self.condition(pred) {
                    if loc == walk.loc {
                        return Back::bounded(n, walk.plus);
                    }
                    walk.known.push((loc, n));
                }
                return Back::On;
            }
            _ => {}
        }
        let Some(insn) = self.insn(pred.index) else { return Back::Lost };
        let step = insn.step();
        if let (Step::And { to, mask }, Location::Reg(reg)) = (step, walk.loc)
            && to == reg
        {
            return if mask < MAX_ENTRIES { Back::bounded(mask, walk.plus) } else { Back::Lost };
        }
        if let (Step::ShiftRight { to, by, bits }, Location::Reg(reg)) = (step, walk.loc)
            && to == reg
        {
            let left = bits.saturating_sub(by);
            return if left <= 8 { Back::bounded((1 << left) - 1, walk.plus) } else { Back::Lost };
        }
        let plain = match (step, walk.loc) {
            (Step::Add { to, from: Operand::Imm(n) }, Location::Reg(reg)) if to == reg => Some((reg, n)),
            (
                Step::Address {
                    to,
                    from: Operand::Mem { base: Some(base), index: None, disp, segment: None, .. },
                },
                Location::Reg(reg),
            ) if to == reg => Some((base, disp)),
            _ => None,
        };
        let moved = match plain {
            Some((from, n)) => {
                walk.plus = walk.plus.wrapping_add(n);
                Trace::From(Location::Reg(from))
            }
            None => match trace(&insn, kind, walk.loc) {
                Trace::Set => match step {
                    // The place it was loaded from may have been compared.
                    Step::Copy { from: from @ (Operand::Mem { .. } | Operand::Place { .. }), .. } => {
                        Trace::From(Location::Mem(sizeless(from)))
                    }
                    _ => Trace::Set,
                },
                other => other,
            },
        };
        let stores = matches!(step, Step::Store { .. });
        walk.known.retain(|(loc, _)| match loc {
            Location::Reg(reg) => !insn.writes(*reg),
            Location::Mem(memory) => !stores && !touches(&insn, memory),
        });
        match moved {
            Trace::Untouched => Back::On,
            Trace::From(loc) => {
                walk.loc = loc;
                match walk.known.iter().find(|(l, _)| *l == loc) {
                    Some(&(_, n)) => Back::bounded(n, walk.plus),
                    None => Back::On,
                }
            }
            Trace::Set | Trace::Moved => Back::Lost,
            // Nothing comes back from here with the value: the call does not return.
            Trace::Forgotten => Back::Dead,
        }
    }

    /// What holds when control goes along `pred` out of a branch: the place compared, and the most it can be.
    fn condition(&self, pred: Predecessor) -> Option<(Location, u64)> {
        let test = self.insn(pred.index)?.test();
        let mut at = pred.index;
        let compare = loop {
            at = at.checked_sub(1)?;
            let kind = self.listing.insns[at as usize].kind;
            if !matches!(kind, FlowKind::Next | FlowKind::Nop) && kind != FlowKind::Branch {
                return None;
            }
            let insn = self.insn(at)?;
            if insn.sets_flags() {
                break insn;
            }
            // Moves between the comparison and the branch must leave the compared place alone.
        };
        let Step::Compare { left, right: Operand::Imm(n) } = compare.step() else { return None };
        let n = u64::try_from(n).ok()?;
        let loc = match left {
            Operand::Reg(reg, _) => Location::Reg(reg),
            Operand::Mem { .. } | Operand::Place { .. } => Location::Mem(sizeless(left)),
            _ => return None,
        };
        for between in at + 1..pred.index {
            if let Location::Reg(reg) = loc
                && self.insn(between)?.writes(reg)
            {
                return None;
            }
        }
        match (test, pred.taken) {
            (Test::Above, false) | (Test::BelowOrEqual, true) => Some((loc, n)),
            (Test::AboveOrEqual, false) | (Test::Below, true) => Some((loc, n.checked_sub(1)?)),
            _ => None,
        }
    }
}

/// A value followed backwards.
#[derive(Clone)]
struct Walk {
    index: u32,
    loc: Location,
    /// The value is what `loc` holds plus this.
    plus: i64,
    /// Bounds met on the way that hold for places as they are here.
    known: Vec<(Location, u64)>,
}

/// Where a step back leads.
enum Back {
    On,
    Bounded(u64),
    /// Control cannot have come this way.
    Dead,
    Lost,
}

impl Back {
    fn bounded(n: u64, plus: i64) -> Back {
        match n.checked_add_signed(plus) {
            Some(n) => Back::Bounded(n),
            None => Back::Lost,
        }
    }
}

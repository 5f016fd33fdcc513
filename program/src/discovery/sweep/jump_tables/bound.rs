//! How large the index of a jump table can be: the comparison, mask or width that every way to it has.

use crate::arch::{Operand, Reg, Step, Test};
use crate::discovery::sweep::jump_tables::MAX_ENTRIES;
use crate::discovery::sweep::jump_tables::location::{Location, sizeless, touches};
use crate::discovery::sweep::jump_tables::slice::{Predecessor, Slice, Trace, trace};
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

    fn step_back(&mut self, pred: Predecessor, walk: &mut Walk) -> Back {
        let kind = self.listing.insns[pred.index as usize].kind;
        match kind {
            FlowKind::Nop | FlowKind::Jump => return Back::On,
            FlowKind::Branch => {
                for fact in self.condition(pred).into_iter().flatten().flatten() {
                    if let Some(back) = fact.bounds(walk) {
                        return back;
                    }
                    walk.known.push(fact);
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
                    Step::Copy { from: from @ Operand::Mem { size: 1, .. }, signed: false, .. }
                        if let Some(most) = self.largest_byte(pred.index, from) =>
                    {
                        return Back::bounded(most, walk.plus);
                    }
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
        walk.known.retain(|fact| match &fact.loc {
            Location::Reg(reg) => !insn.writes(*reg),
            Location::Mem(memory) => !stores && !touches(&insn, memory),
        });
        match moved {
            Trace::Untouched => Back::On,
            Trace::From(loc) => {
                walk.loc = loc;
                walk.known.iter().find_map(|fact| fact.bounds(walk)).unwrap_or(Back::On)
            }
            Trace::Set | Trace::Moved => Back::Lost,
            // Nothing comes back from here with the value: the call does not return.
            Trace::Forgotten => Back::Dead,
        }
    }

    /// The largest of the bytes that `from`, which is read at `index`, can be, if these are a constant table.
    fn largest_byte(&mut self, index: u32, from: Operand) -> Option<u64> {
        self.how.certain()?;
        let (bases, index, factor) = self.load(index, from)?;
        let ([base], Some((reg, at)), 1) = (bases.as_slice(), index, factor) else { return None };
        let n = self.bound(at, reg)?;
        let range = *base..base.plus(n + 1);
        let image = self.cx.image;
        if !image.is_constant(range.start) || !image.is_constant(base.plus(n)) {
            return None;
        }
        image.bytes_in(&range)?.iter().max().map(|&byte| u64::from(byte))
    }

    /// What holds when control goes along `pred` out of a branch: of the place compared, and of what that was
    /// computed from.
    fn condition(&self, pred: Predecessor) -> Option<[Option<Fact>; 2]> {
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
            (Test::Above, false) | (Test::BelowOrEqual, true) => Some(self.facts(loc, n, at, pred.index)),
            (Test::AboveOrEqual, false) | (Test::Below, true) => {
                Some(self.facts(loc, n.checked_sub(1)?, at, pred.index))
            }
            _ => None,
        }
    }

    /// That what `loc` holds is at most `n` from the comparison at `compare` on, and what follows at `branch`
    /// of the register that it was computed from just before (`lea -0x20(%r9),%eax; cmp $0x5a,%al`).
    fn facts(&self, loc: Location, n: u64, compare: u32, branch: u32) -> [Option<Fact>; 2] {
        let own = Some(Fact { loc, plus: 0, most: n });
        let from = || {
            self.how.certain()?;
            let Location::Reg(reg) = loc else { return None };
            let made = compare.checked_sub(1)?;
            let kind = self.listing.insns[made as usize].kind;
            let Step::Address {
                to,
                from: Operand::Mem { base: Some(base), index: None, disp: plus, segment: None, .. },
            } = self.insn(made).filter(|_| kind == FlowKind::Next)?.step()
            else {
                return None;
            };
            // The comparison may be of a byte alone, and what is read later a byte with its sign.
            let fits = plus <= 0 && n.checked_add(plus.unsigned_abs())? < 0x80;
            let is_kept =
                to != base && !(compare + 1..branch).any(|i| self.insn(i).is_none_or(|i| i.writes(base)));
            (to == reg && fits && is_kept).then_some(Fact { loc: Location::Reg(base), plus, most: n })
        };
        [own, from()]
    }
}

/// What a comparison says.
#[derive(Clone)]
struct Fact {
    loc: Location,
    /// What `loc` holds, plus this, is at most `most`.
    plus: i64,
    most: u64,
}

impl Fact {
    /// What follows from it for the value of `walk`, if it speaks of that.
    fn bounds(&self, walk: &Walk) -> Option<Back> {
        (self.loc == walk.loc && (self.plus == 0 || self.plus == walk.plus))
            .then(|| Back::bounded(self.most, walk.plus - self.plus))
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
    known: Vec<Fact>,
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

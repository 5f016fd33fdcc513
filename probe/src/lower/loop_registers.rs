//! Counters of loops in registers: where a loop calls nothing and leaves a register alone, its back edges
//! count there, and not in a word of the thread, which each increment would wait for.
//!
//! ```text
//! entry:  …record, the count all ones: the loop counts by itself; mov $0,%r
//! back:   lea 1(%r),%r
//! exit:   record, with %r for its count
//! ```
//! Invariant: in the loop nothing else that is put there uses the register, and what is behind the loop does
//! not read it.
//!
//! Source: VPROF, section 3.3 (a free register, if there is one).
#![warn(clippy::indexing_slicing)]

use crate::arch::shared::event_word;
use crate::arch::snippet::Field;
use crate::not_moved::NotMoved;
use crate::plan::{Action, Plan, Point, Record};
use program::arch::{Reg, RegSet};
use program::{BlockId, FuncId, Liveness, LoopId, Loops, Program};
use std::collections::{BTreeMap, BTreeSet};

/// Registers that stamps and kept flags need come last.
const ORDER: [u8; 10] = [8, 9, 10, 11, 6, 7, 3, 1, 2, 0];

/// Which loops count in registers.
#[derive(Default)]
pub struct LoopRegisters {
    /// By header: the word that the plan wants to count, and the register.
    by_header: BTreeMap<BlockId, (u32, Reg)>,
    /// By block: registers that count there.
    reserved: BTreeMap<BlockId, RegSet>,
}

impl LoopRegisters {
    /// Of the loops whose back edges `plan` has counted in a word; of those of a function, inner ones come
    /// last in it.
    pub fn choose(
        program: &Program,
        plan: &Plan,
        live: &[Liveness],
        not_moved: &[Option<NotMoved>],
    ) -> LoopRegisters {
        let mut by_func: BTreeMap<FuncId, Vec<(BlockId, u32)>> = BTreeMap::new();
        for probe in &plan.probes {
            if let (Point::BackEdge(header), Action::CountInStream(n)) = (probe.point, &probe.action) {
                by_func.entry(program.block(header).func).or_default().push((header, event_word(*n)));
            }
        }
        let mut all = LoopRegisters::default();
        for (func, headers) in by_func {
            if not_moved.get(func.index()) == Some(&None)
                && let Some(live) = live.get(func.index())
            {
                all.choose_in(program, func, &headers, live);
            }
        }
        all
    }

    fn choose_in(&mut self, program: &Program, func: FuncId, headers: &[(BlockId, u32)], live: &Liveness) {
        let loops = Loops::compute(program, func);
        let entries: BTreeSet<BlockId> = program.function(func).entries.iter().copied().collect();
        let mut taken = RegSet::EMPTY;
        // Inner ones first: they go round most.
        for &(header, word) in headers.iter().rev() {
            let Some(id) = loops.ids().find(|id| loops.header(*id) == header) else { continue };
            let is_entered = |entry: BlockId| entries.contains(&entry);
            // Other code may stand in front of a function.
            if loops.entries(id).any(is_entered) || headers.iter().filter(|one| one.0 == header).count() > 1 {
                continue;
            }
            let Some(used) = used(program, &loops, id, live) else { continue };
            let is_free = |reg: &Reg| !used.contains(*reg) && !taken.contains(*reg);
            let Some(reg) = ORDER.map(Reg::general).into_iter().find(is_free) else { continue };
            taken.insert(reg);
            let _new = self.by_header.insert(header, (word, reg));
            loops
                .blocks(id)
                .for_each(|block| self.reserved.entry(block).or_insert(RegSet::EMPTY).insert(reg));
        }
    }

    /// Registers that count in `block`.
    pub fn reserved(&self, block: BlockId) -> RegSet {
        self.reserved.get(&block).copied().unwrap_or(RegSet::EMPTY)
    }

    /// The register of the loop that `point` is of.
    pub fn register(&self, point: Point) -> Option<Reg> {
        let (Point::LoopEntry(header) | Point::BackEdge(header) | Point::LoopExit(header)) = point else {
            return None;
        };
        self.by_header.get(&header).map(|one| one.1)
    }

    /// What is appended at `point` in place of the record.
    pub fn fields(&self, point: Point, record: &Record) -> Vec<Field> {
        let (Point::LoopEntry(header) | Point::LoopExit(header)) = point else {
            return record.fields.clone();
        };
        let Some(&(word, reg)) = self.by_header.get(&header) else { return record.fields.clone() };
        let is_exit = matches!(point, Point::LoopExit(_));
        let field = |field: &Field| match field {
            Field::Word(n) if *n == word && is_exit => Field::General { reg, len: 8 },
            Field::Word(n) if *n == word => Field::Ones,
            other => *other,
        };
        record.fields.iter().map(field).collect()
    }
}

/// The registers that a loop uses, or that hold something while it runs; `None` if it calls something.
fn used(program: &Program, loops: &Loops, id: LoopId, live: &Liveness) -> Option<RegSet> {
    let mut used = RegSet::EMPTY;
    for block in loops.blocks(id) {
        if !program.calls_in(block).is_empty() {
            return None;
        }
        used.add(live.live_in(block));
        for insn in program.insns(block) {
            let effects = insn.effects();
            used.add(effects.reads);
            used.add(effects.writes);
        }
    }
    Some(used)
}

#[cfg(test)]
mod tests {
    use crate::arch::snippet::Field;
    use crate::plan::{Action, Plan, Point, Probe, Record};
    use crate::testing::{assembled, function, inserts};
    use program::Loops;

    #[test]
    fn a_loop_counts_in_a_register_if_it_leaves_one_alone() {
        let code = "1: mov $9,%eax\n2: dec %eax\njne 2b\ndec %edi\njne 1b\n3: call g\ndec %ebx\njne 3b\nret";
        let program = assembled(&[("_start", "call f\nhlt"), ("f", &format!("nop\n{code}")), ("g", "ret")]);
        let f = function(&program, "f");
        let loops = Loops::compute(&program, f);
        let mut probes = Vec::new();
        for (n, id) in (0..).zip(loops.ids()) {
            let header = loops.header(id);
            let record = |word| {
                let fields = vec![Field::Word(crate::arch::shared::event_word(n))];
                Action::Append(Record { word, fields, passes: None })
            };
            probes.push(Probe { point: Point::LoopExit(header), action: record(100 + n) });
            probes.push(Probe { point: Point::BackEdge(header), action: Action::CountInStream(n) });
            probes.push(Probe { point: Point::LoopEntry(header), action: record(200 + n) });
        }
        let all = inserts(&program, &Plan { probes, ..Plan::NULL }, f);
        let at = |spot: &str| {
            let from = all.find(spot).expect("it is there") + spot.len();
            all.get(from..).unwrap_or_default().split("\n+").next().unwrap_or_default()
        };
        // The inner one has the register that is free; the outer one, and one that calls something, have
        // words.
        assert!(at("+6 Taken\n").contains("lea 0x1(%r11),%r11"), "{all}");
        assert!(at("+1 Through\n").ends_with("mov $0x0,%r11d"), "{all}");
        assert!(at("+1 Through\n").contains("movq $0xffffffffffffffff,"), "{all}");
        assert!(at("+6 Through\n").contains("mov %r11,-0x8("), "{all}");
        assert!(at("+a Taken\n").contains("incq %gs:") && at("+e Taken\n").contains("incq %gs:"), "{all}");
    }
}

//! Loops that are vectorised: which of a function can be, and what stands at their entries.
//!
//! Not here: what a loop must be like, and its code (`arch::vectorise`).
#![warn(clippy::indexing_slicing)]

use crate::arch::vectorise::{self, NotVectorised, PackedLoop};
use crate::code::Insert;
use program::arch::{EffectsOf, Insn, Reg, RegSet};
use program::{BlockId, Callee, EdgeKind, FuncId, LoopId, Loops, Program, Va};
use std::collections::BTreeSet;

/// A loop that holds no other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InnermostLoop {
    /// Where it is entered.
    pub header: BlockId,
    /// Where that is.
    pub at: Va,
    /// Why it cannot be vectorised, as far as its code shows.
    pub why: Option<NotVectorised>,
}

/// The loops of `func` that hold no others, by address.
pub fn innermost_loops(program: &Program, func: FuncId) -> Vec<InnermostLoop> {
    let loops = Loops::compute(program, func);
    let holds_none = |id: &LoopId| loops.ids().all(|other| loops.parent(other) != Some(*id));
    let mut all: Vec<InnermostLoop> = loops
        .ids()
        .filter(holds_none)
        .map(|id| {
            let header = loops.header(id);
            let why = understood(program, &loops, id).err();
            InnermostLoop { header, at: program.block(header).start, why }
        })
        .collect();
    all.sort_by_key(|one| one.at);
    let has_avx = || blocks(program, func).any(|insn| vectorise::is_avx(&insn));
    let refusal = match all.iter().any(|one| one.why.is_none()) {
        true if has_avx() => Some(NotVectorised::Avx),
        true if keeps_uppers(program, func) => Some(NotVectorised::Uppers),
        _ => None,
    };
    if let Some(refusal) = refusal {
        all.iter_mut().for_each(|one| {
            one.why.get_or_insert(refusal.clone());
        });
    }
    all
}

/// The code at the entry of the loop with this header, where all of `live` may be read.
///
/// # Errors
/// Why there is none.
pub fn entry(program: &Program, header: BlockId, live: RegSet) -> Result<Insert, NotVectorised> {
    let loops = Loops::compute(program, program.block(header).func);
    let id = loops.ids().find(|id| loops.header(*id) == header).ok_or(NotVectorised::NoVectors)?;
    let code = understood(program, &loops, id)?.entry(live)?;
    Ok(Insert::instead_of(program.block(header).start, code))
}

/// A loop, if it is one of packed instructions.
fn understood(program: &Program, loops: &Loops, id: LoopId) -> Result<PackedLoop, NotVectorised> {
    let header = loops.header(id);
    let all: Vec<BlockId> = loops.blocks(id).collect();
    if all.iter().any(|block| !program.calls_in(*block).is_empty()) {
        return Err(NotVectorised::Calls);
    }
    if all.len() > 1 {
        return Err(NotVectorised::Blocks(all.len()));
    }
    // Where a function starts, other code may stand in front of it.
    let starts = program.entry_block(loops.func) == Some(header);
    let is_entered = starts || loops.is_irreducible(id) || program.block(header).landing_pad;
    let may_throw = program.successors(header).iter().any(|edge| edge.kind == EdgeKind::LandingPad);
    if is_entered || may_throw {
        return Err(NotVectorised::Entered);
    }
    let insns: Vec<Insn> = program.insns(header).collect();
    PackedLoop::recognise(&insns, program.block(header).start)
}

fn blocks(program: &Program, func: FuncId) -> impl Iterator<Item = Insn> + '_ {
    program.function(func).block_ids().flat_map(|block| program.insns(block))
}

/// Whether somebody who calls `func`, be it by way of others, reads upper halves of vector registers: he may
/// know that it leaves them alone (`-fipa-ra` of gcc). Who calls it through a pointer, or from elsewhere,
/// knows nothing of that; nor can a function that has no instruction of AVX return something there.
fn keeps_uppers(program: &Program, func: FuncId) -> bool {
    let mut all = BTreeSet::from([func]);
    let mut todo = vec![func];
    while let Some(func) = todo.pop() {
        let callers = program.calls.iter().filter(|call| call.callee == Callee::Function(func));
        let callers = callers.map(|call| program.block(call.block).func);
        todo.extend(callers.filter(|caller| all.insert(*caller)));
    }
    let mut uppers = RegSet::EMPTY;
    (0..16).map(Reg::upper).for_each(|reg| uppers.insert(reg));
    let mut effects = EffectsOf::new();
    all.into_iter()
        .flat_map(|func| blocks(program, func))
        .any(|insn| !effects.effects(&insn).reads.both(uppers).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::not_moved::NotMoved;
    use crate::plan::{Action, Plan, Point, Probe};
    use crate::testing::{assembled, function};

    const PACKED: &str = "1: movups (%rsi,%rax),%xmm0\naddps %xmm0,%xmm0\nmovups %xmm0,(%rdi,%rax)\nadd $16,%rax\n\
        cmp %rdx,%rax\njne 1b";

    fn reasons(program: &Program, name: &str) -> Vec<String> {
        let loops = innermost_loops(program, function(program, name));
        loops.into_iter().map(|one| one.why.map_or("none".to_owned(), |why| why.to_string())).collect()
    }

    #[test]
    fn loops_that_hold_others_are_not_asked_and_what_is_around_them_counts() {
        let nested = format!("mov $3,%ecx\n4: xor %eax,%eax\n{PACKED}\nsub $1,%ecx\njne 4b\nret");
        let called = format!("nop\n{}\nret", PACKED.replace("add $16", "call g\nadd $16"));
        let blocks =
            format!("nop\n{}\nret", PACKED.replace("add $16", "test %ecx,%ecx\nje 5f\ndec %r8\n5: add $16"));
        let avx = format!("nop\n{PACKED}\nvzeroupper\nret");
        let kept = "vmovups (%rdi),%ymm4\ncall between\nvmovups %ymm4,(%rdi)\nret";
        let program = assembled(&[
            ("_start", "call nested\ncall called\ncall blocks\ncall avx\ncall keeps\ncall first\nhlt"),
            ("nested", &nested),
            ("called", &called),
            ("blocks", &blocks),
            ("avx", &avx),
            ("keeps", kept),
            ("between", "call inner\nret"),
            ("inner", &format!("nop\n{PACKED}\n1: dec %ecx\njne 1b\nret")),
            ("first", &format!("{PACKED}\nret")),
            ("g", "ret"),
        ]);
        assert_eq!(reasons(&program, "nested"), ["none"]);
        assert_eq!(reasons(&program, "called"), ["it calls something"]);
        assert_eq!(reasons(&program, "blocks"), ["it has 3 blocks"]);
        assert_eq!(reasons(&program, "avx"), ["its function has AVX instructions already"]);
        let uppers = "who calls its function may keep values in upper halves of vector registers";
        assert_eq!(reasons(&program, "inner"), [uppers, "nothing in it works on vectors"]);
        assert!(reasons(&program, "first").concat().contains("entered otherwise"));
        assert!(reasons(&program, "g").is_empty());
    }

    #[test]
    fn the_function_alone_is_moved_and_each_way_into_its_loop_leads_back_to_it() {
        let ways = "test %ecx,%ecx\nje 3f\njs 1f\nxor %eax,%eax\njmp 1f\n3: xor %eax,%eax\n";
        let text = format!("4: {ways}{PACKED}\nsub $1,%ecx\njne 4b\nret");
        let program = assembled(&[("_start", "call f\ncall g\nhlt"), ("f", &text), ("g", "ret")]);
        let f = function(&program, "f");
        let header = innermost_loops(&program, f).first().expect("a loop").header;
        let probe = Probe { point: Point::LoopEntry(header), action: Action::Vectorise };
        let plan = Plan { alone: vec![f], probes: vec![probe], ..Plan::NULL };
        assert!(plan.is_null());
        let module = Module::build(&program, &plan, Room::Running(Va(0x1000_0000))).expect("it can be moved");
        for id in program.func_ids() {
            let why = module.not_moved.get(id.index()).copied().flatten();
            assert_eq!(why, (id != f).then_some(NotMoved::NotAsked), "{}", program.function(id).name());
        }
        assert_eq!(module.words.n, 0);
        let running = module.to_running();
        let old = u32::try_from(program.block(header).start.since(Va(running.old_at))).expect("small");
        let ways: Vec<u32> = running.ways_back.iter().filter(|way| way.1 == old).map(|way| way.0).collect();
        assert_eq!(ways.len(), 3, "{:?}", running.ways_back);
        let (_, live) = program::Conventions::compute(&program);
        let live = live.get(f.index()).expect("of each").live_in(header);
        let code = entry(&program, header, live).expect("it can be written").text.expect("code");
        let aligned = code.aligned.expect("it goes round");
        let text = module.to_segments().expect("it can be mapped").text;
        for new in ways {
            assert!(text.get(new as usize..).is_some_and(|rest| rest.starts_with(&code.bytes)), "{new:#x}");
            assert_eq!((new as usize + aligned) % 64, 0, "{new:#x}");
            assert_eq!(running.given_back(new), Some(old));
        }
    }
}

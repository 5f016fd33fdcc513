//! Which indirect calls it is counted for where they lead, and how.
//!
//! ```text
//! words of a thread = … sites tables
//! site  = where it led first (distance to the owner's word; 0: nowhere yet), how often, how often to
//!         where the table had no room for
//! table = slots: number of the site's first word, where it led, how often, which module that is in (the
//!         runtime, `runtime/indirect.s`, says how)
//! ```
//! A call that leads where it led first costs a comparison and an increment; another one a look into the
//! table, by hash.
//!
//! Invariant: a call is counted right before it is made, and once. Not counted are calls through slots that
//! the dynamic linker fills, whose targets have names, and those that find something in the flags.

use super::points::insert;
use crate::arch::shared::{SITE_WORDS, SLOT_WORDS};
use crate::arch::snippet;
use crate::code::Target;
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use program::arch::{ControlFlow, abi};
use program::{BlockId, CallKind, Callee, FlagLiveness, Program, Va};
use rayon::prelude::*;

/// The calls, and where their words are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndirectCalls {
    /// The calling instructions, by address.
    pub sites: Vec<Va>,
    /// The first word of the first site.
    pub first: u32,
    /// How many slots the table behind the sites has, a power of two; none if there are no sites.
    pub n_slots: u32,
}

impl IndirectCalls {
    /// The table's first word.
    pub fn table(&self) -> u32 {
        self.first + SITE_WORDS * n32(self.sites.len())
    }

    /// Where the table ends.
    pub fn end(&self) -> u32 {
        self.table() + SLOT_WORDS * self.n_slots
    }
}

fn n32(n: usize) -> u32 {
    u32::try_from(n).expect("no more than blocks")
}

/// Fewest and most slots of a table: 128 kB and 32 MB. Under `count`, only what is used is there; a file that
/// records by itself takes the room of each area whole.
const SLOTS: [usize; 2] = [1 << 12, 1 << 20];

/// Finds the calls of moved code, and writes what stands before them; the first `n_words` are in use already.
pub fn choose(
    program: &Program,
    not_moved: &[Option<NotMoved>],
    flags: &FlagLiveness,
    n_words: u32,
    inserts: &mut Vec<Written>,
) -> IndirectCalls {
    let is_one = |call: &&program::Call| {
        let func = program.block(call.block).func;
        call.callee == Callee::Indirect
            && matches!(call.kind, CallKind::Call | CallKind::TailCall)
            && not_moved.get(func.index()).is_some_and(Option::is_none)
            && program.function(func).import.is_none()
    };
    let mut blocks: Vec<BlockId> = program.calls.iter().filter(is_one).map(|call| call.block).collect();
    blocks.dedup();
    // By block: each call, what it finds live, and whether what it leads to may find something in r11.
    let found: Vec<Vec<(Va, BlockId, program::arch::Insn, bool)>> = blocks
        .par_iter()
        .map(|&block| {
            let live = flags.before(program, block);
            let calls = program.calls_in(block);
            let mut has_descriptor = false;
            let mut found = Vec::new();
            for (insn, (at, live)) in program.insns(block).zip(live) {
                let is_call = calls.iter().filter(is_one).any(|call| call.at == at)
                    && matches!(insn.flow(), ControlFlow::CallIndirect | ControlFlow::JumpIndirect);
                if is_call && live.both(abi::FLAGS).is_empty() {
                    found.push((at, block, insn, has_descriptor && snippet::calls_descriptor(&insn)));
                }
                has_descriptor |= snippet::takes_descriptor(&insn);
            }
            found
        })
        .collect();
    // A site is known by its first word: 0 is none.
    let first = n_words.max(1);
    let mut sites = Vec::new();
    for (at, block, insn, keeps_r11) in found.into_iter().flatten() {
        let word = first + SITE_WORDS * n32(sites.len());
        let Ok(made) = snippet::indirect_call(&insn, keeps_r11, word) else { continue };
        let code = insert(made, |n| Target::Word(word + n), Target::IndirectCall, None);
        inserts.push(((block, Spot::Before(at)), code));
        sites.push(at);
    }
    if sites.is_empty() {
        return IndirectCalls { sites, first: n_words, n_slots: 0 };
    }
    let likely = 4 * sites.len() + 2 * program.functions.len();
    let n_slots = n32(likely.clamp(SLOTS[0], SLOTS[1]).next_power_of_two());
    IndirectCalls { sites, first, n_slots }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::testing::{assembled, function, inserts};
    use expect_test::expect;

    #[test]
    fn a_call_is_counted_right_before_it_is_made() {
        let program =
            assembled(&[("_start", "call f\nhlt"), ("f", "push %rbx\ncall *8(%rdi)\npop %rbx\njmp *%rax")]);
        let plan = Plan { indirect_calls: true, ..Plan::NULL };
        expect![[r#"
            +0 Found
            00: lea 0x1f,%r11
            07: jmp 0xc # Slow
            +0 Checked
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x11,%r11 # Owner
            11: jne 0xfffffffffffffff4
            +0 Before(+0x1)
            00: lea 0x7,%r11 # Owner
            07: sub 0x8(%rdi),%r11
            0e: cmp %r11,%gs:0x16 # Word(1)
            16: jne 0x22
            18: incq %gs:0x20 # Word(2)
            20: jmp 0x39
            22: lea -0x80(%rsp),%rsp
            27: push $0x1
            2c: call 0x31 # IndirectCall
            31: lea 0x80(%rsp),%rsp
            +0 Before(+0x5)
            00: lea 0x7,%r11 # Owner
            07: sub %rax,%r11
            0a: cmp %r11,%gs:0x12 # Word(4)
            12: jne 0x1e
            14: incq %gs:0x1c # Word(5)
            1c: jmp 0x35
            1e: lea -0x80(%rsp),%rsp
            23: push $0x4
            28: call 0x2d # IndirectCall
            2d: lea 0x80(%rsp),%rsp
        "#]]
        .assert_eq(&inserts(&program, &plan, function(&program, "f")));
    }

    #[test]
    fn a_call_that_finds_something_in_the_flags_is_not_counted() {
        let program = assembled(&[
            ("_start", "call f\nhlt"),
            (
                "f",
                "cmp %eax,%edi\njmp *table(,%rax,8)\n1: adc $0,%eax\nret\n.section .rodata\ntable: .quad 1b\n.text",
            ),
        ]);
        let plan = Plan { indirect_calls: true, ..Plan::NULL };
        let all = inserts(&program, &plan, function(&program, "f"));
        assert!(!all.contains("IndirectCall"), "{all}");
    }
}

//! Which counter each block has, and how it is incremented.
//!
//! Every block has one counter; it is incremented at the first place in the block where that costs nothing but `inc`: where the
//! flags are dead. Places after a call do not qualify, since a call may not return.
//!
//! Source: Knuth, TAOCP vol. 1, 1.3.3 for counting at all; the placement by liveness is that of every binary instrumenter.

use program::arch::Flow;
use program::arch::emit::Increment;
use program::{BlockId, FlagLiveness, Program, Va};

/// An increment of a counter before an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The instruction.
    pub at: Va,
    /// How it is written.
    pub how: Increment,
    /// Which counter.
    pub counter: u32,
}

/// The probe that counts `block`.
pub fn probe(program: &Program, flags: &FlagLiveness, block: BlockId, counter: u32) -> Probe {
    let start = program.block(block).start;
    // Ninety-nine of a hundred blocks.
    if Increment::at(flags.live_in(block)) == Increment::Flags {
        return Probe { at: start, how: Increment::Flags, counter };
    }
    let before = flags.before(program, block);
    let mut best = Probe { at: start, how: Increment::Spilled, counter };
    for (insn, (at, live)) in program.insns(block).zip(before) {
        let how = Increment::at(live);
        if how < best.how {
            best = Probe { at, how, counter };
        }
        if matches!(insn.flow(), Flow::Call(_) | Flow::CallIndirect) || insn.is_repeated() {
            break;
        }
    }
    best
}

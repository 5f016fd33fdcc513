//! The instruction mixes of a function's blocks.

use crate::ids::{BlockId, FuncId};
use crate::mix::Mix;
use crate::model::Program;

impl Program {
    /// The mix of each block of `func`, by position: of its own instructions, once each.
    pub fn mixes(&self, func: FuncId) -> Vec<Mix> {
        let keeps_frame = self.keeps_frame(func);
        let of = |block: BlockId| {
            let mut mix = Mix::default();
            self.insns(block).for_each(|insn| insn.add_to(&mut mix, keeps_frame));
            mix
        };
        self.function(func).block_ids().map(of).collect()
    }

    /// The mix of the padding behind `block`.
    pub fn mix_of_padding(&self, block: BlockId) -> Mix {
        let mut mix = Mix::default();
        self.insns_in(&self.padding_behind(block)).for_each(|insn| insn.add_to(&mut mix, false));
        mix
    }

    /// Whether `func` has a frame pointer: then what is relative to that is on the stack, too.
    fn keeps_frame(&self, func: FuncId) -> bool {
        let Some(entry) = self.entry_block(func) else { return false };
        self.insns(entry).any(|insn| insn.makes_frame_pointer())
    }
}

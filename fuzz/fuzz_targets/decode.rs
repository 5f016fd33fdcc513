//! Any bytes as instructions: operands, effects and text of each can be asked for.
#![no_main]

use program::{Va, arch::Decoder};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for insn in Decoder::new(bytes, Va(0x1000)) {
        let _ = (insn.flow(), insn.operands().count(), insn.effects(), insn.refers_to(true), insn.to_string());
    }
});

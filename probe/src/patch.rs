//! Bytes of a module that change: where, what was there, what is there now.

use crate::arch::emit;
use crate::bytes::set_distance;
use program::{Program, Va};

/// Bytes of the old file that change.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Where.
    pub at: Va,
    /// What was there.
    pub old: Vec<u8>,
    /// What is there now.
    pub new: Vec<u8>,
}

/// `patches`, those that follow one another without a gap as one.
pub(crate) fn joined(patches: &[Patch]) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
    let mut out: Vec<(u64, Vec<u8>, Vec<u8>)> = Vec::new();
    for p in patches {
        match out.last_mut() {
            Some((at, old, new)) if *at + old.len() as u64 == p.at.0 => {
                old.extend(&p.old);
                new.extend(&p.new);
            }
            _ => out.push((p.at.0, p.old.clone(), p.new.clone())),
        }
    }
    out
}

/// The change of what is at `at` to `new`.
pub(crate) fn patch(program: &Program, at: Va, new: Vec<u8>) -> Patch {
    let old = program.image.bytes_in(&(at..at.plus(new.len() as u64))).unwrap_or_default().to_vec();
    Patch { at, old, new }
}

/// A jump to `to` at `at`.
pub(crate) fn long_jump(program: &Program, at: Va, to: Va) -> Patch {
    let mut bytes = emit::JUMP.to_vec();
    set_distance(&mut bytes, 1, to.since(at.plus(5)));
    patch(program, at, bytes)
}

//! What vector registers bring from one iteration to the next: nothing that changes, but for sums that are
//! the same in any order.

use super::forms::{self, Shape, Start};
use super::{NotVectorised, Operand, Wide};
use iced_x86::Code;

/// What registers bring along.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Carried {
    /// Those whose upper halves start as their lower ones.
    pub(super) same: Vec<u8>,
    /// Those whose upper halves start with zeros.
    pub(super) zeros: Vec<u8>,
    /// Sums, and what combines their halves.
    pub(super) sums: Vec<(u8, Code)>,
}

impl Carried {
    pub(super) fn of(body: &[Wide]) -> Result<Carried, NotVectorised> {
        let (mut written, mut exposed) = (0u16, 0u16);
        for wide in body {
            exposed |= wide.reads() & !written;
            written |= wide.writes().map_or(0, |n| 1 << n);
        }
        let shifts = |wide: &&Wide| wide.shape == Shape::Count;
        for wide in body.iter().filter(shifts) {
            if let Operand::Vector(n) = wide.from
                && written >> n & 1 == 1
            {
                return Err(NotVectorised::Shifts(format!("{:?}", wide.narrow.mnemonic()).to_lowercase()));
            }
        }
        let mut all = Carried::default();
        for n in (0..16).filter(|n| exposed >> n & 1 == 1) {
            if written >> n & 1 == 0 {
                all.same.push(n);
                continue;
            }
            let (start, by) = sum(body, n)?;
            match start {
                Start::Zeros => all.zeros.push(n),
                Start::Same => all.same.push(n),
            }
            all.sums.push((n, by));
        }
        Ok(all)
    }
}

/// How register `n` sums something up: whatever has to do with it does so, and in one way.
fn sum(body: &[Wide], n: u8) -> Result<(Start, Code), NotVectorised> {
    let own = Operand::Vector(n);
    let mut found = None;
    let mut carried = NotVectorised::Carried(format!("xmm{n}"));
    for wide in body.iter().filter(|wide| wide.writes() == Some(n) || wide.reads() >> n & 1 == 1) {
        let is_step = wide.shape == Shape::Binary && wide.to == own && wide.from != own;
        if is_step && forms::adds_floats(wide.narrow) {
            carried = NotVectorised::FloatSum(format!("xmm{n}"));
        }
        let own = if is_step { forms::sum(wide.narrow) } else { None };
        match (own, found) {
            (Some(own), None) => found = Some(own),
            (Some(own), Some(before)) if own == before => {}
            _ => return Err(carried),
        }
    }
    found.ok_or(carried)
}

//! Jumps to labels that were kept: `p->label = &&L;` and, later, `goto *p->label;`.
//!
//! Where data name places inside a function, and no table that is understood does, an indirect jump of that
//! function may lead there: it does not leave the function, and what it relies on is not what callees rely on.
//!
//! Not here: tables that a jump reads itself (`sweep::jump_tables`).

use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::starts::{KnownTargets, has};
use crate::discovery::sweep::raw::{RawEnd, Transfer};
use crate::model::Unread;

/// Takes the indirect jumps of such functions for what is not understood, in place of tail calls.
pub fn keep_inside(code: &mut RawCode<'_>, known: &KnownTargets) {
    let mut has_label = vec![false; code.funcs.len()];
    for &at in known.address_taken.iter().filter(|at| !has(&known.labels, **at)) {
        let owner = code.block_from(at).map(|rank| code.owner[rank as usize]).filter(|&o| o != NO_FUNC);
        if let Some(owner) = owner.filter(|&o| code.funcs[o as usize].entry != at) {
            has_label[owner as usize] = true;
        }
    }
    let mut stay = Vec::new();
    for (block, &owner) in code.blocks.iter_mut().zip(&code.owner) {
        if block.end != RawEnd::IndirectTailCall || !has_label.get(owner as usize).is_some_and(|has| *has) {
            continue;
        }
        let at = block.last();
        let call = code.calls.binary_search_by_key(&at, |call| call.at).ok();
        // What a slot holds is a function.
        if call.is_some_and(|i| code.calls[i].transfer == Transfer::JumpIndirect) {
            block.end = RawEnd::Unresolved(Unread::Base);
            stay.push(at);
        }
    }
    stay.sort_unstable();
    code.calls.retain(|call| !has(&stay, call.at));
}

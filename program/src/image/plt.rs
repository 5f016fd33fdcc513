//! PLT stubs: which import each jumps to.
//!
//! A stub is recognised by its jump through a slot and named by the relocation of that slot, whatever the
//! linker (ld.bfd, ld.lld, mold) and whatever stands around the jump (`endbr64`, `bnd`, the push and jump of
//! lazy binding).
//!
//! Source: AMD64 supplement 5.2 and, for IBT, its section on `.plt.sec`.
#![warn(clippy::indexing_slicing)]

use super::{Image, PltStub, RelocationTo, SymbolKind};
use crate::addr::Va;
use crate::arch::{ControlFlow, Decoder, Insn, Operand};
use std::collections::HashMap;
use std::ops::Range;

/// The stubs, by address: from the sections made for them, or by their looks where there are no sections.
pub fn find(image: &Image) -> Vec<PltStub> {
    let resolvers = resolver_names(image);
    let mut found = Vec::new();
    let is_plt = |name: &str| name == ".iplt" || name == ".plt" || name.starts_with(".plt.");
    for s in image.sections.iter().filter(|s| s.executable && !s.zero && is_plt(&s.name)) {
        section(image, &s.range, &resolvers, &mut found);
    }
    if image.sections.is_empty() {
        for range in image.code_ranges() {
            scan(image, &range, &resolvers, &mut found);
        }
    }
    found.sort_by_key(|s| s.range.start);
    found
}

/// Names of resolvers: where they are symbols, those of indirect functions first.
fn resolver_names(image: &Image) -> HashMap<Va, &str> {
    let mut names = HashMap::new();
    for kind in [SymbolKind::IndirectFunction, SymbolKind::Function] {
        for s in image.symbols.iter().filter(|s| s.kind == kind) {
            names.entry(s.at).or_insert(&*s.name);
        }
    }
    names
}

/// The slot that `insn` jumps through, if it does.
fn slot_of(insn: &Insn) -> Option<Va> {
    match (insn.flow(), insn.operands().next()) {
        (ControlFlow::JumpIndirect, Some(Operand::Place { at, index: None, base: None, .. })) => Some(at),
        _ => None,
    }
}

/// What the slot's relocation says: outer `None` if there is none, inner `None` if it has no name.
fn import_of(image: &Image, slot: Va, resolvers: &HashMap<Va, &str>) -> Option<Option<Box<str>>> {
    match &image.relocation_at(slot)?.to {
        RelocationTo::Symbol(name, _) => Some(Some((**name).into())),
        RelocationTo::Resolver(at) | RelocationTo::Address(at) => Some(resolvers.get(at).map(|&n| n.into())),
        RelocationTo::Other => None,
    }
}

/// All of a section, cut into stubs. Every stub starts where the padding after the one before it ends.
fn section(image: &Image, range: &Range<Va>, resolvers: &HashMap<Va, &str>, found: &mut Vec<PltStub>) {
    let Some(bytes) = image.bytes_in(range) else { return };
    let stubs = split(bytes, range.start);
    for (i, (start, slot, pushes)) in stubs.iter().enumerate() {
        let end = stubs.get(i + 1).map_or(range.end, |next| next.0);
        // The first entry pushes a word of the table and jumps through the next one; both are the linker's
        // own.
        let import = slot.filter(|_| !pushes).and_then(|slot| import_of(image, slot, resolvers));
        let slot = import.as_ref().and(*slot);
        found.push(PltStub { range: *start..end, import: import.flatten(), slot });
    }
}

/// Starts of the stubs in `bytes`, the slot each jumps through, and whether it pushes before it jumps.
fn split(bytes: &[u8], at: Va) -> Vec<(Va, Option<Va>, bool)> {
    let mut stubs: Vec<(Va, Option<Va>, bool)> = Vec::new();
    let mut open = false;
    let mut pushes = false;
    for insn in Decoder::new(bytes, at) {
        if !open {
            if insn.is_padding() {
                continue;
            }
            // A lazy stub goes on right after its jump through the slot, with the push and the jump that bind
            // it.
            let continues = !insn.at().0.is_multiple_of(8);
            if !(continues && stubs.last().is_some_and(|s| s.1.is_some())) {
                stubs.push((insn.at(), None, false));
                pushes = false;
            }
            open = true;
        }
        match insn.flow() {
            ControlFlow::JumpIndirect => {
                if let Some(last) = stubs.last_mut().filter(|s| s.1.is_none()) {
                    (last.1, last.2) = (slot_of(&insn), pushes);
                }
                open = false;
            }
            ControlFlow::Next => pushes |= insn.operands().count() == 1,
            _ => open = false,
        }
    }
    stubs
}

/// Stubs by their looks, where no section says where they are: at a multiple of 8, a jump through a slot that
/// the dynamic linker fills with a function's address, followed by padding or by the push and jump of lazy
/// binding.
fn scan(image: &Image, range: &Range<Va>, resolvers: &HashMap<Va, &str>, found: &mut Vec<PltStub>) {
    let Some(bytes) = image.bytes_in(range) else { return };
    // `jmp *disp32(%rip)`: the only opcode that stubs use.
    for jump in memchr::memmem::find_iter(bytes, &[0xff, 0x25]) {
        let marked = |n: usize| {
            jump.checked_sub(n)
                .filter(|&at| bytes.get(at..).is_some_and(|b| b.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])))
        };
        let prefixed = jump.checked_sub(1).filter(|&at| bytes.get(at) == Some(&0xf2));
        let start = marked(4).or(marked(5)).or(prefixed).unwrap_or(jump);
        let at = range.start.plus(start as u64);
        if !at.0.is_multiple_of(8) {
            continue;
        }
        let Some(rest) = bytes.get(start..) else { continue };
        let mut insns = Decoder::new(rest, at).skip_while(|i| i.is_landing_mark());
        let Some(insn) = insns.next() else { continue };
        let Some(slot) = slot_of(&insn) else { continue };
        let Some(import) = import_of(image, slot, resolvers) else { continue };
        let end = match (insn.end().0.wrapping_sub(at.0), insns.next()) {
            (_, Some(next)) if next.is_padding() => {
                let len = next.end().since(at).next_multiple_of(8);
                at.plus(if len > 8 { 16 } else { 8 })
            }
            (6, Some(next)) if insns.next().is_some_and(|i| matches!(i.flow(), ControlFlow::Jump(_))) => {
                let _ = next;
                at.plus(16)
            }
            (8.., _) | (_, None) => insn.end(),
            _ => continue,
        };
        found.push(PltStub { range: at..end.min(range.end), import, slot: Some(slot) });
    }
}

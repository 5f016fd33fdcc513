//! Jump tables of moved functions: changed where they stand, so that their entries lead to the moved blocks.
//!
//! Changing a table in place needs no knowledge of the code that reads it: whoever adds an entry to the
//! table's address gets the moved block. A table is understood if each entry, read in one of three forms,
//! gives the target that the analysis found.
//!
//! Invariant: a table is changed only if every function that reads it is moved, and no byte of it belongs to
//! another table, unless what they have in common are addresses that both read.

use crate::bytes::set_distance;
use crate::code::Side;
use crate::not_moved::NotMoved;
use crate::patch::{Patch, patch};
use program::image::RelocationTo;
use program::{FuncId, Program, Va};
use std::collections::BTreeMap;

/// How an entry of a table gives its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// 4 bytes, signed: target − table.
    Relative,
    /// 4 bytes: the target itself (files at fixed addresses).
    Absolute4,
    /// 8 bytes: the target itself; relocated in files that can be moved.
    Absolute8,
}

/// A table that is changed.
#[derive(Clone, Debug)]
pub struct MovedTable {
    /// The function whose jumps read it.
    pub func: FuncId,
    /// Address of its first entry.
    pub at: Va,
    /// How its entries are read.
    pub form: Form,
    /// Where they led, in order.
    pub targets: Box<[Va]>,
    /// The jumps that read it.
    pub jumps: Box<[Va]>,
}

impl MovedTable {
    /// Address of entry `n`.
    pub fn entry(&self, n: usize) -> Va {
        self.at.plus(n as u64 * self.entry_len())
    }
    /// Bytes an entry.
    pub fn entry_len(&self) -> u64 {
        if self.form == Form::Absolute8 { 8 } else { 4 }
    }
    /// The address after its last byte.
    pub fn end(&self) -> Va {
        self.entry(self.targets.len())
    }
}

/// The tables of all functions that can be moved. A function with a table that cannot be changed stays.
pub fn find(program: &Program, not_moved: &mut [Option<NotMoved>]) -> Vec<MovedTable> {
    let mut found: Vec<MovedTable> = Vec::new();
    for table in &program.tables {
        match form(program, table) {
            Some(form) => found.push(MovedTable {
                func: table.func,
                at: table.at,
                form,
                targets: table.targets.clone(),
                jumps: table.jumps.clone(),
            }),
            None => keep(not_moved, table.func),
        }
    }
    // Tables come by address: two that overlap are next to each other, or a longer one spans several.
    loop {
        let before = found.len();
        let mut reach: Option<&MovedTable> = None;
        for table in &found {
            if let Some(last) = reach
                && table.at < last.end()
                && !shares_entries(last, table)
            {
                keep(not_moved, table.func);
                keep(not_moved, last.func);
            }
            if reach.is_none_or(|last| last.end() < table.end()) {
                reach = Some(table);
            }
        }
        found.retain(|s| not_moved[s.func.index()].is_none());
        if found.len() == before {
            break;
        }
    }
    found
}

/// Whether what `a` and `b` have in common are entries of both, which lead to the same place.
fn shares_entries(a: &MovedTable, b: &MovedTable) -> bool {
    a.func == b.func
        && a.form == b.form
        && a.form != Form::Relative
        && b.at.since(a.at).is_multiple_of(a.entry_len())
}

fn keep(not_moved: &mut [Option<NotMoved>], func: FuncId) {
    not_moved[func.index()].get_or_insert(NotMoved::Table);
}

fn form(program: &Program, table: &program::JumpTable) -> Option<Form> {
    let image = &program.image;
    let forms: &[Form] = match table.entry_len {
        4 => &[Form::Relative, Form::Absolute4],
        8 => &[Form::Absolute8],
        _ => return None,
    };
    let reads = |form: Form, n: usize| -> Option<Va> {
        let at = table.at.plus(n as u64 * u64::from(table.entry_len));
        match form {
            Form::Relative => {
                let word = image.bytes_from(at)?.first_chunk::<4>()?;
                Some(table.at.plus(i64::from(i32::from_le_bytes(*word)).cast_unsigned()))
            }
            Form::Absolute4 => {
                Some(Va(u64::from(u32::from_le_bytes(*image.bytes_from(at)?.first_chunk::<4>()?))))
            }
            Form::Absolute8 => match image.relocation_at(at).map(|r| &r.to) {
                Some(RelocationTo::Address(to)) => Some(*to),
                Some(_) => None,
                None if image.kind.is_relocated() => None,
                None => image.word_at(at).map(Va),
            },
        }
    };
    forms
        .iter()
        .copied()
        .find(|&form| table.targets.iter().enumerate().all(|(n, &want)| reads(form, n) == Some(want)))
}

/// Makes a table lead to moved blocks.
pub fn change(
    program: &Program,
    table: &MovedTable,
    sides: &BTreeMap<(Va, Side), Va>,
    lookup: &impl Fn(Va) -> Option<Va>,
    patches: &mut Vec<Patch>,
    relocations: &mut Vec<(Va, Va)>,
) {
    for (n, &old) in table.targets.iter().enumerate() {
        let side = table.jumps.iter().find_map(|&jump| sides.get(&(old, Side::Table(jump))).copied());
        let Some(new) = side.or_else(|| lookup(old)) else { continue };
        let at = table.entry(n);
        let mut bytes = vec![0; 4];
        match table.form {
            Form::Relative => set_distance(&mut bytes, 0, new.since(table.at)),
            Form::Absolute4 => set_distance(&mut bytes, 0, new.0),
            Form::Absolute8 => {
                bytes = new.0.to_le_bytes().to_vec();
                if program.image.kind.is_relocated() {
                    relocations.push((at, new));
                }
            }
        }
        patches.push(patch(program, at, bytes));
    }
}

//! Jump tables of moved functions: changed where they stand, so that their entries lead to the moved blocks.
//!
//! Changing a table in place needs no knowledge of the code that reads it: whoever adds an entry to the
//! table's address gets the moved block (or to a label's, whose address stays the old one in moved code). A
//! table is understood if each entry, read in one of three forms, gives the target that the analysis found.
//!
//! Invariant: a table is changed only if every function that reads it is moved, and no byte of it belongs to
//! another table, unless what they have in common are addresses that both read.

use crate::bytes::set_distance;
use crate::code::Side;
use crate::not_moved::NotMoved;
use crate::patch::Patch;
use program::image::RelocationTo;
use program::{FuncId, Program, Va};
use std::collections::BTreeMap;

/// How an entry of a table gives its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// 4 bytes, signed: target − anchor, which is the table itself unless the code says otherwise.
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
    /// What its entries count from, if they are distances: the table, or a label in the old code, whose
    /// address moved code computes as the old code did.
    pub anchor: Va,
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
                anchor: table.anchor.unwrap_or(table.at),
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
        && (a.form != Form::Relative || a.anchor == b.anchor)
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
                let anchor = table.anchor.unwrap_or(table.at);
                Some(anchor.plus(i64::from(i32::from_le_bytes(*word)).cast_unsigned()))
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
    // What is to be changed is in the file, not only in the memory behind it.
    image.bytes_in(&(table.at..table.at.plus(table.targets.len() as u64 * u64::from(table.entry_len))))?;
    forms
        .iter()
        .copied()
        .find(|&form| table.targets.iter().enumerate().all(|(n, &want)| reads(form, n) == Some(want)))
}

/// Makes a table lead to moved blocks, which `lookup` finds.
///
/// # Panics
/// If an entry leads to a block that `is_moved`, and is not found.
pub fn change(
    program: &Program,
    table: &MovedTable,
    sides: &BTreeMap<(Va, Side), Va>,
    lookup: &impl Fn(Va) -> Option<Va>,
    is_moved: &impl Fn(Va) -> bool,
    patches: &mut Vec<Patch>,
    relocations: &mut Vec<(Va, Va)>,
) {
    for (n, &old) in table.targets.iter().enumerate() {
        let side = table.jumps.iter().find_map(|&jump| sides.get(&(old, Side::Table(jump))).copied());
        let at = table.entry(n);
        let Some(new) = side.or_else(|| lookup(old)) else {
            // It leads to what stays, or cannot happen: such may lead out of the function, to anywhere.
            assert!(
                !is_moved(old),
                "the jump table's entry at {at} leads to the block at {old}, which is nowhere"
            );
            continue;
        };
        let mut bytes = vec![0; 4];
        match table.form {
            Form::Relative => set_distance(&mut bytes, 0, new.since(table.anchor)),
            Form::Absolute4 => set_distance(&mut bytes, 0, new.0),
            Form::Absolute8 => {
                bytes = new.0.to_le_bytes().to_vec();
                if program.image.kind.is_relocated() {
                    relocations.push((at, new));
                }
            }
        }
        patches.push(Patch::of(program, at, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::file::Old;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::compiled;
    use program::Image;

    const TEXT: &str = "
        int choose(int n, int a) { switch (n) { case 0: return a * 3; case 1: return a ^ 77; case 2: return a / 7;
            case 3: return a << 5; case 4: return a % 11; case 5: return -a; case 6: return a | 9; } return a; }
        int main(int n, char **v) { return choose(n, n * 5); }";

    /// Where entry `n` of `table` leads in `image`.
    fn entry(image: &Image, table: &MovedTable, n: usize) -> Va {
        let at = table.entry(n);
        let word = |len: u64| image.bytes_in(&(at..at.plus(len))).expect("in the file").to_vec();
        match table.form {
            Form::Relative => {
                let distance = i32::from_le_bytes(word(4).try_into().expect("four"));
                table.anchor.plus(i64::from(distance).cast_unsigned())
            }
            Form::Absolute4 => Va(u64::from(u32::from_le_bytes(word(4).try_into().expect("four")))),
            Form::Absolute8 => match image.relocation_at(at).map(|r| &r.to) {
                Some(RelocationTo::Address(to)) => *to,
                _ => Va(u64::from_le_bytes(word(8).try_into().expect("eight"))),
            },
        }
    }

    /// Entries that count from a label.
    const LABELS: &str = "
        int choose(int n, int a) {
            static const int from_zero[] = { &&zero - &&zero, &&one - &&zero, &&two - &&zero, &&one - &&zero };
            goto *(&&zero + from_zero[n & 3]);
            zero: return a * 3; one: return a ^ 77; two: return a / 7; }
        int main(int n, char **v) { return choose(n, n * 5); }";

    fn check(text: &str, flags: &str, form: Form) {
        let program = compiled(text, "c", &format!("-O2 -fno-inline {flags}"));
        let mut not_moved = vec![None; program.functions.len()];
        let tables = find(&program, &mut not_moved);
        let func = crate::testing::function(&program, "choose");
        let table = tables.iter().find(|t| t.func == func).expect("it has a table");
        assert_eq!((table.form, table.anchor == table.at), (form, text != LABELS));
        let module = Module::build(&program, &Plan::NULL, Room::Behind).expect("it can be moved");
        let file = module.to_file(Old::Kept).expect("it can be written");
        let image = Image::parse(file, "moved").expect("an image");
        for (n, &old) in table.targets.iter().enumerate() {
            assert_eq!(entry(&program.image, table, n), old);
            let blocks = &module.code_map.blocks;
            let new = blocks.iter().find(|b| b.0 == old).expect("it is moved").1;
            assert_eq!(entry(&image, table, n), new, "entry {n}");
        }
    }

    #[test]
    fn entries_lead_to_moved_blocks_whatever_their_form() {
        check(TEXT, "", Form::Relative);
        check(LABELS, "", Form::Relative);
        check(TEXT, "-fno-pic -no-pie", Form::Absolute8);
    }

    #[test]
    fn a_table_that_is_not_understood_keeps_its_function_where_it_is() {
        let mut program = compiled(TEXT, "c", "-O2 -fno-inline");
        let func = crate::testing::function(&program, "choose");
        for table in program.tables.iter_mut().filter(|t| t.func == func) {
            // As if the analysis had found another target than the table says.
            table.targets[0] = table.targets[1];
        }
        let mut not_moved = vec![None; program.functions.len()];
        assert!(find(&program, &mut not_moved).iter().all(|t| t.func != func));
        assert_eq!(not_moved[func.index()], Some(NotMoved::Table));
    }
}

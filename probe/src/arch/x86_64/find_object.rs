//! How unwinders find the tables of moved code in a process that ran before: code of ours in place of ld.so's
//! `_dl_find_object`, which knows no segments but those that ld.so has mapped.
//!
//! Source: glibc 2.36, elf/dl-find_object.c and dlfcn/dlfcn.h (`struct dl_find_object`); the C library's own
//! function jumps to where a word in ld.so's data says.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use super::bytes_between;
use super::shared::{FindObject, FoundObject, set};
use std::arch::global_asm;
use std::mem::{offset_of, size_of};

global_asm!(
    include_str!("find_object.s"),
    head_len = const size_of::<FindObject>(),
    n = const offset_of!(FindObject, n),
    original = const offset_of!(FindObject, original),
    start = const offset_of!(FoundObject, start),
    end = const offset_of!(FoundObject, end),
    link_map = const offset_of!(FoundObject, link_map),
    tables = const offset_of!(FoundObject, tables),
    row_len = const size_of::<FoundObject>(),
);

unsafe extern "C" {
    static engraft_find_object: u8;
    static engraft_find_object_entry: u8;
    static engraft_find_object_end: u8;
}

/// Where [`find_object`] is entered, from its start.
pub fn find_object_entry() -> u64 {
    bytes_between(&raw const engraft_find_object, &raw const engraft_find_object_entry).len() as u64
}

/// What stands in place of the function at `original`: for addresses in one of `objects`, what that says; for
/// others, the same as before.
pub fn find_object(original: u64, objects: &[FoundObject]) -> Vec<u8> {
    let mut code = bytes_between(&raw const engraft_find_object, &raw const engraft_find_object_end);
    set(&mut code, offset_of!(FindObject, original), original);
    set(&mut code, offset_of!(FindObject, n), objects.len() as u64);
    for FoundObject { start, end, link_map, tables } in objects {
        [start, end, link_map, tables].into_iter().for_each(|word| code.extend(word.to_le_bytes()));
    }
    code
}

/// Where the word stands by which the C library's `_dl_find_object` finds ld.so's, which is called in the
/// first place; as its `code` says, `mov REL(%rip),%rax; jmp *DISTANCE(%rax)`: how far behind `code` the
/// address stands that `rax` gets, and the distance from that. `None` if it is not like that.
pub fn find_object_slot(code: &[u8]) -> Option<(i64, i64)> {
    // What may stand in front, where jumps must lead to it: endbr64.
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).map_or((code, 0), |rest| (rest, 4));
    let (bytes, skipped) = code;
    let number = |at: usize| Some(i64::from(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    let is_it = bytes.starts_with(&[0x48, 0x8b, 0x05]) && bytes.get(7..9) == Some(&[0xff, 0xa0]);
    is_it.then_some(())?;
    Some((skipped + 7 + number(3)?, number(9)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::testing::{Registers, alone, call, check, map, read, unmap, write};

    #[test]
    fn addresses_in_moved_code_are_found_and_others_asked_for() {
        let _alone = alone();
        let at = map(0, 0x1000, nix::libc::MAP_PRIVATE);
        let (result, original) = (at + 0x800, at + 0xc00);
        // mov $77,%eax; ret
        [0xb8, 77, 0, 0, 0, 0xc3u8]
            .into_iter()
            .enumerate()
            .for_each(|(n, byte)| write(original + n as u64, byte));
        let object = |start, n| FoundObject { start, end: start + 0x100, link_map: n, tables: n + 1 };
        for objects in [vec![], vec![object(0x1000, 7)], vec![object(0x1000, 7), object(0x5000, 9)]] {
            let code = find_object(original, &objects);
            code.iter().enumerate().for_each(|(n, byte)| write(at + n as u64, *byte));
            let found = |pc| {
                (0..5).for_each(|n| write(result + 8 * n, u64::MAX));
                let registers = Registers { rdi: pc, rsi: result, ..Registers::default() };
                let said = call(at + find_object_entry(), registers).rax;
                (said, std::array::from_fn(|n| read(result + 8 * n as u64)))
            };
            for object in &objects {
                let want = [0, object.start, object.end, object.link_map, object.tables];
                check(found(object.start), (0, want));
                check(found(object.end - 1), (0, want));
            }
            for pc in [0, 0xfff, 0x1100, 0x4fff, 0x5100] {
                check(found(pc), (77, [u64::MAX; 5]));
            }
        }
        unmap(at, 0x1000);
    }

    #[test]
    fn the_word_is_found_that_leads_to_the_linkers_function() {
        let plain = [0x48, 0x8b, 0x05, 0xc1, 0x2f, 0x08, 0x00, 0xff, 0xa0, 0x60, 0x03, 0x00, 0x00, 0x0f];
        check(find_object_slot(&plain), Some((7 + 0x82fc1, 0x360)));
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &plain].concat();
        check(find_object_slot(&marked), Some((11 + 0x82fc1, 0x360)));
        check(find_object_slot(&plain[..12]), None);
        check(find_object_slot(&[0x90; 20]), None);
    }
}

//! Whether code or data of a program has the address of a function of the C library, to call it by a pointer,
//! or have it called.

use program::image::RelocationTo;
use program::{Program, Va};

/// Whether the address of one of these `functions` (per function), or of an import that `is_name`, is
/// anywhere but in a slot that calls go through.
pub fn is_taken(program: &Program, functions: &[bool], is_name: impl Fn(&str) -> bool) -> bool {
    let image = &program.image;
    let mut entries: Vec<Va> =
        program.functions.iter().zip(functions).filter(|(_, is)| **is).map(|(f, _)| f.entry).collect();
    entries.sort_unstable();
    let is_entry = |at: &Va| entries.binary_search(at).is_ok();
    let mut called: Vec<Va> = image.plt.iter().filter_map(|stub| stub.slot).collect();
    called.sort_unstable();
    let mut slots = Vec::new();
    for relocation in &image.relocations {
        match &relocation.to {
            RelocationTo::Address(to) if is_entry(to) => return true,
            // What is in a table of the linker's may be there for calls alone.
            RelocationTo::Symbol(name, _) if is_name(name) => {
                let in_table = || image.section_at(relocation.at).is_some_and(|s| s.name.starts_with(".got"));
                if called.binary_search(&relocation.at).is_err() && !in_table() {
                    return true;
                }
                slots.push(relocation.at);
            }
            _ => {}
        }
    }
    slots.sort_unstable();
    are_read(program, &slots)
        || program.named.iter().any(is_entry)
        || !image.kind.is_relocated() && (is_in_words(program, is_entry) || are_in_code(program, &entries))
}

/// Whether a word of data says an address that `is_entry`. For programs that are loaded where they are
/// linked.
fn is_in_words(program: &Program, is_entry: impl Fn(&Va) -> bool) -> bool {
    let image = &program.image;
    let words = |start: Va| {
        let words = image.bytes_from(start).unwrap_or_default().as_chunks::<8>().0;
        words.iter().any(|b| is_entry(&Va(u64::from_le_bytes(*b))))
    };
    image.segments.iter().filter(|s| !s.executable).any(|s| words(s.range.start))
}

/// Whether an instruction of such a program may say the address of one of the `entries`.
fn are_in_code(program: &Program, entries: &[Va]) -> bool {
    let finders: Vec<_> = entries
        .iter()
        .filter_map(|at| u32::try_from(at.0).ok())
        .map(|at| memchr::memmem::Finder::new(&at.to_le_bytes()).into_owned())
        .collect();
    let image = &program.image;
    let says = |bytes: &[u8]| finders.iter().any(|finder| finder.find(bytes).is_some());
    image.code_ranges().iter().any(|r| image.bytes_in(r).is_some_and(says))
}

/// Whether an instruction reads one of these `slots`, sorted, but to call or jump there.
fn are_read(program: &Program, slots: &[Va]) -> bool {
    let reads = |start: Va, bytes: &[u8]| {
        // The second byte says what is done with the four that follow: a distance from behind them.
        (2u64..).zip(bytes.windows(6)).any(|(n, bytes)| {
            let &[code, how, a, b, c, d] = bytes else { return false };
            let distance = i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned();
            how & 0xc7 == 5
                && slots.binary_search(&start.plus(n + 4).plus(distance)).is_ok()
                && !(code == 0xff && matches!(how, 0x15 | 0x25))
        })
    };
    let image = &program.image;
    !slots.is_empty()
        && image.code_ranges().iter().any(|r| image.bytes_in(r).is_some_and(|bytes| reads(r.start, bytes)))
}

//! Calls that return in a new process, too: there, counters are another's.

use program::image::RelocationTo;
use program::{CallKind, Callee, Program, Va};

/// Functions of the C library that do. `syscall` may be asked for a process.
const FORKS: [&str; 8] =
    ["fork", "_Fork", "__fork", "__libc_fork", "forkpty", "daemon", "_IO_fork", "syscall"];

fn is_name(name: &str) -> bool {
    FORKS.contains(&name)
}

/// Those calls, by address. A function that jumps to such a function in place of a return is one, too. Where the program takes the
/// address of one, all calls through pointers are. Not told: addresses that `dlsym` says.
pub fn calls(program: &Program) -> Vec<Va> {
    let functions = functions(program);
    let imports: Vec<bool> = program.imports.iter().map(|name| is_name(name)).collect();
    let has_pointer = is_taken(program, &functions);
    let is_fork = |callee: Callee| match callee {
        Callee::Function(f) => functions.get(f.index()) == Some(&true),
        Callee::Import(n) => imports.get(n as usize) == Some(&true),
        Callee::Indirect => has_pointer,
        Callee::Unknown(_) => false,
    };
    let calls = program.calls.iter().filter(|c| c.kind == CallKind::Call && c.returns && is_fork(c.callee));
    let mut found: Vec<Va> = calls.map(|c| c.at).collect();
    found.sort_unstable();
    found
}

/// Per function whether it is one.
fn functions(program: &Program) -> Vec<bool> {
    let imports: Vec<bool> = program.imports.iter().map(|name| is_name(name)).collect();
    let by_name = |f: &program::Function| {
        f.import.as_deref().is_some_and(is_name) || f.names.iter().any(|name| is_name(name))
    };
    let mut found: Vec<bool> = program.functions.iter().map(by_name).collect();
    loop {
        let mut changed = false;
        for call in program.calls.iter().filter(|c| c.kind != CallKind::Call) {
            let is_fork = match call.callee {
                Callee::Function(f) => found.get(f.index()) == Some(&true),
                Callee::Import(n) => imports.get(n as usize) == Some(&true),
                Callee::Indirect | Callee::Unknown(_) => false,
            };
            let caller = program.block(call.block).func.index();
            if is_fork && let Some(caller @ false) = found.get_mut(caller) {
                *caller = true;
                changed = true;
            }
        }
        if !changed {
            return found;
        }
    }
}

/// Whether the address of one is anywhere but in a slot that calls go through.
fn is_taken(program: &Program, functions: &[bool]) -> bool {
    let image = &program.image;
    let mut entries: Vec<Va> =
        program.functions.iter().zip(functions).filter(|(_, is)| **is).map(|(f, _)| f.entry).collect();
    entries.sort_unstable();
    let is_entry = |at: &Va| entries.binary_search(at).is_ok();
    let mut slots: Vec<Va> = image.plt.iter().filter_map(|stub| stub.slot).collect();
    slots.sort_unstable();
    let is_called = |name: &str| program.imports.iter().any(|import| **import == *name);
    let in_data = image.relocations.iter().any(|r| match &r.to {
        RelocationTo::Address(to) => is_entry(to),
        RelocationTo::Symbol(name, _) => {
            let in_table = || image.section_at(r.at).is_some_and(|s| s.name.starts_with(".got"));
            is_name(name) && slots.binary_search(&r.at).is_err() && !(is_called(name) && in_table())
        }
        _ => false,
    });
    in_data
        || program.named.iter().any(is_entry)
        || !image.kind.is_relocated() && is_in_words(program, is_entry)
}

/// Whether a word of data says an address that `is_entry`. For programs that are loaded where they are linked.
fn is_in_words(program: &Program, is_entry: impl Fn(&Va) -> bool) -> bool {
    let image = &program.image;
    let words = |start: Va| {
        let words = image.bytes_from(start).unwrap_or_default().as_chunks::<8>().0;
        words.iter().any(|b| is_entry(&Va(u64::from_le_bytes(*b))))
    };
    image.segments.iter().filter(|s| !s.executable).any(|s| words(s.range.start))
}

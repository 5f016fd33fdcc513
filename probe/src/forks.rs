//! Calls that return in a new process, too: there, counters are another's.

use crate::taken::is_taken;
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
    let has_pointer = is_taken(program, &functions, is_name);
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

//! Calls that return in a new process, too: there, counters are another's.

use crate::select::address_taken::is_taken;
use program::{CallKind, Callee, Program, Va, libc};

/// Whether it is the name of a function that does. `syscall` may be asked for a process.
fn is_name(name: &str) -> bool {
    libc::does(name, libc::FORKS)
}

/// Those calls, by address. A function that jumps to such a function in place of a return is one, too. Where
/// the program takes the address of one, all indirect calls are. Not told: addresses that `dlsym`
/// says.
pub fn calls(program: &Program) -> Vec<Va> {
    let imports: Vec<bool> = program.imports.iter().map(|name| is_name(name)).collect();
    let functions = functions(program, &imports);
    let has_pointer = is_taken(program, &functions, is_name);
    let is_one = |callee| match callee {
        Callee::Indirect => has_pointer,
        _ => is_fork(&functions, &imports, callee),
    };
    let calls = program.calls.iter().filter(|c| c.kind == CallKind::Call && c.returns && is_one(c.callee));
    let mut found: Vec<Va> = calls.map(|c| c.at).collect();
    found.sort_unstable();
    found
}

fn is_fork(functions: &[bool], imports: &[bool], callee: Callee) -> bool {
    match callee {
        Callee::Function(f) => functions.get(f.index()) == Some(&true),
        Callee::Import(n) => imports.get(n as usize) == Some(&true),
        Callee::Indirect | Callee::Unknown(_) => false,
    }
}

/// Per function whether it is one.
fn functions(program: &Program, imports: &[bool]) -> Vec<bool> {
    let by_name = |f: &program::Function| {
        f.import.as_deref().is_some_and(is_name) || f.names.iter().any(|name| is_name(name))
    };
    let mut found: Vec<bool> = program.functions.iter().map(by_name).collect();
    loop {
        let mut changed = false;
        for call in program.calls.iter().filter(|c| c.kind != CallKind::Call) {
            let caller = program.block(call.block).func.index();
            if is_fork(&found, imports, call.callee)
                && let Some(caller @ false) = found.get_mut(caller)
            {
                *caller = true;
                changed = true;
            }
        }
        if !changed {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{compiled, function};

    /// The functions that hold such calls, of a program with this text behind `main`.
    fn callers(text: &str) -> Vec<String> {
        let text = format!(
            "#include <unistd.h>\nint (*volatile way)(void);\n{text}\nint main(void) {{ return f(); }}"
        );
        let program = compiled(&text, "c", "-O2 -fno-inline");
        assert!(program.func_ids().any(|id| id == function(&program, "f")));
        let function_at = |at: &Va| program.function(program.function_at(*at).expect("in a function")).name();
        let mut names: Vec<String> = calls(&program).iter().map(function_at).collect();
        names.dedup();
        names
    }

    #[test]
    fn a_direct_call_is_one() {
        assert_eq!(callers("int f(void) { return fork() + 1; }"), ["f"]);
        assert!(callers("int f(void) { return getpid() + 1; }").is_empty());
    }

    /// One of the program's own, which returns in both, as the system call does.
    #[test]
    fn so_is_one_that_is_called_clone() {
        let own = "__attribute__((noinline)) int clone3(void *a, long n)
            { long r; asm volatile(\"syscall\" : \"=a\"(r) : \"0\"(435L), \"D\"(a), \"S\"(n) : \"rcx\", \"r11\", \"memory\"); return r; }";
        assert_eq!(callers(&format!("{own} int f(void) {{ return clone3(&way, 8) + 1; }}")), ["f"]);
    }

    #[test]
    fn so_is_a_call_of_what_jumps_there() {
        assert_eq!(callers("int g(void) { return fork(); } int f(void) { return g() + 1; }"), ["f"]);
    }

    #[test]
    fn where_its_address_is_taken_any_indirect_call_is() {
        let text = "int g(void) { return way() + 1; } int f(void) { way = fork; return g(); }";
        assert!(callers(text).contains(&"g".to_owned()));
        let text = "int g(void) { return way() + 1; } int f(void) { way = getpid; return g(); }";
        assert!(callers(text).is_empty());
    }
}

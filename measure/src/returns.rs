//! Calls that are sure to come back: once, to the instruction behind them, unless the process dies or a signal's handler leaves.
//!
//! A function comes back if all that it calls does, and if it does not call itself, over whatever way: then at most one of its frames
//! a thread is in the middle of something when the process dies.
//!
//! Source: C11 7.24, 7.22.3, 7.12 for functions of the C library that call nothing back.

use program::{BlockEnd, Call, CallKind, Callee, FuncId, Program, Va};
use std::ops::Range;

/// Functions of the C library that come back: they call nothing of the program's, and throw nothing.
const IMPORTS: [&str; 118] = [
    "__ctype_b_loc",
    "__ctype_tolower_loc",
    "__ctype_toupper_loc",
    "__errno_location",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__rawmemchr",
    "__stpcpy_chk",
    "__strcat_chk",
    "__strcpy_chk",
    "__strncat_chk",
    "__strncpy_chk",
    "__tls_get_addr",
    "abs",
    "acos",
    "acosf",
    "asin",
    "asinf",
    "atan",
    "atan2",
    "atan2f",
    "atanf",
    "atoi",
    "atol",
    "bcmp",
    "bcopy",
    "bzero",
    "calloc",
    "cbrt",
    "ceil",
    "ceilf",
    "clock_gettime",
    "copysign",
    "cos",
    "cosf",
    "cosh",
    "exp",
    "exp2",
    "expf",
    "fabs",
    "fegetround",
    "floor",
    "floorf",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "fmodf",
    "free",
    "frexp",
    "getenv",
    "gettimeofday",
    "hypot",
    "isalnum",
    "isalpha",
    "isdigit",
    "isspace",
    "labs",
    "ldexp",
    "log",
    "log10",
    "log1p",
    "log2",
    "log2f",
    "logf",
    "lrint",
    "lround",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmem",
    "memmove",
    "mempcpy",
    "memrchr",
    "memset",
    "modf",
    "nearbyint",
    "posix_memalign",
    "pow",
    "powf",
    "rawmemchr",
    "realloc",
    "rint",
    "round",
    "roundf",
    "sin",
    "sincos",
    "sinf",
    "sinh",
    "sqrt",
    "sqrtf",
    "stpcpy",
    "stpncpy",
    "strcasecmp",
    "strcat",
    "strchr",
    "strchrnul",
    "strcmp",
    "strcoll",
    "strcpy",
    "strcspn",
    "strlen",
    "strncasecmp",
    "strncat",
    "strncmp",
    "strncpy",
    "strnlen",
    "strpbrk",
    "strrchr",
    "strspn",
    "strstr",
    "strtol",
    "strtoul",
    "tan",
    "tanh",
    "trunc",
];

/// Which calls are sure to come back.
pub struct Returns<'a> {
    program: &'a Program,
    functions: Vec<bool>,
}

impl<'a> Returns<'a> {
    /// Of `program`.
    pub fn of(program: &'a Program) -> Returns<'a> {
        // Whom each waits for, and who waits for each.
        let mut n_open = vec![Some(0u32); program.functions.len()];
        let mut waiting: Vec<Vec<FuncId>> = vec![Vec::new(); program.functions.len()];
        for id in program.func_ids() {
            let function = program.function(id);
            let mut open = is_plain(program, id).then_some(0u32);
            if let Some(name) = function.import.as_deref() {
                open = comes_back(name).then_some(0);
            } else {
                let calls = function.block_ids().flat_map(|b| program.calls_in(b));
                for call in calls {
                    match (call.callee, &mut open) {
                        (Callee::Function(callee), Some(n)) => {
                            *n += 1;
                            waiting[callee.index()].push(id);
                        }
                        (Callee::Import(i), Some(_)) if comes_back(&program.imports[i as usize]) => {}
                        _ => open = None,
                    }
                }
            }
            n_open[id.index()] = open;
        }
        let mut functions = vec![false; program.functions.len()];
        let mut ready: Vec<FuncId> = program.func_ids().filter(|f| n_open[f.index()] == Some(0)).collect();
        while let Some(id) = ready.pop() {
            functions[id.index()] = true;
            for &caller in &waiting[id.index()] {
                if let Some(n) = &mut n_open[caller.index()] {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(caller);
                    }
                }
            }
        }
        Returns { program, functions }
    }

    /// Whether `call` comes back.
    pub fn are_sure(&self, call: &Call) -> bool {
        call.kind == CallKind::Call
            && call.returns
            && match call.callee {
                Callee::Function(f) => self.functions[f.index()],
                Callee::Import(i) => comes_back(&self.program.imports[i as usize]),
                Callee::Unknown(_) | Callee::Indirect => false,
            }
    }
}

fn comes_back(import: &str) -> bool {
    IMPORTS.binary_search(&import).is_ok()
}

/// Whether nothing but calls keeps the function from coming back.
fn is_plain(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    let ends_well = |b: &program::Block| {
        !matches!(
            b.end,
            BlockEnd::NoReturn
                | BlockEnd::Stop
                | BlockEnd::Broken
                | BlockEnd::Unresolved
                | BlockEnd::IndirectTailCall
        )
    };
    function.complete
        && function.returns
        && program.blocks_of(id).iter().all(ends_well)
        && !function.ranges.iter().any(|range| calls_system(program, range))
}

/// Whether there may be a system call in `range`, which may end the process, or make another program of it.
pub fn calls_system(program: &Program, range: &Range<Va>) -> bool {
    let code = program.image.bytes_in(range).unwrap_or_default();
    memchr::memmem::find(code, &[0x0f, 0x05]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_sorted() {
        assert!(IMPORTS.is_sorted());
    }
}

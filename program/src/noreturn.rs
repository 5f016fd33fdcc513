//! Functions that never return: imports by name, the others as a fixpoint over the call graph.
//!
//! A function returns if control can get from an entry of it to a return, to a jump out of it that may return, or to
//! anything that is not understood, passing only calls that return. We start with none and add until nothing changes,
//! so functions that only call each other do not return. Functions of the image that bear a reserved name never return.
//!
//! Source: C11 7.22.4, 7.13.2; POSIX; Itanium C++ ABI 2.4.3; what glibc, libstdc++, libgcc declare `noreturn`.

use crate::code::{Code, NO_FUNC};
use crate::sweep::{How, RawCall, RawEnd};

/// Imports that never return.
const NEVER: [&str; 38] = [
    "_Exit",
    "_Unwind_Resume",
    "_ZN10__cxxabiv111__terminateEPFvvE",
    "_ZSt10unexpectedv",
    "_ZSt21__glibcxx_assert_failPKciS0_S0_",
    "_ZSt9terminatev",
    "__GI_exit",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "__cxa_deleted_virtual",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
];
/// Whether the import of this name never returns.
pub fn never_returns(name: &str) -> bool {
    // The standard C++ library's helpers: `std::__throw_length_error(char const*)` and many more.
    NEVER.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// Whether a function of this name never returns even where it is the image's own: names that C and C++ reserve, so that no
/// program may give them to something else. Its code may not show it, since unwinders and `longjmp` leave by indirect jumps.
///
/// Source: C11 7.1.3, 7.13.2; C++20 [lex.name]; glibc's sysdeps for what `longjmp` is made of.
pub fn is_reserved(name: &str) -> bool {
    const MADE_OF: [&str; 4] = ["__longjmp", "____longjmp_chk", "__libc_longjmp", "__libc_siglongjmp"];
    const PROGRAMS_OWN: [&str; 4] = ["err", "errx", "verr", "verrx"];
    MADE_OF.contains(&name) || never_returns(name) && !PROGRAMS_OWN.contains(&name)
}

/// Works out which functions and calls return, and notes it in `code`.
pub fn infer(code: &mut Code<'_>) {
    let n = code.funcs.len();
    let mut returns = vec![false; n];
    let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); n];
    let mut queued = vec![true; n];
    let mut todo: Vec<u32> = (0..code.funcs.len()).rev().filter_map(|f| u32::try_from(f).ok()).collect();
    let mut seen = vec![0u32; code.blocks.len()];
    let mut round = 0;
    let entries = code.entry_ranks();
    let mut stack = Vec::new();
    while let Some(f) = todo.pop() {
        let fi = f as usize;
        queued[fi] = false;
        if returns[fi] {
            continue;
        }
        round += 1;
        let proto = &code.funcs[fi];
        let mut back = match proto.named_returns {
            Some(returns) => returns,
            None => entries[fi].is_empty(),
        };
        stack.clear();
        if proto.named_returns.is_none() {
            stack.extend_from_slice(&entries[fi]);
        }
        while let Some(b) = stack.pop() {
            if back || std::mem::replace(&mut seen[b as usize], round) == round {
                continue;
            }
            let block = code.blocks[b as usize];
            let blocked = code
                .calls_in(b)
                .iter()
                .any(|call| call.how.is_call() && !may_return(code, call, &returns, &mut waiting, f));
            code.pads_of(b, |t| {
                if code.owner[t as usize] == f {
                    stack.push(t);
                }
            });
            if blocked {
                continue;
            }
            match block.end {
                RawEnd::Return | RawEnd::Unresolved | RawEnd::Broken => back = true,
                RawEnd::IndirectTailCall => {
                    back |= code
                        .calls_in(b)
                        .last()
                        .is_none_or(|call| may_return(code, call, &returns, &mut waiting, f));
                }
                RawEnd::Switch => code.table_targets(b, |t| stack.push(t)),
                RawEnd::Jump | RawEnd::Branch => match code.block_from(block.target) {
                    Some(t) if code.owner[t as usize] == f => stack.push(t),
                    Some(t) => match code.owner[t as usize] {
                        NO_FUNC => back = true,
                        g if returns[g as usize] => back = true,
                        g => waiting[g as usize].push(f),
                    },
                    None => back = true,
                },
                RawEnd::FallThrough | RawEnd::Stop | RawEnd::NoReturn => {}
            }
            if block.end.falls_through() {
                match code.next(b) {
                    Some(t) if code.owner[t as usize] == f => stack.push(t),
                    Some(t) => match code.owner[t as usize] {
                        NO_FUNC => back = true,
                        g if returns[g as usize] => back = true,
                        g => waiting[g as usize].push(f),
                    },
                    // A call that nothing follows does not return.
                    None => back |= !code.ends_in_call(b),
                }
            }
        }
        if back {
            returns[fi] = true;
            for g in std::mem::take(&mut waiting[fi]) {
                if !returns[g as usize] && !std::mem::replace(&mut queued[g as usize], true) {
                    todo.push(g);
                }
            }
        }
    }
    let mut no_waiting = Vec::new();
    code.never = (0..code.calls.len())
        .filter(|&i| {
            let call = code.calls[i];
            call.how.is_call() && !may_return(code, &call, &returns, &mut no_waiting, NO_FUNC)
        })
        .map(|i| code.calls[i].at)
        .collect();
    for (f, returns) in code.funcs.iter_mut().zip(returns) {
        f.returns = returns;
    }
}

/// Whether `call` can come back, as far as is known; if not yet, `f` waits for its callee.
fn may_return(code: &Code<'_>, call: &RawCall, returns: &[bool], waiting: &mut [Vec<u32>], f: u32) -> bool {
    if code.seams.binary_search_by_key(&call.at, |s| s.0).is_ok() {
        return false;
    }
    let callee = match call.how {
        How::Direct => code.block_from(call.target).map(|b| code.owner[b as usize]),
        How::Slot | How::JumpSlot => match code.slot_import(call.target) {
            Some(name) => return !never_returns(name),
            None => code.slot_function(call.target),
        },
        How::Indirect | How::JumpIndirect => None,
    };
    match callee {
        None | Some(NO_FUNC) => true,
        Some(g) => {
            let back = returns[g as usize];
            if !back && let Some(waiting) = waiting.get_mut(g as usize) {
                waiting.push(f);
            }
            back
        }
    }
}

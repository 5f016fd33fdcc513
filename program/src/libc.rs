//! What functions of the C library, and of the C++ runtime, do beyond computing: one table, a row a function.
//!
//! *Invariant*: sorted by name, a name once; all that is known of a function stands in its row, and nowhere
//! else in the workspace.
//!
//! *Source*: C11 7.22.4 (`abort`, `exit`), 7.13 (`setjmp`, `longjmp`), 7.1.3 (reserved names), 7.24, 7.22.3,
//! 7.12 (what calls nothing back); C++20 [lex.name]; POSIX.1-2008 `setjmp`, `sigsetjmp`, `exec`, `fork`;
//! POSIX.1-2001 `getcontext`; vfork(2); Itanium C++ ABI 2.4.3; what glibc, libstdc++, libgcc declare
//! `noreturn`, and glibc's sysdeps for what `longjmp` is made of.
//!
//! *Not here*: which calls of a program never return (`noreturn`), which files are the C library's (`image`).

/// A set of things that a function may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour(u32);

impl Behaviour {
    const NONE: Behaviour = Behaviour(0);

    /// What is in either set.
    pub const fn with(self, other: Behaviour) -> Behaviour {
        Behaviour(self.0 | other.0)
    }

    /// Whether any of `other` is in the set.
    pub fn has(self, other: Behaviour) -> bool {
        self.0 & other.0 != 0
    }
}

/// Control never comes back to the caller.
pub const NEVER_RETURNS: Behaviour = Behaviour(1);
/// C and C++ do not reserve the name: programs have functions of their own that are called so.
pub const UNRESERVED: Behaviour = Behaviour(1 << 1);
/// A part of `longjmp` that only the C library's own files show; it never returns.
pub const JUMPS_INSIDE: Behaviour = Behaviour(1 << 2);
/// Comes back more than once to the same call, as compilers know: what follows the call runs more often than
/// what is before it.
pub const RETURNS_TWICE: Behaviour = Behaviour(1 << 3);
/// May come back more than once, in another process or later on, though no compiler says so.
pub const RETURNS_AGAIN: Behaviour = Behaviour(1 << 4);
/// May come back in a new process as well, which has a copy of the memory.
pub const FORKS: Behaviour = Behaviour(1 << 5);
/// Comes back in a child that uses its parent's memory, and then in the parent.
pub const LENDS_MEMORY: Behaviour = Behaviour(1 << 6);
/// Comes back after another stack has run.
pub const SWITCHES_STACK: Behaviour = Behaviour(1 << 7);
/// Ends the process, and first runs all that was registered for that.
pub const EXITS: Behaviour = Behaviour(1 << 8);
/// Ends the process without what `exit` does last, but runs functions of the program first.
pub const EXITS_QUICKLY: Behaviour = Behaviour(1 << 9);
/// Ends the process at once.
pub const ENDS_AT_ONCE: Behaviour = Behaviour(1 << 10);
/// Ends the process by SIGABRT.
pub const ABORTS: Behaviour = Behaviour(1 << 11);
/// Makes another program of the process, or comes back.
pub const EXECS: Behaviour = Behaviour(1 << 12);
/// May be the last that the process does, by a signal or a system call, and may come back.
pub const MAY_END: Behaviour = Behaviour(1 << 13);
/// Says whether the thread may be cancelled anywhere.
pub const SETS_CANCELLATION: Behaviour = Behaviour(1 << 14);
/// Comes back, once: calls nothing of the program's, throws nothing, and never goes far from where it
/// starts, or deep, so that the runtime knows the call by its being near where a signal handler leaves it.
/// Not `malloc` and those that go with it, which programs put their own in place of.
pub const COMES_BACK: Behaviour = Behaviour(1 << 15);
/// Comes back to its caller, calls nothing of the program's, and does not wait. Not what takes a function
/// (`qsort`), may be told to call something (`printf` with types of the program's own), is a point of
/// cancellation (`read`), or is, or often is, of a library that is looked at itself (`sin`, `malloc`).
pub const SELF_CONTAINED: Behaviour = Behaviour(1 << 16);

/// Runs in the child of `posix_spawn`, which has its parent's memory and thread pointer, and is over when it
/// execs: in glibc and in musl. `posix_spawn` itself comes back in the parent alone, and needs no row.
pub const RUNS_SPAWNED: Behaviour = Behaviour(1 << 17);

/// Per bucket of names, which lengths they have: [`length_bit`]s.
const LENGTHS: [u32; 256] = {
    let mut lengths = [0; 256];
    let mut n = 0;
    while n < FUNCTIONS.len() {
        let name = FUNCTIONS[n].0;
        lengths[bucket(name)] |= length_bit(name);
        n += 1;
    }
    lengths
};

/// Names with the same second, middle and last letters are in the same one of 256: C++'s begin alike.
const fn bucket(name: &str) -> usize {
    match name.as_bytes() {
        all @ [_, second, .., last] => {
            (*second as usize * 31 + all[all.len() / 2] as usize * 7 + *last as usize) % 256
        }
        _ => 0,
    }
}

const fn length_bit(name: &str) -> u32 {
    1 << if name.len() < 31 { name.len() } else { 31 }
}

/// What the function of this name does; nothing, if it is none of the table.
pub fn behaviour(name: &str) -> Behaviour {
    // Most names of a program are none of the table: nothing here has their letters and their length.
    let lengths = LENGTHS.get(bucket(name)).copied().unwrap_or_default();
    if lengths & length_bit(name) == 0 {
        return Behaviour::NONE;
    }
    let row = FUNCTIONS.binary_search_by(|row| row.0.cmp(name));
    row.ok().and_then(|i| FUNCTIONS.get(i)).map_or(Behaviour::NONE, |row| row.1)
}

/// Whether the function of this name does any of `what`.
pub fn does(name: &str, what: Behaviour) -> bool {
    behaviour(name).has(what)
}

/// The names of all functions of the table that do any of `what`, sorted.
pub fn named(what: Behaviour) -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().filter(move |row| row.1.has(what)).map(|row| row.0)
}

/// Whether the import of this name never returns; `is_libc` says whether it is the C library's.
pub fn import_never_returns(name: &str, is_libc: impl Fn(&str) -> bool) -> bool {
    never_returns(name) && (!does(name, UNRESERVED) || is_libc(name))
}

/// Whether a function of this name never returns even where it is the image's own: names that C and C++
/// reserve, so that no program may give them to something else. Its code may not show it, since unwinders and
/// `longjmp` leave by indirect jumps.
pub fn is_reserved_noreturn(name: &str) -> bool {
    does(name, JUMPS_INSIDE) || never_returns(name) && !does(name, UNRESERVED)
}

/// Whether a call to the function of this name may come back more than once, so that a block must end at it.
/// An import's name, or that of a function of the image.
pub fn returns_twice(name: &str) -> bool {
    does(name, RETURNS_TWICE)
}

/// Whether the function of this name comes back, or ends the process, or makes another program of it.
pub fn may_be_last(name: &str) -> bool {
    does(name, MAY_END.with(EXECS))
}

/// Whether a function of this name never returns, if it is the C library's or the C++ runtime's.
pub(crate) fn never_returns(name: &str) -> bool {
    // The standard C++ library's helpers: `std::__throw_length_error(char const*)` and many more.
    does(name, NEVER_RETURNS) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// By name.
const FUNCTIONS: [(&str, Behaviour); 217] = [
    ("_Exit", NEVER_RETURNS.with(ENDS_AT_ONCE)),
    ("_Fork", RETURNS_AGAIN.with(FORKS)),
    ("_IO_fork", FORKS),
    ("_Unwind_Resume", NEVER_RETURNS),
    ("_ZN10__cxxabiv111__terminateEPFvvE", NEVER_RETURNS),
    ("_ZSt10unexpectedv", NEVER_RETURNS),
    ("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE", NEVER_RETURNS),
    ("_ZSt21__glibcxx_assert_failPKciS0_S0_", NEVER_RETURNS),
    ("_ZSt9terminatev", NEVER_RETURNS),
    ("__GI_exit", NEVER_RETURNS),
    ("____longjmp_chk", JUMPS_INSIDE),
    ("__assert", NEVER_RETURNS.with(ABORTS)),
    ("__assert_fail", NEVER_RETURNS.with(ABORTS)),
    ("__assert_perror_fail", NEVER_RETURNS.with(ABORTS)),
    ("__chk_fail", NEVER_RETURNS.with(ABORTS)),
    ("__ctype_b_loc", COMES_BACK.with(SELF_CONTAINED)),
    ("__ctype_tolower_loc", COMES_BACK.with(SELF_CONTAINED)),
    ("__ctype_toupper_loc", COMES_BACK.with(SELF_CONTAINED)),
    ("__cxa_bad_cast", NEVER_RETURNS),
    ("__cxa_bad_typeid", NEVER_RETURNS),
    ("__cxa_call_terminate", NEVER_RETURNS),
    ("__cxa_call_unexpected", NEVER_RETURNS),
    ("__cxa_deleted_virtual", NEVER_RETURNS),
    ("__cxa_pure_virtual", NEVER_RETURNS),
    ("__cxa_rethrow", NEVER_RETURNS),
    ("__cxa_throw", NEVER_RETURNS),
    ("__cxa_throw_bad_array_new_length", NEVER_RETURNS),
    ("__errno_location", COMES_BACK.with(SELF_CONTAINED)),
    ("__fork", FORKS),
    ("__fortify_fail", NEVER_RETURNS.with(ABORTS)),
    ("__getcontext", RETURNS_TWICE),
    ("__isoc23_strtol", SELF_CONTAINED),
    ("__isoc23_strtoll", SELF_CONTAINED),
    ("__isoc23_strtoul", SELF_CONTAINED),
    ("__isoc23_strtoull", SELF_CONTAINED),
    ("__libc_fork", FORKS),
    ("__libc_longjmp", JUMPS_INSIDE),
    ("__libc_siglongjmp", JUMPS_INSIDE),
    ("__libc_start_main", NEVER_RETURNS),
    ("__libc_vfork", RETURNS_TWICE),
    ("__longjmp", JUMPS_INSIDE),
    ("__longjmp_chk", NEVER_RETURNS),
    ("__memcpy_chk", COMES_BACK.with(SELF_CONTAINED)),
    ("__memmove_chk", COMES_BACK.with(SELF_CONTAINED)),
    ("__mempcpy_chk", SELF_CONTAINED),
    ("__memset_chk", COMES_BACK.with(SELF_CONTAINED)),
    ("__rawmemchr", COMES_BACK),
    ("__sigsetjmp", RETURNS_TWICE),
    ("__spawni_child", RUNS_SPAWNED),
    ("__stack_chk_fail", NEVER_RETURNS.with(ABORTS)),
    ("__stpcpy_chk", SELF_CONTAINED),
    ("__strcat_chk", COMES_BACK.with(SELF_CONTAINED)),
    ("__strcpy_chk", SELF_CONTAINED),
    ("__strncat_chk", COMES_BACK),
    ("__strncpy_chk", SELF_CONTAINED),
    ("__strtok_r", SELF_CONTAINED),
    ("__tls_get_addr", COMES_BACK),
    ("__vfork", RETURNS_TWICE.with(LENDS_MEMORY)),
    ("_exit", NEVER_RETURNS.with(ENDS_AT_ONCE)),
    ("_longjmp", NEVER_RETURNS),
    ("_setjmp", RETURNS_TWICE),
    ("abort", NEVER_RETURNS.with(ABORTS)),
    ("abs", COMES_BACK.with(SELF_CONTAINED)),
    ("atan", COMES_BACK),
    ("atanf", COMES_BACK),
    ("atof", SELF_CONTAINED),
    ("atoi", COMES_BACK.with(SELF_CONTAINED)),
    ("atol", COMES_BACK.with(SELF_CONTAINED)),
    ("bcmp", COMES_BACK.with(SELF_CONTAINED)),
    ("bcopy", SELF_CONTAINED),
    ("bzero", SELF_CONTAINED),
    ("cbrt", COMES_BACK),
    ("ceil", COMES_BACK),
    ("ceilf", COMES_BACK),
    ("child", RUNS_SPAWNED),
    ("clock", SELF_CONTAINED),
    ("clock_gettime", SELF_CONTAINED),
    ("clone", RETURNS_AGAIN.with(FORKS)),
    ("clone3", RETURNS_AGAIN.with(FORKS)),
    ("copysign", COMES_BACK),
    ("cos", COMES_BACK),
    ("cosf", COMES_BACK),
    ("daemon", RETURNS_AGAIN.with(FORKS)),
    ("err", NEVER_RETURNS.with(UNRESERVED)),
    ("errx", NEVER_RETURNS.with(UNRESERVED)),
    ("execl", EXECS),
    ("execle", EXECS),
    ("execlp", EXECS),
    ("execv", EXECS),
    ("execve", EXECS),
    ("execveat", EXECS),
    ("execvp", EXECS),
    ("execvpe", EXECS),
    ("exit", NEVER_RETURNS.with(EXITS)),
    ("expf", COMES_BACK),
    ("fabs", COMES_BACK),
    ("fegetround", COMES_BACK),
    ("fexecve", EXECS),
    ("floor", COMES_BACK),
    ("floorf", COMES_BACK),
    ("fma", COMES_BACK),
    ("fmax", COMES_BACK),
    ("fmin", COMES_BACK),
    ("fork", RETURNS_AGAIN.with(FORKS)),
    ("forkpty", RETURNS_AGAIN.with(FORKS)),
    ("frexp", COMES_BACK),
    ("getcontext", RETURNS_TWICE),
    ("getpid", SELF_CONTAINED),
    ("gettimeofday", COMES_BACK.with(SELF_CONTAINED)),
    ("gsignal", MAY_END),
    ("isalnum", COMES_BACK.with(SELF_CONTAINED)),
    ("isalpha", COMES_BACK.with(SELF_CONTAINED)),
    ("iscntrl", SELF_CONTAINED),
    ("isdigit", COMES_BACK.with(SELF_CONTAINED)),
    ("islower", SELF_CONTAINED),
    ("isprint", SELF_CONTAINED),
    ("ispunct", SELF_CONTAINED),
    ("isspace", COMES_BACK.with(SELF_CONTAINED)),
    ("isupper", SELF_CONTAINED),
    ("iswalnum", SELF_CONTAINED),
    ("iswalpha", SELF_CONTAINED),
    ("iswdigit", SELF_CONTAINED),
    ("iswspace", SELF_CONTAINED),
    ("isxdigit", SELF_CONTAINED),
    ("kill", MAY_END),
    ("killpg", MAY_END),
    ("labs", COMES_BACK.with(SELF_CONTAINED)),
    ("ldexp", COMES_BACK),
    ("log2", COMES_BACK),
    ("log2f", COMES_BACK),
    ("logf", COMES_BACK),
    ("longjmp", NEVER_RETURNS),
    ("lrint", COMES_BACK),
    ("lround", COMES_BACK),
    ("memchr", COMES_BACK.with(SELF_CONTAINED)),
    ("memcmp", COMES_BACK.with(SELF_CONTAINED)),
    ("memcpy", COMES_BACK.with(SELF_CONTAINED)),
    ("memmem", SELF_CONTAINED),
    ("memmove", COMES_BACK.with(SELF_CONTAINED)),
    ("mempcpy", COMES_BACK.with(SELF_CONTAINED)),
    ("memrchr", COMES_BACK.with(SELF_CONTAINED)),
    ("memset", COMES_BACK.with(SELF_CONTAINED)),
    ("modf", COMES_BACK),
    ("nearbyint", COMES_BACK),
    ("powf", COMES_BACK),
    ("pthread_exit", NEVER_RETURNS),
    ("pthread_kill", MAY_END),
    ("pthread_setcanceltype", SETS_CANCELLATION),
    ("pthread_sigqueue", MAY_END),
    ("quick_exit", NEVER_RETURNS.with(EXITS_QUICKLY)),
    ("raise", MAY_END),
    ("rand", SELF_CONTAINED),
    ("random", SELF_CONTAINED),
    ("rawmemchr", COMES_BACK.with(SELF_CONTAINED)),
    ("rint", COMES_BACK),
    ("round", COMES_BACK),
    ("roundf", COMES_BACK),
    ("setjmp", RETURNS_TWICE),
    ("siglongjmp", NEVER_RETURNS),
    ("sigqueue", MAY_END),
    ("sigsetjmp", RETURNS_TWICE),
    ("sin", COMES_BACK),
    ("sincos", COMES_BACK),
    ("sinf", COMES_BACK),
    ("stpcpy", COMES_BACK.with(SELF_CONTAINED)),
    ("stpncpy", COMES_BACK.with(SELF_CONTAINED)),
    ("strcasecmp", COMES_BACK.with(SELF_CONTAINED)),
    ("strcasestr", SELF_CONTAINED),
    ("strcat", COMES_BACK.with(SELF_CONTAINED)),
    ("strchr", COMES_BACK.with(SELF_CONTAINED)),
    ("strchrnul", COMES_BACK.with(SELF_CONTAINED)),
    ("strcmp", COMES_BACK.with(SELF_CONTAINED)),
    ("strcoll", SELF_CONTAINED),
    ("strcpy", COMES_BACK.with(SELF_CONTAINED)),
    ("strcspn", COMES_BACK.with(SELF_CONTAINED)),
    ("strlen", COMES_BACK.with(SELF_CONTAINED)),
    ("strncasecmp", COMES_BACK.with(SELF_CONTAINED)),
    ("strncat", COMES_BACK.with(SELF_CONTAINED)),
    ("strncmp", COMES_BACK.with(SELF_CONTAINED)),
    ("strncpy", COMES_BACK.with(SELF_CONTAINED)),
    ("strnlen", COMES_BACK.with(SELF_CONTAINED)),
    ("strpbrk", COMES_BACK.with(SELF_CONTAINED)),
    ("strrchr", COMES_BACK.with(SELF_CONTAINED)),
    ("strsep", SELF_CONTAINED),
    ("strspn", COMES_BACK.with(SELF_CONTAINED)),
    ("strstr", SELF_CONTAINED),
    ("strtod", SELF_CONTAINED),
    ("strtof", SELF_CONTAINED),
    ("strtok", SELF_CONTAINED),
    ("strtok_r", SELF_CONTAINED),
    ("strtol", COMES_BACK.with(SELF_CONTAINED)),
    ("strtold", SELF_CONTAINED),
    ("strtoll", SELF_CONTAINED),
    ("strtoul", COMES_BACK.with(SELF_CONTAINED)),
    ("strtoull", SELF_CONTAINED),
    ("strxfrm", SELF_CONTAINED),
    ("swapcontext", RETURNS_AGAIN.with(SWITCHES_STACK)),
    ("syscall", RETURNS_AGAIN.with(FORKS).with(MAY_END)),
    ("tan", COMES_BACK),
    ("tgkill", MAY_END),
    ("thrd_exit", NEVER_RETURNS),
    ("time", SELF_CONTAINED),
    ("tkill", MAY_END),
    ("tolower", SELF_CONTAINED),
    ("toupper", SELF_CONTAINED),
    ("towlower", SELF_CONTAINED),
    ("towupper", SELF_CONTAINED),
    ("trunc", COMES_BACK),
    ("verr", NEVER_RETURNS.with(UNRESERVED)),
    ("verrx", NEVER_RETURNS.with(UNRESERVED)),
    ("vfork", RETURNS_TWICE.with(LENDS_MEMORY)),
    ("wcschr", SELF_CONTAINED),
    ("wcscmp", SELF_CONTAINED),
    ("wcslen", SELF_CONTAINED),
    ("wmemchr", SELF_CONTAINED),
    ("wmemcpy", SELF_CONTAINED),
    ("wmemset", SELF_CONTAINED),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_has_one_row() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn who_comes_back_does_not_end_the_process() {
        let ends = NEVER_RETURNS.with(MAY_END).with(EXECS).with(FORKS).with(RETURNS_TWICE);
        let both: Vec<_> = named(COMES_BACK.with(SELF_CONTAINED)).filter(|name| does(name, ends)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn a_name_that_programs_may_have_says_nothing_by_itself() {
        assert!(import_never_returns("errx", |_| true) && !import_never_returns("errx", |_| false));
        assert!(!is_reserved_noreturn("errx") && is_reserved_noreturn("abort"));
        assert!(!import_never_returns("__longjmp", |_| true) && is_reserved_noreturn("__longjmp"));
        assert!(is_reserved_noreturn("_ZSt20__throw_length_errorPKc"));
    }

    /// The oracle is gcc, by the headers' `noreturn`: code behind the call is dropped, and with it the name
    /// that it has.
    #[test]
    fn the_compiler_drops_what_follows_a_call_that_never_returns() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let calls = [
            ("_Exit", "_Exit(1)"),
            ("_exit", "_exit(1)"),
            ("abort", "abort()"),
            ("atoi", "n = atoi(s)"),
            ("err", "err(1, s)"),
            ("exit", "exit(1)"),
            ("fork", "n = fork()"),
            ("longjmp", "longjmp(j, 1)"),
            ("pthread_exit", "pthread_exit(0)"),
            ("quick_exit", "quick_exit(1)"),
            ("siglongjmp", "siglongjmp(j, 1)"),
            ("strlen", "n = strlen(s)"),
            ("thrd_exit", "thrd_exit(1)"),
            ("execl", "n = execl(s, s, s)"),
        ];
        let mut source = String::from(
            "#include <err.h>\n#include <pthread.h>\n#include <setjmp.h>\n#include <stdlib.h>\n\
             #include <string.h>\n#include <threads.h>\n#include <unistd.h>\n\
             void behind(const char *);\n",
        );
        for (name, call) in calls {
            let line = format!(
                "void of_{name}(const char *s, jmp_buf j, int n) {{ {call}; (void)n; behind(\"behind {name}\"); }}\n"
            );
            source.push_str(&line);
        }
        let file = folder.path().join("calls.c");
        std::fs::write(&file, source).expect("written");
        let made =
            Command::new("gcc").args(["-O2", "-w", "-S", "-o", "-"]).arg(&file).output().expect("gcc runs");
        let text = String::from_utf8(made.stdout).expect("assembly is text");
        assert!(made.status.success() && text.contains("of_strlen"), "gcc made nothing");
        for (name, _) in calls {
            let goes_on = text.contains(&format!("\"behind {name}\""));
            assert_eq!(import_never_returns(name, |_| true), !goes_on, "{name}");
        }
    }
}

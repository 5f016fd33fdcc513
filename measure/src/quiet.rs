//! Functions of the C library of which nothing need be recorded: they come back to their caller, call nothing
//! of the program's, and do not wait.
//!
//! Not here: what takes a function (`qsort`), may end the process (`exit`), may be told to call something
//! (`printf` with types of the program's own), is a point of cancellation (`read`), or is another library's
//! that is recorded (`sin`), or often is (`malloc`).

use std::collections::HashSet;
use std::sync::LazyLock;

const MEMORY: &str = "memcpy memmove memset memcmp memchr memrchr mempcpy rawmemchr memmem bcmp bcopy bzero __memcpy_chk __memmove_chk \
    __memset_chk __mempcpy_chk wmemcpy wmemset wmemchr";
const TEXT: &str = "strlen strnlen strcmp strncmp strcpy strncpy strcat strncat strchr strrchr strchrnul strstr strpbrk strspn strcspn strcasecmp \
    strncasecmp strcasestr stpcpy stpncpy __strcpy_chk __strcat_chk __strncpy_chk __stpcpy_chk strtok strtok_r \
    __strtok_r strsep strcoll strxfrm wcslen wcschr wcscmp";
const CHARACTERS: &str = "__ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc tolower toupper isalpha isdigit isspace isalnum isupper islower \
    isprint ispunct isxdigit iscntrl towlower towupper iswalpha iswdigit iswspace iswalnum";
const NUMBERS: &str = "strtol strtoll strtoul strtoull strtod strtof strtold __isoc23_strtol __isoc23_strtoul __isoc23_strtoll \
    __isoc23_strtoull atoi atol atof abs labs";
const OTHERS: &str = "__errno_location rand random time clock gettimeofday clock_gettime getpid";

/// What may be the last that a process does here, and may come back.
const LAST: &str = "kill killpg raise gsignal tgkill tkill pthread_kill sigqueue pthread_sigqueue syscall execl execle execlp execv execve execveat \
    execvp execvpe fexecve";

/// Whether it is the name of one.
pub fn is_quiet(name: &str) -> bool {
    static ALL: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        [MEMORY, TEXT, CHARACTERS, NUMBERS, OTHERS].into_iter().flat_map(str::split_whitespace).collect()
    });
    ALL.contains(name)
}

/// Whether it is the name of one that comes back, or ends the process, or makes another program of it.
pub fn may_be_last(name: &str) -> bool {
    static ALL: LazyLock<HashSet<&str>> = LazyLock::new(|| LAST.split_whitespace().collect());
    ALL.contains(name)
}

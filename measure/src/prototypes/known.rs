//! Types that prototypes name and nobody wants to declare: those of the C library, and of compilers.
//!
//! Source: ISO C17, 7.20 and 7.21.1; POSIX, `<sys/types.h>`; glibc for x86-64; Intel's intrinsics guide.

use super::PrototypeError;
use super::parser::{Parser, Scope};

const DECLARATIONS: &str = "
typedef unsigned long size_t; typedef long ssize_t; typedef long ptrdiff_t; typedef long double max_align_t;
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t; typedef
unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long
uint64_t; typedef long intptr_t; typedef unsigned long uintptr_t; typedef long intmax_t; typedef unsigned
long uintmax_t; typedef signed char int_least8_t; typedef short int_least16_t; typedef int int_least32_t;
typedef long int_least64_t; typedef unsigned char uint_least8_t; typedef unsigned short uint_least16_t;
typedef unsigned int uint_least32_t; typedef unsigned long uint_least64_t; typedef signed char int_fast8_t;
typedef long int_fast16_t; typedef long int_fast32_t; typedef long int_fast64_t; typedef unsigned char
uint_fast8_t; typedef unsigned long uint_fast16_t; typedef unsigned long uint_fast32_t; typedef unsigned
long uint_fast64_t; typedef unsigned char u_char; typedef unsigned short u_short; typedef unsigned int
u_int; typedef unsigned long u_long; typedef unsigned short ushort; typedef unsigned int uint; typedef
unsigned long ulong; typedef char *caddr_t; typedef unsigned char u_int8_t; typedef unsigned short
u_int16_t; typedef unsigned int u_int32_t; typedef unsigned long u_int64_t; typedef long register_t; typedef
long quad_t; typedef unsigned long u_quad_t; typedef __int128 __int128_t; typedef unsigned __int128
__uint128_t; typedef float float_t; typedef double double_t; typedef int wchar_t; typedef unsigned int
wint_t; typedef unsigned long wctype_t; typedef const int *wctrans_t; typedef unsigned short char16_t;
typedef unsigned int char32_t; typedef unsigned char char8_t; typedef long off_t; typedef long off64_t;
typedef long loff_t; typedef long time_t; typedef long clock_t; typedef int clockid_t; typedef void
*timer_t; typedef int pid_t; typedef unsigned int uid_t; typedef unsigned int gid_t; typedef unsigned int
id_t; typedef int key_t; typedef unsigned int mode_t; typedef unsigned long dev_t; typedef unsigned long
ino_t; typedef unsigned long ino64_t; typedef unsigned long nlink_t; typedef long blksize_t; typedef long
blkcnt_t; typedef long blkcnt64_t; typedef unsigned long fsblkcnt_t; typedef unsigned long fsfilcnt_t;
typedef unsigned int useconds_t; typedef long suseconds_t; typedef unsigned int socklen_t; typedef unsigned
short sa_family_t; typedef unsigned short in_port_t; typedef unsigned int in_addr_t; typedef unsigned long
nfds_t; typedef unsigned long rlim_t; typedef int sig_atomic_t; typedef unsigned long pthread_t; typedef
unsigned int pthread_key_t; typedef int pthread_once_t; typedef volatile int pthread_spinlock_t; typedef
void (*sighandler_t)(int); typedef int (*comparison_fn_t)(const void *, const void *); struct timespec {
time_t tv_sec; long tv_nsec; }; struct timeval { time_t tv_sec; suseconds_t tv_usec; }; struct tm { int
tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_wday, tm_yday, tm_isdst; long tm_gmtoff; const char
*tm_zone; }; struct iovec { void *iov_base; size_t iov_len; }; struct in_addr { in_addr_t s_addr; }; struct
pollfd { int fd; short events, revents; }; typedef struct { int quot, rem; } div_t; typedef struct { long
quot, rem; } ldiv_t; typedef struct { long long quot, rem; } lldiv_t; typedef struct { long quot, rem; }
imaxdiv_t; typedef struct { unsigned long __val[16]; } sigset_t; typedef struct _IO_FILE FILE; typedef
struct __dirstream DIR; struct __va_list_tag { unsigned int gp_offset, fp_offset; void *overflow_arg_area,
*reg_save_area; }; typedef struct __va_list_tag __builtin_va_list[1]; typedef __builtin_va_list
__gnuc_va_list; typedef __builtin_va_list va_list; typedef unsigned long __builtin_size_t; typedef int __m64
__attribute__((vector_size(8))); typedef float __m128 __attribute__((vector_size(16))); typedef double
__m128d __attribute__((vector_size(16))); typedef long long __m128i __attribute__((vector_size(16)));
typedef float __m256 __attribute__((vector_size(32))); typedef double __m256d
__attribute__((vector_size(32))); typedef long long __m256i __attribute__((vector_size(32))); typedef float
__m512 __attribute__((vector_size(64))); typedef double __m512d __attribute__((vector_size(64))); typedef
long long __m512i __attribute__((vector_size(64)));
";

/// All of them.
pub fn scope() -> Result<Scope, PrototypeError> {
    let mut parser = Parser::new(DECLARATIONS, Scope::default());
    parser.all(false)?;
    Ok(parser.scope)
}

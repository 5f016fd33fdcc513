//! Functions of the C library that programs call most, so that nobody has to say what they take.
//!
//! Parameters are called as POSIX calls them.
//!
//! Source: ISO C17, 7; POSIX.1-2017, "System Interfaces"; Linux man-pages, section 2, for what is Linux's
//! own.

use super::Prototypes;
use std::sync::OnceLock;

const TYPES: &str = "
typedef union { char size[40]; long align; } pthread_mutex_t; typedef union { char size[4]; int align; }
pthread_mutexattr_t; typedef union { char size[48]; long long align; } pthread_cond_t; typedef union { char
size[4]; int align; } pthread_condattr_t; typedef union { char size[56]; long align; } pthread_rwlock_t;
typedef union { char size[8]; long align; } pthread_rwlockattr_t; typedef union { char size[56]; long align; }
pthread_attr_t; typedef union { char size[32]; long align; } pthread_barrier_t; typedef union { char size[4];
int align; } pthread_barrierattr_t; typedef union { char size[32]; long align; } sem_t; struct sockaddr;
struct msghdr; struct mmsghdr; struct stat; struct dirent; struct rusage; struct epoll_event; struct
sigaction; struct itimerval; struct rlimit; struct utsname; struct statx;
";

/// Of `double`; each is there for `float` and `long double` too, with `f` and `l` behind its name.
const OF_NUMBERS: &str = "
double acos(double x); double acosh(double x); double asin(double x); double asinh(double x); double
atan(double x); double atan2(double y, double x); double atanh(double x); double cbrt(double x); double
ceil(double x); double copysign(double x, double y); double cos(double x); double cosh(double x); double
erf(double x); double erfc(double x); double exp(double x); double exp2(double x); double expm1(double x);
double exp10(double x); double fabs(double x); double fdim(double x, double y); double floor(double x);
double fma(double x, double y, double z); double fmax(double x, double y); double fmin(double x, double y);
double fmod(double x, double y); double frexp(double num, int *exp); double hypot(double x, double y); int
ilogb(double x); double j0(double x); double j1(double x); double jn(int n, double x); double ldexp(double x,
int exp); double lgamma(double x); long long llrint(double x); long long llround(double x); double log(double
x); double log10(double x); double log1p(double x); double log2(double x); double logb(double x); long
lrint(double x); long lround(double x); double modf(double x, double *iptr); double nan(const char *tagp);
double nearbyint(double x); double nextafter(double x, double y); double pow(double x, double y); double
remainder(double x, double y); double remquo(double x, double y, int *quo); double rint(double x); double
round(double x); double roundeven(double x); double scalbln(double x, long n); double scalbn(double x, int
n); double significand(double x); double sin(double x); void sincos(double x, double *sin, double *cos);
double sinh(double x); double sqrt(double x); double tan(double x); double tanh(double x); double
tgamma(double x); double trunc(double x); double y0(double x); double y1(double x); double yn(int n, double
x); double _Complex cacos(double _Complex z); double _Complex casin(double _Complex z); double _Complex
catan(double _Complex z); double cabs(double _Complex z); double carg(double _Complex z); double _Complex
ccos(double _Complex z); double _Complex cexp(double _Complex z); double _Complex clog(double _Complex z);
double _Complex cpow(double _Complex x, double _Complex y); double _Complex csin(double _Complex z); double
_Complex csqrt(double _Complex z); double _Complex ctan(double _Complex z);
";

const OTHERS: &str = "
void *memccpy(void *s1, const void *s2, int c, size_t n); void *memchr(const void *s, int c, size_t n); int
memcmp(const void *s1, const void *s2, size_t n); void *memcpy(void *s1, const void *s2, size_t n); void
*memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen); void *memmove(void
*s1, const void *s2, size_t n); void *mempcpy(void *s1, const void *s2, size_t n); void *memrchr(const void
*s, int c, size_t n); void *memset(void *s, int c, size_t n); void *rawmemchr(const void *s, int c); char
*stpcpy(char *s1, const char *s2); char *stpncpy(char *s1, const char *s2, size_t n); int strcasecmp(const
char *s1, const char *s2); char *strcasestr(const char *haystack, const char *needle); char *strcat(char *s1,
const char *s2); char *strchr(const char *s, int c); char *strchrnul(const char *s, int c); int strcmp(const
char *s1, const char *s2); int strcoll(const char *s1, const char *s2); char *strcpy(char *s1, const char
*s2); size_t strcspn(const char *s1, const char *s2); char *strdup(const char *s); char *strerror(int
errnum); size_t strlen(const char *s); int strncasecmp(const char *s1, const char *s2, size_t n); char
*strncat(char *s1, const char *s2, size_t n); int strncmp(const char *s1, const char *s2, size_t n); char
*strncpy(char *s1, const char *s2, size_t n); char *strndup(const char *s, size_t size); size_t strnlen(const
char *s, size_t maxlen); char *strpbrk(const char *s1, const char *s2); char *strrchr(const char *s, int c);
char *strsep(char **stringp, const char *delim); size_t strspn(const char *s1, const char *s2); char
*strstr(const char *s1, const char *s2); char *strtok(char *s, const char *sep); char *strtok_r(char *s,
const char *sep, char **state); size_t strxfrm(char *s1, const char *s2, size_t n); void bzero(void *s,
size_t n); int bcmp(const void *s1, const void *s2, size_t n); char *index(const char *s, int c); char
*rindex(const char *s, int c); size_t wcslen(const wchar_t *ws); int wcscmp(const wchar_t *ws1, const wchar_t
*ws2); wchar_t *wcscpy(wchar_t *ws1, const wchar_t *ws2); wchar_t *wmemcpy(wchar_t *ws1, const wchar_t *ws2,
size_t n); wchar_t *wmemset(wchar_t *ws, wchar_t wc, size_t n); wchar_t *wcschr(const wchar_t *ws, wchar_t
wc);

void abort(void); int abs(int i); void *aligned_alloc(size_t alignment, size_t size); int atexit(void
(*func)(void)); double atof(const char *str); int atoi(const char *str); long atol(const char *str); long
long atoll(const char *nptr); void *bsearch(const void *key, const void *base, size_t nel, size_t width, int
(*compar)(const void *, const void *)); void *calloc(size_t nelem, size_t elsize); div_t div(int numer, int
denom); double drand48(void); void exit(int status); void _exit(int status); void _Exit(int status); void
quick_exit(int status); void free(void *ptr); char *getenv(const char *name); long labs(long i); ldiv_t
ldiv(long numer, long denom); long long llabs(long long i); lldiv_t lldiv(long long numer, long long denom);
long lrand48(void); void *malloc(size_t size); size_t malloc_usable_size(void *ptr); void *memalign(size_t
alignment, size_t size); int mkstemp(char *template); int posix_memalign(void **memptr, size_t alignment,
size_t size); int putenv(char *string); void qsort(void *base, size_t nel, size_t width, int (*compar)(const
void *, const void *)); void qsort_r(void *base, size_t nel, size_t width, int (*compar)(const void *, const
void *, void *), void *arg); int rand(void); int rand_r(unsigned *seed); long random(void); void
*realloc(void *ptr, size_t size); void *reallocarray(void *ptr, size_t nelem, size_t elsize); char
*realpath(const char *file_name, char *resolved_name); int setenv(const char *envname, const char *envval,
int overwrite); void srand(unsigned seed); void srand48(long seedval); void srandom(unsigned seed); double
strtod(const char *nptr, char **endptr); float strtof(const char *nptr, char **endptr); long double
strtold(const char *nptr, char **endptr); long strtol(const char *nptr, char **endptr, int base); long long
strtoll(const char *nptr, char **endptr, int base); unsigned long strtoul(const char *nptr, char **endptr,
int base); unsigned long long strtoull(const char *nptr, char **endptr, int base); int system(const char
*command); int unsetenv(const char *name); char *secure_getenv(const char *name); unsigned
arc4random(void); void arc4random_buf(void *buf, size_t n);

int isalnum(int c); int isalpha(int c); int isdigit(int c); int isspace(int c); int isupper(int c); int
islower(int c); int isxdigit(int c); int ispunct(int c); int isprint(int c); int tolower(int c); int
toupper(int c);

int asprintf(char **ptr, const char *format, ...); int dprintf(int fildes, const char *format, ...); int
fclose(FILE *stream); int feof(FILE *stream); int ferror(FILE *stream); int fflush(FILE *stream); int
fgetc(FILE *stream); char *fgets(char *s, int n, FILE *stream); int fileno(FILE *stream); FILE *fopen(const
char *pathname, const char *mode); FILE *fdopen(int fildes, const char *mode); int fprintf(FILE *stream, const
char *format, ...); int fputc(int c, FILE *stream); int fputs(const char *s, FILE *stream); size_t fread(void
*ptr, size_t size, size_t nitems, FILE *stream); int fscanf(FILE *stream, const char *format, ...); int
fseek(FILE *stream, long offset, int whence); int fseeko(FILE *stream, off_t offset, int whence); long
ftell(FILE *stream); off_t ftello(FILE *stream); size_t fwrite(const void *ptr, size_t size, size_t nitems,
FILE *stream); int getc(FILE *stream); int getchar(void); ssize_t getdelim(char **lineptr, size_t *n, int
delimiter, FILE *stream); ssize_t getline(char **lineptr, size_t *n, FILE *stream); int pclose(FILE *stream);
void perror(const char *s); FILE *popen(const char *command, const char *mode); int printf(const char *format,
...); int putc(int c, FILE *stream); int putchar(int c); int puts(const char *s); int remove(const char
*path); int rename(const char *old, const char *new); void rewind(FILE *stream); int scanf(const char *format,
...); int setvbuf(FILE *stream, char *buf, int type, size_t size); int snprintf(char *s, size_t n, const char
*format, ...); int sprintf(char *s, const char *format, ...); int sscanf(const char *s, const char *format,
...); FILE *tmpfile(void); int ungetc(int c, FILE *stream); int vasprintf(char **ptr, const char *format,
va_list ap); int vfprintf(FILE *stream, const char *format, va_list ap); int vprintf(const char *format,
va_list ap); int vsnprintf(char *s, size_t n, const char *format, va_list ap); int vsprintf(char *s, const
char *format, va_list ap); int vsscanf(const char *s, const char *format, va_list ap);

int access(const char *path, int amode); unsigned alarm(unsigned seconds); int chdir(const char *path); int
chmod(const char *path, mode_t mode); int chown(const char *path, uid_t owner, gid_t group); int close(int
fildes); ssize_t copy_file_range(int infd, off64_t *pinoff, int outfd, off64_t *poutoff, size_t length,
unsigned flags); int creat(const char *path, mode_t mode); int dup(int fildes); int dup2(int fildes, int
fildes2); int dup3(int fildes, int fildes2, int flag); int execve(const char *path, char *const argv[], char
*const envp[]); int execv(const char *path, char *const argv[]); int execvp(const char *file, char *const
argv[]); int faccessat(int fd, const char *path, int amode, int flag); int fcntl(int fildes, int cmd, ...);
int fdatasync(int fildes); int flock(int fd, int operation); pid_t fork(void); int fstat(int fildes, struct
stat *buf); int fstatat(int fd, const char *path, struct stat *buf, int flag); int fsync(int fildes); int
ftruncate(int fildes, off_t length); char *getcwd(char *buf, size_t size); gid_t getegid(void); uid_t
geteuid(void); gid_t getgid(void); int gethostname(char *name, size_t namelen); pid_t getpid(void); pid_t
getppid(void); uid_t getuid(void); int ioctl(int fildes, unsigned long request, ...); int isatty(int fildes);
int kill(pid_t pid, int sig); int link(const char *path1, const char *path2); off_t lseek(int fildes, off_t
offset, int whence); off64_t lseek64(int fildes, off64_t offset, int whence); int lstat(const char *path,
struct stat *buf); int madvise(void *addr, size_t len, int advice); int mkdir(const char *path, mode_t mode);
void *mmap(void *addr, size_t len, int prot, int flags, int fildes, off_t off); void *mmap64(void *addr,
size_t len, int prot, int flags, int fildes, off64_t off); int mprotect(void *addr, size_t len, int prot);
void *mremap(void *addr, size_t old_len, size_t len, int flags, ...); int msync(void *addr, size_t len, int
flags); int munmap(void *addr, size_t len); int open(const char *path, int oflag, ...); int open64(const char
*path, int oflag, ...); int openat(int fd, const char *path, int oflag, ...); long pathconf(const char *path,
int name); int pause(void); int pipe(int fildes[2]); int pipe2(int fildes[2], int flag); int
posix_fadvise(int fd, off_t offset, off_t len, int advice); int posix_fallocate(int fd, off_t offset, off_t
len); ssize_t pread(int fildes, void *buf, size_t nbyte, off_t offset); ssize_t pread64(int fildes, void
*buf, size_t nbyte, off64_t offset); ssize_t preadv(int fildes, const struct iovec *iov, int iovcnt, off_t
offset); ssize_t pwrite(int fildes, const void *buf, size_t nbyte, off_t offset); ssize_t pwrite64(int
fildes, const void *buf, size_t nbyte, off64_t offset); ssize_t pwritev(int fildes, const struct iovec *iov,
int iovcnt, off_t offset); int raise(int sig); ssize_t read(int fildes, void *buf, size_t nbyte); ssize_t
readahead(int fd, off64_t offset, size_t count); ssize_t readlink(const char *path, char *buf, size_t
bufsize); ssize_t readv(int fildes, const struct iovec *iov, int iovcnt); int rmdir(const char *path); void
*sbrk(intptr_t increment); ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count); ssize_t
sendfile64(int out_fd, int in_fd, off64_t *offset, size_t count); unsigned sleep(unsigned seconds); ssize_t
splice(int fdin, off64_t *offin, int fdout, off64_t *offout, size_t len, unsigned flags); int stat(const char
*path, struct stat *buf); int symlink(const char *path1, const char *path2); void sync(void); long syscall(long
number, ...); long sysconf(int name); ssize_t tee(int fdin, int fdout, size_t len, unsigned flags); int
truncate(const char *path, off_t length); mode_t umask(mode_t cmask); int unlink(const char *path); int
unlinkat(int fd, const char *path, int flag); int usleep(useconds_t useconds); pid_t vfork(void); ssize_t
vmsplice(int fdout, const struct iovec *iov, size_t count, unsigned flags); pid_t wait(int *stat_loc); pid_t
waitpid(pid_t pid, int *stat_loc, int options); ssize_t write(int fildes, const void *buf, size_t nbyte);
ssize_t writev(int fildes, const struct iovec *iov, int iovcnt); ssize_t getrandom(void *buf, size_t buflen,
unsigned flags);

int accept(int socket, struct sockaddr *address, socklen_t *address_len); int accept4(int socket, struct
sockaddr *address, socklen_t *address_len, int flag); int bind(int socket, const struct sockaddr *address,
socklen_t address_len); int connect(int socket, const struct sockaddr *address, socklen_t address_len); int
epoll_create1(int flags); int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event); int
epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout); int eventfd(unsigned count, int
flags); int getsockopt(int socket, int level, int option_name, void *option_value, socklen_t *option_len); int
listen(int socket, int backlog); int poll(struct pollfd *fds, nfds_t nfds, int timeout); ssize_t recv(int
socket, void *buffer, size_t length, int flags); ssize_t recvfrom(int socket, void *buffer, size_t length,
int flags, struct sockaddr *address, socklen_t *address_len); ssize_t recvmsg(int socket, struct msghdr
*message, int flags); int recvmmsg(int socket, struct mmsghdr *messages, unsigned n, int flags, struct
timespec *timeout); ssize_t send(int socket, const void *buffer, size_t length, int flags); ssize_t
sendmsg(int socket, const struct msghdr *message, int flags); int sendmmsg(int socket, struct mmsghdr
*messages, unsigned n, int flags); ssize_t sendto(int socket, const void *message, size_t length, int flags,
const struct sockaddr *dest_addr, socklen_t dest_len); int setsockopt(int socket, int level, int option_name,
const void *option_value, socklen_t option_len); int shutdown(int socket, int how); int socket(int domain, int
type, int protocol); int socketpair(int domain, int type, int protocol, int socket_vector[2]);

int pthread_attr_init(pthread_attr_t *attr); int pthread_barrier_wait(pthread_barrier_t *barrier); int
pthread_cancel(pthread_t thread); int pthread_cond_broadcast(pthread_cond_t *cond); int
pthread_cond_destroy(pthread_cond_t *cond); int pthread_cond_init(pthread_cond_t *cond, const
pthread_condattr_t *attr); int pthread_cond_signal(pthread_cond_t *cond); int
pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *abstime); int
pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex); int pthread_create(pthread_t *thread, const
pthread_attr_t *attr, void *(*start_routine)(void *), void *arg); int pthread_detach(pthread_t thread); int
pthread_equal(pthread_t t1, pthread_t t2); void pthread_exit(void *value_ptr); void
*pthread_getspecific(pthread_key_t key); int pthread_join(pthread_t thread, void **value_ptr); int
pthread_key_create(pthread_key_t *key, void (*destructor)(void *)); int pthread_key_delete(pthread_key_t
key); int pthread_kill(pthread_t thread, int sig); int pthread_mutex_destroy(pthread_mutex_t *mutex); int
pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr); int
pthread_mutex_lock(pthread_mutex_t *mutex); int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct
timespec *abstime); int pthread_mutex_trylock(pthread_mutex_t *mutex); int
pthread_mutex_unlock(pthread_mutex_t *mutex); int pthread_once(pthread_once_t *once_control, void
(*init_routine)(void)); int pthread_rwlock_rdlock(pthread_rwlock_t *rwlock); int
pthread_rwlock_unlock(pthread_rwlock_t *rwlock); int pthread_rwlock_wrlock(pthread_rwlock_t *rwlock);
pthread_t pthread_self(void); int pthread_setspecific(pthread_key_t key, const void *value); int
pthread_sigmask(int how, const sigset_t *set, sigset_t *oset); int pthread_spin_lock(pthread_spinlock_t
*lock); int pthread_spin_unlock(pthread_spinlock_t *lock); int sched_yield(void); int sem_post(sem_t *sem);
int sem_wait(sem_t *sem);

int clock_gettime(clockid_t clock_id, struct timespec *tp); int clock_nanosleep(clockid_t clock_id, int flags,
const struct timespec *rqtp, struct timespec *rmtp); clock_t clock(void); double difftime(time_t time1, time_t
time0); int gettimeofday(struct timeval *tp, void *tzp); struct tm *gmtime(const time_t *timer); struct tm
*gmtime_r(const time_t *timer, struct tm *result); struct tm *localtime(const time_t *timer); struct tm
*localtime_r(const time_t *timer, struct tm *result); time_t mktime(struct tm *timeptr); int nanosleep(const
struct timespec *rqtp, struct timespec *rmtp); size_t strftime(char *s, size_t maxsize, const char *format,
const struct tm *timeptr); time_t time(time_t *tloc); int closedir(DIR *dirp); DIR *opendir(const char
*dirname); struct dirent *readdir(DIR *dirp); int dlclose(void *handle); char *dlerror(void); void
*dlopen(const char *file, int mode); void *dlsym(void *handle, const char *name); int getrusage(int who, struct
rusage *r_usage); int sigaction(int sig, const struct sigaction *act, struct sigaction *oact); sighandler_t
signal(int sig, sighandler_t func); int sigprocmask(int how, const sigset_t *set, sigset_t *oset); int
uname(struct utsname *name);
";

/// All of them.
pub fn library() -> &'static Prototypes {
    static ALL: OnceLock<Prototypes> = OnceLock::new();
    ALL.get_or_init(|| Prototypes::parse(&text()).expect("a test reads it"))
}

/// Their declarations.
fn text() -> String {
    let named = |of: &str, end: &str| {
        let declarations = OF_NUMBERS.split(';').filter(|declaration| declaration.contains('('));
        declarations.fold(String::new(), |all, declaration| {
            let (head, parameters) = declaration.split_once('(').unwrap_or((declaration, ""));
            all + &format!("{head}{end}({parameters};").replace("double", of)
        })
    };
    let (double, float, long) = (named("double", ""), named("float", "f"), named("long double", "l"));
    format!("{TYPES} {double} {float} {long} {OTHERS}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::signature::{Signature, Type};

    /// What values are passed as: the GNU C library has enumerations where POSIX has `int`.
    fn shape(signature: &Signature) -> (Vec<Type>, Type, bool) {
        let plain = |kind: &Type| match kind {
            Type::Enum(of) => Type::Integer { bytes: of.bytes, is_signed: of.is_signed },
            other => other.without_pointees(),
        };
        let parameters = signature.parameters.iter().map(|p| plain(&p.kind)).collect();
        (parameters, plain(&signature.result), signature.is_variadic)
    }

    /// This machine's headers declare each of them, and so.
    #[test]
    fn they_are_what_headers_declare() {
        const HEADERS: &[&str] = &[
            "complex.h",
            "ctype.h",
            "dirent.h",
            "dlfcn.h",
            "fcntl.h",
            "malloc.h",
            "math.h",
            "poll.h",
            "pthread.h",
            "sched.h",
            "semaphore.h",
            "signal.h",
            "stdio.h",
            "stdlib.h",
            "string.h",
            "strings.h",
            "sys/epoll.h",
            "sys/eventfd.h",
            "sys/file.h",
            "sys/ioctl.h",
            "sys/mman.h",
            "sys/random.h",
            "sys/resource.h",
            "sys/sendfile.h",
            "sys/socket.h",
            "sys/stat.h",
            "sys/time.h",
            "sys/uio.h",
            "sys/utsname.h",
            "sys/wait.h",
            "time.h",
            "unistd.h",
            "wchar.h",
        ];
        let place = tempfile::tempdir().expect("a folder for the test's files");
        let path = place.path().join("all.h");
        let all: String = HEADERS.iter().map(|name| format!("#include <{name}>\n")).collect();
        std::fs::write(&path, all).expect("the folder can be written");
        let headers = Prototypes::load_header(&path).expect("the compiler is there");
        let wrong: Vec<String> = library()
            .functions
            .iter()
            .filter_map(|ours| {
                let ours = &ours.signature;
                match headers.function(&ours.name) {
                    Some(theirs) if shape(theirs) == shape(ours) => None,
                    Some(theirs) => Some(format!("{ours}, not {theirs}")),
                    None => Some(format!("{} is nowhere", ours.name)),
                }
            })
            .collect();
        assert_eq!(wrong, Vec::<String>::new());
        assert!(library().functions.len() > 400, "{}", library().functions.len());
    }
}

// Programs of every kind for kinds.sh: argv[1] says which. Each counts what its `work` does, in memory that
// its children share, and prints that at the end; all else it prints must be the same when it is counted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
extern char **environ;
static unsigned long *n_runs;
static const char *folder;

__attribute__((noinline)) static void work(unsigned long n) {
  for (unsigned long i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
  __atomic_fetch_add(n_runs, n, __ATOMIC_RELAXED);
}
static void fail(const char *what) { printf("%s: %s\n", what, strerror(errno)); fflush(stdout); _exit(50); }
static void *worker(void *arg) { work((unsigned long)arg); return 0; }
static void threads(int n, unsigned long each) {
  pthread_t all[64];
  for (int i = 0; i < n; i++) if ((errno = pthread_create(&all[i], 0, worker, (void *)each))) fail("pthread_create");
  for (int i = 0; i < n; i++) pthread_join(all[i], 0);
}
static void child(unsigned long n) {
  pid_t pid = fork();
  int status;
  if (pid < 0) fail("fork");
  if (pid == 0) { work(n); threads(2, n); _exit(0); }
  if (waitpid(pid, &status, 0) != pid || status) { printf("child: %x\n", status); _exit(51); }
}

// --- processes
static void is_vfork(void) {
  for (int i = 0; i < 100; i++) {
    pid_t pid = vfork();
    if (pid == 0) { work(10); _exit(i & 1); }
    int status;
    waitpid(pid, &status, 0);
    work(20);
    if (WEXITSTATUS(status) != (i & 1)) fail("status");
  }
}
static void is_spawn(void) {
  for (int i = 0; i < 20; i++) {
    pid_t pid; int status;
    char *args[] = {"true", 0};
    if (posix_spawnp(&pid, "true", 0, 0, args, environ)) fail("spawn");
    waitpid(pid, &status, 0);
    work(10);
  }
  printf("%d %d\n", system("exit 3"), system("kill -9 $$"));
}
static void is_daemon(void) {
  int ends[2];
  if (pipe(ends)) fail("pipe");
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      if (chdir("/")) _exit(1);
      for (int i = 0; i < 3; i++) if (open("/dev/null", O_RDWR) < 0) _exit(1);
      work(1000);
      threads(3, 100);
      child(500);
      pid_t own = getpid();
      if (write(ends[1], &own, sizeof own) != sizeof own) _exit(1);
      close(0), close(1), close(2);
      _exit(0);
    }
    _exit(0);
  }
  int status; pid_t last;
  wait(&status);
  work(100);
  if (read(ends[0], &last, sizeof last) != sizeof last) fail("read");
  /* It has said that it ends, and may not have by now. */
  for (int i = 0; i < 5000 && !kill(last, 0); i++) usleep(1000);
}
static void is_chroot(void) {
  if (mkdir("empty", 0700) && errno != EEXIST) fail("mkdir");
  if (chroot("empty") || chdir("/")) fail("chroot");
  work(1000);
  threads(8, 1000);
  child(1000);
}
// --- libraries
static void call(void *library, int n) {
  void (*f)(unsigned long *, int) = (void (*)(unsigned long *, int))dlsym(library, "plugin_work");
  if (!f) fail("dlsym");
  f(n_runs, n);
}
static void *again(void *path) {
  for (int i = 0; i < 10; i++) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { printf("%s\n", dlerror()); _exit(52); }
    call(library, 100);
    dlclose(library);
  }
  return 0;
}
static void is_dlopen(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plugin.so", folder);
  again(path);
  pthread_t all[4];
  for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, again, path);
  for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
  if (fork() == 0) { again(path); fflush(stdout); _exit(0); }
  int status;
  wait(&status);
  printf("%d\n", status);
}
static void is_dlmopen(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plugin.so", folder);
  void *all[6];
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < 6; i++) {
      all[i] = i ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, RTLD_NOW);
      if (!all[i]) { printf("%s\n", dlerror()); _exit(52); }
      call(all[i], 100);
    }
    for (int i = 0; i < 6; i++) call(all[i], 10), dlclose(all[i]);
  }
}
static void is_preloaded(void) {
  void (*f)(unsigned long *, int) = (void (*)(unsigned long *, int))dlsym(RTLD_DEFAULT, "plugin_work");
  if (f) f(n_runs, 1000);
  else printf("nothing is preloaded\n");
}
// --- limits
static void is_limited(void) {
  struct rlimit limit;
  for (int which = 0; which < RLIM_NLIMITS; which++) {
    if (getrlimit(which, &limit)) fail("getrlimit");
    printf("%d %lx %lx\n", which, (long)limit.rlim_cur, (long)limit.rlim_max);
  }
  work(1000);
  threads(3, 1000);
  child(1000);
}
static void is_limiting(void) {
  struct rlimit limit = {300 << 20, 300 << 20};
  work(1000);
  if (setrlimit(RLIMIT_AS, &limit)) fail("setrlimit");
  for (int i = 0; i < 100; i++) { void *p = malloc(1 << 20); if (!p) fail("malloc"); memset(p, 1, 1 << 20); }
  threads(8, 1000);
  child(1000);
}
static void is_writing(void) {
  int fd = open("written", O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (fd < 0) fail("open");
  char page[4096] = "";
  signal(SIGXFSZ, SIG_IGN);
  for (int i = 0; i < 100; i++) {
    work(100);
    if (write(fd, page, sizeof page) != sizeof page) { printf("page %d: %s\n", i, strerror(errno)); break; }
  }
  threads(2, 100);
}
static void on_cpu(int signal) { (void)signal; if (write(1, "time is up\n", 11) != 11) _exit(1); _exit(9); }
static void is_cpu(void) {
  struct rlimit limit = {1, 2};
  signal(SIGXCPU, on_cpu);
  setrlimit(RLIMIT_CPU, &limit);
  for (;;) { for (volatile int i = 0; i < 1000; i++) ; }
}
static void *waits(void *barrier) { work(100); pthread_barrier_wait(barrier); work(100); return 0; }
static void is_many(void) {
  enum { N = 2000 };
  static pthread_t all[N];
  pthread_barrier_t barrier;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 64 << 10);
  pthread_barrier_init(&barrier, 0, N + 1);
  for (int i = 0; i < N; i++) if ((errno = pthread_create(&all[i], &attr, waits, &barrier))) fail("pthread_create");
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < N; i++) pthread_join(all[i], 0);
}
static void is_pinned(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  printf("%d\n", CPU_COUNT(&set));
  threads(4, 1000);
}
static void is_personal(void) {
  printf("%x\n", personality(0xffffffff));
  static const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3};
  if (personality(0xffffffff) & READ_IMPLIES_EXEC) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, code, sizeof code);
    printf("%d\n", ((int (*)(void))p)());
  }
  work(1000);
  threads(4, 1000);
  child(1000);
}
// --- seccomp
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void filter(struct sock_filter *rules, unsigned short n) {
  struct sock_fprog program = {n, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}
static void is_strict(void) {
  fflush(stdout);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) fail("strict");
  work(1000);
  char line[64];
  int n = snprintf(line, sizeof line, "runs %lu\n", *n_runs);
  if (write(1, line, n) != n) syscall(SYS_exit, 1);
  syscall(SYS_exit, 7);
}
// What glibc's malloc, threads and processes need, and little more.
static void is_filtered(void) {
  struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_write), ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mprotect), ALLOW(SYS_madvise), ALLOW(SYS_mremap),
    ALLOW(SYS_futex), ALLOW(SYS_clone3), ALLOW(SYS_clone), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq), ALLOW(SYS_rt_sigprocmask),
    ALLOW(SYS_rt_sigaction), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_wait4), ALLOW(SYS_brk), ALLOW(SYS_newfstatat), ALLOW(SYS_set_tid_address),
    ALLOW(SYS_getpid), ALLOW(SYS_getppid), // not of glibc
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  threads(1, 10); // glibc loads what it needs
  filter(rules, sizeof rules / sizeof *rules);
  work(1000);
  threads(4, 1000);
  child(1000);
}
// --- signals
static volatile sig_atomic_t n_signals;
static sigjmp_buf back;
static void counts(int signal) { (void)signal; n_signals++; work(3); }
static void often(int microseconds) {
  struct itimerval time = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &time, 0);
}
static void is_storm(void) {
  struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART | SA_NODEFER};
  sigaction(SIGALRM, &action, 0);
  sigaction(SIGUSR1, &action, 0);
  often(100);
  for (int i = 0; i < 2000; i++) { work(1000); if (i % 10 == 0) raise(SIGUSR1); if (i % 50 == 0) threads(3, 1000); }
  often(0);
}
static void is_altstack(void) {
  stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
  if (sigaltstack(&stack, 0)) fail("sigaltstack");
  struct sigaction action = {.sa_handler = counts, .sa_flags = SA_ONSTACK};
  sigaction(SIGALRM, &action, 0);
  often(200);
  for (int i = 0; i < 1000; i++) work(1000);
  while (n_signals < 20) work(100);
  often(0);
}
static void jumps(int signal) { (void)signal; n_signals++; siglongjmp(back, 1); }
static void is_longjmp(void) {
  struct sigaction action = {.sa_handler = jumps, .sa_flags = SA_NODEFER};
  sigaction(SIGALRM, &action, 0);
  for (int i = 0; i < 200; i++) {
    struct itimerval once = {{0, 0}, {0, 300}};
    if (sigsetjmp(back, 1) == 0) { setitimer(ITIMER_REAL, &once, 0); for (;;) __asm__ volatile("" ::: "memory"); }
    work(100);
  }
  printf("%d\n", (int)n_signals);
}
static void steps_over(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  ucontext_t *at = context;
  // mov (%rdi),%eax has two bytes; or it is somewhere else.
  at->uc_mcontext.gregs[REG_RIP] += 2;
  at->uc_mcontext.gregs[REG_RAX] = 42;
  n_signals++;
}
__attribute__((noinline)) static int reads(int *p) {
  int got;
  __asm__ volatile("movl (%%rdi), %%eax" : "=a"(got) : "D"(p));
  return got;
}
static void is_context(void) {
  struct sigaction action = {.sa_sigaction = steps_over, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  int n = 0;
  for (int i = 0; i < 1000; i++) { n += reads((int *)8); work(10); }
  printf("%d %d\n", n, (int)n_signals);
}
static void faults(int signal) { (void)signal; n_signals++; siglongjmp(back, 1); }
static void is_fault(void) {
  struct sigaction action = {.sa_handler = faults};
  sigaction(SIGSEGV, &action, 0);
  for (int i = 0; i < 1000; i++) if (sigsetjmp(back, 1) == 0) reads((int *)16); else work(10);
  printf("%d\n", (int)n_signals);
}
static void *interrupts(void *arg) {
  for (int i = 0; i < 200; i++) { usleep(500); pthread_kill(*(pthread_t *)arg, SIGUSR1); work(10); }
  return 0;
}
static void is_restart(void) {
  int ends[2];
  char c;
  if (pipe(ends)) fail("pipe");
  struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  pthread_t us = pthread_self(), other;
  pid_t pid = fork();
  if (pid == 0) { usleep(200000); if (write(ends[1], "x", 1) != 1) _exit(1); _exit(0); }
  pthread_create(&other, 0, interrupts, &us);
  long n = read(ends[0], &c, 1);
  printf("%ld %c\n", n, c);
  pthread_join(other, 0);
  while (waitpid(pid, 0, 0) < 0) {}
}
static ucontext_t contexts[3];
static void coroutine(int n) {
  for (int i = 0; i < 500; i++) { work(10); swapcontext(&contexts[n], &contexts[n == 1 ? 2 : 1]); }
}
static void is_swap(void) {
  for (int i = 1; i < 3; i++) {
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = malloc(1 << 16);
    contexts[i].uc_stack.ss_size = 1 << 16;
    contexts[i].uc_link = &contexts[0];
    makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
  }
  swapcontext(&contexts[0], &contexts[1]);
}
static void is_pthreads(void) { work(1000); threads(32, 1000); child(1000); }
static void is_slow(void) { for (int i = 0; i < 40; i++) { work(1000); threads(1, 100); usleep(50000); } }

static const struct { const char *name; void (*run)(void); } kinds[] = {
  {"vfork", is_vfork}, {"spawn", is_spawn}, {"daemon", is_daemon}, {"chroot", is_chroot}, {"dlopen", is_dlopen}, {"dlmopen", is_dlmopen},
  {"preloaded", is_preloaded}, {"limited", is_limited}, {"limiting", is_limiting}, {"writing", is_writing}, {"cpu", is_cpu}, {"many", is_many}, {"pinned", is_pinned},
  {"personal", is_personal}, {"strict", is_strict}, {"filtered", is_filtered}, {"storm", is_storm}, {"altstack", is_altstack},
  {"longjmp", is_longjmp}, {"context", is_context}, {"fault", is_fault}, {"restart", is_restart}, {"swap", is_swap},
  {"threads", is_pthreads}, {"slow", is_slow},
};

int main(int argc, char **argv) {
  n_runs = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  folder = getenv("KINDS") ? getenv("KINDS") : ".";
  for (unsigned i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(argv[1], kinds[i].name)) continue;
    kinds[i].run();
    printf("runs %lu\n", *n_runs);
    return fflush(stdout) ? 1 : 5;
  }
  return 99;
}

/* Three threads that loop, call, switch, recurse, throw away frames, and take signals, until somebody
   ends the process. Behind random.py's prelude: P is a counter of its own. */
static volatile ul turns;
static ul (*volatile through[4])(ul);
static sigjmp_buf back_to;
__attribute__((noinline)) static ul leaf(ul x) { P;
  if (x & 1) { P; return x * 3; }
  P; return x >> 1; }
__attribute__((noinline)) static ul deep(ul x) { P;
  if (x & 7) { P; x = deep(x - 1) + 1;
    Q; }
  P; return leaf(x); }
__attribute__((noinline)) static ul choose(ul x) { P;
  switch (x % 9) {
    case 0: P; x += 5; break;
    case 1: P; x ^= 77;
    case 2: P; x *= 3; break;
    case 3: P; return x;
    case 5: P; x -= 9; break;
    case 6: P; x = leaf(x);
      Q; break;
    case 8: P; x++; break; }
  P; return x + 1; }
__attribute__((noinline)) static ul loops(ul x) { ul s = 0; P;
  for (ul i = 0; i < (x & 15); i++) { P;
    if ((x >> i & 3) == 2) { P; continue; }
    P;
    for (ul j = i; j > 0; j >>= 1) { P;
      if (j & x) { P; s += j; } else if (s > 1000 && (s & 5)) { P; s ^= j; }
      PV(s); }
    if (s == 12345) { P; break; }
    P; }
  P; return s; }
__attribute__((noinline)) static ul dot(ul x) { ul s = x; P;
  for (ul i = 0; i < 400; i++) { s = MIX(s); PV(s); }
  P; return s; }
__attribute__((noinline)) static void leaps(ul x) { P;
  if (x & 1) { P; siglongjmp(back_to, 1); }
  P; }
static void on_signal(int s) { P; sink += s; }
static void *worker(void *p) { ul x = (ul)p; P;
  for (;;) { P; x = MIX(x);
    ul t = through[x >> 60 & 3](x >> 33);
    Q; x += t + loops(x >> 20);
    Q; if ((x & 15) == 3) { P; x += dot(x);
      Q; }
    P; turns++; }
  return 0; }
int main(int argc, char **argv) { ul x = 7, n = 0; P; (void)argc;
  through[0] = leaf; through[1] = deep; through[2] = choose; through[3] = dot;
  int n_threads = atoi(argv[1]), ends_in = atoi(argv[2]);
  Q; for (int i = 0; i < n_threads; i++) { pthread_t t; P; pthread_create(&t, 0, worker, (void *)(ul)i);
    Q; }
  P; signal(SIGUSR1, on_signal);
  Q; write(1, "", 1);
  Q; for (;;) { P; x = MIX(x);
    if (!sigsetjmp(back_to, 1)) { P; leaps(x >> 40);
      Q; }
    Q; sink += choose(x >> 13) + loops(x >> 7);
    Q; if ((x >> 20 & 255) == 9) { P; raise(SIGUSR1);
      Q; }
    P;
    if (ends_in && ++n == ends_in) { P;
      switch (argv[3][0]) {
        case 'e': P; exit(3);
        case '_': P; _exit(4);
        case 'g': P; syscall(SYS_exit_group, 5);
        case 'r': P; return 6;
        case 'a': P; abort();
        case 's': P; *(volatile int *)n = 1; }
      Q; }
    P; } }

/* Engraft: processes that run on x86-64 Linux, sampled, measured and changed while they run.
 *
 * Made from the crate `capi`, whose test says how to make it again; do not change it by hand.
 *
 * A process is opened by `engraft_open`; what is made of it by the functions that take a pointer to a handle
 * is freed by the `_free` of its kind, in any order, and once. A handle does not change: several threads may
 * use it at once, but for the one that frees it. Where a handle is NULL that must not be, that is an error,
 * not a crash; every other pointer must be what it is said to be.
 *
 * A function that can fail returns a status, 0 if it is done; the others return 0 or NULL where they have
 * nothing. Of the last failure in the same thread, `engraft_last_error` has the text. Texts are UTF-8, and
 * those that are returned are the library's. What was to be made is NULL after a failure, so that all may be
 * freed. The process is as it was after a failure, unless that says otherwise.
 *
 * The library reads no environment, and prints nothing, unless it finds a mistake of its own. It has threads,
 * which do nothing between calls: do not call it in a child of `fork` whose parent has called it. Who ends a
 * program that is in `engraft_calls_measure` or `engraft_watch` leaves code of ours in the process: `engraft
 * rescue PID` takes it out.
 */

#ifndef ENGRAFT_H
#define ENGRAFT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * What came of a call.
 */
typedef enum {
  /**
   * It is done.
   */
  ENGRAFT_STATUS_OK = 0,
  /**
   * A pointer is NULL that must not be, or a number is out of its range.
   */
  ENGRAFT_STATUS_ARGUMENT = 1,
  /**
   * A text is not UTF-8.
   */
  ENGRAFT_STATUS_TEXT = 2,
  /**
   * There is no such process, or no more.
   */
  ENGRAFT_STATUS_GONE = 3,
  /**
   * The process has no such function or place.
   */
  ENGRAFT_STATUS_NOT_FOUND = 4,
  /**
   * The kernel, the process, or its code does not allow it. The process is as it was.
   */
  ENGRAFT_STATUS_REFUSED = 5,
  /**
   * A file cannot be read, written or used.
   */
  ENGRAFT_STATUS_FILE = 6,
  /**
   * Nothing came: no sample, or no call.
   */
  ENGRAFT_STATUS_NOTHING = 7,
  /**
   * It is done but for a part: something of ours is still in the process.
   */
  ENGRAFT_STATUS_LEFT = 8,
  /**
   * A mistake of the library itself.
   */
  ENGRAFT_STATUS_INTERNAL = 9,
} engraft_status;

/**
 * What calls of a function took.
 */
typedef struct engraft_calls engraft_calls;

/**
 * The control flow graph of a function.
 */
typedef struct engraft_cfg engraft_cfg;

/**
 * A function of a process, and the module that has it.
 */
typedef struct engraft_function engraft_function;

/**
 * A process, as a client has it: its functions keep it.
 */
typedef struct engraft_process engraft_process;

/**
 * What was sampled of a process.
 */
typedef struct engraft_profile engraft_profile;

/**
 * What stands in for functions of a process.
 */
typedef struct engraft_replacements engraft_replacements;

/**
 * Code that may stand in for a function. It is in no process yet.
 */
typedef struct engraft_code engraft_code;

/**
 * A block: straight-line code that is entered at its start. A call does not end it.
 */
typedef struct {
  /**
   * Its first byte, an address in the process.
   */
  uint64_t address;
  /**
   * Its length in bytes.
   */
  uint32_t len_bytes;
  /**
   * How many instructions it has.
   */
  uint32_t n_instructions;
  /**
   * In how many loops it lies.
   */
  uint32_t loop_depth;
} engraft_block;

/**
 * A way from one block to another.
 */
typedef struct {
  /**
   * The number of the block that it leaves.
   */
  uint32_t from;
  /**
   * The number of the block that it leads to.
   */
  uint32_t to;
} engraft_edge;

/**
 * A loop.
 */
typedef struct {
  /**
   * The number of its first block.
   */
  uint32_t header;
  /**
   * How many blocks it has, those of the loops in it included.
   */
  uint32_t n_blocks;
  /**
   * How deep it lies: 1 for an outermost one.
   */
  uint32_t depth;
  /**
   * The number of the loop around it, -1 if there is none.
   */
  int32_t parent;
} engraft_loop;

/**
 * What a call took.
 */
typedef struct {
  /**
   * The thread that made it: from 1, in the order in which threads were first seen.
   */
  uint32_t thread;
  /**
   * Instructions, exactly, those of all that it called included; without the kernel's.
   */
  uint64_t instructions;
  /**
   * Cycles of the core, estimated from the time stamp counter.
   */
  double cycles;
  /**
   * By how much `cycles` may be wrong: two standard deviations.
   */
  double cycles_error;
  /**
   * Instructions a cycle; not a number, where the cycles may be none for all that is known.
   */
  double ipc;
} engraft_call;

/**
 * Control came by at a point.
 */
typedef struct {
  /**
   * The number of the place, from 0, as they were given.
   */
  size_t place;
  /**
   * The thread: from 1, in the order in which threads were first seen.
   */
  uint32_t thread;
  /**
   * What the registers held, each in a word; those of over 8 bytes in several. They stay as long as the
   * callback runs.
   */
  const uint64_t *values;
  /**
   * How many words these are.
   */
  size_t n_values;
} engraft_passing;

/**
 * What is called for each passing, in the thread that has called `engraft_watch`, with the `data` that was
 * given there. It returns whether it wants more. It returns, and is left neither by an exception nor by
 * `longjmp`.
 */
typedef bool (*engraft_callback)(const engraft_passing *passing, void *data);

/**
 * What stands in for a function. Texts stay until the list is freed.
 */
typedef struct {
  /**
   * The function's name.
   */
  const char *function;
  /**
   * What stands in for it: a file and a function of it, or machine code.
   */
  const char *with;
  /**
   * Where that is entered, an address in the process.
   */
  uint64_t entered_at;
  /**
   * Where the function itself is now, an address in the process.
   */
  uint64_t original;
} engraft_replacement;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Samples all threads of the process for `duration_ms`, `hertz` times a second of the time that each is on a
 * processor. Nothing is stopped or changed. The call takes that long.
 *
 * ENGRAFT_STATUS_REFUSED: the kernel does not let us. ENGRAFT_STATUS_ARGUMENT: a number is 0, or the kernel
 * samples less often.
 */
engraft_status engraft_profile_take(const engraft_process *process,
                                    uint32_t duration_ms,
                                    uint32_t hertz,
                                    engraft_profile **profile);

/**
 * How many samples there are; 0 if `profile` is NULL.
 */
uint64_t engraft_profile_n_samples(const engraft_profile *profile);

/**
 * The instruction at which threads were most often, an address in the process; 0 if there is no sample in
 * code of a file, or `profile` is NULL.
 */
uint64_t engraft_profile_most_frequent(const engraft_profile *profile);

/**
 * Frees it, if it is not NULL.
 */
void engraft_profile_free(engraft_profile *profile);

/**
 * The control flow graph of a function, and its loops. Blocks are numbered by address, loops each behind the
 * one that it lies in.
 */
engraft_status engraft_cfg_build(const engraft_function *function, engraft_cfg **cfg);

/**
 * How many blocks it has; 0 if `cfg` is NULL.
 */
size_t engraft_cfg_n_blocks(const engraft_cfg *cfg);

/**
 * How many edges it has; 0 if `cfg` is NULL.
 */
size_t engraft_cfg_n_edges(const engraft_cfg *cfg);

/**
 * How many loops it has; 0 if `cfg` is NULL.
 */
size_t engraft_cfg_n_loops(const engraft_cfg *cfg);

/**
 * Block `n`, from 0.
 *
 * ENGRAFT_STATUS_ARGUMENT: it has not so many.
 */
engraft_status engraft_cfg_block(const engraft_cfg *cfg, size_t n, engraft_block *block);

/**
 * Edge `n`, from 0; edges are sorted by the block that they leave.
 *
 * ENGRAFT_STATUS_ARGUMENT: it has not so many.
 */
engraft_status engraft_cfg_edge(const engraft_cfg *cfg, size_t n, engraft_edge *edge);

/**
 * Loop `n`, from 0.
 *
 * ENGRAFT_STATUS_ARGUMENT: it has not so many.
 */
engraft_status engraft_cfg_loop(const engraft_cfg *cfg, size_t n, engraft_loop *found);

/**
 * Frees it, if it is not NULL.
 */
void engraft_cfg_free(engraft_cfg *cfg);

/**
 * Measures `n` calls of a function, as many as come back within `at_most_ms`, which is given twice: first
 * calls are timed, then instructions are counted. Meanwhile the process runs code that was moved; it is
 * given back as it was. Of functions that share a symbol, calls of all are measured.
 *
 * ENGRAFT_STATUS_NOTHING: none came back. ENGRAFT_STATUS_REFUSED: they cannot be seen, or the process cannot
 * be attached to. ENGRAFT_STATUS_FILE: no temporary folder can be made. ENGRAFT_STATUS_LEFT: it was not
 * given back (`engraft rescue PID` tries again).
 */
engraft_status engraft_calls_measure(const engraft_function *function,
                                     size_t n,
                                     uint32_t at_most_ms,
                                     engraft_calls **calls);

/**
 * How many calls were measured; 0 if `calls` is NULL.
 */
size_t engraft_calls_n(const engraft_calls *calls);

/**
 * Call `n`, from 0, in the order in which they came back.
 *
 * ENGRAFT_STATUS_ARGUMENT: there are not so many.
 */
engraft_status engraft_calls_get(const engraft_calls *calls, size_t n, engraft_call *call);

/**
 * Instructions a cycle of call `n`; 0 if there is none.
 */
double engraft_calls_ipc(const engraft_calls *calls, size_t n);

/**
 * Frees them, if they are not NULL.
 */
void engraft_calls_free(engraft_calls *calls);

/**
 * Tells `callback` each time that the process comes by at one of `n_places` places, until it has enough,
 * `at_most_ms` is over, or the process has ended; then gives the process back as it was. A place is as in
 * `engraft values --at`: a function (its entry), `FUNCTION+OFFSET` (an instruction), an address in the
 * executable, or `MODULE!ADDRESS`. `registers` are those whose values are told, such as "rdi, rsi:u32,
 * xmm0:f64"; NULL for none. How often `callback` was called goes to `n_told`, if that is not NULL.
 *
 * There is no trap at the point, and nothing stops there: the process goes on while `callback` is told, of
 * each thread's passings in their order. Threads wait only where they are too far ahead of it. There is no
 * way yet to have a thread wait at the point for what `callback` says.
 *
 * ENGRAFT_STATUS_NOT_FOUND: a place is not there. ENGRAFT_STATUS_REFUSED: the process cannot be attached to.
 * ENGRAFT_STATUS_FILE: no temporary folder can be made. ENGRAFT_STATUS_LEFT: it was not given back (`engraft
 * rescue PID` tries again), or passings were lost.
 */
engraft_status engraft_watch(const engraft_process *process,
                             const char *const *places,
                             size_t n_places,
                             const char *registers,
                             uint32_t at_most_ms,
                             engraft_callback callback,
                             void *data,
                             uint64_t *n_told);

/**
 * Opens process `pid`, which goes on: nothing is done to it yet. What measurements need for a while goes to
 * folders in `temporary`, or in /tmp if that is NULL, and is removed when they are over.
 *
 * ENGRAFT_STATUS_GONE: there is no such process. ENGRAFT_STATUS_REFUSED: it may not be looked at. Whether it
 * can be attached to is seen when that is needed.
 */
engraft_status engraft_open(int32_t pid, const char *temporary, engraft_process **process);

/**
 * Closes it; functions of it may still be used. What stands in for functions of the process stays there.
 */
void engraft_close(engraft_process *process);

/**
 * The function that has the instruction at `address`, an address in the process such as
 * `engraft_profile_most_frequent` gives.
 *
 * ENGRAFT_STATUS_NOT_FOUND: there is no code of a file, or none that was understood. While a function of a
 * file is replaced, the process has a copy in place of all code of that file: nothing is found there then.
 */
engraft_status engraft_function_at(const engraft_process *process,
                                   uint64_t address,
                                   engraft_function **function);

/**
 * The function whose symbol is `name`: one of the executable, else the one that the process uses under that
 * name, else one of a library. `MODULE!NAME` means one of that file, such as `libm.so.6!exp`.
 *
 * ENGRAFT_STATUS_NOT_FOUND: there is none.
 */
engraft_status engraft_function_named(const engraft_process *process,
                                      const char *name,
                                      engraft_function **function);

/**
 * Its symbol, or `fn_` and its address in its file if it has none. It stays until the function is freed.
 * NULL if `function` is.
 */
const char *engraft_function_name(const engraft_function *function);

/**
 * The address of its entry in the process; 0 if `function` is NULL.
 */
uint64_t engraft_function_address(const engraft_function *function);

/**
 * The address of its entry in its file, as `objdump` shows it; 0 if `function` is NULL.
 */
uint64_t engraft_function_address_in_file(const engraft_function *function);

/**
 * Frees it, if it is not NULL.
 */
void engraft_function_free(engraft_function *function);

/**
 * Code that may stand in for a function: `len` bytes of position-independent machine code, which is entered
 * at its first byte and returns as a function does. They are copied.
 */
engraft_status engraft_code_of_bytes(const uint8_t *bytes, size_t len, engraft_code **code);

/**
 * The same of the function `symbol` of the shared object at `path`.
 *
 * ENGRAFT_STATUS_FILE: it cannot be read or used, or defines no such function.
 */
engraft_status engraft_code_of_library(const char *path, const char *symbol, engraft_code **code);

/**
 * Frees it, if it is not NULL. Where it stands in for a function, it stays.
 */
void engraft_code_free(engraft_code *code);

/**
 * Has `code` stand in for a function from now on, also when this program has ended; calls that are in
 * progress end in the old code. Where it is entered goes to `entered_at`, if that is not NULL. One function
 * of a process may be replaced at a time: `engraft_undo` makes room for another one.
 *
 * ENGRAFT_STATUS_REFUSED: the function, or the process, does not allow it, and is as it was.
 */
engraft_status engraft_replace(const engraft_function *function,
                               const engraft_code *code,
                               uint64_t *entered_at);

/**
 * Takes back what stands in for a function of the process: it runs its own code again.
 *
 * ENGRAFT_STATUS_NOTHING: nothing stands in for one. ENGRAFT_STATUS_LEFT: it is taken back, and the new code
 * is still in the process, because somebody may need it.
 */
engraft_status engraft_undo(const engraft_process *process);

/**
 * Lists what stands in for functions of the process, whoever has put it there.
 */
engraft_status engraft_replacements_list(const engraft_process *process, engraft_replacements **replacements);

/**
 * How many there are; 0 if `replacements` is NULL.
 */
size_t engraft_replacements_n(const engraft_replacements *replacements);

/**
 * Number `n` of them, from 0.
 *
 * ENGRAFT_STATUS_ARGUMENT: there are not so many.
 */
engraft_status engraft_replacements_get(const engraft_replacements *replacements,
                                        size_t n,
                                        engraft_replacement *replacement);

/**
 * Frees the list, if it is not NULL.
 */
void engraft_replacements_free(engraft_replacements *replacements);

/**
 * What was said of the last call in this thread that failed: what was tried and on what, and on a line of
 * its own, behind `hint: `, what can be done. Empty if none has failed. It stays until the next one fails.
 */
const char *engraft_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ENGRAFT_H */

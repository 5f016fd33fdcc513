//! The code of ours that runs inside the program: position-independent, no stack frame but its own, system
//! calls only.
//!
//! Each piece is a run of bytes between two labels; the words at its start are filled in by who copies it.
//!
//! | piece | where | what it does |
//! | --- | --- | --- |
//! | [`Runtime`] (`runtime/*.s`) | behind the moved code of a counted module | gives a thread its area; maps the counters over |
//! | [`open_library`] (`open_library.s`) | beside ld.so, in place of an `openat` | passes on the path of a counted library in place of the plain one |
//! | [`exec_page`] (`exec.s`) | low, in place of an `execve` | tells the launcher, which then takes the new program over before it starts |
//!
//! **Areas.** Every module has a *home* for its counters within reach of its code. Thread k counts at home +
//! dₖ, with dₖ in the base of `gs`, the same for all modules; the first thread has d = 0. A home starts with
//! a page whose last word is the thread pointer of the area's owner. A thread inherits `gs` from the one that
//! made it: so an entry from outside compares the owner with its own thread pointer, and where they differ it
//! comes here. `fork` wipes that page in the child, which so gets an area of its own. Code of a library may
//! run before its DT_INIT, by a thread whose counters of that library are not mapped yet: so its entries
//! first look at a byte that tells whether it has started, and if not, it starts then. The area of a thread
//! that is no more goes to the next one. All areas are ranges of the recording, which several processes may
//! share: an area whose process is gone is given out again, but for those of processes in namespaces of their
//! own, where numbers of processes mean others.
//!
//! **Recordings** are made by a launcher, which maps them before the program starts, or, by a module that
//! carries notes, as a file when it starts by itself. The disk's room for an area is taken before it is
//! mapped. Where none can be had, counts stay in the process, and are lost with it.
//!
//! Invariant: all registers are as they were but those dead at a function's entry (r11, flags), or destroyed
//! by a system call (rax, rcx, r11) where one was about to be made; the red zone is stepped over; no signal
//! is handled while the recording is locked.
//!
//! Source: syscall(2), mremap(2) for mapping a shared range a second time (old size 0), rt_sigprocmask(2) for
//! asking whether one is there; Intel SDM vol. 2B, WRGSBASE.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use program::arch::emit::Position;
use program::arch::{Decoder, Operand, abi};
use program::{Block, Program, Va};
use std::ops::Range;

/// Where a recording is mapped in every process that is counted. No kernel puts anything there by itself.
pub const ARENA: u64 = 0x1f00_0000_0000;
/// First word of a recording.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"ENGRAFT\x02");
/// Offset of the number of modules, 4 bytes.
pub const N_ROWS: u64 = 8;
/// Events: the first page of a thread's memory, all modules together. Offset 0: where the next event goes, an
/// address in the mapping of the recording. Offset of where there is no room for one any more; 0: nothing is
/// recorded.
pub const EVENTS_LIMIT: u64 = 8;
/// Offset of the number of the chunk that is filled.
pub const EVENTS_CHUNK: u64 = 16;
/// Offset of where the first chunk is.
pub const EVENTS_BASE: u64 = 24;
/// Offset of where this page is in the mapping of the recording.
pub const EVENTS_CONTROL: u64 = 32;
/// Offset of where it is said that nobody takes chunks any more: as the kernel says that who held a futex
/// died.
pub const EVENTS_TAKER: u64 = 40;
/// Offset of how often a thread had to wait for a chunk.
pub const EVENTS_STALLS: u64 = 48;
/// Offset of whether events were lost, since nobody takes chunks any more: then they go round in what is left
/// of the page.
pub const EVENTS_LOST: u64 = 56;
/// Offset of 4 bytes a chunk: 1 while it waits to be taken.
pub const EVENTS_FULL: u64 = 64;
/// Offset of the number of the thread that appends, 4 bytes; 0: it is not known.
pub const EVENTS_NUMBER: u64 = EVENTS_FULL + 4 * N_CHUNKS;
/// The event that says that what is entered next is a handler of signals; two words follow: the low half of
/// the key of the module in whose moved code the signal came, and how far from its start, with the bit
/// [`EVENTS_IN_CALL`] set if it came in what the call there led to.
pub const EVENTS_HANDLER: u32 = (1 << 29) - 1;
/// See there.
pub const EVENTS_IN_CALL: u32 = 31;
/// In place of the key: a handler returns to where it changed the context to.
pub const EVENTS_REDIRECTED: u32 = u32::MAX;
/// The event that says that what follows is another thread's, which has the memory of one that is no more.
pub const EVENTS_ANOTHER: u32 = EVENTS_HANDLER - 3;
/// Offset of where events go that are lost.
const EVENTS_NOTHING: u64 = 1024;
/// Length of a chunk of events, and how many a thread has, powers of two.
pub const CHUNK_LEN: u64 = 1 << 19;
/// See there.
pub const N_CHUNKS: u64 = 8;
/// What is left free at the end of a chunk, the longest event.
pub const CHUNK_ROOM: u64 = 16;
/// Offset of the number of areas that are so near to others that a library which comes later may find no room
/// beside them.
pub const N_NEAR: u64 = 120;
/// Offset of the lock, 4 bytes: the number of the process that holds it, or 0.
pub const LOCK: u64 = 12;
/// Offset of the number of areas that were ever in use.
pub const N_AREAS: u64 = 16;
/// Offset of the number of modules there is room for.
pub const MAX_ROWS: u64 = 24;
/// Offset of the number of areas there is room for.
pub const MAX_AREAS: u64 = 32;
/// Offset of the offset of the areas' owners: numbers of processes, 4 bytes each.
pub const OWNERS_AT: u64 = 40;
/// Offset of the offset of the extents: where the counters of module m and area k are, at 8 · (m ·
/// `MAX_AREAS` + k); 0: nowhere yet.
pub const EXTENTS_AT: u64 = 48;
/// Offset of the length of the recording.
pub const END: u64 = 56;
/// Offset of how often counts of several threads had to go to one place, so that some may be lost.
pub const N_SHARED: u64 = 64;
/// Offset of where libraries are asked for: a [`MAILBOX_LEN`] bytes long mailbox; 0: nowhere.
pub const MAILBOX_AT: u64 = 72;
/// Offset of the namespace of processes (its file's number) in which the owners and the lock are what they
/// are called; 0: not known yet.
pub const NAMESPACE: u64 = 80;
/// Offset of the offset of where code was interrupted: [`N_INTERRUPTED`] rows of 16 bytes, the number of the
/// module, from 1, times 2⁴⁰ and where in its moved code; how often handlers of signals that came there have
/// not returned there (less than none: returned more often).
pub const INTERRUPTED_AT: u64 = 88;
/// How many rows that has.
pub const N_INTERRUPTED: u64 = 1024;
/// The bit of that number and offset which says that it is a call behind which it stands that was not to come
/// back.
pub const BEHIND_CALL: u64 = 39;
/// How far from where a function that is known to come back starts that it calls or jumps to is, at most:
/// nearer than another library's code.
pub const NEAR: u32 = 0xc000;
/// How far behind the start of what a call leads to a place is taken for one in it: most functions are
/// shorter. A guess, which costs an interval where it is wrong.
const WITHIN: u32 = 0x800;
/// How large a library with such functions is, at most: glibc's is 2 MB.
const SAME: u32 = 0x20_0000;
/// How far from where it binds slots the dynamic linker's code reaches, at most: glibc's is 0.2 MB.
const LINKER: u32 = 0x4_0000;
/// How far on the stack above where a signal came the call is that led to there: functions that are known to
/// come back need less.
pub const DEEP: u32 = 0x400;
/// The same where the dynamic linker finds such a function first, with all registers on the stack.
const DEEPEST: u32 = 0x1000;
/// Offset of how often there was no row for one.
pub const N_UNKNOWN: u64 = 96;
/// Offset of the offset of what is known of the thread of each area, a byte each: 0 (it has ended, or never
/// was), [`MAY_RUN`], [`HAS_ENDED`], [`ABORTS`] or [`IN_EXIT`].
pub const STATES_AT: u64 = 104;
/// Offset of how many threads may have been stopped in the middle of a block besides those in [`MAY_RUN`]:
/// those that were when their areas went to others, and those that let themselves be cancelled anywhere.
pub const N_STOPPED: u64 = 112;
/// A thread that runs, or that nobody saw end.
pub const MAY_RUN: u8 = 1;
/// One that has ended its process, or was about to: at a call, not in the middle of a block.
pub const HAS_ENDED: u8 = 2;
/// One that was about to end its process by SIGABRT: so it did, if that is what the process ended by.
pub const ABORTS: u8 = 3;
/// One that has come to the end of `exit`: after `main` returned, or it was called, be it as a handler of
/// signals.
pub const IN_EXIT: u8 = 4;
/// What is added to the number of a process that is in another one: whether it is gone nobody else can tell.
pub const IS_APART: u32 = 1 << 30;
/// With fewer areas than these, a new one is taken before anybody is asked whether he is there still, which
/// filters may forbid.
const FEW_AREAS: u64 = 64;
/// Length of all this.
pub const HEADER_LEN: u64 = 128;
/// Where the table of modules starts: key (16 bytes), length of the counters in bytes (whole pages), offset
/// and length of the notes.
pub const ROWS_AT: u64 = HEADER_LEN;
/// Bytes a row of that table.
pub const ROW_LEN: u64 = 64;

/// Where a process keeps what concerns only itself. In its first page, which `fork` wipes, is its number,
/// then what it is called in the recording.
pub const OWN: u64 = ARENA - 0x20_0000;
/// Offset there of the number of threads with an area.
pub const N_THREADS: u64 = 0x1000;
/// Offset there of how many distances have been tried.
pub const N_TRIED: u64 = 0x1008;
/// Offset there of the length of the recording's path; 0 if it has none and is mapped as a whole.
pub const PATH_LEN: u64 = 0x1010;
/// Offset there of a word that says whether no more areas may be given out.
pub const IS_FULL: u64 = 0x1018;
/// Offset there of that path.
pub const PATH: u64 = 0x1020;
const PATH_MAX: u64 = 4000;
/// Offset there of the thread that was looked at last, for whether it is still there.
const NEXT_THREAD: u64 = 0x1fc8;
/// Offset there of whether this process, or the one that it was forked from, knows what it is called (1), and
/// whether that means something else to others (as in its name).
pub const KIN: u64 = 0x1fd0;
/// Offset there of how much of the recording is mapped, if it has no path.
pub const MAPPED: u64 = 0x1fd8;
/// Offset there of what is to be called when the program ends, but for us.
const AT_END: u64 = 0x1fe0;
/// Offset there of the modules' homes: the home, the address of the module's [`Runtime`], start and end of
/// its moved code, and of its old segments.
pub const HOMES: u64 = 0x2000;
/// Bytes a module there.
pub const HOME_LEN: u64 = 64;
/// Offset there of the threads: thread pointer, distance, number of the area, and 4 bytes each: the thread's
/// number, and how far from its thread pointer that stands as long as it runs, 0 if that is not known.
pub const THREADS: u64 = HOMES + HOME_LEN * Capacity::LAUNCH.n_rows;
const THREAD_LEN: u64 = 32;
/// Where C libraries keep the number of a thread, from its thread pointer: glibc's `struct pthread.tid`,
/// musl's `struct pthread.tid`.
const TID_GLIBC: u64 = 720;
const TID_MUSL: u64 = 48;
/// By which they are known: glibc's `robust_head.futex_offset`, which is always the same; musl's
/// `detach_state`, which is this or one more.
const ROBUST_GLIBC: u64 = 744;
const ROBUST_OFFSET: u32 = (-32i32).cast_unsigned();
const DETACH_MUSL: u64 = 56;
const JOINABLE_MUSL: u64 = 2;
/// Offset in there of what the process is called in the recording; 0: not known yet.
pub const OWN_NAME: u64 = 8;
/// Offset in there of how many children of `vfork` run in this process' memory: four bytes.
const IN_VFORK: u64 = 16;
/// Length of all that.
pub const OWN_LEN: u64 = THREADS + THREAD_LEN * 2048;

/// A home starts with a page of its own, whose last word is the thread pointer of the owner; the counters
/// follow.
pub const HOME_HEAD: u64 = 0x1000;
/// Offset of the owner.
pub const OWNER: u64 = HOME_HEAD - 8;

/// How much the routine for calls through pointers puts on the stack.
const CALLEE_FRAME: u64 = 96;
/// How many slots of a table it looks at for one that is free.
const CALLEE_TRIES: u64 = 256;
/// Words of a site of such calls, and of a slot of the table.
pub const SITE_WORDS: u32 = 3;
/// As said.
pub const SLOT_WORDS: u32 = 4;

/// Length of a mailbox. Four bytes each: whether the launcher has to answer (1); the lock, which is the
/// asking process; nothing; the number of requests so far. Then the path that is asked for and, in its place,
/// the path to be opened, or nothing.
pub const MAILBOX_LEN: u64 = 0x1000;
/// Offset of the path there.
pub const MAILBOX_PATH: u64 = 16;
/// Offset of a lock (futex(2), robust) that the launcher holds while it answers: bit 30 is set when it does
/// so no more.
pub const MAILBOX_OWNER: u64 = 4032;

/// Length of what threads that are about to `exec` say so in: a word that each of them raises, then a slot a
/// thread.
pub const BELL_LEN: u64 = 0x1000;
/// Length of a slot, and of what stands before the first. Four bytes each: the thread, 0 if it is nobody's;
/// whether the launcher has to answer (1); nothing twice. Then eight bytes each: the number of the call, and
/// its first, second and fifth argument.
pub const BELL_SLOT_LEN: u64 = 64;

/// Unwind rules at the return address of a signal's handler, the stack pointer being that of `ucontext_t`:
/// where its registers are.
///
/// Source: glibc 2.36, sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c; sys/ucontext.h; DWARF 5, 6.4.2.
pub struct SignalFrame {
    /// Of the common entry: the factor of data, the column of the return address.
    pub columns: [u8; 2],
    /// DW_CFA_def_cfa_expression: what the stack pointer was.
    pub stack: [u8; 6],
    /// Per register: its column, and where it is in `ucontext_t`.
    pub registers: [(u8, u8); 17],
    /// DW_OP_breg of the stack pointer.
    pub base: u8,
    /// How many bytes they hold for, from one before the return address.
    pub len: u8,
}

/// Those of this processor.
pub const SIGNAL_FRAME: SignalFrame = SignalFrame {
    columns: [0x78, 16],
    stack: [0x0f, 4, 0x77, 0xa0, 0x01, 0x06], // *(rsp + 160)
    registers: [
        (8, 40),
        (9, 48),
        (10, 56),
        (11, 64),
        (12, 72),
        (13, 80),
        (14, 88),
        (15, 96),
        (5, 104),
        (4, 112),
        (6, 120),
        (3, 128),
        (1, 136),
        (0, 144),
        (2, 152),
        (7, 160),
        (16, 168),
    ],
    base: 0x77,
    len: 16,
};

/// Unwind rules of [`Runtime::last`]: of the common entry, with the factor of data and the column of the
/// return address before them; and of itself.
///
/// Source: DWARF 5, 6.4.2.
pub const LAST_FRAME: ([u8; 2], [u8; 5], [u8; 3]) = (
    SIGNAL_FRAME.columns,
    [0x0c, 7, 8, 0x90, 1], // DW_CFA_def_cfa rsp + 8, DW_CFA_offset: rip there - 8
    [0x44, 0x0e, 16],      // DW_CFA_advance_loc 4, DW_CFA_def_cfa_offset 16
);

/// How many modules and areas a recording has room for.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Modules.
    pub n_rows: u64,
    /// Areas, one a thread.
    pub n_areas: u64,
}

impl Capacity {
    /// Of recordings that instrumented files make by themselves.
    pub const FILE: Capacity = Capacity { n_rows: 16, n_areas: 512 };
    /// Of recordings that a launcher makes.
    pub const LAUNCH: Capacity = Capacity { n_rows: 1024, n_areas: 2048 };

    /// Where the owners are.
    pub const fn owners_at(self) -> u64 {
        ROWS_AT + ROW_LEN * self.n_rows
    }
    /// Where the extents are.
    pub const fn extents_at(self) -> u64 {
        (self.owners_at() + 4 * self.n_areas).next_multiple_of(8)
    }
    /// Where it is written down where code was interrupted.
    pub const fn interrupted_at(self) -> u64 {
        (self.extents_at() + 8 * self.n_rows * self.n_areas).next_multiple_of(16)
    }
    /// Where it is written down what is known of each area's thread.
    pub const fn states_at(self) -> u64 {
        self.interrupted_at() + 16 * N_INTERRUPTED
    }
    /// Length of all tables: the counters start there.
    pub const fn head_len(self) -> u64 {
        (self.states_at() + self.n_areas).next_multiple_of(0x1000)
    }
    /// The first [`HEADER_LEN`] bytes of an empty recording.
    pub fn header(self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(HEADER_LEN).expect("small")];
        for (at, word) in [
            (0, ARENA_MAGIC),
            (MAX_ROWS, self.n_rows),
            (MAX_AREAS, self.n_areas),
            (OWNERS_AT, self.owners_at()),
            (EXTENTS_AT, self.extents_at()),
            (INTERRUPTED_AT, self.interrupted_at()),
            (STATES_AT, self.states_at()),
            (END, self.head_len()),
        ] {
            set(&mut bytes, usize::try_from(at).expect("small"), word);
        }
        bytes
    }
}

std::arch::global_asm!(
    include_str!("x86_64/runtime/head.s"),
    include_str!("x86_64/runtime/entry.s"),
    include_str!("x86_64/runtime/exit.s"),
    include_str!("x86_64/runtime/threads.s"),
    include_str!("x86_64/runtime/signals.s"),
    include_str!("x86_64/runtime/interrupted.s"),
    include_str!("x86_64/runtime/chunks.s"),
    include_str!("x86_64/runtime/indirect.s"),
    include_str!("x86_64/runtime/start.s"),
    include_str!("x86_64/runtime/areas.s"),
    include_str!("x86_64/runtime/join.s"),
    include_str!("x86_64/runtime/file.s"),
    arena = const ARENA,
    magic = const ARENA_MAGIC,
    n_rows = const N_ROWS,
    lock = const LOCK,
    n_areas = const N_AREAS,
    max_rows = const MAX_ROWS,
    max_areas = const MAX_AREAS,
    owners_at = const OWNERS_AT,
    extents_at = const EXTENTS_AT,
    end = const END,
    n_shared = const N_SHARED,
    n_near = const N_NEAR,
    namespace = const NAMESPACE,
    interrupted_at = const INTERRUPTED_AT,
    n_interrupted = const N_INTERRUPTED,
    behind_call = const BEHIND_CALL,
    near = const NEAR,
    within = const WITHIN,
    same = const SAME,
    linker = const LINKER,
    deep = const DEEP,
    deepest = const DEEPEST,
    n_unknown = const N_UNKNOWN,
    is_apart = const IS_APART,
    states_at = const STATES_AT,
    n_stopped = const N_STOPPED,
    may_run = const MAY_RUN,
    has_ended = const HAS_ENDED,
    aborts = const ABORTS,
    in_exit = const IN_EXIT,
    at_end = const AT_END,
    tid_glibc = const TID_GLIBC,
    tid_musl = const TID_MUSL,
    robust_glibc = const ROBUST_GLIBC,
    robust_offset = const ROBUST_OFFSET,
    detach_musl = const DETACH_MUSL,
    joinable_musl = const JOINABLE_MUSL,
    in_vfork = const IN_VFORK,
    header_len = const HEADER_LEN,
    rows_at = const ROWS_AT,
    own = const OWN,
    own_len = const OWN_LEN,
    n_threads = const N_THREADS,
    n_tried = const N_TRIED,
    path_len = const PATH_LEN,
    is_full = const IS_FULL,
    next_thread = const NEXT_THREAD,
    kin = const KIN,
    mapped = const MAPPED,
    few_areas = const FEW_AREAS,
    path = const PATH,
    path_max = const PATH_MAX,
    homes = const HOMES,
    threads = const THREADS,
    thread_len = const THREAD_LEN,
    max_threads = const (OWN_LEN - THREADS) / THREAD_LEN,
    callee_frame = const CALLEE_FRAME,
    callee_tries = const CALLEE_TRIES,
    home_head = const HOME_HEAD,
    chunk_len = const CHUNK_LEN,
    n_chunks = const N_CHUNKS,
    chunk_room = const CHUNK_ROOM,
    events_limit = const EVENTS_LIMIT,
    events_chunk = const EVENTS_CHUNK,
    events_base = const EVENTS_BASE,
    events_control = const EVENTS_CONTROL,
    events_taker = const EVENTS_TAKER,
    events_full = const EVENTS_FULL,
    events_stalls = const EVENTS_STALLS,
    handler = const EVENTS_HANDLER,
    in_call = const EVENTS_IN_CALL,
    redirected = const EVENTS_REDIRECTED,
    another = const EVENTS_ANOTHER,
    events_lost = const EVENTS_LOST,
    events_number = const EVENTS_NUMBER,
    events_nothing = const EVENTS_NOTHING,
    events_nothing_len = const 4096 - EVENTS_NOTHING,
    file_head_len = const Capacity::FILE.head_len(),
    variable_1 = const u64::from_le_bytes(*b"ENGRAFT_"),
    variable_2 = const u32::from_le_bytes(*b"OUT="),
);
std::arch::global_asm!(include_str!("x86_64/open_library.s"), own = const OWN);
std::arch::global_asm!(include_str!("x86_64/exec.s"), slot_len = const BELL_SLOT_LEN, len = const BELL_LEN);

unsafe extern "C" {
    static engraft_module: u8;
    static engraft_module_slow: u8;
    static engraft_module_signal: u8;
    static engraft_module_signalled: u8;
    static engraft_module_async: u8;
    static engraft_module_abort: u8;
    static engraft_module_vforked: u8;
    static engraft_module_leave: u8;
    static engraft_module_back: u8;
    static engraft_module_begin: u8;
    static engraft_module_last: u8;
    static engraft_module_last_end: u8;
    static engraft_module_callee: u8;
    static engraft_module_callee_return: u8;
    static engraft_module_callee_saved: u8;
    static engraft_module_callee_end: u8;
    static engraft_module_chunk: u8;
    static engraft_module_start: u8;
    static engraft_module_entry: u8;
    static engraft_module_end: u8;
    static engraft_open_library: u8;
    static engraft_open_library_end: u8;
    static engraft_exec: u8;
    static engraft_execve: u8;
    static engraft_execveat: u8;
    static engraft_exec_end: u8;
}

/// The bytes from `from` to `to`.
fn between(from: *const u8, to: *const u8) -> Vec<u8> {
    let len = to as usize - from as usize;
    // SAFETY: both are labels of one section of the assembly above, in this order: what lies between are its
    // bytes.
    unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
}

fn set(code: &mut [u8], at: usize, word: u64) {
    code[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// What stands behind the moved code of a counted module.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Where it is.
    pub at: Va,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where a thread goes that is not the owner of its area, with r11 telling where to go on.
    pub slow: Va,
    /// Where an entry goes that may be a signal's handler's, with r11 telling where to go on.
    pub signal: Va,
    /// What a signal's handler returns to, if it interrupted moved code.
    pub signalled: Va,
    /// Where a thread goes before a call that ends the process, or makes another program of it, with r11
    /// telling where to go on.
    pub leave: Va,
    /// The same before a call that ends the process by SIGABRT.
    pub abort: Va,
    /// The same behind a call of `vfork`.
    pub vforked: Va,
    /// The same behind such a call that came back.
    pub back: Va,
    /// The same before a call that says whether the thread may be cancelled anywhere.
    pub cancel: Va,
    /// Where an executable goes before its entry point, with r11 telling where to go on.
    pub begin: Va,
    /// What is called when the program ends.
    pub last: Range<Va>,
    /// What counts calls through pointers that do not lead where they led first: the distance from where they
    /// lead to the owner's word in r11, the number of the site's first word on the stack.
    pub callee: Va,
    /// What takes another chunk for events, where the one is full: flags then say zero if there is none.
    pub chunk: Va,
    /// What a library runs in place of DT_INIT.
    pub start: Va,
    /// What an executable that makes a recording by itself runs in place of its entry point.
    pub entry: Va,
}

impl Runtime {
    /// How many bytes it has.
    pub fn len_bytes() -> u64 {
        between(&raw const engraft_module, &raw const engraft_module_end).len() as u64
    }

    /// Placed at `at`, behind the moved code, which starts at `text`, for `len` bytes of counters behind the
    /// head of `home`; `init` is what it goes on with when the module starts, `started` the byte that says
    /// whether it has, for a library, whose code may run before.
    pub fn at(
        at: Va,
        text: Va,
        home: Va,
        len: u64,
        init: Option<Va>,
        key: u128,
        started: Option<Va>,
    ) -> Runtime {
        let from = &raw const engraft_module;
        let place = |label: *const u8| at.plus(label as u64 - from as u64);
        let mut bytes = between(from, &raw const engraft_module_end);
        set(&mut bytes, 0, home.since(at));
        set(&mut bytes, 8, init.map_or(0, |init| init.since(at)));
        set(&mut bytes, 40, len);
        set(&mut bytes, 72, started.map_or(0, |started| started.since(at)));
        set(&mut bytes, 80, text.since(at));
        set(&mut bytes, 104, len);
        let mut runtime = Runtime {
            at,
            bytes,
            slow: place(&raw const engraft_module_slow),
            signal: place(&raw const engraft_module_signal),
            signalled: place(&raw const engraft_module_signalled),
            leave: place(&raw const engraft_module_leave),
            cancel: place(&raw const engraft_module_async),
            vforked: place(&raw const engraft_module_vforked),
            abort: place(&raw const engraft_module_abort),
            back: place(&raw const engraft_module_back),
            begin: place(&raw const engraft_module_begin),
            last: place(&raw const engraft_module_last)..place(&raw const engraft_module_last_end),
            callee: place(&raw const engraft_module_callee),
            chunk: place(&raw const engraft_module_chunk),
            start: place(&raw const engraft_module_start),
            entry: place(&raw const engraft_module_entry),
        };
        runtime.set_key(key);
        runtime
    }

    /// How to unwind through the routine for calls through pointers: its length, and the instructions of its
    /// row, behind those of its common entry, as in [`LAST_FRAME`].
    ///
    /// Source: DWARF 5, 6.4.2 and 7.24.
    pub fn callee_frame() -> (u64, Vec<u8>) {
        let from = &raw const engraft_module_callee as u64;
        let at = |label: *const u8| label as u64 - from;
        let ret = at(&raw const engraft_module_callee_return);
        let saved = at(&raw const engraft_module_callee_saved);
        let frame = u8::try_from(CALLEE_FRAME + 8).expect("below 128");
        let advance = |n: u64| {
            let [low, high, ..] = n.to_le_bytes();
            [0x03, low, high] // DW_CFA_advance_loc2
        };
        let mut out = advance(5).to_vec(); // lea -FRAME(%rsp),%rsp
        out.extend([0x0e, frame]); // DW_CFA_def_cfa_offset
        out.extend(advance(ret - 5));
        out.extend([0x0e, 8]);
        out.extend(advance(3)); // ret $8
        out.extend([0x0e, frame]);
        out.extend(advance(saved - ret - 3));
        out.extend([0x83, (frame - 48) / 8]); // DW_CFA_offset of rbx, at 48(%rsp)
        (at(&raw const engraft_module_callee_end), out)
    }

    /// Says that the module's words are not counters, but those of events: nothing of them adds up.
    #[must_use]
    pub fn with_events(mut self) -> Runtime {
        set(&mut self.bytes, 104, 0);
        set(&mut self.bytes, 144, 1);
        self
    }

    /// Has the module count in the row of this key.
    pub fn set_key(&mut self, key: u128) {
        self.bytes[16..32].copy_from_slice(&key.to_le_bytes());
    }

    /// Says where the old segments are, `old`, the module being at home `home`; and, if calls through
    /// pointers are counted, that the words of their sites start at word `first`, of so many, and where the
    /// table for the rest is, and how many slots it has.
    pub fn set_callees(&mut self, old: &Range<Va>, home: Va, callees: Option<(u32, usize, u32, u32)>) {
        set(&mut self.bytes, 88, old.start.since(self.at));
        set(&mut self.bytes, 96, old.end.since(self.at));
        let Some((first, n_sites, table, n_slots)) = callees else { return };
        set(&mut self.bytes, 104, 8 * u64::from(first));
        set(&mut self.bytes, 112, n_sites as u64);
        set(&mut self.bytes, 120, home.plus(HOME_HEAD + 8 * u64::from(table)).since(self.at));
        set(&mut self.bytes, 128, u64::from(n_slots) - 1);
        set(&mut self.bytes, 136, old.end.since(home.plus(OWNER + 1)));
    }

    /// Has the module make a recording by itself; `header` is where its first bytes are, its name behind
    /// them; `notes` is where its notes are.
    pub fn set_notes(&mut self, header: Va, notes: Va, notes_len: u64) {
        set(&mut self.bytes, 48, notes.since(self.at));
        set(&mut self.bytes, 56, notes_len);
        set(&mut self.bytes, 64, header.since(self.at));
    }
}

/// A place where ld.so opens a file: `mov $257,%eax`, perhaps more, `syscall`.
#[derive(Clone, Debug)]
pub struct OpenSite {
    /// The `mov`.
    pub at: Va,
    /// All its bytes, the system call included.
    pub bytes: Vec<u8>,
}

/// `mov $257,%eax`, the number of `openat`.
const SET_NUMBER: [u8; 5] = [0xb8, 0x01, 0x01, 0, 0];
/// `mov $59,%eax` and `mov $322,%eax`: those of `execve` and `execveat`.
const SET_EXEC: [[u8; 5]; 2] = [[0xb8, 59, 0, 0, 0], [0xb8, 0x42, 0x01, 0, 0]];
/// `syscall`
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Room for what stands between the two.
const ROOM_BETWEEN: usize = 32;

/// The places where `linker`, which is ld.so, opens files.
pub fn open_sites(linker: &Program) -> Vec<OpenSite> {
    let mut found = Vec::new();
    for block in &linker.blocks {
        calls_in(linker, block, &SET_NUMBER, |at, bytes| found.push(OpenSite { at, bytes }));
    }
    found
}

/// Calls `found` for each system call in `block` whose number `set_number` sets: with its address and all its
/// bytes.
fn calls_in(program: &Program, block: &Block, set_number: &[u8; 5], mut found: impl FnMut(Va, Vec<u8>)) {
    let Some(bytes) = program.image.bytes_in(&block.range()) else { return };
    if !bytes.windows(set_number.len()).any(|w| w == set_number) {
        return;
    }
    let mut decoder = Decoder::new(bytes, block.start);
    let (mut at, mut set) = (0, None);
    while let Some(insn) = decoder.next() {
        let own = bytes.get(at..at + insn.len_bytes()).unwrap_or_default();
        let is_fixed = decoder.position_of(&insn, own) != Position::Anywhere;
        match set {
            _ if own == set_number => set = Some(at),
            Some(from) if own == SYSCALL => {
                let all = &bytes[from..at + SYSCALL.len()];
                if all.len() <= set_number.len() + ROOM_BETWEEN + SYSCALL.len() {
                    found(block.start.plus(from as u64), all.to_vec());
                }
                set = None;
            }
            _ if is_fixed => set = None,
            _ => {}
        }
        at += insn.len_bytes();
    }
}

/// A place where a program becomes another one: `mov $59,%eax` (or 322), perhaps more, `syscall`; and what is
/// put there to ask first.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ExecSite {
    /// The `mov`.
    pub at: u64,
    /// All its bytes, the system call included.
    pub old: Vec<u8>,
    /// As many bytes, which call what stands at [`EXEC`].
    pub new: Vec<u8>,
}

/// Whether there may be such places in these bytes.
pub fn may_exec(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|w| SET_EXEC.iter().any(|set| set == w))
}

/// The places where `program` becomes another one.
///
/// Left out are those in functions that keep something below the stack pointer, where the call would write.
pub fn exec_sites(program: &Program) -> Vec<ExecSite> {
    let mut found = Vec::new();
    for block in &program.blocks {
        for (n, set_number) in SET_EXEC.iter().enumerate() {
            calls_in(program, block, set_number, |at, bytes| {
                if uses_red_zone(program, block) {
                    return;
                }
                // call *EXEC+8n
                let mut new = bytes[set_number.len()..bytes.len() - SYSCALL.len()].to_vec();
                new.extend([0xff, 0x14, 0x25]);
                new.extend((EXEC + 8 * n as u64).to_le_bytes().iter().take(4));
                found.push(ExecSite { at: at.0, old: bytes, new });
            });
        }
    }
    found
}

/// Whether the function of `block` keeps something below the stack pointer.
fn uses_red_zone(program: &Program, block: &Block) -> bool {
    let is_below = |operand| match operand {
        Operand::Mem { base: Some(base), disp, .. } => abi::STACK_POINTER.contains(base) && disp < 0,
        _ => false,
    };
    program.blocks.iter().filter(|b| b.func == block.func).any(|b| {
        let mut decoder = Decoder::new(program.image.bytes_in(&b.range()).unwrap_or_default(), b.start);
        std::iter::from_fn(|| decoder.next()).any(|insn| insn.operands().any(is_below))
    })
}

/// Where what a program asks before it becomes another one is mapped, in the low 2 GiB so that a call of
/// seven bytes leads there: first the addresses of what is called for `execve` and for `execveat`.
pub const EXEC: u64 = 0x7f00_0000;

/// What stands at [`EXEC`]; `bells` and `owner` are where, in the process, it asks ([`BELL_LEN`]) and sees
/// that nobody answers ([`MAILBOX_OWNER`]).
pub fn exec_page(bells: u64, owner: u64) -> Vec<u8> {
    let from = &raw const engraft_exec;
    let mut code = between(from, &raw const engraft_exec_end);
    let place = |label: *const u8| EXEC + (label as u64 - from as u64);
    set(&mut code, 0, place(&raw const engraft_execve));
    set(&mut code, 8, place(&raw const engraft_execveat));
    set(&mut code, 16, bells);
    set(&mut code, 24, owner);
    code
}

/// What the runtime says where it cannot record, up to the reason: a file that holds it counts by itself, or
/// is ours.
pub const SAYS: &[u8] = b"engraft: nothing is recorded, for ";

/// Offset of the first instruction of [`open_library`].
pub const OPEN_LIBRARY_ENTRY: u64 = 32;

/// What ld.so runs in place of `site`, which stands at `live` in the process; `paths` and `mailbox` are
/// addresses in the process too. Without a mailbox (0), libraries that are not in the table of paths are
/// opened as they are.
///
/// The table of paths is a row after another: length of the row (4 bytes), where in it the second path starts
/// (4 bytes), the path that is asked for and the path that is passed on, each ended by a zero; the last row
/// has length 0.
pub fn open_library(site: &OpenSite, live: u64, paths: u64, mailbox: u64) -> Vec<u8> {
    let mut code = between(&raw const engraft_open_library, &raw const engraft_open_library_end);
    set(&mut code, 0, live + site.bytes.len() as u64);
    set(&mut code, 8, paths);
    set(&mut code, 16, mailbox);
    let more = &site.bytes[SET_NUMBER.len()..site.bytes.len() - SYSCALL.len()];
    code[32..32 + more.len()].copy_from_slice(more);
    code
}

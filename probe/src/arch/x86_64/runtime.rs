//! What stands behind the moved code of a counted module.
//!
//! The assembly (`runtime/*.s`) is joined to one run of bytes, which is copied; what its routines read of the
//! module stands at its start ([`Module`]).
//!
//! Source: syscall(2), mremap(2) for mapping a shared range a second time (old size 0), rt_sigprocmask(2) for
//! asking whether one is there; Intel SDM vol. 2B, WRGSBASE.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use super::bytes_between;
use super::shared::*;
use program::Va;
use std::arch::global_asm;
use std::mem::{offset_of, size_of};
use std::ops::Range;

#[cfg(test)]
mod tests;

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
/// With fewer areas than these, a new one is taken before anybody is asked whether he is there still, which
/// filters may forbid.
const FEW_AREAS: u64 = 64;
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
/// How much the routine for indirect calls puts on the stack.
const CALLEE_FRAME: u64 = 96;
/// How many slots of a table it looks at for one that is free.
const CALLEE_TRIES: u64 = 256;

/// Unwind rules at the return address of a signal handler, the stack pointer being that of `ucontext_t`:
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

global_asm!(
    include_str!("runtime/head.s"),
    include_str!("runtime/entry.s"),
    include_str!("runtime/exit.s"),
    include_str!("runtime/threads.s"),
    include_str!("runtime/signals.s"),
    include_str!("runtime/interrupted.s"),
    include_str!("runtime/chunks.s"),
    include_str!("runtime/indirect.s"),
    include_str!("runtime/start.s"),
    include_str!("runtime/running.s"),
    include_str!("runtime/areas.s"),
    include_str!("runtime/join.s"),
    ".Lengraft_rust_join_callees:",
    include_str!(concat!(env!("OUT_DIR"), "/join_callees.s")),
    ".Lengraft_rust_join_callees_end:",
    include_str!("runtime/file.s"),
    #[cfg(test)]
    include_str!("runtime/tests/labels.s"),
    arena = const ARENA,
    magic = const ARENA_MAGIC,
    n_rows = const offset_of!(Header, n_rows),
    lock = const offset_of!(Header, lock),
    n_areas = const offset_of!(Header, n_areas),
    max_rows = const offset_of!(Header, max_rows),
    max_areas = const offset_of!(Header, max_areas),
    owners_at = const offset_of!(Header, owners_at),
    extents_at = const offset_of!(Header, extents_at),
    end = const offset_of!(Header, len_bytes),
    n_shared = const offset_of!(Header, n_shared),
    n_near = const offset_of!(Header, n_near),
    namespace = const offset_of!(Header, namespace),
    interrupted_at = const offset_of!(Header, interrupted_at),
    n_interrupted = const N_INTERRUPTED,
    behind_call = const BEHIND_CALL,
    key_row = const KEY_ROW,
    target_row = const TARGET_ROW,
    near = const NEAR,
    within = const WITHIN,
    same = const SAME,
    linker = const LINKER,
    deep = const DEEP,
    deepest = const DEEPEST,
    n_unknown = const offset_of!(Header, n_unknown),
    is_apart = const IS_APART,
    states_at = const offset_of!(Header, states_at),
    n_stopped = const offset_of!(Header, n_stopped),
    may_run = const MAY_RUN,
    has_ended = const HAS_ENDED,
    aborts = const ABORTS,
    in_exit = const IN_EXIT,
    at_end = const offset_of!(Process, at_end),
    tid_glibc = const TID_GLIBC,
    tid_musl = const TID_MUSL,
    robust_glibc = const ROBUST_GLIBC,
    robust_offset = const ROBUST_OFFSET,
    detach_musl = const DETACH_MUSL,
    joinable_musl = const JOINABLE_MUSL,
    in_vfork = const offset_of!(Process, n_in_vfork),
    header_len = const size_of::<Header>(),
    rows_at = const size_of::<Header>(),
    process = const PROCESS,
    process_len = const size_of::<Process>(),
    n_threads = const offset_of!(Process, n_threads),
    n_tried = const offset_of!(Process, n_tried),
    path_len = const offset_of!(Process, path_len),
    is_full = const offset_of!(Process, is_full),
    next_thread = const offset_of!(Process, next_thread),
    inherited_name = const offset_of!(Process, inherited_name),
    mapped = const offset_of!(Process, mapped),
    few_areas = const FEW_AREAS,
    path = const offset_of!(Process, path),
    path_max = const PATH_MAX,
    homes = const offset_of!(Process, homes),
    threads = const offset_of!(Process, threads),
    thread_len = const size_of::<Thread>(),
    max_threads = const MAX_THREADS,
    callee_frame = const CALLEE_FRAME,
    callee_tries = const CALLEE_TRIES,
    home_head = const size_of::<HomePage>(),
    chunk_len = const CHUNK_LEN,
    n_chunks = const N_CHUNKS,
    chunk_room = const CHUNK_ROOM,
    events_limit = const offset_of!(EventsPage, limit),
    events_chunk = const offset_of!(EventsPage, chunk),
    events_base = const offset_of!(EventsPage, base),
    events_control = const offset_of!(EventsPage, control),
    events_taker = const offset_of!(EventsPage, taker),
    events_full = const offset_of!(EventsPage, full),
    events_stalls = const offset_of!(EventsPage, stalls),
    handler = const EVENTS_HANDLER,
    in_call = const EVENTS_IN_CALL,
    redirected = const EVENTS_REDIRECTED,
    another = const EVENTS_ANOTHER,
    events_lost = const offset_of!(EventsPage, lost),
    events_number = const offset_of!(EventsPage, number),
    events_nothing = const offset_of!(EventsPage, nothing),
    events_nothing_len = const size_of::<EventsPage>() - offset_of!(EventsPage, nothing),
    file_head_len = const Capacity::FILE.head_len(),
    variable_1 = const u64::from_le_bytes(*b"ENGRAFT_"),
    variable_2 = const u32::from_le_bytes(*b"OUT="),
    process_name = const offset_of!(Process, name),
    home_len = const size_of::<Home>(),
    home_shift = const size_of::<Home>().ilog2(),
    home_runtime = const offset_of!(Home, runtime),
    home_text = const offset_of!(Home, text),
    home_text_end = const offset_of!(Home, text_end),
    home_old = const offset_of!(Home, old),
    home_old_end = const offset_of!(Home, old_end),
    thread_distance = const offset_of!(Thread, distance),
    thread_area = const offset_of!(Thread, area),
    thread_number = const offset_of!(Thread, number),
    thread_number_at = const offset_of!(Thread, number_at),
    is_recorded = const offset_of!(HomePage, is_recorded),
    is_alone = const offset_of!(HomePage, is_alone),
    owner = const offset_of!(HomePage, owner),
    row_shift = const size_of::<Row>().ilog2(),
    row_key = const offset_of!(Row, key),
    row_counters_len = const offset_of!(Row, counters_len),
    row_notes = const offset_of!(Row, notes_at),
    row_notes_len = const offset_of!(Row, notes_len),
    interrupted_n = const offset_of!(Interrupted, n),
    site_n = const offset_of!(CallSite, n),
    site_n_lost = const offset_of!(CallSite, n_lost),
    slot_shift = const size_of::<CallSlot>().ilog2(),
    slot_distance = const offset_of!(CallSlot, distance),
    slot_n = const offset_of!(CallSlot, n),
    slot_target = const offset_of!(CallSlot, target),
    module_len = const size_of::<Module>(),
    module_init = const offset_of!(Module, init),
    module_key = const offset_of!(Module, key),
    module_mask = const offset_of!(Module, signal_mask),
    module_counters_len = const offset_of!(Module, counters_len),
    module_notes = const offset_of!(Module, notes),
    module_notes_len = const offset_of!(Module, notes_len),
    module_header = const offset_of!(Module, header),
    module_started = const offset_of!(Module, started),
    module_text = const offset_of!(Module, text),
    module_old = const offset_of!(Module, old),
    module_old_end = const offset_of!(Module, old_end),
    module_sums_len = const offset_of!(Module, sums_len),
    module_slots = const offset_of!(Module, slots),
    module_slot_mask = const offset_of!(Module, slot_mask),
    module_old_bias = const offset_of!(Module, old_bias),
    module_has_events = const offset_of!(Module, has_events),
);

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
    static engraft_module_returned: u8;
    static engraft_module_taken_over: u8;
    static engraft_module_end: u8;
}

/// What the runtime says where it cannot record, up to the reason: a file that holds it counts by itself, or
/// is ours.
pub const SAYS: &[u8] = b"engraft: nothing is recorded, for ";

/// What stands behind the moved code of a counted module.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Where it is.
    pub at: Va,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where a thread goes that is not the owner of its area, with r11 telling where to go on.
    pub slow: Va,
    /// Where an entry goes that may be a signal handler's, with r11 telling where to go on.
    pub signal: Va,
    /// What a signal handler returns to, if it interrupted moved code.
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
    /// What counts indirect calls that do not lead where they led first: the distance from where they
    /// lead to the owner's word in r11, the number of the site's first word on the stack.
    pub callee: Va,
    /// What takes another chunk for events, where the one is full: flags then say zero if there is none.
    pub chunk: Va,
    /// What a library runs in place of DT_INIT.
    pub start: Va,
    /// What an executable that makes a recording by itself runs in place of its entry point.
    pub entry: Va,
    /// Where a thread goes that comes back from a call which old code made, with what was in r11 on the stack
    /// and r11 telling where to go on.
    pub returned: Va,
    /// Where a thread goes that was stopped in old code, with the word right below the red zone, which is on
    /// top of the stack, telling where to go on.
    pub taken_over: Va,
}

impl Runtime {
    /// How many bytes it has.
    pub fn len_bytes() -> u64 {
        bytes_between(&raw const engraft_module, &raw const engraft_module_end).len() as u64
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
        let mut bytes = bytes_between(from, &raw const engraft_module_end);
        set(&mut bytes, offset_of!(Module, home), home.since(at));
        set(&mut bytes, offset_of!(Module, init), init.map_or(0, |init| init.since(at)));
        set(&mut bytes, offset_of!(Module, counters_len), len);
        set(&mut bytes, offset_of!(Module, started), started.map_or(0, |started| started.since(at)));
        set(&mut bytes, offset_of!(Module, text), text.since(at));
        set(&mut bytes, offset_of!(Module, sums_len), len);
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
            returned: place(&raw const engraft_module_returned),
            taken_over: place(&raw const engraft_module_taken_over),
        };
        runtime.set_key(key);
        runtime
    }

    /// How to unwind through the routine for indirect calls: its length, and the instructions of its
    /// row, behind those of its common entry, as in [`LAST_FRAME`].
    ///
    /// Source: DWARF 5, 6.4.2 and 7.24.
    pub fn indirect_call_frame() -> (u64, Vec<u8>) {
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
        set(&mut self.bytes, offset_of!(Module, sums_len), 0);
        set(&mut self.bytes, offset_of!(Module, has_events), 1);
        self
    }

    /// Has the module count in the row of this key.
    pub fn set_key(&mut self, key: u128) {
        let at = offset_of!(Module, key);
        self.bytes[at..at + 16].copy_from_slice(&key.to_le_bytes());
    }

    /// Says where the old segments are, `old`, the module being at home `home`; and, if indirect
    /// calls are counted, that the words of their sites start at word `first`, of so many, and where the
    /// table for the rest is, and how many slots it has.
    pub fn set_indirect_calls(&mut self, old: &Range<Va>, home: Va, calls: Option<(u32, usize, u32, u32)>) {
        set(&mut self.bytes, offset_of!(Module, old), old.start.since(self.at));
        set(&mut self.bytes, offset_of!(Module, old_end), old.end.since(self.at));
        let Some((first, n_sites, table, n_slots)) = calls else { return };
        set(&mut self.bytes, offset_of!(Module, sums_len), 8 * u64::from(first));
        set(&mut self.bytes, offset_of!(Module, n_sites), n_sites as u64);
        set(
            &mut self.bytes,
            offset_of!(Module, slots),
            home.plus(HomePage::LEN + 8 * u64::from(table)).since(self.at),
        );
        set(&mut self.bytes, offset_of!(Module, slot_mask), u64::from(n_slots) - 1);
        set(
            &mut self.bytes,
            offset_of!(Module, old_bias),
            old.end.since(home.plus(offset_of!(HomePage, owner) as u64 + 1)),
        );
    }

    /// Has the module make a recording by itself; `header` is where its first bytes are, its name behind
    /// them; `notes` is where its notes are.
    pub fn set_notes(&mut self, header: Va, notes: Va, notes_len: u64) {
        set(&mut self.bytes, offset_of!(Module, notes), notes.since(self.at));
        set(&mut self.bytes, offset_of!(Module, notes_len), notes_len);
        set(&mut self.bytes, offset_of!(Module, header), header.since(self.at));
    }
}

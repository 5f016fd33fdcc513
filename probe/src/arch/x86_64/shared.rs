//! The memory that programs under observation share with us, and what they keep for themselves: the one
//! declaration, for the assembly, for the launcher and for whoever reads a recording.
//!
//! ```text
//! recording = Header Row* owner* extent* Interrupted* state* (notes | counters | EventsPage | chunk)*
//! owner     = number of a process, 4 bytes an area; 0: nobody's
//! extent    = where the counters of module m in area k are, 8 bytes at 8 · (m · max_areas + k);
//!             0: nowhere yet
//! state     = what is known of the thread of an area, a byte: 0 (it has ended, or never was), MAY_RUN, …
//! home      = HomePage counters, in each module's reach; that of area k is at the distance that gs says
//! ```
//! A recording is mapped at [`ARENA`], what a process keeps for itself at [`PROCESS`], below it. What a
//! process that ran before has beside these is below that: [`HELPER`], [`FINDER`], [`JOURNAL`].
//!
//! Invariant: all offsets are those of a field here (`offset_of!`); none stands as a number elsewhere.

use core::mem::{offset_of, size_of};

/// The offset of a field in bytes, as a `u64`.
#[macro_export]
macro_rules! offset {
    ($of:ty, $field:ident) => {
        ::core::mem::offset_of!($of, $field) as u64
    };
}

/// Where a recording is mapped in every process that is counted. No kernel puts anything there by itself.
pub const ARENA: u64 = 0x1f00_0000_0000;
/// First word of a recording that a counted program writes.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"ENGRAFT\x02");
/// Where [`Process`] is.
pub const PROCESS: u64 = ARENA - 0x20_0000;
/// Where the code of a thread of ours is that works in a process which ran before, while it works.
pub const HELPER: u64 = PROCESS - 0x1_0000;
/// Where the code is by which unwinders in such a process find the tables of moved code.
pub const FINDER: u64 = PROCESS - 0x2_0000;
/// How long that may be.
pub const FINDER_LEN: u64 = 0x1_0000;
/// Where it is written down how such a process is given back as it was.
pub const JOURNAL: u64 = ARENA - 0x100_0000_0000;
/// Bytes a page.
pub const PAGE: u64 = PAGE_LEN as u64;
const PAGE_LEN: usize = 0x1000;

/// The start of a recording.
#[repr(C)]
pub struct Header {
    /// [`ARENA_MAGIC`].
    pub magic: u64,
    /// Number of modules, each with a [`Row`].
    pub n_rows: u32,
    /// The lock: the number of the process that holds it, or 0.
    pub lock: u32,
    /// Number of areas that were ever in use.
    pub n_areas: u64,
    /// Number of modules there is room for.
    pub max_rows: u64,
    /// Number of areas there is room for.
    pub max_areas: u64,
    /// Offset of the areas' owners: numbers of processes, 4 bytes each.
    pub owners_at: u64,
    /// Offset of the extents: where the counters of module m and area k are, at 8 · (m · `max_areas` + k); 0:
    /// nowhere yet.
    pub extents_at: u64,
    /// Length of the recording in bytes.
    pub len_bytes: u64,
    /// How often counts of several threads had to go to one place, so that some may be lost.
    pub n_shared: u64,
    /// Offset of the [`Mailbox`], where libraries are asked for; 0: nowhere.
    pub mailbox_at: u64,
    /// The namespace of processes (its file's number) in which the owners and the lock are what they are
    /// called; 0: not known yet.
    pub namespace: u64,
    /// Offset of where code was interrupted, [`N_INTERRUPTED`] times [`Interrupted`].
    pub interrupted_at: u64,
    /// How often there was no room for one.
    pub n_unknown: u64,
    /// Offset of what is known of the thread of each area, a byte each: 0 (it has ended, or never was),
    /// [`MAY_RUN`], [`HAS_ENDED`], [`ABORTS`] or [`IN_EXIT`].
    pub states_at: u64,
    /// How many threads may have been stopped in the middle of a block besides those in [`MAY_RUN`]: those
    /// that were when their areas went to others, and those that let themselves be cancelled anywhere.
    pub n_stopped: u64,
    /// Number of areas that are so near to others that a library which comes later may find no room beside
    /// them.
    pub n_near: u64,
}

/// What a recording says of a module.
#[repr(C)]
pub struct Row {
    /// The module's key.
    pub key: [u64; 2],
    /// Length of its counters in bytes, whole pages.
    pub counters_len: u64,
    /// Offset of its notes.
    pub notes_at: u64,
    /// Their length in bytes.
    pub notes_len: u64,
    unused: [u64; 3],
}

/// Where code was interrupted by signals whose handlers have not returned there.
#[repr(C)]
pub struct Interrupted {
    /// The number of the module, from 1, times 2⁴⁰, where in its moved code, and perhaps [`BEHIND_CALL`].
    pub key: u64,
    /// How often signal handlers that came there have not returned there (less than none: returned more
    /// often).
    pub n: u64,
}

/// How many of them a recording has room for.
pub const N_INTERRUPTED: u64 = 1024;
/// The bit of [`Interrupted::key`] which says that it is a call behind which it stands that was not to come
/// back.
pub const BEHIND_CALL: u64 = 39;
/// The bit of [`Interrupted::key`] from which on it has the number of the row.
pub const KEY_ROW: u64 = 40;
/// The bit from which on the target of an indirect call into another module has the number of that one's row.
pub const TARGET_ROW: u64 = 48;

/// The state of a thread that runs, or that nobody saw end.
pub const MAY_RUN: u8 = 1;
/// One that has ended its process, or was about to: at a call, not in the middle of a block.
pub const HAS_ENDED: u8 = 2;
/// One that was about to end its process by SIGABRT: so it did, if that is what the process ended by.
pub const ABORTS: u8 = 3;
/// One that has come to the end of `exit`: after `main` returned, or it was called, be it as a signal
/// handler.
pub const IN_EXIT: u8 = 4;
/// What is added to the number of a process that is in another namespace: whether it is gone nobody else can
/// tell.
pub const IS_APART: u32 = 1 << 30;

/// The first page of a thread's memory where events are recorded, all modules together.
#[repr(C)]
pub struct EventsPage {
    /// Where the next event goes, an address in the mapping of the recording.
    pub next: u64,
    /// Where there is no room for one any more; 0: nothing is recorded.
    pub limit: u64,
    /// The number of the chunk that is filled.
    pub chunk: u64,
    /// Where the first chunk is.
    pub base: u64,
    /// Where this page is in the mapping of the recording.
    pub control: u64,
    /// Where it is said that nobody takes chunks any more: as the kernel says that who held a futex died.
    pub taker: u64,
    /// How often the thread had to wait for a chunk.
    pub stalls: u64,
    /// Whether events were lost, since nobody takes chunks any more: then they go round in what is left of
    /// the page.
    pub lost: u64,
    /// Per chunk: 1 while it waits to be taken.
    pub full: [u32; FULL_LEN],
    /// The number of the thread that appends; 0: it is not known.
    pub number: u32,
    unused: u32,
    /// What probes count beside what they append.
    pub words: [u64; N_EVENT_WORDS as usize],
    /// Where events go that are lost.
    pub nothing: [u8; PAGE_LEN - 1024],
}

/// How many words a thread has beside its stream of events.
pub const N_EVENT_WORDS: u32 = 115;

/// Which word of the thread's memory is the one with this number beside its stream of events, modulo their
/// number.
pub const fn event_word(n: u32) -> u32 {
    word_at(offset_of!(EventsPage, words)) + n % N_EVENT_WORDS
}

#[expect(clippy::cast_possible_truncation, reason = "it is 8")]
const FULL_LEN: usize = N_CHUNKS as usize;
/// Length of a chunk of events in bytes, a power of two.
pub const CHUNK_LEN: u64 = 1 << 19;
/// How many chunks a thread has, a power of two.
pub const N_CHUNKS: u64 = 8;
/// How many bytes are left free at the end of a chunk, for the longest event.
pub const CHUNK_ROOM: u64 = 16;
/// The event that says that a signal handler is entered next; two words follow: the low half of the key of
/// the module in whose moved code the signal came, and how far from its start, with the bit
/// [`EVENTS_IN_CALL`] set if it came in what the call there led to.
pub const EVENTS_HANDLER: u32 = (1 << 29) - 1;
/// See there.
pub const EVENTS_IN_CALL: u32 = 31;
/// In place of the key: a handler returns to where it changed the context to.
pub const EVENTS_REDIRECTED: u32 = u32::MAX;
/// The event that says that what follows is another thread's, which has the memory of one that is no more.
pub const EVENTS_ANOTHER: u32 = EVENTS_HANDLER - 3;

/// What a process keeps for itself, at [`PROCESS`]. `fork` wipes the first page.
#[repr(C)]
pub struct Process {
    /// Its number.
    pub number: u64,
    /// What it is called in the recording; 0: not known yet.
    pub name: u32,
    unused_name: u32,
    /// How many children of `vfork` run in this process' memory.
    pub n_in_vfork: u32,
    wiped: [u8; PAGE_LEN - 20],
    /// Number of threads with an area.
    pub n_threads: u64,
    /// How many distances have been tried.
    pub n_tried: u64,
    /// Length of the recording's path; 0 if it has none and is mapped as a whole.
    pub path_len: u64,
    /// Whether no more areas may be given out.
    pub is_full: u64,
    /// That path.
    pub path: [u8; PATH_MAX],
    unused_path: u64,
    /// The thread that was looked at last, for whether it is still there.
    pub next_thread: u64,
    /// Whether this process, or the one that it was forked from, knows what it is called (1), and whether
    /// that means something else to others ([`IS_APART`], as in its name).
    pub inherited_name: u64,
    /// How much of the recording is mapped, if it has no path.
    pub mapped: u64,
    /// What is to be called when the program ends, but for us.
    pub at_end: u64,
    unused: [u64; 3],
    /// The modules.
    pub homes: [Home; MAX_HOMES],
    /// The threads that have an area.
    pub threads: [Thread; MAX_THREADS],
}

/// The longest path of a recording in bytes, the zero at its end included.
pub const PATH_MAX: usize = 4000;
#[expect(clippy::cast_possible_truncation, reason = "they are small")]
const MAX_HOMES: usize = Capacity::LAUNCH.n_rows as usize;
/// How many threads of a process have areas of their own.
pub const MAX_THREADS: usize = 2048;

/// A module in a process, in the order of the recording's rows.
#[repr(C)]
pub struct Home {
    /// The address of its [`HomePage`] for the first thread; 0: it is not loaded.
    pub at: u64,
    /// The address of its [`Module`], the start of the runtime.
    pub runtime: u64,
    /// Start of its moved code.
    pub text: u64,
    /// End of its moved code.
    pub text_end: u64,
    /// Start of its old segments.
    pub old: u64,
    /// End of its old segments.
    pub old_end: u64,
    unused: [u64; 2],
}

/// A thread that has an area.
#[repr(C)]
pub struct Thread {
    /// Its thread pointer.
    pub pointer: u64,
    /// The distance of its area, the base of `gs`.
    pub distance: u64,
    /// The number of its area.
    pub area: u64,
    /// The thread's number; 0: not known.
    pub number: u32,
    /// How far from its thread pointer that stands as long as it runs, in bytes; 0 if that is not known.
    pub number_at: u32,
}

/// The page in front of a module's counters in an area. `fork` wipes it.
#[repr(C)]
pub struct HomePage {
    unused: [u8; PAGE_LEN - 24],
    /// Whether the counters are part of a recording.
    pub is_recorded: u64,
    /// Whether nothing is recorded in this process.
    pub is_alone: u64,
    /// The thread pointer of the owner.
    pub owner: u64,
}

/// The words of an indirect call's site, among a module's counters.
#[repr(C)]
pub struct CallSite {
    /// Where it led first, if that is in this module: the distance to the owner's word.
    pub target: u64,
    /// How often there.
    pub n: u64,
    /// How often to where the table had no room for.
    pub n_lost: u64,
}

/// A slot of the table of where indirect calls led else.
#[repr(C)]
pub struct CallSlot {
    /// The number of the site's first word; 0: the slot is free.
    pub site: u64,
    /// The distance from where it led to the owner's word.
    pub distance: u64,
    /// How often.
    pub n: u64,
    /// 1: in this module. Else 2⁴⁸ times the number of the target's row, from 1, and where it is from the
    /// start of its old segments; or the target itself, if it is in none that is known.
    pub target: u64,
}

/// Words of a [`CallSite`].
pub const SITE_WORDS: u32 = 3;
/// Words of a [`CallSlot`].
pub const SLOT_WORDS: u32 = 4;

/// Where a process asks the launcher for a library.
#[repr(C)]
pub struct Mailbox {
    /// Whether the launcher has to answer (1).
    pub state: u32,
    /// The lock: the asking process.
    pub lock: u32,
    unused: u32,
    /// The number of requests so far.
    pub n_requests: u32,
    /// The path that is asked for and, in its place, the path to be opened, or nothing.
    pub path: [u8; 4016],
    /// A lock (futex(2), robust) that the launcher holds while it answers: bit 30 is set when it does so no
    /// more.
    pub owner: u32,
    unused_end: [u32; 15],
}

/// Where threads that are about to `exec` say so.
#[repr(C)]
pub struct ExecRequests {
    /// A word that each of them raises.
    pub n_raised: u32,
    unused: [u32; 15],
    /// A slot a thread.
    pub slots: [ExecRequest; 63],
}

/// A thread that is about to `exec`.
#[repr(C)]
pub struct ExecRequest {
    /// The thread; 0 if the slot is nobody's.
    pub thread: u32,
    /// Whether the launcher has to answer (1).
    pub state: u32,
    unused: u64,
    /// The number of the system call.
    pub number: u64,
    /// Its first, second and fifth argument.
    pub args: [u64; 3],
    unused_end: [u64; 2],
}

/// The start of what a process runs in place of `execve` and `execveat`, at `EXEC`.
#[repr(C)]
pub struct ExecPage {
    /// The address of what is called for `execve`.
    pub execve: u64,
    /// The same for `execveat`.
    pub execveat: u64,
    /// The address of the [`ExecRequests`].
    pub requests: u64,
    /// The address of the word that says whether anybody answers, [`Mailbox::owner`].
    pub owner: u64,
    /// All signals.
    pub signal_mask: u64,
}

/// The start of what ld.so runs in place of an `openat`.
#[repr(C)]
pub struct OpenLibrary {
    /// The address to go on at.
    pub back: u64,
    /// The address of the table of paths.
    pub paths: u64,
    /// The address of the [`Mailbox`], or 0.
    pub mailbox: u64,
    unused: u64,
}

/// The start of what a process runs in place of `_dl_find_object`; the table stands behind it.
#[repr(C)]
pub struct FindObject {
    /// The address of the function in whose place it is.
    pub original: u64,
    /// How many rows the table has.
    pub n: u64,
}

/// A row of it: code that ld.so has not loaded. All are addresses.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundObject {
    /// Its start.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// What ld.so keeps of the module that it belongs to.
    pub link_map: u64,
    /// The search table of its unwind tables.
    pub tables: u64,
}

/// The start of the runtime behind a module's moved code: what whoever copies it fills in. All addresses are
/// distances from here.
#[repr(C)]
pub struct Module {
    /// The home.
    pub home: u64,
    /// The old `DT_INIT`, or the old entry point; 0 if there is none.
    pub init: u64,
    /// The module's key.
    pub key: [u64; 2],
    /// All signals.
    pub signal_mask: u64,
    /// Length of the counters in bytes, whole pages.
    pub counters_len: u64,
    /// The notes.
    pub notes: u64,
    /// Their length in bytes; 0: this module makes no recording by itself.
    pub notes_len: u64,
    /// The first bytes of a recording; behind them its name, if nobody gives another.
    pub header: u64,
    /// The byte that says whether this library has started; 0: it is none.
    pub started: u64,
    /// The moved code, which ends here.
    pub text: u64,
    /// The old segments.
    pub old: u64,
    /// Their end.
    pub old_end: u64,
    /// Length of the words that add up, in bytes; behind them those of call sites.
    pub sums_len: u64,
    /// How many call sites.
    pub n_sites: u64,
    /// The table of where these lead else.
    pub slots: u64,
    /// How many slots it has, less one.
    pub slot_mask: u64,
    /// Added to the distance of such a target, it is below the length of the old segments if it is in them.
    pub old_bias: u64,
    /// Whether its words are those of events.
    pub has_events: u64,
}

impl Header {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Header>() as u64;
}

impl Row {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Row>() as u64;
}

impl Interrupted {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Interrupted>() as u64;
}

impl Process {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Process>() as u64;
}

impl Home {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Home>() as u64;
}

impl HomePage {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<HomePage>() as u64;
}

impl Mailbox {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<Mailbox>() as u64;
}

impl ExecRequests {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<ExecRequests>() as u64;
}

impl ExecRequest {
    /// Its length in bytes.
    pub const LEN: u64 = size_of::<ExecRequest>() as u64;
}

// The assembly shifts where it goes through tables of these, and pages are mapped whole.
const _: () = assert!(
    size_of::<Header>() == 128
        && size_of::<Row>().is_power_of_two()
        && size_of::<Interrupted>() == 16
        && size_of::<Home>().is_power_of_two()
        && size_of::<CallSite>() == 8 * SITE_WORDS as usize
        && size_of::<CallSlot>() == 8 * SLOT_WORDS as usize
        && size_of::<EventsPage>() == PAGE_LEN
        && size_of::<HomePage>() == PAGE_LEN
        && size_of::<Mailbox>() == PAGE_LEN
        && size_of::<ExecRequests>() == PAGE_LEN
        && offset_of!(Process, n_threads) == PAGE_LEN
        && offset_of!(Process, homes) == 2 * PAGE_LEN
);

// What is first of these, the assembly finds where they are.
const _: () = assert!(
    offset_of!(Header, magic) == 0
        && offset_of!(Row, key) == 0
        && offset_of!(Interrupted, key) == 0
        && offset_of!(EventsPage, next) == 0
        && offset_of!(Process, number) == 0
        && offset_of!(Home, at) == 0
        && offset_of!(Thread, pointer) == 0
        && offset_of!(CallSite, target) == 0
        && offset_of!(CallSlot, site) == 0
        && offset_of!(Mailbox, state) == 0
        && offset_of!(ExecPage, execve) == 0
        && offset_of!(OpenLibrary, back) == 0
        && offset_of!(Module, home) == 0
);

/// The word that starts `len` bytes behind the first.
#[expect(clippy::cast_possible_truncation, reason = "it is asserted")]
pub const fn word_at(len: usize) -> u32 {
    assert!(len.is_multiple_of(8) && len <= u32::MAX as usize);
    (len / 8) as u32
}

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
        Header::LEN + Row::LEN * self.n_rows
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
        self.interrupted_at() + size_of::<Interrupted>() as u64 * N_INTERRUPTED
    }
    /// Length of all tables: the counters start there.
    pub const fn head_len(self) -> u64 {
        (self.states_at() + self.n_areas).next_multiple_of(PAGE_LEN as u64)
    }
    /// The [`Header`] of an empty recording.
    pub fn header(self) -> [u8; size_of::<Header>()] {
        let mut bytes = [0; size_of::<Header>()];
        for (at, word) in [
            (offset_of!(Header, magic), ARENA_MAGIC),
            (offset_of!(Header, max_rows), self.n_rows),
            (offset_of!(Header, max_areas), self.n_areas),
            (offset_of!(Header, owners_at), self.owners_at()),
            (offset_of!(Header, extents_at), self.extents_at()),
            (offset_of!(Header, interrupted_at), self.interrupted_at()),
            (offset_of!(Header, states_at), self.states_at()),
            (offset_of!(Header, len_bytes), self.head_len()),
        ] {
            set(&mut bytes, at, word);
        }
        bytes
    }
}

/// Puts `word` at `at` of `bytes`.
pub(crate) fn set(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

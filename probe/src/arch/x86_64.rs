//! The code of ours that runs inside the program: position-independent, no stack frame but its own, system calls only.
//!
//! Each piece is a run of bytes between two labels; the words at its start are filled in by who copies it.
//!
//! | piece | where | what it does |
//! | --- | --- | --- |
//! | [`Runtime`] (`module.s`) | behind the moved code of a counted module | gives a thread its area; maps the counters over |
//! | [`open_library`] (`open_library.s`) | beside ld.so, in place of an `openat` | passes on the path of a counted library in place of the plain one |
//!
//! **Areas.** Every module has a *home* for its counters within reach of its code. Thread k counts at home + dₖ, with dₖ in the base of
//! `gs`, the same for all modules; the first thread has d = 0. A home starts with a page whose last word is the thread pointer of the
//! area's owner. A thread inherits `gs` from the one that made it: so an entry from outside compares the owner with its own thread
//! pointer, and where they differ it comes here. `fork` wipes that page in the child, which so gets an area of its own. Code of a library may run
//! before its DT_INIT, by a thread whose counters of that library are not mapped yet: so its entries first look at a byte that tells whether
//! it has started, and if not, it starts then. All areas are
//! ranges of the recording, which several processes may share: an area whose process is gone is given out again, but for those of
//! processes in namespaces of their own, where numbers of processes mean others.
//!
//! **Recordings** are made by a launcher, which maps them before the program starts, or, by a module that carries notes, as a file when it
//! starts by itself. The disk's room for an area is taken before it is mapped. Where none can be had, counts stay in the process, and are lost with it.
//!
//! Invariant: all registers are as they were but those dead at a function's entry (r11, flags), or destroyed by a system call (rax, rcx,
//! r11) where one was about to be made; the red zone is stepped over; no signal is handled while the recording is locked.
//!
//! Source: syscall(2), mremap(2) for mapping a shared range a second time (old size 0), rt_sigprocmask(2) for asking whether one is there;
//! Intel SDM vol. 2B, WRGSBASE.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use program::arch::Decoder;
use program::arch::emit::Position;
use program::{Program, Va};

/// Where a recording is mapped in every process that is counted. No kernel puts anything there by itself.
pub const ARENA: u64 = 0x1f00_0000_0000;
/// First word of a recording.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"ENGRAFT\x02");
/// Offset of the number of modules, 4 bytes.
pub const N_ROWS: u64 = 8;
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
/// Offset of the offset of the extents: where the counters of module m and area k are, at 8 · (m · `MAX_AREAS` + k); 0: nowhere yet.
pub const EXTENTS_AT: u64 = 48;
/// Offset of the length of the recording.
pub const END: u64 = 56;
/// Offset of how often counts of several threads had to go to one place, so that some may be lost.
pub const N_SHARED: u64 = 64;
/// Offset of where libraries are asked for: a [`MAILBOX_LEN`] bytes long mailbox; 0: nowhere.
pub const MAILBOX_AT: u64 = 72;
/// Offset of the namespace of processes (its file's number) in which the owners and the lock are what they are called; 0: not known yet.
pub const NAMESPACE: u64 = 80;
/// What is added to the number of a process that is in another one: whether it is gone nobody else can tell.
const IS_APART: u32 = 1 << 30;
/// Length of all this.
pub const HEADER_LEN: u64 = 128;
/// Where the table of modules starts: key (16 bytes), length of the counters in bytes (whole pages), offset and length of the notes.
pub const ROWS_AT: u64 = HEADER_LEN;
/// Bytes a row of that table.
pub const ROW_LEN: u64 = 64;

/// Where a process keeps what concerns only itself. In its first page, which `fork` wipes, is its number, then what it is called in the
/// recording.
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
/// Offset there of the modules' homes: the home, the address of the module's [`Runtime`].
pub const HOMES: u64 = 0x2000;
/// Bytes a module there.
pub const HOME_LEN: u64 = 16;
/// Offset there of the threads: thread pointer, distance, number of the area.
pub const THREADS: u64 = 0x6000;
const THREAD_LEN: u64 = 32;
/// Offset in there of what the process is called in the recording; 0: not known yet.
pub const OWN_NAME: u64 = 8;
/// Length of all that.
pub const OWN_LEN: u64 = THREADS + THREAD_LEN * 2048;

/// A home starts with a page of its own, whose last word is the thread pointer of the owner; the counters follow.
pub const HOME_HEAD: u64 = 0x1000;
/// Offset of the owner.
pub const OWNER: u64 = HOME_HEAD - 8;

/// Length of a mailbox. Four bytes each: whether the launcher has to answer (1); the lock, which is the asking process; nothing; the
/// number of requests so far. Then the path that is asked for and, in its place, the path to be opened, or nothing.
pub const MAILBOX_LEN: u64 = 0x1000;
/// Offset of the path there.
pub const MAILBOX_PATH: u64 = 16;
/// Offset of a lock (futex(2), robust) that the launcher holds while it answers: bit 30 is set when it does so no more.
pub const MAILBOX_OWNER: u64 = 4032;

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
    /// Length of all tables: the counters start there.
    pub const fn head_len(self) -> u64 {
        (self.extents_at() + 8 * self.n_rows * self.n_areas).next_multiple_of(0x1000)
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
            (END, self.head_len()),
        ] {
            set(&mut bytes, usize::try_from(at).expect("small"), word);
        }
        bytes
    }
}

std::arch::global_asm!(
    include_str!("x86_64/module.s"),
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
    namespace = const NAMESPACE,
    is_apart = const IS_APART,
    header_len = const HEADER_LEN,
    rows_at = const ROWS_AT,
    own = const OWN,
    own_len = const OWN_LEN,
    n_threads = const N_THREADS,
    n_tried = const N_TRIED,
    path_len = const PATH_LEN,
    is_full = const IS_FULL,
    path = const PATH,
    path_max = const PATH_MAX,
    homes = const HOMES,
    threads = const THREADS,
    thread_len = const THREAD_LEN,
    max_threads = const (OWN_LEN - THREADS) / THREAD_LEN,
    file_head_len = const Capacity::FILE.head_len(),
    variable_1 = const u64::from_le_bytes(*b"ENGRAFT_"),
    variable_2 = const u32::from_le_bytes(*b"OUT="),
);
std::arch::global_asm!(include_str!("x86_64/open_library.s"), own = const OWN);

unsafe extern "C" {
    static engraft_module: u8;
    static engraft_module_slow: u8;
    static engraft_module_start: u8;
    static engraft_module_entry: u8;
    static engraft_module_end: u8;
    static engraft_open_library: u8;
    static engraft_open_library_end: u8;
}

/// The bytes from `from` to `to`.
fn between(from: *const u8, to: *const u8) -> Vec<u8> {
    let len = to as usize - from as usize;
    // SAFETY: both are labels of one section of the assembly above, in this order: what lies between are its bytes.
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

    /// Placed at `at`, for `len` bytes of counters behind the head of `home`; `init` is what it goes on with when the module starts,
    /// `started` the byte that says whether it has, for a library, whose code may run before.
    pub fn at(at: Va, home: Va, len: u64, init: Option<Va>, key: u128, started: Option<Va>) -> Runtime {
        let from = &raw const engraft_module;
        let place = |label: *const u8| at.plus(label as u64 - from as u64);
        let mut bytes = between(from, &raw const engraft_module_end);
        set(&mut bytes, 0, home.since(at));
        set(&mut bytes, 8, init.map_or(0, |init| init.since(at)));
        set(&mut bytes, 40, len);
        set(&mut bytes, 72, started.map_or(0, |started| started.since(at)));
        let mut runtime = Runtime {
            at,
            bytes,
            slow: place(&raw const engraft_module_slow),
            start: place(&raw const engraft_module_start),
            entry: place(&raw const engraft_module_entry),
        };
        runtime.set_key(key);
        runtime
    }

    /// Has the module count in the row of this key.
    pub fn set_key(&mut self, key: u128) {
        self.bytes[16..32].copy_from_slice(&key.to_le_bytes());
    }

    /// Has the module make a recording by itself; `header` is where its first bytes are, its name behind them; `notes` is where its notes are.
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
/// `syscall`
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Room for what stands between the two.
const ROOM_BETWEEN: usize = 32;

/// The places where `linker`, which is ld.so, opens files.
pub fn open_sites(linker: &Program) -> Vec<OpenSite> {
    let mut found = Vec::new();
    for block in &linker.blocks {
        let Some(bytes) = linker.image.bytes_in(&block.range()) else { continue };
        if !bytes.windows(SET_NUMBER.len()).any(|w| w == SET_NUMBER) {
            continue;
        }
        let mut decoder = Decoder::new(bytes, block.start);
        let (mut at, mut set) = (0, None);
        while let Some(insn) = decoder.next() {
            let own = bytes.get(at..at + insn.len_bytes()).unwrap_or_default();
            let is_fixed = decoder.position_of(&insn, own) != Position::Anywhere;
            match set {
                _ if own == SET_NUMBER => set = Some(at),
                Some(from) if own == SYSCALL => {
                    let all = &bytes[from..at + SYSCALL.len()];
                    if all.len() <= SET_NUMBER.len() + ROOM_BETWEEN + SYSCALL.len() {
                        found.push(OpenSite { at: block.start.plus(from as u64), bytes: all.to_vec() });
                    }
                    set = None;
                }
                _ if is_fixed => set = None,
                _ => {}
            }
            at += insn.len_bytes();
        }
    }
    found
}

/// Offset of the first instruction of [`open_library`].
pub const OPEN_LIBRARY_ENTRY: u64 = 32;

/// What ld.so runs in place of `site`, which stands at `live` in the process; `paths` and `mailbox` are addresses in the process too.
/// Without a mailbox (0), libraries that are not in the table of paths are opened as they are.
///
/// The table of paths is a row after another: length of the row (4 bytes), where in it the second path starts (4 bytes), the path that
/// is asked for and the path that is passed on, each ended by a zero; the last row has length 0.
pub fn open_library(site: &OpenSite, live: u64, paths: u64, mailbox: u64) -> Vec<u8> {
    let mut code = between(&raw const engraft_open_library, &raw const engraft_open_library_end);
    set(&mut code, 0, live + site.bytes.len() as u64);
    set(&mut code, 8, paths);
    set(&mut code, 16, mailbox);
    let more = &site.bytes[SET_NUMBER.len()..site.bytes.len() - SYSCALL.len()];
    code[32..32 + more.len()].copy_from_slice(more);
    code
}

//! The code of ours that runs inside the program: position-independent, no stack frame but its own, system calls only.
//!
//! Each piece is a run of bytes between two labels; the words at its start are filled in by who copies it.
//!
//! | piece | where | what it does |
//! | --- | --- | --- |
//! | [`Runtime`] | behind the moved code of a counted module | gives a thread its area; in libraries, maps the counters over |
//! | [`open_library`] | beside ld.so, in place of an `openat` | passes on the path of a counted library in place of the plain one |
//!
//! **Areas.** Every module has a *home* for its counters within reach of its code. Thread k counts at home + dₖ, with dₖ in the base of
//! `gs`, the same for all modules; the first thread has d = 0. The first word of a home is the thread pointer of the area's owner. A thread
//! inherits `gs` from the one that made it: so an entry from outside compares the owner with its own thread pointer, and
//! where they differ it comes here. All areas are ranges of the recording, mapped a second time.
//!
//! Invariant: all registers are as they were but those dead at a function's entry (r11, flags), or destroyed by a system call (rax, rcx,
//! r11) where one was about to be made; the red zone is stepped over; no signal is handled while the recording is locked.
//!
//! Source: syscall(2), mremap(2) for mapping a shared range a second time (old size 0), mincore(2) for asking whether one is there;
//! Intel SDM vol. 2B, WRGSBASE.
#![allow(unsafe_code, reason = "the bytes between two labels of this file's assembly are read as statics")]

use program::arch::Decoder;
use program::arch::emit::Position;
use program::{Program, Va};

/// Where a recording is mapped in every process that is counted. No kernel puts anything there by itself.
pub const ARENA: u64 = 0x1f00_0000_0000;
/// First word of a recording.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"ENGRAFT\x02");
/// Offset of the number of modules, 4 bytes; the lock follows, 4 bytes.
pub const N_ROWS: u64 = 8;
/// Offset of the number of areas in use.
pub const N_AREAS: u64 = 16;
/// Offset of the length of an area in bytes.
pub const AREA_LEN: u64 = 24;
/// Offset of how many distances have been tried.
pub const N_TRIED: u64 = 32;
/// Offset of how often a thread had to count into another one's area.
pub const N_SHARED: u64 = 40;
/// Offset of the offset of the table of areas: thread pointer of the owner, distance d.
pub const AREAS_AT: u64 = 48;
/// Offset of the number of areas there is room for.
pub const MAX_AREAS: u64 = 56;
/// Offset of the offset of the first area.
pub const DATA_AT: u64 = 64;
/// Where the table of modules starts: key (16 bytes), offset in an area, length in bytes (whole pages), home in the process or 0.
pub const ROWS_AT: u64 = 128;
/// Bytes a row of that table.
pub const ROW_LEN: u64 = 40;
/// The first word of a module's counters is no counter: it names the owner.
pub const OWNER_LEN: u64 = 8;

std::arch::global_asm!(
    ".pushsection .rodata",
    ".balign 16",
    ".globl engraft_module, engraft_module_slow, engraft_module_start, engraft_module_end",
    "engraft_module:",
    ".quad 0", // 0: the home, from here
    ".quad 0", // 8: the old DT_INIT, from here; 0 if there is none
    ".quad 0, 0", // 16: the module's key
    ".quad -1", // 32: all signals
    //
    // An entry whose area is another thread's. r11: where to go on.
    "engraft_module_slow:",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 16",
    "call 30f", // is there a recording?
    "jnz 29f",
    "call 32f", // lock
    "rdfsbase rbp",
    "mov r12, [rbx + {areas_at}]",
    "add r12, rbx",
    "mov r13, [rbx + {n_areas}]",
    "mov rax, r12",
    "mov rcx, r13",
    "2:", // an area of ours, from a thread that had the same thread pointer before us
    "test rcx, rcx",
    "jz 3f",
    "mov r15, [rax + 8]",
    "cmp [rax], rbp",
    "je 28f",
    "add rax, 16",
    "dec rcx",
    "jmp 2b",
    "3:", // the first area, if nobody has it
    "xor r15d, r15d",
    "cmp qword ptr [r12], 0",
    "jne 4f",
    "mov [r12], rbp",
    "jmp 7f",
    "4:", // a new one
    "mov r14d, 64", // tries
    "cmp r13, [rbx + {max_areas}]",
    "jae 6f",
    "5:",
    "dec r14d",
    "js 6f",
    "inc qword ptr [rbx + {n_tried}]",
    "mov r15, [rbx + {n_tried}]",
    "shl r15, 34", // 16 GiB apart
    "neg r15",
    "call 34f", // map area r13 at distance r15
    "jnz 5b",
    "mov rax, r13",
    "shl rax, 4",
    "mov [r12 + rax], rbp",
    "mov [r12 + rax + 8], r15",
    "inc qword ptr [rbx + {n_areas}]",
    "jmp 7f",
    "6:", // no room: with the first thread
    "xor r15d, r15d",
    "inc qword ptr [rbx + {n_shared}]",
    "jmp 28f",
    "7:", // name the owner
    "mov ecx, [rbx + {n_rows}]",
    "lea rdx, [rbx + {rows_at}]",
    "8:",
    "test ecx, ecx",
    "jz 28f",
    "mov rax, [rdx + 32]",
    "test rax, rax",
    "jz 9f",
    "mov [rax + r15], rbp",
    "9:",
    "add rdx, {row_len}",
    "dec ecx",
    "jmp 8b",
    "28:",
    "wrgsbase r15",
    "call 33f", // unlock
    "29:",
    "add rsp, 16",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "jmp r11",
    //
    // Zero if there is a recording; rbx: its address.
    "30:",
    "mov rdi, {arena}",
    "mov rbx, rdi",
    "mov esi, 4096",
    "lea rdx, [rsp + 8]",
    "mov eax, 27", // mincore
    "syscall",
    "test rax, rax",
    "jnz 31f",
    "mov rax, {magic}",
    "cmp [rbx], rax",
    "31:",
    "ret",
    // No signals, and the lock. The old mask is kept in the caller's 16 bytes.
    "32:",
    "mov eax, 14", // rt_sigprocmask
    "mov edi, 2", // SIG_SETMASK
    "lea rsi, [rip + engraft_module + 32]",
    "lea rdx, [rsp + 8]",
    "mov r10d, 8",
    "syscall",
    "2:",
    "mov ecx, 1",
    "xchg [rbx + {n_rows} + 4], ecx",
    "test ecx, ecx",
    "jz 3f",
    "mov eax, 24", // sched_yield
    "syscall",
    "jmp 2b",
    "3:",
    "ret",
    "33:",
    "mov dword ptr [rbx + {n_rows} + 4], 0",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rsp + 8]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "ret",
    // Maps all homes for area r13 at distance r15; zero if it could be done, else nothing is mapped.
    "34:",
    "push rbp",
    "mov ebp, [rbx + {n_rows}]",
    "lea r8, [rbx + {rows_at}]",
    "2:",
    "test ebp, ebp",
    "jz 5f",
    "cmp qword ptr [r8 + 32], 0",
    "je 3f",
    "call 35f",
    "jnz 4f",
    "3:",
    "add r8, {row_len}",
    "dec ebp",
    "jmp 2b",
    "4:", // take back what was mapped
    "lea rdx, [rbx + {rows_at}]",
    "cmp r8, rdx",
    "jbe 6f",
    "sub r8, {row_len}",
    "mov rdi, [r8 + 32]",
    "test rdi, rdi",
    "jz 4b",
    "add rdi, r15",
    "mov rsi, [r8 + 24]",
    "mov eax, 11", // munmap
    "syscall",
    "jmp 4b",
    "5:",
    "xor eax, eax",
    "pop rbp",
    "ret",
    "6:",
    "or eax, 1",
    "pop rbp",
    "ret",
    // Maps the home of row r8 for area r13 at distance r15, if nothing is there; zero if so.
    "35:",
    "push r8",
    "push r14",
    "mov r14, r8",
    "mov rdi, [r14 + 32]",
    "add rdi, r15",
    "mov rsi, [r14 + 24]",
    "xor edx, edx", // PROT_NONE
    "mov r10d, 0x104022", // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    "mov r8, -1",
    "xor r9d, r9d",
    "mov eax, 9", // mmap
    "syscall",
    "mov rdi, [r14 + 32]",
    "add rdi, r15",
    "cmp rax, rdi",
    "jne 2f",
    "call 36f",
    "cmp rax, r8",
    "2:",
    "pop r14",
    "pop r8",
    "ret",
    // Maps row r14 of area r13 a second time, to rdi.
    "36:",
    "mov r8, rdi",
    "mov rdi, r13",
    "imul rdi, [rbx + {area_len}]",
    "add rdi, [rbx + {data_at}]",
    "add rdi, [r14 + 16]",
    "add rdi, rbx",
    "xor esi, esi",
    "mov rdx, [r14 + 24]",
    "mov r10d, 3", // MREMAP_MAYMOVE | MREMAP_FIXED
    "mov eax, 25", // mremap
    "syscall",
    "ret",
    //
    // In place of DT_INIT.
    "engraft_module_start:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 16",
    "call 30b",
    "jnz 9f",
    "mov ecx, [rbx + {n_rows}]",
    "lea r14, [rbx + {rows_at}]",
    "2:",
    "test ecx, ecx",
    "jz 9f",
    "mov rax, [r14]",
    "cmp rax, [rip + engraft_module + 16]",
    "jne 3f",
    "mov rax, [r14 + 8]",
    "cmp rax, [rip + engraft_module + 24]",
    "je 4f",
    "3:",
    "add r14, {row_len}",
    "dec ecx",
    "jmp 2b",
    "4:",
    "call 32b",
    "lea rbp, [rip + engraft_module]",
    "add rbp, [rip + engraft_module]", // the home
    "mov rdx, [rbx + {data_at}]", // what was counted so far, to the first area
    "add rdx, [r14 + 16]",
    "add rdx, rbx",
    "mov rcx, [r14 + 24]",
    "5:",
    "sub rcx, 8",
    "jbe 6f",
    "mov rax, [rbp + rcx]",
    "add [rdx + rcx], rax",
    "jmp 5b",
    "6:",
    "xor r13d, r13d",
    "mov rdi, rbp",
    "call 36b",
    "mov r12, [rbx + {areas_at}]",
    "add r12, rbx",
    "mov rax, [r12]",
    "mov [rbp], rax",
    "mov rax, [r14 + 32]", // the home it had before it was unloaded
    "mov [r14 + 32], rbp",
    "cmp rax, rbp",
    "je 8f",
    "7:", // the other areas
    "inc r13",
    "add r12, 16",
    "cmp r13, [rbx + {n_areas}]",
    "jae 8f",
    "mov r15, [r12 + 8]",
    "mov r8, r14",
    "call 35b",
    "jnz 71f",
    "mov rax, [r12]",
    "mov [rbp + r15], rax",
    "jmp 7b",
    "71:",
    "inc qword ptr [rbx + {n_shared}]",
    "jmp 7b",
    "8:",
    "call 33b",
    "9:",
    "add rsp, 16",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "mov r11, [rip + engraft_module + 8]",
    "test r11, r11",
    "jz 8f",
    "lea rax, [rip + engraft_module]",
    "add r11, rax",
    "jmp r11",
    "8:",
    "ret",
    "engraft_module_end:",
    //
    ".balign 16",
    ".globl engraft_open_library, engraft_open_library_end",
    "engraft_open_library:",
    ".quad 0", // 0: where to go on
    ".quad 0", // 8: address of the table of paths
    // Entry, at 16: as the number of the call is about to be set; first what stood between that and the call.
    ".fill 32, 1, 0x90",
    // As the `openat` is about to be made.
    "lea rsp, [rsp - 128]",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov r11, [rip + engraft_open_library + 8]",
    "2:",
    "mov ecx, [r11]",
    "test ecx, ecx",
    "jz 9f",
    "lea rdi, [r11 + 8]",
    "mov rsi, [rsp + 8]",
    "3:",
    "mov al, [rsi]",
    "cmp al, [rdi]",
    "jne 4f",
    "inc rsi",
    "inc rdi",
    "test al, al",
    "jnz 3b",
    "mov ecx, [r11 + 4]",
    "add rcx, r11",
    "mov [rsp + 8], rcx",
    "jmp 9f",
    "4:",
    "add r11, rcx",
    "jmp 2b",
    "9:",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "lea rsp, [rsp + 128]",
    "mov eax, 257", // openat
    "syscall",
    "jmp [rip + engraft_open_library]",
    "engraft_open_library_end:",
    ".popsection",
    arena = const ARENA,
    magic = const ARENA_MAGIC,
    n_rows = const N_ROWS,
    n_areas = const N_AREAS,
    area_len = const AREA_LEN,
    n_tried = const N_TRIED,
    n_shared = const N_SHARED,
    areas_at = const AREAS_AT,
    max_areas = const MAX_AREAS,
    data_at = const DATA_AT,
    rows_at = const ROWS_AT,
    row_len = const ROW_LEN,
);

unsafe extern "C" {
    static engraft_module: u8;
    static engraft_module_slow: u8;
    static engraft_module_start: u8;
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
pub struct Runtime {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where a thread goes that is not the owner of its area, with r11 telling where to go on.
    pub slow: Va,
    /// What a library runs in place of DT_INIT.
    pub start: Va,
}

impl Runtime {
    /// Placed at `at`, for counters at `home`.
    pub fn at(at: Va, home: Va, init: Option<Va>, key: u128) -> Runtime {
        let from = &raw const engraft_module;
        let offset = |label: *const u8| label as u64 - from as u64;
        let mut bytes = between(from, &raw const engraft_module_end);
        set(&mut bytes, 0, home.since(at));
        set(&mut bytes, 8, init.map_or(0, |init| init.since(at)));
        bytes[16..32].copy_from_slice(&key.to_le_bytes());
        Runtime {
            bytes,
            slow: at.plus(offset(&raw const engraft_module_slow)),
            start: at.plus(offset(&raw const engraft_module_start)),
        }
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
pub const OPEN_LIBRARY_ENTRY: u64 = 16;

/// What ld.so runs in place of `site`, which stands at `live` in the process; `paths` is an address in the process too.
///
/// The table of paths is a row after another: length of the row (4 bytes), where in it the second path starts (4 bytes), the path that
/// is asked for and the path that is passed on, each ended by a zero; the last row has length 0.
pub fn open_library(site: &OpenSite, live: u64, paths: u64) -> Vec<u8> {
    let mut code = between(&raw const engraft_open_library, &raw const engraft_open_library_end);
    set(&mut code, 0, live + site.bytes.len() as u64);
    set(&mut code, 8, paths);
    let more = &site.bytes[SET_NUMBER.len()..site.bytes.len() - SYSCALL.len()];
    code[16..16 + more.len()].copy_from_slice(more);
    code
}

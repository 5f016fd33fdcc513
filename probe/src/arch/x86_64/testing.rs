//! Code of ours, called in this process with registers and memory of a test's.

use nix::libc;
use std::arch::global_asm;
use std::fmt::Debug;
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

global_asm!(
    include_str!("testing/call.s"),
    scratch = const offset_of!(Registers, scratch),
    flags = const offset_of!(Registers, flags),
    gs = const offset_of!(Registers, gs),
);

unsafe extern "C" {
    fn engraft_test_call(registers: *mut Registers, target: u64);
}

/// Registers, flags and the base of gs: before a call, and after it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub flags: u64,
    pub gs: u64,
    /// The caller's 16 bytes, above the return address.
    pub scratch: [u64; 2],
}

impl Registers {
    /// What the flags say.
    pub fn is_zero(&self) -> bool {
        self.flags & 0x40 != 0
    }

    pub fn is_negative(&self) -> bool {
        self.flags & 0x80 != 0
    }

    /// Without what every entry may change: flags.
    pub fn kept(self) -> Registers {
        Registers { flags: 0, ..self }
    }
}

static ALONE: Mutex<()> = Mutex::new(());

/// Held by who uses what there is once in a process: fixed addresses, and the stack of [`call`].
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls code with these registers, flags and base of gs; what they are when it returns. Its caller is
/// [`alone`].
pub fn call(target: u64, mut registers: Registers) -> Registers {
    // SAFETY: tests give the address of code that they have put into memory of theirs.
    unsafe { engraft_test_call(&raw mut registers, target) };
    registers
}

/// Maps memory of any use at `at`, or anywhere if that is 0.
pub fn map(at: u64, len: u64, kind: i32) -> u64 {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let len = usize::try_from(len).expect("small");
    // SAFETY: it replaces nothing.
    let got =
        unsafe { libc::mmap(at as *mut libc::c_void, len, all, kind | libc::MAP_ANONYMOUS | fixed, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{at:#x}: {}", std::io::Error::last_os_error());
    got as u64
}

/// Unmaps what [`map`] has mapped.
pub fn unmap(at: u64, len: u64) {
    // SAFETY: tests give what they have mapped, of which nobody has references.
    unsafe { libc::munmap(at as *mut libc::c_void, usize::try_from(len).expect("small")) };
}

/// What is at an address.
pub fn read<T: Copy>(at: u64) -> T {
    // SAFETY: tests give addresses of memory that they have mapped.
    unsafe { (at as *const T).read_unaligned() }
}

/// Puts it there.
pub fn write<T>(at: u64, value: T) {
    // SAFETY: as above.
    unsafe { (at as *mut T).write_unaligned(value) }
}

/// As `assert_eq`, of values that are copied.
#[track_caller]
pub fn check<T: PartialEq + Debug>(got: T, want: T) {
    assert_eq!(got, want);
}

/// What `f` says in a child of fork, which has a copy of all that is here.
pub fn in_child(f: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child allocates, which the C library has made possible, and ends by `_exit`.
    match unsafe { nix::unistd::fork() }.expect("a child") {
        nix::unistd::ForkResult::Child => {
            let said = f();
            // SAFETY: it runs nothing of this process' ends.
            unsafe { libc::_exit(i32::from(said)) }
        }
        nix::unistd::ForkResult::Parent { child } => match nix::sys::wait::waitpid(child, None) {
            Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => u8::try_from(code).expect("eight bits"),
            other => panic!("the child ended by {other:?}"),
        },
    }
}

/// The number of a process that is no more.
pub fn dead_process() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("started");
    child.wait().expect("waited for");
    child.id()
}

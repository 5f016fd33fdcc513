//! Memory of files that other processes share: words to sleep on, bytes to take out.

use nix::libc::{self, c_void};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A word of a file's memory that others share, to sleep on until it changes.
#[derive(Debug)]
pub struct SharedWord {
    page: NonNull<c_void>,
}

// SAFETY: the address is only ever handed to the kernel.
unsafe impl Send for SharedWord {}
// SAFETY: as above.
unsafe impl Sync for SharedWord {}

const PAGE: NonZeroUsize = NonZeroUsize::new(0x1000).expect("not zero");

impl SharedWord {
    /// The first word of the page at `offset` of `file`.
    ///
    /// # Errors
    /// The kernel's, if it cannot be mapped.
    pub fn map(file: &File, offset: u64) -> io::Result<SharedWord> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping where nothing is; it is read and written through this address by atomic
        // instructions alone.
        let page = unsafe { mmap(None, PAGE, both, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(SharedWord { page })
    }

    /// Takes a lock at `offset` of the page, until [`SharedWord::let_go`]. The kernel marks it (bit 30 of its
    /// first word) when this thread ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold(&self, offset: usize) -> io::Result<()> {
        assert!(offset.is_multiple_of(8) && offset + size_of::<libc::pthread_mutex_t>() <= PAGE.get());
        let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        let lock = self.page.as_ptr().wrapping_byte_add(offset).cast::<libc::pthread_mutex_t>();
        let mut kind = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let kind = kind.as_mut_ptr();
        // SAFETY: `kind` is ours; of glibc, it owns nothing that would have to be given back.
        check(unsafe { libc::pthread_mutexattr_init(kind) })?;
        // SAFETY: `kind` was initialised.
        check(unsafe { libc::pthread_mutexattr_setpshared(kind, libc::PTHREAD_PROCESS_SHARED) })?;
        // SAFETY: as above.
        check(unsafe { libc::pthread_mutexattr_setrobust(kind, libc::PTHREAD_MUTEX_ROBUST) })?;
        // SAFETY: the lock lies in the page, aligned, and nobody else initialises it.
        check(unsafe { libc::pthread_mutex_init(lock, kind) })?;
        // SAFETY: it was initialised, and the page stays mapped as long as we live.
        check(unsafe { libc::pthread_mutex_lock(lock) })
    }

    /// Lets the lock go again that this thread holds at `offset`: before the page goes, which the kernel
    /// would look for when this thread ends.
    pub fn let_go(&self, offset: usize) {
        assert!(offset.is_multiple_of(8) && offset + size_of::<libc::pthread_mutex_t>() <= PAGE.get());
        let lock = self.page.as_ptr().wrapping_byte_add(offset).cast::<libc::pthread_mutex_t>();
        // SAFETY: it was initialised by `hold`, and the page is mapped as long as we live.
        let _held = unsafe { libc::pthread_mutex_unlock(lock) };
    }

    /// Sleeps until somebody wakes us, if the word is `expected`; not longer than `at_most`.
    pub fn sleep(&self, expected: u32, at_most: Duration) {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // SAFETY: the word is mapped as long as we live, and `time` as long as the call lasts.
        let _woken = unsafe {
            libc::syscall(libc::SYS_futex, self.page.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time)
        };
    }

    /// Wakes all who sleep on it.
    pub fn wake(&self) {
        self.wake_at(0);
    }

    /// Wakes all who sleep on the word at `offset`.
    pub fn wake_at(&self, offset: usize) {
        let word = self.word(offset).as_ptr();
        // SAFETY: the word is mapped as long as we live.
        let _woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// The word at `offset` of the page.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < PAGE.get());
        let word = self.page.as_ptr().wrapping_byte_add(offset).cast::<u32>();
        // SAFETY: it lies in the page, aligned, and is mapped as long as we live; other processes change it
        // by atomic instructions.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nobody has the address but us.
        let _unmapped = unsafe { munmap(self.page, PAGE.get()) };
    }
}

/// Memory of a file that others share, which is taken out of it.
#[derive(Debug)]
pub struct SharedBytes {
    start: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: it is read and written by atomic instructions alone.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// So many bytes, whole pages, at `offset` of `file`.
    ///
    /// # Errors
    /// The kernel's, if it cannot be mapped.
    pub fn map(file: &File, offset: u64, len: u64) -> io::Result<SharedBytes> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let len = NonZeroUsize::new(len).ok_or_else(|| io::Error::other("nothing to map"))?;
        // SAFETY: a new mapping where nothing is; it is read and written through this address by atomic
        // instructions alone.
        let start = unsafe { mmap(None, len, both, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(SharedBytes { start, len })
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Writes the word at `at`, a multiple of 8: who sees it sees that all before was read.
    pub fn set(&self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.len.get()));
        let place = self.start.as_ptr().wrapping_byte_add(at).cast::<u64>();
        // SAFETY: it lies in the mapping, aligned, and is mapped as long as we live.
        unsafe { AtomicU64::from_ptr(place) }.store(word, Ordering::Release);
    }

    /// Moves the bytes from `at` on, a multiple of 8, to `to`, and leaves zeros; `to` is of whole words of 8
    /// bytes.
    pub fn take(&self, at: usize, to: &mut [u8]) {
        assert!(at.is_multiple_of(8) && at.checked_add(to.len()).is_some_and(|end| end <= self.len.get()));
        for (n, to) in to.chunks_exact_mut(8).enumerate() {
            let word = self.start.as_ptr().wrapping_byte_add(at + 8 * n).cast::<u64>();
            // SAFETY: it lies in the mapping, aligned, and is mapped as long as we live.
            let word = unsafe { AtomicU64::from_ptr(word) };
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Copies the bytes from `at` on, a multiple of 8, to `to`, of whole words of 8 bytes, the last first: of
    /// two that somebody writes in order meanwhile, there is not the second alone.
    pub fn look(&self, at: usize, to: &mut [u8]) {
        assert!(at.is_multiple_of(8) && to.len().is_multiple_of(8));
        assert!(at.checked_add(to.len()).is_some_and(|end| end <= self.len.get()));
        for (n, to) in to.chunks_exact_mut(8).enumerate().rev() {
            let word = self.start.as_ptr().wrapping_byte_add(at + 8 * n).cast::<u64>();
            // SAFETY: it lies in the mapping, aligned, and is mapped as long as we live.
            let word = unsafe { AtomicU64::from_ptr(word) };
            to.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nobody has the address but us.
        let _unmapped = unsafe { munmap(self.start, self.len.get()) };
    }
}

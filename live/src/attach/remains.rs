//! Who still needs moved code: threads in it, and words on stacks and elsewhere that lead there: return
//! addresses, signal handlers' ways back, contexts that were put away, those of `setjmp` as they are kept.
//!
//! Words on stacks of threads that are return addresses in moved code are made the same in old code: those
//! that are used again lead back at once, however long the thread sleeps, and those that calls have left
//! behind are nobody's. A number that happens to be one of these addresses is not likely: they are a few in
//! some 2⁴⁷, or, of a program that is loaded low, in 2³¹, where nothing counts that far.
//!
//! Source: glibc 2.36, sysdeps/unix/sysv/linux/x86_64/pointer_guard.h, for how `setjmp` keeps addresses.

use super::AttachError;
use super::journal::{PutIn, Word};
use super::threads::Threads;
use crate::arch;
use crate::process::{Mapping, Stopped, own_number};
use nix::unistd::Pid;
use probe::arch::shared::{ARENA, FINDER, FINDER_LEN, JOURNAL};
use program::LiveVa;
use std::fmt;
use std::ops::Range;

/// Something that leads to moved code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// A thread is in it.
    Thread(Pid),
    /// A register of a thread leads there.
    Register(Pid),
    /// A signal handler returns there.
    Handler(LiveVa),
    /// A word on a thread's stack does.
    Stack(Pid, LiveVa),
    /// A word elsewhere does.
    Word(LiveVa),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Thread(tid) => write!(f, "thread {tid} is in moved code"),
            Held::Register(tid) => write!(f, "a register of thread {tid} leads to moved code"),
            Held::Handler(at) => write!(f, "a signal handler returns to moved code, by {at}"),
            Held::Stack(tid, at) => write!(f, "the stack of thread {tid} leads to moved code, at {at}"),
            Held::Word(at) => write!(f, "a context that is kept at {at} may lead to moved code"),
        }
    }
}

/// What words lead to moved code, as they are or as `setjmp` keeps them.
struct Ranges<'a> {
    modules: &'a [PutIn],
    /// What `setjmp` changes addresses with.
    guard: u64,
    /// Whether they are on a stack, or in a register.
    is_stack: bool,
    /// All moved code is in here, with what else there may be.
    hull: Range<u64>,
}

/// How far `setjmp` turns what it keeps.
const TURN: u32 = 17;

impl Ranges<'_> {
    fn of<'a>(modules: &'a [PutIn], stopped: &Stopped, thread_pointer: u64) -> Ranges<'a> {
        // Where there is none, a number that nothing is kept with.
        let guard = stopped.word(LiveVa(thread_pointer.wrapping_add(0x30))).unwrap_or(0);
        Ranges::guarded_by(modules, guard)
    }

    fn guarded_by(modules: &[PutIn], guard: u64) -> Ranges<'_> {
        let start = modules.iter().map(|module| module.text().start).min().unwrap_or(0);
        let end = modules.iter().map(|module| module.text().end).max().unwrap_or(0);
        Ranges { modules, guard, is_stack: true, hull: start..end }
    }

    /// Whether `at` is in moved code, or other code of ours.
    fn contains(&self, at: u64) -> bool {
        (FINDER..FINDER + FINDER_LEN).contains(&at)
            || self.modules.iter().any(|module| module.text().contains(&at))
    }

    /// Whether a word that is kept may be used to go there. On stacks, of who is in the middle of an
    /// exception, it may be looked up, too, or be of what was found; but not where addresses are like numbers
    /// and letters.
    fn has(&self, word: u64) -> bool {
        let is_of = |word: u64| {
            self.is_stack && ((FINDER..FINDER + FINDER_LEN).contains(&word) || is_found(self.modules, word))
                || self.hull.contains(&word) && self.modules.iter().any(|module| may_be_kept(module, word))
        };
        is_of(word) || is_of(word.rotate_right(TURN) ^ self.guard)
    }

    /// The first word of `bytes`, which start at `at`, that leads there.
    fn first_in(&self, bytes: &[u8], at: u64) -> Option<LiveVa> {
        let words = bytes.as_chunks::<8>().0;
        let found = words.iter().position(|word| self.has(u64::from_le_bytes(*word)))?;
        Some(LiveVa(at + 8 * found as u64))
    }
}

/// Below, numbers and letters are what addresses are.
const LIKE_NUMBERS: u64 = 1 << 32;

/// Has the stacks of `threads` lead back to old code.
pub(super) fn lead_back_stacks(
    stopped: &Stopped,
    mappings: &[Mapping],
    modules: &[PutIn],
    threads: &Threads,
) -> Result<(), AttachError> {
    for thread in &threads.all {
        let guard = Ranges::of(modules, stopped, arch::thread_pointer(&thread.regs)).guard;
        let Some((from, bytes)) = stack_of(stopped, mappings, arch::stack_pointer(&thread.regs))? else {
            continue;
        };
        // Who is in the middle of an exception has looked up where one of these addresses is.
        let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let is_used = |word: u64| is_found(modules, word);
        if words().any(is_used) || arch::words(&thread.regs).into_iter().any(|word| is_led(modules, word)) {
            continue;
        }
        for (at, word) in (from..).step_by(8).zip(bytes.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*word);
            let plain = old_return(modules, word);
            let kept = || old_return(modules, word.rotate_right(TURN) ^ guard);
            let new = plain.or_else(|| kept().map(|old| (old ^ guard).rotate_left(TURN)));
            if let Some(new) = new {
                stopped.write(LiveVa(at), &new.to_le_bytes())?;
            }
        }
    }
    Ok(())
}

/// Whether `word` leads into `module`, to where somebody may keep it to go there.
fn may_be_kept(module: &PutIn, word: u64) -> bool {
    let text = module.text();
    text.contains(&word) && u32::try_from(word - text.start).is_ok_and(|new| module.running.may_be_kept(new))
}

/// Whether `word` is what an unwinder has looked up or found: a place right before one where calls come back,
/// the start of a function, something in its tables.
fn is_found(modules: &[PutIn], word: u64) -> bool {
    let is_of = |module: &PutIn| {
        let text = module.text();
        let is_start = |word: u64| {
            let new = word.checked_sub(text.start).and_then(|new| u32::try_from(new).ok());
            new.is_some_and(|new| {
                module.running.may_be_kept(new) && module.running.returns.binary_search(&new).is_err()
            })
        };
        let is_before = |word: u64| {
            let new = (word + 1).checked_sub(text.start).and_then(|new| u32::try_from(new).ok());
            new.is_some_and(|new| module.running.returns.binary_search(&new).is_ok())
        };
        module.tables().contains(&word) || text.contains(&word) && (is_start(word) || is_before(word))
    };
    word >= LIKE_NUMBERS && modules.iter().any(is_of)
}

/// Whether `word` leads to code or tables of ours.
fn is_led(modules: &[PutIn], word: u64) -> bool {
    modules.iter().any(|module| module.text().contains(&word) || module.tables().contains(&word))
}

/// Where a call comes back in old code that comes back at `word` in moved code.
fn old_return(modules: &[PutIn], word: u64) -> Option<u64> {
    let module = modules.iter().find(|module| module.text().contains(&word))?;
    let new = u32::try_from(word - module.text().start).ok()?;
    module.running.returns.binary_search(&new).ok()?;
    let old = module.running.given_back(new)?;
    Some(module.live(module.running.old_at) + u64::from(old))
}

/// What is kept on the stack whose pointer is `sp`, and from where on.
fn stack_of(stopped: &Stopped, mappings: &[Mapping], sp: u64) -> Result<Option<(u64, Vec<u8>)>, AttachError> {
    // No address of code is kept below.
    let sp = sp / 8 * 8;
    let stack = mappings.iter().find(|m| m.range.start.0 <= sp && sp < m.range.end.0 && m.writable);
    let Some(stack) = stack else { return Ok(None) };
    let mut bytes = vec![0; usize::try_from(stack.range.end.0 - sp).unwrap_or(0)];
    stopped.read(LiveVa(sp), &mut bytes)?;
    Ok(Some((sp, bytes)))
}

/// What of the `threads`, their registers and their stacks leads to moved code.
pub(super) fn by_threads(
    stopped: &Stopped,
    mappings: &[Mapping],
    modules: &[PutIn],
    threads: &Threads,
) -> Result<Option<Held>, AttachError> {
    for thread in &threads.all {
        let ranges = Ranges::of(modules, stopped, arch::thread_pointer(&thread.regs));
        if ranges.contains(arch::instruction_pointer(&thread.regs)) {
            return Ok(Some(Held::Thread(thread.pid)));
        }
        if arch::words(&thread.regs).into_iter().any(|word| ranges.contains(word)) {
            return Ok(Some(Held::Register(thread.pid)));
        }
        let sp = arch::stack_pointer(&thread.regs);
        let Some((sp, bytes)) = stack_of(stopped, mappings, sp)? else { continue };
        if let Some(at) = ranges.first_in(&bytes, sp) {
            return Ok(Some(Held::Stack(thread.pid, at)));
        }
    }
    Ok(None)
}

/// How much of the stack below what is kept may hold addresses of calls that are over.
const DEAD: u64 = 1 << 16;

/// Takes away what calls that are over have left below the stacks of `threads`: it would come to lie in
/// frames to come, and look as if somebody needed it.
pub(super) fn clear_dead_stack(
    stopped: &Stopped,
    mappings: &[Mapping],
    modules: &[PutIn],
    threads: &Threads,
) -> Result<(), AttachError> {
    let ranges = Ranges::guarded_by(modules, 0);
    for thread in &threads.all {
        let end = arch::stack_pointer(&thread.regs).saturating_sub(arch::RED_ZONE) / 8 * 8;
        let Some(stack) = mappings.iter().find(|m| m.range.start.0 < end && end <= m.range.end.0) else {
            continue;
        };
        let from = stack.range.start.0.max(end.saturating_sub(DEAD));
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        stopped.read(LiveVa(from), &mut bytes)?;
        let mut done = 0;
        while let Some(at) = ranges.first_in(&bytes[done..], from + done as u64) {
            stopped.write(at, &[0; 8])?;
            done = usize::try_from(at.0 - from).unwrap_or(0) + 8;
        }
    }
    Ok(())
}

/// What is known of threads that go on again.
pub(super) struct Known {
    pub(super) threads: Vec<Pid>,
    /// Their stack pointers: below them, nothing is kept on their stacks.
    stacks: Vec<u64>,
    thread_pointer: u64,
    /// Stacks on which signals are handled, and none is: nothing is kept there.
    pub(super) idle_stacks: Vec<Range<u64>>,
}

/// What is known of `threads`.
pub(super) fn known(threads: &Threads) -> Known {
    Known {
        threads: threads.all.iter().map(|thread| thread.pid).collect(),
        stacks: threads.all.iter().map(|thread| arch::stack_pointer(&thread.regs)).collect(),
        thread_pointer: threads.all.first().map_or(0, |thread| arch::thread_pointer(&thread.regs)),
        idle_stacks: Vec::new(),
    }
}

/// Where glibc keeps the number of a thread, from its thread pointer, and how much is looked through for
/// that.
///
/// Source: glibc 2.36, nptl/descr.h (`struct pthread`), sysdeps/x86_64/nptl/tls.h (`tcbhead_t`).
const TID: usize = 720;
const SELF: usize = 16;
const DESCRIPTORS: u64 = 1 << 16;

/// How much of a mapping, from its start, is the stack of a thread that is no more, be it that the process
/// was forked by another one: calls that were made there will not come back.
fn dead_part(stopped: &Stopped, mapping: &Mapping, threads: &[Pid], stacks: &[u64]) -> u64 {
    let range = mapping.range.start.0..mapping.range.end.0;
    if stacks.iter().any(|sp| range.contains(sp)) {
        return 0;
    }
    if mapping.name.as_deref() == Some("[stack]") {
        return range.end - range.start;
    }
    let from = range.start.max(range.end.saturating_sub(DESCRIPTORS));
    let mut bytes = vec![0; usize::try_from(range.end - from).unwrap_or(0)];
    if stopped.read(LiveVa(from), &mut bytes).is_err() {
        return 0;
    }
    let word = |n: usize| Some(u64::from_le_bytes(*bytes.get(n..)?.first_chunk()?));
    // What says twice where it is describes a thread.
    let is_thread = |n: &usize| {
        let at = from + *n as u64;
        word(*n) == Some(at) && word(n + SELF) == Some(at)
    };
    let found = (0..bytes.len()).step_by(64).find(is_thread);
    let number =
        |n: usize| bytes.get(n + TID..).and_then(|b| b.first_chunk()).map(|b| i32::from_le_bytes(*b));
    match found.and_then(|n| Some((n, number(n)?))) {
        Some((n, number)) if !threads.contains(&Pid::from_raw(number)) => from + n as u64 - range.start,
        _ => 0,
    }
}

/// So many bytes are looked at together.
const PIECE: usize = 1 << 20;

/// What of all memory that the process may write leads to moved code. It goes on meanwhile.
pub(super) fn in_memory(
    stopped: &Stopped,
    modules: &[PutIn],
    known: &Known,
    linker: &[Word],
) -> Result<Option<Held>, AttachError> {
    let Known { threads, stacks, thread_pointer, idle_stacks } = known;
    // The C library knows them by their numbers where the process is.
    let own = |tid: &Pid| own_number(tid.as_raw()).map_or(*tid, |(_, own)| Pid::from_raw(own));
    let threads: &Vec<Pid> = &threads.iter().map(own).collect();
    let mut ranges = Ranges::of(modules, stopped, *thread_pointer);
    ranges.is_stack = false;
    let is_ours = |m: &Range<LiveVa>| {
        (JOURNAL..ARENA + (1 << 44)).contains(&m.start.0)
            || modules.iter().any(|module| {
                let segments = &module.segments;
                let own = module.live(segments.counters_at)..module.text().end;
                own.contains(&m.start.0)
            })
    };
    let mut bytes = vec![0; PIECE];
    for mapping in stopped.mappings()?.into_iter().filter(|m| m.writable && !is_ours(&m.range)) {
        let mut at = mapping.range.start.0 + dead_part(stopped, &mapping, threads, stacks);
        if let Some(sp) = stacks.iter().find(|sp| (mapping.range.start.0..mapping.range.end.0).contains(*sp))
        {
            at = at.max(sp / 8 * 8);
        }
        while at < mapping.range.end.0 {
            let len = usize::try_from(mapping.range.end.0 - at).unwrap_or(PIECE).min(PIECE);
            let Some(piece) = bytes.get_mut(..len) else { break };
            // What is unmapped meanwhile, or is a device's, leads nowhere.
            if stopped.read(LiveVa(at), piece).is_err() {
                break;
            }
            // What ld.so knows of us is taken away last.
            let of_linker = linker.iter().map(|word| word.at / 8 * 8..word.at / 8 * 8 + 8);
            for range in of_linker.chain(idle_stacks.iter().cloned()) {
                let place = |to: u64| usize::try_from(to.saturating_sub(at)).unwrap_or(len).min(len);
                piece[place(range.start)..place(range.end)].fill(0);
            }
            if let Some(found) = ranges.first_in(piece, at) {
                return Ok(Some(Held::Word(found)));
            }
            at += len as u64;
        }
    }
    Ok(None)
}

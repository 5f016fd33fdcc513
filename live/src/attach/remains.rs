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
use super::journal::{Journal, PutGraft, PutIn};
use super::stacks::{self, Kept, Stack};
use super::threads::Threads;
use crate::arch;
use crate::process::{Mapping, Stopped, own_number};
use nix::unistd::Pid;
use probe::arch::shared::{ARENA, FINDER, FINDER_LEN, JOURNAL};
use program::LiveVa;
use std::fmt;
use std::ops::{ControlFlow, Range};

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
    grafts: &'a [PutGraft],
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
    fn of<'a>(journal: &'a Journal, stopped: &Stopped, thread_pointer: u64) -> Ranges<'a> {
        // Where there is none, a number that nothing is kept with.
        let guard = stopped.word(LiveVa(thread_pointer.wrapping_add(0x30))).unwrap_or(0);
        Ranges::guarded_by(journal, guard)
    }

    fn guarded_by(journal: &Journal, guard: u64) -> Ranges<'_> {
        let Journal { modules, grafts, .. } = journal;
        let start = modules.iter().map(|module| module.text().start).min().unwrap_or(0);
        let end = modules.iter().map(|module| module.text().end).max().unwrap_or(0);
        Ranges { modules, grafts, guard, is_stack: true, hull: start..end }
    }

    /// Whether `at` is in moved code, or other code of ours.
    fn contains(&self, at: u64) -> bool {
        (FINDER..FINDER + FINDER_LEN).contains(&at)
            || self.modules.iter().any(|module| module.text().contains(&at))
            || self.grafts.iter().any(|graft| graft.contains(at))
    }

    /// Whether a word that is kept may be used to go there. On stacks, of who is in the middle of an
    /// exception, it may be looked up, too, or be of what was found; but not where addresses are like numbers
    /// and letters.
    fn has(&self, word: u64) -> bool {
        let is_of = |word: u64| {
            let is_of_stack = || {
                (FINDER..FINDER + FINDER_LEN).contains(&word)
                    || is_found(self.modules, word)
                    || self.grafts.iter().any(|graft| graft.code.contains(&word))
            };
            self.is_stack && is_of_stack()
                || self.hull.contains(&word) && self.modules.iter().any(|module| may_be_kept(module, word))
        };
        is_of(word) || is_of(word.rotate_right(TURN) ^ self.guard)
    }

    /// The words of `bytes`, which start at `at`, that lead there, with where each is.
    fn all_in<'b>(&'b self, bytes: &'b [u8], at: u64) -> impl Iterator<Item = (LiveVa, u64)> + 'b {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let places = (at..).step_by(8).map(LiveVa);
        places.zip(words).filter(|(_, word)| self.has(*word))
    }
}

/// Below, numbers and letters are what addresses are.
const LIKE_NUMBERS: u64 = 1 << 32;

/// Has the stacks of `threads`, all that is `kept` on them, lead back to old code.
pub(super) fn lead_back_stacks(
    stopped: &Stopped,
    journal: &Journal,
    threads: &Threads,
    kept: &mut Kept,
) -> Result<(), AttachError> {
    let modules = &journal.modules;
    for thread in &threads.all {
        let guard = Ranges::of(journal, stopped, arch::thread_pointer(&thread.regs)).guard;
        let own = || kept.stacks.iter().filter(|stack| stack.thread == thread.pid);
        // Who is in the middle of an exception has looked up where one of these addresses is.
        let is_used = own().flat_map(Stack::words).any(|(_, word)| is_found(modules, word));
        if is_used || arch::words(&thread.regs).into_iter().any(|word| is_led(modules, word)) {
            continue;
        }
        let changed = own()
            .flat_map(Stack::words)
            .filter_map(|(at, word)| Some((at, old_return_kept(modules, word, guard)?)));
        for (at, new) in changed.collect::<Vec<_>>() {
            kept.write(stopped, at, new)?;
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
                module.running.may_be_kept(new) && module.running.returned_to(new).is_none()
            })
        };
        let is_before = |word: u64| {
            let new = (word + 1).checked_sub(text.start).and_then(|new| u32::try_from(new).ok());
            new.is_some_and(|new| module.running.returned_to(new).is_some())
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
    let old = module.running.returned_to(new)?;
    Some(module.live(module.running.old_at) + u64::from(old))
}

/// What of the `threads`, their registers and what is `kept` on their stacks leads to moved code.
pub(super) fn by_threads(
    stopped: &Stopped,
    journal: &Journal,
    threads: &Threads,
    kept: &Kept,
) -> Option<Held> {
    for thread in &threads.all {
        let ranges = Ranges::of(journal, stopped, arch::thread_pointer(&thread.regs));
        if ranges.contains(arch::instruction_pointer(&thread.regs)) {
            return Some(Held::Thread(thread.pid));
        }
        if arch::words(&thread.regs).into_iter().any(|word| ranges.contains(word)) {
            return Some(Held::Register(thread.pid));
        }
    }
    kept.stacks.iter().find_map(|stack| {
        let ranges = Ranges::of(journal, stopped, stack.thread_pointer);
        Some(Held::Stack(stack.thread, ranges.all_in(&stack.bytes, stack.from).next()?.0))
    })
}

/// What stands for the same in old code, where `word` is an address at which a call comes back in moved code:
/// as it is, or as `setjmp` keeps it, with `guard`.
fn old_return_kept(modules: &[PutIn], word: u64, guard: u64) -> Option<u64> {
    let kept = || old_return(modules, word.rotate_right(TURN) ^ guard);
    old_return(modules, word).or_else(|| kept().map(|old| (old ^ guard).rotate_left(TURN)))
}

/// Has contexts that were put away at these places, and by which calls come back to moved code, lead back to
/// old code: those of coroutines, and what `setjmp` keeps. Nobody runs meanwhile.
pub(super) fn lead_back_contexts(
    stopped: &Stopped,
    journal: &Journal,
    known: &Known,
    contexts: &[LiveVa],
) -> Result<(), AttachError> {
    let guard = Ranges::of(journal, stopped, known.thread_pointer).guard;
    for at in contexts {
        // What it was may be gone since.
        let Ok(word) = stopped.word(*at) else { continue };
        if let Some(old) = old_return_kept(&journal.modules, word, guard) {
            stopped.write(*at, &old.to_le_bytes())?;
        }
    }
    Ok(())
}

/// How much of the stack below what is kept may hold addresses of calls that are over.
const DEAD: u64 = 1 << 16;

/// Has what calls that are over have left below the stacks of `threads` lead back to old code: it would come
/// to lie in frames to come, and look as if somebody needed it. Where a stack of another is right below, that
/// is as good there.
pub(super) fn lead_back_dead_stacks(
    stopped: &Stopped,
    mappings: &[Mapping],
    journal: &Journal,
    threads: &Threads,
) -> Result<(), AttachError> {
    let modules = &journal.modules;
    for thread in &threads.all {
        let end = arch::stack_pointer(&thread.regs).saturating_sub(arch::RED_ZONE) / 8 * 8;
        let Some(stack) = mappings.iter().find(|m| m.range.start.0 < end && end <= m.range.end.0) else {
            continue;
        };
        let from = stack.range.start.0.max(end.saturating_sub(DEAD));
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        // Below a stack, there may be pages that cannot be read.
        if stopped.read(LiveVa(from), &mut bytes).is_err() {
            continue;
        }
        let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        // Who is in the middle of an exception there has looked up where one of these addresses is.
        if !stacks::is_stack(mappings, stack) && words().any(|word| is_found(modules, word)) {
            continue;
        }
        for (at, word) in (from..).step_by(8).zip(words()) {
            if let Some(old) = old_place(modules, word) {
                stopped.write(LiveVa(at), &old.to_le_bytes())?;
            }
        }
    }
    Ok(())
}

/// Where in old code the place is that `word` leads to in moved code, if somebody may keep it to go there.
fn old_place(modules: &[PutIn], word: u64) -> Option<u64> {
    let module = modules.iter().find(|module| may_be_kept(module, word))?;
    let new = u32::try_from(word - module.text().start).ok()?;
    let old = module.running.given_back(new)?;
    Some(module.live(module.running.old_at) + u64::from(old))
}

/// What is known of threads that go on again.
pub(super) struct Known {
    pub(super) threads: Vec<Pid>,
    /// Their stack pointers, where they are on a stack that is nothing else: below them, nothing is kept.
    stacks: Vec<u64>,
    /// Whether nobody uses the stack any more that the process started with.
    is_first_stack_dead: bool,
    thread_pointer: u64,
    /// Stacks on which signals are handled, and none is: nothing is kept there.
    pub(super) idle_stacks: Vec<Range<u64>>,
}

impl Known {
    /// The same, where nothing is kept on these stacks.
    pub(super) fn without(&self, idle_stacks: Vec<Range<u64>>) -> Known {
        Known {
            threads: self.threads.clone(),
            stacks: self.stacks.clone(),
            is_first_stack_dead: self.is_first_stack_dead,
            thread_pointer: self.thread_pointer,
            idle_stacks,
        }
    }

    /// Nothing: all of a process's memory may be kept.
    pub(super) fn nothing() -> Known {
        Known {
            threads: Vec::new(),
            stacks: Vec::new(),
            is_first_stack_dead: false,
            thread_pointer: 0,
            idle_stacks: Vec::new(),
        }
    }
}

/// What is known of `threads`, which have this `kept`.
pub(super) fn known(mappings: &[Mapping], threads: &Threads, kept: &Kept) -> Known {
    let is_on_stack = |sp: &u64| {
        let mapping = mappings.iter().find(|m| m.range.contains(&LiveVa(*sp)));
        mapping.is_some_and(|mapping| stacks::is_stack(mappings, mapping))
    };
    let stack_pointers = threads.all.iter().map(|thread| arch::stack_pointer(&thread.regs));
    Known {
        threads: threads.all.iter().map(|thread| thread.pid).collect(),
        stacks: stack_pointers.filter(is_on_stack).collect(),
        is_first_stack_dead: kept.is_first_stack_dead,
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
fn dead_part(stopped: &Stopped, mapping: &Mapping, threads: &[Pid], known: &Known) -> u64 {
    let range = mapping.range.start.0..mapping.range.end.0;
    if known.stacks.iter().any(|sp| range.contains(sp)) {
        return 0;
    }
    if mapping.name.as_deref() == Some("[stack]") {
        return if known.is_first_stack_dead { range.end - range.start } else { 0 };
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

/// No more contexts are led back at once.
const MOST_CONTEXTS: usize = 1 << 16;

/// What of all memory that the process may write leads to moved code; and where calls come back there, in
/// what was put away. It goes on meanwhile.
pub(super) fn in_memory(
    stopped: &Stopped,
    journal: &Journal,
    known: &Known,
) -> Result<(Option<Held>, Vec<LiveVa>), AttachError> {
    let mut ranges = Ranges::of(journal, stopped, known.thread_pointer);
    ranges.is_stack = false;
    let (mut held, mut contexts) = (None, Vec::new());
    all_memory(stopped, journal, known, |bytes, at| {
        for found in ranges.all_in(bytes, at) {
            held.get_or_insert(Held::Word(found.0));
            let is_context = old_return_kept(&journal.modules, found.1, ranges.guard).is_some();
            if !is_context || contexts.len() == MOST_CONTEXTS {
                return ControlFlow::Break(());
            }
            contexts.push(found.0);
        }
        ControlFlow::Continue(())
    })?;
    Ok((held, contexts))
}

/// The first word in all memory that the process may write that leads to code of other files which was put
/// into it, or to data of that: somebody may have kept it.
pub(super) fn of_grafts(
    stopped: &Stopped,
    journal: &Journal,
    known: &Known,
) -> Result<Option<LiveVa>, AttachError> {
    let mut found = None;
    all_memory(stopped, journal, known, |bytes, at| {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let is_one = |(_, word): &(u64, u64)| journal.grafts.iter().any(|graft| graft.contains(*word));
        found = (at..).step_by(8).zip(words).find(is_one).map(|(at, _)| LiveVa(at));
        found.map_or(ControlFlow::Continue(()), |_| ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Shows whoever is `looking` all memory that the process may write and that is not ours, in pieces, each
/// with where it is; but what is kept nowhere, and what ld.so knows of us, which is taken away last.
fn all_memory(
    stopped: &Stopped,
    journal: &Journal,
    known: &Known,
    mut looking: impl FnMut(&[u8], u64) -> ControlFlow<()>,
) -> Result<(), AttachError> {
    let Known { threads, stacks, idle_stacks, .. } = known;
    // The C library knows them by their numbers where the process is.
    let own = |tid: &Pid| own_number(tid.as_raw()).map_or(*tid, |(_, own)| Pid::from_raw(own));
    let threads: &Vec<Pid> = &threads.iter().map(own).collect();
    let Journal { modules, linker, grafts, .. } = journal;
    let is_ours = |m: &Range<LiveVa>| {
        (JOURNAL..ARENA + (1 << 44)).contains(&m.start.0)
            || grafts.iter().any(|graft| graft.contains(m.start.0))
            || modules.iter().any(|module| {
                let segments = &module.segments;
                let own = module.live(segments.counters_at)..module.text().end;
                own.contains(&m.start.0)
            })
    };
    let mut bytes = vec![0; PIECE];
    for mapping in stopped.mappings()?.into_iter().filter(|m| m.writable && !is_ours(&m.range)) {
        let mut at = mapping.range.start.0 + dead_part(stopped, &mapping, threads, known);
        let range = mapping.range.start.0..mapping.range.end.0;
        if let Some(sp) = stacks.iter().find(|sp| range.contains(*sp)) {
            at = at.max(sp / 8 * 8);
        }
        while at < mapping.range.end.0 {
            let len = usize::try_from(mapping.range.end.0 - at).unwrap_or(PIECE).min(PIECE);
            let Some(piece) = bytes.get_mut(..len) else { break };
            // What is unmapped meanwhile, or is a device's, leads nowhere.
            if stopped.read(LiveVa(at), piece).is_err() {
                break;
            }
            let of_linker = linker.iter().map(|word| word.at / 8 * 8..word.at / 8 * 8 + 8);
            for range in of_linker.chain(idle_stacks.iter().cloned()) {
                let place = |to: u64| usize::try_from(to.saturating_sub(at)).unwrap_or(len).min(len);
                piece[place(range.start)..place(range.end)].fill(0);
            }
            if looking(piece, at).is_break() {
                return Ok(());
            }
            at += len as u64;
        }
    }
    Ok(())
}

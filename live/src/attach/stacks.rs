//! What threads keep on their stacks, also on those that signal handlers have interrupted.
//!
//! Where a stack ends is not written anywhere: it is taken to go on to the end of its mapping, but for those
//! that the program has made itself among other memory (coroutines, signal stacks) no further than such are.

use super::AttachError;
use super::handlers::{Frame, frames};
use super::threads::{Thread, Threads};
use crate::arch;
use crate::process::{Mapping, Stopped};
use nix::unistd::Pid;
use program::LiveVa;

/// No more is looked at of the kernel's or the C library's stacks, and of others.
const MOST: u64 = 64 << 20;
const MOST_OF_OTHERS: u64 = 1 << 20;
const PAGE: u64 = 0x1000;

/// Memory that a thread keeps something in, from its stack pointer on.
pub(super) struct Stack {
    pub(super) thread: Pid,
    pub(super) thread_pointer: u64,
    pub(super) from: u64,
    pub(super) bytes: Vec<u8>,
}

impl Stack {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    /// Its words, with where each is.
    pub(super) fn words(&self) -> impl Iterator<Item = (u64, u64)> {
        let words = self.bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        (self.from..).step_by(8).zip(words)
    }
}

/// All that threads keep on stacks.
pub(super) struct Kept {
    pub(super) stacks: Vec<Stack>,
    /// Signal handlers that are at work.
    pub(super) frames: Vec<Frame>,
    /// Whether the stack that the process started with is of nobody any more: its first thread has ended, or
    /// it was forked by another thread.
    pub(super) is_first_stack_dead: bool,
}

impl Kept {
    /// What `threads` of a process with these `mappings` keep, where signal handlers go back by `codes`.
    pub(super) fn of(
        stopped: &Stopped,
        mappings: &[Mapping],
        threads: &Threads,
        (pid, codes): (Pid, &[u64]),
    ) -> Result<Kept, AttachError> {
        // A stack may have come, or grown, since they were asked for.
        let is_known = |thread: &Thread| at(mappings, arch::stack_pointer(&thread.regs)).is_some();
        let now = match threads.all.iter().all(is_known) {
            true => None,
            false => Some(stopped.mappings()?),
        };
        let mappings = now.as_deref().unwrap_or(mappings);
        let first = threads.all.iter().find(|thread| thread.pid == pid);
        let is_first_stack_dead = first.is_none_or(|thread| {
            // The C library has what it knows of a thread on the stack that it made for it.
            let tp = LiveVa(arch::thread_pointer(&thread.regs));
            let own = at(mappings, arch::stack_pointer(&thread.regs));
            own.is_some_and(|m| m.range.contains(&tp) && is_stack(mappings, m))
        });
        let mut kept = Kept { stacks: Vec::new(), frames: Vec::new(), is_first_stack_dead };
        for thread in &threads.all {
            let mut from = vec![arch::stack_pointer(&thread.regs)];
            if Some(thread.pid) == first.map(|first| first.pid) && !is_first_stack_dead {
                let own = mappings.iter().find(|m| m.name.as_deref() == Some("[stack]"));
                let is_elsewhere = |m: &&Mapping| !m.range.contains(&LiveVa(from[0]));
                from.extend(own.filter(is_elsewhere).map(|m| m.range.start.0));
            }
            // One on a stack of its own leads to the stack that it interrupted.
            while let Some(sp) = from.pop() {
                let known = kept.stacks.iter().any(|stack| (stack.from..stack.end()).contains(&sp));
                let Some(stack) = part(stopped, mappings, sp).filter(|_| !known) else { continue };
                let (sp, bytes) = stack;
                let new = frames(&bytes, sp, codes).filter(|frame| !kept.frames.contains(frame));
                let new: Vec<Frame> = new.collect();
                let end = sp + bytes.len() as u64;
                from.extend(new.iter().map(|frame| frame.stack_pointer).filter(|at| !(sp..end).contains(at)));
                kept.frames.extend(new);
                let thread_pointer = arch::thread_pointer(&thread.regs);
                kept.stacks.push(Stack { thread: thread.pid, thread_pointer, from: sp, bytes });
            }
        }
        Ok(kept)
    }

    /// Writes a word of a stack, and what is known of it.
    pub(super) fn write(&mut self, stopped: &Stopped, at: u64, word: u64) -> Result<(), AttachError> {
        stopped.write(LiveVa(at), &word.to_le_bytes())?;
        for stack in &mut self.stacks {
            let from = at.checked_sub(stack.from).and_then(|from| usize::try_from(from).ok());
            if let Some(place) = from.and_then(|from| stack.bytes.get_mut(from..from.checked_add(8)?)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(())
    }
}

fn at(mappings: &[Mapping], at: u64) -> Option<&Mapping> {
    mappings.iter().find(|m| m.range.contains(&LiveVa(at)))
}

/// Whether a mapping is a stack and nothing else: the first thread's, or one with pages in front of it that
/// nobody may touch, as the C library makes them.
pub(super) fn is_stack(mappings: &[Mapping], mapping: &Mapping) -> bool {
    let is_guard =
        |m: &Mapping| m.range.end == mapping.range.start && !m.writable && !m.executable && m.path.is_none();
    mapping.name.as_deref() == Some("[stack]") || mapping.writable && mappings.iter().any(is_guard)
}

/// What is kept on the stack whose pointer is `sp`, and from where on: no address of code is kept below.
fn part(stopped: &Stopped, mappings: &[Mapping], sp: u64) -> Option<(u64, Vec<u8>)> {
    let mapping = at(mappings, sp).filter(|m| m.writable)?;
    let sp = sp / 8 * 8;
    let most = if is_stack(mappings, mapping) { MOST } else { MOST_OF_OTHERS };
    let len = (mapping.range.end.0 - sp).min(most);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    if stopped.read(LiveVa(sp), &mut bytes).is_err() {
        // It ends where a page cannot be read.
        let mut done = 0;
        while done < bytes.len() {
            let next = usize::try_from(PAGE - (sp + done as u64) % PAGE).unwrap_or(0);
            let end = (done + next).min(bytes.len());
            let Some(page) = bytes.get_mut(done..end) else { break };
            if stopped.read(LiveVa(sp + done as u64), page).is_err() {
                break;
            }
            done = end;
        }
        bytes.truncate(done / 8 * 8);
    }
    Some((sp, bytes))
}

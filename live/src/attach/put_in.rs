//! Rewritten modules put into a process that runs: prepared by a helper while it goes on, then exchanged in
//! one stop.

use super::hand::{Hand, Move};
use super::handlers::handlers_codes;
use super::helper::Helper;
use super::journal::{self, Journal, PutGraft, PutIn, Text};
use super::lock::Lock;
use super::stacks::Kept;
use super::texts::{Copies, data_writes, first_change, of_files_alone, own_pages};
use super::threads::Threads;
use super::{AttachError, Attachment, Part, Stop, linker, pointers};
use crate::arch;
use crate::give::{
    CountersAt, ModuleMemory, PAGE, PRIVATE, READ_WRITE, fill, map_counters, process_of, wipe_on_fork,
};
use crate::process::{Mapping, Syscall};
use crate::shared::Arena;
use nix::libc;
use nix::unistd::Pid;
use probe::arch::shared::{ARENA, Header, PROCESS, Process};
use probe::graft::Grafted;
use probe::{Patch, offset};
use program::{LiveVa, Va};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

/// What is put in beside modules.
pub(super) struct Beside<'a> {
    /// Where they count, and what that memory is called in the process; nothing, if they do not.
    pub(super) arena: Option<(&'a Arena, u64)>,
    /// Code of other files that they lead to.
    pub(super) grafts: &'a [Grafted],
    /// What that is for.
    pub(super) what: &'a [u8],
}

/// See [`super::Entered::put_in`].
pub(super) fn put_in(
    (helper, lock): (Helper, Lock),
    mappings: &[Mapping],
    parts: &[Part<'_>],
    beside: &Beside<'_>,
) -> Result<Attachment, AttachError> {
    let pid = Pid::from_raw(helper.process());
    let modules = parts.iter().map(|part| put_of(part, mappings)).collect();
    let grafts = beside.grafts.iter().map(PutGraft::of).collect();
    let mut journal = Journal { modules, linker: Vec::new(), grafts, what: beside.what.to_vec() };
    let counts = beside.arena.is_some();
    let exchanged = prepare(&helper, parts, beside, mappings, &mut journal)
        .and_then(|copies| exchange(pid, &helper, mappings, (&journal, counts), &copies));
    let in_time = |stopped: Stop| match helper.max_pause() {
        Some(most) if stopped.pause > most => Err(AttachError::slow(pid, stopped.pause, Some(most))),
        _ => Ok(stopped),
    };
    match exchanged.and_then(in_time) {
        Ok(stopped) => {
            let (code, max_pause) = (helper.code_file(), helper.max_pause());
            helper.end();
            let about = beside.arena.and_then(|(arena, _)| arena.file().metadata().ok());
            let inode = about.map_or(0, |about| about.ino());
            Ok(Attachment { pid, journal, inode, _code: code, _lock: lock, max_pause, stopped })
        }
        Err(err) => {
            // From then on, something may have changed.
            let left = match journal::is_complete(&helper) {
                true => match super::take_out::give_back(pid, &helper, &journal) {
                    Ok(given) => given.left,
                    Err(undo) if undo.is_over() => None,
                    Err(undo) => Some(undo.to_string()),
                },
                false => None,
            };
            if let Some(left) = left {
                helper.end();
                return Err(AttachError::NotGivenBack { pid: pid.as_raw(), why: Box::new(err), left });
            }
            leave(helper);
            Err(err)
        }
    }
}

/// Leaves a process in which nothing was exchanged as it was.
pub(super) fn leave(helper: Helper) {
    let pid = Pid::from_raw(helper.process());
    helper.unmap_all();
    helper.end();
    // Of a process that is gone, nothing is left.
    let _gone = super::helper::forget_code(pid);
}

fn put_of(part: &Part<'_>, mappings: &[Mapping]) -> PutIn {
    let at = part.bias.to_live(Va(0)).0;
    let mut segments = part.segments.clone();
    (segments.text, segments.tables) = (Vec::new(), Vec::new());
    let texts = texts(part, mappings);
    PutIn { path: part.path.to_owned(), at, segments, running: part.running.clone(), texts }
}

/// The parts of a module's text that change: of each mapping, from the first page that does to the last.
fn texts(part: &Part<'_>, mappings: &[Mapping]) -> Vec<Text> {
    let live = |patch: &Patch| {
        let at = part.bias.to_live(patch.at).0;
        at..at + patch.new.len() as u64
    };
    let of = |m: &Mapping| {
        let within = part.segments.patches.iter().map(live);
        let within: Vec<_> =
            within.filter(|r| m.range.start.0 <= r.start && r.end <= m.range.end.0).collect();
        let (first, last) = (within.first()?, within.last()?);
        let at = first.start / PAGE * PAGE;
        let file = m.path.clone().map(|path| (path, m.offset + (at - m.range.start.0)));
        Some(Text { at, len: last.end.next_multiple_of(PAGE) - at, file })
    };
    mappings.iter().filter(|m| m.executable).filter_map(of).collect()
}

/// Maps all that is needed, and writes down how it is undone. Nothing of the program's own changes.
fn prepare(
    helper: &Helper,
    parts: &[Part<'_>],
    beside: &Beside<'_>,
    mappings: &[Mapping],
    journal: &mut Journal,
) -> Result<Copies, AttachError> {
    let of_files = of_files_alone(helper.process());
    refuse_changed(helper, &journal.modules, &of_files)?;
    for (part, module) in parts.iter().zip(&journal.modules) {
        ModuleMemory { stopped: helper, bias: part.bias }.check_unchanged(&part.segments.patches)?;
        for (at, old, _) in module.words() {
            if helper.word(at)? != old {
                return Err(helper
                    .space(format!("{at} does not hold what the file's relocation says"))
                    .into());
            }
        }
    }
    if let Some((arena, shared)) = beside.arena {
        map_arena(helper, parts, arena, shared)?;
    }
    map_parts(helper, parts, beside)?;
    let number = helper.process();
    let copies = copy_texts(helper, &journal.modules, &of_files)?;
    journal.linker = linker::changes(helper, number, mappings, journal)?;
    let kept: Vec<LiveVa> = copies.iter().map(|copy| copy.1).collect();
    journal.write(helper, &kept)?;
    // Pages that change are the process's own before it stops.
    for module in &journal.modules {
        own_pages(helper, module)?;
    }
    // Nobody asks for moved code yet, whose tables are there from now on.
    journal.linker.iter().try_for_each(|word| word.make(helper))?;
    Ok(copies)
}

/// Maps what they count into.
fn map_arena(helper: &Helper, parts: &[Part<'_>], arena: &Arena, fd: u64) -> Result<(), AttachError> {
    helper.map(LiveVa(PROCESS), Process::LEN, READ_WRITE, PRIVATE, u64::MAX, 0)?;
    wipe_on_fork(helper, LiveVa(PROCESS))?;
    let len = arena.mapped_len();
    // It is closed when the helper ends.
    helper.map(LiveVa(ARENA), len, READ_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)?;
    helper.call(&Syscall {
        name: "madvise",
        number: libc::SYS_madvise,
        args: [ARENA, len, u64::from(libc::MADV_DONTDUMP.cast_unsigned()), 0, 0, 0],
    })?;
    let (number, pid) = (helper.process(), Pid::from_raw(helper.process()));
    let all = parts.iter().map(|part| (part.segments, part.bias));
    let name =
        arena.name_of(number).map_err(|err| AttachError::refused(pid, "asking for its number", err))?;
    helper.write(LiveVa(PROCESS), &process_of(name, all, arena, 0))?;
    let owner = name.cast_unsigned();
    helper.write(LiveVa(arena.owners_at()), &owner.to_le_bytes())?;
    Ok(helper.write(LiveVa(ARENA + offset!(Header, n_areas)), &1u64.to_le_bytes())?)
}

/// Maps what is new of modules, and what they lead to.
fn map_parts(helper: &Helper, parts: &[Part<'_>], beside: &Beside<'_>) -> Result<(), AttachError> {
    for part in parts {
        let counters = beside.arena.and_then(|(arena, fd)| {
            let (_, row) = part.segments.runtime_at.and_then(|_| arena.row(part.segments.key))?;
            Some(CountersAt { fd, offset: row.of(0), len_bytes: row.len })
        });
        map_counters(helper, part.segments, part.bias, counters)?;
        let live = |at: u64| part.bias.to_live(Va(at));
        helper.map_code(Some(live(part.segments.text_at)), &part.segments.text)?;
        fill(helper, live(part.segments.tables_at), &part.segments.tables, libc::PROT_READ)?;
        if let Some(started) = part.segments.started_at {
            let at = part.bias.to_live(Va(started));
            helper.map(at, PAGE, READ_WRITE, PRIVATE, u64::MAX, 0)?;
            helper.write(at, &[1])?;
        }
    }
    for part in beside.grafts.iter().flat_map(|graft| &graft.parts) {
        let may = |right: bool, bit| if right { bit } else { 0 };
        let rights =
            libc::PROT_READ | may(part.writable, libc::PROT_WRITE) | may(part.executable, libc::PROT_EXEC);
        fill(helper, LiveVa(part.at), &part.bytes, rights)?;
    }
    Ok(())
}

/// Refuses a process whose code is not that of its files: a uprobe, or a breakpoint, is known by where it is,
/// and in a copy nobody would know it.
fn refuse_changed(helper: &Helper, modules: &[PutIn], of_files: &[Range<u64>]) -> Result<(), AttachError> {
    for module in modules {
        for text in module.texts.iter().filter(|text| !is_of(of_files, text)) {
            let mut bytes = vec![0; usize::try_from(text.len).unwrap_or(0)];
            helper.read(LiveVa(text.at), &mut bytes)?;
            if let Some(at) = first_change(helper, text, &bytes) {
                let path = module.path.clone();
                return Err(AttachError::Changed { pid: helper.process(), at, path });
            }
        }
    }
    Ok(())
}

/// Whether `text` is in one of these.
fn is_of(of_files: &[Range<u64>], text: &Text) -> bool {
    of_files.iter().any(|range| range.start <= text.at && text.at + text.len <= range.end)
}

/// Copies of all text that changes, with springboards in it.
fn copy_texts(helper: &Helper, modules: &[PutIn], of_files: &[Range<u64>]) -> Result<Copies, AttachError> {
    let mut copies = Vec::new();
    for module in modules {
        for text in &module.texts {
            let mut bytes = vec![0; usize::try_from(text.len).unwrap_or(0)];
            helper.read(LiveVa(text.at), &mut bytes)?;
            for patch in &module.segments.patches {
                let from = module.live(patch.at.0).wrapping_sub(text.at);
                let place =
                    usize::try_from(from).ok().and_then(|from| bytes.get_mut(from..from + patch.new.len()));
                if let Some(place) = place {
                    place.copy_from_slice(&patch.new);
                }
            }
            copies.push((text.clone(), helper.map_code(None, &bytes)?));
            // All of it was read: what the program does not need itself need not be unmapped in the stop.
            if is_of(of_files, text) {
                helper.forget_pages(LiveVa(text.at), text.len);
            }
        }
    }
    Ok(copies)
}

/// The one stop: who is in old code goes on in moved code, then old code leads there.
fn exchange(
    pid: Pid,
    helper: &Helper,
    mappings: &[Mapping],
    (journal, counts): (&Journal, bool),
    copies: &Copies,
) -> Result<Stop, AttachError> {
    let modules = &journal.modules;
    let codes = handlers_codes(helper, mappings);
    let mut writes = Vec::new();
    for module in modules {
        writes
            .extend(data_writes(helper, mappings, module, |patch, there| there.copy_from_slice(&patch.new))?);
        writes.extend(module.words().map(|(at, _, new)| (at, new.to_le_bytes().to_vec())));
    }
    let moves: Vec<Move> = copies.iter().map(|(text, copy)| (*copy, LiveVa(text.at), text.len)).collect();
    let mut hand = Hand::new(helper, moves.len())?;
    hand.is_told(&moves)?;

    let mut threads = Threads::stop(pid, &[helper.thread(), hand.thread()], helper.max_pause())?;
    // The program may have unloaded one meanwhile, and have something else there.
    if let Some(module) = modules.iter().find(|module| !module.is_loaded(helper)) {
        let what = format!("{} was unloaded meanwhile", module.path.display());
        return Err(helper.space(what).into());
    }
    if counts && threads.all.iter().any(|thread| arch::counters_base(&thread.regs) != 0) {
        return Err(AttachError::UsesGs { pid: pid.as_raw() });
    }
    let n_threads = threads.all.len();
    let mut n_inside = 0;
    for thread in &mut threads.all {
        let at = arch::instruction_pointer(&thread.regs);
        n_inside += usize::from(modules.iter().any(|module| module.old().contains(&at)));
        // Behind a system call stands a springboard.
        if let Some((to, routine)) = pointers::taken_to(modules, at).filter(|_| !thread.is_in_call()) {
            let Some(routine) = routine else {
                thread.regs = arch::going_on_at(thread.regs, to);
                continue;
            };
            let (regs, on_stack) = arch::by_way_of(thread.regs, routine);
            helper.write(LiveVa(on_stack), &to.to_le_bytes())?;
            thread.regs = regs;
        }
    }
    threads.settle()?;
    for frame in Kept::of(helper, mappings, &threads, (pid, &codes))?.frames {
        if let Some((to, _)) = pointers::taken_to(modules, frame.to) {
            helper.write(LiveVa(frame.at), &to.to_le_bytes())?;
        }
    }
    writes.iter().try_for_each(|(at, bytes)| helper.write(*at, bytes))?;
    hand.go()?;
    Ok(Stop { pause: threads.go_on(), n_threads, n_inside })
}

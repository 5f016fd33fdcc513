//! A process given back as it was: old text in place, who is in moved code taken back to old code, and
//! nothing of ours left once nobody needs it.

use super::hand::{Hand, Move};
use super::handlers::{Frame, handlers_codes};
use super::helper::{Helper, forget_code, idle_signal_stacks};
use super::journal::{self, Journal, PutIn, Text};
use super::pointers::{self, Back};
use super::remains::{self, Held, Known};
use super::stacks::Kept;
use super::texts::{Copies, data_writes, map_file, own_pages, table_pages};
use super::threads::Threads;
use super::{AttachError, GivenBack, Stop};
use crate::arch;
use crate::give::{PAGE, unmade};
use crate::process::{Mapping, Status, Stopped};
use nix::libc;
use nix::unistd::Pid;
use probe::arch::shared::{FINDER, FINDER_LEN, PROCESS, Process};
use program::LiveVa;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

/// How long we wait until nobody needs moved code any more.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it goes on between the first two looks; then twice as long each time, for of many threads on few
/// processors, a stop has those wait again that were next.
const NAP: Duration = Duration::from_millis(10);

/// Gives process `pid` back, into which what `journal` says was put, or, if there is none, nothing yet.
pub(super) fn take_out(
    pid: Pid,
    journal: Option<&Journal>,
    max_pause: Option<Duration>,
) -> Result<GivenBack, AttachError> {
    Status::of_what_runs(pid.as_raw())?;
    if !journal::is_there(pid) {
        // It has become another program, which has nothing of ours.
        return Ok(GivenBack::default());
    }
    let helper = Helper::start(pid, max_pause)?;
    let done = journal::open_again(&helper).and_then(|()| match journal {
        Some(journal) if journal::is_back(&helper) => {
            let (left, stays) = unmap(pid, &helper, journal, &Known::nothing())?;
            Ok(GivenBack { left: left.map(|held| held.to_string()), stays, ..GivenBack::default() })
        }
        Some(journal) => give_back(pid, &helper, journal),
        None => journal::take_away_all(&helper).map(|()| GivenBack::default()),
    });
    if done.is_err() {
        helper.unmap_all();
    }
    helper.end();
    let given = done?;
    if given.left.is_none() {
        forget_code(pid)?;
    }
    Ok(given)
}

/// Gives back the process of `helper`, into which what `journal` says was put.
pub(super) fn give_back(pid: Pid, helper: &Helper, journal: &Journal) -> Result<GivenBack, AttachError> {
    let modules = &journal.modules;
    let mut originals = Copies::new();
    let mut leading = LeadingBack(Vec::new());
    for module in modules {
        // One that the program has unloaded meanwhile is not put back.
        for text in module.texts.iter().filter(|_| module.is_loaded(helper)) {
            originals.push((text.clone(), original(helper, module, text)?));
        }
        let range = module.text();
        let mut code = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        helper.read(LiveVa(range.start), &mut code)?;
        helper.forget_pages(LiveVa(range.start), range.end.next_multiple_of(PAGE) - range.start);
        let code = module.running.leading_back(module.segments.text_at, &code);
        leading.0.push((module, helper.map_code(None, &code)?));
        if module.is_loaded(helper) {
            own_pages(helper, module)?;
        }
    }
    let mappings = helper.mappings()?;
    let codes = handlers_codes(helper, &mappings);
    let mut writes = Vec::new();
    for module in modules.iter().filter(|module| module.is_loaded(helper)) {
        let mut own = data_writes(helper, &mappings, module, unmade)?;
        for (at, old, new) in module.words() {
            if helper.word(at)? == new {
                own.push((at, old.to_le_bytes().to_vec()));
            }
        }
        writes.push((module, own));
    }

    let mut hand = Hand::new(helper, originals.len() + leading.0.len())?;
    let mut second = Hand::new(helper, leading.0.len())?;
    let put_text = |(text, copy): &(Text, LiveVa)| (*copy, LiveVa(text.at), text.len);
    let likely: Vec<Move> = originals.iter().map(put_text).chain(leading.all()).collect();
    hand.is_told(&likely)?;

    let ours = [helper.thread(), hand.thread(), second.thread()];
    let mut threads = Threads::stop_in_turns(pid, &ours, helper.max_pause())?;
    let loaded: Vec<&PutIn> = modules.iter().filter(|module| module.is_loaded(helper)).collect();
    let is_of_loaded = |text: &Text| loaded.iter().any(|m| m.texts.iter().any(|own| own.at == text.at));
    let back = originals.iter().filter(|(text, _)| is_of_loaded(text));
    let mut moves: Vec<Move> = back.map(put_text).collect();
    let mut kept = Kept::of(helper, &mappings, &threads, (pid, &codes))?;
    moves.extend(leading.free(&threads, &kept.frames));
    if moves != likely {
        hand.is_told(&moves)?;
    }
    hand.go()?;
    let is_loaded = |module: &PutIn| loaded.iter().any(|one| one.at == module.at);
    for (at, bytes) in writes.iter().filter(|own| is_loaded(own.0)).flat_map(|own| &own.1) {
        helper.write(*at, bytes)?;
    }
    // Not before: where they are taken back to, springboards stood.
    let n_inside = take_back(helper, modules, &mut threads);
    threads.settle()?;
    let frames = take_handlers_back(helper, modules, &mut kept)?;
    let rest = leading.free(&threads, &frames);
    if !rest.is_empty() {
        second.is_told(&rest)?;
        second.go()?;
    }
    let n_threads = threads.all.len();
    let stopped = Stop { n_threads, n_inside, pause: threads.go_on() };
    drop((hand, second));
    journal::set_text_back(helper)?;
    let (waited, longest_look) = wait_for_all(pid, helper, journal, &mut leading, &codes)?;
    let (left, stays) = match waited {
        Ok(known) => {
            journal::set_back(helper)?;
            unmap(pid, helper, journal, &known)?
        }
        Err(held) => (Some(held), None),
    };
    Ok(GivenBack { stopped, longest_look, left: left.map(|held| held.to_string()), stays })
}

/// Copies of moved code that lead back to old code, not in place yet.
struct LeadingBack<'a>(Vec<(&'a PutIn, LiveVa)>);

impl LeadingBack<'_> {
    /// Those that nobody is in the middle of: no thread, and no handler's way back of `frames`. They are to
    /// be put in place.
    fn free(&mut self, threads: &Threads, frames: &[Frame]) -> Vec<Move> {
        let places = threads.all.iter().map(|thread| arch::instruction_pointer(&thread.regs));
        let places: Vec<u64> = places.chain(frames.iter().map(|frame| frame.to)).collect();
        let is_in_use = |module: &PutIn| {
            places.iter().any(|at| {
                let new = at.checked_sub(module.text().start).and_then(|new| u32::try_from(new).ok());
                new.is_some_and(|new| module.running.is_in_way_back(new))
            })
        };
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(module, _)| !is_in_use(module));
        self.0 = later;
        now.into_iter().map(put_code).collect()
    }

    /// All of them.
    fn all(&self) -> impl Iterator<Item = Move> {
        self.0.iter().copied().map(put_code)
    }
}

/// What puts a copy of a module's moved code in place.
fn put_code((module, copy): (&PutIn, LiveVa)) -> Move {
    let text = module.text();
    (copy, LiveVa(text.start), text.end.next_multiple_of(PAGE) - text.start)
}

/// The text that was at `text`, mapped elsewhere: from its file, if that still has it.
fn original(helper: &Helper, module: &PutIn, text: &Text) -> Result<LiveVa, AttachError> {
    let mut bytes = vec![0; usize::try_from(text.len).unwrap_or(0)];
    helper.read(LiveVa(text.at), &mut bytes)?;
    for patch in &module.segments.patches {
        let from = module.live(patch.at.0).wrapping_sub(text.at);
        let place = usize::try_from(from).ok().and_then(|from| bytes.get_mut(from..from + patch.old.len()));
        if let Some(place) = place {
            unmade(patch, place);
        }
    }
    if let Some((path, offset)) = &text.file
        && let Some(at) = map_file(helper, path.as_os_str().as_bytes(), *offset, text.len)
    {
        let mut there = vec![0; bytes.len()];
        if helper.read(at, &mut there).is_ok() && there == bytes {
            // All was read: neither what it has now nor what comes need be moved page by page. What is there
            // is of files, for else it would hold something else than the file.
            helper.forget_pages(at, text.len);
            helper.forget_pages(LiveVa(text.at), text.len);
            return Ok(at);
        }
        helper.unmap(at, text.len)?;
    }
    // Of no name of ours: it stays.
    let at = helper.map_anywhere(text.len, libc::PROT_READ | libc::PROT_EXEC)?;
    helper.write(at, &bytes)?;
    Ok(at)
}

/// Takes threads from moved code to old code, and their counters from those that are in none of ours; how
/// many were in it. Who is in code of ours between two instructions of the program's, is left: it is in
/// another place the next time.
fn take_back(helper: &Stopped, modules: &[PutIn], threads: &mut Threads) -> usize {
    let mut n_inside = 0;
    for thread in &mut threads.all {
        // Who has not gone on since it was taken over, as of a job that is stopped, is where it was to go.
        let at = arch::instruction_pointer(&thread.regs);
        if modules.iter().any(|module| module.running.taken_over.is_some_and(|of| module.live(of) == at))
            && let Ok(to) = helper.word(LiveVa(arch::stack_pointer(&thread.regs)))
        {
            thread.regs = arch::not_by_way(thread.regs, to);
        }
        let place = pointers::given_back(modules, arch::instruction_pointer(&thread.regs));
        n_inside += usize::from(place != Back::Here);
        match place {
            Back::At(old) => thread.regs = arch::going_on_at(thread.regs, old),
            Back::Here => {}
            Back::Within | Back::InRoutine => continue,
        }
        thread.regs = arch::without_counters(thread.regs);
    }
    n_inside
}

/// Has signal handlers go back to old code; those that cannot yet.
fn take_handlers_back(
    helper: &Stopped,
    modules: &[PutIn],
    kept: &mut Kept,
) -> Result<Vec<Frame>, AttachError> {
    let mut left = Vec::new();
    for frame in std::mem::take(&mut kept.frames) {
        match pointers::given_back(modules, frame.to) {
            Back::At(old) => kept.write(helper, frame.at, old)?,
            Back::Here => {}
            Back::Within | Back::InRoutine => left.push(frame),
        }
    }
    Ok(left)
}

/// Waits until nobody needs moved code any more; what is known then, or who does, if somebody still does
/// after a while; and the longest stop in which it was looked.
fn wait_for_all(
    pid: Pid,
    helper: &Helper,
    journal: &Journal,
    leading: &mut LeadingBack<'_>,
    codes: &[u64],
) -> Result<(Result<Known, Held>, Duration), AttachError> {
    let modules = &journal.modules;
    let until = Instant::now() + PATIENCE;
    let (mut longest, mut nap) = (Duration::ZERO, NAP);
    let mut contexts = Vec::new();
    loop {
        let mappings = helper.mappings()?;
        let mut threads = Threads::stop_in_turns(pid, &[helper.thread()], helper.max_pause())?;
        take_back(helper, modules, &mut threads);
        let mut kept = Kept::of(helper, &mappings, &threads, (pid, codes))?;
        let frames = take_handlers_back(helper, modules, &mut kept)?;
        for (copy, to, len) in leading.free(&threads, &frames) {
            helper.put_in_place(copy, to, len)?;
        }
        remains::lead_back_dead_stacks(helper, &mappings, journal, &threads)?;
        remains::lead_back_stacks(helper, journal, &threads, &mut kept)?;
        let held = match frames.first() {
            Some(frame) => Some(Held::Handler(LiveVa(frame.at))),
            None => remains::by_threads(helper, journal, &threads, &kept),
        };
        let mut known = remains::known(&mappings, &threads, &kept);
        remains::lead_back_contexts(helper, journal, &known, &contexts)?;
        contexts.clear();
        longest = longest.max(threads.go_on());
        let held = match held {
            Some(held) => Some(held),
            // No thread comes there by itself any more: the rest can be looked at while they run.
            None => {
                let mut held;
                (held, contexts) = remains::in_memory(helper, journal, &known)?;
                if held.is_some() {
                    known.idle_stacks = idle_signal_stacks(helper, &known.threads)?;
                    if !known.idle_stacks.is_empty() {
                        (held, contexts) = remains::in_memory(helper, journal, &known)?;
                    }
                }
                held
            }
        };
        match held {
            None => return Ok((Ok(known), longest)),
            Some(held) if Instant::now() >= until => return Ok((Err(held), longest)),
            Some(_) => {}
        }
        std::thread::park_timeout(nap.min(until.saturating_duration_since(Instant::now())));
        nap *= 2;
    }
}

/// Waits until no thread is in what looks up tables of moved code, which nobody is led to any more; who is,
/// if somebody still is after a while. One that was led there before may have been kept from going on since.
fn wait_for_lookups(pid: Pid, helper: &Helper, journal: &Journal) -> Result<Option<Held>, AttachError> {
    let codes = &handlers_codes(helper, &helper.mappings()?);
    let until = Instant::now() + PATIENCE;
    let mut nap = NAP;
    loop {
        let mappings = helper.mappings()?;
        let threads = Threads::stop_in_turns(pid, &[helper.thread()], helper.max_pause())?;
        let kept = Kept::of(helper, &mappings, &threads, (pid, codes))?;
        let held = remains::by_threads(helper, journal, &threads, &kept);
        threads.go_on();
        if held.is_none() || Instant::now() >= until {
            return Ok(held);
        }
        std::thread::park_timeout(nap.min(until.saturating_duration_since(Instant::now())));
        nap *= 2;
    }
}

/// Gives pages of `module`'s jump tables back that are as in its file again: the process has none of its own
/// then, as before. Nobody but us writes there.
fn give_tables_back(helper: &Helper, mappings: &[Mapping], module: &PutIn) -> Result<(), AttachError> {
    let pages = table_pages(module);
    for mapping in mappings.iter().filter(|mapping| !mapping.writable) {
        let Some(path) = &mapping.path else { continue };
        let mut within = pages.range(mapping.range.start.0..mapping.range.end.0).copied();
        let Some(first) = within.next() else { continue };
        let len = within.next_back().unwrap_or(first) + PAGE - first;
        let offset = mapping.offset + (first - mapping.range.start.0);
        let Some(at) = map_file(helper, path.as_os_str().as_bytes(), offset, len) else { continue };
        let is_same = |m: &Mapping| m.range.contains(&at) && m.inode == mapping.inode;
        if helper.mappings()?.iter().any(is_same) {
            let mut both = [first, at.0].map(|from| (from, vec![0; usize::try_from(len).unwrap_or(0)]));
            let read = both.iter_mut().try_for_each(|(from, bytes)| helper.read(LiveVa(*from), bytes));
            let size = usize::try_from(PAGE).unwrap_or(0);
            let equal = both[0].1.chunks(size).zip(both[1].1.chunks(size)).map(|(own, file)| own == file);
            let page = |n: usize| first + n as u64 * PAGE;
            let equal: Vec<u64> = equal.enumerate().filter(|one| one.1).map(|one| page(one.0)).collect();
            if read.is_ok() {
                for run in equal.chunk_by(|a, b| a + PAGE == *b) {
                    helper.forget_pages(LiveVa(run[0]), run.len() as u64 * PAGE);
                }
            }
        }
        helper.unmap(at, len)?;
    }
    Ok(())
}

/// Unmaps all that is ours but the helper's code, the journal last; nothing, if somebody is still in it. What
/// was put in of other files stays, if a word may lead there: which one.
fn unmap(
    pid: Pid,
    helper: &Helper,
    journal: &Journal,
    known: &Known,
) -> Result<(Option<Held>, Option<String>), AttachError> {
    journal.linker.iter().rev().try_for_each(|word| word.unmake(helper))?;
    if !journal.linker.is_empty()
        && let Some(held) = wait_for_lookups(pid, helper, journal)?
    {
        return Ok((Some(held), None));
    }
    // Whoever was killed may have unmapped some of it, and the program have something of its own there by
    // now.
    let mappings = helper.mappings()?;
    for module in &journal.modules {
        if module.is_loaded(helper) {
            give_tables_back(helper, &mappings, module)?;
        }
        let segments = &module.segments;
        let home = module.live(segments.counters_at);
        let end = module.text().end.next_multiple_of(PAGE);
        if journal::is_text_mapped(&mappings, module) {
            helper.unmap(LiveVa(home), end - home)?;
        }
        let tables = module.tables();
        let tables = LiveVa(tables.start)..LiveVa(tables.end.next_multiple_of(PAGE));
        let is_ours = |m: &Mapping| {
            let is_within = m.range.start <= tables.start && tables.end <= m.range.end;
            is_within && !m.writable && !m.executable && m.path.is_none() && m.name.is_none()
        };
        if mappings.iter().any(is_ours) {
            helper.unmap(tables.start, tables.end.0 - tables.start.0)?;
        }
    }
    if journal::are_grafts_gone(helper) {
        return finish(helper, None);
    }
    let mapped = || journal.grafts.iter().flat_map(|graft| &graft.mapped);
    let used = match journal.grafts.is_empty() {
        true => None,
        false => match remains::of_grafts(helper, journal, known)? {
            // What signal handlers have left behind is nobody's.
            Some(_) if !known.threads.is_empty() => {
                let idle_stacks = idle_signal_stacks(helper, &known.threads)?;
                remains::of_grafts(helper, journal, &known.without(idle_stacks))?
            }
            used => used,
        },
    };
    let stays = used.map(|at| {
        let sum: u64 = mapped().map(|(_, len)| len).sum();
        format!("{} kB of it, since the word at {at} may lead there", sum / 1024)
    });
    journal::set_grafts_gone(helper)?;
    for (at, len) in mapped().filter(|_| used.is_none()) {
        helper.unmap(LiveVa(*at), *len)?;
    }
    finish(helper, stays)
}

/// Unmaps the rest, which is where nothing of a program's own is, the journal last.
fn finish(helper: &Helper, stays: Option<String>) -> Result<(Option<Held>, Option<String>), AttachError> {
    journal::take_away_named(helper)?;
    helper.unmap(LiveVa(FINDER), FINDER_LEN)?;
    helper.unmap(LiveVa(PROCESS), Process::LEN)?;
    journal::take_away(helper)?;
    Ok((None, stays))
}

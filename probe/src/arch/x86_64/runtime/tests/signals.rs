//! Signal handlers: what they interrupt, and their events.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the frame of a signal is that nobody has sent.
const FRAME: u64 = DATA + 1024;
/// What glibc and musl have their handlers return to: mov $15,%rax; syscall
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// The segments of a 64-bit program.
const SEGMENTS: u64 = 0x002b_0000_0000_0033;

/// The frame of a signal that came at `from`, with the stack at `stack`: the address of its siginfo_t. As the
/// kernel makes it: return address, ucontext_t of 304 bytes, siginfo_t.
pub(super) fn frame(world: &World, from: u64, stack: u64) -> u64 {
    let restorer = world.put(DATA + 128, &RESTORER);
    let info = world.at + FRAME + 8 + 304;
    write(info - 312, restorer);
    write(info - 32, restorer); // as `log` keeps it
    write(register(info, libc::REG_RIP), from);
    write(register(info, libc::REG_RSP), stack);
    write(register(info, libc::REG_CSGSFS), SEGMENTS);
    info
}

/// Where a register is in the frame that has its siginfo_t there, by the C library's account.
pub(super) fn register(info: u64, n: i32) -> u64 {
    let context = info - 304;
    context + offset_of!(libc::ucontext_t, uc_mcontext) as u64 + 8 * u64::try_from(n).expect("positive")
}

/// Where code was interrupted by handlers that have not returned, by the module's number and the offset.
pub(super) fn interrupted() -> Vec<(u64, i64)> {
    let from = ARENA + header::<u64>(offset!(Header, interrupted_at));
    let rows = (0..N_INTERRUPTED).map(|n| from + Interrupted::LEN * n);
    let rows = rows.map(|row| (read(row + offset!(Interrupted, key)), read(row + offset!(Interrupted, n))));
    rows.filter(|row: &(u64, i64)| row.0 != 0).collect()
}

/// The key of where code of the first module was interrupted.
pub(super) const fn key(offset: u64) -> u64 {
    (1 << 40) + offset
}

/// How often code was interrupted when the handler ran, and what the handler returned to.
static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn handler(_signal: i32, info: u64, _context: u64) {
    let sum: i64 = interrupted().iter().map(|row| row.1).sum();
    SEEN[0].store(sum.cast_unsigned(), Ordering::SeqCst);
    SEEN[1].store(read(info - 312), Ordering::SeqCst);
}

#[test]
fn a_signal_in_moved_code_is_written_down_until_its_handler_returns() {
    let world = World::new();
    // In moved code: int3; ret. In its entry, as moved code has it: movabs handler,%r11; jmp signal.
    let code = world.put(TEXT + 0x10, &[0xcc, RET]);
    let rust = handler as extern "C" fn(i32, u64, u64) as usize;
    let mut entry = vec![0x49, 0xbb];
    entry.extend(rust.to_le_bytes());
    entry.push(0xe9);
    let next = world.at + TEXT + 0x60 + 15;
    let distance = world.label("signal").wrapping_sub(next);
    entry.extend(distance.to_le_bytes().iter().take(4));
    let entry = world.put(TEXT + 0x60, &entry);
    let action = nix::sys::signal::SigAction::new(
        // SAFETY: what is there is called as a handler of this kind is, and calls one.
        nix::sys::signal::SigHandler::SigAction(unsafe { std::mem::transmute::<u64, HandlerFn>(entry) }),
        nix::sys::signal::SaFlags::empty(),
        nix::sys::signal::SigSet::empty(),
    );
    // SAFETY: the handler allocates, in a thread that was not allocating when it raised the signal.
    let before = unsafe { nix::sys::signal::sigaction(nix::sys::signal::SIGTRAP, &action) }.expect("set");
    let registers = Registers { rax: 1, r9: 2, r15: 3, rbx: ARENA, r12: PROCESS, ..Registers::default() };
    let after = world.call_at(code, registers);
    // SAFETY: what was there before.
    unsafe { nix::sys::signal::sigaction(nix::sys::signal::SIGTRAP, &before) }.expect("set");
    check(after.kept(), registers);
    check(SEEN.each_ref().map(|seen| seen.load(Ordering::SeqCst)), [1, world.label("signalled")]);
    check(interrupted(), vec![(key(0x11), 0)]);
}

type HandlerFn = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

#[test]
fn an_entry_that_is_no_handlers_goes_on() {
    let world = World::new();
    let before = Registers { rdx: world.at + DATA, rsi: 5, r11: world.at + TEXT, ..Registers::default() };
    check(world.enter("signal", before).kept(), before);
    check(interrupted(), vec![]);
}

#[test]
fn a_signal_is_written_down_once() {
    let world = World::new();
    let info = frame(&world, world.at + TEXT + 0x40, world.at + DATA);
    let log = Registers { rsi: info, r8: 1, ..Registers::default() };
    world.call("log", log);
    check(interrupted(), vec![(key(0x40), 1)]);
    check(read::<u64>(info - 312), world.label("signalled"));
    // Its handler returns to where that is taken back: so it was done.
    world.call("log", log);
    check(interrupted(), vec![(key(0x40), 1)]);
}

#[test]
fn an_event_says_where_a_signal_came() {
    let world = World::new().with_events();
    let info = frame(&world, world.at + TEXT + 0x40, world.at + DATA);
    world.call("mark", Registers { r13: info, ..Registers::default() });
    check(world.appended(), vec![EVENTS_HANDLER, KEY_LOW, 0x40]);
}

#[test]
fn an_event_says_that_a_signal_came_in_no_module() {
    let world = World::new().with_events();
    let info = frame(&world, 0x10, world.at + DATA);
    world.call("mark", Registers { r13: info, ..Registers::default() });
    check(world.appended().get(..2), Some(&[EVENTS_HANDLER, 0][..]));
}

#[test]
fn an_event_says_that_a_handler_leads_elsewhere() {
    let world = World::new().with_events();
    let info = frame(&world, 0x10_0000, world.at + DATA);
    let redirected = || world.call("redirected", Registers { r13: info, ..Registers::default() });
    // Where it came, or an instruction further.
    write(info - 16, 0x10_0004u64);
    redirected();
    check(world.appended(), vec![]);
    write(info - 16, 0x20_0000u64);
    redirected();
    check(world.appended(), vec![EVENTS_HANDLER, EVENTS_REDIRECTED, EVENTS_REDIRECTED]);
}

#[test]
fn room_that_was_taken_is_read_for_who_was_interrupted() {
    let world = World::new().with_events();
    // mov %gs:next(%rip),%rcx
    let mut code = vec![0x65, 0x48, 0x8b, 0x0d];
    code.extend(u32::try_from(COUNTERS - (TEXT + 0x30) - 8).expect("near").to_le_bytes());
    let code = world.put(TEXT + 0x30, &code);
    let info = frame(&world, code, world.at + DATA);
    world.call("room", Registers { rsi: info, ..Registers::default() });
    check(read(register(info, libc::REG_RCX)), world.events(offset!(EventsPage, next)));
    check(read(register(info, libc::REG_RIP)), code + 8);
    // Other code is left alone.
    let info = frame(&world, world.at + TEXT, world.at + DATA);
    world.call("room", Registers { rsi: info, ..Registers::default() });
    check(read(register(info, libc::REG_RIP)), world.at + TEXT);
}

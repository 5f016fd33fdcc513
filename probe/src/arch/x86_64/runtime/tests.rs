//! The runtime's routines, called in this process on a recording made here.
//!
//! A [`World`] is what a launcher makes of a process: the recording at [`ARENA`], what the process knows at
//! [`PROCESS`], and a module with its runtime, its home and one page of counters. There is one at a time.
//! Whatever ends the process, or changes what is there once for all of it, is called in a forked child.
//!
//! The oracle is the kernel (what is mapped, which signals are blocked, the numbers of threads), the C
//! library, and the declarations of `shared`.

mod areas;
mod chunks;
mod entry;
mod exit;
mod file;
mod indirect;
mod interrupted;
mod join;
mod running;
mod signals;
mod start;
mod threads;

use super::*;
use crate::arch::x86_64::testing::{
    Registers, alone, call, check, dead_process, in_child, map, read, unmap, write,
};
use crate::offset;
use nix::libc;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::collections::BTreeSet;
use std::sync::MutexGuard;

unsafe extern "C" {
    static engraft_test_labels: [u64; N_LABELS];
    static engraft_test_rust: [u64; 2];
}

/// The lines of `labels.s` that stand for one each.
const LABELS: &str = include_str!("tests/labels.s");
const N_LABELS: usize = 89;

/// Labels that are no routines, but places in them.
const PLACES: &[&str] = &[
    "engraft_module_last_end",
    "engraft_module_callee_return",
    "engraft_module_callee_saved",
    "engraft_module_callee_end",
    ".Lengraft_slow_done",
    ".Lengraft_signal_known",
    ".Lengraft_signal_written",
    ".Lengraft_signalled_known",
    ".Lengraft_signalled_done",
    ".Lengraft_signalled_end",
    ".Lengraft_append",
    ".Lengraft_logged",
    ".Lengraft_swap",
    ".Lengraft_swapped",
    ".Lengraft_commit",
    ".Lengraft_committed",
    ".Lengraft_committed_end",
    ".Lengraft_signals_end",
    ".Lengraft_callee_look",
    ".Lengraft_alone",
    ".Lengraft_said",
    ".Lengraft_said_end",
    ".Lengraft_other",
    ".Lengraft_other_end",
    ".Lengraft_line",
    ".Lengraft_no_bases",
    ".Lengraft_no_bases_end",
    ".Lengraft_namespace",
    ".Lengraft_auxv",
    ".Lengraft_why",
    ".Lengraft_why_end",
];

/// The names in `labels.s`, without what they all start with.
fn labels() -> impl Iterator<Item = &'static str> {
    LABELS.lines().filter_map(|line| line.strip_prefix("    .quad ")?.strip_suffix(" - engraft_module"))
}

fn short(label: &str) -> &str {
    label.trim_start_matches(".Lengraft_").trim_start_matches("engraft_module_")
}

/// Where things are in the module's memory.
const OLD: u64 = 0;
const TEXT: u64 = PAGE;
const RUNTIME: u64 = 2 * PAGE;
const HOME: u64 = 6 * PAGE;
const COUNTERS: u64 = HOME + HomePage::LEN;
const DATA: u64 = COUNTERS + PAGE;
const MODULE_LEN: u64 = DATA + PAGE;
/// `ret`, at the start of the moved code: where entries go on, as if they had been called.
const RET: u8 = 0xc3;
const KEY: u128 = 0x1111_2222_3333_4444_5555_6666 << 32 | KEY_LOW as u128;
const KEY_LOW: u32 = 0x7777_8888;

/// A process in which one module counts.
struct World {
    _alone: MutexGuard<'static, ()>,
    /// Where the module is.
    at: u64,
    runtime: Runtime,
    head: Capacity,
}

impl World {
    /// As a launcher makes it: the module's counters of four areas are in the recording, this thread has the
    /// first one.
    fn new() -> World {
        let mut world = World::bare();
        let head = Capacity { n_rows: 4, n_areas: 8 };
        let len = head.head_len() + 4 * PAGE;
        map(ARENA, len, libc::MAP_SHARED);
        map(PROCESS, Process::LEN, libc::MAP_PRIVATE);
        for (at, byte) in (0..).zip(head.header()) {
            write(ARENA + at, byte);
        }
        let pid = u64::from(std::process::id());
        set_header(offset!(Header, n_rows), 1u32);
        set_header(offset!(Header, n_areas), 1u64);
        set_header(offset!(Header, len_bytes), len);
        let row = ARENA + Header::LEN;
        write(row + offset!(Row, key), KEY);
        write(row + offset!(Row, counters_len), PAGE);
        for area in 0..4 {
            write(ARENA + head.extents_at() + 8 * area, extent(head, area));
        }
        write(ARENA + head.owners_at(), std::process::id());
        write(ARENA + head.states_at(), MAY_RUN);
        set_process(offset!(Process, number), pid);
        set_process(offset!(Process, name), std::process::id());
        set_process(offset!(Process, inherited_name), 1u64);
        set_process(offset!(Process, mapped), len);
        set_process(offset!(Process, n_threads), 1u64);
        set_thread(0, thread_pointer(), 0, 0);
        let home = PROCESS + offset!(Process, homes);
        for (field, place) in [
            (offset!(Home, at), HOME),
            (offset!(Home, runtime), RUNTIME),
            (offset!(Home, text), TEXT),
            (offset!(Home, text_end), RUNTIME),
            (offset!(Home, old), OLD),
            (offset!(Home, old_end), TEXT),
        ] {
            write(home + field, world.at + place);
        }
        write(world.at + HOME + offset!(HomePage, owner), thread_pointer());
        write(world.at + HOME + offset!(HomePage, is_recorded), 1u8);
        write(world.at + DATA, 1u8); // it has started
        world.head = head;
        world
    }

    /// With a recording that knows the module, which has not started.
    fn not_joined() -> World {
        let world = World::new();
        set_process(offset!(Process, homes), 0u64);
        write(world.at + DATA, 0u8);
        world
    }

    /// Without a recording: a module that has not started.
    fn bare() -> World {
        let alone = alone();
        let at = map(0, MODULE_LEN, libc::MAP_PRIVATE);
        let place = |offset| Va(at + offset);
        let (init, started) = (Some(place(TEXT)), Some(place(DATA)));
        let mut runtime = Runtime::at(place(RUNTIME), place(TEXT), place(HOME), PAGE, init, KEY, started);
        runtime.set_indirect_calls(&(place(OLD)..place(TEXT)), place(HOME), None);
        write(at + TEXT, RET);
        let world = World { _alone: alone, at, runtime, head: Capacity { n_rows: 0, n_areas: 0 } };
        world.load();
        world
    }

    /// Puts the runtime's bytes where they run.
    fn load(&self) {
        for (at, byte) in (self.at + RUNTIME..).zip(&self.runtime.bytes) {
            write(at, *byte);
        }
    }

    /// Has the module record events; its page is in front of what else its home has.
    fn with_events(mut self) -> World {
        self.runtime = self.runtime.clone().with_events();
        self.load();
        let next = self.at + DATA + 64;
        self.set_events(offset!(EventsPage, base), next);
        self.set_events(offset!(EventsPage, next), next);
        self.set_events(offset!(EventsPage, limit), next + 1024);
        self
    }

    /// Where a label is.
    fn label(&self, name: &str) -> u64 {
        let n = labels().position(|label| short(label) == name).expect("a label of the runtime");
        // SAFETY: the assembly has as many words there as the file has lines, which the test below counts.
        let all = unsafe { &engraft_test_labels };
        self.at + RUNTIME + all[n]
    }

    /// Calls a routine of the runtime, with rbx and r12 as all of them have it.
    fn call(&self, name: &str, registers: Registers) -> Registers {
        self.call_at(self.label(name), Registers { rbx: ARENA, r12: PROCESS, ..registers })
    }

    /// Calls an entry: what moved code calls, which goes on where r11 says.
    fn enter(&self, name: &str, registers: Registers) -> Registers {
        self.call_at(self.label(name), Registers { r11: self.at + TEXT, ..registers })
    }

    fn call_at(&self, target: u64, registers: Registers) -> Registers {
        call(target, registers)
    }

    /// Puts code, or whatever else, to somewhere in the module.
    fn put(&self, offset: u64, bytes: &[u8]) -> u64 {
        for (at, byte) in (self.at + offset..).zip(bytes) {
            write(at, *byte);
        }
        self.at + offset
    }

    fn state(&self, area: u64) -> u8 {
        read(ARENA + self.head.states_at() + area)
    }

    fn owner(&self, area: u64) -> u32 {
        read(ARENA + self.head.owners_at() + 4 * area)
    }

    /// A counter in the recording.
    fn counter(&self, area: u64, n: u64) -> u64 {
        read(ARENA + extent(self.head, area) + 8 * n)
    }

    fn set_events(&self, field: u64, value: u64) {
        write(self.at + COUNTERS + field, value);
    }

    fn events(&self, field: u64) -> u64 {
        read(self.at + COUNTERS + field)
    }

    /// The words of events that were appended.
    fn appended(&self) -> Vec<u32> {
        let from = self.events(offset!(EventsPage, base));
        (from..self.events(offset!(EventsPage, next))).step_by(4).map(read).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        unmap(self.at, MODULE_LEN);
        unmap(ARENA, 1 << 24);
        unmap(PROCESS, Process::LEN);
    }
}

/// Where the counters of an area are in a recording of [`World::new`].
fn extent(head: Capacity, area: u64) -> u64 {
    head.head_len() + PAGE * area
}

fn set_header<T>(field: u64, value: T) {
    write(ARENA + field, value);
}

fn header<T: Copy>(field: u64) -> T {
    read(ARENA + field)
}

fn set_process<T>(field: u64, value: T) {
    write(PROCESS + field, value);
}

fn process<T: Copy>(field: u64) -> T {
    read(PROCESS + field)
}

/// Where what is kept of a thread is.
fn thread_at(n: u64) -> u64 {
    PROCESS + offset!(Process, threads) + size_of::<Thread>() as u64 * n
}

fn set_thread(n: u64, pointer: u64, distance: u64, area: u64) {
    write(thread_at(n) + offset!(Thread, pointer), pointer);
    write(thread_at(n) + offset!(Thread, distance), distance);
    write(thread_at(n) + offset!(Thread, area), area);
}

fn thread<T: Copy>(n: u64, field: u64) -> T {
    read(thread_at(n) + field)
}

/// What the C library says is this thread's pointer.
fn thread_pointer() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() }
}

/// What the kernel says is this thread's number.
fn thread_number() -> u32 {
    // SAFETY: it has no preconditions.
    let number = unsafe { libc::gettid() };
    number.cast_unsigned()
}

/// Whether this thread has signals blocked that it has not by itself.
fn blocks_signals() -> bool {
    nix::sys::signal::SigSet::thread_get_mask().expect("a mask").contains(nix::sys::signal::Signal::SIGUSR2)
}

/// Whether anything is mapped at an address, as the kernel says.
fn is_mapped(at: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mounted");
    maps.lines().filter_map(|line| line.split_whitespace().next()?.split_once('-')).any(|(from, to)| {
        let number = |text| u64::from_str_radix(text, 16).expect("as the kernel writes it");
        (number(from)..number(to)).contains(&at)
    })
}

/// Has this process make no files longer than `len` bytes.
fn limit_files(len: u64) {
    let limit = libc::rlimit { rlim_cur: len, rlim_max: len };
    // SAFETY: it reads what is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn each_label_is_known() {
    let files = [
        include_str!("entry.s"),
        include_str!("exit.s"),
        include_str!("threads.s"),
        include_str!("signals.s"),
        include_str!("interrupted.s"),
        include_str!("chunks.s"),
        include_str!("indirect.s"),
        include_str!("start.s"),
        include_str!("running.s"),
        include_str!("areas.s"),
        include_str!("join.s"),
        include_str!("file.s"),
    ];
    let names = files.iter().flat_map(|file| file.lines()).filter_map(|line| {
        let name = line.split_once(':')?.0;
        (name.starts_with(".Lengraft_") || name.starts_with("engraft_module_")).then_some(name)
    });
    let there: Vec<&str> = names.filter(|name| *name != "engraft_module_end").collect();
    assert_eq!(labels().collect::<Vec<_>>(), there, "labels.s lists the labels of all files in order");
    assert_eq!(there.len(), N_LABELS);
}

#[test]
fn each_routine_is_called_by_a_test() {
    let tests = [
        include_str!("tests/entry.rs"),
        include_str!("tests/exit.rs"),
        include_str!("tests/threads.rs"),
        include_str!("tests/signals.rs"),
        include_str!("tests/interrupted.rs"),
        include_str!("tests/chunks.rs"),
        include_str!("tests/indirect.rs"),
        include_str!("tests/start.rs"),
        include_str!("tests/running.rs"),
        include_str!("tests/areas.rs"),
        include_str!("tests/join.rs"),
        include_str!("tests/file.rs"),
    ]
    .concat();
    let called = called(&tests);
    let routines = labels().filter(|label| !PLACES.contains(label)).map(short);
    let missing: Vec<&str> =
        routines.filter(|name| !called.contains(name) && !RETURNED_TO.contains(name)).collect();
    assert!(missing.is_empty(), "no test calls {missing:?}");
}

/// A signal handler returns there: `a_signal_in_moved_code_is_written_down_until_its_handler_returns`. Code
/// that tests make jumps there: `who_comes_back_…`, `who_was_stopped_…`.
const RETURNED_TO: [&str; 3] = ["signalled", "returned", "taken_over"];

/// The names that `tests` pass to what calls a routine; a name that stands there for something else is none.
fn called(tests: &str) -> BTreeSet<&str> {
    const CALLS: [&str; 3] = [".call(", ".enter(", "call_at(world.label("];
    let mut called = BTreeSet::new();
    let mut before = String::new();
    for (n, part) in tests.split('"').enumerate() {
        if n % 2 == 1 {
            // A list for `enter`.
            let in_list = before.rfind("states!(").is_some_and(|from| !before[from..].contains(')'));
            if in_list || CALLS.iter().any(|call| before.ends_with(call)) {
                called.insert(part);
            }
        } else {
            before.extend(part.chars().filter(|c| !c.is_whitespace()));
        }
    }
    called
}

#[test]
fn a_name_is_called_only_by_what_calls() {
    let text = r#"world.call("a", r); world.enter( "b"); world.label("c"); check("d"); states!(world, "e", "f"), "g";
        world.call_at(
            world.label("h"), r); let i = "i";"#;
    assert_eq!(called(text), BTreeSet::from(["a", "b", "e", "f", "h"]));
}

/// The routine in Rust, as an object of rustc's.
const RUST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/join_callees.o"));

#[test]
fn the_routine_in_rust_is_code_alone() {
    let object = object::File::parse(RUST).expect("an object");
    let symbol = object.symbol_by_name("join_callees").expect("it has the routine");
    let own = object.section_by_index(symbol.section_index().expect("it is there")).expect("a section");
    // Nothing else is loaded, nothing is left for a linker to do.
    for section in object.sections() {
        let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { panic!("an ELF object") };
        let is_loaded = sh_flags.contains(object::elf::SHF_ALLOC) && section.size() > 0;
        assert!(!is_loaded || section.index() == own.index(), "{:?}", section.name());
        assert_eq!(section.relocations().count(), 0, "{:?}", section.name());
    }
    let code = own.data().expect("bytes");
    assert_eq!((symbol.address(), symbol.size()), (0, code.len() as u64));
    // SAFETY: the assembly has two words there.
    let [from, to] = unsafe { engraft_test_rust };
    let start = &raw const engraft_module;
    let ours = bytes_between(start.wrapping_add(index(from)), start.wrapping_add(index(to)));
    assert_eq!(ours, code, "what the assembler made of the text is what rustc made");
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

#[test]
fn the_routine_in_rust_touches_nothing_but_what_it_may() {
    use iced_x86::{FlowControl, InstructionInfoFactory, OpAccess, Register};
    let object = object::File::parse(RUST).expect("an object");
    let symbol = object.symbol_by_name("join_callees").expect("it has the routine");
    let own = object.section_by_index(symbol.section_index().expect("it is there")).expect("a section");
    let code = own.data().expect("bytes");
    let mut factory = InstructionInfoFactory::new();
    let mut returns = 0;
    for insn in iced_x86::Decoder::new(64, code, 0) {
        assert!(!insn.is_invalid() && !insn.is_ip_rel_memory_operand(), "{insn:?}");
        match insn.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return => returns += 1,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                assert!(insn.near_branch_target() < code.len() as u64, "{insn:?} leads out of it");
            }
            other => panic!("{insn:?}: {other:?}"),
        }
        for used in factory.info(&insn).used_registers() {
            let is_written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let full = used.register().full_register();
            let is_lost = matches!(
                full,
                Register::RAX
                    | Register::RCX
                    | Register::RDX
                    | Register::RSI
                    | Register::RDI
                    | Register::R8
                    | Register::R9
                    | Register::R10
                    | Register::R11
            );
            let is_ret = insn.flow_control() == FlowControl::Return && full == Register::RSP;
            assert!(full.is_gpr64() || full.is_segment_register(), "{insn:?} uses {full:?}");
            assert!(!is_written || is_lost || is_ret, "{insn:?} changes {full:?}");
        }
    }
    assert_eq!(returns, 1);
}

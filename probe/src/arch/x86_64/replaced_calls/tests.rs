//! Where system calls are found in programs that the assembler made, and what stands in their place, run in
//! this process: the oracle is the kernel.

use super::*;
use crate::arch::x86_64::testing::{
    Registers, alone, call, check, dead_process, in_child, map, read, unmap, write,
};
use crate::offset;
use crate::testing::{assembled, listing};
use nix::libc;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: u64 = 0x1000;

/// Where the labels `from` and `to` of a program are.
fn between(program: &Program, from: &str, to: &str) -> (Va, Vec<u8>) {
    let at = |name: &str| program.image.symbols.iter().find(|s| &*s.name == name).expect("a label").at;
    (at(from), program.image.bytes_in(&(at(from)..at(to))).expect("in the file").to_vec())
}

fn program(code: &str) -> Program {
    assembled(&[("_start", "call f\nhlt"), ("f", code)])
}

#[test]
fn an_openat_is_found_with_what_stands_before_it() {
    let program =
        program("push %rbx\nfrom: mov $257,%eax\nxor %edx,%edx\nmov %rsp,%rsi\nsyscall\nto: pop %rbx\nret");
    let found: Vec<_> = open_sites(&program).into_iter().map(|site| (site.at, site.bytes)).collect();
    assert_eq!(found, [between(&program, "from", "to")]);
}

#[test]
fn calls_that_cannot_be_replaced_are_not_found() {
    for code in [
        // Another number; none of the block's own; what is between must stand where it does, or is too long.
        "mov $256,%eax\nsyscall\nret",
        "mov $257,%eax\nje 1f\nnop\n1: syscall\nret",
        "mov $257,%eax\nlea f(%rip),%rsi\nsyscall\nret",
        "mov $257,%eax\n.rept 33\nnop\n.endr\nsyscall\nret",
    ] {
        assert!(open_sites(&program(code)).is_empty(), "{code}");
        let code = code.replace("257", "59");
        assert!(exec_sites(&program(&code)).is_empty(), "{code}");
    }
    assert_eq!(open_sites(&program("mov $257,%eax\n.rept 32\nnop\n.endr\nsyscall\nret")).len(), 1);
    // The call would write where the function keeps something.
    assert!(exec_sites(&program("mov %rdi,-8(%rsp)\nmov $59,%eax\nsyscall\nret")).is_empty());
    assert_eq!(exec_sites(&program("mov %rdi,8(%rsp)\nmov $59,%eax\nsyscall\nret")).len(), 1);
}

#[test]
fn a_program_asks_by_a_call_that_is_as_long() {
    for (number, name) in [(59, "0x7f000000"), (322, "0x7f000008")] {
        let program = program(&format!("nop\nfrom: mov ${number},%eax\nxor %edx,%edx\nsyscall\nto: ret"));
        let [site] = &exec_sites(&program)[..] else { panic!("one") };
        assert_eq!((Va(site.at), site.old.clone()), between(&program, "from", "to"));
        assert_eq!(site.new.len(), site.old.len());
        let text = listing(&site.new, Va(0x1000), |_, _| String::new());
        assert_eq!(text, format!("00: xor %edx,%edx\n02: callq *{name}\n"));
        assert!(may_exec(&site.old) && !may_exec(&site.new));
    }
}

/// A word that another thread or process may change meanwhile.
fn shared(at: u64) -> &'static AtomicU32 {
    // SAFETY: tests give an aligned address of memory that they have mapped, and unmap it last.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

/// Waits for what another thread does at once, or never.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 60, "nobody asks");
        std::thread::yield_now();
    }
}

/// What ld.so runs in place of an `openat`, in a process of its own memory.
struct Opening {
    at: u64,
    mailbox: u64,
    folder: tempfile::TempDir,
}

/// Where its parts are: the code, `ret` behind the site, the table of paths, the path that is asked for.
const BEHIND_SITE: u64 = PAGE;
const PATHS: u64 = 2 * PAGE;
const ASKED: u64 = 3 * PAGE;
const OPENING_LEN: u64 = 4 * PAGE;

impl Opening {
    /// Whose table says that the file `a` is to be the file `b`. `c` is there, too.
    fn new(has_mailbox: bool) -> Opening {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), name).expect("written");
        }
        let at = map(0, OPENING_LEN, libc::MAP_PRIVATE);
        let mailbox = map(0, Mailbox::LEN, libc::MAP_SHARED);
        map(PROCESS, Process::LEN, libc::MAP_PRIVATE);
        // mov $257,%eax; xor %edx,%edx; syscall
        let site = OpenSite { at: Va(0), bytes: vec![0xb8, 1, 1, 0, 0, 0x31, 0xd2, 0x0f, 0x05] };
        let opening = Opening { at, mailbox, folder };
        let live = at + BEHIND_SITE - site.bytes.len() as u64;
        opening.put(0, &open_library(&site, live, at + PATHS, if has_mailbox { mailbox } else { 0 }));
        opening.put(BEHIND_SITE, &[0xc3]);
        let path = |name: &str| [opening.path(name).to_str().expect("text").as_bytes(), &[0]].concat();
        let row = |from: &str, to: &str| {
            let (from, to) = (path(from), path(to));
            let len = u32::try_from(8 + from.len() + to.len()).expect("short");
            let second = u32::try_from(8 + from.len()).expect("short");
            [&len.to_le_bytes()[..], &second.to_le_bytes(), &from, &to].concat()
        };
        opening.put(PATHS, &[row("other", "c"), row("a", "b"), row("gone", "none"), vec![0; 4]].concat());
        opening
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        (self.at + offset..).zip(bytes).for_each(|(at, byte)| write(at, *byte));
    }

    /// Which file is opened where this one is asked for, or the error. All registers are kept that a system
    /// call keeps.
    fn open(&self, name: &str) -> Result<PathBuf, i64> {
        self.put(ASKED, &[self.path(name).to_str().expect("text").as_bytes(), &[0]].concat());
        let before = Registers {
            rbx: 1,
            rdx: u64::MAX,
            rbp: 2,
            rsi: self.at + ASKED,
            rdi: i64::from(libc::AT_FDCWD).cast_unsigned(),
            r8: 3,
            r9: 4,
            r10: 0,
            r12: 5,
            r13: 6,
            r14: 7,
            r15: 8,
            scratch: [9, 10],
            ..Registers::default()
        };
        let after = call(self.at + OPEN_LIBRARY_ENTRY, before);
        let lost = Registers { rax: after.rax, rcx: after.rcx, r11: after.r11, flags: after.flags, ..before };
        // What stood between the number and the call runs first: xor %edx,%edx
        check(after, Registers { rdx: 0, ..lost });
        let fd = i32::try_from(after.rax.cast_signed()).expect("a number");
        if fd < 0 {
            return Err(-i64::from(fd));
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("it is open");
        nix::unistd::close(fd).expect("it is ours");
        Ok(path)
    }

    /// The same while a launcher answers with `path`, or nothing: what it was asked for.
    fn asked(&self, name: &str, path: &str) -> (Result<PathBuf, i64>, String) {
        let (state, at) = (self.mailbox, self.mailbox + offset!(Mailbox, path));
        let path = path.to_owned();
        let answer = std::thread::spawn(move || {
            wait_until(|| shared(state).load(Ordering::SeqCst) == 1);
            let said: Vec<u8> = (at..).map(read::<u8>).take_while(|byte| *byte != 0).collect();
            (at..).zip(path.bytes().chain([0])).for_each(|(at, byte)| write(at, byte));
            shared(state).store(2, Ordering::SeqCst);
            String::from_utf8(said).expect("text")
        });
        let opened = self.open(name);
        (opened, answer.join().expect("it answers"))
    }

    fn mailbox(&self, field: u64) -> u32 {
        read(self.mailbox + field)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        unmap(self.at, OPENING_LEN);
        unmap(self.mailbox, Mailbox::LEN);
        unmap(PROCESS, Process::LEN);
    }
}

#[test]
fn a_library_that_is_known_is_opened_elsewhere() {
    let _alone = alone();
    let opening = Opening::new(false);
    check(opening.open("a"), Ok(opening.path("b")));
    check(opening.open("c"), Ok(opening.path("c")));
    // Where what it is to be is not there, it is opened as it is; where that is not, the kernel says so.
    check(opening.open("gone"), Err(i64::from(libc::ENOENT)));
    std::fs::write(opening.path("gone"), "").expect("written");
    check(opening.open("gone"), Ok(opening.path("gone")));
}

#[test]
fn a_library_that_is_not_known_is_asked_for() {
    let _alone = alone();
    let opening = Opening::new(true);
    let c = opening.path("c");
    let a_name = |name: &str| opening.path(name).to_str().expect("text").to_owned();
    std::fs::write(opening.path("new"), "").expect("written");
    check(opening.asked("new", &a_name("c")), (Ok(c), a_name("new")));
    check(opening.asked("new", ""), (Ok(opening.path("new")), a_name("new")));
    // What is answered is not there.
    check(opening.asked("new", &a_name("none")).0, Ok(opening.path("new")));
    let fields = [offset!(Mailbox, state), offset!(Mailbox, lock), offset!(Mailbox, n_requests)];
    check(fields.map(|field| opening.mailbox(field)), [0, 0, 3]);
    // Of the files that were not passed on, none is open still.
    let open = std::fs::read_dir("/proc/self/fd")
        .expect("mounted")
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    check(open.filter(|path| path.starts_with(opening.folder.path())).collect::<Vec<_>>(), Vec::new());
    // What is known is not asked for, nor is what is not there.
    check(opening.open("a"), Ok(opening.path("b")));
    check(opening.open("none"), Err(i64::from(libc::ENOENT)));
    check(opening.mailbox(offset!(Mailbox, n_requests)), 3);
}

#[test]
fn nobody_waits_for_a_launcher_that_is_gone() {
    let _alone = alone();
    let opening = Opening::new(true);
    // As the kernel leaves the lock of a thread that died; and a process died that was asking.
    write(opening.mailbox + offset!(Mailbox, owner), 0x4000_0000u32);
    write(opening.mailbox + offset!(Mailbox, lock), dead_process());
    check(opening.open("c"), Ok(opening.path("c")));
    check([offset!(Mailbox, state), offset!(Mailbox, lock)].map(|field| opening.mailbox(field)), [0, 0]);
}

/// What a program runs in place of `execve`, and where it asks.
struct Asking {
    requests: u64,
    owner: u64,
}

impl Asking {
    fn new() -> Asking {
        map(EXEC, PAGE, libc::MAP_PRIVATE);
        let requests = map(0, ExecRequests::LEN + PAGE, libc::MAP_SHARED);
        let asking = Asking { requests, owner: requests + ExecRequests::LEN };
        (EXEC..).zip(exec_page(requests, asking.owner)).for_each(|(at, byte)| write(at, byte));
        asking
    }

    /// Whoever answers the first thread that asks: what its slot says, and the signals that it has blocked.
    fn answer(&self) -> std::thread::JoinHandle<(u64, [u64; 3], String)> {
        let slot = self.requests + offset!(ExecRequests, slots);
        std::thread::spawn(move || {
            let state = slot + offset!(ExecRequest, state);
            wait_until(|| shared(state).load(Ordering::SeqCst) == 1);
            let thread: u32 = read(slot + offset!(ExecRequest, thread));
            let args = [0, 1, 2].map(|n| read(slot + offset!(ExecRequest, args) + 8 * n));
            let blocked = blocked(&format!("/proc/{thread}/status"));
            shared(state).store(0, Ordering::SeqCst);
            (read(slot + offset!(ExecRequest, number)), args, blocked)
        })
    }

    /// The slot of the first thread that asks.
    fn slot(&self) -> [u32; 2] {
        let slot = self.requests + offset!(ExecRequests, slots);
        [read(slot + offset!(ExecRequest, thread)), read(slot + offset!(ExecRequest, state))]
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        unmap(EXEC, PAGE);
        unmap(self.requests, ExecRequests::LEN + PAGE);
    }
}

/// The signals that are blocked, as the kernel says.
fn blocked(status: &str) -> String {
    let text = std::fs::read_to_string(status).expect("there is such a thread");
    text.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).expect("it says so").to_owned()
}

/// Makes another program of this process, a child: `/bin/sh`, which ends by 7 if no more signals are blocked
/// than before. `entry` is that for `execve` or `execveat`.
fn become_shell(entry: u64, before: &str) -> u8 {
    let script = format!("grep -q 'SigBlk:.{before}' /proc/self/status && exit 7\0");
    let args = [c"sh".as_ptr() as u64, c"-c".as_ptr() as u64, script.as_ptr() as u64, 0];
    let path = c"/bin/sh".as_ptr() as u64;
    let registers = match entry == offset!(ExecPage, execve) {
        true => Registers { rdi: path, rsi: args.as_ptr() as u64, ..Registers::default() },
        false => Registers { rsi: path, rdx: args.as_ptr() as u64, ..Registers::default() },
    };
    call(read(EXEC + entry), registers);
    1
}

#[test]
fn a_process_asks_before_it_becomes_another_program() {
    let _alone = alone();
    let asking = Asking::new();
    let before = blocked("/proc/thread-self/status");
    for (entry, number) in [(offset!(ExecPage, execve), 59), (offset!(ExecPage, execveat), 322)] {
        let answer = asking.answer();
        check(in_child(|| become_shell(entry, &before)), 7);
        let (got, _, blocked) = answer.join().expect("it answers");
        // All signals wait but those that cannot.
        check((got, blocked.as_str()), (number, "fffffffffffbfeff"));
        write(asking.requests + offset!(ExecRequests, slots), 0u32);
    }
    check(read::<u32>(asking.requests), 2);
}

#[test]
fn whoever_cannot_become_another_program_goes_on() {
    let _alone = alone();
    let asking = Asking::new();
    let before = Registers {
        rax: 1,
        rcx: 2,
        rdx: 0,
        rbx: 3,
        rbp: 4,
        rsi: 5,
        rdi: c"/none".as_ptr() as u64,
        r8: 6,
        r9: 7,
        r10: 8,
        r11: 9,
        r12: 10,
        r13: 11,
        r14: 12,
        r15: 13,
        ..Registers::default()
    };
    let try_it = || {
        let after = call(read(EXEC), before);
        let lost = Registers { rax: after.rax, rcx: after.rcx, r11: after.r11, flags: after.flags, ..before };
        check(after, lost);
        after.rax.cast_signed()
    };
    let blocks = blocked("/proc/thread-self/status");
    let answer = asking.answer();
    check(try_it(), -i64::from(libc::ENOENT));
    let (number, args, _) = answer.join().expect("it answers");
    check((number, args), (59, [before.rdi, before.rsi, before.r8]));
    check((asking.slot(), blocked("/proc/thread-self/status")), ([0, 0], blocks));
    // Nobody answers any more: nobody is asked.
    write(asking.owner, 0x4000_0000u32);
    check(try_it(), -i64::from(libc::ENOENT));
    check((read::<u32>(asking.requests), asking.slot()), (1, [0, 0]));
}

#[test]
fn the_page_that_asks_is_mapped_whole() {
    let code = exec_page(0, 0);
    assert!(code.len() as u64 <= PAGE && Path::new("/bin/sh").exists());
}

//! A recording that a program makes by itself, as a file.

use super::*;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// A module with notes and the first bytes of a recording, in a process that has none yet.
fn with_notes() -> World {
    let mut world = World::bare();
    let header = world.put(DATA + 64, &Capacity::FILE.header());
    world.put(DATA + 64 + Header::LEN, b"unnamed.engraft\0");
    world.runtime.set_notes(Va(header), Va(header), 8);
    world.load();
    world
}

/// What `create` does with an environment that names `path`, and what it says.
fn create(world: &World, path: &Path) -> (Registers, String) {
    let variable = format!("ENGRAFT_OUT={}\0", path.display());
    let at = world.put(DATA + 512, variable.as_bytes());
    let other = world.put(DATA + 256, b"PATH=/bin\0");
    let environment = world.put(DATA + 384, &[other, at, 0].map(u64::to_le_bytes).concat());
    told(|| world.call("create", Registers { r15: environment, ..Registers::default() }))
}

/// What `f` writes where errors go. No other test of this crate does meanwhile that would matter.
fn told<T>(f: impl FnOnce() -> T) -> (T, String) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let kept = std::io::stderr();
    let kept = nix::unistd::dup(&kept).expect("a number");
    // SAFETY: both numbers are open; what is replaced comes back below.
    unsafe { libc::dup2(writer.as_raw_fd(), 2) };
    let done = f();
    // SAFETY: as above.
    unsafe { libc::dup2(kept.as_raw_fd(), 2) };
    drop(writer);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("text");
    (done, said)
}

#[test]
fn a_program_makes_the_recording_that_its_user_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("run.engraft");
    let world = with_notes();
    let (got, said) = create(&world, &path);
    check((got.is_zero(), said.as_str()), (true, ""));
    check(std::fs::metadata(&path).expect("made").len(), Capacity::FILE.head_len());
    check(header::<u64>(offset!(Header, magic)), ARENA_MAGIC);
    check(header::<u64>(offset!(Header, n_areas)), 1);
    check(process::<u64>(offset!(Process, n_threads)), 1);
    let file = std::fs::read(&path).expect("made");
    check(file.get(..8), Some(&ARENA_MAGIC.to_le_bytes()[..]));
    // What is written to it is in the file: it is mapped, shared.
    set_header(offset!(Header, n_near), 7u64);
    check(std::fs::read(&path).expect("made").get(120), Some(&7));
}

#[test]
fn a_program_joins_the_recording_that_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("run.engraft");
    let world = with_notes();
    create(&world, &path);
    drop(world);
    let world = with_notes();
    let (got, _) = create(&world, &path);
    // An area of a process that is there, ours, is not given out again.
    check((got.is_zero(), thread::<u64>(0, offset!(Thread, area))), (true, 1));
}

#[test]
fn what_is_no_recording_is_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("letter");
    std::fs::write(&path, "Dear Sir").expect("written");
    let world = with_notes();
    let (got, said) = create(&world, &path);
    check(got.is_zero(), false);
    check(
        said,
        format!(
            "engraft: nothing is recorded, for the file there is something else, or a recording of `count` \
         (set ENGRAFT_OUT to another file): {}\n",
            path.display()
        ),
    );
    check(std::fs::read_to_string(&path).expect("there"), "Dear Sir".to_owned());
}

#[test]
fn what_cannot_be_written_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("none").join("run.engraft");
    let world = with_notes();
    let (got, said) = create(&world, &path);
    check(got.is_zero(), false);
    check(
        said,
        format!(
            "engraft: nothing is recorded, for there is no room for it or no right to write it \
         (set ENGRAFT_OUT to another file): {}: error {}\n",
            path.display(),
            libc::ENOENT
        ),
    );
}

#[test]
fn what_is_said_goes_where_errors_go() {
    let world = World::bare();
    let text = world.put(DATA, b"abc");
    let (_, said) = told(|| world.call("say", Registers { rsi: text, rdx: 2, ..Registers::default() }));
    check(said.as_str(), "ab");
}

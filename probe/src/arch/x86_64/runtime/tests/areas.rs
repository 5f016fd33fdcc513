//! The recording, its lock, and the areas in it.

use super::*;

#[test]
fn a_recording_is_found_by_its_first_word() {
    let world = World::new();
    let got = world.call_at(world.label("find"), Registers::default());
    check((got.is_zero(), got.rbx, got.r12), (true, ARENA, PROCESS));
    set_header(offset!(Header, magic), ARENA_MAGIC + 1);
    check(world.call("find", Registers::default()).is_zero(), false);
}

#[test]
fn without_memory_there_is_no_recording() {
    let world = World::bare();
    check(world.call("find", Registers::default()).is_zero(), false);
}

#[test]
fn the_lock_holds_signals_off() {
    let world = World::new();
    let locked = world.call("lock", Registers::default());
    let (holder, blocks) = (header::<u32>(offset!(Header, lock)), blocks_signals());
    world.call("unlock", locked);
    check((holder, blocks), (std::process::id(), true));
    check((header::<u32>(offset!(Header, lock)), blocks_signals()), (0, false));
}

#[test]
fn a_process_that_is_gone_loses_the_lock() {
    let world = World::new();
    set_header(offset!(Header, lock), dead_process());
    let locked = world.call("lock", Registers::default());
    let holder = header::<u32>(offset!(Header, lock));
    world.call("unlock", locked);
    check(holder, std::process::id());
}

/// The number of the file that stands for our namespace of processes.
fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid").expect("mounted").ino()
}

#[test]
fn the_first_process_says_in_which_namespace_it_is() {
    let world = World::new();
    set_process(offset!(Process, name), 0u32);
    set_process(offset!(Process, inherited_name), 0u64);
    let got = world.call("self", Registers::default());
    check(got.r9, u64::from(std::process::id()));
    check(header::<u64>(offset!(Header, namespace)), namespace());
    check(process::<u64>(offset!(Process, inherited_name)), 1);
}

#[test]
fn a_process_of_another_namespace_is_called_so() {
    let world = World::new();
    set_process(offset!(Process, name), 0u32);
    set_process(offset!(Process, inherited_name), 0u64);
    set_header(offset!(Header, namespace), namespace() + 1);
    world.call("self", Registers::default());
    check(process::<u32>(offset!(Process, name)), std::process::id() | IS_APART);
}

#[test]
fn a_child_of_fork_gets_areas_of_its_own() {
    let world = World::new();
    // As `fork` leaves it: the first pages are wiped.
    set_process(offset!(Process, number), 0u64);
    set_process(offset!(Process, n_threads), 3u64);
    world.call("refresh", Registers::default());
    check(process::<u64>(offset!(Process, n_threads)), 1);
    check(thread::<u64>(0, offset!(Thread, area)), 1);
    write(world.at + COUNTERS + 8, 77u64);
    check((world.counter(0, 1), world.counter(1, 1)), (0, 77));
    // Once only.
    world.call("refresh", Registers::default());
    check(thread::<u64>(0, offset!(Thread, area)), 1);
}

#[test]
fn a_home_is_there_as_long_as_its_module_is() {
    let world = World::new();
    check(world.call("home", Registers::default()).rax, world.at + HOME);
    write(world.at + RUNTIME + offset!(Module, key), 1u64);
    let got = world.call("home", Registers::default());
    check((got.rax, got.is_zero()), (0, true));
    check(process::<u64>(offset!(Process, homes)), 0);
}

#[test]
fn an_owner_is_named_at_each_home() {
    let world = World::new();
    write(world.at + HOME + offset!(HomePage, is_recorded), 0u8);
    world.call("name_owner", Registers { rbp: 0x1234, ..Registers::default() });
    check(read::<u64>(world.at + HOME + offset!(HomePage, owner)), 0x1234);
    check(read::<u8>(world.at + HOME + offset!(HomePage, is_recorded)), 1);
}

#[test]
fn areas_are_given_out_in_order_and_again() {
    let world = World::new();
    check(world.call("new_area", Registers::default()).rax, 1);
    check((world.owner(1), world.state(1)), (std::process::id(), MAY_RUN));
    check(header::<u64>(offset!(Header, n_areas)), 2);
    write(ARENA + world.head.owners_at(), 0u32);
    check(world.call("new_area", Registers::default()).rax, 0);
    // Who had it was not seen to end.
    check(header::<u64>(offset!(Header, n_stopped)), 1);
}

#[test]
fn where_there_is_no_room_a_dead_process_makes_some() {
    let world = World::new();
    set_header(offset!(Header, max_areas), 2u64);
    set_header(offset!(Header, n_areas), 2u64);
    write(ARENA + world.head.owners_at() + 4, std::process::id());
    check(world.call("new_area", Registers::default()).rax.cast_signed(), -1);
    write(ARENA + world.head.owners_at() + 4, dead_process());
    check(world.call("new_area", Registers::default()).rax, 1);
    check(world.owner(1), std::process::id());
}

/// How far from its first one an area is mapped here.
const DISTANCE: u64 = 1 << 30;

#[test]
fn an_area_is_mapped_at_each_home_or_nowhere() {
    let world = World::new();
    let far = Registers { r13: 2, r15: DISTANCE.wrapping_neg(), ..Registers::default() };
    check(world.call("map_area", far).is_zero(), true);
    let home = world.at + HOME - DISTANCE;
    write(home + HomePage::LEN + 24, 5u64);
    check(world.counter(2, 3), 5);
    check(world.call("map_area", far).is_zero(), false);
    check(read::<u64>(home + HomePage::LEN + 24), 5);
    unmap(home, 2 * PAGE);
}

#[test]
fn a_home_is_mapped_where_nothing_is() {
    let world = World::new();
    let home = world.at + HOME;
    let near = Registers { rdi: home, r13: 1, r15: DISTANCE, ..Registers::default() };
    check(world.call("map_home", near).is_zero(), true);
    check((is_mapped(home + DISTANCE), is_mapped(home + DISTANCE + PAGE)), (true, true));
    check(world.call("map_home", near).is_zero(), false);
    unmap(home + DISTANCE, 2 * PAGE);
    // A home of which no counters can be had leaves nothing behind.
    write(ARENA + world.head.extents_at() + 8, 0u64);
    check(world.call("map_home", near).is_zero(), false);
    check(is_mapped(home + DISTANCE), false);
}

#[test]
fn a_row_has_a_length() {
    let world = World::new();
    check(world.call("row_len", Registers::default()).rax, PAGE);
}

#[test]
fn a_child_finds_a_wiped_page_empty() {
    let world = World::new();
    let page = world.at + HOME;
    check(world.call("wipe", Registers { rdi: page, ..Registers::default() }).rax, 0);
    write(page, 9u8);
    write(page + PAGE, 8u8);
    check(in_child(|| read::<u8>(page) + read::<u8>(page + PAGE)), 8);
}

#[test]
fn counters_are_mapped_a_second_time() {
    let world = World::new();
    let got = world.call("map_shared", Registers { r13: 3, ..Registers::default() });
    write(got.rax + 8, 31u64);
    check(world.counter(3, 1), 31);
    unmap(got.rax, PAGE);
}

/// A world whose recording is a file, which is as long as what is mapped.
fn with_file(dir: &tempfile::TempDir) -> (World, std::path::PathBuf) {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let path = dir.path().join("recording");
    let len: u64 = header(offset!(Header, len_bytes));
    std::fs::write(&path, vec![0; usize::try_from(len).expect("small")]).expect("written");
    let bytes = path.as_os_str().as_bytes();
    for (at, byte) in (0..).zip(bytes) {
        set_process(offset!(Process, path) + at, *byte);
    }
    set_process(offset!(Process, path_len), bytes.len() as u64 + 1);
    (world, path)
}

fn len_of(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).expect("there").len()
}

#[test]
fn the_file_is_opened_by_its_path() {
    let dir = tempfile::tempdir().expect("a folder");
    let (world, path) = with_file(&dir);
    let fd = world.call("open", Registers::default()).rax;
    check(std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("open"), path.clone());
    nix::unistd::close(i32::try_from(fd).expect("a number")).expect("closed");
    std::fs::remove_file(path).expect("there");
    let got = world.call("open", Registers::default()).rax.cast_signed();
    check(got, -i64::from(libc::ENOENT));
}

#[test]
fn a_file_grows_with_its_areas() {
    let dir = tempfile::tempdir().expect("a folder");
    let (world, path) = with_file(&dir);
    let before = len_of(&path);
    let got = world.call("grow", Registers { rsi: 3 * PAGE, ..Registers::default() });
    check((got.rax, got.is_negative()), (before, false));
    check((len_of(&path), header::<u64>(offset!(Header, len_bytes))), (before + 3 * PAGE, before + 3 * PAGE));
    // An area that has a place keeps it; one that has none gets one.
    check(world.call("extent", Registers { r13: 2, ..Registers::default() }).rax, extent(world.head, 2));
    check(world.call("extent", Registers { r13: 5, ..Registers::default() }).rax, before + 3 * PAGE);
    check(len_of(&path), before + 4 * PAGE);
    check(read::<u64>(ARENA + world.head.extents_at() + 8 * 5), before + 3 * PAGE);
}

#[test]
fn what_has_no_file_cannot_grow() {
    let world = World::new();
    let got = world.call("grow", Registers { rsi: PAGE, ..Registers::default() });
    check((got.rax.cast_signed(), got.is_negative()), (-i64::from(libc::ENOMEM), true));
}

#[test]
fn counters_of_a_file_are_mapped_from_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (world, path) = with_file(&dir);
    let got = world.call("map_shared", Registers { r13: 5, ..Registers::default() });
    write(got.rax, *b"ENGRAFT!");
    unmap(got.rax, PAGE);
    let bytes = std::fs::read(path).expect("a file");
    check(bytes.ends_with(&[0]), true);
    check(bytes.windows(8).any(|w| w == b"ENGRAFT!"), true);
}

#[test]
fn a_limit_of_files_is_kept() {
    let world = World::new();
    let under = |limit: u64, len: u64| {
        in_child(|| {
            limit_files(limit);
            let got = world.call("check_limit", Registers { rdi: len, ..Registers::default() });
            u8::try_from(-got.rax.cast_signed()).expect("an error's number")
        })
    };
    check((under(PAGE, PAGE), i32::from(under(PAGE, PAGE + 1))), (0, libc::EFBIG));
}

#[test]
fn only_threads_that_are_no_more_are_reaped() {
    let world = World::new();
    let reap = || world.call("reap", Registers { r14: 8, ..Registers::default() }).rax;
    set_process(offset!(Process, n_threads), 2u64);
    set_thread(1, thread_pointer(), 0, 1);
    check(reap(), 0);
    // Something else is there; then nothing is.
    write(world.at + DATA, 1u64);
    set_thread(1, world.at + DATA, 0, 1);
    check(reap(), thread_at(1));
    set_thread(1, 0x10, 0, 1);
    check(reap(), thread_at(1));
}

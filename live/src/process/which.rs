//! Which processes there are: by name, and by who started them.

use super::status::Status;
use procfs::process::{Process, all_processes};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Processes of this name, ascending: what the kernel calls them, or what their executable's file is called.
/// Not us.
pub fn processes_named(name: &str) -> Vec<i32> {
    let ours = std::process::id();
    let is_it = |process: &Process| {
        let is_called = process.stat().is_ok_and(|stat| stat.comm == name && stat.state != 'Z');
        let file = || process.exe().ok()?.file_name().map(|file| file.to_string_lossy().into_owned());
        is_called || file().is_some_and(|file| file.strip_suffix(" (deleted)").unwrap_or(&file) == name)
    };
    let all = all_processes().into_iter().flatten().filter_map(Result::ok);
    let mut pids: Vec<i32> = all.filter(is_it).map(|process| process.pid()).collect();
    pids.retain(|pid| u32::try_from(*pid) != Ok(ours));
    pids.sort_unstable();
    pids
}

/// The processes that process `pid` has started and that are there still, ascending.
pub fn children_of(pid: i32) -> Vec<i32> {
    let tasks = Process::new(pid).and_then(|process| process.tasks()).into_iter().flatten();
    let children = tasks.filter_map(|task| task.ok()?.children().ok()).flatten();
    let mut all: Vec<i32> = children.map(u32::cast_signed).collect();
    all.sort_unstable();
    all
}

/// In which namespace of processes `pid` is (its file's number), and its number there.
///
/// # Errors
/// The kernel's, if it is gone, or we may not know.
pub(crate) fn own_number(pid: i32) -> io::Result<(u64, i32)> {
    let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid"))?.ino();
    Ok((namespace, Status::read(pid)?.own_number()))
}

/// The processes in this `namespace`: by which numbers there we know them by which.
pub(crate) fn numbered_in(namespace: u64) -> HashMap<i32, i32> {
    let all = all_processes().into_iter().flatten().filter_map(Result::ok).map(|process| process.pid());
    let in_it = all.filter_map(|pid| own_number(pid).ok().filter(|(of, _)| *of == namespace).zip(Some(pid)));
    in_it.map(|((_, own), pid)| (own, pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn numbers_of_a_namespace_are_those_of_its_processes() {
        let own = i32::try_from(std::process::id()).expect("small");
        let (namespace, number) = own_number(own).expect("it runs");
        assert_eq!(numbered_in(namespace).get(&number), Some(&own));
        assert!(numbered_in(0).is_empty());
    }

    #[test]
    fn a_child_is_found_by_its_name_and_by_its_parent() {
        let folder = tempfile::tempdir().expect("a folder");
        // Longer than what the kernel keeps of a name.
        let program = folder.path().join("which-process-is-it");
        let cat = ["/bin/cat", "/usr/bin/cat"].into_iter().find(|cat| std::path::Path::new(cat).exists());
        // By another process: what we had open for writing cannot be run while a child that another test
        // starts has it open still.
        let mut copy = Command::new("cp");
        assert!(copy.arg(cat.expect("it is installed")).arg(&program).status().expect("it runs").success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).spawn().expect("started");
        let pid = i32::try_from(child.id()).expect("small");
        let own = i32::try_from(std::process::id()).expect("small");
        assert_eq!(processes_named("which-process-is-it"), [pid]);
        assert!(processes_named("which-process-i").contains(&pid), "as the kernel calls it");
        assert!(children_of(own).contains(&pid) && children_of(pid).is_empty());
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
        assert_eq!(processes_named("which-process-is-it"), []);
    }
}

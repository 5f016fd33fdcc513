//! The quick part of `checks/kinds.sh`, `checks/processes.sh` and `checks/tree.sh`: programs of every kind,
//! many processes and threads.

use crate::needs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a script of `checks/` on this build of ours.
fn checked(script: &str, args: &[&str]) -> Output {
    let checks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checks");
    let mut command = Command::new(checks.join(script));
    command.args(args).env("ENGRAFT", env!("CARGO_BIN_EXE_engraft")).env("SECONDS_OF_THREADS", "3");
    command.output().expect("it runs")
}

#[test]
fn programs_of_every_kind_are_counted_or_refused() {
    needs!("gcc", "bash", "python3");
    let cases = [
        ("ok", "vfork"),
        ("ok", "posix_spawn, system"),
        ("ok", "daemon that ends first"),
        ("ok", "dlopen, dlclose, again, in threads and children"),
        ("ok", "dlmopen in five namespaces"),
        ("ok", "LD_PRELOAD"),
        ("refused", "setuid program"),
        ("ok", "seccomp, strict"),
        ("ok", "seccomp, a filter"),
        ("refused", "RLIMIT_FSIZE 100 kB"),
        ("ok", "RLIMIT_FSIZE 1 MB"),
        ("ok", "RLIMIT_AS 150 MB"),
        ("ok", "RLIMIT_AS that the program sets"),
        ("ok", "RLIMIT_NOFILE 16"),
        ("ok", "RLIMIT_STACK 64 kB"),
        ("ok", "2,000 threads at once"),
        ("ok", "handlers that longjmp"),
        ("ok", "handlers that change the context"),
        ("ok", "SA_RESTART"),
        ("ok", "makecontext, swapcontext"),
        ("refused", "an instrumented file"),
    ];
    let ran = checked("kinds.sh", &cases.map(|case| case.1));
    let said = String::from_utf8_lossy(&ran.stdout);
    let verdicts: Vec<_> = said.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(verdicts, cases.map(|case| case.0), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
}

#[test]
fn what_follows_from_the_tree_is_what_a_counter_a_block_says() {
    needs!("gcc", "g++", "bash", "python3", "setarch");
    let ran = checked("tree.sh", &["gzip", "cgoto", "cgoto-stripped", "throws-stripped"]);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said.lines().filter(|line| line.contains(" ok ")).count(), 4, "{said}");
}

#[test]
fn many_processes_and_threads_are_counted() {
    needs!("gcc", "bash", "python3");
    let ran = checked("processes.sh", &[]);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said.lines().filter(|line| line.ends_with(": holds")).count(), 6, "{said}");
}

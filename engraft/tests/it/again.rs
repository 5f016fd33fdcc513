//! What is kept from one run for the next.

use crate::count::plain;
use crate::needs;
use crate::run::{compile, folder};
use std::process::Command;

/// Where counters stand is learnt from the first run that is long, and changes nothing that is counted.
#[test]
fn what_ran_long_is_counted_elsewhere_the_next_time() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("branches"), "branches.c", "-O1");
    let cached = || -> Vec<String> {
        let files = std::fs::read_dir(place.path().join("cache/engraft")).into_iter().flatten().flatten();
        let mut names: Vec<_> = files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let run = |n: &str, m: &str| {
        let mut count = Command::new(env!("CARGO_BIN_EXE_engraft"));
        count.args(["count", "-q", "--modules", "exe", "-o", "b.engraft", "--", "./branches", n, m]);
        let ran = count.current_dir(place.path()).env("XDG_CACHE_HOME", place.path().join("cache")).output();
        let want = plain(place.path(), &["./branches", n, m]);
        assert_eq!(ran.expect("it runs").status, want.status);
        std::fs::read(place.path().join("b.engraft")).expect("it was written")
    };
    let short = run("10", "3");
    assert!(!cached().iter().any(|name| name.ends_with("-ran")), "{:?}", cached());
    let first = run("1000000", "1000");
    let names = cached();
    assert_eq!(names.iter().filter(|name| name.ends_with("-ran")).count(), 1, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("-like-")), "{names:?}");
    assert!(run("1000000", "1000") == first);
    let names = cached();
    assert_eq!(names.iter().filter(|name| name.contains("-like-")).count(), 1, "{names:?}");
    assert!(run("1000000", "1000") == first && run("10", "3") == short);
    assert_eq!(cached(), names);
}

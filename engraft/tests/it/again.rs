//! What is kept from one run for the next.

use crate::count::plain;
use crate::needs;
use crate::run::{built, compile, counts, folder};
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
        counts(&place.path().join("b.engraft"))
    };
    let short = run("10", "3");
    assert!(!cached().iter().any(|name| name.ends_with("-ran")), "{:?}", cached());
    let first = run("1000000", "1000");
    let names = cached();
    assert_eq!(names.iter().filter(|name| name.ends_with("-ran")).count(), 1, "{names:?}");
    let n_rewritten = |names: &[String]| names.iter().filter(|name| name.ends_with("-exe")).count();
    assert_eq!(n_rewritten(&names), 1, "{names:?}");
    assert!(run("1000000", "1000") == first);
    let names = cached();
    assert_eq!(n_rewritten(&names), 2, "{names:?}");
    assert!(run("1000000", "1000") == first && run("10", "3") == short);
    assert_eq!(cached(), names);
}

/// What is kept is not what it was any more, as after a full disk: it is made again, and the program runs and
/// counts as the first time.
#[test]
fn what_is_kept_and_was_changed_is_made_again() {
    needs!("gcc");
    let place = folder();
    let text = "int f(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * n; return s; }";
    built(place.path(), "libf.so", text, "-O1 -shared -fPIC");
    let text = "#include <stdio.h>\nint f(int); int main(void) { printf(\"%d\\n\", f(1234)); return 7; }";
    built(place.path(), "old", text, "-O1 -Wl,-rpath,$ORIGIN -Wl,--no-as-needed libf.so");
    let want = plain(place.path(), &["./old"]);
    let run = || {
        let mut count = Command::new(env!("CARGO_BIN_EXE_engraft"));
        count.args(["count", "-q", "--follow", "-o", "run.engraft", "--", "./old"]).current_dir(place.path());
        let ran = count.env("XDG_CACHE_HOME", place.path().join("cache")).output().expect("it runs");
        assert_eq!((ran.status, &ran.stdout, &ran.stderr), (want.status, &want.stdout, &want.stderr));
        counts(&place.path().join("run.engraft"))
    };
    let kept = || -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(place.path().join("cache/engraft")).expect("there").flatten();
        let mut all: Vec<_> =
            files.map(|f| (f.path(), std::fs::read(f.path()).expect("it can be read"))).collect();
        all.sort();
        all
    };
    let first = run();
    let whole = kept();
    assert!(whole.len() > 3, "{}", whole.len());
    let flip = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        bytes
    };
    let damaged = |how: usize, bytes: &[u8]| match how {
        0 => Vec::new(),
        1 => bytes[..bytes.len().min(4096)].to_vec(),
        2 => bytes[..bytes.len() - 1].to_vec(),
        3 => vec![0; bytes.len()],
        _ => flip(bytes, bytes.len() / (how - 2)),
    };
    for how in 0..7 {
        for (path, bytes) in &whole {
            std::fs::write(path, damaged(how, bytes)).expect("written");
        }
        assert!(run() == first, "damage {how}");
        assert!(kept() == whole, "damage {how}: not all is as it was");
    }
}

//! `engraft replace`: functions of a process that runs are replaced by others and taken back, and nobody else
//! notices.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{Ran, engraft, folder, has_ours, must};
use std::path::Path;
use std::process::Command;

/// A server, and a library of what stands in for its functions.
fn start(folder: &Path, flags: &str) -> Server {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    let mut make = Command::new("g++");
    make.current_dir(folder)
        .args(["-O2", "-w", "-shared", "-fPIC", "-o", "new.so"])
        .arg(fixtures.join("replaces.cc"));
    must(&mut make);
    let mut make = Command::new("gcc");
    make.current_dir(folder).args(["-O2", "-w", "-fPIC", "-c", "-x", "c", "-o", "new.o"]);
    must(make.arg(fixtures.join("replaces.cc")));
    Server::start(folder, "replaced.cc", "g++", &format!("{flags} -lm"))
}

fn replace(folder: &Path, server: &Server, rest: &str) -> Ran {
    engraft(folder, &format!("replace {rest} -p {}", server.pid()))
}

/// Each way to a function leads to what stands in for it, and back.
#[test]
fn a_function_is_replaced_and_taken_back() {
    needs!("g++", "gcc");
    let place = folder();
    for flags in ["-O2", "-O1 -no-pie -Wl,-z,lazy -rdynamic"] {
        let mut server = start(place.path(), flags);
        let mut before = server.memory();
        // What is asked, what stands in for it, the answer meanwhile.
        let cases = [
            ("plain 4", "plain --with ./new.so:plain", "6 6 10"),
            ("plain 4", "plain --object new.o", "6 6 10"),
            ("plain 4", "plain --with ./new.so:by_original", "15 15 19"),
            ("tiny 0", "tiny --with ./new.so:tiny", "4"),
            ("deep 9", "deep --with ./new.so:deep", "18"),
            // Each of its calls of itself comes to the new one.
            ("deep 9", "deep --with ./new.so:deep_by_original", "70"),
            ("deep 5", "deep --with ./new.so:deep_by_original", "5"),
            ("throws 1", "throws --with ./new.so:throws", "5"),
            ("throws 2", "throws --with ./new.so:throws", "caught of the new one"),
            ("throws 3", "throws --with ./new.so:throws", "3"),
            ("chosen 3", "chosen --with ./new.so:chosen", "97"),
            ("library 12", "library --with ./new.so:library", "4"),
            // Of several versions, the one that is used; of those that a resolver chooses from, the one that
            // it took.
            ("exp 2", "exp --with ./new.so:exponent", "2.5"),
            ("library 12", "strlen --with ./new.so:length", "77"),
        ];
        for (asked, by, want) in cases {
            let plain = server.ask(asked);
            let said = replace(place.path(), &server, by).ok();
            assert!(said.contains(" stands in for "), "{said}");
            assert_eq!(server.ask(asked), want, "{flags} {by}");
            assert_eq!(server.ask(asked), want, "{flags} {by}");
            let function = by.split(' ').next().expect("a name");
            let listed = replace(place.path(), &server, "--list").ok();
            assert!(listed.contains("/new.so") || listed.contains("/new.o"), "{listed}");
            let undone = replace(place.path(), &server, &format!("{function} --undo"));
            assert_eq!(undone.code, Some(0), "{flags} {by} {} {}", undone.stdout, undone.stderr);
            assert_eq!(server.ask(asked), plain, "{flags} {by}");
            let after = server.memory();
            // What caught an exception is known to that still, which is nobody's any more.
            if undone.stdout.contains("what stood in for it stays in the process") {
                assert_eq!(function, "throws", "{}", undone.stdout);
                before = after;
                continue;
            }
            assert!(after.1 == before.1, "{flags} {by}: its code is as it was");
            // The kernel lists pages of one file in parts.
            if ["exp", "strlen"].contains(&function) {
                assert!(!has_ours(&after.0), "{}", after.0);
                before = after;
                continue;
            }
            assert_eq!(after.0, before.0, "{flags} {by}");
        }
        server.end(true);
    }
}

/// Data is the process's own, also what is not exported; what stands in has its own, too, from new each time.
#[test]
fn what_stands_in_uses_the_data_of_the_process() {
    needs!("g++", "gcc");
    let place = folder();
    let mut server = start(place.path(), "-O2");
    assert_eq!(server.ask("data 0"), "5 7 11");
    for n in 1..=2 {
        replace(place.path(), &server, "plain --with ./new.so:with_data").ok();
        // 20 + (4 + 100) + 1000; each call counts.
        assert_eq!(server.ask("plain 4"), "1124 1125 1130");
        assert_eq!(server.ask("data 0"), format!("{} {} {}", 5 + 3 * n, 7 + 6 * n, 11 + 9 * n));
        replace(place.path(), &server, "plain --undo").ok();
    }
}

/// Under load, again and again; and when nobody waits for the end of what was replaced.
#[test]
fn calls_in_progress_end_in_the_old_code() {
    needs!("g++", "gcc");
    let place = folder();
    let mut server = start(place.path(), "-O2");
    for _ in 0..20 {
        replace(place.path(), &server, "hot --with ./new.so:hot").ok();
        assert_eq!(server.ask("hot 0"), "1 0");
        replace(place.path(), &server, "hot --undo").ok();
        assert_eq!(server.ask("hot 0"), "1 0");
    }
    server.ask("wait 0");
    std::thread::park_timeout(std::time::Duration::from_millis(50));
    replace(place.path(), &server, "waits --with ./new.so:waits").ok();
    assert_eq!(server.ask("go 0"), "8", "it waited in the old one");
    server.ask("wait 0");
    assert_eq!(server.ask("go 0"), "53");
    replace(place.path(), &server, "waits --undo").ok();
    server.ask("wait 0");
    assert_eq!(server.ask("go 0"), "8");
    server.end(true);
}

/// An exception that was thrown by a function in moved code finds who catches it when that is taken back
/// meanwhile, and when it is put in meanwhile.
#[test]
fn exceptions_on_their_way_arrive() {
    needs!("g++", "gcc");
    let place = folder();
    Server::build(place.path(), "on.so", ["passes_on.c", "gcc", "-O2 -shared -fPIC"]);
    for flags in ["-O2", "-O1 -fno-reorder-blocks-and-partition"] {
        let mut server = Server::start(place.path(), "searched.cc", "g++", flags);
        for function in ["leaf", "middle"] {
            let by = format!("{function} --with ./on.so:passes_on");
            let undo = format!("{function} --undo");
            for n in 7..9 {
                replace(place.path(), &server, &by).ok();
                assert_eq!(server.ask(&format!("throw {n}")), "stands");
                let undone = replace(place.path(), &server, &undo);
                eprintln!("{flags} {function} {} {}", undone.stdout, undone.stderr);
                assert_eq!(server.ask("go 0"), format!("{}", n + 100), "{flags} {function}");
                // Who searches may hold what it has found: then the rest is taken back afterwards.
                if undone.code == Some(1) {
                    engraft(place.path(), &format!("rescue {}", server.pid())).ok();
                }
                assert_eq!(server.ask(&format!("throw {n}")), "stands");
                replace(place.path(), &server, &by).ok();
                assert_eq!(server.ask("go 0"), format!("{}", n + 100), "{flags} {function}");
                replace(place.path(), &server, &undo).ok();
            }
        }
        server.end(true);
    }
}

/// What stays in the process when its command was killed is undone by `rescue`; what cannot be is named.
#[test]
fn what_cannot_be_replaced_is_named_and_left_alone() {
    needs!("g++", "gcc");
    let place = folder();
    let mut server = start(place.path(), "-O2");
    let before = server.memory();
    #[track_caller]
    fn refused(folder: &Path, server: &Server, words: &str, want: &str) {
        let ran = replace(folder, server, words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words} {}", ran.stderr);
        assert!(ran.stderr.contains(want), "{words}: {}", ran.stderr);
    }
    let source = |name: &str, text: &str| {
        std::fs::write(place.path().join(format!("{name}.c")), text).expect("written");
        let mut gcc = Command::new("gcc");
        gcc.current_dir(place.path()).args(["-O1", "-w", "-shared", "-fPIC", "-o"]);
        must(gcc.args([format!("{name}.so"), format!("{name}.c")]));
    };
    source("missing", "long nobody_has_this(long); long plain(long n) { return nobody_has_this(n); }");
    source("thread", "static __thread long n; long plain(long m) { return n += m; }");
    source(
        "starts",
        "long n; __attribute__((constructor)) static void c(void) { n = 5; } long plain(long m) { return n; }",
    );
    source("data", "long table[] = {1, 2, 3}; long plain(long n) { return table[n & 1]; }");
    source(
        "chosen",
        "static long two(long n) { return 2; } static void *which(void) { return two; }
        long chosen(long n) __attribute__((ifunc(\"which\")));",
    );
    let of = |words: &str, want: &str| refused(place.path(), &server, words, want);
    of("plain --with ./data.so:table", "table");
    of("plain --with ./chosen.so:chosen", "chosen");
    of(
        "plain --with ./missing.so:plain",
        "missing.so needs nobody_has_this, which nothing in the process is called",
    );
    of("plain --with ./thread.so:plain", "variables of threads");
    of("plain --with ./starts.so:plain", "has constructors");
    of("plain --with ./new.so:none", "new.so defines no function none");
    of("plain --with ./new.c:plain", "cannot read ./new.c");
    of("plain --with ./missing.c:plain", "is not a shared object");
    of("nothing_like_this --with ./new.so:plain", "nothing_like_this");
    std::fs::write(place.path().join("empty"), "").expect("written");
    of("plain --bytes empty", "empty is empty");
    of("plain --bytes /dev/zero", "/dev/zero is no regular file");
    of("plain", "what is to stand in for plain?");
    of("plain --undo", "is not replaced");
    // A byte long, with a function right behind it.
    of("minute --with ./new.so:tiny", "minute cannot be replaced: no room for a jump at an entry");
    assert!(server.memory() == before);
    assert_eq!(server.ask("minute 0"), "9");

    replace(place.path(), &server, "plain --with ./new.so:plain").ok();
    let pid = server.pid();
    let counted = engraft(place.path(), &format!("count -p {pid} --for 10ms"));
    assert_eq!(counted.code, Some(2));
    assert!(counted.stderr.contains("has functions that were replaced"), "{}", counted.stderr);
    refused(place.path(), &server, "tiny --with ./new.so:tiny", "has functions that were replaced");
    refused(place.path(), &server, "tiny --undo", "replaced are: plain");
    engraft(place.path(), &format!("rescue {pid}")).ok();
    assert!(server.memory() == before);
    assert_eq!(server.ask("plain 4"), "5 5 9");
    server.end(true);
}

/// Machine code without a file around it.
#[test]
fn plain_bytes_stand_in() {
    needs!("g++", "gcc");
    let place = folder();
    let mut server = start(place.path(), "-O2");
    // lea 7(%rdi),%rax; ret
    std::fs::write(place.path().join("seven"), [0x48, 0x8d, 0x47, 0x07, 0xc3]).expect("written");
    replace(place.path(), &server, "plain --bytes seven").ok();
    assert_eq!(server.ask("plain 4"), "11 11 15");
    let listed = replace(place.path(), &server, "--list --json").ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    assert_eq!(
        (&listed["schema"], &listed["replaced"][0]["function"]),
        (&"engraft.replace/1".into(), &"plain".into())
    );
    assert!(listed["replaced"][0]["with"].as_str().is_some_and(|with| with.ends_with("/seven")));
    replace(place.path(), &server, "plain --undo").ok();
    assert_eq!(server.ask("plain 4"), "5 5 9");
}

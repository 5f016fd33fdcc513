//! `engraft replace --memo`, `--constant`, `--trial`: what depends on arguments alone is remembered, and what
//! may be worse is tried first.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{Ran, engraft, folder, must};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn start(folder: &Path) -> Server {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    let mut make = Command::new("gcc");
    make.current_dir(folder).args(["-O2", "-shared", "-fPIC", "-fno-plt", "-o", "new.so"]);
    must(make.arg(fixtures.join("remembers.c")));
    Server::start(folder, "remembered.c", "gcc", "-O2 -g -lm")
}

fn replace(folder: &Path, server: &Server, rest: &str) -> Ran {
    engraft(folder, &format!("replace {rest} -p {}", server.pid()))
}

/// The address of the call of `callee` in `caller`, as objdump sees it.
fn call_in(folder: &Path, caller: &str, callee: &str) -> String {
    let mut objdump = Command::new("objdump");
    objdump.current_dir(folder).args(["-d", "--no-show-raw-insn", "--disassemble"]);
    objdump.arg(format!("--disassemble={caller}")).arg("server");
    let listing = String::from_utf8(objdump.output().expect("objdump runs").stdout).expect("text");
    let is_it = |line: &&str| line.contains("call") && line.contains(&format!("<{callee}"));
    let line = listing.lines().find(is_it).unwrap_or_else(|| panic!("no call of {callee}: {listing}"));
    format!("0x{}", line.trim().split(':').next().expect("an address"))
}

/// A table gives what the function gave; each call with arguments that it has is none of the function.
#[test]
fn results_are_remembered() {
    needs!("gcc");
    let place = folder();
    let mut server = start(place.path());
    let before = server.memory();
    let plain: Vec<String> = [2, 3, 9].iter().map(|n| server.ask(&format!("mixed {n}"))).collect();
    assert_eq!(server.ask("counted 5").split(' ').nth(1), Some("100"));
    let value = server.ask("counted 5").split(' ').next().map(str::to_owned);
    // Its code counts: that it may be remembered all the same must be said.
    let refused = replace(place.path(), &server, "counted --memo");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("depends on its arguments alone"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--pure"), "{}", refused.stderr);
    replace(place.path(), &server, "counted --memo --pure").ok();
    for (asked, n_calls) in [(5, 201), (5, 201), (6, 202), (5, 202), (6, 202)] {
        let said = server.ask(&format!("counted {asked}"));
        assert_eq!(said.split(' ').nth(1), Some(n_calls.to_string().as_str()), "{said}");
        if asked == 5 {
            assert_eq!(said.split(' ').next(), value.as_deref());
        }
    }
    let listed = replace(place.path(), &server, "--list").ok();
    assert!(listed.contains("a table of 1024 results"), "{listed}");
    replace(place.path(), &server, "counted --undo").ok();
    assert_eq!(server.ask("counted 6").split(' ').nth(1), Some("302"));
    // Of one entry, with others in it each time.
    replace(place.path(), &server, "mixed --memo=1").ok();
    for _ in 0..3 {
        for (n, want) in [2, 3, 9].iter().zip(&plain) {
            assert_eq!(&server.ask(&format!("mixed {n}")), want);
        }
    }
    replace(place.path(), &server, "mixed --undo").ok();
    // What it reads by a pointer is no argument.
    let refused = replace(place.path(), &server, "points --memo");
    assert!(refused.stderr.contains("depends on its arguments alone"), "{}", refused.stderr);
    // A function of a library, by what is known of that.
    replace(place.path(), &server, "log --memo").ok();
    let logged = [server.ask("site 3"), server.ask("site 3"), server.ask("site -1"), server.ask("site -1")];
    replace(place.path(), &server, "log --undo").ok();
    assert_eq!(
        logged,
        [server.ask("site 3"), server.ask("site 3"), server.ask("site -1"), server.ask("site -1")]
    );
    assert!(logged[3].contains("errno 33"), "{logged:?}");
    let after = server.memory();
    assert!(after.1 == before.1, "its code is as it was");
    assert_eq!(server.ask("wrong 0"), "0 1");
    server.end(true);
}

/// A call whose arguments are known gives what the function gives in a copy; with others it goes on as
/// before.
#[test]
fn a_known_result_stands_in_for_a_call() {
    needs!("gcc", "objdump");
    let place = folder();
    let mut server = start(place.path());
    let before = server.memory();
    let asks = ["site 2", "site 3", "site -1", "site 0.5", "upwards 2", "site 0"];
    let plain: Vec<String> = asks.iter().map(|ask| server.ask(ask)).collect();
    let at = call_in(place.path(), "site", "log");
    for value in ["2.0", "-1", "0"] {
        let said = replace(place.path(), &server, &format!("{at} --constant {value}")).ok();
        assert!(said.contains("log") && said.contains("at site+0x"), "{said}");
        for _ in 0..2 {
            let now: Vec<String> = asks.iter().map(|ask| server.ask(ask)).collect();
            assert_eq!(now, plain, "{value}");
        }
        replace(place.path(), &server, &format!("{at} --undo")).ok();
        let now: Vec<String> = asks.iter().map(|ask| server.ask(ask)).collect();
        assert_eq!(now, plain, "after {value}");
        assert!(server.memory().1 == before.1, "its code is as it was");
    }
    // It is the known result that answers: the function counts its calls, and is called no more.
    let at = call_in(place.path(), "main", "counted");
    let (value, n_calls) = (server.ask("counted 5"), server.ask("counted 6"));
    assert!(value.ends_with(" 100") && n_calls.ends_with(" 200"), "{value} {n_calls}");
    replace(place.path(), &server, &format!("{at} --constant 5 --pure")).ok();
    assert_eq!(server.ask("counted 5"), value.replace(" 100", " 200"));
    assert!(server.ask("counted 6").ends_with(" 300"));
    replace(place.path(), &server, &format!("{at} --undo")).ok();
    assert!(server.ask("counted 5").ends_with(" 400"));
    for (asked, says) in [
        ("site --constant 2.0", "name one of its calls: "),
        ("0x10 --constant 2.0", "0x10"),
        (&*format!("{at} --pure --constant two"), "`two` is no value for x, which is double"),
        (&*format!("{at} --pure --constant 2,3"), "takes 1 arguments"),
        ("recursive --constant 1 --memo", "cannot be used with"),
    ] {
        let refused = replace(place.path(), &server, asked);
        assert_eq!(refused.code, Some(2), "{asked}: {}", refused.stdout);
        assert!(refused.stderr.contains(says), "{asked}: {}", refused.stderr);
    }
    assert_eq!(server.ask("wrong 0"), "0 1");
    server.end(true);
}

/// What is faster stays; what is slower, wrong, or ends its process is taken back, and nobody has noticed.
#[test]
fn new_code_is_tried_before_it_stays() {
    needs!("gcc");
    let place = folder();
    let mut server = start(place.path());
    let before = server.memory();
    let tried = |server: &Server, rest: &str| -> (Option<i32>, Value) {
        let ran = replace(place.path(), server, &format!("{rest} --trial 1s --json"));
        let said: Value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|err| panic!("{rest}: {err}: {} {}", ran.stdout, ran.stderr));
        (ran.code, said["trial"].clone())
    };
    for (symbol, verdict, why) in [
        ("slow", "slower", "slower"),
        ("wrong", "wrong", "with (5) the new code gave 4.4721"),
        ("crashes", "wrong", "with (7) the new code ended by SIGSEGV"),
        ("hangs", "wrong", "was not back after"),
        ("asks", "wrong", "with (4) the new code asked the kernel"),
    ] {
        let (code, trial) = tried(&server, &format!("busy --with ./new.so:{symbol}"));
        assert_eq!((code, &trial["kept"]), (Some(1), &Value::Bool(false)), "{symbol}: {trial}");
        assert_eq!(trial["verdict"], verdict, "{symbol}: {trial}");
        assert!(trial["why"].as_str().expect("it says why").contains(why), "{symbol}: {trial}");
        assert!(trial["verified"].as_u64().expect("a number") > 0, "{symbol}: {trial}");
        assert_eq!(server.ask("wrong 0"), "0 1", "{symbol}");
        let listed = replace(place.path(), &server, "--list").ok();
        assert!(listed.contains("nothing is replaced"), "{symbol}: {listed}");
        assert!(server.memory().1 == before.1, "{symbol}: its code is as it was");
    }
    for by in ["--with ./new.so:fast", "--memo"] {
        let (code, trial) = tried(&server, &format!("busy {by}"));
        assert_eq!((code, &trial["kept"]), (Some(0), &Value::Bool(true)), "{by}: {trial}");
        let number = |field: &str| trial[field].as_f64().expect("a number");
        assert!(number("old_ticks") > number("new_ticks"), "{trial}");
        let bounds: Vec<f64> =
            trial["interval"].as_array().expect("both ends").iter().filter_map(Value::as_f64).collect();
        // 40 steps against 12 of some 5 ns, or against none: a tick is shorter than a nanosecond anywhere.
        assert!(bounds[0] > 1.5 && bounds[0] <= number("gain") && number("gain") <= bounds[1], "{trial}");
        let listed = replace(place.path(), &server, "--list").ok();
        assert!(listed.contains("busy"), "{listed}");
        assert_eq!(server.ask("wrong 0"), "0 1");
        replace(place.path(), &server, "busy --undo").ok();
        assert!(server.memory().1 == before.1, "its code is as it was");
    }
    // What nobody calls cannot be compared.
    let (code, trial) = tried(&server, "loud --with ./new.so:fast --verify 0");
    assert_eq!((code, &trial["verdict"]), (Some(1), &Value::from("too-few")), "{trial}");
    assert_eq!(trial["gain"], Value::Null);
    assert_eq!(server.ask("wrong 0"), "0 1");
    server.end(true);
}

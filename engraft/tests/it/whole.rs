//! The command on real programs: itself, and the system's.

use crate::needs;
use crate::run::{callgrind, compile, engraft, folder, must};
use std::path::Path;
use std::process::Command;

fn ourselves() -> &'static str {
    env!("CARGO_BIN_EXE_engraft")
}

/// The command as it would be installed: without debug information, so that loading it takes no minute in a test.
fn stripped(to: &Path) {
    must(Command::new("strip").arg("-g").arg("-o").arg(to).arg(ourselves()));
}

#[test]
fn the_toolkit_understands_its_own_executable() {
    let to = folder();
    stripped(&to.path().join("itself"));
    let verified = engraft(to.path(), "show itself --verify").ok();
    assert!(verified.starts_with("itself: verified: "), "{verified}");
    let view = engraft(to.path(), "show itself --json").json();
    let number = |key: &str| view[key].as_u64().unwrap_or_else(|| panic!("no {key} in {view}"));
    assert!(number("n_functions") > 1000 && number("n_blocks") > 20_000, "{view}");
    let code = number("code_bytes") - number("code_bytes_padding");
    assert!(number("code_bytes_in_functions") * 100 >= code * 99, "{view}");
}

#[test]
fn the_same_bytes_come_out_whatever_the_number_of_threads() {
    needs!("valgrind");
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    compile(&to.path().join("new"), "words-2.c", "-O3 -g");
    callgrind(to.path(), "old");
    stripped(&to.path().join("itself"));
    let all = |threads: u32, run: u32| -> Vec<String> {
        let with = |args: &str| engraft(to.path(), &format!("{args} --threads {threads}")).ok();
        let file = format!("out-{threads}-{run}.fdata");
        with(&format!("carry old new --profile old.callgrind -o {file}"));
        vec![
            with("show itself functions --json"),
            with("show itself cfg --json"),
            with("match old new --json"),
            with("match old itself --json"),
            std::fs::read_to_string(to.path().join(file)).expect("it was written"),
        ]
    };
    let want = all(1, 0);
    for (threads, run) in [(2, 0), (8, 0), (8, 1)] {
        let got = all(threads, run);
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            assert!(want == got, "output {i} differs with {threads} threads");
        }
    }
}

#[test]
fn carrying_a_profile_to_its_own_build_gives_it_back() {
    needs!("valgrind");
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    callgrind(to.path(), "old");
    engraft(to.path(), "carry old old --profile old.callgrind -o same.engraft").ok();
    let view = engraft(to.path(), "score same.engraft old.callgrind --binary old --json").json();
    for key in ["bp_share", "cc_share", "overlap_share"] {
        let share = view["scores"][0][key].as_f64().unwrap_or_default();
        assert!(share > 0.999_999, "{key} {share}");
    }
}

#[test]
fn a_carried_profile_is_better_than_none_and_than_a_wrong_one() {
    needs!("valgrind");
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    compile(&to.path().join("new"), "words-2.c", "-O2 -g");
    callgrind(to.path(), "old");
    callgrind(to.path(), "new");
    engraft(to.path(), "carry old new --profile old.callgrind -o carried.fdata").ok();
    std::fs::write(to.path().join("poor.fdata"), "0 [unknown] 0 1 hash 0 0 7\n").expect("it is ours");
    let score = |profile: &str| {
        let view = engraft(to.path(), &format!("score {profile} new.callgrind --binary new --json")).json();
        ["bp_share", "cc_share", "overlap_share"]
            .map(|key| view["scores"][0][key].as_f64().unwrap_or_default())
    };
    let (carried, poor) = (score("carried.fdata"), score("poor.fdata"));
    assert!(carried.iter().all(|share| *share > 0.95), "{carried:?}");
    assert!(poor.iter().all(|share| *share < 0.9), "{poor:?}");
}

#[test]
fn llvm_bolt_takes_every_function_of_a_carried_profile() {
    needs!("valgrind", "llvm-bolt-19");
    let to = folder();
    let flags = "-O2 -g -fno-reorder-blocks-and-partition -Wl,--emit-relocs";
    compile(&to.path().join("old"), "words-1.c", flags);
    compile(&to.path().join("new"), "words-2.c", flags);
    callgrind(to.path(), "old");
    engraft(to.path(), "carry old new --profile old.callgrind -o carried.fdata").ok();
    let bolt = Command::new("llvm-bolt-19")
        .args(["new", "-data", "carried.fdata", "-o", "fast", "-reorder-blocks=ext-tsp", "-v=1"])
        .current_dir(to.path())
        .output()
        .expect("it is installed");
    let talk = String::from_utf8_lossy(&bolt.stdout).into_owned() + &String::from_utf8_lossy(&bolt.stderr);
    assert!(bolt.status.success(), "{talk}");
    assert!(talk.contains("have non-empty execution profile"), "{talk}");
    assert!(!talk.contains("invalid (possibly stale) profile"), "{talk}");
    let plain = must(Command::new("./new").current_dir(to.path()));
    assert_eq!(must(Command::new("./fast").current_dir(to.path())), plain);
}

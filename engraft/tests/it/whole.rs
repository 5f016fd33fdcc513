//! The command on real programs: itself, and the system's.

use crate::needs;
use crate::run::{callgrind, compile, engraft, folder, must};
use std::path::Path;
use std::process::Command;

fn ourselves() -> &'static str {
    env!("CARGO_BIN_EXE_engraft")
}

/// The command as it would be installed: without debug information, so that loading it takes no minute in a
/// test.
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
    let said =
        engraft(to.path(), "carry old old --profile old.callgrind -o same.engraft --require bp=100,cc=100")
            .ok();
    assert!(said.starts_with("old → old: the same code\n"), "{said}");
    let want = "predicted against a fresh profile: B.P. 100.00 %, C.C. 100.00 %\n";
    assert!(said.contains(want) && said.contains(": holds\n"), "{said}");
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
    // A block of 63 is 1.6 %; whether those of a function that is new ran at all is a guess.
    assert!(carried.iter().all(|share| *share > 0.9), "{carried:?}");
    assert!(poor.iter().all(|share| *share < 0.8), "{poor:?}");
}

/// On programs that the prices of the prediction were not fitted on.
#[test]
fn what_is_required_is_held_against_a_bound_that_the_truth_keeps() {
    needs!("valgrind");
    let to = folder();
    let builds = [
        ("words-1.c", "-O2 -g", "words-2.c", "-O2 -g"),
        ("words-1.c", "-O2 -g", "words-1.c", "-O3 -g"),
        ("words-1.c", "-O1 -g", "words-1.c", "-O2 -g"),
        ("words-2.c", "-O2 -g", "words-2.c", "-Os -g"),
    ];
    let mut n_said = 0;
    for (before, with, after, and) in builds {
        compile(&to.path().join("old"), before, with);
        compile(&to.path().join("new"), after, and);
        callgrind(to.path(), "old");
        callgrind(to.path(), "new");
        let carry = "carry old new --profile old.callgrind -o carried.fdata --json";
        let said = engraft(to.path(), carry).json();
        let truth = engraft(to.path(), "score carried.fdata new.callgrind --binary new --json").json();
        for (name, key) in [("bp", "bp_share"), ("cc", "cc_share")] {
            let Some(expected) = said["predicted"][key].as_f64() else { continue };
            n_said += 1;
            let least = said["predicted"][format!("{name}_at_least")].as_f64().expect("both or none");
            let truth = truth["scores"][0][key].as_f64().expect("it was scored");
            let about = format!("{before} {with}, {after} {and}: {name} {least} {expected}, true {truth}");
            assert!(least <= truth && least < expected, "{about}");
            // More than the bound and less than what is expected may be true or not.
            let between = 50.0 * (least + expected);
            let ran = engraft(to.path(), &format!("{carry} --require {name}={between}"));
            assert_eq!(ran.code, Some(1), "{about}");
            assert!(ran.stdout.contains("\"verdict\":\"no\"") || ran.stdout.contains("\"verdict\": \"no\""));
        }
    }
    assert!(n_said >= 4, "{n_said}");
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

/// Two builds of one program with counts of each, for carrying.
fn two_builds() -> tempfile::TempDir {
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    compile(&to.path().join("new"), "words-2.c", "-O2 -g");
    callgrind(to.path(), "old");
    callgrind(to.path(), "new");
    to
}

#[test]
fn a_map_is_obeyed_and_gives_the_same_profile() {
    needs!("valgrind");
    let to = two_builds();
    let run = |args: &str| engraft(to.path(), args).ok();
    let read = |name: &str| std::fs::read_to_string(to.path().join(name)).expect("it was written");
    run("match old new -o pair.map");
    run("carry old new --profile old.callgrind -o plain.fdata");
    run("carry old new --profile old.callgrind -o mapped.fdata --map pair.map");
    assert_eq!(read("plain.fdata"), read("mapped.fdata"));
    // A person says: `hash` is not `hash`, and `kind` became `fold`.
    std::fs::write(to.path().join("edited.map"), read("pair.map") + "forbid hash hash\npin kind fold\n")
        .expect("it is ours");
    let view = engraft(to.path(), "match old new --with edited.map --json").json();
    let rows = view["functions"].as_array().expect("a list");
    let became = |name: &str| rows.iter().find(|f| f["old_name"] == name).map(|f| f["new_name"].clone());
    assert_eq!(became("kind"), Some("fold".into()));
    assert_ne!(became("hash"), Some("hash".into()));
    assert_eq!(became("main"), Some("main".into()));
    run("carry old new --profile old.callgrind -o edited.fdata --map edited.map");
    assert_ne!(read("plain.fdata"), read("edited.fdata"));
    let ran = engraft(to.path(), "carry new old --profile new.callgrind -o back.fdata --map pair.map");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("line 2 of the map: it is of the old build"), "{}", ran.stderr);
}

#[test]
fn a_gate_answers_no_and_says_why() {
    needs!("valgrind");
    let to = two_builds();
    let carry = |gate: &str| {
        engraft(to.path(), &format!("carry old new --profile old.callgrind -o new.fdata --require {gate}"))
    };
    assert!(carry("bp=50,cc=50").ok().contains("C.C. 50.00 %: holds"));
    let no = carry("bp=100,cc=100");
    assert_eq!(no.code, Some(1), "{}", no.stdout);
    assert!(no.stdout.contains("C.C. 100.00 %: does not hold"), "{}", no.stdout);
    for (gate, want) in [("bp=101", "between 0 and 100"), ("xy=5", "only bp and cc"), ("98", "bp=98,cc=97")] {
        let ran = carry(gate);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains(want), "{}", ran.stderr);
    }
}

#[test]
fn chains_arrive_and_a_fresh_profile_outweighs_a_carried_one() {
    needs!("valgrind");
    let to = two_builds();
    engraft(to.path(), "carry old new old --profile old.callgrind -o there-and-back.fdata").ok();
    let view = engraft(to.path(), "score there-and-back.fdata old.callgrind --binary old --json").json();
    assert!(view["scores"][0]["overlap_share"].as_f64() > Some(0.95), "{view}");
    engraft(to.path(), "carry old new --profile old.callgrind --merge new.callgrind -o merged.fdata").ok();
    let view = engraft(to.path(), "score merged.fdata new.callgrind --binary new --json").json();
    assert!(view["scores"][0]["cc_share"].as_f64() > Some(0.999), "{view}");
}

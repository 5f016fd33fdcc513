//! The page that does VPROF's examples again is made by its script, and says what the program says of itself.

use crate::needs;
use crate::run::{folder, must};
use std::path::Path;
use std::process::Command;

/// Each number of the paper that does not depend on a machine, and each picture.
#[test]
fn the_examples_of_vprof_are_made_by_a_script() {
    needs!("gcc");
    let place = folder();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/values-page.sh");
    must(Command::new("bash").arg(script).arg(place.path()).env("ENGRAFT", env!("CARGO_BIN_EXE_engraft")));
    let page = std::fs::read_to_string(place.path().join("values-page.md")).expect("it is written");
    for part in [
        "three: 31592862 instances, 94778586 iterations",
        ": 31,592,862 instances\n",
        "\ntotal        94778586 ",
        "\n 31592862  100.00 %           3\n",
        "exp: 22722 calls",
        "x (double): 403 different\n",
        "\n 4135  18.20 %  -0.120782\n",
        "log: 14691 calls",
        ",0.75,-0.2876820724517809\n",
        ",12.5,2.5257286443082556\n",
        "The loop had 2,000 instances of 2,048 iterations each",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    let log = |value: &str| {
        let line = page.lines().find(|line| line.contains(value)).expect("it is there");
        line.split_whitespace().next().and_then(|n| n.parse::<u32>().ok()).expect("a number")
    };
    assert_eq!(log(",0.75,-0.28") + log(",12.5,2.52"), 14691);
    // How long they take is the page's to show: on a processor that renames memory, or that has other work,
    // either of them may be the faster one.
    let ticks = |mode: &str| {
        let line = page.lines().find(|line| line.starts_with(mode)).expect("it is there");
        line.split('|').nth(2).and_then(|n| n.trim().parse::<f64>().ok()).expect("a number")
    };
    for mode in ["| as it is", "| counter in a register", "| counter in memory"] {
        assert!(ticks(mode) > 0.0, "{mode}:\n{page}");
    }
    for (picture, part) in [
        ("three.svg", "how long an iteration of the loop of three at paper.c:"),
        ("kinds.svg", "<svg"),
        ("exp.svg", "distance (calls)"),
    ] {
        let text = std::fs::read_to_string(place.path().join("values-page").join(picture));
        assert!(text.expect("it is written").contains(part), "{picture}");
    }
}

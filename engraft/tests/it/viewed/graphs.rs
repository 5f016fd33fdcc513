//! The flow graph on a function's page: folded to what ran, and joined to the code.

use super::Viewed;
use super::browser::Browser;
use crate::needs;
use crate::run::{built, engraft, folder};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

/// A recording of a function of some hundred blocks, of which some ran: `cases` cases of a switch, of which
/// each has a condition that never holds; the first four ran.
fn large(cases: usize) -> String {
    let mut text = String::from("volatile long sum; volatile int what[] = { 0, 1, 2, 3, 1, 1 };\n");
    text += "__attribute__((noinline)) long large(int n) { long all = 0;\n";
    text += "for (int i = 0; i < n; i++) { switch (what[i % 6]) {\n";
    for case in 0..cases {
        text += &format!("case {case}: sum += {case}; if (sum < 0) {{ sum *= {case} + 7; all++; }} break;\n");
    }
    text += "default: all--; } } return all; }\n";
    text += "int main(void) { return large(600) != 0; }\n";
    text
}

pub fn large_function() -> &'static Path {
    static LARGE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = LARGE.get_or_init(|| {
        let place = folder();
        built(place.path(), "large", &large(120), "-O1 -fno-tree-switch-conversion");
        engraft(place.path(), "count -q -o large.engraft --modules exe -- ./large").ok();
        place
    });
    place.path()
}

/// The blocks of each node that is drawn.
fn nodes(browser: &Browser) -> Vec<Vec<usize>> {
    let script =
        "return [...document.querySelectorAll('.graph a[data-blocks]')].map((node) => node.dataset.blocks)";
    let all: Vec<String> = serde_json::from_value(browser.script(script)).expect("texts");
    let numbers = |text: &String| text.split(' ').map(|n| n.parse().expect("a number")).collect();
    all.iter().map(numbers).collect()
}

#[test]
fn a_large_graph_is_folded_to_what_ran_and_joined_to_the_code() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(large_function(), &["--no-open", "large.engraft"]);
    let browser = Browser::start();
    browser.open(&format!("{}0/function?name=large", viewed.address));
    let said = engraft(large_function(), "show large.engraft function large --json").json();
    let blocks = said["blocks"].as_array().expect("blocks");
    let never = blocks.iter().filter(|block| block["count"] == 0).count();
    assert!(blocks.len() > 240 && never > 230, "{} of {}", never, blocks.len());
    let folded = nodes(&browser);
    assert!(folded.len() < 20, "{folded:?}");
    let of: BTreeSet<usize> = folded.iter().flatten().copied().collect();
    assert_eq!((of.len(), of.last()), (folded.iter().map(Vec::len).sum(), Some(&(blocks.len() - 1))));
    let note = browser.texts(".sides .said").concat();
    assert!(note.contains(&format!("{} blocks as {} nodes", blocks.len(), folded.len())), "{note}");
    // Each round goes back to the head of the loop: the number stands at its edge.
    let counts = browser.texts(".graph text.n");
    assert!(counts.iter().any(|count| count == "599" || count == "600"), "{counts:?}");

    // What is pointed at, or has the focus, is marked on the other side.
    let ran = folded.iter().find(|of| of.len() == 1 && blocks[of[0]]["count"] == 300);
    let [block] = ran.expect("a case that ran 300 times")[..] else { unreachable!() };
    browser.point_at(&format!("#b{block} .head .quiet"));
    browser.until(&format!(
        "return document.querySelector('.graph a.marked').dataset.blocks === '{block}' &&\
         document.querySelectorAll('.marked').length === 2"
    ));
    let several = folded.iter().position(|of| of.len() > 1).expect("what never ran is one node");
    browser.script(&format!("document.getElementById('g{several}').focus()"));
    browser.until(&format!(
        "return document.querySelectorAll('.insns tbody.marked').length === {}",
        folded[several].len()
    ));

    // Links lead from one to the other.
    browser.click(&format!("#b{block} .head a"));
    let node = folded.iter().position(|of| *of == [block]).expect("found above");
    assert!(browser.address().ends_with(&format!("#g{node}")), "{}", browser.address());
    browser.click(&format!("#g{several} text"));
    assert!(browser.address().ends_with(&format!("#b{}", folded[several][0])), "{}", browser.address());

    browser.click(".sides .said a");
    assert!(browser.address().ends_with("whole=1"), "{}", browser.address());
    let whole = nodes(&browser);
    assert!(whole.len() == blocks.len() && whole.iter().all(|of| of.len() == 1), "{whole:?}");
    browser.click(".sides .said a");
    assert_eq!(nodes(&browser), folded);
    browser.click("#flow a");
    browser.until("return document.querySelector('.graph.alone svg') !== null");
    assert!(!nodes(&browser).is_empty());
    browser.back();
    browser.check_quiet(&viewed.address);

    // The command that the page names draws the same.
    let command = browser.texts(".sides .said code").concat();
    let words = command.strip_prefix("engraft ").expect("it names a command").to_owned();
    let drawn = engraft(large_function(), &words).ok();
    assert_eq!(drawn.matches("<g><title>").count(), folded.len(), "{command}");
}

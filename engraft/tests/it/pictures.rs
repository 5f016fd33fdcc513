//! Flame graphs: `convert REC|TRACE -o X.svg`, `show REC|TRACE --flame`.

use crate::needs;
use crate::run::{compile, engraft, folder};
use std::path::Path;

fn picture(place: &Path, file: &str) -> String {
    std::fs::read_to_string(place.join(file)).expect("written")
}

/// What a frame says it costs: `<title>NAME (1,234 instructions, 5.6%)</title>`, of all that are called so.
fn costs(svg: &str, name: &str) -> Vec<u64> {
    let titles = svg.split("<title>").filter_map(|part| part.strip_prefix(name)?.strip_prefix(" ("));
    let number = |text: &str| text.split(' ').next().map(|n| n.replace(',', ""));
    titles.map(|text| number(text).and_then(|n| n.parse().ok()).expect("a number")).collect()
}

#[test]
fn flame_graphs_have_the_total_of_show_and_say_what_they_are() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    compile(&place.join("old"), "calls.c", "-O1 -g -fno-inline -fno-optimize-sibling-calls");
    engraft(place, "trace -q --no-cache --modules exe -o old.trace ./old");
    engraft(place, "count -q --no-cache --modules exe -o old.engraft ./old");
    for (file, says) in [("old.trace", "exact: "), ("old.engraft", "flat: counts do not know callers")] {
        engraft(place, &format!("convert {file} -q -o a.svg")).ok();
        engraft(place, &format!("show {file} --flame -o b.svg")).ok();
        let svg = picture(place, "a.svg");
        assert!(svg == picture(place, "b.svg"), "{file}");
        assert!(svg == engraft(place, &format!("show {file} --flame")).ok(), "{file}");
        let total = engraft(place, &format!("show {file} --json")).json()["instructions"].as_u64();
        assert_eq!(costs(&svg, "all"), [total.expect("a number")], "{file}");
        assert!(
            svg.contains(says) && svg.contains(&format!("{file}: instructions")) == (file == "old.trace")
        );
    }
    // The frames of a function that is in no other of its own add up to what it cost.
    let functions = engraft(place, "show old.trace functions --json").json();
    let functions = functions["functions"].as_array().expect("a list");
    engraft(place, "convert old.trace -q -o a.svg").ok();
    for name in ["main", "cheap", "dear"] {
        let cost = functions.iter().find(|row| row["name"] == name).expect("it ran")["inclusive"].as_u64();
        let frames = costs(&picture(place, "a.svg"), name);
        assert_eq!(Some(frames.iter().sum()), cost, "{name}: {frames:?}");
    }
    // Blocks, if they are asked for.
    let said = engraft(place, "convert old.trace -o a.svg --weight blocks").ok();
    let folded = engraft(place, "convert old.trace -o a.folded").ok();
    assert_eq!(said.split(": ").nth(1), folded.split(": ").nth(1), "{said}");
}

#[test]
fn what_has_no_flame_graph_is_refused() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    compile(&place.join("old"), "calls.c", "-O1");
    engraft(place, "count -q --no-cache --modules exe -o old.engraft ./old");
    engraft(place, "convert old.engraft -q -o old.svg").ok();
    for (args, says) in [
        ("show old --flame", "--flame, --by and --plot are of what a recording holds\nhint: say `show REC`"),
        ("convert old.svg -o x.engraft --binary old", "profiles in the format svg are not read"),
    ] {
        let ran = engraft(place, args);
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.stdout);
        assert!(ran.stderr.contains(says), "{args}: {}", ran.stderr);
    }
}

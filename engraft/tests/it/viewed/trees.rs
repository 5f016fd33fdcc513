//! Pages of who called whom: flame graphs that are zoomed and searched, trees that are opened, samples.

use super::browser::{Browser, ENTER};
use super::{Viewed, cells};
use crate::needs;
use crate::run::{built, engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

/// A program whose calls have several ways to one function, and many that cost little.
const PROGRAM: &str = "\
volatile long sum;
#define SLOW __attribute__((noinline, noclone))
SLOW void leaf(long n) { for (long i = 0; i < n; i++) sum += i; }
SLOW void parse(long n) { leaf(n); leaf(n); sum += 1; }
SLOW void write_out(long n) { leaf(n); sum += 2; }
SLOW void deep(long n) { if (n) deep(n - 1); sum += 3; }
";

/// The same program, traced and sampled; and a plain trace of it, in blocks.
pub fn recorded() -> &'static Path {
    static RECORDED: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = RECORDED.get_or_init(|| {
        let place = folder();
        let mut text = PROGRAM.to_owned();
        for n in 0..60 {
            text += &format!("SLOW void tiny_{n:02}(void) {{ sum += {n}; }}\n");
        }
        let calls: String = (0..60).map(|n| format!("tiny_{n:02}(); ")).collect();
        text += &format!("SLOW void tinies(void) {{ {calls} sum += 4; }}\n");
        text += "int main(int c, char **v) { long n = c > 1 ? 3000000 : 30000;\n";
        text += "for (int i = 0; i < (c > 1 ? 40 : 1); i++) { parse(n); write_out(n); } tinies(); deep(20); return 0; }\n";
        built(place.path(), "calls", &text, "-O1 -g");
        engraft(place.path(), "trace -q -o calls.trace --modules exe -- ./calls").ok();
        engraft(place.path(), "sample -q -F 1000 -o calls.engraft -- ./calls long").ok();
        engraft(place.path(), "count -q -o counted.engraft --modules exe -- ./calls").ok();
        place
    });
    place.path()
}

/// The pages of these recordings.
pub fn pages() -> [(&'static Path, &'static str, Vec<String>); 3] {
    let owned = |pages: &[&str]| pages.iter().map(|page| (*page).to_owned()).collect();
    let of_trace = [
        "flame",
        "flame?at=2&q=leaf",
        "flame?inverted=1",
        "tree",
        "tree?inverted=1&flat=1",
        "callers?name=leaf",
        "time?q=leaf",
        "function?name=leaf",
    ];
    [
        (recorded(), "calls.trace", owned(&of_trace)),
        (recorded(), "calls.engraft", owned(&["functions", "flame?q=leaf", "tree"])),
        (recorded(), "counted.engraft", owned(&["flame", "tree"])),
    ]
}

/// What the frame of that name has as its title, and how wide it is of the picture.
fn frame(browser: &Browser, name: &str) -> (String, f64) {
    let script = format!(
        "const frames = [...document.querySelectorAll('svg.flame a > svg')];\
         const titled = (f) => f.querySelector('title').textContent;\
         const frame = frames.find((f) => titled(f).startsWith({:?}));\
         return frame ? [titled(frame), frame.querySelector('rect').getBoundingClientRect().width /\
         document.querySelector('svg.flame').getBoundingClientRect().width] : null",
        format!("{name} in ")
    );
    serde_json::from_value(browser.script(&script)).unwrap_or_else(|_| panic!("there is no frame {name}"))
}

fn click_frame(browser: &Browser, name: &str) {
    let script = format!(
        "[...document.querySelectorAll('svg.flame a')].find((a) =>\
         a.querySelector('title').textContent.startsWith({:?}))\
         .dispatchEvent(new MouseEvent('click', {{ bubbles: true, cancelable: true }}))",
        format!("{name} in ")
    );
    browser.script(&script);
}

fn rows(said: &Value) -> &Vec<Value> {
    said["tree"].as_array().expect("a tree")
}

fn row<'v>(said: &'v Value, function: &str, under: &str) -> &'v Value {
    let all = rows(said);
    let is_under = |row: &Value| match row["under"].as_u64() {
        Some(n) => all[usize::try_from(n).expect("a number")]["function"] == under,
        None => under.is_empty(),
    };
    all.iter()
        .find(|row| row["function"] == function && is_under(row))
        .unwrap_or_else(|| panic!("no {function} under {under}"))
}

#[test]
fn a_flame_graph_is_zoomed_searched_and_turned() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(recorded(), &["--no-open", "calls.trace"]);
    let said = engraft(recorded(), "show calls.trace tree --json").json();
    let total = said["total"].as_f64().expect("a number");
    let browser = Browser::start();
    browser.open(&format!("{}0/functions", viewed.address));
    browser.click("nav a[href=flame]");
    assert_eq!(browser.texts(".same code"), ["engraft show calls.trace tree"]);
    // As wide as its share, to a hundredth of a per cent of the window.
    for (name, under) in [("parse", "main"), ("write_out", "main")] {
        let want = row(&said, name, under);
        let (title, width) = frame(&browser, name);
        let share = want["inclusive"].as_f64().expect("a number") / total;
        assert!((width - share).abs() < 1e-3, "{name}: {width}, and {share}");
        let digits: String = title.chars().filter(|c| *c != ',').collect();
        assert!(digits.contains(&format!(": {} instructions", want["inclusive"])), "{title}");
        assert!(digits.contains(&format!("itself {}", want["own"])), "{title}");
        assert!(digits.contains(&format!(" {} calls", want["entries"])), "{title}");
    }
    // What is too narrow is one frame.
    let elided = browser.texts("svg.flame .elided title");
    assert!(elided.iter().any(|title| title.contains("narrow frames")), "{elided:?}");
    assert!(browser.texts(".legend.modules li").iter().any(|said| said.starts_with("calls ")));

    click_frame(&browser, "parse");
    let id = row(&said, "parse", "main")["id"].to_string();
    browser.until(&format!("return location.search === '?at={id}'"));
    browser.until("return document.querySelectorAll('svg.flame .above').length > 0");
    assert!((frame(&browser, "parse").1 - 1.0).abs() < 1e-3);
    assert!((frame(&browser, "main").1 - 1.0).abs() < 1e-3, "its callers stay above it");
    let zoomed = browser.texts(".at span");
    assert!(zoomed[0].starts_with("parse in calls: "), "{zoomed:?}");
    browser.reload();
    assert_eq!(browser.texts(".at span"), zoomed);
    browser.back();
    browser.until("return location.search === ''");
    browser.until("return document.querySelectorAll('svg.flame .above').length === 0");

    browser.press("/leaf");
    browser.until("return location.search === '?q=leaf'");
    browser.until("return document.querySelectorAll('svg.flame .hit').length === 2");
    let of = |under: &str| row(&said, "leaf", under)["inclusive"].as_u64().expect("a number");
    let sum = of("parse") + of("write_out");
    let found = browser.texts("output.found")[0].replace(',', "");
    assert!(found.contains(&format!("{sum} instructions")), "{found}, and {sum}");
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = format!("{:.2} %", 100.0 * sum as f64 / total);
    assert!(found.starts_with(&share), "{found}, and {share}");
    browser.reload();
    assert_eq!(browser.texts("svg.flame .hit title").len(), 2);

    browser.click(".choices a:not([aria-current])");
    browser
        .until("return document.querySelector('.choices a[aria-current]').textContent === 'callers below'");
    let turned = engraft(recorded(), "show calls.trace tree --inverted --json").json();
    let want = row(&turned, "leaf", "")["inclusive"].as_f64().expect("a number") / total;
    assert!((frame(&browser, "leaf").1 - want).abs() < 1e-3);
    assert_eq!(browser.texts(".same code"), ["engraft show calls.trace tree --inverted"]);
    browser.check_quiet(&viewed.address);
}

#[test]
fn a_flame_graph_is_walked_by_keys_alone_and_without_script() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(recorded(), &["--no-open", "calls.trace"]);
    let browser = Browser::start();
    browser.open(&format!("{}0/flame", viewed.address));
    browser.script("document.querySelector('svg.flame a').focus()");
    // Tab goes to the next frame.
    browser.press("\u{e004}");
    browser.until("return document.activeElement.matches('svg.flame a:focus-visible')");
    let name = browser.script("return document.activeElement.querySelector('title').textContent");
    browser.press(ENTER);
    browser.until("return location.search.startsWith('?at=')");
    browser.until("return document.querySelector('.at span').textContent.length > 0");
    assert_eq!(browser.texts(".at span"), [name.as_str().expect("a title")]);
    // What script does is what the link leads to.
    let link = browser.address();
    browser.open(&link);
    assert_eq!(browser.texts(".at span"), [name.as_str().expect("a title")]);
    browser.check_quiet(&viewed.address);
}

#[test]
fn a_tree_of_calls_is_opened_listed_and_turned() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(recorded(), &["--no-open", "calls.trace"]);
    let said = engraft(recorded(), "show calls.trace tree --json").json();
    let browser = Browser::start();
    browser.open(&format!("{}0/tree", viewed.address));
    let names = || browser.texts("#outline tr[data-place] .twist");
    assert!(
        names().contains(&"leaf".to_owned()) && !names().contains(&"tiny_05".to_owned()),
        "{:?}",
        names()
    );
    let place = |name: &str| names().iter().position(|of| of == name).expect("a row") + 1;
    let shown = |name: &str| {
        let script = format!(
            "return [...document.querySelectorAll('tr[data-place=\"{}\"] td')].slice(0, 4).map((td) => td.title)",
            place(name)
        );
        serde_json::from_value::<Vec<String>>(browser.script(&script)).expect("titles")
    };
    let want = row(&said, "parse", "main");
    let numbers: Vec<f64> = shown("parse").iter().map(|n| n.parse().expect("a number")).collect();
    let want = ["inclusive_share", "inclusive", "own", "entries"].map(|key| want[key].as_f64());
    assert_eq!(numbers.into_iter().map(Some).collect::<Vec<_>>(), want);
    browser.click(&format!("tr[data-place='{}'] .twist", place("tinies")));
    browser.until("return [...document.querySelectorAll('.twist')].some((e) => e.textContent === 'tiny_05')");
    assert!(names().iter().any(|name| name.starts_with("20 more, ")), "{:?}", names());
    browser.reload();
    assert!(names().contains(&"tiny_05".to_owned()));
    browser.click(&format!("tr[data-place='{}'] .twist", place("tinies")));
    browser
        .until("return ![...document.querySelectorAll('.twist')].some((e) => e.textContent === 'tiny_05')");
    browser.back();
    browser.until("return [...document.querySelectorAll('.twist')].some((e) => e.textContent === 'tiny_05')");

    browser.press("/tiny_1");
    browser.press(ENTER);
    browser.until("return document.querySelectorAll('#tree tr[data-place]').length === 10");
    for row in cells(&browser, "#tree table", &["function", "inclusive", "own", "calls"]) {
        let want = super::trees::row(&said, &row[0], "tinies");
        assert_eq!(row[1..], ["inclusive", "own", "entries"].map(|key| want[key].to_string()));
    }

    browser.open(&format!("{}0/function?name=leaf", viewed.address));
    browser.click(".choices a[href^=callers]");
    let said = engraft(recorded(), "show calls.trace callers leaf --json").json();
    assert_eq!(browser.texts(".same code"), ["engraft show calls.trace callers 'calls!leaf'"]);
    assert_eq!(shown("leaf")[1], row(&said, "leaf", "")["inclusive"].to_string());
    assert_eq!(shown("parse")[1], row(&said, "parse", "leaf")["inclusive"].to_string());
    assert_eq!(shown("write_out")[1], row(&said, "write_out", "leaf")["inclusive"].to_string());
    browser.check_quiet(&viewed.address);
}

#[test]
fn samples_have_pages_of_functions_and_of_calls() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(recorded(), &["--no-open", "calls.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let said = engraft(recorded(), "show calls.engraft --json").json();
    let event = &said["events"][0];
    let shown = cells(&browser, "#functions table", &["function", "self", "total", "samples"]);
    let functions = event["functions"].as_array().expect("functions");
    assert_eq!(shown.len(), functions.len());
    for (row, want) in shown.iter().zip(functions) {
        assert_eq!(row[0], want["function"].as_str().expect("a name"));
        let numbers: Vec<f64> = row[1..].iter().map(|n| n.parse().expect("a number")).collect();
        let want = ["self_share", "total_share", "self"].map(|key| want[key].as_f64().expect("a number"));
        assert_eq!(numbers, want);
    }
    let facts = browser.texts(".facts dd").join("\n").replace(',', "");
    assert!(facts.contains(&format!("{} in ", said["samples"])), "{facts}");
    assert!(facts.contains(event["event"].as_str().expect("a name")), "{facts}");
    assert!(facts.contains(&format!("cut off of {} ", said["chains"]["cut"])), "{facts}");
    browser.click("nav a[href=flame]");
    let tree = engraft(recorded(), "show calls.engraft tree --json").json();
    let leaf = |under: &str| row(&tree, "leaf", under)["inclusive"].as_f64().expect("a number");
    let total = tree["total"].as_f64().expect("a number");
    let parse = row(&tree, "parse", "main")["inclusive"].as_f64().expect("a number");
    assert!((frame(&browser, "parse").1 - parse / total).abs() < 1e-3);
    assert!(leaf("parse") > leaf("write_out"));
    browser.click("nav a[href=tree]");
    assert!(browser.texts("#outline .twist").contains(&"leaf".to_owned()));
    assert!(browser.texts("#outline .unknown").len() > 2, "how often was not counted");
    browser.click("nav a[href=functions]");
    browser.click("#functions tr[data-place='1'] a");
    assert!(!browser.texts(".insns td").is_empty());
    browser.check_quiet(&viewed.address);
}

#[test]
fn what_differs_between_two_builds_is_drawn_by_either_and_by_the_difference() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(super::both(), &["--no-open", "both.engraft"]);
    let said = engraft(super::both(), "show both.engraft tree --json").json();
    let whole = engraft(super::both(), "show both.engraft --json").json();
    for build in ["old", "new"] {
        assert_eq!(
            said["total"][build], whole["totals"][build]["dyn.agg.total"],
            "{build}: it is all that ran"
        );
        let own = rows(&said).iter().map(|row| row[build]["own"].as_u64().expect("a number"));
        assert_eq!(said["total"][build].as_u64(), Some(own.sum()), "{build}");
        // As many as the other trace reader has.
        let tree = engraft(super::both(), &format!("show {build}.trace tree --json")).json();
        assert_eq!(said["total"][build], tree["total"], "{build}");
    }
    let browser = Browser::start();
    browser.open(&format!("{}0/functions", viewed.address));
    browser.click("nav a[href=flame]");
    assert_eq!(browser.texts(".same code"), ["engraft show both.engraft tree"]);
    let shown = |build: &str| {
        for row in rows(&said).iter().filter(|row| row["function"].is_string()) {
            let share = row[build]["inclusive"].as_f64().expect("a number")
                / said["total"][build].as_f64().expect("a number");
            if share < 0.01 {
                continue;
            }
            let n = |build: &str| row[build]["inclusive"].to_string();
            let script = format!(
                "const whole = document.querySelector('svg.flame').getBoundingClientRect().width;\
                 return [...document.querySelectorAll('svg.flame a > svg')].filter((f) =>\
                 f.querySelector('title').textContent.replaceAll(',', '').includes({:?}))\
                 .map((f) => f.querySelector('rect').getBoundingClientRect().width / whole)",
                format!(": {} instructions then {} (", n("old"), n("new"))
            );
            let widths: Vec<f64> = serde_json::from_value(browser.script(&script)).expect("widths");
            assert!(
                widths.iter().any(|width| (width - share).abs() < 1e-3),
                "{row}: {widths:?}, not {share}"
            );
        }
    };
    shown("new");
    browser.click(".choices a[href='flame?by=old']");
    browser.until("return location.search === '?by=old'");
    browser.until(
        "return document.querySelector('.choices a[aria-current]').textContent === 'as in the old build'",
    );
    shown("old");
    browser.click(".choices a[href='flame?by=delta']");
    browser.until("return location.search === '?by=delta'");
    browser.until(
        "return document.querySelectorAll('svg.flame [class^=more], svg.flame [class^=less]').length > 0",
    );
    // A sign says what a colour does.
    let labels = browser.script(
        "return [...document.querySelectorAll('svg.flame [class^=more] text, svg.flame [class^=less] text')]\
         .map((text) => text.dataset.name)",
    );
    let labels: Vec<String> = serde_json::from_value(labels).expect("texts");
    // Behind the name, which is seen first where there is little room.
    let is_said = |label: &String| {
        let by = label.split_once(' ').map_or("", |(_, by)| by);
        ["+", "-", "×", "new", "gone"].iter().any(|sign| by.starts_with(sign))
    };
    assert!(!labels.is_empty() && labels.iter().all(is_said), "{labels:?}");
    browser.reload();
    assert!(!browser.texts("svg.flame [class^=more] title").is_empty());
    browser.back();
    browser.until("return location.search === '?by=old'");
    browser.click("nav a[href=tree]");
    let listed = cells(&browser, "#tree table", &["difference", "old", "new", "own", "then", "calls"]);
    assert_eq!(listed.len(), rows(&said).len());
    for (row, want) in listed.iter().zip(rows(&said)) {
        let n = |build: &str, key: &str| want[build][key].as_i64().expect("a number");
        let by = n("new", "inclusive") - n("old", "inclusive");
        let numbers = [
            n("old", "inclusive"),
            n("new", "inclusive"),
            n("old", "own"),
            n("new", "own"),
            n("old", "calls"),
        ];
        assert_eq!(row[0], format!("{by:+}"));
        assert_eq!(row[1..], numbers.map(|n| n.to_string()));
    }
    browser.check_quiet(&viewed.address);
}

#[test]
fn what_ran_when_is_drawn_and_zoomed() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(recorded(), &["--no-open", "calls.trace"]);
    let said = engraft(recorded(), "show calls.trace time --json").json();
    let tree = engraft(recorded(), "show calls.trace tree --json").json();
    assert_eq!(said["to"], tree["total"], "it is all that ran");
    let leaf = said["functions"].as_array().expect("functions");
    assert_eq!(leaf[0]["function"], "leaf");
    let want: u64 = rows(&tree)
        .iter()
        .filter(|row| row["function"] == "leaf")
        .filter_map(|row| row["own"].as_u64())
        .sum();
    assert_eq!(leaf[0]["own"].as_u64(), Some(want));
    let browser = Browser::start();
    browser.open(&format!("{}0/functions", viewed.address));
    browser.click("nav a[href=time]");
    // In each window as high as its share.
    let check = |said: &Value| {
        let script = "const whole = document.querySelector('svg.times').getBoundingClientRect();\
            return [...document.querySelectorAll('svg.times .m0 rect')].map((rect) => {\
            const box = rect.getBoundingClientRect();\
            return [(box.left - whole.left) / whole.width, box.width / whole.width, box.height / 320] })";
        let drawn: Vec<[f64; 3]> = serde_json::from_value(browser.script(script)).expect("bars");
        let number = |value: &Value| value.as_f64().expect("a number");
        let (from, to) = (number(&said["from"]), number(&said["to"]));
        let windows = said["windows"].as_array().expect("windows");
        let windows: Vec<&Value> = windows.iter().filter(|of| of["own"][0].as_u64() > Some(0)).collect();
        assert_eq!(drawn.len(), windows.len());
        for (bar, window) in drawn.iter().zip(windows) {
            let all: f64 = window["own"].as_array().expect("numbers").iter().map(number).sum();
            let want = [
                (number(&window["from"]) - from) / (to - from),
                (number(&window["to"]) - number(&window["from"])) / (to - from),
                number(&window["own"][0]) / all,
            ];
            let is_near = bar.iter().zip(want).all(|(got, want)| (got - want).abs() < 2e-3);
            assert!(is_near, "{window}: {bar:?}, not {want:?}");
        }
    };
    check(&said);
    browser.click("svg.times a:has(.step):last-of-type");
    browser.until("return location.search.startsWith('?between=')");
    browser.until("return document.querySelector('.at a') !== null");
    let between = browser.script("return new URLSearchParams(location.search).get('between')");
    let between = between.as_str().expect("a part").to_owned();
    let part = engraft(recorded(), &format!("show calls.trace time --between {between} --json")).json();
    check(&part);
    assert_eq!(browser.texts(".same code"), [format!("engraft show calls.trace time --between {between}")]);
    assert_eq!(format!("{}..{}", part["from"], part["to"]), between);
    let end = browser.texts(".at span");
    browser.reload();
    assert_eq!(browser.texts(".at span"), end);
    browser.back();
    browser.until("return location.search === ''");
    browser.until("return document.querySelector('.at a') === null");
    check(&said);
    browser.press("/leaf");
    browser.until("return location.search === '?q=leaf'");
    browser.until("return document.querySelectorAll('svg.times .hit').length > 0");
    browser.click(".legend li.m0 a");
    assert_eq!(browser.texts("h1"), ["leaf"]);
    browser.check_quiet(&viewed.address);
}

#[test]
fn what_ran_when_in_both_builds_stands_one_above_the_other() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(super::both(), &["--no-open", "both.engraft"]);
    let said = engraft(super::both(), "show both.engraft time --json").json();
    let whole = engraft(super::both(), "show both.engraft --json").json();
    let windows = |build: &str| said["windows"][build].as_array().expect("windows").clone();
    for build in ["old", "new"] {
        // One thread has run; all of it is there, once.
        let total = whole["totals"][build]["dyn.agg.total"].as_u64();
        let of_functions = said["functions"].as_array().expect("functions").iter();
        assert_eq!(Some(of_functions.filter_map(|f| f[build].as_u64()).sum()), total, "{build}");
        let all = windows(build);
        let own = all.iter().flat_map(|of| of["own"].as_array().expect("numbers").clone());
        assert_eq!(Some(own.filter_map(|n| n.as_u64()).sum()), total, "{build}");
        assert_eq!(all.last().expect("windows")["to"].as_u64(), total, "{build}");
    }
    let browser = Browser::start();
    browser.open(&format!("{}0/functions", viewed.address));
    browser.click("nav a[href=time]");
    assert_eq!(browser.texts(".same code"), ["engraft show both.engraft time"]);
    assert_eq!(browser.script("return document.querySelectorAll('svg.times').length"), 2);
    let n_bars = |nth: usize| {
        let script =
            format!("return document.querySelectorAll('svg.times')[{nth}].querySelectorAll('rect').length");
        browser.script(&script).as_u64()
    };
    for (nth, build) in ["old", "new"].into_iter().enumerate() {
        let all = windows(build);
        let own = all.iter().flat_map(|of| of["own"].as_array().expect("numbers").clone());
        assert_eq!(n_bars(nth), Some(own.filter(|n| n.as_u64() > Some(0)).count() as u64), "{build}");
    }
    let name = said["functions"][0]["function"].as_str().expect("a name").to_owned();
    browser.click(".legend li.m0 a");
    assert_eq!(browser.texts("h1"), [name]);
    browser.check_quiet(&viewed.address);
}

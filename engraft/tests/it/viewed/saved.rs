//! `engraft view --html`: a file of pages, which a browser shows by itself.

use super::browser::{Browser, ENTER};
use super::{HOSTILE, all_pages, as_shown, both, cells, many};
use crate::needs;
use crate::run::{engraft, folder};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The file of pages of a recording: its address, and text.
#[track_caller]
fn saved(place: &Path, recording: &str, to: &Path) -> (String, String) {
    engraft(place, &format!("view -q {recording} --html {}", to.display())).ok();
    (format!("file://{}", to.display()), std::fs::read_to_string(to).expect("it was written"))
}

#[test]
fn a_file_sorts_finds_and_opens_without_a_server() {
    needs!("gcc", "chromium", "chromedriver");
    let place = folder();
    let (address, _) = saved(many(), "many.engraft", &place.path().join("many.html"));
    let browser = Browser::start();
    browser.open(&address);
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length > 300");
    let names = || browser.texts("#functions tbody[data-from] td:nth-child(4)");
    assert!(names()[0].starts_with("long_"), "{:?}", names());
    assert_eq!(names()[1], as_shown(HOSTILE));
    assert_eq!(browser.script("return document.images.length"), 0);
    let shown =
        cells(&browser, "#functions table", &["function", "instructions", "entries", "share", "module"]);
    let said = engraft(many(), "show many.engraft --json").json();
    let said = said["functions"].as_array().expect("functions");
    assert_eq!(shown.len(), said.len());
    for (row, want) in shown.iter().zip(said) {
        let number = |of: &Value| of.as_f64().map(|n| n.to_string()).unwrap_or_default();
        let shown = |at: usize| row[at].parse::<f64>().map(|n| n.to_string()).unwrap_or_default();
        let text = |key: &str| want[key].as_str().unwrap_or_default().to_owned();
        assert_eq!((&row[0], &row[4]), (&as_shown(&text("name")), &text("module")));
        for (at, key) in [(1, "instructions"), (2, "entries"), (3, "share")] {
            assert_eq!(shown(at), number(&want[key]), "{key} of {row:?}");
        }
    }

    browser.click("#functions th:nth-child(4) a");
    browser.until("return location.hash === '#/0/functions?sort=function'");
    browser.until("return document.querySelector('th[aria-sort=ascending]') !== null");
    assert!(names().is_sorted(), "{:?}", names());
    browser.click("#functions th:nth-child(4) a");
    browser.until("return document.querySelector('th[aria-sort=descending]') !== null");
    assert!(names().iter().rev().is_sorted(), "{:?}", names());
    browser.reload();
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length > 300");
    assert!(names().iter().rev().is_sorted(), "{:?}", names());
    browser.click("#functions th:nth-child(3) a");
    browser.until("return document.querySelector('th:nth-child(3)[aria-sort=descending]') !== null");
    let entries = cells(&browser, "#functions table", &["entries"]);
    let numbers: Vec<u64> = entries.iter().filter_map(|row| row[0].parse().ok()).collect();
    assert!(numbers.len() > 300 && numbers.iter().rev().is_sorted(), "{numbers:?}");

    browser.press("/f_*12");
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length === 13");
    assert!(names().iter().all(|name| name.contains("12")), "{:?}", names());
    assert!(browser.texts("output.found")[0].starts_with("13 of 3"));
    browser.press("\u{e00c}j");
    browser.press(ENTER);
    browser.until("return location.hash.startsWith('#/0/function?')");
    assert!(browser.texts("h1")[0].contains("12"), "{:?}", browser.texts("h1"));
    assert!(browser.texts(".insns td").iter().any(|text| text == "ret"));
    let sources = || browser.texts(".insns .source td").concat();
    assert!(!sources().contains("sum += i"), "lines of sources that nobody asked for: {}", sources());
    browser.click(".insns .edges a");
    browser.until("return location.hash.startsWith('#/0/function?')");
    browser.back();
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length === 13");
    browser.check_quiet(&address);

    let with = place.path().join("with.html");
    engraft(many(), &format!("view -q many.engraft --html {} --with-source -n 5", with.display())).ok();
    browser.open(&format!("file://{}", with.display()));
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length > 300");
    assert_eq!(browser.script("return document.querySelectorAll('#functions tbody a[href]').length"), 5);
    browser.click("#functions tr[data-place='1'] a");
    browser.until("return document.querySelector('.insns .source td') !== null");
    assert!(sources().contains("sum += i"), "{}", sources());
}

#[test]
fn a_file_of_two_builds_has_what_a_server_shows() {
    needs!("gcc", "chromium", "chromedriver");
    let place = folder();
    let (address, text) = saved(both(), "both.engraft", &place.path().join("both.html"));
    assert!(text.len() < 1_000_000, "{}", text.len());
    let browser = Browser::start();
    browser.open(&address);
    browser.until(
        "return document.querySelector('#functions tr[data-place]') !== null && document.title !== ''",
    );
    let said = engraft(both(), "show both.engraft functions --json").json();
    let shown = cells(&browser, "#functions table", &["function", "old", "new"]);
    let rows = said["functions"].as_array().expect("functions");
    assert_eq!(shown.len(), rows.len());
    for (row, want) in shown.iter().zip(rows) {
        let of = |build: &str| want[build]["dyn.agg.total"].to_string();
        assert_eq!(row, &[want["name"].as_str().expect("a name").to_owned(), of("old"), of("new")]);
    }
    browser.click("#functions tr[data-place='1'] a");
    browser.until("return location.hash.startsWith('#/0/function?name=')");
    let name = browser.texts("h1")[0].clone();
    let said = engraft(both(), &format!("show both.engraft function '{name}' --json")).json();
    assert_eq!(
        browser.texts("#function tr[data-place]").len(),
        said["metrics"].as_array().expect("rows").len()
    );
    browser.click("nav a[href$=outliers]");
    browser.until("return document.querySelector('#outliers tr[data-place]') !== null");
    browser.click("#outliers tr[data-place='1'] a");
    browser.until("return document.querySelector('.sides h2') !== null");
    browser.press("s");
    browser.until("return document.querySelector('.sides h2').textContent === 'new build'");
    browser.back();
    browser.until("return document.querySelector('.sides h2').textContent === 'old build'");
    // A name of no page leads to the first.
    browser.script("location.hash = '#/7/nothing'");
    browser.until("return document.querySelector('#functions') !== null");
    browser.check_quiet(&address);
}

/// A script that gives the names of all pages that a file has.
const PAGES: &str = "const done = arguments[arguments.length - 1];\
    const text = document.getElementById('pages').textContent.trim();\
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));\
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));\
    new Response(stream).json().then((pages) => done(Object.keys(pages)))";

#[test]
fn pages_of_a_file_are_as_wide_and_as_readable_as_those_of_a_server() {
    needs!("gcc", "chromium", "chromedriver");
    let Some(axe) = super::axe(module_path!(), line!()) else { return };
    let place = folder();
    let browser = Browser::start();
    for (of, recording, pages) in all_pages() {
        let (address, _) = saved(of, recording, &place.path().join(recording).with_extension("html"));
        browser.open(&address);
        let all = browser.script_later(PAGES);
        let all: Vec<String> = serde_json::from_value(all).expect("names of pages");
        // Of each kind of page the first that it has.
        let mut kinds = BTreeSet::new();
        let kind = |page: &str| page.split('?').next().map(str::to_owned);
        let firsts: Vec<&String> = all.iter().filter(|page| kinds.insert(kind(page))).collect();
        let n_kinds = pages.iter().filter_map(|page| page.split('?').next()).collect::<BTreeSet<_>>().len();
        assert!(firsts.len() + 2 >= n_kinds, "{firsts:?} of {pages:?}");
        for page in firsts {
            for (width, theme) in [(640, "light"), (1280, "dark"), (1920, "light")] {
                browser.size(width, 900);
                browser.theme(theme);
                browser.open("about:blank");
                browser.open(&format!("{address}#/{page}"));
                browser.until("return document.getElementById('page').dataset.page !== undefined");
                let shown = browser.script("return document.getElementById('page').dataset.page");
                assert_eq!(shown.as_str(), Some(page.as_str()));
                let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
                assert!(wide.as_i64().is_some_and(|n| n <= 0), "{page} is {wide} wider than {width}");
                let found = browser.script_later(&axe);
                assert_eq!(found, serde_json::json!([]), "{page}, {theme}: {found:#}");
            }
        }
        browser.check_quiet(&address);
    }
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let place = folder();
    let copy = place.path().join("copy.engraft");
    std::fs::copy(many().join("many.engraft"), &copy).expect("copied");
    let ran = engraft(place.path(), "view copy.engraft --html copy.engraft");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!(
        std::fs::read(&copy).expect("there"),
        std::fs::read(many().join("many.engraft")).expect("there")
    );
    let ran = engraft(place.path(), "view copy.engraft --html none/copy.html");
    assert!(ran.code == Some(2) && ran.stderr.contains("none/copy.html"), "{}", ran.stderr);
    let ran = engraft(place.path(), "view copy.engraft --html copy.html --port 7000");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = engraft(place.path(), "view copy.engraft --html -");
    assert!(ran.code == Some(0) && ran.stdout.starts_with("<!doctype html>"), "{}", ran.stderr);
    let policy = ran
        .stdout
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    assert!(policy.is_some_and(|policy| !policy.contains("unsafe")), "{policy:?}");
}

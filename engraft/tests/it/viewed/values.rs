//! Pages of recordings of `engraft values`.

use super::browser::Browser;
use super::{Viewed, axe, cells};
use crate::needs;
use crate::run::{built, engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

/// A recording of calls and of loops.
pub fn valued() -> &'static Path {
    static VALUED: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = VALUED.get_or_init(|| {
        let place = folder();
        let text = "volatile long sum;\n\
            __attribute__((noinline)) long work(long x, double y) {\n\
              for (long i = 0; i < x; i++) sum += i;\n\
              return x + (long)y;\n\
            }\n\
            __attribute__((noinline)) long other(long z) { return z * sum; }\n\
            int main(void) {\n\
              for (int n = 0; n < 300; n++) { sum += work(n % 7, n * 0.5); sum += other(n % 3); }\n\
              return 0;\n\
            }\n";
        built(place.path(), "valued", text, "-O1 -g");
        let calls = "values -q -o calls.engraft --full --calls work --calls other -- ./valued";
        engraft(place.path(), calls).ok();
        engraft(place.path(), "values -q -o loops.engraft --loop work -- ./valued").ok();
        place
    });
    place.path()
}

#[test]
fn values_of_calls_and_loops_are_those_of_json() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(valued(), &["--no-open", "calls.engraft", "loops.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    browser.click("tbody tr:nth-child(1) a");
    let said = engraft(valued(), "show calls.engraft --json").json();
    let calls = said["calls"].as_array().expect("calls");
    let shown = cells(&browser, "#functions table", &["function", "calls", "came back"]);
    assert_eq!(shown.len(), 2);
    for (row, want) in shown.iter().zip(calls) {
        let want = [
            want["function"].as_str().expect("a name").to_owned(),
            want["calls"].to_string(),
            want["results"].to_string(),
        ];
        assert_eq!(row, &want);
    }
    let work = calls.iter().position(|calls| calls["function"] == "work").expect("it was called");
    browser.click(&format!("#functions tr[data-place='{}'] a", work + 1));
    assert_eq!(browser.texts("h1"), ["work"]);
    let columns: Vec<&Value> =
        calls[work]["arguments"].as_array().into_iter().flatten().chain([&calls[work]["result"]]).collect();
    assert_eq!(columns.len(), 3);
    for (n, column) in (1..).zip(&columns) {
        // The sections of statistics, which stand before them, are of no class.
        let table = format!(
            "section.column:nth-of-type({}) table",
            n + browser.texts("section:not(.column) .statistics").len()
        );
        let shown = cells(&browser, &table, &["value", "count", "bits"]);
        let top = column["top"].as_array().expect("values");
        assert!(!top.is_empty() && shown.len() == top.len().min(100), "{table}: {shown:?}");
        for (row, want) in shown.iter().zip(top) {
            let text = |key: &str| want[key].as_str().unwrap_or_default().to_owned();
            assert_eq!(row, &[text("value"), want["count"].to_string(), text("bits")]);
        }
    }
    assert!(
        browser.script("return document.querySelectorAll('.plot svg .cells').length").as_u64() >= Some(3)
    );

    browser.open(&viewed.address);
    browser.click("tbody tr:nth-child(2) a");
    let said = engraft(valued(), "show loops.engraft --json").json();
    let of = &said["loops"][0];
    let shown = cells(&browser, "#loops table", &["instances", "iterations", "trip counts"]);
    assert_eq!(
        shown,
        [[
            of["instances"].to_string(),
            of["iterations"]["total"].as_f64().expect("a number").to_string(),
            of["trip_counts"].as_array().expect("rows").len().to_string()
        ]]
    );
    browser.click("#loops tr[data-place='1'] a");
    let trips = cells(&browser, "section.column table", &["iterations", "instances"]);
    let want: Vec<Vec<String>> = of["trip_counts"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|one| vec![one["iterations"].to_string(), one["instances"].to_string()])
        .collect();
    assert_eq!(trips, want);
    assert!(browser.script("return document.querySelectorAll('.plot svg .box').length").as_u64() > Some(0));
    browser.check_quiet(&viewed.address);
}

#[test]
fn pages_of_values_are_readable() {
    needs!("gcc", "chromium", "chromedriver");
    let Some(axe) = axe(module_path!(), line!()) else { return };
    let viewed = Viewed::start(valued(), &["--no-open", "calls.engraft", "loops.engraft"]);
    let browser = Browser::start();
    for page in ["0/functions", "0/function?name=work", "0/advice", "1/loops", "1/loop?n=1"] {
        for (width, theme) in [(640, "light"), (1280, "dark"), (1920, "light")] {
            browser.size(width, 900);
            browser.theme(theme);
            browser.open(&format!("{}{page}", viewed.address));
            let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
            assert!(wide.as_i64().is_some_and(|n| n <= 0), "{page} is {wide} wider than {width}");
            let found = browser.script_later(&axe);
            assert_eq!(found, serde_json::json!([]), "{page}, {theme}: {found:#}");
        }
    }
    browser.check_quiet(&viewed.address);
}

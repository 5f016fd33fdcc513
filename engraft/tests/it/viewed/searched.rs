//! Paths of blocks, looked for in a trace.

use super::browser::{Browser, ENTER};
use super::{Viewed, axe, both, cells};
use crate::needs;
use crate::run::engraft;

#[test]
fn a_path_is_found_time_after_time_with_what_is_around_it() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(both(), &["--no-open", "old.trace"]);
    let browser = Browser::start();
    browser.open(&format!("{}0/search", viewed.address));
    let said = engraft(both(), "query old.trace --hottest 100 --length 3 --json").json();
    let paths = said["paths"].as_array().expect("paths");
    let shown = cells(&browser, "#search table", &["count", "path"]);
    assert!(!paths.is_empty() && shown.len() == paths.len(), "{shown:?}");
    for (row, want) in shown.iter().zip(paths) {
        assert_eq!(row[0], want["count"].to_string());
        let blocks: Vec<String> =
            want["blocks"].as_array().expect("blocks").iter().map(ToString::to_string).collect();
        assert!(row[1].ends_with(&format!(": {}", blocks.join(" "))), "{row:?} {want}");
    }
    let path = shown[0][1].clone();
    browser.click("#search tr[data-place='1'] td:nth-child(3) a");
    browser.until("return document.querySelector('.around .here') !== null");
    let one = |nth: &str| {
        let index = engraft(both(), &format!("query old.trace '{path}' {nth} --json")).json();
        index["first"]["index"].as_u64().or(index["positions"][0]["index"].as_u64()).expect("a place")
    };
    let here = || browser.texts(".around .here td:first-child")[0].replace(',', "");
    assert_eq!(here(), one("--first").to_string());
    let said = engraft(both(), &format!("query old.trace '{path}' --first --context=12 --json")).json();
    assert_eq!(
        browser.texts(".around tbody tr").len(),
        said["context"].as_array().expect("symbols around it").len()
    );
    browser.press("]");
    browser.until("return new URLSearchParams(location.search).get('nth') === '2'");
    assert_eq!(here(), one("--nth 2").to_string());
    browser.press("[");
    browser.until("return document.querySelector('a[rel=prev]') === null");
    browser.click(".around .here a");
    browser.until("return location.pathname.endsWith('/function')");
    browser.back();
    browser.script("const field = document.querySelector('input[name=path]'); field.focus(); field.select()");
    browser.press(&format!("nothing: 0{ENTER}"));
    browser.until("return document.querySelector('.refused') !== null");
    assert!(browser.texts(".refused")[0].contains("nothing"), "{:?}", browser.texts(".refused"));
    browser.check_quiet(&viewed.address);
}

#[test]
fn the_page_of_paths_is_readable() {
    needs!("gcc", "chromium", "chromedriver");
    let Some(axe) = axe(module_path!(), line!()) else { return };
    let viewed = Viewed::start(both(), &["--no-open", "old.trace"]);
    let browser = Browser::start();
    for page in ["0/search", "0/search?path=main%3A+0", "0/search?path=none%3A+0"] {
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

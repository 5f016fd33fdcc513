//! Reports that verbs wrote with `--json`, in the browser: matchings, carried profiles, many comparisons.

use super::browser::Browser;
use super::{Viewed, cells};
use crate::needs;
use crate::run::{built, copy_program, engraft, folder, pair};
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

/// Reports of two builds: `match.json`, `carry.json`, `matrix.json`.
pub fn reports() -> &'static Path {
    static REPORTS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = REPORTS.get_or_init(|| {
        let place = folder();
        let (path, write) = (place.path(), |name: &str, text: &str| {
            std::fs::write(place.path().join(name), text).expect("written");
        });
        for build in ["old", "new"] {
            copy_program(pair().join(build), path.join(build));
        }
        write("match.json", &engraft(path, "match old new --json").stdout);
        let common = "volatile long sum; __attribute__((noinline)) void stays(int n) { for (int i = 0; i < n; i++) sum += i; }\n";
        let gone = "__attribute__((noinline)) long gone(long n) { long all = 1; while (n > 1) { all ^= n * 7; n = n % 3 ? n - 1 : n / 3; } return all; }\n";
        built(path, "before", &format!("{common}{gone}int main(void) {{ stays(500); sum += gone(99999); return 0; }}"), "-O1");
        built(path, "after", &format!("{common}int main(void) {{ stays(400); return 0; }}"), "-O1");
        engraft(path, "count -q --modules exe -o counts.engraft -- ./before").ok();
        let carried = engraft(path, "carry before after -q --profile counts.engraft -o carried.fdata --json");
        write("carry.json", &carried.stdout);
        let builds = "[[builds]]\nname = 'old'\npath = './old'\n[[builds]]\nname = 'new'\npath = './new'\n\
             [[builds]]\nname = 'same'\npath = './old'\n";
        let inputs = "[[inputs]]\nname = 'none'\n[[inputs]]\nname = 'some'\nargs = ['x']\n";
        write("matrix.toml", &format!("against = 'old'\n{builds}{inputs}"));
        write("matrix.json", &engraft(path, "compare -q --matrix matrix.toml --json").stdout);
        place
    });
    place.path()
}

/// A report as it was written.
fn written(name: &str) -> Value {
    let text = std::fs::read_to_string(reports().join(name)).expect("it was written");
    serde_json::from_str(&text).expect("JSON")
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().expect("a list")
}

fn text(of: &Value) -> String {
    of.as_str().map_or_else(|| of.to_string(), str::to_owned)
}

fn hex(of: &Value) -> String {
    format!("{:#x}", of.as_u64().expect("a number"))
}

/// What a page's twin says.
fn twin(browser: &Browser, page: &str) -> String {
    let fetched = format!(
        "const done = arguments[arguments.length - 1]; fetch('{page}').then((of) => of.text()).then(done)"
    );
    browser.script_later(&fetched).as_str().expect("a text").to_owned()
}

#[test]
fn a_matching_is_looked_at_function_by_function_and_block_by_block() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(reports(), &["--no-open", "match.json"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let said = written("match.json");
    let rows = list(&said, "functions");
    let shown = cells(&browser, "#functions table", &["function", "was", "old", "new", "by"]);
    assert!(rows.len() > 3 && shown.len() == rows.len(), "{} of {}", shown.len(), rows.len());
    for (row, want) in shown.iter().zip(rows) {
        let want = [
            text(&want["new_name"]),
            text(&want["old_name"]),
            hex(&want["old"]),
            hex(&want["new"]),
            text(&want["method"]),
        ];
        assert_eq!(row, &want);
    }
    let again: Value = serde_json::from_str(&twin(&browser, "functions.json")).expect("JSON");
    assert_eq!(again, said);
    let n = said["rates"]["blocks"]["matched_new"].as_u64().expect("a number").to_string();
    assert!(browser.texts(".rates td").contains(&n), "{:?}", browser.texts(".rates td"));

    let main = rows.iter().position(|row| row["new_name"] == "main").expect("main is matched");
    browser.click(&format!("#functions tr[data-place='{}'] a", main + 1));
    assert_eq!(browser.texts("h1"), ["main"]);
    let said = engraft(reports(), "match old new --explain main --json").json();
    let want = list(&said, "rows");
    let hows = browser.texts(".pairs .how");
    assert_eq!(hows.len(), want.len());
    for (how, want) in hows.iter().zip(want) {
        let (old, new, method) = (&want["old"], &want["new"], text(&want["method"]));
        let is_told = match (old.is_null(), new.is_null()) {
            (true, _) => how == "only in new",
            (_, true) => how == "only in old",
            _ => how.starts_with(&format!("{method}, confidence ")),
        };
        assert!(is_told, "{how}: {want}");
    }
    let n_insns: usize = want
        .iter()
        .flat_map(|row| [&row["old"], &row["new"]])
        .filter(|block| !block.is_null())
        .map(|block| list(block, "instructions").len())
        .sum();
    assert_eq!(browser.texts(".pairs .mnemonic").len(), n_insns);
    assert!(browser.texts("footer code").concat().contains("match old new --explain "));

    browser.click("nav a[href=unmatched]");
    let said = written("match.json");
    let unmatched: Vec<&Value> =
        list(&said, "unmatched_old").iter().chain(list(&said, "unmatched_new")).collect();
    let shown = cells(&browser, "#unmatched table", &["function", "why"]);
    assert!(!unmatched.is_empty() && shown.len() == unmatched.len(), "{shown:?}");
    for (row, want) in shown.iter().zip(unmatched) {
        assert_eq!(row, &[text(&want["name"]), text(&want["why"])]);
    }
    assert_eq!(twin(&browser, "unmatched.csv").lines().count(), 1 + shown.len());
    browser.click("#unmatched tr[data-place='1'] a");
    assert!(!browser.texts(".pairs .how").is_empty());
    browser.click("nav a[href=data]");
    assert_eq!(browser.texts("#data tr[data-place]").len(), list(&said, "data").len().min(200));
    browser.check_quiet(&viewed.address);
}

#[test]
fn a_carried_profile_says_what_was_lost_and_why() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(reports(), &["--no-open", "carry.json"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let said = written("carry.json");
    let lost = list(&list(&said, "steps")[0], "lost");
    let shown = cells(&browser, "#functions table", &["function", "count", "blocks", "why"]);
    assert!(!lost.is_empty() && shown.len() == lost.len(), "{shown:?} {lost:?}");
    for (row, want) in shown.iter().zip(lost) {
        assert_eq!(row[1..], [text(&want["count"]), text(&want["n_blocks"]), text(&want["why"])]);
    }
    let facts = browser.texts(".facts dd").join("\n");
    assert!(facts.contains("counts.engraft") && facts.contains("carried.fdata"), "{facts}");
    let again: Value = serde_json::from_str(&twin(&browser, "functions.json")).expect("JSON");
    assert_eq!(again, said);
    for page in ["ranges", "elsewhere"] {
        browser.click(&format!("nav a[href={page}]"));
        let rows = browser.texts(&format!("#{page} tr[data-place]")).len();
        assert_eq!(twin(&browser, &format!("{page}.csv")).lines().count(), 1 + rows);
    }
    browser.click("nav a[href=ranges]");
    assert_eq!(browser.texts("#ranges tr[data-place]").len(), list(&said, "ranges").len().min(200));
    browser.check_quiet(&viewed.address);
}

#[test]
fn builds_and_inputs_are_chosen_by_check_boxes() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(reports(), &["--no-open", "matrix.json"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let said = written("matrix.json");
    let rows = list(&said, "rows");
    assert_eq!((rows.len(), browser.texts(".matrix input").len()), (4, 4));
    assert_eq!(browser.script("return document.querySelectorAll('.matrix input:checked').length"), 4);
    // Of each input, the build that the others are compared with, and these.
    let amounts = "return [...document.querySelectorAll('.bars tbody tr')].map((row) => row.cells[2].title)";
    let want: Vec<Value> = rows
        .chunks(2)
        .flat_map(|of| [&of[0]["amount"]["old"], &of[0]["amount"]["new"], &of[1]["amount"]["new"]])
        .map(|n| Value::from(n.as_f64().expect("a number").to_string()))
        .collect();
    assert_eq!(browser.script(amounts), Value::from(want));

    let n_functions = |of: &[Value]| of.iter().map(|row| list(row, "functions").len()).sum::<usize>();
    let total = "return Number(document.querySelector('#functions tbody[data-total]').dataset.total)";
    assert_eq!(browser.script(total), n_functions(rows));
    let shown = cells(&browser, "#functions table", &["input", "build", "function", "old", "new", "max"]);
    let metric = text(&said["metric"]);
    for row in &shown {
        let of = rows.iter().find(|of| text(&of["input"]) == row[0] && text(&of["new"]) == row[1]);
        let function = list(of.expect("a row"), "functions").iter().find(|f| text(&f["name"]) == row[2]);
        let function = function.expect("its function");
        let n = |build: &str| function[build][&metric].as_f64().unwrap_or_default();
        let want = [n("old"), n("new"), n("old").max(n("new"))].map(|n| n.to_string());
        assert_eq!(row[3..], want);
    }

    // Only the second comparison of the first input.
    for n in ["0", "2", "3"] {
        browser.click(&format!(".matrix input[value='{n}']"));
    }
    browser.click(".search button");
    assert!(browser.address().contains("of=1"), "{}", browser.address());
    assert_eq!(browser.script(total), n_functions(&rows[1..2]));
    assert_eq!(browser.texts(".bars tbody tr").len(), 2);
    browser.click("#functions th:nth-child(10) a");
    assert_eq!(browser.script(total), n_functions(&rows[1..2]));
    assert_eq!(twin(&browser, "functions.csv?of=1").lines().count(), 1 + n_functions(&rows[1..2]));
    browser.check_quiet(&viewed.address);
}

//! `engraft view`: its pages in a browser that is driven, and how it starts and ends.

mod browser;
mod graphs;
mod reports;
mod saved;
mod searched;
mod trees;
mod values;

use crate::needs;
use crate::run::{built, engraft, folder, must, pair, put_program};
use browser::{Browser, ENTER};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// `engraft view`, as long as it is wanted.
struct Viewed {
    us: Child,
    address: String,
}

impl Viewed {
    #[track_caller]
    fn start(folder: &Path, args: &[&str]) -> Viewed {
        Viewed::of(Command::new(env!("CARGO_BIN_EXE_engraft")).current_dir(folder).arg("view").args(args))
    }

    #[track_caller]
    fn of(command: &mut Command) -> Viewed {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut us = command.spawn().expect("cargo built it");
        let mut line = String::new();
        let read = BufReader::new(us.stdout.as_mut().expect("a pipe")).read_line(&mut line);
        read.expect("text");
        let address = line.trim_end().to_owned();
        assert!(address.starts_with("http://127.0.0.1:") && address.ends_with('/'), "{line:?}");
        Viewed { us, address }
    }

    /// Ends it by a signal: what it returned, and said.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        must(Command::new("kill").args([&format!("-{signal}"), &self.us.id().to_string()]));
        let mut said = String::new();
        let read = self.us.stderr.take().expect("a pipe").read_to_string(&mut said);
        read.expect("text");
        (self.us.wait().expect("it ends").code(), said)
    }
}

impl Drop for Viewed {
    fn drop(&mut self) {
        let _gone = self.us.kill().and_then(|()| self.us.wait());
    }
}

/// A function with a name that a browser might take for more than a name.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}&amp;";

/// As pages show names: what is not seen by its number.
fn as_shown(name: &str) -> String {
    name.replace('\u{202e}', "\\u{202e}")
}

/// A recording of a program of over 300 functions, of which each ran another number of instructions.
fn many() -> &'static Path {
    static MANY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = MANY.get_or_init(|| {
        let place = folder();
        let mut text = String::from("volatile long sum;\n");
        for n in 0..300 {
            text += &format!("__attribute__((noinline)) void f_{n:03}(void) {{ for (int i = 0; i < {n} + 3; i++) sum += i; }}\n");
        }
        let long = "long_".repeat(60);
        text += &format!("__attribute__((noinline)) void {long}(void) {{ for (int i = 0; i < 9999; i++) sum += i; }}\n");
        text += &format!("__attribute__((noinline)) void hostile(void) __asm__(\"\\\"{HOSTILE}\\\"\");\n");
        text += "void hostile(void) { for (int i = 0; i < 5000; i++) sum += i; }\n";
        let calls: String = (0..300).map(|n| format!("f_{n:03}(); ")).collect();
        text += &format!("int main(void) {{ {calls} {long}(); hostile(); return 0; }}\n");
        built(place.path(), "many", &text, "-O1 -g");
        engraft(place.path(), "count -q -o many.engraft --modules exe -- ./many").ok();
        place
    });
    place.path()
}

#[test]
fn functions_are_sorted_searched_and_scrolled_in_a_browser() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(many(), &["--no-open", "many.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    assert_eq!(browser.address(), format!("{}0/functions", viewed.address));
    let names = || browser.texts("#functions tbody[data-from] td:nth-child(4)");
    let first = || names().first().cloned().unwrap_or_default();
    assert!(first().starts_with("long_"), "{:?}", first());
    assert_eq!(names().get(1).map(String::as_str), Some(as_shown(HOSTILE).as_str()));
    assert_eq!(browser.script("return document.images.length"), 0);

    browser.click("#functions th:nth-child(4) a");
    assert_eq!(browser.address(), format!("{}0/functions?sort=function", viewed.address));
    assert!(names().is_sorted(), "{:?}", names());
    browser.click("#functions th:nth-child(4) a");
    assert!(names().iter().rev().is_sorted(), "{:?}", names());
    browser.reload();
    assert!(names().iter().rev().is_sorted(), "{:?}", names());
    browser.back();
    assert!(names().is_sorted(), "{:?}", names());
    browser.back();
    assert!(first().starts_with("long_"), "{:?}", first());

    browser.press("/f_01");
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length === 10");
    assert!(names().iter().all(|name| name.starts_with("f_01")), "{:?}", names());
    browser.until("return location.search === '?q=f_01'");
    browser.reload();
    assert_eq!(names().len(), 10);
    let said = browser.texts("output.found");
    assert!(said[0].starts_with("10 of 3"), "{said:?}");

    browser.open(&viewed.address);
    browser.script("scrollTo(0, document.documentElement.scrollHeight)");
    let is_last = "const rows = document.querySelectorAll('#functions tr[data-place]');\
        const total = document.querySelector('#functions tbody[data-total]').dataset.total;\
        return rows[rows.length - 1].dataset.place === total";
    browser.until(is_last);
    browser.until("return new URLSearchParams(location.search).get('from') > 200");
    let from = browser.address();
    browser.reload();
    browser.until("return scrollY > 3000");
    assert_eq!(browser.address(), from);
    browser.check_quiet(&viewed.address);
}

#[test]
fn a_function_is_found_and_opened_by_keys_alone() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(many(), &["--no-open", "many.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    browser.press("?");
    browser.until("return document.querySelector('dialog').open");
    browser.press("\u{e00c}");
    browser.until("return !document.querySelector('dialog').open");
    browser.press("/f_12");
    browser.until("return document.querySelectorAll('#functions tr[data-place]').length === 10");
    // Out of the field, then to the second row.
    browser.press("\u{e00c}jj");
    browser.until("return document.activeElement.matches('tr[data-place=\"2\"] a:focus-visible')");
    let name = browser.script("return document.activeElement.textContent");
    browser.press(ENTER);
    browser.until("return location.pathname.endsWith('/function')");
    assert_eq!(browser.texts("h1"), [name.as_str().expect("a name")]);
    assert!(browser.texts(".insns td").iter().any(|text| text == "ret"), "{:?}", browser.texts(".insns td"));
    assert!(browser.texts(".insns .source td").iter().any(|text| text.contains("sum += i")));
    assert!(browser.script("return document.querySelectorAll('.graph svg rect').length").as_u64() > Some(2));
    browser.back();
    browser.until("return location.search === '?q=f_12'");
    browser.check_quiet(&viewed.address);
}

/// What the page has in each row under these headings.
fn cells(browser: &Browser, table: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let script = format!(
        "const table = document.querySelector({table:?});\
         const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());\
         const wanted = {columns:?}.map((name) => heads.indexOf(name));\
         return [...table.querySelectorAll('tr[data-place]')].map((row) => wanted.map((n) => row.cells[n].title))"
    );
    serde_json::from_value(browser.script(&script)).expect("rows of texts")
}

#[test]
fn numbers_on_pages_are_those_of_json() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(many(), &["--no-open", "many.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let shown =
        cells(&browser, "#functions table", &["function", "instructions", "entries", "share", "module"]);
    let said = engraft(many(), "show many.engraft --json").json();
    let said = said["functions"].as_array().expect("functions");
    assert!(said.len() > 300 && shown.len() == 200, "{} of {}", shown.len(), said.len());
    for (row, want) in shown.iter().zip(said) {
        let number = |key: &str| want[key].to_string();
        let text = |key: &str| want[key].as_str().unwrap_or_default().to_owned();
        let want = [
            as_shown(&text("name")),
            number("instructions"),
            number("entries"),
            number("share"),
            text("module"),
        ];
        assert_eq!(row, &want);
    }
}

/// A comparison of two builds of a small program.
fn both() -> &'static Path {
    static BOTH: OnceLock<tempfile::TempDir> = OnceLock::new();
    let place = BOTH.get_or_init(|| {
        let place = folder();
        for build in ["old", "new"] {
            let program = pair().join(build).display().to_string();
            engraft(place.path(), &format!("trace -q --modules exe -o {build}.trace -- {program}")).ok();
        }
        engraft(place.path(), "compare -q old.trace new.trace -o both.engraft");
        place
    });
    place.path()
}

#[test]
fn two_builds_are_compared_in_a_browser() {
    needs!("gcc", "chromium", "chromedriver");
    let viewed = Viewed::start(both(), &["--no-open", "both.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let said = engraft(both(), "show both.engraft functions --json").json();
    let rows = said["functions"].as_array().expect("functions");
    let shown = cells(&browser, "#functions table", &["function", "old", "new"]);
    assert!(!rows.is_empty() && shown.len() == rows.len(), "{shown:?}");
    for (row, want) in shown.iter().zip(rows) {
        let of = |build: &str| want[build]["dyn.agg.total"].to_string();
        assert_eq!(row, &[want["name"].as_str().expect("a name").to_owned(), of("old"), of("new")]);
    }
    let name = shown[0][0].clone();
    browser.click("#functions tr[data-place='1'] a");
    assert_eq!(browser.texts("h1"), std::slice::from_ref(&name));
    let said = engraft(both(), &format!("show both.engraft function '{name}' --json")).json();
    let metrics = said["metrics"].as_array().expect("metrics");
    let number = |of: &Value| of.as_f64().expect("a number");
    let mut metrics: Vec<&Value> = metrics.iter().collect();
    // Those that differ most first.
    metrics.sort_by(|a, b| {
        let by = |row: &Value| (number(&row["new"]) - number(&row["old"])).abs();
        by(b).total_cmp(&by(a))
    });
    let shown = cells(&browser, "#function table", &["metric", "old", "new"]);
    assert_eq!(shown.len(), metrics.len());
    for (row, want) in shown.iter().zip(metrics) {
        let name = want["metric"].as_str().expect("a name").to_owned();
        assert_eq!(row, &[name, want["old"].to_string(), want["new"].to_string()]);
    }
    browser.press("]");
    browser.until("return document.querySelector('a[rel=prev]') !== null");
    browser.press("[");
    browser.until("return document.querySelector('a[rel=prev]') === null");
    assert_eq!(browser.texts("h1"), [name]);

    browser.click("nav a[href=outliers]");
    browser.click("#outliers tr[data-place='1'] a");
    let builds = || browser.texts(".sides h2");
    assert_eq!(builds(), ["old build", "new build"]);
    assert!(!browser.texts(".sides .insns td").is_empty());
    browser.press("s");
    browser.until("return document.querySelector('.sides h2').textContent === 'new build'");
    browser.back();
    assert_eq!(builds(), ["old build", "new build"]);
    browser.click("nav a[href=intervals]");
    assert!(!browser.texts("#intervals tr[data-place]").is_empty());
    let twin = |page: &str| {
        let fetched =
            "const done = arguments[arguments.length - 1]; fetch('PAGE').then((of) => of.text()).then(done)";
        browser.script_later(&fetched.replace("PAGE", page)).as_str().expect("a text").to_owned()
    };
    let outliers = twin("outliers.csv");
    assert!(outliers.starts_with("n,difference,"), "{outliers}");
    let said = engraft(both(), "show both.engraft --json").json();
    let n = |rows: &Value| rows.as_array().expect("rows").len();
    assert_eq!(outliers.lines().count(), 1 + n(&said["outliers"]));
    browser.click("nav a[href=alone]");
    let alone = n(&said["unmatched"]["old"]) + n(&said["unmatched"]["new"]);
    assert!(alone > 0, "{said}");
    assert_eq!(browser.texts("#alone tr[data-place]").len(), alone);
    assert_eq!(twin("alone.csv").lines().count(), 1 + alone);
    browser.click("#alone tr[data-place='1'] a");
    assert!(!browser.texts("#function tr[data-place]").is_empty());
    browser.check_quiet(&viewed.address);
}

/// Of each recording all pages.
fn all_pages() -> Vec<(&'static Path, &'static str, Vec<String>)> {
    let owned = |pages: &[&str]| pages.iter().map(|page| (*page).to_owned()).collect();
    let long = format!("function?name={}", "long_".repeat(60));
    let compared = [
        "functions",
        "function?name=main",
        "alone",
        "outliers",
        "outlier?n=1",
        "intervals",
        "flame",
        "flame?by=delta&q=a",
        "tree",
        "time",
    ];
    let mut all = vec![
        (
            many(),
            "many.engraft",
            owned(&[
                "functions",
                "loops",
                &long,
                "functions?q=f_1&sort=entries",
                "flame",
                "tree",
                "flame?inverted=1",
            ]),
        ),
        (graphs::large_function(), "large.engraft", owned(&["function?name=large"])),
        (reports::reports(), "match.json", owned(&["functions", "unmatched", "data", "function?name=main"])),
        (reports::reports(), "carry.json", owned(&["functions", "ranges", "elsewhere"])),
        (reports::reports(), "matrix.json", owned(&["functions", "functions?of=1"])),
        (both(), "both.engraft", owned(&compared)),
    ];
    all.extend(trees::pages());
    all
}

#[test]
fn no_page_is_wider_than_its_window_light_or_dark() {
    needs!("gcc", "chromium", "chromedriver");
    let browser = Browser::start();
    for (place, recording, pages) in all_pages() {
        let viewed = Viewed::start(place, &["--no-open", recording]);
        for page in pages {
            // As wide as 1280 is at 200 per cent, too.
            for (width, theme) in
                [(640, "light"), (1280, "light"), (1280, "dark"), (1920, "light"), (1920, "dark")]
            {
                browser.size(width, 900);
                browser.theme(theme);
                browser.open(&format!("{}0/{page}", viewed.address));
                let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
                assert!(wide.as_i64().is_some_and(|n| n <= 0), "{page} is {wide} wider than {width}");
                let paper =
                    browser.script("return getComputedStyle(document.documentElement).backgroundColor");
                assert_eq!(paper == "rgb(255, 255, 255)", theme == "light", "{page}: {paper}");
            }
        }
        browser.check_quiet(&viewed.address);
    }
}

/// A script that gives what keeps somebody from reading a page, if the library is there that knows.
fn axe(module: &str, line: u32) -> Option<String> {
    const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/axe/axe.min.js");
    if !crate::run::has(AXE, module, line) {
        return None;
    }
    let axe = std::fs::read_to_string(AXE).expect("scripts/axe.sh put it there");
    let levels = r#"["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]"#;
    Some(format!(
        "{axe};\nconst done = arguments[arguments.length - 1];\
         axe.run(document, {{ runOnly: {levels} }}).then((found) => done(found.violations.map((v) =>\
         `${{v.id}}: ${{v.nodes.slice(0, 3).map((n) => n.html + n.failureSummary).join(' | ')}}`)))"
    ))
}

#[test]
fn no_page_keeps_anybody_from_reading_it() {
    needs!("gcc", "chromium", "chromedriver");
    let Some(run) = axe(module_path!(), line!()) else { return };
    let browser = Browser::start();
    for (place, recording, pages) in all_pages() {
        let viewed = Viewed::start(place, &["--no-open", recording]);
        for page in pages {
            for theme in ["light", "dark"] {
                browser.theme(theme);
                browser.open(&format!("{}0/{page}", viewed.address));
                let found = browser.script_later(&run);
                assert_eq!(found, serde_json::json!([]), "{page}, {theme}: {found:#}");
            }
        }
    }
}

#[test]
fn recordings_are_there_for_other_tools() {
    needs!("gcc", "chromium", "chromedriver");
    let place = folder();
    std::fs::copy(many().join("many.engraft"), place.path().join("many.engraft")).expect("copied");
    let viewed = Viewed::start(place.path(), &["--no-open", "many.engraft"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    assert_eq!(browser.texts("footer a.export"), ["KCachegrind", "pprof"]);
    let fetched = "const done = arguments[arguments.length - 1];\
        fetch(document.querySelector('a.export').href).then(async (of) =>\
        done([of.headers.get('content-disposition'), await of.text()]))";
    let said = browser.script_later(fetched);
    engraft(place.path(), "convert -q --to callgrind many.engraft -o want.callgrind").ok();
    let want = std::fs::read_to_string(place.path().join("want.callgrind")).expect("it was written");
    assert!(want.contains("fn=") && want.len() > 1000, "{want}");
    assert_eq!(said, serde_json::json!(["attachment; filename=\"callgrind.out.engraft\"", want]));
    browser.check_quiet(&viewed.address);
}

#[test]
fn it_ends_when_it_is_asked_to_and_says_when_it_cannot_start() {
    needs!("gcc", "kill");
    for signal in ["INT", "TERM"] {
        let viewed = Viewed::start(many(), &["--no-open", "many.engraft"]);
        assert_eq!(viewed.end(signal), (Some(0), String::new()), "{signal}");
    }
    let viewed = Viewed::start(many(), &["--no-open", "many.engraft"]);
    let port = viewed.address.split([':', '/']).nth(4).expect("a port").to_owned();
    let ran = engraft(many(), &format!("view --no-open --port {port} many.engraft"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let want = format!("engraft: cannot listen on port {port}: it is taken\nhint: ");
    assert!(ran.stderr.starts_with(&want) && ran.stderr.lines().count() == 2, "{}", ran.stderr);
    for none in ["none.engraft", "many"] {
        let ran = engraft(many(), &format!("view --no-open {none}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    }
}

#[test]
fn the_browser_is_led_to_the_address_by_a_file_that_nobody_else_can_read() {
    needs!("gcc", "kill", "stat");
    let place = folder();
    let script = format!(
        "#!/bin/sh\nstat -c %a \"$1\" > {0}/mode; cat \"$1\" > {0}/led.part; mv {0}/led.part {0}/led; echo \"$@\" > {0}/words\n",
        place.path().display()
    );
    put_program(&place.path().join("browser"), script);
    let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
    command.current_dir(many()).args(["view", "many.engraft"]).env_remove("SSH_CONNECTION");
    let viewed = Viewed::of(command.env("BROWSER", place.path().join("browser")));
    let words = place.path().join("words");
    let is_there = || std::fs::read_to_string(&words).ok().filter(|text| text.ends_with('\n'));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let words = loop {
        match is_there() {
            Some(words) => break words,
            None => assert!(std::time::Instant::now() < end, "no browser was started"),
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    };
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect("written");
    assert_eq!(read("mode"), "600\n");
    assert!(read("led").contains(&format!("url={}\"", viewed.address)), "{}", read("led"));
    assert!(!words.contains("127.0.0.1"), "{words}");
    assert_eq!(viewed.end("INT"), (Some(0), String::new()));
    assert!(!Path::new(words.trim_end()).exists(), "the file is still there");

    let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
    command.current_dir(many()).args(["view", "many.engraft"]);
    let viewed = Viewed::of(command.env("SSH_CONNECTION", "10.0.0.5 50000 10.0.0.1 22"));
    let port = viewed.address.split([':', '/']).nth(4).expect("a port").to_owned();
    let (code, said) = viewed.end("INT");
    assert_eq!(code, Some(0));
    assert!(said.contains(&format!("ssh -N -L {port}:127.0.0.1:{port} 10.0.0.1\n")), "{said}");
}

#[test]
fn without_a_name_the_recordings_in_the_folder_are_listed() {
    needs!("gcc", "chromium", "chromedriver");
    let place = folder();
    for (from, name) in [(many(), "many.engraft"), (both(), "both.engraft"), (both(), "old.trace")] {
        std::fs::copy(from.join(name), place.path().join(name)).expect("copied");
    }
    std::fs::write(place.path().join("none.engraft"), "nothing").expect("written");
    let viewed = Viewed::start(place.path(), &["--no-open"]);
    let browser = Browser::start();
    browser.open(&viewed.address);
    let mut names = browser.texts("tbody a");
    names.sort();
    assert_eq!(names, ["both.engraft", "many.engraft", "old.trace"]);
    let links = browser.script("return [...document.querySelectorAll('tbody a')].map((a) => a.href)");
    for link in links.as_array().into_iter().flatten().filter_map(Value::as_str) {
        browser.open(link);
        assert!(!browser.texts("#functions tr[data-place]").is_empty(), "{link}");
        browser.click("a.home");
    }
    browser.check_quiet(&viewed.address);
}

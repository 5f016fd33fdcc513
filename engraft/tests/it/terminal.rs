//! What people see: as wide as their terminal there, whole in a pipe, with colours where there are any.

use crate::needs;
use crate::run::{Ran, built, engraft, folder};
use std::path::Path;
use std::process::Command;

const US: &str = env!("CARGO_BIN_EXE_engraft");
/// Longer than any table leaves room for in 80 columns.
const LONG: &str =
    "a_function_whose_name_is_longer_than_what_is_left_of_a_line_of_eighty_columns_beside_numbers";

/// Two builds of a program with a long name, recordings and traces of both.
fn place() -> tempfile::TempDir {
    let place = folder();
    for (name, times) in [("old", 7000), ("new", 9000)] {
        let text = format!(
            "#include <stdlib.h>\n__attribute__((noinline)) int {LONG}(int n) {{ int s = 0; \
             for (int i = 0; i < n; i++) {{ if (i % 3) s += i; else s ^= i; }} return s; }}\n\
             int main(int c, char **v) {{ int s = c; for (int i = 0; i < {times}; i++) s += {LONG}(i & 15); \
             return abs(s) & 1; }}"
        );
        built(place.path(), name, &text, "-O1 -g");
        engraft(place.path(), &format!("count --no-cache -q -o {name}.engraft ./{name}"));
        engraft(place.path(), &format!("trace --no-cache -q --modules exe -o {name}.trace ./{name}"));
        let at = "--at main edi,rsi:ptr,xmm0:f64x2";
        engraft(place.path(), &format!("values --no-cache -q -o {name}.values {at} ./{name}"));
        engraft(place.path(), &format!("count --no-cache -q -o {name}-again.engraft ./{name} a b"));
    }
    place
}

/// What `engraft args` shows on a terminal of so many columns: colours are left out, if it has any.
fn shown(place: &Path, columns: usize, args: &str) -> Ran {
    let line = format!("stty cols {columns} rows 24; {US} {args}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(place).env_remove("NO_COLOR");
    let mut ran = Ran::from(script.output().expect("script runs"));
    ran.stdout = ran.stdout.replace('\r', "");
    ran
}

fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once(['m', 'K']).map_or("", |(_, rest)| rest)).collect::<String>()
}

const SCREENS: &[&str] = &[
    "show old",
    "show old functions",
    "show old loops",
    "show old gaps",
    "show old data",
    "show old function main",
    "show old.engraft",
    "show old.engraft loops",
    "show old.engraft edges",
    "show old.engraft never",
    "show old.engraft calls",
    "show old.engraft paths",
    "show old.engraft function main",
    "show old.engraft functions",
    "show old.engraft --by line",
    "show old.engraft --by file",
    "show old.engraft --by module",
    "show old.engraft tree",
    "show old.values",
    "show old.trace",
    "show old.trace functions",
    "show old.trace tree",
    "show old.trace callers main",
    "show nowhere-and-a-path-that-is-so-long-that-the-message-is-wider-than-the-terminal-is/old",
    "diff old.engraft old-again.engraft",
    "diff old.engraft new.engraft",
    "match old new",
    "carry old new --profile old.engraft -o new.fdata",
    "score new.fdata new.engraft --binary new",
    "convert old.engraft -o old.csv",
    "query old.trace --stats",
    "query old.trace 'main: 0'",
    "count --no-cache -o here.engraft ./old",
    "count --no-cache --repeat 2 --per-thread -o here.engraft ./old",
    "trace --no-cache --modules exe -o here.trace ./old",
    "cache",
    "doctor",
];

#[test]
fn no_line_is_wider_than_the_terminal_and_no_name_is_cut_in_a_pipe() {
    needs!("gcc", "script", "stty");
    let place = place();
    for args in SCREENS {
        for columns in [80, 160] {
            let ran = shown(place.path(), columns, args);
            assert!(!ran.stdout.is_empty(), "{args}");
            for line in plain(&ran.stdout).lines() {
                let n = line.chars().count();
                assert!(n <= columns, "{args}: {n} columns of {columns}:\n{line}\n{}", ran.stdout);
            }
        }
        let piped = engraft(place.path(), args);
        let text = piped.stdout + &piped.stderr;
        assert!(!text.contains('…') && !text.contains('\x1b'), "{args}: {text}");
    }
    // Where it is on both, it is whole in one and cut in the other.
    for args in [
        "show old.engraft",
        "show old functions",
        "show old.engraft calls",
        "diff old.engraft old-again.engraft",
    ] {
        let screen = plain(&shown(place.path(), 80, args).stdout);
        if args != "diff old.engraft old-again.engraft" {
            assert!(
                screen.contains("a_fu") && screen.contains('…') && !screen.contains(LONG),
                "{args}: {screen}"
            );
            assert!(engraft(place.path(), args).stdout.contains(LONG), "{args}");
        }
    }
    // Numbers have separators for people alone.
    let instructions =
        engraft(place.path(), "show old.engraft --json").json()["instructions"].as_u64().expect("a number");
    assert!(instructions > 10_000);
    let (large, plain_text) = (format!("{},", instructions / 1000), instructions.to_string());
    assert!(!engraft(place.path(), "show old.engraft").ok().contains(&large));
    assert!(engraft(place.path(), "show old.engraft").ok().contains(&plain_text));
    let rows = engraft(place.path(), "show old.engraft --format csv").ok();
    for cell in rows.lines().skip(1).flat_map(|row| row.split(',').take(2)) {
        assert!(cell.parse::<f64>().is_ok(), "{cell} is no number");
    }
}

#[test]
fn colours_are_where_they_are_wanted() {
    needs!("gcc", "script", "stty");
    let place = place();
    for args in ["show old.engraft", "show nowhere", "count --no-cache -o here.engraft ./old"] {
        let with = |more: &str| format!("{args} ").replacen(' ', &format!(" {more} "), 1);
        let has_colors = |text: &str| text.contains("\x1b[1");
        assert!(has_colors(&shown(place.path(), 80, &with("")).stdout), "{args}");
        assert!(!has_colors(&shown(place.path(), 80, &with("--color never")).stdout), "{args}");
        let without = shown(place.path(), 80, &format!("{}; NO_COLOR=1 {US} {}", "--version", with("")));
        assert!(!has_colors(&without.stdout), "{args}");
        let piped = |more: &str| {
            let ran = engraft(place.path(), &with(more));
            ran.stdout + &ran.stderr
        };
        assert!(!has_colors(&piped("")) && has_colors(&piped("--color always")), "{args}");
    }
}

#[test]
fn rows_are_chosen_and_sorted_on_request() {
    needs!("gcc");
    let place = place();
    let names = |args: &str| {
        let rows = engraft(place.path(), &format!("{args} --format csv")).ok();
        let mut rows = rows.lines().map(|row| row.split(',').map(str::to_owned).collect::<Vec<_>>());
        let headings = rows.next().expect("headings");
        let at = headings.iter().position(|h| h == "function" || h == "name").expect("a name");
        rows.map(|row| row[at].clone()).collect::<Vec<_>>()
    };
    let all = names("show old.engraft");
    assert_eq!(all[..2], [LONG, "main"]);
    assert_eq!(names("show old.engraft -n 1"), [LONG]);
    assert_eq!(names("show old.engraft --filter ma*n"), ["main"]);
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(names("show old.engraft --sort function"), sorted);
    assert_eq!(names("show old.engraft --sort entries -n 1"), [LONG], "it is called most");
    assert!(names("show old functions --filter a_fun*") == [LONG]);
    let text = engraft(place.path(), "show old.engraft -n 1").ok();
    assert!(text.contains(&format!("and {} more: -n {} shows all", all.len() - 1, all.len())), "{text}");
    let ran = engraft(place.path(), "count --no-cache -n 1 --sort entries -o here.engraft ./old");
    assert!(ran.stderr.contains("more: -n ") && ran.stderr.contains(LONG), "{}", ran.stderr);
    let ran = engraft(place.path(), "show old.engraft --sort size");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(
        ran.stderr.contains("no column is called size\nhint: there are share, instructions"),
        "{}",
        ran.stderr
    );
}

#[test]
fn names_are_those_of_the_source_unless_symbols_are_asked_for() {
    needs!("g++");
    let place = folder();
    let text = "namespace shop { __attribute__((noinline)) int sum(int n) { volatile int s = n; return s + n; } }\n\
                int main(int n, char **) { return shop::sum(n) & 1; }";
    std::fs::write(place.path().join("a.cc"), text).expect("written");
    crate::run::must(Command::new("g++").args(["-O1", "-o", "old", "a.cc"]).current_dir(place.path()));
    engraft(place.path(), "count --no-cache -q -o run.engraft ./old");
    for args in ["show run.engraft", "show run.engraft calls", "show old functions"] {
        let (source, symbol) = ("shop::sum(int)", "_ZN4shop3sumEi");
        let said = engraft(place.path(), args).ok();
        assert!(said.contains(source) && !said.contains(symbol), "{args}: {said}");
        let raw = engraft(place.path(), &format!("{args} --mangled")).ok();
        assert!(raw.contains(symbol) && !raw.contains(source), "{args}: {raw}");
    }
}

//! Rules that a machine can check, each with a message that says what to do.

mod circles;
mod sizes;
mod unsafety;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Which crates a crate may use. Lowest floor first; crates of one floor do not see each other.
const MAY_USE: &[(&str, &[&str])] = &[
    ("program", &[]),
    ("profile", &["program"]),
    ("trace", &[]),
    ("matching", &["program", "profile", "trace"]),
    ("probe", &["program"]),
    ("live", &["program", "probe"]),
    ("measure", &["program", "profile", "probe", "trace"]),
    ("session", &["program", "profile", "probe", "trace", "live", "measure"]),
    ("views", &[]),
    ("viewer", &["views"]),
    ("capi", &["program", "probe", "live", "measure", "session"]),
    (
        "engraft",
        &[
            "program", "profile", "matching", "probe", "live", "measure", "trace", "session", "views",
            "viewer",
        ],
    ),
];

/// Words that only the folders `arch` may know. Registers by name are found as whole words of code.
const REGISTERS: &[&str] =
    &["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp", "rbp", "r8", "r15", "xmm0", "ymm0", "zmm0"];

/// The decoder library, and the method that gives out what it decoded.
const DECODER: &[&str] = &["iced_x86", "iced"];

#[test]
fn crates_only_look_down() {
    let mut wrong = Vec::new();
    for (name, uses) in workspace_uses() {
        let Some((_, below)) = MAY_USE.iter().find(|(krate, _)| *krate == name) else {
            wrong.push(format!("{name} has no floor: give it one in MAY_USE and in ARCHITECTURE.md"));
            continue;
        };
        for used in uses.iter().filter(|used| !below.contains(&used.as_str())) {
            wrong.push(format!(
                "{name} uses {used}, which is not below it: move the code down, or pass it in"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each crate of the workspace with the workspace crates it uses. From cargo itself: a manifest can say it in
/// too many ways.
fn workspace_uses() -> Vec<(String, Vec<String>)> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(top())
        .output()
        .expect("cargo runs this test, so it can be run");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo prints JSON");
    let packages = json["packages"].as_array().expect("a list, by cargo's documentation");
    let crates = packages.iter().map(|p| {
        let uses = p["dependencies"].as_array().into_iter().flatten();
        let ours = uses.filter(|d| d["path"].is_string() && d["kind"] != "dev");
        let names = |v: &serde_json::Value| v["name"].as_str().unwrap_or_default().to_owned();
        (names(p), ours.map(names).collect())
    });
    crates.collect()
}

/// `ARCHITECTURE.md` names a source file as a list item: ``- `program/src/cfg.rs` (`assemble`): what it is
/// for``, with the files in its folder in brackets. Both ways: what is there is listed, what is listed is
/// there.
#[test]
fn the_map_and_the_tree_agree() {
    let map = read(&top().join("ARCHITECTURE.md"));
    let mut listed: Vec<String> = Vec::new();
    for item in map.lines().filter_map(|line| line.strip_prefix("- `")) {
        let (names, _) = item.split_once(": ").unwrap_or_default();
        let mut names = names.split('`').step_by(2);
        let Some(file) = names.next().filter(|name| name.ends_with(".rs")) else { continue };
        let mut folder = file.trim_end_matches(".rs");
        listed.push(file.to_owned());
        for name in names.filter(|name| !name.is_empty()) {
            match name.strip_suffix(".rs") {
                // A further file of the same line.
                Some(stem) => {
                    folder = stem;
                    listed.push(name.to_owned());
                }
                None => listed.push(format!("{folder}/{name}.rs")),
            }
        }
    }
    let mut wrong = Vec::new();
    for file in listed.iter().filter(|file| !top().join(file).exists()) {
        wrong.push(format!("ARCHITECTURE.md lists {file}, which is not there: take it out"));
    }
    let of_tests =
        |file: &str| file.ends_with("/tests.rs") || file.ends_with("/testing.rs") || file.contains("/tests/");
    for file in sources().filter(|file| file.contains("/src/") && !of_tests(file)) {
        match listed.iter().filter(|name| **name == file).count() {
            0 => wrong.push(format!(
                "ARCHITECTURE.md does not list {file}: add a line `- `{file}`: what it is for`, or its name in the \
                 brackets of the file above it"
            )),
            1 => {}
            n => wrong.push(format!("ARCHITECTURE.md lists {file} {n} times: once is enough")),
        }
    }
    // Over three hundred files at three a line: the list is looked up, the rest of the map is read.
    let n_lines = map.lines().filter(|line| !line.starts_with("- `")).count();
    if n_lines > 90 {
        wrong.push(format!("ARCHITECTURE.md has {n_lines} lines besides its files; over 90 are not read"));
    }
    assert!(listed.len() > 20, "the list was not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_of_the_map_is_short_and_names_three_files_at_most() {
    let map = read(&top().join("ARCHITECTURE.md"));
    let mut wrong = Vec::new();
    for line in map.lines() {
        if line.chars().count() > 110 {
            wrong.push(format!("ARCHITECTURE.md has a line of over 110 columns: {line}"));
        }
        let Some((names, _)) = line.strip_prefix("- ").and_then(|item| item.split_once(": ")) else {
            continue;
        };
        let n_files = names.matches('`').count() / 2;
        if names.contains(".rs`") && n_files > 3 {
            wrong
                .push(format!("ARCHITECTURE.md names {n_files} files in one line, three are enough: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    complain(|file, text| {
        if !text.starts_with("//! ") {
            return Some(format!("{file} does not open with `//!`: say in one line what it is for"));
        }
        None
    });
}

#[test]
fn file_names_are_terms_of_the_field() {
    complain(|file, _| {
        let name = file.rsplit('/').next().unwrap_or_default();
        (["mod.rs", "utils.rs", "util.rs", "prelude.rs", "common.rs", "helpers.rs", "misc.rs"]
            .contains(&name))
        .then(|| {
            format!("{file}: a name that says nothing; use the field's term (`name.rs` + `name/part.rs`)")
        })
    });
}

#[test]
fn nothing_is_left_undone() {
    // Written in two halves, so that this file does not hold them.
    let left =
        [("todo", "!("), ("unimplemented", "!("), ("#[ign", "ore"), ("thread::sl", "eep"), ("FIX", "ME")];
    complain(|file, text| {
        let found = left.iter().map(|(a, b)| format!("{a}{b}")).find(|word| text.contains(word.as_str()))?;
        Some(format!("{file} has {found}: do it, or take it out"))
    });
}

#[test]
fn the_processor_stays_in_its_folder() {
    complain(|file, text| {
        if file.contains("/src/arch/")
            || file.ends_with("/src/arch.rs")
            || !file.contains("/src/")
            || file.ends_with("tests.rs")
        {
            return None;
        }
        let code = code_without_tests(file, text);
        let words = || code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let found =
            words().find(|w| DECODER.contains(w) || REGISTERS.contains(&w.to_ascii_lowercase().as_str()))?;
        Some(format!(
            "{file} says {found}: only a folder `arch` may; ask `Insn`, `Operand`, `RegSet` instead"
        ))
    });
}

#[test]
fn libraries_do_not_ask_the_environment() {
    complain(|file, text| {
        if !is_code_of_library(file) {
            return None;
        }
        let code = code_without_tests(file, text);
        let word = [
            "env::var",
            "env::args",
            "env::current_",
            "env::temp_dir",
            "env::home_dir",
            "env::{",
            "tempfile()",
            "tempdir()",
            "NamedTempFile::new()",
        ]
        .into_iter()
        .find(|word| code.contains(word))?;
        Some(format!("{file} has {word}: whoever calls a library reads the environment, and passes it in"))
    });
}

#[test]
fn libraries_name_their_errors() {
    complain(|file, text| {
        let has_any = is_code_of_library(file) && code_without_tests(file, text).contains("anyhow");
        has_any.then(|| format!("{file} has anyhow: errors of a library are types of its own"))
    });
}

/// Whether it is of a library and not for tests.
fn is_code_of_library(file: &str) -> bool {
    file.contains("/src/")
        && !file.starts_with("engraft/")
        && !file.contains("/tests/")
        && !file.ends_with("/tests.rs")
        && !file.ends_with("/testing.rs")
}

#[test]
fn only_output_prints() {
    let words = [("print", "ln!("), ("print", "!("), ("io::std", "out("), ("process::ex", "it(")];
    complain(|file, text| {
        if !file.contains("/src/") || file.starts_with("engraft/src/output") {
            return None;
        }
        let found =
            |w: &String| text.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(w.as_str()));
        let word = words.iter().map(|(a, b)| format!("{a}{b}")).find(found)?;
        Some(format!("{file} has {word}: libraries return values, verbs print with `output`"))
    });
}

#[test]
fn it_is_written_in_plain_characters() {
    // English, with the typography of the field; no other script.
    complain(|file, text| {
        let strange = text
            .chars()
            .find(|c| c.is_alphabetic() && !c.is_ascii() && !"éüöäßµµ₀₁₂₃ₖ²³⁰ØÅñçàèßŁłığ".contains(*c))?;
        Some(format!("{file} has the letter {strange}: comments and names are in English"))
    });
}

/// Fails with all that `check(file, text)` says of the workspace's Rust files.
#[track_caller]
fn complain(check: impl Fn(&str, &str) -> Option<String>) {
    let wrong: Vec<String> = sources().filter_map(|file| check(&file, &read(&top().join(&file)))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All Rust files of the workspace's crates, as paths from the top, sorted.
fn sources() -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = MAY_USE.iter().map(|(name, _)| top().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the workspace can be read") {
            let path = entry.expect("the workspace can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(top()).expect("it was found below");
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found.into_iter()
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// The lines of a file that are code: without comments, and without what is built for tests only.
fn code_without_tests(file: &str, text: &str) -> String {
    let parsed = syn::parse_file(text).unwrap_or_else(|err| panic!("{file}: {err}"));
    let mut tests = TestLines(Vec::new());
    tests.visit_file(&parsed);
    let is_code = |(n, line): &(usize, &str)| {
        !line.trim_start().starts_with("//") && !tests.0.iter().any(|lines| lines.contains(n))
    };
    (1..).zip(text.lines()).filter(is_code).map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// The lines of items that are built for tests only.
struct TestLines(Vec<RangeInclusive<usize>>);

impl TestLines {
    /// Whether it is such an item.
    fn add(&mut self, attrs: &[syn::Attribute], item: &impl Spanned) -> bool {
        let is_test = is_test(attrs);
        if is_test {
            self.0.push(item.span().start().line..=item.span().end().line);
        }
        is_test
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs = match item {
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Type(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return,
        };
        if !self.add(attrs, item) {
            visit::visit_item(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !self.add(&item.attrs, item) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Whether it is built for tests only.
fn is_test(attrs: &[syn::Attribute]) -> bool {
    let words = |attr: &syn::Attribute| match &attr.meta {
        syn::Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    };
    attrs
        .iter()
        .any(|attr| attr.path().is_ident("test") || attr.path().is_ident("cfg") && words(attr) == "test")
}

//! How long files, functions and lines of comments may be.

use super::{read, sources, top};
use std::process::Command;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A function has at most so many lines, from its name to its last brace.
const FUNCTION: usize = 80;

/// Functions that are longer, how long they may be, and why. At most 20 of them, and 3 of over 120 lines.
const LONG: &[(&str, usize, &str)] =
    &[("program/src/arch/x86_64/quick.rs: quick", 141, "a table: one arm a form of the common instructions")];

#[test]
fn functions_are_short_enough_to_be_read() {
    let mut long = Vec::new();
    for file in sources().filter(|file| file.contains("/src/") && !file.ends_with("/tests.rs")) {
        let text = read(&top().join(&file));
        let parsed = syn::parse_file(&text).unwrap_or_else(|err| panic!("{file}: {err}"));
        let mut found = Functions(Vec::new());
        found.visit_file(&parsed);
        let too_long = found.0.into_iter().filter(|(_, n_lines)| *n_lines > FUNCTION);
        long.extend(too_long.map(|(name, n_lines)| (format!("{file}: {name}"), n_lines)));
    }
    let mut wrong = Vec::new();
    for (name, n_lines) in &long {
        match LONG.iter().find(|(listed, ..)| listed == name) {
            None => wrong.push(format!("{name} has {n_lines} lines: split it into steps that have names")),
            Some((_, most, _)) if n_lines != most => {
                wrong.push(format!("{name} has {n_lines} lines, {most} in LONG: it may only get shorter"));
            }
            Some(_) => {}
        }
    }
    for (name, ..) in LONG.iter().filter(|(name, ..)| !long.iter().any(|(found, _)| found == name)) {
        wrong.push(format!("{name} is not long any more: take it out of LONG"));
    }
    assert!(wrong.is_empty(), "{FUNCTION} lines at most:\n{}", wrong.join("\n"));
    let n_very_long = LONG.iter().filter(|(_, n_lines, _)| *n_lines > 120).count();
    assert!(
        LONG.len() <= 20 && n_very_long <= 3,
        "{} long functions, {n_very_long} of over 120 lines",
        LONG.len()
    );
}

/// Functions by name, with their lines; those of tests left out.
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let n_lines = block.span().end().line + 1 - sig.span().start().line;
        self.0.push((sig.ident.to_string(), n_lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !super::is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn files_are_short_enough_to_be_read() {
    let long = |file: &String| {
        let n_lines = read(&top().join(file)).lines().count();
        (n_lines > 800).then(|| format!("{file} has {n_lines} lines: split it by ideas"))
    };
    let wrong: Vec<String> = code_files().iter().filter_map(long).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Columns of a comment, the mark included.
const COLUMNS: usize = 110;

#[test]
fn comments_fit_into_their_columns() {
    let mut wrong = Vec::new();
    for file in code_files() {
        let mark = if file.ends_with(".rs") || file.ends_with(".c") { "//" } else { "#" };
        for (n, line) in read(&top().join(&file)).lines().enumerate() {
            let is_comment = has_comment(line, mark) || file.ends_with(".c") && has_comment(line, "/*");
            if is_comment && line.chars().count() > COLUMNS && !line.contains("http") {
                wrong.push(format!("{file}:{}: wrap this comment at {COLUMNS} columns", n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a comment starts in the line: its mark, at the start or after a space, in no string. Scripts hold
/// C and Rust too: `#define` and `#[inline]` are no comments.
fn has_comment(line: &str, mark: &str) -> bool {
    let stands_free = |before: &str| before.is_empty() || before.ends_with(char::is_whitespace);
    let in_string = |before: &str| before.replace("\\\"", "").matches('"').count() % 2 == 1;
    let is_code = |rest: &str| rest.starts_with("#define") || rest.starts_with("#[");
    line.match_indices(mark)
        .any(|(at, _)| stands_free(&line[..at]) && !in_string(&line[..at]) && !is_code(&line[at..]))
}

/// All files of code that the repository holds: Rust, assembly, C, scripts.
fn code_files() -> Vec<String> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(["*.rs", "*.s", "*.c", "*.sh", "*.py"])
        .current_dir(top())
        .output()
        .expect("the sources are in a git repository, so there is git");
    let files: Vec<String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(str::to_owned)
        .filter(|f| top().join(f).exists())
        .collect();
    assert!(files.len() > 100, "git lists {} files of code: is this a checkout?", files.len());
    files
}

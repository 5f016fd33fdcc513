//! How long files, functions and lines of comments may be.

use super::{read, sources, top};
use std::process::Command;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A function has at most so many lines, from its name to its last brace.
const FUNCTION: usize = 80;

/// How many functions are longer, and how many have over 120 lines. Figures that may only fall.
const LONG: (usize, usize) = (10, 3);

#[test]
fn functions_are_short_enough_to_be_read() {
    let mut long = Vec::new();
    for file in sources().filter(|file| file.contains("/src/") && !file.ends_with("/tests.rs")) {
        let text = read(&top().join(&file));
        let parsed = syn::parse_file(&text).unwrap_or_else(|err| panic!("{file}: {err}"));
        let mut found = Functions(Vec::new());
        found.visit_file(&parsed);
        long.extend(
            found.0.into_iter().filter(|(_, n)| *n > FUNCTION).map(|(name, n)| (n, file.clone(), name)),
        );
    }
    let n_very_long = long.iter().filter(|(n, ..)| *n > 120).count();
    let listed: Vec<String> =
        long.iter().map(|(n, file, name)| format!("{n} lines: {file}: {name}")).collect();
    assert!(
        long.len() <= LONG.0 && n_very_long <= LONG.1,
        "{} functions are longer than {FUNCTION} lines, {n_very_long} than 120: split one into steps that have names\n{}",
        long.len(),
        listed.join("\n")
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
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !super::is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn files_are_short_enough_to_be_read() {
    let long = |file: &String| {
        let text = read(&top().join(file));
        let n_lines = text.lines().count();
        let has_reason = text.contains("tidy: long, because ");
        (n_lines > 800 && !has_reason).then(|| {
            format!("{file} has {n_lines} lines: split it by ideas, or say `tidy: long, because …` in it")
        })
    };
    let wrong: Vec<String> = code_files().iter().filter_map(long).collect();
    assert!(wrong.len() <= LONG_FILES, "{}", wrong.join("\n"));
}

/// How many files of code are too long without a reason. A figure that may only fall.
const LONG_FILES: usize = 3;

/// Columns of a comment, the mark included.
const COLUMNS: usize = 110;

/// How many are wider. A figure that may only fall.
const WIDE: usize = 91;

#[test]
fn comments_fit_into_their_columns() {
    let mut wrong = Vec::new();
    for file in code_files() {
        let mark = if file.ends_with(".rs") || file.ends_with(".c") { "//" } else { "#" };
        for (n, line) in read(&top().join(&file)).lines().enumerate() {
            let is_comment = line.trim_start().starts_with(mark)
                || file.ends_with(".s") && line.contains(" # ")
                || file.ends_with(".rs") && line.contains("; // ");
            if is_comment && line.chars().count() > COLUMNS && !line.contains("http") {
                wrong.push(format!("{file}:{}: wrap this comment at {COLUMNS} columns", n + 1));
            }
        }
    }
    assert!(wrong.len() <= WIDE, "{} are too wide:\n{}", wrong.len(), wrong.join("\n"));
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

//! Which file of a crate uses names of which other one, and where that goes in a circle.
//!
//! A path in the code is followed through imports and re-exports to the file that defines what it names. A
//! file `x.rs` may know its own files `x/*.rs`, which may use it; what `lib.rs` re-exports belongs to the
//! file that defines it. Not here: tests, which may know everything.

use super::{is_test, read, sources, top};
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

#[test]
fn files_of_a_crate_do_not_go_in_circles() {
    let (mut wrong, mut n_uses) = (Vec::new(), 0);
    for krate in crates() {
        let tree = Tree::read(&krate);
        let uses = tree.uses();
        n_uses += uses.len();
        let n = |file: usize| u32::try_from(file).expect("fewer files than that");
        let graph = DiGraph::<(), ()>::from_edges(uses.keys().map(|&(from, to)| (n(from), n(to))));
        for circle in tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1) {
            let circle: Vec<usize> = circle.into_iter().map(|file| file.index()).collect();
            let mut names: Vec<&str> = circle.iter().map(|n| tree.files[*n].path.as_str()).collect();
            names.sort_unstable();
            wrong.push(format!("{} use each other in a circle:", names.join(", ")));
            for ((from, to), what) in &uses {
                if circle.contains(from) && circle.contains(to) {
                    let what: Vec<&str> = what.iter().map(String::as_str).collect();
                    let (from, to) = (&tree.files[*from].path, &tree.files[*to].path);
                    wrong.push(format!("  {from} takes {} from {to}", what.join(", ")));
                }
            }
        }
    }
    // Else paths are not followed any more, and no circle would be found.
    assert!(n_uses > 500, "only {n_uses} uses of one file by another were found");
    assert!(
        wrong.is_empty(),
        "{}\nmove what both sides need into a file below them (a type to where it is made, say)",
        wrong.join("\n")
    );
}

/// The crates of the workspace that have sources, by folder.
fn crates() -> BTreeSet<String> {
    sources().filter_map(|file| Some(file.split_once("/src/")?.0.to_owned())).collect()
}

/// A crate's files as modules.
struct Tree {
    files: Vec<File>,
    /// File by module path: `[]` is `lib.rs`.
    modules: BTreeMap<Vec<String>, usize>,
}

struct File {
    /// From the top of the repository.
    path: String,
    module: Vec<String>,
    /// What `use` binds in it, and the absolute path that stands for.
    imports: BTreeMap<String, Vec<String>>,
    /// All other paths, as written.
    paths: BTreeSet<Vec<String>>,
}

impl Tree {
    fn read(krate: &str) -> Tree {
        let within = format!("{krate}/src/");
        let mut tree = Tree { files: Vec::new(), modules: BTreeMap::new() };
        for path in sources().filter(|file| file.starts_with(&within)) {
            let stem = path[within.len()..].trim_end_matches(".rs");
            let module: Vec<String> = match stem {
                "lib" | "main" => Vec::new(),
                stem => stem.split('/').map(str::to_owned).collect(),
            };
            if module.last().is_some_and(|name| name == "tests" || name == "testing") {
                continue;
            }
            let text = read(&top().join(&path));
            let parsed = syn::parse_file(&text).unwrap_or_else(|err| panic!("{path}: {err}"));
            let mut found = Found { module: &module, imports: BTreeMap::new(), paths: BTreeSet::new() };
            found.visit_file(&parsed);
            let Found { imports, paths, .. } = found;
            tree.modules.insert(module.clone(), tree.files.len());
            tree.files.push(File { path, module, imports, paths });
        }
        tree
    }

    /// Which file takes which names from which other one of its crate.
    fn uses(&self) -> BTreeMap<(usize, usize), BTreeSet<String>> {
        let mut uses: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (n, file) in self.files.iter().enumerate() {
            let written = file.paths.iter().filter_map(|path| self.absolute(file, path));
            for path in file.imports.values().cloned().chain(written) {
                let Some((to, name)) = self.definition(&path, 0) else { continue };
                let target = &self.files[to];
                let is_own =
                    target.module.len() > file.module.len() && target.module.starts_with(&file.module);
                if to != n && !target.module.is_empty() && !is_own {
                    uses.entry((n, to)).or_default().insert(name);
                }
            }
        }
        uses
    }

    /// A path as written in `file`, from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, file: &File, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if let Some(full) = from_root(&file.module, path) {
            return Some(full);
        }
        let start = match file.imports.get(first) {
            Some(full) => full.clone(),
            None => {
                let child: Vec<String> = file.module.iter().chain([first]).cloned().collect();
                self.modules.contains_key(&child).then_some(child)?
            }
        };
        Some(start.into_iter().chain(rest.iter().cloned()).collect())
    }

    /// The file that defines what `path` names, and the name; `None` for a module, and for what is not found.
    fn definition(&self, path: &[String], depth: usize) -> Option<(usize, String)> {
        let mut n_module = 0;
        while n_module < path.len() && self.modules.contains_key(&path[..n_module + 1]) {
            n_module += 1;
        }
        let at = *self.modules.get(&path[..n_module])?;
        let name = path.get(n_module)?;
        match self.files[at].imports.get(name) {
            Some(full) if depth < 8 => {
                let full: Vec<String> = full.iter().chain(&path[n_module + 1..]).cloned().collect();
                self.definition(&full, depth + 1)
            }
            _ => Some((at, name.clone())),
        }
    }
}

/// `crate::…`, `self::…` and `super::…`, from the root of the crate.
fn from_root(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let n_up = path.iter().take_while(|name| *name == "super").count();
    let (start, rest) = match path.first()?.as_str() {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(n_up)?], &path[n_up..]),
        _ => return None,
    };
    Some(start.iter().chain(rest).cloned().collect())
}

/// What a file imports and names.
struct Found<'a> {
    module: &'a [String],
    imports: BTreeMap<String, Vec<String>>,
    paths: BTreeSet<Vec<String>>,
}

impl Found<'_> {
    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                let next: Vec<String> = before.iter().cloned().chain([path.ident.to_string()]).collect();
                self.import(&path.tree, &next);
            }
            syn::UseTree::Name(name) => self.bind(&name.ident.to_string(), None, before),
            syn::UseTree::Rename(name) => {
                self.bind(&name.ident.to_string(), Some(name.rename.to_string()), before);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            syn::UseTree::Glob(_) => {}
        }
    }

    fn bind(&mut self, name: &str, rename: Option<String>, before: &[String]) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let bound = rename.or_else(|| path.last().cloned());
        // A module of this file may be named without `self`.
        let full = from_root(self.module, &path)
            .unwrap_or_else(|| self.module.iter().cloned().chain(path.iter().cloned()).collect());
        if let Some(bound) = bound {
            self.imports.insert(bound, full);
        }
    }

    /// Paths in what a macro is given.
    fn in_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut n_colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if n_colons != 2 {
                        self.keep(&mut path);
                    }
                    path.push(ident.to_string());
                    n_colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => n_colons += 1,
                other => {
                    self.keep(&mut path);
                    n_colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.in_tokens(group.stream());
                    }
                }
            }
        }
        self.keep(&mut path);
    }

    fn keep(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.import(&item.tree, &[]);
        }
    }
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.keep(&mut names);
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.in_tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }
}

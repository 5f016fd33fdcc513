//! Which file of a crate uses names of which other one, and where that goes in a circle.
//!
//! A path in the code is followed through imports and re-exports to the file that defines what it names, a
//! glob to the module that it opens. A method is followed by its name, where only one inherent `impl` of the
//! crate has it, or only one of types that the file knows. A file `x.rs` may know its own files `x/*.rs`,
//! which may use it, but not by way of others; what `lib.rs` re-exports belongs to the file that defines it.
//! Not here: tests, which may know everything.

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
        for circle in tree.circles(&uses) {
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

/// Methods that types of the standard library have too: a call by such a name is not followed.
const OF_STD: &[&str] = &["clear", "find", "finish", "get", "insert", "len", "next", "push", "read", "take"];

/// Which file takes which names from which other one.
type Uses = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Files that reach each other.
fn components(uses: impl Iterator<Item = (usize, usize)>) -> impl Iterator<Item = BTreeSet<usize>> {
    let n = |file: usize| u32::try_from(file).expect("fewer files than that");
    let graph = DiGraph::<(), ()>::from_edges(uses.map(|(from, to)| (n(from), n(to))));
    let components = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    components.map(|files| files.into_iter().map(|file| file.index()).collect())
}

/// The crates of the workspace that have sources, by folder.
fn crates() -> BTreeSet<String> {
    sources().filter_map(|file| Some(file.split_once("/src/")?.0.to_owned())).collect()
}

/// A crate's files as modules.
#[derive(Default)]
struct Tree {
    files: Vec<File>,
    /// File by module path: `[]` is `lib.rs`.
    modules: BTreeMap<Vec<String>, usize>,
    /// File by exported macro, which is named as if it were in `lib.rs`.
    macros: BTreeMap<String, usize>,
}

#[derive(Default)]
struct File {
    /// From the top of the repository.
    path: String,
    module: Vec<String>,
    /// What `use` binds in it, and the absolute path that stands for.
    imports: BTreeMap<String, Vec<String>>,
    /// All other paths, as written.
    paths: BTreeSet<Vec<String>>,
    /// Modules that are opened by globs, from the root.
    globs: BTreeSet<Vec<String>>,
    /// Methods of inherent `impl`s: of which type, as written, the name, and whether they take `self`.
    methods: BTreeSet<(Vec<String>, String, bool)>,
    /// Macros that it exports.
    macros: BTreeSet<String>,
    /// Methods that are called.
    calls: BTreeSet<String>,
}

impl Tree {
    fn read(krate: &str) -> Tree {
        let within = format!("{krate}/src/");
        let mut tree = Tree::default();
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
            tree.modules.insert(module.clone(), tree.files.len());
            let mut file = File { path, module, ..File::default() };
            Found { file: &mut file }.visit_file(&parsed);
            tree.macros.extend(file.macros.iter().map(|name| (name.clone(), tree.files.len())));
            tree.files.push(file);
        }
        tree
    }

    /// Which file takes which names from which other one of the crate.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        let methods = self.methods();
        for (n, file) in self.files.iter().enumerate() {
            let written = file.paths.iter().filter_map(|path| self.absolute(file, path));
            let named = file.imports.values().cloned().chain(written);
            let named: BTreeSet<_> = named.filter_map(|path| self.definition(&path, 0)).collect();
            let opened = file.globs.iter().filter_map(|path| match self.modules.get(path) {
                Some(&to) => Some((to, "*".to_owned())),
                None => self.definition(path, 0),
            });
            let called = file.calls.iter().filter_map(|name| {
                let all = methods.get(name.as_str()).filter(|_| !OF_STD.contains(&name.as_str()))?;
                let callable: Vec<&Method> = all.iter().filter(|method| method.has_self).collect();
                Some((away(n, &named, &callable)?, format!(".{name}()")))
            });
            let of_types = file.paths.iter().filter_map(|path| {
                let [.., of, name] = path.as_slice() else { return None };
                let all = methods.get(name.as_str())?;
                let its: Vec<&Method> =
                    all.iter().filter(|method| of == "Self" || *of == method.of.1).collect();
                Some((away(n, &named, &its)?, format!("{of}::{name}")))
            });
            let called = called.chain(of_types);
            for (to, name) in opened.chain(called).chain(named.clone()).filter(|(to, _)| *to != n) {
                uses.entry((n, to)).or_default().insert(name);
            }
        }
        uses
    }

    /// The inherent methods of the crate, by name.
    fn methods(&self) -> BTreeMap<&str, Vec<Method>> {
        let mut methods: BTreeMap<&str, Vec<Method>> = BTreeMap::new();
        for (n, file) in self.files.iter().enumerate() {
            for (of, name, has_self) in &file.methods {
                let full = self.absolute(file, of).and_then(|path| self.definition(&path, 0));
                let of = full.unwrap_or_else(|| (n, of.last().cloned().unwrap_or_default()));
                methods.entry(name).or_default().push(Method { of, at: n, has_self: *has_self });
            }
        }
        methods
    }

    /// Files that use each other in a circle: two of a folder, or others than a file and its own folder.
    fn circles(&self, uses: &Uses) -> Vec<BTreeSet<usize>> {
        let module = |n: usize| self.files[n].module.as_slice();
        let of_own = |file: usize, own: usize| own != file && module(own).starts_with(module(file));
        let through_folders = components(uses.keys().copied()).filter(|files| {
            let outermost = files.iter().copied().min_by_key(|n| module(*n).len());
            outermost.is_none_or(|file| {
                module(file).is_empty() || !files.iter().all(|&n| n == file || of_own(file, n))
            })
        });
        let between = components(uses.keys().copied().filter(|(from, to)| !of_own(*from, *to)));
        through_folders.chain(between).collect::<BTreeSet<_>>().into_iter().collect()
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
            _ => {
                let exported = self.macros.get(name).filter(|_| n_module == 0);
                Some((exported.copied().unwrap_or(at), name.clone()))
            }
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

/// Where a method stands that the file `n` calls, if that is not where its type does: the only one of the
/// name, or the only one of a type that the file defines or names.
fn away(n: usize, named: &BTreeSet<(usize, String)>, methods: &[&Method]) -> Option<usize> {
    let is_known = |method: &&&Method| method.of.0 == n || named.contains(&method.of);
    let method = match methods {
        [method] => method,
        several => {
            let mut known = several.iter().filter(is_known);
            known.next().filter(|_| known.next().is_none())?
        }
    };
    (method.of.0 != method.at).then_some(method.at)
}

/// A method of an inherent `impl`.
struct Method {
    /// Its type: where that is defined, and its name.
    of: (usize, String),
    /// Where the `impl` is.
    at: usize,
    has_self: bool,
}

/// What a file imports and names.
struct Found<'a> {
    file: &'a mut File,
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
            syn::UseTree::Glob(_) => {
                let full = self.absolute(before);
                self.file.globs.insert(full);
            }
        }
    }

    /// The path of an import, from the root.
    fn absolute(&self, path: &[String]) -> Vec<String> {
        // A module of this file may be named without `self`.
        let module = &self.file.module;
        from_root(module, path).unwrap_or_else(|| module.iter().chain(path).cloned().collect())
    }

    fn bind(&mut self, name: &str, rename: Option<String>, before: &[String]) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let bound = rename.or_else(|| path.last().cloned());
        let full = self.absolute(&path);
        if let Some(bound) = bound {
            self.file.imports.insert(bound, full);
        }
    }

    /// Paths in what a macro is given.
    fn in_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut n_colons, mut is_behind_dot) = (0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if n_colons != 2 {
                        self.keep(&mut path);
                    }
                    if std::mem::take(&mut is_behind_dot) {
                        self.file.calls.insert(ident.to_string());
                    }
                    path.push(ident.to_string());
                    n_colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => n_colons += 1,
                other => {
                    self.keep(&mut path);
                    n_colons = 0;
                    is_behind_dot = matches!(&other, TokenTree::Punct(mark) if mark.as_char() == '.');
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
            self.file.paths.insert(path);
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
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        if let (None, syn::Type::Path(of)) = (&item.trait_, &*item.self_ty) {
            let of: Vec<String> = of.path.segments.iter().map(|s| s.ident.to_string()).collect();
            for item in &item.items {
                if let syn::ImplItem::Fn(method) = item
                    && !is_test(&method.attrs)
                {
                    let sig = &method.sig;
                    self.file.methods.insert((of.clone(), sig.ident.to_string(), sig.receiver().is_some()));
                }
            }
        }
        visit::visit_item_impl(self, item);
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.file.calls.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
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
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.attrs.iter().any(|attr| attr.path().is_ident("macro_export")) {
            self.file.macros.extend(item.ident.as_ref().map(ToString::to_string));
        }
        visit::visit_item_macro(self, item);
    }
    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.in_tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }
}

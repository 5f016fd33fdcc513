//! Which modules are wanted: all but the system's, the executable, or those that globs name.
//!
//! Invariant: in a glob `*` stands for anything, `/` too, and every other character for itself.

use program::{FuncId, Program};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Modules that are wanted only if they are named: what they do is the system's work.
const SYSTEM: [&str; 12] = [
    // glibc, also as its files were called until 2.34
    "libc.so.",
    "ld-linux",
    "libpthread.so.",
    "libdl.so.",
    "librt.so.",
    "libc-2.",
    "ld-2.",
    "libpthread-2.",
    "libdl-2.",
    "librt-2.",
    // musl
    "libc.musl-",
    "ld-musl-",
];

/// Whether a file of this name is libc, or goes with it.
fn is_system(file: &str) -> bool {
    file == "libc.so" || SYSTEM.iter().any(|start| file.starts_with(start))
}

/// Whether the file at `path` is libc, or goes with it.
pub fn is_system_file(path: &Path) -> bool {
    is_system(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// A name in which `*` stands for anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Glob(glob::Pattern);

impl Glob {
    /// Of the text that the user gave.
    pub fn new(text: &str) -> Glob {
        let mut pattern = String::new();
        for (n, literal) in text.split('*').enumerate() {
            // `**` is one that stands for folders, and in the middle of a name an error.
            if n > 0 && !pattern.ends_with('*') {
                pattern.push('*');
            }
            pattern.push_str(&glob::Pattern::escape(literal));
        }
        Glob(glob::Pattern::new(&pattern).expect("what is not a star is escaped, and no two stars meet"))
    }

    /// Whether all of `name` is what it stands for.
    pub fn is_match(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

/// Which functions are meant, by name.
#[derive(Clone, Debug)]
pub struct FunctionFilter {
    globs: Vec<Glob>,
    spellings: Spellings,
}

/// What the source calls a symbol, in each way that a user may write it; nothing, if that is the symbol.
pub type Spellings = fn(&str) -> Vec<String>;

impl FunctionFilter {
    /// Those that one of `names` names, `*` standing for anything: a symbol, or one of its `spellings`.
    pub fn new(names: &[impl AsRef<str>], spellings: Spellings) -> FunctionFilter {
        FunctionFilter { globs: names.iter().map(|name| Glob::new(name.as_ref())).collect(), spellings }
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    /// Whether the function with this symbol is one.
    pub fn has(&self, symbol: &str) -> bool {
        let is_named = |name: &str| self.globs.iter().any(|glob| glob.is_match(name));
        is_named(symbol) || (self.spellings)(symbol).iter().any(|name| is_named(name))
    }

    /// The functions of `program` that are meant: those that bear such a name, and those that a resolver of
    /// such a name may return.
    pub fn of(&self, program: &Program) -> BTreeSet<FuncId> {
        if self.is_empty() {
            return BTreeSet::new();
        }
        let is_one = |f: &FuncId| {
            let function = program.function(*f);
            match function.names.as_ref() {
                [] => self.has(&function.name()),
                names => names.iter().any(|name| self.has(name)),
            }
        };
        let mut all: BTreeSet<FuncId> = program.func_ids().filter(is_one).collect();
        let resolvers: Vec<FuncId> = program.resolvers().intersection(&all).copied().collect();
        all.extend(resolvers.into_iter().flat_map(|f| program.returned_by(f).functions));
        all
    }
}

impl Default for FunctionFilter {
    fn default() -> FunctionFilter {
        FunctionFilter { globs: Vec::new(), spellings: |_| Vec::new() }
    }
}

/// By the names alone: how a symbol is spelt is the same in one build of ours.
impl std::hash::Hash for FunctionFilter {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.globs.hash(state);
    }
}

/// One of the words by which modules are chosen.
#[derive(Clone, Debug)]
enum Word {
    /// `all`: but libc and what goes with it.
    All,
    /// `exe`.
    Executable,
    /// The name of a file, or its path.
    Named(String, Glob),
}

/// Which modules of a program are wanted.
#[derive(Clone, Debug)]
pub struct ModuleFilter(Vec<Word>);

impl ModuleFilter {
    /// Those that one of `words` names: `all` (but libc and what goes with it), `exe`, or a file's name or
    /// path with `*` standing for anything.
    pub fn new(words: &[impl AsRef<str>]) -> ModuleFilter {
        let word = |word: &str| match word {
            "all" => Word::All,
            "exe" => Word::Executable,
            name => Word::Named(name.to_owned(), Glob::new(name)),
        };
        ModuleFilter(words.iter().map(|text| word(text.as_ref())).collect())
    }

    /// Whether the library at `path` is wanted.
    pub fn has_library(&self, path: &Path) -> bool {
        self.0.iter().any(|word| match word {
            Word::All => !is_system_file(path),
            Word::Executable => false,
            Word::Named(name, glob) => names(name, glob, path),
        })
    }

    /// Whether the executable at `path` is wanted. The dynamic linker is one if it is started as a program.
    pub fn has_executable(&self, path: &Path) -> bool {
        self.0.iter().any(|word| match word {
            Word::All | Word::Executable => !is_system_file(path),
            Word::Named(name, glob) => names(name, glob, path),
        })
    }

    /// The names that none of `paths` has.
    pub fn unmatched<'a>(&'a self, paths: &[&Path]) -> Vec<&'a str> {
        let none_has = |word: &'a Word| match word {
            Word::Named(name, glob) => {
                (!paths.iter().any(|path| names(name, glob, path))).then_some(name.as_str())
            }
            Word::All | Word::Executable => None,
        };
        self.0.iter().filter_map(none_has).collect()
    }

    /// Refuses a program of which nothing is wanted, where that can be known: none of its modules at the
    /// start is, `executable` and `libraries`, and it cannot load others.
    ///
    /// # Errors
    /// If so.
    pub fn refuse_none(&self, executable: &Path, libraries: &[PathBuf]) -> Result<(), NoneWanted> {
        let modules = || std::iter::once(executable).chain(libraries.iter().map(PathBuf::as_path));
        let is_all = self.0.iter().any(|word| matches!(word, Word::All));
        if is_all || is_system_file(executable) || self.has_executable(executable) {
            return Ok(());
        }
        if libraries.iter().any(|path| self.has_library(path))
            || modules().any(|path| !is_system_file(path) && loads_libraries(path))
        {
            return Ok(());
        }
        Err(NoneWanted::of(self, modules()))
    }
}

/// Whether the file at `path` speaks of the functions that load libraries.
fn loads_libraries(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    [&b"dlopen\0"[..], b"dlmopen\0"].iter().any(|name| memchr::memmem::find(&bytes, name).is_some())
}

/// Whether `name`, which is also `glob`, is the file name of `path`, or the path itself.
fn names(name: &str, glob: &Glob, path: &Path) -> bool {
    let is_it = || name.contains('/') && Path::new(name).canonicalize().is_ok_and(|named| named == path);
    glob.is_match(&path.file_name().unwrap_or_default().to_string_lossy())
        || glob.is_match(&path.to_string_lossy())
        || is_it()
}

/// Nothing of a program is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is nothing to look at: no module is called {}", wanted.join(" or "))]
pub struct NoneWanted {
    /// What was asked for.
    pub wanted: Vec<String>,
    /// The file names of the modules that there are.
    pub there: Vec<String>,
}

impl NoneWanted {
    /// None of the modules that are `there` is `wanted`.
    pub(crate) fn of<'p>(wanted: &ModuleFilter, there: impl IntoIterator<Item = &'p Path>) -> NoneWanted {
        let text = |word: &Word| match word {
            Word::All => "all".to_owned(),
            Word::Executable => "exe".to_owned(),
            Word::Named(name, _) => name.clone(),
        };
        let file = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let there = there.into_iter().map(file).collect();
        NoneWanted { wanted: wanted.0.iter().map(text).collect(), there }
    }

    /// What can be done about it.
    pub fn hint(&self) -> String {
        format!("there are {}; * stands for anything", self.there.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, path, want) in [
            ("libz*", "/usr/lib/libz.so.1", true),
            ("/usr/lib/*", "/usr/lib/libz.so.1", true),
            ("libz", "/usr/lib/libz.so.1", false),
            ("*", "/x", true),
        ] {
            assert_eq!(ModuleFilter::new(&[pattern]).has_library(Path::new(path)), want, "{pattern} {path}");
        }
    }

    #[test]
    fn only_stars_stand_for_something_else() {
        for (pattern, name, want) in [
            ("**", "a/b", true),
            ("a***b", "ab", true),
            ("a*b*c", "a-b/b.c", true),
            ("a*b*c", "a-b/b.d", false),
            ("*.so", ".so", true),
            ("lib[ab]?.so", "lib[ab]?.so", true),
            ("lib[ab]?.so", "liba1.so", false),
            ("operator[]", "operator[]", true),
            ("", "", true),
            ("", "a", false),
            ("A", "a", false),
        ] {
            assert_eq!(Glob::new(pattern).is_match(name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn all_leaves_the_system_out_unless_it_is_named() {
        let all = ModuleFilter::new(&["all"]);
        assert!(all.has_library(Path::new("/lib/libz.so.1")));
        for (file, want) in [
            ("libc.so.6", false),
            ("libc-2.31.so", false),
            ("ld-linux-x86-64.so.2", false),
            ("ld-musl-x86_64.so.1", false),
            ("libc.so", false),
            ("libc-client.so.2007", true),
            ("ld-decode.so", true),
            ("libcap.so.2", true),
        ] {
            assert_eq!(all.has_library(&Path::new("/lib/x86_64-linux-gnu").join(file)), want, "{file}");
        }
        assert!(ModuleFilter::new(&["libc.so*"]).has_library(Path::new("/lib/libc.so.6")));
        assert!(!ModuleFilter::new(&["exe"]).has_library(Path::new("/lib/libz.so.1")));
    }
}

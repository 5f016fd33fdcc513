//! What functions take and return of which nobody has said it: by debug information, else as the C library
//! declares it.

use super::asked::Passed;
use crate::prototypes::library;
use program::arch::abi::arguments::{Passing, passing};
use program::signature::Signature;
use program::signature::dwarf::Signatures;
use program::{FuncId, Program};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;

/// How files of the C library begin, those of musl too.
const LIBRARIES: [&str; 7] =
    ["libc.so.", "libc-2.", "libm.so.", "libm-2.", "libpthread", "libc.musl-", "ld-musl-"];

/// Functions of math.h that return the same for the same arguments, and change nothing but `errno` and the
/// flags of the floating-point unit; those for `float` and `long double` end in `f` and `l`.
const PURE: [&str; 45] = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "j0",
    "j1",
    "ldexp",
    "log",
    "log10",
    "log1p",
    "log2",
    "nearbyint",
    "pow",
    "remainder",
    "rint",
    "round",
    "scalbn",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
];

/// Whether the C library says that a function is so.
fn is_pure_by_name(name: &str) -> bool {
    let is_it = |name: &str| PURE.binary_search(&name).is_ok();
    is_it(name) || name.strip_suffix(['f', 'l']).is_some_and(is_it) || name == "tgamma"
}

/// What is known of the functions of a program.
pub struct Known<'a> {
    program: &'a Program,
    signatures: OnceCell<Option<Signatures>>,
    /// Of what resolvers may return: the symbols of the resolvers.
    resolved: OnceCell<BTreeMap<FuncId, Vec<Box<str>>>>,
}

impl<'a> Known<'a> {
    /// Of the functions of `program`.
    pub fn new(program: &'a Program) -> Known<'a> {
        Known { program, signatures: OnceCell::new(), resolved: OnceCell::new() }
    }

    /// The symbols that a function has, and those of the resolvers that may return it.
    pub fn names(&self, func: FuncId) -> Vec<Box<str>> {
        let resolved = self.resolved.get_or_init(|| {
            let mut all: BTreeMap<FuncId, Vec<Box<str>>> = BTreeMap::new();
            for resolver in self.program.resolvers() {
                for returned in self.program.returned_by(resolver).functions {
                    let names = &self.program.function(resolver).names;
                    all.entry(returned).or_default().extend(names.iter().cloned());
                }
            }
            all
        });
        let own = self.program.function(func).names.iter();
        own.chain(resolved.get(&func).into_iter().flatten()).cloned().collect()
    }

    /// What `func` takes and returns, and where, as far as that is known.
    pub fn passed(&self, func: FuncId) -> Option<Passed> {
        let function = self.program.function(func);
        let signatures = self.signatures.get_or_init(|| Signatures::load(&self.program.image));
        if let Some(described) = signatures.as_ref().and_then(|all| all.at(function.entry, &function.names)) {
            return Some(Passed::described(&described));
        }
        if !self.is_of_library() {
            return None;
        }
        let library = library::library();
        let names = self.names(func);
        names.iter().find_map(|name| library.function(bare(name))).map(Passed::of)
    }

    /// What `func` takes and returns, and where that is passed, as far as it is known.
    pub fn declared(&self, func: FuncId) -> Option<(Signature, Passing)> {
        let function = self.program.function(func);
        let signatures = self.signatures.get_or_init(|| Signatures::load(&self.program.image));
        if let Some(described) = signatures.as_ref().and_then(|all| all.at(function.entry, &function.names)) {
            let passing = described.passing();
            return Some((described.signature.clone(), passing));
        }
        if !self.is_of_library() {
            return None;
        }
        let library = library::library();
        let signature = self.names(func).iter().find_map(|name| library.function(bare(name)).cloned())?;
        let passing = passing(&signature);
        Some((signature, passing))
    }

    /// Whether what `func` returns depends on its arguments alone, and it changes nothing: as its code shows,
    /// or as the C library says of its own functions (but for `errno`).
    pub fn is_pure(&self, func: FuncId) -> bool {
        let is_declared =
            || self.is_of_library() && self.names(func).iter().any(|name| is_pure_by_name(bare(name)));
        is_declared() || self.program.is_pure(func, &is_pure_by_name)
    }

    fn is_of_library(&self) -> bool {
        let image = &self.program.image;
        let file = Path::new(&image.name).file_name().unwrap_or_default().to_string_lossy();
        image.kind.is_static() || file == "libc.so" || LIBRARIES.iter().any(|start| file.starts_with(start))
    }
}

/// A symbol without its version.
pub fn bare(symbol: &str) -> &str {
    symbol.split('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pure_functions_are_found() {
        assert!(PURE.is_sorted());
        for name in ["exp", "expf", "powl", "floor", "erf", "erff", "tgamma"] {
            assert!(is_pure_by_name(name), "{name}");
        }
        for name in ["lgamma", "rand", "frexp", "modf", "f", "expfl"] {
            assert!(!is_pure_by_name(name), "{name}");
        }
    }
}

//! Language runtimes that know their code by its addresses: what they run cannot be moved.
//!
//! Not here: what V8 was built with, which is a part of a program (`movable`).

use program::Image;
use program::image::RelocationTo;
use std::fmt;

/// A runtime that looks its own code up by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Go's stack maps are found by return address.
    Go,
    /// OCaml's collector finds frames by return address, in tables that nothing else names.
    OCaml,
    /// GHC keeps the table of a closure's code right before that code.
    Haskell,
}

impl Language {
    /// What of it hinders us.
    pub fn hindrance(self) -> &'static str {
        match self {
            Language::Go => "Go's runtime checks its own addresses, so its code cannot be moved",
            Language::OCaml => {
                "OCaml's collector finds frames by return address, so its code cannot be moved"
            }
            Language::Haskell => {
                "GHC keeps tables right before the code they describe, so it cannot be moved"
            }
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Language::Go => "a Go program",
            Language::OCaml => "a native OCaml program",
            Language::Haskell => "a Haskell program",
        })
    }
}

/// The language whose compiler made code of `image`, if its runtime knows that code by its addresses.
///
/// Stripped files are known by what the runtime reads, the names of its variables in the environment, and by
/// what it says.
///
/// Source: OCaml, runtime/backtrace_nat.c, runtime/stack.h, asmcomp/emitaux.ml; GHC,
/// rts/include/rts/storage/InfoTables.h, rts/RtsFlags.c.
pub fn by_address(image: &Image) -> Option<Language> {
    if !image.go_functions.is_empty() {
        return Some(Language::Go);
    }
    let is_frametable =
        |name: &str| name == "caml_frametable" || name.starts_with("caml") && name.ends_with("__frametable");
    let is_info = |name: &str| name.starts_with("stg_") && name.ends_with("_info");
    let mut names_caml = false;
    for symbol in &image.symbols {
        names_caml |= symbol.name.starts_with("caml_");
        if is_frametable(&symbol.name) {
            return Some(Language::OCaml);
        }
        if is_info(&symbol.name) {
            return Some(Language::Haskell);
        }
    }
    let is_imported = |of: &dyn Fn(&str) -> bool| {
        image.relocations.iter().any(|r| matches!(&r.to, RelocationTo::Symbol(name, _) if of(name)))
    };
    if is_imported(&is_info) {
        return Some(Language::Haskell);
    }
    // Others may speak of these languages, too: only a runtime holds all of them. Written so that we do not
    // hold the first ourselves.
    let text = |next: &[u8]| -> Vec<u8> { std::hint::black_box(next).iter().map(|b| b - 1).collect() };
    let holds_all = |first: &[u8], others: &[&[u8]]| {
        holds_string(image, &[&text(first)[..], &[0]].concat())
            && others.iter().all(|other| memchr::memmem::find(image.file_bytes(), other).is_some())
    };
    // How its usage text starts, which every program of GHC's holds.
    if holds_all(b"HIDSUT", &[b"Usage: <prog> <args> [+RTS <rtsopts>"]) {
        return Some(Language::Haskell);
    }
    // The bytecode interpreter, which can be moved, exports its primitives. The exception is one that every
    // native program defines itself.
    let is_native = !names_caml && holds_all(b"DBNMSVOQBSBN", &[b"Undefined_recursive_module\0"]);
    is_native.then_some(Language::OCaml)
}

/// Whether `bytes` stand in what is loaded and not written.
fn holds_string(image: &Image, bytes: &[u8]) -> bool {
    let constant = image.segments.iter().filter(|s| !s.writable);
    let mut parts = constant.filter_map(|s| {
        let from = usize::try_from(s.offset.0).ok()?;
        image.file_bytes().get(from..from.checked_add(usize::try_from(s.file_len).ok()?)?)
    });
    parts.any(|part| memchr::memmem::find(part, bytes).is_some())
}

//! Names without what compilers add to them, so that the same function has the same name in both builds.
//!
//! Invariant: total and bounded. A name that is too long, or that no demangler takes, stands for itself; what
//! a demangler writes is cut off at `MAX_LEN`, for hostile names unfold exponentially.
//!
//! Source: Itanium C++ ABI, 5.1; Rust RFC 2603 (v0) and rustc's legacy scheme; GCC's `clone_function_name`
//! (`.part`, `.isra`, `.constprop`, `.cold`), LLVM's `.llvm.` promotion and `-funique-internal-linkage-names`
//! (`.__uniq.`).

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Longest name that is taken apart, and longest result, in bytes.
const MAX_LEN: usize = 1 << 14;

/// What part of a source function a symbol is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// The function itself, or what is left of it.
    Whole,
    /// Cut out to be shared or inlined around (`.part.N`).
    Split,
    /// Its cold blocks (`.cold`).
    Cold,
}

/// A name without its decorations.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bare<'a> {
    /// The name; demangled if it is Rust's.
    pub name: Cow<'a, str>,
    /// What part of that function.
    pub part: Part,
}

/// `name` without decorations: `.isra.0`, `.constprop.1`, `.llvm.123`, `.lto_priv.4`, `.localalias`,
/// `.__uniq.5`, `foo.123` (a numbered static), Rust's hashes, the numbering of anonymous namespaces.
pub fn bare(name: &str) -> Bare<'_> {
    let (stem, part) = undecorated(name);
    let name = match rust(stem) {
        Some(path) => Cow::Owned(path),
        None => anonymous(stem),
    };
    Bare { name, part }
}

/// Cuts suffixes off, the last first.
fn undecorated(name: &str) -> (&str, Part) {
    let mut stem = name;
    let mut part = Part::Whole;
    while let Some((rest, suffix)) = stem.rsplit_once('.') {
        if rest.is_empty() {
            break;
        }
        let number = !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit());
        let (rest, word) = match (number, rest.rsplit_once('.')) {
            (true, Some((r, w))) if !r.is_empty() && is_decoration(w) => (r, w),
            (true, _) => (rest, ""),
            (false, _) => (rest, suffix),
        };
        match word {
            "cold" | "unlikely" => part = Part::Cold,
            "part" => part = part.max(Part::Split),
            "" => {}
            w if is_decoration(w) => {}
            _ => break,
        }
        stem = rest;
    }
    (stem, part)
}

fn is_decoration(word: &str) -> bool {
    const WORDS: [&str; 16] = [
        "cold",
        "unlikely",
        "part",
        "isra",
        "constprop",
        "llvm",
        "lto_priv",
        "localalias",
        "__uniq",
        "clone",
        "warm",
        "hot",
        "specialized",
        "ipra",
        "simdclone",
        "extracted",
    ];
    WORDS.contains(&word)
}

/// The path of a mangled Rust name, without hashes and crate disambiguators.
fn rust(name: &str) -> Option<String> {
    if !(name.starts_with("_R") || name.starts_with("_ZN") && name.ends_with('E')) || name.len() > MAX_LEN {
        return None;
    }
    let legacy_hash = |n: &str| {
        n.len() > 20
            && n.is_char_boundary(n.len() - 20)
            && n[n.len() - 20..]
                .strip_prefix("17h")
                .is_some_and(|h| h[..16].bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if name.starts_with("_ZN") && !legacy_hash(name) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    write!(out, "{demangled:#}").ok()?;
    Some(out.0)
}

/// A mangled v0 name with its decorations and the numbers of crate disambiguators taken out, still mangled:
/// finer than [`bare`], which drops the numbers of impls and closures too. `None` if the name is not of that
/// sort.
///
/// Text that only looks like a disambiguator goes as well, in both builds alike; back references count bytes,
/// so a disambiguator of another length hides some names, which [`bare`] then finds.
pub fn without_crates(name: &str) -> Option<String> {
    let (stem, _) = undecorated(name);
    if !stem.starts_with("_R") || stem.len() > MAX_LEN {
        return None;
    }
    let mut out = String::with_capacity(stem.len());
    let mut rest = stem;
    while let Some(at) = rest.find("Cs") {
        let digits = rest[at + 2..].bytes().take_while(u8::is_ascii_alphanumeric).count();
        let end = at + 2 + digits;
        out.push_str(&rest[..at + 2]);
        // Base 62 of 64 bits has at most 11 digits.
        let number = (1..=11).contains(&digits) && rest[end..].starts_with('_');
        rest = if number { &rest[end..] } else { &rest[at + 2..] };
    }
    out.push_str(rest);
    Some(out)
}

/// With every spelling of an anonymous namespace turned into `_GLOBAL__N_1`, clang's and today's GCC's.
fn anonymous(name: &str) -> Cow<'_, str> {
    const MARK: &str = "_GLOBAL__N_";
    let Some(first) = name.find(MARK) else { return Cow::Borrowed(name) };
    if name.len() > MAX_LEN {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    let mut at = Some(first);
    while let Some(mark) = at {
        // <length><identifier>: the digits before the mark say where the identifier ends.
        let digits = rest[..mark].bytes().rev().take_while(u8::is_ascii_digit).count();
        let len: usize = rest[mark - digits..mark].parse().unwrap_or(0);
        let end = mark.saturating_add(len);
        if len < MARK.len() || !rest.is_char_boundary(end) || end > rest.len() {
            out.push_str(&rest[..mark + MARK.len()]);
            rest = &rest[mark + MARK.len()..];
        } else {
            out.push_str(&rest[..mark - digits]);
            out.push_str("12_GLOBAL__N_1");
            rest = &rest[end..];
        }
        at = rest.find(MARK);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The hierarchical name: `ns::class::f`, without parameters and return type. `None` if the language has no
/// such thing.
///
/// Source: BMAT, 2.1, footnote 2.
pub fn hierarchical(name: &str) -> Option<String> {
    let (stem, _) = undecorated(name);
    if let Some(path) = rust(stem) {
        return Some(path);
    }
    if !stem.starts_with("_Z") || stem.len() > MAX_LEN {
        return None;
    }
    let stem = anonymous(stem);
    let symbol = cpp_demangle::Symbol::new(stem.as_bytes()).ok()?;
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// A C++ or Rust symbol as its source has it, with parameters; what a compiler put behind it stands in
/// brackets. `None` if it is no such symbol.
pub fn in_source(symbol: &str) -> Option<String> {
    let (stem, _) = undecorated(symbol);
    if stem.len() > MAX_LEN {
        return None;
    }
    let mut text = match rust(stem) {
        Some(path) => path,
        None if stem.starts_with("_Z") => {
            let name = cpp_demangle::Symbol::new(stem.as_bytes()).ok()?;
            let mut out = Bounded(String::new());
            name.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::new()).ok()?;
            out.0
        }
        None => return None,
    };
    if let Some(decorations) = symbol.strip_prefix(stem).filter(|d| !d.is_empty()) {
        text.push_str(&format!(" [{decorations}]"));
    }
    Some(text)
}

/// `path` without the arguments of templates and generics, and without the numbers of closures and lambdas.
pub fn erased(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut depth = 0_u32;
    let mut before = ' ';
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // Operators are written with the same signs.
            '<' if out.ends_with("operator") || out.ends_with("operator<") => out.push(c),
            '>' if depth == 0 => out.push(c),
            // `<T as Trait>::f` starts a path: there the arguments are the name.
            '<' if depth == 0 && (out.is_empty() || before == ' ') => out.push(c),
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' => depth -= 1,
            '#' if depth == 0 => while rest.next_if(char::is_ascii_digit).is_some() {},
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out
}

/// Whether a symbol only marks a place and names no function: GCC's `.L` labels, mapping symbols.
pub fn is_label(name: &str) -> bool {
    name.starts_with(".L") || name.is_empty()
}

/// The number of single-character insertions, deletions and replacements from `a` to `b`, if at most `limit`.
pub fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        let mut least = row[0];
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
            least = least.min(row[j + 1]);
        }
        if least > limit {
            return None;
        }
    }
    Some(row[b.len()]).filter(|&d| d <= limit)
}

/// Text that refuses to grow past [`MAX_LEN`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_LEN {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(name: &str, want: &str, part: Part) {
        let got = bare(name);
        assert_eq!((&*got.name, got.part), (want, part), "{name}");
    }

    #[test]
    fn decorations_are_taken_off() {
        check("foo", "foo", Part::Whole);
        check("foo.isra.0", "foo", Part::Whole);
        check("foo.constprop.0.isra.1", "foo", Part::Whole);
        check("foo.part.0", "foo", Part::Split);
        check("foo.part.0.cold", "foo", Part::Cold);
        check("foo.constprop.0.cold.12", "foo", Part::Cold);
        check("foo.llvm.14067391237", "foo", Part::Whole);
        check("foo.lto_priv.3", "foo", Part::Whole);
        check("foo.localalias", "foo", Part::Whole);
        check("foo.__uniq.2341234.llvm.55", "foo", Part::Whole);
        check("table.123", "table", Part::Whole);
        check(".foo", ".foo", Part::Whole);
        check("a.b", "a.b", Part::Whole);
        check("part.3", "part", Part::Whole);
    }

    #[test]
    fn rust_names_lose_hash_and_crate_disambiguator() {
        let path = "alloc::vec::Vec<T,A>::reserve";
        check("_ZN5alloc3vec16Vec$LT$T$C$A$GT$7reserve17h0123456789abcdefE", path, Part::Whole);
        check("_ZN5alloc3vec16Vec$LT$T$C$A$GT$7reserve17hfedcba9876543210E.llvm.12", path, Part::Whole);
        check("_RNvNtCs4lUfJ5g3poj_5tokio4task5spawn", "tokio::task::spawn", Part::Whole);
        check("_RNvNtCsk6lDpyudpmB_5tokio4task5spawn", "tokio::task::spawn", Part::Whole);
    }

    #[test]
    fn crates_go_and_impls_stay() {
        for (name, want) in [
            ("_RNvXs5_NtCsdjD0lJrWu5B_4expr6reduceE", Some("_RNvXs5_NtCs_4expr6reduceE")),
            ("_RNvXs5_NtCsaaD0lJrWu5B_4expr6reduceE.llvm.7", Some("_RNvXs5_NtCs_4expr6reduceE")),
            ("_RNvXs6_NtCsdjD0lJrWu5B_4expr6reduceE", Some("_RNvXs6_NtCs_4expr6reduceE")),
            ("_RNv4CsesE", Some("_RNv4CsesE")),
            ("Cs1_", None),
        ] {
            assert_eq!(without_crates(name).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn anonymous_namespaces_are_one() {
        check("_ZN12_GLOBAL__N_13fooEv", "_ZN12_GLOBAL__N_13fooEv", Part::Whole);
        check("_ZN26_GLOBAL__N_a.cc_1234_5678_3fooEv", "_ZN12_GLOBAL__N_13fooEv", Part::Whole);
        check("_ZN99_GLOBAL__N_13fooEv", "_ZN99_GLOBAL__N_13fooEv", Part::Whole);
    }

    #[test]
    fn hierarchical_names_have_no_parameters() {
        for (name, want) in [
            ("_ZN2ns5Class1fEi", Some("ns::Class::f")),
            ("_ZNK2ns5Class1fEPKcd", Some("ns::Class::f")),
            ("_ZN2ns3mapIiE4findERKi.isra.0", Some("ns::map<int>::find")),
            ("main", None),
            ("_Znot mangled", None),
        ] {
            let got = hierarchical(name);
            assert_eq!(got.as_deref().map(|n| n.trim_end_matches(" const")), want, "{name}");
        }
    }

    #[test]
    fn arguments_are_erased_and_paths_are_not() {
        for (path, want) in [
            ("ns::map<int, std::less<int>>::find", "ns::map::find"),
            ("<rg::Sort as rg::Flag>::name", "<rg::Sort as rg::Flag>::name"),
            ("core::ptr::drop_in_place<fn(u8) -> u8>", "core::ptr::drop_in_place"),
            ("ns::operator<", "ns::operator<"),
            ("f::{closure#12}::g", "f::{closure}::g"),
        ] {
            assert_eq!(erased(path), want, "{path}");
        }
    }

    #[test]
    fn distance_counts_edits_up_to_its_limit() {
        assert_eq!(distance("kitten", "sitting", 3), Some(3));
        assert_eq!(distance("kitten", "sitting", 2), None);
        assert_eq!(distance("", "ab", 2), Some(2));
        assert_eq!(distance("same", "same", 0), Some(0));
    }

    #[test]
    fn names_that_unfold_exponentially_are_cut_off() {
        // Each substitution doubles the one before it.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for i in 0..30 {
            let s = if i == 0 { "S_".to_owned() } else { format!("S{}_", char::from(b'0' + (i % 10) as u8)) };
            name.push_str(&format!("St4pairI{s}{s}E"));
        }
        let _ = hierarchical(&name);
        let long = format!("_ZN{}E", "1a".repeat(100_000));
        assert_eq!(bare(&long).name, long);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_as_a_name(name in "(_Z|_R|_ZN|)[a-zA-Z0-9_.$é]{0,60}") {
            let once = bare(&name);
            let _ = hierarchical(&name);
            let _ = erased(&name);
            prop_assert!(once.name.len() <= MAX_LEN.max(name.len() * 2));
        }
    }
}

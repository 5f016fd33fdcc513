//! Functions by the names that people type: the source's, its end, or one that looks like it. By symbol they
//! are found before.

use matching::names::{distance, erased, hierarchical, in_source};
use views::{cut, fits};

/// What the source calls a symbol, if it is decorated; a stub `import@plt` keeps its ending.
pub fn source_name(symbol: &str) -> Option<String> {
    match symbol.strip_suffix(STUB) {
        Some(import) => in_source(import).map(|name| name + STUB),
        None => in_source(symbol),
    }
}

/// What the source calls a symbol, with its parameters and without; nothing, if the symbol is not decorated.
pub fn spellings(symbol: &str) -> Vec<String> {
    in_source(symbol).map_or_else(Vec::new, |name| vec![path(&name).to_owned(), name])
}

const STUB: &str = "@plt";

/// A symbol for people: what the source calls it, without parameters if they are too long, cut in the middle
/// if that is.
pub fn readable(symbol: &str) -> String {
    let Some(whole) = in_source(symbol) else { return cut(symbol) };
    if fits(&whole) {
        return whole;
    }
    let added = whole.rfind(" [.").and_then(|at| whole.get(at..)).unwrap_or_default();
    let path = hierarchical(symbol).unwrap_or_else(|| whole.clone());
    cut(&format!("{path}{added}"))
}

/// A symbol for other programs: what the source calls it, with all that belongs to it.
pub fn whole(symbol: &str) -> String {
    spelt(symbol)
}

fn spelt(symbol: &str) -> String {
    in_source(symbol).unwrap_or_else(|| symbol.to_owned())
}

/// Those that `what` names, of `all` with their names in the source: by all of it; without parameters, or
/// what stands behind them; else by its end, so that `run` is `app::run` if nothing else ends so.
pub fn called<T: Copy + PartialEq>(all: &[(T, String)], what: &str) -> Vec<T> {
    let what = without_spaces(what);
    for named in [is_all, is_called, ends_in] {
        let found: Vec<&(T, String)> = all.iter().filter(|(_, name)| named(name, &what)).collect();
        // What compilers cut out of a function does not count beside it.
        let has_whole = found.iter().any(|(_, name)| is_whole(name));
        let counts = found.into_iter().filter(|(_, name)| !has_whole || is_whole(name));
        let mut found: Vec<T> = counts.map(|(one, _)| *one).collect();
        // One may have several names.
        found.dedup();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// At most three names that look like `wanted`, the most alike first; as the source has them.
pub fn near<'a>(symbols: impl Iterator<Item = &'a str>, wanted: &str) -> Vec<String> {
    // A name that holds the wanted one is near whatever its length.
    let far = |name: &str| match name.contains(wanted) {
        true => Some(1),
        false => distance(wanted, name, 1 + wanted.len() / 3),
    };
    let mut near: Vec<(usize, usize, String)> = Vec::new();
    for symbol in symbols {
        let shown = spelt(symbol);
        let path = erased(path(&shown));
        let last = path.rsplit("::").next().unwrap_or(&path);
        if let Some(d) = [symbol, last, &*path].into_iter().filter_map(far).min() {
            near.push((d, shown.len(), shown));
        }
    }
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(.., name)| name).collect()
}

/// Neither a stub, nor with what compilers put behind a name.
fn is_whole(name: &str) -> bool {
    !name.contains(" [.") && !name.ends_with(STUB)
}

fn is_all(name: &str, what: &str) -> bool {
    without_spaces(name) == what
}

fn is_called(name: &str, what: &str) -> bool {
    without_spaces(path(name)) == what || without_spaces(to_parameters(name)) == what
}

/// Whether `what` is the end of this name's path, with or without the arguments of templates; or that and the
/// parameters.
fn ends_in(name: &str, what: &str) -> bool {
    let path = without_spaces(path(name));
    let is_end =
        |path: String| path.strip_suffix(what).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"));
    [erased(&path), path, without_spaces(to_parameters(name))].into_iter().any(is_end)
}

/// A source name to the end of its parameters.
fn to_parameters(name: &str) -> &str {
    name.rfind(')').and_then(|at| name.get(..=at)).unwrap_or_default()
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// A source name without parameters and what stands behind them, and without the type of what comes back,
/// which templates have before it.
pub fn path(name: &str) -> &str {
    if name.contains("thunk to ") {
        return name;
    }
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in name.char_indices() {
        let (before, rest) = (&name[start..at], &name[at..]);
        let last = before.rsplit("::").next().unwrap_or(before);
        match c {
            // `operator<<`, `fn() -> T`.
            '<' if matches!(last, "operator" | "operator<") => {}
            '>' if last.starts_with("operator") && depth == 0 || before.ends_with('-') => {}
            // `(anonymous namespace)` is a part of the path, as is `operator()`.
            '(' if depth == 0 && !rest.starts_with("(anonymous") && last != "operator" => return before,
            ' ' if depth == 0 && rest.starts_with(" [") => return before,
            ' ' if depth == 0 && !last.starts_with("operator") => start = at + 1,
            '<' | '{' | '(' => depth += 1,
            '>' | '}' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_without_types() {
        for (name, want) in [
            ("ns::Box::get(int) const", "ns::Box::get"),
            ("(anonymous namespace)::f(std::less<int>)", "(anonymous namespace)::f"),
            ("unsigned long ns::sum<int, (char)1>(int)", "ns::sum<int, (char)1>"),
            ("ns::F::operator()(int) const", "ns::F::operator()"),
            ("ns::operator<<(ns::Out&, int)", "ns::operator<<"),
            ("ns::P::operator->() const", "ns::P::operator->"),
            ("ns::T::operator unsigned long() const", "ns::T::operator unsigned long"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
            ("f(void (*)(int)) [.cold]", "f"),
            ("app::run [.llvm.7]", "app::run"),
            ("<rg::Sort as rg::Flag<fn(u8) -> u8>>::name", "<rg::Sort as rg::Flag<fn(u8) -> u8>>::name"),
            ("non-virtual thunk to ns::X::f()", "non-virtual thunk to ns::X::f()"),
        ] {
            assert_eq!(path(name), want, "{name}");
        }
    }

    #[test]
    fn what_is_typed_is_all_of_a_name_or_its_end() {
        let all: Vec<(usize, String)> = [
            "ns::Box::get(int) const",
            "ns::Box::get(int) const [.cold]",
            "ns::Row::get()",
            "void ns::sort<int>(int*)",
            "get()",
            "non-virtual thunk to ns::Row::get()",
        ]
        .into_iter()
        .map(str::to_owned)
        .enumerate()
        .collect();
        for (what, want) in [
            ("ns::Box::get", &[0][..]),
            ("ns::Box::get(int)", &[0]),
            ("ns :: Box::get( int )const", &[0]),
            ("ns::Box::get(int) const [.cold]", &[1]),
            ("Row::get", &[2]),
            ("Box::get(int)", &[0]),
            ("ns::sort<int>", &[3]),
            ("ns::sort", &[3]),
            ("sort", &[3]),
            ("get", &[4]),
            ("ox::get", &[]),
        ] {
            assert_eq!(called(&all, what), want, "{what}");
        }
        let rest: Vec<_> = all.into_iter().filter(|(n, _)| *n != 4).collect();
        assert_eq!(called(&rest, "get"), [0, 2]);
    }

    #[test]
    fn names_are_those_of_the_source_and_fit() {
        for (symbol, want) in [
            ("main", "main"),
            ("_ZN3app3runEi", "app::run(int)"),
            ("_ZN3app3runEi.cold", "app::run(int) [.cold]"),
            ("_ZN29_$LT$m..B$u20$as$u20$m..T$GT$1f17h6db4ecde64ecba97E", "<m::B as m::T>::f"),
            (
                "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_iESt10_Select1stIS8_ESt4lessIS5_ESaIS8_EE8_M_eraseEPSt13_Rb_tree_nodeIS8_E",
                "std::_Rb_tree<std::_…::allocator<char> > const, int> > >::_M_erase",
            ),
        ] {
            let got = readable(symbol);
            assert!(fits(&got), "{got}");
            let (start, end) = want.split_once('…').unwrap_or((want, ""));
            assert!(got.starts_with(start) && got.ends_with(&end[end.len().saturating_sub(12)..]), "{got}");
        }
    }
}

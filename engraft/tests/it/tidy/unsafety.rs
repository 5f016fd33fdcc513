//! Where code may be unsafe: where the map says.

use super::{complain, read, top};
use proc_macro2::{TokenStream, TokenTree};

#[test]
fn unsafe_code_stands_only_where_the_map_says() {
    let allowed = allowed();
    complain(|file, text| {
        if !file.contains("/src/") || allowed.iter().any(|place| is_at(file, place)) {
            return None;
        }
        let tokens: TokenStream = text.parse().unwrap_or_else(|err| panic!("{file}: {err}"));
        is_unsafe(tokens).then(|| {
            format!("{file} has unsafe code: move it to where ARCHITECTURE.md says that it may stand, or say it there")
        })
    });
    for place in &allowed {
        let path = top().join(place);
        assert!(path.exists(), "ARCHITECTURE.md says that {place} may be unsafe, but it is not there");
    }
}

/// Whether it is that file, or in that folder.
fn is_at(file: &str, place: &str) -> bool {
    file.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The places in the map's sentence `Unsafe code: …, ….`: files, or folders.
fn allowed() -> Vec<String> {
    let map = read(&top().join("ARCHITECTURE.md"));
    let (_, list) = map.split_once("Unsafe code: ").expect("ARCHITECTURE.md has a sentence `Unsafe code: …`");
    let end = list.find("`. ").or_else(|| list.find("`.\n")).expect("the sentence ends in a full stop");
    let places: Vec<String> = list[..end + 1].split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!places.is_empty(), "the list was not found");
    places
}

/// Whether the keyword is there, or assembly: in comments and strings they are no tokens of their own.
fn is_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe" || word == "global_asm",
        TokenTree::Group(group) => is_unsafe(group.stream()),
        _ => false,
    })
}

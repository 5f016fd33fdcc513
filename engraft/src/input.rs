//! What verbs are given: binaries, and the names of things in them.

use crate::out::Hinted;
use program::{FuncId, Image, Program, Va};
use std::path::Path;
use tracing::info_span;

/// Reads and analyses the binary at `path`.
pub fn program(path: &Path) -> anyhow::Result<Program> {
    let image = info_span!("load").in_scope(|| Image::load(path))?;
    Ok(info_span!("analyze").in_scope(|| Program::analyze(image)))
}

/// Reads and analyses two builds.
pub fn pair(old: &Path, new: &Path) -> anyhow::Result<(Program, Program)> {
    let (old, new) = (program(old)?, program(new)?);
    Ok((old, new))
}

/// The function that `what` names: by symbol, `fn3`, or any address in it.
///
/// # Errors
/// If there is none; the hint has the names that look most like it.
pub fn function(program: &Program, what: &str) -> anyhow::Result<FuncId> {
    let named = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| **n == *what));
    if let Some(id) = named.or_else(|| program.func_ids().find(|f| f.to_string() == what)) {
        return Ok(id);
    }
    if let Some(at) = address(what) {
        let holds = |f: &FuncId| program.function(*f).ranges.iter().any(|r| r.contains(&at));
        return program.function_at(at).or_else(|| program.func_ids().find(holds)).ok_or_else(|| {
            let before = program.functions.iter().rev().find(|f| f.entry <= at);
            let hint = match before {
                Some(f) => format!("the last one before it is {} at {}", f.name(), f.entry),
                None => "`engraft show BINARY functions` lists them".to_owned(),
            };
            Hinted::new(format!("no function of {} holds {at}", program.image.name), hint).into()
        });
    }
    let near = near_names(program, what);
    let hint = match near.as_slice() {
        [] => "`engraft show BINARY functions` lists them; an address such as 0x401136 does too".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Err(Hinted::new(format!("no function of {} is called {what}", program.image.name), hint).into())
}

/// `0x401136`, or `fn_0x401136` as functions without a name are called.
fn address(text: &str) -> Option<Va> {
    let hex = text.strip_prefix("fn_").unwrap_or(text).strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok().map(Va)
}

/// At most three names that look like `wanted`, the most alike first.
fn near_names<'a>(program: &'a Program, wanted: &str) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = program
        .functions
        .iter()
        .flat_map(|f| f.names.iter())
        .map(|name| (distance(wanted, name, name.contains(wanted)), &**name))
        .filter(|(d, _)| *d <= 1 + wanted.len() / 3)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Letters to put in, take out or change; a name that holds the wanted one is near whatever its length.
fn distance(a: &str, b: &str, holds: bool) -> usize {
    if holds {
        return 1;
    }
    if a.len().abs_diff(b.len()) > 1 + a.len() / 3 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let kept = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = kept.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, want: usize) {
        assert_eq!(distance(a, b, false), want, "{a} to {b}");
    }

    #[test]
    fn distance_counts_letters() {
        check("luaV_execute", "luaV_execute", 0);
        check("luaV_exceute", "luaV_execute", 2);
        check("main", "mian", 2);
        check("main", "mains", 1);
        check("", "a", 1);
    }

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(address("0x401136"), Some(Va(0x40_1136)));
        assert_eq!(address("fn_0x10"), Some(Va(0x10)));
        assert_eq!(address("401136"), None);
        assert_eq!(address("0xmain"), None);
    }
}

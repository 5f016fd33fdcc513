//! What the text of a place stands for in a module.

use program::{FuncId, Program, Va};
use std::collections::BTreeSet;

/// The instructions of `program` that `place` stands for: an address, if it is the executable or its name
/// stands in front (`MODULE!ADDRESS`); a function, or so many bytes behind its start, in each that bears the
/// name (`FUNCTION+OFFSET`).
pub(super) fn of(
    program: &Program,
    place: &str,
    is_executable: bool,
    functions: &dyn Fn(&str) -> BTreeSet<FuncId>,
) -> Vec<Va> {
    let file = program.image.name.rsplit('/').next().unwrap_or_default();
    let place = match place.split_once('!') {
        Some((module, _)) if module != file && module != program.image.name => return Vec::new(),
        Some((_, place)) => Some((place, true)),
        None => Some((place, is_executable)),
    };
    let Some((place, has_addresses)) = place else { return Vec::new() };
    if let Some(at) = hexadecimal(place) {
        return if has_addresses { vec![Va(at)] } else { Vec::new() };
    }
    let (name, offset) = place
        .rsplit_once('+')
        .and_then(|(name, by)| Some((name, hexadecimal(by).or_else(|| by.parse().ok())?)))
        .unwrap_or((place, 0));
    functions(name).into_iter().map(|f| program.function(f).entry.plus(offset)).collect()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

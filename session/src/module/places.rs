//! What the text of a place stands for in a module.

use program::{BlockId, FuncId, Lines, LoopId, Loops, Program, Va};
use std::collections::BTreeSet;
use std::path::Path;

/// The instructions of `program` that `place` stands for: an address, if it is the executable or its name
/// stands in front (`MODULE!ADDRESS`); a function, or so many bytes behind its start, in each that bears the
/// name (`FUNCTION+OFFSET`).
pub(super) fn of(
    program: &Program,
    place: &str,
    is_executable: bool,
    functions: &dyn Fn(&str) -> BTreeSet<FuncId>,
) -> Vec<Va> {
    let Some((place, has_addresses)) = in_module(program, place, is_executable) else { return Vec::new() };
    if let Some(at) = hexadecimal(place) {
        return if has_addresses { vec![Va(at)] } else { Vec::new() };
    }
    let (name, offset) = place
        .rsplit_once('+')
        .and_then(|(name, by)| Some((name, hexadecimal(by).or_else(|| by.parse().ok())?)))
        .unwrap_or((place, 0));
    functions(name).into_iter().map(|f| program.function(f).entry.plus(offset)).collect()
}

/// The functions of `program` that `text` stands for: the one that starts at an address, if it is the
/// executable or its name stands in front (`MODULE!ADDRESS`); all that bear a name, of any module or of this
/// one (`MODULE!NAME`).
pub(super) fn functions(
    program: &Program,
    text: &str,
    is_executable: bool,
    functions: &dyn Fn(&str) -> BTreeSet<FuncId>,
) -> BTreeSet<FuncId> {
    let Some((text, has_addresses)) = in_module(program, text, is_executable) else { return BTreeSet::new() };
    match hexadecimal(text) {
        Some(at) if has_addresses => {
            let at = Va(at);
            program.function_at(at).filter(|f| program.function(*f).entry == at).into_iter().collect()
        }
        Some(_) => BTreeSet::new(),
        None => functions(text),
    }
}

/// The loops of `program` that `text` stands for, by their first headers: the innermost one around an
/// address; all of the functions that bear a name, or of these the one whose header is the Nth in the order
/// of addresses, from 1 (`FUNCTION#N`); those at a line of these, or of a source file (`FUNCTION:LINE`,
/// `FILE:LINE`).
pub(super) fn loops(
    program: &Program,
    text: &str,
    is_executable: bool,
    functions: &dyn Fn(&str) -> BTreeSet<FuncId>,
    lines: Option<&Lines>,
) -> BTreeSet<BlockId> {
    let Some((text, has_addresses)) = in_module(program, text, is_executable) else { return BTreeSet::new() };
    if let Some(at) = hexadecimal(text) {
        let block = program.block_at(Va(at)).filter(|_| has_addresses);
        return block.and_then(|block| innermost(program, block)).into_iter().collect();
    }
    let nth =
        text.rsplit_once('#').and_then(|(name, n)| Some((name, n.parse::<usize>().ok()?.checked_sub(1)?)));
    if let Some((name, n)) = nth {
        let of = |f: FuncId| {
            let loops = Loops::compute(program, f);
            let mut headers: Vec<BlockId> = loops.ids().map(|id| loops.header(id)).collect();
            headers.sort_by_key(|header| program.block(*header).start);
            headers.get(n).copied()
        };
        return functions(name).into_iter().filter_map(of).collect();
    }
    let line = text.rsplit_once(':').and_then(|(name, line)| Some((name, line.parse::<u32>().ok()?)));
    let Some((name, line)) = line else {
        let of = |f: FuncId| {
            let loops = Loops::compute(program, f);
            loops.ids().map(|id| loops.header(id)).collect::<Vec<_>>()
        };
        return functions(text).into_iter().flat_map(of).collect();
    };
    let Some(lines) = lines else { return BTreeSet::new() };
    let named = functions(name);
    let is_file = named.is_empty();
    let all = if is_file { program.func_ids().collect() } else { named };
    let is_line = |at: Va| {
        lines.at(at).is_some_and(|(file, n)| n == line && (!is_file || Path::new(file).ends_with(name)))
    };
    all.into_iter().flat_map(|f| at_line(program, f, &is_line)).collect()
}

/// The innermost loop around `block`, by its first header.
fn innermost(program: &Program, block: BlockId) -> Option<BlockId> {
    let loops = Loops::compute(program, program.block(block).func);
    Some(loops.header(loops.innermost(block)?))
}

/// The loops of a function in which instructions are that `is_line` holds for: of those around others, the
/// inner ones. What prepares an inner loop stands in the outer one, but has the line of the inner.
fn at_line(program: &Program, func: FuncId, is_line: &dyn Fn(Va) -> bool) -> Vec<BlockId> {
    let loops = Loops::compute(program, func);
    let has = |block: &BlockId| program.insns(*block).any(|insn| is_line(insn.at()));
    let blocks = program.function(func).block_ids().filter(|b| loops.innermost(*b).is_some());
    let found: BTreeSet<LoopId> = blocks.filter(has).filter_map(|b| loops.innermost(b)).collect();
    let is_around = |outer: LoopId| {
        found.iter().any(|inner| *inner != outer && loops.contains(outer, loops.header(*inner)))
    };
    found.iter().filter(|id| !is_around(**id)).map(|id| loops.header(*id)).collect()
}

/// What stands behind the name of the module, if that is `program`'s or there is none; and whether an address
/// there is one of it.
fn in_module<'t>(program: &Program, text: &'t str, is_executable: bool) -> Option<(&'t str, bool)> {
    let file = program.image.name.rsplit('/').next().unwrap_or_default();
    match text.split_once('!') {
        Some((module, _)) if module != file && module != program.image.name => None,
        Some((_, text)) => Some((text, true)),
        None => Some((text, is_executable)),
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

//! What is searched: a path of blocks within one function, calls left out.
//!
//! ```text
//! path = FUNCTION ":" item+
//! item = call* block ("|" block)* "+"?     one of these blocks; with + once or more; FILE:LINE or
//!                                          FILE:LINE..LINE stands for all of these lines
//!      | ".."                              any blocks of the activation, or none
//! call = "{" path "}"                      between the block before and this one, a call in which the path
//!                                          occurs
//! ```
//! FUNCTION is a name, `#ID` as the trace numbers it, or an address; a block is its number, or an address, or
//! `entry` (block 0), or `exit` (any that control may leave the function in). An occurrence is named by its
//! last block, so a path that ends in `..` says no more than one that does not, and is refused.

use crate::file::names::{Function, Names};
use crate::ids::{BlockId, FuncId};
use crate::symbol::Symbol;
use std::ops::RangeInclusive;

/// A path to search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The function, as the trace numbers it.
    pub func: FuncId,
    /// Its steps, at least one.
    pub steps: Vec<PathStep>,
}

/// One step of a path.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathStep {
    /// Any of these blocks.
    pub blocks: Vec<BlockId>,
    /// Once or more.
    pub repeats: bool,
    /// Other blocks may come before it.
    pub after_gap: bool,
    /// Calls that are made, in this order, between the block before it (or the entry) and its own; paths that
    /// occur in them. Where it repeats, before the first time.
    pub calls: Vec<Path>,
}

/// Why something is no path of this trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct NotAPath {
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub hint: String,
}

/// Steps that a path can have.
pub const MOST_STEPS: usize = 120;

/// Calls that may stand in calls.
const DEEPEST: usize = 16;

fn wrong<T>(what: String, hint: impl Into<String>) -> Result<T, NotAPath> {
    Err(NotAPath { what, hint: hint.into() })
}

impl Path {
    /// A plain path: these blocks, one after the other.
    pub fn of(func: FuncId, blocks: &[BlockId]) -> Self {
        let step = |&block: &BlockId| PathStep { blocks: vec![block], ..PathStep::default() };
        Self { func, steps: blocks.iter().map(step).collect() }
    }

    /// The blocks of a path that has no alternatives, gaps, or repetitions.
    pub fn plain(&self) -> Option<Vec<BlockId>> {
        let one = |step: &PathStep| match step.blocks.as_slice() {
            [block] if !step.repeats && !step.after_gap && step.calls.is_empty() => Some(*block),
            _ => None,
        };
        self.steps.iter().map(one).collect()
    }

    /// Whether it goes through calls.
    pub fn has_calls(&self) -> bool {
        self.steps.iter().any(|step| !step.calls.is_empty())
    }

    /// Reads a path. `names` may be empty: then there are numbers alone.
    ///
    /// # Errors
    /// [`NotAPath`] says what is wrong, and names the nearest valid thing.
    pub fn parse(text: &str, names: &Names) -> Result<Self, NotAPath> {
        let lines = |func: FuncId, block: BlockId| {
            let block = names.functions.get(&func).and_then(|f| f.blocks.get(&block));
            block.filter(|b| b.line > 0).map(|b| (b.file.clone(), b.line)).into_iter().collect()
        };
        let (find, called) = (|text: &str| find_function(text, names), |func| names.function(func));
        Self::parse_with(
            text,
            &Words {
                names,
                find: &find,
                called: &called,
                exits: &|_| Vec::new(),
                stays: &|_| None,
                lines: &lines,
            },
        )
    }

    /// The same, of words that somebody else understands.
    ///
    /// # Errors
    /// As [`Path::parse`].
    pub fn parse_with(text: &str, words: &Words<'_>) -> Result<Self, NotAPath> {
        parse(text, words, 0)
    }
}

/// What the words of a path mean.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// The functions and blocks that there are.
    pub names: &'a Names,
    /// The function that a text names.
    pub find: &'a dyn Fn(&str) -> Result<FuncId, NotAPath>,
    /// What a function is called, in what is said of it.
    pub called: &'a dyn Fn(FuncId) -> String,
    /// The blocks that control may leave a function in; none, if they are not known.
    pub exits: &'a dyn Fn(FuncId) -> Vec<BlockId>,
    /// Why a function was not recorded, so that its blocks are not known; `None`: that is not known, either.
    pub stays: &'a dyn Fn(FuncId) -> Option<String>,
    /// The source lines of a block of a function.
    pub lines: &'a dyn Fn(FuncId, BlockId) -> Vec<(String, u32)>,
}

fn parse(text: &str, words: &Words<'_>, depth: usize) -> Result<Path, NotAPath> {
    const FORM: &str = "a path is 'FUNCTION: BLOCK BLOCK …', as in 'main: 0 1 2' or '#5: 3 .. 7|8'";
    if depth > DEEPEST {
        return wrong("calls stand in calls too often".to_owned(), format!("at most {DEEPEST} deep"));
    }
    let Some((function, blocks)) = split(text) else {
        return wrong(format!("'{text}' has no ':' behind the function"), FORM);
    };
    let func = (words.find)(function.trim())?;
    if words.names.functions.get(&func).is_some_and(|f| f.blocks.is_empty()) {
        let why = (words.stays)(func).map_or_else(String::new, |why| format!(": {why}"));
        return wrong(
            format!("{} was not recorded{why}", (words.called)(func)),
            "functions that cannot be moved are not (`engraft instrument BINARY --null -o COPY` lists them), nor those that `trace --functions` does not name",
        );
    }
    let (mut steps, mut calls): (Vec<PathStep>, Vec<Path>) = (Vec::new(), Vec::new());
    let mut after_gap = false;
    for item in items(blocks)? {
        if let Some(call) = item.strip_prefix('{').and_then(|item| item.strip_suffix('}')) {
            calls.push(parse(call, words, depth + 1)?);
            continue;
        }
        if item == ".." || item == "*" {
            if !calls.is_empty() {
                return wrong(
                    format!("'{text}' has '..' behind a call"),
                    "a call stands right before a block: '1 .. {g: 0} 2'",
                );
            }
            after_gap = !steps.is_empty();
            continue;
        }
        let (item, repeats) = item.strip_suffix('+').map_or((item, false), |item| (item, true));
        let mut blocks = Vec::new();
        for word in item.split('|') {
            if word.is_empty() {
                let what = format!("'{text}' has '|' or '+' without a block beside it");
                return wrong(what, "blocks and what joins them stand without space: '1|2', '3+'");
            }
            match source_lines(word) {
                Some((file, range)) => blocks.extend(find_lines(word, file, range, func, words)?),
                None if word == "exit" => blocks.extend(exits(func, words)?),
                None => blocks.push(find_block(word, func, words)?),
            }
        }
        let (after_gap, calls) = (std::mem::take(&mut after_gap), std::mem::take(&mut calls));
        steps.push(PathStep { blocks, repeats, after_gap, calls });
    }
    if !calls.is_empty() {
        return wrong(
            format!("'{text}' ends in a call"),
            "an occurrence ends with a block: say which is executed behind the call",
        );
    }
    if steps.is_empty() {
        return wrong(format!("'{text}' has no block behind the ':'"), FORM);
    }
    if after_gap {
        return wrong(
            format!("'{text}' ends in '..'"),
            "an occurrence ends with a block: leave the '..' out",
        );
    }
    let n = steps.iter().map(|step| step.calls.len() + 1).sum::<usize>();
    if n > MOST_STEPS {
        return wrong(format!("the path has {n} steps"), format!("at most {MOST_STEPS} are searched"));
    }
    Ok(Path { func, steps })
}

/// How deep braces stand in braces behind each character; a `}` alone counts for nothing.
fn depths(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    text.char_indices().scan(0_usize, |depth, (at, c)| {
        match c {
            '{' => *depth += 1,
            '}' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((at, c, *depth))
    })
}

/// Words, and what stands in braces.
fn items(text: &str) -> Result<Vec<&str>, NotAPath> {
    let (mut items, mut start, mut last) = (Vec::new(), 0, 0);
    for (at, c, depth) in depths(text) {
        let (opens, closes) = (c == '{' && depth == 1, c == '}' && depth == 0);
        if opens || closes || c.is_whitespace() && depth == 0 {
            let end = if closes { at + 1 } else { at };
            items.extend(text.get(start..end).filter(|item| !item.trim().is_empty()).map(str::trim));
            start = end;
        }
        last = depth;
    }
    items.extend(text.get(start..).filter(|item| !item.trim().is_empty()).map(str::trim));
    if last > 0 {
        return wrong(
            format!("'{}' has a '{{' without its '}}'", text.trim()),
            "a call is '{FUNCTION: BLOCK …}'",
        );
    }
    Ok(items)
}

/// `FILE:LINE` or `FILE:LINE..LINE`: the file, and the lines.
fn source_lines(word: &str) -> Option<(&str, RangeInclusive<u32>)> {
    let (file, lines) = word.rsplit_once(':')?;
    let (first, last) = lines.split_once("..").unwrap_or((lines, lines));
    let is_file = file.contains(['.', '/']) && !file.ends_with(':');
    (first.parse().ok().zip(last.parse().ok())).filter(|_| is_file).map(|(first, last)| (file, first..=last))
}

/// The blocks of a function that are of these lines.
fn find_lines(
    word: &str,
    file: &str,
    range: RangeInclusive<u32>,
    func: FuncId,
    words: &Words<'_>,
) -> Result<Vec<BlockId>, NotAPath> {
    let of = words.names.functions.get(&func).map(|f| f.blocks.keys().copied().collect::<Vec<_>>());
    let of_blocks: Vec<(BlockId, Vec<(String, u32)>)> =
        of.unwrap_or_default().into_iter().map(|block| (block, (words.lines)(func, block))).collect();
    let is_file = |known: &str| {
        known.strip_suffix(file).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    let fits = |line: &(String, u32)| range.contains(&line.1) && is_file(&line.0);
    let found: Vec<BlockId> =
        of_blocks.iter().filter(|(_, lines)| lines.iter().any(fits)).map(|(block, _)| *block).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let name = (words.called)(func);
    let all = || of_blocks.iter().flat_map(|(_, lines)| lines);
    let far = |line: u32| line.abs_diff(*range.start()).min(line.abs_diff(*range.end()));
    let nearest = all().filter(|line| is_file(&line.0)).min_by_key(|line| far(line.1));
    let hint = match (nearest, all().next()) {
        (Some((_, line)), _) => format!("the nearest line of it with code is {file}:{line}"),
        (None, Some((other, line))) => {
            format!("it is of {}:{line}", other.rsplit('/').next().unwrap_or(other))
        }
        (None, None) => "the lines of its code are not known: compile it with -g".to_owned(),
    };
    wrong(format!("no block of {name} is of {word}"), hint)
}

/// The function of a path, and its blocks: at the last colon that neither belongs to a `::` nor stands in
/// braces, nor before a line of a source file.
pub fn split(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let is_colon = |i: usize| bytes.get(i) == Some(&b':');
    let is_alone = |i: usize| is_colon(i) && !is_colon(i + 1) && (i == 0 || !is_colon(i - 1));
    let is_line = |at: usize| {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | '|');
        let start = text.get(..at)?.rfind(is_end).map_or(0, |before| before + 1);
        let rest = text.get(start..)?;
        let word = rest.get(..rest.find(is_end).unwrap_or(rest.len()))?.trim_end_matches('+');
        let (file, line) = word.rsplit_once(':')?;
        let is_one = start > 0 && file.contains(['.', '/']) && line.starts_with(|c: char| c.is_ascii_digit());
        is_one.then_some(())
    };
    let colons = depths(text).filter(|&(at, _, depth)| depth == 0 && is_alone(at));
    let (at, ..) = colons.filter(|&(at, ..)| is_line(at).is_none()).last()?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The function that a text names: a name, `#ID`, or an address.
///
/// # Errors
/// [`NotAPath`] says what is wrong, and names the nearest valid thing.
pub fn find_function(text: &str, names: &Names) -> Result<FuncId, NotAPath> {
    if let Some(id) = text.strip_prefix('#') {
        return match id.parse().ok().filter(|&id: &u32| id < Symbol::LIMIT).map(FuncId) {
            Some(id) if names.functions.is_empty() || names.functions.contains_key(&id) => Ok(id),
            Some(id) => {
                let last = names.functions.keys().next_back().map_or(0, |last| last.0);
                wrong(
                    format!("there is no function #{}", id.0),
                    format!("they are numbered from 0 to {last}"),
                )
            }
            None => wrong(format!("{text} is no number of a function"), "functions are numbered #0, #1, …"),
        };
    }
    if names.functions.is_empty() {
        return wrong(
            format!("the trace has no names, so '{text}' cannot be found"),
            "say '#ID' as the trace numbers it, or give the names when it is converted: `convert --meta NAME.meta`",
        );
    }
    if let Some(at) = address(text) {
        let has = |f: &&Function| f.blocks.values().any(|b| b.at == at);
        return match names.functions.iter().find(|(_, f)| has(f)) {
            Some((&id, _)) => Ok(id),
            None => {
                let before = names
                    .functions
                    .values()
                    .filter_map(|f| Some((f.blocks.values().map(|b| b.at).min()?, f)));
                let nearest = before.min_by_key(|(start, _)| start.abs_diff(at));
                let hint = nearest.map_or_else(String::new, |(start, f)| {
                    format!("the nearest function is {} at {start:#x}", f.name)
                });
                wrong(format!("no function has a block at {at:#x}"), hint)
            }
        };
    }
    let called: Vec<FuncId> =
        names.functions.iter().filter(|(_, f)| f.name == text).map(|(&id, _)| id).collect();
    match called.as_slice() {
        [one] => Ok(*one),
        [] => {
            let nearest =
                names.functions.values().map(|f| f.name.as_str()).min_by_key(|name| distance(name, text));
            wrong(
                format!("there is no function '{text}'"),
                format!("the nearest name is '{}'", nearest.unwrap_or("")),
            )
        }
        several => {
            let ids: Vec<_> = several.iter().take(8).map(|id| format!("#{}", id.0)).collect();
            wrong(
                format!("{} functions are called '{text}'", several.len()),
                format!("say which: {}", ids.join(", ")),
            )
        }
    }
}

/// The blocks that control may leave a function in.
fn exits(func: FuncId, words: &Words<'_>) -> Result<Vec<BlockId>, NotAPath> {
    let exits = (words.exits)(func);
    if exits.is_empty() {
        let what = format!("in which blocks control leaves {} is not known", (words.called)(func));
        return wrong(what, "say the numbers of the blocks");
    }
    Ok(exits)
}

fn find_block(text: &str, func: FuncId, words: &Words<'_>) -> Result<BlockId, NotAPath> {
    let known = words.names.functions.get(&func).map(|f| ((words.called)(func), &f.blocks));
    if let Some(at) = address(text) {
        let Some((name, blocks)) = known else {
            return wrong(
                format!("the trace has no addresses, so {text} cannot be found"),
                "say the block's number",
            );
        };
        return match blocks.iter().find(|(_, b)| b.at == at) {
            Some((&number, _)) => Ok(number),
            None => {
                let nearest = blocks.iter().min_by_key(|(_, b)| b.at.abs_diff(at));
                let hint = nearest.map_or_else(String::new, |(n, b)| {
                    format!("the nearest is block {} at {:#x}", n.0, b.at)
                });
                wrong(format!("no block of {name} starts at {at:#x}"), hint)
            }
        };
    }
    let text = if text == "entry" { "0" } else { text };
    let Some(number) = text.parse().ok().filter(|&n: &u32| n < Symbol::LIMIT).map(BlockId) else {
        return wrong(
            format!("'{text}' is no block"),
            "a block is its number in the function, its address (0x…), entry, exit, or FILE:LINE or FILE:LINE..LINE",
        );
    };
    match known {
        Some((name, blocks)) if !blocks.contains_key(&number) => {
            let nearest = blocks.keys().min_by_key(|n| n.0.abs_diff(number.0)).map_or(0, |n| n.0);
            wrong(format!("{name} has no block {}", number.0), format!("the nearest is block {nearest}"))
        }
        _ => Ok(number),
    }
}

/// Levenshtein's distance, of the first 64 characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let text = "3 0 0x10 std::sort a.c:1\n3 4 0x18 std::sort a.c:2\n5 0 0x20 main a.c:3\n6 0 0x30 twin a.c:3\n7 0 0x40 twin a.c:3\n";
        Names::parse(text).expect("it is right")
    }

    #[track_caller]
    fn check(text: &str, expect: Result<(u32, &[u32]), &str>) {
        let got = Path::parse(text, &names());
        let got = got.as_ref().map(|path| (path.func, path.plain().expect("it is plain")));
        match (got, expect) {
            (Ok((func, blocks)), Ok(want)) => {
                let blocks: Vec<u32> = blocks.iter().map(|block| block.0).collect();
                assert_eq!((func.0, blocks.as_slice()), want, "{text}");
            }
            (Err(err), Err(want)) => assert_eq!(format!("{}; {}", err.what, err.hint), want, "{text}"),
            (got, want) => panic!("{text}: {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn functions_and_blocks_go_by_name_number_and_address() {
        check("std::sort: 0 4", Ok((3, &[0, 4])));
        check("#3:4", Ok((3, &[4])));
        check("0x18: 0x18 0", Ok((3, &[4, 0])));
    }

    #[test]
    fn errors_name_the_nearest_thing() {
        check("maim: 0", Err("there is no function 'maim'; the nearest name is 'main'"));
        check("std::sort: 0 9", Err("std::sort has no block 9; the nearest is block 4"));
        check("main: 0x24", Err("no block of main starts at 0x24; the nearest is block 0 at 0x20"));
        check("0x3f: 0", Err("no function has a block at 0x3f; the nearest function is twin at 0x40"));
        check("twin: 0", Err("2 functions are called 'twin'; say which: #6, #7"));
        check(
            "main: 0 ..",
            Err("'main: 0 ..' ends in '..'; an occurrence ends with a block: leave the '..' out"),
        );
        check("#9: 0", Err("there is no function #9; they are numbered from 0 to 7"));
    }

    #[test]
    fn source_lines_stand_for_their_blocks() {
        check("std::sort: a.c:1 a.c:2", Ok((3, &[0, 4])));
        check("std::sort: a.c:2", Ok((3, &[4])));
        let path = Path::parse("std::sort: a.c:1..9+ 0|a.c:2", &names()).expect("it is right");
        let first = PathStep { blocks: vec![BlockId(0), BlockId(4)], repeats: true, ..PathStep::default() };
        assert_eq!(
            path.steps,
            [first, PathStep { blocks: vec![BlockId(0), BlockId(4)], ..PathStep::default() }]
        );
        check("main: a.c:7", Err("no block of main is of a.c:7; the nearest line of it with code is a.c:3"));
        check("main: b.c:3", Err("no block of main is of b.c:3; it is of a.c:3"));
        check(
            "main: c.c:3x",
            Err(
                "'c.c:3x' is no block; a block is its number in the function, its address (0x…), entry, exit, or FILE:LINE or FILE:LINE..LINE",
            ),
        );
        let two =
            |_: FuncId, block: BlockId| vec![("/x/b.c".to_owned(), 5), ("/x/b.c".to_owned(), 6 + block.0)];
        let names = names();
        let (find, called) = (|text: &str| find_function(text, &names), |func| names.function(func));
        let words = Words {
            names: &names,
            find: &find,
            called: &called,
            exits: &|_| vec![BlockId(4)],
            stays: &|_| None,
            lines: &two,
        };
        let of = |text: &str| Path::parse_with(text, &words).map(|p| p.steps[0].blocks.clone());
        assert_eq!(of("std::sort: b.c:10"), Ok(vec![BlockId(4)]));
        assert_eq!(of("std::sort: x/b.c:5"), Ok(vec![BlockId(0), BlockId(4)]));
        assert!(of("std::sort: y/b.c:5").is_err());
    }

    #[test]
    fn steps_have_alternatives_gaps_and_repetitions() {
        let path = Path::parse("std::sort: .. 0|4+ .. 4", &names()).expect("it is right");
        let first = PathStep { blocks: vec![BlockId(0), BlockId(4)], repeats: true, ..PathStep::default() };
        assert_eq!(
            path.steps,
            [first, PathStep { blocks: vec![BlockId(4)], after_gap: true, ..PathStep::default() }]
        );
        assert_eq!(path.plain(), None);
    }

    #[test]
    fn calls_stand_before_blocks_and_in_each_other() {
        let path = Path::parse("std::sort: 0{main: 0 {#3:4 0} 0}{#7: 0} 4", &names()).expect("it is right");
        let mut outer = Path::of(FuncId(5), &[0, 0].map(BlockId));
        outer.steps[1].calls = vec![Path::of(FuncId(3), &[4, 0].map(BlockId))];
        let mut want = Path::of(FuncId(3), &[0, 4].map(BlockId));
        want.steps[1].calls = vec![outer, Path::of(FuncId(7), &[0].map(BlockId))];
        assert_eq!((path.has_calls(), path.plain()), (true, None));
        assert_eq!(path, want);
        let says = |text: &str| Path::parse(text, &names()).expect_err("it is wrong");
        assert_eq!(says("main: 0 {maim: 0} 0").hint, "the nearest name is 'main'");
        assert_eq!(says("main: 0 {std::sort: 7} 0").hint, "the nearest is block 4");
        assert_eq!(says("main: 0 {main: 0}").what, "'main: 0 {main: 0}' ends in a call");
        assert_eq!(says("main: 0 {main: 0 0").what, "'0 {main: 0 0' has a '{' without its '}'");
        assert_eq!(
            says("main: 0 {main: 0} .. 0").hint,
            "a call stands right before a block: '1 .. {g: 0} 2'"
        );
        assert_eq!(says("main: 0 } 0").what, "'}' is no block");
        assert_eq!(says("main: 0|").what, "'main: 0|' has '|' or '+' without a block beside it");
        assert_eq!(says("main: 0 +").what, "'main: 0 +' has '|' or '+' without a block beside it");
        let deep = "main: {".repeat(20) + "main: 0" + &"} 0".repeat(20);
        assert_eq!(says(&deep).what, "calls stand in calls too often");
    }

    #[test]
    fn braces_in_names_are_no_calls() {
        let names = Names::parse("0 1 0x10 f::{closure#0} a.rs:1\n").expect("it is right");
        assert_eq!(
            Path::parse("f::{closure#0}: 1 {f::{closure#0}: 1} 1", &names).map(|p| p.steps.len()),
            Ok(2)
        );
    }
}

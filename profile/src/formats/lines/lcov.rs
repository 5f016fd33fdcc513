//! lcov's tracefile, `.info`: executions of lines, for genhtml and editors.
//!
//! ```text
//! TN:                       name of the test, empty
//! SF:/src/a.c               a source file; its records up to end_of_record:
//! FN:12,main                a function and its first line
//! FNDA:1,main               its executions
//! FNF:2  FNH:1              functions found and hit
//! BRDA:13,0,1,7             of branch 0 of a line, how often it went way 1; `-` if it never ran
//! BRF:2  BRH:2              ways found and taken
//! DA:13,1                   a line and its executions
//! LF:9   LH:7               lines found and hit
//! end_of_record
//! ```
//! Lines of code that has no count have no record: unknown is not zero. What a line's count is:
//! `line_counts`.
//!
//! Source: geninfo(1), "FILES", of lcov 1.16.

use crate::counts::{Exactness, ImageRef, Lost, Profile};
use crate::formats::lines::line_counts::LineCounts;
use crate::formats::lines::source::BlockSource;
use crate::losses::Losses;
use crate::vocabulary::{Format, ReadError, Written};
use program::{Frame, Lines, Program};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.next().is_some_and(|l| l.starts_with("TN:") || l.starts_with("SF:"))
}

fn innermost(frames: &[Frame]) -> Option<(&str, u32)> {
    let frame = frames.first()?;
    Some((frame.file.as_deref()?, frame.line.filter(|l| *l > 0)?))
}

/// Where a function starts, by its first block: of two functions of one name, each has its own file.
fn first_line(entry: &BlockSource) -> Option<(&str, u32)> {
    let frame = entry.insns.first()?.last()?;
    Some((frame.file.as_deref()?, frame.line?))
}

/// Writes executions of lines, functions and branches. `None` without line information.
pub fn write(profile: &Profile, program: &Program) -> Option<Written> {
    let lines = Lines::load(&program.image)?;
    let mut lost = Losses::default();
    let counts = LineCounts::of(profile, program, &lines, &mut lost);
    let mut text = String::from("TN:\n");
    for (file, records) in &counts.files {
        let _ = writeln!(text, "SF:{file}");
        for (name, (line, _)) in &records.functions {
            let _ = writeln!(text, "FN:{line},{name}");
        }
        for (name, (_, n)) in &records.functions {
            let _ = writeln!(text, "FNDA:{n},{name}");
        }
        let hit = records.functions.values().filter(|(_, n)| *n > 0).count();
        let _ = writeln!(text, "FNF:{}\nFNH:{hit}", records.functions.len());
        let (mut found, mut hit) = (0, 0);
        for (line, branches) in &records.branches {
            for (branch, ways) in branches.iter().enumerate() {
                for (way, n) in ways.iter().enumerate() {
                    let n = n.map_or_else(|| "-".to_owned(), |n| n.to_string());
                    let _ = writeln!(text, "BRDA:{line},{branch},{way},{n}");
                }
                found += ways.len();
                hit += ways.iter().filter(|n| n.is_some_and(|n| n > 0)).count();
            }
        }
        if found > 0 {
            let _ = writeln!(text, "BRF:{found}\nBRH:{hit}");
        }
        for (line, n) in &records.lines {
            let _ = writeln!(text, "DA:{line},{n}");
        }
        let hit = records.lines.values().filter(|n| **n > 0).count();
        let _ = writeln!(text, "LF:{}\nLH:{hit}\nend_of_record", records.lines.len());
    }
    Some(Written {
        bytes: text.into_bytes(),
        n_functions: counts.n_functions,
        count: counts.count,
        lost: lost.into_list(),
    })
}

/// Reads executions of lines back onto blocks: a block ran as often as the line of it that ran least.
///
/// # Errors
/// [`ReadError::BadLine`] for a line that is not as described above, [`ReadError::NoLines`] if the program
/// has no lines.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let lines = Lines::load(&program.image).ok_or(ReadError::NoLines { format: Format::Lcov })?;
    let text = String::from_utf8_lossy(bytes);
    let mut counts: HashMap<&str, HashMap<u32, u64>> = HashMap::new();
    let mut executed: HashMap<(&str, &str), u64> = HashMap::new();
    let mut file = "";
    for (i, line) in text.lines().map(str::trim).enumerate() {
        let bad = || ReadError::BadLine { format: Format::Lcov, line: i + 1, what: format!("{line:?}") };
        match line.split_once(':') {
            Some(("SF", name)) => file = name,
            Some(("DA", rest)) => {
                let mut fields = rest.split(',');
                let number = fields.next().and_then(|f| f.parse().ok()).ok_or_else(bad)?;
                let n: u64 = fields.next().and_then(|f| f.parse().ok()).ok_or_else(bad)?;
                let sum = counts.entry(file).or_default().entry(number).or_insert(0);
                *sum = sum.saturating_add(n);
            }
            Some(("FNDA", rest)) => {
                let (n, name) = rest.split_once(',').ok_or_else(bad)?;
                executed.insert((file, name), n.parse().map_err(|_| bad())?);
            }
            Some(("TN" | "FN" | "FNF" | "FNH" | "LF" | "LH" | "BRDA" | "BRF" | "BRH" | "VER", _)) => {}
            None if line.is_empty() || line == "end_of_record" || line.starts_with('#') => {}
            _ => return Err(bad()),
        }
    }
    let mut profile =
        Profile { image: ImageRef::of(&program.image), exactness: Exactness::Inferred, ..Profile::default() };
    for func in program.func_ids() {
        let function = program.function(func);
        for id in function.block_ids() {
            let source = BlockSource::of(program, Some(&lines), id);
            if program.block(id).start == function.entry
                && let Some((file, _)) = first_line(&source)
                && let Some(&n) = executed.get(&(file, function.name().as_str()))
            {
                profile.entries.insert(function.entry, n);
            }
            // A line that the file does not have did not run as code with counts: nor did the block. That of
            // a brace at the end, where the frame is taken down, nobody lists.
            let of_line = |(file, line): (&str, u32)| counts.get(file)?.get(&line).copied();
            let insns = program.insns(id).zip(&source.insns).filter(|(insn, _)| !insn.takes_frame_down());
            let known: Option<Vec<u64>> =
                insns.filter_map(|(_, frames)| innermost(frames)).map(of_line).collect();
            if let Some(n) = known.and_then(|counts| counts.into_iter().min()) {
                profile.blocks.insert(program.block(id).start, n);
            }
        }
    }
    Ok((profile, Vec::new()))
}

#[cfg(test)]
pub(crate) mod tests;

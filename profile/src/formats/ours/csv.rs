//! CSV: executions of blocks, a row each, for spreadsheets and scripts.
//!
//! ```text
//! image,function,start,end,executions
//! lua,luaH_get,0x285b0,0x285c4,15000
//! ```
//! Addresses are hexadecimal, as in the ELF file; `end` is the first address after the block and after the
//! padding that it always runs through: where it ends without a branch, that of the next block. Quoted as RFC
//! 4180 has it. Blocks without a count have no row: unknown is not zero. Edges, calls and entries are not in
//! it. Of a recording, padding that runs when a branch is not taken has rows, too, where it is sure how often
//! it ran; they name no function, and are not read.

use crate::complete::derive::functions_of;
use crate::complete::flow::{Padding, padding};
use crate::counts::{ImageRef, Lost, Profile};
use crate::vocabulary::{Format, ReadError, Written};
use program::{BlockEnd, BlockId, FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HEADER: [&str; 5] = ["image", "function", "start", "end", "executions"];

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.trim_end() == HEADER.join(","))
}

/// Writes the counts of blocks.
pub fn write(profile: &Profile, program: &Program) -> Written {
    write_with(profile, program, &BTreeMap::new())
}

/// The same, and of the padding behind branches.
pub fn write_all(profile: &Profile, program: &Program) -> Written {
    let functions: Vec<FuncId> = functions_of(profile, program).into_iter().collect();
    let found: Vec<_> = functions.into_par_iter().map(|f| padding(program, f, profile)).collect();
    let sure = found.into_iter().flatten().filter_map(|(b, padding)| match padding {
        Padding::Sure(n) => Some((b, n)),
        Padding::Follows(_) => None,
    });
    write_with(profile, program, &sure.collect())
}

fn write_with(profile: &Profile, program: &Program, padding: &BTreeMap<BlockId, u64>) -> Written {
    let mut out = Written::default();
    let mut rows = csv::Writer::from_writer(Vec::new());
    let mut row = |fields: [&str; 5]| rows.write_record(fields).expect("memory can be written");
    row(HEADER);
    let mut functions = BTreeSet::new();
    let mut missing = 0u64;
    for (&at, &count) in &profile.blocks {
        let Some(id) = program.block_from(at) else {
            missing = missing.saturating_add(count);
            continue;
        };
        let block = program.block(id);
        let function = program.function(block.func).name();
        // Padding behind a branch runs only when that is not taken.
        let end = match block.end {
            BlockEnd::FallThrough => program.padding_behind(id).end,
            _ => block.end_va(),
        };
        let (start, end) = (at.to_string(), end.to_string());
        row([&profile.image.name, &function, &start, &end, &count.to_string()]);
        if let Some(n) = padding.get(&id) {
            let behind = program.padding_behind(id);
            let (start, end) = (behind.start.to_string(), behind.end.to_string());
            row([&profile.image.name, "", &start, &end, &n.to_string()]);
        }
        functions.insert(block.func);
        out.count = out.count.saturating_add(count);
    }
    if missing > 0 {
        let (what, why) = ("blocks".to_owned(), "the program has none at their addresses".to_owned());
        out.lost.push(Lost { what, why, count: missing });
    }
    out.bytes = rows.into_inner().expect("memory can be written");
    out.n_functions = functions.len();
    out
}

/// Reads the counts of blocks.
///
/// # Errors
/// [`ReadError::BadLine`] for a row that is not as described above, or of another image than the first row.
pub fn parse(bytes: &[u8]) -> Result<(Profile, Vec<Lost>), ReadError> {
    let mut profile = Profile::default();
    let mut reader = csv::Reader::from_reader(bytes);
    for record in reader.records() {
        let bad = |line: Option<u64>, what: String| ReadError::BadLine {
            format: Format::Csv,
            line: line.and_then(|l| usize::try_from(l).ok()).unwrap_or(0),
            what,
        };
        let record = record.map_err(|err| bad(err.position().map(csv::Position::line), err.to_string()))?;
        let line = record.position().map(csv::Position::line);
        let field = |i: usize| record.get(i).unwrap_or_default();
        let image = field(0);
        if profile.image.name.is_empty() {
            profile.image = ImageRef { name: image.to_owned(), ..ImageRef::default() };
        } else if profile.image.name != image {
            return Err(bad(
                line,
                format!("it is of {image:?}, the rows before are of {:?}", profile.image.name),
            ));
        }
        if field(1).is_empty() {
            // Padding.
            continue;
        }
        let start = field(2).strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let start = start
            .ok_or_else(|| bad(line, format!("{:?} is no address: 0x and hexadecimal digits", field(2))))?;
        let count = field(4).parse().map_err(|_| bad(line, format!("{:?} is no count", field(4))))?;
        profile.blocks.add(Va(start), count);
    }
    Ok((profile, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assemble, function};

    #[test]
    fn blocks_come_back_and_names_are_quoted() {
        let program =
            assemble(".globl f\n.type f,@function\nf: test %edi,%edi\nje 1f\nnop\n1: ret\n.size f,.-f\n");
        let f = program.function(function(&program, "f"));
        let ids: Vec<_> = f.block_ids().map(|b| program.block(b).start).collect();
        let mut profile = Profile::default();
        profile.image.name = "a,\"b\"".to_owned();
        profile.blocks = ids.iter().zip([5, 2]).map(|(&at, n)| (at, n)).collect();
        profile.blocks.insert(Va(1), 9);
        let written = write(&profile, &program);
        let text = String::from_utf8(written.bytes.clone()).unwrap();
        let first = format!(
            "image,function,start,end,executions\n\"a,\"\"b\"\"\",f,{},{},5\n",
            ids[0],
            ids[0].plus(4)
        );
        assert!(text.starts_with(&first), "{text}");
        assert_eq!((written.count, written.lost[0].count), (7, 9));
        let (back, _) = parse(&written.bytes).unwrap();
        profile.blocks.remove(&Va(1));
        assert_eq!((back.blocks, back.image.name), (profile.blocks, profile.image.name));
    }

    #[test]
    fn rows_reach_over_padding_that_always_runs() {
        // The loop is entered past padding, `inc` before it; `ret` past padding only when the loop is left.
        let text = ".globl f\n.type f,@function\nf: inc %eax\nnopl 0(%rax)\nnop\n1: dec %edi\njne 1b\nnop\n2: jne 2b\nret\n.size f,.-f\n";
        let program = assemble(text);
        let f = program.function(function(&program, "f"));
        let blocks = f.block_ids().zip([3, 30, 3, 3]).map(|(b, n)| (program.block(b).start, n)).collect();
        let profile = Profile { blocks, ..Profile::default() };
        let written = write(&profile, &program);
        let text = String::from_utf8(written.bytes.clone()).unwrap();
        let ends: Vec<u64> = text
            .lines()
            .skip(1)
            .map(|row| {
                let end = row.split(',').nth(3).and_then(|end| end.strip_prefix("0x"));
                u64::from_str_radix(end.expect("an address"), 16).expect("digits") - f.entry.0
            })
            .collect();
        // inc: 2 bytes, nopl: 3, nop: 1; dec, jne: 4; nop: 1; jne: 2; ret: 1.
        assert_eq!(ends, [6, 10, 13, 14]);
        assert_eq!(f.block_ids().map(|b| program.n_insns_run(b)).collect::<Vec<_>>(), [3, 2, 1, 1]);
        assert_eq!(parse(&written.bytes).unwrap().0.blocks, profile.blocks);
        // The loop at 6 was left past the padding at 10: the block behind it ran 3 times, and its own branch
        // was never taken.
        let all = write_all(&profile, &program).bytes;
        let text = String::from_utf8(all.clone()).unwrap();
        let padding = format!(",,{},{},3", f.entry.plus(10), f.entry.plus(11));
        assert_eq!(text.lines().filter(|row| row.contains(",,")).collect::<Vec<_>>(), [padding]);
        assert_eq!(parse(&all).unwrap().0.blocks, profile.blocks);
    }

    #[test]
    fn bad_rows_are_refused_with_their_line() {
        for (row, want) in [
            ("a,f,0x1,0x2", "CSV error: record 1 (line: 2, byte: 36): found record with 4 fields"),
            ("a,f,1,0x2,3", "\"1\" is no address"),
            ("a,f,0x1,0x2,x", "\"x\" is no count"),
            ("a,f,0x1,0x2,1\nb,f,0x1,0x2,1", "it is of \"b\", the rows before are of \"a\""),
        ] {
            let err = parse(format!("image,function,start,end,executions\n{row}\n").as_bytes())
                .unwrap_err()
                .to_string();
            assert!(err.starts_with("line ") && err.contains(want), "{err}");
        }
    }
}

//! What functions and blocks are called, where they are, and which source line they come from.
//!
//! Read from text, one block a line: `FUNCTION BLOCK 0xADDRESS NAME FILE:LINE`, where FUNCTION and BLOCK are
//! the numbers of the trace; the name may have spaces, the line may be `?`.
//!
//! ```text
//! section = functions: varint, for each: number − last number, name, blocks
//! blocks  = number: varint, for each: number − last number, address − last address (zigzag), file
//!           (number in order of appearance, a new one is followed by its name), line − last line
//!           (zigzag; line 0 for `?`)
//! name    = length, bytes
//! ```
//! the whole under zstd.
#![warn(clippy::indexing_slicing)]

use crate::decode::ModuleCodes;
use crate::file::varint::{self, Cursor};
use crate::ids::{BlockId, FuncId};
use std::collections::BTreeMap;

/// The table of functions and blocks of a trace. May be empty: then there are numbers alone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Names {
    /// By the number that the trace has.
    pub functions: BTreeMap<FuncId, Function>,
}

/// A function of the traced program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Function {
    /// Its name, as the symbol table has it.
    pub name: String,
    /// By the number that the trace has.
    pub blocks: BTreeMap<BlockId, Block>,
}

/// A block of a function.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Block {
    /// Where its first instruction is, in the module's file.
    pub at: u64,
    /// The source file; empty if it is not known.
    pub file: String,
    /// The line; 0 if it is not known.
    pub line: u32,
}

/// What is wrong with a text of names.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is not `FUNCTION BLOCK 0xADDRESS NAME FILE:LINE`: {text}")]
pub struct NotNames {
    /// Which, from 1.
    pub line: usize,
    /// What is there.
    pub text: String,
}

impl Names {
    /// Of the modules of a recording.
    pub fn of(codes: &ModuleCodes) -> Self {
        let mut names = Self::default();
        for (first, code) in codes.modules() {
            for (n, function) in (first.0..).map(FuncId).zip(&code.functions) {
                let block = |b: &crate::recording::module_code::Block| Block { at: b.at, ..Block::default() };
                let blocks = (0..).map(BlockId).zip(function.blocks.iter().map(block)).collect();
                names.functions.insert(n, Function { name: function.name.clone(), blocks });
            }
        }
        names
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`NotNames`] names the line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, NotNames> {
        let mut names = Self::default();
        for (line_idx, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (func, block, name, what) = parse_line(line)
                .ok_or_else(|| NotNames { line: line_idx + 1, text: line.chars().take(80).collect() })?;
            let function = names.functions.entry(func).or_default();
            if function.name.is_empty() {
                name.clone_into(&mut function.name);
            }
            function.blocks.insert(block, what);
        }
        Ok(names)
    }

    /// The function `func` as people call it: its name, or its number.
    pub fn function(&self, func: FuncId) -> String {
        self.functions.get(&func).map_or_else(|| format!("#{}", func.0), |f| f.name.clone())
    }

    /// The section's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut files: BTreeMap<&str, u64> = BTreeMap::new();
        let text = |out: &mut Vec<u8>, text: &str| {
            varint::put(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        };
        varint::put(&mut out, self.functions.len() as u64);
        let (mut last_func, mut last_at, mut last_line) = (0, 0_u64, 0);
        for (&func, function) in &self.functions {
            varint::put(&mut out, u64::from(func.0 - last_func));
            last_func = func.0;
            text(&mut out, &function.name);
            varint::put(&mut out, function.blocks.len() as u64);
            let mut last_block = 0;
            for (&number, block) in &function.blocks {
                varint::put(&mut out, u64::from(number.0 - last_block));
                last_block = number.0;
                varint::put(&mut out, varint::zigzag(block.at.wrapping_sub(last_at).cast_signed()));
                last_at = block.at;
                let n_files = files.len() as u64;
                let file = *files.entry(&block.file).or_insert(n_files);
                varint::put(&mut out, file);
                if file == n_files {
                    text(&mut out, &block.file);
                }
                varint::put(&mut out, varint::zigzag(i64::from(block.line) - i64::from(last_line)));
                last_line = block.line;
            }
        }
        out
    }

    /// Reads a section's bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let text = |cursor: &mut Cursor| {
            let n = cursor.get_len()?;
            Some(String::from_utf8_lossy(cursor.take(n)?).into_owned())
        };
        let mut files: Vec<String> = Vec::new();
        let (mut func, mut at, mut line) = (0_u32, 0_u64, 0_i64);
        let mut names = Self::default();
        for _ in 0..cursor.get_len()? {
            func = func.checked_add(cursor.get_u32()?)?;
            let mut function = Function { name: text(&mut cursor)?, blocks: BTreeMap::new() };
            let mut number = 0_u32;
            for _ in 0..cursor.get_len()? {
                number = number.checked_add(cursor.get_u32()?)?;
                at = at.wrapping_add(varint::unzigzag(cursor.get()?).cast_unsigned());
                let file = usize::try_from(cursor.get()?).ok()?;
                if file == files.len() {
                    files.push(text(&mut cursor)?);
                }
                line = line.checked_add(varint::unzigzag(cursor.get()?))?;
                let block = Block { at, file: files.get(file)?.clone(), line: u32::try_from(line).ok()? };
                function.blocks.insert(BlockId(number), block);
            }
            names.functions.insert(FuncId(func), function);
        }
        Some(names)
    }
}

fn parse_line(line: &str) -> Option<(FuncId, BlockId, &str, Block)> {
    let mut words = line.splitn(4, ' ');
    let func = FuncId(words.next()?.parse().ok()?);
    let block = BlockId(words.next()?.parse().ok()?);
    let at = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let (name, place) = words.next()?.trim_end().rsplit_once(' ')?;
    let (file, line) = place.rsplit_once(':')?;
    let line = if line == "?" { 0 } else { line.parse().ok()? };
    Some((func, block, name, Block { at, file: file.to_owned(), line }))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests may panic")]
mod tests {
    use super::*;

    const TEXT: &str = "0 0 0x3f1c0 main bzip2.c:1777\n0 2 0x3f2f0 main bzip2.c:?\n7 0 0x10 operator new(unsigned long) a b.c:3\n";

    #[test]
    fn names_survive_their_section() {
        let names = Names::parse(TEXT).expect("it is right");
        assert_eq!(names.function(FuncId(7)), "operator new(unsigned long) a");
        assert_eq!(
            names.functions[&FuncId(0)].blocks[&BlockId(2)],
            Block { at: 0x3f2f0, file: "bzip2.c".into(), line: 0 }
        );
        assert_eq!(Names::decode(&names.encode()).as_ref(), Some(&names));
        let bytes = names.encode();
        for n in 0..bytes.len() {
            assert_eq!(Names::decode(&bytes[..n]), None, "cut at {n}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        let err = Names::parse("0 0 0x1 f a.c:1\n\n0 x 0x1 f a.c:1\n").expect_err("it is wrong");
        assert_eq!(err.line, 3);
    }
}

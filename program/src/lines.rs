//! Source lines: which file and line an instruction came from, through inlined calls too.
//!
//! From the DWARF in the file itself, or in its debug file ([`Image::debug_file`]).
//!
//! Source: DWARF 5, 3.3.8 (inlined subroutines) and 6.2 (line numbers), as read by addr2line.

use crate::addr::Va;
use crate::image::Image;
use crate::image::dwarf::{self, Reader};
use crate::recorded_lines::{RecordedLines, Told};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The line table of an image. For use by one thread.
pub struct Lines(Table);

enum Table {
    Dwarf(Box<Debug>),
    Recorded(Arc<RecordedLines>),
}

/// Debug information.
struct Debug {
    context: addr2line::Context<Reader>,
    dwarf: Arc<gimli::Dwarf<Reader>>,
}

/// A function that an instruction belongs to, and where in it the instruction came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The function's linkage name, as DWARF gives it.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// Where the debug information speaks of this function, or of this inlined copy of it: offset in its
    /// section.
    entry: Option<usize>,
}

/// The lines at which functions are declared, and whether they return a value.
///
/// Looked up by what debug information says of a frame, not by name: two files may have a function of one
/// name each, and say where a third one has it.
#[derive(Debug)]
pub struct Declarations(HashMap<usize, Declaration>);

/// What one entry of the debug information says; the rest, that which it is a copy of.
#[derive(Debug)]
struct Declaration {
    line: Option<u32>,
    has_type: bool,
    of: Option<usize>,
}

impl Declarations {
    /// The entries that speak of the frame's function: its own, and those that it is a copy of.
    fn chain(&self, frame: &Frame) -> impl Iterator<Item = &Declaration> {
        let first = frame.entry.and_then(|at| self.0.get(&at));
        // A copy of an abstract instance of a member: no chain of compilers' is longer.
        std::iter::successors(first, |this| self.0.get(&this.of?)).take(4)
    }

    /// The line at which the frame's function is defined; of a copy, that of the original.
    pub fn line(&self, frame: &Frame) -> Option<u32> {
        self.chain(frame).find_map(|d| d.line)
    }

    /// Whether the frame's function returns a value.
    pub fn returns_value(&self, frame: &Frame) -> bool {
        self.chain(frame).any(|d| d.has_type)
    }
}

/// Which instructions are of a statement where it begins (DWARF 5, 6.2.2, `is_stmt`). Others belong to its
/// line, too: constants that are loaded early, and what else an optimiser has put among other statements.
#[derive(Debug)]
pub struct Statements {
    /// From where on, and whether it is not so, by address.
    rows: Vec<(u64, bool)>,
}

impl Statements {
    /// Whether the instruction at `at` is of one; also where the line table says nothing.
    pub fn has(&self, at: Va) -> bool {
        let n = self.rows.partition_point(|row| row.0 <= at.0);
        !n.checked_sub(1).and_then(|n| self.rows.get(n)).is_some_and(|row| row.1)
    }
}

impl Frame {
    /// One that a recording kept: nothing is known of declarations.
    fn kept((function, file, line): Told<'_>) -> Frame {
        let text = |text: &str| text.to_owned();
        Frame { function: function.map(text), file: file.map(text), line, entry: None }
    }

    /// What a recording keeps of it.
    pub(crate) fn told(&self) -> Told<'_> {
        (self.function.as_deref(), self.file.as_deref(), self.line)
    }
}

impl Lines {
    /// Those that were kept.
    pub(crate) fn recorded(lines: RecordedLines) -> Lines {
        Lines(Table::Recorded(Arc::new(lines)))
    }

    /// The lines of `image`, if it or its debug file has any; of an excerpt, those that were kept.
    pub fn load(image: &Image) -> Option<Lines> {
        if let Some(recorded) = image.recorded_lines() {
            return recorded.map(|lines| Lines(Table::Recorded(Arc::clone(lines))));
        }
        let dwarf = Arc::new(dwarf::load(image, &[".debug_line", ".debug_info"])?);
        let context = addr2line::Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?;
        Some(Lines(Table::Dwarf(Box::new(Debug { context, dwarf }))))
    }

    /// The file and line that the instruction at `at` was written in: inside the innermost inlined function.
    pub fn at(&self, at: Va) -> Option<(&str, u32)> {
        let debug = match &self.0 {
            Table::Dwarf(debug) => debug,
            Table::Recorded(lines) => {
                let (_, file, line) = lines.frames(at).next()?;
                return Some((file?, line?));
            }
        };
        let location = debug.context.find_location(at.0).ok()??;
        Some((location.file?, location.line?))
    }

    /// Where statements begin; recordings do not say. Reads all line tables.
    pub fn statements(&self) -> Statements {
        let mut rows = Vec::new();
        let Table::Dwarf(debug) = &self.0 else { return Statements { rows } };
        let mut units = debug.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = debug.dwarf.unit(header) else { continue };
            let Some(table) = unit.line_program.clone() else { continue };
            let mut table = table.rows();
            while let Ok(Some((_, row))) = table.next_row() {
                rows.push((row.address(), !row.is_stmt() && !row.end_sequence()));
            }
        }
        // Of several for one address, one that begins a statement is enough.
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.0);
        Statements { rows }
    }

    /// The lines at which functions are declared, inlined ones too. Reads all of the debug information.
    ///
    /// Compilers count the lines of a function from there. Recordings do not say.
    pub fn declarations(&self) -> Declarations {
        let mut found = HashMap::new();
        let Table::Dwarf(debug) = &self.0 else { return Declarations(found) };
        let mut units = debug.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = debug.dwarf.unit(header) else { continue };
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if !matches!(entry.tag(), gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine) {
                    continue;
                }
                let line = entry.attr_value(gimli::DW_AT_decl_line).and_then(|v| v.udata_value());
                let of = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
                    .into_iter()
                    .find_map(|at| entry.attr_value(at))
                    .and_then(|of| match of {
                        gimli::AttributeValue::UnitRef(at) => {
                            at.to_debug_info_offset(&unit.header).map(|at| at.0)
                        }
                        gimli::AttributeValue::DebugInfoRef(at) => Some(at.0),
                        _ => None,
                    });
                if let Some(at) = entry.offset().to_debug_info_offset(&unit.header) {
                    let line = line.and_then(|l| u32::try_from(l).ok());
                    let has_type = entry.attr_value(gimli::DW_AT_type).is_some();
                    found.insert(at.0, Declaration { line, has_type, of });
                }
            }
        }
        Declarations(found)
    }

    /// Whether nothing is known of any address in `range`: sure only of what was recorded.
    pub(crate) fn knows_nothing_of(&self, range: &Range<Va>) -> bool {
        matches!(&self.0, Table::Recorded(lines) if !lines.knows(range))
    }

    /// The functions that the instruction at `at` belongs to: the innermost inlined one first, the real one
    /// last.
    pub fn frames(&self, at: Va) -> Vec<Frame> {
        let debug = match &self.0 {
            Table::Dwarf(debug) => debug,
            Table::Recorded(lines) => return lines.frames(at).map(Frame::kept).collect(),
        };
        let mut found = Vec::new();
        let Ok(mut frames) = debug.context.find_frames(at.0).skip_all_loads() else { return found };
        let unit = debug.context.find_dwarf_and_unit(at.0).skip_all_loads();
        while let Ok(Some(frame)) = frames.next() {
            let entry = unit.as_ref().zip(frame.dw_die_offset);
            found.push(Frame {
                entry: entry.and_then(|(u, at)| Some(at.to_debug_info_offset(&u.header)?.0)),
                function: frame.function.and_then(|f| f.raw_name().ok().map(std::borrow::Cow::into_owned)),
                file: frame.location.as_ref().and_then(|l| l.file).map(str::to_owned),
                line: frame.location.and_then(|l| l.line),
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOURCE: &str = "\
volatile int v;
static inline __attribute__((always_inline)) void inner(int x) {
    v = x;
}
__attribute__((noinline)) void outer(int x) {
    inner(x + 1);
}
int main(void) { outer(1); return v; }
";

    fn run(command: &mut Command) -> String {
        let out = command.output().expect("the tool is installed");
        assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Every instruction of `outer` has the frames that binutils' addr2line says.
    #[track_caller]
    fn check(flags: &[&str]) {
        let dir = tempfile::tempdir().expect("a folder for the test's files");
        let (source, binary) = (dir.path().join("a.c"), dir.path().join("a"));
        std::fs::write(&source, SOURCE).expect("the folder can be written");
        run(Command::new("gcc").args(["-g", "-O1"]).args(flags).arg(&source).arg("-o").arg(&binary));
        let image = Image::load(&binary).expect("gcc makes good files");
        let lines = Lines::load(&image).expect("compiled with -g");
        let outer = image.symbols.iter().find(|s| &*s.name == "outer").expect("it is a symbol");
        for at in (0..outer.len).map(|i| outer.at.plus(i)) {
            let want =
                run(Command::new("addr2line").args(["-i", "-f", "-e"]).arg(&binary).arg(at.to_string()));
            let got: String = lines
                .frames(at)
                .iter()
                .map(|f| {
                    let (file, line) = (f.file.as_deref().unwrap_or("??"), f.line.unwrap_or(0));
                    format!("{}\n{file}:{line}\n", f.function.as_deref().unwrap_or("??"))
                })
                .collect();
            let plain =
                |s: &str| s.lines().map(|l| l.split(" (").next().unwrap_or(l).to_owned()).collect::<Vec<_>>();
            assert_eq!(plain(&got), plain(&want), "at {at} with {flags:?}");
            let place = lines.at(at).map(|(file, line)| format!("{file}:{line}"));
            assert_eq!(place.as_ref(), plain(&want).get(1), "at {at} with {flags:?}");
        }
    }

    #[test]
    fn lines_and_inlined_frames_are_those_of_addr2line() {
        check(&["-gdwarf-5"]);
        check(&["-gdwarf-4", "-no-pie"]);
        check(&["-gdwarf-5", "-gz"]);
    }

    #[test]
    fn a_file_without_debug_information_has_no_lines() {
        let image = Image::load("/usr/bin/true".as_ref()).expect("it is a program");
        assert!(Lines::load(&image).is_none());
    }
}

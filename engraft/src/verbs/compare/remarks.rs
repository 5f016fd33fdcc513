//! What compilers said when they made the builds: gcc's -fopt-info and -fsave-optimization-record, clang's
//! -fsave-optimization-record. It is put at the outliers whose lines it is about.

use crate::output::Hinted;
use anyhow::Context as _;
use matching::compare::{Outlier, Side};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// What a compiler said of a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Remark {
    /// The file, without its folder.
    file: String,
    line: u32,
    text: String,
}

/// So many are put at one outlier.
const MOST: usize = 6;

/// So many bytes of remarks are read at most.
const MOST_BYTES: u64 = 1 << 30;

/// Reads the remarks of a file.
///
/// # Errors
/// If it cannot be read, or is none of what compilers write.
pub fn read(path: &Path) -> anyhow::Result<Vec<Remark>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut text = String::new();
    let is_packed = bytes.starts_with(&[0x1f, 0x8b]);
    let read = match is_packed {
        true => {
            flate2::read::MultiGzDecoder::new(bytes.as_slice()).take(MOST_BYTES).read_to_string(&mut text)
        }
        false => bytes.as_slice().read_to_string(&mut text),
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    let found = match text.trim_start().chars().next() {
        Some('[') => of_gcc(&text),
        Some('-') => of_clang(&text),
        _ => Ok(of_text(&text)),
    };
    let found = found.with_context(|| format!("cannot read {}", path.display()))?;
    if found.is_empty() {
        let what = format!("{}: there are no remarks of compilers in it", path.display());
        let hint = "gcc -fopt-info-all=FILE, gcc or clang -fsave-optimization-record write some";
        return Err(Hinted::new(what, hint).into());
    }
    Ok(found)
}

fn remark(file: &str, line: u32, text: &str) -> Remark {
    let file = file.rsplit('/').next().unwrap_or(file).to_owned();
    Remark { file, line, text: text.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// `file:line:column: kind: text`, a line each.
fn of_text(text: &str) -> Vec<Remark> {
    let line = |line: &str| {
        let (place, text) = line.split_once(": ")?;
        let mut parts = place.rsplitn(3, ':');
        let (_column, number, file) = (parts.next()?, parts.next()?, parts.next()?);
        let is_known =
            ["optimized: ", "missed: ", "note: "].iter().any(|kind| text.trim_start().starts_with(kind));
        is_known.then_some(remark(file, number.parse().ok()?, text))
    };
    text.lines().filter_map(line).collect()
}

/// gcc's records: what is about the compiler, its passes, then a tree of messages for each.
fn of_gcc(text: &str) -> anyhow::Result<Vec<Remark>> {
    let all: Value = serde_json::from_str(text)?;
    let mut open: Vec<&Value> = all.get(2).and_then(Value::as_array).into_iter().flatten().collect();
    let mut found = Vec::new();
    while let Some(record) = open.pop() {
        open.extend(record.get("children").and_then(Value::as_array).into_iter().flatten());
        let part = |part: &Value| match part {
            Value::String(text) => text.clone(),
            other => ["expr", "stmt", "symtab_node"]
                .iter()
                .find_map(|name| other.get(*name)?.as_str())
                .unwrap_or_default()
                .to_owned(),
        };
        let parts = record.get("message").and_then(Value::as_array);
        let message: String = parts.into_iter().flatten().map(part).collect();
        let kind = record.get("kind").and_then(Value::as_str).unwrap_or_default();
        let place = record.get("location");
        let file = place.and_then(|place| place.get("file")?.as_str());
        let line = place.and_then(|place| u32::try_from(place.get("line")?.as_u64()?).ok());
        let says = match kind {
            "success" => "optimized",
            "failure" => "missed",
            "note" => "note",
            _ => continue,
        };
        if let (Some(file), Some(line), false) = (file, line, message.trim().is_empty()) {
            found.push(remark(file, line, &format!("{says}: {message}")));
        }
    }
    Ok(found)
}

/// A remark of clang, as YAML.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OfClang {
    pass: String,
    name: String,
    debug_loc: Option<Place>,
    #[serde(default)]
    args: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Place {
    file: String,
    line: u32,
}

/// Documents that begin with `--- !Passed` or the like.
fn of_clang(text: &str) -> anyhow::Result<Vec<Remark>> {
    let mut found = Vec::new();
    let text = format!("\n{text}");
    for document in text.split("\n--- !").skip(1) {
        let (kind, body) = document.split_once('\n').unwrap_or_default();
        let said: OfClang = serde_saphyr::from_str(body.trim_end().trim_end_matches("..."))?;
        let Some(place) = said.debug_loc else { continue };
        let part = |part: &Value| {
            let parts = part.as_object()?.iter().filter(|(name, _)| *name != "DebugLoc");
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some(parts.map(|(_, value)| text(value)).collect::<String>())
        };
        let message: String = said.args.iter().filter_map(part).collect();
        let kind = kind.trim().to_lowercase();
        let message = if message.is_empty() { said.name } else { message };
        found.push(remark(&place.file, place.line, &format!("{kind}: {}: {message}", said.pass)));
    }
    Ok(found)
}

/// What was said of the lines of an outlier, for each build.
pub fn of_outlier(sides: &[Side<'_>; 2], of: &Outlier, all: &[Vec<Remark>; 2]) -> Vec<String> {
    let mut said = Vec::new();
    for (n, build) in ["old", "new"].into_iter().enumerate() {
        if all[n].is_empty() {
            continue;
        }
        let lines = lines(&sides[n], of, n);
        let is_about = |of: &&Remark| lines.contains(&(of.file.clone(), of.line));
        let mut about: Vec<&Remark> = all[n].iter().filter(is_about).collect();
        // What was done, then what was not.
        about.sort_by_key(|of| (!(of.text.starts_with("optimized") || of.text.starts_with("passed")), *of));
        about.dedup();
        let text = |of: &Remark| format!("{build} build, {}:{}: {}", of.file, of.line, of.text);
        said.extend(about.into_iter().take(MOST).map(text));
    }
    said
}

/// The lines of what ran in an outlier.
fn lines(side: &Side<'_>, of: &Outlier, n: usize) -> BTreeSet<(String, u32)> {
    let mut found = BTreeSet::new();
    for block in of.ran[n].keys() {
        let Some(block) = side.code.blocks.get(*block as usize) else { continue };
        let Some(module) = side.modules.get(block.id.0 as usize) else { continue };
        let Some(lines) = &module.lines else { continue };
        for insn in module.program.insns(block.id.1) {
            for frame in lines.frames(insn.at()) {
                if let (Some(file), Some(line)) = (&frame.file, frame.line) {
                    found.insert((file.rsplit('/').next().unwrap_or(file).to_owned(), line));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_gcc_is_read() {
        let text = "a/b.c:12:3: optimized: loop vectorized using 16 byte vectors\nnote: nothing\n\
                    b.c:13:9: missed:   not inlinable: f/1 -> g/2\nUnit growth for small-function: 3->4\n";
        let want = [
            remark("b.c", 12, "optimized: loop vectorized using 16 byte vectors"),
            remark("b.c", 13, "missed: not inlinable: f/1 -> g/2"),
        ];
        assert_eq!(of_text(text), want);
    }

    #[test]
    fn records_of_gcc_are_read_with_what_is_in_them() {
        let text = r#"[{"format": "1"}, [], [{"kind": "scope", "location": {"file": "x.c", "line": 1},
            "message": ["=== analyze ==="], "children": [{"kind": "success", "message": ["Inlined ",
            {"symtab_node": "g/2"}, " into ", {"symtab_node": "f/1"}], "location": {"file": "d/x.c",
            "line": 7, "column": 2}}]}]]"#;
        assert_eq!(of_gcc(text).expect("it is one"), [remark("x.c", 7, "optimized: Inlined g/2 into f/1")]);
    }

    #[test]
    fn records_of_clang_are_read() {
        let text = "--- !Passed\nPass:            loop-vectorize\nName:            Vectorized\n\
                    DebugLoc:        { File: 'd/v.c', Line: 3, Column: 5 }\nFunction:        f\nArgs:\n  \
                    - String:          'vectorized loop (vectorization width: '\n  \
                    - VectorizationFactor: '4'\n  - String:          ')'\n...\n\
                    --- !Missed\nPass:            inline\nName:            NoDefinition\n\
                    DebugLoc:        { File: v.c, Line: 9, Column: 3 }\nFunction:        f\nArgs:\n  \
                    - Callee:          g\n    DebugLoc:        { File: v.c, Line: 1, Column: 0 }\n  \
                    - String:          ' will not be inlined'\n...\n";
        let want = [
            remark("v.c", 3, "passed: loop-vectorize: vectorized loop (vectorization width: 4)"),
            remark("v.c", 9, "missed: inline: g will not be inlined"),
        ];
        assert_eq!(of_clang(text).expect("it is one"), want);
    }
}

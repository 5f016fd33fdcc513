//! Labels of C and its like, from the text of a source: which lines have one, and where the code behind it
//! stands.
//!
//! Compilers write down where code came from, and a label is none. gcov, which is part of the compiler, lists
//! the lines of labels: of `case A:` and those that follow it at once the first, and every one that `goto`
//! can name.
//!
//! Not here: how often they ran (`line_counts`).
#![warn(clippy::indexing_slicing)]

use std::collections::HashSet;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

/// A line with a label and no code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    pub line: u32,
    /// Lines of which the first one with code is what it leads to.
    pub behind: Range<u32>,
}

/// No source that people write is longer.
const LONGEST: u64 = 64 << 20;

/// The labels in the source at `path`; none if it cannot be read.
pub(crate) fn of_file(path: &str) -> Vec<Label> {
    // The path is what a binary says: it may lead anywhere, to what never ends, too.
    let is_file = std::fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() <= LONGEST);
    let mut bytes = Vec::new();
    let mut read = || std::fs::File::open(Path::new(path))?.take(LONGEST).read_to_end(&mut bytes);
    if !is_file || read().is_err() {
        return Vec::new();
    }
    of(&String::from_utf8_lossy(&bytes))
}

/// The labels in `text`, by line.
pub(crate) fn of(text: &str) -> Vec<Label> {
    let (lines, macros) = code(text);
    let kinds: Vec<Kind> = lines.iter().map(|line| kind(line, &macros)).collect();
    let mut found = Vec::new();
    let mut rest = (1u32..).zip(&kinds).peekable();
    while let Some((line, kind)) = rest.next() {
        let Kind::Label { is_named, is_bare } = kind else { continue };
        // Those that follow at once lead to the same place.
        let mut all = vec![(line, *is_named)];
        let (mut is_bare, mut last) = (*is_bare, line);
        while is_bare && let Some((next, kind)) = rest.next_if(|(_, k)| !matches!(k, Kind::Code | Kind::End))
        {
            match kind {
                Kind::Label { is_named, is_bare: bare } => {
                    all.push((next, *is_named));
                    is_bare = *bare;
                }
                // It has code of its own, and so a count.
                Kind::LabelAndCode => is_bare = false,
                _ => continue,
            }
            last = next;
        }
        let behind = (last..).zip(kinds.get(last as usize - 1..).unwrap_or_default());
        let end = behind.skip(1).find(|(_, kind)| !matches!(kind, Kind::Blank | Kind::Code));
        let end = end.map_or_else(|| u32::try_from(kinds.len()).map_or(u32::MAX, |n| n + 1), |(end, _)| end);
        if all.iter().any(|(_, is_named)| *is_named) {
            all.retain(|(_, is_named)| *is_named);
        } else {
            all.truncate(1);
        }
        // Behind a label with code of its own, that is where it leads.
        let behind = if matches!(kinds.get(last as usize - 1), Some(Kind::LabelAndCode)) {
            last..last + 1
        } else {
            last + 1..end
        };
        found.extend(all.into_iter().map(|(line, _)| Label { line, behind: behind.clone() }));
    }
    found
}

/// What stands in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Blank,
    Code,
    /// It closes a block: no code behind it belongs to a label before it.
    End,
    /// Labels alone, or a brace behind them.
    Label {
        is_named: bool,
        is_bare: bool,
    },
    LabelAndCode,
}

fn kind(line: &str, macros: &HashSet<String>) -> Kind {
    let mut rest = line.trim();
    if rest.is_empty() {
        return Kind::Blank;
    }
    if rest.starts_with('}') {
        return Kind::End;
    }
    let (mut is_label, mut is_named) = (false, false);
    while let Some((named, behind)) = label(rest, macros) {
        (is_label, is_named, rest) = (true, is_named | named, behind.trim_start());
    }
    match rest {
        _ if !is_label => Kind::Code,
        "" => Kind::Label { is_named, is_bare: true },
        "{" | ";" => Kind::Label { is_named, is_bare: false },
        _ => Kind::LabelAndCode,
    }
}

/// The label that `text` starts with: whether `goto` can name it, and what stands behind it.
fn label<'t>(text: &'t str, macros: &HashSet<String>) -> Option<(bool, &'t str)> {
    let len = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(len)?;
    let rest = rest.trim_start();
    if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if word == "case" {
        return colon(rest).map(|behind| (false, behind));
    }
    let arguments = rest.strip_prefix('(').and_then(|inside| {
        let mut depth = 1;
        let end = inside.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        inside.get(end? + 1..)
    });
    if let Some(behind) = arguments.filter(|_| macros.contains(word)) {
        return Some((false, behind.trim_start().strip_prefix(':').unwrap_or(behind)));
    }
    let behind = arguments.unwrap_or(rest).trim_start().strip_prefix(':')?;
    let is_none = behind.starts_with(':') || ["public", "private", "protected"].contains(&word);
    (!is_none).then_some((word != "default" && arguments.is_none(), behind))
}

/// What stands behind the first colon that is not half of `::`.
fn colon(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let (_, behind) = rest.split_once(':')?;
        match behind.strip_prefix(':') {
            Some(behind) => rest = behind,
            None => return Some(behind),
        }
    }
}

/// The lines of `text` without comments, literals and directives; and the names of macros that are labels.
fn code(text: &str) -> (Vec<String>, HashSet<String>) {
    let mut lines = vec![String::new()];
    let mut macros = HashSet::new();
    let mut characters = text.chars().peekable();
    let mut is_directive = false;
    while let Some(c) = characters.next() {
        let line = lines.last_mut().expect("it starts with one");
        match c {
            '\n' if is_directive && line.ends_with('\\') => lines.push(String::new()),
            '\n' => {
                if is_directive {
                    // What it says is no code; where it goes on over lines, the last one is looked at.
                    macros.extend(label_macro(line));
                    line.clear();
                }
                is_directive = false;
                lines.push(String::new());
            }
            '/' if characters.next_if_eq(&'/').is_some() => {
                while characters.next_if(|c| *c != '\n').is_some() {}
            }
            '/' if characters.next_if_eq(&'*').is_some() => {
                let mut before = ' ';
                for c in characters.by_ref() {
                    if c == '\n' {
                        lines.push(String::new());
                    }
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
            }
            '"' | '\'' => {
                // A digit of a number may be quoted; a literal ends with its line.
                line.push('0');
                while let Some(inside) = characters.next_if(|c| *c != '\n') {
                    match inside {
                        '\\' => drop(characters.next_if(|c| *c != '\n')),
                        _ if inside == c => break,
                        _ => {}
                    }
                }
            }
            '#' if line.trim().is_empty() => {
                is_directive = true;
                line.push(c);
            }
            _ => line.push(c),
        }
    }
    for line in &mut lines {
        if line.trim_start().starts_with('#') {
            line.clear();
        }
    }
    (lines, macros)
}

/// The name of the macro that `directive` defines, if a use of it is a label: `#define vmcase(op) case op:`.
fn label_macro(directive: &str) -> Option<String> {
    let rest = directive.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
    let (name, rest) = rest.trim_start().split_once('(')?;
    let (_, body) = rest.split_once(')')?;
    let body = body.trim();
    let is_label = body.strip_suffix(':').is_some_and(|label| !label.contains([';', '?', '{']));
    is_label.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that are labels say at their end, behind `//@`, where the code behind them starts; lines of code
    /// say nothing.
    #[track_caller]
    fn check(text: &str) {
        let lines = || (1u32..).zip(text.lines());
        let want: Vec<(u32, u32)> =
            lines().filter_map(|(n, l)| Some((n, l.split_once("//@")?.1.trim().parse().ok()?))).collect();
        let has_code = |n: &u32| lines().any(|(m, l)| m == *n && l.contains("//c"));
        let got: Vec<(u32, u32)> = of(text)
            .into_iter()
            .filter_map(|label| Some((label.line, label.behind.clone().find(has_code)?)))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn the_first_of_labels_in_a_row_is_found() {
        check(
            "switch (x) {
case 1: //@4
case 2:
    f(); //c
    break;
case '\\'': { //@8
    int y;
    y = g(\"case 5:\"); //c
}
case ':': default: //@13
    /* case 7:
    */
    h(); //c
}
",
        );
    }

    #[test]
    fn what_goto_names_is_found_beside_them() {
        check(
            "    case A:
out: //@3
    return r; //c
#define vmcase(op) case op:
    vmcase(OP_MOVE) { //@6
        move(); //c
    }
    CASE(OP_add): //@9
        add(); //c
    default: g(); //c
    std::f(x);
    a ? b : c;
public:
    int f() { return 1; } //c
",
        );
    }

    #[test]
    fn what_was_not_compiled_leads_nowhere() {
        check(
            "case 1:
    f();
    break;
case 2: //@5
    g(); //c
case 3:
}
    g(); //c
",
        );
    }

    #[test]
    fn no_text_does_harm() {
        for text in [
            "",
            ":",
            "case",
            "case ::",
            "\"",
            "'\\",
            "/*",
            "#",
            "#define f(x) :",
            "l:",
            "f(((:",
            "\u{1f600}: x",
        ] {
            of(text);
        }
        assert!(of_file("/dev/zero").is_empty() && of_file("/nowhere").is_empty());
    }
}

//! Texts of `docs/*.md` as they are read on a terminal and in a man page; help on options that fits a screen.

use std::fmt::Write as _;

/// How a text is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns of a line, at most.
    pub width: usize,
    /// Whether headings and commands are in bold.
    pub is_coloured: bool,
    /// Whether each line stands by itself, as in lists of keys.
    pub has_own_lines: bool,
}

/// Markdown as text: headings, paragraphs as wide as the page, what was typed and printed indented.
///
/// Of Markdown, what `docs` has: headings, paragraphs, blocks between fences, items of lists, `code`, bold
/// and links.
pub fn rendered(markdown: &str, style: Style) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            end(&mut paragraph, &mut out, style);
            is_code = !is_code;
        } else if is_code {
            let is_command = style.is_coloured && line.starts_with("$ ");
            let _ = writeln!(
                out,
                "{}",
                if is_command { bold(&format!("    {line}")) } else { format!("    {line}") }
            );
        } else if let Some(title) = line.strip_prefix('#') {
            end(&mut paragraph, &mut out, style);
            let title = inline(title.trim_start_matches('#').trim());
            let _ = writeln!(out, "{}", if style.is_coloured { bold(&title) } else { title.to_uppercase() });
        } else if line.trim().is_empty() {
            end(&mut paragraph, &mut out, style);
            out.push('\n');
        } else {
            if style.has_own_lines || line.starts_with("- ") || line.starts_with(' ') {
                end(&mut paragraph, &mut out, style);
            }
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        }
    }
    end(&mut paragraph, &mut out, style);
    out
}

/// Writes a paragraph that is over.
fn end(paragraph: &mut String, out: &mut String, style: Style) {
    if !paragraph.is_empty() {
        let wrapped = views::wrap(&inline(paragraph), style.width);
        // Prose is not indented; of items and keys, what follows is.
        let is_prose = !style.has_own_lines && !paragraph.starts_with(['-', ' ']);
        out.push_str(&if is_prose { wrapped.replace("\n  ", "\n") } else { wrapped });
        out.push('\n');
        paragraph.clear();
    }
}

fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// A line without the marks of code, bold and links.
fn inline(line: &str) -> String {
    let mut out = String::new();
    // What stands in ticks is as it is.
    for (n, part) in line.split('`').enumerate() {
        if n % 2 == 1 {
            out.push_str(part);
            continue;
        }
        let mut rest = part;
        while let Some((before, (text, behind))) = rest.split_once('[').and_then(|(before, link)| {
            Some((before, link.split_once("](").filter(|(text, _)| !text.contains(']'))?))
        }) {
            out.extend([before, text]);
            rest = behind.split_once(')').map_or("", |(_, rest)| rest);
        }
        out.push_str(rest);
    }
    out.replace("**", "")
}

/// Columns that help on an option has in 80, beside its name.
const SHORT: usize = 52;

/// The same command line, whose `-h` fits a screen: of each option, its first clause; `--help` has all of it.
pub fn with_short_help(command: clap::Command) -> clap::Command {
    let command =
        command.mut_args(|arg| match (arg.get_help().map(ToString::to_string), arg.get_long_help()) {
            (Some(text), None) => arg.help(first_clause(&text).to_owned()).long_help(text),
            _ => arg,
        });
    command.mut_subcommands(with_short_help)
}

/// As much of a sentence as fits, up to where a clause ends; all of it, if none ends so early.
fn first_clause(text: &str) -> &str {
    if text.chars().count() <= SHORT {
        return text;
    }
    let ends = [", ", "; ", ": ", " (", " ["].iter().flat_map(|mark| text.match_indices(mark));
    let end = ends.map(|(at, _)| at).filter(|at| (12..=SHORT).contains(at) && is_closed(&text[..*at])).max();
    end.map_or(text, |end| &text[..end])
}

/// Whether no parenthesis and no tick is open at its end.
fn is_closed(text: &str) -> bool {
    let n = |c: char| text.matches(c).count();
    n('(') == n(')') && n('[') == n(']') && n('`') % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_markdown_are_gone_and_what_was_typed_is_as_it_was() {
        let text = "# engraft show: what\n\nOne `a*b` and **bold** of\n[a link](b.md), [start, end] too.\n\n```\n$ engraft show `x` **y**\n\nout  put\n```\n- an item\n- two\n";
        let style = Style { width: 30, is_coloured: false, has_own_lines: false };
        let want = "ENGRAFT SHOW: WHAT\n\nOne a*b and bold of a link,\n[start, end] too.\n\n    $ engraft show `x` **y**\n    \n    out  put\n- an item\n- two\n";
        assert_eq!(rendered(text, style), want);
    }

    #[test]
    fn a_clause_ends_where_it_may() {
        for (text, want) in [
            ("Short", "Short"),
            (
                "Where to write the recording [default: PROGRAM.count.engraft, the one before]",
                "Where to write the recording",
            ),
            (
                "Threads to use, at most 8 for each core [default: as many as there are cores]",
                "Threads to use, at most 8 for each core",
            ),
            (
                "Words without any mark that go on and on and on beyond what there is room for",
                "Words without any mark that go on and on and on beyond what there is room for",
            ),
        ] {
            assert_eq!(first_clause(text), want);
        }
    }
}

//! Text that others have written, on a page: nothing of it is markup, or changes what stands around it.
//!
//! A binary may call a function anything. Besides what HTML gives a meaning to, characters that are not seen
//! are shown by their numbers (`\u{202e}`): those that turn the direction of all that follows, join and part
//! letters, or end a text for whoever reads it with a program in C. What is longer than anybody reads is cut.
//!
//! Source: Unicode Technical Report 36 (what is invisible, and bidirectional text); N. Boucher, R. Anderson,
//! "Trojan Source", 2021.

use askama::filters::Escaper;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Bytes of the longest text that is shown whole.
const LONGEST: usize = 4000;

/// Escapes what templates are filled with.
#[derive(Clone, Copy)]
pub struct Inert;

/// Escapes what is read back as it is, such as values of fields: nothing of it is cut or shown by its number.
#[derive(Clone, Copy)]
pub struct Exact;

impl Escaper for Exact {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        for c in text.chars() {
            match is_special(c) {
                true => write!(to, "&#{};", u32::from(c))?,
                false => to.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl Escaper for Inert {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        let mut rest = beginning(text);
        let is_cut = rest.len() < text.len();
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_special(*c)) {
            let (before, behind) = rest.split_at(at);
            to.write_str(before)?;
            match c {
                '<' | '>' | '&' | '"' | '\'' => write!(to, "&#{};", u32::from(c))?,
                c => write!(to, "\\u{{{:x}}}", u32::from(c))?,
            }
            rest = behind.get(c.len_utf8()..).unwrap_or_default();
        }
        to.write_str(rest)?;
        if is_cut { to.write_char('…') } else { Ok(()) }
    }
}

/// A text that is not longer than what is shown of it: the rest needs not be kept for a page.
pub fn cut(text: &str) -> Cow<'_, str> {
    let start = beginning(text);
    if start.len() < text.len() { Cow::Owned(format!("{start}…")) } else { Cow::Borrowed(text) }
}

/// As much of a text as is shown.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}

/// Whether a character is markup, or is not seen and changes how others are.
fn is_special(c: char) -> bool {
    match c {
        '<' | '>' | '&' | '"' | '\'' => true,
        // Spaces, wherever lines are broken.
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut to = String::new();
        Inert.write_escaped_str(&mut to, text).expect("a String takes all");
        to
    }

    #[test]
    fn nothing_of_a_text_is_markup_or_unseen() {
        for (text, expect) in [
            ("main", "main"),
            ("<b onx='\"'>&", "&#60;b onx=&#39;&#34;&#39;&#62;&#38;"),
            ("a\0b\u{1b}[31m\u{7f}\u{85}", "a\\u{0}b\\u{1b}[31m\\u{7f}\\u{85}"),
            ("\u{202e}evil\u{2069}", "\\u{202e}evil\\u{2069}"),
            ("a\u{200b}b\u{feff}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{e0041}"),
            ("ü 🦀 \u{5d0}\n\tx", "ü 🦀 \u{5d0}\n\tx"),
        ] {
            assert_eq!(escaped(text), expect, "{text:?}");
        }
    }

    #[test]
    fn what_is_read_back_is_the_same_text() {
        let mut to = String::new();
        Exact.write_escaped_str(&mut to, "a'\u{202e}<ü").expect("a String takes all");
        assert_eq!(to, "a&#39;&#8238;&#60;ü");
    }

    #[test]
    fn what_is_too_long_is_cut_between_letters() {
        let long = "ü".repeat(5 << 20);
        let shown = escaped(&long);
        assert!(shown.len() <= LONGEST + 3 && shown.ends_with("ü…"), "{} bytes", shown.len());
        assert_eq!(escaped(&cut(&long)), shown);
        assert_eq!(cut("main"), "main");
        assert_eq!(escaped(&"x".repeat(LONGEST)).len(), LONGEST);
    }
}

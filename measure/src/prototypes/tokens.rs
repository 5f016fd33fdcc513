//! C text as tokens. Comments and directives are left out, but for what says where the text comes from and
//! how records are packed.
//!
//! Source: ISO C17, 6.4 (lexical elements); GCC manual, "Preprocessor Output" (line markers).
#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

/// What a token is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// A keyword or a name.
    Word(String),
    /// An integer or a character.
    Integer(i128),
    /// A number with a fraction.
    Fraction,
    /// What stands between quotation marks.
    Text,
    /// An operator.
    Mark(&'static str),
    /// `#pragma pack(...)`: what stands between the parentheses.
    Pack(String),
    /// Nothing follows.
    End,
}

/// Where a token stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Which file, where line markers say it.
    pub file: Option<Arc<str>>,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// Longer ones first.
const MARKS: &[&str] = &[
    "...", "..", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "##", "(", ")", "[", "]", "{", "}",
    ",", ";", ":", "*", "=", ".", "+", "-", "/", "%", "&", "|", "^", "~", "!", "<", ">", "?", "#", "@", "\\",
    "`", "$",
];

/// All tokens, with an `End` behind them.
pub fn tokens(text: &str) -> Vec<(Token, Position)> {
    let mut source = Source { rest: text, line: 1, column: 1, file: None, is_line_start: true };
    let mut found = Vec::new();
    loop {
        source.skip_blank();
        let at = Position { file: source.file.clone(), line: source.line, column: source.column };
        let token = source.token();
        let is_end = token == Some(Token::End);
        found.extend(token.map(|token| (token, at)));
        if is_end {
            return found;
        }
    }
}

struct Source<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
    file: Option<Arc<str>>,
    is_line_start: bool,
}

impl<'a> Source<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
            self.is_line_start = true;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn take_while(&mut self, mut is_wanted: impl FnMut(char) -> bool) -> &'a str {
        let all = self.rest;
        while self.peek().is_some_and(&mut is_wanted) {
            self.take();
        }
        all.get(..all.len() - self.rest.len()).unwrap_or_default()
    }

    /// Takes all up to the text, and the text itself.
    fn take_past(&mut self, end: &str) {
        let until = self.rest.find(end).map_or(0, |at| self.rest.len() - at - end.len());
        while self.rest.len() > until {
            self.take();
        }
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with("/*") {
                self.take();
                self.take();
                self.take_past("*/");
            } else if self.rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("\\\n") {
                self.take();
            } else {
                return;
            }
        }
    }

    fn token(&mut self) -> Option<Token> {
        let Some(c) = self.peek() else { return Some(Token::End) };
        if c == '#' && self.is_line_start {
            return self.directive();
        }
        self.is_line_start = false;
        if c.is_alphabetic() || c == '_' {
            let word = self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '$');
            if matches!(word, "L" | "u" | "U" | "u8") && self.rest.starts_with(['"', '\'']) {
                return self.token();
            }
            return Some(Token::Word(word.to_owned()));
        }
        if c.is_ascii_digit() || c == '.' && self.rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) {
            return Some(self.number());
        }
        if c == '"' || c == '\'' {
            return Some(self.quoted(c));
        }
        if let Some(mark) = MARKS.iter().find(|mark| self.rest.starts_with(**mark)) {
            for _ in 0..mark.len() {
                self.take();
            }
            return Some(Token::Mark(mark));
        }
        // No character of C: what is said of it names its place.
        self.take();
        Some(Token::Mark("?"))
    }

    fn number(&mut self) -> Token {
        let mut before = ' ';
        let all = self.rest;
        while let Some(c) = self.peek() {
            let is_hex = all.starts_with("0x") || all.starts_with("0X");
            let exponents = if is_hex { ['p', 'P'] } else { ['e', 'E'] };
            let is_sign = matches!(c, '+' | '-') && exponents.contains(&before);
            // `0..4` is a range: 0, and then two dots.
            let is_dot = c == '.' && !self.rest.starts_with("..");
            if !(c.is_ascii_alphanumeric() || is_dot || c == '\'' || is_sign) {
                break;
            }
            before = c;
            self.take();
        }
        let text = all.get(..all.len() - self.rest.len()).unwrap_or_default();
        integer(text).map_or(Token::Fraction, Token::Integer)
    }

    fn quoted(&mut self, quote: char) -> Token {
        self.take();
        let mut first = None;
        while let Some(c) = self.take().filter(|c| *c != quote && *c != '\n') {
            let value = if c == '\\' { self.escape() } else { i128::from(u32::from(c)) };
            first = first.or(Some(value));
        }
        if quote == '"' { Token::Text } else { Token::Integer(first.unwrap_or(0)) }
    }

    fn escape(&mut self) -> i128 {
        let value = match self.take() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('v') => '\x0b',
            Some('e') => '\x1b',
            Some('x') => {
                let digits = self.take_while(|c| c.is_ascii_hexdigit());
                return i128::from_str_radix(digits, 16).unwrap_or(0);
            }
            Some(c @ '0'..='7') => {
                let mut n = 0;
                let more = self.take_while(|c| {
                    n += 1;
                    n < 3 && ('0'..='7').contains(&c)
                });
                return i128::from_str_radix(&format!("{c}{more}"), 8).unwrap_or(0);
            }
            Some(c) => c,
            None => '\0',
        };
        i128::from(u32::from(value))
    }

    fn directive(&mut self) -> Option<Token> {
        let mut line = String::new();
        while let Some(c) = self.peek().filter(|c| *c != '\n') {
            if self.rest.starts_with("\\\n") {
                self.take();
            }
            line.push(c);
            self.take();
        }
        let words = line.trim_start_matches('#').trim_start();
        if let Some(pragma) = words.strip_prefix("pragma") {
            let pack = pragma.trim_start().strip_prefix("pack")?.trim_start().strip_prefix('(')?;
            return Some(Token::Pack(pack.split(')').next().unwrap_or_default().to_owned()));
        }
        let marker = words.strip_prefix("line").unwrap_or(words).trim_start();
        let (number, rest) = marker.split_once(' ')?;
        let number: u32 = number.parse().ok()?;
        self.file = rest.split('"').nth(1).map(Arc::from);
        // The line's end, which is still to come, makes it one more.
        self.line = number.saturating_sub(1);
        None
    }
}

/// The value of an integer constant.
fn integer(text: &str) -> Option<i128> {
    let text = text.replace('\'', "");
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (lower.get(2..)?, 16),
        [b'0', b'b', ..] => (lower.get(2..)?, 2),
        [b'0', _, ..] => (lower.get(1..)?, 8),
        _ => (&*lower, 10),
    };
    i128::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']))
}

//! Which calls are recorded, by their arguments: `n > 64 && n < 128`.
//!
//! ```text
//! condition = both ('||' both)*
//! both      = one ('&&' one)*
//! one       = '!' one | '(' condition ')' | operand (('==' | '!=' | '<' | '<=' | '>' | '>=') operand)?
//! operand   = the name of an argument | a number, as C has it
//! ```
//! An operand alone holds if it is not 0. Whole numbers are compared as such, whatever their widths and
//! signs; with a floating-point number, both are `f64`. What is no number compares as C has it.

use super::bytes::Bytes;
use super::plan::ColumnCode;
use program::signature::{Float, Type};
use std::cmp::Ordering;

/// A condition. Names are by their places in [`Condition::names`].
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    names: Vec<String>,
    root: Node,
}

/// How deep expressions may be nested.
const DEEPEST: usize = 64;

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Or(Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Compare(Operand, Relation, Operand),
    Holds(Operand),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operand {
    Name(usize),
    Number(Number),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    Whole(i128),
    Float(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Why a text is no condition.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadCondition {
    /// Something else should stand there.
    #[error("at {at:?}, there should be {wanted}")]
    Unexpected {
        /// What stands there, and behind it.
        at: String,
        /// What should.
        wanted: &'static str,
    },
    /// It is nested too deep.
    #[error("it is nested too deep")]
    Deep,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Condition, BadCondition> {
        let mut parser = Parser { rest: text.trim_start(), names: Vec::new() };
        let root = parser.condition(0)?;
        if !parser.rest.is_empty() {
            return Err(parser.unexpected("an operator, or the end"));
        }
        Ok(Condition { names: parser.names, root })
    }

    /// The names in it, each once.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The condition for records with these columns; `None` if a name is none of theirs, or of no number.
    pub(super) fn bound(&self, columns: &[ColumnCode]) -> Option<Bound> {
        let place = |name: &String| {
            let code = columns.iter().find(|code| code.name == *name)?;
            Some((Bytes::of(code), Reading::of(&code.kind)?))
        };
        let places = self.names.iter().map(place).collect::<Option<_>>()?;
        Some(Bound { places, root: self.root.clone() })
    }

    /// Whether it can be said of records with these columns.
    pub fn fits(&self, columns: &[ColumnCode]) -> bool {
        self.bound(columns).is_some()
    }
}

/// A condition for records of one kind.
pub(super) struct Bound {
    places: Vec<(Bytes, Reading)>,
    root: Node,
}

impl Bound {
    /// Whether it holds of a record.
    pub(super) fn holds(&self, record: &[u8]) -> bool {
        self.is_so(&self.root, record)
    }

    fn is_so(&self, node: &Node, record: &[u8]) -> bool {
        match node {
            Node::Or(a, b) => self.is_so(a, record) || self.is_so(b, record),
            Node::And(a, b) => self.is_so(a, record) && self.is_so(b, record),
            Node::Not(a) => !self.is_so(a, record),
            Node::Holds(a) => Relation::Unequal.holds(self.number(*a, record), Number::Whole(0)),
            Node::Compare(a, relation, b) => relation.holds(self.number(*a, record), self.number(*b, record)),
        }
    }

    fn number(&self, operand: Operand, record: &[u8]) -> Number {
        match operand {
            Operand::Number(number) => number,
            Operand::Name(n) => {
                let place = self.places.get(n);
                let read = place.and_then(|(bytes, reading)| Some(reading.read(bytes.word(record)?.0)));
                read.unwrap_or(Number::Whole(0))
            }
        }
    }
}

/// How a word is read.
#[derive(Clone, Copy)]
enum Reading {
    Unsigned,
    Signed(u32),
    Single,
    Double,
}

impl Reading {
    fn of(kind: &Type) -> Option<Reading> {
        match kind {
            Type::Char { bytes: n @ 1..=8, is_signed } | Type::Integer { bytes: n @ 1..=8, is_signed } => {
                Some(if *is_signed { Reading::Signed(8 * u32::from(*n)) } else { Reading::Unsigned })
            }
            Type::Bool | Type::Pointer(_) => Some(Reading::Unsigned),
            Type::Enum(_) if kind.size() == 4 => Some(Reading::Signed(32)),
            Type::Float(Float::Single) => Some(Reading::Single),
            Type::Float(Float::Double) => Some(Reading::Double),
            _ => None,
        }
    }

    fn read(self, word: u64) -> Number {
        match self {
            Reading::Unsigned => Number::Whole(word.into()),
            Reading::Signed(bits) => {
                let unused = u64::BITS - bits;
                Number::Whole(((word << unused).cast_signed() >> unused).into())
            }
            Reading::Single => {
                let low = u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
                Number::Float(f32::from_bits(low).into())
            }
            Reading::Double => Number::Float(f64::from_bits(word)),
        }
    }
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "as C compares a whole number with another one")]
    fn float(self) -> f64 {
        match self {
            Number::Whole(n) => n as f64,
            Number::Float(n) => n,
        }
    }
}

impl Relation {
    fn holds(self, a: Number, b: Number) -> bool {
        let order = match (a, b) {
            (Number::Whole(a), Number::Whole(b)) => Some(a.cmp(&b)),
            _ => a.float().partial_cmp(&b.float()),
        };
        match self {
            Relation::Equal => order == Some(Ordering::Equal),
            Relation::Unequal => order != Some(Ordering::Equal),
            Relation::Less => order == Some(Ordering::Less),
            Relation::LessOrEqual => order.is_some_and(Ordering::is_le),
            Relation::Greater => order == Some(Ordering::Greater),
            Relation::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
    names: Vec<String>,
}

impl<'t> Parser<'t> {
    fn unexpected(&self, wanted: &'static str) -> BadCondition {
        BadCondition::Unexpected { at: self.rest.to_owned(), wanted }
    }

    fn skip(&mut self, n: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest.trim_start();
        taken
    }

    fn take(&mut self, mark: &str) -> bool {
        let is = self.rest.starts_with(mark);
        if is {
            self.skip(mark.len());
        }
        is
    }

    fn condition(&mut self, depth: usize) -> Result<Node, BadCondition> {
        let mut node = self.both(depth)?;
        while self.take("||") {
            node = Node::Or(Box::new(node), Box::new(self.both(depth)?));
        }
        Ok(node)
    }

    fn both(&mut self, depth: usize) -> Result<Node, BadCondition> {
        let mut node = self.one(depth)?;
        while self.take("&&") {
            node = Node::And(Box::new(node), Box::new(self.one(depth)?));
        }
        Ok(node)
    }

    fn one(&mut self, depth: usize) -> Result<Node, BadCondition> {
        if depth > DEEPEST {
            return Err(BadCondition::Deep);
        }
        if self.take("!") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.take("(") {
            let node = self.condition(depth + 1)?;
            return if self.take(")") { Ok(node) } else { Err(self.unexpected("an operator, or )")) };
        }
        let a = self.operand()?;
        // The longer ones first.
        let relations = [
            ("==", Relation::Equal),
            ("!=", Relation::Unequal),
            ("<=", Relation::LessOrEqual),
            (">=", Relation::GreaterOrEqual),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        let relation = relations.iter().find(|(mark, _)| self.rest.starts_with(mark));
        let Some((mark, relation)) = relation else { return Ok(Node::Holds(a)) };
        self.skip(mark.len());
        Ok(Node::Compare(a, *relation, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, BadCondition> {
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let wanted = "an argument's name, or a number";
        if self.rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            let len = self.rest.find(|c| !is_of_name(c)).unwrap_or(self.rest.len());
            let name = self.skip(len).to_owned();
            let known = self.names.iter().position(|known| *known == name);
            return Ok(Operand::Name(known.unwrap_or_else(|| {
                self.names.push(name);
                self.names.len() - 1
            })));
        }
        let before = self.rest;
        let is_negative = self.take("-");
        let mut before_it = ' ';
        let len = self.rest.find(|c: char| {
            let is_sign = matches!((before_it, c), ('e' | 'E', '+' | '-'));
            before_it = c;
            !(is_sign || c.is_ascii_alphanumeric() || c == '.')
        });
        let len = len.unwrap_or(self.rest.len());
        let number = number(self.skip(len));
        let number = number.ok_or_else(|| BadCondition::Unexpected { at: before.to_owned(), wanted })?;
        Ok(Operand::Number(match number {
            Number::Whole(n) if is_negative => Number::Whole(-n),
            Number::Float(n) if is_negative => Number::Float(-n),
            number => number,
        }))
    }
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let whole = match hex {
        Some(digits) => Some(u64::from_str_radix(digits, 16).ok()?.into()),
        None => text.parse::<u64>().ok().map(i128::from),
    };
    whole.map(Number::Whole).or_else(|| text.parse().ok().map(Number::Float))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a condition holds of an `int` n, an `unsigned long` u and a `double` x.
    fn holds(text: &str, n: i32, u: u64, x: f64) -> bool {
        let column = |name: &str, kind: Type, at, len| ColumnCode {
            name: name.to_owned(),
            type_name: String::new(),
            kind,
            parts: vec![(at, 0, len)],
            line: None,
        };
        let columns = [
            column("n", Type::Integer { bytes: 4, is_signed: true }, 4, 4),
            column("u", Type::Integer { bytes: 8, is_signed: false }, 8, 8),
            column("x", Type::Float(Float::Double), 16, 8),
        ];
        let record = [&[0; 4][..], &n.to_le_bytes(), &u.to_le_bytes(), &x.to_le_bytes()].concat();
        let bound = Condition::parse(text).expect("it is one").bound(&columns);
        bound.expect("all of it is there").holds(&record)
    }

    #[test]
    fn numbers_are_compared_as_what_they_are() {
        for (text, want) in [
            ("n < 0", true),
            ("n == -5 && u == 0xffffffffffffffff", true),
            ("n > u", false),
            ("u > 18446744073709551614", true),
            ("x == 2.5", true),
            ("x<=25e-1&&x>=2.5", true),
            ("x > -1e+3", true),
            ("x > n", true),
            ("!(n == -5) || x < 0", false),
            ("n == 1 || n == -5 && x != 2.5", false),
            ("(n == 1 || n == -5) && x", true),
            ("!n", false),
        ] {
            assert_eq!(holds(text, -5, u64::MAX, 2.5), want, "{text}");
        }
        assert!(!holds("x < 1 || x > 0 || x == x", 0, 0, f64::NAN) && holds("x != x", 0, 0, f64::NAN));
    }

    #[test]
    fn what_is_no_condition_is_named() {
        let said = |text: &str| Condition::parse(text).expect_err("it is none").to_string();
        assert_eq!(said("n >"), "at \"\", there should be an argument's name, or a number");
        assert_eq!(said("n = 3"), "at \"= 3\", there should be an operator, or the end");
        assert_eq!(said("(n"), "at \"\", there should be an operator, or )");
        assert_eq!(said("n < 3x"), "at \"3x\", there should be an argument's name, or a number");
        assert_eq!(said(&"(".repeat(99)), "it is nested too deep");
        assert_eq!(Condition::parse("a < b || b < c").expect("it is one").names(), ["a", "b", "c"]);
    }

    #[test]
    fn what_has_not_all_of_its_names_is_none_of_its_matter() {
        let condition = Condition::parse("n > 3").expect("it is one");
        assert!(!condition.fits(&[]));
    }
}

//! Expressions of metrics: `dyn.agg.total > 1.02 and any(function, new.dyn.cat.DIV > 1000)`.
//!
//! ```text
//! or     = and { "or" and }             and  = compared { "and" compared }
//! compared = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum    = product { ("+" | "-" | "−") product }
//! product = factor { ("*" | "×" | "/" | "÷") factor }
//! factor = NUMBER | NAME | "-" factor | "(" or ")" | "any" "(" ("function" | "interval") "," or ")"
//! ```
//! A metric's name is what the new build has of it over what the old one has; behind `old.` and `new.` it is
//! that of one build. Parts that have nothing of what is asked for, in either build, are left out of
//! `any`. What is divided by 0 is not known, nor is what is computed of what is not known; a
//! condition that decides without it is known.

use program::mix::is_metric;
use std::fmt;

/// What metrics of events begin with that no instruction says of itself.
pub const EVENTS: &str = "dyn.pmu.";

/// A value: not known, a number, or whether something holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// Nobody knows.
    Unknown,
    /// A number.
    Number(f64),
    /// Whether it holds.
    Truth(bool),
}

/// Of what some are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// All functions.
    Function,
    /// All intervals.
    Interval,
}

/// Of which build a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The old one.
    Old,
    /// The new one.
    New,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Or,
    And,
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    Over,
}

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    node: Node,
    text: String,
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Number(f64),
    Metric(Which, String),
    Any(Of, Box<Node>),
    Two(Operator, Box<Node>, Box<Node>),
}

/// What is wrong with a text of an expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} at `{rest}`")]
pub struct NotAnExpression {
    /// What is wrong.
    pub what: String,
    /// Where: what is left there.
    pub rest: String,
}

/// Where metrics are looked up.
pub trait Metrics {
    /// What it is that has them.
    fn name(&self) -> String;
    /// How much of the metric `name` one build has; `None` if that is not known.
    fn metric(&self, which: Which, name: &str) -> Option<f64>;
    /// The parts of one kind.
    fn parts(&self, of: Of) -> Vec<&dyn Metrics>;
}

impl Expression {
    /// Reads a text.
    ///
    /// # Errors
    /// If it is none: what is wrong, and where.
    pub fn parse(text: &str) -> Result<Expression, NotAnExpression> {
        let mut parser = Parser { rest: text.trim_start(), depth: 0, is_in_any: false };
        let node = parser.or()?;
        match parser.rest.is_empty() {
            true => Ok(Expression { node, text: text.trim().to_owned() }),
            false => Err(parser.wrong("nothing more is expected")),
        }
    }

    /// Reads a text of what holds or does not.
    ///
    /// # Errors
    /// If it is none: what is wrong, and where.
    pub fn condition(text: &str) -> Result<Expression, NotAnExpression> {
        let expression = Expression::parse(text)?;
        match is_condition(&expression.node) {
            true => Ok(expression),
            false => {
                let what = "a condition is expected, as `dyn.agg.total > 1.01`, no number".to_owned();
                Err(NotAnExpression { what, rest: text.chars().take(40).collect() })
            }
        }
    }

    /// What it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it follows from, where it holds or is not known: its metrics, and the parts that it is so of.
    pub fn because(&self, metrics: &dyn Metrics) -> Vec<String> {
        let mut all = Vec::new();
        because(&self.node, metrics, &mut all);
        all.dedup();
        all
    }

    /// What it comes to.
    pub fn value(&self, metrics: &dyn Metrics) -> Value {
        value(&self.node, metrics)
    }
}

/// Whether it holds or does not, and is no number.
fn is_condition(node: &Node) -> bool {
    use Operator as O;
    match node {
        Node::Number(_) | Node::Metric(..) => false,
        Node::Any(_, node) => is_condition(node),
        Node::Two(O::Or | O::And, a, b) => is_condition(a) && is_condition(b),
        Node::Two(operator, a, b) => {
            let compares = !matches!(operator, O::Plus | O::Minus | O::Times | O::Over);
            compares && !is_condition(a) && !is_condition(b)
        }
    }
}

fn because(node: &Node, metrics: &dyn Metrics, all: &mut Vec<String>) {
    match node {
        Node::Number(_) => {}
        Node::Metric(_, name) => {
            let [old, new] = [Which::Old, Which::New].map(|which| match metrics.metric(which, name) {
                Some(n) => n.to_string(),
                None => "unknown".to_owned(),
            });
            all.push(format!("{name} of {}: {old}, then {new}", metrics.name()));
        }
        Node::Any(of, node) => {
            let parts = metrics.parts(*of);
            let is = |wanted: Value| {
                parts.iter().find(|part| has_any(node, **part) && value(node, **part) == wanted)
            };
            if let Some(part) = is(Value::Truth(true)).or_else(|| is(Value::Unknown)) {
                because(node, *part, all);
            }
        }
        Node::Two(_, a, b) => {
            because(a, metrics, all);
            because(b, metrics, all);
        }
    }
}

fn value(node: &Node, metrics: &dyn Metrics) -> Value {
    match node {
        Node::Number(n) => Value::Number(*n),
        Node::Metric(which, name) => metrics.metric(*which, name).map_or(Value::Unknown, Value::Number),
        Node::Any(of, node) => {
            let parts = metrics.parts(*of).into_iter().filter(|part| has_any(node, *part));
            let all = parts.map(|part| value(node, part));
            all.fold(Value::Truth(false), |any, one| logical(Operator::Or, any, one))
        }
        Node::Two(operator @ (Operator::Or | Operator::And), a, b) => {
            logical(*operator, value(a, metrics), value(b, metrics))
        }
        Node::Two(operator, a, b) => match (value(a, metrics), value(b, metrics)) {
            (Value::Number(a), Value::Number(b)) => of_numbers(*operator, a, b),
            _ => Value::Unknown,
        },
    }
}

/// Whether a part has anything of what is asked for in either build, or something is not known: else there
/// is nothing to be compared.
fn has_any(node: &Node, part: &dyn Metrics) -> bool {
    fn metrics(node: &Node, all: &mut Vec<(Which, String)>) {
        match node {
            Node::Number(_) => {}
            Node::Metric(which, name) => all.push((*which, name.clone())),
            Node::Any(_, node) => metrics(node, all),
            Node::Two(_, a, b) => {
                metrics(a, all);
                metrics(b, all);
            }
        }
    }
    let mut all = Vec::new();
    metrics(node, &mut all);
    all.is_empty() || all.iter().any(|(which, name)| part.metric(*which, name) != Some(0.0))
}

fn logical(operator: Operator, a: Value, b: Value) -> Value {
    // What decides whatever the other one is.
    let decides = Value::Truth(operator == Operator::Or);
    match (a, b) {
        _ if a == decides || b == decides => decides,
        (Value::Truth(_), Value::Truth(_)) => Value::Truth(operator == Operator::And),
        _ => Value::Unknown,
    }
}

fn of_numbers(operator: Operator, a: f64, b: f64) -> Value {
    let number = |n: f64| if n.is_finite() { Value::Number(n) } else { Value::Unknown };
    match operator {
        Operator::Plus => number(a + b),
        Operator::Minus => number(a - b),
        Operator::Times => number(a * b),
        Operator::Over => number(a / b),
        Operator::Less => Value::Truth(a < b),
        Operator::AtMost => Value::Truth(a <= b),
        Operator::More => Value::Truth(a > b),
        Operator::AtLeast => Value::Truth(a >= b),
        #[expect(clippy::float_cmp, reason = "counts are exact")]
        Operator::Equal => Value::Truth(a == b),
        #[expect(clippy::float_cmp, reason = "counts are exact")]
        Operator::Unequal => Value::Truth(a != b),
        Operator::Or | Operator::And => Value::Unknown,
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// How many expressions this one is in.
    depth: u32,
    /// Whether it is of a part.
    is_in_any: bool,
}

/// So many expressions are in one another at most.
const MOST_DEEP: u32 = 64;

type Parsed = Result<Node, NotAnExpression>;

impl<'a> Parser<'a> {
    fn wrong(&self, what: impl fmt::Display) -> NotAnExpression {
        NotAnExpression { what: what.to_string(), rest: self.rest.chars().take(40).collect() }
    }

    /// Goes on behind `word`, if it is there.
    fn takes(&mut self, word: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(word) else { return false };
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        if word.ends_with(is_name) && rest.starts_with(is_name) {
            return false;
        }
        self.rest = rest.trim_start();
        true
    }

    fn expects(&mut self, word: &str) -> Result<(), NotAnExpression> {
        match self.takes(word) {
            true => Ok(()),
            false => Err(self.wrong(format_args!("`{word}` is expected"))),
        }
    }

    /// Operators of one level, from the left.
    fn level(&mut self, operators: &[(&str, Operator)], next: fn(&mut Self) -> Parsed) -> Parsed {
        let mut node = next(self)?;
        while let Some((_, operator)) = operators.iter().find(|(word, _)| self.takes(word)) {
            node = Node::Two(*operator, Box::new(node), Box::new(next(self)?));
        }
        Ok(node)
    }

    fn or(&mut self) -> Parsed {
        self.deeper(|parser| parser.level(&[("or", Operator::Or)], Parser::and))
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth == MOST_DEEP {
            return Err(self.wrong(format_args!("at most {MOST_DEEP} of these are expected in one another")));
        }
        self.depth += 1;
        let node = read(self);
        self.depth -= 1;
        node
    }

    fn and(&mut self) -> Parsed {
        self.level(&[("and", Operator::And)], Parser::compared)
    }

    fn compared(&mut self) -> Parsed {
        const OPERATORS: [(&str, Operator); 6] = [
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("<", Operator::Less),
            (">", Operator::More),
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
        ];
        let node = self.sum()?;
        match OPERATORS.iter().find(|(word, _)| self.takes(word)) {
            Some((_, operator)) => Ok(Node::Two(*operator, Box::new(node), Box::new(self.sum()?))),
            None => Ok(node),
        }
    }

    fn sum(&mut self) -> Parsed {
        let operators = [("+", Operator::Plus), ("-", Operator::Minus), ("−", Operator::Minus)];
        self.level(&operators, Parser::product)
    }

    fn product(&mut self) -> Parsed {
        let (times, over) = (Operator::Times, Operator::Over);
        self.level(&[("*", times), ("×", times), ("/", over), ("÷", over)], Parser::factor)
    }

    fn factor(&mut self) -> Parsed {
        if self.takes("-") || self.takes("−") {
            let node = self.deeper(Parser::factor)?;
            return Ok(Node::Two(Operator::Minus, Box::new(Node::Number(0.0)), Box::new(node)));
        }
        if self.takes("(") {
            let node = self.or()?;
            return self.expects(")").map(|()| node);
        }
        // Names of events have more in them.
        let is_event = self.rest.trim_start_matches("old.").trim_start_matches("new.").starts_with(EVENTS);
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || is_event && "-:/".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if let Ok(n) = word.parse::<f64>()
            && word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        {
            self.rest = rest.trim_start();
            return Ok(Node::Number(n));
        }
        if word == "any" {
            self.rest = rest.trim_start();
            return self.any();
        }
        let (which, name) = match word.strip_prefix("old.").map(|name| (Which::Old, name)) {
            Some(found) => (Some(found.0), found.1),
            None => match word.strip_prefix("new.") {
                Some(name) => (Some(Which::New), name),
                None => (None, word),
            },
        };
        let is_event = name.starts_with(EVENTS) && name.len() > EVENTS.len();
        if !is_known(name) && !is_event {
            return Err(self.wrong("a metric, a number or any(…) is expected"));
        }
        if name == "share" && !self.is_in_any {
            return Err(self.wrong("a share is one of a part: any(function, share > 0.1) is expected"));
        }
        self.rest = rest.trim_start();
        let metric = |which| Node::Metric(which, name.to_owned());
        Ok(match which {
            Some(which) => metric(which),
            None => Node::Two(Operator::Over, Box::new(metric(Which::New)), Box::new(metric(Which::Old))),
        })
    }

    fn any(&mut self) -> Parsed {
        if self.is_in_any {
            return Err(self.wrong("parts have no parts: a metric or a number is expected"));
        }
        self.expects("(")?;
        let of = match () {
            () if self.takes("function") => Of::Function,
            () if self.takes("interval") => Of::Interval,
            () => return Err(self.wrong("`function` or `interval` is expected")),
        };
        self.expects(",")?;
        self.is_in_any = true;
        let node = self.or();
        self.is_in_any = false;
        let node = node?;
        self.expects(")")?;
        Ok(Node::Any(of, Box::new(node)))
    }
}

/// Whether there is a metric of this name: `dyn.` or `stat.` and what [`program::Metric`] has, `calls`, or
/// `share`: of all instructions of the run, of a part of it.
pub fn is_known(name: &str) -> bool {
    let of_code = name.strip_prefix("dyn.").or_else(|| name.strip_prefix("stat."));
    name == "calls" || name == "share" || of_code.is_some_and(is_metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(f64, f64, Vec<Numbers>);

    impl Metrics for Numbers {
        fn name(&self) -> String {
            format!("{}~{}", self.0, self.1)
        }
        fn metric(&self, which: Which, name: &str) -> Option<f64> {
            let n = if which == Which::Old { self.0 } else { self.1 };
            (name == "dyn.agg.total").then_some(n)
        }
        fn parts(&self, of: Of) -> Vec<&dyn Metrics> {
            if of == Of::Function {
                self.2.iter().map(|part| part as &dyn Metrics).collect()
            } else {
                Vec::new()
            }
        }
    }

    #[test]
    fn expressions_come_to_what_arithmetic_says() {
        let parts = vec![Numbers(10.0, 10.0, Vec::new()), Numbers(0.0, 4.0, Vec::new())];
        let metrics = Numbers(100.0, 130.0, parts);
        for (text, want) in [
            ("1 + 2 * 3", Value::Number(7.0)),
            ("(1 + 2) × 3 − 1", Value::Number(8.0)),
            ("-2 ÷ 4", Value::Number(-0.5)),
            ("dyn.agg.total", Value::Number(1.3)),
            ("new.dyn.agg.total - old.dyn.agg.total", Value::Number(30.0)),
            ("dyn.agg.total > 1.2", Value::Truth(true)),
            ("dyn.agg.total > 1.2 and 1 > 2 or 2 == 2", Value::Truth(true)),
            ("1 / 0", Value::Unknown),
            ("1 / 0 > 3", Value::Unknown),
            ("1 / 0 > 3 or 1 < 2", Value::Truth(true)),
            ("1 / 0 > 3 and 1 > 2", Value::Truth(false)),
            ("dyn.cat.DIV > 1", Value::Unknown),
            ("any(function, new.dyn.agg.total == 4)", Value::Truth(true)),
            ("any(function, new.dyn.agg.total == 5)", Value::Truth(false)),
            ("any(function, dyn.agg.total > 2)", Value::Unknown),
            ("any(interval, 1 == 1)", Value::Truth(false)),
            ("any(function, dyn.agg.total > 2 or new.dyn.agg.total == 4)", Value::Truth(true)),
        ] {
            let expression = Expression::parse(text).expect(text);
            assert_eq!(expression.value(&metrics), want, "{text}");
        }
    }

    #[test]
    fn parts_that_have_nothing_are_not_asked() {
        let parts = vec![Numbers(10.0, 10.0, Vec::new()), Numbers(0.0, 0.0, Vec::new())];
        let metrics = Numbers(100.0, 130.0, parts);
        let value = |text: &str| Expression::condition(text).expect(text).value(&metrics);
        assert_eq!(value("any(function, dyn.agg.total > 2)"), Value::Truth(false));
        assert_eq!(value("any(function, dyn.agg.total < 2)"), Value::Truth(true));
    }

    #[test]
    fn conditions_say_what_they_follow_from() {
        let parts = vec![Numbers(10.0, 10.0, Vec::new()), Numbers(0.0, 4.0, Vec::new())];
        let metrics = Numbers(100.0, 130.0, parts);
        let because = |text: &str| Expression::condition(text).expect(text).because(&metrics);
        assert_eq!(because(" dyn.agg.total > 1.2 "), ["dyn.agg.total of 100~130: 100, then 130"]);
        let of_part = ["dyn.agg.total of 0~4: 0, then 4"];
        assert_eq!(because("any(function, new.dyn.agg.total == 4)"), of_part);
        let event = ["dyn.pmu.page-faults:u of 100~130: unknown, then unknown"];
        assert_eq!(because("new.dyn.pmu.page-faults:u > 2"), event);
        for text in ["dyn.agg.total", "1 + 2", "any(function, 1)", "(1 < 2) + 3", "1 < 2 and 3"] {
            let err = Expression::condition(text).expect_err(text);
            assert!(err.what.contains("a condition is expected"), "{text}: {err}");
        }
    }

    #[test]
    fn expressions_that_are_too_deep_are_none() {
        for deep in ["(".repeat(100_000), "-".repeat(100_000), "any(function, ".repeat(100_000)] {
            Expression::parse(&deep).expect_err("too deep");
        }
    }

    #[test]
    fn what_is_none_says_where() {
        for (text, rest) in [
            ("", ""),
            ("1 +", ""),
            ("(1", ""),
            ("dyn.agg.totals > 1", "dyn.agg.totals > 1"),
            ("1 < 2 < 3", "< 3"),
            ("any(loop, 1)", "loop, 1)"),
            ("1 2", "2"),
            ("order > 1", "order > 1"),
            ("share > 1", "share > 1"),
            ("any(function, any(interval, 1 < 2))", "(interval, 1 < 2))"),
            ("dyn.pmu. > 1", "dyn.pmu. > 1"),
        ] {
            let err = Expression::parse(text).expect_err(text);
            assert_eq!(err.rest, rest, "{text}: {err}");
        }
    }
}

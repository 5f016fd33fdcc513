//! Which memory is read with a call: expressions over its parameters.
//!
//! Source: ISO C17, 6.5.2 and 6.5.3 (postfix and unary operators), without anything that computes.
#![warn(clippy::indexing_slicing)]

use super::parser::Scope;
use super::tokens::{Token, tokens};
use program::signature::{Pointee, Read, Signature, Type};

/// How many values a range may have.
const MOST_VALUES: i128 = 1024;
/// How many pointers may be followed, and how deep expressions go.
const MOST_STEPS: usize = 64;

/// Something that an expression names.
#[derive(Clone)]
struct Place {
    /// None: the result.
    parameter: Option<usize>,
    /// Where it begins in the parameter's value, until a pointer is followed.
    within: u64,
    /// As in [`Read`]; none, as long as it is the value itself.
    steps: Vec<i64>,
    kind: Type,
    /// As it is written, for each of a range.
    name: String,
}

/// What `request` reads, and by which parameter.
pub fn reads(
    scope: &Scope,
    signature: &Signature,
    request: &str,
) -> Result<(Option<usize>, Vec<Read>), String> {
    let tokens = tokens(request).into_iter().map(|t| t.0).collect();
    let mut parser = Requests { tokens, next: 0, scope, signature };
    let places = parser.unary(0)?;
    let is_text = parser.take(":");
    if is_text && parser.word().as_deref() != Some("str") {
        return Err("only `:str` may follow".to_owned());
    }
    if *parser.peek() != Token::End {
        return Err("more follows than an expression".to_owned());
    }
    let parameter = places.first().and_then(|p| p.parameter);
    let reads = places.into_iter().map(|place| if is_text { text(place) } else { value(scope, place) });
    Ok((parameter, reads.collect::<Result<_, _>>()?))
}

fn value(scope: &Scope, place: Place) -> Result<Read, String> {
    let kind = scope.resolve(&place.kind);
    if place.steps.is_empty() {
        return Err("it is passed itself: nothing is to be read of memory".to_owned());
    }
    if kind.size() == 0 {
        return Err(format!("it is of type `{kind}`, of which no size is known"));
    }
    Ok(Read { name: place.name, within: place.within, steps: place.steps, what: Pointee::Value(kind) })
}

fn text(place: Place) -> Result<Read, String> {
    let mut place = match place.kind {
        Type::Pointer(_) => followed(place, 0)?,
        Type::Array { .. } if !place.steps.is_empty() => place,
        kind => return Err(format!("it is of type `{kind}`, which points to no text")),
    };
    place.name.push_str(":str");
    Ok(Read { name: place.name, within: place.within, steps: place.steps, what: Pointee::Text })
}

/// The value that a pointer points to, `offset` bytes further on.
fn followed(mut place: Place, offset: i64) -> Result<Place, String> {
    let Type::Pointer(of) = place.kind else {
        return Err(format!("`{}` is of type `{}`, no pointer", place.name, place.kind));
    };
    if place.steps.len() >= MOST_STEPS {
        return Err("too many pointers are followed".to_owned());
    }
    place.steps.push(offset);
    Ok(Place { kind: *of, ..place })
}

struct Requests<'a> {
    tokens: Vec<Token>,
    next: usize,
    scope: &'a Scope,
    signature: &'a Signature,
}

impl Requests<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&Token::End)
    }

    fn take(&mut self, mark: &str) -> bool {
        let is = matches!(self.peek(), Token::Mark(m) if *m == mark);
        self.next += usize::from(is);
        is
    }

    fn word(&mut self) -> Option<String> {
        let Token::Word(word) = self.peek().clone() else { return None };
        self.next += 1;
        Some(word)
    }

    fn unary(&mut self, depth: usize) -> Result<Vec<Place>, String> {
        if depth > MOST_STEPS {
            return Err("nested too deep".to_owned());
        }
        if self.take("*") {
            let inner = self.unary(depth + 1)?;
            return inner
                .into_iter()
                .map(|place| self.element(place, 0, |name| format!("*{name}")))
                .collect();
        }
        let mut places = self.primary(depth)?;
        loop {
            if self.take("->") {
                let name = self.word().ok_or("a field's name must follow `->`")?;
                let each = places.into_iter().map(|place| {
                    let shown = format!("{}->{name}", place.name);
                    let place = self.element(place, 0, |_| shown.clone())?;
                    self.field(place, &name, shown)
                });
                places = each.collect::<Result<_, _>>()?;
            } else if self.take(".") {
                let name = self.word().ok_or("a field's name must follow `.`")?;
                let each = places.into_iter().map(|place| {
                    let shown = format!("{}.{name}", place.name);
                    self.field(place, &name, shown)
                });
                places = each.collect::<Result<_, _>>()?;
            } else if self.take("[") {
                let range = self.range()?;
                if i128::try_from(places.len()).unwrap_or(MOST_VALUES) * (range.end - range.start)
                    > MOST_VALUES
                {
                    return Err(format!("more than {MOST_VALUES} values at once"));
                }
                let mut all = Vec::new();
                for place in places {
                    for n in range.clone() {
                        all.push(self.element(place.clone(), n, |name| format!("{name}[{n}]"))?);
                    }
                }
                places = all;
            } else {
                return Ok(places);
            }
        }
    }

    fn primary(&mut self, depth: usize) -> Result<Vec<Place>, String> {
        if self.take("(") {
            let mut places = self.unary(depth + 1)?;
            if !self.take(")") {
                return Err("a `)` is missing".to_owned());
            }
            for place in &mut places {
                place.name = format!("({})", place.name);
            }
            return Ok(places);
        }
        let name = self.word().ok_or("a parameter's name must stand there")?;
        let place = |parameter, kind: &Type| {
            let (kind, name) = (kind.clone(), name.clone());
            Ok(vec![Place { parameter, within: 0, steps: Vec::new(), kind, name }])
        };
        if let Some(n) = self.signature.parameters.iter().position(|p| p.name == name) {
            return place(Some(n), self.signature.parameters.get(n).map_or(&Type::Void, |p| &p.kind));
        }
        if name == "return" {
            return place(None, &self.signature.result);
        }
        let names: Vec<&str> = self.signature.parameters.iter().map(|p| p.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(format!("no parameter is called `{name}` (there are: {names})"))
    }

    /// `n`, or `n..m`: without m. A bracket follows.
    fn range(&mut self) -> Result<std::ops::Range<i128>, String> {
        let from = self.number()?;
        let to = if self.take("..") { self.number()? } else { from + 1 };
        if !self.take("]") {
            return Err("a `]` is missing".to_owned());
        }
        if to <= from || to - from > MOST_VALUES {
            return Err(format!("{from}..{to} are not 1 to {MOST_VALUES} values"));
        }
        Ok(from..to)
    }

    fn number(&mut self) -> Result<i128, String> {
        let is_negative = self.take("-");
        let Token::Integer(n) = *self.peek() else {
            return Err("a number must stand between `[` and `]`".to_owned());
        };
        self.next += 1;
        let n = if is_negative { n.wrapping_neg() } else { n };
        if n.abs_diff(0) > 1 << 40 { Err(format!("{n} is too far")) } else { Ok(n) }
    }

    /// The `n`th element of an array, or of what a pointer points to.
    fn element(&self, mut place: Place, n: i128, name: impl Fn(&str) -> String) -> Result<Place, String> {
        let shown = name(&place.name);
        place.kind = self.scope.resolve(&place.kind);
        let of = match &place.kind {
            Type::Pointer(of) | Type::Array { of, .. } => self.scope.resolve(of),
            kind => return Err(format!("`{}` is of type `{kind}`, no pointer", place.name)),
        };
        if n != 0 && of.size() == 0 {
            return Err(format!("`{}` points to `{of}`, of which no size is known", place.name));
        }
        let offset = n.checked_mul(i128::from(of.size())).and_then(|n| i64::try_from(n).ok());
        let offset = offset.ok_or_else(|| format!("`{shown}` is too far"))?;
        let mut place = match place.kind {
            Type::Pointer(_) => followed(place, offset)?,
            _ => further(place, offset)?,
        };
        (place.kind, place.name) = (of, shown);
        Ok(place)
    }

    fn field(&self, place: Place, field: &str, shown: String) -> Result<Place, String> {
        let kind = self.scope.resolve(&place.kind);
        if let Type::Named(name) = &kind {
            return Err(format!(
                "of `{name}` only the name is known: declare its fields in front, or give its header"
            ));
        }
        let found = kind.field(field).ok_or_else(|| format!("`{kind}` has no field `{field}`"))?;
        if found.bits.is_some() {
            return Err(format!("`{field}` is a bit-field: read the whole `{}`", place.name));
        }
        let offset = i64::try_from(found.at).map_err(|_| format!("`{field}` is too far"))?;
        let mut place = further(place, offset)?;
        (place.kind, place.name) = (found.kind, shown);
        Ok(place)
    }
}

/// The place `offset` bytes further on.
fn further(mut place: Place, offset: i64) -> Result<Place, String> {
    let moved = match place.steps.last_mut() {
        Some(last) => last.checked_add(offset).map(|at| *last = at),
        None => place.within.checked_add_signed(offset).map(|at| place.within = at),
    };
    moved.map(|()| place).ok_or_else(|| "too far".to_owned())
}

//! Plans as text: a line a probe.
//!
//! ```text
//! plan   = (line | 'blocks' | '#' anything | nothing)*     blocks: a counter a block, too
//! line   = point place action
//! point  = entry | exit | return | block | before | after | loop-entry | back-edge | loop-exit | edge
//! place  = address | function | function '+' address    two of them for edge: the starts of two blocks
//! action = count | last value | ring value length? | histogram value
//! value  = a general register | memory | address | flags | time
//! ```
//! Addresses are in hexadecimal, as in the ELF file; a loop is named by the start of its header. A name means
//! all functions that bear it, and in place of a resolver what that may return: a probe each.
//!
//! Not here: what functions are called (who asks knows), how a plan is carried out (`probe`).

use crate::kept::{AT, Keeps, Watch};
use probe::{Action, Counting, Plan, Point, Probe, Sink, Value, general_register};
use program::{Bearer, BlockId, Program, Va};

/// How many values a ring holds if its line does not say.
const RING: u32 = 256;

/// A plan, with the line of each probe.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Points {
    /// What is put where.
    pub plan: Plan,
    /// The lines, one a probe: number in the text, and what it says; where it means several places, which of
    /// them.
    pub lines: Vec<(usize, String)>,
    /// Addresses of resolvers that were named and may return what is not known, too.
    pub unsure: Vec<Va>,
}

/// What is wrong with a plan's text.
#[derive(Debug, thiserror::Error)]
pub enum PointsError {
    /// A line is not of the form that it should have.
    #[error("line {line}: {what}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A function is not there.
    #[error("line {line}")]
    Function {
        /// Which, from 1.
        line: usize,
        /// What is said of it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Reads `text`; `functions` knows all functions that bear a name.
///
/// # Errors
/// The first line that cannot be understood.
pub fn parse<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    text: &str,
    program: &Program,
    functions: impl Fn(&str) -> Result<Vec<Bearer>, E>,
) -> Result<Points, PointsError> {
    let mut points = Points::default();
    for (n, whole) in text.lines().enumerate() {
        let line = n + 1;
        let bad = |what: String| PointsError::Line { line, what };
        let words: Vec<&str> = whole.split('#').next().unwrap_or_default().split_whitespace().collect();
        let Some((&kind, rest)) = words.split_first() else { continue };
        if kind == "blocks" && rest.is_empty() {
            points.plan.counting = Counting::Blocks;
            continue;
        }
        let bearers =
            |word: &str| functions(word).map_err(|err| PointsError::Function { line, source: err.into() });
        let places = |n: usize| -> Result<Vec<Place>, PointsError> {
            let word = rest.get(n).ok_or_else(|| bad(format!("{kind:?} needs a place")))?;
            if let Some(at) = address(word) {
                return Ok(vec![Place { at, bearer: None }]);
            }
            let parts = word
                .rsplit_once('+')
                .and_then(|(name, by)| Some((name, address(by).map(|at| at.0).or_else(|| by.parse().ok())?)));
            let (name, distance) = parts.unwrap_or((word, 0));
            let all = bearers(name)?;
            if distance > 0 && all.len() > 1 {
                return Err(bad(several(program, name, &all)));
            }
            let place = |b: &Bearer| Place { at: entry(program, b).plus(distance), bearer: Some(*b) };
            Ok(all.iter().map(place).collect())
        };
        let one = |n: usize| match places(n)?.as_slice() {
            [only] => Ok(only.at),
            all => {
                let all: Vec<Bearer> = all.iter().filter_map(|p| p.bearer).collect();
                Err(bad(several(program, rest.get(n).copied().unwrap_or_default(), &all)))
            }
        };
        let block = |at: Va| -> Result<BlockId, PointsError> {
            program.block_from(at).ok_or_else(|| bad(format!("no block starts at {at}")))
        };
        let first = || rest.first().copied().ok_or_else(|| bad(format!("{kind:?} needs a function")));
        let of_functions = |point: fn(program::FuncId) -> Point| -> Result<_, PointsError> {
            let place = |b: Bearer| (point(b.func), Place { at: entry(program, &b), bearer: Some(b) });
            Ok(bearers(first()?)?.into_iter().map(place).collect::<Vec<_>>())
        };
        let of_places = |point: &dyn Fn(Va) -> Result<Point, PointsError>| -> Result<_, PointsError> {
            places(0)?.into_iter().map(|place| Ok((point(place.at)?, place))).collect::<Result<Vec<_>, _>>()
        };
        let (found, n_places) = match kind {
            "entry" => (of_functions(Point::Entry)?, 1),
            "exit" => (of_functions(Point::Exit)?, 1),
            "return" => (of_functions(|func| Point::Return { func, has_arguments_in_memory: false })?, 1),
            "block" => (of_places(&|at| Ok(Point::Block(block(at)?)))?, 1),
            "before" => (of_places(&|at| Ok(Point::Before(at)))?, 1),
            "after" => (of_places(&|at| Ok(Point::After(at)))?, 1),
            "loop-entry" => (of_places(&|at| Ok(Point::LoopEntry(block(at)?)))?, 1),
            "back-edge" => (of_places(&|at| Ok(Point::BackEdge(block(at)?)))?, 1),
            "loop-exit" => (of_places(&|at| Ok(Point::LoopExit(block(at)?)))?, 1),
            "edge" => {
                let (from, to) = (block(one(0)?)?, block(one(1)?)?);
                let edge = program.edge_ids(from).find(|&e| program.edge(e).to == to);
                let (a, b) = (program.block(from).start, program.block(to).start);
                let edge = edge.ok_or_else(|| bad(format!("no edge leads from {a} to {b}")))?;
                (vec![(Point::Edge(edge), Place { at: a, bearer: None })], 2)
            }
            other => {
                let known = "entry, exit, return, block, edge, before, after, loop-entry, back-edge, loop-exit, and blocks";
                return Err(bad(format!("{other:?} is no point; there are {known}")));
            }
        };
        let action = action(rest.get(n_places..).unwrap_or_default()).map_err(bad)?;
        points.put(program, (line, &words.join(" ")), found, &action);
    }
    Ok(points)
}

/// Where a probe of a line is put.
struct Place {
    at: Va,
    /// What bears the name that the line has, if it has one.
    bearer: Option<Bearer>,
}

fn entry(program: &Program, bearer: &Bearer) -> Va {
    program.function(bearer.func).entry
}

/// That one place was to be named and `name` stands for `all`.
fn several(program: &Program, name: &str, all: &[Bearer]) -> String {
    let listed: Vec<String> = all.iter().map(|b| entry(program, b).to_string()).collect();
    format!("{name} is {} functions, at {}: give an address", all.len(), listed.join(", "))
}

fn address(word: &str) -> Option<Va> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().map(Va)
}

fn action(words: &[&str]) -> Result<Action, String> {
    let value = |word: Option<&&str>| {
        let word = *word.ok_or("a value is missing: a register, memory, address, flags or time")?;
        Ok::<Value, String>(match word {
            "memory" => Value::Memory,
            "address" => Value::Address,
            "flags" => Value::Flags,
            "time" => Value::Time,
            word => Value::Register(general_register(word).ok_or_else(|| {
                format!("{word:?} is no value; there are the general registers (in full width), memory, address, flags, time")
            })?),
        })
    };
    let (action, n_words) = match words.first().copied() {
        Some("count") => (Action::Count, 1),
        // With how often: else nobody could tell a value of 0 from none.
        Some("last") => (Action::Keep(value(words.get(1))?, Sink::Ring(1)), 2),
        Some("histogram") => (Action::Keep(value(words.get(1))?, Sink::Histogram), 2),
        Some("ring") => {
            let len = match words.get(2) {
                None => RING,
                Some(word) => word.parse().map_err(|_| {
                    format!("{word:?} is no length: a ring has 1 to 65536 words, a power of two")
                })?,
            };
            (Action::Keep(value(words.get(1))?, Sink::Ring(len)), 3)
        }
        Some(other) => return Err(format!("{other:?} is no action; there are count, last, ring, histogram")),
        None => return Err("no action is named: count, last, ring or histogram".to_owned()),
    };
    match words.get(n_words) {
        Some(more) => Err(format!("{more:?} is one word too many")),
        None => Ok(action),
    }
}

impl Points {
    /// Puts the probes of a line there: `found` are its points and where they are.
    fn put(
        &mut self,
        program: &Program,
        (line, text): (usize, &str),
        found: Vec<(Point, Place)>,
        action: &Action,
    ) {
        let are_several = found.len() > 1;
        for (point, Place { at, bearer }) in found {
            let resolver = bearer.and_then(|b| b.resolver);
            let text = match resolver.map(|f| program.function(f).entry) {
                Some(of) => format!("{text}{AT}{:x} (resolver {of})", at.0),
                None if are_several => format!("{text}{AT}{:x}", at.0),
                None => text.to_owned(),
            };
            if let Some(resolver) = resolver
                && !program.returned_by(resolver).is_whole
            {
                self.unsure.push(program.function(resolver).entry);
            }
            self.plan.probes.push(Probe { point, action: action.clone() });
            self.lines.push((line, text));
        }
        self.unsure.sort_unstable();
        self.unsure.dedup();
    }

    /// What the words of the probes mean, `words` being the first of each.
    pub fn watches(&self, words: &[u32]) -> Vec<Watch> {
        let one = |((probe, line), word): ((&Probe, &(usize, String)), &u32)| {
            let keeps = match probe.action {
                Action::Count => Keeps::Count,
                Action::Keep(_, Sink::Last) => Keeps::Last,
                Action::Keep(_, Sink::Ring(len)) => Keeps::Ring(len),
                Action::Keep(_, Sink::Histogram) => Keeps::Histogram,
                Action::Keep(_, Sink::Call)
                | Action::Call(..)
                | Action::Append(_)
                | Action::CountInStream(_)
                | Action::AddInStream(..)
                | Action::Vectorise => return None,
            };
            Some(Watch { what: line.1.clone(), word: *word, keeps })
        };
        self.plan.probes.iter().zip(&self.lines).zip(words).filter_map(one).collect()
    }
}

//! Two runs held against each other: where a stream first differs, and which functions of them are the same.

use crate::file::ReadError;
use crate::file::names::Names;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::search::ngrams::Paths;
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use std::cmp::Reverse;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Symbols that are compared at once.
const PIECE: usize = 1 << 16;

/// One of two traces could not be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Whether it is the second.
    pub is_second: bool,
    /// Why.
    pub err: ReadError,
}

/// Which function of the second trace is which of the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pairing {
    /// By number in the second; `None`: numbers are the same.
    of_second: Option<BTreeMap<FuncId, FuncId>>,
}

impl Pairing {
    /// By name; those of one name by their order. By number if the tables are the same, or one has no names.
    pub fn new(first: &Names, second: &Names) -> Self {
        if first == second || first.functions.is_empty() || second.functions.is_empty() {
            return Self { of_second: None };
        }
        let mut by_name: BTreeMap<&str, Vec<FuncId>> = BTreeMap::new();
        for (&func, function) in first.functions.iter().rev() {
            by_name.entry(&function.name).or_default().push(func);
        }
        let pair = |(&func, function): (&FuncId, &crate::file::names::Function)| {
            Some((func, by_name.get_mut(function.name.as_str())?.pop()?))
        };
        Self { of_second: Some(second.functions.iter().filter_map(pair).collect()) }
    }

    /// The function of the first trace that `func` of the second is.
    pub fn of_second(&self, func: FuncId) -> Option<FuncId> {
        self.of_second.as_ref().map_or(Some(func), |pairs| pairs.get(&func).copied())
    }

    /// Whether numbers mean the same in both.
    pub fn is_by_number(&self) -> bool {
        self.of_second.is_none()
    }

    fn is_same(&self, first: u32, second: u32) -> bool {
        let (first, second) = (Symbol(first).plain(), Symbol(second).plain());
        match (first.step(), second.step()) {
            (Step::Enter(of_first), Step::Enter(of_second)) => self.of_second(of_second) == Some(of_first),
            _ => first == second,
        }
    }
}

/// The index of the first symbol of a stream that is not the same in both traces, marks left out; `None` if
/// there is none.
///
/// # Errors
/// [`Unreadable`] says which of them cannot be read.
pub fn first(
    first: &Trace,
    second: &Trace,
    thread: ThreadId,
    pairing: &Pairing,
) -> Result<Option<u64>, Unreadable> {
    let of_first = |err| Unreadable { is_second: false, err };
    let of_second = |err| Unreadable { is_second: true, err };
    let mut a = first.read_from(thread, 0).map_err(of_first)?;
    let mut b = second.read_from(thread, 0).map_err(of_second)?;
    let (mut x, mut y): (&[u32], &[u32]) = (&[], &[]);
    let mut index = 0;
    loop {
        if x.is_empty() {
            x = a.next(PIECE).map_err(of_first)?;
        }
        if y.is_empty() {
            y = b.next(PIECE).map_err(of_second)?;
        }
        if x.is_empty() || y.is_empty() {
            return Ok((x.len() != y.len()).then_some(index));
        }
        let n = x.len().min(y.len());
        let ((here, rest), (there, other)) = (x.split_at(n), y.split_at(n));
        if !pairing.is_by_number() || here != there {
            let differs = here.iter().zip(there).position(|(&a, &b)| !pairing.is_same(a, b));
            if let Some(at) = differs {
                return Ok(Some(index + at as u64));
            }
        }
        (x, y) = (rest, other);
        index += n as u64;
    }
}

/// A path that one of two runs takes alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alone {
    /// Whether the second run takes it.
    pub is_second: bool,
    /// The function, as the trace of that run numbers it.
    pub func: FuncId,
    /// Its blocks.
    pub blocks: Vec<BlockId>,
    /// How often that run takes it.
    pub count: u64,
}

/// The paths, by function, that are in one of two sets alone; the most frequent first.
pub fn alone(
    first: &BTreeMap<FuncId, Paths>,
    second: &BTreeMap<FuncId, Paths>,
    pairing: &Pairing,
) -> Vec<Alone> {
    let paired: BTreeMap<FuncId, &Paths> =
        second.iter().filter_map(|(&func, paths)| Some((pairing.of_second(func)?, paths))).collect();
    let mut found = Vec::new();
    let mut add = |is_second: bool, func: FuncId, paths: &Paths, others: Option<&Paths>| {
        for (blocks, &count) in paths {
            if others.is_none_or(|others| !others.contains_key(blocks)) {
                found.push(Alone { is_second, func, blocks: blocks.clone(), count });
            }
        }
    };
    for (&func, paths) in first {
        add(false, func, paths, paired.get(&func).copied());
    }
    for (&func, paths) in second {
        add(true, func, paths, pairing.of_second(func).and_then(|func| first.get(&func)));
    }
    found.sort_by(|a, b| {
        (Reverse(a.count), a.is_second, a.func, &a.blocks).cmp(&(
            Reverse(b.count),
            b.is_second,
            b.func,
            &b.blocks,
        ))
    });
    found
}

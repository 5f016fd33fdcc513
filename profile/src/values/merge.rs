//! Values of several runs, or of the processes of one, as those of one.

use crate::values::{Calls, Column, Loop, Ticks, Values};
use std::collections::HashMap;

/// Values that cannot be added up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} has other columns in one of them")]
pub struct Unlike {
    /// Of what.
    what: String,
}

impl Values {
    /// Adds what another run had, of the same command line.
    ///
    /// # Errors
    /// If it was asked for other values of the same function or place; nothing is added then.
    pub fn merge(&mut self, other: Values) -> Result<(), Unlike> {
        let unlike = |what: &str| Unlike { what: what.to_owned() };
        let mut calls: HashMap<(u32, String), Vec<usize>> = HashMap::new();
        for (n, ours) in self.calls.iter().enumerate() {
            calls.entry((ours.asked, ours.function.clone())).or_default().push(n);
        }
        let places: HashMap<_, usize> =
            self.places.iter().enumerate().map(|(n, ours)| (ours.key(), n)).collect();
        let loops = (0..).zip(&self.loops).map(|(n, ours)| ((ours.module.clone(), ours.header), n));
        let loops: HashMap<(String, u64), usize> = loops.collect();
        let calls_of = |theirs: &Calls| {
            calls.get(&(theirs.asked, theirs.function.clone())).map_or(&[][..], Vec::as_slice)
        };
        for theirs in &other.calls {
            // Of one name, there may be several that take not the same.
            let mut ours = calls_of(theirs).iter().filter_map(|n| self.calls.get(*n)).peekable();
            if ours.peek().is_some() && !ours.any(|ours| has_columns_of(ours, theirs)) {
                return Err(unlike(&theirs.function));
            }
        }
        for theirs in &other.places {
            let ours = places.get(&theirs.key()).and_then(|n| self.places.get(*n));
            if ours.is_some_and(|ours| !are_alike(&ours.columns, &theirs.columns)) {
                return Err(unlike(&theirs.place));
            }
        }
        for theirs in other.calls {
            let is_it = |n: &&usize| self.calls.get(**n).is_some_and(|ours| has_columns_of(ours, &theirs));
            let known = calls_of(&theirs).iter().find(is_it).copied();
            match known.and_then(|n| self.calls.get_mut(n)) {
                Some(ours) => add_calls(ours, theirs),
                None => self.calls.push(theirs),
            }
        }
        for theirs in other.places {
            match places.get(&theirs.key()).and_then(|n| self.places.get_mut(*n)) {
                Some(ours) => {
                    ours.n += theirs.n;
                    add_addresses(&mut ours.addresses, theirs.addresses);
                    add_columns(&mut ours.columns, theirs.columns);
                }
                None => self.places.push(theirs),
            }
        }
        self.targets.extend(other.targets);
        for theirs in other.loops {
            let known = loops.get(&(theirs.module.clone(), theirs.header));
            match known.and_then(|n: &usize| self.loops.get_mut(*n)) {
                Some(ours) => add_loop(ours, theirs),
                None => self.loops.push(theirs),
            }
        }
        self.stamps = self.stamps.or(other.stamps);
        self.n_unread_bytes += other.n_unread_bytes;
        self.n_lost += other.n_lost;
        Ok(())
    }
}

fn has_columns_of(ours: &Calls, theirs: &Calls) -> bool {
    let results = |of: &Calls| of.result.iter().cloned().collect::<Vec<_>>();
    are_alike(&ours.arguments, &theirs.arguments) && are_alike(&results(ours), &results(theirs))
}

fn are_alike(ours: &[Column], theirs: &[Column]) -> bool {
    let mut pairs = ours.iter().zip(theirs);
    ours.len() == theirs.len() && pairs.all(|(a, b)| (&a.name, &a.kind) == (&b.name, &b.kind))
}

fn add_addresses<T: PartialEq>(ours: &mut Vec<T>, theirs: Vec<T>) {
    for one in theirs {
        if !ours.contains(&one) {
            ours.push(one);
        }
    }
}

fn add_columns(ours: &mut [Column], theirs: Vec<Column>) {
    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| ours.values.merge(&theirs.values));
}

fn add_calls(ours: &mut Calls, theirs: Calls) {
    ours.n_calls += theirs.n_calls;
    ours.n_results += theirs.n_results;
    ours.n_left += theirs.n_left;
    ours.n_open += theirs.n_open;
    ours.n_left_out += theirs.n_left_out;
    ours.is_pure &= theirs.is_pure;
    ours.is_recursive |= theirs.is_recursive;
    add_addresses(&mut ours.addresses, theirs.addresses);
    add_columns(&mut ours.arguments, theirs.arguments);
    add_columns(ours.result.as_mut_slice(), theirs.result.into_iter().collect());
}

fn add_loop(ours: &mut Loop, theirs: Loop) {
    ours.n_instances += theirs.n_instances;
    ours.n_left += theirs.n_left;
    ours.n_open += theirs.n_open;
    ours.n_uncertain += theirs.n_uncertain;
    ours.iterations.merge(&theirs.iterations);
    ours.trip_counts.merge(&theirs.trip_counts);
    if let (Some(ours), Some(Ticks { instances, iterations })) = (&mut ours.ticks, theirs.ticks) {
        ours.instances.merge(&instances);
        ours.iterations.merge(&iterations);
    }
    ours.line = ours.line.take().or(theirs.line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{Distribution, Stamps};
    use program::signature::Type;

    fn column(name: &str, values: &[u64]) -> Column {
        let mut all = Distribution::default();
        values.iter().for_each(|value| all.add_word(*value, 8));
        let kind = Type::Integer { bytes: 8, is_signed: true };
        Column { name: name.to_owned(), type_name: "long".to_owned(), kind, values: all }
    }

    fn run(function: &str, values: &[u64], iterations: &[u64]) -> Values {
        let n_calls = values.len() as u64;
        let arguments = vec![column("n", values)];
        let calls =
            Calls { function: function.to_owned(), n_calls, n_open: 1, arguments, ..Calls::default() };
        let mut one = Loop { module: "/m".to_owned(), header: 16, ..Loop::default() };
        iterations.iter().for_each(|n| {
            one.n_instances += 1;
            one.iterations.add(*n);
            one.trip_counts.add_word(*n, 8);
        });
        Values { calls: vec![calls], loops: vec![one], stamps: Some(Stamps::default()), ..Values::default() }
    }

    /// Two runs in one are as the run that does both, one after the other.
    #[test]
    fn what_two_runs_had_is_what_one_would_have() {
        let mut sum = run("f", &[1, 2, 2], &[5, 7, 200]);
        sum.merge(run("f", &[2, 9], &[7, 1, 3000])).expect("they are alike");
        let mut want = run("f", &[1, 2, 2, 2, 9], &[5, 7, 200, 7, 1, 3000]);
        want.calls.iter_mut().for_each(|calls| calls.n_open = 2);
        assert_eq!(sum, want);
        sum.merge(run("g", &[1], &[])).expect("it is another function");
        assert_eq!(sum.calls.len(), 2);
    }

    #[test]
    fn other_columns_are_refused_and_nothing_is_added() {
        let mut sum = run("f", &[1], &[]);
        let mut other = run("f", &[1], &[]);
        other.calls.iter_mut().for_each(|calls| calls.arguments = vec![column("m", &[1])]);
        let before = sum.clone();
        assert_eq!(
            sum.merge(other).map_err(|err| err.to_string()),
            Err("f has other columns in one of them".to_owned())
        );
        assert_eq!(sum, before);
    }
}

//! Functions without names that neither symbols nor a matching of the files pair: by how often they are
//! called, by whom, and what they call. On the same input, both builds call a function as often, but for
//! those that were inlined.

use super::code::NONE;
use super::log::{Kind, Side};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Who called whom, and how often, by number of the function.
struct Calls {
    callers: BTreeMap<u32, BTreeMap<u32, u64>>,
    callees: BTreeMap<u32, BTreeMap<u32, u64>>,
}

impl Calls {
    fn of(side: &Side<'_>) -> Calls {
        let mut calls = Calls { callers: BTreeMap::new(), callees: BTreeMap::new() };
        // By caller and call: how often.
        let mut all: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        for activity in &side.log.activities {
            for token in &activity.tokens {
                let Kind::Call(call) = token.kind() else { continue };
                *all.entry((activity.function, call)).or_default() += activity.times;
            }
        }
        for ((caller, call), times) in all {
            let called = side.log.calls.get(call as usize).map_or(NONE, |of| of.activity);
            let callee = side.log.activities.get(called as usize).map_or(NONE, |of| of.function);
            *calls.callers.entry(callee).or_default().entry(caller).or_default() += times;
            *calls.callees.entry(caller).or_default().entry(callee).or_default() += times;
        }
        calls
    }

    /// What tells a function from others: how often it was called in all; of functions that both builds have,
    /// which ones called it, and which ones it called, and how often.
    fn signature(&self, of: u32, numbers: &[u32], known: &BTreeSet<u32>) -> Signature {
        let number =
            |function: &u32| numbers.get(*function as usize).copied().filter(|of| known.contains(of));
        let of_known = |calls: Option<&BTreeMap<u32, u64>>| {
            let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
            for (function, times) in calls.into_iter().flatten() {
                number(function).into_iter().for_each(|number| *sums.entry(number).or_default() += times);
            }
            sums.into_iter().collect::<Vec<_>>()
        };
        let callers = self.callers.get(&of);
        let all = callers.into_iter().flatten().map(|(_, times)| times).sum();
        Signature { times: all, callers: of_known(callers), callees: of_known(self.callees.get(&of)) }
    }
}

/// See [`Calls::signature`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Signature {
    times: u64,
    callers: Vec<(u32, u64)>,
    callees: Vec<(u32, u64)>,
}

/// How sure a pair is: by callers and callees, by callers alone, by how often alone. Guesses, which
/// nobody has measured; none is as sure as a name.
const SURE: [f64; 3] = [0.8, 0.7, 0.5];

/// Gives functions of the new build that have no name the numbers of those of the old build that they are,
/// in `numbers`, by side and function. Two are the same if no others of their builds are called as often by
/// the same, and call the same as often; those that were found say more of others. Which ones of the new
/// build, and how sure that is, from 0 to 1.
pub fn pair(sides: &[Side<'_>; 2], numbers: &mut [Vec<u32>; 2]) -> Vec<(u32, f64)> {
    let mut paired = Vec::new();
    let free = |n: usize| {
        let other: BTreeSet<u32> = numbers[1 - n].iter().copied().collect();
        let mut all = sides[n].code.functions.iter().zip(&numbers[n]);
        all.any(|(of, number)| !of.is_named && !other.contains(number))
    };
    if !free(0) || !free(1) {
        return paired;
    }
    let calls = sides.each_ref().map(Calls::of);
    loop {
        let [old, new] = numbers.each_ref().map(|of| of.iter().copied().collect::<BTreeSet<u32>>());
        let known: BTreeSet<u32> = old.intersection(&new).copied().collect();
        // Whatever is the surest first: all that is known; then who calls; then how often alone.
        let ways: [fn(Signature) -> Signature; 3] = [
            |signature| signature,
            |signature| Signature { callees: Vec::new(), ..signature },
            |signature| Signature { callees: Vec::new(), callers: Vec::new(), ..signature },
        ];
        let found = ways.iter().zip(SURE).find_map(|(way, sure)| {
            let unique = [0, 1].map(|n: usize| {
                let mut found: BTreeMap<Signature, Option<u32>> = BTreeMap::new();
                for (function, of) in (0..).zip(&sides[n].code.functions) {
                    let number = numbers[n].get(function as usize).copied().unwrap_or(NONE);
                    let is_free = !of.is_named && !known.contains(&number);
                    if is_free && calls[n].callers.contains_key(&function) {
                        let signature = way(calls[n].signature(function, &numbers[n], &known));
                        found.entry(signature).and_modify(|one| *one = None).or_insert(Some(function));
                    }
                }
                found
            });
            let pair = |(signature, old): (&Signature, &Option<u32>)| {
                Some(((*old)?, unique[1].get(signature).copied().flatten()?))
            };
            let pairs: Vec<(u32, u32)> = unique[0].iter().filter_map(pair).collect();
            (!pairs.is_empty()).then_some((pairs, sure))
        });
        let Some((found, sure)) = found else { return paired };
        paired.extend(found.iter().map(|(_, new)| (*new, sure)));
        for (old, new) in found {
            let number = numbers[0].get(old as usize).copied();
            let place = numbers[1].get_mut(new as usize);
            number.zip(place).into_iter().for_each(|(number, place)| *place = number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::{Code, Function};
    use super::super::log::Builder;
    use super::*;
    use trace::ThreadId;

    /// Functions of which the first has a name, without blocks.
    fn code(n: usize) -> Code {
        let function = |of| Function { is_named: of == 0, ..Function::default() };
        Code { functions: (0..n).map(function).collect(), ..Code::default() }
    }

    /// A run that calls functions, each from within the one before, as often as it says.
    fn run(calls: &[(&[u32], u32)]) -> Vec<u32> {
        let mut symbols = vec![0x4000_0000];
        for (chain, times) in calls {
            for _ in 0..*times {
                symbols.extend(chain.iter().map(|function| 0x4000_0000 | function));
                symbols.extend(chain.iter().map(|_| 0x8000_0000));
            }
        }
        symbols.push(0x8000_0000);
        symbols
    }

    #[test]
    fn functions_are_those_that_are_called_as_often_by_the_same() {
        // 1 is called thrice and calls 3; 2 is called thrice, too, but calls nothing; 4 and 5 are alike.
        let old = run(&[(&[1, 3], 3), (&[2], 3), (&[4], 2), (&[5], 2)]);
        // The same in another order: 1 is 4, 3 is 1, 2 is 5.
        let new = run(&[(&[2], 2), (&[3], 2), (&[5], 3), (&[4, 1], 3)]);
        let code = [code(6), code(6)];
        let log = [old, new].map(|symbols| {
            let mut builder = Builder::new(&code[0]);
            builder.push(ThreadId(0), &symbols);
            builder.finish()
        });
        let sides = [0, 1].map(|n: usize| Side { code: &code[n], log: &log[n], modules: &[] });
        let mut numbers = [vec![0, 1, 2, 3, 4, 5], vec![0, 11, 12, 13, 14, 15]];
        pair(&sides, &mut numbers);
        assert_eq!(numbers[1], [0, 3, 12, 13, 1, 2]);
    }
}

//! What functions cost with all that they called, estimated from counts, which do not say which call cost how
//! much: each call of a function costs the same. Functions that call each other in a circle are one.
//!
//! Not here: traces, of which it is known (`trace::call_tree`).
//!
//! Source: S. Graham, P. Kessler, M. McKusick, "gprof: a Call Graph Execution Profiler", 1982, 4. We differ
//! in that calls which are known only to have come from elsewhere (entries less calls) take their share.

use super::count;
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use profile::{Beyond, Profile, calls};
use program::{Callee, FuncId, Program};
use std::collections::{BTreeMap, HashMap};

/// Who called whom, and what each executed by itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallGraph {
    /// The functions that ran.
    pub functions: Vec<Function>,
    /// How often which called which, by number; whatever is not known is left out.
    pub calls: BTreeMap<(usize, usize), u64>,
}

/// A function that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Which image it is of, by number, and which function there.
    pub of: (usize, FuncId),
    /// How many of its instructions ran.
    pub own: u64,
    /// How often it was entered, if that is known.
    pub entries: Option<u64>,
}

impl CallGraph {
    /// Of the images of a recording, with their counts.
    pub fn of(images: &[(Program, Profile)]) -> CallGraph {
        let mut graph = CallGraph::default();
        let mut places = HashMap::new();
        for (n, (program, profile)) in images.iter().enumerate() {
            for ran in count::run(profile, program).functions {
                let entries = profile.entries.get(&program.function(ran.func).entry).copied();
                places.insert((n, ran.func), graph.functions.len());
                graph.functions.push(Function { of: (n, ran.func), own: ran.instructions, entries });
            }
        }
        // What others call by name.
        let mut exported: HashMap<&str, usize> = HashMap::new();
        for (place, function) in graph.functions.iter().enumerate() {
            let Some((program, _)) = images.get(function.of.0) else { continue };
            let function = program.function(function.of.1);
            if function.import.is_none() {
                for name in &function.names {
                    exported.entry(name.split('@').next().unwrap_or_default()).or_insert(place);
                }
            }
        }
        let by_name = |name: &str| exported.get(name.split('@').next().unwrap_or_default()).copied();
        for (n, (program, profile)) in images.iter().enumerate() {
            for call in calls::made(profile, program) {
                let Some(&caller) = program.function_at(call.at).and_then(|f| places.get(&(n, f))) else {
                    continue;
                };
                let inside = call.to.and_then(|to| program.function_at(to)).and_then(|f| places.get(&(n, f)));
                if let Some(&callee) = inside {
                    graph.add(caller, callee, call.n.n);
                    continue;
                }
                let here = program.block_at(call.at).into_iter().flat_map(|b| program.calls_in(b));
                let imported = here.filter(|c| c.at == call.at).find_map(|c| match c.callee {
                    Callee::Import(i) => by_name(program.imports.get(i as usize)?),
                    _ => None,
                });
                if let Some(callee) = imported {
                    graph.add(caller, callee, call.n.n);
                }
            }
            for ((at, to), &calls) in &profile.calls_beyond {
                let Beyond::Image(name, to) = to else { continue };
                let image = images.iter().position(|(_, other)| other.image.name == *name);
                let callee = image.and_then(|m| places.get(&(m, images.get(m)?.0.function_at(*to)?)));
                let caller = program.function_at(*at).and_then(|f| places.get(&(n, f)));
                if let (Some(&caller), Some(&callee)) = (caller, callee) {
                    graph.add(caller, callee, calls);
                }
            }
        }
        // What stands for an import leads to it each time.
        for stub in 0..graph.functions.len() {
            let Some(Function { of: (n, func), entries: Some(entries), .. }) = graph.functions.get(stub)
            else {
                continue;
            };
            let import = images.get(*n).and_then(|(program, _)| program.function(*func).import.as_deref());
            if let Some(callee) = import.and_then(by_name) {
                graph.add(stub, callee, *entries);
            }
        }
        graph
    }

    fn add(&mut self, caller: usize, callee: usize, n: u64) {
        let sum = self.calls.entry((caller, callee)).or_insert(0);
        *sum = sum.saturating_add(n);
    }
}

/// Functions that call each other in a circle, or one that is in none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Which, by number.
    pub functions: Vec<usize>,
    /// What they executed by themselves.
    pub own: u64,
    /// With all that they called.
    pub inclusive: u64,
    /// How often it was entered from without.
    pub entries: u64,
    /// Groups that it calls, with how often.
    pub calls: BTreeMap<usize, u64>,
}

/// What functions cost with all that they called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inclusive {
    /// Groups stand behind those that they call.
    pub groups: Vec<Group>,
    /// By function: its group.
    pub group_of: Vec<usize>,
}

impl Inclusive {
    /// Estimates it.
    pub fn of(graph: &CallGraph) -> Inclusive {
        let mut arcs: DiGraph<(), ()> = DiGraph::new();
        let nodes: Vec<_> = graph.functions.iter().map(|_| arcs.add_node(())).collect();
        for (&(caller, callee), _) in graph.calls.iter().filter(|(_, n)| **n > 0) {
            if let (Some(&caller), Some(&callee)) = (nodes.get(caller), nodes.get(callee)) {
                arcs.add_edge(caller, callee, ());
            }
        }
        // What is called stands before who calls it.
        let found = tarjan_scc(&arcs);
        let mut group_of = vec![0; graph.functions.len()];
        for (n, group) in found.iter().enumerate() {
            for node in group {
                group_of.get_mut(node.index()).into_iter().for_each(|of| *of = n);
            }
        }
        let of = |f: usize| group_of.get(f).copied().unwrap_or(0);
        let mut groups: Vec<Group> = Vec::with_capacity(found.len());
        for group in found {
            let mut functions: Vec<usize> = group.iter().map(|node| node.index()).collect();
            functions.sort_unstable();
            let members = || functions.iter().filter_map(|&f| graph.functions.get(f));
            let own = members().fold(0, |sum: u64, f| sum.saturating_add(f.own));
            let entries = members().fold(0, |sum: u64, f| sum.saturating_add(f.entries.unwrap_or(0)));
            groups.push(Group { own, inclusive: own, entries, calls: BTreeMap::new(), functions });
        }
        let mut into = vec![0_u64; groups.len()];
        for (&(caller, callee), &n) in &graph.calls {
            let (from, to) = (of(caller), of(callee));
            if from == to {
                // Entries are from without alone.
                let group = groups.get_mut(to);
                group.into_iter().for_each(|group| group.entries = group.entries.saturating_sub(n));
                continue;
            }
            into.get_mut(to).into_iter().for_each(|sum| *sum = sum.saturating_add(n));
            let calls = groups.get_mut(from).map(|group| group.calls.entry(to).or_insert(0));
            calls.into_iter().for_each(|sum| *sum = sum.saturating_add(n));
        }
        for (group, into) in groups.iter_mut().zip(into) {
            group.entries = group.entries.max(into);
        }
        for n in 0..groups.len() {
            let Some(group) = groups.get(n) else { continue };
            let shares =
                group.calls.iter().map(|(&to, &n)| groups.get(to).map_or(0, |callee| callee.cost(n)));
            let inclusive = shares.fold(group.own, u64::saturating_add);
            groups.get_mut(n).into_iter().for_each(|group| group.inclusive = inclusive);
        }
        Inclusive { groups, group_of }
    }

    /// What a function cost, with all that it called, or its whole group did.
    pub fn of_function(&self, function: usize) -> u64 {
        self.group(function).map_or(0, |group| group.inclusive)
    }

    /// The group of a function.
    pub fn group(&self, function: usize) -> Option<&Group> {
        self.group_of.get(function).and_then(|&n| self.groups.get(n))
    }

    /// As a tree: under each group those that it calls, with its share of them. What costs less than `least`
    /// is left out with all under it.
    pub fn tree(&self, least: u64) -> Vec<Branch> {
        let mut called = vec![0_u64; self.groups.len()];
        for (&to, &n) in self.groups.iter().flat_map(|group| &group.calls) {
            called.get_mut(to).into_iter().for_each(|sum| *sum = sum.saturating_add(n));
        }
        let mut branches: Vec<Branch> = Vec::new();
        // With how often it was entered here.
        let mut next: Vec<(Option<usize>, usize, f64)> = Vec::new();
        for (n, (group, called)) in self.groups.iter().zip(called).enumerate() {
            let outside = group.entries.saturating_sub(called);
            if outside > 0 || called == 0 {
                next.push((None, n, as_f64(outside)));
            }
        }
        let mut at = 0;
        while let Some(&(under, n, entries)) = next.get(at) {
            at += 1;
            let Some(group) = self.groups.get(n) else { continue };
            let share = if group.entries == 0 { 1.0 } else { entries / as_f64(group.entries) };
            let inclusive = rounded(as_f64(group.inclusive) * share);
            if inclusive < least.max(1) {
                continue;
            }
            let own = rounded(as_f64(group.own) * share);
            let place = branches.len();
            branches.push(Branch { under, group: n, own, inclusive, entries: rounded(entries) });
            next.extend(group.calls.iter().map(|(&to, &n)| (Some(place), to, as_f64(n) * share)));
        }
        branches
    }
}

impl Group {
    /// What `n` calls of it cost.
    fn cost(&self, n: u64) -> u64 {
        let share = u128::from(self.inclusive) * u128::from(n) / u128::from(self.entries.max(n).max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// A group, as it was called along one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The branch of the caller, which stands before it; `None`: nobody is known to have called it.
    pub under: Option<usize>,
    /// The group.
    pub group: usize,
    /// Its share of what the group executed by itself.
    pub own: u64,
    /// The same with all that was called.
    pub inclusive: u64,
    /// How often it was entered this way.
    pub entries: u64,
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts; saturates")]
fn rounded(n: f64) -> u64 {
    n.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name own entries: callee times, ...`, a line a function.
    fn graph(text: &str) -> (Vec<&str>, CallGraph) {
        let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.trim().split_once(':')).collect();
        let heads: Vec<Vec<&str>> = lines.iter().map(|(head, _)| head.split(' ').collect()).collect();
        let names: Vec<&str> = heads.iter().map(|head| head[0]).collect();
        let number = |text: &str| text.parse().expect("a number");
        let function = |(n, head): (usize, &Vec<&str>)| Function {
            of: (0, FuncId::at(n)),
            own: number(head[1]),
            entries: head.get(2).map(|n| number(n)),
        };
        let mut graph =
            CallGraph { functions: heads.iter().enumerate().map(function).collect(), calls: BTreeMap::new() };
        for (caller, (_, calls)) in lines.iter().enumerate() {
            for call in calls.split(',').filter(|call| !call.trim().is_empty()) {
                let (callee, n) = call.trim().split_once(' ').expect("a callee and how often");
                let callee = names.iter().position(|name| *name == callee).expect("it has a line");
                graph.calls.insert((caller, callee), number(n));
            }
        }
        (names, graph)
    }

    #[track_caller]
    fn check(text: &str, want: &str) {
        let (names, graph) = graph(text);
        let inclusive = Inclusive::of(&graph);
        let got = names.iter().enumerate().map(|(n, name)| format!("{name} {}", inclusive.of_function(n)));
        assert_eq!(got.collect::<Vec<_>>().join(", "), want);
    }

    /// The example of the paper's figure 4, with numbers of our own, reckoned by hand: of `sub`, 100 with 40
    /// of what it calls, 6 of 10 calls are the first caller's.
    #[test]
    fn callers_pay_by_calls() {
        check(
            "main 10 1: one 1, two 1
             one 50 1: sub 6
             two 20 1: sub 4
             sub 100 10: leaf 30
             leaf 40 40: ",
            // 30 of 40 calls of leaf are from sub: 30. sub 130: one gets 78, two 52.
            "main 210, one 128, two 72, sub 130, leaf 40",
        );
    }

    /// even and odd are one: 60 and what both call, 20; main's 3 of 4 entries pay for three quarters.
    #[test]
    fn a_circle_is_one_and_is_paid_for_by_calls_into_it() {
        check(
            "main 5 1: even 3
             other 1 1: odd 1
             even 40 11: odd 9, leaf 1
             odd 20 10: even 8, leaf 1
             leaf 20 2: ",
            // The sum is 80; by hand: main 5 + 60, other 1 + 20.
            "main 65, other 21, even 80, odd 80, leaf 20",
        );
    }

    #[test]
    fn a_call_to_itself_costs_nothing_and_unknown_callers_pay_too() {
        check("main 10 1: fib 1\nfib 90 100: fib 99", "main 100, fib 90");
        // A pointer led there twice as often as main called it.
        check("main 10 1: f 1\nf 90 3: ", "main 40, f 90");
    }

    #[test]
    fn branches_add_up_to_what_is_above_them() {
        let (names, graph) = graph(
            "main 10 1: one 1, two 1
             one 50 1: sub 6
             two 20 1: sub 4
             sub 100 10: ",
        );
        let inclusive = Inclusive::of(&graph);
        let all = inclusive.tree(0);
        let way = |b: &Branch| {
            let name = |b: &Branch| names[inclusive.groups[b.group].functions[0]].to_owned();
            let (mut way, mut at) = (name(b), b.under);
            while let Some(under) = at {
                way = name(&all[under]) + ";" + &way;
                at = all[under].under;
            }
            way
        };
        let mut got: Vec<String> =
            all.iter().map(|b| format!("{} {} {} {}", way(b), b.own, b.inclusive, b.entries)).collect();
        got.sort();
        assert_eq!(
            got,
            [
                "main 10 180 1",
                "main;one 50 110 1",
                "main;one;sub 60 60 6",
                "main;two 20 60 1",
                "main;two;sub 40 40 4"
            ]
        );
        assert_eq!(inclusive.tree(100).len(), 2, "main and one");
    }
}

//! The tree of calls of samples: of all, of what a function called, or of who called it.

use super::{Who, who};
use profile::samples::Samples;
use program::Program;
use std::collections::HashMap;

/// Calls along one way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The function.
    pub who: Who,
    /// The node of its caller; in a tree of callers, of whom it called. It has a lower number.
    pub under: Option<usize>,
    /// Samples that end here; in a tree of callers, whose way begins here.
    pub own: u64,
    /// Samples that go through here.
    pub inclusive: u64,
}

/// Which tree.
#[derive(Clone, Copy, Debug)]
pub enum Tree<'a> {
    /// From the first functions of threads on.
    All,
    /// From one of these on, with what it called: where one of them was called by another, from that on.
    Below(&'a [Who]),
    /// From these back to who called them, the outermost of them on each stack.
    Callers(&'a [Who]),
}

/// The tree of the samples of `event`, by its number. What is alike has one node.
pub fn tree(samples: &Samples, event: u32, programs: &[Option<Program>], which: Tree<'_>) -> Vec<Node> {
    let of_frame: Vec<Who> = samples.frames().iter().map(|frame| who(frame, programs)).collect();
    let mut nodes: Vec<Node> = Vec::new();
    let mut known: HashMap<(Option<usize>, Who), usize> = HashMap::new();
    for (stack, (n, _)) in (0..).zip(samples.by_stack(event)).filter(|(_, own)| own.0 > 0) {
        let path = std::iter::successors(Some(stack), |stack| samples.stack(*stack).1);
        let mut path: Vec<&Who> =
            path.filter_map(|stack| of_frame.get(samples.stack(stack).0 as usize)).collect();
        path.reverse();
        let outermost = |wanted: &[Who]| path.iter().position(|who| wanted.contains(who));
        match which {
            Tree::All => {}
            Tree::Below(wanted) => match outermost(wanted) {
                Some(at) => drop(path.drain(..at)),
                None => continue,
            },
            Tree::Callers(wanted) => match outermost(wanted) {
                Some(at) => {
                    path.truncate(at + 1);
                    path.reverse();
                }
                None => continue,
            },
        }
        let mut under = None;
        for who in path {
            let at = *known.entry((under, who.clone())).or_insert_with(|| {
                nodes.push(Node { who: who.clone(), under, own: 0, inclusive: 0 });
                nodes.len() - 1
            });
            if let Some(node) = nodes.get_mut(at) {
                node.inclusive += n;
            }
            under = Some(at);
        }
        if let Some(last) = under.and_then(|at| nodes.get_mut(at)) {
            last.own += n;
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::samples::{Event, Frame, Quality, Recorder, Sample};

    fn named(name: &str) -> Who {
        Who::Named(name.into())
    }

    /// `a` calls `b` twice, from two places of which one is recursive, and `c` once.
    fn samples() -> Samples {
        let mut recorder = Recorder::new(vec![Event { name: "e".into(), is_time: false }]);
        let thread = recorder.thread(1, 1);
        for stack in [&["a", "b"][..], &["a", "b", "a", "b"], &["a", "c"], &["a"]] {
            let stack = recorder.stack(stack.iter().map(|name| Frame::Named((*name).into())));
            recorder.add(Sample { event: 0, thread, time: 0, stack, period: 1 });
        }
        recorder.finish(Quality::default())
    }

    fn rows(which: Tree<'_>) -> Vec<(String, Option<usize>, u64, u64)> {
        let name = |who: &Who| match who {
            Who::Named(name) => name.to_string(),
            other => format!("{other:?}"),
        };
        let nodes = tree(&samples(), 0, &[], which);
        nodes.iter().map(|node| (name(&node.who), node.under, node.own, node.inclusive)).collect()
    }

    #[test]
    fn what_is_alike_has_one_node() {
        let row = |name: &str, under, own, inclusive| (name.to_owned(), under, own, inclusive);
        let want = [
            row("a", None, 1, 4),
            row("b", Some(0), 1, 2),
            row("a", Some(1), 0, 1),
            row("b", Some(2), 1, 1),
            row("c", Some(0), 1, 1),
        ];
        let mut all = rows(Tree::All);
        all.sort_by_key(|row| row.1);
        let mut want = want.to_vec();
        want.sort_by_key(|row| row.1);
        assert_eq!(all, want);
        assert_eq!(rows(Tree::Below(&[named("c")])), [row("c", None, 1, 1)]);
        assert_eq!(rows(Tree::Callers(&[named("b")])), [row("b", None, 0, 2), row("a", Some(0), 2, 2)]);
        assert_eq!(rows(Tree::Callers(&[named("z")])), []);
    }
}

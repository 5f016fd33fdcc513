//! SEQUITUR: a grammar of a sequence, made on-line in linear time: no pair of neighbours stands in it twice,
//! and each rule is used twice.
//!
//! Nodes live in one arena and are linked by index; the pairs that are in the grammar are found in a table
//! with open addressing, whose entries have a byte beside the node: how far they are from where they belong,
//! and some of the pair's hash. So nodes are looked at only where they are likely to match, and entries are
//! mostly moved without looking at them.
//!
//! Source: Nevill-Manning and Witten, Identifying Hierarchical Structure in Sequences, JAIR 7, 1997, section
//! 2 and 3 (with overlapping pairs as in their program: of `aaa`, the second pair is entered again when the
//! first one goes).

use crate::grammar::activations::Compressor;
use crate::grammar::rules::{END, GUARD, Loose, PART, RULE, is_barrier};

/// No node.
const NIL: u32 = u32::MAX;
/// The rule that the streams are.
const STREAMS: usize = 0;
/// The rule that all parts are, one behind the other.
const PARTS: usize = 1;
/// How many such rules there are: no symbol stands for them.
const N_STARTS: u32 = 2;

#[derive(Clone, Copy)]
struct Node {
    symbol: u32,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Rule {
    guard: u32,
    n_uses: u32,
}

/// A grammar that is being made.
pub struct Sequitur {
    nodes: Vec<Node>,
    free_node: u32,
    rules: Vec<Rule>,
    free_rules: Vec<u32>,
    pairs: Pairs,
    n_ends: u32,
    n_parts: u32,
}

/// The pairs of neighbours. While it is changed, each node in it still has, with its neighbour, the pair that
/// it was entered for: where an entry belongs is found by that.
struct Pairs {
    slots: Vec<Slot>,
    shift: u32,
    n: usize,
}

/// A place in the table: the node, and a byte: 4 bits of the hash, and how far it is from its home.
#[derive(Clone, Copy)]
struct Slot([u8; 5]);

/// This far from its home, or farther.
const FAR: u8 = 15;

impl Slot {
    const EMPTY: Self = Self([0xff; 5]);

    #[inline]
    fn new(node: u32, mark: u8) -> Self {
        let [a, b, c, d] = node.to_le_bytes();
        Self([a, b, c, d, mark])
    }

    /// The node; `NIL` if it is empty.
    #[inline]
    fn node(self) -> u32 {
        let [a, b, c, d, _] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    #[inline]
    fn mark(self) -> u8 {
        self.0[4]
    }
}

/// What stands beside a node with this hash, so far from its home.
#[inline]
fn mark(hash: u32, distance: usize) -> u8 {
    let [low, ..] = (hash << 4).to_le_bytes();
    low | u8::try_from(distance).map_or(FAR, |distance| distance.min(FAR))
}

#[inline]
fn hash(a: u32, b: u32) -> u32 {
    let key = (u64::from(a) << 32 | u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((key ^ key >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The hash of the pair at `node`.
fn hash_at(nodes: &[Node], node: u32) -> u32 {
    let Node { symbol, next, .. } = nodes[node as usize];
    hash(symbol, nodes[next as usize].symbol)
}

impl Pairs {
    fn new() -> Self {
        Self { slots: vec![Slot::EMPTY; 1 << 12], shift: 32 - 12, n: 0 }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// The slot of the pair at `node`, or the empty one where it belongs.
    #[inline]
    fn find(&self, nodes: &[Node], a: u32, b: u32, hash: u32) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let home = self.home(hash);
        let mut distance = 0;
        loop {
            let at = (home + distance) & mask;
            let slot = self.slots[at];
            let node = slot.node();
            if node == NIL {
                return (at, NIL);
            }
            if slot.mark() == mark(hash, distance) {
                let found = nodes[node as usize];
                if found.symbol == a && nodes[found.next as usize].symbol == b {
                    return (at, node);
                }
            }
            distance += 1;
        }
    }

    #[inline]
    fn fill(&mut self, nodes: &[Node], at: usize, hash: u32, node: u32) {
        let distance = at.wrapping_sub(self.home(hash)) & (self.slots.len() - 1);
        let was = std::mem::replace(&mut self.slots[at], Slot::new(node, mark(hash, distance)));
        if was.node() == NIL {
            self.n += 1;
            if self.n * 4 > self.slots.len() * 3 {
                self.grow(nodes);
            }
        }
    }

    #[cold]
    fn grow(&mut self, nodes: &[Node]) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![Slot::EMPTY; old.len() * 2];
        self.shift -= 1;
        let mask = self.slots.len() - 1;
        for node in old.into_iter().map(Slot::node).filter(|&node| node != NIL) {
            let hash = hash_at(nodes, node);
            let home = self.home(hash);
            let mut distance = 0;
            while self.slots[(home + distance) & mask].node() != NIL {
                distance += 1;
            }
            self.slots[(home + distance) & mask] = Slot::new(node, mark(hash, distance));
        }
    }

    /// Empties the slot `hole`, and moves what stood behind it because of it.
    #[inline]
    fn clear(&mut self, nodes: &[Node], mut hole: usize) {
        self.n -= 1;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.node() == NIL {
                break;
            }
            debug_assert_eq!(
                slot.mark() >> 4,
                mark(hash_at(nodes, slot.node()), 0) >> 4,
                "its pair has changed"
            );
            let distance = match slot.mark() & FAR {
                FAR => at.wrapping_sub(self.home(hash_at(nodes, slot.node()))) & mask,
                near => usize::from(near),
            };
            // It may move if its home is not between the hole and where it stands.
            let back = at.wrapping_sub(hole) & mask;
            if distance >= back {
                let near = u8::try_from(distance - back).map_or(FAR, |near| near.min(FAR));
                self.slots[hole] = Slot::new(slot.node(), slot.mark() & !FAR | near);
                hole = at;
            }
        }
        self.slots[hole] = Slot::EMPTY;
    }
}

impl Default for Sequitur {
    fn default() -> Self {
        Self::new()
    }
}

impl Sequitur {
    /// An empty grammar.
    pub fn new() -> Self {
        let mut this = Self {
            nodes: Vec::new(),
            free_node: NIL,
            rules: Vec::new(),
            free_rules: Vec::new(),
            pairs: Pairs::new(),
            n_ends: 0,
            n_parts: 0,
        };
        for _ in 0..N_STARTS {
            this.new_rule();
        }
        this
    }

    /// Appends a terminal, which is below 2^28, or the symbol of a part.
    #[inline]
    pub fn push(&mut self, symbol: u32) {
        self.append(STREAMS, symbol);
    }

    #[inline]
    fn append(&mut self, rule: usize, symbol: u32) {
        let guard = self.rules[rule].guard;
        let last = self.nodes[guard as usize].prev;
        let node = self.new_node(symbol, last, guard);
        self.nodes[last as usize].next = node;
        self.nodes[guard as usize].prev = node;
        self.check(last);
    }

    /// Ends a sequence: nothing that follows makes a rule with what went before.
    pub fn end(&mut self) {
        self.append(STREAMS, END | self.n_ends);
        self.n_ends += 1;
    }

    /// How many nodes are in use, about: what it takes of memory.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The rules, and the sequences that [`Sequitur::end`] ended.
    pub fn finish(mut self) -> Loose {
        self.pairs = Pairs::new();
        let (nodes, rules) = (&self.nodes, &self.rules);
        let body = |rule: usize| {
            let mut at = nodes[rules[rule].guard as usize].next;
            std::iter::from_fn(move || {
                let node = nodes[at as usize];
                at = node.next;
                (!is_guard(node.symbol)).then_some(node.symbol)
            })
        };
        let n_starts = N_STARTS as usize;
        let mut out = Loose { n_rules: rules.len() - n_starts, ..Loose::default() };
        let number = |symbol: u32| if symbol & RULE == 0 { symbol } else { symbol - N_STARTS };
        let mut is_free = vec![false; rules.len()];
        self.free_rules.iter().for_each(|&rule| is_free[rule as usize] = true);
        for (rule, is_free) in is_free.into_iter().enumerate().skip(n_starts) {
            // The nodes of one that is free are others' by now, or nobody's.
            let own = (!is_free).then(|| body(rule).map(number));
            out.push(own.into_iter().flatten());
        }
        let mut sequence = Vec::new();
        for symbol in body(PARTS) {
            if is_barrier(symbol) {
                out.push(sequence.drain(..));
            } else {
                sequence.push(number(symbol));
            }
        }
        for symbol in body(STREAMS) {
            if is_barrier(symbol) {
                out.sequences.push(std::mem::take(&mut sequence));
            } else {
                sequence.push(number(symbol));
            }
        }
        if !sequence.is_empty() {
            out.sequences.push(sequence);
        }
        out
    }

    fn new_node(&mut self, symbol: u32, prev: u32, next: u32) -> u32 {
        let node = Node { symbol, prev, next };
        if self.free_node == NIL {
            self.nodes.push(node);
            return u32::try_from(self.nodes.len() - 1).expect("fewer nodes than 2^32");
        }
        let at = self.free_node;
        self.free_node = self.nodes[at as usize].next;
        self.nodes[at as usize] = node;
        at
    }

    fn free(&mut self, node: u32) {
        self.nodes[node as usize] = Node { symbol: GUARD, prev: NIL, next: self.free_node };
        self.free_node = node;
    }

    fn new_rule(&mut self) -> u32 {
        let number = self.free_rules.pop().unwrap_or_else(|| {
            self.rules.push(Rule { guard: NIL, n_uses: 0 });
            u32::try_from(self.rules.len() - 1).expect("fewer rules than nodes")
        });
        let guard = self.new_node(GUARD | number, NIL, NIL);
        self.nodes[guard as usize].prev = guard;
        self.nodes[guard as usize].next = guard;
        self.rules[number as usize] = Rule { guard, n_uses: 0 };
        number
    }

    #[inline]
    fn symbol(&self, node: u32) -> u32 {
        self.nodes[node as usize].symbol
    }

    #[inline]
    fn next(&self, node: u32) -> u32 {
        self.nodes[node as usize].next
    }

    #[inline]
    fn prev(&self, node: u32) -> u32 {
        self.nodes[node as usize].prev
    }

    /// The pair at `node`, if neither half is a guard, or an end.
    #[inline]
    fn pair(&self, node: u32) -> Option<(u32, u32)> {
        let a = self.symbol(node);
        let b = self.symbol(self.next(node));
        (!is_barrier(a) && !is_barrier(b)).then_some((a, b))
    }

    /// Takes the pair at `node` out of the table, if it is this one that stands there.
    #[inline]
    fn forget(&mut self, node: u32) {
        if let Some((a, b)) = self.pair(node) {
            let (at, found) = self.pairs.find(&self.nodes, a, b, hash(a, b));
            if found == node {
                self.pairs.clear(&self.nodes, at);
            }
        }
    }

    /// Enters the pair at `node`, unless there is an equal one.
    #[inline]
    fn enter(&mut self, node: u32) {
        if let Some((a, b)) = self.pair(node) {
            let hash = hash(a, b);
            let (at, found) = self.pairs.find(&self.nodes, a, b, hash);
            if found == NIL {
                self.pairs.fill(&self.nodes, at, hash, node);
            }
        }
    }

    /// Looks the pair at `node` up: a new one is entered, of an old one both become a rule. Returns whether
    /// it was there.
    #[inline]
    fn check(&mut self, node: u32) -> bool {
        let Some((a, b)) = self.pair(node) else { return false };
        let hash = hash(a, b);
        let (at, found) = self.pairs.find(&self.nodes, a, b, hash);
        if found == NIL {
            self.pairs.fill(&self.nodes, at, hash, node);
            return false;
        }
        if found != node && self.next(found) != node && self.next(node) != found {
            self.replace_both(node, found, at);
        }
        true
    }

    /// `new` and `old` are equal pairs that do not overlap; `old` is in the table, in slot `at`.
    fn replace_both(&mut self, new: u32, old: u32, at: usize) {
        let before = self.symbol(self.prev(old));
        let behind = self.symbol(self.next(self.next(old)));
        let rule = if is_guard(before) && is_guard(behind) && before & !GUARD >= N_STARTS {
            let rule = before & !GUARD;
            self.replace(new, rule);
            rule
        } else {
            let rule = self.new_rule();
            let guard = self.rules[rule as usize].guard;
            let (a, b) = (self.symbol(new), self.symbol(self.next(new)));
            let first = self.new_node(a, guard, NIL);
            let second = self.new_node(b, first, guard);
            self.nodes[first as usize].next = second;
            self.nodes[guard as usize].next = first;
            self.nodes[guard as usize].prev = second;
            self.used(a);
            self.used(b);
            self.pairs.fill(&self.nodes, at, hash(a, b), first);
            self.replace(old, rule);
            self.replace(new, rule);
            rule
        };
        let first = self.next(self.rules[rule as usize].guard);
        let symbol = self.symbol(first);
        if symbol & RULE != 0 && self.rules[(symbol & !RULE) as usize].n_uses == 1 {
            self.inline(first);
        }
    }

    fn used(&mut self, symbol: u32) {
        if symbol & RULE != 0 {
            self.rules[(symbol & !RULE) as usize].n_uses += 1;
        }
    }

    fn unused(&mut self, symbol: u32) {
        if symbol & RULE != 0 {
            self.rules[(symbol & !RULE) as usize].n_uses -= 1;
        }
    }

    /// Puts `rule` in place of the pair at `node`, which is not in the table: the rule's own is.
    fn replace(&mut self, node: u32, rule: u32) {
        let Node { symbol: a, prev: before, .. } = self.nodes[node as usize];
        let second = self.next(node);
        let Node { symbol: b, next: behind, .. } = self.nodes[second as usize];
        self.forget(before);
        self.forget(second);
        // Of three equal symbols only one pair is in the table; if that one goes, the other one must come in.
        let outer = self.prev(before);
        if outer != NIL && self.symbol(before) == a && self.symbol(outer) == a {
            self.enter(outer);
        }
        let Node { symbol, next: outer, .. } = self.nodes[behind as usize];
        if outer != NIL && symbol == b && self.symbol(outer) == b {
            self.enter(behind);
        }
        self.unused(a);
        self.unused(b);
        self.free(second);
        self.rules[rule as usize].n_uses += 1;
        self.nodes[node as usize] = Node { symbol: RULE | rule, prev: before, next: behind };
        self.nodes[behind as usize].prev = node;
        if !self.check(before) {
            self.check(self.next(before));
        }
    }

    /// Puts the body of a rule that is used once in place of that use.
    fn inline(&mut self, node: u32) {
        let rule = self.symbol(node) & !RULE;
        let guard = self.rules[rule as usize].guard;
        let (left, right) = (self.prev(node), self.next(node));
        let (first, last) = (self.next(guard), self.prev(guard));
        self.forget(node);
        self.forget(left);
        self.free(guard);
        self.free(node);
        self.free_rules.push(rule);
        self.nodes[left as usize].next = first;
        self.nodes[first as usize].prev = left;
        self.nodes[last as usize].next = right;
        self.nodes[right as usize].prev = last;
        self.enter(last);
    }
}

#[inline]
fn is_guard(symbol: u32) -> bool {
    symbol & (RULE | GUARD) == GUARD
}

impl Compressor for Sequitur {
    fn push(&mut self, symbols: &[u32]) {
        symbols.iter().for_each(|&symbol| self.append(STREAMS, symbol));
    }

    fn part(&mut self, symbols: &[u32]) -> u32 {
        symbols.iter().for_each(|&symbol| self.append(PARTS, symbol));
        self.append(PARTS, END | self.n_ends);
        self.n_ends += 1;
        self.n_parts += 1;
        PART | (self.n_parts - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::rules::Rules;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn expand(rules: &Rules, symbol: u32, out: &mut Vec<u32>) {
        if symbol & RULE == 0 {
            return out.push(symbol);
        }
        let rule = (symbol & !RULE) as usize;
        let start = if rule == 0 { 0 } else { rules.ends[rule - 1] };
        rules.bodies[start..rules.ends[rule]].iter().for_each(|&s| expand(rules, s, out));
    }

    /// What the grammar of sequences makes is them; pairs stand in it once, but for overlaps, and rules are
    /// used twice.
    fn held(sequences: &[Vec<u32>]) {
        let mut sequitur = Sequitur::new();
        for sequence in sequences {
            sequence.iter().for_each(|&s| sequitur.push(s));
            sequitur.end();
        }
        let rules = sequitur.finish().in_order();
        let mut got = Vec::new();
        for sequence in &rules.sequences {
            let mut out = Vec::new();
            sequence.iter().for_each(|&s| expand(&rules, s, &mut out));
            got.push(out);
        }
        assert_eq!(got, sequences);
        let mut uses = HashMap::new();
        let mut pairs: HashMap<(u32, u32), Vec<(usize, usize)>> = HashMap::new();
        let mut start = 0;
        let bodies = rules.ends.iter().map(|&end| &rules.bodies[std::mem::replace(&mut start, end)..end]);
        for (n, body) in bodies.chain(rules.sequences.iter().map(Vec::as_slice)).enumerate() {
            body.iter().filter(|&&s| s & RULE != 0).for_each(|&s| *uses.entry(s).or_insert(0) += 1);
            body.windows(2)
                .enumerate()
                .for_each(|(i, two)| pairs.entry((two[0], two[1])).or_default().push((n, i)));
        }
        assert!(uses.values().all(|&n| n >= 2), "{uses:?}");
        for (pair, places) in pairs {
            let overlap = pair.0 == pair.1
                && places.windows(2).all(|two| two[0].0 == two[1].0 && two[1].1 - two[0].1 <= 1);
            assert!(places.len() == 1 || overlap, "{pair:?} stands at {places:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_grammar_makes_the_sequences_and_keeps_both_promises(
            sequences in prop::collection::vec(prop::collection::vec(0..4_u32, 0..300), 1..4),
        ) {
            held(&sequences);
        }
    }

    /// The table grows, and is so full that pairs are far from where they belong.
    #[test]
    fn pairs_are_found_in_a_full_table() {
        let mut random = 1_u32;
        let sequence = (0..95_000).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 22
        });
        held(&[sequence.collect()]);
    }
}

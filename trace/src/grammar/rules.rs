//! Rules as a compressor leaves them, and put in order: what a rule is made of comes before it; what is used
//! once stands where it is used.

/// In a symbol: it is a rule, not a terminal.
pub const RULE: u32 = 1 << 31;
/// In a symbol that is no rule: it is for the compressor's own use; at most as large as this and its half.
pub const GUARD: u32 = 1 << 30;
/// In a symbol: it ends a sequence, and is the only one of its kind.
pub const END: u32 = 1 << 29;
/// In a symbol: it stands for a part, a sequence that was ended before.
pub const PART: u32 = 1 << 28;

/// Whether nothing that is repeated goes over this symbol.
#[inline]
pub fn is_barrier(symbol: u32) -> bool {
    symbol & RULE == 0 && symbol >= END
}

/// Rules in any order. Parts are rules that the compressor was told of; they may be used once, or be another
/// rule's only symbol.
#[derive(Default)]
pub struct Loose {
    /// The bodies, one behind the other: those of rules, then those of parts.
    pub bodies: Vec<u32>,
    /// Where each body ends.
    pub ends: Vec<usize>,
    /// How many of them are those of rules.
    pub n_rules: usize,
    /// What is made of them.
    pub sequences: Vec<Vec<u32>>,
}

/// A grammar as it comes out: what a rule is made of comes before it.
pub struct Rules {
    /// The bodies, one behind the other; a symbol with [`RULE`] is a rule, others are terminals.
    pub bodies: Vec<u32>,
    /// Where each body ends.
    pub ends: Vec<usize>,
    /// The sequences.
    pub sequences: Vec<Vec<u32>>,
}

/// A rule that is being written.
struct Open {
    rule: usize,
    /// The next of its symbols.
    at: usize,
    /// Where it begins in what is written; `None` if it stands where it is used.
    start: Option<usize>,
}

impl Loose {
    /// Appends a body.
    pub fn push(&mut self, body: impl IntoIterator<Item = u32>) {
        self.bodies.extend(body);
        self.ends.push(self.bodies.len());
    }

    fn start(&self, rule: usize) -> usize {
        if rule == 0 { 0 } else { self.ends[rule - 1] }
    }

    /// The rule that a symbol stands for.
    fn rule(&self, mut symbol: u32) -> Option<usize> {
        while symbol & RULE == 0 {
            if symbol & PART == 0 || symbol >= END {
                return None;
            }
            let part = self.n_rules + (symbol & !PART) as usize;
            match self.bodies[self.start(part)..self.ends[part]] {
                [other] => symbol = other,
                _ => return Some(part),
            }
        }
        Some((symbol & !RULE) as usize)
    }

    /// The rules that the sequences need.
    pub fn in_order(self) -> Rules {
        let mut n_uses = vec![0_u32; self.ends.len()];
        let alone = |rule: usize| self.ends[rule] - self.start(rule) == 1;
        let bodies = (0..self.ends.len()).filter(|&rule| !alone(rule));
        let bodies = bodies.map(|rule| &self.bodies[self.start(rule)..self.ends[rule]]);
        for body in bodies.chain(self.sequences.iter().map(Vec::as_slice)) {
            body.iter().filter_map(|&symbol| self.rule(symbol)).for_each(|rule| n_uses[rule] += 1);
        }
        let mut out = Rules { bodies: Vec::new(), ends: Vec::new(), sequences: Vec::new() };
        let mut number = vec![u32::MAX; self.ends.len()];
        let (mut written, mut open): (Vec<u32>, Vec<Open>) = (Vec::new(), Vec::new());
        for sequence in &self.sequences {
            let mut rest = sequence.iter();
            loop {
                // The next symbol of the innermost rule, or of the sequence.
                let symbol = match open.last_mut() {
                    None => rest.next(),
                    Some(inner) => {
                        inner.at += 1;
                        self.bodies[..self.ends[inner.rule]].get(inner.at - 1)
                    }
                };
                let Some(&symbol) = symbol else {
                    let Some(Open { rule, start, .. }) = open.pop() else { break };
                    // A rule gets its number when its body is done.
                    if let Some(start) = start {
                        number[rule] = u32::try_from(out.ends.len()).expect("fewer than symbols");
                        out.bodies.extend_from_slice(&written[start..]);
                        out.ends.push(out.bodies.len());
                        written.truncate(start);
                        written.push(RULE | number[rule]);
                    }
                    continue;
                };
                match self.rule(symbol) {
                    None => written.push(symbol),
                    Some(rule) if number[rule] != u32::MAX => written.push(RULE | number[rule]),
                    Some(rule) => {
                        let start = (n_uses[rule] > 1).then_some(written.len());
                        open.push(Open { rule, at: self.start(rule), start });
                    }
                }
            }
            out.sequences.push(std::mem::take(&mut written));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_out_before_they_are_used_and_twice() {
        let mut loose = Loose { n_rules: 2, ..Loose::default() };
        loose.push([7, 8]);
        loose.push([PART | 1, RULE]);
        loose.push([RULE]);
        loose.push([1, PART, 2]);
        loose.push([3, 4]);
        loose.sequences = vec![vec![RULE | 1, PART, 5, RULE | 1], vec![PART | 2]];
        let rules = loose.in_order();
        assert_eq!(rules.bodies, [7, 8, 1, RULE, 2, RULE]);
        assert_eq!(rules.ends, [2, 6]);
        assert_eq!(rules.sequences, [vec![RULE | 1, RULE, 5, RULE | 1], vec![3, 4]]);
    }
}

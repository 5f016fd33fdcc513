//! Where the frames of a flame graph are: of any tree whose nodes weigh something.
//!
//! The root is above, what is called below it, as wide as it weighs. Frames that are too narrow to be seen
//! are one frame together, beside the others, which says how many it stands for.
//!
//! Invariant: frames below a frame are no wider, together, than that, and have exactly their part of it.
//!
//! Source: Gregg, "The Flame Graph", CACM 59(6), 2016.

/// How many levels are drawn.
const DEEPEST: usize = 200;

/// A tree that is drawn: each node behind the one above it.
pub struct Nodes {
    under: Vec<Option<usize>>,
    weights: Vec<f64>,
    /// The nodes below each, in order, one after the other; those of none come first.
    below: Vec<usize>,
    /// Where in `below` those of a node begin, one more than its number; they end where the next ones begin.
    starts: Vec<usize>,
}

/// What a frame stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stands {
    /// All that there is.
    All,
    /// A node.
    One(usize),
    /// Nodes that are too narrow, or too deep.
    Elided {
        /// Below which; `None`: below all.
        under: Option<usize>,
        /// How many, with all that is below them.
        n_all: usize,
    },
}

/// A frame: from where to where, of the whole width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Frame {
    /// What it stands for.
    pub stands: Stands,
    /// How far it is below the first one.
    pub level: usize,
    /// Where it begins, `0.0..=1.0`.
    pub x: f64,
    /// How wide it is.
    pub width: f64,
}

impl Nodes {
    /// Nodes that stand below these, and weigh so much with all that is below them.
    pub fn new(under: Vec<Option<usize>>, weights: Vec<f64>) -> Nodes {
        let slot = |under: &Option<usize>| under.map_or(0, |n| n + 1);
        let mut starts = vec![0; under.len() + 2];
        for of in &under {
            starts.get_mut(slot(of) + 1).into_iter().for_each(|n| *n += 1);
        }
        for n in 1..starts.len() {
            starts[n] += starts[n - 1];
        }
        let mut next = starts.clone();
        let mut below = vec![0; under.len()];
        for (n, of) in under.iter().enumerate() {
            if let Some(at) = next.get_mut(slot(of)) {
                below[*at] = n;
                *at += 1;
            }
        }
        Nodes { under, weights, below, starts }
    }

    /// What is directly below a node; `None`: what is below none.
    pub fn below(&self, of: Option<usize>) -> &[usize] {
        let slot = of.map_or(0, |n| n + 1);
        let (Some(start), Some(end)) = (self.starts.get(slot), self.starts.get(slot + 1)) else { return &[] };
        self.below.get(*start..*end).unwrap_or_default()
    }

    /// What is above a node, the outermost first.
    pub fn above(&self, of: usize) -> Vec<usize> {
        let one_above = |n: usize| self.under.get(n).copied().flatten();
        let mut above: Vec<usize> = std::iter::successors(one_above(of), |n| one_above(*n)).collect();
        above.reverse();
        above
    }

    /// What a node weighs.
    pub fn weight(&self, n: usize) -> f64 {
        self.weights.get(n).copied().unwrap_or_default()
    }

    /// These nodes, and all that is below them.
    pub fn all(&self, of: &[usize]) -> Vec<usize> {
        let mut all = of.to_vec();
        let mut at = 0;
        while let Some(n) = all.get(at).copied() {
            all.extend(self.below(Some(n)));
            at += 1;
        }
        all
    }

    /// The frames of a node and of all below it; `None`: of all, which weighs `total`. What is narrower than
    /// `least` of the whole width is elided.
    pub fn frames(&self, of: Option<usize>, total: f64, least: f64) -> Vec<Frame> {
        let first = of.map_or(Stands::All, Stands::One);
        let mut frames = vec![Frame { stands: first, level: 0, x: 0.0, width: 1.0 }];
        let mut at = 0;
        while let Some(frame) = frames.get(at).copied() {
            at += 1;
            let (under, weight) = match frame.stands {
                Stands::All => (None, total),
                Stands::One(n) => (Some(n), self.weight(n)),
                Stands::Elided { .. } => continue,
            };
            let below = self.below(under);
            let sum: f64 = below.iter().map(|n| self.weight(*n)).sum();
            // Parts of an estimate may be more than the whole.
            let all = weight.max(sum);
            if all <= 0.0 {
                continue;
            }
            let width = |n: usize| frame.width * self.weight(n) / all;
            let is_drawn = |n: &&usize| frame.level + 1 < DEEPEST && width(**n) >= least;
            let mut x = frame.x;
            for n in below.iter().filter(is_drawn) {
                let width = width(*n);
                frames.push(Frame { stands: Stands::One(*n), level: frame.level + 1, x, width });
                x += width;
            }
            let elided: Vec<usize> = below.iter().filter(|n| !is_drawn(n)).copied().collect();
            let width: f64 = elided.iter().map(|n| width(*n)).sum();
            if width > 0.0 {
                let stands = Stands::Elided { under, n_all: self.all(&elided).len() };
                frames.push(Frame { stands, level: frame.level + 1, x, width });
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0(1(3 4) 2)` and `5`, of 100.
    fn nodes() -> Nodes {
        let under = vec![None, Some(0), Some(0), Some(1), Some(1), None];
        Nodes::new(under, vec![80.0, 60.0, 15.0, 40.0, 0.5, 20.0])
    }

    fn text(frames: &[Frame]) -> Vec<String> {
        let one = |of: &Frame| {
            let (from, to) = (100.0 * of.x, 100.0 * (of.x + of.width));
            format!("{} {:?} {from:.2}..{to:.2}", of.level, of.stands)
        };
        frames.iter().map(one).collect()
    }

    #[test]
    fn frames_are_as_wide_as_what_they_stand_for_weighs() {
        let want = [
            "0 All 0.00..100.00",
            "1 One(0) 0.00..80.00",
            "1 One(5) 80.00..100.00",
            "2 One(1) 0.00..60.00",
            "2 One(2) 60.00..75.00",
            "3 One(3) 0.00..40.00",
            "3 One(4) 40.00..40.50",
        ];
        assert_eq!(text(&nodes().frames(None, 100.0, 0.001)), want);
    }

    #[test]
    fn a_node_that_is_zoomed_has_the_whole_width() {
        let want = ["0 One(1) 0.00..100.00", "1 One(3) 0.00..66.67", "1 One(4) 66.67..67.50"];
        assert_eq!(text(&nodes().frames(Some(1), 100.0, 0.001)), want);
        assert_eq!(nodes().above(3), [0, 1]);
        assert_eq!(nodes().above(0), [0; 0]);
    }

    #[test]
    fn what_is_too_narrow_is_one_frame_that_says_how_many_it_stands_for() {
        let want = [
            "0 All 0.00..100.00",
            "1 One(0) 0.00..80.00",
            "1 Elided { under: None, n_all: 1 } 80.00..100.00",
            "2 One(1) 0.00..60.00",
            "2 Elided { under: Some(0), n_all: 1 } 60.00..75.00",
            "3 One(3) 0.00..40.00",
            "3 Elided { under: Some(1), n_all: 1 } 40.00..40.50",
        ];
        assert_eq!(text(&nodes().frames(None, 100.0, 0.3)), want);
        let want = ["0 All 0.00..100.00", "1 Elided { under: None, n_all: 6 } 0.00..100.00"];
        assert_eq!(text(&nodes().frames(None, 100.0, 2.0)), want);
    }

    /// Of a tree with random weights: what is drawn below a frame lies within it, side by side, and what is
    /// drawn and what is elided are all nodes, each once.
    #[test]
    fn nothing_is_drawn_outside_of_its_frame_and_nothing_is_forgotten() {
        let mut seed = 7_u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let n = 2000;
        let under: Vec<Option<usize>> =
            (0..n).map(|at: u64| if at < 3 { None } else { usize::try_from(random(at)).ok() }).collect();
        let mut weights: Vec<f64> = (0..n).map(|_| random(1000) as f64).collect();
        for at in (0..under.len()).rev() {
            if let Some(above) = under[at] {
                weights[above] += weights[at];
            }
        }
        let total = weights[..3].iter().sum();
        let nodes = Nodes::new(under, weights);
        for least in [0.0, 1e-4, 0.01] {
            let frames = nodes.frames(None, total, least);
            let mut n_seen = 0;
            for frame in &frames {
                n_seen += match frame.stands {
                    Stands::All => 0,
                    Stands::One(_) => 1,
                    Stands::Elided { n_all, .. } => n_all,
                };
                let within: Vec<&Frame> = frames
                    .iter()
                    .filter(|other| match (other.stands, frame.stands) {
                        (Stands::One(n), Stands::All) => nodes.under[n].is_none(),
                        (Stands::One(n), Stands::One(of)) => nodes.under[n] == Some(of),
                        (Stands::Elided { under, .. }, Stands::One(of)) => under == Some(of),
                        (Stands::Elided { under, .. }, Stands::All) => under.is_none(),
                        _ => false,
                    })
                    .collect();
                let mut x = frame.x;
                for other in within {
                    assert!((other.x - x).abs() < 1e-9 && other.level == frame.level + 1, "{other:?} at {x}");
                    x += other.width;
                }
                assert!(x <= frame.x + frame.width + 1e-9, "{frame:?} ends before {x}");
            }
            // Without weight, nothing is to be seen.
            let n_light = (0..2000).filter(|n| nodes.weight(*n) == 0.0).count();
            assert!(n_seen <= 2000 && n_seen + n_light >= 2000, "{n_seen} and {n_light}, at {least}");
        }
    }
}

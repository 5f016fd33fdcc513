//! How long each branch of a piece must be.
//!
//! All branches that have a short form start as short ones; what does not reach becomes long, until all do.
//! They only grow, so this ends, with the fewest long ones: most functions need two or three rounds.
//!
//! Source: T. G. Szymanski, "Assembling Code for Machines with Span-Dependent Instructions", CACM 21 (4),
//! 1978; with alignment, what was made long stays so.

use crate::arch::emit;
use program::Va;
use program::arch::Branch;

/// Where a branch leads.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    /// To this label of the same piece.
    Here(usize),
    /// To this old address.
    There(Va),
    /// The same, as who is in the function already.
    Inside(Va),
}

/// What decides how long branches are.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A label, aligned to so much.
    Label(usize, u32),
    /// A branch.
    Branch(Branch, Aim),
}

/// Branches with lengths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relaxed {
    /// Whether each is long, in order.
    pub is_long: Vec<bool>,
    /// The offset of each label.
    pub at_label: Vec<u32>,
}

/// A branch, and where it starts.
struct Sized {
    at: u32,
    is_long: bool,
}

/// Decides how long the branches of `steps` are, each with so many bytes in front of it from the step before;
/// labels are below `n_labels`.
pub fn relax(steps: &[(u32, Step)], n_labels: usize) -> Relaxed {
    let mut at_label = vec![0u32; n_labels];
    let is_branch = |(_, step): &(u32, Step)| match *step {
        Step::Branch(branch, aim) => {
            let is_long = !matches!(aim, Aim::Here(_)) || emit::short(branch).is_none();
            Some(Sized { at: 0, is_long })
        }
        Step::Label(..) => None,
    };
    let mut branches: Vec<Sized> = Vec::with_capacity(n_labels);
    branches.extend(steps.iter().filter_map(is_branch));
    loop {
        place(steps, &mut branches, &mut at_label);
        if !lengthen(steps, &mut branches, &at_label) {
            return Relaxed { is_long: branches.into_iter().map(|b| b.is_long).collect(), at_label };
        }
    }
}

/// Where everything is if the branches are as long as they are now.
fn place(steps: &[(u32, Step)], branches: &mut [Sized], at_label: &mut [u32]) {
    let mut at = 0u32;
    let mut next = branches.iter_mut();
    for (bytes, step) in steps {
        at += bytes;
        match step {
            Step::Label(label, align) => {
                if *align > 1 {
                    at = at.next_multiple_of(*align);
                }
                at_label[*label] = at;
            }
            Step::Branch(branch, _) => {
                let sized = next.next().expect("one for each");
                sized.at = at;
                at += match emit::short(*branch) {
                    Some((_, n)) if !sized.is_long => len32(n),
                    _ => len32(emit::long_len(*branch)),
                };
            }
        }
    }
}

/// Makes those long that do not reach; whether there were any.
fn lengthen(steps: &[(u32, Step)], branches: &mut [Sized], at_label: &[u32]) -> bool {
    let mut changed = false;
    let mut next = branches.iter_mut();
    for (_, step) in steps {
        let Step::Branch(branch, aim) = step else { continue };
        let sized = next.next().expect("one for each");
        if let (Aim::Here(to), false, Some((_, n))) = (aim, sized.is_long, emit::short(*branch)) {
            let distance = i64::from(at_label[*to]) - i64::from(sized.at) - n as i64;
            if i8::try_from(distance).is_err() {
                sized.is_long = true;
                changed = true;
            }
        }
    }
    changed
}

/// A length in a piece.
pub fn len32(n: usize) -> u32 {
    u32::try_from(n).expect("pieces are below 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N_LABELS: usize = 12;

    /// Labels 0 to 11 in this order, with branches between them.
    fn steps(is_aligned: bool) -> impl Strategy<Value = Vec<(u32, Step)>> {
        let branch = prop_oneof![
            Just(Branch::Jump),
            (0..16u8).prop_map(Branch::Conditional),
            Just(Branch::ShortOnly([0xe2, 0], 1)),
            Just(Branch::Call),
        ];
        let aim = prop_oneof![4 => (0..N_LABELS).prop_map(Aim::Here), 1 => Just(Aim::There(Va(0x401000)))];
        let branch = (0..60u32, branch, aim).prop_map(|(bytes, b, aim)| (bytes, Step::Branch(b, aim)));
        let align = if is_aligned { (0..6u32).prop_map(|n| 1 << n).boxed() } else { Just(1).boxed() };
        let part = (proptest::collection::vec(branch, 0..5), 0..60u32, align);
        proptest::collection::vec(part, N_LABELS).prop_map(|parts| {
            let mut out = Vec::new();
            for (label, (branches, bytes, align)) in parts.into_iter().enumerate() {
                out.extend(branches);
                out.push((bytes, Step::Label(label, align)));
            }
            out
        })
    }

    /// Start, length, branch and aim.
    type LaidOut = (i64, i64, Branch, Aim);

    /// The branches and where the labels are, laid out one after another.
    fn laid_out(steps: &[(u32, Step)], is_long: &[bool]) -> (Vec<LaidOut>, Vec<u32>) {
        let (mut at, mut labels, mut branches) = (0, vec![0; N_LABELS], Vec::new());
        let mut is_long = is_long.iter();
        for &(bytes, step) in steps {
            at += bytes;
            match step {
                Step::Label(label, align) => {
                    at = at.div_ceil(align) * align;
                    labels[label] = at;
                }
                Step::Branch(branch, aim) => {
                    let is_long = *is_long.next().expect("one for each");
                    let mut code = Vec::new();
                    match emit::short(branch).filter(|_| !is_long) {
                        Some((bytes, n)) => code.extend(&bytes[..n]),
                        None => emit::long(branch, &mut code),
                    }
                    branches.push((i64::from(at), code.len() as i64, branch, aim));
                    at += len32(code.len());
                }
            }
        }
        (branches, labels)
    }

    proptest! {
        #[test]
        fn every_short_branch_reaches_its_label(steps in steps(true)) {
            let Relaxed { is_long, at_label } = relax(&steps, N_LABELS);
            let (branches, labels) = laid_out(&steps, &is_long);
            prop_assert_eq!(&labels, &at_label);
            for ((at, len, branch, aim), is_long) in branches.into_iter().zip(is_long) {
                match aim {
                    Aim::Here(to) if !is_long => {
                        let distance = i64::from(labels[to]) - (at + len);
                        prop_assert!((-128..128).contains(&distance), "{branch:?} {distance}");
                    }
                    Aim::Here(_) => {}
                    Aim::There(_) | Aim::Inside(_) => prop_assert!(is_long),
                }
            }
        }

        #[test]
        fn no_long_branch_could_be_short(steps in steps(false)) {
            let Relaxed { is_long, .. } = relax(&steps, N_LABELS);
            let (branches, labels) = laid_out(&steps, &is_long);
            for ((at, len, branch, aim), is_long) in branches.into_iter().zip(is_long) {
                if let (Aim::Here(to), true, Some((_, n))) = (aim, is_long, emit::short(branch)) {
                    let to = i64::from(labels[to]);
                    let distance = if to > at { to - (at + len) } else { to - (at + n as i64) };
                    prop_assert!(!(-128..128).contains(&distance), "{branch:?} {distance}");
                }
            }
        }
    }
}

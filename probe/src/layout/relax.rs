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

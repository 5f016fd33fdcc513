//! `replace --trial`: new code compared with the function before it stays.

use super::{Args, New, hinted, micros, refused, view};
use crate::output::{Answer, warn};
use live::{AskedToEnd, End, Over};
use program::signature::{Signature, text};
use session::{
    Compared, Difference, Replacement, RunningProgram, Trial, TrialError, TrialWanted, Verdict, Word,
};
use std::time::Duration;
use views::replace::{ReplaceView, TrialView};

/// So many calls are made in a copy, if nothing else is said.
const VERIFIED: u64 = 100;

/// Tries `new` for so `long`, and keeps what is faster.
pub fn run(
    args: &Args,
    process: &RunningProgram,
    new: &New<'_>,
    long: Duration,
    word: &Word<'_>,
) -> anyhow::Result<Answer> {
    let asked_to_end = AskedToEnd::keep()?;
    let ends = [End::of(args.pid)];
    let waits = |long| asked_to_end.wait(&ends, Some(long)) == Over::Time;
    // Who asks for calls in a copy says that they can be made there.
    let word = Word { is_pure: word.is_pure || args.verify.is_some_and(|n| n > 0), ..word.clone() };
    let pure = match (args.verify, new.module.pure_function(new.func, &word)) {
        (Some(0), _) => None,
        (Some(_), pure) => Some(pure.map_err(refused)?),
        (None, pure) => pure.ok(),
    };
    let wanted = TrialWanted { long, n_verified: args.verify.unwrap_or(VERIFIED) };
    let standing = |made: &Replacement| new.standing(made);
    let trial = Trial::start(process, new.module, new.func, (new.graft, new.symbol), &standing);
    let trial = trial.map_err(failed)?;
    let done = (|| {
        let (n_verified, verdict) = match &pure {
            Some(pure) => trial.verify(pure, &wanted, &waits)?,
            None => (0, None),
        };
        let (compared, verdict) = match verdict {
            Some(verdict) => (Compared::default(), verdict),
            None => trial.compare(&wanted, &waits)?,
        };
        Ok((n_verified, compared, verdict))
    })();
    // Whatever came of it, the function runs as it did, before anything else is said.
    let given = trial.end().map_err(hinted);
    let (n_verified, compared, verdict) = done.map_err(failed)?;
    let given = given?;
    let left = given.left.as_ref().map(|left| format!("what was tried is in the process still: {left}"));
    doubts(args, pure.is_some(), (n_verified, &verdict), left.as_deref());
    let signature = pure.as_ref().map(|pure| &pure.signature);
    let why = why(&verdict, signature).or(left);
    let is_kept = why.is_none();
    let made = match is_kept {
        true => {
            let made = Replacement::new(process, new.module, new.func, new.graft, new.symbol);
            let made = made.map_err(refused)?;
            let standing = new.standing(&made);
            let stopped = made.put_in(std::slice::from_ref(&standing)).map_err(refused)?;
            Some((view(&standing, false), stopped.pause))
        }
        false => None,
    };
    let is_known = compared.n_calls.iter().all(|n| *n > 0) && compared.gain > 0.0;
    let known = |value: f64| is_known.then_some(value);
    let standing = new.names();
    let shown = TrialView {
        function: standing.0,
        with: standing.1,
        old_ticks: known(compared.old_ticks),
        new_ticks: known(compared.new_ticks),
        gain: known(compared.gain),
        interval: is_known.then_some([compared.interval.0, compared.interval.1]),
        kept: is_kept,
        verdict: name(&verdict),
        why,
        verified: n_verified,
        calls: compared.n_calls,
    };
    let pause = made.as_ref().map_or(given.stopped.pause, |made| made.1);
    args.output.print(&ReplaceView {
        trial: Some(shown),
        replaced: made.map(|made| vec![made.0]),
        pause_us: Some(micros(pause)),
        ..ReplaceView::of(args.pid)
    })?;
    Ok(if is_kept { Answer::Yes } else { Answer::No })
}

/// Says what was not tried, and what is `left` in the process.
fn doubts(args: &Args, is_pure: bool, (n_verified, verdict): (u64, &Verdict), left: Option<&str>) {
    if !is_pure && args.verify.is_none() {
        let what =
            "its calls were not tried in a copy: its code does not show that they depend on arguments alone";
        warn(what, Some("--verify N makes N calls of both there all the same"));
    }
    if is_pure && n_verified == 0 && !matches!(verdict, Verdict::Interrupted) {
        warn(
            "no call was tried in a copy: none came, or the function itself does not come back there",
            Some("what asks the kernel for something, or waits for a lock, cannot be tried so"),
        );
    }
    if let Some(left) = left {
        warn(left, Some(&format!("`engraft rescue {}` tries again to take it out", args.pid)));
    }
}

impl New<'_> {
    /// What the function, and what stands in for it, are called.
    fn names(&self) -> (String, String) {
        let with = self
            .symbol
            .map_or_else(|| self.graft.name().to_owned(), |symbol| format!("{}:{symbol}", self.graft.name()));
        (crate::input::spelt(&self.module.program, self.func), with)
    }
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Even => "even",
        Verdict::TooFew => "too-few",
        Verdict::Wrong { .. } => "wrong",
        Verdict::Interrupted => "interrupted",
    }
}

/// Why new code does not stay, if it does not.
fn why(verdict: &Verdict, signature: Option<&Signature>) -> Option<String> {
    let why = match verdict {
        Verdict::Faster => return None,
        Verdict::Slower => "the new code is slower".to_owned(),
        Verdict::Even => "which is faster cannot be told: the difference is within the noise".to_owned(),
        Verdict::TooFew => "too few calls came back to tell which is faster".to_owned(),
        Verdict::Interrupted => "the trial was ended".to_owned(),
        Verdict::Wrong { arguments, why } => {
            let with = given(arguments, signature);
            match why {
                Difference::Results { old, new } => {
                    let [old, new] = [old, new].map(|words| result(words, signature));
                    format!("with {with} the new code gave {new}, not {old}")
                }
                Difference::Errno { old, new } => {
                    let set = |errno: &Option<u32>| errno.map_or("as it was".to_owned(), |n| n.to_string());
                    format!("with {with} the new code left errno {}, not {}", set(new), set(old))
                }
                Difference::Flags { old, new } => {
                    format!("with {with} the new code raised the floating-point flags {new:#x}, not {old:#x}")
                }
                Difference::Ended(how) => format!("with {with} the new code {how}"),
            }
        }
    };
    Some(why)
}

/// Arguments as text.
fn given(words: &[u64], signature: Option<&Signature>) -> String {
    let kinds = signature.map(|signature| &signature.parameters[..]).unwrap_or_default();
    let one = |(n, word): (usize, &u64)| {
        let kind = kinds.get(n).filter(|_| kinds.len() == words.len());
        kind.map_or_else(|| format!("{word:#x}"), |one| text::text(&one.kind, &word.to_le_bytes()))
    };
    format!("({})", words.iter().enumerate().map(one).collect::<Vec<_>>().join(", "))
}

/// A result as text.
fn result(words: &[u64], signature: Option<&Signature>) -> String {
    match (words, signature) {
        ([word], Some(signature)) => text::text(&signature.result, &word.to_le_bytes()),
        _ => words.iter().map(|word| format!("{word:#x}")).collect::<Vec<_>>().join(", "),
    }
}

fn failed(err: TrialError) -> anyhow::Error {
    match err {
        TrialError::Replace(err) => refused(err),
        TrialError::Attach(err) => hinted(err),
        err => err.into(),
    }
}

//! A process sampled for a while.

use crate::failure::{Failure, Status};
use crate::process::Process;
use live::{Event, Rate, Wanted};
use program::LiveVa;
use session::Sampler;
use std::time::Duration;

/// What was sampled of a process.
pub struct Profile {
    pub(crate) n_samples: u64,
    /// The instruction at which its threads were most often.
    pub(crate) most_frequent: Option<LiveVa>,
}

impl Profile {
    /// Of `process`, sampled so many times a second of a processor's time, for so long.
    pub fn take(process: &Process, how_long: Duration, hertz: u64) -> Result<Profile, Failure> {
        if hertz == 0 || how_long.is_zero() {
            let what =
                format!("process {} cannot be sampled {hertz} times a second for {how_long:?}", process.pid);
            return Err(Failure::new(Status::Argument, what).with_hint("1000 a second, 1000 ms is usual"));
        }
        let wanted = Wanted { events: vec![Event::clock()], rate: Rate::Hertz(hertz), chains: None };
        let sampled = Sampler::profile(&[process.pid], wanted, how_long)?;
        let most_frequent = match sampled.most_frequent() {
            Some((module, at)) => Some(process.module_of(&module.path)?.live(at)),
            None => None,
        };
        let n_samples = sampled.samples.len() as u64;
        Ok(Profile { n_samples, most_frequent })
    }
}

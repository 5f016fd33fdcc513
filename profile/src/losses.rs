//! Losses, summed up by what and why: a source has too many records to list each.

use crate::counts::Lost;
use crate::derive::add;
use std::collections::BTreeMap;

/// What was lost so far.
#[derive(Default)]
pub(crate) struct Losses(BTreeMap<(String, &'static str), u64>);

impl Losses {
    /// Adds `count` executions or samples of `what`, often a function's name.
    pub fn add(&mut self, what: &str, why: &'static str, count: u64) {
        add(&mut self.0, (what.to_owned(), why), count);
    }
    /// Sorted by what, then why.
    pub fn into_list(self) -> Vec<Lost> {
        self.0.into_iter().map(|((what, why), count)| Lost { what, why: why.to_owned(), count }).collect()
    }
}

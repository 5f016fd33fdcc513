//! What was counted of what ran, what was not, and what was not looked at.

use super::CountView;
use crate::many;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A function that stayed where it was, and may have run.
#[derive(Debug, Serialize)]
pub struct UnknownView {
    /// The file it is in.
    pub module: String,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// Why it was not moved.
    pub why: String,
}

/// A function that stayed where it was, and ran; or whose padding ran.
#[derive(Debug, Serialize)]
pub struct UncountedView {
    /// The file it is in.
    pub module: String,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// Why it has no counts.
    pub why: String,
    /// Calls from counted code: it may have run more often.
    pub calls: u64,
    /// At least so many.
    pub instructions: u64,
}

/// A library that was not looked at.
#[derive(Debug, Serialize)]
pub struct LeftOutView {
    /// The file.
    pub module: String,
    /// The option that counts it, too; `None` if none does.
    pub option: Option<String>,
}

/// Other programs that were started, and not counted.
#[derive(Debug, Serialize)]
pub struct OthersView {
    /// How many, where that is known.
    pub n: Option<u64>,
    /// Whether these may be more.
    pub is_least: bool,
    /// Of the processor time of all, what processes took that it had started and waited for, `0.0..=1.0`.
    pub share: Option<f64>,
}

/// Why padding has no count. The function around it has.
pub const PADDING: &str = "behind branches that were not taken";
/// Of what was not counted, how many are named.
const NAMED: usize = 3;

/// The first of `names`, and how many more there are.
fn such(names: &[&str]) -> String {
    let mut such: Vec<String> = names.iter().take(NAMED).map(|&name| name.to_owned()).collect();
    if names.len() > NAMED {
        such.push(format!("and {} more: --json lists them", names.len() - NAMED));
    }
    such.join(", ")
}

impl CountView {
    /// What ran and was not counted, by reason; the largest are first.
    pub(super) fn uncounted(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut missed: BTreeMap<&str, (Vec<&str>, u64)> = BTreeMap::new();
        for u in &self.uncounted {
            let (names, instructions) = missed.entry(&u.why).or_default();
            names.push(&u.name);
            *instructions = instructions.saturating_add(u.instructions);
        }
        for (why, (names, instructions)) in missed {
            let what = if why == PADDING { "padding in " } else { "" };
            let (functions, such) = (many(names.len(), "function"), such(&names));
            writeln!(
                w,
                "not counted: {what}{functions}, {instructions} instructions at least: {why}: {such}"
            )?;
        }
        Ok(())
    }

    /// What was not counted, and may have run, by reason.
    pub(super) fn unknown(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for u in &self.unknown {
            by_reason.entry(&u.why).or_default().push(&u.name);
        }
        for (why, names) in by_reason {
            let (functions, such) = (many(names.len(), "function"), such(&names));
            writeln!(w, "not counted if it ran, which is not known: {functions}: {why}: {such}")?;
        }
        Ok(())
    }

    /// What was counted of what ran.
    pub(super) fn counted(&self, w: &mut dyn Write) -> io::Result<()> {
        let run: usize = self.modules.iter().map(|m| m.blocks_run).sum();
        let missed = self.uncounted.iter().fold(0u64, |sum, u| sum.saturating_add(u.instructions));
        let mut rest = Vec::new();
        if missed > 0 {
            rest.push(format!("at least {missed} more ran there"));
        }
        if !self.unknown.is_empty() {
            rest.push(format!("whether {} ran is not known", many(self.unknown.len(), "other function")));
        }
        let rest = match rest.is_empty() {
            true => "all that is known to have run there".to_owned(),
            false => rest.join(", "),
        };
        let modules = many(self.modules.len(), "module");
        let (instructions, recording) = (self.instructions, &self.recording);
        writeln!(
            w,
            "counted {instructions} instructions in {run} blocks of {modules}: {rest}; recording: {recording}"
        )
    }

    /// What was not looked at, and how it is counted, too.
    pub(super) fn not_looked_at(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut all = Vec::new();
        let by_option = self.left_out.chunk_by(|a, b| a.option == b.option);
        all.extend(by_option.map(|of_one| {
            let modules: Vec<&str> = of_one.iter().map(|one| one.module.as_str()).collect();
            let how = match of_one.first().and_then(|one| one.option.as_deref()) {
                Some(option) => {
                    format!("`{option}` counts {}, too", if modules.len() > 1 { "them" } else { "it" })
                }
                None => "cannot be counted".to_owned(),
            };
            format!("{} ({how})", modules.join(", "))
        }));
        all.extend(self.others.as_ref().map(OthersView::text));
        match all.is_empty() {
            true => Ok(()),
            false => writeln!(w, "not looked at: {}", all.join("; ")),
        }
    }
}

impl OthersView {
    fn text(&self) -> String {
        let programs = match self.n {
            Some(n) => many(usize::try_from(n).unwrap_or(usize::MAX), "other program"),
            None => "programs, if it started others".to_owned(),
        };
        let least = if self.is_least { "at least " } else { "" };
        let took = self
            .share
            .map_or(String::new(), |share| format!(", {:.0} % of the processor time", share * 100.0));
        let them = if self.n == Some(1) { "it" } else { "them" };
        match self.n {
            Some(_) => format!("{least}{programs} that it started{took} (`--follow` counts {them}, too)"),
            None => format!("{programs}{took} (`--follow` counts {them}, too)"),
        }
    }
}

//! Loops of a function vectorised in a process that runs: the function is moved, with code at the entries of
//! its loops.
//!
//! Not here: which loops can be, and what stands there (crate `probe`).

use super::{Laid, LoadedModule, ReplaceError, Replacement, RunningProgram};
use probe::{Action, Plan, PlanError, Point, Probe, RewriteError, innermost_loops};
use program::{BlockId, FuncId, Lines, Va};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// A loop of a function, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopFate {
    /// Where its header is in the module's file.
    pub at: Va,
    /// The source file and line of that in the function itself, if they are known.
    pub line: Option<(String, u32)>,
    /// Why it stays as it is; nothing, if it is vectorised.
    pub why: Option<String>,
}

impl fmt::Display for LoopFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "that at {}", self.at)?;
        if let Some((file, line)) = &self.line {
            let file = Path::new(file).file_name().unwrap_or(OsStr::new(file)).display();
            write!(f, " ({file}:{line})")?;
        }
        match &self.why {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// Loops as part of a sentence.
pub(super) fn listed(loops: &[LoopFate]) -> String {
    match loops {
        [] => "it has none".to_owned(),
        loops => loops.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

impl Replacement {
    /// `func` of `module` of `process`, with as many of its innermost loops vectorised as can be; what came
    /// of each, by address.
    ///
    /// # Errors
    /// If none can be, the function cannot be moved, or the processor has no AVX2.
    pub fn vectorised(
        process: &RunningProgram,
        module: &LoadedModule,
        func: FuncId,
    ) -> Result<(Replacement, Vec<LoopFate>), ReplaceError> {
        if !probe::has_avx2() {
            return Err(ReplaceError::NoAvx2);
        }
        let mut loops: Vec<(BlockId, Option<String>)> = innermost_loops(&module.program, func)
            .into_iter()
            .map(|one| (one.header, one.why.map(|why| why.to_string())))
            .collect();
        loop {
            let wanted: Vec<BlockId> = loops.iter().filter(|one| one.1.is_none()).map(|one| one.0).collect();
            if wanted.is_empty() {
                let function = module.program.function(func).name();
                return Err(ReplaceError::NotVectorised { function, loops: fates(module, &loops) });
            }
            match moved(process, module, func, &wanted) {
                Ok(made) => return Ok((made, fates(module, &loops))),
                // With fewer of them, it may be.
                Err(ReplaceError::Rewrite(RewriteError::Probes { why, .. })) if !why.is_empty() => {
                    for (n, why) in why {
                        let refused =
                            wanted.get(n).and_then(|header| loops.iter_mut().find(|one| one.0 == *header));
                        match (why, refused) {
                            (PlanError::NotVectorised { why, .. }, Some(refused)) => {
                                refused.1 = Some(why.to_string());
                            }
                            (PlanError::NotMoved { function, why }, _) => {
                                return Err(ReplaceError::Stays { function, why });
                            }
                            (why, Some(refused)) => refused.1 = Some(why.to_string()),
                            (_, None) => {}
                        }
                    }
                }
                Err(err) => return Err(err),
            }
        }
    }
}

/// `func` moved, with the loops that have these headers vectorised.
fn moved(
    process: &RunningProgram,
    module: &LoadedModule,
    func: FuncId,
    headers: &[BlockId],
) -> Result<Replacement, ReplaceError> {
    let probe = |header: &BlockId| Probe { point: Point::LoopEntry(*header), action: Action::Vectorise };
    let probes = headers.iter().map(probe).collect();
    let plan = Plan { alone: vec![func], probes, ..Plan::NULL };
    let laid = Laid::new(process, module, &[])?;
    laid.make(&plan, None, |made| super::moved(module, func, made), None)
}

/// What came of these loops.
fn fates(module: &LoadedModule, loops: &[(BlockId, Option<String>)]) -> Vec<LoopFate> {
    let lines = Lines::load(&module.program.image);
    let fate = |(header, why): &(BlockId, Option<String>)| {
        let at = module.program.block(*header).start;
        // Of what is inlined, the place where that is.
        let frame = lines.as_ref().and_then(|lines| lines.frames(at).pop());
        let line = frame.and_then(|frame| frame.file.zip(frame.line));
        LoopFate { at, line, why: why.clone() }
    };
    loops.iter().map(fate).collect()
}

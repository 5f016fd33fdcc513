//! Code that stands in for functions of a process, and what stands there.

use crate::failure::{Failure, Status};
use crate::process::{Function, Process};
use live::attach;
use probe::graft::Graft;
use session::{ReplaceError, Replacement, RunningProgram, Standing, standing};
use std::ffi::CString;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Code that may stand in for a function. It is in no process yet.
pub struct Replacing {
    graft: Graft,
    symbol: Option<String>,
}

/// No larger file is read.
const MOST: u64 = 256 << 20;

impl Replacing {
    /// Position-independent machine code that is entered at its first byte.
    pub fn of_bytes(bytes: &[u8]) -> Result<Replacing, Failure> {
        if bytes.is_empty() {
            return Err(Failure::new(Status::Argument, "the machine code has no bytes"));
        }
        Ok(Replacing { graft: Graft::of_code("machine code", bytes), symbol: None })
    }

    /// The function `symbol` of the shared object at `path`.
    pub fn of_library(path: &Path, symbol: &str) -> Result<Replacing, Failure> {
        let cannot = |why: String| {
            Failure::new(Status::File, format!("cannot read {}: {why}", path.display()))
                .with_hint("a shared object is meant: `gcc -shared -fPIC` makes one")
        };
        let about = std::fs::metadata(path).map_err(|err| cannot(err.to_string()))?;
        if !about.is_file() || about.len() > MOST {
            return Err(cannot(format!("it is no regular file of {} MB at most", MOST >> 20)));
        }
        let bytes = std::fs::read(path).map_err(|err| cannot(err.to_string()))?;
        let name = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let graft = Graft::of_library(&name.display().to_string(), &bytes).map_err(ReplaceError::from)?;
        if graft.function(symbol).is_none() {
            let (name, symbol) = (graft.name().to_owned(), symbol.to_owned());
            return Err(ReplaceError::NoSymbol { name, symbol }.into());
        }
        Ok(Replacing { graft, symbol: Some(symbol.to_owned()) })
    }

    /// Has it stand in for `function` from now on; where it is entered in the process.
    pub fn put_in(&self, function: &Function) -> Result<u64, Failure> {
        let process = RunningProgram::of(function.process.pid)?;
        let symbol = self.symbol.as_deref();
        let made = Replacement::new(&process, &function.module, function.func, &self.graft, symbol)?;
        let name = function.module.program.function(function.func).name();
        let standing = Standing {
            asked: name.clone(),
            function: name,
            module: function.module.path().display().to_string(),
            at: function.module.program.function(function.func).entry.0,
            with: self.graft.name().to_owned(),
            symbol: self.symbol.clone(),
            to: made.to.0,
            original: made.original.0,
            since_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        made.put_in(&[standing])?;
        Ok(made.to.0)
    }
}

/// What stands in for functions of a process.
pub struct Replacements {
    pub(crate) all: Vec<Named>,
}

/// One of them.
pub struct Named {
    /// The function, and what stands in for it.
    pub(crate) function: CString,
    pub(crate) with: CString,
    /// Where the new code is entered, and where the function itself is now: addresses in the process.
    pub(crate) to: u64,
    pub(crate) original: u64,
}

impl Replacements {
    /// Those of `process`.
    pub fn of(process: &Process) -> Result<Replacements, Failure> {
        let text = |text: String| CString::new(text).unwrap_or_default();
        let (all, is_back) = standing(process.pid)?;
        let named = |one: Standing| Named {
            with: text(
                one.symbol.map_or_else(|| one.with.clone(), |symbol| format!("{}:{symbol}", one.with)),
            ),
            function: text(one.function),
            to: one.to,
            original: one.original,
        };
        // What was taken back stands in for nothing, though somebody needs the new code still.
        Ok(Replacements { all: if is_back { Vec::new() } else { all.into_iter().map(named).collect() } })
    }
}

/// Takes all of `process` back that stands in for something.
pub fn take_back(process: &Process) -> Result<(), Failure> {
    let pid = process.pid;
    let (all, _) = standing(pid)?;
    if all.is_empty() {
        return Err(Failure::new(Status::Nothing, format!("nothing is replaced in process {pid}")));
    }
    match attach::rescue(pid)?.left {
        None => Ok(()),
        Some(why) => {
            let what = format!("process {pid} runs its own code again, and new code is still in it: {why}");
            Err(Failure::new(Status::Left, what).with_hint("try again later"))
        }
    }
}

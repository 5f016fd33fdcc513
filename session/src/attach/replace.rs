//! A function of a process that runs, replaced by code of another file.
//!
//! ```text
//! pid ─RunningProgram::of→ …─module(n)→ LoadedModule ─Replacement::new(function, code)→ … ─put_in→ it runs
//! ```
//! Where there is room near the module, first the new code stands, then the function itself, moved: calls of
//! it that are in progress end there, and the new code may call it as `ENGRAFT_ORIGINAL`.
//!
//! Source: E. Riou et al., "PADRONE: a platform for online profiling, analysis, and optimization" (2014), 2.4
//! and 3.3, which stops the program at each call site once.

mod meanings;

use super::places::{self, Mapped};
use super::{RunningProgram, image_of};
use crate::messages::with_causes;
use live::Mapping;
use live::attach::{self, AttachError, Entered, Part, Stop};
use meanings::Meanings;
use probe::graft::{Graft, GraftError, Grafted, Meaning, Name};
use probe::{Module, NotMoved, Plan, Replaced, RewriteError, Room, Running, Segments};
use program::arch::{EffectsOf, Reg, RegSet, abi};
use program::{Bias, Call, Callee, Conventions, FuncId, LiveVa, Program, Va};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// By what new code names the function that it replaces.
const ORIGINAL: &str = "ENGRAFT_ORIGINAL";
const PAGE: u64 = 0x1000;

/// Why a function is not replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// Its module is not where its file says, or cannot be read.
    #[error("{} cannot be changed in the process: {why}", path.display())]
    Module {
        /// The module.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The function must stay as it is.
    #[error("{function} cannot be replaced: {why}")]
    Stays {
        /// The function.
        function: String,
        /// Why.
        why: NotMoved,
    },
    /// The new code cannot be used.
    #[error(transparent)]
    Graft(#[from] GraftError),
    /// What its callers keep in registers cannot be kept for them.
    #[error(
        "{function} cannot be replaced: its callers keep values in registers that it leaves alone, and {why}"
    )]
    Keeps {
        /// The function.
        function: String,
        /// Why they cannot be kept.
        why: &'static str,
    },
    /// The new code has no such function.
    #[error("{name} defines no function {symbol}")]
    NoSymbol {
        /// The file.
        name: String,
        /// What was asked for.
        symbol: String,
    },
    /// The module cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// The process cannot be changed.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl ReplaceError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            ReplaceError::Graft(err) => err.hint().map(str::to_owned),
            ReplaceError::Attach(err) => err.hint(),
            ReplaceError::NoSymbol { .. } => {
                Some("`nm -D` lists what it defines; in C++, names are mangled".into())
            }
            ReplaceError::Keeps { .. } => Some(
                "have the new code change no more registers: compile it with -mno-avx, or without calls"
                    .into(),
            ),
            ReplaceError::Stays { why: NotMoved::NoRoom, .. } => {
                Some("replace those that call it: it is too short for a jump to be written over it".into())
            }
            _ => None,
        }
    }
}

/// A module of a process, analysed.
pub struct LoadedModule {
    /// What it is.
    pub program: Program,
    mapped: Mapped,
    bias: Bias,
}

impl LoadedModule {
    /// Its file, as the process names it.
    pub fn path(&self) -> &Path {
        &self.mapped.path
    }

    /// Where in its file is what is at `at` in the process.
    pub fn image(&self, at: LiveVa) -> Va {
        self.bias.to_image(at)
    }

    /// Where what is at `at` of its file is in the process.
    pub fn live(&self, at: Va) -> LiveVa {
        self.bias.to_live(at)
    }
}

impl RunningProgram {
    /// The files of its modules, the executable first.
    pub fn module_paths(&self) -> impl Iterator<Item = &Path> {
        self.modules.iter().map(|module| module.path.as_path())
    }

    /// Which of these has the code at `at`.
    pub fn module_at(&self, at: LiveVa) -> Option<usize> {
        let mapping = self.mappings.iter().find(|m| m.range.contains(&at))?;
        self.modules.iter().position(|module| mapping.path.as_deref() == Some(module.path.as_path()))
    }

    /// Where the function of a library is that the process uses under `name`, with a version behind `@`: of
    /// several versions, or of those that a resolver chooses from, the one that was taken.
    ///
    /// # Errors
    /// Why there is none.
    pub fn bound(&self, name: &str) -> Result<LiveVa, String> {
        let (name, version) = match name.split_once('@') {
            Some((name, version)) => (name, Some(version.trim_start_matches('@').into())),
            None => (name, None),
        };
        let own = self.modules.first().map_or(Path::new(""), |module| &module.path);
        let wanted = Name { name: name.into(), version, is_weak: false, is_of_threads: false };
        match Meanings::new(self, own).of(&wanted)? {
            Meaning::At(at) => Ok(at),
            Meaning::InThread { .. } => Err("is a variable of threads".to_owned()),
        }
    }

    /// Module `n` of these.
    ///
    /// # Errors
    /// If it cannot be read, or is not where its file says.
    pub fn module(&self, n: usize) -> Result<LoadedModule, ReplaceError> {
        let Some(mapped) = self.modules.get(n) else {
            return Err(AttachError::Ended { pid: self.pid }.into());
        };
        let refused = |why: String| ReplaceError::Module { path: mapped.path.clone(), why };
        let image = image_of(mapped).map_err(|err| refused(with_causes(&err)))?;
        let bias = places::bias(&image, mapped);
        let bias = bias.ok_or_else(|| refused("it is not mapped as its file says".to_owned()))?;
        Ok(LoadedModule { program: Program::analyze_code(image), mapped: mapped.clone(), bias })
    }
}

/// What stands in for a function of a process: kept in the process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The function.
    pub function: String,
    /// As it was asked for.
    pub asked: String,
    /// Its module's file, as the process names it.
    pub module: String,
    /// Where the function is in that file.
    pub at: u64,
    /// The file that the new code is from, and which function of it.
    pub with: String,
    /// Which function of that; nothing, if it starts with it.
    pub symbol: Option<String>,
    /// Where in the process the new code is entered.
    pub to: u64,
    /// Where in the process the function itself is now, for calls in progress and for the new code.
    pub original: u64,
    /// Since when: seconds since 1970.
    pub since_s: u64,
}

/// What stands in for functions of process `pid`; and whether these were taken back, though somebody needs
/// the new code still.
///
/// # Errors
/// If nothing of it can be looked at, or what is written down in it is damaged.
pub fn standing(pid: i32) -> Result<(Vec<Standing>, bool), AttachError> {
    let Some((what, is_back)) = attach::replaced(pid)? else { return Ok((Vec::new(), false)) };
    let all = postcard::from_bytes(&what).map_err(|_| AttachError::Journal { pid })?;
    Ok((all, is_back))
}

/// A function and what is to stand in for it. Nothing of the process has changed yet.
pub struct Replacement {
    pid: i32,
    max_pause: Option<Duration>,
    path: PathBuf,
    bias: Bias,
    segments: Segments,
    running: Running,
    grafted: Grafted,
    /// Where the new code is entered.
    pub to: LiveVa,
    /// Where the function itself is, moved.
    pub original: LiveVa,
}

impl Replacement {
    /// `func` of `module` of `process`, for which `graft` is to stand in: from the function `symbol` of it
    /// on, or from its start on.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn new(
        process: &RunningProgram,
        module: &LoadedModule,
        func: FuncId,
        graft: &Graft,
        symbol: Option<&str>,
    ) -> Result<Replacement, ReplaceError> {
        let LoadedModule { program, mapped, bias } = module;
        let offset = match symbol {
            None => 0,
            Some(symbol) => graft.defined(symbol).ok_or_else(|| ReplaceError::NoSymbol {
                name: graft.name().to_owned(),
                symbol: symbol.to_owned(),
            })?,
        };
        let room = room(program, *bias, &process.mappings).ok_or_else(|| ReplaceError::Module {
            path: mapped.path.clone(),
            why: "there is no room near it for new code".to_owned(),
        })?;
        let at = LiveVa(room.start);
        let to = LiveVa(at.0 + offset);
        let rest = at.0 + graft.len_bytes().next_multiple_of(PAGE) + PAGE;
        let keeps = kept(program, func, graft, Va(offset))?;
        let replaced = Replaced { func, to: bias.to_image(to), keeps };
        let plan = Plan { replaced: vec![replaced], ..Plan::NULL };
        let made = Module::build(program, &plan, Room::Running(bias.to_image(LiveVa(rest))))?;
        let Some(original) = made.original(func) else {
            let why = made.not_moved.get(func.index()).copied().flatten().unwrap_or(NotMoved::Incomplete);
            return Err(ReplaceError::Stays { function: program.function(func).name(), why });
        };
        let original = bias.to_live(original);
        let meanings = Meanings::new(process, &mapped.path);
        let grafted = graft.place(at, |name| match &*name.name {
            ORIGINAL => Ok(Meaning::At(original)),
            _ => meanings.of(name),
        })?;
        let (segments, running) = (made.to_segments()?, made.to_running());
        if bias.to_live(Va(segments.tables_at + segments.tables_len)).0 > room.end {
            let why = "there is not room enough near it for new code".to_owned();
            return Err(ReplaceError::Module { path: mapped.path.clone(), why });
        }
        Ok(Replacement {
            pid: process.pid,
            max_pause: process.max_pause,
            path: mapped.path.clone(),
            bias: *bias,
            segments,
            running,
            grafted,
            to,
            original,
        })
    }

    /// Has it stand in from now on; `standing` says in the process what was done.
    ///
    /// # Errors
    /// If that cannot be: then the process is as it was.
    ///
    /// # Panics
    /// Never: words and numbers can be written down.
    pub fn put_in(&self, standing: &[Standing]) -> Result<Stop, ReplaceError> {
        let what = postcard::to_stdvec(standing).expect("words and numbers can be written down");
        let Replacement { segments, running, .. } = self;
        let part = Part { path: &self.path, segments, running, bias: self.bias };
        let entered = Entered::new(self.pid, self.max_pause)?;
        Ok(entered.replace(&[part], std::slice::from_ref(&self.grafted), &what)?)
    }
}

/// What must be kept for callers of `func` in `program` when the code at `new` of `graft` stands in for it.
/// Compilers know which registers a function of the same file leaves alone, and keep values there.
fn kept(program: &Program, func: FuncId, graft: &Graft, new: Va) -> Result<RegSet, ReplaceError> {
    let calls_it =
        |call: &&Call| call.callee == Callee::Function(func) && program.block(call.block).func != func;
    if !program.calls.iter().any(|call| calls_it(&call)) {
        return Ok(RegSet::EMPTY);
    }
    let changed = graft.file().map_or(abi::ALL, |image| {
        let file = Program::analyze_code(image);
        let of = |func| Conventions::compute(&file).0.clobbers(func);
        file.function_at(new).map_or(abi::ALL, of)
    });
    let left_alone = abi::CALLER_SAVED.minus(abi::FLAGS).minus(results());
    let left_alone = left_alone.minus(Conventions::compute(program).0.clobbers(func));
    let keeps = left_alone.both(changed).both(used(program));
    let refused = |why| ReplaceError::Keeps { function: program.function(func).name(), why };
    if !probe::can_be_kept().holds(keeps) {
        return Err(refused("these are wider than what is kept here"));
    }
    if !keeps.is_empty() && program.takes_arguments_in_memory(func) {
        return Err(refused("it has arguments in memory, which new code would look for elsewhere"));
    }
    Ok(keeps)
}

/// Where functions of C return a value that they need not write: what they were given. Where a second one is,
/// they have written.
fn results() -> RegSet {
    let mut set = RegSet::EMPTY;
    [Reg::general(0), Reg::vector(0), Reg::upper(0)].into_iter().for_each(|reg| set.insert(reg));
    set
}

/// All registers that instructions of `program` name.
fn used(program: &Program) -> RegSet {
    let of = |func: FuncId| {
        let mut set = RegSet::EMPTY;
        let mut effects = EffectsOf::new();
        for insn in program.function(func).block_ids().flat_map(|block| program.insns(block)) {
            let effects = effects.effects(&insn);
            set.add(effects.reads.union(effects.writes));
        }
        set
    };
    let all: Vec<FuncId> = program.func_ids().collect();
    all.into_par_iter().map(of).reduce(|| RegSet::EMPTY, RegSet::union)
}

/// Room for what is new, near the module.
fn room(program: &Program, bias: Bias, mappings: &[Mapping]) -> Option<Range<u64>> {
    let mut taken: Vec<Range<u64>> = mappings.iter().map(|m| m.range.start.0..m.range.end.0).collect();
    taken.sort_unstable_by_key(|range| range.start);
    places::room(&program.image, bias, &taken)
}

//! A function of a process that runs, replaced by code of another file.
//!
//! ```text
//! pid ─RunningProgram::of→ …─module(n)→ LoadedModule ─Replacement::new(function, code)→ … ─put_in→ it runs
//! ```
//! Where there is room near the module, first the new code stands, then the function itself, moved: calls of
//! it that are in progress end there, and the new code may call it as `ENGRAFT_ORIGINAL`. A call may be led
//! elsewhere by itself, too: then nothing is moved.
//!
//! Code that we make stands in for functions whose results depend on their arguments alone: a table of
//! results ([`LoadedModule::memo`]), a known result at a call ([`constant`]). What may be worse than what it
//! replaces is tried first ([`Trial`]). Loops of packed instructions run by wider ones
//! ([`Replacement::vectorised`]).
//!
//! Source: E. Riou et al., "PADRONE: a platform for online profiling, analysis, and optimization" (2014), 2.4
//! and 3.3, which stops the program at each call site once.

mod meanings;
mod pure;
mod trial;
mod tried;
mod vectorised;

use super::places::{self, Mapped};
use super::{RunningProgram, image_of};
use crate::messages::with_causes;
use live::Mapping;
use live::attach::{self, AttachError, Entered, Part, Stop};
use meanings::Meanings;
use probe::graft::{Graft, GraftError, Grafted, Meaning, Name};
use probe::stand_in::{self, Changes, Known as KnownResult, NoWords, ORIGINAL, REPLACEMENT};
use probe::{Led, Module, NoValue, NotMoved, Plan, Replaced, RewriteError, Room, Running, Segments};
use program::arch::{EffectsOf, Reg, RegSet, abi};
use program::{Bias, Call, CallKind, Callee, Conventions, FuncId, LiveVa, Program, Va};
pub use pure::{PureFunction, Word};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use trial::{Compared, Difference, Trial, TrialError, TrialWanted, Verdict};
use tried::Copy;
pub use vectorised::LoopFate;

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
    /// It is not known what a function takes and returns.
    #[error("it is not known what {function} takes and returns")]
    Undeclared {
        /// The function.
        function: String,
    },
    /// What a function takes or returns is not in registers alone.
    #[error("calls of {function} cannot be told apart by what is passed: {why}")]
    Words {
        /// The function.
        function: String,
        /// Why.
        why: NoWords,
    },
    /// A function is not known to depend on its arguments alone.
    #[error("its code does not show that {function} depends on its arguments alone, and changes nothing")]
    Impure {
        /// The function.
        function: String,
    },
    /// Not as many arguments as a function takes.
    #[error("{function} takes {n} arguments, which `{text}` is not")]
    Arguments {
        /// The function.
        function: String,
        /// How many it takes.
        n: usize,
        /// What was given.
        text: String,
    },
    /// What is no value of an argument's type.
    #[error("`{text}` is no value for {name}, which is {kind}")]
    Argument {
        /// What was given.
        text: String,
        /// The parameter.
        name: String,
        /// Its type.
        kind: String,
    },
    /// A function does not come back where it was tried.
    #[error("{function} was tried in a copy of the process, and {why}")]
    Tried {
        /// The function.
        function: String,
        /// How it ended.
        why: String,
    },
    /// No loop of it can be vectorised.
    #[error("no loop of {function} can be vectorised: {}", vectorised::listed(loops))]
    NotVectorised {
        /// The function.
        function: String,
        /// Its innermost loops, each with the reason.
        loops: Vec<LoopFate>,
    },
    /// The processor has no wider instructions.
    #[error("this processor has no AVX2, or its system does not keep what that needs")]
    NoAvx2,
    /// There is no such call.
    #[error("{} has no call at {at}", path.display())]
    NoCall {
        /// The module.
        path: PathBuf,
        /// Where.
        at: Va,
    },
    /// What the call leads to is not known.
    #[error("what the call at {at} of {} leads to is not known", path.display())]
    CallsUnknown {
        /// The module.
        path: PathBuf,
        /// Where.
        at: Va,
    },
    /// The code that is to stand in cannot be written.
    #[error(transparent)]
    Unwritable(#[from] NoValue),
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
            ReplaceError::Undeclared { .. } => {
                Some("say it: --prototype 'double f(double x);', or have debug information of it".into())
            }
            ReplaceError::Impure { .. } => Some("say --pure, if you know that it is so".into()),
            ReplaceError::Arguments { .. } => Some("with commas between them: --constant 2.0,3".into()),
            ReplaceError::NoCall { .. } => {
                Some("`engraft show FILE function NAME` lists calls with their addresses".into())
            }
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
        let path = places::without_remark(mapping.path.as_deref()?);
        self.modules.iter().position(|module| module.path == path)
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

/// A function, or a call, and what is to stand in for it. Nothing of the process has changed yet.
pub struct Replacement {
    pid: i32,
    max_pause: Option<Duration>,
    path: PathBuf,
    bias: Bias,
    segments: Segments,
    running: Running,
    grafted: Vec<Grafted>,
    /// Where the new code is entered.
    pub to: LiveVa,
    /// Where the function itself is, moved; of a call, what it led to.
    pub original: LiveVa,
    /// What is entered when that is tried first.
    replacement: LiveVa,
    /// Where the new code has memory of its own, if it is code of ours.
    data: LiveVa,
}

/// Room near a module, and code that is to stand in it.
struct Laid<'a> {
    process: &'a RunningProgram,
    module: &'a LoadedModule,
    grafts: Vec<(&'a Graft, LiveVa)>,
    /// Where there is room for more.
    rest: u64,
    end: u64,
}

impl<'a> Laid<'a> {
    /// `grafts` near `module`, one behind the other.
    fn new(
        process: &'a RunningProgram,
        module: &'a LoadedModule,
        grafts: &[&'a Graft],
    ) -> Result<Laid<'a>, ReplaceError> {
        let room =
            room(&module.program, module.bias, &process.mappings).ok_or_else(|| ReplaceError::Module {
                path: module.mapped.path.clone(),
                why: "there is no room near it for new code".to_owned(),
            })?;
        let mut rest = room.start;
        let place = |graft: &&'a Graft| {
            let at = LiveVa(rest);
            rest += graft.len_bytes().next_multiple_of(PAGE) + PAGE;
            (*graft, at)
        };
        let grafts = grafts.iter().map(place).collect();
        Ok(Laid { process, module, grafts, rest, end: room.end })
    }

    /// All of it, entered at `to`, with `original` being the function that it stands in for; `plan` says what
    /// leads to it. What is given nowhere is the function itself, moved.
    fn make(
        &self,
        plan: &Plan,
        to: Option<LiveVa>,
        original: impl FnOnce(&Module<'_>) -> Result<LiveVa, ReplaceError>,
        replacement: Option<LiveVa>,
    ) -> Result<Replacement, ReplaceError> {
        let LoadedModule { program, mapped, bias } = self.module;
        let made = Module::build(program, plan, Room::Running(bias.to_image(LiveVa(self.rest))))?;
        let original = original(&made)?;
        let (to, replacement) = (to.unwrap_or(original), replacement.unwrap_or(original));
        let meanings = Meanings::new(self.process, &mapped.path);
        let place = |(graft, at): &(&Graft, LiveVa)| {
            graft.place(*at, |name| match &*name.name {
                ORIGINAL => Ok(Meaning::At(original)),
                REPLACEMENT => Ok(Meaning::At(replacement)),
                _ => meanings.of(name),
            })
        };
        let grafted = self.grafts.iter().map(place).collect::<Result<_, _>>()?;
        let (segments, running) = (made.to_segments()?, made.to_running());
        if bias.to_live(Va(segments.tables_at + segments.tables_len)).0 > self.end {
            let why = "there is not room enough near it for new code".to_owned();
            return Err(ReplaceError::Module { path: mapped.path.clone(), why });
        }
        let data = self.grafts.first().map_or(LiveVa(0), |(graft, at)| LiveVa(at.0 + graft.data()));
        Ok(Replacement {
            pid: self.process.pid,
            max_pause: self.process.max_pause,
            path: mapped.path.clone(),
            bias: *bias,
            segments,
            running,
            grafted,
            to,
            original,
            replacement,
            data,
        })
    }
}

/// Where `func` of `module` is, which is moved.
fn moved(module: &LoadedModule, func: FuncId, made: &Module<'_>) -> Result<LiveVa, ReplaceError> {
    match made.original(func) {
        Some(original) => Ok(module.live(original)),
        None => {
            let why = made.not_moved.get(func.index()).copied().flatten().unwrap_or(NotMoved::Incomplete);
            Err(ReplaceError::Stays { function: module.program.function(func).name(), why })
        }
    }
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
        Replacement::by_way_of(process, module, func, (graft, symbol), None)
    }

    /// The same; who calls `func` comes to `first` in front of that, which knows both.
    fn by_way_of(
        process: &RunningProgram,
        module: &LoadedModule,
        func: FuncId,
        (graft, symbol): (&Graft, Option<&str>),
        first: Option<&Graft>,
    ) -> Result<Replacement, ReplaceError> {
        let LoadedModule { program, bias, .. } = module;
        let offset = match symbol {
            None => 0,
            Some(symbol) => graft.function(symbol).ok_or_else(|| ReplaceError::NoSymbol {
                name: graft.name().to_owned(),
                symbol: symbol.to_owned(),
            })?,
        };
        let grafts: Vec<&Graft> = first.into_iter().chain([graft]).collect();
        let laid = Laid::new(process, module, &grafts)?;
        let replacement = laid.grafts.last().map_or(LiveVa(0), |(_, at)| LiveVa(at.0 + offset));
        let to = match first {
            Some(_) => laid.grafts.first().map_or(LiveVa(0), |(_, at)| *at),
            None => replacement,
        };
        let own = first.and_then(Graft::changes).unwrap_or(RegSet::EMPTY);
        let keeps = kept(program, func, changes(graft, Va(offset)).union(own))?;
        let replaced = Replaced { func, to: bias.to_image(to), keeps };
        let plan = Plan { replaced: vec![replaced], ..Plan::NULL };
        laid.make(&plan, Some(to), |made| moved(module, func, made), Some(replacement))
    }

    /// The call at `at` of `module`, for which `graft` is to stand in, from its start on; it led to `callee`,
    /// and still does for whatever else leads there.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn of_call(
        process: &RunningProgram,
        module: &LoadedModule,
        (at, callee): (Va, LiveVa),
        graft: &Graft,
    ) -> Result<Replacement, ReplaceError> {
        let LoadedModule { program, bias, .. } = module;
        let own = bias.to_image(callee);
        if let Some(func) = program.function_from(own)
            && !kept(program, func, changes(graft, Va(0)))?.is_empty()
        {
            let why = "a call cannot keep them";
            return Err(ReplaceError::Keeps { function: program.function(func).name(), why });
        }
        let laid = Laid::new(process, module, &[graft])?;
        let to = laid.grafts.first().map_or(LiveVa(0), |(_, at)| *at);
        let plan = Plan { led: vec![Led { at, to: bias.to_image(to) }], ..Plan::NULL };
        laid.make(&plan, Some(to), |_| Ok(callee), Some(to))
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
        Ok(entered.replace(&[part], &self.grafted, &what)?)
    }
}

impl LoadedModule {
    /// A table of `n_entries` results, to stand in for `function`.
    ///
    /// # Errors
    /// If none can be made.
    pub fn memo(
        &self,
        process: &RunningProgram,
        function: &PureFunction,
        n_entries: u32,
    ) -> Result<Graft, ReplaceError> {
        let changes = match function.may_change_state {
            true => Changes::State(Copy::of(process)?.errno_distance()),
            false => Changes::Nothing,
        };
        let made = stand_in::memo(&function.words, n_entries, changes)?;
        Ok(Graft::of_stand_in(&format!("a table of {n_entries} results"), &made))
    }

    /// What the call at `at` leads to: the module that it is in, if that is another one, the function, and
    /// where it is in the process.
    ///
    /// # Errors
    /// If there is no such call, or it leads to what is not known.
    pub fn called(
        &self,
        process: &RunningProgram,
        at: Va,
    ) -> Result<(Option<LoadedModule>, FuncId, LiveVa), ReplaceError> {
        let path = || self.mapped.path.clone();
        let no_call = || ReplaceError::NoCall { path: path(), at };
        let n = self.program.calls.binary_search_by_key(&at, |call| call.at).map_err(|_| no_call())?;
        let call =
            self.program.calls.get(n).filter(|call| call.kind == CallKind::Call).ok_or_else(no_call)?;
        let unknown = || ReplaceError::CallsUnknown { path: path(), at };
        let import = match call.callee {
            Callee::Function(func) => match &self.program.function(func).import {
                None => {
                    let entry = self.program.function(func).entry;
                    return Ok((None, func, self.live(entry)));
                }
                Some(import) => import,
            },
            Callee::Import(n) => self.program.imports.get(n as usize).ok_or_else(unknown)?,
            Callee::Unknown(_) | Callee::Indirect => return Err(unknown()),
        };
        let at = process.bound(import).map_err(|_| unknown())?;
        let module = process.module(process.module_at(at).ok_or_else(unknown)?)?;
        let func = module.program.function_from(module.image(at)).ok_or_else(unknown)?;
        Ok((Some(module), func, at))
    }
}

/// A result that is known, to stand in for calls of `function`, which is at `callee`: that of these
/// `arguments`, as it comes in a copy of `process`.
///
/// # Errors
/// If it does not come back there.
pub fn constant(
    process: &RunningProgram,
    function: &PureFunction,
    callee: LiveVa,
    arguments: &[u64],
) -> Result<Graft, ReplaceError> {
    let copy = Copy::of(process)?;
    let came = copy.call_in_all_modes(callee, &function.words, arguments)?;
    let (came, counts) = came.map_err(|why| ReplaceError::Tried { function: function.name.clone(), why })?;
    let known = KnownResult {
        arguments: arguments.to_vec(),
        results: came.results,
        raised: came.raised,
        errno: came.errno.and_then(|value| Some((copy.errno_distance()?, value))),
        counts,
    };
    Ok(Graft::of_stand_in("a known result", &stand_in::constant(&function.words, &known)?))
}

/// What the code at `new` of `graft` changes, with all that it calls.
fn changes(graft: &Graft, new: Va) -> RegSet {
    if let Some(changes) = graft.changes() {
        return changes;
    }
    graft.file().map_or(abi::ALL, |image| {
        let file = Program::analyze_code(image);
        let of = |func| Conventions::compute(&file).0.clobbers(func);
        file.function_at(new).map_or(abi::ALL, of)
    })
}

/// What must be kept for callers of `func` in `program` when code that changes all of `changed` stands in for
/// it. Compilers know which registers a function of the same file leaves alone, and keep values there.
fn kept(program: &Program, func: FuncId, changed: RegSet) -> Result<RegSet, ReplaceError> {
    let calls_it =
        |call: &&Call| call.callee == Callee::Function(func) && program.block(call.block).func != func;
    if !program.calls.iter().any(|call| calls_it(&call)) {
        return Ok(RegSet::EMPTY);
    }
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

//! A process as clients know it: its modules, analysed once, and its functions.

use crate::failure::{Failure, Status};
use program::image::{Symbol, SymbolKind};
use program::{FuncId, LiveVa};
use session::{LoadedModule, RunningProgram, Store};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A process that runs. Nothing of it is changed as long as it is only known.
pub struct Process {
    pub(crate) pid: i32,
    /// Where folders are made for what is needed for a while.
    temporary: PathBuf,
    /// By path, those that were analysed.
    modules: Mutex<Vec<(PathBuf, Arc<LoadedModule>)>>,
}

/// A process, as a client has it: its functions keep it.
pub struct OpenProcess(pub(crate) Arc<Process>);

/// A function of a process, and the module that has it.
pub struct Function {
    pub(crate) process: Arc<Process>,
    pub(crate) module: Arc<LoadedModule>,
    pub(crate) func: FuncId,
    pub(crate) name: CString,
}

impl Process {
    /// Process `pid`; what is needed for a while goes to folders in `temporary`.
    pub fn open(pid: i32, temporary: &Path) -> Result<Process, Failure> {
        if pid <= 0 {
            let what = format!("{pid} is the number of no process");
            return Err(Failure::new(Status::Argument, what).with_hint("numbers of processes are over 0"));
        }
        RunningProgram::looked_at(pid)?;
        Ok(Process { pid, temporary: temporary.to_owned(), modules: Mutex::default() })
    }

    /// A store that goes with a measurement: clients that end without closing anything leave nothing behind.
    pub fn store(&self) -> Result<Store, Failure> {
        Ok(Store::open(None, &self.temporary)?)
    }

    /// Module `n` of `running`, which is this process.
    fn module(&self, running: &RunningProgram, n: usize) -> Result<Arc<LoadedModule>, Failure> {
        let path = running.module_paths().nth(n).unwrap_or(Path::new("")).to_owned();
        let mut known = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |module: &LoadedModule| {
            let first = module.program.func_ids().next().map(|func| module.program.function(func).entry);
            first.is_some_and(|at| running.module_at(module.live(at)) == Some(n))
        };
        if let Some((_, module)) = known.iter().find(|(of, module)| *of == path && is_there(module)) {
            return Ok(Arc::clone(module));
        }
        let module = Arc::new(running.module(n)?);
        known.retain(|(of, _)| *of != path);
        known.push((path, Arc::clone(&module)));
        Ok(module)
    }

    /// The module that the process has at `path`.
    pub fn module_of(&self, path: &Path) -> Result<Arc<LoadedModule>, Failure> {
        let running = RunningProgram::looked_at(self.pid)?;
        let n = running.module_paths().position(|of| of == path).ok_or_else(|| {
            Failure::new(Status::NotFound, format!("process {} has no {} any more", self.pid, path.display()))
        })?;
        self.module(&running, n)
    }
}

impl Function {
    fn new(process: &Arc<Process>, module: Arc<LoadedModule>, func: FuncId) -> Function {
        let name = CString::new(module.program.function(func).name()).unwrap_or_default();
        Function { process: Arc::clone(process), module, func, name }
    }

    /// The function that has the instruction at `at`.
    pub fn at(process: &Arc<Process>, at: LiveVa) -> Result<Function, Failure> {
        let pid = process.pid;
        let none = |what: &str| {
            let hint = "an address in the process is meant, not one in a file";
            Failure::new(Status::NotFound, format!("{at} of process {pid} is in no {what}")).with_hint(hint)
        };
        let running = RunningProgram::looked_at(pid)?;
        let n = running.module_at(at).ok_or_else(|| none("module"))?;
        let module = process.module(&running, n)?;
        let func = module.program.function_at(module.image(at)).ok_or_else(|| none("function"))?;
        Ok(Function::new(process, module, func))
    }

    /// The function whose symbol is `asked`: one of the executable; else what the process uses under that
    /// name; else that of the first library which has it. `MODULE!NAME` means one of that file alone.
    pub fn named(process: &Arc<Process>, asked: &str) -> Result<Function, Failure> {
        let (wanted, name) =
            asked.split_once('!').map_or((None, asked), |(module, name)| (Some(module), name));
        let running = RunningProgram::looked_at(process.pid)?;
        let paths: Vec<&Path> = running.module_paths().collect();
        let is_wanted =
            |path: &Path| wanted.is_none_or(|wanted| path.file_name().is_some_and(|file| file == wanted));
        let bound = running.bound(name).ok().and_then(|at| running.module_at(at).map(|n| (n, at)));
        let bound = bound.filter(|(n, _)| *n > 0);
        let libraries = (1..paths.len()).map(|n| (n, None));
        let all = [(0, None)].into_iter().chain(bound.map(|(n, at)| (n, Some(at)))).chain(libraries);
        for (n, at) in all.filter(|(n, _)| paths.get(*n).is_some_and(|path| is_wanted(path))) {
            let module = process.module(&running, n)?;
            let func = match at {
                Some(at) => module.program.function_from(module.image(at)),
                None => symbol(&module, name),
            };
            if let Some(func) = func {
                return Ok(Function::new(process, module, func));
            }
        }
        let what = format!("no function of process {} is called {asked}", process.pid);
        let files = paths.iter().filter_map(|path| path.file_name()).map(|file| file.to_string_lossy());
        let hint = format!("symbols are meant; its modules are: {}", files.collect::<Vec<_>>().join(", "));
        Err(Failure::new(Status::NotFound, what).with_hint(hint))
    }

    /// Its entry, in the process.
    pub fn live(&self) -> LiveVa {
        self.module.live(self.module.program.function(self.func).entry)
    }

    /// By what it is named where calls of it are watched: its symbol, or its address in the executable.
    pub fn spelt(&self) -> Result<String, Failure> {
        let function = self.module.program.function(self.func);
        if let Some(name) = function.names.iter().find(|name| !name.contains('*')) {
            return Ok(name.to_string());
        }
        let running = RunningProgram::looked_at(self.process.pid)?;
        if running.path() == self.module.path() {
            return Ok(format!("{:#x}", function.entry.0));
        }
        let (name, path) = (function.name(), self.module.path().display());
        let what = format!("calls of {name} of {path} cannot be told from others: it has no symbol");
        Err(Failure::new(Status::Refused, what).with_hint("measure a function that calls it"))
    }
}

/// The function of that symbol which `module` has itself: stubs have the names of what they call, and a
/// resolver is not what it chooses.
fn symbol(module: &LoadedModule, name: &str) -> Option<FuncId> {
    let program = &module.program;
    let is_it = |func: &FuncId| {
        let function = program.function(*func);
        let is_resolver =
            |symbol: &Symbol| symbol.at == function.entry && symbol.kind == SymbolKind::IndirectFunction;
        function.import.is_none()
            && function.names.iter().any(|one| **one == *name)
            && !program.image.symbols.iter().any(is_resolver)
    };
    program.func_ids().find(is_it)
}

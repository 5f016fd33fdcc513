//! A process that runs on while it is looked at: which modules it has, and what each is, from its file or
//! from its memory. Nothing of it is stopped or changed.
//!
//! What no file tells: files that are gone or were replaced, programs that were unpacked at run time, the
//! kernel's own module (`[vdso]`), and code that a JIT compiler has made and named in a perf map.
//!
//! Not here: how an image is made of memory (`program`, `image/memory.rs`); processes that are attached to
//! (`attach`).

pub(crate) mod perf_map;

use crate::attach::places::{self, Mapped};
use live::{LookError, Mapping, RunningMemory};
use perf_map::Named;
use probe::arch::shared::{ARENA, JOURNAL};
use program::{Bias, FileOff, Image, LiveVa, LoadError, Va};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const PAGE: u64 = 0x1000;
/// Memory beside code is searched for ELF headers so far.
const BESIDE: u64 = 64 << 20;
/// Code that is farther apart than this is of several modules: an analysis spans 4 GiB.
const APART: u64 = 1 << 30;

/// Why a module of a process is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessModuleError {
    /// The process cannot be looked at, any more or at all.
    #[error(transparent)]
    Look(#[from] LookError),
    /// It ended while it was looked at.
    #[error("process {pid} ended while its memory was read")]
    Ended {
        /// Its number.
        pid: i32,
    },
    /// What is in its memory is not its own.
    #[error("process {pid} is observed by engraft: in its memory, {name} is not as it was")]
    Observed {
        /// Its number.
        pid: i32,
        /// The module.
        name: String,
    },
    /// Nothing says what functions there are.
    #[error("process {pid}: the code at {at} has neither a file nor an ELF header, and no perf map names it")]
    Undescribed {
        /// Its number.
        pid: i32,
        /// Where it begins.
        at: LiveVa,
    },
    /// The file, or what is in memory, is no module.
    #[error("process {pid}")]
    Load {
        /// Its number.
        pid: i32,
        /// Why.
        source: LoadError,
    },
}

impl ProcessModuleError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProcessModuleError::Look(err) => err.hint(),
            ProcessModuleError::Observed { pid, .. } => Some(format!(
                "look at its file (without --memory), or when nobody observes it; `engraft rescue {pid}` \
                 gives it back if whoever attached was killed"
            )),
            ProcessModuleError::Undescribed { .. } => {
                let how = "`node --perf-basic-prof`, `python3 -X perf`, Java's perf-map-agent";
                Some(format!("start it so that it writes one: {how}"))
            }
            ProcessModuleError::Load { source, .. } => source.hint().map(str::to_owned),
            ProcessModuleError::Ended { .. } => Some("`ps -e` lists the processes that there are".into()),
        }
    }
}

/// What became of a module's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileState {
    /// It is there.
    There,
    /// It was deleted.
    Deleted,
    /// Another file has its name now.
    Replaced,
    /// There never was one, or none that the process can name.
    None,
}

/// From what a module is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// Its file.
    File,
    /// What the process has in memory.
    Memory,
    /// The same, with the functions that a perf map names.
    PerfMap,
}

/// A module of a process, or code that is of none.
#[derive(Clone, Debug)]
pub struct ProcessModule {
    /// Its file's path, as the process names it; else what the kernel calls it, or what it is, in brackets.
    pub name: String,
    /// Where it is; of named code, from the first to the last.
    pub range: Range<LiveVa>,
    /// What became of its file.
    pub file: FileState,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// An ELF header is where it begins, if that is mapped.
    Elf { header: Option<LiveVa>, mapped: Option<Mapped> },
    /// A perf map names its functions.
    Named(Vec<Named>),
    /// Code that nothing describes.
    Unknown,
}

impl ProcessModule {
    /// What is mapped of its file, if it has one.
    pub(crate) fn mapped(&self) -> Option<&Mapped> {
        match &self.what {
            What::Elf { mapped, .. } => mapped.as_ref(),
            What::Named(_) | What::Unknown => None,
        }
    }
}

/// A module as it is known.
#[derive(Debug)]
pub struct ProcessImage {
    /// Its image.
    pub image: Image,
    /// How far it was moved.
    pub bias: Bias,
    /// From what it is known.
    pub whence: Whence,
}

/// A process with its modules.
#[derive(Debug)]
pub struct ProcessModules {
    memory: RunningMemory,
    /// Its modules: the executable first, then by address.
    pub all: Vec<ProcessModule>,
}

impl ProcessModules {
    /// Those of process `pid`, as they are now.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn of(pid: i32) -> Result<ProcessModules, LookError> {
        let memory = RunningMemory::of(pid)?;
        let mut all = of_files(&memory);
        all.extend(of_kernel(&memory));
        let is_taken = |all: &[ProcessModule], m: &Mapping| {
            all.iter().any(|module| module.range.start <= m.range.start && m.range.start < module.range.end)
        };
        let unpacked = unpacked(&memory, |m| is_taken(&all, m));
        all.extend(unpacked);
        let code: Vec<Range<LiveVa>> = memory
            .mappings()
            .iter()
            .filter(|m| m.executable && !is_ours(m) && m.name.as_deref() != Some("[vsyscall]"))
            .filter(|m| !memory.is_observed() || !(JOURNAL..=ARENA).contains(&m.range.start.0))
            .flat_map(|m| without(m.range.clone(), &all))
            .collect();
        all.extend(of_no_file(&code, perf_map::of(&memory)));
        // The executable stays first.
        let executable = all.first().filter(|first| matches!(first.what, What::Elf { mapped: Some(_), .. }));
        let n = usize::from(executable.is_some());
        if let Some(rest) = all.get_mut(n..) {
            rest.sort_by_key(|module| (module.range.start, module.range.end));
        }
        Ok(ProcessModules { memory, all })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.memory.pid()
    }

    /// All that it had mapped when it was looked at.
    pub(crate) fn mappings(&self) -> &[Mapping] {
        self.memory.mappings()
    }

    /// What it has mapped at `at`.
    pub fn mapping_at(&self, at: LiveVa) -> Option<&Mapping> {
        self.memory.mapping_at(at)
    }

    /// The module that `at` is in.
    pub fn module_at(&self, at: LiveVa) -> Option<&ProcessModule> {
        // Code of others may be between a module's.
        let holds = |module: &&ProcessModule| match &module.what {
            What::Named(functions) => functions.iter().any(|f| f.range.contains(&at)),
            _ => module.range.contains(&at),
        };
        self.all.iter().find(holds)
    }

    /// The image of `module`: of its file, if that is there and memory is not asked for; else of memory.
    ///
    /// # Errors
    /// If it is not known, or the process has ended.
    pub fn image(&self, module: &ProcessModule, of_memory: bool) -> Result<ProcessImage, ProcessModuleError> {
        let pid = self.pid();
        let load = |source| self.failed(source);
        match &module.what {
            What::Elf { mapped: Some(mapped), .. } if module.file == FileState::There && !of_memory => {
                match Image::load(&mapped.file) {
                    Ok(mut image) => {
                        image.name.clone_from(&module.name);
                        if let Some(bias) = places::bias(&image, mapped) {
                            return Ok(ProcessImage { image, bias, whence: Whence::File });
                        }
                    }
                    // A file that may be run and not read is in memory all the same.
                    Err(LoadError::Unreadable { .. }) => {}
                    Err(err) => return Err(load(err)),
                }
                self.image_of_memory(module)
            }
            What::Elf { .. } => self.image_of_memory(module),
            What::Named(functions) => self.named(module, functions),
            What::Unknown => Err(ProcessModuleError::Undescribed { pid, at: module.range.start }),
        }
    }

    /// Why a module cannot be loaded: because the process is gone, if it is.
    fn failed(&self, source: LoadError) -> ProcessModuleError {
        let pid = self.pid();
        match RunningMemory::of(pid) {
            Err(LookError::Gone { .. } | LookError::Over { .. }) => ProcessModuleError::Ended { pid },
            _ => ProcessModuleError::Load { pid, source },
        }
    }

    fn image_of_memory(&self, module: &ProcessModule) -> Result<ProcessImage, ProcessModuleError> {
        let (pid, name) = (self.pid(), &module.name);
        if self.memory.is_observed() && module.file != FileState::None {
            return Err(ProcessModuleError::Observed { pid, name: name.clone() });
        }
        let header = match &module.what {
            What::Elf { header: Some(header), .. } => *header,
            _ => {
                let what = "its ELF header, which is not mapped,".to_owned();
                let source = LoadError::NotInMemory { name: name.clone(), what, at: module.range.start };
                return Err(self.failed(source));
            }
        };
        let table = |offset| self.mapped_from(header, offset);
        let read = |at, bytes: &mut [u8]| self.memory.read(at, bytes);
        let (image, bias) =
            Image::from_memory(name, header, table, &read).map_err(|source| self.failed(source))?;
        Ok(ProcessImage { image, bias, whence: Whence::Memory })
    }

    /// Where it has mapped what is at `offset` of the file of which `header` is mapped.
    fn mapped_from(&self, header: LiveVa, offset: FileOff) -> Option<LiveVa> {
        mapped_from(&self.memory, header, offset)
    }

    fn named(&self, module: &ProcessModule, functions: &[Named]) -> Result<ProcessImage, ProcessModuleError> {
        let mut parts: Vec<(Va, Vec<u8>)> = Vec::new();
        let mut known = Vec::new();
        for f in functions {
            let (start, len) = (Va(f.range.start.0), f.range.end.0 - f.range.start.0);
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            // It may have been thrown away meanwhile.
            if !self.memory.read(f.range.start, &mut bytes) {
                continue;
            }
            known.push((start..start.plus(len), f.name.clone()));
            match parts.last_mut().filter(|(at, part)| at.plus(part.len() as u64) == start) {
                Some((_, part)) => part.append(&mut bytes),
                None => parts.push((start, bytes)),
            }
        }
        if known.is_empty() {
            let what = "its code".to_owned();
            let at = module.range.start;
            return Err(self.failed(LoadError::NotInMemory { name: module.name.clone(), what, at }));
        }
        let image = Image::of_code(&module.name, parts, known);
        Ok(ProcessImage { image, bias: Bias::between(Va(0), LiveVa(0)), whence: Whence::PerfMap })
    }
}

/// Whether it is ours, which somebody who observes the process has put there.
fn is_ours(m: &Mapping) -> bool {
    m.path.as_deref().is_some_and(|path| path.to_string_lossy().starts_with("/memfd:engraft"))
}

/// Where `memory` has what is at `offset` of the file of which `header` is mapped.
fn mapped_from(memory: &RunningMemory, header: LiveVa, offset: FileOff) -> Option<LiveVa> {
    let of = memory.mapping_at(header)?.path.as_deref()?;
    let len = |m: &Mapping| m.range.end.0 - m.range.start.0;
    let holds =
        |m: &&Mapping| m.path.as_deref() == Some(of) && offset.0 >= m.offset && offset.0 - m.offset < len(m);
    let mapping = memory.mappings().iter().find(holds)?;
    Some(LiveVa(mapping.range.start.0 + (offset.0 - mapping.offset)))
}

/// Where the module is whose header is at `header`, if one is.
fn extent(memory: &RunningMemory, header: LiveVa) -> Option<Range<LiveVa>> {
    let read = |at, bytes: &mut [u8]| memory.read(at, bytes);
    Image::extent_in_memory(header, |offset| mapped_from(memory, header, offset), &read)
}

/// Files of which code is mapped, if they are modules.
fn of_files(memory: &RunningMemory) -> Vec<ProcessModule> {
    let mut all = Vec::new();
    for mapped in places::mapped(memory.pid(), memory.mappings()) {
        let Some(first) = memory.mapping_at(mapped.start).filter(|m| !is_ours(m)) else { continue };
        let Some(path) = first.path.as_deref() else { continue };
        let header = (mapped.offset == 0).then_some(mapped.start);
        let own = || memory.mappings().iter().filter(|m| m.path.as_deref() == Some(path));
        let last = own().map(|m| m.range.end).max().unwrap_or(first.range.end);
        let (header, range) = match (header, header.and_then(|header| extent(memory, header))) {
            (Some(header), Some(range)) => (Some(header), range),
            // The code alone is mapped of it.
            _ if is_elf(&mapped.file) => (None, mapped.start..last),
            _ => continue,
        };
        let file = state(memory.pid(), path, first.inode);
        let name = mapped.path.display().to_string();
        all.push(ProcessModule { name, range, file, what: What::Elf { header, mapped: Some(mapped) } });
    }
    all
}

fn is_elf(file: &Path) -> bool {
    use std::io::Read as _;
    let mut magic = [0; 4];
    let is_file = std::fs::metadata(file).is_ok_and(|about| about.is_file());
    is_file
        && std::fs::File::open(file).is_ok_and(|mut f| f.read_exact(&mut magic).is_ok())
        && magic == *b"\x7fELF"
}

/// What became of the file that process `pid` has mapped from `path`.
fn state(pid: i32, path: &Path, inode: u64) -> FileState {
    // Memory that has a name looks like a file.
    if path.to_string_lossy().starts_with("/memfd:") {
        return FileState::None;
    }
    let seen = |path: &Path| {
        let seen = Path::new("/proc").join(pid.to_string()).join("root");
        std::fs::metadata(seen.join(path.strip_prefix("/").unwrap_or(path))).ok()
    };
    match seen(path) {
        Some(about) if about.ino() == inode => FileState::There,
        Some(_) => FileState::Replaced,
        None => match path.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
            Some(before) if seen(Path::new(before)).is_some() => FileState::Replaced,
            _ => FileState::Deleted,
        },
    }
}

/// The kernel's own module.
fn of_kernel(memory: &RunningMemory) -> Option<ProcessModule> {
    let mapping = memory.mappings().iter().find(|m| m.name.as_deref() == Some("[vdso]"))?;
    let what = What::Elf { header: Some(mapping.range.start), mapped: None };
    Some(ProcessModule { name: "[vdso]".into(), range: mapping.range.clone(), file: FileState::None, what })
}

/// Modules in memory that is of no file: each ELF header at the start of a page, in code or beside it.
fn unpacked(memory: &RunningMemory, is_taken: impl Fn(&Mapping) -> bool) -> Vec<ProcessModule> {
    let is_free = |m: &Mapping| m.path.is_none() && !m.name.as_deref().is_some_and(|n| n.starts_with("[v"));
    let free: Vec<&Mapping> = memory.mappings().iter().filter(|m| is_free(m) && !is_taken(m)).collect();
    let mut found: Vec<ProcessModule> = Vec::new();
    for run in free.chunk_by(|a, b| a.range.end == b.range.start) {
        if !run.iter().any(|m| m.executable) {
            continue;
        }
        for m in run {
            let len = m.range.end.0 - m.range.start.0;
            let searched = if m.executable { len } else { len.min(BESIDE) };
            let mut at = m.range.start;
            let end = LiveVa(m.range.start.0 + searched);
            while at < end {
                let mut magic = [0; 4];
                let is_header = memory.read(at, &mut magic) && magic == *b"\x7fELF";
                let range =
                    is_header.then(|| extent(memory, at)).flatten().filter(|range| has_code(memory, range));
                at = match range {
                    Some(range) => {
                        let next = range.end.max(LiveVa(at.0 + PAGE));
                        let name = format!("[unpacked at {:#x}]", at.0);
                        let what = What::Elf { header: Some(at), mapped: None };
                        found.push(ProcessModule { name, range, file: FileState::None, what });
                        next
                    }
                    None => LiveVa(at.0 + PAGE),
                };
            }
        }
    }
    found
}

/// Whether something in `range` can be run.
fn has_code(memory: &RunningMemory, range: &Range<LiveVa>) -> bool {
    memory.mappings().iter().any(|m| m.executable && m.range.start < range.end && range.start < m.range.end)
}

/// The parts of `range` in which none of `modules` is.
fn without(range: Range<LiveVa>, modules: &[ProcessModule]) -> Vec<Range<LiveVa>> {
    let mut inside: Vec<&Range<LiveVa>> = modules.iter().map(|m| &m.range).collect();
    inside.sort_unstable_by_key(|r| r.start);
    let mut parts = Vec::new();
    let mut at = range.start;
    for r in inside.into_iter().filter(|r| r.start < range.end && range.start < r.end) {
        parts.push(at..r.start.max(at));
        at = at.max(r.end);
    }
    parts.push(at..range.end.max(at));
    parts.retain(|part| part.start < part.end);
    parts
}

/// Code that is in no module: what `named` is in it, together as far as it is near enough, and runs of the
/// rest.
fn of_no_file(code: &[Range<LiveVa>], named: Vec<Named>) -> Vec<ProcessModule> {
    let mut runs: Vec<Range<LiveVa>> = Vec::new();
    for range in code {
        match runs.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => runs.push(range.clone()),
        }
    }
    let holds = |f: &Named| {
        let run = runs.get(runs.partition_point(|r| r.end <= f.range.start));
        run.is_some_and(|r| r.start <= f.range.start && f.range.end <= r.end)
    };
    let named: Vec<Named> = named.into_iter().filter(holds).collect();
    let mut all = Vec::new();
    let has_none = |run: &Range<LiveVa>| {
        let next = named.get(named.partition_point(|f| f.range.start < run.start));
        next.is_none_or(|f| f.range.start >= run.end)
    };
    for range in runs.iter().filter(|run| has_none(run)).cloned() {
        let name = format!("[code at {:#x}]", range.start.0);
        all.push(ProcessModule { name, range, file: FileState::None, what: What::Unknown });
    }
    let mut rest = named.as_slice();
    while let Some(first) = rest.first() {
        let start = first.range.start;
        let n = rest.partition_point(|f| f.range.end.0 - start.0 <= APART);
        let (near, far) = rest.split_at(n.max(1));
        let end = near.last().map_or(first.range.end, |f| f.range.end);
        let name = format!("[jit at {:#x}]", start.0);
        let what = What::Named(near.to_vec());
        all.push(ProcessModule { name, range: start..end, file: FileState::None, what });
        rest = far;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_ends_while_it_is_looked_at_is_said_to_have_ended() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("small");
        // The kernel tells us before all of it is mapped.
        let (mut line, pipes) = ([0], (child.stdin.as_mut(), child.stdout.as_mut()));
        pipes.0.expect("a pipe").write_all(b"x").expect("it reads");
        pipes.1.expect("a pipe").read_exact(&mut line).expect("it writes");
        let modules = ProcessModules::of(pid).expect("it runs");
        let executable = modules.all.first().expect("it has one");
        assert_eq!((executable.file, modules.pid()), (FileState::There, pid));
        let known = modules.image(executable, true).expect("it runs");
        assert_eq!(known.whence, Whence::Memory);
        let at = known.bias.to_live(known.image.entry.expect("it starts somewhere"));
        assert_eq!(modules.module_at(at).map(|m| &m.name), Some(&executable.name));
        drop(child.stdin.take());
        child.wait().expect("it is ours");
        let err = modules.image(executable, true).expect_err("it has no memory");
        assert_eq!(err.to_string(), format!("process {pid} ended while its memory was read"));
        assert!(err.hint().is_some());
    }

    fn named(start: u64, end: u64) -> Named {
        Named { range: LiveVa(start)..LiveVa(end), name: format!("f{start:x}").into() }
    }

    #[test]
    fn code_without_a_file_is_of_those_who_name_it_and_the_rest_is_unknown() {
        let code = [(0x1000, 0x2000), (0x2000, 0x3000), (0x5000, 0x6000), (0x20_0000_0000, 0x20_0000_1000)];
        let code = code.map(|(start, end)| LiveVa(start)..LiveVa(end));
        // One lies in both of two mappings, one in none.
        let all = vec![
            named(0x1010, 0x1020),
            named(0x1ff0, 0x2010),
            named(0x4000, 0x4010),
            named(0x20_0000_0010, 0x20_0000_0020),
        ];
        let found = of_no_file(&code, all);
        let said: Vec<(&str, u64, u64)> =
            found.iter().map(|m| (&*m.name, m.range.start.0, m.range.end.0)).collect();
        assert_eq!(
            said,
            [
                ("[code at 0x5000]", 0x5000, 0x6000),
                ("[jit at 0x1010]", 0x1010, 0x2010),
                ("[jit at 0x2000000010]", 0x20_0000_0010, 0x20_0000_0020),
            ]
        );
        assert!(matches!(&found[1].what, What::Named(functions) if functions.len() == 2));
    }

    #[test]
    fn code_between_modules_is_of_none() {
        let module = |start, end| ProcessModule {
            name: String::new(),
            range: LiveVa(start)..LiveVa(end),
            file: FileState::None,
            what: What::Unknown,
        };
        let modules = [module(0x3000, 0x4000), module(0, 0x1800)];
        let parts = without(LiveVa(0x1000)..LiveVa(0x5000), &modules);
        assert_eq!(parts, [LiveVa(0x1800)..LiveVa(0x3000), LiveVa(0x4000)..LiveVa(0x5000)]);
        assert_eq!(without(LiveVa(0x100)..LiveVa(0x200), &modules), []);
    }
}

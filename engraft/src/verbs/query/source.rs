//! Blocks of a trace in their binaries: which source lines they are of, and their instructions.

use crate::input;
use crate::output::{self, Hinted};
use probe::Module;
use program::arch::{Insn, decode};
use program::{Image, Lines, Program, Va};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use trace::{BlockId, FlowGraphs, FuncId, Names};

/// What stands beside a block that is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Code {
    /// Its source lines, if the source is at hand.
    Source,
    /// Its instructions.
    Disassembly,
}

/// By function and block: the file and the line, if they are known.
type FirstLines = BTreeMap<(FuncId, BlockId), Option<(String, u32)>>;

/// The binaries of a trace, read when they are asked for.
pub struct Binaries<'a> {
    names: &'a Names,
    flow: &'a FlowGraphs,
    /// By the number of their first function; none that could not be read.
    loaded: RefCell<BTreeMap<FuncId, Option<Rc<Binary>>>>,
    /// The first source line of blocks that were asked for.
    first_lines: RefCell<FirstLines>,
    /// The lines of source files.
    sources: RefCell<BTreeMap<String, Rc<Vec<String>>>>,
    /// Why some could not be read.
    failed: RefCell<Vec<anyhow::Error>>,
}

struct Binary {
    image: Image,
    lines: Option<Lines>,
}

impl<'a> Binaries<'a> {
    /// Of a trace with these names and this control flow.
    pub fn new(names: &'a Names, flow: &'a FlowGraphs) -> Binaries<'a> {
        Binaries {
            names,
            flow,
            loaded: RefCell::default(),
            first_lines: RefCell::default(),
            sources: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// What went wrong last, if anything did.
    ///
    /// # Errors
    /// If a binary could not be read.
    pub fn check(&self) -> anyhow::Result<()> {
        self.failed.borrow_mut().pop().map_or(Ok(()), Err)
    }

    /// Says what went wrong, where `code` was to be shown beside the answer.
    pub fn warn_of(self, code: Option<Code>) {
        if code.is_none() {
            return;
        }
        for err in self.failed.into_inner() {
            output::warn(&format!("code is left out: {err:#}"), output::hint(&err).as_deref());
        }
    }

    fn binary(&self, func: FuncId) -> Option<Rc<Binary>> {
        let (module, _) = self.flow.module(func)?;
        if let Some(known) = self.loaded.borrow().get(&module.first) {
            return known.clone();
        }
        let load = || {
            let image = input::recorded_image(&module.path, module.key)?;
            let lines = Lines::load(&image);
            anyhow::Ok(Rc::new(Binary { image, lines }))
        };
        let binary = load().map_err(|err| self.failed.borrow_mut().push(err)).ok();
        self.loaded.borrow_mut().insert(module.first, binary.clone());
        binary
    }

    /// The blocks that control may leave a function in; none, if they are not known.
    pub fn exits(&self, func: FuncId) -> Vec<BlockId> {
        self.flow.exits(func)
    }

    /// Why a function was not recorded: it stays where it is.
    pub fn stays(&self, func: FuncId) -> Option<String> {
        let (module, n) = self.flow.module(func)?;
        let image = input::recorded_image(&module.path, module.key).ok()?;
        let why = Module::not_moved(&Program::analyze(image)).get(n as usize).copied().flatten();
        why.map(|why| why.to_string())
    }

    /// The instructions of a block: up to where the next one of its function starts.
    fn insns(&self, binary: &Binary, func: FuncId, block: BlockId) -> Vec<Insn> {
        let Some(function) = self.names.functions.get(&func) else { return Vec::new() };
        let Some(start) = function.blocks.get(&block).map(|b| b.at) else { return Vec::new() };
        let end = function.blocks.values().map(|b| b.at).filter(|at| *at > start).min();
        let mut insns = Vec::new();
        let mut at = Va(start);
        while end.is_none_or(|end| at.0 < end) {
            let Some(insn) = binary.image.bytes_from(at).and_then(|bytes| decode(bytes, at)) else { break };
            at = insn.end();
            let is_last = insn.flow().ends_block();
            insns.push(insn);
            if is_last {
                break;
            }
        }
        while insns.last().is_some_and(|insn: &Insn| insn.is_nop()) && insns.len() > 1 {
            insns.pop();
        }
        insns
    }

    /// The source lines that a block is of, in the order of its instructions; of a trace that knows no
    /// binaries, what came with its names.
    pub fn lines(&self, func: FuncId, block: BlockId) -> Vec<(String, u32)> {
        let Some(binary) = self.binary(func) else {
            let known = self.names.functions.get(&func).and_then(|f| f.blocks.get(&block));
            return known.filter(|b| b.line > 0).map(|b| (b.file.clone(), b.line)).into_iter().collect();
        };
        let Some(lines) = &binary.lines else { return Vec::new() };
        let mut found: Vec<(String, u32)> = Vec::new();
        for insn in self.insns(&binary, func, block) {
            let line = lines.at(insn.at()).filter(|(_, line)| *line > 0);
            let line = line.map(|(file, line)| (file.to_owned(), line));
            found.extend(line.filter(|line| found.last() != Some(line)));
        }
        found
    }

    /// The first of its lines.
    pub fn first_line(&self, func: FuncId, block: BlockId) -> Option<(String, u32)> {
        if let Some(known) = self.first_lines.borrow().get(&(func, block)) {
            return known.clone();
        }
        let first = self.lines(func, block).into_iter().next();
        self.first_lines.borrow_mut().insert((func, block), first.clone());
        first
    }

    /// A block as it is printed.
    pub fn code(&self, what: Code, func: FuncId, block: BlockId) -> Vec<String> {
        match what {
            Code::Disassembly => {
                let Some(binary) = self.binary(func) else { return Vec::new() };
                let insns = self.insns(&binary, func, block);
                insns.iter().map(|insn| format!("{}  {insn}", insn.at())).collect()
            }
            Code::Source => {
                let mut shown: Vec<(String, u32)> = Vec::new();
                for line in self.lines(func, block) {
                    if !shown.contains(&line) {
                        shown.push(line);
                    }
                }
                let text = |(file, line): (String, u32)| {
                    let source = self.source(&file);
                    let text = (line as usize).checked_sub(1).and_then(|n| source.get(n));
                    let name = file.rsplit('/').next().unwrap_or(&file);
                    format!("{name}:{line}  {}", text.map_or("", |text| text.trim())).trim_end().to_owned()
                };
                shown.into_iter().map(text).collect()
            }
        }
    }

    /// Lines of a source file; none if it is not at hand.
    fn source(&self, file: &str) -> Rc<Vec<String>> {
        let mut sources = self.sources.borrow_mut();
        let read = || {
            let path = Path::new(file);
            // What a binary says may lead anywhere.
            let is_file =
                std::fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() <= LONGEST);
            let text = is_file.then(|| std::fs::read(path).ok()).flatten().unwrap_or_default();
            Rc::new(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
        };
        Rc::clone(sources.entry(file.to_owned()).or_insert_with(read))
    }

    /// Refuses to show code of a trace that knows no binaries.
    ///
    /// # Errors
    /// If it is one of those.
    pub fn has_code(&self, what: Code, trace: &Path) -> anyhow::Result<()> {
        if what == Code::Disassembly && self.flow.modules.is_empty() {
            let text = format!("{} does not say which program it is of", trace.display());
            return Err(Hinted::new(text, "say `--code source`, or record it with `engraft trace`").into());
        }
        Ok(())
    }
}

/// No source that people write is longer.
const LONGEST: u64 = 64 << 20;

//! callgrind: exact counts from `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes`; written for
//! KCachegrind.
//!
//! ```text
//! positions: instr line          what stands before the costs of a line
//! events: Ir …                   the costs; Ir is executions of the instruction
//! ob=(1) /bin/a.out              object; also fl= fi= fe= (file), fn= (function); `(1)` names it for later
//! 0x1136 7 12                    instruction, line, executions
//! +4 * 12                        a position may be relative to the one before, or equal to it
//! cob=… cfi=… cfn=…              object, file, function of what is called next; an object holds for that
//!                                call only
//! calls=5 0x1200 9               calls of what starts there; the next line is the calling instruction with
//!                                costs of the callee
//! jump=5 0x1150 9                jumps; the next line is the jumping instruction, without costs
//! jcnd=3/12 0x1150 9             a conditional branch that was taken 3 times of 12
//! ```
//! A target's position does not count as "the one before". Functions that callgrind holds for different ones
//! are joined by `calls=` even if it is a jump that leads from one to the other. Lines of one instruction add
//! up (recursion levels).
//!
//! callgrind prints an object's own addresses, as in the ELF file; addresses of an object that is unloaded
//! already, of `???`, are those in the process. A file with addresses that were moved is recognised by its
//! functions' starts.
//!
//! Traps: `rep` counts once an iteration. The stubs of the PLT are skipped, so a call to one shows the
//! import, and has the stub's instructions added to its own.
//!
//! Source: the valgrind manual, "Callgrind Format Specification"; valgrind 3.19 `callgrind/dump.c` for what
//! is relative to what.

use crate::complete::derive::add;
use crate::counts::{Edge, ImageRef, Lost, Profile};
use crate::losses::Losses;
use crate::vocabulary::{Format, ReadError};
use program::arch::ControlFlow;
use program::{BlockEnd, BlockId, Callee, EdgeKind, Program, Va};
use std::collections::{BTreeMap, HashMap};

pub(crate) mod export;

pub use export::write;

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    text.starts_with("# callgrind format")
        || text.lines().take(20).any(|l| l.starts_with("positions:"))
            && text.lines().take(20).any(|l| l.starts_with("events:"))
}

/// Whether a file counts jumps. Without them it holds executions of blocks only, and says of no branch where
/// it went.
pub fn has_jumps(bytes: &[u8]) -> bool {
    let starts = |line: &[u8]| line.starts_with(b"jump=") || line.starts_with(b"jcnd=");
    bytes.split(|&b| b == b'\n').any(starts)
}

/// The line by which a file is known to be ours.
const CREATOR: &str = "creator: engraft";

/// Index into [`Dump::objects`].
type Object = usize;

/// What a file says, before it is laid onto a program.
#[derive(Default)]
struct Dump {
    objects: Vec<String>,
    /// Executions of instructions.
    insns: BTreeMap<(Object, u64), u64>,
    /// Calls and jumps: (object, instruction) → (object, target).
    calls: BTreeMap<(Object, u64, Object, u64), u64>,
    /// Written by us: what stubs cost is nobody else's.
    ours: bool,
    jumps: BTreeMap<(Object, u64, u64), u64>,
}

/// A name that may be given once and then referred to by number.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn resolve(&mut self, text: &str) -> Option<String> {
        let Some(rest) = text.strip_prefix('(') else { return Some(text.to_owned()) };
        let (id, name) = rest.split_once(')')?;
        match name.trim_start() {
            "" => self.0.get(id).cloned(),
            name => {
                self.0.insert(id.to_owned(), name.to_owned());
                Some(name.to_owned())
            }
        }
    }
}

/// What the next line of numbers means.
enum Next {
    Cost,
    Call {
        count: u64,
        object: Object,
        target: u64,
    },
    /// A call that is none of the program's.
    Nothing,
    Jump {
        count: u64,
        target: u64,
    },
}

struct Lines {
    dump: Dump,
    names: Names,
    /// Names of functions, which are numbered on their own.
    functions: Names,
    /// Whether the next call is to what binds imports on their first call. The call of the import itself is
    /// told of too.
    binds: bool,
    object: Object,
    /// Object of the next call, if it is named.
    called: Option<Object>,
    /// How many positions a line starts with, and which of the costs is Ir.
    n_positions: usize,
    cost_idx: usize,
    at: u64,
    next: Next,
}

impl Dump {
    fn parse(text: &str) -> Result<Dump, ReadError> {
        let mut lines = Lines {
            dump: Dump { objects: vec!["???".to_owned()], ..Dump::default() },
            names: Names::default(),
            functions: Names::default(),
            binds: false,
            object: 0,
            called: None,
            n_positions: 0,
            cost_idx: 0,
            at: 0,
            next: Next::Cost,
        };
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let bad = |what| ReadError::BadLine { format: Format::Callgrind, line: i + 1, what };
                lines.line(line).map_err(bad)?;
            }
        }
        lines.dump.ours = text.lines().take(20).any(|l| l == CREATOR);
        // valgrind announces the sum in the head and repeats it as the last line.
        let says = |key: &str| text.lines().any(|l| l.starts_with(key));
        if says("summary:") && !says("totals:") {
            return Err(ReadError::BadLine {
                format: Format::Callgrind,
                line: text.lines().count(),
                what: "the file ends here, without the totals that its head announces: it was cut off; \
                       take the profile again"
                    .to_owned(),
            });
        }
        Ok(lines.dump)
    }
}

impl Lines {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            return self.numbers(line);
        }
        if let Some((key, value)) = line.split_once('=') {
            match key.trim() {
                "ob" => self.object = self.object_of(value)?,
                "cob" => self.called = Some(self.object_of(value)?),
                "calls" => {
                    let (count, target) = self.transfer(value)?;
                    let object = self.called.take().unwrap_or(self.object);
                    self.next = match std::mem::take(&mut self.binds) {
                        true => Next::Nothing,
                        false => Next::Call { count, object, target },
                    };
                }
                "jump" | "jcnd" => {
                    let (count, target) = self.transfer(value)?;
                    self.next = Next::Jump { count, target };
                }
                // Functions: the program knows them by address, but not the dynamic linker's.
                "fn" => drop(self.functions.resolve(value)),
                "cfn" => {
                    let name = self.functions.resolve(value);
                    self.binds = name.is_some_and(|name| name.starts_with("_dl_runtime_resolve"));
                }
                // Files.
                _ => {}
            }
            return Ok(());
        }
        match line.split_once(':') {
            Some(("positions", names)) => {
                let names: Vec<&str> = names.split_whitespace().collect();
                if names.first() != Some(&"instr") {
                    return Err("it has no addresses: run callgrind with --dump-instr=yes".to_owned());
                }
                self.n_positions = names.len();
            }
            Some(("events", names)) => {
                let ir = names.split_whitespace().position(|name| name == "Ir");
                self.cost_idx = ir.ok_or("the event Ir is not among those counted")?;
            }
            Some(_) => {}
            None => return Err(format!("{line:?} is neither numbers nor a key")),
        }
        Ok(())
    }

    fn object_of(&mut self, text: &str) -> Result<Object, String> {
        let name =
            self.names.resolve(text).ok_or_else(|| format!("the object {text:?} was not named before"))?;
        let found = self.dump.objects.iter().position(|o| *o == name);
        Ok(found.unwrap_or_else(|| {
            self.dump.objects.push(name);
            self.dump.objects.len() - 1
        }))
    }

    /// `COUNT TARGET …` or `TAKEN/EXECUTED TARGET …`.
    fn transfer(&mut self, text: &str) -> Result<(u64, u64), String> {
        let mut fields = text.split_whitespace();
        let count = fields.next().unwrap_or_default();
        let count = count.split('/').next().unwrap_or_default();
        let count = count.parse().map_err(|_| format!("{count:?} is no count"))?;
        Ok((count, self.position(fields.next().unwrap_or_default())?))
    }

    fn position(&self, text: &str) -> Result<u64, String> {
        let value = |digits: &str| match digits.strip_prefix("0x") {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
            None => digits.parse().ok(),
        };
        let found = match text.as_bytes().first() {
            Some(b'*') => Some(self.at),
            Some(b'+') => value(&text[1..]).map(|d| self.at.wrapping_add(d)),
            Some(b'-') => value(&text[1..]).map(|d| self.at.wrapping_sub(d)),
            _ => value(text),
        };
        found.ok_or_else(|| format!("{text:?} is no position"))
    }

    fn numbers(&mut self, line: &str) -> Result<(), String> {
        if self.n_positions == 0 {
            return Err("numbers before `positions:`".to_owned());
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        self.at = self.position(fields.first().copied().unwrap_or_default())?;
        let (object, at) = (self.object, self.at);
        match std::mem::replace(&mut self.next, Next::Cost) {
            Next::Cost => {
                let cost = fields.get(self.n_positions + self.cost_idx).copied().unwrap_or("0");
                let cost = cost.parse().map_err(|_| format!("{cost:?} is no count"))?;
                add(&mut self.dump.insns, (object, at), cost);
            }
            Next::Call { count, object: called, target } => {
                add(&mut self.dump.calls, (object, at, called, target), count);
            }
            Next::Nothing => {}
            Next::Jump { count, target } => add(&mut self.dump.jumps, (object, at, target), count),
        }
        Ok(())
    }
}

/// Reads exact counts of `program`.
///
/// # Errors
/// [`ReadError::BadLine`] for a line that is not as described above, [`ReadError::NotInIt`] if no object of
/// the file is the program.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let dump = Dump::parse(&String::from_utf8_lossy(bytes))?;
    let mut starts = Starts { program, blocks: HashMap::new() };
    let (object, moved) = choose(&dump, &mut starts).ok_or_else(|| ReadError::NotInIt {
        format: Format::Callgrind,
        program: program.image.name.clone(),
        holds: resembling(&dump, &program.image.name),
    })?;
    let unloaded = unloaded_bias(&dump, object, moved, program);
    // Addresses of the image, from those of an object of the file.
    let place =
        |o: Object, at: u64| match (o == object, dump.objects.get(o).is_some_and(|n| n == "???"), unloaded) {
            (true, ..) => Some(Va(at.wrapping_sub(moved))),
            (false, true, Some(bias)) => {
                Some(Va(at.wrapping_sub(bias))).filter(|&va| program.image.is_code(va))
            }
            _ => None,
        };
    let mut layer = Layer {
        program,
        insns: BTreeMap::new(),
        called: BTreeMap::new(),
        ours: dump.ours,
        profile: Profile::default(),
        lost: Losses::default(),
    };
    layer.profile.image = ImageRef::of(&program.image);
    for (&(o, at), &n) in &dump.insns {
        if let Some(at) = place(o, at) {
            add(&mut layer.insns, at, n);
        }
    }
    for (&(from, at, ..), &n) in &dump.calls {
        if let Some(at) = place(from, at) {
            add(&mut layer.called, at, n);
        }
    }
    layer.blocks();
    for (&(o, at, to), &n) in &dump.jumps {
        if let (Some(at), Some(to)) = (place(o, at), place(o, to)) {
            layer.transfer(at, Some(to), n);
        }
    }
    for (&(from, at, called, to), &n) in &dump.calls {
        if let Some(at) = place(from, at) {
            layer.transfer(at, place(called, to), n);
        }
    }
    layer.complete();
    Ok((layer.profile, layer.lost.into_list()))
}

/// The objects that might be another build of the program: of a name that begins alike; else those that are
/// no shared libraries.
fn resembling(dump: &Dump, program: &str) -> Vec<String> {
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let stem = |path: &str| -> String {
        file_name(path).chars().take_while(|c| c.is_alphabetic() || *c == '_').collect()
    };
    let wanted = stem(program);
    let named = || dump.objects.iter().filter(|o| *o != "???");
    let alike = |o: &&String| {
        let s = stem(o);
        !s.is_empty() && !wanted.is_empty() && (s.starts_with(&wanted) || wanted.starts_with(&s))
    };
    let library = |o: &&String| file_name(o).contains(".so");
    let found: Vec<String> = named().filter(alike).cloned().collect();
    if !found.is_empty() {
        return found;
    }
    let programs: Vec<String> = named().filter(|o| !library(o)).cloned().collect();
    if programs.is_empty() { named().cloned().collect() } else { programs }
}

/// Starts of instructions, block by block.
struct Starts<'p> {
    program: &'p Program,
    blocks: HashMap<BlockId, Vec<Va>>,
}

impl Starts<'_> {
    fn has(&mut self, at: Va) -> bool {
        let Some(id) = self.program.block_at(at) else { return false };
        let program = self.program;
        self.blocks
            .entry(id)
            .or_insert_with(|| program.insns(id).map(|i| i.at()).collect())
            .binary_search(&at)
            .is_ok()
    }
}

/// The object that is the program, and by how much its addresses were moved: almost all of its instructions
/// are ours.
fn choose(dump: &Dump, starts: &mut Starts) -> Option<(Object, u64)> {
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let wanted = file_name(&starts.program.image.name);
    let mut found: Vec<(bool, usize, Object, u64)> = Vec::new();
    for (object, name) in dump.objects.iter().enumerate().filter(|(_, name)| *name != "???") {
        let addresses: Vec<u64> =
            dump.insns.range((object, 0)..=(object, u64::MAX)).map(|((_, at), _)| *at).collect();
        for bias in [0].into_iter().chain(likely_bias(&addresses, starts.program)) {
            let ours = |at: &&u64| starts.has(Va(at.wrapping_sub(bias)));
            let n_ours = addresses.iter().filter(ours).count();
            // In no block: stubs, start-up code, padding that was run through.
            let program = starts.program;
            let outside = |at: &&u64| {
                let va = Va(at.wrapping_sub(bias));
                program.image.is_code(va) && program.block_at(va).is_none()
            };
            let n_outside = addresses.iter().filter(outside).count();
            if n_ours * 2 > addresses.len() && (n_ours + n_outside) * 100 >= addresses.len() * 95 {
                found.push((file_name(name) == wanted, n_ours, object, bias));
                break;
            }
        }
    }
    found
        .into_iter()
        .max_by_key(|&(same_name, n_ours, object, _)| (same_name, n_ours, usize::MAX - object))
        .map(|f| (f.2, f.3))
}

/// The difference, in whole pages, that takes most of the program's functions to addresses of the file.
fn likely_bias(addresses: &[u64], program: &Program) -> Option<u64> {
    const PAGE: u64 = 0xfff;
    let mut by_low: HashMap<u64, Vec<u64>> = HashMap::new();
    for &at in addresses {
        by_low.entry(at & PAGE).or_default().push(at);
    }
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for f in program.functions.iter().take(1000) {
        for at in by_low.get(&(f.entry.0 & PAGE)).into_iter().flatten() {
            *votes.entry(at.wrapping_sub(f.entry.0)).or_insert(0) += 1;
        }
    }
    votes.into_iter().max_by_key(|&(bias, n)| (n, std::cmp::Reverse(bias))).map(|(bias, _)| bias)
}

/// Where the program lay in memory, if a direct call of it leads into what was unloaded when the file was
/// written.
fn unloaded_bias(dump: &Dump, object: Object, moved: u64, program: &Program) -> Option<u64> {
    let mut biases = dump.calls.keys().filter_map(|&(from, at, called, target)| {
        let unloaded = dump.objects.get(called).is_some_and(|n| n == "???");
        let at = Va(at.wrapping_sub(moved));
        let id = (from == object && unloaded).then(|| program.block_at(at)).flatten()?;
        let insn = program.insns(id).find(|i| i.at() == at)?;
        Some(target.wrapping_sub(insn.flow().target()?.0)).filter(|bias| bias % 4096 == 0)
    });
    let bias = biases.next()?;
    biases.all(|b| b == bias).then_some(bias)
}

/// Lays counts of instructions and transfers onto blocks and edges.
struct Layer<'p> {
    program: &'p Program,
    insns: BTreeMap<Va, u64>,
    /// Calls and tail calls, by instruction.
    called: BTreeMap<Va, u64>,
    ours: bool,
    profile: Profile,
    lost: Losses,
}

impl Layer<'_> {
    fn name(&self, at: Va) -> String {
        let func = self.program.function_at(at);
        func.map_or_else(|| "code outside of functions".to_owned(), |f| self.program.function(f).name())
    }

    fn is_stub(&self, at: Va) -> bool {
        let plt = &self.program.image.plt;
        let i = plt.partition_point(|s| s.range.end <= at);
        plt.get(i).is_some_and(|s| s.range.contains(&at))
    }

    /// A block ran as often as its first instruction; as its second, if the first one is repeated by a
    /// prefix.
    fn blocks(&mut self) {
        let mut functions: Vec<_> =
            self.insns.keys().filter_map(|&at| self.program.function_at(at)).collect();
        functions.dedup();
        functions.sort_unstable();
        functions.dedup();
        for id in functions.into_iter().flat_map(|f| self.program.function(f).block_ids()) {
            let block = self.program.block(id);
            let counted = self.program.insns(id).find(|i| !i.is_repeated());
            let Some(insn) = counted else { continue };
            let mut n = self.insns.get(&insn.at()).copied().unwrap_or(0);
            if let ControlFlow::Call(to) | ControlFlow::Jump(to) = insn.flow()
                && !self.ours
                && self.is_stub(to)
            {
                // What the stub costs was added to it.
                n = self.called.get(&insn.at()).map_or(n, |&calls| calls.min(n));
            }
            self.profile.blocks.insert(block.start, n);
        }
        let outside: Vec<(Va, u64)> = self
            .insns
            .iter()
            .filter(|(at, _)| self.program.block_at(**at).is_none())
            .map(|(at, n)| (*at, *n))
            .collect();
        for (at, n) in outside {
            let padding = program::arch::decode(self.program.image.bytes_from(at).unwrap_or_default(), at)
                .is_some_and(|i| i.is_padding());
            if !padding {
                self.lost.add(&self.name(at), "instructions that no block holds", n);
            }
        }
    }

    /// A jump or call at `at`; `to` is `None` outside of the image.
    fn transfer(&mut self, at: Va, to: Option<Va>, n: u64) {
        let Some(id) = self.program.block_at(at) else {
            let stub = self.program.image.section_at(at).is_some_and(|s| s.name.starts_with(".plt"));
            if !stub {
                self.lost.add(&self.name(at), "transfers from what no block holds", n);
            }
            return;
        };
        let block = self.program.block(id);
        let known = self.program.calls_in(id).iter().find(|c| c.at == at);
        if known.is_some_and(|c| c.kind == program::CallKind::Call)
            || known.is_some() && self.edge_to(id, to).is_none()
        {
            // The stub that the call goes through, if callgrind has skipped it.
            let stub = match known.map(|c| c.callee) {
                Some(Callee::Function(f)) if to.is_none() => Some(self.program.function(f).entry),
                _ => None,
            };
            match to.or(stub) {
                Some(to) if to == block.start || self.edge_to(id, Some(to)).is_none() => {
                    add(&mut self.profile.calls, (at, to), n);
                    if stub.is_some() {
                        self.profile.entries.add(to, n);
                    }
                }
                Some(to) => add(&mut self.profile.edges, Edge { from: block.start, to }, n),
                None => add(&mut self.profile.calls_out, at, n),
            }
            return;
        }
        let repeated = to == Some(at) && self.program.insns(id).any(|i| i.at() == at && i.is_repeated());
        match self.edge_to(id, to) {
            // Straight ones follow from the block's count.
            Some(_) if matches!(block.end, BlockEnd::Jump | BlockEnd::FallThrough) => {}
            Some(edge) if at == block.last_insn() => add(&mut self.profile.edges, edge, n),
            _ if repeated => {}
            _ => match to {
                None if matches!(block.end, BlockEnd::IndirectTailCall | BlockEnd::Unresolved) => {
                    add(&mut self.profile.calls_out, at, n);
                }
                Some(to) if self.program.function_at(to) != Some(block.func) && at == block.last_insn() => {
                    add(&mut self.profile.calls, (at, to), n);
                }
                Some(to) if block.end == BlockEnd::Unresolved && self.program.block_from(to).is_some() => {
                    add(&mut self.profile.edges, Edge { from: block.start, to }, n);
                }
                _ => self.lost.add(&self.name(at), "the program has no such edge", n),
            },
        }
    }

    fn edge_to(&self, from: BlockId, to: Option<Va>) -> Option<Edge> {
        let to = to?;
        let found = self.program.successors(from).iter().any(|e| self.program.block(e.to).start == to);
        found.then(|| Edge { from: self.program.block(from).start, to })
    }

    /// Adds the edges that callgrind does not print, since they follow, and the entries.
    fn complete(&mut self) {
        let program = self.program;
        let starts: Vec<Va> = self.profile.blocks.keys().copied().collect();
        for &start in &starts {
            let Some(id) = program.block_from(start) else { continue };
            let block = program.block(id);
            // What reached the end: fewer than the block's count if a call in it did not return.
            let ended = self.insns.get(&block.last_insn()).copied().unwrap_or(0);
            let ended = ended.min(self.profile.blocks.get(&start).copied().unwrap_or(0));
            let successors = program.successors(id);
            let others: u64 = successors
                .iter()
                .filter(|e| matches!(e.kind, EdgeKind::Taken | EdgeKind::Table))
                .filter_map(|e| self.profile.edges.get(&Edge { from: start, to: program.block(e.to).start }))
                .fold(0, |sum, n| sum.saturating_add(*n));
            let left: u64 = program
                .calls_in(id)
                .iter()
                .filter(|c| c.at == block.last_insn() && c.kind == program::CallKind::BranchTailCall)
                .flat_map(|c| self.profile.calls.range((c.at, Va(0))..=(c.at, Va(u64::MAX))))
                .map(|(_, n)| *n)
                .fold(0, |sum, n: u64| sum.saturating_add(n));
            for e in successors {
                let edge = Edge { from: start, to: program.block(e.to).start };
                match e.kind {
                    EdgeKind::FallThrough => {
                        let twice = successors.iter().any(|o| o.to == e.to && o.kind == EdgeKind::Taken);
                        let n = if twice { ended } else { ended.saturating_sub(others).saturating_sub(left) };
                        self.profile.edges.insert(edge, n);
                    }
                    EdgeKind::Jump => {
                        self.profile.edges.insert(edge, ended);
                    }
                    EdgeKind::Taken | EdgeKind::Table => {
                        self.profile.edges.entry(edge).or_insert(0);
                    }
                    EdgeKind::LandingPad => {}
                }
            }
        }
        let mut into: BTreeMap<Va, u64> = BTreeMap::new();
        for (edge, &n) in &self.profile.edges {
            add(&mut into, edge.to, n);
        }
        let entries = program.functions.iter().flat_map(|f| {
            let others = f.entries.iter().map(|&b| program.block(b).start);
            [f.entry].into_iter().chain(others)
        });
        for at in entries {
            if let Some(&n) = self.profile.blocks.get(&at) {
                let inside = into.get(&at).copied().unwrap_or(0);
                self.profile.entries.insert(at, n.saturating_sub(inside));
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Where records are appended, and what they hold.
//!
//! ```text
//! called = word argument*              the function is entered, and nothing else is recorded of the call
//! entry  = word frame (caller begin?)? argument*     the function is entered; frame: the low half of where
//!                                      its return address lies, and with a log that, and a stamp
//! back   = word frame end? result      its caller gets control back
//! passes = word frame                  it goes on by a jump
//! place  = word value*
//! enters = word frame count stamp? executed?   a loop is entered; count: of the word that its back edges
//!                                      increment; executed: instructions that the thread had run
//! leaves = word frame count stamp? executed?   it is left
//! ends   = word frame                  the process ends, or the thread: `exit`, `pthread_exit` and their
//!                                      like are entered
//! ```
//! Words go by module and turn, as those of events: three a function, one a place, two a
//! loop.

use super::asked::{Asked, AskedCall, AskedPlace, ENDS, ENDS_THREAD, Logged, Passed, Stamping, Wanted};
use super::auto::{self, InLine};
use super::executed;
use super::known::{Known, bare};
use probe::arch::shared::event_word;
use probe::{Action, Field, Module, NotMoved, Plan, Point, Probe, Record, RewriteError, Room, record_len};
use profile::values::Watched;
use program::arch::Reg;
use program::signature::Type;
use program::{BlockId, CallKind, FuncId, LoopId, Loops, Program, Va};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most words of a module.
const MOST_WORDS: u32 = 1 << 22;
/// Where the words of a module start is a multiple of this.
const BASES: u32 = 1 << 12;
/// Words are below it: those above it are the runtime's.
const LIMIT: u32 = trace::recording::event::LIMIT - 16;
/// No record has more words.
pub const LONGEST_WORDS: u64 = probe::LONGEST_RECORD as u64 / 4;
/// Where the return address of a function lies, at its entry and where it returns.
const FRAME: Field = Field::General { reg: Reg::general(4), len: 4 };
/// The return address of a function, at its entry.
const CALLER: Field = Field::Memory { base: Reg::general(4), at: 0, len: 8 };

/// What the records of a module mean.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Code {
    /// The path of the module.
    pub path: String,
    /// The number before that of its first record.
    pub base: u32,
    /// What is recorded, by number.
    pub records: Vec<Recorded>,
    /// The loops whose instances are recorded.
    pub loops: Vec<LoopCode>,
    /// Functions that were asked for and are not seen, and why.
    pub unseen: Vec<Unseen>,
    /// Where instructions are counted: functions whose are not, and why.
    pub uncounted: Vec<Unseen>,
}

/// A loop whose instances are recorded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LoopCode {
    /// Which of what was asked for it is.
    pub asked: u32,
    /// Its function.
    pub function: String,
    /// The address of its header: of several, the first.
    pub header: u64,
    /// How deep it lies in others, 1 for the outermost.
    pub depth: u32,
    /// The number of the word that its back edges increment.
    pub word: u32,
    /// Which of these is the innermost that contains it.
    pub within: Option<u32>,
    /// Whether it is timed.
    pub is_timed: bool,
}

/// A function of which nothing is recorded, or no result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unseen {
    /// Its name.
    pub function: String,
    /// Where it is.
    pub at: u64,
    /// Why.
    pub why: String,
    /// Whether calls of it are seen, but what they return is not.
    pub is_result_only: bool,
}

/// A record.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// What it says.
    pub what: What,
    /// Which of what was asked for: a call, or a place.
    pub asked: u32,
    /// The name of the function, as it is reported.
    pub name: String,
    /// Whether that was asked for by a glob.
    pub is_of_glob: bool,
    /// Where it is.
    pub at: u64,
    /// The symbol there, if that is another.
    pub symbol: Option<String>,
    /// Its length in bytes.
    pub len: u32,
    /// Where the return address is in it, if it has that.
    pub caller: Option<u32>,
    /// Where a stamp is, if it has one.
    pub stamp: Option<u32>,
    /// Whether the function is known to depend on its arguments alone, and to change nothing.
    pub is_pure: bool,
    /// Whether it is known to call itself, if through others.
    pub is_recursive: bool,
    /// Of a place that is recorded for what the instruction there is: what that is.
    pub watched: Option<Watched>,
    /// Its values.
    pub columns: Vec<ColumnCode>,
}

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum What {
    /// A function is entered.
    #[default]
    Enters,
    /// A function is entered, and it is not recorded how it ends.
    Called,
    /// Its caller gets control back.
    ComesBack,
    /// It goes on by a jump.
    Passes,
    /// Control comes by.
    Place,
    /// The process is about to end: what lies deeper was left.
    Ends,
    /// The thread is about to end: all of it is left.
    EndsThread,
    /// A loop is entered: which of [`Code::loops`] says `asked`.
    EntersLoop,
    /// It is left.
    LeavesLoop,
}

/// Where the bytes of a value are in a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnCode {
    /// What it is called.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// What its bytes mean.
    pub kind: Type,
    /// Its parts: where they are in the record, in the value, and their length.
    pub parts: Vec<(u32, u16, u8)>,
    /// If it is where an address is in its line of the cache, what that is made up of.
    pub line: Option<InLine>,
}

impl What {
    /// Whether it is about a call that was asked for.
    pub fn is_of_call(self) -> bool {
        matches!(self, What::Enters | What::Called | What::ComesBack | What::Passes)
    }
}

impl Code {
    /// The numbers of its records.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        self.base..self.base.saturating_add(u32::try_from(self.records.len() + 1).unwrap_or(u32::MAX))
    }
}

/// What the texts that users write stand for in a program.
pub struct Found<'a> {
    /// The functions that a name means.
    pub functions: &'a dyn Fn(&str) -> BTreeSet<FuncId>,
    /// The addresses that a place's text stands for.
    pub places: &'a dyn Fn(&str) -> Vec<Va>,
    /// The functions of which instructions are recorded for what they are.
    pub watched: &'a dyn Fn(&str) -> BTreeSet<FuncId>,
    /// The loops that a text stands for, by their first headers.
    pub loops: &'a dyn Fn(&str) -> BTreeSet<BlockId>,
    /// Why each function is not moved, by its number; `None` if it is.
    pub not_moved: &'a [Option<NotMoved>],
}

/// What is put into the code of `program`, and what its records mean; numbers go by `key` and `turn`.
pub fn plan(program: &Program, key: u32, turn: u32, asked: &Asked, found: &Found<'_>) -> (Plan, Code) {
    let functions = found.functions;
    let not_moved = found.not_moved.to_vec();
    let base = key.wrapping_add(turn.wrapping_mul(0x9e37_79b9)) % ((LIMIT - 2 * MOST_WORDS) / BASES) * BASES;
    let code = Code { path: program.image.name.clone(), base, ..Code::default() };
    let mut making = Making {
        program,
        known: Known::new(program),
        is_without_results: asked.is_without_results,
        not_moved,
        code,
        probes: Vec::new(),
        of: Vec::new(),
        log: asked.log,
        stamping: asked.stamping,
    };
    // A function is recorded once: for who names it, else for a glob, else for what implies it.
    let mut calls: Vec<(u32, &AskedCall)> = (0..).zip(&asked.calls).collect();
    calls.sort_by_key(|(_, call)| (call.is_implied, call.name.contains('*')));
    let mut recorded = BTreeMap::new();
    for (n, call) in calls {
        for func in functions(&call.name) {
            match recorded.get(&func) {
                None => {
                    let _first = recorded.insert(func, &call.name);
                    making.function(n, call, func);
                }
                Some(first) => making.is_another(call, first, func),
            }
        }
    }
    if asked.looks_for_ends() {
        for (what, names) in [(What::Ends, &ENDS[..]), (What::EndsThread, &ENDS_THREAD)] {
            names.iter().flat_map(|name| functions(name)).for_each(|func| making.end(what, func));
        }
    }
    for (n, place) in (0..).zip(&asked.places) {
        (found.places)(&place.place).into_iter().for_each(|at| making.place(n, place, at));
    }
    let watched: BTreeSet<FuncId> = asked.watched.iter().flat_map(|name| (found.watched)(name)).collect();
    watched.into_iter().for_each(|func| making.instructions(func));
    making.loops(asked, found.loops);
    if asked.counts_instructions {
        making.executed();
    }
    making.without_what_fails();
    let Making { code, probes, .. } = making;
    (Plan { probes, ..Plan::NULL }, code)
}

struct Making<'a> {
    program: &'a Program,
    known: Known<'a>,
    is_without_results: bool,
    not_moved: Vec<Option<NotMoved>>,
    code: Code,
    probes: Vec<Probe>,
    /// What each probe is for.
    of: Vec<Of>,
    /// What a log has of calls.
    log: Option<Logged>,
    stamping: Stamping,
}

/// What a probe is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The record with this number.
    Record(usize),
    /// The loop with this number.
    Loop(u32),
    /// The instructions that a function runs.
    Executed(FuncId),
}

impl Making<'_> {
    /// The calls of `func`, for what was asked for as number `n`.
    fn function(&mut self, n: u32, call: &AskedCall, func: FuncId) {
        let function = self.program.function(func);
        if function.import.is_some() {
            return;
        }
        let (at, symbol) = (function.entry.0, function.name());
        let has_star = call.name.contains('*');
        let is_of_glob = has_star || call.is_implied;
        let name = if has_star { shown(&self.known.names(func), &symbol) } else { call.name.clone() };
        let why = match self.not_moved.get(func.index()) {
            Some(None) => None,
            Some(Some(why)) => Some(why.to_string()),
            None => Some("it is not known".to_owned()),
        };
        if let Some(why) = why {
            let function = if symbol == name { name } else { format!("{name} ({symbol})") };
            self.code.unseen.push(Unseen { function, at, why, is_result_only: false });
            return;
        }
        let symbol = (symbol != name).then_some(symbol);
        let recorded = |what| Recorded {
            what,
            asked: n,
            name: name.clone(),
            is_of_glob,
            at,
            symbol: symbol.clone(),
            ..Recorded::default()
        };
        let known = || self.known.passed(func).unwrap_or_else(Passed::unknown);
        let Passed { arguments, result, has_arguments_in_memory } = call.passed.clone().unwrap_or_else(known);
        if self.is_without_results {
            self.record(Point::Entry(func), recorded(What::Called), &arguments, None);
            return;
        }
        let mut calls =
            self.program.function(func).block_ids().flat_map(|block| self.program.calls_in(block));
        let ends_by_jump = calls.any(|call| call.kind != CallKind::Call);
        let takes_more =
            ends_by_jump && !has_arguments_in_memory && self.program.takes_arguments_in_memory(func);
        if takes_more {
            let why = "it takes arguments in memory that its prototype does not have, so where it ends by a jump \
                       what comes of that is not seen";
            let function = symbol.clone().unwrap_or_else(|| name.clone());
            self.code.unseen.push(Unseen { function, at, why: why.to_owned(), is_result_only: true });
        }
        let has_arguments_in_memory = has_arguments_in_memory || takes_more;
        let is_pure = !arguments.is_empty() && result.is_some() && self.known.is_pure(func);
        let is_recursive = self.program.is_recursive(func);
        let enters = Recorded { is_pure, is_recursive, ..recorded(What::Enters) };
        self.record(Point::Entry(func), enters, &arguments, None);
        let passes = self.number(Recorded { len: record_len(&[FRAME]), ..recorded(What::Passes) });
        let point = Point::Return { func, has_arguments_in_memory };
        self.record(point, recorded(What::ComesBack), result.as_slice(), Some(passes));
    }

    /// The calls of `func` are recorded as those of `first`: if somebody named it, it is said.
    fn is_another(&mut self, call: &AskedCall, first: &str, func: FuncId) {
        if call.name.contains('*') || call.is_implied || call.name == *first {
            return;
        }
        let why = format!("it is the same code as {first}, whose calls are recorded");
        let (function, at) = (call.name.clone(), self.program.function(func).entry.0);
        // Of a name that means several, once.
        if !self.code.unseen.iter().any(|one| (&one.function, &one.why) == (&function, &why)) {
            self.code.unseen.push(Unseen { function, at, why, is_result_only: false });
        }
    }

    /// The process, or the thread, ends where `func` is entered.
    fn end(&mut self, what: What, func: FuncId) {
        if self.not_moved.get(func.index()) != Some(&None) || self.program.function(func).import.is_some() {
            return;
        }
        let function = self.program.function(func);
        let (name, at) = (function.name(), function.entry.0);
        let recorded = Recorded { what, name, at, ..Recorded::default() };
        self.record(Point::Entry(func), recorded, &[], None);
    }

    /// What is at `at`, for what was asked for as number `n`.
    fn place(&mut self, n: u32, place: &AskedPlace, at: Va) {
        let recorded = Recorded {
            what: What::Place,
            asked: n,
            name: place.place.clone(),
            at: at.0,
            ..Recorded::default()
        };
        self.record(Point::Before(at), recorded, &place.values, None);
    }

    /// What instructions of `func` do, because of what they are.
    fn instructions(&mut self, func: FuncId) {
        let function = self.program.function(func);
        if self.not_moved.get(func.index()) != Some(&None) || function.import.is_some() {
            return;
        }
        let (name, entry) = (shown(&self.known.names(func), &function.name()), function.entry);
        let program = self.program;
        for insn in function.block_ids().flat_map(|block| program.insns(block)) {
            for found in auto::of(&insn) {
                let at = insn.at();
                let name = match at.0.checked_sub(entry.0) {
                    Some(distance) => format!("{name}+{distance:#x}"),
                    None => format!("{name}-{:#x}", entry.0 - at.0),
                };
                let watched = Some(found.watched);
                let recorded = Recorded { what: What::Place, name, at: at.0, watched, ..Recorded::default() };
                self.record(Point::Before(at), recorded, std::slice::from_ref(&found.value), None);
                let columns = self.code.records.last_mut().into_iter().flat_map(|last| &mut last.columns);
                columns.for_each(|column| column.line = found.line);
            }
        }
    }

    /// The loops that are `asked` for. On an edge that leaves some and enters others, inner ones are left
    /// first, then outer ones go round, then others are entered, inner ones last.
    fn loops(&mut self, asked: &Asked, found: &dyn Fn(&str) -> BTreeSet<BlockId>) {
        let mut headers = BTreeMap::new();
        for (n, text) in (0..).zip(&asked.loops) {
            for header in found(text) {
                let _first = headers.entry(header).or_insert(n);
            }
        }
        let mut all: Vec<(u32, u32, BlockId, Vec<BlockId>)> = Vec::new();
        for (header, n) in headers {
            let loops = Loops::compute(self.program, self.program.block(header).func);
            let id: Option<LoopId> = loops.ids().find(|id| loops.header(*id) == header);
            let Some(id) = id.filter(|_| self.can_be_moved(header)) else { continue };
            let around = std::iter::successors(loops.parent(id), |id| loops.parent(*id));
            all.push((loops.depth(id), n, header, around.map(|id| loops.header(id)).collect()));
        }
        all.sort_by_key(|one| one.0);
        let first = u32::try_from(self.code.loops.len()).unwrap_or(u32::MAX);
        let numbers: BTreeMap<BlockId, u32> = all.iter().map(|one| one.2).zip(first..).collect();
        for (depth, asked_as, header, around) in &all {
            let (depth, asked_as, header) = (*depth, *asked_as, *header);
            let n = u32::try_from(self.code.loops.len()).unwrap_or(u32::MAX);
            let word = (self.code.base / BASES).wrapping_mul(37).wrapping_add(n);
            // The word of instructions is no loop's.
            let is_taken = asked.counts_instructions && Field::Word(event_word(word)) == executed::field();
            let word = if is_taken { word.wrapping_add(1) } else { word };
            self.code.loops.push(LoopCode {
                asked: asked_as,
                function: self.name_of(self.program.block(header).func),
                header: self.program.block(header).start.0,
                depth,
                word,
                within: around.iter().find_map(|header| numbers.get(header).copied()),
                is_timed: asked.stamping != Stamping::None,
            });
        }
        let numbered: Vec<(u32, BlockId)> = (first..).zip(all.iter().map(|one| one.2)).collect();
        for &(of, header) in numbered.iter().rev() {
            self.passing(What::LeavesLoop, Point::LoopExit(header), of, asked);
        }
        for &(of, header) in &numbered {
            let word = self.code.loops.get(of as usize).map_or(0, |code| code.word);
            self.probes.push(Probe { point: Point::BackEdge(header), action: Action::CountInStream(word) });
            self.of.push(Of::Loop(of));
        }
        for &(of, header) in &numbered {
            self.passing(What::EntersLoop, Point::LoopEntry(header), of, asked);
        }
    }

    /// A record where the loop with number `of` is entered, or left.
    fn passing(&mut self, what: What, point: Point, of: u32, asked: &Asked) {
        let Some(code) = self.code.loops.get(of as usize) else { return };
        let mut fields = vec![FRAME, Field::Word(event_word(code.word))];
        fields.extend(match (self.stamping, what) {
            (Stamping::None, _) => None,
            (_, What::LeavesLoop) => Some(Field::End),
            (Stamping::Plain, _) => Some(Field::Begin),
            (Stamping::Serialised, _) => Some(Field::BeginFenced),
        });
        // Behind a stamp, of which there is one wherever instructions are counted.
        fields.extend(asked.counts_instructions.then(executed::field));
        let (name, at, len) = (code.function.clone(), code.header, record_len(&fields));
        let word = self.number(Recorded { what, asked: of, name, at, len, ..Recorded::default() });
        let action = Action::Append(Record { word, fields, passes: None });
        self.probes.push(Probe { point, action });
        self.of.push(Of::Loop(of));
    }

    /// Whether the function of `block` is moved; if not, it is said.
    fn can_be_moved(&mut self, block: BlockId) -> bool {
        let func = self.program.block(block).func;
        let why = match self.not_moved.get(func.index()) {
            Some(None) => return true,
            Some(Some(why)) => why.to_string(),
            None => "it is not known".to_owned(),
        };
        let at = self.program.block(block).start.0;
        let function = format!("the loop in {}", self.name_of(func));
        self.code.unseen.push(Unseen { function, at, why, is_result_only: false });
        false
    }

    fn name_of(&self, func: FuncId) -> String {
        let function = self.program.function(func);
        shown(&function.names, &function.name())
    }

    /// Gives `recorded` the next number; the word.
    fn number(&mut self, recorded: Recorded) -> u32 {
        self.code.records.push(recorded);
        self.code.base + u32::try_from(self.code.records.len()).unwrap_or(u32::MAX)
    }

    /// A record at `point` with `values`.
    fn record(&mut self, point: Point, mut recorded: Recorded, values: &[Wanted], passes: Option<u32>) {
        let mut fields = Vec::new();
        if !matches!(recorded.what, What::Place | What::Called) {
            fields.push(FRAME);
        }
        if let Some(log) = self.log {
            let enters = recorded.what == What::Enters;
            if enters {
                recorded.caller = Some(record_len(&fields));
                fields.push(CALLER);
            }
            if log.has_times && (enters || recorded.what == What::ComesBack) {
                recorded.stamp = Some(record_len(&fields));
                fields.push(match self.stamping {
                    _ if !enters => Field::End,
                    Stamping::Serialised => Field::BeginFenced,
                    Stamping::None | Stamping::Plain => Field::Begin,
                });
            }
        }
        // What several values have in common is there once.
        let mut place = |wanted: Field| match fields.iter().position(|field| *field == wanted) {
            Some(n) => record_len(fields.get(..n).unwrap_or_default()),
            None => {
                fields.push(wanted);
                record_len(fields.get(..fields.len() - 1).unwrap_or_default())
            }
        };
        recorded.columns = values
            .iter()
            .map(|value| ColumnCode {
                name: value.name.clone(),
                type_name: value.type_name.clone(),
                kind: value.kind.clone(),
                parts: value.pieces.iter().map(|p| (place(p.field), p.at, p.len)).collect(),
                line: None,
            })
            .collect();
        recorded.len = record_len(&fields);
        let n = self.code.records.len();
        let word = self.number(recorded);
        self.probes.push(Probe { point, action: Action::Append(Record { word, fields, passes }) });
        self.of.push(Of::Record(n));
    }

    /// Leaves out a loop: half of what is seen of it would be wrong.
    fn without_loop(&mut self, of: u32, why: String) {
        let mut kept = self.of.iter().map(|one| *one != Of::Loop(of));
        self.probes.retain(|_| kept.next().unwrap_or(true));
        self.of.retain(|one| *one != Of::Loop(of));
        let Some(code) = self.code.loops.get(of as usize) else { return };
        let function = format!("the loop in {}", code.function);
        self.code.unseen.push(Unseen { function, at: code.header, why, is_result_only: false });
    }

    /// Leaves out what cannot be put into the code, and says why.
    fn without_what_fails(&mut self) {
        loop {
            let plan = Plan { probes: std::mem::take(&mut self.probes), ..Plan::NULL };
            let built = Module::build(self.program, &plan, Room::Apart);
            self.probes = plan.probes;
            let Err(RewriteError::Probes { why, .. }) = built else { return };
            let (mut loops, mut uncounted) = (BTreeMap::new(), BTreeMap::new());
            for (n, why) in why.iter().rev() {
                let record = match self.of.get(*n) {
                    Some(Of::Record(record)) => *record,
                    Some(Of::Loop(of)) => {
                        let _before = loops.insert(*of, why.to_string());
                        continue;
                    }
                    Some(Of::Executed(func)) => {
                        let _before = uncounted.insert(*func, why.to_string());
                        continue;
                    }
                    None => continue,
                };
                self.of.remove(*n);
                self.probes.remove(*n);
                let Some(recorded) = self.code.records.get(record) else { continue };
                let function = recorded.symbol.clone().unwrap_or_else(|| recorded.name.clone());
                let is_result_only = recorded.what == What::ComesBack;
                let unseen = Unseen { function, at: recorded.at, why: why.to_string(), is_result_only };
                self.code.unseen.push(unseen);
            }
            loops.into_iter().for_each(|(of, why)| self.without_loop(of, why));
            uncounted.into_iter().for_each(|(func, why)| self.uncounted(func, why));
        }
    }

    /// In each function that is moved, the instructions that it runs are added up: behind what is recorded
    /// where it is entered, and in front of what is where it comes back. What stands between blocks is of no
    /// loop that is left there, nor of one that is entered.
    fn executed(&mut self) {
        let recorded: Vec<(Probe, Of)> = self.probes.drain(..).zip(self.of.drain(..)).collect();
        self.add_executed();
        let counted = self.probes.drain(..).zip(self.of.drain(..));
        let turn = |(probe, of): &(Probe, Of)| match (probe.point, of) {
            (Point::Entry(_), _) => 0,
            (Point::Edge(_), Of::Executed(_)) => 3,
            (_, Of::Executed(_)) => 1,
            (Point::LoopExit(_) | Point::BackEdge(_), _) => 2,
            _ => 4,
        };
        let mut all: Vec<(Probe, Of)> = recorded.into_iter().chain(counted).collect();
        all.sort_by_key(turn);
        (self.probes, self.of) = all.into_iter().unzip();
    }

    fn add_executed(&mut self) {
        for func in self.program.func_ids() {
            match self.not_moved.get(func.index()) {
                Some(None) => {
                    let all = executed::probes(self.program, func);
                    self.of.extend(all.iter().map(|_| Of::Executed(func)));
                    self.probes.extend(all);
                }
                // A stub is counted where it is called.
                Some(Some(NotMoved::PltStub)) => {}
                Some(Some(why)) => {
                    let why = why.to_string();
                    self.say_uncounted(func, why);
                }
                None => {}
            }
        }
    }

    /// Leaves out the instructions of a function: some of them alone would be wrong.
    fn uncounted(&mut self, func: FuncId, why: String) {
        let mut kept = self.of.iter().map(|one| *one != Of::Executed(func));
        self.probes.retain(|_| kept.next().unwrap_or(true));
        self.of.retain(|one| *one != Of::Executed(func));
        self.say_uncounted(func, why);
    }

    fn say_uncounted(&mut self, func: FuncId, why: String) {
        let function = self.program.function(func);
        let (function, at) = (self.name_of(func), function.entry.0);
        self.code.uncounted.push(Unseen { function, at, why, is_result_only: false });
    }
}

/// Of the symbols of a function, the one that its users know: that with the fewest underscores in front, then
/// the shortest, without its version.
fn shown(symbols: &[Box<str>], symbol: &str) -> String {
    let all = symbols.iter().map(|symbol| bare(symbol));
    let known = all.min_by_key(|name| (name.len() - name.trim_start_matches('_').len(), name.len(), *name));
    known.unwrap_or_else(|| bare(symbol)).to_owned()
}

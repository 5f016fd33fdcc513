//! How often each source line ran, and where its branches went, as gcov has it: from counts of blocks and
//! edges.
//!
//! A line runs as often as control comes to it from elsewhere, and once more for each round of a loop that
//! lies in it entirely. Code is cut behind calls for that, which may not come back; a piece belongs to its
//! highest line. A line that no piece belongs to runs as often as the pieces that it stands in. Which of a
//! block's calls did not come back follows from how often what they call was entered and left; control goes
//! from there to landing pads.
//!
//! The line of a function's opening is the one that it is declared in; its last line, if nothing stands there
//! but the frame being taken down, is none that runs. Copies of a line in several functions, inlined ones
//! too, add up.
//!
//! A label has no code. Where the source is at hand, its line runs as often as what it leads to.
//!
//! Where edges are not known, a line runs as often as the piece of it that ran most.
//!
//! Source: GCC 12, gcov.cc, `accumulate_line_info` (what a line's count is), profile.cc, `branch_prob`, and
//! tree-cfg.cc, `gimple_flow_call_edges_add` (which lines a block has, and where blocks end).

use crate::counts::{Edge, Exactness, Profile};
use crate::formats::lines::labels::{self, Label};
use crate::losses::Losses;
use crate::vocabulary::{NO_LINE, is_one_line, one_line};
use program::arch::{Decoder, Insn};
use program::{
    BlockEnd, BlockId, Call, CallKind, Callee, Declarations, EdgeKind, Frame, FuncId, Lines, Program,
    Statements, Va,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// What is known of a program's source lines.
#[derive(Default)]
pub(crate) struct LineCounts {
    /// By path.
    pub files: BTreeMap<String, FileCounts>,
    /// How many functions have lines.
    pub n_functions: usize,
    /// Executions of the blocks that have lines.
    pub count: u64,
}

/// What is known of one file's lines.
#[derive(Default)]
pub(crate) struct FileCounts {
    /// By name: the line that the function is declared in, and how often it was called.
    pub functions: BTreeMap<String, (u32, u64)>,
    /// Executions.
    pub lines: BTreeMap<u32, u64>,
    /// For each branch of a line, how often it went each way; nothing if it never ran. The way on comes
    /// first.
    pub branches: BTreeMap<u32, Vec<Vec<Option<u64>>>>,
}

/// A line of a source file: the number of the file in [`Files`], and of the line in it.
type SourceLine = (u32, u32);

/// A stretch of code without a call but at its end.
struct Piece {
    count: Option<u64>,
    /// The lines of its instructions, each once, where it comes first.
    lines: Vec<SourceLine>,
    /// Where control goes from it, and how often.
    next: Vec<(usize, Option<u64>)>,
}

/// How often a line ran.
#[derive(Clone, Copy, Default)]
struct Runs {
    /// By the pieces that belong to it.
    owned: Option<u64>,
    /// By the pieces that it stands in.
    any: u64,
}

impl Runs {
    fn add(&mut self, more: Runs) {
        self.any = self.any.saturating_add(more.any);
        self.owned = match (self.owned, more.owned) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
    }

    fn count(self) -> u64 {
        self.owned.unwrap_or(self.any)
    }
}

impl Piece {
    fn new(count: Option<u64>) -> Piece {
        Piece { count, lines: Vec::new(), next: Vec::new() }
    }

    fn add(&mut self, line: Option<SourceLine>) {
        if let Some(line) = line.filter(|line| !self.lines.contains(line)) {
            self.lines.push(line);
        }
    }
}

impl Piece {
    /// The line that it belongs to: of the file that its code is of last, the highest.
    fn owner(&self) -> Option<SourceLine> {
        let (file, _) = self.lines.last()?;
        self.lines.iter().rev().take_while(|line| line.0 == *file).max().copied()
    }
}

/// The lines of a block's instructions, and of those that fill space behind it.
struct BlockLines {
    /// The line of the function's opening, where control enters it.
    before: Option<SourceLine>,
    own: Vec<Option<SourceLine>>,
    behind: Vec<Option<SourceLine>>,
}

/// Files by number, and what belongs to them.
#[derive(Default)]
struct Files {
    numbers: HashMap<String, u32>,
    all: Vec<(String, FileCounts)>,
    labels: HashMap<u32, Rc<[Label]>>,
}

impl Files {
    fn number(&mut self, path: &str) -> u32 {
        if let Some(n) = self.numbers.get(path) {
            return *n;
        }
        let n = u32::try_from(self.all.len()).expect("no more files than bytes of debug information");
        self.numbers.insert(path.to_owned(), n);
        self.all.push((path.to_owned(), FileCounts::default()));
        n
    }

    fn get(&mut self, n: u32) -> &mut FileCounts {
        &mut self.all[n as usize].1
    }

    /// The labels in file `n`.
    fn labels(&mut self, n: u32) -> Rc<[Label]> {
        let of_file = || labels::of_file(&self.all[n as usize].0).into();
        Rc::clone(self.labels.entry(n).or_insert_with(of_file))
    }
}

impl LineCounts {
    /// The counts of all functions that `profile` has counts of.
    pub fn of(profile: &Profile, program: &Program, lines: &Lines, lost: &mut Losses) -> LineCounts {
        let mut counts = LineCounts::default();
        let mut files = Files::default();
        for (at, n) in profile.blocks.iter().filter(|(at, _)| program.block_from(**at).is_none()) {
            lost.add(&at.to_string(), "the program has no such block", *n);
        }
        let (declared, statements) = (lines.declarations(), lines.statements());
        let mut all_runs: BTreeMap<SourceLine, Runs> = BTreeMap::new();
        let has_flow = !profile.edges.is_empty() && profile.exactness != Exactness::Sampled;
        for func in program.func_ids() {
            let function = program.function(func);
            let name = function.name();
            let ran = |b: BlockId| profile.blocks.get(&program.block(b).start).copied();
            let executions = function.block_ids().filter_map(ran).reduce(u64::saturating_add);
            let Some(executions) = executions else { continue };
            if !is_one_line(&name) {
                lost.add(&one_line(&name), NO_LINE, executions);
                continue;
            }
            let one = OneFunction { profile, program, lines, statements: &statements, func };
            let frame = one.frame();
            let opening = frame.as_ref().and_then(|frame| one.opening(frame, &declared, &mut files));
            let returns_value = frame.is_some_and(|frame| declared.returns_value(&frame));
            let by_block = one.block_lines(opening, returns_value, &mut files);
            let mut has_lines = false;
            for b in function.block_ids() {
                let Some(n) = ran(b) else { continue };
                if by_block[one.index(b)].own.iter().any(Option::is_some) {
                    has_lines = true;
                    counts.count = counts.count.saturating_add(n);
                } else {
                    lost.add(&name, "no source line is known of its code", n);
                }
            }
            if !has_lines {
                continue;
            }
            counts.n_functions += 1;
            let pieces = one.pieces(&by_block);
            let mut run = if has_flow { lines_run(&pieces) } else { most_run(&pieces) };
            one.add_labels(&mut run, &pieces, opening, &mut files);
            for (line, mut ran) in run {
                // The opening of a function that stands in another one's line, as that of a lambda does, adds
                // nothing to it.
                if Some(line) != opening {
                    ran.owned = Some(ran.count());
                }
                all_runs.entry(line).or_default().add(ran);
            }
            for ((file, line), ways) in one.branches(&by_block) {
                files.get(file).branches.entry(line).or_default().push(ways);
            }
            let entered = program.entry_block(func).and_then(ran);
            if let (Some((file, line)), Some(entered)) = (opening, entered) {
                let called = profile.entries.get(&function.entry).copied().unwrap_or(entered);
                let record = files.get(file).functions.entry(name).or_insert((line, 0));
                record.1 = record.1.saturating_add(called);
            }
        }
        for ((file, line), ran) in all_runs {
            files.get(file).lines.insert(line, ran.count());
        }
        counts.files = files.all.into_iter().filter(|(_, f)| !f.lines.is_empty()).collect();
        counts
    }
}

/// A function whose lines are looked at.
struct OneFunction<'a> {
    profile: &'a Profile,
    program: &'a Program,
    lines: &'a Lines,
    statements: &'a Statements,
    func: FuncId,
}

impl OneFunction<'_> {
    fn index(&self, block: BlockId) -> usize {
        (block.0 - self.program.function(self.func).blocks.start) as usize
    }

    fn frame(&self) -> Option<Frame> {
        self.lines.frames(self.program.function(self.func).entry).pop()
    }

    /// Where the function is declared.
    fn opening(&self, frame: &Frame, declared: &Declarations, files: &mut Files) -> Option<SourceLine> {
        let line = declared.line(frame).or(frame.line).filter(|line| *line > 0)?;
        let file = frame.file.as_ref().filter(|file| is_one_line(file))?;
        Some((files.number(file), line))
    }

    fn source_line(&self, insn: &Insn, files: &mut Files) -> Option<SourceLine> {
        let at = self.lines.at(insn.at()).filter(|(file, line)| *line > 0 && is_one_line(file));
        at.map(|(file, line)| (files.number(file), line))
    }

    /// Per block, the lines of its code.
    fn block_lines(
        &self,
        opening: Option<SourceLine>,
        returns_value: bool,
        files: &mut Files,
    ) -> Vec<BlockLines> {
        let (program, function) = (self.program, self.program.function(self.func));
        let mut last = 0;
        // Of those lines, that have code for more than taking the frame down: a jump to the end, at the
        // least, if nothing else.
        let mut stands = HashSet::new();
        let mut all: Vec<BlockLines> = Vec::with_capacity(function.n_blocks());
        // Lines that have code where a statement begins, in each block. What an optimiser has moved among
        // those of other lines says nothing of how often its own ran.
        let begins = |b: BlockId| -> HashSet<SourceLine> {
            let insns = program.insns(b).filter(|insn| self.statements.has(insn.at()));
            insns.filter_map(|insn| self.source_line(&insn, files)).collect()
        };
        let begin: Vec<HashSet<SourceLine>> = function.block_ids().map(begins).collect();
        let begin_anywhere: HashSet<SourceLine> = begin.iter().flatten().copied().collect();
        for b in function.block_ids() {
            let padding = program.padding_behind(b);
            let bytes = program.image.bytes_in(&padding).unwrap_or_default();
            let mut lines = BlockLines { before: None, own: Vec::new(), behind: Vec::new() };
            let insns: Vec<Insn> = program.insns(b).chain(Decoder::new(bytes, padding.start)).collect();
            let raw: Vec<Option<SourceLine>> =
                insns.iter().map(|insn| self.source_line(insn, files)).collect();
            let begins = |insn: &Insn| self.statements.has(insn.at());
            // Per instruction: whether a statement begins among those of its line that stand with it.
            let runs = raw.chunk_by(|a, b| a == b).scan(0, |n, run| {
                let all = insns.get(*n..*n + run.len())?;
                *n += run.len();
                Some(vec![all.iter().any(begins); run.len()])
            });
            let are_begun: Vec<bool> = runs.flatten().collect();
            for ((insn, line), is_begun) in insns.iter().zip(raw).zip(are_begun) {
                let is_moved = |line: &SourceLine| {
                    !is_begun
                        && begin_anywhere.contains(line)
                        && begin[self.index(b)].iter().any(|other| other != line)
                };
                let line = line.filter(|line| !is_moved(line));
                if let Some(line) = line.filter(|line| opening.is_some_and(|o| o.0 == line.0)) {
                    last = last.max(line.1);
                    if !insn.takes_frame_down() {
                        stands.insert(line);
                    }
                }
                if insn.at() < padding.start { &mut lines.own } else { &mut lines.behind }.push(line);
            }
            all.push(lines);
        }
        self.drop_ways_back(&mut all);
        let Some(opening) = opening else { return all };
        let closing = (opening.0, last);
        if closing != opening && (returns_value || !stands.contains(&closing)) {
            for (b, lines) in function.block_ids().zip(&mut all) {
                let n = self.n_cleaning(b, closing, lines);
                let rest = lines.own.iter_mut().skip(n).chain(&mut lines.behind);
                rest.filter(|line| **line == Some(closing)).for_each(|line| *line = None);
            }
        }
        if let Some(entry) = program.entry_block(self.func).filter(|b| function.blocks.contains(&b.0)) {
            let there = &mut all[self.index(entry)];
            there.before = Some(opening);
            // Where the frame is set up, the first instructions are the opening's; else they are of the first
            // statement.
            if program.insns(entry).next().is_some_and(|insn| insn.sets_frame_up()) {
                let first = there.own.first().copied().flatten().filter(|first| first.0 == opening.0);
                let run = there.own.iter().take_while(|line| first.is_some() && **line == first).count();
                there.own.iter_mut().take(run).for_each(|line| *line = Some(opening));
            }
        }
        all
    }

    /// How many of a block's instructions there are up to the last call in the function's last line, of a
    /// destructor as it may be.
    fn n_cleaning(&self, b: BlockId, closing: SourceLine, lines: &BlockLines) -> usize {
        const CHECK: &str = "__stack_chk_fail";
        let program = self.program;
        let is_stack_check = |call: &Call| match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| **name == *CHECK),
            Callee::Function(f) => program.function(f).import.as_deref() == Some(CHECK),
            _ => false,
        };
        let calls = program.calls_in(b).iter().filter(|c| c.kind == CallKind::Call && !is_stack_check(c));
        let calls: Vec<Va> = calls.map(|call| call.at).collect();
        let in_closing = program
            .insns(b)
            .zip(&lines.own)
            .enumerate()
            .filter(|(_, (insn, line))| **line == Some(closing) && calls.contains(&insn.at()));
        in_closing.last().map_or(0, |(n, _)| n + 1)
    }

    /// Takes the line from jumps back to where it starts: they close a loop without a condition, and are
    /// nothing that it says.
    fn drop_ways_back(&self, all: &mut [BlockLines]) {
        let (program, function) = (self.program, self.program.function(self.func));
        for b in function.block_ids().filter(|b| program.block(*b).end == BlockEnd::Jump) {
            let Some(to) = program.successors(b).first().map(|e| e.to).filter(|to| *to <= b) else {
                continue;
            };
            let head = all[self.index(to)].own.first().copied().flatten();
            let own = &mut all[self.index(b)].own;
            let n = own.len();
            if head.is_some()
                && own.last() == Some(&head)
                && n.checked_sub(2).and_then(|n| own.get(n)) != Some(&head)
            {
                own[n - 1] = None;
            }
        }
    }

    /// The pieces of all blocks, with the ways between them.
    fn pieces(&self, lines: &[BlockLines]) -> Vec<Piece> {
        let (program, profile) = (self.program, self.profile);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut first = Vec::with_capacity(lines.len());
        let (mut ways, mut thrown) = (Vec::new(), Vec::new());
        for (b, lines) in program.function(self.func).block_ids().zip(lines) {
            first.push(pieces.len());
            let block = program.block(b);
            let count = profile.blocks.get(&block.start).copied();
            let mut out: Vec<(BlockId, EdgeKind, Option<u64>)> = Vec::new();
            for e in program.successors(b).iter().filter(|e| e.kind != EdgeKind::LandingPad) {
                let edge = Edge { from: block.start, to: program.block(e.to).start };
                let n = profile.edges.get(&edge).copied().or(count.filter(|n| *n == 0));
                // Two edges between the same blocks are one in a profile.
                if out.iter().all(|(to, ..)| *to != e.to) {
                    out.push((e.to, e.kind, n));
                }
            }
            let calls = program.calls_in(b);
            let goes_on = matches!(
                block.end,
                BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch
            ) && calls.iter().all(|c| c.kind == CallKind::Call);
            // What comes back from calls is what goes on.
            let left: Option<u64> = out.iter().map(|(.., n)| *n).sum();
            let calls: Vec<&Call> = calls.iter().filter(|c| c.kind == CallKind::Call).collect();
            let lost = match (count, left) {
                (Some(n), Some(left)) if goes_on => self.lost_by(&calls, n.saturating_sub(left)),
                _ => vec![0; calls.len()],
            };
            // What does not come back is thrown, where something catches it.
            let never_returned = (block.end == BlockEnd::NoReturn).then_some(count).flatten();
            let mut behind = count;
            let mut calls = calls.iter().zip(lost).peekable();
            let mut piece = Piece::new(count);
            piece.add(lines.before);
            let mut insns = program.insns(b).zip(&lines.own).peekable();
            while let Some((insn, line)) = insns.next() {
                piece.add(*line);
                let Some((_, lost)) = calls.next_if(|(call, _)| call.at == insn.at()) else { continue };
                behind = behind.map(|n| n.saturating_sub(lost));
                let lost = never_returned.filter(|_| insns.peek().is_none()).unwrap_or(lost);
                thrown.extend((lost > 0).then_some((pieces.len(), b, lost)));
                // A variable that takes what is returned is part of the call.
                let is_its_own =
                    |(insn, at): &(Insn, &Option<SourceLine>)| *at == line && insn.moves_result();
                insns.next_if(is_its_own);
                if insns.peek().is_some() {
                    piece.next.push((pieces.len() + 1, behind));
                    pieces.push(std::mem::replace(&mut piece, Piece::new(behind)));
                }
            }
            pieces.push(piece);
            let from = pieces.len() - 1;
            // What fills space behind it runs, too, where control falls through.
            let fall = out.iter().find(|(_, kind, _)| *kind == EdgeKind::FallThrough).map(|(.., n)| *n);
            if let Some(n) = fall.filter(|_| lines.behind.iter().any(Option::is_some)) {
                let mut filled = Piece::new(n);
                lines.behind.iter().for_each(|line| filled.add(*line));
                pieces[from].next.push((from + 1, n));
                pieces.push(filled);
            }
            let last = pieces.len() - 1;
            ways.extend(out.into_iter().map(|(to, kind, n)| {
                (if kind == EdgeKind::FallThrough { last } else { from }, self.index(to), n)
            }));
        }
        for (from, to, n) in ways {
            pieces[from].next.push((first[to], n));
        }
        for (from, to, n) in self.caught(thrown) {
            pieces[from].next.push((first[self.index(to)], Some(n)));
        }
        pieces
    }

    /// Where control goes from pieces that end with calls which did not come back so often: landing pads of
    /// their blocks, each as often as nothing else leads there.
    fn caught(&self, thrown: Vec<(usize, BlockId, u64)>) -> Vec<(usize, BlockId, u64)> {
        let (program, profile) = (self.program, self.profile);
        let start = |b: BlockId| program.block(b).start;
        let mut free: HashMap<BlockId, u64> = HashMap::new();
        for b in program.function(self.func).block_ids() {
            for to in program.successors(b).iter().filter(|e| e.kind == EdgeKind::LandingPad).map(|e| e.to) {
                let ran = profile.blocks.get(&start(to)).copied();
                free.entry(to).or_insert(ran.unwrap_or(0));
            }
        }
        for b in program.function(self.func).block_ids() {
            for e in program.successors(b).iter().filter(|e| e.kind != EdgeKind::LandingPad) {
                let n = profile.edges.get(&Edge { from: start(b), to: start(e.to) }).copied();
                free.entry(e.to).and_modify(|free| *free = free.saturating_sub(n.unwrap_or(0)));
            }
        }
        let mut ways = Vec::new();
        for (from, b, mut lost) in thrown {
            for e in program.successors(b).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
                let Some(free) = free.get_mut(&e.to) else { continue };
                let n = lost.min(*free);
                (lost, *free) = (lost - n, *free - n);
                ways.extend((n > 0).then_some((from, e.to, n)));
            }
        }
        ways
    }

    /// How often each of a block's calls did not come back, of `n` times together: those of which it is known
    /// first, then the first of what nothing is known of.
    fn lost_by(&self, calls: &[&Call], n: u64) -> Vec<u64> {
        if n == 0 {
            return vec![0; calls.len()];
        }
        let mut rest = n;
        let known: Vec<Option<u64>> = calls.iter().map(|call| self.not_left(call)).collect();
        let mut lost: Vec<u64> = Vec::with_capacity(calls.len());
        for known in &known {
            let mine = known.unwrap_or(0).min(rest);
            rest -= mine;
            lost.push(mine);
        }
        let first = known.iter().position(Option::is_none).unwrap_or(0);
        lost.get_mut(first).into_iter().for_each(|lost| *lost += rest);
        lost
    }

    /// How often what is called was entered and did not return; `None` if nothing is known of it.
    fn not_left(&self, call: &Call) -> Option<u64> {
        let (program, blocks) = (self.program, &self.profile.blocks);
        let Callee::Function(callee) = call.callee else { return None };
        let entered = blocks.get(&program.block(program.entry_block(callee)?).start)?;
        let leaves = |b: &BlockId| {
            program.block(*b).end == BlockEnd::Return
                || program.calls_in(*b).iter().any(|c| c.kind != CallKind::Call)
        };
        let left = program.function(callee).block_ids().filter(leaves);
        let left = left
            .filter_map(|b| blocks.get(&program.block(b).start))
            .fold(0u64, |sum, n| sum.saturating_add(*n));
        // A stub is left for what it leads to.
        program.function(callee).import.is_none().then(|| entered.saturating_sub(left))
    }

    /// Adds the lines of labels to those that `run`, if the source is there: each ran as often as the first
    /// code behind it.
    fn add_labels(
        &self,
        run: &mut BTreeMap<SourceLine, Runs>,
        pieces: &[Piece],
        opening: Option<SourceLine>,
        files: &mut Files,
    ) {
        let Some((file, first)) = opening else { return };
        let Some((&(_, last), _)) = run.range((file, first)..(file + 1, 0)).next_back() else { return };
        let all = files.labels(file);
        let from = all.partition_point(|label| label.line < first);
        let started = started(pieces);
        for label in all[from..].iter().take_while(|label| label.line < last) {
            let Some((&line, _)) = run.range((file, label.behind.start)..(file, label.behind.end)).next()
            else {
                continue;
            };
            // The end of what stands before it may be part of the same piece.
            let there =
                || pieces.iter().find(|piece| piece.lines.contains(&line)).and_then(|piece| piece.count);
            let n = started.get(&line).copied().filter(|n| *n > 0).or_else(there);
            if let (Some(n), None) = (n, run.get(&(file, label.line))) {
                run.insert((file, label.line), Runs { any: n, owned: None });
            }
        }
    }

    /// Of each branch that has a count: its line, and how often it went each way.
    fn branches(&self, lines: &[BlockLines]) -> Vec<(SourceLine, Vec<Option<u64>>)> {
        let (program, profile) = (self.program, self.profile);
        let mut found = Vec::new();
        for b in program.function(self.func).block_ids() {
            let block = program.block(b);
            let is_branch = matches!(block.end, BlockEnd::Branch | BlockEnd::Switch);
            let Some(line) = lines[self.index(b)].own.last().copied().flatten().filter(|_| is_branch) else {
                continue;
            };
            let Some(&n) = profile.blocks.get(&block.start) else { continue };
            let mut ways: Vec<(EdgeKind, BlockId)> = program
                .successors(b)
                .iter()
                .filter(|e| e.kind != EdgeKind::LandingPad)
                .map(|e| (e.kind, e.to))
                .collect();
            ways.sort_unstable();
            ways.dedup_by_key(|way| way.1);
            let count = |way: &(EdgeKind, BlockId)| {
                let edge = Edge { from: block.start, to: program.block(way.1).start };
                profile.edges.get(&edge).copied().or(Some(0).filter(|_| n == 0))
            };
            let Some(mut counts) = ways.iter().map(count).collect::<Option<Vec<u64>>>() else { continue };
            let leaves = program.calls_in(b).iter().any(|c| c.kind == CallKind::BranchTailCall);
            if leaves {
                let on = counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
                counts.push(n.saturating_sub(on));
            }
            if counts.len() > 1 {
                found.push((line, counts.into_iter().map(|way| Some(way).filter(|_| n > 0)).collect()));
            }
        }
        found
    }
}

/// How often each line ran.
fn lines_run(pieces: &[Piece]) -> BTreeMap<SourceLine, Runs> {
    let mut found: BTreeMap<SourceLine, Runs> = BTreeMap::new();
    let mut owners: BTreeMap<SourceLine, Vec<usize>> = BTreeMap::new();
    for (i, piece) in pieces.iter().enumerate() {
        let Some(n) = piece.count else { continue };
        for line in &piece.lines {
            found.entry(*line).or_default().add(Runs { any: n, owned: None });
        }
        if let Some(owner) = piece.owner() {
            owners.entry(owner).or_default().push(i);
        }
    }
    for (line, mine) in owners {
        found.entry(line).or_default().owned = Some(owned(pieces, &mine));
    }
    found
}

/// How often control comes to where the code of a line starts, from code of others.
fn started(pieces: &[Piece]) -> BTreeMap<SourceLine, u64> {
    let mut found: BTreeMap<SourceLine, u64> = BTreeMap::new();
    for piece in pieces {
        if let (Some(first), Some(n)) = (piece.lines.first(), piece.count) {
            let sum = found.entry(*first).or_insert(0);
            *sum = sum.saturating_add(n);
        }
    }
    for piece in pieces {
        for (to, n) in &piece.next {
            if let Some(first) = pieces[*to].lines.first().filter(|first| piece.lines.contains(first))
                && let Some(sum) = found.get_mut(first)
            {
                *sum = sum.saturating_sub(n.unwrap_or(0));
            }
        }
    }
    found
}

/// The largest count of a piece of each line.
fn most_run(pieces: &[Piece]) -> BTreeMap<SourceLine, Runs> {
    let mut found: BTreeMap<SourceLine, Runs> = BTreeMap::new();
    for (piece, n) in pieces.iter().filter_map(|piece| Some((piece, piece.count?))) {
        for line in &piece.lines {
            let most = found.entry(*line).or_default();
            most.any = most.any.max(n);
        }
    }
    found
}

/// How often control comes to the pieces `mine`, in ascending order, from others, and goes round among them.
fn owned(pieces: &[Piece], mine: &[usize]) -> u64 {
    let count = |i: usize| pieces[i].count.unwrap_or(0);
    let most = mine.iter().map(|&i| count(i)).max().unwrap_or(0);
    let rank = |i: usize| mine.binary_search(&i).ok();
    let mut inside: Vec<Vec<(usize, u64)>> = vec![Vec::new(); mine.len()];
    let (mut all, mut from_inside) = (0u64, 0u64);
    for (at, &i) in mine.iter().enumerate() {
        all = all.saturating_add(count(i));
        for (to, n) in &pieces[i].next {
            if let Some(to) = rank(*to) {
                let Some(n) = n else { return most };
                from_inside = from_inside.saturating_add(*n);
                inside[at].push((to, *n));
            }
        }
    }
    all.saturating_sub(from_inside).saturating_add(rounds(inside))
}

/// How many steps are made in search of rounds, at most: real lines need a few hundred.
const MOST_STEPS: usize = 1 << 22;

/// How many times flow goes round in a graph, given by the flow of each edge: elementary cycles, taken out
/// one by one.
fn rounds(mut flows: Vec<Vec<(usize, u64)>>) -> u64 {
    let mut sum = 0u64;
    let mut steps = 0;
    for start in 0..flows.len() {
        // A node that led back nowhere will not when less flows.
        let mut is_dead = vec![false; flows.len()];
        while let Some(cycle) = cycle(&flows, start, &mut is_dead, &mut steps) {
            let least = cycle.iter().map(|&(node, k)| flows[node][k].1).min().unwrap_or(0);
            cycle.iter().for_each(|&(node, k)| flows[node][k].1 -= least);
            sum = sum.saturating_add(least);
            is_dead.fill(false);
        }
        if steps > MOST_STEPS {
            break;
        }
    }
    sum
}

/// A way from `start` back to it along which flow goes, over nodes that are not before it: each node with the
/// number of its edge.
fn cycle(
    flows: &[Vec<(usize, u64)>],
    start: usize,
    is_dead: &mut [bool],
    steps: &mut usize,
) -> Option<Vec<(usize, usize)>> {
    let mut way: Vec<(usize, usize)> = vec![(start, 0)];
    let mut is_on_way = vec![false; flows.len()];
    is_on_way[start] = true;
    while let Some((node, k)) = way.last_mut() {
        *steps += 1;
        if *steps > MOST_STEPS {
            return None;
        }
        let Some(&(to, n)) = flows[*node].get(*k) else {
            is_on_way[*node] = false;
            is_dead[*node] = true;
            way.pop();
            if let Some((_, k)) = way.last_mut() {
                *k += 1;
            }
            continue;
        };
        if n > 0 && to == start {
            return Some(way);
        }
        if n == 0 || to < start || is_dead[to] || is_on_way[to] {
            *k += 1;
            continue;
        }
        is_on_way[to] = true;
        way.push((to, 0));
    }
    None
}

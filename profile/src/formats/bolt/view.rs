//! How llvm-bolt sees a program: what it calls the functions, and where it cuts them into blocks.
//!
//! fdata speaks llvm-bolt's language, and one record that it cannot place makes it throw away the whole
//! function. So records are checked against its view, which differs from ours: it takes functions from
//! symbols, a `.cold` part is a function of its own, it does not know which calls return, and a `jmp` behind
//! a conditional branch belongs to the branch's block.
//!
//! Source: LLVM 19, `bolt/lib/Rewrite/RewriteInstance.cpp` (discoverFileObjects: names) and
//! `bolt/lib/Core/BinaryFunction.cpp` (buildCFG: blocks); the behaviour, checked against llvm-bolt 19.1.7.

use program::arch::{ControlFlow, Decoder};
use program::image::{Symbol, SymbolKind};
use program::{EdgeKind, Program, Va};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A function of llvm-bolt's.
#[derive(Debug)]
pub(crate) struct BoltFunction {
    pub start: Va,
    pub end: Va,
    /// The name that it accepts for all records of this function.
    pub name: String,
    /// A stub, which has no blocks for it.
    pub stub: bool,
    blocks: OnceCell<BoltBlocks>,
}

/// Names and blocks of a program as llvm-bolt has them.
pub(crate) struct BoltView<'p> {
    program: &'p Program,
    /// Functions by their start.
    pub functions: Vec<BoltFunction>,
    by_name: HashMap<String, Va>,
    /// Local names without their number, where only one function has it.
    bare: HashMap<String, Option<Va>>,
    /// Addresses inside functions that llvm-bolt takes for entries.
    inner_entries: BTreeSet<Va>,
}

impl<'p> BoltView<'p> {
    pub fn of(program: &'p Program) -> BoltView<'p> {
        let mut view = BoltView {
            program,
            functions: Vec::new(),
            by_name: HashMap::new(),
            bare: HashMap::new(),
            inner_entries: BTreeSet::new(),
        };
        let named = view.name_symbols();
        view.find_functions(&named);
        view.name_stubs();
        view.find_inner_entries();
        view
    }

    /// The name of each symbol, in llvm-bolt's order: by address, functions first, then as in the table.
    ///
    /// A global keeps its name; a local is numbered per name, and once more per name and source file.
    fn name_symbols(&mut self) -> Vec<(&'p Symbol, String)> {
        let mut file: &str = "";
        let mut symbols: Vec<(&Symbol, &str)> = Vec::new();
        for s in self.program.image.symbols.iter().filter(|s| !s.dynamic) {
            match s.kind {
                // LTO's artificial file symbol comes and goes: llvm-bolt overlooks it.
                SymbolKind::File if &*s.name != "ld-temp.o" => file = &s.name,
                SymbolKind::File => {}
                _ if s.at == Va(0) || matches!(&*s.name, "" | "__hot_start" | "__hot_end") => {}
                _ => symbols.push((s, if s.local { file } else { "" })),
            }
        }
        symbols.sort_by_key(|(s, _)| (s.at, !is_function(s.kind)));
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut unique = |name: &str| {
            let n = numbers.entry(name.to_owned()).or_insert(0);
            *n += 1;
            format!("{name}/{n}")
        };
        let mut named = Vec::new();
        for (s, file) in symbols {
            let global = if s.name.starts_with(".L") { format!("PG{}", s.name) } else { s.name.to_string() };
            if s.local {
                let name = unique(&global);
                self.bare
                    .entry(global.clone())
                    .and_modify(|at| *at = at.filter(|&a| a == s.at))
                    .or_insert(Some(s.at));
                if is_function(s.kind) && !file.is_empty() {
                    let longer = unique(&format!("{global}/{file}"));
                    self.by_name.insert(longer, s.at);
                }
                self.by_name.insert(name.clone(), s.at);
                named.push((s, name));
            } else {
                self.by_name.insert(global.clone(), s.at);
                named.push((s, global));
            }
        }
        named
    }

    /// Functions start at function symbols, and at untyped ones in code that lies outside of any function.
    fn find_functions(&mut self, named: &[(&Symbol, String)]) {
        let image = &self.program.image;
        // Start, declared end (0 if not declared), name.
        let mut found: Vec<(Va, Va, String)> = Vec::new();
        for (s, name) in named.iter().filter(|(s, _)| image.is_code(s.at)) {
            let inside = found.last().is_some_and(|(start, end, _)| *start < s.at && s.at < *end);
            match found.last_mut() {
                Some((start, end, _)) if *start == s.at => *end = (*end).max(s.at.plus(s.len)),
                _ if inside && (s.len == 0 || !is_function(s.kind)) => {
                    self.inner_entries.insert(s.at);
                }
                _ if is_function(s.kind) || s.kind == SymbolKind::Untyped => {
                    found.push((s.at, s.at.plus(s.len), name.clone()));
                }
                _ => {}
            }
        }
        // Code that only the unwind table knows: a range that starts in no function found before.
        let mut by_unwind_alone: Vec<(Va, Va, String)> = Vec::new();
        for u in &image.unwind {
            let i = found.partition_point(|(start, ..)| *start <= u.range.start);
            let preceding = i.checked_sub(1).and_then(|i| found.get(i));
            let before = preceding.into_iter().chain(by_unwind_alone.last()).max_by_key(|f| f.0);
            let known = before.is_some_and(|(s, e, _)| *s == u.range.start || u.range.start < *e);
            let stub = image.section_at(u.range.start).is_none_or(|s| s.name.starts_with(".plt"));
            if !known && !stub && image.is_code(u.range.start) {
                let name = format!("__BOLT_FDE_FUNCat{:x}", u.range.start.0);
                self.by_name.insert(name.clone(), u.range.start);
                by_unwind_alone.push((u.range.start, u.range.end, name));
            }
        }
        found.append(&mut by_unwind_alone);
        found.sort_by_key(|f| f.0);
        let limits: Vec<Va> = found.iter().map(|f| f.0).collect();
        for (i, (start, end, name)) in found.into_iter().enumerate() {
            let section = image.section_at(start).map_or(Va(u64::MAX), |s| s.range.end);
            let limit = limits.get(i + 1).copied().unwrap_or(section).min(section);
            let end = if end == start { limit } else { end.min(limit) };
            self.functions.push(BoltFunction { start, end, name, stub: false, blocks: OnceCell::new() });
        }
    }

    /// PLT stubs are called after their import.
    fn name_stubs(&mut self) {
        let mut stubs: BTreeMap<Va, (Va, String)> = BTreeMap::new();
        for s in &self.program.image.plt {
            if let Some(import) = &s.import {
                stubs.insert(s.range.start, (s.range.end, format!("{import}@PLT")));
            }
        }
        for f in &self.program.functions {
            if let Some(import) = &f.import {
                let end = f.ranges.first().map_or(f.entry, |r| r.end);
                stubs.entry(f.entry).or_insert((end, format!("{import}@PLT")));
            }
        }
        let mut unknown = Vec::new();
        for (start, (end, name)) in stubs {
            self.by_name.entry(name.clone()).or_insert(start);
            if self.functions.binary_search_by_key(&start, |f| f.start).is_err() {
                unknown.push(BoltFunction { start, end, name, stub: true, blocks: OnceCell::new() });
            }
        }
        self.functions.append(&mut unknown);
        self.functions.sort_by_key(|f| f.start);
    }

    /// Where functions are entered in their middle: what it calls a secondary entry. Our functions' parts are
    /// functions to it, so that a jump from one part into another is such an entry.
    fn find_inner_entries(&mut self) {
        let program = self.program;
        let mut found = Vec::new();
        for f in &program.functions {
            found.push(f.entry);
            found.extend(f.entries.iter().map(|&b| program.block(b).start));
            let mut from: Option<&BoltFunction> = None;
            for id in f.block_ids() {
                let last = program.block(id).last_insn();
                from = from.filter(|f| f.start <= last && last < f.end).or_else(|| self.function_at(last));
                for edge in program.successors(id) {
                    let to = program.block(edge.to).start;
                    let within = from.is_some_and(|f| f.start <= to && to < f.end);
                    if matches!(edge.kind, EdgeKind::Jump | EdgeKind::Taken) && !within {
                        found.push(to);
                    }
                }
            }
        }
        self.inner_entries.extend(found);
    }

    /// The address that a name in a profile stands for.
    pub fn address_of(&self, name: &str) -> Option<Va> {
        self.by_name.get(name).copied().or_else(|| self.bare.get(name).copied().flatten())
    }

    /// The function that holds `at`.
    pub fn function_at(&self, at: Va) -> Option<&BoltFunction> {
        let i = self.functions.partition_point(|f| f.start <= at);
        self.functions.get(i.checked_sub(1)?).filter(|f| at < f.end)
    }

    /// The blocks of `function`.
    pub fn blocks<'f>(&self, function: &'f BoltFunction) -> &'f BoltBlocks {
        function.blocks.get_or_init(|| BoltBlocks::of(self.program, function, &self.inner_entries))
    }
}

fn is_function(kind: SymbolKind) -> bool {
    matches!(kind, SymbolKind::Function | SymbolKind::IndirectFunction)
}

/// An instruction, as far as blocks need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoltInsn {
    pub at: Va,
    pub flow: ControlFlow,
    pub nop: bool,
    /// Whether it starts with `lock`, `rep` or `repne`, or with the same byte as part of the opcode.
    prefixed: bool,
}

/// Where a function is cut.
#[derive(Debug)]
pub(crate) struct BoltBlocks {
    insns: Vec<BoltInsn>,
    /// Starts of blocks.
    leaders: BTreeSet<Va>,
    /// Where indirect jumps lead, by the jump.
    tables: BTreeSet<(Va, Va)>,
}

impl BoltBlocks {
    fn of(program: &Program, function: &BoltFunction, inner_entries: &BTreeSet<Va>) -> BoltBlocks {
        let range = function.start..function.end;
        let bytes = program.image.bytes_in(&range).unwrap_or_default();
        let mut insns = Vec::new();
        for insn in Decoder::new(bytes, function.start) {
            let mut flow = insn.flow();
            // Only `ud2` ends a block: it takes `hlt` and `int3` for ordinary instructions.
            let len = u64::try_from(insn.len_bytes()).expect("instructions are short");
            let raw = program.image.bytes_in(&(insn.at()..insn.at().plus(len)));
            if flow == ControlFlow::Stop && !matches!(raw, Some([0x0f, 0x0b])) {
                flow = ControlFlow::Next;
            }
            let prefixed = raw.is_some_and(|raw| matches!(raw, [0xf0 | 0xf2 | 0xf3, ..]));
            insns.push(BoltInsn { at: insn.at(), flow, nop: insn.is_nop(), prefixed });
        }
        let mut labels: BTreeSet<Va> = BTreeSet::from([function.start]);
        labels.extend(inner_entries.range(range.clone()));
        for insn in &insns {
            if let ControlFlow::Jump(to) | ControlFlow::Branch(to) = insn.flow
                && range.contains(&to)
            {
                labels.insert(to);
            }
        }
        let mut tables = BTreeSet::new();
        for &id in program.blocks_in(&range) {
            let block = program.block(id);
            if block.landing_pad {
                labels.insert(block.start);
            }
            for edge in program.successors(id).iter().filter(|e| e.kind == EdgeKind::Table) {
                let to = program.block(edge.to).start;
                tables.insert((block.last_insn(), to));
                if range.contains(&to) {
                    labels.insert(to);
                }
            }
        }
        let leaders = cut(&insns, &labels, &range);
        BoltBlocks { insns, leaders, tables }
    }

    /// Whether a block starts at `at`.
    pub fn is_leader(&self, at: Va) -> bool {
        self.leaders.contains(&at)
    }

    /// Starts of blocks, in order.
    pub fn leaders(&self) -> impl Iterator<Item = Va> {
        self.leaders.iter().copied()
    }

    /// How many instructions the block that starts at `leader` has, at least and at most: it takes some
    /// prefixes for instructions.
    pub fn n_insns(&self, leader: Va) -> std::ops::RangeInclusive<u64> {
        let insns = self.insns_of(leader);
        let n = insns.len() as u64;
        n..=n + insns.iter().filter(|i| i.prefixed).count() as u64
    }

    /// The instruction by which the block that starts at `leader` goes to the block at `to`.
    pub fn exit_to(&self, leader: Va, to: Va) -> Option<Va> {
        let leads = |i: &&BoltInsn| match i.flow {
            ControlFlow::Jump(t) | ControlFlow::Branch(t) => t == to,
            ControlFlow::JumpIndirect => self.tables.contains(&(i.at, to)),
            _ => false,
        };
        let jumps = self.insns_of(leader).iter().find(leads).map(|i| i.at);
        jumps.or_else(|| self.leaves_at(leader).filter(|&at| self.has_edge(at, to)))
    }

    /// Start of the block that holds `at`.
    pub fn leader_of(&self, at: Va) -> Option<Va> {
        self.leaders.range(..=at).next_back().copied()
    }

    /// The instruction at exactly `at`.
    pub fn insn(&self, at: Va) -> Option<&BoltInsn> {
        self.insns.binary_search_by_key(&at, |i| i.at).ok().map(|i| &self.insns[i])
    }

    /// The instructions of the block that starts at `leader`.
    pub fn insns_of(&self, leader: Va) -> &[BoltInsn] {
        let from = self.insns.partition_point(|i| i.at < leader);
        let end = self.next_leader(leader).unwrap_or(Va(u64::MAX));
        let to = self.insns.partition_point(|i| i.at < end);
        &self.insns[from..to]
    }

    fn next_leader(&self, leader: Va) -> Option<Va> {
        self.leaders.range(leader.plus(1)..).next().copied()
    }

    /// Which address a record for leaving the block that starts at `leader` has: the last instruction that is
    /// no padding.
    pub fn leaves_at(&self, leader: Va) -> Option<Va> {
        let insns = self.insns_of(leader);
        insns.iter().rev().find(|i| !i.nop).or(insns.last()).map(|i| i.at)
    }

    /// Starts of the blocks that control falls through from the block of instruction `from` to the one at
    /// `to`, if those in between are nothing but padding: the ends included.
    pub fn over_padding(&self, from: Va, to: Va) -> Option<Vec<Va>> {
        let mut path = vec![self.leader_of(from)?];
        loop {
            let last = *path.last()?;
            let leader = self.next_leader(last).filter(|&l| l <= to)?;
            if !self.has_edge(self.leaves_at(last)?, leader) {
                return None;
            }
            path.push(leader);
            if leader == to {
                return Some(path);
            }
            if !self.insns_of(leader).iter().all(|i| i.nop) {
                return None;
            }
        }
    }

    /// Whether the block that holds the instruction `from` has an edge to the block at `to`.
    pub fn has_edge(&self, from: Va, to: Va) -> bool {
        let Some(leader) = self.leader_of(from) else { return false };
        let insns = self.insns_of(leader);
        for insn in insns {
            match insn.flow {
                ControlFlow::Jump(t) | ControlFlow::Branch(t) if t == to => return true,
                ControlFlow::JumpIndirect if self.tables.contains(&(insn.at, to)) => return true,
                _ => {}
            }
        }
        let falls =
            insns.iter().rev().find(|i| !i.nop).or(insns.last()).is_some_and(|i| i.flow.falls_through());
        falls && self.next_leader(leader) == Some(to)
    }
}

/// Starts of blocks: labels, and what follows a terminator, except an unconditional `jmp` behind a branch.
fn cut(insns: &[BoltInsn], labels: &BTreeSet<Va>, range: &std::ops::Range<Va>) -> BTreeSet<Va> {
    let mut leaders = BTreeSet::new();
    // The terminator before this instruction, if the one before it is one.
    let mut ended: Option<ControlFlow> = None;
    for insn in insns {
        if labels.contains(&insn.at) {
            leaders.insert(insn.at);
        } else if let Some(before) = ended {
            let inside = |to: Va| range.contains(&to);
            let joined = matches!(before, ControlFlow::Branch(t) if inside(t))
                && matches!(insn.flow, ControlFlow::Jump(t) if inside(t));
            if !joined {
                leaders.insert(insn.at);
            }
        }
        ended = insn.flow.ends_block().then_some(insn.flow);
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assemble, function};

    /// What a cold part jumps back to is a secondary entry to llvm-bolt, where a block starts; nothing else
    /// of the function leads there.
    #[test]
    fn a_jump_back_from_a_cold_part_starts_a_block_of_llvm_bolts() {
        let source = r#"
.globl f, main
.type f, @function
f: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
test %edi, %edi
js f.cold
add $1, %edi
back: add $2, %edi
mov %edi, %eax
pop %rbx
ret
.cfi_endproc
.size f, .-f
.type main, @function
main: .cfi_startproc
call f
ret
.cfi_endproc
.size main, .-main
.section .text.unlikely
.type f.cold, @function
f.cold: .cfi_startproc
.cfi_def_cfa_offset 16
neg %edi
jmp back
.cfi_endproc
.size f.cold, .-f.cold
.section .note.GNU-stack
"#;
        let program = assemble(source);
        let at = |name: &str| program.image.symbols.iter().find(|s| &*s.name == name).expect("a symbol").at;
        let f = program.function(function(&program, "f"));
        assert!(f.entries.is_empty() && f.n_blocks() == 4, "{f:?}");
        let view = BoltView::of(&program);
        let theirs = view.function_at(at("f")).expect("it is a function");
        assert!(view.blocks(theirs).is_leader(at("back")));
        assert_eq!(view.function_at(at("f.cold")).map(|f| &*f.name), Some("f.cold/1"));
    }
}

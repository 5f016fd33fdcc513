//! Random programs that are walked through here, with what they do and the events that they append written
//! down side by side.

use super::*;
use crate::balance::Balance;
use crate::decode::region::{Costs, Passages, thin};
use crate::ids::{BlockId, FuncId};
use crate::recording::event::{
    ENDED, ENTRY, FROM_ANYWHERE, GAP, HANDLER, HAS_FRAME, IN_CALL, NO_PLACE, PAUSE, REDIRECTED, START,
};
use crate::recording::module_code::{Function, ModuleCode, Site};
use crate::recording::sample::{Sample, Weights};
use crate::symbol::Step;
use proptest::prelude::*;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).expect("31 bits") % n.max(1)
    }
}

/// What the points of a module are called from.
const BASE: u32 = 1000;

/// Functions that call only later ones for sure; block 0 is the entry; a block that something far may lead to
/// is the last one. Points that are not needed, as `thin` says, are left out.
fn program(rng: &mut Rng) -> ModuleCode {
    let n_functions = 2 + rng.below(5);
    let mut code = ModuleCode { base: BASE, ..ModuleCode::default() };
    code.entries = (0..n_functions).map(|f| (f, BlockId(0))).collect();
    let mut passages = Passages::default();
    for func in (0..n_functions).rev() {
        let n = 1 + rng.below(6);
        let mut blocks = vec![Block::default(); n as usize];
        let mut starts = vec![false; n as usize];
        for b in 0..n {
            let mut calls = Vec::new();
            for _ in 0..rng.below(3) {
                let is_sure = func + 1 < n_functions && rng.below(3) > 0;
                let entry = is_sure.then(|| func + 1 + rng.below(n_functions - func - 1));
                let is_plain = entry.map_or(rng.below(3) == 0, |entry| passages.is_plain(entry));
                let told = if is_plain { SiteTold::Nothing } else { SiteTold::Event };
                calls.push(Site { entry, point: u32::from(!is_sure && !is_plain), told, ..Site::default() });
            }
            let end = match rng.below(6) {
                0 => End::Return,
                _ => {
                    let to: std::collections::BTreeSet<u32> =
                        (0..=rng.below(3)).map(|_| rng.below(n)).collect();
                    // Of several ways, each has a point: on it, or where it leads.
                    let several = to.len() > 1;
                    let mut way = |to: u32| {
                        let is_on_way = several && to > b && rng.below(2) == 0;
                        starts[to as usize] |= !is_on_way && (several || to <= b);
                        (BlockId(to), u32::from(is_on_way))
                    };
                    End::To(to.into_iter().map(&mut way).collect())
                }
            };
            let at = u64::from(100 * func + b);
            blocks[b as usize] = Block { at, calls, end, ..Block::default() };
        }
        let has_far = n > 1 && rng.below(2) == 0;
        starts[n as usize - 1] |= has_far;
        // Where it starts with a point, none is needed on the ways there.
        for block in &mut blocks {
            if let End::To(ways) = &mut block.end {
                ways.iter_mut().filter(|way| starts[way.0.index()]).for_each(|way| way.1 = 0);
            }
        }
        blocks.iter_mut().zip(&starts).for_each(|(block, has)| block.point = u32::from(*has));
        (blocks[n as usize - 1].lands, blocks[n as usize - 1].is_far) = (has_far, has_far);
        let mut entered = vec![false; n as usize];
        (entered[0], entered[n as usize - 1]) = (true, n == 1 || has_far);
        let mut cost = || rng.below(1000) as f32;
        let last = n as usize - 1;
        let starts = (0..n as usize).map(|b| (!has_far || b != last).then(&mut cost)).collect();
        let ways = blocks.iter().map(|b| b.ways().map(|_| 0.5).collect()).collect();
        let mut of_call = |site: &Site| {
            (site.told == SiteTold::Event && site.entry.is_some() && site.point == 0).then(&mut cost)
        };
        let calls = blocks.iter().map(|b| b.calls.iter().map(&mut of_call).collect()).collect();
        let mut n_points = 0;
        for block in &mut blocks {
            let Block { point, calls, end, .. } = block;
            let ways = if let End::To(ways) = end { ways.as_mut_slice() } else { &mut [] };
            let slots =
                calls.iter_mut().map(|site| &mut site.point).chain(ways.iter_mut().map(|way| &mut way.1));
            for slot in slots.chain([point]).filter(|slot| **slot != 0) {
                n_points += 1;
                *slot = n_points;
            }
        }
        if rng.below(8) > 0 {
            thin(&mut blocks, &entered, &Costs { starts, ways, calls, always: rng.below(2) == 0 }, &passages);
        }
        passages.add(func, &blocks, &entered, has_far, &[(func, BlockId(0))]);
        for (b, block) in (0..n).map(BlockId).zip(&mut blocks) {
            let mut number =
                |slot: &mut u32, of: PointPlace| *slot = if *slot == 0 { 0 } else { point(&mut code, of) };
            number(&mut block.point, PointPlace::Start(func, b));
            for (k, site) in (0..).zip(&mut block.calls) {
                number(&mut site.point, PointPlace::Behind(func, b, k));
            }
            if let End::To(ways) = &mut block.end {
                ways.iter_mut().for_each(|way| number(&mut way.1, PointPlace::Way(func, b, way.0)));
            }
        }
        code.functions.insert(0, Function { blocks, ..Function::default() });
    }
    code
}

fn point(code: &mut ModuleCode, point: PointPlace) -> u32 {
    code.points.push(point);
    u32::try_from(code.points.len()).expect("few")
}

/// Walks through a program: what it does, and what it appends.
struct Walk<'a> {
    code: &'a ModuleCode,
    rng: &'a mut Rng,
    symbols: Vec<u32>,
    words: Vec<u32>,
    open: Vec<u32>,
    n_left: u32,
    /// How many symbols there were when the last event was appended.
    told: usize,
}

/// The run ends here.
enum Over {
    /// In a call of something that is not recorded.
    InCall,
    /// Anywhere.
    Anywhere,
}

impl Walk<'_> {
    fn block(&self, func: u32, block: u32) -> &Block {
        &self.code.functions[func as usize].blocks[block as usize]
    }

    fn frame(depth: usize) -> u32 {
        0x7000_0000_u32.wrapping_sub(100 * u32::try_from(depth).expect("few"))
    }

    /// Where something far may lead to in it.
    fn far(&self, func: u32) -> Option<u32> {
        let last = u32::try_from(self.code.functions[func as usize].blocks.len()).expect("few") - 1;
        self.block(func, last).lands.then_some(last)
    }

    fn any(&mut self, n: usize) -> usize {
        self.rng.below(u32::try_from(n).expect("few")) as usize
    }

    fn append(&mut self, words: &[u32]) -> Result<(), Over> {
        self.n_left = self.n_left.checked_sub(1).ok_or(Over::Anywhere)?;
        self.words.extend(words);
        self.told = self.symbols.len();
        Ok(())
    }

    /// The activation that control goes to, if this is not left by a return: it, or one below.
    fn call(&mut self, func: u32, told: SiteTold) -> Result<Option<usize>, Over> {
        let depth = self.open.len();
        match self.far(func) {
            None if told != SiteTold::Event => {}
            Some(_) => self.append(&[ENTRY | HAS_FRAME | (BASE + func), Self::frame(depth)])?,
            None => self.append(&[ENTRY | (BASE + func)])?,
        }
        self.open.push(func);
        self.symbols.push(Symbol::enter(FuncId(func)).0);
        let mut block = 0;
        'blocks: loop {
            let b = self.block(func, block).clone();
            match b.point {
                0 => {}
                n if b.lands => {
                    self.append(&[FROM_ANYWHERE | (BASE + n), Self::frame(depth).wrapping_sub(50)])?
                }
                n => self.append(&[BASE + n])?,
            }
            self.symbols.push(Symbol::block(BlockId(block)).0);
            for site in &b.calls {
                if site.told == SiteTold::Nothing && site.entry.is_none() {
                    continue;
                }
                if site.entry.is_none() && self.n_left < 100 {
                    return Err(Over::InCall);
                }
                let times = if site.entry.is_some() { 1 } else { self.any(3) };
                for _ in 0..times {
                    let any = u32::try_from(self.any(self.code.functions.len())).expect("few");
                    if let Some(to) = self.call(site.entry.unwrap_or(any), site.told)? {
                        if to < depth {
                            return Ok(Some(self.leave(to)));
                        }
                        block = self.far(func).expect("it has one");
                        continue 'blocks;
                    }
                }
                // What is not recorded throws.
                let far: Vec<usize> = (0..=depth).filter(|d| self.far(self.open[*d]).is_some()).collect();
                if site.entry.is_none() && !far.is_empty() && self.any(6) == 0 {
                    let to = far[self.any(far.len())];
                    if to < depth {
                        return Ok(Some(self.leave(to)));
                    }
                    block = self.far(func).expect("it has one");
                    continue 'blocks;
                }
                if site.point != 0 {
                    self.append(&[BASE + site.point])?;
                }
            }
            match &b.end {
                End::To(ways) => {
                    let (to, point) = ways[self.any(ways.len())];
                    if point != 0 {
                        self.append(&[BASE + point])?;
                    }
                    block = to.0;
                }
                _ => break,
            }
        }
        self.leave(depth);
        Ok(None)
    }

    /// The function on top is left.
    fn leave(&mut self, to: usize) -> usize {
        self.open.pop();
        self.symbols.push(Symbol::EXIT.0);
        to
    }
}

/// The words with some that were not used between events: not between an event and its frame.
fn with_room(rng: &mut Rng, words: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    let mut rest = words;
    while let Some((&word, behind)) = rest.split_first() {
        (0..rng.below(3)).for_each(|_| out.push(0));
        let has_frame =
            word & ENTRY != 0 && word & HAS_FRAME != 0 || word & (ENTRY | FROM_ANYWHERE) == FROM_ANYWHERE;
        let (event, behind) = if has_frame { rest.split_at(2) } else { (&rest[..1], behind) };
        out.extend(event);
        rest = behind;
    }
    (0..rng.below(3)).for_each(|_| out.push(0));
    out
}

/// The blocks that were executed, in order, each with its function.
fn executed(symbols: &[u32]) -> Vec<(FuncId, BlockId)> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for &code in symbols {
        match Symbol(code).step() {
            Step::Enter(func) => open.push(func),
            Step::Exit => drop(open.pop()),
            Step::Block(block) => all.push((*open.last().expect("it is balanced"), block)),
        }
    }
    all
}

/// Of a run that is told from the events on that end at symbols `behind`: the blocks of which the telling is
/// sure. When a function is left of which nothing told before, it is not known who called it until the next
/// event: what is behind the last such place is the same.
fn told_for_sure(all: &[u32], behind: &[usize]) -> Vec<(FuncId, BlockId)> {
    let (mut open, mut n_known, mut sure) = (Vec::new(), 0, Vec::new());
    for (i, &code) in all.iter().enumerate() {
        if behind.contains(&i) {
            n_known = n_known.max(1);
        }
        match Symbol(code).step() {
            Step::Enter(func) => {
                open.push(func);
                n_known += usize::from(n_known > 0);
            }
            Step::Exit => {
                open.pop();
                n_known = n_known.saturating_sub(1);
            }
            Step::Block(block) => sure.push((*open.last().expect("it is balanced"), block)),
        }
        if n_known == 0 {
            sure.clear();
        }
    }
    sure
}

fn plain(symbols: &[u32]) -> Vec<u32> {
    symbols.iter().map(|code| Symbol(*code).plain().0).collect()
}

/// What these words tell, as a plain file has it; in whatever pieces they come.
fn decoded(codes: &ModuleCodes, words: &[u32]) -> Vec<u32> {
    let decoded_in = |piece: usize| {
        let (mut decoder, mut got) = (Decoder::new(codes), Vec::new());
        words.chunks(piece).for_each(|words| decoder.push(words, &mut got));
        assert_eq!(decoder.faults.n_lost, 0);
        plain(&got)
    };
    let got = decoded_in(words.len());
    (1..words.len()).for_each(|piece| assert_eq!(decoded_in(piece), got, "in pieces of {piece}"));
    got
}

/// A signal's place may be a block whose event is still to come, or where a trap would go on; in a function
/// that nothing told of.
#[test]
fn a_signal_comes_before_the_event_of_its_place() {
    let block = |point, end| Block { point, end, ..Block::default() };
    let site = Site { entry: Some(1), told: SiteTold::Inside, ..Site::default() };
    let caller = vec![Block { calls: vec![site], end: End::Return, ..Block::default() }];
    // 0 → 1 or 2; 2 traps, and 3 is behind it.
    let to = |ways: &[(u32, u32)]| End::To(ways.iter().map(|(to, point)| (BlockId(*to), *point)).collect());
    let callee = vec![
        block(0, to(&[(1, 0), (2, 0)])),
        block(1, to(&[(4, 0)])),
        block(0, End::Stop),
        block(2, to(&[(4, 0)])),
        block(0, End::Return),
    ];
    let handler = vec![block(0, End::Return)];
    let functions = [caller, callee, handler].map(|blocks| Function { blocks, ..Function::default() });
    let code = ModuleCode {
        key: 7,
        base: BASE,
        functions: functions.into(),
        entries: vec![(0, BlockId(0)), (1, BlockId(0)), (2, BlockId(0))],
        points: vec![PointPlace::Start(1, BlockId(1)), PointPlace::Start(1, BlockId(3))],
        places: vec![(20, Some((1, BlockId(1)))), (30, Some((1, BlockId(3))))],
        ..ModuleCode::default()
    };
    let codes = ModuleCodes::new(vec![code]);
    let decoded = |words: &[u32]| decoded(&codes, words);
    let [f, b] = [|n| Symbol::enter(FuncId(n)).0, |n| Symbol::block(BlockId(n)).0];
    let (entry, handler) = ([ENTRY | BASE], ENTRY | (BASE + 2));
    let way = [f(0), b(0), f(1), b(0)];
    let runs = decoded(&[&entry[..], &[HANDLER, 7, 20, handler, BASE + 1]].concat());
    assert_eq!(runs, [&way[..], &[f(2), b(0), Symbol::EXIT.0, b(1)]].concat());
    let trap = decoded(&[&entry[..], &[HANDLER, 7, 30, handler, BASE + 2]].concat());
    assert_eq!(trap, [&way[..], &[b(2), f(2), b(0), Symbol::EXIT.0, b(3)]].concat());
}

/// A signal came in what nothing records, and the call that is said to have led there is one that was over:
/// then what was entered last went to its end. Behind the call that control was in, nothing above it is open:
/// whose it is is told by where it may come from.
#[test]
fn a_place_that_nothing_leads_to_is_none() {
    let block = |point, end| Block { point, end, ..Block::default() };
    let site = Site { point: 1, ..Site::default() };
    let to = |ways: &[(u32, u32)]| End::To(ways.iter().map(|(to, point)| (BlockId(*to), *point)).collect());
    // 0 → 1, where it calls what is not recorded, or 2, which it leaves for good.
    let caller = vec![
        block(0, to(&[(1, 0), (2, 0)])),
        Block { point: 2, calls: vec![site], end: End::Return, ..Block::default() },
        block(3, End::Stop),
    ];
    let called = vec![block(0, to(&[(1, 0), (2, 0)])), block(4, End::Return), block(5, End::Return)];
    let [handler, other] = [(); 2].map(|()| vec![block(0, End::Return)]);
    // 0 → 1 ⇄ 2, which has no event.
    let around = vec![
        block(0, to(&[(1, 0)])),
        block(6, to(&[(2, 0), (3, 0)])),
        block(0, to(&[(1, 0)])),
        block(7, End::Return),
    ];
    let functions =
        [caller, called, handler, other, around].map(|blocks| Function { blocks, ..Function::default() });
    let code = ModuleCode {
        key: 7,
        base: BASE,
        functions: functions.into(),
        entries: vec![(0, BlockId(0)), (1, BlockId(0)), (2, BlockId(0)), (3, BlockId(0)), (4, BlockId(0))],
        points: vec![
            PointPlace::Behind(0, BlockId(1), 0),
            PointPlace::Start(0, BlockId(1)),
            PointPlace::Start(0, BlockId(2)),
            PointPlace::Start(1, BlockId(1)),
            PointPlace::Start(1, BlockId(2)),
            PointPlace::Start(4, BlockId(1)),
            PointPlace::Start(4, BlockId(3)),
        ],
        places: vec![(20, Some((3, BlockId(0)))), (40, Some((0, BlockId(1)))), (60, Some((4, BlockId(1))))],
        ..ModuleCode::default()
    };
    let codes = ModuleCodes::new(vec![code]);
    let decoded = |words: &[u32]| decoded(&codes, words);
    let [f, b] = [|n| Symbol::enter(FuncId(n)).0, |n| Symbol::block(BlockId(n)).0];
    let entry = |n| ENTRY | (BASE + n);
    let exit = Symbol::EXIT.0;
    let way = [f(0), b(0), b(1)];
    let words = [entry(0), BASE + 2, entry(1), BASE + 4, HANDLER, 7, 20, entry(2), BASE + 1];
    let runs = decoded(&words);
    assert_eq!(runs, [&way[..], &[f(1), b(0), b(1), exit], &[f(2), b(0), exit]].concat());
    // It is the caller below that was in the call, not the one on top, which goes nowhere.
    let far = decoded(&[entry(0), BASE + 2, entry(0), BASE + 3, BASE + 1, entry(1), BASE + 5]);
    assert_eq!(far, [&way[..], &[f(0), b(0), b(2), exit, exit, f(1), b(0), b(2)]].concat());
    // The one on top is past its call: it has returned, if the signal came in one.
    let calls = [entry(0), BASE + 2, entry(0), BASE + 2, BASE + 1];
    let runs = decoded(&[&calls[..], &[HANDLER, 7, 40 | IN_CALL, entry(2), BASE + 1]].concat());
    assert_eq!(runs, [&way[..], &way, &[exit, f(2), b(0), exit]].concat());
    // It came before an event was written for the second time, or behind it.
    let around = [f(4), b(0), b(1)];
    let unwritten = decoded(&[entry(4), BASE + 6, 0, HANDLER, 7, 60, entry(2)]);
    assert_eq!(unwritten, [&around[..], &[b(2), f(2), b(0)]].concat());
    // Nor is it known of what was room at the end of what was taken before.
    let (mut decoder, mut apart) = (Decoder::new(&codes), Vec::new());
    decoder.push(&[entry(4), BASE + 6, 0], &mut apart);
    decoder.begin_chunk();
    decoder.push(&[HANDLER, 7, 60, entry(2)], &mut apart);
    let written = decoded(&[entry(4), BASE + 6, HANDLER, 7, 60, entry(2)]);
    assert_eq!(plain(&apart), written);
    assert_eq!(written, [&around[..], &[f(2), b(0)]].concat());
    // A handler leads elsewhere: it is over, and what it led to is called by nobody; one that is not recorded
    // was entered by nobody.
    let away = [HANDLER, REDIRECTED, NO_PLACE, entry(3)];
    let runs = decoded(&[&[entry(0), BASE + 2, HANDLER, 7, 40, entry(2)], &away[..]].concat());
    assert_eq!(runs, [&way[..], &[f(2), b(0), exit, f(3), b(0)]].concat());
    let within = [entry(0), BASE + 2, HANDLER, 7, 40, entry(2), HANDLER, 7, NO_PLACE];
    let runs = decoded(&[&within[..], &away[..]].concat());
    assert_eq!(runs, [&way[..], &[f(2), b(0), f(3), b(0)]].concat());
}

/// A signal ended a thread: in a block; in what a call goes to, of which only the stub is recorded; nobody
/// knows where. Behind that, nothing is told.
#[test]
fn nothing_is_told_behind_an_end() {
    let by_stub = Site { stub: 2, told: SiteTold::Nothing, ..Site::default() };
    let caller = vec![
        Block { end: End::To(vec![(BlockId(1), 0), (BlockId(2), 0)]), ..Block::default() },
        Block { point: 2, calls: vec![by_stub; 2], end: End::To(vec![(BlockId(2), 0)]), ..Block::default() },
        Block { end: End::Return, ..Block::default() },
    ];
    let stub = vec![Block { end: End::Tail(None), ..Block::default() }];
    let code = ModuleCode {
        key: 7,
        base: BASE,
        functions: [caller, stub].map(|blocks| Function { blocks, ..Function::default() }).into(),
        entries: vec![(0, BlockId(0)), (1, BlockId(0))],
        points: vec![PointPlace::Behind(0, BlockId(1), 0), PointPlace::Start(0, BlockId(1))],
        places: vec![(20, Some((0, BlockId(1)))), (40, Some((0, BlockId(2))))],
        ..ModuleCode::default()
    };
    let codes = ModuleCodes::new(vec![code]);
    let [f, b] = [|n| Symbol::enter(FuncId(n)).0, |n| Symbol::block(BlockId(n)).0];
    let way = [Symbol::enter(FuncId(0)).from_outside().0, b(0), b(1)];
    let passed = [f(1), b(0), Symbol::exit(Cause::Tail).0];
    let ends = |words: &[u32]| {
        let mut decoder = Decoder::new(&codes);
        let mut out = Vec::new();
        decoder.push(&[&[ENTRY | BASE, BASE + 2], words].concat(), &mut out);
        decoder.finish(Cause::ProcessEnd, &mut out);
        out.retain(|&code| Symbol(code).cause() != Some(Cause::ProcessEnd));
        out
    };
    assert_eq!(ends(&[HANDLER, 7, 20, HANDLER, ENDED, 1]), way);
    assert_eq!(ends(&[HANDLER, 7, 20 | IN_CALL, HANDLER, ENDED, 1]), [&way[..], &passed].concat());
    // What is told of an earlier signal says nothing.
    assert_eq!(ends(&[HANDLER, 7, 20 | IN_CALL, HANDLER, ENDED, 0]), way);
    assert_eq!(ends(&[HANDLER, ENDED, 0]), way);
    // By itself, it would have gone on.
    assert_eq!(ends(&[]), [&way[..], &passed, &passed, &[b(2), Symbol::EXIT.0]].concat());
}

/// `work` is called, and jumped to; what only calls it never ran, and is not made up, since what calls the
/// one that jumps may be there as well. What a call jumped to tells that it is entered: until then, the call
/// is not made again.
#[test]
fn a_caller_is_made_up_only_where_no_other_may_be() {
    let inside = |entry| Site { entry: Some(entry), told: SiteTold::Inside, ..Site::default() };
    let block = |point, calls: &[u32], end| Block {
        point,
        calls: calls.iter().map(|entry| inside(*entry)).collect(),
        end,
        ..Block::default()
    };
    let to = |ways: &[(u32, u32)]| End::To(ways.iter().map(|(to, point)| (BlockId(*to), *point)).collect());
    let work = vec![block(0, &[], to(&[(1, 0)])), block(1, &[], End::Return)];
    let jumps = vec![block(0, &[], End::Tail(Some(0)))];
    let runs = vec![block(0, &[1, 0], to(&[(0, 0), (1, 0)])), block(2, &[], End::Return)];
    let never = vec![block(0, &[0, 0], End::Return)];
    let waits = vec![block(3, &[1], End::Return)];
    let functions =
        [work, jumps, runs, never, waits].map(|blocks| Function { blocks, ..Function::default() });
    let code = ModuleCode {
        base: BASE,
        functions: functions.into(),
        entries: (0..5).map(|func| (func, BlockId(0))).collect(),
        points: vec![
            PointPlace::Start(0, BlockId(1)),
            PointPlace::Start(2, BlockId(1)),
            PointPlace::Start(4, BlockId(0)),
        ],
        ..ModuleCode::default()
    };
    let codes = ModuleCodes::new(vec![code]);
    let [f, b] = [|n| Symbol::enter(FuncId(n)).0, |n| Symbol::block(BlockId(n)).0];
    let [worked, ran, waited] = [1, 2, 3].map(|n| BASE + n);
    let (jumped, exit) = (ENTRY | BASE, Symbol::EXIT.0);
    let got = decoded(&codes, &[GAP, START, worked, worked, jumped, worked, ran]);
    let work = [f(0), b(1), exit];
    assert_eq!(got, [&work[..], &work, &[f(0), b(0), b(1), exit, f(2), b(1)]].concat());
    let got = decoded(&codes, &[GAP, START, waited, ran]);
    assert_eq!(got, [f(4), b(0), f(1), b(0), exit, exit, f(2), b(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_decoded_is_what_ran(seed in any::<u64>(), piece in 1usize..7) {
        let mut rng = Rng(seed | 1);
        let code = program(&mut rng);
        let mut walk =
            Walk { code: &code, rng: &mut rng, symbols: Vec::new(), words: Vec::new(), open: Vec::new(), n_left: 300, told: 0 };
        let mut is_in_call = true;
        while walk.n_left > 100 {
            if let Err(over) = walk.call(0, SiteTold::Event) {
                is_in_call = matches!(over, Over::InCall);
                break;
            }
        }
        let Walk { mut symbols, words, open, told, .. } = walk;
        let codes = ModuleCodes::new(vec![code.clone()]);
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        // Room that was not used may be anywhere between events.
        let n_events = words.len();
        let words = with_room(&mut Rng(seed | 2), &words);
        words.chunks(piece).for_each(|words| decoder.push(words, &mut got));
        prop_assert_eq!(decoder.faults, Faults::default());
        if is_in_call {
            symbols.extend(open.iter().map(|_| Symbol::EXIT.0));
            decoder.finish(Cause::ProcessEnd, &mut got);
            prop_assert_eq!(plain(&got), symbols);
        } else {
            // What ran behind the last event is not told; up to it, all is.
            prop_assert_eq!(&plain(&got), &symbols[..got.len().min(symbols.len())]);
            prop_assert!(n_events == 0 || !got.is_empty());
            prop_assert!(got.len() >= told, "{} symbols of {told} that events tell of", got.len());
        }
    }

    /// A sample that is the whole run says how often each block and edge ran.
    #[test]
    fn a_sample_of_all_is_what_ran(seed in any::<u64>()) {
        let mut rng = Rng(seed | 1);
        let code = program(&mut rng);
        let mut walk =
            Walk { code: &code, rng: &mut rng, symbols: Vec::new(), words: Vec::new(), open: Vec::new(), n_left: 300, told: 0 };
        let _how_it_ended = walk.call(0, SiteTold::Event);
        let Walk { symbols, words, .. } = walk;
        let codes = ModuleCodes::new(vec![code.clone()]);
        let mut decoder = Decoder::new(&codes);
        let mut told = Vec::new();
        decoder.push(&words, &mut told);
        // What ran behind the last event is not told.
        let (mut want, mut open) = (Weights::default(), Vec::new());
        for code in symbols.into_iter().take(told.len()) {
            match Symbol(code).step() {
                Step::Enter(func) => open.push((u64::from(100 * func.0), None)),
                Step::Exit => drop(open.pop()),
                Step::Block(block) => {
                    let (func, last) = open.last_mut().expect("it is in a function");
                    let at = *func + u64::from(block.0);
                    *want.blocks.entry(at).or_default() += 1;
                    last.replace(at).into_iter().for_each(|from| *want.edges.entry((from, at)).or_default() += 1);
                }
            }
        }
        let mut sample = Sample::default();
        sample.offer(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        let got = sample.weights(vec![code], |_, _| true).expect("it is wanted");
        prop_assert_eq!(&got[0].blocks, &want.blocks);
        prop_assert_eq!(&got[0].edges, &want.edges);
        // Stack pointers are words, too.
        prop_assert!(got[0].n_events <= words.len() as u64);
    }

    /// What was open before the first event is taken up where it goes on: what is told of the rest is the
    /// same.
    #[test]
    fn a_stream_may_start_anywhere(seed in any::<u64>()) {
        let mut rng = Rng(seed | 1);
        let code = program(&mut rng);
        let mut walk =
            Walk { code: &code, rng: &mut rng, symbols: Vec::new(), words: Vec::new(), open: Vec::new(), n_left: 300, told: 0 };
        let _how_it_ended = walk.call(0, SiteTold::Event);
        let words = walk.words;
        let is_point = |word: &u32| *word & (ENTRY | HAS_FRAME | FROM_ANYWHERE) == 0;
        let Some(from) = words.iter().skip(words.len() / 2).position(is_point) else { return Ok(()) };
        let (before, rest) = words.split_at(words.len() / 2 + from);
        let codes = ModuleCodes::new(vec![code]);
        let (mut whole, mut all) = (Decoder::new(&codes), Vec::new());
        whole.push(before, &mut all);
        let mut behind = Vec::new();
        for &word in rest {
            whole.push(&[word], &mut all);
            behind.push(all.len());
        }
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        decoder.push(&[GAP, START], &mut got);
        decoder.push(rest, &mut got);
        prop_assert_eq!(decoder.faults.n_lost, 0);
        let (sure, told) = (told_for_sure(&all, &behind), executed(&got));
        // Of what was open before, it is not known where its frame is: what leads there from afar may not be
        // told.
        let is_far = |word: &u32| word & (ENTRY | FROM_ANYWHERE) == FROM_ANYWHERE;
        if !rest.iter().any(is_far) {
            prop_assert!(told.ends_with(&sure), "{:?} does not end with {:?}", told, sure);
        }
        decoder.finish(Cause::RecordingEnd, &mut got);
        let mut balance = Balance::default();
        for code in got {
            prop_assert!(balance.push(Symbol(code)).is_ok());
        }
        prop_assert!(balance.finish().is_ok());
    }

    /// What is left out of the middle is missing, and what is open there is left and entered again; nothing
    /// else changes.
    #[test]
    fn a_pause_leaves_out_what_is_in_it(seed in any::<u64>(), from in 0..300usize, n in 1..60usize) {
        let mut rng = Rng(seed | 1);
        let code = program(&mut rng);
        let mut walk =
            Walk { code: &code, rng: &mut rng, symbols: Vec::new(), words: Vec::new(), open: Vec::new(), n_left: 300, told: 0 };
        let _how_it_ended = walk.call(0, SiteTold::Event);
        // Events, which may have two words.
        let mut events: Vec<Vec<u32>> = Vec::new();
        for word in walk.words {
            let has_frame = |head: u32| {
                head & (ENTRY | HAS_FRAME) == ENTRY | HAS_FRAME || head & (ENTRY | FROM_ANYWHERE) == FROM_ANYWHERE
            };
            match events.last_mut() {
                Some(last) if last.len() == 1 && has_frame(last[0]) => last.push(word),
                _ => events.push(vec![word]),
            }
        }
        let to = from + n;
        if to >= events.len() {
            return Ok(());
        }
        let codes = ModuleCodes::new(vec![code]);
        let (mut whole, mut all) = (Decoder::new(&codes), Vec::new());
        let mut before = Vec::new();
        for event in &events {
            before.push(all.len());
            whole.push(event, &mut all);
        }
        before.push(all.len());
        // The way to an entry comes before it: on this side where it ends, on that where it begins.
        let turn = |at: usize| {
            let told = &all[before[at]..before[at + 1]];
            let is_entry = |symbol: &u32| matches!(Symbol(*symbol).step(), Step::Enter(func) if func.0 < 100);
            let of_entry = told.iter().rposition(is_entry).filter(|_| events[at][0] & ENTRY != 0);
            before[at] + of_entry.unwrap_or(0)
        };
        let mut want = all[..turn(from)].to_vec();
        let open = |end: usize| {
            let mut open = Vec::new();
            for code in &all[..end] {
                match Symbol(*code).step() {
                    Step::Enter(func) => open.push(func),
                    Step::Exit => drop(open.pop()),
                    Step::Block(_) => {}
                }
            }
            open
        };
        want.extend(open(turn(from)).iter().map(|_| Symbol::exit(Cause::RecordingEnd).0));
        want.extend(open(turn(to)).iter().map(|func| Symbol::enter(*func).from_outside().0));
        want.extend(&all[turn(to)..]);
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        decoder.push(&events[..from].concat(), &mut got);
        decoder.push(&[PAUSE], &mut got);
        decoder.push(&events[from..to].concat(), &mut got);
        decoder.push(&[START], &mut got);
        decoder.push(&events[to..].concat(), &mut got);
        prop_assert_eq!(got, want);
        prop_assert_eq!(decoder.faults, Faults::default());
    }

    /// A stack pointer whose low half is zero is no room.
    #[test]
    fn a_pause_ends_with_its_event(seed in any::<u64>()) {
        let code = program(&mut Rng(seed | 1));
        let n = code.entries.len();
        prop_assert!(n > 0);
        let codes = ModuleCodes::new(vec![code]);
        let (mut decoder, mut got) = (Decoder::new(&codes), Vec::new());
        decoder.push(&[PAUSE, ENTRY | HAS_FRAME | BASE, 0], &mut got);
        prop_assert_eq!(decoder.filter.kept, filter::Kept::No);
        prop_assert_eq!((decoder.stack.open.len(), got.len()), (1, 0));
    }

    /// Whatever the events, what comes out is balanced.
    #[test]
    fn what_is_damaged_comes_out_balanced(seed in any::<u64>(), words in proptest::collection::vec(any::<u32>(), 0..200)) {
        let mut rng = Rng(seed | 1);
        let codes = ModuleCodes::new(vec![program(&mut rng)]);
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        // Most are to mean something.
        let kinds = [0, 0, ENTRY, ENTRY | HAS_FRAME, FROM_ANYWHERE];
        let small = |w: u32| match w >> 12 & 15 {
            0 => GAP,
            1 => START,
            2 => PAUSE,
            _ => kinds[(w >> 8) as usize % 5] | (BASE + (w & 15)),
        };
        let words: Vec<u32> = words.into_iter().map(small).collect();
        decoder.push(&words, &mut got);
        decoder.finish(Cause::RecordingEnd, &mut got);
        let mut balance = Balance::default();
        for code in got {
            prop_assert!(balance.push(Symbol(code)).is_ok());
        }
        prop_assert!(balance.finish().is_ok());
    }
}

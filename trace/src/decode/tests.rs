//! Random programs that are walked through here, with what they do and the events that they append written down side by side.

use super::*;
use crate::balance::Balance;
use crate::events::{Function, Site};
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

const KEY: u32 = 0x1234_5678;

/// Functions that call only later ones for sure; block 0 is the entry; a block that something far may lead to is the last one.
fn program(rng: &mut Rng) -> Code {
    let n_functions = 2 + rng.below(5);
    let mut code = Code { key: KEY, ..Code::default() };
    code.entries = (0..n_functions).map(|f| (f, 0)).collect();
    for func in 0..n_functions {
        let n = 1 + rng.below(6);
        let mut blocks = vec![Block::default(); n as usize];
        let mut needs = vec![false; n as usize];
        for b in 0..n {
            let mut calls = Vec::new();
            for k in 0..rng.below(3) {
                let is_sure = func + 1 < n_functions && rng.below(2) == 0;
                let entry = is_sure.then(|| func + 1 + rng.below(n_functions - func - 1));
                let point = if is_sure { 0 } else { point(&mut code, Point::Behind(func, b, k)) };
                calls.push(Site { entry, point, ..Site::default() });
            }
            let end = match rng.below(6) {
                0 => End::Return,
                _ => {
                    let to: std::collections::BTreeSet<u32> =
                        (0..=rng.below(3)).map(|_| rng.below(n)).collect();
                    End::To(to.into_iter().collect())
                }
            };
            if let End::To(to) = &end {
                let several = to.len() > 1;
                to.iter().filter(|t| several || **t <= b).for_each(|t| needs[*t as usize] = true);
            }
            blocks[b as usize] = Block { calls, end, ..Block::default() };
        }
        let has_far = n > 1 && rng.below(2) == 0;
        needs[n as usize - 1] |= has_far;
        for (b, needs) in (0..n).zip(needs) {
            if needs {
                blocks[b as usize].point = point(&mut code, Point::Start(func, b));
            }
        }
        blocks[n as usize - 1].lands = has_far;
        code.functions.push(Function { blocks, ..Function::default() });
    }
    code
}

fn point(code: &mut Code, point: Point) -> u32 {
    code.points.push(point);
    u32::try_from(code.points.len()).expect("few")
}

/// Walks through a program: what it does, and what it appends.
struct Walk<'a> {
    code: &'a Code,
    rng: &'a mut Rng,
    symbols: Vec<u32>,
    words: Vec<u32>,
    open: Vec<u32>,
    n_left: u32,
}

/// The run ends here.
struct Over;

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
        self.n_left = self.n_left.checked_sub(1).ok_or(Over)?;
        self.words.extend(words);
        Ok(())
    }

    /// The activation that control goes to, if this is not left by a return: it, or one below.
    fn call(&mut self, func: u32) -> Result<Option<usize>, Over> {
        let depth = self.open.len();
        match self.far(func) {
            Some(_) => self.append(&[ENTRY | HAS_FRAME | func, KEY, Self::frame(depth)])?,
            None => self.append(&[ENTRY | func, KEY])?,
        }
        self.open.push(func);
        self.symbols.push(Symbol::enter(func).0);
        let mut block = 0;
        'blocks: loop {
            let b = self.block(func, block).clone();
            match b.point {
                0 => {}
                n if b.lands => {
                    self.append(&[FROM_ANYWHERE | n, KEY, Self::frame(depth).wrapping_sub(50)])?
                }
                n => self.append(&[n])?,
            }
            self.symbols.push(Symbol::block(block).0);
            for site in &b.calls {
                let times = if site.entry.is_some() { 1 } else { self.any(3) };
                for _ in 0..times {
                    let any = u32::try_from(self.any(self.code.functions.len())).expect("few");
                    if let Some(to) = self.call(site.entry.unwrap_or(any))? {
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
                    self.append(&[site.point])?;
                }
            }
            match &b.end {
                End::To(to) => block = to[self.any(to.len())],
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

fn plain(symbols: &[u32]) -> Vec<u32> {
    symbols.iter().map(|code| Symbol(*code).plain().0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_decoded_is_what_ran(seed in any::<u64>(), piece in 1usize..7) {
        let mut rng = Rng(seed | 1);
        let code = program(&mut rng);
        let mut walk =
            Walk { code: &code, rng: &mut rng, symbols: Vec::new(), words: Vec::new(), open: Vec::new(), n_left: 300 };
        while walk.n_left > 0 {
            if walk.call(0).is_err() {
                break;
            }
        }
        let Walk { mut symbols, words, open, .. } = walk;
        symbols.extend(open.iter().map(|_| Symbol::EXIT.0));
        let codes = Codes::new(vec![code.clone()]);
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        // Room that was not used may be anywhere between events.
        words.chunks(piece).for_each(|words| decoder.push(words, &mut got));
        prop_assert_eq!(decoder.faults, Faults::default());
        decoder.finish(Cause::ProcessEnd, &mut got);
        prop_assert_eq!(plain(&got), symbols);
    }

    /// Whatever the events, what comes out is balanced.
    #[test]
    fn what_is_damaged_comes_out_balanced(seed in any::<u64>(), words in proptest::collection::vec(any::<u32>(), 0..200)) {
        let mut rng = Rng(seed | 1);
        let codes = Codes::new(vec![program(&mut rng)]);
        let mut decoder = Decoder::new(&codes);
        let mut got = Vec::new();
        // Most are to mean something.
        let kinds = [0, 0, ENTRY, ENTRY | HAS_FRAME, FROM_ANYWHERE];
        let small = |w: u32| if w.is_multiple_of(3) { KEY } else { kinds[(w >> 8) as usize % 5] | (w & 15) };
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

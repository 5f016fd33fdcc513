//! Prints, for random instructions of a file, which registers and flags are dead before them: `dead FILE N
//! SEED`.
//!
//! One line of JSON a place, all numbers decimal: `at` (address in the file), then one bit a register:
//! `general` (rax is bit 0, by the processor's numbers), `flags` (CF PF AF ZF SF OF DF from bit 0), `low` and
//! `upper` (bits 0–127 of vector register n, and those above), `mask` (k0–k7). `checks/liveness.c` puts
//! random values there while the program runs.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use program::arch::abi;
use program::{BlockId, Conventions, Image, Program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, n, seed] = args.as_slice() else { return Err("usage: dead FILE N SEED".into()) };
    let (n, mut seed): (usize, u64) = (n.parse()?, seed.parse()?);
    let program = Program::analyze(Image::load(file.as_ref())?);
    let (conventions, live) = Conventions::compute(&program);
    let total: u64 = program.blocks.iter().map(|b| u64::from(b.n_insns)).sum();
    let mut starts = Vec::with_capacity(program.blocks.len());
    let mut sum = 0;
    for b in &program.blocks {
        starts.push(sum);
        sum += u64::from(b.n_insns);
    }
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..n.saturating_mul(2) {
        // splitmix64 (Steele, Lea, Flood 2014).
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if places.len() < n && total > 0 {
            places.insert((z ^ (z >> 31)) % total);
        }
    }
    let mut of_block = (usize::MAX, Vec::new());
    for place in places {
        let block = starts.partition_point(|&s| s <= place) - 1;
        if of_block.0 != block {
            let id = BlockId::at(block);
            of_block = (block, live[program.block(id).func.index()].before(&program, &conventions, id));
        }
        let Some(&(at, live)) = usize::try_from(place - starts[block]).ok().and_then(|i| of_block.1.get(i))
        else {
            continue;
        };
        let dead = abi::ALL.minus(live);
        let bits = |from: u8, n: u8| -> u64 {
            dead.iter()
                .filter(|r| (from..from + n).contains(&r.number()))
                .map(|r| 1 << (r.number() - from))
                .sum()
        };
        println!(
            r#"{{"at":{},"general":{},"flags":{},"low":{},"upper":{},"mask":{}}}"#,
            at.0,
            bits(0, 16),
            bits(64, 7),
            bits(16, 32),
            bits(88, 32),
            bits(48, 8)
        );
    }
    Ok(())
}

//! A program that enters and leaves loops and does nothing else, as a file: what is put there costs what it
//! makes the program slower.
//!
//! ```text
//!     mov $20,%ebx
//! 1:  mov $1000,%ebp          around: 20 instances
//! 2:  mov $1,%eax
//! 3:  dec %eax; jnz 3b        inner: 1,000 instances in each, of one iteration
//!     dec %ebp; jnz 2b
//!     dec %ebx; jnz 1b
//!     mov $200,%ebp
//! 4:  mov $500,%eax
//! 5:  imul %rcx,%rcx; …       short: 200 instances, each of 500 times 4 multiplications, one after another
//!     dec %eax; jnz 5b
//!     mov $2500,%eax
//! 6:  imul %rcx,%rcx; …       long: the same, 2,500 times, in turn with the short ones
//!     dec %eax; jnz 6b
//!     dec %ebp; jnz 4b
//!     xor %edi,%edi; mov $231,%eax; syscall; ud2
//! ```
//! What it costs to enter a chain, to leave it, and to read the time there, both chains have alike: it is not
//! in their difference.
//!
//! Source: a multiplication of 64 bits has a latency of 3 cycles on all of Intel's processors since Nehalem
//! and AMD's since Zen (A. Fog, "Instruction tables"). Two lengths, of which the difference is taken:
//! nanoBench (A. Abel, J. Reineke, ISPASS 2020), its README, "Generated Code".

use program::Va;

/// How often the inner loop is entered in one instance of the loop around it.
pub const INNER_INSTANCES: u32 = 1000;
/// How many cycles of the core an instance of the long chain takes more than one of the short chain.
pub const CHAIN_CYCLES: u32 = (2500 - 500) * 4 * 3;
/// Where the file is in memory.
const BASE: u64 = 0x40_0000;
/// Lengths of the ELF header and of one program header.
const HEADERS: (u16, u16) = (64, 56);
/// Where the code starts.
const CODE: u64 = BASE + HEADERS.0 as u64 + HEADERS.1 as u64;
/// The loops, by their headers: that around the inner one, the inner one, the short chain, the long one.
pub const LOOPS: [Va; 4] = [Va(CODE + 10), Va(CODE + 15), Va(CODE + 37), Va(CODE + 62)];

const INSTRUCTIONS: [u8; 88] = [
    0xbb, 20, 0, 0, 0, // mov $20,%ebx
    0xbd, 0xe8, 3, 0, 0, // 1: mov $1000,%ebp
    0xb8, 1, 0, 0, 0, // 2: mov $1,%eax
    0xff, 0xc8, 0x75, 0xfc, // 3: dec %eax; jnz 3b
    0xff, 0xcd, 0x75, 0xf3, // dec %ebp; jnz 2b
    0xff, 0xcb, 0x75, 0xea, // dec %ebx; jnz 1b
    0xbd, 200, 0, 0, 0, // mov $200,%ebp
    0xb8, 0xf4, 1, 0, 0, // 4: mov $500,%eax
    0x48, 0x0f, 0xaf, 0xc9, 0x48, 0x0f, 0xaf, 0xc9, // 5: imul %rcx,%rcx, twice
    0x48, 0x0f, 0xaf, 0xc9, 0x48, 0x0f, 0xaf, 0xc9, // twice more
    0xff, 0xc8, 0x75, 0xec, // dec %eax; jnz 5b
    0xb8, 0xc4, 9, 0, 0, // mov $2500,%eax
    0x48, 0x0f, 0xaf, 0xc9, 0x48, 0x0f, 0xaf, 0xc9, // 6: imul %rcx,%rcx, twice
    0x48, 0x0f, 0xaf, 0xc9, 0x48, 0x0f, 0xaf, 0xc9, // twice more
    0xff, 0xc8, 0x75, 0xec, // dec %eax; jnz 6b
    0xff, 0xcd, 0x75, 0xca, // dec %ebp; jnz 4b
    0x31, 0xff, // xor %edi,%edi
];
const EXIT: [u8; 9] = [0xb8, 231, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b]; // mov $231,%eax; syscall; ud2

/// The program, an ELF file without sections.
pub fn program() -> Vec<u8> {
    let len = (INSTRUCTIONS.len() + EXIT.len()) as u64;
    let mut out = Vec::new();
    out.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, EM_X86_64, version 1.
    [2u16, 62, 1, 0].iter().for_each(|half| out.extend(half.to_le_bytes()));
    [CODE, HEADERS.0.into(), 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
    [0u16, 0, HEADERS.0, HEADERS.1, 1, 0, 0, 0].iter().for_each(|half| out.extend(half.to_le_bytes()));
    // PT_LOAD, to be read and run.
    [1u32, 5].iter().for_each(|half| out.extend(half.to_le_bytes()));
    [CODE - BASE, CODE, CODE, len, len, 0x1000].iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend(INSTRUCTIONS);
    out.extend(EXIT);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::{Image, Loops, Program};

    #[test]
    fn its_loops_are_where_they_are_said_to_be() {
        let image = Image::parse(program(), "calibration").expect("it is an ELF file");
        let program = Program::analyze_code(image);
        let mut all = Vec::new();
        for func in program.func_ids() {
            let loops = Loops::compute(&program, func);
            all.extend(loops.ids().map(|id| program.block(loops.header(id)).start));
        }
        all.sort_unstable();
        assert_eq!(all.len(), 6);
        assert!(LOOPS.iter().all(|at| all.contains(at)), "{all:?} {LOOPS:?}");
    }

    #[test]
    fn it_ends_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calibration");
        std::fs::write(&path, program()).expect("it is written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("it may run");
        let done = crate::testing::output(&mut std::process::Command::new(&path));
        assert_eq!(done.status.code(), Some(0));
    }
}

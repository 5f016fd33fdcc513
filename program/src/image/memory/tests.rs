//! Images of processes' memory against those of the files that the processes run.
#![expect(clippy::indexing_slicing, reason = "a test that reaches outside its own bytes should fail")]

use super::*;
use crate::{Loops, Program};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Loops, a jump table, tables of functions in constant and in changing data, calls of the library; of C++
/// also what is thrown.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int one(int x) { return x + 1; }
static int two(int x) { return x * 2; }
int (*const constant[])(int) = { one, two, abs };
int (*changing[])(int) = { two, one, 0 };
int sum(int n) { int s = 0; for (int i = 0; i < n; i++) for (int j = i; j < n; j++) s += constant[j & 1](j); return s; }
int choose(int x) {
    switch (x) {
    case 0: return sum(3); case 1: return sum(x * 9); case 2: return 77; case 3: return x * x;
    case 4: return rand(); case 5: return changing[0](x); case 6: return 12 - x; default: return -1;
    }
}
#ifdef __cplusplus
int thrown(int x) { try { if (choose(x) > 5) throw 3; return 1; } catch (int n) { return n; } }
#else
int thrown(int x) { return x; }
#endif
int main(int c, char **v) {
    changing[2] = constant[c & 1];
    printf("ready %d\n", choose(c) + thrown(c)); fflush(stdout);
    while (getchar() != EOF) {}
    return changing[2](c);
}
"#;

/// A program that waits for its input to end.
struct Waiting {
    child: Child,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Waiting {
    #[track_caller]
    fn start(compiler: &str, flags: &str) -> Waiting {
        let folder = tempfile::tempdir().expect("a folder for the test's files");
        let (source, file) = (folder.path().join("a.c"), folder.path().join("a.out"));
        std::fs::write(&source, SOURCE).expect("the folder can be written");
        let language = if compiler == "g++" { "c++" } else { "c" };
        let mut command = Command::new(compiler);
        command.args(["-O2", "-s", "-x", language]).arg(&source).arg("-o").arg(&file);
        let made = command.args(flags.split_whitespace()).status().expect("the compiler is installed");
        assert!(made.success(), "{compiler} {flags}");
        let mut command = Command::new(&file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it speaks");
        assert!(line.starts_with("ready"), "{line}");
        Waiting { child, file, _folder: folder }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The module of process `pid` whose path ends so, from its memory.
#[track_caller]
fn from_memory(pid: u32, ends: &str) -> (Image, Bias) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let first = maps.lines().find(|line| line.ends_with(ends)).expect("it is mapped");
    let header =
        LiveVa(u64::from_str_radix(first.split('-').next().expect("a range"), 16).expect("a number"));
    let memory = File::open(format!("/proc/{pid}/mem")).expect("it is ours");
    let read = |at: LiveVa, bytes: &mut [u8]| memory.read_exact_at(bytes, at.0).is_ok();
    Image::from_memory(ends, header, |_| None, &read).expect("it is a module")
}

/// All functions with their blocks, edges and loops, a line each.
fn described(image: Image) -> String {
    let program = Program::analyze_code(image);
    let mut text = String::new();
    for id in program.func_ids() {
        let f = program.function(id);
        writeln!(text, "{} {:?} {:?} {:?}", f.entry, f.origin, f.names, f.ranges).expect("text");
        let loops = Loops::compute(&program, id);
        for b in f.block_ids() {
            let block = program.block(b);
            write!(text, "  {} {} {:?}", block.start, block.len_bytes, block.end).expect("text");
            for edge in program.edge_ids(b).map(|e| program.edge(e)) {
                write!(text, " {:?} {}", edge.kind, program.block(edge.to).start).expect("text");
            }
            writeln!(
                text,
                " depth {}{}",
                loops.block_depth(b),
                if loops.is_header(b) { " header" } else { "" }
            )
            .expect("text");
        }
    }
    text
}

fn without_sections(file: &Path) -> Image {
    let mut bytes = std::fs::read(file).expect("there");
    // e_shoff, e_shnum, e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    Image::parse(bytes, "without sections").expect("a good file")
}

#[track_caller]
fn check(compiler: &str, flags: &str, equals_sections: bool) {
    let waiting = Waiting::start(compiler, flags);
    let (image, bias) = from_memory(waiting.child.id(), "/a.out");
    let file = Image::load(&waiting.file).expect("a good file");
    assert_eq!(image.kind, file.kind, "{flags}");
    assert_eq!(image.build_id, file.build_id, "{flags}");
    assert_eq!(bias.to_live(Va(0)) != LiveVa(0), file.kind.is_relocated(), "{flags}");
    assert!(image.is_of_memory() && image.sections.is_empty());
    for r in &file.relocations {
        let ours = image.relocation_at(r.at).map(|r| &r.to);
        assert_eq!(ours, Some(&r.to), "{flags}: relocation at {}", r.at);
        if image.is_constant(r.at) {
            assert_eq!(image.address_at(r.at), file.address_at(r.at), "{flags}: at {}", r.at);
        }
    }
    let ours = described(image);
    assert!(ours.contains("Switch") && ours.contains("header"), "{flags}: {ours}");
    let differs = |theirs: String| {
        let line = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        (ours != theirs).then(|| format!("{compiler} {flags}: {line:?}"))
    };
    assert_eq!(differs(described(without_sections(&waiting.file))), None);
    if equals_sections {
        assert_eq!(differs(described(file)), None);
    }
}

#[test]
fn memory_of_a_moved_program_says_what_its_file_says() {
    check("gcc", "-fcf-protection=none -pie -fPIE -Wl,-z,lazy", true);
    check("gcc", "-pie -fPIE -Wl,-z,now", true);
    check("gcc", "-pie -fPIE -Wl,-z,now,-z,pack-relative-relocs", true);
}

#[test]
fn memory_of_a_program_that_throws_says_what_its_file_says() {
    check("g++", "-pie -fPIE", true);
    check("g++", "-no-pie -fno-pie", true);
}

#[test]
fn memory_of_a_program_at_its_place_says_what_its_file_says() {
    check("gcc", "-no-pie -fno-pie", true);
    check("gcc", "-no-pie -fno-pie -Wl,-z,noseparate-code", false);
}

#[test]
fn memory_of_a_static_program_says_what_its_file_says_without_sections() {
    check("gcc", "-static", false);
    check("gcc", "-static-pie -fPIE", false);
}

#[test]
fn memory_of_the_c_library_says_what_its_file_says() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("we run");
    let Some(path) = maps
        .lines()
        .find(|line| line.contains("/libc.so.6"))
        .and_then(|line| line.find('/').map(|at| &line[at..]))
    else {
        // Linked statically.
        return;
    };
    let (image, _) = from_memory(std::process::id(), "/libc.so.6");
    let file = Image::load(Path::new(path)).expect("a good file");
    assert_eq!(image.id, file.id);
    assert_eq!(image.debug_file, file.debug_file);
    let names = |image: &Image| image.exports().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&image), names(&file));
    // Symbols may be in a file of debug information.
    let mut bare = without_sections(Path::new(path));
    bare.symbols = file.symbols;
    assert!(described(image) == described(bare), "memory says otherwise");
}

/// The bytes that a process would have of the file at `path` at address 0x10000, for `read`.
fn mapped(path: &Path) -> Vec<u8> {
    let image = Image::load(path).expect("a good file");
    let end = image.segments.last().expect("some").range.end.0;
    let mut memory = vec![0; usize::try_from(end).expect("small")];
    for s in &image.segments {
        let bytes = image.bytes_from(s.range.start).unwrap_or_default();
        let at = usize::try_from(s.range.start.0).expect("small");
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    }
    memory
}

const AT: u64 = 0x10000;

fn read_of(memory: &[u8]) -> impl Fn(LiveVa, &mut [u8]) -> bool + '_ {
    |at, bytes| {
        let from = at.0.checked_sub(AT).and_then(|from| usize::try_from(from).ok());
        let there = from.and_then(|from| memory.get(from..from.checked_add(bytes.len())?));
        there.inspect(|there| bytes.copy_from_slice(there)).is_some()
    }
}

#[test]
fn memory_that_ends_early_is_said_to_be_missing() {
    let memory = mapped("/usr/bin/true".as_ref());
    let read = |memory: &[u8]| Image::from_memory("true", LiveVa(AT), |_| None, &read_of(memory));
    assert!(read(&memory).is_ok());
    let said = |n: usize| read(&memory[..n]).expect_err("it is cut").to_string();
    assert_eq!(said(10), "true cannot be read from memory: its ELF header at live:0x10000");
    assert_eq!(said(80), "true cannot be read from memory: its program header table at live:0x10040");
    assert!(said(0x1000).starts_with("true cannot be read from memory: code at live:0x"), "{}", said(0x1000));
    // What is not code is taken for zeros.
    let (image, _) = read(&memory[..memory.len() - 0x2000]).expect("its code is there");
    assert!(image.notes.iter().any(|note| note.contains("taken for zeros")), "{:?}", image.notes);
}

#[test]
fn memory_that_makes_no_sense_is_refused_or_read_and_nothing_breaks() {
    let memory = mapped("/usr/bin/true".as_ref());
    // Every byte of the headers, some of them with several values.
    for at in 0..0x400 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut memory = memory.clone();
            memory[at] = value;
            let read = read_of(&memory);
            if let Ok((image, _)) = Image::from_memory("true", LiveVa(AT), |_| None, &read) {
                assert!(image.file_bytes().len() <= memory.len() + 0x1000);
            }
        }
    }
}

#[test]
fn code_that_only_names_describe_has_blocks_and_loops() {
    // mov $10,%eax; dec %eax; jne -4; ret — and a function behind that jumps to it.
    let code = vec![0xb8, 10, 0, 0, 0, 0xff, 0xc8, 0x75, 0xfc, 0xc3];
    let jump = vec![0xe9, 0xdb, 0xff, 0xff, 0xff];
    let (first, second) = (Va(0x7f00_0000_0000), Va(0x7f00_0000_0020));
    let functions = vec![(first..first.plus(10), "down".into()), (second..second.plus(5), "to it".into())];
    let image = Image::of_code("[jit]", vec![(second, jump), (first, code)], functions);
    let program = Program::analyze(image);
    assert_eq!(program.verify(), []);
    let [down, to_it] = [first, second].map(|at| program.function_at(at).expect("a function"));
    assert_eq!(
        (program.function(down).name(), program.function(to_it).name()),
        ("down".into(), "to it".into())
    );
    assert_eq!((program.function(down).n_blocks(), Loops::compute(&program, down).len()), (3, 1));
    assert_eq!(program.function(to_it).n_blocks(), 1);
}

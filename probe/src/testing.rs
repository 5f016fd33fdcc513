//! Programs made for tests, and code as text.

use program::arch::Decoder;
use program::{FuncId, Image, Program, Va};

/// What gcc makes of `source`, in the language that `suffix` says, with `flags`.
pub fn compiled(source: &str, suffix: &str, flags: &str) -> Program {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, file) = (folder.path().join(format!("text.{suffix}")), folder.path().join("text"));
    std::fs::write(&text, source).expect("written");
    let mut gcc = std::process::Command::new("gcc");
    let made = gcc.args(flags.split_whitespace()).arg("-o").arg(&file).arg(&text).status();
    assert!(made.expect("gcc runs").success());
    Program::analyze(Image::load(&file).expect("an image"))
}

/// A static program of these functions, each a name and its instructions, `_start` first: at fixed addresses
/// from 0x401000 on.
pub fn assembled(functions: &[(&str, &str)]) -> Program {
    let one = |(name, code): &(&str, &str)| {
        format!(
            ".globl {name}\n.type {name},@function\n.p2align 4\n{name}:\n.cfi_startproc\n{code}\n\
             .cfi_endproc\n.size {name},.-{name}\n"
        )
    };
    let text: String = functions.iter().map(one).collect();
    let flags = "-nostdlib -static -no-pie -Wl,-Ttext=0x401000 -Wl,--build-id=none";
    compiled(&format!(".text\n{text}"), "s", flags)
}

/// The function called `name`.
pub fn function(program: &Program, name: &str) -> FuncId {
    program.func_ids().find(|id| program.function(*id).name() == name).expect("there is such a function")
}

/// The instructions of `code`, which lies at `at`: offset and text, each on a line; `note` says what else.
pub fn listing(code: &[u8], at: Va, note: impl Fn(usize, usize) -> String) -> String {
    let decoder = Decoder::new(code, at);
    let mut out = String::new();
    let mut offset = 0;
    for insn in decoder {
        let end = offset + insn.len_bytes();
        out += format!("{offset:02x}: {insn}{}", note(offset, end)).trim_end();
        out += "\n";
        offset = end;
    }
    out
}

/// What is put into `func`: block and spot, the code, and what its distances lead to.
pub fn inserts(program: &Program, plan: &crate::Plan, func: FuncId) -> String {
    use crate::code::Insert;
    let selection =
        crate::select::Selection::compute(program, plan, false, &std::collections::BTreeSet::new());
    assert_eq!(selection.not_moved[func.index()], None);
    let lowered = crate::lower::Lowered::compute(program, plan, &selection).expect("it can be put there");
    let entry = program.function(func).entry;
    let mut out = String::new();
    for block in program.function(func).block_ids() {
        for (spot, Insert { text, increment }) in lowered.inserts.in_block(block) {
            let at = program.block(block).start.since(entry);
            out += &format!("+{at:x} {}\n", relative(&format!("{spot:?}"), entry));
            if let Some(text) = text {
                let note = |from: usize, to: usize| {
                    let here = text.places.iter().find(|p| from < p.0 && p.0 < to);
                    here.map_or(String::new(), |p| format!(" # {}", relative(&format!("{:?}", p.2), entry)))
                };
                out += &listing(&text.bytes, Va(0), note);
            }
            if let Some((how, counter)) = increment {
                out += &format!("    {how:?} {counter}\n");
            }
        }
    }
    out
}

/// `text` with addresses in brackets as distances from `entry`, as far as they are near.
fn relative(text: &str, entry: Va) -> String {
    let Some((name, rest)) = text.split_once("(0x") else { return text.to_owned() };
    let number = rest.trim_end_matches(')');
    match u64::from_str_radix(number, 16) {
        Ok(at) if at.abs_diff(entry.0) < 0x1000 => {
            format!("{name}({:+#x})", at.wrapping_sub(entry.0).cast_signed())
        }
        _ => format!("{name}(…)"),
    }
}

/// What objdump makes of the code of a file: the address of each instruction, and its text.
pub fn disassembly(file: &[u8]) -> Vec<(Va, String)> {
    let text = binutils("objdump", &["-d", "-z", "--no-show-raw-insn"], file);
    let insn = |line: &str| {
        let (at, insn) = line.split_once(":\t")?;
        let insn = insn.split_whitespace().collect::<Vec<_>>().join(" ");
        Some((Va(u64::from_str_radix(at.trim(), 16).ok()?), insn))
    };
    text.lines().filter_map(insn).collect()
}

/// What one of the binutils says of a file; that there is nothing to warn of.
pub fn binutils(tool: &str, options: &[&str], file: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, file).expect("written");
    let said = std::process::Command::new(tool).args(options).arg(&path).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
    assert!(said.status.success(), "{tool}: {}", said.status);
    String::from_utf8(said.stdout).expect("text")
}

/// What a program that we have written does. As long as another test's child has the file open for writing,
/// from before its `exec`, it cannot be run ("Text file busy").
pub fn output(command: &mut std::process::Command) -> std::process::Output {
    loop {
        match command.output() {
            Err(err) if err.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            done => return done.expect("it runs"),
        }
    }
}

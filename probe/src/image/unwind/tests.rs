//! The reader of the tables is gimli's.

use crate::arch::shared::PAGE;
use crate::layout::place::Room;
use crate::module::Module;
use crate::plan::{Action, Plan, Point, Probe};
use crate::testing::{assembled, compiled, function};
use expect_test::{Expect, expect};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, LittleEndian, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
};
use nix::libc;
use program::arch::Decoder;
use program::{Program, Va};

/// Tables that can be searched: `.eh_frame_hdr` at its address, and the tables that it leads into.
struct Tables {
    header: (Va, Vec<u8>),
    frames: Vec<(Va, Vec<u8>)>,
}

impl Tables {
    /// Those of a rewritten module, with the old ones, which its header leads to as well.
    fn of(module: &Module<'_>) -> Tables {
        let segments = module.to_segments().expect("it can be mapped");
        let bytes = segments.tables[usize::try_from(PAGE).expect("small")..].to_vec();
        let at = Va(segments.tables_at + PAGE);
        // Version and encodings, where the old tables are, how many rows follow.
        let n_rows = u32::from_le_bytes(*bytes[8..].first_chunk().expect("a header")) as usize;
        let behind = bytes[12 + 8 * n_rows..].to_vec();
        let mut frames = vec![(at.plus((12 + 8 * n_rows) as u64), behind)];
        let old = module.program.image.unwind_tables();
        frames.extend(old.iter().map(|(at, bytes)| (*at, bytes.to_vec())));
        Tables { header: (at, bytes), frames }
    }

    /// The rows of the entry that a search for `at` finds: from where on, and what they say.
    fn rows(&self, at: Va) -> Vec<(Va, String)> {
        self.each_row(at, |row, _| {
            let mut registers: Vec<String> =
                row.registers().map(|(r, rule)| format!("{}={rule:?}", r.0)).collect();
            registers.sort();
            (Va(row.start_address()), format!("{:?} {}", row.cfa(), registers.join(" ")))
        })
    }

    /// What `f` says of each of those rows, and of the table that it stands in.
    fn each_row<T>(
        &self,
        at: Va,
        f: impl Fn(&UnwindTableRow<usize>, &EhFrame<EndianSlice<'_, LittleEndian>>) -> T,
    ) -> Vec<T> {
        let (header_at, header) = &self.header;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at.0);
        let parsed = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).expect("a header");
        let table = parsed.table().expect("it has a table");
        let entry = table.lookup(at.0, &bases).expect("it can be searched").direct().expect("no indirection");
        let is_in =
            |(start, bytes): &&(Va, Vec<u8>)| (start.0..start.0 + bytes.len() as u64).contains(&entry);
        let (start, bytes) = self.frames.iter().find(is_in).expect("it leads into a table");
        let frames = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(start.0);
        let offset = usize::try_from(entry - start.0).expect("small").into();
        let entry = frames.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).expect("an entry");
        let mut context = UnwindContext::new();
        let mut rows = entry.rows(&frames, &bases, &mut context).expect("rows");
        let mut out = Vec::new();
        while let Some(row) = rows.next_row().expect("a row") {
            out.push(f(row, &frames));
        }
        out
    }

    /// What holds at `at`.
    fn rule(&self, at: Va) -> String {
        let rows = self.rows(at);
        let row = rows.iter().rev().find(|row| row.0 <= at);
        row.unwrap_or_else(|| panic!("{at} has no row: {rows:?}")).1.clone()
    }
}

const TEXT: &str = "
    #include <stdio.h>
    int depth(int n, int (*f)(int)) { char text[64]; if (n <= 0) return f(0);
        sprintf(text, \"%d\", n); return depth(n - 1, f) + text[0] + f(n); }
    int sized(int n) { char a[n + 1]; for (int i = 0; i <= n; i++) a[i] = (char)(i * n); return a[n / 2]; }
    int twice(int n) { return sized(n) * 2; }
    int main(int n, char **v) { return depth(n, twice) + puts(v[0]); }";

fn held_against_old_rows(plan: &Plan) {
    for flags in ["-O2", "-O0", "-O2 -static"] {
        let program = compiled(TEXT, "c", flags);
        let module = Module::build(&program, plan, Room::Behind).expect("it can be moved");
        let tables = Tables::of(&module);
        let mut n_checked = 0;
        for name in ["depth", "sized", "twice", "main"] {
            for block in program.function(function(&program, name)).block_ids() {
                for insn in program.insns(block) {
                    let new = module.code_map.new_of(insn.at()).expect("it is moved");
                    assert_eq!(tables.rule(new), tables.rule(insn.at()), "{name}: {} at {new}", insn.at());
                    n_checked += 1;
                }
            }
        }
        assert!(n_checked > 100, "{n_checked}");
    }
}

#[test]
fn moved_instructions_are_unwound_as_old_ones_were() {
    held_against_old_rows(&Plan::NULL);
}

#[test]
fn so_are_those_that_code_of_ours_stands_before() {
    held_against_old_rows(&Plan::BLOCKS);
}

/// The rows of the moved function `f` that is `code`, with a counter before its instruction labelled `here`.
fn check(code: &str, want: &Expect) {
    let program = assembled(&[("_start", "call f\nhlt"), ("f", code)]);
    let f = program.function(function(&program, "f"));
    let here = program.image.symbols.iter().find(|s| &*s.name == "here").expect("there is one").at;
    let probe = Probe { point: Point::Before(here), action: Action::Count };
    let plan = Plan { probes: vec![probe], ..Plan::NULL };
    let module = Module::build(&program, &plan, Room::Behind).expect("it can be moved");
    let start = module.code_map.new_of(f.entry).expect("it is moved");
    let rows = Tables::of(&module).rows(start);
    let line = |(at, rule): &(Va, String)| format!("{:02x}: {rule}\n", at.since(start));
    want.assert_eq(&rows.iter().map(line).collect::<String>());
}

/// All registers are read, so that none is dead.
const ALL_LIVE: &str = "add %rbx,%rax\nadd %rcx,%rax\nadd %rdx,%rax\nadd %rsi,%rax\nadd %rdi,%rax\nadd %rbp,%rax\n\
    add %r8,%rax\nadd %r9,%rax\nadd %r10,%rax\nadd %r11,%rax\nadd %r12,%rax\nadd %r13,%rax\nadd %r14,%rax\n\
    add %r15,%rax\nret";

#[test]
fn a_counter_that_keeps_a_register_on_the_stack_moves_the_frame() {
    check(
        &format!("here: jo 1f\n{ALL_LIVE}\n1: {ALL_LIVE}"),
        &expect![[r#"
            00: RegisterAndOffset { register: Register(7), offset: 8 } 16=Offset(-8)
            24: RegisterAndOffset { register: Register(7), offset: 136 } 16=Offset(-8)
            25: RegisterAndOffset { register: Register(7), offset: 144 } 16=Offset(-8)
            3a: RegisterAndOffset { register: Register(7), offset: 136 } 16=Offset(-8)
            42: RegisterAndOffset { register: Register(7), offset: 8 } 16=Offset(-8)
        "#]],
    );
}

#[test]
fn a_frame_by_another_register_is_not_moved() {
    let frame = "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp,-16\nmov %rsp,%rbp\n.cfi_def_cfa_register %rbp\n\
        here: jo 1f\nadd %rbx,%rax\n1: adc %rcx,%rax\nadd %rdx,%rax\nadd %rsi,%rax\nadd %rdi,%rax\nadd %r8,%rax\n\
        add %r9,%rax\nadd %r10,%rax\nadd %r11,%rax\nadd %r12,%rax\nadd %r13,%rax\nadd %r14,%rax\nadd %r15,%rax\n\
        leave\n.cfi_def_cfa %rsp,8\nret";
    check(
        frame,
        &expect![[r#"
            00: RegisterAndOffset { register: Register(7), offset: 8 } 16=Offset(-8)
            20: RegisterAndOffset { register: Register(7), offset: 16 } 16=Offset(-8) 6=Offset(-16)
            23: RegisterAndOffset { register: Register(6), offset: 16 } 16=Offset(-8) 6=Offset(-16)
            70: RegisterAndOffset { register: Register(7), offset: 8 } 16=Offset(-8) 6=Offset(-16)
        "#]],
    );
}

/// What an expression comes to where the stack pointer is `stack` and each word of memory its own address,
/// backwards.
fn value(of: UnwindExpression<usize>, frames: &EhFrame<EndianSlice<'_, LittleEndian>>, stack: u64) -> u64 {
    let expression = of.get(frames).expect("an expression");
    let mut evaluation = expression.evaluation(gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    });
    let mut result = evaluation.evaluate().expect("operations");
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register: gimli::Register(7), .. } => {
                evaluation.resume_with_register(gimli::Value::Generic(stack))
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(!address))
            }
            other => panic!("{other:?}"),
        }
        .expect("operations");
    }
    evaluation.value_result().map_or_else(
        || match evaluation.as_result() {
            [gimli::Piece { location: gimli::Location::Address { address }, .. }] => *address,
            other => panic!("{other:?}"),
        },
        |value| value.to_u64(u64::MAX).expect("a number"),
    )
}

/// A program whose blocks and indirect calls are counted.
fn counted() -> Program {
    compiled(TEXT, "c", "-O2")
}

/// The registers by DWARF's numbers, as the C library says where the kernel has them.
const REGISTERS: [i32; 17] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
    libc::REG_RIP,
];

#[test]
fn what_a_signal_handler_returns_to_has_the_registers_of_its_context() {
    let program = counted();
    let module = Module::build(&program, &Plan::BLOCKS, Room::Behind).expect("it can be counted");
    let signalled = module.runtime.as_ref().expect("it is counted").signalled;
    let stack = 0x7fff_0000;
    let place = |n: i32| {
        let into =
            std::mem::offset_of!(libc::ucontext_t, uc_mcontext) + 8 * usize::try_from(n).expect("positive");
        stack + into as u64
    };
    // Unwinders look a return address up by the byte before it.
    for at in [Va(signalled.0 - 1), signalled] {
        let [(frame, places)] = &Tables::of(&module).each_row(at, |row, frames| {
            let CfaRule::Expression(cfa) = row.cfa() else { panic!("{row:?}") };
            let place = |n| match row.register(gimli::Register(n)) {
                Some(RegisterRule::Expression(of)) => value(of, frames, stack),
                other => panic!("{n}: {other:?}"),
            };
            (value(*cfa, frames, stack), (0..17).map(place).collect::<Vec<u64>>())
        })[..] else {
            panic!("one row")
        };
        assert_eq!(*frame, !place(libc::REG_RSP));
        assert_eq!(places, &REGISTERS.map(place));
    }
}

/// The rows of a routine of the runtime lead to its caller, wherever it is, by what the decoder says of its
/// instructions: those up to its return are on one way.
fn held_against_instructions(module: &Module<'_>, code: std::ops::Range<Va>) {
    let runtime = module.runtime.as_ref().expect("it is counted");
    let from = |at: Va| usize::try_from(at.since(runtime.at)).expect("in the runtime");
    let rows = Tables::of(module).each_row(code.start, |row, _| {
        let CfaRule::RegisterAndOffset { register: gimli::Register(7), offset } = row.cfa() else {
            panic!("{row:?}")
        };
        (Va(row.start_address()), *offset)
    });
    let decoder = Decoder::new(&runtime.bytes[from(code.start)..from(code.end)], code.start);
    let mut depth = 8;
    for insn in decoder {
        let row = rows.iter().rev().find(|row| row.0 <= insn.at()).expect("it has a row");
        assert_eq!(row.1, depth, "before {insn} at {}", insn.at());
        if !insn.flow().falls_through() {
            break;
        }
        let i = insn.iced();
        depth += match i.mnemonic() {
            iced_x86::Mnemonic::Lea if i.op0_register() == iced_x86::Register::RSP => {
                -i.memory_displacement64().cast_signed()
            }
            iced_x86::Mnemonic::Sub if i.op0_register() == iced_x86::Register::RSP => {
                i.immediate(1).cast_signed()
            }
            iced_x86::Mnemonic::Add if i.op0_register() == iced_x86::Register::RSP => {
                -i.immediate(1).cast_signed()
            }
            iced_x86::Mnemonic::Call => 0,
            _ => -i64::from(i.stack_pointer_increment()),
        };
    }
}

#[test]
fn routines_that_may_be_on_a_stack_are_unwound_by_it() {
    let program = counted();
    let plan = Plan { indirect_calls: true, ..Plan::BLOCKS };
    let module = Module::build(&program, &plan, Room::Behind).expect("it can be counted");
    let runtime = module.runtime.as_ref().expect("it is counted");
    held_against_instructions(&module, runtime.last.clone());
    let (len, _) = crate::arch::Runtime::indirect_call_frame();
    held_against_instructions(&module, runtime.callee..runtime.callee.plus(len));
    // Behind its return, where it goes on, all is as far down, and rbx is kept.
    let end = Tables::of(&module).rows(runtime.callee).pop().expect("a row").1;
    expect!["RegisterAndOffset { register: Register(7), offset: 104 } 16=Offset(-8) 3=Offset(-56)"]
        .assert_eq(&end);
}

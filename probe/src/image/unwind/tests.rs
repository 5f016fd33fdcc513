//! The reader of the tables is gimli's.

use crate::layout::place::{PAGE, Room};
use crate::module::Module;
use crate::plan::{Action, Plan, Point, Probe};
use crate::testing::{assembled, compiled, function};
use expect_test::{Expect, expect};
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindContext, UnwindSection};
use program::Va;

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
            let mut registers: Vec<String> =
                row.registers().map(|(r, rule)| format!("{}={rule:?}", r.0)).collect();
            registers.sort();
            out.push((Va(row.start_address()), format!("{:?} {}", row.cfa(), registers.join(" "))));
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

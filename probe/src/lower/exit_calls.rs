//! Calls that end the process, or make another program of it: it is written down before them that the thread
//! is at a call, not in the middle of a block, and which threads are no more. And calls that let a thread be
//! cancelled anywhere.
//!
//! Not here: what is done then, and when the program ends by `exit` (`arch`).

use crate::arch::emit;
use crate::code::{Insert, Target, Text};
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::select::address_taken::is_taken;
use program::{CallKind, Callee, Function, Program, libc};

/// What a function of the C library does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It ends the process without what `exit` does last.
    End,
    /// The same, but functions of the program run first.
    EndSoon,
    /// It ends the process by SIGABRT.
    Abort,
    /// It makes another program of it, or comes back.
    Exec,
    /// It returns in a child that has its parent's memory, and then in the parent.
    Vfork,
    /// It says whether the thread may be cancelled anywhere.
    Cancel,
}

fn what(name: &str) -> Option<Does> {
    let all = [
        (libc::LENDS_MEMORY, Does::Vfork),
        (libc::SETS_CANCELLATION, Does::Cancel),
        (libc::EXITS_QUICKLY, Does::EndSoon),
        (libc::ENDS_AT_ONCE, Does::End),
        (libc::ABORTS, Does::Abort),
        (libc::EXECS, Does::Exec),
    ];
    let behaviour = libc::behaviour(name);
    all.into_iter().find(|(what, _)| behaviour.has(*what)).map(|(_, does)| does)
}

/// Whether a signal handler may be a function of the C library that ends the process: then nothing says
/// that the thread was in the middle of a block.
pub fn are_taken(program: &Program) -> bool {
    let ends = libc::EXITS.with(libc::EXITS_QUICKLY).with(libc::ENDS_AT_ONCE);
    let is_name = |name: &str| libc::does(name, ends);
    let is_static = program.image.kind.is_static();
    let is_one = |f: &Function| {
        f.import.as_deref().is_some_and(is_name) || is_static && f.names.iter().any(|name| is_name(name))
    };
    let functions: Vec<bool> = program.functions.iter().map(is_one).collect();
    is_taken(program, &functions, is_name)
}

/// Has it written down, at all such calls of functions that are moved.
pub fn note(program: &Program, not_moved: &[Option<NotMoved>], inserts: &mut Vec<Written>) {
    let is_static = program.image.kind.is_static();
    let imports: Vec<Option<Does>> = program.imports.iter().map(|name| what(name)).collect();
    let of_function = |function: &Function| {
        let names = function.names.iter().filter(|_| is_static).map(AsRef::as_ref);
        function.import.as_deref().into_iter().chain(names).find_map(what)
    };
    let functions: Vec<Option<Does>> = program.functions.iter().map(of_function).collect();
    let of = |callee| match callee {
        Callee::Import(n) => imports.get(n as usize).copied().flatten(),
        Callee::Function(id) => functions.get(id.index()).copied().flatten(),
        Callee::Unknown(_) | Callee::Indirect => None,
    };
    for call in &program.calls {
        let Some(does) = of(call.callee) else { continue };
        let func = program.block(call.block).func;
        if not_moved.get(func.index()).is_none_or(Option::is_some) {
            continue;
        }
        // It is not the thread whose pointer it has that ends.
        let names = || program.function(func).names.iter().map(AsRef::as_ref);
        if is_static && names().any(|name| libc::does(name, libc::RUNS_SPAWNED)) {
            continue;
        }
        // Who may come back must come back to us. Before a branch, flags are alive.
        let comes_back = matches!(does, Does::Exec | Does::Vfork);
        if call.kind != CallKind::Call && (call.kind != CallKind::TailCall || comes_back) {
            continue;
        }
        let (before, after) = match does {
            Does::End => (Some(Target::Leave), None),
            Does::EndSoon => (Some(Target::Back), None),
            Does::Abort => (Some(Target::Abort), None),
            Does::Exec => (Some(Target::Leave), Some(Target::Back)),
            Does::Cancel => (Some(Target::Cancel), None),
            Does::Vfork => (None, Some(Target::Vforked)),
        };
        let before = before.map(|to| (Spot::Before(call.at), to));
        let after = after.map(|to| (Spot::After(call.at), to));
        for (spot, to) in before.into_iter().chain(after) {
            inserts.push(((call.block, spot), by_way_of(to)));
        }
    }
}

/// Code that goes to `other`, which goes on behind it.
fn by_way_of(other: Target) -> Insert {
    let (mut bytes, [next, to]) = emit::BY_WAY_OF;
    bytes[next] = u8::try_from(bytes.len() - (next + 4)).expect("a few bytes");
    let text = Text { bytes: bytes.to_vec(), places: vec![(to, to + 4, other)], ..Text::default() };
    Insert { text: Some(Box::new(text)), ..Insert::default() }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::testing::{compiled, function, inserts};
    use expect_test::expect;

    /// A function `f` that calls `names`, counted.
    fn of_calls(names: &[&str]) -> String {
        let calls: String = names.iter().map(|name| format!("call {name}@PLT\n")).collect();
        let text = format!(
            ".text\n.globl main\nmain: xor %eax,%eax\ncall f\nret\n.type f,@function\nf: {calls}ret\n\
             .section .note.GNU-stack\n"
        );
        let program = compiled(&text, "s", "-no-pie");
        inserts(&program, &Plan::BLOCKS, function(&program, "f"))
    }

    #[test]
    fn it_is_noted_before_a_call_that_ends_the_process() {
        expect![[r#"
            +0 Found
            00: lea 0x1f,%r11
            07: jmp 0xc # Slow
            +0 Checked
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x11,%r11 # Owner
            11: jne 0xfffffffffffffff4
            +0 Before(+0x0)
            00: incq %gs:0x8 # Counter(21)
            08: lea 0x14,%r11
            0f: jmp 0x14 # Leave
            +0 FromInside(+0x0)
        "#]]
        .assert_eq(&of_calls(&["_exit"]));
        expect![[r#"
            +0 Found
            00: lea 0x1f,%r11
            07: jmp 0xc # Slow
            +0 Checked
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x11,%r11 # Owner
            11: jne 0xfffffffffffffff4
            +0 Before(+0x0)
            00: incq %gs:0x8 # Counter(21)
            08: lea 0x14,%r11
            0f: jmp 0x14 # Abort
            +0 FromInside(+0x0)
        "#]]
        .assert_eq(&of_calls(&["abort"]));
    }

    #[test]
    fn what_comes_back_is_noted_behind_the_call() {
        expect![[r#"
            +0 Found
            00: lea 0x1f,%r11
            07: jmp 0xc # Slow
            +0 Checked
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x11,%r11 # Owner
            11: jne 0xfffffffffffffff4
            +0 Before(+0x0)
            00: incq %gs:0x8 # Counter(22)
            08: lea 0x14,%r11
            0f: jmp 0x14 # Leave
            +0 Before(+0x5)
                Flags 23
            +0 After(+0x0)
            00: lea 0xc,%r11
            07: jmp 0xc # Back
            +0 After(+0x5)
            00: lea 0xc,%r11
            07: jmp 0xc # Vforked
            +0 FromInside(+0x0)
            +0 FromInside(+0x5)
            +a Before(+0xa)
                Flags 24
            +a FromInside(+0xa)
        "#]]
        .assert_eq(&of_calls(&["execve", "vfork", "getpid"]));
    }
}

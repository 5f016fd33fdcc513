//! Threads that come to moved code out of the middle of old code.

use super::*;

/// Code that goes to the routine `name` as old code does: what `before` does to the stack, then a jump.
/// `word` is what it may push: behind the code, which is 14 bytes longer than `before`.
fn coming(world: &World, before: &[u8], name: &str, word: u64) -> u64 {
    let mut code = before.to_vec();
    code.extend([0xff, 0x25, 8, 0, 0, 0]); // jmp *8(%rip)
    code.extend(word.to_le_bytes());
    code.extend(world.label(name).to_le_bytes());
    world.put(DATA + 1024, &code)
}

/// Registers that all hold something, with flags that are set.
fn full() -> Registers {
    let flags = 0xad7; // carry, parity, adjust, zero, sign, overflow; two are always set
    Registers {
        rax: 1,
        rcx: 2,
        rdx: 3,
        rbx: 4,
        rbp: 5,
        rsi: 6,
        rdi: 7,
        r8: 8,
        r9: 9,
        r10: 10,
        r11: 11,
        r12: 12,
        r13: 13,
        r14: 14,
        r15: 15,
        flags,
        ..Registers::default()
    }
}

/// Of a thread that has counters, and of one that gets some by that.
fn check_both(what: impl Fn(&World, Registers) -> (Registers, Registers)) {
    for has_counters in [true, false] {
        let world = World::new();
        if !has_counters {
            set_thread(0, 0, 0, 0);
            write(world.at + HOME + offset!(HomePage, owner), 0u64);
        }
        let (got, want) = what(&world, full());
        check(got, want);
        check(read::<u64>(world.at + HOME + offset!(HomePage, owner)), thread_pointer());
    }
}

#[test]
fn who_comes_back_goes_on_with_all_registers() {
    check_both(|world, before| {
        // push %r11; mov TEXT,%r11
        let code = coming(world, &[0x41, 0x53, 0x4c, 0x8b, 0x1d, 6, 0, 0, 0], "returned", world.at + TEXT);
        (world.call_at(code, before).kept(), before.kept())
    });
}

#[test]
fn who_was_stopped_goes_on_with_all_registers_and_flags() {
    check_both(|world, before| {
        // lea -128(%rsp),%rsp; push TEXT
        let code = coming(
            world,
            &[0x48, 0x8d, 0x64, 0x24, 0x80, 0xff, 0x35, 6, 0, 0, 0],
            "taken_over",
            world.at + TEXT,
        );
        (world.call_at(code, before), before)
    });
}

#[test]
fn the_owner_of_counters_is_known() {
    let world = World::new();
    check(world.call("is_owner", Registers::default()).is_zero(), true);
    write(world.at + HOME + offset!(HomePage, owner), 0u64);
    check(world.call("is_owner", Registers::default()).is_zero(), false);
}

# How threads come to moved code of a module that was put into a process while it ran: out of the middle of
# what they did in old code, with whatever counters the one had that made them.

# A thread that comes back from a call which old code made. On the stack: what was in r11. r11: where to go
# on. Below the stack pointer nothing is kept there.
.globl engraft_module_returned
engraft_module_returned:
    push rax
    push rcx
    call .Lengraft_is_owner
    pop rcx
    pop rax
    je 2f
    push r11
    lea r11, [rip + 1f]
    jmp engraft_module_slow
1:
    pop r11
2:
    xchg [rsp], r11
    ret

# A thread that was stopped anywhere, and is to go on where the word on the stack says, which stands right
# below the red zone. All registers and the flags may mean something.
.globl engraft_module_taken_over
engraft_module_taken_over:
    pushfq
    push r11
    push rax
    push rcx
    call .Lengraft_is_owner
    pop rcx
    pop rax
    je 2f
    lea r11, [rip + 2f]
    jmp engraft_module_slow
2:
    pop r11
    popfq
    ret 128

# Zero if this thread owns the counters that it has. Keeps all registers but rax and rcx.
.Lengraft_is_owner:
    lea rax, [rip + engraft_module]
    add rax, [rax]
    rdfsbase rcx
    cmp gs:[rax + {owner}], rcx
    ret

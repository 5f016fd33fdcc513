# What snippets of tests call: each is copied behind them, and notes what it was given behind itself.
.pushsection .rodata

# The routine of a probe: it loses all that the ABI lets it lose.
.globl engraft_test_routine
engraft_test_routine:
    mov [rip + 2f], rdi
    mov [rip + 2f + 8], rsi
    mov [rip + 2f + 16], rsp
    mov rax, -1
    mov rcx, rax
    mov rdx, rax
    mov rsi, rax
    mov rdi, rax
    mov r8, rax
    mov r9, rax
    mov r10, rax
    mov r11, rax
    add eax, 1          # CF PF AF ZF, no SF OF
    ret
    .balign 8
2:  .zero 24
.globl engraft_test_routine_end
engraft_test_routine_end:

# What an indirect call that leads elsewhere is told to: r11, and the site's number, which it takes off.
.globl engraft_test_callee
engraft_test_callee:
    mov [rip + 2f], r11
    push rax
    mov rax, [rsp + 16]
    mov [rip + 2f + 8], rax
    pop rax
    inc qword ptr [rip + 2f + 16]
    ret 8
    .balign 8
2:  .zero 24
.globl engraft_test_callee_end
engraft_test_callee_end:

# What takes another chunk of events: behind it, where NEXT is, what it and LIMIT become, whether there is
# one, and how often it was called.
.globl engraft_test_chunk
engraft_test_chunk:
    push rax
    push rcx
    mov rax, [rip + 2f]
    mov rcx, [rip + 2f + 8]
    mov [rax], rcx
    mov rcx, [rip + 2f + 16]
    mov [rax + 8], rcx
    inc qword ptr [rip + 2f + 32]
    cmp qword ptr [rip + 2f + 24], 0
    pop rcx
    pop rax
    ret
    .balign 8
2:  .zero 40
.globl engraft_test_chunk_end
engraft_test_chunk_end:
.popsection

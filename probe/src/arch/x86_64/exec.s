# What a program runs in place of an `execve` or `execveat`. See `exec_page` in `system_calls.rs`.
#
# It is called. All registers are kept but rax, rcx and r11, as by the system call. Signals wait while the
# launcher is asked, so that no handler finds the thread asking.
.pushsection .rodata
.balign 16
.globl engraft_exec, engraft_execve, engraft_execveat, engraft_exec_end
engraft_exec:
    .zero {mask}        # `shared::ExecPage`
    .quad -1            # all signals
engraft_execve:
    mov eax, 59
    jmp 1f
engraft_execveat:
    mov eax, 322
1:
    push rax
    push rdi
    push rsi
    push rdx
    push r10
    push r8
    push r9
    push rbx
    push rbp
    push r12
    push r13
    sub rsp, 8
    mov rbx, [rip + engraft_exec + {requests}]
    mov r13, [rip + engraft_exec + {owner}]
    test dword ptr [r13], 0x40000000
    jnz 9f
    mov edi, 2          # SIG_SETMASK
    lea rsi, [rip + engraft_exec + {mask}]
    mov rdx, rsp
    mov r10d, 8
    mov eax, 14         # rt_sigprocmask
    syscall
    mov eax, 186        # gettid: after vfork, what is kept of us is our parent's
    syscall
    mov r12d, eax
2:  # a slot
    lea rbp, [rbx + {slots}]
3:
    xor eax, eax
    lock cmpxchg [rbp], r12d
    jz 5f
    add rbp, {slot_len}
    lea rax, [rbx + {len}]
    cmp rbp, rax
    jb 3b
    mov eax, 24         # sched_yield
    syscall
    test dword ptr [r13], 0x40000000
    jz 2b
    jmp 8f
5:
    mov rax, [rsp + 88]
    mov [rbp + {number}], rax
    mov rax, [rsp + 80]
    mov [rbp + {args}], rax
    mov rax, [rsp + 72]
    mov [rbp + {args} + 8], rax
    mov rax, [rsp + 48]
    mov [rbp + {args} + 16], rax
    mov dword ptr [rbp + {state}], 1
    lock inc dword ptr [rbx]
    mov rdi, rbx
    mov esi, 1          # FUTEX_WAKE
    mov edx, 1
    mov eax, 202
    syscall
6:
    push 20000000       # 20 ms
    push 0
    lea rdi, [rbp + {state}]
    xor esi, esi        # FUTEX_WAIT
    mov edx, 1
    mov r10, rsp
    mov eax, 202        # futex
    syscall
    pop rcx
    pop rcx
    cmp dword ptr [rbp + {state}], 1
    jne 7f
    # Nobody answers any more: the launcher said so, or the kernel when the launcher died.
    test dword ptr [r13], 0x40000000
    jz 6b
7:
    mov dword ptr [rbp + {state}], 0
    mov dword ptr [rbp], 0
8:
    mov edi, 2
    mov rsi, rsp
    xor edx, edx
    mov r10d, 8
    mov eax, 14
    syscall
9:
    add rsp, 8
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r9
    pop r8
    pop r10
    pop rdx
    pop rsi
    pop rdi
    pop rax
    syscall
    ret
engraft_exec_end:
.popsection

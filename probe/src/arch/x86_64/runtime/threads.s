# What is known of each thread: its number, and whether it still runs.

# Writes down that this thread runs, of which rax is what is kept: its number, and where its C library keeps
# that as long as it is there. The kernel, or that library, overwrites it when the thread ends, before anybody
# can have waited for it. Which library it is, is known by what stands beside it; nothing is asked that
# filters may forbid. rbp: its thread pointer.
.Lengraft_begins:
    push r13
    push r14
    mov r13, rax
    mov r14, [rax + {thread_area}]
    call .Lengraft_state
    jz 2f
    mov byte ptr [rax], {may_run}
2:
    xor eax, eax
    call .Lengraft_number
    mov dword ptr [r13 + {thread_number_at}], 0
    lea rdi, [rbp + {robust_glibc}]
    mov r9d, {robust_offset}
    mov r14d, {tid_glibc}
    call .Lengraft_holds
    test rax, rax
    jns 3f
    lea rdi, [rbp + {detach_musl}]
    mov r9d, {joinable_musl}
    mov r14d, {tid_musl}
    call .Lengraft_holds
    test rax, rax
    jns 3f
    lea rdi, [rbp + {detach_musl}]
    mov r9d, {joinable_musl} + 1
    call .Lengraft_holds
    test rax, rax
    js 9f
3:
    mov eax, [rbp + r14]
    test eax, eax
    jle 9f
    mov [r13 + {thread_number}], eax
    mov [r13 + {thread_number_at}], r14d
    call .Lengraft_number
9:
    pop r14
    pop r13
    ret

# Where events are recorded, writes down that the thread whose events are at distance r15 has the number eax.
.Lengraft_number:
    cmp qword ptr [rip + engraft_module + {module_has_events}], 0
    je 9f
    lea rdi, [rip + engraft_module]
    add rdi, [rdi]
    mov [rdi + r15 + {home_head} + {events_number}], eax
9:
    ret

# rax: not negative if r9d stands at rdi, where there may be nothing.
.Lengraft_holds:
    mov esi, 132        # FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, of nobody
    xor edx, edx
    xor r10d, r10d
    mov r8, r12
    mov eax, 202        # futex
    syscall
    ret

# rax: where it is written down what is known of the thread of area r14; flags: zero if that is nowhere.
.Lengraft_state:
    mov rax, [rbx + {states_at}]
    test rax, rax
    jz 9f
    cmp r14, [rbx + {max_areas}]
    jae 8f
    add rax, rbx
    add rax, r14
    ret
8:
    xor eax, eax
9:
    ret

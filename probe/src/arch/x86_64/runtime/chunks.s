# Chunks of events.

# Takes another chunk for events, where there is no room in the one that is filled; all registers are kept.
# Flags: zero if nothing is recorded. Signals wait meanwhile: a handler's events come before or behind.
.globl engraft_module_chunk
engraft_module_chunk:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    lea rbx, [rip + engraft_module]
    add rbx, [rbx]
    add rbx, {home_head}
    cmp qword ptr gs:[rbx + {events_base}], 0
    je 9f
    cmp qword ptr gs:[rbx + {events_lost}], 0
    je 1f
    call .Lengraft_into_nothing
    test rsp, rsp
    jmp 9f
1:
    sub rsp, 16
    mov eax, 14         # rt_sigprocmask
    mov edi, 2          # SIG_SETMASK
    lea rsi, [rip + engraft_module + {module_mask}]
    mov rdx, rsp
    mov r10d, 8
    syscall
    mov rax, gs:[rbx]
    cmp rax, gs:[rbx + {events_limit}]
    jb 7f               # a handler has got one
    cmp qword ptr gs:[rbx + {events_limit}], 0
    je 6f
    mov ecx, gs:[rbx + {events_chunk}]
    mov dword ptr gs:[rbx + 4 * rcx + {events_full}], 1
    inc ecx
    and ecx, {n_chunks} - 1
    cmp dword ptr gs:[rbx + 4 * rcx + {events_full}], 0
    je 5f
    inc qword ptr gs:[rbx + {events_stalls}]
2:
    mov rax, gs:[rbx + {events_taker}]
    test dword ptr [rax], 0x40000000 # FUTEX_OWNER_DIED
    jnz 4f
    push rcx
    push 1000000        # ns
    push 0
    mov rdi, gs:[rbx + {events_control}]
    lea rdi, [rdi + 4 * rcx + {events_full}]
    xor esi, esi        # FUTEX_WAIT
    mov edx, 1
    mov r10, rsp
    mov eax, 202        # futex
    syscall
    pop rax
    pop rax
    pop rcx
    cmp dword ptr gs:[rbx + 4 * rcx + {events_full}], 0
    jne 2b
    jmp 5f
4:  # nobody is there
    mov qword ptr gs:[rbx + {events_lost}], 1
    call .Lengraft_into_nothing
    jmp 7f
5:
    mov gs:[rbx + {events_chunk}], rcx
    imul rcx, rcx, {chunk_len}
    add rcx, gs:[rbx + {events_base}]
    mov gs:[rbx], rcx
    add rcx, {chunk_len} - {chunk_room}
    mov gs:[rbx + {events_limit}], rcx
    jmp 7f
6:
    push 0
    jmp 8f
7:
    push 1
8:
    lea rsi, [rsp + 8]
    xor edx, edx
    mov edi, 2
    mov r10d, 8
    mov eax, 14
    syscall
    pop rcx
    add rsp, 16
    test ecx, ecx
9:
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    ret

# From here on events go round where nobody reads them: that is as quick as before, and nothing else is to be
# asked at each.
.Lengraft_into_nothing:
    mov rcx, gs:[rbx + {events_control}]
    add rcx, {events_nothing}
    mov gs:[rbx], rcx
    add rcx, {events_nothing_len} - {chunk_room}
    mov gs:[rbx + {events_limit}], rcx
    ret

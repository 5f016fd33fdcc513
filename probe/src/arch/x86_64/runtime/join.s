# How a module gets its counters in the recording.

# Gives this module its counters in the recording. r8: the environment.
.Lengraft_join:
    sub rsp, 16
    mov r15, r8
    call .Lengraft_find
    jz 2f
    cmp qword ptr [rip + engraft_module + 56], 0
    je 26f
    call .Lengraft_create
    jz 2f
26:  # nothing is recorded: all threads and children count in this process, to no end
    lea rax, [rip + engraft_module]
    add rax, [rax]
    mov qword ptr [rax + 4080], 1
    jmp 85f
2:
    call .Lengraft_lock
    call .Lengraft_refresh
    cmp qword ptr [rip + engraft_module + 72], 0
    je 25f
    call .Lengraft_is_started
    jnz 8f              # its code ran before its DT_INIT
25:
    xor r14d, r14d
3:
    cmp r14d, [rbx + {n_rows}]
    jae 5f
    mov eax, r14d
    shl eax, 6
    lea rdx, [rbx + rax + {rows_at}]
    mov rax, [rdx]
    cmp rax, [rip + engraft_module + 16]
    jne 4f
    mov rax, [rdx + 8]
    cmp rax, [rip + engraft_module + 24]
    jne 4f
    mov rax, [rdx + 16]
    cmp rax, [rip + engraft_module + 40]
    jne 4f
    call .Lengraft_home # not the row of a second copy of it that is loaded, too
    jz 6f
    lea rcx, [rip + engraft_module]
    cmp [r8 + 8], rcx
    je 6f
4:
    inc r14d
    jmp 3b
5:
    call .Lengraft_add_row
    jnz .Lengraft_alone
6:
    lea rcx, [rip + engraft_module]
    mov rbp, rcx
    add rbp, [rcx]      # the home
    mov eax, r14d
    shl eax, 6
    lea rax, [r12 + rax + {homes}]
    mov [rax + 8], rcx
    mov [rax + 24], rcx
    mov rdx, rcx
    add rdx, [rcx + 80]
    mov [rax + 16], rdx
    mov rdx, rcx
    mov rdi, rcx
    add rdx, [rcx + 88]
    mov [rax + 32], rdx
    add rdi, [rcx + 96]
    mov [rax + 40], rdi
    mov [rax], rbp      # last: who reads these without the lock, sees it empty or whole
    xor ecx, ecx        # what was there before is there no more
63:
    cmp ecx, [rbx + {n_rows}]
    jae 65f
    mov esi, ecx
    shl esi, 6
    lea rsi, [r12 + rsi + {homes}]
    inc ecx
    cmp rsi, rax
    je 63b
    cmp rdx, [rsi + 40]
    jae 63b
    cmp rdi, [rsi + 32]
    jbe 63b
    mov qword ptr [rsi], 0
    jmp 63b
65:
    push 0              # threads done
7:
    mov rax, [rsp]
    cmp rax, [r12 + {n_threads}]
    jae 77f
    imul rax, rax, {thread_len}
    lea rax, [r12 + rax + {threads}]
    mov r15, [rax + 8]
    mov r13, [rax + 16]
    push qword ptr [rax]
    test r15, r15
    jnz 73f
    xor edi, edi        # what was counted so far goes to the first area
    call .Lengraft_map_shared
    test rax, rax
    js 74f
    mov rdi, rax
    call .Lengraft_row_len
    mov rcx, [rip + engraft_module + 104]
71:
    sub rcx, 8
    jb 715f
    mov rdx, [rbp + rcx + 4096]
    add [rdi + rcx], rdx
    jmp 71b
715:
    call .Lengraft_join_callees
72:
    mov rsi, rax
    mov rdx, rax
    mov r10d, 3         # MREMAP_MAYMOVE | MREMAP_FIXED
    lea r8, [rbp + 4096]
    mov eax, 25         # mremap
    syscall
    mov rdi, rbp
    call .Lengraft_wipe
    jmp 75f
73:
    mov rdi, rbp
    call .Lengraft_map_home
    jz 75f
    cmp rax, -17        # EEXIST: there since it was loaded at this place before
    je 75f
74:
    lock inc qword ptr [rbx + {n_shared}]
    pop rax
    jmp 76f
75:
    pop rax
    mov [rbp + r15 + 4088], rax
    mov byte ptr [rbp + r15 + 4072], 1
76:
    inc qword ptr [rsp]
    jmp 7b
77:
    pop rax
8:
    call .Lengraft_set_started
    call .Lengraft_unlock
    jmp 9f
85:
    call .Lengraft_set_started
9:
    add rsp, 16
    ret
.Lengraft_alone:        # no row: the threads that are there get private counters, all later ones share the first one's
    mov qword ptr [r12 + {is_full}], 1
    lock inc qword ptr [rbx + {n_shared}]
    lea rbp, [rip + engraft_module]
    add rbp, [rbp]
    xor r13d, r13d
2:
    cmp r13, [r12 + {n_threads}]
    jae 8b
    imul r14, r13, {thread_len}
    lea r14, [r12 + r14 + {threads}]
    mov r15, [r14 + 8]
    test r15, r15
    jz 3f
    lea rdi, [rbp + r15]
    mov rsi, [rip + engraft_module + 40]
    add rsi, 4096
    mov edx, 3
    mov r10d, 0x104022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    mov r8, -1
    xor r9d, r9d
    mov eax, 9          # mmap
    syscall
    test rax, rax
    js 4f
3:
    mov rax, [r14]
    mov [rbp + r15 + 4088], rax
4:
    inc r13
    jmp 2b

# What calls through pointers led to so far, at home rbp, goes to the area at rdi: keeps rdi, rax. What
# another process has led elsewhere before is not looked for: that goes to where the table had no room for.
.Lengraft_join_callees:
    push rax
    lea r8, [rip + engraft_module]
    mov r9, [r8 + 104]
    mov ecx, [r8 + 112]
2:
    sub ecx, 1
    jb 5f
    lea rsi, [rbp + r9 + 4096]
    mov rdx, [rsi + 8]
    cmp qword ptr [rdi + r9], 0
    jne 3f
    mov rax, [rsi]
    mov [rdi + r9], rax
3:
    mov rax, [rsi]
    cmp rax, [rdi + r9]
    jne 4f
    add [rdi + r9 + 8], rdx
    xor edx, edx
4:
    add rdx, [rsi + 16]
    add [rdi + r9 + 16], rdx
    add r9, 24
    jmp 2b
5:
    cmp dword ptr [r8 + 112], 0
    je 7f
    mov rsi, r8
    add rsi, [r8 + 120]
    mov rcx, [r8 + 128]
6:
    mov rax, [rsi]
    mov rdx, [rsi + 16]
    test rax, rax
    jz 65f
    add [rdi + 8 * rax + 16], rdx
65:
    add rsi, 32
    sub rcx, 1
    jnb 6b
7:
    pop rax
    ret

# A row for this module, r14; zero if there is one now.
.Lengraft_add_row:
    cmp qword ptr [r12 + {path_len}], 0
    je 8f
    mov r14d, [rbx + {n_rows}]
    cmp r14, [rbx + {max_rows}]
    jae 8f
    mov eax, r14d
    shl eax, 6
    lea rbp, [rbx + rax + {rows_at}]
    mov rsi, [rip + engraft_module + 56]
    add rsi, 4095
    and rsi, -4096
    call .Lengraft_grow
    js 8f
    mov r13, rax
    call .Lengraft_open
    test rax, rax
    js 8f
    mov r15, rax
    mov rdi, rax
    lea rsi, [rip + engraft_module]
    add rsi, [rip + engraft_module + 48]
    mov rdx, [rip + engraft_module + 56]
    mov r10, r13
    mov eax, 18         # pwrite64
    syscall
    push rax
    mov rdi, r15
    mov eax, 3          # close
    syscall
    pop rax
    mov rdx, [rip + engraft_module + 56]
    cmp rax, rdx
    jne 9f
    mov rax, [rip + engraft_module + 16]
    mov [rbp], rax
    mov rax, [rip + engraft_module + 24]
    mov [rbp + 8], rax
    mov rax, [rip + engraft_module + 40]
    mov [rbp + 16], rax
    mov [rbp + 24], r13
    mov [rbp + 32], rdx
    inc dword ptr [rbx + {n_rows}]
    xor eax, eax
    ret
8:
    or eax, 1
9:
    ret

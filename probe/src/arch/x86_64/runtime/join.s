# How a module gets its counters in the recording.

# Gives this module its counters in the recording. r8: the environment.
.Lengraft_join:
    sub rsp, 16
    mov r15, r8
    call .Lengraft_find
    jz 2f
    cmp qword ptr [rip + engraft_module + {module_notes_len}], 0
    je 26f
    call .Lengraft_create
    jz 2f
26:  # nothing is recorded: all threads and children count in this process, to no end
    lea rax, [rip + engraft_module]
    add rax, [rax]
    mov qword ptr [rax + {is_alone}], 1
    jmp 85f
2:
    call .Lengraft_lock
    call .Lengraft_refresh
    cmp qword ptr [rip + engraft_module + {module_started}], 0
    je 25f
    call .Lengraft_is_started
    jnz 8f              # its code ran before its DT_INIT
25:
    xor r14d, r14d
3:
    cmp r14d, [rbx + {n_rows}]
    jae 5f
    mov eax, r14d
    shl eax, {row_shift}
    lea rdx, [rbx + rax + {rows_at}]
    mov rax, [rdx]
    cmp rax, [rip + engraft_module + {module_key}]
    jne 4f
    mov rax, [rdx + {row_key} + 8]
    cmp rax, [rip + engraft_module + {module_key} + 8]
    jne 4f
    mov rax, [rdx + {row_counters_len}]
    cmp rax, [rip + engraft_module + {module_counters_len}]
    jne 4f
    call .Lengraft_home # not the row of a second copy of it that is loaded, too
    jz 6f
    lea rcx, [rip + engraft_module]
    cmp [r8 + {home_runtime}], rcx
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
    shl eax, {home_shift}
    lea rax, [r12 + rax + {homes}]
    mov [rax + {home_runtime}], rcx
    mov [rax + {home_text_end}], rcx
    mov rdx, rcx
    add rdx, [rcx + {module_text}]
    mov [rax + {home_text}], rdx
    mov rdx, rcx
    mov rdi, rcx
    add rdx, [rcx + {module_old}]
    mov [rax + {home_old}], rdx
    add rdi, [rcx + {module_old_end}]
    mov [rax + {home_old_end}], rdi
    mov [rax], rbp      # last: who reads these without the lock, sees it empty or whole
    xor ecx, ecx        # what was there before is there no more
63:
    cmp ecx, [rbx + {n_rows}]
    jae 65f
    mov esi, ecx
    shl esi, {home_shift}
    lea rsi, [r12 + rsi + {homes}]
    inc ecx
    cmp rsi, rax
    je 63b
    cmp rdx, [rsi + {home_old_end}]
    jae 63b
    cmp rdi, [rsi + {home_old}]
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
    mov r15, [rax + {thread_distance}]
    mov r13, [rax + {thread_area}]
    push qword ptr [rax]
    test r15, r15
    jnz 73f
    xor edi, edi        # what was counted so far goes to the first area
    call .Lengraft_map_shared
    test rax, rax
    js 74f
    mov rdi, rax
    call .Lengraft_row_len
    mov rcx, [rip + engraft_module + {module_sums_len}]
71:
    sub rcx, 8
    jb 715f
    mov rdx, [rbp + rcx + {home_head}]
    add [rdi + rcx], rdx
    jmp 71b
715:
    call .Lengraft_join_callees
72:
    mov rsi, rax
    mov rdx, rax
    mov r10d, 3         # MREMAP_MAYMOVE | MREMAP_FIXED
    lea r8, [rbp + {home_head}]
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
    mov [rbp + r15 + {owner}], rax
    mov byte ptr [rbp + r15 + {is_recorded}], 1
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
# No row: the threads that are there get private counters, all later ones share the first one's.
.Lengraft_alone:
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
    mov r15, [r14 + {thread_distance}]
    test r15, r15
    jz 3f
    lea rdi, [rbp + r15]
    mov rsi, [rip + engraft_module + {module_counters_len}]
    add rsi, {home_head}
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
    mov [rbp + r15 + {owner}], rax
4:
    inc r13
    jmp 2b

# What indirect calls led to so far, at home rbp, goes to the area at rdi: keeps rdi, rax. What
# another process has led elsewhere before is not looked for: that goes to where the table had no room for.
.Lengraft_join_callees:
    push rax
    push rdi
    mov rdx, rdi
    lea rsi, [rbp + {home_head}]
    lea rdi, [rip + engraft_module]
    call .Lengraft_rust_join_callees
    pop rdi
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
    shl eax, {row_shift}
    lea rbp, [rbx + rax + {rows_at}]
    mov rsi, [rip + engraft_module + {module_notes_len}]
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
    add rsi, [rip + engraft_module + {module_notes}]
    mov rdx, [rip + engraft_module + {module_notes_len}]
    mov r10, r13
    mov eax, 18         # pwrite64
    syscall
    push rax
    mov rdi, r15
    mov eax, 3          # close
    syscall
    pop rax
    mov rdx, [rip + engraft_module + {module_notes_len}]
    cmp rax, rdx
    jne 9f
    mov rax, [rip + engraft_module + {module_key}]
    mov [rbp], rax
    mov rax, [rip + engraft_module + {module_key} + 8]
    mov [rbp + {row_key} + 8], rax
    mov rax, [rip + engraft_module + {module_counters_len}]
    mov [rbp + {row_counters_len}], rax
    mov [rbp + {row_notes}], r13
    mov [rbp + {row_notes_len}], rdx
    inc dword ptr [rbx + {n_rows}]
    xor eax, eax
    ret
8:
    or eax, 1
9:
    ret

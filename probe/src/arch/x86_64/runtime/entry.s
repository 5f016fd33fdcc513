# Entries of moved code: a thread that is not the owner of its area gets one.

# An entry whose area is another thread's, or another process's, or one of a library that has not started.
# r11: where to go on.
.globl engraft_module_slow
engraft_module_slow:
    push rax
    lea rax, [rip + engraft_module]
    add rax, [rax]
    cmp qword ptr [rax + {is_alone}], 0
    je 26f
    pop rax             # nothing is recorded in this process
    jmp r11
26:
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 16
    call .Lengraft_find
    jnz 9f
    call .Lengraft_is_started
    jnz 27f
    call .Lengraft_join
27:
    call .Lengraft_lock
    call .Lengraft_refresh
    rdfsbase rbp
    mov rcx, [r12 + {n_threads}]
    lea rax, [r12 + {threads}]
2:  # an area of ours, from a thread that had the same thread pointer before us
    test rcx, rcx
    jz 3f
    mov r15, [rax + {thread_distance}]
    cmp [rax], rbp
    je 8f
    add rax, {thread_len}
    dec rcx
    jmp 2b
3:  # the first area, if nobody has it
    lea rax, [r12 + {threads}]
    mov r15, [rax + {thread_distance}]
    cmp qword ptr [rax], 0
    jne 4f
    mov [rax], rbp
    mov dword ptr [rax + {thread_number}], 0
    jmp 7f
4:  # one of a thread that is no more
    mov r14d, 8
    call .Lengraft_reap
    test rax, rax
    jnz 44f
    cmp qword ptr [r12 + {is_full}], 0 # a new one
    jne 6f
    mov eax, {max_threads}
    cmp [r12 + {n_threads}], rax
    jae 6f
    call .Lengraft_new_area
    test rax, rax
    js 6f
    mov r13, rax
    mov ebp, 64         # tries
5:
    dec ebp
    js 55f
    inc qword ptr [r12 + {n_tried}]
    mov r15, [r12 + {n_tried}]
    shl r15, 34         # 16 GiB apart, below
    neg r15
    call .Lengraft_map_area
    jz 54f
    # Above: for programs at low addresses, if their libraries, those that come later too, have addresses
    # there.
    neg r15
    rdfsbase rax
    add rax, r15
    shr rax, 34
    cmp rax, 0x1fff
    jae 53f
    call .Lengraft_map_area
    jz 54f
53:
    mov r15, [r12 + {n_tried}]
    shl r15, 22         # 4 MiB apart
    neg r15
    call .Lengraft_map_area
    jz 531f
    mov r15, [r12 + {n_tried}]
    shl r15, 34         # above, whatever comes later
    call .Lengraft_map_area
    jnz 5b
531:
    lock inc qword ptr [rbx + {n_near}]
54:
    rdfsbase rbp
    mov rax, [r12 + {n_threads}]
    imul rax, rax, {thread_len}
    lea rax, [r12 + rax + {threads}]
    mov [rax], rbp
    mov [rax + {thread_distance}], r15
    mov [rax + {thread_area}], r13
    mov dword ptr [rax + {thread_number}], 0
    inc qword ptr [r12 + {n_threads}]
    jmp 7f
55:
    mov qword ptr [r12 + {is_full}], 1
    mov rax, [rbx + {owners_at}]
    add rax, rbx
    mov dword ptr [rax + 4 * r13], 0
    mov r14, r13
    call .Lengraft_state
    jz 6f
    mov byte ptr [rax], 0
6:  # no room but that of a thread that is no more
    rdfsbase rbp
    mov r14, [r12 + {n_threads}]
    call .Lengraft_reap
    test rax, rax
    jnz 44f
    mov r15, [r12 + {threads} + {thread_distance}] # with the first thread
    lock inc qword ptr [rbx + {n_shared}]
    xor r14d, r14d
    jmp 81f
44:
    mov r15, [rax + {thread_distance}]
    mov [rax], rbp
7:
    push rax
    call .Lengraft_name_owner
    pop rax
8:
    mov r13, rax
    mov r14d, [rax + {thread_number}]
    call .Lengraft_begins
    mov eax, [r13 + {thread_number}]
    test r14d, r14d     # the number of the thread that had it, if one had
    jz 81f
    sub r14d, eax
81: # r14d: whether it was another one's
    wrgsbase r15
    test r14d, r14d
    jz 82f
    call .Lengraft_is_another
82:
    call .Lengraft_unlock
9:
.Lengraft_slow_done:
    add rsp, 16
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
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
    jmp r11

# Says among its events that from here on they are another thread's.
.Lengraft_is_another:
    cmp qword ptr [rip + engraft_module + {module_has_events}], 0
    je 9f
    push rbx
    lea rbx, [rip + engraft_module]
    add rbx, [rbx]
    add rbx, {home_head}
2:
    cmp qword ptr gs:[rbx + {events_base}], 0
    je 8f
    mov eax, 4
    xadd gs:[rbx], rax
    cmp gs:[rbx + {events_limit}], rax
    ja 3f
    call engraft_module_chunk
    jnz 2b
    jmp 8f
3:
    mov dword ptr [rax], {another}
8:
    pop rbx
9:
    ret

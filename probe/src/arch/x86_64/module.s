# The runtime behind the moved code of a counted module. See `x86_64.rs` for what is where.
#
# In all routines: rbx = the recording, r12 = what this process knows. They keep r12 and rbx, and the others as they say.
.pushsection .rodata
.balign 16
.globl engraft_module, engraft_module_slow, engraft_module_start, engraft_module_entry, engraft_module_end
engraft_module:
    .quad 0             # 0: the home, from here
    .quad 0             # 8: the old DT_INIT, or the old entry point, from here; 0 if there is none
    .quad 0, 0          # 16: the module's key
    .quad -1            # 32: all signals
    .quad 0             # 40: length of the counters in bytes, whole pages
    .quad 0             # 48: the notes, from here
    .quad 0             # 56: their length; 0: this module makes no recording by itself
    .quad 0             # 64: the first bytes of a recording, from here; behind them its name, if nobody gives another
    .quad 0             # 72: the byte that says whether this library has started, from here; 0: it is none

# An entry whose area is another thread's, or another process's, or one of a library that has not started. r11: where to go on.
engraft_module_slow:
    push rax
    lea rax, [rip + engraft_module]
    add rax, [rax]
    cmp qword ptr [rax + 4080], 0
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
    mov r15, [rax + 8]
    cmp [rax], rbp
    je 8f
    add rax, {thread_len}
    dec rcx
    jmp 2b
3:  # the first area, if nobody has it
    lea rax, [r12 + {threads}]
    mov r15, [rax + 8]
    cmp qword ptr [rax], 0
    jne 4f
    mov [rax], rbp
    jmp 7f
4:  # a new one
    cmp qword ptr [r12 + {is_full}], 0
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
    neg r15             # above: for programs at low addresses that have no libraries
    call .Lengraft_map_area
    jz 54f
    mov r15, [r12 + {n_tried}]
    shl r15, 22         # 4 MiB apart: for those that have
    neg r15
    call .Lengraft_map_area
    jnz 5b
54:
    rdfsbase rbp
    mov rax, [r12 + {n_threads}]
    imul rax, rax, {thread_len}
    lea rax, [r12 + rax + {threads}]
    mov [rax], rbp
    mov [rax + 8], r15
    mov [rax + 16], r13
    inc qword ptr [r12 + {n_threads}]
    jmp 7f
55:
    mov qword ptr [r12 + {is_full}], 1
    mov rax, [rbx + {owners_at}]
    add rax, rbx
    mov dword ptr [rax + 4 * r13], 0
6:  # no room: with the first thread
    mov r15, [r12 + {threads} + 8]
    lock inc qword ptr [rbx + {n_shared}]
    jmp 8f
7:
    call .Lengraft_name_owner
8:
    wrgsbase r15
    call .Lengraft_unlock
9:
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

# In place of DT_INIT. rdi, rsi, rdx: arguments, as for any such function.
engraft_module_start:
    push rdi
    push rsi
    push rdx
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov r8, rdx
    call .Lengraft_join
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rdx
    pop rsi
    pop rdi
    mov r11, [rip + engraft_module + 8]
    test r11, r11
    jz 2f
    lea rax, [rip + engraft_module]
    add r11, rax
    jmp r11
2:
    ret

# In place of the entry point. All registers may mean something there.
engraft_module_entry:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov r8, [rsp + 112] # number of arguments
    lea r8, [rsp + 8 * r8 + 128]
    call .Lengraft_join
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    lea r11, [rip + engraft_module]
    add r11, [rip + engraft_module + 8]
    jmp r11

# Says that this library has started, if it is one.
.Lengraft_set_started:
    lea rax, [rip + engraft_module]
    mov rcx, [rax + 72]
    test rcx, rcx
    jz 2f
    mov byte ptr [rax + rcx], 1
2:
    ret

# Zero if this is a library that has not started. rax: where that is said.
.Lengraft_is_started:
    lea rax, [rip + engraft_module]
    mov rcx, [rax + 72]
    add rax, rcx
    test rcx, rcx
    jz 2f
    cmp byte ptr [rax], 0
    ret
2:
    test rsp, rsp
    ret

# Zero if there is a recording in this process; rbx, r12.
.Lengraft_find:
    mov rbx, {arena}
    mov r12, {own}
    mov rsi, rbx
    mov edi, -1
    xor edx, edx
    mov r10d, 8
    mov eax, 14         # rt_sigprocmask, in no known way: whether the memory can be read. Whoever starts threads may call it
    syscall
    cmp rax, -22        # EINVAL: it could
    jne 2f
    mov rax, {magic}
    cmp [rbx], rax
2:
    ret

# No signals, and the lock, which holds the number of a process: one that died with it loses it.
# The old mask is kept in the caller's 16 bytes.
.Lengraft_lock:
    mov eax, 14         # rt_sigprocmask
    mov edi, 2          # SIG_SETMASK
    lea rsi, [rip + engraft_module + 32]
    lea rdx, [rsp + 8]
    mov r10d, 8
    syscall
    call .Lengraft_self
    xor r8d, r8d
2:
    xor eax, eax
    lock cmpxchg [rbx + {lock}], r9d
    jz 4f
    mov r10d, eax
    mov eax, 24         # sched_yield
    syscall
    inc r8d
    test r8d, 1023
    jnz 2b
    mov eax, r10d
    or eax, r9d
    test eax, {is_apart}
    jz 3f
    cmp r8d, 0x400000   # nobody holds it for seconds
    jb 2b
    jmp 35f
3:
    mov edi, r10d
    xor esi, esi
    mov eax, 62         # kill, with no signal: is it there?
    syscall
    cmp rax, -3         # ESRCH
    jne 2b
35:
    mov eax, r10d
    lock cmpxchg [rbx + {lock}], r9d
    jnz 2b
4:
    ret

# r9d: what this process is called in the recording: its number, and whether that means something else to the others, since it is in a
# namespace of its own. Whether a process is gone can only be asked within one.
.Lengraft_self:
    mov r9d, [r12 + 8]
    test r9d, r9d
    jnz 9f
    sub rsp, 144        # as long as what stat writes
    lea rdi, [rip + .Lengraft_namespace]
    mov rsi, rsp
    mov eax, 4          # stat
    syscall
    mov rdx, [rsp + 8]  # number of the file
    add rsp, 144
    mov r9d, {is_apart}
    test rax, rax
    jnz 3f
    lock cmpxchg [rbx + {namespace}], rdx # rax is 0: nobody has said yet which one
    jz 2f
    cmp rax, rdx
    jne 3f
2:
    xor r9d, r9d
3:
    mov eax, 39         # getpid
    syscall
    or r9d, eax
    mov [r12 + 8], r9d
9:
    ret

.Lengraft_unlock:
    mov dword ptr [rbx + {lock}], 0
    mov eax, 14
    mov edi, 2
    lea rsi, [rsp + 8]
    xor edx, edx
    mov r10d, 8
    syscall
    ret

# In a child that fork made: areas of its own, in place of those that it shares with its parent. Locked.
.Lengraft_refresh:
    cmp qword ptr [r12], 0
    jne 9f
    push rbp
    push r13
    push r14
    push r15
    mov eax, 39         # getpid
    syscall
    mov [r12], rax
    rdfsbase rbp
    rdgsbase r15
    mov qword ptr [r12 + {n_threads}], 1
    mov [r12 + {threads}], rbp
    mov [r12 + {threads} + 8], r15
    call .Lengraft_new_area
    mov r13, rax
    mov [r12 + {threads} + 16], rax
    test rax, rax
    js 6f
    xor r14d, r14d
2:
    cmp r14d, [rbx + {n_rows}]
    jae 7f
    call .Lengraft_home
    jz 3f
    lea rdi, [rax + r15 + 4096]
    call .Lengraft_map_shared
    test rax, rax
    jns 3f
    lock inc qword ptr [rbx + {n_shared}]
3:
    inc r14d
    jmp 2b
6:
    lock inc qword ptr [rbx + {n_shared}]
7:
    call .Lengraft_name_owner
    pop r15
    pop r14
    pop r13
    pop rbp
9:
    ret

# rax: the home of row r14, 0 if it is not loaded (any more). Flags for that.
.Lengraft_home:
    mov eax, r14d
    shl eax, 4
    lea r8, [r12 + rax + {homes}]
    cmp qword ptr [r8], 0
    je 8f
    mov eax, 14         # rt_sigprocmask with all signals blocked: whether the key can be read
    xor edi, edi
    mov rsi, [r8 + 8]
    add rsi, 16
    xor edx, edx
    mov r10d, 8
    syscall
    test rax, rax
    jnz 7f
    mov rcx, [r8 + 8]
    mov eax, r14d
    shl eax, 6
    lea rdx, [rbx + rax + {rows_at}]
    mov rax, [rcx + 16]
    cmp rax, [rdx]
    jne 7f
    mov rax, [rcx + 24]
    cmp rax, [rdx + 8]
    je 8f
7:
    mov qword ptr [r8], 0
8:
    mov rax, [r8]
    test rax, rax
    ret

# Names thread pointer rbp the owner of the counters at distance r15.
.Lengraft_name_owner:
    push r14
    xor r14d, r14d
2:
    cmp r14d, [rbx + {n_rows}]
    jae 9f
    call .Lengraft_home
    jz 3f
    mov [rax + r15 + 4088], rbp
3:
    inc r14d
    jmp 2b
9:
    pop r14
    ret

# rax: the number of an area that nobody has, for us; negative if there is none.
.Lengraft_new_area:
    push r13
    push r14
    mov r13, [rbx + {owners_at}]
    add r13, rbx
    xor r14d, r14d
2:
    cmp r14, [rbx + {n_areas}]
    jae 4f
    mov edi, [r13 + 4 * r14]
    test edi, edi
    jz 5f
    mov eax, [r12 + 8]
    cmp edi, eax
    je 3f
    or eax, edi
    test eax, {is_apart}
    jnz 3f
    xor esi, esi
    mov eax, 62         # kill, with no signal: is it there?
    syscall
    cmp rax, -3         # ESRCH
    je 5f
3:
    inc r14
    jmp 2b
4:
    mov rax, -1
    cmp r14, [rbx + {max_areas}]
    jae 6f
    inc qword ptr [rbx + {n_areas}]
5:
    mov eax, [r12 + 8]
    mov [r13 + 4 * r14], eax
    mov rax, r14
6:
    pop r14
    pop r13
    ret

# Maps all homes for area r13 at distance r15; zero if it could be done, else nothing is mapped.
.Lengraft_map_area:
    push r14
    xor r14d, r14d
2:
    cmp r14d, [rbx + {n_rows}]
    jae 5f
    call .Lengraft_home
    jz 3f
    mov rdi, rax
    call .Lengraft_map_home
    jnz 4f
3:
    inc r14d
    jmp 2b
4:  # take back what was mapped
    sub r14d, 1
    jb 6f
    call .Lengraft_home
    jz 4b
    lea rdi, [rax + r15]
    call .Lengraft_row_len
    lea rsi, [rax + 4096]
    mov eax, 11         # munmap
    syscall
    jmp 4b
5:
    xor eax, eax
    pop r14
    ret
6:
    or eax, 1
    pop r14
    ret

# rax: the length of the counters of row r14.
.Lengraft_row_len:
    mov eax, r14d
    shl eax, 6
    mov rax, [rbx + rax + {rows_at} + 16]
    ret

# Maps the home rdi of row r14 for area r13 at distance r15, if nothing is there; zero if so.
.Lengraft_map_home:
    push rbp
    lea rbp, [rdi + r15]
    mov rdi, rbp
    call .Lengraft_row_len
    lea rsi, [rax + 4096]
    mov edx, 3          # PROT_READ | PROT_WRITE
    mov r10d, 0x104022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    mov r8, -1
    xor r9d, r9d
    mov eax, 9          # mmap
    syscall
    cmp rax, rbp
    jne 2f
    mov rdi, rbp
    call .Lengraft_wipe
    lea rdi, [rbp + 4096]
    call .Lengraft_map_shared
    lea rdi, [rbp + 4096]
    cmp rax, rdi
    je 2f
    mov rdi, rbp
    call .Lengraft_row_len
    lea rsi, [rax + 4096]
    mov eax, 11         # munmap
    syscall
    or eax, 1
2:
    pop rbp
    ret

# Has a child of fork find the page at rdi zero.
.Lengraft_wipe:
    mov esi, 4096
    mov edx, 18         # MADV_WIPEONFORK
    mov eax, 28         # madvise
    syscall
    ret

# Maps area r13 of row r14 to rdi, over what is there, or to anywhere if that is 0. rax: where it is, or an error.
.Lengraft_map_shared:
    push rbp
    push r15
    mov rbp, rdi
    call .Lengraft_extent
    test rax, rax
    js 8f
    mov r15, rax
    call .Lengraft_row_len
    cmp qword ptr [r12 + {path_len}], 0
    jne 3f
    mov rdx, rax        # the recording is mapped as a whole: its pages are mapped a second time
    lea rdi, [rbx + r15]
    xor esi, esi
    mov r10d, 1         # MREMAP_MAYMOVE
    mov r8, rbp
    test rbp, rbp
    jz 2f
    mov r10d, 3         # and MREMAP_FIXED
2:
    mov eax, 25         # mremap
    syscall
    jmp 8f
3:
    mov r9, r15
    mov r15, rax
    push r9
    call .Lengraft_open
    pop r9
    test rax, rax
    js 8f
    mov rsi, r15
    mov r15, rax
    mov r8, rax
    mov rdi, rbp
    mov edx, 3
    mov r10d, 1         # MAP_SHARED
    test rbp, rbp
    jz 4f
    mov r10d, 17        # and MAP_FIXED
4:
    mov eax, 9          # mmap
    syscall
    mov rdi, r15
    mov rbp, rax
    mov eax, 3          # close
    syscall
    mov rax, rbp
8:
    pop r15
    pop rbp
    ret

# Opens the recording's file. rax: its number, or an error.
.Lengraft_open:
    lea rdi, [r12 + {path}]
    mov esi, 0x80002    # O_RDWR | O_CLOEXEC
    xor edx, edx
    mov eax, 2          # open
    syscall
    ret

# rax: where in the recording area r13 of row r14 is, or an error; makes room for it if it has none.
.Lengraft_extent:
    mov eax, r14d
    imul rax, [rbx + {max_areas}]
    add rax, r13
    shl rax, 3
    add rax, [rbx + {extents_at}]
    add rax, rbx
    push rax
    mov rax, [rax]
    test rax, rax
    jnz 2f
    call .Lengraft_row_len
    mov rsi, rax
    call .Lengraft_grow
    test rax, rax
    js 2f
    mov rcx, [rsp]
    mov [rcx], rax
2:
    pop rcx
    ret

# Makes the recording's file longer by rsi bytes, with room on the disk. rax: where they start, or an error.
.Lengraft_grow:
    push rbp
    push r15
    push rsi
    cmp qword ptr [r12 + {path_len}], 0
    mov rax, -12        # ENOMEM
    je 8f
    mov rdi, [rbx + {end}]
    add rdi, rsi
    call .Lengraft_check_limit
    js 8f
    call .Lengraft_open
    test rax, rax
    js 8f
    mov r15, rax
    mov rdi, rax
    xor esi, esi
    mov rdx, [rbx + {end}]
    mov r10, [rsp]
    mov eax, 285        # fallocate
    syscall
    mov rbp, rax
    mov rdi, r15
    mov eax, 3          # close
    syscall
    mov rax, rbp
    test rax, rax
    js 8f
    mov rax, [rbx + {end}]
    mov rcx, [rsp]
    add [rbx + {end}], rcx
8:
    pop rsi
    pop r15
    pop rbp
    test rax, rax
    ret

# Whether this process may make a file rdi bytes long: else writing to it would end it. rax, flags: negative if not.
.Lengraft_check_limit:
    sub rsp, 24
    mov [rsp + 16], rdi
    xor edi, edi
    mov esi, 1          # RLIMIT_FSIZE
    xor edx, edx
    mov r10, rsp
    mov eax, 302        # prlimit64
    syscall
    test rax, rax
    js 2f
    mov rdi, [rsp + 16]
    xor eax, eax
    cmp rdi, [rsp]
    jbe 2f
    mov rax, -27        # EFBIG
2:
    add rsp, 24
    test rax, rax
    ret

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
    shl eax, 4
    lea rax, [r12 + rax + {homes}]
    mov [rax], rbp
    mov [rax + 8], rcx
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
    mov rcx, rax
71:
    sub rcx, 8
    jb 72f
    mov rdx, [rbp + rcx + 4096]
    add [rdi + rcx], rdx
    jmp 71b
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

# Makes a recording, or joins the one that is there. r15: the environment. Zero if there is one now.
.Lengraft_create:
    mov rdi, r12
    mov esi, {own_len}
    mov edx, 3
    mov r10d, 0x104022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    mov r8, -1
    xor r9d, r9d
    mov eax, 9          # mmap
    syscall
    cmp rax, r12
    jne 99f             # another module tried, and could not
    mov eax, 102        # getuid; a program with other rights than its user's writes nothing where that user says
    syscall
    mov ebp, eax
    mov eax, 107        # geteuid
    syscall
    cmp eax, ebp
    jne 99f
    mov eax, 104        # getgid
    syscall
    mov ebp, eax
    mov eax, 108        # getegid
    syscall
    cmp eax, ebp
    jne 99f
    lea rdi, [rip + .Lengraft_auxv]
    mov esi, 0x80000    # O_RDONLY | O_CLOEXEC
    xor edx, edx
    mov eax, 2          # open
    syscall
    test rax, rax
    js 19f              # cannot be known: it does, as all kernels do since 5.9
    mov rbp, rax
    sub rsp, 1024
    mov rdi, rax
    mov rsi, rsp
    mov edx, 1024
    xor eax, eax        # read
    syscall
    mov r13, rax
    mov rdi, rbp
    mov eax, 3          # close
    syscall
    mov ebp, 2
    test r13, r13
    jle 18f
    xor ebp, ebp
    xor ecx, ecx
16:
    cmp rcx, r13
    jge 18f
    cmp qword ptr [rsp + rcx], 26 # AT_HWCAP2
    je 17f
    add rcx, 16
    jmp 16b
17:
    mov rbp, [rsp + rcx + 8]
18:
    add rsp, 1024
    test ebp, 2         # whether a program may set the base of gs
    jnz 19f
    lea rsi, [rip + .Lengraft_no_bases]
    lea rdx, [rip + .Lengraft_no_bases_end]
    sub rdx, rsi
    call .Lengraft_say
    jmp 99f
19:
    mov rdi, r12
    call .Lengraft_wipe
    mov eax, 39         # getpid
    syscall
    mov [r12], rax
    lea rcx, [rip + engraft_module]
    mov r13, [rip + engraft_module + 64]
    add r13, rcx        # the first bytes
    lea r14, [r13 + {header_len}]
2:  # the name
    mov rax, [r15]
    test rax, rax
    jz 4f
    add r15, 8
    mov rcx, {variable_1}
    cmp [rax], rcx
    jne 2b
    cmp dword ptr [rax + 8], {variable_2}
    jne 2b
    cmp byte ptr [rax + 12], 0
    je 2b
    lea r14, [rax + 12]
4:
    lea rbp, [r12 + {path}]
    cmp byte ptr [r14], 0x2f
    je 5f
    mov rdi, rbp
    mov esi, {path_max}
    mov eax, 79         # getcwd
    syscall
    test rax, rax
    js 9f
    lea rbp, [rbp + rax - 1]
    mov byte ptr [rbp], 0x2f
    inc rbp
5:
    lea rdx, [r12 + {path} + {path_max}]
    mov rsi, r14
6:
    mov rax, -36        # ENAMETOOLONG
    cmp rbp, rdx
    jae 9f
    mov cl, [rsi]
    mov [rbp], cl
    inc rsi
    inc rbp
    test cl, cl
    jnz 6b
    lea rdi, [r12 + {path}]
    sub rbp, rdi
    push 1              # whether it is our own to take away again
    mov esi, 0x800c2    # O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC
    mov edx, 0x1b6
    mov eax, 2          # open
    syscall
    cmp rax, -17        # EEXIST
    jne 61f
    mov qword ptr [rsp], 0
    mov esi, 0x80042    # O_RDWR | O_CREAT | O_CLOEXEC
    mov eax, 2          # open
    syscall
61:
    mov r15, rax
    test rax, rax
    js 83f
    mov rdi, rax
    mov esi, 2          # LOCK_EX
    mov eax, 73         # flock
    syscall
    mov rdi, r15
    xor esi, esi
    mov edx, 2          # SEEK_END
    mov eax, 8          # lseek
    syscall
    test rax, rax
    js 8f
    jnz 7f
    mov edi, {file_head_len}
    call .Lengraft_check_limit
    js 8f
    mov rdi, r15
    xor esi, esi
    xor edx, edx
    mov r10d, {file_head_len}
    mov eax, 285        # fallocate
    syscall
    test rax, rax
    js 8f
    mov rdi, r15
    mov rsi, r13
    mov edx, {header_len}
    xor r10d, r10d
    mov eax, 18         # pwrite64
    syscall
    test rax, rax
    js 8f
7:  # is it a recording, and all there?
    mov qword ptr [rsp], 0
    sub rsp, {header_len}
    mov rdi, r15
    mov rsi, rsp
    mov edx, {header_len}
    xor r10d, r10d
    mov eax, 17         # pread64
    syscall
    mov rcx, [rsp]
    mov r13, [rsp + {end}]
    add rsp, {header_len}
    cmp rax, {header_len}
    mov rax, -17        # EEXIST: it is something else
    jne 8f
    mov rdx, {magic}
    cmp rcx, rdx
    jne 8f
    cmp r13, {file_head_len}
    jb 8f
    mov rdi, r15
    xor esi, esi
    mov edx, 2          # SEEK_END
    mov eax, 8          # lseek
    syscall
    cmp rax, r13
    mov rax, -17
    jb 8f
    mov rdi, rbx
    mov esi, {file_head_len}
    mov edx, 3
    mov r10d, 0x100001  # MAP_SHARED | MAP_FIXED_NOREPLACE
    mov r8, r15
    xor r9d, r9d
    mov eax, 9          # mmap
    syscall
8:
    push rax
    cmp qword ptr [rsp + 8], 0
    je 82f
    lea rdi, [r12 + {path}] # an empty file is left to nobody
    mov eax, 87         # unlink
    syscall
82:
    mov rdi, r15
    mov eax, 3          # close, which ends the lock
    syscall
    pop rax
83:
    pop rdx
    test rax, rax
    js 9f
    mov rdi, rbx
    mov esi, {file_head_len}
    mov edx, 16         # MADV_DONTDUMP
    mov eax, 28         # madvise
    syscall
    mov [r12 + {path_len}], rbp
    sub rsp, 8
    call .Lengraft_lock
    call .Lengraft_new_area
    mov [r12 + {threads} + 16], rax
    mov r15, rax
    call .Lengraft_unlock
    add rsp, 8
    test r15, r15
    jns 85f
    mov rdi, rbx
    mov esi, {file_head_len}
    mov eax, 11         # munmap
    syscall
    mov rax, -28        # ENOSPC
    jmp 9f
85:
    mov qword ptr [r12 + {n_threads}], 1
    xor eax, eax
    ret
9:  # say so
    neg rax
    push rax
    lea rsi, [rip + .Lengraft_said]
    lea rdx, [rip + .Lengraft_said_end]
    sub rdx, rsi
    call .Lengraft_say
    lea rsi, [r12 + {path}]
    cmp byte ptr [rsi], 0
    jne 91f
    mov rsi, r14
91:
    xor edx, edx
92:
    cmp byte ptr [rsi + rdx], 0
    je 93f
    inc rdx
    jmp 92b
93:
    call .Lengraft_say
    pop rax
    sub rsp, 16
    lea rsi, [rsp + 16]
    dec rsi
    mov byte ptr [rsi], 0x0a
    mov ecx, 10
94:
    xor edx, edx
    div rcx
    add dl, 0x30
    dec rsi
    mov [rsi], dl
    test rax, rax
    jnz 94b
    push rsi
    lea rsi, [rip + .Lengraft_why]
    lea rdx, [rip + .Lengraft_why_end]
    sub rdx, rsi
    call .Lengraft_say
    pop rsi
    lea rdx, [rsp + 16]
    sub rdx, rsi
    call .Lengraft_say
    add rsp, 16
99:
    or eax, 1
    ret

# Writes rdx bytes at rsi where errors go.
.Lengraft_say:
    mov edi, 2
    mov eax, 1          # write
    syscall
    ret

.Lengraft_said:
    .ascii "engraft: nothing is recorded, for there is no room for it or no right to write it (set ENGRAFT_OUT to another file): "
.Lengraft_said_end:
.Lengraft_no_bases:
    .ascii "engraft: nothing is recorded, for this kernel does not let programs set the base of gs\n"
.Lengraft_no_bases_end:
.Lengraft_namespace:
    .asciz "/proc/self/ns/pid"
.Lengraft_auxv:
    .asciz "/proc/self/auxv"
.Lengraft_why:
    .ascii ": error "
.Lengraft_why_end:
engraft_module_end:
.popsection

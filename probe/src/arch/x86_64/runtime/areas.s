# The recording, its lock, and the areas in it.

# rax: what is kept of a thread that is no more, among the next r14 threads; 0 if there is none. A thread is
# there as long as the first word at its thread pointer is that pointer, of which the kernel is asked for the
# lower half: it may be unmapped at any moment.
.Lengraft_reap:
    push r13
2:
    sub r14, 1
    jb 8f
    mov r13, [r12 + {next_thread}]
    inc r13
    cmp r13, [r12 + {n_threads}]
    jb 3f
    xor r13d, r13d
3:
    mov [r12 + {next_thread}], r13
    imul r13, r13, {thread_len}
    lea r13, [r12 + r13 + {threads}]
    mov rdi, [r13]
    test rdi, rdi
    jz 2b
    mov r9d, edi
    call .Lengraft_holds
    cmp rax, -11        # EAGAIN: something else is there
    je 7f
    cmp rax, -14        # EFAULT: nothing is
    jne 2b
7:
    mov rax, r13
    pop r13
    ret
8:
    xor eax, eax
    pop r13
    ret

# Zero if there is a recording in this process; rbx, r12.
.Lengraft_find:
    mov rbx, {arena}
    mov r12, {process}
    mov rsi, rbx
    mov edi, -1         # in no known way: only asks whether the memory can be read
    xor edx, edx
    mov r10d, 8
    mov eax, 14         # rt_sigprocmask, which whoever starts threads may call
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
    lea rsi, [rip + engraft_module + {module_mask}]
    lea rdx, [rsp + 8]
    mov r10d, 8
    syscall
    call .Lengraft_self
    xor r8d, r8d
2:
    xor eax, eax
    lock cmpxchg [rbx + {lock}], r9d
    jz 4f
    push rax
    push 50000          # ns
    push 0
    lea rdi, [rbx + {lock}]
    xor esi, esi        # FUTEX_WAIT, which filters allow where there are threads; nobody wakes us
    mov edx, eax
    mov r10, rsp
    mov eax, 202        # futex
    syscall
    pop r10
    pop r10
    pop r10             # who holds it
    inc r8d
    test r8d, 255
    jnz 2b
    mov eax, r10d
    or eax, r9d
    test eax, {is_apart}
    jz 3f
    cmp r8d, 0x8000     # nobody holds it for seconds
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

# r9d: what this process is called in the recording: its number, and whether that means something else to the
# others, since it is in a namespace of its own. Whether a process is gone can only be asked within one.
.Lengraft_self:
    mov r9d, [r12 + {process_name}]
    test r9d, r9d
    jnz 9f
    mov r9d, [r12 + {inherited_name}]
    test r9d, r9d
    jz 1f
    and r9d, {is_apart} # of the process that forked us
    mov eax, 110        # getppid: none that we can see, if we are in another one than it is
    syscall
    test rax, rax
    jnz 3f
    mov r9d, {is_apart}
    jmp 3f
1:
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
    mov [r12 + {process_name}], r9d
    mov eax, r9d
    and eax, {is_apart}
    or eax, 1
    mov [r12 + {inherited_name}], eax
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
    mov [r12 + {threads} + {thread_distance}], r15
    call .Lengraft_new_area
    mov r13, rax
    mov [r12 + {threads} + {thread_area}], rax
    test rax, rax
    js 6f
    xor r14d, r14d
2:
    cmp r14d, [rbx + {n_rows}]
    jae 7f
    call .Lengraft_home
    jz 3f
    lea rdi, [rax + r15 + {home_head}]
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
    lea rax, [r12 + {threads}]
    call .Lengraft_begins
    pop r15
    pop r14
    pop r13
    pop rbp
9:
    ret

# rax: the home of row r14, 0 if it is not loaded (any more). Flags for that.
.Lengraft_home:
    mov eax, r14d
    shl eax, {home_shift}
    lea r8, [r12 + rax + {homes}]
    cmp qword ptr [r8], 0
    je 8f
    mov eax, 14         # rt_sigprocmask with all signals blocked: whether the key can be read
    xor edi, edi
    mov rsi, [r8 + {home_runtime}]
    add rsi, 16
    xor edx, edx
    mov r10d, 8
    syscall
    test rax, rax
    jnz 7f
    mov rcx, [r8 + {home_runtime}]
    mov eax, r14d
    shl eax, {row_shift}
    lea rdx, [rbx + rax + {rows_at}]
    mov rax, [rcx + {module_key}]
    cmp rax, [rdx]
    jne 7f
    mov rax, [rcx + {module_key} + 8]
    cmp rax, [rdx + {row_key} + 8]
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
    mov [rax + r15 + {owner}], rbp
    mov byte ptr [rax + r15 + {is_recorded}], 1
3:
    inc r14d
    jmp 2b
9:
    pop r14
    ret

# rax: the number of an area that nobody has, for us; negative if there is none. While there are few, nobody
# is asked whether he is there.
.Lengraft_new_area:
    push r13
    push r14
    mov r13, [rbx + {owners_at}]
    add r13, rbx
    xor r14d, r14d
2:
    cmp r14, [rbx + {n_areas}]
    jae 3f
    cmp dword ptr [r13 + 4 * r14], 0
    je 5f
    inc r14
    jmp 2b
3:
    cmp r14, [rbx + {max_areas}]
    jae 31f
    cmp r14d, {few_areas}
    jb 4f
31: # of processes that are gone
    xor r14d, r14d
32:
    cmp r14, [rbx + {n_areas}]
    jae 4f
    mov edi, [r13 + 4 * r14]
    mov eax, [r12 + {process_name}]
    cmp edi, eax
    je 33f
    or eax, edi
    test eax, {is_apart}
    jnz 33f
    xor esi, esi
    mov eax, 62         # kill, with no signal: is it there?
    syscall
    cmp rax, -3         # ESRCH
    je 5f
33:
    inc r14
    jmp 32b
4:
    mov rax, -1
    cmp r14, [rbx + {max_areas}]
    jae 6f
    inc qword ptr [rbx + {n_areas}]
5:
    call .Lengraft_state
    jz 52f
    cmp byte ptr [rax], {may_run}
    je 51f
    cmp byte ptr [rax], {aborts}
    jne 53f
51:
    lock inc qword ptr [rbx + {n_stopped}] # nobody knows how it ended
53:
    mov byte ptr [rax], {may_run}
52:
    mov eax, [r12 + {process_name}]
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
    lea rsi, [rax + {home_head}]
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
    shl eax, {row_shift}
    mov rax, [rbx + rax + {rows_at} + {row_counters_len}]
    ret

# Maps the home rdi of row r14 for area r13 at distance r15, if nothing is there; zero if so.
.Lengraft_map_home:
    push rbp
    lea rbp, [rdi + r15]
    mov rdi, rbp
    call .Lengraft_row_len
    lea rsi, [rax + {home_head}]
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
    lea rdi, [rbp + {home_head}]
    call .Lengraft_map_shared
    lea rdi, [rbp + {home_head}]
    cmp rax, rdi
    je 2f
    mov rdi, rbp
    call .Lengraft_row_len
    lea rsi, [rax + {home_head}]
    mov eax, 11         # munmap
    syscall
    or eax, 1
2:
    pop rbp
    ret

# Has a child of fork find the page at rdi zero.
.Lengraft_wipe:
    mov esi, {home_head}
    mov edx, 18         # MADV_WIPEONFORK
    mov eax, 28         # madvise
    syscall
    ret

# Maps area r13 of row r14 to rdi, over what is there, or to anywhere if that is 0. rax: where it is, or an
# error.
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
    lea rdx, [rax + r15] # all that is needed of the recording is mapped: its pages are mapped a second time
    mov rsi, [r12 + {mapped}]
    cmp rdx, rsi
    jbe 1f
    mov [rsp - 8], rax
    mov rdi, rbx
    xor r10d, r10d
    mov eax, 25         # mremap, to make it longer
    syscall
    test rax, rax
    js 8f
    mov [r12 + {mapped}], rdx
    mov rax, [rsp - 8]
1:
    mov rdx, rax
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

# Whether this process may make a file rdi bytes long: else writing to it would end it. rax, flags: negative
# if not.
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

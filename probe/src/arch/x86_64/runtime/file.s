# A recording that a program makes by itself, as a file.

# Makes a recording, or joins the one that is there. r15: the environment. Zero if there is one now.
.Lengraft_create:
    mov rdi, r12
    mov esi, {process_len}
    mov edx, 3
    mov r10d, 0x104022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    mov r8, -1
    xor r9d, r9d
    mov eax, 9          # mmap
    syscall
    cmp rax, r12
    jne 99f             # another module tried, and could not
    # A program with other rights than its user's writes nothing where that user says.
    mov eax, 102        # getuid
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
    mov r13, [rip + engraft_module + {module_header}]
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
    mov esi, 8          # LOCK_UN: the mapping, and a descriptor that a child has, would keep it until they go
    mov eax, 73         # flock
    syscall
    mov rdi, r15
    mov eax, 3          # close
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
    mov [r12 + {threads} + {thread_area}], rax
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
    cmp rax, 17         # EEXIST
    jne 90f
    lea rsi, [rip + .Lengraft_other]
    lea rdx, [rip + .Lengraft_other_end]
90:
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
    cmp rax, 17
    jne 95f
    lea rsi, [rip + .Lengraft_line]
    mov edx, 1
    call .Lengraft_say
    jmp 99f
95:
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
    .ascii "engraft: nothing is recorded, for there is no room for it or no right to write it "
    .ascii "(set ENGRAFT_OUT to another file): "
.Lengraft_said_end:
.Lengraft_other:
    .ascii "engraft: nothing is recorded, for the file there is something else, or a recording of `count` "
    .ascii "(set ENGRAFT_OUT to another file): "
.Lengraft_other_end:
.Lengraft_line:
    .ascii "\n"
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
.globl engraft_module_end
engraft_module_end:
.popsection

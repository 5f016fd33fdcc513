# What ld.so runs in place of an `openat`. See `open_library` in `system_calls.rs`.
.pushsection .rodata
.balign 16
.globl engraft_open_library, engraft_open_library_end
engraft_open_library:
    .zero {entry}       # `shared::OpenLibrary`
    # Entry: as the number of the call is about to be set; first what stood between that and the call.
    .fill 32, 1, 0x90
    # As the `openat` is about to be made.
    lea rsp, [rsp - 128]
    push rdi
    push rsi
    push rdx
    mov r11, [rip + engraft_open_library + {paths}]
2:  # a library that is known
    mov ecx, [r11]
    test ecx, ecx
    jz 5f
    lea rdi, [r11 + 8]
    mov rsi, [rsp + 8]
3:
    mov al, [rsi]
    cmp al, [rdi]
    jne 4f
    inc rsi
    inc rdi
    test al, al
    jnz 3b
    mov esi, [r11 + 4]
    add rsi, r11
    mov rdi, [rsp + 16]
    mov rdx, [rsp]
    mov eax, 257        # openat
    syscall
    test rax, rax
    js 6f               # not to be found from here: the plain one
    jmp 9f
4:
    add r11, rcx
    jmp 2b
5:
    mov rdi, [rsp + 16]
    mov rsi, [rsp + 8]
    mov rdx, [rsp]
    mov eax, 257
    syscall
    test rax, rax
    js 9f
    cmp qword ptr [rip + engraft_open_library + {mailbox}], 0
    je 9f
    call .Lengraft_ask
    jmp 9f
6:
    mov rdi, [rsp + 16]
    mov rsi, [rsp + 8]
    mov rdx, [rsp]
    mov eax, 257
    syscall
9:
    pop rdx
    pop rsi
    pop rdi
    lea rsp, [rsp + 128]
    jmp [rip + engraft_open_library]

# rax: a file that was opened. Asks the launcher what to open in its place. [rsp + 16]: its path. rax: the
# file to use.
.Lengraft_ask:
    push rbx
    push rbp
    push r8
    push r9
    push r10
    push r12
    push r13
    mov r13, rax
    mov rbx, [rip + engraft_open_library + {mailbox}]
    mov rax, {process}      # its number is there, but in a child of fork
    mov eax, [rax]
    test eax, eax
    jnz 1f
    mov eax, 39         # getpid
    syscall
1:
    mov r12d, eax
2:  # the mailbox, unless its holder is gone; ld.so opens one library at a time, so we are not holding it
    xor eax, eax
    lock cmpxchg [rbx + {lock}], r12d
    jz 3f
    cmp eax, r12d
    je 3f
    mov ebp, eax
    mov eax, 24         # sched_yield
    syscall
    mov edi, ebp
    xor esi, esi
    mov eax, 62         # kill, with no signal: is it there?
    syscall
    cmp rax, -3         # ESRCH
    jne 2b
    mov eax, ebp
    lock cmpxchg [rbx + {lock}], r12d
    jnz 2b
3:
    mov rsi, [rsp + 72]
    lea rdi, [rbx + {path}]
    mov ecx, 4000
4:
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    test al, al
    jz 5f
    dec ecx
    jnz 4b
    jmp 8f              # too long
5:
    inc dword ptr [rbx + {n_requests}]
    mov dword ptr [rbx], 1
    call .Lengraft_wake
6:
    push 20000000       # 20 ms
    push 0
    mov rdi, rbx
    xor esi, esi        # FUTEX_WAIT
    mov edx, 1
    mov r10, rsp
    mov eax, 202        # futex
    syscall
    pop rcx
    pop rcx
    cmp dword ptr [rbx], 1
    jne 7f
    # Nobody answers any more: the launcher said so, or the kernel when the launcher died.
    test dword ptr [rbx + {owner}], 0x40000000
    jz 6b
    mov dword ptr [rbx], 0
    jmp 8f
7:
    mov dword ptr [rbx], 0
    lea rsi, [rbx + {path}]
    cmp byte ptr [rsi], 0
    je 8f
    mov edi, -100       # AT_FDCWD
    mov edx, 0x80000    # O_RDONLY | O_CLOEXEC
    xor r10d, r10d
    mov eax, 257
    syscall
    test rax, rax
    js 8f
    mov rdi, r13
    mov r13, rax
    mov eax, 3          # close
    syscall
8:
    mov dword ptr [rbx + {lock}], 0
    mov rax, r13
    pop r13
    pop r12
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rbx
    ret
.Lengraft_wake:
    mov rdi, rbx
    mov esi, 1          # FUTEX_WAKE
    mov edx, 1
    mov eax, 202
    syscall
    ret
engraft_open_library_end:
.popsection

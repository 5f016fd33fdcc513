# Calls that may end a thread or the process, and those around `vfork`; the end of the program.

# Before a call that lets this thread be cancelled anywhere (edi: 1, or 0 if not): so it may be stopped in the
# middle of a block, and nobody will see it.
.globl engraft_module_async
engraft_module_async:
    cmp edi, 1          # PTHREAD_CANCEL_ASYNCHRONOUS
    je 1f
    jmp r11
1:
    push rax
    xor eax, eax
    jmp 2f

# Behind a call of vfork: whether this is the child (rax: 0), which has its parent's memory.
.globl engraft_module_vforked
engraft_module_vforked:
    push rax
    mov al, 255
    jmp 2f

# Before a call that ends the process, or makes another program of it: says so of this thread, and of those
# that are no more. r11: where to go on. And behind such a call that came back: this thread goes on.
.globl engraft_module_leave
engraft_module_leave:
    push rax
    mov al, {has_ended}
    jmp 2f
.globl engraft_module_back
engraft_module_back:
    push rax
    mov al, {may_run}
    jmp 2f
engraft_module_in_exit: # at the end of `exit`, whoever called it
    push rax
    mov al, {in_exit}
    jmp 2f
.globl engraft_module_abort
engraft_module_abort:   # what ends the process by SIGABRT, unless a handler of that goes elsewhere
    push rax
    mov al, {aborts}
2:
    push rcx
    movzx ecx, al
    lea rax, [rip + engraft_module]
    add rax, [rax]
    cmp qword ptr [rax + {is_alone}], 0
    je 3f
    pop rcx             # nothing is recorded in this process
    pop rax
    jmp r11
3:
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
    push rcx
    sub rsp, 16
    call .Lengraft_find
    jnz 9f
    mov rcx, [rsp + 16]
    test ecx, ecx
    jnz 4f
    lock inc qword ptr [rbx + {n_stopped}]
    jmp 9f
4:
    cmp ecx, 255
    jne 5f
    mov eax, [rsp + 136] # what vfork returned: as many threads may be in one as there are
    test eax, eax
    jz 51f
    js 9f               # it made no child
    lock dec dword ptr [r12 + {in_vfork}]
    jmp 9f
51:
    lock inc dword ptr [r12 + {in_vfork}]
    jmp 9f
5:
    cmp dword ptr [r12 + {in_vfork}], 0
    jne 9f
    call .Lengraft_lock
    call .Lengraft_refresh
    mov rcx, [rsp + 16]
    call .Lengraft_take_stock
    call .Lengraft_unlock
9:
    add rsp, 8
    jmp .Lengraft_slow_done

# In front of the entry point. rdx: what is to be called when the program ends, or 0; it is called by us then.
# r11: where to go on.
.globl engraft_module_begin
engraft_module_begin:
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
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 16
    call .Lengraft_find
    jnz 9f
    mov rax, [rsp + 112]
    mov [r12 + {at_end}], rax
    lea rax, [rip + engraft_module_last]
    mov [rsp + 112], rax
9:
    jmp .Lengraft_slow_done

# What the C library calls last, when the program ends by `exit` or returns from `main`.
.globl engraft_module_last
engraft_module_last:
    sub rsp, 8
    movabs rax, {process} + {at_end}
    mov rax, [rax]
    test rax, rax
    jz 2f
    call rax
2:
    lea r11, [rip + 3f]
    jmp engraft_module_in_exit
3:
    add rsp, 8
    ret
.globl engraft_module_last_end
engraft_module_last_end:

# Writes down what is known of the threads of this process: of this one, cl; of those that are no more, that
# they have ended. Locked.
.Lengraft_take_stock:
    push rcx
    rdfsbase rbp
    mov r13, [r12 + {n_threads}]
    lea r15, [r12 + {threads}]
2:
    sub r13, 1
    jb 9f
    mov r14, [r15 + {thread_area}]
    mov rdi, [r15]
    test rdi, rdi       # nobody has come here yet but the first thread
    jz 5f
    cmp rdi, rbp
    je 5f
    mov eax, [r15 + {thread_number_at}]
    test eax, eax       # where its number is, is not known: it may be there
    jz 6f
    add rdi, rax
    mov r9d, [r15 + {thread_number}]
    call .Lengraft_holds
    cmp rax, -11        # EAGAIN: something else is there
    je 4f
    cmp rax, -14        # EFAULT: nothing is
    jne 6f
4:
    call .Lengraft_state
    jz 6f
    mov byte ptr [rax], 0
    jmp 6f
5:
    call .Lengraft_state
    jz 6f
    mov rcx, [rsp]
    cmp cl, {in_exit}
    jne 51f
    cmp byte ptr [rax], {has_ended}
    je 6f
51:
    mov [rax], cl
6:
    add r15, {thread_len}
    jmp 2b
9:
    pop rcx
    ret

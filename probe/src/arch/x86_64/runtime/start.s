# How a module starts: in place of DT_INIT or of the entry point.

# In place of DT_INIT. rdi, rsi, rdx: arguments, as for any such function.
.globl engraft_module_start
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
    mov r11, [rip + engraft_module + {module_init}]
    test r11, r11
    jz 2f
    lea rax, [rip + engraft_module]
    add r11, rax
    jmp r11
2:
    ret

# In place of the entry point. All registers may mean something there.
.globl engraft_module_entry
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
    add r11, [rip + engraft_module + {module_init}]
    jmp r11

# Says that this library has started, if it is one.
.Lengraft_set_started:
    lea rax, [rip + engraft_module]
    mov rcx, [rax + {module_started}]
    test rcx, rcx
    jz 2f
    mov byte ptr [rax + rcx], 1
2:
    ret

# Zero if this is a library that has not started. rax: where that is said.
.Lengraft_is_started:
    lea rax, [rip + engraft_module]
    mov rcx, [rax + {module_started}]
    add rax, rcx
    test rcx, rcx
    jz 2f
    cmp byte ptr [rax], 0
    ret
2:
    test rsp, rsp
    ret

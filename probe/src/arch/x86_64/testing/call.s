# extern "C" fn(rdi: registers, rsi: target). One at a time: where the stack was is kept in a static word,
# since some routines take words off it.
.pushsection .bss
.balign 8
.Lengraft_test_stack:
    .zero 8
.popsection
.pushsection .text
.globl engraft_test_call
engraft_test_call:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    pushfq
    rdgsbase rax
    push rax
    push rdi
    push rsi
    sub rsp, 24         # the caller's 16 bytes; and alignment, as at any call
    mov [rip + .Lengraft_test_stack], rsp
    mov rax, [rdi + {scratch}]
    mov [rsp], rax
    mov rax, [rdi + {scratch} + 8]
    mov [rsp + 8], rax
    mov rax, [rdi + {gs}]
    wrgsbase rax
    push qword ptr [rdi + {flags}]
    popfq
    mov rax, [rdi]
    mov rcx, [rdi + 8]
    mov rdx, [rdi + 16]
    mov rbx, [rdi + 24]
    mov rbp, [rdi + 32]
    mov rsi, [rdi + 40]
    mov r8, [rdi + 56]
    mov r9, [rdi + 64]
    mov r10, [rdi + 72]
    mov r11, [rdi + 80]
    mov r12, [rdi + 88]
    mov r13, [rdi + 96]
    mov r14, [rdi + 104]
    mov r15, [rdi + 112]
    mov rdi, [rdi + 48]
    call [rsp + 24]
    mov rsp, [rip + .Lengraft_test_stack]
    pushfq
    push rdi
    mov rdi, [rsp + 48]
    mov [rdi], rax
    mov [rdi + 8], rcx
    mov [rdi + 16], rdx
    mov [rdi + 24], rbx
    mov [rdi + 32], rbp
    mov [rdi + 40], rsi
    mov [rdi + 56], r8
    mov [rdi + 64], r9
    mov [rdi + 72], r10
    mov [rdi + 80], r11
    mov [rdi + 88], r12
    mov [rdi + 96], r13
    mov [rdi + 104], r14
    mov [rdi + 112], r15
    pop qword ptr [rdi + 48]
    pop qword ptr [rdi + {flags}]
    rdgsbase rax
    mov [rdi + {gs}], rax
    mov rax, [rsp]
    mov [rdi + {scratch}], rax
    mov rax, [rsp + 8]
    mov [rdi + {scratch} + 8], rax
    add rsp, 40
    pop rax
    wrgsbase rax
    popfq
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
.popsection

# What ld.so runs in place of an `openat`. See `open_library` in `x86_64.rs`.
.pushsection .rodata
.balign 16
.globl engraft_open_library, engraft_open_library_end
engraft_open_library:
    .quad 0             # 0: where to go on
    .quad 0             # 8: address of the table of paths
    # Entry, at 16: as the number of the call is about to be set; first what stood between that and the call.
    .fill 32, 1, 0x90
    # As the `openat` is about to be made.
    lea rsp, [rsp - 128]
    push rdi
    push rsi
    push rdx
    mov r11, [rip + engraft_open_library + 8]
2:
    mov ecx, [r11]
    test ecx, ecx
    jz 9f
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
    mov ecx, [r11 + 4]
    add rcx, r11
    mov [rsp + 8], rcx
    jmp 9f
4:
    add r11, rcx
    jmp 2b
9:
    pop rdx
    pop rsi
    pop rdi
    lea rsp, [rsp + 128]
    mov eax, 257        # openat
    syscall
    jmp [rip + engraft_open_library]
engraft_open_library_end:
.popsection

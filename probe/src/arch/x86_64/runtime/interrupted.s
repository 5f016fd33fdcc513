# Which code a signal interrupted: moved code, or what it called.

# Adds r8, 1 or -1, to how often moved code was interrupted where the signal rsi came. Zero if it was moved
# code, and could be. Where it came in other code, which may have been called by moved code that takes it to
# come back: the nearest address on the stack that may be behind such a call; where that only leads near, and
# a further one right there, or near, too, nobody knows which. There, the handler may have changed the context
# before 1 is taken back: where it stood, where a handler returns to, and what was written down, is kept in
# words of the frame that are nobody's (`reserved1` of `struct sigcontext`). If the address is behind a call
# of a function that is not near, but may be of the same library, it may be one of a call that is over: then a
# thread may have been stopped somewhere, no more is known.
.Lengraft_interrupted:
    movabs rbx, {arena}
    movabs r9, {process} + {homes}
    mov rax, [rsi - 136] # rip
    xor r10d, r10d
    test r8, r8
    js 2f
    mov rdx, [rsi - 144] # rsp
    mov [rsi - 24], rdx
    mov [rsi - 16], rax
2:
    cmp r10d, [rbx + {n_rows}]
    jae 21f
    cmp qword ptr [r9], 0
    je 3f
    cmp rax, [r9 + {home_text}]
    jb 3f
    cmp rax, [r9 + {home_text_end}]
    jb 4f
    lea rdx, [rip + engraft_module]
    add rdx, rax
    sub rdx, [r9 + {home_text_end}]
    lea rcx, [rip + engraft_module_callee]
    cmp rdx, rcx
    jb 3f
    lea rcx, [rip + engraft_module_callee_end]
    cmp rdx, rcx
    jb 33f
3:
    add r9, {home_len}
    inc r10d
    jmp 2b
21: # in other code
    test r8, r8
    jns 22f
    mov rdx, [rsi - 144] # rsp
    cmp [rsi - 24], rdx
    jne 8f
    sub rax, [rsi - 16] # it may have passed over an instruction
    add rax, 2048
    cmp rax, 4096
    jae 8f
    mov r9, [rsi - 40]  # what was written down
    cmp r9, -1
    jb 46f
    movabs rbx, {arena}
    lock dec qword ptr [rbx + {n_stopped}]
    jmp .Lengraft_committed
22:
    mov rdx, [rsi - 144] # rsp
    # No further than a signal's frame, whose registers may be any: segments stand in it, as in all 64-bit
    # programs. Those whose handlers were seen return elsewhere, and what is left of them may stand anywhere.
    mov qword ptr [rsi - 40], 0
    # At the first instruction of another handler, if its arguments are where the kernel puts them.
    mov rcx, [rsi - 168] # rdx
    lea rax, [rcx - 8]
    sub rax, rdx
    cmp rax, 16         # its address may be a stub's, which has pushed two words at most
    ja 221f
    add rcx, 304
    cmp [rsi - 192], rcx # rsi
    je 8f
221:
    mov rax, [rsi - 136]
    mov r15, [rsi - 32] # where a handler returns to
    sub rax, r15
    cmp rax, 9
    jb 8f
    movabs rcx, 0x002b000000000033
    lea rbp, [rdx + {deepest}]
    lea rdi, [rdx + {deep}]
    # Where the signal's frame ends, there is memory; a stack that is full has it elsewhere.
    mov rax, rdx
    sub rax, rsi
    cmp rax, 0x4000
    jae 23f
    mov eax, edx
    and eax, 4095
    cmp eax, 256
    jae 241f
23:
    call .Lengraft_reads
    je 241f
    or rdx, 4095        # the next page
    inc rdx
24:
    cmp rdx, rbp
    jae 291f
    test edx, 4095
    jz 23b
241:
    cmp [rdx], r15
    jne 25f
    cmp [rdx + 192], rcx
    je 291f
25:
    mov rax, [rdx]
    add rdx, 8
    movabs r9, {process} + {homes}
    xor r10d, r10d
251:
    cmp r10d, [rbx + {n_rows}]
    jae 24b
    cmp qword ptr [r9], 0
    je 26f
    cmp rax, [r9 + {home_text}]
    jbe 26f
    cmp rax, [r9 + {home_text_end}]
    jb 27f
26:
    add r9, {home_len}
    inc r10d
    jmp 251b
    # What calls that are over left behind may stand here, too: it is behind a call of a function near by, by
    # its slot; or of code that stays.
27:
    lea r14, [rax - 6]
    cmp r14, [r9 + {home_text}]
    jb 24b
    cmp word ptr [r14], 0x15ff # call through a slot
    je 28f
    cmp byte ptr [r14 + 1], 0xe8 # call
    jne 24b
    movsxd r14, dword ptr [rax - 4]
    add r14, rax
    cmp r14, [r9 + {home_text}]
    jb 271f
    cmp r14, [r9 + {home_text_end}]
    jb 272f
271:
    cmp r14, [r9 + {home_old}]
    jb 24b
    cmp r14, [r9 + {home_old_end}]
    jae 24b
    xchg rdx, r14
    call .Lengraft_reads # there may be nothing between segments
    xchg rdx, r14
    jne 24b
272:
    cmp dword ptr [r14], 0xfa1e0ff3 # endbr64
    jne 273f
    add r14, 4
273:
    cmp byte ptr [r14], 0xf2 # bnd
    jne 274f
    inc r14
274:
    cmp word ptr [r14], 0x25ff # jmp through a slot
    je 28f
    cmp r14, [r9 + {home_text}]
    jb 29f
    cmp r14, [r9 + {home_text_end}]
    jae 29f
    lea rax, [r14 + 64]
275: # in moved code: a stub, behind its counter or its events
    inc r14
    cmp r14, rax
    ja 24b
    cmp word ptr [r14], 0x25ff
    jne 275b
28:
    lea rax, [r14 + 6]
    movsxd r14, dword ptr [r14 + 2]
    add r14, rax
    call 298f
    jne 24b
    mov rax, [rsi - 136] # rip: in the stub? Then it has pushed two words at most
    cmp rax, [r9 + {home_old}]
    jb 281f
    cmp rax, [r9 + {home_old_end}]
    jae 281f
    mov r11, rdx
    sub r11, [rsi - 144]
    cmp r11, 24
    jbe 29f
281:
    mov r14, [r14]
    cmp r14, [r9 + {home_old}]
    jb 282f
    cmp r14, [r9 + {home_old_end}]
    jae 282f
2810: # not bound yet: it leads back to the stub, which has pushed its number
    call 298f
    jne 24b
    cmp dword ptr [r14], 0xfa1e0ff3 # endbr64
    jne 2811f
    add r14, 4
2811:
    cmp word ptr [r14], 0x5341 # push r11: mold's, where the number is in a register first
    je 2821f
    cmp byte ptr [r14], 0x68
    jne 2814f
    lea r11, [rdx - 16]
    cmp r11, [rsi - 144]
    jb 24b
    mov eax, [r14 + 1]
    cmp [r11], rax
    jne 24b
    cmp byte ptr [r14 + 5], 0xf2 # bnd
    jne 2812f
    inc r14
2812:
    cmp byte ptr [r14 + 5], 0xe9
    jne 2821f
    movsxd rax, dword ptr [r14 + 6]
    lea r14, [r14 + rax + 10]
    call 298f
    jne 24b
    cmp word ptr [r14], 0x35ff # the table's head: a push, and a jump to where the dynamic linker binds
    jne 2821f
    add r14, 6
    cmp byte ptr [r14], 0xf2 # bnd
    jne 2813f
    inc r14
2813:
    cmp word ptr [r14], 0x25ff
    jne 2821f
    movsxd rax, dword ptr [r14 + 2]
    lea r14, [r14 + rax + 6]
    call 298f
    jne 24b
    mov rax, [r14]
    sub rax, [rsi - 136] # did the signal come there? Else the number may be one of a call that is over
    add rax, {linker}
    cmp rax, 2 * {linker}
    jb 283f
    jmp 2821f
2814: # or bound to a stub of the module's own, whose address is the function's for the program
    mov r11, r14
    cmp byte ptr [r11], 0xe9 # which is moved
    je 2815f
    cmp byte ptr [r11], 0xf2 # bnd
    jne 2817f
    inc r11
    jmp 2817f
2815:
    movsxd rax, dword ptr [r11 + 1]
    lea r11, [r11 + rax + 5]
    cmp r11, [r9 + {home_text}]
    jb 24b
    cmp r11, [r9 + {home_text_end}]
    jae 24b
    lea rax, [r11 + 64]
2816:
    cmp word ptr [r11], 0x25ff
    je 2817f
    inc r11
    cmp r11, rax
    jb 2816b
2817:
    cmp word ptr [r11], 0x25ff
    jne 24b
    movsxd rax, dword ptr [r11 + 2]
    lea r14, [r11 + rax + 6]
    call 298f
    jne 24b
    mov r14, [r14]
    call 298f
    jne 2819f
    cmp byte ptr [r14], 0x68
    je 2810b
    cmp dword ptr [r14], 0xfa1e0ff3
    jne 24b
    cmp byte ptr [r14 + 4], 0x68
    je 2810b
    jmp 24b
2819:
    mov rax, [rsi - 136]
282:
    cmp rdx, rdi
    ja 24b
    sub rax, r14
    cmp rax, {within}
    jb 284f
    add rax, {near}
    cmp rax, 2 * {near}
    jb 283f
    add rax, {same} - {near}
    cmp rax, 2 * {same}
    jae 24b
2821:
    cmp qword ptr [rsi - 40], 0
    jne 24b
    mov qword ptr [rsi - 40], -1 # it may be: if nothing else is found
    jmp 24b
283: # near; it is this one, unless the signal came in what another call leads to, or near
    mov r11, [rsi - 40]
    call 295f
    mov rbp, rdi        # others are no further
    lea rax, [r11 + 1]
    cmp rax, 1
    jbe 24b
    cmp r11, [rsi - 40]
    je 24b
    mov qword ptr [rsi - 40], -1
    jmp 292f
284: # in what this call leads to; if another one may have led near, nobody knows
    mov rax, [rsi - 40]
    inc rax
    cmp rax, 1
    jbe 29f
    mov qword ptr [rsi - 40], -1
    jmp 292f
29:
    mov rax, [rsi - 40]
    inc rax
    cmp rax, 1
    ja 291f
    call 295f
291:
    mov r9, [rsi - 40]
    test r9, r9
    jz 8f
    cmp r9, -1
    jne 46f
292:
    movabs rbx, {arena}
    lock inc qword ptr [rbx + {n_stopped}]
    jmp .Lengraft_committed
295: # writes down that a call led there which comes back to the word before rdx, of the row r10, at r9
    mov rax, [rdx - 8]
    sub rax, [r9 + {home_text}]
    bts rax, {behind_call}
    lea r14, [r10 + 1]
    shl r14, {key_row}
    or r14, rax
    mov [rsi - 40], r14
    ret
298: # zero if r14 is in the old segments of the row at r9, and can be read
    cmp r14, [r9 + {home_old}]
    jb 299f
    cmp r14, [r9 + {home_old_end}]
    jae 299f
    xchg rdx, r14
    call .Lengraft_reads
    xchg rdx, r14
    ret
299:
    or eax, 1
    ret
33: # in its routine for indirect calls, which returns to moved code
    mov rbx, [rsi - 144] # rsp
    lea rcx, [rip + engraft_module_callee]
    cmp rdx, rcx
    je 34f
    lea rcx, [rip + engraft_module_callee_return]
    cmp rdx, rcx
    je 34f
    add rbx, {callee_frame}
34:
    mov rax, [rbx]
    movabs rbx, {arena}
    cmp rax, [r9 + {home_text}]
    jb 8f
    cmp rax, [r9 + {home_text_end}]
    jae 8f
4:  # the key: number of the row, from 1; where in its moved code
    sub rax, [r9 + {home_text}]
    lea r9, [r10 + 1]
    shl r9, {key_row}
    or r9, rax
46:
    test r9, r9
    jz 8f
    mov r14, [rbx + {interrupted_at}]
    add r14, rbx
    movabs r15, 0x9e3779b97f4a7c15
    imul r15, r9
    shr r15, 48
5:  # its own word, or one that means nothing (any more), of 16
    mov ecx, 16
    mov r10d, r15d
51:
    and r10d, {n_interrupted} - 1
    mov edx, r10d
    shl edx, 4
    cmp [r14 + rdx], r9
    je 6f
    inc r10d
    dec ecx
    jnz 51b
    mov ecx, 16
    mov r10d, r15d
52:
    and r10d, {n_interrupted} - 1
    mov edx, r10d
    shl edx, 4
    cmp qword ptr [r14 + rdx + {interrupted_n}], 0
    je 6f
    inc r10d
    dec ecx
    jnz 52b
    movabs rbx, {arena}
    lock inc qword ptr [rbx + {n_unknown}]
8:
    or eax, 1
    ret
6:
    lea r10, [r14 + rdx]
    mov rax, [r10]
    mov rdx, [r10 + {interrupted_n}]
    cmp rax, r9
    je 7f
    test rdx, rdx
    jnz 5b
7:
    mov rbx, r9
    lea rcx, [rdx + r8]
    lock cmpxchg16b [r10]
.Lengraft_commit:
    jnz 5b
.Lengraft_committed:
    xor eax, eax
    ret
.Lengraft_committed_end:

# Zero if there is memory at rdx; registers but rax are kept.
.Lengraft_reads:
    push rcx
    push rdx
    push rsi
    push rdi
    push r10
    push r11
    mov rsi, rdx
    mov edi, -1         # in no way
    xor edx, edx
    mov r10d, 8
    mov eax, 14         # rt_sigprocmask
    syscall
    cmp rax, -22        # EINVAL; else EFAULT
    pop r11
    pop r10
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    ret

# Zero if ucontext_t r12 is in these routines, of whichever module; r9 is where it would be in ours.
.Lengraft_inside:
    movabs rbx, {arena}
    movabs rdx, {process} + {homes}
    mov rax, [r12 + 168]
    xor r10d, r10d
2:
    cmp r10d, [rbx + {n_rows}]
    jae 8f
    cmp qword ptr [rdx], 0
    je 3f
    mov r9, rax
    sub r9, [rdx + {home_runtime}]
    lea rcx, [rip + engraft_module]
    add r9, rcx
    lea rcx, [rip + .Lengraft_signal_known]
    cmp r9, rcx
    jb 3f
    lea rcx, [rip + .Lengraft_signals_end]
    cmp r9, rcx
    jb 4f
3:
    add rdx, {home_len}
    inc r10d
    jmp 2b
4:
    xor eax, eax
    ret
8:
    or eax, 1
    ret

# Zero if what ucontext_t r12, at r9, was writing down is written down, but its handler may not know.
.Lengraft_is_done:
    lea rax, [rip + .Lengraft_commit]
    cmp r9, rax
    je 2f
    lea rax, [rip + .Lengraft_logged]
    cmp r9, rax
    je 2f
    lea rax, [rip + .Lengraft_committed]
    lea rcx, [rip + .Lengraft_committed_end]
    call 3f
    jz 9f
    lea rax, [rip + .Lengraft_swap]
    lea rcx, [rip + .Lengraft_swapped]
    call 3f
    jz 9f
    lea rax, [rip + .Lengraft_signalled_done]
    lea rcx, [rip + .Lengraft_signalled_end]
    call 3f
    ret
2:
    mov rax, [r12 + 176] # flags
    not rax
    test eax, 0x40      # zero
9:
    ret
3:  # zero if r9 is from rax up to rcx
    cmp r9, rax
    jb 4f
    cmp r9, rcx
    jae 4f
    cmp eax, eax
    ret
4:
    test rsp, rsp
    ret
.Lengraft_signals_end:

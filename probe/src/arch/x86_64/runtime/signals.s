# Signal handlers: what they interrupt, and their events.

# An entry whose third argument stands right behind its return address: as that of a signal handler does.
# r11: where to go on. Where the signal came in moved code, that is written down, and taken back when the
# handler returns: so what is left is where handlers left code that they interrupted, by longjmp, by ending
# their thread, or by changing its context.
#
# The next signal may come in here. So: r13 is its siginfo_t (304 bytes behind its ucontext_t), rsi that of
# the signal that is being written down, r8 by how much; the other registers are free, since a handler expects
# nothing in them. Whoever interrupts this, does it all for it, and has it go on with its handler, whose event
# is then still to come or comes again: else it would never be done, should that handler leave.
.globl engraft_module_signal
engraft_module_signal:
    push rax
    lea rax, [rdx + 304]
    cmp rsi, rax
    jne 8f
    movabs rax, 0x002b000000000033
    cmp [rdx + 184], rax # segments, as in all 64-bit programs; si_signo is only there for some
    jne 8f
    pop rax
    # What the handler gets, and where it is, in words that are nobody's, as `.Lengraft_interrupted` says.
    mov [rsi - 48], rdi
    mov [rsi - 56], r11
    mov r13, rsi
    mov r8d, 1
    jmp .Lengraft_signal_known
8:
    pop rax
    jmp r11

# What such a handler returns to. An unwinder that looks up a return address takes one byte off.
    nop
.globl engraft_module_signalled
engraft_module_signalled:
    lea r13, [rsp + 304]
    mov r8, -1
    jmp .Lengraft_signalled_known

.Lengraft_signal_known:
    mov rsi, r13
    lea rax, [rip + engraft_module]
    add rax, [rax]
    rdgsbase rcx
    cmp byte ptr [rax + rcx + {is_recorded}], 0
    je 7f               # nothing is recorded in this process
    call .Lengraft_log
2:
    lea r12, [rsi - 304]
    call .Lengraft_inside
    jnz 4f
    cmp qword ptr [r12 + 40], 1 # r8
    jne 5f
    call .Lengraft_is_done
    jnz 3f
    mov rax, [r12 + 112] # rsi
    lea rcx, [rip + engraft_module_signalled]
    mov [rax - 312], rcx
3:
    mov rsi, [r12 + 80] # r13
    lea rax, [rip + .Lengraft_signal_written]
    sub rax, r9
    add [r12 + 168], rax # rip
    lea rax, [rsi - 312]
    mov [r12 + 160], rax # rsp
    call .Lengraft_log
    jmp 2b
4:  # on its way to here, for another signal?
    mov rax, [r12 + 136]
    mov rcx, [r12 + 112]
    lea rdx, [rax + 304]
    cmp rcx, rdx
    jne 7f
    mov rdx, rax
    sub rdx, [r12 + 160]
    cmp rdx, 4096
    jae 7f
    movabs rdx, 0x002b000000000033
    cmp [rax + 184], rdx
    jne 7f
    mov rsi, rcx
    call .Lengraft_log
    jmp 2b
5:  # behind a handler that has returned: it is taken back once more, should this one return
    cmp qword ptr [r12 + 40], -1
    jne 7f
    call .Lengraft_is_done
    jnz 7f
    mov rsi, [r12 + 80]
    call .Lengraft_interrupted
    lea rax, [rip + engraft_module_signalled]
    mov [r12 + 168], rax
    lea rax, [rsi - 304]
    mov [r12 + 160], rax
7:
.Lengraft_signal_written:
    call .Lengraft_mark
    mov rdi, [r13 - 48]
    mov r11, [r13 - 56]
    mov rsi, r13
    lea rdx, [r13 - 304]
    xor eax, eax
    jmp r11

.Lengraft_signalled_known:
    call .Lengraft_redirected
    mov rsi, r13
    call .Lengraft_interrupted
.Lengraft_signalled_done:
    mov eax, 15         # rt_sigreturn
    syscall
.Lengraft_signalled_end:

# Where events are recorded, appends one that says where the signal r13 came, and that its handler is entered
# next. If it came before the handler of another signal has begun, that is where the other one came.
.Lengraft_mark:
    lea rbx, [rip + engraft_module]
    cmp qword ptr [rbx + {module_has_events}], 0
    je 9f
    add rbx, [rbx]
    add rbx, {home_head}
    mov rsi, r13
1:
    call .Lengraft_room
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {process} + {homes}
    mov rdx, [rsi - 136] # rip
    lea rcx, [rip + engraft_module_end]
    lea rax, [rip + engraft_module]
    sub rcx, rax        # how long such code is, of each module
11:
    sub r10d, 1
    jb 14f
    cmp qword ptr [r9], 0
    je 12f
    mov rax, [r9 + {home_runtime}]
    sub rdx, rax
    cmp rdx, rcx
    jb 15f
    add rdx, rax
    cmp rdx, [r9 + {home_old}]
    jb 111f
    cmp rdx, [r9 + {home_old_end}]
    jb 13f
111:
    cmp rdx, [r9 + {home_text}]
    jb 12f
    cmp rdx, [r9 + {home_text_end}]
    jae 12f
    sub rdx, [r9 + {home_text}]
    mov rcx, [r9 + {home_runtime}]
    mov ecx, [rcx + {module_key}]
    jmp 2f
12:
    add r9, {home_len}
    jmp 11b
13: # in old code: a handler's first instruction, if its arguments are where the kernel puts them
    mov rax, [rsi - 168] # rdx
    mov rcx, [rsi - 192] # rsi
    lea r9, [rax + 304]
    cmp rcx, r9
    jne 14f
    sub rax, [rsi - 144] # rsp
    cmp rax, 8
    jne 14f
    mov rsi, rcx
    jmp 1b
14: # no module's; but `.Lengraft_interrupted` may know the call that led there
    mov rax, [rsi - 40]
    mov r9, rax
    shr r9, {key_row}
    dec r9
    movabs rcx, {arena}
    cmp r9d, [rcx + {n_rows}]
    jae 141f
    btr rax, {behind_call}
    jnc 141f
    shl r9, {home_shift}
    movabs rcx, {process} + {homes}
    add r9, rcx
    lea edx, [rax - 1]
    mov rcx, [r9 + {home_text_end}]
    sub rcx, [r9 + {home_text}]
    cmp rdx, rcx
    jae 141f
    bts edx, {in_call}
    mov rcx, [r9 + {home_runtime}]
    mov ecx, [rcx + {module_key}]
    jmp 2f
141:
    xor ecx, ecx
    jmp 2f
    # In these routines, for another signal; or in what takes another chunk, or the like: at no place of the
    # program's.
15:
    mov ecx, [rax + {module_key}]
    lea rax, [rip + engraft_module]
    add rdx, rax
    lea rax, [rip + .Lengraft_signal_known]
    cmp rdx, rax
    jb 16f
    lea rax, [rip + .Lengraft_signals_end]
    cmp rdx, rax
    jae 16f
    mov rsi, [rsi - 224] # r13
    jmp 1b
16:
    mov edx, -1
.Lengraft_append:
2:
    cmp qword ptr gs:[rbx + {events_base}], 0
    je 9f
    mov eax, 12
    xadd gs:[rbx], rax
    cmp gs:[rbx + {events_limit}], rax
    ja 3f
    call engraft_module_chunk
    jnz 2b
    ret
3:
    mov dword ptr [rax], {handler}
    mov [rax + 4], ecx
    mov [rax + 8], edx
9:
    ret

# Where events are recorded, appends one if the handler of the signal r13 has changed the context to lead
# elsewhere, out of moved code. Keeps r8 and r13. Before 1 is taken back: if another signal comes meanwhile
# whose handler leaves, that is never done.
.Lengraft_redirected:
    lea rbx, [rip + engraft_module]
    cmp qword ptr [rbx + {module_has_events}], 0
    je 9f
    mov rdx, [r13 - 136] # rip
    mov rax, rdx
    sub rax, [r13 - 16] # it may have passed over an instruction
    add rax, 2048
    cmp rax, 4096
    jb 9f
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {process} + {homes}
1:
    sub r10d, 1
    jb 3f
    cmp qword ptr [r9], 0
    je 2f
    cmp rdx, [r9 + {home_text}]
    jb 2f
    cmp rdx, [r9 + {home_text_end}]
    jb 9f
2:
    add r9, {home_len}
    jmp 1b
3:
    add rbx, [rbx]
    add rbx, {home_head}
    mov ecx, {redirected}
    mov edx, ecx
    jmp .Lengraft_append
9:
    ret

# Where the signal rsi came between the two instructions of moved code that take room for an event and read
# where it is, reads it for the thread: before the handler takes room. Its form is that of `snippet::event`;
# no other code has the address of that word. There may be no code any more where the signal came. Keeps rsi,
# r8 and r13.
.Lengraft_room:
    cmp qword ptr [rip + engraft_module + {module_has_events}], 0
    je 9f
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {process} + {homes}
    mov rax, [rsi - 136] # rip
1:
    sub r10d, 1
    jb 9f
    cmp qword ptr [r9], 0
    je 2f
    cmp rax, [r9 + {home_text}]
    jb 2f
    cmp rax, [r9 + {home_text_end}]
    jb 3f
2:
    add r9, {home_len}
    jmp 1b
3:
    mov rdx, rax
    call .Lengraft_reads
    je 4f
    ret
4:
    mov rax, rdx
    mov edx, [rax]
    mov ecx, edx
    and ecx, 0xc7fffbff # but for the register's number
    cmp ecx, 0x058b4865 # mov %gs:(%rip),%rax
    jne 9f
    movsxd rcx, dword ptr [rax + 4]
    lea rcx, [rax + rcx + 8]
    sub rcx, [r9]
    cmp rcx, {home_head}
    jne 9f
    mov ecx, edx
    shr ecx, 27         # three bits of it
    and ecx, 7
    shr edx, 7          # the fourth
    and edx, 8
    or ecx, edx
    shl ecx, 2
    movabs rdx, 0x7654321089afbced # where the kernel keeps each, from r8 on
    shr rdx, cl
    and edx, 15
    mov rcx, [r9]
    mov rcx, gs:[rcx + {home_head}]
    mov [rsi + 8 * rdx - 264], rcx
    add qword ptr [rsi - 136], 8
9:
    ret

# Writes down the signal rsi, unless that was done, and has its handler return to where it is taken back.
.Lengraft_log:
    call .Lengraft_room
    mov rax, [rsi - 312]
    movabs rcx, 0x0f0000000fc0c748 # mov $15,%rax; syscall: rt_sigreturn, as each C library has it
    cmp [rax], rcx
    jne 9f
    cmp byte ptr [rax + 8], 0x05
    jne 9f
    mov [rsi - 32], rax
    call .Lengraft_interrupted
.Lengraft_logged:
    jnz 9f
.Lengraft_swap:
    lea rax, [rip + engraft_module_signalled]
    mov [rsi - 312], rax
.Lengraft_swapped:
9:
    ret

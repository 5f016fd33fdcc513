# The runtime behind the moved code of a counted module. See `x86_64.rs` for what is where.
#
# In all routines: rbx = the recording, r12 = what this process knows. They keep r12 and rbx, and the others
# as they say.
.pushsection .rodata
.balign 16
.globl engraft_module, engraft_module_slow, engraft_module_start, engraft_module_entry, engraft_module_end
.globl engraft_module_signal, engraft_module_signalled
.globl engraft_module_async, engraft_module_vforked, engraft_module_abort, engraft_module_leave, engraft_module_back, engraft_module_begin, engraft_module_last, engraft_module_last_end
.globl engraft_module_chunk, engraft_module_callee, engraft_module_callee_return, engraft_module_callee_saved, engraft_module_callee_end
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
    .quad 0             # 80: the moved code, from here; it ends here
    .quad 0             # 88: the old segments, from here
    .quad 0             # 96: their end, from here
    .quad 0             # 104: length of the words that add up, in bytes; behind them those of sites of calls through pointers
    .quad 0             # 112: how many sites
    .quad 0             # 120: the table of where these lead, from here
    .quad 0             # 128: how many slots it has, less one
    .quad 0             # 136: added to the distance of such a target, it is below the length of the old segments if it is in them
    .quad 0             # 144: whether its words are those of events

# An entry whose area is another thread's, or another process's, or one of a library that has not started.
# r11: where to go on.
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
    mov dword ptr [rax + 24], 0
    jmp 7f
4:  # one of a thread that is no more
    mov r14d, 8
    call .Lengraft_reap
    test rax, rax
    jnz 44f
    cmp qword ptr [r12 + {is_full}], 0 # a new one
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
    neg r15             # above: for programs at low addresses, if their libraries, those that come later too, have addresses there
    rdfsbase rax
    add rax, r15
    shr rax, 34
    cmp rax, 0x1fff
    jae 53f
    call .Lengraft_map_area
    jz 54f
53:
    mov r15, [r12 + {n_tried}]
    shl r15, 22         # 4 MiB apart
    neg r15
    call .Lengraft_map_area
    jz 531f
    mov r15, [r12 + {n_tried}]
    shl r15, 34         # above, whatever comes later
    call .Lengraft_map_area
    jnz 5b
531:
    lock inc qword ptr [rbx + {n_near}]
54:
    rdfsbase rbp
    mov rax, [r12 + {n_threads}]
    imul rax, rax, {thread_len}
    lea rax, [r12 + rax + {threads}]
    mov [rax], rbp
    mov [rax + 8], r15
    mov [rax + 16], r13
    mov dword ptr [rax + 24], 0
    inc qword ptr [r12 + {n_threads}]
    jmp 7f
55:
    mov qword ptr [r12 + {is_full}], 1
    mov rax, [rbx + {owners_at}]
    add rax, rbx
    mov dword ptr [rax + 4 * r13], 0
    mov r14, r13
    call .Lengraft_state
    jz 6f
    mov byte ptr [rax], 0
6:  # no room but that of a thread that is no more
    rdfsbase rbp
    mov r14, [r12 + {n_threads}]
    call .Lengraft_reap
    test rax, rax
    jnz 44f
    mov r15, [r12 + {threads} + 8] # with the first thread
    lock inc qword ptr [rbx + {n_shared}]
    xor r14d, r14d
    jmp 81f
44:
    mov r15, [rax + 8]
    mov [rax], rbp
7:
    push rax
    call .Lengraft_name_owner
    pop rax
8:
    mov r13, rax
    mov r14d, [rax + 24]
    call .Lengraft_begins
    mov eax, [r13 + 24]
    test r14d, r14d     # the number of the thread that had it, if one had
    jz 81f
    sub r14d, eax
81: # r14d: whether it was another one's
    wrgsbase r15
    test r14d, r14d
    jz 82f
    call .Lengraft_is_another
82:
    call .Lengraft_unlock
9:
.Lengraft_slow_done:
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

# Says among its events that from here on they are another thread's.
.Lengraft_is_another:
    cmp qword ptr [rip + engraft_module + 144], 0
    je 9f
    push rbx
    lea rbx, [rip + engraft_module]
    add rbx, [rbx]
    add rbx, {home_head}
2:
    cmp qword ptr gs:[rbx + {events_base}], 0
    je 8f
    mov eax, 4
    xadd gs:[rbx], rax
    cmp gs:[rbx + {events_limit}], rax
    ja 3f
    call engraft_module_chunk
    jnz 2b
    jmp 8f
3:
    mov dword ptr [rax], {another}
8:
    pop rbx
9:
    ret

# Before a call that lets this thread be cancelled anywhere (edi: 1, or 0 if not): so it may be stopped in the
# middle of a block, and nobody will see it.
engraft_module_async:
    cmp edi, 1          # PTHREAD_CANCEL_ASYNCHRONOUS
    je 1f
    jmp r11
1:
    push rax
    xor eax, eax
    jmp 2f

# Behind a call of vfork: whether this is the child (rax: 0), which has its parent's memory.
engraft_module_vforked:
    push rax
    mov al, 255
    jmp 2f

# Before a call that ends the process, or makes another program of it: says so of this thread, and of those
# that are no more. r11: where to go on. And behind such a call that came back: this thread goes on.
engraft_module_leave:
    push rax
    mov al, {has_ended}
    jmp 2f
engraft_module_back:
    push rax
    mov al, {may_run}
    jmp 2f
engraft_module_in_exit: # at the end of `exit`, whoever called it
    push rax
    mov al, {in_exit}
    jmp 2f
engraft_module_abort:   # what ends the process by SIGABRT, unless a handler of that goes elsewhere
    push rax
    mov al, {aborts}
2:
    push rcx
    movzx ecx, al
    lea rax, [rip + engraft_module]
    add rax, [rax]
    cmp qword ptr [rax + 4080], 0
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
engraft_module_last:
    sub rsp, 8
    movabs rax, {own} + {at_end}
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
    mov r14, [r15 + 16]
    mov rdi, [r15]
    test rdi, rdi       # nobody has come here yet but the first thread
    jz 5f
    cmp rdi, rbp
    je 5f
    mov eax, [r15 + 28]
    test eax, eax       # where its number is, is not known: it may be there
    jz 6f
    add rdi, rax
    mov r9d, [r15 + 24]
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

# Writes down that this thread runs, of which rax is what is kept: its number, and where its C library keeps
# that as long as it is there. The kernel, or that library, overwrites it when the thread ends, before anybody
# can have waited for it. Which library it is, is known by what stands beside it; nothing is asked that
# filters may forbid. rbp: its thread pointer.
.Lengraft_begins:
    push r13
    push r14
    mov r13, rax
    mov r14, [rax + 16]
    call .Lengraft_state
    jz 2f
    mov byte ptr [rax], {may_run}
2:
    xor eax, eax
    call .Lengraft_number
    mov dword ptr [r13 + 28], 0
    lea rdi, [rbp + {robust_glibc}]
    mov r9d, {robust_offset}
    mov r14d, {tid_glibc}
    call .Lengraft_holds
    test rax, rax
    jns 3f
    lea rdi, [rbp + {detach_musl}]
    mov r9d, {joinable_musl}
    mov r14d, {tid_musl}
    call .Lengraft_holds
    test rax, rax
    jns 3f
    lea rdi, [rbp + {detach_musl}]
    mov r9d, {joinable_musl} + 1
    call .Lengraft_holds
    test rax, rax
    js 9f
3:
    mov eax, [rbp + r14]
    test eax, eax
    jle 9f
    mov [r13 + 24], eax
    mov [r13 + 28], r14d
    call .Lengraft_number
9:
    pop r14
    pop r13
    ret

# Where events are recorded, writes down that the thread whose events are at distance r15 has the number eax.
.Lengraft_number:
    cmp qword ptr [rip + engraft_module + 144], 0
    je 9f
    lea rdi, [rip + engraft_module]
    add rdi, [rdi]
    mov [rdi + r15 + {home_head} + {events_number}], eax
9:
    ret

# rax: not negative if r9d stands at rdi, where there may be nothing.
.Lengraft_holds:
    mov esi, 132        # FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, of nobody
    xor edx, edx
    xor r10d, r10d
    mov r8, r12
    mov eax, 202        # futex
    syscall
    ret

# rax: where it is written down what is known of the thread of area r14; flags: zero if that is nowhere.
.Lengraft_state:
    mov rax, [rbx + {states_at}]
    test rax, rax
    jz 9f
    cmp r14, [rbx + {max_areas}]
    jae 8f
    add rax, rbx
    add rax, r14
    ret
8:
    xor eax, eax
9:
    ret

# An entry whose third argument stands right behind its return address: as that of a signal's handler does.
# r11: where to go on. Where the signal came in moved code, that is written down, and taken back when the
# handler returns: so what is left is where handlers left code that they interrupted, by longjmp, by ending
# their thread, or by changing its context.
#
# The next signal may come in here. So: r13 is its siginfo_t (304 bytes behind its ucontext_t), rsi that of
# the signal that is being written down, r8 by how much; the other registers are free, since a handler expects
# nothing in them. Whoever interrupts this, does it all for it, and has it go on with its handler, whose event
# is then still to come or comes again: else it would never be done, should that handler leave.
engraft_module_signal:
    push rax
    lea rax, [rdx + 304]
    cmp rsi, rax
    jne 8f
    movabs rax, 0x002b000000000033
    cmp [rdx + 184], rax # segments, as in all 64-bit programs; si_signo is only there for some
    jne 8f
    pop rax
    mov [rsi - 48], rdi # words that are nobody's, as `.Lengraft_interrupted` says: what the handler gets, and where it is
    mov [rsi - 56], r11
    mov r13, rsi
    mov r8d, 1
    jmp .Lengraft_signal_known
8:
    pop rax
    jmp r11

# What such a handler returns to. An unwinder that looks up a return address takes one byte off.
    nop
engraft_module_signalled:
    lea r13, [rsp + 304]
    mov r8, -1
    jmp .Lengraft_signalled_known

.Lengraft_signal_known:
    mov rsi, r13
    lea rax, [rip + engraft_module]
    add rax, [rax]
    rdgsbase rcx
    cmp byte ptr [rax + rcx + 4072], 0
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
    cmp qword ptr [rbx + 144], 0
    je 9f
    add rbx, [rbx]
    add rbx, {home_head}
    mov rsi, r13
1:
    call .Lengraft_room
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {own} + {homes}
    mov rdx, [rsi - 136] # rip
    lea rcx, [rip + engraft_module_end]
    lea rax, [rip + engraft_module]
    sub rcx, rax        # how long such code is, of each module
11:
    sub r10d, 1
    jb 14f
    cmp qword ptr [r9], 0
    je 12f
    mov rax, [r9 + 8]
    sub rdx, rax
    cmp rdx, rcx
    jb 15f
    add rdx, rax
    cmp rdx, [r9 + 32]
    jb 111f
    cmp rdx, [r9 + 40]
    jb 13f
111:
    cmp rdx, [r9 + 16]
    jb 12f
    cmp rdx, [r9 + 24]
    jae 12f
    sub rdx, [r9 + 16]
    mov rcx, [r9 + 8]
    mov ecx, [rcx + 16]
    jmp 2f
12:
    add r9, 64
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
    shr r9, 40
    dec r9
    movabs rcx, {arena}
    cmp r9d, [rcx + {n_rows}]
    jae 141f
    btr rax, {behind_call}
    jnc 141f
    shl r9, 6
    movabs rcx, {own} + {homes}
    add r9, rcx
    lea edx, [rax - 1]
    mov rcx, [r9 + 24]
    sub rcx, [r9 + 16]
    cmp rdx, rcx
    jae 141f
    bts edx, {in_call}
    mov rcx, [r9 + 8]
    mov ecx, [rcx + 16]
    jmp 2f
141:
    xor ecx, ecx
    jmp 2f
15: # in these routines, for another signal; or in what takes another chunk, or the like: at no place of the program's
    mov ecx, [rax + 16]
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
    cmp qword ptr [rbx + 144], 0
    je 9f
    mov rdx, [r13 - 136] # rip
    mov rax, rdx
    sub rax, [r13 - 16] # it may have passed over an instruction
    add rax, 2048
    cmp rax, 4096
    jb 9f
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {own} + {homes}
1:
    sub r10d, 1
    jb 3f
    cmp qword ptr [r9], 0
    je 2f
    cmp rdx, [r9 + 16]
    jb 2f
    cmp rdx, [r9 + 24]
    jb 9f
2:
    add r9, 64
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
    cmp qword ptr [rip + engraft_module + 144], 0
    je 9f
    movabs r9, {arena}
    mov r10d, [r9 + {n_rows}]
    movabs r9, {own} + {homes}
    mov rax, [rsi - 136] # rip
1:
    sub r10d, 1
    jb 9f
    cmp qword ptr [r9], 0
    je 2f
    cmp rax, [r9 + 16]
    jb 2f
    cmp rax, [r9 + 24]
    jb 3f
2:
    add r9, 64
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
    movabs r9, {own} + {homes}
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
    cmp rax, [r9 + 16]
    jb 3f
    cmp rax, [r9 + 24]
    jb 4f
    lea rdx, [rip + engraft_module]
    add rdx, rax
    sub rdx, [r9 + 24]
    lea rcx, [rip + engraft_module_callee]
    cmp rdx, rcx
    jb 3f
    lea rcx, [rip + engraft_module_callee_end]
    cmp rdx, rcx
    jb 33f
3:
    add r9, 64
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
    mov rcx, [rsi - 168] # rdx: the first instruction of another handler, if its arguments are where the kernel puts them
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
    mov rax, rdx        # where the signal's frame ends, there is memory; a stack that is full has it elsewhere
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
    movabs r9, {own} + {homes}
    xor r10d, r10d
251:
    cmp r10d, [rbx + {n_rows}]
    jae 24b
    cmp qword ptr [r9], 0
    je 26f
    cmp rax, [r9 + 16]
    jbe 26f
    cmp rax, [r9 + 24]
    jb 27f
26:
    add r9, 64
    inc r10d
    jmp 251b
27: # what calls that are over left behind may stand here, too: it is behind a call of a function near by, by its slot; or of code that stays
    lea r14, [rax - 6]
    cmp r14, [r9 + 16]
    jb 24b
    cmp word ptr [r14], 0x15ff # call through a slot
    je 28f
    cmp byte ptr [r14 + 1], 0xe8 # call
    jne 24b
    movsxd r14, dword ptr [rax - 4]
    add r14, rax
    cmp r14, [r9 + 16]
    jb 271f
    cmp r14, [r9 + 24]
    jb 272f
271:
    cmp r14, [r9 + 32]
    jb 24b
    cmp r14, [r9 + 40]
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
    cmp r14, [r9 + 16]
    jb 29f
    cmp r14, [r9 + 24]
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
    cmp rax, [r9 + 32]
    jb 281f
    cmp rax, [r9 + 40]
    jae 281f
    mov r11, rdx
    sub r11, [rsi - 144]
    cmp r11, 24
    jbe 29f
281:
    mov r14, [r14]
    cmp r14, [r9 + 32]
    jb 282f
    cmp r14, [r9 + 40]
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
    cmp r11, [r9 + 16]
    jb 24b
    cmp r11, [r9 + 24]
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
    sub rax, [r9 + 16]
    bts rax, {behind_call}
    lea r14, [r10 + 1]
    shl r14, 40
    or r14, rax
    mov [rsi - 40], r14
    ret
298: # zero if r14 is in the old segments of the row at r9, and can be read
    cmp r14, [r9 + 32]
    jb 299f
    cmp r14, [r9 + 40]
    jae 299f
    xchg rdx, r14
    call .Lengraft_reads
    xchg rdx, r14
    ret
299:
    or eax, 1
    ret
33: # in its routine for calls through pointers, which returns to moved code
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
    cmp rax, [r9 + 16]
    jb 8f
    cmp rax, [r9 + 24]
    jae 8f
4:  # the key: number of the row, from 1; where in its moved code
    sub rax, [r9 + 16]
    lea r9, [r10 + 1]
    shl r9, 40
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
    cmp qword ptr [r14 + rdx + 8], 0
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
    mov rdx, [r10 + 8]
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
    movabs rdx, {own} + {homes}
    mov rax, [r12 + 168]
    xor r10d, r10d
2:
    cmp r10d, [rbx + {n_rows}]
    jae 8f
    cmp qword ptr [rdx], 0
    je 3f
    mov r9, rax
    sub r9, [rdx + 8]
    lea rcx, [rip + engraft_module]
    add r9, rcx
    lea rcx, [rip + .Lengraft_signal_known]
    cmp r9, rcx
    jb 3f
    lea rcx, [rip + .Lengraft_signals_end]
    cmp r9, rcx
    jb 4f
3:
    add rdx, 64
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

# Takes another chunk for events, where there is no room in the one that is filled; all registers are kept.
# Flags: zero if nothing is recorded. Signals wait meanwhile: a handler's events come before or behind.
engraft_module_chunk:
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
    lea rbx, [rip + engraft_module]
    add rbx, [rbx]
    add rbx, {home_head}
    cmp qword ptr gs:[rbx + {events_base}], 0
    je 9f
    cmp qword ptr gs:[rbx + {events_lost}], 0
    je 1f
    call .Lengraft_into_nothing
    test rsp, rsp
    jmp 9f
1:
    sub rsp, 16
    mov eax, 14         # rt_sigprocmask
    mov edi, 2          # SIG_SETMASK
    lea rsi, [rip + engraft_module + 32]
    mov rdx, rsp
    mov r10d, 8
    syscall
    mov rax, gs:[rbx]
    cmp rax, gs:[rbx + {events_limit}]
    jb 7f               # a handler has got one
    cmp qword ptr gs:[rbx + {events_limit}], 0
    je 6f
    mov ecx, gs:[rbx + {events_chunk}]
    mov dword ptr gs:[rbx + 4 * rcx + {events_full}], 1
    inc ecx
    and ecx, {n_chunks} - 1
    cmp dword ptr gs:[rbx + 4 * rcx + {events_full}], 0
    je 5f
    inc qword ptr gs:[rbx + {events_stalls}]
2:
    mov rax, gs:[rbx + {events_taker}]
    test dword ptr [rax], 0x40000000 # FUTEX_OWNER_DIED
    jnz 4f
    push rcx
    push 1000000        # ns
    push 0
    mov rdi, gs:[rbx + {events_control}]
    lea rdi, [rdi + 4 * rcx + {events_full}]
    xor esi, esi        # FUTEX_WAIT
    mov edx, 1
    mov r10, rsp
    mov eax, 202        # futex
    syscall
    pop rax
    pop rax
    pop rcx
    cmp dword ptr gs:[rbx + 4 * rcx + {events_full}], 0
    jne 2b
    jmp 5f
4:  # nobody is there
    mov qword ptr gs:[rbx + {events_lost}], 1
    call .Lengraft_into_nothing
    jmp 7f
5:
    mov gs:[rbx + {events_chunk}], rcx
    imul rcx, rcx, {chunk_len}
    add rcx, gs:[rbx + {events_base}]
    mov gs:[rbx], rcx
    add rcx, {chunk_len} - {chunk_room}
    mov gs:[rbx + {events_limit}], rcx
    jmp 7f
6:
    push 0
    jmp 8f
7:
    push 1
8:
    lea rsi, [rsp + 8]
    xor edx, edx
    mov edi, 2
    mov r10d, 8
    mov eax, 14
    syscall
    pop rcx
    add rsp, 16
    test ecx, ecx
9:
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
    ret

# From here on events go round where nobody reads them: that is as quick as before, and nothing else is to be
# asked at each.
.Lengraft_into_nothing:
    mov rcx, gs:[rbx + {events_control}]
    add rcx, {events_nothing}
    mov gs:[rbx], rcx
    add rcx, {events_nothing_len} - {chunk_room}
    mov gs:[rbx + {events_limit}], rcx
    ret

# A call through a pointer that does not lead where its site led first. r11: the distance from where it leads
# to the owner's word; in front of the return address, the number of the site's first word, which is taken
# off. All registers but the flags are kept. No system calls.
#
# A site has three words: where it led first, if that is in this module; how often; how often to where the
# table had no room for. A slot of the table has four: the site; r11; how often; and 1, or, of a target in
# another module, which it is: 2^48 times the number of its row, from 1, and where it is from the start of its
# old segments; or the target itself, if it is in none that is known. A slot is taken word by word, each by
# one instruction: whoever comes in between, by a signal, finds it free or as good as taken.
#
# The return address is {callee_frame} bytes above the stack pointer, but before the first and the last
# instruction.
engraft_module_callee:
    lea rsp, [rsp - {callee_frame}]
    mov [rsp + 88], rax
    mov [rsp + 80], rcx
    mov [rsp + 72], rdx
    mov ecx, [rsp + {callee_frame} + 8]
    imul rax, rcx, 0x1e35a7bd
    add rax, r11
    movabs rdx, 0x9e3779b97f4a7c15
    imul rax, rdx
    lea rdx, [rip + engraft_module]
    shr rax, 32
    and rax, [rdx + 128]
    shl rax, 5
    add rax, rdx
    add rax, [rdx + 120]
    cmp gs:[rax], rcx
    jne .Lengraft_callee_look
    cmp gs:[rax + 8], r11
    jne .Lengraft_callee_look
    cmp qword ptr gs:[rax + 24], 1
    jne 4f
2:
    inc qword ptr gs:[rax + 16]
3:
    mov rdx, [rsp + 72]
    mov rcx, [rsp + 80]
    mov rax, [rsp + 88]
    lea rsp, [rsp + {callee_frame}]
engraft_module_callee_return:
    ret 8
4:  # in another module: is it still the one?
    mov [rsp + 64], rdi
    mov [rsp + 56], rsi
    add rdx, [rdx]
    lea rdx, [rdx + 4088]
    sub rdx, r11
    mov rdi, gs:[rax + 24]
    cmp rdi, rdx
    je 5f
    mov rsi, rdi
    shr rsi, 48
    jz 6f
    shl rsi, 6
    movabs rcx, {own} + {homes} - 64
    add rsi, rcx
    cmp qword ptr [rsi], 0
    je 6f
    shl rdi, 16
    shr rdi, 16
    add rdi, [rsi + 32]
    cmp rdi, rdx
    jne 6f
5:
    mov rsi, [rsp + 56]
    mov rdi, [rsp + 64]
    jmp 2b
6:
    mov rsi, [rsp + 56]
    mov rdi, [rsp + 64]
    mov ecx, [rsp + {callee_frame} + 8]
.Lengraft_callee_look:
    mov [rsp + 64], rdi
    mov [rsp + 56], rsi
    mov [rsp + 48], rbx
engraft_module_callee_saved:
    mov [rsp + 40], r8
    mov [rsp + 32], r9
    mov [rsp + 24], r10
    lea rbx, [rip + engraft_module]
    mov r8, [rbx]
    lea r8, [rbx + r8 + 4088] # the owner's word
    mov rdx, r8
    sub rdx, r11        # the target
    lea rsi, [r8 + 8 * rcx + 8] # the site
    mov rax, r11
    add rax, [rbx + 136]
    mov rdi, [rbx + 96]
    sub rdi, [rbx + 88]
    cmp rax, rdi
    jae 22f
    xor eax, eax
    cmpxchg gs:[rsi], r11
    jz 21f
    mov edi, 1
    cmp rax, r11
    jne 25f
21:
    inc qword ptr gs:[rsi + 8]
    jmp 29f
22: # not in this module: in which?
    mov rax, rdx
    shr rax, 47
    jnz 28f
    mov rdi, rdx
    cmp byte ptr gs:[r8 - 16], 0
    je 25f              # nothing is recorded in this process
    movabs r10, {arena}
    mov r10d, [r10 + {n_rows}]
    movabs r9, {own} + {homes}
    xor eax, eax
23:
    cmp eax, r10d
    jae 24f
    inc eax
    lea r9, [r9 + 64]
    cmp qword ptr [r9 - 64], 0
    je 23b
    cmp rdx, [r9 - 64 + 40]
    jae 23b
    mov rbx, rdx
    sub rbx, [r9 - 64 + 32]
    jb 23b
    mov rdi, rax
    shl rdi, 48
    or rdi, rbx
24:
    lea rbx, [rip + engraft_module]
25: # its slot
    imul r9, rcx, 0x1e35a7bd
    add r9, r11
    movabs rax, 0x9e3779b97f4a7c15
    imul r9, rax
    shr r9, 32
    mov r10d, {callee_tries}
26:
    and r9, [rbx + 128]
    mov rdx, r9
    shl rdx, 5
    add rdx, rbx
    add rdx, [rbx + 120]
    mov rax, gs:[rdx]
    test rax, rax
    jnz 261f
    cmpxchg gs:[rdx], rcx
    jz 262f
261:
    cmp rax, rcx
    jne 27f
262:
    mov rax, gs:[rdx + 8]
    test rax, rax
    jnz 263f
    cmpxchg gs:[rdx + 8], r11
    jz 264f
263:
    cmp rax, r11
    jne 27f
264:
    mov rax, gs:[rdx + 24]
    test rax, rax
    jnz 265f
    cmpxchg gs:[rdx + 24], rdi
    jz 266f
265:
    cmp rax, rdi
    jne 27f
266:
    inc qword ptr gs:[rdx + 16]
    jmp 29f
27:
    inc r9
    dec r10d
    jnz 26b
28:
    inc qword ptr gs:[rsi + 16]
29:
    mov r10, [rsp + 24]
    mov r9, [rsp + 32]
    mov r8, [rsp + 40]
    mov rbx, [rsp + 48]
    mov rsi, [rsp + 56]
    mov rdi, [rsp + 64]
    jmp 3b
engraft_module_callee_end:

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
    mov r9d, [r12 + 8]
    test r9d, r9d
    jnz 9f
    mov r9d, [r12 + {kin}]
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
    mov [r12 + 8], r9d
    mov eax, r9d
    and eax, {is_apart}
    or eax, 1
    mov [r12 + {kin}], eax
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
    shl eax, 6
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
    mov byte ptr [rax + r15 + 4072], 1
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
    mov eax, [r12 + 8]
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
    shl eax, 6
    lea rax, [r12 + rax + {homes}]
    mov [rax + 8], rcx
    mov [rax + 24], rcx
    mov rdx, rcx
    add rdx, [rcx + 80]
    mov [rax + 16], rdx
    mov rdx, rcx
    mov rdi, rcx
    add rdx, [rcx + 88]
    mov [rax + 32], rdx
    add rdi, [rcx + 96]
    mov [rax + 40], rdi
    mov [rax], rbp      # last: who reads these without the lock, sees it empty or whole
    xor ecx, ecx        # what was there before is there no more
63:
    cmp ecx, [rbx + {n_rows}]
    jae 65f
    mov esi, ecx
    shl esi, 6
    lea rsi, [r12 + rsi + {homes}]
    inc ecx
    cmp rsi, rax
    je 63b
    cmp rdx, [rsi + 40]
    jae 63b
    cmp rdi, [rsi + 32]
    jbe 63b
    mov qword ptr [rsi], 0
    jmp 63b
65:
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
    mov rcx, [rip + engraft_module + 104]
71:
    sub rcx, 8
    jb 715f
    mov rdx, [rbp + rcx + 4096]
    add [rdi + rcx], rdx
    jmp 71b
715:
    call .Lengraft_join_callees
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
    mov byte ptr [rbp + r15 + 4072], 1
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

# What calls through pointers led to so far, at home rbp, goes to the area at rdi: keeps rdi, rax. What
# another process has led elsewhere before is not looked for: that goes to where the table had no room for.
.Lengraft_join_callees:
    push rax
    lea r8, [rip + engraft_module]
    mov r9, [r8 + 104]
    mov ecx, [r8 + 112]
2:
    sub ecx, 1
    jb 5f
    lea rsi, [rbp + r9 + 4096]
    mov rdx, [rsi + 8]
    cmp qword ptr [rdi + r9], 0
    jne 3f
    mov rax, [rsi]
    mov [rdi + r9], rax
3:
    mov rax, [rsi]
    cmp rax, [rdi + r9]
    jne 4f
    add [rdi + r9 + 8], rdx
    xor edx, edx
4:
    add rdx, [rsi + 16]
    add [rdi + r9 + 16], rdx
    add r9, 24
    jmp 2b
5:
    cmp dword ptr [r8 + 112], 0
    je 7f
    mov rsi, r8
    add rsi, [r8 + 120]
    mov rcx, [r8 + 128]
6:
    mov rax, [rsi]
    mov rdx, [rsi + 16]
    test rax, rax
    jz 65f
    add [rdi + 8 * rax + 16], rdx
65:
    add rsi, 32
    sub rcx, 1
    jnb 6b
7:
    pop rax
    ret

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
    .ascii "engraft: nothing is recorded, for there is no room for it or no right to write it (set ENGRAFT_OUT to another file): "
.Lengraft_said_end:
.Lengraft_other:
    .ascii "engraft: nothing is recorded, for the file there is something else, or a recording of `count` (set ENGRAFT_OUT to another file): "
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
engraft_module_end:
.popsection

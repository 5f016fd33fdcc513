# Indirect calls.

# An indirect call that does not lead where its site led first. r11: the distance from where it leads
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
.globl engraft_module_callee
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
    and rax, [rdx + {module_slot_mask}]
    shl rax, {slot_shift}
    add rax, rdx
    add rax, [rdx + {module_slots}]
    cmp gs:[rax], rcx
    jne .Lengraft_callee_look
    cmp gs:[rax + {slot_distance}], r11
    jne .Lengraft_callee_look
    cmp qword ptr gs:[rax + {slot_target}], 1
    jne 4f
2:
    inc qword ptr gs:[rax + {slot_n}]
3:
    mov rdx, [rsp + 72]
    mov rcx, [rsp + 80]
    mov rax, [rsp + 88]
    lea rsp, [rsp + {callee_frame}]
.globl engraft_module_callee_return
engraft_module_callee_return:
    ret 8
4:  # in another module: is it still the one?
    mov [rsp + 64], rdi
    mov [rsp + 56], rsi
    add rdx, [rdx]
    lea rdx, [rdx + {owner}]
    sub rdx, r11
    mov rdi, gs:[rax + {slot_target}]
    cmp rdi, rdx
    je 5f
    mov rsi, rdi
    shr rsi, {target_row}
    jz 6f
    shl rsi, {home_shift}
    movabs rcx, {process} + {homes} - 64
    add rsi, rcx
    cmp qword ptr [rsi], 0
    je 6f
    shl rdi, 16
    shr rdi, 16
    add rdi, [rsi + {home_old}]
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
.globl engraft_module_callee_saved
engraft_module_callee_saved:
    mov [rsp + 40], r8
    mov [rsp + 32], r9
    mov [rsp + 24], r10
    lea rbx, [rip + engraft_module]
    mov r8, [rbx]
    lea r8, [rbx + r8 + {owner}] # the owner's word
    mov rdx, r8
    sub rdx, r11        # the target
    lea rsi, [r8 + 8 * rcx + {home_head} - {owner}] # the site
    mov rax, r11
    add rax, [rbx + {module_old_bias}]
    mov rdi, [rbx + {module_old_end}]
    sub rdi, [rbx + {module_old}]
    cmp rax, rdi
    jae 22f
    xor eax, eax
    cmpxchg gs:[rsi], r11
    jz 21f
    mov edi, 1
    cmp rax, r11
    jne 25f
21:
    inc qword ptr gs:[rsi + {site_n}]
    jmp 29f
22: # not in this module: in which?
    mov rax, rdx
    shr rax, 47
    jnz 28f
    mov rdi, rdx
    cmp byte ptr gs:[r8 + {is_recorded} - {owner}], 0
    je 25f              # nothing is recorded in this process
    movabs r10, {arena}
    mov r10d, [r10 + {n_rows}]
    movabs r9, {process} + {homes}
    xor eax, eax
23:
    cmp eax, r10d
    jae 24f
    inc eax
    lea r9, [r9 + {home_len}]
    cmp qword ptr [r9 - {home_len}], 0
    je 23b
    cmp rdx, [r9 - {home_len} + {home_old_end}]
    jae 23b
    mov rbx, rdx
    sub rbx, [r9 - {home_len} + {home_old}]
    jb 23b
    mov rdi, rax
    shl rdi, {target_row}
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
    and r9, [rbx + {module_slot_mask}]
    mov rdx, r9
    shl rdx, {slot_shift}
    add rdx, rbx
    add rdx, [rbx + {module_slots}]
    mov rax, gs:[rdx]
    test rax, rax
    jnz 261f
    cmpxchg gs:[rdx], rcx
    jz 262f
261:
    cmp rax, rcx
    jne 27f
262:
    mov rax, gs:[rdx + {slot_distance}]
    test rax, rax
    jnz 263f
    cmpxchg gs:[rdx + {slot_distance}], r11
    jz 264f
263:
    cmp rax, r11
    jne 27f
264:
    mov rax, gs:[rdx + {slot_target}]
    test rax, rax
    jnz 265f
    cmpxchg gs:[rdx + {slot_target}], rdi
    jz 266f
265:
    cmp rax, rdi
    jne 27f
266:
    inc qword ptr gs:[rdx + {slot_n}]
    jmp 29f
27:
    inc r9
    dec r10d
    jnz 26b
28:
    inc qword ptr gs:[rsi + {site_n_lost}]
29:
    mov r10, [rsp + 24]
    mov r9, [rsp + 32]
    mov r8, [rsp + 40]
    mov rbx, [rsp + 48]
    mov rsi, [rsp + 56]
    mov rdi, [rsp + 64]
    jmp 3b
.globl engraft_module_callee_end
engraft_module_callee_end:

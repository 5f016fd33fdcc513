# What a process runs in place of ld.so's `_dl_find_object`, by which unwinders find tables. See
# `find_object.rs`.
.pushsection .rodata
.balign 16
.globl engraft_find_object, engraft_find_object_entry, engraft_find_object_end
engraft_find_object:    # `shared::FindObject`
    .zero {head_len}
engraft_find_object_entry:
    mov rcx, [rip + engraft_find_object + {n}]
    lea rax, [rip + engraft_find_object_end] # the table stands behind
2:
    test rcx, rcx
    jz 9f
    cmp rdi, [rax + {start}]
    jb 3f
    cmp rdi, [rax + {end}]
    jae 3f
    mov qword ptr [rsi], 0 # dlfo_flags
    mov rcx, [rax + {start}]
    mov [rsi + 8], rcx  # dlfo_map_start
    mov rcx, [rax + {end}]
    mov [rsi + 16], rcx # dlfo_map_end
    mov rcx, [rax + {link_map}]
    mov [rsi + 24], rcx # dlfo_link_map
    mov rcx, [rax + {tables}]
    mov [rsi + 32], rcx # dlfo_eh_frame
    xor eax, eax
    ret
3:
    add rax, {row_len}
    dec rcx
    jmp 2b
9:
    jmp [rip + engraft_find_object + {original}]
.balign 16
engraft_find_object_end:
.popsection

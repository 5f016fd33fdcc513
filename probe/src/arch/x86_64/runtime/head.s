# The runtime behind the moved code of a counted module. See `runtime.rs` for what is where.
#
# In all routines: rbx = the recording, r12 = what this process knows. They keep r12 and rbx, and the others
# as they say.
.pushsection .rodata
.balign 16
.globl engraft_module
engraft_module:         # `shared::Module`: all but the signal mask is filled in by who copies this
    .zero {module_mask}
    .quad -1            # all signals
    .zero {module_len} - {module_mask} - 8

# The runtime behind the moved code of a counted module. See `x86_64.rs` for what is where.
#
# In all routines: rbx = the recording, r12 = what this process knows. They keep r12 and rbx, and the others
# as they say.
.pushsection .rodata
.balign 16
.globl engraft_module
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

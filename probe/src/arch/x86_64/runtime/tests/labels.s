# Where each label of the runtime is, for tests: bytes from its start. `.L` labels have no name outside of
# this assembly; the tests find them by the order of these lines.
.pushsection .rodata
.balign 8
.globl engraft_test_labels
engraft_test_labels:
    .quad engraft_module_slow - engraft_module
    .quad .Lengraft_slow_done - engraft_module
    .quad .Lengraft_is_another - engraft_module
    .quad engraft_module_async - engraft_module
    .quad engraft_module_vforked - engraft_module
    .quad engraft_module_leave - engraft_module
    .quad engraft_module_back - engraft_module
    .quad engraft_module_in_exit - engraft_module
    .quad engraft_module_abort - engraft_module
    .quad engraft_module_begin - engraft_module
    .quad engraft_module_last - engraft_module
    .quad engraft_module_last_end - engraft_module
    .quad .Lengraft_take_stock - engraft_module
    .quad .Lengraft_begins - engraft_module
    .quad .Lengraft_number - engraft_module
    .quad .Lengraft_holds - engraft_module
    .quad .Lengraft_state - engraft_module
    .quad engraft_module_signal - engraft_module
    .quad engraft_module_signalled - engraft_module
    .quad .Lengraft_signal_known - engraft_module
    .quad .Lengraft_signal_written - engraft_module
    .quad .Lengraft_signalled_known - engraft_module
    .quad .Lengraft_signalled_done - engraft_module
    .quad .Lengraft_signalled_end - engraft_module
    .quad .Lengraft_mark - engraft_module
    .quad .Lengraft_append - engraft_module
    .quad .Lengraft_redirected - engraft_module
    .quad .Lengraft_room - engraft_module
    .quad .Lengraft_log - engraft_module
    .quad .Lengraft_logged - engraft_module
    .quad .Lengraft_swap - engraft_module
    .quad .Lengraft_swapped - engraft_module
    .quad .Lengraft_interrupted - engraft_module
    .quad .Lengraft_commit - engraft_module
    .quad .Lengraft_committed - engraft_module
    .quad .Lengraft_committed_end - engraft_module
    .quad .Lengraft_reads - engraft_module
    .quad .Lengraft_inside - engraft_module
    .quad .Lengraft_is_done - engraft_module
    .quad .Lengraft_signals_end - engraft_module
    .quad engraft_module_chunk - engraft_module
    .quad .Lengraft_into_nothing - engraft_module
    .quad engraft_module_callee - engraft_module
    .quad engraft_module_callee_return - engraft_module
    .quad .Lengraft_callee_look - engraft_module
    .quad engraft_module_callee_saved - engraft_module
    .quad engraft_module_callee_end - engraft_module
    .quad engraft_module_start - engraft_module
    .quad engraft_module_entry - engraft_module
    .quad .Lengraft_set_started - engraft_module
    .quad .Lengraft_is_started - engraft_module
    .quad engraft_module_returned - engraft_module
    .quad engraft_module_taken_over - engraft_module
    .quad .Lengraft_is_owner - engraft_module
    .quad .Lengraft_reap - engraft_module
    .quad .Lengraft_find - engraft_module
    .quad .Lengraft_lock - engraft_module
    .quad .Lengraft_self - engraft_module
    .quad .Lengraft_unlock - engraft_module
    .quad .Lengraft_refresh - engraft_module
    .quad .Lengraft_home - engraft_module
    .quad .Lengraft_name_owner - engraft_module
    .quad .Lengraft_new_area - engraft_module
    .quad .Lengraft_map_area - engraft_module
    .quad .Lengraft_row_len - engraft_module
    .quad .Lengraft_map_home - engraft_module
    .quad .Lengraft_wipe - engraft_module
    .quad .Lengraft_map_shared - engraft_module
    .quad .Lengraft_open - engraft_module
    .quad .Lengraft_extent - engraft_module
    .quad .Lengraft_grow - engraft_module
    .quad .Lengraft_check_limit - engraft_module
    .quad .Lengraft_join - engraft_module
    .quad .Lengraft_alone - engraft_module
    .quad .Lengraft_join_callees - engraft_module
    .quad .Lengraft_add_row - engraft_module
    .quad .Lengraft_create - engraft_module
    .quad .Lengraft_say - engraft_module
    .quad .Lengraft_said - engraft_module
    .quad .Lengraft_said_end - engraft_module
    .quad .Lengraft_other - engraft_module
    .quad .Lengraft_other_end - engraft_module
    .quad .Lengraft_line - engraft_module
    .quad .Lengraft_no_bases - engraft_module
    .quad .Lengraft_no_bases_end - engraft_module
    .quad .Lengraft_namespace - engraft_module
    .quad .Lengraft_auxv - engraft_module
    .quad .Lengraft_why - engraft_module
    .quad .Lengraft_why_end - engraft_module
# Where the Rust routine is, which has no label of its own in the assembly.
.globl engraft_test_rust
engraft_test_rust:
    .8byte .Lengraft_rust_join_callees - engraft_module
    .8byte .Lengraft_rust_join_callees_end - engraft_module
.popsection

//! Registers of a stopped process, for the one processor there is.

mod x86_64;

pub use x86_64::{
    CALL_AND_RETURN, CALL_ROW_LEN, COUNTERS_BASE, Called, HELPER_CODE, HELPER_STACK, RED_ZONE, SAMPLED,
    SAMPLED_FOR_CHAINS, SYSCALL, WayHome, about_to_call, at_calls, at_work, by_way_of, call_number, call_row,
    called_vectors, counters_base, general_by_number, going_on_at, instruction_pointer, is_exec, is_in_call,
    made_again, not_by_way, result, set_called_vectors, stack_pointer, thread_pointer, way_home, with_call,
    with_call_from_home, without_bases, without_counters, words,
};

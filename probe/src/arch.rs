//! Code of ours that runs inside programs, for the one processor there is.

mod x86_64;

pub use x86_64::{
    ARENA, ARENA_MAGIC, Capacity, END, EXTENTS_AT, HOME_HEAD, HOME_LEN, HOMES, MAILBOX_AT, MAILBOX_LEN,
    MAILBOX_OWNER, MAILBOX_PATH, MAX_AREAS, N_AREAS, N_ROWS, N_SHARED, N_THREADS, NAMESPACE,
    OPEN_LIBRARY_ENTRY, OWN, OWN_LEN, OWN_NAME, OWNER, OpenSite, ROW_LEN, ROWS_AT, Runtime, open_library,
    open_sites,
};

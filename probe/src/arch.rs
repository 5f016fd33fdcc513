//! Code of ours that runs inside programs, for the one processor there is.

mod x86_64;

pub use x86_64::{
    AREA_LEN, AREAS_AT, ARENA, ARENA_MAGIC, DATA_AT, MAX_AREAS, N_AREAS, N_ROWS, N_SHARED,
    OPEN_LIBRARY_ENTRY, OWNER_LEN, OpenSite, ROW_LEN, ROWS_AT, Runtime, open_library, open_sites,
};

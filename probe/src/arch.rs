//! Code of ours that runs inside programs, for the one processor there is.

mod x86_64;

pub use x86_64::calibration;
pub use x86_64::registers::{NamedRegister, NoRegister};
pub use x86_64::{
    DEEP, EXEC, ExecSite, LAST_FRAME, NEAR, OPEN_LIBRARY_ENTRY, OpenSite, Runtime, SAYS, SIGNAL_FRAME,
    SignalFrame, exec_page, exec_sites, find_object, find_object_entry, find_object_slot, may_exec,
    open_library, open_sites,
};
pub(crate) use x86_64::{emit, registers_clones, snippet, vectorise};
pub use x86_64::{shared, stand_in};

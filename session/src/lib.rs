//! Sessions: a program's modules chosen, prepared, run and served, and what was counted or recorded
//! collected.
//!
//! ```no_run
//! use session::{CountedRun, Instrumentation, ModuleFilter, Modules, Placement, Prepared, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (store, wanted) = (Store::open(None, "/tmp".as_ref())?, ModuleFilter::new(&["all"]));
//! let target = session::find("true".as_ref(), "/bin:/usr/bin".as_ref())?;
//! let modules = Modules::of(&store, &target)?;
//! let prepared = Prepared::new(&store, &wanted, modules, Instrumentation::new(Placement::Edges))?;
//! let run = CountedRun::new(prepared, &target, "true".as_ref(), &[])?;
//! let profiles = run.collect(false)?.profiles;
//! # Ok(())
//! # }
//! ```
//! What PADRONE's clients call (figures 5 and 7: `examples/hot_ipc.rs`, `examples/replace_hot.rs`), here:
//!
//! | PADRONE | Rust | C (`capi`) |
//! | --- | --- | --- |
//! | `padrone_init` | [`RunningProgram::of`] | `engraft_open` |
//! | `padrone_profile` | [`Sampler::profile`] | `engraft_profile_take` |
//! | `padrone_profile_get_mfs` | [`Sampled::most_frequent`] | `engraft_profile_most_frequent` |
//! | `padrone_fun_fetch_address_from_sample` | [`program::Program::function_at`] | `engraft_function_at` |
//! | `padrone_cfg_init`, `padrone_cfg_build` | [`program::Loops::compute`] | `engraft_cfg_build` |
//! | `padrone_fun_ipc_measure` | [`measure_calls`] | `engraft_calls_measure` |
//! | `padrone_cc_create` | none needed: [`Replacement::new`] finds room | none needed |
//! | `padrone_cc_insert` | [`Graft::of_code`](probe::graft::Graft::of_code) | `engraft_code_of_bytes` |
//! | not there | [`Graft::of_library`](probe::graft::Graft::of_library) | `engraft_code_of_library` |
//! | `padrone_cc_fun_call_replace` | [`Replacement::put_in`] | `engraft_replace` |
//! | breakpoints with callbacks (2.1) | [`tell_passings`] | `engraft_watch` |
//! | `padrone_profile_destroy`, `…cfg_destroy`, `…cc_finish` | `Drop` | `engraft_…_free` |
//! | `padrone_leave` | nothing is held between calls | `engraft_close` |
//! | not there | [`live::attach::rescue`], [`standing`] | `engraft_undo`, `engraft_replacements_list` |
//!
//! It prints nothing and reads no environment: where programs are looked for, and where rewritten modules are
//! kept, is passed in; warnings are values.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attach;
mod choose;
mod count;
mod died;
pub mod doctor;
mod find;
mod instrument;
mod loader;
mod machine;
mod messages;
mod module;
mod prepare;
mod process;
mod record;
mod run;
mod sample;
mod store;
mod values;

pub use attach::{
    Attached, AttachedRun, CallsMeasured, CallsWanted, Compared, CountedWhile, Difference, IpcError,
    LoadedModule, LoopFate, MeasuredWhile, Passing, PassingsError, PureFunction, ReadyProcess, RecordedWhile,
    ReplaceError, Replacement, RunningError, RunningProgram, Standing, Taking, Told, Trial, TrialError,
    TrialWanted, Verdict, Word, constant, measure_calls, standing, tell_passings,
};
pub use choose::{FunctionFilter, Glob, ModuleFilter, NoneWanted, Spellings, is_system_file};
pub use count::{Collected, CountError, CountedRun, OtherPrograms};
pub use died::{Died, Place};
pub use find::{FindError, NoProc, find, needs_proc};
pub use instrument::{InstrumentError, instrument};
pub use machine::machine;
pub use measure::Placement;
pub use messages::{Done, Warning, kernel_hint};
pub use module::{
    Hindrance, Instrumentation, Instrumented, ModuleError, changes_code, is_cut_off, recorded_path,
    refuse_known_by_address, refuse_sanitized, written_path,
};
pub use prepare::{Modules, PrepareError, Prepared};
pub use process::{FileState, ProcessImage, ProcessModule, ProcessModuleError, ProcessModules, Whence};
pub use record::{Forecast, Recordable, Recorded, RecordedRun};
pub use run::{RunError, command};
pub use sample::{
    Glimpse, SampleError, Sampled, SampledModule, Sampler, SeenImage, SeenStack, Sizes, cost_of_a_sample,
    names_of as threads_of,
};
pub use store::{CACHE_LIMIT, Kept, Store, StoreError, cached, clear_cache};
pub use values::{CalibrateError, FinishedLog, Measurable, MeasureError, Measured, MeasuredRun};

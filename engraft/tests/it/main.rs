//! The command as users run it, on programs built on the spot; and the rules that a machine can check of this
//! repository.
//!
//! A test that needs a tool says so with `needs!`: without the tool it is skipped, and `skips` counts it in
//! one closing line. With `ENGRAFT_TEST_NEEDS=all`, as in `.ci/run`, a missing tool is a failure.

mod again;
mod alone;
mod attached;
mod bad_input;
mod branches;
mod by;
mod callees;
mod children;
mod compared;
mod costs;
mod count;
mod counts;
mod cuts;
mod described;
mod examples;
mod exports;
mod first_command;
mod follow;
mod formats;
mod handlers;
mod interrupted;
mod intervals;
mod ipc;
mod json_forms;
mod jumps;
mod kinds;
mod library;
mod live_view;
mod logged;
mod matches;
mod messages;
mod names;
mod outputs;
mod page;
mod pictures;
mod points;
mod prototypes;
mod query;
mod random;
mod recordings;
mod remembered;
mod replace;
mod report;
mod restartable;
mod rows;
mod run;
mod running;
mod said;
mod sample;
mod show;
mod standard_input;
mod stubs;
mod terminal;
mod threads;
mod tidy;
mod together;
mod totals;
mod trace;
mod values;
mod vectorised;
mod versions;
mod viewed;
mod watched;
mod whole;

/// Returns from the test, counted as skipped, unless the tools named are installed.
#[macro_export]
macro_rules! needs {
    ($($tool:literal),+ $(,)?) => {
        for tool in [$($tool),+] {
            if !$crate::run::has(tool, module_path!(), line!()) {
                return;
            }
        }
    };
}

/// The same, unless a file system can be mounted.
#[macro_export]
macro_rules! needs_mounts {
    () => {
        if !$crate::run::can_mount(module_path!(), line!()) {
            return;
        }
    };
}

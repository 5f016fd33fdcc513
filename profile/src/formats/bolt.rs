//! Formats of llvm-bolt and perf2bolt, and programs as these see them.

pub mod bat;
pub mod bolt_yaml;
pub mod fdata;
pub mod preagg;
mod view;

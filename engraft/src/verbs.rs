//! The verbs, a file each: what the command line says, which library is asked, which view is filled.
//!
//! Not here: what views look like (crate `views`), and what several verbs read (`input`) or print (`output`).

pub mod cache;
pub mod carry;
pub mod convert;
pub mod count;
pub mod diff;
pub mod doctor;
pub mod help;
pub mod instrument;
pub mod matches;
pub mod query;
pub mod score;
pub mod show;
pub mod trace;
pub mod values;

//! The verbs, a file each: what the command line says, which library is asked, which view is filled.
//!
//! Not verbs: processes that run already, which several of them observe (`attached`).
//!
//! Not here: what views look like (crate `views`), and what several verbs read (`input`) or print (`output`).

mod attached;
pub mod cache;
pub mod carry;
pub mod compare;
pub mod convert;
pub mod count;
pub mod diff;
pub mod doctor;
pub mod help;
pub mod instrument;
pub mod ipc;
pub mod matches;
pub mod query;
pub mod replace;
pub mod rescue;
pub mod sample;
pub mod score;
pub mod show;
pub mod trace;
pub mod values;
pub mod view;

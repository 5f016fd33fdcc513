//! What a program of a few lines does with the libraries, without the command.

use crate::needs;
use crate::run::{compile, folder};
use std::ffi::OsString;

#[expect(dead_code, reason = "the test calls what the example's main calls")]
#[path = "../../../session/examples/count.rs"]
mod count;

/// The oracle is the source: its loop goes round as often as its first argument says, along one branch in as
/// many rounds as its second one says.
#[test]
fn a_session_of_ten_lines_counts_a_program() {
    needs!("gcc");
    let place = folder();
    let program = place.path().join("branches");
    compile(&program, "branches.c", "-O1");
    let command = [program.into_os_string(), OsString::from("1000"), OsString::from("8")];
    let profiles = count::count(&command).expect("it is counted");
    let counts: Vec<u64> = profiles.iter().flat_map(|profile| profile.blocks.values().copied()).collect();
    assert!(counts.contains(&1000) && counts.contains(&125), "{counts:?}");
}

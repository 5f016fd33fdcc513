//! What a program of a few lines does with the libraries, without the command.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{compile, folder};
use std::ffi::OsString;

#[expect(dead_code, reason = "the test calls what the example's main calls")]
#[path = "../../../session/examples/count.rs"]
mod count;

#[expect(dead_code, reason = "the test calls what the example's main calls")]
#[path = "../../../session/examples/hot_ipc.rs"]
mod hot_ipc;

#[expect(dead_code, reason = "the test calls what the example's main calls")]
#[path = "../../../session/examples/replace_hot.rs"]
mod replace_hot;

/// PADRONE's figures 6 and 8: what its clients print, and do.
#[test]
fn the_clients_of_padrones_paper_are_a_few_lines() {
    needs!("gcc");
    let place = folder();
    let server = Server::start(place.path(), "hot.c", "gcc", "-O1");
    let pid = i32::try_from(server.pid()).expect("small");
    // Beside much load cycles may be unknown, and are not told then.
    let mut said = Vec::new();
    let mut known = Vec::new();
    for _ in 0..20 {
        said = hot_ipc::hot_ipc(pid).expect("it is measured");
        let all = said.iter().filter_map(|line| line.strip_prefix("hot: ipc = ")?.parse::<f64>().ok());
        assert_eq!(all.clone().count(), 10, "{said:?}");
        known = all.filter(|ipc| ipc.is_finite()).collect();
        if known.len() > 5 {
            break;
        }
    }
    let hot = |line: &String| line.contains("function address = ") && line.contains("(hot)");
    assert!(said.iter().any(hot), "{said:?}");
    // Others that ran in the midst of a call are in its cycles.
    known.sort_by(f64::total_cmp);
    assert!(known.len() > 5 && (0.05..10.0).contains(&known[known.len() / 2]), "{said:?}");
    // mov $42,%eax; ret.
    let code = place.path().join("code");
    std::fs::write(&code, [0xb8, 42, 0, 0, 0, 0xc3]).expect("written");
    let mut server = server;
    assert_eq!(server.ask("result"), "1000");
    assert_eq!(replace_hot::replace_hot(pid, &code).expect("it is replaced"), "hot");
    assert_eq!(server.ask("result"), "42");
    server.end(true);
}

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

//! `show -p` of a process that is observed: its files say what it runs, its memory does not.

use super::server;
use super::server::Observing;
use crate::needs;
use crate::run::{engraft, folder};

#[test]
fn memory_of_an_observed_process_is_not_taken_for_its_own() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let pid = server.pid();
    let show = |words: &str| engraft(place.path(), &format!("show -p {pid} {words}"));
    let before = show("function of_main --json").json();
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(show("function of_main --json").json(), before);
    let refused = show("function of_main --memory");
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(refused.stderr.contains(&format!("process {pid} is observed by engraft")), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: look at its file"), "{}", refused.stderr);
    let listed = show("--json").json();
    let modules = listed["modules"].as_array().expect("modules");
    let ours =
        |m: &&serde_json::Value| m["module"].as_str().is_some_and(|name| name.contains("memfd:engraft"));
    assert_eq!((&modules[0]["from"], modules.iter().find(ours)), (&"file".into(), None), "{listed:#}");
    counting.end(Some("-INT"));
    // Memory has no names but those that are exported.
    let after =
        show(&format!("function live:{:#x} --memory --json", before["live"]["at"].as_u64().expect("where")))
            .json();
    assert_eq!((&after["blocks"], &after["live"]["from"]), (&before["blocks"], &"memory".into()));
    assert!(server.ask("10").ends_with(" 0 0 0"));
}

//! What cannot be done says why, where, and what to do; nothing crashes, and the process stays as it is.

use crate::{Server, client, folder, must, needs};

#[test]
fn each_mistake_has_its_status_and_says_what_to_do() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path());
    let said = must(client(place.path(), "tests/it/fixtures/mistakes.c").arg(server.pid()));
    let pid = server.pid();
    // The call, its status, words of what is said.
    let want: [(&str, u32, &[&str]); 30] = [
        ("no process", 3, &["there is no process 2147483632", "hint: `ps -e`"]),
        ("number", 1, &["-3 is the number of no process", "hint: "]),
        ("nowhere", 1, &["where process is to go is NULL"]),
        ("process", 1, &["process is NULL", "hint: "]),
        ("open", 0, &[]),
        (
            "name",
            4,
            &[&format!("no function of process {pid} is called no_such_function"), "hint: ", "server, "],
        ),
        ("module", 4, &[&format!("no function of process {pid} is called libc.so.6!hot")]),
        ("text", 2, &["name is no UTF-8"]),
        ("no text", 1, &["name is NULL"]),
        ("address", 4, &[&format!("live:0x1 of process {pid} is in no module"), "hint: "]),
        ("rate", 1, &[&format!("process {pid} cannot be sampled 0 times a second"), "hint: "]),
        ("duration", 1, &["cannot be sampled 1000 times a second for 0ns"]),
        ("function", 1, &["function is NULL"]),
        ("calls", 1, &["function is NULL"]),
        ("found", 0, &[]),
        ("no calls", 1, &[&format!("0 calls of hot in process {pid}")]),
        ("folder", 6, &["cannot make a temporary folder", "/nonexistent", "hint: name a folder"]),
        ("graph", 0, &[]),
        ("block", 1, &["there is no block 1000: there are "]),
        ("bytes", 1, &["bytes is NULL"]),
        ("file", 6, &["cannot read /nonexistent.so: No such file", "hint: "]),
        ("no object", 6, &["/etc/passwd"]),
        ("code", 1, &["code is NULL"]),
        ("undo", 7, &[&format!("nothing is replaced in process {pid}")]),
        ("again", 0, &[]),
        ("place", 4, &[&format!("nowhere in process {pid} cannot be watched: "), "hint: "]),
        ("second", 1, &["a place is NULL"]),
        ("callback", 1, &["callback is NULL"]),
        ("register", 1, &["\"r99\" at nowhere cannot be told", "hint: "]),
        ("list", 0, &[]),
    ];
    let mut rest = said.as_str();
    rest = rest.strip_prefix("nothing: \n").unwrap_or_else(|| panic!("{said}"));
    for (what, status, words) in want {
        rest = rest.strip_prefix("made: NULL\n").unwrap_or(rest);
        rest = rest.strip_prefix(&format!("{what}: {status}: ")).unwrap_or_else(|| panic!("{what}: {said}"));
        let (first, behind) = rest.split_once('\n').unwrap_or_else(|| panic!("{said}"));
        let hint = behind.split_once('\n').filter(|(hint, _)| hint.starts_with("hint: "));
        let text = format!("{first}\n{}", hint.map_or("", |(hint, _)| hint));
        rest = hint.map_or(behind, |(_, behind)| behind);
        assert!(words.iter().all(|word| text.contains(word)), "{what}: {text}, not {words:?}");
    }
    assert_eq!(rest, "0 0 0 NULL\n");
    assert_eq!(server.result(), "1000");
    server.end();
}

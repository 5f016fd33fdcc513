//! Instrumented programs that run at the same time, and start each other, with one recording.

use crate::count::{blocks, instrumented, plain};
use crate::needs;
use crate::run::{built, folder};

/// Each process runs its loop 12,345 times; then the two at both ends of a pipe wait for each other, which
/// they do for ever unless both run; and one that starts another waits for its end.
const TEXT: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
volatile long n;
int main(int argc, char **argv) {
    for (int i = 0; i < 12345; i++) n++;
    if (argc == 2) return system(argv[1]) ? 5 : 6;
    if (argc == 3) return open(argv[1], argv[2][0] == 'r' ? O_RDONLY : O_WRONLY) < 0 ? 7 : 8;
    return 9;
}
"#;

#[test]
fn instrumented_programs_meet_and_start_each_other() {
    needs!("gcc", "sh", "mkfifo", "timeout");
    for flags in ["-O1", "-O1 -static"] {
        let place = folder();
        built(place.path(), "old", TEXT, flags);
        instrumented(place.path(), "old", "new");
        // Who makes the recording has to let the other one in, and so has who finds it there.
        for (name, line, want) in [
            (
                "meet",
                "mkfifo f; timeout 20 ./new f r & timeout 20 ./new f w; a=$?; wait $!; echo $a $?",
                "8 8",
            ),
            ("start", "timeout 20 ./new './new \"./new; true\"'; echo $?", "5"),
            ("meet", "timeout 20 ./new f r & timeout 20 ./new f w; a=$?; wait $!; echo $a $?", "8 8"),
        ] {
            let line = format!("export ENGRAFT_OUT=$PWD/{name}.engraft; {line}");
            let ran = plain(place.path(), &["sh", "-c", &line]);
            let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert_eq!((out.trim(), err.as_ref()), (want, ""), "{flags} {name}");
        }
        for (name, n_processes) in [("meet", 4), ("start", 3)] {
            let counts = blocks(place.path(), &format!("{name}.engraft"), "old");
            assert_eq!(counts.values().max(), Some(&(n_processes * 12345)), "{flags} {name}");
        }
    }
}

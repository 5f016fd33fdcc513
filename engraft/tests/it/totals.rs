//! One recording, one number of instructions: in every view and every export that has one.

use crate::needs;
use crate::run::{built, compile, engraft, folder};
use std::path::Path;
use std::process::Command;

/// Loops whose heads are aligned, so that padding runs, also behind branches that are not taken.
const PROGRAM: &str = "
    #include <stdio.h>
    __attribute__((noinline)) long f(long n, long *a) {
        long s = 0;
        for (long i = 0; i < n; i++) { if (a[i & 7] & 1) s += i; for (long k = 0; k < (i & 3); k++) s ^= k * a[k]; }
        while (s > 100) { s /= 3; a[s & 7]++; }
        return s;
    }
    int main(void) {
        long a[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, s = 0;
        for (int i = 0; i < 300; i++) s += f(i, a);
        printf(\"%ld\\n\", s);
        return 0;
    }";

/// The totals of `recordings` by all ways, taken from their files by a script: not by our readers.
fn totals(place: &Path, recordings: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checks/totals.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(env!("CARGO_BIN_EXE_engraft")).args(recordings).current_dir(place);
    let ran = python.output().expect("python3 runs");
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" one show ")).count(), recordings.len(), "{said}");
}

#[test]
fn all_views_and_exports_of_a_recording_add_up_to_one_number() {
    needs!("gcc", "python3");
    let place = folder();
    built(place.path(), "aligned", PROGRAM, "-O2 -g -falign-loops=64 -falign-jumps=32");
    compile(&place.path().join("host"), "plugin.c", "-O1 -g -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    compile(&place.path().join("branches"), "branches.c", "-O2");
    for (name, command) in [("aligned", "./aligned"), ("host", "./host"), ("branches", "./branches 1000 3")] {
        engraft(place.path(), &format!("count -q -o {name}.engraft {command}"));
    }
    totals(place.path(), &["aligned.engraft", "host.engraft", "branches.engraft"]);
}

/// A format with room for one image says which modules it leaves out.
#[test]
fn what_is_left_out_of_an_export_is_said() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -g -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    engraft(place.path(), "count -q -o a.engraft ./host");
    let ran = engraft(place.path(), "convert a.engraft -o a.fdata");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("left out are plugin.so"), "{}", ran.stderr);
    assert_eq!(engraft(place.path(), "convert a.engraft -q -o a.folded").code, Some(0));
}

//! Files are told apart by all of their bytes, recordings by what their counters mean; what is not understood
//! stays; a cache is a help only.

use crate::count::{blocks, counted, instrumented, plain};
use crate::needs;
use crate::run::{compile, engraft, folder};
use std::path::Path;
use std::process::Command;

/// Compiles `text` with the system's compiler.
#[track_caller]
fn compiled(folder: &Path, to: &str, text: &str, flags: &[&str]) {
    let source = format!("{to}.c");
    std::fs::write(folder.join(&source), text).expect("written");
    let mut command = vec!["gcc", "-O1", "-o", to, &source];
    command.extend(flags);
    let ran = plain(folder, &command);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Two libraries whose code is the same, with other data.
#[test]
fn libraries_with_the_same_code_are_told_apart() {
    needs!("gcc");
    let place = folder();
    for (file, word) in [("a.so", "first"), ("b.so", "other")] {
        let text = format!("const char *word(void) {{ return \"{word}\"; }}\n");
        compiled(place.path(), file, &text, &["-shared", "-fPIC", "-Wl,-z,separate-code"]);
    }
    let host = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int n, char **names) {
            for (int k = 1; k < n; k++) {
                const char *(*word)(void) = (const char *(*)(void))dlsym(dlopen(names[k], RTLD_NOW), "word");
                puts(word());
            }
        }"#;
    compiled(place.path(), "host", host, &["-ldl"]);
    counted(place.path(), &["./host", "./a.so", "./b.so", "./b.so"], "all");
    let file = std::fs::read(place.path().join("run.engraft")).expect("written");
    let profiles = profile::recording::Recording::parse(&file).expect("readable").into_profiles();
    for (library, n) in [("/a.so", 1), ("/b.so", 2)] {
        let profile = profiles.iter().find(|p| p.image.name.ends_with(library)).expect("it was counted");
        assert_eq!(profile.blocks.values().max(), Some(&n), "{library}");
    }
}

/// A recording of a file with other counters has the same name unless its user says otherwise.
#[test]
fn another_plan_counts_beside_the_first() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("words"), "words-1.c", "-O2");
    std::fs::write(place.path().join("plan"), "entry main count\n").expect("written");
    let want = plain(place.path(), &["./words"]);
    instrumented(place.path(), "words", "all");
    let ran = engraft(place.path(), "instrument words -o one -q --plan plan");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for file in ["./all", "./one", "./all", "./one"] {
        let got = plain(place.path(), &[file]);
        assert_eq!(
            (&got.stdout, &got.stderr, got.status),
            (&want.stdout, &want.stderr, want.status),
            "{file}"
        );
    }
    let file = std::fs::read(place.path().join("words.engraft")).expect("written");
    let profiles = measure::raw_recording::parse(&file).expect("readable");
    assert_eq!(profiles.iter().map(|p| p.blocks.is_empty()).collect::<Vec<_>>(), [false, true]);
    let seen = measure::raw_recording::seen(&file).expect("readable");
    assert_eq!(seen.into_iter().map(|s| s.kept).collect::<Vec<_>>(), [measure::kept::Kept::Count(2)]);
}

#[test]
fn functions_with_unknown_unwind_rows_stay() {
    needs!("gcc");
    let place = folder();
    let text = r#"
        int odd(int);
        __asm__(".text\n.globl odd\n.type odd, @function\nodd:\n.cfi_startproc\n.cfi_escape 0x1d, 0, 0, 0, 0, 0, 0, 0, 0\n"
                "lea 1(%rdi,%rdi), %eax\nadd $2, %eax\nsub $2, %eax\nret\n.cfi_endproc\n.size odd, .-odd\n");
        int main(void) { return odd(3); }"#;
    compiled(place.path(), "odd", text, &[]);
    let ran = engraft(place.path(), "instrument odd -o new --json");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
    let stays = said["stays"].as_array().expect("a list");
    let row = stays.iter().find(|s| s["why"] == "unwind table not understood").expect("one stays");
    assert_eq!(row["examples"], serde_json::json!(["odd"]));
    assert_eq!(plain(place.path(), &["./new"]).status.code(), Some(7));
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("host"), "plugin.c", "-O1 -DHOST -pthread");
    compile(&place.path().join("plugin.so"), "plugin.c", "-O1 -shared -fPIC");
    // A folder that is there, and in which nobody can make files.
    std::os::unix::fs::symlink("/proc/self", place.path().join("engraft")).expect("made");
    let want = plain(place.path(), &["./host"]);
    let got = Command::new(env!("CARGO_BIN_EXE_engraft"))
        .args(["count", "-q", "-o", "run.engraft", "--", "./host"])
        .current_dir(place.path())
        .env("XDG_CACHE_HOME", place.path())
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&got.stderr), String::from_utf8_lossy(&want.stderr));
    assert_eq!((&got.stdout, got.status), (&want.stdout, want.status));
    assert!(blocks(place.path(), "run.engraft", "plugin.so").values().any(|n| *n == 6000));
}

/// A program at low addresses has what its threads count in above it, where a library at high addresses would
/// have none.
#[test]
fn a_library_that_many_threads_are_there_before_disturbs_none() {
    needs!("gcc");
    let place = folder();
    compiled(
        place.path(),
        "late.so",
        "int late(int n) { return n % 3 ? n : 2 * n; }\n",
        &["-shared", "-fPIC"],
    );
    let host = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        static int (*late)(int);
        static pthread_barrier_t begun, loaded;
        __attribute__((noinline)) static long counts(long n) { return n & 1 ? n : n + 1; }
        static void *works(void *n) {
            long sum = counts((long)n);
            pthread_barrier_wait(&begun);
            pthread_barrier_wait(&loaded);
            return (void *)(sum + late((long)n));
        }
        int main(void) {
            enum { N = 150 };
            pthread_t all[N];
            long sum = 0;
            pthread_barrier_init(&begun, 0, N + 1);
            pthread_barrier_init(&loaded, 0, N + 1);
            for (long n = 0; n < N; n++) pthread_create(&all[n], 0, works, (void *)n);
            pthread_barrier_wait(&begun);
            late = (int (*)(int))dlsym(dlopen("./late.so", RTLD_NOW), "late");
            pthread_barrier_wait(&loaded);
            for (int n = 0; n < N; n++) {
                void *got;
                pthread_join(all[n], &got);
                sum += (long)got;
            }
            printf("%ld\n", sum);
        }"#;
    compiled(place.path(), "host", host, &["-no-pie", "-fno-pie", "-pthread", "-ldl"]);
    let want = plain(place.path(), &["./host"]);
    for verb in ["count", "trace"] {
        let us = env!("CARGO_BIN_EXE_engraft");
        let got = plain(place.path(), &[us, verb, "-q", "-o", "run.engraft", "--", "./host"]);
        assert_eq!((got.status, &got.stdout), (want.status, &want.stdout), "{verb}");
        engraft(place.path(), "convert run.engraft -q -o run.csv").ok();
        let rows = std::fs::read_to_string(place.path().join("run.csv")).expect("written");
        let n_runs = |row: &str| row.rsplit(',').next().and_then(|n| n.parse::<u64>().ok());
        assert_eq!(rows.lines().filter(|row| row.contains(",counts,")).find_map(n_runs), Some(150), "{verb}");
    }
}

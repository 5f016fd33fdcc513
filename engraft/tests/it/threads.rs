//! Threads that programs make themselves, in ways that the C library does not.

use crate::needs;
use crate::run::{compile, engraft, folder};

/// Three threads, whose thread pointers lead nowhere, call `work` 1,000 times each, and `main` three times.
#[test]
fn threads_without_thread_local_storage_are_counted() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    for flags in ["", "-no-pie", "-static"] {
        compile(&folder.join("old"), "without-tls.c", &format!("-O2 -fno-stack-protector {flags}"));
        for verb in ["count --no-cache -q", "count --no-cache -q --all-blocks", "trace --no-cache -q"] {
            let ran = engraft(folder, &format!("{verb} -o run.engraft -- ./old"));
            let case = format!("{verb} {flags}: {}", ran.stderr);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3030\n"), "{case}");
            let shown = engraft(folder, "show --counts run.engraft --json").json();
            let all = shown["functions"].as_array().expect("a list");
            let work = all.iter().find(|f| f["name"] == "work").expect("it ran");
            // It has one block.
            let instructions = work["instructions"].as_u64().expect("a number");
            assert!(instructions > 0 && instructions % 3003 == 0, "{instructions}, {case}");
        }
    }
}

//! Programs with restartable sequences: they lose no increment, and say so themselves.

use crate::needs;
use crate::run::{compile, engraft, entries, folder, must};
use std::process::Command;

/// Descriptors in their section, in other data, made by code; with symbols and section headers or without.
#[test]
fn restartable_sequences_stay_where_the_kernel_knows_them() {
    needs!("gcc", "strip");
    let place = folder();
    let folder = place.path();
    for (n, flags) in ["", "-no-pie", "-static"].into_iter().enumerate() {
        for described in 0..3 {
            let case = format!("described {described} {flags}");
            compile(
                &folder.join("old"),
                "restarts.c",
                &format!("-O2 -pthread -DDESCRIBED={described} {flags}"),
            );
            if described == n {
                must(Command::new("strip").arg(folder.join("old")));
            }
            assert_eq!(must(&mut Command::new(folder.join("old"))), "lost 0\n", "{case}");
            let made = engraft(folder, "instrument --null old -o moved").ok();
            assert!(made.contains("restartable sequence"), "{case}: {made}");
            assert_eq!(must(&mut Command::new(folder.join("moved"))), "lost 0\n", "{case}");
            for verb in ["count --no-cache -q -o run.engraft", "trace -q -o run.trace"] {
                let ran = engraft(folder, &format!("{verb} -- ./old"));
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "lost 0\n"), "{case}: {}", ran.stderr);
            }
            if described != n {
                assert_eq!(entries(folder, "run.engraft", "again"), 1_600_000, "{case}");
            }
        }
    }
}

/// The report names the function that is not counted, and why.
#[test]
fn what_stays_for_the_kernel_is_listed() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("old"), "restarts.c", "-O2 -pthread -DDESCRIBED=1");
    let ran = engraft(folder, "count --no-cache -o run.engraft -- ./old");
    let line = ran.stderr.lines().find(|l| l.starts_with("not counted: ")).unwrap_or_default();
    assert!(line.contains("restartable sequence (rseq): increment"), "{}", ran.stderr);
}

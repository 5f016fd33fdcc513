//! Recordings as files: written, read, cut off, changed.

use super::*;
use crate::testing::{assemble, sample};
use program::{FuncId, Remark};
use std::sync::OnceLock;

fn other() -> Profile {
    let mut other = sample();
    other.image.name = "/usr/lib/libother.so".to_owned();
    other
}

/// The same each time: its image is named by a temporary folder.
fn excerpt() -> Excerpt {
    static EXCERPT: OnceLock<Excerpt> = OnceLock::new();
    EXCERPT.get_or_init(made_excerpt).clone()
}

fn made_excerpt() -> Excerpt {
    let program = assemble(".globl f\nf: dec %edi\njne f\nret");
    let ran = program.func_ids().collect();
    let remark = |id: FuncId| Remark { is_referred: id.0 == 0, not_moved: None };
    Excerpt::of(&program, &ran, None, remark, None)
}

fn recording() -> Recording {
    let run = Run {
        command: vec!["./a".to_owned(), "\u{e4} b".to_owned()],
        environment: [("LANG".to_owned(), "C".to_owned())].into(),
        start_ns: u64::MAX,
        duration_ns: 17,
        end: Some(End::Signal(11)),
        died: Some(Died { signal: 11, at: Some(7), ..Died::default() }),
        left_out: vec![LeftOut { module: "libc.so.6".to_owned(), option: Some("--modules all".to_owned()) }],
        others: Some(Others { n: Some(3), is_least: true, share: Some(0.25) }),
        n_threads: Some(2),
        attached: vec![Attached {
            pid: 77,
            pauses_ns: [1, 2],
            stayed: vec![Stayed { at: 3, why: "too small".to_owned(), ..Stayed::default() }],
            left: Some("a thread is in it".to_owned()),
            ..Attached::default()
        }],
        machine: Machine { host: "h".to_owned(), n_cpus: 2, ..Machine::default() },
        version: "0.1.0".to_owned(),
    };
    Recording {
        run: Some(run),
        modules: vec![Module::new(sample(), Some(&excerpt())), Module::new(other(), None)],
        threads: vec![vec![sample()], vec![sample(), other()]],
        sections: vec![(b'v', vec![1, 2, 3])],
    }
}

#[test]
fn reading_undoes_writing() {
    let whole = recording();
    let read = Recording::parse(&whole.write()).unwrap();
    assert_eq!(read, whole);
    assert_eq!(read.modules[0].excerpt().unwrap(), Some(excerpt()));
    assert_eq!(read.modules[1].excerpt().unwrap(), None);
    assert!(has_section(&whole.write(), b'v') && !has_section(&whole.write(), b'w'));
    let empty = Recording::default();
    assert_eq!(Recording::parse(&empty.write()).unwrap(), empty);
}

/// As version 0.1.0 wrote them before there were sections.
fn of_version_1(threads: &[Vec<Profile>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([1, b'R']);
    let put = |out: &mut Vec<u8>, profiles: &[Profile]| {
        varint(out, profiles.len() as u64);
        profiles.iter().for_each(|profile| put_bytes(out, &engraft::write(profile).bytes));
    };
    put(&mut out, &[sample(), other()]);
    if !threads.is_empty() {
        varint(&mut out, threads.len() as u64);
        threads.iter().for_each(|thread| put(&mut out, thread));
    }
    let sum = xxh3_64(&out);
    out.extend(sum.to_le_bytes());
    out
}

#[test]
fn version_1_is_read() {
    let golden = include_bytes!("../engraft/profile-v1.engraft");
    assert_eq!(Recording::parse(golden).unwrap(), Recording::of([sample()]));
    assert_eq!(Recording::parse(&of_version_1(&[])).unwrap(), Recording::of([sample(), other()]));
    let threads = vec![vec![sample()], vec![]];
    let file = of_version_1(&threads);
    assert_eq!(Recording::parse(&file).unwrap(), Recording { threads, ..Recording::of([sample(), other()]) });
    let cut = whole_of(&file[..file.len() / 2]).unwrap();
    assert_eq!((cut.n_images, cut.recording.modules.len()), (2, 1));
}

#[test]
fn a_raw_recording_is_refused_by_name() {
    let raw = [RAW_MAGIC, &[0; 200][..]].concat();
    assert!(is_one(&raw));
    assert!(matches!(Recording::parse(&raw), Err(ReadError::Raw)));
    assert!(matches!(crate::read(&raw, &Context::default()), Err(ReadError::Raw)));
    assert!(whole_of(&raw).is_none());
}

#[test]
fn every_cut_off_or_changed_file_is_refused_and_its_whole_modules_are_found() {
    let whole = recording().write();
    let n_of = |file: &[u8]| whole_of(file).map_or(0, |w| w.recording.modules.len());
    let mut before = 0;
    for len in 0..whole.len() {
        assert!(Recording::parse(&whole[..len]).is_err(), "{len}");
        let n = n_of(&whole[..len]);
        assert!(n == before || n == before + 1, "{len}: {n} after {before}");
        before = n;
    }
    assert_eq!(before, 2);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        assert!(Recording::parse(&changed).is_err(), "{at}");
        // What is found of it is as it was.
        let found = whole_of(&changed).map(|w| w.recording.modules).unwrap_or_default();
        assert!(found.iter().all(|m| recording().modules.contains(m)), "{at}");
    }
}

#[test]
fn changed_excerpts_are_refused_or_read() {
    let bytes = packed(&excerpt());
    for at in 0..bytes.len() {
        for with in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= with;
            let _either = unpacked(&changed);
        }
        let _either = unpacked(&bytes[..at]);
    }
    // One that would be four gigabytes of zeros.
    let mut bomb = vec![EXCERPT_VERSION];
    varint(&mut bomb, 4 << 30);
    bomb.extend(zstd::encode_all(io::repeat(0).take(1 << 20), LEVEL).unwrap());
    assert!(unpacked(&bomb).is_err());
}

#[test]
fn secrets_are_not_kept() {
    let kept = ["LD_PRELOAD", "GLIBC_TUNABLES", "OMP_NUM_THREADS", "LANG", "LC_ALL"];
    assert!(kept.into_iter().all(Run::keeps));
    let others = ["PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "OLD_LD_PRELOAD", "LDAP_PASSWORD", "LANGUAGES"];
    assert!(!others.into_iter().any(Run::keeps));
}

//! Loading against the system's own tools: gcc makes the file, binutils say what is in it.
#![expect(clippy::indexing_slicing, reason = "a test that reaches outside its own bytes should fail")]

use super::{Image, Kind, PltStub};
use crate::addr::Va;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// What a command prints; it must succeed.
fn said(command: &mut Command) -> String {
    let out = command.output().expect("the tool is installed");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Compiles `source` with `flags`; the file is gone with the folder.
fn compile(source: &str, flags: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let path = dir.path().join("a.c");
    std::fs::write(&path, source).expect("the folder can be written");
    let out = dir.path().join("a.out");
    said(
        Command::new("gcc")
            .args(["-O1", "-x", "c"])
            .arg(&path)
            .arg("-o")
            .arg(&out)
            .args(flags.split_whitespace()),
    );
    (dir, out)
}

const HELLO: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((constructor)) static void first(void) { puts("first"); }
__attribute__((destructor)) static void last(void) { puts("last"); }
void *(*volatile taken)(size_t) = malloc;
int main(int c, char **v) { char *p = taken(9); strcpy(p, v[0]); printf("%d %s\n", atoi(v[0]), p); free(p); return c; }
"#;

/// Addresses and names that objdump gives to PLT stubs.
fn stubs_by_objdump(path: &std::path::Path) -> BTreeMap<Va, String> {
    let text = said(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(path));
    let label = |line: &str| {
        let (at, name) = line.strip_suffix(">:")?.split_once(" <")?;
        Some((Va(u64::from_str_radix(at, 16).ok()?), name.strip_suffix("@plt")?.to_owned()))
    };
    text.lines().filter_map(label).collect()
}

fn named(plt: &[PltStub]) -> BTreeMap<Va, String> {
    plt.iter().filter_map(|s| Some((s.range.start, s.import.as_deref()?.to_owned()))).collect()
}

#[track_caller]
fn check_plt(flags: &str, at_least: usize) {
    let (_dir, path) = compile(HELLO, flags);
    let image = Image::load(&path).expect("gcc makes good files");
    let want = stubs_by_objdump(&path);
    assert!(want.len() >= at_least, "objdump finds {} stubs with {flags}", want.len());
    assert_eq!(named(&image.plt), want, "{flags}");
}

#[test]
fn stubs_are_named_as_objdump_names_them() {
    check_plt("-fno-builtin -Wl,-z,lazy", 4);
    check_plt("-fno-builtin -Wl,-z,now", 4);
    check_plt("-fno-builtin -no-pie -Wl,-z,lazy", 4);
    check_plt("-fno-builtin -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy", 4);
    check_plt("-fno-builtin -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,now", 4);
    check_plt("-fno-builtin -fno-plt", 0);
}

#[test]
fn kinds_are_told_apart() {
    #[track_caller]
    fn check(flags: &str, want: Kind) {
        let (_dir, path) = compile(HELLO, flags);
        assert_eq!(Image::load(&path).expect("gcc makes good files").kind, want, "{flags}");
    }
    check("", Kind::Pie);
    check("-no-pie", Kind::Executable);
    check("-static", Kind::Static);
    check("-static-pie", Kind::StaticPie);
    check("-shared -fPIC", Kind::SharedObject);
    check("-shared -fPIC -Wl,-soname,x.so -Wl,-e,main", Kind::SharedObject);
}

#[test]
fn constructors_are_found_through_their_relocated_arrays() {
    for flags in ["", "-no-pie", "-static", "-Wl,-z,pack-relative-relocs"] {
        let (_dir, path) = compile(HELLO, flags);
        let image = Image::load(&path).expect("gcc makes good files");
        let mut want: Vec<Va> = ["first", "last", "_init", "_fini", "frame_dummy", "__do_global_dtors_aux"]
            .iter()
            .map(|n| image.symbols.iter().find(|s| *s.name == **n).expect("gcc's start files have it").at)
            .collect();
        want.sort_unstable();
        let missing: Vec<_> = want.iter().filter(|w| !image.init_fini.contains(w)).collect();
        assert!(missing.is_empty(), "{flags}: {missing:?} not in {:?}", image.init_fini);
    }
}

/// Splits the debug information of a program off, as Debian's packages do.
fn split_off(flags: &str) -> (tempfile::TempDir, PathBuf, Vec<super::Symbol>) {
    let (dir, path) = compile(HELLO, flags);
    let whole = Image::load(&path).expect("gcc makes good files");
    let debug = dir.path().join("a.debug");
    said(Command::new("objcopy").arg("--only-keep-debug").arg(&path).arg(&debug));
    said(Command::new("strip").arg(&path));
    said(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&path));
    (dir, path, whole.symbols)
}

#[test]
fn symbols_and_lines_come_from_the_debug_file() {
    for flags in ["-g -Wl,--build-id", "-g -Wl,--build-id=none"] {
        let (dir, path, want) = split_off(flags);
        let image = Image::load(&path).expect("strip leaves good files");
        assert_eq!(image.debug_file, Some(dir.path().canonicalize().expect("it is there").join("a.debug")));
        let text = |symbols: &[super::Symbol]| symbols.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>();
        assert_eq!(text(&image.symbols), text(&want), "{flags}");
        assert!(crate::Lines::load(&image).is_some(), "{flags}");
    }
}

#[test]
fn a_debug_file_of_another_build_is_noted_and_not_used() {
    for flags in ["-g -Wl,--build-id", "-g -Wl,--build-id=none"] {
        let (dir, path, _) = split_off(flags);
        let (_other, wrong, _) = split_off("-g -O0 -no-pie -Wl,--build-id=none");
        let wrong = if flags.ends_with("none") {
            wrong.with_file_name("a.debug")
        } else {
            let (_third, path) = compile(HELLO, "-g -O0");
            let bytes = std::fs::read(&path).expect("it was made");
            std::fs::write(&wrong, bytes).expect("the folder can be written");
            wrong
        };
        std::fs::copy(wrong, dir.path().join("a.debug")).expect("the folder can be written");
        let image = Image::load(&path).expect("strip leaves good files");
        assert_eq!(image.debug_file, None);
        assert!(!image.symbols.iter().any(|s| &*s.name == "main"));
        assert!(
            image.notes.iter().any(|n| n.contains("a.debug belongs to another build")),
            "{:?}",
            image.notes
        );
    }
}

#[test]
fn a_debug_file_itself_is_refused() {
    let (dir, _path, _) = split_off("-g");
    let error = Image::load(&dir.path().join("a.debug")).expect_err("it has no code").to_string();
    assert!(error.contains("a file of debug information without code"), "{error}");
}

/// The error that a file of these bytes gives.
fn refusal(bytes: &[u8]) -> String {
    Image::parse(bytes.to_vec(), "x").expect_err("it is no program for us").to_string()
}

#[test]
fn foreign_files_are_refused_with_what_they_are() {
    let (dir, path) = compile(HELLO, "");
    let good = std::fs::read(&path).expect("it was made");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        refusal(&bytes)
    };
    #[track_caller]
    fn check(got: &str, want: &str) {
        assert!(got.contains(want) && got.lines().count() == 1, "{got}");
    }
    // Offsets: System V ABI, figure 4-3: e_ident[EI_CLASS], e_ident[EI_DATA], e_type, e_machine.
    check(&with(4, 1), "x is a 32-bit file; only");
    check(&with(5, 2), "x is a big-endian file; only");
    check(&with(4, 9), "x is damaged: the ELF header");
    check(&with(16, 4), "x is a core file; only");
    check(&with(16, 9), "x is of unknown type");
    check(&with(18, 183), "x is for another machine");
    check(&refusal(b""), "x is no ELF file");
    check(&refusal(b"#!/bin/sh\n"), "x is no ELF file: it is a script");
    check(&refusal(b"\x7fELF"), "x is damaged: the ELF header");

    let object = dir.path().join("a.o");
    said(Command::new("gcc").arg("-c").arg(dir.path().join("a.c")).arg("-o").arg(&object));
    check(&refusal(&std::fs::read(object).expect("it was made")), "x is an object file; only");

    let load = |path: &std::path::Path| Image::load(path).expect_err("there is no such program").to_string();
    check(&load(dir.path()), "cannot read ");
    check(&load(&dir.path().join("nothing")), "cannot read ");
    check(&load("/dev/zero".as_ref()), "cannot read /dev/zero");
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let (_dir, path) = compile(HELLO, "-s");
    let good = std::fs::read(&path).expect("it was made");
    assert!(Image::parse(good.clone(), "x").is_ok());
    let loaded = Image::parse(good.clone(), "x").expect("it was made").segments;
    let end = loaded.iter().map(|s| s.offset.0 + s.file_len).max().expect("something is loaded");
    let (mut refused, mut cut) = (0, 0);
    for len in (0..1024.min(good.len())).chain((1024..good.len()).step_by(7)) {
        match Image::parse(good[..len].to_vec(), "x") {
            Err(error) => {
                refused += 1;
                assert_eq!(error.to_string().lines().count(), 1, "cut at {len}: {error}");
            }
            // Nothing that runs is missing, and that is said.
            Ok(image) => {
                cut += 1;
                assert!(len as u64 >= end && image.sections_cut, "cut at {len}");
            }
        }
    }
    assert!(refused > 1000 && cut > 100, "{refused} {cut}");
}

#[test]
fn a_file_without_section_headers_gives_the_same() {
    for flags in [
        "",
        "-no-pie",
        "-static",
        "-static-pie",
        "-shared -fPIC",
        "-Wl,--hash-style=sysv",
        "-Wl,-z,pack-relative-relocs",
        "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy",
        "-Wl,-z,lazy",
    ] {
        let (_dir, path) = compile(HELLO, &format!("-s -fno-builtin {flags}"));
        let mut bytes = std::fs::read(&path).expect("it was made");
        let whole = Image::parse(bytes.clone(), "x").expect("gcc makes good files");
        let mut cut = bytes.clone();
        cut.truncate(bytes.len() - 65);
        // e_shoff, e_shnum, e_shstrndx
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
        let bare = Image::parse(bytes, "x").expect("section headers are not needed to run");
        let cut = Image::parse(cut, "x").expect("nor a whole table of them");
        assert!(cut.sections_cut && !bare.sections_cut && !whole.sections_cut);
        let known =
            |i: &Image| format!("{:?} {:?} {:?} {:?}", i.symbols, i.relocations, i.plt, i.code_ranges());
        assert_eq!((known(&cut), cut.id), (known(&bare), bare.id), "{flags}");
        assert!(bare.sections.is_empty() && !whole.sections.is_empty());
        let text = |what: &dyn std::fmt::Debug| format!("{what:?}");
        assert_eq!((whole.kind, &whole.build_id), (bare.kind, &bare.build_id), "{flags}");
        assert_eq!(text(&whole.relocations), text(&bare.relocations), "{flags}");
        assert_eq!(text(&whole.symbols), text(&bare.symbols), "{flags}");
        assert_eq!(named(&whole.plt), named(&bare.plt), "{flags}");
        assert_eq!(text(&whole.unwind), text(&bare.unwind), "{flags}");
        if !flags.contains("-static") || flags == "-static-pie" {
            assert_eq!(whole.init_fini, bare.init_fini, "{flags}");
        }
    }
}

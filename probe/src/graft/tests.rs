//! Code of shared objects, laid out and bound, against what readelf says of their relocations.

use super::*;
use crate::testing::{binutils, compiled};

const TEXT: &str = "
    extern int of_program(int), table[]; extern __thread int of_thread;
    extern __thread int initial __attribute__((tls_model(\"initial-exec\")));
    __attribute__((weak)) extern int nobody(void);
    static int own(int n) { return n * 3; }
    int (*to_own)(int) = own, (*to_other)(int) = of_program, *inside = &table[3], zeros[3000];
    int f(int n) { return of_program(n) + to_own(n) + of_thread + initial + (nobody ? nobody() : 0) + zeros[n]; }";

fn library(text: &str, flags: &str) -> Vec<u8> {
    compiled(text, "c", &format!("-O1 -shared -fPIC {flags}")).image.file_bytes().to_vec()
}

/// What names mean in a process that has them all.
fn meaning(name: &Name) -> Result<Meaning, String> {
    match &*name.name {
        "of_thread" => Ok(Meaning::InThread { from_pointer: -64, module: Some(7), within: 0x40 }),
        "initial" => Ok(Meaning::InThread { from_pointer: -8, module: None, within: 0 }),
        "of_program" | "table" => Ok(Meaning::At(LiveVa(0x7000_0000 + name.name.len() as u64))),
        "__tls_get_addr" => Ok(Meaning::At(LiveVa(0x7fff_0000))),
        other => Err(format!("is not there: {other}")),
    }
}

/// The word at `at` of a process that has `grafted`.
fn word(grafted: &Grafted, at: u64) -> u64 {
    let part = grafted.parts.iter().find(|part| (part.at..part.end()).contains(&at)).expect("it is mapped");
    let from = usize::try_from(at - part.at).expect("small");
    u64::from_le_bytes(*part.bytes.get(from..).and_then(|rest| rest.first_chunk()).expect("it is whole"))
}

#[test]
fn each_place_is_written_as_its_relocation_says() {
    const BASE: u64 = 0x5555_0000_0000;
    for flags in ["", "-Wl,-z,now", "-Wl,-z,pack-relative-relocs", "-Wl,--hash-style=sysv -Wl,-z,lazy"] {
        let bytes = library(TEXT, flags);
        let graft = Graft::of_library("it.so", &bytes).expect("it is one");
        let grafted = graft.place(LiveVa(BASE), meaning).expect("all is known");
        let said = binutils("readelf", &["-rW"], &bytes);
        let (mut n, mut kinds) = (0, BTreeSet::new());
        for row in said.lines() {
            let words: Vec<&str> = row.split_whitespace().collect();
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let (Some(at), Some(kind)) = (words.first().and_then(|w| number(w)), words.get(2)) else {
                continue;
            };
            let name = words.get(4).map(|name| name.split('@').next().unwrap_or_default());
            let addend = words.last().and_then(|w| number(w)).unwrap_or(0);
            let of_name = |name: &str| match name {
                "to_own" | "to_other" | "inside" | "zeros" | "f" => {
                    BASE + graft.defined(name).expect("it has it")
                }
                "of_program" | "table" => 0x7000_0000 + name.len() as u64,
                "__tls_get_addr" => 0x7fff_0000,
                // Weak ones that nobody has.
                _ => 0,
            };
            let want = match (*kind, name) {
                ("R_X86_64_RELATIVE", _) => BASE + number(words[3]).expect("an addend"),
                ("R_X86_64_64" | "R_X86_64_GLOB_DAT" | "R_X86_64_JUMP_SLOT", Some(name)) => {
                    of_name(name) + addend
                }
                ("R_X86_64_TPOFF64", Some("initial")) => (-8i64).cast_unsigned(),
                ("R_X86_64_DTPMOD64", Some("of_thread")) => 7,
                ("R_X86_64_DTPOFF64", Some("of_thread")) => 0x40,
                _ if !kind.starts_with("R_X86_64") => continue,
                _ => panic!("{row}"),
            };
            assert_eq!(word(&grafted, BASE + at), want, "{row}");
            kinds.insert((*kind).to_owned());
            n += 1;
        }
        assert!(n > 10 && kinds.len() >= 6 - usize::from(flags.contains("pack")), "{n} {kinds:?}");
        // Packed ones too: a pointer to its own function.
        let own = word(&grafted, BASE + graft.defined("to_own").expect("it has it"));
        assert!(grafted.code.contains(&own), "{own:#x}");
        // Data stand in for nothing.
        assert_eq!((graft.function("to_own"), graft.function("zeros")), (None, None));
        assert!(graft.defines().any(|name| graft.function(name).is_some()));
        // What the file does not hold is zero, and may be written.
        let zeros = BASE + graft.defined("zeros").expect("it has it");
        assert_eq!(word(&grafted, zeros + 11_992), 0);
        let rights = |at: u64| {
            let part = grafted.parts.iter().find(|part| (part.at..part.end()).contains(&at)).expect("mapped");
            (part.writable, part.executable)
        };
        assert_eq!((rights(zeros), rights(grafted.code.start)), ((true, false), (false, true)));
        let unwind = grafted.unwind.expect("gcc makes one");
        // Version 1; distances of four bytes.
        assert_eq!(word(&grafted, unwind) & 0xff, 1);
    }
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    #[track_caller]
    fn check(text: &str, flags: &str, want: &str) {
        let made = Graft::of_library("it.so", &library(text, flags))
            .and_then(|graft| graft.place(LiveVa(0x10000), meaning).map(|_| ()));
        let said = made.expect_err("it is refused");
        assert!(said.to_string().contains(want), "{said}");
    }
    check("__thread int own; int f(void) { return own; }", "", "defines variables of threads");
    let constructor =
        "static int n; __attribute__((constructor)) static void c(void) { n = 1; } int f(void) { return n; }";
    check(constructor, "", "has constructors");
    check(
        "int missing(void); int f(void) { return missing(); }",
        "",
        "it.so needs missing, which is not there",
    );
    check(
        "extern int of_thread; int f(void) { return of_thread; }",
        "",
        "of_thread, which is a variable of threads there",
    );
    check(
        "extern __thread int table; int f(void) { return table; }",
        "",
        "table, which is no variable of threads there",
    );
    let resolved = "static int a(void) { return 1; } static void *r(void) { return a; }
        int f(void) __attribute__((ifunc(\"r\"))); int g(void) { return f(); }";
    check(resolved, "", "is chosen by a resolver");
    let program = compiled("int main(void) { return 0; }", "c", "-O1").image.file_bytes().to_vec();
    for (bytes, want) in [(&program[..], "it is a program"), (b"text", "text"), (&[], "it is empty")] {
        let said = Graft::of_library("it.so", bytes).expect_err("it is refused").to_string();
        assert!(said.contains("it.so is not a shared object") && said.contains(want), "{said}");
    }
}

#[test]
fn no_part_of_a_library_makes_us_panic() {
    let whole = library(TEXT, "");
    for len in (0..whole.len()).step_by(61) {
        let _refused = Graft::of_library("it.so", &whole[..len]);
    }
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        if let Ok(graft) = Graft::of_library("it.so", &bytes) {
            let _refused = graft.place(LiveVa(0x10000), meaning);
        }
    }
}

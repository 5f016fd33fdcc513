//! PLT stubs are counted whoever calls them; static programs are counted whole; labels that
//! data hold are led to; filters of system calls do not end a program for ours.

use crate::count::{blocks, counted, plain};
use crate::needs;
use crate::run::{at, built, compile, engraft, folder};
use std::path::Path;
use std::process::Command;

/// Calls `abs` 2000 times by a jump under a condition, and 500 times by its address, which in a program at
/// fixed addresses is the stub's; `labs` 50 times itself, and 100 times by code that stays where it is.
const STUBS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((naked, noinline)) int maybe(int x) { __asm__("test %edi,%edi; jne abs@PLT; mov $7,%eax; ret"); }
__attribute__((naked, noinline)) long odd(long x) {
  __asm__("lea 1f(%rip),%rax; jmp *%rax; 1: sub $8,%rsp; call labs@PLT; add $8,%rsp; ret"); }
int main(void) {
  long sum = 0; int (*volatile p)(int) = abs;
  for (int i = 0; i < 3000; i++) sum += maybe(i % 3);
  for (int i = 0; i < 500; i++) sum += p(i);
  for (int i = 0; i < 50; i++) sum += labs(i);
  for (int i = 0; i < 100; i++) sum += odd(i);
  printf("%ld\n", sum); return 0;
}
"#;

#[track_caller]
fn build(folder: &Path, text: &str, flags: &str) {
    std::fs::write(folder.join("text.c"), text).expect("written");
    let words = flags.split_whitespace().chain(["-fno-builtin", "-w", "-o", "old", "text.c"]);
    let done = Command::new("gcc").args(words).current_dir(folder).output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Poisoned, it prints and ends as before.
#[track_caller]
fn check_poisoned(folder: &Path, flags: &str) {
    engraft(folder, "instrument old -o moved --null --poison -q").ok();
    let (want, got) = (plain(folder, &["./old"]), plain(folder, &["./moved"]));
    assert_eq!((got.stdout, got.stderr, got.status), (want.stdout, want.stderr, want.status), "{flags}");
}

#[test]
fn stubs_are_counted_whoever_calls_them() {
    needs!("gcc");
    for (flags, by_address) in [
        ("-O1 -fPIE -pie -Wl,-z,lazy", 0),
        ("-O1 -fPIE -pie -Wl,-z,now", 0),
        ("-O1 -fPIE -pie -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy", 0),
        ("-O1 -fno-pie -no-pie -Wl,-z,lazy", 500),
        ("-O1 -fno-pie -no-pie -s -Wl,-z,now", 500),
    ] {
        let place = folder();
        build(place.path(), STUBS, flags);
        let got = counted(place.path(), &["./old"], "exe");
        let at = |name: &str| at(place.path(), "old", name);
        assert_eq!(got.get(&at("abs@plt")), Some(&(2000 + by_address)), "{flags}");
        assert_eq!(got.get(&at("labs@plt")), Some(&150), "{flags}");
        check_poisoned(place.path(), flags);
    }
}

/// Of 100 rounds each, half do not come back from the first call of the block; then nobody comes to the
/// second one, which is in a block that goes on, in one that ends the function, in one that branches to a
/// tail call, and in one that ends the process.
const BEHIND: &str = r#"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf back; static volatile int sum;
__attribute__((noinline)) static void maybe(int i) { if (i & 1) longjmp(back, 1); sum += i; }
__attribute__((noinline)) static void goes_on(int i) { maybe(i); sum += abs(i); sum++; if (sum & 1) sum += atoi("3"); sum++; }
__attribute__((noinline)) static int ends(int i) { maybe(i); int n = labs(i); return n + 1; }
__attribute__((noinline)) static int leaves(int i) { maybe(i); int n = llabs(i); if (n & 2) return atoi("5"); return n + 2; }
__attribute__((noinline)) static void dies(int i) { maybe(2 * i + 1); exit(i); }
int main(void) {
  for (volatile int i = 0; i < 100; i++) if (!setjmp(back)) goes_on(i);
  for (volatile int i = 0; i < 100; i++) if (!setjmp(back)) sum += ends(i);
  for (volatile int i = 0; i < 100; i++) if (!setjmp(back)) sum += leaves(i);
  for (volatile int i = 0; i < 100; i++) if (!setjmp(back)) dies(i);
  printf("%d\n", sum); return 0;
}
"#;

#[test]
fn stubs_are_counted_behind_calls_that_do_not_come_back() {
    needs!("gcc");
    for flags in ["-O1 -fPIE -pie -Wl,-z,lazy", "-O2 -fPIE -pie -Wl,-z,now", "-O2 -fno-pie -no-pie -s"] {
        let place = folder();
        build(place.path(), BEHIND, flags);
        counted(place.path(), &["./old"], "exe");
        let ran =
            engraft(place.path(), "count -q --no-cache --all-blocks -o all.engraft --modules exe -- ./old");
        assert_eq!(ran.code, Some(0));
        for recording in ["run.engraft", "all.engraft"] {
            let counts = blocks(place.path(), recording, "old");
            let got = ["abs@plt", "labs@plt", "llabs@plt", "exit@plt", "longjmp@plt"]
                .map(|name| counts.get(&at(place.path(), "old", name)).copied());
            assert_eq!(got, [50, 50, 50, 0, 250].map(Some), "{flags} {recording}");
        }
    }
}

/// Its C library jumps past `lock` while there is one thread, and calls its own string functions by way of
/// stubs.
const ALLOCATES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *p) {
  char *all[500]; long n = 0;
  for (int k = 0; k < 20; k++) {
    for (int i = 0; i < 500; i++) { all[i] = malloc(1 + i * 37 % 3000); memset(all[i], i, 1 + i % 7); n += all[i][0]; }
    for (int i = 0; i < 500; i++) free(all[(i * 77) % 500]);
  }
  *(long *)p += n; return p;
}
int main(int argc, char **argv) {
  long n = 0; work(&n); printf("%ld %d\n", n, (int)strlen("abc" + argc));
  pthread_t t[3]; long m[3] = {0};
  for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, work, &m[i]);
  for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
  printf("%ld\n", m[0] + m[1] + m[2]); return 4;
}
"#;

#[test]
fn static_programs_are_counted_whole() {
    needs!("gcc");
    for flags in ["-O2 -static", "-O2 -static-pie", "-O2 -static -s"] {
        let place = folder();
        build(place.path(), ALLOCATES, flags);
        engraft(place.path(), "count -q --no-cache -o run.engraft -- ./old");
        let shown = engraft(place.path(), "show --counts run.engraft --json").json();
        assert_eq!(shown["counted_share"], 1.0, "{flags}: {}", shown["uncounted"]);
        check_poisoned(place.path(), flags);
    }
}

/// Threaded code: its program holds addresses of labels, some of which stand behind a call in the middle of
/// straight-line code.
const LABELS: &str = r#"
#include <stdio.h>
static int n;
__attribute__((noinline)) void trace(void) { n++; }
extern void *table[]; extern long run(void **code);
__asm__(".text\n.type run,@function\nrun: .cfi_startproc\n push %rbx\n.cfi_def_cfa_offset 16\n mov %rdi,%rbx\n xor %eax,%eax\n push %rax\n.cfi_def_cfa_offset 24\n sub $8,%rsp\n.cfi_def_cfa_offset 32\n jmp *(%rbx)\n"
"t_inc: call trace\ninc: incq 8(%rsp)\n add $8,%rbx\n jmp *(%rbx)\n"
"t_dbl: call trace\ndbl: shlq 8(%rsp)\n add $8,%rbx\n jmp *(%rbx)\n"
"fin: add $8,%rsp\n pop %rax\n pop %rbx\n ret\n.cfi_endproc\n.size run,.-run\n.data\n.balign 8\n.globl table\ntable: .quad inc,t_inc,dbl,t_dbl,fin\n.text\n");
int main(void) { void *code[] = { table[0], table[1], table[2], table[3], table[0], table[4] }; printf("%ld %d\n", run(code), n); return 0; }
"#;

/// The same, as compilers make it: values live across the jumps in a register that callees may change.
const RELYING: &str = r#"
#include <stdio.h>
extern void *table[]; extern long run(void **code);
__asm__(".text\n.type run,@function\nrun: .cfi_startproc\n mov $1,%r11d\n jmp *(%rdi)\n"
"inc: inc %r11\n add $8,%rdi\n jmp *(%rdi)\n"
"dbl: shl %r11\n add $8,%rdi\n jmp *(%rdi)\n"
"cmp: cmp $100,%r11\n lea 8(%rdi),%rdi\n jmp *(%rdi)\n"
"pick: jb 1f\n xor %r11d,%r11d\n1: add $8,%rdi\n jmp *(%rdi)\n"
"fin: mov %r11,%rax\n ret\n.cfi_endproc\n.size run,.-run\n.data\n.balign 8\n.globl table\ntable: .quad inc,dbl,cmp,pick,fin\n.text\n");
int main(void) {
    void *code[] = { table[0], table[1], table[0], table[2], table[3], table[1], table[4] };
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += run(code);
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn labels_that_are_kept_find_registers_and_flags_as_they_were() {
    needs!("gcc");
    let place = folder();
    build(place.path(), RELYING, "-O1 -fPIE -pie");
    counted(place.path(), &["./old"], "exe");
    let shown = engraft(place.path(), "show run.engraft --json").json();
    let uncounted = shown["uncounted"].as_array().expect("a list");
    assert!(uncounted.iter().all(|u| u["name"] != "run"), "{uncounted:?}");
    for way in ["count -q --no-cache -o x.engraft", "trace -q --no-cache --modules exe -o x.trace"] {
        assert_eq!(engraft(place.path(), &format!("{way} ./old")).stdout, "10000\n", "{way}");
    }
}

#[test]
fn labels_that_only_data_know_of_lead_to_moved_code() {
    needs!("gcc");
    for (flags, is_moved) in [("-O1 -fPIE -pie", true), ("-O1 -fno-pie -no-pie", false)] {
        let place = folder();
        build(place.path(), LABELS, flags);
        counted(place.path(), &["./old"], "exe");
        check_poisoned(place.path(), flags);
        let shown = engraft(place.path(), "show --counts run.engraft --json").json();
        let uncounted = shown["uncounted"].as_array().expect("a list");
        // Where nothing is relocated, a word might be a number: the function stays, and that is said.
        assert_eq!(uncounted.iter().all(|u| u["name"] != "run"), is_moved, "{flags}: {uncounted:?}");
    }
}

#[test]
fn strict_filters_of_system_calls_let_counted_programs_live() {
    needs!("gcc");
    for flags in ["-O1 -pthread", "-O1 -pthread -no-pie"] {
        let place = folder();
        compile(&place.path().join("filter"), "filter.c", flags);
        compile(&place.path().join("late.so"), "plugin.c", "-O1 -shared -fPIC");
        // For a path that starts nowhere, ld.so asks for the working directory, which the filter forbids.
        let late = place.path().join("late.so").display().to_string();
        assert_eq!(plain(place.path(), &["./filter", &late]).status.code(), Some(3), "{flags}");
        let got = counted(place.path(), &["./filter", &late], "all");
        assert!(got.values().any(|n| *n == 8000), "{flags}: {got:?}");
    }
}

/// Code that stays keeps a value in r11 while functions of its own run that do not touch it, as gcc's
/// `-fipa-ra` does; code takes the address of one of them.
const KEEPER: &str = r#"
#include <stdio.h>
__attribute__((noinline)) long one(long x) { return x * 3; }
__attribute__((noinline)) long two(long x) { return x * 5; }
__attribute__((naked, noinline)) long keeper(long x) {
  __asm__("call 2f; 2: pop %rax; mov $1000,%r11d; call one; add %r11,%rax; mov %rax,%rdi; mov $7,%r11d; call two; add %r11,%rax; ret"); }
int main(void) {
  long sum = 0; long (*volatile p)(long) = two;
  for (int i = 0; i < 300; i++) sum += keeper(i) + p(i);
  printf("%ld\n", sum); return 0;
}
"#;

#[test]
fn registers_that_callers_keep_across_known_functions_are_left_alone() {
    needs!("gcc");
    for flags in ["-O1 -fPIE -pie", "-O1 -no-pie", "-O1 -static"] {
        let place = folder();
        build(place.path(), KEEPER, flags);
        let counts = counted(place.path(), &["./old"], "exe");
        let times = |n: u64| counts.values().filter(|c| **c == n).count();
        assert!(times(300) >= 2 && times(600) >= 1, "{flags}: {counts:?}");
        check_poisoned(place.path(), flags);
    }
}

/// A library that is named by its place from here is known before the program starts, as others are; one that
/// uses gs is refused.
#[test]
fn libraries_beside_the_program_are_looked_at_before_it_starts() {
    needs!("gcc");
    let place = folder();
    let library =
        "long area[64]; long get(void) { long x; __asm__(\"movq %%gs:8,%0\" : \"=r\"(x)); return x; }";
    std::fs::write(place.path().join("get.c"), library).expect("written");
    compile_with(place.path(), "-shared -fPIC -O1 -o libget.so get.c");
    std::fs::write(
        place.path().join("use.c"),
        "long get(void); int main(int n, char **v) { return n > 1 && get(); }",
    )
    .expect("written");
    compile_with(place.path(), "-O1 -o use use.c ./libget.so");
    let ran = engraft(place.path(), "count -q --no-cache -o a.engraft -- ./use");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("libget.so uses gs itself"), "{}", ran.stderr);
}

#[test]
fn the_dynamic_linker_may_be_the_program() {
    needs!("gcc");
    let place = folder();
    build(place.path(), STUBS, "-O1 -fPIE -pie");
    let linker = "/lib64/ld-linux-x86-64.so.2";
    for args in [&["./old"][..], &["--list", "./old"], &["--version"], &["./nowhere"]] {
        let words: Vec<&str> = [linker].into_iter().chain(args.iter().copied()).collect();
        let ran = engraft(place.path(), &format!("count -q --no-cache -o a.engraft -- {}", words.join(" ")));
        let want = plain(place.path(), &words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Addresses are others each time.
        if args[0] != "--list" {
            assert_eq!(ran.stdout, text(&want.stdout), "{args:?}");
        }
        assert_eq!(ran.code, want.status.code(), "{args:?}: {}", ran.stderr);
        let _ = std::fs::remove_file(place.path().join("a.engraft"));
    }
}

#[track_caller]
fn compile_with(folder: &Path, flags: &str) {
    let done =
        Command::new("gcc").args(flags.split_whitespace()).current_dir(folder).output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A library's calls of what it exports go to its own function, which is moved, or to the executable's of the
/// same name, as the dynamic linker decides.
#[test]
fn calls_of_what_a_library_exports_go_where_the_linker_says() {
    needs!("gcc");
    for flags in ["-Wl,-z,lazy", "-Wl,-z,now", "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy"] {
        let place = folder();
        let place = place.path();
        let library =
            "int f(int n) { return n + 1; } int g(int n) { int s = 0; while (n) s += f(n--); return s; }
            int h(int n) { return f(n); }";
        built(place, "libown.so", library, &format!("-O1 -fno-inline -shared -fPIC {flags}"));
        let main = "#include <stdio.h>\nint g(int); int h(int); int main(void) { printf(\"%d %d\\n\", g(100), h(7)); return 0; }";
        let other = "int f(int n) { return 2 * n; }";
        for (own, said, ran) in [("", "5150 8\n", [101, 0]), (other, "10100 14\n", [0, 101])] {
            built(
                place,
                "old",
                &format!("{own}\n{main}"),
                &format!("-O1 {flags} -L. -lown -Wl,-rpath,$ORIGIN"),
            );
            let out = plain(place, &["./old"]);
            assert_eq!(String::from_utf8_lossy(&out.stdout), said, "{flags}");
            for how in [&["count"][..], &["count", "--all-blocks"], &["trace"]] {
                let us = [&[env!("CARGO_BIN_EXE_engraft")], how, &["-q", "-o", "run.engraft", "--", "./old"]];
                let counted = plain(place, &us.concat());
                assert_eq!((counted.stdout, counted.status), (out.stdout.clone(), out.status), "{flags}");
                let in_library = blocks(place, "run.engraft", "libown.so");
                let in_exe = blocks(place, "run.engraft", "old");
                let n = |found: &std::collections::BTreeMap<u64, u64>, at: u64| {
                    found.get(&at).copied().unwrap_or(0)
                };
                let of_exe = if own.is_empty() { 0 } else { n(&in_exe, at(place, "old", "f")) };
                assert_eq!([n(&in_library, at(place, "libown.so", "f")), of_exe], ran, "{flags}, {how:?}");
            }
        }
    }
}

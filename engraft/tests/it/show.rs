//! `engraft show` against what the compiler and binutils say of the same file.

use crate::needs;
use crate::run::{callgrind, compile, engraft, folder, must, pair};
use std::process::Command;

#[test]
fn the_entry_of_a_symbol_is_where_nm_says() {
    let nm = must(Command::new("nm").arg(pair().join("old")));
    let at = |name: &str| nm.lines().find(|l| l.ends_with(&format!(" {name}"))).map(|l| hex(&l[..16]));
    for name in ["main", "hash", "add", "kind", "by_count"] {
        let view = engraft(pair(), &format!("show old function {name} --json")).json();
        assert_eq!(view["at"].as_u64(), at(name), "{name}");
        assert_eq!(view["name"], name);
    }
}

#[test]
fn a_function_prints_the_instructions_that_objdump_prints() {
    let dump = must(
        Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", "--disassemble=add", "old"])
            .current_dir(pair()),
    );
    let want: Vec<u64> =
        dump.lines().filter_map(|l| l.trim_start().split_once(":\t")).map(|(at, _)| hex(at)).collect();
    let view = engraft(pair(), "show old function add --json").json();
    let blocks = view["blocks"].as_array().expect("a list");
    let got: Vec<u64> = blocks
        .iter()
        .flat_map(|b| b["instructions"].as_array().expect("a list"))
        .filter_map(|i| i["at"].as_u64())
        .collect();
    // objdump also prints the padding after a jump that does not fall through.
    assert!(!got.is_empty() && got.iter().all(|at| want.contains(at)), "{got:x?} in {want:x?}");
}

#[test]
fn landing_pads_are_no_entries_and_the_head_of_the_plt_is_no_gap() {
    needs!("g++");
    let to = folder();
    let text = "struct S { ~S(); }; S::~S() { __builtin_puts(\"~S\"); } __attribute__((noinline)) void may(int n) { if (n > 9) throw n; }\n\
                __attribute__((noinline)) int f(int n) { S s; may(n); return n; }\n\
                int main(int n, char **) { try { return f(n); } catch (int e) { return e; } }\n";
    std::fs::write(to.path().join("pads.cc"), text).expect("it is ours");
    must(Command::new("g++").args(["-O2", "-Wl,-z,lazy", "-o", "pads", "pads.cc"]).current_dir(to.path()));
    for function in ["f", "main"] {
        let shown = engraft(to.path(), &format!("show pads function {function}")).ok();
        let is_head = |l: &&str| l.starts_with(|c: char| c.is_ascii_digit());
        let heads: Vec<_> = shown.lines().filter(is_head).collect();
        assert!(heads.iter().any(|l| l.ends_with("  landing pad")), "{shown}");
        assert_eq!(heads.iter().filter(|l| l.contains("  entry")).count(), 1, "{shown}");
    }
    let gaps = engraft(to.path(), "show pads gaps --json").json();
    assert_eq!(gaps["gaps"].as_array().map(Vec::len), Some(0), "{gaps}");
}

#[test]
fn every_form_of_a_list_has_the_same_rows() {
    let json = engraft(pair(), "show old functions --json").json();
    let text = engraft(pair(), "show old functions").ok();
    let csv = engraft(pair(), "show old functions --format csv").ok();
    let n = json["functions"].as_array().map_or(0, Vec::len);
    assert!(n > 5, "{text}");
    assert_eq!((text.lines().count(), csv.lines().count()), (n + 1, n + 1));
    assert_eq!(json["schema"], "engraft.show/1");
}

#[test]
fn a_file_is_written_whole_and_replaces_the_old_one() {
    let to = folder();
    let path = to.path().join("out.json");
    std::fs::write(&path, "before").expect("it is ours");
    let args = format!("show old cfg --json -o {}", path.display());
    assert_eq!(engraft(pair(), &args).ok(), "");
    let text = std::fs::read_to_string(&path).expect("it was written");
    assert!(text.starts_with("{\"schema\":\"engraft.cfg/1\""), "{text}");
    assert_eq!(std::fs::read_dir(to.path()).expect("it is ours").count(), 1, "nothing else is left there");
}

#[test]
fn a_stripped_file_has_the_same_identity() {
    let to = folder();
    compile(&to.path().join("a"), "words-1.c", "-O2 -g");
    must(Command::new("strip").args(["-o", "b", "a"]).current_dir(to.path()));
    let id = |name: &str| engraft(to.path(), &format!("show {name} --json")).json()["image_id"].clone();
    assert_eq!(id("a"), id("b"));
    assert_ne!(id("a"), engraft(pair(), "show new --json").json()["image_id"]);
}

#[test]
fn source_lines_are_those_of_addr2line() {
    let view = engraft(pair(), "show old function by_count --json").json();
    let blocks = view["blocks"].as_array().expect("a list");
    let mut n_checked = 0;
    for insn in blocks.iter().flat_map(|b| b["instructions"].as_array().expect("a list")) {
        let (Some(at), Some(line)) = (insn["at"].as_u64(), insn["line"].as_str()) else { continue };
        let want =
            must(Command::new("addr2line").args(["-e", "old", &format!("{at:#x}")]).current_dir(pair()));
        assert_eq!(line, want.split_whitespace().next().unwrap_or_default(), "{at:#x}");
        n_checked += 1;
    }
    assert!(n_checked > 5, "{view}");
}

#[test]
fn loops_counts_and_pictures_of_a_function() {
    needs!("valgrind");
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    callgrind(to.path(), "old");
    // The source: main's loop over words has one loop inside, `hash` and `add` have one loop each.
    let view = engraft(to.path(), "show old loops --json").json();
    let loops = view["loops"].as_array().expect("a list");
    let depths = |name: &str| -> Vec<u64> {
        loops.iter().filter(|l| l["function"] == name).filter_map(|l| l["depth"].as_u64()).collect()
    };
    assert_eq!((depths("hash"), depths("add"), depths("kind")), (vec![1], vec![1], vec![]));
    assert_eq!(depths("main").iter().max(), Some(&2));
    // main adds 20,000 words, and each is hashed once.
    let view = engraft(to.path(), "show old function hash --profile old.callgrind --json").json();
    assert_eq!(view["blocks"][0]["count"], 20_000);
    let svg = engraft(to.path(), "show old function hash --svg --profile old.callgrind").ok();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>") && svg.contains("20000"), "{svg}");
    let dot = engraft(to.path(), "show old function hash --dot").ok();
    assert_eq!(dot.matches("->").count(), 4, "{dot}");
    let live = engraft(to.path(), "show old function hash --liveness --json").json();
    let alive = live["blocks"][0]["live"].as_array().expect("a list");
    assert!(alive.iter().any(|r| r == "rdi") && !alive.iter().any(|r| r == "rdx"), "{alive:?}");
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim(), 16).expect("an address")
}

//! Held against geninfo 1.16: lines and functions of a program that gcov counted.

use super::*;
use crate::testing::{compile, function};
use program::BlockId;

/// `gcc -O0 --coverage a.c -o a && ./a; geninfo -q -o geninfo.info .`; then the path made `a.c`.
const GENINFO: &str = include_str!("geninfo.info");

pub(crate) const SOURCE: &str = "int v;
static int odd(int n) {
    if (n & 1)
        return 1;
    return 0;
}
int main(int n, char **a) {
    (void)a;
    for (int i = 0; i < 10; i++)
        if (odd(i + n))
            v += 2;
    return v != 10;
}
";

/// The program, and the path of its source.
fn program() -> (Program, String) {
    let program = compile(SOURCE, "c", &["-O0", "-g"]);
    let lines = Lines::load(&program.image).unwrap();
    let main = program.function(function(&program, "main")).entry;
    let path = lines.frames(main)[0].file.clone().unwrap().to_string();
    (program, path)
}

/// The line of a block's first instruction.
fn line_of(program: &Program, lines: &Lines, block: BlockId) -> u32 {
    lines.frames(program.block(block).start)[0].line.unwrap()
}

fn records<'t>(text: &'t str, kinds: &[&str]) -> Vec<&'t str> {
    let mut found: Vec<&str> =
        text.lines().filter(|l| l.split_once(':').is_some_and(|(kind, _)| kinds.contains(&kind))).collect();
    found.sort_unstable();
    found
}

#[test]
fn lines_that_gcov_counted_become_blocks_and_come_back() {
    let (program, path) = program();
    let text = GENINFO.replace("SF:a.c", &format!("SF:{path}"));
    assert!(is_one(&text));
    let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
    assert_eq!((profile.exactness, lost), (Exactness::Inferred, vec![]));
    let (main, odd) = (function(&program, "main"), function(&program, "odd"));
    let entry = |f| program.function(f).entry;
    assert_eq!(profile.entries, [(entry(main), 1), (entry(odd), 10)].into());
    let lines = Lines::load(&program.image).unwrap();
    // By hand: of ten numbers five are odd. What shares a block with a line that gcov has no count of (the
    // braces) has none.
    for (line, want) in [(2, Some(10)), (4, Some(5)), (5, Some(5)), (6, None), (7, Some(1)), (11, Some(5))] {
        let mut blocks = program.func_ids().flat_map(|f| program.function(f).block_ids());
        let block = blocks
            .find(|&b| program.block(b).start.0 >= entry(odd).0 && line_of(&program, &lines, b) == line);
        let start = program.block(block.unwrap()).start;
        assert_eq!(profile.blocks.get(&start).copied(), want, "line {line}");
    }
    let written = write(&profile, &program).unwrap();
    let back = String::from_utf8(written.bytes).unwrap();
    assert_eq!(records(&back, &["DA"]), records(&text, &["DA"]));
    let functions = ["SF", "FN", "FNDA"];
    assert_eq!(records(&back, &functions), records(&text, &functions));
    // Found and hit, which geninfo leaves out and lcov adds.
    assert_eq!(records(&back, &["FNF", "FNH", "LF", "LH"]), ["FNF:2", "FNH:2", "LF:9", "LH:9"]);
    let (again, _) = parse(back.as_bytes(), &program).unwrap();
    assert_eq!(again, profile);
}

#[test]
fn what_never_ran_is_found_and_not_hit() {
    let (program, _) = program();
    let odd = program.function(function(&program, "odd"));
    let profile = Profile { blocks: [(odd.entry, 0)].into(), ..Profile::default() };
    let text = String::from_utf8(write(&profile, &program).unwrap().bytes).unwrap();
    assert_eq!(records(&text, &["FNF", "FNH", "LF", "LH"]), ["FNF:1", "FNH:0", "LF:2", "LH:0"]);
    assert_eq!(records(&text, &["FNDA", "DA"]), ["DA:2,0", "DA:3,0", "FNDA:0,odd"]);
}

#[test]
fn lines_that_are_no_records_are_refused() {
    let (program, _) = program();
    for (text, want) in [
        ("TN:\nSF:a.c\nDA:x,1\n", "line 3 is no lcov record: \"DA:x,1\""),
        ("TN:\nSF:a.c\nDA:1\n", "line 3 is no lcov record: \"DA:1\""),
        ("TN:\nFNDA:-1,main\n", "line 2 is no lcov record: \"FNDA:-1,main\""),
        ("TN:\nwhat\n", "line 2 is no lcov record: \"what\""),
    ] {
        assert_eq!(parse(text.as_bytes(), &program).unwrap_err().to_string(), want);
    }
    let bare = compile(SOURCE, "c", &["-O0"]);
    assert!(matches!(parse(GENINFO.as_bytes(), &bare), Err(ReadError::NoLines { .. })));
    assert!(write(&Profile::default(), &bare).is_none());
}

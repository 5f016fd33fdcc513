//! Files of each version that was ever written can be read, or are refused as what they are.
//!
//! `fixtures/v2-*.trace` are a run of `fixtures/calls.c` (gcc -O1 -fno-inline, so `down` calls itself), as it
//! was recorded and in each way to keep it; `v2.txt` is what `engraft query --at` said of it when they were
//! made. They are not to be made anew: who changes the format adds files of its version.

use super::*;
use crate::ids::FuncId;
use crate::search::automaton::Automaton;
use crate::search::{Scheme, Want};
use crate::symbol::{Step, Symbol};
use std::io::Write as _;

const GOLDEN: [(&str, &[u8]); 5] = [
    ("recorded", include_bytes!("../../fixtures/v2-recorded.trace")),
    ("packed", include_bytes!("../../fixtures/v2-packed.trace")),
    ("archive", include_bytes!("../../fixtures/v2-archive.trace")),
    ("zlib", include_bytes!("../../fixtures/v2-zlib.trace")),
    ("zstd", include_bytes!("../../fixtures/v2-zstd.trace")),
];

fn open(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it can be written");
    Trace::open(file)
}

/// Each symbol on a line of its own, as `engraft query --at` prints it.
fn listed(trace: &Trace) -> String {
    let names = trace.names().expect("they are there");
    let mut open: Vec<FuncId> = Vec::new();
    let mut text = String::new();
    let read = trace.read(|_, symbols| {
        for symbol in symbols.iter().map(|code| Symbol(*code)) {
            let of = match symbol.step() {
                Step::Enter(func) => {
                    open.push(func);
                    func
                }
                Step::Block(_) => open.last().copied().expect("a block is of a function"),
                Step::Exit => open.pop().expect("what is left was entered"),
            };
            let function = names.functions.get(&of).expect("it has a name");
            text += &match symbol.step() {
                Step::Enter(_) if symbol.is_from_outside() => format!("F(outside) {}\n", function.name),
                Step::Enter(_) => format!("F {}\n", function.name),
                Step::Block(n) => format!("B {} {} {:#x}\n", function.name, n.0, function.blocks[&n].at),
                Step::Exit => match symbol.cause() {
                    Some(Cause::Tail) => format!("E(tail) {}\n", function.name),
                    Some(Cause::ProcessEnd) => format!("E(process end) {}\n", function.name),
                    _ => format!("E {}\n", function.name),
                },
            };
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(read.expect("it can be read"), None);
    text
}

#[test]
fn golden_files_are_read_as_they_were_written() {
    for (form, bytes) in GOLDEN {
        let trace = open(bytes).expect(form);
        assert_eq!((trace.cut(), trace.n_behind()), (None, 0), "{form}");
        assert_eq!(listed(&trace), include_str!("../../fixtures/v2.txt"), "{form}");
    }
}

/// `down` goes through blocks 0 and 2 where it calls itself: for 3 and for 2.
#[test]
fn golden_files_are_searched_by_each_scheme() {
    for (form, bytes) in GOLDEN {
        let trace = open(bytes).expect(form);
        let names = trace.names().expect(form);
        let path = Path::parse("down: 0 2 1", &names).expect(form);
        let schemes: &[Scheme] = match form {
            "packed" | "archive" => {
                &[Scheme::Unpacked, Scheme::Grammar, Scheme::Chunks, Scheme::Segments, Scheme::Columns]
            }
            _ => &[Scheme::Unpacked, Scheme::Chunks],
        };
        for scheme in schemes {
            let automaton = Automaton::new(&path).expect("it is short");
            let (found, by) = trace.search(&automaton, Want::Count, Some(*scheme)).expect(form);
            assert_eq!((found.count, by), (2, *scheme), "{form}");
        }
    }
}

#[test]
fn files_of_other_versions_are_refused_by_number() {
    for version in (0..=u8::MAX).filter(|version| *version != 2) {
        let mut bytes = GOLDEN[0].1.to_vec();
        bytes[8] = version;
        let refused = open(&bytes).map(|_| ());
        assert!(matches!(refused, Err(ReadError::Version { got }) if got == version), "{version}");
    }
}

//! Perf maps: what JIT compilers say of the code that they make, `/tmp/perf-PID.map`.
//!
//! A line a function: address and length in hexadecimal, and its name, to the end of the line. Lines are
//! appended: where several are of one place, the last one says what is there now.
//!
//! Source: Linux, tools/perf/Documentation/jit-interface.txt; tools/perf/util/map.c (where it is looked for).

use live::RunningMemory;
use program::LiveVa;
use std::io::Read as _;
use std::ops::Range;

/// No map is longer.
const MOST: u64 = 1 << 30;
/// And no function.
const LONGEST: u64 = 64 << 20;

/// Code with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Where it is.
    pub range: Range<LiveVa>,
    /// What the compiler calls it.
    pub name: Box<str>,
}

/// The functions of the perf map of `process`, by address, without overlaps; none where there is no map that
/// the process, or root, can have written.
pub fn of(process: &RunningMemory) -> Vec<Named> {
    let path = format!("tmp/perf-{}.map", process.own_number());
    let Some(file) = process.own_file(path.as_ref()) else { return Vec::new() };
    let mut text = Vec::new();
    // What it is appending right now may be cut off.
    let _read = file.take(MOST).read_to_end(&mut text);
    parse(&text)
}

/// The same of process `pid`, which may have ended: then, of whoever has its number in this namespace.
pub fn of_number(pid: i32) -> Vec<Named> {
    if let Ok(process) = RunningMemory::of(pid) {
        return of(&process);
    }
    let Some(file) = live::own_file(format!("/tmp/perf-{pid}.map").as_ref()) else { return Vec::new() };
    let mut text = Vec::new();
    let _read = file.take(MOST).read_to_end(&mut text);
    parse(&text)
}

fn parse(text: &[u8]) -> Vec<Named> {
    let mut all: Vec<(usize, Named)> = text.split(|&b| b == b'\n').filter_map(line).enumerate().collect();
    // Of those that overlap, the last is there.
    all.sort_by_key(|(n, named)| (named.range.start, std::cmp::Reverse(*n)));
    let mut found: Vec<(usize, Named)> = Vec::with_capacity(all.len());
    for (n, named) in all {
        let mut is_there = true;
        while let Some((before, last)) = found.last() {
            if last.range.end <= named.range.start {
                break;
            }
            if *before > n {
                is_there = false;
                break;
            }
            found.pop();
        }
        if is_there {
            found.push((n, named));
        }
    }
    found.into_iter().map(|(_, named)| named).collect()
}

/// A line: `ADDRESS LENGTH NAME`.
fn line(line: &[u8]) -> Option<Named> {
    let mut words = line.splitn(3, |&b| b == b' ');
    let mut number = || {
        let digits = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
    };
    let (start, len) = (number()?, number()?);
    let name = String::from_utf8_lossy(words.next()?.trim_ascii());
    let end = start.checked_add(len).filter(|_| (1..=LONGEST).contains(&len) && !name.is_empty())?;
    Some(Named { range: LiveVa(start)..LiveVa(end), name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, end and name of each function.
    fn check(text: &str, want: &[(u64, u64, &str)]) {
        let got = parse(text.as_bytes());
        let got: Vec<(u64, u64, &str)> =
            got.iter().map(|f| (f.range.start.0, f.range.end.0, &*f.name)).collect();
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn functions_are_read_by_address_with_names_of_several_words() {
        check(
            "3000 10 LazyCompile:~b c.js:3\n0x1000 0x20 a\n",
            &[(0x1000, 0x1020, "a"), (0x3000, 0x3010, "LazyCompile:~b c.js:3")],
        );
        check("\n1000\n1000 10\nxyz 10 a\n1000 0 empty\nffffffffffffffff 10 over the end\n1000 1", &[]);
    }

    #[test]
    fn of_code_that_was_made_twice_the_last_is_there() {
        check("1000 10 old\n1000 20 new\n", &[(0x1000, 0x1020, "new")]);
        check("1000 40 old\n1010 10 new\n", &[(0x1010, 0x1020, "new")]);
        check("1010 10 old\n1000 40 new\n", &[(0x1000, 0x1040, "new")]);
        check("1000 10 a\n1010 10 b\n1008 10 over both\n", &[(0x1008, 0x1018, "over both")]);
    }
}

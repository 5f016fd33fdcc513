//! What `perf script` prints of branches, line by line and in order: branch stacks, and what a processor
//! trace is decoded to.
//!
//! ```text
//! perf script -F comm,pid,tid,time,ip,brstack --show-mmap-events         of `perf record -b`; the last
//!                                                                        branch first
//!   a.out    77/78  7084.301:   56250dc1e13d  0x56250dc1e13d/0x56250dc1e150/P/-/-/1  0x…/0x…/M/-/-/4
//! perf script --itrace=be -F+pid --show-mmap-events                      of Intel PT
//!   a.out    77/78  [001]  7084.301999:   1  branches:uH:   call   56250dc1e13d main+0x3 (/bin/a.out) =>
//!            56250dc1e150 f+0x0 (/bin/a.out)
//!   a.out    77/78  [001]  7084.302001:   1  branches:uH:   tr end  syscall   7f2a01 write+0x14
//!            (/lib/libc.so.6) =>   0 [unknown] ([unknown])
//!  instruction trace error type 1 time 7084.302 cpu 1 pid 77 tid 78 ip 0x56250dc1e13d code 7: Overflow
//!      packet
//! ```
//! Address 0 is what was not traced. Of the fields before the addresses, what is not there is not known;
//! `perf script` has the process and the thread as `PID/TID`, or the thread alone.
//!
//! Source: perf-script(1), `-F brstack` and `flags`; perf-intel-pt(1); perf 6.1,
//! `tools/perf/builtin-script.c` and `tools/perf/util/auxtrace.c` (errors).

use crate::formats::perf::perf_script::{Mapped, mapping};
use crate::formats::perf::samples::image_address;
use program::{Bias, FileOff, LiveVa, Program};

/// A line that says something of branches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A file was mapped into a process, to be executed.
    Mapped(Mapped<'a>),
    /// A sample with the branches before it, the earliest first; and where it was taken.
    Stack {
        /// Who ran.
        who: ThreadTime,
        /// From, to.
        branches: Vec<(u64, u64)>,
        /// Where control was then.
        ip: Option<u64>,
    },
    /// A branch; those of a thread follow each other.
    Branch {
        /// Who ran.
        who: ThreadTime,
        /// Where it left; `None`: not traced.
        from: Option<BranchAddress<'a>>,
        /// Where it went.
        to: Option<BranchAddress<'a>>,
        /// Whether it is of the processor's or the kernel's making, not of the instruction there.
        is_interrupt: bool,
    },
    /// What a thread did until its next branch is not known.
    Lost {
        /// Who ran.
        who: ThreadTime,
    },
    /// It has the form of a branch or a stack, but no valid time, or an address where no code can be.
    Senseless {
        /// Who ran, as far as that is said.
        who: ThreadTime,
    },
}

/// Who ran, and when.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ThreadTime {
    /// The process, if that is said.
    pub pid: Option<i32>,
    /// The thread, if that is said.
    pub tid: Option<i32>,
    /// Time by the recording's clock.
    pub time_ns: Option<u64>,
}

/// An address, with what the line says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchAddress<'a> {
    /// The address in the process.
    pub at: u64,
    /// The symbol there, and the distance from it.
    pub symbol: Option<(&'a str, u64)>,
    /// The file.
    pub file: Option<&'a str>,
}

/// Whether a text starts with such lines.
pub fn is_one(text: &str) -> bool {
    // Of other records there may be many first.
    let lines = text.lines().take(2000);
    lines.into_iter().any(|text| !matches!(line(text), None | Some(Line::Mapped(_) | Line::Lost { .. })))
}

/// What a line says; `None`: nothing of branches.
pub fn line(text: &str) -> Option<Line<'_>> {
    if text.contains("PERF_RECORD_") {
        return mapping(text).map(Line::Mapped);
    }
    if let Some((_, rest)) = text.split_once("instruction trace error") {
        return Some(Line::Lost { who: of_error(rest) });
    }
    if let Some((before, to)) = text.split_once(" => ") {
        let (who, rest) = who(before);
        // Behind the name of the event and the flags.
        let at = rest.split_whitespace().find(|word| address(word).is_some())?;
        let (flags, from) = rest.split_at_checked(at.as_ptr() as usize - rest.as_ptr() as usize)?;
        let is_interrupt =
            ["async", "int", "syscall"].iter().any(|flag| flags.split_whitespace().any(|w| w == *flag));
        let (from, to) = (branch_address(from)?, branch_address(to)?);
        let is_code = [from, to].into_iter().flatten().all(|address| may_be_code(address.at));
        if !is_code || who.time_ns.is_none() && has_bad_time(before) {
            return Some(Line::Senseless { who });
        }
        return Some(Line::Branch { who, from, to, is_interrupt });
    }
    let mut branches: Vec<(u64, u64)> = text.split_whitespace().filter_map(branch).collect();
    if branches.is_empty() {
        return None;
    }
    branches.reverse();
    let (who, rest) = who(text);
    let is_code = branches.iter().all(|(from, to)| may_be_code(*from) && may_be_code(*to));
    if !is_code || who.time_ns.is_none() && has_bad_time(text) {
        return Some(Line::Senseless { who });
    }
    let ip = rest.split_whitespace().take_while(|word| branch(word).is_none()).find_map(|word| {
        (word.len() >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit())).then(|| address(word)).flatten()
    });
    Some(Line::Stack { who, branches, ip })
}

/// The bias of `program` as mapped; `None` if the mapping holds none of its code.
pub fn bias(program: &Program, mapped: &Mapped<'_>) -> Option<Bias> {
    let live = &mapped.live;
    let (at, into) = image_address(program, FileOff(mapped.offset), live.end.wrapping_sub(live.start))?;
    Some(Bias::between(at, LiveVa(live.start.wrapping_add(into))))
}

/// Whether code may be at an address: of a program's half of the addresses or the kernel's, of 57 bits at
/// most, and not where errors are numbers.
fn may_be_code(at: u64) -> bool {
    at < 1 << 56 || (0xff << 56..u64::MAX - 0xfff).contains(&at)
}

/// Whether a number stands where the time should, but is not one.
fn has_bad_time(text: &str) -> bool {
    let number = |word: &str| word.strip_suffix(':').is_some_and(|n| n.parse::<f64>().is_ok());
    text.split_whitespace().any(number)
}

/// `0xFROM/0xTO/P/-/-/3`; behind an address, its file may stand in brackets.
fn branch(word: &str) -> Option<(u64, u64)> {
    let mut parts = word.strip_prefix("0x")?.splitn(2, "/0x");
    let number = |text: &str| {
        let digits = text.split('(').next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (from, rest) = (parts.next()?, parts.next()?);
    let (to, _flags) = match rest.split_once(")/") {
        Some(parts) if rest.contains('(') => parts,
        _ => rest.split_once('/')?,
    };
    Some((number(from)?, number(to)?))
}

fn address(word: &str) -> Option<u64> {
    let is_one = word == "0" || word.len() >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit());
    is_one.then(|| u64::from_str_radix(word, 16).ok()).flatten()
}

/// `ADDRESS SYMBOL+0xOFFSET (FILE)`; the outer `None`: it is no address.
#[expect(clippy::option_option, reason = "an address that is not traced is one")]
fn branch_address(text: &str) -> Option<Option<BranchAddress<'_>>> {
    let text = text.trim();
    let (at, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let at = address(at)?;
    if at == 0 {
        return Some(None);
    }
    // Behind the file, instructions or lines may stand.
    let (symbol, file) = match rest.rfind(" (").or_else(|| rest.starts_with('(').then_some(0)) {
        Some(open) => {
            let file = rest.get(open..).unwrap_or_default().trim_start().trim_start_matches('(');
            (rest.get(..open).unwrap_or_default().trim(), file.split_once(')').map(|(file, _)| file))
        }
        None => (rest.trim(), None),
    };
    let symbol = symbol
        .rsplit_once("+0x")
        .and_then(|(name, offset)| Some((name, u64::from_str_radix(offset, 16).ok()?)));
    Some(Some(BranchAddress { at, symbol, file: file.filter(|file| *file != "[unknown]") }))
}

/// Who ran; and what stands behind that.
fn who(text: &str) -> (ThreadTime, &str) {
    let offset = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_event = |word: &str| word.starts_with("branches") && word.ends_with(':');
    let time_ns = |word: &str| {
        let (seconds, part) = word.strip_suffix(':')?.split_once('.')?;
        let nanos: u64 = format!("{part:0<9}").get(..9)?.parse().ok()?;
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
    };
    let time = words.iter().position(|word| time_ns(word).is_some());
    let numbers = |word: &str| match word.split_once('/') {
        Some((pid, tid)) => Some((Some(pid.parse().ok()?), tid.parse().ok()?)),
        None => Some((None, word.parse::<i32>().ok()?)),
    };
    // Before the time and the processor; else in front, where a name that is no number may come first.
    let of = match time {
        Some(time) => words.get(..time).unwrap_or_default().iter().rev().find(|word| !word.starts_with('[')),
        None => words.iter().take(2).find(|word| numbers(word).is_some() && word.len() < 16),
    };
    let (pid, tid) = of.and_then(|word| numbers(word)).map_or((None, None), |(pid, tid)| (pid, Some(tid)));
    let event =
        words.iter().position(|word| is_event(word)).filter(|event| time.is_none_or(|time| time < *event));
    let last = event.or(time).and_then(|n| words.get(n)).or(of.filter(|_| tid.is_some()));
    let rest = last.and_then(|word| text.get(offset(word) + word.len()..)).unwrap_or(text);
    let time_ns = time.and_then(|n| time_ns(words.get(n)?));
    (ThreadTime { pid, tid, time_ns }, rest)
}

/// `… time 7084.302 cpu 1 pid 77 tid 78 …`
fn of_error(text: &str) -> ThreadTime {
    let behind = |name: &str| text.split_whitespace().skip_while(|word| *word != name).nth(1);
    let number = |name: &str| behind(name).and_then(|n| n.parse().ok());
    ThreadTime { pid: number("pid"), tid: number("tid"), time_ns: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_stacks_are_read_with_who_ran() {
        let check = |text: &str, pid, tid, time_ns, at: Option<u64>| {
            let who = ThreadTime { pid, tid, time_ns };
            let branches = vec![(0x40_1000, 0x40_1010), (0x40_1013, 0x40_1136)];
            assert_eq!(line(text), Some(Line::Stack { who, branches, ip: at }), "{text}");
        };
        let stack = "0x401013/0x401136/P/-/-/1  0x401000/0x401010/M/-/-/4";
        check(
            &format!("  a.out 77/78  7084.301: 401140 {stack}"),
            Some(77),
            Some(78),
            Some(7_084_301_000_000),
            Some(0x40_1140),
        );
        check(
            &format!("a b 3    77 [001] 7084.301000002:  250 cycles:u:  401140 main (/x/a) {stack}"),
            None,
            Some(77),
            Some(7_084_301_000_002),
            Some(0x40_1140),
        );
        check(&format!("  77   401140  {stack}"), None, Some(77), None, Some(0x40_1140));
        check(&format!("  {stack}"), None, None, None, None);
        check(
            "  78 0x401013(/x/a)/0x401136(/x/a)/P/-/-/1 0x401000(/x/a)/0x401010(/x/a)/P/-/-/0",
            None,
            Some(78),
            None,
            None,
        );
    }

    #[test]
    fn branches_of_a_processor_trace_are_read_with_their_files() {
        let at = |at, name, offset| {
            Some(BranchAddress { at, symbol: Some((name, offset)), file: Some("/bin/a.out") })
        };
        let who = ThreadTime { pid: None, tid: Some(3404), time_ns: Some(7_919_408_803_461) };
        let head = "    uname  3404 [002]  7919.408803461:          1  branches:uH:  ";
        let line = |text: &str| match line(text) {
            Some(Line::Branch { who: of, from, to, is_interrupt }) => {
                assert_eq!(of, who, "{text}");
                assert_eq!(is_interrupt, text.contains("hw int"), "{text}");
                (from.map(|p| format!("{p:?}")), to.map(|p| format!("{p:?}")))
            }
            other => panic!("{text}: {other:?}"),
        };
        let shown = |address: Option<BranchAddress<'_>>| address.map(|p| format!("{p:?}"));
        assert_eq!(
            line(&format!(
                "{head} call   5625001013 main+0x3 (/bin/a.out) =>   5625001136 f(int, char)+0x0 (/bin/a.out)"
            )),
            (shown(at(0x56_2500_1013, "main", 3)), shown(at(0x56_2500_1136, "f(int, char)", 0)))
        );
        assert_eq!(
            line(&format!("{head} tr strt   0 [unknown] ([unknown]) =>   5625001136 f+0x0 (/bin/a.out)")),
            (None, shown(at(0x56_2500_1136, "f", 0)))
        );
        assert_eq!(
            line(&format!(
                "{head} tr end  hw int   5625001013 abad+0x3 (/bin/a.out) =>   0 [unknown] ([unknown])"
            )),
            (shown(at(0x56_2500_1013, "abad", 3)), None)
        );
        let unknown = Some(BranchAddress { at: 0x7f00, symbol: None, file: None });
        assert_eq!(
            line(&format!("{head} jmp   7f00 [unknown] ([unknown]) =>   0 [unknown] ([unknown])")),
            (shown(unknown), None)
        );
    }

    #[test]
    fn what_cannot_be_is_no_branch() {
        let stack =
            |time: &str, to: &str| format!("  a 7/7 {time} 0x401013/{to}/P/-/-/1 0x401000/0x401010/M/-/-/4");
        let branch = |time: &str, to: &str| {
            let from = "a 7/7 [001]";
            format!("{from} {time} 1 branches:uH: call 401013 f+0x3 (/x/a) => {to} g+0x0 (/x/a)")
        };
        for (time, to, is_one) in [
            ("1.5:", "0x401136", true),
            ("1.5:", "0xffffffff81000000", true),
            ("", "0x401136", true),
            ("1.5:", "0xffffffffffffffff", false),
            ("1.5:", "0x8000000000401136", false),
            ("-1e99:", "0x401136", false),
            ("1e300:", "0x401136", false),
        ] {
            let lines = [stack(time, to), branch(time, to.trim_start_matches("0x"))];
            for text in lines {
                let is_senseless = matches!(line(&text), Some(Line::Senseless { who }) if who.tid == Some(7) || time != "1.5:");
                assert_eq!(is_senseless, !is_one, "{text}: {:?}", line(&text));
            }
        }
    }

    #[test]
    fn errors_and_mappings_are_read_and_the_rest_is_nothing() {
        let error = " instruction trace error type 1 time 7084.302000000 cpu 1 pid 77 tid 78 ip 0x56250dc1e13d code 7: Overflow packet";
        let who = ThreadTime { pid: Some(77), tid: Some(78), time_ns: None };
        assert_eq!(line(error), Some(Line::Lost { who }));
        let mapped = "PERF_RECORD_MMAP2 7/7: [0x401000(0x1000) @ 0x1000 fe:00 53 28]: r-xp /x/a";
        assert!(matches!(line(mapped), Some(Line::Mapped(m)) if m.path == "/x/a" && m.pid == 7));
        for other in [
            "",
            "# a comment",
            "PERF_RECORD_COMM: a:7/7",
            "  a 7 1.5: 1000 cycles:u: 401136 f (/x/a)",
            "a => b",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
        assert!(
            !is_one(mapped) && !is_one(error) && is_one(&format!("{mapped}\n 7 0x401013/0x401136/P/-/-/1\n"))
        );
    }
}

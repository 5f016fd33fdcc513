//! `perf script` text, with and without branch stacks.
//!
//! ```text
//! perf script -F pid,ip,brstack --show-mmap-events
//! PERF_RECORD_MMAP2 77/77: [0x5625…000(0x2b000) @ 0x7000 fe:00 53 28]: r-xp /bin/a.out
//! PERF_RECORD_MMAP2 77/77: [0x5625…000(0x2b000) @ 0x7000 <hex build-id>]: r-xp /bin/a.out
//!     77     56250dc1e13d  0x56250dc1e13d/0x56250dc1e150/P/-/-/1  0x…/0x…/M/-/-/4
//!     lua 77  7084.3:     250000 cpu-clock:  56250dc1e13d f+0x1 (/bin/a.out)
//! ```
//! Branches are FROM/TO/M (mispredicted) or P/…, the last one first. The mapping events say where the program
//! lay; without them only a program at fixed addresses can be placed. A sample without its process belongs to
//! the one process of the file.
//!
//! With call chains (`record -g`) the frames stand below the line of the sample, each behind a tab, the first
//! being where it was taken:
//! ```text
//! lua 77  7084.3:     250000 cpu-clock:
//! \t            114f f+0x16 (/bin/a.out)
//! \t           2724a __libc_start_call_main+0x7a (/usr/lib/libc.so.6)
//! ```
//! perf prints offsets in files there, where older versions print addresses in the process.
//!
//! Source: perf-script(1), `-F`, `--show-mmap-events`; perf 6.1 `tools/perf/util/event.c` for the mapping
//! lines, `tools/perf/util/evsel_fprintf.c` (`sample__fprintf_callchain`) for frames.

use crate::counts::{Lost, Profile};
use crate::formats::perf::samples::{Branch, Samples};
use crate::vocabulary::{Format, ReadError};
use program::{LiveVa, Program};

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines.by_ref().take(50).any(|l| {
        l.contains("PERF_RECORD_MMAP")
            || branches(l).next().is_some()
            || l.starts_with(' ') && l.ends_with(')') && ip(l).is_some()
            || l.ends_with(')') && frame(l).is_some()
    })
}

/// The branches on a line.
fn branches(line: &str) -> impl Iterator<Item = Branch> {
    line.split_whitespace().filter_map(|field| {
        let mut parts = field.split('/');
        let (from, to, missed) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next()?;
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(LiveVa);
        Some((address(from)?, address(to)?, missed == "M"))
    })
}

/// The address of a sample: the first number of at least four hexadecimal digits behind the event's name, or
/// of the line.
///
/// What stands behind it may look like one: a symbol called `deadbeef`.
fn ip(line: &str) -> Option<LiveVa> {
    let event = line.rsplit_once(": ");
    let rest = event.map_or(line, |(_, rest)| rest);
    let address = |field: &str| {
        let plain = field.len() >= 4 && field.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(field, 16).ok()).flatten()
    };
    let fields = || rest.split_whitespace().take_while(|f| !f.starts_with('('));
    let mut found = fields().take(3).filter_map(|f| Some((f, address(f)?)));
    let (first, at) = found.next()?;
    // Without an event, a process id may come before it: a narrower column, and the kernel has no larger
    // numbers.
    let column = line.find(first).unwrap_or(0) + first.len();
    let is_pid = event.is_none() && column < 16 && first.parse::<u32>().is_ok_and(|pid| pid <= 1 << 22);
    let second = found.next().filter(|_| is_pid).map(|(_, at)| at);
    let at = match second {
        Some(second) if fields().count() > 2 => second,
        Some(second) => at.max(second),
        None => at,
    };
    Some(LiveVa(at))
}

/// A frame of a call chain: `\tNUMBER SYMBOL (FILE)`, the last two of which may be missing. The file is one
/// with a path.
fn frame(line: &str) -> Option<(u64, Option<&str>)> {
    let rest = line.strip_prefix('\t')?.trim();
    let (number, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let file = rest.trim_end_matches(')').rsplit_once('(').map(|(_, file)| file);
    Some((u64::from_str_radix(number, 16).ok()?, file.filter(|file| file.starts_with('/'))))
}

/// Whether frames of call chains are offsets in their files: some are nothing else.
fn has_offsets(text: &str, samples: &Samples<'_>) -> bool {
    let is_offset = |(at, file): (u64, Option<&str>)| {
        file.is_some() && at <= u64::from(u32::MAX) && !samples.is_mapped(LiveVa(at))
    };
    text.lines().filter_map(frame).any(is_offset)
}

/// The process of a line: `COMM PID` or `COMM PID/TID` before a time, or the first number.
fn pid(line: &str) -> Option<i32> {
    let number = |field: &str| field.split('/').next()?.parse::<i32>().ok();
    line.split_whitespace().take(3).find_map(number)
}

/// A file mapped into a process, as a line says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped<'a> {
    /// The process.
    pub pid: i32,
    /// The addresses in the process.
    pub live: std::ops::Range<u64>,
    /// The offset in the file.
    pub offset: u64,
    /// The file's build-id, if the line has one.
    pub build_id: Option<Vec<u8>>,
    /// The file.
    pub path: &'a str,
}

/// `… PERF_RECORD_MMAP2 PID/TID: [0xSTART(0xLEN) @ OFFSET …]: r-xp PATH`.
pub(crate) fn mapping(line: &str) -> Option<Mapped<'_>> {
    let (_, rest) = line.split_once("PERF_RECORD_MMAP")?;
    let (head, rest) = rest.split_once('[')?;
    let (inner, tail) = rest.split_once("]:")?;
    let pid = head.trim_start_matches('2').trim().split('/').next()?.trim().parse().ok()?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (range, file) = inner.split_once(" @ ")?;
    let (start, len) = range.trim_end_matches(')').split_once('(')?;
    let start = number(start)?;
    let mut file = file.split_whitespace();
    let offset = number(file.next()?)?;
    let id = file.next().and_then(|id| id.strip_prefix('<')?.strip_suffix('>'));
    let id = id.and_then(|id| {
        (0..id.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(id.get(i..i + 2)?, 16).ok())
            .collect::<Option<Vec<u8>>>()
    });
    let (protection, path) = tail.trim_start().split_once(' ')?;
    let live = start..start.checked_add(number(len)?)?;
    protection.contains('x').then_some(Mapped { pid, live, offset, build_id: id, path: path.trim() })
}

/// Reads samples of `program`.
///
/// # Errors
/// [`ReadError::NoMappings`] if it has none, [`ReadError::NotInIt`] if no mapping of the program is in it,
/// and it does not lie at fixed addresses.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let text = String::from_utf8_lossy(bytes);
    let mut samples = Samples::of(program);
    let mut one = None;
    let mut several = false;
    for m in text.lines().filter_map(mapping) {
        let id = m.build_id.as_deref();
        if samples.is_ours(m.path, id) {
            several |= one.is_some_and(|p| p != m.pid);
            one = Some(m.pid);
        }
        samples.map(m.pid, m.live, m.offset, m.path, id);
    }
    let has_none = one.is_none();
    if has_none && !program.image.kind.is_relocated() {
        for s in program.image.segments.iter().filter(|s| s.executable) {
            let live = s.range.start.0..s.range.end.0;
            samples.map(0, live, s.offset.0, &program.image.name, program.image.build_id.as_deref());
        }
        one = Some(0);
    }
    let are_offsets = has_offsets(&text, &samples);
    if has_none
        && program.image.kind.is_relocated()
        && !are_offsets
        && !text.lines().any(|l| l.contains("PERF_RECORD_MMAP"))
    {
        return Err(ReadError::NoMappings { format: Format::PerfScript });
    }
    let mut last = one;
    let mut unnamed = 0;
    let is_said = |l: &&str| !l.contains("PERF_RECORD_") && !l.starts_with('#');
    let mut lines = text.lines().filter(is_said).peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        // Without any other field, a chain has no line of its own above it.
        let own = frame(line);
        let process = if several && own.is_none() { pid(line).or(last) } else { last };
        last = process;
        let first = own.or_else(|| lines.peek().and_then(|next| frame(next)));
        while lines.next_if(|next| next.starts_with('\t')).is_some() {}
        match (first, process) {
            (Some((at, Some(file))), _) if are_offsets => samples.point_in_file(file, at),
            (Some((at, None)), Some(_)) if are_offsets || !samples.is_mapped(LiveVa(at)) => {
                // Of the kernel, nothing is asked.
                unnamed += u64::from(at <= u64::from(u32::MAX));
            }
            (Some((at, _)), Some(process)) => samples.point(process, LiveVa(at)),
            (None, Some(process)) => {
                let taken: Vec<Branch> = branches(line).collect();
                if !taken.is_empty() {
                    samples.branches(process, &taken);
                } else if let Some(at) = ip(line) {
                    samples.point(process, at);
                }
            }
            (_, None) => {}
        }
    }
    if unnamed > 0 {
        samples.lose(Lost {
            what: format!("{unnamed} samples with call chains"),
            why: "their addresses are offsets in files that are not named: print them, too (`-F +dso`)"
                .to_owned(),
            count: unnamed,
        });
    }
    samples.finish(Format::PerfScript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Edge;
    use crate::testing::{PERF2BOLT, as_fdata, assemble, branching, function};
    use program::Va;

    /// f: 0 test, 2 je →9, 4 call g, 9 ret; g: 0 jmp f.
    fn program() -> Program {
        assemble(
            ".globl f\n.type f,@function\nf: test %edi,%edi\nje 1f\ncall g\n1: ret\n.size f,.-f\n\
             .type g,@function\ng: jmp f\n.size g,.-g\n",
        )
    }

    #[test]
    fn a_symbol_that_looks_like_an_address_is_none() {
        let check = |line: &str, want: Option<u64>| assert_eq!(ip(line), want.map(LiveVa), "{line}");
        check("a 7/7 1.5: 1000 cycles:u:           401136 deadbeef (/x/a)", Some(0x40_1136));
        check("          401136 deadbeef (/x/a)", Some(0x40_1136));
        check("    7f00401136 main+0x5 (/x/a)", Some(0x7f_0040_1136));
        check(" 12345 401136 deadbeef (/x/a)", Some(0x40_1136));
        check("a 12345     55d4401136 feedfacecafe+0x1 (/x/a)", Some(0x55_d440_1136));
        check(" 12 main (/x/a)", None);
    }

    /// Mapping events for the program, moved by `bias`, and another file of process 7.
    fn mapped(program: &Program, bias: u64) -> String {
        let s = program.image.segments.iter().find(|s| s.executable).unwrap();
        let (start, len) = (s.range.start.0 + bias, s.range.end.since(s.range.start));
        format!(
            "PERF_RECORD_MMAP2 7/7: [{start:#x}({len:#x}) @ {:#x} fe:00 53 28]: r-xp /x/output\n\
             PERF_RECORD_MMAP2 7/7: [0x7f0000000000(0x1000) @ 0 fe:00 54 0]: r-xp /lib/libc.so.6\n",
            s.offset.0
        )
    }

    #[test]
    fn branch_stacks_become_edges_and_calls() {
        let program = program();
        let f = program.function(function(&program, "f")).entry.0;
        let g = program.function(function(&program, "g")).entry.0;
        let bias = 0x5600_0000_0000u64;
        let b = |from: u64, to: u64, p: &str| format!("{:#x}/{:#x}/{p}/-/-/3", from + bias, to + bias);
        // From libc into f, not taken to the call, g, back to f, taken to the return; the last one first.
        let line = format!(
            "  a.out 7 1.5: cycles:u: {:x} {} {} {} 0x7f0000000010/{:#x}/P/-/-/1\n",
            f + 9 + bias,
            b(f + 2, f + 9, "M"),
            b(g, f, "P"),
            b(f + 4, g, "P"),
            f + bias,
        );
        let text = mapped(&program, bias) + &line + &line;
        assert!(is_one(&text));
        let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
        assert_eq!(lost, []);
        let edge = |a, b| Edge { from: Va(f + a), to: Va(f + b) };
        assert_eq!(profile.edges, [(edge(0, 4), 2), (edge(0, 9), 2)].into());
        assert_eq!(profile.mispredicts, [(edge(0, 9), 2)].into());
        assert_eq!(profile.calls, [((Va(f + 4), Va(g)), 2), ((Va(g), Va(f)), 2)].into());
        assert_eq!(profile.entries, [(Va(f), 4), (Va(g), 2)].into());
    }

    #[test]
    fn branch_stacks_mean_to_us_what_their_sums_mean_to_perf2bolt() {
        let program = branching();
        // As perf-script(1) has it: FROM/TO/mispredicted/in a transaction/aborted/cycles, the last branch
        // first.
        let line = "  7  401009  0x401009/0x401011/P/-/-/1  0x401002/0x401009/M/-/-/2  0x40100a/0x401000/P/-/-/1  \
                    0x401004/0x40100a/P/-/-/1  0x7f0000000010/0x401000/P/-/-/1\n";
        let (profile, lost) = parse(format!("{line}{line}").as_bytes(), &program).unwrap();
        assert_eq!((as_fdata(&profile, &program), lost), (PERF2BOLT.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn of_a_call_chain_the_innermost_frame_counts() {
        let program = program();
        let bias = 0x5600_0000_0000u64;
        let f = program.function(function(&program, "f")).entry.0;
        let g = program.function(function(&program, "g")).entry.0;
        let sample = format!(
            "a.out 7 1.5: 250000 cpu-clock:u: \n\t{:16x} f+0x0 (/x/output)\n\t{:16x} g+0x0 (/x/output)\n\n",
            f + bias,
            g + bias
        );
        let text = mapped(&program, bias) + &sample + &sample;
        let (profile, _) = parse(text.as_bytes(), &program).unwrap();
        assert_eq!(profile.blocks, [(Va(f), 2)].into());
    }

    /// As perf 6.1 prints them.
    #[test]
    fn frames_that_are_offsets_in_their_files_count() {
        let program = program();
        let segment = program.image.segments.iter().find(|s| s.executable).unwrap();
        let f = program.function(function(&program, "f")).entry;
        let offset = f.since(segment.range.start) + segment.offset.0;
        let bias = 0x5600_0000_0000u64;
        let sample = |frame: &str| {
            format!("a.out 7 1.5: 250000 cpu-clock: \n\t{frame}\n\t2724a main+0x7a (/lib/libc.so.6)\n\n")
        };
        let own = sample(&format!("{offset:16x} f+0x0 (/x/output)"));
        let others =
            sample("           114f g (/lib/libc.so.6)") + &sample("ffffffff8158c221 x ([kernel.kallsyms])");
        for text in [mapped(&program, bias) + &own + &others + &own, own.clone() + &others + &own] {
            assert!(is_one(&text));
            let (profile, lost) = parse(text.as_bytes(), &program).unwrap();
            assert_eq!((profile.blocks, lost), ([(f, 2)].into(), vec![]));
        }
        // Nothing but frames, each chain behind an empty line.
        let bare = format!("\n\t{offset:16x} f (/x/output)\n\t           2724a main (/lib/libc.so.6)\n");
        let (profile, _) = parse((bare.clone() + &bare + &bare).as_bytes(), &program).unwrap();
        assert_eq!(profile.blocks, [(f, 3)].into());
        // Without files, nobody knows in which one.
        let short = format!("    7 \n\t{offset:16x} f\n\t           2724a main\n\n");
        let (profile, lost) = parse((mapped(&program, bias) + &short + &short).as_bytes(), &program).unwrap();
        assert_eq!((profile.blocks.len(), lost.len(), lost[0].count), (0, 1, 2));
        assert!(lost[0].why.contains("-F +dso"), "{}", lost[0].why);
    }

    #[test]
    fn samples_without_branches_count_blocks_of_the_program_alone() {
        let program = program();
        let f = program.function(function(&program, "f")).entry.0;
        let bias = 0x5600_0000_0000u64;
        let line =
            |at: u64| format!("     a.out     7  84.35:     250000 cpu-clock:  {at:x} f+0x1 (/x/output)\n");
        let text = mapped(&program, bias) + &line(f + bias) + &line(f + 4 + bias) + &line(0x7f00_0000_0000);
        let (profile, _) = parse(text.as_bytes(), &program).unwrap();
        assert_eq!(profile.blocks, [(Va(f), 1), (Va(f + 4), 1)].into());
        let short = mapped(&program, bias) + &format!("    {:x} f (/x/output)\n", f + 2 + bias);
        assert_eq!(parse(short.as_bytes(), &program).unwrap().0.blocks, [(Va(f), 1)].into());
    }

    #[test]
    fn a_text_of_other_programs_is_refused_with_their_names() {
        let program = program();
        let text = "PERF_RECORD_MMAP2 7/7: [0x1000(0x1000) @ 0 fe:00 54 0]: r-xp /bin/other\n";
        let got = parse(text.as_bytes(), &program).unwrap_err().to_string();
        assert!(got.ends_with("output: it is of /bin/other"), "{got}");
    }
}

//! What packing and searching cost, in CPU time of this process: `rows TRACE.trc TRACE.paths FOLDER`; without
//! FOLDER, what it costs to search the trace in memory.
#![expect(clippy::print_stdout, reason = "it is run by hand and by checks/query.sh")]

use std::fs::File;
use std::io::BufWriter;
use trace::chunks::Codec;
use trace::ids::{BlockId, FuncId};
use trace::plain::{self, PlainError};
use trace::scan::Scan;
use trace::{Automaton, Names, Path, Scheme, Stores, Trace, Want, import};

/// Seconds of CPU time of this thread so far: `schedstat` is brought up to date when the thread gives way.
fn cpu() -> f64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    ns / 1e9
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = cpu();
    let done = work();
    (done, cpu() - start)
}

/// What two things take, in turn, the medians of five times.
fn pairs<E>(
    mut first: impl FnMut() -> Result<f64, E>,
    mut second: impl FnMut() -> Result<f64, E>,
) -> Result<(f64, f64), E> {
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        of_first.push(first()?);
        of_second.push(second()?);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok((median(of_first), median(of_second)))
}

/// The largest resident set so far, in MB.
fn peak_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// A path, how often it occurs, and where first.
struct Asked {
    automaton: Automaton,
    count: u64,
    first: u64,
    line: String,
}

fn asked(paths: &str) -> Result<Vec<Asked>, Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for line in std::fs::read_to_string(paths)?.lines() {
        let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        let [_, func, a, b, c, count, first] = numbers[..] else { continue };
        let blocks: Vec<BlockId> =
            [a, b, c].into_iter().map(|b| BlockId(u32::try_from(b).unwrap_or(0))).collect();
        let automaton = Automaton::new(&Path::of(FuncId(u32::try_from(func)?), &blocks))?;
        all.push(Asked { automaton, count, first, line: line.to_owned() });
    }
    Ok(all)
}

/// Searches the symbols of a plain trace in memory, all occurrences, the median of five times.
fn scan(trc: &str, paths: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut symbols = Vec::new();
    plain::read(File::open(trc)?, |piece| {
        symbols.extend_from_slice(piece);
        Ok::<_, PlainError>(())
    })?;
    for Asked { automaton, count, first, line } in asked(paths)? {
        let mut times = Vec::new();
        for _ in 0..5 {
            let (mut n, mut at) = (0, None);
            let (_, s) = timed(|| {
                Scan::new(&automaton).feed(&symbols, |index| {
                    n += 1;
                    at = at.or(Some(index));
                    true
                })
            });
            assert_eq!((n, at), (count, Some(first)), "{line}");
            times.push(s);
        }
        times.sort_by(f64::total_cmp);
        let gb = symbols.len() as f64 * 4e-9;
        println!("{line}: scan in memory {:.1} GB/s, {:.1} ms", gb / times[2], times[2] * 1e3);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let (trc, paths, folder) = match args.as_slice() {
        [_, trc, paths] => return scan(trc, paths),
        [_, trc, paths, folder] => (trc, paths, folder),
        _ => return Err("rows TRACE.trc TRACE.paths [FOLDER]".into()),
    };
    let stem = std::path::Path::new(trc).file_stem().ok_or("a file")?.to_string_lossy().into_owned();
    let mb = std::fs::metadata(trc)?.len() as f64 / 1e6;
    let chunks = Stores { grammar: None, chunks: Some(Codec::Zlib) };
    let stores = [("packed", Stores::PACKED), ("archive", Stores::ARCHIVE), ("zlib", chunks)];
    for (name, stores) in stores {
        let file = format!("{folder}/{stem}.{name}");
        if std::path::Path::new(&file).exists() {
            println!("{stem} {name}: {} bytes, as it was", std::fs::metadata(&file)?.len());
            continue;
        }
        let to = BufWriter::new(File::create(&file)?);
        let from = File::open(trc)?;
        let (imported, s) = timed(|| import::import(from, to, &Names::default(), stores));
        let imported = imported?;
        println!(
            "{stem} {name}: {} bytes, {s:.2} s, {:.1} MB/s, peak {:.0} MB",
            imported.n_bytes,
            mb / s,
            peak_mb()
        );
    }
    let open = |name: &str| {
        Ok::<_, Box<dyn std::error::Error>>(Trace::open(File::open(format!("{folder}/{stem}.{name}"))?)?)
    };
    for Asked { automaton, count, first, line } in asked(paths)? {
        let zlib = open("zlib")?;
        let count_by = |trace: &Trace, scheme| -> Result<f64, Box<dyn std::error::Error>> {
            let (found, s) = timed(|| trace.search(&automaton, Want::Count, Some(scheme)));
            assert_eq!(found?.0.count, count, "{line}");
            Ok(s)
        };
        let (s1, s3) = pairs(|| count_by(&zlib, Scheme::Unpacked), || count_by(&zlib, Scheme::Chunks))?;
        let packed = open("packed")?;
        let ((), load) = {
            let (r, s) = timed(|| packed.load_grammar());
            r?;
            ((), s)
        };
        let (g1, g3) = (count_by(&packed, Scheme::Unpacked)?, count_by(&packed, Scheme::Chunks)?);
        let (s2, s4) = pairs(|| count_by(&packed, Scheme::Grammar), || count_by(&packed, Scheme::Segments))?;
        let (found, f) = timed(|| packed.search(&automaton, Want::First, None));
        assert_eq!(found?.0.first.map(|p| p.index), Some(first), "{line}");
        // What `query` asks if nothing else is said.
        for scheme in Scheme::ALL {
            let found = packed.search(&automaton, Want::CountAndFirst, Some(scheme))?.0;
            assert_eq!((found.count, found.first.map(|p| p.index)), (count, Some(first)), "{line}");
        }
        let cold = open("packed")?;
        let (found, c) = timed(|| cold.search(&automaton, Want::Count, Some(Scheme::Columns)));
        assert_eq!(found?.0.count, count, "{line}");
        let (found, w) =
            timed(|| (0..100).map(|_| cold.search(&automaton, Want::Count, Some(Scheme::Columns))).last());
        assert_eq!(found.ok_or("100 times")??.0.count, count, "{line}");
        println!("columns: cold {:.3} ms, warm {:.2} µs", c * 1e3, w * 1e4);
        println!(
            "{line}: ms: zlib s1 {:.0} s3 {:.1}; load {:.1}; s2 {:.2} (of s1 {:.3}, with load {:.3}) s4 {:.2}; 3/1 {:.3} 4/2 {:.3}; expanded s1 {:.0} s3 {:.0}; first {:.3}",
            s1 * 1e3,
            s3 * 1e3,
            load * 1e3,
            s2 * 1e3,
            s2 / s1,
            (s2 + load) / s1,
            s4 * 1e3,
            s3 / s1,
            s4 / s2,
            g1 * 1e3,
            g3 * 1e3,
            f * 1e3
        );
    }
    scan(trc, paths)
}

//! Where samples are: functions, loops and lines, each by what is in it itself and what is in all that it
//! called.
//!
//! Source: PADRONE, section 2.3; gprof (Graham, Kessler, McKusick 1982) for self and total.

pub mod tree;

use profile::samples::{Frame, Samples};
use program::{BlockId, FuncId, Lines, LoopId, Loops, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// What is in something itself, and in all that it called.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Samples in it itself.
    pub own: u64,
    /// And how many of the event they stand for.
    pub own_period: u64,
    /// Samples in it and what it called, each once.
    pub total: u64,
    /// And how many of the event they stand for.
    pub total_period: u64,
}

/// In what a sample is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Who {
    /// A function of a module, by their numbers.
    Function(usize, FuncId),
    /// Code of a module that is in no function.
    Module(usize),
    /// A function of the kernel; empty, if it is not known which.
    Kernel(Box<str>),
    /// A function that a perf map names.
    Named(Box<str>),
    /// Code of which nothing is known.
    Unknown,
}

/// A loop, with the samples in it and in loops in it; in total, also of what was called from there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopSums {
    /// Its module's number.
    pub module: usize,
    /// Its function.
    pub func: FuncId,
    /// Its first header.
    pub header: BlockId,
    /// How deep it lies in others, 1 for the outermost.
    pub depth: u32,
    /// The samples.
    pub sums: Sums,
}

/// Where the samples of one event are.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// All of them.
    pub all: Sums,
    /// By function.
    pub functions: Vec<(Who, Sums)>,
    /// By loop.
    pub loops: Vec<LoopSums>,
    /// By source line, where that is known.
    pub lines: Vec<((String, u32), Sums)>,
}

/// The function that a frame is in.
pub fn who(frame: &Frame, programs: &[Option<Program>]) -> Who {
    match frame {
        Frame::Code { module, at } => {
            let module = *module as usize;
            let program = programs.get(module).and_then(Option::as_ref);
            let func = program.and_then(|program| program.function_at(*at));
            func.map_or(Who::Module(module), |func| Who::Function(module, func))
        }
        Frame::Kernel(name) => Who::Kernel(name.clone()),
        Frame::Named(name) => Who::Named(name.clone()),
        Frame::Unknown => Who::Unknown,
    }
}

/// Of each stack, what is in it alone: samples, and how many of the event they stand for.
struct ByStack {
    own: Vec<(u64, u64)>,
    frame_of: Vec<u32>,
    caller_of: Vec<Option<u32>>,
}

impl ByStack {
    fn of(samples: &Samples, event: u32) -> ByStack {
        let own = samples.by_stack(event);
        let stacks = (0..).take(own.len()).map(|stack| samples.stack(stack));
        let (frame_of, caller_of) = stacks.unzip();
        ByStack { own, frame_of, caller_of }
    }

    /// What is in each of the things that frames are in, as `of_frame` says by the frame's number: nothing,
    /// or several. What is on a stack more than once has its samples once.
    fn sums<T: Clone + Eq + Hash + Ord>(&self, of_frame: &[Vec<T>]) -> BTreeMap<T, Sums> {
        let mut number: HashMap<&T, usize> = HashMap::new();
        let mut all: Vec<&T> = Vec::new();
        let numbered: Vec<Vec<usize>> = of_frame
            .iter()
            .map(|things| {
                let number = things.iter().map(|thing| {
                    *number.entry(thing).or_insert_with(|| {
                        all.push(thing);
                        all.len() - 1
                    })
                });
                number.collect()
            })
            .collect();
        let mut sums = vec![Sums::default(); all.len()];
        // By thing, the last stack that it has had the samples of.
        let mut seen_by = vec![usize::MAX; all.len()];
        for (stack, &(n, period)) in self.own.iter().enumerate().filter(|(_, own)| own.0 > 0) {
            let mut at = Some(stack);
            let mut is_first = true;
            while let Some(here) = at {
                let things = self.frame_of.get(here).and_then(|frame| numbered.get(*frame as usize));
                for &thing in things.into_iter().flatten() {
                    let (Some(sums), Some(seen)) = (sums.get_mut(thing), seen_by.get_mut(thing)) else {
                        continue;
                    };
                    if is_first {
                        sums.own += n;
                        sums.own_period = sums.own_period.saturating_add(period);
                    }
                    if std::mem::replace(seen, stack) != stack {
                        sums.total += n;
                        sums.total_period = sums.total_period.saturating_add(period);
                    }
                }
                is_first = false;
                at = self.caller_of.get(here).copied().flatten().map(|caller| caller as usize);
            }
        }
        all.into_iter().cloned().zip(sums).collect()
    }
}

/// A loop: its module, its function, and itself.
type LoopOf = (usize, FuncId, LoopId);

/// Where the samples of `event`, by its number, are in `programs`, which are the modules by number, as far as
/// they are known.
pub fn report(samples: &Samples, event: u32, programs: &[Option<Program>]) -> Report {
    let by_stack = ByStack::of(samples, event);
    let frames = samples.frames();
    let functions: Vec<Vec<Who>> = frames.iter().map(|frame| vec![who(frame, programs)]).collect();
    let loops_of = loops(frames, programs);
    let loops = by_stack.sums(&innermost_and_outer(frames, programs, &loops_of));
    let lines = by_stack.sums(&lines(frames, programs));
    let all = by_stack.own.iter().fold(Sums::default(), |sum, (n, period)| Sums {
        own: sum.own + n,
        own_period: sum.own_period.saturating_add(*period),
        total: sum.total + n,
        total_period: sum.total_period.saturating_add(*period),
    });
    let loop_sums = |((module, func, id), sums): (LoopOf, Sums)| {
        let loops = loops_of.get(&(module, func))?;
        Some(LoopSums { module, func, header: loops.header(id), depth: loops.depth(id), sums })
    };
    let mut report = Report {
        all,
        functions: by_stack.sums(&functions).into_iter().filter(|(_, sums)| sums.total > 0).collect(),
        loops: loops.into_iter().filter(|(_, sums)| sums.total > 0).filter_map(loop_sums).collect(),
        lines: lines.into_iter().filter(|(_, sums)| sums.total > 0).collect(),
    };
    // What is alike stays in order.
    let order = |sums: &Sums| std::cmp::Reverse((sums.own_period, sums.total_period));
    report.functions.sort_by_key(|(_, sums)| order(sums));
    report.loops.sort_by_key(|one| order(&one.sums));
    report.lines.sort_by_key(|(_, sums)| order(sums));
    report
}

/// The loops of all functions that frames are in.
fn loops(frames: &[Frame], programs: &[Option<Program>]) -> HashMap<(usize, FuncId), Loops> {
    let functions: std::collections::BTreeSet<(usize, FuncId)> = frames
        .iter()
        .filter_map(|frame| match who(frame, programs) {
            Who::Function(module, func) => Some((module, func)),
            _ => None,
        })
        .collect();
    let of = |&(module, func): &(usize, FuncId)| {
        let program = programs.get(module).and_then(Option::as_ref)?;
        Some(((module, func), Loops::compute(program, func)))
    };
    functions.into_iter().collect::<Vec<_>>().par_iter().filter_map(of).collect()
}

/// Of each frame, the loops that it is in, the innermost first.
fn innermost_and_outer(
    frames: &[Frame],
    programs: &[Option<Program>],
    loops: &HashMap<(usize, FuncId), Loops>,
) -> Vec<Vec<LoopOf>> {
    let of = |frame: &Frame| -> Option<Vec<LoopOf>> {
        let Frame::Code { module, at } = frame else { return None };
        let module = *module as usize;
        let program = programs.get(module)?.as_ref()?;
        let block = program.block_at(*at)?;
        let func = program.block(block).func;
        let loops = loops.get(&(module, func))?;
        let all = std::iter::successors(loops.innermost(block), |id| loops.parent(*id));
        Some(all.map(|id| (module, func, id)).collect())
    };
    frames.iter().map(|frame| of(frame).unwrap_or_default()).collect()
}

/// Of each frame, the line that its code was written in.
fn lines(frames: &[Frame], programs: &[Option<Program>]) -> Vec<Vec<(String, u32)>> {
    let mut by_module: BTreeMap<usize, Vec<(usize, Va)>> = BTreeMap::new();
    for (n, frame) in frames.iter().enumerate() {
        if let Frame::Code { module, at } = frame {
            by_module.entry(*module as usize).or_default().push((n, *at));
        }
    }
    let found = by_module.into_par_iter().map(|(module, all)| {
        let lines = programs.get(module).and_then(Option::as_ref).and_then(|p| Lines::load(&p.image));
        let at = |(n, at): (usize, Va)| {
            let (file, line) = lines.as_ref()?.at(at)?;
            Some((n, (file.to_owned(), line)))
        };
        all.into_iter().filter_map(at).collect::<Vec<_>>()
    });
    let mut of_frame = vec![Vec::new(); frames.len()];
    for (n, line) in found.collect::<Vec<_>>().into_iter().flatten() {
        if let Some(lines) = of_frame.get_mut(n) {
            lines.push(line);
        }
    }
    of_frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compiled;
    use profile::samples::{Event, Quality, Recorder, Sample};

    /// `outer` calls `inner`, which calls itself, and has a loop.
    const SOURCE: &str = "
__attribute__((noinline)) long inner(long n) {
    if (n == 7)
        return inner(n - 1) * 3;
    long s = n;
    for (long i = 0; i < n; i++)
        s ^= s * i + 11;
    return s;
}
int main(int n, char **v) { return inner(n) + 1; }
";

    #[test]
    fn what_is_on_a_stack_twice_has_its_samples_once() {
        let programs = [Some(compiled(SOURCE, "c", "-O1 -g"))];
        let [Some(program)] = &programs else { unreachable!() };
        let function = |name: &str| {
            let id = program.func_ids().find(|f| program.function(*f).name() == name);
            id.expect("it is there")
        };
        let (inner, main) = (function("inner"), function("main"));
        let header = Loops::compute(program, inner);
        let header = header.header(header.ids().next().expect("it has one"));
        let code = |at: Va| Frame::Code { module: 0, at };
        let entry = |id| code(program.function(id).entry);
        let mut recorder = Recorder::new(vec![Event { name: "cycles".into(), is_time: false }]);
        let thread = recorder.thread(1, 1);
        let in_loop = code(program.block(header).start);
        let deep = recorder.stack([entry(main), entry(inner), entry(inner), in_loop]);
        let kernel = recorder.stack([entry(main), Frame::Kernel("read".into())]);
        for (stack, period) in [(deep, 10), (deep, 20), (kernel, 5)] {
            recorder.add(Sample { event: 0, thread, time: 0, stack, period });
        }
        let samples = recorder.finish(Quality::default());
        let report = report(&samples, 0, &programs);
        let sums = |own, own_period, total, total_period| Sums { own, own_period, total, total_period };
        assert_eq!(report.all, sums(3, 35, 3, 35));
        let want = [
            (Who::Function(0, inner), sums(2, 30, 2, 30)),
            (Who::Kernel("read".into()), sums(1, 5, 1, 5)),
            (Who::Function(0, main), sums(0, 0, 3, 35)),
        ];
        assert_eq!(report.functions, want);
        let [only] = report.loops.as_slice() else { panic!("{:?}", report.loops) };
        assert_eq!((only.header, only.depth, only.sums), (header, 1, sums(2, 30, 2, 30)));
        let own: u64 = report.lines.iter().map(|(_, sums)| sums.own).sum();
        assert_eq!(own, 2, "{:?}", report.lines);
        // Of a module that is not known, samples are its own all the same.
        let unknown = super::report(&samples, 0, &[None]);
        assert_eq!(unknown.functions.first(), Some(&(Who::Module(0), sums(2, 30, 3, 35))));
        assert_eq!(super::report(&samples, 1, &[None]).all, Sums::default());
    }
}

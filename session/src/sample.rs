//! Threads of processes sampled for a while: where they were, and by whom that was called.
//!
//! ```text
//!  live::Sampling ─ records, by time ─► [`Sampler`]: what each process has mapped; stacks unwound
//!                                          └─► samples, and of each image how often each block was hit
//! ```
//! Nothing is stopped or changed.
//!
//! Source: PADRONE, 2.2 and 2.3.

mod before;
mod cost;
mod kernel_names;
mod later;
mod moved;
mod sizes;
mod space;
mod watch;

pub use cost::cost_of_a_sample;
pub use sizes::Sizes;
pub use watch::{Glimpse, SeenImage, SeenStack};

use crate::module::written_path;
use crate::process::{ProcessModules, perf_map};
use crate::run::{self, RunError};
use before::{Before, Chain};
use framehop::x86_64::CacheX86_64;
use kernel_names::KernelNames;
use later::Later;
use live::launch::AtStart;
use live::{Chains, Heard, OpenError, Sample, Sampling, Target, Unit, Wanted};
use moved::Place;
use profile::samples::{self, Frame, Quality, Recorder, Samples};
use profile::{Profile, recording};
use program::{LiveVa, Program, Va};
use rayon::prelude::*;
use space::{Images, Space};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::Watch;

/// Processes that are sampled.
pub struct Sampler {
    sampling: Sampling,
    images: Images,
    spaces: HashMap<u32, Space>,
    cache: CacheX86_64,
    later: Later,
    recorder: Recorder<Seen>,
    before: Before,
    /// Room for that of a sample.
    chain: Chain,
    quality: Quality,
    sizes: Sizes,
    /// What is told meanwhile, if somebody looks.
    watch: Option<Watch>,
    /// Names of what is told.
    names: Names,
}

/// Where a thread was, or whence it was called, before anybody asks for names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Seen {
    /// In an image, by its number.
    Code { image: usize, at: Va },
    /// In code of a process that is of no image: a JIT compiler's, for one.
    Elsewhere { process: u32, at: LiveVa },
    /// In what stands in for a function, by its number.
    StandIn(u32),
    /// In the kernel, at this address.
    Kernel(u64),
    /// Nothing is known of it.
    #[default]
    Nowhere,
}

/// What was sampled.
pub struct Sampled {
    /// All samples; their frames have the numbers of `modules`.
    pub samples: Samples,
    /// The images that were seen.
    pub modules: Vec<SampledModule>,
}

/// An image in which threads were, or whence they were called.
pub struct SampledModule {
    /// Where its file is, as its process calls it.
    pub path: PathBuf,
    /// What it is.
    pub program: Program,
    /// How often threads were in each block.
    pub profile: Profile,
    /// How often threads were in each block, or had called from there.
    seen: Profile,
}

/// How long it is waited for records at most.
const ROUND: Duration = Duration::from_millis(20);

/// Why a program that was to be started is not sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// It cannot be sampled: it has not run.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be started.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Sampler {
    /// Starts `target`, called `name`, with `args`, sampled from its first instruction on, as
    /// [`Sampler::start`].
    ///
    /// # Errors
    /// If it cannot be started or sampled. In both cases no instruction of it has run.
    pub fn launch(
        target: &Target,
        name: &OsStr,
        args: &[OsString],
        (wanted, sizes): (Wanted, Sizes),
    ) -> Result<(Child, Sampler), SampleError> {
        let started = Sampler::at_start(target, name, args)?;
        let sampler = Sampler::start(&[started.pid()], wanted, sizes)?;
        let child = started.let_go().map_err(|err| RunError::Launch(err).explained())?;
        Ok((child, sampler))
    }

    /// Starts `target` so far that it stands before its first instruction.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn at_start(target: &Target, name: &OsStr, args: &[OsString]) -> Result<AtStart, RunError> {
        live::pass_signals_on();
        AtStart::of(run::command(target, name, args)).map_err(|err| RunError::Launch(err).explained())
    }

    /// Of processes `pids` and those that they make, from now on: what is `wanted`, but that `sizes` say how
    /// much of stacks is copied, and how often.
    ///
    /// # Errors
    /// If there is no such event, or we may not.
    pub fn start(pids: &[i32], mut wanted: Wanted, mut sizes: Sizes) -> Result<Sampler, OpenError> {
        let (stack, rate) = sizes.now();
        wanted.rate = rate;
        wanted.chains = wanted.chains.map(|_| Chains { stack });
        let mut images = Images::default();
        let mut spaces = HashMap::new();
        // Before anything is told: to read them takes a while.
        let look = |images: &mut Images, spaces: &mut HashMap<u32, Space>| {
            for pid in pids {
                if let Ok(modules) = ProcessModules::of(*pid) {
                    spaces.insert(pid.cast_unsigned(), Space::of(&modules, images));
                }
            }
        };
        look(&mut images, &mut spaces);
        let mut sampling = Sampling::start(pids, wanted.clone())?;
        sizes.fit_into(sampling.room_bytes());
        if sizes.now().0 != stack {
            let (stack, rate) = sizes.now();
            sampling.change(stack, rate)?;
        }
        // What was mapped between.
        look(&mut images, &mut spaces);
        let unit = |event: &live::Event| samples::Event {
            name: event.name.clone(),
            is_time: event.unit() == Unit::Nanoseconds,
        };
        let mut recorder = Recorder::new(wanted.events.iter().map(unit).collect());
        for pid in pids {
            for (thread, name) in names_of(*pid) {
                recorder.name(pid.cast_unsigned(), thread, &name);
            }
        }
        let quality = Quality {
            has_chains: wanted.chains.is_some(),
            has_kernel: sampling.has_kernel(),
            ..Quality::default()
        };
        Ok(Sampler {
            sampling,
            images,
            spaces,
            cache: CacheX86_64::new(),
            later: Later::default(),
            before: Before::default(),
            recorder,
            chain: Chain::default(),
            quality,
            sizes,
            watch: None,
            names: Names::default(),
        })
    }

    /// Samples processes `pids` for so long.
    ///
    /// # Errors
    /// As [`Sampler::start`].
    pub fn profile(pids: &[i32], wanted: Wanted, long: Duration) -> Result<Sampled, OpenError> {
        let sizes = Sizes::fixed(&wanted, None);
        let mut sampler = Sampler::start(pids, wanted, sizes)?;
        let until = Instant::now() + long;
        while Instant::now() < until {
            sampler.take(until.saturating_duration_since(Instant::now()).min(ROUND));
        }
        Ok(sampler.finish(long))
    }

    /// Takes what is sampled until somebody says that it `is_over`.
    pub fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.take(ROUND);
        }
    }

    /// The same, and tells `look` once in `every` what there is by then; of late are the last `n_parts` times
    /// that.
    pub fn run_watched(
        &mut self,
        is_over: &AtomicBool,
        (every, n_parts): (Duration, usize),
        look: &mut dyn FnMut(Glimpse),
    ) {
        self.watch = Some(Watch::new(every, n_parts));
        while !is_over.load(Ordering::Relaxed) {
            self.take(ROUND);
            if let Some(watch) = self.watch.as_mut().filter(|watch| watch.is_due()) {
                // JIT compilers go on.
                self.names.maps.clear();
                self.names.stand_ins.clone_from(&self.images.stand_ins);
                let glimpse = watch.glimpse(|seen| self.names.frame(seen));
                let (lost, cut) = (self.quality.lost, self.quality.n_cut);
                look(Glimpse { lost, cut, images: self.images.seen(), ..glimpse });
            }
        }
        self.watch = None;
    }

    /// Takes what was sampled since; waits for `most`, if there is little.
    fn take(&mut self, most: Duration) {
        self.sampling.wait(most);
        self.later.forget_pages();
        let before = self.sizes.now().0;
        for heard in self.sampling.take() {
            self.hear(heard);
        }
        let (stack, rate) = self.sizes.now();
        if stack != before && self.sampling.change(stack, rate).is_err() {
            self.sizes.stay(before);
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Sample(sample) => self.sample(&sample),
            Heard::Mapped { process, range, offset, inode, path } => {
                let space = self.spaces.entry(process).or_default();
                space.map((process, &path, inode), (range, offset), &mut self.images);
            }
            Heard::Began { process, thread, parent, maker } => {
                // Until it has another.
                self.recorder.name_as((process, thread), (parent, maker));
                if let Some(space) = self.spaces.get(&parent).filter(|_| process != parent).cloned() {
                    self.spaces.insert(process, space);
                }
            }
            Heard::Named { process, thread, name, is_exec } => {
                self.recorder.name(process, thread, &name);
                if is_exec {
                    self.later.forget(process);
                    self.before.forget_all(process);
                    self.spaces.insert(process, Space::default());
                }
            }
            Heard::Ended { process, thread } => {
                self.before.forget((process, thread));
                // With its first thread, a process is over, as a rule; if not, it is read anew.
                if process == thread {
                    self.later.forget(process);
                }
            }
            Heard::Lost(n) => self.quality.lost += n,
        }
    }

    fn sample(&mut self, sample: &Sample) {
        self.sizes.count(sample.stack);
        let thread = self.recorder.thread(sample.process, sample.thread);
        let space = self.spaces.entry(sample.process).or_default();
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        if let Some(user) = &sample.user {
            if self.later.is_full() {
                self.later.forget_pages();
            }
            let mut later = |at| self.later.word(sample.process, at);
            let cache = &mut self.cache;
            let before = self.before.of((sample.process, sample.thread));
            let mut need = space.unwind(&self.images, user, cache, (before, &mut later), &mut chain);
            if space.learn_of(sample.process, &chain.places, &mut self.images) {
                chain.clear();
                need = space.unwind(&self.images, user, cache, (before, &mut later), &mut chain);
            }
            if need.is_whole {
                before.learn(&chain);
            }
            let quality = &mut self.quality;
            quality.n_whole += u64::from(need.is_whole);
            quality.n_later += u64::from(need.is_whole && need.is_read_later);
            quality.n_cut += u64::from(!need.is_whole);
            self.sizes.heard(sample.stack, need);
        } else if !is_kernels(sample.at) {
            chain.places.push(space.place(sample.at));
            if space.learn_of(sample.process, &chain.places, &mut self.images) {
                chain.clear();
                chain.places.push(space.place(sample.at));
            }
        }
        let in_kernel = match sample.kernel.as_slice() {
            [] if is_kernels(sample.at) => std::slice::from_ref(&sample.at.0),
            kernel => kernel,
        };
        if let Some(watch) = self.watch.as_mut().filter(|_| sample.event == 0) {
            let own = chain.places.iter().map(|place| Seen::of(sample.process, *place));
            watch.add(in_kernel.iter().map(|at| Seen::Kernel(*at)).chain(own).collect(), sample.period);
        }
        let own = chain.places.iter().rev().map(|place| Seen::of(sample.process, *place));
        let stack = self.recorder.stack(own.chain(in_kernel.iter().rev().map(|at| Seen::Kernel(*at))));
        self.chain = chain;
        self.recorder.add(samples::Sample {
            event: u32::try_from(sample.event).unwrap_or(0),
            thread,
            time: sample.time.saturating_sub(self.sampling.began()),
            stack,
            period: sample.period,
        });
    }

    /// Ends it after so long, and looks up what was seen.
    pub fn finish(mut self, took: Duration) -> Sampled {
        self.sampling.stop();
        for heard in self.sampling.take_rest() {
            self.hear(heard);
        }
        self.quality.hertz = self.sizes.hertz();
        self.quality.cost_ns = self.sizes.cost_ns();
        self.quality.copied = self.sizes.copied();
        self.quality.duration_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let Sampler { images, recorder, quality, .. } = self;
        let mut names = Names { stand_ins: images.stand_ins.clone(), ..Names::default() };
        by_module(recorder.finish_with(quality, |seen| names.frame(seen)), images)
    }
}

impl Seen {
    fn of(process: u32, place: Place) -> Seen {
        match place {
            Place::Code { image, at } => Seen::Code { image, at },
            Place::Elsewhere(at) => Seen::Elsewhere { process, at },
            Place::StandIn(n) => Seen::StandIn(n),
            Place::Ours => Seen::Nowhere,
        }
    }
}

/// What is asked for names, once it is needed.
#[derive(Default)]
struct Names {
    /// The perf maps of processes.
    maps: HashMap<u32, Vec<perf_map::Named>>,
    kernel: Option<KernelNames>,
    /// What stands in for functions, by number.
    stand_ins: Vec<Box<str>>,
}

impl Names {
    /// What is there in place of what was `seen`.
    fn frame(&mut self, seen: &Seen) -> Frame {
        match *seen {
            Seen::Code { image, at } => Frame::Code { module: u32::try_from(image).unwrap_or(u32::MAX), at },
            Seen::Elsewhere { process, at } => {
                let read = || perf_map::of_number(process.cast_signed());
                let map = self.maps.entry(process).or_insert_with(read);
                let n_before = map.partition_point(|named| named.range.start <= at);
                let named = n_before.checked_sub(1).and_then(|n| map.get(n));
                let named = named.filter(|named| named.range.contains(&at));
                named.map_or(Frame::Unknown, |named| Frame::Named(named.name.clone()))
            }
            Seen::Kernel(at) => {
                Frame::Kernel(self.kernel.get_or_insert_with(KernelNames::read).at(at).into())
            }
            Seen::StandIn(n) => {
                let name = self.stand_ins.get(n as usize).cloned();
                name.map_or(Frame::Unknown, Frame::Named)
            }
            Seen::Nowhere => Frame::Unknown,
        }
    }
}

/// Whether an address is the kernel's.
fn is_kernels(at: LiveVa) -> bool {
    at.0 >> 63 != 0
}

/// The threads of process `pid` with their names.
pub fn names_of(pid: i32) -> Vec<(u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
        })
        .collect()
}

/// The images that were seen, with what was seen of each, and the samples with their numbers.
fn by_module(samples: Samples, images: Images) -> Sampled {
    let mut at_first: BTreeMap<u32, BTreeMap<Va, u64>> = BTreeMap::new();
    let mut in_all: BTreeMap<u32, BTreeMap<Va, u64>> = BTreeMap::new();
    let mut own = vec![0u64; samples.n_stacks()];
    for (event, _) in (0..).zip(&samples.events) {
        for (sum, (n, _)) in own.iter_mut().zip(samples.by_stack(event)) {
            *sum += n;
        }
    }
    let mut all = own.clone();
    for stack in (0..samples.n_stacks()).rev() {
        let number = u32::try_from(stack).unwrap_or(u32::MAX);
        let (frame, caller) = samples.stack(number);
        let n = all.get(stack).copied().unwrap_or(0);
        if let Some(sum) = caller.and_then(|caller| all.get_mut(caller as usize)) {
            *sum += n;
        }
        if let Some(Frame::Code { module, at }) = samples.frames().get(frame as usize) {
            let own = own.get(stack).copied().unwrap_or(0);
            if own > 0 {
                *at_first.entry(*module).or_default().entry(*at).or_default() += own;
            }
            *in_all.entry(*module).or_default().entry(*at).or_default() += n;
        }
    }
    let numbers: HashMap<u32, u32> = in_all.keys().copied().zip(0..).collect();
    let seen = images.all.into_iter().enumerate().filter_map(|(n, known)| {
        let n = u32::try_from(n).ok()?;
        Some((known, at_first.remove(&n).unwrap_or_default(), in_all.remove(&n)?))
    });
    let modules = seen.collect::<Vec<_>>().into_par_iter().map(|(known, own, all)| {
        let program = Program::analyze_code(known.image);
        let profile = |points| Profile {
            image: profile::ImageRef {
                name: written_path(&known.path),
                ..profile::ImageRef::of(&program.image)
            },
            ..profile::of_points(&program, points)
        };
        let (profile, seen) = (profile(own), profile(all));
        SampledModule { path: known.path, program, profile, seen }
    });
    let samples = samples.with_frames(|frame| match frame {
        Frame::Code { module, at } => {
            Some(numbers.get(module).map_or(Frame::Unknown, |n| Frame::Code { module: *n, at: *at }))
        }
        _ => None,
    });
    Sampled { samples, modules: modules.collect() }
}

impl Sampled {
    /// The instruction at which threads were most often, and its module; of several, the first.
    pub fn most_frequent(&self) -> Option<(&SampledModule, Va)> {
        let mut counts: BTreeMap<(u32, Va), u64> = BTreeMap::new();
        for sample in self.samples.iter() {
            if let Some(Frame::Code { module, at }) = self.samples.frames_of(sample.stack).next() {
                *counts.entry((*module, *at)).or_default() += 1;
            }
        }
        let ((module, at), _) =
            counts.into_iter().min_by_key(|(place, n)| (std::cmp::Reverse(*n), *place))?;
        Some((self.modules.get(module as usize)?, at))
    }

    /// What a recording has of the modules: their samples, and the code in which samples are, or which called
    /// that.
    pub fn recorded(&self) -> Vec<recording::Module> {
        let kept = |module: &SampledModule| {
            let code = measure::excerpt(&module.program, &module.seen);
            recording::Module::new(module.profile.clone(), Some(&code))
        };
        self.modules.par_iter().map(kept).collect()
    }
}

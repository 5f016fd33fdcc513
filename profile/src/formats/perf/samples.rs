//! From samples of processes to counts of an image: what perf.data and `perf script` have in common.
//!
//! A sample's address is one in a process. Which image lies there, the mappings say; an image is the program
//! if it has its build-id, or its file name where no build-id is known.

use crate::complete::derive::{add, derive_blocks};
use crate::complete::transfers::Layer;
use crate::counts::{Exactness, Lost, Profile};
use crate::vocabulary::{Format, ReadError};
use program::{Bias, FileOff, LiveVa, Program, Va};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// A file mapped into a process.
#[derive(Clone)]
struct Mapping {
    range: Range<u64>,
    /// The program's bias; `None` for other files.
    bias: Option<Bias>,
}

/// A branch that was taken: from, to, mispredicted.
pub(crate) type Branch = (LiveVa, LiveVa, bool);

/// Samples, summed as they are read.
pub(crate) struct Samples<'p> {
    program: &'p Program,
    mappings: HashMap<i32, Vec<Mapping>>,
    /// Names of files that are not the program.
    others: BTreeSet<String>,
    any_ours: bool,
    points: BTreeMap<Va, u64>,
    branches: BTreeMap<(Option<Va>, Option<Va>), (u64, u64)>,
    runs: BTreeMap<(Va, Va), u64>,
    lost: Vec<Lost>,
}

impl<'p> Samples<'p> {
    pub fn of(program: &'p Program) -> Samples<'p> {
        Samples {
            program,
            mappings: HashMap::new(),
            others: BTreeSet::new(),
            any_ours: false,
            points: BTreeMap::new(),
            branches: BTreeMap::new(),
            runs: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Whether a file is the program.
    pub fn is_ours(&self, path: &str, build_id: Option<&[u8]>) -> bool {
        let image = &self.program.image;
        match (build_id, &image.build_id) {
            // perf pads build-ids to 20 bytes.
            (Some(theirs), Some(ours)) => {
                theirs.starts_with(ours) && theirs.iter().skip(ours.len()).all(|b| *b == 0)
            }
            _ => path.rsplit('/').next() == image.name.rsplit('/').next(),
        }
    }

    /// A file was mapped: the bytes from `offset` on at `live`.
    pub fn map(&mut self, pid: i32, live: Range<u64>, offset: u64, path: &str, build_id: Option<&[u8]>) {
        let ours = self.is_ours(path, build_id);
        let place = ours
            .then(|| image_address(self.program, FileOff(offset), live.end.wrapping_sub(live.start)))
            .flatten();
        let bias = place.map(|(at, into)| Bias::between(at, LiveVa(live.start.wrapping_add(into))));
        if bias.is_some() {
            self.any_ours = true;
        } else {
            self.others.insert(path.to_owned());
        }
        let list = self.mappings.entry(pid).or_default();
        list.retain(|m| m.range.end <= live.start || live.end <= m.range.start);
        list.push(Mapping { range: live, bias });
    }

    /// A process forked: the child has the same files mapped.
    pub fn fork(&mut self, parent: i32, child: i32) {
        if parent != child
            && let Some(mappings) = self.mappings.get(&parent).cloned()
        {
            self.mappings.insert(child, mappings);
        }
    }

    /// The address in the program, if the program is mapped there.
    fn address(&self, pid: i32, at: LiveVa) -> Option<Va> {
        let mapping = self.mappings.get(&pid)?.iter().rev().find(|m| m.range.contains(&at.0))?;
        Some(mapping.bias?.to_image(at))
    }

    /// A sample at an instruction.
    pub fn point(&mut self, pid: i32, at: LiveVa) {
        if let Some(at) = self.address(pid, at) {
            add(&mut self.points, at, 1);
        }
    }

    /// Whether any process has a file there.
    pub fn is_mapped(&self, at: LiveVa) -> bool {
        self.mappings.values().flatten().any(|mapping| mapping.range.contains(&at.0))
    }

    /// A sample at what the file at `path` has at `offset`.
    pub fn point_in_file(&mut self, path: &str, offset: u64) {
        if !self.is_ours(path, None) {
            self.others.insert(path.to_owned());
            return;
        }
        self.any_ours = true;
        if let Some((at, 0)) = image_address(self.program, FileOff(offset), 1) {
            add(&mut self.points, at, 1);
        }
    }

    /// Something could not be taken over.
    pub fn lose(&mut self, lost: Lost) {
        self.lost.push(lost);
    }

    /// A sample with the branches taken before it, the last one first.
    pub fn branches(&mut self, pid: i32, branches: &[Branch]) {
        let in_image: Vec<(Option<Va>, Option<Va>, bool)> = branches
            .iter()
            .map(|&(from, to, missed)| (self.address(pid, from), self.address(pid, to), missed))
            .collect();
        for (i, &(from, to, missed)) in in_image.iter().enumerate() {
            if from.is_some() || to.is_some() {
                let sum = self.branches.entry((from, to)).or_insert((0, 0));
                sum.0 += 1;
                sum.1 += u64::from(missed);
            }
            // From where the branch before this one went, straight to this one.
            if let (Some(end), Some(&(_, Some(start), _))) = (from, in_image.get(i + 1))
                && start <= end
            {
                add(&mut self.runs, (start, end), 1);
            }
        }
    }

    /// The profile: edges if there were branches, else samples of blocks.
    pub fn finish(self, format: Format) -> Result<(Profile, Vec<Lost>), ReadError> {
        if !self.any_ours {
            let program = self.program.image.name.clone();
            return Err(ReadError::NotInIt { format, program, holds: self.others.into_iter().collect() });
        }
        let mut layer = Layer::onto(self.program);
        for (&(from, to), &(n, misses)) in &self.branches {
            layer.branch(from, to, misses, n);
        }
        for (&(start, end), &n) in &self.runs {
            layer.straight(start, end, n);
        }
        if self.branches.is_empty() {
            for (&at, &n) in &self.points {
                layer.sample(at, n);
            }
        }
        let Layer { mut profile, lost, .. } = layer;
        profile.exactness = Exactness::Sampled;
        derive_blocks(&mut profile, self.program, &|_| false);
        let lost = self.lost.into_iter().chain(lost.into_list()).collect();
        Ok((profile, lost))
    }
}

/// The address of the code that a mapping of `len` bytes of the file from `offset` on holds, and how far into
/// the mapping it is.
pub(crate) fn image_address(program: &Program, offset: FileOff, len: u64) -> Option<(Va, u64)> {
    program.image.segments.iter().filter(|s| s.executable).find_map(|s| {
        let end = s.offset.0.checked_add(s.file_len)?;
        if offset.0 >= end || offset.0.checked_add(len)? <= s.offset.0 {
            return None;
        }
        // A mapping starts at a page: at or before the segment, or within it.
        match offset.0.checked_sub(s.offset.0) {
            Some(into) => Some((s.range.start.plus(into), 0)),
            None => Some((s.range.start, s.offset.0 - offset.0)),
        }
    })
}

//! pprof's profile.proto, gzipped: for `pprof`, Grafana's Pyroscope, Speedscope.
//!
//! A sample is a block: its location is the block's start, with the functions inlined there where DWARF is
//! present; values are executions of the block and instructions executed in it. Stacks are one location deep:
//! a profile of counts knows no callers. Samples have callers: `with_callers`.
//!
//! Source: github.com/google/pprof, `proto/profile.proto`; field numbers as there.

use crate::complete::calls::Cuts;
use crate::complete::flow;
use crate::counts::{Exactness, ImageRef, Lost, Profile};
use crate::formats::lines::source::counted_blocks;
use crate::losses::Losses;
use crate::samples::{NamedSamples, Origin};
use crate::vocabulary::{Format, ReadError, Written};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use program::{BlockId, FileOff, Frame, FuncId, Lines, Program, Va};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read as _, Write as _};

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// How many bytes a file may unpack to: a hostile one expands a thousandfold, a million blocks take a third
/// of this.
const LARGEST: u64 = 128 << 20;

/// What the values of samples are called.
const EXECUTIONS: &str = "executions";

/// Why samples in other images of the process are left out: nothing is wrong with them.
pub const NOT_OURS: &str = "the profile is of the program alone";

/// Whether `bytes` are gzipped, as such a file is; no other format that we read is.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// A table of values, each stored once; the index of the first is `base`.
#[derive(Debug)]
struct Table<K, V> {
    index: HashMap<K, i64>,
    rows: Vec<V>,
}

impl Table<String, String> {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&i) = self.index.get(text) {
            return i;
        }
        let i = i64::try_from(self.rows.len()).expect("there are fewer strings than bytes");
        self.index.insert(text.to_owned(), i);
        self.rows.push(text.to_owned());
        i
    }
}

#[derive(Debug)]
struct Writer {
    strings: Table<String, String>,
    functions: Table<(String, String), Function>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer {
            strings: Table { index: HashMap::new(), rows: Vec::new() },
            functions: Table { index: HashMap::new(), rows: Vec::new() },
        }
    }
}

impl Writer {
    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        let next =
            i64::try_from(self.functions.rows.len() + 1).expect("there are fewer functions than bytes");
        let id = *self.functions.index.entry(key).or_insert(next);
        if id == next {
            let (name, filename) = (self.strings.string(name), self.strings.string(file));
            let id = id.cast_unsigned();
            self.functions.rows.push(Function { id, name, system_name: name, filename });
        }
        id.cast_unsigned()
    }

    fn lines(&mut self, frames: &[Frame], symbol: &str) -> Vec<Line> {
        if frames.is_empty() {
            return vec![Line { function_id: self.function(symbol, ""), line: 0 }];
        }
        let last = frames.len() - 1;
        let line = |(i, f): (usize, &Frame)| {
            let name = if i == last { symbol } else { f.function.as_deref().unwrap_or("[unknown]") };
            let id = self.function(name, f.file.as_deref().unwrap_or_default());
            Line { function_id: id, line: i64::from(f.line.unwrap_or(0)) }
        };
        frames.iter().enumerate().map(line).collect()
    }
}

fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Writes the counts of blocks.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let mut images = Images::default();
    let written = images.add(profile, program);
    Written { bytes: images.finish(), ..written }
}

/// A file of several images, on its way.
#[derive(Debug)]
pub(crate) struct Images {
    writer: Writer,
    file: File,
}

impl Default for Images {
    fn default() -> Images {
        let mut writer = Writer::default();
        writer.strings.string("");
        let count = writer.strings.string("count");
        let executions = writer.strings.string(EXECUTIONS);
        let instructions = writer.strings.string("instructions");
        let file = File {
            sample_type: vec![
                ValueType { r#type: executions, unit: count },
                ValueType { r#type: instructions, unit: count },
            ],
            default_sample_type: instructions,
            ..File::default()
        };
        Images { writer, file }
    }
}

/// What `samples` are of, with callers: a location is an address, with the functions that were inlined there.
pub(crate) fn with_callers(named: &NamedSamples<'_>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.strings.string("");
    let samples = named.samples;
    let mut file = File::default();
    let count = writer.strings.string("count");
    for event in &samples.events {
        let name = writer.strings.string(if samples.events.len() == 1 { "samples" } else { &event.name });
        file.sample_type.push(ValueType { r#type: name, unit: count });
        let unit = if event.is_time { writer.strings.string("nanoseconds") } else { count };
        let name = writer.strings.string(if event.is_time { "cpu" } else { &event.name });
        file.sample_type.push(ValueType { r#type: name, unit });
    }
    file.default_sample_type = file.sample_type.last().map_or(0, |last| last.r#type);
    for module in &named.modules {
        let (filename, hex) = (writer.strings.string(&module.path), hex(module.build_id.as_deref()));
        let build_id = writer.strings.string(&hex);
        for (range, offset) in &module.code {
            file.mapping.push(Mapping {
                id: file.mapping.len() as u64 + 1,
                memory_start: range.start.0,
                memory_limit: range.end.0,
                file_offset: offset.0,
                filename,
                build_id,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
    }
    for (id, frame) in (1..).zip(&named.frames) {
        let (mapping_id, address) = match frame.origin {
            Origin::Module(module, at) => (mapping_of(named, module, at), at.0),
            Origin::Kernel | Origin::Elsewhere => (0, 0),
        };
        // The innermost first.
        let lines = frame.functions.iter().rev().map(|function| {
            let (source, line) =
                function.line.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), *line));
            Line { function_id: writer.function(&function.function, source), line: i64::from(line) }
        });
        let line = lines.collect();
        file.location.push(Location { id, mapping_id, address, line });
    }
    let by_event: Vec<Vec<(u64, u64)>> =
        (0..).zip(&samples.events).map(|(n, _)| samples.by_stack(n)).collect();
    for stack in 0..samples.n_stacks() {
        let values = by_event.iter().filter_map(|own| own.get(stack)).flat_map(|(n, period)| [*n, *period]);
        let value: Vec<i64> = values.map(clamp).collect();
        if value.iter().all(|n| *n == 0) {
            continue;
        }
        let first = u32::try_from(stack).ok();
        let path = std::iter::successors(first, |stack| samples.stack(*stack).1);
        let location_id = path.map(|stack| u64::from(samples.stack(stack).0) + 1).collect();
        file.sample.push(Sample { location_id, value });
    }
    Images { writer, file }.finish()
}

/// The number of the mapping that holds `at` of a module.
fn mapping_of(named: &NamedSamples<'_>, module: u32, at: Va) -> u64 {
    let module = module as usize;
    let before: usize = named.modules.iter().take(module).map(|module| module.code.len()).sum();
    let own = named
        .modules
        .get(module)
        .and_then(|module| module.code.iter().position(|(code, _)| code.contains(&at)));
    own.map_or(0, |own| (before + own) as u64 + 1)
}

fn hex(build_id: Option<&[u8]>) -> String {
    build_id.into_iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

impl Images {
    /// Adds one; what is written of it has no bytes yet.
    pub(crate) fn add(&mut self, profile: &Profile, program: &Program) -> Written {
        let lines = Lines::load(&program.image);
        let mut lost = Losses::default();
        let first = self.file.mapping.len();
        self.add_mappings(program, lines.is_some());
        let mapping = self.file.mapping.get(first..).unwrap_or_default().to_vec();
        let mut functions = BTreeSet::new();
        let mut total = 0u64;
        let cuts = Cuts::of(profile, program);
        let counted = counted_blocks(profile, program, &mut lost);
        let padding = padding(profile, program, &cuts, &counted);
        for (id, n) in counted {
            let block = program.block(id);
            let within = |m: &&Mapping| (m.memory_start..m.memory_limit).contains(&block.start.0);
            let mapping_id = mapping.iter().find(within).map_or(0, |m| m.id);
            let frames = lines.as_ref().map(|l| l.frames(block.start)).unwrap_or_default();
            let location = self.file.location.len() as u64 + 1;
            let line = self.writer.lines(&frames, &program.function(block.func).name());
            self.file.location.push(Location { id: location, mapping_id, address: block.start.0, line });
            let behind = padding.get(&id).copied().unwrap_or(0);
            let executed = cuts.own_instructions(program, id, n).saturating_add(behind);
            let value = vec![clamp(n), clamp(executed)];
            self.file.sample.push(Sample { location_id: vec![location], value });
            functions.insert(block.func);
            total = total.saturating_add(n);
        }
        let n_functions = functions.len();
        Written { n_functions, count: total, lost: lost.into_list(), ..Written::default() }
    }

    fn add_mappings(&mut self, program: &Program, has_lines: bool) {
        let name = self.writer.strings.string(&program.image.name);
        let build_id = self.writer.strings.string(&hex(program.image.build_id.as_deref()));
        for s in program.image.segments.iter().filter(|s| s.executable) {
            self.file.mapping.push(Mapping {
                id: self.file.mapping.len() as u64 + 1,
                memory_start: s.range.start.0,
                memory_limit: s.range.end.0,
                file_offset: s.offset.0,
                filename: name,
                build_id,
                has_functions: true,
                has_filenames: has_lines,
                has_line_numbers: has_lines,
                has_inline_frames: has_lines,
            });
        }
    }

    /// The file. No time and no name are in its header: the same profile gives the same bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.file.function = self.writer.functions.rows;
        self.file.string_table = self.writer.strings.rows;
        let mut gz = GzEncoder::new(Vec::new(), Compression::default());
        gz.write_all(&self.file.encode_to_vec()).expect("memory can be written");
        gz.finish().expect("memory can be written")
    }
}

/// By block: how many instructions of padding were run through behind it.
fn padding(
    profile: &Profile,
    program: &Program,
    cuts: &Cuts,
    counted: &[(BlockId, u64)],
) -> BTreeMap<BlockId, u64> {
    let functions: BTreeSet<FuncId> = counted.iter().map(|(id, _)| program.block(*id).func).collect();
    let ran = functions.into_iter().flat_map(|func| flow::padding_run(program, func, profile, cuts));
    ran.map(|(id, n)| (id, n.saturating_mul(program.n_insns_in(&program.padding_behind(id))))).collect()
}

/// Reads samples of `program`: the innermost location of each, in what is mapped from a file of its build-id
/// or name.
///
/// Of the values of a sample, executions are taken if they are there, else the first.
///
/// # Errors
/// [`ReadError::Damaged`] if it is no gzipped profile, [`ReadError::NotInIt`] if none of its mappings is the
/// program.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    let damaged = |what: String| ReadError::Damaged { format: Format::Pprof, at: 0, what };
    let mut raw = Vec::new();
    GzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut raw).map_err(|err| damaged(err.to_string()))?;
    if raw.len() as u64 > LARGEST {
        return Err(damaged(format!("it unpacks to more than {} MB", LARGEST >> 20)));
    }
    let file = File::decode(raw.as_slice()).map_err(|err| damaged(err.to_string()))?;
    let string =
        |i: i64| usize::try_from(i).ok().and_then(|i| file.string_table.get(i)).map_or("", String::as_str);
    let hex: String = program.image.build_id.iter().flatten().map(|b| format!("{b:02x}")).collect();
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let same = |m: &Mapping| match string(m.build_id) {
        "" => base(string(m.filename)) == base(&program.image.name),
        id => id == hex,
    };
    let ours: HashMap<u64, &Mapping> = file.mapping.iter().filter(|m| same(m)).map(|m| (m.id, m)).collect();
    if ours.is_empty() {
        let mut holds: Vec<String> = file.mapping.iter().map(|m| string(m.filename).to_owned()).collect();
        holds.dedup();
        let program = program.image.name.clone();
        return Err(ReadError::NotInIt { format: Format::Pprof, program, holds });
    }
    let value_idx = file.sample_type.iter().position(|t| string(t.r#type) == EXECUTIONS);
    let locations: HashMap<u64, &Location> = file.location.iter().map(|l| (l.id, l)).collect();
    let mut profile = Profile { image: ImageRef::of(&program.image), ..Profile::default() };
    profile.exactness = if value_idx.is_some() { Exactness::Exact } else { Exactness::Sampled };
    let mut lost = Losses::default();
    for sample in &file.sample {
        let n = sample.value.get(value_idx.unwrap_or(0)).map_or(0, |n| u64::try_from(*n).unwrap_or(0));
        let location = sample.location_id.first().and_then(|id| locations.get(id));
        let Some((location, mapping)) = location.and_then(|l| Some((l, ours.get(&l.mapping_id)?))) else {
            lost.add("other images", NOT_OURS, n);
            continue;
        };
        let offset = location.address.wrapping_sub(mapping.memory_start).wrapping_add(mapping.file_offset);
        match place(program, FileOff(offset)).and_then(|at| program.block_at(at)) {
            Some(id) => profile.blocks.add(program.block(id).start, n),
            None => lost.add("code outside of functions", "no block at that address", n),
        }
    }
    Ok((profile, lost.into_list()))
}

/// The address of what lies at an offset of the file.
fn place(program: &Program, offset: FileOff) -> Option<Va> {
    let s = program
        .image
        .segments
        .iter()
        .find(|s| s.executable && offset.0 >= s.offset.0 && offset.0 - s.offset.0 < s.file_len)?;
    Some(s.range.start.plus(offset.0 - s.offset.0))
}

#[cfg(test)]
mod tests;

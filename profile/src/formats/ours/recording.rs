//! A recording, `.engraft`: what was counted of one run, of all modules, and what they are, so that it can be
//! looked at without them.
//!
//! ```text
//! file     = magic version section* end checksum
//! magic    = "ENGRAFT\0"
//! version  = u8, 2
//! section  = tag: u8, body: bytes, sum: u64, little-endian: XXH3 of the section before it
//! end      = u8, 0
//! checksum = u64, little-endian: XXH3 of all bytes before it
//! bytes    = length: varint, that many bytes
//! ```
//! | tag | body |
//! | --- | --- |
//! | `R` | of the run ([`Run`]), as JSON; at most one |
//! | `N` | how many modules follow: varint |
//! | `M` | a module: its profile: bytes (`engraft`); its excerpt: bytes, or none |
//! | `T` | a thread: profiles, how many: varint, that many times: bytes |
//!
//! The first module is the executable; the images' names are the paths they were loaded from. An excerpt is
//! [`program::Excerpt`] as postcard writes it, compressed: version: u8, 1; length: varint; zstd. Sections of
//! other tags are kept as they are: a measurement has its own.
//!
//! Version 1 is read too: a profile alone (kind `P`, which `engraft` describes), or profiles of a run: kind
//! `R`, then their number: varint, that many times bytes; perhaps the number of threads and those of each.
#![warn(clippy::indexing_slicing)]

mod run;
mod sections;

pub use sections::{Section, SectionReader, SectionWriter};

pub use run::{Attached, Died, End, LeftOut, Machine, Others, Resident, Run, Stayed};

use crate::counts::Profile;
use crate::encoding::{Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::formats::ours::engraft;
use crate::vocabulary::{Context, Format, ReadError};
use program::Excerpt;
use std::io::{self, Read as _, Write};
use xxhash_rust::xxh3::xxh3_64;

/// How a raw recording starts: the memory that a counted program counted in. It is no profile yet: who knows
/// what the counters mean makes one of it.
pub const RAW_MAGIC: &[u8; 8] = b"ENGRAFT\x02";

/// The version that is written.
const RECORDING_VERSION: u8 = 2;
/// The version of excerpts.
const EXCERPT_VERSION: u8 = 1;
/// More than this times its compressed length no excerpt has.
const MOST_EXPANSION: u64 = 1 << 12;
/// Half the time of zstd's own default, and a few per cent more bytes.
const LEVEL: i32 = 1;

/// Of the run.
pub(crate) const RUN: u8 = b'R';
const N_MODULES: u8 = b'N';
const MODULE: u8 = b'M';
const THREAD: u8 = b'T';
const END: u8 = 0;

/// What was counted of a run.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Recording {
    /// Which run; `None` if the file does not say.
    pub run: Option<Run>,
    /// Its modules, the executable first.
    pub modules: Vec<Module>,
    /// The profiles of each thread, if they were kept apart.
    pub threads: Vec<Vec<Profile>>,
    /// Sections of measurements that have their own: tag, body.
    pub sections: Vec<(u8, Vec<u8>)>,
}

/// A module that was counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Module {
    /// Its counts.
    pub profile: Profile,
    /// What was kept of its code, written; nothing, if nothing was.
    excerpt: Vec<u8>,
}

impl Module {
    /// With these counts, and what is to be kept of its code.
    pub fn new(profile: Profile, excerpt: Option<&Excerpt>) -> Module {
        Module { profile, excerpt: excerpt.map(packed).unwrap_or_default() }
    }

    /// Other counts of the same code.
    pub fn with_counts(&self, profile: Profile) -> Module {
        Module { profile, excerpt: self.excerpt.clone() }
    }

    /// Whether something was kept of its code.
    pub fn has_code(&self) -> bool {
        !self.excerpt.is_empty()
    }

    /// Adds the counts of `other`, of the same image, and its code; without, what both kept is no more all
    /// that ran, and is dropped.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if what was kept cannot be read.
    pub fn add(&mut self, other: Module) -> Result<(), ReadError> {
        self.profile.add(&other.profile);
        self.excerpt = match (self.excerpt()?, other.excerpt()?) {
            (Some(mut own), Some(others)) => {
                own.add(others);
                packed(&own)
            }
            _ => Vec::new(),
        };
        Ok(())
    }

    /// What was kept of its code.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if that cannot be read.
    pub fn excerpt(&self) -> Result<Option<Excerpt>, ReadError> {
        if self.excerpt.is_empty() { Ok(None) } else { unpacked(&self.excerpt).map(Some) }
    }
}

fn packed(excerpt: &Excerpt) -> Vec<u8> {
    let bytes = postcard::to_stdvec(excerpt).expect("all of it has a form");
    let mut out = vec![EXCERPT_VERSION];
    varint(&mut out, bytes.len() as u64);
    out.extend(zstd::encode_all(bytes.as_slice(), LEVEL).expect("memory is written to"));
    out
}

fn unpacked(bytes: &[u8]) -> Result<Excerpt, ReadError> {
    let mut c = Cursor::within(bytes);
    if c.byte()? != EXCERPT_VERSION {
        return Err(c.damaged("another version of engraft kept code in it"));
    }
    let len = c.varint()?;
    let packed = bytes.get(c.at()..).unwrap_or_default();
    if len > (packed.len() as u64).saturating_mul(MOST_EXPANSION) {
        return Err(c.damaged("code in it is longer than can be"));
    }
    let mut plain = Vec::new();
    let decoder = zstd::Decoder::new(packed).map(|decoder| decoder.take(len));
    let read = decoder.and_then(|mut decoder| decoder.read_to_end(&mut plain));
    read.map_err(|_| c.damaged("code in it cannot be unpacked"))?;
    postcard::from_bytes(&plain).map_err(|_| c.damaged("code in it cannot be read"))
}

/// Whether `bytes` start as a file of ours with counts, or as what a counted program leaves, perhaps of
/// another version. A single profile of version 1 is one, too.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) || bytes.starts_with(b"ENGRAFT") && matches!(bytes.get(7), Some(1..0x20))
}

/// Whether `file` is a recording, as far as it goes, that has a section of this tag.
pub fn has_section(file: &[u8], tag: u8) -> bool {
    let Some(mut c) = Cursor::behind_damaged(file, &head()) else { return false };
    loop {
        match c.byte() {
            Ok(END) | Err(_) => return false,
            Ok(found) if found == tag => return true,
            Ok(_) if c.bytes().is_err() || c.take(8).is_err() => return false,
            Ok(_) => {}
        }
    }
}

impl Recording {
    /// Of these profiles alone.
    pub fn of(profiles: impl IntoIterator<Item = Profile>) -> Recording {
        let modules = profiles.into_iter().map(|profile| Module::new(profile, None)).collect();
        Recording { modules, ..Recording::default() }
    }

    /// The profiles, in order.
    pub fn into_profiles(self) -> Vec<Profile> {
        self.modules.into_iter().map(|module| module.profile).collect()
    }

    /// As a file.
    pub fn write(&self) -> Vec<u8> {
        let sections = SectionWriter::new(Vec::new()).and_then(|to| self.write_behind(to));
        sections.expect("memory is written to")
    }

    /// Writes all of it behind the sections that `to` has, and the end.
    ///
    /// # Errors
    /// Those of whatever is written to.
    pub fn write_behind<W: Write>(&self, mut to: SectionWriter<W>) -> io::Result<W> {
        if let Some(run) = &self.run {
            to.section(RUN, &serde_json::to_vec(run).expect("all of it has a form"))?;
        }
        let mut n = Vec::new();
        varint(&mut n, self.modules.len() as u64);
        to.section(N_MODULES, &n)?;
        for module in &self.modules {
            let mut body = Vec::new();
            put_bytes(&mut body, &engraft::write(&module.profile).bytes);
            put_bytes(&mut body, &module.excerpt);
            to.section(MODULE, &body)?;
        }
        for thread in &self.threads {
            let mut body = Vec::new();
            varint(&mut body, thread.len() as u64);
            thread.iter().for_each(|profile| put_bytes(&mut body, &engraft::write(profile).bytes));
            to.section(THREAD, &body)?;
        }
        self.sections.iter().try_for_each(|(tag, body)| to.section(*tag, body))?;
        to.finish()
    }

    /// Reads one, of this version or of version 1.
    ///
    /// # Errors
    /// [`ReadError::Raw`] if it is what a counted program left, [`ReadError::Damaged`] if it is cut off,
    /// changed, or of a version that we do not know.
    pub fn parse(file: &[u8]) -> Result<Recording, ReadError> {
        if file.starts_with(RAW_MAGIC) {
            return Err(ReadError::Raw);
        }
        if !file.starts_with(&head()) {
            return parse_old(file);
        }
        let mut c = Cursor::behind(file, &head())?;
        let mut found = Found::default();
        while found.take(&mut c)? {}
        Ok(found.recording)
    }
}

fn head() -> Vec<u8> {
    [MAGIC.as_slice(), &[RECORDING_VERSION]].concat()
}

/// What was read so far.
#[derive(Default)]
struct Found {
    recording: Recording,
    n_modules: u64,
}

impl Found {
    /// Takes the next section, if there is one.
    fn take(&mut self, c: &mut Cursor<'_>) -> Result<bool, ReadError> {
        let from = c.at();
        let tag = c.byte()?;
        if tag == END {
            return Ok(false);
        }
        let body = c.bytes()?;
        let sum = xxh3_64(c.since(from));
        if c.take(8)? != sum.to_le_bytes() {
            return Err(c.damaged("a section's checksum is wrong"));
        }
        let mut inner = Cursor::within(body);
        match tag {
            RUN => {
                let run = serde_json::from_slice(body);
                self.recording.run = Some(run.map_err(|_| c.damaged("what it says of its run is wrong"))?);
            }
            N_MODULES => self.n_modules = inner.varint()?,
            MODULE => {
                let profile = engraft::parse(inner.bytes()?)?;
                self.recording.modules.push(Module { profile, excerpt: inner.bytes()?.to_vec() });
            }
            THREAD => {
                let n = inner.varint()?;
                let profiles = (0..n).map(|_| engraft::parse(inner.bytes()?));
                self.recording.threads.push(profiles.collect::<Result<_, _>>()?);
            }
            _ => self.recording.sections.push((tag, body.to_vec())),
        }
        Ok(true)
    }
}

/// Reads one of version 1: a profile, or profiles of a run.
fn parse_old(file: &[u8]) -> Result<Recording, ReadError> {
    if file.get(MAGIC.len()..MAGIC.len() + 2) != Some(&[VERSION, b'R']) {
        return engraft::parse(file).map(|profile| Recording::of([profile]));
    }
    let mut c = Cursor::open(file, b'R', "it is no recording")?;
    let mut recording = Recording::of(list(&mut c)?);
    if !c.is_at_end() {
        let n = c.varint()?;
        recording.threads = (0..n).map(|_| list(&mut c)).collect::<Result<_, _>>()?;
    }
    Ok(recording)
}

fn list(c: &mut Cursor<'_>) -> Result<Vec<Profile>, ReadError> {
    let n = c.varint()?;
    (0..n).map(|_| engraft::parse(c.bytes()?)).collect()
}

/// The profile of the program of `context` among those of a recording of `n_bytes`; without a program, of the
/// executable. One that is alone and does not say of which image it is is taken for it.
///
/// # Errors
/// [`ReadError::OtherImage`] if the only one is of another, [`ReadError::NotInIt`] if none of several is of
/// it, [`ReadError::Damaged`] if there is none at all.
pub fn choose(profiles: Vec<Profile>, context: &Context, n_bytes: usize) -> Result<Profile, ReadError> {
    let format = Format::Engraft;
    let Some(program) = context.program else {
        let what = "the recording is of no image".to_owned();
        return profiles.into_iter().next().ok_or(ReadError::Damaged { format, at: n_bytes, what });
    };
    if let [only] = profiles.as_slice() {
        return match only.image.id.filter(|id| *id != program.image.id) {
            Some(id) => Err(ReadError::OtherImage {
                profile: format!("{} ({id})", only.image.name),
                program: format!("{} ({})", program.image.name, program.image.id),
            }),
            None => Ok(only.clone()),
        };
    }
    let holds = profiles.iter().map(|p| p.image.name.clone()).collect();
    let found = profiles.into_iter().find(|p| p.image.id == Some(program.image.id));
    found.ok_or_else(|| ReadError::NotInIt { format, program: program.image.name.clone(), holds })
}

/// What is whole of a recording that is not: the profiles of some of its images.
#[derive(Debug)]
pub struct Whole {
    /// Those that are.
    pub recording: Recording,
    /// How many modules there were.
    pub n_images: u64,
}

/// What is whole of a recording that [`Recording::parse`] refuses.
pub fn whole_of(file: &[u8]) -> Option<Whole> {
    if let Some(mut c) = Cursor::behind_damaged(file, &head()) {
        let mut found = Found::default();
        while let Ok(true) = found.take(&mut c) {}
        let Found { recording, n_modules } = found;
        return Some(Whole { recording, n_images: n_modules });
    }
    let mut c = Cursor::behind_damaged(file, &[MAGIC.as_slice(), &[VERSION, b'R']].concat())?;
    let n_images = c.varint().ok()?;
    let mut profiles = Vec::new();
    for _ in 0..n_images {
        let Ok(bytes) = c.bytes() else { break };
        profiles.extend(engraft::parse(bytes).ok());
    }
    Some(Whole { recording: Recording::of(profiles), n_images })
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests;

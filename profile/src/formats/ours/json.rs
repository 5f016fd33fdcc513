//! JSON: all that a [`Profile`] holds, for programs in other languages.
//!
//! ```json
//! {"schema": "engraft.profile/1", "image": {"name": "a.out", "id": "…32 hex…", "build_id": "…hex…"},
//!  "exactness": "exact", "entries": [{"at": "0x1136", "count": 7}],
//!  "blocks": [{"at": "0x1136", "count": 9}],
//!  "edges": [{"from": "0x1136", "to": "0x1150", "count": 2, "mispredicts": 1}],
//!  "calls": [{"at": "0x1140", "callee": "0x1200", "count": 3}], "calls_out": [{"at": "0x1145", "count": 1}]}
//! ```
//! Where calls out led may follow: `"calls_beyond": [{"at": "0x1145", "image": "libc.so.6", "callee":
//! "0x1200", "count": 1}]`. Addresses are strings in hexadecimal, as in the ELF file: JSON's numbers end at
//! 2⁵³. `id`, `build_id` and `mispredicts` may be missing. Of entries, blocks and edges whose counts may be
//! off, since threads may have been stopped in the middle of a block, `at_least` and `at_most` are there,
//! too; `n_stopped` is how many threads may have been. `exactness` is `exact`, `sampled` or `inferred`.
//! Counts are numbers of up to 64 bits.

use crate::counts::{Beyond, ByAddress, Edge, Exactness, ImageRef, Intervals, Profile};
use crate::vocabulary::{Format, ReadError, Written};
use program::{ImageId, Va};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SCHEMA: &str = "engraft.profile/1";

#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    image: ImageView,
    exactness: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    n_stopped: u64,
    entries: Vec<Count>,
    blocks: Vec<Count>,
    edges: Vec<EdgeView>,
    calls: Vec<CallView>,
    calls_out: Vec<Count>,
    /// Missing if it is not known of any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls_beyond: Vec<BeyondView>,
}

/// Where a call that left the image led: with an image, an address in it; without, in the process; without
/// either, that is not known.
#[derive(Serialize, Deserialize)]
struct BeyondView {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callee: Option<String>,
    count: u64,
}

#[derive(Serialize, Deserialize)]
struct ImageView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Count {
    at: String,
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Serialize, Deserialize)]
struct EdgeView {
    from: String,
    to: String,
    /// Missing if only mispredictions are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mispredicts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct CallView {
    at: String,
    callee: String,
    count: u64,
}

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"engraft.profile/")
}

/// Writes all of `profile`.
pub fn write(profile: &Profile) -> Written {
    let row = |(at, &count): (&Va, &u64), intervals: &BTreeMap<Va, (u64, u64)>| {
        let (at_least, at_most) = intervals.get(at).copied().unzip();
        Count { at: at.to_string(), count, at_least, at_most }
    };
    let counts = |counts: &ByAddress, intervals: &BTreeMap<Va, (u64, u64)>| {
        counts.iter().map(|count| row(count, intervals)).collect()
    };
    let intervals = &profile.intervals;
    let mut edges: Vec<Edge> = profile.edges.keys().chain(profile.mispredicts.keys()).copied().collect();
    edges.sort_unstable();
    edges.dedup();
    let file = File {
        schema: SCHEMA.to_owned(),
        image: ImageView {
            name: profile.image.name.clone(),
            id: profile.image.id.map(|id| id.to_string()),
            build_id: profile.image.build_id.as_deref().map(hex),
        },
        exactness: match profile.exactness {
            Exactness::Exact => "exact",
            Exactness::Sampled => "sampled",
            Exactness::Inferred => "inferred",
        }
        .to_owned(),
        n_stopped: intervals.n_stopped,
        entries: counts(&profile.entries, &intervals.entries),
        blocks: counts(&profile.blocks, &intervals.blocks),
        edges: edges
            .into_iter()
            .map(|e| EdgeView {
                from: e.from.to_string(),
                to: e.to.to_string(),
                count: profile.edges.get(&e).copied(),
                mispredicts: profile.mispredicts.get(&e).copied(),
                at_least: intervals.edges.get(&e).map(|n| n.0),
                at_most: intervals.edges.get(&e).map(|n| n.1),
            })
            .collect(),
        calls: profile
            .calls
            .iter()
            .map(|((at, callee), &count)| CallView { at: at.to_string(), callee: callee.to_string(), count })
            .collect(),
        calls_out: profile.calls_out.iter().map(|count| row(count, &BTreeMap::new())).collect(),
        calls_beyond: profile
            .calls_beyond
            .iter()
            .map(|((at, to), &count)| {
                let (image, callee) = match to {
                    Beyond::Image(name, to) => (Some(name.clone()), Some(to.to_string())),
                    Beyond::Process(to) => (None, Some(Va(*to).to_string())),
                    Beyond::Unknown => (None, None),
                };
                BeyondView { at: at.to_string(), image, callee, count }
            })
            .collect(),
    };
    let mut bytes = serde_json::to_vec(&file).expect("strings and numbers can always be written");
    bytes.push(b'\n');
    Written { bytes, n_functions: profile.entries.len(), count: profile.total(), lost: Vec::new() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Reads one.
///
/// # Errors
/// [`ReadError::BadLine`] with the line at which it is not as described above.
pub fn parse(bytes: &[u8]) -> Result<Profile, ReadError> {
    let bad = |line: usize, what: String| ReadError::BadLine { format: Format::Json, line, what };
    let file: File = serde_json::from_slice(bytes).map_err(|err| bad(err.line(), err.to_string()))?;
    if file.schema != SCHEMA {
        return Err(bad(1, format!("its schema is {:?}, we read {SCHEMA:?}", file.schema)));
    }
    let va = |text: &str| {
        let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.map(Va).ok_or_else(|| bad(1, format!("{text:?} is no address: 0x and hexadecimal digits")))
    };
    let intervals = |rows: &[Count]| {
        let all = rows.iter().filter_map(|c| Some((&c.at, c.at_least.zip(c.at_most)?)));
        all.map(|(at, interval)| Ok((va(at)?, interval))).collect::<Result<BTreeMap<_, _>, _>>()
    };
    let intervals = Intervals {
        n_stopped: file.n_stopped,
        entries: intervals(&file.entries)?,
        blocks: intervals(&file.blocks)?,
        edges: BTreeMap::new(),
        calls: BTreeMap::new(),
    };
    let counts = |rows: Vec<Count>| {
        rows.iter().map(|c| Ok((va(&c.at)?, c.count))).collect::<Result<Vec<_>, ReadError>>()
    };
    let id = file.image.id.as_deref().map(|id| {
        u128::from_str_radix(id, 16).map(ImageId).map_err(|_| bad(1, format!("{id:?} is no image id")))
    });
    let build_id = file
        .image
        .build_id
        .as_deref()
        .map(|id| unhex(id).ok_or_else(|| bad(1, format!("{id:?} is no build-id"))));
    let mut profile = Profile {
        image: ImageRef { name: file.image.name, id: id.transpose()?, build_id: build_id.transpose()? },
        exactness: match file.exactness.as_str() {
            "exact" => Exactness::Exact,
            "sampled" => Exactness::Sampled,
            "inferred" => Exactness::Inferred,
            other => return Err(bad(1, format!("{other:?} is no exactness"))),
        },
        entries: counts(file.entries)?.into_iter().collect(),
        blocks: counts(file.blocks)?.into_iter().collect(),
        calls_out: counts(file.calls_out)?.into_iter().collect(),
        intervals,
        ..Profile::default()
    };
    for e in file.edges {
        let edge = Edge { from: va(&e.from)?, to: va(&e.to)? };
        profile.edges.extend(e.count.map(|n| (edge, n)));
        profile.intervals.edges.extend(e.at_least.zip(e.at_most).map(|n| (edge, n)));
        profile.mispredicts.extend(e.mispredicts.map(|n| (edge, n)));
    }
    for c in file.calls_beyond {
        let to = match (c.image, c.callee) {
            (Some(image), Some(to)) => Beyond::Image(image, va(&to)?),
            (None, Some(to)) => Beyond::Process(va(&to)?.0),
            (_, None) => Beyond::Unknown,
        };
        profile.calls_beyond.insert((va(&c.at)?, to), c.count);
    }
    for c in file.calls {
        profile.calls.insert((va(&c.at)?, va(&c.callee)?), c.count);
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn a_file_of_schema_1_is_read_as_it_was_written() {
        let golden = include_str!("json/profile-v1.json");
        assert_eq!(parse(golden.as_bytes()).unwrap(), sample());
        assert_eq!(String::from_utf8(write(&sample()).bytes).unwrap(), golden);
    }

    #[test]
    fn what_is_not_as_described_is_refused() {
        let golden = include_str!("json/profile-v1.json");
        for (from, to, want) in [
            (
                "profile/1",
                "profile/2",
                "line 1 is no json record: its schema is \"engraft.profile/2\", we read \"engraft.profile/1\"",
            ),
            (
                "\"0x1000\"",
                "4096",
                "line 1 is no json record: invalid type: integer `4096`, expected a string at line 1",
            ),
            (
                "\"0x1000\"",
                "\"1000\"",
                "line 1 is no json record: \"1000\" is no address: 0x and hexadecimal digits",
            ),
            ("exact\"", "real\"", "line 1 is no json record: \"real\" is no exactness"),
            ("abcd", "abc", "line 1 is no json record: \"abc\" is no build-id"),
        ] {
            let got = parse(golden.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(got.starts_with(want), "{got}");
        }
    }
}

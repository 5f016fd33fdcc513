//! JSON: all that a [`Profile`] holds, for programs in other languages.
//!
//! ```json
//! {"schema": "engraft.profile/1", "image": {"name": "a.out", "id": "…32 hex…", "build_id": "…hex…"},
//!  "exactness": "exact", "entries": [{"at": "0x1136", "count": 7}], "blocks": [{"at": "0x1136", "count": 9}],
//!  "edges": [{"from": "0x1136", "to": "0x1150", "count": 2, "mispredicts": 1}],
//!  "calls": [{"at": "0x1140", "callee": "0x1200", "count": 3}], "calls_out": [{"at": "0x1145", "count": 1}]}
//! ```
//! Addresses are strings in hexadecimal, as in the ELF file: JSON's numbers end at 2⁵³. `id`, `build_id` and
//! `mispredicts` may be missing. `exactness` is `exact`, `sampled` or `inferred`. Counts are numbers of up to 64 bits.

use crate::counts::{Edge, Exactness, ImageRef, Profile};
use crate::format::{Format, ReadError, Written};
use program::{ImageId, Va};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SCHEMA: &str = "engraft.profile/1";

#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    image: ImageView,
    exactness: String,
    entries: Vec<Count>,
    blocks: Vec<Count>,
    edges: Vec<EdgeView>,
    calls: Vec<CallView>,
    calls_out: Vec<Count>,
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
    let counts = |map: &BTreeMap<Va, u64>| {
        map.iter().map(|(at, &count)| Count { at: at.to_string(), count }).collect()
    };
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
        entries: counts(&profile.entries),
        blocks: counts(&profile.blocks),
        edges: edges
            .into_iter()
            .map(|e| EdgeView {
                from: e.from.to_string(),
                to: e.to.to_string(),
                count: profile.edges.get(&e).copied(),
                mispredicts: profile.mispredicts.get(&e).copied(),
            })
            .collect(),
        calls: profile
            .calls
            .iter()
            .map(|((at, callee), &count)| CallView { at: at.to_string(), callee: callee.to_string(), count })
            .collect(),
        calls_out: counts(&profile.calls_out),
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
    let counts = |rows: Vec<Count>| {
        rows.iter().map(|c| Ok((va(&c.at)?, c.count))).collect::<Result<BTreeMap<_, _>, _>>()
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
        entries: counts(file.entries)?,
        blocks: counts(file.blocks)?,
        calls_out: counts(file.calls_out)?,
        ..Profile::default()
    };
    for e in file.edges {
        let edge = Edge { from: va(&e.from)?, to: va(&e.to)? };
        profile.edges.extend(e.count.map(|n| (edge, n)));
        profile.mispredicts.extend(e.mispredicts.map(|n| (edge, n)));
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

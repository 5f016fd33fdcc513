//! Language-specific data of moved code: which call lands where when it throws.
//!
//! Call sites are written with the moved addresses, landing pads relative to the lowest of them, since a pad
//! may have moved away from its function. Actions and filters are copied; pointers to types are written anew,
//! relative to where they now stand.
//!
//! Source: Itanium C++ ABI, exception handling, level II; gcc's `unwind-pe.h` for the encodings.
#![warn(clippy::indexing_slicing)]

use crate::bytes::{Reader, put_distance, put_uleb, set_distance};
use crate::code::Side;
use crate::layout::place::Placed;
use program::Va;
use program::image::Image;
use std::ops::Range;

const OMIT: u8 = 0xff;
const PCREL_SDATA4: u8 = 0x1b;
const UDATA4: u8 = 0x03;
const INDIRECT: u8 = 0x80;

/// A table, with the places in it that hold distances to addresses.
pub struct Lsda {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Offsets of four-byte distances, from that place to the address.
    pub relocated: Vec<(usize, Va)>,
}

struct Site {
    range: Range<Va>,
    pad: Option<Va>,
    action: u64,
}

/// The table at `at`, of the function that starts at `start`, for the moved part `covered`; `None` if it
/// cannot be understood.
pub fn translate(
    image: &Image,
    at: Va,
    start: Va,
    covered: &Range<Va>,
    placed: &Placed<'_>,
    pieces: &[Placed<'_>],
) -> Option<Lsda> {
    let bytes = image.bytes_from(at)?;
    let mut r = Reader::new(bytes, at, 0);
    let base_encoding = r.byte()?;
    let base = if base_encoding == OMIT { start } else { r.pointer(image, base_encoding)? };
    let type_encoding = r.byte()?;
    let types_at = if type_encoding == OMIT {
        None
    } else {
        let distance = usize::try_from(r.uleb()?).ok()?;
        Some(r.position().checked_add(distance)?)
    };
    let site_encoding = r.byte()?;
    let sites_len = usize::try_from(r.uleb()?).ok()?;
    let actions_at = r.position().checked_add(sites_len)?;
    let mut sites = Vec::new();
    while r.position() < actions_at {
        let from = start.plus(plain(&mut r, site_encoding)?);
        let to = from.plus(plain(&mut r, site_encoding)?);
        let pad = plain(&mut r, site_encoding)?;
        let action = r.uleb()?;
        let pad = (pad != 0).then(|| base.plus(pad));
        let range = from.max(covered.start)..to.min(covered.end);
        if range.start < range.end {
            sites.extend(cut(Site { range, pad, action }, placed, pieces));
        }
    }
    let pads: Vec<Option<Va>> = sites
        .iter()
        .map(|s| {
            s.pad.map(|pad| {
                side(pieces, pad, placed.piece.block_with(s.range.start))
                    .unwrap_or_else(|| moved(pieces, pad))
            })
        })
        .collect();
    // One below the lowest, since a distance of zero says that there is no pad.
    let lowest = pads.iter().flatten().min().map_or(placed.at, |low| Va(low.0 - 1));
    let (actions, highest, filters) = match types_at {
        Some(types_at) => actions(bytes, actions_at, &sites, types_at)?,
        None => (actions(bytes, actions_at, &sites, bytes.len())?.0, 0, Vec::new()),
    };

    let mut table = Vec::new();
    let new_start = placed.map(covered.start);
    for (site, pad) in sites.iter().zip(&pads) {
        let (from, to) = (placed.map(site.range.start), placed.map(site.range.end));
        put_distance(&mut table, from.since(new_start));
        put_distance(&mut table, to.since(from));
        put_distance(&mut table, pad.map_or(0, |pad| pad.since(lowest)));
        put_uleb(&mut table, site.action);
    }
    let mut out = vec![PCREL_SDATA4];
    let mut relocated = vec![(out.len(), lowest)];
    out.extend([0; 4]);
    let new_type_encoding =
        if type_encoding == OMIT { OMIT } else { PCREL_SDATA4 | type_encoding & INDIRECT };
    out.push(new_type_encoding);
    if types_at.is_some() {
        // The distance to the types counts from behind itself, so its own length does not matter.
        let mut rest_len = 1 + uleb_len(table.len() as u64) + table.len() + actions.len();
        rest_len += 4 * highest;
        put_uleb(&mut out, rest_len as u64);
    }
    out.push(UDATA4);
    put_uleb(&mut out, table.len() as u64);
    out.extend(table);
    out.extend(actions);
    if let Some(types_at) = types_at {
        let width = width(type_encoding)?;
        for n in (1..=highest).rev() {
            let entry = types_at.checked_sub(n.checked_mul(width)?)?;
            let mut r = Reader::new(bytes, at, entry);
            let to = r.pointer(image, type_encoding & !INDIRECT)?;
            if to.0 != 0 {
                relocated.push((out.len(), to));
            }
            out.extend([0; 4]);
        }
        out.extend(filters);
    }
    out.resize(out.len().next_multiple_of(4), 0);
    Some(Lsda { bytes: out, relocated })
}

impl Lsda {
    /// Appends the table to `out`, which lies at `base`; returns its address.
    pub fn append(&self, out: &mut Vec<u8>, base: Va) -> Va {
        let from = out.len();
        out.extend(&self.bytes);
        for &(place, to) in &self.relocated {
            let here = base.plus((from + place) as u64);
            set_distance(out, from + place, to.since(here));
        }
        base.plus(from as u64)
    }
}

/// A number of the call-site table: an offset, never relative to anything.
fn plain(r: &mut Reader<'_>, encoding: u8) -> Option<u64> {
    Some(match encoding & 0x0f {
        0x01 => r.uleb()?,
        0x02 => u64::from(u16::from_le_bytes(*r.take(2)?.first_chunk()?)),
        0x03 | 0x0b => u64::from(u32::from_le_bytes(*r.take(4)?.first_chunk()?)),
        0x00 | 0x04 | 0x0c => u64::from_le_bytes(*r.take(8)?.first_chunk()?),
        _ => return None,
    })
}

fn width(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x03 | 0x0b => Some(4),
        0x02 | 0x0a => Some(2),
        _ => None,
    }
}

fn uleb_len(value: u64) -> usize {
    let mut bytes = Vec::new();
    put_uleb(&mut bytes, value);
    bytes.len()
}

/// The piece that has `old`.
fn piece<'a>(pieces: &'a [Placed<'a>], old: Va) -> Option<&'a Placed<'a>> {
    let i = pieces.partition_point(|p| p.piece.range.end <= old);
    pieces.get(i).filter(|p| p.piece.range.contains(&old))
}

/// Where code of `old` now is: in its piece, or where it was.
fn moved(pieces: &[Placed<'_>], old: Va) -> Va {
    piece(pieces, old).map_or(old, |p| match p.piece.block_at(old) {
        Some(offset) => p.at.plus(u64::from(offset)),
        None => p.map(old),
    })
}

/// The code in front of `pad` for exceptions of the block at `from`, if there is some.
fn side(pieces: &[Placed<'_>], pad: Va, from: Option<Va>) -> Option<Va> {
    let (p, from) = (piece(pieces, pad)?, from?);
    let side = p.piece.sides.iter().find(|s| (s.0, s.1) == (pad, Side::Pad(from)))?;
    Some(p.at.plus(u64::from(side.2)))
}

/// `site`, in parts of one block each if some blocks have a way of their own to its pad.
fn cut(site: Site, placed: &Placed<'_>, pieces: &[Placed<'_>]) -> Vec<Site> {
    let has_sides = site.pad.and_then(|pad| Some((pad, piece(pieces, pad)?)));
    if has_sides.is_none_or(|(pad, p)| !p.piece.sides.iter().any(|s| s.0 == pad)) {
        return vec![site];
    }
    let blocks = placed.piece.blocks.iter().map(|b| b.0);
    let inner = blocks.filter(|b| site.range.start < *b && *b < site.range.end);
    let cuts: Vec<Va> = [site.range.start].into_iter().chain(inner).chain([site.range.end]).collect();
    cuts.windows(2)
        .filter_map(|w| Some(Site { range: *w.first()?..*w.get(1)?, pad: site.pad, action: site.action }))
        .collect()
}

/// The action table as far as `sites` reach into it, the highest number of a type it names, and the filters
/// behind the types.
fn actions(bytes: &[u8], at: usize, sites: &[Site], limit: usize) -> Option<(Vec<u8>, usize, Vec<u8>)> {
    let (mut end, mut highest, mut filters_end) = (at, 0, limit);
    let mut work: Vec<usize> = Vec::new();
    for site in sites.iter().filter(|s| s.action != 0) {
        work.push(at.checked_add(usize::try_from(site.action).ok()? - 1)?);
    }
    let mut seen = std::collections::BTreeSet::new();
    while let Some(record) = work.pop() {
        if !seen.insert(record) {
            continue;
        }
        let mut r = Reader::new(bytes, Va(0), record);
        let filter = r.sleb()?;
        let link_at = r.position();
        let link = r.sleb()?;
        end = end.max(r.position());
        if link != 0 {
            work.push(usize::try_from(i64::try_from(link_at).ok()?.checked_add(link)?).ok()?);
        }
        match filter {
            1.. => highest = highest.max(usize::try_from(filter).ok()?),
            0 => {}
            _ => {
                // A list of types that may pass, ended by zero, at this distance behind the types.
                let list = limit.checked_add(usize::try_from(-(filter + 1)).ok()?)?;
                let mut r = Reader::new(bytes, Va(0), list);
                loop {
                    let n = usize::try_from(r.uleb()?).ok()?;
                    highest = highest.max(n);
                    if n == 0 {
                        break;
                    }
                }
                filters_end = filters_end.max(r.position());
            }
        }
    }
    // Not more than there is room for.
    (highest <= limit / 2).then_some(())?;
    Some((bytes.get(at..end)?.to_vec(), highest, bytes.get(limit..filters_end)?.to_vec()))
}

//! Language-specific data of moved code: which call lands where when it throws.
//!
//! Call sites are written with the moved addresses, landing pads relative to the lowest of them, since a pad
//! may have moved away from its function. Actions and filters are copied; pointers to types are written anew,
//! relative to where they now stand.
//!
//! Source: Itanium C++ ABI, exception handling, level II; gcc's `unwind-pe.h` for the encodings.
#![warn(clippy::indexing_slicing)]

use crate::arch::emit::Stack;
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

/// What the head of an old table says.
struct Head {
    /// What landing pads count from.
    base: Va,
    type_encoding: u8,
    /// Offset of the end of the types, which count backwards from there, if there are any.
    types_at: Option<usize>,
    site_encoding: u8,
    /// Offsets of the call sites and of the actions behind them.
    sites_at: usize,
    actions_at: usize,
}

impl Head {
    /// That of the table `bytes` at `at`, of the function that starts at `start`.
    fn read(image: &Image, bytes: &[u8], at: Va, start: Va) -> Option<Head> {
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
        let sites_at = r.position();
        let actions_at = sites_at.checked_add(sites_len)?;
        Some(Head { base, type_encoding, types_at, site_encoding, sites_at, actions_at })
    }

    /// The call sites in `covered`, of the table `bytes`; cut where blocks have ways of their own to a pad.
    fn sites(
        &self,
        bytes: &[u8],
        start: Va,
        covered: &Range<Va>,
        placed: &Placed<'_>,
        pieces: &[Placed<'_>],
    ) -> Option<Vec<Site>> {
        let mut r = Reader::new(bytes, Va(0), self.sites_at);
        let mut sites = Vec::new();
        while r.position() < self.actions_at {
            let from = start.plus(plain(&mut r, self.site_encoding)?);
            let to = from.plus(plain(&mut r, self.site_encoding)?);
            let pad = plain(&mut r, self.site_encoding)?;
            let action = r.uleb()?;
            let pad = (pad != 0).then(|| self.base.plus(pad));
            let range = from.max(covered.start)..to.min(covered.end);
            if range.start < range.end {
                sites.extend(cut(Site { range, pad, action }, placed, pieces));
            }
        }
        Some(sites)
    }
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
    let head = Head::read(image, bytes, at, start)?;
    let sites = head.sites(bytes, start, covered, placed, pieces)?;
    let pad = |site: &Site| {
        let own = |pad| side(pieces, pad, placed.piece.block_with(site.range.start));
        site.pad.map(|pad| own(pad).unwrap_or_else(|| moved(pieces, pad)))
    };
    let pads: Vec<Option<Va>> = sites.iter().map(pad).collect();
    // One below the lowest, since a distance of zero says that there is no pad.
    let lowest = pads.iter().flatten().min().map_or(placed.at, |low| Va(low.0 - 1));
    let (actions, highest, filters) = match head.types_at {
        Some(types_at) => actions(bytes, head.actions_at, &sites, types_at)?,
        None => (actions(bytes, head.actions_at, &sites, bytes.len())?.0, 0, Vec::new()),
    };

    let table = call_sites(&sites, &pads, lowest, covered, placed);
    let mut out = vec![PCREL_SDATA4];
    let mut relocated = vec![(out.len(), lowest)];
    out.extend([0; 4]);
    out.push(match head.type_encoding {
        OMIT => OMIT,
        encoding => PCREL_SDATA4 | encoding & INDIRECT,
    });
    if head.types_at.is_some() {
        // The distance to the types counts from behind itself, so its own length does not matter.
        let rest_len = 1 + uleb_len(table.len() as u64) + table.len() + actions.len() + 4 * highest;
        put_uleb(&mut out, rest_len as u64);
    }
    out.push(UDATA4);
    put_uleb(&mut out, table.len() as u64);
    out.extend(table);
    out.extend(actions);
    if let Some(types_at) = head.types_at {
        let width = width(head.type_encoding)?;
        for n in (1..=highest).rev() {
            let entry = types_at.checked_sub(n.checked_mul(width)?)?;
            let mut r = Reader::new(bytes, at, entry);
            let to = r.pointer(image, head.type_encoding & !INDIRECT)?;
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

/// The table of `sites` in `covered`, whose moved landing pads are `pads`, counted from `lowest`. What is
/// thrown by calls that were jumps passes: where they stood, the function's frame was gone.
fn call_sites(
    sites: &[Site],
    pads: &[Option<Va>],
    lowest: Va,
    covered: &Range<Va>,
    placed: &Placed<'_>,
) -> Vec<u8> {
    let (start, end) = (placed.map(covered.start), placed.map(covered.end));
    let calls = calls_of_ours(placed).filter(|call| start <= call.start && call.end <= end);
    let calls: Vec<Range<Va>> = calls.collect();
    let landings = sites.iter().zip(pads).map(|(site, pad)| {
        let range = placed.map(site.range.start)..placed.map(site.range.end);
        (range, pad.map_or(0, |pad| pad.since(lowest)), site.action)
    });
    let all = if calls.is_empty() { landings.collect() } else { around(&calls, landings) };
    let mut table = Vec::new();
    for (range, pad, action) in all {
        put_distance(&mut table, range.start.since(start));
        put_distance(&mut table, range.end.since(range.start));
        put_distance(&mut table, pad);
        put_uleb(&mut table, action);
    }
    table
}

/// A row of a table of call sites: the code, the distance of its pad, or 0, and its action.
type Landing = (Range<Va>, u64, u64);

/// `landings`, which ascend, but that what is thrown in `calls` passes; ascending.
fn around(calls: &[Range<Va>], landings: impl Iterator<Item = Landing>) -> Vec<Landing> {
    let mut all: Vec<Landing> = calls.iter().map(|call| (call.clone(), 0, 0)).collect();
    for (range, pad, action) in landings {
        let mut from = range.start;
        for call in calls {
            if call.end <= from || range.end <= call.start {
                continue;
            }
            if from < call.start {
                all.push((from..call.start, pad, action));
            }
            from = call.end;
        }
        if from < range.end {
            all.push((from..range.end, pad, action));
        }
    }
    all.sort_by_key(|(range, ..)| range.start);
    all
}

/// Where calls are made of jumps, ascending.
fn calls_of_ours(placed: &Placed<'_>) -> impl Iterator<Item = Range<Va>> {
    let at = |offset: u32| placed.at.plus(u64::from(offset));
    let stack = &placed.piece.stack;
    let ends = stack.iter().skip(1).map(|next| next.0);
    let calls = stack.iter().zip(ends).filter(|(here, _)| matches!(here.1, Stack::Call(_)));
    calls.map(move |(here, end)| at(here.0)..at(end))
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

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use crate::arch::shared::PAGE;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::compiled;
    use program::{Program, Va};
    use std::collections::BTreeMap;

    const TEXT: &str = "
        #include <stdexcept>
        #include <string>
        int risky(int n) { if (n > 2) throw std::runtime_error(\"a\"); if (n > 1) throw n; return n; }
        int tries(int n) { std::string text(n, 'x'); try { return risky(n) + (int)text.size(); }
            catch (const std::exception &e) { return risky(n - 3); } catch (int i) { return i; } }
        int main(int n, char **v) { return tries(n); }";

    fn leb(bytes: &[u8], at: &mut usize) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// What the table of call sites at `at` says of a function that starts at `start`: from, to, landing pad,
    /// action. Of the forms that gcc writes, and we.
    ///
    /// Source: gcc, libgcc/unwind-c.c.
    fn sites(bytes: &[u8], at: Va, start: Va) -> Vec<(Va, Va, Option<Va>, u64)> {
        let mut i = 0;
        let base = match bytes[0] {
            0xff => start,
            0x1b => {
                let distance = i32::from_le_bytes(*bytes[1..].first_chunk().expect("four bytes"));
                i = 4;
                at.plus(1).plus(i64::from(distance).cast_unsigned())
            }
            other => panic!("form {other:x}"),
        };
        i += 1;
        let types = bytes[i];
        i += 1;
        if types != 0xff {
            leb(bytes, &mut i);
        }
        let form = bytes[i];
        i += 1;
        let len = usize::try_from(leb(bytes, &mut i)).expect("small");
        let end = i + len;
        let number = |i: &mut usize| match form {
            1 => leb(bytes, i),
            3 => {
                *i += 4;
                u64::from(u32::from_le_bytes(*bytes[*i - 4..].first_chunk().expect("four bytes")))
            }
            other => panic!("form {other:x}"),
        };
        let mut all = Vec::new();
        while i < end {
            let from = start.plus(number(&mut i));
            let to = from.plus(number(&mut i));
            let pad = number(&mut i);
            let action = leb(bytes, &mut i);
            all.push((from, to, (pad != 0).then(|| base.plus(pad)), action));
        }
        all
    }

    /// Each range with rows of language-specific data, and where these are: start of the code, of the data.
    fn tables(at: Va, bytes: &[u8]) -> BTreeMap<Va, Va> {
        use gimli::UnwindSection as _;
        let frames = gimli::EhFrame::new(bytes, gimli::LittleEndian);
        let bases = gimli::BaseAddresses::default().set_eh_frame(at.0);
        let mut entries = frames.entries(&bases);
        let mut all = BTreeMap::new();
        while let Some(entry) = entries.next().expect("an entry") {
            let gimli::CieOrFde::Fde(entry) = entry else { continue };
            let entry = entry.parse(gimli::EhFrame::cie_from_offset).expect("an entry");
            let data = entry.lsda().map(|data| data.direct().expect("no indirection"));
            all.extend(data.filter(|at| *at != 0).map(|at| (Va(entry.initial_address()), Va(at))));
        }
        all
    }

    /// What each moved call lands at when it throws, and by which action; by old addresses.
    fn landings(program: &Program, module: &Module<'_>) {
        let segments = module.to_segments().expect("it can be mapped");
        let page = usize::try_from(PAGE).expect("small");
        let new_at = Va(segments.tables_at + PAGE);
        let new = &segments.tables[page..];
        let n_rows = u32::from_le_bytes(*new[8..].first_chunk().expect("a header")) as usize;
        let rows_at = 12 + 8 * n_rows;
        let new_tables = tables(new_at.plus(rows_at as u64), &new[rows_at..]);
        let (old_at, old) = program.image.unwind_tables()[0];
        let old_tables = tables(old_at, old);
        let mut n_checked = 0;
        for (start, data) in old_tables {
            let old_sites = sites(program.image.bytes_from(data).expect("in the file"), data, start);
            let new_start = module.code_map.new_of(start).expect("it is moved");
            let new_data = new_tables[&new_start];
            let from = usize::try_from(new_data.since(new_at)).expect("in the tables");
            let new_sites = sites(&new[from..], new_data, new_start);
            for call in program.calls.iter() {
                let covers = |sites: &[(Va, Va, Option<Va>, u64)], at: Va| {
                    sites.iter().find(|s| s.0 <= at && at < s.1).map(|s| (s.2, s.3))
                };
                let Some((pad, action)) = covers(&old_sites, call.at) else { continue };
                let new_call = module.code_map.new_of(call.at).expect("it is moved");
                let new_pad = pad.map(|pad| module.code_map.new_of(pad).expect("it is moved"));
                let got = covers(&new_sites, new_call).expect("it is covered");
                assert_eq!(got.1 == 0, action == 0, "{}", call.at);
                // In front of the pad itself only a counter stands.
                assert_eq!(got.0, new_pad, "{}", call.at);
                n_checked += 1;
            }
        }
        assert!(n_checked > 3, "{n_checked}");
    }

    #[test]
    fn what_calls_in_place_of_jumps_throw_passes() {
        let range = |from: u64, to: u64| Va(from)..Va(to);
        let calls = [range(20, 30), range(40, 50), range(70, 80)];
        let landings = [(range(0, 10), 1, 1), (range(15, 60), 2, 3), (range(75, 90), 0, 0)];
        let want = [
            (range(0, 10), 1, 1),
            (range(15, 20), 2, 3),
            (range(20, 30), 0, 0),
            (range(30, 40), 2, 3),
            (range(40, 50), 0, 0),
            (range(50, 60), 2, 3),
            (range(70, 80), 0, 0),
            (range(80, 90), 0, 0),
        ];
        assert_eq!(super::around(&calls, landings.into_iter()), want);
    }

    #[test]
    fn a_call_that_throws_lands_where_it_did() {
        for plan in [Plan::NULL, Plan::BLOCKS] {
            let program = compiled(TEXT, "cc", "-O1 -fno-inline -Wl,--no-as-needed -lstdc++");
            let module = Module::build(&program, &plan, Room::Behind).expect("it can be moved");
            landings(&program, &module);
        }
    }
}

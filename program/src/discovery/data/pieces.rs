//! Cutting a region into objects, and what their bytes look like.

use super::regions::Region;
use super::{Mark, object};
use crate::addr::Va;
use crate::image::{Image, RelocationTo, Symbol};
use crate::model::DataObject;
use std::ops::Range;

/// An object that a symbol or a jump table vouches for.
#[derive(Clone, Debug)]
pub struct Fixed<'a> {
    pub range: Range<Va>,
    pub name: Option<&'a Symbol>,
    pub table: bool,
}

/// Padding before an object is below this: no compiler aligns data further.
const MOST_ALIGNMENT: u64 = 64;
/// gcc and clang align tables of at least this many bytes to as many.
const TABLE_ALIGNMENT: u64 = 32;
/// Strings that nothing refers to are believed from this many bytes on.
const LEAST_TEXT: usize = 4;

/// Objects of one region, by address.
///
/// `joined`: strings end in zero bytes, so a reference into one (its tail is shared) does not cut it.
pub fn cut(
    image: &Image,
    region: &Region,
    marks: &[Mark],
    fixed: &[Fixed<'_>],
    joined: bool,
) -> Vec<DataObject> {
    let mut out = Vec::new();
    let mut at = region.range.start;
    let mut marks = marks.iter().copied().peekable();
    for f in fixed.iter().map(Some).chain([None]) {
        let stop = f.map_or(region.range.end, |f| f.range.start);
        // What stands first in a section is an object even if nothing is known to refer to it.
        let first = (at == region.range.start && !region.in_code).then_some(Mark { at, size: 0 });
        let mut free: Vec<Mark> = Vec::new();
        free.extend(first.filter(|m| marks.peek().is_none_or(|n| n.at != m.at) && m.at < stop));
        while let Some(m) = marks.next_if(|m| m.at < stop) {
            if m.at >= at {
                free.push(m);
            }
        }
        between(image, region, &free, stop, joined, &mut out);
        let Some(f) = f else { break };
        // A symbol without a size goes to whatever comes next.
        let next = marks.clone().find(|m| m.at > f.range.start).map_or(region.range.end, |m| m.at);
        let next_fixed = fixed.get(fixed.partition_point(|g| g.range.start <= f.range.start));
        let limit = next_fixed.map_or(region.range.end, |g| g.range.start);
        let end =
            if f.range.end > f.range.start { f.range.end } else { next }.min(limit).min(region.range.end);
        if end > f.range.start {
            out.push(object(image, f.range.start..end, Some(f), region.zero));
            at = end;
        }
    }
    out
}

/// Objects that start at `marks`, the last of them before `stop`.
fn between(
    image: &Image,
    region: &Region,
    marks: &[Mark],
    stop: Va,
    joined: bool,
    out: &mut Vec<DataObject>,
) {
    let mut done = Va(0);
    for (i, m) in marks.iter().enumerate() {
        if m.at < done {
            continue;
        }
        let next = marks.get(i + 1).map_or(stop, |n| n.at);
        if region.zero {
            out.push(object(image, m.at..next, None, true));
            continue;
        }
        if region.words {
            let end = m.at.plus(8).min(next);
            out.push(object(image, m.at..end, None, false));
            continue;
        }
        let m = Mark { at: after_step(image, *m, next), size: m.size };
        let bytes = image.bytes_in(&(m.at..stop)).unwrap_or_default();
        let own = usize::try_from(next.since(m.at)).unwrap_or(0).min(bytes.len());
        let (own, _) = bytes.split_at(own);
        // Pointers and numbers may look like short texts: look at the string only if it is nothing wider.
        let start = bytes.get(..4096).unwrap_or(bytes);
        if joined
            && m.size <= 1
            && text_len(own).is_none()
            // Tails of strings lie anywhere, other objects rather at multiples of their size.
            && !next.0.is_multiple_of(8)
            && let Some(len) = text_len(start).filter(|&len| !has_pointer(image, &(m.at..m.at.plus(len as u64))))
        {
            done = m.at.plus(len as u64 + 1);
            out.push(object(image, m.at..done, None, false));
            continue;
        }
        pieces(image, m, own, next, out);
    }
}

/// The object at `m`, whose bytes up to the `next` place are `own`: one thing with padding after it, or
/// strings in a row.
fn pieces(image: &Image, m: Mark, own: &[u8], next: Va, out: &mut Vec<DataObject>) {
    let pointers = has_pointer(image, &(m.at..m.at.plus(own.len() as u64)));
    let mut at = 0;
    let mut strings = Vec::new();
    while m.size <= 1 && !pointers && at < own.len() {
        let Some(len) = own.get(at..).and_then(text_len) else { break };
        // Nothing refers to the later ones: shorter texts are as likely numbers, or text of two bytes a
        // letter.
        if !strings.is_empty() && len < LEAST_TEXT {
            break;
        }
        strings.push(at..at + len + 1);
        at += len + 1;
        at += own.get(at..).unwrap_or_default().iter().take_while(|&&b| b == 0).count();
    }
    let first_len = strings.first().map_or(0, Range::len);
    if at >= own.len() && (first_len > 1 || own.len() == 1) {
        for s in strings {
            let range = m.at.plus(s.start as u64)..m.at.plus(s.end as u64);
            out.push(object(image, range, None, false));
        }
        return;
    }
    let zeros = own.iter().rev().take_while(|&&b| b == 0).count() as u64;
    let padding = zeros.min(alignment(next).min(MOST_ALIGNMENT) - 1);
    let unit = alignment(m.at).min(if pointers { 8 } else { 4 });
    let len = (own.len() as u64 - padding).next_multiple_of(unit).max(u64::from(m.size).max(1));
    let len = len.min(own.len() as u64);
    if len > 0 {
        out.push(object(image, m.at..m.at.plus(len), None, false));
    }
}

/// Texts that a table of 32-bit distances from itself, at `at`, leads to. clang makes such tables of strings.
pub fn by_distance<'a>(image: &'a Image, at: Va, next: Va) -> impl Iterator<Item = Va> + use<'a> {
    let bytes = if at.0.is_multiple_of(4) { image.bytes_in(&(at..next)) } else { None };
    let text = move |distance: &[u8; 4]| {
        let to = at.plus(i64::from(i32::from_le_bytes(*distance)).cast_unsigned());
        let before = image.bytes_from(Va(to.0.checked_sub(1)?))?;
        let (before, text) = before.get(..64).unwrap_or(before).split_first()?;
        (*before == 0 && !image.is_code(to) && text_len(text) != Some(0)).then_some(to)
    };
    let found = bytes.unwrap_or_default().as_chunks::<4>().0.iter().map_while(text);
    // One distance that happens to fit says nothing.
    let enough = found.clone().take(2).count() == 2;
    found.take_while(move |_| enough)
}

/// The largest power of two that divides the address.
fn alignment(at: Va) -> u64 {
    1 << at.0.trailing_zeros().min(63)
}

/// Where the object really starts: a loop that steps before it reads is given the address before its table.
fn after_step(image: &Image, m: Mark, next: Va) -> Va {
    let start = Va(m.at.0.next_multiple_of(TABLE_ALIGNMENT));
    let step = start.since(m.at);
    // At fixed addresses the step is folded into the displacement, whatever the size of an element.
    let most = if image.kind.is_relocated() { 8 } else { 24 };
    let stepped = (1..=most).contains(&step)
        && next.0.saturating_sub(start.0) >= TABLE_ALIGNMENT
        && image.bytes_in(&(m.at..start)).is_some_and(|b| b.iter().all(|&b| b == 0))
        && !has_pointer(image, &(m.at..start))
        && (image.relocation_at(start).is_some() || image.word_at(start).is_some_and(|w| w != 0));
    if stepped { start } else { m.at }
}

/// Whether the loader writes an address into `range`, or, in a file at fixed addresses, one stands there.
pub fn has_pointer(image: &Image, range: &Range<Va>) -> bool {
    let i = image.relocations.partition_point(|r| r.at < range.start);
    image.relocations.get(i).is_some_and(|r| r.at < range.end)
        || !image.kind.is_relocated() && words(image, range).next().is_some()
}

/// Length of the text at the start of `bytes`, which a zero byte must end. Text is UTF-8 without control
/// characters other than those that programs print.
pub fn text_len(bytes: &[u8]) -> Option<usize> {
    let len = memchr::memchr(0, bytes)?;
    let text = std::str::from_utf8(bytes.get(..len)?).ok()?;
    text.chars()
        .all(|c| {
            !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0b' | '\x0c' | '\x1b' | '\x07' | '\x08')
        })
        .then_some(len)
}

/// Whether the word at `at`, which holds `value`, is an address of this image or of an import.
pub fn is_pointer(image: &Image, at: Va, value: u64) -> bool {
    match image.relocation_at(at) {
        Some(r) => r.to != RelocationTo::Other,
        None => !image.kind.is_relocated() && image.segment_at(Va(value)).is_some(),
    }
}

/// The aligned words of `range` that hold an address of a segment, with that address. For files at fixed
/// addresses.
pub fn words<'a>(image: &'a Image, range: &Range<Va>) -> impl Iterator<Item = (Va, Va)> + use<'a> {
    let start = Va(range.start.0.next_multiple_of(8));
    let bytes = image.bytes_in(&(start..range.end.max(start))).unwrap_or_default();
    let word = move |(i, w): (usize, &[u8; 8])| (start.plus(8 * i as u64), Va(u64::from_le_bytes(*w)));
    bytes.as_chunks::<8>().0.iter().enumerate().map(word).filter(|w| image.segment_at(w.1).is_some())
}

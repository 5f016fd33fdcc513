//! Entries of `.eh_frame`, read and written: those that several rows have in common (CIE), and rows (FDE).
//!
//! Source: LSB 5.0, 10.6.

use crate::arch::{LAST_FRAME, SIGNAL_FRAME};
use crate::bytes::{Reader, put_distance, put_uleb, set_distance};
use crate::image::lsda::Lsda;
use program::Va;
use program::image::Image;
use std::ops::Range;

const PCREL_SDATA4: u8 = 0x1b;
const OMIT: u8 = 0xff;
const DW_CFA_EXPRESSION: u8 = 0x10;

/// A common entry, as read.
pub struct Common {
    /// Everything behind the length and the id, with the augmentation data set apart.
    version: u8,
    augmentation: Vec<u8>,
    /// What distances in instructions are multiples of.
    pub code_align: u64,
    data_align: Vec<u8>,
    return_register: Vec<u8>,
    pointer: u8,
    lsda: u8,
    personality: Option<(u8, Va)>,
    /// What holds at the start of each row.
    pub instructions: Vec<u8>,
    /// Whether all of its augmentation is understood.
    pub known: bool,
}

/// Where the entry at `offset` ends, and where its id stands; `None` at the end of the table.
pub fn entry_bounds(bytes: &[u8], offset: usize) -> Option<(usize, usize)> {
    let len = u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?);
    match len {
        0 => None,
        0xffff_ffff => {
            let len = u64::from_le_bytes(*bytes.get(offset.checked_add(4)?..)?.first_chunk()?);
            let end = offset.checked_add(12)?.checked_add(usize::try_from(len).ok()?)?;
            (end <= bytes.len()).then_some((end, offset + 12))
        }
        0xffff_fff0.. => None,
        _ => {
            let end = offset.checked_add(4)?.checked_add(len as usize)?;
            (end <= bytes.len() && len >= 4).then_some((end, offset + 4))
        }
    }
}

impl Common {
    /// The one at offset `at` of `table`, which lies at `base`.
    pub fn read(image: &Image, base: Va, table: &[u8], at: usize) -> Option<Common> {
        let (end, id_at) = entry_bounds(table, at)?;
        let mut r = Reader::new(table.get(..end)?, base, id_at + 4);
        let version = r.byte()?;
        let augmentation = r.until_zero()?.to_vec();
        let code_align = r.uleb()?;
        let data_align = r.raw_leb()?.to_vec();
        let return_register = if version == 1 { vec![r.byte()?] } else { r.raw_leb()?.to_vec() };
        let (mut pointer, mut lsda, mut personality, mut known) = (0, OMIT, None, true);
        match augmentation.split_first() {
            None => {}
            Some((b'z', rest)) => {
                let len = usize::try_from(r.uleb()?).ok()?;
                let behind = r.position().checked_add(len)?;
                for c in rest {
                    match c {
                        b'R' => pointer = r.byte()?,
                        b'L' => lsda = r.byte()?,
                        b'P' => {
                            let encoding = r.byte()?;
                            personality = Some((encoding, r.pointer(image, encoding & 0x7f)?));
                        }
                        b'S' | b'B' => {}
                        // The data of one that is unknown have an unknown length, but all of them together
                        // are stepped over.
                        _ => {
                            known = false;
                            break;
                        }
                    }
                }
                r.seek(behind)?;
            }
            Some(_) => return None,
        }
        let instructions = r.rest().to_vec();
        Some(Common {
            version,
            augmentation,
            code_align,
            data_align,
            return_register,
            pointer,
            lsda,
            personality,
            instructions,
            known,
        })
    }
    /// Whether its rows have data of their own for a language.
    fn has_lsda(&self) -> bool {
        self.augmentation.first() == Some(&b'z') && self.lsda != OMIT
    }
}

/// A row, as read.
pub struct Row {
    /// The code it is about.
    pub range: Range<Va>,
    /// Where its language-specific data are.
    pub lsda: Option<Va>,
    /// What holds where.
    pub instructions: Vec<u8>,
}

impl Row {
    /// The one whose range stands at offset `at` of `table`, which lies at `base` and ends with it.
    pub fn read(image: &Image, base: Va, table: &[u8], at: usize, common: &Common) -> Option<Row> {
        let mut r = Reader::new(table, base, at);
        let start = r.pointer(image, common.pointer)?;
        let len = r.pointer(image, common.pointer & 0x0f)?.0;
        let mut lsda = None;
        if common.augmentation.first() == Some(&b'z') {
            let len = usize::try_from(r.uleb()?).ok()?;
            let behind = r.position().checked_add(len)?;
            if common.lsda != OMIT && len > 0 {
                lsda = r.pointer(image, common.lsda).filter(|l| l.0 != 0);
            }
            r.seek(behind)?;
        }
        let end = Va(start.0.checked_add(len)?);
        (len > 0).then(|| Row { range: start..end, lsda, instructions: r.rest().to_vec() })
    }
}

/// Entries that are written, and what they lead to.
#[derive(Default)]
pub struct Writer {
    /// The entries.
    pub out: Vec<u8>,
    /// Offsets of distances, and where they lead.
    pub relocated: Vec<(usize, Va)>,
    /// Offsets of distances to language-specific data.
    pub lsdas: Vec<(usize, Lsda)>,
}

impl Writer {
    /// Writes `common` with pointers that count from where they stand; returns its offset.
    pub fn common(&mut self, common: &Common) -> usize {
        let at = self.out.len();
        self.out.extend([0; 8]);
        self.out.push(common.version);
        // Without augmentation data there is no way to say how pointers are written: give it some.
        let letters: Vec<u8> = match common.augmentation.as_slice() {
            [] => b"zR".to_vec(),
            letters if letters.contains(&b'R') => letters.to_vec(),
            letters => [letters, b"R"].concat(),
        };
        self.out.extend(&letters);
        self.out.push(0);
        put_uleb(&mut self.out, 1);
        self.out.extend(&common.data_align);
        self.out.extend(&common.return_register);
        let mut data = Vec::new();
        let mut place = None;
        for c in &letters {
            match c {
                b'R' => data.push(PCREL_SDATA4),
                b'L' => data.push(if common.lsda == OMIT { OMIT } else { PCREL_SDATA4 }),
                b'P' => {
                    let (encoding, to) =
                        common.personality.expect("one that is known has what its letters say");
                    data.push(PCREL_SDATA4 | encoding & 0x80);
                    place = Some((data.len(), to));
                    data.extend([0; 4]);
                }
                _ => {}
            }
        }
        put_uleb(&mut self.out, data.len() as u64);
        if let Some((place, to)) = place {
            self.relocated.push((self.out.len() + place, to));
        }
        self.out.extend(data);
        // Rows of the common part are at the entry: no distances in them.
        self.out.extend(&common.instructions);
        self.finish(at);
        at
    }

    /// Writes a row of `code`, by the common entry at `cie`; returns its offset.
    pub fn row(
        &mut self,
        common: &Common,
        cie: usize,
        code: &Range<Va>,
        lsda: Option<Lsda>,
        instructions: &[u8],
    ) -> usize {
        let at = self.start(cie, code);
        if common.has_lsda() {
            self.out.push(4);
            self.lsdas.extend(lsda.map(|lsda| (self.out.len(), lsda)));
            self.out.extend([0; 4]);
        } else {
            self.out.push(0);
        }
        self.out.extend(instructions);
        self.finish(at);
        at
    }

    /// Writes `row` as it is.
    pub fn kept(&mut self, common: &Common, cie: usize, row: &Row) {
        let at = self.start(cie, &row.range);
        if common.has_lsda() {
            self.out.push(4);
            self.relocated.extend(row.lsda.map(|lsda| (self.out.len(), lsda)));
            self.out.extend([0; 4]);
        } else {
            self.out.push(0);
        }
        // In code units of the common entry that was written, which are bytes.
        self.out.extend(&row.instructions);
        self.finish(at);
    }

    /// Writes the row of what signal handlers return to, from `start` on, with a common entry of its own;
    /// returns its offset.
    pub fn signal_frame(&mut self, start: Va) -> usize {
        let frame = &SIGNAL_FRAME;
        let cie = self.own_common(b"\x01zRS\0\x01", &frame.columns, &[]);
        let at = self.start(cie, &(start..start.plus(u64::from(frame.len))));
        self.out.push(0);
        self.out.extend(frame.stack);
        for (column, offset) in frame.registers {
            let mut place = vec![frame.base];
            put_sleb_positive(&mut place, offset);
            self.out.extend([
                DW_CFA_EXPRESSION,
                column,
                u8::try_from(place.len()).expect("an offset is short"),
            ]);
            self.out.extend(place);
        }
        self.finish(at);
        at
    }

    /// Writes the row of what is called when the program ends; returns its offset.
    pub fn last_frame(&mut self, last: &Range<Va>) -> usize {
        let (.., own) = LAST_FRAME;
        self.called(last, &own)
    }

    /// Writes the row of code of ours that is called, with a common entry of its own; returns its offset.
    pub fn called(&mut self, code: &Range<Va>, own: &[u8]) -> usize {
        let (columns, common, _) = LAST_FRAME;
        let cie = self.own_common(b"\x01zR\0\x01", &columns, &common);
        let at = self.start(cie, code);
        self.out.push(0);
        self.out.extend(own);
        self.finish(at);
        at
    }

    /// Writes a common entry of ours; returns its offset.
    fn own_common(&mut self, head: &[u8], columns: &[u8], instructions: &[u8]) -> usize {
        let at = self.out.len();
        self.out.extend([0; 8]);
        self.out.extend(head);
        self.out.extend(columns);
        self.out.extend([1, PCREL_SDATA4]);
        self.out.extend(instructions);
        self.finish(at);
        at
    }

    /// Starts a row of `code` by the common entry at `cie`; returns its offset.
    fn start(&mut self, cie: usize, code: &Range<Va>) -> usize {
        let at = self.out.len();
        self.out.extend([0; 4]);
        put_distance(&mut self.out, (at + 4 - cie) as u64);
        self.relocated.push((self.out.len(), code.start));
        self.out.extend([0; 4]);
        put_distance(&mut self.out, code.end.since(code.start));
        at
    }

    /// Pads the entry at `at` and writes its length.
    fn finish(&mut self, at: usize) {
        self.out.resize(self.out.len().next_multiple_of(4), 0);
        let len = self.out.len() - at - 4;
        set_distance(&mut self.out, at, len as u64);
    }
}

fn put_sleb_positive(out: &mut Vec<u8>, n: u8) {
    match n {
        0..64 => out.push(n),
        _ => out.extend([n & 0x7f | 0x80, n >> 7]),
    }
}

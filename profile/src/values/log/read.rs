//! A log, read: a block of rows at a time.
#![warn(clippy::indexing_slicing)]

use super::column::decode;
use super::{BLOCK, CALLERS, Ended, Field, HEAD, MOST_ROWS, Part, TABLE, Table, VERSION};
use crate::encoding::Cursor;
use crate::recording::{Run, Section, SectionReader};
use crate::values::{Address, Calls, Column, Distribution, Place, SECTION, Values, len_bytes};
use crate::vocabulary::{Format, ReadError};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

/// The start of a block's section says which table it is of, and how many rows it has.
const BLOCK_START: usize = 20;

/// A log, in the file of its recording.
pub struct Log {
    file: File,
    /// Its tables, in the order of their numbers. One that has no row may be empty.
    pub tables: Vec<Table>,
    /// Where calls were made that return to an address.
    pub callers: HashMap<u64, Address>,
    /// How many bytes at the end are of no whole section: it was cut off there.
    pub n_bytes_cut: Option<u64>,
    blocks: Vec<(usize, u64, Section)>,
    values: Option<Section>,
    run: Option<Section>,
}

/// Rows of a table.
pub struct Block {
    n_rows: usize,
    columns: Vec<(Part, usize, Vec<u64>)>,
}

impl Log {
    /// The log of the recording in `file`; `None` if it has none.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if it cannot be read, or its tables are wrong. That its end is cut off is none.
    pub fn open(file: File) -> Result<Option<Log>, ReadError> {
        let Ok(mut sections) = SectionReader::new(&file) else { return Ok(None) };
        let damaged =
            |what: &str| ReadError::Damaged { format: Format::Engraft, at: 0, what: what.to_owned() };
        let head = sections.next_section()?.filter(|section| section.tag == HEAD);
        let Some(head) = head else { return Ok(None) };
        if head.body(&file)? != [VERSION] {
            return Err(damaged("another version of engraft kept a log in it"));
        }
        let (mut tables, mut blocks, mut callers) = (Vec::new(), Vec::new(), HashMap::new());
        let (mut values, mut run) = (None, None);
        while let Some(section) = sections.next_section()? {
            match section.tag {
                TABLE => {
                    let body = section.body(&file)?;
                    let mut c = Cursor::within(&body);
                    let n = c.len()?;
                    let table = postcard::from_bytes(body.get(c.at()..).unwrap_or_default());
                    let table: Table = table.map_err(|_| damaged("a table of the log cannot be read"))?;
                    tables.push((n, table));
                }
                BLOCK => {
                    let start = section.start(&file, BLOCK_START)?;
                    let mut c = Cursor::within(&start);
                    blocks.push((c.len()?, c.varint()?, section));
                }
                CALLERS => {
                    let unpacked = zstd::decode_all(section.body(&file)?.as_slice());
                    let unpacked = unpacked.map_err(|_| damaged("callers in it cannot be unpacked"))?;
                    let all: Vec<(u64, Address)> = postcard::from_bytes(&unpacked)
                        .map_err(|_| damaged("callers in it cannot be read"))?;
                    callers.extend(all);
                }
                SECTION => values = Some(section),
                crate::recording::RUN => run = Some(section),
                _ => {}
            }
        }
        let end = file.metadata().map_or(0, |meta| meta.len());
        let n_bytes_cut = (!sections.is_whole).then(|| end.saturating_sub(sections.n_bytes_whole()));
        // By number, as blocks have it.
        let numbers: HashMap<usize, usize> = tables.iter().enumerate().map(|(at, (n, _))| (*n, at)).collect();
        for block in &mut blocks {
            block.0 = *numbers.get(&block.0).ok_or_else(|| damaged("a block of the log is of no table"))?;
        }
        let tables = tables.into_iter().map(|(_, table)| table).collect();
        Ok(Some(Log { file, tables, callers, n_bytes_cut, blocks, values, run }))
    }

    /// How many rows a table has.
    pub fn n_rows(&self, table: usize) -> u64 {
        self.blocks.iter().filter(|block| block.0 == table).map(|block| block.1).sum()
    }

    /// The table of the calls of a function, or of a place, that was asked for in this place and has this
    /// name.
    pub fn table(&self, name: &str, asked: u32, is_place: bool) -> Option<usize> {
        let is_it = |table: &Table| table.name == name && table.is_place == is_place && table.asked == asked;
        self.tables.iter().position(is_it)
    }

    /// How many bytes the blocks of a table have in the file.
    pub fn n_bytes(&self, table: usize) -> u64 {
        self.blocks.iter().filter(|block| block.0 == table).map(|block| block.2.n_bytes()).sum()
    }

    /// The blocks of a table, in order, with these parts of its rows.
    pub fn blocks<'a>(
        &'a self,
        table: usize,
        parts: &'a [Part],
    ) -> impl Iterator<Item = Result<Block, ReadError>> + 'a {
        let of_it = self.blocks.iter().filter(move |block| block.0 == table);
        of_it.map(move |(_, _, section)| self.block(table, *section, parts))
    }

    fn block(&self, table: usize, section: Section, parts: &[Part]) -> Result<Block, ReadError> {
        let body = section.body(&self.file)?;
        let mut c = Cursor::within(&body);
        let (_, n_rows) = (c.varint()?, c.len()?);
        if n_rows > MOST_ROWS {
            return Err(c.damaged("a block of the log has too many rows"));
        }
        let mut columns = Vec::new();
        for (part, word) in self.tables.get(table).map(Table::layout).unwrap_or_default() {
            let mut column = Cursor::within(c.bytes()?);
            if parts.contains(&part) {
                columns.push((part, word, decode(&mut column, n_rows)?));
            }
        }
        Ok(Block { n_rows, columns })
    }

    /// What the recording says of values; of one that was cut off, what its rows come to.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if that cannot be read.
    pub fn values(&self) -> Result<Values, ReadError> {
        match self.values {
            Some(section) => Values::parse(&section.body(&self.file)?),
            None => self.values_of_rows(),
        }
    }

    /// What the recording says of its run; `None` if it was cut off.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if that cannot be read.
    pub fn run(&self) -> Result<Option<Run>, ReadError> {
        let body = self.run.map(|section| section.body(&self.file)).transpose()?;
        let read = body.map(|body| serde_json::from_slice(&body)).transpose();
        let what = "what it says of its run is wrong".to_owned();
        read.map_err(|_| ReadError::Damaged { format: Format::Engraft, at: 0, what })
    }

    /// The calls of a table, as the collector would have put them together: by what their rows have in the
    /// first word of `by`, or all under 0.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn groups(&self, table: usize, by: Option<Part>) -> Result<BTreeMap<u64, Calls>, ReadError> {
        let mut all = BTreeMap::new();
        let Some(kept) = self.tables.get(table) else { return Ok(all) };
        let none = || Calls {
            asked: kept.asked,
            function: kept.name.clone(),
            is_of_glob: kept.is_of_glob,
            addresses: kept.addresses.clone(),
            arguments: kept.arguments.iter().map(column).collect(),
            result: kept.result.as_ref().map(column),
            ..Calls::default()
        };
        let parts: Vec<Part> = kept.fields().map(|(part, _)| part).chain([Part::Ended]).chain(by).collect();
        let mut bytes = Vec::new();
        for block in self.blocks(table, &parts) {
            let block = block?;
            for row in 0..block.n_rows() {
                let calls = all.entry(by.map_or(0, |by| block.word(by, row))).or_insert_with(none);
                let ended = block.ended(row);
                calls.n_calls += 1;
                *match ended {
                    Ended::Result => &mut calls.n_results,
                    Ended::Left => &mut calls.n_left,
                    Ended::Open => &mut calls.n_open,
                } += 1;
                let columns = calls.arguments.iter_mut().chain(&mut calls.result);
                for ((part, _), column) in kept.fields().zip(columns) {
                    if part != Part::Result || ended == Ended::Result {
                        block.bytes(part, row, len_bytes(&column.kind), &mut bytes);
                        column.values.add(&bytes);
                    }
                }
            }
        }
        if by.is_none() {
            let _there = all.entry(0).or_insert_with(none);
        }
        Ok(all)
    }

    /// The values of all rows.
    fn values_of_rows(&self) -> Result<Values, ReadError> {
        let mut all = Values::default();
        for (n, table) in self.tables.iter().enumerate() {
            for calls in self.groups(n, None)?.into_values() {
                if table.is_place {
                    all.places.push(Place {
                        place: calls.function,
                        watched: None,
                        addresses: calls.addresses,
                        n: calls.n_calls,
                        columns: calls.arguments,
                    });
                } else {
                    all.calls.push(calls);
                }
            }
        }
        all.calls.sort_by(|a, b| (a.asked, &a.function).cmp(&(b.asked, &b.function)));
        Ok(all)
    }
}

impl Block {
    /// How many rows it has.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The first word of a part in all rows; nothing, if it was not read or there is none.
    pub fn words(&self, part: Part) -> &[u64] {
        self.columns.iter().find(|column| column.0 == part).map_or(&[], |column| &column.2)
    }

    /// The first word of a part in a row, 0 if there is none.
    pub fn word(&self, part: Part, row: usize) -> u64 {
        self.words(part).get(row).copied().unwrap_or(0)
    }

    /// How a call ended; what is no call has come by.
    pub fn ended(&self, row: usize) -> Ended {
        match self.word(Part::Ended, row) {
            0 => Ended::Result,
            1 => Ended::Left,
            _ => Ended::Open,
        }
    }

    /// All words of a row that were read, in order, in `out`.
    pub fn row(&self, row: usize, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self.columns.iter().map(|column| column.2.get(row).copied().unwrap_or(0)));
    }

    /// The `len` bytes of a value, in `out`.
    pub fn bytes(&self, part: Part, row: usize, len: usize, out: &mut Vec<u8>) {
        out.clear();
        for column in self.columns.iter().filter(|column| column.0 == part) {
            out.extend(column.2.get(row).copied().unwrap_or(0).to_le_bytes());
        }
        out.truncate(len);
    }
}

fn column(field: &Field) -> Column {
    Column {
        name: field.name.clone(),
        type_name: field.type_name.clone(),
        kind: field.kind.clone(),
        values: Distribution::default(),
    }
}

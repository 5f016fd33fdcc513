//! The rows of a log, put together: all of a table, or those that have something in common.

use super::{Ended, Field, Log, Part};
use crate::values::{Calls, Column, Distribution, len_bytes};
use crate::vocabulary::ReadError;
use std::collections::BTreeMap;

impl Log {
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
}

fn column(field: &Field) -> Column {
    Column {
        name: field.name.clone(),
        type_name: field.type_name.clone(),
        kind: field.kind.clone(),
        values: Distribution::default(),
    }
}

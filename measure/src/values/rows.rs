//! From records to the rows of a log: what a call was entered with is kept until it is known how it ended.

use super::bytes::Bytes;
use super::open::{Back, NO_ROW};
use profile::values::log::{Chosen, Ended, Field, LogWriter, Row, Table};
use profile::values::{Address, Calls, Column, Place};
use std::collections::{BTreeSet, HashMap};
use std::io;

/// The log of a run, in the making.
pub struct Rows {
    log: LogWriter,
    has_times: bool,
    chosen: Chosen,
    /// The tables of the log, by function as the collector numbers its rows, and by place.
    calls: HashMap<usize, usize>,
    places: HashMap<u32, usize>,
    /// The number of the thread that an area is of, and how many there were.
    threads: Vec<u32>,
    n_threads: u32,
    /// Calls that have not ended, by the number of their row, and numbers that none has now.
    open: Vec<Open>,
    free: Vec<u32>,
    callers: BTreeSet<u64>,
    /// Whether nobody wants to know them.
    is_without_callers: bool,
    /// What a recorded call costs those around it, in ticks that it is not said to take.
    cost_of_one: u64,
    last_caller: u64,
    result: Vec<u64>,
}

/// A call that has not ended.
#[derive(Default)]
struct Open {
    table: usize,
    thread: u32,
    index: u64,
    entered: Entered,
    /// How many ticks calls within it took.
    ticks_within: u64,
    /// And how many it cost to record them.
    cost_within: u64,
    arguments: Vec<u64>,
}

/// What else is known of a call when it is entered.
#[derive(Clone, Copy, Default)]
pub(super) struct Entered {
    /// The return address.
    pub(super) caller: u64,
    /// The time stamp counter.
    pub(super) stamp: u64,
}

/// What a log says of a column.
fn field(column: &Column) -> Field {
    let (name, type_name) = (column.name.clone(), column.type_name.clone());
    Field { name, type_name, kind: column.kind.clone() }
}

impl Rows {
    /// Of a log that is written there, with rows of those that are `chosen`; whether records have stamps.
    pub fn new(log: LogWriter, has_times: bool, chosen: Chosen) -> Rows {
        Rows {
            log,
            has_times,
            chosen,
            calls: HashMap::new(),
            places: HashMap::new(),
            threads: Vec::new(),
            n_threads: 0,
            open: Vec::new(),
            free: Vec::new(),
            callers: BTreeSet::new(),
            is_without_callers: false,
            cost_of_one: 0,
            last_caller: 0,
            result: Vec::new(),
        }
    }

    /// The same, but that it is not told who called: to find that out, modules are analysed.
    #[must_use]
    pub fn without_callers(self) -> Rows {
        Rows { is_without_callers: true, ..self }
    }

    /// The number of the thread that has the area now.
    fn thread(&mut self, area: usize) -> u32 {
        if self.threads.len() <= area {
            self.threads.resize(area + 1, 0);
        }
        let Some(thread) = self.threads.get_mut(area) else { return 0 };
        if *thread == 0 {
            self.n_threads += 1;
            *thread = self.n_threads;
        }
        *thread
    }

    /// The thread that had the area has ended.
    pub(super) fn end(&mut self, area: usize) {
        self.threads.get_mut(area).into_iter().for_each(|thread| *thread = 0);
    }

    /// Control came by at a place.
    pub(super) fn came_by(
        &mut self,
        area: usize,
        (n, place): (u32, &Place),
        columns: &[Bytes],
        record: &[u8],
    ) {
        let thread = self.thread(area);
        if !self.chosen.has(place.n) {
            return;
        }
        let (log, every) = (&mut self.log, self.chosen.every());
        let table = *self.places.entry(n).or_insert_with(|| {
            log.add(Table {
                name: place.place.clone(),
                asked: 0,
                is_of_glob: false,
                is_place: true,
                addresses: place.addresses.clone(),
                arguments: place.columns.iter().map(field).collect(),
                result: None,
                has_times: false,
                every,
            })
        });
        self.result.clear();
        columns.iter().for_each(|column| column.words(record, &mut self.result));
        let (index, ended, arguments) = (place.n, Ended::Result, self.result.as_slice());
        let row = Row { thread, index, caller: 0, ended, ticks: 0, own_ticks: 0, arguments, result: &[] };
        self.log.row(table, &row);
    }

    /// A function was called that the collector has in this row, and that was counted already; the number of
    /// the call's row, until it has ended; none, if it has no row.
    pub(super) fn enter(
        &mut self,
        area: usize,
        (n, calls): (usize, &Calls),
        entered: Entered,
        columns: &[Bytes],
        record: &[u8],
    ) -> u32 {
        let thread = self.thread(area);
        if !self.chosen.has(calls.n_calls) {
            return NO_ROW;
        }
        let (log, has_times, every) = (&mut self.log, self.has_times, self.chosen.every());
        let table = *self.calls.entry(n).or_insert_with(|| {
            log.add(Table {
                name: calls.function.clone(),
                asked: calls.asked,
                is_of_glob: calls.is_of_glob,
                is_place: false,
                addresses: calls.addresses.clone(),
                arguments: calls.arguments.iter().map(field).collect(),
                result: calls.result.as_ref().map(field),
                has_times,
                every,
            })
        });
        if self.last_caller != entered.caller && !self.is_without_callers {
            self.last_caller = entered.caller;
            self.callers.insert(entered.caller);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.open.push(Open::default());
            u32::try_from(self.open.len() - 1).unwrap_or(NO_ROW)
        });
        if let Some(open) = self.open.get_mut(number as usize) {
            let mut arguments = std::mem::take(&mut open.arguments);
            arguments.clear();
            columns.iter().for_each(|column| column.words(record, &mut arguments));
            *open = Open {
                table,
                thread,
                index: calls.n_calls,
                entered,
                ticks_within: 0,
                cost_within: 0,
                arguments,
            };
        }
        number
    }

    /// A call came back at this time, with that result.
    pub(super) fn come_back(&mut self, back: Back, stamp: u64, columns: &[Bytes], record: &[u8]) {
        let mut result = std::mem::take(&mut self.result);
        result.clear();
        columns.iter().for_each(|column| column.words(record, &mut result));
        let begun = self.open.get(back.row as usize).filter(|_| stamp > 0);
        let passed = |open: &Open| stamp.saturating_sub(open.entered.stamp).saturating_sub(open.cost_within);
        let (ticks, cost) = begun.map_or((0, 0), |open| (passed(open), open.cost_within));
        if let Some(within) = self.open.get_mut(back.within as usize) {
            within.ticks_within += ticks;
            within.cost_within += cost + self.cost_of_one;
        }
        self.write(back.row, Ended::Result, ticks, &result);
        self.result = result;
    }

    /// A call ended otherwise, or is open.
    pub(super) fn leave(&mut self, number: u32, ended: Ended) {
        self.write(number, ended, 0, &[]);
    }

    fn write(&mut self, number: u32, ended: Ended, ticks: u64, result: &[u64]) {
        let Some(open) = self.open.get(number as usize) else { return };
        let row = Row {
            thread: open.thread,
            index: open.index,
            caller: open.entered.caller,
            ended,
            ticks,
            own_ticks: ticks.saturating_sub(open.ticks_within),
            arguments: &open.arguments,
            result,
        };
        self.log.row(open.table, &row);
        self.free.push(number);
    }

    /// Takes so many ticks off a call for each recorded call within it.
    pub(super) fn set_cost(&mut self, ticks: u64) {
        self.cost_of_one = ticks;
    }

    /// Writes rows that have waited long enough.
    pub fn flush_at_times(&mut self) {
        self.log.flush_at_times();
    }

    /// The return addresses of all calls.
    pub fn callers(&self) -> impl Iterator<Item = u64> {
        self.callers.iter().copied()
    }

    /// Writes what is there, and where calls were made that return to these addresses.
    ///
    /// # Errors
    /// As [`LogWriter::finish`].
    pub fn finish(
        self,
        callers: &[(u64, Address)],
    ) -> io::Result<(profile::recording::SectionWriter<std::fs::File>, Option<io::Error>)> {
        self.log.finish(callers)
    }
}

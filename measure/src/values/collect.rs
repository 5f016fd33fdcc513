//! From the records of threads to values.

use super::bytes::{Bytes, number_at};
use super::condition::{Bound, Condition};
use super::loops::{Instances, OneInstance, OpenLoops, Passing};
use super::open::{Back, NO_ROW, OpenCalls};
use super::plan::{Code, ColumnCode, Recorded, What};
use super::rows::{Entered, Rows};
use probe::arch::shared::event_word;
use profile::values::log::Ended;
use profile::values::{
    Address, Calls, Column, Distribution, Loop, MOST_BYTES, Place, Stamps, Values, Watched,
};
use std::collections::{HashMap, VecDeque};
use trace::recording::event::Head;

/// Takes the records of a run's threads, as they come.
#[derive(Default)]
pub struct Collector {
    modules: Vec<Sites>,
    functions: Vec<Function>,
    rows: Vec<Calls>,
    /// By what was asked for, and the function's name: numbers of rows.
    rows_by_name: HashMap<(u32, String), Vec<usize>>,
    places: Vec<Place>,
    /// By place, and of instructions that are watched by where they are, too: its number.
    places_by_name: HashMap<(String, Option<(Watched, Address)>), usize>,
    loops: Instances,
    threads: Vec<Thread>,
    n_unread_bytes: u64,
    log: Option<Rows>,
    /// Which calls are recorded.
    condition: Option<Condition>,
    /// Whether it is known what stamps cost.
    has_stamps: bool,
}

/// The records of a module: the number before that of the first, and what each means.
struct Sites {
    base: u32,
    sites: Vec<Site>,
}

/// What a record means here.
struct Site {
    what: What,
    /// The function, or the place.
    of: u32,
    len: usize,
    /// Where the return address and a stamp are in it.
    caller: Option<usize>,
    stamp: Option<usize>,
    columns: Vec<Bytes>,
    /// What must hold of a call that is recorded.
    condition: Option<Bound>,
}

/// Of the number of a call that is left out, but may have others in it.
const LEFT_OUT: u32 = 1 << 31;

/// A function that is called.
struct Function {
    row: u32,
    /// What its caller gets.
    back: Vec<Bytes>,
}

#[derive(Default)]
struct Thread {
    open: OpenCalls,
    loops: OpenLoops,
}

fn add(columns: &mut [Column], bytes: &[Bytes], record: &[u8]) {
    for (column, bytes) in columns.iter_mut().zip(bytes) {
        match bytes.word(record) {
            Some((value, len)) => column.values.add_word(value, len),
            None => column.values.add(bytes.value(record, &mut [0; MOST_BYTES])),
        }
    }
}

fn columns(codes: &[ColumnCode]) -> Vec<Column> {
    let column = |code: &ColumnCode| Column {
        name: code.name.clone(),
        type_name: code.type_name.clone(),
        kind: code.kind.clone(),
        values: Distribution::default(),
    };
    codes.iter().map(column).collect()
}

/// Whether values of that column are such.
fn is_of(column: &Column, code: &ColumnCode) -> bool {
    (&column.name, &column.type_name, &column.kind) == (&code.name, &code.type_name, &code.kind)
}

impl Collector {
    /// One that keeps a log, too.
    pub fn with_log(log: Option<Rows>) -> Collector {
        Collector { log, ..Collector::default() }
    }

    /// The log, to be written to at times also while nothing comes, and to be finished behind the run.
    pub fn log(&mut self) -> &mut Option<Rows> {
        &mut self.log
    }

    /// Keeps the last instances of loops one by one.
    pub fn keep_instances(&mut self) {
        self.loops.kept = Some(VecDeque::new());
    }

    /// Those that it has kept, in the order of their ends.
    pub fn take_instances(&mut self) -> Vec<OneInstance> {
        self.loops.kept.take().unwrap_or_default().into()
    }

    /// Records no calls but those of which this holds, if it is about arguments that they have. Comes before
    /// the modules.
    pub fn set_condition(&mut self, condition: Condition) {
        self.condition = Some(condition);
    }

    /// Takes this off the times of loops, and off those of calls for recorded calls within them; what it
    /// takes to read the clock for themselves is kept beside them.
    pub fn set_stamps(&mut self, stamps: Stamps) {
        self.loops.stamps = stamps;
        self.has_stamps = true;
        // Records of calls and of loops are much alike.
        self.log.iter_mut().for_each(|log| log.set_cost(stamps.cost.saturating_sub(stamps.offset)));
    }

    /// Knows what the records of a module mean from now on.
    pub fn add_module(&mut self, code: &Code) {
        let mut sites = Vec::with_capacity(code.records.len());
        let first_loop = u32::try_from(self.loops.loops.len()).unwrap_or(u32::MAX);
        for one in &code.loops {
            let found = Loop {
                function: one.function.clone(),
                module: code.path.clone(),
                header: one.header,
                depth: one.depth,
                ..Loop::default()
            };
            let within = one.within.map(|of| first_loop + of);
            let _n = self.loops.add(found, event_word(one.word), within, one.is_timed);
        }
        let mut last = None;
        for (n, recorded) in code.records.iter().enumerate() {
            let address =
                Address { module: code.path.clone(), at: recorded.at, name: recorded.symbol.clone() };
            let of = match recorded.what {
                What::Place => self.place(recorded, address),
                What::Enters | What::Called => {
                    // Where it comes back, stands behind it.
                    let rest = code.records.get(n + 1..).unwrap_or_default();
                    let same = rest.iter().take_while(|r| !matches!(r.what, What::Enters | What::Called));
                    let back = same.into_iter().find(|r| r.what == What::ComesBack);
                    *last.insert(self.function(recorded, back, address))
                }
                What::Passes | What::ComesBack => last.unwrap_or_default(),
                What::Ends | What::EndsThread => 0,
                What::EntersLoop | What::LeavesLoop => first_loop + recorded.asked,
            };
            let columns: Vec<Bytes> = recorded.columns.iter().map(Bytes::of).collect();
            if recorded.what == What::ComesBack {
                self.functions.get_mut(of as usize).into_iter().for_each(|f| f.back.clone_from(&columns));
            }
            let is_call = matches!(recorded.what, What::Enters | What::Called);
            let asked = self.condition.as_ref().filter(|_| is_call);
            let condition = asked.and_then(|condition| condition.bound(&recorded.columns));
            let at = |at: Option<u32>| at.map(|at| at as usize);
            let (caller, stamp) = (at(recorded.caller), at(recorded.stamp));
            let (what, len) = (recorded.what, recorded.len as usize);
            sites.push(Site { what, of, len, caller, stamp, columns, condition });
        }
        self.modules.push(Sites { base: code.base, sites });
    }

    fn place(&mut self, recorded: &Recorded, address: Address) -> u32 {
        let own = recorded.watched.map(|watched| (watched, address.clone()));
        let n = *self.places_by_name.entry((recorded.name.clone(), own)).or_insert_with(|| {
            let (place, columns) = (recorded.name.clone(), columns(&recorded.columns));
            let watched = recorded.watched;
            self.places.push(Place { place, watched, addresses: Vec::new(), n: 0, columns });
            self.places.len() - 1
        });
        self.places.get_mut(n).into_iter().for_each(|place| place.addresses.push(address.clone()));
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    fn function(&mut self, recorded: &Recorded, back: Option<&Recorded>, address: Address) -> u32 {
        let result = back.and_then(|back| back.columns.first());
        let is_it = |row: &Calls| {
            let same_result =
                row.result.as_ref().is_none_or(|r| result.is_none_or(|result| is_of(r, result)));
            let same_arguments = row.arguments.len() == recorded.columns.len()
                && row.arguments.iter().zip(&recorded.columns).all(|(row, code)| is_of(row, code));
            same_arguments && same_result
        };
        let of_name = self.rows_by_name.entry((recorded.asked, recorded.name.clone())).or_default();
        let known = of_name.iter().copied().find(|n| self.rows.get(*n).is_some_and(is_it));
        let n = known.unwrap_or_else(|| {
            of_name.push(self.rows.len());
            let (function, arguments) = (recorded.name.clone(), columns(&recorded.columns));
            let (asked, is_of_glob) = (recorded.asked, recorded.is_of_glob);
            let is_without_ends = recorded.what == What::Called;
            self.rows.push(Calls {
                asked,
                function,
                is_of_glob,
                is_without_ends,
                is_pure: recorded.is_pure,
                is_recursive: recorded.is_recursive,
                arguments,
                ..Calls::default()
            });
            self.rows.len() - 1
        });
        if let Some(row) = self.rows.get_mut(n) {
            row.addresses.push(address.clone());
            row.is_pure &= recorded.is_pure;
            row.is_recursive |= recorded.is_recursive;
            row.result = row.result.take().or_else(|| columns(std::slice::from_ref(result?)).pop());
        }
        self.functions.push(Function { row: u32::try_from(n).unwrap_or(u32::MAX), back: Vec::new() });
        u32::try_from(self.functions.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes the next bytes of an area's stream: whole records.
    pub fn append(&mut self, area: usize, bytes: &[u8]) {
        if self.threads.len() <= area {
            self.threads.resize_with(area + 1, Thread::default);
        }
        let mut rest = bytes;
        while let Some(word) = rest.first_chunk().map(|word| u32::from_le_bytes(*word)) {
            if word == 0 {
                // Behind the last record of a chunk there is nothing.
                self.n_unread_bytes += used(rest);
                return;
            }
            let len = match self.site(word) {
                Some((module, site)) => self.take(area, (module, site), rest),
                None => match Head::of(word) {
                    Head::Another => {
                        self.end(area, false);
                        Some(4)
                    }
                    Head::Signal => Some(12),
                    _ => None,
                },
            };
            let Some(behind) = len.and_then(|len| rest.get(len..)) else {
                self.n_unread_bytes += used(rest);
                return;
            };
            rest = behind;
        }
    }

    fn site(&self, word: u32) -> Option<(usize, usize)> {
        self.modules.iter().enumerate().find_map(|(n, module)| {
            let site = word.wrapping_sub(module.base).wrapping_sub(1) as usize;
            (site < module.sites.len()).then_some((n, site))
        })
    }

    /// Takes the record that starts `bytes`; its length, if all of it is there.
    fn take(&mut self, area: usize, (module, n): (usize, usize), bytes: &[u8]) -> Option<usize> {
        let site = self.modules.get(module)?.sites.get(n)?;
        let record = bytes.get(..site.len)?;
        if site.what == What::Place {
            let place = self.places.get_mut(site.of as usize)?;
            place.n += 1;
            add(&mut place.columns, &site.columns, record);
            if let (Some(log), None) = (&mut self.log, place.watched) {
                log.came_by(area, (site.of, place), &site.columns, record);
            }
            return Some(site.len);
        }
        if site.what == What::Called {
            let calls = self.rows.get_mut(self.functions.get(site.of as usize)?.row as usize)?;
            if site.condition.as_ref().is_some_and(|condition| !condition.holds(record)) {
                calls.n_left_out += 1;
                return Some(site.len);
            }
            calls.n_calls += 1;
            add(&mut calls.arguments, &site.columns, record);
            return Some(site.len);
        }
        let slot = u32::from_le_bytes(*record.get(4..)?.first_chunk()?);
        if matches!(site.what, What::EntersLoop | What::LeavesLoop) {
            let wide = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let (count, stamp, executed) = (wide(8)?, wide(16), wide(24));
            let area = u32::try_from(area).unwrap_or(u32::MAX);
            let passing = Passing { of: site.of, frame: slot, count, stamp, executed, area };
            let open = &mut self.threads.get_mut(area as usize)?.loops;
            match site.what {
                What::EntersLoop => open.enter(passing, &mut self.loops),
                _ => open.leave(passing, &mut self.loops),
            }
            return Some(site.len);
        }
        if site.what == What::Enters {
            let len = site.len;
            return self.enter(area, (module, n), slot, record).map(|()| len);
        }
        let (functions, rows) = (&self.functions, &mut self.rows);
        let open = &mut self.threads.get_mut(area)?.open;
        match site.what {
            What::Passes => open.pass(slot),
            What::Ends => open.settle(slot),
            What::EndsThread => open.leave_all(),
            What::ComesBack => open.come_back(slot, site.of, |back: Back| {
                // Of what was left out, nothing is known: it is none.
                let Some(function) = functions.get(back.call as usize) else { return };
                let Some(row) = rows.get_mut(function.row as usize) else { return };
                // Who jumped here returns this, too, if it returns the like.
                let is_result = function.back == site.columns;
                if is_result {
                    row.n_results += 1;
                    add(row.result.as_mut_slice(), &site.columns, record);
                } else {
                    row.n_left += 1;
                }
                match &mut self.log {
                    Some(log) if is_result => {
                        let stamp = number_at(record, site.stamp);
                        log.come_back(back, stamp, &site.columns, record);
                    }
                    Some(log) => log.leave(back.row, Ended::Left),
                    None => {}
                }
            }),
            What::Place | What::Called | What::Enters | What::EntersLoop | What::LeavesLoop => {}
        }
        Some(site.len)
    }

    /// A function was entered whose return address lies in `slot`.
    fn enter(&mut self, area: usize, (module, n): (usize, usize), slot: u32, record: &[u8]) -> Option<()> {
        let site = self.modules.get(module)?.sites.get(n)?;
        let functions = &self.functions;
        let row_of = |call: u32| functions.get((call & !LEFT_OUT) as usize).map(|f| f.row as usize);
        let row = row_of(site.of)?;
        let open = &mut self.threads.get_mut(area)?.open;
        // A version that calls another one: that is one call.
        let is_other = |top: u32| top & !LEFT_OUT != site.of && row_of(top) == Some(row);
        if open.top().is_some_and(is_other) {
            return Some(());
        }
        let calls = self.rows.get_mut(row)?;
        if site.condition.as_ref().is_some_and(|condition| !condition.holds(record)) {
            calls.n_left_out += 1;
            open.enter(slot, site.of | LEFT_OUT, NO_ROW);
        } else {
            calls.n_calls += 1;
            add(&mut calls.arguments, &site.columns, record);
            let number = self.log.as_mut().map_or(NO_ROW, |log| {
                let (caller, stamp) = (number_at(record, site.caller), number_at(record, site.stamp));
                log.enter(area, (row, calls), Entered { caller, stamp }, &site.columns, record)
            });
            open.enter(slot, site.of, number);
        }
        if let Some(log) = &mut self.log {
            open.gone_rows().for_each(|number| log.leave(number, Ended::Left));
        }
        Some(())
    }

    /// The stream of an area has come to its end, or to the end of its thread; whether what was open there
    /// was never left.
    pub fn end(&mut self, area: usize, is_open: bool) {
        let Some(thread) = self.threads.get_mut(area) else { return };
        let Thread { open, loops } = std::mem::take(thread);
        loops.finish(is_open, &mut self.loops);
        let rest = open.finish(is_open);
        if let Some(log) = &mut self.log {
            rest.open_rows.iter().for_each(|number| log.leave(*number, Ended::Open));
            rest.left_rows.iter().for_each(|number| log.leave(*number, Ended::Left));
            log.end(area);
        }
        let functions = &self.functions;
        let mut each = |all: &HashMap<u32, u64>, to: fn(&mut Calls) -> &mut u64| {
            for (function, n) in all {
                let row = functions.get(*function as usize).map(|f| f.row as usize);
                row.and_then(|row| self.rows.get_mut(row)).into_iter().for_each(|row| *to(row) += n);
            }
        };
        each(&rest.open, |calls| &mut calls.n_open);
        each(&rest.left, |calls| &mut calls.n_left);
    }

    /// All streams have come to their end.
    pub fn end_all(&mut self) {
        (0..self.threads.len()).for_each(|area| self.end(area, true));
    }

    /// All that there was, in the order in which it was asked for, functions of one glob by name.
    pub fn finish(mut self) -> Values {
        self.end_all();
        self.rows.sort_by(|a, b| (a.asked, &a.function).cmp(&(b.asked, &b.function)));
        Values {
            calls: self.rows,
            places: self.places,
            stamps: self.has_stamps.then_some(self.loops.stamps),
            loops: self.loops.loops,
            targets: Vec::new(),
            n_unread_bytes: self.n_unread_bytes,
            n_lost: 0,
        }
    }
}

/// How many bytes are there up to the last that is not zero.
fn used(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last as u64 + 1).next_multiple_of(4))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::values::plan::{Code, Recorded};
    use program::signature::{Type, text};

    /// A column of 4 bytes behind the frame.
    fn number(name: &str) -> ColumnCode {
        let (name, type_name) = (name.to_owned(), "int".to_owned());
        ColumnCode {
            name,
            type_name,
            kind: Type::Integer { bytes: 4, is_signed: true },
            parts: vec![(8, 0, 4)],
            line: None,
        }
    }

    fn recorded(what: What, name: &str, at: u64, columns: Vec<ColumnCode>) -> Recorded {
        let len = if columns.is_empty() { 8 } else { 12 };
        Recorded { what, name: name.to_owned(), at, len, columns, ..Recorded::default() }
    }

    /// Three records a function: it is entered with a number, goes on, and comes back with one.
    fn code(base: u32, functions: &[(&str, u64)]) -> Code {
        let of = |(name, at): &(&str, u64)| {
            [
                recorded(What::Enters, name, *at, vec![number("n")]),
                recorded(What::Passes, name, *at, Vec::new()),
                recorded(What::ComesBack, name, *at, vec![number("result")]),
            ]
        };
        Code { base, records: functions.iter().flat_map(of).collect(), ..Code::default() }
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn counts(calls: &Calls) -> [u64; 4] {
        [calls.n_calls, calls.n_results, calls.n_left, calls.n_open]
    }

    fn values(column: &Column) -> Vec<(String, u64)> {
        column.values.counted().iter().map(|one| (text::text(&column.kind, &one.bytes), one.count)).collect()
    }

    /// Two versions of a function that call each other are one call; one that goes on by a jump has the
    /// result of whoever returns.
    #[test]
    fn records_of_threads_are_calls_with_values() {
        let mut collector = Collector::default();
        collector.add_module(&code(0x1000, &[("f", 0x10), ("f", 0x20), ("g", 0x30)]));
        let [f, f_passes, f_back, v, _, v_back, g, _, g_back] = std::array::from_fn(|n| 0x1001 + n as u32);
        let slot = 0x7fff_f000;
        // f(1) calls its other version; f(2) jumps to g(3); a signal comes; f(4) is open.
        let first = [
            vec![f, slot, 1],
            vec![v, slot - 32, 7],
            vec![v_back, slot - 32, 8],
            vec![f_back, slot, 10],
            vec![f, slot, 2],
            vec![f_passes, slot],
            vec![g, slot, 3],
            vec![g_back, slot, 30],
            vec![trace::recording::event::HANDLER, 0, 0],
            vec![f, slot, 4],
            vec![0, 0],
        ];
        collector.append(0, &bytes(&first.concat()));
        // Another thread ends in the middle of f(5), and the next one has its memory; what follows is cut.
        let second = [vec![f, slot, 5, trace::recording::event::ANOTHER], vec![g, slot, 6, g]];
        collector.append(1, &bytes(&second.concat()));
        let all = collector.finish();
        let [f, g] = &all.calls[..] else { panic!("{all:?}") };
        assert_eq!((f.function.as_str(), counts(f)), ("f", [4, 2, 1, 1]));
        assert_eq!((g.function.as_str(), counts(g)), ("g", [2, 1, 0, 1]));
        let want = ["1", "2", "4", "5"].map(|n| (n.to_owned(), 1));
        assert_eq!(values(&f.arguments[0]), want);
        let result = f.result.as_ref().expect("it has one");
        assert_eq!(values(result), [("10".to_owned(), 1), ("30".to_owned(), 1)]);
        assert_eq!(f.addresses.iter().map(|a| a.at).collect::<Vec<_>>(), [0x10, 0x20]);
        assert_eq!(all.n_unread_bytes, 4);
    }

    /// A thread that was stopped in the middle of a record leaves one without its word.
    #[test]
    fn what_is_behind_a_record_that_is_not_whole_is_not_read() {
        let mut collector = Collector::default();
        collector.add_module(&code(0x1000, &[("f", 0x10)]));
        collector.append(0, &bytes(&[0x1001, 0x100, 1, 0, 0x200, 0x1001, 0, 0]));
        let all = collector.finish();
        assert_eq!((counts(&all.calls[0]), all.n_unread_bytes), ([1, 0, 0, 1], 12));
    }
}

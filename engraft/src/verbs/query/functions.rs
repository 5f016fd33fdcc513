//! Functions of a trace as people name them: the trace has their symbols.

use crate::input::names::{called, near, source_name};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trace::path::find_function;
use trace::{FuncId, Names, NotAPath};
use views::query::FunctionView;

/// The functions of a trace.
pub struct Functions<'a> {
    /// What the trace has.
    pub names: &'a Names,
    /// What the source calls those that were asked for.
    known: RefCell<BTreeMap<FuncId, Option<Rc<str>>>>,
}

impl<'a> Functions<'a> {
    /// With these names.
    pub fn new(names: &'a Names) -> Functions<'a> {
        Functions { names, known: RefCell::default() }
    }

    /// What the source calls a function, if its symbol is decorated.
    fn source_name(&self, func: FuncId) -> Option<Rc<str>> {
        let look = || source_name(&self.names.functions.get(&func)?.name).map(Rc::from);
        self.known.borrow_mut().entry(func).or_insert_with(look).clone()
    }

    /// A function's name for people.
    pub fn called(&self, func: FuncId) -> String {
        self.source_name(func).map_or_else(|| self.names.function(func), |name| name.to_string())
    }

    /// The function that a text names: as the trace has it; by the name in the source, or its end, if only
    /// one function has it.
    ///
    /// # Errors
    /// [`NotAPath`] says what is wrong, and names those that may be meant.
    pub fn find(&self, text: &str) -> Result<FuncId, NotAPath> {
        let by_symbol = find_function(text, self.names);
        let symbols = || self.names.functions.iter().map(|(&func, f)| (func, f.name.as_str()));
        if by_symbol.is_ok() || text.starts_with(['#']) || symbols().any(|(_, name)| name == text) {
            return by_symbol;
        }
        let all: Vec<(FuncId, String)> =
            symbols().filter_map(|(func, name)| Some((func, source_name(name)?))).collect();
        let found = called(&all, text);
        match found.as_slice() {
            [only] => Ok(*only),
            [] => by_symbol.map_err(|err| match near(symbols().map(|(_, name)| name), text).first() {
                Some(nearest) if !text.starts_with("0x") => {
                    NotAPath { hint: format!("the nearest name is '{nearest}'"), ..err }
                }
                _ => err,
            }),
            several => {
                let listed =
                    several.iter().take(8).map(|&func| format!("#{} is {}", func.0, self.called(func)));
                let what = format!("{} functions are called '{text}'", several.len());
                Err(NotAPath { what, hint: listed.collect::<Vec<_>>().join("\n") })
            }
        }
    }

    /// How answers have a function; none where there is none.
    pub fn view(&self, func: Option<FuncId>) -> FunctionView {
        FunctionView {
            function: func.map(|func| self.names.function(func)),
            source_name: func.and_then(|func| self.source_name(func)).map(|name| name.to_string()),
            function_id: func.map(|func| func.0),
        }
    }
}

//! Functions of a trace as people name them: the trace has their symbols.

use crate::input::file_name;
use crate::input::names::{called, near, source_name, spellings};
use session::FunctionFilter;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trace::flow::Module;
use trace::names::Function;
use trace::path::find_function;
use trace::{FuncId, Names, NotAPath};
use views::query::FunctionView;

/// So many are named where it is not clear which is meant.
const MOST_LISTED: usize = 8;

/// Whether `*` stands for anything in a name; in those of operators and of pointers' types, it is a part.
fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

fn one(found: Result<FuncId, NotAPath>) -> Result<Vec<FuncId>, NotAPath> {
    found.map(|func| vec![func])
}

/// The functions of a trace.
pub struct Functions<'a> {
    /// What the trace has.
    pub names: &'a Names,
    /// The files that they are in, if that is known, by the number of the first function.
    modules: &'a [Module],
    /// What the source calls those that were asked for.
    known: RefCell<BTreeMap<FuncId, Option<Rc<str>>>>,
}

impl<'a> Functions<'a> {
    /// With these names.
    pub fn new(names: &'a Names) -> Functions<'a> {
        Functions { names, modules: &[], known: RefCell::default() }
    }

    /// The same, of these files.
    pub fn of(self, modules: &'a [Module]) -> Functions<'a> {
        Functions { modules, ..self }
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

    /// The function that a text names, if it is only one ([`Functions::all`]).
    ///
    /// # Errors
    /// [`NotAPath`] says what is wrong, and names those that may be meant.
    pub fn find(&self, text: &str) -> Result<FuncId, NotAPath> {
        let found = self.all(text)?;
        match found.as_slice() {
            [only] => Ok(*only),
            several => {
                let listed: Vec<String> = several.iter().take(MOST_LISTED).map(|f| self.place(*f)).collect();
                let more = several.len().checked_sub(MOST_LISTED).filter(|more| *more > 0);
                let more = more.map_or_else(String::new, |more| format!("\nand {more} more"));
                let verb = if is_pattern(text) { "match" } else { "are called" };
                let what = format!("{} functions {verb} '{text}'", several.len());
                Err(NotAPath { what, hint: format!("say which:\n{}{more}", listed.join("\n")) })
            }
        }
    }

    /// The functions that a text names, at least one: as the trace has it; by the name in the source, or its
    /// end; by the address of a block; all that fit, where `*` stands for anything. `MODULE!` before it says
    /// of which file.
    ///
    /// # Errors
    /// [`NotAPath`] says what is wrong, and names those that may be meant.
    pub fn all(&self, text: &str) -> Result<Vec<FuncId>, NotAPath> {
        let (module, name) = self.qualified(text);
        let is_there = |func: FuncId| module.is_none_or(|module| self.module(func) == Some(module));
        let there = || self.names.functions.iter().filter(|(func, _)| is_there(**func));
        let symbols = || there().map(|(&func, f)| (func, f.name.as_str()));
        let by_symbol: Vec<FuncId> =
            symbols().filter(|(_, symbol)| *symbol == name).map(|(func, _)| func).collect();
        if !by_symbol.is_empty() {
            return Ok(by_symbol);
        }
        if let Some(at) = name.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            let holds = |f: &Function| f.blocks.values().any(|block| block.at == at);
            let found: Vec<FuncId> = there().filter(|(_, f)| holds(f)).map(|(&func, _)| func).collect();
            return if found.is_empty() { one(find_function(name, self.names)) } else { Ok(found) };
        }
        if name.starts_with('#') || self.names.functions.is_empty() {
            return one(find_function(name, self.names));
        }
        let all: Vec<(FuncId, String)> =
            symbols().filter_map(|(func, symbol)| Some((func, source_name(symbol)?))).collect();
        let found = called(&all, name);
        if !found.is_empty() {
            return Ok(found);
        }
        if is_pattern(name) {
            let filter = FunctionFilter::new(&[name], spellings);
            // Stubs have the names of what they call.
            let is_stub = |f: &Function| f.name.ends_with("@plt") && !name.contains('@');
            let is_one = |f: &Function| !f.blocks.is_empty() && filter.has(&f.name) && !is_stub(f);
            let found: Vec<FuncId> = there().filter(|(_, f)| is_one(f)).map(|(&func, _)| func).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            let what = format!("no function that was recorded matches '{text}'");
            return Err(NotAPath {
                what,
                hint: "`*` stands for anything, as in 'parse_*: entry'".to_owned(),
            });
        }
        let nearest = near(symbols().map(|(_, symbol)| symbol), name).into_iter().next();
        one(find_function(text, self.names)).map_err(|err| match nearest {
            Some(nearest) => NotAPath { hint: format!("the nearest name is '{nearest}'"), ..err },
            None => err,
        })
    }

    /// The module that stands before `!` in a text, and what is behind that. A `!` may be part of a name.
    fn qualified<'t>(&self, text: &'t str) -> (Option<FuncId>, &'t str) {
        let split = text.split_once('!').and_then(|(module, name)| {
            let of = self.modules.iter().find(|m| file_name(&m.path) == module)?;
            Some((Some(of.first), name.trim()))
        });
        split.unwrap_or((None, text))
    }

    /// The module that a function is in, by the number of its first one.
    fn module(&self, func: FuncId) -> Option<FuncId> {
        let n = self.modules.partition_point(|m| m.first <= func).checked_sub(1)?;
        self.modules.get(n).map(|m| m.first)
    }

    /// A function in a way that names no other: `libc.so.6!_init`, and where that is.
    fn place(&self, func: FuncId) -> String {
        let Some(function) = self.names.functions.get(&func) else { return format!("#{}", func.0) };
        let entry = function.blocks.first_key_value().map(|(_, block)| block.at);
        let at = entry.map_or_else(String::new, |at| format!(" at {at:#x}"));
        let of = self.module(func).and_then(|first| self.modules.iter().find(|m| m.first == first));
        let Some(of) = of else { return format!("#{} is {}{at}", func.0, self.called(func)) };
        let named = format!("{}!{}", file_name(&of.path), function.name);
        let is_only = self.all(&named).is_ok_and(|all| all.len() == 1);
        match entry.filter(|_| !is_only) {
            Some(at) => format!("'{}!{at:#x}' is {}", file_name(&of.path), self.called(func)),
            None if is_only => format!("'{named}' is {}{at}", self.called(func)),
            None => format!("#{} is {} of {}", func.0, self.called(func), file_name(&of.path)),
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

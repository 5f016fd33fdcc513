//! Functions as people name them, and what people call functions and files.

use super::names;
use crate::output::{self, Hinted};
use profile::Profile;
use program::{Bearer, FuncId, Program, Va};
use session::FunctionFilter;
use std::path::Path;

/// The function that `what` names: by symbol (of a part such as `main.cold` too), by the name in the source
/// if only one function has it, `fn3`, or any address in it; by what only one function fits, where `*` stands
/// for anything. `MODULE!` may stand before it.
///
/// # Errors
/// If there is none; the hint has the names that look most like it.
pub fn function(program: &Program, asked: &str) -> anyhow::Result<FuncId> {
    let what = asked.split_once('!').filter(|(module, _)| file_name(&program.image.name) == *module);
    let what = what.map_or(asked, |(_, name)| name);
    let named = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| **n == *what));
    // Of an excerpt, numbers are others than those that the file's functions have.
    let numbered = || program.func_ids().find(|f| !program.is_excerpt() && f.to_string() == what);
    if let Some(id) = named.or_else(numbered) {
        return Ok(id);
    }
    if let Some(id) =
        program.image.symbols.iter().filter(|s| *s.name == *what).find_map(|s| program.function_at(s.at))
    {
        return Ok(id);
    }
    let all: Vec<(FuncId, String)> =
        program.func_ids().flat_map(|f| source_names(program, f).map(move |name| (f, name))).collect();
    let mut found = names::called(&all, what);
    if found.is_empty() && what.contains('*') {
        // Stubs have the names of what they call.
        let is_stub = |f: &FuncId| program.function(*f).import.is_some() && !what.contains('@');
        let fit = FunctionFilter::new(&[what], names::spellings).of(program);
        found = fit.into_iter().filter(|f| !is_stub(f)).collect();
    }
    match found.as_slice() {
        [] => {}
        [only] => return Ok(*only),
        several => {
            let message = format!("{} functions of {} are called {what}", several.len(), program.image.name);
            found.sort_by_cached_key(|&f| (spelt(program, f).len(), f));
            let listed = found
                .iter()
                .take(8)
                .map(|&f| format!("{} is at {}", spelt(program, f), program.function(f).entry));
            return Err(Hinted::new(message, listed.collect::<Vec<_>>().join("\n")).into());
        }
    }
    if let Some(at) = address(what) {
        let holds = |f: &FuncId| program.function(*f).ranges.iter().any(|r| r.contains(&at));
        return program.function_at(at).or_else(|| program.func_ids().find(holds)).ok_or_else(|| {
            let before = program.functions.iter().rev().find(|f| f.entry <= at);
            let hint = match before {
                Some(f) => format!("the last one before it is {} at {}", f.name(), f.entry),
                None => lists(program),
            };
            Hinted::new(format!("no function of {} holds {at}", program.image.name), hint).into()
        });
    }
    let symbols = program.functions.iter().flat_map(|f| f.names.iter().map(|name| &**name));
    let near = names::near(symbols, what);
    let hint = match near.as_slice() {
        [] => format!("{}\nan address such as 0x401136 does too", lists(program)),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Err(Hinted::new(format!("no function of {} is called {what}", program.image.name), hint).into())
}

/// What lists the functions of `program`: of an excerpt, the recording does, which has another name.
fn lists(program: &Program) -> String {
    let image = if program.is_excerpt() { "BINARY" } else { &program.image.name };
    format!("`engraft show {image} functions` lists them")
}

/// All functions that `what` names: each that bears this symbol, in whatever version, and in place of a
/// resolver those that it may return; else the one that [`function`] finds.
///
/// # Errors
/// As of [`function`].
pub fn functions(program: &Program, what: &str) -> anyhow::Result<Vec<Bearer>> {
    let bearers = program.bearers(what);
    if !bearers.is_empty() {
        return Ok(bearers);
    }
    let func = function(program, what)?;
    // An address means what is there.
    let is_named = address(what).is_none() && func.to_string() != what;
    Ok(if is_named { program.meant_by(func) } else { vec![Bearer { func, resolver: None }] })
}

/// What the source calls it, where its symbols are decorated.
pub fn source_names(program: &Program, id: FuncId) -> impl Iterator<Item = String> {
    program.function(id).names.iter().filter_map(|name| matching::names::in_source(name))
}

/// A function's name for people: the source's, else the symbol.
pub fn spelt(program: &Program, id: FuncId) -> String {
    let source = source_names(program, id).next().filter(|_| !output::are_names_mangled());
    source.unwrap_or_else(|| program.function(id).name())
}

/// How a program died, for people.
pub fn death(died: session::Died) -> views::DeathView {
    let session::Died { signal, name, place } = died;
    let none = views::DeathView {
        signal,
        name,
        module: None,
        at: None,
        function: None,
        offset: None,
        file: None,
        line: None,
    };
    let Some(session::Place { path, at, function, source }) = place else { return none };
    let (function, offset) = function.unzip();
    let (file, line) = source.unzip();
    views::DeathView {
        module: Some(file_name(&path.to_string_lossy())),
        at: Some(at.0),
        function: function.map(|symbol| matching::names::in_source(&symbol).unwrap_or(symbol)),
        offset,
        file,
        line,
        ..none
    }
}

/// The last part of a path, for people.
pub fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file name of what was counted.
pub fn module_name(profile: &Profile, program: &Program) -> String {
    let name = &profile.image.name;
    file_name(if name.is_empty() { &program.image.name } else { name })
}

/// `0x401136`, or `fn_0x401136` as functions without a name are called.
pub fn address(text: &str) -> Option<Va> {
    let hex = text.strip_prefix("fn_").unwrap_or(text).strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok().map(Va)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(address("0x401136"), Some(Va(0x40_1136)));
        assert_eq!(address("fn_0x10"), Some(Va(0x10)));
        assert_eq!(address("401136"), None);
        assert_eq!(address("0xmain"), None);
    }
}

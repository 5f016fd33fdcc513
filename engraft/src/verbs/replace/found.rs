//! Which function, or which call, of a process somebody means.

use super::refused;
use crate::input;
use crate::output::Hinted;
use program::image::{Symbol, SymbolKind};
use program::{Call, CallKind, Callee, LiveVa, Va};
use session::{LoadedModule, RunningProgram};
use std::path::Path;

/// The function that `asked` names, and its module: one of the executable; else what the process uses under
/// that name of its libraries; else the first that has it. An address without a module is one of the
/// executable, or of the process (`live:0x…`).
pub fn found(process: &RunningProgram, asked: &str) -> anyhow::Result<Found> {
    let (wanted, name) = asked.split_once('!').map_or((None, asked), |(module, name)| (Some(module), name));
    if let Some(at) = name.strip_prefix("live:").and_then(input::address) {
        let at = LiveVa(at.0);
        let n = process.module_at(at).ok_or_else(|| anyhow::anyhow!("no module of the process has {at}"))?;
        let module = process.module(n).map_err(refused)?;
        let func = input::function(&module.program, &module.image(at).to_string())?;
        return meant(asked, module, func);
    }
    let paths: Vec<&Path> = process.module_paths().collect();
    let is_wanted = |path: &Path| {
        let file = input::file_name(&path.to_string_lossy());
        wanted.is_none_or(|wanted| wanted == file || file.starts_with(&format!("{wanted}.so")))
    };
    let of = |n: usize| -> anyhow::Result<Option<Found>> {
        let module = process.module(n).map_err(refused)?;
        let func = input::function(&module.program, name)?;
        // Stubs have the names of what they call.
        Ok(module.program.function(func).import.is_none().then_some((module, func)))
    };
    let mut first = None;
    if paths.first().is_some_and(|path| is_wanted(path)) {
        match of(0) {
            Ok(Some((module, func))) => return meant(asked, module, func),
            Ok(None) if input::address(name).is_some() => {
                let hint = "name the function that it calls: it is found in its library";
                return Err(Hinted::new(format!("{name} is a stub for a function of a library"), hint).into());
            }
            Ok(None) => {}
            Err(err) => first = Some(err),
        }
    }
    if input::address(name).is_some() && wanted.is_none() {
        return Err(first.unwrap_or_else(|| anyhow::anyhow!("no function of the executable has {name}")));
    }
    // Of several versions, and of what a resolver chooses from, the one that it uses.
    let bound = process.bound(name);
    if let Ok(at) = bound
        && let Some(n) = process.module_at(at).filter(|n| paths.get(*n).is_some_and(|path| is_wanted(path)))
    {
        let module = process.module(n).map_err(refused)?;
        if let Some(func) = module.program.function_from(module.image(at)) {
            return meant(asked, module, func);
        }
    }
    for (n, _) in paths.iter().enumerate().skip(1).filter(|(_, path)| is_wanted(path)) {
        match of(n) {
            Ok(Some((module, func))) => return meant(asked, module, func),
            Ok(None) => {}
            // Of one module, it says what looks like it.
            Err(err) if wanted.is_some() => first = first.or(Some(err)),
            Err(_) => {}
        }
    }
    Err(first.unwrap_or_else(|| {
        let names = paths.iter().map(|path| input::file_name(&path.to_string_lossy()));
        let hint = format!("its modules are: {}", names.collect::<Vec<_>>().join(", "));
        Hinted::new(format!("no function of process {} is called {asked}", process.pid()), hint).into()
    }))
}

/// A function and its module.
pub type Found = (LoadedModule, program::FuncId);

/// `func` of `module`, if it is what somebody means by `asked`: a resolver is not the function that it
/// chooses, and a clone has other arguments than what it is a clone of.
fn meant(asked: &str, module: LoadedModule, func: program::FuncId) -> anyhow::Result<Found> {
    const CLONES: [&str; 3] = [".isra.", ".constprop.", ".part."];
    let function = module.program.function(func);
    let is_resolver =
        |symbol: &Symbol| symbol.at == function.entry && symbol.kind == SymbolKind::IndirectFunction;
    if module.program.image.symbols.iter().any(is_resolver) {
        let what = format!("{asked} is chosen by a resolver, which nobody in the process has asked yet");
        let hint =
            "wait until it was called once, or name what is chosen: `engraft show FILE functions` lists it";
        return Err(Hinted::new(what, hint).into());
    }
    let is_clone = |name: &str| CLONES.iter().any(|clone| name.contains(clone));
    let is_address = asked.split('!').next_back().is_some_and(|name| name.contains("0x"));
    if !function.names.is_empty()
        && function.names.iter().all(|name| is_clone(name))
        && !is_clone(asked)
        && !is_address
    {
        let name = function.name();
        let what =
            format!("{asked} has only a clone there, {name}, whose arguments the compiler has changed");
        return Err(Hinted::new(what, "look at what it takes, and name it in full").into());
    }
    Ok((module, func))
}

/// Calls that are listed, at most.
const MOST_LISTED: usize = 12;

/// The call that `asked` names, and its module: by the address of its instruction, or how far that is behind
/// the start of a function.
pub fn found_call(process: &RunningProgram, asked: &str) -> anyhow::Result<(LoadedModule, Va)> {
    if let Some((name, offset)) = asked.rsplit_once('+')
        && let Some(offset) = input::address(offset)
    {
        let (module, func) = found(process, name)?;
        let at = module.program.function(func).entry.plus(offset.0);
        return Ok((module, at));
    }
    if let Some(at) = asked.strip_prefix("live:").and_then(input::address) {
        let at = LiveVa(at.0);
        let n = process.module_at(at).ok_or_else(|| anyhow::anyhow!("no module of the process has {at}"))?;
        let module = process.module(n).map_err(refused)?;
        let at = module.image(at);
        return Ok((module, at));
    }
    let name = asked.split_once('!').map_or(asked, |(_, name)| name);
    let (module, func) = found(process, asked)?;
    let entry = module.program.function(func).entry;
    if let Some(at) = input::address(name).filter(|at| *at != entry) {
        return Ok((module, at));
    }
    let calls = module.program.function(func).block_ids().flat_map(|block| module.program.calls_in(block));
    let all: Vec<String> = calls
        .filter(|call| call.kind == CallKind::Call)
        .filter_map(|call| Some(format!("{} calls {}", call.at, callee(&module, call)?)))
        .take(MOST_LISTED)
        .collect();
    let hint = match all.is_empty() {
        true => "it calls nothing by name".to_owned(),
        false => format!("name one of its calls: {}", all.join(", ")),
    };
    Err(Hinted::new(format!("{asked} is a function, not a call"), hint).into())
}

/// What a call of `module` calls, as its code names it.
pub fn callee(module: &LoadedModule, call: &Call) -> Option<String> {
    let import = match call.callee {
        Callee::Function(func) => match &module.program.function(func).import {
            Some(import) => import,
            None => return Some(input::spelt(&module.program, func)),
        },
        Callee::Import(n) => module.program.imports.get(n as usize)?,
        Callee::Unknown(_) | Callee::Indirect => return None,
    };
    Some(input::names::readable(import.split('@').next().unwrap_or_default()))
}

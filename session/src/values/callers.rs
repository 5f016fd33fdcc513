//! Who called: from return addresses of a process to the calls in the files of its code. Code that was moved
//! is translated back.
//!
//! What was mapped is seen in the process that was started: return addresses of a program that it became, or
//! of a library that was gone before anybody looked, stay without a name.

use crate::loader::Loaded;
use crate::module::{self, Instrumented, written_path};
use crate::prepare::Prepared;
use crate::run::Process;
use measure::Placement;
use probe::Room;
use profile::values::Address;
use program::arch::{ControlFlow, decode};
use program::{Image, LiveVa, Program, Va};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The lengths of calls, the likely ones first.
const LENGTHS: [u64; 6] = [5, 2, 6, 3, 7, 4];

/// The calls that return to these addresses, as far as it is known where they are.
pub(super) fn named(
    prepared: &Prepared<'_>,
    loaded: &Loaded,
    run: &Process,
    callers: impl Iterator<Item = u64>,
) -> Vec<(u64, Address)> {
    let _span = tracing::info_span!("callers").entered();
    let modules: Vec<&Instrumented> = prepared.modules.iter().chain(&loaded.modules).collect();
    let given = |path: &Path| {
        let is_it =
            |given: &PathBuf| given.as_path() == path || given.canonicalize().is_ok_and(|g| g == path);
        let (_, key) = loaded.given.iter().find(|(given, _)| is_it(given))?;
        modules.iter().find(|module| module.key == *key).copied()
    };
    // Those in moved code: by module, where they are in it.
    let (mut own, mut moved) = (Vec::new(), BTreeMap::<PathBuf, (&Instrumented, Vec<(u64, Va)>)>::new());
    let mut plain = BTreeMap::<String, Vec<(u64, Va)>>::new();
    let mut firsts = HashMap::new();
    for caller in callers {
        // The call ends there: what is mapped behind it may be another's.
        let Some(last) = caller.checked_sub(1) else { continue };
        if run.text.contains(&LiveVa(last)) {
            own.push((caller, caller - run.text.start.0));
        } else if let Some((path, at)) = run.maps.find(last, &mut firsts) {
            let at = at.plus(1);
            match given(Path::new(&path)) {
                Some(module) => {
                    moved.entry(module.path.clone()).or_insert((module, Vec::new())).1.push((caller, at))
                }
                None => plain.entry(path).or_default().push((caller, at)),
            }
        }
    }
    let mut all = Vec::new();
    if !own.is_empty() {
        let is_left_out = !prepared.wanted.has_executable(&prepared.path);
        let placement = if is_left_out { Placement::Nowhere } else { prepared.asked.placement };
        let recipe = module::Recipe { placement, is_executable: true, ..prepared.recipe() };
        let of = (prepared.path.as_path(), prepared.key);
        let places = |text: Va| own.iter().map(|(_, offset)| text.plus(*offset)).collect();
        let found = module::calls_before(prepared.store, of, recipe, Room::Apart, places);
        add(&mut all, &prepared.path, own.iter().map(|(caller, _)| *caller), found);
    }
    for (path, (module, at)) in &moved {
        let places = |_| at.iter().map(|(_, at)| *at).collect();
        let of = (path.as_path(), module.key);
        let found = module::calls_before(prepared.store, of, prepared.recipe(), Room::Behind, places);
        add(&mut all, path, at.iter().map(|(caller, _)| *caller), found);
    }
    for (path, at) in &plain {
        let image = Image::load(Path::new(path)).ok();
        let call = |at: Va| image.as_ref().and_then(|image| call_before(image, at)).unwrap_or(Va(at.0 - 1));
        all.extend(at.iter().map(|&(caller, at)| {
            let module = written_path(Path::new(path));
            (caller, Address { module, at: call(at).0, name: None })
        }));
    }
    all.sort_by_key(|(caller, _)| *caller);
    all
}

/// Adds the calls that were found in moved code of the module at `path`.
fn add(
    all: &mut Vec<(u64, Address)>,
    path: &Path,
    callers: impl Iterator<Item = u64>,
    found: Option<(Program, Vec<Option<Va>>)>,
) {
    let Some((program, found)) = found else { return };
    for (caller, at) in callers.zip(found) {
        let Some(at) = at else { continue };
        let function = program.block_at(at).map(|b| program.function(program.block(b).func).name());
        all.push((caller, Address { module: written_path(path), at: at.0, name: function }));
    }
}

/// The call of `image` that comes back at `at`.
fn call_before(image: &Image, at: Va) -> Option<Va> {
    let is_call = |from: &Va| {
        let insn = image.bytes_from(*from).and_then(|bytes| decode(bytes, *from));
        insn.is_some_and(|i| {
            i.end() == at && matches!(i.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect)
        })
    };
    LENGTHS.iter().filter_map(|len| at.0.checked_sub(*len).map(Va)).find(is_call)
}

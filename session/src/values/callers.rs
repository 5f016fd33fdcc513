//! Who called: from return addresses of a process to the calls in the files of its code. Code that was moved
//! is translated back.
//!
//! What was mapped is seen in the process that was started: return addresses of a program that it became, or
//! of a library that was gone before anybody looked, stay without a name.

use super::places::{Places, Source};
use crate::module::{self, written_path};
use profile::values::Address;
use program::arch::{ControlFlow, decode};
use program::{Image, Program, Va};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The lengths of calls, the likely ones first.
const LENGTHS: [u64; 6] = [5, 2, 6, 3, 7, 4];

/// Return addresses in moved code of a module: each, and where it is from the start of that, or in its file.
type Found<'p, At> = BTreeMap<PathBuf, (Source<'p>, Vec<(u64, At)>)>;

/// The calls that return to these addresses, as far as it is known where they are.
pub(super) fn named(places: &Places<'_>, callers: impl Iterator<Item = u64>) -> Vec<(u64, Address)> {
    let _span = tracing::info_span!("callers").entered();
    let (mut own, mut moved) = (Found::<u64>::new(), Found::<Va>::new());
    let mut plain = BTreeMap::<String, Vec<(u64, Va)>>::new();
    let mut firsts = HashMap::new();
    for caller in callers {
        // The call ends there: what is mapped behind it may be another's.
        let Some(last) = caller.checked_sub(1) else { continue };
        if let Some((start, source)) = places.moved(last) {
            let of = own.entry(source.path.to_owned()).or_insert((source, Vec::new()));
            of.1.push((caller, caller - start));
        } else if let Some((path, at)) = places.maps.find(last, &mut firsts) {
            let at = at.plus(1);
            match places.given(Path::new(&path)) {
                Some(source) => {
                    let of = moved.entry(source.path.to_owned()).or_insert((source, Vec::new()));
                    of.1.push((caller, at));
                }
                None => plain.entry(path).or_default().push((caller, at)),
            }
        }
    }
    let mut all = Vec::new();
    let before = |source: &Source<'_>, at: &dyn Fn(Va) -> Vec<Va>| {
        let Source { path, key, recipe, room } = *source;
        module::calls_before(places.store, (places.maps.file(path), key), recipe, room, at)
    };
    for (source, own) in own.values() {
        let found = before(source, &|text| own.iter().map(|(_, offset)| text.plus(*offset)).collect());
        add(&mut all, source.path, own.iter().map(|(caller, _)| *caller), found);
    }
    for (source, at) in moved.values() {
        let found = before(source, &|_| at.iter().map(|(_, at)| *at).collect());
        add(&mut all, source.path, at.iter().map(|(caller, _)| *caller), found);
    }
    for (path, at) in &plain {
        let image = Image::load(places.maps.file(Path::new(path))).ok();
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

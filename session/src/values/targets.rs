//! Where indirect calls and jumps led: from addresses of a process to functions of its files.

use super::places::Places;
use crate::module::written_path;
use profile::values::{Address, Values, Watched};
use program::Va;
use program::image::{Image, SymbolKind};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The functions that these addresses lie in, as far as it is known what was mapped there.
pub(super) fn named(places: &Places<'_>, values: &Values) -> Vec<(u64, Address)> {
    let watched = values.places.iter().filter(|place| place.watched == Some(Watched::Target));
    let columns = watched.flat_map(|place| &place.columns);
    let counted = columns.flat_map(|column| column.values.counted());
    let targets: BTreeSet<u64> =
        counted.filter_map(|one| Some(u64::from_le_bytes(*one.bytes.first_chunk()?))).collect();
    let file = |path: &Path| places.given(path).map_or_else(|| path.to_owned(), |of| of.path.to_owned());
    let (mut firsts, mut images) = (HashMap::new(), HashMap::<PathBuf, Option<Image>>::new());
    let mut all = Vec::new();
    for target in targets {
        let Some((path, at)) = places.maps.find(target, &mut firsts) else { continue };
        let path = file(Path::new(&path));
        let image = images.entry(path.clone()).or_insert_with(|| Image::load(places.maps.file(&path)).ok());
        let name = image.as_ref().and_then(|image| function(image, at));
        all.push((target, Address { module: written_path(&path), at: at.0, name }));
    }
    all
}

/// The function of `image` that `at` lies in, and how far from its start.
fn function(image: &Image, at: Va) -> Option<String> {
    let functions = image.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function);
    let around =
        functions.filter(|symbol| symbol.at <= at && (at == symbol.at || at < symbol.at.plus(symbol.len)));
    let symbol = around.max_by_key(|symbol| symbol.at)?;
    Some(match at.0 - symbol.at.0 {
        0 => symbol.name.to_string(),
        distance => format!("{}+{distance:#x}", symbol.name),
    })
}

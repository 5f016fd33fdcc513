//! A module of a process that runs, rewritten for the place that is free for it there.

use super::{Instrumented, Kept, ModuleError, Recipe, explained, keep_catalogue};
use crate::store::{Kind, Store};
use measure::edges::notes::Notes;
use probe::{Room, Running, Segments, file_key};
use program::{Image, Program, Va};
use std::path::Path;

/// What such a process is given.
pub(crate) struct RunningModule {
    /// Its moved code.
    pub(crate) segments: Segments,
    /// How threads get there and back.
    pub(crate) running: Running,
    /// What its counters mean.
    pub(crate) instrumented: Instrumented,
}

/// The module of `image`, which is loaded from `path`, with all that is new of it from `at` on.
///
/// # Errors
/// If it cannot be rewritten.
pub(crate) fn running(
    store: &Store,
    (path, file): (&Path, &Path),
    mut image: Image,
    recipe: Recipe<'_>,
    at: Va,
) -> Result<RunningModule, ModuleError> {
    let key = file_key(&image);
    let own = if recipe.is_executable { None } else { recipe.asked.of_library(&image) };
    let recipe = Recipe { asked: own.as_ref().unwrap_or(recipe.asked), ..recipe };
    let interposed = image.interpose(recipe.interposed);
    // By how it ran earlier, counters would go elsewhere each time, and it would be rewritten while somebody
    // waits.
    let recipe_key = (recipe.key(&image, &interposed, None), at.0);
    let name = store.name(Kind::Running, key, &recipe_key);
    let catalogue = recipe.catalogue(store, key, &interposed);
    if catalogue.as_ref().is_none_or(|name| store.has(name))
        && let Some((segments, running, Kept { notes, code })) =
            store.read::<(Segments, Running, Kept)>(&name)
        && let Ok(notes) = Notes::parse(&notes)
    {
        let instrumented = Instrumented::known(path, image, (notes, code), catalogue).opened_as(file);
        return Ok(RunningModule { segments, running, instrumented });
    }
    let program = Program::analyze_code(image);
    let built = recipe.build(&program, None, Room::Running(at));
    let (module, code) = built.map_err(|err| explained(&program.image, err))?;
    let (segments, running) = (module.to_segments()?, module.to_running());
    let notes = measure::notes(&module);
    let meaning = Kept { notes: notes.write(), code };
    store.write(&name, &(&segments, &running, &meaning))?;
    keep_catalogue(store, catalogue.as_deref(), &module);
    drop(module);
    let instrumented = Instrumented::new(path, program, (notes, meaning.code), catalogue).opened_as(file);
    Ok(RunningModule { segments, running, instrumented })
}

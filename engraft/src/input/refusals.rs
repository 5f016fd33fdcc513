//! Programs whose code cannot be moved, or not be counted.

use crate::output::{self, Hinted};
use program::Image;
use program::image::RelocationTo;

/// Refuses programs whose code cannot be moved at all.
///
/// # Errors
/// If its runtime knows its code by address, as Go's does.
pub fn refuse_known_by_address(image: &Image) -> Result<(), Hinted> {
    let Some(language) = probe::runtimes::by_address(image) else { return Ok(()) };
    let message = format!("{} is {language}, which cannot be counted", image.name);
    Err(Hinted::new(message, language.hindrance()))
}

/// Why `image` cannot be rewritten: if it is for the base of gs, that may be because it counts by itself.
pub fn says_if_instrumented(image: &Image, err: anyhow::Error) -> anyhow::Error {
    let uses_gs = matches!(err.downcast_ref(), Some(probe::RewriteError::UsesGs { .. }));
    // Only those hold this that count, and we.
    if !uses_gs || memchr::memmem::find(image.file_bytes(), probe::arch::SAYS).is_none() {
        return err;
    }
    let what = format!("{} was written by `engraft instrument`, and counts by itself", image.name);
    Hinted::new(what, "run it as it is, or name the program that it was made of").into()
}

/// Refuses to put counters into programs that have something else where counters are.
///
/// With ThreadSanitizer, they end when they find counters: "unexpected memory mapping"; and theirs are where
/// an instrumented file's would be.
///
/// # Errors
/// If it was built with ThreadSanitizer.
pub fn refuse_sanitized(image: &Image) -> Result<(), Hinted> {
    let start = |name: &str| name == "__tsan_init";
    let is_imported = || {
        image.relocations.iter().any(|r| matches!(&r.to, RelocationTo::Symbol(name, _) if start(name)))
            || image.plt.iter().any(|stub| stub.import.as_deref().is_some_and(start))
    };
    if !is_imported() && !image.symbols.iter().any(|symbol| start(&symbol.name)) {
        return Ok(());
    }
    let what = "was built with ThreadSanitizer, which keeps its own data where counters would be";
    let hint = "count a build without `-fsanitize=thread`";
    Err(Hinted::new(format!("{} {what}", image.name), hint))
}

/// Says of a program whose code may be written while it runs that this is not seen where the code was moved
/// to.
pub fn warn_of_changing_code(image: &Image) {
    if image.segments.iter().any(|s| s.executable && s.writable) {
        let what = format!(
            "{} may change its own code while it runs: moved code does not change with it",
            image.name
        );
        output::warn(&what, Some("if it behaves otherwise than alone, leave it out with --modules"));
    }
}

//! What of a file hinders rewriting it.

use crate::messages::Warning;
use probe::runtimes::Language;
use program::Image;
use program::image::RelocationTo;

/// A file that cannot be rewritten, whatever is put into it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hindrance {
    /// The language's runtime knows its code by address.
    #[error("{image} is {language}, whose code cannot be moved")]
    KnownByAddress {
        /// The file.
        image: String,
        /// The language.
        language: Language,
    },
    /// ThreadSanitizer has something else where counters would be.
    #[error("{image} was built with ThreadSanitizer, which keeps its own data where ours would be")]
    Sanitized {
        /// The file.
        image: String,
    },
    /// It was rewritten already.
    #[error("{image} was written by `engraft instrument`, and counts by itself")]
    Instrumented {
        /// The file.
        image: String,
    },
}

impl Hindrance {
    /// What can be done about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Hindrance::KnownByAddress { language, .. } => language.hindrance(),
            Hindrance::Sanitized { .. } => "build it without `-fsanitize=thread`",
            Hindrance::Instrumented { .. } => "run it as it is, or name the program that it was made of",
        }
    }
}

/// Refuses programs whose code cannot be moved at all.
///
/// # Errors
/// If its runtime knows its code by address, as Go's does.
pub fn refuse_known_by_address(image: &Image) -> Result<(), Hindrance> {
    let Some(language) = probe::runtimes::by_address(image) else { return Ok(()) };
    Err(Hindrance::KnownByAddress { image: image.name.clone(), language })
}

/// Refuses to put counters into programs that have something else where counters are.
///
/// With ThreadSanitizer, they end when they find counters: "unexpected memory mapping"; and theirs are where
/// an instrumented file's would be.
///
/// # Errors
/// If it was built with ThreadSanitizer.
pub fn refuse_sanitized(image: &Image) -> Result<(), Hindrance> {
    let start = |name: &str| name == "__tsan_init";
    let is_imported = || {
        image.relocations.iter().any(|r| matches!(&r.to, RelocationTo::Symbol(name, _) if start(name)))
            || image.plt.iter().any(|stub| stub.import.as_deref().is_some_and(start))
    };
    if !is_imported() && !image.symbols.iter().any(|symbol| start(&symbol.name)) {
        return Ok(());
    }
    Err(Hindrance::Sanitized { image: image.name.clone() })
}

/// Whether `image` counts by itself: only those files hold this that do, and our own.
pub(crate) fn is_instrumented(image: &Image) -> bool {
    memchr::memmem::find(image.file_bytes(), probe::arch::SAYS).is_some()
}

/// What to say of a program whose file ends before its table of sections does.
pub fn is_cut_off(image: &Image) -> Option<Warning> {
    image.sections_cut.then(|| Warning::CutOff { image: image.name.clone() })
}

/// What to say of a program whose code may be written while it runs: this is not seen where the code was
/// moved to.
pub fn changes_code(image: &Image) -> Option<Warning> {
    let changes = image.segments.iter().any(|s| s.executable && s.writable);
    changes.then(|| Warning::ChangesCode { image: image.name.clone() })
}

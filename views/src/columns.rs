//! How wide text is on a terminal.

use unicode_width::UnicodeWidthStr as _;

/// How many columns of a terminal `text` takes.
pub(crate) fn columns(text: &str) -> usize {
    // Nearly all of it, in a fraction of the time; control characters, which are no columns, are not printed.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain { text.len() } else { text.width() }
}

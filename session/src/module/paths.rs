//! Paths as recordings and traces have them, which are text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A path as recordings and traces have it: a byte that is no text is `\xNN`.
pub fn written_path(path: &Path) -> String {
    let chunks = path.as_os_str().as_bytes().utf8_chunks();
    let written = chunks.map(|chunk| {
        let bytes = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        chunk.valid().to_owned() + &bytes.collect::<String>()
    });
    written.collect()
}

/// The path that was written so: unless there is a file that is called that, `\xNN` is a byte that is no
/// text.
pub fn recorded_path(written: &str) -> PathBuf {
    let mut parts = written.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part.bytes().skip(2));
            }
            None => {
                bytes.extend(b"\\x");
                bytes.extend(part.bytes());
            }
        }
    }
    let (as_it_is, read) = (PathBuf::from(written), PathBuf::from(OsStr::from_bytes(&bytes)));
    if as_it_is.exists() || !read.exists() { as_it_is } else { read }
}

//! Files of ours that pages name: style, script, icon. They are in the program.
//!
//! Source: W3C, "Content Security Policy Level 3", 2.3.1 (hashes).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Scripts that a file of pages has: those that need no server. Each may listen for `page`, which the
/// document is told when another page is shown.
pub const IN_FILES: [&str; 4] = ["keys.js", "graph.js", "trees.js", "file.js"];

/// Their names, what they are, and their bytes.
const ALL: [(&str, &str, &str); 7] = [
    ("viewer.css", "text/css; charset=utf-8", include_str!("../assets/viewer.css")),
    ("keys.js", SCRIPT, include_str!("../assets/keys.js")),
    ("grid.js", SCRIPT, include_str!("../assets/grid.js")),
    ("file.js", SCRIPT, include_str!("../assets/file.js")),
    ("graph.js", SCRIPT, include_str!("../assets/graph.js")),
    ("trees.js", SCRIPT, include_str!("../assets/trees.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

/// What the file of that name is, and its text.
pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    ALL.iter().find(|asset| asset.0 == name).map(|asset| (asset.1, asset.2))
}

/// What a policy names a script or a style by.
pub fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

//! Files of ours that pages name: style, script, icon. They are in the program.

/// Their names, what they are, and their bytes.
const ALL: [(&str, &str, &str); 4] = [
    ("viewer.css", "text/css; charset=utf-8", include_str!("../assets/viewer.css")),
    ("viewer.js", "text/javascript; charset=utf-8", include_str!("../assets/viewer.js")),
    ("trees.js", "text/javascript; charset=utf-8", include_str!("../assets/trees.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

/// What the file of that name is, and its text.
pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    ALL.iter().find(|asset| asset.0 == name).map(|asset| (asset.1, asset.2))
}

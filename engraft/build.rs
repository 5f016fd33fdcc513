//! Writes down of which commit this is a build: `--version` says it. Nothing where there is no .git.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = git_folder(Path::new("..")).and_then(|git| commit(&git)).unwrap_or_default();
    println!("cargo::rustc-env=ENGRAFT_COMMIT={commit}");
}

/// The repository of the checkout at `top`: in a worktree, a file names it.
fn git_folder(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = std::fs::read_to_string(&git).ok()?;
    Some(top.join(text.trim().strip_prefix("gitdir: ")?))
}

/// The commit that is checked out, in nine digits.
///
/// Source: gitrepository-layout(5).
fn commit(git: &Path) -> Option<String> {
    let shared = std::fs::read_to_string(git.join("commondir")).ok();
    let shared = shared.map_or_else(|| git.to_owned(), |path| git.join(path.trim()));
    let read = |file: &Path| {
        if file.exists() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        std::fs::read_to_string(file).ok()
    };
    let head = read(&git.join("HEAD"))?;
    let full = match head.trim().strip_prefix("ref: ") {
        None => head.trim().to_owned(),
        Some(name) => read(&shared.join(name)).map(|text| text.trim().to_owned()).or_else(|| {
            let packed = read(&shared.join("packed-refs"))?;
            let line = packed.lines().find(|line| line.ends_with(&format!(" {name}")))?;
            Some(line.split(' ').next()?.to_owned())
        })?,
    };
    full.get(..9).filter(|short| short.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned)
}

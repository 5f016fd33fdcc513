//! The header is what the crate says, and C and C++ understand it.

use crate::{folder, here, must, needs};
use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, Style};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

/// What opens it, before what is made.
const HEAD: &str = "\
/* Engraft: processes that run on x86-64 Linux, sampled, measured and changed while they run.
 *
 * Made from the crate `capi`, whose test says how to make it again; do not change it by hand.
 *
 * A process is opened by `engraft_open`; what is made of it by the functions that take a pointer to a handle
 * is freed by the `_free` of its kind, in any order, and once. A handle does not change: several threads may
 * use it at once, but for the one that frees it. Where a handle is NULL that must not be, that is an error,
 * not a crash; every other pointer must be what it is said to be.
 *
 * A function that can fail returns a status, 0 if it is done; the others return 0 or NULL where they have
 * nothing. Of the last failure in the same thread, `engraft_last_error` has the text. Texts are UTF-8, and
 * those that are returned are the library's. What was to be made is NULL after a failure, so that all may be
 * freed. The process is as it was after a failure, unless that says otherwise.
 *
 * The library reads no environment, and prints nothing, unless it finds a mistake of its own. It has threads,
 * which do nothing between calls: do not call it in a child of `fork` whose parent has called it. Who ends a
 * program that is in `engraft_calls_measure` or `engraft_watch` leaves code of ours in the process: `engraft
 * rescue PID` takes it out.
 */";

/// The header, from the sources.
fn made() -> String {
    let names = [
        ("Status", "status"),
        ("OpenProcess", "process"),
        ("Function", "function"),
        ("Profile", "profile"),
        ("Cfg", "cfg"),
        ("Block", "block"),
        ("Edge", "edge"),
        ("Loop", "loop"),
        ("Calls", "calls"),
        ("Call", "call"),
        ("Replacing", "code"),
        ("Replacements", "replacements"),
        ("Replacement", "replacement"),
        ("Passing", "passing"),
        ("Callback", "callback"),
    ];
    let rename = names.map(|(ours, name)| (ours.to_owned(), format!("engraft_{name}")));
    let config = Config {
        language: Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("ENGRAFT_H".to_owned()),
        cpp_compat: true,
        usize_is_size_t: true,
        style: Style::Type,
        line_length: 110,
        documentation_style: DocumentationStyle::Doxy,
        export: ExportConfig { rename: HashMap::from(rename), ..ExportConfig::default() },
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in ["src", "src/boundary"] {
        for entry in std::fs::read_dir(here().join(folder)).expect("our sources") {
            let path = entry.expect("our sources").path();
            files.extend(Some(path).filter(|path| path.is_file() && !path.ends_with("lib.rs")));
        }
    }
    files.sort();
    let builder = files.into_iter().fold(Builder::new().with_config(config), Builder::with_src);
    let mut text = Vec::new();
    builder.generate().expect("cbindgen reads our sources").write(&mut text);
    String::from_utf8(text).expect("it is text")
}

/// `UPDATE_EXPECT=1 cargo test -p capi header` makes it again.
#[test]
fn the_header_is_what_the_sources_say() {
    let (path, made) = (here().join("include/engraft.h"), made());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &made).expect("it can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "include/engraft.h is not what the sources say: `UPDATE_EXPECT=1 cargo test -p capi header`; {differs:?}"
    );
}

#[test]
fn c_and_cpp_understand_the_header() {
    needs!("gcc", "g++");
    let place = folder();
    let use_it = "#include <engraft.h>\nint main(void) { return engraft_last_error()[0]; }\n";
    for (compiler, standard, name) in [("gcc", "-std=c99", "a.c"), ("g++", "-std=c++11", "c.cpp")] {
        let file = place.path().join(name);
        std::fs::write(&file, use_it).expect("written");
        let mut command = Command::new(compiler);
        command.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        must(command.arg(here().join("include")).arg(file));
    }
}

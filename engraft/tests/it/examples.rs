//! What `--help` and `engraft help` say can be done, done: every command in them runs, and prints what is
//! shown under it.

use crate::needs;
use crate::run::{callgrind, compile, engraft, folder, looks_like, must};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const VERBS: &[&str] = &[
    "show",
    "match",
    "carry",
    "score",
    "convert",
    "count",
    "diff",
    "compare",
    "instrument",
    "ipc",
    "trace",
    "query",
    "replace",
    "rescue",
    "sample",
    "view",
    "cache",
    "doctor",
    "help",
];

/// A folder with the files that examples speak of.
fn workplace() -> tempfile::TempDir {
    let to = folder();
    compile(&to.path().join("old"), "words-1.c", "-O2 -g");
    compile(&to.path().join("new"), "words-2.c", "-O2 -g");
    compile(&to.path().join("faster"), "words-1.c", "-O3 -g");
    callgrind(to.path(), "old");
    callgrind(to.path(), "new");
    let carried = engraft(to.path(), "carry old new --profile old.callgrind -o carried.fdata");
    assert_eq!(carried.code, Some(0), "{}", carried.stderr);
    run(to.path(), "count -q -o old.engraft -- ./old");
    words_trace(to.path());
    for build in ["old", "new"] {
        run(to.path(), &format!("trace -q --modules exe -o {build}.trace -- ./{build}"));
    }
    run(to.path(), "compare old.trace new.trace -o both.engraft");
    let fast = "long of_main(long n) { return n; }";
    std::fs::write(to.path().join("fast.c"), fast).expect("written");
    let mut gcc = Command::new("gcc");
    must(gcc.current_dir(to.path()).args(["-O2", "-shared", "-fPIC", "-o", "fast.so", "fast.c"]));
    std::fs::write(to.path().join("points.plan"), "entry main count\nexit main last rax\n").expect("written");
    to
}

/// A small run as a plain trace: `main` calls `hash` in its loop, four times.
fn words_trace(to: &Path) {
    let call = [0x4000_0001_u32, 0, 1, 1, 2, 0x8000_0000];
    let turn = [&[1][..], &call, &[2]].concat();
    let run = [&[0x4000_0000, 0][..], &turn, &turn, &turn, &turn, &[3, 0x8000_0000]].concat();
    let bytes: Vec<u8> = run.iter().flat_map(|code| code.to_le_bytes()).collect();
    std::fs::write(to.join("run.trc"), bytes).expect("written");
    let blocks = |f: usize, n: usize, name: &str| {
        (0..n)
            .map(|b| format!("{f} {b} {:#x} {name} words.c:{}\n", 0x1000 + 0x100 * f + 8 * b, 10 * f + b))
            .collect::<String>()
    };
    std::fs::write(to.join("run.meta"), blocks(0, 4, "main") + &blocks(1, 3, "hash")).expect("written");
    self::run(to, "convert run.trc --meta run.meta -o run.trace");
}

/// Commands and what is shown under each, from the indented or fenced lines of a text.
fn sessions(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(command) = line.trim_start().strip_prefix("$ engraft ") {
            found.push((command.to_owned(), String::new()));
            open = true;
        } else if line.trim_start().starts_with("```") || line.is_empty() && !text.contains("```") {
            open = false;
        } else if let Some((_, shown)) = found.last_mut().filter(|_| open) {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    found
}

/// What examples call a program that runs already: one that waits, and two that work.
const RUNNING: [(&str, &str); 3] =
    [("$(pidof server)", "attached.c"), ("$(pidof worker)", "hot.c"), ("$(pidof mixer)", "vectorised.c")];

/// What a command prints first that goes on until it is asked to end, and then ends with 0.
#[track_caller]
fn first_line(folder: &Path, command: &str) -> String {
    let mut us = Command::new(env!("CARGO_BIN_EXE_engraft"));
    let us = us.args(command.split_whitespace()).current_dir(folder);
    let mut us = us.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("cargo built it");
    let mut line = String::new();
    let read = BufReader::new(us.stdout.as_mut().expect("a pipe")).read_line(&mut line);
    must(Command::new("kill").args(["-INT", &us.id().to_string()]));
    assert!(us.wait().expect("it ends").success() && read.is_ok(), "engraft {command}");
    line
}

#[track_caller]
fn run(folder: &Path, command: &str) -> String {
    if command.contains("--no-open") {
        return first_line(folder, command);
    }
    let running = RUNNING.iter().find(|(name, _)| command.contains(name));
    let mut server = running.map(|(_, source)| {
        compile(&folder.join("server"), source, "-O1 -pthread -w");
        let mut server = Command::new(folder.join("server"));
        server.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts")
    });
    let pid = server.as_ref().map_or(0, Child::id);
    let named = running.map_or("$(pidof", |(name, _)| name);
    let ran = engraft(folder, &command.replace(named, &pid.to_string()));
    if let Some(server) = &mut server {
        server.kill().and_then(|()| server.wait()).expect("it ran on");
    }
    assert_eq!(ran.code, Some(0), "engraft {command}\n{}", ran.stderr);
    ran.stdout
}

#[test]
fn every_verb_has_two_examples_that_run() {
    needs!("valgrind");
    let place = workplace();
    for verb in VERBS {
        let help = run(place.path(), &format!("{verb} --help"));
        let found = sessions(&help);
        assert!(found.len() >= 2, "{verb} --help has {} examples:\n{help}", found.len());
        for (command, _) in found {
            assert!(command.starts_with(verb), "{command} is no example of {verb}");
            let printed = run(place.path(), &command);
            assert!(!printed.is_empty(), "engraft {command} prints nothing");
        }
    }
}

#[test]
fn sessions_in_help_are_what_is_printed() {
    needs!("valgrind");
    let place = workplace();
    let mut n_compared = 0;
    for verb in VERBS.iter().filter(|verb| **verb != "help") {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/{verb}.md"));
        let found = sessions(&std::fs::read_to_string(text).expect("each verb has a text"));
        assert!(!found.is_empty(), "help {verb} has no session");
        for (command, shown) in found {
            let printed = run(place.path(), &command);
            assert!(
                looks_like(&printed, &shown),
                "$ engraft {command}\nprints\n{printed}\nhelp {verb} shows\n{shown}"
            );
            n_compared += usize::from(!shown.is_empty());
        }
    }
    assert!(n_compared >= 5, "{n_compared} sessions show what is printed");
}

#[test]
fn help_is_read_without_marks_and_fits_a_screen() {
    needs!("script", "stty");
    let place = folder();
    let shown = |columns: usize, args: &str| {
        let line = format!("stty cols {columns} rows 24; {} {args}", env!("CARGO_BIN_EXE_engraft"));
        let mut script = Command::new("script");
        let ran =
            script.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1").current_dir(place.path()).output();
        String::from_utf8_lossy(&ran.expect("script runs").stdout).replace('\r', "")
    };
    for verb in VERBS {
        let short = shown(80, &format!("{verb} -h"));
        assert!(short.lines().count() <= 40, "{verb} -h has {} lines:\n{short}", short.lines().count());
        if *verb == "help" {
            continue;
        }
        for columns in [80, 160] {
            let text = shown(columns, &format!("help {verb}"));
            let title = text.lines().next().unwrap_or_default();
            assert!(title.starts_with(&format!("ENGRAFT {}", verb.to_uppercase())), "{title}");
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                let is_plain = !line.contains("```") && !line.contains("](") && !line.starts_with('#');
                assert!(line.chars().count() <= columns.min(100) && is_plain, "help {verb}:\n{line}");
            }
        }
    }
    let to = folder();
    engraft(to.path(), &format!("help --man {}", to.path().display())).ok();
    let page = std::fs::read_to_string(to.path().join("engraft-count.1")).expect("a page a verb");
    assert!(page.contains("Ball") || page.contains("conservation of flow"), "the manual is in the page");
}

#[test]
fn man_pages_and_completions_are_made() {
    let to = folder();
    let args = format!("help --man {}", to.path().display());
    engraft(to.path(), &args).ok();
    for verb in VERBS {
        let page =
            std::fs::read_to_string(to.path().join(format!("engraft-{verb}.1"))).expect("a page a verb");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(engraft(to.path(), "help --completions bash").ok().contains("complete"));
    let ran = engraft(to.path(), "help nothing");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("there is help on show"), "{}", ran.stderr);
}

#[test]
fn the_command_is_installed_with_its_man_pages_and_completions() {
    needs!("bash", "install");
    let to = folder();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install-cli.sh");
    let installed = Command::new(script)
        .arg(to.path())
        .env("ENGRAFT", env!("CARGO_BIN_EXE_engraft"))
        .output()
        .expect("bash is there");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let has = |file: &str, text: &str| {
        let found = std::fs::read_to_string(to.path().join("share").join(file)).unwrap_or_default();
        assert!(found.contains(text), "{file} has no {text}");
    };
    has("man/man1/engraft.1", r"engraft\-count");
    has("man/man1/engraft-count.1", "counts");
    has("bash-completion/completions/engraft", "complete");
    has("zsh/site-functions/_engraft", "#compdef engraft");
    has("fish/vendor_completions.d/engraft.fish", "complete -c engraft");
    let version = Command::new(to.path().join("bin/engraft")).arg("--version").output().expect("installed");
    // With the commit, where git knows it.
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let commit = git.output().ok().filter(|ran| ran.status.success());
    let commit =
        commit.map_or_else(String::new, |ran| format!(" ({})", String::from_utf8_lossy(&ran.stdout[..9])));
    let want = format!("engraft {}{commit}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&version.stdout), want);
}

//! What `--json` prints is what `engraft help json` says: each key of each form is described there.

use crate::needs;
use crate::run::{built, compile, engraft, folder};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

/// The words that the documentation has of each form; what is said of several holds for each.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let text = std::fs::read_to_string(path).expect("it is ours");
    let mut forms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut form = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("engraft.") {
            let end =
                name.find(|c: char| !(c.is_ascii_alphanumeric() || "-/".contains(c))).unwrap_or(name.len());
            form = format!("engraft.{}", &name[..end]);
        }
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        forms
            .entry(form.clone())
            .or_default()
            .extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    forms
}

/// The keys of all objects in `value`; those of maps whose keys are data have `maps` as their parent.
fn keys(value: &Value, maps: &[&str], into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                into.insert(key.clone());
                let is_map = |inner: &serde_json::Map<String, Value>| {
                    maps.contains(&key.as_str()) && !inner.values().any(|of| of.is_object() || of.is_array())
                };
                match value {
                    Value::Object(inner) if is_map(inner) => {}
                    _ => keys(value, maps, into),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| keys(value, maps, into)),
        _ => {}
    }
}

#[test]
fn every_key_that_is_printed_is_documented() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("old"), "words-1.c", "-O2 -g");
    compile(&place.path().join("new"), "words-2.c", "-O2 -g");
    let dies = "#include <stdlib.h>\nint main(int c, char **v) { if (c > 1) abort(); return 0; }";
    built(place.path(), "dies", dies, "-O1");
    compile(&place.path().join("waiting"), "running.c", "-O1");
    let mut waiting = Command::new(place.path().join("waiting"));
    let mut waiting = waiting.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let forms = documented();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (args, is_talk) in [
        ("count --json --no-cache --callees --per-thread --repeat 2 -o old.engraft ./old", true),
        ("count --json --no-cache -o dies.engraft ./dies x", true),
        ("trace --json --no-cache --modules exe -o old.trace ./old", true),
        ("trace --json --no-cache --modules exe -o dies.trace ./dies x", true),
        ("values --json --no-cache -o values.engraft --calls main --at main edi --loop * ./old", true),
        ("show values.engraft --json", false),
        ("show nowhere --json", true),
        ("show old --json", false),
        ("show old functions --json", false),
        ("show old loops --json", false),
        ("show old tables --json", false),
        ("show old gaps --json", false),
        ("show old data --json", false),
        ("show old function main --json --liveness --profile old.engraft", false),
        ("show old cfg --json --instructions", false),
        ("show -p PID --json", false),
        ("show -p PID function main --json", false),
        ("show old --verify --json", false),
        ("show old.engraft --json", false),
        ("show old.engraft loops --json", false),
        ("show old.engraft edges --json", false),
        ("show old.engraft never --json", false),
        ("show old.engraft calls --json", false),
        ("show old.engraft paths --json", false),
        ("show old.engraft functions --json", false),
        ("show old.engraft --by line --json", false),
        ("show old.engraft --by file --json", false),
        ("show old.engraft --by module --json", false),
        ("show old.engraft tree --json", false),
        ("show old.trace --json", false),
        ("show old.trace functions --json", false),
        ("show old.trace callers main --json", false),
        ("show old.trace tree --inverted --json", false),
        ("show old.trace time --json", false),
        ("count -q --no-cache -o again.engraft ./old 1", true),
        ("diff old.engraft again.engraft --json", false),
        ("instrument old -o counting --json", false),
        ("doctor --json", false),
        ("cache --json", false),
        ("match old new --json", false),
        ("match old new --explain main --json", false),
        ("carry old new --profile old.engraft -o new.engraft --require bp=1 --json", false),
        ("count -q --no-cache -o fresh.engraft ./new", true),
        ("score new.engraft fresh.engraft --binary new --json", false),
        ("convert old.engraft -o old.csv --json", false),
        ("convert old.trace -o old.trc --thread 1 --json", false),
        ("convert old.trace -o old.folded --json", false),
        ("convert old.trace -o old.trace.json --json", false),
        ("trace pack old.trace -o packed.trace --json", false),
        ("trace -q --no-cache --modules exe -o new.trace ./new", true),
        ("compare old.trace new.trace --json", false),
        ("compare old.trace new.trace --function main --json", false),
        ("compare old.trace new.trace --functions --json", false),
        ("compare old.trace new.trace --loops --json", false),
        ("compare old.trace new.trace --modules --json", false),
        ("compare old.trace new.trace --intervals --json", false),
        ("compare old.trace new.trace --outlier 1 --json", false),
        ("compare old.trace new.trace --anchors --json", false),
        ("compare old.trace new.trace --explain main --json", false),
        ("compare -q old.trace new.trace -o kept.engraft", true),
        ("show kept.engraft tree --json", false),
        ("show kept.engraft time --json", false),
        ("query old.trace 'main: 0' --json", false),
        ("query old.trace 'main: 0' --all --json", false),
        ("query old.trace 'main: 0' --count --json", false),
        ("query old.trace --stats --json", false),
    ] {
        let ran = engraft(place.path(), &args.replace("PID", &waiting.id().to_string()));
        let text = if is_talk { ran.stderr.lines().last().unwrap_or_default() } else { ran.stdout.as_str() };
        if args.contains(" -q ") && is_talk {
            continue;
        }
        let object: Value =
            serde_json::from_str(text).unwrap_or_else(|err| panic!("{args}: {err}: {text} {}", ran.stderr));
        let form = object["schema"].as_str().unwrap_or_default().to_owned();
        let Some(words) = forms.get(&form) else {
            wrong.push(format!("{args}: {form} is no form of docs/json.md"));
            continue;
        };
        let mut printed = BTreeSet::new();
        let maps: &[&str] = match form.starts_with("engraft.compare") {
            true => &["old", "new", "totals", "metrics"],
            false => &["springboards", "functions_by_origin", "functions_by_sure", "environment"],
        };
        keys(&object, maps, &mut printed);
        printed.remove("schema");
        let missing: Vec<_> = printed.difference(words).cloned().collect();
        if !missing.is_empty() {
            wrong.push(format!("{args}: {form} of docs/json.md does not have {}", missing.join(", ")));
        }
        seen.insert(form);
    }
    waiting.kill().and_then(|()| waiting.wait()).expect("it waited");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.len() > 15, "{seen:?}");
}

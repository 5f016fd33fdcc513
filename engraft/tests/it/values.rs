//! `engraft values`: what programs say of themselves is what is recorded, and they do not notice.

use crate::needs;
use crate::run::{compile, engraft, folder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each value of a column came.
fn counts(column: &Value) -> BTreeMap<String, u64> {
    let top = column["top"].as_array().expect("values");
    let one = |value: &Value| {
        let text = value["value"].as_str().expect("text").to_owned();
        (text, value["count"].as_u64().expect("a number"))
    };
    top.iter().map(one).collect()
}

/// The lines of what the program in `folder` prints.
fn printed(folder: &Path, program: &str) -> (String, Option<i32>) {
    let ran = Command::new(folder.join(program)).output().expect("it runs");
    (String::from_utf8(ran.stdout).expect("text"), ran.status.code())
}

/// Registers of all widths, in three threads; the recording shows what was said after the run.
#[test]
fn registers_have_what_the_program_says() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("values"), "values.c", "-O1 -pthread");
    let (want, code) = printed(folder, "values");
    let at = "--at scaled xmm0,edi:i32,sil,xmm1:f32 --at rotated+0 rdi,si:i16";
    let ran = engraft(folder, &format!("values --no-cache --json -o all.engraft {at} ./values"));
    assert_eq!((ran.stdout.as_str(), ran.code), (want.as_str(), code));
    let said: Value =
        serde_json::from_str(ran.stderr.lines().last().unwrap_or_default()).expect("it is JSON");
    let shown = engraft(folder, "show all.engraft --json").json();
    assert_eq!(shown, said);
    let places = said["places"].as_array().expect("places");
    assert_eq!(places.iter().map(|p| p["executions"].as_u64()).collect::<Vec<_>>(), [Some(150_000); 2]);
    let mut truth: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for line in want.lines() {
        let [register, value, n] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        truth.entry(register.to_owned()).or_default().insert(value.to_owned(), n.parse().expect("a number"));
    }
    let columns = places.iter().flat_map(|place| place["values"].as_array().expect("values"));
    let got: BTreeMap<String, BTreeMap<String, u64>> =
        columns.map(|column| (column["name"].as_str().expect("text").to_owned(), counts(column))).collect();
    assert_eq!(got, truth);
}

/// What is not there is said, and so is what nothing came by at; what cannot be understood ends before the
/// program runs.
#[test]
fn what_is_not_there_is_said() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("values"), "values.c", "-O1 -pthread");
    let ran = engraft(folder, "values --no-cache -o a.engraft --at nothing rdi --at main rdi ./values");
    assert_eq!(ran.code, Some(7));
    assert!(ran.stderr.contains("there is no nothing in what was loaded"), "{}", ran.stderr);
    for (args, words) in [
        ("--at main rdx2", "\"rdx2\" is no register"),
        ("--at main rdi:f65", "\"f65\" is no kind of value"),
        ("--at main edi:u64", "edi has no u64: it is 4 bytes wide"),
        ("", "no value is asked for"),
    ] {
        let ran = engraft(folder, &format!("values --no-cache -o b.engraft {args} ./values"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(ran.stderr.contains(words), "{args}: {}", ran.stderr);
        assert!(!folder.join("b.engraft").exists());
    }
}

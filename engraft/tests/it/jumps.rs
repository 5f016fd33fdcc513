//! Calls behind one that did not come back, against what the program counted itself.

use crate::needs;
use crate::run::{compile, engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// By caller and callee, how often, and between what.
fn shown(to: &Path) -> BTreeMap<(String, String), (u64, u64, u64)> {
    let view = engraft(to, "show run.engraft calls --json").json();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        let n = row["count"].as_u64().expect("a number");
        let end = |key: &str| row[key].as_u64().unwrap_or(n);
        ((text(row, "caller"), text(row, "callee")), (n, end("at_least"), end("at_most")))
    };
    view["calls"].as_array().expect("a list").iter().map(row).collect()
}

#[test]
fn calls_behind_one_that_did_not_come_back_are_as_many_as_were_made() {
    needs!("gcc");
    for flags in ["-O0", "-O1", "-O2 -no-pie", "-O1 -fcf-protection=full -static"] {
        let place = folder();
        let to = place.path();
        compile(&to.join("jumps"), "jumps.c", &format!("{flags} -w"));
        let said = must(Command::new("./jumps").current_dir(to));
        engraft(to, "count -q --no-cache --modules exe -o run.engraft -- ./jumps");
        let shown = shown(to);
        let mut n_exact = 0;
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let want: u64 = words[2].parse().expect("a number");
            let (n, least, most) = shown[&(words[0].to_owned(), words[1].to_owned())];
            assert!(
                (least..=most).contains(&want) && (least..=most).contains(&n),
                "{flags}: {line}: {least}..{most}"
            );
            // Nobody can tell them from those through the pointer.
            let is_loose = words[0] == "loose";
            assert!((least == most) != is_loose, "{flags}: {line}: {least}..{most}");
            n_exact += usize::from(least == most);
        }
        assert_eq!(n_exact, 8, "{said}");
        let text = engraft(to, "show run.engraft calls").ok();
        assert!(text.contains("25    100.00 %  work "), "{flags}: {text}");
        assert!(text.lines().any(|line| line.contains("..") && line.contains("loose ")), "{flags}: {text}");
        // So does what is written for others, where one line says what has become of the interval.
        for command in
            ["convert run.engraft -o x.callgrind", "convert run.engraft --binary jumps -o x.callgrind"]
        {
            let report = engraft(to, command).ok();
            assert!(report.contains("1 interval of calls"), "{flags}: {report}");
            let written = std::fs::read_to_string(to.join("x.callgrind")).expect("it was written");
            let calls = |callee: &str| {
                let lines: Vec<&str> = written.lines().collect();
                let named = format!("cfn={callee}");
                let calls = lines.windows(2).filter(|two| two[0] == named);
                let mut all: Vec<u64> = calls
                    .filter_map(|two| two[1].strip_prefix("calls=")?.split(' ').next()?.parse().ok())
                    .collect();
                all.sort_unstable();
                all
            };
            assert_eq!(
                (calls("g"), calls("h"), calls("shared")),
                (vec![25], vec![7, 25], vec![3, 25]),
                "{flags}"
            );
        }
        let report = engraft(to, "convert run.engraft --binary jumps -o x.fdata").ok();
        assert!(report.contains("1 interval of calls"), "{flags}: {report}");
    }
}

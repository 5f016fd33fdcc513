// What gate.sh runs of regex: patterns searched and replaced in FILE.
use regex::{Regex, RegexSet};
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let text = &text[..150_000];
    let patterns = [r"lua[A-Z]\w+", "(?i)error|fail(?:ure)?", r"(?m)^\s*#\s*define\s+(\w+)", r#""(?:[^"\\]|\\.)*""#,
        r"\breturn (\w+);", r"[0-9]+(?:\.[0-9]+)?", r"(?s)/\*.*?\*/", r"\p{Lu}{3,}", "(a(b|c)*d", r"(?P<n>if|while) \(([^)]{3,40})\)"];
    for p in patterns {
        match Regex::new(p) {
            Err(e) => println!("{}", e.to_string().len()),
            Ok(r) => {
                let found: usize = r.find_iter(text).map(|m| m.end() - m.start()).sum();
                let groups: usize = r.captures_iter(&text[..40_000]).map(|c| c.iter().flatten().count()).sum();
                println!("{p}: {found} {groups} {}", r.replace_all(&text[..30_000], "<$0>").len());
            }
        }
    }
    let set = RegexSet::new(patterns.iter().filter(|p| Regex::new(p).is_ok())).unwrap();
    println!("{}", text.lines().map(|l| set.matches(l).iter().count()).sum::<usize>());
}

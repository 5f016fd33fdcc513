// What gate.sh runs of pulldown-cmark: FILE, which is C, read as Markdown with all extensions, and a tidier
// text.
use pulldown_cmark::{html, Options, Parser};
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let mut tidy = String::from("[a]: http://x \"t\"\n\n| x | y |\n|---|--:|\n");
    for (i, line) in text.lines().take(3000).enumerate() {
        tidy += &match i % 9 {
            0 => format!("\n{} {line}\n\n", "#".repeat(1 + i % 5)),
            1 => format!("* {line} [link][a] *em **st** em*\n"),
            2 => format!("    1. {line} `code` <b>\n"),
            3 => format!("> {line}\\\n> ~~gone~~ &amp; ![i](u \"v\")\n\n"),
            4 => format!("| {line} | z |\n"),
            5 => format!("[^{i}]: {line}\n\ntext[^{i}]\n"),
            6 => format!("\n```c\n{line}\n```\n- [x] done\n"),
            _ => format!("{line}\n"),
        };
    }
    for text in [&text, &tidy] {
        let mut out = String::new();
        html::push_html(&mut out, Parser::new_ext(text, Options::all()));
        println!("{} {}", text.len(), out.len());
    }
}

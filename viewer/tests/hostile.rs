//! Recordings and requests that mean no good: pages are inert, and the server stays.

#[path = "hostile/client.rs"]
mod client;

use client::{MARKUP, NAMES, SITE, check_alive, check_inert, said};
use std::panic::catch_unwind;

#[test]
fn names_of_all_kinds_are_inert_on_each_page() {
    let pages = [
        ("", None),
        ("0/functions", None),
        ("0/functions.rows", Some("sort=function")),
        ("5/functions", Some("q=%3Cimg+src%3Dx&sort=%22+onfocus%3D%22alert")),
        ("10/loops", Some("q=%E2%80%AE%00*")),
        ("0/function", Some("name=%27+onmouseover%3D%27alert(3)")),
        ("0/function", Some("name=no+%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE")),
    ];
    for (path, query) in pages {
        let answer = SITE.answer(path, query);
        assert!(answer.kind.starts_with("text/html"), "{path}: {}", answer.kind);
        check_inert(&answer.bytes);
        assert!(answer.bytes.len() < 1 << 20, "{path}: {} bytes", answer.bytes.len());
    }
    // They are there, and can be read.
    let answer = SITE.answer("0/functions", None);
    let text = String::from_utf8_lossy(&answer.bytes);
    for shown in ["&#60;img src=x onerror=alert(1)&#62;", "\\u{202e}cod.exe\\u{2066}", "nul\\u{0}behind"] {
        assert!(text.contains(shown), "{shown}");
    }
}

#[test]
fn what_is_inert_is_told_from_what_is_not() {
    for bad in MARKUP.iter().map(|markup| (*markup).to_owned()).chain(["\u{202e}".into(), "\0".into()]) {
        assert!(catch_unwind(|| check_inert(bad.as_bytes())).is_err(), "{bad:?}");
    }
}

#[test]
fn a_name_of_ten_megabytes_is_cut_on_pages_and_whole_in_their_twins() {
    let page = SITE.answer("0/functions", Some("q=long_long_"));
    assert!(page.bytes.len() < 100_000, "{} bytes", page.bytes.len());
    assert!(String::from_utf8_lossy(&page.bytes).contains("long_…"));
    let twin = SITE.answer("0/functions.csv", Some("q=long_long_"));
    assert!(twin.bytes.len() > 10 << 20, "{} bytes", twin.bytes.len());
}

#[test]
fn twins_say_names_as_they_are_and_are_no_pages() {
    for (path, kind) in [("0/functions.json", "application/json"), ("0/functions.csv", "text/csv")] {
        let answer = SITE.answer(path, Some("q=img"));
        assert!(answer.kind.starts_with(kind), "{}", answer.kind);
        assert!(String::from_utf8_lossy(&answer.bytes).contains(NAMES[1]));
    }
}

#[test]
fn nothing_but_pages_is_found_by_any_path() {
    for path in [
        "..",
        "../",
        "../../etc/passwd",
        "0/../../../etc/passwd",
        "0/..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "//",
        "0//",
        "file:///etc/passwd",
        "0/functions.json/..",
        "999999999999/functions",
        "-1/functions",
        "\0",
        "0/\u{202e}",
        "templates/base.html",
        "Cargo.toml",
    ] {
        let answer = SITE.answer(path, None);
        assert_eq!((answer.status, answer.kind), (404, "text/plain; charset=utf-8"), "{path}");
        assert!(answer.bytes.len() < 10, "{path}");
    }
}

#[test]
fn heads_that_no_browser_sends_are_refused_or_left_without_an_answer() {
    let local = "Host: 127.0.0.1\r\n";
    let bad = [
        (format!("GET /TOKEN/\0 HTTP/1.1\r\n{local}\r\n"), "400"),
        (format!("GET /TOKEN/ HTTP/9.9\r\n{local}\r\n"), "400"),
        (format!("GET /TOKEN/ HTTP/1.1\r\n{local}X\u{202e}: 1\r\n\r\n"), "400"),
        (format!("GET /TOKEN/ HTTP/1.1\r\n{local}{local}\r\n"), "403"),
        ("GET /TOKEN/ HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n".to_owned(), "403"),
        (format!("GET /TOKEN/ HTTP/1.1\r\n{local}Origin: http://evil.example\r\n\r\n"), "403"),
        (format!("TRACE /TOKEN/ HTTP/1.1\r\n{local}\r\n"), "405"),
        (format!("GET /{}/ HTTP/1.1\r\n{local}\r\n", "0".repeat(32)), "404"),
        (format!("GET /TOKEN/../TOKEN/ HTTP/1.1\r\n{local}\r\n"), "404"),
        (format!("GET /TOKEN/{} HTTP/1.1\r\n{local}\r\n", "x".repeat(9000)), "431"),
        (format!("GET /TOKEN/ HTTP/1.1\r\n{local}{}\r\n", "A: b\r\n".repeat(200)), "431"),
    ];
    for (request, status) in bad {
        let answer = said(request.as_bytes());
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request:.200}\n{answer:.300}");
    }
    for silent in ["", "\r\n\r\n\r\n", "GET", "GET /TOKEN/ HTTP/1.1\r\nHost: 127.0.0.1"] {
        let answer = said(silent.as_bytes());
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{silent}");
    }
    check_alive();
}

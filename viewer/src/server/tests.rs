//! The server as a client has it that is no browser: what it refuses, and what it says.

use super::*;
use crate::recordings::{Drawing, Failed, FlowGraph};
use std::io::{Read as _, Write as _};
use std::time::Instant;
use views::compare::kept::KeptComparison;
use views::count::CountView;
use views::recordings::RecordingsView;
use views::sample::SampleView;
use views::show::costs::{CallTree, Ways};
use views::show::counts::CountsView;
use views::show::function::FunctionView;
use views::show::time::TimeView;

/// No recordings.
struct Nothing(RecordingsView);

impl Nothing {
    fn failed<T>() -> Result<T, Failed> {
        Err(Failed { what: "nothing".to_owned(), hint: None })
    }
}

impl Recordings for Nothing {
    fn all(&self) -> &RecordingsView {
        &self.0
    }
    fn counted(&self, _: usize) -> Result<Arc<CountView>, Failed> {
        Nothing::failed()
    }
    fn function(&self, _: usize, _: &str) -> Result<FunctionView, Failed> {
        Nothing::failed()
    }
    fn graph(&self, _: usize, _: &str, _: &Drawing<'_>) -> Result<FlowGraph, Failed> {
        Nothing::failed()
    }
    fn compared(&self, _: usize) -> Result<Arc<KeptComparison>, Failed> {
        Nothing::failed()
    }
    fn sampled(&self, _: usize) -> Result<Arc<SampleView>, Failed> {
        Nothing::failed()
    }
    fn tree(&self, _: usize, _: Ways<'_>) -> Result<Arc<CountsView<CallTree>>, Failed> {
        Nothing::failed()
    }
    fn time(&self, _: usize, _: Option<usize>, _: Option<(u64, u64)>) -> Result<Arc<TimeView>, Failed> {
        Nothing::failed()
    }
}

/// A server, as somebody knows it who was told the address.
struct Known {
    port: u16,
    token: String,
}

impl Known {
    fn started() -> Known {
        let server = Server::bind(None).expect("some port is free");
        let known = Known { port: server.port(), token: server.token.to_string() };
        assert_eq!(server.address(), format!("http://127.0.0.1:{}/{}/", known.port, known.token));
        let none = RecordingsView { schema: RecordingsView::SCHEMA, recordings: Vec::new() };
        server.start(Arc::new(Nothing(none))).expect("there are threads");
        known
    }

    fn connected(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        stream
    }

    /// What it answers to these bytes, in which `TOKEN` is the secret, until it closes.
    fn said(&self, request: &str) -> String {
        let mut stream = self.connected();
        let _closed_before_all_was_read = stream.write_all(request.replace("TOKEN", &self.token).as_bytes());
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status that it answers with to a request that is closed behind it.
    #[track_caller]
    fn check(&self, request: &str, expect: &str) {
        let said = self.said(&format!("{request}\r\nConnection: close\r\n\r\n"));
        let status = said.split(' ').nth(1).unwrap_or_default();
        assert_eq!(status, expect, "{request}\n{said}");
    }
}

const LOCAL: &str = "Host: 127.0.0.1";

#[test]
fn who_knows_the_address_is_answered_and_nobody_else() {
    let server = Known::started();
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}"), "200");
    server.check(&format!("GET /TOKEN/viewer.css HTTP/1.1\r\n{LOCAL}"), "200");
    for path in ["/", "/viewer.css", "/TOKEN", "/0123456789abcdef0123456789abcdef/", "//", "*"] {
        server.check(&format!("GET {path} HTTP/1.1\r\n{LOCAL}"), "404");
    }
    for path in ["/TOKEN/../../etc/passwd", "/TOKEN/..%2f..%2fetc/passwd", "/TOKEN/0/functions", "/TOKEN/x"] {
        server.check(&format!("GET {path} HTTP/1.1\r\n{LOCAL}"), "404");
    }
    server.check("GET /TOKEN/ HTTP/1.1\r\nHost: evil.example", "403");
    server.check("GET /TOKEN/ HTTP/1.1", "403");
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nOrigin: https://evil.example"), "403");
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nSec-Fetch-Site: cross-site"), "403");
    server.check(&format!("POST /TOKEN/ HTTP/1.1\r\n{LOCAL}"), "405");
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nContent-Length: 5"), "413");
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nTransfer-Encoding: chunked"), "413");
    server.check("nonsense", "400");
}

#[test]
fn each_answer_says_that_nothing_comes_from_elsewhere() {
    let server = Known::started();
    for path in ["/TOKEN/", "/TOKEN/keys.js", "/TOKEN/x", "/"] {
        let said = server.said(&format!("GET {path} HTTP/1.1\r\n{LOCAL}\r\nConnection: close\r\n\r\n"));
        let said = said.to_lowercase();
        for header in [
            "content-security-policy: default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(said.contains(&format!("{header}\r\n")), "{path} has no {header}:\n{said}");
        }
        assert!(!said.contains("access-control"), "{said}");
    }
}

#[test]
fn a_head_is_that_of_the_page_without_the_page() {
    let server = Known::started();
    let [head, page] = ["HEAD", "GET"].map(|method| {
        server.said(&format!("{method} /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nConnection: close\r\n\r\n"))
    });
    let length = |said: &str| {
        let (_, rest) = said.split_once("content-length: ").expect("it says how long it is");
        rest.split_once("\r\n").expect("a line").0.to_owned()
    };
    assert_eq!(length(&head), length(&page));
    assert!(head.ends_with("\r\n\r\n") && page.ends_with("</html>"), "{head}");
}

#[test]
fn several_requests_come_over_one_connection() {
    let server = Known::started();
    let one = format!("GET /TOKEN/icon.svg HTTP/1.1\r\n{LOCAL}\r\n\r\n");
    let last = format!("GET /TOKEN/icon.svg HTTP/1.1\r\n{LOCAL}\r\nConnection: close\r\n\r\n");
    let said = server.said(&format!("{one}{one}{last}"));
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 3, "{said}");
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let server = Known::started();
    let long = "x".repeat(20 << 10);
    server.check(&format!("GET /TOKEN/ HTTP/1.1\r\n{LOCAL}\r\nX-Long: {long}"), "431");
}

#[test]
fn a_head_that_drips_is_cut_off_at_its_deadline() {
    let server = Known::started();
    let mut stream = server.connected();
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
    let start = Instant::now();
    let is_open = |stream: &mut TcpStream| {
        let mut byte = [0];
        let waits =
            |err: io::Error| matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        stream.write_all(b"G").is_ok() && stream.read(&mut byte).err().is_some_and(waits)
    };
    while is_open(&mut stream) {
        assert!(start.elapsed() < Duration::from_secs(20), "it waits without end");
    }
    assert!(start.elapsed() > Duration::from_secs(8), "it had {:?} only", start.elapsed());
}

#[test]
fn of_too_many_connections_those_go_that_do_not_know_the_secret() {
    let server = Known::started();
    let mut known = server.connected();
    let request = format!("GET /{}/icon.svg HTTP/1.1\r\n{LOCAL}\r\n\r\n", server.token);
    let answered = |known: &mut TcpStream| {
        let mut answer = [0; 4096];
        known.write_all(request.as_bytes()).is_ok() && known.read(&mut answer).is_ok_and(|n| n > 0)
    };
    assert!(answered(&mut known));
    let mut others: Vec<TcpStream> = (0..3 * MOST).map(|_| server.connected()).collect();
    assert!(answered(&mut known), "it was cut off");
    assert!(answered(&mut server.connected()), "there is no room");
    let first = others.first_mut().expect("there are some");
    let mut byte = [0];
    // Sooner than at the deadline of its head.
    first.set_read_timeout(Some(Duration::from_secs(3))).expect("a time");
    assert!(matches!(first.read(&mut byte), Ok(0)), "the oldest that said nothing is still there");
}

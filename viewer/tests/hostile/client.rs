//! Recordings that mean no good, and clients that do not: for tests, and for `fuzz`.
#![allow(dead_code, reason = "each of these needs another part of it")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use viewer::{Drawing, Failed, FlowGraph, Recordings, Server, Site};
use views::Between;
use views::attach::AttachedView;
use views::count::{CountView, FunctionView, LoopView};
use views::recordings::{RecordingRow, RecordingsView, What};
use views::show::function::{BlockView, EdgeView, FunctionView as OneFunction, InsnView};

/// What nobody but a page itself may say in it.
pub const MARKUP: [&str; 5] =
    ["<img src=x", "<script>alert", "onmouseover='alert", "\" onfocus=\"alert", "<!--never"];

/// Names that a binary may have.
pub const NAMES: [&str; 10] = [
    "main",
    "<img src=x onerror=alert(1)>",
    "</title><script>alert(2)</script><!--never",
    "' onmouseover='alert(3)",
    "\" onfocus=\"alert(4)\" autofocus=\"",
    "a\r\nSet-Cookie: x=1\r\n\r\n<img src=x>",
    "\u{202e}cod.exe\u{2066}",
    "nul\0behind\u{1b}]0;title\u{7}",
    "{{ 7 * 7 }}{% include \"/etc/passwd\" %}&amp;&#60;",
    "../../../etc/passwd",
];

/// Bytes of the longest name, if they are not ten megabytes.
pub static LONGEST: OnceLock<usize> = OnceLock::new();

fn long() -> String {
    "long_".repeat(LONGEST.get().copied().unwrap_or(10 << 20) / 5)
}

/// A recording whose names are those, and a long one.
pub struct Hostile {
    list: RecordingsView,
    counted: Arc<CountView>,
}

impl Hostile {
    pub fn new() -> Hostile {
        let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        names.push(long());
        let functions = names.iter().zip(1..).map(|(name, n)| function(name, n)).collect();
        let loops = names.iter().take(NAMES.len()).zip(1..).map(|(name, n)| a_loop(name, n)).collect();
        let counted = CountView {
            schema: CountView::SCHEMA,
            points: Vec::new(),
            run: None,
            recording: NAMES.join(" "),
            threads: Some(1),
            stopped: 0,
            died: None,
            instructions: u64::MAX,
            counted_share: 1.0,
            modules: Vec::new(),
            functions,
            loops,
            uncounted: Vec::new(),
            unknown: Vec::new(),
            left_out: Vec::new(),
            others: None,
            per_thread: Vec::new(),
            attach: AttachedView::default(),
            repeated: None,
        };
        let row = |name: &String| RecordingRow {
            recording: name.clone(),
            what: What::Counts,
            command: Some(name.clone()),
            written: None,
        };
        let recordings = names.iter().map(row).collect();
        Hostile {
            list: RecordingsView { schema: RecordingsView::SCHEMA, recordings },
            counted: Arc::new(counted),
        }
    }
}

fn function(name: &str, n: u64) -> FunctionView {
    FunctionView {
        module: name.chars().take(4000).collect(),
        name: name.to_owned(),
        at: n * 64,
        entries: (!n.is_multiple_of(3)).then_some(n),
        between: Between::default(),
        instructions: u64::MAX / n,
        share: 1.0 / n as f64,
        inclusive: None,
    }
}

fn a_loop(name: &str, n: u64) -> LoopView {
    LoopView {
        module: name.to_owned(),
        function: name.to_owned(),
        at: n,
        iterations: n,
        entries: Some(n),
        exits: None,
        trips: Some(f64::INFINITY),
        depth: 1,
        instructions: n,
        iterations_between: None,
        entries_between: None,
        trips_between: None,
        exits_between: None,
        share: None,
    }
}

impl Recordings for Hostile {
    fn all(&self) -> &RecordingsView {
        &self.list
    }

    fn counted(&self, _: usize) -> Result<Arc<CountView>, Failed> {
        Ok(self.counted.clone())
    }

    fn function(&self, _: usize, name: &str) -> Result<OneFunction, Failed> {
        if name.starts_with("no ") {
            return Err(Failed { what: name.to_owned(), hint: Some(name.to_owned()) });
        }
        let long = long();
        let insn = |text: &str| InsnView {
            at: 1,
            text: text.to_owned(),
            line: Some(format!("{text}:1")),
            source: Some(text.to_owned()),
            calls: Some(text.to_owned()),
        };
        let edge = EdgeView {
            id: "e0".to_owned(),
            also: Vec::new(),
            to: 0,
            to_block: 0,
            kind: "taken",
            sure: "proved",
            count: Some(u64::MAX),
            between: Between::default(),
        };
        let block = BlockView {
            block: 0,
            at: 0,
            len_bytes: u32::MAX,
            end: "branch",
            landing_pad: true,
            entry: true,
            loop_depth: u32::MAX,
            loop_header: true,
            share: Some(f64::NAN),
            count: Some(u64::MAX),
            between: Between::default(),
            live: None,
            instructions: NAMES.iter().copied().chain([long.as_str()]).map(insn).collect(),
            edges: vec![edge],
        };
        Ok(OneFunction {
            schema: OneFunction::SCHEMA,
            binary: NAMES.concat(),
            id: "fn0".to_owned(),
            name: format!("{name}{}{long}", NAMES.concat()),
            source_name: Some(long.clone()),
            at: u64::MAX,
            ranges: Vec::new(),
            origin: "symbol",
            sure: "proved",
            complete: false,
            returns: false,
            namesakes: Vec::new(),
            resolves: None,
            live: None,
            blocks: vec![block],
        })
    }

    fn graph(&self, _: usize, _: &str, _: &Drawing<'_>) -> Result<FlowGraph, Failed> {
        Ok(FlowGraph { svg: "<svg><style></style></svg>".to_owned(), is_folded: true, node_of: vec![None] })
    }
}

/// All pages of it.
pub static SITE: LazyLock<Site> = LazyLock::new(|| Site::new(Arc::new(Hostile::new())));

/// A server that has it: port and secret.
pub static SERVED: LazyLock<(u16, String)> = LazyLock::new(|| {
    let server = Server::bind(None).expect("some port is free");
    let address = server.address();
    let secret = address.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let port = server.port();
    server.start(Arc::new(Hostile::new())).expect("there are threads");
    (port, secret)
});

/// What the server says to these bytes, in which `TOKEN` is its secret, when nothing comes behind them.
pub fn said(bytes: &[u8]) -> Vec<u8> {
    let (port, secret) = &*SERVED;
    let mut request = Vec::with_capacity(bytes.len() + secret.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(5).position(|word| word == b"TOKEN") {
        request.extend_from_slice(rest.get(..at).unwrap_or_default());
        request.extend_from_slice(secret.as_bytes());
        rest = rest.get(at + 5..).unwrap_or_default();
    }
    request.extend_from_slice(rest);
    let mut stream = TcpStream::connect(("127.0.0.1", *port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    // It may have closed before all was read.
    let _closed = stream.write_all(&request).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    answer
}

/// Fails if a page says what only a page may say, in somebody's name.
pub fn check_inert(page: &[u8]) {
    let text = String::from_utf8_lossy(page);
    for markup in MARKUP {
        assert!(!text.contains(markup), "{markup} in {}", text.chars().take(4000).collect::<String>());
    }
    let is_unseen =
        |c: char| c.is_control() && !"\n\r\t".contains(c) || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(is_unseen), "{}", text.chars().take(4000).collect::<String>());
}

/// Any bytes as a request, over a connection; and as a path with a query.
pub fn request(bytes: &[u8]) {
    let answer = said(bytes);
    if !answer.is_empty() {
        let head = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let status = String::from_utf8_lossy(head).split(' ').nth(1).unwrap_or_default().to_owned();
        const KNOWN: [&str; 9] = ["200", "303", "400", "403", "404", "405", "413", "414", "431"];
        assert!(KNOWN.contains(&status.as_str()), "{status}: {}", String::from_utf8_lossy(&answer));
    }
    let text = String::from_utf8_lossy(bytes);
    let path = text.split(' ').nth(1).unwrap_or(&text).trim_start_matches("/TOKEN/");
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let answer = SITE.answer(path, query);
    assert!([200, 303, 404].contains(&answer.status), "{path}: {}", answer.status);
    if answer.kind.starts_with("text/html") {
        assert!(answer.bytes.len() < 4 << 20, "{path}: {} bytes", answer.bytes.len());
        check_inert(&answer.bytes);
    }
}

/// Fails if the server does not answer who asks well.
pub fn check_alive() {
    let answer = said(b"GET /TOKEN/0/functions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
}

/// Requests that are whole.
pub fn seeds() -> Vec<Vec<u8>> {
    const PAGES: [&str; 14] = [
        "",
        "viewer.css",
        "viewer.js",
        "icon.svg",
        "0/functions",
        "0/functions?q=a*b&sort=function&order=reversed&from=3&rows=2",
        "1/functions.rows?from=18446744073709551615&rows=99999999999",
        "2/loops?sort=per+entry",
        "0/loops.csv?q=%3Cimg%20src=x",
        "0/function?name=%3Cimg+src%3Dx%20onerror=alert(1)%3E&whole=1",
        "3/function?name=no+%E2%80%AE%00",
        "0/graph?name=main",
        "recordings.json",
        "../../etc/passwd",
    ];
    let request = |page: &&str| {
        format!(
            "GET /TOKEN/{page} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n"
        )
        .into_bytes()
    };
    let mut seeds: Vec<Vec<u8>> = PAGES.iter().map(request).collect();
    seeds.push(b"HEAD /TOKEN/ HTTP/1.0\r\nHost: [::1]\r\n\r\nGET /TOKEN/x HTTP/1.1\r\n\r\n".to_vec());
    seeds.push(
        b"POST /TOKEN/0/functions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nname=main".to_vec(),
    );
    seeds.push(b"GET http://evil.example/TOKEN/ HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec());
    seeds
}

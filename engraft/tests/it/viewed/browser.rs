//! Chromium, driven as a person would: opened, clicked, typed into, looked at.
//!
//! Source: W3C, "WebDriver", 6 to 12; chromedriver's `goog:loggingPrefs` and `goog/cdp/execute`.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What WebDriver calls an element by.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The key that opens what has the focus.
pub const ENTER: &str = "\u{e007}";

/// A browser without a window; it ends with this.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    pub fn start() -> Browser {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().expect("chromedriver runs");
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let port = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).expect("text") > 0, "chromedriver says no port");
            let port = line.trim_end().rsplit_once("on port ").and_then(|(_, port)| port.strip_suffix('.'));
            if let Some(port) = port.and_then(|port| port.parse().ok()) {
                break port;
            }
        };
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        let mut browser = Browser { driver, port, session: String::new() };
        let args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let made = browser.ask("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = format!("/session/{}", made["sessionId"].as_str().expect("a session"));
        browser.size(1280, 900);
        browser
    }

    /// Asks chromedriver.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, value) = self.tried(method, path, body);
        assert_eq!(status, "200", "{method} {path} {body}\n{value:#}");
        value
    }

    fn tried(&self, method: &str, path: &str, body: &Value) -> (String, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it is read");
        // It keeps the connection, whatever it is asked: how long the answer is, it says.
        let mut answer = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(answer.read_line(&mut head).expect("text") > 0, "no answer to {method} {path}");
        }
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.expect("it says how long it is")];
        answer.read_exact(&mut body).expect("all of it");
        let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        (status, json["value"].clone())
    }

    #[track_caller]
    fn of_session(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("{}{path}", self.session), body)
    }

    #[track_caller]
    pub fn open(&self, address: &str) {
        self.of_session("/url", &json!({ "url": address }));
    }

    #[track_caller]
    pub fn back(&self) {
        self.of_session("/back", &json!({}));
    }

    #[track_caller]
    pub fn reload(&self) {
        self.of_session("/refresh", &json!({}));
    }

    /// What this script returns.
    #[track_caller]
    pub fn script(&self, text: &str) -> Value {
        self.of_session("/execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// What this script gives to the function that is its last argument.
    #[track_caller]
    pub fn script_later(&self, text: &str) -> Value {
        self.of_session("/execute/async", &json!({ "script": text, "args": [] }))
    }

    /// Where it is.
    #[track_caller]
    pub fn address(&self) -> String {
        self.script("return location.href").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until this script returns something that is true.
    #[track_caller]
    pub fn until(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.script(text) != json!(true) {
            assert!(Instant::now() < end, "never: {text}\nat {}", self.address());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let found = self.of_session("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    #[track_caller]
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.of_session(&format!("/element/{element}/click"), &json!({}));
    }

    /// Moves the pointer there.
    #[track_caller]
    pub fn point_at(&self, selector: &str) {
        let origin = json!({ ELEMENT: self.element(selector) });
        let moved = json!({ "type": "pointerMove", "origin": origin, "x": 0, "y": 0, "duration": 0 });
        let pointer = json!({ "type": "pointer", "id": "p", "actions": [moved] });
        self.of_session("/actions", &json!({ "actions": [pointer] }));
    }

    /// Presses these keys, one after the other, wherever the focus is.
    #[track_caller]
    pub fn press(&self, keys: &str) {
        let one = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.chars().flat_map(one).collect();
        self.of_session(
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "k", "actions": actions }] }),
        );
    }

    /// The text of what fits the selector.
    #[track_caller]
    pub fn texts(&self, selector: &str) -> Vec<String> {
        let script =
            format!("return [...document.querySelectorAll({selector:?})].map((e) => e.textContent.trim())");
        serde_json::from_value(self.script(&script)).expect("texts")
    }

    #[track_caller]
    fn devtools(&self, command: &str, params: &Value) {
        self.of_session("/goog/cdp/execute", &json!({ "cmd": command, "params": params }));
    }

    #[track_caller]
    pub fn size(&self, width: u32, height: u32) {
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &params);
    }

    /// `light` or `dark`.
    #[track_caller]
    pub fn theme(&self, name: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": name });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Fails if anything was said on the console, asked for elsewhere than below `address`, or not there.
    #[track_caller]
    pub fn check_quiet(&self, address: &str) {
        let log = |kind: &str| {
            let lines = self.of_session("/se/log", &json!({ "type": kind }));
            lines.as_array().expect("lines").clone()
        };
        let console = log("browser");
        assert!(console.is_empty(), "{console:#?}");
        let mut n_answers = 0;
        for line in log("performance") {
            let line: Value = serde_json::from_str(line["message"].as_str().expect("text")).expect("JSON");
            let (method, params) = (&line["message"]["method"], &line["message"]["params"]);
            let is_ours = |url: &Value| {
                let url = url.as_str().unwrap_or_default();
                url.starts_with(address) || url.starts_with("data:") || url == "about:blank"
            };
            match method.as_str() {
                Some("Network.requestWillBeSent") => {
                    assert!(is_ours(&params["request"]["url"]), "{params:#}");
                }
                Some("Network.responseReceived") => {
                    n_answers += 1;
                    assert!(params["response"]["status"].as_u64().is_some_and(|n| n < 400), "{params:#}");
                }
                Some("Network.loadingFailed") => {
                    assert!(params["canceled"] == json!(true), "{params:#}");
                }
                _ => {}
            }
        }
        assert!(n_answers > 0, "nothing was asked for");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _gone = self.tried("DELETE", &self.session, &Value::Null);
        }
        let _gone = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

//! Who is answered: those that know the secret, and are no page from elsewhere.
//!
//! Another user of this machine can connect to us, and any page of the web can have a browser do so. The
//! first does not know the secret. The second does not either; if it came by it, by a name of its own for
//! 127.0.0.1 (DNS rebinding), say, `Host`, `Origin` and `Sec-Fetch-Site` tell on it.
//!
//! Source: W3C, "Fetch Metadata Request Headers", 2 and 5.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _};

/// A secret of 128 random bits.
pub struct Token([u8; 32]);

impl Token {
    /// Another one each time.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let mut digits = String::with_capacity(32);
        for byte in bytes {
            let _memory = write!(digits, "{byte:02x}");
        }
        digits.into_bytes().try_into().map(Token).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// What stands behind the secret in `path`, if it is there; after a time that does not tell how much of
    /// it was right.
    pub fn behind<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (given, rest) = path.strip_prefix('/')?.split_once('/')?;
        let given = given.as_bytes();
        let differs = self.0.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        (std::hint::black_box(differs) == 0 && given.len() == self.0.len()).then_some(rest)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether a request with these headers comes from a page of ours, or from somebody who opens one.
pub fn is_ours(headers: &HeaderMap) -> bool {
    let all = |name: &HeaderName| -> Vec<&str> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?")).collect()
    };
    let is_host = matches!(all(&header::HOST)[..], [host] if is_loopback(host));
    let is_origin = match all(&header::ORIGIN)[..] {
        [] => true,
        [origin] => origin.strip_prefix("http://").is_some_and(is_loopback),
        _ => false,
    };
    let is_site = match all(&FETCH_SITE)[..] {
        [] | ["none" | "same-origin"] => true,
        // Who follows a link to us, or the file that leads here.
        [_] => all(&FETCH_MODE) == ["navigate"] && all(&FETCH_DEST) == ["document"],
        _ => false,
    };
    is_host && is_origin && is_site
}

/// Whether `host` is this machine, as it knows itself; any port, which is another one behind a tunnel.
fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit());
    ["127.0.0.1", "localhost", "[::1]"].into_iter().any(|name| match host.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(is_port),
        None => false,
    })
}

/// What pages may do: nothing that is not from here.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";

/// Puts what each answer says for the safety of its reader to its headers.
pub fn protect(headers: &mut HeaderMap) {
    let all = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in all {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_new_each_time_and_known_whole_alone() {
        let [token, other] = [(); 2].map(|()| Token::random().expect("the kernel has random bytes"));
        let text = token.to_string();
        assert!(text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()), "{text}");
        assert_ne!(text, other.to_string());
        assert_eq!(token.behind(&format!("/{text}/0/functions")), Some("0/functions"));
        assert_eq!(token.behind(&format!("/{text}/")), Some(""));
        let wrong = [
            String::new(),
            "/".to_owned(),
            "//".to_owned(),
            format!("/{text}"),
            format!("/{}/", &text[..31]),
            format!("/{text}0/"),
            format!("/{other}/"),
            format!("{text}/"),
            format!("//{text}/"),
            format!("/{}/", text.to_uppercase() + "x"),
        ];
        for path in wrong {
            assert_eq!(token.behind(&path), None, "{path}");
        }
    }

    /// Whether a request is answered that has these headers, a line each.
    fn check(lines: &str, expect: bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines.split("; ").filter_map(|line| line.split_once(": ")) {
            let name = name.to_lowercase().parse::<HeaderName>().expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        assert_eq!(is_ours(&headers), expect, "{lines}");
    }

    #[test]
    fn requests_of_others_are_told_by_their_headers() {
        check("Host: 127.0.0.1:8000", true);
        check("Host: localhost:9000", true);
        check("Host: [::1]", true);
        check("", false);
        check("Host: 127.0.0.1; Host: evil.example", false);
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost:", "localhost:x", "localhost:99999"]
        {
            check(&format!("Host: {host}"), false);
        }
        check("Host: localhost; Origin: http://localhost:9000", true);
        for origin in ["null", "https://evil.example", "http://localhost.evil.example", "localhost"] {
            check(&format!("Host: localhost; Origin: {origin}"), false);
        }
        check("Host: localhost; Sec-Fetch-Site: none", true);
        check("Host: localhost; Sec-Fetch-Site: same-origin; Sec-Fetch-Mode: cors", true);
        let opened = "Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document";
        for site in ["cross-site", "same-site"] {
            check(&format!("Host: localhost; Sec-Fetch-Site: {site}; {opened}"), true);
            check(&format!("Host: localhost; Sec-Fetch-Site: {site}; Sec-Fetch-Mode: no-cors"), false);
            let framed = "Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: iframe";
            check(&format!("Host: localhost; Sec-Fetch-Site: {site}; {framed}"), false);
        }
    }
}

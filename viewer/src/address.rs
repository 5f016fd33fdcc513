//! Addresses of pages: what they ask for, read and written.
//!
//! ```text
//! /TOKEN/                              which recordings there are
//! /TOKEN/NAME.EXT                      a file of ours: style, script, icon
//! /TOKEN/N/PAGE[.json|.csv|.rows]?…    a page of recording N; its twins; rows of its table
//! ```
//! Source: WHATWG, "URL Standard", 5.1 and 5.2 (`application/x-www-form-urlencoded`).

/// What an address asks for, behind the token.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The recording.
    pub recording: Option<usize>,
    /// The page, or file of ours.
    pub page: &'a str,
    /// In which form.
    pub form: Form,
    /// What else.
    pub query: Query,
}

/// In which form a page is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// To be read.
    Page,
    /// Some rows of its table alone, for scrolling.
    Rows,
    /// As `--json` prints it.
    Json,
    /// For spreadsheets.
    Csv,
}

/// What stands behind the `?`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Query(Vec<(String, String)>);

impl<'a> Asked<'a> {
    /// What `path` asks for, which is what stands behind the token and its slash.
    pub fn parse(path: &'a str, query: Option<&str>) -> Option<Asked<'a>> {
        let query = Query::parse(query.unwrap_or_default());
        let Some((recording, page)) = path.split_once('/') else {
            return Some(Asked { recording: None, page: path, form: Form::Page, query });
        };
        let recording = recording.bytes().all(|byte| byte.is_ascii_digit()).then(|| recording.parse().ok());
        let forms = [(".json", Form::Json), (".csv", Form::Csv), (".rows", Form::Rows)];
        let form = forms.into_iter().find_map(|(end, form)| Some((page.strip_suffix(end)?, form)));
        let (page, form) = form.unwrap_or((page, Form::Page));
        Some(Asked { recording: Some(recording??), page, form, query })
    }
}

impl Query {
    /// Reads it; what is no text is replaced.
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Query(pairs.map(pair).collect())
    }

    /// What it says of `name`; nothing, if that is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    /// All that it says of `name`.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The number that it says of `name`.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.get(name)?.parse().ok()
    }

    /// With another value of `name`, or without one.
    pub fn with(&self, name: &str, value: Option<&str>) -> Query {
        let mut pairs: Vec<_> = self.0.iter().filter(|(key, _)| key != name).cloned().collect();
        pairs.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        Query(pairs)
    }

    /// With those names alone.
    pub fn only(&self, names: &[&str]) -> Query {
        Query(self.0.iter().filter(|(key, _)| names.contains(&key.as_str())).cloned().collect())
    }

    /// The address of `page` with it.
    pub fn link(&self, page: &str) -> String {
        match self.0.is_empty() {
            true => page.to_owned(),
            false => format!("{page}?{self}"),
        }
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, (name, value)) in self.0.iter().enumerate() {
            let and = if n == 0 { "" } else { "&" };
            write!(f, "{and}{}={}", encoded(name), encoded(value))?;
        }
        Ok(())
    }
}

/// A text as it stands in a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        b'*' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The text that stands in a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let mut ahead = rest.clone();
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'+', ..) => bytes.push(b' '),
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["", "a b", "a+b%20", "ns::f<int>(char*)&x=1#?", "\u{202e}ü🦀\n\"'<>", "%", "%zz", "%4"]
        {
            let query = Query::default().with("q", Some(text)).with("from", Some("7"));
            let read = Query::parse(&query.to_string());
            assert_eq!((read.get("q").unwrap_or_default(), read.number("from")), (text, Some(7)), "{query}");
        }
    }

    #[test]
    fn an_address_names_a_recording_a_page_and_a_form() {
        let parsed = |path| Asked::parse(path, None).map(|asked| (asked.recording, asked.page, asked.form));
        assert_eq!(parsed(""), Some((None, "", Form::Page)));
        assert_eq!(parsed("viewer.css"), Some((None, "viewer.css", Form::Page)));
        assert_eq!(parsed("12/functions"), Some((Some(12), "functions", Form::Page)));
        assert_eq!(parsed("0/functions.csv"), Some((Some(0), "functions", Form::Csv)));
        assert_eq!(parsed("0/../x"), Some((Some(0), "../x", Form::Page)));
        for path in ["../etc/passwd", "/", "-1/functions", "99999999999999999999999/functions", "x/functions"]
        {
            assert_eq!(parsed(path), None, "{path}");
        }
    }
}

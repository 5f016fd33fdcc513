//! All pages of recordings in one file, which a browser shows without a server, and without a network.
//!
//! ```text
//! <div id="page">the first page</div>
//! <script type="application/gzip" id="pages">base64 of gzip of
//!   {"0/functions": {"title": "…", "body": "<header>…<main>…"}, "0/function?name=f": {…}, …}</script>
//! <script type="module">keys.js</script> <script type="module">file.js</script>
//! ```
//! Without script, the first page is there. What runs in it, and its style, are named by their hashes in its
//! policy: a name in a recording that were not escaped could do nothing.
//!
//! Source: W3C, "Content Security Policy Level 3", 6.7.3.3; WHATWG, "Compression", `DecompressionStream`.

use crate::address::Query;
use crate::assets;
use crate::pages::{LONGEST_IN_FILE, Site};
use crate::recordings::{Failed, Recordings};
use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::sync::Arc;

/// Keys of a query that select a page.
const PAGE_KEYS: [&str; 5] = ["name", "n", "metric", "swap", "by"];
/// Keys of a query that sort and search rows, which the file's own script does.
const STATE_KEYS: [&str; 4] = ["sort", "order", "q", "from"];
/// Keys of pages that are limited, of which there is one for each function or interval; and by what the
/// limit is divided.
const LIMITED_BY: [(&str, usize); 2] = [("name", 1), ("n", 2)];

/// How many rows of the first page are there without script.
const UNPACKED: usize = 100;

/// A file of pages.
pub struct Saved {
    /// The file.
    pub text: String,
    /// How many pages it has.
    pub n_pages: usize,
    /// How many pages of functions and of intervals it has no room for.
    pub n_left_out: usize,
}

/// All pages of `recordings` as one file; of each table the first rows, and the pages of the first `most`
/// functions, and of half as many intervals, in the order in which the tables have them.
///
/// # Errors
/// If there is no first page.
pub fn saved(recordings: Arc<dyn Recordings>, most: usize) -> Result<Saved, Failed> {
    let site = Site::new(recordings);
    let mut found = Found { most, ..Found::default() };
    found.add(first(&site));
    let mut pages: Vec<(String, Page)> = Vec::new();
    while let Some(key) = found.queue.pop_front() {
        let (path, query) = key.split_once('?').unwrap_or((&key, ""));
        let asked = Query::parse(query).with("file", Some("1")).to_string();
        let answer = site.answer(path, Some(&asked));
        let text = String::from_utf8_lossy(&answer.bytes);
        let (true, Some(page)) = (answer.status == 200, Page::of(&text)) else {
            found.known.remove(&key);
            continue;
        };
        for link in links(&page.body) {
            found.add(resolved(path, &link).and_then(|link| link.page));
        }
        pages.push((key, page));
    }
    // Builds that are swapped stand beside those that are not: they are packed as one then.
    let unswapped = |key: &str| {
        let (path, query) = key.split_once('?').unwrap_or((key, ""));
        Query::parse(query).with("swap", None).link(path)
    };
    let places: HashMap<String, usize> =
        pages.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    pages.sort_by_cached_key(|(key, _)| (places.get(&unswapped(key)).copied(), key.len()));
    for (key, page) in &mut pages {
        found.link(key, page);
    }
    // What is there without script has fewer rows: all of them are among what is packed.
    let first = pages.first().and_then(|(key, _)| {
        let answer = site.answer(key, Some(&format!("file=1&rows={UNPACKED}")));
        let mut page = Page::of(&String::from_utf8_lossy(&answer.bytes))?;
        found.link(key, &mut page);
        Some(page)
    });
    let what = || Failed { what: "there is no page to be written".to_owned(), hint: None };
    let text = file(&first.ok_or_else(what)?, &pages, found.n_left_out)?;
    Ok(Saved { text, n_pages: pages.len(), n_left_out: found.n_left_out })
}

/// The page that is shown first: of one recording, its own.
fn first(site: &Site) -> Option<String> {
    let mut at = String::new();
    // The list leads to the only recording, and that to its first page.
    for _ in 0..3 {
        match site.answer(&at, None).location {
            Some(to) => at = resolved(&at, &to)?.page?,
            None => return Some(at),
        }
    }
    None
}

/// Pages that the file has.
#[derive(Default)]
struct Found {
    most: usize,
    known: HashSet<String>,
    queue: VecDeque<String>,
    /// By their path, those of which there is one for each function, or interval, numbered as they were
    /// found.
    limited: HashMap<String, HashMap<String, usize>>,
    n_left_out: usize,
}

impl Found {
    fn add(&mut self, key: Option<String>) {
        let Some(key) = key.filter(|key| !self.known.contains(key)) else { return };
        if let Some((path, query)) = key.split_once('?') {
            let query = Query::parse(query);
            if let Some((of, part)) =
                LIMITED_BY.iter().find_map(|(name, part)| Some((query.get(name)?, part)))
            {
                let all = self.limited.entry(path.to_owned()).or_default();
                let n_found = all.len();
                let place = *all.entry(of.to_owned()).or_insert(n_found);
                if place >= self.most / part {
                    self.n_left_out += usize::from(all.len() > n_found);
                    return;
                }
            }
        }
        self.known.insert(key.clone());
        self.queue.push_back(key);
    }

    /// Has the links of the page `key` lead to pages of the file alone.
    fn link(&self, key: &str, page: &mut Page) {
        let path = key.split_once('?').map_or(key, |(path, _)| path);
        page.body = page.with_links(|link| {
            let to = resolved(path, link)?;
            let page = to.page.filter(|page| self.known.contains(page))?;
            let rest = to.state.to_string();
            let and = if page.contains('?') { '&' } else { '?' };
            Some(if rest.is_empty() { format!("#/{page}") } else { format!("#/{page}{and}{rest}") })
        });
    }
}

/// Where a link leads.
struct Link {
    /// The page, if a file can have it.
    page: Option<String>,
    /// What it says of that page's rows.
    state: Query,
}

/// Where `href` leads from the page at `path`; nowhere, if that is no page of ours.
fn resolved(path: &str, href: &str) -> Option<Link> {
    if href.starts_with('#') || href.contains(':') {
        return None;
    }
    let (to, query) = href.split_once('?').unwrap_or((href, ""));
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let query = Query::parse(query).with("file", None);
    let is_known = query.only(&[&PAGE_KEYS[..], &STATE_KEYS[..]].concat()) == query;
    // Pictures and twins are files of their own, and calls of one function are looked for in the whole run.
    let has_room = match parts.last() {
        Some(&("graph" | "export" | "search")) => false,
        Some(&("callers" | "tree" | "flame" | "time")) => query.get("name").is_none(),
        _ => true,
    };
    let is_page = is_known && has_room && !path.contains('.');
    // Each page has one name, in whatever order an address says what it is.
    let named = PAGE_KEYS.iter().filter_map(|key| Some((key, query.get(key)?)));
    let page = named.fold(Query::default(), |page, (key, value)| page.with(key, Some(value)));
    let page = is_page.then(|| page.link(&path));
    Some(Link { page, state: query.only(&STATE_KEYS) })
}

/// A page, as the file has it.
#[derive(Serialize)]
struct Page {
    title: String,
    body: String,
}

impl Page {
    /// What of this document the file has: all but its head, and what is the same on all pages.
    fn of(text: &str) -> Option<Page> {
        let between = |from: &str, to: &str| Some(text.split_once(from)?.1.split_once(to)?.0);
        Some(Page {
            title: unescaped(between("<title>", "</title>")?).into_owned(),
            body: between("<body>", "<dialog id=\"keys\"")?.to_owned(),
        })
    }

    /// Its body with other addresses in its links; without one, a link is none.
    fn with_links(&self, to: impl Fn(&str) -> Option<String>) -> String {
        let mut out = String::with_capacity(self.body.len());
        let mut rest = self.body.as_str();
        while let Some((before, behind)) = rest.split_once(HREF) {
            let Some((link, behind)) = behind.split_once('"') else { break };
            let link = unescaped(link);
            if link.starts_with('#') {
                out.push_str(&[before, HREF, &link, "\""].concat());
            } else if let Some(link) = to(&link) {
                out.push_str(&[before, HREF, &link.replace('&', "&amp;"), "\""].concat());
            } else {
                // What leads nowhere opens nothing, either.
                let opens = before.rfind(" aria-expanded=\"").filter(|at| !before[*at..].contains('>'));
                out.push_str(opens.map_or(before, |at| &before[..at]));
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }
}

/// How a link begins: what people or files say has no such quote, since it is escaped.
const HREF: &str = " href=\"";

/// Where a body leads: rows that can be looked for first, since what a page is about is among these.
fn links(body: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let (before, rows) = body.split_at(body.find("<div class=\"grid\"").unwrap_or(0));
    rows.split(HREF)
        .skip(1)
        .chain(before.split(HREF).skip(1))
        .filter_map(|rest| Some(unescaped(rest.split_once('"')?.0)))
}

/// A text of ours without its escapes.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let known =
        [("&#38;", "&"), ("&amp;", "&"), ("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'")];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, _)) = rest.split_once('&') {
        out.push_str(before);
        let at = rest.get(before.len()..).unwrap_or_default();
        let escape = known.iter().find(|(escape, _)| at.starts_with(escape));
        let (plain, n_read) = escape.map_or(("&", 1), |(escape, plain)| (*plain, escape.len()));
        out.push_str(plain);
        rest = at.get(n_read..).unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What is written in the file.
#[derive(Template)]
#[template(path = "file.html")]
struct Whole<'a> {
    title: &'a str,
    body: &'a str,
    policy: &'a str,
    icon: &'a str,
    style: &'a str,
    pages: &'a str,
    scripts: &'a [&'a str],
    n_left_out: usize,
    n_rows: usize,
}

fn file(first: &Page, pages: &[(String, Page)], n_left_out: usize) -> Result<String, Failed> {
    struct InOrder<'a>(&'a [(String, Page)]);
    impl Serialize for InOrder<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map(self.0.iter().map(|(key, page)| (key, page)))
        }
    }
    let failed =
        |err: &dyn std::fmt::Display| Failed { what: format!("cannot write pages: {err}"), hint: None };
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let json = serde_json::to_vec(&InOrder(pages)).map_err(|err| failed(&err))?;
    let packed = packed.write_all(&json).and_then(|()| packed.finish()).map_err(|err| failed(&err))?;
    let asset = |name| assets::find(name).map_or("", |(_, text)| text);
    let scripts: Vec<&str> = assets::IN_FILES.iter().map(|name| asset(name)).collect();
    let hashes: Vec<String> = scripts.iter().map(|text| assets::hash(text)).collect();
    let style = asset("viewer.css");
    let policy = format!(
        "default-src 'none'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        assets::hash(style),
        hashes.join(" ")
    );
    let whole = Whole {
        title: &first.title,
        body: &first.body,
        policy: &policy,
        icon: &STANDARD.encode(asset("icon.svg")),
        style,
        pages: &STANDARD.encode(packed),
        scripts: &scripts,
        n_left_out,
        n_rows: LONGEST_IN_FILE,
    };
    whole.render().map_err(|err| failed(&err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_of_the_file_or_nowhere() {
        let to = |path, href| resolved(path, href).map(|link| (link.page, link.state.to_string()));
        let page = |page: &str, state: &str| Some((Some(page.to_owned()), state.to_owned()));
        assert_eq!(to("0/functions", "function?name=a%26b"), page("0/function?name=a%26b", ""));
        assert_eq!(to("0/functions", "functions?sort=x&q=y"), page("0/functions", "sort=x&q=y"));
        assert_eq!(to("0/functions", "../"), page("", ""));
        assert_eq!(to("", "1/functions"), page("1/functions", ""));
        assert_eq!(to("0/function", "outlier?n=3&swap=1"), page("0/outlier?n=3&swap=1", ""));
        assert_eq!(to("0/function", "outlier?swap=1&file=1&n=3"), page("0/outlier?n=3&swap=1", ""));
        assert_eq!(to("0/function", "flame?at=1.2"), Some((None, String::new())));
        assert_eq!(to("0/functions", "functions.json"), Some((None, String::new())));
        assert_eq!(to("0/function", "graph?name=f"), Some((None, String::new())));
        assert_eq!(to("0/function", "#b3"), None);
        assert_eq!(to("0/function", "https://example.org/"), None);
    }

    #[test]
    fn a_body_has_its_links_changed_and_nothing_else() {
        let text = "<title>a &#60;b&#62;</title><body><p>x <a class=\"q\" href=\"to?a=1&#38;b=2\">t</a> \
            <a href=\"#b1\">b</a> <a aria-expanded=\"true\" href=\"gone\">g</a> href=&#34;no&#34;<dialog id=\"keys\">";
        let page = Page::of(text).unwrap();
        assert_eq!(page.title, "a <b>");
        assert_eq!(links(&page.body).collect::<Vec<_>>(), ["to?a=1&b=2", "#b1", "gone"]);
        let rows = "<a href=\"1\">x</a><div class=\"grid\"><a href=\"2\">y</a></div><a href=\"3\">z</a>";
        assert_eq!(links(rows).collect::<Vec<_>>(), ["2", "3", "1"]);
        let changed = page.with_links(|link| (link != "gone").then(|| format!("#/{link}")));
        assert_eq!(
            changed,
            "<p>x <a class=\"q\" href=\"#/to?a=1&amp;b=2\">t</a> <a href=\"#b1\">b</a> <a>g</a> href=&#34;no&#34;"
        );
    }

    #[test]
    fn pages_of_functions_are_as_many_as_are_wanted_and_the_others_are_counted_once() {
        let mut found = Found { most: 2, ..Found::default() };
        for name in ["a", "b", "c", "a", "c", "d", "b&swap=1"] {
            found.add(Some(format!("0/function?name={name}")));
        }
        found.add(Some("0/functions".to_owned()));
        let named = |name| format!("0/function?name={name}");
        assert_eq!(found.queue, [named("a"), named("b"), named("b&swap=1"), "0/functions".to_owned()]);
        assert_eq!(found.n_left_out, 2);
    }

    #[test]
    fn escapes_are_taken_back_once() {
        for (escaped, plain) in [("a", "a"), ("&#38;#60;", "&#60;"), ("&#60;a&#34;", "<a\""), ("&x", "&x")] {
            assert_eq!(unescaped(escaped), plain);
        }
    }
}

//! Rows are sorted, filtered and cut as the address says.

use super::*;

struct Thing {
    name: String,
    n: Option<u64>,
}

fn things() -> Vec<Thing> {
    let thing = |name: &str, n| Thing { name: name.to_owned(), n };
    vec![
        thing("beta", Some(7)),
        thing("<b>'\"&", None),
        thing("alpha", Some(1000)),
        thing("alphabet", Some(30)),
    ]
}

fn rows(things: &[Thing]) -> Rows<'_, Thing> {
    fn name(thing: &Thing) -> &str {
        &thing.name
    }
    let columns = vec![
        Column::new("n", "how many", |t: &Thing| t.n.map_or(Value::Unknown, Value::Count)),
        Column::new("name", "of it", |t: &Thing| Value::Text(&t.name)),
    ];
    Rows { page: "things", noun: "things", rows: things, by: "", name, columns }
}

/// The first cells of the rows that the query asks for.
#[track_caller]
fn check(query: &str, expect: &[&str]) {
    let things = things();
    let grid = rows(&things).grid(&Query::parse(query), &Orders::default(), 0);
    let got: Vec<&str> = grid.rows.iter().map(|row| row.cells[1].text.as_str()).collect();
    assert_eq!(got, expect, "{query}");
}

#[test]
fn rows_are_sorted_filtered_and_cut() {
    check("", &["beta", "<b>'\"&", "alpha", "alphabet"]);
    check("sort=n", &["alpha", "alphabet", "beta", "<b>'\"&"]);
    check("sort=n&order=reversed", &["<b>'\"&", "beta", "alphabet", "alpha"]);
    check("sort=name", &["<b>'\"&", "alpha", "alphabet", "beta"]);
    check("sort=nothing", &["beta", "<b>'\"&", "alpha", "alphabet"]);
    check("q=alpha", &["alpha", "alphabet"]);
    check("q=a*b", &["alphabet"]);
    check("q=none", &[]);
    check("sort=n&from=1&rows=2", &["alphabet", "beta"]);
    check("from=99", &["alphabet"]);
    check("rows=0", &["beta"]);
}

#[test]
fn a_page_leads_to_those_before_and_behind_in_the_same_state() {
    let things = things();
    let grid = rows(&things).grid(&Query::parse("q=a&sort=n&from=1&rows=1"), &Orders::default(), 0);
    assert_eq!(grid.before.as_deref(), Some("things?q=a&sort=n"));
    assert_eq!(grid.behind.as_deref(), Some("things?q=a&sort=n&from=2"));
    assert_eq!((grid.n_found, grid.n_all), (3, 4));
    let of = |name: &str| grid.headings.iter().find(|h| h.name == name).expect("a column");
    assert_eq!((of("n").sorted, of("n").href.as_str()), ("descending", "things?q=a&sort=n&order=reversed"));
    assert_eq!((of("name").sorted, of("name").href.as_str()), ("", "things?q=a&sort=name"));
}

#[test]
fn names_are_escaped_and_numbers_have_what_is_exact_in_their_titles() {
    let things = things();
    let text = rows(&things).grid(&Query::default(), &Orders::default(), 0).render().expect("it renders");
    assert!(!text.contains("<b>") && text.contains("&#60;b&#62;"), "{text}");
    assert!(text.contains(r#"title="1000">1,000<"#), "{text}");
    assert!(text.contains(r#"<span class="unknown">unknown</span>"#), "{text}");
}

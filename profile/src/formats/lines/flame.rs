//! Flame graphs: one SVG file that needs nothing else, in which names are searched and frames are zoomed.
//!
//! They are drawn of folded stacks (`folded`), by inferno, which is what people know. What is narrower than a
//! ten thousandth is not drawn; the frame `all` has what all adds up to.
//!
//! Source: Gregg, "The Flame Graph", CACM 59(6), 2016.

use crate::counts::Profile;
use crate::vocabulary::{WriteError, Written};
use inferno::flamegraph::{self, Options};

/// What such a picture says of itself.
#[derive(Clone, Debug)]
pub struct Caption {
    /// What it is of.
    pub title: String,
    /// What is to be known of it.
    pub subtitle: String,
    /// What is counted.
    pub unit: String,
}

impl Caption {
    /// Of counts, whose stacks have no callers; each of the images called `of`.
    pub fn flat(of: &str, profile: &Profile) -> Caption {
        let unit = if profile.is_of_points() { "samples" } else { "instructions" };
        Caption {
            title: format!("{}: {unit}, by function", of.rsplit('/').next().unwrap_or(of)),
            subtitle: "flat: counts do not know callers; on a function stands what was inlined into it"
                .to_owned(),
            unit: unit.to_owned(),
        }
    }
}

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    text.starts_with("<?xml") && text.contains("<svg")
}

/// The picture of one image, of which these are the stacks.
///
/// # Errors
/// [`WriteError::Nothing`]
pub(crate) fn of_one(stacks: Written, profile: &Profile) -> Result<Written, WriteError> {
    let caption = Caption::flat(&profile.image.name, profile);
    let bytes = drawn(&stacks.bytes, &caption).ok_or(WriteError::Nothing)?;
    Ok(Written { bytes, ..stacks })
}

/// Draws what is folded stacks; `None` if there are none.
pub(crate) fn drawn(stacks: &[u8], caption: &Caption) -> Option<Vec<u8>> {
    draw(&String::from_utf8_lossy(stacks), caption)
}

/// Draws folded stacks; `None` if there are none.
pub fn draw(stacks: &str, caption: &Caption) -> Option<Vec<u8>> {
    // XML has no way to write them.
    let plain = stacks.contains(is_unwritten).then(|| stacks.replace(is_unwritten, "?"));
    let stacks = plain.as_deref().unwrap_or(stacks);
    if !stacks.lines().any(|line| !line.trim().is_empty()) {
        return None;
    }
    let mut options = Options::default();
    options.title = one_line(&caption.title);
    options.subtitle = Some(one_line(&caption.subtitle));
    options.count_name.clone_from(&caption.unit);
    options.name_type = "Function:".to_owned();
    options.deterministic = true;
    let mut svg = Vec::new();
    let drawn = flamegraph::from_lines(&mut options, stacks.lines(), &mut svg);
    drawn.is_ok().then_some(svg)
}

fn is_unwritten(c: char) -> bool {
    c.is_control() && c != '\n'
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_it_as_text_and_all_has_the_sum() {
        let caption = Caption {
            title: "a<b>".to_owned(),
            subtitle: "flat".to_owned(),
            unit: "instructions".to_owned(),
        };
        let stacks = "main 10\nmain;a<int> & \u{1}b 7\nmain;operator new(unsigned long) 4\n";
        let svg = String::from_utf8(draw(stacks, &caption).unwrap()).unwrap();
        assert!(svg.contains("<title>all (21 instructions, 100%)</title>"), "{svg}");
        assert!(svg.contains("<title>a&lt;int&gt; &amp; ?b (7 instructions, 33.33%)</title>"), "{svg}");
        assert!(svg.contains("operator new(unsigned long) (4 instructions"), "{svg}");
        assert!(svg.contains(">a&lt;b&gt;<") && svg.contains("search"), "{svg}");
        for outside in ["href=\"http", "src=\"http", "@import"] {
            assert!(!svg.contains(outside), "it needs nothing else");
        }
        assert_eq!(draw(stacks, &caption), Some(svg.into_bytes()), "the same each time");
        assert_eq!(draw("\n", &caption), None);
    }
}

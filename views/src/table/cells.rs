//! What stands in a cell: numbers, shares, addresses and names, for people.

use crate::columns::columns;
use serde::Serialize;

/// `part` of `whole` in per cent.
pub fn percent(part: usize, whole: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for reading, to a tenth of a per cent")]
    let of = part as f64 / whole.max(1) as f64;
    share(of)
}

/// `a` divided by `b`, a `b` of none being one.
#[expect(clippy::cast_precision_loss, reason = "shares and means are shown with a few digits")]
pub fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// A share, `0.0..=1.0`, in per cent.
pub fn share(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A share in per cent; `-` if there is nothing that it is a share of.
pub fn share_if_any(of: Option<f64>) -> String {
    of.map_or_else(|| "-".to_owned(), share)
}

/// The least and the most that a count may be, where it may be off.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Between {
    /// The least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

impl Between {
    /// The ends of an interval; neither if there is none.
    pub fn of(interval: Option<&(u64, u64)>) -> Between {
        Between { at_least: interval.map(|n| n.0), at_most: interval.map(|n| n.1) }
    }

    /// The count `n`: `5`, or `5..6`.
    pub fn count(self, n: u64) -> String {
        counted(n, self.at_least.zip(self.at_most))
    }
}

/// The count `n`, or between what it lies, if that is more than one number: `5`, or `5..6`.
pub fn counted(n: u64, between: Option<(u64, u64)>) -> String {
    match between {
        Some((least, most)) if least != most => format!("{least}..{most}"),
        _ => n.to_string(),
    }
}

/// A count, or `-` if it is not known.
pub fn known(n: Option<impl ToString>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

/// `1 function`, `2 functions`.
pub fn many(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// An address: `0x401136`.
pub fn address(at: u64) -> String {
    format!("{at:#x}")
}

/// A number of bytes, in decimal units, rounded down: `999 bytes`, `1.9 MB`.
pub fn size(n_bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1000)];
    let unit = units.into_iter().find(|unit| n_bytes >= unit.1);
    unit.map_or_else(
        || format!("{n_bytes} bytes"),
        |(name, unit)| format!("{}.{} {name}", n_bytes / unit, n_bytes % unit * 10 / unit),
    )
}

/// Columns that a name gets in a table.
const NAME_WIDTH: usize = 60;

/// Whether a name is short enough for a table.
pub fn fits(name: &str) -> bool {
    name.chars().count() <= NAME_WIDTH
}

/// A name cut in the middle to what fits in a table: a path says most at its end.
pub fn cut(name: &str) -> String {
    middle(name, NAME_WIDTH)
}

/// The same, to so many columns.
pub(crate) fn middle(name: &str, width: usize) -> String {
    if columns(name) <= width {
        return name.to_owned();
    }
    // What is wide on a terminal takes two columns.
    let taken = |chars: &mut dyn Iterator<Item = char>, most: usize| {
        let mut n = 0;
        let fits = |c: &char| {
            n += columns(c.encode_utf8(&mut [0; 4]));
            n <= most
        };
        chars.take_while(fits).collect::<Vec<char>>()
    };
    let start = taken(&mut name.chars(), width / 3);
    let mut end = taken(&mut name.chars().rev(), width.saturating_sub(width / 3 + 1));
    end.reverse();
    start.into_iter().chain(['…']).chain(end).collect()
}

/// A number with separators of thousands: `1,234,567`, `5..6,000`, `+1,200`, `~5,000`; what is none is as it
/// was.
pub fn grouped(cell: &str) -> String {
    if let Some(estimate) = cell.strip_prefix('~') {
        return format!("~{}", grouped(estimate));
    }
    if !cell.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte)) {
        return cell.to_owned();
    }
    let group = |digits: &str| {
        let n = digits.len();
        let with = digits.chars().enumerate().flat_map(|(at, digit)| {
            let is_next = at > 0 && (n - at).is_multiple_of(3) && digit.is_ascii_digit();
            is_next.then_some(',').into_iter().chain([digit])
        });
        with.collect::<String>()
    };
    let one = |number: &str| {
        let (sign, rest) = number.split_at(number.len() - number.trim_start_matches(['+', '-']).len());
        match rest.split_once('.') {
            Some((whole, part)) => format!("{sign}{}.{part}", group(whole)),
            None => format!("{sign}{}", group(rest)),
        }
    };
    cell.split("..").map(one).collect::<Vec<_>>().join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit_behind_the_point_and_are_not_rounded_up() {
        for (n, want) in
            [(999, "999 bytes"), (1000, "1.0 KB"), (1_999_999, "1.9 MB"), (3_050_000_000, "3.0 GB")]
        {
            assert_eq!(size(n), want);
        }
    }

    #[test]
    fn a_count_is_an_interval_where_it_may_be_off() {
        assert_eq!(counted(5, None), "5");
        assert_eq!(counted(5, Some((5, 5))), "5");
        assert_eq!(counted(5, Some((4, 6))), "4..6");
    }

    #[test]
    fn thousands_are_apart() {
        for (cell, want) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("1234567", "1,234,567"),
            ("999..1000", "999..1,000"),
            ("+12345", "+12,345"),
            ("-1000", "-1,000"),
            ("12345.6", "12,345.6"),
            ("~12345", "~12,345"),
            ("-", "-"),
            ("0x1000", "0x1000"),
            ("fn1234", "fn1234"),
            ("", ""),
        ] {
            assert_eq!(grouped(cell), want);
        }
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        let name: String = ('a'..='z').cycle().take(70).collect();
        let got = cut(&name);
        assert_eq!(got.chars().count(), NAME_WIDTH);
        assert!(got.starts_with("abcdefghijklmnopqrst…") && got.ends_with("pqr"), "{got}");
    }
}

//! Charts, as pictures: points, lines, boxes and bars between axes with units, one chart below the other.
//!
//! Invariant: well-formed SVG, whatever names hold; the same bytes for the same data; readable on light and
//! dark (`prefers-color-scheme`); needs no script and no font but the viewer's own.
//!
//! Where more points are than can be told apart, a cell that has any is drawn: no point is left out.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From below.
    pub y: Axis,
    /// What is drawn.
    pub marks: Marks,
}

/// An axis.
#[derive(Debug)]
pub struct Axis {
    /// What it is of, with its unit.
    pub label: String,
    /// How numbers lie on it.
    pub scale: Scale,
    /// The least and the most.
    pub range: (f64, f64),
}

/// How numbers lie on an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As they are.
    Linear,
    /// By their logarithm; they are above zero. Ticks are powers of this number.
    Log(u32),
    /// Things with names, from 0 on.
    Names(Vec<String>),
}

/// What is drawn.
#[derive(Debug)]
pub enum Marks {
    /// Cells that have points: their place from left and from below, in [`CELLS`].
    Cells(BTreeSet<(u16, u16)>),
    /// Lines with their names.
    Lines(Vec<(String, Vec<(f64, f64)>)>),
    /// Boxes: where, and least, first quartile, median, third quartile, most.
    Boxes(Vec<(f64, [f64; 5])>),
    /// Bars from below: where, and how high.
    Bars(Vec<(f64, f64)>),
}

/// So many cells are there, from left to right and from below to above.
pub const CELLS: (u16, u16) = (760, 240);

const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
/// Room for names below, in place of numbers.
const BOTTOM_OF_NAMES: f64 = 130.0;
const RIGHT: f64 = 130.0;
const N_TICKS: usize = 6;
/// Longer names are cut.
const LONGEST_NAME: usize = 20;

/// What is told apart by colour is told apart by dashes, too.
const DASHES: [&str; 6] = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 3"];

const STYLE: &str = "\
svg { background: #ffffff; color: #1a1a1a; }
text { font: 12px sans-serif; fill: currentColor; }
.title { font-weight: bold; font-size: 14px; }
.axis { stroke: currentColor; fill: none; }
.grid { stroke: currentColor; stroke-opacity: 0.15; fill: none; }
.cells { stroke: #1f5fa8; fill: none; }
.box { stroke: currentColor; fill: #1f5fa8; fill-opacity: 0.3; }
.range { stroke: currentColor; stroke-dasharray: 2 2; }
.median { stroke: #c0392b; stroke-width: 2; }
.line { fill: none; stroke-width: 2; }
.c0 { stroke: #1f5fa8; } .c1 { stroke: #c0392b; } .c2 { stroke: #2e7d32; } .c3 { stroke: #8e44ad; } .c4 { stroke: #b9770e; } .c5 { stroke: #117a7a; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171c; color: #e8e8e8; }
  .cells { stroke: #7db8ff; } .box { fill: #7db8ff; } .median { stroke: #ff8a7a; }
  .c0 { stroke: #7db8ff; } .c1 { stroke: #ff8a7a; } .c2 { stroke: #7fd684; } .c3 { stroke: #d6a2f0; } .c4 { stroke: #f0c060; } .c5 { stroke: #6fd6d6; }
}
";

impl Axis {
    /// Where `value` lies, from 0 at the least to 1 at the most.
    pub fn place(&self, value: f64) -> f64 {
        let (least, most) = self.range;
        let share = match &self.scale {
            Scale::Log(_) => (value / least).ln() / (most / least).ln(),
            // Halves first: the difference may be too large.
            _ => (value / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// An axis for numbers between these: by logarithms, where they span many magnitudes.
    pub fn fitting(label: &str, least: f64, most: f64) -> Axis {
        let is_wide = least > 0.0 && most / least >= 1e4;
        let scale = if is_wide { Scale::Log(10) } else { Scale::Linear };
        // With some room around them: what lies at an edge is seen.
        let range = match (least < most, is_wide) {
            (false, _) => (least - 0.5, most + 0.5),
            (true, true) => {
                let room = (most / least).powf(0.03);
                (least / room, (most * room).min(f64::MAX))
            }
            (true, false) => {
                let room = 0.06 * (most / 2.0 - least / 2.0);
                ((least - room).max(f64::MIN), (most + room).min(f64::MAX))
            }
        };
        Axis { label: label.to_owned(), scale, range }
    }

    /// The numbers that are written at it, with their text.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (least, most) = self.range;
        match &self.scale {
            Scale::Names(names) => (0..).zip(names).map(|(n, name)| (f64::from(n), name.clone())).collect(),
            Scale::Log(base) => {
                let base = f64::from(*base);
                let (first, last) = (least.log(base).ceil(), most.log(base).floor());
                let step = ((last - first) / 8.0).floor().max(1.0);
                let powers = std::iter::successors(Some(first), |power| Some(power + step));
                let powers = powers.take_while(|power| *power <= last + 1e-9);
                powers.map(|power| (base.powf(power), number(base.powf(power)))).collect()
            }
            Scale::Linear => {
                #[expect(clippy::cast_precision_loss, reason = "it is a handful")]
                let rough = (most / 2.0 - least / 2.0) / (N_TICKS as f64 / 2.0);
                let magnitude = 10f64.powf(rough.log10().floor());
                let step =
                    [1.0, 2.0, 5.0, 10.0].into_iter().find(|by| by * magnitude >= rough).unwrap_or(10.0)
                        * magnitude;
                let first = (least / step).ceil();
                let steps = std::iter::successors(Some(first), |n| Some(n + 1.0)).map(|n| n * step);
                steps.take_while(|at| *at <= most).take(2 * N_TICKS).map(|at| (at, number(at))).collect()
            }
        }
    }
}

/// A number at an axis.
fn number(n: f64) -> String {
    if n == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e7).contains(&n.abs()) {
        let text = format!("{n:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let text = format!("{n:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text, as it stands in a picture.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// The charts as one picture.
pub fn svg(charts: &[Chart]) -> String {
    let width = LEFT + f64::from(CELLS.0) + RIGHT;
    let height: f64 = charts.iter().map(|chart| TOP + f64::from(CELLS.1) + bottom(chart)).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n<style>\n{STYLE}</style>\n"
    );
    let mut top = 0.0;
    for chart in charts {
        let _written = writeln!(out, "<g transform=\"translate({LEFT} {})\">", top + TOP);
        draw(&mut out, chart);
        out.push_str("</g>\n");
        top += TOP + f64::from(CELLS.1) + bottom(chart);
    }
    out.push_str("</svg>\n");
    out
}

fn bottom(chart: &Chart) -> f64 {
    if matches!(chart.x.scale, Scale::Names(_)) { BOTTOM_OF_NAMES } else { BOTTOM }
}

/// Draws a chart whose upper left corner is at 0.
fn draw(out: &mut String, chart: &Chart) {
    let (width, height) = (f64::from(CELLS.0), f64::from(CELLS.1));
    let mut put = |text: std::fmt::Arguments<'_>| {
        let _written = writeln!(out, "{text}");
    };
    put(format_args!("<text class=\"title\" x=\"0\" y=\"-14\">{}</text>", escaped(&chart.title)));
    let has_names = matches!(chart.x.scale, Scale::Names(_));
    for (at, text) in chart.x.ticks() {
        let x = chart.x.place(at) * width;
        let text = escaped(&cut(&text));
        match has_names {
            true => put(format_args!(
                "<text text-anchor=\"end\" transform=\"translate({:.1} {:.1}) rotate(-45)\">{text}</text>",
                x + 4.0,
                height + 14.0
            )),
            false => {
                put(format_args!("<path class=\"grid\" d=\"M{x:.1} 0V{height}\"/>"));
                put(format_args!(
                    "<text text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
                    height + 17.0
                ));
            }
        }
    }
    for (at, text) in chart.y.ticks() {
        let y = (1.0 - chart.y.place(at)) * height;
        put(format_args!("<path class=\"grid\" d=\"M0 {y:.1}H{width}\"/>"));
        put(format_args!(
            "<text text-anchor=\"end\" x=\"-6\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            escaped(&text)
        ));
    }
    put(format_args!("<path class=\"axis\" d=\"M0 0V{height}H{width}\"/>"));
    let below = height + bottom(chart) - 12.0;
    put(format_args!(
        "<text text-anchor=\"middle\" x=\"{:.1}\" y=\"{below:.1}\">{}</text>",
        width / 2.0,
        escaped(&chart.x.label)
    ));
    put(format_args!(
        "<text text-anchor=\"middle\" transform=\"translate(-72 {:.1}) rotate(-90)\">{}</text>",
        height / 2.0,
        escaped(&chart.y.label)
    ));
    match &chart.marks {
        Marks::Cells(cells) => draw_cells(out, cells),
        Marks::Lines(lines) => draw_lines(out, chart, lines),
        Marks::Boxes(boxes) => draw_boxes(out, chart, boxes),
        Marks::Bars(bars) => draw_bars(out, chart, bars),
    }
}

/// Cells beside each other are one stroke.
fn draw_cells(out: &mut String, cells: &BTreeSet<(u16, u16)>) {
    let mut by_row: Vec<(u16, u16)> = cells.iter().map(|&(x, y)| (y, x)).collect();
    by_row.sort_unstable();
    // Few are drawn larger, so that they are seen.
    let size = if cells.len() < 2000 { 3 } else { 1 };
    let _written = write!(out, "<path class=\"cells\" stroke-width=\"{size}\" d=\"");
    let mut left = by_row.as_slice();
    while let Some(&(y, from)) = left.first() {
        let n = (1..).zip(left.iter().skip(1)).take_while(|(n, next)| **next == (y, from + n)).count() + 1;
        left = left.get(n..).unwrap_or_default();
        let _written = write!(out, "M{from} {}.5h{}", CELLS.1 - 1 - y, n.max(size));
    }
    out.push_str("\"/>\n");
}

fn draw_lines(out: &mut String, chart: &Chart, lines: &[(String, Vec<(f64, f64)>)]) {
    let (width, height) = (f64::from(CELLS.0), f64::from(CELLS.1));
    for (n, ((name, points), dash)) in (0..).zip(lines.iter().zip(DASHES.iter().cycle())) {
        let mut d = String::new();
        for (x, y) in points {
            let (x, y) = (chart.x.place(*x) * width, (1.0 - chart.y.place(*y)) * height);
            let _written = write!(d, "{}{x:.1} {y:.1}", if d.is_empty() { 'M' } else { 'L' });
        }
        let color = n % 6;
        let at = 14.0 + 18.0 * f64::from(n);
        let _written = writeln!(
            out,
            "<path class=\"line c{color}\" stroke-dasharray=\"{dash}\" d=\"{d}\"/>\n<path class=\"line c{color}\" stroke-dasharray=\"{dash}\" d=\"M{:.1} {at}h24\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            width + 10.0,
            width + 40.0,
            at + 4.0,
            escaped(name)
        );
    }
}

fn draw_boxes(out: &mut String, chart: &Chart, boxes: &[(f64, [f64; 5])]) {
    let (width, height) = (f64::from(CELLS.0), f64::from(CELLS.1));
    let (least, most) = chart.x.range;
    let half = (width / (most - least) * 0.3).min(14.0);
    for (x, numbers) in boxes {
        let x = chart.x.place(*x) * width;
        let [low, q1, median, q3, high] = numbers.map(|n| (1.0 - chart.y.place(n)) * height);
        let _written = writeln!(
            out,
            "<path class=\"range\" d=\"M{x:.1} {high:.1}V{low:.1}\"/>\n<rect class=\"box\" x=\"{:.1}\" y=\"{q3:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n<path class=\"median\" d=\"M{:.1} {median:.1}h{:.1}\"/>",
            x - half,
            2.0 * half,
            (q1 - q3).max(0.5),
            x - half,
            2.0 * half
        );
    }
}

fn draw_bars(out: &mut String, chart: &Chart, bars: &[(f64, f64)]) {
    let (width, height) = (f64::from(CELLS.0), f64::from(CELLS.1));
    let (least, most) = chart.x.range;
    let half = (width / (most - least) * 0.4).min(24.0);
    for (x, value) in bars {
        let left = chart.x.place(*x) * width - half;
        let high = chart.y.place(*value) * height;
        // What is there at all is seen.
        let high = if *value > chart.y.range.0 { high.max(1.0) } else { high };
        let _written = writeln!(
            out,
            "<rect class=\"box\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\"/>",
            height - high,
            2.0 * half
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, range: (f64, f64)) -> Axis {
        Axis { label: "a".to_owned(), scale, range }
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let texts = |axis: Axis| axis.ticks().into_iter().map(|tick| tick.1).collect::<Vec<_>>().join(" ");
        assert_eq!(texts(axis(Scale::Linear, (0.0, 22722.0))), "0 5000 10000 15000 20000");
        assert_eq!(texts(axis(Scale::Linear, (-1.0, 1.0))), "-1 -0.5 0 0.5 1");
        assert_eq!(texts(axis(Scale::Linear, (-1e308, 1e308))), "-1e308 -5e307 0 5e307 1e308");
        assert_eq!(texts(axis(Scale::Log(2), (1.0, 65536.0))), "1 4 16 64 256 1024 4096 16384 65536");
        assert_eq!(texts(axis(Scale::Log(10), (3.0, 5000.0))), "10 100 1000");
        assert_eq!(texts(Axis::fitting("x", 7.0, 7.0)), "6.6 6.8 7 7.2 7.4");
    }

    #[test]
    fn numbers_lie_where_they_belong() {
        let log = axis(Scale::Log(10), (1.0, 100.0));
        assert_eq!((log.place(1.0), log.place(10.0), log.place(100.0)), (0.0, 0.5, 1.0));
        let linear = axis(Scale::Linear, (-1.5e308, 1.5e308));
        assert_eq!((linear.place(-1.5e308), linear.place(0.0), linear.place(f64::MAX)), (0.0, 0.5, 1.0));
    }

    /// Each mark is where its numbers are, and names are what they are.
    #[test]
    fn charts_are_drawn_with_all_that_they_have() {
        let cells = Chart {
            title: "a < b & \"c\"".to_owned(),
            x: axis(Scale::Linear, (1.0, 10.0)),
            y: axis(Scale::Linear, (0.0, 1.0)),
            marks: Marks::Cells([(0, 0), (1, 0), (2, 0), (5, 239)].into()),
        };
        let lines = Chart {
            title: String::new(),
            x: axis(Scale::Log(2), (1.0, 4.0)),
            y: axis(Scale::Linear, (0.0, 100.0)),
            marks: Marks::Lines(vec![("full".to_owned(), vec![(1.0, 0.0), (2.0, 50.0), (4.0, 100.0)])]),
        };
        let names = Scale::Names(vec!["0.5".to_owned(), "a name that is longer than is shown".to_owned()]);
        let boxes = Chart {
            title: String::new(),
            x: axis(names, (-0.5, 1.5)),
            y: axis(Scale::Log(10), (1.0, 1000.0)),
            marks: Marks::Boxes(vec![(0.0, [1.0, 10.0, 100.0, 100.0, 1000.0])]),
        };
        let bars = Chart {
            title: String::new(),
            x: axis(Scale::Names(vec!["1".to_owned(), "2".to_owned()]), (-0.5, 1.5)),
            y: axis(Scale::Linear, (0.0, 100.0)),
            marks: Marks::Bars(vec![(0.0, 75.0), (1.0, 0.001)]),
        };
        let picture = svg(&[cells, lines, boxes, bars]);
        for part in [
            "a &lt; b &amp; &quot;c&quot;",
            "stroke-width=\"3\" d=\"M0 239.5h3M5 0.5h3\"",
            "d=\"M0.0 240.0L380.0 120.0L760.0 0.0\"",
            "a name that is longe…",
            "<path class=\"range\" d=\"M190.0 0.0V240.0\"/>",
            "y=\"80.0\" width=\"28.0\" height=\"80.0\"",
            "x=\"166.0\" y=\"60.0\" width=\"48.0\" height=\"180.0\"",
            "y=\"239.0\" width=\"48.0\" height=\"1.0\"",
            "prefers-color-scheme: dark",
        ] {
            assert!(picture.contains(part), "{part}:\n{picture}");
        }
        assert_eq!(picture.matches("<g ").count(), picture.matches("</g>").count());
        assert_eq!(svg(&[]).matches("svg>").count(), 1);
    }
}

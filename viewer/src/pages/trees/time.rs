//! What ran when: a thread's run from left to right, in windows, each with the functions that ran in it.
//!
//! The state is in the address: `between` is the part that is shown, `thread` which thread it is of, `q` what
//! names hold that are marked.

use super::flame::Colour;
use super::{Way, asked_as, number, tabs};
use crate::address::{Asked, Form, Query};
use crate::escape;
use crate::pages::frame::Frame;
use crate::pages::grid::pattern;
use crate::pages::{Answer, NoPage, Place};
use askama::Template;
use views::Like;
use views::compare::times::{BothFunction, BothTimes, BothTimesView};
use views::show::time::{TimeFunction, TimeView, TimeWindow};
use views::{grouped, share};

/// How high the picture is, without what is below it.
const HIGH: f64 = 320.0;
/// How many parts can be chosen.
const STEPS: u64 = 10;

/// The page.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let between = asked.query.get("between").map(|text| part(text).ok_or(NoPage::Unknown)).transpose()?;
    let view = place.recordings.time(place.n, asked.query.number("thread"), between)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*view, asked.form, &asked.query));
    }
    let mut words = "time".to_owned();
    if let Some(thread) = asked.query.number("thread") {
        words += &format!(" --thread {thread}");
    }
    if let Some((from, to)) = between {
        words += &format!(" --between {from}..{to}");
    }
    let frame = Frame::new(place, "what ran when", &words)
        .with_tabs("time", tabs(place.what))
        .with_twins("time", &asked.query);
    let state = asked.query.only(&["thread", "between", "q"]);
    let q = asked.query.get("q").map(pattern);
    let q = q.as_deref().map(Like::new);
    let is_hit =
        |f: &TimeFunction| q.as_ref().is_some_and(|q| f.function.as_ref().is_some_and(|name| q.fits(name)));
    let hits: Vec<bool> = view.functions.iter().map(is_hit).collect();
    let found: f64 = view.functions.iter().zip(&hits).filter(|(_, hit)| **hit).map(|(f, _)| f.share).sum();
    Ok(Answer::page(&Page {
        frame,
        kept: ["thread", "between"]
            .into_iter()
            .filter_map(|name| Some((name, state.get(name)?.to_owned())))
            .collect(),
        q: asked.query.get("q").unwrap_or_default().to_owned(),
        found: q.as_ref().map(|_| format!("{} of what is shown", share(found))).unwrap_or_default(),
        threads: threads(&view, &state),
        said: said(&view),
        whole: between.map(|_| state.with("between", None).link("time")).unwrap_or_default(),
        bars: own_bars(&view, &hits),
        steps: steps(&view, &state),
        legend: view
            .functions
            .iter()
            .enumerate()
            .map(|(n, f)| {
                (
                    Colour { class: format!("m{n}"), means: format!("{} {}", f.name(), share(f.share)) },
                    page(f),
                )
            })
            .collect(),
    }))
}

/// `A..B`.
fn part(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once("..")?;
    Some((from.parse().ok()?, to.parse().ok()?)).filter(|(from, to)| from < to)
}

/// The page of a function, if it has one.
fn page(f: &TimeFunction) -> String {
    let name = f.function.as_ref().and_then(|name| asked_as(&f.module, name));
    name.map(|name| Query::default().with("name", Some(&name)).link("function")).unwrap_or_default()
}

fn threads(view: &TimeView, state: &Query) -> Vec<Way> {
    if view.threads.len() < 2 {
        return Vec::new();
    }
    let way = |(n, total): (usize, &u64)| Way {
        text: format!("thread {n}: {}", grouped(&total.to_string())),
        href: state.with("between", None).with("thread", Some(&n.to_string())).link("time"),
        is_here: n == view.thread,
    };
    (1..).zip(&view.threads).map(way).collect()
}

fn said(view: &TimeView) -> String {
    let n = |n: u64| grouped(&n.to_string());
    let all = view.threads.get(view.thread.saturating_sub(1)).copied().unwrap_or_default();
    let size = view.windows.first().map_or(0, |window| window.to - window.from);
    format!(
        "{} to {} of {} {}, in {} windows of {}",
        n(view.from),
        n(view.to),
        n(all),
        view.unit,
        view.windows.len(),
        n(size)
    )
}

/// A bar of the picture.
struct Bar {
    href: String,
    title: String,
    class: String,
    x: String,
    y: String,
    width: String,
    height: String,
}

/// Where a position is, in per cent of the width.
fn x((from, to): (u64, u64), at: u64) -> f64 {
    100.0 * number(at.saturating_sub(from)) / number(to.saturating_sub(from)).max(1.0)
}

/// What each function did in each window, one above the other: all of a window is as high as the picture,
/// which is as wide as from where to where `shown` says. `of` has the address and the title of a bar, by the
/// number of its function.
fn bars(
    windows: &[TimeWindow],
    shown: (u64, u64),
    hits: &[bool],
    of: impl Fn(usize, &TimeWindow, u64) -> (String, String),
) -> Vec<Bar> {
    let mut bars = Vec::new();
    for window in windows {
        let all = number(window.total()).max(1.0);
        let mut y = HIGH;
        for (n, own) in window.own.iter().enumerate().filter(|(_, own)| **own > 0) {
            let height = HIGH * number(*own) / all;
            y -= height;
            let hit = if hits.get(n) == Some(&true) { " hit" } else { "" };
            let (href, title) = of(n, window, *own);
            bars.push(Bar {
                href,
                title,
                class: format!("m{n}{hit}"),
                x: format!("{:.4}", x(shown, window.from)),
                y: format!("{y:.2}"),
                width: format!("{:.4}", x(shown, window.to) - x(shown, window.from)),
                height: format!("{height:.2}"),
            });
        }
    }
    bars
}

fn own_bars(view: &TimeView, hits: &[bool]) -> Vec<Bar> {
    let of = |n: usize, window: &TimeWindow, own: u64| {
        let f = view.functions.get(n);
        (f.map(page).unwrap_or_default(), title(f.map_or("", TimeFunction::name), view.unit, window, own))
    };
    bars(&view.windows, (view.from, view.to), hits, of)
}

fn title(name: &str, unit: &str, window: &TimeWindow, own: u64) -> String {
    let n = |n: u64| grouped(&n.to_string());
    let part = if window.total() == 0 { 0.0 } else { number(own) / number(window.total()) };
    let when = window.seconds.map_or_else(String::new, |at| format!(", at {at:.6} s"));
    let all = n(window.total());
    let name = escape::cut(name);
    format!("{name}: {} of {all} {unit} ({}), from {} on{when}", n(own), share(part), n(window.from))
}

/// The same of both builds, one above the other, at one scale.
pub fn of_both(
    place: &Place<'_>,
    asked: &Asked<'_>,
    times: Option<&BothTimes>,
    tabs: &[(&'static str, &str)],
) -> Result<Answer, NoPage> {
    let times = times.ok_or_else(|| super::both::not_kept(place))?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&BothTimesView::of(times), asked.form, &asked.query));
    }
    let q = asked.query.get("q").map(pattern);
    let q = q.as_deref().map(Like::new);
    let is_hit =
        |f: &BothFunction| q.as_ref().is_some_and(|q| f.function.as_ref().is_some_and(|name| q.fits(name)));
    let hits: Vec<bool> = times.functions.iter().map(is_hit).collect();
    let end = |windows: &[TimeWindow]| windows.last().map_or(0, |window| window.to);
    let longest = end(&times.windows.old).max(end(&times.windows.new));
    let page = |f: &BothFunction| {
        let name = f.function.as_ref();
        name.map(|name| Query::default().with("name", Some(name)).link("function")).unwrap_or_default()
    };
    let side = |name: &'static str, windows: &[TimeWindow]| {
        let of = |n: usize, window: &TimeWindow, own: u64| {
            let f = times.functions.get(n);
            let title = title(f.map_or("", BothFunction::name), "instructions", window, own);
            (f.map(page).unwrap_or_default(), title)
        };
        let all = grouped(&end(windows).to_string());
        Run { name, said: format!("{all} instructions"), bars: bars(windows, (0, longest), &hits, of) }
    };
    let legend = times.functions.iter().enumerate().map(|(n, f)| {
        let counts = [f.old, f.new].map(|n| grouped(&n.to_string()));
        let means = format!("{} {}, then {}", f.name(), counts[0], counts[1]);
        (Colour { class: format!("m{n}"), means }, page(f))
    });
    Ok(Answer::page(&Runs {
        frame: Frame::new(place, "what ran when", "time")
            .with_tabs("time", tabs)
            .with_twins("time", &asked.query),
        q: asked.query.get("q").unwrap_or_default().to_owned(),
        runs: [side("old build", &times.windows.old), side("new build", &times.windows.new)],
        legend: legend.collect(),
    }))
}

/// A build's run.
struct Run {
    name: &'static str,
    said: String,
    bars: Vec<Bar>,
}

#[derive(Template)]
#[template(path = "both_time.html")]
struct Runs {
    frame: Frame,
    q: String,
    runs: [Run; 2],
    legend: Vec<(Colour, String)>,
}

/// Parts that one can go to.
fn steps(view: &TimeView, state: &Query) -> Vec<Step> {
    let shown = (view.from, view.to);
    let length = view.to.saturating_sub(view.from);
    let at = |n: u64| {
        let part = u128::from(length) * u128::from(n) / u128::from(STEPS);
        view.from + u64::try_from(part).unwrap_or(length)
    };
    if length < STEPS {
        return Vec::new();
    }
    let step = |n: u64| {
        let (from, to) = (at(n), at(n + 1));
        let between = format!("{from}..{to}");
        Step {
            title: format!("zoom to {} to {}", grouped(&from.to_string()), grouped(&to.to_string())),
            href: state.with("between", Some(&between)).link("time"),
            text: grouped(&from.to_string()),
            x: format!("{:.4}", x(shown, from)),
            width: format!("{:.4}", x(shown, to) - x(shown, from)),
        }
    };
    (0..STEPS).map(step).collect()
}

/// A part that one can go to.
struct Step {
    title: String,
    href: String,
    text: String,
    x: String,
    width: String,
}

#[derive(Template)]
#[template(path = "time.html")]
struct Page {
    frame: Frame,
    kept: Vec<(&'static str, String)>,
    q: String,
    found: String,
    threads: Vec<Way>,
    said: String,
    whole: String,
    bars: Vec<Bar>,
    steps: Vec<Step>,
    legend: Vec<(Colour, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> TimeView {
        let function = |name: Option<&str>| TimeFunction {
            function: name.map(str::to_owned),
            module: "m".to_owned(),
            own: 1,
            share: 0.5,
        };
        let window = |from, to, own: [u64; 2]| TimeWindow { from, to, seconds: None, own: own.to_vec() };
        TimeView {
            schema: TimeView::SCHEMA,
            unit: "instructions",
            threads: vec![1000],
            thread: 1,
            from: 100,
            to: 400,
            functions: vec![function(Some("f")), function(None)],
            windows: vec![window(100, 300, [150, 50]), window(300, 400, [0, 100])],
        }
    }

    #[test]
    fn bars_of_a_window_stand_on_each_other_and_are_as_wide_as_it() {
        let bars = own_bars(&view(), &[true, false]);
        let of = |bar: &Bar| format!("{} {}+{} {}+{}", bar.class, bar.x, bar.width, bar.y, bar.height);
        let want = [
            "m0 hit 0.0000+66.6667 80.00+240.00",
            "m1 0.0000+66.6667 0.00+80.00",
            "m1 66.6667+33.3333 0.00+320.00",
        ];
        assert_eq!(bars.iter().map(of).collect::<Vec<_>>(), want);
        assert_eq!(bars[0].title, "f: 150 of 200 instructions (75.00 %), from 100 on");
        assert_eq!((bars[0].href.as_str(), bars[1].href.as_str()), ("function?name=m%21f", ""));
    }

    #[test]
    fn parts_to_zoom_to_are_all_of_what_is_shown() {
        let steps = steps(&view(), &Query::default());
        assert_eq!(steps.len(), 10);
        assert_eq!(steps[0].href, "time?between=100..130");
        assert_eq!(steps[9].href, "time?between=370..400");
        assert_eq!(part("370..400"), Some((370, 400)));
        assert_eq!((part("4..4"), part("a..b"), part("7")), (None, None, None));
    }
}

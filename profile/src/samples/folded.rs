//! Samples as folded stacks, with callers: what flame graph tools read; and drawn as such a picture.
//!
//! Source: Gregg, "The Flame Graph", CACM 59(6), 2016.

use super::named::NamedSamples;
use crate::formats::lines::flame::{self, Caption};
use crate::formats::lines::folded::frame;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The stacks of the samples of `event`, a line each, the outermost frame first; on a function stands what
/// was inlined into it.
pub fn write(named: &NamedSamples<'_>, event: u32) -> String {
    let samples = named.samples;
    // Whoever called comes first: what stands for it is known when it is asked for.
    let mut texts: Vec<String> = Vec::with_capacity(samples.n_stacks());
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let own = samples.by_stack(event);
    for (stack, (n, _)) in (0..).zip(&own) {
        let (number, caller) = samples.stack(stack);
        let mut text = caller.and_then(|caller| texts.get(caller as usize)).cloned().unwrap_or_default();
        for function in named.frame(number).iter().flat_map(|named| &named.functions) {
            if !text.is_empty() {
                text.push(';');
            }
            text.push_str(&frame(&function.function));
        }
        if *n > 0 {
            *sums.entry(text.clone()).or_default() += n;
        }
        texts.push(text);
    }
    let mut out = String::new();
    for (stack, n) in sums {
        let _infallible = writeln!(out, "{stack} {n}");
    }
    out
}

/// The flame graph of the samples of `event`; `None` if there are none.
pub fn draw(named: &NamedSamples<'_>, event: u32) -> Option<Vec<u8>> {
    let name = named.samples.events.get(event as usize).map_or("", |event| &event.name);
    let subtitle = match named.samples.quality.has_chains {
        true => "by callers; on a function stands what was inlined into it",
        false => "flat: callers were not asked for",
    };
    let caption = Caption {
        title: format!("{}: samples of {name}", named.title),
        subtitle: subtitle.to_owned(),
        unit: "samples".to_owned(),
    };
    flame::draw(&write(named, event), &caption)
}

#[cfg(test)]
mod tests {
    use super::super::testing::named;
    use super::*;

    #[test]
    fn each_stack_has_a_line_with_its_samples() {
        let samples = super::super::tests::samples();
        let named = named(&samples);
        let want = "start;main;inlined 2\nstart;main;inlined;do_it 2\n";
        assert_eq!(write(&named, 0), want);
        assert_eq!(write(&named, 1), "");
        let drawn = draw(&named, 0).expect("there is something to draw");
        assert!(String::from_utf8_lossy(&drawn).contains("<title>do_it (2 samples"));
    }
}

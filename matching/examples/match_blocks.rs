//! Prints block matches of functions with the same name, as `score-match.py` reads them: `match_blocks OLD NEW [no-SWITCH…]`.
#![expect(clippy::print_stdout, reason = "an example's output")]

use matching::Options;
use matching::blocks::{Context, compute};
use matching::hash::Keys;
use program::{FuncId, Image, Program};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let load = |p: &str| Program::analyze(Image::load(p.as_ref()).expect("a program"));
    let (old, new) = (load(&args[0]), load(&args[1]));
    let mut options = Options::all();
    let mut joined = true;
    for s in &args[2..] {
        if s == "no-join" {
            joined = false;
        } else {
            options = options.without(s.strip_prefix("no-").expect("no-SWITCH").parse().expect("a pass"));
        }
    }
    let pairs = by_name(&old, &new);
    let (mut ok, mut nk) = (Keys::compute(&old), Keys::compute(&new));
    if joined {
        let f: Vec<_> = pairs
            .iter()
            .map(|&(old, new)| matching::FunctionMatch {
                old,
                new,
                method: matching::FunctionMethod::Name,
                confidence: 1.0,
            })
            .collect();
        Keys::join(&mut ok, &mut nk, &f, &[]);
    }
    let ctx = Context { old: &ok, new: &nk, options: &options };
    let time = std::time::Instant::now();
    let all: Vec<_> = pairs.par_iter().flat_map_iter(|&(o, n)| compute(&old, o, &new, n, &ctx)).collect();
    let mut how: BTreeMap<String, usize> = BTreeMap::new();
    for m in &all {
        *how.entry(format!("{:?}", m.method)).or_default() += 1;
    }
    eprintln!(
        "{:?} for {} pairs, {} of {} new blocks; {how:?}",
        time.elapsed(),
        pairs.len(),
        all.len(),
        new.blocks.len()
    );
    println!("{{\"functions\":[");
    for (i, (o, n)) in pairs.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        println!("{comma}{{\"old\":{},\"new\":{}}}", old.function(*o).entry.0, new.function(*n).entry.0);
    }
    println!("],\"blocks\":[");
    for (i, m) in all.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let (o, n) = (old.block(m.old).start.0, new.block(m.new).start.0);
        println!(
            "{comma}{{\"old\":{o},\"new\":{n},\"method\":\"{:?}\",\"confidence\":{},\"partial\":{}}}",
            m.method, m.confidence, m.partial
        );
    }
    println!("]}}");
}

fn bare(name: &str) -> &str {
    let cut =
        [".isra.", ".part.", ".constprop.", ".cold", ".lto_priv."].iter().filter_map(|d| name.find(d)).min();
    &name[..cut.unwrap_or(name.len())]
}

fn by_name(old: &Program, new: &Program) -> Vec<(FuncId, FuncId)> {
    let index = |p: &Program, cut: bool| {
        let mut m: HashMap<String, Vec<FuncId>> = HashMap::new();
        for f in p.func_ids() {
            if let Some(n) = p.function(f).names.first() {
                m.entry(if cut { bare(n).to_string() } else { n.to_string() }).or_default().push(f);
            }
        }
        m
    };
    let mut out = Vec::new();
    let mut used: (std::collections::HashSet<FuncId>, std::collections::HashSet<FuncId>) = Default::default();
    for cut in [false, true] {
        let (a, b) = (index(old, cut), index(new, cut));
        let mut names: Vec<_> = b.keys().collect();
        names.sort();
        for name in names {
            let Some(olds) = a.get(name) else { continue };
            let olds: Vec<_> = olds.iter().filter(|f| !used.0.contains(f)).collect();
            let news: Vec<_> = b[name].iter().filter(|f| !used.1.contains(f)).collect();
            if olds.len() == news.len() {
                for (&&o, &&n) in olds.iter().zip(&news) {
                    out.push((o, n));
                }
            }
        }
        for &(o, n) in &out {
            used.0.insert(o);
            used.1.insert(n);
        }
    }
    out.sort();
    out
}

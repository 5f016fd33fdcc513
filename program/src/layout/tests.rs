//! Layouts keep their promises on random graphs; pictures are well-formed.

use super::*;
use crate::analyses::flow_graph::tests::any_graph;
use crate::ids::BlockId;
use crate::image::Image;
use crate::model::{EdgeKind, Program};
use proptest::prelude::*;

fn boxes_overlap(layout: &Layout, sizes: &[Size]) -> Option<(usize, usize)> {
    for a in 0..sizes.len() {
        for b in a + 1..sizes.len() {
            let (p, q, s, t) = (layout.nodes[a], layout.nodes[b], sizes[a], sizes[b]);
            if p.x < q.x + t.width && q.x < p.x + s.width && p.y < q.y + t.height && q.y < p.y + s.height {
                return Some((a, b));
            }
        }
    }
    None
}

proptest! {
    #[test]
    fn boxes_do_not_overlap_and_edges_end_at_them(graph in any_graph(40)) {
        let edges: Vec<(u32, u32)> = (0..count(graph.len())).flat_map(|v| graph.successors(v).iter().map(move |&w| (v, w))).collect();
        let sizes: Vec<Size> = (0..graph.len()).map(|v| Size { width: 20.0 + (v * 37 % 90) as f64, height: 10.0 + (v * 11 % 50) as f64 }).collect();
        let layout = compute(&sizes, &edges);
        prop_assert_eq!(boxes_overlap(&layout, &sizes), None);
        prop_assert_eq!(&compute(&sizes, &edges), &layout);
        for (&(from, to), line) in edges.iter().zip(&layout.edges) {
            for (v, p) in [(from, line.first()), (to, line.last())] {
                let (at, size, p) = (layout.nodes[v as usize], sizes[v as usize], p.copied().unwrap_or_default());
                let near = |x: f64, from: f64, to: f64| from - 1e-6 <= x && x <= to + 1e-6;
                prop_assert!(near(p.x, at.x, at.x + size.width) && near(p.y, at.y, at.y + size.height), "{p:?} is not at {v}");
            }
            for p in line {
                prop_assert!(p.x >= -1e-6 && p.x <= layout.size.width + 1e-6 && p.y <= layout.size.height + 1e-6);
            }
        }
    }

    #[test]
    fn crossings_are_counted_as_by_looking_at_every_pair(graph in any_graph(25)) {
        let edges: Vec<(u32, u32)> = (0..count(graph.len())).flat_map(|v| graph.successors(v).iter().map(move |&w| (v, w))).collect();
        let back = back_edges(graph.len(), &edges);
        let layer = longest_paths(graph.len(), &edges, &back);
        let (mut layers, _) = with_dummies(graph.len(), &edges, &back, layer);
        let slow = |g: &Layers| {
            let ends: Vec<(u32, u32, u32)> = (0..g.layer.len())
                .flat_map(|v| g.above[v].iter().map(move |&w| (g.layer[v], g.position[w as usize], g.position[v])))
                .collect();
            let pairs = ends.iter().enumerate().flat_map(|(i, a)| ends[i + 1..].iter().map(move |b| (a, b)));
            pairs.filter(|(a, b)| a.0 == b.0 && ((a.1 < b.1 && a.2 > b.2) || (a.1 > b.1 && a.2 < b.2))).count()
        };
        let before = slow(&layers);
        prop_assert_eq!(order::crossings(&layers), before);
        order::reduce_crossings(&mut layers);
        prop_assert_eq!(order::crossings(&layers), slow(&layers));
        prop_assert!(slow(&layers) <= before);
    }
}

#[test]
fn a_diamond_is_symmetric() {
    let size = Size { width: 40.0, height: 20.0 };
    let layout = compute(&[size; 4], &[(0, 1), (0, 2), (1, 3), (2, 3)]);
    assert_eq!(layout.nodes[0].x, layout.nodes[3].x);
    assert_eq!(layout.nodes[1].y, layout.nodes[2].y);
    let middle = f64::midpoint(layout.nodes[1].x, layout.nodes[2].x);
    assert!((middle - layout.nodes[0].x).abs() < 1e-6);
}

#[test]
fn ten_thousand_blocks_take_seconds() {
    let n = 10_000u32;
    let edges: Vec<(u32, u32)> = (0..n - 1)
        .flat_map(|i| [(i, i + 1), (i, (i + 7).min(n - 1)), (i, i.saturating_sub(i % 13))])
        .collect();
    let started = std::time::Instant::now();
    compute(&vec![Size { width: 80.0, height: 30.0 }; n as usize], &edges);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn a_hostile_graph_needs_no_dummy_for_every_layer_of_every_edge() {
    // A chain whose every node leads to the last one: half a square of layers crossed.
    let n = 20_000u32;
    let edges: Vec<(u32, u32)> = (0..n - 1).flat_map(|i| [(i, i + 1), (i, n - 1)]).collect();
    let back = vec![false; edges.len()];
    let (graph, chains) = with_dummies(n as usize, &edges, &back, (0..n).collect());
    let dummies: usize = chains.iter().map(Vec::len).sum();
    assert!((MAX_DUMMIES / 2..=MAX_DUMMIES).contains(&dummies), "{dummies}");
    assert_eq!(graph.layer.len(), n as usize + dummies);
    let layout = compute(&vec![Size { width: 80.0, height: 30.0 }; n as usize], &edges);
    assert!(layout.edges.iter().all(|line| line.len() >= 2));
}

/// Tags are closed in order, and text and attributes hold nothing that is markup.
fn check_xml(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, words) = part.split_once('>').expect("a tag ends");
        assert!(!words.contains('>'), "{words}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().expect("a tag has a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert!(tag.matches('"').count() % 2 == 0, "{tag}");
        for piece in tag.split('&').skip(1).chain(words.split('&').skip(1)) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|e| piece.starts_with(e)), "{piece}");
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn shapes_say_how_many_edges_come_and_go() {
    use svg::Shape;
    for (n_in, n_out, want) in [
        (0, 1, Shape::Terminal),
        (2, 0, Shape::Terminal),
        (1, 1, Shape::Plain),
        (1, 9, Shape::Fork),
        (3, 1, Shape::Join),
        (2, 2, Shape::Both),
    ] {
        assert_eq!(Shape::of(n_in, n_out), want, "{n_in} in, {n_out} out");
    }
}

#[test]
fn pictures_are_well_formed_with_and_without_counts() {
    let mut program =
        Program::analyze(Image::load("/proc/self/exe".as_ref()).expect("we can read ourselves"));
    let func = program
        .func_ids()
        .find(|&f| (20..60).contains(&program.function(f).n_blocks()))
        .expect("there is one");
    program.functions[func.index()].names = ["operator<<\"&\u{1}>".into()].into();
    let ran = |n: u32| Some(RunCount { n: n.into(), between: None });
    let counts = Counts { block: &|b| ran(b.0 % 3 * 1000), edge: &|e| ran(e.0 % 2) };
    for instructions in [false, true] {
        for counts in [None, Some(&counts)] {
            let text = svg(&program, func, Style { instructions, ..Style::default() }, counts);
            check_xml(&text);
            let outlines = text.matches("<rect ").count() + text.matches("<polygon ").count();
            assert_eq!(outlines, program.function(func).n_blocks() + 1);
            // What never ran is dotted.
            assert_eq!(text.contains(r#"stroke-dasharray="2 3""#), counts.is_some());
        }
    }
    let text = dot(&program, func, Some(&counts));
    assert_eq!(
        text.matches(" -> ").count(),
        program.function(func).block_ids().map(|b| program.successors(b).len()).sum::<usize>()
    );
}

/// A number of which a part is covered is another number.
#[test]
fn numbers_at_edges_stand_beside_boxes_and_each_other() {
    let at = |x: f64, y: f64| Coordinates { x, y };
    let boxes = [
        (at(0.0, 0.0), Size { width: 100.0, height: 50.0 }),
        (at(0.0, 100.0), Size { width: 100.0, height: 50.0 }),
    ];
    let (corners, sizes): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
    let mut labels = svg::Labels::new(&corners, &sizes);
    // Two that part at one point, and one from a box to itself, along its side.
    labels.add("1981", &[at(50.0, 50.0), at(10.0, 100.0)], "red");
    labels.add("306", &[at(55.0, 50.0), at(90.0, 100.0)], "green");
    labels.add("84", &[at(100.0, 40.0), at(108.0, 40.0), at(108.0, 10.0), at(100.0, 10.0)], "blue");
    let number = |line: &str, key: &str| -> f64 {
        let value = line.split(&format!(" {key}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.and_then(|value| value.parse().ok()).expect("a number")
    };
    let rects: Vec<_> = labels
        .text
        .lines()
        .zip(["1981", "306", "84"])
        .map(|(line, label)| {
            assert!(line.contains(&format!(">{label}<")), "{line}");
            let (x, y) = (number(line, "x"), number(line, "y"));
            (x, x + label.len() as f64 * 4.9, y - 8.0, y)
        })
        .collect();
    assert_eq!(rects.len(), 3);
    let meet =
        |a: &(f64, f64, f64, f64), b: &(f64, f64, f64, f64)| a.0 < b.1 && b.0 < a.1 && a.2 < b.3 && b.2 < a.3;
    for (i, rect) in rects.iter().enumerate() {
        assert!(rects.iter().skip(i + 1).all(|other| !meet(rect, other)), "{rects:?}");
        let boxes = corners.iter().zip(&sizes).map(|(at, s)| (at.x, at.x + s.width, at.y, at.y + s.height));
        assert!(boxes.into_iter().all(|b| !meet(rect, &b)), "{rects:?}");
    }
}

/// Exceptions have no counts of their own; none came from what never ran, or to it.
#[test]
fn ways_of_exceptions_between_blocks_that_never_ran_are_dotted() {
    let program = Program::analyze(Image::load("/proc/self/exe".as_ref()).expect("we can read ourselves"));
    let has_pad = |f: &crate::ids::FuncId| {
        program.function(*f).n_blocks() < 60
            && program.edges_of(*f).iter().any(|e| e.kind == EdgeKind::LandingPad)
    };
    let func = program.func_ids().find(has_pad).expect("there is one");
    let is_pad = |b: BlockId| program.block(b).landing_pad;
    let ran = |n: u64| Some(RunCount { n, between: None });
    let counts = Counts { block: &|b| ran(u64::from(!is_pad(b))), edge: &|_| None };
    let text = svg(&program, func, Style::default(), Some(&counts));
    for line in text.lines().filter(|line| line.contains("LandingPad")) {
        assert!(line.contains(r#"stroke-dasharray="2 3""#), "{line}");
    }
    assert!(text.contains("LandingPad"));
}

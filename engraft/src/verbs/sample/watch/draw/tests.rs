//! What is on the screen, by what was seen and which keys came.

use super::super::screen::{Asked, Screen};
use super::draw;
use profile::samples::Frame;
use program::{Image, Program};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use session::{Glimpse, SeenImage, SeenStack};

/// A stack of functions that a perf map names, the innermost first.
fn stack(names: &[&str], period: u64, period_of_late: u64) -> SeenStack {
    let frames = names.iter().map(|name| Frame::Named((*name).into())).collect();
    SeenStack { frames, period, period_of_late }
}

fn screen() -> Screen {
    let mut screen = Screen::new("prog".to_owned());
    screen.hear(glimpse());
    screen
}

fn glimpse() -> Glimpse {
    let stacks = vec![
        stack(&["leaf", "middle", "main"], 60, 10),
        stack(&["middle", "main"], 30, 30),
        stack(&["main", "main"], 10, 0),
    ];
    Glimpse { stacks, samples: 100, samples_of_late: 40, ..Glimpse::default() }
}

fn key(screen: &mut Screen, code: KeyCode) -> Asked {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// The lines of the screen, and what of them stands out.
fn drawn(screen: &mut Screen) -> (Vec<String>, Vec<String>) {
    let mut terminal = Terminal::new(TestBackend::new(72, 8)).expect("memory");
    terminal.draw(|frame| draw(screen, frame)).expect("memory");
    let buffer = terminal.backend().buffer();
    let line = |y: u16, is_wanted: &dyn Fn(Modifier) -> bool| {
        let cells = (0..buffer.area.width).filter_map(|x| buffer.cell((x, y)));
        let text: String = cells.filter(|cell| is_wanted(cell.modifier)).map(|cell| cell.symbol()).collect();
        // Columns are as wide as they need.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let all = (0..buffer.area.height).map(|y| line(y, &|_| true)).collect();
    let marked = (0..buffer.area.height).map(|y| line(y, &|m| m.contains(Modifier::REVERSED)));
    (all, marked.filter(|text| !text.is_empty()).collect())
}

#[track_caller]
fn check(screen: &mut Screen, lines: &[&str], chosen: &str) {
    let (all, marked) = drawn(screen);
    assert_eq!(
        all.get(..lines.len()),
        Some(&lines.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
        "{all:#?}"
    );
    assert!(marked.iter().any(|text| text.contains(chosen)), "{marked:?}");
}

#[test]
fn functions_are_sorted_by_self_or_total_of_late_or_in_all() {
    let mut screen = screen();
    let of_late = ["prog the last 10 s: 40 samples", "self total function module"];
    let rows = ["75.00 % 100.00 % middle [perf map]", "25.00 % 25.00 % leaf [perf map]"];
    check(&mut screen, &[&of_late[..], &rows].concat(), "middle");
    key(&mut screen, KeyCode::Char('w'));
    let rows = |screen: &Screen| screen.rows.iter().map(|row| row.function.clone()).collect::<Vec<_>>();
    assert_eq!(rows(&screen), ["leaf", "middle", "main"]);
    let shares: Vec<(f64, f64)> = screen.rows.iter().map(|row| (row.own, row.total)).collect();
    assert_eq!(shares, [(0.6, 0.6), (0.3, 0.9), (0.1, 1.0)]);
    check(&mut screen, &["prog since the start: 100 samples"], "leaf");
    key(&mut screen, KeyCode::Char('t'));
    assert_eq!(rows(&screen), ["main", "middle", "leaf"]);
    key(&mut screen, KeyCode::Left);
    assert_eq!(rows(&screen), ["leaf", "middle", "main"]);
}

#[test]
fn what_is_chosen_stays_chosen() {
    let mut screen = screen();
    key(&mut screen, KeyCode::Char('w'));
    key(&mut screen, KeyCode::Down);
    check(&mut screen, &[], "middle");
    key(&mut screen, KeyCode::Char('t'));
    check(&mut screen, &[], "middle");
    for code in [KeyCode::End, KeyCode::Down, KeyCode::PageDown] {
        key(&mut screen, code);
        check(&mut screen, &[], "leaf");
    }
    key(&mut screen, KeyCode::Home);
    check(&mut screen, &[], "main");
}

#[test]
fn while_it_is_paused_nothing_changes() {
    let mut screen = screen();
    key(&mut screen, KeyCode::Char('p'));
    let mut more = glimpse();
    more.samples_of_late = 77;
    screen.hear(more);
    check(&mut screen, &["prog the last 10 s: 40 samples paused"], "paused");
    key(&mut screen, KeyCode::Char('p'));
    check(&mut screen, &["prog the last 10 s: 77 samples"], "middle");
    assert_eq!(key(&mut screen, KeyCode::Enter), Asked::GoOn, "it has no code");
    assert!(screen.code.is_none());
    assert_eq!(key(&mut screen, KeyCode::Char('q')), Asked::End);
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Asked::End);
}

#[test]
fn the_code_of_a_function_has_its_samples_by_instruction() {
    let small = std::path::Path::new("/bin/true");
    let program = Program::analyze_code(Image::load(small).expect("an image"));
    let long = program.func_ids().find(|id| {
        let insns = program.function(*id).block_ids().map(|block| program.insns(block).count());
        insns.sum::<usize>() > 5
    });
    let func = long.expect("there is one");
    let entry = program.function(func).entry;
    let first = program.block_from(entry).expect("a block");
    let second = program.insns(first).nth(1).map_or(entry, |insn| insn.at());
    let frame = |at| Frame::Code { module: 0, at };
    let stack = |at, period| SeenStack { frames: vec![frame(at)], period, period_of_late: 0 };
    let mut screen = Screen::new("small".to_owned());
    key(&mut screen, KeyCode::Char('w'));
    let images = vec![SeenImage { path: "/a/small".into(), file: None }];
    screen.hear(Glimpse { stacks: vec![stack(entry, 10), stack(second, 30)], images, ..Glimpse::default() });
    let names = |screen: &Screen| {
        screen.rows.iter().map(|row| (row.function.clone(), row.module.clone())).collect::<Vec<_>>()
    };
    assert_eq!(names(&screen), [("[not analysed]".to_owned(), "small".to_owned())]);
    screen.know(0, program);
    assert_eq!(screen.rows.len(), 1);
    key(&mut screen, KeyCode::Enter);
    let code = screen.code.as_ref().expect("it is open");
    let shares: Vec<(u64, f64)> =
        code.lines.iter().filter(|line| line.share > 0.0).map(|line| (line.at.0, line.share)).collect();
    assert_eq!(shares, [(entry.0, 0.25), (second.0, 0.75)]);
    assert_eq!(code.lines.get(code.chosen).map(|line| line.at), Some(second), "most of it");
    let lines = code.lines.clone();
    let (all, marked) = drawn(&mut screen);
    let text = &lines[1].text;
    assert!(marked[0].contains("75.00 %") && marked[0].contains(&text[..text.len().min(4)]), "{all:#?}");
    // It stays open while more comes, and is left again.
    key(&mut screen, KeyCode::Down);
    let chosen = screen.code.as_ref().map(|code| code.chosen);
    screen.hear(screen.glimpse.clone());
    assert_eq!(screen.code.as_ref().map(|code| code.chosen), chosen);
    key(&mut screen, KeyCode::Esc);
    assert!(screen.code.is_none());
}

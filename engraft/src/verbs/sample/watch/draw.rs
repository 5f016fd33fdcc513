//! The screen, drawn: what is sampled, functions or the code of one, keys.

use super::PARTS;
use super::screen::{Code, Order, Screen};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use views::share;

const KEYS: &str = " s self  t total  w window  ↑ ↓ choose  Enter code  p pause  q end";
const KEYS_OF_CODE: &str = " ↑ ↓ choose  Esc back  w window  p pause  q end";

/// Draws it all.
pub fn draw(screen: &mut Screen, frame: &mut Frame<'_>) {
    let [head, body, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(title(screen)), head);
    screen.height = usize::from(body.height).saturating_sub(1);
    match &screen.code {
        Some(code) => draw_code(code, frame, body),
        None => draw_functions(screen, frame, body),
    }
    let text = if screen.code.is_some() { KEYS_OF_CODE } else { KEYS };
    frame.render_widget(Paragraph::new(Span::styled(text, Style::new().add_modifier(Modifier::DIM))), keys);
}

fn title(screen: &Screen) -> Line<'_> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let glimpse = &screen.glimpse;
    let (n, when) = match screen.is_of_late {
        true => {
            let seconds = PARTS.0.as_secs() * PARTS.1 as u64;
            (glimpse.samples_of_late, format!("the last {seconds} s"))
        }
        false => (glimpse.samples, "since the start".to_owned()),
    };
    let mut text = format!("  {when}: {}", views::many(usize::try_from(n).unwrap_or(usize::MAX), "sample"));
    if glimpse.lost > 0 {
        text += &format!(", {} lost", glimpse.lost);
    }
    let mut line = vec![Span::styled(format!(" {}", screen.what), bold), Span::raw(text)];
    if screen.is_paused {
        line.push(Span::styled("  paused", Style::new().add_modifier(Modifier::REVERSED)));
    }
    Line::from(line)
}

/// What is chosen stands out.
fn table<'a>(rows: Vec<Row<'a>>, widths: [Constraint; 4], head: Row<'a>) -> Table<'a> {
    let head = head.style(Style::new().add_modifier(Modifier::BOLD));
    Table::new(rows, widths)
        .header(head)
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn draw_functions(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let sorted = |order: Order, name: &'static str| {
        let mark = if screen.order == order { Modifier::UNDERLINED } else { Modifier::empty() };
        Cell::new(Line::styled(name, Style::new().add_modifier(mark)).right_aligned())
    };
    let head = Row::new([
        sorted(Order::Own, "self"),
        sorted(Order::Total, "total"),
        "function".into(),
        "module".into(),
    ]);
    let number = |part: f64| Cell::new(Line::raw(share(part)).right_aligned());
    let rows = screen.rows.iter().map(|row| {
        Row::new([
            number(row.own),
            number(row.total),
            row.function.as_str().into(),
            row.module.as_str().into(),
        ])
    });
    let widths = [Constraint::Length(8), Constraint::Length(8), Constraint::Fill(3), Constraint::Fill(1)];
    let mut state = TableState::new().with_selected(Some(screen.chosen()));
    frame.render_stateful_widget(table(rows.collect(), widths, head), area, &mut state);
}

fn draw_code(code: &Code, frame: &mut Frame<'_>, area: Rect) {
    let head = Row::new([
        Cell::new(Line::raw("self").right_aligned()),
        "address".into(),
        "".into(),
        Cell::new(code.function.clone()),
    ]);
    let rows = code.lines.iter().map(|line| {
        let part = if line.share > 0.0 { share(line.share) } else { String::new() };
        let marks = "▇".repeat(bars(line.share));
        Row::new([
            Cell::new(Line::raw(part).right_aligned()),
            line.at.to_string().into(),
            marks.into(),
            line.text.as_str().into(),
        ])
    });
    let widths = [Constraint::Length(8), Constraint::Length(14), Constraint::Length(8), Constraint::Fill(1)];
    let mut state = TableState::new().with_selected(Some(code.chosen));
    frame.render_stateful_widget(table(rows.collect(), widths, head), area, &mut state);
}

/// How long a bar is for a part of all.
fn bars(part: f64) -> usize {
    (1..=8).filter(|n| part >= f64::from(*n) / 8.0 - 1.0 / 16.0).count()
}

#[cfg(test)]
mod tests;

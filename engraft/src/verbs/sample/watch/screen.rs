//! What is on the screen: functions by their samples, or the code of one; and what keys do to that.

use super::super::fill::called;
use crate::input;
use measure::reports::sampled::{Who, who};
use profile::samples::Frame;
use program::{Program, Va};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use session::Glimpse;
use std::collections::{BTreeMap, HashMap};

/// By what functions are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// What is in them themselves.
    Own,
    /// What is in them and in all that they called.
    Total,
}

/// A function, or what else samples are in.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is.
    pub who: Who,
    /// What people call it.
    pub function: String,
    /// What its module is called.
    pub module: String,
    /// What is in it, of all, `0.0..=1.0`.
    pub own: f64,
    /// What is in it and in all that it called.
    pub total: f64,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct CodeLine {
    /// Its address.
    pub at: Va,
    /// What it is.
    pub text: String,
    /// How much of what is in the function is at it, `0.0..=1.0`.
    pub share: f64,
}

/// The code of a function.
#[derive(Clone, Debug)]
pub struct Code {
    /// The function.
    pub who: Who,
    /// What people call it.
    pub function: String,
    /// Its instructions, by address.
    pub lines: Vec<CodeLine>,
    /// Which one is chosen.
    pub chosen: usize,
}

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// To go on.
    GoOn,
    /// An end.
    End,
}

/// What is on the screen.
pub struct Screen {
    /// What is sampled.
    pub what: String,
    /// What was seen.
    pub glimpse: Glimpse,
    /// What came while it stands still.
    waiting: Option<Glimpse>,
    programs: Vec<Option<Program>>,
    /// Functions, those with most samples first.
    pub rows: Vec<Row>,
    /// By what they are sorted.
    pub order: Order,
    /// Whether it shows what is of late alone.
    pub is_of_late: bool,
    /// Whether it stands still.
    pub is_paused: bool,
    chosen: Option<Who>,
    /// The code of the function that was opened.
    pub code: Option<Code>,
    /// How many rows there was room for.
    pub height: usize,
}

impl Screen {
    /// Of `what` is sampled; there is nothing yet.
    pub fn new(what: String) -> Screen {
        Screen {
            what,
            glimpse: Glimpse::default(),
            waiting: None,
            programs: Vec::new(),
            rows: Vec::new(),
            order: Order::Own,
            is_of_late: true,
            is_paused: false,
            chosen: None,
            code: None,
            height: 1,
        }
    }

    /// More was seen.
    pub fn hear(&mut self, glimpse: Glimpse) {
        if self.is_paused {
            self.waiting = Some(glimpse);
            return;
        }
        self.glimpse = glimpse;
        self.compute();
    }

    /// What image `n` is, is known now.
    pub fn know(&mut self, n: usize, program: Program) {
        if self.programs.len() <= n {
            self.programs.resize_with(n + 1, || None);
        }
        if let Some(known) = self.programs.get_mut(n) {
            *known = Some(program);
        }
        // It has functions, of which one may be chosen; its code was in none before.
        self.compute();
    }

    /// Which row is chosen.
    pub fn chosen(&self) -> usize {
        let is_it = |row: &Row| Some(&row.who) == self.chosen.as_ref();
        self.rows.iter().position(is_it).unwrap_or(0)
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Asked {
        let page = isize::try_from(self.height.max(2) - 1).unwrap_or(1);
        match key.code {
            KeyCode::Char('q') => return Asked::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Asked::End,
            KeyCode::Char('s') | KeyCode::Left => self.sort_by(Order::Own),
            KeyCode::Char('t') | KeyCode::Right => self.sort_by(Order::Total),
            KeyCode::Char('w') => {
                self.is_of_late = !self.is_of_late;
                self.compute();
            }
            KeyCode::Char('p') => {
                self.is_paused = !self.is_paused;
                if let Some(waiting) = self.waiting.take() {
                    self.hear(waiting);
                }
            }
            KeyCode::Up => self.go(-1),
            KeyCode::Down => self.go(1),
            KeyCode::PageUp => self.go(-page),
            KeyCode::PageDown => self.go(page),
            KeyCode::Home => self.go(isize::MIN),
            KeyCode::End => self.go(isize::MAX),
            KeyCode::Enter => self.open(),
            KeyCode::Esc | KeyCode::Backspace => self.code = None,
            _ => {}
        }
        Asked::GoOn
    }

    fn sort_by(&mut self, order: Order) {
        self.order = order;
        self.sort();
    }

    fn go(&mut self, by: isize) {
        let to = |from: usize, n: usize| from.saturating_add_signed(by).min(n.saturating_sub(1));
        if let Some(code) = &mut self.code {
            code.chosen = to(code.chosen, code.lines.len());
        } else {
            let at = to(self.chosen(), self.rows.len());
            self.chosen = self.rows.get(at).map(|row| row.who.clone());
        }
    }

    fn open(&mut self) {
        if self.code.is_none()
            && let Some(row) = self.rows.get(self.chosen())
        {
            self.chosen = Some(row.who.clone());
            self.code = self.code_of(row);
            // Where most of it is.
            if let Some(code) = &mut self.code {
                let most =
                    (0..).zip(&code.lines).max_by(|a, b| a.1.share.total_cmp(&b.1.share).then(b.0.cmp(&a.0)));
                code.chosen = most.map_or(0, |(n, _)| n);
            }
        }
    }

    fn period(&self, stack: &session::SeenStack) -> u64 {
        if self.is_of_late { stack.period_of_late } else { stack.period }
    }

    /// Rows, and the code that is open, by what was seen.
    fn compute(&mut self) {
        let mut of_frame: HashMap<&Frame, Who> = HashMap::new();
        let mut sums: BTreeMap<Who, (u64, u64)> = BTreeMap::new();
        let mut all = 0u64;
        for stack in &self.glimpse.stacks {
            let period = self.period(stack);
            if period == 0 {
                continue;
            }
            all = all.saturating_add(period);
            let mut seen: Vec<Who> = Vec::new();
            for (n, frame) in stack.frames.iter().enumerate() {
                let who = of_frame.entry(frame).or_insert_with(|| who(frame, &self.programs)).clone();
                let sum = sums.entry(who.clone()).or_default();
                sum.0 = sum.0.saturating_add(if n == 0 { period } else { 0 });
                if !seen.contains(&who) {
                    sum.1 = sum.1.saturating_add(period);
                    seen.push(who);
                }
            }
        }
        drop(of_frame);
        let row = |(who, (own, total)): (Who, (u64, u64))| {
            let (function, module, _) = called(&who, &self.programs);
            let (function, module) = match &who {
                Who::Module(n) if self.programs.get(*n).is_none_or(Option::is_none) => {
                    let path = self.glimpse.images.get(*n).map(|image| image.path.display().to_string());
                    ("[not analysed]".to_owned(), path.map_or(module, |path| input::file_name(&path)))
                }
                _ => (function, module),
            };
            Row { function, module, own: views::ratio(own, all), total: views::ratio(total, all), who }
        };
        self.rows = sums.into_iter().map(row).collect();
        self.sort();
        if let Some(Code { who, chosen, .. }) = self.code.take() {
            let row = self.rows.iter().find(|row| row.who == who);
            self.code = row.and_then(|row| self.code_of(row)).map(|code| Code { chosen, ..code });
        }
    }

    fn sort(&mut self) {
        let order = self.order;
        let key = |row: &Row| if order == Order::Own { (row.own, row.total) } else { (row.total, row.own) };
        self.rows.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
    }

    /// The code of a row's function, if it is one of a program that is known.
    fn code_of(&self, row: &Row) -> Option<Code> {
        let Who::Function(module, func) = row.who else { return None };
        let program = self.programs.get(module)?.as_ref()?;
        let mut at_of: BTreeMap<Va, u64> = BTreeMap::new();
        for stack in &self.glimpse.stacks {
            if let Some(Frame::Code { module: of, at }) = stack.frames.first()
                && *of as usize == module
                && program.function_at(*at) == Some(func)
            {
                *at_of.entry(*at).or_default() += self.period(stack);
            }
        }
        let all: u64 = at_of.values().sum();
        let blocks = program.function(func).block_ids();
        let mut lines: Vec<CodeLine> = blocks
            .flat_map(|block| {
                program.insns(block).map(|insn| (insn.at(), insn.to_string())).collect::<Vec<_>>()
            })
            .map(|(at, text)| {
                let share = views::ratio(at_of.get(&at).copied().unwrap_or(0), all);
                CodeLine { at, text, share }
            })
            .collect();
        lines.sort_by_key(|line| line.at);
        Some(Code { who: row.who.clone(), function: row.function.clone(), lines, chosen: 0 })
    }
}

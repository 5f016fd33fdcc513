//! What functions cost with all that they called, and the tree of calls.

use super::counts::CountsView;
use crate::table::Table;
use crate::{View, known, look, share};
use serde::Serialize;
use std::io::{self, Write};

/// What functions cost.
#[derive(Debug, Serialize)]
pub struct Costs {
    /// Whether what is inclusive is an estimate, by number of calls.
    pub estimated: bool,
    /// The functions, the costliest first.
    pub functions: Vec<CostRow>,
}

/// What a function cost.
#[derive(Debug, Serialize)]
pub struct CostRow {
    /// The file it is in.
    pub module: String,
    /// What people call it.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// With all that it called; recursion counts once.
    pub inclusive: u64,
    /// Of all instructions, `0.0..=1.0`.
    pub inclusive_share: f64,
    /// Without what it called.
    pub instructions: u64,
    /// Of all instructions, `0.0..=1.0`.
    pub share: f64,
    /// How often it was entered, where that is known.
    pub entries: Option<u64>,
    /// Of an estimate: functions with the same number call each other in a circle, and are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle: Option<usize>,
}

/// A number that is an estimate, or is none.
pub(crate) fn estimate(n: impl ToString, is_estimate: bool) -> String {
    let mark = if is_estimate { "~" } else { "" };
    format!("{mark}{}", n.to_string())
}

impl View for CountsView<Costs> {
    fn table(&self) -> Table {
        let mut t = Table::new(&[
            "of all>",
            "inclusive>",
            "share>",
            "instructions>",
            "entries>",
            "function",
            "module",
        ]);
        let is = self.rows.estimated;
        for f in &self.rows.functions {
            let cycle = f.cycle.map_or_else(String::new, |n| format!(" <cycle {n}>"));
            t.row([
                estimate(share(f.inclusive_share), is),
                estimate(f.inclusive, is),
                share(f.share),
                f.instructions.to_string(),
                known(f.entries),
                f.name.clone() + &cycle,
                f.module.clone(),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)?;
        if self.rows.estimated {
            writeln!(w, "{ESTIMATED}")?;
        }
        Ok(())
    }
}

/// What `~` means.
const ESTIMATED: &str = "~: estimated as gprof does it, since counts do not say which call cost how much: each call of a function costs the same, and functions that call each other in a circle are one; `engraft trace` knows";

/// Which calls a tree has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways<'a> {
    /// All, from the first functions of threads on.
    All,
    /// All, each function with its callers below it: a row costs what the function did itself, called along
    /// that way.
    Inverted,
    /// What a function called.
    Below(&'a str),
    /// Who called it.
    Callers(&'a str),
}

/// The tree of calls.
#[derive(Debug, Serialize)]
pub struct CallTree {
    /// Whether it is an estimate, by number of calls.
    pub estimated: bool,
    /// What is counted: instructions; of a plain trace, blocks.
    pub unit: &'static str,
    /// What all cost.
    pub total: u64,
    /// The nodes: what is called stands behind its caller, the costliest first.
    pub tree: Vec<TreeRow>,
    /// What is too little to be in it: of an estimate, shares below a thousandth; of an inverted tree, ways
    /// of less than a ten thousandth.
    pub n_left_out: usize,
}

/// Calls along one way.
#[derive(Clone, Debug, Serialize)]
pub struct TreeRow {
    /// Its number.
    pub id: usize,
    /// The number of the caller's node; `null`: there is none.
    pub under: Option<usize>,
    /// How many callers are above it.
    pub depth: usize,
    /// The file that the function is in; empty if that is not known.
    pub module: String,
    /// The function.
    pub function: String,
    /// What these calls cost, with all that they called.
    pub inclusive: u64,
    /// Of all, `0.0..=1.0`.
    pub inclusive_share: f64,
    /// Without what they called.
    pub own: u64,
    /// How many there were; not known of samples.
    pub entries: Option<u64>,
}

/// How many nodes people see.
const TOP: usize = 30;

impl View for CountsView<CallTree> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["of all>", "inclusive>", "own>", "entries>", "depth>", "function", "module"]);
        let is = self.rows.estimated;
        for r in &self.rows.tree {
            t.row([
                estimate(share(r.inclusive_share), is),
                estimate(r.inclusive, is),
                estimate(r.own, is),
                r.entries.map_or_else(|| known(r.entries), |n| estimate(n, is)),
                r.depth.to_string(),
                r.function.clone(),
                r.module.clone(),
            ]);
        }
        t
    }

    /// As a tree, unless rows are to be sorted or chosen by name: then it is none.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let look = look::look();
        let rows = &self.rows;
        if look.sort.is_some() || look.filter.is_some() {
            self.table().text(w)?;
        } else {
            self.indented(look.n_rows.unwrap_or(TOP), w)?;
        }
        if rows.estimated {
            writeln!(w, "{ESTIMATED}")?;
        }
        Ok(())
    }
}

impl CountsView<CallTree> {
    /// The `n` costliest nodes: what is above them costs no less, so it is among them.
    fn indented(&self, n: usize, w: &mut dyn Write) -> io::Result<()> {
        let rows = &self.rows;
        let mut costliest: Vec<usize> = (0..rows.tree.len()).collect();
        let cost = |n: &usize| rows.tree.get(*n).map_or(0, |row| row.inclusive);
        costliest.sort_by_key(|n| (std::cmp::Reverse(cost(n)), *n));
        costliest.truncate(n);
        costliest.sort_unstable();
        let mut t = Table::new(&["of all>", "inclusive>", "own>", "entries>", "function", "module"]);
        let is = rows.estimated;
        for r in costliest.iter().filter_map(|n| rows.tree.get(*n)) {
            t.row([
                estimate(share(r.inclusive_share), is),
                estimate(r.inclusive, is),
                estimate(r.own, is),
                r.entries.map_or_else(|| known(r.entries), |n| estimate(n, is)),
                "  ".repeat(r.depth) + &r.function,
                r.module.clone(),
            ]);
        }
        t.whole(w)?;
        let more = rows.tree.len() - costliest.len();
        if more > 0 {
            writeln!(w, "and {more} more that cost less: -n {} shows all", rows.tree.len())?;
        }
        if rows.n_left_out > 0 && !rows.estimated {
            writeln!(
                w,
                "{} of less than a ten thousandth are left out",
                crate::many(rows.n_left_out, "way")
            )?;
        }
        writeln!(w, "{} {} in all", rows.total, rows.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Look;
    use crate::show::counts::SCHEMA;

    fn view(estimated: bool) -> CountsView<CallTree> {
        let row = |id: usize, under: Option<usize>, depth, function: &str, inclusive| TreeRow {
            id,
            under,
            depth,
            module: "m".to_owned(),
            function: function.to_owned(),
            inclusive,
            inclusive_share: inclusive as f64 / 4000.0,
            own: 1,
            entries: Some(2),
        };
        let tree = vec![
            row(0, None, 0, "main", 4000),
            row(1, Some(0), 1, "much", 3000),
            row(2, Some(1), 2, "deep", 2000),
            row(3, Some(0), 1, "little", 900),
        ];
        let rows = CallTree { estimated, unit: "instructions", total: 4000, tree, n_left_out: 0 };
        CountsView { schema: SCHEMA, rows }
    }

    fn text(look: &Look, view: &CountsView<CallTree>) -> String {
        let mut text = Vec::new();
        look.write(&mut text, |w| view.text(w)).expect("memory").expect("no key");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn the_costliest_calls_stand_under_their_callers() {
        let look = Look { n_rows: Some(3), ..Look::default() };
        let want = "of all  inclusive  own  entries  function  module
100.00 %       4000    1        2  main      m
 75.00 %       3000    1        2    much    m
 50.00 %       2000    1        2      deep  m
and 1 more that cost less: -n 4 shows all
4000 instructions in all
";
        assert_eq!(text(&look, &view(false)).trim_start(), want);
    }

    #[test]
    fn an_estimate_says_so_and_its_numbers_are_numbers_for_spreadsheets() {
        let look = Look { width: Some(90), ..Look::default() };
        let shown = text(&look, &view(true));
        assert!(shown.contains("~100.00 %     ~4,000   ~1       ~2  main"), "{shown}");
        assert!(shown.contains("~: estimated as gprof does it"), "{shown}");
        let mut csv = Vec::new();
        view(true).csv(&mut csv).expect("memory");
        let csv = String::from_utf8_lossy(&csv);
        assert!(csv.contains("\n100.00,4000,1,2,0,main,m\n"), "{csv}");
        let sorted = text(&Look { sort: Some("own".into()), ..look }, &view(true));
        assert!(sorted.contains("depth"), "{sorted}");
    }
}

//! How long pages of a table with very many rows take the server: the first page, each order, looking for a
//! name, the last rows. Nothing of it was asked for before; then the same once more.
//!
//! `cargo run --release -p viewer --example rows [ROWS]` prints milliseconds, tab-separated;
//! `… rows ROWS serve` serves them, prints the address, and ends when its input does (`checks/view.py`).

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;
use viewer::{Failed, Recordings, Server, Site};
use views::Between;
use views::attach::AttachedView;
use views::count::{CountView, FunctionView};
use views::recordings::{RecordingRow, RecordingsView, What};

/// A recording of very many functions.
struct Many {
    list: RecordingsView,
    counted: Arc<CountView>,
}

impl Recordings for Many {
    fn all(&self) -> &RecordingsView {
        &self.list
    }

    fn counted(&self, _: usize) -> Result<Arc<CountView>, Failed> {
        Ok(self.counted.clone())
    }
}

/// Names like those of a large C++ program: few beginnings, long, and not in order.
fn function(n: u64, total: u64) -> FunctionView {
    const SPACES: [&str; 8] = [
        "std::vector",
        "std::map",
        "llvm::ir::passes",
        "clang::sema",
        "boost::asio",
        "",
        "v8::internal",
        "x",
    ];
    // Marsaglia, "Xorshift RNGs", 2003: any odd multiplier mixes well enough for names.
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let space = SPACES.get(usize::try_from(mixed % 8).unwrap_or(0)).copied().unwrap_or_default();
    let instructions = (total - n) * 37 + mixed % 31;
    FunctionView {
        module: format!("libmodule_{}.so", mixed % 40),
        name: format!("{space}::function_{mixed}<int, char const*>::operator()(long, std::string const&)"),
        at: 0x40_0000 + n * 64,
        entries: (!n.is_multiple_of(7)).then_some(mixed % 100_000),
        between: Between::default(),
        instructions,
        share: instructions as f64 / (total * total * 20) as f64,
        inclusive: None,
    }
}

fn many(n: u64) -> Many {
    let functions: Vec<FunctionView> = (0..n).map(|at| function(at, n)).collect();
    let counted = CountView {
        schema: CountView::SCHEMA,
        points: Vec::new(),
        run: None,
        recording: "many.engraft".to_owned(),
        threads: Some(1),
        stopped: 0,
        died: None,
        instructions: functions.iter().map(|f| f.instructions).sum(),
        counted_share: 1.0,
        modules: Vec::new(),
        functions,
        loops: Vec::new(),
        uncounted: Vec::new(),
        unknown: Vec::new(),
        left_out: Vec::new(),
        others: None,
        per_thread: Vec::new(),
        attach: AttachedView::default(),
        repeated: None,
    };
    let row = RecordingRow {
        recording: "many.engraft".to_owned(),
        what: What::Counts,
        command: None,
        written: None,
    };
    let list = RecordingsView { schema: RecordingsView::SCHEMA, recordings: vec![row] };
    Many { list, counted: Arc::new(counted) }
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let n: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let recordings = Arc::new(many(n));
    let mut out = io::stdout().lock();
    if words.next().is_some() {
        let server = Server::bind(None).map_err(io::Error::other)?;
        let address = server.address();
        server.start(recordings).map_err(io::Error::other)?;
        writeln!(out, "{address}")?;
        out.flush()?;
        return io::stdin().read_to_end(&mut Vec::new()).map(drop);
    }
    let site = Site::new(recordings);
    let last = (n - 1).to_string();
    let asked = [
        ("first page", "functions", String::new()),
        ("sort by instructions", "functions", "sort=instructions&order=reversed".to_owned()),
        ("sort by entries", "functions", "sort=entries".to_owned()),
        ("sort by function", "functions", "sort=function".to_owned()),
        ("sort by module", "functions", "sort=module".to_owned()),
        ("filter, few fit", "functions", "q=function_77".to_owned()),
        ("filter, most fit", "functions", "q=function".to_owned()),
        ("filter with *", "functions", "q=llvm*99*char".to_owned()),
        ("filter and sort", "functions", "q=clang&sort=function".to_owned()),
        ("last rows", "functions.rows", format!("from={last}&rows=200")),
        ("last rows, sorted", "functions.rows", format!("sort=function&from={last}&rows=200")),
    ];
    for round in ["first", "again"] {
        for (what, page, query) in &asked {
            let start = Instant::now();
            let answer = site.answer(&format!("0/{page}"), Some(query));
            let ms = start.elapsed().as_secs_f64() * 1000.0;
            writeln!(out, "{ms:.1}\t{what}, {round}\t{} {} bytes", answer.status, answer.bytes.len())?;
        }
    }
    Ok(())
}

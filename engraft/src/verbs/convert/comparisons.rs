//! `engraft convert` for comparisons: JSON, or a table of functions.

use super::Args;
use crate::input;
use crate::output::{self, Answer, Hinted};
use views::View as _;
use views::convert::RowsView;

/// Makes JSON or CSV of a comparison; `None` if no input is one.
///
/// # Errors
/// If it cannot be read or written, or something else is asked for than it can become.
pub fn convert(args: &Args) -> anyhow::Result<Option<Answer>> {
    let Some(path) = args.inputs.iter().find(|path| input::is_comparison(path)) else { return Ok(None) };
    let refused = |what: String| {
        Hinted::new(what, "say `engraft convert FILE -o X.json`, or X.csv for a row a function").into()
    };
    if args.inputs.len() > 1 {
        return Err(refused(format!("{} is a comparison, and is not added to others", path.display())));
    }
    let is_json = match args.o.extension().and_then(|extension| extension.to_str()) {
        Some("json") if args.to.is_none() => true,
        Some("csv") if args.to.is_none() => false,
        _ => return Err(refused(format!("{} is a comparison, which becomes JSON or CSV", path.display()))),
    };
    output::refuse_replacing(&args.o, &[path])?;
    let view = input::comparison(path)?.into_view();
    output::data(Some(&args.o), |w| if is_json { view.json(w) } else { view.csv(w) })?;
    let n_rows = view.functions.len() as u64;
    let file = args.o.display().to_string();
    let said = RowsView { schema: RowsView::SCHEMA, file, n_rows, functions: Vec::new() };
    args.output.print_beside_file(&args.o, &said)?;
    Ok(Some(Answer::Yes))
}

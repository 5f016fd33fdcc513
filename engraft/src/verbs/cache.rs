//! `engraft cache`: what is kept of rewritten programs; cleared on request.

use crate::output::{Answer, Hinted, Output};
use crate::verbs::count;
use anyhow::Context as _;
use views::cache::{CacheView, KindView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft cache
  $ engraft cache --json";

/// Show what is kept of rewritten programs, or clear it
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// `clear` removes all of it
    #[arg(value_enum, value_name = "clear", hide_possible_values = true)]
    what: Option<What>,
    #[command(flatten)]
    output: Output,
}

/// What is done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// All of it is removed
    Clear,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let folder = count::cache_folder().ok_or_else(|| {
        Hinted::new(
            "there is no cache: nothing says where",
            "set HOME, or XDG_CACHE_HOME, to a folder's path",
        )
    })?;
    let is_cleared = args.what == Some(What::Clear);
    let (n_removed, removed_bytes) = match is_cleared {
        true => {
            session::clear_cache(&folder).with_context(|| format!("cannot clear {}", folder.display()))?
        }
        false => (0, 0),
    };
    let kept = session::cached(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let view = CacheView {
        schema: CacheView::SCHEMA,
        folder: folder.display().to_string(),
        n_files: kept.iter().map(|row| row.n_files).sum(),
        len_bytes: kept.iter().map(|row| row.len_bytes).sum(),
        limit_bytes: session::CACHE_LIMIT,
        kinds: kept
            .iter()
            .map(|row| KindView { what: row.what, n_files: row.n_files, len_bytes: row.len_bytes })
            .collect(),
        n_removed,
        removed_bytes,
        is_cleared,
    };
    args.output.print(&view)?;
    Ok(Answer::Yes)
}

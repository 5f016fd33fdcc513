//! `show BINARY --verify`: does the analysis keep what it promises?

use crate::output::Answer;
use program::Program;
use tracing::info_span;
use views::show::verify::{VerifyView, ViolationRow};

/// Checks `program`.
pub fn view(program: &Program) -> VerifyView {
    let violations = info_span!("verify").in_scope(|| program.verify());
    VerifyView {
        schema: VerifyView::SCHEMA,
        binary: program.image.name.clone(),
        n_functions: program.functions.len(),
        n_blocks: program.blocks.len(),
        n_edges: program.edges.len(),
        violations: violations
            .into_iter()
            .map(|v| ViolationRow { at: v.at.0, rule: format!("{:?}", v.rule), text: v.text })
            .collect(),
    }
}

/// Yes if nothing is broken.
pub fn answer(view: &VerifyView) -> Answer {
    if view.violations.is_empty() { Answer::Yes } else { Answer::No }
}

//! What was seen at the points of a plan, as a view.

use crate::output;
use measure::kept::{Kept, Seen, never_reached};
use views::count::points::PointView;

/// Of what was seen.
pub fn point_view(seen: Seen) -> PointView {
    let (image, point) = (seen.image.name, seen.what);
    let mut view = PointView { image, point, executions: None, last: None, histogram: None, values: None };
    match seen.kept {
        Kept::Count(n) => view.executions = Some(n),
        Kept::Last(all) => view.last = Some(all),
        Kept::Histogram(all) => {
            view.executions = Some(all.iter().fold(0, |sum, n| sum.saturating_add(*n)));
            view.histogram = Some(all);
        }
        Kept::Ring(threads) => {
            view.executions = Some(threads.iter().fold(0, |sum, t| sum.saturating_add(t.0)));
            view.values = Some(threads.into_iter().map(|t| t.1).collect());
        }
    }
    view
}

/// Says so where nothing came by what a line of the plan asks for.
pub fn warn_of_nothing(seen: &[Seen]) {
    for line in never_reached(seen) {
        let what = format!("`{line}`: nothing came by in any run that was recorded");
        output::warn(
            &what,
            Some("what is called may be a function of another name: `engraft show BINARY functions`"),
        );
    }
}

//! What was seen at the points of a plan, as a view.

use measure::kept::{Kept, Seen};
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

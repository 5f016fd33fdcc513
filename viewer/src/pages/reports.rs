//! Pages of what verbs report with `--json`: two builds matched, a profile carried, many builds compared.

pub mod carried;
pub mod matched;
pub mod matrix;

//! A function in an answer.

use serde::Serialize;

/// A function in an answer.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// Its symbol, as the trace has it; none where there is none.
    pub function: Option<String>,
    /// What the source calls it, where that is decorated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_name: Option<String>,
    /// As the trace numbers it.
    pub function_id: Option<u32>,
}

impl FunctionView {
    /// Its name for people.
    pub fn called(&self) -> Option<&str> {
        self.source_name.as_deref().or(self.function.as_deref())
    }

    /// The same, `-` if there is none.
    pub fn cell(&self) -> String {
        self.called().unwrap_or("-").to_owned()
    }
}

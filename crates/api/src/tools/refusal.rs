//! What a model is told when a tool did not do what it asked for.

use std::fmt::Display;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;
use sessions::DeskError;

#[derive(Debug)]
pub(super) struct Refusal {
    /// Stable; for programs.
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: String) -> Self {
        Self { code, message }
    }

    pub(super) fn argument(name: &str, problem: impl Display) -> Self {
        Self::new("bad_argument", format!("`{name}` {problem}"))
    }

    pub(super) fn into_result(self) -> CallToolResult {
        let Self { code, message } = self;
        let mut result =
            CallToolResult::structured_error(json!({ "error": { "code": code, "message": message } }));
        result.content = vec![ContentBlock::text(message)];
        result
    }
}

impl From<DeskError> for Refusal {
    fn from(error: DeskError) -> Self {
        let code = error.code();
        if matches!(error, DeskError::Store(_) | DeskError::StorageFull(_) | DeskError::Files { .. }) {
            // The caller is told what to do; what lies beneath is for whoever keeps the machine.
            tracing::error!(code, ?error, "a tool failed");
        }
        Self::new(code, error.to_string())
    }
}

//! A call, as those tell of it who know it: the ledger, the host, and its hooks.

use serde_json::{Value, json};

use super::CODEX;
use crate::support::keys;

/// What `callsign calls --json` prints of each call.
pub(super) const COLUMNS: [&str; 17] = [
    "at",
    "call",
    "duration_ms",
    "host",
    "method",
    "outcome",
    "parent",
    "run",
    "server",
    "session",
    "source",
    "spoof",
    "thread",
    "tool",
    "trust",
    "turn",
    "workspace",
];

/// What the ledger alone knows of a call.
pub(super) const OF_THE_LEDGER: [&str; 5] = ["at", "method", "outcome", "duration_ms", "spoof"];

/// A call, as any of those tells who know of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub(super) session: String,
    pub(super) thread: String,
    pub(super) parent: Option<String>,
    pub(super) turn: Option<String>,
    pub(super) id: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) outcome: String,
    pub(super) host: String,
}

impl Call {
    #[track_caller]
    pub(super) fn of_row(row: &Value) -> Self {
        assert_eq!(keys(row), COLUMNS, "the columns of {row}");
        assert_eq!((&row["method"], &row["spoof"]), (&json!("tools/call"), &json!([])), "{row}");
        Self {
            session: string(&row["session"]),
            thread: string(&row["thread"]),
            parent: optional(&row["parent"]),
            turn: optional(&row["turn"]),
            id: string(&row["call"]),
            server: string(&row["server"]),
            tool: string(&row["tool"]),
            outcome: optional(&row["outcome"]).unwrap_or_default(),
            host: string(&row["host"]),
        }
    }
}

/// What a hook was told of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    /// `OpenCode` names the thread alone, and no turn.
    pub(super) session: Option<String>,
    pub(super) thread: String,
    pub(super) turn: Option<String>,
    pub(super) call: String,
    /// In the host's own spelling.
    pub(super) tool: String,
}

impl Event {
    /// What the call's host should have told.
    pub(super) fn of_call(call: &Call) -> Self {
        let (thread, id) = (call.thread.clone(), call.id.clone());
        if call.host == CODEX {
            let tool = format!("mcp__{}__{}", call.server, call.tool);
            return Self {
                session: Some(call.session.clone()),
                thread,
                turn: call.turn.clone(),
                call: id,
                tool,
            };
        }
        let tool = format!("{}_{}", call.server, call.tool);
        Self { session: None, thread, turn: None, call: id, tool }
    }

    pub(super) fn is_of_a_server(&self) -> bool {
        ["std_", "rem_", "mcp__"].iter().any(|start| self.tool.starts_with(start))
    }

    /// The session that the ledger puts the thread in.
    pub(super) fn session_of(&self, rows: &[Value]) -> String {
        let row = rows.iter().find(|row| row["thread"] == self.thread).expect("a row of the thread");
        string(&row["session"])
    }
}

#[track_caller]
pub(super) fn string(value: &Value) -> String {
    optional(value).unwrap_or_else(|| panic!("no text: {value}"))
}

pub(super) fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

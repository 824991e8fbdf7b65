//! Servers behind us.

use model::identity::Trust;

use crate::text::Text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It answered, or its processes live.
    Fine,
    /// Nobody has called it yet.
    Unused,
    /// It fails, and why.
    Failing(Text),
    /// It failed too often and is not started for a while.
    Resting(Text),
}

#[derive(Debug, Clone)]
pub struct ServerRow {
    pub name: Text,
    /// `stdio` or `http`.
    pub kind: Text,
    /// The command without its arguments, or the address.
    pub target: Text,
    pub isolation: Option<Text>,
    pub pinned: bool,
    pub health: Health,
    pub children: u64,
    pub tools: u64,
    /// Tools that are withheld until somebody approves them.
    pub withheld: u64,
    /// Of the last hour.
    pub calls: u64,
    pub errors: u64,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub row: ServerRow,
    /// The least that must be known of a caller.
    pub require: Trust,
    pub hooks: Vec<Text>,
    pub children: Vec<Child>,
    pub breaker: Option<Breaker>,
    pub catalogue: Vec<Tool>,
    /// Over the whole catalogue as it was approved.
    pub fingerprint: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct Child {
    pub pid: Option<u32>,
    /// For whom it runs.
    pub host: Option<Text>,
    pub session: Option<Text>,
    pub thread: Option<Text>,
    pub trust: Trust,
    /// One of our words: `starting`, `ready`, `idle`, `shared`, `lobby` …
    pub state: Text,
    pub under_way: u64,
    pub started_at: u64,
}

#[derive(Debug, Clone)]
pub struct Breaker {
    pub failures: u64,
    /// When it is tried again.
    pub until: Option<u64>,
    pub last: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolState {
    Same,
    New,
    Changed,
    LookAlike,
}

#[derive(Debug, Clone)]
pub struct Tool {
    pub name: Text,
    pub description: Text,
    pub state: ToolState,
    /// As it is now.
    pub hash: Text,
    /// As it was approved, where that differs.
    pub approved: Option<Text>,
}

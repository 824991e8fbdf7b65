//! What pages show, as plain data. [`Text`](crate::Text) is what others wrote; numbers and words are ours.

mod calls;
mod hooks;
mod runs;
mod servers;
mod sessions;
mod why;

pub use calls::{Call, CallRow, Evidence, Field, Kept, Outcome, Seen};
pub use hooks::{Hook, HookEvent};
pub use model::identity::Trust;
pub use runs::{Artifact, Diff, Ended, Log, Run, RunRow, RunStatus, Usage};
pub use servers::{Breaker, Child, Health, Server, ServerRow, Tool, ToolState};
pub use sessions::{HostSeen, Minute, Overview, Session, SessionRow, Thread};
pub use why::{Entry, Facts, Hears, Step, Verdict, Why, decide};

use crate::route::Key;

/// A part of a list, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// Where the next part begins. None: this was the last.
    pub older: Option<Key>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), older: None }
    }
}

//! The server that the official MCP conformance suite is run against, directly and through us.
//!
//! Names, arguments and texts of the fixtures are the suite's; what its checks say about a server
//! behind the gateway must equal what they say about the same server alone.
//!
//! ```text
//! http / stdio → server.rs ─┬ content.rs        fixed answers: tools, resources, prompts
//!  (one per session, or     ├ conversation.rs   tools that talk while they run: log, progress, ask
//!   per request in the      ├ rounds.rs         tools and a prompt that answer `input_required`
//!   modern era)             ├ tasks.rs          tools of the tasks extension
//!                           └ changes.rs        list changes and who listens to them
//! ```
//!
//! **Invariant:** all that outlives a request is in [`Fixtures`], and lives as long as the process.
//! Tasks and sealed request states of one process mean nothing to another, on purpose: a gateway
//! that sends a handle to the wrong child is found out.
//!
//! Read `server.rs` first, then `catalogue.rs`.

mod catalogue;
mod changes;
mod content;
mod conversation;
pub mod http;
mod rounds;
mod server;
pub mod stdio;
mod streams;
mod tasks;

use std::io;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::RequestStateCodec;
use rmcp::task_manager::TaskManager;
use serde::de::DeserializeOwned;
use serde_json::Value;

use changes::Changes;
use streams::Streams;

/// What all sessions of this process share. Cheap to clone.
#[derive(Clone)]
pub struct Fixtures {
    tasks: TaskManager,
    /// Seals the states of unfinished rounds, with a key of this process.
    states: Arc<RequestStateCodec>,
    changes: Changes,
    /// The sessions of the HTTP endpoint; unused on stdio, where there are no streams to close.
    streams: Arc<Streams>,
}

impl std::fmt::Debug for Fixtures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fixtures").finish_non_exhaustive()
    }
}

impl Fixtures {
    /// Fails only where the system gives no random bytes.
    pub fn new() -> io::Result<Self> {
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let states = RequestStateCodec::try_new(key).map_err(io::Error::other)?;
        Ok(Self {
            tasks: TaskManager::new(),
            states: Arc::new(states),
            changes: Changes::new(),
            streams: Arc::new(Streams::default()),
        })
    }
}

/// Reads one of our own JSON literals as a typed message. The fixtures are written as JSON because
/// the suite states them so; one that does not fit its type is a mistake of ours, not the caller's.
fn literal<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(format!("fixture does not parse: {error}"), None))
}

//! What a client's tasks share, and its words.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

impl Era {
    pub const BOTH: [Self; 2] = [Self::Legacy, Self::Modern];

    pub fn version(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The JSON-RPC error object.
    Rpc(Value),
    /// An HTTP status without a JSON-RPC answer, with its body.
    Status(u16, String),
    /// The pipe or the stream ended before the answer.
    Closed,
    /// Nothing came in time.
    Deadline,
}

impl Failure {
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Rpc(error) => error["code"].as_i64(),
            Self::Status(..) | Self::Closed | Self::Deadline => None,
        }
    }

    /// Everything it says, for looking for words in it.
    pub fn text(&self) -> String {
        match self {
            Self::Rpc(error) => error.to_string(),
            Self::Status(status, body) => format!("{status} {body}"),
            Self::Closed | Self::Deadline => format!("{self:?}"),
        }
    }
}

/// Answers server requests: gets the request, gives `{"result": …}` or `{"error": …}`; None: says nothing.
pub type Responder = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// Answers `ping`; every other request is a method that is not there.
pub fn default_responder() -> Responder {
    Arc::new(|request| {
        Some(if request["method"] == "ping" {
            json!({ "result": {} })
        } else {
            json!({ "error": { "code": -32601, "message": "method not found" } })
        })
    })
}

pub(super) struct Shared {
    pub(super) era: Era,
    pub(super) next_id: AtomicU64,
    pub(super) pending: Mutex<HashMap<String, oneshot::Sender<Result<Value, Failure>>>>,
    pub(super) incoming: mpsc::Sender<Value>,
    pub(super) dropped: AtomicU64,
    /// Answers nobody waited for.
    pub(super) strays: Mutex<Vec<Value>>,
    /// Server requests as they came.
    pub(super) requests: Mutex<Vec<Value>>,
    pub(super) responder: Mutex<Responder>,
}

impl Shared {
    /// Takes one message from the other side; what it gives back is the answer to a server request.
    pub(super) fn take(&self, message: Value) -> Option<Value> {
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        match (id, message.get("method")) {
            (Some(id), Some(_)) => {
                lock(&self.requests).push(message.clone());
                let responder = lock(&self.responder).clone();
                let mut answer = responder(&message)?;
                answer["jsonrpc"] = json!("2.0");
                answer["id"] = id;
                Some(answer)
            }
            (None, Some(_)) => {
                if self.incoming.try_send(message).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
            (id, None) => {
                let key = id.unwrap_or_default().to_string();
                match lock(&self.pending).remove(&key) {
                    Some(waiting) => drop(waiting.send(outcome(&message))),
                    None => lock(&self.strays).push(message),
                }
                None
            }
        }
    }

    pub(super) fn fail(&self, id: &Value, failure: Failure) {
        if let Some(waiting) = lock(&self.pending).remove(&id.to_string()) {
            drop(waiting.send(Err(failure)));
        }
    }

    pub(super) fn fail_all(&self) {
        for (_, waiting) in lock(&self.pending).drain() {
            drop(waiting.send(Err(Failure::Closed)));
        }
    }
}

fn outcome(message: &Value) -> Result<Value, Failure> {
    match message.get("error") {
        Some(error) => Err(Failure::Rpc(error.clone())),
        None => Ok(message["result"].clone()),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

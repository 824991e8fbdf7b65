//! What one client connection (stdio, legacy HTTP session) or all modern HTTP callers share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{Options, Outlet};
use crate::jsonrpc;

/// Headers as they arrived, in order.
pub(super) type Headers = [(String, String)];

#[derive(Debug, Default)]
pub struct Session {
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    next_ask: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Tools that `grow` added.
    pub(super) grown: usize,
    pub(super) level: Option<String>,
    /// The params of `initialize`, as they came.
    pub(super) initialize: Option<String>,
    pub(super) subscriptions: HashSet<String>,
    pub(super) listens: Vec<Listen>,
    /// The legacy GET stream, if the client opened one.
    pub(super) stream: Option<Arc<dyn Outlet>>,
    /// Calls that wait. Modern HTTP callers share this and may use the same ids.
    running: Vec<Arc<Running>>,
    /// Server requests that wait for the client's answer.
    asks: HashMap<u64, SyncSender<String>>,
    /// Ids whose cancel arrived in time, and ids whose cancel came too late.
    pub(super) cancelled: Vec<String>,
    pub(super) late_cancels: Vec<String>,
}

/// A modern `subscriptions/listen`.
#[derive(Debug)]
pub(super) struct Listen {
    pub(super) running: Arc<Running>,
    pub(super) outlet: Arc<dyn Outlet>,
    pub(super) tools: bool,
    pub(super) uris: Vec<String>,
}

/// One call that waits and can be cancelled.
#[derive(Debug)]
pub struct Running {
    /// The raw bytes of its id.
    pub(super) id: String,
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Running {
    /// Waits; true when the call was cancelled meanwhile.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut cancelled = lock(&self.cancelled);
        while !*cancelled {
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            cancelled = match self.changed.wait_timeout(cancelled, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    fn stop(&self) {
        *lock(&self.cancelled) = true;
        self.changed.notify_all();
    }
}

impl Session {
    pub fn new(options: Options) -> Arc<Self> {
        Arc::new(Self { options, ..Self::default() })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn start(&self, id: &str) -> Arc<Running> {
        let running =
            Arc::new(Running { id: id.to_owned(), cancelled: Mutex::default(), changed: Condvar::new() });
        self.state().running.push(running.clone());
        running
    }

    pub(super) fn finish(&self, running: &Arc<Running>) {
        self.state().running.retain(|other| !Arc::ptr_eq(other, running));
    }

    /// `notifications/cancelled` for this id.
    pub(super) fn cancel(&self, id: &str) {
        let running = self.state().running.iter().find(|running| running.id == id).cloned();
        match running {
            Some(running) => self.gone(&running),
            None => self.state().late_cancels.push(id.to_owned()),
        }
    }

    /// The client does not want the answer any more. Does nothing to a call that is over.
    pub fn gone(&self, running: &Arc<Running>) {
        let mut state = self.state();
        let before = state.running.len();
        state.running.retain(|other| !Arc::ptr_eq(other, running));
        state.listens.retain(|listen| !Arc::ptr_eq(&listen.running, running));
        if state.running.len() < before {
            state.cancelled.push(running.id.clone());
        }
        drop(state);
        running.stop();
    }

    /// Opens a server request; its answer comes out of the receiver.
    pub(super) fn ask(&self) -> (u64, Receiver<String>) {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = sync_channel(1);
        drop(self.state().asks.insert(number, sender));
        (number, receiver)
    }

    pub(super) fn forget_ask(&self, number: u64) {
        drop(self.state().asks.remove(&number));
    }

    /// A response of the client. An id that we never gave out goes nowhere.
    pub(super) fn answered(&self, id: &str, answer: &str) {
        let number = id.trim_matches('"').strip_prefix("ask-").and_then(|number| number.parse().ok());
        let sender = number.and_then(|number: u64| self.state().asks.remove(&number));
        if let Some(sender) = sender {
            drop(sender.send(answer.to_owned()));
        }
    }

    /// The legacy GET stream where the client has one.
    pub fn set_stream(&self, outlet: Arc<dyn Outlet>) {
        self.state().stream = Some(outlet);
    }

    /// Tells of a change: on every listen stream that asked for it, and in the legacy way.
    pub(super) fn tell(&self, change: &Change, legacy: Legacy<'_>) {
        let (method, uri) = match change {
            Change::Tools => ("notifications/tools/list_changed", None),
            Change::Resource(uri) => ("notifications/resources/updated", Some(uri)),
        };
        let mut state = self.state();
        state.listens.retain(|listen| {
            let wanted = uri.map_or(listen.tools, |uri| listen.uris.contains(uri));
            let uri = uri.map(|uri| format!(r#""uri":{},"#, jsonrpc::quote(uri))).unwrap_or_default();
            let meta =
                format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#, listen.running.id);
            !wanted || listen.outlet.send(jsonrpc::notification(method, &format!("{{{uri}{meta}}}")))
        });
        let Legacy::Yes(here) = legacy else { return };
        if uri.is_some_and(|uri| !state.subscriptions.contains(uri)) {
            return;
        }
        let params = uri.map_or("{}".to_owned(), |uri| format!(r#"{{"uri":{}}}"#, jsonrpc::quote(uri)));
        let message = jsonrpc::notification(method, &params);
        let sent = state.stream.as_ref().is_some_and(|stream| stream.send(message.clone()));
        drop(state);
        if !sent {
            here.send(message);
        }
    }
}

pub(super) enum Change {
    Tools,
    Resource(String),
}

/// Whether the call that made a change is of the legacy era, and its own outlet if so.
#[derive(Clone, Copy)]
pub(super) enum Legacy<'a> {
    Yes(&'a Arc<dyn Outlet>),
    No,
}

/// A panicking tool thread must not take the server down with a poisoned lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! What runs beside COMMAND, owned by one set: it ends when that is dropped, with the runtime.
//!
//! `tokio-util` has the like of it, and brings more to compile than all of this program.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended give their memory back now.
        while set.try_join_next().is_some() {}
        set.spawn(task);
    }
}

//! Connections to engines, one an address. A box stays with the engine that made it, whichever is at hand now.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Trouble};

#[derive(Debug, Default)]
pub(crate) struct Engines(Mutex<HashMap<PathBuf, Arc<Slot>>>);

type Slot = tokio::sync::Mutex<Line>;

#[derive(Debug, Default)]
struct Line {
    /// And when it was asked.
    engine: Option<(Instant, Arc<Engine>)>,
    /// When it last said nothing at all, and after how long that was given up.
    silent: Option<(Instant, Duration)>,
}

impl Engines {
    /// Asked once what it is, and again after it was away.
    pub(crate) async fn at(&self, socket: &Path) -> Result<Arc<Engine>, Trouble> {
        self.get(socket, None).await
    }

    /// Asked anew: it may have been told something since.
    pub(crate) async fn anew(&self, socket: &Path) -> Result<Arc<Engine>, Trouble> {
        self.get(socket, Some(Instant::now())).await
    }

    /// None that was asked before `since`.
    async fn get(&self, socket: &Path, since: Option<Instant>) -> Result<Arc<Engine>, Trouble> {
        let asked = Instant::now();
        let slot = self.slot(socket);
        let mut line = slot.lock().await;
        if let Some((at, engine)) = &line.engine
            && since.is_none_or(|since| *at >= since)
        {
            return Ok(Arc::clone(engine));
        }
        line.engine = None;
        // Those who waited for the same answer have it: one that hangs is not asked by each of them in turn.
        if let Some((at, within)) = line.silent
            && at >= asked
        {
            return Err(Trouble::Silent(socket.to_owned(), within));
        }
        let at = Instant::now();
        let found = Engine::connect(socket.to_owned()).await;
        if let Err(Trouble::Silent(_, within)) = &found {
            line.silent = Some((Instant::now(), *within));
        }
        let found = Arc::new(found?);
        line.engine = Some((at, Arc::clone(&found)));
        Ok(found)
    }

    /// After it did not answer.
    pub(crate) async fn leave(&self, engine: &Engine) {
        let slot = self.slot(&engine.facts.socket);
        let mut line = slot.lock().await;
        if line.engine.as_ref().is_some_and(|(_, known)| std::ptr::eq(&raw const **known, engine)) {
            line.engine = None;
        }
    }

    fn slot(&self, socket: &Path) -> Arc<Slot> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(socket.to_owned()).or_default())
    }
}

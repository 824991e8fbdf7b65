//! Workspaces that were named, resolved. A name is looked up again after a moment: directories come and go.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use identity::workspace::{Roots, resolve};

/// How long a look at the file system holds.
const FRESH: Duration = Duration::from_secs(2);
/// Names remembered.
const MOST: usize = 1024;

#[derive(Debug)]
pub struct Workspaces {
    roots: Roots,
    seen: Mutex<HashMap<Box<str>, (Instant, Outcome)>>,
}

/// The directory, or why it is not used.
type Outcome = (Option<Box<str>>, Option<String>);

impl Workspaces {
    pub fn new(roots: Roots) -> Self {
        Self { roots, seen: Mutex::default() }
    }

    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    pub fn resolve(&self, said: &str) -> Outcome {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, outcome)) = seen.get(said)
            && now.saturating_duration_since(*at) < FRESH
        {
            return outcome.clone();
        }
        let outcome = match resolve(None, Some(said), &self.roots) {
            Ok(resolved) => match resolved.path.to_str() {
                Some(path) => (Some(path.into()), None),
                None => (None, Some("the workspace's path is not UTF-8".to_owned())),
            },
            Err(error) => {
                tracing::info!(%error, "the workspace that was announced is not used");
                (None, Some(error.to_string()))
            }
        };
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(said.into(), (now, outcome.clone()));
        outcome
    }
}

//! Boxes of both kinds behind one port: those of this machine, and those of a container engine where there is one.
//!
//! ```text
//! start ── image? ──no──▶ local
//!             └─yes─▶ engine                     first it is seen to that the other has no box of this name
//! state, stop, kill, usage ─▶ engine, if it keeps the name and local does not; else local
//! ```
//!
//! **Invariants**
//!
//! - An engine that keeps no box of a name is not asked about it: who has only local boxes does not notice that an
//!   engine is down.
//! - Nothing starts in one while the other has a box of the same name that runs.

use std::time::Duration;

use model::ports::sandbox::{
    Ability, BoxName, BoxSpec, BoxState, Gravity, How, Missing, Sandbox, SandboxError, Started, Usage,
};

/// What is known of boxes without asking the engine.
pub trait Keeps {
    /// Whether anything was begun under this name and not forgotten.
    fn keeps(&self, name: &BoxName) -> bool;

    fn keeps_any(&self) -> bool;
}

/// A box has an image, or the system of this machine: that decides where it starts.
#[derive(Debug)]
pub struct Runtimes<L, E> {
    local: L,
    engine: Option<E>,
}

impl<L, E> Runtimes<L, E> {
    /// Without an engine, a box with an image is refused.
    pub fn new(local: L, engine: Option<E>) -> Self {
        Self { local, engine }
    }

    pub fn local(&self) -> &L {
        &self.local
    }

    pub fn engine(&self) -> Option<&E> {
        self.engine.as_ref()
    }
}

impl<L: Sandbox, E: Sandbox + Keeps> Runtimes<L, E> {
    /// The engine, if the box of this name is there and nowhere else.
    async fn holder(&self, name: &BoxName) -> Result<Option<&E>, SandboxError> {
        let Some(engine) = self.engine.as_ref().filter(|engine| engine.keeps(name)) else { return Ok(None) };
        Ok(match self.local.state(name).await? {
            BoxState::Absent => Some(engine),
            BoxState::Starting | BoxState::Running(_) | BoxState::Ended(_) | BoxState::Unknown => None,
        })
    }
}

/// A session may have had its last box elsewhere. One that runs is the box; one that has ended is forgotten, or it
/// would hide the new one.
async fn vacated(other: &impl Sandbox, name: &BoxName) -> Result<Option<Started>, SandboxError> {
    match other.state(name).await? {
        BoxState::Absent => Ok(None),
        BoxState::Running(info) => Ok(Some(Started { info, how: How::Found })),
        BoxState::Starting | BoxState::Unknown => Err(SandboxError::Runs),
        BoxState::Ended(_) => other.forget(name).await.map(|()| None),
    }
}

impl<L: Sandbox, E: Sandbox + Keeps> Sandbox for Runtimes<L, E> {
    /// Whether there is any place for boxes. What one kind lacks is asked of [`Runtimes::local`] and
    /// [`Runtimes::engine`].
    async fn probe(&self) -> Result<Ability, SandboxError> {
        let local = self.local.probe().await?;
        let Some(engine) = self.engine.as_ref().filter(|_| !local.can_start()) else { return Ok(local) };
        let mut other = engine.probe().await?;
        if other.can_start() {
            return Ok(other);
        }
        other.missing.splice(0..0, local.missing);
        Ok(other)
    }

    async fn start(&self, spec: BoxSpec) -> Result<Started, SandboxError> {
        match (&spec.image, &self.engine) {
            (None, engine) => {
                if let Some(engine) = engine.as_ref().filter(|engine| engine.keeps(&spec.name))
                    && let Some(found) = vacated(engine, &spec.name).await?
                {
                    return Ok(found);
                }
                self.local.start(spec).await
            }
            (Some(_), Some(engine)) => match vacated(&self.local, &spec.name).await? {
                Some(found) => Ok(found),
                None => engine.start(spec).await,
            },
            (Some(image), None) => Err(SandboxError::Unable(vec![Missing {
                what: format!("a box of the image {image} needs a container engine, and none is set up"),
                fix: "set MCP_RUNTIME_MODE=docker, or `runtime = \"docker\"` in [sessions]".to_owned(),
                gravity: Gravity::Refuses,
            }])),
        }
    }

    /// Local ones in any case: an engine that is away must not hide them.
    async fn find_all(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        let mut found = self.local.find_all().await?;
        let Some(engine) = self.engine.as_ref().filter(|engine| engine.keeps_any()) else { return Ok(found) };
        match engine.find_all().await {
            Ok(others) => {
                for (name, state) in others {
                    if !found.iter().any(|(known, _)| *known == name) {
                        found.push((name, state));
                    }
                }
            }
            Err(error) => tracing::error!(%error, "boxes of the container engine cannot be found"),
        }
        Ok(found)
    }

    async fn state(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        match self.holder(name).await? {
            Some(engine) => engine.state(name).await,
            None => self.local.state(name).await,
        }
    }

    async fn stop(&self, name: &BoxName, grace: Duration) -> Result<BoxState, SandboxError> {
        match self.holder(name).await? {
            Some(engine) => engine.stop(name, grace).await,
            None => self.local.stop(name, grace).await,
        }
    }

    async fn kill(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        match self.holder(name).await? {
            Some(engine) => engine.kill(name).await,
            None => self.local.kill(name).await,
        }
    }

    async fn usage(&self, name: &BoxName) -> Result<Option<Usage>, SandboxError> {
        match self.holder(name).await? {
            Some(engine) => engine.usage(name).await,
            None => self.local.usage(name).await,
        }
    }

    /// In both: afterwards nothing is known of it anywhere.
    async fn forget(&self, name: &BoxName) -> Result<(), SandboxError> {
        self.local.forget(name).await?;
        match self.engine.as_ref().filter(|engine| engine.keeps(name)) {
            Some(engine) => engine.forget(name).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

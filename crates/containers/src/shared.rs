//! What the port and its followers share: the engine, and what can be done to one container of ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::{ContainerConfig, ContainerInspectResponse, ContainerState, ContainerStateStatusEnum};
use bollard::query_parameters::{KillContainerOptions, ListContainersOptions, RemoveContainerOptions};
use model::ports::sandbox::{BoxInfo, BoxName, Cause, Ending, Level};
use tokio::time::sleep;

use crate::body::container_name;
use crate::engine::{CALL, Engine, Fault, Trouble, WORK};
use crate::engines::Engines;
use crate::fetch::Fetches;
use crate::follow::{Sights, tail};
use crate::record::{Made, Record};
use crate::sandbox::ContainerOptions;
use crate::states::{Life, Mine, ending, mine};

/// How long an engine may take to clean up after a container.
const BETWEEN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// What followers need as well.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: ContainerOptions,
    pub(crate) engines: Engines,
    pub(crate) fetches: Fetches,
    pub(crate) sights: Sights,
}

/// What has the name of a box.
#[derive(Debug)]
pub(crate) enum Look {
    Nothing,
    /// Somebody else's.
    Stranger,
    Mine(Box<Mine>),
}

impl Shared {
    /// The engine that makes boxes now.
    pub(crate) async fn at_hand(&self) -> Result<Arc<Engine>, Trouble> {
        self.engines.at(&self.options.places.socket()?).await
    }

    /// The engine that has this box, or would get it. A box is never sought where it was not made: there it would be
    /// missing, and be taken for gone.
    pub(crate) async fn keeper(&self, name: &BoxName) -> Result<Arc<Engine>, Trouble> {
        let Some(made) = self.record(name).made() else { return self.at_hand().await };
        match self.engines.at(&made.socket).await {
            Ok(engine) if engine.facts.id == made.id => Ok(engine),
            Ok(engine) => {
                Err(self.elsewhere(name, made, format!("another engine answers there now, {}", engine.facts)))
            }
            Err(trouble) => Err(self.away(name, trouble)),
        }
    }

    /// An engine that would be asked anyway may be back any moment; another one is nobody's to wait for.
    fn away(&self, name: &BoxName, trouble: Trouble) -> Trouble {
        match self.record(name).made() {
            Some(made) if !trouble.lasts() && !self.options.places.name(&made.socket) => {
                let why =
                    format!("it is not the one at hand and cannot be asked ({})", trouble.missing().what);
                self.elsewhere(name, made, why)
            }
            Some(_) | None => trouble,
        }
    }

    fn elsewhere(&self, name: &BoxName, made: Made, why: String) -> Trouble {
        let Made { socket, id, called } = made;
        let engine = format!("{called} at unix://{} (id {id})", socket.display());
        Trouble::Elsewhere { engine, why, record: self.record(name).path().to_owned() }
    }

    pub(crate) async fn fault<T>(&self, engine: &Engine, result: Result<T, Fault>) -> Result<T, Fault> {
        if matches!(result, Err(Fault::Trouble(_))) {
            self.engines.leave(engine).await;
        }
        result
    }

    pub(crate) fn record(&self, name: &BoxName) -> Record {
        Record::new(&self.options.root, name)
    }

    pub(crate) async fn look(&self, name: &BoxName) -> Result<Look, Fault> {
        let engine = self.keeper(name).await?;
        let called = container_name(&self.options.owner, name);
        let until = Instant::now() + BETWEEN;
        loop {
            let found = engine.call(CALL, engine.docker.inspect_container(&called, None)).await;
            match found {
                Ok(found) => {
                    let mine = mine(&self.options.owner, name, &found);
                    return Ok(mine.map_or(Look::Stranger, |mine| Look::Mine(Box::new(mine))));
                }
                Err(Fault::NotFound(_)) => return Ok(Look::Nothing),
                // Podman has a state between two others that Docker does not know, until it has cleaned up.
                Err(Fault::Trouble(trouble)) if trouble.is_between() && Instant::now() < until => {
                    sleep(LOOK).await;
                }
                Err(Fault::Trouble(trouble)) if trouble.is_between() => {
                    return self.look_in_list(&engine, name).await;
                }
                Err(Fault::Trouble(trouble)) => {
                    self.engines.leave(&engine).await;
                    return Err(self.away(name, trouble).into());
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Where the engine does not get to clean up after a container. It has ended; how is not known.
    async fn look_in_list(&self, engine: &Engine, name: &BoxName) -> Result<Look, Fault> {
        let called = container_name(&self.options.owner, name);
        let filters = Some([("name".to_owned(), vec![called.clone()])].into());
        let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let listed = engine.call(CALL, engine.docker.list_containers(Some(options))).await?;
        let named = |names: &[String]| names.iter().any(|name| name.trim_start_matches('/') == called);
        let Some(found) = listed.into_iter().find(|container| container.names.as_deref().is_some_and(named))
        else {
            return Ok(Look::Nothing);
        };
        let config = ContainerConfig { labels: found.labels, ..ContainerConfig::default() };
        let status = Some(ContainerStateStatusEnum::DEAD);
        let state = ContainerState { status, exit_code: Some(i64::MAX), ..ContainerState::default() };
        let seen = ContainerInspectResponse {
            id: found.id,
            name: Some(called),
            config: Some(config),
            state: Some(state),
            ..ContainerInspectResponse::default()
        };
        Ok(mine(&self.options.owner, name, &seen).map_or(Look::Stranger, |mine| Look::Mine(Box::new(mine))))
    }

    /// This very container, if it is still there and ours.
    pub(crate) async fn look_at(&self, name: &BoxName, id: &str) -> Result<Option<Mine>, Fault> {
        match self.look(name).await? {
            Look::Mine(mine) if mine.id == id => Ok(Some(*mine)),
            Look::Mine(_) | Look::Stranger | Look::Nothing => Ok(None),
        }
    }

    /// Whether it was told. One that has ended meanwhile need not be.
    pub(crate) async fn signal(&self, name: &BoxName, mine: &Mine, signal: &str) -> Result<(), Fault> {
        let engine = self.keeper(name).await?;
        let options = KillContainerOptions { signal: signal.to_owned() };
        let told = engine.call(WORK, engine.docker.kill_container(&mine.id, Some(options))).await;
        match self.fault(&engine, told).await {
            Ok(()) | Err(Fault::NotFound(_) | Fault::Conflict(_)) => Ok(()),
            // Older engines say it with another number.
            Err(Fault::Refused(words))
                if words.contains("is not running") || words.contains("not running") =>
            {
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// For a limit that we hold. False: nothing came of it, and it is to be tried again.
    pub(crate) async fn end_for(&self, name: &BoxName, mine: &Mine, cause: Cause) -> bool {
        let noted = self.record(name).note(&mine.id, cause);
        if let Err(error) = noted {
            tracing::warn!(%name, %error, "why a box is ended could not be noted");
        }
        match self.signal(name, mine, "SIGKILL").await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%name, %error, "a box with too much on its disk could not be ended");
                false
            }
        }
    }

    pub(crate) async fn remove(&self, name: &BoxName, mine: &Mine) -> Result<(), Fault> {
        let engine = self.keeper(name).await?;
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        let gone = engine.call(WORK, engine.docker.remove_container(&mine.id, Some(options))).await;
        match self.fault(&engine, gone).await {
            // Somebody removes it already.
            Ok(()) | Err(Fault::NotFound(_) | Fault::Conflict(_)) => {
                self.sights.forget(&mine.id);
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    pub(crate) fn info(&self, name: &BoxName, mine: &Mine) -> BoxInfo {
        BoxInfo {
            name: name.clone(),
            level: Level::Container,
            holds: mine.kept.holds,
            inside: mine.kept.inside(),
            log: self.record(name).log(),
            labels: mine.kept.labels.clone(),
            hits: self.sights.of(mine).hits,
        }
    }

    pub(crate) async fn ending(&self, name: &BoxName, mine: &Mine) -> Result<Ending, Fault> {
        let engine = self.keeper(name).await?;
        let noted = self.record(name).noted(&mine.id);
        let message = if mine.life == Life::Made { None } else { tail(&engine, &mine.id).await };
        Ok(ending(mine, noted, self.sights.of(mine).hits, message))
    }
}

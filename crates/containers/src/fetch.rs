//! The image of a box: found, or fetched. Whoever names an image decides what is fetched; how much at once, for how
//! long and with how many words is decided here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxName, Gravity, Missing, SandboxError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::body::MOST_VOLUMES;
use crate::engine::{Engine, Fault};
use crate::image::{find, is_local, pull};
use crate::sandbox::Pull;
use crate::shared::Shared;

/// Of different images. A further one waits its turn.
const AT_ONCE: usize = 2;
/// For one image, from its first byte to its last.
const WHOLE: Duration = Duration::from_mins(30);
/// Between two lines of progress. Engines say several a second and layer.
const BETWEEN: Duration = Duration::from_secs(2);
/// Of a line of somebody else's.
const LONGEST: usize = 200;

#[derive(Debug)]
pub(crate) struct Fetches {
    turns: Semaphore,
    /// By engine and image: whoever wants one that is on its way waits for it.
    under_way: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self { turns: Semaphore::new(AT_ONCE), under_way: Mutex::default() }
    }
}

impl Fetches {
    fn of(&self, engine: &Engine, image: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else has those.
        all.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(all.entry(format!("{} {image}", engine.facts.id)).or_default())
    }
}

/// Which volumes the image wants, once it is there.
pub(crate) async fn volumes(
    shared: &Shared,
    engine: &Engine,
    name: &BoxName,
    image: &str,
) -> Result<Vec<String>, SandboxError> {
    let look = async || {
        let found = shared.fault(engine, find(engine, image).await).await;
        found.map_err(|fault| fault.doing("look for the image"))
    };
    let mut found = look().await?;
    if found.is_none() {
        if shared.options.pull == Pull::Never || is_local(image) {
            return Err(SandboxError::Unable(vec![absent(image)]));
        }
        let tell = |line: &str| (shared.options.progress)(name, line);
        let own = shared.fetches.of(engine, image);
        let _own = if let Ok(own) = own.try_lock() {
            own
        } else {
            tell("another session's box waits for it already");
            own.lock().await
        };
        // Whoever had it before us has perhaps fetched it.
        found = look().await?;
        if found.is_none() {
            fetched(shared, engine, image, &tell).await?;
            found = look().await?;
        }
    }
    let found = found.ok_or_else(|| SandboxError::Unable(vec![absent(image)]))?;
    let volumes = found.config.and_then(|config| config.volumes).unwrap_or_default();
    if volumes.len() > MOST_VOLUMES {
        return Err(SandboxError::BadSpec(format!("the image {image} has {} volumes", volumes.len())));
    }
    Ok(volumes)
}

/// Whoever lets go of this ends the fetching: an engine stops with the request.
async fn fetched(
    shared: &Shared,
    engine: &Engine,
    image: &str,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), SandboxError> {
    let refused = |why: String| {
        let what = format!("the image {image} is not there and cannot be fetched ({why})");
        SandboxError::Unable(vec![Missing { what, ..absent(image) }])
    };
    if shared.fetches.turns.available_permits() == 0 {
        tell("other images are fetched first");
    }
    // Never closed.
    let _turn = shared.fetches.turns.acquire().await;
    let said = Mutex::new(None::<Instant>);
    let seldom = |line: &str| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= BETWEEN) {
            *said = Some(Instant::now());
            tell(&line.chars().filter(|char| !char.is_control()).take(LONGEST).collect::<String>());
        }
    };
    match timeout(WHOLE, pull(engine, image, &seldom)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Fault::Trouble(trouble))) => {
            let fault: Result<(), Fault> = shared.fault(engine, Err(trouble.into())).await;
            fault.map_err(|fault| fault.doing("fetch the image"))
        }
        Ok(Err(fault)) => Err(refused(fault.to_string())),
        Err(_) => Err(refused(format!("it took longer than {} min", WHOLE.as_secs() / 60))),
    }
}

pub(crate) fn absent(image: &str) -> Missing {
    let fix = if is_local(image) {
        "make it with `callsign image build`".to_owned()
    } else {
        format!("fetch it (docker pull {image}), name another one, or make one with `callsign image build`")
    };
    Missing { what: format!("the image {image} is not there"), fix, gravity: Gravity::Refuses }
}

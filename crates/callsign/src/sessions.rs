//! Sessions, put together: the store, boxes, the agent, the desk, and the tools in front of it.

mod extras;
pub(crate) mod outfit;
pub mod quay;
mod rooms;
mod routes;
mod settler;
mod threads;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use api::tools::{Settled, Settler as _};
use containers::{ContainerOptions, Containers, Pull, Runtimes};
use model::Principal;
use model::ports::sandbox::{Gravity, Level, Sandbox as _, User};
use model::session::SessionId;
use model::settings::{BoxIsolation, Runtime, SessionSettings};
use sandbox::{Groups, KeeperCommand, LocalOptions, LocalSandbox};
use sessions::{Check, Desk, Engine, Git, Layout, Live, Options, Rooms as _, Terms, Wanted, World};
use sha2::Digest as _;
use store::{Place, SqliteStore};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::commands::image::places;
use crate::config::Environment;
use crate::daemon::sessions::Surroundings;
use crate::daemon::socket::Service;
use crate::keeping;
use crate::state::StateDir;
use extras::Outfitter;
use outfit::Outfit;
use quay::Quays;
use rooms::{RealRooms, RealWorld};
use settler::FromVariables;

/// How long it is believed that boxes can be made: finding out starts a process.
const BELIEVED: Duration = Duration::from_secs(30);

/// Opens the store, takes over what a daemon before left, and starts to see to sessions until `stop`.
pub async fn start(around: Surroundings) -> anyhow::Result<Service> {
    let Surroundings { state, settings, roots, redactor, gateway, tasks, stop } = around;
    let store = SqliteStore::open(&Place::of(state.path())).await?;
    let store = Arc::new(store);
    let now = settings.borrow().clone();
    for doubt in doubts(&now) {
        tracing::warn!("{doubt}");
    }
    let path = Environment::of_process().get("PATH").map(OsString::from).unwrap_or_default();
    let local = local_sandbox(&state, &now, &path);
    let owned = local.own().await?.context("another process owns the boxes of this state directory")?;
    let settler =
        FromVariables { base: settings.clone(), path: path.clone(), roots, state: state.path().to_owned() };
    let (live, layout) = (Arc::new(Live::default()), Layout::new(state.file("sessions")));
    let outfit = Outfit::put_out(&state.file("outfit")).context("what boxes need could not be written")?;
    // Boxes keep their ways out as long as somebody sees to their sessions.
    let quays_end = CancellationToken::new();
    let sandbox = Arc::new(Runtimes::new(local, Some(containers(&state, &live))));
    let extras = Arc::new(Outfitter {
        sandbox: Arc::clone(&sandbox),
        bridge: outfit.bridge.clone(),
        tasks: tasks.clone(),
        redactor: Arc::clone(&redactor),
        owner: owner(),
        turns: Mutex::default(),
    });
    let rooms = Arc::new(RealRooms {
        sandbox,
        base: settings,
        bare: now.isolation == BoxIsolation::None,
        redactor,
        path,
        quays: Quays::new(Arc::clone(&live), gateway, tasks.clone(), quays_end.clone()),
        outfit,
        extras,
    });
    let world: Arc<dyn World> = Arc::new(RealWorld);
    let options = Options { max_hot: now.max_hot, idle: now.idle, warm: now.warm };
    let mut engine = Engine::new(
        Arc::clone(&store),
        Arc::clone(&rooms),
        Arc::clone(&live),
        (layout.clone(), Arc::clone(&world)),
        options,
    );
    recover_exports(layout.clone()).await;
    engine.recover().await.context("what was left of the sessions could not be taken over")?;
    let (kept, ending) = (Arc::clone(&store), stop.clone());
    tasks.spawn(async move {
        // A daemon that runs no sessions any more makes room for one that does.
        let _whole = stop.clone().drop_guard();
        engine.run(stop).await;
        quays_end.cancel();
        kept.close().await;
        drop(owned);
    });
    let terms = Terms { owner: owner(), git: Git::default() };
    let desk = Desk::new(store, live, (layout, terms), world, check(rooms));
    expect_first(&desk, &settler);
    let tools = Arc::new(api::tools::service(desk.clone(), Arc::new(settler)));
    // Streams that stand open would keep the daemon from its end.
    let open = Arc::clone(&tools);
    tasks.spawn(async move {
        ending.cancelled().await;
        open.stop();
    });
    Ok(routes::service(tools, desk))
}

/// Before anybody has asked for a session, those are expected that say nothing of their own.
fn expect_first(desk: &Desk<SqliteStore>, settler: &FromVariables) {
    match settler.settle(BTreeMap::new(), None) {
        Ok(Settled { runtime, image, settings, key, warnings: _ }) => {
            let (name, reuse_key, made_by) = (None, None, None);
            desk.expect(
                &Principal::local(),
                &Wanted { name, reuse_key, image, runtime, settings, key, made_by },
            );
        }
        // Whoever asks for one is told.
        Err(why) => tracing::debug!("no box is made ready: {why}"),
    }
}

/// Whatever a daemon before was applying when it was killed.
async fn recover_exports(layout: Layout) {
    let recovered = tokio::task::spawn_blocking(move || layout.recover_exports()).await;
    match recovered.map_err(anyhow::Error::new).and_then(|done| Ok(done?)) {
        Ok(recovered) => {
            for one in recovered {
                tracing::warn!(directory = one.to, outcome = ?one.outcome, "an export was cut off when the daemon ended");
            }
        }
        Err(error) => tracing::error!("what was being exported could not be put right: {error:#}"),
    }
}

/// Where the daemon is root, boxes are somebody else's.
fn owner() -> Option<(u32, u32)> {
    let User { uid, gid } = User::NOBODY;
    nix::unistd::geteuid().is_root().then_some((uid, gid))
}

/// What is set and has no effect yet: nobody should rely on it.
fn doubts(settings: &SessionSettings) -> Vec<String> {
    let mut doubts = Vec::new();
    if settings.isolation == BoxIsolation::None {
        doubts.push(
            "`isolation` is \"none\": agents have this machine's network, whatever `egress` says".to_owned(),
        );
    }
    doubts
}

/// The boxes of a state directory, as the settings want them.
pub fn local_sandbox(state: &StateDir, settings: &SessionSettings, path: &OsString) -> LocalSandbox {
    LocalSandbox::new(LocalOptions {
        root: state.file("boxes"),
        owner: owner_of(state),
        // The program that runs, also if its file has been replaced since.
        keeper: KeeperCommand {
            program: PathBuf::from("/proc/self/exe"),
            args: vec![keeping::BOX.to_owned()],
        },
        path: std::env::split_paths(path).collect(),
        level: match settings.isolation {
            BoxIsolation::Bubblewrap | BoxIsolation::Engine(_) => Level::Bubblewrap,
            BoxIsolation::None => Level::Nothing,
        },
        groups: Groups::Found,
    })
}

/// The boxes of a state directory that a container engine keeps. None is looked for before there is one to make.
pub fn containers(state: &StateDir, live: &Arc<Live>) -> Containers {
    let live = Arc::clone(live);
    Containers::new(ContainerOptions {
        root: state.file("containers"),
        owner: owner_of(state),
        places: places(Environment::of_process()),
        pull: Pull::Missing,
        progress: Arc::new(move |name, line| {
            tracing::info!(session = %name, "the image is fetched: {line}");
            if let Ok(session) = SessionId::parse(name.as_str()) {
                live.say(&session, &format!("the image is fetched: {line}"));
            }
        }),
    })
}

/// The same for every daemon on this directory, and no other.
fn owner_of(state: &StateDir) -> String {
    let digest = sha2::Sha256::digest(state.path().as_os_str().as_encoded_bytes());
    digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Whether a session that is made now could be run.
fn check(rooms: Arc<RealRooms>) -> Check {
    let (sender, _) = watch::channel(None::<Instant>);
    let good = Arc::new(sender);
    Arc::new(move || {
        let (rooms, good) = (Arc::clone(&rooms), Arc::clone(&good));
        Box::pin(async move {
            if good.borrow().is_some_and(|at| at.elapsed() < BELIEVED) {
                return Ok(());
            }
            let runtime = rooms.base.borrow().runtime;
            let ability = match (runtime, rooms.sandbox().engine()) {
                (Runtime::Docker, Some(engine)) => engine.probe().await,
                (Runtime::Docker, None) | (Runtime::Local, _) => rooms.sandbox().probe().await,
            };
            let ability = ability.map_err(|error| error.to_string())?;
            let missing = ability.missing.iter().filter(|missing| missing.gravity == Gravity::Refuses);
            let mut missing: Vec<String> = missing.map(ToString::to_string).collect();
            let isolation = rooms.base.borrow().isolation.clone();
            if let (Runtime::Docker, Some(engine), Some(oci)) =
                (runtime, rooms.sandbox().engine().filter(|_| missing.is_empty()), isolation.oci_runtime())
            {
                let lacks =
                    engine.missing_runtime(oci.as_str()).await.map_err(|trouble| trouble.to_string())?;
                missing.extend(lacks.map(|lacks| lacks.to_string()));
            }
            if !missing.is_empty() {
                return Err(missing.join("; "));
            }
            good.send_replace(Some(Instant::now()));
            Ok(())
        })
    })
}

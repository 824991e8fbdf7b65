//! What a daemon does for each box that runs: it writes down what the box prints, and looks at what no engine holds.
//!
//! A follower begins when a box is started or found, and ends with the box or the daemon. The next daemon's begins anew:
//! the engine keeps as much of the log as we do.
//!
//! Files are written and counted on threads of their own: all followers share one with whatever else the daemon does for
//! sessions, and a box decides how much there is to do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use beneath::Count;
use bollard::query_parameters::LogsOptions;
use futures_util::{Stream, StreamExt as _};
use model::ports::sandbox::{BoxName, Cause, Hits};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

use crate::engine::{CALL, Engine};
use crate::groups;
use crate::log::Log;
use crate::shared::Shared;
use crate::states::{Life, Mine};

/// Entries of a directory that are counted before it is looked whether anybody still wants to know.
const STEP: usize = 500;
/// Counting takes at most this part of the time …
const SHARE: u32 = 20;
/// … never comes more often than this …
const PAUSE: Duration = Duration::from_secs(2);
/// … and never more seldom: whoever fills the box decides how long a count takes, not when the next one is.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Bytes that a box may print in a second before its follower takes its time. The engine keeps the rest, or drops it.
const RATE: u32 = 4 << 20;
/// Pieces of a log that are written together.
const PIECES: usize = 64;
/// Before a broken stream is taken up again.
const AGAIN: Duration = Duration::from_millis(500);
/// What is told of the end of a log.
const TAIL: usize = 2 << 10;

/// What was seen of a container and its engine does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) hits: Hits,
    pub(crate) disk: Option<u64>,
}

/// By container.
#[derive(Debug, Default)]
pub(crate) struct Sights(Mutex<HashMap<String, Seen>>);

impl Sights {
    pub(crate) fn of(&self, mine: &Mine) -> Seen {
        let now = mine.pid.map(groups::hits).unwrap_or_default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.entry(mine.id.clone()).or_default();
        seen.hits.memory = seen.hits.memory.max(now.memory);
        seen.hits.pids = seen.hits.pids.max(now.pids);
        *seen
    }

    fn disk(&self, id: &str, bytes: u64, hit: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.entry(id.to_owned()).or_default();
        seen.disk = Some(bytes);
        seen.hits.disk = seen.hits.disk.max(u64::from(hit));
    }

    pub(crate) fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// Those of one daemon. They end with it.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tasks: JoinSet<()>,
    by_id: HashMap<String, AbortHandle>,
}

impl Followers {
    /// Nothing where this container is followed already.
    pub(crate) fn follow(&self, shared: &Arc<Shared>, name: &BoxName, mine: &Mine) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.tasks.try_join_next().is_some() {}
        inner.by_id.retain(|_, task| !task.is_finished());
        if inner.by_id.contains_key(&mine.id) {
            return;
        }
        let task = follower(Arc::clone(shared), name.clone(), mine.clone());
        let handle = inner.tasks.spawn(task);
        inner.by_id.insert(mine.id.clone(), handle);
    }
}

impl Followers {
    /// Whoever writes the whole log must be the only one: a follower that lags behind would put it aside as full.
    pub(crate) async fn leave(&self, id: &str) {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner).by_id.remove(id);
        let Some(handle) = handle else { return };
        handle.abort();
        while !handle.is_finished() {
            yield_now().await;
        }
    }
}

async fn follower(shared: Arc<Shared>, name: BoxName, mine: Mine) {
    tokio::select! {
        () = logs(&shared, &name, &mine) => {}
        () = watch(&shared, &name, &mine) => {}
    }
}

async fn logs(shared: &Shared, name: &BoxName, mine: &Mine) {
    loop {
        let keeper = shared.keeper(name).await;
        if let Ok(engine) = &keeper {
            write(engine, &shared.record(name).log(), &mine.id, Follow::Yes).await;
        }
        // An engine that went away says nothing of its boxes; one that forgot the box does.
        match shared.look_at(name, &mine.id).await {
            Ok(None) => return,
            Ok(Some(mine)) if mine.life != Life::Running => return,
            Ok(Some(_)) => {}
            // A broken stream may be all that is seen of an engine that went.
            Err(_) => {
                if let Ok(engine) = &keeper {
                    shared.engines.leave(engine).await;
                }
            }
        }
        sleep(AGAIN).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    Yes,
    No,
}

/// Writes all that the engine has of a log, from its beginning.
pub(crate) async fn write(engine: &Engine, path: &Path, id: &str, follow: Follow) {
    let path = path.to_owned();
    let Ok(Ok(mut log)) = spawn_blocking(|| Log::begin(path)).await else { return };
    let mut pieces = std::pin::pin!(stream(engine, id, follow, "all").ready_chunks(PIECES));
    while let Some(pieces) = pieces.next().await {
        let bytes = pieces.iter().map(bytes::Bytes::len).sum::<usize>();
        let written = spawn_blocking(move || {
            for piece in &pieces {
                log.write(piece);
            }
            log
        });
        let Ok(back) = written.await else { return };
        log = back;
        if follow == Follow::Yes {
            sleep(Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(RATE) / RATE).await;
        }
    }
}

fn stream(engine: &Engine, id: &str, follow: Follow, tail: &str) -> impl Stream<Item = bytes::Bytes> {
    let options = LogsOptions {
        follow: follow == Follow::Yes,
        stdout: true,
        stderr: true,
        tail: tail.to_owned(),
        ..LogsOptions::default()
    };
    let pieces = engine.docker.logs(id, Some(options));
    pieces
        .take_while(|piece| std::future::ready(piece.is_ok()))
        .filter_map(async |piece| Some(piece.ok()?.into_bytes()))
}

/// The last that a box printed, if it printed anything.
pub(crate) async fn tail(engine: &Engine, id: &str) -> Option<String> {
    let mut last = Vec::new();
    let read = async {
        let mut pieces = std::pin::pin!(stream(engine, id, Follow::No, "40"));
        while let Some(piece) = pieces.next().await {
            last.extend_from_slice(&piece);
            let surplus = last.len().saturating_sub(TAIL);
            last.drain(..surplus);
        }
    };
    // A message is not worth an error.
    let _late = timeout(CALL, read).await;
    let text = String::from_utf8_lossy(&last);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Ends with the box where a limit of disk was passed; else only when it is dropped.
async fn watch(shared: &Shared, name: &BoxName, mine: &Mine) {
    loop {
        let since = Instant::now();
        shared.sights.of(mine);
        if let Some(most) = mine.kept.limits.disk
            && let Some(bytes) = count(mine, most).await
        {
            shared.sights.disk(&mine.id, bytes, bytes > most);
            if bytes > most && shared.end_for(name, mine, Cause::Disk).await {
                return std::future::pending().await;
            }
        }
        sleep((since.elapsed() * SHARE).clamp(PAUSE, LONGEST_PAUSE)).await;
    }
}

async fn count(mine: &Mine, most: u64) -> Option<u64> {
    let directories = [mine.kept.workspace.clone(), mine.kept.meta.clone()];
    // Let go of with this future.
    let wanted = Arc::new(());
    let asked = Arc::downgrade(&wanted);
    let counting = spawn_blocking(move || {
        let mut count = Count::new(&directories.each_ref().map(PathBuf::as_path), most).ok()?;
        while asked.strong_count() > 0 {
            if let Some(bytes) = count.step(STEP) {
                return Some(bytes);
            }
        }
        None
    });
    let counted = counting.await.ok().flatten();
    drop(wanted);
    counted
}

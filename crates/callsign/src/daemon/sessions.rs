//! The thread `sessions`: callsign's own server on the daemon's socket, with a runtime of its own, so that no call
//! through the gateway waits for a session and none of these waits for a call.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gateway::redact::Redactor;
use gateway::server::remote::door;
use http::{HeaderMap, StatusCode};
use identity::workspace::Roots;
use model::settings::SessionSettings;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::socket::{self, Service, plain};
use crate::sessions::quay::Visit;
use crate::state::StateDir;

/// What sessions need from the daemon.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub state: StateDir,
    /// `[sessions]` as the file says it now, and the daemon's own variables over it.
    pub settings: watch::Receiver<Arc<SessionSettings>>,
    /// `[workspace] roots` as the file says it now.
    pub roots: watch::Receiver<Roots>,
    pub redactor: Arc<Redactor>,
    /// Where connections of boxes to the gateway are served.
    pub gateway: mpsc::Sender<Visit>,
    /// For whatever runs as long as the daemon does. It is waited for at the end.
    pub tasks: TaskTracker,
    /// No more requests come; `tasks` are to end.
    pub stop: CancellationToken,
}

/// What answers at `/mcp/sessions`. Called once, in the runtime of the thread `sessions`.
///
/// Where it fails the daemon goes on, and every request is answered with the reason.
pub async fn sessions_service(around: Surroundings) -> anyhow::Result<Service> {
    crate::sessions::start(around).await
}

/// The thread. Dropped, it ends and is waited for.
#[derive(Debug)]
pub struct Sessions {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Sessions {
    /// `whole` is cancelled when the thread ends, however it does: a daemon without its socket cannot be found, and
    /// keeps others from taking its place.
    pub fn start(
        listener: UnixListener,
        around: Surroundings,
        whole: CancellationToken,
    ) -> std::io::Result<Self> {
        let stop = around.stop.clone();
        let run = move || {
            let _whole = whole.drop_guard();
            if let Err(error) = run(listener, around) {
                tracing::error!("the socket cannot be served: {error:#}");
            }
        };
        let thread = std::thread::Builder::new().name("sessions".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn run(listener: UnixListener, around: Surroundings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, tasks, redactor) = (around.stop.clone(), around.tasks.clone(), Arc::clone(&around.redactor));
    runtime.block_on(async {
        let service = match sessions_service(around).await {
            Ok(service) => service,
            Err(error) => {
                tracing::warn!("there are no sessions: {error:#}");
                unavailable(&error)
            }
        };
        let service: Service = Arc::new(move |request| {
            learn(&redactor, request.headers());
            service(request)
        });
        socket::serve(listener, service, stop).await.context("could not listen")?;
        tasks.close();
        if tokio::time::timeout(super::ENDING, tasks.wait()).await.is_err() {
            tracing::warn!(
                "sessions did not come to rest in time; what they were doing goes on at the next start"
            );
        }
        Ok(())
    })
}

fn unavailable(error: &anyhow::Error) -> Service {
    let text = format!("there are no sessions: {error:#}\n");
    Arc::new(move |_| {
        let response = plain(StatusCode::SERVICE_UNAVAILABLE, text.clone());
        Box::pin(std::future::ready(response))
    })
}

/// Keys that come with a request are written down nowhere, whatever becomes of it.
fn learn(redactor: &Redactor, headers: &HeaderMap) {
    let settings = headers.get(door::SETTINGS).and_then(|value| BASE64_STANDARD.decode(value).ok());
    let settings: Option<std::collections::BTreeMap<String, String>> =
        settings.and_then(|json| serde_json::from_slice(&json).ok());
    for (name, value) in settings.into_iter().flatten() {
        if name.ends_with("_API_KEY") {
            redactor.learn(&value);
        }
    }
}

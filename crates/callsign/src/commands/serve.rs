//! `callsign serve`: the daemon.

use crate::app::{Global, ServeArgs};
use crate::daemon::{self, Mode, Plan};
use crate::logging;

pub fn run(global: &Global, arguments: &ServeArgs, socket_only: bool) -> anyhow::Result<()> {
    let spawner = daemon::start_spawner()?;
    logging::start(global)?;
    let mode = if socket_only { Mode::SocketOnly } else { Mode::Http };
    let plan = Plan::load(global, arguments, mode)?;
    for warning in &plan.config.warnings {
        tracing::warn!("{warning}");
    }
    daemon::run(plan, spawner, |running| {
        if let Some(url) = &running.url {
            tracing::info!("listening on {url}");
        } else {
            tracing::info!("listening on {}", running.socket.display());
        }
        Ok(())
    })
}

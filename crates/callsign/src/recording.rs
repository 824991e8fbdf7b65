//! Where a process of ours notes its calls: the ledger, whoever collects spans, and what must not be written down.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway::environment::HostEnvironment;
use gateway::recorded::Sinks;
use gateway::redact::Redactor;
use gateway::server::remote;
use http::{HeaderName, HeaderValue};
use ledger::{Ledger, Options, Place, Retention};
use model::{ServerSpec, Transport};
use telemetry::export::{ExportOptions, Exporter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, LedgerConfig, TelemetryConfig};
use crate::exit::{Code, Failure};
use crate::identification::now_ms;
use crate::logging;
use crate::notary;
use crate::state::StateDir;

/// A configured value this long is taken for a secret, whatever its name.
const LONG: usize = 20;
/// How long a start waits for the ledger.
const OPENING: Duration = Duration::from_secs(1);
/// How long the last rows may take to be written once all calls have ended.
const WRITING: Duration = Duration::from_secs(5);

/// What there is to begin with.
#[derive(Debug)]
pub struct Parts<'a> {
    pub config: &'a Config,
    /// None: it cannot be used.
    pub state: Option<&'a StateDir>,
    pub host: &'a HostEnvironment,
    /// What writes: `wrap` or `serve`.
    pub kind: &'static str,
    pub tasks: &'a TaskTracker,
    /// Ends the sending of spans.
    pub stop: CancellationToken,
}

pub fn assemble(parts: Parts<'_>) -> anyhow::Result<Arc<Sinks>> {
    let Parts { config, state, host, kind, tasks, stop } = parts;
    let redactor = Redactor::new(&config.ledger.redact).map_err(|(at, why)| {
        Failure::new(Code::Configuration, format!("[ledger] redact: pattern {}: {why}", at + 1))
    })?;
    learn(&redactor, config.servers.iter(), host);
    for (_, value) in config.hooks.env.iter().filter(|(name, _)| sounds_secret(name)) {
        redactor.learn_for_good(value);
    }
    if let Some(token) = state.and_then(|state| state.read("token").ok().flatten()) {
        redactor.learn_for_good(token.trim());
    }
    let exporter = config.telemetry.as_ref().map(|telemetry| exporter(telemetry, tasks, stop, &redactor));
    let redactor = Arc::new(redactor);
    logging::keep_out(&redactor);
    Ok(Arc::new(Sinks {
        ledger: ledger(&config.ledger, state, kind)?,
        exporter: exporter.transpose()?,
        redactor,
        clock: now_ms,
    }))
}

fn ledger(
    config: &LedgerConfig,
    state: Option<&StateDir>,
    kind: &'static str,
) -> anyhow::Result<Option<Arc<Ledger>>> {
    if !config.enabled {
        return Ok(None);
    }
    let Some(state) = state else {
        if config.strict {
            let message = "[ledger] strict = true, and the state directory cannot be used";
            return Err(Failure::new(Code::State, message).into());
        }
        tracing::warn!("calls are not noted in the ledger: the state directory cannot be used");
        return Ok(None);
    };
    let options = Options {
        place: Place::of(state.path()),
        strict: config.strict,
        retention: Retention { age: config.keep, size: Some(config.max_size) },
        kind,
    };
    let seal = notary::of(state.path());
    Ok(Some(Arc::new(Ledger::open(options, seal).context("could not start the ledger")?)))
}

fn exporter(
    config: &TelemetryConfig,
    tasks: &TaskTracker,
    stop: CancellationToken,
    redactor: &Redactor,
) -> anyhow::Result<Exporter> {
    let mut headers = Vec::new();
    for (name, value) in &config.headers {
        redactor.learn_for_good(value);
        let wrong = || Failure::new(Code::Configuration, format!("[telemetry] headers: {name}"));
        let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.push((name, value));
    }
    let options = ExportOptions {
        url: config.otlp.parse().context("[telemetry] otlp is no address")?,
        headers,
        service: config.service.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tls: remote::tls(config.otlp.starts_with("https:")),
    };
    Ok(Exporter::start(options, tasks, stop))
}

/// What is known to be secret is never written down, whoever says it.
pub fn learn<'a>(redactor: &Redactor, specs: impl Iterator<Item = &'a ServerSpec>, host: &HostEnvironment) {
    for (name, value) in &host.0 {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && sounds_secret(name)
        {
            redactor.learn_for_good(value);
        }
    }
    for spec in specs {
        let templates = match &spec.transport {
            Transport::Stdio(stdio) => &stdio.env,
            Transport::Http(http) => &http.headers,
        };
        for (name, template) in templates {
            template.secrets().for_each(|secret| redactor.learn_for_good(secret));
            // A short word that is written out may be anything; a long one, or one of such a name, is kept out.
            let plain = template.render(&|_| None);
            if let Some(value) = plain.filter(|value| sounds_secret(name) || value.len() >= LONG) {
                redactor.learn_for_good(&value);
            }
        }
    }
}

fn sounds_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "_PAT"];
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word)) || name.ends_with("_PWD")
}

/// Waits a moment for the ledger, so that whoever is told that we serve finds all of it there. Where it cannot be used
/// the log says why, and it is tried again.
pub async fn settle(sinks: &Sinks) {
    if let Some(ledger) = &sinks.ledger {
        let _tried_again = tokio::time::timeout(OPENING, ledger.ready()).await;
    }
}

/// Writes what is left. To be called when no call is under way any more.
pub fn close(sinks: &Sinks) {
    if let Some(ledger) = &sinks.ledger
        && !ledger.close(WRITING)
    {
        let rows = ledger.depth().waiting;
        tracing::error!(rows, "rows could not be written into the ledger before the end");
    }
}

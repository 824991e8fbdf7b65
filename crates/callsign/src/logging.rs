//! Logs go to stderr: on stdout is the protocol, or data. No secret that is known goes with them.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use gateway::redact::Redactor;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::app::Global;
use crate::exit::{Code, Failure};

/// Set once it is known what is secret. Before that, nothing is logged that could be.
static REDACTOR: OnceLock<Arc<Redactor>> = OnceLock::new();

/// From now on, what this knows is taken out of every line.
pub fn keep_out(redactor: &Arc<Redactor>) {
    let _the_first = REDACTOR.set(Arc::clone(redactor));
}

pub fn start(global: &Global) -> anyhow::Result<()> {
    let targets: Targets = global.log.parse().map_err(|_| {
        let message = format!("`{}` is not a log level", global.log);
        Failure::new(Code::Usage, message).with_hint("use error, warn, info, debug, trace or target=level")
    })?;
    // It says of every request that it came and went, unless somebody wants to know.
    let targets =
        if global.log.contains("rmcp") { targets } else { targets.with_target("rmcp", LevelFilter::WARN) };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let colour = is_terminal && crate::config::Environment::of_process().get("NO_COLOR").is_none();
    let format = tracing_subscriber::fmt::layer().with_writer(Scrubbed).with_ansi(colour).with_target(false);
    tracing_subscriber::registry().with(format).with(targets).init();
    Ok(())
}

/// Stderr, a line at a time: what is logged comes in one piece.
#[derive(Debug, Clone, Copy)]
struct Scrubbed;

impl<'a> MakeWriter<'a> for Scrubbed {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Scrubbed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (REDACTOR.get(), std::str::from_utf8(bytes)) {
            (Some(redactor), Ok(text)) => io::stderr().write_all(redactor.scrub(text).as_bytes())?,
            _ => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

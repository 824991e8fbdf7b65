//! The echo server: an MCP server of both eras that is small, fast and says what it saw.
//!
//! [`Session::handle`] takes one message and gives a [`Reply`]; `stdio.rs` and `http.rs` carry it.
//! A slow tool is a [`Job`] that runs on a thread of its own, so that `sleep` holds nobody up and
//! the stdio server needs no runtime.

mod answer;
pub mod http;
mod session;
pub mod stdio;
mod tools;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::record::Recorder;

pub use session::{Running, Session};

/// Settings from the command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `tools/list` gives this many per page; None: all at once.
    pub page_size: Option<usize>,
    /// HTTP, legacy era: offer a GET stream instead of answering 405.
    pub stream: bool,
    /// Offer `task`, a tool that cannot do without a workspace.
    pub workspace_tool: bool,
    /// Where every message is written down as it came.
    pub record: Option<Arc<Recorder>>,
}

/// Where notifications and server requests go: stdout, or the event stream of one HTTP answer.
pub trait Outlet: Send + Sync + std::fmt::Debug {
    /// Writes one message. False when nobody can read it any more.
    fn send(&self, message: Vec<u8>) -> bool;
}

/// Runs on a thread of its own; what it returns is the answer, None means that there is none.
pub type Job = Box<dyn FnOnce(&Arc<dyn Outlet>) -> Option<Vec<u8>> + Send>;

#[derive(Debug)]
pub enum Reply {
    /// A notification or a response: nothing to say.
    Nothing,
    Now(Vec<u8>),
    /// An error that has a status of its own over HTTP in the modern era.
    Status(u16, Vec<u8>),
    /// Answers later, alone.
    Later(Slow),
    /// Answers later, with messages before the answer.
    Stream(Slow),
}

pub struct Slow {
    pub job: Job,
    /// How to cancel it, where it can be.
    pub running: Option<Arc<Running>>,
}

impl Slow {
    fn new(job: impl FnOnce(&Arc<dyn Outlet>) -> Option<Vec<u8>> + Send + 'static) -> Self {
        Self { job: Box::new(job), running: None }
    }

    fn cancellable(
        running: Arc<Running>,
        job: impl FnOnce(&Arc<dyn Outlet>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        Self { job: Box::new(job), running: Some(running) }
    }
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slow").field("running", &self.running).finish_non_exhaustive()
    }
}

/// The program: `--stdio | --http ADDR [--page-size N] [--stream] [--log FILE] [--workspace-tool]
/// [--require-env NAME]`.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options::default();
    let mut http = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--http" => http = arguments.next(),
            "--page-size" => options.page_size = arguments.next().and_then(|size| size.parse().ok()),
            "--stream" => options.stream = true,
            "--workspace-tool" => options.workspace_tool = true,
            "--require-env" => require_variable(&arguments.next().unwrap_or_default())?,
            "--log" => {
                let path = arguments.next().ok_or(std::io::ErrorKind::InvalidInput)?;
                options.record = Some(Arc::new(Recorder::open(Path::new(&path))?));
            }
            "--orphan-first" => return tools::orphan_first(),
            "--orphan-second" => {
                tools::orphan_second();
                return Ok(());
            }
            // `--stdio` is the default; further arguments only tell copies of this server apart.
            _ => {}
        }
    }
    match http {
        Some(address) => http::run(&address, options),
        None => stdio::run(options),
    }
}

/// A server that cannot do without a variable ends at once where it is missing.
fn require_variable(name: &str) -> std::io::Result<()> {
    if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
        return Ok(());
    }
    let message = format!("this server requires {name}");
    drop(std::io::Write::write_all(&mut std::io::stderr(), format!("{message}\n").as_bytes()));
    Err(std::io::Error::other(message))
}
